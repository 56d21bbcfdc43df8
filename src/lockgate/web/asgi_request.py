"""An ASGI connection: the request that its scope holds, and the response that answers it."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Final
from urllib.parse import quote

from starlette.authentication import AuthCredentials, UnauthenticatedUser
from starlette.types import Message, Receive, Scope, Send

from ..core.deprecation import SUNSET_HEADERS
from ..core.rate_limit_headers import NOT_TO_STORE, OURS
from ..errors import Header, PayloadTooLarge, Refusal
from ..gate import Gate
from ..principal import Principal
from ..services.concurrency import ConcurrencySlot
from ..sync import pause
from .operations.operation import Reply
from .operations.table import refused
from .request import GUARD, PRINCIPAL, SLOT, below

_NO_STORE: Final = (b"cache-control", b"no-store")
_OURS_AND_CACHES: Final = OURS | {b"cache-control"}
_DENIAL: Final = "websocket.http.response"
_POLICY_VIOLATION: Final = 1008


class AsgiRequest:
    """A request, as the ASGI scope shows it."""

    __slots__ = ("_headers", "_scope", "authorizations", "method", "path", "raw_path")

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
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
        query: bytes = self._scope.get("query_string", b"")
        return query

    @property
    def hosts(self) -> list[bytes]:
        """Every value of ``Host`` as it came."""
        return [value for key, value in self._headers if key == b"host"]

    @property
    def peer(self) -> str | None:
        """The address of the connection's other end; None on a Unix socket."""
        client = self._scope.get("client")
        return client[0] if client else None

    def header(self, name: bytes) -> list[bytes]:
        """Every value of a header, by its lower-case name.

        White space around one is none of it (RFC 9110, 5.5); not every server takes it away.
        """
        return [value.strip(b" \t") for key, value in self._headers if key == name]

    def has_any(self, names: frozenset[bytes]) -> bool:
        """Return whether the request has a header of one of these lower-case names."""
        for name, _ in self._headers:  # noqa: SIM110 - a generator takes twice as long
            if name in names:
                return True
        return False

    async def pause(self) -> None:
        """Let what else the event loop serves go on."""
        await pause()


def principal_of(scope: Scope) -> Principal | None:
    """Who is calling, as the middleware found it; None if nobody needed to show a key."""
    principal: Principal | None = scope.get(PRINCIPAL)
    return principal


def slot_for(scope: Scope, principal: Principal) -> AbstractAsyncContextManager[ConcurrencySlot]:
    """A slot to hold, as the gate gives it that let the request in; the same one, if it has one."""
    held: ConcurrencySlot | None = scope.get(SLOT)
    gate: Gate = scope[GUARD].gate
    return gate.slot(principal) if held is None else nullcontext(held)


async def refuse(refusal: Refusal, scope: Scope, send: Send) -> None:
    """Answer with a refusal: an HTTP response, or the denial of a WebSocket handshake (D32)."""
    reply = refused(refusal)
    if scope["type"] == "http":
        await respond(reply, scope, send)
    elif _denies(scope):
        await respond(reply, scope, send, prefix="websocket.")
    else:
        await send({"type": "websocket.close", "code": _POLICY_VIOLATION, "reason": refusal.code})


async def decline(message: Message, rate: tuple[Header, ...], scope: Scope, send: Send) -> None:
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


def introduce(scope: Scope, principal: Principal | None) -> None:
    """Tell the application the caller: as ``request.state.principal``, ``user`` and ``auth``."""
    scope[PRINCIPAL] = scope.setdefault("state", {})["principal"] = principal
    if principal is not None:
        scope["user"] = scope["auth"] = principal
    else:
        scope.setdefault("user", UnauthenticatedUser())
        scope.setdefault("auth", AuthCredentials())


def with_rate(message: Message, rate: tuple[Header, ...]) -> Message:
    """The start of a response with our headers in place of any that it set itself (G2, D38)."""
    not_to_store = message.get("status") in NOT_TO_STORE
    replaced = _OURS_AND_CACHES if not_to_store else OURS
    headers: list[Header] = []
    for header in message.get("headers", ()):  # A comprehension is a call of its own.
        if header[0].lower() not in replaced:
            headers.append(header)
    if not_to_store:
        headers.append(_NO_STORE)
    headers += rate
    return {**message, "headers": headers}  # It is the application's to send again.


def with_sunset(message: Message, rate: tuple[Header, ...]) -> Message:
    """The same for a key that was rotated, whose own end replaces that of an endpoint."""
    headers = [one for one in message.get("headers", ()) if one[0].lower() not in SUNSET_HEADERS]
    return with_rate({**message, "headers": headers}, rate)


def beside(message: Message, rate: tuple[Header, ...]) -> Message:
    """The start of a response with further headers beside its own."""
    return {**message, "headers": [*message.get("headers", ()), *rate]}


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
