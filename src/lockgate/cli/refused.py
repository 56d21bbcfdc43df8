"""``lockgate keys refused``: which keys of all organizations are refused most."""

import sys
from typing import Any, get_args

import click

from ..core.timestamps import iso8601
from ..core.usage_history import Last
from ..services.usage.most_refused import MostRefused, Period, RefusedKey, most_refused
from .output import json_option, print_json, print_table, progress
from .settings import call, gate_of, gate_option, store_option

_OTHERS = "(sessions, removed keys)"
_NONE = "No refusal was recorded in the last {}."
_NOT_KEPT = (
    " A service records refusals with Gate(features=[UsageHistory()]), from its next start on; "
    "the gate of this command does not."
)


@click.command("refused")
@click.option(
    "--last",
    type=click.Choice(get_args(Period)),
    default="hour",
    show_default=True,
    help="the period, up to now",
)
@click.option(
    "--most", type=click.IntRange(1, 1000), default=20, show_default=True, help="keys to print"
)
@gate_option
@store_option
@json_option
def refused_keys(
    last: Period, most: int, named: str | None, store: str | None, *, as_json: bool
) -> None:
    """List the keys of all organizations that were refused, those with the most 429s first.

    The service has to record refusals: Gate(features=[UsageHistory()]).
    """
    gate = gate_of(named, store)

    async def work() -> MostRefused:
        with progress("Reading organizations") as show:
            now = await gate.now()
            return await most_refused(gate.store, gate.organizations, now, last, most, show)

    found = call(gate, work)
    if as_json:
        entries = [_document(one) for one in found.keys]
        print_json({"last": last, "at": iso8601(found.at), "keys": entries, "more": found.more})
    elif found.keys:
        _print(found.keys)
    if not found.keys:
        print(
            _NONE.format(last) + ("" if gate.recorder is not None else _NOT_KEPT), file=sys.stderr
        )
    if found.more and not as_json:
        print(f"{found.more:,} more keys were refused: give --most.", file=sys.stderr)


def _document(one: RefusedKey) -> dict[str, Any]:
    key = one.key
    return {
        "organization_id": one.organization,
        "key_id": None if key is None else key.id,
        "name": None if key is None else key.name,
        "prefix": None if key is None else key.prefix,
        "refused": dict(one.refused),
        "statuses": dict(one.statuses),
        "last_error": _last(one.last_error),
        "last_address": _last(one.last_address),
    }


def _last(last: Last | None) -> dict[str, str] | None:
    return None if last is None else {"text": last.text, "at": iso8601(last.at)}


def _print(found: list[RefusedKey]) -> None:
    statuses = sorted({status for one in found for status in one.statuses} | {"429"})
    print_table(
        [*statuses, "organization", "key", "refused by", "last refused", "address", "name"],
        [
            (
                *(one.statuses.get(status, 0) for status in statuses),
                *(one.organization, None if one.key is None else one.key.id),
                ", ".join(f"{number} x {kind}" for kind, number in sorted(one.refused.items())),
                None if one.last_error is None else iso8601(one.last_error.at),
                None if one.last_address is None else one.last_address.text,
                _OTHERS if one.key is None else one.key.name,
            )
            for one in found
        ],
        order=["429", "key", "organization", "refused by", "name", "last refused"],
        folds=["refused by", "name"],
    )
