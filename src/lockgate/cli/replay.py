"""``lockgate audit --replay``: make the changes to keys again that a restored backup lacks."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from json import load
from typing import IO, Any, Final, NamedTuple, TypeAlias

from ..core.timestamps import DAY, MINUTE, SECOND, iso8601
from ..errors import ConfigurationError, InvalidRequest, NotFound
from ..gate import Gate

_FIELDS: Final = {"organization_id", "number", "at", "action", "key_id", "to"}
_LISTS: Final = ("labels", "limits")
"""Fields of a change whose texts are ``name=value``."""


_Identity: TypeAlias = tuple[int, str, str]
"""The number, instant and action of a change of an organization."""


class Replayed(NamedTuple):
    """The changes that were made again, and the others with the reason of each."""

    made: list[dict[str, Any]]
    remaining: list[tuple[dict[str, Any], str]]


def read_changes(file: IO[str]) -> list[dict[str, Any]]:
    """Return what ``lockgate audit --json`` printed, the oldest change first.

    Raises:
        ConfigurationError: the file holds something else.
    """
    try:
        changes = [{**change, "to": dict(change["to"])} for change in load(file)["changes"]]
        if not all(change.keys() >= _FIELDS for change in changes):
            raise KeyError
        return sorted(changes, key=lambda change: (change["at"], change["number"]))
    except (KeyError, TypeError, ValueError):
        raise ConfigurationError(
            f"{file.name} is not what 'lockgate audit --json' prints."
        ) from None


async def replay(gate: Gate, changes: Sequence[dict[str, Any]]) -> Replayed:
    """Revoke, and update, the keys that the changes are about; both are idempotent.

    Plans, accounts, rotations and new keys, whose text no store has, must be made by hand. Changes
    that the change log of the store has already are left out.

    Raises:
        StoreUnavailable: the store did not answer; changes before that are kept.
    """
    done = Replayed([], [])
    oldest = {change["organization_id"]: change["number"] for change in reversed(changes)}
    kept = {name: await _kept(gate, name, number) for name, number in oldest.items()}
    for change in changes:
        identity = change["number"], change["at"], change["action"]
        if identity in kept[change["organization_id"]]:
            continue
        organization, key, action = change["organization_id"], change["key_id"], change["action"]
        try:
            if action == "key_revoked":
                await gate.keys.revoke(organization, key)
            elif action == "key_updated":
                await _update(gate, organization, key, change["to"])
            else:
                done.remaining.append((change, "make it by hand"))
                continue
        except (NotFound, InvalidRequest) as refusal:
            done.remaining.append((change, str(refusal)))
        else:
            done.made.append(change)
    return done


async def _kept(gate: Gate, organization: str, oldest: int) -> set[_Identity]:
    """Return the changes of an organization that the store has, from the newest to a number."""
    found: set[_Identity] = set()
    cursor = None
    while True:
        page = await gate.changes.list(organization, cursor=cursor)
        found |= {(one.number, iso8601(one.at), one.action) for one in page.changes}
        cursor = page.cursor
        if cursor is None or page.changes[-1].number <= oldest:
            return found


async def _update(gate: Gate, organization: str, key: str, to: Mapping[str, Any]) -> None:
    """Give a key the values of a change; revoke it where its expiry has passed."""
    values = {name: to[name] for name in ("name", "scopes", "addresses") if name in to}
    for name in _LISTS:
        if name in to:
            values[name] = dict(text.split("=", 1) for text in to[name])
    if to.get("expires_at") is not None:
        end = round(datetime.fromisoformat(to["expires_at"]).timestamp() * SECOND)
        days = (end - await gate.now()) / DAY
        if days <= MINUTE / DAY:  # No key is given an earlier end.
            await gate.keys.revoke(organization, key)
            return
        values["expires_in_days"] = days
    elif "expires_at" in to:
        values["expires_in_days"] = None
    await gate.keys.update(organization, key, **values)
