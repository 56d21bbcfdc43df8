"""Cursors of lists: opaque text for callers, a position in the list for stores (D45)."""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from ..core.api_keys import NEVER, Position
from ..errors import InvalidRequest, Problem
from ..stores.base import PAGE_AT_MOST

_TEXT: Final = re.compile(r"[A-Za-z0-9_-]{4,120}")
_STEP: Final = re.compile(r"[A-Za-z0-9_-]{1,800}")
_POSITION: Final = re.compile(rb"([0-9]{1,16})\.([!-~]{1,64})")


def check_limit(limit: int) -> None:
    """Check the number of entries of a page.

    Raises:
        InvalidRequest: it is out of range.
    """
    if type(limit) is not int or not 1 <= limit <= PAGE_AT_MOST:
        raise InvalidRequest([Problem("limit", f"Use 1 to {PAGE_AT_MOST}.")])


def write_step(step: str | None) -> str | None:
    """Return the cursor of a store's walk as the text of a cursor; None after the last step."""
    if step is None:
        return None
    return urlsafe_b64encode(step.encode("utf-8", "surrogatepass")).decode().rstrip("=")


def read_step(text: str | None) -> str | None:
    """Return the cursor of a store's walk that :func:`write_step` wrote; None: its first step.

    Raises:
        InvalidRequest: the text is malformed.
    """
    if text is None:
        return None
    try:
        if not _STEP.fullmatch(text):
            raise ValueError
        padded = text + "=" * (-len(text) % 4)
        return urlsafe_b64decode(padded).decode("utf-8", "surrogatepass")
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
        raise malformed()
    return Position(int(found[1]), found[2].decode())


def malformed() -> InvalidRequest:
    """Return the refusal of a cursor that no page had."""
    return InvalidRequest([Problem("cursor", "Use the cursor of the page before, as it is.")])
