"""A table that drops idle owners by generation, a few at each call and without a timer."""

from typing import Final, Generic, TypeVar

from ...core.plans import LONGEST_SPAN

V = TypeVar("V")

_DROPPED_PER_CALL: Final = 8


class Generations(Generic[V]):
    """A table by owner that forgets owners without a write for one to two longest windows (W10).

    A write moves its owner to the present generation, which becomes the past one after the longest
    window. Values that are then still in the past one have expired, and are dropped.
    Callers hold a lock around every call.

    Args:
        capacity: at this many present owners the generations change early, which drops the owners
            that were idle longest; None keeps all unexpired values.
    """

    def __init__(self, capacity: int | None = None) -> None:
        self._capacity = capacity
        self._present: dict[str, V] = {}
        self._past: dict[str, V] = {}
        self._dropping: list[dict[str, V]] = []
        """Older generations, as far as they are not dropped yet."""
        self._present_since = 0
        """When the present generation began, in microseconds."""

    def _tend(self, now: int) -> None:
        """Begin the generations that are due, and drop a few owners of older ones."""
        if not 0 <= now - self._present_since < LONGEST_SPAN:
            self._advance(now)
        if self._dropping:
            self._drop_some()

    def _end_fast_paths(self) -> None:
        """Write to the present generation the hits that a subclass counts beside it.

        No generation gets hits that are later than its end: it is dropped a day after that.
        """

    def _advance(self, now: int) -> None:
        """Begin the generations that are due."""
        self._end_fast_paths()
        idle = now - self._present_since
        if idle < 0:  # The clock stepped back: a value is dropped later, never sooner.
            self._present_since = now
            return
        self._begin_generation(now)
        if idle >= 2 * LONGEST_SPAN:
            self._begin_generation(now)

    def _begin_generation(self, now: int) -> None:
        """Make the present generation the past one, and begin to drop the past one."""
        self._end_fast_paths()
        self._present_since = now
        if self._past:
            self._dropping.append(self._past)
        self._past, self._present = self._present, {}

    def _drop_some(self) -> None:
        """Drop a few owners of an older generation, so that no call takes long."""
        owners = self._dropping[-1]
        for _ in range(min(_DROPPED_PER_CALL, len(owners))):
            owners.popitem()
        if not owners:
            self._dropping.pop()

    def _take_past(self, owner: str, now: int) -> V | None:
        """Make room for an owner in the present generation; take its value out of the past one."""
        value = self._past.pop(owner, None)
        if self._capacity is not None and len(self._present) >= self._capacity:
            self._begin_generation(now)
        return value
