"""The rate limit status (spec 2.6, 4.6): a reading in the terms of the HTTP interface."""

from typing import NamedTuple

from ..core.plans import Plan
from ..core.sliding_window import Reading


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


def status_of(plan: Plan, reading: Reading) -> Status:
    """Return the status of a reading, without a call of the store."""
    usage = {
        window.name: WindowUsage(used, window.limit)
        for window, used in zip(plan.windows, reading.used, strict=True)
    }
    return Status(plan, usage, reading.now)
