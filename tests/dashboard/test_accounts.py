"""Agents sign in, and owners connect their workspaces."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from lockgate import run
from lockgate.sessions import Session

from .consoles import AT, PLACES, SESSIONS, Console, on_starlette
from .robots import make_gate_with_agents, register

OWNER = Session(None, "owner", "owner@example.com")


@pytest.fixture(params=["starlette", "flask"])
def person(request: pytest.FixtureRequest) -> Iterator[Console]:
    with PLACES[request.param](make_gate_with_agents) as made:
        made.sign_in(OWNER)
        yield made


def test_an_owner_connects_a_workspace_and_keeps_its_keys(person: Console) -> None:
    made = register(person, "owner@example.com", "render bot")
    person.get("/keys", 403).sees("No workspace yet", "Connect workspace")
    page = person.get("/claim")
    page.sees("render bot", f"{made.api_key[:15]}…")
    organization = run(person.gate.keys.find(made.api_key)).keys[0].organization
    form = {"organization": organization, "keys": "keep"}
    person.post("/claim", form, token=page.token, status=303)
    person.get("/claim?done=claimed").sees("connected to your login", "Connected just now")
    person.get("/keys").sees("render bot", "by agent", organization)
    assert person.status_with(made.api_key) == 200
    id = person.id_of(made.api_key)
    change = run(person.gate.changes.list(organization)).changes[0]
    assert (change.action, change.actor.kind, change.actor.id) == (
        *("account_claimed", "user"),
        "owner",
    )
    person.post(f"/keys/{id}/revoke", status=303)
    change = run(person.gate.changes.list(organization)).changes[0]
    assert (change.action, change.actor.kind, change.actor.id) == ("key_revoked", "user", "owner")
    assert change.actor.address == "127.0.0.1"
    other = register(person, "owner@example.com")
    organization = run(person.gate.keys.find(other.api_key)).keys[0].organization
    token = person.get("/claim").token
    person.post("/claim", {"organization": organization}, token=token, status=303)
    assert person.status_with(other.api_key) == 401, "keys are kept only if that was chosen"


def test_an_owner_of_two_workspaces_opens_the_one_and_the_other(person: Console) -> None:
    one, two = (register(person, "owner@example.com", name) for name in ("bot one", "bot two"))
    ids = [run(person.gate.keys.find(made.api_key)).keys[0].organization for made in (one, two)]
    accounts = person.gate.accounts
    assert accounts is not None
    for id in ids:
        run(accounts.claims.claim(OWNER, id))
    latest = person.get("/keys").text
    assert ("bot one" in latest) != ("bot two" in latest)
    token = person.get("/claim").token
    for id, name, other in ((ids[0], "bot one", "bot two"), (ids[1], "bot two", "bot one")):
        person.post("/workspace", {"organization": id}, token=token, status=303)
        page = person.get("/keys")
        page.sees(name, id)
        assert other not in page.text
    person.post("/workspace", {"organization": "org_1"}, token=token, status=403)
    stranger = Session("org_5", "mallory", "mallory@example.com")
    person.client.cookies.set("__session", SESSIONS.issue(stranger))
    page = person.get("/keys")
    page.sees("org_5")
    assert "bot" not in page.text, "the cookie of a workspace grants nothing"
    page = person.get("/claim")
    page.sees("Back to org_5")
    token = page.token
    person.post("/workspace", {"organization": ids[0]}, token=token, status=403)
    person.post("/workspace", {"organization": "org_5"}, token=token, status=303)
    assert "lockgate_workspace" not in person.client.cookies


def test_a_form_for_a_key_is_out_of_date_once_another_workspace_is_open(person: Console) -> None:
    accounts = person.gate.accounts
    assert accounts is not None
    ids: list[str] = []
    for name in ("bot one", "bot two"):
        made = register(person, "owner@example.com", name)
        ids.append(run(person.gate.keys.find(made.api_key)).keys[0].organization)
        run(accounts.claims.claim(OWNER, ids[-1]))
    person.post("/workspace", {"organization": ids[0]}, status=303)
    page = person.get("/keys/new")
    fields = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]+)"', page.html))
    person.post("/workspace", {"organization": ids[1]}, token=page.token, status=303)
    form = {**fields, "name": "in one", "access": "full", "expires": ""}
    person.post("/keys/new", form, token=page.token, status=403).sees(
        "another session or workspace"
    )
    for id in ids:
        assert len(run(person.gate.keys.list(id)).keys) == 1
    person.post("/workspace", {"organization": ids[0]}, token=page.token, status=303)
    person.post("/keys/new", form, token=page.token, status=201)
    assert {key.name for key in run(person.gate.keys.list(ids[0])).keys} == {"bot one", "in one"}


def test_a_workspace_of_another_owner_is_not_shown(person: Console) -> None:
    made = register(person, "owner@example.com")
    organization = run(person.gate.keys.find(made.api_key)).keys[0].organization
    person.sign_in(Session(None, "mallory", "mallory@example.com"))
    page = person.get("/claim")
    page.sees("Nothing to connect", "mallory@example.com")
    assert organization not in page.html
    person.get("/keys", 403)
    person.sign_in(Session("org_9", "mallory", "mallory@example.com"))
    person.post("/claim", {"organization": organization, "keys": "keep"}, status=403)
    person.sign_in(Session(None, "unverified", None))
    person.get("/claim", 403).sees("verified e-mail")


def test_an_agent_signs_in_creates_a_key_and_leaves(person: Console) -> None:
    made = register(person, "owner@example.com", "render bot")
    person.sign_in(None)
    person.get("/keys", 401).sees("Agents sign in with their dashboard token")
    wrong = {"dashboard_token": made.dashboard_token[:-1]}
    page = person.post("/sign-in", wrong, token="", status=401)
    page.sees("This dashboard token is not accepted")
    assert made.dashboard_token[:-1] not in page.html
    right = {"dashboard_token": f" {made.dashboard_token} "}
    person.post("/sign-in", right, token="", status=303)
    listed = person.get("/keys")
    listed.sees("render bot", "Sign out")
    assert "Connect workspace" not in listed.text
    person.get("/claim", 403)
    text = person.create("second")
    key = run(person.gate.keys.find(text)).keys[0]
    assert key.details is not None and key.details.created_by == "agent"
    page = person.post("/sign-out", token="outdated", status=403)
    page.sees("This form is out of date", "Nothing was changed", "Back to the API keys")
    evil = {"origin": "https://evil.example"}
    person.post("/sign-out", status=403, headers=evil)
    person.get("/keys").sees("render bot", "Sign out")
    person.post("/sign-out", status=303)
    person.get("/keys", 401)


def test_a_claim_ends_the_pages_of_the_agent(person: Console) -> None:
    made = register(person, "owner@example.com")
    organization = run(person.gate.keys.find(made.api_key)).keys[0].organization
    person.sign_in(None)
    person.post("/sign-in", {"dashboard_token": made.dashboard_token}, token="", status=303)
    token = person.get("/keys/new").token
    accounts = person.gate.accounts
    assert accounts is not None
    run(accounts.claims.claim(OWNER, organization))
    form = {"name": "late", "access": "full", "expires": ""}
    person.post("/keys/new", form, token=token, status=401).sees("nothing was changed")
    assert len(run(person.gate.keys.list(organization)).keys) == 1


def test_a_service_without_agents_has_no_pages_for_them() -> None:
    with on_starlette() as person:
        person.get("/claim", 404)
        assert "Connect workspace" not in person.get("/keys").text
        person.post("/sign-in", {"dashboard_token": "x"}, token="", status=404)
        person.sign_in(None)
        assert "dashboard token" not in person.get("/keys", 401).text
        assert person.client.get(f"{AT}/sign-out").status_code == 405
