"""Crossing 80 and 100 % of a limit, from readings alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lockgate import Plan
from lockgate.core.sliding_window import PLENTY, empty_state, hit
from lockgate.core.thresholds import SHARES, crossings, lowest_marks

NOW = 1_700_000_000 * 1_000_000


@given(st.integers(1, 60), st.lists(st.integers(1, 20), max_size=80))
def test_of_all_admissions_one_crosses_each_mark(limit: int, costs: list[int]) -> None:
    windows = Plan("one", rpm=limit, rph=None, rpd=limit + 7, concurrent=1).windows
    state, told = empty_state(windows), list[tuple[str, int]]()
    for cost in costs:
        reading, state = hit(state, windows, NOW, cost)
        if reading.allowed:
            found = [*crossings(windows, reading.used, cost)]
            told += [(crossing.window.name, crossing.share) for crossing in found]
            marks = lowest_marks(windows)
            assert not found or any(
                used >= mark for used, mark in zip(reading.used, marks, strict=True)
            )
    used = sum(costs) if sum(costs) <= limit else None
    expected = [
        (window.name, share)
        for window in windows
        if window.limit is not None
        for share in SHARES
        if state and state[windows.index(window)][0] * 100 >= window.limit * share
    ]
    assert sorted(told) == sorted(expected)
    assert used is None or state[0][0] == used


def test_the_marks_of_a_limit_are_whole_units_and_no_limit_has_none() -> None:
    windows = Plan("three", rpm=7, rph=None, rpd=1, concurrent=1).windows
    assert lowest_marks(windows) == (6, PLENTY, 1)
    (crossing,) = crossings(windows, (6, 6, 0), 1)
    assert (crossing.window.name, crossing.share, crossing.used) == ("minute", 80, 6)
    both = [(one.window.name, one.share) for one in crossings(windows, (7, 7, 1), 3)]
    assert both == [("minute", 80), ("minute", 100), ("day", 80), ("day", 100)]
