"""A part of a store under test: a key store without windows, or a window store beside keys in
memory."""

from collections.abc import Mapping
from typing import TypeVar

from ..core.api_keys import Position
from ..core.usage_history import UsageHistory
from ..stores.answers import HistoryOwner, Usage, UsageBatch
from ..stores.base import KeyStore, WindowStore
from ..stores.combined import CombinedStore
from ..stores.directory import Directory
from ..stores.memory.store import MemoryStore
from ..stores.rows import Commit, Index, Outcome, R, Read, Walk, Wanted

A = TypeVar("A")


class OverRows(Directory):
    """Operations composed over the rows of another store; a subclass may come between."""

    def __init__(self, store: KeyStore) -> None:
        self.store = store
        self.io = store.io
        self.keeps_history = store.keeps_history

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

    async def add_usage(self, usage: Mapping[str, Usage], batch: UsageBatch | None = None) -> None:
        await self.store.add_usage(usage, batch)

    async def add_history(
        self, additions: Mapping[HistoryOwner, UsageHistory], batch: UsageBatch | None = None
    ) -> None:
        await self.store.add_history(additions, batch)

    async def history(self, owner: HistoryOwner) -> UsageHistory:
        return await self.store.history(owner)

    async def ready(self) -> None:
        await self.store.ready()

    async def close(self) -> None:
        await self.store.close()


class BesideKeys(CombinedStore):
    """A window store beside keys in memory, for the checks that charge windows by a key."""

    def __init__(self, windows: WindowStore) -> None:
        super().__init__(MemoryStore(), windows)
