"""The role of a session decides what its person may do on the pages, and the host may ask more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from lockgate import run
from lockgate.dashboard.forms import FormTokens
from lockgate.options import WebOptions
from lockgate.sessions import Session, StepUp

from .consoles import ADA, PLACES, Console, make_gate, on_starlette
from .robots import make_gate_with_agents, register

ROLES = {
    "viewer": ("account:read",),
    "admin": ("*",),
    "jobs": ("account:read", "account:write", "jobs:*"),
}
VIEWER, JOBS, STRANGER = (ADA._replace(role=role) for role in ("viewer", "jobs", "guest"))
FULL = {"name": "x", "access": "full", "expires": ""}


def make(origin: str, **fields: Any) -> Any:
    return make_gate_with_agents(origin, web_options=WebOptions(session_roles=ROLES), **fields)


@pytest.fixture
def person() -> Iterator[Console]:
    with PLACES["flask"](make) as made:
        yield made


def test_a_viewer_reads_and_changes_nothing(person: Console) -> None:
    id, token = person.id_of(person.create("kept")), person.get("/keys/new").token
    before = run(person.gate.keys.list("org_1")).keys
    person.sign_in(VIEWER)
    page = person.get("/keys")
    page.sees("kept")
    assert "Create new key" not in page.text
    shown = person.get(f"/keys/{id}")
    assert "Revoke" not in shown.text
    person.get("/usage").sees("of 10")
    for path in ("/keys/new", f"/keys/{id}/edit", f"/keys/{id}/rotate", f"/keys/{id}/revoke"):
        person.get(path, 403).sees("Your role lacks the scope 'account:write'")
        refused = person.post(path, FULL, token=token, status=403)
        refused.sees("Your role lacks the scope 'account:write'")
    assert run(person.gate.keys.list("org_1")).keys == before
    person.sign_in(STRANGER)  # Of an unknown role.
    for path in ("/keys", "/usage", "/usage.json", "/claim", "/keys/new"):
        person.get(path, 403)


def test_a_viewer_connects_no_workspace(person: Console) -> None:
    made = register(person, "ada@example.com")
    organization = run(person.gate.keys.find(made.api_key)).keys[0].organization
    viewer = Session(None, "ada", "ada@example.com", role="viewer")
    person.sign_in(viewer)
    page = person.get("/claim")
    page.sees("an agent")
    assert "Let the agent" not in page.text
    form = {"organization": organization, "keys": "revoke"}
    person.post(
        "/claim", form, token=FormTokens(person.gate.format.peppers).write(viewer), status=403
    )
    assert person.status_with(made.api_key) == 200


def test_no_key_gets_more_scopes_than_the_role_of_its_creator(person: Console) -> None:
    full = person.id_of(person.create("full"))
    person.sign_in(JOBS)
    form = {**FULL, "access": "some", "scopes": "jobs:read"}
    id = person.id_of(person.post("/keys/new", form, status=201).key)
    more = {**form, "scopes": ["jobs:read", "models:read"]}
    for path, fields in (
        ("/keys/new", FULL),
        ("/keys/new", more),
        (f"/keys/{id}/edit", FULL),
        (f"/keys/{id}/edit", more),
        (f"/keys/{full}/edit", {**FULL, "expires": "30"}),
        (f"/keys/{full}/rotate", {"overlap": "0"}),
    ):
        person.post(path, fields, status=403)
    assert run(person.gate.keys.get("org_1", id)).scopes == ("jobs:read",)
    assert run(person.gate.keys.get("org_1", full)).successor is None
    person.post(f"/keys/{full}/revoke", status=303)


def test_a_powerful_key_needs_the_sign_in_that_the_host_asks_for() -> None:
    options = WebOptions(step_up=StepUp(lambda _: False))

    def asking(origin: str) -> Any:
        return make_gate(origin, web_options=options)

    with PLACES["django"](asking, sign_in="/login?next={next}") as person:
        page = person.post("/keys/new", FULL, status=401)
        page.sees("This needs a more recent or stronger sign-in")
        assert "insufficient_user_authentication" in page.answer.headers["www-authenticate"]
        form = {**FULL, "access": "some", "scopes": "jobs:read"}
        id = person.id_of(person.post("/keys/new", form, status=201).key)
        person.post(f"/keys/{id}/edit", FULL, status=401)
        person.post(f"/keys/{id}/rotate", {"overlap": "1"}, status=201)


def test_a_function_for_roles_that_fails_is_told_on_a_page() -> None:
    def fails(_: object) -> str:
        raise RuntimeError("the roles are away")

    options = WebOptions(session_roles=ROLES, session_role=fails)
    with on_starlette(lambda origin: make_gate(origin, web_options=options)) as person:
        page = person.get("/keys", 503)
        assert "RuntimeError" not in page.html
