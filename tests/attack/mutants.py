"""Faults that were once in the gate: each switches a check off, for a campaign that must find it.

A served process, or a run of pytest with ``-p tests.attack.mutants``, makes the fault whose name is
in the environment before it builds an application. The library itself stays as it is.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, Final

from lockgate import Rule, mcp
from lockgate.core import path_rules, request_paths
from lockgate.core.access_rule import ANY_KEY
from lockgate.core.path_rules import PathRules
from lockgate.core.request_paths import Pattern
from lockgate.core.rule_book import RuleBook
from lockgate.core.scopes import Catalogue
from lockgate.principal import Caller
from lockgate.web import audit, mcp_calls, mcp_dispatch, mcp_rules, requirements
from lockgate.web.entry import principal_of
from lockgate.web.guard import Guard
from lockgate.web.operations.table import check

MUTANT: Final = "LOCKGATE_ATTACK_MUTANT"

_NEVER: Final = re.compile(r"(?!)")


def no_check_at_dispatch() -> None:
    """The route that a framework matches is not compared with the rule (D31 d)."""

    def verify_route(self: Guard, rule: Rule, *_: object, **__: object) -> Rule:
        return rule

    _set(Guard, verify_route=verify_route)


def preflights_run_handlers() -> None:
    """Fault 1: two headers make a public request of an OPTIONS, and a handler answers it."""
    no_check_at_dispatch()
    for name in ("asgi", "wsgi", "django"):
        _set(import_module(f"lockgate.{name}"), PREFLIGHT=object())


def last_slashes_are_other_paths() -> None:
    """Fault 2: the other spelling of a path is looked up only where no rule matches."""
    no_check_at_dispatch()
    most_specific: Callable[..., list[path_rules.Entry]] = vars(PathRules)["_most_specific"]
    unnamed: path_rules.Entry = vars(path_rules)["_UNNAMED"]

    def concerned(self: PathRules, path: str) -> list[path_rules.Entry]:
        return most_specific(self, path, exactly=True) or [unnamed]

    _set(PathRules, _concerned=concerned)


def unnamed_methods_take_any_key() -> None:
    """Fault 3: a method that no rule of a path names is let in with any key, at a cost of 1."""
    no_check_at_dispatch()

    def not_allowed(_: Mapping[str, Rule]) -> Rule:
        return ANY_KEY

    _set(path_rules, not_allowed=not_allowed)


def absolute_forms_are_paths() -> None:
    """Fault 4: a target that does not start with a slash is a path that no rule names."""
    no_check_at_dispatch()
    match = RuleBook.match

    def lenient(
        self: RuleBook, method: str, path: str, raw: bytes = b"", hosts: Sequence[bytes] = ()
    ) -> Rule:
        if path[:1] != "/" or (raw and raw[:1] != b"/"):
            return ANY_KEY
        return match(self, method, path, raw, hosts)

    _set(RuleBook, match=lenient)


def control_characters_are_plain() -> None:
    """Fault 5: no rule matches a path with a line feed at its end."""
    no_check_at_dispatch()
    _set(request_paths, _CONTROL=_NEVER, _SUSPECT=re.compile(r"[%;\\?#]|//|/\."))


def declared_costs_are_not_charged() -> None:
    """Fault 6: the gate does not see what an endpoint declares, and the endpoint takes it so."""

    def required(_: object, __: str) -> Rule | None:
        return None

    _everywhere("required", required)
    _everywhere("admitted", _checks_the_scope_alone)


def declared_costs_of_methods_are_not_charged() -> None:
    """Fault 6: the requirement of a class's method is checked there, and its cost not charged."""

    def required(endpoint: object, _: str) -> Rule | None:
        return requirements.declaration(endpoint).rule

    _everywhere("required", required)
    _everywhere("admitted", _checks_the_scope_alone)


def dead_patterns_are_rules() -> None:
    """Fault 6: a rule with a path that no request has, such as ``/v1/<int:id>``, is accepted."""
    _set(Pattern, of=Pattern.of_route)


def decorators_above_routes_do_nothing() -> None:
    """Fault 6: ``@requires`` above the line that makes a route is accepted."""

    def check_decorators(_: object) -> None:
        return None

    _everywhere("check_decorators", check_decorators)


def made_up_scopes_are_scopes() -> None:
    """Fault 6: a scope that no key can have is accepted."""

    def check_requirement(_: Catalogue, __: object) -> None:
        return None

    _set(Catalogue, check_requirement=check_requirement)


def costs_above_limits_are_silent() -> None:
    """Fault 6: the audit does not report a cost above the smallest limit."""

    def costs(_: Guard) -> Iterator[str]:
        return iter(())

    _set(audit, unaffordable=costs)


def headers_name_the_calls_of_every_version() -> None:
    """Headers of MCP decide where no server holds them against the body, and dispatch trusts it."""

    def admitted(_: object, ctx: Any) -> mcp_dispatch.Running:
        calls: mcp_calls.Calls = ctx.request.scope[mcp_dispatch.CALLS]
        assert calls.entry is not None, "the gate has admitted the request"
        return mcp_dispatch.Running(calls, calls.calls[0], calls.entry)

    def call(headers: mcp_calls.RoutingHeaders) -> mcp_calls.Call | None:
        given = headers._replace(version=b"2026-07-28")
        return None if headers.method is None else original(given)

    original: Callable[..., mcp_calls.Call | None] = vars(mcp_calls.RoutingHeaders)["call"].fget
    _set(mcp_calls.RoutingHeaders, call=property(call))
    _set(mcp_dispatch.DispatchCheck, _admitted=admitted, check=lambda *_: None)


def sessions_of_mcp_belong_to_anyone() -> None:
    """The SDK is not told who calls, so that each key may use and end the session of another."""
    _set(mcp, _User=lambda _: None)


def declared_rules_of_tools_are_not_charged() -> None:
    """What the function of a tool declares is no rule of the gate, nor checked when it runs."""
    _set(mcp_rules, declaration=lambda _: requirements.declaration(None))
    _set(mcp, check_declared=lambda *_: None)


def mutate() -> None:
    """Make the fault that the environment names, if any."""
    name = os.environ.get(MUTANT)
    if name is not None:
        globals()[name]()


def pytest_configure() -> None:
    mutate()


def _checks_the_scope_alone(rule: Rule, held: Mapping[str, Any], _: object) -> Caller:
    principal: Any = check(rule, principal_of(held))
    return Caller._make(principal)


def _everywhere(name: str, new: object) -> None:
    """Replace a function of ``requirements``, in the modules that import it as well."""
    _set(requirements, **{name: new})
    for module in ("flask", "starlette", "web.werkzeug_routes", "web.starlette_routes"):
        there = import_module(f"lockgate.{module}")
        if hasattr(there, name):
            _set(there, **{name: new})


def _set(owner: object, **new: object) -> None:
    for name, value in new.items():
        assert hasattr(owner, name), f"{owner} has no {name} any more: mutate what replaced it"
        setattr(owner, name, value)
