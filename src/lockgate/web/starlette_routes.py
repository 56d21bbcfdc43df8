"""The routes of a Starlette or FastAPI application, and the check of each one that is matched.

Starlette hands a request to ``route.handle``. That attribute is replaced on each route, once, when
the application starts, by a function that compares the rule that the gate charged with the rule
that is named for the route (D31). FastAPI keeps an included router as one route, and makes the
routes in it anew whenever the router changes.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final, NamedTuple

from starlette.applications import Starlette
from starlette.endpoints import HTTPEndpoint
from starlette.routing import (
    BaseRoute,
    Host,
    Match,
    Mount,
    Route,
    Router,
    WebSocketRoute,
    compile_path,
)
from starlette.types import Receive, Scope, Send

from ..core.access_rule import Rule
from ..errors import Refusal
from ..gate import Gate
from .asgi_exchange import AsgiRequest, refuse
from .audit import ServedRoute, view_of
from .entry import ENTRY, entry_in
from .guard import Guard
from .operations.table import endpoints
from .requirements import check_decorators, declaration, required
from .starlette_errors import answer_refusals, starlette_in

_METHODS: Final = ("DELETE", "GET", "OPTIONS", "PATCH", "POST", "PUT")
_LAYERS_AT_MOST: Final = 50
_PORT: Final = re.compile(r":[^{}]*$")
"""What Starlette leaves out of a host template; the colon of a converter stays."""

_Handle = Callable[[Scope, Receive, Send], Awaitable[None]]


class _Place(NamedTuple):
    """One path under which a route is served."""

    path: str
    host: str | None
    methods: tuple[str, ...]
    has_head: bool = True
    """Whether HEAD is answered with GET: Starlette's routes do, FastAPI's do not."""


class _CheckedRoute(NamedTuple):
    """A route that has the check."""

    route: BaseRoute
    places: list[_Place]
    admitted: dict[str, Rule]
    """The usual rule for each method: one that is this very object needs no further look."""


class StarletteRoutes:
    """The routes of a Starlette or FastAPI application behind a gate.

    Args:
        router: the application's.
        application: the application; None: the router serves alone.
    """

    def __init__(self, router: Router, application: Starlette | None) -> None:
        self.router: Final = router
        self.rooted: Final[Any] = application if hasattr(application, "root_path") else None
        """The application, if it may have a root path (FastAPI does)."""
        if application is not None:
            answer_refusals(application)

    @classmethod
    def of(cls, app: object, routes: object) -> "StarletteRoutes | None":
        """Return the routes of the application behind any layers of one; None: it has none.

        Args:
            app: the application, with any layers.
            routes: the Starlette application behind a layer that hides it, or anything else.
        """
        known = routes if isinstance(routes, Starlette) else app
        router = router_in(known)
        return None if router is None else cls(router, starlette_in(known))

    def served(self) -> list[ServedRoute]:
        """Return every route, mounted ones included; see :func:`routes_of`."""
        return list(_served(self.router))

    def serve_operations(self, gate: Gate) -> bool:
        """Return whether there is a route for one of lockgate's operations."""
        return serves_operations(self.router, gate)

    def only_redirects(self, request: AsgiRequest) -> bool:
        """Return whether no route is at a path, and the router redirects to it with a slash more or
        less."""
        return request.scope["type"] == "http" and _only_redirects(self.router, dict(request.scope))

    def checks(self, guard: Guard, changed: Callable[[], None]) -> "RouteChecks":
        """Return the checks of the routes, which are not installed yet."""
        return RouteChecks(guard, self.router, changed)


def routes_of(app: object) -> list[ServedRoute]:
    """Every route of a Starlette or FastAPI application, mounted ones included; else nothing.

    Raises:
        ConfigurationError: a function is served without the decorator ``requires`` that it has
            elsewhere.
    """
    router = router_in(app)
    return [] if router is None else list(_served(router))


def serves_operations(app: object, gate: Gate) -> bool:
    """Return whether a Starlette or FastAPI application has a route for an operation."""
    paths = endpoints(gate)
    return any(route.path in paths and route.gate is not None for route in routes_of(app))


def router_in(app: Any) -> Router | None:
    """The router behind any layers of middleware; None where there is none of Starlette's."""
    for _ in range(_LAYERS_AT_MOST):
        if isinstance(app, Starlette):
            return app.router
        if isinstance(app, Router):
            return app
        app = getattr(app, "app", None)
    return None


def _only_redirects(router: Router, scope: Scope) -> bool:
    for route in router.routes:
        match, child = route.matches(scope)
        if match is not Match.NONE:
            inner = router_in(route.app) if isinstance(route, Mount | Host) else None
            if inner is None or inner.routes is not getattr(route, "routes", None):
                return False
            return _only_redirects(inner, {**scope, **child})
    path: str = scope["path"].removeprefix(scope.get("root_path", ""))
    if not router.redirect_slashes or path == "/":
        return False
    twin = scope["path"].rstrip("/") if path.endswith("/") else f"{scope['path']}/"
    led = {**scope, "path": twin}
    return any(route.matches(led)[0] is not Match.NONE for route in router.routes)


class RouteChecks:
    """Checks, on each route of an application, that the rule charged is the route's.

    Args:
        guard: charged the request.
        router: the application's.
        changed: is called before a request goes on to an included router whose routes FastAPI has
            made anew; it has to install the checks again.
    """

    def __init__(self, guard: Guard, router: Router, changed: Callable[[], None]) -> None:
        self.router: Final = router
        self._guard = guard
        self._changed = changed
        self._checked: dict[int, _CheckedRoute] = {}
        self._included: dict[int, tuple[Any, list[Any]]] = {}
        """Each included router, and its routes that have the check."""
        closed: Any = self._closed(router.middleware_stack)
        router.middleware_stack = closed

    def _closed(self, serve: _Handle) -> _Handle:
        """Refuse requests that reach the router without a record of the gate, on any route (G9)."""
        guard = self._guard

        def closed(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
            try:
                is_passed = scope[ENTRY].guard is guard
            except KeyError:
                is_passed = scope["type"] == "lifespan"
            if not is_passed:
                try:
                    guard.verify_presence(entry_in(scope))
                except Refusal as refusal:
                    return refuse(refusal, scope, send, guard.gate)
            return serve(scope, receive, send)

        return closed

    def install(self) -> None:
        """Put the check on every route that has none yet; have mounted applications answer
        refusals.
        """
        for checked in self._checked.values():
            checked.places.clear()
            checked.admitted.clear()
        for route, place in _walk_router(self.router, "", None):
            known = self._checked.get(id(route))
            if known is None:
                known = self._checked[id(route)] = _CheckedRoute(route, [], {})
                replaced: Any = self._handle(route.handle, known)
                route.handle = replaced  # type: ignore[method-assign]
            known.places.append(place)
        for layer in _layers(self.router.routes):
            if isinstance(layer, Mount | Host):
                mounted = starlette_in(layer.app)
                if mounted is not None:
                    answer_refusals(mounted)
                continue
            if id(layer) not in self._included:
                layer.handle = self._watch(layer)
            self._included[id(layer)] = layer, layer.effective_candidates()
            # The routes of front ends that FastAPI made without the check are made anew.
            layer._effective_low_priority_routes_version = None

    def _watch(self, router: Any) -> _Handle:
        """Notice, before a request goes on to an included router, that its routes are new ones."""
        handle: _Handle = router.handle

        def watched(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
            if router.effective_candidates() is not self._included[id(router)][1]:
                self._changed()
            return handle(scope, receive, send)

        return watched

    def _handle(self, handle: _Handle, route: _CheckedRoute) -> _Handle:
        admitted = route.admitted

        def checked(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
            try:
                is_known = scope[ENTRY].rule is admitted[scope["method"]]
            except KeyError:  # No gate, a WebSocket, or the first request of its method.
                is_known = False
            if not is_known:
                try:
                    self._verify(route, scope)
                except Refusal as refusal:  # A mounted application may not know how to answer it.
                    return refuse(refusal, scope, send)
            return handle(scope, receive, send)

        return checked

    def _verify(self, route: _CheckedRoute, scope: Scope) -> None:
        entry = entry_in(scope)
        charged = None if entry is None else entry.of(self._guard)
        if charged is None:
            return  # No gate is before the application, or only others.
        method, caller = scope.get("method", "GET"), partial(AsgiRequest, scope)
        alone = len(route.places) == 1
        for place in route.places if alone else _matching(route.places, scope):
            own = self._guard.verify_route(charged.rule, method, place.path, caller, place.host)
            if alone and method in place.methods:
                route.admitted[method] = own


def _matching(places: list[_Place], scope: Scope) -> Iterable[_Place]:
    """The places of a route that decide for a request: the first whose path matches, as in the
    router, or the first of each host. All of them, if none matches.
    """
    root: str = scope.get("app_root_path", scope.get("root_path", ""))
    path = scope["path"].removeprefix(root) or "/"
    found: dict[str | None, _Place] = {}
    for place in places:
        if place.host not in found and compile_path(place.path)[0].match(path):
            found[place.host] = place
    return found.values() or places


def _served(router: Router) -> Iterator[ServedRoute]:
    places = list(_walk_router(router, "", None))
    check_decorators((place.path, getattr(route, "endpoint", None)) for route, place in places)
    heads = {place.path for _, place in places if place.has_head}
    for route, place in places:
        # An application that is mounted may declare its rule as well.
        endpoint = getattr(route, "endpoint", None) or getattr(route, "app", None)
        for method in place.methods:
            asked = [required(endpoint, method), *_dependencies(route)]
            view = view_of(endpoint)
            known = declaration(endpoint)
            bare = place.path.removesuffix("/{path:path}") if known.is_at_mount else ""
            has_head = place.path in heads
            for path in filter(None, (place.path, bare)):
                for rule in asked:
                    yield ServedRoute(
                        method, path, place.host, rule, view, known.operations_of, has_head
                    )


def _dependencies(route: BaseRoute) -> Iterator[Rule]:
    """The rules that FastAPI's dependencies of an endpoint ask for."""
    waiting = [dependant] if (dependant := getattr(route, "dependant", None)) else []
    while waiting:
        dependant = waiting.pop()
        rule = declaration(dependant.call).rule
        if rule is not None:
            yield rule
        waiting += dependant.dependencies


def _walk_router(app: Any, prefix: str, host: str | None) -> Iterator[tuple[BaseRoute, _Place]]:
    """Every route of an application or a router, and every front end."""
    router = app.router if isinstance(app, Starlette) else app
    routes: list[BaseRoute] = getattr(router, "routes", [])
    yield from _walk(routes, prefix, host)
    if isinstance(router, Router):
        pages = _front_ends(router, prefix, host)
        yield from sorted(pages, key=lambda found: len(found[1].path), reverse=True)


def _walk(
    routes: Iterable[BaseRoute], prefix: str, host: str | None
) -> Iterator[tuple[BaseRoute, _Place]]:
    """Every route that hands a request on to an endpoint or to an application of another kind."""
    for route in routes:
        if isinstance(route, Route):
            has_head = not route.methods or "HEAD" in route.methods
            yield route, _Place(prefix + route.path, host, _methods(route), has_head)
        elif isinstance(route, WebSocketRoute):
            yield route, _Place(prefix + route.path, host, ("GET",))
        elif isinstance(route, Mount | Host):
            at = prefix + route.path if isinstance(route, Mount) else prefix
            there = host if isinstance(route, Mount) else _PORT.sub("", route.host).lower()
            inside = list(_walk_mounted(route, at, there))
            yield from inside or [(route, _Place(f"{at}/{{path:path}}", there, ("*",)))]
        else:
            yield from _walk_included(route, prefix, host)


def _walk_mounted(
    mount: Mount | Host, prefix: str, host: str | None
) -> Iterator[tuple[BaseRoute, _Place]]:
    """Every route of a mounted application, also behind middleware of the mount itself."""
    router = router_in(mount.app)
    # An application that only wraps another one may serve other paths than that one.
    if router is None or router.routes is not mount.routes:
        yield from _walk(mount.routes, prefix, host)
    else:
        yield from _walk_router(router, prefix, host)


def _walk_included(
    route: BaseRoute, prefix: str, host: str | None
) -> Iterator[tuple[BaseRoute, _Place]]:
    """FastAPI keeps an included router as one route, which tells those in it."""
    contexts = getattr(route, "effective_route_contexts", None)
    if contexts is None:
        yield route, _Place(f"{prefix}/{{path:path}}", host, ("*",))
        return
    for inner in contexts():
        if inner.starlette_route is not None:
            yield from _walk([inner.starlette_route], prefix, host)
        else:
            methods = tuple(sorted(inner.methods - {"HEAD"}))
            place = _Place(prefix + inner.path, host, methods, "HEAD" in inner.methods)
            yield inner.original_route, place


def _front_ends(router: Any, prefix: str, host: str | None) -> Iterator[tuple[BaseRoute, _Place]]:
    """FastAPI keeps the static pages of ``frontend()`` apart: they are served where no route is,
    those of the longest path first.
    """
    for group in getattr(router, "_low_priority_routes", ()):
        for pages in group.routes:
            at = prefix + pages.path.rstrip("/")
            yield group, _Place(f"{at}/{{path:path}}", host, ("GET",))
    for route in router.routes:
        if hasattr(route, "effective_candidates"):
            at = prefix + route.include_context.prefix
            yield from _front_ends(route.original_router, at, host)


def _layers(routes: Iterable[Any]) -> Iterator[Any]:
    """Every mount, host and included router; a router in an included one changes with that."""
    for route in routes:
        if isinstance(route, Mount | Host):
            yield route
            yield from _layers(route.routes)
        elif hasattr(route, "effective_candidates"):
            yield route
            contexts = route.effective_route_contexts()
            yield from _layers(context.starlette_route for context in contexts)


def _methods(route: Route) -> tuple[str, ...]:
    """The methods that a route answers; HEAD goes with GET."""
    methods: set[str] | None = set(route.methods) if route.methods else None
    endpoint = route.endpoint
    if methods is None and isinstance(endpoint, type) and issubclass(endpoint, HTTPEndpoint):
        methods = {name for name in _METHODS if hasattr(endpoint, name.lower())}
    return tuple(sorted((methods or {"*"}) - {"HEAD"}))
