"""A clock moved by hand, so that no test waits for a window to pass."""

from typing import Final

from ..core.timestamps import DAY, HOUR, MINUTE, SECOND

START: Final = 20_000 * DAY + 12_345 * SECOND + 678_901
"""The first instant, in microseconds; not a whole millisecond, so that rounding shows."""


class HandClock:
    """Returns the same instant until it is moved: ``StoreOptions(clock=HandClock())``.

    Args:
        now: the first instant, in microseconds since the Unix epoch.

    Attributes:
        now: the present instant; may be set, also to an earlier one.
    """

    def __init__(self, now: int = START) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now

    def move(
        self, seconds: float = 0, *, minutes: float = 0, hours: float = 0, days: float = 0
    ) -> int:
        """Move the clock, back if the sum is negative, and return the new present."""
        by = seconds * SECOND + minutes * MINUTE + hours * HOUR + days * DAY
        self.now += round(by)
        return self.now

    def __repr__(self) -> str:
        return f"HandClock({self.now})"
