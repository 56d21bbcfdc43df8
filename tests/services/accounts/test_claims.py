"""Owners claim what agents registered with their address: only they, and once (R3, D15)."""

from __future__ import annotations

from typing import Any

import pytest

from lockgate import run
from lockgate.core.timestamps import MINUTE
from lockgate.errors import (
    ClaimRefused,
    InvalidRequest,
    KeyRevoked,
    NoOrganization,
    RateLimitExceeded,
    StoreUnavailable,
    TokenNotAccepted,
)
from lockgate.services.accounts.acting_organization import acting
from lockgate.services.accounts.claims import ASKED_PER_MINUTE
from lockgate.sessions import Session

from ...stores.making import at_once
from ..bench import Hooked
from .accounting import ADDRESS, EMAIL, Office, person


@pytest.fixture
def office() -> Office:
    return Office()


def test_d15_a_claim_attaches_and_keys_plan_and_usage_stay(office: Office) -> None:
    made = office.register()
    organization = made.account.organization
    run(office.gate.organizations.place(organization, "starter"))
    token = made.api_key
    run(office.gate.authenticate(token))
    claimed = run(office.accounts.claims.claim(person(), organization))
    assert (claimed.account.claimed_by, claimed.account.claimed_at) == ("ada", office.clock.now)
    assert [key.id for key in claimed.keys] == [made.key.id]
    principal = run(office.gate.authenticate(token))
    assert (principal.plan.name, principal.reading.used[0]) == ("starter", 2)
    assert office.told[-1].name == "claimed"
    assert office.told[-1].fields == {
        "organization": organization, "user": "ada", "revoked": False, "token_kept": False
    }  # fmt: skip


def test_d15_again_by_the_same_person_is_a_no_op_and_by_others_refused(office: Office) -> None:
    organization = office.register().account.organization
    first = run(office.accounts.claims.claim(person(), organization))
    office.clock.now += 5
    assert run(office.accounts.claims.claim(person(), organization)) == first
    for again in (person(email="ada@elsewhere.example"), person(email="ADA@EXAMPLE.COM")):
        assert run(office.accounts.claims.claim(again, organization)) == first
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


def test_claims_of_unknown_and_of_others_organizations_look_alike(office: Office) -> None:
    run(office.gate.keys.create("org_1", "made by the host"))
    theirs = office.register("eve@example.com").account.organization
    said: set[str] = set()
    for organization in ("org_1", "nothing", theirs, "", "o" * 129, "\0"):
        with pytest.raises(ClaimRefused) as caught:
            run(office.accounts.claims.claim(person(), organization))
        said.add(str(caught.value))
    assert said == {ClaimRefused.default_message}


def test_the_claimer_sees_every_key_and_may_revoke_them_all(office: Office) -> None:
    made = office.register()
    organization = made.account.organization
    more = run(office.gate.keys.create(organization, "made later"))
    (shown,) = run(office.accounts.claims.list(person())).accounts
    assert {key.id for key in shown.keys} == {made.key.id, more.key.id}
    claimed = run(office.accounts.claims.claim(person(), organization, revoke_keys=True))
    assert all(key.revoked_at == office.clock.now for key in claimed.keys)
    for text in (made.api_key, more.text):
        with pytest.raises(KeyRevoked):
            run(office.gate.authenticate(text))
    mine = run(office.gate.keys.create(organization, "my own"))
    run(office.gate.authenticate(mine.text))
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


# --- lists of accounts, and the acting organization -----------------------------------------


def test_the_list_has_claimed_and_claimable_organizations_of_the_user(office: Office) -> None:
    mine, free, taken = (office.register(agent=f"agent {n}") for n in range(3))
    office.register("eve@example.com")
    run(office.accounts.claims.claim(person(), mine.account.organization))
    run(office.accounts.claims.claim(person("bob"), taken.account.organization))
    listed = run(office.accounts.claims.list(person())).accounts
    assert [one.account.agent_name for one in listed] == ["agent 0", "agent 1"]
    assert free.account.organization == listed[1].account.organization
    elsewhere = run(office.accounts.claims.list(person(email="ada@elsewhere.example"))).accounts
    assert [one.account.agent_name for one in elsewhere] == ["agent 0"]
    with pytest.raises(ClaimRefused):
        run(office.accounts.claims.list(person(email=None)))
    kay = office.register("kay@example.com").account.organization
    kelvin = person("eve", "\u212aay@example.com")  # Normalisation makes it a K.
    assert run(office.accounts.claims.list(kelvin)).accounts == []
    with pytest.raises(ClaimRefused):
        run(office.accounts.claims.claim(kelvin, kay))


def test_d46_a_page_ends_at_twenty_and_its_cursor_begins_the_next() -> None:
    office = Office(per_email=None, per_address=None)
    made = [office.register().account.organization for _ in range(45)]
    for organization in made[10:13]:
        office.clock.now += 1
        run(office.accounts.claims.claim(person(), organization))

    def page(limit: int | None, cursor: str | None = None) -> tuple[list[str], str | None]:
        more = {} if limit is None else {"limit": limit}
        found = run(office.accounts.claims.list(person(), cursor=cursor, **more))
        return [one.account.organization for one in found.accounts], found.next_cursor

    seen, cursor = page(None)
    for number in (20, 5):
        assert cursor is not None
        following, cursor = page(None, cursor)
        assert len(following) == number
        seen += following
    assert cursor is None
    assert seen[:3] == made[12:9:-1]
    assert sorted(seen) == sorted(made)
    for limit in (1, 2, 3, 4, 50):
        first, cursor = page(limit)
        assert first == seen[:limit]
        assert cursor is None or page(50, cursor)[0] == seen[limit:]


def test_d46_newer_unclaimed_accounts_push_no_older_one_out_of_the_list() -> None:
    office = Office(per_email=None, per_address=None)
    real = office.register(agent="the real one").account.organization
    for _ in range(25):
        office.clock.now += MINUTE
        office.register(agent="of a stranger", address="198.51.100.1")
    first = run(office.accounts.claims.list(person())).accounts[0]
    assert (first.account.organization, first.account.agent_name) == (real, "the real one")
    run(office.accounts.claims.claim(person(), real))
    assert run(office.accounts.claims.list(person())).accounts[0].account.organization == real


def test_at_most_25_keys_are_shown_of_each() -> None:
    office = Office()
    organization = office.register().account.organization
    for number in range(120):
        office.clock.now += 1000
        run(office.gate.keys.create(organization, f"key {number}"))
    (shown,) = run(office.accounts.claims.list(person())).accounts
    claimed = run(office.accounts.claims.claim(person(), organization, revoke_keys=True))
    for one in (shown, claimed):
        assert (len(one.keys), one.more_keys) == (25, True)
        assert [key.created_at for key in one.keys] == sorted(
            (key.created_at for key in one.keys), reverse=True
        )
    assert all(key.revoked_at for key in run(office.gate.keys.list(organization, limit=1000)).keys)


def _cursor(office: Office, content: bytes) -> str:
    user = person().user
    return office.gate.format.peppers.cursors.write(content, f"claims {user}")


@pytest.mark.parametrize(
    "content",
    [
        *(b"u.1", b"x.1.org", b"u..org", b"u.-1.org", b"u.1e3.org", "u.\u0661.org".encode()),
        *(b"u.1.", b"u.1." + b"o" * 129, b"u." + b"9" * 19 + b".org", b"[1]", b"u 1 org"),
        *(b"u.1.\xff\xff", "", "x", "====", "\u00e9", "a" * 1025, "!!!!", "YQ", "\0", "dS4xLm8"),
    ],
)
def test_d45_a_cursor_that_no_page_gave_and_an_invalid_limit_are_refused(
    office: Office, content: bytes | str
) -> None:
    cursor = content if isinstance(content, str) else _cursor(office, content)
    with pytest.raises(InvalidRequest) as caught:
        run(office.accounts.claims.list(person(), cursor=cursor))
    assert [problem.field for problem in caught.value.problems] == ["cursor"]
    for limit in (0, -1, 51):
        with pytest.raises(InvalidRequest):
            run(office.accounts.claims.list(person(), limit))


def test_a_cursor_made_of_anothers_organization_does_not_show_it(office: Office) -> None:
    theirs = office.register("eve@example.com").account
    mine = office.register().account.organization
    for kind in ("u", "c"):
        for at in (0, theirs.created_at - 1):
            cursor = _cursor(office, f"{kind}.{at}.{theirs.organization}".encode())
            page = run(office.accounts.claims.list(person(), cursor=cursor))
            assert {one.account.organization for one in page.accounts} <= {mine}


# --- D46: the dashboard token ---------------------------------------------------------------


@pytest.mark.parametrize("keeps", [False, True])
def test_d46_a_claim_ends_the_token_and_its_sessions_unless_it_is_kept(
    office: Office, keeps: bool
) -> None:
    made = office.register()
    agents, claim = office.accounts.agents, office.accounts.claims.claim
    organization = made.account.organization
    signed_in = run(agents.sign_in(made.dashboard_token, address=ADDRESS))
    assert run(agents.verify(signed_in.cookie)) is not None
    if keeps:  # It is ended later.
        run(claim(person(), organization, revoke_keys=True, keep_token=True))
        assert office.told[-1].fields["token_kept"] is True
        assert run(agents.verify(signed_in.cookie)) is not None
        run(agents.sign_in(made.dashboard_token, address=ADDRESS))
    run(claim(person(), organization))
    assert run(agents.verify(signed_in.cookie)) is None
    with pytest.raises(TokenNotAccepted):
        run(agents.sign_in(made.dashboard_token, address=ADDRESS))
    if not keeps:
        run(office.gate.authenticate(made.api_key))


def test_d46_a_claim_between_the_token_and_the_session_leaves_no_session() -> None:
    store = Hooked()
    office = Office(store)
    made = office.register()

    async def claimed(asked: Any, *arguments: Any, **options: Any) -> Any:
        await office.accounts.claims.claim(person(), made.account.organization)
        return await asked(*arguments, **options)

    store.on("sign_in", claimed)
    with pytest.raises(TokenNotAccepted):
        run(office.accounts.agents.sign_in(made.dashboard_token, address=ADDRESS))


# --- the acting organization ----------------------------------------------------------------


def act(office: Office, session: Session, wanted: str | None = None, **more: bool) -> Session:
    return run(
        acting(office.store, office.gate.events, office.gate.seal_is_valid, session, wanted, **more)
    )


def test_d15_after_a_claim_a_session_acts_for_the_claimed_organization(office: Office) -> None:
    first, second = (office.register().account.organization for _ in range(2))
    nobody, employee = person(), person(organization="org_work")
    for wanted in (None, first, "org_work"):
        with pytest.raises(NoOrganization):
            act(office, nobody, wanted)
    assert act(office, employee, None) == employee
    assert act(office, employee, "org_work") == employee
    with pytest.raises(NoOrganization):
        act(office, employee, first)
    for organization in (first, second):
        office.clock.now += 1
        run(office.accounts.claims.claim(nobody, organization))
    assert act(office, nobody, None).organization == second
    assert act(office, nobody, first).organization == first
    assert act(office, employee, None).organization == "org_work"
    assert act(office, employee, first).organization == first
    for session in (person("eve"), person("ADA"), Session("org_work"), person("u" * 256)):
        with pytest.raises(NoOrganization):
            act(office, session, first)


def test_a_session_of_an_agent_acts_for_its_own_organization_only(office: Office) -> None:
    mine, other = (office.register().account.organization for _ in range(2))
    agent = Session(mine, agent=True)
    assert act(office, agent) == agent
    with pytest.raises(NoOrganization):
        act(office, agent, other)


@pytest.mark.parametrize("user", ["eve", None, "", "ada "])
def test_d46_a_provider_cannot_name_an_organization_that_its_user_has_not_claimed(
    office: Office, user: str | None
) -> None:
    """An organization of the provider may have the id of a registered one, by chance or choice."""
    organization = office.register().account.organization
    forged = Session(organization, user, "eve@example.com")
    for wanted in (None, organization):
        for trusts in (False, True):
            with pytest.raises(NoOrganization):
                act(office, forged, wanted, trusts_provider=trusts)
    run(office.accounts.claims.claim(person(), organization))
    for wanted in (None, organization):
        with pytest.raises(NoOrganization):
            act(office, forged, wanted)
    owner = person(organization=organization)
    assert act(office, owner) == owner
    assert act(office, forged, trusts_provider=True) == forged


def test_an_organization_of_the_host_costs_no_look_at_accounts() -> None:
    store = Hooked()
    office, asked = Office(store), store.counting("account")
    for named in ("org_work", "org_" + "A" * 32, "x" * 36):
        session = person(organization=named)
        assert act(office, session) == session
    assert asked == []
    unknown = person(organization="org_" + "0" * 32)
    assert act(office, unknown) == unknown


def test_a_store_that_fails_makes_no_claim() -> None:
    office = Office(Hooked().failing("claim_if_unclaimed"))
    organization = office.register().account.organization
    with pytest.raises(StoreUnavailable):
        run(office.accounts.claims.claim(person(), organization))
    assert "hunter2" not in repr(office.told) and "ada@" not in repr(office.told)


def test_each_user_has_a_separate_limit_of_claims_and_lists_a_minute(
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
    assert run(claims.list(person("eve", "eve@example.com"))).accounts == []
    office.clock.now += MINUTE
    assert len(run(claims.list(person())).accounts) == 1
