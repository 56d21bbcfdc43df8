"""The rate limit status (D29): a reading in the terms of the HTTP interface."""

from typing import NamedTuple

from ...core.limit_windows import LimitWindows
from ...core.plans import Plan
from ...core.sliding_window import Reading


class WindowUsage(NamedTuple):
    """The counted units of a window, and its limit (None: no limit)."""

    used: int
    limit: int | None


class Status(NamedTuple):
    """The rate limit status of an organization at an instant."""

    plan: Plan
    usage: dict[str, WindowUsage]
    """Usage by window: ``minute``, ``hour``, ``day``."""
    at: int
    """The instant of the reading, in microseconds."""


class LimitUsage(NamedTuple):
    """What is counted in one window of a named limit."""

    name: str
    """The name of the limit."""
    type: str
    """The window, as ``limits.type`` of a refusal names it."""
    used: int
    """The counted units, those that are held included."""
    limit: int
    held: int = 0
    """The units of the holds that are out."""

    @property
    def title(self) -> str:
        """The name of the limit and its window, as in ``export hour``."""
        return f"{self.name} {self.type}"

    @property
    def text(self) -> str:
        """The use in words, as in ``340 of 1000, 300 held``."""
        return f"{self.used} of {self.limit}{f', {self.held} held' if self.held else ''}"


def limit_usage(limits: LimitWindows, reading: Reading) -> tuple[LimitUsage, ...]:
    """Return the usage of named limits from a reading of them alone."""
    return tuple(
        LimitUsage(name, window.name, used, limit or 0)
        for name, window, limit, used in zip(
            limits.names, limits.windows, limits.marks, reading.used, strict=True
        )
    )


def status_of(plan: Plan, reading: Reading) -> Status:
    """Return the status of a reading, without a call of the store."""
    usage = {
        window.name: WindowUsage(used, window.limit)
        for window, used in zip(plan.windows, reading.used, strict=True)
    }
    return Status(plan, usage, reading.now)
