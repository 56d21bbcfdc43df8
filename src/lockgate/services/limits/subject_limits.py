"""Named limits by a subject outside any organization: an address, a user, a host's own (D40)."""

from collections.abc import Awaitable, Callable, Iterable
from functools import lru_cache
from logging import WARNING
from typing import Final

from ...clock import Clock, wall_clock
from ...core.client_address import network_of
from ...core.digests import Peppers
from ...core.hashed_windows import HashedWindows, RecentOwners
from ...core.limit_windows import LimitWindows
from ...core.limits import Limit, windows_of
from ...core.plans import Plan
from ...core.rate_limit_headers import rate_limit_exceeded
from ...core.sliding_window import Reading, Window, empty_state, hit, times
from ...core.timestamps import HOUR
from ...errors import RateLimitExceeded
from ...events import Events, OnceAMinute
from ...stores.runtime.process_hooks import after_fork_in_child, own_lock

NEW_AN_HOUR: Final = 10_000
"""The most subjects of one limit that a process has not counted lately and yet brings to the store,
in any hour. Each leaves rows there for up to two days. A limit that is flooded takes 4 MB, and 5 MB
for each of its windows."""
_OF_A_NETWORK: Final = 16
"""How many times a limit by address the addresses of one IPv6 /48 are admitted together."""
_APART_AT_MOST: Final = 16
"""The most limits whose new subjects are bounded apart, so those of all are bounded."""
_NO_PLAN: Final = Plan("unknown", None, None, None, None)
_REMEDY: Final = (
    "Each process counts further new subjects alone, and admits the whole limit to each; as they "
    "share memory, some are refused sooner. If clients make subjects up, name a limit by address "
    "beside this one: it is charged first. Refuse a flood of addresses before it reaches the "
    "service, at its proxy."
)


class SubjectLimits:
    """Counts requests of subjects in the shared store, one step for each subject.

    The name of a subject is hashed with the pepper, so that the store reveals no address, not even
    to a search over all addresses. With its prefix the hash is longer than any organization's id,
    so the two never collide.

    A flood of new subjects is stopped before the store: past :data:`NEW_AN_HOUR` of a limit, its
    new subjects are counted by this process alone, until there is room again and what it counted
    has expired. They share fixed memory, in which no number of them resets the count of another
    (:class:`HashedWindows`); one that shares its cells with others is refused sooner. The event
    ``subjects_fell_back`` reports that once a minute. Other limits are counted in the store all the
    while, those of the same subject included.

    The addresses of an IPv6 /48, which commonly belong to one site, are also counted together, by
    this process alone.

    Args:
        charge: charges an owner in the store, or raises the refusal (:meth:`Gate.charge_subject
            <lockgate.Gate.charge_subject>`).
        peppers: hash the names of subjects.
        clock: returns the present in microseconds; None: the machine's clock.
        events: receives ``subjects_fell_back``.
    """

    def __init__(
        self,
        charge: Callable[[str, LimitWindows, int], Awaitable[Reading]],
        peppers: Peppers,
        clock: Clock | None,
        events: Events,
    ) -> None:
        self._charge = charge
        self._peppers = peppers
        self._clock = clock or wall_clock
        self._events = events
        self._lock = own_lock()
        self._new: Final[dict[str, _NewSubjects]] = {}
        """The new subjects of each limit, by its name."""
        self._networks: Final = HashedWindows()
        self._under_way: dict[str, int] = {}
        """The units of each /48 whose addresses are being charged."""
        after_fork_in_child(self)

    def forked(self) -> None:
        self._under_way.clear()  # Those calls belong to threads of the parent process.

    def owner(self, kind: str, subject: str) -> str:
        """Return the name by which a store keeps the windows of a subject."""
        return f"limit:{self._peppers.pseudonym('limit', f'{kind} {subject}')}"

    async def charge(
        self, kind: str, subject: str, limits: Iterable[Limit], cost: int
    ) -> Reading | None:
        """Charge the limits of one subject, all or none.

        Those whose new subjects this process counts alone are charged before the others, and stay
        charged where another one refuses. The /48 of an address is charged where it is admitted.

        Args:
            kind: what the subject is, such as ``address``: equal names of two kinds count apart.
            subject: any text.
            limits: at most four.
            cost: units to take from each window.

        Returns:
            The reading of the windows that the store counts; None: it counts none of them.

        Raises:
            RateLimitExceeded: a window is full.
            StoreUnavailable: the store did not answer, and local limits do not apply.
        """
        network = network_of(subject) if kind == "address" and ":" in subject else None
        given = tuple(limits)
        if network is not None:
            self._hold_network(network, given, cost)
        try:
            owner, now = self.owner(kind, subject), self._clock()
            reading = None
            shared = tuple([one for one in given if not self._charge_alone(owner, one, cost, now)])
            if shared:
                reading = await self._charge(owner, windows_of(shared), cost)
            if network is not None:  # An address that is refused costs its neighbours nothing.
                self._count_network(network, given, cost)
            return reading
        finally:
            if network is not None:
                self._release_network(network, cost)

    def _hold_network(self, network: str, limits: tuple[Limit, ...], cost: int) -> None:
        """Hold units of a /48 while one of its addresses is charged, which may take a round trip.

        Raises:
            RateLimitExceeded: a window is full, units of calls under way included.
        """
        now = self._clock()
        windows = _of_network(limits).at(now)
        with self._lock:
            held = self._under_way.get(network, 0)
            reading = self._networks.peek(network, windows, now, held + cost)
            if reading.allowed:
                self._under_way[network] = held + cost
        if not reading.allowed:
            raise refused_subject(reading, cost, windows)

    def _release_network(self, network: str, cost: int) -> None:
        with self._lock:
            held = self._under_way.pop(network, 0) - cost  # A fork has forgotten it.
            if held > 0:
                self._under_way[network] = held

    def _count_network(self, network: str, limits: tuple[Limit, ...], cost: int) -> None:
        now = self._clock()
        with self._lock:
            self._networks.count(network, _of_network(limits).at(now), now, cost)

    def _charge_alone(self, owner: str, limit: Limit, cost: int, now: int) -> bool:
        """Charge a new subject in this process, if the limit has no room for it in the store.

        Returns:
            Whether it was charged; False: the store counts it.

        Raises:
            RateLimitExceeded: a window is full.
        """
        with self._lock:
            new = self._new.get(limit.name) or self._new_of(limit.name)
            subject = hash((limit.name, owner))
            if new.known.renew(subject, now):
                return False
            named = windows_of((limit,)).at(now)
            if new.reaches_store(subject, owner, named, now):
                return False
            reading = new.alone.hit(owner, named, now, cost)
            is_told = new.warning.is_due()
        if is_told:
            self._events.emit(
                "subjects_fell_back",
                WARNING,
                limit_name=limit.name,
                an_hour=NEW_AN_HOUR,
                remedy=_REMEDY,
            )
        if not reading.allowed:
            raise refused_subject(reading, cost, named)
        return True

    def _new_of(self, name: str) -> "_NewSubjects":
        """Make the new subjects of a limit; past the bound, some limits share them."""
        number = len(self._new)
        if number < _APART_AT_MOST:
            new = _NewSubjects()
        else:
            new = [*self._new.values()][number % _APART_AT_MOST]
        self._new[name] = new
        return new


def refused_subject(reading: Reading, cost: int, limits: LimitWindows) -> RateLimitExceeded:
    """Return the error for a refused reading, before the plan of any organization is known."""
    refusal = rate_limit_exceeded((), reading, cost, limits)
    refusal.measured = _NO_PLAN, reading
    return refusal


@lru_cache(1024)
def _of_network(limits: tuple[Limit, ...]) -> LimitWindows:
    """Return the windows of limits by address for an IPv6 /48."""
    named = windows_of(limits)
    return named._replace(windows=times(_OF_A_NETWORK, named.windows))


class _NewSubjects:
    """The subjects of one limit that are new to this process, and their quota in the store.

    Callers hold a lock around every call.
    """

    def __init__(self) -> None:
        self.known: Final = RecentOwners()
        """The subjects that the store counts: for as long as it does, but for calendar quotas."""
        self._windows: Final = (Window("hour", HOUR, NEW_AN_HOUR, HOUR // 60),)
        self._state = empty_state(self._windows)
        self.alone: Final = HashedWindows()
        """The windows of subjects that this process counts alone."""
        self.warning: Final = OnceAMinute()

    def reaches_store(self, subject: int, owner: str, limits: LimitWindows, now: int) -> bool:
        """Return whether there is room for a new subject that is not counted here."""
        if any(self.alone.peek(owner, limits, now).used):
            return False
        reading, self._state = hit(self._state, self._windows, now, 1)
        if reading.allowed:
            self.known.add(subject, now)
        return reading.allowed
