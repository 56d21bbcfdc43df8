"""Stores with one fault each in the change log."""

from __future__ import annotations

from itertools import islice
from typing import Any, ClassVar

from lockgate.core.api_keys import ApiKey, KeyDraft
from lockgate.core.changes import Change, ChangeDraft
from lockgate.core.plans import Organization
from lockgate.stores.answers import LogPage, Removal
from lockgate.stores.memory.changes import LocalChanges

from .mutants import Mutant, gap


class LogsTheAttempt(Mutant):
    """Records a revocation before it knows whether there is one to make."""

    killed_by: ClassVar = {"D44"}

    async def revoke_if_live(
        self,
        organization: str,
        id: str,
        now: int | None = None,
        *,
        change: ChangeDraft | None = None,
    ) -> ApiKey | None:
        key = await self.get(organization, id)
        if key is not None:
            self._changes.add(organization, change, self.at(now))
        return await super().revoke_if_live(organization, id, now)


class LogsAfterwards(Mutant):
    """Inserts a key, and records it in a second step."""

    killed_by: ClassVar = {"D44"}

    async def insert(
        self,
        draft: KeyDraft,
        cap: int | None,
        now: int | None = None,
        *,
        change: ChangeDraft | None = None,
    ) -> ApiKey:
        key = await super().insert(draft, cap, now)
        if change is not None:
            gap()
            with self._lock:
                self._changes.add(draft.organization, change, self.at(now))
        return key


class LogsTwice(Mutant):
    """Records a rotation as the update and the insertion that it consists of."""

    killed_by: ClassVar = {"D44"}

    async def rotate_if(
        self,
        old: ApiKey,
        new: ApiKey,
        successor: KeyDraft,
        cap: int | None,
        now: int | None = None,
        *,
        change: ChangeDraft | None = None,
    ) -> ApiKey | None:
        key = await super().rotate_if(old, new, successor, cap, now, change=change)
        if key is not None:
            self._changes.add(old.organization, change, self.at(now))
        return key


class ForgetsToLogUpdates(Mutant):
    """Records no update."""

    killed_by: ClassVar = {"D44"}

    async def update_if(
        self,
        old: ApiKey,
        new: ApiKey,
        now: int | None = None,
        *,
        change: ChangeDraft | None = None,
    ) -> bool:
        return await super().update_if(old, new, now)


class LogsThePlanRead(Mutant):
    """Leaves out the plan before, since it does not read what it replaces."""

    killed_by: ClassVar = {"D44"}

    async def put_organization(
        self,
        organization: Organization,
        now: int | None = None,
        *,
        change: ChangeDraft | None = None,
    ) -> None:
        await super().put_organization(organization, now)
        self._changes.add(organization.id, change, self.at(now))


class LogDiesWithTheAccount(Mutant):
    """Removes the records of an account with it."""

    killed_by: ClassVar = {"D44"}

    async def remove_unclaimed(
        self, idle: int, limit: int, now: int | None = None, **options: Any
    ) -> tuple[str, ...]:
        removed = await super().remove_unclaimed(idle, limit, now, **options)
        for organization in removed:
            self._changes._rows.pop(organization, None)
        return removed


class LogIsForEver(Mutant):
    """Removes old keys, and no old record."""

    killed_by: ClassVar = {"D44"}

    def __init__(self) -> None:
        super().__init__()
        self._changes = _KeptForEver()


class _KeptForEver(LocalChanges):
    def remove(self, organization: str, until: int, limit: int) -> int:
        return 0


class LogPageRepeats(Mutant):
    """Begins a page with the last record of the page before."""

    killed_by: ClassVar = {"D44"}

    async def change_log(self, organization: str, limit: int, before: int | None = None) -> LogPage:
        begin = None if before is None or before < 3 else before + 1
        return await super().change_log(organization, limit, begin)


class LogByInstant(Mutant):
    """Orders records by their instants, which repeat and may go back."""

    killed_by: ClassVar = {"D44"}

    async def change_log(self, organization: str, limit: int, before: int | None = None) -> LogPage:
        found = await super().change_log(organization, 1000, before)
        return sorted(found, key=lambda change: -change.at)[:limit]


class LogByPrefix(Mutant):
    """Finds the records of organizations whose ids begin alike."""

    killed_by: ClassVar = {"D44", "W8"}

    async def change_log(self, organization: str, limit: int, before: int | None = None) -> LogPage:
        found: list[Change] = []
        for id in self._changes._rows:
            if id.startswith(organization):
                found += await super().change_log(id, limit, before)
        return list(islice(found, limit))


class LogGoesWithTheLastKey(Mutant):
    """Removes the records of an organization with its last key."""

    killed_by: ClassVar = {"D44"}

    async def remove_ended(
        self, age: int, now: int | None = None, cursor: str | None = None
    ) -> Removal:
        removal = await super().remove_ended(age, now, cursor)
        for organization in [*self._changes._rows]:
            if not await self.list(organization, 1):
                _forget(self, organization)
        return removal


class RecordsGoWithTheirKey(Mutant):
    """Removes the records of a key with it."""

    killed_by: ClassVar = {"D44"}

    async def remove_ended(
        self, age: int, now: int | None = None, cursor: str | None = None
    ) -> Removal:
        handles = set(self._rows)
        ids = {str(row[0]) for row in self._rows.values()}
        removal = await super().remove_ended(age, now, cursor)
        ids -= {str(row[0]) for row in self._rows.values()}
        if handles - set(self._rows):
            for rows in self._changes._rows.values():
                kept = [row for row in rows if Change.read(*row).key not in ids]
                rows.clear()
                rows.extend(kept)
        return removal


class LogGoesWithARevocation(Mutant):
    """Keeps records of live keys only."""

    killed_by: ClassVar = {"D44"}

    async def revoke_if_live(
        self,
        organization: str,
        id: str,
        now: int | None = None,
        *,
        change: ChangeDraft | None = None,
    ) -> ApiKey | None:
        key = await super().revoke_if_live(organization, id, now)
        if key is not None and change is not None and not await self.list_live(organization, 1):
            _forget(self, organization)
        return key


class LogKeepsAThousand(Mutant):
    """Keeps a tenth of the records."""

    killed_by: ClassVar = {"D44"}

    async def change_log(self, organization: str, limit: int, before: int | None = None) -> LogPage:
        newest = await super().change_log(organization, 1)
        found = await super().change_log(organization, limit, before)
        return [one for one in found if one.number > newest[0].number - 1_000]


class LogIsWrittenOverPlans(Mutant):
    """Keeps one record of plans, the latest."""

    killed_by: ClassVar = {"D44"}

    async def change_log(self, organization: str, limit: int, before: int | None = None) -> LogPage:
        found = await super().change_log(organization, 1000)
        plans = [one.number for one in found if one.action == "plan_assigned"]
        older = {*plans[1:]}
        kept = [one for one in found if one.number not in older]
        return [one for one in kept if before is None or one.number < before][:limit]


def _forget(store: Mutant, organization: str) -> None:
    store._changes._rows.pop(organization, None)
    store._changes._oldest = [one for one in store._changes._oldest if one[1] != organization]
