"""The change log of a record store.

A change is written together with its record, so the latest records are in the organization's own
value, which every admission reads and writes. To keep that small, records move on in groups: they
are first copied to a page, a separate value, and then dropped from the organization's value. A
process that dies in between leaves copies, which the next one finds by their numbers.
"""

import json
from typing import Any, Final, NamedTuple

from ...core.changes import LOGGED_AT_MOST, ChangeDraft
from ..answers import reading_state

Row = tuple[int, int, str]
"""The number, the instant and the text of a record."""

TAIL: Final = 4
"""Records in the organization's value from which on they move to a page."""
PAGE: Final = 64
"""Records of a page, about 16 KB."""


class Log(NamedTuple):
    """The part of a change log that is in the organization's value."""

    first: int = 0
    """The number of the oldest page."""
    last: int = 0
    """The number of the newest record."""
    tail: tuple[Row, ...] = ()
    """The newest records, the oldest first."""

    def added(self, change: ChangeDraft | None, now: int) -> "Log":
        """Return the log with one more record, if there is one."""
        if change is None:
            return self
        number = self.last + 1
        return self._replace(last=number, tail=(*self.tail, (number, now, change.text())))

    def archived(self, log: "Log") -> "Log":
        """Return the log after the records of an earlier reading of it were moved to pages."""
        tail = tuple(row for row in self.tail if row not in log.tail)
        return Log(max(self.first, log.oldest_page), self.last, tail)

    @property
    def oldest_page(self) -> int:
        """The number of the oldest page with one of the last :data:`LOGGED_AT_MOST` records."""
        return max(0, self.last - LOGGED_AT_MOST + 1) // PAGE

    def removed(self, until: int, first: int) -> "Log":
        """Return the log without old records, and without the pages before ``first``. An empty log
        begins anew."""
        tail = tuple(row for row in self.tail if row[1] > until)
        if not tail and first > self.last // PAGE:
            return NO_LOG
        following = tail[0][0] if tail else self.last + 1
        return Log(min(first, following // PAGE), self.last, tail)


NO_LOG: Final = Log()


def read_log(first: int, last: int, tail: list[list[Any]]) -> Log:
    """Return a log as JSON has it."""
    return Log(first, last, tuple((number, at, text) for number, at, text in tail))


def name_of_page(record: str, page: int) -> str:
    """Return the name of a page, by the name of the organization's value."""
    return f"log:{record.removeprefix('org:')}:{page}"


def read_rows(name: str, value: bytes | None) -> list[Row]:
    """Decode the rows of a page, the oldest first."""
    with reading_state(None, f"the record {name}"):
        rows: list[list[Any]] = [] if value is None else json.loads(value)
        return [(number, at, text) for number, at, text in rows]


def write_rows(rows: list[Row]) -> bytes | None:
    """Encode the rows of a page; None: an empty page is no value."""
    return json.dumps(rows, separators=(",", ":")).encode() if rows else None
