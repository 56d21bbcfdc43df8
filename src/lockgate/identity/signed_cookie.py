"""Sessions in a signed cookie: for development, and for agents that sign in by token (D12)."""

from collections.abc import Sequence
from typing import Final

from itsdangerous import BadData, URLSafeTimedSerializer

from ..errors import ConfigurationError
from .session import Session

_SHORTEST_SECRET: Final = 16
_LONGEST_COOKIE: Final = 4096


class SignedCookie:
    """Issues and verifies session cookies signed with a secret of this service.

    Args:
        secrets: at least 16 characters each, the newest first. The newest signs; all verify, so a
            secret is rotated by putting a new one in front.
        max_age: seconds for which a session is good.
    """

    def __init__(self, secrets: Sequence[str], max_age: int = 12 * 3600) -> None:
        if not secrets or any(len(secret) < _SHORTEST_SECRET for secret in secrets):
            raise ConfigurationError(
                f"A session secret has at least {_SHORTEST_SECRET} characters: "
                "make one with secrets.token_urlsafe(32)."
            )
        oldest_first = list(reversed(secrets))
        self._serializer = URLSafeTimedSerializer(oldest_first, salt="lockgate.session")
        self._max_age = max_age

    def issue(self, session: Session) -> str:
        """The cookie value for a session."""
        return str(self._serializer.dumps(list(session)))

    async def verify(self, cookie: str) -> Session | None:
        """The session that was issued with this value; None if it is forged or too old."""
        if len(cookie) > _LONGEST_COOKIE:
            return None
        try:
            fields = self._serializer.loads(cookie, max_age=self._max_age)
            return Session(*fields)
        except (BadData, TypeError):
            return None
