"""The change log of the memory store."""

from collections import deque
from heapq import heappop, heappush
from itertools import islice

from ...core.changes import LOGGED_AT_MOST, Change, ChangeDraft

_Row = tuple[int, int, str]
"""Number, instant and text: a tuple that the garbage collector does not track for long."""


class LocalChanges:
    """The records of organizations. Callers hold a lock around every call."""

    def __init__(self) -> None:
        self._rows: dict[str, deque[_Row]] = {}
        """By organization, the oldest first."""
        self._oldest: list[tuple[int, str]] = []
        """A heap with one entry for each organization: its oldest record is no older."""

    def add(self, organization: str, change: ChangeDraft | None, now: int) -> None:
        """Add a record, if there is one to add."""
        if change is None:
            return
        rows = self._rows.get(organization)
        if rows is None:
            rows = self._rows[organization] = deque(maxlen=LOGGED_AT_MOST)
            heappush(self._oldest, (now, organization))
        rows.append((rows[-1][0] + 1 if rows else 1, now, change.text()))

    def newest(self, organization: str, limit: int, before: int | None) -> list[Change]:
        """Return records, the newest first."""
        rows = self._rows.get(organization, ())
        newer = 0 if before is None or not rows else max(0, rows[-1][0] - before + 1)
        return [Change.read(*row) for row in islice(reversed(rows), newer, newer + limit)]

    def remove(self, until: int, limit: int) -> bool:
        """Remove records up to an instant, of at most ``limit`` organizations; return whether more
        organizations may be due."""
        for _ in range(limit):
            if not self._oldest or self._oldest[0][0] > until:
                return False
            organization = heappop(self._oldest)[1]
            rows = self._rows[organization]
            while rows and rows[0][1] <= until:
                rows.popleft()
            if rows:
                heappush(self._oldest, (max(until + 1, rows[0][1]), organization))
            else:
                del self._rows[organization]
        return True
