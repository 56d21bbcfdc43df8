"""Unclaimed accounts are removed after a time without use; used accounts stay (D46)."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from lockgate import run
from lockgate.core.timestamps import DAY, HOUR
from lockgate.errors import ClaimRefused, KeyNotFound, StoreUnavailable, TokenNotAccepted
from lockgate.services.accounts import registration as flows
from lockgate.stores.runtime import background
from tests.patience import SECONDS

from ..bench import Hooked
from .accounting import ADDRESS, EMAIL, Office, person

MONTH = 30 * DAY


@pytest.fixture
def office() -> Office:
    return Office(per_email=None, per_address=None)


def remove(office: Office, **fields: Any) -> list[str]:
    return run(office.accounts.remove_unclaimed(**fields))


def test_d46_an_unclaimed_account_unused_for_thirty_days_is_removed_whole(office: Office) -> None:
    made = office.register()
    organization = made.account.organization
    office.clock.now += MONTH
    assert remove(office) == []
    office.clock.now += HOUR  # A session may have lasted that long after its last sign-in.
    assert remove(office) == [organization]
    assert office.told[-1] == ("account_removed", {"organization": organization})
    with pytest.raises(KeyNotFound):
        run(office.gate.authenticate(made.api_key))
    with pytest.raises(TokenNotAccepted):
        run(office.accounts.agents.sign_in(made.dashboard_token, address=ADDRESS))
    with pytest.raises(ClaimRefused):
        run(office.accounts.claims.claim(person(), organization))
    assert run(office.accounts.claims.list(person())).accounts == []
    assert run(office.gate.keys.list(organization)).keys == []
    assert remove(office) == []


@pytest.mark.parametrize("use", ["request", "sign-in", "key", "plan", "claim"])
def test_d46_each_use_keeps_an_account(office: Office, use: str) -> None:
    made = office.register()
    organization = made.account.organization
    office.clock.now += 29 * DAY
    match use:
        case "request":
            run(office.gate.authenticate(made.api_key))
        case "sign-in":
            run(office.accounts.agents.sign_in(made.dashboard_token, address=ADDRESS))
        case "key":
            run(office.gate.keys.create(organization, "another"))
        case "plan":
            run(office.gate.organizations.place(organization, "starter"))
        case _:
            run(office.accounts.claims.claim(person(), organization))
    office.clock.now += MONTH
    assert remove(office) == []
    office.clock.now += MONTH
    stays = use in {"plan", "claim"}
    assert remove(office) == ([] if stays else [organization])
    assert (run(office.store.account(organization)) is not None) == stays


def test_a_session_keeps_its_account_until_the_session_ends() -> None:
    """A session keeps its account, so no key is ever created for a removed account."""
    office = Office(remove_unclaimed_after_days=1, session_seconds=2 * 86_400)
    made = office.register()
    signed_in = run(office.accounts.agents.sign_in(made.dashboard_token, address=ADDRESS))
    office.clock.now += 2 * DAY - 1
    assert remove(office) == []
    assert run(office.accounts.agents.verify(signed_in.cookie)) is not None
    office.clock.now += DAY + 1
    assert run(office.accounts.agents.verify(signed_in.cookie)) is None
    assert remove(office) == [made.account.organization]


def test_a_removal_raises_when_the_store_fails() -> None:
    with pytest.raises(StoreUnavailable):
        remove(Office(Hooked().failing("remove_unclaimed")))


def test_none_keeps_accounts_and_organizations_of_the_host_are_never_removed() -> None:
    office = Office(remove_unclaimed_after_days=None)
    office.register()
    office.clock.now += 10_000 * DAY
    assert remove(office) == []
    office = Office()
    run(office.gate.keys.create("org_of_the_host", "x"))
    office.clock.now += 10 * MONTH
    assert remove(office) == []
    assert len(run(office.gate.keys.list("org_of_the_host")).keys) == 1


@pytest.mark.parametrize("kind", ["in a loop", "without one"])
def test_unclaimed_accounts_are_removed_in_the_background_once_a_minute(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "EVERY", 0.01)
    ticks, begun, removed = iter(range(0, 10_000, 4)), threading.Event(), list[int]()
    monkeypatch.setattr(flows, "monotonic", lambda: next(ticks))
    monkeypatch.setattr(flows, "expovariate", lambda _: 0.0)

    async def noting(_: Any, idle: int, *__: Any, **___: Any) -> tuple[str, ...]:
        removed.append(idle)
        begun.set()
        return ()

    accounts = Office(Hooked().on("remove_unclaimed", noting)).accounts

    async def in_a_loop() -> None:
        for _ in range(6):
            accounts.tend()
        assert await asyncio.to_thread(begun.wait, SECONDS)
        await accounts.close()

    if kind == "in a loop":
        asyncio.run(in_a_loop())
    else:
        for _ in range(6):
            accounts.tend()
        assert begun.wait(SECONDS)
        run(accounts.close())
    assert removed == [MONTH + HOUR]


def test_d46_accounts_go_in_steps_of_the_limit_and_owners_see_none_that_was_removed_meanwhile(
    office: Office,
) -> None:
    """A page was read, the accounts go, and the cursor is still good."""
    made = [office.register().account.organization for _ in range(8)]
    page = run(office.accounts.claims.list(person(), 1))
    office.clock.now += DAY
    run(office.accounts.claims.claim(person(), made[1]))
    office.clock.now += MONTH + HOUR
    removed = [remove(office, limit=3) for _ in range(4)]
    assert [len(part) for part in removed] == [3, 3, 1, 0]
    assert {name for part in removed for name in part} == {*made} - {made[1]}
    after = run(office.accounts.claims.list(person(), 1, page.next_cursor))
    assert after.accounts == []
    assert EMAIL in run(office.accounts.claims.list(person())).accounts[0].account.billing_email
