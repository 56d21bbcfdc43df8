"""A key store under test, without a window store beside it."""

from ..core.api_keys import Position
from ..stores.base import RowStore
from ..stores.directory import Directory
from ..stores.rows import Commit, Index, Outcome, R, Read, Walk, Wanted


class ComposedStore(Directory):
    """The operations of the directory over a store that has ``read``, ``commit`` and ``walk``."""

    def __init__(self, rows: RowStore) -> None:
        self._rows = rows
        self.io = rows.io

    async def read(
        self,
        index: Index[R],
        prefix: tuple[str, ...],
        limit: int = 1,
        after: Position | None = None,
        now: int | None = None,
    ) -> Read[R]:
        return await self._rows.read(index, prefix, limit, after, now)

    async def commit(self, commit: Commit, now: int | None = None) -> Outcome:
        return await self._rows.commit(commit, now)

    async def walk(self, wanted: Wanted, limit: int, cursor: str | None = None) -> Walk:
        return await self._rows.walk(wanted, limit, cursor)

    async def now(self) -> int:
        return await self._rows.now()

    async def ready(self) -> None:
        await self._rows.ready()

    async def close(self) -> None:
        await self._rows.close()
