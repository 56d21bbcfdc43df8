"""``lockgate explain``: why a request is refused, what the windows hold, and until when."""

import sys
from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote

import click

from ..core.access_rule import Rule
from ..core.limits import Limit
from ..core.scopes import Requirement, requirement
from ..core.timestamps import iso8601
from ..errors import ConfigurationError
from ..gate import Gate
from ..services.explain.findings import (
    Explanation,
    LimitExplanation,
    OpenExplanation,
    Reason,
    WindowExplanation,
)
from .organizations import built_in_plan, leases_document, note_unknown
from .output import json_option, print_fields, print_json, print_table, read_secret
from .routes import application_of, factory_option, scopes_of
from .settings import call, checked_id, gate_of, gate_option, store_option


@click.command()
@click.argument("organization", callback=checked_id, required=False)
@click.argument("id", required=False)
@click.option(
    "--address", help="the client's address, for keys of some addresses and limits by address"
)
@click.option("--user", help="the session's user, for the limits by user")
@click.option("--cost", type=click.IntRange(0), help="the units of the request (1)")
@click.option("--scope", help="the scope that the request needs")
@click.option("--app", "application", metavar="MODULE:APP", help="the application of --request")
@factory_option
@click.option("--request", metavar="'METHOD /PATH'", help="a request: its route has cost and scope")
@gate_option
@store_option
@json_option
def explain(
    organization: str | None,
    id: str | None,
    address: str | None,
    user: str | None,
    cost: int | None,
    scope: str | None,
    application: str | None,
    request: str | None,
    named: str | None,
    store: str | None,
    *,
    factory: bool,
    as_json: bool,
) -> None:
    """Explain what ORGANIZATION, or its key ID, may use now and why it is refused.

    Without ORGANIZATION the text of a key is read from standard input. Nothing is counted. For a
    request that costs more or needs a scope, give --cost and --scope, or the --app and the
    --request, whose route has both. A route that is open has no organization: leave it out.
    """
    if (application is None) is not (request is None):
        raise click.UsageError("Give both --app and --request, or neither.")
    needed: Requirement | None = None if scope is None else requirement(scope)
    limits: tuple[Limit, ...] = ()
    if application is None or request is None:
        gate = gate_of(named, store)
    elif cost is not None or scope is not None or store is not None:
        raise click.UsageError("The route has cost and scope, and its application the store.")
    else:
        gate, rule = _rule_of(application, request, factory=factory)
        if rule.public:
            _explain_open(gate, rule, request, organization or id, address, as_json=as_json)
            return
        cost, needed, limits = rule.cost, rule.requires, rule.limits
    if organization is None:
        subject = read_secret("Key: ")
        gate.format.parse(subject)  # Any other text would be taken for an organization.
    elif gate.format.redact(organization) != organization:
        raise ConfigurationError(
            "Every user of this machine sees the arguments of a command: write the text of a key "
            "to standard input of 'lockgate explain', and consider to revoke this one."
        )
    else:
        subject = organization

    async def work() -> tuple[Explanation, bool, bool]:
        found = await gate.explain(
            subject,
            id,
            address=address,
            user=user,
            cost=1 if cost is None else cost,
            requires=needed,
            limits=limits,
        )
        held = any(w.used for one in found.limits if one.source == "hold" for w in one.windows)
        may_be_unknown = not found.keys and found.unread is None and not held
        unknown = may_be_unknown and await note_unknown(gate, found.organization)
        return found, await _is_built_in(gate, found), unknown

    found, built_in, unknown = call(gate, work)
    if as_json:
        print_json({**_document(found), "built_in_plans": built_in})
    else:
        _print(found, built_in=built_in)
    if unknown:  # Its id may be mistyped, or that of a key.
        click.get_current_context().exit(1)


async def _is_built_in(gate: Gate, found: Explanation) -> bool:
    """Return whether limits of an explanation are those of a built-in plan.

    Raises:
        ConfigurationError: the organization is on a plan of the service, which the gate lacks.
    """
    if await built_in_plan(gate, found.organization) is None:
        return False
    if found.assigned not in {None, *gate.plans.names}:
        raise ConfigurationError(
            f"{found.organization!r} is on the plan {found.assigned!r}, whose numbers only the "
            "service has: name its gate by --gate or LOCKGATE_GATE."
        )
    return True


def _explain_open(
    gate: Gate,
    rule: Rule,
    request: str,
    organization: str | None,
    address: str | None,
    *,
    as_json: bool,
) -> None:
    """Explain a request to an open route by the named limits of its rule.

    Raises:
        ConfigurationError: an organization is given, or the rule has no limit.
    """
    if organization is not None:
        raise ConfigurationError(
            f"{request!r} is open: no organization is charged for it. Leave out ORGANIZATION."
        )
    if not rule.limits:
        raise ConfigurationError(
            f"{request!r} is open, and its rule has no limit: only the budget of its client's "
            "address limits it, which each process counts by itself."
        )
    found = call(gate, lambda: gate.explain_open(rule.limits, address))
    if as_json:
        document = {"request": request, "address": address, "at": iso8601(found.at)}
        print_json({**document, **_verdict(found)})
        return
    print_fields([("request", request), ("client", address), *_answer(found.refused)])
    if found.limits:
        print()
        _print_limits(found.limits)
    _print_unjudged(found.unjudged)


def _rule_of(application: str, request: str, *, factory: bool) -> tuple[Gate, Rule]:
    """Return the gate of an application, and the rule of a request such as ``POST /jobs/7``.

    Raises:
        ConfigurationError: the request cannot be read, or no rule takes its method.
    """
    # The modules of the web take half of the time in which a command starts.
    from ..web.protection import audit, guard_of

    method, _, target = request.partition(" ")
    path = unquote(target.strip().partition("?")[0])
    if not path.startswith("/"):
        raise ConfigurationError(f"{request!r} is no request: write it as 'POST /jobs/7'.")
    app = application_of(application, factory=factory)
    audit(app)  # The rules of endpoints are declared by it.
    guard = guard_of(app)
    rule = guard.book.match(method.upper(), path)
    if rule.allow is not None:
        raise ConfigurationError(f"{request!r} is answered with 405: use {', '.join(rule.allow)}.")
    return guard.gate, rule


def _document(found: Explanation) -> dict[str, Any]:
    """Return an explanation as JSON: instants are ISO 8601 in UTC, or null."""
    return {
        "organization_id": found.organization,
        "plan": found.plan.name,
        "assigned_plan": found.assigned,
        "at": iso8601(found.at),
        "cost": found.cost,
        "scopes": scopes_of(found.requires),
        **_verdict(found),
        "windows": [_window(window) for window in found.windows],
        "slots": {
            "limit": found.slots.limit,
            "used": found.slots.used,
            "until": _instant(found.slots.until),
        },
        "leased": leases_document(found.leased),
        "keys": [
            {
                "id": shown.key.id,
                "name": shown.key.name,
                "prefix": shown.key.prefix,
                "state": shown.state.value,
                "addresses": list(shown.key.addresses),
                "refused": _reason(shown.refused),
            }
            for shown in found.keys
        ],
        "more_keys": found.more_keys,
        "unread": found.unread,
    }


def _verdict(found: Explanation | OpenExplanation) -> dict[str, Any]:
    """Return the fields that the documents of guarded and of open routes share."""
    return {
        "refused": _reason(found.refused),
        "limits": [
            {
                "name": one.limit.name,
                "by": one.limit.subject,
                "source": one.source,
                "soft": one.limit.soft,
                "windows": [{**_window(window), "held": window.held} for window in one.windows],
            }
            for one in found.limits
        ],
        "unjudged": [{"name": one.name, "by": one.subject} for one in found.unjudged],
    }


def _window(window: WindowExplanation) -> dict[str, Any]:
    return {
        "name": window.name,
        "limit": window.limit,
        "used": window.used,
        "left": window.left,
        "until": _instant(window.until),
    }


def _reason(refused: Reason | None) -> dict[str, Any] | None:
    if refused is None:
        return None
    return {"code": refused.code, "until": _instant(refused.until), "advice": refused.advice}


def _instant(at: int | None) -> str | None:
    return None if at is None else iso8601(at)


def _answer(
    refused: Reason | None, used_up: Sequence[LimitExplanation] = ()
) -> list[tuple[str, object]]:
    """Return the lines on the verdict of the next request, and on full limits of holds."""
    others = [_refuses(one) for one in used_up]
    if refused is None:
        return [("next request", "; ".join(["admitted", *others]))]
    advice = f"refused: {refused.code}. {refused.advice}"
    told: list[tuple[str, object]] = [("next request", advice), ("until", _end(refused.until))]
    return [*told, *(("besides", other) for other in others)]


def _refuses(one: LimitExplanation) -> str:
    """Return what a full limit refuses, and until when."""
    what = "holds and charges of" if one.source == "hold" else "requests to rules with the limit"
    return f"{what} {one.limit.name!r} are refused until {_end(one.until)}"


def _end(until: int | None) -> str:
    return "it is changed" if until is None else iso8601(until)


def _print(found: Explanation, *, built_in: bool) -> None:
    plan = found.plan.name
    if found.assigned not in {None, plan}:
        plan += f" ({found.assigned!r} has no numbers here)"
    if built_in:
        plan += (
            " (with lockgate's numbers: if the service has others, name its gate by --gate or "
            "LOCKGATE_GATE)"
        )
    fields: list[tuple[str, object]] = [("organization", found.organization), ("plan", plan)]
    if found.requires is not None:
        fields.append(("needs", " ".join(scopes_of(found.requires))))
    if found.cost != 1:
        fields.append(("cost", found.cost))
    if found.unread is not None and found.refused is None:
        print_fields([*fields, ("next request", "not known")])
    else:
        print_fields([*fields, *_answer(found.refused, found.used_up)])
    if found.unread is not None:
        print(found.unread, file=sys.stderr)
    print()
    no_limit = "no limit"
    windows: list[tuple[object, ...]] = [
        (w.name, w.used, no_limit if w.limit is None else w.limit, w.left, _instant(w.until))
        for w in found.windows
    ] or [
        (w.name, "not known", no_limit if w.limit is None else w.limit, None, None)
        for w in found.plan.windows
    ]
    slots = found.slots
    limit, left = no_limit, None
    if slots.limit is not None:
        limit, left = str(slots.limit), max(0, slots.limit - slots.used)
    print_table(
        ["window", "used", "limit", "left", "until"],
        [*windows, ("jobs", slots.used, limit, left, _instant(slots.until))],
    )
    if found.leased is not None:
        units, until = found.leased.units, iso8601(found.leased.until)
        print()
        print(f"{units} of the units left are leased to processes until {until}")
    if found.limits:
        print()
        _print_limits(found.limits)
    _print_unjudged(found.unjudged)
    if found.keys:
        print()
        _print_keys(found)
    if found.more_keys:
        print("There are more keys: see 'lockgate keys list'.", file=sys.stderr)


def _print_limits(limits: Sequence[LimitExplanation]) -> None:
    """Print the windows of named limits."""
    print_table(
        ["limit", "by", "of", "window", "used", "held", "at most", "left", "until"],
        [
            (
                *(one.limit.name, one.limit.subject, one.source, window.name, window.used),
                *(window.held or None, f"{window.limit}{' (soft)' * one.limit.soft}"),
                *(window.left, _instant(window.until)),
            )
            for one in limits
            for window in one.windows
        ],
        order=["limit", "window", "used", "at most", "left", "until", "by", "held", "of"],
    )


def _print_unjudged(limits: Sequence[Limit]) -> None:
    """Print a line for each limit of the route that the verdict leaves out."""
    if limits:
        print()
    for limit in limits:
        by = f"is by {limit.subject}: give one to have it judged"
        if limit.subject == "function":
            by = "is by a function of the request, without which it cannot be judged"
        print(f"The limit {limit.name!r} of the route {by}.")


def _print_keys(found: Explanation) -> None:
    """Print the keys, with the error code that refuses each."""
    print_table(
        ["id", "prefix", "state", "name", "refused", "only from"],
        [
            (
                shown.key.id,
                f"{shown.key.prefix}...",
                shown.state.value,
                shown.key.name,
                None if shown.refused is None else shown.refused.code,
                " ".join(shown.key.addresses) or None,
            )
            for shown in found.keys
        ],
        order=["id", "refused", "state", "only from", "name"],
        folds=["name", "only from"],
    )
