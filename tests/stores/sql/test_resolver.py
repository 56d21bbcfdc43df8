"""A host with its own table of organizations: the example of docs/sql.md, and its edges."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import create_engine

from lockgate import ConfigurationError, run
from lockgate.core.plans import Organization
from lockgate.core.timestamps import DAY
from lockgate.stores.answers import Verdict
from lockgate.stores.sql import SqlStore

from ..making import BOOK, NOW, account, draft, draft_of, new_key, token_of
from .backends import Backend

ACCOUNTS = {"org_1": "starter"}


def plan_of(organization: str) -> Organization | None:
    plan = ACCOUNTS.get(organization)
    return None if plan is None else Organization(organization, plan)


async def looked_up(organization: str) -> Organization | None:
    await asyncio.sleep(0)
    return plan_of(organization)


def test_a_plain_resolver_returns_the_plan_and_the_store_changes_none(backend: Backend) -> None:
    store = backend.open(resolver=plan_of)
    for organization, plan in (("org_1", "starter"), ("org_2", "free")):
        made = new_key()
        run(store.insert(draft_of(made, organization), None, NOW))
        answer = run(store.admit(token_of(made), 1, BOOK, NOW))
        assert answer.verdict is Verdict.ADMITTED
        assert answer.plan is not None
        assert answer.plan.name == plan
    assert run(store.organization("org_1")) == Organization("org_1", "starter")
    assert run(store.freshness()).change_counter is None
    for organization in ("org_1", "org_2"):
        run(store.register(account(organization), draft(organization), NOW))
    assert run(store.remove_unclaimed(DAY, 10, NOW + DAY)) == ("org_2",), "org_1 is on a plan"
    with pytest.raises(ConfigurationError, match="resolver"):
        run(store.put_organization(Organization("org_1", "creator")))
    run(store.close())


async def test_an_async_resolver_returns_the_plan(backend: Backend) -> None:
    store = backend.open(resolver=looked_up)
    made = new_key()
    await store.insert(draft_of(made), None, NOW)
    answer = await store.admit(token_of(made), 1, BOOK, NOW)
    assert answer.plan is not None
    assert answer.plan.name == "starter"
    assert await store.organization("org_2") is None
    await store.close()


def test_an_async_resolver_needs_a_store_that_awaits() -> None:
    engine = create_engine("postgresql+psycopg://h/d")
    with pytest.raises(ConfigurationError, match="plain function"):
        SqlStore(engine, resolver=looked_up)
