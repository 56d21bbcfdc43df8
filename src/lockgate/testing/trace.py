"""Traces of traffic: instants and costs of calls, and the fullest window of a trace."""

from collections import deque
from collections.abc import Iterable
from datetime import timedelta
from typing import NamedTuple, TypeAlias

from ..core.timestamps import SECOND


class Arrival(NamedTuple):
    """A call at an instant, in microseconds."""

    at: int
    cost: int = 1


Trace: TypeAlias = Iterable[Arrival | int]
"""Calls, or only their instants, in any order."""


class Span(NamedTuple):
    """The content of one window."""

    admitted: int
    """The cost in it."""
    until: int
    """The last instant of the window, which is half-open at its start."""
    arrivals: tuple[Arrival, ...]


def in_order(trace: Trace) -> list[Arrival]:
    """Return the calls of a trace in order of time."""
    return sorted(Arrival(*one) if isinstance(one, tuple) else Arrival(one) for one in trace)


def worst(trace: Trace, window: int | timedelta) -> Span:
    """Return the fullest window of this length anywhere in a trace; the first of several.

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
    """Check that no window of this length anywhere in a trace exceeds a limit.

    Args:
        trace: the admitted calls, as instants in microseconds or as arrivals with their cost.
        limit: the most that a window may admit.
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
