"""``lockgate orgs``: list organizations, show and change their plans, limits and windows."""

import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from secrets import token_hex
from shlex import quote
from typing import Any, Final, NamedTuple, TypeVar

import click

from ..core.instants import Instant, datetime_of
from ..core.ledger import Peek
from ..core.limit_changes import read_limit
from ..core.plans import LIMITS, SPANS, Plan
from ..core.timestamps import iso8601
from ..errors import InvalidRequest, Problem, StoreError, StoreUnavailable
from ..gate import Gate
from ..services.explain.explanations import leases_of
from ..services.explain.findings import LeasesExplanation
from ..services.organizations import OrganizationPage, OwnLimits
from ..services.usage.rate_limit_status import LimitUsage, WindowUsage, status_of
from ..stores.answers import UnreadableState
from ..stores.committed import read_after_commit
from ..stores.resilience.failures import is_outage, kind_of
from .entries import read_entries
from .instants import read_end
from .output import json_option, plain, print_fields, print_json, print_table
from .settings import (
    BUILT_IN,
    UNAVAILABLE,
    call,
    gate_of,
    gate_option,
    organization_argument,
    store_option,
)

EACH: Final = {
    limit: f"{'an' if name == 'hour' else 'a'} {name}" for limit, (name, _) in SPANS.items()
}
"""The window of each limit as a text, such as ``a day`` for ``rpd``."""
_COUNTED: Final = {
    **{limit: f"requests {span}" for limit, span in EACH.items()},
    "concurrent": "jobs at the same time",
}
"""What each limit of a plan counts."""
F = TypeVar("F", bound=Callable[..., Any])


def limit_options(notes: Mapping[str, str], **settings: Any) -> Callable[[F], F]:
    """Return a decorator that adds an option for each limit of a plan to a command.

    Args:
        notes: the ends of their help texts, by the name of the limit.
        settings: the settings of each option, as click takes them.
    """

    def decorate(command: F) -> F:
        for name in reversed(LIMITS):
            what = _COUNTED[name] + notes.get(name, "")
            command = click.option(f"--{name}", help=what, **settings)(command)
        return command

    return decorate


own_limit_options: Final = limit_options({"rpm": " instead of the plan's"}, type=int)
"""Adds the options of an organization's own limits to a command."""


@click.group()
def orgs() -> None:
    """List organizations, show and change their plans and limits, and what they have used."""


@orgs.command("list")
@click.option("--plan", help="only organizations to which this plan applies")
@click.option("--limit", default=100, show_default=True, help="about how many to print")
@click.option("--cursor", help="the cursor of the page before")
@gate_option
@store_option
@json_option
def list_organizations(
    plan: str | None,
    limit: int,
    cursor: str | None,
    named: str | None,
    store: str | None,
    *,
    as_json: bool,
) -> None:
    """List the organizations that have a key or an assigned plan, with live keys and last use."""
    gate = gate_of(named, store)
    page = call(gate, lambda: _page(gate, limit, cursor, plan))
    if as_json:
        entries = [
            {
                "organization_id": one.id,
                "plan": one.plan.name,
                "assigned_plan": one.assigned,
                "live_keys": one.live_keys,
                "last_used_at": None if one.last_used_at is None else iso8601(one.last_used_at),
            }
            for one in page.organizations
        ]
        print_json({"organizations": entries, "next_cursor": page.cursor})
        return
    print_table(
        ["plan", "live keys", "last used", "organization"],
        [
            (
                *(one.plan.name, one.live_keys),
                *(None if one.last_used_at is None else iso8601(one.last_used_at), one.id),
            )
            for one in page.organizations
        ],
        order=["organization", "last used", "live keys"],
    )
    if page.cursor is not None:
        print(f"There are more: --cursor {page.cursor}", file=sys.stderr)


@orgs.command()
@organization_argument
@gate_option
@store_option
@json_option
def show(organization: str, named: str | None, store: str | None, *, as_json: bool) -> None:
    """Show the plan of ORGANIZATION, its limits, and what its windows and named limits count."""
    gate = gate_of(named, store)

    async def work() -> Use:
        await note_unknown(gate, organization)
        if (plan := await built_in_plan(gate, organization)) is not None:
            note = "if the service has other plans, name its gate by --gate or LOCKGATE_GATE."
            print(f"The limits are those of lockgate's plan {plan!r}: {note}", file=sys.stderr)
        own = await gate.organizations.plan(organization)
        try:
            return await read_status(gate, organization)
        except Exception as failure:  # Of a pair, the database has the plan.
            if not is_outage(failure):
                raise
            print(f"What is counted is not known: {kind_of(failure)}.", file=sys.stderr)
            return Use(own)

    use = call(gate, work)
    print_status(organization, use, as_json=as_json)
    if use.usage is None:
        click.get_current_context().exit(UNAVAILABLE)


@orgs.command()
@organization_argument
@click.argument("plan")
@own_limit_options
@gate_option
@store_option
@json_option
def place(
    organization: str,
    plan: str,
    named: str | None,
    store: str | None,
    *,
    as_json: bool,
    **limits: int | None,
) -> None:
    """Put ORGANIZATION on PLAN, with limits of its own if some are given.

    It holds from the next request on; what is counted stays counted. Limits that are not given are
    the plan's. Standard error names an organization that is new.
    """
    gate = gate_of(named, store)
    given = {name: limit for name, limit in limits.items() if limit is not None}

    async def work() -> tuple[Use, bool]:
        known = await gate.organizations.is_known(organization)
        placed = await gate.organizations.place(organization, plan, **given)
        return await status_after(gate, organization, gate.plans.plan_of(placed, 0)), known

    status, known = call(gate, work)
    print_status(organization, status, as_json=as_json)
    if not known:
        print("This is a new organization: check its id if you meant another.", file=sys.stderr)


@orgs.command()
@organization_argument
@limit_options(
    {"rpm": "; +N adds to the present limit", "concurrent": "; none: no limit"}, metavar="N"
)
@click.option("--clear", multiple=True, type=click.Choice([*LIMITS, "all"]), help="the plan's")
@click.option(
    "--until",
    callback=read_end,
    help="the end of what is set: tonight (midnight here), 2h, 3d, 2026-11-24 or 2026-11-24T09:30",
)
@click.option("--end", is_flag=True, help="end all temporary limits now")
@click.option("--change-id", help="names the change: repeated with the same name, it is made once")
@gate_option
@store_option
@json_option
def limits(
    organization: str,
    clear: tuple[str, ...],
    until: Instant | None,
    change_id: str | None,
    named: str | None,
    store: str | None,
    *,
    end: bool,
    as_json: bool,
    **given: str | None,
) -> None:
    """Show the limits of ORGANIZATION, or set and clear its own.

    They hold from the next request on, until they are cleared or --until an instant, when the
    limits of before hold again; the plan stays. N is a number, +N to add to the present limit, or
    none for no limit. Without --until +N adds to what holds when temporary limits have ended.
    """
    changes = {name: change for name, change in given.items() if change is not None}
    if both := [name for name in changes if name in clear or "all" in clear]:
        raise click.UsageError(f"Set {both[0]} or clear it, not both.")
    if end and (changes or clear):
        raise click.UsageError("--end only ends temporary limits: set and clear in another call.")
    if until is not None and not changes:
        raise click.UsageError("--until is the end of a limit: give one, such as --rpd +500.")
    gate = gate_of(named, store)

    async def work() -> OwnLimits:
        await _check_known(gate, organization)
        found = await gate.organizations.limits(organization)
        # What outlasts the temporary limits is not to contain them.
        present = found.lasting if until is None else found.plan
        values = {name: _limit(name, change, present) for name, change in changes.items()}
        cleared = LIMITS if "all" in clear else clear
        if values:
            ends_at = None if until is None else datetime_of(until.after(await gate.now()))
            with _repeatable(changes, change_id) as name:
                return await gate.organizations.set_limits(
                    organization, until=ends_at, clear=cleared, change_id=name, **values
                )
        if end:
            return await gate.organizations.end_temporary_limits(organization)
        if cleared:
            return await gate.organizations.clear_limits(organization, *cleared)
        return found

    found = call(gate, work)
    _print_limits(organization, found, as_json=as_json)
    if changes and not as_json and until is None and found.assigned not in gate.plans.custom:
        clearing = " ".join(f"--clear {name}" for name in changes)
        command = f"lockgate orgs limits {quote(organization)} {clearing}"
        print(f"This holds until it is cleared: {plain(command)}", file=sys.stderr)


@orgs.command()
@organization_argument
@click.option("--yes", is_flag=True, help="do not ask")
@gate_option
@store_option
@json_option
def reset(
    organization: str, named: str | None, store: str | None, *, yes: bool, as_json: bool
) -> None:
    """Empty the windows of ORGANIZATION: it may use its limits anew.

    Named limits are emptied too, calendar quotas such as the use of this month included, and holds
    end. So are windows that are damaged. Keys, plan and slots stay. Processes forget remembered
    refusals within a second.
    """
    gate = gate_of(named, store)

    async def work() -> Use:
        await _check_known(gate, organization)
        if not yes:
            try:
                usage = (await read_status(gate, organization)).usage or {}
                used = ", ".join(f"{used.used} in the {name}" for name, used in usage.items())
            except UnreadableState:
                used = "its windows are damaged"
            click.confirm(
                f"Forget the usage of {organization!r} ({used}), its holds, and the use of all "
                "named limits, calendar quotas included?",
                abort=True,
                err=True,
            )
        plan = await gate.organizations.plan(organization)
        await gate.organizations.reset(organization)
        return await status_after(gate, organization, plan)

    print_status(organization, call(gate, work), as_json=as_json)


async def note_unknown(gate: Gate, organization: str) -> bool:
    """Say on standard error that an organization is unknown, if it is: its id may be mistyped.

    Returns:
        Whether it is unknown.
    """
    if await gate.organizations.is_known(organization):
        return False
    print(f"{_unknown(gate, organization)}.", file=sys.stderr)
    return True


async def built_in_plan(gate: Gate, organization: str) -> str | None:
    """Return the built-in plan that an organization has here; None: its limits are known.

    They are known by the gate of the service, and of an organization that has all windows' limits
    itself.
    """
    if gate.plans is not BUILT_IN:
        return None
    found = await gate.organizations.limits(organization)
    is_own = SPANS.keys() <= found.own.keys() | found.temporary.keys()
    return None if is_own else found.plan.name


async def _check_known(gate: Gate, organization: str) -> None:
    """Refuse an unknown organization: a mistyped id must not create one.

    Raises:
        InvalidRequest: it is unknown.
    """
    if not await gate.organizations.is_known(organization):
        remedy = "check the id; 'lockgate orgs create' or 'orgs place' puts a new one on a plan."
        message = f"{_unknown(gate, organization)}: {remedy}"
        raise InvalidRequest([Problem("organization", message)])


def _unknown(gate: Gate, organization: str) -> str:
    shown = gate.format.redact(organization)  # It may be a key, pasted in the wrong place.
    return f"{shown!r} has no key, no plan and no use"


async def _page(gate: Gate, limit: int, cursor: str | None, plan: str | None) -> OrganizationPage:
    """Walk through all organizations until there are enough."""

    async def ask(wanted: int, after: str | None) -> OrganizationPage:
        return await gate.organizations.list(limit=wanted, cursor=after, plan=plan)

    return OrganizationPage(*await read_entries(ask, limit, cursor, "Reading organizations"))


@contextmanager
def _repeatable(changes: Mapping[str, str], change_id: str | None) -> Generator[str | None]:
    """Yield the name of a change that adds to limits, and print it if the outcome is unknown."""
    if change_id is None and any(change.startswith("+") for change in changes.values()):
        change_id = token_hex(8)
    try:
        yield change_id
    except (StoreUnavailable, StoreError, TimeoutError):
        if change_id is not None:
            told = f"If you repeat this, add --change-id {quote(change_id)}: then it is made once."
            print(plain(told), file=sys.stderr)
        raise


def _limit(name: str, change: str, present: Plan) -> int | None:
    """Return a limit as an option gives it: ``N``, ``+N`` or ``none``."""
    try:
        return read_limit(change, getattr(present, name))
    except ValueError as problem:
        raise click.BadParameter(f"{change!r}: {problem}", param_hint=name) from None


def _print_limits(organization: str, found: OwnLimits, *, as_json: bool) -> None:
    limits = {name: getattr(found.plan, name) for name in LIMITS}
    if as_json:
        document = {
            "organization_id": organization,
            "plan": found.plan.name,
            "assigned_plan": found.assigned,
            "limits": limits,
            "own_limits": dict(found.own),
            "temporary_limits": {
                name: {"limit": limit, "until": iso8601(until)}
                for name, (limit, until) in found.temporary.items()
            },
        }
        print_json(document)
        return
    print_fields([("organization", organization), ("plan", found.plan.name)])
    print()
    rows = [
        (name, "no limit" if limit is None else limit, _source(name, found))
        for name, limit in limits.items()
    ]
    print_table(["limit", "number", "from"], rows)


def _source(name: str, found: OwnLimits) -> str:
    """Return where a limit comes from, and the end of a temporary one."""
    source = "own" if name in found.own else "plan"
    if name not in found.temporary:
        return source
    return f"own until {iso8601(found.temporary[name].until)}"


class Use(NamedTuple):
    """The plan of an organization, and the use of all its limits."""

    plan: Plan
    usage: Mapping[str, WindowUsage] | None = None
    """By window; None: it could not be read."""
    named: tuple[LimitUsage, ...] = ()
    leased: LeasesExplanation | None = None


async def read_status(gate: Gate, organization: str) -> Use:
    """Return the plan of an organization, and what its windows and named limits count."""
    plan = await gate.organizations.plan(organization)
    now = gate.clock() if gate.clock else None
    status = status_of(plan, await gate.store.charge(organization, Peek(plan.windows), now))
    named = await gate.named_usage(organization, None, plan)
    return Use(plan, status.usage, named, await leases_of(gate.store, organization, now))


async def status_after(gate: Gate, organization: str, plan: Plan) -> Use:
    """Return :func:`read_status` after a change; if that fails, the plan alone (D52)."""
    return await read_after_commit(organization, read_status(gate, organization), Use(plan))


def leases_document(leased: LeasesExplanation | None) -> dict[str, Any] | None:
    """Return quota leases as JSON."""
    return None if leased is None else {"units": leased.units, "until": iso8601(leased.until)}


def print_status(organization: str, use: Use, *, as_json: bool) -> None:
    """Print the plan of an organization, and what its windows and named limits count."""
    plan = use.plan
    usage: dict[str, tuple[int | None, int | None]] = {
        window.name: (None, window.limit) for window in plan.windows
    }
    usage.update(use.usage or {})
    if as_json:
        document: dict[str, Any] = {
            "organization_id": organization,
            "plan": plan.name,
            "limits": {name: getattr(plan, name) for name in LIMITS},
            "usage": {
                name: {"used": used, "limit": limit} for name, (used, limit) in usage.items()
            },
            "named": [used._asdict() for used in use.named],
            "leased": leases_document(use.leased),
        }
        print_json(document)
        return
    fields: list[tuple[str, object]] = [("organization", organization), ("plan", plan.name)]
    for name, (used, limit) in usage.items():
        shown = "not known" if used is None else used
        fields.append((name, f"{shown} of {'no limit' if limit is None else limit}"))
    jobs = plan.concurrent
    fields.append(("jobs", "no limit" if jobs is None else f"at most {jobs}"))
    fields += [(used.title, used.text) for used in use.named]
    if (leased := use.leased) is not None:
        fields.append(
            ("leased", f"{leased.units} of the units left, until {iso8601(leased.until)}")
        )
    print_fields(fields)
