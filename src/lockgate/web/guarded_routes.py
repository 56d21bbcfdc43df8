"""The rules of routes, and the check that the charged rule is that of the matched route (D31)."""

from collections.abc import Callable, Hashable, Iterable, Mapping
from logging import WARNING
from typing import Final

from ..core.access_rule import Rule
from ..core.path_rules import Redirects
from ..core.request_paths import Pattern
from ..core.rule_book import RouteRules, RuleBook, Served
from ..errors import ConfigurationError, NotFound
from ..gate import Gate
from .operations import table
from .request import RequestView
from .shadow import Shadow

_UNNAMED: Final = "-"
"""Stands for every method that neither a rule nor a route names."""


class GuardedRoutes:
    """The routes and rules of a :class:`~lockgate.web.guard.Guard`, which extends it.

    Args:
        gate: has the scopes, and the rules of lockgate's own operations.
        rules: as for the guard.
        host: as for the guard.

    Raises:
        ConfigurationError: as for the guard.
    """

    def __init__(
        self, gate: Gate, rules: Mapping[str, Rule | str] | None, *, host: str | None
    ) -> None:
        own = table.rules(gate)
        if taken := own.keys() & (rules or {}).keys():
            raise ConfigurationError(
                f"The rule {min(taken)!r} is lockgate's own: take it out, or move lockgate's "
                "operations with the gate's prefix."
            )
        self.gate: Final = gate
        # Each is read in every request: a default in the class would take three times as long.
        self.shadow: Shadow | None = None
        """What is only watched (:class:`~lockgate.web.watching_guard.WatchingGuard`); None:
        nothing."""
        self.redirects: Redirects | None = None
        """Tells of a request whether the router only redirects it to its path with a slash more or
        less; None: that is not known, and a redirect is charged as the path it leads to."""
        self._rules: Final = {**(rules or {}), **own}
        self.given: Final = RuleBook(self._rules, gate.catalogue, host)
        """The rules without those that endpoints declare."""
        self.book = self.given
        """The rules that hold."""
        gate.know_limits(self.given.limits.values())
        self._declared: dict[str, Rule] = {}
        self.streams: Final = gate.streams
        self.audited = False
        """Whether the routes of the application are known."""
        self._routes: dict[tuple[str, str, str | None], RouteRules] = {}
        self._methods = {"HEAD", *(method for method, *_ in self.book)}
        """The methods that rules and routes name."""
        self._served: set[Served] = set()
        self._views: list[tuple[str, str, str | None, Hashable]] = []
        self._without_head: list[Pattern] = []
        """The stems of paths whose routes for GET do not answer HEAD."""

    def serve(
        self,
        routes: Iterable[tuple[str, str, str | None, Hashable]],
        without_head: Iterable[str] = (),
    ) -> None:
        """Learn which routes the application has.

        Args:
            routes: method, path, host and view of each; the view is None where it cannot be told
                from others.
            without_head: the paths whose routes for GET do not answer HEAD, as in FastAPI.
        """
        served = list(routes)
        self._served = {(m, Pattern.of_route(path).stem, host) for m, path, host, _ in served}
        self._views = [route for route in served if route[3] is not None]
        self._methods |= {method for method, *_ in served}
        self._without_head = [Pattern.of_route(path).stem for path in without_head]
        self.audited = True
        self._routes.clear()

    def declare(self, rules: Mapping[str, Rule]) -> None:
        """Add the rules that endpoints declare, in place of those declared before.

        Args:
            rules: by ``"METHOD /path"``; a rule of the same key in ``given`` is replaced.

        Raises:
            ConfigurationError: the rules contradict each other.
        """
        if rules != self._declared:
            everything = {**self._rules, **rules}
            self.book = RuleBook(everything, self.gate.catalogue, self.given.host)
            self.gate.know_limits(self.book.limits.values())
            self._declared = dict(rules)
            self._routes.clear()

    def rules_of_view(
        self, method: str, template: str, host: str | None = None
    ) -> list[tuple[str, Rule]]:
        """The guarded rules of other routes that run the same view as a route without a rule.

        A view keeps its rule under every path that a framework serves it at: a format suffix, a
        second decorator, a router that is included twice (D31).

        Returns:
            The paths of these routes, and the rules; nothing where a rule names the route itself.
        """
        taken = {"*", "GET" if method == "HEAD" else method}
        here = [route for route in self._views if route[0] in taken or method == "*"]
        views = {view for _, path, at, view in here if (path, at) == (template, host)}
        if not views or self.book.named(method, template, host):
            return []
        return [
            (path, rule)
            for _, path, at, view in here
            if view in views
            for rule in self.book.named(method, path, at)
            if not rule.public
        ]

    def verify_route(
        self,
        rule: Rule,
        method: str,
        template: str,
        caller: Callable[[], RequestView],
        host: str | None = None,
    ) -> Rule:
        """Check that the route which a framework matched is one that the charged rule is for.

        The gate finds a rule by the request's path; the framework finds a handler by its own
        reading of the same path. Adapters that see the matched route ask here, right before its
        handler runs (D31).

        Args:
            rule: the one that this guard charged.
            method: the method of the request; GET for a WebSocket handshake.
            template: the path of the matched route, parameters written ``{name}``.
            caller: makes the request, to report a mismatch.
            host: the host that the route is bound to; None: any.

        Returns:
            The rule that is named for the route.

        Raises:
            NotFound: the charged rule is not for the route.
        """
        key = self._known_as(method), template, host
        rules = self._routes.get(key)
        if rules is None:
            shared = [rule for _, rule in self.rules_of_view(*key)]
            rules = self._routes[key] = self.book.for_route(*key, self._served, shared)
        if rule is not rules.own and not rules.admit(rule):
            self._mismatched(rule, rules.own, caller())
        return rules.own

    def _mismatched(self, charged: Rule, needed: Rule, caller: RequestView) -> None:
        redact = self.gate.format.redact
        self.gate.events.emit(
            "route_mismatch",
            WARNING,
            method=redact(caller.method),
            path=redact(caller.path),
            charged=str(charged),
            needed=str(needed),
        )
        raise NotFound

    def _known_as(self, method: str) -> str:
        """A method that rules hold for as they do for this one, of a bounded number of methods.

        Methods are the caller's to choose without end, and finding the rules of a route for each
        would take long.
        """
        if method in self._methods:
            return method
        upper = method.upper()
        return upper.lower() if upper in self._methods else _UNNAMED
