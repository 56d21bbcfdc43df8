"""The Litestar adapter: a gate before the application, and a check of each route that it matches.

service = Litestar([models], middleware=[RouteMiddleware])
app = protect(service, gate, {"GET /models": "models:read"})
"""

import re
from collections.abc import Collection, Hashable, Iterator, Mapping
from functools import lru_cache, partial
from types import MethodType
from typing import Any, Final, cast

from litestar import Litestar, types
from litestar.routes import ASGIRoute, HTTPRoute
from starlette.types import ASGIApp, Scope, Send

from .asgi import GateMiddleware
from .core.access_rule import Rule
from .errors import ConfigurationError, Refusal
from .gate import Gate
from .web.asgi_request import AsgiCaller, refuse
from .web.audit import ANY_METHOD, ServedRoute, view_of
from .web.guard import Guard
from .web.request import GUARD, RULE
from .web.shadow import Shadow

__all__ = ["RouteMiddleware", "protect", "routes"]

_NAME: Final = re.compile(r"\{[^}]*\}")
_TEMPLATES: Final = "lockgate.templates"
"""Where an application's state holds the paths of each route, by what the router tells of it."""

_Known = dict[tuple[str, int], dict[str, None]]


class RouteMiddleware:
    """Checks that the route which Litestar matched is the one whose rule was charged (D31).

    Give it to the application: ``Litestar(..., middleware=[RouteMiddleware])``.

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
        guard: Guard | None = scope.get(GUARD)
        if guard is not None:
            method = scope.get("method", "GET")
            try:
                for template in _templates(scope):
                    guard.verify_route(scope[RULE], method, template, partial(AsgiCaller, scope))
            except Refusal as refusal:  # Litestar would answer it with 500.
                await refuse(refusal, scope, send)
                return True
        return False


def protect(
    app: Litestar,
    gate: Gate,
    rules: Mapping[str, Rule | str] | None = None,
    *,
    host: str | None = None,
    strict: bool = False,
    shadow: Shadow | None = None,
) -> GateMiddleware:
    """Put a gate before a Litestar application; serve what is returned.

    Handlers find the caller as ``request.scope["state"]["principal"]``.

    Args:
        app: the application, made with ``middleware=[RouteMiddleware]``.
        gate: decides.
        rules: by ``"METHOD /path"``; see :class:`~lockgate.asgi.GateMiddleware`.
        host: the one host that the rules without a host are for; None: every host.
        strict: refuse to start while the audit finds anything: a route that no rule names, a rule
            that names no route.
        shadow: only watch: ``limits``, or ``all``; see :class:`~lockgate.web.guard.Guard`.

    Raises:
        ConfigurationError: the application has no RouteMiddleware, a rule cannot be, or the
            store would block the event loop.
    """
    used = [getattr(one, "middleware", one) for one in app.middleware]
    if RouteMiddleware not in used:
        raise ConfigurationError(
            "The application does not check its routes: make it by "
            "Litestar(..., middleware=[lockgate.litestar.RouteMiddleware])."
        )
    service = cast(ASGIApp, app)  # Litestar has types of its own for what ASGI says.
    served = partial(routes, app)
    guarded = GateMiddleware(
        service, gate, rules, host=host, strict=strict, shadow=shadow, routes=served
    )
    if app.cors_config is not None:  # Litestar's CORS layer answers before any route is found.
        guarded.preflights = service
    return guarded


def routes(app: Litestar) -> Iterator[ServedRoute]:
    """Every route that an application serves."""
    for route in app.routes:
        path = _path(route)
        if isinstance(route, HTTPRoute):
            for handler in route.route_handlers:
                for method in sorted(set(map(str, handler.http_methods)) - {"HEAD", "OPTIONS"}):
                    yield ServedRoute(method, path, view=_view(handler))
        else:
            method = ANY_METHOD if isinstance(route, ASGIRoute) else "GET"
            yield ServedRoute(method, path, view=_view(route.route_handler))


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
    return f"{route.path.rstrip('/')}/{{path:path}}" if _is_mount(route) else route.path


def _is_mount(route: object) -> bool:
    return isinstance(route, ASGIRoute) and route.route_handler.is_mount
