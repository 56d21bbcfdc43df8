"""Putting organizations on plans."""

from __future__ import annotations

import pytest

from lockgate import ConfigurationError, run
from lockgate.core.leases import to_acquire
from lockgate.core.ledger import Hit
from lockgate.core.plans import Organization
from lockgate.errors import StoreUnavailable

from .bench import Bench, Hooked

ENTERPRISE = {"rpm": 1, "rph": 2, "rpd": None, "concurrent": 4}


def test_a_placed_organization_has_its_plan_and_limits_until_it_is_placed_again() -> None:
    bench = Bench()
    organizations = bench.gate.organizations
    assert run(organizations.plan("org_1")).name == "free"
    placed = run(organizations.place("org_1", "starter", rpm=7))
    assert placed == Organization("org_1", "starter", (("rpm", 7),))
    assert run(bench.store.organization("org_1")) == placed
    plan = run(organizations.plan("org_1"))
    assert (plan.name, plan.rpm, plan.rph) == ("starter", 7, 500)
    run(organizations.place("org_1", "enterprise", **ENTERPRISE))
    assert run(organizations.plan("org_1")).rpd is None
    run(organizations.place("org_1", "free"))
    assert run(organizations.plan("org_1")).rpd == 500


def test_an_organization_is_known_by_its_plan_key_usage_or_running_job() -> None:
    gate = Bench().gate
    assert not run(gate.organizations.is_known("org_1"))
    run(gate.store.charge("org_1", Hit(gate.plans.default.windows, 1)))
    run(gate.store.charge("org_2", to_acquire("job", "owner", 2, 60_000_000)))
    run(gate.keys.create("org_3", "ci"))
    run(gate.organizations.place("org_4", "free"))
    for number in range(1, 5):
        assert run(gate.organizations.is_known(f"org_{number}"))
    assert not run(gate.organizations.is_known("org_5"))


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
    ],
)
def test_an_invalid_plan_id_or_limit_is_refused(
    id: str, plan: str, limits: dict[str, int | None], said: str
) -> None:
    bench = Bench()
    with pytest.raises(ConfigurationError, match=said):
        run(bench.gate.organizations.place(id, plan, **limits))
    assert run(bench.store.organization(id)) is None


def test_a_store_that_fails_is_503_and_an_event() -> None:
    bench = Bench(Hooked().failing("put_organization", "organization"))
    for flow in (
        bench.gate.organizations.place("org_1", "free"),
        bench.gate.organizations.plan("org_1"),
    ):
        with pytest.raises(StoreUnavailable):
            run(flow)
    assert [event.fields["error"] for event in bench.told] == ["OSError"] * 2
