"""The audit of an application's routes: the requirement of each, and the undecided ones."""

import logging
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, TypeGuard

from ..core.access_rule import ANY_KEY, Rule
from ..core.request_paths import Pattern
from ..core.rule_book import same_host
from ..errors import ConfigurationError
from ..gate import Gate
from .guard import Guard
from .operations.table import endpoints
from .requirements import declared
from .shadow import Shadow

logger = logging.getLogger("lockgate")

ANY_METHOD = "*"


class ServedRoute(NamedTuple):
    """One route as its framework serves it."""

    method: str
    """``*``: the route answers every method."""
    path: str
    """Parameters are written ``{name}``, or ``{name:path}`` for a whole tail."""
    host: str | None = None
    """The host that the route is bound to; None: any."""
    requires: Rule | None = None
    """The demand of the endpoint itself, where it declares one with ``requires``."""

    view: Hashable = None
    """Tells the view that runs from others; None: it is a framework's own, or not known."""
    gate: Gate | None = None
    """The gate whose operations the route serves; None: it serves something else."""
    has_head: bool = True
    """Whether the application answers HEAD for the path."""

    @property
    def target(self) -> str:
        """The path behind its host, as a rule names it."""
        return f"{self.host or ''}{self.path}"


_KEYLESS: Final = re.compile(r"/(health[a-z]*|livez?|readyz?|ping|webhooks?)(/|$)", re.IGNORECASE)
"""Paths of health checks and webhooks, whose callers send no API key."""

_SHADOWED: Final[Mapping[Shadow, str]] = {
    "limits": "no limit is enforced",
    "all": "the gate refuses no request, only endpoints that need a caller do, as by FastAPI's "
    "requires, and lockgate's own operations",
}
_FRAMEWORKS: Final = frozenset(
    {"django", "fastapi", "flask", "litestar", "quart", "rest_framework", "starlette", "werkzeug"}
)


def view_of(endpoint: object, *parts: object) -> Hashable:
    """Identify a view, to compare it with those of other routes.

    Args:
        endpoint: the function or class that a route runs; a ``partial`` is its function with its
            arguments.
        parts: what else tells it from others of the same function or class.

    Returns:
        None for a view that a framework itself defines: static files and redirects are served
        under many paths by one function.
    """
    if isinstance(endpoint, partial):
        given: partial[Any] = endpoint  # pyright: ignore[reportUnknownVariableType]
        return view_of(given.func, arguments_of(given.args, given.keywords), *parts)
    module: object = getattr(endpoint, "__module__", None)
    if endpoint is None or (isinstance(module, str) and module.partition(".")[0] in _FRAMEWORKS):
        return None
    return (endpoint if _is_hashable(endpoint) else id(endpoint), *parts)


def arguments_of(positional: Iterable[object], named: Mapping[str, object]) -> Hashable:
    """Arguments in a form that can be compared; one that cannot be hashed counts by its text."""
    return (
        tuple(map(_comparable, positional)),
        tuple((name, _comparable(named[name])) for name in sorted(named)),
    )


def _comparable(argument: object) -> Hashable:
    return argument if _is_hashable(argument) else repr(argument)


def _is_hashable(value: object) -> TypeGuard[Hashable]:
    try:
        hash(value)
    except TypeError:
        return False
    return True


class AuditedRoute(NamedTuple):
    """One route and its requirement."""

    method: str
    path: str
    rule: Rule
    named: bool
    """Whether a rule names it; otherwise any valid key is admitted."""

    def __str__(self) -> str:
        rule = self.rule if self.rule.allow is None else "405"
        return f"{self.method:9} {self.path:40} {rule}{'' if self.named else ' (no rule)'}"


class Audit(NamedTuple):
    """The requirements of an application's routes, and the undecided routes."""

    routes: list[AuditedRoute]
    problems: list[str]

    @property
    def unguarded(self) -> list[AuditedRoute]:
        """The routes that need no key."""
        return [route for route in self.routes if route.rule.public]

    def __str__(self) -> str:
        unguarded = ", ".join(f"{route.method} {route.path}" for route in self.unguarded)
        return "\n".join([*map(str, self.routes), f"guarded by nothing: {unguarded or 'none'}"])


class StrictAuditFailed(ConfigurationError):
    """A strict audit found problems; ``found`` is the audit, with these and all routes."""

    def __init__(self, found: Audit) -> None:
        super().__init__("\n".join(["The audit is strict, and found:", *found.problems]))
        self.found: Final = found


def audit_routes(guard: Guard, routes: Iterable[ServedRoute]) -> Audit:
    """Compare an application's routes with a guard's rules.

    The guard learns the routes, and the rules that their endpoints declare.

    Raises:
        ConfigurationError: an endpoint requires a scope that does not exist, its declaration and
            a rule contradict each other, or the operations are those of another gate.
    """
    served = sorted(set(routes), key=lambda route: (route.target, route.method))
    _check_scopes(guard, served)
    _check_gates(guard, served)
    guard.declare(
        declared(
            guard.given,
            ((r.method, r.path, r.host, r.requires) for r in served if r.requires is not None),
        )
    )
    guard.serve(
        ((route.method, route.path, route.host, route.view) for route in served),
        {route.path for route in served if not route.has_head},
    )
    own = [(method, path, rule) for method, path, rule in guard.book if rule.own]
    # FastAPI's router has one route that answers, and one for each operation that describes it.
    audited = list(dict.fromkeys(found for route in served for found in _audited(guard, route)))
    problems = [
        f"No rule names {r.method} {r.path}: any valid key is admitted, whatever its scopes."
        f"{_keyless(r)}"
        if r.rule.allow is None
        else f"No rule names {r.method} for {r.path}: it is answered with 405. Put requires() at "
        "its endpoint, or name it in rules."
        for r in audited
        if not r.named
    ]
    problems += [
        f"The rule '{method} {path}' names no route of the application."
        for method, path, rule in guard.book
        if served
        and not rule.own
        and not any(_names(guard, method, path, route) for route in served)
    ]
    problems += _views(guard, served)
    problems += _unreachable(guard, served)
    problems += unaffordable(guard)
    problems += [
        f"lockgate's operations are served below {prefix!r}, where their rules do not reach: "
        "sessions are refused there. Serve them at the root, and move them by "
        "WebOptions(prefix=...)."
        for prefix in _prefixes({path for _, path, _ in own}, {route.path for route in served})
    ]
    return Audit(audited, problems)


def report(guard: Guard, routes: Iterable[ServedRoute], *, strict: bool) -> None:
    """Log what every route requires, once, when an application starts.

    Raises:
        StrictAuditFailed: strict mode, and the audit finds anything.
        ConfigurationError: no key can satisfy a requirement.
    """
    found = audit_routes(guard, routes)
    logger.info("routes and what they require:\n%s", found)
    if guard.shadow is not None:
        logger.warning("Shadow mode is on: %s.", _SHADOWED[guard.shadow])
    if guard.book.host is not None:
        logger.info(
            "The rules are for the host %s alone: on others every path needs a key.",
            guard.book.host,
        )
    if strict and found.problems:
        raise StrictAuditFailed(found)
    for problem in found.problems:
        logger.warning("%s", problem)


def _keyless(route: AuditedRoute) -> str:
    """Return what to write for a route whose path is that of a caller without a key."""
    found = _KEYLESS.search(route.path)
    if found is None:
        return ""
    usual = "POST" if found[1].lower().startswith("webhook") else "GET"
    named = f"{usual if route.method == ANY_METHOD else route.method} {route.path}"
    return f" A health check or a webhook sends no key: if it is one, write public=[{named!r}]."


def _audited(guard: Guard, route: ServedRoute) -> Iterator[AuditedRoute]:
    method, path = route.method, route.target
    operations = [(n, rule) for n, its_path, rule in guard.book if rule.own and its_path == path]
    if operations:
        yield from (AuditedRoute(name, path, rule, True) for name, rule in operations)
        return
    rule = guard.book.for_route(method, route.path, route.host).own
    if method == ANY_METHOD and rule.allow is not None:
        for name in rule.allow:
            if name == "HEAD" and "GET" in rule.allow:
                continue
            own = guard.book.for_route(name, route.path, route.host).own
            yield AuditedRoute(name, path, own, True)
        return
    yield AuditedRoute(method, path, rule, rule is not ANY_KEY and rule.allow is None)


def _check_scopes(guard: Guard, served: Iterable[ServedRoute]) -> None:
    for route in served:
        rule = route.requires
        if rule is not None and rule.requires is not None and not rule.own:
            try:
                guard.gate.catalogue.check_requirement(rule.requires)
            except ConfigurationError as problem:
                raise ConfigurationError(f"{route.method} {route.target}: {problem}") from None


def _check_gates(guard: Guard, served: Iterable[ServedRoute]) -> None:
    """Check that lockgate's operations beside the application's routes are those of its gate."""
    for route in served:
        gate = route.gate
        if gate is not None and gate is not guard.gate and route.path in endpoints(gate):
            raise ConfigurationError(
                f"{route.path} serves the operations of another gate than the one that protects "
                "the application: give both the same Gate, or leave operations() to protect()."
            )


def unaffordable(guard: Guard) -> Iterator[str]:
    """Yield the rules whose cost is above a limit."""
    smallest = guard.gate.plans.smallest_limit
    for method, path, rule in guard.book:
        if smallest is not None and rule.cost > smallest:
            yield (
                f"The rule '{method} {path}' costs {rule.cost}: the smallest limit of a plan is "
                f"{smallest}, so such a plan never admits it."
            )
        for limit in rule.limits:
            least = min((one.limit for one in limit.windows if one.limit is not None), default=None)
            if least is not None and rule.cost > least:
                yield (
                    f"The rule '{method} {path}' costs {rule.cost}: the limit {limit.name!r} "
                    f"admits {least}, so it is never admitted."
                )


def _views(guard: Guard, served: Iterable[ServedRoute]) -> Iterator[str]:
    for route in served:
        own = guard.book.for_route(route.method, route.path, route.host).own
        for path, rule in guard.rules_of_view(route.method, route.path, route.host):
            if not own.includes(rule):
                yield (
                    f"{route.method} {route.target} runs the same view as {path}, whose rule it "
                    "does not have: it is answered with 404. Name it by a rule of its own."
                )


def _unreachable(guard: Guard, served: Iterable[ServedRoute]) -> Iterator[str]:
    """Yield the routes with a rule whose every request is refused, by the rules of other readings.

    A path holds to the rules of all its readings (D31), so with and without a slash at its end.
    """
    for route in served:
        own = guard.book.for_route(route.method, route.path, route.host).own
        if route.method == ANY_METHOD or own.allow is not None or "{" in (route.host or ""):
            continue
        sample = Pattern.of_route(route.path).sample
        hosts = [route.host.encode()] if route.host else []
        charged = guard.book.match(route.method, sample, sample.encode(), hosts)
        if charged.allow:
            named = ", ".join(charged.allow)
            yield (
                f"{route.method} {route.target} is always answered with 405: its path with or "
                f"without a slash at the end is that of a rule for {named} only. "
                "Write that rule for every method ('* /path'), or move one of the two routes."
            )


def _prefixes(own: set[str], served: set[str]) -> list[str]:
    """The prefixes below which all of lockgate's operations are served, if none is at the root."""
    if own.isdisjoint(served):
        found = {there.removesuffix(path) for path in own for there in served}
        return sorted(at for at in found if {at + path for path in own} <= served)
    return []


def _names(guard: Guard, method: str, target: str, route: ServedRoute) -> bool:
    """Whether a rule names a route, or a single path of one."""
    if ANY_METHOD not in (method, route.method) and method != route.method:
        return False
    host, _, path = target.partition("/")
    if route.host is not None and not same_host(host or guard.book.host or "", route.host):
        return False
    return Pattern.of(f"/{path}").meets(Pattern.of_route(route.path))
