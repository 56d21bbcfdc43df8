"""A slot held by a block, awaited or not: taken, renewed, given back, lost (L3 to L7)."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import Any

import pytest

from lockgate import ConfigurationError, MemoryStore, run
from lockgate.core.timestamps import SECOND
from lockgate.errors import (
    ConcurrentLimitExceeded,
    JobRunning,
    SlotLost,
    StoreUnavailable,
)
from lockgate.services.reservations import renewed_block, slots
from tests.patience import skipping, until
from tests.stores.making import at_once

from ..bench import Bench, Hooked

SHORT = 0.15
"""Seconds of a lease that is to be lost."""
KEPT = 60
"""Seconds of a lease that is not to end by itself, however busy the machine is."""


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Renew a lease of ``KEPT`` seconds ten times a second."""
    assert 1 < renewed_block.BEATS < renewed_block.BEATS_IN_TROUBLE, "often enough for a lease"
    for module in (renewed_block, slots):
        monkeypatch.setattr(module, "BEATS", KEPT * 10)
    monkeypatch.setattr(slots, "BEATS_IN_TROUBLE", KEPT * 10)


class Slots(Bench):
    """A gate by the clock of the machine, whose store fails to renew, hangs, or waits."""

    def __init__(self, store: Any = None) -> None:
        super().__init__(store, clock=None)
        self.renewals = self.failing = 0
        self.renewals_hang = False
        self.entered, self.go_on = asyncio.Event(), asyncio.Event()
        self.go_on.set()
        if store is None:
            self.store.on("acquire", self._acquire)
            self.store.on("renew", self._renew)
            self.store.on("release", self._release)

    async def _slow(self) -> None:
        self.entered.set()
        if not self.go_on.is_set():
            await self.go_on.wait()

    async def _acquire(self, asked: Any, *arguments: Any) -> Any:
        reading = await asked(*arguments)
        await self._slow()
        return reading

    async def _renew(self, asked: Any, *arguments: Any) -> Any:
        if self.failing:
            self.failing -= 1
            raise OSError("the store is away")
        if self.renewals_hang:
            await asyncio.sleep(60)
        self.renewals += 1
        return await asked(*arguments)

    async def _release(self, asked: Any, *arguments: Any) -> Any:
        await self._slow()
        return await asked(*arguments)

    @property
    def jobs(self) -> list[str]:
        """The jobs that hold slots now."""
        return [lease.job for lease in run(self.gate.slots.held("org_1"))]


async def soon(true: Callable[[], bool]) -> None:
    """Wait for a condition that a background task fulfils."""
    async with asyncio.timeout(60):
        while not true():
            await asyncio.sleep(0.002)


# --- awaited ------------------------------------------------------------------------------------


async def test_a_block_holds_a_slot_and_gives_it_back() -> None:
    bench = Slots()
    slot = bench.gate.slot("org_1", "a")
    with pytest.raises(SlotLost):
        slot.check()
    async with slot as entered:
        assert entered is slot
        assert not slot.lost
        slot.check()
        (lease,) = await bench.gate.slots.held("org_1")
        assert (lease.job, lease.owner, lease.span) == ("a", slot.owner, 60 * SECOND)
        async with bench.gate.slot("org_1") as other:
            assert bench.jobs == ["a", other.job]
            with pytest.raises(ConcurrentLimitExceeded):
                await bench.gate.slot("org_1").__aenter__()
    assert bench.jobs == []
    with pytest.raises(SlotLost):
        slot.check()
    assert bench.names == ["slot_lost", "slot_refused"]


async def test_the_slot_is_free_after_any_exception_in_the_block() -> None:
    bench = Slots()
    for error in (ZeroDivisionError, TimeoutError, asyncio.CancelledError, KeyError):

        async def hold(raised: type[BaseException]) -> None:
            async with bench.gate.slot("org_1", "a"):
                raise raised

        with pytest.raises(error):
            await hold(error)
        assert bench.jobs == []
    assert bench.names == []


@pytest.mark.usefixtures("hurried")
async def test_a_running_block_renews_its_lease() -> None:
    bench = Slots()
    async with bench.gate.slot("org_1", "a", seconds=KEPT) as slot:
        (taken,) = await bench.gate.slots.held("org_1")
        await soon(lambda: bench.renewals >= 3)
        assert not slot.lost
        (renewed,) = await bench.gate.slots.held("org_1")
        assert renewed.job == "a"
        assert renewed.deadline > taken.deadline
    renewals = bench.renewals
    await asyncio.sleep(0.5)
    assert bench.renewals == renewals, "nothing beats on"


async def test_a_job_runs_once_in_a_block_that_may_take_over_its_slot() -> None:
    """Callers that choose the id cannot run many jobs in one slot."""
    bench = Slots()
    slot = bench.gate.slot("org_1", "a")
    async with slot:
        with pytest.raises(JobRunning):
            await bench.gate.slot("org_1", "a").__aenter__()
        async with bench.gate.slot("org_2", "a"):
            pass
        assert bench.jobs == ["a"]
        with pytest.raises(ConfigurationError, match="one block"):
            await slot.__aenter__()
    with pytest.raises(ConfigurationError, match="one block"):
        await slot.__aenter__()
    lease = await bench.gate.slots.acquire("org_1", "a", seconds=3600)
    with pytest.raises(JobRunning):
        await bench.gate.slot("org_1", "a", owner="somebody").__aenter__()
    async with bench.gate.slot("org_1", "a", owner=lease.owner, seconds=30):
        (held,) = await bench.gate.slots.held("org_1")
        assert (held.owner, held.span) == (lease.owner, 30 * SECOND)
    assert bench.jobs == []
    async with bench.gate.slot("org_1", "a", owner=lease.owner):  # It was over: taken anew.
        assert bench.jobs == ["a"]


async def test_a_block_whose_slot_is_taken_away_is_cancelled() -> None:
    bench = Slots()
    cleaned = False

    async def hold() -> None:
        nonlocal cleaned
        slot = bench.gate.slot("org_1", "a", seconds=SHORT)
        with pytest.raises(SlotLost):
            slot.check()  # too early
        bench.told.clear()
        async with slot:
            await bench.gate.slots.cancel("org_1", "a")
            await bench.gate.slots.acquire("org_1", "a", owner="the next")
            try:
                await asyncio.sleep(60)
            finally:
                cleaned = True
                assert slot.lost
                with pytest.raises(SlotLost):
                    slot.check()

    with pytest.raises(SlotLost):
        await hold()
    assert cleaned
    assert bench.jobs == ["a"], "L5: what is the next one's stays"
    assert bench.names == ["slot_lost"]
    task = asyncio.current_task()
    assert task is not None and not task.cancelling(), "the task goes on"


@pytest.mark.usefixtures("hurried")
async def test_a_block_whose_store_is_away_ends_with_its_lease() -> None:
    bench = Slots()
    bench.failing = 10**6

    async def hold(skip: Callable[[float], None]) -> None:
        async with bench.gate.slot("org_1", "a", seconds=KEPT) as slot:
            await soon(lambda: bench.names.count("store_failed") >= 3)
            assert not slot.lost
            skip(KEPT)
            await asyncio.sleep(60)

    with skipping() as skip, pytest.raises(SlotLost):
        await hold(skip)
    assert set(bench.names) == {"store_failed", "slot_lost"}
    assert bench.names.count("slot_lost") == 1


async def test_a_block_whose_store_hangs_ends_with_its_lease() -> None:
    bench = Slots()
    bench.renewals_hang = True

    async def hold() -> None:
        async with bench.gate.slot("org_1", "a", seconds=SHORT):
            await asyncio.sleep(60)

    with pytest.raises(SlotLost):
        await hold()
    assert bench.names == ["slot_lost"]


@pytest.mark.usefixtures("hurried")
async def test_a_slot_survives_an_outage_shorter_than_its_lease() -> None:
    bench = Slots()
    bench.failing = 2
    async with bench.gate.slot("org_1", "a", seconds=KEPT) as slot:
        await soon(lambda: bench.renewals > 0)
        assert not slot.lost
    assert set(bench.names) == {"store_failed"}


@pytest.mark.parametrize("goes_on", [False, True])
async def test_a_loop_that_stood_still_finds_its_slot_lost_and_a_block_that_ends_raises_nothing(
    goes_on: bool,
) -> None:
    """As in a suspended process, which cannot renew its lease."""
    bench = Slots()

    async def hold() -> None:
        async with bench.gate.slot("org_1", "a", seconds=SHORT) as slot:
            time.sleep(1.5 * SHORT)
            assert slot.lost
            if goes_on:
                await asyncio.sleep(60)

    with pytest.raises(SlotLost) if goes_on else nullcontext():
        await hold()
    assert bench.names == ["slot_lost"]


async def test_a_store_that_is_away_at_the_end_spoils_no_result() -> None:
    bench = Slots()
    async with bench.gate.slot("org_1", "a"):
        bench.store.failing("release")
    assert bench.names == ["store_failed"]


async def test_a_caller_cancelled_during_the_acquisition_holds_no_slot() -> None:
    bench = Slots()
    bench.go_on.clear()

    async def hold() -> None:
        async with bench.gate.slot("org_1", "a"):
            raise AssertionError("it was cancelled before")

    task = asyncio.create_task(hold())
    await bench.entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert bench.jobs == ["a"]
    bench.go_on.set()
    await soon(lambda: bench.jobs == [])


async def test_a_refusal_after_the_cancellation_of_its_caller_is_not_logged() -> None:
    bench = Slots()
    for job in "bc":
        await bench.gate.slots.acquire("org_1", job)
    bench.go_on.clear()
    bench.entered.clear()
    task = asyncio.create_task(bench.gate.slot("org_1", "a").__aenter__())
    await bench.entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    bench.go_on.set()
    await bench.gate.slots.finishing.flush()
    assert bench.jobs == ["b", "c"]


async def test_a_release_is_finished_although_its_caller_is_cancelled() -> None:
    bench = Slots()

    async def hold() -> None:
        async with bench.gate.slot("org_1", "a"):
            bench.go_on.clear()
            bench.entered.clear()

    task = asyncio.create_task(hold())
    await soon(lambda: bench.entered.is_set() and not bench.go_on.is_set())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert bench.jobs == ["a"]
    closing = asyncio.create_task(bench.gate.close())
    await asyncio.sleep(0.01)
    assert not closing.done(), "closing waits for what is being given back"
    bench.go_on.set()
    await closing
    assert bench.jobs == []


async def test_a_block_refuses_a_store_of_another_io_mode() -> None:
    class Blocking(MemoryStore):
        io = "sync"

    class Awaited(MemoryStore):
        io = "async"

    with pytest.raises(ConfigurationError, match="Blocking waits in the calling thread"):
        await Slots(Blocking()).gate.slot("org_1").__aenter__()
    with pytest.raises(ConfigurationError, match="Awaited needs an event loop"):
        Slots(Awaited()).gate.slot("org_1").__enter__()
    with pytest.raises(ConfigurationError, match="use 'async with'"):
        Slots().gate.slot("org_1").__enter__()


# --- in a thread --------------------------------------------------------------------------------


def beating() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "lockgate-slot"]


@pytest.mark.usefixtures("hurried")
def test_a_blocking_block_holds_renews_and_gives_back() -> None:
    bench = Slots()
    with bench.gate.slot("org_1", "a", seconds=KEPT) as slot:
        until(lambda: len(beating()) == 1)  # That of the test before may not have ended yet.
        until(lambda: bench.renewals >= 3)
        slot.check()
        assert bench.jobs == ["a"]
    assert bench.jobs == []
    until(lambda: beating() == [])
    with pytest.raises(ZeroDivisionError), bench.gate.slot("org_1", "a"):
        raise ZeroDivisionError
    assert bench.jobs == []
    until(lambda: beating() == [])
    assert bench.names == []


async def test_a_loss_that_another_thread_sees_meanwhile_is_reported_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Slots()
    slot = bench.gate.slot("org_1", "a")

    def seen(self: object, name: str, value: object) -> None:
        object.__setattr__(self, name, value)
        if slot.lost:
            with suppress(SlotLost):
                slot.check()

    async with slot:
        await bench.gate.slots.cancel("org_1", "a")
        with monkeypatch.context() as patched:
            patched.setattr(type(slot), "__setattr__", seen, raising=False)
            await slot._renew()
    assert bench.names == ["slot_lost"]


@pytest.mark.usefixtures("hurried")
def test_a_blocking_block_asks_whether_its_slot_is_lost() -> None:
    bench = Slots()

    def hold() -> None:
        with bench.gate.slot("org_1", "a", seconds=KEPT) as slot:
            run(bench.gate.slots.cancel("org_1", "a"))
            run(bench.gate.slots.acquire("org_1", "a", owner="the next"))
            while not slot.lost:
                time.sleep(0.005)
            slot.check()

    with pytest.raises(SlotLost):
        hold()
    assert bench.jobs == ["a"], "L5"
    assert bench.names == ["slot_lost"]


def test_a_blocking_block_whose_store_is_away_knows_when_its_lease_is_over() -> None:
    bench = Slots()
    bench.failing = 10**6
    began = time.monotonic()
    with bench.gate.slot("org_1", "a", seconds=SHORT) as slot:
        while not slot.lost:
            time.sleep(0.005)
        assert time.monotonic() - began >= SHORT
    assert set(bench.names) - {"store_failed"} == {"slot_lost"}
    assert bench.names.count("slot_lost") == 1
    until(lambda: beating() == [])


def test_l1_as_many_threads_get_in_as_there_are_slots() -> None:
    bench = Slots()
    inside: list[int] = []
    most: list[int] = []
    full = threading.Barrier(8)

    def hold(index: int) -> bool:
        try:
            with bench.gate.slot("org_1"):
                inside.append(index)
                most.append(len(inside))
                full.wait(60)
                inside.remove(index)
                return True
        except ConcurrentLimitExceeded:
            full.wait(60)
            return False

    assert sum(at_once(8, hold)) == max(most) == 2
    assert bench.jobs == []


def test_a_thread_that_cannot_be_started_leaves_no_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    bench = Slots()
    monkeypatch.setattr(threading.Thread, "start", fail)
    with pytest.raises(RuntimeError, match="new thread"):
        bench.gate.slot("org_1", "a").__enter__()
    assert bench.jobs == []


def test_no_block_begins_while_the_store_is_away() -> None:
    bench = Bench(Hooked().failing("acquire"))
    with pytest.raises(StoreUnavailable):
        bench.gate.slot("org_1", "a").__enter__()
