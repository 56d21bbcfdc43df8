"""Holds of calendar quotas, against lists of units and instants (D41)."""

from __future__ import annotations

from datetime import UTC, date, datetime
from itertools import pairwise
from json import dumps

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lockgate.core.budgets import Budget, Count
from lockgate.core.hold_ids import HoldId
from lockgate.core.holds import (
    HoldAction,
    HoldAnswer,
    Look,
    Renew,
    Settle,
    Take,
    apply,
    budgets,
    changed,
    name_of,
)
from lockgate.core.limit_windows import LimitWindows, is_of_period, span_of
from lockgate.core.limits import Limit, bound
from lockgate.core.sealed_texts import TextSeal
from lockgate.core.sliding_window import LARGEST
from lockgate.core.timestamps import DAY, HOUR, MINUTE, SECOND

MARCH = int(datetime(2024, 3, 1, tzinfo=UTC).timestamp()) * SECOND
SEAL = TextSeal(())
IDS = tuple(f"{number:032x}" for number in range(6))


def windows_of(*limits: Limit) -> LimitWindows:
    windows = bound(limits, None)
    assert windows is not None
    return budgets(windows)


class Charged:
    """The budgets of one organization."""

    def __init__(self, *limits: Limit) -> None:
        self.limits = windows_of(*limits)
        self.budgets: dict[str, Budget] = {}

    def apply(self, action: HoldAction, now: int) -> HoldAnswer:
        before = [self.budgets.get(field) for field in action.fields]
        answer, after = apply(action, before, now, len(self.budgets))
        for field, budget in changed(action, before, after):
            self.budgets[field] = Budget.read(budget.written())
            assert self.budgets[field] == budget
        return answer

    def take(self, id: str, units: int, now: int, span: int = MINUTE) -> HoldAnswer:
        each = (units,) * len(self.limits.fields)
        return self.apply(Take(id, self.limits, each, span, 1000), now)

    def settle(self, id: str, used: int | None, now: int) -> HoldAnswer:
        each = (used,) * len(self.limits.fields)
        return self.apply(Settle(id, self.limits.fields, each, self.limits.quotas), now)

    def renew(self, id: str, span: int, now: int) -> HoldAnswer:
        return self.apply(Renew(id, self.limits.fields, span, self.limits.quotas), now)

    def look(self, now: int) -> HoldAnswer:
        return self.apply(Look(self.limits, (1,) * len(self.limits.fields), 1000), now)


class Oracle:
    """Keeps each unit used with its instant, and asks for the day in the zone of the quota."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used: list[tuple[int, int]] = []
        self.out: dict[str, tuple[int, int]] = {}

    def move_to(self, now: int) -> None:
        for id, (units, deadline) in list(self.out.items()):
            if deadline <= now:
                self.used.append((deadline, units))
                del self.out[id]

    def counted(self, now: int) -> int:
        held = sum(units for units, _ in self.out.values())
        return held + sum(units for at, units in self.used if month_of(at) == month_of(now))

    def wait(self, units: int, now: int) -> int:
        """Try each first instant of a month, with all holds used in full at their deadlines."""
        if self.counted(now) + units <= self.limit:
            return 0
        later = [start for start in STARTS if start > now]
        if units > self.limit:
            return later[0] - now
        for start in later:
            there = Oracle(self.limit)
            there.used, there.out = [*self.used], dict(self.out)
            there.move_to(start)
            if there.counted(start) + units <= self.limit:
                return start - now
        raise AssertionError("a month is empty")


def month_of(at: int) -> tuple[int, int]:
    day = datetime.fromtimestamp(at // SECOND, UTC)
    return day.year, day.month


STARTS = [
    int(datetime(2024 + month // 12, month % 12 + 1, 1, tzinfo=UTC).timestamp()) * SECOND
    for month in range(36)
]
STEP = st.tuples(
    st.sampled_from([0, 1, SECOND, MINUTE - 1, 20 * MINUTE, HOUR, 9 * DAY, 29 * DAY]),
    st.sampled_from(["take", "settle", "renew"]),
    st.sampled_from(IDS),
    st.integers(1, 60),
    st.sampled_from([MINUTE, HOUR]),
)


@given(
    before=st.integers(0, 2 * HOUR),
    soft=st.booleans(),
    steps=st.lists(STEP, min_size=4, max_size=40),
)
@example(
    before=1,
    soft=False,
    steps=[
        (0, "take", IDS[0], 60, HOUR),
        (0, "take", IDS[1], 60, HOUR),
        (1, "settle", IDS[0], 50, HOUR),
        (0, "take", IDS[1], 50, HOUR),
    ],
)
def test_a_month_has_what_was_settled_or_ended_in_it_and_what_is_held_now_H1(
    before: int, soft: bool, steps: list[tuple[int, str, str, int, int]]
) -> None:
    real, oracle = (
        Charged(Limit("tokens", "100/month", soft=soft)),
        Oracle(LARGEST if soft else 100),
    )
    now, told = MARCH - before, dict[int, int]()
    for gap, verb, id, units, span in steps:
        now += gap
        oracle.move_to(now)
        out = oracle.out.get(id)
        if verb == "take":
            answer = real.take(id, units, now, span)
            wait = 0 if out else oracle.wait(units, now)
            assert (answer.done, answer.wait) == (wait == 0, wait)
            if wait == 0 and out is None:
                oracle.out[id] = units, now + span
        elif verb == "settle":
            answer = real.settle(id, units, now)
            assert answer.done == (oracle.out.pop(id, None) is not None)
            if answer.done:
                oracle.used.append((now, units))
        else:
            answer = real.renew(id, span, now)
            assert answer.done == (out is not None)
            if out is not None:
                oracle.out[id] = out[0], now + span
        assert answer.used == (oracle.counted(now),)
        assert real.look(now).units == (sum(held for held, _ in oracle.out.values()),)
        for count in answer.counts:  # Of a month, one count ends where the next begins.
            assert count.before == told.get(count.begins, 0)
            told[count.begins] = count.after
    since = now - 32 * DAY
    for start, end in pairwise(STARTS):
        if start > since:
            used = sum(units for at, units in oracle.used if start <= at < end)
            assert told.get(start, 0) == used


def test_a_hold_over_the_turn_of_the_month_is_settled_in_the_new_month() -> None:
    charged = Charged(Limit("tokens", "100/month"))
    assert charged.take(IDS[0], 60, MARCH - SECOND).used == (60,)
    assert charged.look(MARCH).used == (60,)
    settled = charged.settle(IDS[0], 25, MARCH)
    assert (settled.used, settled.counts) == ((25,), (Count(0, MARCH, 0, 25),))
    assert charged.look(MARCH - 1).used == (0,)


def test_a_deadline_before_the_turn_of_the_month_is_used_in_the_month_before_H2() -> None:
    charged = Charged(Limit("tokens", "100/month"))
    charged.take(IDS[0], 60, MARCH - MINUTE - 1)
    charged.take(IDS[1], 30, MARCH - MINUTE)
    found = charged.settle(IDS[0], 0, MARCH + DAY)
    february = MARCH - 29 * DAY
    assert (found.done, found.used) == (False, (30,))
    assert found.counts == (Count(0, february, 0, 60), Count(0, MARCH, 0, 30))
    assert charged.look(MARCH - 1).used == (60,)


def test_a_full_quota_waits_until_its_month_ends_or_the_next_if_holds_outlast_it() -> None:
    charged = Charged(Limit("tokens", "100/month"))
    charged.take(IDS[0], 60, MARCH - MINUTE, HOUR)
    assert charged.take(IDS[1], 41, MARCH - MINUTE).wait == MINUTE + 31 * DAY
    charged.settle(IDS[0], 60, MARCH - MINUTE)
    assert charged.take(IDS[1], 41, MARCH - MINUTE).wait == MINUTE


def test_a_soft_quota_takes_more_than_its_limit() -> None:
    charged = Charged(Limit("tokens", "100/month", soft=True))
    for number, id in enumerate(IDS):
        assert charged.take(id, LARGEST, MARCH + number).done
    assert charged.settle(IDS[0], None, MARCH + SECOND).used == (LARGEST,)
    assert charged.settle(IDS[1], None, MARCH + SECOND).used == (LARGEST,)


def test_a_calendar_day_and_a_sliding_day_are_counted_apart() -> None:
    both = windows_of(Limit("a", "9/day"), Limit("b", "9/calendar day", by="organization"))
    assert [name_of(field) for field in both.fields] == ["a", "b"]
    assert [is_of_period(field) for field in both.fields] == [False, True]
    assert [span_of(field) for field in both.fields] == [DAY, DAY]


def test_the_id_of_a_hold_has_its_calendars() -> None:
    limit = Limit("tokens", "9/month;99/year", starts=date(2023, 8, 31), zone="Asia/Tokyo")
    limits = windows_of(Limit("calls", "5/minute"), limit)
    id = HoldId.new("org_1", limits.fields, limits.quotas)
    assert HoldId.read(id.written(SEAL), SEAL) == id


@pytest.mark.parametrize(
    "budget",
    [
        "tokens@month 2678400",
        ["tokens 60", 9, False, "2024-01-01", "UTC"],
        ["tokens@month 2678400", True, False, "2024-01-01", "UTC"],
        ["tokens@month 2678400", 0, False, "2024-01-01", "UTC"],
        ["tokens@month 2678400", 2**53, False, "2024-01-01", "UTC"],
        ["tokens@month 2678400", 9, False, "2024-13-01", "UTC"],
        ["tokens@month 2678400", 9, False, "2024-01-01", "../etc/passwd"],
        ["tokens@hour 3600", 9, False, "2024-01-01", "UTC"],
    ],
)
def test_an_id_with_a_malformed_calendar_is_refused(budget: object) -> None:
    text = SEAL.write(dumps([IDS[1], "org_1", None, budget]).encode())
    with pytest.raises(ValueError, match=r"hold's id|passwd|month must be|isoformat"):
        HoldId.read(text, SEAL)
