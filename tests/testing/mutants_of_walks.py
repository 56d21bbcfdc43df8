"""Stores with one mistake each in the verbs of operators: search, organizations, reset."""

from __future__ import annotations

from typing import Any, ClassVar

from lockgate.core.key_search import KeySearch
from lockgate.stores.answers import FoundKeys, FoundOrganizations, Page

from .mutants import Mutant


class SearchesAnyCase(Mutant):
    """Compares handles as a case-insensitive collation does."""

    killed_by: ClassVar = {"K1"}

    async def search(self, wanted: KeySearch, limit: int, cursor: str | None = None) -> FoundKeys:
        rows = await self.scan(cursor, 100)
        if wanted.handle is None:
            return await super().search(wanted, limit, cursor)
        start = wanted.handle.lower()
        keys: Page = [key for key in rows.keys if key.handle.lower().startswith(start)]
        return FoundKeys(keys, rows.cursor)


class SearchesOnePage(Mutant):
    """Answers the first keys that it finds, and that there is no more."""

    killed_by: ClassVar = {"K1"}

    async def search(self, wanted: KeySearch, limit: int, cursor: str | None = None) -> FoundKeys:
        found = await super().search(wanted, limit, cursor)
        return FoundKeys(found.keys[:limit], None)


class SearchesAHundredKeys(Mutant):
    """Reads a page of a hundred keys, and takes it for all of them."""

    killed_by: ClassVar = {"K1"}

    async def search(self, wanted: KeySearch, limit: int, cursor: str | None = None) -> FoundKeys:
        rows = await self.scan(cursor, 100)
        found = await super().search(wanted, limit, cursor)
        return found if rows.cursor is None else FoundKeys(found.keys[:100], None)


class ListsAHundredOrganizations(Mutant):
    """Lists a page of a hundred organizations, and says that there are no more."""

    killed_by: ClassVar = {"D25", "K1"}

    async def organizations(
        self, limit: int, now: int | None = None, cursor: str | None = None
    ) -> FoundOrganizations:
        found = await super().organizations(limit, now, cursor)
        few = found.organizations[:100]
        return found if len(few) < 100 else FoundOrganizations(few, None)


class ListsPlacedOnly(Mutant):
    """Leaves out organizations on the default plan."""

    killed_by: ClassVar = {"D25"}

    async def organizations(
        self, limit: int, now: int | None = None, cursor: str | None = None
    ) -> FoundOrganizations:
        found = await super().organizations(limit, now, cursor)
        placed = [one for one in found.organizations if one.placed is not None]
        return FoundOrganizations(placed, found.cursor)


class CountsEndedKeys(Mutant):
    """Counts expired keys as live ones."""

    killed_by: ClassVar = {"D25"}

    async def organizations(
        self, limit: int, now: int | None = None, cursor: str | None = None
    ) -> FoundOrganizations:
        return await super().organizations(limit, 0, cursor)


class ResetsEveryone(Mutant):
    """Empties the windows of all organizations."""

    killed_by: ClassVar = {"W2"}

    async def reset(self, organization: str, *args: Any, **kwargs: Any) -> None:
        for other in ("org_1", "org_2", "org_3"):
            await super().reset(other, *args, **kwargs)


class ResetsNothing(Mutant):
    """Forgets to empty the windows."""

    killed_by: ClassVar = {"W2"}

    async def reset(self, organization: str, *args: Any, **kwargs: Any) -> None:
        return
