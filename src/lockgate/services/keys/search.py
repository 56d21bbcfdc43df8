"""Find keys of any organization, by their text, displayed prefix or id."""

import re
from typing import Final, Literal, NamedTuple

from ...core.api_keys import NEVER, ApiKey, Position
from ...core.imported_keys import ImportedToken
from ...core.key_format import KeyFormat
from ...core.key_search import read_search
from ...errors import InvalidFormat
from ...stores.base import Store
from ...stores.runtime.turns import turn
from ..cursors import check_limit, malformed, read_step, using_cursor, write_step

_STEPS_AT_MOST: Final = 100
"""Steps of a walk that one call makes, so that its time is bounded."""
_ACCOUNTS_AT_ONCE: Final = 20
_SEARCH: Final = "search"
_FIRST: Final = Position(NEVER, "-")
"""The position before all keys of an account."""
_PLACE: Final = re.compile(r"([0-9]{1,16}) ([!-~]{1,64}) ([0-9]{1,16}) (.{0,128})", re.DOTALL)


class KeysFound(NamedTuple):
    """The answer of :meth:`Keys.find <lockgate.services.keys.keys.Keys.find>`."""

    keys: list[ApiKey]
    cursor: str | None
    """The cursor of the next page, which may be empty; None: this is the last page."""
    by: Literal["text", "prefix", "id", "user"]
    """``text``: the whole text is this key's; ``prefix``: a key begins with it, or with the
    beginning of a text that could not be verified."""


async def find(
    store: Store, format: KeyFormat, text: str, limit: int, cursor: str | None
) -> KeysFound:
    """Find keys by a text, as :meth:`Keys.find <lockgate.services.keys.keys.Keys.find>` says."""
    check_limit(limit)
    within = re.search(format.scanner, text)
    text = within[0] if within else text.strip()
    try:
        token = format.parse(text)
    except InvalidFormat:
        return await _search(store, format, text, limit, cursor)
    key = await store.find(token.handle)
    if key is None:
        return KeysFound([], None, "text")
    slow = isinstance(token, ImportedToken) and token.legacy.slow_scheme(key.scheme)
    verified = not slow and token.knows_scheme(key.scheme) and token.matches(key.scheme, key.digest)
    return KeysFound([key], None, "text" if verified else "prefix")


async def _search(
    store: Store, format: KeyFormat, text: str, limit: int, cursor: str | None
) -> KeysFound:
    wanted, by = read_search(text, format)
    found: dict[str, ApiKey] = {}
    step = read_step(cursor, format.peppers.cursors, _SEARCH)
    for _ in range(_STEPS_AT_MOST):
        with using_cursor(cursor):
            async with turn():
                keys, step = await store.search(wanted, limit - len(found), step)
                found.update((key.id, key) for key in keys)
        if step is None or len(found) >= limit or (by == "id" and found):
            break
    if by == "id" and found:
        step = None
    return KeysFound([*found.values()], write_step(step, format.peppers.cursors, _SEARCH), by)


async def of_user(
    store: Store, format: KeyFormat, user: str, limit: int, cursor: str | None
) -> KeysFound:
    """Return keys of the organizations that a user has claimed, as
    :meth:`Keys.of_user <lockgate.services.keys.keys.Keys.of_user>` says."""
    check_limit(limit)
    found: list[ApiKey] = []
    seal, of = format.peppers.cursors, f"keys of user {user}"
    step = read_step(cursor, seal, of)
    claimed, after = (None, None) if step is None else _read_place(step)
    for _ in range(_STEPS_AT_MOST // _ACCOUNTS_AT_ONCE):
        accounts = await store.accounts_by_user(user, _ACCOUNTS_AT_ONCE, claimed)
        for account in accounts:
            wanted = limit - len(found)
            async with turn():
                page = await store.list(account.organization, wanted, after)
            found += page
            if len(page) == wanted:
                place = _write_place(claimed, Position(page[-1].created_at, page[-1].id))
                return KeysFound(found, write_step(place, seal, of), "user")
            claimed, after = Position(account.claimed_at or 0, account.organization), None
        if len(accounts) < _ACCOUNTS_AT_ONCE:
            return KeysFound(found, None, "user")
    return KeysFound(found, write_step(_write_place(claimed, _FIRST), seal, of), "user")


def _write_place(claimed: Position | None, after: Position) -> str:
    """Return the place to continue from: an account, and a key of the account that follows it."""
    at, organization = claimed or (0, "")
    return f"{after.instant} {after.id} {at} {organization}"


def _read_place(step: str) -> tuple[Position | None, Position]:
    """Return the place that :func:`_write_place` wrote.

    Raises:
        InvalidRequest: the cursor is malformed.
    """
    found = _PLACE.fullmatch(step)
    if found is None:
        raise malformed()
    instant, id, at, organization = found.groups()
    claimed = Position(int(at), organization) if organization else None
    return claimed, Position(int(instant), id)
