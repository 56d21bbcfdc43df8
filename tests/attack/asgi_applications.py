"""Applications of Starlette, FastAPI, Litestar and Quart."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from fastapi import APIRouter, FastAPI, WebSocket

from .raw_applications import Ran, fold, metrics_asgi, say

METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]

# --- Starlette and FastAPI ----------------------------------------------------------------

STARLETTE = (
    *("health", "models", "image", "jobs", "start", "job", "cancel", "run", "admin", "reports"),
    *("upload", "metrics", "inner", "panel", "counter", "desk", "feed", "shown", "changed", "item"),
    *("page", "front", "lobby", "issue", "sheet"),
)


def starlette(
    ran: Ran, *, redirect: bool = True, cors: bool = False, rewriting: bool = False
) -> Any:
    from starlette.applications import Starlette
    from starlette.endpoints import HTTPEndpoint
    from starlette.middleware import Middleware
    from starlette.middleware.cors import CORSMiddleware
    from starlette.requests import Request
    from starlette.responses import PlainTextResponse
    from starlette.routing import Host, Mount, Route, Router, WebSocketRoute

    def said(name: str) -> Callable[[Request], Any]:
        async def endpoint(_: Request) -> PlainTextResponse:
            ran(name)
            return PlainTextResponse(name)

        return endpoint

    async def feed(socket: WebSocket) -> None:
        ran("feed")
        await socket.accept()
        await socket.close()

    class View(HTTPEndpoint):
        async def get(self, _: Request) -> PlainTextResponse:
            ran("shown")
            return PlainTextResponse("shown")

        async def post(self, _: Request) -> PlainTextResponse:
            ran("changed")
            return PlainTextResponse("changed")

    class Run:
        """An endpoint that is an ASGI application: its route takes every method."""

        async def __call__(self, _scope: Any, _receive: Any, send: Any) -> None:
            await say("run", ran, send)

    routes = [
        Host(
            "admin.test",
            Router(
                [
                    Route("/panel", said("panel")),
                    Route("/desk", said("desk")),
                    Route("/front", said("front")),
                ]
            ),
        ),
        Host("shop.test", Router([Route("/panel", said("counter"))])),
        Route("/health", said("health")),
        Route("/api/models", said("models")),
        Route("/api/images", said("image"), methods=["POST"]),
        Route("/api/jobs", said("jobs")),
        Route("/api/jobs", said("start"), methods=["POST"]),
        Route("/api/jobs/{id:int}", said("job")),
        Route("/api/jobs/{id:int}", said("cancel"), methods=["DELETE"]),
        Route("/runs", Run()),
        Route("/api/admin", said("admin")),
        Route("/api/reports/", said("reports")),
        Route("/files/{name:path}", said("upload")),
        Mount("/metrics", metrics_asgi(ran)),
        Mount("/sub", Starlette(routes=[Route("/inner", said("inner"))])),
        WebSocketRoute("/feed", feed),
        Route("/view", View),
        Route("/items/{id}", said("item")),
        Route("/front", said("lobby")),
        Route("/pages/{year:int}/{month:int}", said("issue")),
        Route("/pages/{name:path}", said("sheet")),
        Route("/{p:path}", said("page"), methods=METHODS),
    ]
    middleware = [_cors(partial(Middleware, CORSMiddleware))] if cors else []
    if rewriting:
        middleware.append(Middleware(_AsgiRewriting))
    app = Starlette(routes=routes, middleware=middleware)
    app.router.redirect_slashes = redirect
    return app


class _AsgiRewriting:
    """Cleans paths and overrides methods, inside the gate."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            override = dict(scope["headers"]).get(b"x-http-method-override")
            method = override.decode() if override else scope["method"]
            scope = {**scope, "path": cleaned(scope["path"]), "method": method}
        await self.app(scope, receive, send)


def cleaned(path: str) -> str:
    """The path in one spelling; one route's path ends with a slash."""
    cleaned = fold(path)
    return f"{cleaned}/" if cleaned in {"/api/reports", "/metrics"} else cleaned


def _cors(middleware: Callable[..., Any]) -> Any:
    return middleware(allow_origins=["https://page.test"], allow_methods=["GET"])


def cors_outside(app: Any) -> Any:
    from starlette.middleware.cors import CORSMiddleware

    return _cors(partial(CORSMiddleware, app))


def ordered(ran: Ran) -> Any:
    """The routes of two handlers match the same path: the first one is taken, whatever is named."""
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import PlainTextResponse
    from starlette.routing import Route

    def said(name: str) -> Callable[[Request], Any]:
        async def endpoint(_: Request) -> PlainTextResponse:
            ran(name)
            return PlainTextResponse(name)

        return endpoint

    return Starlette(
        routes=[
            Route("/health", said("health")),
            Route("/items/{id}", said("item")),
            Route("/items/newest", said("newest")),
            Route("/{p:path}", said("page"), methods=METHODS),
        ]
    )


def fastapi(ran: Ran, *, redirect: bool = True, root: str = "") -> Any:
    app = FastAPI(redirect_slashes=redirect, openapi_url=None, root_path=root)
    admin = APIRouter(prefix="/api")

    def add(to: Any, name: str, path: str, *methods: str) -> None:
        async def endpoint() -> str:
            ran(name)
            return name

        to.add_api_route(path, endpoint, methods=list(methods or ["GET"]))

    add(app, "health", "/health")
    add(app, "models", "/api/models")
    add(app, "image", "/api/images", "POST")
    add(app, "jobs", "/api/jobs")
    add(app, "start", "/api/jobs", "POST")
    add(app, "job", "/api/jobs/{id}")
    add(app, "cancel", "/api/jobs/{id}", "DELETE")
    add(app, "run", "/runs", *METHODS)
    add(admin, "admin", "/admin")
    add(admin, "reports", "/reports/")
    app.include_router(admin)
    add(app, "upload", "/files/{name:path}")
    app.mount("/metrics", metrics_asgi(ran))
    inner = FastAPI(openapi_url=None)
    add(inner, "inner", "/inner")
    app.mount("/sub", inner)

    @app.websocket("/feed")
    async def feed(socket: WebSocket) -> None:
        ran("feed")
        await socket.accept()
        await socket.close()

    add(app, "item", "/items/{id}")
    add(app, "page", "/{p:path}", *METHODS)
    return app


FASTAPI = (
    *("health", "models", "image", "jobs", "start", "job", "cancel", "run", "admin", "reports"),
    *("upload", "metrics", "inner", "feed", "item", "page"),
)

# --- Litestar and Quart -------------------------------------------------------------------

LITESTAR = FASTAPI
QUART = (
    *("health", "models", "image", "jobs", "start", "job", "cancel", "run", "admin", "reports"),
    *("upload", "feed", "shown", "changed", "item", "page", "issue", "sheet"),
)


def litestar(ran: Ran) -> Any:
    litestar: Any = import_module("litestar")
    handlers: Any = import_module("litestar.handlers")

    def said(name: str, path: Any, *methods: str) -> Any:
        async def endpoint() -> str:
            ran(name)
            return name

        endpoint.__name__ = name
        return handlers.route(
            path, http_method=list(methods or ["GET"]), status_code=200, media_type="text/plain"
        )(endpoint)

    async def metrics(scope: Any, receive: Any, send: Any) -> None:
        await metrics_asgi(ran)(scope, receive, send)

    async def inner(scope: Any, receive: Any, send: Any) -> None:
        await say("inner", ran, send)

    async def feed(socket: Any) -> None:
        ran("feed")
        await socket.accept()
        await socket.close()

    async def run(scope: Any, receive: Any, send: Any) -> None:
        await say("run", ran, send)

    any_of = import_module("litestar.types")
    for app in (metrics, inner, run):
        app.__annotations__ = {
            "scope": any_of.Scope,
            "receive": any_of.Receive,
            "send": any_of.Send,
            "return": None,
        }
    feed.__annotations__ = {"socket": litestar.WebSocket, "return": None}
    return litestar.Litestar(
        [
            said("health", "/health"),
            said("models", "/api/models"),
            said("image", "/api/images", "POST"),
            said("jobs", "/api/jobs"),
            said("start", "/api/jobs", "POST"),
            said("job", "/api/jobs/{id:int}"),
            said("cancel", "/api/jobs/{id:int}", "DELETE"),
            handlers.asgi("/runs", copy_scope=True)(run),
            said("admin", "/api/admin"),
            said("reports", "/api/reports/"),
            said("upload", "/files/{name:path}"),
            handlers.asgi("/metrics", is_mount=True, copy_scope=True)(metrics),
            handlers.asgi("/sub/inner", copy_scope=True)(inner),
            handlers.websocket("/feed")(feed),
            said("item", "/items/{id:str}"),
            said("page", ["/", "/{p:path}"], *METHODS),
        ],
        middleware=[import_module("lockgate.litestar").RouteMiddleware],
        openapi_config=None,
        logging_config=None,
    )


def quart(ran: Ran, *, strict: bool = True) -> Any:
    quart: Any = import_module("quart")
    views: Any = import_module("quart.views")
    app = quart.Quart("attacked")
    app.url_map.strict_slashes = strict

    def add(name: str, path: str, *methods: str) -> None:
        async def endpoint(**_: object) -> str:
            ran(name)
            return name

        app.add_url_rule(path, f"{name} {path}", endpoint, methods=list(methods or ["GET"]))

    add_werkzeug(add)

    class View(views.MethodView):  # type: ignore[misc]
        async def get(self) -> str:
            ran("shown")
            return "shown"

        async def post(self) -> str:
            ran("changed")
            return "changed"

    app.add_url_rule("/view", view_func=View.as_view("view"))

    async def feed() -> None:
        ran("feed")
        await quart.websocket.accept()

    app.add_websocket("/feed", "feed", feed)
    return app


def add_werkzeug(add: Callable[..., None]) -> None:
    """The routes that Flask and Quart write alike."""
    add("health", "/health")
    add("models", "/api/models")
    add("image", "/api/images", "POST")
    add("jobs", "/api/jobs")
    add("start", "/api/jobs", "POST")
    add("job", "/api/jobs/<int:id>")
    add("cancel", "/api/jobs/<int:id>", "DELETE")
    add("run", "/runs", *METHODS)
    add("admin", "/api/admin")
    add("reports", "/api/reports/")
    add("upload", "/files/<path:name>")
    add("item", "/items/<id>")
    add("issue", "/pages/<int:year>/<int:month>")
    add("sheet", "/pages/<path:name>")
    add("page", "/", *METHODS)
    add("page", "/<path:p>", *METHODS)
