"""The caller that a gate gives to an application belongs to one request alone (D54).

A server may share objects between requests: Hypercorn before 0.18 one ``state`` between those of an
HTTP/2 connection, and a server that is started inside an application context of Flask or Quart that
context, with its ``g``. Here the handlers of two organizations are inside at the same time.
"""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from contextvars import copy_context
from threading import Barrier, Thread
from typing import Any

import pytest
from fastapi import WebSocket
from flask import Flask, Response, stream_with_context
from flask import g as flask_g
from quart import Quart
from quart import g as quart_g
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send
from werkzeug.test import Client

from lockgate import PUBLIC, Rule, asgi, flask, quart, starlette

from .applications import protected
from .driving import Bench, Line, ask, websocket_scope

ORGANIZATIONS = ("org_1", "org_2")
PATIENCE = 60.0
"""Seconds until a handler that waits in vain for the other one fails."""


class Shared:
    """A server that gives the same ``state`` to all requests, as an ASGI application.

    Args:
        app: the application that it serves.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.state: dict[str, Any] = {"pool": "a pool"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["state"] = self.state
        await self._app(scope, receive, send)


class Meeting:
    """Has handlers go on once both of them are inside."""

    def __init__(self) -> None:
        self._inside = asyncio.Barrier(len(ORGANIZATIONS))

    async def wait(self) -> None:
        async with asyncio.timeout(PATIENCE):
            await self._inside.wait()


@pytest.mark.parametrize("framework", ["asgi", "starlette", "fastapi", "litestar"])
async def test_requests_that_share_the_state_of_a_server_have_their_own_principal_D54(
    framework: str,
) -> None:
    bench, meeting = Bench(), Meeting()

    async def view(principal: Any) -> dict[str, str]:
        await meeting.wait()
        return {"for": principal.organization}

    async def plain(scope: Scope, receive: Receive, send: Send) -> None:
        await JSONResponse(await view(scope["state"]["principal"]))(scope, receive, send)

    if framework == "asgi":
        app = asgi.protect(plain, bench.gate)
    else:
        app, _ = protected(framework, bench.gate, make={"view": view})
    keys = [bench.key(organization=one) for one in ORGANIZATIONS]
    server = Shared(app)
    answers = await asyncio.gather(*(ask(server, path="/models", key=key) for key in keys))
    assert [answer.json()["for"] for answer in answers] == list(ORGANIZATIONS)
    assert server.state == {"pool": "a pool"}


async def test_websockets_and_public_routes_that_share_a_state_have_their_own_principal_D54() -> (
    None
):
    bench, meeting = Bench(), Meeting()

    async def talk(websocket: WebSocket) -> None:
        await websocket.accept()
        await meeting.wait()
        await websocket.send_text(websocket.state.principal.organization)
        await websocket.close()

    async def view(request: Request) -> PlainTextResponse:
        await meeting.wait()
        assert request.state.pool == "a pool"
        return PlainTextResponse(str(request.state.principal and "somebody"))

    routes = [WebSocketRoute("/talk", talk), Route("/", view), Route("/open", view)]
    rules: dict[str, Rule | str] = {"GET /open": PUBLIC}
    server = Shared(starlette.protect(Starlette(routes=routes), bench.gate, rules=rules))

    async def spoken(organization: str) -> str:
        line = Line([{"type": "websocket.connect"}])
        scope = websocket_scope("/talk", key=bench.key(organization=organization))
        await server(scope, line.receive, line.send)
        return str(line.sent[1]["text"])

    assert await asyncio.gather(*map(spoken, ORGANIZATIONS)) == list(ORGANIZATIONS)
    guarded, public = await asyncio.gather(ask(server, key=bench.key()), ask(server, path="/open"))
    assert (guarded.body, public.body) == (b"somebody", b"None")


async def test_quart_requests_that_share_an_application_context_have_their_own_g_D54() -> None:
    bench, meeting = Bench(), Meeting()
    app = Quart("service")

    @app.get("/")
    async def view() -> str:
        await meeting.wait()
        return str(quart_g.principal.organization)

    quart.protect(app, bench.gate)

    async def shown(organization: str) -> str:
        good = {"Authorization": f"Bearer {bench.key(organization=organization)}"}
        answer = await app.test_client().get("/", headers=good)
        return str(await answer.get_data(as_text=True))

    async with app.app_context():
        assert await asyncio.gather(*map(shown, ORGANIZATIONS)) == list(ORGANIZATIONS)
        assert "principal" not in quart_g


def asked(app: Flask, key: str, path: str = "/") -> str:
    return Client(app).get(path, headers={"Authorization": f"Bearer {key}"}).text


@pytest.mark.parametrize("streamed", [False, True])
def test_flask_requests_that_share_an_application_context_have_their_own_g_D54(
    streamed: bool,
) -> None:
    """Threads that a server starts in a copy of its own context, as a free-threaded Python does."""
    bench, inside = Bench(), Barrier(len(ORGANIZATIONS), timeout=PATIENCE)
    app = Flask("service")

    @app.get("/")
    def view() -> Any:
        def said() -> Any:
            inside.wait()
            yield str(flask_g.principal.organization)

        return Response(stream_with_context(said()) if streamed else list(said()))

    flask.protect(app, bench.gate)
    answers: dict[str, str] = {}

    def serve(organization: str) -> None:
        answers[organization] = asked(app, keys[organization])

    keys = {one: bench.key(organization=one) for one in ORGANIZATIONS}
    with app.app_context():
        threads = [Thread(target=copy_context().run, args=(serve, one)) for one in ORGANIZATIONS]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert "principal" not in flask_g
    assert answers == dict(zip(ORGANIZATIONS, ORGANIZATIONS, strict=True))


def test_a_flask_request_inside_another_one_leaves_its_principal_alone_D54() -> None:
    bench = Bench()
    app = Flask("service")
    keys = [bench.key(organization=one) for one in ORGANIZATIONS]
    app.add_url_rule("/", "inner", lambda: str(flask_g.principal.organization))

    @app.get("/outer")
    def outer() -> str:
        return f"{asked(app, keys[1])} in {flask_g.principal.organization}"

    flask.protect(app, bench.gate)
    assert asked(app, keys[0], "/outer") == "org_2 in org_1"


@pytest.mark.parametrize("inside", [False, True])
def test_a_flask_client_that_keeps_its_context_keeps_the_principal(inside: bool) -> None:
    """Also inside an application context, as in the fixtures of a host's tests."""
    bench = Bench()
    app = Flask("service")
    app.add_url_rule("/", "view", lambda: "said")
    flask.protect(app, bench.gate)
    good = {"Authorization": f"Bearer {bench.key()}"}
    around = app.app_context() if inside else nullcontext()
    with around, app.test_client() as client:
        assert client.get("/", headers=good).status_code == 200
        assert flask_g.principal.organization == "org_1"
