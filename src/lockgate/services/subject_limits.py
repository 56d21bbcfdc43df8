"""Named limits by a subject outside any organization: an address, a user, a host's own (D40)."""

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Final

from ..clock import Clock, wall_clock
from ..core.bounded_dict import BoundedDict
from ..core.digests import Peppers
from ..core.limit_windows import LimitWindows
from ..core.limits import Limit, windows_of
from ..core.rate_limit_headers import rate_limit_exceeded
from ..core.sliding_window import Reading, Window, empty_state, hit
from ..core.timestamps import HOUR
from ..events import Events
from ..stores.base import Store
from ..stores.memory.windows import LocalWindows
from ..stores.runtime.process_hooks import own_lock
from .store_errors import asking

NEW_AN_HOUR: Final = 10_000
"""The most subjects that a process has not counted lately and yet brings to the store, in any
hour. Each leaves rows there for up to two days."""
_KNOWN_AT_MOST: Final = 50_000


class SubjectLimits:
    """Counts requests of subjects in the shared store, one step for each subject.

    The name of a subject is hashed with the pepper, so that the store reveals no address, not even
    to a search over all addresses. With its prefix the hash is longer than any organization's id,
    so the two never collide.

    A flood of new subjects is stopped before the store: past :data:`NEW_AN_HOUR`, new subjects are
    counted by this process alone, in bounded memory, until there is room again.

    Args:
        store: keeps the windows.
        peppers: hash the names of subjects.
        clock: returns the present in microseconds; None: the store's own clock.
        events: receives failures of the store.
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
        self._known = BoundedDict[str, None](_KNOWN_AT_MOST)
        self._new_windows: Final = (Window("hour", HOUR, NEW_AN_HOUR, HOUR // 60),)
        self._new = empty_state(self._new_windows)

    def owner(self, kind: str, subject: str) -> str:
        """Return the name by which a store keeps the windows of a subject."""
        return f"limit:{self._peppers.pseudonym('limit', f'{kind} {subject}')}"

    async def charge(self, kind: str, subject: str, limits: Iterable[Limit], cost: int) -> None:
        """Charge the limits of one subject, all or none.

        Args:
            kind: what the subject is, such as ``address``: equal names of two kinds count apart.
            subject: any text.
            limits: at most four.
            cost: units to take from each window.

        Raises:
            RateLimitExceeded: a window is full. Nothing is counted for this subject.
            StoreUnavailable: the store did not answer, and local limits do not apply.
        """
        named = windows_of(tuple(limits))
        owner = self.owner(kind, subject)
        now = self._clock() if self._clock else None
        if self._reaches_store(owner):
            with asking(self._events):
                reading = await self._store.hit(owner, (), cost, now, named)
            if reading.allowed:
                self._tell(owner, named, reading, cost)
        else:
            reading = self._alone(owner, named, cost)
        named = named.at(reading.now)
        if not reading.allowed:
            raise rate_limit_exceeded((), reading, cost, named)

    def _reaches_store(self, owner: str) -> bool:
        """Return whether a subject is known, or there is room for another new one."""
        with self._lock:
            if owner in self._known:
                self._known.touch(owner)
            else:
                now = (self._clock or wall_clock)()
                reading, self._new = hit(self._new, self._new_windows, now, 1)
                if not reading.allowed:
                    return False
                self._known[owner] = None
            return True

    def _alone(self, owner: str, named: LimitWindows, cost: int) -> Reading:
        """Charge a subject in this process alone."""
        with self._lock:
            now = (self._clock or wall_clock)()
            return self._local.hit_limited(owner, (), named, now, cost)

    @cached_property
    def _local(self) -> LocalWindows:
        return LocalWindows(_KNOWN_AT_MOST)
