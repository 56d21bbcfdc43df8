"""Counts of any number of owners in fixed memory: never too little, and never for too long."""

from __future__ import annotations

import random
import sys
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockgate.core import hashed_windows as module
from lockgate.core.hashed_windows import HashedWindows, RecentOwners
from lockgate.core.limits import Limit, windows_of
from lockgate.core.timestamps import DAY, HOUR, MINUTE, SECOND

from .test_sliding_window import Oracle

NOW = 1_700_000_000 * SECOND
LOGIN = windows_of((Limit("login", "5/hour;9/day", by="address"),))
HOURLY = windows_of((Limit("login", "5/hour", by="address"),))

STEPS = st.lists(
    st.tuples(
        st.sampled_from([0, 1, SECOND, 14 * MINUTE, 15 * MINUTE, HOUR - 1, HOUR, 5 * HOUR, DAY]),
        st.sampled_from(["ada", "bob", "eve"]),
        st.integers(1, 6),
    ),
    max_size=60,
)


@given(STEPS)
def test_no_owner_is_admitted_more_than_its_windows_hold_W1(
    steps: list[tuple[int, str, int]],
) -> None:
    windows, now = HashedWindows(), NOW
    oracles = {owner: Oracle(LOGIN.windows, shares=False) for owner in ("ada", "bob", "eve")}
    for after, owner, cost in steps:
        now += after
        foreseen = windows.peek(owner, LOGIN, now, cost)
        reading = windows.hit(owner, LOGIN, now, cost)
        assert reading.allowed == foreseen.allowed
        if reading.allowed:
            exact = oracles[owner].hit(now, cost)
            assert exact.allowed
            assert all(mine >= true for mine, true in zip(reading.used, exact.used, strict=True))
        else:
            assert reading == foreseen
            assert reading.refused_by is not None
            span = LOGIN.windows[reading.refused_by].span
            assert 0 < reading.wait <= span + span // 4


@given(STEPS)
def test_waiting_admits_without_competition_W6(steps: list[tuple[int, str, int]]) -> None:
    windows, now = HashedWindows(), NOW
    for after, _, cost in steps:
        now += after
        reading = windows.hit("ada", LOGIN, now, cost)
        if not reading.allowed and cost <= 5:
            assert not windows.peek("ada", LOGIN, now + reading.wait - 1, cost).allowed
            assert windows.peek("ada", LOGIN, now + reading.wait, cost).allowed


def test_no_number_of_other_owners_resets_a_count() -> None:
    windows = HashedWindows()
    admitted = 0
    for number in range(30_000):
        windows.hit(f"name {number}", HOURLY, NOW + number, 1)
        if number % 1000 == 0:
            admitted += sum(
                windows.hit("victim", HOURLY, NOW + number, 1).allowed for _ in "12345678"
            )
    assert admitted == 5


def test_few_unused_owners_are_refused_in_a_flood(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CELLS", 1 << 12)
    monkeypatch.setattr(module, "_FEW", 1 << 8)
    windows = HashedWindows()
    for number in range(2 * module._CELLS):
        windows.hit(f"name {number}", HOURLY, NOW + number, 1)
    refused = [not windows.peek(f"new {number}", HOURLY, NOW).allowed for number in range(2000)]
    assert sum(refused) < 40


def test_a_flood_takes_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a sixteenth of the cells: tracing the memory of all of them takes seconds."""
    monkeypatch.setattr(module, "_CELLS", module._CELLS // 16)
    monkeypatch.setattr(module, "_FEW", module._FEW // 16)
    windows = HashedWindows()
    tracemalloc.start()
    try:
        for part in range(9):
            for number in range(module._FEW):
                windows.hit(f"{part} {number}", HOURLY, NOW + part * 15 * MINUTE, 1)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 16 * kept < 6 * 2**20


def test_a_quota_begins_at_zero_in_each_period_and_leaves_the_past_ones_behind() -> None:
    quota = windows_of((Limit("mail", "3/month", by="address"),))
    windows, now = HashedWindows(), NOW
    for _ in range(40):
        present = quota.at(now)
        admitted = [windows.hit("ada", present, now, 1).allowed for _ in range(4)]
        assert admitted == [True, True, True, False]
        refusal = windows.peek("ada", present, now)
        now += refusal.wait
        assert windows.peek("ada", quota.at(now), now).used == (0,)
    assert len(windows._windows) <= 2


@pytest.mark.parametrize("back", [1, HOUR, 3 * DAY])
def test_a_clock_that_steps_back_resets_nothing_and_locks_out_for_a_span_W11(back: int) -> None:
    windows = HashedWindows()
    assert all(windows.hit("ada", HOURLY, NOW, 1).allowed for _ in range(5))
    refusal = windows.hit("ada", HOURLY, NOW - back, 1)
    assert not refusal.allowed
    assert refusal.wait <= HOUR + HOUR // 4
    assert not windows.hit("ada", HOURLY, NOW - back + refusal.wait - 1, 1).allowed
    assert windows.hit("ada", HOURLY, NOW - back + refusal.wait, 1).allowed


def test_hits_before_and_after_a_step_back_are_counted_for_a_span_each_W11() -> None:
    windows = HashedWindows()
    windows.hit("ada", HOURLY, NOW, 2)
    for after in (0, 1, 20 * MINUTE):
        windows.hit("ada", HOURLY, NOW - 25 * MINUTE + after, 1)
    assert windows.peek("ada", HOURLY, NOW - 25 * MINUTE + HOUR - 1).used == (5,)
    assert windows.peek("ada", HOURLY, NOW - 5 * MINUTE + HOUR - 1).used >= (1,)


def test_a_reading_changes_nothing_W5() -> None:
    windows = HashedWindows()
    windows.hit("ada", HOURLY, NOW, 5)
    for now in (NOW, NOW - DAY, NOW + DAY):
        windows.peek("ada", HOURLY, now)
    assert windows.peek("ada", HOURLY, NOW).used == (5,)


def test_windows_without_a_limit_and_costs_beyond_all_limits_are_counted() -> None:
    windows = HashedWindows()
    any_number = HOURLY._replace(windows=(HOURLY.windows[0]._replace(limit=None),))
    assert windows.hit("ada", any_number, NOW, 2**53 - 1).allowed
    assert windows.hit("ada", any_number, NOW, 2**53 - 1).allowed
    assert windows.peek("ada", HOURLY, NOW).used == (5,)
    never = windows.hit("bob", HOURLY, NOW, 6)
    assert (never.allowed, never.refused_by, never.wait) == (False, 0, HOUR)


def test_recent_owners_are_known_for_a_span_however_many_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_FEW_OWNERS", 100)
    generator = random.Random(1)
    numbers = [generator.randint(-sys.maxsize - 1, sys.maxsize) for _ in range(6_000)]
    recent = RecentOwners()
    for place, number in enumerate(numbers):
        recent.add(number, NOW + place)
    recent.add(1, NOW + DAY - 1)
    assert all(recent.renew(number, NOW + DAY - 1) for number in numbers)
    recent.add(2, NOW + DAY + 10_000)
    assert all(number in recent for number in (*numbers, 1, 2))
    recent.add(3, NOW - DAY)  # The clock steps back.
    assert all(number in recent for number in (*numbers, 1, 2, 3))
    recent.add(4, NOW)
    found = [number in recent for number in (numbers[0], 1, 2, 3, 4)]
    assert found == [False, False, True, True, True]
    others = [generator.randint(-sys.maxsize - 1, sys.maxsize) for _ in range(2_000)]
    assert sum(number in recent for number in others) <= 1


def test_owners_of_long_ago_are_forgotten_at_once() -> None:
    recent = RecentOwners()
    recent.add(1, NOW)
    recent.add(2, NOW + 2 * DAY)
    assert [recent.renew(number, NOW + 2 * DAY) for number in (1, 2)] == [False, True]


def test_an_owner_that_is_renewed_is_known_for_another_span() -> None:
    recent = RecentOwners()
    recent.add(1, NOW)
    for day in range(1, 9):
        assert recent.renew(1, NOW + day * DAY)
    recent.add(2, NOW + 9 * DAY)
    assert recent.renew(1, NOW + 9 * DAY)
    recent.add(3, NOW + 11 * DAY)
    assert not recent.renew(1, NOW + 11 * DAY)
