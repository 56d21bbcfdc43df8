"""``lockgate keys``: create, list, show, verify, update, rotate, revoke and import keys."""

import sys
from typing import Any, Final

import click

from ..core.api_keys import ENDS_SOON, NEVER, ApiKey, KeyDetails, KeyState
from ..core.timestamps import DAY, iso8601
from ..errors import InvalidRequest, KeyNotFound, Problem
from ..gate import Gate
from ..services.keys.keys import KeyPage
from ..services.keys.new_keys import CreatedKey
from ..services.keys.rotation_and_revocation import OVERLAP_DAYS, UNCHANGED, RotatedKey, Unchanged
from .entries import read_entries
from .imports import import_keys
from .key_options import (
    addresses_option,
    creator_option,
    labels_option,
    limits_option,
    replaced,
)
from .organizations import note_unknown
from .output import json_option, print_fields, print_json, print_table, read_secret
from .settings import call, gate_of, gate_option, organization_argument, store_option

_NOT_ACCEPTED: Final = (
    "A key begins like this, and this gate does not accept its row, maybe since the pepper of this "
    "command is wrong: LOCKGATE_PEPPER or the service's gate has it. {}"
)


@click.group()
def keys() -> None:
    """Create, find, change, import and verify keys; print their pattern."""


@keys.command()
@organization_argument
@click.argument("name")
@click.option("--scope", "scopes", multiple=True, help="what the key may do; repeat for more (*)")
@click.option("--days", type=float, help="days until the key expires (the service's maximum)")
@labels_option("a label of the key; repeat for more")
@addresses_option
@limits_option("a limit of the key, such as export=3/hour; repeat for more")
@creator_option
@gate_option
@store_option
@json_option
def create(
    organization: str,
    name: str,
    scopes: tuple[str, ...],
    days: float | None,
    labels: dict[str, str],
    addresses: tuple[str, ...],
    limits: dict[str, str],
    created_by: str,
    named: str | None,
    store: str | None,
    *,
    as_json: bool,
) -> None:
    """Create a key for ORGANIZATION, and print its text: this once and never again."""
    gate = gate_of(named, store)

    async def work() -> tuple[CreatedKey, int]:
        now = await gate.now()  # Before the change, whose result a failure would lose.
        created = await gate.keys.create(
            organization,
            name,
            scopes or ("*",),
            days,
            created_by=created_by,
            labels=labels,
            addresses=addresses,
            limits=limits,
        )
        return created, now

    created, now = call(gate, work)
    if as_json:
        print_json({**document_of(created.key, now), "api_key": created.text})
        return
    _print_text(created.text)


@keys.command("list")
@organization_argument
@click.option("--limit", default=100, show_default=True, help="keys to print, newest first")
@click.option("--cursor", help="the cursor of the page before")
@labels_option("only keys with this label; repeat for keys that have all")
@gate_option
@store_option
@json_option
def list_keys(
    organization: str,
    limit: int,
    cursor: str | None,
    labels: dict[str, str],
    named: str | None,
    store: str | None,
    *,
    as_json: bool,
) -> None:
    """List the keys of ORGANIZATION, whichever their state: newest first."""
    gate = gate_of(named, store)

    async def ask(wanted: int, after: str | None) -> KeyPage:
        return await gate.keys.list(organization, limit=wanted, cursor=after, labels=labels)

    async def work() -> tuple[KeyPage, int]:
        page = KeyPage(*await read_entries(ask, limit, cursor, "Reading keys"))
        if not page.keys:
            await note_unknown(gate, organization)
        return page, await gate.now()

    page, now = call(gate, work)
    if as_json:
        entries = [document_of(key, now) for key in page.keys]
        print_json({"keys": entries, "next_cursor": page.cursor})
        return
    print_table(
        ["id", "prefix", "state", "created", "ends", "last used", "requests", "name", "scopes"],
        [
            (
                key.id,
                f"{key.prefix}...",
                key.state(now).value,
                iso8601(key.created_at),
                None if key.ends_at == NEVER else iso8601(key.ends_at),
                None if key.last_used_at is None else iso8601(key.last_used_at),
                key.request_count,
                key.name,
                " ".join(key.scopes),
            )
            for key in page.keys
        ],
        order=["id", "name", "state", "last used", "requests", "ends", "prefix"],
        folds=["name", "scopes"],
    )
    if soon := sum(key.ends_soon(now) for key in page.keys):
        days = ENDS_SOON // DAY
        print(f"{soon} of these end within {days} days: rotate them.", file=sys.stderr)
    if page.cursor is not None:
        print(f"There are more: --cursor {page.cursor}", file=sys.stderr)


@keys.command()
@organization_argument
@click.argument("id")
@click.option("--name", help="another name")
@click.option("--scope", "scopes", multiple=True, help="instead of all its scopes; repeat for more")
@click.option("--days", type=float, help="days from now until it expires")
@click.option("--never-expires", is_flag=True, help="it has no expiry but the service's maximum")
@labels_option("instead of all its labels; repeat for more")
@click.option("--no-labels", is_flag=True, help="it has no label any more")
@addresses_option
@click.option("--any-address", is_flag=True, help="any address may use it")
@limits_option("instead of all its limits; repeat for more")
@click.option("--no-limits", is_flag=True, help="it has no limit of its own any more")
@gate_option
@store_option
@json_option
def update(
    organization: str,
    id: str,
    name: str | None,
    scopes: tuple[str, ...],
    days: float | None,
    labels: dict[str, str],
    addresses: tuple[str, ...],
    limits: dict[str, str],
    named: str | None,
    store: str | None,
    *,
    never_expires: bool,
    no_labels: bool,
    any_address: bool,
    no_limits: bool,
    as_json: bool,
) -> None:
    """Change the live key ID of ORGANIZATION; its text stays.

    Scopes, expiry, addresses and limits hold from the next request on.
    """
    new_labels = replaced(labels, dropped=no_labels, options=("--label", "--no-labels"))
    allowed = replaced(addresses, dropped=any_address, options=("--address", "--any-address"))
    own = replaced(limits, dropped=no_limits, options=("--limit", "--no-limits"))
    if never_expires and days is not None:
        raise click.UsageError("Give --days or --never-expires, not both.")
    given = name, days, new_labels, allowed, own
    if not (scopes or never_expires) and all(value is None for value in given):
        raise click.UsageError("Give something to change: see --help.")
    gate = gate_of(named, store)
    expiry: float | Unchanged | None = UNCHANGED
    if never_expires or days is not None:
        expiry = days

    async def work() -> tuple[ApiKey, int]:
        now = await gate.now()
        key = await gate.keys.update(
            organization,
            id,
            name=name,
            scopes=scopes or None,
            expires_in_days=expiry,
            labels=new_labels,
            addresses=allowed,
            limits=own,
        )
        return key, now

    _print(*call(gate, work), as_json=as_json)


@keys.command()
@organization_argument
@click.argument("id")
@click.option(
    "--overlap-days",
    type=float,
    default=OVERLAP_DAYS,
    show_default=True,
    help="days for which the old key still works, at most 90; 0 ends it at once",
)
@click.option("--yes", is_flag=True, help="do not ask before a key ends at once")
@creator_option
@gate_option
@store_option
@json_option
def rotate(
    organization: str,
    id: str,
    overlap_days: float,
    created_by: str,
    named: str | None,
    store: str | None,
    *,
    yes: bool,
    as_json: bool,
) -> None:
    """Replace the key ID of ORGANIZATION, and print the text of its successor: this once.

    The successor has the same name, scopes, lifetime, labels, addresses and limits. The old key
    works until the overlap is over.
    """
    gate = gate_of(named, store)

    async def work() -> tuple[RotatedKey, int]:
        if not yes and overlap_days == 0:
            _confirm("End", await gate.keys.get(organization, id))
        now = await gate.now()
        rotated = await gate.keys.rotate(
            organization, id, overlap_days=overlap_days, created_by=created_by
        )
        return rotated, now

    rotated, now = call(gate, work)
    if as_json:
        document = document_of(rotated.successor, now)
        print_json({**document, "api_key": rotated.text, "replaces": document_of(rotated.old, now)})
        return
    _print_text(rotated.text)
    old = rotated.old
    ends = "has ended" if old.revoked_at else f"works until {iso8601(old.ends_at)}"
    print(f"The old key {ends}.", file=sys.stderr)


@keys.command()
@organization_argument
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
        key, now = await gate.keys.get(organization, id), await gate.now()
        more = successors and key.successor is not None
        if not yes and (more or key.state(now) is KeyState.ACTIVE):
            _confirm("Revoke", key, " and its successors" if more else "")
        return await gate.keys.revoke(organization, id, successors=successors), now

    _print(*call(gate, work), as_json=as_json)


@keys.command()
@gate_option
@json_option
def pattern(named: str | None, *, as_json: bool) -> None:
    """Print the regular expression by which secret scanners find keys. No store is asked."""
    format = gate_of(named, None if named else "memory://").format
    if as_json:
        words = {"brand": format.brand, "environment": format.environment}
        print_json({**words, "pattern": format.scanner})
        return
    print(format.scanner)


@keys.command()
@gate_option
@store_option
@json_option
def verify(named: str | None, store: str | None, *, as_json: bool) -> None:
    """Look up a key by its text, which is read from standard input: whose it is and its state.

    Nothing is counted. Exit code 1 where the key is not active.
    """
    gate = gate_of(named, store)
    text = read_secret("Key: ")

    async def work() -> tuple[ApiKey, int]:
        return await _found(gate, text), await gate.now()

    key, now = call(gate, work)
    _print(key, now, as_json=as_json)
    if key.state(now) is not KeyState.ACTIVE:
        click.get_current_context().exit(1)


@keys.command()
@gate_option
@store_option
@json_option
def seal(named: str | None, store: str | None, *, as_json: bool) -> None:
    """Seal all rows of keys and accounts with the newest pepper, as after a restore or a rotation.

    Rows without a seal are refused, unless the gate has KeyOptions(accept_unsealed=True).
    """
    gate = gate_of(named, store)
    sealing = call(gate, gate.keys.seal)
    if as_json:
        print_json(sealing._asdict())
    else:
        print(f"{sealing.sealed:,} rows were sealed, {sealing.refused:,} refused.")
    if sealing.refused:
        click.get_current_context().exit(1)


keys.add_command(import_keys)


async def _found(gate: Gate, text: str) -> ApiKey:
    token = gate.format.parse(text)
    key = await gate.store.find(token.handle)
    if key is None:
        raise KeyNotFound
    if not token.accepts(key):
        found = await gate.explain(text)  # Refuses a wrong secret, if the pepper is known.
        (reason,) = [shown.refused for shown in found.keys]
        raise InvalidRequest([Problem("key", _NOT_ACCEPTED.format(reason and reason.advice))])
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
    document = document_of(key, now)
    if as_json:
        print_json(document)
        return
    values = [(name, shown(value)) for name, value in document.items()]
    print_fields(values)


def shown(value: Any) -> object:
    """Return a value of :func:`document_of` for people."""
    if isinstance(value, dict):
        return " ".join(f"{name}={text}" for name, text in value.items()) or None  # pyright: ignore[reportUnknownVariableType] - labels
    return " ".join(value) or None if isinstance(value, list) else value  # pyright: ignore[reportUnknownArgumentType] - scopes


def document_of(key: ApiKey, now: int) -> dict[str, Any]:
    """Return a key as JSON: instants are ISO 8601 in UTC, or null."""
    details = key.details or KeyDetails()
    instants = {
        "created_at": key.created_at,
        "expires_at": key.expires_at,
        "revoked_at": key.revoked_at,
        "rotated_at": details.rotated_at,
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
        "ends_soon": key.ends_soon(now),
        "successor_id": details.successor,
        "created_by": details.created_by,
        "labels": dict(details.labels),
        "addresses": list(details.addresses),
        "limits": dict(details.limits),
    }
