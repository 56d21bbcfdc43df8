"""Stores with one mistake each in the methods of a key store."""

from __future__ import annotations

from typing import Any, ClassVar, cast

from lockgate.core.accounts import Account
from lockgate.core.api_keys import ApiKey, Position
from lockgate.stores.answers import OrganizationSummary
from lockgate.stores.rows import (
    LOG,
    STAMP,
    Commit,
    Ended,
    Index,
    Outcome,
    R,
    Read,
    Row,
    Summaries,
    Unused,
    Walk,
    Wanted,
    Write,
    stamped,
)

from .mutants import Mutant, gap

LAST = "\U0010ffff"


class RowMutant(Mutant):
    """Right until a subclass makes its mistake."""

    parts: ClassVar = ("rows",)


class RemembersIdsOfUpdates(RowMutant):
    """Has no answer for a repeated commit that ends many keys."""

    killed_by: ClassVar = {"W3"}

    async def commit(self, commit: Commit, now: int | None = None) -> Outcome:
        outcome = await super().commit(commit, now)
        if not commit.writes:
            self._made.pop(commit.id, None)
        return outcome


class RecordsNoCommitWithoutRows(RowMutant):
    """Keeps the record of a commit only if it changes a row."""

    killed_by: ClassVar = {"D44"}

    async def commit(self, commit: Commit, now: int | None = None) -> Outcome:
        return await super().commit(commit if commit.writes else commit._replace(change=None), now)


class AnswersRepetitionsByTheClock(RowMutant):
    """Answers a repetition with its own instant."""

    killed_by: ClassVar = {"W3"}

    async def commit(self, commit: Commit, now: int | None = None) -> Outcome:
        outcome = await super().commit(commit, now)
        return outcome if now is None else outcome._replace(now=now)


class FindsItsOwnRowsTaken(RowMutant):
    """Claims handles before it looks for the id of the commit."""

    killed_by: ClassVar = {"W3"}

    async def commit(self, commit: Commit, now: int | None = None) -> Outcome:
        for _, _, new, _ in commit.writes:
            if isinstance(new, ApiKey) and new.handle in self._rows and commit.room is not None:
                return Outcome("taken", self.at(now))
        return await super().commit(commit, now)


class LooksForTheIdOutsideTheLock(RowMutant):
    """Checks the id, waits, and writes without it."""

    killed_by: ClassVar = {"W3"}

    async def commit(self, commit: Commit, now: int | None = None) -> Outcome:
        if commit.id in self._made:
            return await super().commit(commit, now)
        gap()
        with self._lock:
            self._made.pop(commit.id, None)
        return await super().commit(commit, now)


class IgnoresVersions(RowMutant):
    """Writes what it is given, whatever is there."""

    killed_by: ClassVar = {"D43"}

    async def commit(self, commit: Commit, now: int | None = None) -> Outcome:
        writes = [
            write if write.old is None else write._replace(version=self._kept(write.old))
            for write in commit.writes
        ]
        return await super().commit(commit._replace(writes=tuple(writes)), now)


class ChecksVersionsOutsideTheLock(RowMutant):
    """Compares versions, and writes a little later."""

    killed_by: ClassVar = {"D43"}

    async def commit(self, commit: Commit, now: int | None = None) -> Outcome:
        for old, version, _, _ in commit.writes:
            if old is not None and self._kept(old) != version:
                return Outcome("changed", self.at(now))
        gap()
        with self._lock:
            writes = [
                write if write.old is None else write._replace(version=self._kept(write.old))
                for write in commit.writes
            ]
        return await super().commit(commit._replace(writes=tuple(writes)), now)


class WritesRowByRow(RowMutant):
    """Writes the rows before the one that has changed."""

    killed_by: ClassVar = {"D43", "D3"}

    async def commit(self, commit: Commit, now: int | None = None) -> Outcome:
        outcome = await super().commit(commit._replace(writes=()), now)
        rows: list[Row | None] = []
        for number, write in enumerate(commit.writes):
            part = commit._replace(id=f"{commit.id}{number}", writes=(write,), change=None)
            outcome = await super().commit(part, now)
            rows += outcome.rows
            if outcome.verdict != "done":
                return outcome
        return outcome._replace(rows=tuple(rows))


class NumbersPages(RowMutant):
    """Gives the rows of a page versions of its own."""

    killed_by: ClassVar = {"D43"}

    async def read(
        self,
        index: Index[R],
        prefix: tuple[str, ...],
        limit: int = 1,
        after: Position | None = None,
        now: int | None = None,
    ) -> Read[R]:
        read: Read[R] = await super().read(index, prefix, limit, after, now)
        if not index.name.startswith("keys_by"):
            return read
        return read._replace(versions=[*range(len(read.rows))])


class WritesToEndedKeys(RowMutant):
    """Does not look whether a key must be live."""

    killed_by: ClassVar = {"D43"}

    async def commit(self, commit: Commit, now: int | None = None) -> Outcome:
        writes = tuple(write._replace(live=False) for write in commit.writes)
        return await super().commit(commit._replace(writes=writes), now)


class FreesRemovedHandles(RowMutant):
    """Gives the handle of a removed key away."""

    killed_by: ClassVar = {"D3"}

    async def commit(self, commit: Commit, now: int | None = None) -> Outcome:
        self._keys.removed.clear()
        return await super().commit(commit, now)


class CountsRoomBefore(RowMutant):
    """Counts live keys before the other writes of a commit."""

    killed_by: ClassVar = {"K8"}

    async def commit(self, commit: Commit, now: int | None = None) -> Outcome:
        live = self._keys.count_live(commit.owner, self.at(now))
        if commit.room is not None and live >= commit.room and commit.id not in self._made:
            return Outcome("full", self.at(now))
        return await super().commit(commit, now)


class StampsAtTheReading(RowMutant):
    """Makes rows and records of the instant at which they were read."""

    killed_by: ClassVar = {"D44"}

    was_read: int | None = None

    async def read(
        self,
        index: Index[R],
        prefix: tuple[str, ...],
        limit: int = 1,
        after: Position | None = None,
        now: int | None = None,
    ) -> Read[R]:
        if now is not None:
            self.was_read = now
        return await super().read(index, prefix, limit, after, now)

    async def commit(self, commit: Commit, now: int | None = None) -> Outcome:
        return await super().commit(commit, now if self.was_read is None else self.was_read)


class StampsKeysAlone(RowMutant):
    """Leaves the instants of accounts to their caller."""

    killed_by: ClassVar = {"W12"}

    async def commit(self, commit: Commit, now: int | None = None) -> Outcome:
        at = self.at(now)

        def early(write: Write) -> Write:
            is_claim = isinstance(write.new, Account) and write.new.claimed_at == STAMP
            return write._replace(new=stamped(write.new, at - 1)) if is_claim else write

        return await super().commit(commit._replace(writes=tuple(map(early, commit.writes))), at)


class StampsByTheClockOfTheCaller(RowMutant):
    """Takes the time before it waits for its turn."""

    killed_by: ClassVar = {"W12"}

    async def commit(self, commit: Commit, now: int | None = None) -> Outcome:
        return await super().commit(commit, self.at(None) - 60_000_000 if now is None else now)


class RecordsEachCommit(RowMutant):
    """Records a commit that has changed no row."""

    killed_by: ClassVar = {"D44"}

    async def commit(self, commit: Commit, now: int | None = None) -> Outcome:
        is_new = commit.id not in self._made
        outcome = await super().commit(commit._replace(change=None), now)
        if outcome.verdict == "done" and is_new:
            self._changes.add(commit.owner, commit.change, outcome.now)
        return outcome


class RevokesTheExpired(RowMutant):
    """Revokes all keys that are not revoked."""

    killed_by: ClassVar = {"K4"}

    async def commit(self, commit: Commit, now: int | None = None) -> Outcome:
        outcome = await super().commit(commit, now)
        if commit.revoke_all and outcome.verdict == "done":
            for key in self._keys.unrevoked(commit.owner, 1000, None):
                self._keys.replace(key, key._replace(revoked_at=outcome.now))
        return outcome


class WritesUsage(RowMutant):
    """Puts the usage of a key back to what it was when it was read."""

    killed_by: ClassVar = {"K7"}

    async def commit(self, commit: Commit, now: int | None = None) -> Outcome:
        outcome = await super().commit(commit, now)
        for _, _, new, _ in commit.writes:
            if isinstance(new, ApiKey) and outcome.verdict == "done":
                self._requests[new.handle] = new.request_count
        return outcome


class RemovesBeforeTheInstant(RowMutant):
    """Keeps a key for the microsecond in which it is due."""

    killed_by: ClassVar = {"D45"}

    async def commit(self, commit: Commit, now: int | None = None) -> Outcome:
        if commit.remove_ended is not None:
            commit = commit._replace(remove_ended=commit.remove_ended - 1)
        return await super().commit(commit, now)


class RemovesWhatWasNamed(RowMutant):
    """Removes an account that a walk has named, in use or not."""

    killed_by: ClassVar = {"D46"}

    async def commit(self, commit: Commit, now: int | None = None) -> Outcome:
        if commit.remove_unused is not None:
            commit = commit._replace(remove_unused=2**62)
        return await super().commit(commit, now)


class SkipsTies(RowMutant):
    """Continues after the instant of a page's last row."""

    killed_by: ClassVar = {"D10"}

    async def read(
        self,
        index: Index[R],
        prefix: tuple[str, ...],
        limit: int = 1,
        after: Position | None = None,
        now: int | None = None,
    ) -> Read[R]:
        if after is not None and index is not LOG:
            after = after._replace(id="" if index.ids_down else LAST * 128)
        return await super().read(index, prefix, limit, after, now)


class SkipsTiesOfAccounts(SkipsTies):
    """The same with accounts."""

    killed_by: ClassVar = {"D14"}

    async def read(
        self,
        index: Index[R],
        prefix: tuple[str, ...],
        limit: int = 1,
        after: Position | None = None,
        now: int | None = None,
    ) -> Read[R]:
        if index.name.startswith("keys"):
            return await Mutant.read(self, index, prefix, limit, after, now)
        return await super().read(index, prefix, limit, after, now)


class ReadsTheLogInclusively(RowMutant):
    """Begins a page of the log with the record that ended the page before."""

    killed_by: ClassVar = {"D44"}

    async def read(
        self,
        index: Index[R],
        prefix: tuple[str, ...],
        limit: int = 1,
        after: Position | None = None,
        now: int | None = None,
    ) -> Read[R]:
        if after is not None and cast(Any, index) is LOG:
            after = after._replace(instant=after.instant + 1)
        return await super().read(index, prefix, limit, after, now)


class WalksByCount(RowMutant):
    """Continues a walk by the number of rows before, which others change."""

    killed_by: ClassVar = {"K9"}

    async def walk(self, wanted: Wanted, limit: int, cursor: str | None = None) -> Walk:
        if wanted is not None:
            return await super().walk(wanted, limit, cursor)
        start = int(cursor or 0)
        keys = tuple(self._keys.key(handle) for handle in [*self._rows][start : start + limit])
        following = None if len(keys) < limit else str(start + limit)
        rows = map(Account._make, self._accounts.rows.values())
        return Walk(following, keys, tuple(rows) if following is None else ())


class NamesOwnersOfKeys(RowMutant):
    """Names no organization for its old records alone."""

    killed_by: ClassVar = {"D45"}

    async def walk(self, wanted: Wanted, limit: int, cursor: str | None = None) -> Walk:
        if isinstance(wanted, Ended):
            self._changes.due = lambda until, limit: []  # type: ignore[method-assign]
        return await super().walk(wanted, limit, cursor)


class NamesTheFirstUnused(RowMutant):
    """Names one unused account."""

    killed_by: ClassVar = {"D46"}

    async def walk(self, wanted: Wanted, limit: int, cursor: str | None = None) -> Walk:
        return await super().walk(wanted, 1 if isinstance(wanted, Unused) else limit, cursor)


class SumsUpAllKeys(RowMutant):
    """Counts ended keys among the live ones."""

    killed_by: ClassVar = {"D25"}

    async def walk(self, wanted: Wanted, limit: int, cursor: str | None = None) -> Walk:
        step = await super().walk(wanted, limit, cursor)
        if not isinstance(wanted, Summaries):
            return step
        counted = [
            OrganizationSummary(one.id, one.placed, len(self._keys.all(one.id)), one.last_used_at)
            for one in step.organizations
        ]
        return step._replace(organizations=tuple(counted))
