"""What quota leases give and cost: ``python -m benchmarks.leases [--markdown]``.

First a simulation over a store in memory, with a clock of its own: processes that together ask for
1.3 times the limit of one organization, and an oracle that knows how much could have been admitted.
Then admissions a second of one process, with leases and without, on three stores in turns; what
four processes admit in a second of CPU time beside one; and requests over HTTP.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import tempfile
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from time import perf_counter, process_time
from typing import Any, NamedTuple

from lockgate import Gate, MemoryStore, Plan, PlanBook, run
from lockgate.core.key_format import KeyFormat, Token
from lockgate.core.timestamps import MINUTE, SECOND
from lockgate.options import StoreOptions
from lockgate.stores.answers import Admission, Verdict
from lockgate.stores.leasing import LeasingStore
from tests.servers import mariadb, postgres, redis_cluster, redis_server

from .contenders import REDIS
from .http import compare
from .measure import Spread, in_turns, ratio, table
from .pages import Cells, Part, Run, Table, parser
from .tables import with_tables
from .workload import draft, random_keys

_TICK = 5_000
_MINUTES = 3
_DEMAND = 1.3
_PEPPER = bytes(range(32))


class Fleet(NamedTuple):
    """One simulation."""

    limit: int
    processes: int
    seconds: float

    @property
    def name(self) -> str:
        return f"{self.limit:,}/minute, {self.processes} processes, `lease={self.seconds:g}`"


FLEETS = (Fleet(6000, 4, 1), Fleet(6000, 4, 0.5), Fleet(60_000, 16, 1), Fleet(600, 2, 1))
SIMULATED = Part(
    "lease-simulation",
    "measured.md",
    (
        Table(
            ("fleet", "delivered", "worst window", "store calls an admission"),
            tuple(fleet.name for fleet in FLEETS),
        ),
    ),
)
STORES = ("SQLite", "PostgreSQL", "MariaDB", "Redis", "Redis Cluster")
FLIGHTS = (1, 32)
SPEED = Part(
    "lease-speed",
    "measured.md",
    (
        Table(
            (
                "admissions a second of one organization",
                "without",
                "with leases",
                "times",
                "time of an admission from a lease, of one in memory",
            ),
            tuple(f"{store}, {flight} in flight" for store in STORES for flight in FLIGHTS),
        ),
    ),
)
FLEET = Part(
    "lease-fleet",
    "measured.md",
    (
        Table(
            ("admissions a second of CPU time", "one process", "four, each", "four to one"),
            STORES,
        ),
    ),
)
SERVED = {"memory": "lockgate", "Redis": "lockgate_redis", "Redis, leases": "lockgate_leased"}
HTTP = Part(
    "lease-http",
    "measured.md",
    (Table(("requests a second over HTTP", "median", "of memory"), tuple(SERVED)),),
)
PARTS = (SIMULATED, SPEED, FLEET, HTTP)


class _Clock:
    at = 1_800_000_000 * SECOND

    def __call__(self) -> int:
        return self.at


class _Counted(MemoryStore):
    """Counts the calls of a server."""

    calls = 0

    async def admit(self, *args: Any, **kwargs: Any) -> Admission:
        self.calls += 1
        return await super().admit(*args, **kwargs)

    async def charge(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        return await super().charge(*args, **kwargs)

    async def add_usage(self, *args: Any, **kwargs: Any) -> None:
        self.calls += 1
        await super().add_usage(*args, **kwargs)


def simulated(fleet: Fleet) -> tuple[str, str, str]:
    """Return the delivered share, the worst window in limits, and the calls an admission."""
    random, clock = Random(1), _Clock()
    store = _Counted(clock)
    plans = PlanBook([Plan("bench", fleet.limit, None, None, None)], default="bench")
    token = _key(store)
    processes = [LeasingStore(store, fleet.seconds, clock) for _ in range(fleet.processes)]
    refused_until = [0] * fleet.processes
    rate = fleet.limit * _DEMAND / MINUTE / fleet.processes * _TICK
    window, possible = deque[int](), deque[int]()
    worst = admitted = could = 0
    for tick in range(_MINUTES * MINUTE // _TICK):
        clock.at += _TICK
        order = list(range(fleet.processes))
        random.shuffle(order)
        for process in order:
            for _ in range(int(rate) + (random.random() < rate % 1)):
                if _room(possible, clock.at) < fleet.limit:
                    possible.append(clock.at)
                    could += 1
                if clock.at < refused_until[process]:  # A refusal cache would refuse it.
                    continue
                admission = run(processes[process].admit(token, 1, plans, clock.at))
                reading = admission.reading
                assert reading is not None
                if admission.verdict is Verdict.ADMITTED:
                    admitted += 1
                    worst = max(worst, _room(window, clock.at) + 1)
                    window.append(clock.at)
                else:
                    stands = min(clock.at + reading.wait, max(reading.reset, clock.at + 1))
                    refused_until[process] = stands
            if tick % 20 == 0:
                run(processes[process].settle_idle())
    calls = store.calls / admitted
    return f"{admitted / could:.2%}", f"{worst / fleet.limit:.4f}", f"{calls:.3f}"


def _room(admitted: deque[int], now: int) -> int:
    """Return how many are in the last minute."""
    while admitted and admitted[0] <= now - MINUTE:
        admitted.popleft()
    return len(admitted)


def _key(store: MemoryStore) -> Token:
    format: KeyFormat = random_keys(Random(3))
    key = format.generate()
    run(store.insert(draft(format, "org_1", key), None))
    return format.read([b"Bearer " + key.text.encode()])


def measured(name: str, url: str, rounds: int, number: int) -> dict[int, tuple[Spread, ...]]:
    """Return admissions a second without and with leases, their ratio, and the ratio of the time
    with leases to that of a store in memory, by flight."""
    most = 10**9
    plans = PlanBook([Plan("bench", most, most, most, None)], default="bench")
    loop = asyncio.new_event_loop()

    def gate_on(url: str, lease: float | None) -> Gate:
        gate = Gate(
            url,
            brand="acme",
            peppers=[_PEPPER],
            plans=plans,
            store_options=StoreOptions(lease=lease),
        )
        loop.run_until_complete(gate.ready())
        return gate

    gates = {
        "without": gate_on(url, None),
        "leased": gate_on(url, 1.0),
        "memory": gate_on("memory://", None),
    }
    organization = f"org_{name}"
    made = loop.run_until_complete(gates["without"].keys.create(organization, "bench", ["*"]))
    local = loop.run_until_complete(gates["memory"].keys.create(organization, "bench", ["*"]))
    texts = {"without": made.text, "leased": made.text, "memory": local.text}

    def turn(way: str, flight: int) -> Callable[[], float]:
        gate, text = gates[way], texts[way]

        async def caller() -> None:
            for _ in range(number // flight):
                await gate.authenticate(text)

        async def all() -> None:
            await asyncio.gather(*(caller() for _ in range(flight)))

        def one() -> float:
            started = perf_counter()
            loop.run_until_complete(all())
            return number / (perf_counter() - started)

        return one

    found: dict[int, tuple[Spread, ...]] = {}
    for flight in FLIGHTS:
        figures = in_turns({way: turn(way, flight) for way in gates}, rounds)
        found[flight] = (
            Spread.of(figures["without"]),
            Spread.of(figures["leased"]),
            ratio(figures, "leased", "without"),
            ratio(figures, "memory", "leased"),
        )
    for gate in gates.values():
        loop.run_until_complete(gate.close())
    loop.close()
    return found


def _admit(url: str, text: str, seconds: float, counts: Connection) -> None:
    """Admit for some seconds; send the admissions and the CPU time that they took."""
    plans = PlanBook([Plan("bench", 10**9, 10**9, 10**9, None)], default="bench")

    async def admit() -> None:
        gate = Gate(
            url,
            brand="acme",
            peppers=[_PEPPER],
            plans=plans,
            store_options=StoreOptions(lease=1),
        )
        for _ in range(1000):
            await gate.authenticate(text)
        counts.send("ready")
        await asyncio.to_thread(counts.recv)
        number, began, ends = 0, process_time(), perf_counter() + seconds
        while perf_counter() < ends:
            for _ in range(200):
                await gate.authenticate(text)
            number += 200
        counts.send(number / (process_time() - began))
        await gate.close()

    asyncio.run(admit())


def together(url: str, text: str, processes: int, seconds: float) -> float:
    """Return the admissions of each of some processes in a second of its CPU time."""
    context = get_context("spawn")
    running: list[tuple[Any, Connection]] = []
    for _ in range(processes):
        mine, its = context.Pipe()
        process = context.Process(target=_admit, args=(url, text, seconds, its))
        process.start()
        its.close()  # Else the end of a process that failed would go unseen.
        running.append((process, mine))
    for _, counts in running:
        counts.recv()
    for _, counts in running:
        counts.send("go")
    found = [counts.recv() for _, counts in running]
    for process, _ in running:
        process.join()
    return sum(found) / processes


def fleet(name: str, url: str, rounds: int, seconds: float) -> tuple[str, str, str]:
    """Return what one process and four admit in a second of CPU time, and the ratio."""
    plans = PlanBook([Plan("bench", 10**9, 10**9, 10**9, None)], default="bench")

    async def made() -> str:
        gate = Gate(url, brand="acme", peppers=[_PEPPER], plans=plans)
        created = await gate.keys.create(f"org_fleet_{name}", "bench", ["*"])
        await gate.close()
        return created.text

    text = asyncio.run(made())
    turns = {
        f"{number}": lambda number=number: together(url, text, number, seconds) for number in (1, 4)
    }
    figures = in_turns(turns, rounds)
    one, four = Spread.of(figures["1"]), Spread.of(figures["4"])
    return f"{one.median:,.0f}", f"{four.median:,.0f}", f"{ratio(figures, '4', '1'):.2f}"


def served(url: str, rounds: int, seconds: int) -> Cells:
    """Return requests a second over HTTP, and their ratio to those on a store in memory."""
    os.environ[REDIS] = url
    found = compare(SERVED, rounds, seconds, beside="memory")
    return {name: (f"{one.rate.median:,.0f}", f"{one.of_other:.2f}") for name, one in found.items()}


def main() -> None:
    options = parser("benchmarks.leases", __doc__)
    options.add_argument("--quick", action="store_true", help="few rounds, to see that all runs")
    chosen = options.parse_args()
    rounds, number = (3, 500) if chosen.quick else (9, 4000)
    seconds = 1 if chosen.quick else 3
    about = Run("benchmarks.leases", "sqlalchemy", "redis", "psycopg", "pymysql", "asyncmy")
    fleets: Cells = {fleet.name: simulated(fleet) for fleet in FLEETS}
    _show(SIMULATED, fleets)
    cells: dict[str, tuple[str, ...]] = {}
    of_fleets: dict[str, tuple[str, ...]] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(redis_server())
        urls = (
            f"sqlite:///{folder / 'leases.db'}?mode=rwc",
            with_tables(stack.enter_context(postgres()).create("leases")),
            with_tables(stack.enter_context(mariadb()).create("leases")),
            server.url(),
            stack.enter_context(redis_cluster()).url(),
        )
        for name, store in zip(STORES, urls, strict=True):
            for flight, found in measured(name, store, rounds, number).items():
                without, leased, times, of_memory = found
                cells[f"{name}, {flight} in flight"] = (
                    f"{without.median:,.0f}",
                    f"{leased.median:,.0f}",
                    f"{times:.1f}",
                    f"{of_memory:.2f}",
                )
            of_fleets[name] = fleet(name, store, min(rounds, 5), seconds)
        over_http = served(server.url(), rounds, seconds)
    _show(SPEED, cells)
    _show(FLEET, of_fleets)
    _show(HTTP, over_http)
    if chosen.markdown:
        line = about.line(f"SQLite {sqlite3.sqlite_version}")
        SIMULATED.write(line, fleets)
        SPEED.write(line, cells)
        FLEET.write(line, of_fleets)
        HTTP.write(line, over_http)


def _show(part: Part, cells: Cells) -> None:
    (form,) = part.tables
    table(part.name, form.columns, [[name, *cells[name]] for name in form.rows])


if __name__ == "__main__":
    main()
