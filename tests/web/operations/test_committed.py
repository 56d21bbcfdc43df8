"""The operations while the Redis before a database is away: each change has its result (D52)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette

from lockgate import Gate, Registration
from lockgate.asgi import GateMiddleware
from lockgate.options import StoreOptions, WebOptions
from lockgate.sessions import Session, SignedCookie
from lockgate.starlette import operations
from lockgate.stores.cached.store import CachedStore
from lockgate.stores.rows import Outcome
from tests import migrated
from tests.servers import RedisServer, redis_server

from ..driving import ORIGIN, SECRET, Answer, ask

KEYS, AUTH = "/api/v1/api-keys", "/api/v1/auth"
PEOPLE = SignedCookie([SECRET])
ADA = PEOPLE.issue(Session("org_1", "ada", "ada@example.com"))
NEW = PEOPLE.issue(Session(None, "ada", "ada@example.com"))
BOT = {"agent_name": "a bot", "billing_email": "ada@example.com"}


class Desk:
    """The operations of a gate, in one event loop, and the Redis that may be killed."""

    def __init__(self, database: str, server: RedisServer, runner: asyncio.Runner) -> None:
        self.server = server
        self.run = runner.run
        self.gate = Gate(
            f"{database} {server.url()}",
            brand="acme",
            sessions=PEOPLE,
            web_options=WebOptions(public_url=ORIGIN),
            features=[Registration(session_secrets=[SECRET])],
            store_options=StoreOptions(deadline=30),
        )
        self.app = GateMiddleware(Starlette(routes=operations(self.gate)), self.gate)
        self.key: str = self.ask("POST", KEYS, {"name": "a"}, session=ADA).json()["id"]
        self.bot: dict[str, str] = self.ask("POST", f"{AUTH}/bot-register", BOT).json()

    def ask(self, method: str, path: str, body: object = None, **more: Any) -> Answer:
        headers = [("origin", ORIGIN)]
        return self.run(ask(self.app, method, path, json_body=body, headers=headers, **more))


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with redis_server() as server, asyncio.Runner() as runner:
        found = Desk(migrated.sqlite(tmp_path / "keys.db"), server, runner)
        yield found
        found.run(found.gate.close())


def test_each_change_without_redis_is_told_as_made_D52_K4(desk: Desk) -> None:
    """A new key with its text; a revocation as not yet known everywhere; a sign-out with the cookie
    that it ends."""
    token = {"dashboard_token": desk.bot["dashboard_token"]}
    cookie = desk.ask("POST", f"{AUTH}/bot-sign-in", token).one("set-cookie")
    session = cookie.partition("=")[2].partition(";")[0]
    desk.server.stop()
    made = desk.ask("POST", KEYS, {"name": "b"}, session=ADA)
    assert made.status == 201
    assert sorted(made.json()) == ["id", "key", "keyPrefix", "message"]
    assert desk.run(desk.gate.authenticate(made.json()["key"])).key is not None
    for _ in range(2):
        told = desk.ask("DELETE", f"{KEYS}/{desk.key}", session=ADA)
        assert (told.status, told.code) == (503, "CHANGE_COMMITTED")
        assert told.json()["result"]["success"] is True
        assert told.json()["retryAfter"] == 1
    assert desk.run(desk.gate.keys.get("org_1", desk.key)).revoked_at is not None
    told = desk.ask("POST", f"{AUTH}/bot-sign-out", session=session)
    assert (told.status, told.code) == (503, "CHANGE_COMMITTED")
    assert "Max-Age=0" in told.one("set-cookie")
    assert desk.ask("GET", KEYS, session=session).status == 401


def test_a_claim_is_told_as_made_if_redis_dies_after_it_D52(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = desk.run(desk.gate.authenticate(desk.bot["api_key"])).organization
    store = desk.gate.store
    assert isinstance(store, CachedStore)
    commit = store.primary.commit

    async def last(*arguments: Any) -> Outcome:
        outcome = await commit(*arguments)
        desk.server.stop()
        return outcome

    monkeypatch.setattr(store.primary, "commit", last)
    told = desk.ask("POST", f"{AUTH}/claim", {"organizationId": owner}, session=NEW)
    assert (told.status, told.code) == (503, "CHANGE_COMMITTED")
    assert told.json()["result"]["data"]["organizationId"] == owner
    account = desk.run(store.account(owner))
    assert account is not None and account.claimed_by == "ada"
