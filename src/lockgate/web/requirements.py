"""What endpoints declare with ``requires``: collected at start-up, checked when they run."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from ..core.access_rule import ANY_KEY, Rule, both
from ..core.request_paths import Pattern
from ..core.rule_book import RuleBook, same_host
from ..errors import ConfigurationError, MissingAuth
from ..gate import Gate
from ..principal import Caller
from .entry import Entry, entry_in
from .operations.table import check

_ATTRIBUTE: Final = "__lockgate__"


@dataclass(frozen=True)
class Declaration:
    """What lockgate knows of an endpoint or a dependency, in its attribute ``__lockgate__``."""

    rule: Rule | None = None
    """The rule that it declares."""
    operations_of: Gate | None = None
    """The gate of which it is one of lockgate's own operations."""
    is_at_mount: bool = False
    """Whether the path of the mount that it is below leads to it even without its slash, by the
    same rule."""
    guarded: Callable[..., Any] | None = None
    """Its decorated form, which must be served instead."""
    is_served: bool = False
    """Whether an application serves it, if it is the decorated form of a function."""


_NOTHING: Final = Declaration()


def declaration(endpoint: object) -> Declaration:
    """Return what was declared at an endpoint or a dependency."""
    found: Declaration = getattr(endpoint, _ATTRIBUTE, _NOTHING)
    return found


def declare(endpoint: object, **fields: Any) -> None:
    """Set fields of the declaration of an endpoint or a dependency."""
    setattr(endpoint, _ATTRIBUTE, replace(declaration(endpoint), **fields))


def mark(function: Callable[..., Any], guarded: Callable[..., Any], rule: Rule) -> None:
    """Note at both functions that ``requires`` made the second of the first."""
    declare(guarded, rule=rule)
    with suppress(AttributeError):  # A method or a partial has no attributes of its own.
        declare(function, guarded=guarded)


def required(endpoint: object, method: str, function: str | None = None) -> Rule | None:
    """Return the rule that an endpoint declares; None: it declares none.

    The rule of a class, or of a view of a class, is the rule of its function for the method.

    Args:
        endpoint: a function, a class, or the view of a class.
        method: the method of HTTP.
        function: the name of the class's function for it; None: the method in lower case.
    """
    rule = declaration(endpoint).rule
    if rule is not None:
        return rule
    kind = endpoint if isinstance(endpoint, type) else getattr(endpoint, "view_class", None)
    return declaration(getattr(kind, function or method.lower(), None)).rule


def check_decorators(endpoints: Iterable[tuple[str, object]]) -> None:
    """Check that no application serves a function in place of its decorated form.

    That happens where ``@requires`` stands above the line that makes a route: the route then has
    the bare function.

    Args:
        endpoints: what an application serves: where, and by which function.

    Raises:
        ConfigurationError: it serves a function, and no application serves the decorated one.
    """
    served = list(endpoints)
    for _, endpoint in served:
        if declaration(endpoint).rule is not None:
            declare(endpoint, is_served=True)
    for where, endpoint in served:
        rule, guarded = declaration(endpoint).rule, declaration(endpoint).guarded
        if rule is None and guarded is not None and not declaration(guarded).is_served:
            raise ConfigurationError(
                f"{where} serves a function without its decorator: put @requires directly above "
                "the function, below the line that makes it a route."
            )


def declared(
    given: RuleBook, routes: Iterable[tuple[str, str, str | None, Rule]]
) -> dict[str, Rule]:
    """Combine the rules that endpoints declare with the given rules for the same routes.

    A request needs all that either asks. A declared rule for a path that no rule can name is left
    out: the endpoint checks its scope.

    Args:
        given: the rules that were written out.
        routes: method, path, host and declared rule of each endpoint that declares one.

    Returns:
        Rules by ``"METHOD /path"``, with the key of a given rule that they replace.

    Raises:
        ConfigurationError: a given rule makes such an endpoint public, or a rule with a cost, a
            slot or a limit is declared for a path that no rule can name.
    """
    found: dict[str, Rule] = {}
    for method, path, host, rule in routes:
        if not _can_be_named(path, rule):
            continue
        key = _key(given, method, path, host)
        if key not in found:
            standing = given.for_route(method, path, host).own
            if standing.public and given.named(method, path, host):
                raise ConfigurationError(
                    f"The rule '{key}' is {standing!r}, and its endpoint requires {rule!r}: "
                    "take one out."
                )
            silent = standing is ANY_KEY or standing.public or standing.allow is not None
            found[key] = rule if silent else both(standing, rule)
        else:
            found[key] = both(found[key], rule)
    return found


def admitted(rule: Rule, held: Mapping[str, Any], endpoint: object) -> Caller:
    """Check, where an endpoint runs, that its caller has shown and paid what it declares.

    Args:
        rule: the one that the endpoint declares.
        held: the scope or environment of the request.
        endpoint: its name, the function itself, or a request with the name, for a message.

    Returns:
        The caller, whose ``key`` is never None.

    Raises:
        ConfigurationError: no gate is before the application, or the gate did not charge the cost
            and the limits or take the slot.
        MissingAuth: the request came without a key, by a public rule or in shadow mode.
        InsufficientScope: the key's scopes do not cover the scope of the rule.
    """
    entry = _entry_of(held)
    shadow = entry.guard.shadow
    principal = entry.principal if shadow == "all" else check(rule, entry.principal)
    if principal is None or principal.key is None:
        raise MissingAuth
    lost = rule.slot and entry.slot is None and shadow is None
    if rule.limits and not set(rule.limits) <= set(entry.limits):
        lost = True
    if shadow != "all" and (entry.spent < rule.cost or lost):
        name = getattr(endpoint, "endpoint", getattr(endpoint, "__name__", endpoint))
        raise ConfigurationError(
            f"The endpoint {name!r} requires {rule!r}, and the gate charged {entry.rule!r}: put "
            "@requires directly below the route, and use functools.wraps in decorators above it; "
            "where the gate cannot see the routes, write cost, slot and limits into rules=."
        )
    return Caller._make(principal)


def watched(held: Mapping[str, Any]) -> bool:
    """Return whether a gate in shadow mode lets every request through, as a decorator asks."""
    return _entry_of(held).guard.shadow == "all"


def _entry_of(held: Mapping[str, Any]) -> Entry:
    """Return the record of the gate that admitted a request.

    Raises:
        ConfigurationError: no gate is before the application.
    """
    entry = entry_in(held)
    if entry is None:
        raise ConfigurationError(
            "No gate is before this application: call protect(app, gate), and serve and test what "
            "it returns."
        )
    return entry


def _key(given: RuleBook, method: str, path: str, host: str | None) -> str:
    """Return the key of the given rule for a route, or the key that such a rule would have."""
    segments = Pattern.of(path).segments
    for name, target, _ in given:
        its_host, _, rest = target.partition("/")
        same_place = same_host(its_host, host or "") and Pattern.of(f"/{rest}").segments == segments
        if name == method and same_place:
            return f"{name} {target}"
    return f"{method} {host or ''}{path}"


def _can_be_named(path: str, rule: Rule) -> bool:
    try:
        Pattern.of(path)
    except ConfigurationError:
        if rule.cost > 1 or rule.slot or rule.limits:
            raise ConfigurationError(
                f"No rule can name {path!r}, so its endpoint can have no cost, no slot and no "
                "limit: let '{name:path}' be the whole last segment."
            ) from None
        return False
    return True
