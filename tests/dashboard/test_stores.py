"""The pages over each kind of store, awaited and in threads, and when a store goes away."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from lockgate import run
from lockgate.options import StoreOptions
from lockgate.sessions import Session
from tests import migrated
from tests.servers import redis_server
from tests.services.shared_stores import shared_store

from .consoles import PLACES, Console, Place, make_gate, on_flask, on_starlette


@pytest.fixture(params=["starlette", "flask"])
def place(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["sqlite", "postgresql", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with shared_store(request.param, tmp_path) as found:
        yield found


def test_a_key_lives_and_dies_on_the_pages_over_each_store(place: str, url: str) -> None:
    with PLACES[place](lambda origin: make_gate(origin, store=url)) as person:
        person.sign_in(Session(f"org_{uuid4().hex[:8]}", "ada", "ada@example.com"))
        token = person.get("/keys/new").token
        form = {"name": "kept", "access": "some", "scopes": "models:read", "expires": "30"}
        key = person.post("/keys/new", form, token=token, status=201).key
        assert person.status_with(key) == 200
        person.post("/keys/new", form, token=token, status=409).sees("created already: kept")
        person.get("/keys").sees("kept", "models:read", "by you")
        id = key_id(person)
        person.post(f"/keys/{id}/edit", {**form, "name": "renamed"}, token=token, status=303)
        new = person.post(f"/keys/{id}/rotate", {"overlap": "1"}, token=token, status=201).key
        assert person.status_with(new) == 200
        person.get("/usage").sees("2 of 10")
        both = {"successors": "yes"}
        person.post(f"/keys/{id}/revoke", both, token=token, status=303)
        assert person.status_with(key) == person.status_with(new) == 401
        person.get(f"/keys/{id}").sees("renamed", "Revoked")


def key_id(person: Console) -> str:
    """The id of the only key, as the list links it."""
    return person.get("/keys").html.split("/settings/keys/")[2].split('"')[0]


@pytest.mark.parametrize("serve", [on_starlette, on_flask])
def test_a_store_that_goes_away_and_comes_back_is_told_on_every_page(serve: Place) -> None:
    with redis_server() as server:
        made = serve(
            lambda origin: make_gate(
                origin, store=server.url(), store_options=StoreOptions(deadline=30)
            )
        )
        with made as person:
            page = person.post("/keys/new", {"name": "x", "access": "full"}, status=201)
            token = person.get("/keys/new").token
            server.stop()
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
