"""A store of two parts: any key store beside any window store."""

from collections.abc import Mapping, Sequence
from secrets import token_hex
from typing import Final, TypeVar, cast

from ..core.api_keys import Position
from ..core.leases import TO_LIST
from ..core.ledger import Action, Reset
from ..core.usage_history import UsageHistory
from ..errors import ConfigurationError
from ..events import Events
from .answers import Freshness, HistoryOwner, StoreWarning, Usage, UsageBatch
from .base import IoMode, KeyStore, Store, WindowStore
from .directory import Directory
from .rows import Commit, Index, Outcome, R, Read, Walk, Wanted

A = TypeVar("A")


class OverRows(Directory):
    """Operations composed over the rows of a key store; a subclass may come between.

    Args:
        keys: keeps the rows, their usage and its histories.
    """

    def __init__(self, keys: KeyStore) -> None:
        self.keys: Final = keys
        self.io = keys.io
        self.keeps_history = keys.keeps_history

    async def read(
        self,
        index: Index[R],
        prefix: tuple[str, ...],
        limit: int = 1,
        after: Position | None = None,
        now: int | None = None,
    ) -> Read[R]:
        return await self.keys.read(index, prefix, limit, after, now)

    async def commit(self, commit: Commit, now: int | None = None) -> Outcome:
        return await self.keys.commit(commit, now)

    async def walk(self, wanted: Wanted, limit: int, cursor: str | None = None) -> Walk:
        return await self.keys.walk(wanted, limit, cursor)

    async def now(self) -> int:
        return await self.keys.now()

    async def add_usage(self, usage: Mapping[str, Usage], batch: UsageBatch | None = None) -> None:
        await self.keys.add_usage(usage, batch)

    async def add_history(
        self, additions: Mapping[HistoryOwner, UsageHistory], batch: UsageBatch | None = None
    ) -> None:
        await self.keys.add_history(additions, batch)

    async def history(self, owner: HistoryOwner) -> UsageHistory:
        return await self.keys.history(owner)

    async def ready(self) -> None:
        await self.keys.ready()

    async def close(self) -> None:
        await self.keys.close()


class CombinedStore(OverRows, Store):
    """Keeps rows and usage in a key store, and ledgers in a window store.

    An admission is composed: it reads the key and the plan, charges the windows, and adds to the
    usage of the key. Nothing of one part is copied to the other, so a revocation is immediate (K4).
    No change counter covers both parts: processes remember refusals for a second at most. Quota
    leases are not granted, since a change of a key cannot recall them in its step.

    Args:
        keys: keeps keys with their usage, accounts, plans, the change log and usage histories.
        windows: keeps ledgers: windows, named limits, slots and holds.

    Raises:
        ConfigurationError: one part blocks and the other awaits.
    """

    def __init__(self, keys: KeyStore, windows: WindowStore) -> None:
        super().__init__(keys)
        self.windows: Final = windows
        self._stores: Final = [part for part in (keys, windows) if isinstance(part, Store)]
        self.io: IoMode = joint_mode(keys.io, windows.io)
        self.enforces_deadline = all(
            part.io == "none" or (isinstance(part, Store) and part.enforces_deadline)
            for part in (keys, windows)
        )

    async def charge(self, owner: str, action: Action[A], now: int | None = None) -> A:
        asked: object = action
        if isinstance(asked, Reset):
            if asked.change is not None:  # First, so that none is missing.
                await self._repeated(Commit(owner, token_hex(8), change=asked.change), now)
            return cast(A, await self.windows.charge(owner, Reset(), now))
        return await self.windows.charge(owner, action, now)

    async def freshness(self) -> Freshness:
        """Return the clock of the windows, as an action that changes nothing answers it."""
        return Freshness(None, (await self.windows.charge("lockgate", TO_LIST)).now)

    async def warnings(self) -> Sequence[StoreWarning]:
        """Return the warnings of both parts; a window store has no keys to miss."""
        found: list[StoreWarning] = []
        for part in self._stores:
            warnings = await part.warnings()
            found += [one for one in warnings if part is self.keys or one.kind != "keys"]
        return found

    def watch(self, events: Events, deadline: float) -> bool:
        for part in self._stores:
            part.watch(events, deadline)
        return False

    def cancel_waits(self) -> None:
        for part in self._stores:
            part.cancel_waits()

    def reset_connections(self) -> None:
        for part in self._stores:
            part.reset_connections()

    async def ready(self) -> None:
        await self.keys.ready()
        await self.windows.ready()

    async def flush(self) -> None:
        for part in self._stores:
            await part.flush()

    async def close(self) -> None:
        try:
            await self.windows.close()
        finally:
            await self.keys.close()


def joint_mode(first: IoMode, second: IoMode) -> IoMode:
    """Return how a store of two parts waits.

    Raises:
        ConfigurationError: one part blocks and the other awaits.
    """
    modes: set[IoMode] = {first, second}
    for flexible in ("none", "both"):
        if len(modes) == 2:
            modes.discard(flexible)
    if len(modes) == 1:
        return modes.pop()
    raise ConfigurationError(
        f"One of the two stores is {first} and the other {second}: open both from a URL."
    )
