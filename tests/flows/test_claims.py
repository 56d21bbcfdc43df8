"""Owners claim what agents registered with their address: only they, and once (R3, D15)."""

from __future__ import annotations

import pytest

from lockgate import MemoryStore, run
from lockgate.errors import (
    ClaimRefused,
    KeyRevoked,
    NoOrganization,
    RateLimitExceeded,
    StoreUnavailable,
)
from lockgate.flows.claims import ASKED_PER_MINUTE
from lockgate.identity import Session
from lockgate.rules.instants import MINUTE

from ..stores.making import at_once
from .accounting import EMAIL, Office, person


@pytest.fixture
def office() -> Office:
    return Office()


def test_d15_a_claim_attaches_and_keys_plan_and_usage_stay(office: Office) -> None:
    made = office.register()
    organization = made.account.organization
    run(office.gate.organizations.place(organization, "starter"))
    token = office.gate.format.parse(made.api_key)
    run(office.gate.admit(token))
    claimed = run(office.accounts.claims.claim(person(), organization))
    assert (claimed.account.claimed_by, claimed.account.claimed_at) == ("ada", office.clock.now)
    assert [key.id for key in claimed.keys] == [made.key.id]
    principal = run(office.gate.admit(token))
    assert (principal.plan.name, principal.reading.used[0]) == ("starter", 2)
    assert office.told[-1].name == "claimed"
    assert office.told[-1].fields == {
        "organization": organization, "user": "ada", "revoked": False
    }  # fmt: skip


def test_d15_again_by_the_same_person_is_a_no_op_and_by_others_refused(office: Office) -> None:
    organization = office.register().account.organization
    first = run(office.accounts.claims.claim(person(), organization))
    office.clock.now += 5
    assert run(office.accounts.claims.claim(person(), organization)) == first
    moved = person(email="ada@elsewhere.example")
    assert run(office.accounts.claims.claim(moved, organization)) == first
    for session in (person("eve"), person("eve", "eve@example.com")):
        with pytest.raises(ClaimRefused):
            run(office.accounts.claims.claim(session, organization, revoke_keys=True))
    assert run(office.store.account(organization)) == first.account


@pytest.mark.parametrize(
    "session",
    [
        person("eve", "eve@example.com"),
        person("eve", None),
        person("eve", ""),
        person(None, EMAIL),
        person("", EMAIL),
        person("u" * 256, EMAIL),
        person("eve", "a.da@example.com"),
        person("eve", "ada+1@example.com"),
        person("eve", "\u0430da@example.com"),
        person("eve", "ada@example.com\0"),
        person("eve", "ada@example.com, eve@example.com"),
        Session("org_of_agent"),
    ],
)
def test_r3_only_the_verified_equal_email_claims(office: Office, session: Session) -> None:
    organization = office.register().account.organization
    with pytest.raises(ClaimRefused):
        run(office.accounts.claims.claim(session, organization, revoke_keys=True))
    account = run(office.store.account(organization))
    assert account is not None
    assert (account.claimed_by, account.token_revoked_at) == (None, None)


@pytest.mark.parametrize("email", ["ADA@EXAMPLE.COM", "Ada@example.com"])
def test_d14_case_makes_no_difference(office: Office, email: str) -> None:
    organization = office.register().account.organization
    assert run(office.accounts.claims.claim(person(email=email), organization)).account.claimed_by


def test_what_is_not_there_looks_like_what_is_not_theirs(office: Office) -> None:
    run(office.gate.keys.create("org_1", "made by the host"))
    theirs = office.register("eve@example.com").account.organization
    said: set[str] = set()
    for organization in ("org_1", "nothing", theirs, "", "o" * 129, "\0"):
        with pytest.raises(ClaimRefused) as caught:
            run(office.accounts.claims.claim(person(), organization))
        said.add(str(caught.value))
    assert said == {ClaimRefused.sentence}


def test_the_claimer_sees_every_key_and_may_revoke_them_all(office: Office) -> None:
    made = office.register()
    organization = made.account.organization
    more = run(office.gate.keys.create(organization, "made later"))
    (shown,) = run(office.accounts.claims.list(person()))
    assert {key.id for key in shown.keys} == {made.key.id, more.key.id}
    claimed = run(office.accounts.claims.claim(person(), organization, revoke_keys=True))
    assert all(key.revoked_at == office.clock.now for key in claimed.keys)
    for text in (made.api_key, more.text):
        with pytest.raises(KeyRevoked):
            run(office.gate.admit(office.gate.format.parse(text)))
    mine = run(office.gate.keys.create(organization, "my own"))
    run(office.gate.admit(office.gate.format.parse(mine.text)))
    assert office.told[-2].fields["revoked"] is True


def test_r3_one_of_many_wins() -> None:
    office = Office()
    organization = office.register().account.organization

    def claim(index: int) -> bool:
        try:
            run(office.accounts.claims.claim(person(f"user {index}"), organization))
        except ClaimRefused:
            return False
        return True

    assert sum(at_once(16, claim)) == 1


# --- what is listed, and for whom a session acts --------------------------------------------


def test_the_list_is_of_what_is_theirs_and_what_is_free(office: Office) -> None:
    mine, free, taken = (office.register(agent=f"agent {n}") for n in range(3))
    office.register("eve@example.com")
    run(office.accounts.claims.claim(person(), mine.account.organization))
    run(office.accounts.claims.claim(person("bob"), taken.account.organization))
    listed = run(office.accounts.claims.list(person()))
    assert [one.account.agent_name for one in listed] == ["agent 0", "agent 1"]
    assert free.account.organization == listed[1].account.organization
    elsewhere = run(office.accounts.claims.list(person(email="ada@elsewhere.example")))
    assert [one.account.agent_name for one in elsewhere] == ["agent 0"]
    with pytest.raises(ClaimRefused):
        run(office.accounts.claims.list(person(email=None)))


def test_the_list_ends_at_twenty_free_ones() -> None:
    office = Office(per_email=30, per_address=30)
    for _ in range(25):
        office.register()
    assert len(run(office.accounts.claims.list(person()))) == 20


def test_d15_after_a_claim_a_session_acts_for_what_was_claimed(office: Office) -> None:
    acting = office.accounts.claims.acting
    first, second = (office.register().account.organization for _ in range(2))
    nobody, employee = person(), person(organization="org_work")
    for wanted in (None, first, "org_work"):
        with pytest.raises(NoOrganization):
            run(acting(nobody, wanted))
    assert run(acting(employee, None)) == employee
    assert run(acting(employee, "org_work")) == employee
    with pytest.raises(NoOrganization):
        run(acting(employee, first))
    for organization in (first, second):
        office.clock.now += 1
        run(office.accounts.claims.claim(nobody, organization))
    assert run(acting(nobody, None)).organization == second
    assert run(acting(nobody, first)).organization == first
    assert run(acting(employee, None)).organization == "org_work"
    assert run(acting(employee, first)).organization == first
    for session in (person("eve"), person("ADA"), Session("org_work"), person("u" * 256)):
        with pytest.raises(NoOrganization):
            run(acting(session, first))


def test_a_session_of_an_agent_acts_for_its_own_organization_only(office: Office) -> None:
    mine, other = (office.register().account.organization for _ in range(2))
    assert run(office.accounts.claims.acting(Session(mine), None)) == Session(mine)
    with pytest.raises(NoOrganization):
        run(office.accounts.claims.acting(Session(mine), other))


def test_a_store_that_fails_claims_nothing() -> None:
    class Failing(MemoryStore):
        async def claim_if_unclaimed(self, *_: object, **__: object) -> None:
            raise OSError("parameters: ada@example.com")

    office = Office(Failing())
    organization = office.register().account.organization
    with pytest.raises(StoreUnavailable):
        run(office.accounts.claims.claim(person(), organization))
    assert "ada@" not in repr(office.told)


def test_a_user_looks_and_claims_so_often_in_a_minute_and_hinders_nobody_else(
    office: Office,
) -> None:
    """Each look reads all keys of up to 40 organizations, and no plan counts it."""
    organization = office.register().account.organization
    claims = office.accounts.claims
    for number in range(ASKED_PER_MINUTE):
        run(claims.claim(person(), organization) if number % 2 else claims.list(person()))
    with pytest.raises(RateLimitExceeded):
        run(claims.claim(person(), organization))
    with pytest.raises(RateLimitExceeded) as caught:
        run(claims.list(person()))
    assert (caught.value.type, caught.value.limit) == ("minute", ASKED_PER_MINUTE)
    assert run(claims.list(person("eve", "eve@example.com"))) == []
    office.clock.now += MINUTE
    assert len(run(claims.list(person()))) == 1
