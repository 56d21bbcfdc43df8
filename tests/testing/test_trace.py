"""Traces: the most that any window held, against a search of every window there is."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockgate.core.timestamps import MINUTE, SECOND
from lockgate.testing import Arrival, assert_never_exceeds, worst

TRACES = st.lists(st.tuples(st.integers(0, 200), st.integers(1, 5)), max_size=30)


@given(TRACES, st.integers(1, 60))
def test_the_worst_window_is_found(trace: list[tuple[int, int]], window: int) -> None:
    held = [sum(c for at, c in trace if end - window < at <= end) for end, _ in trace]
    found = worst([Arrival(*arrival) for arrival in trace], window)
    assert found.admitted == max(held, default=0)
    assert found.admitted == sum(arrival.cost for arrival in found.arrivals)


def test_instants_without_costs_count_one_each_in_any_order() -> None:
    assert worst([50, 0, 10], 60).admitted == 3
    assert worst([60, 0, 10], 60).admitted == 2


def test_a_failure_shows_the_window() -> None:
    trace = [SECOND * second for second in (0, 50, 70, 80, 200)]
    assert_never_exceeds(trace, 3, timedelta(minutes=1))
    with pytest.raises(AssertionError) as failure:
        assert_never_exceeds(trace, 2, MINUTE)
    assert "3 were admitted in the 60 s up to 80000000, and the limit is 2:" in str(failure.value)
    assert "-30.000000 s  cost 1" in str(failure.value)


def test_a_long_failure_is_shortened() -> None:
    with pytest.raises(AssertionError, match=r"\.\.\. 84 more \.\.\."):
        assert_never_exceeds(range(100), 1, MINUTE)


@pytest.mark.parametrize("window", [0, -1, timedelta(0)])
def test_a_window_without_a_length_is_refused(window: int | timedelta) -> None:
    with pytest.raises(ValueError, match="at least a microsecond"):
        worst([1], window)
