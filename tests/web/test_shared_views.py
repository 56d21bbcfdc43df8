"""A view keeps its rule under every path that a framework serves it at (D31)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import pytest
from django.conf import settings
from django.core.handlers.wsgi import WSGIHandler
from django.http import HttpRequest, HttpResponse
from django.test.utils import override_settings
from django.urls import path as django_path
from django.views import View
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from fastapi import APIRouter, FastAPI
from flask import Flask
from flask.views import MethodView as FlaskView
from litestar import Controller, get
from litestar.static_files import create_static_files_router
from quart import Quart
from quart.views import MethodView as QuartView
from starlette.applications import Starlette
from starlette.endpoints import HTTPEndpoint
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from werkzeug.test import Client

from lockgate import PUBLIC, ConfigurationError, Rule, asgi, django, litestar, quart
from lockgate.flask import audit, protect
from lockgate.web import werkzeug_routes
from lockgate.web.audit import audit_routes, view_of
from lockgate.web.guard import Guard

from .applications import of_litestar
from .driving import Bench, ask

Rules = dict[str, Any]

CATCH_ALL = "GET /{p:path}"
NAMED: Rules = {"GET /models": "models:read", CATCH_ALL: PUBLIC}
TWINS = ("/models.json", "/v2/models")


class Endpoint(HTTPEndpoint):
    async def get(self, _: Request) -> Response:
        return PlainTextResponse("models")


async def say(_: Request) -> Response:
    return PlainTextResponse("models")


async def say_what(_: Request, what: str, among: list[str]) -> Response:
    return PlainTextResponse(f"{what} among {among}")


def of_routes(make: Callable[[], Any]) -> Callable[..., Any]:
    """An application of Starlette that serves a view at three paths."""

    def application(bench: Bench, rules: Rules, **options: Any) -> Any:
        routes = [Route(at, make()) for at in ("/models", *TWINS)]
        return asgi.GateMiddleware(Starlette(routes=routes), bench.gate, rules, **options)

    return application


starlette = of_routes(lambda: say)
class_based = of_routes(lambda: Endpoint)
partials = of_routes(lambda: partial(say_what, what="models", among=[]))


def fastapi(bench: Bench, rules: Rules, **options: Any) -> Any:
    app, router = FastAPI(openapi_url=None), APIRouter()

    @router.get("/models.json")
    @router.get("/models")
    async def models() -> str:
        return "models"

    app.include_router(router)
    app.include_router(router, prefix="/v2")
    return asgi.GateMiddleware(app, bench.gate, rules, **options)


def litestar_app(bench: Bench, rules: Rules, **options: Any) -> Any:
    class Models(Controller):
        @get(["/models", *TWINS])
        async def models(self) -> str:
            return "models"

    return litestar.protect(of_litestar([Models]), bench.gate, rules=rules, **options)


def quart_app(bench: Bench, rules: Rules, **options: Any) -> Any:
    app = Quart("shared")

    @app.get("/models")
    @app.get("/models.json")
    @app.get("/v2/models")
    async def models() -> str:
        return "models"

    quart.protect(app, bench.gate, rules=rules, **options)

    async def connected(scope: Any, receive: Any, send: Any) -> None:
        """The application; Quart waits for the end of the connection beside the view."""
        sent = [await receive()]

        async def then() -> Any:
            return sent.pop() if sent else await asyncio.Event().wait()

        await app(scope, then, send)

    return connected


FRAMEWORKS = pytest.mark.parametrize(
    "framework",
    [starlette, class_based, partials, fastapi, litestar_app, quart_app],
    ids=["starlette", "class", "partial", "fastapi", "litestar", "quart"],
)


class DjangoView(View):
    template = "a"

    def get(self, _: HttpRequest, **__: str) -> HttpResponse:
        return HttpResponse("models")


def django_view(_: HttpRequest, **__: str) -> HttpResponse:
    return HttpResponse("models")


@pytest.mark.parametrize(
    "views",
    [
        [django_view, never_cache(django_view), csrf_exempt(never_cache(django_view))],
        [DjangoView.as_view(), DjangoView.as_view(template="b"), never_cache(DjangoView.as_view())],
    ],
    ids=["function", "class"],
)
def test_a_django_view_keeps_its_rule_below_decorators_and_with_other_arguments(views: Any) -> None:
    bench = Bench()
    if not settings.configured:
        settings.configure()
    paths = zip(("models", "models.json", "v2/models"), views, strict=True)
    patterns = tuple(django_path(at, view) for at, view in paths)
    checks = ["lockgate.django.RouteMiddleware"]
    with override_settings(ROOT_URLCONF=patterns, ALLOWED_HOSTS=["*"], MIDDLEWARE=checks):
        client = Client(django.protect(WSGIHandler(), bench.gate, rules=NAMED))
        assert [client.get(at).status_code for at in ("/models", *TWINS)] == [401, 404, 404]
        key = {"Authorization": f"Bearer {bench.key('models:read')}"}
        assert client.get("/models", headers=key).status_code == 200
        with pytest.raises(ConfigurationError, match="runs the same view"):
            django.protect(WSGIHandler(), bench.gate, rules=NAMED, strict=True)


@FRAMEWORKS
@pytest.mark.parametrize("rules", [NAMED, {"GET /models": "models:read"}], ids=["open", "closed"])
async def test_a_view_runs_by_no_path_without_its_rule(
    framework: Callable[..., Any], rules: Rules
) -> None:
    bench = Bench()
    app = framework(bench, rules)
    weak = bench.key("jobs:read")
    for path in TWINS:
        for method in ("GET", "HEAD"):
            assert (await ask(app, method, path, key=weak)).status in (404, 405)
    assert "route_mismatch" in bench.names()
    assert (await ask(app, path="/models", key=weak)).status == 403
    assert (await ask(app, path="/models", key=bench.key("models:read"))).status == 200


@FRAMEWORKS
async def test_a_path_with_its_own_rule_runs_the_shared_view_by_that_rule(
    framework: Callable[..., Any],
) -> None:
    bench = Bench()
    own = {f"GET {path}": PUBLIC for path in TWINS}
    app = framework(bench, {**NAMED, **own}, strict=False)
    for path in TWINS:
        assert (await ask(app, path=path)).status == 200
    if framework is not starlette:
        return
    # A more general rule that asks for as much is enough, and shadow mode refuses nothing.
    app = framework(
        bench, {"GET /models": Rule("models:read"), CATCH_ALL: Rule("models:read", cost=2)}
    )
    assert (await ask(app, path="/models.json", key=bench.key("models:read"))).status == 200
    assert (await ask(framework(bench, NAMED, shadow="all"), path="/models.json")).status == 200
    assert "route_mismatch" in bench.names()


def flask() -> Flask:
    app = Flask("shared")

    @app.get("/models")
    @app.get("/models.json")
    @app.get("/v2/models")
    def models() -> str:
        return "models"

    return app


def named(*_: str, **__: str) -> None: ...


def test_partials_of_one_function_with_other_arguments_are_other_views() -> None:
    views = {
        view_of(partial(say_what, what=what, among=among))
        for what in ("models", "jobs")
        for among in ([], ["x"])
    }
    assert len(views) == 4
    assert view_of(partial(named, "what", "jobs")) != view_of(partial(named, what="jobs"))
    assert view_of(partial(PlainTextResponse, "ok")) is None


def decorated(view: Any) -> Any:
    @wraps(view)
    def decorator(*args: Any, **kwargs: Any) -> Any:
        return view(*args, **kwargs)

    return decorator


def hidden(view: Any) -> Any:
    def decorator(*args: Any, **kwargs: Any) -> Any:
        return view(*args, **kwargs)

    return decorator


def made_of(
    base: Any, arguments: Any, others: Any, *, once: bool = False, decorators: Any = ()
) -> Any:
    """A class, served under /models and, as another view, under /v2/models."""

    class Models(base):  # type: ignore[misc]
        init_every_request = not once

        def __init__(self, *_: Any) -> None: ...

        def get(self) -> str:
            return "models"

    Models.decorators = list(decorators)
    app: Any = (Flask if base is FlaskView else Quart)("made", static_folder=None)
    app.add_url_rule("/models", view_func=Models.as_view("one", *arguments))
    app.add_url_rule("/v2/models", view_func=Models.as_view("two", *others))
    return app


@pytest.mark.parametrize("base", [FlaskView, QuartView], ids=["flask", "quart"])
@pytest.mark.parametrize(
    ("arguments", "others", "options", "shared"),
    [
        ((), (), {}, True),
        (("a", [1]), ("a", [1]), {}, True),
        (("a", [1]), ("a", [2]), {}, False),
        (("a",), ("b",), {"decorators": [decorated]}, False),
        (("a",), ("a",), {"decorators": [decorated]}, True),
        (("a",), ("b",), {"decorators": [hidden]}, True),
        (("a",), ("b",), {"once": True}, True),
    ],
)
def test_a_class_that_is_made_two_views_of_keeps_its_rule(
    base: Any, arguments: Any, others: Any, options: Any, shared: bool
) -> None:
    """Unless it is given other arguments; where these cannot be seen, the audit tells."""
    routes = werkzeug_routes.routes(made_of(base, arguments, others, **options))
    found = audit_routes(Guard(Bench().gate, NAMED), routes)
    told = [p for p in found.problems if "runs the same view" in p]
    assert len(told) == shared


def test_flask_runs_a_view_by_no_path_without_its_rule_and_the_audit_names_it() -> None:
    rules: Rules = {**NAMED, "GET /static/{name:path}": PUBLIC}
    app = protect(flask(), Bench().gate, rules=rules)
    assert [app.test_client().get(path).status_code for path in TWINS] == [404, 404]
    problems = audit(app).problems
    assert len(problems) == 2
    for path, problem in zip(TWINS, problems, strict=True):
        assert f"GET {path} runs the same view as /models, whose rule it does not have" in problem
    with pytest.raises(ConfigurationError, match="runs the same view"):
        protect(flask(), Bench().gate, rules=NAMED, strict=True)
    made = protect(made_of(FlaskView, (), ()), Bench().gate, rules=NAMED)
    assert made.test_client().get("/v2/models").status_code == 404


async def test_a_framework_serves_static_files_by_one_view_under_several_rules(
    tmp_path: Any,
) -> None:
    (tmp_path / "x").write_text("x")
    bench = Bench()
    pages = [create_static_files_router(f"/{name}", [tmp_path]) for name in ("closed", "open")]
    rules: Rules = {"GET /closed/{p:path}": "models:read", CATCH_ALL: PUBLIC}
    guarded = litestar.protect(of_litestar(pages), bench.gate, rules=rules)
    assert (await ask(guarded, path="/open/x")).status == 200
    assert (await ask(guarded, path="/closed/x")).status == 401
