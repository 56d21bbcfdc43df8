"""The overview of an organization's keys: all live ones and the newest that ended (D45)."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from heapq import merge
from itertools import islice
from typing import Final, Generic, TypeVar

from ...core.api_keys import NEVER, ApiKey, KeyState, Position
from ...stores.answers import Page
from ...stores.base import Store

T = TypeVar("T")
Turn = Callable[[], AbstractAsyncContextManager[None]]
"""Returns the context of one step: :func:`~lockgate.stores.runtime.turns.turn`, or none."""

ENDED_SHOWN: Final = 1000
"""Revoked and expired keys in an overview: the newest (D45)."""
READ_AT_ONCE: Final = 100
"""Keys that one call of the store returns on a walk through all keys: decoding them takes about
3 ms."""


class KeyOverview(Generic[T]):
    """Reads the keys of an overview in steps, and keeps what a function makes of each.

    No key is kept between two steps. With the thousands of keys of many overviews that are read at
    once, a pass of the garbage collector would block the event loop for 200 ms (G5).

    Args:
        store: keeps the keys.
        now: the present in microseconds.
        write: called once with each key.
        turn: each step is made within one.
    """

    def __init__(self, store: Store, now: int, write: Callable[[ApiKey], T], turn: Turn) -> None:
        self._store: Final = store
        self._now: Final = now
        self._write: Final = write
        self._turn: Final = turn
        self._shown: list[T] = []
        self._ended = 0
        self._later: dict[str, T] = {}
        """By texts in the order of lists: tuples would have the garbage collector run."""
        self._runs: list[list[str]] = []

    async def read(self, organization: str) -> list[T]:
        """Return the results for all live keys and the newest 1,000 others, in their order."""
        after: Position | None = None
        while self._ended < ENDED_SHOWN:
            async with self._turn():
                page = self._store.list(organization, READ_AT_ONCE, after)
                after = self._take(await page)
            if after is None:
                return self._shown
        assert after is not None, "a thousand keys were read"
        return [*self._shown, *await self._live_after(organization, after)]

    def _take(self, page: Page) -> Position | None:
        """Return the position of the last key that was taken; None: no key follows it."""
        for key in page:
            self._shown.append(self._write(key))
            self._ended += key.state(self._now) is not KeyState.ACTIVE
            if self._ended == ENDED_SHOWN:
                return position(key)
        return None if len(page) < READ_AT_ONCE else position(page[-1])

    async def _live_after(self, organization: str, start: Position) -> list[T]:
        """Return the results for the live keys that follow a position in the order of lists."""
        after: Position | None = None
        while True:
            async with self._turn():
                page = self._store.list_live(organization, READ_AT_ONCE, after, self._now)
                after = self._take_live(await page, start)
            if after is None:
                break
        shown: list[T] = []
        merged = merge(*self._runs)
        while some := [*islice(merged, READ_AT_ONCE)]:
            async with self._turn():
                shown += (self._later[place] for place in some)
        return shown

    def _take_live(self, page: Page, start: Position) -> Position | None:
        """Return the position of the last key by its end; None: no key follows it."""
        later = [key for key in page if order(key) > (-start.instant, start.id)]
        found = {f"{NEVER - key.created_at:016}{key.id}": self._write(key) for key in later}
        self._later |= found
        self._runs.append(sorted(found))
        return None if len(page) < READ_AT_ONCE else Position(page[-1].ends_at, page[-1].id)


def order(key: ApiKey) -> tuple[int, str]:
    """Return the sort key of lists (D10)."""
    return -key.created_at, key.id


def position(key: ApiKey) -> Position:
    """Return the position of a key in the order of lists."""
    return Position(key.created_at, key.id)
