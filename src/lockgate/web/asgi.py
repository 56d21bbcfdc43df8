"""The ASGI face: one middleware before any ASGI application."""

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final

from starlette.authentication import AuthCredentials, UnauthenticatedUser
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..errors import Header, PayloadTooLarge, Refusal
from ..gate import Gate
from ..principal import Principal
from ..rules.headers import NOT_TO_STORE, OURS
from ..rules.routes import Rule
from .api import Reply, refused
from .audit import log_audit, routes_of
from .guard import Guard

_OURS_AND_CACHES: Final = OURS | {b"cache-control"}
_NO_STORE: Final = (b"cache-control", b"no-store")
_GATE: Final = "lockgate.gate"
_PRINCIPAL: Final = "lockgate.principal"
_STARTS: Final = frozenset(
    {"http.response.start", "websocket.accept", "websocket.http.response.start"}
)
_DENIAL: Final = "websocket.http.response"
_POLICY_VIOLATION: Final = 1008


class GateMiddleware:
    """Puts a gate before an ASGI application: HTTP and WebSockets, every path, closed by default.

    Wrap the whole application, so that even its answer to a crash carries the rate headers::

        app = GateMiddleware(app, gate, {"GET /health": PUBLIC, "GET /models": "models:read"})

    The application finds the caller as ``request.state.principal`` (a
    :class:`~lockgate.Principal`; None on public routes), and as Starlette's ``request.user`` and
    ``request.auth``.

    Args:
        app: the application.
        gate: decides.
        rules: by ``"METHOD /path"``: the scope that is required, a :class:`~lockgate.Rule`, or
            :data:`~lockgate.PUBLIC`. A path that no rule names needs a valid key.
        shadow: count and report, and refuse nothing.

    Raises:
        ConfigurationError: a rule that cannot be, or a store that would block the event loop.
    """

    def __init__(
        self,
        app: ASGIApp,
        gate: Gate,
        rules: Mapping[str, Rule | str] | None = None,
        *,
        shadow: bool = False,
    ) -> None:
        gate.pair("async")
        self.app: Final = app
        self.guard: Final = Guard(gate, rules, shadow=shadow)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Guard one connection."""
        kind = scope["type"]
        if kind == "lifespan":
            log_audit(self.guard, routes_of(scope.get("app", self.app)))
            await self.app(scope, receive, send)
            return
        if kind not in ("http", "websocket"):
            raise RuntimeError(f"No rule is known for the protocol {kind!r}, so it stays outside.")
        caller = AsgiCaller(scope)
        inside = scope.get(_GATE) is self.guard.gate
        try:
            if inside and self.guard.passes(caller, principal_of(scope)):
                entry = None
            else:
                entry = await self.guard.enter(caller)
        except Refusal as refusal:
            await refuse(refusal, scope, send)
            return
        if entry is None:
            await self.app(scope, receive, send)
            return
        principal, rate = entry
        _introduce(scope, self.guard.gate, principal)
        started = False

        def answer(message: Message) -> Awaitable[None]:
            nonlocal started
            if started:
                return send(message)
            kind = message["type"]
            if kind in _STARTS:
                started = True
                not_to_store = message.get("status") in NOT_TO_STORE
                headers = _with_rate(message.get("headers", ()), rate, not_to_store)
                message = {**message, "headers": headers}  # It is the application's to send again.
            elif kind == "websocket.close":
                return _decline(message, rate, scope, send)
            return send(message)

        try:
            await self.app(scope, receive, answer)
        except Refusal as refusal:
            if started:
                raise
            refusal.rate = rate
            await refuse(refusal, scope, send)


class AsgiCaller:
    """A request, as the ASGI scope shows it."""

    __slots__ = ("_headers", "_scope", "method", "path", "raw_path")

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._headers: list[Header] = scope["headers"]
        self.method: str = scope.get("method", "GET")
        path: str = scope["path"]
        root: str = scope.get("root_path", "")
        if root and path.startswith(root) and path[len(root) : len(root) + 1] in {"", "/"}:
            path = path[len(root) :]
        self.path = path
        self.raw_path: bytes = scope.get("raw_path") or b""

    @property
    def peer(self) -> str | None:
        """The address of the connection's other end; None on a Unix socket."""
        client = self._scope.get("client")
        return client[0] if client else None

    def header(self, name: bytes) -> list[bytes]:
        """Every value of a header, by its lower-case name."""
        found: list[bytes] = []
        for key, value in self._headers:  # A comprehension is a call of its own, twice as long.
            if key == name:
                found.append(value)
        return found


def _introduce(scope: Scope, gate: Gate, principal: Principal | None) -> None:
    """Show the application who is calling."""
    state: MutableMapping[str, Any] = scope.setdefault("state", {})
    state["principal"] = scope[_PRINCIPAL] = principal
    scope[_GATE] = gate
    if principal is not None:
        scope["user"] = scope["auth"] = principal
    else:
        scope.setdefault("user", UnauthenticatedUser())
        scope.setdefault("auth", AuthCredentials())


def principal_of(scope: Scope) -> Principal | None:
    """Who is calling, as the middleware found it; None if nobody needed to show a key."""
    principal: Principal | None = scope.get(_PRINCIPAL)
    return principal


async def refuse(refusal: Refusal, scope: Scope, send: Send) -> None:
    """Answer with a refusal: an HTTP response, or the denial of a WebSocket handshake (D32)."""
    reply = refused(refusal)
    if scope["type"] == "http":
        await respond(reply, scope, send)
    elif _denies(scope):
        await respond(reply, scope, send, prefix="websocket.")
    else:
        await send({"type": "websocket.close", "code": _POLICY_VIOLATION, "reason": refusal.code})


async def _decline(message: Message, rate: tuple[Header, ...], scope: Scope, send: Send) -> None:
    """Pass on that the application declines a handshake, with the rate headers if they can go.

    A server answers such a close with a bare 403, so a response that says the same can carry more.
    """
    if _denies(scope):
        await respond(Reply(403, (_NO_STORE, *rate), b""), scope, send, prefix="websocket.")
    else:
        await send(message)


def _denies(scope: Scope) -> bool:
    """Whether the server can deny a handshake with a response of ours."""
    return _DENIAL in (scope.get("extensions") or {})


async def respond(reply: Reply, scope: Scope, send: Send, prefix: str = "") -> None:
    """Send a reply whole."""
    length = (b"content-length", b"%d" % len(reply.body))
    start = {"status": reply.status, "headers": [*reply.headers, length]}
    await send({"type": f"{prefix}http.response.start", **start})
    body = b"" if scope.get("method") == "HEAD" else reply.body
    await send({"type": f"{prefix}http.response.body", "body": body})


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
    """The client went away before its body was whole: nobody is left to answer."""


def _with_rate(headers: Any, rate: tuple[Header, ...], not_to_store: bool) -> list[Header]:
    """The application's headers with ours in place of any it set itself (G2, D38)."""
    replaced = _OURS_AND_CACHES if not_to_store else OURS
    kept = [header for header in headers if header[0].lower() not in replaced]
    if not_to_store:
        kept.append(_NO_STORE)
    kept += rate
    return kept
