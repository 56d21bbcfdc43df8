"""Units that are kept for a caller who returns, against a brute-force oracle (P1 to P4)."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lockgate.core.ledger import Hit, HitLeased, Ledger, Reset
from lockgate.core.limits import Limit, bound
from lockgate.core.plans import Plan
from lockgate.core.promises import FURTHEST, GRACE, PROMISES_AT_MOST, hit_beside, start_of
from lockgate.core.quota_leases import LeaseRequest
from lockgate.core.reservations import Reservations
from lockgate.core.sliding_window import State, Window, empty_state, hit, refusal_at
from lockgate.core.timestamps import SECOND

NOW = 1_800_000_000 * SECOND
MINUTE = 60 * SECOND


def minute(limit: int) -> tuple[Window, ...]:
    return (Window("minute", MINUTE, limit, SECOND),)


class Kept(NamedTuple):
    """A promise of the oracle."""

    start: int
    cost: int
    key: str


class Oracle:
    """The rule by its words: a list of admissions, a list of promises, every second tried."""

    def __init__(self, windows: tuple[Window, ...]) -> None:
        self.windows = windows
        self.log: list[tuple[int, int]] = []
        self.promises: list[Kept] = []

    def lapse(self, now: int) -> None:
        self.promises = [one for one in self.promises if now < one.start + GRACE]

    def due(self, now: int, key: str, cost: int) -> Kept | None:
        fits = [p for p in self.promises if p.key == key and p.start <= now and p.cost >= cost]
        return min(fits, key=lambda one: (one.cost, one.start), default=None)

    def counted(self, at: int, span: int) -> int:
        return sum(cost for hit_at, cost in self.log if at - span < hit_at <= at)

    def fits(self, at: int, cost: int) -> bool:
        """Whether a cost taken at an instant leaves every promise its units."""
        for window in self.windows:
            assert window.limit is not None
            for instant in (at, *(one.start for one in self.promises if one.start > at)):
                promised = sum(one.cost for one in self.promises if one.start <= instant)
                if self.counted(instant, window.span) + promised + cost > window.limit:
                    return False
        return True

    def wait(self, now: int, cost: int) -> int | None:
        for seconds in range(1, FURTHEST + 1):
            if self.fits(now + seconds * SECOND, cost):
                return seconds
        return None

    def may(self, key: str, cost: int) -> bool:
        mine = [one.cost for one in self.promises if one.key == key]
        limit = min(window.limit or 0 for window in self.windows)
        left = limit - sum(one.cost for one in self.promises) - cost
        return len(mine) < PROMISES_AT_MOST - len(self.promises) and sum(mine) <= left


class Machine(RuleBasedStateMachine):
    """Calls of several keys, promised callers that return, callers that never do."""

    is_exact: ClassVar[bool]

    @initialize(small=st.integers(1, 12), large=st.integers(80, 300), more=st.integers(0, 30))
    def begin(self, small: int, large: int, more: int) -> None:
        limit = small if self.is_exact else large
        hour = Window("hour", 3600 * SECOND, min(63, limit * 4) if self.is_exact else 2000, MINUTE)
        self.windows = (*minute(limit), *((hour,) if more % 2 else ()))
        self.oracle = Oracle(self.windows)
        self.state: State = empty_state(self.windows)
        self.promises: Reservations = ()
        self.now = NOW
        self.limit = limit

    def call(self, key: str, cost: int) -> bool:
        oracle, now = self.oracle, self.now
        oracle.lapse(now)
        due = oracle.due(now, key, cost)
        if due is not None:
            oracle.promises.remove(due)
        state, promises = self.state, self.promises
        asked = state, promises, self.windows, now, cost, key
        reading, self.state, self.promises, promise = hit_beside(*asked)
        assert promise is None or promise in self.promises
        fits = oracle.fits(now, cost)
        if due is not None:
            assert reading.allowed, "P2: a promised caller is admitted"
        if reading.allowed:
            assert fits, "P1, P2: no unit of a window or of a promise is taken"
            oracle.log.append((now, cost))
        else:
            self.refused(key, cost, reading.wait, fits=fits)
        found = sorted(Kept(start_of(one), one.units, one.owner) for one in self.promises)
        assert found == sorted(oracle.promises)
        return reading.allowed

    def refused(self, key: str, cost: int, wait: int, *, fits: bool) -> None:
        oracle = self.oracle
        if self.is_exact:
            assert not fits, "P3: a refusal means that the cost does not fit beside the promises"
            if wait <= FURTHEST * SECOND and (seconds := oracle.wait(self.now, cost)):
                assert wait == seconds * SECOND or wait == MINUTE
        mine = [one for one in self.promises if one.owner == key]
        before = [one for one in oracle.promises if one.key == key]
        if len(mine) > len(before):
            assert oracle.may(key, cost)
            assert oracle.fits(self.now + wait, cost)
            oracle.promises.append(Kept(self.now + wait, cost, key))
        elif cost <= self.limit and wait < MINUTE:
            assert not oracle.may(key, cost), "a key that may have a promise gets one"

    @rule(key=st.sampled_from("abcd"), cost=st.integers(1, 3), times=st.integers(1, 25))
    def calls(self, key: str, cost: int, times: int) -> None:
        cost = cost if self.is_exact else 5 * cost
        for _ in range(times):
            if not self.call(key, cost):
                break

    @rule(micros=st.one_of(st.integers(0, 3 * SECOND), st.integers(0, 2 * MINUTE)))
    def time_passes(self, micros: int) -> None:
        self.now += micros

    @precondition(lambda self: self.oracle.promises)
    @rule(data=st.data(), late=st.integers(0, GRACE - 1))
    def a_promised_caller_returns(self, data: st.DataObject, late: int) -> None:
        promise = data.draw(st.sampled_from(sorted(self.oracle.promises)))
        self.now = max(self.now, promise.start + late)
        self.oracle.lapse(self.now)
        if promise in self.oracle.promises:
            assert self.call(promise.key, promise.cost)

    @precondition(lambda self: self.oracle.promises)
    @rule(late=st.integers(0, GRACE - 1))
    def all_promised_callers_return(self, late: int) -> None:
        for promise in sorted(self.oracle.promises):
            self.now = max(self.now, promise.start + late)
            assert self.call(promise.key, promise.cost)

    @invariant()
    def no_window_is_over_P1(self) -> None:
        for window in self.windows:
            assert self.oracle.counted(self.now, window.span) <= (window.limit or 0)

    @invariant()
    def promises_are_bounded_P4(self) -> None:
        assert len(self.promises) <= PROMISES_AT_MOST
        assert sum(one.units for one in self.promises) <= self.limit
        for one in self.promises:
            assert start_of(one) <= self.now + min(FURTHEST, 60) * SECOND or len(self.windows) > 1
            assert one.deadline <= self.now + one.span


class ExactMachine(Machine):
    is_exact = True


class SharedCellsMachine(Machine):
    is_exact = False


TestExactWindows = ExactMachine.TestCase
TestExactWindows.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
TestSharedCells = SharedCellsMachine.TestCase
TestSharedCells.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)


def charge(ledger: Ledger, key: str, now: int = NOW, cost: int = 1) -> tuple[bool, Ledger]:
    (reading, _), ledger = HitLeased(minute(10), cost, None, None, key).apply(ledger, now)
    return reading.allowed, ledger


def full(key: str = "a") -> Ledger:
    ledger = Ledger("org_1")
    for place in range(10):
        allowed, ledger = charge(ledger, key, NOW + place * SECOND)
        assert allowed
    return ledger


def test_without_the_option_nothing_is_promised_P4() -> None:
    ledger = full("")
    reading, after = Hit(minute(10), 1).apply(ledger, NOW + 20 * SECOND)
    assert not reading.allowed
    assert after == ledger


def test_callers_that_are_refused_are_told_seconds_of_their_own_P2() -> None:
    ledger, now = full(), NOW + 20 * SECOND + 1
    waits = []
    for key in ("a", "b", "c"):
        (reading, _), ledger = HitLeased(minute(10), 1, None, None, key).apply(ledger, now)
        waits.append(reading.wait // SECOND)
    assert waits == [40, 41, 42]
    assert [one.owner for one in ledger.promises] == ["a", "b", "c"]


def test_a_newcomer_is_refused_while_units_are_kept_P3() -> None:
    _, ledger = charge(full(), "a", NOW + 20 * SECOND)
    at = NOW + MINUTE
    (reading, _), after = HitLeased(minute(10), 1, None, None, "b").apply(ledger, at + 1)
    assert not reading.allowed
    assert reading.used == (9,)
    assert reading.remaining == 0
    assert charge(ledger, "a", at + 1)[0]
    assert charge(after, "a", at + GRACE - 1)[0]
    assert not charge(ledger, "a", at - 1)[0]


def test_a_unit_that_no_caller_fetches_is_free_after_its_grace_P4() -> None:
    _, ledger = charge(full(), "a", NOW + 20 * SECOND)
    allowed, ledger = charge(ledger, "b", NOW + MINUTE + GRACE)
    assert allowed
    assert ledger.promises == ()


def test_a_promise_serves_one_call_P2() -> None:
    _, ledger = charge(full(), "a", NOW + 20 * SECOND)
    allowed, ledger = charge(ledger, "a", NOW + MINUTE + 1)
    assert allowed
    allowed, ledger = charge(ledger, "a", NOW + MINUTE + 2)
    assert not allowed


def test_one_key_gets_half_of_all_promises_P4() -> None:
    ledger = full()
    for _ in range(30):
        _, ledger = charge(ledger, "rude", NOW + 20 * SECOND)
    assert len(ledger.promises) == 5
    _, ledger = charge(ledger, "polite", NOW + 20 * SECOND)
    assert ledger.promises[-1].owner == "polite"


def test_promises_are_at_most_256_P4() -> None:
    ledger, windows = Ledger("org_1"), minute(1000)
    _, ledger = HitLeased(windows, 1000, None, None, "a").apply(ledger, NOW)
    for place in range(400):
        _, ledger = HitLeased(windows, 1, None, None, f"key {place}").apply(ledger, NOW + SECOND)
    assert len(ledger.promises) == PROMISES_AT_MOST


def test_a_caller_without_a_key_takes_no_unit_of_others_P2() -> None:
    _, ledger = charge(full(), "a", NOW + 20 * SECOND)
    allowed, ledger = charge(ledger, "", NOW + MINUTE + 1)
    assert not allowed
    assert [one.owner for one in ledger.promises] == ["a"]


def test_a_request_for_named_limits_takes_no_unit_of_others_P2() -> None:
    _, ledger = charge(full(), "a", NOW + 20 * SECOND)
    named = bound((Limit("export", "100/minute"),), None)
    at = NOW + MINUTE + 1
    (reading, _), after = HitLeased(minute(10), 1, None, named, "b").apply(ledger, at)
    assert not reading.allowed
    assert reading.refused_by == 0
    assert charge(after, "a", at)[0]
    (reading, _), _ = HitLeased(minute(10), 1, None, named, "b").apply(ledger, at + 9 * SECOND)
    assert reading.allowed


@pytest.mark.parametrize("cost", [11, 12])
def test_a_cost_above_the_limit_gets_no_promise(cost: int) -> None:
    ledger = full()
    (reading, _), after = HitLeased(minute(10), cost, None, None, "a").apply(
        ledger, NOW + 20 * SECOND
    )
    assert reading.wait == MINUTE
    assert after.promises == ()


def test_a_refusal_for_a_day_gets_no_promise() -> None:
    windows = Plan("some", rpm=10, rph=None, rpd=10, concurrent=2).windows
    ledger = Ledger("org_1")
    for place in range(10):
        _, ledger = HitLeased(windows, 1, None, None, "a").apply(ledger, NOW + place * SECOND)
    (reading, _), ledger = HitLeased(windows, 1, None, None, "a").apply(ledger, NOW + 10 * SECOND)
    assert reading.wait == 24 * 60 * MINUTE - 10 * SECOND
    assert ledger.promises == ()


def test_a_clock_that_steps_back_leaves_no_promise_longer_P4() -> None:
    _, ledger = charge(full(), "a", NOW + 20 * SECOND)
    (promise,) = ledger.promises
    _, ledger = charge(ledger, "b", NOW - 3600 * SECOND)
    assert ledger.promises[0].deadline <= NOW - 3600 * SECOND + promise.span
    allowed, ledger = charge(ledger, "b", NOW - 3600 * SECOND + promise.span + 2 * MINUTE)
    assert allowed
    assert ledger.promises == ()


def test_no_lease_is_granted_beside_promises_H1() -> None:
    windows, ledger = minute(1000), Ledger("org_1")
    ask = LeaseRequest("0" * 16, 20, SECOND)
    for place in range(4):
        _, ledger = HitLeased(windows, 250, None, None, "a").apply(ledger, NOW + place * SECOND)
    _, ledger = HitLeased(windows, 1, None, None, "b").apply(ledger, NOW + 9 * SECOND)
    assert ledger.promises
    leased, ledger = HitLeased(windows, 1, ask, None, "c").apply(ledger, NOW + MINUTE)
    assert leased.reading.allowed
    assert leased.reading.remaining == 248
    assert leased.lease is None


def test_a_reset_drops_promises_W2() -> None:
    _, ledger = charge(full(), "a", NOW + 20 * SECOND)
    _, ledger = Reset().apply(ledger, NOW + 20 * SECOND)
    assert ledger.promises == ()


def test_a_plan_that_was_lowered_refuses_a_promised_caller_W13() -> None:
    _, ledger = charge(full(), "a", NOW + 20 * SECOND)
    (reading, _), ledger = HitLeased(minute(5), 1, None, None, "a").apply(ledger, NOW + MINUTE)
    assert not reading.allowed
    assert hit(ledger.windows, minute(5), NOW + MINUTE, 1)[0].used == (9,)


def test_a_refusal_is_repeated_with_its_second_W6() -> None:
    ledger, now = full(), NOW + 20 * SECOND
    (reading, _), _ = HitLeased(minute(10), 1, None, None, "a").apply(ledger, now)
    assert refusal_at(reading, now + SECOND).wait == reading.wait - SECOND
