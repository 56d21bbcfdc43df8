"""A CORS layer inside the gate is told once, since it adds no headers to refusals."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from django.conf import settings
from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.wsgi import WSGIHandler
from django.test import override_settings
from fastapi import FastAPI
from litestar.config.cors import CORSConfig
from quart import Quart
from starlette.applications import Starlette
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Mount
from starlette.testclient import TestClient

from lockgate import asgi, django, fastapi, litestar, quart, starlette

from .applications import of_litestar
from .driving import Bench
from .front_ends import django_settings

ORIGIN = "https://console.example.com"
ALLOWED: dict[str, Any] = {"allow_origins": [ORIGIN]}
TELLS = "is inside the gate and adds no headers to refusals"


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line for record in caplog.records if TELLS in (line := record.getMessage())]


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("kind", ["starlette", "fastapi"])
def test_starlettes_middleware_is_told_once_in_either_order(
    kind: str, first: bool, caplog: pytest.LogCaptureFixture
) -> None:
    app: Any = Starlette() if kind == "starlette" else FastAPI()
    protect: Any = starlette.protect if kind == "starlette" else fastapi.protect
    if first:
        app.add_middleware(CORSMiddleware, **ALLOWED)
    protect(app, Bench().gate)
    if not first:
        app.add_middleware(CORSMiddleware, **ALLOWED)
    with TestClient(app) as client:
        client.get("/other")
        refused = client.get("/jobs", headers={"Origin": ORIGIN})
    assert (refused.status_code, refused.headers.get("access-control-allow-origin")) == (401, None)
    (line,) = told(caplog)
    assert line.startswith(f"CORSMiddleware {TELLS}")
    assert "serve CORSMiddleware(app, allow_origins=[...])" in line


def test_the_remedy_that_is_told_gives_refusals_the_headers_and_is_told_no_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    served = CORSMiddleware(starlette.protect(Starlette(), Bench().gate), **ALLOWED)
    refused = TestClient(served).get("/jobs", headers={"Origin": ORIGIN})
    assert refused.status_code == 401
    assert refused.headers["access-control-allow-origin"] == ORIGIN
    assert told(caplog) == []


def test_a_middleware_of_a_mounted_application_is_told(caplog: pytest.LogCaptureFixture) -> None:
    inner = Starlette()
    inner.add_middleware(CORSMiddleware, **ALLOWED)
    app = asgi.protect(Starlette(routes=[Mount("/inner", inner)]), Bench().gate)
    TestClient(app).get("/inner")
    assert len(told(caplog)) == 1


@pytest.mark.parametrize("cors", [None, CORSConfig(allow_origins=[ORIGIN])])
def test_litestars_is_told(cors: CORSConfig | None, caplog: pytest.LogCaptureFixture) -> None:
    litestar.protect(of_litestar([], cors_config=cors), Bench().gate)
    assert len(told(caplog)) == (0 if cors is None else 1)


def test_quarts_is_told(caplog: pytest.LogCaptureFixture) -> None:
    async def after(response: Any, **_: Any) -> Any:
        return response

    quart.protect(Quart("plain"), Bench().gate)
    assert told(caplog) == []
    app = Quart("service")
    after.__module__ = "quart_cors"
    app.after_request(partial(after, allow_origin=[ORIGIN]))  # As its cors(app) does.
    quart.protect(app, Bench().gate)
    assert len(told(caplog)) == 1


@pytest.mark.parametrize(
    ("handler", "remedy"),
    [(ASGIHandler, "serve CORSMiddleware(app"), (WSGIHandler, "have the HTTP server")],
)
def test_djangos_is_told(handler: Any, remedy: str, caplog: pytest.LogCaptureFixture) -> None:
    with django_settings():
        application = handler()
        django.protect(application, Bench().gate)
        assert told(caplog) == []
        layers = ["corsheaders.middleware.CorsMiddleware", *settings.MIDDLEWARE]
        with override_settings(MIDDLEWARE=layers):
            django.protect(application, Bench().gate)
    (line,) = told(caplog)
    assert line.startswith(f"django-cors-headers {TELLS}")
    assert remedy in line
