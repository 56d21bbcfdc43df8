"""Who a session is; :mod:`lockgate.identity.jwt`, an extra, verifies JSON Web Tokens."""

from .claims import ClaimMap
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
