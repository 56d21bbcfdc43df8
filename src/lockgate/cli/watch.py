"""``lockgate watch``: what the busiest organizations do, second by second."""

import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

import click

from ..core.timestamps import iso8601
from ..gate import Gate
from ..services.activity import Activity, OrganizationActivity, Tick
from ..services.store_errors import asking
from .organizations import leases_document
from .output import json_option, print_json, print_table, progress
from .settings import call, gate_of, gate_option, store_option

_SHORTEST: Final = 0.1


@click.command()
@click.option(
    "--every", type=click.FloatRange(_SHORTEST), default=1.0, show_default=True, metavar="SECONDS"
)
@click.option(
    "--most",
    type=click.IntRange(1, 200),
    default=20,
    show_default=True,
    help="organizations to watch: those with the latest use",
)
@click.option("--count", type=click.IntRange(1), help="end after so many lines or tables")
@gate_option
@store_option
@json_option
def watch(
    every: float,
    most: int,
    count: int | None,
    named: str | None,
    store: str | None,
    *,
    as_json: bool,
) -> int:
    """Show admissions and refusals a second by organization and key, and how full limits are.

    The figures are those of all processes, read from the store. Ends with Ctrl-C and exit code 0.
    """
    gate = gate_of(named, store)
    try:
        call(gate, lambda: _watch(gate, every, most, count, as_json=as_json))
    except KeyboardInterrupt:
        return 0
    except BrokenPipeError:  # As by "| head": the interpreter would report it once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


async def _watch(gate: Gate, every: float, most: int, count: int | None, *, as_json: bool) -> None:
    activity = Activity(
        *(gate.store, gate.organizations, gate.clock, most),
        lambda id, plan: gate.named_usage(id, None, plan),
    )
    with progress("Reading organizations"), asking(gate.events):
        await activity.tick()
    ticks = 0
    while count is None or ticks < count:
        await asyncio.sleep(every)
        with asking(gate.events):
            tick = await activity.tick()
        ticks += 1
        if as_json:
            print_json(_document(tick))
            sys.stdout.flush()
        else:
            _print(tick)


def _document(tick: Tick) -> dict[str, Any]:
    return {
        "at": iso8601(tick.at),
        "seconds": round(tick.seconds, 3),
        "admitted_per_second": round(tick.per_second, 1),
        "refused_per_second": round(tick.refused_per_second, 1),
        "organizations": [
            {
                "organization_id": one.id,
                "plan": one.plan.name,
                "admitted_per_second": round(one.per_second, 1),
                "refused_per_second": round(one.refused_per_second, 1),
                "full": None
                if one.until is None
                else {"window": one.full, "until": iso8601(one.until)},
                "usage": {name: usage._asdict() for name, usage in one.usage.items()},
                "named": [used._asdict() for used in one.named],
                "leased": leases_document(one.leased),
                "keys": [
                    {
                        "id": shown.key.id,
                        "prefix": shown.key.prefix,
                        "name": shown.key.name,
                        "admitted_per_second": round(shown.per_second, 1),
                        "refused_per_second": round(shown.refused_per_second, 1),
                    }
                    for shown in one.keys
                ],
            }
            for one in tick.organizations
        ],
    }


def _print(tick: Tick) -> None:
    if sys.stdout.isatty():
        click.clear()
    rates = f"{tick.per_second:.1f} admissions a second, {tick.refused_per_second:.1f} refused"
    print(f"{iso8601(tick.at)}  {rates}")
    names = [*tick.organizations[0].usage] if tick.organizations else []
    more = [name for name, text in _MORE.items() if any(map(text, tick.organizations))]
    rows = [row for one in tick.organizations for row in _rows(one, more)]
    print_table(
        ["a second", "refused", "key", *names, *more, "full until", "organization"],
        rows,
        order=["organization", "a second", "refused", "key", *names[:1], "full until", *more],
    )
    sys.stdout.flush()


def _limits(one: OrganizationActivity) -> str:
    """Return the named limits that are used."""
    return "; ".join(f"{used.title} {used.text}" for used in one.named if used.used)


def _leased(one: OrganizationActivity) -> str:
    """Return the units that are out on quota leases."""
    return "" if one.leased is None else str(one.leased.units)


_MORE: Final[dict[str, Callable[[OrganizationActivity], str]]] = {
    "limits": _limits,
    "leased": _leased,
}
"""The columns that are left out where no organization has a text for them."""


def _rows(one: OrganizationActivity, more: Sequence[str]) -> list[tuple[object, ...]]:
    """Return a row for an organization, and one for each of its three busiest keys.

    Args:
        one: the organization.
        more: the further columns.
    """
    usage = [
        str(used) if limit is None else f"{used} of {limit}" for used, limit in one.usage.values()
    ]
    usage += [_MORE[name](one) for name in more]
    until = None if one.until is None else f"{one.full} {iso8601(one.until)}"
    first = (f"{one.per_second:.1f}", f"{one.refused_per_second:.1f}", None, *usage, until, one.id)
    others = [
        (
            *(f"{used.per_second:.1f}", f"{used.refused_per_second:.1f}"),
            *(f"{used.key.prefix}...", *("" for _ in usage), "", used.key.name),
        )
        for used in one.keys[:3]
    ]
    return [first, *others]
