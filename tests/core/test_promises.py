"""Units that are kept for a caller who returns, against a brute-force oracle (P1 to P4)."""

from __future__ import annotations

import pytest
from hypothesis import settings

from lockgate.core.ledger import Hit, HitLeased, Ledger, Peek, Reset
from lockgate.core.limits import Limit, bound
from lockgate.core.plans import Plan
from lockgate.core.promises import GRACE, PROMISES_AT_MOST
from lockgate.core.quota_leases import LeaseRequest
from lockgate.core.sliding_window import Window, hit
from lockgate.core.timestamps import SECOND
from tests.promise_machine import MINUTE, NOW, PromiseMachine, minute


class ExactMachine(PromiseMachine):
    is_exact = True


class SharedCellsMachine(PromiseMachine):
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


def test_one_key_gets_half_of_all_promises_P4() -> None:
    ledger = full()
    for _ in range(30):
        _, ledger = charge(ledger, "rude", NOW + 20 * SECOND)
    assert len(ledger.promises) == 5
    _, ledger = charge(ledger, "polite", NOW + 20 * SECOND)
    assert ledger.promises[-1].owner == "polite"


@pytest.mark.parametrize("cost", [11, 12])
def test_a_cost_above_the_limit_gets_no_promise(cost: int) -> None:
    ledger = full()
    (reading, _), after = HitLeased(minute(10), cost, None, None, "a").apply(
        ledger, NOW + 20 * SECOND
    )
    assert reading.wait == MINUTE
    assert after.promises == ()


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


def test_a_refusal_for_a_day_gets_no_promise() -> None:
    windows = Plan("some", rpm=10, rph=None, rpd=10, concurrent=2).windows
    ledger = Ledger("org_1")
    for place in range(10):
        _, ledger = HitLeased(windows, 1, None, None, "a").apply(ledger, NOW + place * SECOND)
    (reading, _), ledger = HitLeased(windows, 1, None, None, "a").apply(ledger, NOW + 10 * SECOND)
    assert reading.wait == 24 * 60 * MINUTE - 10 * SECOND
    assert ledger.promises == ()


def test_hits_that_join_the_newest_cell_delay_no_promised_caller_P2() -> None:
    windows = *minute(102), Window("exact", MINUTE + 50, 102, 0)
    ledger, now = Ledger("org_1"), NOW + 200
    for place in range(100):
        _, ledger = HitLeased(windows, 1, None, None, "a").apply(ledger, NOW + place)
    (refused, promise), ledger = HitLeased(windows, 101, None, None, "b").apply(ledger, now)
    assert promise is not None
    (joined, _), ledger = HitLeased(windows, 1, None, None, "a").apply(ledger, NOW + SECOND // 2)
    assert joined.allowed
    returned = HitLeased(windows, 101, None, None, "b").apply(ledger, now + refused.wait)[0]
    assert returned.reading.allowed


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


def test_a_refusal_without_a_promise_holds_until_the_next_promise_of_its_key_P2() -> None:
    ledger, now = full(), NOW + 20 * SECOND
    for _ in range(5):
        _, ledger = charge(ledger, "a", now)
    at = NOW + MINUTE + SECOND
    (reading, promise), _ = HitLeased(minute(10), 6, None, None, "a").apply(ledger, at)
    assert promise is None
    assert reading.reset == at + SECOND


def test_reading_says_what_is_left_beside_promises_and_changes_nothing_W5() -> None:
    _, ledger = charge(full(), "a", NOW + 20 * SECOND)
    at = NOW + MINUTE + 1
    reading, after = Peek(minute(10)).apply(ledger, at)
    assert after is ledger
    assert not reading.allowed
    assert reading.used == (9,)
    assert reading.remaining == 0
    reading, _ = Peek(minute(10)).apply(ledger, at + GRACE)
    assert reading.remaining == 2
