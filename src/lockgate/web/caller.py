"""A request, as its face shows it to what is framework-free."""

from typing import Final, Protocol

SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
"""The methods that write nothing."""


class Caller(Protocol):
    """A request, as its face shows it."""

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
    def peer(self) -> str | None:
        """The address of the connection's other end; None on a Unix socket."""
        ...

    def header(self, name: bytes) -> list[bytes]:
        """Every value of a header, by its lower-case name."""
        ...
