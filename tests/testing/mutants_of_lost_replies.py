"""Stores that answer the repetition of a commit otherwise than the commit (D33)."""

from __future__ import annotations

from secrets import token_hex
from typing import ClassVar

from lockgate.stores.rows import Commit, Outcome, stamped

from .mutants import Mutant


class ForgetsCommits(Mutant):
    """Takes each repetition for another commit."""

    killed_by: ClassVar = {"W3"}

    async def commit(self, commit: Commit, now: int | None = None) -> Outcome:
        return await super().commit(commit._replace(id=token_hex(8)), now)


class RemembersOneCommit(Mutant):
    """Remembers the latest commit of an organization."""

    killed_by: ClassVar = {"W3"}

    def __init__(self) -> None:
        super().__init__()
        self.latest: dict[str, str] = {}

    async def commit(self, commit: Commit, now: int | None = None) -> Outcome:
        before = self.latest.get(commit.owner)
        self.latest[commit.owner] = commit.id
        if before is not None and before != commit.id:
            self._made.pop(before, None)
        return await super().commit(commit, now)


class RecordsRepetitions(Mutant):
    """Keeps a record for the repetition, too."""

    killed_by: ClassVar = {"W3"}

    async def commit(self, commit: Commit, now: int | None = None) -> Outcome:
        is_repeated = commit.id in self._made
        outcome = await super().commit(commit, now)
        if is_repeated:
            with self._lock:
                self._changes.add(commit.owner, commit.change, outcome.now)
        return outcome


class StampsRepetitions(Mutant):
    """Answers a repetition with the instant of the repetition."""

    killed_by: ClassVar = {"W3"}

    async def commit(self, commit: Commit, now: int | None = None) -> Outcome:
        at = self.at(now)
        outcome = await super().commit(commit, now)
        if outcome.verdict != "done" or outcome.now == at:
            return outcome
        return outcome._replace(now=at, rows=tuple(stamped(one.new, at) for one in commit.writes))


class EndsWalksAtRepetitions(Mutant):
    """Answers a repetition of a removal that nothing more is due."""

    killed_by: ClassVar = {"W3"}

    async def commit(self, commit: Commit, now: int | None = None) -> Outcome:
        is_repeated = commit.id in self._made
        outcome = await super().commit(commit, now)
        return outcome._replace(more=False) if is_repeated else outcome
