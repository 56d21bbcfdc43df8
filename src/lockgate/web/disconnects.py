"""Cancel the work of an ASGI handler whose client disconnects before the response begins.

A server puts ``http.disconnect`` into ``receive``, where a handler that awaits something else does
not look. While a block of :func:`cancel_on_disconnect` runs, a task awaits that message. The
application still gets each message that the task reads: the end of a body that it has not read, and
the disconnect, which Hypercorn and Daphne send only once.
"""

import asyncio
from collections import deque
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Protocol

from ..errors import ClientDisconnected, ConfigurationError
from .asgi_types import Message, Receive
from .entry import Entry, entry_in

_AHEAD_AT_MOST: Final = 2
"""Messages that are read ahead: the end of a body, and the message behind it."""


class HasScope(Protocol):
    """A request of Starlette, FastAPI or Litestar."""

    @property
    def scope(self) -> Any:
        """The ASGI scope of the request."""
        ...


def cancel_on_disconnect(request: HasScope | Mapping[str, Any]) -> "DisconnectBlock":
    """Return a context manager that cancels its block when the client disconnects.

    Use ``async with cancel_on_disconnect(request):`` around an await of a slow service. As
    :func:`asyncio.timeout` does, it cancels the task inside the block, and the block raises
    :class:`~lockgate.errors.ClientDisconnected` in place of the cancellation.

    Once the response has begun, nothing is cancelled: the framework ends a stream itself. A
    disconnect is noticed behind a body that was read, or has one part. If the application awaits a
    message of the client when the block begins, as Quart and Django always do, it is the one to
    learn of the disconnect, and the block has no effect.

    Args:
        request: the request of Starlette, FastAPI or Litestar; or an ASGI scope.

    Raises:
        ConfigurationError: no gate has admitted the request under ASGI, or it is a WebSocket.
    """
    scope: Mapping[str, Any] = request if isinstance(request, Mapping) else request.scope
    entry = entry_in(scope)
    if entry is None or entry.receive is None or scope["type"] != "http":
        raise ConfigurationError(
            "cancel_on_disconnect() takes an HTTP request that a gate has admitted under ASGI."
        )
    return DisconnectBlock(entry, entry.receive)


class DisconnectBlock:
    """The context manager of :func:`cancel_on_disconnect`."""

    def __init__(self, entry: Entry, receive: Receive) -> None:
        self._entry: Final = entry
        self._receive: Final = receive
        self._incoming: Incoming | None = None
        self._task: asyncio.Task[Any] | None = None
        self._cancelling = 0
        """Cancellations of the task that were requested before the block."""
        self._has_cancelled = False

    async def __aenter__(self) -> None:
        self._task = task = asyncio.current_task()
        assert task is not None, "a coroutine runs in a task"
        self._cancelling = task.cancelling()
        entry, incoming = self._entry, self._entry.receive
        if entry.has_started:
            return
        if not isinstance(incoming, Incoming):
            if entry.receiving:
                return
            entry.receive = incoming = Incoming(self._receive)
        if incoming.disconnect is not None:
            raise ClientDisconnected
        self._incoming = incoming
        incoming.watch(self)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._incoming is not None:
            self._incoming.unwatch(self)
        if self._has_cancelled:
            assert self._task is not None, "entered before"
            is_alone = self._task.uncancel() <= self._cancelling
            if is_alone and kind is not None and issubclass(kind, asyncio.CancelledError):
                raise ClientDisconnected from None

    def cancel(self) -> None:
        """Cancel the task inside the block, unless the response has begun."""
        if self._task is not None and not self._entry.has_started:
            self._has_cancelled = True
            self._task.cancel()


class Incoming:
    """The messages of a client, read ahead of the application while a block runs.

    Takes the place of the server's ``receive`` at the first block of a request.

    Attributes:
        disconnect: the message ``http.disconnect``, for every later call; None: it has not come.
    """

    def __init__(self, receive: Receive) -> None:
        self.disconnect: Message | None = None
        self._receive: Final = receive
        self._ahead: Final[deque[Message]] = deque()
        self._blocks: Final[set[DisconnectBlock]] = set()
        self._reading: asyncio.Task[None] | None = None

    async def __call__(self) -> Message:
        """Return the next message, for the application."""
        while not self._ahead:
            if self.disconnect is not None:
                return self.disconnect
            reading = self._read()
            await asyncio.wait((reading,))  # The end of the last block may cancel the task.
            if not reading.cancelled():
                reading.result()
        message = self._ahead.popleft()
        self._read_ahead()
        return message

    def watch(self, block: DisconnectBlock) -> None:
        """Cancel a block when the client disconnects, until :meth:`unwatch`."""
        self._blocks.add(block)
        self._read_ahead()

    def unwatch(self, block: DisconnectBlock) -> None:
        """Leave a block alone, and read no further ahead without another one."""
        self._blocks.discard(block)
        if not self._blocks and self._reading is not None:
            self._reading.cancel()

    def _read_ahead(self) -> None:
        """Read towards the disconnect, but not into a body that the application has not read."""
        ahead = self._ahead
        has_room = not ahead or (len(ahead) < _AHEAD_AT_MOST and not ahead[-1].get("more_body"))
        if self._blocks and self.disconnect is None and has_room:
            self._read()

    def _read(self) -> asyncio.Task[None]:
        """Return the task that reads one message."""
        if self._reading is None or self._reading.done():
            self._reading = asyncio.get_running_loop().create_task(self._read_one())
            self._reading.add_done_callback(self._has_read)
        return self._reading

    async def _read_one(self) -> None:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self.disconnect = message
            for block in self._blocks:
                block.cancel()
        else:
            self._ahead.append(message)

    def _has_read(self, reading: asyncio.Task[None]) -> None:
        if reading.cancelled() or reading.exception() is None:
            self._read_ahead()
