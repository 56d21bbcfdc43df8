"""Holds that a process grants while the store of the budgets is away (D28, D41)."""

from typing import Final

from ...clock import Clock
from ...core.bounded_dict import BoundedDict
from ...core.holds import HoldAction, HoldAnswer, Take
from ...core.periods import Quota
from ...core.sliding_window import LARGEST, Window
from ..memory.holds import LocalBudgets
from ..runtime.process_hooks import own_lock

_AT_MOST: Final = 10_000


class LocalHolds:
    """The holds of this process while the store is away.

    Each is taken of this process's share of the limit, within the store's latest answer for the
    length of the window (W15). It stays local: it is renewed and settled here also once the store
    is back, which is not charged for it.

    Args:
        fleet: the number of processes that share the limits; None: no limit applies.
        clock: returns the present in microseconds.
    """

    def __init__(self, fleet: int | None, clock: Clock) -> None:
        self._fleet = fleet
        self._clock = clock
        self._lock = own_lock()
        self._budgets = LocalBudgets()
        self._local = BoundedDict[str, None](_AT_MOST)
        """The ids of holds that were taken here."""
        self._told = BoundedDict[tuple[str, str], tuple[int, int]](_AT_MOST)
        """By organization and field: the units counted by the store's latest answer, and its
        instant."""

    def has(self, id: str) -> bool:
        """Return whether this hold was taken here."""
        return id in self._local

    def note(self, organization: str, action: HoldAction, answer: HoldAnswer) -> None:
        """Remember an answer of the store."""
        with self._lock:
            instant = self._clock()
            for field, used in zip(action.fields, answer.used, strict=True):
                self._told[organization, field] = used, instant

    def decide(self, organization: str, action: HoldAction, now: int | None = None) -> HoldAnswer:
        """Take, settle or renew a hold here."""
        with self._lock:
            instant = self._clock() if now is None else now
            if isinstance(action, Take):
                quotas = action.quotas or (None,) * len(action.fields)
                windows = tuple(
                    self._share(organization, field, window, quota, instant)
                    for field, window, quota in zip(
                        action.fields, action.limits.windows, quotas, strict=True
                    )
                )
                action = action._replace(limits=action.limits._replace(windows=windows))
            answer = self._budgets.hold(organization, action, instant)
            if isinstance(action, Take) and answer.done:
                self._local[action.id] = None
            # These counts are not the store's, whose quotas no use of this process crosses.
            return answer._replace(counts=())

    def _share(
        self, organization: str, field: str, window: Window, quota: Quota | None, now: int
    ) -> Window:
        """Return a window with the limit of this process: its share, and no more than the store's
        latest answer has left, as that counts none of the units that are held or used here."""
        limit = window.limit
        if limit is None:
            return window
        if self._fleet is None:
            return window._replace(limit=LARGEST)
        share = max(1, limit // self._fleet)
        told = self._told.get((organization, field))
        period = None if quota is None else quota.period(now)
        if told is not None and (
            0 <= self._clock() - told[1] < window.span
            if period is None
            else period.begins <= told[1] < period.ends
        ):
            share = min(share, max(0, limit - told[0]))
        return window._replace(limit=share)
