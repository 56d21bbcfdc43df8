"""A key store under test, without a window store beside it."""

from ..core.api_keys import Position
from ..stores.base import KeyStore
from ..stores.directory import Directory
from ..stores.rows import Commit, Index, Outcome, R, Read, Walk, Wanted


class OverRows(Directory):
    """Operations composed over the rows of another store; a subclass may come between."""

    def __init__(self, store: KeyStore) -> None:
        self.store = store
        self.io = store.io

    async def read(
        self,
        index: Index[R],
        prefix: tuple[str, ...],
        limit: int = 1,
        after: Position | None = None,
        now: int | None = None,
    ) -> Read[R]:
        return await self.store.read(index, prefix, limit, after, now)

    async def commit(self, commit: Commit, now: int | None = None) -> Outcome:
        return await self.store.commit(commit, now)

    async def walk(self, wanted: Wanted, limit: int, cursor: str | None = None) -> Walk:
        return await self.store.walk(wanted, limit, cursor)

    async def now(self) -> int:
        return await self.store.now()

    async def ready(self) -> None:
        await self.store.ready()

    async def close(self) -> None:
        await self.store.close()
