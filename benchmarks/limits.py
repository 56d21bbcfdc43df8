"""What named limits and holds cost: an admission with two named limits, a hold of one and its
settling, each beside a plain admission, on one store each."""

import asyncio
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from random import Random
from secrets import token_hex
from time import perf_counter
from typing import Any

from lockgate import Limit, MemoryStore, Plan, PlanBook, Store, run
from lockgate.core.holds import HoldAction, Settle, Take, budgets
from lockgate.core.key_format import KeyFormat
from lockgate.core.limits import windows_of
from lockgate.core.timestamps import MINUTE
from lockgate.stores.answers import Verdict
from lockgate.stores.redis import RedisStore
from lockgate.stores.sql import SqlStore
from tests.servers import postgres, redis_server

from .measure import in_turns, ratio, table
from .tables import with_tables
from .workload import draft, random_keys

MOST = 10**9
PLANS = PlanBook([Plan("bench", MOST, MOST, MOST, concurrent=None)], default="bench")
LIMITS = (Limit("export", f"{MOST}/hour"), Limit("own", f"{MOST}/minute", by="key"))
TOKENS = budgets(windows_of((Limit("tokens", f"{MOST}/minute"),)))
ROUNDS = 15


def main(quick: bool) -> None:
    rounds, calls = (5, 100) if quick else (ROUNDS, 400)
    rows: list[list[str]] = []
    with ExitStack() as stack:
        for name, store in _stores(stack).items():
            rows.append([name, *_measured(store, rounds, calls)])
    title = "An admission with 2 named limits, a hold, and its settling, times a plain admission"
    table(title, ["store", "plain, us", "limited", "hold", "settling"], rows)


def _stores(stack: ExitStack) -> dict[str, Store]:
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    redis = stack.enter_context(redis_server())
    url = with_tables(stack.enter_context(postgres()).create("limits"))
    return {
        "memory": MemoryStore(),
        "SQLite, one caller": SqlStore(f"sqlite:///{folder / 'limits.db'}?mode=rwc"),
        "PostgreSQL, one caller": SqlStore(url),
        "Redis, one caller": RedisStore(redis.url()),
    }


def _measured(store: Store, rounds: int, calls: int) -> list[str]:
    """Return the time of a plain admission in microseconds, and the ratio of the others to it."""
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

    def holding(timed: Callable[[Take], HoldAction]) -> Callable[[], float]:
        """Time one of the two calls of a hold, taking and settling."""

        def one() -> float:
            spent = 0.0
            for _ in range(calls):
                taken = Take(token_hex(16), TOKENS, (100,), MINUTE, 1000)
                for action in (taken, Settle(taken.id, taken.fields, (50,))):
                    started = perf_counter()
                    assert do(store.charge("org_2", action)).done
                    if action == timed(taken):
                        spent += perf_counter() - started
            return spent / calls * 1e6

        return one

    # Organizations of their own, so that each begins with the same state.
    turns = {
        "plain": turn((), tokens[0::2]),
        "limited": turn(LIMITS, tokens[1::2]),
        "hold": holding(lambda taken: taken),
        "settling": holding(lambda taken: Settle(taken.id, taken.fields, (50,))),
    }
    figures = in_turns(turns, rounds)
    do(store.close())
    plain = sorted(figures["plain"])[rounds // 2]
    others = (f"{ratio(figures, name, 'plain'):.2f}" for name in ("limited", "hold", "settling"))
    return [f"{plain:.1f}", *others]
