"""``lockgate audit``: the change log of an organization."""

import sys
from typing import Any

import click

from ..core.changes import Actor, Change, Fields
from ..core.instants import Instant
from ..core.plan_changes import headline
from ..core.plans import LIMITS
from ..core.timestamps import iso8601
from ..services.change_log import CHANGES_BY_DEFAULT, ChangePage
from .entries import read_entries
from .instants import read_since
from .organizations import note_unknown
from .output import json_option, print_json, print_table
from .settings import call, gate_of, gate_option, organization_argument, store_option

_UNTIL = " until "


@click.command()
@organization_argument
@click.option("--key", metavar="ID", help="only changes that concern this key")
@click.option(
    "--limit", default=CHANGES_BY_DEFAULT, show_default=True, help="changes to print, newest first"
)
@click.option("--cursor", help="the cursor of the page before")
@click.option(
    "--since",
    callback=read_since,
    help="only changes from this instant on: 2026-11-23, 2026-11-23T09:30, or 90m, 24h or 7d ago",
)
@gate_option
@store_option
@json_option
def audit(
    organization: str,
    key: str | None,
    limit: int,
    cursor: str | None,
    since: Instant | None,
    named: str | None,
    store: str | None,
    *,
    as_json: bool,
) -> None:
    """Show who changed the keys, the plan and the account of ORGANIZATION: newest first."""
    gate = gate_of(named, store)

    async def ask(wanted: int, before: str | None) -> ChangePage:
        return await gate.changes.list(organization, key=key, limit=wanted, cursor=before)

    async def work() -> ChangePage:
        page = ChangePage(*await read_entries(ask, limit, cursor, "Reading changes"))
        if not page.changes:
            await note_unknown(gate, organization)
        return page if since is None else _from(page, since.before(await gate.now()))

    page = call(gate, work)
    if as_json:
        entries = [_document(change) for change in page.changes]
        print_json({"changes": entries, "next_cursor": page.cursor})
        return
    print_table(
        ["at", "change", "by", "address", "key", "from and to"],
        [
            (
                iso8601(change.at),
                headline(change),
                name_of(change.actor),
                change.actor.address,
                change.key,
                _summary(change),
            )
            for change in page.changes
        ],
        order=["at", "change", "by", "from and to", "key"],
        folds=["by", "from and to"],
    )
    if page.cursor is not None:
        print(f"There are more: --cursor {page.cursor}", file=sys.stderr)


def _from(page: ChangePage, since: int) -> ChangePage:
    """Return the changes of a page from an instant on; the last page if one of them is older."""
    found = [change for change in page.changes if change.at >= since]
    return ChangePage(found, page.cursor if len(found) == len(page.changes) else None)


def name_of(actor: Actor) -> str:
    """Return an actor for people, such as ``operator grace``."""
    return actor.kind if actor.id is None else f"{actor.kind} {actor.id}"


def _summary(change: Change) -> str:
    """Return what a change replaced and set, such as ``name: a -> b``."""
    before, after = _told(change.before, change.at), _told(change.after, change.at)
    names = [
        name
        for name in dict.fromkeys([*before, *after])
        if name not in before or name not in after or before[name] != after[name]
    ]
    return ", ".join(
        f"{name}: {_text(name, before[name])} -> {_replaced(name, after)}"
        if name in before
        else f"{name}: {_text(name, after[name])}"
        for name in names
    )


def _told(fields: Fields, at: int) -> dict[str, Any]:
    """Return fields as :func:`_values`, a temporary limit as ``rpd until 2026-11-24...``.

    Without those that had reached their ends at the instant of the change.
    """
    found = _values(fields)
    for name in LIMITS:
        if f"temporary_{name}" in found:
            end, limit = found.pop(f"temporary_{name}_ends_at"), found.pop(f"temporary_{name}")
            if end > iso8601(at):
                found[f"{name}{_UNTIL}{end}"] = limit
    return found


def _limit(name: str) -> str:
    """Return the limit that a field is about, without its end."""
    return name.partition(_UNTIL)[0]


def _replaced(name: str, after: dict[str, Any]) -> str:
    """Return the value after a change; an own limit that is absent there was cleared."""
    if _UNTIL in name and name not in after:
        return "ended early"
    cleared = _limit(name) in LIMITS and name not in after
    return "the plan's" if cleared else _text(name, after.get(name))


def _text(name: str, value: Any) -> str:
    if value is None and _limit(name) in LIMITS:
        return "no limit"
    return "-" if value is None else " ".join(value) if isinstance(value, list) else str(value)  # pyright: ignore[reportUnknownArgumentType] - scopes


def _values(fields: Fields) -> dict[str, Any]:
    """Return fields as JSON: instants are ISO 8601 in UTC, scopes a list."""
    found: dict[str, Any] = {}
    for name, value in fields:
        if name.endswith("_at") and isinstance(value, int):
            found[name] = iso8601(value)
        else:
            found[name] = list(value) if isinstance(value, tuple) else value
    return found


def _document(change: Change) -> dict[str, Any]:
    return {
        "number": change.number,
        "at": iso8601(change.at),
        "action": change.action,
        "key_id": change.key,
        "actor": change.actor._asdict(),
        "from": _values(change.before),
        "to": _values(change.after),
    }
