"""Putting organizations on plans."""

from __future__ import annotations

from typing import Any

import pytest

from lockgate import ConfigurationError, Event, Gate, MemoryStore, PlanBook, run
from lockgate.core.leases import to_acquire
from lockgate.core.ledger import Hit
from lockgate.core.plans import Organization
from lockgate.core.sealed_texts import TextSeal
from lockgate.errors import StoreUnavailable
from lockgate.events import Events
from lockgate.services.organizations import Organizations

ENTERPRISE = {"rpm": 1, "rph": 2, "rpd": None, "concurrent": 4}


def organizations(store: MemoryStore, told: list[Event] | None = None) -> Organizations:
    observer = None if told is None else told.append
    return Organizations(store, PlanBook(), None, Events(observer), TextSeal(()))


def test_a_placed_organization_has_its_plan_and_limits() -> None:
    store = MemoryStore()
    placed = run(organizations(store).place("org_1", "starter", rpm=7))
    assert placed == Organization("org_1", "starter", (("rpm", 7),))
    assert run(store.organization("org_1")) == placed
    plan = run(organizations(store).plan("org_1"))
    assert (plan.name, plan.rpm, plan.rph) == ("starter", 7, 500)


def test_an_organization_without_a_plan_is_on_the_default_plan() -> None:
    assert run(organizations(MemoryStore()).plan("org_1")).name == "free"


def test_an_organization_is_known_by_its_plan_key_usage_or_running_job() -> None:
    gate = Gate(MemoryStore(), brand="acme")
    windows = gate.plans.default.windows

    assert not run(gate.organizations.is_known("org_1"))
    run(gate.store.charge("org_1", Hit(windows, 1)))
    run(gate.store.charge("org_2", to_acquire("job", "owner", 2, 60_000_000)))
    run(gate.keys.create("org_3", "ci"))
    run(gate.organizations.place("org_4", "free"))
    for number in range(1, 5):
        assert run(gate.organizations.is_known(f"org_{number}"))
    assert not run(gate.organizations.is_known("org_5"))


def test_placing_again_replaces_plan_and_limits() -> None:
    store = MemoryStore()
    run(organizations(store).place("org_1", "enterprise", **ENTERPRISE))
    assert run(organizations(store).plan("org_1")).rpd is None
    run(organizations(store).place("org_1", "free"))
    assert run(organizations(store).plan("org_1")).rpd == 500


@pytest.mark.parametrize(
    ("id", "plan", "limits", "said"),
    [
        ("", "free", {}, "1 to 128 characters"),
        ("o" * 129, "free", {}, "1 to 128 characters"),
        ("org_1", "gold", {}, "'gold'.*creator.*enterprise.*free.*starter"),
        ("org_1", "Free", {}, "'Free'.*free"),
        ("org_1", "enterprise", {"rpm": 1}, "rph, rpd, concurrent"),
        ("org_1", "free", {"rpn": 1}, "'rpn'.*rpm"),
        ("org_1", "free", {"rpm": -1}, "-1.*0 to 2"),
        ("org_1", "free", {"rpm": True}, "True"),
    ],
)
def test_an_invalid_plan_id_or_limit_is_refused(
    id: str, plan: str, limits: dict[str, int | None], said: str
) -> None:
    store = MemoryStore()
    with pytest.raises(ConfigurationError, match=said):
        run(organizations(store).place(id, plan, **limits))
    assert run(store.organization(id)) is None


class Broken(MemoryStore):
    async def put_organization(
        self, organization: Organization, now: int | None = None, **options: Any
    ) -> None:
        raise TimeoutError

    async def organization(self, id: str) -> Organization | None:
        raise ConnectionResetError


def test_a_store_that_fails_is_503_and_an_event() -> None:
    told: list[Event] = []
    flow = organizations(Broken(), told)
    with pytest.raises(StoreUnavailable):
        run(flow.place("org_1", "free"))
    with pytest.raises(StoreUnavailable):
        run(flow.plan("org_1"))
    assert [event.fields["error"] for event in told] == ["TimeoutError", "ConnectionResetError"]
