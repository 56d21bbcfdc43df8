"""Rows of another system's table of keys, as a file or a database has them.

A row is a mapping from the columns of :data:`COLUMNS` to values of a CSV file (text), a JSON
document or a database driver.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, cast

from ..errors import InvalidRequest, Problem
from .api_keys import NAME_LENGTH

COLUMNS: Final = (
    *("organization", "name", "handle", "digest", "key", "prefix", "scopes"),
    *("created_at", "expires_at", "revoked_at", "revoked", "last_used_at", "request_count"),
)
"""The columns of a row; all but ``organization`` and ``scopes`` may be left out."""
_MILLISECONDS_FROM: Final = 1e11
"""Numbers from here on are milliseconds since 1970, smaller ones are seconds (year 5138)."""
_NAMED: Final = 15
_LONGEST_NAME: Final = 30
"""Characters of a column's name in a message; a longer one is cut."""
_CUT_TO: Final = 8
_BOOLEANS: Final = {
    **dict.fromkeys(("true", "t", "1", "yes"), True),
    **dict.fromkeys(("false", "f", "0", "no"), False),
}


def read_row(
    row: Mapping[str, object],
    organization: str | None,
    scopes: Sequence[str],
    renamed_scopes: Mapping[str, str],
    now: datetime,
) -> dict[str, Any]:
    """Return the fields of a key, by their names in ``gate.legacy.adopt``.

    Args:
        row: the values by column; None and empty text count as missing, and columns that are not
            in :data:`COLUMNS` are ignored.
        organization: the organization of rows without one.
        scopes: the scopes of rows without some.
        renamed_scopes: the scope of lockgate for each scope of the other system.
        now: when keys were revoked of which only the fact is known.

    Raises:
        InvalidRequest: values cannot be read; names all of them, and repeats none.
    """
    given = {name: value for name, value in row.items() if value is not None and value != ""}
    problems: list[Problem] = []

    def read(name: str, reader: Callable[[Any], Any]) -> Any:
        if name not in given:
            return None
        try:
            return reader(given[name])
        except (ValueError, TypeError, LookupError, OverflowError, OSError) as problem:
            problems.append(Problem(name, _SENTENCES.get(reader, str(problem))))
            return None

    times = {name: read(name, _instant) for name in COLUMNS if name.endswith("_at")}
    if times["revoked_at"] is None and read("revoked", _boolean):
        times["revoked_at"] = now
    texts = {name: read(name, _text) for name in COLUMNS[:6]}
    found = tuple(renamed_scopes.get(s, s) for s in read("scopes", _scopes) or ()) or tuple(scopes)
    owner = texts["organization"] or organization
    if owner is None:
        problems.append(Problem("organization", "It is missing: give --organization."))
    if not found:
        problems.append(Problem("scopes", "They are missing: give --scope."))
    requests = read("request_count", int) or 0
    if problems:
        raise InvalidRequest(problems)
    named = texts["name"] or texts["prefix"] or (texts["handle"] or "imported")[:_NAMED]
    return {
        "organization": owner,
        "name": named.strip()[:NAME_LENGTH],
        "handle": texts["handle"],
        "digest": texts["digest"],
        "text": texts["key"],
        "prefix": texts["prefix"],
        "scopes": found,
        "request_count": requests,
        **times,
    }


def shortened(column: str) -> str:
    """Return the name of a source's column for a message.

    A long one is cut: a file without a header has digests and keys in the place of names.
    """
    return column if len(column) <= _LONGEST_NAME else f"{column[:_CUT_TO]}..."


def _text(value: object) -> str:
    """Return a text, or a number or UUID as text; bytes that are not UTF-8 are refused."""
    if isinstance(value, bool | float | dict | list):
        raise TypeError
    text = value.decode() if isinstance(value, bytes) else str(value)
    text.encode()  # Raises for bytes that a file could not decode.
    return text


def _instant(value: object) -> datetime:
    """Read a time: ISO 8601, or seconds or milliseconds since 1970."""
    if isinstance(value, datetime):
        return value
    if isinstance(value, bool):
        raise TypeError
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return datetime.fromisoformat(str(value))
    seconds = float(cast(float, value))
    seconds = seconds / 1000 if abs(seconds) >= _MILLISECONDS_FROM else seconds
    return datetime.fromtimestamp(seconds, UTC)


def _boolean(value: object) -> bool:
    return _BOOLEANS[str(value).strip().lower()]


def _scopes(value: object) -> tuple[str, ...]:
    """Read a list of scopes, its JSON, or a text of scopes separated by spaces or commas."""
    if isinstance(value, str):
        text = value.strip()
        value = json.loads(text) if text.startswith("[") else text.replace(",", " ").split()
    if not isinstance(value, list | tuple):
        raise TypeError
    items = cast(Sequence[object], value)
    if not all(isinstance(item, str) for item in items):
        raise TypeError
    return tuple(cast(Sequence[str], items))


_SENTENCES: Final[Mapping[Callable[[Any], Any], str]] = {
    _text: "Use a text in UTF-8.",
    _instant: "Use a time in ISO 8601, or seconds or milliseconds since 1970.",
    _boolean: "Use true or false.",
    _scopes: "Use a list of scopes, or scopes with blanks between them.",
    int: "Use a whole number.",
}
