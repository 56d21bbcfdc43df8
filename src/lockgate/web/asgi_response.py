"""The response of an ASGI application: its headers, its slot, its end, and the refusals instead."""

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from typing import Final

from starlette.authentication import AuthCredentials, UnauthenticatedUser
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..core.api_keys import ApiKey
from ..core.deprecation import SUNSET_HEADERS
from ..core.rate_limit_headers import NOT_TO_STORE, OURS, shadowed
from ..errors import Header, Refusal, TryAgain, Unauthenticated
from ..services.concurrency import ConcurrencySlot
from ..services.open_streams import OpenStream
from .entry import ENTRY, Entry, mark_rated
from .operations.operation import Reply
from .operations.table import refused

_NO_STORE: Final = (b"cache-control", b"no-store")
_OURS_AND_CACHES: Final = OURS | {b"cache-control"}
_DENIAL: Final = "websocket.http.response"
_POLICY_VIOLATION: Final = 1008
_TRY_AGAIN_LATER: Final = 1013
_STARTS: Final = frozenset(
    {"http.response.start", "websocket.accept", "websocket.http.response.start"}
)
_ENDS: Final = frozenset(
    {
        "http.response.body",
        "http.response.pathsend",
        "websocket.close",
        "websocket.http.response.body",
    }
)


class _Stream(OpenStream):
    """A stream that ends by the cancellation of the task that runs the application."""

    def __init__(self, key: ApiKey, task: "asyncio.Task[object]") -> None:
        super().__init__(key)
        self._task = task
        self._is_over = self._is_cancelled = False

    def end(self, refusal: Unauthenticated) -> None:
        with suppress(RuntimeError):  # The event loop has ended, and the stream with it.
            self._task.get_loop().call_soon_threadsafe(self._cancel, refusal)

    def _cancel(self, refusal: Unauthenticated) -> None:
        if not self._is_over:
            self.refusal, self._is_cancelled = refusal, True
            self._task.cancel()

    def was_cut(self) -> bool:
        """Return whether the task was cancelled to end the stream, and for no other reason."""
        was_cancelled, self._is_cancelled = self._is_cancelled, False
        return was_cancelled and self._task.uncancel() == 0

    def over(self) -> None:
        """Leave the task alone from now on."""
        self._is_over = True
        self.was_cut()


class Response:
    """Passes the messages of an application on, from the admission of its request to its end.

    Args:
        entry: the record of the admission.
        scope: of the request.
        send: of the server.
    """

    __slots__ = ("_entry", "_has_ended", "_scope", "_send", "_slot", "_task", "stream")

    def __init__(self, entry: Entry, scope: Scope, send: Send) -> None:
        self._entry = entry
        self._scope = scope
        self._send = send
        self._slot: ConcurrencySlot | None = None
        self._has_ended = False
        self.stream: _Stream | None = None
        """The response as a stream that ends with its key; None: it is none so far."""
        self._task: asyncio.Task[object] | None = None
        """The task of the application, where the response may become a stream."""
        principal = entry.principal
        if principal is not None and principal.key is not None and entry.guard.streams is not None:
            self._task = asyncio.current_task()

    def answer(  # noqa: PLR0912 - each call more costs here
        self, message: Message
    ) -> Awaitable[None]:
        """Send a message of the application."""
        kind, entry = message["type"], self._entry
        if entry.has_started:
            if kind in _ENDS and not message.get("more_body"):
                self._has_ended = True
                if self._slot is not None or self.stream is not None:
                    return self._end(message)
            elif self._task is not None and self.stream is None:
                self._watch(self._task)
            return self._send(message)
        if kind not in _STARTS and kind != "websocket.close":
            return self._send(message)
        guard, measured = entry.guard, entry.measured
        rate = () if measured is None else guard.gate.headers(*measured)
        if kind == "websocket.close":
            mark_rated(entry.outer)
            return _decline(message, rate, self._scope, self._send)
        entry.has_started = True
        if self._task is not None:
            for name, _ in message.get("headers", ()) if kind != "websocket.accept" else ():
                if name == b"content-length":
                    break
            else:
                self._watch(self._task)
        if entry.is_rated:  # A gate inside this one has written its own.
            return self._send(message)
        if guard.shadow is not None and not entry.rule.own:
            return self._send(_beside(message, shadowed(rate)))
        if rate and entry.outer is not None:
            mark_rated(entry.outer)
        principal = entry.principal
        if principal is not None and principal.key is not None and principal.key.details:
            return self._send(_with_sunset(message, rate, entry.ending))
        return self._send(_with_rate(message, rate))

    async def hold_slot(self, app: ASGIApp, receive: Receive) -> None:
        """Run the application while the request holds its slot, also past the last message where
        the rule says so.
        """
        slot = self._entry.own_slot
        if slot is None:
            await app(self._scope, receive, self.answer)
            return
        if not self._entry.rule.background:
            self._slot = slot
        async with slot:
            await app(self._scope, receive, self.answer)

    async def refuse(self, refusal: Refusal) -> None:
        """Answer with a refusal that the application raised, or that ended its slot.

        Raises:
            Refusal: a response that has begun is broken off; a WebSocket is closed instead.
        """
        entry = self._entry
        if not entry.has_started:
            entry.gate.attach_rate_headers(refusal, entry.measured)
            refusal.rate += entry.ending
            mark_rated(entry.outer)
            await refuse(refusal, self._scope, self._send)
        elif self._scope["type"] == "websocket":
            await self._close(refusal)
        else:
            raise refusal

    def was_cut(self) -> bool:
        """Return whether the application was cancelled to end its stream, and for nothing else."""
        return self.stream is not None and self.stream.was_cut()

    async def cut(self) -> None:
        """End a stream: close a WebSocket; a response stays incomplete, so the server cuts it."""
        if self.stream is not None and self.stream.refusal is not None:
            await self._close(self.stream.refusal)

    def forget(self, stream: _Stream) -> None:
        """Let a stream go on, and its task: it is over for us."""
        stream.over()
        if self._entry.guard.streams is not None:
            self._entry.guard.streams.discard(stream)

    def _watch(self, task: "asyncio.Task[object]") -> None:
        """Have the stream end with its key, unless a gate outside this one does so already."""
        self._task = None
        entry = self._entry
        principal, streams = entry.principal, entry.guard.streams
        if entry.within(entry.gate) is not None or streams is None:
            return
        assert principal is not None and principal.key is not None, "or there is no task"
        self.stream = _Stream(principal.key, task)
        streams.add(self.stream)

    async def _end(self, message: Message) -> None:
        if self.stream is not None:
            self.forget(self.stream)
        await self._send(message)
        if self._slot is not None:
            await self._slot.free()

    async def _close(self, refusal: Refusal) -> None:
        if self._scope["type"] != "websocket" or self._has_ended:
            return
        code = _TRY_AGAIN_LATER if isinstance(refusal, TryAgain) else _POLICY_VIOLATION
        with suppress(OSError, RuntimeError):  # The client may have left meanwhile.
            await self._send({"type": "websocket.close", "code": code, "reason": refusal.code})


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


def introduce(scope: Scope, entry: Entry) -> None:
    """Give the application the caller: as ``request.state.principal``, ``user`` and ``auth``."""
    scope[ENTRY] = entry
    principal = scope.setdefault("state", {})["principal"] = entry.principal
    if principal is not None:
        scope["user"] = scope["auth"] = principal
    else:
        scope.setdefault("user", UnauthenticatedUser())
        scope.setdefault("auth", AuthCredentials())


def _with_rate(message: Message, rate: tuple[Header, ...]) -> Message:
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


def _with_sunset(message: Message, rate: tuple[Header, ...], ending: tuple[Header, ...]) -> Message:
    """The same for a key that was rotated, whose own end replaces that of an endpoint."""
    if ending:
        kept = [one for one in message.get("headers", ()) if one[0].lower() not in SUNSET_HEADERS]
        message = {**message, "headers": kept}
    return _with_rate(message, rate + ending)


def _beside(message: Message, rate: tuple[Header, ...]) -> Message:
    """The start of a response with further headers beside its own."""
    return {**message, "headers": [*message.get("headers", ()), *rate]}
