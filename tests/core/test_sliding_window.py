"""The sliding window, compared with an oracle that sums lists, and under adversarial calls.

The spans here are small (600 to 14,400 instead of 60 to 86,400 million): the rule knows no units.
"""

import random
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from struct import iter_unpack
from typing import NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lockgate.core.plans import Plan
from lockgate.core.sliding_window import (
    EXACT_CELLS,
    LARGEST,
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
from lockgate.stores.sql.codec import write_state

SPANS = (600, 3_600, 14_400)
START = 1_000_000
MOST_CELLS = 130


# The oracle


class Cell(NamedTuple):
    first: int
    last: int
    cost: int


class Oracle:
    """Keeps a list for each window and judges by adding up.

    ``shares``: hits share cells as D21 says; otherwise every hit is kept for itself.
    """

    def __init__(self, windows: tuple[Window, ...], *, shares: bool) -> None:
        self.windows = windows
        self.shares = shares
        self.kept: list[list[Cell]] = [[] for _ in windows]

    def live(self, now: int) -> list[list[Cell]]:
        """What counts at ``now``: what lies in the future counts as if it had come now (D27)."""
        return [
            [
                Cell(min(cell.first, now), min(cell.last, now), cell.cost)
                for cell in kept
                if min(cell.last, now) > now - window.span
            ]
            for kept, window in zip(self.kept, self.windows, strict=True)
        ]

    def hit(self, now: int, cost: int) -> Reading:
        live = self.live(now)
        reading = self.reading(live, now, cost)
        stepped_back = any(cell.last > now for kept in self.kept for cell in kept)
        if reading.allowed:
            for kept, window in zip(live, self.windows, strict=True):
                self.add(kept, window, now, cost)
            reading = self.reading(live, now, 0)
        if reading.allowed or stepped_back:
            self.kept = live
        return reading

    def peek(self, now: int, cost: int = 1) -> Reading:
        return self.reading(self.live(now), now, cost)

    def add(self, kept: list[Cell], window: Window, now: int, cost: int) -> None:
        if self.shares and kept:
            newest = kept[-1]
            crowded = len(kept) >= 64 and now - newest.first < window.grain
            if newest.last == now or crowded:
                kept[-1] = Cell(newest.first, now, newest.cost + cost)
                return
        kept.append(Cell(now, now, cost))

    def reading(self, live: list[list[Cell]], now: int, cost: int) -> Reading:
        used = tuple(sum(cell.cost for cell in kept) for kept in live)
        tightest = refused_by = remaining = None
        reset, wait = now, 0
        for place, (kept, window) in enumerate(zip(live, self.windows, strict=True)):
            if window.limit is None:
                continue
            left = max(0, window.limit - used[place])
            regains = min((cell.last + window.span for cell in kept), default=now)
            if remaining is None or (left, -regains) < (remaining, -reset):
                remaining, reset, tightest = left, regains, place
            if used[place] + cost > window.limit:
                longer = self.wait(kept, window, now, cost)
                if longer > wait:
                    wait, refused_by = longer, place
        return Reading(refused_by is None, now, used, remaining, reset, tightest, refused_by, wait)

    @staticmethod
    def wait(kept: list[Cell], window: Window, now: int, cost: int) -> int:
        assert window.limit is not None
        if cost > window.limit:
            return window.span
        for moment in sorted(cell.last + window.span for cell in kept):
            still = sum(cell.cost for cell in kept if cell.last + window.span > moment)
            if still + cost <= window.limit:
                return moment - now
        raise AssertionError("an empty window refuses nothing within its limit")


def opened(cells: Cells) -> list[tuple[int, int]]:
    """``(last hit, count)`` of every cell, oldest first."""
    _, _, _, last, count, older = cells
    return [*iter_unpack("<qq", older), (last, count)] if count else []


def worst(admitted: Iterable[tuple[int, int]], span: int) -> int:
    """The most that any half-open span of this length holds."""
    inside: deque[tuple[int, int]] = deque()
    total = most = 0
    for at, cost in admitted:
        inside.append((at, cost))
        total += cost
        while inside[0][0] <= at - span:
            total -= inside.popleft()[1]
        most = max(most, total)
    return most


# Generated calls


class Burst(NamedTuple):
    """A number of calls of one cost, at a fixed distance in time."""

    gap: int
    times: int
    cost: int


EDGES = sorted({0, 1, *(n + d for s in SPANS for n in (s, s // 60) for d in (-1, 0, 1))})
GAPS = st.sampled_from(EDGES) | st.integers(0, 40) | st.integers(0, 1_000)
BURSTS = st.builds(
    Burst, GAPS, st.integers(1, 4) | st.integers(20, 90), st.just(1) | st.integers(1, 5)
)
TRAFFIC = st.lists(BURSTS, max_size=8)
LIMITS = st.none() | st.sampled_from([0, 1, 2, 3]) | st.integers(4, 90) | st.integers(90, 300)


@st.composite
def plans(draw: st.DrawFn, *, exact: bool | None = None) -> tuple[Window, ...]:
    """One to three windows; ``exact``: all of them keep every hit."""
    if exact is None:
        exact = draw(st.booleans())
    spans = SPANS[: draw(st.integers(1, 3))]
    return tuple(
        Window(f"w{span}", span, draw(LIMITS), 0 if exact else span // 60) for span in spans
    )


def calls(traffic: Iterable[Burst], start: int = START) -> Iterator[tuple[int, int]]:
    now = start
    for gap, times, cost in traffic:
        for _ in range(times):
            now += gap
            yield now, cost


def sound(state: State) -> None:
    """The state says the same thing twice, and both must agree."""
    for cells in state:
        kept = opened(cells)
        assert cells[0] == sum(count for _, count in kept)
        assert all(count > 0 for _, count in kept)
        if kept:
            assert cells[1] == kept[0][0]
            assert kept == sorted(kept, key=lambda cell: cell[0])
            assert cells[2] <= cells[3]


# The rule and the oracle, side by side


def compare(windows: tuple[Window, ...], traffic: Iterable[tuple[int, int]], shares: bool) -> None:
    oracle = Oracle(windows, shares=shares)
    state = empty_state(windows)
    for now, cost in traffic:
        before = state
        assert peek(state, windows, now, cost) == oracle.peek(now, cost)
        reading, state = hit(state, windows, now, cost)
        assert reading == oracle.hit(now, cost)
        if reading.refused_by is not None and all(cells[3] <= now for cells in before):
            assert state is before, "W7, W9: a refusal changes nothing, in any window"
        if shares:
            for cells, kept, window in zip(state, oracle.kept, windows, strict=True):
                live = [cell for cell in opened(cells) if cell[0] > now - window.span]
                assert live == [c[1:] for c in kept if c.last > now - window.span]
        sound(state)


@given(plans(exact=True), TRAFFIC)
def test_without_shared_cells_the_window_equals_a_log_of_every_hit(
    windows: tuple[Window, ...], traffic: list[Burst]
) -> None:
    """W2, W4, W9, D20 to D23 with ``resolution=None``, at any number of hits."""
    compare(windows, calls(traffic), shares=False)


@given(plans(exact=False), st.lists(st.tuples(GAPS, st.integers(1, 5)), max_size=EXACT_CELLS))
def test_few_hits_are_exact_at_any_resolution(
    windows: tuple[Window, ...], hits: list[tuple[int, int]]
) -> None:
    """D21: a window with few hits is exact."""
    compare(windows, calls(Burst(gap, 1, cost) for gap, cost in hits), shares=False)


@given(plans(), TRAFFIC)
@example((Window("w", 600, 300, 10),), [Burst(1, 66, 1), Burst(10, 90, 1), Burst(9, 90, 1)])
@example((Window("w", 600, None, 10),), [Burst(0, 3, 2), Burst(1, 64, 1), Burst(600, 2, 1)])
def test_hits_share_cells_exactly_as_decided(
    windows: tuple[Window, ...], traffic: list[Burst]
) -> None:
    """D21, to the letter, with everything that a reading says."""
    compare(windows, calls(traffic), shares=True)


CLOCKED = st.lists(
    st.tuples(BURSTS, st.just(0) | st.sampled_from([-d for d in EDGES]) | st.sampled_from(EDGES)),
    max_size=8,
)


@given(plans(exact=True), CLOCKED)
@example(
    (Window("w", 600, 300, 0),), [(Burst(1, 90, 1), 0), (Burst(1, 90, 1), 0), (Burst(1, 9, 1), -5)]
)
def test_cells_in_the_future_are_moved_to_the_present(
    windows: tuple[Window, ...], traffic: list[tuple[Burst, int]]
) -> None:
    """D27, step for step, where every instant has a cell."""

    def shown() -> Iterator[tuple[int, int]]:
        start = START
        for burst, jump in traffic:
            for now, cost in calls([burst], start + jump):
                yield now, cost
                start = now

    compare(windows, shown(), shares=False)


@pytest.mark.campaign
@settings(max_examples=3_000)
@given(plans(), st.lists(BURSTS, max_size=25))
def test_the_window_equals_the_reference_in_a_long_search(
    windows: tuple[Window, ...], traffic: list[Burst]
) -> None:
    compare(windows, calls(traffic), shares=True)
    admitted, _ = admissions(windows, calls(traffic))
    for window in windows:
        assert window.limit is None or worst(admitted, window.span) <= window.limit
    assert most_cells(windows, calls(traffic)) <= (
        MOST_CELLS if all(window.grain for window in windows) else sys.maxsize
    )


# Safety and liveness of the admitted hits


def admissions(
    windows: tuple[Window, ...], traffic: Iterable[tuple[int, int]]
) -> tuple[list[tuple[int, int]], list[tuple[int, int, Reading]]]:
    state = empty_state(windows)
    admitted: list[tuple[int, int]] = []
    refused: list[tuple[int, int, Reading]] = []
    for now, cost in traffic:
        reading, state = hit(state, windows, now, cost)
        if reading.allowed:
            admitted.append((now, cost))
        else:
            refused.append((now, cost, reading))
    return admitted, refused


@given(plans(), TRAFFIC)
def test_no_span_admits_more_than_the_limit(
    windows: tuple[Window, ...], traffic: list[Burst]
) -> None:
    """W1."""
    admitted, _ = admissions(windows, calls(traffic))
    for window in windows:
        if window.limit is not None:
            assert worst(admitted, window.span) <= window.limit


@given(plans(), TRAFFIC)
def test_no_hit_that_fits_is_refused(windows: tuple[Window, ...], traffic: list[Burst]) -> None:
    """W2: hits that left less than a grain ago may still count, older ones never."""
    admitted, refused = admissions(windows, calls(traffic))
    for now, cost, _ in refused:
        assert any(
            sum(n for at, n in admitted if now - window.span - window.grain < at <= now) + cost
            > window.limit
            for window in windows
            if window.limit is not None
        )


@given(plans(), TRAFFIC, st.integers(1, 6))
def test_the_returned_wait_is_sufficient_and_necessary(
    windows: tuple[Window, ...], traffic: list[Burst], cost: int
) -> None:
    """W6, by the microsecond, for any cost that the limits can hold."""
    state, now = empty_state(windows), START
    for now, weight in calls(traffic):
        _, state = hit(state, windows, now, weight)
    reading, _ = hit(state, windows, now, cost)
    if reading.allowed:
        assert reading.wait == 0
    elif all(window.limit is None or cost <= window.limit for window in windows):
        assert reading.wait >= 1
        assert hit(state, windows, now + reading.wait, cost)[0].allowed
        assert not hit(state, windows, now + reading.wait - 1, cost)[0].allowed
        assert peek(state, windows, now + reading.wait, cost).allowed
        assert not peek(state, windows, now + reading.wait - 1, cost).allowed
    else:
        assert reading.wait >= min(
            w.span for w in windows if w.limit is not None and cost > w.limit
        )


@given(plans(), TRAFFIC, st.integers(1, 6), st.integers(-800, 4_000))
def test_a_peek_returns_the_reading_of_a_hit(
    windows: tuple[Window, ...], traffic: list[Burst], cost: int, later: int
) -> None:
    """W5, and that the verdict of a look is the verdict of the hit after it."""
    state, now = empty_state(windows), START
    for now, weight in calls(traffic):
        _, state = hit(state, windows, now, weight)
    now += later
    seen = peek(state, windows, now, cost)
    reading, _ = hit(state, windows, now, cost)
    assert (seen.allowed, seen.refused_by, seen.wait) == (
        reading.allowed,
        reading.refused_by,
        reading.wait,
    )
    if not reading.allowed:
        assert seen == reading
    else:
        assert tuple(used + cost for used in seen.used) == reading.used
        if reading.remaining is not None:
            assert seen.remaining == reading.remaining + cost
    assert peek(state, windows, now) == peek(state, windows, now, 1)


@settings(max_examples=60)
@given(st.lists(st.tuples(plans(), TRAFFIC), max_size=4))
def test_a_plan_change_keeps_counted_hits(
    changes: list[tuple[tuple[Window, ...], list[Burst]]],
) -> None:
    """W13: other limits and grains hold from the next call on; three windows, as any plan has."""
    spare = tuple(Window(f"w{span}", span, 50, span // 60) for span in SPANS)
    oracle = Oracle(spare, shares=True)
    state = empty_state(spare)
    start = START
    for drawn, traffic in changes:
        windows = drawn + spare[len(drawn) :]
        oracle.windows = windows
        for now, cost in calls(traffic, start):
            reading, state = hit(state, windows, now, cost)
            assert reading == oracle.hit(now, cost)
            assert reading.remaining is None or reading.remaining >= 0
            sound(state)
            start = now


def test_a_state_of_another_number_of_windows_is_an_error() -> None:
    one = (Window("w", 600, 1, 10),)
    with pytest.raises(ValueError, match=r"windows|zip"):
        hit(empty_state(one), one * 2, START, 1)
    with pytest.raises(ValueError, match=r"windows|zip"):
        peek(empty_state(one), one * 2, START)


# Edges, spelled out


LARGE = st.sampled_from([1, 2, 2**40, 2**52, LARGEST - 1, LARGEST])


@given(
    st.lists(st.tuples(st.integers(0, 400), LARGE), min_size=1, max_size=40),
    st.sampled_from([0, 60]),
)
def test_an_unlimited_window_counts_the_newest_units_up_to_the_largest_number(
    hits: list[tuple[int, int]], grain: int
) -> None:
    """So a plan with a limit, whichever it is, decides as if every unit were counted."""
    span, now = SPANS[0], START
    free = (Window("minute", span, None, grain), Window("hour", SPANS[1], LARGEST, grain))
    log: list[tuple[int, int]] = []
    state = empty_state(free)
    for gap, cost in hits:
        now += gap
        reading, state = hit(state, free, now, cost)
        if reading.allowed:
            log.append((now, cost))
        used = sum(cost for at, cost in log if at > now - span)
        assert reading.used[0] == min(used, LARGEST)
        for limit in (1, 2**40, LARGEST):
            judged = peek(state, (free[0]._replace(limit=limit), free[1]), now, 1)
            assert judged.remaining is not None
            assert judged.used[0] + 1 > limit or judged.allowed or judged.refused_by == 1
            assert (used + 1 > limit) is (judged.used[0] + 1 > limit)


def test_an_unlimited_window_takes_the_largest_cost_without_end() -> None:
    """Its state stays within 64 bits, also where the hits are coalesced."""
    windows = Plan("open", None, None, None, None).windows
    held = LocalWindows()
    for number in range(5_000):
        reading = held.hit("org_1", windows, START * MINUTE + number * 1_000, LARGEST - number % 2)
        assert reading.used == (LARGEST,) * 3 or number == 0
    state = held.take("org_1")
    assert state is not None
    assert len(write_state(state)) < 10_000
    reading, _ = hit(empty_state(windows), windows, START, 2**60)
    assert (reading.allowed, reading.used) == (True, (LARGEST,) * 3)


def test_a_refused_cost_takes_no_units_from_an_unlimited_window() -> None:
    windows = Plan("mixed", 5, None, None, None).windows
    _, state = hit(empty_state(windows), windows, START, 5)
    free = Plan("open", None, None, None, None).windows
    _, state = hit(state, free, START + 1, LARGEST - 5)
    refused, same = hit(state, windows, START + 2, LARGEST)
    assert (refused.allowed, refused.used, same is state) == (False, (LARGEST,) * 3, True)


def test_the_least_remaining_decides_and_among_equals_the_last_to_regain() -> None:
    """D23: of an empty window, capacity is whole now."""
    windows = (Window("a", 600, 3, 0), Window("b", 3_600, 3, 0), Window("c", 14_400, 9, 0))
    assert peek(empty_state(windows), windows, START).tightest == 0
    reading, state = hit(empty_state(windows), windows, START, 1)
    assert (reading.remaining, reading.tightest, reading.reset) == (2, 1, START + 3_600)
    seen = peek(state, windows, START + 1)
    assert (seen.remaining, seen.tightest, seen.reset) == (2, 1, START + 3_600)
    same = (Window("a", 600, 3, 0), Window("b", 600, 3, 0))
    assert hit(empty_state(same), same, START, 1)[0].tightest == 0


def test_the_sixty_fifth_instant_is_the_first_to_share() -> None:
    """D21: 64 cells, each exact; then neighbours less than a grain apart share the newest."""
    windows = (Window("a", 600, None, 10),)
    state = empty_state(windows)
    for at in range(64):
        _, state = hit(state, windows, START + at, 1)
    assert len(opened(state[0])) == 64
    _, state = hit(state, windows, START + 72, 1)
    assert opened(state[0])[-1] == (START + 72, 2), "9 after the first of the newest cell"
    _, state = hit(state, windows, START + 73, 1)
    assert opened(state[0])[-2:] == [(START + 72, 2), (START + 73, 1)], "10 after it"


# Clocks that are set (D27, W11)


class Moment(NamedTuple):
    """Real time goes on by ``advance``, then the clock is set by ``jump``, then calls come."""

    advance: int
    jump: int
    calls: int
    cost: int


def moments(jumps: st.SearchStrategy[int]) -> st.SearchStrategy[list[Moment]]:
    one = st.builds(
        Moment, GAPS, st.just(0) | jumps, st.integers(1, 4) | st.integers(60, 90), st.integers(1, 3)
    )
    return st.lists(one, max_size=25)


BACK = st.sampled_from([-edge for edge in EDGES if edge]) | st.integers(-20_000, -1)
EITHER = BACK | st.sampled_from([edge for edge in EDGES if edge]) | st.integers(1, 20_000)


def by_the_real_clock(
    windows: tuple[Window, ...], story: list[Moment]
) -> tuple[list[tuple[int, int]], State, int]:
    """Return the admitted hits at real times, the last state and the clock's last time."""
    state = empty_state(windows)
    admitted: list[tuple[int, int]] = []
    real, offset = 0, 10 * START
    for moment in story:
        real += moment.advance
        offset += moment.jump
        for _ in range(moment.calls):
            reading, state = hit(state, windows, real + offset, moment.cost)
            if reading.allowed:
                admitted.append((real, moment.cost))
    return admitted, state, real + offset


@given(plans(), moments(BACK))
def test_a_clock_set_back_admits_no_extra_hit(
    windows: tuple[Window, ...], story: list[Moment]
) -> None:
    admitted, _, _ = by_the_real_clock(windows, story)
    for window in windows:
        if window.limit is not None:
            assert worst(admitted, window.span) <= window.limit


@given(plans(), moments(EITHER))
def test_a_clock_set_forward_admits_the_limit_once_more(
    windows: tuple[Window, ...], story: list[Moment]
) -> None:
    admitted, _, _ = by_the_real_clock(windows, story)
    real, forwards = 0, []
    for moment in story:
        real += moment.advance
        if moment.jump > 0:
            forwards.append(real)
    for window in windows:
        if window.limit is None:
            continue
        for end, _ in admitted:
            inside = sum(cost for at, cost in admitted if end - window.span < at <= end)
            steps = sum(end - window.span < at <= end for at in forwards)
            assert inside <= window.limit * (1 + steps)


@given(plans(), moments(EITHER), st.integers(1, 5))
def test_a_step_back_refuses_for_at_most_the_window(
    windows: tuple[Window, ...], story: list[Moment], cost: int
) -> None:
    """A whole window after a call has read the clock, no earlier hit counts."""
    _, state, now = by_the_real_clock(windows, story)
    longest = max(window.span for window in windows)
    assert peek(state, windows, now + longest).used == (0,) * len(windows)
    for cells, window in zip(state, windows, strict=True):
        assert all(at <= now for at, _ in opened(cells))
        assert peek((cells,), (window,), now + window.span).used == (0,)
    reading = peek(state, windows, now, cost)
    if all(window.limit is None or cost <= window.limit for window in windows):
        assert reading.wait <= longest
        assert peek(state, windows, now + reading.wait, cost).allowed


def test_a_cell_moved_to_the_present_begins_there() -> None:
    """Or else hits would share it for as long as the clock was set back."""
    windows = (Window("a", 600, None, 10),)
    state = empty_state(windows)
    for at in range(0, 630, 10):
        _, state = hit(state, windows, START + at // 10, 1)
    _, state = hit(state, windows, START + 100, 1)
    for at in (20, 29, 30, 40):
        _, state = hit(state, windows, START - 100 + at, 1)
    assert [at - START + 100 for at, _ in opened(state[0])[-3:]] == [29, 30, 40]


# State is bounded (W10)


def most_cells(windows: tuple[Window, ...], traffic: Iterable[tuple[int, int]]) -> int:
    state, most = empty_state(windows), 0
    for now, cost in traffic:
        _, state = hit(state, windows, now, cost)
        most = max(most, *(len(opened(cells)) for cells in state))
    return most


UNLIMITED = (Window("w", 600, 10**9, 10),)


@given(st.lists(st.builds(Burst, GAPS, st.integers(1, 200), st.just(1)), max_size=15))
def test_state_is_bounded_under_any_traffic(traffic: list[Burst]) -> None:
    assert most_cells(UNLIMITED, calls(traffic)) <= MOST_CELLS


@pytest.mark.parametrize("gap", [1, 9, 10, 11])
@pytest.mark.parametrize("crowd", [63, 64, 65])
@pytest.mark.parametrize("spread", [1, 9])
def test_state_is_bounded_against_adversarial_traffic(gap: int, crowd: int, spread: int) -> None:
    """A crowd of exact cells, then cells as near as they may lie, time after time."""
    attack = [Burst(spread, crowd, 1), Burst(gap, 700 // gap, 1)] * 6
    assert 64 < most_cells(UNLIMITED, calls(attack)) <= MOST_CELLS


def test_state_is_bounded_when_the_clock_is_set_back_again_and_again() -> None:
    """W10, D27: the cells that are drawn to the present must not pile up."""
    round_and_round = [call for _ in range(30) for call in calls([Burst(10, 59, 1)])]
    assert most_cells(UNLIMITED, round_and_round) <= MOST_CELLS


@settings(max_examples=25)
@given(st.integers(1, 12), st.integers(11, 700), st.integers(50, 400))
@example(1, 15, 400)
@example(1, 15, 251)
def test_two_alternating_clocks_return_no_capacity_early(
    gap: int, skew: int, calls_made: int
) -> None:
    """W10, W11: two hosts with different clocks call in turns."""
    windows = (Window("w", 600, None, 10),)
    oracle = Oracle(windows, shares=False)
    state = empty_state(windows)
    for turn in range(calls_made):
        now = START + gap * turn + skew * (turn % 2)
        reading, state = hit(state, windows, now, 1)
        assert reading.used >= oracle.hit(now, 1).used
        assert len(opened(state[0])) <= MOST_CELLS
        sound(state)
    for later in range(START, START + 12 * calls_made + skew + 700, 13):
        assert peek(state, windows, later).used >= oracle.peek(later).used


def test_state_is_bounded_when_a_clock_steps_back_often_and_then_runs_on() -> None:
    """W10: each spell of stepping may leave twice the cells that a running clock would."""
    steps = [(START + turn + 15 * (turn % 2), 1) for turn in range(240)]
    attack = [*steps, *calls([Burst(10, 59, 1)], START + 240)]
    assert most_cells(UNLIMITED, attack) <= 64 + 2 * 60 + 2
    for length in range(200, 300, 9):
        assert most_cells(UNLIMITED, attack[:length] + attack[240:]) <= 64 + 2 * 60 + 2


def size(value: object) -> int:
    inner = sum(map(size, value)) if isinstance(value, tuple) else 0
    return sys.getsizeof(value) + inner


def test_a_saturated_day_delivers_its_quota_in_little_memory() -> None:
    """Demand of 1.44 times 20,000 a day, four days long, at random instants."""
    window = Plan("busy", None, None, 20_000, None).windows[2]
    rng = random.Random(1)
    state = empty_state([window])
    admitted: list[tuple[int, int]] = []
    now, refused = START, 0
    while now < START + 4 * DAY:
        now += rng.randrange(6 * SECOND)
        reading, state = hit(state, (window,), now, 1)
        if reading.allowed:
            admitted.append((now, 1))
        else:
            refused += 1
    assert refused > 10_000, "it was saturated"
    assert worst(admitted, DAY) == 20_000
    steady = sum(at >= START + DAY for at, _ in admitted)
    assert 0.98 * 60_000 <= steady <= 60_000
    assert size(state) <= 4_096


def test_three_full_windows_fit_in_sixteen_kilobytes() -> None:
    windows = Plan("busy", 1_000_000, 1_000_000, 1_000_000, None).windows
    assert [window.span for window in windows] == [MINUTE, HOUR, DAY]
    attack = [b for w in reversed(windows) for b in (Burst(1, 64, 1), Burst(w.grain, 55, 1))]
    state = empty_state(windows)
    for now, cost in calls(attack):
        _, state = hit(state, windows, now, cost)
    assert [len(opened(cells)) > 100 for cells in state] == [True, True, True]
    assert size(state) <= 16 * 1_024
