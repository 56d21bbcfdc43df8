"""The change log of organizations, for auditors (D44)."""

from typing import Final, NamedTuple

from ..core.api_keys import Position
from ..core.changes import Change
from ..core.sealed_texts import TextSeal
from ..errors import InvalidRequest, Problem
from ..events import Events
from ..stores.base import PAGE_AT_MOST, Store
from ..stores.runtime.turns import turn
from .cursors import read_cursor, write_cursor
from .store_errors import asking

CHANGES_BY_DEFAULT: Final = 100
_READ_AT_ONCE: Final = 250
_STEPS_AT_MOST: Final = 10
"""Calls of the store for one page."""
_KIND: Final = "change"
"""Distinguishes the cursors of the change log from those of other lists."""


class ChangePage(NamedTuple):
    """Some records of the change log of an organization, newest first."""

    changes: list[Change]
    cursor: str | None
    """The cursor of the next page; None: this is the last page."""


class Changes:
    """The change log of a gate, as ``gate.changes``.

    Args:
        store: keeps the records.
        events: receives failures of the store.
        seal: seals cursors.
    """

    def __init__(self, store: Store, events: Events, seal: TextSeal) -> None:
        self._store = store
        self._seal = seal
        self._events = events

    async def list(
        self,
        organization: str,
        *,
        key: str | None = None,
        limit: int = CHANGES_BY_DEFAULT,
        cursor: str | None = None,
    ) -> ChangePage:
        """Return a page of the changes to the keys, plan and account of an organization.

        Newest first. Grants no access by itself: whether the caller may read it is up to the host.
        A page of the changes of one key is the result of reading at most 2,500 records (G10): so it
        may have fewer than ``limit``, or none, although it is not the last.

        Args:
            organization: its id.
            key: the id of a key, to return only the changes that concern it; None: all changes.
            limit: the number of records, 1 to 1,000.
            cursor: the ``cursor`` of the previous page; None: the first page.

        Raises:
            InvalidRequest: the limit is out of range, or the cursor is malformed.
            StoreUnavailable: the store did not answer.
        """
        if type(limit) is not int or not 1 <= limit <= PAGE_AT_MOST:
            raise InvalidRequest([Problem("limit", f"Use 1 to {PAGE_AT_MOST}.")])
        before = None if cursor is None else self._read(cursor, organization)
        found: list[Change] = []
        for _ in range(_STEPS_AT_MOST):
            missing = limit + 1 - len(found)
            asked = min(missing, _READ_AT_ONCE) if key is None else _READ_AT_ONCE
            with asking(self._events):
                async with turn():
                    page = await self._store.change_log(organization, asked, before)
                    found += [change for change in page if key is None or change.concerns(key)]
            if len(found) > limit:  # The extra record shows that there is another page.
                before = found[limit - 1].number
                break
            if len(page) < asked:
                return ChangePage(found, None)
            before = page[-1].number
        assert before is not None, "there was a step"
        last = Position(before, _KIND)
        return ChangePage(found[:limit], write_cursor(last, self._seal, f"changes {organization}"))

    def _read(self, cursor: str, organization: str) -> int:
        number, kind = read_cursor(cursor, self._seal, f"changes {organization}")
        if kind != _KIND:
            raise InvalidRequest([Problem("cursor", "This cursor is of another list.")])
        return number

    async def creation(self, organization: str, key: str) -> Change | None:
        """Return the record of the creation of a key: made, imported, rotated into, or registered.

        None: the organization has no such key, or its log has dropped the record.

        Args:
            organization: its id.
            key: the id of the key.

        Raises:
            StoreUnavailable: the store did not answer.
        """
        before: int | None = None
        while True:
            with asking(self._events):
                async with turn():
                    page = await self._store.change_log(organization, _READ_AT_ONCE, before)
            for change in page:
                if change.creates(key):
                    return change
            if len(page) < _READ_AT_ONCE:
                return None
            before = page[-1].number
