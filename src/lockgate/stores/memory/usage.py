"""The usage histories of the memory store."""

from ...core.usage_history import KEPT_DAYS, UsageHistory, added
from ..answers import HistoryOwner

_SWEPT_AT_ONCE = 2
"""More than one, so that the sweep is faster than new histories."""


class LocalHistories:
    """Usage histories by owner. Callers hold a lock around every call.

    A history is bytes beside the day until which it is kept: the garbage collector tracks neither.
    """

    def __init__(self) -> None:
        self._kept: dict[HistoryOwner, tuple[int, bytes]] = {}

    def add(self, owner: HistoryOwner, addition: UsageHistory) -> None:
        """Add to the history of an owner, and drop a few histories that show nothing any more."""
        until, value = self._kept.pop(owner, (0, None))
        today = addition.last_day
        self._kept[owner] = max(until, today + KEPT_DAYS), added(value, addition)
        for _ in range(min(_SWEPT_AT_ONCE, len(self._kept) - 1)):
            other = next(iter(self._kept))
            kept = self._kept.pop(other)
            if kept[0] > today:
                self._kept[other] = kept

    def read(self, owner: HistoryOwner) -> bytes | None:
        """Return the encoded history of an owner."""
        return self._kept.get(owner, (0, None))[1]

    def remove(self, owner: HistoryOwner) -> None:
        """Remove the history of an owner, if there is one."""
        self._kept.pop(owner, None)
