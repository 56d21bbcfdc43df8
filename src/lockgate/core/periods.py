"""Calendar periods: days, weeks, months and years in a time zone, as calendar quotas count them.

A period begins at the first instant of its first day in the time zone and ends where the next one
begins. So a day has 23 to 25 hours where the clock changes, a month 28 to 31 days, and each instant
is in exactly one period. In a month that lacks the day on which periods begin, its last day is the
first of the period.
"""

from calendar import monthrange
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Final, Literal, NamedTuple, get_args
from zoneinfo import ZoneInfo

from ..errors import ConfigurationError
from .timestamps import DAY

Unit = Literal["day", "week", "month", "year"]
UNITS: Final = get_args(Unit)
NAMES: Final[dict[Unit, str]] = {
    "day": "calendar day",
    "week": "calendar week",
    "month": "month",
    "year": "year",
}
"""The name of each period, as ``limits.type`` of a refusal tells it."""
LONGEST: Final[dict[Unit, int]] = {
    "day": DAY,
    "week": 7 * DAY,
    "month": 31 * DAY,
    "year": 366 * DAY,
}
"""The nominal length of each period, in microseconds. Clock changes add to it."""
FIRST: Final = date(2024, 1, 1)
"""The default first day: the first of a month and of a year, and a Monday."""

Starts = date | Callable[[str], date]
"""The first day of some period, or a function that returns it for an organization's id."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Period(NamedTuple):
    """A period, by its first instant and the first instant of the next one, in microseconds."""

    begins: int
    ends: int


@dataclass(frozen=True, slots=True)
class Quota:
    """The calendar of one window: which period it counts.

    Args:
        unit: the kind of period.
        limit: the units that each period admits, or, if soft, whose use is reported.
        soft: whether more is admitted.
        starts: the first day of some period, or a function that returns it.
        zone: the name of the time zone in which days begin.
    """

    unit: Unit
    limit: int
    soft: bool = False
    starts: Starts = FIRST
    zone: str = "UTC"
    _latest: dict[tuple[int, ...], Period] = field(
        init=False, repr=False, compare=False, default_factory=dict[tuple[int, ...], Period]
    )
    """The latest period by its start: at most one for each day of a leap year."""

    def period(self, now: int, organization: str | None = None) -> Period:
        """Return the period of an instant.

        Args:
            now: the instant, in microseconds.
            organization: its id, for ``starts``.

        Raises:
            ConfigurationError: the function returned no date, or raised an exception.
        """
        starts = self.starts
        if not isinstance(starts, date):
            starts = _asked(starts, organization or "")
        anchor = _anchor(self.unit, starts)
        latest = self._latest.get(anchor)
        if latest is None or not latest.begins <= now < latest.ends:
            latest = self._latest[anchor] = _period(self.unit, anchor, self.zone, now)
        return latest

    def of(self, organization: str) -> "Quota":
        """Return the quota of an organization, whose first day is a date.

        Raises:
            ConfigurationError: the function returned no date, or raised an exception.
        """
        if isinstance(self.starts, date):
            return self
        return replace(self, starts=_asked(self.starts, organization))


def is_day(value: object) -> bool:
    """Return whether a value is a date without a time."""
    return isinstance(value, date) and not isinstance(value, datetime)


@lru_cache(64)
def read_zone(name: str) -> tzinfo:
    """Return a time zone by its name.

    Raises:
        ValueError: there is no such zone, or no data about it on this machine.
    """
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as unknown:
        raise ValueError(name) from unknown


def _asked(starts: Callable[[str], date], organization: str) -> date:
    """Return the first day that a function of the host has for an organization.

    Raises:
        ConfigurationError: it returned no date, or raised an exception: stores call it, and would
            take an ``OSError`` of it for a failure of their own, which affects all organizations.
    """
    try:
        day = starts(organization)
    except Exception as failure:
        raise ConfigurationError(
            f"The function for the first day of a quota raised {failure!r} for {organization!r}: "
            "let it return a datetime.date for each organization."
        ) from failure
    if not is_day(day):
        raise ConfigurationError(
            f"The first day of a quota for {organization!r} is {day!r}: return a datetime.date, "
            "the day of the contract in the time zone of the limit."
        )
    return day


def _anchor(unit: Unit, starts: date) -> tuple[int, ...]:
    """Return the part of the first day that matters for a kind of period."""
    if unit == "day":
        return ()
    if unit == "week":
        return (starts.weekday(),)
    if unit == "month":
        return (starts.day,)
    return (starts.month, starts.day)


def _period(unit: Unit, anchor: tuple[int, ...], zone: str, now: int) -> Period:
    """Return the period of an instant: the last that begins by then, and has not ended."""
    place = read_zone(zone)
    day = (_EPOCH + timedelta(microseconds=now)).astimezone(place).date()
    number = _number(unit, day)
    while (begins := _begins(unit, anchor, place, number)) > now:
        number -= 1
    # Where clocks are set back at midnight, a date ends, comes back, and ends again.
    while (ends := _begins(unit, anchor, place, number + 1)) <= now:
        begins, number = ends, number + 1
    return Period(max(0, begins), ends)


def _number(unit: Unit, day: date) -> int:
    """Return the number of the latest period that may have begun by a day."""
    if unit == "day":
        return day.toordinal()
    if unit == "week":
        return day.toordinal() // 7
    return 12 * day.year + day.month - 1 if unit == "month" else day.year


def _begins(unit: Unit, anchor: tuple[int, ...], place: tzinfo, number: int) -> int:
    """Return the first instant of a period by its number, in microseconds."""
    if unit == "day":
        first = date.fromordinal(number)
    elif unit == "week":
        first = date.fromordinal(7 * number + 1 + anchor[0])  # The first of January 1 is a Monday.
    elif unit == "month":
        first = _in_month(number // 12, number % 12 + 1, anchor[0])
    else:
        first = _in_month(number, anchor[0], anchor[1])
    # A midnight that clocks skip reads as the instant of the change, one that repeats as the first.
    midnight = datetime(first.year, first.month, first.day, tzinfo=place)
    return (midnight.astimezone(UTC) - _EPOCH) // timedelta(microseconds=1)


def _in_month(year: int, month: int, day: int) -> date:
    """Return a day of a month, or its last day if it has fewer."""
    return date(year, month, min(day, monthrange(year, month)[1]))
