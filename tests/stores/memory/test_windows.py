"""Windows in this process: counting cells are kept, others dropped, a few in each call."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lockgate.core.limit_hits import (
    changed_fields,
    crowded,
    hit_limited,
    peek_limited,
    put_fields,
)
from lockgate.core.limit_windows import LimitWindows
from lockgate.core.limits import Limit, bound
from lockgate.core.plans import Plan
from lockgate.core.sliding_window import (
    EXACT_CELLS,
    Cells,
    Reading,
    State,
    Window,
    empty_state,
    hit,
    peek,
)
from lockgate.core.timestamps import DAY, HOUR, MINUTE, SECOND
from lockgate.stores.memory.windows import LocalWindows

from ..making import NOW

PLAN = Plan("few", rpm=4, rph=6, rpd=9, concurrent=1)
WINDOWS = PLAN.windows
NARROW = Plan("narrow", rpm=1, rph=1, rpd=1, concurrent=1).windows
FEWER = Plan("fewer", rpm=3, rph=None, rpd=5, concurrent=1).windows
LARGER = Plan("larger", rpm=8, rph=9, rpd=12, concurrent=1).windows
CLOSED = Plan("closed", rpm=0, rph=6, rpd=9, concurrent=1).windows
OPEN = Plan("open", rpm=None, rph=None, rpd=None, concurrent=1).windows


def steps(farthest_back: int) -> st.SearchStrategy[int]:
    return st.one_of(
        st.integers(0, 2 * MINUTE),
        st.sampled_from([0, 1, HOUR, DAY // 2, DAY - 1, DAY, DAY + 1, 2 * DAY, 30 * DAY]),
        st.integers(-farthest_back, 0),
    )


TRAFFIC = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 2 * SECOND), steps(3 * MINUTE)),
        st.sampled_from("ab"),
        st.sampled_from([1, 1, 1, 1, 2, 3, 5, 7]),
        st.sampled_from([WINDOWS, WINDOWS, FEWER, CLOSED, LARGER]),
    ),
    max_size=120,
)
CALLS = st.lists(st.tuples(steps(40 * DAY), st.sampled_from("abcd")), max_size=80)
FORWARD = st.lists(st.tuples(steps(0), st.sampled_from("abcd")), max_size=80)


@settings(deadline=None)
@given(st.lists(st.tuples(steps(0), st.sampled_from("abcd"), st.booleans()), max_size=80))
def test_a_state_can_move_between_tables(
    calls: list[tuple[int, str, bool]],
) -> None:
    """Against a dictionary: an owner's state moves between two tables at any time."""
    tables = LocalWindows(), LocalWindows()
    home = dict.fromkeys("abcd", 0)
    states: dict[str, State] = {}
    now = NOW
    for step, owner, moves in calls:
        now += step
        here = tables[home[owner]]
        if moves and (state := here.take(owner)) is not None:
            home[owner] = 1 - home[owner]
            assert owner not in here
            here = tables[home[owner]]
            here.put(owner, state, now)
            assert owner in here
        state = states.get(owner) or empty_state(WINDOWS)
        expected, states[owner] = hit(state, WINDOWS, now, 1)
        assert here.hit(owner, WINDOWS, now, 1) == expected


def test_adding_states_to_a_full_table_changes_the_generation() -> None:
    table = LocalWindows(capacity=10)
    for number in range(1000):
        table.put(str(number), empty_state(WINDOWS), NOW)
        assert len(table) <= 30
        assert str(number) in table


@settings(deadline=None)
@given(FORWARD)
def test_no_unexpired_state_is_dropped(calls: list[tuple[int, str]]) -> None:
    """The readings always equal those of a dictionary that never drops a cell."""
    windows = LocalWindows()
    states: dict[str, State] = {}
    now = NOW
    for step, owner in calls:
        now += step
        state = states.get(owner) or empty_state(WINDOWS)
        assert windows.peek(owner, WINDOWS, now) == peek(state, WINDOWS, now)
        expected, states[owner] = hit(state, WINDOWS, now, 1)
        assert windows.hit(owner, WINDOWS, now, 1) == expected


@settings(deadline=None)
@given(TRAFFIC)
@example([(0, "a", 4, WINDOWS), (1, "a", 1, WINDOWS), (0, "a", 2, WINDOWS), (1, "a", 1, WINDOWS)])
@example([(0, "a", 4, WINDOWS), (1, "a", 1, WINDOWS), (1, "a", 1, LARGER)])
@example([(0, "a", 4, WINDOWS), (1, "a", 1, WINDOWS), (MINUTE - 2, "a", 1, WINDOWS)])
@example([(0, "a", 4, WINDOWS), (1, "a", 1, WINDOWS), (MINUTE - 1, "a", 1, WINDOWS)])
@example([(0, "a", 4, WINDOWS), (1, "a", 1, WINDOWS), (-5, "a", 1, WINDOWS), (9, "a", 1, WINDOWS)])
@example(
    [
        (0, "a", 4, WINDOWS),
        (2 * DAY, "b", 1, WINDOWS),
        (2 * DAY, "b", 1, WINDOWS),
        (-4 * DAY - 2, "a", 1, WINDOWS),
    ]
)
def test_a_cached_refusal_equals_the_reading_of_the_rule(
    calls: list[tuple[int, str, int, tuple[Window, ...]]],
) -> None:
    """Whatever the time does, whatever it costs, and whichever plan holds from one to the next.

    A state that was dropped after a day counts no more if the clock then steps back.
    """
    windows = LocalWindows()
    states: dict[str, State] = {}
    seen: dict[str, int] = {}
    now, passed = NOW, 0
    for step, owner, cost, plan in calls:
        now += step
        passed += max(0, step)
        state = states.get(owner) or empty_state(plan)
        expected, after = hit(state, plan, now, cost)
        reading = windows.hit(owner, plan, now, cost)
        if reading != expected:
            expected, after = hit(empty_state(plan), plan, now, cost)
            assert reading == expected
            assert passed - seen[owner] >= DAY
        states[owner], seen[owner] = after, passed


BUSY = Plan("busy", rpm=90, rph=200, rpd=None, concurrent=1).windows
BUSIER = Plan("busier", rpm=100, rph=110, rpd=120, concurrent=1).windows
RUSH = st.lists(
    st.tuples(
        st.one_of(
            st.integers(0, SECOND // 4),
            st.sampled_from([0, 1, SECOND - 1, SECOND, MINUTE, HOUR, DAY, 2 * DAY, -1, -SECOND]),
        ),
        st.sampled_from("aab"),
        st.sampled_from([1, 1, 1, 2, 40]),
        st.sampled_from([BUSY, BUSY, BUSIER, OPEN]),
    ),
    max_size=80,
)


@settings(deadline=None)
@given(RUSH, st.integers(1, SECOND), st.sampled_from([BUSY, OPEN]))
@example([(1, "a", 1, OPEN), (1, "a", 1, BUSY), (1, "a", 1, OPEN)], 1, OPEN)
@example([(1, "a", 1, BUSY), (2 * DAY, "a", 1, BUSY), (1, "a", 1, BUSY)], 1, BUSY)
def test_coalesced_hits_equal_the_readings_of_the_rule(
    calls: list[tuple[int, str, int, tuple[Window, ...]]], gap: int, first: tuple[Window, ...]
) -> None:
    """Hits that share cells, whatever comes between them: a look, another plan, a clock's step."""
    windows = LocalWindows()
    states: dict[str, State] = {}
    now = NOW
    warming = [(gap, owner, 1, first) for owner in "ab" for _ in range(EXACT_CELLS + 2)]
    for step, owner, cost, plan in [*warming, *calls]:
        now += step
        state = states.get(owner) or empty_state(plan)
        assert windows.peek(owner, plan, now) == peek(state, plan, now)
        expected, states[owner] = hit(state, plan, now, cost)
        assert windows.hit(owner, plan, now, cost) == expected


def rush(windows: LocalWindows, owner: str) -> None:
    for step in range(EXACT_CELLS + 2):
        windows.hit(owner, OPEN, NOW + step, 1)


def test_coalesced_hits_are_bounded_and_lose_no_hit() -> None:
    windows = LocalWindows()
    for number in range(1_010):
        rush(windows, f"owner {number}")
    assert len(windows.coalesced) == 1_000
    for number in (0, 999, 1_009):
        used = windows.peek(f"owner {number}", OPEN, NOW + 70).used
        assert used == (EXACT_CELLS + 2,) * 3


def test_coalesced_hits_survive_a_change_of_generation() -> None:
    windows = LocalWindows(capacity=2)
    rush(windows, "a")
    for number in range(3):
        windows.hit(f"other {number}", OPEN, NOW + 70, 1)
    assert windows.hit("a", OPEN, NOW + 71, 1).used == (EXACT_CELLS + 3,) * 3


AROUND_THE_END = [(0, 20 * SECOND), (30 * SECOND, 5 * SECOND)]


@pytest.mark.parametrize(("back", "later"), AROUND_THE_END)
def test_coalesced_hits_around_the_end_of_a_generation_count_for_a_day_W1(
    back: int, later: int
) -> None:
    """The newest hits share cells when the generation ends, and the next hit is a day later."""
    rough = Plan("rough", rpm=None, rph=None, rpd=None, concurrent=1, resolution=1).windows
    windows, state = LocalWindows(), empty_state(rough)
    windows.hit("other", rough, NOW, 1)
    start = NOW + DAY - 10 * SECOND
    shared = [start + step for step in range(EXACT_CELLS + 2)]
    for at in (*shared, start + later, NOW - back + 2 * DAY):
        if back and at == start + later:  # Another owner sees the clock step back.
            windows.hit("other", rough, NOW - back, 1)
        expected, state = hit(state, rough, at, 1)
        assert windows.hit("a", rough, at, 1) == expected


def windows_of(key: str | None, *limits: Limit) -> LimitWindows:
    named = bound(limits, key)
    assert named is not None
    return named


class ByTheRule:
    """The windows of one organization and of its named limits, judged by the pure functions."""

    def __init__(self) -> None:
        self.state = empty_state(OPEN)
        self.fields: dict[str, Cells] = {}

    def hit(
        self, windows: tuple[Window, ...], limits: LimitWindows | None, now: int, cost: int
    ) -> Reading:
        if limits is None:
            reading, self.state = hit(self.state, windows, now, cost)
            return reading
        limits = limits.at(now)
        before = [self.fields.get(field) for field in limits.fields]
        state = self.state if windows else ()
        reading, state, after = hit_limited(
            state, windows, before, limits.windows, now, cost, crowded(before, len(self.fields))
        )
        self.state = state if windows else self.state
        put_fields(self.fields, changed_fields(limits, before, after), now)
        return reading

    def peek(self, windows: tuple[Window, ...], limits: LimitWindows | None, now: int) -> Reading:
        if limits is None:
            return peek(self.state, windows, now)
        limits = limits.at(now)
        before = [self.fields.get(field) for field in limits.fields]
        state = self.state if windows else ()
        return peek_limited(state, windows, before, limits.windows, now)


WIDE = Plan("wide", rpm=260, rph=400, rpd=None, concurrent=1).windows
WIDER = Plan("wider", rpm=240, rph=900, rpd=900, concurrent=1).windows
WHOLE = Limit("whole", "300/minute;500/hour")
WHOLE_CHANGED = Limit("whole", "200/minute;450/hour")
OWN = Limit("own", "200/minute", by="key", resolution=6)
FIRST_KEY, SECOND_KEY = windows_of("1", WHOLE, OWN), windows_of("2", WHOLE, OWN)
NAMED = [
    FIRST_KEY,
    FIRST_KEY,
    SECOND_KEY,
    windows_of("1", WHOLE_CHANGED, OWN),
    windows_of("1", OWN, WHOLE),
    windows_of("1", WHOLE),
    windows_of("1", WHOLE, Limit("rare", "3/minute")),
    windows_of("1", OWN, Limit("quota", "150/month")),
    None,
]
LIMITED_RUSH = st.lists(
    st.tuples(
        st.one_of(
            st.integers(0, SECOND // 4),
            st.sampled_from([0, 1, SECOND - 1, SECOND, 10 * SECOND, MINUTE, HOUR]),
            st.sampled_from([-1, -SECOND, -MINUTE]),
        ),
        st.sampled_from([1, 1, 1, 2, 40, 300]),
        st.sampled_from([WIDE, WIDE, WIDE, WIDER, OPEN, ()]),
        st.sampled_from(NAMED),
        st.booleans(),
    ),
    max_size=40,
)


@settings(deadline=None)
@given(LIMITED_RUSH, st.integers(1, SECOND // 4))
@example([(-MINUTE, 1, WIDE, FIRST_KEY, False), (MINUTE + 1, 1, WIDE, FIRST_KEY, False)], 1)
@example([(1, 1, WIDE, FIRST_KEY, False), (10 * SECOND, 1, WIDE, FIRST_KEY, False)], 1)
@example([(step, 1, WIDE, FIRST_KEY, False) for step in (SECOND // 2, MINUTE - SECOND // 4)], 1)
@example([(1, 40, OPEN, FIRST_KEY, False), (1, 40, OPEN, NAMED[3], False)], 1)
@example([(1, 40, WIDE, NAMED[n % 2 + 1], False) for n in range(5)], 1)
@example([(1, 40, OPEN, NAMED[n % 2 + 1], False) for n in range(5)], 1)
def test_shared_cells_of_named_limits_equal_the_readings_of_the_rule_W9(
    calls: list[tuple[int, int, tuple[Window, ...], LimitWindows | None, bool]], gap: int
) -> None:
    """Whatever comes between: other limits, plans and keys, a look, a refusal, a clock's step."""
    windows, rule, now = LocalWindows(), ByTheRule(), NOW
    for _ in range(EXACT_CELLS + 2):
        for named in (FIRST_KEY, SECOND_KEY):
            now += gap
            expected = rule.hit(WIDE, named, now, 1)
            assert windows.hit_limited("a", WIDE, named, now, 1) == expected
    if gap < SECOND // 100:
        assert windows.limits.shared["a"].keys() == {*FIRST_KEY.fields, *SECOND_KEY.fields}
    for step, cost, plan, limits, looks in calls:
        now += step
        if looks and (plan or limits is not None):
            assert windows.peek("a", plan, now, limits) == rule.peek(plan, limits, now)
        elif limits is not None:
            expected = rule.hit(plan, limits, now, cost)
            assert windows.hit_limited("a", plan, limits, now, cost) == expected
        elif plan:
            assert windows.hit("a", plan, now, cost) == rule.hit(plan, None, now, cost)


MANY = windows_of("1", Limit("many", "100000/hour"), Limit("own", "100000/minute", by="key"))


def rush_limited(windows: LocalWindows, owner: str, now: int = NOW) -> Reading:
    for step in range(EXACT_CELLS + 1):
        windows.hit_limited(owner, OPEN, MANY, now + step, 1)
    return windows.hit_limited(owner, OPEN, MANY, now + EXACT_CELLS + 1, 1)


def test_shared_cells_are_bounded_and_lose_no_hit() -> None:
    windows = LocalWindows()
    for number in range(520):
        rush_limited(windows, f"owner {number}")
    assert sum(map(len, windows.limits.shared.values())) == 40
    for number in (0, 499, 519):
        used = windows.peek(f"owner {number}", OPEN, NOW + 70, MANY).used
        assert used == (EXACT_CELLS + 2,) * 5


def test_shared_cells_survive_an_early_change_of_generation() -> None:
    windows = LocalWindows(capacity=2)
    rush_limited(windows, "a")
    for number in range(3):
        windows.hit_limited(f"other {number}", OPEN, MANY, NOW + 70, 1)
    assert windows.hit_limited("a", OPEN, MANY, NOW + 71, 1).used == (EXACT_CELLS + 3,) * 5
    assert windows.peek("a", OPEN, NOW + 72, MANY).used == (EXACT_CELLS + 3,) * 5


def test_removed_limits_begin_at_zero_also_where_hits_share_cells() -> None:
    windows = LocalWindows()
    rush_limited(windows, "a")
    windows.limits.remove("a")
    assert windows.hit_limited("a", OPEN, MANY, NOW + 71, 1).used[3:] == (1, 1)
    assert rush_limited(windows, "a", NOW + 72).used[3:] == (EXACT_CELLS + 3,) * 2


@pytest.mark.parametrize(("back", "later"), AROUND_THE_END)
def test_shared_cells_around_the_end_of_a_generation_count_for_a_day_W1(
    back: int, later: int
) -> None:
    daily = windows_of(None, Limit("daily", "1000/day", resolution=1))
    hourly = windows_of(None, Limit("hourly", "1000/hour"))
    windows, rule = LocalWindows(), ByTheRule()
    windows.hit_limited("other", OPEN, daily, NOW, 1)
    start = NOW + DAY - 10 * SECOND
    shared = [start + step for step in range(EXACT_CELLS + 2)]
    for at in (*shared, start + later):
        if back and at == start + later:  # Another owner sees the clock step back.
            windows.hit_limited("other", OPEN, daily, NOW - back, 1)
        assert windows.hit_limited("a", OPEN, daily, at, 1) == rule.hit(OPEN, daily, at, 1)
    for named in (hourly, daily):
        at = NOW - back + 2 * DAY
        assert windows.hit_limited("a", OPEN, named, at, 1) == rule.hit(OPEN, named, at, 1)


def test_cached_refusals_are_bounded() -> None:
    windows = LocalWindows()
    for number in range(10_050):
        windows.hit(f"owner {number}", NARROW, NOW, 1)
        assert not windows.hit(f"owner {number}", NARROW, NOW + 1, 1).allowed
    assert len(windows._refusals) == 10_000


@settings(deadline=None)
@given(CALLS)
def test_a_clock_that_steps_back_drops_no_state_early(calls: list[tuple[int, str]]) -> None:
    """A state is dropped only after a day in which the clock went forward, steps back aside.

    The dictionary that never drops a cell may then still count hits from the future.
    """
    windows = LocalWindows()
    states: dict[str, State] = {}
    seen: dict[str, int] = {}
    now, passed = NOW, 0
    for step, owner in calls:
        now += step
        passed += max(0, step)
        state = states.get(owner) or empty_state(WINDOWS)
        expected, after = hit(state, WINDOWS, now, 1)
        reading = windows.hit(owner, WINDOWS, now, 1)
        if reading != expected:
            expected, after = hit(empty_state(WINDOWS), WINDOWS, now, 1)
            assert reading == expected
            assert passed - seen[owner] >= DAY
        states[owner], seen[owner] = after, passed


@settings(deadline=None)
@given(CALLS)
def test_w1_no_day_of_time_that_really_passed_admits_too_much(
    calls: list[tuple[int, str]],
) -> None:
    """With forward steps alone as the measure of time, steps back never admit more."""
    windows = LocalWindows()
    admitted: dict[str, list[int]] = {}
    now, passed = NOW, 0
    for step, owner in calls:
        now += step
        passed += max(0, step)
        if windows.hit(owner, WINDOWS, now, 1).allowed:
            times = admitted.setdefault(owner, [])
            times.append(passed)
            for window in WINDOWS:
                assert window.limit is not None
                assert sum(at > passed - window.span for at in times) <= window.limit


def crowd(windows: LocalWindows, number: int, now: int) -> None:
    for index in range(number):
        windows.hit(f"owner {index}", OPEN, now, 1)


def test_w10_under_traffic_two_idle_days_leave_nothing() -> None:
    windows = LocalWindows()
    crowd(windows, 400, NOW)
    for hour in range(1, 49):
        windows.hit("busy", OPEN, NOW + hour * HOUR, 1)
    for _ in range(60):
        windows.hit("busy", OPEN, NOW + 2 * DAY, 1)
    assert len(windows) == 1


def test_w10_after_silence_two_idle_days_leave_nothing() -> None:
    """After two days without a call, the next calls drop all earlier state."""
    windows = LocalWindows()
    crowd(windows, 400, NOW)
    for _ in range(500):
        windows.hit("busy", OPEN, NOW + 2 * DAY, 1)
    assert len(windows) == 1


def test_w10_after_a_clock_that_stepped_back_two_idle_days_leave_nothing() -> None:
    windows = LocalWindows()
    crowd(windows, 400, NOW)
    for hour in range(49):
        windows.hit("busy", OPEN, NOW - 30 * DAY + hour * HOUR, 1)
    for _ in range(60):
        windows.hit("busy", OPEN, NOW - 28 * DAY, 1)
    assert len(windows) == 1


def test_w10_one_call_drops_only_a_few_states() -> None:
    """Also where there are few calls: a day's states are not dropped by the next day's first."""
    windows = LocalWindows()
    crowd(windows, 400, NOW)
    for day in range(1, 6):
        before = len(windows)
        windows.hit("rare", OPEN, NOW + day * DAY, 1)
        assert before - len(windows) <= 8


def test_a_refused_hit_keeps_the_state_alive() -> None:
    day = Plan("day", rpm=None, rph=None, rpd=9, concurrent=1).windows
    windows = LocalWindows()
    windows.hit("other", day, NOW, 1)
    windows.hit("a", day, NOW + 1, 9)
    assert not windows.hit("a", day, NOW + DAY, 9).allowed
    assert windows.hit("a", day, NOW + DAY + 1, 9).allowed
    for hour in range(1, 24):
        refused = windows.hit("a", day, NOW + DAY + hour * HOUR, 1)
        assert (refused.allowed, refused.used[2]) == (False, 9)


def test_the_capacity_bounds_the_number_of_owners() -> None:
    windows = LocalWindows(100)
    for index in range(2000):
        windows.hit(f"owner {index}", OPEN, NOW + index, 1)
        assert len(windows) <= 300


def test_the_owners_that_were_idle_longest_are_dropped_first() -> None:
    windows = LocalWindows(100)
    for index in range(2000):
        windows.hit(f"owner {index}", OPEN, NOW + index, 1)
        used = windows.hit("busy", OPEN, NOW + index, 1).used
        assert used[2] == index + 1
        recent = windows.peek(f"owner {max(0, index - 90)}", OPEN, NOW + index)
        assert recent.used[2] == 1


def test_repeated_owners_do_not_turn_the_generations() -> None:
    windows = LocalWindows(10)
    for turn in range(50):
        for index in range(10):
            assert windows.hit(f"owner {index}", OPEN, NOW + turn, 1).used[2] == turn + 1
    assert len(windows) == 10


def test_a_named_limit_survives_an_early_change_of_generation() -> None:
    """The hit of another named limit moves all cells of its owner to the new generation."""
    daily, hourly = Limit("daily", "1/day"), Limit("hourly", "9/hour")
    windows = LocalWindows(capacity=2)

    def hit_of(owner: str, *limits: Limit) -> bool:
        named = bound(limits, None)
        assert named is not None
        return windows.hit_limited(owner, (), named, NOW, 1).allowed

    assert hit_of("a", daily, hourly)
    for other in "bcd":  # The third fills the next generation, and "a" is in the past one.
        assert hit_of(other, daily)
    assert hit_of("a", hourly)
    assert not hit_of("a", daily)
