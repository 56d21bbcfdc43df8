"""A process with a mistake in its gate never becomes ready, also where no lifespan tells of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fastapi import FastAPI
from flask import Flask
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient
from werkzeug.test import Client

from lockgate import ConfigurationError, Gate, fastapi, flask, starlette
from lockgate.options import WebOptions
from lockgate.sessions import SignedCookie

SESSIONS = SignedCookie(["a session secret of the tests"])
PAGE = "https://console.example.com"
READY = "/health/ready"


def gate_of(public_url: str | None = PAGE) -> Gate:
    return Gate(
        brand="acme",
        sessions=SESSIONS,
        web_options=WebOptions(public_url=public_url, health="/health"),
    )


def a_starlette(gate: Gate, scope: str, operations: Gate | None) -> Any:
    @starlette.requires(scope)
    async def models(_: Any) -> PlainTextResponse:
        return PlainTextResponse("ok")

    app = Starlette(routes=[Route("/models", models)])
    if operations is not None:
        app.router.routes.extend(starlette.operations(operations))
    return starlette.protect(app, gate)


def a_fastapi(gate: Gate, scope: str, operations: Gate | None) -> Any:
    app = FastAPI()

    @app.get("/models", dependencies=[fastapi.requires(scope)])
    async def models() -> str:
        return "ok"

    if operations is not None:
        app.include_router(fastapi.operations(operations))
    return fastapi.protect(app, gate)


def a_flask(gate: Gate, scope: str, operations: Gate | None) -> Any:
    app = Flask(__name__)

    @app.get("/models")
    @flask.requires(scope)
    def models() -> str:
        return "ok"

    if operations is not None:
        app.register_blueprint(flask.operations(operations))
    return flask.protect(app, gate)


Make = Callable[[Gate, str, "Gate | None"], Any]
MAKERS = pytest.mark.parametrize("make", [a_starlette, a_fastapi, a_flask])
MISTAKES: dict[str, Callable[[Make], Any]] = {
    "no such scope": lambda make: make(gate_of(), "modles:raed", None),
    "operations of another gate": lambda make: make(gate_of(), "models:read", gate_of()),
    "no origin": lambda make: make(gate_of(None), "models:read", None),
}
TOLD = {
    "no such scope": "modles:raed",
    "operations of another gate": "operations of another gate",
    "no origin": "public_url",
}


def probe(app: Any) -> int:
    """Ask as an orchestrator does, of a process whose server runs no lifespan."""
    if isinstance(app, Flask):
        return Client(app).get(READY).status_code
    return TestClient(app, raise_server_exceptions=False).get(READY).status_code


@MAKERS
def test_a_process_without_a_mistake_is_ready(make: Make) -> None:
    gate = gate_of()
    assert probe(make(gate, "models:read", None)) == 200
    assert probe(make(gate, "models:read", gate)) == 200


@pytest.mark.parametrize(
    ("make", "mistake"),
    [(a_flask, "no origin"), *((m, found) for m in (a_starlette, a_fastapi) for found in MISTAKES)],
)
def test_a_process_with_a_mistake_is_never_ready(make: Make, mistake: str) -> None:
    app = MISTAKES[mistake](make)
    for _ in range(2):
        assert probe(app) in {500, 503}


@pytest.mark.parametrize("mistake", ["no such scope", "operations of another gate"])
def test_flask_is_not_protected_with_a_mistake(mistake: str) -> None:
    with pytest.raises(ConfigurationError, match=TOLD[mistake]):
        MISTAKES[mistake](a_flask)


@pytest.mark.parametrize("make", [a_starlette, a_fastapi])
@pytest.mark.parametrize("mistake", MISTAKES)
def test_an_asgi_server_does_not_start_with_a_mistake(make: Make, mistake: str) -> None:
    with (
        pytest.raises(ConfigurationError, match=TOLD[mistake]),
        TestClient(MISTAKES[mistake](make)),
    ):
        pass
