"""The dashboard in the URL configuration of a Django project.

urlpatterns = [path("settings/", include(urls(wsgi_dashboard(gate))))]
"""

from collections.abc import Awaitable, Callable
from inspect import iscoroutinefunction
from typing import Any, Final, cast
from wsgiref.types import WSGIApplication

from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, re_path
from django.views.decorators.csrf import csrf_exempt

from ..core.access_rule import Rule
from ..errors import ConfigurationError
from ..web.asgi_types import ASGIApp, Message
from ..web.django_responses import response_of
from ..web.requirements import declare

_OPEN: Final = Rule(public=True, answers_refusals=True)
"""The pages verify sessions themselves, and refuse requests by pages."""


def urls(pages: ASGIApp | WSGIApplication) -> list[URLPattern]:
    """Return the URL patterns of a dashboard, for ``include()`` below a path that ends with "/".

    The pages check the origin and a token of each form themselves, so Django's check of tokens is
    left out for them. The gate that protects the project needs no rule for them.

    Args:
        pages: the value of ``wsgi_dashboard(gate)`` in a project that is served by WSGI, of
            ``dashboard(gate)`` in one that is served by ASGI.

    Raises:
        ConfigurationError: the argument is a gate, not its dashboard.
    """
    if not callable(pages):
        raise ConfigurationError(
            f"urls() takes what wsgi_dashboard(gate) or dashboard(gate) returns, not "
            f"{type(pages).__name__}."
        )
    awaits = iscoroutinefunction(getattr(pages, "__call__", None))  # noqa: B004 - asks for its kind
    view: Callable[..., Any] = _awaited(cast(ASGIApp, pages)) if awaits else _threaded(pages)
    # Django's CommonMiddleware leads there from the bare path.
    declare(view, rule=_OPEN, is_at_mount=True)
    return [re_path(r"^(?P<path>.*)$", view, name="lockgate-dashboard")]


def _threaded(pages: Any) -> Callable[..., HttpResponse]:
    @csrf_exempt
    def show(request: HttpRequest, path: str) -> HttpResponse:
        environ: dict[str, Any] = dict(cast(Any, request).environ)
        # Django has written both into the environment decoded.
        mount = _mount(request, path)
        environ["SCRIPT_NAME"] = _wire(environ.get("SCRIPT_NAME", "") + mount)
        environ["PATH_INFO"] = _wire(request.path_info.removeprefix(mount))
        return response_of(pages, environ, request)

    return show


def _awaited(pages: ASGIApp) -> Callable[..., Awaitable[HttpResponse]]:
    @csrf_exempt
    async def show(request: HttpRequest, path: str) -> HttpResponse:
        sent: list[Message] = []

        async def receive() -> Message:  # Django has received the body before any view.
            return {"type": "http.request", "body": request.body, "more_body": False}

        async def send(message: Message) -> None:
            sent.append(message)

        scope: dict[str, Any] = dict(cast(Any, request).scope)
        scope["root_path"] = scope.get("root_path", "") + _mount(request, path)
        await pages(scope, receive, send)
        start, *rest = sent
        response = HttpResponse(b"".join(one.get("body", b"") for one in rest))
        response.status_code = start["status"]
        del response["Content-Type"]
        for name, value in start["headers"]:
            response[name.decode("latin-1")] = value.decode("latin-1")
        return response

    return show


def _mount(request: HttpRequest, path: str) -> str:
    """Return the path below which a dashboard is mounted, without the prefix of the server."""
    return request.path_info.removesuffix(path).rstrip("/")


def _wire(text: str) -> str:
    """Return a path as WSGI has it: the bytes of UTF-8 as characters."""
    return text.encode("utf-8", "surrogatepass").decode("latin-1")
