"""Background tasks: periodic work of a store after it was used, without delaying a caller."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from math import inf
from threading import Timer
from time import monotonic
from typing import Any, Final

from ...sync import run
from ..resilience.deadlines import unhurried
from ..resilience.failures import is_outage, traceback_of
from .process_hooks import after_fork_in_child, logger, own_lock

EVERY: Final = 1.0
"""Seconds from a use to the work."""

Work = Coroutine[Any, Any, None]


class BackgroundTask:
    """Does some work within a second of each use, in the callers' event loop or in a thread.

    Args:
        work: makes the work.
        often: runs per second.
    """

    def __init__(self, work: Callable[[], Work], often: int = 1) -> None:
        self._work: Final = work
        self._often: Final = often
        self._lock = own_lock()
        self.forked()
        after_fork_in_child(self)

    def forked(self) -> None:
        """Leave started work to the parent process."""
        self.due_by = -inf
        """Work is scheduled until then, in monotonic seconds."""
        self._timers: set[Timer | asyncio.TimerHandle] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def used(self) -> None:
        """Schedule the work within a second, unless it is scheduled.

        Callers that serve requests test :attr:`due_by` first.
        """
        present, span = monotonic(), EVERY / self._often
        with self._lock:
            if present < self.due_by:
                return
            # The loop may end before, and a forked child has no timer.
            self.due_by = present + 2 * span
        loop = _running()
        timer: Timer | asyncio.TimerHandle
        if loop is None:
            timer = Timer(span, lambda: run(self._do()))
            timer.daemon = True
            timer.start()
        else:
            with unhurried():
                timer = loop.call_later(span, lambda: self._start(loop, self._do()))
        with self._lock:
            self._timers.add(timer)

    async def finish(self, work: Work) -> None:
        """Await shared work, shielded from the cancellation of any single caller."""
        loop = _running()
        if loop is None:
            await work
        else:
            with unhurried():
                await asyncio.shield(self._start(loop, work))

    def stop(self) -> None:
        """Start no more work, and wait in this thread for started threads."""
        _join(self._cancel())

    async def close(self) -> None:
        """Start no more work, and wait up to a second for started work."""
        threads = self._cancel()
        loop = _running()
        if loop is None:
            _join(threads)
            return
        mine = [task for task in list(self._tasks) if task.get_loop() is loop]
        if mine:
            await asyncio.wait(mine, timeout=EVERY)
        if threads:
            await loop.run_in_executor(None, _join, threads)

    def _cancel(self) -> list[Timer]:
        """Start no more work; return the threads, some of which may be at work."""
        with self._lock:
            timers, self._timers = self._timers, set()
        for timer in timers:
            timer.cancel()
        return [timer for timer in timers if isinstance(timer, Timer)]

    def _start(self, loop: asyncio.AbstractEventLoop, work: Work) -> asyncio.Task[None]:
        task = loop.create_task(work)
        self._tasks.add(task)  # The event loop alone would not keep it alive.
        task.add_done_callback(self._tasks.discard)
        return task

    async def _do(self) -> None:
        with self._lock:
            self.due_by = -inf
            # Threads stay, this one too: closing the store waits for their work.
            threads = (timer for timer in self._timers if isinstance(timer, Timer))
            self._timers = {thread for thread in threads if thread.is_alive()}
        try:
            await self._work()
        except Exception as failure:  # The circuit breaker reports outages.
            if not is_outage(failure):
                logger.error("%s", traceback_of(failure))


def _join(threads: Iterable[Timer]) -> None:
    """Wait for threads that may be at work; a thread that was stopped in time ends at once."""
    for thread in threads:
        thread.join(EVERY)


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
