"""Each adapter's `operations` without `protect`: guarded all the same, and whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fastapi import FastAPI
from flask import Flask
from litestar import Litestar
from quart import Quart
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient
from werkzeug.test import Client

from lockgate import ConfigurationError, Gate, asgi, fastapi, flask, litestar, quart, wsgi
from lockgate import starlette as starlettes

from .web.driving import Bench

KEYS = "/api/v1/api-keys"
STATUS = "/api/v1/account/rate-limits"


def with_fastapi(gate: Gate) -> Any:
    app = FastAPI()
    app.include_router(fastapi.operations(gate))
    return TestClient(app)


def with_flask(gate: Gate) -> Any:
    app = Flask("service")
    app.register_blueprint(flask.operations(gate))
    return Client(app, use_cookies=False)


def with_quart(gate: Gate) -> Any:
    app: Any = Quart("service")
    app.register_blueprint(quart.operations(gate))
    return TestClient(app)


def with_starlette(gate: Gate) -> Any:
    return TestClient(Starlette(routes=starlettes.operations(gate)))


def mounted(gate: Gate) -> Any:
    routes = [Mount("/v2", routes=starlettes.operations(gate))]
    return TestClient(Starlette(routes=routes), base_url="http://testserver/v2")


def with_litestar(gate: Gate) -> Any:
    handlers = litestar.operations(gate)
    app: Any = Litestar(handlers, openapi_config=None, logging_config=None)
    return TestClient(app)


BUILDS: list[Callable[[Gate], Any]] = [
    *(with_starlette, mounted, with_fastapi, with_litestar, with_quart, with_flask),
    lambda gate: TestClient(asgi.operations(gate)),
    lambda gate: Client(wsgi.operations(gate), use_cookies=False),
]
IDS = ["starlette", "mounted", "fastapi", "litestar", "quart", "flask", "asgi", "wsgi"]


@pytest.mark.parametrize("build", BUILDS, ids=IDS)
def test_operations_without_protect_are_guarded_and_whole(
    build: Callable[[Gate], Any], caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench()
    client = build(bench.gate)
    session = {"Cookie": f"__session={bench.session()}"}

    is_wsgi = isinstance(client, Client)

    def ask(method: str, path: str, headers: Any = None, sent: Any = None) -> tuple[int, Any, Any]:
        fields: Any = {"method": method, "headers": headers or {}}
        fields |= {} if sent is None else {"json": sent}
        answer = client.open(path, **fields) if is_wsgi else client.request(url=path, **fields)
        body = None if method == "HEAD" else answer.json if is_wsgi else answer.json()
        return answer.status_code, body, answer.headers

    def code(*asked: Any) -> str:
        status, body, headers = ask(*asked)
        assert headers["x-ratelimit-limit"] == "1000"
        return f"{status} {body['code']}"

    for method, path, refusal in (
        ("GET", KEYS, "MISSING_AUTH"),
        ("POST", KEYS, "SESSION_REQUIRED"),
        ("GET", f"{KEYS}/x", "MISSING_AUTH"),
        ("DELETE", f"{KEYS}/x", "MISSING_AUTH"),
        ("GET", STATUS, "MISSING_AUTH"),
    ):
        assert code(method, path) == f"401 {refusal}", (method, path)
    foreign = {**session, "Origin": "https://evil.example"}
    assert code("POST", KEYS, foreign, {"name": "x"}) == "403 CROSS_SITE_REQUEST"
    assert bench.used() == 0
    status, made, headers = ask("POST", KEYS, session, {"name": "mine"})
    assert (status, headers["cache-control"], headers["x-ratelimit-remaining"]) == (
        *(201, "no-store", "999"),
    )
    key, id = {"Authorization": f"Bearer {made['key']}"}, made["id"]
    assert [entry["id"] for entry in ask("GET", KEYS, key)[1]["data"]] == [id]
    assert ask("HEAD", KEYS, key)[0] == 200
    detail = ask("GET", f"{KEYS}/{id.upper()}", session)[1]["data"]
    assert (detail["organizationId"], detail["requestCount"]) == ("org_1", 2)
    poor = {"Authorization": f"Bearer {bench.key('models:read')}"}
    assert code("DELETE", f"{KEYS}/{id}", poor) == "403 INSUFFICIENT_SCOPE"
    assert code("POST", KEYS, key, {"name": "x"}) == "401 SESSION_REQUIRED"
    other_methods = ("PUT", KEYS, "GET, HEAD, POST"), ("PATCH", f"{KEYS}/x", "DELETE, GET, HEAD")
    for method, path, allow in other_methods if build is not with_litestar else ():
        assert code(method, path) == "401 MISSING_AUTH"  # Litestar's router answers itself.
        assert code(method, path, key) == "405 METHOD_NOT_ALLOWED"
        assert ask(method, path, key)[2]["allow"] == allow
    assert ask("DELETE", f"{KEYS}/{id}", key)[1]["success"] is True
    assert code("GET", KEYS, key) == "401 KEY_REVOKED"
    # The gates of the operations know their one route, so no audit is missing.
    assert not [r for r in caplog.records if r.name == "lockgate" and "audit" in r.getMessage()]


@pytest.mark.parametrize(
    "adapter", [asgi, fastapi, flask, litestar, quart, starlettes, wsgi], ids=lambda a: a.__name__
)
def test_operations_need_a_session_verifier(adapter: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"session verifier.*sessions=SignedCookie"):
        adapter.operations(Gate("memory://", brand="acme"))
