"""Rate-limit headers to the letter (D22, D23, D25)."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lockgate.core.plans import FREE, Plan
from lockgate.core.rate_limit_headers import (
    RATE_HEADERS,
    rate_headers,
    rate_limit_exceeded,
    rate_text,
)
from lockgate.core.sliding_window import Reading, empty_state, hit, peek
from lockgate.core.timestamps import SECOND

NOW = 1_700_000_000 * SECOND
FREELY = Plan("freely", None, None, None, None)
HOURLY = Plan("hourly", None, 100, None, None)


def reading(
    *,
    remaining: int | None = 7,
    reset: int = NOW,
    tightest: int | None = 0,
    refused_by: int | None = None,
    wait: int = 0,
) -> Reading:
    allowed = refused_by is None
    return Reading(allowed, NOW, (3, 13, 113), remaining, reset, tightest, refused_by, wait)


def test_the_three_headers() -> None:
    assert rate_headers(FREE, reading(reset=NOW + 30 * SECOND)) == (
        (b"x-ratelimit-limit", b"10"),
        (b"x-ratelimit-remaining", b"7"),
        (b"x-ratelimit-reset", b"1700000030"),
    )
    assert {name for name, _ in rate_headers(FREE, reading())} == RATE_HEADERS


@pytest.mark.parametrize(
    ("micros", "seconds"),
    [(-1, 0), (0, 0), (1, 1), (999_999, 1), (1_000_000, 1), (1_000_001, 2)],
)
def test_the_reset_is_rounded_up(micros: int, seconds: int) -> None:
    headers = dict(rate_headers(FREE, reading(reset=NOW + micros)))
    assert headers[b"x-ratelimit-reset"] == b"%d" % (1_700_000_000 + seconds)


def test_no_header_is_invented_where_there_is_no_limit() -> None:
    assert rate_headers(FREELY, reading(remaining=None, tightest=None)) == ()
    assert rate_headers(HOURLY, reading(tightest=1)) == (
        (b"x-ratelimit-remaining", b"7"),
        (b"x-ratelimit-reset", b"1700000000"),
    )
    nothing = Plan("nothing", 0, 0, 0, 0)
    assert rate_headers(nothing, reading(remaining=0))[0] == (b"x-ratelimit-limit", b"0")


@pytest.mark.parametrize("plan", [FREE, FREELY, HOURLY])
@pytest.mark.parametrize("remaining", [None, 0, 7])
def test_headers_as_text_equal_headers_as_bytes(plan: Plan, remaining: int | None) -> None:
    said = reading(remaining=remaining, tightest=None if remaining is None else 1)
    decoded = [(name.decode(), value.decode()) for name, value in rate_headers(plan, said)]
    assert list(rate_text(plan, said)) == decoded


def test_the_headers_of_a_real_reading() -> None:
    state = empty_state(FREE.windows)
    fresh = peek(state, FREE.windows, NOW)
    assert dict(rate_headers(FREE, fresh))[b"x-ratelimit-reset"] == b"1700000000"
    _, state = hit(state, FREE.windows, NOW, 1)
    refused, _ = hit(state, FREE.windows, NOW, 10)
    error = rate_limit_exceeded(FREE.windows, refused, 10)
    assert (error.type, error.limit, error.used, error.retry_after) == ("minute", 10, 1, 60)
    assert "try again in 60 s." in str(error)


@pytest.mark.parametrize(
    ("refused_by", "name", "limit", "used"),
    [(0, "minute", 10, 3), (1, "hour", 100, 13), (2, "day", 500, 113)],
)
def test_the_error_is_of_the_window_that_refused(
    refused_by: int, name: str, limit: int, used: int
) -> None:
    error = rate_limit_exceeded(FREE.windows, reading(refused_by=refused_by, wait=1))
    assert (error.type, error.limit, error.used) == (name, limit, used)


@pytest.mark.parametrize(
    ("cost", "name", "limit", "seconds"),
    [
        (11, "minute", 10, 60),
        (100, "minute", 10, 60),
        (101, "hour", 100, 3600),
        (501, "day", 500, 86400),
    ],
)
def test_a_cost_above_a_limit_is_reported_as_never_admitted(
    cost: int, name: str, limit: int, seconds: int
) -> None:
    """D39: whatever is used, and whichever window has the longest wait."""
    for spent in range(0, 101, 10):
        state, now = empty_state(FREE.windows), NOW
        for _ in range(spent):
            now += 7 * SECOND
            _, state = hit(state, FREE.windows, now, 1)
        refused, _ = hit(state, FREE.windows, now, cost)
        error = rate_limit_exceeded(FREE.windows, refused, cost)
        assert (error.type, error.limit, error.retry_after) == (name, limit, seconds)
        assert error.until == error.since
        assert str(error) == (
            f"A request of cost {cost} is never admitted, however long you wait: the limit of the "
            f"{name} is {limit}."
        )


@given(st.integers(1, 10**12))
@example(1_000_000)
@example(1_000_001)
def test_retry_after_is_never_too_short(wait: int) -> None:
    error = rate_limit_exceeded(FREE.windows, reading(refused_by=0, wait=wait))
    assert wait <= error.retry_after * SECOND < wait + SECOND
