"""``lockgate keys``: create, list, show, verify, update, rotate and revoke keys."""

import sys
from getpass import getpass
from typing import Any

import click

from ..core.api_keys import ApiKey, KeyState
from ..core.timestamps import iso8601
from ..errors import NotFound
from ..gate import Gate
from ..services.key_changes import OVERLAP_DAYS, UNCHANGED, RotatedKey, Unchanged
from ..services.keys import KeyPage
from ..services.new_keys import CreatedKey
from .output import json_option, print_fields, print_json, print_table
from .settings import call, gate_of, gate_option, store_option


@click.group()
def keys() -> None:
    """Create, list, show, verify, update, rotate and revoke keys."""


@keys.command()
@click.argument("organization")
@click.argument("name")
@click.option("--scope", "scopes", multiple=True, help="what the key may do; repeat for more (*)")
@click.option("--days", type=float, help="days until the key expires (never)")
@gate_option
@store_option
@json_option
def create(
    organization: str,
    name: str,
    scopes: tuple[str, ...],
    days: float | None,
    named: str | None,
    store: str | None,
    *,
    as_json: bool,
) -> None:
    """Create a key for ORGANIZATION, and print its text: this once and never again."""
    gate = gate_of(named, store)

    async def work() -> tuple[CreatedKey, int]:
        return await gate.keys.create(organization, name, scopes or ("*",), days), await gate.now()

    created, now = call(gate, work)
    if as_json:
        print_json({**_document(created.key, now), "api_key": created.text})
        return
    _print_text(created.text)


@keys.command("list")
@click.argument("organization")
@click.option("--limit", default=100, show_default=True, help="keys to print, newest first")
@click.option("--cursor", help="the cursor of the page before")
@gate_option
@store_option
@json_option
def list_keys(
    organization: str,
    limit: int,
    cursor: str | None,
    named: str | None,
    store: str | None,
    *,
    as_json: bool,
) -> None:
    """List the keys of ORGANIZATION, whichever their state: newest first."""
    gate = gate_of(named, store)

    async def work() -> tuple[KeyPage, int]:
        return await gate.keys.list(organization, limit=limit, cursor=cursor), await gate.now()

    page, now = call(gate, work)
    if as_json:
        entries = [_document(key, now) for key in page.keys]
        print_json({"keys": entries, "next_cursor": page.cursor})
        return
    print_table(
        ["id", "prefix", "state", "created", "last used", "requests", "name", "scopes"],
        [
            (
                key.id,
                f"{key.prefix}...",
                key.state(now).value,
                iso8601(key.created_at),
                None if key.last_used_at is None else iso8601(key.last_used_at),
                key.request_count,
                key.name,
                " ".join(key.scopes),
            )
            for key in page.keys
        ],
    )
    if page.cursor is not None:
        print(f"There are more: --cursor {page.cursor}", file=sys.stderr)


@keys.command()
@click.argument("organization")
@click.argument("id")
@gate_option
@store_option
@json_option
def show(
    organization: str, id: str, named: str | None, store: str | None, *, as_json: bool
) -> None:
    """Show the key ID of ORGANIZATION."""
    gate = gate_of(named, store)

    async def work() -> tuple[ApiKey, int]:
        return await gate.keys.get(organization, id), await gate.now()

    _print(*call(gate, work), as_json=as_json)


@keys.command()
@click.argument("organization")
@click.argument("id")
@click.option("--name", help="another name")
@click.option("--scope", "scopes", multiple=True, help="instead of all its scopes; repeat for more")
@click.option("--days", type=float, help="days from now until it expires")
@click.option("--never-expires", is_flag=True, help="it has no expiry any more")
@gate_option
@store_option
@json_option
def update(
    organization: str,
    id: str,
    name: str | None,
    scopes: tuple[str, ...],
    days: float | None,
    named: str | None,
    store: str | None,
    *,
    never_expires: bool,
    as_json: bool,
) -> None:
    """Change the live key ID of ORGANIZATION; its text stays.

    Scopes and expiry hold from the next request on.
    """
    if never_expires and days is not None:
        raise click.UsageError("Give --days or --never-expires, not both.")
    if not (name is not None or scopes or days is not None or never_expires):
        raise click.UsageError("Give something to change: see --help.")
    gate = gate_of(named, store)
    expiry: float | Unchanged | None = UNCHANGED
    if never_expires or days is not None:
        expiry = days

    async def work() -> tuple[ApiKey, int]:
        key = await gate.keys.update(
            organization, id, name=name, scopes=scopes or None, expires_in_days=expiry
        )
        return key, await gate.now()

    _print(*call(gate, work), as_json=as_json)


@keys.command()
@click.argument("organization")
@click.argument("id")
@click.option(
    "--overlap-days",
    type=float,
    default=OVERLAP_DAYS,
    show_default=True,
    help="days for which the old key still works, at most 90; 0 ends it at once",
)
@click.option("--yes", is_flag=True, help="do not ask before a key ends at once")
@gate_option
@store_option
@json_option
def rotate(
    organization: str,
    id: str,
    overlap_days: float,
    named: str | None,
    store: str | None,
    *,
    yes: bool,
    as_json: bool,
) -> None:
    """Replace the key ID of ORGANIZATION, and print the text of its successor: this once.

    The successor has the same name, scopes and lifetime. The old key works until the overlap is
    over.
    """
    gate = gate_of(named, store)

    async def work() -> tuple[RotatedKey, int]:
        if not yes and overlap_days == 0:
            _confirm("End", await gate.keys.get(organization, id))
        rotated = await gate.keys.rotate(organization, id, overlap_days=overlap_days)
        return rotated, await gate.now()

    rotated, now = call(gate, work)
    if as_json:
        document = _document(rotated.successor, now)
        print_json({**document, "api_key": rotated.text, "replaces": _document(rotated.old, now)})
        return
    _print_text(rotated.text)
    old = rotated.old
    ends = "has ended" if old.revoked_at else f"works until {iso8601(old.ends_at)}"
    print(f"The old key {ends}.", file=sys.stderr)


@keys.command()
@click.argument("organization")
@click.argument("id")
@click.option("--successors", is_flag=True, help="the keys as well that replaced it by rotation")
@click.option("--yes", is_flag=True, help="do not ask: a revoked key never works again")
@gate_option
@store_option
@json_option
def revoke(
    organization: str,
    id: str,
    named: str | None,
    store: str | None,
    *,
    successors: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Revoke the key ID of ORGANIZATION, for good: no request with it succeeds from then on."""
    gate = gate_of(named, store)

    async def work() -> tuple[ApiKey, int]:
        key = await gate.keys.get(organization, id)
        more = successors and key.successor is not None
        if not yes and (more or key.state(await gate.now()) is KeyState.ACTIVE):
            _confirm("Revoke", key, " and its successors" if more else "")
        revoked = await gate.keys.revoke(organization, id, successors=successors)
        return revoked, await gate.now()

    _print(*call(gate, work), as_json=as_json)


@keys.command()
@gate_option
@store_option
@json_option
def verify(named: str | None, store: str | None, *, as_json: bool) -> None:
    """Look up a key by its text, which is read from standard input: whose it is and its state.

    Nothing is counted. Exit code 1 where the key is not active.
    """
    gate = gate_of(named, store)
    text = getpass("Key: ") if sys.stdin.isatty() else sys.stdin.readline()

    async def work() -> tuple[ApiKey, int]:
        return await _found(gate, text.strip()), await gate.now()

    key, now = call(gate, work)
    _print(key, now, as_json=as_json)
    if key.state(now) is not KeyState.ACTIVE:
        click.get_current_context().exit(1)


async def _found(gate: Gate, text: str) -> ApiKey:
    token = gate.format.read([b"Bearer " + text.encode()])
    key = await gate.store.find(token.handle)
    if key is None or not token.accepts(key):
        raise NotFound
    return key


def _confirm(verb: str, key: ApiKey, others: str = "") -> None:
    """Ask for confirmation before a key ends."""
    used = "never used" if key.last_used_at is None else f"used {iso8601(key.last_used_at)}"
    question = f"{verb} {key.name!r} ({key.prefix}..., last {used}){others} for good?"
    click.confirm(question, abort=True, err=True)


def _print_text(text: str) -> None:
    """Print the text of a new key alone, so that a script can keep it."""
    print(text)
    if sys.stdout.isatty():
        print("Keep it now: it is not shown again.", file=sys.stderr)


def _print(key: ApiKey, now: int, *, as_json: bool) -> None:
    document = _document(key, now)
    if as_json:
        print_json(document)
        return
    values = [(name, _shown(value)) for name, value in document.items()]
    print_fields(values)


def _shown(value: Any) -> object:
    return " ".join(value) if isinstance(value, list) else value  # pyright: ignore[reportUnknownArgumentType] - scopes


def _document(key: ApiKey, now: int) -> dict[str, Any]:
    """Return a key as JSON: instants are ISO 8601 in UTC, or null."""
    instants = {
        "created_at": key.created_at,
        "expires_at": key.expires_at,
        "revoked_at": key.revoked_at,
        "rotated_at": None if key.details is None else key.details.rotated_at,
        "last_used_at": key.last_used_at,
    }
    return {
        "id": key.id,
        "organization_id": key.organization,
        "name": key.name,
        "prefix": key.prefix,
        "state": key.state(now).value,
        "scopes": list(key.scopes),
        **{name: None if at is None else iso8601(at) for name, at in instants.items()},
        "request_count": key.request_count,
        "successor_id": key.successor,
    }
