"""Redis: admissions beside one bare EVALSHA and the peers, on one server, in one run.

``python -m benchmarks.redis [--calls 2000] [--rounds 5] [--http] [--markdown]``

The floor is redis-py calling a script that does nothing. The peers do less: they check no key. A
server is started for the occasion; round trips are the reads that it counted with one caller in
flight, commands those of its INFO commandstats, the ones that scripts made included.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from random import Random
from time import process_time
from typing import Any, NamedTuple

import redis
from limits import parse_many
from limits.aio.storage import RedisStorage
from limits.aio.strategies import MovingWindowRateLimiter, SlidingWindowCounterRateLimiter
from pyrate_limiter import Limiter, Rate, RedisBucket
from redis import asyncio as redis_asyncio

from lockgate import Plan, PlanBook
from lockgate.core.ledger import Hit
from lockgate.core.timestamps import DAY, HOUR, MINUTE, SECOND
from lockgate.stores.redis import RedisStore
from tests.servers import RedisServer, redis_server

from . import contenders, http
from .load import GENERATOR
from .measure import Spread, beside, machine, ratio, table
from .pages import Cells, Part, Run, Table, parser
from .workload import FORMAT, draft, random_keys

LIMITS = (10_000_000, 100_000_000, 1_000_000_000)
PLANS = PlanBook([Plan("free", *LIMITS, concurrent=None)])
TEXT = ";".join(f"{n}/{span}" for n, span in zip(LIMITS, ("minute", "hour", "day"), strict=True))
FLOOR = "redis-py, EVALSHA 'return 1'"
OURS = "lockgate"
CALLERS = 16

Work = Callable[[int], Awaitable[object]]


class Costs(NamedTuple):
    """What a call took: microseconds of CPU time here and in the server, and what it was asked."""

    client: float
    server: float
    commands: float
    trips: float


async def lockgate_(port: int) -> Work:
    """A key, three windows and the usage; 100 cells lie in each window, as in the rule's tests."""
    store = RedisStore(f"redis://127.0.0.1:{port}")
    tokens = []
    for number in range(CALLERS):
        organization = f"org_{number}"
        key = random_keys(Random(number)).generate()
        await store.insert(draft(organization=organization, key=key), None)
        token = FORMAT.read([b"Bearer " + key.text.encode()])
        await fill(store, organization)
        admitted = (await store.admit(token, 1, PLANS)).key
        assert admitted is not None
        # As the gate presents a key that it admitted lately.
        tokens.append(token.without_secret(admitted))
    return lambda caller: store.admit(tokens[caller], 1, PLANS)


async def fill(store: RedisStore, organization: str) -> None:
    """Bring about 100 cells into each window, as months of steady use do."""
    windows = PLANS.default.windows
    now = await store.now()
    for span, count, start in ((DAY, 75, HOUR), (HOUR, 50, 2 * MINUTE), (MINUTE, 75, 2 * SECOND)):
        step = (span - start) // count
        for number in range(count):
            if (at := now - span + start + number * step) < now - start:
                await store.charge(organization, Hit(windows, 1), at)


async def floor(port: int) -> Work:
    client = redis_asyncio.Redis(port=port)
    digest = await client.script_load("return 1")
    return lambda caller: client.evalsha(digest, 1, "a key", "a value")


def limits_(strategy: type[Any]) -> Callable[[int], Awaitable[Work]]:
    async def made(port: int) -> Work:
        storage = RedisStorage(f"async+redis://127.0.0.1:{port}", implementation="redispy")
        limiter = strategy(storage)
        items = parse_many(TEXT)

        async def work(caller: int) -> None:
            for item in items:
                assert await limiter.hit(item, f"org_{caller}")

        return work

    return made


async def pyrate(port: int) -> Work:
    rates = [Rate(n, ms) for n, ms in zip(LIMITS, (60_000, 3_600_000, 86_400_000), strict=True)]
    client = redis_asyncio.Redis(port=port)
    limiters = []
    for caller in range(CALLERS):
        bucket = await RedisBucket.init(rates, client, f"pyrate {caller}")
        limiters.append(Limiter(bucket))

    async def work(caller: int) -> None:
        assert await limiters[caller].try_acquire_async("org", blocking=False)

    return work


CONTENDERS: dict[str, Callable[[int], Awaitable[Work]]] = {
    FLOOR: floor,
    OURS: lockgate_,
    "limits, moving window, three limits": limits_(MovingWindowRateLimiter),
    "limits, sliding counter, three limits": limits_(SlidingWindowCounterRateLimiter),
    "pyrate-limiter, three rates": pyrate,
}


SLOWAPI = "slowapi in Redis, without keys"
OVER_HTTP = {
    http.BARE: "nothing",
    FLOOR: "floor_redis",
    OURS: "lockgate_redis",
    SLOWAPI: "slowapi_redis",
}
LIBRARIES = ("redis", "hiredis", "limits", "pyrate-limiter", "slowapi", "starlette", "uvicorn")
LONE, MANY = "1 caller", f"{CALLERS} callers"
COSTS = ("client CPU, of the floor's", "Redis CPU, of the floor's", "commands", "round trips")
PAGE = Part(
    "redis",
    "measured.md",
    (
        *(Table((callers, *COSTS), tuple(CONTENDERS)) for callers in (LONE, MANY)),
        Table(
            (
                f"over HTTP, {http.CONNECTIONS} connections",
                "requests a second, of bare Starlette's",
                "server's CPU for a request",
                "bare Starlette's CPU, of its own",
            ),
            tuple(OVER_HTTP),
        ),
    ),
)
PARTS = (PAGE,)


class Meter:
    """Reads what the server counted."""

    def __init__(self, port: int) -> None:
        self._client = redis.Redis(port=port)

    def __call__(self) -> tuple[float, float, float, float]:
        info: Any = self._client.info("everything")
        calls = sum(
            entry["calls"]
            for name, entry in info.items()
            if name.startswith("cmdstat_") and not name.startswith("cmdstat_info")
        )
        server = info["used_cpu_user"] + info["used_cpu_sys"]
        return process_time(), server, calls, info["total_reads_processed"]


async def measured(work: Work, callers: int, calls: int, meter: Meter) -> Costs:
    async def call(caller: int) -> None:
        for _ in range(calls // callers):
            await work(caller)

    before = meter()
    await asyncio.gather(*(call(caller) for caller in range(callers)))
    after = meter()
    client, server, commands, reads = (b - a for a, b in zip(before, after, strict=True))
    done = calls // callers * callers
    # One read was the meter's own.
    return Costs(client / done * 1e6, server / done * 1e6, commands / done, (reads - 1) / done)


Figures = dict[str, list[Costs]]
"""The costs of each round, by contender."""


async def calls(server: RedisServer, rounds: int, number: int) -> tuple[Figures, Figures]:
    """Print and return what a call takes, with one and with many in flight."""
    meter = Meter(server.port)
    works = {name: await make(server.port) for name, make in CONTENDERS.items()}
    alone: Figures = {name: [] for name in works}
    crowd: Figures = {name: [] for name in works}
    for callers, costs in ((1, alone), (CALLERS, crowd)):
        for turn in range(rounds + 1):
            for name, work in works.items():
                cost = await measured(work, callers, number, meter)
                if turn:  # The first does not count.
                    costs[name].append(cost)
        columns = ["", "client CPU us", "Redis CPU us", "commands", "reads"]
        rows = [[name, *cells] for name, cells in shown(costs, FLOOR).items()]
        table(f"{callers} in flight, {rounds} rounds of {number} calls, in turns", columns, rows)
    return alone, crowd


def shown(costs: Figures, base: str) -> dict[str, list[str]]:
    """Write the costs of a call, each beside that of the base."""
    client = {name: [cost.client for cost in costs[name]] for name in costs}
    served = {name: [cost.server for cost in costs[name]] for name in costs}
    return {
        name: [
            *(
                f"{Spread.of(cpu[name]).median:.0f} us"
                if name == base
                else beside(Spread.of(cpu[name]), ratio(cpu, name, base), " us")
                for cpu in (client, served)
            ),
            f"{costs[name][-1].commands:.1f}",
            f"{costs[name][-1].trips:.2f}",
        ]
        for name in costs
    }


def over_http(server: RedisServer, rounds: int) -> dict[str, http.Served]:
    """Print the throughput of whole applications, Redis beside the load and not beside them."""
    os.environ[contenders.REDIS] = f"redis://127.0.0.1:{server.port}"
    assert server.process is not None
    http.pin(server.process.pid, http.LAST)
    return http.compare(OVER_HTTP, rounds, 2)


def write(line: str, alone: Figures, crowd: Figures, served: dict[str, http.Served]) -> None:
    """Write the figures into the pages."""
    applications: Cells = {
        name: [
            beside(one.rate, one.of_other, ""),
            f"{one.cpu.median:.0f} us",
            f"{one.of_cpu:.2f}",
        ]
        for name, one in served.items()
    }
    PAGE.write(line, shown(alone, FLOOR), shown(crowd, FLOOR), applications)


def main() -> None:
    options = parser("benchmarks.redis", __doc__)
    options.add_argument("--calls", type=int, default=2000)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--http", action="store_true", help="throughput over HTTP as well")
    chosen = options.parse_args()
    about = Run("benchmarks.redis", *LIBRARIES)
    print(machine())
    with redis_server() as server:
        version = redis.Redis(port=server.port).info("server")["redis_version"]
        alone, crowd = asyncio.run(calls(server, chosen.rounds, chosen.calls))
        if chosen.http or chosen.markdown:
            served = over_http(server, chosen.rounds)
            if chosen.markdown:
                write(about.line(f"Redis {version}", GENERATOR), alone, crowd, served)


if __name__ == "__main__":
    main()
