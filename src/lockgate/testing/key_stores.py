"""A part of a store under test: a key store without windows, or a window store beside keys in
memory."""

from collections.abc import Mapping
from typing import TypeVar

from ..core.api_keys import Position
from ..core.ledger import Action
from ..stores.answers import Usage, UsageBatch
from ..stores.base import KeyStore, Store, WindowStore
from ..stores.directory import Directory
from ..stores.memory.store import MemoryStore
from ..stores.rows import Commit, Index, Outcome, R, Read, Walk, Wanted

A = TypeVar("A")


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


class BesideKeys(OverRows, Store):
    """A window store beside keys in memory, for the checks that charge windows by a key."""

    def __init__(self, windows: WindowStore) -> None:
        self._keys = MemoryStore()
        super().__init__(self._keys)
        self.windows = windows
        self.io = windows.io

    async def charge(self, owner: str, action: Action[A], now: int | None = None) -> A:
        return await self.windows.charge(owner, action, now)

    async def add_usage(self, usage: Mapping[str, Usage], batch: UsageBatch | None = None) -> None:
        await self._keys.add_usage(usage, batch)

    async def ready(self) -> None:
        await self.windows.ready()

    async def close(self) -> None:
        await self.windows.close()
