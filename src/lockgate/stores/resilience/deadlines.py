"""Deadlines: how long whoever asks will wait, and leaving behind what takes longer (D34).

A call that is late is abandoned: neither its answer is waited for, nor its cancellation.
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from contextvars import ContextVar, Token, copy_context
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from time import monotonic
from typing import Any, Final, TypeVar

from ..runtime.process_hooks import after_fork_in_child

T = TypeVar("T")

DEADLINE: Final = 0.25
"""Seconds that a request waits for its store, however many calls that takes."""
STARTING: Final = 5.0
"""Seconds for a store to connect and prepare; and, once it is ready, the time in which requests are
given until its end: further connections are made then, while other processes start as well."""
CALLS_AT_MOST: Final = 64
"""Calls of one store that may hang at a time, those left behind included."""
_IDLE_SECONDS: Final = 10.0

UNTIL: Final[ContextVar[float | None]] = ContextVar("lockgate_until", default=None)
"""The instant at which whoever asks stops waiting, by the clock that never steps; None: never."""


class Overdue(TimeoutError):
    """A call took longer than whoever asked waits, and was left behind: its outcome is unknown."""


def left() -> float | None:
    """Seconds that the present call has left, never negative; None: it has no deadline."""
    until = UNTIL.get()
    return None if until is None else max(0.0, until - monotonic())


def begin(seconds: float) -> Token[float | None]:
    """What :class:`within` does, where it is asked for again and again: in one step.

    ``UNTIL.reset(...)`` with what this gives ends it.
    """
    until = monotonic() + seconds
    outer = UNTIL.get()
    return UNTIL.set(until if outer is None or until < outer else outer)


class within:
    """Give what is called here so many seconds, or fewer where it has fewer already.

    ``with within(0.25): ...``, once for each.
    """

    __slots__ = ("_token", "_until", "lost")

    def __init__(self, seconds: float) -> None:
        until = monotonic() + seconds
        outer = UNTIL.get()
        self.lost = 0.0 if outer is None or until < outer else until - outer
        """How many of the seconds there are not; all, or more: it is too late already."""
        self._until = until if outer is None or until < outer else outer

    def __enter__(self) -> None:
        self._token = UNTIL.set(self._until)

    def __exit__(self, *_: object) -> None:
        UNTIL.reset(self._token)


@contextmanager
def unhurried() -> Generator[None]:
    """Give what is called here all the time it takes: it serves others than the present call."""
    token = UNTIL.set(None)
    try:
        yield
    finally:
        UNTIL.reset(token)


async def answered(answer: "asyncio.Future[T]") -> T:
    """Wait for a future until the present deadline, and cancel it then.

    That costs a timer, where :class:`Tasks` costs a task: for what somebody else is working on.

    Raises:
        Overdue: there was no answer in time.
    """
    seconds = left()
    if seconds is None:
        return await answer
    late = False

    def give_up() -> None:
        nonlocal late
        late = answer.cancel()

    timer = asyncio.get_running_loop().call_later(seconds, give_up)
    try:
        return await answer
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if late and (task is None or not task.cancelling()):
            raise Overdue from None
        raise
    finally:
        timer.cancel()


class Tasks:
    """Makes calls that await, each in a task that can be left behind.

    A task that is left behind is cancelled, and nobody waits until it has noticed.

    Args:
        at_most: how many calls may hang at a time; past them a call fails at once.
    """

    def __init__(self, at_most: int = CALLS_AT_MOST) -> None:
        self._at_most = at_most
        self._behind: set[asyncio.Task[Any]] = set()

    async def do(self, call: Coroutine[Any, Any, T]) -> T:
        """Await a call until the present deadline.

        Raises:
            Overdue: it took longer, or too many hang already.
        """
        seconds = left()
        if seconds is None:
            return await call
        if len(self._behind) >= self._at_most:
            call.close()
            raise Overdue
        task = asyncio.get_running_loop().create_task(call)
        try:
            done, _ = await asyncio.wait((task,), timeout=seconds)
        except asyncio.CancelledError:
            self._leave(task)
            raise
        if not done:
            self._leave(task)
            raise Overdue
        return task.result()

    def _leave(self, task: asyncio.Task[Any]) -> None:
        self._behind.add(task)  # The event loop alone would not keep it alive.
        task.add_done_callback(self._returned)
        task.cancel()

    def _returned(self, task: asyncio.Task[Any]) -> None:
        self._behind.discard(task)
        if not task.cancelled():
            task.exception()  # Asked for, so that asyncio does not report that nobody did.


class _Errand:
    """A call that a thread makes for another, which waits for so long and no longer."""

    __slots__ = ("failure", "finished", "value", "work")

    def __init__(self, work: Callable[[], Any]) -> None:
        self.work = work
        self.value: Any = None
        self.failure: BaseException | None = None
        self.finished = Lock()
        self.finished.acquire()


class Threads:
    """Makes calls that block, each in a thread that can be left behind.

    Threads are started as they are needed, and end when they were not for a while.

    Args:
        at_most: how many there may be; while all of them hang, a call fails at once.
    """

    def __init__(self, at_most: int = CALLS_AT_MOST) -> None:
        self._at_most = at_most
        self._begin()
        after_fork_in_child(self)

    def forked(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._lock = Lock()
        self._errands: SimpleQueue[_Errand] = SimpleQueue()
        self._threads = 0
        self._idle = 0

    def do(self, work: Callable[[], T]) -> T:
        """Make a call and wait until the present deadline.

        Raises:
            Overdue: it took longer, or every thread hangs.
        """
        seconds = left()
        if seconds is None:
            return work()
        context = copy_context()
        errand = _Errand(lambda: context.run(work))
        with self._lock:
            if self._idle:
                self._idle -= 1
            elif self._threads < self._at_most:
                Thread(target=self._serve, name="lockgate-call", daemon=True).start()
                self._threads += 1
            else:
                raise Overdue
            self._errands.put(errand)
        if not errand.finished.acquire(timeout=seconds):
            raise Overdue
        if errand.failure is not None:
            raise errand.failure
        value: T = errand.value
        return value

    def _serve(self) -> None:
        while True:
            try:
                errand = self._errands.get(timeout=_IDLE_SECONDS)
            except Empty:
                with self._lock:
                    if self._idle:  # Else an errand is on its way to this thread or to another.
                        self._idle -= 1
                        self._threads -= 1
                        return
                continue
            try:
                errand.value = errand.work()
            except BaseException as failure:
                errand.failure = failure
            with self._lock:
                self._idle += 1
            errand.finished.release()
            del errand
