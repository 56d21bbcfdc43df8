"""Deadlines: the time that a caller waits, and abandoning a call that takes longer (D34).

Neither the answer of a late call nor its cancellation is awaited.
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from math import inf
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from time import monotonic
from typing import Any, Final, TypeVar

from ..runtime.process_hooks import after_fork_in_child

T = TypeVar("T")

DEADLINE: Final = 0.25
"""Seconds that a request waits for all calls of its store together."""
STARTING: Final = 10.0
"""Seconds for a store to connect and prepare, and then at most for the first requests."""
WARMING: Final = 3.0
"""Seconds from the first answer until no request waits longer than its deadline any more."""
CALLS_AT_MOST: Final = 64
"""Calls of one store that may hang at a time, abandoned ones included."""
_IDLE_SECONDS: Final = 10.0

LEAST: Final[ContextVar[float]] = ContextVar("lockgate_least", default=-inf)
"""The least deadline, in seconds, of gates that are made now: an operator's command waits longer
than the requests that the setting of the service is for."""
UNTIL: Final[ContextVar[float | None]] = ContextVar("lockgate_until", default=None)
"""The instant at which the caller stops waiting, in monotonic seconds; None: never."""


class Overdue(TimeoutError):
    """A call took longer than its caller waits and was abandoned: its outcome is unknown."""


class TooManyCalls(Overdue):
    """The call was not made: too many calls hang already."""


def left() -> float | None:
    """Return the seconds that the present call has left, at least 0; None: it has no deadline."""
    until = UNTIL.get()
    return None if until is None else max(0.0, until - monotonic())


class Patience:
    """Lets the first requests of a process wait longer than their deadline (G8).

    While they are served more connections are opened, often beside other processes that start. A
    process that has answered for :data:`WARMING` seconds is past that.
    """

    def __init__(self) -> None:
        self.forked()
        after_fork_in_child(self)

    def forked(self) -> None:
        """Begin anew: a child has no connections."""
        self.until = -inf
        """Until when a request may wait, in monotonic seconds."""

    def begin(self) -> None:
        """Start the time of the first requests, once the process is ready."""
        self.until = monotonic() + STARTING

    def answered(self) -> None:
        """End that time :data:`WARMING` seconds from now, if it does not end before."""
        self.until = min(self.until, monotonic() + WARMING)

    def seconds(self, deadline: float) -> float:
        """Return how long a request may wait from now on."""
        return max(deadline, self.until - monotonic())


class within:
    """Set a deadline for the calls in a ``with`` block, unless an outer deadline is earlier.

    ``with within(0.25): ...``, in seconds; an object serves one block.
    """

    __slots__ = ("_token", "_until")

    def __init__(self, seconds: float) -> None:
        until, outer = monotonic() + seconds, UNTIL.get()
        self._until = until if outer is None or until < outer else outer

    def __enter__(self) -> None:
        self._token = UNTIL.set(self._until)

    def __exit__(self, *_: object) -> None:
        UNTIL.reset(self._token)


@contextmanager
def unhurried() -> Generator[None]:
    """Lift the deadline in a ``with`` block, for work that serves other callers too."""
    token = UNTIL.set(None)
    try:
        yield
    finally:
        UNTIL.reset(token)


async def answered(answer: "asyncio.Future[T]") -> T:
    """Await a future until the present deadline, and cancel it then.

    For work that runs elsewhere: it costs a timer, while :class:`Tasks` costs a task.

    Raises:
        Overdue: no answer came in time.
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
    """Runs asynchronous calls, each in a task that can be abandoned.

    An abandoned task is cancelled, and its cancellation is not awaited.

    Args:
        at_most: the number of calls that may hang at a time; a further call fails at once.
    """

    def __init__(self, at_most: int = CALLS_AT_MOST) -> None:
        self._at_most = at_most
        self._behind: set[asyncio.Task[Any]] = set()

    async def do(self, call: Coroutine[Any, Any, T]) -> T:
        """Await a call until the present deadline.

        Raises:
            Overdue: the call took longer.
            TooManyCalls: too many calls hang already.
        """
        seconds = left()
        if seconds is None:
            return await call
        if len(self._behind) >= self._at_most:
            call.close()
            raise TooManyCalls
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
            task.exception()  # Retrieved, or asyncio would report it as never retrieved.


class _Errand:
    """A call that one thread makes for another, which waits until its deadline."""

    __slots__ = ("failure", "finished", "value", "work")

    def __init__(self, work: Callable[[], Any]) -> None:
        self.work = work
        self.value: Any = None
        self.failure: BaseException | None = None
        self.finished = Lock()
        self.finished.acquire()


class Threads:
    """Runs blocking calls, each in a thread that can be abandoned.

    Threads are started on demand, and end after some idle seconds.

    Args:
        at_most: the number of threads; while all of them hang, a call fails at once.
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
            Overdue: the call took longer.
            TooManyCalls: every thread hangs.
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
                raise TooManyCalls
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
                    if self._idle:  # Otherwise an errand was just queued for an idle thread.
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
