"""I/O modes: a store from a URL follows its caller; a store on an engine has one mode."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, event, text
from sqlalchemy.ext.asyncio import create_async_engine

from lockgate import ConfigurationError, Gate, MemoryStore, open_store, run
from lockgate.asgi import GateMiddleware
from lockgate.core.leases import TO_LIST, leases_of, to_acquire
from lockgate.core.ledger import Hit, Peek
from lockgate.stores.answers import StoreError
from lockgate.stores.base import IoMode
from lockgate.stores.sql import SqlStore, executor
from lockgate.wsgi import GateMiddleware as WsgiMiddleware

from ..making import BOOK, NOW, draft, draft_of, new_key, token_of
from .backends import BACKENDS, Backend, await_locks, driver_of

WINDOWS = BOOK.default.windows


@pytest.mark.parametrize(
    ("url", "io"),
    [
        ("sqlite:///x.db", "both"),
        ("postgresql://h/d", "both"),
        ("postgres://h/d", "both"),
        ("postgresql+psycopg://h/d", "both"),
        ("postgresql+asyncpg://h/d", "async"),
        ("mysql://h/d", "both"),
        ("mariadb://h/d", "both"),
        ("mysql+pymysql://h/d", "both"),
        ("mysql+asyncmy://h/d", "async"),
    ],
)
def test_the_url_decides_the_io_mode(url: str, io: IoMode) -> None:
    assert open_store(url).io == io


async def nothing(scope: object, receive: object, send: object) -> None:
    """An application."""


def test_an_adapter_refuses_a_store_of_another_io_mode() -> None:
    blocking = Gate(SqlStore(create_engine("postgresql+psycopg://h/d")), brand="acme")
    with pytest.raises(ConfigurationError, match="block the event loop"):
        GateMiddleware(nothing, blocking)
    blocking.pair("sync")
    awaiting = Gate(SqlStore(create_async_engine("postgresql+psycopg://h/d")), brand="acme")
    GateMiddleware(nothing, awaiting)
    with pytest.raises(ConfigurationError, match="event loop"):
        awaiting.pair("sync")
    for store in ("sqlite:///x.db", "postgresql://h/d", MemoryStore()):
        gate = Gate(store, brand="acme")
        gate.pair("async")
        gate.pair("sync")


@pytest.mark.parametrize("url", ["postgresql+asyncpg://h/d", "mysql+asyncmy://h/d"])
def test_a_driver_that_only_awaits_is_refused_without_a_loop_and_the_url_named(url: str) -> None:
    """By a WSGI application at its start, and by each call outside of a loop: no outage."""
    remedy = "a URL that names no driver, as 'postgresql://"
    gate = Gate(url, brand="acme")
    with pytest.raises(ConfigurationError, match=f"needs an event loop here.*{remedy}"):
        WsgiMiddleware(lambda *_: [], gate)
    for call in (lambda: gate.keys.list("org_1"), lambda: gate.keys.create("org_1", "a key")):
        with pytest.raises(ConfigurationError, match=f"no event loop runs here.*{remedy}"):
            run(call())
    with pytest.raises(ConfigurationError, match=remedy):
        run(gate.close())
    store = SqlStore(create_async_engine(url))
    with pytest.raises(ConfigurationError, match=f"no event loop runs here.*{remedy}"):
        run(store.now())


@pytest.fixture(params=["postgresql+asyncpg", "postgresql+psycopg", "mysql+asyncmy"])
async def awaited(request: pytest.FixtureRequest) -> AsyncIterator[SqlStore]:
    """A store in the host's own asynchronous engine."""
    backend = driver_of(request.param)
    own, engine = backend.open(), backend.awaiting(request.param)
    yield SqlStore(engine, prefix=own.prefix)
    await engine.dispose()
    await own.close()


async def test_the_hosts_own_asynchronous_engine(awaited: SqlStore) -> None:
    key = await awaited.insert(draft(), 1, NOW)
    assert await awaited.find(key.handle) == key
    readings = await asyncio.gather(
        *(awaited.charge("org_1", Hit(WINDOWS, 1), NOW) for _ in range(12))
    )
    assert [reading.allowed for reading in readings] == [True] * 10 + [False] * 2
    assert await awaited.now() > NOW
    await awaited.close()
    assert await awaited.find(key.handle) == key, "the engine is the host's: it stays open"


def test_the_hosts_own_sqlite_engine_may_begin_transactions_itself() -> None:
    """As SQLAlchemy's documentation shows it, for transactions around reads."""
    engine = BACKENDS["sqlite"].blocking()
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
    store = BACKENDS["sqlite"].open(engine)
    for _ in range(3):
        run(store.charge("org_1", Hit(WINDOWS, 1), NOW))
    assert run(store.charge("org_1", Peek(WINDOWS), NOW)).used == (3, 3, 3)
    run(store.close())


@pytest.fixture
def little_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests in which no call ends within the grace."""
    monkeypatch.setattr(executor, "GRACE", 0.1)


@pytest.mark.usefixtures("little_grace")
@pytest.mark.parametrize("in_a_loop", [False, True], ids=["sync", "async"])
async def test_closing_does_not_wait_for_a_locked_row(served: Backend, in_a_loop: bool) -> None:
    """The waiting call fails without being counted; the database would have kept waiting."""
    long = {
        "postgresql": {"options": "-c lock_timeout=300000"},
        "mysql": {"init_command": "SET SESSION innodb_lock_wait_timeout=300"},
    }[served.kind]
    own = served.open()
    store = served.open(served.by(query=long), beside=own)
    await asyncio.to_thread(lambda: run(store.charge("org_1", Hit(WINDOWS, 1), NOW)))
    with served.admin.begin() as holder:
        holder.execute(text(f"SELECT id FROM {own.prefix}organizations FOR UPDATE"))
        calls: list[Coroutine[Any, Any, object]] = [store.charge("org_1", Hit(WINDOWS, 1), NOW)]
        if in_a_loop:  # They wait for the transaction of the first, and then share one.
            calls += [
                store.charge("org_1", to_acquire(f"job {n}", "me", 9, 1), NOW) for n in range(4)
            ]
        waiting = [
            asyncio.create_task(call if in_a_loop else asyncio.to_thread(run, call))
            for call in calls
        ]
        await asyncio.to_thread(await_locks, served.admin, 1)
        closing = store.close()
        await asyncio.wait_for(closing if in_a_loop else asyncio.to_thread(run, closing), 60)
        failures = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 60)
        assert all(isinstance(failure, Exception) for failure in failures)
    assert (
        await asyncio.to_thread(lambda: run(store.charge("org_1", Peek(WINDOWS), NOW)).used[0]) == 1
    )
    assert (
        await asyncio.to_thread(lambda: leases_of(run(store.charge("org_1", TO_LIST, NOW)).slots))
        == ()
    )
    await asyncio.to_thread(lambda: run(store.close()))
    await own.close()


@pytest.mark.usefixtures("little_grace")
@pytest.mark.parametrize("driver", ["postgresql+asyncpg", "postgresql+psycopg", "mysql+asyncmy"])
async def test_closing_beside_the_hosts_own_asynchronous_engine_waits_for_no_row(
    driver: str,
) -> None:
    backend = driver_of(driver)
    own, engine = backend.open(), backend.awaiting(driver)
    store = SqlStore(engine, prefix=own.prefix)
    await store.charge("org_1", Hit(WINDOWS, 1), NOW)
    with backend.admin.begin() as holder:
        holder.execute(text(f"SELECT id FROM {own.prefix}organizations FOR UPDATE"))
        waiting = asyncio.create_task(store.charge("org_1", Hit(WINDOWS, 1), NOW))
        await asyncio.to_thread(await_locks, backend.admin)
        await asyncio.wait_for(store.close(), 60)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(waiting, 60)
    await engine.dispose()
    assert (await own.charge("org_1", Peek(WINDOWS), NOW)).used[0] == 1
    await own.close()


async def test_a_call_that_began_before_the_connections_were_replaced_meets_an_outage_g7(
    tmp_path: Path,
) -> None:
    async def meanwhile(organization: str) -> None:
        store.reset_connections()  # As another call does that opens the circuit breaker.

    url = f"sqlite:///{tmp_path}/keys.db?mode=rwc"
    plain, made = SqlStore(url), new_key()
    await plain.insert(draft_of(made), None)
    await plain.close()
    store = SqlStore(url, resolver=meanwhile)
    with pytest.raises(StoreError):
        await store.admit(token_of(made), 1, BOOK)
    await store.close()
