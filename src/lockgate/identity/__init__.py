"""Who a session is."""

from .session import SESSION_COOKIE, Session, SessionVerifier, session_cookie
from .signed_cookie import SignedCookie

__all__ = ["SESSION_COOKIE", "Session", "SessionVerifier", "SignedCookie", "session_cookie"]
