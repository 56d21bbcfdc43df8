"""Find the access rule of a request by host, method and path; closed by default (D31)."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from typing import Final, NamedTuple

from ..errors import ConfigurationError, InvalidRequest, Problem
from .access_rule import ANY_KEY, Rule, bound, nowhere
from .limits import check_names
from .path_rules import Entry, PathRules, Redirects, agreed, strictest
from .request_paths import Pattern, odd, readings
from .scopes import Catalogue

_METHOD = re.compile(r"\*|[A-Z]+")
_PARAMETER = re.compile(r"\{[A-Za-z_]\w*(?::\w+)?\}")
_HOST = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*|\[[0-9a-f:.]+\]")
_AUTHORITY = re.compile(rf"({_HOST.pattern})(?::[0-9]+)?")
_LONGEST_PATH: Final = 4096
"""Characters. Every rule may match a path before any key or budget is checked."""
_TOO_LONG: Final = nowhere(ANY_KEY)
_SLASH: Final = ord("/")
_PERCENT: Final = ord("%")
"""A number: ``in`` finds it in bytes five times as fast as a subsequence."""
_ENCODED_SLASH: Final = b"%2f"


Served = tuple[str, Pattern, str | None]
"""A route of an application: its method (``*``: any), the stem of its path, its host."""


class RouteRules(NamedTuple):
    """The rules that may admit a request to one route of an application, for one method."""

    own: Rule
    """The rule named for the route; its ``allow`` is set where it names other methods only."""
    others: Mapping[int, Rule]
    """The rules for single paths, or single hosts, that the route also serves, by ``id()``.
    Kept here, since the id of a deleted rule may be used again."""

    def admit(self, rule: Rule) -> bool:
        """Return whether a request admitted by a rule may reach the route's handler."""
        return id(rule) in self.others or rule.includes(self.own)


class RuleBook:
    """All rules of an application.

    Args:
        rules: by ``"METHOD /path"`` or ``"METHOD host/path"``: a :class:`Rule`, or just the scope
            that is required. ``GET`` holds for HEAD and for WebSocket handshakes too; ``*`` is any
            method. The most specific path that matches decides, with the methods that it names.
            In a host, ``{name}`` stands for one label. A rule without a host holds on every host
            without a rule for the path.
        catalogue: the scopes that exist; a rule that requires any other scope is refused, unless
            it is one of lockgate's own.
        host: the host of the rules that name none; None: every host.

    Raises:
        ConfigurationError: a rule cannot be read or can never match; two different rules match
            the same request, and neither is more specific; or two different limits have one name.
    """

    def __init__(
        self,
        rules: Mapping[str, Rule | str],
        catalogue: Catalogue | None = None,
        host: str | None = None,
    ) -> None:
        self.host: Final = host
        self._named: list[tuple[str, str, Rule]] = []
        hosts: dict[str, dict[Pattern, dict[str, Rule]]] = {"": {}}
        for key, wanted in rules.items():
            method, named_host, pattern = _read(key)
            rule = _rule(key, wanted, catalogue)
            named = hosts.setdefault(named_host or host or "", {})
            _check_contradictions(key, rule, method, pattern, named)
            same = next((p for p in named if p.segments == pattern.segments), pattern)
            named.setdefault(same, {})[method] = rule
            self._named.append((method, named_host + pattern.text, rule))
        self.limits: Final = check_names(limit for _, _, rule in self for limit in rule.limits)
        """The named limits of all rules, by name."""
        self._routes: Final = {id(rule): f"{m} {target}" for m, target, rule in self._named}
        self._anywhere: Final = PathRules(hosts.pop(""))
        self._hosts: Final = [
            (_host_expression(name), PathRules(hosts[name]))
            for name in sorted(hosts, key=lambda name: ("{" in name, name))
        ]
        self._exact: Final = self._anywhere.exact
        self.by_host: Final = bool(self._hosts)
        """Whether some rules are for one host only."""

    def __iter__(self) -> Iterator[tuple[str, str, Rule]]:
        """Yield every rule as it was named: method, path (behind its host), rule."""
        return iter(self._named)

    def route_of(self, rule: Rule) -> str | None:
        """Return a rule of :meth:`match` as it was named, e.g. ``"GET /jobs/{id}"``.

        None: the request matches no rule, or several, or none by its method.
        """
        return self._routes.get(id(rule))

    def match(
        self,
        method: str,
        path: str,
        raw: bytes = b"",
        hosts: Sequence[bytes] = (),
        redirects: Redirects | None = None,
        request: object = None,
    ) -> Rule:
        """Return the rule for a request; :data:`ANY_KEY` where none is named.

        A path that routers and servers may read differently is held to the rules of all its
        readings, and is public only if every reading is (D31).

        Args:
            method: as sent. Another letter case of it is another method.
            path: decoded, as the application will see it.
            raw: the target as sent on the wire, where the server passes it on; with two slashes
                in front, another reading of the path.
            hosts: every ``Host`` of the request, needed where some rules are for one host only.
            redirects: is asked whether the router only redirects the request, if its path is no
                more than another spelling of a rule's: then it costs nothing (D50).
            request: what that is asked about.

        Raises:
            InvalidRequest: the target does not start with ``/``, or has too many readings.
        """
        if len(path) > _LONGEST_PATH:
            return _TOO_LONG
        texts: list[str] | None = None
        if raw:
            if raw[0] != _SLASH:
                raise _no_path()
            has_two = len(raw) > 1 and raw[1] == _SLASH
            if has_two or (_PERCENT in raw and _ENCODED_SLASH in raw.lower()):
                texts = readings(path, raw)
        if texts is None and not self._hosts:
            by_method = self._exact.get(path)  # Inlined from PathRules.match().
            if by_method is not None:
                return by_method[method]
            if path[:1] == "/" or not path:
                return self._anywhere.match(method, path, redirects, request)
        if path and path[0] != "/":
            raise _no_path()
        if texts is None:
            texts = readings(path) if odd(path) else [path]
        found = self._of_host(hosts) if self._hosts else self._anywhere
        if found is None:  # The rules of all hosts hold together.
            everywhere = [self._anywhere, *(paths for _, paths in self._hosts)]
            return strictest([paths.strictest(method, texts) for paths in everywhere])
        return agreed([self._on_host(found, method, text) for text in texts])

    def _on_host(self, paths: PathRules, method: str, text: str) -> Rule:
        """Return the rule for one reading of a path; rules of the host come first.

        Where the host has a rule for another spelling only, both rules hold.
        """
        rule = paths.strictest(method, (text,)) if odd(text) else paths.match(method, text)
        if paths is self._anywhere or paths.names(text):
            return rule
        elsewhere = self._anywhere.strictest(method, (text,))
        return elsewhere if rule is ANY_KEY else strictest([rule, elsewhere])

    def for_route(
        self,
        method: str,
        template: str,
        host: str | None = None,
        routes: Collection[Served] = (),
        shared: Sequence[Rule] = (),
    ) -> RouteRules:
        """Return the rules that may admit a request to a route.

        Args:
            method: the method of the request.
            template: the route's path, parameters written ``{name}`` or ``{name:converter}``.
            host: the host that the route is bound to, parameters written alike; None: any. Only
                rules for that host open such a route.
            routes: the application's routes. A rule that names one of them is for that route alone,
                even where another route takes its requests. A rule that names the method is for a
                route of that method, one by ``*`` for a route of any.
            shared: for a route that no rule names, the rules of its view's other routes, which
                hold for it as well.
        """
        pattern = Pattern.of_route(template)
        segments = pattern.stem.segments
        here: dict[object, set[str]] = {}  # The methods of all routes by their paths.
        for taken, stem, there in routes:
            if there == host:
                here.setdefault(stem.segments, set()).add(taken)
        rules: list[Rule] = []
        inside: list[Rule] = []
        for name, paths in self._of_route(host):
            # The host's own routes, of an application that binds some to hosts.
            others = [] if host is not None or name is None else _bound(routes, name)
            if not any(other.covers(pattern.stem) for other in others):
                own_entry = paths.named(pattern)
                rules.append(
                    paths.match(method, pattern.sample)
                    if own_entry is None
                    else own_entry.by_method[method]
                )
            for entry in paths.inside(pattern):
                stem = entry.pattern.stem
                served = here.get(stem.segments, set())
                if stem.segments != segments and _is_served(entry, method, served):
                    continue
                if not any(other.covers(stem) for other in others):
                    inside.append(entry.by_method[method])
        own = rules[0] if rules else ANY_KEY
        if shared:
            return RouteRules(strictest([own, *shared]), {id(rule): rule for rule in inside})
        inside += [rule for rule in rules if rule is not ANY_KEY]
        return RouteRules(own, {id(rule): rule for rule in inside})

    def named(self, method: str, template: str, host: str | None = None) -> list[Rule]:
        """Return the rules that name a route by its own path, without more general rules.

        Args:
            method: the method of the request; ``*`` is every method that no rule of the path names.
            template: the route's path.
            host: the host that the route is bound to; None: any.
        """
        pattern = Pattern.of_route(template)
        entries = [paths.named(pattern) for _, paths in self._of_route(host)]
        return [entry.by_method[method] for entry in entries if entry is not None]

    def _of_route(self, host: str | None) -> Sequence[tuple[re.Pattern[str] | None, PathRules]]:
        """Return the rules for the host that a route is bound to; all rules if it has none."""
        if host is None:
            return [(None, self._anywhere), *self._hosts]
        return [(name, paths) for name, paths in self._hosts if name.fullmatch(_sample(host))][:1]

    def _of_host(self, hosts: Sequence[bytes]) -> PathRules | None:
        """Return the rules for the host of a request; None for a missing, repeated or odd ``Host``.

        Routers differ in how they compare host names: a value that is not plainly a name with an
        optional port may be any of the hosts.
        """
        name = _AUTHORITY.fullmatch(hosts[0].decode("latin-1").lower()) if len(hosts) == 1 else None
        if name is None:
            return None
        return next(
            (paths for host, paths in self._hosts if host.fullmatch(name[1])), self._anywhere
        )


def _bound(routes: Iterable[Served], name: re.Pattern[str]) -> list[Pattern]:
    """Return the stems of the routes that are bound to the hosts that a rule names."""
    return [stem for _, stem, host in routes if host is not None and name.fullmatch(_sample(host))]


def _is_served(entry: Entry, method: str, served: Set[str]) -> bool:
    """Return whether a route serves exactly the path of an entry, for a method.

    Args:
        entry: one entry of the rules.
        method: the method of the request.
        served: the methods of the routes of exactly this path.
    """
    if method not in entry.by_method:
        return bool(served)
    return not served.isdisjoint({"*", "GET" if method == "HEAD" else method})


def same_host(one: str, other: str) -> bool:
    """Return whether two host templates are the same, names of parameters aside."""
    return _sample(one).lower() == _sample(other).lower()


def _read(key: str) -> tuple[str, str, Pattern]:
    """Parse the key of a rule into method, host (empty: any) and path."""
    method, _, target = key.partition(" ")
    host, slash, path = target.partition("/")
    if not _METHOD.fullmatch(method) or (host and not _HOST.fullmatch(_sample(host))) or not slash:
        raise ConfigurationError(
            f"The rule {key!r} cannot be read: write 'GET /path', or '* /path' for every method, "
            "or 'GET host.example/path' for one host."
        )
    return method, host, Pattern.of(f"/{path}")


def _rule(key: str, wanted: Rule | str, catalogue: Catalogue | None) -> Rule:
    rule = Rule(wanted) if isinstance(wanted, str) else wanted
    if not isinstance(rule, Rule):  # pyright: ignore[reportUnnecessaryIsInstance] - from a caller
        raise ConfigurationError(
            f"The rule {key!r} is {wanted!r}: give a scope such as 'jobs:read', a Rule, or PUBLIC."
        )
    if not rule.accepts:
        raise ConfigurationError(f"The rule {key!r} accepts no credential: name one.")
    # A catalogue without the scopes of lockgate's operations leaves them to sessions.
    if rule.requires and catalogue and not rule.own:
        catalogue.check_requirement(rule.requires)
    return bound(rule)


def _check_contradictions(
    key: str,
    rule: Rule,
    method: str,
    pattern: Pattern,
    named: Mapping[Pattern, Mapping[str, Rule]],
) -> None:
    for other, by_method in named.items():
        standing = by_method.get(method)
        if standing is None or standing == rule or not pattern.meets(other):
            continue
        if pattern.covers(other) == other.covers(pattern):
            raise ConfigurationError(
                f"The rules '{method} {other.text}' and '{key}' contradict each other: "
                f"{standing} or {rule}? Take one out, or name the path that both match."
            )


def _sample(host: str) -> str:
    return _PARAMETER.sub("x", host)


def _host_expression(host: str) -> re.Pattern[str]:
    return re.compile("[^.]+".join(map(re.escape, _PARAMETER.split(host.lower()))))


def _no_path() -> InvalidRequest:
    return InvalidRequest([Problem("", "The request target does not start with '/'.")])
