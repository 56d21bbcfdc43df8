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

    def due(self, until: int, limit: int) -> list[str]:
        """Return up to ``limit`` organizations with records of an instant or before."""
        found: dict[str, int] = {}
        while self._oldest and self._oldest[0][0] <= until and len(found) < limit:
            organization = heappop(self._oldest)[1]
            if rows := self._rows.get(organization):
                found[organization] = rows[0][1]
        for organization, at in found.items():
            heappush(self._oldest, (at, organization))
        return [organization for organization, at in found.items() if at <= until]

    def remove(self, organization: str, until: int, limit: int) -> int:
        """Remove up to ``limit`` records of an instant or before; return their number."""
        rows = self._rows.get(organization, deque())
        removed = 0
        while rows and rows[0][1] <= until and removed < limit:
            rows.popleft()
            removed += 1
        if not rows:
            self._rows.pop(organization, None)
        return removed
