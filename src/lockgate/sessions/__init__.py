"""Who a session is; :mod:`lockgate.sessions.jwt`, an extra, verifies JSON Web Tokens."""

from .claim_map import ClaimMap
from .session import (
    SESSION_COOKIE,
    OfflineVerifier,
    Session,
    SessionVerifier,
    session_cookie,
    verifies_offline,
)
from .signed_cookie import SignedCookie

__all__ = [
    "SESSION_COOKIE",
    "ClaimMap",
    "OfflineVerifier",
    "Session",
    "SessionVerifier",
    "SignedCookie",
    "session_cookie",
    "verifies_offline",
]
