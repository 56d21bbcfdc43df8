"""Import of many keys from another system, in batches, safe to repeat."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from typing import Final, NamedTuple

from ...core.api_keys import ApiKey, KeyDraft, KeyState
from ...core.key_rows import shortened
from ...errors import HandleTaken, InvalidRequest, KeyLimitReached
from ...stores.committed import committing
from ...sync import together
from .imported_keys import ImportedKeys, OldKey

BATCH: Final = 32
"""Keys that are inserted at once; a store has at most 64 calls in progress."""
LISTED_AT_MOST: Final = 100
"""Skipped rows that a report lists; it counts all of them. Also the ignored columns of a report."""

Revoke = Callable[[str, str], Awaitable[ApiKey]]
"""Revokes the key of an organization with an id."""
SourceRow = tuple[int, OldKey | InvalidRequest]
"""The number of a row, and its key or the problems of its values."""


class Outcome(Enum):
    """The result of a row of the import."""

    IMPORTED = "imported"
    PRESENT = "present"
    """It was imported before."""
    REVOKED = "revoked"
    """It was imported before, has been revoked in the old system since, and is revoked now."""
    SKIPPED = "skipped"


class SkippedRow(NamedTuple):
    """A row that was not imported."""

    row: int
    prefix: str | None
    """The shown beginning of the key, if its row could be read."""
    reason: str
    """``invalid``, ``key_limit``, ``other_organization``, ``other_digest`` or ``handle_taken``."""
    message: str


@dataclass
class ImportReport:
    """The numbers of rows by outcome, and the first skipped rows."""

    dry_run: bool
    rows: int = 0
    imported: int = 0
    present: int = 0
    revoked: int = 0
    skipped: int = 0
    reasons: dict[str, int] = field(default_factory=dict[str, int])
    """The number of skipped rows by reason."""
    skipped_rows: list[SkippedRow] = field(default_factory=list[SkippedRow])
    ignored_columns: list[str] = field(default_factory=list[str])
    """The columns of the source that are not columns of the import: the first 100."""

    def add(self, outcome: Outcome | SkippedRow) -> None:
        """Count a row."""
        self.rows += 1
        if isinstance(outcome, Outcome):
            setattr(self, outcome.value, getattr(self, outcome.value) + 1)
            return
        self.skipped += 1
        self.reasons[outcome.reason] = self.reasons.get(outcome.reason, 0) + 1
        if len(self.skipped_rows) < LISTED_AT_MOST:
            self.skipped_rows.append(outcome)

    def ignore(self, columns: Iterable[str]) -> None:
        """List columns of a row that the import does not read."""
        for name in map(shortened, columns):
            if name not in self.ignored_columns and len(self.ignored_columns) < LISTED_AT_MOST:
                self.ignored_columns.append(name)


class KeyImport:
    """Imports keys of other systems, in memory that does not grow with their number.

    A key that was imported before is not changed, except that a revocation in the old system is
    repeated. So an interrupted import can be repeated from the start, and an import can be repeated
    until the old system is switched off.

    Args:
        legacy: ``gate.legacy``.
        revoke: ``gate.keys.revoke``.
        dry_run: whether to check only, without a change. The cap of keys is not checked then.
    """

    def __init__(self, legacy: ImportedKeys, revoke: Revoke, *, dry_run: bool = False) -> None:
        self._legacy = legacy
        self._revoke = revoke
        self.report: Final = ImportReport(dry_run)

    @committing
    async def run(
        self,
        rows: Iterable[SourceRow],
        skipped: Callable[[SkippedRow], object],
        progress: Callable[[ImportReport], object],
    ) -> ImportReport:
        """Import rows, and return the report.

        Args:
            rows: the keys; read by batches.
            skipped: called with each row that is skipped.
            progress: called after each batch.

        Raises:
            StoreUnavailable: the store did not answer. Rows of the last batch may be imported
                without being counted.
        """
        source = iter(rows)
        while batch := list(islice(source, BATCH)):
            now = await self._legacy.present()
            for outcome in await together(self._take(number, key, now) for number, key in batch):
                self.report.add(outcome)
                if isinstance(outcome, SkippedRow):
                    skipped(outcome)
            progress(self.report)
        return self.report

    async def _take(self, row: int, old: OldKey | InvalidRequest, now: int) -> Outcome | SkippedRow:
        try:
            if isinstance(old, InvalidRequest):
                raise old
            draft = self._legacy.draft(old, now)
        except InvalidRequest as refusal:
            shown = None if isinstance(old, InvalidRequest) else old.prefix
            told = " ".join(f"{problem.field}: {problem.message}" for problem in refusal.problems)
            return SkippedRow(row, shown, "invalid", told)
        try:
            if self.report.dry_run:
                if await self._legacy.stored(draft) is not None:
                    raise HandleTaken
            else:
                await self._legacy.insert(draft, old.system)
        except HandleTaken:
            return await self._compare(row, draft, now)
        except KeyLimitReached as refusal:
            return SkippedRow(row, draft.prefix, "key_limit", str(refusal))
        return Outcome.IMPORTED

    async def _compare(self, row: int, draft: KeyDraft, now: int) -> Outcome | SkippedRow:
        """Compare a row with the key that has its handle already."""
        key = await self._legacy.stored(draft)
        reason = _difference(key, draft)
        if key is None or reason is not None:
            reason = reason or "handle_taken"
            return SkippedRow(row, draft.prefix, reason, _MESSAGES[reason])
        is_live = key.state(now) is KeyState.ACTIVE
        if not is_live or draft.history is None or draft.history.revoked_at is None:
            return Outcome.PRESENT
        if not self.report.dry_run:
            await self._revoke(key.organization, key.id)
        return Outcome.REVOKED


def _difference(key: ApiKey | None, draft: KeyDraft) -> str | None:
    """Return the reason for which a stored key is not the key of a draft; None for the same key."""
    if key is None:
        return "handle_taken"
    if key.organization != draft.organization:
        return "other_organization"
    # A key that was used since has lockgate's digest, which cannot be compared with the old one.
    same_system = key.scheme.rpartition(":")[0] == draft.scheme.rpartition(":")[0]
    if same_system and (key.scheme, key.digest) != (draft.scheme, draft.digest):
        return "other_digest"
    return None


_MESSAGES: Final = {
    "handle_taken": "A key that was removed had this handle, or another import is inserting it.",
    "other_organization": "Another organization has the key already.",
    "other_digest": (
        "The key was imported with another digest. If the old system has given it another secret, "
        "revoke the imported key; if it only hashed the same secret anew, nothing is to do."
    ),
}
