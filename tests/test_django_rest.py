"""Views and view sets of Django REST framework behind the gate."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest
from django.conf import settings
from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.wsgi import WSGIHandler
from django.test.utils import override_settings
from werkzeug.test import Client

from lockgate import ConfigurationError, Rule, django
from lockgate.web.audit import ANY_METHOD

from .test_django import statuses
from .web.driving import Bench
from .web.serving import served

REST = {
    "DEFAULT_AUTHENTICATION_CLASSES": [],
    "DEFAULT_PERMISSION_CLASSES": [],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "UNAUTHENTICATED_USER": None,
}


@pytest.fixture
def urls() -> Iterator[None]:
    """A URL configuration with a router's view set and a view, which both require a scope."""
    if not settings.configured:
        settings.configure()
    found = ModuleType("rest_urls")
    middleware = ["lockgate.django.RouteMiddleware"]
    with override_settings(
        ROOT_URLCONF=found, ALLOWED_HOSTS=["*"], MIDDLEWARE=middleware, REST_FRAMEWORK=REST
    ):
        vars(found)["urlpatterns"] = rest_patterns()
        yield


def rest_patterns() -> list[Any]:
    views: Any = import_module("rest_framework.views")
    viewsets: Any = import_module("rest_framework.viewsets")
    routers: Any = import_module("rest_framework.routers")
    decorators: Any = import_module("rest_framework.decorators")
    response: Any = import_module("rest_framework.response").Response
    path: Any = import_module("django.urls").path

    class Models(viewsets.ViewSet):  # type: ignore[misc]
        @django.requires("models:read", cost=2)
        def list(self, request: Any) -> Any:
            return response({"at": request.path_info})

        @django.requires("models:read")
        def retrieve(self, request: Any, pk: str) -> Any:
            return response({"id": pk})

        @decorators.action(detail=True, methods=["post"])  # type: ignore[untyped-decorator]
        @django.requires("models:write", cost=3)
        def renderNow(self, request: Any, pk: str) -> Any:
            return response({"id": pk})

        def destroy(self, request: Any, pk: str) -> Any:
            return response({"id": pk})

    @django.requires("models:read", cost=2)
    @decorators.api_view(["GET"])  # type: ignore[untyped-decorator]
    def latest(request: Any) -> Any:
        return response({"at": request.path_info})

    class Health(views.APIView):  # type: ignore[misc]
        @django.requires("models:read", cost=4)
        def get(self, request: Any) -> Any:
            return response({"ok": True})

    router = routers.SimpleRouter(trailing_slash=False)
    router.register("models", Models, basename="models")
    return [*router.urls, path("health", Health.as_view()), path("latest", latest)]


@pytest.mark.usefixtures("urls")
def test_the_audit_sees_what_the_actions_of_a_view_set_require() -> None:
    found = {(route.method, route.path): route.requires for route in django.routes()}
    assert found["GET", "/models"] == Rule("models:read", cost=2)
    assert found["GET", "/models/{pk}"] == Rule("models:read")
    assert found["POST", "/models/{pk}/renderNow"] == Rule("models:write", cost=3)
    assert found["GET", "/health"] == Rule("models:read", cost=4)
    assert found["DELETE", "/models/{pk}"] is None
    assert ANY_METHOD not in {method for method, _ in found}
    with pytest.raises(ConfigurationError, match="No rule names DELETE for"):
        django.protect(WSGIHandler(), Bench().gate, strict=True)


@pytest.mark.usefixtures("urls")
def test_the_root_of_a_default_router_is_named_by_two_rules() -> None:
    """As the guide for teams that move in says."""
    urls: Any = import_module("django.urls")
    router = import_module("rest_framework.routers").DefaultRouter()
    vars(settings.ROOT_URLCONF)["urlpatterns"] = [urls.path("api/", urls.include(router.urls))]
    root = {"* /api/": Rule("models:read"), "* /api/{format}": Rule("models:read")}
    bench = Bench()
    with pytest.raises(ConfigurationError, match="/api/"):
        django.protect(WSGIHandler(), bench.gate, strict=True)
    client = Client(django.protect(WSGIHandler(), bench.gate, rules=root, strict=True))
    good, other = (
        {"Authorization": f"Bearer {bench.key(s)}"} for s in ("models:read", "jobs:read")
    )
    assert [client.get("/api/", headers=given).status_code for given in ({}, other, good)] == [
        *(401, 403, 200)
    ]


@pytest.mark.usefixtures("urls")
def test_the_actions_of_a_view_set_are_guarded_and_charged_under_asgi() -> None:
    bench = Bench()
    app = django.protect(ASGIHandler(), bench.gate)
    with served(app) as address:
        for path in ("/models", "/models/7", "/health", "/latest"):
            assert statuses(address, bench, path) == [401, 403, 200], path


@pytest.mark.usefixtures("urls")
def test_the_actions_of_a_view_set_are_guarded_and_charged_under_wsgi() -> None:
    bench = Bench()
    client = Client(django.protect(WSGIHandler(), bench.gate))
    headers = {"Authorization": f"Bearer {bench.key('models:read', 'models:write')}"}
    first = client.get("/models", headers=headers)
    left = int(first.headers["X-RateLimit-Remaining"])
    assert first.status_code == 200
    for method, path, cost in (
        ("GET", "/models/7", 1),
        ("POST", "/models/7/renderNow", 3),
        ("GET", "/health", 4),
        ("GET", "/latest", 2),
    ):
        answer = client.open(path, method=method, headers=headers)
        assert answer.status_code == 200, (path, answer.text)
        assert int(answer.headers["X-RateLimit-Remaining"]) == left - cost
        left -= cost
