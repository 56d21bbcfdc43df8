"""A dictionary of bounded size for caches, which evicts one entry at a time."""

from collections import deque
from collections.abc import Hashable
from random import random
from typing import Final, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_SKIPPED_AT_MOST: Final = 32
"""From 16 on, keys that are used in turn are found as often as with uniformly random eviction."""
_SPARED_AT_MOST: Final = 8


class BoundedDict(dict[K, V]):
    """A dictionary that evicts one entry for each new one, once it holds ``at_most``.

    Reading costs the same as in a plain dictionary. The evicted entry is random among the oldest,
    so a few more keys in use than fit cost a few more misses; strictly by age, keys that are used
    in turn would always miss.

    Threads may share it without a lock. Only ``memory[key] = value`` adds entries.

    Args:
        at_most: the number of entries, plus one for each thread that is adding one.
    """

    __slots__ = ("_at_most", "_order", "_skipped", "_used", "touch")

    def __init__(self, at_most: int) -> None:
        super().__init__()
        self._at_most = at_most
        self._skipped = min(_SKIPPED_AT_MOST, at_most // 8)
        self._order: deque[K] = deque()
        """Every key at least once, and some removed ones; oldest first."""
        self._used: set[K] = set()
        self.touch = self._used.add
        """Pass over an entry once when it would be evicted."""

    def __setitem__(self, key: K, value: V) -> None:
        is_new = key not in self
        super().__setitem__(key, value)
        if is_new:
            self._order.append(key)
            # Runs once, unless another thread replaced the order by a longer one.
            while len(self._order) > self._at_most:
                self._forget_one(self._order)

    def clear(self) -> None:
        """Remove all entries."""
        self._order = deque()
        self._used.clear()
        super().clear()

    def _forget_one(self, order: deque[K]) -> None:
        used = self._used
        order.rotate(-int(random() * self._skipped))  # noqa: S311 - no secret depends on it
        key = order.popleft()
        for _ in range(_SPARED_AT_MOST):
            if key not in used:
                break
            used.discard(key)
            order.append(key)
            key = order.popleft()
        self.pop(key, None)
        if len(self) > self._at_most:  # A thread replaced an entry that another one was evicting.
            # Drop stale keys at once; otherwise each new entry would repeat this.
            self._order = order = deque(list(self))
            while len(order) > self._at_most:
                self.pop(order.popleft(), None)
