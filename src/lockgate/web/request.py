"""The view of a request that adapters give to framework-free code."""

import re
from typing import Final, Protocol

from ..gate import Gate
from ..services.forwarded_headers import FORWARDED_HEADERS

SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
"""The methods that write nothing."""

_ESCAPE: Final = re.compile(rb"%([0-9A-Fa-f]{2})")


def below(root: str, raw: bytes) -> bytes:
    """A path as it came on the wire, without a prefix, however that is written there.

    Args:
        root: the prefix, decoded.
        raw: the path; where it does not start with the prefix, it stays as it is.
    """
    rest = raw
    for byte in root.encode("utf-8", "surrogatepass"):
        escape = _ESCAPE.match(rest)
        if (int(escape[1], 16) if escape else rest[:1]) not in {byte, bytes([byte])}:
            return raw
        rest = rest[3 if escape else 1 :]
    return rest


class RequestView(Protocol):
    """A request, as an adapter shows it to the guard."""

    @property
    def method(self) -> str:
        """The HTTP method; a WebSocket handshake is a GET."""
        ...

    @property
    def path(self) -> str:
        """The decoded path, as the application will see it."""
        ...

    @property
    def raw_path(self) -> bytes:
        """The path as it came on the wire; empty where the server does not tell."""
        ...

    @property
    def query(self) -> bytes:
        """The query string as it came on the wire, without ``?``; empty where there is none."""
        ...

    @property
    def authorizations(self) -> list[bytes]:
        """Every value of ``Authorization``."""
        ...

    @property
    def hosts(self) -> list[bytes]:
        """Every value of ``Host`` as it came, with white space around it if a server leaves it."""
        ...

    @property
    def peer(self) -> str | None:
        """The address of the connection's other end; None on a Unix socket."""
        ...

    def header(self, name: bytes) -> list[bytes]:
        """Every value of a header, by its lower-case name."""
        ...

    def has_any(self, names: frozenset[bytes]) -> bool:
        """Return whether the request has a header of one of these lower-case names."""
        ...

    async def pause(self) -> None:
        """Let other requests go on, where they share a thread with this one."""
        ...


def address_of(gate: Gate, caller: RequestView) -> str:
    """Return the address of a client, to count by (D24).

    Also report a forwarded header that is ignored, until one has been reported.
    """
    forwarding = gate.forwarding
    if (
        forwarding.unreported
        and caller.has_any(FORWARDED_HEADERS)
        and not gate.addresses.trusts(caller.peer)
    ):
        values = [value for name in FORWARDED_HEADERS for value in caller.header(name)]
        forwarding.ignored(caller.peer, values)
    forwarded = caller.header(b"x-forwarded-for") if gate.addresses.trusts_any else ()
    return gate.addresses.find(caller.peer, forwarded)
