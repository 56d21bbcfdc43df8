"""``lockgate orgs usage``: what an organization or a key used over time."""

import sys
from datetime import UTC, datetime
from typing import Any, Final, get_args

import click

from ..core.api_keys import ApiKey
from ..core.timestamps import SECOND, iso8601
from ..core.usage_history import By, Last
from ..gate import Gate
from ..services.usage.reports import UsageReport
from .output import json_option, print_fields, print_json, print_table, progress
from .settings import call, gate_of, gate_option, organization_argument, store_option

_WIDTH: Final = 30
"""Characters of the longest bar."""
_KEYS_AT_ONCE: Final = 100
_NOTHING: Final = "Nothing was recorded in this time."
_NOT_KEPT: Final = (
    "Nothing was recorded in this time. A service records usage with "
    "Gate(features=[UsageHistory()]), from its next start on; the gate of this command does not."
)
_FORMATS: Final[dict[By, str]] = {
    "minute": "%H:%M",
    "hour": "%Y-%m-%d %H:00",
    "day": "%Y-%m-%d",
}


@click.command()
@organization_argument
@click.option("--key", metavar="ID", help="one key of the organization, by its id")
@click.option("--keys", "of_keys", is_flag=True, help="instead: each key with its refusals")
@click.option(
    "--by",
    type=click.Choice(get_args(By)),
    default="hour",
    show_default=True,
    help="minutes of the latest hour, hours of a week, or days of 400 days",
)
@gate_option
@store_option
@json_option
def usage(
    organization: str,
    key: str | None,
    by: By,
    named: str | None,
    store: str | None,
    *,
    of_keys: bool,
    as_json: bool,
) -> None:
    """Show what ORGANIZATION, or one of its keys, used over time, and how often it was refused.

    The service has to keep that: Gate(features=[UsageHistory()]). Times are in UTC.
    """
    if of_keys and key is not None:
        raise click.UsageError("Give --key or --keys, not both.")
    gate = gate_of(named, store)
    if of_keys:
        found = call(gate, lambda: _each_key(gate, organization, by))
        _print_keys(found, organization, by, as_json=as_json)
        recorded = any(report.cells for _, report in found)
    else:
        report = call(gate, lambda: gate.usage(organization, key, by))
        if as_json:
            print_json(_document(report))
        else:
            _print(report)
        recorded = bool(report.cells)
    if not recorded:
        print(_NOTHING if gate.recorder is not None else _NOT_KEPT, file=sys.stderr)


async def _each_key(gate: Gate, organization: str, by: By) -> list[tuple[ApiKey, UsageReport]]:
    """Return the keys that were used or refused, the most refused first."""
    found: list[tuple[ApiKey, UsageReport]] = []
    cursor: str | None = None
    with progress("Reading keys") as show:
        while True:
            page = await gate.keys.list(organization, limit=_KEYS_AT_ONCE, cursor=cursor)
            for key in page.keys:
                found.append((key, await gate.usage(organization, key.id, by)))
            show(f"{len(found):,} keys")
            cursor = page.cursor
            if cursor is None:
                break
    used = [one for one in found if one[1].cells]
    return sorted(used, key=lambda one: (-sum(one[1].refused.values()), -one[1].admitted))


def _print_keys(
    found: list[tuple[ApiKey, UsageReport]], organization: str, by: By, *, as_json: bool
) -> None:
    if as_json:
        entries = [
            {
                "key_id": key.id,
                "name": key.name,
                "prefix": key.prefix,
                "admitted": report.admitted,
                "used": report.used,
                "refused": report.refused,
                "statuses": report.statuses,
                "last_error": _last(report.last_error),
            }
            for key, report in found
        ]
        print_json({"organization_id": organization, "by": by, "keys": entries})
        return
    statuses = sorted({status for _, report in found for status in report.statuses})
    limits = sorted({name for _, report in found for name in report.used})
    print_table(
        ["id", "admitted", *limits, *statuses, "last error", "name"],
        [
            (
                *(key.id, report.admitted),
                *(report.used.get(name, 0) for name in limits),
                *(report.statuses.get(status, 0) for status in statuses),
                *(_shown(report.last_error), key.name),
            )
            for key, report in found
        ],
        order=["id", *statuses, "admitted", "name"],
    )


def _document(report: UsageReport) -> dict[str, Any]:
    return {
        "organization_id": report.organization,
        "key_id": report.key,
        "by": report.by,
        "at": iso8601(report.now),
        "admitted": report.admitted,
        "used": report.used,
        "refused": report.refused,
        "statuses": report.statuses,
        "cells": [
            {"start": iso8601(start), "admitted": admitted, "used": used, "refused": refused}
            for start, admitted, refused, used in report.cells
        ],
        "last_address": _last(report.last_address),
        "last_error": _last(report.last_error),
    }


def _last(last: Last | None) -> dict[str, str] | None:
    return None if last is None else {"text": last.text, "at": iso8601(last.at)}


def _print(report: UsageReport) -> None:
    most = max((cell.admitted for cell in report.cells), default=0)
    limits = sorted(report.used)
    rows = [
        (
            datetime.fromtimestamp(start // SECOND, UTC).strftime(_FORMATS[report.by]),
            admitted,
            # A cell with any use has a bar that shows.
            "█" * (-(-admitted * _WIDTH // most) if most else 0),
            *(used.get(name, 0) for name in limits),
            ", ".join(f"{number} x {kind}" for kind, number in refused.items()) or None,
        )
        for start, admitted, refused, used in report.cells
    ]
    if rows:
        titles = report.by, "admitted", "", *limits, "refused"
        print_table(titles, rows, order=(report.by, "admitted", *limits, "refused"))
        print()
    fields: list[tuple[str, object]] = [
        ("admitted", report.admitted),
        *((f"  {name}", report.used[name]) for name in limits),
        ("refused", sum(report.refused.values())),
        *((f"  {status}", number) for status, number in report.statuses.items()),
        ("last address", _shown(report.last_address)),
        ("last error", _shown(report.last_error)),
    ]
    print_fields(fields)


def _shown(last: Last | None) -> str | None:
    return None if last is None else f"{last.text} at {iso8601(last.at)}"
