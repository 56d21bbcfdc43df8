"""Holds whose blocks end while the store is away are settled when it is back."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from lockgate import Event, Gate, Limit, run
from lockgate.core.holds import HoldAction, HoldAnswer, Settle
from lockgate.core.timestamps import SECOND
from lockgate.errors import StoreUnavailable
from lockgate.options import StoreOptions
from lockgate.services.reservations import settlements as late_settlements
from tests.by_verbs import MemoryByVerbs
from tests.patience import SECONDS

TOKENS = Limit("tokens", "100/minute")
NOW = 1_700_000_000 * SECOND


class Away(MemoryByVerbs):
    """A store that settles nothing for a while, or whose replies are lost."""

    def __init__(self) -> None:
        super().__init__()
        self.away = self.replies_lost = False
        self.settled = threading.Event()

    async def hold(
        self, organization: str, action: HoldAction, now: int | None = None
    ) -> HoldAnswer:
        if self.away and isinstance(action, Settle):
            raise OSError
        answer = await super().hold(organization, action, now)
        if isinstance(action, Settle):
            if self.replies_lost:
                raise OSError
            self.settled.set()
        return answer


class Bench:
    """A gate over such a store, its clock, and the events that it emitted."""

    def __init__(self) -> None:
        self.now = NOW
        self.store = Away()
        self.told: list[Event] = []
        self.gate = Gate(
            self.store,
            brand="acme",
            store_options=StoreOptions(clock=lambda: self.now),
            observer=self.told.append,
        )

    @property
    def names(self) -> set[str]:
        return {event.name for event in self.told}

    def use(self, units: int) -> None:
        """Hold 100 units and end the block while the store settles nothing."""
        with self.gate.hold("org_1", {TOKENS: 100}) as hold:
            self.store.away = True
            hold.used(units)
        self.store.away = False

    def left(self) -> int:
        (usage,) = run(self.gate.holds.usage("org_1"))
        return usage.most - usage.used


def test_a_block_that_ends_in_an_outage_is_settled_by_flush() -> None:
    bench = Bench()
    bench.use(30)
    assert bench.left() == 0
    run(bench.gate.flush())
    assert bench.left() == 70
    assert "hold_lost" not in bench.names


async def test_an_asynchronous_block_that_ends_in_an_outage_is_settled_by_close() -> None:
    bench = Bench()
    async with bench.gate.hold("org_1", {TOKENS: 100}) as hold:
        bench.store.away = True
        hold.used(30)
    await bench.gate.flush()
    (usage,) = await bench.gate.holds.usage("org_1")
    assert usage.held == 100
    bench.store.away = False
    await bench.gate.close()
    (usage,) = await bench.gate.holds.usage("org_1")
    assert (usage.used, usage.held) == (30, 0)


async def test_a_gate_that_is_closed_in_an_outage_tells_how_many_holds_it_leaves(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    for _ in range(2):
        async with bench.gate.hold("org_1", {TOKENS: 40}) as hold:
            bench.store.away = True
            hold.used(30)
    await bench.gate.close()
    assert [event.name for event in bench.told].count("hold_lost") == 2
    assert "2 holds are used in full at their deadlines" in caplog.text
    (usage,) = await bench.gate.holds.usage("org_1")
    assert usage.held == 80


async def test_the_event_loop_settles_in_the_background() -> None:
    bench = Bench()
    async with bench.gate.hold("org_1", {TOKENS: 100}) as hold:
        bench.store.away = True
        hold.used(30)
    bench.store.away = False
    assert await asyncio.to_thread(bench.store.settled.wait, SECONDS)
    (usage,) = await bench.gate.holds.usage("org_1")
    assert (usage.used, usage.held) == (30, 0)


def test_a_thread_settles_in_the_background_again_and_again() -> None:
    bench = Bench()
    with bench.gate.hold("org_1", {TOKENS: 100}) as hold:
        bench.store.away = True
        hold.used(30)
    run(bench.gate.flush())
    bench.store.away = False
    assert bench.store.settled.wait(SECONDS)
    run(bench.gate.flush())
    assert bench.left() == 70


def test_a_settlement_whose_reply_was_lost_counts_once_H3() -> None:
    bench = Bench()
    with bench.gate.hold("org_1", {TOKENS: 100}) as hold:
        bench.store.replies_lost = True
        hold.used(30)
    bench.store.replies_lost = False
    assert bench.left() == 70
    run(bench.gate.flush())
    assert bench.left() == 70
    assert not {"hold_lost", "hold_overrun"} & bench.names


def test_a_hold_past_its_deadline_is_given_up_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    bench.use(30)
    now = time.monotonic()
    monkeypatch.setattr(late_settlements, "monotonic", lambda: now + 61)
    run(bench.gate.flush())
    assert bench.told[-1] == Event("hold_lost", {"organization": "org_1"})
    assert bench.left() == 0
    run(bench.gate.flush())
    assert [event.name for event in bench.told].count("hold_lost") == 1


def test_the_number_of_settlements_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late_settlements, "AT_MOST", 0)
    bench = Bench()
    bench.use(30)
    run(bench.gate.flush())
    assert bench.told[-1] == Event("hold_lost", {"organization": "org_1"})
    assert bench.left() == 0


def test_a_settlement_that_always_fails_does_not_stop_the_others() -> None:
    holds, settled, lost = Bench().gate.holds, list[str](), list[str]()

    async def settle(id: str, used: Any = None) -> bool:
        if id == "broken":
            raise StoreUnavailable
        settled.append(id)
        return True

    def lose(id: str) -> None:
        lost.append(id)

    holds.settle = settle  # type: ignore[method-assign]
    holds.lose = lose  # type: ignore[method-assign]
    for id in ("broken", "a", "b"):
        holds.late.add(id, 1, 60)
    run(holds.flush())
    assert settled == []
    run(holds.close())
    assert settled == ["a", "b"]
    assert lost == ["broken"]


def test_a_child_process_leaves_settlements_to_its_parent() -> None:
    bench = Bench()
    bench.use(30)
    bench.gate.holds.late.forked()
    run(bench.gate.flush())
    assert bench.left() == 0
