"""Listing organizations, their own limits, and windows that an operator empties."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from flask import Flask
from werkzeug.test import Client

from lockgate import ConfigurationError, Event, Gate, MemoryStore, PlanBook, Rule, run
from lockgate.core.temporary_limits import TemporaryLimit
from lockgate.core.timestamps import HOUR, MINUTE, SECOND
from lockgate.errors import InvalidRequest, RateLimitExceeded
from lockgate.wsgi import protect
from tests.patience import until
from tests.stores.making import HandClock

from .bench import Bench
from .shared_stores import Drive, gate_on

NINE_THIRTY = datetime(2026, 11, 23, 9, 30, tzinfo=UTC)
BEGIN = int(NINE_THIRTY.timestamp()) * SECOND


def test_a_reset_reaches_a_process_that_remembers_the_refusal(url: str, drive: Drive) -> None:
    told: list[Event] = []
    serving, operating = gate_on(url), gate_on(url, observer=told.append)
    texts = [drive(serving.keys.create(f"org_{n}", "ci")).text for n in range(2)]
    for text in texts:
        drive(serving.authenticate(text, cost=10))
        with pytest.raises(RateLimitExceeded):
            drive(serving.authenticate(text))
    drive(operating.organizations.reset("org_0"))
    assert ("windows_reset", {"organization": "org_0"}) in told
    logged = drive(operating.changes.list("org_0")).changes
    assert [change.action for change in logged] == ["windows_reset", "key_created"]

    def used() -> tuple[int, ...] | None:
        with suppress(RateLimitExceeded):
            reading: tuple[int, ...] = drive(serving.authenticate(texts[0])).reading.used
            assert reading == (1, 1, 1)
            return reading
        return None

    until(used)
    with pytest.raises(RateLimitExceeded):
        drive(serving.authenticate(texts[1]))
    drive(serving.close())
    drive(operating.close())


def test_own_limits_change_one_by_one_and_are_taken_back() -> None:
    gate = Gate(MemoryStore(), brand="acme")
    change = gate.organizations
    run(change.set_limits("org_1", rpd=1000))
    run(change.set_limits("org_1", rpm=None))
    found = run(change.limits("org_1"))
    assert (found.assigned, found.own) == ("free", {"rpd": 1000, "rpm": None})
    assert (found.plan.rpm, found.plan.rph, found.plan.rpd) == (None, 100, 1000)
    run(change.clear_limits("org_1", "rpd"))
    assert run(change.limits("org_1")).own == {"rpm": None}
    run(change.clear_limits("org_1"))
    assert run(change.limits("org_1")).own == {}
    run(change.clear_limits("org_2"))
    assert run(change.limits("org_2")).assigned is None
    for wrong in ("rpx", ""):
        with pytest.raises(ConfigurationError, match="choose from"):
            run(change.clear_limits("org_1", wrong))


def test_a_list_selects_by_the_plan_that_applies() -> None:
    gate = Gate(MemoryStore(), brand="acme")
    for number in range(250):
        plan = "starter" if number % 50 == 0 else None
        run(gate.organizations.create(f"org_{number:03}", plan))
    run(gate.keys.create("org_with_keys", "ci"))
    page = run(gate.organizations.list(plan="starter"))
    assert [one.id for one in page.organizations] == [f"org_{n:03}" for n in range(0, 250, 50)]
    assert {one.plan.name for one in page.organizations} == {"starter"}
    free = run(gate.organizations.list(plan="free", limit=1000)).organizations
    assert len(free) == 246
    assert free[-1] == ("org_with_keys", gate.plans.default, None, 1, None)
    assert not run(gate.organizations.list(plan="nope")).organizations


def test_a_known_organization_is_not_created_again_nor_one_with_an_invalid_id() -> None:
    gate = Bench().gate
    for id in ("", "o" * 129):
        with pytest.raises(ConfigurationError, match="1 to 128"):
            run(gate.organizations.create(id))
    run(gate.keys.create("org_1", "ci"))
    run(gate.organizations.place("org_2", "starter"))
    for id in ("org_1", "org_2"):
        with pytest.raises(InvalidRequest, match="already"):
            run(gate.organizations.create(id, "creator"))
    assert run(gate.organizations.plan("org_2")).name == "starter"


def test_a_temporary_limit_holds_until_its_end() -> None:
    bench = Bench(clock=HandClock(BEGIN))
    change, text = bench.gate.organizations, bench.create().text
    run(change.set_limits("org_1", rpd=700))
    run(change.set_limits("org_1", rpm=15, rpd=1200, until=NINE_THIRTY + timedelta(hours=2)))

    def refused_after() -> int:
        for number in range(100):
            try:
                bench.admit(text)
            except RateLimitExceeded:
                return number
        raise AssertionError("no request was refused")

    assert refused_after() == 15
    found = run(change.limits("org_1"))
    assert (found.own, found.plan.rpm, found.plan.rpd) == ({"rpd": 700}, 15, 1200)
    end = BEGIN + 2 * HOUR
    assert found.temporary == {"rpm": (15, end), "rpd": (1200, end)}
    for now, admitted in ((end - 1, 15), (end + MINUTE, 10), (end + 2 * MINUTE, 10)):
        bench.clock.now = now
        assert refused_after() == admitted
    found = run(change.limits("org_1"))
    assert (found.own, found.temporary, found.plan.rpd) == ({"rpd": 700}, {}, 700)
    plans = [run(change.plan("org_1")), run(change.list()).organizations[0].plan]
    assert {(plan.rpm, plan.rpd) for plan in plans} == {(10, 700)}
    logged = run(bench.gate.changes.list("org_1")).changes
    actions = ["plan_assigned", "plan_assigned", "key_created"]
    assert [change.action for change in logged] == actions, "the end itself is no change"
    assert dict(logged[0].after) == {
        **{"plan": "free", "rpd": 700},
        **{"temporary_rpd": 1200, "temporary_rpd_ends_at": end},
        **{"temporary_rpm": 15, "temporary_rpm_ends_at": end},
    }


def test_the_clock_of_the_store_ends_a_temporary_limit(url: str) -> None:
    gate = gate_on(url)
    now = run(gate.now())
    for organization, end, admitted in (("org_1", now + HOUR, 12), ("org_2", now - 1, 10)):
        key = run(gate.keys.create(organization, "ci")).text
        placed = PlanBook().place(organization, "free", {}, {"rpm": TemporaryLimit(12, end)})
        run(gate.store.put_organization(placed))
        run(gate.authenticate(key, cost=admitted))
        with pytest.raises(RateLimitExceeded):
            run(gate.authenticate(key))
    run(gate.close())


def test_a_permanent_limit_replaces_a_temporary_one_and_both_are_cleared() -> None:
    gate = Gate(MemoryStore(), brand="acme")
    change, later = gate.organizations, datetime.now(UTC) + timedelta(days=1)
    run(change.set_limits("org_1", rpd=1000, rpm=20, until=later))
    run(change.set_limits("org_1", rpd=2000, clear=["rpm"]))
    found = run(change.limits("org_1"))
    assert (found.own, found.temporary) == ({"rpd": 2000}, {})
    run(change.set_limits("org_1", rpm=20, until=later))
    run(change.clear_limits("org_1"))
    found = run(change.limits("org_1"))
    assert (found.own, found.temporary) == ({}, {})
    run(change.set_limits("org_1", rpm=20, until=later))
    run(change.place("org_1", "creator"))
    assert run(change.limits("org_1")).temporary == {}
    for ends, match in ((datetime(2999, 1, 1), "time zone"), (datetime.now(UTC), "past")):
        with pytest.raises(ConfigurationError, match=match):
            run(change.set_limits("org_1", rpm=20, until=ends))
    with pytest.raises(ConfigurationError, match="choose from"):
        run(change.set_limits("org_1", rpm=20, clear=["rpx"]))


def test_temporary_limits_are_ended_early_and_the_own_limits_stay() -> None:
    gate = Gate(MemoryStore(), brand="acme")
    change, later = gate.organizations, datetime.now(UTC) + timedelta(days=1)
    run(change.set_limits("org_1", rpd=1000))
    run(change.set_limits("org_1", rpd=2000, rpm=20, until=later))
    run(change.end_temporary_limits("org_1", "rpm"))
    found = run(change.limits("org_1"))
    assert (found.plan.rpm, found.plan.rpd, found.own) == (10, 2000, {"rpd": 1000})
    run(change.end_temporary_limits("org_1"))
    found = run(change.limits("org_1"))
    assert (found.temporary, found.plan.rpd, found.own) == ({}, 1000, {"rpd": 1000})
    number = run(gate.changes.list("org_1")).changes[0].number
    run(change.end_temporary_limits("org_1"))
    run(change.end_temporary_limits("org_2"))
    assert run(gate.changes.list("org_1")).changes[0].number == number
    assert run(change.limits("org_2")).assigned is None
    with pytest.raises(ConfigurationError, match="choose from"):
        run(change.end_temporary_limits("org_1", "rpx"))


def test_a_refusal_by_a_temporary_limit_of_0_tells_its_end() -> None:
    bench = Bench(clock=HandClock(BEGIN))
    key, until = bench.create().text, NINE_THIRTY + timedelta(minutes=20)
    run(bench.gate.organizations.set_limits("org_1", rph=0, until=until))
    refusal: Any = bench.refuses(RateLimitExceeded, key)
    assert refusal.retry_after == 20 * 60
    assert str(refusal) == (
        "A request of cost 1 is not admitted before 2026-11-23T09:50:00.000Z: until then the limit "
        "of the hour is 0."
    )


def test_a_refusal_by_a_lower_limit_is_not_repeated_after_its_end(url: str) -> None:
    clock = HandClock(BEGIN)
    gate = gate_on(url, clock=clock)
    key = run(gate.keys.create("org_1", "ci")).text
    until = NINE_THIRTY + timedelta(seconds=10)
    run(gate.organizations.set_limits("org_1", rpm=1, until=until))
    client = Client(protect(Flask(__name__).wsgi_app, gate, rules={"GET /models": Rule()}))

    def status() -> int:
        return client.get("/models", headers={"Authorization": f"Bearer {key}"}).status_code

    assert [status() for _ in range(4)] == [404, 429, 429, 429]
    clock.now += 10 * SECOND
    assert status() == 404
    run(gate.close())
