"""Finding a key among many, and how the database goes about it.

``python -m benchmarks.lookup [--keys 10000000] [sqlite] [postgresql] [mysql]``

The tables are filled by the database itself, a hundred keys an organization, in an order that looks
random to its indexes. Then keys drawn at random are found, one after the other, by the store.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import perf_counter

from sqlalchemy import Connection, Engine, text

from lockgate import run
from lockgate.stores.sql import SqlStore
from lockgate.stores.sql.engines import blocking_engine
from lockgate.stores.sql.schema import upgrade
from lockgate.stores.sql.tables import Tables
from tests.servers import mariadb, postgres

from .measure import Spread, machine, table

FINDS = 2000
KEYS_EACH = 100
AT_ONCE = 250_000
SCRAMBLE = 2_654_435_761
"""Odd, so that multiplying by it modulo 2**32 gives each number another one."""

NUMBERS = {
    "sqlite": "WITH RECURSIVE n(i) AS (VALUES(:first) UNION ALL "
    "SELECT i + 1 FROM n WHERE i < :last) SELECT {columns} FROM n",
    "postgresql": "SELECT {columns} FROM generate_series(CAST(:first AS bigint), :last) AS n(i)",
    "mysql": "SELECT {columns} FROM (SELECT CAST(seq AS SIGNED) AS i FROM seq_0_to_{most}) AS n "
    "WHERE i BETWEEN :first AND :last",
}
KEYS = (
    "SELECT k.*, o.used FROM lockgate_keys AS k "
    "LEFT OUTER JOIN lockgate_organizations AS o ON o.id = k.organization"
)
"""What a key is read by: some of its usage lies beside its organization's windows."""
FASTER = {
    "sqlite": ("PRAGMA cache_size=-2000000",),
    "mysql": (
        f"SET GLOBAL innodb_buffer_pool_size={2 << 30}",
        "SET unique_checks=0, foreign_key_checks=0",
    ),
}
"""For filling; what is lost by a crash meanwhile is made again."""
IDS = {
    "sqlite": "CAST('org_' || (i / {each}) AS BLOB)",
    "postgresql": "convert_to('org_' || (i / {each}), 'UTF8')",
    "mysql": "CONCAT('org_', i DIV {each})",
}
NAMES = {
    "sqlite": "printf('{letter}%010d', (i * {by}) % 4294967296)",
    "postgresql": "'{letter}' || lpad(((i * {by}) % 4294967296)::text, 10, '0')",
    "mysql": "CONCAT('{letter}', LPAD((i * {by}) % 4294967296, 10, '0'))",
}


def handle(number: int) -> str:
    """The handle of the key that was made as this number."""
    return f"h{number * SCRAMBLE % 2**32:010}"


def fill(connection: Connection, first: int, last: int) -> None:
    """Make the keys of these numbers, and their organizations."""
    kind = connection.dialect.name
    numbers, id, name = NUMBERS[kind], IDS[kind], NAMES[kind]
    organizations = numbers.format(columns=id.format(each=1), most=last)
    connection.execute(
        text(f"INSERT INTO lockgate_organizations (id) {organizations}"),
        {"first": first // KEYS_EACH, "last": last // KEYS_EACH},
    )
    columns = ", ".join(
        (
            name.format(letter="h", by=SCRAMBLE),
            name.format(letter="i", by=SCRAMBLE),
            id.format(each=KEYS_EACH),
            "'a key', 'acme_live_abcdef', '[\"*\"]', 'sha256'",
            id.format(each=1),
            "1700000000000000 + i, 0",
        )
    )
    keys = numbers.format(columns=columns, most=last)
    connection.execute(
        text(
            "INSERT INTO lockgate_keys (handle, id, organization, name, prefix, scopes, scheme, "
            f"digest, created_at, request_count) {keys}"
        ),
        {"first": first, "last": last},
    )


def lookup(engine: Engine, url: str, most: int) -> None:
    """Time ``find`` while the table grows, then show the plans of the queries."""
    upgrade(engine, Tables())
    store = SqlStore(url)
    rows: list[list[str]] = []
    size = 0
    for goal in (10**power for power in range(3, 10)):
        if goal > most:
            break
        started = perf_counter()
        for first in range(size, goal, AT_ONCE):
            with engine.begin() as connection:
                for setting in FASTER.get(engine.dialect.name, ()):
                    connection.exec_driver_sql(setting)
                fill(connection, first, min(first + AT_ONCE, goal) - 1)
        filled = perf_counter() - started
        size = goal
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            table_of = "TABLE " if engine.dialect.name == "mysql" else ""
            connection.execute(text(f"ANALYZE {table_of}lockgate_keys"))
        times: list[float] = []
        for number in random.choices(range(size), k=FINDS):
            wanted = handle(number)
            started = perf_counter()
            key = run(store.find(wanted))
            times.append((perf_counter() - started) * 1e6)
            assert key is not None and key.handle == wanted
        rows.append([f"{size:,}", f"{Spread.of(times):.1f}", f"{filled:.0f}"])
        print(f"  {size:,}: {Spread.of(times):.1f} us", flush=True)
    table(
        f"{engine.dialect.name}: finding one key, us (quartiles)",
        ("keys", "us", "filled in s"),
        rows,
    )
    plans(engine)
    run(store.close())
    engine.dispose()


def plans(engine: Engine) -> None:
    """Show how the database goes about the queries of a key."""
    explain = "EXPLAIN QUERY PLAN" if engine.dialect.name == "sqlite" else "EXPLAIN"
    with engine.connect() as connection:
        for what, condition in (
            ("find", f"k.handle = '{handle(7)}'"),
            ("get", f"k.id = 'i{handle(7)[1:]}' AND k.organization = :id"),
            ("list", "k.organization = :id ORDER BY k.created_at DESC, k.id"),
        ):
            values = {} if what == "find" else {"id": b"org_0"}
            statement = text(f"{explain} {KEYS} WHERE {condition}")
            for row in connection.execute(statement, values):
                print(f"  {what}: {' | '.join(str(cell) for cell in row)}")


@contextmanager
def database(name: str) -> Iterator[str]:
    """An empty database of a kind, and its URL."""
    with ExitStack() as stack:
        if name == "sqlite":
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            yield f"sqlite:///{Path(folder)}/keys.db?mode=rwc"
        else:
            server = stack.enter_context(postgres() if name == "postgresql" else mariadb())
            yield server.create("keys")


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", default=["sqlite", "postgresql", "mysql"])
    parser.add_argument("--keys", type=int, default=1_000_000)
    options = parser.parse_args()
    print(machine())
    for name in options.what:
        with database(name) as url:
            lookup(blocking_engine(url), url, options.keys)


if __name__ == "__main__":
    main()
