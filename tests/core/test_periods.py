"""Calendar periods: months of 28 to 31 days, days of the contract, and changes of the clock."""

from calendar import monthrange
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockgate import Limit
from lockgate.core.limit_hits import hit_limited
from lockgate.core.limit_windows import LimitWindows
from lockgate.core.limits import bound
from lockgate.core.periods import UNITS, Quota, Unit
from lockgate.core.sliding_window import Cells
from lockgate.core.timestamps import DAY, HOUR, SECOND
from lockgate.errors import ConfigurationError

ZONES = (
    *("UTC", "Europe/Berlin", "America/New_York", "America/Sao_Paulo", "Australia/Lord_Howe"),
    *("Pacific/Apia", "America/St_Johns", "Asia/Kathmandu", "Africa/Casablanca"),
)
"""With changes of an hour, of half an hour, at midnight, a minute after it, and of a whole day."""
INSTANTS = st.integers(86_400, 4_102_444_800).map(SECOND.__mul__)
DATES = st.dates(date(1990, 1, 1), date(2060, 12, 31))
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def at(year: int, month: int, day: int, hour: int = 0, *, zone: str = "UTC") -> int:
    """Return a local time as an instant in microseconds."""
    local = datetime(year, month, day, hour, tzinfo=ZoneInfo(zone))
    return (local - _EPOCH) // timedelta(microseconds=1)


def local(instant: int, zone: str) -> datetime:
    return (_EPOCH + timedelta(microseconds=instant)).astimezone(ZoneInfo(zone))


@given(INSTANTS, st.sampled_from(UNITS), DATES, st.sampled_from(ZONES))
def test_each_instant_is_in_exactly_one_period(
    now: int, unit: Unit, starts: date, zone: str
) -> None:
    def period(instant: int) -> tuple[int, int]:
        return Quota(unit, 1, starts=starts, zone=zone).period(instant)

    begins, ends = period(now)
    assert begins <= now < ends
    assert period(begins) == period(ends - 1) == (begins, ends)
    assert period(ends)[0] == ends
    if begins > DAY:
        assert period(begins - 1)[1] == begins


@given(INSTANTS, st.integers(1, 31), st.sampled_from(ZONES[:5]))
def test_a_month_begins_on_the_day_of_the_contract_or_the_last_of_a_shorter_month(
    now: int, day: int, zone: str
) -> None:
    begins, ends = Quota("month", 1, starts=date(2024, 1, day), zone=zone).period(now + 40 * DAY)
    first = local(begins, zone)
    assert first.day == min(day, monthrange(first.year, first.month)[1])
    following = local(ends, zone)
    assert (following.year * 12 + following.month) - (first.year * 12 + first.month) == 1
    assert 27 * DAY <= ends - begins <= 32 * DAY


@pytest.mark.parametrize(
    ("zone", "day", "hours"),
    [
        ("Europe/Berlin", (2024, 3, 31), 23),
        ("Europe/Berlin", (2024, 10, 27), 25),
        ("Europe/Berlin", (2024, 6, 1), 24),
        ("America/Sao_Paulo", (2018, 11, 4), 23),  # It begins at 01:00: midnight is skipped.
        ("Australia/Lord_Howe", (2024, 4, 7), 24.5),
        ("Pacific/Apia", (2011, 12, 31), 24),  # The day before was left out.
    ],
)
def test_a_day_is_shorter_or_longer_where_the_clock_changes(
    zone: str, day: tuple[int, int, int], hours: float
) -> None:
    begins, ends = Quota("day", 1, zone=zone).period(at(*day, 12, zone=zone))
    assert ends - begins == hours * HOUR
    assert local(begins, zone).date() == date(*day)


def test_a_month_of_a_zone_has_the_hour_of_the_change() -> None:
    begins, ends = Quota("month", 1, zone="Europe/Berlin").period(at(2024, 3, 10))
    assert ends - begins == 31 * DAY - HOUR
    assert (begins, ends) == (at(2024, 2, 29, 23), at(2024, 3, 31, 22))


def test_a_year_begins_on_the_contract_and_a_week_on_its_weekday() -> None:
    leap = Quota("year", 1, starts=date(2024, 2, 29))
    assert leap.period(at(2023, 3, 1)) == (at(2023, 2, 28), at(2024, 2, 29))
    assert Quota("year", 1).period(at(2024, 7, 1)) == (at(2024, 1, 1), at(2025, 1, 1))
    assert Quota("week", 1).period(at(2024, 5, 9))[0] == at(2024, 5, 6)  # A Monday.
    of_sunday = Quota("week", 1, starts=date(2024, 5, 5))
    assert of_sunday.period(at(2024, 5, 9)) == (at(2024, 5, 5), at(2024, 5, 12))


def test_a_first_day_that_is_no_date_is_refused() -> None:
    seventeen: Any = 17
    wrong = Quota("month", 1, starts=lambda _: seventeen)
    with pytest.raises(ConfigurationError, match=r"return a datetime\.date"):
        wrong.period(at(2024, 1, 1), "org_1")


@given(
    st.lists(st.tuples(st.integers(0, 20 * DAY), st.integers(1, 4)), min_size=1, max_size=60),
    st.integers(1, 12),
    DATES,
    st.sampled_from(ZONES),
    st.sampled_from(["month", "calendar day", "calendar week"]),
)
def test_each_period_admits_exactly_its_limit_and_a_wait_suffices(
    steps: list[tuple[int, int]], most: int, starts: date, zone: str, period: str
) -> None:
    named = bound((Limit("credits", f"{most}/{period}", starts=starts, zone=zone),), None)
    assert named is not None
    cells: dict[str, Cells] = {}
    counts: dict[int, int] = {}
    now = at(2024, 1, 20)

    def hit(instant: int, cost: int) -> tuple[bool, int, int]:
        present: LimitWindows = named.at(instant)
        before = [cells.get(field) for field in present.fields]
        reading, _, after = hit_limited((), (), before, present.windows, instant, cost)
        cells.update(zip(present.fields, after, strict=True))
        return reading.allowed, reading.used[0], reading.wait

    for gap, cost in steps:
        now += gap
        quota = named.quotas[0]
        assert quota is not None
        begins, ends = quota.period(now)
        used = counts.get(begins, 0)
        allowed, told, wait = hit(now, cost)
        assert allowed == (used + cost <= most)
        if allowed:
            counts[begins] = used + cost
        else:
            assert wait == ends - now
        assert told == counts.get(begins, 0)
    assert all(count <= most for count in counts.values())
    assert all(not cell[5] for cell in cells.values()), "one cell for each period"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"rates": "3/hour", "soft": True}, "only calendar quotas can be"),
        ({"rates": "3/month;9/hour", "soft": True}, "only calendar quotas can be"),
        ({"rates": "3/hour", "zone": "Europe/Berlin"}, "only calendar quotas have"),
        ({"rates": "3/hour", "starts": date(2024, 1, 2)}, "only calendar quotas have"),
        ({"rates": "3/month", "zone": "Europe/Nowhere"}, "install tzdata"),
        ({"rates": "3/month", "zone": "../etc/passwd"}, "install tzdata"),
        ({"rates": "3/month", "starts": 17}, "starts is .* give date or a function"),
        ({"rates": "3/month", "starts": datetime(2024, 1, 1, tzinfo=UTC)}, "give a datetime.date"),
        ({"rates": "3/month", "by": "address", "starts": date.fromisoformat}, "can ask for it"),
    ],
)
def test_settings_that_fit_no_calendar_quota_are_refused(
    arguments: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        Limit("credits", **arguments)


@pytest.mark.parametrize(
    ("rates", "types"),
    [
        ("1000000/month", ["month"]),
        ("5 per calendar days; 9/year", ["calendar day", "year"]),
        ("7/Calendar Week", ["calendar week"]),
        ("100/day;100/calendar day", ["day", "calendar day"]),
        ("4/calendar month", ["month"]),
    ],
)
def test_quotas_and_sliding_windows_are_told_apart(rates: str, types: list[str]) -> None:
    assert [window.name for window in Limit("credits", rates).windows] == types
