"""Kept retries by way of stores and gates (D47)."""

from __future__ import annotations

from typing import Any

import pytest

from lockgate import ConfigurationError, Gate, MemoryStore, Plan, PlanBook, Store, run
from lockgate.core.ledger import Hit, Reset
from lockgate.core.sliding_window import Reading
from lockgate.errors import RateLimitExceeded
from lockgate.options import StoreOptions
from lockgate.stores.key_value.store import RecordStore
from lockgate.testing.clock import HandClock
from tests.stores.test_change_logs import DictRecords

KEPT = Plan("kept", rpm=3, kept_retries=True)


def stores() -> dict[str, Any]:
    return {"memory": MemoryStore, "key-value": lambda: RecordStore(DictRecords())}


class Bench:
    def __init__(self, store: Store, plan: Plan = KEPT) -> None:
        self.clock = HandClock()
        self.store = store
        self.gate = Gate(
            store,
            brand="acme",
            plans=PlanBook([plan]),
            store_options=StoreOptions(clock=self.clock),
        )
        self.keys: dict[str, str] = {}

    def key(self, name: str) -> str:
        if name not in self.keys:
            self.keys[name] = run(self.gate.keys.create("org_1", name, ["*"])).text
        return self.keys[name]

    def call(self, name: str) -> int:
        """Call with a key; return 0, or the seconds that the refusal says."""
        try:
            run(self.gate.authenticate(self.key(name)))
        except RateLimitExceeded as refusal:
            return refusal.retry_after
        return 0


@pytest.fixture(params=[*stores()])
def bench(request: pytest.FixtureRequest) -> Bench:
    return Bench(stores()[request.param]())


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


def test_units_that_are_not_fetched_are_free_after_the_grace_P4(bench: Bench) -> None:
    fill(bench)
    assert bench.call("a") == 50
    bench.clock.move(51.4)
    assert bench.call("b") > 0
    bench.clock.move(0.2)
    assert bench.call("c") == 0


def test_a_call_by_session_leaves_the_units_of_others_P2(bench: Bench) -> None:
    fill(bench)
    assert bench.call("a") == 50
    bench.clock.move(50)
    reading: Reading = run(bench.store.charge("org_1", Hit(KEPT.windows, 1), bench.clock.now))
    assert not reading.allowed
    assert reading.remaining == 0
    assert bench.call("a") == 0


def test_a_reset_drops_what_was_kept_W2(bench: Bench) -> None:
    fill(bench)
    assert bench.call("a") == 50
    run(bench.store.charge("org_1", Reset(), bench.clock.now))
    for name in ("b", "c", "d"):
        assert bench.call(name) == 0


@pytest.mark.parametrize("kind", [*stores()])
def test_without_the_option_all_callers_are_told_one_second(kind: str) -> None:
    bench = Bench(stores()[kind](), Plan("plain", rpm=3))
    fill(bench)
    assert [bench.call(name) for name in "abc"] == [50, 50, 50]
    bench.clock.move(50)
    assert bench.call("newcomer") == 0


@pytest.mark.parametrize("kind", [*stores()])
def test_an_organization_with_own_limits_keeps_retries_too(kind: str) -> None:
    bench = Bench(stores()[kind]())
    bench.key("first")
    run(bench.gate.organizations.place("org_1", "kept", rpm=1))
    assert bench.call("first") == 0
    assert [bench.call("a"), bench.call("b")] == [60, 60]
    bench.clock.move(60)
    assert bench.call("b") > 0
    assert bench.call("a") == 0


@pytest.mark.parametrize("value", [1, "yes", None])
def test_the_option_is_true_or_false(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="kept_retries"):
        Plan("kept", rpm=3, kept_retries=value)
