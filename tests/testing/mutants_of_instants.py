"""Stores that stamp a change with another instant than that of the step which makes it."""

from __future__ import annotations

from typing import Any, ClassVar

from lockgate import MemoryStore
from lockgate.stores.rows import KEY_BY_ID, Commit, Index, Outcome, R, Read

from .mutants import Mutant, gap


class InOneStep(Mutant):
    """Admits in one step, as a store must whose admissions have an instant."""

    admit = MemoryStore.admit


class StampsBeforeItsTurn(InOneStep):
    """Reads the clock, and then waits for the lock of the organization."""

    killed_by: ClassVar = {"K4", "D44"}

    async def commit(self, commit: Commit, now: int | None = None) -> Outcome:
        at = self.at(now)
        if now is None:
            gap()
        return await super().commit(commit, at)


class StampsWhatItRead(InOneStep):
    """Revokes a key at the instant at which it was read."""

    killed_by: ClassVar = {"K4", "D44"}

    def __init__(self) -> None:
        super().__init__()
        self.read_at: dict[str, int] = {}

    async def read(self, index: Index[R], prefix: tuple[str, ...], *args: Any, **named: Any) -> Any:
        read: Read[R] = await super().read(index, prefix, *args, **named)
        if index.name == KEY_BY_ID.name:
            self.read_at[prefix[0]] = read.now
            gap()
        return read

    async def commit(self, commit: Commit, now: int | None = None) -> Outcome:
        early = self.read_at.pop(commit.owner, None)
        return await super().commit(commit, early if now is None else now)


class RecordsAtTheEnd(InOneStep):
    """Dates the record of a change when the change has been made."""

    killed_by: ClassVar = {"D44"}

    async def commit(self, commit: Commit, now: int | None = None) -> Outcome:
        if now is not None:
            return await super().commit(commit, now)
        outcome = await super().commit(commit._replace(change=None))
        with self._lock:
            self._changes.add(commit.owner, commit.change, outcome.now + 1)
        return outcome
