"""``lockgate keys find``: whose is this key, by a part of it that is shown, its id or its text."""

import sys

import click

from ..core.api_keys import ApiKey
from ..core.key_format import KeyFormat
from ..core.key_search import holds_secret
from ..core.timestamps import iso8601
from ..errors import ConfigurationError
from ..gate import Gate
from ..services.keys.search import KeysFound
from .entries import read_entries
from .keys import document_of
from .output import json_option, pasted, print_json, print_table, read_secret
from .settings import call, gate_of, gate_option, store_option

_IN_HISTORY = (
    "This is more of a key than its prefix, and every user of this machine sees the arguments of a "
    "command, which the shell's history keeps: delete the line there ('history -d'), and rotate "
    "the key if it is yours. Write its text to standard input of 'lockgate keys find', without an "
    "argument."
)


@click.command("find")
@click.argument("prefix", required=False)
@click.option("--user", help="instead: keys of the accounts that this user has claimed")
@click.option("--limit", default=100, show_default=True, help="about how many keys to print")
@click.option("--cursor", help="the cursor of the page before")
@gate_option
@store_option
@json_option
def find_keys(
    prefix: str | None,
    user: str | None,
    limit: int,
    cursor: str | None,
    named: str | None,
    store: str | None,
    *,
    as_json: bool,
) -> int:
    """Find keys of all organizations by PREFIX, the beginning of a key as lists show it, or by id.

    Without PREFIX a line of standard input is read, which may hold the whole text of a key, such as
    a line of a log. Nothing is counted. Exit code 1 where no key is found.
    """
    if prefix is not None and user is not None:
        raise click.UsageError("Give PREFIX or --user, not both.")
    gate = gate_of(named, store)
    prefix = None if prefix is None else pasted(prefix)
    refuse_secret(prefix or "", gate.format)
    asks = user is None and prefix in {None, "-"}
    wanted = read_secret("Key, prefix or id: ") if asks else prefix or ""

    async def work() -> tuple[KeysFound, int]:
        return await found_keys(gate, wanted, limit, cursor, user), await gate.now()

    found, now = call(gate, work)
    if as_json:
        entries = [document_of(key, now) for key in found.keys]
        print_json({"keys": entries, "matched": found.by, "next_cursor": found.cursor})
    elif found.keys:
        _print(found.keys, now)
    if not found.keys:
        print(none_found(wanted, gate.format), file=sys.stderr)
    else:
        tell_match(found.by, asks=asks)
    if found.cursor is not None and not as_json:
        print(f"There are more: --cursor {found.cursor}", file=sys.stderr)
    return 0 if found.keys else 1


def refuse_secret(argument: str, format: KeyFormat) -> None:
    """Refuse an argument that holds more of a key than its prefix.

    Raises:
        ConfigurationError: it does.
    """
    if holds_secret(argument, format):
        raise ConfigurationError(_IN_HISTORY)


def tell_match(by: str, *, asks: bool) -> None:
    """Say on standard error how a key was found; ``asks``: by a text of standard input."""
    if by == "text":
        print("This is the whole text of the key.", file=sys.stderr)
    elif by == "prefix" and asks:
        print("Found by its beginning: the rest was not verified.", file=sys.stderr)


def none_found(wanted: str, format: KeyFormat) -> str:
    """Return why a text finds no key."""
    start = f"{format.brand}_{format.environment}_"
    if wanted and start.startswith(wanted.rstrip(".\N{HORIZONTAL ELLIPSIS}")):
        return f"Keys begin with {start}: give at least one character more."
    return "No key was found."


async def found_keys(
    gate: Gate, wanted: str, limit: int, cursor: str | None, user: str | None = None
) -> KeysFound:
    """Walk through all keys, or through those of a user, until there are enough."""
    found = KeysFound([], cursor, "text")

    async def ask(left: int, after: str | None) -> tuple[list[ApiKey], str | None]:
        nonlocal found
        if user is not None:
            found = await gate.keys.of_user(user, limit=left, cursor=after)
        else:
            found = await gate.keys.find(wanted, limit=left, cursor=after)
        return found.keys, found.cursor

    keys, after = await read_entries(ask, limit, cursor, "Searching")
    return KeysFound(keys, after, found.by)


def _print(found: list[ApiKey], now: int) -> None:
    print_table(
        ["organization", "id", "prefix", "state", "last used", "requests", "name", "scopes"],
        [
            (
                *(key.organization, key.id, f"{key.prefix}...", key.state(now).value),
                None if key.last_used_at is None else iso8601(key.last_used_at),
                *(key.request_count, key.name, " ".join(key.scopes)),
            )
            for key in found
        ],
        order=["organization", "id", "state", "name", "last used", "requests"],
        folds=["name", "scopes"],
    )
