"""Clients that obey Retry-After against real servers, with kept retries and without.

    python -m benchmarks.kept_retries_load [--organizations N] [--callers N] [--minutes M]

Four workers of uvicorn share one Redis, or the store of ``--store URL``; ``memory://`` has one
worker. ``--exact`` has windows without the default resolution, a second of a minute. Half of the
organizations is on a plan that keeps retries, the other half on the same plan without. Each caller
has its own key and calls by the SDK of OpenAI, the SDK of Anthropic or urllib3 in turn, which try a
refused call twice more; together those of an organization ask for 1.3 times its limit, a request a
minute for each and a fifth more. All begin within 20 seconds: before its windows are full an
organization delivers less. The first two minutes do not count.

Each row: the calls; the share that failed after both retries; of the quota, the share delivered;
the fullest span of a minute, by the store's instants of all admissions, of the limit; the most
refusals of one call; refusals for each admission; seconds that admitted calls waited, median and
99th percentile. Last the calls of the store for each request of both plans.
"""

import argparse
import asyncio
import os
from bisect import bisect_left
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from random import Random
from socket import socket
from time import monotonic
from typing import Any, NamedTuple

import anthropic
import openai
import urllib3
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from lockgate import Gate, Plan, PlanBook, Rule
from lockgate.asgi import GateMiddleware
from lockgate.core.plans import DEFAULT_RESOLUTION
from lockgate.core.timestamps import MINUTE
from lockgate.error_formats import anthropic as anthropic_errors
from lockgate.error_formats import by_path
from lockgate.error_formats import openai as openai_errors
from lockgate.options import StoreOptions, WebOptions
from lockgate.starlette import error_handlers
from tests.clients.service import CHAT, MESSAGES, PLAIN, answer_of
from tests.servers import redis_server

from .measure import machine, table

PROCESSES, RETRIES, DEMAND, WARM = 2, 2, 1.3, 120.0
PLANS = ("today", "kept")
_PEPPER = bytes(range(32))
_MESSAGE: Any = {"role": "user", "content": "hi"}


class Load(NamedTuple):
    """What is run."""

    organizations: int
    callers: int
    minutes: float
    workers: int = 4
    exact: bool = False
    """Whether the windows of the plans count each request by its own instant."""

    @property
    def limit(self) -> int:
        """Requests a minute of one organization."""
        return max(1, round(1.2 * self.callers))

    @property
    def think(self) -> float:
        """Mean seconds between two calls of a caller."""
        return self.callers * 60 / (DEMAND * self.limit)

    @property
    def names(self) -> dict[str, str]:
        """The plan of each organization."""
        return {f"org_{number}": PLANS[number % 2] for number in range(self.organizations)}


class Done(NamedTuple):
    """One call of a caller."""

    plan: str
    begun: float
    """Seconds since the start."""
    took: float
    refusals: int
    failed: bool


def opened(url: str, load: Load) -> Gate:
    """Open a gate with the two plans."""
    today = Plan("today", load.limit, resolution=None if load.exact else DEFAULT_RESOLUTION)
    plans = [today, replace(today, name="kept", kept_retries=True)]
    return Gate(
        url,
        brand="acme",
        peppers=[_PEPPER],
        plans=PlanBook(plans, custom=()),
        web_options=WebOptions(
            error_body=by_path({"/v1": openai_errors, "/anthropic": anthropic_errors}),
            key_header="X-API-Key",
        ),
        store_options=StoreOptions(deadline=5.0),
    )


def serve(url: str, load: Load, listener: socket, is_first: bool, pipe: Connection) -> None:
    """Serve as one worker; send the keys if it is the first one, and at the end the instants of all
    admissions by organization."""
    admitted: dict[str, list[int]] = {}
    gate = opened(url, load)

    async def answer(request: Request) -> JSONResponse:
        principal = request.user
        admitted.setdefault(principal.organization, []).append(principal.reading.now)
        return JSONResponse(answer_of(request.url.path))

    paths = (CHAT, MESSAGES, PLAIN)
    app = Starlette(
        routes=[Route(path, answer, methods=["POST"]) for path in paths],
        exception_handlers=error_handlers,
    )
    rules: dict[str, Rule | str] = {f"POST {path}": Rule("models:write") for path in paths}
    guarded = GateMiddleware(app, gate, rules)
    config = uvicorn.Config(guarded, log_level="warning", access_log=False, lifespan="off")
    server = uvicorn.Server(config)

    async def main() -> None:
        if is_first:
            pipe.send(await prepared(gate, load))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        await asyncio.get_running_loop().run_in_executor(None, pipe.recv)
        server.should_exit = True
        await serving

    asyncio.run(main())
    pipe.send(admitted)


def by_openai(base: str, key: str, http: Any) -> Callable[[], Awaitable[object]]:
    """Return a call by a client of OpenAI's SDK."""
    client = openai.AsyncOpenAI(
        api_key=key, base_url=base + "/v1", http_client=http, max_retries=RETRIES
    )
    return lambda: client.chat.completions.create(model="m", messages=[_MESSAGE])


def by_anthropic(base: str, key: str, http: Any) -> Callable[[], Awaitable[object]]:
    """Return a call by a client of Anthropic's SDK."""
    client = anthropic.AsyncAnthropic(
        api_key=key, base_url=base + "/anthropic", http_client=http, max_retries=RETRIES
    )
    return lambda: client.messages.create(model="m", max_tokens=1, messages=[_MESSAGE])


def by_urllib3(base: str, key: str, pool: urllib3.PoolManager, refusals: Counter[str]) -> None:
    """Call, and count the refusals.

    Raises:
        MaxRetryError: the call failed after both retries.
    """
    retry = urllib3.Retry(
        total=RETRIES, status_forcelist=[429], allowed_methods=None, respect_retry_after_header=True
    )
    refusals[key] = RETRIES + 1
    answered = pool.request("POST", base + PLAIN, headers={"X-API-Key": key}, retries=retry)
    refusals[key] = len(answered.retries.history) if answered.retries else 0


async def call(ask: Callable[[], Awaitable[object]]) -> bool:
    """Call once by the client of a caller; return whether the call was admitted."""
    try:
        await ask()
    except (openai.APIError, anthropic.APIError, urllib3.exceptions.MaxRetryError):
        return False
    return True


async def calling(
    load: Load, bases: list[str], keys: list[tuple[int, str, str]], until: float
) -> list[Done]:
    """Make the calls of callers, given with their numbers, plans and keys."""
    start, done, refusals = monotonic(), list[Done](), Counter[str]()
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(len(keys)))

    async def count(response: Any) -> None:
        if response.status_code == 429:
            headers = response.request.headers
            named = headers.get("x-api-key") or headers["authorization"].removeprefix("Bearer ")
            refusals[named] += 1

    async def in_thread(base: str, key: str) -> None:
        blocking = partial(by_urllib3, base, key, pool, refusals)
        await asyncio.get_running_loop().run_in_executor(None, blocking)

    async def caller(number: int, plan: str, key: str, http: Any) -> None:
        chance, base = Random(number), bases[number % len(bases)]
        sdk = (by_openai, by_anthropic, None)[number % 3]
        ask = partial(in_thread, base, key) if sdk is None else sdk(base, key, http)
        await asyncio.sleep(chance.random() * min(20.0, load.think))
        while monotonic() - start < until:
            begun, refusals[key] = monotonic(), 0
            admitted = await call(ask)
            took = monotonic() - begun
            done.append(Done(plan, begun - start, took, refusals[key], not admitted))
            await asyncio.sleep(chance.expovariate(1 / load.think))

    pool, settings = urllib3.PoolManager(maxsize=len(keys)), {"event_hooks": {"response": [count]}}
    async with (
        openai.DefaultAsyncHttpxClient(**settings) as of_openai,
        anthropic.DefaultAsyncHttpxClient(**settings) as of_anthropic,
    ):
        https = of_openai, of_anthropic, None
        tasks = [asyncio.create_task(caller(*one, https[one[0] % 3])) for one in keys]
        ended, late = await asyncio.wait(tasks, timeout=until + 1)
        for task in late:
            task.cancel()
        for task in ended:
            task.result()
    return done


def drive(
    load: Load, bases: list[str], keys: list[tuple[int, str, str]], until: float, pipe: Connection
) -> None:
    """Call as one process of clients."""

    async def main() -> None:
        pipe.send(await calling(load, bases, keys, until))
        os._exit(0)  # Threads in which urllib3 still waits for its second would be joined.

    asyncio.run(main())


async def prepared(gate: Gate, load: Load) -> list[tuple[int, str, str]]:
    """Make the organizations and a key for each caller."""
    keys = list[tuple[int, str, str]]()
    for name, plan in load.names.items():
        await gate.organizations.place(name, plan)
        for _ in range(load.callers):
            made = await gate.keys.create(name, "a caller", ["*"])
            keys.append((len(keys), plan, made.text))
    return keys


def fullest(instants: list[int], limit: int) -> float:
    """Return the most admissions of a span of a minute, as a share of the limit."""
    most = 0
    for place, at in enumerate(instants):
        most = max(most, place + 1 - bisect_left(instants, at - MINUTE + 1))
    return most / limit


def measure(load: Load, url: str, store_calls: Any) -> None:
    """Run one load and print its figures."""
    forking, until = get_context("spawn"), WARM + load.minutes * 60
    workers, bases = [], []
    for number in range(load.workers):
        listener = socket()
        listener.bind(("127.0.0.1", 0))
        listener.listen(4096)
        here, there = forking.Pipe()
        workers.append(
            (forking.Process(target=serve, args=(url, load, listener, not number, there)), here)
        )
        workers[-1][0].start()
        bases.append(f"http://127.0.0.1:{listener.getsockname()[1]}")
    keys: list[tuple[int, str, str]] = workers[0][1].recv()
    for base in bases:
        urllib3.request("GET", base + "/", timeout=300)
    before, clients = store_calls(), []
    for number in range(PROCESSES):
        here, there = forking.Pipe()
        asked = load, bases, keys[number::PROCESSES], until, there
        clients.append((forking.Process(target=drive, args=asked), here))
        clients[-1][0].start()
    done: list[Done] = []
    for process, pipe in clients:
        done += pipe.recv()
        process.join()
    asked_of_store = store_calls() - before
    admitted: dict[str, list[int]] = {}
    for process, pipe in workers:
        pipe.send(None)
        for name, instants in pipe.recv().items():
            admitted.setdefault(name, []).extend(instants)
        process.join()
    report(load, done, admitted)
    requests = sum(one.refusals + (not one.failed) for one in done)
    if asked_of_store:
        print(f"\nscripts of the store for each answered request: {asked_of_store / requests:.3f}")


def report(load: Load, done: list[Done], admitted: dict[str, list[int]]) -> None:
    """Print the figures of both plans."""
    rows: list[list[str]] = []
    for plan in PLANS:
        calls = [one for one in done if one.plan == plan and one.begun >= WARM]
        waits = sorted(one.took for one in calls if not one.failed) or [0.0]
        worst = delivered = 0.0
        names = [name for name, its in load.names.items() if its == plan]
        for name in names:
            instants = sorted(admitted.get(name, ()))
            worst = max(worst, fullest(instants, load.limit))
            last = instants[-1] if instants else 0
            since = last - int(load.minutes * MINUTE)
            delivered += len(instants) - bisect_left(instants, since + 1)
        number = max(1, len(calls))
        rows.append(
            [
                plan,
                f"{len(calls):,}",
                f"{sum(one.failed for one in calls) / number:.2%}",
                f"{delivered / (len(names) * load.limit * load.minutes):.3f}",
                f"{worst:.4f}",
                f"{max((one.refusals for one in calls), default=0)}",
                f"{sum(one.refusals for one in calls) / len(waits):.2f}",
                f"{waits[len(waits) // 2]:.1f}",
                f"{waits[int(0.99 * len(waits))]:.1f}",
            ]
        )
    title = (
        f"{load.organizations} organizations of {load.callers} callers, {load.limit} a minute, at "
        f"{DEMAND} times the limit, {load.workers} workers, {load.minutes:g} minutes"
    )
    columns = ["", "calls", "failed", "delivered", "worst minute", "longest"]
    table(title, [*columns, "429s", "p50 s", "p99 s"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kept_retries_load")
    parser.add_argument("--organizations", type=int, default=100)
    parser.add_argument("--callers", type=int, default=50)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--store", help="a URL instead of a Redis server that is started")
    parser.add_argument("--exact", action="store_true", help="windows without a resolution")
    chosen = parser.parse_args()
    workers = 1 if chosen.store == "memory://" else 4
    load = Load(chosen.organizations, chosen.callers, chosen.minutes, workers, chosen.exact)
    print(machine())
    with ExitStack() as servers:
        if chosen.store:
            measure(load, chosen.store, lambda: 0)
            return
        server = servers.enter_context(redis_server())
        client = servers.enter_context(server.client())

        def scripts() -> int:
            told: Any = client.info("commandstats")
            return int(told.get("cmdstat_evalsha", {}).get("calls", 0))

        measure(load, server.url(), scripts)


if __name__ == "__main__":
    main()
