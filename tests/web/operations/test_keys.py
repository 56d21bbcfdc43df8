"""The operations of keys over ASGI: facts that they record, and none that they show."""

from __future__ import annotations

import asyncio

from starlette.applications import Starlette

from lockgate import run
from lockgate.asgi import GateMiddleware
from lockgate.core.api_keys import KeyDetails
from lockgate.core.timestamps import DAY
from lockgate.options import KeyOptions
from lockgate.sessions import Session
from lockgate.starlette import operations

from ..driving import ORIGIN, Answer, Bench, ask

KEYS = "/api/v1/api-keys"


def create(bench: Bench, session: str, **body: object) -> Answer:
    app = GateMiddleware(Starlette(routes=operations(bench.gate)), bench.gate)
    headers = [("origin", ORIGIN)]
    return asyncio.run(
        ask(app, "POST", KEYS, session=session, json_body={"name": "a", **body}, headers=headers)
    )


def test_a_created_key_records_the_user_of_the_session_and_shows_no_new_field() -> None:
    bench = Bench()
    made = create(bench, bench.session())
    assert made.status == 201
    assert sorted(made.json()) == ["id", "key", "keyPrefix", "message"]
    key = run(bench.gate.keys.get("org_1", made.json()["id"]))
    assert key.details == KeyDetails(created_by="user:ada")
    app = GateMiddleware(Starlette(routes=operations(bench.gate)), bench.gate)
    shown = asyncio.run(ask(app, path=f"{KEYS}/{key.id}", session=bench.session())).json()["data"]
    assert "user:ada" not in str(shown) and "ada" not in shown.values()
    assert len(shown) == 11


def test_a_session_without_a_user_records_no_creator() -> None:
    bench = Bench()
    made = create(bench, bench.sessions.issue(Session("org_1", None)))
    assert run(bench.gate.keys.get("org_1", made.json()["id"])).details is None


def test_a_maximum_age_is_told_by_the_name_of_the_field() -> None:
    bench = Bench(key_options=KeyOptions(max_age_days=90))
    refused = create(bench, bench.session(), expiresInDays=91)
    assert refused.status == 400
    assert refused.json()["details"] == [
        {"field": "expiresInDays", "message": "Keys of this service work for at most 90 days."}
    ]
    for body in ({}, {"expiresInDays": None}):
        id = create(bench, bench.session(), **body).json()["id"]
        key = run(bench.gate.keys.get("org_1", id))
        assert key.expires_at == bench.clock.now + 90 * DAY
