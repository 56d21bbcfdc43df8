"""Budgets of client addresses."""

from __future__ import annotations

import pytest

from lockgate import Plan
from lockgate.flows import anonymous as module
from lockgate.flows.anonymous import Anonymous
from lockgate.rules.instants import HOUR, MINUTE
from tests.stores.making import NOW, HandClock, at_once

PLAN = Plan("anonymous", rpm=3, rph=5, rpd=100, concurrent=0)


def test_an_address_spends_its_budget_and_gets_it_back() -> None:
    clock = HandClock()
    anonymous = Anonymous(PLAN, clock)
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
    assert anonymous.spent == set()
    assert [anonymous.charge("a").remaining for _ in range(2)] == [1, 0]
    clock.now += MINUTE
    hour = anonymous.refuses("a")
    assert hour is not None
    assert hour.refused_by == 1
    assert hour.wait == HOUR - 2 * MINUTE


def test_looking_charges_nothing() -> None:
    anonymous = Anonymous(PLAN, HandClock())
    assert anonymous.look("a").remaining == 3
    anonymous.charge("a")
    assert [anonymous.look("a").remaining for _ in range(3)] == [2, 2, 2]


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ADDRESSES_AT_MOST", 20)
    anonymous = Anonymous(Plan("anonymous", rpm=1, rph=1, rpd=1, concurrent=0), HandClock())
    for number in range(100):
        anonymous.charge(f"address {number}")
        assert len(anonymous.spent) <= 20
        assert len(anonymous._windows) <= 60


def test_exactly_the_budget_under_32_threads() -> None:
    anonymous = Anonymous(Plan("anonymous", rpm=50, rph=None, rpd=None, concurrent=0), HandClock())
    allowed = at_once(32, lambda _: sum(anonymous.charge("a").allowed for _ in range(4)))
    assert sum(allowed) == 50


def test_the_clock_is_the_machines_unless_one_is_given() -> None:
    assert Anonymous(PLAN, None).charge("a").now > NOW - 10**18
