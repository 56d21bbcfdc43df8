"""Stores that are right for a page of keys, and wrong for thousands of them."""

from __future__ import annotations

from typing import Any, ClassVar

from lockgate.core.api_keys import ApiKey, KeyDraft, Position
from lockgate.core.key_search import KeySearch
from lockgate.stores.answers import Census, FoundKeys, Page, Removal
from lockgate.stores.base import PAGE_AT_MOST
from lockgate.stores.rows import Commit, Outcome

from .mutants import Mutant


class ClaimsAPageOfKeys(Mutant):
    """Revokes a page of an organization's keys where a claim revokes all."""

    killed_by: ClassVar = {"K4"}

    async def commit(self, commit: Commit, now: int | None = None) -> Outcome:
        keys = self._keys.all(commit.owner)[PAGE_AT_MOST:] if commit.revoke_all else ()
        outcome = await super().commit(commit, now)
        for key in keys:
            self._keys.replace(self._keys.key(key.handle), key)
        return outcome


class CapsAPageOfKeys(Mutant):
    """Counts a page of live keys for the cap."""

    killed_by: ClassVar = {"K8"}

    async def insert(
        self, draft: KeyDraft, cap: int | None, now: int | None = None, **options: Any
    ) -> ApiKey:
        is_counted = cap is not None and cap <= PAGE_AT_MOST
        return await super().insert(draft, cap if is_counted else None, now, **options)


class ListsTwoPages(Mutant):
    """Ends a list of live keys after its second page."""

    killed_by: ClassVar = {"D10"}

    async def list_live(
        self,
        organization: str,
        limit: int,
        after: Position | None = None,
        now: int | None = None,
    ) -> Page:
        if after is None:
            return await super().list_live(organization, limit, None, now)
        first = await super().list_live(organization, 2 * PAGE_AT_MOST, None, now)
        page = await super().list_live(organization, limit, after, now)
        return page if len(first) < 2 * PAGE_AT_MOST else [key for key in page if key in first]


class CountsOneStep(Mutant):
    """Ends a census after its first step, if that has counted hundreds of keys."""

    killed_by: ClassVar = {"K9"}

    async def census(self, now: int | None = None, cursor: str | None = None) -> Census:
        step = await super().census(now, cursor)
        return step if sum(step.counts.values()) < 500 else step._replace(cursor=None)


class SearchesAThousandKeys(Mutant):
    """Ends a search after a thousand keys that it has looked at."""

    killed_by: ClassVar = {"K1"}

    async def search(self, wanted: KeySearch, limit: int, cursor: str | None = None) -> FoundKeys:
        found = await super().search(wanted, limit, cursor)
        looked_at = await self.scan(cursor, PAGE_AT_MOST)
        return found if len(looked_at.keys) < PAGE_AT_MOST else found._replace(cursor=None)


class RemovesInOneStep(Mutant):
    """Removes all keys that are due in one step, however many they are."""

    killed_by: ClassVar = {"D45"}

    async def remove_ended(
        self, age: int, now: int | None = None, cursor: str | None = None
    ) -> Removal:
        removed = 0
        while True:
            step = await super().remove_ended(age, now, cursor)
            removed, cursor = removed + step.removed, step.cursor
            if cursor is None:
                return Removal(removed, None)
