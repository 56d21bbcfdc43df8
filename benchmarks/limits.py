"""What named limits cost: an admission with two of them beside a plain one, on one store each."""

import asyncio
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any

from sqlalchemy import create_engine

from lockgate import Limit, MemoryStore, Plan, PlanBook, Store, migrations, run
from lockgate.core.key_format import KeyFormat
from lockgate.stores.answers import Verdict
from lockgate.stores.redis import RedisStore
from lockgate.stores.sql import SqlStore
from tests.servers import postgres, redis_server

from .measure import in_turns, ratio, table
from .workload import draft, random_keys

MOST = 10**9
PLANS = PlanBook([Plan("bench", MOST, MOST, MOST, concurrent=None)], default="bench")
LIMITS = (Limit("export", f"{MOST}/hour"), Limit("own", f"{MOST}/minute", by="key"))
ROUNDS = 15


def main(quick: bool) -> None:
    rounds, calls = (5, 100) if quick else (ROUNDS, 400)
    rows: list[list[str]] = []
    with ExitStack() as stack:
        for name, store in _stores(stack).items():
            rows.append([name, *_measured(store, rounds, calls)])
    title = "An admission with 3 windows of a plan and 2 named limits, times a plain one"
    table(title, ["store", "plain, us", "limited, us", "ratio"], rows)


def _stores(stack: ExitStack) -> dict[str, Store]:
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    redis = stack.enter_context(redis_server())
    url = stack.enter_context(postgres()).create("limits")
    engine = create_engine(url)
    migrations.upgrade(engine)
    engine.dispose()
    return {
        "memory": MemoryStore(),
        "SQLite, one caller": SqlStore(f"sqlite:///{folder / 'limits.db'}?mode=rwc"),
        "PostgreSQL, one caller": SqlStore(url),
        "Redis, one caller": RedisStore(redis.url()),
    }


def _measured(store: Store, rounds: int, calls: int) -> list[str]:
    """Return the quartiles of both admissions, in microseconds, and of their ratio."""
    format: KeyFormat = random_keys(Random(3))
    made = [format.generate() for _ in range(4)]
    loop = asyncio.new_event_loop() if store.io == "async" else None

    def do(flow: Any) -> Any:
        return run(flow) if loop is None else loop.run_until_complete(flow)

    for number, key in enumerate(made):
        do(store.insert(draft(format, f"org_{number % 2}", key), None))
    tokens = [format.read([b"Bearer " + key.text.encode()]) for key in made]

    def turn(limits: tuple[Limit, ...], tokens: list[Any]) -> Callable[[], float]:
        named = (None, None, limits) if limits else ()

        def one() -> float:
            started = perf_counter()
            for number in range(calls):
                found = do(store.admit(tokens[number % 2], 1, PLANS, *named))
                assert found.verdict is Verdict.ADMITTED
            return (perf_counter() - started) / calls * 1e6

        return one

    # Organizations of their own, so that each begins with the same state.
    both = {"plain": turn((), tokens[0::2]), "limited": turn(LIMITS, tokens[1::2])}
    figures = in_turns(both, rounds)
    plain, limited = (sorted(figures[name])[rounds // 2] for name in ("plain", "limited"))
    do(store.close())
    return [f"{plain:.1f}", f"{limited:.1f}", f"{ratio(figures, 'limited', 'plain'):.2f}"]
