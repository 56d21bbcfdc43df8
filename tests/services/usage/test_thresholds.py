"""The event ``threshold``: told once, over all processes, in both I/O modes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from lockgate import Event, Gate, MemoryStore, Plan, PlanBook, Rule, UsageHistory, run
from lockgate.asgi import GateMiddleware
from lockgate.core.plans import LIMITS, SPANS
from lockgate.core.sliding_window import Window
from lockgate.core.thresholds import lowest_marks
from lockgate.core.timestamps import DAY, MINUTE, SECOND
from lockgate.errors import Refusal
from lockgate.options import StoreOptions
from lockgate.sessions import Session
from tests.stores.making import HandClock
from tests.web.driving import Bench, ask

from ..shared_stores import EVERY_KIND, gate_on, shared_store

FREE = PlanBook([Plan("free", rpm=10, rph=30, rpd=None, concurrent=1)])


class Told(list[tuple[object, ...]]):
    """The thresholds that were told: window, share, use and limit."""

    def __call__(self, event: Event) -> None:
        if event.name == "threshold":
            fields = event.fields
            assert (fields["organization"], fields["plan"]) == ("org_1", "free")
            self.append((fields["window"], fields["share"], fields["used"], fields["limit"]))


@pytest.fixture(params=EVERY_KIND)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with shared_store(request.param, tmp_path) as found:
        yield found


FULL = [("minute", 80, 8, 10), ("minute", 100, 10, 10)]


def test_one_of_many_concurrent_admissions_tells_each_threshold(url: str) -> None:
    told = Told()
    gates = [gate_on(url, plans=FREE, observer=told) for _ in range(3)]
    key = run(gates[0].keys.create("org_1", "ci"))

    async def ask_all() -> None:
        await asyncio.gather(
            *(gate.authenticate(key.text) for gate in gates for _ in range(8)),
            return_exceptions=True,
        )
        for gate in gates:
            await gate.close()

    asyncio.run(ask_all())
    assert sorted(told, key=str) == sorted(FULL, key=str)


def test_threads_tell_each_threshold_once(url: str) -> None:
    told = Told()
    gates = [gate_on(url, plans=FREE, observer=told) for _ in range(3)]
    key = run(gates[0].keys.create("org_1", "ci"))

    def work(number: int) -> None:
        with suppress(Refusal):
            run(gates[number % 3].authenticate(key.text))

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(24)))
    assert sorted(told, key=str) == sorted(FULL, key=str)
    for gate in gates:
        run(gate.close())


class Service:
    def __init__(self, plans: PlanBook = FREE) -> None:
        self.clock, self.told = HandClock(), Told()
        self.gate = Gate(
            MemoryStore(),
            brand="acme",
            plans=plans,
            store_options=StoreOptions(clock=self.clock),
            observer=self.told,
        )
        self.key = run(self.gate.keys.create("org_1", "ci")).text

    def spend(self, cost: int, seconds: float = 0) -> None:
        self.clock.now += int(seconds * SECOND)
        with suppress(Refusal):
            run(self.gate.authenticate(self.key, cost=cost))


def test_a_cost_that_crosses_both_marks_tells_both() -> None:
    service = Service()
    service.spend(7)
    assert service.told == []
    service.spend(3)
    assert service.told == [("minute", 80, 10, 10), ("minute", 100, 10, 10)]


@pytest.mark.parametrize("limit", SPANS)
def test_each_window_of_a_plan_tells_its_thresholds(limit: str) -> None:
    limits: dict[str, Any] = {**dict.fromkeys(LIMITS), limit: 10}
    plan = Plan("free", **limits)
    service = Service(PlanBook([plan]))
    service.spend(10)
    name, _ = SPANS[limit]
    assert service.told == [(name, 80, 10, 10), (name, 100, 10, 10)]


def test_a_plan_of_four_windows_tells_its_thresholds() -> None:
    plans = PlanBook([Plan("free", rpm=None, rph=None, rpd=None, concurrent=1)])
    week = Window("week", 7 * DAY, 10, 0)
    object.__setattr__(plans.default, "windows", (*plans.default.windows, week))
    object.__setattr__(plans.default, "marks", lowest_marks(plans.default.windows))
    service = Service(plans)
    service.spend(7)
    assert service.told == []
    service.spend(3)
    assert service.told == [("week", 80, 10, 10), ("week", 100, 10, 10)]


def test_a_refused_request_crosses_nothing() -> None:
    service = Service()
    for cost in (7, 4, 11):
        service.spend(cost)
    assert service.told == []


def test_a_full_window_is_told_once_in_its_length_while_it_slides() -> None:
    """Every 6 seconds the oldest hit expires and another is admitted in its place."""
    service = Service()
    for _ in range(20):
        service.spend(1, 6)
    minute = [told for told in service.told if told[0] == "minute"]
    assert minute == [FULL[0], FULL[1], FULL[1]]
    hour = [told for told in service.told if told[0] == "hour"]
    assert hour == []


def test_a_window_that_was_used_less_is_told_anew() -> None:
    service = Service()
    service.spend(10)
    service.spend(10, 2 * MINUTE // SECOND)
    assert [told[:2] for told in service.told if told[0] == "minute"] == [
        *(("minute", 80), ("minute", 100)),
        *(("minute", 80), ("minute", 100)),
    ]


def test_after_a_step_back_of_the_clock_a_crossing_is_told() -> None:
    service = Service()
    service.spend(9)
    service.clock.now += 10 * MINUTE
    service.spend(9)
    service.clock.now -= 60 * MINUTE
    service.told.clear()
    service.spend(1)
    assert [told[1] for told in service.told if told[0] == "minute"] == [100]


def test_sessions_and_requests_without_the_scope_cross_thresholds_too() -> None:
    service = Service()
    run(service.gate.admit_session(Session("org_1", "ada"), 8))
    assert service.told == [FULL[0]]
    narrow = run(service.gate.keys.create("org_1", "ci", ["jobs:read"])).text
    with suppress(Refusal):
        run(service.gate.authenticate(narrow, "models:read", cost=2))
    assert service.told == FULL


async def ok(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"ok"})


def test_units_that_an_inner_gate_charges_are_told_and_counted() -> None:
    bench = Bench(plans=FREE, usage_history=UsageHistory())
    key = bench.key()
    inner = GateMiddleware(ok, bench.gate, {"GET /one": Rule("models:read", cost=8)})
    app = GateMiddleware(inner, bench.gate, {"GET /one": Rule("models:read", cost=3)})
    assert asyncio.run(ask(app, path="/one", key=key)).status == 200
    assert [event.fields["share"] for event in bench.told if event.name == "threshold"] == [80]
    assert run(bench.gate.usage("org_1")).admitted == 8


def test_without_an_observer_and_without_usage_nothing_is_judged() -> None:
    gate = Gate(MemoryStore(), brand="acme", plans=FREE)
    key = run(gate.keys.create("org_1", "ci")).text
    for _ in range(10):
        run(gate.authenticate(key))
    assert gate.metrics.events["threshold"] == 0
