"""Hits of named limits, compared with the windows' oracle."""

import random

from hypothesis import given
from hypothesis import strategies as st

from lockgate.core.limit_hits import (
    FIELDS_AT_MOST,
    changed_fields,
    crowded,
    hit_limited,
    peek_limited,
    put_fields,
)
from lockgate.core.limits import Limit, bound
from lockgate.core.plans import Plan
from lockgate.core.sliding_window import EMPTY, Cells, State, Window, empty_state, hit
from lockgate.core.timestamps import DAY, HOUR, MINUTE, SECOND

from .test_sliding_window import Oracle

PLAN = Plan("plan", rpm=4, rph=6, rpd=9, concurrent=1)


class Pair:
    """The rule on a plan's windows and named limits, beside an oracle that sums lists."""

    def __init__(self, limits: tuple[Limit, ...]) -> None:
        named = bound(limits, "id")
        assert named is not None
        self.limits = named
        self.state: State = empty_state(PLAN.windows)
        self.fields: dict[str, Cells] = {}
        self.oracle = Oracle((*PLAN.windows, *named.windows), shares=True)

    def hit(self, now: int, cost: int) -> bool:
        before = [self.fields.get(field) for field in self.limits.fields]
        foreseen = peek_limited(self.state, PLAN.windows, before, self.limits.windows, now, cost)
        reading, self.state, after = hit_limited(
            self.state, PLAN.windows, before, self.limits.windows, now, cost
        )
        changed = changed_fields(self.limits, before, after)
        put_fields(self.fields, changed, now)
        assert reading == self.oracle.hit(now, cost)
        if not reading.allowed:
            assert reading == foreseen
        return reading.allowed


STEP = st.tuples(
    st.sampled_from([0, 0, 1, SECOND - 1, SECOND, 20 * SECOND, MINUTE, HOUR - 1, HOUR, DAY])
    | st.sampled_from([-1, -SECOND, -MINUTE, -DAY]),
    st.integers(1, 4),
)
SETS = st.sampled_from(
    [
        (Limit("one", "2/second;5/hour"),),
        (Limit("one", "3/minute"), Limit("two", "4/15 minutes;7/day", by="key")),
        (Limit("exact", "3/hour", resolution=None), Limit("rough", "8/minute", resolution=1)),
    ]
)


@given(limits=SETS, steps=st.lists(STEP, max_size=60))
def test_every_answer_equals_that_of_sums_over_lists_W1_W9(
    limits: tuple[Limit, ...], steps: list[tuple[int, int]]
) -> None:
    pair, now = Pair(limits), 10 * DAY
    for gap, cost in steps:
        now += gap
        pair.hit(now, cost)


def test_a_long_mixed_run_keeps_bounded_cells() -> None:
    dice = random.Random(7)
    limits = bound((Limit("many", "5000/minute"), Limit("more", "90000/hour")), None)
    assert limits is not None
    windows = Plan("open", None, None, None, None).windows
    state, cells, now = empty_state(windows), empty_state(limits.windows), DAY
    for _ in range(6000):
        now += dice.randrange(0, 60_000)
        reading, state, cells = hit_limited(state, windows, cells, limits.windows, now, 1)
        assert reading.allowed
    assert max(len(one[5]) // 16 for one in cells) <= 130


def test_a_refusal_returns_the_same_states_unless_the_clock_steps_back() -> None:
    limits = bound((Limit("one", "1/hour"),), None)
    assert limits is not None
    _, state, cells = hit_limited(
        empty_state(PLAN.windows), PLAN.windows, [None], limits.windows, DAY, 1
    )
    reading, after, kept = hit_limited(state, PLAN.windows, cells, limits.windows, DAY + 1, 1)
    assert not reading.allowed
    assert reading.refused_by == 3
    assert reading.used == (1, 1, 1, 1)
    assert after is state
    assert kept[0] is cells[0]
    _, after, kept = hit_limited(state, PLAN.windows, cells, limits.windows, DAY - 9, 1)
    assert {one[3] for one in (*after, *kept)} == {DAY - 9}


def test_a_limit_without_a_plan_is_judged_alone() -> None:
    limits = bound((Limit("one", "2/hour"),), None)
    assert limits is not None
    reading, state, cells = hit_limited((), (), [None], limits.windows, DAY, 2)
    assert (reading.allowed, reading.used, state) == (True, (2,), ())
    assert (reading.remaining, reading.reset) == (0, DAY + HOUR)
    assert cells == hit((EMPTY,), limits.windows, DAY, 2)[1]


def test_a_new_field_is_refused_for_a_day_where_there_is_no_room() -> None:
    assert crowded([None, EMPTY], FIELDS_AT_MOST - 1) is None
    assert crowded([EMPTY, None], FIELDS_AT_MOST) == 1
    assert crowded([EMPTY], FIELDS_AT_MOST + 9) is None
    limits = bound((Limit("one", "2/hour;9/day"),), None)
    assert limits is not None
    reading, state, cells = hit_limited(
        empty_state(PLAN.windows), PLAN.windows, [None, None], limits.windows, DAY, 1, 1
    )
    assert (reading.allowed, reading.refused_by, reading.wait) == (False, 4, DAY)
    assert state == empty_state(PLAN.windows)
    assert changed_fields(limits, [None, None], cells) == []


def test_fields_without_hits_are_swept_W10() -> None:
    fields: dict[str, Cells] = {}
    for number in range(4000):
        now = DAY + number * MINUTE
        cells = hit((EMPTY,), (Window("minute", MINUTE, 9, 0),), now, 1)[1]
        put_fields(fields, [(f"one 60 {number}", cells[0])], now)
    assert len(fields) == DAY // MINUTE + 1
