"""Quotas: limits for owners other than organizations, such as addresses and e-mails (D14)."""

from typing import Final

from ...clock import Clock
from ...core.digests import Peppers
from ...core.ledger import Hit, Peek
from ...core.rate_limit_headers import rate_limit_exceeded
from ...core.sliding_window import Reading, Window
from ...errors import RateLimitExceeded
from ...events import Events
from ...stores.base import Store
from ..store_errors import asking


class Quota:
    """An exact window for each owner, in the shared store beside the windows of organizations.

    The name of an owner is hashed with the pepper, so that the store reveals no address, not even
    to a search over all addresses. Prefixed with the purpose, the hash is longer than any
    organization's id, so the two never collide.

    Args:
        store: keeps the windows.
        peppers: hash the owners' names.
        purpose: a name for the counted action, up to 60 characters of ASCII.
        name: the window's name in refusals: ``hour`` or ``day``.
        span: the length of the window, in microseconds.
        limit: the number of actions that the window admits.
        clock: returns the present in microseconds; None: the store's own clock.
        events: receives failures of the store.
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
        """Check that an owner's quota is not used up, without counting.

        Raises:
            RateLimitExceeded: the quota is used up.
            StoreUnavailable: the store did not answer.
        """
        with asking(self._events):
            reading = await self._store.charge(self._owner(name), Peek(self._windows), self._now())
        if not reading.allowed:
            raise self._exceeded(reading)

    async def hit(self, name: str) -> int:
        """Count one action of an owner; return its instant in microseconds.

        Raises:
            RateLimitExceeded: the quota is used up; the action is not counted.
            StoreUnavailable: the store did not answer.
        """
        with asking(self._events):
            hit = Hit(self._windows, 1)
            reading = await self._store.charge(self._owner(name), hit, self._now())
        if not reading.allowed:
            raise self._exceeded(reading)
        return reading.now

    def _exceeded(self, reading: Reading) -> RateLimitExceeded:
        return rate_limit_exceeded(self._windows, reading)

    def _owner(self, name: str) -> str:
        return f"{self._purpose}:{self._peppers.pseudonym(self._purpose, name)}"

    def _now(self) -> int | None:
        return self._clock() if self._clock else None
