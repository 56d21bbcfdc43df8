"""Named limits by a subject outside any organization: an address, a user, a host's own (D40)."""

from collections.abc import Callable, Iterable
from functools import cached_property
from logging import WARNING
from typing import Final

from ..clock import Clock, wall_clock
from ..core.bounded_dict import BoundedDict
from ..core.digests import Peppers
from ..core.limit_windows import LimitWindows
from ..core.limits import Limit, windows_of
from ..core.rate_limit_headers import rate_limit_exceeded
from ..core.sliding_window import Reading, Window, empty_state, hit
from ..core.timestamps import HOUR
from ..events import Events, OnceAMinute
from ..stores.base import Store
from ..stores.memory.windows import LocalWindows
from ..stores.runtime.process_hooks import own_lock
from .store_errors import asking

NEW_AN_HOUR: Final = 10_000
"""The most subjects of one limit that a process has not counted lately and yet brings to the store,
in any hour. Each leaves rows there for up to two days."""
_KNOWN_AT_MOST: Final = 50_000
_ALONE_AT_MOST: Final = 10_000
"""Subjects in each generation of a table of :class:`_NewSubjects`. With the known ones, a limit
that is flooded takes 20 MB."""
_APART_AT_MOST: Final = 16
"""The most limits whose new subjects are bounded apart, so the memory of all is bounded."""
_REMEDY: Final = (
    "Each process counts further new subjects alone, and admits the whole limit to each. If "
    "clients make subjects up, name a limit by address beside this one: it is charged first. "
    "Refuse a flood of addresses before it reaches the service, at its proxy."
)


class SubjectLimits:
    """Counts requests of subjects in the shared store, one step for each subject.

    The name of a subject is hashed with the pepper, so that the store reveals no address, not even
    to a search over all addresses. With its prefix the hash is longer than any organization's id,
    so the two never collide.

    A flood of new subjects is stopped before the store: past :data:`NEW_AN_HOUR` of a limit, its
    new subjects are counted by this process alone, in bounded memory, until there is room again.
    The event ``subjects_fell_back`` reports that once a minute. Other limits are counted in the
    store all the while, those of the same subject included.

    Args:
        store: keeps the windows.
        peppers: hash the names of subjects.
        clock: returns the present in microseconds; None: the store's own clock.
        events: receives ``subjects_fell_back``, and failures of the store.
        tell: tells the calendar quotas that an admission of an owner crossed.
    """

    def __init__(
        self,
        store: Store,
        peppers: Peppers,
        clock: Clock | None,
        events: Events,
        tell: Callable[[str, LimitWindows, Reading, int], None],
    ) -> None:
        self._store = store
        self._peppers = peppers
        self._clock = clock
        self._events = events
        self._tell = tell
        self._lock = own_lock()
        self._new: Final[dict[str, _NewSubjects]] = {}
        """The new subjects of each limit, by its name."""

    def owner(self, kind: str, subject: str) -> str:
        """Return the name by which a store keeps the windows of a subject."""
        return f"limit:{self._peppers.pseudonym('limit', f'{kind} {subject}')}"

    async def charge(self, kind: str, subject: str, limits: Iterable[Limit], cost: int) -> None:
        """Charge the limits of one subject, all or none.

        Those whose new subjects this process counts alone are charged before the others, and stay
        charged where another one refuses.

        Args:
            kind: what the subject is, such as ``address``: equal names of two kinds count apart.
            subject: any text.
            limits: at most four.
            cost: units to take from each window.

        Raises:
            RateLimitExceeded: a window is full.
            StoreUnavailable: the store did not answer, and local limits do not apply.
        """
        owner = self.owner(kind, subject)
        shared = tuple([one for one in limits if not self._charge_alone(owner, one, cost)])
        if not shared:
            return
        named = windows_of(shared)
        now = self._clock() if self._clock else None
        with asking(self._events):
            reading = await self._store.hit(owner, (), cost, now, named)
        if not reading.allowed:
            raise rate_limit_exceeded((), reading, cost, named.at(reading.now))
        self._tell(owner, named, reading, cost)

    def _charge_alone(self, owner: str, limit: Limit, cost: int) -> bool:
        """Charge a new subject in this process, if the limit has no room for it in the store.

        Returns:
            Whether it was charged; False: the store counts it.

        Raises:
            RateLimitExceeded: a window is full.
        """
        clock = self._clock or wall_clock
        with self._lock:
            new = self._new_of(limit.name)
            if new.reaches_store(owner, clock):
                return False
            named = windows_of((limit,))
            reading = new.alone.hit_limited(owner, (), named, clock(), cost)
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
            raise rate_limit_exceeded((), reading, cost, named.at(reading.now))
        return True

    def _new_of(self, name: str) -> "_NewSubjects":
        """Return the new subjects of a limit; past the bound, some limits share them."""
        new = self._new.get(name)
        if new is None:
            number = len(self._new)
            if number < _APART_AT_MOST:
                new = _NewSubjects()
            else:
                new = [*self._new.values()][number % _APART_AT_MOST]
            self._new[name] = new
        return new


class _NewSubjects:
    """The subjects of one limit that are new to this process, and their quota in the store.

    Callers hold a lock around every call.
    """

    def __init__(self) -> None:
        self._known = BoundedDict[int, None](_KNOWN_AT_MOST)
        """Hashes of owners that the store counts: a text takes 200 bytes more. Of two owners with
        one hash, the second one is not new."""
        self._windows: Final = (Window("hour", HOUR, NEW_AN_HOUR, HOUR // 60),)
        self._state = empty_state(self._windows)
        self.warning: Final = OnceAMinute()

    @cached_property
    def alone(self) -> LocalWindows:
        """The windows of subjects that this process counts alone."""
        return LocalWindows(_ALONE_AT_MOST)

    def reaches_store(self, owner: str, clock: Clock) -> bool:
        """Return whether a subject is known, or there is room for another new one."""
        known = hash(owner)
        if known in self._known:
            self._known.touch(known)
            return True
        reading, self._state = hit(self._state, self._windows, clock(), 1)
        if reading.allowed:
            self._known[known] = None
        return reading.allowed
