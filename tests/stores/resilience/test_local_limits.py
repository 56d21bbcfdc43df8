"""Limits while their store is away."""

from __future__ import annotations

import pytest

from lockgate import Event, Plan, run
from lockgate.core.ledger import Hit
from lockgate.core.limits import Limit, windows_of
from lockgate.core.sliding_window import Reading, empty_state, hit
from lockgate.core.timestamps import MINUTE, SECOND
from lockgate.errors import StoreUnavailable
from lockgate.events import Events
from lockgate.stores.answers import OutcomeUnknown
from lockgate.stores.resilience.deadlines import Overdue
from lockgate.stores.resilience.failures import may_have_counted
from lockgate.stores.resilience.local_limits import Fallback, LocalLimits

from ..making import NOW

PLAN = Plan("free", rpm=10, rph=100, rpd=None, concurrent=1)
WINDOWS = PLAN.windows


def limits(
    mode: Fallback = "local", fleet: int = 1, told: list[Event] | None = None
) -> LocalLimits:
    return LocalLimits(mode, fleet, Events(None if told is None else told.append))


def admitted(local: LocalLimits, calls: int, now: int = NOW) -> int:
    readings = [local.decide("org_1", WINDOWS, 1, now) for _ in range(calls)]
    return sum(reading is not None and reading.allowed for reading in readings)


def note(local: LocalLimits, used: int = 1, at: int = NOW) -> None:
    """Count an admission after which the store counts so much in each window."""
    reading, _ = hit(empty_state(WINDOWS), WINDOWS, at, used)
    local.note("org_1", WINDOWS, reading, 1, at)


@pytest.mark.parametrize(("fleet", "share"), [(1, 10), (3, 3), (10, 1), (50, 1)])
def test_w15_a_process_admits_its_share_and_at_least_one_of_a_limit(fleet: int, share: int) -> None:
    assert admitted(limits(fleet=fleet), 20) == share
    none = Plan("none", rpm=0, rph=None, rpd=None, concurrent=0).windows
    reading = limits(fleet=fleet).decide("org_1", none, 1, NOW)
    assert reading is not None and not reading.allowed


@pytest.mark.parametrize("noted", [0, 2, 3, 9])
def test_w15_admissions_of_this_process_before_the_outage_are_part_of_its_share(noted: int) -> None:
    local = limits(fleet=3)
    for _ in range(noted):
        note(local)
    assert admitted(local, 20) == max(0, 3 - noted)
    assert admitted(local, 20, NOW + MINUTE) == 3
    assert local.decide("org_2", WINDOWS, 1, NOW) is not None


@pytest.mark.parametrize(("used", "left"), [(7, 3), (9, 1), (10, 0), (1, 4)])
def test_w15_a_store_that_is_slow_for_a_moment_keeps_the_limits_of_its_latest_reading(
    used: int, left: int
) -> None:
    """Of a limit of 10 the other process has had most: that is known for a minute."""
    local = limits(fleet=2)
    note(local, used)
    assert admitted(local, 20) == left
    assert admitted(local, 20, NOW + MINUTE - 1) == 0 if used > 5 else True
    assert admitted(local, 20, NOW + MINUTE + SECOND) == 5


def test_w15_a_refusal_by_the_store_is_its_latest_reading_too() -> None:
    local = limits(fleet=2)
    state = empty_state(WINDOWS)
    _, state = hit(state, WINDOWS, NOW, 10)
    refused, _ = hit(state, WINDOWS, NOW, 1)
    local.note("org_1", WINDOWS, refused, 1, NOW)
    assert admitted(local, 20) == 0


def test_admissions_that_are_counted_together_expire_with_the_last_of_them() -> None:
    local = limits()
    for at in (0, 100_000, 200_000, 300_000):
        note(local, at=NOW + at)
    before = local.decide("org_1", WINDOWS, 6, NOW + MINUTE + 199_999)
    assert before is not None
    assert before.used[0] == 4 + 6
    after = local.decide("org_1", WINDOWS, 1, NOW + MINUTE + 200_000)
    assert after is not None
    assert after.used[0] == 1 + 6 + 1


def test_each_outage_is_two_events_with_the_number_of_local_decisions() -> None:
    told: list[Event] = []
    events = Events(told.append)
    local = LocalLimits("local", 1, events)
    assert admitted(local, 12) == 10
    for _ in range(2):
        note(local, at=NOW + MINUTE)
    assert events.metrics.local_decisions == {"admitted": 10, "refused": 2}
    once = [("limits_fell_back", {"mode": "local"}), ("limits_restored", {"decisions": 12})]
    assert [(event.name, dict(event.fields)) for event in told] == once
    admitted(local, 3, NOW + MINUTE)
    note(local, at=NOW + MINUTE)
    assert [event.name for event in told] == ["limits_fell_back", "limits_restored"] * 2


def test_the_reading_counts_the_shares_of_other_processes_as_used() -> None:
    local = limits(fleet=3)
    reading = local.decide("org_1", WINDOWS, 1, NOW)
    assert reading is not None
    assert (reading.used, reading.remaining) == ((8, 68, 1), 2)
    local.decide("org_1", WINDOWS, 2, NOW)
    refused = local.decide("org_1", WINDOWS, 1, NOW + SECOND)
    assert refused is not None
    assert (refused.allowed, refused.used[0], refused.remaining) == (False, 10, 0)
    assert refused.wait == MINUTE - SECOND


@pytest.mark.parametrize(("noted", "used"), [(0, 8), (2, 10), (3, 10), (9, 10), (10, 10)])
def test_w4_the_reading_never_counts_more_than_the_limit_as_used(noted: int, used: int) -> None:
    """This process may have been admitted more than its share while the store answered."""
    local = limits(fleet=3)
    for _ in range(noted):
        note(local)
    reading = local.decide("org_1", WINDOWS, 1, NOW)
    assert reading is not None
    assert (reading.used[0], reading.allowed) == (used, noted < 3)


def test_w4_a_named_limit_never_counts_more_than_its_limit_as_used() -> None:
    local = limits(fleet=2)
    named = windows_of((Limit("export", "20/minute"),))
    for at in range(15):
        reading = Reading(True, NOW, (at + 1,) * (len(WINDOWS) + 1), 0, NOW, None, None, 0)
        local.note("org_1", WINDOWS, reading, 1, NOW, named)
    for owner, used in (("org_1", 20), ("org_2", 11)):
        found = local.decide(owner, (), 1, NOW, limits=named)
        assert found is not None and found.used == (used,)


def test_open_admits_every_request_and_shows_none_remaining() -> None:
    local = limits("open", fleet=3)
    assert admitted(local, 20) == 20
    reading = local.decide("org_1", WINDOWS, 1, NOW)
    assert reading is not None
    assert (reading.remaining, reading.refused_by, reading.wait) == (0, None, 0)
    closed = limits("closed")
    assert closed.decide("org_1", WINDOWS, 1, NOW) is None
    assert not local.owing and not closed.owing, "nothing is charged later"


class Charged:
    """A store that is charged, or is away."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.failure = failure
        self.costs: list[int] = []

    async def charge(self, organization: str, action: Hit, now: int | None = None) -> Reading:
        windows, cost, _ = action
        assert organization == "org_1"
        assert all(window.limit is None for window in windows)
        self.costs.append(cost)
        if self.failure is not None:
            raise self.failure
        return hit(empty_state(windows), windows, now or NOW, cost)[0]


def flush(local: LocalLimits, store: Charged, now: int = NOW) -> list[int]:
    run(local.flush("org_1", WINDOWS, store.charge, now))
    return store.costs


def test_a_recovered_store_is_charged_once_for_local_admissions() -> None:
    local, store = limits(), Charged()
    assert flush(local, store) == []
    note(local)
    assert admitted(local, 20) == 9
    assert flush(local, store) == [9]
    assert flush(local, store) == [9]
    local.decide("org_1", WINDOWS, 1, NOW + MINUTE)
    assert flush(local, store, NOW + MINUTE) == [9, 1]


def test_local_admissions_that_expired_or_may_be_counted_are_not_charged() -> None:
    local, store = limits(), Charged()
    admitted(local, 4)
    admitted(local, 2, NOW + 40 * SECOND)
    local.decide("org_1", WINDOWS, 1, NOW + 40 * SECOND, may_count=True)
    assert flush(local, store, NOW + MINUTE) == [2]


def test_a_failed_charge_is_repeated_and_an_uncertain_one_is_not() -> None:
    local = limits()
    admitted(local, 4)
    assert flush(local, Charged(StoreUnavailable())) == [4]
    assert flush(local, Charged(Overdue())) == [4]
    assert flush(local, Charged()) == []
    admitted(local, 1)
    with pytest.raises(ValueError, match="a bug"):
        flush(local, Charged(ValueError("a bug")))


@pytest.mark.parametrize(
    ("failure", "counts"),
    [
        (Overdue(), True),
        (OutcomeUnknown(), True),
        (StoreUnavailable(), False),
        (ConnectionRefusedError(), False),
    ],
)
def test_only_a_call_that_was_left_behind_may_still_count(failure: Exception, counts: bool) -> None:
    assert may_have_counted(failure) is counts
    wrapped = OSError()
    wrapped.__cause__ = failure
    assert may_have_counted(wrapped) is (counts and isinstance(failure, TimeoutError))
