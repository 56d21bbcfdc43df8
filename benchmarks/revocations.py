"""How soon a revocation is answered under leases: ``python -m benchmarks.revocations``.

Four processes admit requests of one key from quota leases as fast as they can. Another process
revokes the key, and takes the time until the answer. Each process knows the start of its latest
admitted request, so a request that began after the answer is found. ``--markdown`` writes the
table into ``docs/scale.md``.
"""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from time import monotonic

from sqlalchemy import create_engine

from lockgate import Gate, Plan, PlanBook, migrations
from lockgate.errors import RateLimitExceeded, Unauthenticated
from tests.servers import mariadb, postgres, redis_server

from .measure import table
from .pages import Cells, Part, Run, Table, parser

_PROCESSES = 4
_ORGANIZATIONS = 8
_LEASE = 1.0
_PEPPER = bytes(range(32))
_LEASED_WITHIN = 5.0
"""Seconds for which a trial waits for a lease of each process."""

STORES = ("SQLite", "PostgreSQL", "MariaDB", "Redis")
REVOKED = Part(
    "lease-revocations",
    "scale.md",
    (
        Table(
            (
                "revocations under leases",
                "trials",
                "admitted after the answer",
                "median",
                "99 % within",
                "worst",
                "without leases",
                "one round trip",
            ),
            STORES,
        ),
    ),
)
PARTS = (REVOKED,)


def gate_on(url: str, lease: float | None) -> Gate:
    plans = PlanBook([Plan("bench", 60_000, None, None, None)], default="bench")
    return Gate(url, brand="acme", peppers=[_PEPPER], plans=plans, lease=lease)


def _work(url: str, orders: Connection) -> None:
    """Admit requests of the key of each order, until the next; answer with the latest start."""

    async def admit() -> None:
        gate = gate_on(url, _LEASE)
        await gate.ready()
        orders.send(None)
        while text := await asyncio.to_thread(orders.recv):
            latest = 0.0
            while not orders.poll():
                started = monotonic()
                try:
                    await gate.authenticate(text)
                    latest = started
                except (Unauthenticated, RateLimitExceeded):
                    await asyncio.sleep(0.001)
                await asyncio.sleep(0.0005)
            orders.recv()
            orders.send(latest)
        await gate.close()

    asyncio.run(admit())


@contextmanager
def workers(url: str) -> Iterator[list[Connection]]:
    """Run the processes; yield their pipes."""
    context = get_context("spawn")
    running = []
    for _ in range(_PROCESSES):
        mine, its = context.Pipe()
        process = context.Process(target=_work, args=(url, its))
        process.start()
        running.append((process, mine))
    pipes = [mine for _, mine in running]
    for pipe in pipes:
        pipe.recv()
    yield pipes
    for process, pipe in running:
        pipe.send("")
        process.join()


async def measured(url: str, trials: int) -> tuple[str, ...]:
    """Return the row of a store."""
    gate = gate_on(url, None)
    await gate.ready()
    trips: list[float] = []
    plain: list[float] = []
    under: list[float] = []
    late = 0
    with workers(url) as pipes:
        for trial in range(trials):
            organization = f"org_{trial % _ORGANIZATIONS}"
            spare = await gate.keys.create("org_idle", "bench", ["*"])
            made = await gate.keys.create(organization, "bench", ["*"])
            for pipe in pipes:
                pipe.send(made.text)
            await _leased(gate, organization)
            began = monotonic()
            await gate.store.now()
            trips.append(monotonic() - began)
            began = monotonic()
            await gate.keys.revoke("org_idle", spare.key.id)
            plain.append(monotonic() - began)
            began = monotonic()
            await gate.keys.revoke(organization, made.key.id)
            answered = monotonic()
            under.append(answered - began)
            await asyncio.sleep(0.01)  # A request that should be refused now would start in it.
            for pipe in pipes:
                pipe.send(None)
            late += sum(pipe.recv() > answered for pipe in pipes)
    await gate.close()
    under.sort()
    return (
        f"{trials:,}",
        f"{late}",
        _milliseconds(median(under)),
        _milliseconds(under[len(under) * 99 // 100]),
        _milliseconds(under[-1]),
        _milliseconds(median(plain)),
        _milliseconds(median(trips)),
    )


async def _leased(gate: Gate, organization: str) -> None:
    """Return once each process has a lease."""
    until = monotonic() + _LEASED_WITHIN
    while len(await gate.store.quota_leases(organization)) < _PROCESSES:
        if monotonic() > until:
            raise RuntimeError(f"Not each process has a lease after {_LEASED_WITHIN} s.")
        await asyncio.sleep(0.005)


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms"


def main() -> None:
    options = parser("benchmarks.revocations", __doc__)
    options.add_argument("--quick", action="store_true", help="few trials, to see that all runs")
    chosen = options.parse_args()
    trials = 20 if chosen.quick else 1000
    about = Run("benchmarks.revocations", "sqlalchemy", "redis", "psycopg", "pymysql")
    cells: dict[str, tuple[str, ...]] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        urls = [
            f"sqlite:///{folder / 'revocations.db'}?mode=rwc",
            stack.enter_context(postgres()).create("revocations"),
            stack.enter_context(mariadb()).create("revocations"),
        ]
        for url in urls[1:]:
            engine = create_engine(url.replace("mysql:", "mysql+pymysql:"))
            migrations.upgrade(engine)
            engine.dispose()
        urls.append(stack.enter_context(redis_server()).url())
        for name, url in zip(STORES, urls, strict=True):
            cells[name] = asyncio.run(measured(url, trials))
            print(name, *cells[name], sep="  ", flush=True)
    _show(cells)
    if chosen.markdown:
        REVOKED.write(about.line(f"SQLite {sqlite3.sqlite_version}"), cells)


def _show(cells: Cells) -> None:
    (form,) = REVOKED.tables
    table(REVOKED.name, form.columns, [[name, *cells[name]] for name in form.rows])


if __name__ == "__main__":
    main()
