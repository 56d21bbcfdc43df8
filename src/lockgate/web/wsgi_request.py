"""The view of a request that a WSGI environment holds, and its body."""

from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import lru_cache
from typing import Any
from wsgiref.types import WSGIEnvironment

from ..core.sliding_window import Reading
from ..errors import InvalidRequest, PayloadTooLarge, Problem
from .request import below


class WsgiRequest:
    """A request, as the WSGI environment shows it."""

    __slots__ = ("_environ", "authorizations", "method", "outside", "path", "raw_path")

    def __init__(self, environ: WSGIEnvironment) -> None:
        self._environ = environ
        self.outside: Reading | None = None
        self.method: str = environ["REQUEST_METHOD"]
        path: str = environ.get("PATH_INFO", "")
        # Each character of it is a byte; frameworks take the bytes for UTF-8, as is done here.
        self.path = path if path.isascii() else path.encode("latin-1").decode("utf-8", "replace")
        target: str = environ.get("REQUEST_URI") or environ.get("RAW_URI") or ""
        # Most tell no more than the path does.
        plain = target == self.path and "%" not in target
        self.raw_path = b"" if plain else _raw_path(target)
        if self.raw_path and (prefix := environ.get("SCRIPT_NAME")):
            self.raw_path = below(
                prefix.encode("latin-1").decode("utf-8", "replace"), self.raw_path
            )
        value: str | None = environ.get("HTTP_AUTHORIZATION")
        if value is None or "," in value:
            self.authorizations = _values(value)
        else:  # What _values() would make of it, without another call.
            self.authorizations = [value.strip(" \t").encode("latin-1")]

    @property
    def query(self) -> bytes:
        """The query string as it came on the wire."""
        query: str = self._environ.get("QUERY_STRING", "")
        return query.encode("latin-1", "replace")

    @property
    def hosts(self) -> list[bytes]:
        """Every value of ``Host`` as it came; servers join them with commas."""
        joined: str | None = self._environ.get("HTTP_HOST")
        return [] if joined is None else joined.encode("latin-1").split(b",")

    @property
    def peer(self) -> str | None:
        """The address of the connection's other end; None on a Unix socket."""
        return self._environ.get("REMOTE_ADDR") or None

    def header(self, name: bytes) -> list[bytes]:
        """Every value of a header, by its lower-case name: servers join them with commas.

        No header that is asked for here may hold a comma within one value.
        """
        return _values(self._environ.get(_variable(name)))

    def whole(self, name: bytes) -> list[bytes]:
        """The value of a header as the server gives it."""
        value: str | None = self._environ.get(_variable(name))
        return [] if value is None else [value.encode("latin-1")]

    def has_any(self, names: frozenset[bytes]) -> bool:
        """Return whether the request has a header of one of these lower-case names."""
        return any(_variable(name) in self._environ for name in names)

    async def pause(self) -> None:
        """Nothing else is served in this thread."""

    def turn(self) -> AbstractAsyncContextManager[None]:
        """Return a context without effect, likewise."""
        return nullcontext()


def _values(joined: str | None) -> list[bytes]:
    if joined is None:
        return []
    return [part.strip(b" \t") for part in joined.encode("latin-1").split(b",")]


def _raw_path(target: str) -> bytes:
    """The path of a request target as it came on the wire, also of an absolute form.

    A server that resolves an absolute form gives its path to the application.
    """
    path = target.partition("?")[0]
    scheme, found, rest = path.partition("://")
    if found and scheme.lower() in {"http", "https"}:
        path = rest[rest.find("/") :] if "/" in rest else ""
    return path.encode("latin-1", "replace")


def body_reader(environ: WSGIEnvironment) -> Callable[[int], Coroutine[Any, Any, bytes]]:
    """Read a request's body whole, up to a limit; refuse one whose end cannot be told.

    Servers differ in what they do with chunks: those that decode them, or give the body an end of
    its own, say so by ``wsgi.input_terminated``. Any other could be read beyond its end.
    """

    async def read(limit: int) -> bytes:
        terminated = environ.get("wsgi.input_terminated", False)
        declared: str = environ.get("CONTENT_LENGTH") or ""
        if environ.get("HTTP_TRANSFER_ENCODING"):
            if not terminated:
                raise _unfit("Send the body with a Content-Length: its chunks cannot be read here.")
            declared = ""
        if not declared:
            body = _read(environ, limit + 1) if terminated else b""
            if len(body) > limit:
                raise PayloadTooLarge(limit)
            return body
        length = _number(declared)
        if length > limit:
            raise PayloadTooLarge(limit)
        body = _read(environ, length)
        if len(body) < length:
            raise _unfit("The body is shorter than its Content-Length.")
        return body

    return read


@lru_cache(maxsize=64)
def _variable(name: bytes) -> str:
    variable = name.decode().upper().replace("-", "_")
    return variable if variable.startswith("CONTENT_") else f"HTTP_{variable}"


def unreadable() -> InvalidRequest:
    """Return the refusal of a body that the server cannot read, such as one of malformed chunks."""
    return _unfit(
        "The body cannot be read: send it whole, with a Content-Length or in valid chunks."
    )


def _read(environ: WSGIEnvironment, length: int) -> bytes:
    """So many bytes, or fewer where the body ends before; a stream may give them in pieces."""
    stream = environ["wsgi.input"]
    chunks: list[bytes] = []
    try:
        while length > 0 and (chunk := stream.read(length)):
            chunks.append(chunk)
            length -= len(chunk)
    except Exception as failure:  # OSError, or a parse error of the server's own.
        raise unreadable() from failure
    return b"".join(chunks)


def _number(declared: str) -> int:
    try:
        if declared.isascii() and declared.isdigit():
            return int(declared)
    except ValueError:
        pass  # More digits than Python reads.
    raise _unfit("The Content-Length is no number.")


def _unfit(sentence: str) -> InvalidRequest:
    return InvalidRequest([Problem("", sentence)])
