"""``lockgate audit``: the change log of an organization, or of all."""

import sys
from typing import IO, Any, Final, NamedTuple

import click

from ..core.changes import Actor, Change, Fields
from ..core.instants import Instant
from ..core.plan_changes import headline
from ..core.plans import LIMITS
from ..core.timestamps import iso8601
from ..gate import Gate
from ..services.change_log import CHANGES_BY_DEFAULT, ChangePage
from .entries import read_entries
from .instants import read_since
from .organizations import note_unknown
from .output import json_option, print_json, print_table, progress
from .replay import Replayed, read_changes, replay
from .settings import call, checked_id, gate_of, gate_option, store_option

_UNTIL: Final = " until "
_PAGE: Final = 250
"""Changes that one call reads."""


class _Found(NamedTuple):
    """Changes, each with its organization, and the cursor of the next page."""

    changes: list[tuple[str, Change]]
    cursor: str | None


@click.command()
@click.argument("organization", callback=checked_id, required=False)
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
@click.option(
    "--replay",
    "file",
    type=click.File(encoding="utf-8"),
    help="after a restore, revoke and update again the keys of the changes that --json printed",
)
@gate_option
@store_option
@json_option
def audit(
    organization: str | None,
    key: str | None,
    limit: int,
    cursor: str | None,
    since: Instant | None,
    file: IO[str] | None,
    named: str | None,
    store: str | None,
    *,
    as_json: bool,
) -> None:
    """Show who changed the keys, the plan and the account of ORGANIZATION: newest first.

    Without ORGANIZATION: all changes --since an instant, of each that has a key or a plan.
    """
    gate = gate_of(named, store)
    if file is not None:
        changes = read_changes(file)
        _print_replayed(call(gate, lambda: replay(gate, changes)), as_json=as_json)
    elif organization is not None:
        _print(call(gate, lambda: _of(gate, organization, key, limit, cursor, since)), as_json)
    elif since is None or cursor is not None or key is not None:
        raise click.UsageError("Name an organization; or give --since alone, for all of them.")
    else:
        _print(call(gate, lambda: _of_all(gate, since)), as_json)


async def _of(
    gate: Gate,
    organization: str,
    key: str | None,
    limit: int,
    cursor: str | None,
    since: Instant | None,
) -> _Found:
    async def ask(wanted: int, before: str | None) -> ChangePage:
        return await gate.changes.list(organization, key=key, limit=wanted, cursor=before)

    page = ChangePage(*await read_entries(ask, limit, cursor, "Reading changes"))
    if not page.changes:
        await note_unknown(gate, organization)
    if since is not None:
        page = _from(page, since.before(await gate.now()))
    return _Found([(organization, change) for change in page.changes], page.cursor)


async def _of_all(gate: Gate, since: Instant) -> _Found:
    """Return the changes of all organizations from an instant on."""
    start, found, step = since.before(await gate.now()), list[tuple[str, Change]](), None
    with progress("Reading organizations") as show:
        while True:
            page = await gate.organizations.list(cursor=step)
            for one in page.organizations:
                cursor = None
                while True:
                    more = await gate.changes.list(one.id, limit=_PAGE, cursor=cursor)
                    cursor = (part := _from(more, start)).cursor
                    found += [(one.id, change) for change in part.changes]
                    if cursor is None:
                        break
            show(f"{len(found)} found")
            if (step := page.cursor) is None:
                break
    unique = {(id, change.number): (id, change) for id, change in found}
    return _Found(sorted(unique.values(), key=lambda each: each[1].at, reverse=True), None)


def _print_replayed(done: Replayed, *, as_json: bool) -> None:
    if as_json:
        rest = [{**change, "reason": reason} for change, reason in done.remaining]
        print_json({"made": done.made, "remaining": rest})
    else:
        rows = [(change, "made again") for change in done.made] + done.remaining
        names = "organization_id", "action", "key_id"
        print_table(
            ["organization", "change", "key", "result"],
            [(*(change[name] for name in names), result) for change, result in rows],
        )
    if done.remaining:
        click.get_current_context().exit(1)


def _print(found: _Found, as_json: bool) -> None:
    if as_json:
        entries = [_document(id, change) for id, change in found.changes]
        print_json({"changes": entries, "next_cursor": found.cursor})
        return
    print_table(
        ["at", "organization", "change", "by", "address", "key", "from and to"],
        [
            (
                iso8601(change.at),
                id,
                headline(change),
                name_of(change.actor),
                change.actor.address,
                change.key,
                _summary(change),
            )
            for id, change in found.changes
        ],
        order=["at", "organization", "change", "by", "from and to", "key"],
        folds=["by", "from and to"],
    )
    if found.cursor is not None:
        print(f"There are more: --cursor {found.cursor}", file=sys.stderr)


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


def _document(organization: str, change: Change) -> dict[str, Any]:
    return {
        "organization_id": organization,
        "number": change.number,
        "at": iso8601(change.at),
        "action": change.action,
        "key_id": change.key,
        "actor": change.actor._asdict(),
        "from": _values(change.before),
        "to": _values(change.after),
    }
