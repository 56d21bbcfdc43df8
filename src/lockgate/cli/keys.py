"""``lockgate keys``: create, list, show, verify and revoke keys."""

import sys
from getpass import getpass
from typing import Any

import click

from ..core.api_keys import ApiKey, KeyState
from ..core.timestamps import iso8601
from ..errors import NotFound
from ..gate import Gate
from ..services.keys import CreatedKey, KeyPage
from .output import json_option, print_fields, print_json, print_table
from .settings import call, gate_of, gate_option, store_option


@click.group()
def keys() -> None:
    """Create, list, show, verify and revoke keys."""


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
    print(created.text)
    if sys.stdout.isatty():
        print("Keep it now: it is not shown again.", file=sys.stderr)


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
@click.option("--yes", is_flag=True, help="do not ask: a revoked key never works again")
@gate_option
@store_option
@json_option
def revoke(
    organization: str, id: str, named: str | None, store: str | None, *, yes: bool, as_json: bool
) -> None:
    """Revoke the key ID of ORGANIZATION, for good: no request with it succeeds from then on."""
    gate = gate_of(named, store)

    async def work() -> tuple[ApiKey, int]:
        key = await gate.keys.get(organization, id)
        if not yes and key.state(await gate.now()) is KeyState.ACTIVE:
            used = "never used" if key.last_used_at is None else f"used {iso8601(key.last_used_at)}"
            question = f"Revoke {key.name!r} ({key.prefix}..., last {used}) for good?"
            click.confirm(question, abort=True, err=True)
        return await gate.keys.revoke(organization, id), await gate.now()

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
    """A key as JSON: instants are ISO 8601 in UTC, or null."""
    instants = {
        "created_at": key.created_at,
        "expires_at": key.expires_at,
        "revoked_at": key.revoked_at,
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
    }
