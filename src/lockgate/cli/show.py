"""``lockgate keys show``: all that is known of a key, and its creator."""

import sys
from typing import Any

import click

from ..core.api_keys import ApiKey
from ..core.changes import Change
from ..core.timestamps import iso8601
from ..errors import InvalidRequest, Problem
from ..gate import Gate
from .audit import name_of
from .find import found_keys, none_found, refuse_secret, tell_match
from .keys import document_of, shown
from .output import json_option, pasted, print_fields, print_json, read_secret
from .settings import call, checked_id, gate_of, gate_option, store_option


def _of_an_organization(ctx: click.Context, param: click.Parameter, id: str | None) -> str | None:
    """Check the argument before an id: it is the id of an organization then."""
    if id is not None:
        checked_id(ctx, param, ctx.params["organization"])
    return id


@click.command("show")
@click.argument("organization", metavar="[ORGANIZATION]", required=False)
@click.argument("id", metavar="[ID]", required=False, callback=_of_an_organization)
@gate_option
@store_option
@json_option
def show_key(
    organization: str | None, id: str | None, named: str | None, store: str | None, *, as_json: bool
) -> None:
    """Show a key, with when, by whom and from where it was created.

    The key is ID of ORGANIZATION; or, with one argument, the only key of all organizations with
    this id or prefix; or, without any, the one whose text standard input holds.
    """
    gate = gate_of(named, store)
    if organization is None:
        wanted = read_secret("Key, prefix or id: ")
    else:
        wanted = pasted(organization)
        refuse_secret(wanted, gate.format)

    async def work() -> tuple[ApiKey, Change | None, int]:
        if organization is not None and id is not None:
            key = await gate.keys.get(organization, id)
        else:
            key = await _only(gate, wanted, asks=organization is None)
        creation = await gate.changes.creation(key.organization, key.id)
        return key, creation, await gate.now()

    key, creation, now = call(gate, work)
    document = document_of(key, now)
    if as_json:
        print_json({**document, "creation": _document(creation)})
        return
    fields = [(name, shown(value)) for name, value in document.items()]
    print_fields([*fields, *_fields(creation)])


async def _only(gate: Gate, wanted: str, *, asks: bool) -> ApiKey:
    """Return the key that a text, prefix or id finds.

    Raises:
        InvalidRequest: there is none, or more than one.
    """
    found = await found_keys(gate, wanted, 2, None)
    if not found.keys:
        raise InvalidRequest([Problem("key", none_found(wanted, gate.format))])
    if len(found.keys) > 1:
        told = "Several keys begin so: 'lockgate keys find' lists them."
        raise InvalidRequest([Problem("key", told)])
    tell_match(found.by, asks=asks)
    return found.keys[0]


def _document(creation: Change | None) -> dict[str, Any] | None:
    if creation is None:
        return None
    at, actor = iso8601(creation.at), creation.actor._asdict()
    return {"at": at, "action": creation.action, "actor": actor}


def _fields(creation: Change | None) -> list[tuple[str, object]]:
    """Return the creation of a key for people."""
    if creation is None:
        print("The audit log does not have the creation of this key any more.", file=sys.stderr)
        return []
    actor = creation.actor
    how = creation.action.replace("_", " ")
    return [("made_by", name_of(actor)), ("made_from", actor.address), ("made_how", how)]
