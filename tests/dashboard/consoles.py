"""Services with a dashboard, one on each framework, behind real servers; and a person at one."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from html import unescape
from types import ModuleType
from typing import Any, cast

import httpx
from django.conf import settings
from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.wsgi import WSGIHandler
from django.http import HttpRequest, HttpResponse
from django.test.utils import override_settings
from django.urls import clear_url_caches
from django.urls import include as django_include
from django.urls import path as django_path
from fastapi import FastAPI
from flask import Flask
from litestar import Litestar
from litestar import get as litestar_get
from quart import Quart
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.types import Receive, Scope, Send
from werkzeug.serving import make_server

from lockgate import Gate, UsageHistory, django, fastapi, flask, litestar, quart, run, starlette
from lockgate.dashboard import dashboard, mount, wsgi_dashboard, wsgi_mount
from lockgate.dashboard.django_urls import urls as django_urls
from lockgate.sessions import Session, SignedCookie
from tests.gates import flat_gate
from tests.web.serving import served

AT = "/settings"
SESSIONS = SignedCookie(["the session secret of the dashboard's tests"])
ADA = Session("org_1", "ada", "ada@example.com")
_TOKEN = re.compile(r'name="form_token" value="([^"]+)"')
_RULES = {"GET /models": "models:read"}
KEY = re.compile(r"acme_live_\w{8}_\w{43}")

Make = Callable[[str], Gate]
"""Makes the gate of a service by its origin."""
Place = Callable[..., AbstractContextManager["Console"]]


def make_gate(origin: str, **fields: Any) -> Gate:
    return flat_gate(
        **{
            "store": "memory://",
            "brand": "acme",
            "peppers": [b"the pepper of the dashboard's tests"],
            "sessions": SESSIONS,
            "public_url": origin,
            "usage_history": UsageHistory(),
            **fields,
        }
    )


class Page:
    """An answer to a person's browser."""

    def __init__(self, answer: httpx.Response) -> None:
        self.answer = answer
        self.status = answer.status_code
        self.html = answer.text
        self.text = unescape(re.sub(r"<[^>]+>", " ", self.html))

    @property
    def token(self) -> str:
        found = _TOKEN.search(self.html)
        assert found, self.text
        return found[1]

    @property
    def key(self) -> str:
        (found,) = {*KEY.findall(self.html)}
        return str(found)

    def sees(self, *texts: str) -> None:
        for text in texts:
            assert text in self.text, self.text


class Console:
    """A service with a dashboard, and a person with a browser."""

    def __init__(self, origin: str, gate: Gate, session: Session | None = ADA) -> None:
        self.origin = origin
        self.gate = gate
        # A server closes an idle connection, or one with an unread body, without saying so.
        apart = httpx.Limits(max_keepalive_connections=0)
        self.client = httpx.Client(base_url=origin, timeout=60, trust_env=False, limits=apart)
        self.sign_in(session)

    def sign_in(self, session: Session | None) -> None:
        self.client.cookies.clear()
        if session is not None:
            self.client.cookies.set("__session", SESSIONS.issue(session))

    def close(self) -> None:
        self.client.close()

    def get(self, path: str, status: int = 200) -> Page:
        page = Page(self.client.get(AT + path))
        assert page.status == status, page.text
        return page

    def post(
        self,
        path: str,
        fields: Mapping[str, Any] | None = None,
        *,
        token: str | None = None,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
    ) -> Page:
        token = self.get("/keys/new").token if token is None else token
        data = {"form_token": token, **(fields or {})}
        sent = {"origin": self.origin, **(headers or {})}
        page = Page(self.client.post(AT + path, data=data, headers=sent))
        assert page.status == status, page.text
        return page

    def create(self, name: str = "a key", **fields: Any) -> str:
        """Create a key on the page for it; return the text of the key."""
        form = {"name": name, "access": "full", "expires": "", **fields}
        return self.post("/keys/new", form, status=201).key

    def id_of(self, text: str) -> str:
        (found,) = run(self.gate.keys.find(text)).keys
        return found.id

    def status_with(self, text: str) -> int:
        """The status of a request to the service with a key."""
        headers = {"authorization": f"Bearer {text}"}
        answer = httpx.get(f"{self.origin}/models", headers=headers, timeout=60, trust_env=False)
        return answer.status_code


async def _models(_: Request) -> Response:
    return PlainTextResponse("models")


def _django_models(_: HttpRequest) -> HttpResponse:
    return HttpResponse("models")


urlpatterns = [django_path("models", _django_models)]
DJANGO = {
    "ROOT_URLCONF": __name__,
    "ALLOWED_HOSTS": ["*"],
    "MIDDLEWARE": ["lockgate.django.RouteMiddleware"],
}


@contextmanager
def _by_asgi(make: Make, build: Callable[[Gate], Any]) -> Iterator[Console]:
    """Serve an application that is built once its origin is known."""
    apps: list[Any] = []
    gates: list[Gate] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            await apps[0](scope, receive, send)
            return
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await gates[0].close()
        await send({"type": "lifespan.shutdown.complete"})

    with served(app) as (host, port):
        origin = f"http://{host}:{port}"
        gate = make(origin)
        gates.append(gate)
        apps.append(build(gate))
        with closing(Console(origin, gate)) as console:
            yield console


@contextmanager
def _by_wsgi(make: Make, build: Callable[[Gate], Any]) -> Iterator[Console]:
    apps: list[Any] = []
    gates: list[Gate] = []

    def app(environ: Any, start_response: Any) -> Any:
        return apps[0](environ, start_response)

    server = make_server("127.0.0.1", 0, app, threaded=True)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    try:
        origin = f"http://127.0.0.1:{server.server_port}"
        gate = make(origin)
        gates.append(gate)
        apps.append(build(gate))
        with closing(Console(origin, gate)) as console:
            yield console
    finally:
        server.shutdown()
        serving.join()
        server.server_close()
        for gate in gates:
            run(gate.close())


def on_starlette(make: Make = make_gate, **options: Any) -> AbstractContextManager[Console]:
    def build(gate: Gate) -> Any:
        routes = [Route("/models", _models), Mount(AT, dashboard(gate, **options))]
        app = Starlette(routes=routes)
        return starlette.protect(app, gate, rules=_RULES, strict=True)

    return _by_asgi(make, build)


def on_fastapi(make: Make = make_gate, **options: Any) -> AbstractContextManager[Console]:
    def build(gate: Gate) -> Any:
        app = FastAPI(openapi_url=None)

        @app.get("/models")
        async def models() -> str:
            return "models"

        app.mount(AT, dashboard(gate, **options))
        return fastapi.protect(app, gate, rules=_RULES, strict=True)

    return _by_asgi(make, build)


def on_flask(make: Make = make_gate, **options: Any) -> AbstractContextManager[Console]:
    def build(gate: Gate) -> Any:
        app = Flask("service", static_folder=None)

        @app.get("/models")
        @flask.requires("models:read")
        def models() -> str:
            return "models"

        flask.protect(app, gate, strict=True)
        served: Any = wsgi_mount(app.wsgi_app, AT, wsgi_dashboard(gate, **options))
        app.wsgi_app = served  # type: ignore[method-assign]
        return app

    return _by_wsgi(make, build)


@contextmanager
def on_django(make: Make = make_gate, **options: Any) -> Iterator[Console]:
    def build(gate: Gate) -> Any:
        app = django.protect(WSGIHandler(), gate, rules=_RULES, strict=True)
        return wsgi_mount(app, AT, wsgi_dashboard(gate, **options))

    if not settings.configured:
        settings.configure()
    with override_settings(**DJANGO), _by_wsgi(make, build) as console:
        yield console


@contextmanager
def in_django_urls(make: Make = make_gate, **options: Any) -> Iterator[Console]:
    def build(gate: Gate) -> Any:
        _include(wsgi_dashboard(gate, **options))
        return django.protect(WSGIHandler(), gate, rules=_RULES, strict=True)

    with _included(), _by_wsgi(make, build) as console:
        yield console


@contextmanager
def in_django_asgi_urls(make: Make = make_gate, **options: Any) -> Iterator[Console]:
    def build(gate: Gate) -> Any:
        _include(dashboard(gate, **options))
        return django.protect(ASGIHandler(), gate, rules=_RULES, strict=True)

    with _included(), _by_asgi(make, build) as console:
        yield console


@contextmanager
def _included() -> Iterator[None]:
    """Use a URL configuration of its own, with the middleware of a new project."""
    if not settings.configured:
        settings.configure()
    layers = [
        "django.middleware.security.SecurityMiddleware",
        "django.middleware.common.CommonMiddleware",
        "django.middleware.csrf.CsrfViewMiddleware",
        "django.middleware.clickjacking.XFrameOptionsMiddleware",
        *DJANGO["MIDDLEWARE"],
    ]
    with override_settings(**{**DJANGO, "ROOT_URLCONF": _URLS, "MIDDLEWARE": layers}):
        yield


def _include(pages: Any) -> None:
    routes = [*urlpatterns, django_path(f"{AT[1:]}/", django_include(django_urls(pages)))]
    cast(Any, _URLS).urlpatterns = routes
    clear_url_caches()


_URLS = ModuleType("urls_with_dashboard")


@contextmanager
def on_django_asgi(make: Make = make_gate, **options: Any) -> Iterator[Console]:
    def build(gate: Gate) -> Any:
        app = django.protect(ASGIHandler(), gate, rules=_RULES, strict=True)
        return mount(app, AT, dashboard(gate, **options))

    if not settings.configured:
        settings.configure()
    with override_settings(**DJANGO), _by_asgi(make, build) as console:
        yield console


def on_litestar(make: Make = make_gate, **options: Any) -> AbstractContextManager[Console]:
    def build(gate: Gate) -> Any:
        @litestar_get("/models", guards=[litestar.requires("models:read")])
        async def models() -> str:
            return "models"

        layers: list[Any] = [litestar.RouteMiddleware]
        service = Litestar([models], openapi_config=None, logging_config=None, middleware=layers)
        app = litestar.protect(service, gate, strict=True)
        return mount(app, AT, dashboard(gate, **options))

    return _by_asgi(make, build)


def on_quart(make: Make = make_gate, **options: Any) -> AbstractContextManager[Console]:
    def build(gate: Gate) -> Any:
        app = Quart("service", static_folder=None)

        @app.get("/models")
        @quart.requires("models:read")
        async def models() -> str:
            return "models"

        quart.protect(app, gate, strict=True)
        served: Any = mount(cast(Any, app.asgi_app), AT, dashboard(gate, **options))
        app.asgi_app = served  # type: ignore[method-assign]
        return app

    return _by_asgi(make, build)


PLACES: Mapping[str, Place] = {
    "starlette": on_starlette,
    "fastapi": on_fastapi,
    "flask": on_flask,
    "django": on_django,
    "django-asgi": on_django_asgi,
    "django-urls": in_django_urls,
    "django-asgi-urls": in_django_asgi_urls,
    "litestar": on_litestar,
    "quart": on_quart,
}
