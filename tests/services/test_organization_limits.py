"""Listing organizations, their own limits, and windows that an operator empties."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import monotonic, sleep
from typing import Literal

import pytest
from flask import Flask
from werkzeug.test import Client

from lockgate import ConfigurationError, Event, Gate, MemoryStore, PlanBook, Rule, run
from lockgate.core.temporary_limits import TemporaryLimit
from lockgate.core.timestamps import HOUR, MINUTE, SECOND
from lockgate.errors import InvalidRequest, RateLimitExceeded
from lockgate.options import StoreOptions
from lockgate.wsgi import protect
from tests.patience import SECONDS

from .shared_stores import KINDS, MODES, Kind, driving, gate_on, shared_store


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", MODES)
def test_a_reset_reaches_a_process_that_remembers_the_refusal(
    kind: Kind, mode: str, tmp_path: Path
) -> None:
    with shared_store(kind, tmp_path) as url, driving(mode) as drive:
        told: list[Event] = []
        serving, operating = gate_on(url), gate_on(url, observer=told.append)
        texts = [drive(serving.keys.create(f"org_{n}", "ci")).text for n in range(2)]
        for text in texts:
            for _ in range(10):
                drive(serving.authenticate(text))
            with pytest.raises(RateLimitExceeded):
                drive(serving.authenticate(text))
        drive(operating.organizations.reset("org_0"))
        assert ("windows_reset", {"organization": "org_0"}) in told
        logged = drive(operating.changes.list("org_0")).changes
        assert [change.action for change in logged] == ["windows_reset", "key_created"]
        until = monotonic() + SECONDS
        used = None
        while used is None:
            try:
                used = drive(serving.authenticate(texts[0])).reading.used
            except RateLimitExceeded:
                assert monotonic() < until
                sleep(0.05)
        assert used == (1, 1, 1)
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


@pytest.mark.parametrize("id", ["", "o" * 129])
def test_an_organization_is_created_with_a_valid_id(id: str) -> None:
    gate = Gate(MemoryStore(), brand="acme")
    with pytest.raises(ConfigurationError, match="1 to 128"):
        run(gate.organizations.create(id))


def test_a_known_organization_is_not_created_again() -> None:
    gate = Gate(MemoryStore(), brand="acme")
    run(gate.keys.create("org_1", "ci"))
    run(gate.organizations.place("org_2", "starter"))
    for id in ("org_1", "org_2"):
        with pytest.raises(InvalidRequest, match="already"):
            run(gate.organizations.create(id, "creator"))
    assert run(gate.organizations.plan("org_2")).name == "starter"


@pytest.mark.parametrize("kind", ["memory", *KINDS])
@pytest.mark.parametrize("mode", MODES)
def test_a_temporary_limit_holds_until_its_end(
    kind: Kind | Literal["memory"], mode: str, tmp_path: Path
) -> None:
    begin = datetime(2026, 11, 23, 9, 30, tzinfo=UTC)
    now = [int(begin.timestamp() * SECOND)]
    with ExitStack() as stack:
        url = "memory://" if kind == "memory" else stack.enter_context(shared_store(kind, tmp_path))
        drive = stack.enter_context(driving(mode))
        gate = gate_on(url, clock=lambda: now[0])
        change = gate.organizations
        text = drive(gate.keys.create("org_1", "ci")).text
        drive(change.set_limits("org_1", rpd=700))
        drive(change.set_limits("org_1", rpm=15, rpd=1200, until=begin + timedelta(hours=2)))

        def refused_after() -> int:
            for number in range(100):
                try:
                    drive(gate.authenticate(text))
                except RateLimitExceeded:
                    return number
            raise AssertionError("no request was refused")

        assert refused_after() == 15
        found = drive(change.limits("org_1"))
        assert (found.own, found.plan.rpm, found.plan.rpd) == ({"rpd": 700}, 15, 1200)
        end = now[0] + 2 * HOUR
        assert found.temporary == {"rpm": (15, end), "rpd": (1200, end)}
        now[0] = end - 1
        assert refused_after() == 15
        now[0] = end + MINUTE
        assert refused_after() == 10
        now[0] += MINUTE
        assert refused_after() == 10, "a process that knows of the end"
        found = drive(change.limits("org_1"))
        assert (found.own, found.temporary, found.plan.rpd) == ({"rpd": 700}, {}, 700)
        plans = [drive(change.plan("org_1")), drive(change.list()).organizations[0].plan]
        assert {(plan.rpm, plan.rpd) for plan in plans} == {(10, 700)}
        logged = drive(gate.changes.list("org_1")).changes
        assert [change.action for change in logged] == [
            *("plan_assigned", "plan_assigned", "key_created")
        ], "the end itself is no change"
        assert dict(logged[0].after) == {
            "plan": "free",
            "rpd": 700,
            "temporary_rpd": 1200,
            "temporary_rpd_ends_at": end,
            "temporary_rpm": 15,
            "temporary_rpm_ends_at": end,
        }
        drive(gate.close())


@pytest.mark.parametrize("kind", KINDS)
def test_the_clock_of_the_store_ends_a_temporary_limit(kind: Kind, tmp_path: Path) -> None:
    with shared_store(kind, tmp_path) as url:
        gate = gate_on(url)
        now = run(gate.now())
        for organization, end, admitted in (("org_1", now + HOUR, 12), ("org_2", now - 1, 10)):
            key = run(gate.keys.create(organization, "ci")).text
            placed = PlanBook().place(organization, "free", {}, {"rpm": TemporaryLimit(12, end)})
            run(gate.store.put_organization(placed))
            for _ in range(admitted):
                run(gate.authenticate(key))
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
    for until, match in ((datetime(2999, 1, 1), "time zone"), (datetime.now(UTC), "past")):
        with pytest.raises(ConfigurationError, match=match):
            run(change.set_limits("org_1", rpm=20, until=until))
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
    begin = datetime(2026, 11, 23, 9, 30, tzinfo=UTC)
    gate = Gate(
        MemoryStore(),
        brand="acme",
        store_options=StoreOptions(clock=lambda: int(begin.timestamp() * SECOND)),
    )
    key = run(gate.keys.create("org_1", "ci")).text
    run(gate.organizations.set_limits("org_1", rph=0, until=begin + timedelta(minutes=20)))
    with pytest.raises(RateLimitExceeded) as refusal:
        run(gate.authenticate(key))
    assert refusal.value.retry_after == 20 * 60
    assert str(refusal.value) == (
        "A request of cost 1 is not admitted before 2026-11-23T09:50:00.000Z: until then the limit "
        "of the hour is 0."
    )


@pytest.mark.parametrize("kind", ["memory", *KINDS])
def test_a_refusal_by_a_lower_limit_is_not_repeated_after_its_end(
    kind: Kind | Literal["memory"], tmp_path: Path
) -> None:
    begin = datetime(2026, 11, 23, 9, 30, tzinfo=UTC)
    now = [int(begin.timestamp() * SECOND)]
    with ExitStack() as stack:
        url = "memory://" if kind == "memory" else stack.enter_context(shared_store(kind, tmp_path))
        gate = gate_on(url, clock=lambda: now[0])
        key = run(gate.keys.create("org_1", "ci")).text
        until = begin + timedelta(seconds=10)
        run(gate.organizations.set_limits("org_1", rpm=1, until=until))
        client = Client(protect(Flask(__name__).wsgi_app, gate, rules={"GET /models": Rule()}))
        headers = {"Authorization": f"Bearer {key}"}
        assert client.get("/models", headers=headers).status_code == 404
        for _ in range(3):
            assert client.get("/models", headers=headers).status_code == 429
        now[0] += 10 * SECOND
        assert client.get("/models", headers=headers).status_code == 404
        run(gate.close())
