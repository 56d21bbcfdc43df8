"""Kept retries by way of stores and gates (D47)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from itertools import count
from typing import Any, ClassVar, TypeVar

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from lockgate import ConfigurationError, Gate, MemoryStore, Plan, PlanBook, Store
from lockgate.core.ledger import HitLeased, Leased
from lockgate.errors import RateLimitExceeded
from lockgate.options import StoreOptions
from lockgate.stores.cached.store import CachedStore
from lockgate.testing.clock import HandClock
from tests.promise_machine import PromiseMachine

from .redis.backends import opened, stop_servers
from .sql.backends import BACKENDS

T = TypeVar("T")

KEPT = Plan("kept", rpm=3, kept_retries=True)
STORES: dict[str, Callable[[], Store]] = {
    "memory": MemoryStore,
    "sqlite": BACKENDS["sqlite"].open,
    "redis": partial(opened, "single"),
}
"""One for each place where the rule stands or is applied; the contract is checked on each store."""


@pytest.fixture(scope="module", autouse=True)
def servers() -> Iterator[None]:
    yield
    stop_servers()


class Bench:
    """A gate with a store, a clock of the test, and a loop of its own."""

    def __init__(self, store: Store, plan: Plan = KEPT, lease: float | None = None) -> None:
        self.clock = HandClock()
        self.runner = asyncio.Runner()
        self.store = store
        self.gate = Gate(
            store,
            brand="acme",
            plans=PlanBook([plan]),
            store_options=StoreOptions(clock=self.clock, lease=lease),
        )
        self.keys: dict[str, str] = {}

    def run(self, flow: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(flow)

    def key(self, name: str) -> str:
        if name not in self.keys:
            self.keys[name] = self.run(self.gate.keys.create("org_1", name, ["*"])).text
        return self.keys[name]

    def call(self, name: str) -> int:
        """Call with a key; return 0, or the seconds that the refusal says."""
        try:
            self.run(self.gate.authenticate(self.key(name)))
        except RateLimitExceeded as refusal:
            return refusal.retry_after
        return 0

    def close(self) -> None:
        self.run(self.gate.close())
        self.runner.close()


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench(CachedStore(BACKENDS["sqlite"].open(), opened("single")))
    yield made
    made.close()


def fill(bench: Bench) -> None:
    for _ in range(3):
        assert bench.call("first") == 0
        bench.clock.move(2)
    bench.clock.move(4)


def test_callers_are_told_seconds_of_their_own_and_find_their_units_P2(bench: Bench) -> None:
    fill(bench)
    told = {name: bench.call(name) for name in ("a", "b", "c")}
    assert told == {"a": 50, "b": 52, "c": 54}
    for name, seconds in ((name, 50 + 2 * n) for n, name in enumerate("abc")):
        bench.clock.move(0 if seconds == 50 else 2)
        if seconds == 50:
            bench.clock.move(50)
        assert bench.call("newcomer") > 0
        assert bench.call(name) == 0


@pytest.mark.parametrize("value", [1, "yes", None])
def test_the_option_is_true_or_false(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="kept_retries"):
        Plan("kept", rpm=3, kept_retries=value)


class StoreMachine(PromiseMachine):
    """The rule on a store: an organization of its own for each example."""

    is_exact = True
    store: ClassVar[Store]
    runner: ClassVar[asyncio.Runner]
    owners = count()

    def __init__(self) -> None:
        super().__init__()
        self.owner = f"org_{next(self.owners)}"

    def charge(self, action: HitLeased, now: int) -> Leased:
        return self.runner.run(self.store.charge(self.owner, action, now))


@pytest.mark.parametrize("is_exact", [True, False])
@pytest.mark.parametrize("kind", [*STORES])
def test_any_calls_keep_every_promise_P1_to_P4(kind: str, is_exact: bool) -> None:
    class Machine(StoreMachine):
        pass

    with asyncio.Runner() as runner:
        Machine.is_exact, Machine.runner, Machine.store = is_exact, runner, STORES[kind]()
        try:
            few = settings(max_examples=12, stateful_step_count=15, deadline=None)
            run_state_machine_as_test(Machine, settings=few)
        finally:
            runner.run(Machine.store.close())


def test_kept_retries_go_with_quota_leases_H5() -> None:
    bench = Bench(MemoryStore(), Plan("kept", rpm=600, kept_retries=True), lease=1)
    admitted = 0
    for _ in range(1400):
        admitted += bench.call("busy") == 0
        bench.clock.move(0.01)
    assert admitted == 600
    bench.clock.move(2)
    told = [bench.call(name) for name in "abc"]
    assert told == sorted(told)
    for name, seconds in zip("abc", told, strict=True):
        at = bench.clock.now
        bench.clock.move(seconds)
        assert bench.call(name) == 0
        bench.clock.now = at
    bench.close()
