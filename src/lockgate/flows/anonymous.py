"""Callers without a key: a budget for each client address, kept in this process (D24)."""

from typing import Final

from ..rules.plans import Plan
from ..rules.windows import Reading
from ..stores.forks import own_lock
from ..stores.local import Clock, LocalWindows, wall_clock

_ADDRESSES_AT_MOST: Final = 50_000


class Anonymous:
    """Counts what callers without a key ask and what callers with a bad one try.

    An address that has spent its budget is refused before any store is asked, unless it shows a
    key that was admitted here lately: a flood from a shared address does not lock its keys out.

    Args:
        plan: what one address may do.
        clock: gives the present in microseconds.
    """

    def __init__(self, plan: Plan, clock: Clock | None) -> None:
        self.plan: Final = plan
        self._clock = clock or wall_clock
        self._lock = own_lock()
        self._windows = LocalWindows(_ADDRESSES_AT_MOST)
        self.spent: set[str] = set()
        """Addresses that had nothing left when they were last charged."""

    def charge(self, address: str) -> Reading:
        """Charge a request to an address."""
        with self._lock:
            reading = self._windows.hit(address, self.plan.windows, self._clock(), 1)
            if reading.remaining == 0:
                if len(self.spent) >= _ADDRESSES_AT_MOST:
                    self.spent.clear()
                self.spent.add(address)
            return reading

    def look(self, address: str) -> Reading:
        """What an address has left, without charging it."""
        with self._lock:
            return self._windows.look(address, self.plan.windows, self._clock())

    def refuses(self, address: str) -> Reading | None:
        """The reading that refuses an address which has spent its budget; None: it has not."""
        if address not in self.spent:
            return None
        reading = self.look(address)
        if reading.allowed:
            self.spent.discard(address)
            return None
        return reading
