"""Budgets of client addresses, kept in this process, so that no flood reaches a store (D24)."""

from typing import Final

from ..clock import Clock, wall_clock
from ..core.plans import Plan
from ..core.sliding_window import Reading
from ..errors import StoreUnavailable
from ..stores.memory.windows import LocalWindows
from ..stores.runtime.process_hooks import after_fork_in_child, own_lock

_ADDRESSES_AT_MOST: Final = 25_000
_SPENT_AT_MOST: Final = 5_000


class AnonymousLimits:
    """Count public requests, or failures, of each client address against one plan.

    Memory is bounded by two tables, each of two generations (:class:`LocalWindows`). An address
    moves to the second table when it has spent its budget. So the number of addresses alone pushes
    no spent address out: that takes as many other addresses as the second table holds, each of
    which has spent a whole budget as well.

    Args:
        plan: the budget of one address.
        clock: returns the present in microseconds.
    """

    def __init__(self, plan: Plan, clock: Clock | None) -> None:
        self.plan: Final = plan
        self._clock = clock or wall_clock
        self._lock = own_lock()
        self._windows = LocalWindows(_ADDRESSES_AT_MOST)
        self._spent = LocalWindows(_SPENT_AT_MOST)
        self._proving: dict[str, int] = {}
        limits = [window.limit for window in plan.windows if window.limit is not None]
        self._whole: Final = min(limits, default=None)
        """The budget of an address without failures."""
        after_fork_in_child(self)

    def forked(self) -> None:
        self._proving.clear()  # Those calls belong to threads of the parent process.

    def charge(self, address: str) -> Reading:
        """Charge one request to an address and return its reading; a refusal is not charged."""
        with self._lock:
            table, now = self._table(address), self._clock()
            reading = table.hit(address, self.plan.windows, now, 1)
            if reading.remaining == 0 and table is self._windows:
                state = table.take(address)
                assert state is not None, "it was just charged"
                self._spent.put(address, state, now)
            return reading

    @property
    def has_spent(self) -> bool:
        """Return whether any address has spent its budget lately."""
        return len(self._spent) > 0

    def peek(self, address: str) -> Reading:
        """Return the reading of an address without charging it."""
        with self._lock:
            return self._table(address).peek(address, self.plan.windows, self._clock())

    def refuses(self, address: str) -> Reading | None:
        """Return the reading that refuses an address; None while it has some budget left."""
        with self._lock:
            if address not in self._spent:
                return None
            reading = self._spent.peek(address, self.plan.windows, self._clock())
        return None if reading.allowed else reading

    def proving(self, address: str) -> "Proof":
        """Hold one unit of an address's remaining budget while a credential is looked up.

        The lookup counts as a failure in the meantime: otherwise an address could start as many
        lookups as it has connections, beyond its budget.

        Returns:
            A context manager for one ``with`` block, which raises StoreUnavailable when lookups in
            progress already hold the remaining budget.
        """
        return Proof(self, address)

    def hold(self, address: str) -> None:
        """Hold one unit of an address's remaining budget.

        Raises:
            StoreUnavailable: others hold all of it.
        """
        proving = self._proving
        with self._lock:
            held = proving.get(address, 0)
            left = self._left(address)
            if left is not None and left <= held:
                raise StoreUnavailable
            proving[address] = held + 1

    def release(self, address: str) -> None:
        """Return one held unit."""
        with self._lock:
            held = self._proving.pop(address, 0) - 1  # A fork has forgotten it.
            if held > 0:
                self._proving[address] = held

    def _left(self, address: str) -> int | None:
        """Return the remaining budget of an address; None: it has no limit."""
        table = self._table(address)
        if address not in table:  # Most addresses have never failed.
            return self._whole
        return table.peek(address, self.plan.windows, self._clock()).remaining

    def _table(self, address: str) -> LocalWindows:
        return self._spent if address in self._spent else self._windows


class Proof:
    """Holds a unit of an address's budget in a ``with`` block."""

    __slots__ = ("_address", "_limits")

    def __init__(self, limits: AnonymousLimits, address: str) -> None:
        self._limits = limits
        self._address = address

    def __enter__(self) -> None:
        self._limits.hold(self._address)

    def __exit__(self, *_: object) -> None:
        self._limits.release(self._address)
