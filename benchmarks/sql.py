"""SQL: admissions beside the bare transaction on the same database, in the same run.

``python -m benchmarks.sql [--seconds 1] [--rounds 5] [--markdown] [sqlite] [postgresql] [mysql]``

The floors are made by hand on the driver itself, with the same settings of durability, the same
tables and states as long. Every transaction writes something new: a database that is told what it
knows already writes nothing.

bare: begin, lock the organization's row, read the key, write windows to the one and usage to the
    other, commit: what an admission cannot do without. It decides nothing: no digest is compared,
    no rule applied, no value made of what was read.
by hand: the same, and it decides: compares the digest and applies the rule of the windows, for one
    plan and one key that it knows beforehand. This is an admission, with nothing around it.
one row: decides as well, and writes both to one row, read by one statement, as lockgate does.

Under load a median says more of the load than of anything else, so for a caller alone there are
also figures of processor time: the least of many short batches, taken in turns. The servers are
started for the occasion.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import tempfile
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from itertools import count, cycle
from time import perf_counter, process_time_ns, time_ns
from typing import Any, NamedTuple

from sqlalchemy import Engine, bindparam, make_url, select, text, update

from lockgate import Gate, Plan, PlanBook, run
from lockgate.core.api_keys import KeyDraft
from lockgate.core.key_format import KeyFormat, Token
from lockgate.core.row_seals import sealed_draft
from lockgate.core.sliding_window import hit
from lockgate.stores.sql import SqlStore
from lockgate.stores.sql.codec import read_state, read_uses, write_state, write_uses
from lockgate.stores.sql.engines import blocking_engine
from lockgate.stores.sql.schema import upgrade
from lockgate.stores.sql.tables import Tables
from tests.servers import mariadb, postgres

from .measure import Spread, in_turns, machine, ratio, table
from .pages import Cells, Part, Run, Table, parser

PLANS = PlanBook([Plan("free", rpm=10**9, rph=10**9, rpd=10**9, concurrent=None)])
FORMAT = KeyFormat("acme")
ORGANIZATIONS = 64
BATCH = 200
BARE, BY_HAND, ONE_ROW = "bare", "by hand", "by hand in one row, as lockgate writes it"
ADMIT = "`store.admit`"
THROUGH_A_GATE = "`gate.authenticate`: with deadline, breaker, refusal cache, scopes"
ALONE = (BARE, BY_HAND, ONE_ROW, "bare, by SQLAlchemy Core", ADMIT, THROUGH_A_GATE)

ONE, TWO = "one organization", "as many organizations"
IN_SQLITE = {
    "SQLite, 1 caller": ("admit", BARE),
    "SQLite, 1 caller, beside by hand": ("admit", BY_HAND),
    f"SQLite, 16 threads, {ONE}": ("16 threads", BARE),
    "SQLite, event loop, 1 in flight": ("async, 1", BARE),
    f"SQLite, event loop, 16 in flight, {ONE}": ("async, 16", BARE),
    f"SQLite, event loop, 16 in flight, {TWO}": ("async, 16 of 16", BARE),
}
"""What is compared in SQLite: the contender and its floor."""
SERVED = {
    "event loop, 1 in flight": (1, 1, "admit"),
    f"event loop, 32 in flight, {ONE}": (32, 1, "admit"),
    f"event loop, 32 in flight, {TWO}": (32, 32, "admit"),
    "1 thread": (1, 1, "threads"),
    f"32 threads, {ONE}": (32, 1, "threads"),
}
"""What is compared on a server: callers, organizations and the contender."""
SERVERS = {"postgresql": ("PostgreSQL", postgres), "mysql": ("MariaDB", mariadb)}
ROWS = (*IN_SQLITE, *(f"{server}, {what}" for server, _ in SERVERS.values() for what in SERVED))
PAGE = Part(
    "sql",
    "measured.md",
    (
        Table(("admissions a second", "floor", "lockgate", "time, of the floor's"), ROWS),
        Table(("CPU time of a call, SQLite, 1 caller", "us", "of bare", "of by hand"), ALONE),
    ),
)
PARTS = (PAGE,)
LIBRARIES = ("sqlalchemy", "psycopg", "pymysql", "asyncmy")


class Rates(NamedTuple):
    """Calls a second of a floor and of lockgate, and the ratio of the times, with quartiles."""

    floor: Spread
    admits: Spread
    time: Spread

    @classmethod
    def of(cls, figures: Mapping[str, list[float]], name: str, floor: str) -> Rates:
        return cls(Spread.of(figures[floor]), Spread.of(figures[name]), ratio(figures, floor, name))

    def cells(self) -> list[str]:
        return [f"{self.floor.median:,.0f}", f"{self.admits.median:,.0f}", f"{self.time:.2f}"]


class Keys:
    """A key for each organization."""

    def __init__(self, store: SqlStore) -> None:
        self.tokens: list[Token] = []
        self.texts: list[str] = []
        self.handles: list[str] = []
        for number in range(ORGANIZATIONS):
            key = FORMAT.generate()
            digest = FORMAT.digest(key)
            organization, id = f"org_{number}", f"id-{number}"
            draft = KeyDraft(
                id, key.handle, organization, "n", key.prefix, ("*",), *digest, expires_at=None
            )
            run(store.insert(sealed_draft(draft, FORMAT.peppers), None))
            token = FORMAT.read([b"Bearer " + key.text.encode()])
            self.tokens.append(token)
            self.texts.append(key.text)
            self.handles.append(key.handle)
            run(store.admit(token, 1, PLANS))


def alone(contenders: Mapping[str, Callable[[], object]], batches: int = 60) -> Cells:
    """Print and return the processor time that a call takes, beside two floors."""

    def batch(work: Callable[[], object]) -> float:
        started = process_time_ns()
        for _ in range(BATCH):
            work()
        return (process_time_ns() - started) / BATCH / 1000

    figures = in_turns({name: partial(batch, work) for name, work in contenders.items()}, batches)
    least = {name: min(times) for name, times in figures.items()}
    cells = {
        name: [
            f"{time:.1f}",
            *(
                f"{time / least[floor]:.2f} ({spread.low:.2f}..{spread.high:.2f})"
                for floor in (BARE, BY_HAND)
                for spread in [ratio(figures, name, floor)]
            ),
        ]
        for name, time in least.items()
    }
    columns = ("", "us", f"of {BARE}", f"of {BY_HAND}")
    title = f"Processor time of one call, one caller: the least of {batches} batches of {BATCH}"
    table(title, columns, [[name, *row] for name, row in cells.items()])
    return cells


def show(what: str, rates: Mapping[str, Rates]) -> None:
    """Print the throughput of lockgate beside its floors."""
    columns = ("", "floor/s", "lockgate/s", "time, of the floor's")
    table(what, columns, [[name, *one.cells()] for name, one in rates.items()])


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
    "both": "SELECT k.*, o.windows, o.used FROM lockgate_organizations o "
    "JOIN lockgate_keys k ON k.handle = ? AND k.organization = o.id WHERE o.id = ?",
    "write": "UPDATE lockgate_organizations SET windows = ?, used = ? WHERE id = ?",
}
STATES = [os.urandom(3200) for _ in range(64)]
"""As long as the state of three windows that have many cells each."""


def sqlite(seconds: float, rounds: int) -> tuple[dict[str, Rates], Cells]:
    """SQLite, in this process: the throughput, and the processor time of a caller alone."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/bench.db?mode=rwc"
        store = SqlStore(url)
        keys = Keys(store)
        driver = sqlite3.connect(f"{folder}/bench.db", isolation_level=None)
        driver.execute("PRAGMA synchronous=NORMAL")
        engine = blocking_engine(url)
        gate = Gate(SqlStore(url), brand="acme", plans=PLANS)
        for token in keys.tokens[-6:]:  # Their states grow no longer than this.
            for _ in range(3 * BATCH):
                run(store.admit(token, 1, PLANS))
        works: tuple[Callable[[], object], ...] = (
            _bare(driver, keys),
            _by_hand(driver, keys),
            _one_row(driver, keys),
            _bare_core(engine, keys),
            lambda: run(store.admit(keys.tokens[-5], 1, PLANS)),
            lambda: run(gate.authenticate(keys.texts[-6])),
        )
        times = alone(dict(zip(ALONE, works, strict=True)))
        run(gate.close())
        figures = in_turns(
            {
                BARE: partial(one_after_the_other, _bare(driver, keys), seconds),
                BY_HAND: partial(one_after_the_other, _by_hand(driver, keys), seconds),
                "admit": partial(
                    one_after_the_other,
                    lambda: run(store.admit(keys.tokens[0], 1, PLANS)),
                    seconds,
                ),
                "16 threads": lambda: in_threads(
                    lambda _: run(store.admit(keys.tokens[0], 1, PLANS)), 16, seconds
                ),
                "async, 1": lambda: asyncio.run(_admits(url, keys, 1, 1, seconds)),
                "async, 16": lambda: asyncio.run(_admits(url, keys, 16, 1, seconds)),
                "async, 16 of 16": lambda: asyncio.run(_admits(url, keys, 16, 16, seconds)),
            },
            rounds,
        )
        driver.close()
        engine.dispose()
        run(store.close())
    rates = {row: Rates.of(figures, name, floor) for row, (name, floor) in IN_SQLITE.items()}
    show(f"SQLite {sqlite3.sqlite_version}", rates)
    return rates, times


def _bare(driver: sqlite3.Connection, keys: Keys) -> Callable[[], object]:
    id, handle = f"org_{ORGANIZATIONS - 1}".encode(), keys.handles[-1]
    states, instants = cycle(STATES), count(time_ns() // 1000)

    def bare() -> None:
        driver.execute("BEGIN IMMEDIATE")
        driver.execute(FLOOR["lock"], (id,)).fetchall()
        driver.execute(FLOOR["find"], (handle,)).fetchall()
        driver.execute(FLOOR["keep"], (next(states), id))
        driver.execute(FLOOR["use"], (next(instants), handle))
        driver.execute("COMMIT")

    return bare


def _by_hand(driver: sqlite3.Connection, keys: Keys) -> Callable[[], object]:
    id, handle, token = f"org_{ORGANIZATIONS - 2}".encode(), keys.handles[-2], keys.tokens[-2]
    windows = PLANS.default.windows

    def by_hand() -> None:
        driver.execute("BEGIN IMMEDIATE")
        ((_, _, _, written, _),) = driver.execute(FLOOR["lock"], (id,)).fetchall()
        (key,) = driver.execute(FLOOR["find"], (handle,)).fetchall()
        assert token.matches(key[6], key[7])
        now = time_ns() // 1000
        _, state = hit(read_state(written, windows), windows, now, 1)
        driver.execute(FLOOR["keep"], (write_state(state), id))
        driver.execute(FLOOR["use"], (now, handle))
        driver.execute("COMMIT")

    return by_hand


def _one_row(driver: sqlite3.Connection, keys: Keys) -> Callable[[], object]:
    id, handle, token = f"org_{ORGANIZATIONS - 4}".encode(), keys.handles[-4], keys.tokens[-4]
    windows = PLANS.default.windows

    def one_row() -> None:
        driver.execute("BEGIN IMMEDIATE")
        ((*key, written, used),) = driver.execute(FLOOR["both"], (handle, id)).fetchall()
        assert token.matches(key[6], key[7])
        now = time_ns() // 1000
        _, state = hit(read_state(written, windows), windows, now, 1)
        requests, _ = read_uses(used, id)[handle]
        used = write_uses({handle: (requests + 1, now)})
        driver.execute(FLOOR["write"], (write_state(state), used, id))
        driver.execute("COMMIT")

    return one_row


def _bare_core(engine: Engine, keys: Keys) -> Callable[[], object]:
    id, handle = f"org_{ORGANIZATIONS - 3}".encode(), keys.handles[-3]
    states, instants = cycle(STATES), count(time_ns() // 1000)
    organizations, key = Tables().organizations.c, Tables().keys.c
    lock = select(organizations.id, organizations.windows).where(organizations.id == bindparam("o"))
    find = select(key.handle.table).where(key.handle == bindparam("h"))
    keep = update(organizations.id.table).where(organizations.id == bindparam("o"))
    use = update(key.handle.table).where(key.handle == bindparam("h"))
    use = use.values(request_count=key.request_count + 1, last_used_at=bindparam("at"))

    def bare_core() -> None:
        with engine.connect() as connection:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            connection.execute(lock, {"o": id}).all()
            connection.execute(find, {"h": handle}).all()
            connection.execute(keep.values(windows=bindparam("s")), {"o": id, "s": next(states)})
            connection.execute(use, {"h": handle, "at": next(instants)})
            connection.commit()

    return bare_core


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
    states, instants = cycle(STATES), count(time_ns() // 1000)
    sql = {name: statement.replace("?", "%s") for name, statement in FLOOR.items()}

    async def bare(index: int) -> None:
        connection = connections[index]
        organization = ORGANIZATIONS - 1 - index % organizations
        id, handle = f"org_{organization}".encode(), keys.handles[organization]
        async with connection.cursor() as cursor:
            await cursor.execute(sql["lock"] + " FOR UPDATE", (id,))
            await cursor.fetchall()
            await cursor.execute(sql["find"], (handle,))
            await cursor.fetchall()
            await cursor.execute(sql["keep"], (next(states), id))
            await cursor.execute(sql["use"], (next(instants), handle))
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


def _awaited(work: Callable[..., Coroutine[Any, Any, float]], *arguments: Any) -> float:
    return asyncio.run(work(*arguments))


def served(name: str, url: str, seconds: float, rounds: int) -> dict[str, Rates]:
    """A server on this machine: the throughput."""
    engine = blocking_engine(url)
    upgrade(engine, Tables())
    engine.dispose()
    store = SqlStore(url)
    keys = Keys(store)

    def in_so_many_threads(callers: int) -> float:
        return in_threads(lambda _: run(store.admit(keys.tokens[0], 1, PLANS)), callers, seconds)

    rates: dict[str, Rates] = {}
    for callers, organizations in dict.fromkeys((c, o) for c, o, _ in SERVED.values()):
        turns = {
            turn: partial(_awaited, work, url, keys, callers, organizations, seconds)
            for turn, work in ((BARE, _floor), ("admit", _admits))
        }
        if organizations == 1:
            turns["threads"] = partial(in_so_many_threads, callers)
        figures = in_turns(turns, rounds)
        for what, (*of, turn) in SERVED.items():
            if of == [callers, organizations]:
                rates[f"{name}, {what}"] = Rates.of(figures, turn, BARE)
    run(store.close())
    show(name, rates)
    return rates


def version_of(url: str) -> str:
    """The name and the version of a database."""
    engine = blocking_engine(url)
    kind = engine.dialect.name
    asked = "sqlite_version()" if kind == "sqlite" else "version()"
    with engine.connect() as connection:
        told = str(connection.scalar(text(f"SELECT {asked}"))).split(" on ", maxsplit=1)[0]
    engine.dispose()
    return f"SQLite {told}" if kind == "sqlite" else told


def write(line: str, rates: Mapping[str, Rates], times: Cells) -> None:
    """Write the figures into the page."""
    PAGE.write(line, {name: one.cells() for name, one in rates.items()}, times)


def main() -> None:
    """Run what was asked for."""
    options = parser("benchmarks.sql", __doc__)
    options.add_argument("what", nargs="*", default=["sqlite", *SERVERS])
    options.add_argument("--seconds", type=float, default=1.0)
    options.add_argument("--rounds", type=int, default=5)
    chosen = options.parse_args()
    what = ["sqlite", *SERVERS] if chosen.markdown else chosen.what
    about = Run("benchmarks.sql", *LIBRARIES)
    print(machine())
    rates: dict[str, Rates] = {}
    times: Cells = {}
    versions = [f"SQLite {sqlite3.sqlite_version}"]
    if "sqlite" in what:
        found, times = sqlite(chosen.seconds, chosen.rounds)
        rates |= found
    for kind, (name, start) in SERVERS.items():
        if kind in what:
            with start() as server:
                url = server.create("bench")
                versions.append(version_of(url))
                rates |= served(name, url, chosen.seconds, chosen.rounds)
    if chosen.markdown:
        write(about.line(*versions), rates, times)


if __name__ == "__main__":
    main()
