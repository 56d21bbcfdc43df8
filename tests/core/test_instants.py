"""Instants that people enter: dates, times, spans and ``tonight``."""

from datetime import UTC, datetime

import pytest

from lockgate.core.instants import datetime_of, read_instant
from lockgate.core.timestamps import DAY, HOUR, SECOND

NOW = int(datetime(2026, 11, 23, 9, 30, tzinfo=UTC).timestamp()) * SECOND


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2h", NOW + 2 * HOUR),
        ("3d", NOW + 3 * DAY),
        ("2026-11-24", NOW + 14 * HOUR + HOUR // 2),
        ("2026-11-24T09:30", NOW + DAY),
        ("2026-11-24 09:30", NOW + DAY),
        ("2026-11-24T09:30+01:00", NOW + 23 * HOUR),
    ],
)
def test_spans_dates_and_times_are_read_in_utc_unless_they_name_a_zone(
    text: str, expected: int
) -> None:
    assert read_instant(text).after(NOW) == expected
    assert datetime_of(expected).timestamp() * SECOND == expected


def test_tonight_is_the_first_midnight_after_now() -> None:
    end = read_instant("tonight").after(NOW)
    assert NOW < end <= NOW + 25 * HOUR
    local = datetime.fromtimestamp(end / SECOND).time()
    assert (local.hour, local.minute, local.second) == (0, 0, 0)


@pytest.mark.parametrize(
    "text", ["", "soon", "2", "2w", "+2h", "2026-13-01", "9999-12-31T23:59-12:00"]
)
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - callers write the message
        read_instant(text)
