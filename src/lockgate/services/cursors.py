"""Cursors of lists: opaque text for callers, a position in the list for stores (D45).

Each is sealed for its list, so a caller goes on only where a page ended.
"""

import re
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from ..core.api_keys import NEVER, Position
from ..core.sealed_texts import TextSeal
from ..errors import InvalidRequest, Problem
from ..stores.base import PAGE_AT_MOST

_LONGEST: Final = 150
_LONGEST_STEP: Final = 830
_POSITION: Final = re.compile(rb"([0-9]{1,16})\.([!-~]{1,64})")


def check_limit(limit: int) -> None:
    """Check the number of entries of a page.

    Raises:
        InvalidRequest: it is out of range.
    """
    if type(limit) is not int or not 1 <= limit <= PAGE_AT_MOST:
        raise InvalidRequest([Problem("limit", f"Use 1 to {PAGE_AT_MOST}.")])


def write_step(step: str | None, seal: TextSeal, of: str) -> str | None:
    """Return the cursor of a store's walk as the text of a cursor; None after the last step.

    Args:
        step: the cursor of the store.
        seal: seals cursors.
        of: the list that it is of.
    """
    return None if step is None else seal.write(step.encode("utf-8", "surrogatepass"), of)


def read_step(text: str | None, seal: TextSeal, of: str) -> str | None:
    """Return the cursor of a store's walk that :func:`write_step` wrote; None: its first step.

    Raises:
        InvalidRequest: the text is another.
    """
    if text is None:
        return None
    try:
        return _read(text, seal, of, _LONGEST_STEP).decode("utf-8", "surrogatepass")
    except ValueError:
        raise malformed() from None


@contextmanager
def using_cursor(given: str | None) -> Generator[None]:
    """Refuse a caller's cursor that the store cannot read, such as one of another store.

    Raises:
        InvalidRequest: the store raised ValueError, and a cursor was given.
    """
    try:
        yield
    except ValueError:
        if given is None:
            raise
        raise malformed() from None


def write_cursor(position: Position, seal: TextSeal, of: str) -> str:
    """Return the text of a cursor, with the arguments of :func:`write_step`."""
    return seal.write(f"{position.instant}.{position.id}".encode(), of)


def read_cursor(text: str, seal: TextSeal, of: str) -> Position:
    """Return the position that :func:`write_cursor` wrote.

    Raises:
        InvalidRequest: the text is another.
    """
    try:
        found = _POSITION.fullmatch(_read(text, seal, of, _LONGEST))
    except ValueError:
        found = None
    if found is None or int(found[1]) > NEVER:
        raise malformed()
    return Position(int(found[1]), found[2].decode())


def _read(text: str, seal: TextSeal, of: str, longest: int) -> bytes:
    if len(text) > longest:
        raise ValueError("No cursor is so long.")
    return seal.read(text, of)


def malformed() -> InvalidRequest:
    """Return the refusal of a cursor that no page had."""
    return InvalidRequest([Problem("cursor", "Use the cursor of the page before, as it is.")])
