"""Limits while the store of the windows is away: by this process alone, or none, or nobody (D28).

Each process counts what it admitted, all the time, so that it knows where it stands when the store
goes away. From then on it admits its share of each limit: the limit divided by how many processes
there are. ``P`` processes so admit no more than ``P`` shares beside what was admitted before (W15).
When the store is back it is charged for what was admitted meanwhile.
"""

import logging
from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Final, Literal

from ...core.bounded_dict import BoundedDict
from ...core.sliding_window import Reading, Window
from ...errors import ConfigurationError, StoreUnavailable
from ...events import Events
from ..memory.windows import Clock, LocalWindows, wall_clock
from ..runtime.process_hooks import own_lock
from .failures import is_outage

Fallback = Literal["local", "open", "closed"]
"""What becomes of limits while they cannot be asked for: ``local`` windows, everything admitted, or
nothing."""

_ORGANIZATIONS_AT_MOST: Final = 10_000
_SETTLED: Final = object()


class LocalLimits:
    """The windows of this process: kept warm while the store answers, asked when it does not.

    Args:
        mode: what to do then.
        fleet: how many processes serve the same organizations; each has its share of the limits.
        events: where ``limits_fell_back`` and ``limits_restored`` are told.
        clock: gives the present in microseconds.

    Raises:
        ConfigurationError: an unknown mode, or a fleet of none.
    """

    def __init__(
        self, mode: Fallback, fleet: int, events: Events, clock: Clock = wall_clock
    ) -> None:
        if mode not in ("local", "open", "closed"):
            raise ConfigurationError(
                f"on_store_failure is {mode!r}: use 'local', 'open' or 'closed'."
            )
        if fleet < 1:
            raise ConfigurationError(f"The fleet is {fleet}: it has at least this one process.")
        self._mode: Final = mode
        self._fleet = fleet
        self._events = events
        self._clock = clock
        self._lock = own_lock()
        self._windows = LocalWindows(_ORGANIZATIONS_AT_MOST)
        self._owed = LocalWindows(_ORGANIZATIONS_AT_MOST)
        """What was admitted here and the store was not charged for."""
        self.owing: Final = BoundedDict[str, None](_ORGANIZATIONS_AT_MOST)
        """Organizations of which there may be something of that."""
        self.away: Final = BoundedDict[str, None](_ORGANIZATIONS_AT_MOST)
        """Organizations that were last decided about here. Of a Cluster that lost one server others
        are decided about there meanwhile."""

    def note(
        self, organization: str, windows: tuple[Window, ...], cost: int, now: int | None = None
    ) -> None:
        """Count what the store admitted."""
        if self.away and organization in self.away:
            self.away.clear()  # So may be the others of its server.
            self._events.emit("limits_restored", logging.WARNING)
        if self._mode == "local":
            with self._lock:
                instant = self._clock() if now is None else now
                self._windows.hit(organization, _unlimited(windows), instant, cost)

    def decide(
        self,
        organization: str,
        windows: tuple[Window, ...],
        cost: int,
        now: int | None = None,
        *,
        may_count: bool = False,
    ) -> Reading | None:
        """What holds instead of the store's reading; None: nobody is admitted.

        The reading counts what other processes may admit as used.

        Args:
            organization: its id.
            windows: those of its plan.
            cost: what the request weighs.
            now: when it comes; None: by the clock.
            may_count: whether the store may still count the request, so that it owes nothing.
        """
        if not self.away:
            self._events.emit("limits_fell_back", logging.WARNING, mode=self._mode)
        if organization not in self.away:
            self.away[organization] = None
        if self._mode == "closed":
            return None
        with self._lock:
            instant = self._clock() if now is None else now
            if self._mode == "local":
                shares = self._shares(windows)
                reading = self._windows.hit(organization, shares, instant, cost)
                if reading.allowed and not may_count:
                    self._owe(organization, windows, instant, cost)
                others = [
                    (window.limit or 0) - (share.limit or 0)
                    for window, share in zip(windows, shares, strict=True)
                ]
                used = tuple(map(int.__add__, reading.used, others))
                return reading._replace(used=used)
            self._windows.hit(organization, _unlimited(windows), instant, cost)
            reading = self._windows.peek(organization, windows, instant)
            return reading._replace(allowed=True, refused_by=None, wait=0)

    async def flush(
        self,
        organization: str,
        windows: tuple[Window, ...],
        hit: Callable[[str, tuple[Window, ...], int, int | None], Awaitable[Reading]],
        now: int | None = None,
    ) -> None:
        """Charge a store that answers again for what was admitted here.

        That is what the shortest window still counts. All windows are charged alike, so after a
        longer time more would keep the shortest one full without need.

        Args:
            organization: its id.
            windows: those of its plan.
            hit: the store's. A charge that may have been made is not made again (D33).
            now: when it is made; None: by the clock.
        """
        if self.owing.pop(organization, _SETTLED) is _SETTLED:
            return
        with self._lock:
            instant = self._clock() if now is None else now
            used = self._owed.peek(organization, windows, instant).used
            self._owed.take(organization)
        if owed := min(used, default=0):
            try:
                await hit(organization, _unlimited(windows), owed, now)
            except StoreUnavailable:
                with self._lock:
                    self._owe(organization, windows, instant, owed)
            except Exception as failure:
                if not is_outage(failure):
                    raise

    def _owe(self, organization: str, windows: tuple[Window, ...], instant: int, cost: int) -> None:
        self._owed.hit(organization, _unlimited(windows), instant, cost)
        self.owing[organization] = None

    def _shares(self, windows: tuple[Window, ...]) -> tuple[Window, ...]:
        """The windows with what this process may admit of each limit: at least one request."""
        return tuple(
            window
            if window.limit is None
            else window._replace(limit=min(window.limit, max(1, window.limit // self._fleet)))
            for window in windows
        )


@lru_cache(maxsize=1024)
def _unlimited(windows: tuple[Window, ...]) -> tuple[Window, ...]:
    return tuple(window._replace(limit=None) for window in windows)
