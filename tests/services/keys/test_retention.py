"""Keys that ended are kept for some time, then removed: in the background or on demand (D45)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from random import Random
from time import monotonic, sleep
from typing import Any

import pytest

from lockgate import ConfigurationError, MemoryStore, run
from lockgate.core.timestamps import DAY
from lockgate.errors import NotFound, StoreUnavailable
from lockgate.events import Events
from lockgate.options import KeyOptions
from lockgate.services.keys.retention import Retention
from lockgate.stores.answers import Removal

from ..bench import Bench, Hooked


class Service(Bench):
    """A gate whose store notes its steps of removal, and fails at the first on request."""

    def __init__(self, days: float | None = 400, *, failures: int = 0) -> None:
        super().__init__(key_options=KeyOptions(retention_days=days))
        self.steps: list[Removal] = []
        self.threads: list[threading.Thread] = []
        self.failures = failures
        self.store.on("remove_ended", self._remove)

    async def _remove(self, asked: Any, *arguments: Any) -> Removal:
        self.threads.append(threading.current_thread())
        if self.failures:
            self.failures -= 1
            raise OSError
        self.steps.append(await asked(*arguments))
        return self.steps[-1]

    def revoked(self, number: int = 1) -> list[str]:
        """Ids of new keys that were revoked."""
        ids = [self.create().key.id for _ in range(number)]
        for id in ids:
            run(self.gate.keys.revoke("org_1", id))
        return ids


def test_an_ended_key_is_kept_for_400_days_and_then_removed() -> None:
    service = Service()
    keys = service.gate.keys
    (id,) = service.revoked()
    live, short = service.create().key, service.create(expires_in_days=1).key
    service.clock.now += 400 * DAY - 1
    assert run(keys.remove_ended()) == 0
    assert run(keys.get("org_1", id)).revoked_at is not None
    service.clock.now += 1
    assert run(keys.remove_ended()) == 1
    with pytest.raises(NotFound):
        run(keys.get("org_1", id))
    service.clock.now += DAY
    assert {*run(keys.list("org_1")).keys} == {live, short}
    assert run(keys.remove_ended()) == 1
    assert run(keys.list("org_1")).keys == [live]
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
    with pytest.raises(StoreUnavailable):
        run(Bench(Hooked().failing("remove_ended")).gate.keys.remove_ended())


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lockgate.stores.runtime.background.EVERY", 0.01)


async def eventually(seen: Callable[[], bool], wait: Callable[[float], Awaitable[None]]) -> None:
    until = monotonic() + 60
    while not seen():
        assert monotonic() < until
        await wait(0.01)


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("in_a_loop", [True, False], ids=["loop", "thread"])
def test_using_keys_removes_old_ones_in_background_steps(in_a_loop: bool) -> None:
    service = Service(failures=1)
    steps = service.steps

    async def work(wait: Callable[[float], Awaitable[None]]) -> None:
        service.revoked(250)
        service.clock.now += 400 * DAY
        service.gate._retention._next = monotonic()
        # The first step fails, hence another use of keys begins the walk again.
        while not steps:
            await service.gate.keys.create("org_1", "new")
            await wait(0.02)
        await eventually(lambda: sum(step.removed for step in steps) == 250, wait)
        assert max(step.removed for step in steps) <= 100
        await eventually(lambda: steps[-1].cursor is None, wait)
        number = len(steps)
        for _ in range(5):  # A walk is begun once an hour.
            service.revoked()
            await wait(0.03)
        assert len(steps) == number
        await service.gate.close()

    async def block(seconds: float) -> None:
        sleep(seconds)

    if in_a_loop:
        asyncio.run(work(asyncio.sleep))
        assert {thread is threading.main_thread() for thread in service.threads} == {True}
    else:
        run(work(block))
        assert threading.main_thread() not in service.threads


def test_a_process_begins_its_first_walk_after_a_random_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A minute on average: so a process that ends soon mostly begins none."""
    drawn, present = iter([0.5, 2.0]), 1_000.0
    monkeypatch.setattr("lockgate.services.keys.retention.expovariate", lambda _: next(drawn))
    monkeypatch.setattr("lockgate.services.keys.retention.monotonic", lambda: present)
    service = Service()
    retention = service.gate._retention
    for wait, begins in ((29.9, False), (0.2, True)):
        present += wait
        service.revoked(3)
        assert bool(retention._upkeep._timers) is begins
    assert service.steps == []
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
