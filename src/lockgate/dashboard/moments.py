"""Instants as pages show them: in UTC, which the script turns into local time."""

from functools import lru_cache
from time import gmtime
from typing import NamedTuple

from ..core.timestamps import DAY, HOUR, MINUTE, SECOND


class Moment(NamedTuple):
    """An instant as a page shows it."""

    iso: str
    """For the ``datetime`` attribute."""
    date: str
    time: str
    """Date and time to the minute."""


def moment_of(instant: int) -> Moment:
    """Return an instant, in microseconds, as a page shows it."""
    date, time = split(instant)
    return Moment(f"{date}T{time}Z", date, f"{date} {time} UTC")


def split(instant: int) -> tuple[str, str]:
    """Return the date of an instant as ``2026-01-31``, and its time as ``23:59``."""
    return _date_of(instant // DAY), _time_of(instant % DAY // MINUTE)


def distance(instant: int, now: int) -> tuple[str, int]:
    """Return about how far an instant is from now: the name of a text, and its number."""
    span, future = abs(now - instant), instant > now
    if span < MINUTE and not future:
        return "ago.now", 0
    unit, size = "minutes", MINUTE
    if span >= 2 * DAY:
        unit, size = "days", DAY
    elif span >= 2 * HOUR:
        unit, size = "hours", HOUR
    return f"{'in' if future else 'ago'}.{unit}", max(1, span // size)


# Cached: most rows of a list are from the same few days.


@lru_cache(maxsize=4096)
def _date_of(day: int) -> str:
    year, month, number = gmtime(day * DAY // SECOND)[:3]
    return f"{year}-{month:02}-{number:02}"


@lru_cache(maxsize=1440)
def _time_of(minute: int) -> str:
    return f"{minute // 60:02}:{minute % 60:02}"
