"""A router's redirect to the path with a slash more or less is not charged (D50)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.apps import apps
from django.conf import settings
from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.wsgi import WSGIHandler
from django.http import HttpRequest, HttpResponse
from django.test.utils import override_settings
from django.urls import path as django_path
from fastapi import APIRouter, FastAPI
from flask import Flask
from quart import Quart
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Host, Mount, Route
from starlette.testclient import TestClient
from starlette.types import ASGIApp, Receive, Scope, Send
from werkzeug.test import Client

from lockgate import Gate, Rule, django, fastapi, flask, quart, run, starlette

KINDS = ("starlette", "mounted", "fastapi", "included", "flask", "quart", "django", "django-asgi")
LIMIT = 60
Ask = Callable[..., tuple[int, int | None]]
"""Method, path, whether with the good key: the status, and the units used so far."""


@django.requires("jobs:read", cost=5)
def view(_: HttpRequest, **__: object) -> HttpResponse:
    return HttpResponse("items")


urlpatterns = [
    django_path("items/", view),
    django_path("both", view),
    django_path("both/", view),
    django_path("items/<int:id>/", view),
    django_path("files/<path:name>", view),
]
DJANGO = {
    "ROOT_URLCONF": __name__,
    "ALLOWED_HOSTS": ["*"],
    "MIDDLEWARE": [
        "django.middleware.common.CommonMiddleware",
        "lockgate.django.RouteMiddleware",
    ],
}
PATHS = ("/items/", "/both", "/both/", "/items/{id:int}/", "/files/{name:path}")


@starlette.requires("jobs:read", cost=5)
async def endpoint(_: Request) -> PlainTextResponse:
    return PlainTextResponse("items")


def _starlette() -> Starlette:
    return Starlette(routes=[Route(path, endpoint) for path in PATHS])


def _fastapi(router: Any) -> Any:
    for path in PATHS:

        async def items() -> str:
            return "items"

        router.get(path, dependencies=[fastapi.requires("jobs:read", cost=5)])(items)
    return router


def _werkzeug(app: Any, requires: Any) -> Any:
    for place, path in enumerate(("/items/", "/both", "/both/", "/items/<int:id>/")):

        def items(**_: object) -> str:
            return "items"

        app.add_url_rule(path, f"items{place}", requires("jobs:read", cost=5)(items))
    return app


def _protected(kind: str, gate: Gate) -> Any:
    match kind:
        case "starlette":
            return starlette.protect(_starlette(), gate)
        case "mounted":
            return starlette.protect(Starlette(routes=[Mount("/", _starlette())]), gate)
        case "fastapi":
            return fastapi.protect(_fastapi(FastAPI()), gate)
        case "included":
            app = FastAPI()
            app.include_router(_fastapi(APIRouter()))
            return fastapi.protect(app, gate)
        case "flask":
            return flask.protect(_werkzeug(Flask(__name__), flask.requires), gate)
        case "quart":
            return quart.protect(_werkzeug(Quart(__name__), quart.requires), gate)
        case "django":
            return django.protect(WSGIHandler(), gate)
        case _:
            return django.protect(ASGIHandler(), gate)


@contextmanager
def asking(kind: str, app: Any = None, **options: Any) -> Iterator[Ask]:
    gate = Gate("memory://", brand="acme")
    run(gate.organizations.place("org_1", "creator"))
    keys = {
        name: run(gate.keys.create("org_1", name, scopes=[name])).text
        for name in ("jobs:read", "jobs:write")
    }
    if not settings.configured:
        settings.configure()
    apps.populate([])
    with override_settings(**DJANGO):
        served = _protected(kind, gate) if app is None else starlette.protect(app, gate, **options)
        wsgi = kind in {"flask", "django"}
        client: Any = Client(served) if wsgi else TestClient(served)
        asked = {} if wsgi else {"follow_redirects": False}

        def ask(
            path: str, method: str = "GET", scope: str | None = "jobs:read", **more: str
        ) -> tuple[int, int | None]:
            headers = dict(more)
            if scope is not None:
                headers["Authorization"] = f"Bearer {keys[scope]}"
            answer = client.open if wsgi else client.request
            given = {"method": method, "headers": headers, **asked}
            response = answer(path, **given) if wsgi else answer(url=path, **given)
            remaining = response.headers.get("X-RateLimit-Remaining")
            return response.status_code, None if scope is None else LIMIT - int(remaining)

        yield ask


REDIRECTS = {301, 307, 308}


@pytest.mark.parametrize("kind", KINDS)
def test_a_redirect_to_the_slash_is_not_charged_and_all_else_is_D50(kind: str) -> None:
    with asking(kind) as ask:
        # It needs a key with the scope of its endpoint.
        assert ask("/items", scope=None)[0] == 401
        assert ask("/items", scope="jobs:write")[0] == 403
        used = ask("/items")[1] or 0
        for path in ("/items", "/items?page=2", "/items/7", "/items"):
            assert (ask(path)[0] in REDIRECTS, ask(path)[1]) == (True, used), path
        assert ask("/items/") == (200, used + 5)
        assert ask("/items/7/") == (200, used + 10)
        assert ask("/items", "HEAD")[1] == used + 10
        # A spelling that a route serves, and what is no redirect.
        assert ask("/both") == (200, used + 15)
        assert ask("/both/") == (200, used + 20)
        assert ask("/items/x") == (404, used + 25)
        assert ask("/items//") != (200, used + 25)
        assert (ask("/items%2f")[1] or 0) >= used + 30


@pytest.mark.parametrize("kind", ["starlette", "mounted", "fastapi", "included"])
def test_a_router_that_takes_a_slash_off_does_so_for_nothing_D50(kind: str) -> None:
    app = Starlette(routes=[Route("/jobs", endpoint)])
    with asking(kind, Starlette(routes=[Mount("/", app)]) if kind == "mounted" else app) as ask:
        assert ask("/jobs/") == (307, 0)
        assert ask("/jobs/", "POST")[0] == 405


def test_redirects_are_charged_where_rules_name_hosts_D50() -> None:
    there = Starlette(routes=[Route("/items", endpoint)])
    routes = [Host("api.example", there), Route("/items/", endpoint)]
    with asking("starlette", Starlette(routes=routes)) as ask:
        assert ask("/items", Host="api.example") == (200, 5)
        assert ask("/items", Host="other.example") == (307, 10)


class Slashing:
    """A middleware that adds the slash itself."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope["path"] = "/items/"
        await self.app(scope, receive, send)


def test_a_handler_is_not_reached_by_a_rule_for_a_redirect_D31() -> None:
    app = Starlette(routes=[Route("/items/", endpoint)])
    app.add_middleware(Slashing)
    with asking("starlette", app) as ask:
        assert ask("/items") == (404, 0)
        app.router.redirect_slashes = False
        assert ask("/items") == (200, 5)


def test_a_redirect_below_a_rule_for_every_path_is_not_charged_D50() -> None:
    app = Starlette(routes=[Route("/v1/items/", endpoint)])
    with asking("starlette", app, rules={"* /v1/{path:path}": Rule()}) as ask:
        assert ask("/v1/items") == (307, 0)
    app = Starlette(routes=[Route("/items/", endpoint)])
    app.router.redirect_slashes = False  # Where the router does not redirect, it is charged.
    with asking("starlette", app) as ask:
        assert ask("/items") == (404, 5)
