"""Keys that ended are kept for some time, then removed: in the background or on demand (D45)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from random import Random
from time import monotonic, sleep

import pytest

from lockgate import ConfigurationError, Event, Gate, MemoryStore, run
from lockgate.core.timestamps import DAY
from lockgate.errors import NotFound, StoreUnavailable
from lockgate.events import Events
from lockgate.options import KeyOptions, StoreOptions
from lockgate.services.keys.retention import Retention
from lockgate.stores.answers import Removal
from tests.stores.making import HandClock


class Service:
    """A gate with a separate clock."""

    def __init__(self, days: float | None = 400, store: MemoryStore | None = None) -> None:
        self.clock = HandClock()
        self.told: list[Event] = []
        self.store = store or MemoryStore()
        self.gate = Gate(
            self.store,
            brand="acme",
            key_options=KeyOptions(retention_days=days),
            store_options=StoreOptions(clock=self.clock),
            observer=self.told.append,
        )

    def revoked(self, number: int = 1) -> list[str]:
        """Ids of new keys that were revoked."""
        ids = [run(self.gate.keys.create("org_1", "gone")).key.id for _ in range(number)]
        for id in ids:
            run(self.gate.keys.revoke("org_1", id))
        return ids


def test_an_ended_key_is_kept_for_400_days_and_then_removed() -> None:
    service = Service()
    (id,) = service.revoked()
    live = run(service.gate.keys.create("org_1", "live")).key
    short = run(service.gate.keys.create("org_1", "short", expires_in_days=1)).key
    service.clock.now += 400 * DAY - 1
    assert run(service.gate.keys.remove_ended()) == 0
    assert run(service.gate.keys.get("org_1", id)).revoked_at is not None
    service.clock.now += 1
    assert run(service.gate.keys.remove_ended()) == 1
    with pytest.raises(NotFound):
        run(service.gate.keys.get("org_1", id))
    service.clock.now += DAY
    assert {*run(service.gate.keys.list("org_1")).keys} == {live, short}
    assert run(service.gate.keys.remove_ended()) == 1
    assert run(service.gate.keys.list("org_1")).keys == [live]
    removed = [event.fields for event in service.told if event.name == "keys_removed"]
    assert removed == [{"number": 1}, {"number": 1}]


def test_without_a_retention_keys_are_kept_for_ever() -> None:
    service = Service(None)
    (id,) = service.revoked()
    service.clock.now += 10_000 * DAY
    assert run(service.gate.keys.remove_ended()) == 0
    assert run(service.gate.keys.get("org_1", id)).id == id


@pytest.mark.parametrize("days", [0, -1, 0.99, float("nan"), float("inf")])
def test_a_retention_of_less_than_a_day_is_a_mistake(days: float) -> None:
    with pytest.raises(ConfigurationError, match="retention_days"):
        Service(days)


def test_remove_ended_raises_when_the_store_fails() -> None:
    class Broken(MemoryStore):
        async def remove_ended(
            self, age: int, now: int | None = None, cursor: str | None = None
        ) -> Removal:
            raise OSError

    with pytest.raises(StoreUnavailable):
        run(Service(store=Broken()).gate.keys.remove_ended())


class Watched(MemoryStore):
    """Counts steps, and fails at the first on request."""

    def __init__(self, failures: int = 0) -> None:
        super().__init__()
        self.steps: list[Removal] = []
        self.threads: list[threading.Thread] = []
        self.failures = failures

    async def remove_ended(
        self, age: int, now: int | None = None, cursor: str | None = None
    ) -> Removal:
        self.threads.append(threading.current_thread())
        if self.failures:
            self.failures -= 1
            raise OSError
        self.steps.append(await super().remove_ended(age, now, cursor))
        return self.steps[-1]


def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lockgate.stores.runtime.background.EVERY", 0.01)


async def eventually(seen: Callable[[], bool], wait: Callable[[float], Awaitable[None]]) -> None:
    until = monotonic() + 60
    while not seen():
        assert monotonic() < until
        await wait(0.01)


@pytest.mark.parametrize("in_a_loop", [True, False], ids=["loop", "thread"])
def test_using_keys_removes_old_ones_in_background_steps(
    monkeypatch: pytest.MonkeyPatch, in_a_loop: bool
) -> None:
    hurried(monkeypatch)
    service = Service(store=(store := Watched(failures=1)))

    async def work(wait: Callable[[float], Awaitable[None]]) -> None:
        service.revoked(250)
        service.clock.now += 400 * DAY
        service.gate._retention._next = monotonic()
        # The first step fails, hence another use of keys begins the walk again.
        while not store.steps:
            await service.gate.keys.create("org_1", "new")
            await wait(0.02)
        await eventually(lambda: sum(step.removed for step in store.steps) == 250, wait)
        assert max(step.removed for step in store.steps) <= 100
        await service.gate.close()

    async def block(seconds: float) -> None:
        sleep(seconds)

    if in_a_loop:
        asyncio.run(work(asyncio.sleep))
        assert {thread is threading.main_thread() for thread in store.threads} == {True}
    else:
        run(work(block))
        assert threading.main_thread() not in store.threads


def test_a_walk_is_begun_once_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    hurried(monkeypatch)
    service = Service(store=(store := Watched()))

    async def work() -> None:
        service.gate._retention._next = monotonic()
        service.revoked()
        await eventually(lambda: bool(store.steps), asyncio.sleep)
        for _ in range(5):
            service.revoked()
            await asyncio.sleep(0.03)
        assert len(store.steps) == 1
        await service.gate.close()

    asyncio.run(work())


def test_a_process_begins_its_first_walk_after_a_random_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A minute on average: so a process that ends soon mostly begins none."""
    drawn, present = iter([0.5, 2.0]), 1_000.0
    monkeypatch.setattr("lockgate.services.keys.retention.expovariate", lambda _: next(drawn))
    monkeypatch.setattr("lockgate.services.keys.retention.monotonic", lambda: present)
    service = Service(store=(store := Watched()))
    retention = service.gate._retention
    for wait, begins in ((29.9, False), (0.2, True)):
        present += wait
        service.revoked(3)
        assert bool(retention._upkeep._timers) is begins
    assert store.steps == []
    run(service.gate.close())
    retention.forked()  # In a child, which draws for itself.
    assert retention._next == present + 120


def test_workers_that_live_for_seconds_begin_walks_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    present, begun = 0.0, 0
    monkeypatch.setattr("lockgate.services.keys.retention.expovariate", Random(1).expovariate)
    monkeypatch.setattr("lockgate.services.keys.retention.monotonic", lambda: present)
    for _ in range(600):
        retention = Retention(MemoryStore(), 1, None, Events(None))
        present += 6
        begun += present >= retention._next
    assert 30 <= begun <= 90  # An hour of work, as of one process that begins 60.
