"""The view of a request that an ASGI scope holds, and its body."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from urllib.parse import quote

from ..core.sliding_window import Reading
from ..errors import Header, PayloadTooLarge
from ..stores.runtime.turns import turn
from ..sync import pause
from .asgi_types import Receive, Scope
from .request import below


class AsgiRequest:
    """A request, as the ASGI scope shows it."""

    __slots__ = ("_headers", "authorizations", "method", "outside", "path", "raw_path", "scope")

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.outside: Reading | None = None
        self._headers: list[Header] = scope["headers"]
        self.method: str = scope.get("method", "GET")
        path: str = scope["path"]
        root: str = scope.get("root_path", "")
        self.raw_path: bytes = scope.get("raw_path") or b""
        if root:
            before, found, after = path.partition(root)
            if found and not before and after[:1] in {"", "/"}:
                path = after
                self.raw_path = below(root, self.raw_path)
            elif found and path != f"/{after.lstrip('/')}":
                # Litestar goes on behind the prefix wherever it finds it, the others do not.
                self.raw_path = b"//" + quote(after, errors="surrogatepass").encode()
        self.path = path
        self.authorizations: list[bytes] = []
        for name, value in self._headers:  # As header() would find it, without another call.
            if name == b"authorization":
                self.authorizations.append(value)

    @property
    def query(self) -> bytes:
        """The query string as it came on the wire."""
        query: bytes = self.scope.get("query_string", b"")
        return query

    @property
    def hosts(self) -> list[bytes]:
        """Every value of ``Host`` as it came."""
        return [value for key, value in self._headers if key == b"host"]

    @property
    def peer(self) -> str | None:
        """The address of the connection's other end; None on a Unix socket."""
        client = self.scope.get("client")
        return client[0] if client else None

    def header(self, name: bytes) -> list[bytes]:
        """Every value of a header, by its lower-case name.

        White space around one is none of it (RFC 9110, 5.5); not every server takes it away.
        """
        return [value.strip(b" \t") for key, value in self._headers if key == name]

    def whole(self, name: bytes) -> list[bytes]:
        """Every value of a header: a server joins none."""
        return self.header(name)

    def has_any(self, names: frozenset[bytes]) -> bool:
        """Return whether the request has a header of one of these lower-case names."""
        for name, _ in self._headers:  # noqa: SIM110 - a generator takes twice as long
            if name in names:
                return True
        return False

    async def pause(self) -> None:
        """Let other tasks of the event loop run."""
        await pause()

    def turn(self) -> AbstractAsyncContextManager[None]:
        """Return a turn in the event loop."""
        return turn()


def body_reader(receive: Receive) -> Callable[[int], Awaitable[bytes]]:
    """Read a request's body whole, up to a limit."""

    async def read(limit: int) -> bytes:
        chunks: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            chunk: bytes = message.get("body", b"")
            size += len(chunk)
            if size > limit:
                raise PayloadTooLarge(limit)
            chunks.append(chunk)
            if not message.get("more_body", False):
                return b"".join(chunks)

    return read


class ClientGone(Exception):
    """The client went away before its body was whole, so no answer is sent."""
