"""``lockgate explain``: why a request is refused, what the windows hold, and until when."""

import sys
from getpass import getpass
from typing import Any

import click

from ..core.timestamps import iso8601
from ..errors import ConfigurationError
from ..services.explanations import Explanation, Reason
from .output import json_option, print_fields, print_json, print_table
from .settings import call, gate_of, gate_option, store_option


@click.command()
@click.argument("organization", required=False)
@click.argument("id", required=False)
@gate_option
@store_option
@json_option
def explain(
    organization: str | None, id: str | None, named: str | None, store: str | None, *, as_json: bool
) -> None:
    """Explain what ORGANIZATION, or its key ID, may use now and why it is refused.

    Without ORGANIZATION the text of a key is read from standard input. Nothing is counted.
    """
    gate = gate_of(named, store)
    if organization is None:
        line = getpass("Key: ") if sys.stdin.isatty() else sys.stdin.readline()
        subject = line.strip()
    elif gate.format.redact(organization) != organization:
        raise ConfigurationError(
            "Every user of this machine sees the arguments of a command: write the text of a key "
            "to standard input of 'lockgate explain', and consider to revoke this one."
        )
    else:
        subject = organization
    found = call(gate, lambda: gate.explain(subject, id))
    if as_json:
        print_json(_document(found))
        return
    _print(found)


def _document(found: Explanation) -> dict[str, Any]:
    """Return an explanation as JSON: instants are ISO 8601 in UTC, or null."""
    return {
        "organization_id": found.organization,
        "plan": found.plan.name,
        "assigned_plan": found.assigned,
        "at": iso8601(found.at),
        "refused": _reason(found.refused),
        "windows": [
            {
                "name": window.name,
                "limit": window.limit,
                "used": window.used,
                "left": window.left,
                "until": _instant(window.until),
            }
            for window in found.windows
        ],
        "slots": {
            "limit": found.slots.limit,
            "used": found.slots.used,
            "until": _instant(found.slots.until),
        },
        "keys": [
            {
                "id": shown.key.id,
                "name": shown.key.name,
                "prefix": shown.key.prefix,
                "state": shown.state.value,
                "refused": _reason(shown.refused),
            }
            for shown in found.keys
        ],
        "more_keys": found.more_keys,
    }


def _reason(refused: Reason | None) -> dict[str, Any] | None:
    if refused is None:
        return None
    return {"code": refused.code, "until": _instant(refused.until), "advice": refused.advice}


def _instant(at: int | None) -> str | None:
    return None if at is None else iso8601(at)


def _print(found: Explanation) -> None:
    plan = found.plan.name
    if found.assigned not in {None, plan}:
        plan += f" ({found.assigned!r} has no numbers here)"
    refused = found.refused
    answer = "admitted" if refused is None else f"refused: {refused.code}. {refused.advice}"
    fields: list[tuple[str, object]] = [
        ("organization", found.organization),
        ("plan", plan),
        ("next request", answer),
    ]
    if refused is not None:
        fields.append(
            ("until", "it is changed" if refused.until is None else iso8601(refused.until))
        )
    print_fields(fields)
    print()
    no_limit = "no limit"
    windows = [
        (w.name, w.used, no_limit if w.limit is None else w.limit, w.left, _instant(w.until))
        for w in found.windows
    ]
    slots = found.slots
    limit, left = no_limit, None
    if slots.limit is not None:
        limit, left = str(slots.limit), max(0, slots.limit - slots.used)
    print_table(
        ["window", "used", "limit", "left", "until"],
        [*windows, ("jobs", slots.used, limit, left, _instant(slots.until))],
    )
    if found.keys:
        print()
        print_table(
            ["id", "prefix", "state", "name", "refused"],
            [
                (
                    shown.key.id,
                    f"{shown.key.prefix}...",
                    shown.state.value,
                    shown.key.name,
                    None if shown.refused is None else shown.refused.code,
                )
                for shown in found.keys
            ],
        )
    if found.more_keys:
        print("There are more keys: see 'lockgate keys list'.", file=sys.stderr)
