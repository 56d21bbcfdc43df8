"""The applications that are attacked: one for each framework and each way to set it up."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal, NamedTuple
from urllib.parse import unquote

from fastapi import APIRouter, FastAPI, WebSocket

from lockgate import Gate, Rule

from . import guarding
from .handlers import Handler, rules, table

Ran = Callable[[str], None]
"""Records that a handler ran."""

METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


class Application(NamedTuple):
    """One application that is attacked."""

    name: str
    interface: Literal["asgi", "wsgi"]
    handlers: tuple[Handler, ...]
    public: bool
    """Whether a public rule names the catch-all."""
    make: Callable[[Ran], Any]
    guard: Callable[[Any, Gate, Mapping[str, Rule | str]], Any]
    around: Callable[[Any], Any] | None = None
    """What stands outside the gate."""

    @property
    def rules(self) -> dict[str, Rule | str]:
        """The rules of the gate."""
        return rules(self.handlers, public=self.public, hosts=guarding.HOST_RULES)

    def guarded(self, gate: Gate, ran: Ran) -> Any:
        """The application behind a gate, as a server serves it."""
        app = self.guard(self.make(ran), gate, self.rules)
        return self.around(app) if self.around else app

    def bare(self, ran: Ran) -> Any:
        """The application without a gate."""
        return self.make(ran)


# --- raw applications ---------------------------------------------------------------------


def fold(path: str) -> str:
    """A decoded path as the most careless software reads it: everything that D31 (c) names."""
    path = re.sub(r"[\x00-\x1f\x7f]", "", path).lower()
    kept: list[str] = []
    for segment in path.split("/"):
        plain = segment.partition(";")[0]
        if plain == "..":
            del kept[-1:]
        elif plain not in {"", "."}:
            kept.append(plain)
    return "/" + "/".join(kept)


def route(method: str, path: str, *, folding: bool) -> str:
    """The handler for a request, of an application that looks at methods where it must only."""
    if folding:
        path = fold(path)
    if re.fullmatch(r"/api/jobs/[^/]+", path):
        return "cancel" if method.upper() == "DELETE" else "job"
    if path == "/api/jobs":
        return "start" if method.upper() == "POST" else "jobs"
    if path.startswith("/files/"):
        return "upload"
    if path == "/metrics" or path.startswith("/metrics/"):
        return "metrics"
    exact = {
        "/health": "health",
        "/api/models": "models",
        "/api/images": "image",
        "/runs": "run",
        "/api/admin": "admin",
        "/api/reports" if folding else "/api/reports/": "reports",
        "/sub/inner": "inner",
    }
    return exact.get(path, "page")


RAW = (
    *("health", "models", "image", "jobs", "start", "job", "cancel", "run", "admin", "reports"),
    *("upload", "metrics", "inner", "page"),
)


def raw_asgi(ran: Ran, *, folding: bool = False) -> Any:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close"})
        else:
            path = scope["path"]
            if folding:  # Where an encoded slash is a slash, whatever the server made of it.
                path = unquote(scope["raw_path"].decode("latin-1").partition("?")[0])
            name = route(scope["method"], path, folding=folding)
            await _say(name, ran, send)

    return app


def raw_wsgi(ran: Ran, *, folding: bool = False) -> Any:
    def app(environ: Any, start_response: Any) -> Iterable[bytes]:
        path = environ["PATH_INFO"].encode("latin-1").decode("utf-8", "replace")
        name = route(environ["REQUEST_METHOD"], path, folding=folding)
        ran(name)
        start_response("200 OK", [("content-type", "text/plain")])
        return [name.encode()]

    return app


async def _say(name: str, ran: Ran, send: Any) -> None:
    ran(name)
    headers = [(b"content-type", b"text/plain")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": name.encode()})


def metrics_asgi(ran: Ran) -> Any:
    """An application to mount that answers everything, as Prometheus's does."""

    async def app(scope: Any, _: Any, send: Any) -> None:
        if scope["type"] == "http":
            await _say("metrics", ran, send)

    return app


def metrics_wsgi(ran: Ran) -> Any:
    def app(_: Any, start_response: Any) -> Iterable[bytes]:
        ran("metrics")
        start_response("200 OK", [("content-type", "text/plain")])
        return [b"metrics"]

    return app


# --- Starlette and FastAPI ----------------------------------------------------------------

STARLETTE = (
    *("health", "models", "image", "jobs", "start", "job", "cancel", "run", "admin", "reports"),
    *("upload", "metrics", "inner", "panel", "feed", "shown", "changed", "item", "page"),
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
            await _say("run", ran, send)

    panel = Router([Route("/panel", said("panel"))])
    routes = [
        Host("admin.test", panel),
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
            scope = {**scope, "path": _cleaned(scope["path"]), "method": method}
        await self.app(scope, receive, send)


def _cleaned(path: str) -> str:
    """The path in one spelling; that of one route ends with a slash."""
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
    *("upload", "feed", "shown", "changed", "item", "page"),
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
        await _say("inner", ran, send)

    async def feed(socket: Any) -> None:
        ran("feed")
        await socket.accept()
        await socket.close()

    async def run(scope: Any, receive: Any, send: Any) -> None:
        await _say("run", ran, send)

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

    _add_werkzeug(add)

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


def _add_werkzeug(add: Callable[..., None]) -> None:
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
    add("page", "/", *METHODS)
    add("page", "/<path:p>", *METHODS)


# --- Flask --------------------------------------------------------------------------------

FLASK = (
    *("health", "models", "image", "jobs", "start", "job", "cancel", "run", "admin", "reports"),
    *("upload", "metrics", "inner", "shown", "changed", "item", "decorated", "page"),
)


def flask(ran: Ran, *, strict: bool = True, rewriting: bool = False) -> Any:
    from flask import Flask
    from flask.views import MethodView
    from werkzeug.middleware.dispatcher import DispatcherMiddleware

    from lockgate.web.flask import requires

    app = Flask("attacked")
    app.url_map.strict_slashes = strict

    def add(name: str, path: str, *methods: str) -> None:
        def endpoint(**_: object) -> str:
            ran(name)
            return name

        app.add_url_rule(path, f"{name} {path}", endpoint, methods=list(methods or ["GET"]))

    _add_werkzeug(add)

    class View(MethodView):
        def get(self) -> str:
            ran("shown")
            return "shown"

        def post(self) -> str:
            ran("changed")
            return "changed"

    app.add_url_rule("/view", view_func=View.as_view("view"))

    @app.post("/decorated")
    @requires("jobs:write", cost=16)
    def decorated() -> str:
        ran("decorated")
        return "decorated"

    inner = Flask("inner")
    inner.url_map.strict_slashes = strict

    @inner.get("/inner")
    def said_inner() -> str:
        ran("inner")
        return "inner"

    mounts: Any = {"/metrics": metrics_wsgi(ran), "/sub": inner}
    app.wsgi_app = DispatcherMiddleware(app.wsgi_app, mounts)  # type: ignore[method-assign]
    if rewriting:
        app.wsgi_app = _wsgi_rewriting(app.wsgi_app)  # type: ignore[method-assign]
    return app


def _wsgi_rewriting(app: Any) -> Any:
    """Cleans paths and overrides methods, inside the gate, as recipes for Flask do."""

    def rewritten(environ: Any, start_response: Any) -> Any:
        environ["PATH_INFO"] = _cleaned(environ["PATH_INFO"])
        override = environ.get("HTTP_X_HTTP_METHOD_OVERRIDE")
        environ["REQUEST_METHOD"] = override or environ["REQUEST_METHOD"]
        return app(environ, start_response)

    return rewritten


# --- Django -------------------------------------------------------------------------------

DJANGO = (
    *("health", "models", "image", "jobs", "start", "job", "cancel", "run", "admin", "reports"),
    *("upload", "metrics", "inner", "shown", "changed", "secret", "loose", "item", "page"),
)
REST = ("health", "models", "image", "jobs", "start", "page")


@cache
def _django(append_slash: bool) -> Any:
    """Configure Django, once in a process."""
    settings: Any = import_module("django.conf").settings
    settings.configure(
        ROOT_URLCONF="tests.attack.django_urls",
        SECRET_KEY="for attacks only",
        ALLOWED_HOSTS=["*"],
        APPEND_SLASH=append_slash,
        MIDDLEWARE=["django.middleware.common.CommonMiddleware"],
        LOGGING_CONFIG=None,
        REST_FRAMEWORK={
            "DEFAULT_AUTHENTICATION_CLASSES": [],
            "DEFAULT_PERMISSION_CLASSES": [],
            "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
            "UNAUTHENTICATED_USER": None,
        },
    )
    return settings


def django(ran: Ran, interface: str, *, append_slash: bool = False, rest: bool = False) -> Any:
    _django(append_slash)
    urls: Any = import_module("tests.attack.django_urls")
    urls.urlpatterns[:] = urls.rest_patterns(ran) if rest else urls.patterns(ran)
    handler: Any = import_module(f"django.core.{interface}")
    return getattr(handler, f"get_{interface}_application")()


# --- all of them --------------------------------------------------------------------------


def _all() -> Iterable[Application]:
    for public, kind in ((True, ""), (False, "-closed")):

        def one(
            name: str,
            interface: Literal["asgi", "wsgi"],
            handlers: Iterable[str],
            make: Callable[[Ran], Any],
            guard: Callable[..., Any],
            around: Callable[[Any], Any] | None = None,
            public: bool = public,
            kind: str = kind,
        ) -> Application:
            chosen = table(handlers, public=public)
            return Application(name + kind, interface, chosen, public, make, guard, around)

        yield one("asgi", "asgi", RAW, raw_asgi, guarding.asgi)
        yield one("asgi-folding", "asgi", RAW, partial(raw_asgi, folding=True), guarding.asgi)
        yield one("wsgi", "wsgi", RAW, raw_wsgi, guarding.wsgi)
        yield one("wsgi-folding", "wsgi", RAW, partial(raw_wsgi, folding=True), guarding.wsgi)
        yield one("starlette", "asgi", STARLETTE, starlette, guarding.asgi)
        no_redirect = partial(starlette, redirect=False)
        yield one("starlette-no-redirect", "asgi", STARLETTE, no_redirect, guarding.asgi)
        inside = partial(starlette, cors=True)
        yield one("starlette-cors", "asgi", STARLETTE, inside, guarding.asgi)
        outside = cors_outside
        yield one("starlette-below-cors", "asgi", STARLETTE, starlette, guarding.asgi, outside)
        rewriting = partial(starlette, rewriting=True)
        yield one("starlette-rewriting", "asgi", STARLETTE, rewriting, guarding.asgi)
        order = ("health", "item", "newest", "page")
        yield one("starlette-ordered", "asgi", order, ordered, guarding.asgi)
        yield one("fastapi", "asgi", FASTAPI, fastapi, guarding.asgi)
        no_redirect = partial(fastapi, redirect=False)
        yield one("fastapi-no-redirect", "asgi", FASTAPI, no_redirect, guarding.asgi)
        rooted = partial(fastapi, root="/shop")
        yield one("fastapi-rooted", "asgi", FASTAPI, rooted, guarding.asgi)
        yield one("litestar", "asgi", LITESTAR, litestar, guarding.litestar)
        yield one("quart", "asgi", QUART, quart, guarding.quart)
        yield one("quart-loose", "asgi", QUART, partial(quart, strict=False), guarding.quart)
        yield one("flask", "wsgi", FLASK, flask, guarding.flask)
        yield one("flask-loose", "wsgi", FLASK, partial(flask, strict=False), guarding.flask)
        rewriting = partial(flask, rewriting=True)
        yield one("flask-rewriting", "wsgi", FLASK, rewriting, guarding.flask)
        interfaces: tuple[tuple[Literal["asgi", "wsgi"], Any], ...] = (
            ("wsgi", guarding.django_wsgi),
            ("asgi", guarding.django_asgi),
        )
        for interface, guard in interfaces:
            plain = partial(django, interface=interface)
            yield one(f"django-{interface}", interface, DJANGO, plain, guard)
            slashes = partial(django, interface=interface, append_slash=True)
            yield one(f"django-{interface}-slashes", interface, DJANGO, slashes, guard)
            if find_spec("rest_framework"):
                rest = partial(django, interface=interface, rest=True)
                yield one(f"rest-{interface}", interface, REST, rest, guard)


APPLICATIONS = {application.name: application for application in _all()}
