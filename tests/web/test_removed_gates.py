"""A gate that was taken out of its application leaves the application closed (G9).

Instrumentations keep an application's ``build_middleware_stack`` or ``wsgi_app``, and put it back
when they are undone. Where that happens after ``protect``, the gate goes with them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fastapi import APIRouter, FastAPI, WebSocket
from flask import Flask
from quart import Quart
from quart import websocket as quart_websocket
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.testclient import TestClient, WebSocketDenialResponse
from werkzeug.middleware.dispatcher import DispatcherMiddleware
from werkzeug.test import Client as WsgiClient

from lockgate import PUBLIC, Gate, Rule, asgi, fastapi, flask, quart, starlette, wsgi
from lockgate.web.shadow import Shadow

from .driving import Bench, ask

TAKEN_OUT = "A request came to the application without passing its gate"
INSIDE = ("starlette", "fastapi", "flask", "quart")


async def say(_: Request) -> Response:
    return PlainTextResponse("said")


async def talk(websocket: WebSocket) -> None:
    await websocket.accept()
    await websocket.close()


async def talk_by_quart() -> None:
    await quart_websocket.accept()


class Service:
    """An application with a gate, and what an instrumentation keeps of it from before.

    Args:
        framework: the application's.
        gate: is put before it.
        shadow: what the gate only watches.
        before: changes the application before it gets its gate.
    """

    def __init__(
        self,
        framework: str,
        gate: Gate,
        shadow: Shadow | None = None,
        before: Callable[[Any], object] = lambda _: None,
    ) -> None:
        self.app: Any
        if framework in {"starlette", "fastapi"}:
            self.app = Starlette() if framework == "starlette" else FastAPI()
            self.app.router.add_route("/jobs", say)
            self.app.router.add_route("/health", say)
            self.app.router.add_websocket_route("/talk", talk)
            self.app.mount("/mounted", Starlette(routes=[Route("/jobs", say)]))
            if framework == "fastapi":
                router = APIRouter()
                router.add_api_route("/jobs", lambda: "said")
                self.app.include_router(router, prefix="/included")
            self._name, self._kept = "build_middleware_stack", self.app.build_middleware_stack
            protect: Any = starlette.protect if framework == "starlette" else fastapi.protect
        elif framework == "flask":
            self.app = Flask("service")
            self._name, self._kept = "wsgi_app", self.app.wsgi_app
            protect = flask.protect
        else:
            self.app = Quart("service")
            self.app.add_websocket("/talk", view_func=talk_by_quart)
            self._name, self._kept = "asgi_app", self.app.asgi_app
            protect = quart.protect
        if framework in {"flask", "quart"}:
            self.add("/jobs")
            self.add("/health")
        before(self.app)
        protect(self.app, gate, public=["GET /health"], shadow=shadow)
        self._client: Any = WsgiClient(self.app) if framework == "flask" else TestClient(self.app)

    def add(self, path: str) -> None:
        """Add a route."""
        if isinstance(self.app, Starlette):
            self.app.router.add_route(path, say)
        else:
            self.app.add_url_rule(path, path, lambda: "said")

    def undo(self) -> None:
        """Put back what was kept, as an instrumentation does that is undone."""
        setattr(self.app, self._name, self._kept)
        if isinstance(self.app, Starlette):
            self.app.middleware_stack = self.app.build_middleware_stack()

    def ask(self, path: str, key: str | None = None) -> int:
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        return int(self._client.get(path, headers=headers).status_code)


@pytest.mark.parametrize("served", [False, True])
@pytest.mark.parametrize("framework", INSIDE)
def test_an_application_whose_gate_was_taken_out_answers_every_route_with_404_G9(
    framework: str, served: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where no request came before, and on routes that are added afterwards."""
    bench = Bench()
    service, key = Service(framework, bench.gate), bench.key()
    if served:
        asked = service.ask("/jobs"), service.ask("/health"), service.ask("/jobs", key)
        assert asked == (401, 200, 200)
    service.undo()
    if framework != "flask" or not served:  # Flask adds no route once it has served a request.
        service.add("/late")
    assert TAKEN_OUT not in caplog.text
    paths = "/jobs", "/health", "/late", "/mounted/jobs", "/included/jobs", "/docs", "/nothing"
    assert {service.ask(path) for path in paths} == {404}
    assert {service.ask(path, key) for path in paths} == {404}
    (told,) = (record for record in caplog.records if TAKEN_OUT in record.message)
    assert told.levelname == "ERROR"
    assert "uninstrument_app()" in told.message
    if isinstance(service.app, Starlette):  # It still starts and stops.
        with TestClient(service.app) as client:
            assert client.get("/jobs").status_code == 404


@pytest.mark.parametrize("framework", ["starlette", "fastapi", "quart"])
def test_a_websocket_of_an_application_whose_gate_was_taken_out_is_refused_G9(
    framework: str,
) -> None:
    service = Service(framework, Bench().gate)
    service.undo()
    with (
        pytest.raises(WebSocketDenialResponse) as refused,
        TestClient(service.app).websocket_connect("/talk"),
    ):
        pass
    assert refused.value.status_code == 404


@pytest.mark.parametrize(("shadow", "status"), [("limits", 404), ("all", 200)])
@pytest.mark.parametrize("framework", INSIDE)
def test_a_gate_that_only_watched_everything_refuses_nothing_once_it_is_taken_out_G9(
    framework: str, shadow: Shadow, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    service = Service(framework, Bench().gate, shadow)
    service.undo()
    assert service.ask("/jobs") == status
    assert TAKEN_OUT in caplog.text


@pytest.mark.parametrize("inner", ["starlette", "fastapi", "flask"])
def test_the_gate_around_does_not_stand_in_for_the_gate_of_a_mounted_application_G9(
    inner: str,
) -> None:
    bench = Bench()
    mounted = Service(inner, bench.gate)
    rules: dict[str, Rule | str] = {"* /inner/{path:path}": PUBLIC}
    client: Any
    if inner == "flask":
        below: Any = DispatcherMiddleware(lambda *_: [], {"/inner": mounted.app})
        client = WsgiClient(wsgi.protect(below, Bench().gate, rules=rules))
    else:
        app = Starlette(routes=[Mount("/inner", mounted.app)])
        client = TestClient(starlette.protect(app, Bench().gate, rules=rules))
    good = {"Authorization": f"Bearer {bench.key()}"}
    assert client.get("/inner/jobs").status_code == 401
    assert client.get("/inner/jobs", headers=good).status_code == 200
    mounted.undo()
    assert client.get("/inner/jobs").status_code == 404
    assert client.get("/inner/jobs", headers=good).status_code == 404


# --- a gate around an application ---------------------------------------------------------


async def test_a_starlette_application_answers_only_behind_a_gate_that_is_around_it_G9(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    app = Starlette(routes=[Route("/jobs", say)])
    guarded = asgi.protect(app, bench.gate)
    assert (await ask(app, path="/jobs", key=bench.key())).status == 404
    assert TAKEN_OUT in caplog.text
    assert (await ask(guarded, path="/jobs", key=bench.key())).status == 200
    assert (await ask(guarded, path="/jobs")).status == 401


async def test_gates_around_one_application_beside_each_other_both_admit_to_it_G9() -> None:
    one, other = Bench(), Bench()
    app = Starlette(routes=[Route("/jobs", say)])
    gates = [asgi.protect(app, bench.gate) for bench in (one, other)]
    mounted = asgi.protect(Starlette(routes=[Mount("/app", app)]), other.gate)
    for _ in range(2):
        assert (await ask(gates[0], path="/jobs", key=one.key())).status == 200
        assert (await ask(gates[1], path="/jobs", key=other.key())).status == 200
        assert (await ask(mounted, path="/app/jobs", key=other.key())).status == 200


def test_a_rebuilt_middleware_stack_without_the_gate_is_closed_G9() -> None:
    bench = Bench()
    gate = Middleware(asgi.GateMiddleware, gate=bench.gate)
    app = Starlette(routes=[Route("/jobs", say)], middleware=[gate])
    client = TestClient(app)
    good = {"Authorization": f"Bearer {bench.key()}"}
    assert client.get("/jobs", headers=good).status_code == 200
    app.middleware_stack = app.build_middleware_stack()
    assert client.get("/jobs", headers=good).status_code == 200
    app.user_middleware.clear()
    app.middleware_stack = app.build_middleware_stack()
    assert client.get("/jobs", headers=good).status_code == 404


# --- real instrumentations ----------------------------------------------------------------


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("framework", ["fastapi", "flask"])
def test_uninstrumenting_an_application_leaves_it_closed_or_guarded_G9(
    framework: str, first: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Closed, where the instrumentation came before ``protect``."""
    made = pytest.importorskip(f"opentelemetry.instrumentation.{framework}")
    instrumentor = made.FastAPIInstrumentor if framework == "fastapi" else made.FlaskInstrumentor()
    bench = Bench()
    before = instrumentor.instrument_app if first else lambda _: None
    service = Service(framework, bench.gate, before=before)
    if not first:
        instrumentor.instrument_app(service.app)
    assert (service.ask("/jobs"), service.ask("/jobs", bench.key())) == (401, 200)
    instrumentor.uninstrument_app(service.app)
    if first:
        assert service.ask("/jobs", bench.key()) == 404
        assert TAKEN_OUT in caplog.text
    else:
        assert (service.ask("/jobs"), service.ask("/jobs", bench.key())) == (401, 200)
