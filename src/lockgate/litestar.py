"""The Litestar adapter.

Use::

    @get("/models", guards=[requires("models:read", cost=2)])
    async def models() -> ...

    service = Litestar([models], middleware=[RouteMiddleware])
    app = protect(service, gate, public=["GET /health"])
"""

import re
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Iterator, Mapping
from functools import lru_cache, partial
from types import MethodType
from typing import Any, Final, cast

from .asgi import GateMiddleware, operation_apps, reply_of
from .core.access_rule import Rule, SlotUse
from .core.extras import extra
from .core.limits import Limit
from .errors import ConfigurationError, NotFound, Refusal
from .events import logger
from .gate import Gate
from .principal import Caller
from .web.asgi_exchange import AsgiRequest, refuse
from .web.asgi_types import ASGIApp, Scope, Send
from .web.audit import ANY_METHOD, ServedRoute, view_of
from .web.disconnects import cancel_on_disconnect
from .web.entry import entry_in, gate_in
from .web.inner_cors import warn_of_inner_cors
from .web.instrumentors import warn_of_blind
from .web.operations.operation import Reply
from .web.operations.table import endpoints, refused
from .web.protection import NO_GATE, audit, combined_rules, public_documents
from .web.requirements import admitted, declaration, declare, watched
from .web.shadow import Shadow
from .web.wsgi_exchange import text

with extra("litestar", "litestar"):
    from litestar import Litestar, Request, Response, types
    from litestar import route as http_route
    from litestar.connection import ASGIConnection
    from litestar.handlers import BaseRouteHandler, HTTPRouteHandler
    from litestar.routes import ASGIRoute, HTTPRoute

__all__ = [
    "Caller",
    "RouteMiddleware",
    "audit",
    "cancel_on_disconnect",
    "operations",
    "protect",
    "requires",
    "routes",
]

_NAME: Final = re.compile(r"\{[^}]*\}")
_PARAMETER: Final = re.compile(r"\{(\w+)\}")
_CONVERTER: Final = re.compile(r"\{(\w+):(?!path\})\w+\}")
_OPENAPI: Final = ("litestar._openapi.", "litestar.openapi.")
"""The modules of the handlers that serve the OpenAPI document and its pages."""
_TEMPLATES: Final = "lockgate.templates"
"""Where an application's state holds the paths of each route, by what the router tells of it."""

_Known = dict[tuple[str, int], dict[str, None]]


class RouteMiddleware:
    """Checks that the route which Litestar matched is the one whose rule was charged (D31).

    Give it to the application: ``Litestar(..., middleware=[RouteMiddleware])``. A route is answered
    with 404, and an ERROR in the log, where no gate is before the application (G9).

    Args:
        app: the next layer, which Litestar gives.
    """

    def __init__(self, app: types.ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: types.Scope, receive: types.Receive, send: types.Send) -> None:
        """Check one connection."""
        if not await self._refused(cast(Scope, scope), cast(Send, send)):
            await self.app(scope, receive, send)

    async def _refused(self, scope: Scope, send: Send) -> bool:
        entry = entry_in(scope)
        try:
            if entry is None:
                logger.error(NO_GATE)
                raise NotFound
            guard, method = entry.guard, scope.get("method", "GET")
            for template in _templates(scope):
                guard.verify_route(entry.rule, method, template, partial(AsgiRequest, scope))
            handler = scope["route_handler"]
            for rule in _declared(handler):
                if rule is not None and guard.shadow != "all":
                    admitted(rule, scope, handler.handler_name)
        except Refusal as refusal:  # Litestar would answer it with 500.
            await refuse(refusal, scope, send)
            return True
        return False


def protect(
    app: Litestar,
    gate: Gate,
    *,
    public: Iterable[str] = (),
    rules: Mapping[str, Rule | str] | None = None,
    host: str | None = None,
    strict: bool = False,
    shadow: Shadow | None = None,
    docs: bool = True,
) -> GateMiddleware:
    """Put a gate before a Litestar application, closed by default; serve what is returned.

    Handlers find the caller as ``request.scope["state"]["principal"]``, and may raise any
    :class:`~lockgate.errors.Refusal`, unless the application has its own handler for it. A gate
    with sessions also serves lockgate's own operations.

    Args:
        app: the application, made with ``middleware=[RouteMiddleware]``.
        gate: the gate that admits or refuses each request.
        public: the routes that need no key, each ``"METHOD /path"``.
        rules: by ``"METHOD /path"``, parameters written ``{name}``, what routes require beside what
            their handlers declare with :func:`requires`: a scope or a :class:`~lockgate.Rule`.
        host: the one host that the rules without a host are for; None: every host.
        strict: refuse to start while the audit finds anything: a route that no rule names, a rule
            that names no route.
        shadow: only watch: ``limits``, or ``all``; see :class:`~lockgate.web.guard.Guard`.
        docs: whether the OpenAPI document and its pages need no key, where no rule matches their
            path (D31).

    Raises:
        ConfigurationError: an argument is of the wrong kind, the application has no
            RouteMiddleware, a rule is malformed, or the store would block the event loop.
    """
    combined = combined_rules(app, gate, public, rules)
    if not isinstance(app, Litestar):  # pyright: ignore[reportUnnecessaryIsInstance] - from a caller
        raise ConfigurationError(
            f"lockgate.litestar.protect takes a Litestar application, not {type(app).__name__}: "
            "take lockgate.asgi.protect for an application inside other layers."
        )
    used = [getattr(one, "middleware", one) for one in app.middleware]
    if RouteMiddleware not in used:
        raise ConfigurationError(
            "The application does not check its routes: make it by "
            "Litestar(..., middleware=[lockgate.litestar.RouteMiddleware])."
        )
    warn_of_blind([*used, app.asgi_handler], "asgi", sentry="litestar")
    if docs:
        combined |= public_documents(_pages(app), combined)
    handlers = cast(dict[Any, Any], app.exception_handlers)  # pyright: ignore[reportUnknownMemberType] - Litestar's own types
    handlers.setdefault(Refusal, _answer)
    if gate.has_operations and not any(route.gate for route in routes(app)):
        for handler in operations(gate):
            app.register(handler)
    service = cast(ASGIApp, app)  # Litestar has types of its own for what ASGI says.
    served = partial(routes, app)
    guarded = GateMiddleware(
        service, gate, combined, host=host, strict=strict, shadow=shadow, routes=served
    )
    if app.cors_config is not None:  # Litestar's CORS layer answers before any route is found.
        guarded.preflights = service
        warn_of_inner_cors("Litestar's CORSConfig")
    return guarded


def requires(
    scope: str | None = None,
    *,
    cost: int = 1,
    slot: SlotUse = False,
    limits: Iterable[Limit] = (),
) -> Callable[[ASGIConnection[Any, Any, Any, Any], BaseRouteHandler], Awaitable[None]]:
    """Return a Litestar guard: ``guards=[requires("models:read")]`` of a handler or a layer.

    The declaration is a rule of the gate before the application, so a refused request never reaches
    Litestar.

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

    async def check(
        connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler
    ) -> None:
        held = cast(Scope, connection.scope)
        if not (watched(held) or _is_own(handler)):
            admitted(rule, held, handler.handler_name)

    declare(check, rule=rule)
    return check


def operations(gate: Gate) -> list[HTTPRouteHandler]:
    """Return lockgate's own operations under the gate's prefix, for ``Litestar([...])``.

    :func:`protect` adds them to an application that does not have them. They are guarded even
    without it, so they cannot be mounted open.

    Raises:
        ConfigurationError: the gate has no session verifier, so no key could be created.
    """
    apps = operation_apps(gate)
    return [_handler(gate, path, apps[path], [*by]) for path, by in endpoints(gate).items()]


def _handler(gate: Gate, path: str, operation: ASGIApp, methods: list[str]) -> HTTPRouteHandler:
    async def operate(request: Request[Any, Any, Any]) -> Response[bytes]:
        scope = cast(Scope, request.scope)
        return _response(await reply_of(operation, scope, request.path_params, request.body))

    declare(operate, operations_of=gate)
    taken: Any = [*methods, "HEAD"] if "GET" in methods else methods
    template = _PARAMETER.sub(r"{\1:str}", path)
    return http_route(template, http_method=taken, status_code=200, include_in_schema=False)(
        operate
    )


def _answer(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    assert isinstance(error, Refusal), "registered for Refusal"
    scope = cast(Scope, request.scope)
    return _response(refused(error, gate_in(scope), AsgiRequest(scope)))


def _response(reply: Reply) -> Response[bytes]:
    headers = dict(text(reply.headers))
    media_type = headers.pop("content-type", "application/json")
    return Response(reply.body, status_code=reply.status, headers=headers, media_type=media_type)


def routes(app: Litestar) -> Iterator[ServedRoute]:
    """List every route that an application serves."""
    for route in app.routes:
        path = _path(route)
        handlers: list[Any] = (
            list(route.route_handlers) if isinstance(route, HTTPRoute) else [route.route_handler]
        )
        has_head = not isinstance(route, HTTPRoute) or "HEAD" in route.methods
        for handler in handlers:
            if _serves_document(handler) and "{" in path:
                continue  # It answers 404 below the path of the document's pages.
            gate = declaration(handler.fn).operations_of
            for method in _methods(route, handler):
                for rule in _declared(handler):
                    yield ServedRoute(method, path, None, rule, _view(handler), gate, has_head)


def _pages(app: Litestar) -> Iterator[str]:
    """Yield the paths of the OpenAPI document and its pages, but of those with a declaration."""
    for route in app.routes:
        handlers = route.route_handlers if isinstance(route, HTTPRoute) else []
        for handler in filter(_serves_document, handlers):
            if "{" not in route.path and _declared(handler) == [None]:
                yield route.path


def _serves_document(handler: Any) -> bool:
    return str(handler.fn.__module__).startswith(_OPENAPI)


def _methods(route: object, handler: Any) -> list[str]:
    if isinstance(route, HTTPRoute):
        return sorted(set(map(str, handler.http_methods)) - {"HEAD", "OPTIONS"})
    return [ANY_METHOD if isinstance(route, ASGIRoute) else "GET"]


def _declared(handler: Any) -> list[Rule | None]:
    """Return the rules that the guards of a handler declare; [None]: there are none.

    An operation of lockgate's has its own rule, whatever the guards of the application declare.
    """
    if _is_own(handler):
        return [None]
    rules = [declaration(guard).rule for guard in handler.resolve_guards()]
    return [rule for rule in rules if rule is not None] or [None]


def _is_own(handler: Any) -> bool:
    return declaration(handler.fn).operations_of is not None


def _view(handler: Any) -> Hashable:
    """Identify a handler by its function, and by the class of its controller."""
    function = handler.fn
    if isinstance(function, MethodType):
        return view_of(function.__func__, type(function.__self__))
    return view_of(function)


def _templates(scope: Scope) -> Collection[str]:
    """The path of the route that Litestar matched, or several where it cannot be told.

    Litestar writes ``/x/{p:str}`` and ``/x/{p:path}`` alike, so the handler decides which it is;
    and for routes that differ in the name of a parameter alone it tells the names of one of them.
    """
    app, handler = scope["litestar_app"], scope["route_handler"]
    mounted = getattr(handler, "is_mount", False)
    key = "" if mounted else _unnamed(scope["path_template"]), id(handler)
    known: _Known = app.state.get(_TEMPLATES, {})
    if key not in known:  # The first request, or a route that was added since.
        known = app.state[_TEMPLATES] = _known(app)
    return known[key]


def _known(app: Litestar) -> _Known:
    """The paths of all routes, by what the router tells of a matched one."""
    known: _Known = {}
    for route in app.routes:
        handlers: list[Any] = (
            list(route.route_handlers) if isinstance(route, HTTPRoute) else [route.route_handler]
        )
        # Of a mounted route the router tells nothing that can be used.
        told = "" if _is_mount(route) else _unnamed(route.path_format)
        for handler in handlers:
            known.setdefault((told, id(handler)), {})[_path(route)] = None
    return known


@lru_cache(maxsize=4096)
def _unnamed(template: str) -> str:
    """A path without the names of its parameters."""
    return _NAME.sub("{}", template)


def _path(route: Any) -> str:
    path = f"{route.path.rstrip('/')}/{{path:path}}" if _is_mount(route) else str(route.path)
    return _CONVERTER.sub(r"{\1}", path)


def _is_mount(route: object) -> bool:
    return isinstance(route, ASGIRoute) and route.route_handler.is_mount
