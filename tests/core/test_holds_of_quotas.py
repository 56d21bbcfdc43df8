"""Holds of calendar quotas, against lists of units and instants (D41)."""

from __future__ import annotations

from datetime import UTC, date, datetime
from itertools import pairwise
from json import dumps

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lockgate.core.hold_ids import HoldId
from lockgate.core.limits import Limit
from lockgate.core.sealed_texts import TextSeal
from lockgate.core.sliding_window import LARGEST
from lockgate.core.timestamps import DAY, HOUR, MINUTE, SECOND

from .test_holds import IDS, Charged, windows_of

MARCH = int(datetime(2024, 3, 1, tzinfo=UTC).timestamp()) * SECOND
SEAL = TextSeal(())


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
    st.sampled_from(IDS[:6]),
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
    real, oracle = Charged(), Oracle(LARGEST if soft else 100)
    limits = windows_of(Limit("tokens", "100/month", soft=soft))
    now, told = MARCH - before, dict[int, int]()
    for gap, verb, id, units, span in steps:
        now += gap
        oracle.move_to(now)
        out = oracle.out.get(id)
        if verb == "take":
            answer = real.take(id, limits, units, now=now, span=span)
            wait = 0 if out else oracle.wait(units, now)
            assert (answer.done, answer.wait) == (wait == 0, wait)
            if wait == 0 and out is None:
                oracle.out[id] = units, now + span
        elif verb == "settle":
            answer = real.settle(id, limits, units, now=now)
            assert answer.done == (oracle.out.pop(id, None) is not None)
            if answer.done:
                oracle.used.append((now, units))
        else:
            answer = real.renew(id, limits, span, now)
            assert answer.done == (out is not None)
            if out is not None:
                oracle.out[id] = out[0], now + span
        assert answer.used == (oracle.counted(now),)
        assert real.look(limits, now).units == (sum(held for held, _ in oracle.out.values()),)
        for count in answer.counts:  # Of a month, one count ends where the next begins.
            assert count.before == told.get(count.begins, 0)
            told[count.begins] = count.after
    since = now - 32 * DAY
    for start, end in pairwise(STARTS):
        if start > since:
            used = sum(units for at, units in oracle.used if start <= at < end)
            assert told.get(start, 0) == used


def test_a_soft_quota_takes_more_than_its_limit() -> None:
    charged, limits = Charged(), windows_of(Limit("tokens", "100/month", soft=True))
    for number, id in enumerate(IDS):
        assert charged.take(id, limits, LARGEST, now=MARCH + number).done
    for id in IDS[:2]:
        assert charged.settle(id, limits, None, now=MARCH + SECOND).used == (LARGEST,)


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
