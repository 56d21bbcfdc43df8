"""Retention: remove keys that ended long ago, in bounded steps (D45)."""

from random import expovariate
from time import monotonic
from typing import Final

from ...clock import Clock
from ...core.timestamps import DAY, HOUR, MINUTE, SECOND
from ...events import Events
from ...stores.answers import Removal
from ...stores.base import Store
from ...stores.runtime.background import BackgroundTask
from ...stores.runtime.process_hooks import after_fork_in_child
from ...sync import pause
from ..store_errors import asking

_FIRST: Final = MINUTE // SECOND
"""Mean seconds until a process begins its first walk, drawn from an exponential distribution: so
workers that live for seconds begin some together, and restarts begin few."""
_INTERVAL: Final = HOUR // SECOND
"""Seconds from the end of a walk to the next one of the same process."""


class Retention:
    """Removes keys that ended more than ``days`` ago, by walks over the store.

    A walk takes one step a second, as a background task: in the event loop of the caller that used
    the keys, or in a thread. It delays no request; failed steps are repeated.

    Args:
        store: keeps the keys.
        days: the retention, at least a day since caches hold a copy of a key for an hour; None:
            forever.
        clock: returns the present in microseconds; None: the store's own clock.
        events: receives ``keys_removed``.
    """

    def __init__(
        self, store: Store, days: float | None, clock: Clock | None, events: Events
    ) -> None:
        self._store = store
        self._age = None if days is None else int(days * DAY)
        self._clock = clock
        self._events = events
        self._upkeep = BackgroundTask(self._go_on)
        self.forked()
        after_fork_in_child(self)

    def forked(self) -> None:
        """Draw when the first walk of this process is due, apart from those of its siblings."""
        self._cursor: str | None = None
        self._next = monotonic() + expovariate(1) * _FIRST

    def used(self) -> None:
        """Schedule the next step of a walk within a second, if one is due."""
        if self._age is not None and monotonic() >= self._next:
            self._upkeep.used()

    async def walk(self) -> int:
        """Remove all keys that are due, and return their number.

        Raises:
            StoreUnavailable: the store did not answer.
        """
        removed, cursor = 0, None
        if self._age is None:
            return removed
        while True:
            with asking(self._events):
                step = await self._step(self._age, cursor)
            removed, cursor = removed + step.removed, step.cursor
            if cursor is None:
                return removed
            await pause()

    async def close(self) -> None:
        """Start no more steps, and wait up to a second for a started step."""
        await self._upkeep.close()

    async def _go_on(self) -> None:
        if self._age is None:
            return
        step = await self._step(self._age, self._cursor)
        self._cursor = step.cursor
        if step.cursor is None:
            self._next = monotonic() + _INTERVAL
        else:
            self._upkeep.used()

    async def _step(self, age: int, cursor: str | None) -> Removal:
        now = self._clock() if self._clock else None
        step = await self._store.remove_ended(age, now, cursor)
        if step.removed:
            self._events.emit("keys_removed", number=step.removed)
        return step
