"""The table of faults in `docs/production.md`: each is made here, and seen as the page says."""

from __future__ import annotations

import logging
import re
import sqlite3
from collections.abc import Callable, Iterator
from inspect import signature
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.testclient import TestClient
from starlette.types import ASGIApp, Receive, Scope, Send

from lockgate import ConfigurationError, Gate, MemoryStore, Organization, run
from lockgate.sessions import SignedCookie
from lockgate.starlette import protect, requires
from lockgate.stores.sql import SqlStore
from tests.servers import free_port, redis_server, shared

PAGE = Path(__file__).parents[2] / "docs" / "production.md"
PEPPER = bytes(range(32))
OTHER_PEPPER = bytes(range(32, 64))


class Seen(NamedTuple):
    """The observed effects of a fault."""

    status: int | None
    """None: the application did not start."""
    text: str
    """The body, or the message of the error that kept the application from starting."""


@requires()
async def models(request: Request) -> Response:
    return JSONResponse({})


@requires("models:read")
async def model(request: Request) -> Response:
    return JSONResponse({})


def application() -> Starlette:
    return Starlette(routes=[Route("/models", models), Route("/models/{id}", model)])


def a_key(store: Any = "memory://", pepper: bytes = PEPPER) -> str:
    gate = Gate(store, brand="acme", peppers=[pepper], deadline=10)
    try:
        return run(gate.keys.create("org_1", "a key")).text
    finally:
        run(gate.close())


def seen(
    store: Any = "memory://",
    text: str | None = None,
    *,
    app: Starlette | None = None,
    headers: dict[str, str] | None = None,
    between: Callable[[], object] | None = None,
    **arguments: Any,
) -> Seen:
    """Start an application over a store, and ask with a key: once more after what is between."""
    options = {"brand": "acme", "peppers": [PEPPER], "deadline": 10.0, **arguments}
    strict = options.pop("strict", False)
    if store == "memory://":
        store = MemoryStore()
        text = a_key(store)
    try:
        gate = Gate(store, **options)
        with TestClient(protect(app or application(), gate, strict=strict)) as client:
            sent = {"Authorization": f"Bearer {text or a_key()}", **(headers or {})}
            answer = client.get("/models", headers=sent)
            if between is not None:
                assert answer.status_code == 200
                between()
                answer = client.get("/models", headers=sent)
            assert client.portal is not None
            client.portal.call(gate.close)  # In its event loop, which ends with the client.
        return Seen(answer.status_code, answer.text)
    except ConfigurationError as mistake:
        return Seen(None, str(mistake))


def no_server(_: Path) -> Seen:
    return seen(f"redis://127.0.0.1:{free_port()}")


def wrong_password(_: Path) -> Seen:
    with redis_server("--requirepass", "right") as server:
        return seen(f"redis://:wrong@127.0.0.1:{server.port}")


def no_tables(_: Path) -> Seen:
    return seen(shared("postgresql").create("production_without_tables"))


def mistyped_path(folder: Path) -> Seen:
    return seen(f"sqlite:///{folder}/kyes.db")


def plan_without_numbers(_: Path) -> Seen:
    store = MemoryStore()
    run(store.put_organization(Organization("org_1", "gold")))
    return seen(store, a_key(store))


def missing_pepper(folder: Path) -> Seen:
    store = f"sqlite:///{folder}/keys.db?mode=rwc"
    return seen(store, a_key(store, OTHER_PEPPER))


def evicting(_: Path) -> Seen:
    with redis_server("--maxmemory", "100mb", "--maxmemory-policy", "volatile-lru") as server:
        return seen(server.url(), a_key(server.url()))


def lost_data(_: Path) -> Seen:
    with redis_server() as server, server.client() as redis:
        return seen(server.url(), a_key(server.url()), between=redis.flushall)


def unknown_proxy(_: Path) -> Seen:
    return seen(headers={"X-Forwarded-For": "203.0.113.7"})


def damaged_row(folder: Path) -> Seen:
    store = f"sqlite:///{folder}/keys.db?mode=rwc"
    text = a_key(store)
    gate = Gate(store, brand="acme", peppers=[PEPPER], deadline=10)
    run(gate.authenticate(text))
    run(gate.close())
    with sqlite3.connect(folder / "keys.db") as database:
        database.execute("UPDATE lockgate_organizations SET windows = x'ff'")
    return seen(store, text)


def failing_resolver(folder: Path) -> Seen:
    url = f"sqlite:///{folder}/keys.db?mode=rwc"

    async def resolve(organization: str) -> Organization:
        raise KeyError(organization)

    return seen(SqlStore(url, resolver=resolve), a_key(url))


def open_route(_: Path) -> Seen:
    app = application()
    app.router.routes.append(Route("/forgotten", JSONResponse({})))
    return seen(app=app, strict=True)


def no_origin(_: Path) -> Seen:
    return seen(sessions=SignedCookie([bytes(range(32)).hex()]))


def rewritten_path(_: Path) -> Seen:
    class Rewrites:
        def __init__(self, app: ASGIApp) -> None:
            self.app = app

        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http":
                scope["path"] = "/models/1"
            await self.app(scope, receive, send)

    app = application()
    app.add_middleware(Rewrites)
    return seen(app=app)


FAULTS: dict[str, Callable[[Path], Seen]] = {
    "the store does not run": no_server,
    "wrong password": wrong_password,
    "`lockgate db upgrade` was not run": no_tables,
    "the path of a SQLite file is mistyped": mistyped_path,
    "a pepper is missing": missing_pepper,
    "a plan has no numbers": plan_without_numbers,
    "Redis evicts": evicting,
    "Redis lost its data": lost_data,
    "a proxy is not configured": unknown_proxy,
    "a row is damaged": damaged_row,
    "your plan resolver fails": failing_resolver,
    "a route is open": open_route,
    "sessions without an origin": no_origin,
    "a middleware rewrites the path": rewritten_path,
}


def rows() -> Iterator[list[str]]:
    table = PAGE.read_text().partition("\n| fault |")[2]
    for line in table.splitlines()[2:]:
        if not line.startswith("|"):
            return
        yield [cell.strip() for cell in line.strip("|").split(" | ")]


def test_the_page_names_every_argument_of_a_gate() -> None:
    arguments = set(signature(Gate).parameters)
    assert arguments - set(re.findall(r"`(\w+)`", PAGE.read_text())) == set()


def test_the_page_tells_of_every_fault_that_is_made_here() -> None:
    assert [row[0] for row in rows()] == list(FAULTS)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_seen_as_the_page_says(
    fault: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (client, log) = next(row[1:3] for row in rows() if row[0] == fault)
    with caplog.at_level(logging.WARNING, "lockgate"):
        status, text = FAULTS[fault](tmp_path)
    lines = [r.getMessage() for r in caplog.records if r.name == "lockgate"]
    if status is None:
        assert client == "the application does not start"
        lines.append(text)
    else:
        assert re.findall(r"\b\d{3}\b", client) == [str(status)]
        assert all(code in text for code in re.findall(r"`([A-Z_]+)`", client))
    for words in re.findall(r"\*([^*]+)\*", log):
        assert any(words in line for line in lines), lines
