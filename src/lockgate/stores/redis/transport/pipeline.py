"""Pipelines: the way to one server, shared by all calls that wait at the same time.

Both kinds send what waits as one batch and keep one batch under way. A :class:`BlockingPipeline`
lets one of the waiting threads send for all; an :class:`AsyncPipeline` sends by callbacks.
"""

import asyncio
from abc import abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from math import inf
from threading import Event
from time import monotonic
from typing import Final

from redis.exceptions import ConnectionError, RedisError

from ....metrics import Pipelines
from ...resilience.deadlines import UNTIL, Overdue, Threads, left, unhurried
from ...runtime.batching import ThreadBatcher
from .commands import Call, words
from .config import Endpoint
from .connection import AsyncConnection, BlockingConnection, LatestReply
from .failures import NotSent, Reply

BATCH_AT_MOST: Final = 128
"""Calls that are sent together."""
_CONNECTING_AT_MOST: Final = 8
_LEAST_SECONDS: Final = 0.001
"""A socket that waits for none at all does something else."""
_TIMER_SLACK: Final = 0.001
"""Seconds by which an event loop's timers may be early."""

Dial = Callable[[], Endpoint]
"""Returns the server to connect to now."""


class Pipeline:
    """The way to one server. Calls that wait at the same time are sent together.

    Args:
        dial: returns the server.
        timeout: seconds to wait for an answer.
        sizes: counts what is sent; None: no metrics read it.
    """

    def __init__(self, dial: Dial, timeout: float, sizes: Pipelines | None = None) -> None:
        self._dial = dial
        self._timeout = timeout
        self._sizes = sizes or Pipelines()
        self._stale = False
        self.latest = LatestReply()
        self.failing = False
        """Whether the latest connection failed or could not be made, and callers may have left
        without waiting for it."""

    @property
    @abstractmethod
    def connected(self) -> bool:
        """Whether there is a connection, which has not failed so far."""

    @abstractmethod
    def ask(self, call: Call) -> Awaitable[Reply]:
        """Make a call; its failure is a reply like any other, :class:`~.failures.Lost` if the call
        is a request that may have taken effect."""

    @abstractmethod
    def tell(self, call: Call) -> None:
        """Send a call with the next ones. Its reply is ignored, and it may be lost."""

    async def reply(self, *values: str) -> Reply:
        """Send a command and return the reply.

        Raises:
            RedisError: the server refused, or the connection failed.
        """
        reply = await self.ask(words(*values))
        if isinstance(reply, Exception):
            raise reply
        return reply

    def reconnect(self, *, elsewhere: bool = True) -> None:
        """Connect anew before the next batch; calls under way stay on the old connection.

        Args:
            elsewhere: whether the next server may be another, with a different clock.
        """
        self._stale = True
        if elsewhere:
            self.latest = LatestReply()

    @abstractmethod
    def abort(self) -> None:
        """Fail the calls under way, and connect anew before the next batch. Any thread may call
        this."""

    @abstractmethod
    def abandon(self) -> None:
        """Fail all calls and send no further bytes, without waiting."""

    @abstractmethod
    async def close(self) -> None:
        """Answer the calls that wait, then close the connection."""


class BlockingPipeline(Pipeline):
    """Sends in the threads of its callers."""

    def __init__(self, dial: Dial, timeout: float, sizes: Pipelines | None = None) -> None:
        super().__init__(dial, timeout, sizes)
        self._connection: BlockingConnection | None = None
        self._threads = Threads(_CONNECTING_AT_MOST)
        self._batches = ThreadBatcher[Call, Reply](self._exchange, BATCH_AT_MOST)
        self._told = deque[Call](maxlen=BATCH_AT_MOST)

    @property
    def connected(self) -> bool:
        return self._connection is not None and not self._connection.is_over

    async def ask(self, call: Call) -> Reply:
        return self._batches.charge(call)

    def tell(self, call: Call) -> None:
        self._told.append(call)

    def abort(self) -> None:
        self._stale = True
        if self._connection is not None:
            self._connection.abort()

    def abandon(self) -> None:
        self._stale = True  # A caller that waits in the connection has a deadline, and is the last.

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _exchange(self, calls: Sequence[Call]) -> list[Reply]:
        """Send a batch in the thread that leads."""
        try:
            connection = self._usable()
        except (RedisError, OSError) as failure:
            return [NotSent(failure)] * len(calls)
        sizes = self._sizes
        sizes.sent += 1
        sizes.calls += len(calls)
        if not self._told:
            return connection.exchange(calls)
        told = [self._told.popleft() for _ in range(len(self._told))]
        return connection.exchange([*told, *calls])[len(told) :]

    def _usable(self) -> BlockingConnection:
        connection = self._connection
        if connection is not None:
            if not self._stale and connection.is_idle():
                return connection
            self._connection = None
            connection.close()
        while True:
            self._stale = False
            connection = self._opened()
            self._connection = connection
            if not self._stale:
                return connection
            connection.close()  # The server was replaced meanwhile.

    def _opened(self) -> BlockingConnection:
        """Connect in a thread that can be abandoned: a connection takes several steps, and all of
        them together take no longer than the caller waits."""
        connection = BlockingConnection(self._dial(), self.latest, self._seconds)
        opened, abandoned = Event(), Event()

        def connect() -> None:
            connection.open()
            opened.set()
            if abandoned.is_set():
                connection.close()

        try:
            self._threads.do(connect)
        except BaseException:
            abandoned.set()
            if opened.is_set():
                connection.close()
            raise
        return connection

    def _seconds(self) -> float:
        """Return how long to wait for the server: no longer than the caller does."""
        seconds = left()
        return (
            self._timeout if seconds is None else max(_LEAST_SECONDS, min(self._timeout, seconds))
        )


def _ignore(answer: "asyncio.Future[Reply]") -> None:
    """Take a failure, which asyncio would log otherwise."""
    if not answer.cancelled():
        answer.exception()


_Waiting = tuple["asyncio.Future[Reply]", float, Call]


class AsyncPipeline(Pipeline):
    """Sends by callbacks of the event loop in which it is made.

    While a batch is under way, the calls that came are sent in two parts: the server and the
    process work at the same time.
    """

    def __init__(self, dial: Dial, timeout: float, sizes: Pipelines | None = None) -> None:
        super().__init__(dial, timeout, sizes)
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[_Waiting] = deque()
        self._connection: AsyncConnection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._scheduled = False
        """Whether :meth:`_send` is certain to be called."""
        self._latest_batch = 0
        """The number of calls in the latest batch; 0: no call was under way."""
        self._look_at = inf
        """The instant of the timer of :meth:`_look`."""

    @property
    def connected(self) -> bool:
        return self._connection is not None and not self._connection.is_over

    def ask(self, call: Call) -> "asyncio.Future[Reply]":
        answer: asyncio.Future[Reply] = self._loop.create_future()
        until = UNTIL.get() or inf
        self._waiting.append((answer, until, call))
        if not self._scheduled:
            self._scheduled = True
            self._latest_batch = 0
            self._loop.call_soon(self._send)
        if until < self._look_at:
            self._start_timer(until)
        return answer

    def tell(self, call: Call) -> None:
        self.ask(call).add_done_callback(_ignore)

    def _send(self) -> None:
        connection = self._connection
        if connection is not None and connection.expected:  # _on_idle is called when it has none.
            return
        if connection is None or self._stale or connection.is_over:
            self._connect()
            return
        most = BATCH_AT_MOST
        if self._latest_batch:
            most = min(most, (self._latest_batch + len(self._waiting) + 1) // 2)
        texts = connection.begin(self._waiting, most)
        self._latest_batch = size = len(texts)
        if texts:
            sizes = self._sizes
            sizes.sent += 1
            sizes.calls += size
            due = connection.began + self._timeout
            if connection.was_idle:  # It is waited for no longer than its callers wait.
                due = min(due, *(each[1] for each in connection.expected if each is not None))
            connection.due = due
            connection.write(b"".join(texts))
            if due < self._look_at:
                self._start_timer(due)
        else:
            self._scheduled = False

    def _on_idle(self) -> None:
        """Send the calls that came while the latest batch was under way."""
        self._scheduled = bool(self._waiting)
        if self._scheduled:  # Callers just answered may call again: take them along.
            self._loop.call_soon(self._send)

    def _on_failure(self) -> None:
        self.failing = True

    def _connect(self) -> None:
        if not self._unanswered():  # All callers went away.
            self._waiting.clear()
            self._scheduled = False
        elif self._connecting is None:
            with unhurried():  # It serves other callers too.
                self._connecting = self._loop.create_task(self._open())
            self._connecting.add_done_callback(self._opened)

    def _opened(self, connecting: asyncio.Task[None]) -> None:
        """Begin anew if the task was cancelled, as all tasks are before an event loop ends."""
        if self._connecting is connecting:  # It had not even begun.
            self._connecting = None
        if self._scheduled and connecting.cancelled():
            self._loop.call_soon(self._send)

    async def _open(self) -> None:
        connecting = self._connecting
        self._stale = False
        try:
            if self._connection is not None:
                self._connection.fail(ConnectionError("not used any more"))
            made = AsyncConnection(self._dial(), self.latest, self._on_idle, self._on_failure)
            async with asyncio.timeout(self._timeout):
                await made.open()
            self._connection = made
        except (RedisError, OSError) as failure:
            self._fail(NotSent(failure))
        except Exception as failure:
            self._fail(failure)
        else:
            self.failing = False
            self._loop.call_soon(self._send)
        finally:
            if self._connecting is connecting:
                self._connecting = None

    def _fail(self, failure: Exception) -> None:
        """Answer all waiting calls with a failure: none of them was sent."""
        self.failing = True
        self._scheduled = False
        waiting, self._waiting = self._waiting, deque()
        for answer, *_ in waiting:
            if not answer.done():
                answer.set_result(failure)

    def _start_timer(self, instant: float) -> None:
        """Look for late calls at an instant: one timer for all of them."""
        self._look_at = instant
        self._loop.call_later(instant - monotonic() + _TIMER_SLACK, self._look, instant)

    def _look(self, instant: float) -> None:
        if instant != self._look_at:
            return  # Another timer is earlier.
        self._look_at = next_at = inf
        now = monotonic()
        connection = self._connection
        if connection is not None and connection.expected:
            if connection.due <= now:
                connection.fail(connection.overdue())
            else:
                next_at = connection.due
        for answer, until, _ in self._unanswered():
            if until <= now:
                answer.set_exception(Overdue())
            else:
                next_at = min(next_at, until)
        if next_at < inf:
            self._start_timer(next_at)

    def _unanswered(self) -> list[_Waiting]:
        expected: Iterable[_Waiting | None] = (
            () if self._connection is None else self._connection.expected
        )
        return [w for w in (*expected, *self._waiting) if w is not None and not w[0].done()]

    def abort(self) -> None:
        with suppress(RuntimeError):  # The event loop has ended.
            self._loop.call_soon_threadsafe(self._abort)

    def _abort(self) -> None:
        self._stale = True
        if self._connection is not None:
            self._connection.fail(ConnectionError("another server has taken its place"))

    def abandon(self) -> None:
        for answer, *_ in self._unanswered():
            answer.set_exception(Overdue())
        self._stop()
        if self._connection is not None:
            self._connection.fail(ConnectionError("abandoned"))

    async def close(self) -> None:
        while unanswered := self._unanswered():
            await asyncio.wait([answer for answer, *_ in unanswered])
        self._stop()
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close(self._timeout)

    def _stop(self) -> None:
        """Drop the waiting calls: their callers have left."""
        self._waiting.clear()
        self._scheduled = False
        connecting, self._connecting = self._connecting, None
        if connecting is not None:  # It may not even have begun, and so never notice.
            connecting.cancel()
