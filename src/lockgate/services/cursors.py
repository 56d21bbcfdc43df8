"""Cursors of lists: opaque text for callers, a position in the list for stores (D45)."""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final

from ..core.api_keys import NEVER, Position
from ..errors import InvalidRequest, Problem

_TEXT: Final = re.compile(r"[A-Za-z0-9_-]{4,120}")
_POSITION: Final = re.compile(rb"([0-9]{1,16})\.([!-~]{1,64})")


def write_cursor(position: Position) -> str:
    """Return the text of a cursor."""
    return urlsafe_b64encode(f"{position.instant}.{position.id}".encode()).decode().rstrip("=")


def read_cursor(text: str) -> Position:
    """Return the position that :func:`write_cursor` wrote. A cursor is not signed: it is neither
    secret nor grants access.

    Raises:
        InvalidRequest: the text is malformed.
    """
    fits = _TEXT.fullmatch(text) and len(text) % 4 != 1
    found = _POSITION.fullmatch(urlsafe_b64decode(text + "=" * (-len(text) % 4))) if fits else None
    if found is None or int(found[1]) > NEVER:
        raise InvalidRequest([Problem("cursor", "Use the cursor of the page before, as it is.")])
    return Position(int(found[1]), found[2].decode())
