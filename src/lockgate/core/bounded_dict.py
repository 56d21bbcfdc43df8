"""A dictionary of bounded size, for what can be found out again: it forgets one entry at a time."""

from collections import deque
from collections.abc import Hashable
from random import random
from typing import Final, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_SKIPPED_AT_MOST: Final = 32
"""From 16 on, entries that come round in turn are found as often as if each were as likely to be
forgotten."""
_SPARED_AT_MOST: Final = 8


class BoundedDict(dict[K, V]):
    """A dictionary that forgets one entry for each new one, once it holds ``at_most``.

    Reading costs the same as in a plain dictionary. The entry to forget is drawn
    at random from among the oldest. So a few more entries in use than there is room for cost a few
    more misses: by age alone, users that come round in turn would miss each time.

    Threads may share it without a lock. Only ``memory[key] = value`` adds entries.

    Args:
        at_most: how many entries to hold, beside one for each thread that is adding one.
    """

    __slots__ = ("_at_most", "_order", "_skipped", "_used", "touch")

    def __init__(self, at_most: int) -> None:
        super().__init__()
        self._at_most = at_most
        self._skipped = min(_SKIPPED_AT_MOST, at_most // 8)
        self._order: deque[K] = deque()
        """Each key that is held, at least once, and some that were removed: the oldest first."""
        self._used: set[K] = set()
        self.touch = self._used.add
        """Spare an entry that is held: when its turn comes, others are forgotten in its place."""

    def __setitem__(self, key: K, value: V) -> None:
        is_new = key not in self
        super().__setitem__(key, value)
        if is_new:
            self._order.append(key)
            # Once, unless a thread replaced the order by another that is too long.
            while len(self._order) > self._at_most:
                self._forget_one(self._order)

    def clear(self) -> None:
        """Forget everything."""
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
        if len(self) > self._at_most:  # A thread replaced what another was just forgetting.
            # All but the last are forgotten at once: else each new entry would come here again.
            self._order = order = deque(list(self))
            while len(order) > self._at_most:
                self.pop(order.popleft(), None)
