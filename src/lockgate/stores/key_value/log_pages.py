"""The pages of the change log of a record store: move records to them, read and remove them."""

from itertools import groupby
from typing import Final

from ...core.changes import Change
from ..answers import LogPage
from .change_log import NO_LOG, PAGE, Log, Row, name_of_page, read_rows, write_rows
from .record import Record
from .storage import Shelf, record_name


class LogPages:
    """The pages of all organizations.

    Args:
        shelf: the records of the store.
    """

    def __init__(self, shelf: Shelf) -> None:
        self._shelf: Final = shelf

    async def archive(self, organization: str, log: Log) -> None:
        """Move the records in an organization's value to pages."""
        name = record_name(organization)
        for page, rows in groupby(log.tail, key=lambda row: row[0] // PAGE):
            await self._append(name_of_page(name, page), [*rows])
        for page in range(log.first, log.oldest_page):
            await self._shelf.swap(name_of_page(name, page), lambda _, __: (None, None, None), 0)

        def drop(record: Record, _: int) -> None:
            record.log = record.log.archived(log)

        await self._shelf.change_named(name, drop, 0, organization)

    async def newest(self, organization: str, limit: int, before: int | None) -> LogPage:
        """Return records of an organization, the newest first."""
        name = record_name(organization)
        log = (await self._shelf.read_named(name, organization)).log
        found = [row for row in reversed(log.tail) if before is None or row[0] < before]
        # Copies on a page may be older than the reading of the tail, and never newer.
        until = log.tail[0][0] if log.tail else log.last + 1
        until = until if before is None else min(until, before)
        for page in range((until - 1) // PAGE, log.first - 1, -1):
            if len(found) >= limit:
                break
            rows = await self._rows(name_of_page(name, page))
            found += [row for row in reversed(rows) if row[0] < until]
        return [Change.read(*row) for row in found[:limit]]

    async def remove(self, name: str, until: int) -> None:
        """Remove the records of an instant or before, by the name of the organization's value."""
        log = (await self._shelf.read_named(name)).log
        if log == NO_LOG:
            return
        first, last = log.first, log.last // PAGE
        while first <= last and not await self._filter(name_of_page(name, first), until):
            first += 1

        def drop(record: Record, _: int) -> None:
            if record.log == log:  # Otherwise a page may have been written since.
                record.log = log.removed(until, first)

        await self._shelf.change_named(name, drop, 0)

    async def _append(self, name: str, rows: list[Row]) -> None:
        def append(value: bytes | None, _: int) -> tuple[None, bytes | None, int | None]:
            by_number = {row[0]: row for row in [*read_rows(name, value), *rows]}
            return None, write_rows(sorted(by_number.values())), None

        await self._shelf.swap(name, append, 0)

    async def _filter(self, name: str, until: int) -> bool:
        """Remove old records of a page; return whether others are left."""

        def remove(value: bytes | None, _: int) -> tuple[bool, bytes | None, int | None]:
            rows = read_rows(name, value)
            left = [row for row in rows if row[1] > until]
            return bool(left), value if left == rows else write_rows(left), None

        return await self._shelf.swap(name, remove, 0)

    async def _rows(self, name: str) -> list[Row]:
        kept = await self._shelf.get(name)
        return read_rows(name, None if kept is None else kept[0])
