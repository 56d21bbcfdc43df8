"""The host names its organizations; a name that fails, is late or cannot be shown is the id."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from threading import Event, get_ident
from typing import Any

import pytest

from lockgate import Event as GateEvent
from lockgate import run
from lockgate.dashboard import names
from lockgate.sessions import Session

from .consoles import ADA, PLACES, Console, make_gate
from .robots import make_gate_with_agents, register

ROOT = Session(None, "root", "root@example.com")
MARKUP = "\"'><script>alert(1)</script><img src=x onerror=alert(1)>"
NAMES = {"org_1": "Acme Images", "org_2": "Northwind & Sons", "org_3": MARKUP}
NameOf = Callable[[str], str | Awaitable[str | None] | None]


class Host:
    """The host's function, plain or ``async``, and what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.events: list[GateEvent] = []
        self.threads: set[int] = set()
        self.waits = Event()

    def name_of(self, id: str) -> str | None:
        self.asked.append(id)
        self.threads.add(get_ident())
        return NAMES.get(id)

    async def name_of_async(self, id: str) -> str | None:
        await asyncio.sleep(0)
        return self.name_of(id)

    def failed(self) -> set[object]:
        return {one.fields["error"] for one in self.events if one.name == "names_failed"}


@pytest.fixture
def host() -> Iterator[Host]:
    host = Host()
    yield host
    host.waits.set()


@contextmanager
def served(host: Host, place: str, name_of: NameOf) -> Iterator[Console]:
    def make(origin: str) -> Any:
        return make_gate(origin, observer=host.events.append)

    with PLACES[place](
        make, name_of=name_of, operator=lambda session, _: session.user == "root"
    ) as console:
        yield console


@pytest.mark.parametrize("place", ["starlette", "flask"])
@pytest.mark.parametrize("kind", ["name_of", "name_of_async"])
def test_the_header_has_the_name_of_the_visitors_organization_alone(
    host: Host, place: str, kind: str
) -> None:
    with served(host, place, getattr(host, kind)) as person:
        run(person.gate.keys.create("org_2", "not theirs"))
        for path in ("/keys", "/usage", "/keys/new"):
            page = person.get(path)
            page.sees("Workspace:  Acme Images")
            assert 'title="Workspace: org_1"' in page.html
        assert {*host.asked} == {"org_1"}
        for path in ("/operator", "/operator/organization?id=org_2", "/nowhere"):
            assert "Northwind" not in person.get(path, 404).html
        assert {*host.asked} == {"org_1"}
        assert not host.failed()


def test_live_numbers_ask_for_no_name(host: Host) -> None:
    with served(host, "starlette", host.name_of) as person:
        assert person.client.get("/settings/usage.json").status_code == 200
        assert not host.asked


def test_an_async_function_runs_in_the_event_loop_of_the_requests(host: Host) -> None:
    seen: list[int] = []

    async def operates(session: Session, _: object) -> bool:
        seen.append(get_ident())
        return False

    with PLACES["starlette"](name_of=host.name_of_async, operator=operates) as person:
        person.get("/keys").sees("Acme Images")
    assert host.threads == {*seen}


def test_a_plain_function_does_not_block_the_event_loop_G5(host: Host) -> None:
    seen: list[int] = []

    def operates(session: Session, _: object) -> bool:
        seen.append(get_ident())
        return False

    with PLACES["starlette"](name_of=host.name_of, operator=operates) as person:
        person.get("/keys").sees("Acme Images")
    assert not host.threads & {*seen}


@pytest.mark.parametrize("place", ["starlette", "flask"])
@pytest.mark.parametrize("kind", ["plain", "async"])
def test_a_function_that_hangs_leaves_the_id_and_revoking_works(
    host: Host, place: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names, "SECONDS", 0.05)

    def hangs(_: str) -> str:
        host.waits.wait()
        return "late"

    async def hangs_async(_: str) -> str:
        await asyncio.Event().wait() if place == "starlette" else host.waits.wait()
        return "late"

    with served(host, place, hangs if kind == "plain" else hangs_async) as person:
        key = person.create("kept")
        person.get("/keys").sees("Workspace:  org_1")
        person.post(f"/keys/{person.id_of(key)}/revoke", status=303)
        assert person.status_with(key) == 401
        assert host.failed() == {"TimeoutError"}


@pytest.mark.parametrize("place", ["starlette", "flask"])
def test_names_that_came_before_the_deadline_are_shown(
    host: Host, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names, "SECONDS", 1)

    def name_of(id: str) -> str | None:
        if len(host.asked) == 2:
            host.waits.wait()
        host.asked.append(id)
        return f"name {len(host.asked)}"

    with served(host, place, name_of) as person:
        for id in ("org_1", "org_2", "org_3"):
            run(person.gate.keys.create(id, "a key"))
        person.sign_in(ROOT)
        page = person.get("/operator")
        page.sees("name 1", "name 2")
        assert "name 3" not in page.text
        assert host.failed() == {"TimeoutError"}


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        pytest.param(LookupError("a secret of the host"), "LookupError", id="raises"),
        pytest.param(7, "TypeError", id="number"),
        pytest.param(None, None, id="none"),
        pytest.param("  ", None, id="blank"),
        pytest.param("Acme\N{RIGHT-TO-LEFT OVERRIDE}", None, id="direction"),
        pytest.param("Acme\nImages", None, id="line"),
        pytest.param("x" * 101, None, id="long"),
        pytest.param(f"acme_live_{'a' * 8}_{'b' * 43}", None, id="key-K11"),
    ],
)
def test_a_name_that_cannot_be_shown_is_the_id(
    host: Host, answer: Any, error: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    def name_of(_: str) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    with served(host, "starlette", name_of) as person:
        page = person.get("/keys")
        page.sees("Workspace:  org_1")
        assert "a secret of the host" not in page.html
        assert host.failed() == ({error} if error else set())
        assert ("dashboard(name_of=...) failed" in caplog.text) is (error is not None)


@pytest.mark.parametrize("place", ["starlette", "flask"])
def test_operators_see_names_beside_ids(host: Host, place: str) -> None:
    with served(host, place, host.name_of) as person:
        for id in ("org_1", "org_2", "org_3", "org_nameless"):
            run(person.gate.keys.create(id, f"key of {id}"))
        person.sign_in(ROOT)
        page = person.get("/operator")
        page.sees("Acme Images", "Northwind & Sons", "org_1", "org_2", MARKUP, "org_nameless")
        one = person.get("/operator/organization?id=org_2")
        assert "<h1>Northwind &amp; Sons</h1>" in one.html and "<code" in one.html
        one.sees("org_2")
        key = run(person.gate.keys.list("org_2")).keys[0].id
        person.get(f"/operator/key?id=org_2&key={key}").sees("Northwind & Sons", "org_2")
        found = person.post("/operator", {"text": key}, token=page.token)
        found.sees("Northwind & Sons", "key of org_2")
        marked = person.get("/operator/organization?id=org_3")
        for shown in (page, one, found, marked):
            assert "<script>alert" not in shown.html and "<img src=x" not in shown.html


def test_operators_find_organizations_by_a_part_of_their_name(host: Host) -> None:
    with served(host, "starlette", host.name_of) as person:
        for id in NAMES:
            run(person.gate.keys.create(id, "a key"))
        person.sign_in(ROOT)
        token = person.get("/operator").token
        page = person.post("/operator", {"text": "northwind"}, token=token)
        page.sees("Northwind & Sons", "org_2")
        assert "Acme Images" not in page.text and "org_3" not in page.text


def test_a_workspace_that_the_visitor_has_not_connected_is_not_named(host: Host) -> None:
    with PLACES["starlette"](make_gate_with_agents, name_of=host.name_of) as person:
        other = register(person, "owner@example.com")
        id = run(person.gate.keys.find(other.api_key)).keys[0].organization
        person.client.cookies.set("lockgate_workspace", id)
        for path in ("/keys", "/claim"):
            person.get(path).sees("Workspace:  Acme Images")
        person.sign_in(ADA._replace(organization=id))  # As an identity provider may name it.
        person.get("/keys", 403)
        person.get("/claim")
        assert {*host.asked} == {"org_1"}
