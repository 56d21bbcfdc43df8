"""Traces of traffic: when calls came, what each weighed, and the most that any window held."""

from collections import deque
from collections.abc import Iterable
from datetime import timedelta
from typing import NamedTuple, TypeAlias

from ..core.timestamps import SECOND


class Arrival(NamedTuple):
    """A call that came at an instant, in microseconds."""

    at: int
    cost: int = 1


Trace: TypeAlias = Iterable[Arrival | int]
"""Calls, or only the instants at which they came, in any order."""


class Span(NamedTuple):
    """What one window held."""

    admitted: int
    """The cost in it."""
    until: int
    """The instant that it ends with: the window is the half-open span before and including it."""
    arrivals: tuple[Arrival, ...]


def in_order(trace: Trace) -> list[Arrival]:
    """The calls of a trace by when they came."""
    return sorted(Arrival(*one) if isinstance(one, tuple) else Arrival(one) for one in trace)


def worst(trace: Trace, window: int | timedelta) -> Span:
    """The window of this length, however placed, that held most (the first of those).

    Args:
        trace: the admitted calls.
        window: its length, in microseconds or as a ``timedelta``.
    """
    span = _micros(window)
    inside: deque[Arrival] = deque()
    total, most = 0, Span(0, 0, ())
    for arrival in in_order(trace):
        inside.append(arrival)
        total += arrival.cost
        while inside[0].at <= arrival.at - span:
            total -= inside.popleft().cost
        if total > most.admitted:
            most = Span(total, arrival.at, tuple(inside))
    return most


def assert_never_exceeds(trace: Trace, limit: int, window: int | timedelta) -> None:
    """See that no window of this length, however placed, holds more than the limit.

    Args:
        trace: the admitted calls, as instants in microseconds or as arrivals with their cost.
        limit: the most that may be in it.
        window: its length, in microseconds or as a ``timedelta``.

    Raises:
        AssertionError: with the fullest window, and its cost.
    """
    found = worst(trace, window)
    if found.admitted <= limit:
        return
    span = _micros(window)
    lines = [
        f"  {(arrival.at - found.until) / SECOND:+.6f} s  cost {arrival.cost}"
        for arrival in found.arrivals
    ]
    if len(lines) > 2 * _SHOWN:
        lines[_SHOWN:-_SHOWN] = [f"  ... {len(lines) - 2 * _SHOWN} more ..."]
    listed = "\n".join(lines)
    raise AssertionError(
        f"{found.admitted} were admitted in the {span / SECOND:g} s up to {found.until}, "
        f"and the limit is {limit}:\n{listed}"
    )


_SHOWN = 8


def _micros(window: int | timedelta) -> int:
    span = window if isinstance(window, int) else window // timedelta(microseconds=1)
    if span < 1:
        raise ValueError(f"A window is at least a microsecond long, not {window!r}.")
    return span
