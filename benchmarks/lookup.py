"""Finding a key among many, and how the database goes about it.

``python -m benchmarks.lookup [--keys 10000000] [--markdown] [sqlite] [postgresql] [mysql]``

The tables are filled by the database itself, a hundred keys an organization, in an order that looks
random to its indexes. Then keys drawn at random are found by the store, one after the other, and in
turns among few keys and among many.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from sqlalchemy import Connection, Engine, make_url, text

from lockgate import run
from lockgate.stores.sql import SqlStore
from lockgate.stores.sql.engines import blocking_engine
from lockgate.stores.sql.schema import upgrade
from lockgate.stores.sql.tables import Tables
from tests.servers import mariadb, postgres

from .measure import Spread, beside, in_turns, machine, ratio, table
from .pages import Part, Run, Table, parser
from .sql import version_of

FINDS, ROUNDS = 100, 20
MOST = 1_000_000
"""More takes longer to fill than a benchmark should: ``--keys`` measures it."""
SIZES = tuple(f"{10**power:,}" for power in range(3, 7))
DATABASES = {"sqlite": "SQLite", "postgresql": "PostgreSQL", "mysql": "MariaDB"}
PAGE = Part(
    "lookup",
    "measured.md",
    (Table(("keys: a lookup, of that among 1,000", *DATABASES.values()), SIZES),),
)
PARTS = (PAGE,)
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


def lookup(create: Callable[[str], str], most: int) -> tuple[list[str], str]:
    """Time ``find`` among few keys and many, in turns, then show the plans of the queries.

    Args:
        create: makes an empty database and returns its URL.
        most: the keys of the largest table.

    Returns:
        For each size the median in microseconds, and its ratio to that of the smallest; the plans.
    """
    sizes = [10**power for power in range(3, 10) if 10**power <= most]
    urls = [create(f"keys_{size}") for size in sizes]
    stores = [SqlStore(url) for url in urls]
    for size, url in zip(sizes, urls, strict=True):
        engine = blocking_engine(url)
        started = perf_counter()
        filled(engine, size)
        print(f"  {size:,} filled in {perf_counter() - started:.0f} s", flush=True)
        if size == sizes[-1]:
            shown = plans(engine)
        engine.dispose()
    turns = {
        f"{size:,}": partial(finds, store, size) for size, store in zip(sizes, stores, strict=True)
    }
    figures = in_turns(turns, ROUNDS)
    for store in stores:
        run(store.close())
    cells = [
        beside(Spread.of(figures[name]), ratio(figures, name, SIZES[0]), " us") for name in turns
    ]
    columns = ("keys", "a lookup, of that among 1,000")
    table(str(make_url(urls[0]).drivername), columns, list(zip(turns, cells, strict=True)))
    print(shown)
    return cells, shown


def filled(engine: Engine, size: int) -> None:
    """Make the tables and so many keys."""
    upgrade(engine, Tables())
    for first in range(0, size, AT_ONCE):
        with engine.begin() as connection:
            for setting in FASTER.get(engine.dialect.name, ()):
                connection.exec_driver_sql(setting)
            fill(connection, first, min(first + AT_ONCE, size) - 1)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        table_of = "TABLE " if engine.dialect.name == "mysql" else ""
        connection.execute(text(f"ANALYZE {table_of}lockgate_keys"))


def finds(store: SqlStore, size: int) -> float:
    """Return the median time of finding a key drawn at random, in microseconds."""
    times: list[float] = []
    for number in random.choices(range(size), k=FINDS):
        wanted = handle(number)
        started = perf_counter()
        key = run(store.find(wanted))
        times.append((perf_counter() - started) * 1e6)
        assert key is not None
        assert key.handle == wanted
    return median(times)


def plans(engine: Engine) -> str:
    """Return how the database goes about the queries of a key, without its estimates of costs."""
    kind = engine.dialect.name
    explain = "EXPLAIN QUERY PLAN" if kind == "sqlite" else "EXPLAIN"
    lines: list[str] = []
    with engine.connect() as connection:
        for what, condition in (
            ("find", f"k.handle = '{handle(7)}'"),
            ("get", f"k.id = 'i{handle(7)[1:]}' AND k.organization = :id"),
            ("list", "k.organization = :id ORDER BY k.created_at DESC, k.id"),
        ):
            values = {} if what == "find" else {"id": b"org_0"}
            rows = connection.execute(text(f"{explain} {KEYS} WHERE {condition}"), values)
            steps = [step for row in rows if (step := _step(kind, dict(row._mapping)))]
            marks = [f"{what}:", *[""] * (len(steps) - 1)]
            lines += [f"{mark:6}{step}" for mark, step in zip(marks, steps, strict=True)]
    return "\n".join(lines)


def _step(kind: str, row: Mapping[str, Any]) -> str:
    """Write a row of a plan; empty for one that names no table and no way of joining."""
    if kind == "sqlite":
        return str(row["detail"])
    if kind == "postgresql":
        node, _, estimate = str(row["QUERY PLAN"]).partition("  (cost=")
        return node if estimate else ""
    told = f"{row['table']}: {row['type']}, {row['key']}, {row['rows']} rows"
    return f"{told}; {row['Extra']}" if row["Extra"] else told


@contextmanager
def server(name: str) -> Iterator[Callable[[str], str]]:
    """Databases of a kind: a function that makes an empty one and returns its URL."""
    with ExitStack() as stack:
        if name == "sqlite":
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            yield lambda database: f"sqlite:///{folder / database}.db?mode=rwc"
        else:
            yield stack.enter_context(postgres() if name == "postgresql" else mariadb()).create


def main() -> None:
    """Run what was asked for."""
    options = parser("benchmarks.lookup", __doc__)
    options.add_argument("what", nargs="*", default=[*DATABASES])
    options.add_argument("--keys", type=int, default=1_000_000)
    chosen = options.parse_args()
    about = Run("benchmarks.lookup", "sqlalchemy", "psycopg", "pymysql")
    print(machine())
    found: dict[str, tuple[list[str], str]] = {}
    versions: list[str] = []
    for name in DATABASES if chosen.markdown else chosen.what:
        with server(name) as create:
            versions.append(version_of(create("empty")))
            found[name] = lookup(create, MOST if chosen.markdown else chosen.keys)
    if chosen.markdown:
        columns = zip(*(cells for cells, _ in found.values()), strict=True)
        shown = "\n".join(
            f"{DATABASES[name]} finds, gets and lists keys so:\n\n```text\n{plan}\n```\n"
            for name, (_, plan) in found.items()
        )
        PAGE.write(about.line(*versions), dict(zip(SIZES, columns, strict=True)), ending=shown)


if __name__ == "__main__":
    main()
