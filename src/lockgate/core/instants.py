"""Read instants that people enter: a date, a time, a span before or after now, or ``tonight``."""

import re
from datetime import UTC, datetime, time, timedelta
from typing import Final, NamedTuple

from .timestamps import DAY, HOUR, MINUTE, SECOND

TONIGHT: Final = "tonight"
_SPAN: Final = re.compile(r"([0-9]{1,6})([smhd])")
_UNITS: Final = {"s": SECOND, "m": MINUTE, "h": HOUR, "d": DAY}


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


def read_instant(text: str) -> Instant:
    """Read ``tonight``, ``2h``, or ISO 8601, which is in UTC unless it names a time zone.

    Raises:
        ValueError: the text is none of them.
    """
    if text == TONIGHT:
        return Instant()
    if span := _SPAN.fullmatch(text):
        return Instant(span=int(span[1]) * _UNITS[span[2]])
    try:
        read = datetime.fromisoformat(text)
        aware = read if read.tzinfo is not None else read.replace(tzinfo=UTC)
        return Instant(at=int(aware.astimezone(UTC).timestamp() * SECOND))
    except OverflowError as problem:
        raise ValueError(*problem.args) from None


def datetime_of(at: int) -> datetime:
    """Return an instant in microseconds as a time in UTC."""
    return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=at)
