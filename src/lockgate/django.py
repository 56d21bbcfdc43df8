"""The Django adapter.

Use::

    MIDDLEWARE = [..., "lockgate.django.RouteMiddleware"]  # in the settings, as the last one

    @requires("models:read", cost=2)  # in views.py
    def models(request): ...

    application = protect(get_wsgi_application(), gate, public=["GET /health"])  # in wsgi.py
"""

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from functools import lru_cache, partial, wraps
from inspect import unwrap
from typing import Any, Final, TypeVar, cast, overload
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from . import asgi, wsgi
from .core.access_rule import Rule, SlotUse
from .core.extras import extra
from .core.limits import Limit
from .errors import ConfigurationError, NotFound, Refusal
from .events import logger
from .gate import Gate
from .principal import Caller, Principal
from .web.asgi_exchange import AsgiRequest
from .web.asgi_types import ASGIApp, Receive, Scope, Send
from .web.audit import ANY_METHOD, ServedRoute, view_of
from .web.entry import ENTRY, charged_rule, entry_in, gate_in, principal_of
from .web.guard import PREFLIGHT
from .web.inner_cors import warn_of_inner_cors
from .web.instrumentors import warn_of_blind
from .web.operations.operation import Reply
from .web.operations.table import refused
from .web.protection import NO_GATE, audit, combined_rules
from .web.request import RequestView
from .web.requirements import admitted, declaration, mark, required, watched
from .web.shadow import Shadow
from .web.wsgi_exchange import WsgiRequest, text

with extra("django", "django", "asgiref", "django"):
    from asgiref.sync import iscoroutinefunction, markcoroutinefunction
    from django.conf import settings
    from django.core.handlers.asgi import ASGIHandler
    from django.core.handlers.wsgi import WSGIHandler
    from django.http import HttpRequest, HttpResponse
    from django.http.response import HttpResponseBase
    from django.urls import URLPattern, URLResolver, get_resolver, is_valid_path
    from django.urls.converters import get_converters
    from django.urls.resolvers import LocalePrefixPattern
    from django.utils.functional import Promise
    from django.utils.translation import override

    from .web.django_responses import response_of

__all__ = [
    "Caller",
    "RouteMiddleware",
    "audit",
    "principal",
    "protect",
    "requires",
    "routes",
]

View = TypeVar("View", bound=Callable[..., Any])

_COMMON: Final = "django.middleware.common.CommonMiddleware"
_CORS: Final = "corsheaders.middleware.CorsMiddleware"
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

    Name it last in ``settings.MIDDLEWARE``. Middleware before it, such as the one of
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
        """Hand a request on; answer a preflight, and lockgate's own operations."""
        if self._awaits:
            return self._answer(request)
        rule = charged_rule(_held(request))
        if rule is PREFLIGHT:
            return _nothing()
        if rule is not None and rule.own:
            return _operate(request)
        return self._get_response(request)

    async def _answer(self, request: HttpRequest) -> HttpResponseBase:
        rule = charged_rule(_held(request))
        if rule is PREFLIGHT:
            return _nothing()
        if rule is not None and rule.own:
            return await _operate_async(request)
        response: HttpResponseBase = await self._get_response(request)
        return response


@overload
def protect(
    app: WSGIHandler,
    gate: Gate,
    *,
    public: Iterable[str] = (),
    rules: Mapping[str, Rule | str] | None = None,
    host: str | None = None,
    strict: bool = False,
    shadow: Shadow | None = None,
) -> wsgi.GateMiddleware: ...


@overload
def protect(
    app: ASGIHandler,
    gate: Gate,
    *,
    public: Iterable[str] = (),
    rules: Mapping[str, Rule | str] | None = None,
    host: str | None = None,
    strict: bool = False,
    shadow: Shadow | None = None,
) -> asgi.GateMiddleware: ...


def protect(
    app: WSGIHandler | ASGIHandler,
    gate: Gate,
    *,
    public: Iterable[str] = (),
    rules: Mapping[str, Rule | str] | None = None,
    host: str | None = None,
    strict: bool = False,
    shadow: Shadow | None = None,
) -> wsgi.GateMiddleware | asgi.GateMiddleware:
    """Put a gate before a Django application, closed by default; serve what is returned.

    Views find the caller by :func:`principal`. A gate with sessions also serves lockgate's own
    operations: :class:`RouteMiddleware` answers them, behind all other middleware.

    Args:
        app: from ``get_wsgi_application()`` or ``get_asgi_application()``.
        gate: the gate that admits or refuses each request.
        public: the routes that need no key, each ``"METHOD /path"``.
        rules: by ``"METHOD /path"``, parameters written ``{name}``, what routes require beside what
            their views declare with :func:`requires`: a scope or a :class:`~lockgate.Rule`.
        host: the one host that the rules without a host are for; None: every host.
        strict: refuse to start while the audit finds anything: a route that no rule names, a rule
            that names no route.
        shadow: only watch: ``limits``, or ``all``; see :class:`~lockgate.web.guard.Guard`.

    Raises:
        ConfigurationError: an argument is of the wrong kind, the settings do not name
            :class:`RouteMiddleware`, a rule is malformed, a strict audit found something, or the
            store does not suit the application.
    """
    combined = combined_rules(app, gate, public, rules)
    if not isinstance(app, WSGIHandler | ASGIHandler):  # pyright: ignore[reportUnnecessaryIsInstance] - from a caller
        raise ConfigurationError(
            "lockgate.django.protect takes what get_wsgi_application() or get_asgi_application() "
            f"returns, not {type(app).__name__}."
        )
    if _NAME not in settings.MIDDLEWARE:
        raise ConfigurationError(
            f"The application does not check its routes: add {_NAME!r} to the settings' "
            "MIDDLEWARE, as the last one."
        )
    interface = "asgi" if isinstance(app, ASGIHandler) else "wsgi"
    warn_of_blind(settings.MIDDLEWARE, interface, sentry="django")
    if _CORS in settings.MIDDLEWARE:
        warn_of_inner_cors("django-cors-headers", interface)
    if isinstance(app, ASGIHandler):
        service = cast(ASGIApp, app)
        kind = _PrefixedGate if settings.FORCE_SCRIPT_NAME else asgi.GateMiddleware
        awaited = kind(
            service, gate, combined, host=host, strict=strict, shadow=shadow, routes=routes
        )
        awaited.preflights = service
        awaited.guard.redirects = _only_redirects
        awaited.start()
        return awaited
    guarded = _WsgiGate(app, gate, combined, host=host, strict=strict, shadow=shadow, routes=routes)
    guarded.guard.redirects = _only_redirects
    guarded.start()
    return guarded


def requires(
    scope: str | None = None,
    *,
    cost: int = 1,
    slot: SlotUse = False,
    limits: Iterable[Limit] = (),
) -> Callable[[View], View]:
    """Decorate a view, or a method of a class of views, with what a caller must bring.

    The declaration is a rule of the gate before the application, so a refused request never reaches
    Django.

    Args:
        scope: the scope that a key needs; None: any key will do.
        cost: the units that the request takes from each window; 0: no window refuses it.
        slot: whether the request holds a slot for concurrent jobs until it is answered whole.
        limits: named limits that the request is charged for as well (D40).

    Raises:
        ConfigurationError: the scope is no exact scope, the cost is less than 0, or the limits do
            not fit together.
    """
    rule = Rule(scope, cost=cost, slot=slot, limits=limits)

    def decorate(view: View) -> View:
        def check(args: tuple[object, ...]) -> HttpResponse | None:
            request = next(arg for arg in args if hasattr(arg, "path_info"))
            held = _held(cast(HttpRequest, request))
            try:
                if not watched(held):
                    admitted(rule, held, view)
            except Refusal as refusal:
                caller = _caller_of(cast(HttpRequest, request), held)
                return _answer_with(refused(refusal, gate_in(held), caller()))
            return None

        @wraps(view)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            return check(args) or view(*args, **kwargs)

        @wraps(view)
        async def guarded_async(*args: Any, **kwargs: Any) -> Any:
            return check(args) or await view(*args, **kwargs)

        chosen = guarded_async if iscoroutinefunction(view) else guarded  # pyright: ignore[reportDeprecated]
        mark(view, chosen, rule)
        return cast(View, chosen)

    return decorate


def principal(request: HttpRequest) -> Principal | None:
    """The caller of a view; None on public routes."""
    return principal_of(_held(request))


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
        bare = template.removesuffix("/{path:path}") if declaration(view).is_at_mount else ""
        for path in filter(None, (template, bare)):
            for method in _methods(view):
                rule, identity = _required(view, method), _identity(view, method)
                yield ServedRoute(method, path, None, rule, identity)


class _PrefixedGate(asgi.GateMiddleware):
    """A gate before a Django application with ``FORCE_SCRIPT_NAME``.

    Under ASGI, Django takes that prefix off a path in place of the server's ``root_path``; under
    WSGI the server has split the path already.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["root_path"] = settings.FORCE_SCRIPT_NAME
        await super().__call__(scope, receive, send)


class _WsgiGate(wsgi.GateMiddleware):
    def answer_preflight(
        self, environ: WSGIEnvironment, start_response: StartResponse
    ) -> Iterable[bytes]:
        """Hand a preflight to the application, whose last middleware keeps it from any view."""
        return self.app(environ, start_response)


def _only_redirects(request: RequestView) -> bool:
    """Whether no view is at a path, and ``CommonMiddleware`` redirects it to one with a slash."""
    path = request.path
    if not settings.APPEND_SLASH or path.endswith("/") or _COMMON not in settings.MIDDLEWARE:
        return False
    found: Any = not is_valid_path(path) and is_valid_path(f"{path}/")
    return bool(found) and getattr(found.func, "should_append_slash", True)


def _process_view(request: HttpRequest, *_: Any) -> HttpResponse | None:
    held = _held(request)
    entry = entry_in(held)
    if entry is None:
        logger.error(NO_GATE)
        return _answer_with(refused(NotFound(), None, None))
    if request.resolver_match is None:
        return None
    caller = _caller_of(request, held)
    template = template_of(request.resolver_match.route)
    try:
        entry.guard.verify_route(entry.rule, request.method or "GET", template, caller)
    except Refusal as refusal:
        return _answer_with(refused(refusal, entry.gate, caller()))
    return None


def _caller_of(request: HttpRequest, held: Mapping[str, Any]) -> Callable[[], RequestView]:
    """Return a function that returns the view of a request."""
    if "REQUEST_METHOD" in held:
        return partial(_wsgi_caller, request)
    return partial(AsgiRequest, cast(Scope, held))


@lru_cache(maxsize=8)
def _wsgi_operations(gate: Gate) -> WSGIApplication:
    return wsgi.operations(gate)


@lru_cache(maxsize=8)
def _asgi_operations(gate: Gate) -> ASGIApp:
    return asgi.operations(gate)


def _operate(request: HttpRequest) -> HttpResponse:
    environ = _held(request)
    return response_of(_wsgi_operations(environ[ENTRY].gate), environ, request)


async def _operate_async(request: HttpRequest) -> HttpResponse:
    scope = _held(request)

    async def read() -> bytes:
        return request.body  # Django has received it before any middleware.

    return _answer_with(await asgi.reply_of(_asgi_operations(scope[ENTRY].gate), scope, {}, read))


def _answer_with(reply: Reply) -> HttpResponse:
    return HttpResponse(reply.body, status=reply.status, headers=dict(text(reply.headers)))


def _wsgi_caller(request: HttpRequest) -> RequestView:
    """The request as it came: Django writes the path into the environment decoded."""
    path = request.path_info.encode().decode("latin-1")
    return WsgiRequest({**_held(request), "PATH_INFO": path})


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
        lazy = any(isinstance(value, Promise) for value in vars(one.pattern).values())
        if lazy or isinstance(one.pattern, LocalePrefixPattern):
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
    if actions := _actions(view):
        return sorted(name.upper() for name in actions)
    kind = getattr(view, "view_class", None) or getattr(view, "cls", None)
    found = [name.upper() for name in _METHODS if kind is not None and hasattr(kind, name)]
    return found or [ANY_METHOD]


def _required(view: Any, method: str) -> Rule | None:
    """The rule that a view declares: of a view set of REST framework, the rule of its action."""
    if (rule := required(view, method)) is not None:
        return rule
    return required(getattr(view, "cls", None), method, _actions(view).get(method.lower()))


def _actions(view: Any) -> dict[str, str]:
    """The names of a view set's methods, by the HTTP methods that they answer."""
    found: dict[str, str] | None = getattr(view, "actions", None)
    return found or {}


def _identity(view: Any, method: str) -> Hashable:
    """Identify a view below its decorators; a view of a class by the class and its action.

    The arguments of ``as_view()`` make no other view: the class runs under each of its routes.
    """
    kind = getattr(view, "view_class", None) or getattr(view, "cls", None)
    if kind is None:
        return view_of(unwrap(view))
    return view_of(kind, _actions(view).get(method.lower()))


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
