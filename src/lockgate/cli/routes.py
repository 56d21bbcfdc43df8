"""``lockgate routes`` and ``openapi``: who may call what, and the description for its callers."""

import sys
from collections.abc import Iterable, Iterator
from inspect import signature
from typing import TYPE_CHECKING, Any, Final, cast

import click

from ..core.scopes import Requirement
from ..errors import ConfigurationError
from .output import json_option, print_json, print_table
from .settings import gate_of, gate_option, loaded, store_option

if TYPE_CHECKING:
    from ..web.audit import Audit, AuditedRoute
    from ..web.operations.openapi import Described

_METHODS: Final = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"})

_application: Final = click.argument("application", metavar="MODULE:APP")
factory_option: Final = click.option(
    "--factory", is_flag=True, help="APP is a function that returns the application"
)


@click.command()
@_application
@factory_option
@click.option("--strict", is_flag=True, help="exit code 1 where the audit finds something")
@json_option
def routes(application: str, *, factory: bool, strict: bool, as_json: bool) -> int:
    """List the routes of an application with what each requires: open, guarded or undecided.

    MODULE:APP is what a server serves, after protect(). An undecided route is named by no rule: any
    valid key is admitted, whatever its scopes, or every request is answered with 405.
    """
    found = _audit_of(application, factory=factory)
    entries = [_entry(route) for route in found.routes]
    if as_json:
        print_json({"routes": entries, "problems": found.problems})
    else:
        names = "method", "access", "accepts", "scopes", "cost", "slot", "limits", "path"
        rows = [[_shown(entry[name]) for name in names] for entry in entries]
        print_table(names, rows)
        for problem in found.problems:
            print(problem, file=sys.stderr)
    return 1 if strict and found.problems else 0


@click.command()
@click.argument("application", metavar="[MODULE:APP]", required=False)
@factory_option
@click.option("--title", help="the title of the document")
@gate_option
@store_option
def openapi(
    application: str | None,
    title: str | None,
    named: str | None,
    store: str | None,
    *,
    factory: bool,
) -> None:
    """Print the OpenAPI document of lockgate's operations, or of a whole application.

    FastAPI's own document is printed with what each operation requires. Of other frameworks it has
    the routes, what they require and how they are refused, but no bodies.
    """
    from ..web.operations.openapi import describe
    from ..web.protection import audit, guard_of

    if application is None:
        gate = gate_of(named, store)
        if gate.sessions is None:
            raise ConfigurationError(
                "This gate serves no operations: name the service's gate, with "
                "Gate(sessions=...), by --gate or LOCKGATE_GATE."
            )
        document: dict[str, Any] = describe(gate, title or f"{gate.format.brand} API")
    else:
        app = application_of(application, factory=factory)
        guard = guard_of(app)
        routes = audit(app).routes  # The rules of endpoints are declared by it.
        own = getattr(app, "openapi", None)
        if callable(own):
            document = cast(dict[str, Any], own())
            if title is not None:
                document = {**document, "info": {**document["info"], "title": title}}
        else:
            name = title or f"{guard.gate.format.brand} API"
            document = describe(guard.gate, name, _described(routes))
    print_json(document, indent=2)


def _audit_of(named: str, *, factory: bool) -> "Audit":
    """Return the audit of an application, also where it is strict and refuses to be made."""
    from ..web.audit import StrictAuditFailed
    from ..web.protection import audit

    try:
        return audit(application_of(named, factory=factory))
    except StrictAuditFailed as failed:
        return failed.found


def application_of(named: str, *, factory: bool) -> object:
    """Return an application by ``module:name``, or what a factory of this name returns.

    Raises:
        ConfigurationError: the name is of no application, or of no factory.
    """
    name, bracket, _ = named.partition("(")
    if bracket:
        raise ConfigurationError(f"{named!r} is a call: write {name} --factory.")
    found = loaded(named, "application")
    if not factory:
        if _needs_no_argument(found):
            raise ConfigurationError(
                f"{named!r} is no application: if it is a function that returns one, add --factory."
            )
        return found
    if not callable(found):
        raise ConfigurationError(f"{named!r} is no function: leave out --factory.")
    return found()


def _needs_no_argument(found: object) -> bool:
    """Return whether an object can be called without arguments, as no application can."""
    if not callable(found):
        return False
    try:
        signature(found).bind()
    except (TypeError, ValueError):  # Some built-in functions have no signature.
        return False
    return True


def _described(routes: "Iterable[AuditedRoute]") -> "Iterator[Described]":
    """Yield the application's own routes for a document."""
    for method, path, rule, _ in routes:
        if not rule.own and rule.allow is None and method in _METHODS:
            yield method, "/" + path.partition("/")[2], rule, f"{method} {path}"


def _entry(route: "AuditedRoute") -> dict[str, Any]:
    """Return a route as JSON."""
    rule = route.rule
    access = "open" if rule.public else "guarded" if route.named else "undecided"
    return {
        "method": route.method,
        "path": route.path,
        "access": access,
        "accepts": [] if rule.public or rule.allow is not None else list(rule.accepts),
        "scopes": scopes_of(rule.requires),
        "cost": None if rule.public else rule.cost,
        "slot": "background" if rule.background else rule.slot,
        "limits": [str(limit) for limit in rule.limits],
    }


def scopes_of(needed: Requirement | None) -> list[str]:
    """Return the scopes of a requirement; empty for None."""
    found: list[str] = []
    while needed is not None:
        found.append(needed.scope)
        needed = needed.also
    return found


def _shown(value: object) -> object:
    if isinstance(value, list):
        return " ".join(value) or None  # pyright: ignore[reportUnknownArgumentType] - texts
    return None if value is False else value
