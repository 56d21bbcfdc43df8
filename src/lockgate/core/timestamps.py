"""Units of time, and the text form of instants.

In lockgate an instant is a whole number of microseconds since the Unix epoch, and a span a whole
number of microseconds: exact in Python, in SQL integers and in Lua's doubles.
"""

from datetime import UTC, datetime
from typing import Final

MILLISECOND: Final = 1_000
SECOND: Final = 1_000 * MILLISECOND
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR


def iso8601(instant: int) -> str:
    """Format an instant in UTC with milliseconds and ``Z`` (D30): ``2026-01-31T12:00:00.000Z``."""
    seconds, micros = divmod(instant, SECOND)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{micros // 1000:03d}Z"


def whole_seconds(micros: int) -> int:
    """Round microseconds up to whole seconds, so that a wait is never too short."""
    return -(-micros // SECOND)
