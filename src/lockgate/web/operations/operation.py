"""The parts of lockgate's own operations, framework-free."""

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from pydantic import BaseModel

from ...core.access_rule import Credential, Rule
from ...errors import Header
from ...gate import Gate
from ...principal import Principal
from ..bodies import BODY_LIMIT
from ..queries import Parameter
from ..request import RequestView

ReadBody = Callable[[int], Awaitable[bytes]]
"""Reads a request's whole body; raises :class:`PayloadTooLarge` past so many bytes."""


class Call(NamedTuple):
    """The input of a handler."""

    gate: Gate
    caller: RequestView
    who: Principal | None
    """Who is in; None where the rule is public."""
    params: Mapping[str, str]
    body: bytes
    headers: list[Header]
    """Takes the further headers of the answer."""

    @property
    def principal(self) -> Principal:
        """Who is in, where the rule is not public."""
        assert self.who is not None, "nobody comes in by such a rule without a principal"
        return self.who

    def __repr__(self) -> str:
        line = self.gate.format.redact(f"{self.caller.method} {self.caller.path}")
        return f"<Call {line}>"  # Some bodies hold a token (K2).


class Reply(NamedTuple):
    """An answer, ready for any face to send."""

    status: int
    headers: tuple[Header, ...]
    body: bytes

    def __repr__(self) -> str:
        return f"<Reply {self.status}>"  # The body of one of them holds a key (K2).


class Endpoint(NamedTuple):
    """One operation: where it lives below the prefix, what it needs, and who answers."""

    method: str
    path: str
    rule: Rule
    handler: Callable[[Call], Awaitable[BaseModel | bytes]]
    """Returns the body of the answer; bytes: as JSON."""
    summary: str
    response: type[BaseModel]
    status: int = 200
    request: type[BaseModel] | None = None
    query: tuple[Parameter, ...] = ()
    """The query parameters that it reads; any other is refused where it reads some."""
    reads_session: bool = False
    """Whether the handler itself asks who has signed in, by a public rule: such a caller may have
    no organization yet, so there is none to count on."""
    body_limit: int = BODY_LIMIT
    """The most bytes of a body that it reads."""
    before_body: Callable[[Gate, RequestView], None] | None = None
    """Raises the refusal of a request whose body is not to be read."""
    tells: str | None = None
    """The event that tells of a refusal, whatever its reason; None: none does."""

    @property
    def credentials(self) -> tuple[Credential, ...]:
        """Any one of these is needed; empty: none is."""
        if self.rule.public:
            return ("session",) if self.reads_session else ()
        return self.rule.accepts
