"""Holds whose blocks end while the store is away are settled when it is back."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from lockgate import Event, Limit, run
from lockgate.core.holds import Settle
from lockgate.errors import StoreUnavailable
from lockgate.services.reservations import settlements as late_settlements
from tests.patience import SECONDS

from ..bench import Bench as Plain
from ..bench import Hooked

TOKENS = Limit("tokens", "100/minute")


class Bench(Plain):
    """A gate over a store that settles nothing for a while, or whose replies are lost."""

    def __init__(self) -> None:
        super().__init__(Hooked())
        self.away = self.replies_lost = False
        self.settled = threading.Event()
        self.store.on("hold", self._hold)

    async def _hold(self, asked: Any, organization: str, action: object, now: int | None) -> Any:
        settles = isinstance(action, Settle)
        if self.away and settles:
            raise OSError
        answer = await asked(organization, action, now)
        if self.replies_lost and settles:
            raise OSError
        if settles:
            self.settled.set()
        return answer

    def use(self, units: int) -> None:
        """Hold 100 units and end the block while the store settles nothing."""
        with self.gate.hold("org_1", {TOKENS: 100}) as hold:
            self.away = True
            hold.used(units)
        self.away = False

    async def use_in_loop(self, units: int) -> None:
        """Do the same in an event loop."""
        async with self.gate.hold("org_1", {TOKENS: 100}) as hold:
            self.away = True
            hold.used(units)
        self.away = False

    def left(self) -> int:
        (usage,) = run(self.gate.holds.usage("org_1"))
        return usage.most - usage.used


@pytest.mark.parametrize("ending", ["flush", "close"])
@pytest.mark.parametrize("awaits", [False, True])
def test_a_block_that_ends_in_an_outage_is_settled_by_flush_or_close(
    ending: str, awaits: bool
) -> None:
    bench = Bench()

    async def end() -> None:
        await bench.use_in_loop(30)
        bench.away = True
        await bench.gate.flush()
        assert bench.left() == 0
        bench.away = False
        await getattr(bench.gate, ending)()

    if awaits:
        asyncio.run(end())
    else:
        bench.use(30)
        assert bench.left() == 0
        run(getattr(bench.gate, ending)())
    assert bench.left() == 70
    assert "hold_lost" not in bench.names


async def test_a_gate_that_is_closed_in_an_outage_tells_how_many_holds_it_leaves(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    for _ in range(2):
        async with bench.gate.hold("org_1", {TOKENS: 40}) as hold:
            bench.away = True
            hold.used(30)
    await bench.gate.close()
    assert bench.names.count("hold_lost") == 2
    assert "2 holds are used in full at their deadlines" in caplog.text
    assert bench.left() == 20


async def test_the_event_loop_settles_in_the_background() -> None:
    bench = Bench()
    await bench.use_in_loop(30)
    assert await asyncio.to_thread(bench.settled.wait, SECONDS)
    assert bench.left() == 70


def test_a_thread_settles_in_the_background_again_and_again() -> None:
    bench = Bench()
    bench.use(30)
    bench.away = True
    run(bench.gate.flush())
    bench.away = False
    assert bench.settled.wait(SECONDS)
    run(bench.gate.flush())
    assert bench.left() == 70


def test_a_settlement_whose_reply_was_lost_counts_once_H3() -> None:
    bench = Bench()
    with bench.gate.hold("org_1", {TOKENS: 100}) as hold:
        bench.replies_lost = True
        hold.used(30)
    bench.replies_lost = False
    for _ in range(2):
        assert bench.left() == 70
        run(bench.gate.flush())
    assert not {"hold_lost", "hold_overrun"} & {*bench.names}


@pytest.mark.parametrize("reason", ["deadline", "number"])
def test_a_hold_past_its_deadline_or_one_too_many_is_given_up_and_told_once(
    reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench()
    if reason == "number":
        monkeypatch.setattr(late_settlements, "AT_MOST", 0)
    bench.use(30)
    now = time.monotonic()
    monkeypatch.setattr(late_settlements, "monotonic", lambda: now + 61)
    for _ in range(2):
        run(bench.gate.flush())
        assert bench.told[-1] == Event("hold_lost", {"organization": "org_1"})
        assert bench.left() == 0
        assert bench.names.count("hold_lost") == 1


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
