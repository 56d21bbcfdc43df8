"""The rate-limit headers that every response carries (D23)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final, TypeVar

from ..errors import Header, RateLimitExceeded
from .limit_windows import LimitWindows, ends_of
from .plans import Plan
from .sliding_window import Reading, Window
from .timestamps import SECOND, whole_seconds

RATE_HEADERS = frozenset({b"x-ratelimit-limit", b"x-ratelimit-remaining", b"x-ratelimit-reset"})
"""The headers that lockgate sets, replacing the application's."""

NOT_TO_STORE = frozenset({401, 403, 429})
"""Statuses of responses that caches must not store, from lockgate or a handler (D38)."""


TextHeader = tuple[str, str]
"""A WSGI header."""
_T = TypeVar("_T", str, bytes)


def _rate_as(write: Callable[[str], _T]) -> Callable[[Plan, Reading], tuple[tuple[_T, _T], ...]]:
    limit_name = write("x-ratelimit-limit")
    remaining_name = write("x-ratelimit-remaining")
    reset_name = write("x-ratelimit-reset")

    # Cached: many requests share these values until a cell of the tightest window expires.
    @lru_cache(maxsize=4096)
    def limit_of(rpm: int) -> tuple[_T, _T]:
        return limit_name, write(str(rpm))

    @lru_cache(maxsize=4096)
    def reset_at(reset: int) -> tuple[_T, _T]:
        return reset_name, write(str(-(-reset // SECOND)))

    def rate(plan: Plan, reading: Reading) -> tuple[tuple[_T, _T], ...]:
        """Return ``X-RateLimit-Limit``, ``-Remaining``, ``-Reset``; empty without a limit (D25)."""
        remaining = reading.remaining
        if remaining is None:
            return ()
        left = remaining_name, write(str(remaining))
        if plan.rpm is None:
            return left, reset_at(reading.reset)
        return limit_of(plan.rpm), left, reset_at(reading.reset)

    return rate


rate_headers: Final = _rate_as(str.encode)
rate_text: Final = _rate_as(str)


def shadowed(rate: Iterable[Header]) -> tuple[Header, ...]:
    """Rename headers to ``x-shadow-ratelimit-limit`` and so on.

    In shadow mode the original names may belong to another limiter.
    """
    return tuple((b"x-shadow-" + name.removeprefix(b"x-"), value) for name, value in rate)


def rate_limit_exceeded(
    windows: Sequence[Window],
    reading: Reading,
    cost: int = 1,
    limits: LimitWindows | None = None,
    ends: Mapping[str, int] | None = None,
) -> RateLimitExceeded:
    """Return the error for a refused reading.

    It names the window with the longest wait (D22). For a cost above a limit it names the longest
    window with such a limit, and says that the cost is never admitted (D39), or not before the end
    of a temporary limit.

    Args:
        windows: the windows of the plan.
        reading: goes through these windows, then through those of ``limits``.
        cost: units that the request asked for.
        limits: named limits that the request would have been charged for, in the periods of the
            reading.
        ends: the ends of the temporary limits of the plan, by the names of their windows.
    """
    number = len(windows)
    if limits is not None:
        windows = *windows, *limits.windows
    index, wait, end = reading.refused_by, reading.wait, None
    assert index is not None, "only a refusal has a refusing window"
    for place, window in enumerate(windows):
        if window.limit is not None and window.limit < cost:
            end = (ends or {}).get(window.name) if place < number else None
            until = ends_of(window) if end is None else end
            index, wait = place, window.span
            if until is not None:
                wait = min(wait, until - reading.now)
    window = windows[index]
    assert window.limit is not None, "a window without a limit refuses nothing"
    used, now = reading.used[index], reading.now
    retry_after = max(1, whole_seconds(wait))
    name = limits.names[index - number] if limits is not None and index >= number else None
    refusal = RateLimitExceeded(window.name, window.limit, used, retry_after, cost, name, end)
    refusal.since = refusal.until = now
    # A full window counts no more hits until its first cell expires.
    if limits is None and cost <= window.limit == used and reading.remaining == 0:
        a_second_less = now + wait - (retry_after - 1) * SECOND
        refusal.until = min(a_second_less, reading.reset)
    return refusal
