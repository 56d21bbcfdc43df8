"""A request of an ASGI application and its response: the view of the scope, the body, the headers
and the slot of the response, its end, and the refusals instead."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from typing import Final
from urllib.parse import quote

from ..core.deprecation import SUNSET_HEADERS
from ..core.rate_limit_headers import NOT_TO_STORE, RATE_HEADERS, rate_headers, shadowed
from ..core.sliding_window import Reading
from ..errors import Header, PayloadTooLarge, Refusal, TryAgain
from ..gate import Gate
from ..principal import ANONYMOUS_CALLER
from ..stores.runtime.turns import turn
from ..sync import pause
from .asgi_types import ASGIApp, Message, Receive, Scope, Send
from .entry import Entry, gate_in, mark_rated
from .operations.operation import Reply
from .operations.table import refused
from .request import below

REPLY_OF: Final = "lockgate.reply_of"
"""The key of a scope whose refusals have a protocol's own form: a function that makes the reply."""

_NO_STORE: Final = (b"cache-control", b"no-store")
_OURS_AND_CACHES: Final = RATE_HEADERS | {b"cache-control"}
_NOTICED: Final = RATE_HEADERS | {b"content-length"}
_DENIAL: Final = "websocket.http.response"
_POLICY_VIOLATION: Final = 1008
_TRY_AGAIN_LATER: Final = 1013
_STARTS: Final = frozenset(
    {"http.response.start", "websocket.accept", "websocket.http.response.start"}
)
_CLOSE: Final = "websocket.close"
_ENDS: Final = frozenset(
    {
        "http.response.body",
        "http.response.pathsend",
        "websocket.close",
        "websocket.http.response.body",
    }
)


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


class Exchange(AsgiRequest):
    """A request that a gate has admitted, and the response of the application to it.

    Attributes:
        entry: the record of the admission.
        send: the server's callable for messages.
    """

    __slots__ = ("entry", "send")
    entry: Entry
    send: Send

    def answer(self, message: Message) -> Awaitable[None]:  # noqa: PLR0912 - a call costs as much
        """Send a message of the application; the first one with the rate headers (G2, D38).

        A response that may continue after its key has ended is watched: one of unknown length, one
        of several parts, a WebSocket.

        Args:
            message: the application's message, which stays as it is.
        """
        entry, send, kind = self.entry, self.send, message["type"]
        if entry.has_started:
            if kind in _ENDS and not message.get("more_body"):
                entry.has_ended = True
                if entry.is_watched:
                    entry.unwatch()
                if entry.slot is not None:
                    return self._end(message)
            elif entry.task is not None and not (entry.is_watched or entry.has_ended):
                entry.watch(self)
            return send(message)
        if kind not in _STARTS:
            return send(message) if kind != _CLOSE else self._decline(message)
        entry.has_started = True
        guard, measured = entry.guard, entry.measured
        headers = [*message.get("headers", ())]  # They may come only once.
        has_length = has_ours = False
        for name, _ in headers:
            name = name.lower()  # noqa: PLW2901 - another name takes longer
            if name in _NOTICED:
                if name == b"content-length":
                    has_length = True
                else:
                    has_ours = True
        if entry.task is not None and not has_length:
            entry.watch(self)
        if entry.is_rated:  # A gate inside this one has written its own.
            return send(message)
        # Both arguments by name: a call with ``*`` makes a frame outside the interpreter's loop.
        rate = () if measured is None else rate_headers(measured[0], measured[1])
        message = {**message}  # With the headers in the same display it takes twice as long.
        message["headers"] = headers
        if guard.shadow is not None and not entry.rule.own:
            headers += shadowed(rate)
            return send(message)
        if rate and entry.outer is not None:
            mark_rated(entry.outer)
        principal = entry.principal
        key = None if principal is None else principal.key
        ending: tuple[Header, ...] = ()
        if key is not None and key.details is not None and key.details.rotated_at is not None:
            ending = entry.ending
        not_to_store = message.get("status") in NOT_TO_STORE
        if has_ours or not_to_store or ending:
            message["headers"] = headers = _kept(headers, ending, not_to_store=not_to_store)
            rate += ending
        headers += rate
        return send(message)

    async def receive(self) -> Message:
        """Return the next message of the client, for the application."""
        entry = self.entry
        assert entry.receive is not None, "the gate has set it"
        entry.receiving += 1
        try:
            return await entry.receive()
        finally:
            entry.receiving -= 1

    async def _end(self, message: Message) -> None:
        """Send the last message, and free the slot that the request held."""
        await self.send(message)
        slot = self.entry.own_slot
        if slot is not None and not self.entry.rule.background:
            await slot.free()

    async def _decline(self, message: Message) -> None:
        """Pass on that the application declines a handshake, with the rate headers if they can go.

        A server answers such a close with a bare 403, so a response that says the same can carry
        more.
        """
        entry = self.entry
        mark_rated(entry.outer)
        if _denies(self.scope):
            rate = () if entry.measured is None else rate_headers(*entry.measured)
            reply = Reply(403, (_NO_STORE, *rate), b"")
            await respond(reply, self.scope, self.send, prefix="websocket.")
        else:
            await self.send(message)

    async def hold_slot(self, app: ASGIApp) -> None:
        """Run an application while its request holds the slot that was taken for it.

        The slot is freed with the last message, or with the end of the application if the rule
        says so.
        """
        async with self.entry.own_slot or nullcontext():
            await app(self.scope, self.receive, self.answer)

    async def refuse(self, refusal: Refusal) -> None:
        """Answer with a refusal that the application raised, or that ended its slot.

        Raises:
            Refusal: a response that has begun is broken off; a WebSocket is closed instead.
        """
        entry = self.entry
        if not entry.has_started:
            entry.gate.attach_rate_headers(refusal, entry.measured)
            refusal.rate += entry.ending
            mark_rated(entry.outer)
            await refuse(refusal, self.scope, self.send)
        elif self.scope["type"] == "websocket":
            await self._close(refusal)
        else:
            raise refusal

    async def cut(self) -> None:
        """End a stream: close a WebSocket; a response stays incomplete, so the server cuts it."""
        if self.scope["type"] == "websocket" and self.entry.refusal is not None:
            await self._close(self.entry.refusal)

    async def _close(self, refusal: Refusal) -> None:
        """Close a WebSocket that the application has not closed."""
        if self.entry.has_ended:
            return
        code = _TRY_AGAIN_LATER if isinstance(refusal, TryAgain) else _POLICY_VIOLATION
        with suppress(OSError, RuntimeError):  # The client may have left meanwhile.
            await self.send({"type": _CLOSE, "code": code, "reason": refusal.code})


async def refuse(refusal: Refusal, scope: Scope, send: Send, gate: Gate | None = None) -> None:
    """Answer with a refusal: an HTTP response, or the denial of a WebSocket handshake (D32).

    Args:
        gate: the gate that refuses; None: the gate that admitted the request.
    """
    reply_of = scope.get(REPLY_OF)
    if reply_of is None:
        gate = gate or gate_in(scope)
        shown = None if gate is None or gate.error_body is None else AsgiRequest(scope)
        reply = refused(refusal, gate, shown)
    else:
        reply = reply_of(refusal)
    if scope["type"] == "http":
        await respond(reply, scope, send)
    elif _denies(scope):
        await respond(reply, scope, send, prefix="websocket.")
    else:
        await send({"type": _CLOSE, "code": _POLICY_VIOLATION, "reason": refusal.code})


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


async def allow_nothing(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a CORS preflight by 204 without any permission."""
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def set_unauthenticated_user(scope: Scope) -> None:
    """Set Starlette's ``user`` and ``auth`` for no key, unless an outer layer has set them."""
    scope.setdefault("user", ANONYMOUS_CALLER)
    scope.setdefault("auth", ANONYMOUS_CALLER)


def _kept(headers: list[Header], ending: tuple[Header, ...], *, not_to_store: bool) -> list[Header]:
    """Return an application's headers but for those that ours replace (G2, D38, D43)."""
    replaced = _OURS_AND_CACHES if not_to_store else RATE_HEADERS
    if ending:
        replaced |= SUNSET_HEADERS
    kept = [header for header in headers if header[0].lower() not in replaced]
    return [*kept, _NO_STORE] if not_to_store else kept
