"""The pages over each kind of store, awaited and in threads, and when a store goes away."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockgate import Gate, run
from lockgate.options import StoreOptions
from tests import migrated
from tests.servers import redis_server
from tests.services.shared_stores import Kind, shared_store

from .consoles import ADA, PLACES, Place, make_gate, on_flask, on_starlette
from .robots import make_gate_with_agents, register


@pytest.mark.parametrize(
    ("place", "kind"), [("starlette", "postgresql"), ("flask", "sqlite"), ("starlette", "redis")]
)
def test_a_key_lives_and_dies_on_the_pages_over_each_store(
    place: str, kind: Kind, tmp_path: Path
) -> None:
    with (
        shared_store(kind, tmp_path) as url,
        PLACES[place](lambda origin: make_gate(origin, store=url)) as person,
    ):
        token = person.get("/keys/new").token
        form = {"name": "kept", "access": "some", "scopes": "models:read", "expires": "30"}
        key = person.post("/keys/new", form, token=token, status=201).key
        assert person.status_with(key) == 200
        person.post("/keys/new", form, token=token, status=409).sees("created already: kept")
        person.get("/keys").sees("kept", "models:read", "by you")
        id = person.id_of(key)
        person.post(f"/keys/{id}/edit", {**form, "name": "renamed"}, token=token, status=303)
        new = person.post(f"/keys/{id}/rotate", {"overlap": "1"}, token=token, status=201).key
        assert person.status_with(new) == 200
        person.get("/usage").sees("2 of 10")
        both = {"successors": "yes"}
        person.post(f"/keys/{id}/revoke", both, token=token, status=303)
        assert person.status_with(key) == person.status_with(new) == 401
        person.get(f"/keys/{id}").sees("renamed", "Revoked")


@pytest.mark.parametrize("serve", [on_starlette, on_flask])
def test_a_store_that_goes_away_is_told_on_every_page(serve: Place) -> None:
    with redis_server() as server:

        def make(origin: str) -> Gate:
            options = StoreOptions(deadline=30)
            return make_gate_with_agents(origin, store=server.url(), store_options=options)

        with serve(make) as person:
            agent = register(person, "owner@example.com")
            person.create()
            token = person.get("/keys/new").token
            person.sign_in(None)
            signed_in = {"dashboard_token": agent.dashboard_token}
            person.post("/sign-in", signed_in, token="", status=303)
            of_agent = person.get("/keys/new").token
            server.stop()
            page = person.post("/sign-out", token=of_agent, status=503)
            page.sees("Temporarily unavailable")
            assert "set-cookie" not in page.answer.headers
            person.sign_in(ADA)
            for path in ("/keys", "/usage"):
                page = person.get(path, 503)
                page.sees("Temporarily unavailable", "Try again")
                assert "Traceback" not in page.html
            person.post("/keys/new", {"name": "y", "access": "full"}, token=token, status=503)


@pytest.mark.parametrize("serve", [on_starlette, on_flask])
def test_a_change_that_cannot_reach_the_cache_is_shown_as_made_D52(
    serve: Place, tmp_path: Path
) -> None:
    with redis_server() as server:
        store = f"{migrated.sqlite(tmp_path / 'keys.db')} {server.url()}"
        made = serve(
            lambda origin: make_gate(origin, store=store, store_options=StoreOptions(deadline=30)),
            operator=lambda session, caller: True,
        )
        with made as person:
            id = person.id_of(person.create())
            token = person.get("/keys/new").token
            server.stop()
            person.post("/keys/new", {"name": "b", "access": "full"}, token=token, status=201)
            page = person.post(f"/keys/{id}/rotate", {"overlap": "1"}, token=token, status=201)
            page.sees("The change is made. A part of the service could not be told")
            new = person.id_of(page.key)
            edited = {"name": "c", "access": "full", "expires": "keep"}
            for path, form in ((f"/keys/{new}/edit", edited), (f"/keys/{new}/revoke", {})):
                page = person.post(path, form, token=token, status=503)
                page.sees("The change is made", "Do not make the change again", "Show the key")
            person.get(f"/keys/{new}").sees("Revoked")
            person.get("/usage").sees("What is counted cannot be read at the moment")
            person.get("/operator/organization?id=org_1").sees("what is counted is not known")
            form = {"id": "org_1", "plan": "starter"}
            page = person.post("/operator/organization", form, token=token, status=503)
            page.sees("The change is made")
            assert run(person.gate.organizations.plan("org_1")).name == "starter"
