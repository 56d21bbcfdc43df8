"""Stores with one fault each in the verbs of usage over time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from lockgate.core.usage_history import UsageHistory
from lockgate.stores.answers import HistoryOwner, Removal, Usage, UsageBatch

from .mutants import Mutant, gap


class KeepsTheLatestAddition(Mutant):
    """Replaces a history by what is added to it."""

    killed_by: ClassVar = {"K7"}

    async def add_history(
        self, additions: Mapping[HistoryOwner, UsageHistory], batch: UsageBatch | None = None
    ) -> None:
        for owner in additions:
            self._histories.remove(owner)
        await super().add_history(additions, batch)


class AddsToTheFirstOwners(Mutant):
    """Writes as many histories as its statement has places, and drops the others."""

    killed_by: ClassVar = {"K7", "W8"}

    async def add_history(
        self, additions: Mapping[HistoryOwner, UsageHistory], batch: UsageBatch | None = None
    ) -> None:
        await super().add_history(dict([*additions.items()][:32]), batch)


class MergesOutsideTheLock(Mutant):
    """Reads a history, adds to it and writes it back: additions in between are lost."""

    killed_by: ClassVar = {"K7"}

    async def add_history(
        self, additions: Mapping[HistoryOwner, UsageHistory], batch: UsageBatch | None = None
    ) -> None:
        if not self._is_new(batch):
            return
        for owner, addition in additions.items():
            history = await self.history(owner)
            gap()
            history.merge(addition)
            with self._lock:
                self._histories.remove(owner)
                self._histories.add(owner, history)


class DropsLateInstants(Mutant):
    """Adds nothing that is older than what is there, as after a clock has stepped back."""

    killed_by: ClassVar = {"K7"}

    async def add_history(
        self, additions: Mapping[HistoryOwner, UsageHistory], batch: UsageBatch | None = None
    ) -> None:
        if not self._is_new(batch):
            return
        for owner, addition in additions.items():
            if addition.last_day >= (await self.history(owner)).last_day:
                await super().add_history({owner: addition})


class OneHistoryOfAnOrganization(Mutant):
    """Counts the usage of a key for its organization only."""

    killed_by: ClassVar = {"W8"}

    async def add_history(
        self, additions: Mapping[HistoryOwner, UsageHistory], batch: UsageBatch | None = None
    ) -> None:
        if not self._is_new(batch):
            return
        for owner, addition in additions.items():
            await super().add_history({owner._replace(handle=None): addition})

    async def history(self, owner: HistoryOwner) -> UsageHistory:
        return await super().history(owner._replace(handle=None))


class FoldsOwners(Mutant):
    """Compares ids without regard to letter case."""

    killed_by: ClassVar = {"W8"}

    async def add_history(
        self, additions: Mapping[HistoryOwner, UsageHistory], batch: UsageBatch | None = None
    ) -> None:
        if not self._is_new(batch):
            return
        for (organization, handle), addition in additions.items():
            folded = HistoryOwner(organization.lower(), handle and handle.lower())
            await super().add_history({folded: addition})

    async def history(self, owner: HistoryOwner) -> UsageHistory:
        organization, handle = owner
        return await super().history(HistoryOwner(organization.lower(), handle and handle.lower()))


class KeepsTheHistoryOfARemovedKey(Mutant):
    """Forgets keys and not what they used."""

    killed_by: ClassVar = {"D45"}

    async def remove_ended(
        self, age: int, now: int | None = None, cursor: str | None = None
    ) -> Removal:
        before = dict(self._histories._kept)
        removal = await super().remove_ended(age, now, cursor)
        self._histories._kept.update(before)
        return removal


class RemovesTheHistoryOfTheOrganization(Mutant):
    """Forgets with an ended key what its whole organization used."""

    killed_by: ClassVar = {"D45"}

    async def remove_ended(
        self, age: int, now: int | None = None, cursor: str | None = None
    ) -> Removal:
        removal = await super().remove_ended(age, now, cursor)
        if removal.removed:
            self._histories._kept.clear()
        return removal


class KeepsTheHistoryOfARemovedAccount(Mutant):
    """Forgets accounts and not what they used."""

    killed_by: ClassVar = {"D46"}

    async def remove_unclaimed(
        self, idle: int, limit: int, now: int | None = None, **options: Any
    ) -> tuple[str, ...]:
        before = dict(self._histories._kept)
        removed = await super().remove_unclaimed(idle, limit, now, **options)
        self._histories._kept.update(before)
        return removed


class CountsRepeatedBatches(Mutant):
    """Counts the batch of a lost reply again."""

    killed_by: ClassVar = {"K7"}

    async def add_usage(self, usage: Mapping[str, Usage], batch: UsageBatch | None = None) -> None:
        await super().add_usage(usage)


class CountsRepeatedBatchesOfHistories(Mutant):
    """Adds the batch of a lost reply to histories again."""

    killed_by: ClassVar = {"K7"}

    async def add_history(
        self, additions: Mapping[HistoryOwner, UsageHistory], batch: UsageBatch | None = None
    ) -> None:
        await super().add_history(additions)


class KnowsTheLatestBatchOnly(CountsRepeatedBatches):
    """Compares a batch with the latest one of all writers."""

    latest: UsageBatch | None = None

    async def add_usage(self, usage: Mapping[str, Usage], batch: UsageBatch | None = None) -> None:
        if batch is None or batch != self.latest:
            await super().add_usage(usage)
        self.latest = batch or self.latest


class CountsLateBatches(CountsRepeatedBatches):
    """Compares a batch with the latest one of its writer, and counts a call that comes late."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers: dict[str, int] = {}

    async def add_usage(self, usage: Mapping[str, Usage], batch: UsageBatch | None = None) -> None:
        if batch is None or self.numbers.get(batch.writer) != batch.number:
            await super().add_usage(usage)
        if batch is not None:
            self.numbers[batch.writer] = batch.number


class FoldsWriters(Mutant):
    """Takes the batch of a writer for that of another one."""

    killed_by: ClassVar = {"K7"}

    async def add_usage(self, usage: Mapping[str, Usage], batch: UsageBatch | None = None) -> None:
        if batch is not None:
            batch = UsageBatch(batch.writer.lower(), batch.number)
        await super().add_usage(usage, batch)


class ComparesNumbersAsTexts(Mutant):
    """Takes the tenth batch for one before the second."""

    killed_by: ClassVar = {"K7"}

    def __init__(self) -> None:
        super().__init__()
        self.numbers: dict[str, str] = {}

    async def add_usage(self, usage: Mapping[str, Usage], batch: UsageBatch | None = None) -> None:
        if batch is not None:
            if str(batch.number) <= self.numbers.get(batch.writer, ""):
                return
            self.numbers[batch.writer] = str(batch.number)
        await super().add_usage(usage)


class MarksAfterCounting(Mutant):
    """Looks whether a batch is counted, counts it, and marks it then."""

    killed_by: ClassVar = {"K7", "W3"}

    async def add_usage(self, usage: Mapping[str, Usage], batch: UsageBatch | None = None) -> None:
        marks = self._marks
        is_new = self._is_new(batch)
        self._marks = marks
        if is_new:
            gap()
            await super().add_usage(usage)
            self._is_new(batch)
