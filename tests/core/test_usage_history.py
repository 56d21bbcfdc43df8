"""Usage over time, against a list of all increments."""

from __future__ import annotations

from itertools import permutations
from typing import NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lockgate.core.plans import SPANS
from lockgate.core.timestamps import DAY, HOUR, MINUTE
from lockgate.core.usage_history import (
    BYTES_AT_MOST,
    LEVELS,
    LIMITS_AT_MOST,
    OTHER,
    By,
    Cell,
    Last,
    UsageHistory,
    added,
    by_status,
    kind_of_limit,
)

NOW = 1_700_000_000 * 1_000_000
KINDS = ("minute", "hour", "day", "concurrent", "INSUFFICIENT_SCOPE", "KEY_REVOKED", "TEAPOT")
NAMED = tuple(kind_of_limit(f"limit-{number}") for number in range(LIMITS_AT_MOST))
BYS: tuple[By, ...] = ("minute", "hour", "day")


class Increment(NamedTuple):
    at: int
    kind: str | None
    """None: admitted."""
    number: int


def _into(history: UsageHistory, increment: Increment) -> None:
    at, kind, number = increment
    if kind is None:
        history.admit(at, number)
    else:
        history.refuse(at, kind, number)


def _told(increments: list[Increment], by: By, now: int) -> list[tuple[int, int, int]]:
    """Brute force: start, admitted and refused of the newest cells, as shown at an instant."""
    span, cells, _ = LEVELS[by]
    indexes = sorted({one.at // span for one in increments})[-cells:]
    return [
        (
            index * span,
            sum(one.number for one in increments if one.at // span == index and not one.kind),
            sum(one.number for one in increments if one.at // span == index and one.kind),
        )
        for index in indexes
        if now // span - cells < index <= now // span
    ]


def _shown(cells: tuple[Cell, ...]) -> list[tuple[int, int, int]]:
    return [(cell.start, cell.admitted, sum(cell.refused.values())) for cell in cells]


steps = st.one_of(
    st.integers(0, 3 * MINUTE),
    st.integers(-2 * HOUR, 2 * HOUR),  # The clock steps back or ahead.
    st.sampled_from([-DAY, DAY, 30 * DAY, 500 * DAY, -500 * DAY, 20 * 365 * DAY]),
)
increments = st.lists(
    st.tuples(steps, st.none() | st.sampled_from(KINDS + NAMED), st.integers(1, 2**53 - 1)),
    max_size=120,
)


@given(increments, st.integers(1, 7), st.integers(-3 * HOUR, 3 * HOUR))
@example([(MINUTE, None, 1)] * 100, 3, 0)
@example([(HOUR, None, 1), (0, "hour", 2)] * 300, 3, 0)
@example([(DAY, None, 1), (0, "day", 2)] * 450, 3, 0)
@example([(500 * DAY, None, 1), (-500 * DAY, None, 1), (MINUTE, None, 1)] * 30, 1, 0)
def test_a_history_tells_what_a_list_of_all_increments_tells(
    told: list[tuple[int, str | None, int]], together: int, later: int
) -> None:
    at, all_of_them = NOW, list[Increment]()
    for step, kind, number in told:
        at += step
        all_of_them.append(Increment(at, kind, number))
    value: bytes | None = None
    for start in range(0, len(all_of_them), together):
        addition = UsageHistory()
        for increment in all_of_them[start : start + together]:
            _into(addition, increment)
        value = added(value, addition)
        assert len(value) <= BYTES_AT_MOST
    history = UsageHistory.decode(value)
    for by in BYS:
        for now in (at, at + later):
            assert _shown(history.cells(by, now)) == _told(all_of_them, by, now)


@given(
    st.lists(
        st.tuples(steps, st.sampled_from(("in", "out", "image")), st.integers(1, 2**53 - 1)),
        max_size=120,
    ),
    st.integers(1, 7),
)
@example([(MINUTE, "in", 1), (0, "out", 2), (0, "image", 3)] * 60, 2)
@example([(HOUR, "in", 1), (0, "out", 2), (0, "image", 3)] * 150, 3)
@example([(DAY, "in", 1)] * 300 + [(DAY, "out", 2), (DAY, "image", 3)] * 150, 5)
def test_the_newest_units_of_limits_are_those_of_a_list_of_all(
    told: list[tuple[int, str, int]], together: int
) -> None:
    at, all_of_them, value = NOW, list[tuple[int, str, int]](), None
    for start in range(0, len(told), together):
        addition = UsageHistory()
        for step, limit, units in told[start : start + together]:
            at += step
            all_of_them.append((at, limit, units))
            addition.use(at, limit, units)
        value = added(value, addition)
        assert len(value) <= BYTES_AT_MOST
    limits = len({limit for _, limit, _ in all_of_them})
    for by in BYS:
        span, cells, numbers = LEVELS[by]
        room = min(cells, numbers // limits) if limits else 0
        newest = sorted({at // span for at, *_ in all_of_them})[-room:] if room else []
        expected = dict[int, dict[str, int]]()
        for at_, limit, units in all_of_them:
            index = at_ // span
            if index in newest and at // span - cells < index <= at // span:
                mine = expected.setdefault(index * span, {})
                mine[limit] = mine.get(limit, 0) + units
        found = {cell.start: cell.used for cell in UsageHistory.decode(value).cells(by, at)}
        assert {start: found[start] for start in expected} == expected
        assert len(found) <= cells


def test_units_of_limits_stand_beside_what_requests_cost() -> None:
    history = UsageHistory()
    history.admit(NOW, 3)
    history.refuse(NOW, kind_of_limit("tokens"))
    history.use(NOW, "tokens", 812)
    history.use(NOW, "tokens", 8)
    history.use(NOW + HOUR, "images", 1)
    history = UsageHistory.decode(history.encode())
    (cell,) = history.cells("minute", NOW)
    assert cell == Cell(NOW - NOW % MINUTE, 3, {"limit:tokens": 1}, {"tokens": 820})
    (later,) = history.cells("minute", NOW + HOUR)
    assert later == Cell((NOW + HOUR) // MINUTE * MINUTE, 0, {}, {"images": 1})
    assert not history.is_empty
    assert history.last_day == (NOW + HOUR) // DAY


def test_refusals_are_told_by_window_or_code() -> None:
    history = UsageHistory()
    for kind in KINDS:
        history.refuse(NOW, kind)
    history.admit(NOW, 5)
    (cell,) = UsageHistory.decode(history.encode()).cells("minute", NOW)
    expected: dict[str, int] = dict.fromkeys((*KINDS[:-1], OTHER), 1)
    assert cell == Cell(NOW - NOW % MINUTE, 5, expected)


def test_the_latest_address_and_error_win_whatever_the_order() -> None:
    older, newer = UsageHistory(), UsageHistory()
    older.seen("192.0.2.1", NOW)
    older.failed("KEY_REVOKED", NOW + 1)
    newer.seen("2001:db8::1", NOW + 1)
    for first, second in ((older, newer), (newer, older)):
        value = added(added(None, first), second)
        history = UsageHistory.decode(value)
        assert history.address == Last("2001:db8::1", NOW + 1)
        assert history.error == Last("KEY_REVOKED", NOW + 1)


def test_an_instant_that_no_clock_should_show_is_kept_in_the_first_or_last_cell() -> None:
    history = UsageHistory()
    history.admit(-(10**30), 1)
    history.admit(10**30, 1)
    assert UsageHistory.decode(history.encode()).cells("day", NOW) == ()


@pytest.mark.parametrize("damaged", [b"", b"\x01", b"\x01\xff\xff\xff\xff\xff\xff", b"\x00" * 40])
def test_damaged_bytes_are_an_error_to_read_and_begun_anew_to_add(damaged: bytes) -> None:
    with pytest.raises(Exception):  # noqa: B017, PT011 - any of UNREADABLE
        UsageHistory.decode(damaged)
    addition = UsageHistory()
    addition.admit(NOW, 3)
    (cell,) = UsageHistory.decode(added(damaged, addition)).cells("day", NOW)
    assert cell.admitted == 3
    assert added(b"\x04later", addition) == b"\x04later", "those of a later release stay"


def test_refusals_by_named_limits_are_told_by_name_whatever_the_order() -> None:
    parts: list[UsageHistory] = []
    for names in (("export", "tokens"), ("tokens", "heavy"), ("heavy",)):
        part = UsageHistory()
        for name in names:
            part.refuse(NOW, kind_of_limit(name))
        part.refuse(NOW, "minute")
        parts.append(part)
    for order in permutations(parts):
        value: bytes | None = None
        for part in order:
            value = added(value, part)
        (cell,) = UsageHistory.decode(value).cells("hour", NOW)
        expected = {"limit:export": 1, "limit:tokens": 2, "limit:heavy": 2, "minute": 3}
        assert cell.refused == expected
        assert by_status(cell.refused) == {"429": 8}


def test_limits_beyond_the_most_are_counted_together_until_one_is_forgotten() -> None:
    history = UsageHistory()
    for name in range(LIMITS_AT_MOST + 2):
        history.refuse(NOW, kind_of_limit(f"limit-{name}"))
    (cell,) = history.cells("day", NOW)
    assert cell.refused == {**dict.fromkeys(NAMED, 1), "limit": 2}
    for day in range(1, 401):  # The first cells leave, and with them the names.
        later = UsageHistory()
        later.refuse(NOW + day * DAY, "minute")
        history.merge(later)
    history.refuse(NOW + 400 * DAY, kind_of_limit("late"))
    assert history.cells("day", NOW + 400 * DAY)[-1].refused == {"minute": 1, "limit:late": 1}


def test_a_history_without_refusals_by_limits_has_the_bytes_of_before() -> None:
    history = UsageHistory()
    history.refuse(NOW, "minute", 3)
    value = history.encode()
    assert value[0] == 1 and value.endswith(b"[null, null]")
    history.refuse(NOW, kind_of_limit("export"))
    assert history.encode()[0] == 2  # A release that cannot read it leaves it alone.
    history.use(NOW, "export", 1)
    assert history.encode()[0] == 3


def test_the_history_with_the_longest_texts_is_bounded() -> None:
    value: bytes | None = None
    for day in range(420):
        addition = UsageHistory()
        addition.seen('"' * 64, NOW + day)
        addition.failed('"' * 64, NOW + day)
        for at in (day * DAY, 419 * DAY + day * HOUR, 450 * DAY + day * MINUTE):
            addition.admit(NOW + at, 1)
            for number in range(LIMITS_AT_MOST):
                addition.refuse(NOW + at, kind_of_limit(f"{number:_<64}"))
                addition.use(NOW + at, f"{number:_<64}", 1)
        value = added(value, addition)
    assert value is not None
    assert BYTES_AT_MOST - 1536 < len(value) <= BYTES_AT_MOST


@pytest.mark.parametrize("window", [name for name, _ in SPANS.values()])
def test_refusals_by_each_window_of_a_plan_are_kept_by_its_name(window: str) -> None:
    history = UsageHistory()
    history.refuse(NOW, window, 3)
    (cell,) = history.cells("minute", NOW)
    assert cell.refused == {window: 3}, "append its name to `_KINDS`"
    assert by_status(cell.refused) == {"429": 3}, "add its name to `_STATUSES`"
