"""A handler runs only where the charged rule names the matched route (D31 d).

Here a layer between the gate and each framework rewrites the path, as any difference between two
readings of a request would.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.conf import settings
from django.conf.urls.i18n import i18n_patterns
from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.wsgi import WSGIHandler
from django.http import HttpRequest, HttpResponse
from django.test.utils import override_settings
from django.urls import path as django_path
from django.utils.functional import lazy
from django.utils.translation import get_language, override
from fastapi import APIRouter, FastAPI, WebSocket
from flask import Flask
from litestar import Litestar, get, post
from litestar.config.cors import CORSConfig
from litestar.handlers import HTTPRouteHandler
from quart import Quart
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Host, Mount, Route, Router
from starlette.testclient import TestClient
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from werkzeug.test import Client as WsgiClient

from lockgate import PUBLIC, ConfigurationError, Rule, django, litestar, quart
from lockgate.asgi import GateMiddleware
from lockgate.flask import protect
from lockgate.web.audit import ServedRoute
from lockgate.web.starlette_routes import routes_of

from . import driving
from .applications import of_litestar
from .driving import Answer, Bench, Line, websocket_scope

RULES: dict[str, Rule | str] = {"GET /admin": "account:write", "GET /open": PUBLIC}
FRAMEWORKS = (
    "starlette",
    "mounted",
    "fastapi",
    "flask",
    "django",
    "django-asgi",
    "litestar",
    "quart",
)
Ask = Callable[[str], int]
with_front_ends = pytest.mark.skipif(
    not hasattr(FastAPI, "frontend"), reason="This FastAPI serves no front ends."
)


class Rewriting:
    """An ASGI layer that takes ``/open`` for another path."""

    def __init__(self, app: ASGIApp, path: str = "/admin") -> None:
        self.app = app
        self.path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == "/open":
            scope["path"], scope["raw_path"] = self.path, self.path.encode()
        await self.app(scope, receive, send)


def rewriting(app: Any) -> Any:
    """The same for WSGI."""

    def layer(environ: Any, start_response: Any) -> Any:
        if environ["PATH_INFO"] == "/open":
            environ["PATH_INFO"] = "/admin"
        return app(environ, start_response)

    return layer


class Rewritten:
    """The same for Django."""

    def __init__(self, get_response: Any) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> Any:
        if request.path_info == "/open":
            request.path_info = "/admin"
        return self.get_response(request)


def admin_view(_: HttpRequest) -> HttpResponse:
    REACHED.append("admin")
    return HttpResponse("admin")


REACHED: list[str] = []
urlpatterns = [django_path("admin", admin_view), django_path("open", admin_view)]
DJANGO = {
    "ROOT_URLCONF": __name__,
    "ALLOWED_HOSTS": ["*"],
    "MIDDLEWARE": [f"{__name__}.Rewritten", "lockgate.django.RouteMiddleware"],
}


async def admin(_: Request) -> Response:
    REACHED.append("admin")
    return PlainTextResponse("admin")


async def said() -> str:
    REACHED.append("admin")
    return "admin"


def ask_asgi(app: ASGIApp, key: str) -> Ask:
    client = TestClient(app, raise_server_exceptions=False)
    return lambda path: client.get(path, headers={"Authorization": f"Bearer {key}"}).status_code


def ask_wsgi(app: Any, key: str) -> Ask:
    client = WsgiClient(app)
    return lambda path: client.get(path, headers={"Authorization": f"Bearer {key}"}).status_code


def application(framework: str, bench: Bench) -> Any:
    """A protected application with the layer between the gate and its router."""
    app: Any
    layered: Any
    match framework:
        case "starlette" | "mounted" | "fastapi":
            routes: list[Any] = [Route("/admin", admin)]
            if framework == "mounted":
                routes = [Mount("", Starlette(routes=[Mount("/", routes=routes)]))]
            app = FastAPI() if framework == "fastapi" else Starlette(routes=routes)
            if framework == "fastapi":
                app.add_api_route("/admin", said)
            app.add_middleware(Rewriting)
            return GateMiddleware(app, bench.gate, RULES)
        case "flask":
            app = Flask(__name__)
            app.add_url_rule("/admin", view_func=lambda: asyncio.run(said()))
            app.wsgi_app = rewriting(app.wsgi_app)
            return protect(app, bench.gate, rules=RULES)
        case "django":
            return django.protect(WSGIHandler(), bench.gate, rules=RULES)
        case "django-asgi":
            return django.protect(ASGIHandler(), bench.gate, rules=RULES)
        case "litestar":
            layered = litestar.protect(of_litestar([get("/admin")(said)]), bench.gate, rules=RULES)
            layered.app = Rewriting(layered.app)
            return layered
        case _:
            app = Quart(__name__)
            app.add_url_rule("/admin", view_func=said)
            app.asgi_app = Rewriting(app.asgi_app)
            return quart.protect(app, bench.gate, rules=RULES)


@pytest.fixture
def django_settings() -> Iterator[None]:
    if not settings.configured:
        settings.configure()
    with override_settings(**DJANGO):
        yield


@pytest.mark.usefixtures("django_settings")
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_d31_a_route_that_the_rule_is_not_for_is_404(framework: str) -> None:
    REACHED.clear()
    bench = Bench()
    asked = ask_wsgi if framework in {"flask", "django"} else ask_asgi
    ask = asked(application(framework, bench), bench.key("account:write"))
    assert (ask("/admin"), REACHED) == (200, ["admin"])
    bench.told.clear()
    assert (ask("/open"), REACHED) == (404, ["admin"])
    (event,) = [event for event in bench.told if event.name == "route_mismatch"]
    charged = event.fields["charged"], event.fields["needed"]
    assert charged == ("public", "key, scope account:write")


def test_a_host_route_needs_a_rule_for_its_host() -> None:
    """A public rule for / opened the application of another host."""
    bench = Bench()
    inner = Host("admin.example", Starlette(routes=[Route("/", admin)]))
    app = Starlette(routes=[inner, Route("/", admin)])
    client = TestClient(GateMiddleware(app, bench.gate, {"GET /": PUBLIC}))
    assert client.get("/").status_code == 200
    assert client.get("/", headers={"Host": "admin.example"}).status_code == 404
    rules: dict[str, Rule | str] = {"GET /": PUBLIC, "GET admin.example/": "account:write"}
    client = TestClient(GateMiddleware(app, bench.gate, rules))
    assert client.get("/", headers={"Host": "admin.example"}).status_code == 401
    good = {"Host": "admin.example", "Authorization": f"Bearer {bench.key('account:write')}"}
    assert client.get("/", headers=good).status_code == 200


def panels(app: Any) -> Any:
    """An application with its own panel, a panel of each tenant and one of the administrator."""
    app.config["SERVER_NAME"] = "Example.com:8000"
    app.add_url_rule("/panel", "main", lambda: "main", subdomain="")
    app.add_url_rule("/panel", "tenant", lambda tenant: tenant, subdomain="<tenant>")
    app.add_url_rule("/panel", "admin", lambda: "admin", subdomain="admin")
    return app


PANELS: dict[str, Rule | str] = {
    "GET /panel": "jobs:read",
    "GET {tenant}.example.com/panel": Rule("account:write", cost=50),
    "GET admin.example.com/panel": "account:read",
}


@pytest.mark.filterwarnings("ignore:Current server name")
@pytest.mark.parametrize("framework", ["flask", "quart"])
def test_a_subdomain_route_needs_the_rule_for_its_host_below_the_server_name(
    framework: str,
) -> None:
    bench = Bench()
    client: Any
    if framework == "flask":
        flask = panels(Flask("panels", subdomain_matching=True, static_folder=None))
        protect(flask, bench.gate, rules=PANELS, strict=True)
        client = WsgiClient(flask)
    else:
        service = panels(Quart("panels", subdomain_matching=True, static_folder=None))
        quart.protect(service, bench.gate, rules=PANELS)
        client = TestClient(service)

    def ask(key: str, name: str) -> int:
        headers = {"Authorization": f"Bearer {key}", "Host": f"{name}:8000"}
        return int(client.get("/panel", headers=headers).status_code)

    reader, writer = bench.key("jobs:read"), bench.key("account:write")
    assert ask(reader, "example.com") == 200
    assert ask(reader, "shop.example.com") == 403
    assert ask(reader, "shop.x.example.com") == 404
    assert ask(reader, "admin.example.com") == 403
    used = bench.used()
    assert ask(writer, "shop.example.com") == 200
    assert bench.used() == used + 50


def test_django_and_litestar_are_not_protected_without_their_middleware(
    django_settings: None,
) -> None:
    bench = Bench()
    with override_settings(MIDDLEWARE=[]), pytest.raises(ConfigurationError, match="MIDDLEWARE"):
        django.protect(WSGIHandler(), bench.gate)
    with pytest.raises(ConfigurationError, match="RouteMiddleware"):
        litestar.protect(Litestar([], logging_config=None), bench.gate)


@pytest.mark.usefixtures("django_settings")
@pytest.mark.parametrize("handler", [WSGIHandler, ASGIHandler])
def test_a_django_application_without_a_gate_before_it_is_closed(
    handler: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Such as the application in asgi.py where only the application in wsgi.py is protected."""
    REACHED.clear()
    apps.populate(settings.INSTALLED_APPS)
    ask_by: Any = ask_wsgi if handler is WSGIHandler else ask_asgi
    assert (ask_by(handler(), Bench().key("*"))("/admin"), REACHED) == (404, [])
    assert "No gate is before this application" in caplog.text


@pytest.mark.parametrize(
    ("route", "template"),
    [
        ("jobs", "/jobs"),
        ("jobs/<int:id>/", "/jobs/{id}/"),
        ("files/<path:name>", "/files/{name:path}"),
        (r"^jobs/(?P<id>\d+)/$", "/jobs/{id}/"),
        (r"^(?P<rest>.*)$", "/{rest:path}"),
        (r"^api/(jobs|models)/?$", "/api/{x}/"),
        (r"^a/[0-9]{4}/x\.json$", "/a/{x}/x.json"),
        (r"^api/x/<int:id>", "/api/x/{id}"),
        (r"^(?i)Jobs/(?P<a>[^/]+)/(?P<b>.+)$", "/Jobs/{a}/{b:path}"),
        (r"^(?!api)(?P<rest>.*)$", "/{rest:path}"),
    ],
)
def test_a_django_route_is_read_as_a_template(route: str, template: str) -> None:
    assert django.template_of(route) == template


# --- Django: paths that depend on the language ----------------------------------------------

LOCALIZED: dict[str, Any] = {
    "USE_I18N": True,
    "LANGUAGE_CODE": "en",
    "LANGUAGES": [("en", "English"), ("de", "German")],
    "MIDDLEWARE": [
        "django.middleware.locale.LocaleMiddleware",
        "lockgate.django.RouteMiddleware",
    ],
}


def any_page(_: HttpRequest, **__: str) -> HttpResponse:
    return HttpResponse("page")


def localized(prefixed: bool, translated: bool) -> Any:
    """Patterns with the admin view under each language, and a page that takes any path."""
    users: Any = "users"
    if translated:
        users = lazy(lambda: "benutzer" if get_language() == "de" else "users", str)()
    own = i18n_patterns(django_path(users, admin_view), prefix_default_language=prefixed)
    return (*own, django_path("<path:p>", any_page))


@pytest.mark.usefixtures("django_settings")
@pytest.mark.parametrize(
    ("handler", "started", "prefixed", "translated", "english", "german"),
    [
        (WSGIHandler, "en", True, False, "/en/users", "/de/users"),
        (ASGIHandler, "de", False, False, "/users", "/de/users"),
        (WSGIHandler, "de", True, True, "/en/users", "/de/benutzer"),
    ],
)
def test_a_django_view_keeps_its_rule_under_every_language(
    handler: Any, started: str, prefixed: bool, translated: bool, english: str, german: str
) -> None:
    bench = Bench()
    key = bench.key("account:read")
    ask_by: Any = ask_wsgi if handler is WSGIHandler else ask_asgi
    rules: dict[str, Rule | str] = {f"GET {english}": "account:read", "GET /{p:path}": PUBLIC}
    apps.populate(settings.INSTALLED_APPS)  # As get_wsgi_application() does.
    with override_settings(**LOCALIZED), override(started):
        patterns = localized(prefixed, translated)
        with override_settings(ROOT_URLCONF=patterns):
            listed = {route.path for route in django.routes()}
            assert listed == {english, german, "/{p:path}"}
            assert get_language() == started
            ask = ask_by(django.protect(handler(), bench.gate, rules=rules), key)
            assert [ask(english), ask(german), ask("/fr/users")] == [200, 404, 200]
            rules[f"GET {german}"] = "account:read"
            ask = ask_by(django.protect(handler(), bench.gate, rules=rules, strict=True), key)
            assert [ask(english), ask(german)] == [200, 200]
            ask = ask_by(django.protect(handler(), bench.gate, rules=rules), bench.key("jobs:read"))
            assert [ask(english), ask(german)] == [403, 403]


# --- FastAPI: included routers --------------------------------------------------------------

ROOMS: dict[str, Rule | str] = {
    "GET /v1/rooms/{id}": "account:read",
    "GET /v1/rooms/lobby": PUBLIC,
    "GET /v1/late": "account:read",
}


def add_room(router: APIRouter, way: str, path: str) -> None:
    async def room(websocket: WebSocket) -> None:
        REACHED.append("room")
        await websocket.accept()
        await websocket.close()

    if way == "socket":
        router.add_api_websocket_route(path, room)
    elif way == "operation":
        router.add_api_route(path, lambda: REACHED.append("room"))
    else:
        router.add_route(path, admin)


def rooms(way: str) -> APIRouter:
    """A router with the more general route first, so that this route runs for both paths."""
    router = APIRouter()
    add_room(router, way, "/rooms/{id}")
    add_room(router, way, "/rooms/lobby")
    return router


async def ask_room(app: ASGIApp, way: str, path: str) -> int:
    if way != "socket":
        return (await driving.ask(app, path=path)).status
    line = Line([{"type": "websocket.connect"}])
    await app(websocket_scope(path), line.receive, line.send)
    return Answer(line.sent).status


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("way", ["socket", "operation", "route"])
async def test_routes_of_an_included_router_keep_the_check_when_one_is_added(
    way: str, nested: bool
) -> None:
    """FastAPI makes the WebSocket and plain routes of an included router anew at each change."""
    REACHED.clear()
    router, app = rooms(way), FastAPI()
    between = APIRouter()
    between.include_router(router)
    app.include_router(between if nested else router, prefix="/v1")
    guarded = GateMiddleware(app, Bench().gate, ROOMS)
    assert (await ask_room(guarded, way, "/v1/rooms/lobby"), REACHED) == (404, [])
    router.add_api_route("/late", lambda: "late")
    assert (await ask_room(guarded, way, "/v1/rooms/lobby"), REACHED) == (404, [])
    add_room(router, way, "/{late}/{id}")
    assert (await ask_room(guarded, way, "/v1/rooms/lobby"), REACHED) == (404, [])


TWICE: dict[str, Rule | str] = {
    "GET /a/x": PUBLIC,
    "GET /a/{name}": "account:read",
    "GET /{tenant}/x": "account:read",
    "GET /{tenant}/{name}": "account:write",
}


@pytest.mark.parametrize(
    ("prefixes", "statuses"),
    [(("/a", "/{tenant}"), [200, 401, 401, 401]), (("/{tenant}", "/a"), [404, 401, 401, 401])],
)
async def test_the_first_place_of_a_router_that_is_included_twice_decides(
    prefixes: tuple[str, str], statuses: list[int]
) -> None:
    router, app = APIRouter(), FastAPI(openapi_url=None)
    router.add_api_route("/x", lambda: "x")
    router.add_api_route("/{name}", lambda: "name")
    for prefix in prefixes:
        app.include_router(router, prefix=prefix)
    guarded = GateMiddleware(app, Bench().gate, TWICE, strict=True)
    paths = ("/a/x", "/a/y", "/b/x", "/b/y")
    assert [(await driving.ask(guarded, path=path)).status for path in paths] == statuses


async def test_the_places_of_a_route_below_several_hosts_all_decide() -> None:
    bench, routes = Bench(), [Route("/x", admin)]
    app = Starlette(routes=[Host("a.example", Router(routes)), Mount("/", routes=routes)])
    app.add_middleware(Rewriting, "/x")
    rules: dict[str, Rule | str] = {
        "GET a.example/x": PUBLIC,
        "GET /x": "account:read",
        "GET /open": PUBLIC,
    }
    guarded = GateMiddleware(app, bench.gate, rules)
    assert (await driving.ask(guarded, path="/open", headers=[("host", "h")])).status == 404
    assert "route_mismatch" in bench.names()


PAGES: dict[str, Rule | str] = {"GET /v1/{p:path}": "account:read", "GET /open": PUBLIC}


def with_pages(way: str, directory: Path) -> FastAPI:
    """An application with a middleware that rewrites ``/open`` to ``/v1/admin/x``, a page of it."""
    (directory / "x").write_text("page")
    app, router = FastAPI(openapi_url=None), APIRouter()
    if way == "application":
        app.frontend("/v1/admin", directory=directory)
    elif way == "included":
        router.frontend("/admin", directory=directory)
        app.include_router(router, prefix="/v1")
    elif way == "nested":
        router.frontend("/admin", directory=directory)
        between = APIRouter(prefix="/v1")
        between.include_router(router)
        app.include_router(between)
    else:
        mounted = FastAPI(openapi_url=None)
        mounted.frontend("/admin", directory=directory)
        app.mount("/v1", mounted)
    app.add_api_route("/open", lambda: "open")
    app.add_middleware(Rewriting, "/v1/admin/x")
    return app


@with_front_ends
@pytest.mark.parametrize("way", ["application", "included", "nested", "mounted"])
async def test_the_pages_of_a_front_end_are_checked_and_audited(way: str, tmp_path: Path) -> None:
    bench, app = Bench(), with_pages(way, tmp_path)
    if way in {"nested", "application"}:  # Served before a gate stands before it.
        assert (await driving.ask(app, path="/open")).body == b"page"
    guarded = GateMiddleware(app, bench.gate, PAGES, strict=True)
    pages = ServedRoute("GET", "/v1/admin/{path:path}")
    assert pages in routes_of(app)
    assert (await driving.ask(guarded, path="/open")).status == 404
    assert "route_mismatch" in bench.names()
    key = bench.key("account:read")
    assert (await driving.ask(guarded, path="/v1/admin/x", key=key)).body == b"page"
    named = GateMiddleware(app, bench.gate, {"GET /open": PUBLIC}, strict=True)
    with pytest.raises(ConfigurationError, match="No rule names GET /v1/admin/"):
        await driving.ask(named, path="/open")
    # The front end of the longest path decides.
    app = FastAPI(openapi_url=None)
    for path in ("/", "/open"):
        app.frontend(path, directory=tmp_path)
    rules: dict[str, Rule | str] = {"GET /{p:path}": "account:read", "GET /open/{p:path}": PUBLIC}
    guarded = GateMiddleware(app, bench.gate, rules, strict=True)
    assert (await driving.ask(guarded, path="/open/x")).body == b"page"
    assert (await driving.ask(guarded, path="/x")).status == 401


async def live(app: ASGIApp) -> list[Message]:
    """What an application sends from its start to its end."""
    line = Line([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])
    with suppress(ConfigurationError):  # What was sent tells of it.
        await app({"type": "lifespan", "asgi": {}, "state": {}}, line.receive, line.send)
    return line.sent


@pytest.mark.parametrize("below", ["included", "mounted"])
async def test_routes_that_the_application_adds_while_it_starts_are_checked(below: str) -> None:
    REACHED.clear()
    app, router, mounted = FastAPI(openapi_url=None), APIRouter(), Starlette()
    if below == "included":
        app.include_router(router, prefix="/v1")
    else:
        app.mount("/v1", mounted)

    @asynccontextmanager
    async def adding(_: FastAPI) -> AsyncIterator[None]:
        for path in ("/rooms/{id}", "/rooms/lobby"):
            router.add_route(path, admin)
            mounted.add_route(path, admin)
        yield

    app.router.lifespan_context = adding
    guarded = GateMiddleware(app, Bench().gate, ROOMS)
    assert [m["type"] for m in await live(guarded)][:1] == ["lifespan.startup.complete"]
    assert ((await driving.ask(guarded, path="/v1/rooms/lobby")).status, REACHED) == (404, [])


async def test_a_strict_audit_stops_an_application_that_adds_a_route_without_a_rule() -> None:
    closed = list[str]()
    router, app = rooms("route"), FastAPI(openapi_url=None)
    router.add_route("/late", admin)
    app.include_router(router, prefix="/v1")
    if not any(hasattr(route, "effective_candidates") for route in app.routes):
        pytest.skip("This FastAPI copies the routes of an included router.")

    @asynccontextmanager
    async def adding(_: FastAPI) -> AsyncIterator[None]:
        router.add_route("/later", admin)
        try:
            yield
        finally:
            closed.append("closed")

    app.router.lifespan_context = adding
    rules: dict[str, Rule | str] = {**ROOMS, "GET /v1/rooms/{id}": PUBLIC, "GET /v1/late": PUBLIC}
    (told,) = await live(GateMiddleware(app, Bench().gate, rules, strict=True))
    assert told["type"] == "lifespan.startup.failed"
    assert "No rule names GET /v1/later" in told["message"]
    assert closed == ["closed"]


# --- Litestar -------------------------------------------------------------------------------


@pytest.mark.parametrize("turned", [False, True])
def test_litestar_handlers_with_equal_path_templates_keep_their_own_rules(turned: bool) -> None:
    """Litestar runs the GET handler of /x/{p:str} for /x/1/2, once another handler has a tail."""
    bench, reached = Bench(), list[str]()

    @get("/x/{p:str}")
    async def one() -> str:
        reached.append("one")
        return ""

    @post("/x/{p:path}", status_code=200)
    async def tail() -> str:
        return ""

    handlers: list[Any] = [tail, one] if turned else [one, tail]
    service = of_litestar(handlers)
    rules: dict[str, Rule | str] = {
        "GET /x/{p}": "account:read",
        "GET /x/{p:path}": PUBLIC,
        "POST /x/{p:path}": PUBLIC,
    }
    client = TestClient(litestar.protect(service, bench.gate, rules=rules))
    assert (client.get("/x/1/2").status_code, reached) == (404, [])
    assert client.post("/x/1/2").status_code == 200
    assert client.get("/x/1").status_code == 401
    good = {"Authorization": f"Bearer {bench.key('account:read')}"}
    assert client.get("/x/1", headers=good).status_code == 200

    @get(["/x/{p:str}", "/x/{p:path}"])
    async def either() -> str:
        return ""

    # A handler of two paths that are written alike needs the rules of both.
    client = TestClient(litestar.protect(of_litestar([either]), bench.gate, rules=rules))
    assert client.get("/x/1/2").status_code == 404


@pytest.mark.parametrize("turned", [False, True])
async def test_litestar_routes_that_name_a_parameter_differently_are_served(turned: bool) -> None:
    """Litestar tells the names of the route that was added last, for both."""
    bench = Bench()

    @get("/items/{id:int}/{part:str}")
    async def one() -> str:
        return "one"

    @post(["/items/{slug:str}/{section:str}", "/other/{id:int}"], status_code=200)
    async def two() -> str:
        return "two"

    handlers: list[Any] = [two, one] if turned else [one, two]
    service = of_litestar(handlers)
    rules: dict[str, Rule | str] = {
        "GET /items/{id}/{part}": PUBLIC,
        "POST /items/{id}/{part}": "account:write",
        "POST /other/{id}": "account:read",
    }
    guarded = litestar.protect(service, bench.gate, rules=rules, strict=True)
    assert (await driving.ask(guarded, path="/items/1/x")).body == b"one"
    key = bench.key("account:write")
    assert (await driving.ask(guarded, "POST", "/items/a/x", key=key)).body == b"two"
    assert (await driving.ask(guarded, "POST", "/items/a/x")).status == 401
    key = bench.key("account:read")
    assert (await driving.ask(guarded, "POST", "/other/1", key=key)).body == b"two"


@pytest.mark.parametrize(
    ("origin", "wanted"),
    [([("origin", "")], "GET"), ([("origin", ""), ("origin", "https://a")], "")],
)
def test_an_empty_origin_is_no_preflight_and_its_rule_is_charged(
    origin: list[tuple[str, str]], wanted: str
) -> None:
    """Litestar's CORS layer hands such a request on to the handler."""
    bench, reached = Bench(), list[str]()

    @HTTPRouteHandler("/o", http_method=["OPTIONS"], status_code=200)
    async def options() -> str:
        reached.append("options")
        return ""

    service = of_litestar([options], cors_config=CORSConfig(allow_origins=["https://a"]))
    rules: dict[str, Rule | str] = {"OPTIONS /o": "account:read"}
    client = TestClient(litestar.protect(service, bench.gate, rules=rules))
    headers = [*origin, ("access-control-request-method", wanted)]
    assert client.options("/o", headers=headers).status_code == 401
    assert reached == []
