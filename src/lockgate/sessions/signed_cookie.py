"""Sessions in a signed cookie, for development and hosts that sign users in themselves (D12)."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from itsdangerous import BadData, URLSafeTimedSerializer

from ..core.arguments import checks_arguments
from ..core.weak_secrets import refuse_weak
from ..stores.base import IoMode
from .session import LONGEST_COOKIE, Session

_MORE: Final[Mapping[str, object]] = {
    name: default
    for name, default in Session._field_defaults.items()
    if name not in {"user", "verified_email", "agent"}
}
"""Fields that a cookie holds only if they differ from these defaults, so that it stays short and
older processes read it. They refuse a cookie that holds one."""


@checks_arguments
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
        fields: list[object] = [session.organization, session.user, session.verified_email]
        more = {
            name: getattr(session, name)
            for name, default in _MORE.items()
            if getattr(session, name) != default
        }
        return str(self._serializer.dumps([*fields, more] if more else fields))

    async def verify(self, cookie: str) -> Session | None:
        """Return the session of a cookie; None if it is forged or too old."""
        if len(cookie) > LONGEST_COOKIE:
            return None
        try:
            fields: list[Any] = self._serializer.loads(cookie, max_age=self._max_age)
            organization, user, email, *rest = fields
            (more,) = rest or [{}]
            session = Session(organization, user, email, **more)
            return session._replace(scopes=tuple(session.scopes), amr=tuple(session.amr))
        except (BadData, TypeError, ValueError):
            return None


def oldest_first(secrets: Sequence[str]) -> list[str]:
    """Return secrets in the order that itsdangerous expects.

    Raises:
        ConfigurationError: the list is empty, or a secret is weak.
    """
    for secret in secrets or [""]:
        refuse_weak("session secret", secret, "secrets.token_urlsafe(32)")
    return list(reversed(secrets))
