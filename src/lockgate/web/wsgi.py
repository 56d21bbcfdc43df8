"""The WSGI face: one middleware before any WSGI application, for threads, without an event loop."""

from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Final
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from ..errors import Header, InvalidRequest, PayloadTooLarge, Problem, Refusal
from ..gate import Gate
from ..principal import Principal
from ..rules.headers import NOT_TO_STORE, OURS
from ..rules.routes import Rule
from ..run import run
from .api import Reply, refused
from .guard import Guard

_GATE: Final = "lockgate.gate"
_PRINCIPAL: Final = "lockgate.principal"
_OURS: Final = frozenset(name.decode() for name in OURS)
_OURS_AND_CACHING: Final = _OURS | {"cache-control"}
_NOT_TO_STORE: Final = frozenset(map(str, NOT_TO_STORE))

_Headers = list[tuple[str, str]]
# Annotations of an inner function are evaluated each time that it is made: these are names.
_Body = Iterable[bytes]
_Write = Callable[[bytes], object]


class GateMiddleware:
    """Puts a gate before a WSGI application: every path, closed by default.

    Wrap the whole application, so that even its answer to a crash carries the rate headers::

        app = GateMiddleware(app, gate, {"GET /health": PUBLIC, "GET /models": "models:read"})

    The application finds the caller as ``environ["lockgate.principal"]`` (a
    :class:`~lockgate.Principal`; None on public routes).

    Args:
        app: the application.
        gate: decides.
        rules: by ``"METHOD /path"``: the scope that is required, a :class:`~lockgate.Rule`, or
            :data:`~lockgate.PUBLIC`. A path that no rule names needs a valid key.
        shadow: count and report, and refuse nothing.

    Raises:
        ConfigurationError: the rules do not fit together, or the gate's store needs an event loop.
    """

    def __init__(
        self,
        app: WSGIApplication,
        gate: Gate,
        rules: Mapping[str, Rule | str] | None = None,
        *,
        shadow: bool = False,
    ) -> None:
        gate.pair("blocking")
        self.app: Final = app
        self.guard: Final = Guard(gate, rules, shadow=shadow)

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Guard one request."""
        caller = WsgiCaller(environ)
        inside = environ.get(_GATE) is self.guard.gate
        try:
            if inside and self.guard.passes(caller, principal_of(environ)):
                entry = None
            else:
                entry = run(self.guard.enter(caller))
        except Refusal as refusal:
            return self.refuse(refusal, environ, start_response)
        if entry is None:
            return self.app(environ, start_response)
        principal, rate = entry
        environ[_GATE] = self.guard.gate
        environ[_PRINCIPAL] = principal
        started = False

        def start(status: str, headers: _Headers, exc_info: object = None, /) -> _Write:
            nonlocal started
            started = True
            return start_response(status, _with_rate(status, headers, rate), exc_info)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - as it came

        def refuse_late(refusal: Refusal) -> _Body:
            if started:
                raise refusal
            refusal.rate = rate
            return respond(refused(refusal), environ, start_response)

        try:
            body = self.app(environ, start)
        except Refusal as refusal:
            return refuse_late(refusal)
        # As it came: servers look at what it is, a file or a list of one, to send it better.
        return body if started else _Late(body, refuse_late)

    def refuse(
        self, refusal: Refusal, environ: WSGIEnvironment, start_response: StartResponse
    ) -> Iterable[bytes]:
        """Answer a request that does not come in."""
        return respond(refused(refusal), environ, start_response)


class WsgiCaller:
    """A request, as the WSGI environment shows it."""

    __slots__ = ("_environ", "method", "path")

    def __init__(self, environ: WSGIEnvironment) -> None:
        self._environ = environ
        self.method: str = environ["REQUEST_METHOD"]
        path: str = environ.get("PATH_INFO", "")
        # Each character of it is a byte; frameworks take the bytes for UTF-8, as is done here.
        self.path = path if path.isascii() else path.encode("latin-1").decode("utf-8", "replace")

    @property
    def raw_path(self) -> bytes:
        """The path as it came on the wire; empty where the server does not tell."""
        target: str = self._environ.get("REQUEST_URI") or self._environ.get("RAW_URI") or ""
        path = target.partition("?")[0]
        if not path.startswith("/"):
            _, _, rest = path.partition("://")
            path = rest[rest.find("/") :] if "/" in rest else ""
        return path.encode("latin-1", "replace")

    @property
    def peer(self) -> str | None:
        """The address of the connection's other end; None on a Unix socket."""
        return self._environ.get("REMOTE_ADDR") or None

    def header(self, name: bytes) -> list[bytes]:
        """Every value of a header, by its lower-case name: servers join them with commas.

        No header that is asked for here may hold a comma within one value.
        """
        value: str | None = self._environ.get(_variable(name))
        if value is None:
            return []
        return [part.strip(b" \t") for part in value.encode("latin-1").split(b",")]


def principal_of(environ: WSGIEnvironment) -> Principal | None:
    """Who is calling, as the middleware found it; None if nobody needed to show a key."""
    principal: Principal | None = environ.get(_PRINCIPAL)
    return principal


def respond(
    reply: Reply, environ: WSGIEnvironment, start_response: StartResponse
) -> Iterable[bytes]:
    """Send a reply whole."""
    length = (b"content-length", b"%d" % len(reply.body))
    status = f"{reply.status} {HTTPStatus(reply.status).phrase}"
    start_response(status, text([*reply.headers, length]))
    return [] if environ["REQUEST_METHOD"] == "HEAD" else [reply.body]


def text(headers: Iterable[Header]) -> _Headers:
    """Headers as WSGI carries them."""
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]


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


class _Late:
    """The body of an application that answers with its first chunk only, as a generator does.

    Until then it may still be refused.
    """

    def __init__(self, body: Iterable[bytes], refuse: Callable[[Refusal], Iterable[bytes]]) -> None:
        self._body = body
        self._refuse = refuse

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._body
        except Refusal as refusal:
            yield from self._refuse(refusal)

    def close(self) -> None:
        close = getattr(self._body, "close", None)
        if close is not None:
            close()


def _with_rate(status: str, headers: _Headers, rate: Iterable[Header]) -> _Headers:
    """The application's headers with ours in place of any it set itself (G2, D38)."""
    if status[:3] in _NOT_TO_STORE:
        kept = [h for h in headers if h[0].lower() not in _OURS_AND_CACHING]
        return [*kept, ("cache-control", "no-store"), *text(rate)]
    return [*[h for h in headers if h[0].lower() not in _OURS], *text(rate)]


@lru_cache(maxsize=64)
def _variable(name: bytes) -> str:
    variable = name.decode().upper().replace("-", "_")
    return variable if variable.startswith("CONTENT_") else f"HTTP_{variable}"


def _read(environ: WSGIEnvironment, length: int) -> bytes:
    """So many bytes, or fewer where the body ends before; a stream may give them in pieces."""
    chunks: list[bytes] = []
    while length > 0 and (chunk := environ["wsgi.input"].read(length)):
        chunks.append(chunk)
        length -= len(chunk)
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
