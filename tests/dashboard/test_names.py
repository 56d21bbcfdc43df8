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


@pytest.mark.parametrize(
    ("place", "kind"), [("starlette", "name_of"), ("flask", "name_of"), ("flask", "name_of_async")]
)
def test_the_header_has_the_name_of_the_visitors_organization_alone(
    host: Host, place: str, kind: str
) -> None:
    with served(host, place, getattr(host, kind)) as person:
        run(person.gate.keys.create("org_2", "not theirs"))
        assert person.client.get("/settings/usage.json").status_code == 200
        assert not host.asked, "live numbers ask for no name"
        for path in ("/keys", "/usage", "/keys/new"):
            page = person.get(path)
            page.sees("Workspace:  Acme Images")
            assert 'title="Workspace: org_1"' in page.html
        for path in ("/operator", "/operator/organization?id=org_2", "/nowhere"):
            assert "Northwind" not in person.get(path, 404).html
        assert {*host.asked} == {"org_1"}
        assert not host.failed()


@pytest.mark.parametrize("awaits", [True, False])
def test_only_an_async_function_runs_in_the_event_loop_of_the_requests_G5(
    host: Host, awaits: bool
) -> None:
    seen: list[int] = []

    async def operates_async(session: Session, _: object) -> bool:
        seen.append(get_ident())
        return False

    name_of = host.name_of_async if awaits else host.name_of
    with PLACES["starlette"](name_of=name_of, operator=operates_async) as person:
        person.get("/keys").sees("Acme Images")
    assert (host.threads == {*seen}) is awaits


@pytest.mark.parametrize(
    ("place", "kind"), [("starlette", "plain"), ("starlette", "async"), ("flask", "async")]
)
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


def test_names_that_came_before_the_deadline_are_shown(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names, "SECONDS", 1)

    def name_of(id: str) -> str | None:
        if len(host.asked) == 2:
            host.waits.wait()
        host.asked.append(id)
        return f"name {len(host.asked)}"

    with served(host, "starlette", name_of) as person:
        for id in ("org_1", "org_2", "org_3"):
            run(person.gate.keys.create(id, "a key"))
        person.sign_in(ROOT)
        page = person.get("/operator")
        page.sees("name 1", "name 2")
        assert "name 3" not in page.text
        assert host.failed() == {"TimeoutError"}


def test_a_name_that_cannot_be_shown_is_the_id(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    answers: dict[object, str | None] = {
        LookupError("a secret of the host"): "LookupError",
        7: "TypeError",
        **dict.fromkeys((None, "  ", "Acme\N{RIGHT-TO-LEFT OVERRIDE}", "Acme\nImages", "x" * 101)),
        f"acme_live_{'a' * 8}_{'b' * 43}": None,  # K11
    }
    given: list[Any] = []

    def name_of(_: str) -> Any:
        if isinstance(given[-1], Exception):
            raise given[-1]
        return given[-1]

    with served(host, "starlette", name_of) as person:
        for number, (answer, error) in enumerate(answers.items()):
            given.append(answer)
            host.events.clear()
            person.sign_in(ADA._replace(organization=f"org_{number}"))
            page = person.get("/keys")
            page.sees(f"Workspace:  org_{number}")
            assert "a secret of the host" not in page.html
            assert host.failed() == ({error} if error else set())
    assert caplog.text.count("dashboard(name_of=...) failed") == 1, "a traceback for the first"


def test_operators_see_names_beside_ids_and_find_organizations_by_them(host: Host) -> None:
    with served(host, "flask", host.name_of) as person:
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
        page = person.post("/operator", {"text": "northwind"}, token=page.token)
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
