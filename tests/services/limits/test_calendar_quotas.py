"""Calendar quotas of a gate: refused until the period ends, told once over all processes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, date, datetime
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI

from lockgate import ConfigurationError, Event, Gate, Limit, Plan, PlanBook, run
from lockgate.core.timestamps import DAY, HOUR, SECOND
from lockgate.errors import RateLimitExceeded
from lockgate.fastapi import protect, requires
from lockgate.options import StoreOptions
from lockgate.sessions import Session
from tests.preloaded import forking
from tests.stores.making import HandClock

from ..shared_stores import EVERY_KIND, gate_on, shared_store

MARCH = int(datetime(2024, 3, 1, tzinfo=UTC).timestamp()) * SECOND
CREDITS = Limit("credits", "20/month")
OVERAGE = Limit("overage", "20/month", soft=True, starts=date(2023, 5, 31))
CALLS = 12


class Told(list[tuple[object, ...]]):
    """The quotas that were told: limit, share, use, and when the period ends."""

    def __call__(self, event: Event) -> None:
        if event.name == "quota_threshold":
            fields = event.fields
            assert fields["organization"] == "org_1"
            self.append((fields["limit_name"], fields["share"], fields["used"]))


def book(*limits: Limit) -> PlanBook:
    return PlanBook(
        [Plan("room", rpm=None, rph=None, rpd=None, concurrent=None, limits=limits)],
        custom=[],
        default="room",
    )


@pytest.fixture(params=EVERY_KIND)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with shared_store(request.param, tmp_path) as found:
        yield found


def work(url: str, key: str) -> list[tuple[object, ...]]:
    """Charge two quotas many times at once, in a process of its own; return what it told."""
    told = Told()

    async def ask_all() -> None:
        gate = gate_on(url, plans=book(CREDITS), observer=told)
        calls = (gate.authenticate(key, limits=[OVERAGE]) for _ in range(CALLS))
        await asyncio.gather(*calls, return_exceptions=True)
        await gate.close()

    asyncio.run(ask_all())
    return told


def test_one_of_all_processes_tells_each_mark(url: str) -> None:
    gate = gate_on(url)
    key = run(gate.keys.create("org_1", "ci")).text
    run(gate.close())
    with ProcessPoolExecutor(3, mp_context=forking()) as pool:
        told = list(chain(*pool.map(work, [url] * 3, [key] * 3)))
    marks = [(name, share, used) for name in ("credits", "overage") for share, used in MARKS]
    assert sorted(told, key=str) == sorted(marks, key=str)


MARKS = ((80, 16), (100, 20))


def gate_at(clock: HandClock, told: Told, *limits: Limit, **options: Any) -> tuple[Gate, str]:
    gate = Gate(
        "memory://",
        brand="acme",
        store_options=StoreOptions(clock=clock),
        plans=book(*limits),
        observer=told,
    )
    return gate, run(gate.keys.create("org_1", "ci", **options)).text


def test_a_full_quota_is_refused_until_its_month_ends() -> None:
    clock, told = HandClock(MARCH - 2 * DAY), Told()
    gate, key = gate_at(clock, told, CREDITS)
    run(gate.authenticate(key, cost=20))
    clock.now = MARCH - HOUR
    with pytest.raises(RateLimitExceeded) as refused:
        run(gate.authenticate(key))
    assert refused.value.body() == {
        "error": "Too many requests for 'credits': 20 of 20 used this month; try again in 3600 s.",
        "code": "RATE_LIMIT_EXCEEDED",
        "retryAfter": 3600,
        "limits": {"type": "month", "limit": 20, "used": 20, "name": "credits"},
    }
    assert told == [("credits", 80, 20), ("credits", 100, 20)]
    clock.now = MARCH
    run(gate.authenticate(key, cost=16))
    assert told[2:] == [("credits", 80, 16)]


def test_a_cost_above_a_quota_is_never_admitted_and_says_so() -> None:
    clock = HandClock(MARCH - HOUR)
    gate, key = gate_at(clock, Told(), CREDITS)
    with pytest.raises(RateLimitExceeded, match="the limit of the month is 20") as refused:
        run(gate.authenticate(key, cost=21))
    assert refused.value.retry_after == 3600


def test_a_soft_quota_admits_more_and_tells_each_mark_once() -> None:
    told = Told()
    gate, key = gate_at(HandClock(MARCH), told, OVERAGE)
    for _ in range(9):
        run(gate.authenticate(key, cost=5))
    assert told == [("overage", 80, 20), ("overage", 100, 20)]
    (usage,) = run(gate.named_usage("org_1"))
    assert usage == ("overage", "month", 45, 20, 0)


def test_a_session_and_a_key_cross_the_same_quota() -> None:
    told = Told()
    gate, key = gate_at(HandClock(MARCH), told, CREDITS)
    run(gate.authenticate(key, cost=15))
    session = Session("org_1", "user_1")
    run(gate.admit_session(session, 1))
    assert told == [("credits", 80, 16)]


def test_a_key_has_a_quota_of_its_own() -> None:
    gate, key = gate_at(HandClock(MARCH), Told(), limits={"nightly": "2/month;1/second"})
    run(gate.authenticate(key, cost=1))
    with pytest.raises(RateLimitExceeded):
        run(gate.authenticate(key, cost=2))


def test_an_explanation_has_the_use_and_the_end_of_the_period() -> None:
    gate, key = gate_at(HandClock(MARCH - HOUR), Told(), CREDITS, OVERAGE)
    run(gate.authenticate(key, cost=20))
    explained = run(gate.explain("org_1"))
    (of_credits,), (of_overage,) = (one.windows for one in explained.limits)
    assert (of_credits.used, of_credits.left, of_credits.until) == (20, 0, MARCH)
    assert (of_overage.used, of_overage.limit, of_overage.until) == (20, 20, MARCH + 30 * DAY)
    assert explained.refused is not None
    assert "this month" in explained.refused.advice
    assert explained.refused.until == MARCH


def test_a_cost_above_a_quota_is_explained_without_an_end() -> None:
    gate, _ = gate_at(HandClock(MARCH - HOUR), Told(), CREDITS)
    refused = run(gate.explain("org_1", cost=21)).refused
    assert refused is not None and refused.until is None
    assert "wait until" not in refused.advice


def test_each_organization_has_the_day_of_its_contract() -> None:
    contracts = {"org_1": date(2022, 7, 15), "org_2": date(2023, 1, 31)}
    clock = HandClock(MARCH + 14 * DAY)
    by_contract = Limit("credits", "1/month", starts=contracts.__getitem__)
    gate, key = gate_at(clock, Told(), by_contract)
    other = run(gate.keys.create("org_2", "ci")).text
    for one in (key, other):
        run(gate.authenticate(one))
    clock.now -= 1  # The period of the first has begun a microsecond ago.
    run(gate.authenticate(key))
    with pytest.raises(RateLimitExceeded):
        run(gate.authenticate(other))


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
