"""SQL: admissions beside the bare transaction, and finding a key among many.

``python -m benchmarks.sql [--seconds 3] [--keys 1000000] [sqlite] [postgresql] [mysql]``

The floors are made by hand on the driver itself: begin, lock the organization's row, read the key,
write both back, commit; no rule, no digest, no pool. The servers are started for the occasion.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sqlite3
import statistics
import tempfile
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import perf_counter
from typing import Any

from sqlalchemy import Engine, bindparam, insert, make_url, text, update

from lockgate import Plan, PlanBook, run
from lockgate.rules.credentials import KeyFormat, Token
from lockgate.rules.keys import ApiKey, KeyDraft
from lockgate.stores.sql import SqlStore
from lockgate.stores.sql.encoding import write_key
from lockgate.stores.sql.engines import blocking_engine
from lockgate.stores.sql.schema import upgrade
from lockgate.stores.sql.tables import Tables
from tests.servers import mariadb, postgres

PLANS = PlanBook([Plan("free", rpm=10**9, rph=10**9, rpd=10**9, concurrent=None)])
FORMAT = KeyFormat("acme")
ORGANIZATIONS = 64
ROUNDS = 3


class Keys:
    """A key for each organization."""

    def __init__(self, store: SqlStore) -> None:
        self.tokens: list[Token] = []
        self.handles: list[str] = []
        for number in range(ORGANIZATIONS):
            key = FORMAT.generate()
            digest = FORMAT.digest(key)
            organization, id = f"org_{number}", f"id-{number}"
            draft = KeyDraft(
                id, key.handle, organization, "n", key.prefix, ("*",), *digest, lifetime=None
            )
            run(store.insert(draft, None))
            token = FORMAT.read([b"Bearer " + key.text.encode()])
            self.tokens.append(token)
            self.handles.append(key.handle)
            run(store.admit(token, 1, PLANS))


def tell(what: str, rates: list[float], floor: float | None = None) -> float:
    """Print the median rate of the rounds, and how it compares to the floor."""
    rate = statistics.median(rates)
    spread = f"{min(rates):,.0f}..{max(rates):,.0f}"
    beside = "" if floor is None else f"   {rate / floor:5.2f} x floor"
    print(f"  {what:58} {rate:9,.0f}/s  {1e6 / rate:7.1f} us  ({spread}){beside}", flush=True)
    return rate


def one_after_the_other(work: Callable[[], object], seconds: float) -> float:
    """Calls a second by one caller."""
    for _ in range(50):
        work()
    count, start = 0, perf_counter()
    while (elapsed := perf_counter() - start) < seconds:
        for _ in range(20):
            work()
        count += 20
    return count / elapsed


def in_threads(work: Callable[[int], object], threads: int, seconds: float) -> float:
    """Calls a second by so many threads."""
    counts = [0] * threads
    end = perf_counter() + seconds

    def call(index: int) -> None:
        while perf_counter() < end:
            work(index)
            counts[index] += 1

    workers = [threading.Thread(target=call, args=(index,)) for index in range(threads)]
    start = perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(counts) / (perf_counter() - start)


async def in_flight(
    work: Callable[[int], Awaitable[object]], callers: int, seconds: float
) -> float:
    """Calls a second with so many in flight."""
    end = perf_counter() + seconds

    async def call(index: int) -> int:
        count = 0
        while perf_counter() < end:
            await work(index)
            count += 1
        return count

    await asyncio.gather(*(work(index) for index in range(callers)))
    start = perf_counter()
    counts = await asyncio.gather(*(call(index) for index in range(callers)))
    return sum(counts) / (perf_counter() - start)


# --- SQLite --------------------------------------------------------------------------------------

FLOOR = {
    "lock": "SELECT id, plan, overrides, windows, idle_day FROM lockgate_organizations "
    "WHERE id = ?",
    "find": "SELECT * FROM lockgate_keys WHERE handle = ?",
    "keep": "UPDATE lockgate_organizations SET windows = ? WHERE id = ?",
    "use": "UPDATE lockgate_keys SET request_count = request_count + 1, last_used_at = ? "
    "WHERE handle = ?",
}
STATE = os.urandom(500)


def sqlite(seconds: float) -> None:  # noqa: PLR0915 - read from top to bottom
    """SQLite, in this process."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/bench.db"
        store = SqlStore(url)
        keys = Keys(store)
        path = make_url(url).database
        assert path is not None
        driver = sqlite3.connect(path, isolation_level=None)
        driver.execute("PRAGMA synchronous=NORMAL")
        engine = blocking_engine(url)

        last = f"org_{ORGANIZATIONS - 1}".encode()  # Its state is nonsense from here on.

        def bare() -> None:
            handle = keys.handles[-1]
            driver.execute("BEGIN IMMEDIATE")
            driver.execute(FLOOR["lock"], (last,)).fetchall()
            driver.execute(FLOOR["find"], (handle,)).fetchall()
            driver.execute(FLOOR["keep"], (STATE, last))
            driver.execute(FLOOR["use"], (1, handle))
            driver.execute("COMMIT")

        tables = Tables()
        keep = update(tables.organizations).where(tables.organizations.c.id == bindparam("o"))
        keep = keep.values(windows=bindparam("state"))

        def bare_core() -> None:
            handle = keys.handles[-1]
            with engine.connect() as connection:
                connection.exec_driver_sql("BEGIN IMMEDIATE")
                connection.execute(tables.lock(1), {"o0": last}).all()
                connection.execute(tables.find(1), {"h0": handle}).all()
                connection.execute(keep, {"o": last, "state": STATE})
                connection.execute(tables.use, {"h": handle, "n": 1, "at": 1})
                connection.commit()

        def admit() -> None:
            run(store.admit(keys.tokens[0], 1, PLANS))

        print("SQLite", sqlite3.sqlite_version)
        bares, cores, admits = [], [], []
        for _ in range(ROUNDS):
            bares.append(one_after_the_other(bare, seconds))
            cores.append(one_after_the_other(bare_core, seconds))
            admits.append(one_after_the_other(admit, seconds))
        floor = tell("floor: bare transaction, sqlite3", bares)
        core = tell("floor: bare transaction, SQLAlchemy Core", cores, floor)
        rate = tell("admit, blocking, 1 caller", admits, floor)
        print(f"    time: {floor / rate:.2f} x sqlite3's, {core / rate:.2f} x SQLAlchemy's")
        shared = [in_threads(lambda _: admit(), 16, seconds) for _ in range(ROUNDS)]
        tell("admit, blocking, 16 threads, one organization", shared, floor)
        driver.close()
        engine.dispose()
        run(store.close())
        awaited = [asyncio.run(_sqlite_async(url, keys, seconds)) for _ in range(ROUNDS)]
        tell("admit, async, 1 in flight", [one for one, _, _ in awaited], floor)
        tell("admit, async, 16 in flight, one organization", [hot for _, hot, _ in awaited], floor)
        tell("admit, async, 16 in flight, 16 organizations", [w for _, _, w in awaited], floor)


async def _sqlite_async(url: str, keys: Keys, seconds: float) -> tuple[float, float, float]:
    store = SqlStore(url)
    rates = (
        await in_flight(lambda _: store.admit(keys.tokens[0], 1, PLANS), 1, seconds),
        await in_flight(lambda _: store.admit(keys.tokens[0], 1, PLANS), 16, seconds),
        await in_flight(lambda n: store.admit(keys.tokens[n], 1, PLANS), 16, seconds),
    )
    await store.close()
    return rates


# --- servers -------------------------------------------------------------------------------------


async def _floor(url: str, keys: Keys, callers: int, organizations: int, seconds: float) -> float:
    """One transaction for each admission, each caller with a connection of its own."""
    address = make_url(url)
    connections: list[Any] = []
    for _ in range(callers):
        if address.drivername == "postgresql":
            import psycopg

            connections.append(await psycopg.AsyncConnection.connect(url))
        else:
            import asyncmy

            connections.append(
                await asyncmy.connect(
                    host=address.host, port=address.port, user=address.username, db=address.database
                )
            )
    sql = {name: statement.replace("?", "%s") for name, statement in FLOOR.items()}

    async def bare(index: int) -> None:
        connection = connections[index]
        organization = index % organizations
        id, handle = f"org_{organization}".encode(), keys.handles[organization]
        async with connection.cursor() as cursor:
            await cursor.execute(sql["lock"] + " FOR UPDATE", (id,))
            await cursor.fetchall()
            await cursor.execute(sql["find"], (handle,))
            await cursor.fetchall()
            await cursor.execute(sql["keep"], (STATE, id))
            await cursor.execute(sql["use"], (1, handle))
        await connection.commit()

    rate = await in_flight(bare, callers, seconds)
    for connection in connections:
        closing = connection.close()
        if closing is not None:
            await closing
    return rate


async def _admits(url: str, keys: Keys, callers: int, organizations: int, seconds: float) -> float:
    store = SqlStore(url)
    await store.now()
    rate = await in_flight(
        lambda n: store.admit(keys.tokens[n % organizations], 1, PLANS), callers, seconds
    )
    await store.close()
    return rate


def served(name: str, url: str, seconds: float) -> None:
    """A server on this machine."""
    engine = blocking_engine(url)
    upgrade(engine, Tables())
    with engine.connect() as connection:
        print(name, connection.scalar(text("SELECT version()")))
    store = SqlStore(url)
    keys = Keys(store)
    for callers, organizations, what in (
        (1, 1, "1 in flight"),
        (32, 1, "32 in flight, one organization"),
        (32, 32, "32 in flight, 32 organizations"),
    ):
        # A hot row's states of random bytes are the floor's own affair: admit reads its own rows.
        with engine.begin() as connection:
            connection.execute(text("UPDATE lockgate_organizations SET windows = NULL"))
        floors, rates = [], []
        for _ in range(ROUNDS):
            floors.append(asyncio.run(_floor(url, keys, callers, organizations, seconds)))
            with engine.begin() as connection:
                connection.execute(text("UPDATE lockgate_organizations SET windows = NULL"))
            rates.append(asyncio.run(_admits(url, keys, callers, organizations, seconds)))
        floor = tell(f"floor: a transaction each, {what}", floors)
        tell(f"admit, async, {what}", rates, floor)
    threads = [
        in_threads(lambda n: run(store.admit(keys.tokens[0], 1, PLANS)), 32, seconds)
        for _ in range(ROUNDS)
    ]
    tell("admit, blocking, 32 threads, one organization", threads)
    run(store.close())
    engine.dispose()


# --- finding a key among many --------------------------------------------------------------------


def lookup(engine: Engine, url: str, most: int) -> None:
    """Time ``find`` while the table grows, and show how the database goes about it."""
    tables = Tables()
    upgrade(engine, tables)
    store = SqlStore(url)
    probe = FORMAT.generate()
    draft = KeyDraft(
        "probe", probe.handle, "org_0", "n", probe.prefix, ("*",), *FORMAT.digest(probe), None
    )
    run(store.insert(draft, None))
    pattern = write_key(draft.created(0))
    size = 1
    for goal in (10**power for power in range(3, 10)):
        if goal > most:
            break
        while size < goal:
            number = min(20_000, goal - size)
            rows = [
                {**pattern, "handle": f"h{size + i:07}", "id": f"id-{size + i}"}
                for i in range(number)
            ]
            with engine.begin() as connection:
                connection.execute(insert(tables.keys), rows)
            size += number
        times = []
        for _ in range(500):
            start = perf_counter()
            key: ApiKey | None = run(store.find(probe.handle))
            times.append(perf_counter() - start)
            assert key is not None
        print(f"  find among {goal:9,} keys: median {statistics.median(times) * 1e6:7.1f} us")
    plan = "EXPLAIN QUERY PLAN" if engine.dialect.name == "sqlite" else "EXPLAIN"
    if engine.dialect.name == "postgresql":
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("ANALYZE lockgate_keys"))
    with engine.connect() as connection:
        for what, condition in (
            ("find", "handle = 'abcdefgh'"),
            ("get", "id = 'probe'"),
            ("list", "organization = :id ORDER BY created_at DESC"),
        ):
            values = {"id": b"org_1"} if what == "list" else {}
            statement = text(f"{plan} SELECT * FROM lockgate_keys WHERE {condition}")
            rows_found = connection.execute(statement, values).all()
            for row in rows_found:
                print(f"    {what}: {' | '.join(str(cell) for cell in row)}")
    run(store.close())
    engine.dispose()


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", default=["sqlite", "postgresql", "mysql"])
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--keys", type=int, default=100_000)
    options = parser.parse_args()
    if "sqlite" in options.what:
        sqlite(options.seconds)
        with tempfile.TemporaryDirectory() as folder:
            url = f"sqlite:///{Path(folder)}/keys.db"
            lookup(blocking_engine(url), url, options.keys)
    for name, start in (("postgresql", postgres), ("mysql", mariadb)):
        if name in options.what:
            with start() as server:
                served(name, server.create("bench"), options.seconds)
                url = server.create("keys")
                lookup(blocking_engine(url), url, options.keys)


if __name__ == "__main__":
    main()
