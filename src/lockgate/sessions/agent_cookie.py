"""What an agent's session cookie holds, signed (D12)."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from itsdangerous import BadData, URLSafeSerializer

from .session import LONGEST_COOKIE
from .signed_cookie import oldest_first

_START: Final = "agent."


class AgentTicket(NamedTuple):
    """What an agent's session began with. It names the dashboard token, and does not hold it."""

    handle: str
    sign_outs: int
    issued_at: int


class AgentCookie:
    """Writes and reads tickets as cookie values. Whether one is still good is not for it to say.

    Args:
        secrets: at least 16 bytes each, the newest first; the newest signs, all verify. They
            may be shared with another signed cookie: the salts keep the two apart.
    """

    def __init__(self, secrets: Sequence[str]) -> None:
        self._serializer = URLSafeSerializer(oldest_first(secrets), salt="lockgate.agent")

    def write(self, ticket: AgentTicket) -> str:
        """The cookie's value."""
        return _START + str(self._serializer.dumps(list(ticket)))

    def is_one(self, cookie: str) -> bool:
        """Whether a value claims to be an agent's: no other verifier is then asked."""
        return cookie.startswith(_START)

    def read(self, cookie: str) -> AgentTicket | None:
        """The ticket that was written; None: it is forged."""
        if not self.is_one(cookie) or len(cookie) > LONGEST_COOKIE:
            return None
        try:
            fields: Any = self._serializer.loads(cookie.removeprefix(_START))
            ticket = AgentTicket._make(fields)
        except (BadData, TypeError):
            return None
        return ticket
