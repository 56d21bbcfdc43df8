"""The event ``threshold``: told once, over all processes, in both I/O modes."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from lockgate import Event, Plan, PlanBook, Rule, UsageHistory, run
from lockgate.asgi import GateMiddleware
from lockgate.core.plans import LIMITS, SPANS
from lockgate.core.sliding_window import Window
from lockgate.core.thresholds import lowest_marks
from lockgate.core.timestamps import DAY, MINUTE, SECOND
from lockgate.errors import Refusal
from lockgate.sessions import Session
from tests.web.driving import Bench as WebBench
from tests.web.driving import ask

from ..bench import Bench
from ..shared_stores import gate_on

FREE = PlanBook([Plan("free", rpm=10, rph=30, rpd=None, concurrent=1)])


FULL = [("minute", 80, 8, 10), ("minute", 100, 10, 10)]


def thresholds(told: list[Event]) -> list[tuple[object, ...]]:
    """Return the thresholds that were told: window, share, use and limit."""
    found = [event.fields for event in told if event.name == "threshold"]
    assert {(fields["organization"], fields["plan"]) for fields in found} <= {("org_1", "free")}
    return [
        tuple(fields[name] for name in ("window", "share", "used", "limit")) for fields in found
    ]


@pytest.mark.parametrize("awaits", [True, False])
def test_one_of_many_concurrent_admissions_tells_each_threshold(any_url: str, awaits: bool) -> None:
    told: list[Event] = []
    gates = [gate_on(any_url, plans=FREE, observer=told.append) for _ in range(3)]
    key = run(gates[0].keys.create("org_1", "ci"))

    async def ask_all() -> None:
        calls = (gate.authenticate(key.text) for gate in gates for _ in range(8))
        await asyncio.gather(*calls, return_exceptions=True)
        for gate in gates:
            await gate.close()

    def work(number: int) -> None:
        with suppress(Refusal):
            run(gates[number % 3].authenticate(key.text))

    if awaits:
        asyncio.run(ask_all())
    else:
        with ThreadPoolExecutor(6) as pool:
            list(pool.map(work, range(24)))
        for gate in gates:
            run(gate.close())
    assert sorted(thresholds(told), key=str) == sorted(FULL, key=str)


class Service(Bench):
    def __init__(self, plans: PlanBook = FREE) -> None:
        super().__init__(plans=plans)
        self.key = self.create().text

    @property
    def marks(self) -> list[tuple[object, ...]]:
        return thresholds(self.told)

    def spend(self, cost: int, seconds: float = 0) -> None:
        self.clock.now += int(seconds * SECOND)
        with suppress(Refusal):
            self.admit(self.key, cost=cost)


def test_a_cost_that_crosses_both_marks_tells_both_and_a_refused_one_none() -> None:
    service = Service()
    for cost in (7, 4, 11):
        service.spend(cost)
    assert service.marks == []
    service.spend(3)
    assert service.marks == [("minute", 80, 10, 10), ("minute", 100, 10, 10)]
    service.spend(10, 2 * MINUTE // SECOND)
    assert [mark[:2] for mark in service.marks[2:] if mark[0] == "minute"] == [
        *(("minute", 80), ("minute", 100)),
    ], "a window that was used less is told anew"


@pytest.mark.parametrize("limit", SPANS)
def test_each_window_of_a_plan_tells_its_thresholds(limit: str) -> None:
    limits: dict[str, Any] = {**dict.fromkeys(LIMITS), limit: 10}
    plan = Plan("free", **limits)
    service = Service(PlanBook([plan]))
    service.spend(10)
    name, _ = SPANS[limit]
    assert service.marks == [(name, 80, 10, 10), (name, 100, 10, 10)]


def test_a_plan_of_four_windows_tells_its_thresholds() -> None:
    plans = PlanBook([Plan("free", rpm=None, rph=None, rpd=None, concurrent=1)])
    week = Window("week", 7 * DAY, 10, 0)
    object.__setattr__(plans.default, "windows", (*plans.default.windows, week))
    object.__setattr__(plans.default, "marks", lowest_marks(plans.default.windows))
    service = Service(plans)
    service.spend(7)
    assert service.marks == []
    service.spend(3)
    assert service.marks == [("week", 80, 10, 10), ("week", 100, 10, 10)]


def test_a_full_window_is_told_once_in_its_length_while_it_slides() -> None:
    """Every 6 seconds the oldest hit expires and another is admitted in its place."""
    service = Service()
    for _ in range(20):
        service.spend(1, 6)
    minute = [mark for mark in service.marks if mark[0] == "minute"]
    assert minute == [FULL[0], FULL[1], FULL[1]]
    hour = [mark for mark in service.marks if mark[0] == "hour"]
    assert hour == []


def test_after_a_step_back_of_the_clock_a_crossing_is_told() -> None:
    service = Service()
    service.spend(9)
    service.clock.now += 10 * MINUTE
    service.spend(9)
    service.clock.now -= 60 * MINUTE
    service.told.clear()
    service.spend(1)
    assert [mark[1] for mark in service.marks if mark[0] == "minute"] == [100]


def test_sessions_and_requests_without_the_scope_cross_thresholds_too() -> None:
    service = Service()
    run(service.gate.admit_session(Session("org_1", "ada"), 8))
    assert service.marks == [FULL[0]]
    narrow = service.create(scopes=["jobs:read"]).text
    with suppress(Refusal):
        run(service.gate.authenticate(narrow, "models:read", cost=2))
    assert service.marks == FULL


async def ok(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"ok"})


def test_units_that_an_inner_gate_charges_are_told_and_counted() -> None:
    bench = WebBench(plans=FREE, usage_history=UsageHistory())
    key = bench.key()
    inner = GateMiddleware(ok, bench.gate, {"GET /one": Rule("models:read", cost=8)})
    app = GateMiddleware(inner, bench.gate, {"GET /one": Rule("models:read", cost=3)})
    assert asyncio.run(ask(app, path="/one", key=key)).status == 200
    assert [event.fields["share"] for event in bench.told if event.name == "threshold"] == [80]
    assert run(bench.gate.usage("org_1")).admitted == 8


def test_without_an_observer_and_without_usage_nothing_is_judged() -> None:
    bench = Bench(plans=FREE, observer=None)
    bench.admit(bench.create().text, cost=10)
    assert bench.gate.metrics.events["threshold"] == 0
