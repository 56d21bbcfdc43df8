"""Instants as text, and rounding that never lets a client retry too early (D22, D30)."""

from datetime import UTC, datetime, timedelta
from fractions import Fraction
from math import ceil

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lockgate.core.timestamps import MILLISECOND, SECOND, iso8601, whole_seconds

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("instant", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1, "1970-01-01T00:00:00.000Z"),
        (999, "1970-01-01T00:00:00.000Z"),
        (1_000, "1970-01-01T00:00:00.001Z"),
        (999_999, "1970-01-01T00:00:00.999Z"),
        (1_769_860_800_000_000, "2026-01-31T12:00:00.000Z"),
        (1_709_251_199_999_999, "2024-02-29T23:59:59.999Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (4_102_444_800_012_345, "2100-01-01T00:00:00.012Z"),
    ],
)
def test_an_instant_is_written_in_utc_with_milliseconds(instant: int, text: str) -> None:
    assert iso8601(instant) == text


@given(st.integers(0, 250_000_000_000 * SECOND))
def test_a_written_instant_reads_back_to_the_millisecond(instant: int) -> None:
    """Exact to the microsecond, beyond the precision of floats."""
    read = datetime.fromisoformat(iso8601(instant))
    assert (read - EPOCH) // timedelta(microseconds=1) == instant - instant % MILLISECOND
    assert len(iso8601(instant)) == 24


@given(st.integers(0, 2**60), st.integers(0, 2**60))
def test_texts_sort_as_instants_do(one: int, other: int) -> None:
    one, other = sorted((one % (250_000_000_000 * SECOND), other % (250_000_000_000 * SECOND)))
    assert iso8601(one) <= iso8601(other)


@given(st.integers(-(2**70), 2**70))
@example(SECOND)
@example(SECOND + 1)
@example(-1)
def test_seconds_are_rounded_up(micros: int) -> None:
    assert whole_seconds(micros) == ceil(Fraction(micros, SECOND))
