"""A request of a WSGI application and its response: the view of the environment, the body, the
headers and the slot of the response, its end, and the refusals instead."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, nullcontext
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Final
from wsgiref.types import StartResponse, WSGIEnvironment

from ..core.deprecation import SUNSET_HEADERS
from ..core.rate_limit_headers import NOT_TO_STORE, RATE_HEADERS, rate_headers, rate_text, shadowed
from ..core.sliding_window import Reading
from ..errors import Header, InvalidRequest, PayloadTooLarge, Problem, Refusal
from .entry import Entry, mark_rated
from .operations.operation import Reply
from .request import below

_NAMES: Final = {name: name.decode() for name in RATE_HEADERS}
"""The names that every response carries, as text."""
_OURS: Final = frozenset(_NAMES.values())
_OURS_AND_CACHES: Final = _OURS | {"cache-control"}
_SUNSET: Final = frozenset(name.decode() for name in SUNSET_HEADERS)
_WHOLE: Final = (list, tuple)
_NOT_TO_STORE: Final = frozenset(map(str, NOT_TO_STORE))

_Headers = list[tuple[str, str]]
_Write = Callable[[bytes], object]


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


def starting(entry: Entry, start_response: StartResponse) -> StartResponse:
    """Return a function that starts a response with the rate headers (G2, D38).

    Args:
        entry: the record of the admission.
        start_response: the server's function.
    """

    # A function with two cells takes a third of the time of an object with a method.
    def start(status: str, headers: _Headers, exc_info: object = None, /) -> _Write:
        guard, measured = entry.guard, entry.measured
        entry.has_started = True
        if entry.is_rated:  # A gate inside this one has written its own.
            return start_response(status, headers, exc_info)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - as it came
        if guard.shadow is not None and not entry.rule.own:
            rate = () if measured is None else shadowed(rate_headers(*measured))
            return start_response(status, [*headers, *text(rate)], exc_info)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - as it came
        not_to_store = status[:3] in _NOT_TO_STORE
        replaced = _OURS_AND_CACHES if not_to_store else _OURS
        kept: _Headers = []
        for header in headers:  # A comprehension is a call of its own.
            name = header[0].lower()
            if name not in replaced:
                kept.append(header)
                if name == "content-length":
                    entry.has_length = True
        if not_to_store:
            kept.append(("cache-control", "no-store"))
        principal = entry.principal
        key = None if principal is None else principal.key
        if key is not None and key.details is not None and key.details.rotated_at is not None:
            ending = entry.ending
            if ending:
                kept = [one for one in kept if one[0].lower() not in _SUNSET]
                kept += text(ending)
        if measured is not None:
            kept += rate_text(measured[0], measured[1])  # Faster than with ``*``.
            if entry.outer is not None:
                mark_rated(entry.outer)
        return start_response(status, kept, exc_info)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - as it came

    return start


def is_stream(entry: Entry, body: Iterable[bytes]) -> bool:
    """Return whether a response that has begun is to end with its key or session.

    That is one of unknown length that the server asks for part by part, unless a gate outside this
    one watches it.
    """
    principal, guard = entry.principal, entry.guard
    if entry.has_length or isinstance(body, _WHOLE) or guard.streams is None:
        return False
    if principal is None or entry.within(guard.gate) is not None:
        return False
    return principal.session is None or principal.session.agent


class Body:
    """The body of a response that begins late, holds a slot, or ends with its key or session.

    Until the response has begun, the application may raise a refusal: it is answered instead.

    Args:
        body: the body of the application; it is closed first.
        entry: the record of the admission.
        request: the request as it came; Django changes its environment.
        refuse: answers a refusal, or raises it once the response has begun.
        held: is left when the server closes the body.
    """

    def __init__(
        self,
        body: Iterable[bytes],
        entry: Entry,
        request: WsgiRequest,
        refuse: Callable[[Refusal], Iterable[bytes]],
        held: ExitStack,
    ) -> None:
        self._body = body
        self._entry = entry
        self._request = request
        self._refuse = refuse
        self._held = held
        if entry.has_started:
            self._watch()

    def __iter__(self) -> Iterator[bytes]:
        has_started = self._entry.has_started
        try:
            for part in self._body:
                if not has_started:
                    has_started = True
                    self._watch()
                if self._entry.refusal is not None:
                    raise self._entry.refusal
                yield part
        except Refusal as refusal:
            yield from self._refuse(refusal)

    def close(self) -> None:
        """Close the application's body, and free what the request held."""
        self._entry.unwatch()
        with self._held:
            close = getattr(self._body, "close", None)
            if close is not None:
                close()

    def _watch(self) -> None:
        """Have the stream end with its key or session, if it is one."""
        if is_stream(self._entry, self._body):
            self._entry.watch(self._request)


def respond(
    reply: Reply, environ: WSGIEnvironment, start_response: StartResponse
) -> Iterable[bytes]:
    """Send a reply whole."""
    length = (b"content-length", b"%d" % len(reply.body))
    status = f"{reply.status} {HTTPStatus(reply.status).phrase}"
    start_response(status, text([*reply.headers, length]))
    return [] if environ["REQUEST_METHOD"] == "HEAD" else [reply.body]


def text(headers: Iterable[Header]) -> list[tuple[str, str]]:
    """Headers as WSGI carries them."""
    written: list[tuple[str, str]] = []
    for name, value in headers:  # A comprehension is a call of its own.
        known = _NAMES.get(name)
        written.append((known or name.decode("latin-1"), value.decode("latin-1")))
    return written
