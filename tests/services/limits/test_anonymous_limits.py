"""Budgets of client addresses."""

from __future__ import annotations

import tracemalloc

import pytest

from lockgate import Plan
from lockgate.core.plans import ANONYMOUS
from lockgate.core.timestamps import DAY, HOUR, MINUTE
from lockgate.errors import StoreUnavailable
from lockgate.services.limits import anonymous_limits as module
from lockgate.services.limits.anonymous_limits import AnonymousLimits
from tests.stores.making import NOW, HandClock, at_once

PLAN = Plan("anonymous", rpm=3, rph=5, rpd=100, concurrent=0)


def test_an_address_spends_its_budget_and_gets_it_back() -> None:
    clock = HandClock()
    anonymous = AnonymousLimits(PLAN, clock)
    for left in (2, 1, 0):
        assert anonymous.refuses("a") is None
        assert anonymous.charge("a").remaining == left
    refusal = anonymous.refuses("a")
    assert refusal is not None
    assert (refusal.allowed, refusal.refused_by, refusal.wait) == (False, 0, MINUTE)
    assert not anonymous.charge("a").allowed
    assert anonymous.refuses("b") is None
    clock.now += MINUTE - 1
    assert anonymous.refuses("a") is not None
    clock.now += 1
    assert anonymous.refuses("a") is None
    assert [anonymous.charge("a").remaining for _ in range(2)] == [1, 0]
    clock.now += MINUTE
    hour = anonymous.refuses("a")
    assert hour is not None
    assert hour.refused_by == 1
    assert hour.wait == HOUR - 2 * MINUTE


def test_peeking_at_an_address_is_not_charged() -> None:
    anonymous = AnonymousLimits(PLAN, HandClock())
    assert anonymous.peek("a").remaining == 3
    anonymous.charge("a")
    assert [anonymous.peek("a").remaining for _ in range(3)] == [2, 2, 2]


@pytest.mark.parametrize("rpm", [1, 2])
def test_the_number_of_addresses_is_bounded(monkeypatch: pytest.MonkeyPatch, rpm: int) -> None:
    monkeypatch.setattr(module, "_ADDRESSES_AT_MOST", 20)
    monkeypatch.setattr(module, "_SPENT_AT_MOST", 10)
    clock = HandClock()
    anonymous = AnonymousLimits(Plan("anonymous", rpm=rpm, rph=None, rpd=None, concurrent=0), clock)
    for number in range(500):
        for _ in range(1 + number % 2):
            anonymous.charge(f"address {number}")
        clock.now += 1
        assert len(anonymous._addresses._some) <= 60
        assert len(anonymous._addresses.spent) <= 30


def test_many_addresses_at_once_keep_within_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a hundredth of the tables: tracing the memory of whole ones takes a minute."""
    at_most = module._ADDRESSES_AT_MOST // 100
    monkeypatch.setattr(module, "_ADDRESSES_AT_MOST", at_most)
    anonymous = AnonymousLimits(ANONYMOUS, HandClock())
    tracemalloc.start()
    try:
        for number in range(600):
            anonymous.charge(f"2001:db8:{number >> 16:x}:{number & 0xFFFF:x}::/64")
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(anonymous._addresses._some) <= 2 * at_most + at_most // 8
    assert 100 * kept < 40 * 2**20


def test_many_addresses_push_no_spent_address_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """That takes as many spent ones, each of which costs a whole budget."""
    monkeypatch.setattr(module, "_ADDRESSES_AT_MOST", 20)
    monkeypatch.setattr(module, "_SPENT_AT_MOST", 10)
    anonymous = AnonymousLimits(PLAN, HandClock())
    for _ in range(3):
        anonymous.charge("spent")
    for number in range(1000):
        anonymous.charge(f"address {number}")
        assert anonymous.refuses("spent") is not None
        assert not anonymous.peek("spent").allowed
    for number in range(9):
        for _ in range(3):
            anonymous.charge(f"also spent {number}")
        assert anonymous.refuses("spent") is not None


def test_a_spent_address_keeps_its_longer_windows_and_is_as_new_after_days() -> None:
    clock = HandClock()
    anonymous = AnonymousLimits(PLAN, clock)
    for _ in range(3):
        anonymous.charge("a")
    clock.now += MINUTE
    assert anonymous.peek("a").used == (0, 3, 3)
    assert [anonymous.charge("a").used for _ in range(2)] == [(1, 4, 4), (2, 5, 5)]
    refusal = anonymous.refuses("a")
    assert refusal is not None
    assert refusal.refused_by == 1
    clock.now += 3 * DAY
    assert anonymous.refuses("a") is None
    assert anonymous.charge("a").used == (1, 1, 1)


def test_a_streak_ends_where_its_address_is_spent() -> None:
    """Hits of a streak are counted outside the table until it ends."""
    clock = HandClock()
    anonymous = AnonymousLimits(Plan("anonymous", rpm=200, rph=None, rpd=None, concurrent=0), clock)
    for _ in range(200):
        clock.now += 1000
        assert anonymous.charge("a").allowed
    refusal = anonymous.refuses("a")
    assert refusal is not None
    assert refusal.used == (200,) * 3
    assert len(anonymous._addresses._some) == 0


def test_the_addresses_of_an_ipv6_48_have_16_budgets_together_D24() -> None:
    clock = HandClock()
    anonymous = AnonymousLimits(PLAN, clock)
    for _ in range(30):  # Refused ones cost the neighbours nothing.
        anonymous.charge("2001:db8:1::/64")
    for number in range(1, 16):
        allowed = [anonymous.charge(f"2001:db8:1:{number:x}::/64").allowed for _ in range(4)]
        assert allowed == [True] * 3 + [False]
    assert anonymous.has_spent
    for address in ("2001:db8:1::/64", "2001:db8:1:99::/64"):
        refusal = anonymous.refuses(address)
        assert refusal == anonymous.peek(address) == anonymous.charge(address)
        assert refusal is not None
        assert (refusal.allowed, refusal.remaining, refusal.refused_by) == (False, 0, 0)
        assert refusal.used[0] == 3
        assert refusal.wait == MINUTE
    for address in ("2001:db8:2::/64", "192.0.2.1", "unix", "a:b"):
        assert anonymous.refuses(address) is None
        assert anonymous.charge(address).allowed
    clock.now += MINUTE
    assert anonymous.refuses("2001:db8:1:99::/64") is None
    assert anonymous.charge("2001:db8:1:99::/64").allowed


def test_look_ups_under_way_hold_the_budgets_of_their_ipv6_48_D24() -> None:
    anonymous = AnonymousLimits(PLAN, HandClock())
    addresses = [f"2001:db8:1:{number:x}::/64" for number in range(60)]
    for address in addresses[:48]:
        anonymous.hold(address)
    with pytest.raises(StoreUnavailable):
        anonymous.hold(addresses[48])
    for address in ("2001:db8:2::/64", "192.0.2.1"):
        anonymous.hold(address)
    anonymous.release(addresses[0])
    anonymous.hold(addresses[48])
    for address in addresses[1:49]:
        anonymous.release(address)
    assert [*anonymous._proving] == ["2001:db8:2::/64", "2001:db8:2::/48 /48", "192.0.2.1"]


def test_exactly_the_budget_under_32_threads() -> None:
    anonymous = AnonymousLimits(
        Plan("anonymous", rpm=50, rph=None, rpd=None, concurrent=0), HandClock()
    )
    allowed = at_once(32, lambda _: sum(anonymous.charge("a").allowed for _ in range(4)))
    assert sum(allowed) == 50


def test_the_clock_is_the_machines_unless_one_is_given() -> None:
    assert AnonymousLimits(PLAN, None).charge("a").now > NOW - 10**18
