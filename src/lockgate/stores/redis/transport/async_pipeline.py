"""Lines for callers that await: no task is made for a pipeline, no coroutine for a call.

That is what an admission costs in a server, where everything is cold.
"""

import asyncio
from collections import deque
from contextlib import suppress
from math import inf
from time import monotonic
from typing import Any, Final

from redis.exceptions import ConnectionError, RedisError

from ...resilience.deadlines import UNTIL, Overdue, unhurried
from .async_connection import Asked, AsyncConnection, leave, tell
from .commands import Call
from .connection import Dial, NotSent, Reply
from .pipeline import TOGETHER_AT_MOST, Pipeline

_SLACK: Final = 0.001
"""Seconds by which an event loop's timers may be early."""


class AsyncPipeline(Pipeline):
    """Awaits in the event loop in which it is made.

    Args:
        dial: gives a new connection, which is not connected yet.
        timeout: seconds to wait for an answer.
    """

    def __init__(self, dial: Dial, timeout: float) -> None:
        super().__init__()
        self._dial = dial
        self._timeout = timeout
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Asked] = deque()
        self._link: AsyncConnection | None = None
        self._reaching: asyncio.Task[None] | None = None
        self._stale = False
        self._busy = False
        """Whether the next turn is certain to come."""
        self._answered = 0
        """How many calls the latest pipeline had; 0: nothing was on its way."""
        self._looks_at = inf

    @property
    def connected(self) -> bool:
        return self._link is not None and not self._link.is_over

    def ask(self, call: Call) -> "asyncio.Future[Reply]":
        answer: asyncio.Future[Reply] = self._loop.create_future()
        until = UNTIL.get() or inf
        self._waiting.append((answer, until, call))
        if not self._busy:
            self._busy = True
            self._answered = 0
            self._loop.call_soon(self._send)
        if until < self._looks_at:
            self._look_at(until)
        return answer

    def _turn(self) -> None:
        """No replies are expected any more: send what came meanwhile."""
        self._busy = bool(self._waiting)
        if self._busy:  # Those just answered may come again: take them along.
            self._loop.call_soon(self._send)

    def _send(self) -> None:
        link = self._link
        if link is not None and link.expected:  # One pipeline at a time: there will be a turn.
            return
        if link is None or self._stale or link.is_over:
            self._reach()
            return
        waiting, texts = self._waiting, list[bytes]()
        most = TOGETHER_AT_MOST
        if self._answered:  # They take turns: one half is served here while the other is there.
            most = min(most, (self._answered + len(waiting) + 1) // 2)
        while waiting and len(texts) < most:
            asked = waiting.popleft()
            answer, _, call = asked
            if not answer.done():  # Who went away before is not charged.
                if call.replies > 1:
                    link.expected.append(None)
                link.expected.append(asked)
                texts.append(call.text)
        self._answered = len(texts)
        if texts:
            link.due = due = monotonic() + self._timeout
            link.seen = self.seen
            link.write(b"".join(texts))
            if due < self._looks_at:
                self._look_at(due)
        else:
            self._busy = False

    def _reach(self) -> None:
        if not self._unanswered():  # They went away, all of them.
            self._waiting.clear()
            self._busy = False
        elif self._reaching is None:
            with unhurried():  # It serves others than whoever asked first.
                self._reaching = self._loop.create_task(self._connect())
            self._reaching.add_done_callback(self._reached)

    def _reached(self, reaching: asyncio.Task[None]) -> None:
        """Begin anew where somebody cancelled it, as who ends an event loop cancels every task."""
        if self._reaching is reaching:  # It had not even begun.
            self._reaching = None
        if self._busy and reaching.cancelled():
            self._loop.call_soon(self._send)

    async def _connect(self) -> None:
        reaching = self._reaching
        self._stale = False
        try:
            if self._link is not None:
                self._link.fail(ConnectionError("not used any more"))
            self._link = AsyncConnection(await self._connection(), self, self._turn)
        except (RedisError, OSError) as failure:
            self._fail(NotSent(failure))
        except Exception as failure:
            self._fail(failure)
        else:
            self.failing = False
            self._loop.call_soon(self._send)
        finally:
            if self._reaching is reaching:
                self._reaching = None

    def _stop(self) -> None:
        """Send nothing of what waits, for nobody waits for it any more."""
        self._waiting.clear()
        self._busy = False
        reaching, self._reaching = self._reaching, None
        if reaching is not None:  # It may not even have begun, and so never notice.
            reaching.cancel()

    async def _connection(self) -> Any:
        async with asyncio.timeout(self._timeout):
            connection = await self._dial()
            try:
                await connection.connect()
            except BaseException:
                leave(connection)
                raise
        return connection

    def _fail(self, failure: Exception) -> None:
        """Send nothing of what waits."""
        self.failing = True
        self._busy = False
        waiting, self._waiting = self._waiting, deque()
        tell(waiting, failure)

    def _look_at(self, instant: float) -> None:
        """Look then who has waited for too long: one timer for all calls."""
        self._looks_at = instant
        self._loop.call_later(instant - monotonic() + _SLACK, self._look, instant)

    def _look(self, instant: float) -> None:
        if instant != self._looks_at:
            return  # Another timer is earlier.
        self._looks_at = next_at = inf
        now = monotonic()
        link = self._link
        if link is not None and link.expected:
            if link.due <= now:
                link.fail(TimeoutError())
            else:
                next_at = link.due
        for answer, until, _ in self._unanswered():
            if until <= now:
                answer.set_exception(Overdue())
            else:
                next_at = min(next_at, until)
        if next_at < inf:
            self._look_at(next_at)

    def _unanswered(self) -> list[Asked]:
        expected = () if self._link is None else self._link.expected
        return [a for a in (*expected, *self._waiting) if a is not None and not a[0].done()]

    def hang_up(self) -> None:
        self._stale = True

    def cut(self) -> None:
        with suppress(RuntimeError):  # The event loop has ended.
            self._loop.call_soon_threadsafe(self._cut)

    def _cut(self) -> None:
        self._stale = True
        if self._link is not None:
            self._link.fail(ConnectionError("another server has taken its place"))

    def give_up(self) -> None:
        for answer, *_ in self._unanswered():
            answer.set_exception(Overdue())
        self._stop()
        if self._link is not None:
            self._link.fail(ConnectionError("given up"))

    async def close(self) -> None:
        while unanswered := self._unanswered():
            await asyncio.wait([answer for answer, *_ in unanswered])
        self._stop()
        link, self._link = self._link, None
        if link is not None:
            await link.close()
