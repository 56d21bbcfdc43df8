"""Sessions in a signed cookie, for development and hosts that sign users in themselves (D12)."""

from collections.abc import Sequence

from itsdangerous import BadData, URLSafeTimedSerializer

from ..core.weak_secrets import refuse_weak
from ..stores.base import IoMode
from .session import LONGEST_COOKIE, Session


class SignedCookie:
    """Issues and verifies session cookies signed with a secret of this service.

    Args:
        secrets: at least 16 bytes each, newest first. The first signs and all verify, so rotate
            by adding a new one in front.
        max_age: the lifetime of a session, in seconds.
    """

    io: IoMode = "none"

    def __init__(self, secrets: Sequence[str], max_age: int = 12 * 3600) -> None:
        self._serializer = URLSafeTimedSerializer(oldest_first(secrets), salt="lockgate.session")
        self._max_age = max_age

    def issue(self, session: Session) -> str:
        """Return the cookie value for a session."""
        fields = session.organization, session.user, session.verified_email
        return str(self._serializer.dumps(list(fields)))

    async def verify(self, cookie: str) -> Session | None:
        """Return the session of a cookie; None if it is forged or too old."""
        if len(cookie) > LONGEST_COOKIE:
            return None
        try:
            organization, user, email = self._serializer.loads(cookie, max_age=self._max_age)
        except (BadData, TypeError, ValueError):
            return None
        return Session(organization, user, email)


def oldest_first(secrets: Sequence[str]) -> list[str]:
    """Return secrets in the order that itsdangerous expects.

    Raises:
        ConfigurationError: the list is empty, or a secret is weak.
    """
    for secret in secrets or [""]:
        refuse_weak("session secret", secret, "secrets.token_urlsafe(32)")
    return list(reversed(secrets))
