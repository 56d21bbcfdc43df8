"""How Redis grows with its primaries: ``python -m benchmarks.cluster [--quick] [--markdown]``.

One server and a Cluster of three primaries admit the same requests in one run, in turns. What a
machine of two cores can measure is the CPU time of each primary for an admission: where it is that
of a lone server, three primaries on three cores admit three times as many. Then come the costs that
grow with the number of processes: a connection, a read of the change counter, a recall.

The last table computes larger fleets from these figures. Only the spread of the organizations over
the primaries is counted in it: each id is hashed as the store does it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import pairwise
from random import Random
from typing import Any, Final, NamedTuple

import redis
from redis import asyncio as redis_asyncio

from lockgate.core.key_format import Token
from lockgate.stores.redis import RedisStore
from lockgate.stores.redis.key_names import DEFAULT_PREFIX, Names
from tests.servers import RedisCluster, RedisServer, redis_cluster, redis_server

from .measure import Spread, table
from .pages import Cells, Part, Run, Table, parser
from .redis import PLANS, fill
from .workload import FORMAT, draft, random_keys

_CALLERS: Final = 16
"""Requests in flight for each primary: as many on each server, so that pipelines are as long."""
_ORGANIZATIONS: Final = 480
_WAITING: Final = 100
"""Connections that wait for recalls."""
_SLOTS: Final = 16_384

LONE: Final = "one server"
PRIMARIES: Final = ("Cluster, primary 1", "Cluster, primary 2", "Cluster, primary 3")
TOGETHER: Final = "Cluster, together"
CAPACITY = Part(
    "cluster-capacity",
    "measured.md",
    (
        Table(
            (
                "Redis, 16 requests in flight for each primary",
                "admissions",
                "CPU time of an admission",
                "admissions a second of CPU time",
                "of one server's",
            ),
            (LONE, *PRIMARIES, TOGETHER),
        ),
    ),
)
COSTS = (
    "memory of an organization with busy windows and one key",
    "memory of a connection",
    "CPU time of a read of the change counter",
    "CPU time of a recall, for each process that waits",
)
BESIDES = Part("cluster-costs", "measured.md", (Table(("Redis", "cost"), COSTS),))
FLEETS: Final = ((1, 10_000), (10, 100_000), (100, 1_000_000), (1_000, 10_000_000))
"""Primaries and organizations."""
_OF_CORE: Final = 0.5
"""The share of the CPU time of a primary that admissions may take: the rest is for peaks."""
_OF_PROCESS: Final = 2_000
"""Requests a second of a process."""
PAPER = Part(
    "cluster-paper",
    "measured.md",
    (
        Table(
            (
                "primaries",
                "organizations",
                "on the busiest primary, of the mean",
                "its memory",
                "admissions a second",
                "processes",
                "memory of connections, each primary",
                "change counter, of a core",
                "changes a second that take a core",
            ),
            tuple(f"{primaries:,}" for primaries, _ in FLEETS),
        ),
    ),
)
PARTS = (CAPACITY, BESIDES, PAPER)


class Load:
    """The admissions of one arrangement of servers.

    Args:
        store: a store of the servers.
        primaries: the servers.
    """

    def __init__(self, store: RedisStore, primaries: Sequence[RedisServer]) -> None:
        self._store = store
        self._meters = [redis.Redis(port=primary.port) for primary in primaries]
        self._callers = _CALLERS * len(primaries)
        self._tokens: list[Token] = []

    async def prepare(self) -> None:
        """Create the organizations, each with a key and busy windows."""
        for number in range(_ORGANIZATIONS):
            organization = f"org_{number}"
            key = random_keys(Random(number)).generate()
            await self._store.insert(draft(organization=organization, key=key), None)
            await fill(self._store, organization)
            token = FORMAT.read([b"Bearer " + key.text.encode()])
            admitted = (await self._store.admit(token, 1, PLANS)).key
            assert admitted is not None
            self._tokens.append(token.without_secret(admitted))

    async def turn(self, calls: int) -> list[tuple[int, float]]:
        """Make so many admissions for each primary; return their number and their CPU time in
        microseconds, by primary."""

        async def caller(place: int) -> None:
            own = self._tokens[place :: self._callers]
            for number in range(calls // _CALLERS):
                await self._store.admit(own[number % len(own)], 1, PLANS)

        before = [_counted(meter) for meter in self._meters]
        await asyncio.gather(*map(caller, range(self._callers)))
        after = [_counted(meter) for meter in self._meters]
        return [(b[0] - a[0], b[1] - a[1]) for a, b in zip(before, after, strict=True)]


def _counted(meter: Any) -> tuple[int, float]:
    """Return how many scripts a server ran, and its CPU time in microseconds."""
    info = meter.info("everything")
    return info["cmdstat_evalsha"]["calls"], (info["used_cpu_user"] + info["used_cpu_sys"]) * 1e6


async def capacity(lone: Load, cluster: Load, rounds: int, calls: int) -> Cells:
    """Measure both arrangements in turns."""
    names = LONE, *PRIMARIES
    admissions = dict.fromkeys(names, 0)
    figures: dict[str, list[float]] = {name: [] for name in names}
    for load in (lone, cluster):
        await load.prepare()
        await load.turn(calls)  # The first does not count.
    for _ in range(rounds):
        turns = [*await lone.turn(calls), *await cluster.turn(calls)]
        for name, (number, spent) in zip(names, turns, strict=True):
            admissions[name] += number
            figures[name].append(spent / number)
    rows: dict[str, Sequence[str]] = {}
    each = {name: Spread.of(figures[name]) for name in names}
    for name in names:
        rate, of_lone = 1e6 / each[name].median, each[LONE].median / each[name].median
        rows[name] = (
            f"{admissions[name]:,}",
            f"{each[name]:.1f} us",
            f"{rate:,.0f}",
            f"{of_lone:.2f}",
        )
    rates = [1e6 / each[name].median for name in PRIMARIES]
    # Until the busiest of them has no time left: requests are not shared out evenly.
    all_of_them = sum(admissions[name] for name in PRIMARIES)
    most = min(
        rate * all_of_them / admissions[name] for rate, name in zip(rates, PRIMARIES, strict=True)
    )
    times = most * each[LONE].median / 1e6
    rows[TOGETHER] = (f"{all_of_them:,}", "", f"{most:,.0f}", f"{times:.2f}")
    return rows


class Besides(NamedTuple):
    """What Redis spends besides admissions."""

    organization: float
    """Bytes."""
    connection: float
    """Bytes."""
    counter: float
    """Microseconds of a read of the change counter."""
    recall: float
    """Microseconds of a recall, for each process that waits."""

    def cells(self) -> Cells:
        """Return the rows of the table."""
        figures = (
            f"{self.organization / 1000:.1f} KB",
            f"{self.connection / 1000:.1f} KB",
            f"{self.counter:.1f} us",
            f"{self.recall:.1f} us",
        )
        return {name: (figure,) for name, figure in zip(COSTS, figures, strict=True)}


async def besides(server: RedisServer, reads: int, recalls: int) -> Besides:
    """Measure what an otherwise idle server spends."""
    meter: Any = redis.Redis(port=server.port)
    names = Names(DEFAULT_PREFIX)
    store = RedisStore(server.url())
    await store.now()
    empty = meter.info("memory")["used_memory"]
    for number in range(_ORGANIZATIONS):
        organization = f"org_{number}"
        key = random_keys(Random(number)).generate()
        await store.insert(draft(organization=organization, key=key), None)
        await fill(store, organization)
    organization_bytes = (meter.info("memory")["used_memory"] - empty) / _ORGANIZATIONS
    counter = await _reads(meter, store, reads)
    await store.close()
    clients = [redis_asyncio.Redis(port=server.port) for _ in range(_WAITING)]
    before = meter.info("memory")["used_memory"]
    for client in clients:
        await client.ping()
    connection = (meter.info("memory")["used_memory"] - before) / _WAITING
    recall = await _recalls(meter, clients, names.recalls, recalls)
    for client in clients:
        await client.aclose()
    return Besides(organization_bytes, connection, counter, recall)


async def _reads(meter: Any, store: RedisStore, reads: int) -> float:
    spent = _cpu(meter)
    for _ in range(reads):
        await store.change_counter()
    return (_cpu(meter) - spent) / reads


async def _recalls(meter: Any, clients: Sequence[Any], stream: bytes, recalls: int) -> float:
    async def wait(client: Any) -> None:
        after = b"0"
        for _ in range(recalls):
            ((_, ((after, _),)),) = await client.xread({stream: after}, block=60_000)
            seen.release()

    seen = asyncio.Semaphore(0)
    waiting = [asyncio.ensure_future(wait(client)) for client in clients]
    spent = _cpu(meter)
    for _ in range(recalls):
        await _all_blocked(meter, len(clients))
        meter.xadd(stream, {"organization": "org_1"})
        for _ in clients:
            await seen.acquire()
    spent = _cpu(meter) - spent
    await asyncio.gather(*waiting)
    return spent / recalls / len(clients)


async def _all_blocked(meter: Any, number: int) -> None:
    while meter.info("clients")["blocked_clients"] < number:
        await asyncio.sleep(0.002)


def _cpu(meter: Any) -> float:
    info = meter.info("cpu")
    return float(info["used_cpu_user"] + info["used_cpu_sys"]) * 1e6


def on_paper(admission: float, costs: Besides, fleets: Sequence[tuple[int, int]]) -> Cells:
    """Compute fleets.

    Args:
        admission: the CPU time of an admission, in microseconds.
        costs: the other costs.
        fleets: numbers of primaries and of organizations.
    """
    rows: dict[str, Sequence[str]] = {}
    for primaries, organizations in fleets:
        busiest = _busiest(primaries, organizations)
        admissions = primaries * _OF_CORE * 1e6 / admission
        processes = max(2, round(admissions / _OF_PROCESS))
        rows[f"{primaries:,}"] = (
            f"{organizations:,}",
            f"{busiest * primaries / organizations:.2f}",
            f"{busiest * costs.organization / 1e6:,.0f} MB",
            f"{admissions:,.0f}",
            f"{processes:,}",
            f"{processes * costs.connection / 1e6:,.0f} MB",
            f"{processes * costs.counter / 1e6:.1%}",
            f"{1e6 / (processes * costs.recall):,.0f}",
        )
    return rows


def _busiest(primaries: int, organizations: int) -> int:
    """Return the number of organizations on the primary that has the most."""
    names = Names(DEFAULT_PREFIX)
    slots = [0] * _SLOTS
    for number in range(organizations):
        slots[names.place(f"org_{number}").slot] += 1
    edges = [part * _SLOTS // primaries for part in range(primaries + 1)]
    return max(sum(slots[a:b]) for a, b in pairwise(edges))


def main() -> None:
    options = parser("benchmarks.cluster", __doc__)
    options.add_argument("--quick", action="store_true", help="few calls, to see that all runs")
    chosen = options.parse_args()
    rounds, calls, repeats = (3, 2_400, 20) if chosen.quick else (15, 8_000, 200)
    fleets = FLEETS[:2] if chosen.quick else FLEETS
    about = Run("benchmarks.cluster", "redis", "hiredis")
    with ExitStack() as stack:
        server = stack.enter_context(redis_server())
        nodes = stack.enter_context(redis_cluster())
        version = redis.Redis(port=server.port).info("server")["redis_version"]
        measured = asyncio.run(_measure(server, nodes, rounds, calls))
        idle = stack.enter_context(redis_server())
        costs = asyncio.run(besides(idle, 100 * repeats, repeats))
    admission = float(measured[LONE][1].split()[0])
    fleet = on_paper(admission, costs, fleets)
    for part, cells in ((CAPACITY, measured), (BESIDES, costs.cells()), (PAPER, fleet)):
        (form,) = part.tables
        table(part.name, form.columns, [[name, *row] for name, row in cells.items()])
    if chosen.markdown:
        line = about.line(f"Redis {version}")
        CAPACITY.write(line, measured)
        BESIDES.write(line, costs.cells())
        PAPER.write(line, fleet)


async def _measure(server: RedisServer, nodes: RedisCluster, rounds: int, calls: int) -> Cells:
    stores = RedisStore(server.url()), RedisStore(nodes.url())
    lone, cluster = Load(stores[0], [server]), Load(stores[1], nodes.nodes)
    cells = await capacity(lone, cluster, rounds, calls)
    for store in stores:
        await store.close()
    return cells


if __name__ == "__main__":
    main()
