"""Clocks: functions that return the present instant, and the clock of this machine.

The rules in ``lockgate.core`` read no clock, they take instants as arguments; a shared store goes
by its server's clock.
"""

from collections.abc import Callable
from time import time_ns

Clock = Callable[[], int]
"""Returns the present instant, in microseconds since 1970."""


def wall_clock() -> int:
    """Return the time of this machine, in microseconds since 1970."""
    return time_ns() // 1000
