"""Thresholds: whether an admission takes the use of a window across 80 or 100 % of its limit.

A store decides one admission after another, and each reading tells the use of each window with this
admission and, less the cost, without it. So of all admissions of all processes one crosses a mark,
and its reading alone shows that.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from .limit_windows import LimitWindows, ends_of
from .periods import Quota
from .sliding_window import PLENTY, Window

SHARES: Final = (80, 100)
"""The marks, in percent of a limit, in ascending order."""


class Crossing(NamedTuple):
    """A window whose use an admission took across a mark."""

    window: Window
    share: int
    """The mark, one of :data:`SHARES`."""
    used: int
    """The use, this admission included."""


def lowest_marks(windows: Sequence[Window]) -> tuple[int, ...]:
    """Return the use of each window from which on a mark may be crossed."""
    return tuple(
        PLENTY if window.limit is None else _mark(window.limit, SHARES[0]) for window in windows
    )


def crossings(windows: Sequence[Window], used: Sequence[int], cost: int) -> Iterator[Crossing]:
    """Yield what an admission of this cost crossed, by the use that its reading tells."""
    for window, after in zip(windows, used, strict=True):
        if window.limit is not None:
            for share in SHARES:
                if after - cost < _mark(window.limit, share) <= after:
                    yield Crossing(window, share, after)


class QuotaCrossing(NamedTuple):
    """A calendar quota whose use an admission took across a mark."""

    name: str
    """The name of the limit."""
    quota: Quota
    share: int
    """The mark, one of :data:`SHARES`."""
    used: int
    """The use in the period, this admission included."""
    ends: int
    """The first instant of the next period, in microseconds."""


def quota_crossings(
    limits: LimitWindows, used: Sequence[int], cost: int
) -> Iterator[QuotaCrossing]:
    """Yield what an admission of this cost crossed of calendar quotas.

    In a period nothing expires, so each mark is crossed by one admission of all processes.

    Args:
        limits: in the periods of the admission.
        used: the use of each window that its reading tells.
        cost: the cost of the admission.
    """
    for name, window, quota, after in zip(
        limits.names, limits.windows, limits.quotas, used, strict=True
    ):
        if quota is not None:
            ends = ends_of(window)
            for share in SHARES:
                if ends and after - cost < _mark(quota.limit, share) <= after:
                    yield QuotaCrossing(name, quota, share, after, ends)


def _mark(limit: int, share: int) -> int:
    """Return the smallest use that is this share of a limit."""
    return -(-limit * share // 100)
