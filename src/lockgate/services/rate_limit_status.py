"""The rate limit status (spec 2.6, 4.6): what a reading says, in the words of the interface."""

from typing import NamedTuple

from ..core.plans import Plan
from ..core.sliding_window import Reading


class WindowUsage(NamedTuple):
    """What a window counts, and what it admits (None: no limit)."""

    used: int
    limit: int | None


class Status(NamedTuple):
    """The rate limit status of an organization at an instant."""

    plan: Plan
    usage: dict[str, WindowUsage]
    """By window: ``minute``, ``hour``, ``day``."""
    at: int
    """The instant of the reading, in microseconds."""


def status_of(plan: Plan, reading: Reading) -> Status:
    """The status that a reading shows; nothing is asked again."""
    usage = {
        window.name: WindowUsage(used, window.limit)
        for window, used in zip(plan.windows, reading.used, strict=True)
    }
    return Status(plan, usage, reading.now)
