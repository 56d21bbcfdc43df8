"""Calendar quotas of a gate: refused until the period ends, told once over all processes."""

from __future__ import annotations

import asyncio
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, date, datetime
from itertools import chain
from typing import Any

import pytest
from fastapi import FastAPI

from lockgate import ConfigurationError, Event, Gate, Limit, Plan, PlanBook, run
from lockgate.core.timestamps import DAY, HOUR, SECOND
from lockgate.errors import RateLimitExceeded
from lockgate.fastapi import protect, requires
from lockgate.sessions import Session
from tests.preloaded import forking
from tests.stores.making import HandClock

from ..bench import Bench
from ..shared_stores import gate_on

MARCH = int(datetime(2024, 3, 1, tzinfo=UTC).timestamp()) * SECOND
CREDITS = Limit("credits", "20/month")
OVERAGE = Limit("overage", "20/month", soft=True, starts=date(2023, 5, 31))
CALLS = 12


def book(*limits: Limit) -> PlanBook:
    return PlanBook(
        [Plan("room", rpm=None, rph=None, rpd=None, concurrent=None, limits=limits)],
        custom=[],
        default="room",
    )


def marks(told: list[Event]) -> list[tuple[object, ...]]:
    """Return the quotas that were told: limit, share, use."""
    found = [event.fields for event in told if event.name == "quota_threshold"]
    assert {fields["organization"] for fields in found} <= {"org_1"}
    return [tuple(fields[name] for name in ("limit_name", "share", "used")) for fields in found]


def work(url: str, key: str) -> list[tuple[object, ...]]:
    """Charge two quotas many times at once, in a process of its own; return what it told."""
    told: list[Event] = []

    async def ask_all() -> None:
        gate = gate_on(url, plans=book(CREDITS), observer=told.append)
        calls = (gate.authenticate(key, limits=[OVERAGE]) for _ in range(CALLS))
        await asyncio.gather(*calls, return_exceptions=True)
        await gate.close()

    asyncio.run(ask_all())
    return marks(told)


def test_one_of_all_processes_tells_each_mark(url: str) -> None:
    gate = gate_on(url)
    key = run(gate.keys.create("org_1", "ci")).text
    run(gate.close())
    with ProcessPoolExecutor(3, mp_context=forking()) as pool:
        told = list(chain(*pool.map(work, [url] * 3, [key] * 3)))
    shares = ((80, 16), (100, 20))
    expected = [(name, share, used) for name in ("credits", "overage") for share, used in shares]
    assert sorted(told, key=str) == sorted(expected, key=str)


class Quotas(Bench):
    """A gate at an instant, with a key and limits of its plan."""

    def __init__(self, now: int, *limits: Limit, **options: Any) -> None:
        super().__init__(clock=HandClock(now), plans=book(*limits))
        self.key = self.create(**options).text

    @property
    def marks(self) -> list[tuple[object, ...]]:
        return marks(self.told)


def test_a_full_quota_is_refused_until_its_month_ends() -> None:
    bench = Quotas(MARCH - 2 * DAY, CREDITS)
    bench.admit(bench.key, cost=20)
    bench.clock.now = MARCH - HOUR
    refused: Any = bench.refuses(RateLimitExceeded, bench.key)
    assert refused.body() == {
        "error": "Too many requests for 'credits': 20 of 20 used this month; try again in 3600 s.",
        "code": "RATE_LIMIT_EXCEEDED",
        "retryAfter": 3600,
        "limits": {"type": "month", "limit": 20, "used": 20, "name": "credits"},
    }
    assert bench.marks == [("credits", 80, 20), ("credits", 100, 20)]
    never: Any = bench.refuses(RateLimitExceeded, bench.key, cost=21)
    assert "the limit of the month is 20" in str(never) and never.retry_after == 3600
    explained = run(bench.gate.explain("org_1", cost=21)).refused
    assert explained is not None and explained.until is None
    assert "wait until" not in explained.advice
    bench.clock.now = MARCH
    # A session and a key cross the same quota.
    bench.admit(bench.key, cost=15)
    run(bench.gate.admit_session(Session("org_1", "user_1"), 1))
    assert bench.marks[2:] == [("credits", 80, 16)]


def test_a_soft_quota_admits_more_and_tells_each_mark_once() -> None:
    bench = Quotas(MARCH, OVERAGE, limits={"nightly": "46/month;40/second"})
    for _ in range(9):
        bench.admit(bench.key, cost=5)
        bench.clock.now += SECOND
    assert bench.marks[:2] == [("overage", 80, 20), ("overage", 100, 20)]
    (usage, *_) = run(bench.gate.named_usage("org_1"))
    assert usage == ("overage", "month", 45, 20, 0)
    bench.refuses(RateLimitExceeded, bench.key, cost=2)  # By a quota of its own.


def test_an_explanation_has_the_use_and_the_end_of_the_period() -> None:
    bench = Quotas(MARCH - HOUR, CREDITS, OVERAGE)
    bench.admit(bench.key, cost=20)
    explained = run(bench.gate.explain("org_1"))
    (of_credits,), (of_overage,) = (one.windows for one in explained.limits)
    assert (of_credits.used, of_credits.left, of_credits.until) == (20, 0, MARCH)
    assert (of_overage.used, of_overage.limit, of_overage.until) == (20, 20, MARCH + 30 * DAY)
    assert explained.refused is not None
    assert "this month" in explained.refused.advice
    assert explained.refused.until == MARCH


def test_each_organization_has_the_day_of_its_contract() -> None:
    contracts = {"org_1": date(2022, 7, 15), "org_2": date(2023, 1, 31)}
    limit = Limit("credits", "1/month", starts=contracts.__getitem__)
    bench = Quotas(MARCH + 14 * DAY, limit)
    other = bench.create("org_2").text
    for one in (bench.key, other):
        bench.admit(one)
    bench.clock.now -= 1  # The period of the first has begun a microsecond ago.
    bench.admit(bench.key)
    bench.refuses(RateLimitExceeded, other)


def test_a_function_that_raises_for_one_organization_affects_no_other(url: str) -> None:
    def contract_of(organization: str) -> date:
        if organization == "org_1":
            raise ConnectionResetError
        return date(2024, 1, 1)

    gate = gate_on(url, plans=book(Limit("credits", "20/month", starts=contract_of)))
    first, second = (run(gate.keys.create(one, "ci")).text for one in ("org_1", "org_2"))
    for _ in range(CALLS):
        with pytest.raises(ConfigurationError, match=r"raised ConnectionResetError.* for 'org_1'"):
            run(gate.authenticate(first))
    run(gate.authenticate(second))
    run(gate.close())


def test_the_openapi_document_has_the_period_and_its_zone() -> None:
    app = FastAPI()
    dependency = requires("models:read", limits=[Limit("overage", "9/year;20/month", soft=True)])

    @app.get("/models", dependencies=[dependency])
    async def models() -> None: ...

    protect(app, Gate("memory://", brand="acme"))
    (shown,) = app.openapi()["paths"]["/models"]["get"]["x-rate-limits"]
    assert shown["windows"] == [
        {"type": "year", "limit": 9, "soft": True, "timeZone": "UTC"},
        {"type": "month", "limit": 20, "soft": True, "timeZone": "UTC"},
    ]
