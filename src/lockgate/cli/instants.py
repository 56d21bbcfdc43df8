"""Read instants of options: a date, a time, a span before or after now, or ``tonight``."""

import re
from datetime import UTC, datetime, time, timedelta
from typing import Final, NamedTuple

import click

from ..core.timestamps import DAY, HOUR, MINUTE, SECOND

_SPAN: Final = re.compile(r"([0-9]{1,6})([smhd])")
_UNITS: Final = {"s": SECOND, "m": MINUTE, "h": HOUR, "d": DAY}
_TONIGHT: Final = "tonight"


class Instant(NamedTuple):
    """An instant, a span from now, or the next midnight here, if neither is set. Microseconds."""

    at: int | None = None
    span: int | None = None

    def before(self, now: int) -> int:
        """Return the instant, a span before ``now``."""
        return now - (self.span or 0) if self.at is None else self.at

    def after(self, now: int) -> int:
        """Return the instant, a span after ``now``, or the first midnight after it."""
        if self.at is not None:
            return self.at
        if self.span is not None:
            return now + self.span
        tomorrow = datetime.fromtimestamp(now / SECOND).date() + timedelta(days=1)
        return int(datetime.combine(tomorrow, time()).timestamp()) * SECOND


def moment(at: int) -> datetime:
    """Return an instant in microseconds as a time in UTC."""
    return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=at)


def read_since(_: click.Context, param: click.Parameter, value: str | None) -> Instant | None:
    """Read ``24h``, or ISO 8601, which is in UTC unless it names a time zone."""
    return None if value is None else _read(value, param, "24h")


def read_end(_: click.Context, param: click.Parameter, value: str | None) -> Instant | None:
    """Read ``tonight``, ``2h``, or ISO 8601, which is in UTC unless it names a time zone."""
    if value == _TONIGHT:
        return Instant()
    return None if value is None else _read(value, param, "2h or tonight")


def _read(value: str, param: click.Parameter, others: str) -> Instant:
    if span := _SPAN.fullmatch(value):
        return Instant(span=int(span[1]) * _UNITS[span[2]])
    try:
        read = datetime.fromisoformat(value)
        aware = read if read.tzinfo is not None else read.replace(tzinfo=UTC)
        return Instant(at=int(aware.timestamp() * SECOND))
    except (ValueError, OverflowError):
        told = f"{value!r}: write 2026-11-23, 2026-11-23T09:30, {others}"
        raise click.BadParameter(told, param=param) from None
