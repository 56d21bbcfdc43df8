"""How soon a revocation is answered under leases: ``python -m benchmarks.revocations``.

Four processes admit requests of one key from quota leases as fast as they can. Another process
revokes the key, and takes the time until the answer. Each process knows the start of its latest
admitted request, so a request that began after the answer is found.

A second table counts round trips: the server is 10 ms away, and requests are few, so a time divided
by the time of a round trip is the number of those that follow one another. ``--markdown`` writes
both tables into ``docs/measured.md``.
"""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from time import monotonic
from typing import NamedTuple

from sqlalchemy import make_url

from lockgate import Gate, Plan, PlanBook
from lockgate.core.ledger import LeasesOut
from lockgate.errors import RateLimitExceeded, Unauthenticated
from lockgate.options import StoreOptions
from tests.servers import mariadb, postgres, redis_server

from .far import far
from .measure import table
from .pages import Cells, Part, Run, Table, parser
from .tables import with_tables

_PROCESSES = 4
_ORGANIZATIONS = 8
_LEASE = 1.0
_PEPPER = bytes(range(32))
_OFTEN, _SELDOM = 0.0005, 0.01
"""Seconds between two requests of a process."""
_AWAY = 0.01
"""Seconds that a byte takes to a server that is far away."""
_STEADY = 2 * _LEASE
"""Seconds after which leases have the size of the demand."""
_DEADLINE = 5.0
"""Seconds for a request: a far database takes several round trips."""
_LEASED_WITHIN = 5.0
"""Seconds for which a trial waits for a lease of each process."""

STORES = ("SQLite", "PostgreSQL", "MariaDB", "Redis")
REVOKED = Part(
    "lease-revocations",
    "measured.md",
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
FAR = ("Redis", "PostgreSQL")
TRIPS = Part(
    "lease-revocation-trips",
    "measured.md",
    (
        Table(
            (
                "round trips until the answer",
                "trials",
                "admitted after the answer",
                "under leases: median",
                "99 % within",
                "without leases: median",
                "more by leases",
                "one round trip",
            ),
            FAR,
        ),
    ),
)
PARTS = (REVOKED, TRIPS)


class Times(NamedTuple):
    """What the trials took, in seconds, sorted."""

    trips: list[float]
    """Of a call of the store that reads its clock."""
    plain: list[float]
    """Of a revocation without leases."""
    under: list[float]
    """Of a revocation under leases."""
    late: int
    """Requests that were admitted although they began after the answer."""


def gate_on(url: str, lease: float | None) -> Gate:
    plans = PlanBook([Plan("bench", 60_000, None, None, None)], default="bench")
    options = StoreOptions(deadline=_DEADLINE, lease=lease)
    return Gate(
        url,
        brand="acme",
        peppers=[_PEPPER],
        plans=plans,
        store_options=options,
    )


def _work(url: str, pause: float, orders: Connection) -> None:
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
                await asyncio.sleep(pause)
            orders.recv()
            orders.send(latest)
        await gate.close()

    asyncio.run(admit())


@contextmanager
def workers(url: str, pause: float) -> Iterator[list[Connection]]:
    """Run the processes; yield their pipes."""
    context = get_context("spawn")
    running = []
    for _ in range(_PROCESSES):
        mine, its = context.Pipe()
        process = context.Process(target=_work, args=(url, pause, its))
        process.start()
        its.close()  # Else the end of a process that failed would go unseen.
        running.append((process, mine))
    pipes = [mine for _, mine in running]
    for pipe in pipes:
        pipe.recv()
    yield pipes
    for process, pipe in running:
        pipe.send("")
        process.join()


async def measured(url: str, trials: int, pause: float = _OFTEN, steady: float = 0) -> Times:
    """Revoke keys of a store.

    Args:
        url: the store.
        trials: revocations.
        pause: seconds between two requests of a process.
        steady: seconds from the first lease of each process to the revocation. The first ones are
            small, so the processes ask for others at once, and lock the organization.
    """
    gate = gate_on(url, None)
    await gate.ready()
    trips: list[float] = []
    plain: list[float] = []
    under: list[float] = []
    late = 0
    with workers(url, pause) as pipes:
        for trial in range(trials):
            organization = f"org_{trial % _ORGANIZATIONS}"
            spare = await gate.keys.create("org_idle", "bench", ["*"])
            made = await gate.keys.create(organization, "bench", ["*"])
            for pipe in pipes:
                pipe.send(made.text)
            await _leased(gate, organization)
            await asyncio.sleep(steady)
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
            # A request that should be refused would start now.
            await asyncio.sleep(2 * _SELDOM)
            for pipe in pipes:
                pipe.send(None)
            late += sum(pipe.recv() > answered for pipe in pipes)
    await gate.close()
    return Times(sorted(trips), sorted(plain), sorted(under), late)


def by_time(times: Times) -> tuple[str, ...]:
    """Return the row of a store in milliseconds."""
    trips, plain, under, late = times
    return (
        f"{len(under):,}",
        f"{late}",
        _milliseconds(median(under)),
        _milliseconds(under[len(under) * 99 // 100]),
        _milliseconds(under[-1]),
        _milliseconds(median(plain)),
        _milliseconds(median(trips)),
    )


def by_trips(times: Times, trip: float) -> tuple[str, ...]:
    """Return the row of a store in round trips of so many seconds."""
    _, plain, under, late = times
    return (
        f"{len(under):,}",
        f"{late}",
        f"{median(under) / trip:.1f}",
        f"{under[len(under) * 99 // 100] / trip:.1f}",
        f"{median(plain) / trip:.1f}",
        f"{(median(under) - median(plain)) / trip:.1f}",
        _milliseconds(trip),
    )


async def _leased(gate: Gate, organization: str) -> None:
    """Return once each process has a lease."""
    until = monotonic() + _LEASED_WITHIN
    while len(await gate.store.charge(organization, LeasesOut())) < _PROCESSES:
        if monotonic() > until:
            raise RuntimeError(f"Not each process has a lease after {_LEASED_WITHIN} s.")
        await asyncio.sleep(0.005)


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms"


def main() -> None:
    options = parser("benchmarks.revocations", __doc__)
    options.add_argument("--quick", action="store_true", help="few trials, to see that all runs")
    options.add_argument("--far", action="store_true", help="count round trips only")
    chosen = options.parse_args()
    near, away = (20, 20) if chosen.quick else (1000, 60)
    about = Run("benchmarks.revocations", "sqlalchemy", "redis", "psycopg", "pymysql")
    with ExitStack() as stack:
        urls = dict(zip(FAR, _servers(stack), strict=True))
        trips = _count_trips(urls, away)
        times = {} if chosen.far else _measure(_others(stack) | urls, near)
    _show(TRIPS, trips)
    if times:
        _show(REVOKED, times)
    if chosen.markdown:
        TRIPS.write(about.line(), trips)
    if chosen.markdown and times:
        REVOKED.write(about.line(f"SQLite {sqlite3.sqlite_version}"), times)


def _servers(stack: ExitStack) -> tuple[str, ...]:
    """Start the servers of :data:`FAR`; return their URLs."""
    redis = stack.enter_context(redis_server()).url()
    return redis, with_tables(stack.enter_context(postgres()).create("revocations"))


def _others(stack: ExitStack) -> dict[str, str]:
    """Return the URLs of the other stores."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    return {
        "SQLite": f"sqlite:///{folder / 'revocations.db'}?mode=rwc",
        "MariaDB": with_tables(stack.enter_context(mariadb()).create("revocations")),
    }


def _measure(urls: Mapping[str, str], trials: int) -> dict[str, tuple[str, ...]]:
    rows: dict[str, tuple[str, ...]] = {}
    for name in STORES:
        rows[name] = by_time(asyncio.run(measured(urls[name], trials)))
        print(name, *rows[name], sep="  ", flush=True)
    return rows


def _count_trips(urls: Mapping[str, str], trials: int) -> dict[str, tuple[str, ...]]:
    rows: dict[str, tuple[str, ...]] = {}
    trip = 0.0
    for name in FAR:
        url = make_url(urls[name])
        assert url.port is not None, "the servers listen on ports"
        with far(url.port, _AWAY) as port:
            there = url.set(port=port).render_as_string(hide_password=False)
            times = asyncio.run(measured(there, trials, _SELDOM, _STEADY))
        if name == "Redis":  # Its clock is read in one round trip.
            trip = median(times.trips)
        rows[name] = by_trips(times, trip)
        print(name, *rows[name], sep="  ", flush=True)
    return rows


def _show(part: Part, cells: Cells) -> None:
    (form,) = part.tables
    table(part.name, form.columns, [[name, *cells[name]] for name in form.rows])


if __name__ == "__main__":
    main()
