"""Engines of the host's own that commit or read otherwise than ours, and options in URLs."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from lockgate import ConfigurationError, run
from lockgate.core.digests import Digest
from lockgate.core.leases import lease_of, to_acquire
from lockgate.core.ledger import Hit
from lockgate.core.timestamps import MINUTE
from lockgate.migrations import upgrade
from lockgate.stores.answers import Usage
from lockgate.stores.sql import SqlStore, engines
from lockgate.stores.sql.databases import Sqlite
from lockgate.stores.sql.schema import downgrade
from lockgate.stores.sql.statements import Statements
from lockgate.stores.sql.tables import Tables
from lockgate.testing.factories import minute

from ..making import BOOK, NOW, at_once, draft, draft_of, new_key, token_of
from .backends import BACKENDS, Backend, driver_of


def test_an_engine_that_commits_each_statement_admits_no_more(backend: Backend) -> None:
    engine = backend.blocking(isolation_level="AUTOCOMMIT")
    store = backend.open(engine)
    stores = [store, *(SqlStore(engine, prefix=store.prefix) for _ in range(3))]
    three = minute(3)

    def hit(number: int) -> int:
        hits = (run(stores[number].charge("org_1", Hit(three, 1), NOW)) for _ in range(5))
        return sum(reading.allowed for reading in hits)

    assert sum(at_once(4, hit)) == 3
    made = new_key()
    key = run(store.insert(draft_of(made), 1, NOW))
    assert run(store.admit(token_of(made), 1, BOOK, NOW)).key is not None
    assert run(store.revoke_if_live("org_1", key.id, NOW)) is not None
    run(store.close())


@pytest.mark.parametrize("driver", ["postgresql+asyncpg", "mysql+asyncmy"])
async def test_an_awaited_engine_that_commits_each_statement_admits_no_more(driver: str) -> None:
    backend = driver_of(driver)
    engine = backend.awaiting(driver, isolation_level="AUTOCOMMIT")
    own = backend.open(engine)
    stores = [own, *(SqlStore(engine, prefix=own.prefix) for _ in range(3))]
    hits = (store.charge("org_1", Hit(minute(3), 1), NOW) for store in stores for _ in range(5))
    assert sum(reading.allowed for reading in await asyncio.gather(*hits)) == 3
    await own.close()


@pytest.mark.parametrize(
    ("driver", "awaits"), [("sqlite", False), ("mysql", False), ("postgresql+psycopg", True)]
)
def test_an_engine_that_translates_schemas_is_refused_as_the_store_is_made_W8(
    driver: str, *, awaits: bool
) -> None:
    """Statements that go to the driver would use the tables of another tenant."""
    backend = driver_of(driver)
    engine = backend.blocking()
    options: dict[str, Any] = {"schema_translate_map": {None: "tenant"}}
    mapped = engine.execution_options(**options)
    source = backend.awaiting(driver).execution_options(**options) if awaits else mapped
    with pytest.raises(ConfigurationError, match=r"schema_translate_map=.*'tenant'.*search_path"):
        SqlStore(source)
    with pytest.raises(ConfigurationError, match="schema_translate_map"):
        upgrade(mapped)
    with mapped.connect() as connection, pytest.raises(ConfigurationError, match="tenant"):
        upgrade(connection)
    # A map without a schema for lockgate's tables changes nothing.
    others = engine.execution_options(schema_translate_map={"billing": "tenant"})
    serves(backend.open(others))
    engine.dispose()


def serves(store: SqlStore) -> None:
    made = new_key()
    key = run(store.insert(draft_of(made), 5, NOW))
    assert run(store.admit(token_of(made), 1, BOOK, NOW)).key is not None
    assert len(run(store.list("org_1", 9))) == 1
    assert run(store.revoke_if_live("org_1", key.id, NOW)) is not None
    assert run(store.census(NOW)).counts == {}
    run(store.close())


def test_an_engine_that_reads_through_cursors_of_the_server_serves_like_any_other(
    backend: Backend,
) -> None:
    """PostgreSQL has such cursors for queries only, and refused SET and UPDATE with them."""
    engine = backend.blocking().execution_options(stream_results=True, yield_per=1)
    upgrade(engine, prefix="streamed_")
    serves(SqlStore(engine, prefix="streamed_"))
    downgrade(backend.admin, Tables("streamed_"), "base")
    engine.dispose()


def test_mariadb_with_snapshot_isolation_retries_changed_rows() -> None:
    """As from MariaDB 11.6 on by default, under REPEATABLE READ."""
    backend = BACKENDS["mysql"]
    with backend.admin.connect() as connection:
        if not connection.execute(text("SHOW VARIABLES LIKE 'innodb_snapshot_isolation'")).all():
            pytest.skip("This server has no such setting.")
    engine = backend.blocking(
        isolation_level="REPEATABLE READ",
        connect_args={"init_command": "SET SESSION innodb_snapshot_isolation=ON"},
    )
    store = backend.open(engine)
    made = new_key()
    key = run(store.insert(draft_of(made), None, NOW))
    digest = Digest(key.scheme, key.digest)
    done = Event()

    def work(number: int) -> None:
        if number == 0:
            for _ in range(40):
                assert run(store.rehash_if(made.handle, digest, digest))
            done.set()
        while not done.is_set():
            run(store.admit(token_of(made), 1, BOOK, NOW))
            run(store.add_usage({made.handle: Usage(1, NOW)}))

    try:
        at_once(3, work)
    finally:
        done.set()
    run(store.close())


def test_an_engine_that_locks_gaps_makes_many_organizations_at_once(served: Backend) -> None:
    """As MariaDB does by default: a vain lookup blocks the inserts of others."""
    own = served.open()
    engine = served.blocking(pool_size=16)

    def begin(number: int) -> None:
        store = SqlStore(engine, prefix=own.prefix)
        for turn in range(8):
            name = f"{turn * 37 + number * 11}"
            assert run(store.charge(f"{name}_hit", Hit(minute(3), 1), NOW)).allowed
            assert lease_of(
                run(store.charge(f"{name}_slot", to_acquire("job", "me", 2, MINUTE), NOW))
            )
            run(store.insert(draft(f"{name}_key"), 5, NOW))

    at_once(16, begin)
    engine.dispose()
    run(own.close())


@pytest.mark.parametrize("places", [1, 2, 64])
def test_sqlite_searches_keys_by_handle_and_does_not_scan_them(places: int) -> None:
    backend = BACKENDS["sqlite"]
    tables = backend.take()
    database = Sqlite()
    statements = Statements(
        tables, backend.admin.dialect, database.clock, database.insert_missing, database.upsert
    )
    both = statements.written(statements.both, places).text
    with backend.admin.connect() as connection:
        plan = connection.exec_driver_sql(
            f"EXPLAIN QUERY PLAN {both}", (b"x",) * both.count("?")
        ).all()
    assert "(handle=?)" in str(plan)
    assert "(organization=?)" not in str(plan)
    backend.give(tables)


def test_a_wait_for_an_altered_table_ends_like_one_for_a_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By default MariaDB waits a day for it."""
    backend = BACKENDS["mysql"]
    monkeypatch.setattr(engines, "_SECONDS", 1)
    store = backend.open()
    run(store.list("org_1", 100))
    with backend.admin.connect() as holder, ThreadPoolExecutor(1) as pool:
        holder.execute(text(f"LOCK TABLES {store.tables.prefix}keys WRITE"))
        listed = pool.submit(lambda: run(store.list("org_1", 100)))
        try:
            assert listed.exception(30) is not None
        finally:
            holder.execute(text("UNLOCK TABLES"))
    run(store.close())


async def test_sqlite_by_its_asynchronous_driver_is_served_by_threads(tmp_path: Path) -> None:
    store = SqlStore(f"sqlite+aiosqlite:///{tmp_path}/keys.db?mode=rwc")
    assert store.io == "both"
    assert await store.list("org_1", 100) == []
    await store.close()


def test_an_asynchronous_engine_of_sqlite_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "aiosqlite", sqlite3)
    with pytest.raises(ConfigurationError, match="give the store its URL"):
        SqlStore(create_async_engine("sqlite+aiosqlite:///keys.db"))
