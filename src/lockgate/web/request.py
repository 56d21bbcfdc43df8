"""The view of a request that adapters give to framework-free code."""

import re
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol

from ..core.sliding_window import Reading
from ..gate import Gate
from ..services.forwarded_headers import FORWARDED_HEADERS

SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
"""The methods that write nothing."""

_ESCAPE: Final = re.compile(rb"%([0-9A-Fa-f]{2})")


def below(root: str, raw: bytes) -> bytes:
    """A path as it came on the wire, without a prefix, however that is written there.

    Args:
        root: the prefix, decoded.
        raw: the path; where it does not start with the prefix, it stays unchanged.
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

    authorizations: list[bytes]
    """Every value of ``Authorization``; :class:`~lockgate.web.key_header.KeyHeaderGuard` adds."""
    outside: Reading | None
    """The tightest reading of limits by address, user or a function; None: it was charged for
    none."""

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

    def whole(self, name: bytes) -> list[bytes]:
        """Every value of a header, those that a WSGI server has joined by commas as one."""
        ...

    def has_any(self, names: frozenset[bytes]) -> bool:
        """Return whether the request has a header of one of these lower-case names."""
        ...

    async def pause(self) -> None:
        """Let other requests continue, where they share a thread with this one."""
        ...

    def turn(self) -> AbstractAsyncContextManager[None]:
        """Return the context of one step of a long list, likewise."""
        ...


def client_of(gate: Gate, caller: RequestView) -> str:
    """Return the whole address of a client, for the allow-lists of keys."""
    forwarded = caller.header(b"x-forwarded-for") if gate.addresses.trusts_any else ()
    return gate.addresses.client(caller.peer, forwarded)


def address_of(gate: Gate, caller: RequestView) -> str:
    """Return the address of a client, to count by (D24).

    Also report a forwarded header that is ignored, or that a configured proxy does not send, until
    one has been reported.
    """
    forwarding, addresses, peer = gate.forwarding, gate.addresses, caller.peer
    if forwarding.unreported and caller.has_any(FORWARDED_HEADERS) and not addresses.trusts(peer):
        values = [value for name in FORWARDED_HEADERS for value in caller.header(name)]
        forwarding.ignored(peer, values)
    if not addresses.trusts_any:
        return addresses.find(peer, ())
    forwarded = caller.header(b"x-forwarded-for")
    if forwarding.unproven and addresses.trusts(peer) and not _is_probe(gate, caller):
        named = addresses.client(peer, forwarded) != addresses.client(peer, ())
        forwarding.from_proxy(peer, names_client=named)
    return addresses.find(peer, forwarded)


def _is_probe(gate: Gate, caller: RequestView) -> bool:
    """Return whether a request is a probe of ``WebOptions(health=)``, which passes no proxy."""
    return gate.health is not None and caller.path.startswith(f"{gate.health}/")
