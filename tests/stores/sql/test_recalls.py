"""Recalls of quota leases, from one store of a database to another."""

from __future__ import annotations

import asyncio
import queue
import re
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any, TypeVar

import pytest
from sqlalchemy import create_engine, event, make_url, select, text, update

from lockgate import Plan, PlanBook
from lockgate.core.changes import drafted_change
from lockgate.core.ledger import Action, HitLeased, LeasesOut, settling
from lockgate.core.plans import Organization
from lockgate.core.quota_leases import LONGEST, LeaseRequest, Settlement
from lockgate.core.reservations import Reservation
from lockgate.core.timestamps import SECOND
from lockgate.events import Events
from lockgate.stores.answers import StoreError, Verdict
from lockgate.stores.leasing import LeasingStore
from lockgate.stores.resilience.older_leases import noted_leases
from lockgate.stores.resilience.store import ResilientStore
from lockgate.stores.runtime.background import BackgroundTask
from lockgate.stores.sql import SqlStore
from lockgate.stores.sql.statements import Cursor, Query
from lockgate.sync import run
from tests.patience import until
from tests.stores.making import draft_of, new_key, token_of

from .backends import BACKENDS, Borrowed, await_locks, driver_of

A = TypeVar("A")

PLANS = PlanBook((Plan("free", 600_000, None, None, 5),))
ODD = ["org_1", "", " ", "\0", "\ud800", "é" * 100, "a\r\nb", "it's", ":"]
AWAITED = "postgresql+psycopg_async", "postgresql+asyncpg"
POLLED = "mysql+pymysql", "mysql+asyncmy"
ENGINES = "sqlite engine", "postgresql engine", "mysql+pymysql engine"
"""The host's engines, which block; the other ways are URLs."""
_PATIENCE = 60


def opened(way: str, sender: Borrowed) -> Borrowed:
    """Another store in the database of a store."""
    driver, _, engine = way.partition(" ")
    backend = driver_of(driver)
    if engine:
        url = make_url(backend.by(driver)).difference_update_query(["mode"])
        return backend.open(create_engine(url), beside=sender)
    return backend.open(backend.by(driver), beside=sender)


@pytest.fixture
def sender(request: pytest.FixtureRequest) -> Iterator[Borrowed]:
    store = BACKENDS[re.split("[+ ]", request.param)[0]].open()
    yield store
    run(store.close())


def ways(*names: str) -> pytest.MarkDecorator:
    """Run a test on stores that are reached in several ways."""
    return pytest.mark.parametrize(
        ("sender", "way"), [(name, name) for name in names], indirect=["sender"], ids=names
    )


async def received(store: SqlStore, sender: SqlStore, ids: list[str]) -> list[str]:
    """What a listener receives of some recalls, and of those before; the last is repeated."""
    heard: list[str] = []
    lasts: list[None] = []
    begun, sent = asyncio.Event(), asyncio.Event()

    async def listen(recalls: AsyncGenerator[str | None]) -> None:
        async for organization in recalls:
            if organization == "begin":
                begun.set()
            if organization == ids[-1] and sent.is_set():
                lasts.append(None)
                if len(lasts) > 1:  # Those that are found by one look have no order.
                    return
            if organization not in (None, "begin", ids[-1]):
                heard.append(organization)

    recalls = store.recalls()
    listening = asyncio.create_task(listen(recalls))
    async with asyncio.timeout(_PATIENCE):
        while not begun.is_set():  # A recall before the listener is connected may be lost.
            await asyncio.to_thread(run, sender.organization_changed("begin"))
            await asyncio.sleep(0.01)
        for id in ids[:-1]:
            await asyncio.to_thread(run, sender.organization_changed(id))
        sent.set()
        while not listening.done():
            await asyncio.to_thread(run, sender.organization_changed(ids[-1]))
            await asyncio.sleep(0.01)
        await listening
    await recalls.aclose()
    return heard


@ways("sqlite", "sqlite engine", "postgresql", *AWAITED, *POLLED)
async def test_recalls_of_another_process_arrive_unchanged(way: str, sender: Borrowed) -> None:
    store = opened(way, sender)
    assert set(await received(store, sender, [*ODD, "last"])) >= set(ODD)
    await store.close()


@ways("sqlite", "postgresql", "mysql+pymysql", *ENGINES)
def test_a_thread_receives_recalls_until_it_stops_to_ask(way: str, sender: Borrowed) -> None:
    run(sender.put_organization(Organization("org_1", "free")))
    store = opened(way, sender)
    heard: queue.Queue[str | None] = queue.Queue()
    stops = threading.Event()

    async def listen() -> None:
        recalls = store.recalls()
        async for organization in recalls:
            heard.put(organization)
            if stops.is_set():
                break
        await recalls.aclose()

    thread = threading.Thread(target=lambda: run(listen()))
    thread.start()
    end = time.monotonic() + _PATIENCE
    while "org_1" not in heard.queue:
        assert time.monotonic() < end
        run(sender.organization_changed("org_1"))
        time.sleep(0.01)
    stops.set()
    thread.join(_PATIENCE)
    assert not thread.is_alive()
    run(store.close())


@ways("sqlite", "postgresql", *AWAITED, *POLLED)
async def test_a_listener_receives_the_latest_recalls_before(way: str, sender: Borrowed) -> None:
    first = None
    async with asyncio.timeout(_PATIENCE):
        while first is None:  # A busy machine may take longer than the span that is asked about.
            await asyncio.to_thread(run, sender.organization_changed("org_1"))
            store = opened(way, sender)
            recalls = store.recalls()
            first = await anext(recalls)
            await recalls.aclose()
            await store.close()
    assert first == "org_1"


@ways("postgresql")
def test_stores_of_one_database_receive_their_own_recalls(way: str, sender: Borrowed) -> None:
    other = BACKENDS["postgresql"].open()
    for one in (sender, other):
        run(one.put_organization(Organization("last", "free")))

    async def both() -> list[str]:
        store = opened(way, sender)
        await asyncio.to_thread(run, other.organization_changed("org_1"))
        heard = await received(store, sender, ["org_2", "last"])
        await store.close()
        return heard

    assert set(asyncio.run(both())) == {"org_2"}
    run(other.close())


@ways("postgresql", *AWAITED)
async def test_a_lost_connection_is_a_failure_of_the_store(
    way: str, sender: Borrowed, caplog: pytest.LogCaptureFixture
) -> None:
    store = opened(way, sender)
    recalls = store.recalls()

    async def first() -> str | None:
        async for organization in recalls:
            if organization is not None:
                return organization
        return None

    waiting = asyncio.create_task(first())
    async with asyncio.timeout(_PATIENCE):
        while not waiting.done():
            await asyncio.to_thread(run, sender.organization_changed("org_1"))
            await asyncio.sleep(0.01)
        failing = asyncio.create_task(failure_of(recalls))
        await asyncio.to_thread(end_listeners)
        assert isinstance(await failing, StoreError)
    assert not caplog.records, "the caller tells it"
    assert "org_2" in await received(store, sender, ["org_2", "last"])
    await store.close()


def end_listeners() -> None:
    """End every connection that listens, at the server."""
    ended = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE query LIKE :query"
    with BACKENDS["postgresql"].admin.connect() as connection:
        assert connection.scalar(text(ended), {"query": "LISTEN %"})


async def failure_of(recalls: AsyncGenerator[str | None]) -> Exception:
    try:
        async for _ in recalls:
            pass
    except StoreError as failure:
        return failure
    raise AssertionError


CHANGES: dict[str, Callable[[SqlStore, Any], Any]] = {
    "revoke_if_live": lambda store, key: store.revoke_if_live("org_1", key.id),
    "organization_changed": lambda store, _: store.organization_changed("org_1"),
}
"""A commit, and what is a recall alone: by each other change the contract is checked."""


@pytest.mark.parametrize("driver", ["postgresql", *AWAITED])
@pytest.mark.parametrize("verb", sorted(CHANGES))
def test_a_change_sends_one_recall_at_its_commit(verb: str, driver: str) -> None:
    store = BACKENDS["postgresql"].open()
    key = run(store.insert(draft_of(new_key()), None))
    with BACKENDS["postgresql"].admin.connect() as connection:
        listening = connection.connection.driver_connection
        assert listening is not None
        sent: list[str] = []
        listening.add_notify_handler(lambda notification: sent.append(notification.payload))
        connection.execute(text("LISTEN lockgate_recalls"))
        connection.commit()
        if driver == "postgresql":
            run(CHANGES[verb](store, key))
        else:

            async def change() -> None:
                awaiting = opened(driver, store)
                await CHANGES[verb](awaiting, key)
                await awaiting.close()

            asyncio.run(change())

        def received() -> list[str]:
            connection.execute(text("SELECT 1"))
            connection.commit()
            return sent

        until(received)
        connection.execute(text("UNLISTEN lockgate_recalls"))
        connection.commit()
        connection.invalidate()  # With its handler.
    assert sent == [f"{store.prefix}:{b'org_1'.hex()}"]
    run(store.close())


@ways("sqlite", "postgresql", *AWAITED, *POLLED)
async def test_k4_a_change_notes_the_leases_that_were_out_at_it(way: str, sender: Borrowed) -> None:
    made = new_key()
    key = await asyncio.to_thread(run, sender.insert(draft_of(made), None))
    store, request = opened(way, sender), LeaseRequest("0" * 16, 10, LONGEST)
    for _ in range(2):
        assert await store.charge("org_1", LeasesOut()) == ()  # Before anything else.
    lease = (await store.admit(token_of(made), 1, PLANS, lease=request)).lease
    assert lease is not None
    assert await store.charge("org_1", LeasesOut(in_use=True)) == (lease,)
    with noted_leases() as noted:
        await store.revoke_if_live("org_1", key.id)
    assert noted == [(lease,)]
    await store.charge("org_1", settling(PLANS.default.windows, [Settlement(lease.id, ())]))
    with noted_leases() as noted:
        await store.put_organization(Organization("org_1", "free"))
    assert noted == [()]
    await store.close()


@ways("postgresql", *AWAITED)
async def test_k4_a_change_waits_for_no_lease_whose_settlement_waits(
    way: str, sender: Borrowed
) -> None:
    """The settlements of an organization follow one another."""
    made = new_key()
    await asyncio.to_thread(run, sender.insert(draft_of(made), None))
    store, leases = opened(way, sender), list[Reservation]()
    for number in range(2):
        request = LeaseRequest(f"{number:016}", 10, LONGEST)
        lease = (await store.admit(token_of(made), 1, PLANS, lease=request)).lease
        assert lease is not None
        leases.append(lease)
    admin, table = BACKENDS["postgresql"].admin, sender.tables.organizations
    settled = [Settlement(leases[1].id, ())]
    with admin.connect() as connection:
        connection.execute(select(table.c.id).with_for_update())
        assert await store.charge("org_1", LeasesOut(in_use=True)) == tuple(leases)
        sent = asyncio.create_task(store.charge("org_1", settling(PLANS.default.windows, settled)))
        await asyncio.to_thread(await_locks, admin)
        assert await store.charge("org_1", LeasesOut(in_use=True)) == (leases[0],)
        assert await store.charge("org_1", LeasesOut()) == tuple(leases)
    await sent
    assert (
        await store.charge("org_1", LeasesOut(in_use=True))
        == await store.charge("org_1", LeasesOut())
        == (leases[0],)
    )
    assert await store.charge("org_2", LeasesOut(in_use=True)) == ()
    await store.close()


@pytest.mark.parametrize("kind", BACKENDS)
def test_a_key_is_revoked_although_the_leases_cannot_be_read(kind: str) -> None:
    store = BACKENDS[kind].open()
    key = run(store.insert(draft_of(new_key()), None))
    with BACKENDS[kind].admin.begin() as connection:
        connection.execute(update(store.tables.organizations).values(windows=b"\xff"))
    with noted_leases() as noted:
        revoked = run(store.revoke_if_live("org_1", key.id))
    assert revoked is not None
    assert revoked.revoked_at is not None
    assert noted == []
    run(store.close())


@pytest.mark.parametrize("kind", ["sqlite", "mysql"])
def test_a_gate_revokes_in_few_statements_where_no_lease_is_out(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, change = BACKENDS[kind].blocking(), drafted_change("key_revoked")
    store = BACKENDS[kind].open(engine)
    keys = [run(store.insert(draft_of(new_key()), None)) for _ in range(2)]
    resilient, statements = ResilientStore(store, Events(None), deadline=_PATIENCE), list[str]()
    run(resilient.revoke_if_live("org_1", keys[0].id, change=change))  # Later ones find a counter.
    event.listen(engine, "before_cursor_execute", lambda *a: statements.append(a[2]))
    execute = Cursor._execute

    def counted(cursor: Cursor, query: Query) -> Any:
        statements.append(str(query.statement))
        return execute(cursor, query)

    monkeypatch.setattr(Cursor, "_execute", counted)
    run(resilient.revoke_if_live("org_1", keys[1].id, change=change))
    assert len(statements) == 8, statements
    run(store.close())


@ways("sqlite", "postgresql", *AWAITED, *POLLED)
async def test_a_revocation_has_an_idle_process_settle_its_lease(
    way: str, sender: Borrowed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No request settles it, and no timer."""
    monkeypatch.setattr(BackgroundTask, "used", lambda _: None)
    made = new_key()
    key = await asyncio.to_thread(run, sender.insert(draft_of(made), None))
    settled = asyncio.Event()
    store = opened(way, sender)
    charging = store.charge

    async def charge(owner: str, action: Action[A], now: int | None = None) -> A:
        asked: object = action
        answer = await charging(owner, action, now)
        if isinstance(asked, HitLeased) and not asked.cost:
            settled.set()
        return answer

    monkeypatch.setattr(store, "charge", charge)
    holder = LeasingStore(ResilientStore(store, Events(None), deadline=_PATIENCE), LONGEST / SECOND)
    async with asyncio.timeout(_PATIENCE):
        while not settled.is_set():  # Until it listens.
            await holder.admit(token_of(made), 1, PLANS)
            await asyncio.to_thread(run, sender.organization_changed("org_1"))
        while not await store.charge("org_1", LeasesOut()):
            await holder.admit(token_of(made), 1, PLANS)
        settled.clear()
        revoking = ResilientStore(sender, Events(None), deadline=_PATIENCE)
        await asyncio.to_thread(run, revoking.revoke_if_live("org_1", key.id))
        await settled.wait()
    assert await store.charge("org_1", LeasesOut()) == ()
    assert (await holder.admit(token_of(made), 1, PLANS)).verdict is Verdict.REVOKED
    await holder.close()
