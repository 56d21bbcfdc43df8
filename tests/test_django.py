"""The Django adapter below a path prefix: a setting of Django's, of the server, or a mount."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings
from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.wsgi import WSGIHandler
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.test.utils import override_settings
from django.urls import clear_script_prefix
from django.urls import path as django_path
from starlette.applications import Starlette
from starlette.routing import Mount
from werkzeug.test import Client

from lockgate import PUBLIC, django

from .web.driving import Bench
from .web.serving import exchange, served, status_of

PREFIX = "/shop"


@pytest.fixture(autouse=True)
def script_prefix() -> Iterator[None]:
    """Django keeps the prefix of a thread's latest request, also for the tests of other files."""
    yield
    clear_script_prefix()


@django.requires("models:read")
def models(request: HttpRequest) -> HttpResponse:
    return HttpResponse(f"{request.path} {request.path_info}")


def health(_: HttpRequest) -> HttpResponse:
    return HttpResponse("ok")


@django.requires("models:read")
def parts(_: HttpRequest, name: str) -> StreamingHttpResponse:
    return StreamingHttpResponse(iter([name, " in parts"]))


urlpatterns = [
    django_path("parts/<str:name>", parts),
    django_path("models", models),
    django_path("health", health),
]
DJANGO = {
    "ROOT_URLCONF": __name__,
    "ALLOWED_HOSTS": ["*"],
    "MIDDLEWARE": ["lockgate.django.RouteMiddleware"],
}
RULES = {"GET /health": PUBLIC}


@pytest.fixture
def forced() -> Iterator[None]:
    """Django with ``FORCE_SCRIPT_NAME``."""
    yield from configured(FORCE_SCRIPT_NAME=PREFIX)


@pytest.fixture
def plain() -> Iterator[None]:
    """Django without it."""
    yield from configured()


def configured(**more: Any) -> Iterator[None]:
    if not settings.configured:
        settings.configure()
    with override_settings(**DJANGO, **more):
        yield


def protected(bench: Bench, handler: Any = ASGIHandler) -> Any:
    return django.protect(handler(), bench.gate, rules=RULES)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def statuses(address: tuple[str, int], bench: Bench, path: str) -> list[int]:
    """Return the statuses without a key, with a key that lacks the scope, and with a good one."""
    found: list[int] = []
    for key in (None, bench.key("jobs:read"), bench.key("models:read")):
        credential = "" if key is None else f"Authorization: Bearer {key}\r\n"
        request = f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{credential}\r\n"
        found.append(status_of(exchange(address, request.encode())))
    return found


def assert_guarded_below(address: tuple[str, int], bench: Bench, prefix: str) -> None:
    assert statuses(address, bench, f"{prefix}/models") == [401, 403, 200]
    assert statuses(address, bench, f"{prefix}/health") == [200, 200, 200]
    assert statuses(address, bench, f"{prefix}/api/v1/account/rate-limits")[0] == 401


@pytest.mark.usefixtures("forced")
def test_a_view_has_its_rule_below_a_forced_script_name(bench: Bench) -> None:
    """Whether the proxy keeps the prefix or strips it; what only begins like it is closed."""
    with served(protected(bench)) as address:
        for prefix in (PREFIX, ""):
            assert_guarded_below(address, bench, prefix)
        for path in ("/shophealth", "/x/shop/health", "//shop/health"):
            assert statuses(address, bench, path) == [401, 404, 404], path


@pytest.mark.usefixtures("forced")
def test_the_forced_script_name_goes_before_the_root_path_of_the_server(bench: Bench) -> None:
    with served(protected(bench), root_path="/elsewhere") as address:
        # The server puts its prefix before the path, and Django finds no view there.
        assert statuses(address, bench, "/models")[2] == 404
        assert statuses(address, bench, "/shop/health")[0] == 401


@pytest.mark.usefixtures("plain")
def test_a_view_has_its_rule_below_the_root_path_of_the_server_and_where_django_is_mounted(
    bench: Bench,
) -> None:
    with served(protected(bench), root_path=PREFIX) as address:
        assert_guarded_below(address, bench, "")
    with served(Starlette(routes=[Mount(PREFIX, protected(bench))])) as address:
        assert_guarded_below(address, bench, PREFIX)


@pytest.mark.usefixtures("forced")
def test_a_wsgi_server_tells_the_path_without_the_forced_script_name(bench: Bench) -> None:
    client = Client(protected(bench, WSGIHandler))
    headers: dict[str, Any] = {"Authorization": f"Bearer {bench.key('models:read')}"}
    answer = client.get("/models", base_url=f"http://x{PREFIX}", headers=headers)
    assert (answer.status_code, answer.text) == (200, "/shop/models /models")


@pytest.mark.usefixtures("plain")
def test_a_view_streams_below_a_path_outside_of_ascii(bench: Bench) -> None:
    """Django writes the path of a WSGI environment decoded."""
    client = Client(protected(bench, WSGIHandler))
    bearer = {"Authorization": f"Bearer {bench.key('models:read')}"}
    found = client.get("/parts/%C5%BC", headers=bearer)
    assert (found.status_code, found.text) == (200, "ż in parts")
