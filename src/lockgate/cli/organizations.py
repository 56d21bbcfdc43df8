"""``lockgate orgs``: the plan and the usage of an organization."""

from typing import Any

import click

from ..gate import Gate
from ..services.rate_limit_status import Status, status_of
from .output import json_option, print_fields, print_json
from .settings import call, gate_of, gate_option, store_option

_LIMITS = ("rpm", "rph", "rpd", "concurrent")


@click.group()
def orgs() -> None:
    """Show and change the plans of organizations, and what they have used."""


@orgs.command()
@click.argument("organization")
@gate_option
@store_option
@json_option
def show(organization: str, named: str | None, store: str | None, *, as_json: bool) -> None:
    """Show the plan of ORGANIZATION, its limits, and what its windows count."""
    gate = gate_of(named, store)
    _print(organization, call(gate, lambda: _status(gate, organization)), as_json=as_json)


@orgs.command()
@click.argument("organization")
@click.argument("plan")
@click.option("--rpm", type=int, help="requests a minute instead of the plan's")
@click.option("--rph", type=int, help="requests an hour")
@click.option("--rpd", type=int, help="requests a day")
@click.option("--concurrent", type=int, help="jobs at the same time")
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
    the plan's.
    """
    gate = gate_of(named, store)
    given = {name: limit for name, limit in limits.items() if limit is not None}

    async def work() -> Status:
        await gate.organizations.place(organization, plan, **given)
        return await _status(gate, organization)

    _print(organization, call(gate, work), as_json=as_json)


async def _status(gate: Gate, organization: str) -> Status:
    plan = await gate.organizations.plan(organization)
    now = gate.clock() if gate.clock else None
    return status_of(plan, await gate.store.peek(organization, plan.windows, now))


def _print(organization: str, status: Status, *, as_json: bool) -> None:
    plan = status.plan
    if as_json:
        document: dict[str, Any] = {
            "organization_id": organization,
            "plan": plan.name,
            "limits": {name: getattr(plan, name) for name in _LIMITS},
            "usage": {name: usage._asdict() for name, usage in status.usage.items()},
        }
        print_json(document)
        return
    fields: list[tuple[str, object]] = [("organization", organization), ("plan", plan.name)]
    for name, (used, limit) in status.usage.items():
        fields.append((name, f"{used} of {'no limit' if limit is None else limit}"))
    jobs = plan.concurrent
    fields.append(("jobs", "no limit" if jobs is None else f"at most {jobs}"))
    print_fields(fields)
