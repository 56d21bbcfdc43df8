"""The audit of an application's routes: what each one requires, and which none guards."""

import logging
from collections.abc import Iterable
from typing import NamedTuple

from starlette.applications import Starlette
from starlette.endpoints import HTTPEndpoint
from starlette.routing import BaseRoute, Host, Mount, Route, WebSocketRoute

from ..errors import ConfigurationError
from ..rules.patterns import Pattern
from ..rules.routes import ANY_KEY, Rule
from .guard import Guard

_METHODS = ("DELETE", "GET", "OPTIONS", "PATCH", "POST", "PUT")

logger = logging.getLogger("lockgate")


class AuditedRoute(NamedTuple):
    """One route and what it requires."""

    method: str
    path: str
    rule: Rule
    named: bool
    """Whether a rule names it; otherwise any valid key comes in."""

    def __str__(self) -> str:
        return f"{self.method:9} {self.path:40} {self.rule}{'' if self.named else ' (no rule)'}"


class Audit(NamedTuple):
    """What an application's routes require, and what somebody should look at."""

    routes: list[AuditedRoute]
    problems: list[str]

    @property
    def unguarded(self) -> list[AuditedRoute]:
        """The routes that anybody may call."""
        return [route for route in self.routes if route.rule.public]

    def __str__(self) -> str:
        unguarded = ", ".join(f"{route.method} {route.path}" for route in self.unguarded)
        return "\n".join([*map(str, self.routes), f"guarded by nothing: {unguarded or 'none'}"])


def audit(guard: Guard, routes: Iterable[tuple[str, str]]) -> Audit:
    """Hold an application's routes against a guard's rules.

    Args:
        guard: knows the rules.
        routes: ``(method, path)``, parameters written ``{name}``; see :func:`routes_of`.
    """
    own = [(method, path, rule) for method, path, rule in guard.book if rule.own]
    ordered = sorted(set(routes), key=lambda route: (route[1], route[0]))
    audited: list[AuditedRoute] = []
    for method, path in ordered:
        if operations := [(name, rule) for name, its_path, rule in own if its_path == path]:
            audited += [AuditedRoute(name, path, rule, True) for name, rule in operations]
            continue
        sample = path.replace(":path}", "}/x")
        rule = guard.book.named(method, sample)
        if rule is None and method == "*":
            # A mounted application answers any method: show those that a rule names.
            ruled = [(name, guard.book.named(name, sample)) for name in _METHODS]
            audited += [AuditedRoute(name, path, r, True) for name, r in ruled if r is not None]
        audited.append(AuditedRoute(method, path, rule or ANY_KEY, rule is not None))
    # FastAPI's router has one route that answers, and one for each operation that describes it.
    audited = list(dict.fromkeys(audited))
    problems = [
        f"No rule names {r.method} {r.path}: any valid key comes in, whatever its scopes."
        for r in audited
        if not r.named
    ]
    problems += [
        f"The rule '{method} {path}' names no route of the application."
        for method, path, rule in guard.book
        if audited and not rule.own and not any(_names(method, path, r) for r in audited)
    ]
    problems += [
        f"lockgate's operations are served below {prefix!r}, where their rules do not reach: "
        "sessions are refused there. Serve them at the root, and move them by Gate(prefix=...)."
        for prefix in _prefixes({path for _, path, _ in own}, {path for _, path in ordered})
    ]
    if guard.shadow:
        problems.append("Shadow mode is on: nothing is refused.")
    return Audit(audited, problems)


def _prefixes(own: set[str], served: set[str]) -> list[str]:
    """Below which prefixes all of lockgate's operations are served, where none is at the root."""
    if own.isdisjoint(served):
        found = {there.removesuffix(path) for path in own for there in served}
        return sorted(at for at in found if {at + path for path in own} <= served)
    return []


def log_audit(guard: Guard, routes: Iterable[tuple[str, str]]) -> None:
    """Log what every route requires: faces do it once, when they start."""
    report = audit(guard, routes)
    logger.info("routes and what they require:\n%s", report)
    for problem in report.problems:
        logger.warning("%s", problem)


def _names(method: str, path: str, route: AuditedRoute) -> bool:
    if "*" not in (method, route.method) and method != route.method:
        return False
    try:
        return Pattern.of(path).meets(Pattern.of(route.path))
    except ConfigurationError:
        return False  # A route of a form that rules do not have: no rule can name it.


def routes_of(app: object) -> list[tuple[str, str]]:
    """Every route of a Starlette or FastAPI application, mounted ones included; else nothing."""
    return list(_walk(app.routes, "")) if isinstance(app, Starlette) else []


def _walk(routes: Iterable[BaseRoute], prefix: str) -> Iterable[tuple[str, str]]:
    for route in routes:
        if isinstance(route, Route):
            for method in _methods(route):
                yield method, prefix + route.path
        elif isinstance(route, WebSocketRoute):
            yield "GET", prefix + route.path
        elif isinstance(route, Mount):
            if route.routes:
                yield from _walk(route.routes, prefix + route.path)
            else:
                yield "*", f"{prefix}{route.path}/{{path:path}}"
        elif isinstance(route, Host):
            yield from _walk(route.routes, prefix)
        else:
            yield from _walk_included(route, prefix)


def _walk_included(route: object, prefix: str) -> Iterable[tuple[str, str]]:
    """FastAPI keeps an included router as one route, which tells those in it."""
    for inner in getattr(route, "effective_route_contexts", tuple)():
        if inner.starlette_route is not None:
            yield from _walk([inner.starlette_route], prefix)
        else:
            for method in sorted(inner.methods):
                yield method, prefix + inner.path


def _methods(route: Route) -> list[str]:
    """The methods that a route answers; HEAD goes with GET."""
    methods = route.methods
    endpoint = route.endpoint
    if methods is None and isinstance(endpoint, type) and issubclass(endpoint, HTTPEndpoint):
        methods = {name for name in _METHODS if hasattr(endpoint, name.lower())}
    return sorted((methods or {"*"}) - {"HEAD"})
