"""Applications of Starlette, FastAPI, Litestar and Quart."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module
from typing import Any

from fastapi import APIRouter, FastAPI, WebSocket

from .handlers import COMMON, METHODS, routes
from .raw_applications import Ran, fold, metrics_asgi, say

# --- Starlette and FastAPI ----------------------------------------------------------------

STARLETTE = (
    *(*COMMON, "metrics", "inner", "panel", "counter", "desk", "feed", "shown", "changed"),
    *("front", "lobby", "issue", "sheet"),
)


def _opened(ran: Ran) -> Callable[[WebSocket], Any]:
    async def feed(socket: WebSocket) -> None:
        ran("feed")
        await socket.accept()
        await socket.close()

    return feed


def _said(ran: Ran) -> Callable[..., Any]:
    """Make an endpoint of Starlette that says its name."""
    from starlette.requests import Request
    from starlette.responses import PlainTextResponse

    def said(name: str) -> Callable[[Request], Any]:
        async def endpoint(_: Request) -> PlainTextResponse:
            ran(name)
            return PlainTextResponse(name)

        return endpoint

    return said


def starlette(
    ran: Ran, *, redirect: bool = True, cors: bool = False, rewriting: bool = False
) -> Any:
    from starlette.applications import Starlette
    from starlette.endpoints import HTTPEndpoint
    from starlette.middleware import Middleware
    from starlette.middleware.cors import CORSMiddleware
    from starlette.routing import Host, Mount, Route, Router, WebSocketRoute

    said = _said(ran)

    class View(HTTPEndpoint):
        async def get(self, request: Any) -> Any:
            return await said("shown")(request)

        async def post(self, request: Any) -> Any:
            return await said("changed")(request)

    class Run:
        """An endpoint that is an ASGI application: its route takes every method."""

        async def __call__(self, _scope: Any, _receive: Any, send: Any) -> None:
            await say("run", ran, send)

    def below(**paths: str) -> Router:
        return Router([Route(f"/{path}", said(name)) for name, path in paths.items()])

    def plain(names: Iterable[str]) -> list[Route]:
        return [
            Route(path, Run()) if name == "run" else Route(path, said(name), methods=methods)
            for name, path, methods in routes(names, number="{%s:int}")
        ]

    all_routes = [
        Host("admin.test", below(panel="panel", desk="desk", front="front")),
        Host("shop.test", below(counter="panel")),
        *plain(COMMON[:-1]),
        Mount("/metrics", metrics_asgi(ran)),
        Mount("/sub", Starlette(routes=[Route("/inner", said("inner"))])),
        WebSocketRoute("/feed", _opened(ran)),
        Route("/view", View),
        *plain(("lobby", "issue", "sheet", "page")),
    ]
    middleware = [_cors(partial(Middleware, CORSMiddleware))] if cors else []
    if rewriting:
        middleware.append(Middleware(_AsgiRewriting))
    app = Starlette(routes=all_routes, middleware=middleware)
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


ORDERED = ("health", "item", "newest", "page")


def ordered(ran: Ran) -> Any:
    """The routes of two handlers match the same path: the first one is taken, whatever is named."""
    from starlette.applications import Starlette
    from starlette.routing import Route

    written = routes(ORDERED, number="{%s:int}")
    said = _said(ran)
    return Starlette(
        routes=[Route(path, said(name), methods=methods) for name, path, methods in written]
    )


FASTAPI = (*COMMON, "metrics", "inner", "feed")


def fastapi(ran: Ran, *, redirect: bool = True, root: str = "") -> Any:
    app = FastAPI(redirect_slashes=redirect, openapi_url=None, root_path=root)
    inner = FastAPI(openapi_url=None)
    included = APIRouter(prefix="/api")

    def add(to: Any, name: str, path: str, methods: Iterable[str] = ("GET",)) -> None:
        async def endpoint() -> str:
            ran(name)
            return name

        to.add_api_route(path, endpoint, methods=list(methods))

    app.mount("/metrics", metrics_asgi(ran))
    app.mount("/sub", inner)
    add(inner, "inner", "/inner")
    app.websocket("/feed")(_opened(ran))
    for name, path, methods in routes(COMMON, number="{%s}"):
        if name in ("admin", "reports"):
            add(included, name, path.removeprefix("/api"), methods)
        elif name != "page":
            add(app, name, path, methods)
    app.include_router(included)
    add(app, "page", "/{p:path}", METHODS)
    return app


# --- Litestar and Quart -------------------------------------------------------------------

LITESTAR = FASTAPI
QUART = (*COMMON, "feed", "shown", "changed", "issue", "sheet")


def litestar(ran: Ran) -> Any:
    litestar: Any = import_module("litestar")
    handlers: Any = import_module("litestar.handlers")
    types: Any = import_module("litestar.types")

    def said(name: str, path: Any, methods: Iterable[str]) -> Any:
        async def endpoint() -> str:
            ran(name)
            return name

        endpoint.__name__ = name
        return handlers.route(
            path, http_method=list(methods), status_code=200, media_type="text/plain"
        )(endpoint)

    def application(name: str, path: str, **options: bool) -> Any:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            await (say(name, ran, send) if name != "metrics" else metrics(scope, receive, send))

        named = {"scope": types.Scope, "receive": types.Receive, "send": types.Send}
        app.__annotations__ = {**named, "return": None}
        return handlers.asgi(path, copy_scope=True, **options)(app)

    metrics, feed = metrics_asgi(ran), _opened(ran)
    feed.__annotations__ = {"socket": litestar.WebSocket, "return": None}
    plain = routes([name for name in COMMON if name not in ("run", "page")], number="{%s:int}")
    return litestar.Litestar(
        [
            *(
                said(name, path.replace("{id}", "{id:str}"), methods)
                for name, path, methods in plain
            ),
            application("run", "/runs"),
            application("metrics", "/metrics", is_mount=True),
            application("inner", "/sub/inner"),
            handlers.websocket("/feed")(feed),
            said("page", ["/", "/{p:path}"], METHODS),
        ],
        middleware=[import_module("lockgate.litestar").RouteMiddleware],
        openapi_config=None,
        logging_config=None,
    )


def quart(ran: Ran, *, strict: bool = True) -> Any:
    quart: Any = import_module("quart")
    views: Any = import_module("quart.views")
    app = quart.Quart("attacked")

    def said(name: str) -> Any:
        async def endpoint(*_: object, **__: object) -> str:
            ran(name)
            return name

        return endpoint

    async def feed() -> None:
        ran("feed")
        await quart.websocket.accept()

    add_werkzeug(app, views.MethodView, said, strict=strict)
    app.add_websocket("/feed", "feed", feed)
    return app


def add_werkzeug(app: Any, base: Any, said: Callable[[str], Any], *, strict: bool) -> None:
    """Add the routes that Flask and Quart write alike.

    Args:
        app: of one of them.
        base: its class of views.
        said: makes a view that says its name.
        strict: whether a last slash makes another path.
    """
    app.url_map.strict_slashes = strict
    styles = {"number": "<int:%s>", "text": "<%s>", "tail": "<path:%s>"}
    plain = (*COMMON[:-1], "issue", "sheet", "page")
    for name, path, methods in [*routes(plain, **styles), ("page", "/", METHODS)]:
        app.add_url_rule(path, f"{name} {path}", said(name), methods=list(methods))
    view: Any = type("View", (base,), {"get": said("shown"), "post": said("changed")})
    app.add_url_rule("/view", view_func=view.as_view("view"))
