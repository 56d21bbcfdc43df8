"""The signed session cookie of an agent (D12)."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from itsdangerous import BadData, URLSafeSerializer

from .session import LONGEST_COOKIE
from .signed_cookie import oldest_first

_START: Final = "agent."


class AgentTicket(NamedTuple):
    """The content of an agent's session cookie; it names the dashboard token by its handle."""

    handle: str
    sign_outs: int
    issued_at: int


class AgentCookie:
    """Writes and reads tickets as cookie values; the account decides whether one is still valid.

    Args:
        secrets: at least 16 bytes each, the newest first; the newest signs, all verify. They
            may be the secrets of another signed cookie: the salts differ.
    """

    def __init__(self, secrets: Sequence[str]) -> None:
        self._serializer = URLSafeSerializer(oldest_first(secrets), salt="lockgate.agent")

    def write(self, ticket: AgentTicket) -> str:
        """Return the cookie's value."""
        return _START + str(self._serializer.dumps(list(ticket)))

    def is_one(self, cookie: str) -> bool:
        """Return whether a value has the form of an agent's cookie; no other verifier reads it."""
        return cookie.startswith(_START)

    def read(self, cookie: str) -> AgentTicket | None:
        """Return the ticket of a cookie; None if it is forged."""
        if not self.is_one(cookie) or len(cookie) > LONGEST_COOKIE:
            return None
        try:
            fields: Any = self._serializer.loads(cookie.removeprefix(_START))
            ticket = AgentTicket._make(fields)
        except (BadData, TypeError):
            return None
        return ticket
