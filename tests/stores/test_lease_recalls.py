"""Recalls of quota leases: a holder settles its lease although no request comes."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import pytest

from lockgate import Plan, PlanBook
from lockgate.core.ledger import LeasesOut
from lockgate.core.quota_leases import LONGEST
from lockgate.core.reservations import Reservation
from lockgate.core.timestamps import SECOND
from lockgate.events import Events
from lockgate.stores.answers import Admission, StoreError
from lockgate.stores.lease_recalls import RecallListener
from lockgate.stores.leasing import LeasingStore
from lockgate.stores.memory.store import MemoryStore
from lockgate.stores.resilience.store import ResilientStore
from lockgate.stores.runtime.background import BackgroundTask
from lockgate.sync import loop_runs, run
from tests.patience import until

from .making import draft_of, new_key, token_of

PLANS = PlanBook((Plan("free", 600_000, None, None, 5),))
_PATIENCE = 20


class Recalling(MemoryStore):
    """A store of one process that sends recalls, and fails to receive them as a test asks for."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: queue.Queue[str | None] = queue.Queue()
        self.runs = 0
        self.failures: list[Exception] = []

    async def organization_changed(self, id: str) -> None:
        self.sent.put(id)

    async def recalls(self) -> AsyncGenerator[str | None]:
        self.runs += 1
        if self.failures:
            raise self.failures.pop(0)
        while True:
            if not loop_runs():
                yield self.sent.get(timeout=_PATIENCE)
            elif self.sent.empty():
                await asyncio.sleep(0.001)
            else:
                yield self.sent.get()


@pytest.fixture(autouse=True)
def idle_leases_are_settled_by_recalls_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BackgroundTask, "used", lambda _: None)


@pytest.fixture
def store() -> Iterator[Recalling]:
    store = Recalling()
    yield store
    store.sent.put(None)  # A thread that waits ends.


async def lease(store: MemoryStore) -> LeasingStore:
    """A process that holds a lease of org_1."""
    made = new_key()
    await store.insert(draft_of(made), None)
    holder = LeasingStore(ResilientStore(store, Events(None), deadline=_PATIENCE), LONGEST / SECOND)
    while not await store.charge("org_1", LeasesOut()):
        await holder.admit(token_of(made), 1, PLANS)
    return holder


def test_a_thread_settles_the_lease_that_is_recalled(store: Recalling) -> None:
    for _ in range(3):
        holder = run(lease(store))
        assert [one.name for one in threading.enumerate()].count("lockgate-recalls") == 1
        run(store.organization_changed("org_2"))
        run(store.organization_changed("org_1"))
        until(lambda: not run(store.charge("org_1", LeasesOut())))
        run(holder.settle_idle())
        store.sent.put(None)  # It holds no lease, so it listens no more.
        until(lambda: "lockgate-recalls" not in [one.name for one in threading.enumerate()])
        run(holder.close())


async def test_an_event_loop_settles_the_lease_that_is_recalled_until_it_is_closed(
    store: Recalling,
) -> None:
    before = asyncio.all_tasks()
    holder = await lease(store)
    await store.organization_changed("org_1")
    async with asyncio.timeout(_PATIENCE):
        while await store.charge("org_1", LeasesOut()):
            await asyncio.sleep(0.001)
    await holder.settle_idle()
    store.sent.put(None)
    await ended(before)
    await holder.close()
    holder = await lease(store)
    assert asyncio.all_tasks() - before
    await holder.close()
    await ended(before)


async def ended(before: set[asyncio.Task[Any]]) -> None:
    """Wait until no task listens any more."""
    async with asyncio.timeout(_PATIENCE):
        while asyncio.all_tasks() - before:
            await asyncio.sleep(0.001)


async def test_a_change_is_answered_once_the_recalled_lease_is_settled(store: Recalling) -> None:
    holder = await lease(store)
    (granted,) = await store.charge("org_1", LeasesOut())
    resilient = ResilientStore(store, Events(None), deadline=_PATIENCE)
    await resilient.organization_changed("org_1")
    assert granted not in await store.charge("org_1", LeasesOut())
    await holder.close()


async def test_a_lease_that_is_recalled_before_its_grant_is_answered_ends_at_once(
    store: Recalling, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = new_key()
    await store.insert(draft_of(made), None)
    holder = LeasingStore(store, LONGEST / SECOND)
    granting = store.admit

    async def recalled_meanwhile(*args: Any) -> Admission:
        admission = await granting(*args)
        if admission.lease is not None:
            await holder._recalled("org_1")
        return admission

    monkeypatch.setattr(store, "admit", recalled_meanwhile)
    granted: list[Reservation] = []
    while not granted:
        admission = await holder.admit(token_of(made), 1, PLANS)
        granted += [admission.lease] if admission.lease else []
    assert holder._leases["org_1"].held is None
    assert await store.charge("org_1", LeasesOut()) == ()
    await holder.close()


@pytest.mark.parametrize(("failure", "lines"), [(StoreError("away"), 0), (ValueError("text"), 1)])
def test_a_failure_is_followed_by_another_attempt(
    store: Recalling,
    failure: Exception,
    lines: int,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("lockgate.stores.lease_recalls._AGAIN_AFTER", 0.001)
    store.failures += [failure, failure]
    heard: list[str] = []

    async def recalled(organization: str) -> None:
        heard.append(organization)

    with caplog.at_level(logging.ERROR, "lockgate"):
        listener = RecallListener(store, recalled, lambda: True)
        listener.start()
        run(store.organization_changed("org_1"))
        until(lambda: heard)
        listener.stop()
    assert store.runs == 3
    assert len(caplog.messages) == lines
    assert all("ValueError" in line and "text" not in line for line in caplog.messages)


def test_a_store_without_recalls_is_asked_once() -> None:
    asked: list[None] = []

    class Silent(MemoryStore):
        async def recalls(self) -> AsyncGenerator[str | None]:
            asked.append(None)
            async for organization in super().recalls():
                yield organization

    async def recalled(_: str) -> None: ...

    listener = RecallListener(Silent(), recalled, lambda: True)
    listener.start()
    until(lambda: asked and listener._listening is None)
    listener.start()
    assert listener._listening is None
    assert len(asked) == 1


def test_a_child_process_listens_anew(store: Recalling) -> None:
    holder = run(lease(store))
    holder._recalls.forked()
    run(store.organization_changed("org_1"))
    until(lambda: not run(store.charge("org_1", LeasesOut())))
    runs = store.runs
    run(holder.admit(token_of(new_key()), 1, PLANS))
    assert store.runs == runs  # Without a lease.
    run(holder.close())
