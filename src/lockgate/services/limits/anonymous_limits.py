"""Budgets of client addresses, kept in this process, so that no flood reaches a store (D24)."""

from typing import Final

from ...clock import Clock, wall_clock
from ...core.client_address import network_of
from ...core.plans import Plan
from ...core.sliding_window import Reading, Window, times
from ...errors import StoreUnavailable
from ...stores.memory.windows import LocalWindows
from ...stores.runtime.process_hooks import after_fork_in_child, own_lock

_ADDRESSES_AT_MOST: Final = 25_000
_SPENT_AT_MOST: Final = 5_000
_OF_A_NETWORK: Final = 16
"""How many budgets the addresses of one IPv6 /48 have together."""


class _Budgets:
    """Budgets by name. Callers hold a lock around every call.

    Memory is bounded by two tables, each of two generations (:class:`LocalWindows`). A name moves
    to the second table when it has spent its budget. So the number of names alone pushes no spent
    one out: that takes as many others as the second table holds, each of which has spent a whole
    budget as well.
    """

    def __init__(self, windows: tuple[Window, ...]) -> None:
        self.windows: Final = windows
        self._some: Final = LocalWindows(_ADDRESSES_AT_MOST)
        self.spent: Final = LocalWindows(_SPENT_AT_MOST)

    def charge(self, name: str, now: int) -> Reading:
        """Charge one request and return the reading; a refusal is not charged."""
        table = self._table(name)
        reading = table.hit(name, self.windows, now, 1)
        if reading.remaining == 0 and table is self._some:
            state = table.take(name)
            assert state is not None, "it was just charged"
            self.spent.put(name, state, now)
        return reading

    def peek(self, name: str, now: int) -> Reading:
        """Return the reading of a name without charging it."""
        return self._table(name).peek(name, self.windows, now)

    def refuses(self, name: str, now: int) -> Reading | None:
        """Return the reading that refuses a name; None while it has some budget left."""
        if name not in self.spent:
            return None
        reading = self.spent.peek(name, self.windows, now)
        return None if reading.allowed else reading

    def __contains__(self, name: str) -> bool:
        return name in self._table(name)

    def _table(self, name: str) -> LocalWindows:
        return self.spent if name in self.spent else self._some


class AnonymousLimits:
    """Count public requests, or failures, of each client address against one plan.

    The addresses of an IPv6 /48, which commonly belong to one site, have 16 budgets together: its
    owner has 65,536 of the /64 that addresses are counted by.

    Args:
        plan: the budget of one address.
        clock: returns the present in microseconds.
    """

    def __init__(self, plan: Plan, clock: Clock | None) -> None:
        self.plan: Final = plan
        self._clock = clock or wall_clock
        self._lock = own_lock()
        self._addresses: Final = _Budgets(plan.windows)
        self._networks: Final = _Budgets(times(_OF_A_NETWORK, plan.windows))
        self.has_spent = False
        """Whether any address or network has ever spent its budget."""
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
            now = self._clock()
            network = network_of(address) if ":" in address else None
            if network is not None:
                refusal = self._refused_by_network(address, network, now)
                if refusal is not None:
                    return refusal
            reading = self._addresses.charge(address, now)
            if network is not None and reading.allowed:
                # An address that is refused costs its neighbours nothing.
                left = self._networks.charge(network, now).remaining
                self.has_spent = self.has_spent or left == 0
            if reading.remaining == 0:
                self.has_spent = True
            return reading

    def peek(self, address: str) -> Reading:
        """Return the reading of an address without charging it."""
        with self._lock:
            now = self._clock()
            network = network_of(address) if ":" in address else None
            if network is not None:
                refusal = self._refused_by_network(address, network, now)
                if refusal is not None:
                    return refusal
            return self._addresses.peek(address, now)

    def refuses(self, address: str) -> Reading | None:
        """Return the reading that refuses an address; None while it has some budget left."""
        with self._lock:
            network = network_of(address) if ":" in address else None
            if network is None and address not in self._addresses.spent:
                return None
            now = self._clock()
            refusal = self._addresses.refuses(address, now)
            if refusal is None and network is not None:
                refusal = self._refused_by_network(address, network, now)
            return refusal

    def _refused_by_network(self, address: str, network: str, now: int) -> Reading | None:
        """Return the reading that refuses an address whose network has spent its budgets, or None.

        It shows the budget of the address as spent.
        """
        refusal = self._networks.refuses(network, now)
        if refusal is None:
            return None
        index = refusal.refused_by
        used = [
            window.limit if place == index and window.limit is not None else used
            for place, (window, used) in enumerate(
                zip(self.plan.windows, self._addresses.peek(address, now).used, strict=True)
            )
        ]
        return refusal._replace(used=tuple(used), tightest=index)

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
        with self._lock:
            names = _held_names(address)
            for name in names:
                left = self._left(name)
                if left is not None and left <= self._proving.get(name, 0):
                    raise StoreUnavailable
            for name in names:
                self._proving[name] = self._proving.get(name, 0) + 1

    def release(self, address: str) -> None:
        """Return one held unit."""
        with self._lock:
            for name in _held_names(address):
                held = self._proving.pop(name, 0) - 1  # A fork has forgotten it.
                if held > 0:
                    self._proving[name] = held

    def _left(self, name: str) -> int | None:
        """Return the remaining budget of an address or a network; None: it has no limit."""
        is_network = name.endswith(_NETWORK)
        budgets = self._networks if is_network else self._addresses
        name = name.removesuffix(_NETWORK)
        if name not in budgets:  # Most have never failed.
            share = _OF_A_NETWORK if is_network else 1
            return None if self._whole is None else self._whole * share
        return budgets.peek(name, self._clock()).remaining


_NETWORK: Final = " /48"


def _held_names(address: str) -> tuple[str, ...]:
    """Return the names by which a look-up is held: of the address, and of its /48 if it has one."""
    if ":" not in address or (network := network_of(address)) is None:
        return (address,)
    return address, network + _NETWORK


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
