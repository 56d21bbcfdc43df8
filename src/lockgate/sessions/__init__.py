"""Sessions and their verifiers; :mod:`lockgate.sessions.jwt` (extra ``jwt``) verifies tokens."""

from .claim_map import ClaimMap
from .options import StepUp, StepUpRequest
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
    "StepUp",
    "StepUpRequest",
    "session_cookie",
    "verifies_offline",
]
