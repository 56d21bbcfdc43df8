"""An application of each framework with a guarded view and a public one, and its client."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from fastapi import FastAPI
from flask import Flask, g
from litestar import Litestar, Request, get
from quart import Quart
from quart import g as quart_g
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.testclient import TestClient
from werkzeug.test import Client

from lockgate import (
    Gate,
    Plan,
    PlanBook,
    asgi,
    fastapi,
    flask,
    litestar,
    quart,
    run,
    starlette,
    wsgi,
)
from tests.gates import flat_gate

View = Callable[[Any], Coroutine[Any, Any, dict[str, str]]]
"""Takes the principal; its answer is the body of the response."""
SCOPE = "models:read"


async def shown(principal: Any) -> dict[str, str]:
    return {"for": principal.key.name}


def with_starlette(
    view: View = shown, scope: str = SCOPE, cost: int = 3, **required: Any
) -> Starlette:
    @starlette.requires(scope, cost=cost, **required)
    async def models(request: Any) -> JSONResponse:
        return JSONResponse(await view(request.state.principal))

    async def health(_: Any) -> JSONResponse:
        return JSONResponse({})

    return Starlette(routes=[Route("/models", models), Route("/health", health)])


def with_fastapi(view: View = shown, scope: str = SCOPE, cost: int = 3, **required: Any) -> FastAPI:
    app = FastAPI()

    @app.get("/models")
    async def models(
        caller: fastapi.Caller = fastapi.requires(scope, cost=cost, **required),
    ) -> dict[str, str]:
        return await view(caller)

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {}

    return app


def with_flask(view: View = shown, scope: str = SCOPE, cost: int = 3, **required: Any) -> Flask:
    app = Flask("service", static_folder=None)

    @app.get("/models")
    @flask.requires(scope, cost=cost, **required)
    def models() -> dict[str, str]:
        return run(view(g.principal))

    @app.get("/health")
    def health() -> dict[str, str]:
        return {}

    return app


def with_quart(view: View = shown, scope: str = SCOPE, cost: int = 3, **required: Any) -> Quart:
    app = Quart("service", static_folder=None)

    @app.get("/models")
    @quart.requires(scope, cost=cost, **required)
    async def models() -> dict[str, str]:
        return await view(quart_g.principal)

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {}

    return app


def with_litestar(
    view: View = shown, scope: str = SCOPE, cost: int = 3, **required: Any
) -> Litestar:
    @get("/models", guards=[litestar.requires(scope, cost=cost, **required)])
    async def models(request: Request[Any, Any, Any]) -> dict[str, str]:
        return await view(request.scope["state"]["principal"])

    @get("/health")
    async def health() -> dict[str, str]:
        return {}

    return of_litestar([models, health])


def of_litestar(handlers: list[Any], **options: Any) -> Litestar:
    """An application of handlers that has lockgate's middleware and, by default, no document."""
    checks: Any = litestar.RouteMiddleware
    given = {"openapi_config": None, "logging_config": None, **options}
    return Litestar(handlers, middleware=[checks], **given)


ADAPTERS: dict[str, tuple[Any, Callable[..., Any]]] = {
    "starlette": (starlette, with_starlette),
    "fastapi": (fastapi, with_fastapi),
    "flask": (flask, with_flask),
    "quart": (quart, with_quart),
    "litestar": (litestar, with_litestar),
}
EVERY = (*ADAPTERS, "asgi", "wsgi")


async def plain_asgi(scope: Any, receive: Any, send: Any) -> None:
    await JSONResponse({"for": scope["lockgate.entry"].principal.key.name})(scope, receive, send)


def plain_wsgi(environ: Any, start_response: Any) -> Any:
    start_response("200 OK", [("Content-Type", "application/json")])
    return [b'{"for": "%s"}' % environ["lockgate.entry"].principal.key.name.encode()]


class Response(NamedTuple):
    """A response, from whichever client."""

    status: int
    headers: dict[str, str]
    text: str

    @property
    def body(self) -> Any:
        return json.loads(self.text)

    @property
    def code(self) -> str:
        return str(self.body.get("code", "in"))

    @property
    def remaining(self) -> str | None:
        return self.headers.get("x-ratelimit-remaining")

    @property
    def told(self) -> tuple[int, str | None, Any]:
        return self.status, self.remaining, self.body


Ask = Callable[..., Response]


def asking(served: Any, *, is_wsgi: bool = False) -> Ask:
    """Return a function that takes a path, headers, and the method and fields of the client."""
    client: Any = Client(served, use_cookies=False) if is_wsgi else TestClient(served)

    def ask(
        path: str, headers: dict[str, str] | None = None, method: str = "GET", **sent: Any
    ) -> Response:
        given = {"method": method, "headers": headers or {}, **sent}
        if is_wsgi:
            answer = client.open(path, buffered=True, **given)
        else:
            answer = client.request(url=path, **given)
        named = {name.lower(): value for name, value in answer.headers.items()}
        return Response(answer.status_code, named, answer.text)

    return ask


def protected(
    framework: str,
    gate: Gate,
    *,
    public: list[str] | None = None,
    make: dict[str, Any] | None = None,
    **options: Any,
) -> tuple[Any, Ask]:
    """Put a gate before an application of a framework, or of none.

    Args:
        framework: one of ``EVERY``.
        gate: the gate.
        public: the public routes, by default that of ``/health``.
        make: arguments of the function that makes the application.
        options: those of ``protect``.
    """
    if framework in ADAPTERS:
        adapter, made = ADAPTERS[framework]
        served = adapter.protect(
            made(**(make or {})),
            gate,
            public=["GET /health"] if public is None else public,
            **options,
        )
    else:
        rules = {"GET /models": SCOPE, **options.pop("rules", {})}
        protect: Any = asgi.protect if framework == "asgi" else wsgi.protect
        served = protect(
            plain_asgi if framework == "asgi" else plain_wsgi, gate, rules=rules, **options
        )
    return served, asking(served, is_wsgi=framework in {"flask", "wsgi"})


def gate_of(rpm: int | None = 100, **options: Any) -> Gate:
    plans = PlanBook([Plan("free", rpm=rpm, rph=None, rpd=None, concurrent=1)])
    return flat_gate("memory://", **{"brand": "acme", "plans": plans, **options})


def bearer(gate: Gate, *scopes: str, **options: Any) -> dict[str, str]:
    """Create a key, and return the header of it."""
    key = run(gate.keys.create("org_1", "a key", scopes or ("*",), **options))
    return {"Authorization": f"Bearer {key.text}"}
