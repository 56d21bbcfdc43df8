"""Counts on their way to a store: numbered batches, each repeated until it is answered (D33)."""

from collections.abc import Awaitable, Callable, Coroutine, Iterable
from secrets import token_hex
from typing import Any, Final, Generic, NamedTuple, TypeVar

from ..core.timestamps import DAY
from ..core.usage_marks import REPEATED_DAYS
from ..sync import together
from .answers import UnreadableState, UsageBatch
from .resilience.deadlines import TooManyCalls
from .resilience.older_leases import elapsing_clock
from .runtime.process_hooks import after_fork_in_child, own_lock

Counts = TypeVar("Counts")


class _Pending(NamedTuple, Generic[Counts]):
    """A batch that is not answered yet."""

    counts: Counts
    batch: UsageBatch
    since: int
    """When it was made, in microseconds of :func:`elapsing_clock`."""


class BatchWriter(Generic[Counts]):
    """Writes counts in batches, of which one is under way at a time.

    Callers may write at the same time: they send the same batch, and the store counts it once. A
    batch that stays unanswered for :data:`REPEATED_DAYS` days is given up, before the store forgets
    whether it has counted it.

    Args:
        cut: removes the counts of the next batch from those that wait, and returns them; None:
            there are none.
    """

    def __init__(self, cut: Callable[[], Counts | None]) -> None:
        self._cut: Final = cut
        self._lock = own_lock()
        self.forked()
        after_fork_in_child(self)

    def forked(self) -> None:
        """Leave the batch to the parent process, and write as another writer."""
        self._writer = token_hex(8)
        self._number = 0
        self._is_closed = False
        self.pending: _Pending[Counts] | None = None

    async def write(self, add: Callable[[Counts, UsageBatch], Awaitable[None]], most: int) -> None:
        """Write the pending batch and those that follow.

        Args:
            add: the verb of the store.
            most: the largest number of batches.

        Raises:
            Exception: the store failed; the batch is repeated by the next call.
            UnreadableState: an organization of the batch cannot be counted; the rest is.
        """
        for _ in range(most):
            pending = self._next()
            if pending is None:
                return
            try:
                await add(pending.counts, pending.batch)
            except UnreadableState:
                self._end(pending)
                raise
            self._end(pending)

    async def finish(self, add: Callable[[Counts, UsageBatch], Awaitable[None]], most: int) -> None:
        """Do :meth:`write` before the process stops, once more after a failure: but not after a
        call that was late, since the next would keep the process as long."""
        try:
            await self.write(add, most)
        except Exception as failure:
            if isinstance(failure, TimeoutError) and not isinstance(failure, TooManyCalls):
                raise
            await self.write(add, most)

    def close(self) -> None:
        """Write no more: counts that are left are lost with the process."""
        self._is_closed = True

    def _next(self) -> _Pending[Counts] | None:
        at = elapsing_clock()
        with self._lock:
            if self._is_closed:
                return None
            if self.pending is None or at - self.pending.since > REPEATED_DAYS * DAY:
                self.pending = None
                counts = self._cut()
                if counts is not None:
                    self._number += 1
                    batch = UsageBatch(self._writer, self._number)
                    self.pending = _Pending(counts, batch, at)
            return self.pending

    def _end(self, pending: _Pending[Counts]) -> None:
        """Begin the next batch, unless another caller has."""
        with self._lock:
            if self.pending is pending:
                self.pending = None


async def count_parts(parts: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run all parts of a batch, also after one has failed, and raise a failure.

    Raises:
        UnreadableState: no other part failed, so a repetition would help none.
    """
    failures = [failure for failure in await together(map(_failure_of, parts)) if failure]
    if failures:
        raise min(failures, key=lambda failure: isinstance(failure, UnreadableState))


async def _failure_of(part: Coroutine[Any, Any, None]) -> Exception | None:
    try:
        await part
    except Exception as failure:
        return failure
    return None
