"""Quotas: how often something may happen that no organization's plan speaks of (D14)."""

from typing import Final

from ..core.digests import Peppers
from ..core.rate_limit_headers import rate_limit_exceeded
from ..core.sliding_window import Reading, Window
from ..errors import RateLimitExceeded
from ..events import Events
from ..stores.base import Store
from ..stores.memory.windows import Clock
from .store_errors import asking


class Quota:
    """One window for each owner, exact, in the shared store beside those of organizations.

    An owner's name is hashed with the pepper, so that no address can be read in the store, nor be
    found by hashing all there are. With the purpose before it, it is longer than any organization's
    id, so it can never be one.

    Args:
        store: where the windows are.
        peppers: hash the owners' names.
        purpose: what is counted, up to 60 characters of ASCII.
        name: of the window, as a refusal names it: ``hour`` or ``day``.
        span: its length, in microseconds.
        limit: how often it may happen in it.
        clock: gives the present in microseconds; None: the store's own.
        events: is told of a store that fails.
    """

    def __init__(
        self,
        store: Store,
        peppers: Peppers,
        purpose: str,
        name: str,
        span: int,
        limit: int,
        clock: Clock | None,
        events: Events,
    ) -> None:
        self._store = store
        self._peppers = peppers
        self._purpose = purpose
        self._windows: Final = (Window(name, span, limit, 0),)
        self._clock = clock
        self._events = events

    async def peek(self, name: str) -> None:
        """Go on only if there is something left for an owner; nothing is counted.

        Raises:
            RateLimitExceeded: there is nothing left.
            StoreUnavailable: the store did not answer.
        """
        with asking(self._events):
            reading = await self._store.peek(self._owner(name), self._windows, self._now())
        if not reading.allowed:
            raise self._exceeded(reading)

    async def hit(self, name: str) -> int:
        """Count one for an owner, and say when that was.

        Raises:
            RateLimitExceeded: there is nothing left, and nothing is counted.
            StoreUnavailable: the store did not answer.
        """
        with asking(self._events):
            reading = await self._store.hit(self._owner(name), self._windows, 1, self._now())
        if not reading.allowed:
            raise self._exceeded(reading)
        return reading.now

    def _exceeded(self, reading: Reading) -> RateLimitExceeded:
        return rate_limit_exceeded(self._windows, reading)

    def _owner(self, name: str) -> str:
        return f"{self._purpose}:{self._peppers.pseudonym(self._purpose, name)}"

    def _now(self) -> int | None:
        return self._clock() if self._clock else None
