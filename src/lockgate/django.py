"""The Django adapter: a gate before the application, and a check of each view that it resolves.

MIDDLEWARE = [..., "lockgate.django.RouteMiddleware"]  # in the settings, as the last one

application = protect(get_wsgi_application(), gate, {"GET /models": "models:read"})  # in wsgi.py
"""

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from functools import lru_cache, partial
from inspect import unwrap
from typing import Any, Final, cast, overload
from wsgiref.types import StartResponse, WSGIEnvironment

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.conf import settings
from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.wsgi import WSGIHandler
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.urls import URLPattern, URLResolver, get_resolver
from django.urls.converters import get_converters
from django.urls.resolvers import LocalePrefixPattern
from django.utils.translation import override
from starlette.types import ASGIApp, Scope

from . import asgi, wsgi
from .core.access_rule import Rule
from .errors import ConfigurationError, NotFound, Refusal
from .events import logger
from .gate import Gate
from .principal import Principal
from .web.asgi_request import AsgiCaller
from .web.audit import ANY_METHOD, ServedRoute, report, view_of
from .web.guard import PREFLIGHT, Guard
from .web.operations.table import refused
from .web.request import GUARD, PRINCIPAL, RULE, Caller
from .web.shadow import Shadow
from .web.wsgi_request import WsgiCaller, text

__all__ = ["RouteMiddleware", "principal", "protect", "routes"]

_NAME: Final = f"{__name__}.RouteMiddleware"
_CONVERTER: Final = re.compile(r"(?<!\?P)<(?:(\w+):)?(\w+)>")
_IS_REGEX: Final = re.compile(r"[\^$\\(\[]")
_LOOKS: Final = re.compile(r"\(\?(?:[aiLmsux]+|#[^)]*|<?[=!][^()]*)\)")
_GROUP: Final = re.compile(r"\((?:\?:|\?P<(\w+)>)?((?:[^()\\]|\\.)*)\)")
_CLASS: Final = re.compile(r"(\[[^\]]*\]|\\[dwsDWS]|(?<!\\)\.)[*+]?")
_REST: Final = re.compile(r"\{\d+(?:,\d*)?\}|[*+?^$]|\\[AZbB]|\\")
_METHODS: Final = ("get", "post", "put", "patch", "delete")


class RouteMiddleware:
    """Checks that the view which Django resolved is the one whose rule was charged (D31).

    Name it last in ``settings.MIDDLEWARE``. Middleware before it, such as that of
    django-cors-headers, sees CORS preflights; no view does. A view is answered with 404, and an
    ERROR in the log, where no gate is before the application.

    Args:
        get_response: the next layer, which Django gives.
    """

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        self._get_response = get_response
        self.process_view: Callable[..., Any] = _process_view
        # As Django marks it: before Python 3.12 inspect does not see the mark.
        self._awaits = iscoroutinefunction(get_response)  # pyright: ignore[reportDeprecated]
        if self._awaits:
            markcoroutinefunction(self)
            self.process_view = _process_view_async

    def __call__(self, request: HttpRequest) -> Any:
        """Hand a request on, unless it is a preflight."""
        if self._awaits:
            return self._answer(request)
        if _held(request).get(RULE) is PREFLIGHT:
            return _nothing()
        return self._get_response(request)

    async def _answer(self, request: HttpRequest) -> HttpResponseBase:
        if _held(request).get(RULE) is PREFLIGHT:
            return _nothing()
        response: HttpResponseBase = await self._get_response(request)
        return response


@overload
def protect(
    application: WSGIHandler,
    gate: Gate,
    rules: Mapping[str, Rule | str] | None = None,
    *,
    host: str | None = None,
    strict: bool = False,
    shadow: Shadow | None = None,
) -> wsgi.GateMiddleware: ...


@overload
def protect(
    application: ASGIHandler,
    gate: Gate,
    rules: Mapping[str, Rule | str] | None = None,
    *,
    host: str | None = None,
    strict: bool = False,
    shadow: Shadow | None = None,
) -> asgi.GateMiddleware: ...


def protect(
    application: WSGIHandler | ASGIHandler,
    gate: Gate,
    rules: Mapping[str, Rule | str] | None = None,
    *,
    host: str | None = None,
    strict: bool = False,
    shadow: Shadow | None = None,
) -> wsgi.GateMiddleware | asgi.GateMiddleware:
    """Put a gate before a Django application; serve what is returned.

    Views find the caller by :func:`principal`.

    Args:
        application: from ``get_wsgi_application()`` or ``get_asgi_application()``.
        gate: decides.
        rules: by ``"METHOD /path"``, parameters written ``{name}``; see
            :class:`~lockgate.asgi.GateMiddleware`.
        host: the one host that the rules without a host are for; None: every host.
        strict: refuse to start while the audit finds anything: a route that no rule names, a rule
            that names no route.
        shadow: only watch: ``limits``, or ``all``; see :class:`~lockgate.web.guard.Guard`.

    Raises:
        ConfigurationError: the settings do not name :class:`RouteMiddleware`, a rule cannot be, a
            strict audit found something, or the store does not suit the application.
    """
    if _NAME not in settings.MIDDLEWARE:
        raise ConfigurationError(
            f"The application does not check its routes: add {_NAME!r} to the settings' "
            "MIDDLEWARE, as the last one."
        )
    guarded: wsgi.GateMiddleware | asgi.GateMiddleware
    if isinstance(application, ASGIHandler):
        service = cast(ASGIApp, application)
        guarded = asgi.GateMiddleware(service, gate, rules, host=host, shadow=shadow)
        guarded.preflights = service
    else:
        guarded = _WsgiGate(application, gate, rules, host=host, shadow=shadow)
    report(guarded.guard, routes(), strict=strict)
    return guarded


def principal(request: HttpRequest) -> Principal | None:
    """The caller of a view; None on public routes."""
    found: Principal | None = _held(request).get(PRINCIPAL)
    return found


def routes() -> Iterator[ServedRoute]:
    """Every route of the project's URL configuration, under each language of the settings."""
    patterns = get_resolver().url_patterns
    found: dict[tuple[str, Any], None] = {}  # In the order of the configuration.
    if settings.USE_I18N and _translated(patterns):
        for language in (settings.LANGUAGE_CODE, *dict(settings.LANGUAGES)):
            with override(language):
                found |= dict.fromkeys(_walk(patterns, ""))
    else:
        found |= dict.fromkeys(_walk(patterns, ""))
    for template, view in found:
        for method in _methods(view):
            yield ServedRoute(method, template, view=_identity(view, method))


class _WsgiGate(wsgi.GateMiddleware):
    def answer_preflight(
        self, environ: WSGIEnvironment, start_response: StartResponse
    ) -> Iterable[bytes]:
        """Hand a preflight to the application, whose last middleware keeps it from any view."""
        return self.app(environ, start_response)


def _process_view(request: HttpRequest, *_: Any) -> HttpResponse | None:
    held = _held(request)
    guard: Guard | None = held.get(GUARD)
    if guard is None:
        logger.error("No gate is before this application: serve what protect() returns.")
        return _answer_with(NotFound())
    if request.resolver_match is None:
        return None
    caller: Callable[[], Caller] = partial(_wsgi_caller, request)
    if "REQUEST_METHOD" not in held:
        caller = partial(AsgiCaller, cast(Scope, held))
    template = template_of(request.resolver_match.route)
    try:
        guard.verify_route(held[RULE], request.method or "GET", template, caller)
    except Refusal as refusal:
        return _answer_with(refusal)
    return None


def _answer_with(refusal: Refusal) -> HttpResponse:
    reply = refused(refusal)
    return HttpResponse(reply.body, status=reply.status, headers=dict(text(reply.headers)))


def _wsgi_caller(request: HttpRequest) -> Caller:
    """The request as it came: Django writes the path into the environment decoded."""
    path = request.path_info.encode().decode("latin-1")
    return WsgiCaller({**_held(request), "PATH_INFO": path})


async def _process_view_async(request: HttpRequest, *_: Any) -> HttpResponse | None:
    return _process_view(request)


def _nothing() -> HttpResponse:
    response = HttpResponse(status=204)
    del response["Content-Type"]
    return response


def _held(request: HttpRequest) -> dict[str, Any]:
    """The scope or the environment of a request."""
    scope: dict[str, Any] | None = getattr(request, "scope", None)
    return cast(Any, request).environ if scope is None else scope


def _translated(patterns: Iterable[URLPattern | URLResolver]) -> bool:
    """Whether a path depends on the language, by a prefix or by a translation."""
    for one in patterns:
        pattern: Any = one.pattern
        written = getattr(pattern, "_route", getattr(pattern, "_regex", ""))
        if isinstance(pattern, LocalePrefixPattern) or not isinstance(written, str):
            return True
        if isinstance(one, URLResolver) and _translated(one.url_patterns):
            return True
    return False


def _walk(patterns: Iterable[URLPattern | URLResolver], route: str) -> Iterator[tuple[str, Any]]:
    for pattern in patterns:
        part = str(pattern.pattern)
        joined = route + (part.removeprefix("^") if route else part)  # As Django joins them.
        if isinstance(pattern, URLResolver):
            yield from _walk(pattern.url_patterns, joined)
        else:
            yield template_of(joined), pattern.callback


def _methods(view: Any) -> list[str]:
    """The methods that a view answers, where it tells: as a class, or as one of REST framework."""
    actions = getattr(view, "actions", None)
    if actions:
        return sorted(str(name).upper() for name in actions)
    kind = getattr(view, "view_class", None) or getattr(view, "cls", None)
    found = [name.upper() for name in _METHODS if kind is not None and hasattr(kind, name)]
    return found or [ANY_METHOD]


def _identity(view: Any, method: str) -> Hashable:
    """Identify a view below its decorators; one that is made of a class by that and its action.

    The arguments of ``as_view()`` make no other view: the class runs under each of its routes.
    """
    kind = getattr(view, "view_class", None) or getattr(view, "cls", None)
    if kind is None:
        return view_of(unwrap(view))
    actions: dict[str, str] = getattr(view, "actions", None) or {}
    return view_of(kind, actions.get(method.lower()))


@lru_cache(maxsize=4096)
def template_of(route: str) -> str:
    """The path of a Django route, whether it is of ``path()`` or of ``re_path()``.

    Parts of an expression that match more than one text become parameters; one that can match a
    slash becomes ``{name:path}``.
    """
    text = _CONVERTER.sub(_converted, route)
    if _IS_REGEX.search(route):
        text = _LOOKS.sub("", text)
        while (replaced := _GROUP.sub(_grouped, text)) != text:
            text = replaced
        text = _REST.sub("", _CLASS.sub(lambda found: _parameter("x", found[0]), text))
    return "/" + text.lstrip("/")


def _converted(found: re.Match[str]) -> str:
    converter = get_converters().get(found[1] or "str")
    return _parameter(found[2], "" if converter is None else converter.regex)


def _grouped(found: re.Match[str]) -> str:
    return _parameter(found[1] or "x", found[2])


def _parameter(name: str, expression: str) -> str:
    """A parameter for what an expression matches."""
    try:
        tail = ":path}" in expression or re.fullmatch(expression, "a/1") is not None
    except re.error:
        tail = False
    return f"{{{name}:path}}" if tail else f"{{{name}}}"
