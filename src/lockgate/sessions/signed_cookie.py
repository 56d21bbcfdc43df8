"""Sessions in a signed cookie: for development, and where the host signs people in (D12)."""

from collections.abc import Sequence

from itsdangerous import BadData, URLSafeTimedSerializer

from ..core.weak_secrets import refuse_weak
from ..stores.base import IoMode
from .session import LONGEST_COOKIE, Session


class SignedCookie:
    """Issues and verifies session cookies signed with a secret of this service.

    Args:
        secrets: at least 16 bytes each, the newest first. The newest signs; all verify, so a
            secret is rotated by putting a new one in front.
        max_age: seconds for which a session is good.
    """

    io: IoMode = "none"

    def __init__(self, secrets: Sequence[str], max_age: int = 12 * 3600) -> None:
        self._serializer = URLSafeTimedSerializer(oldest_first(secrets), salt="lockgate.session")
        self._max_age = max_age

    def issue(self, session: Session) -> str:
        """The cookie value for a session."""
        fields = session.organization, session.user, session.verified_email
        return str(self._serializer.dumps(list(fields)))

    async def verify(self, cookie: str) -> Session | None:
        """The session that was issued with this value; None if it is forged or too old."""
        if len(cookie) > LONGEST_COOKIE:
            return None
        try:
            organization, user, email = self._serializer.loads(cookie, max_age=self._max_age)
        except (BadData, TypeError, ValueError):
            return None
        return Session(organization, user, email)


def oldest_first(secrets: Sequence[str]) -> list[str]:
    """Secrets in the order in which itsdangerous takes them.

    Raises:
        ConfigurationError: the list is empty, or one of them can be guessed.
    """
    for secret in secrets or [""]:
        refuse_weak("session secret", secret, "secrets.token_urlsafe(32)")
    return list(reversed(secrets))
