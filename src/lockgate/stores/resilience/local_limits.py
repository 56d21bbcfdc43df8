"""Local limits: the fallback of one process while the store of the windows is away (D28).

Each process counts its admissions all the time, so that its counts are right when the store goes
away. From then on it admits its share of each limit: the limit divided by the number of processes.
So ``P`` processes admit at most ``P`` shares in addition to earlier admissions (W15). For a minute
the store's latest reading limits them as well, so that a short delay of the store admits no more
than the store would have. When the store is back, it is charged for the admissions made in between.
"""

import logging
from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Final, Literal

from ...clock import Clock, wall_clock
from ...core.bounded_dict import BoundedDict
from ...core.hashed_windows import HashedWindows
from ...core.holds import HoldAnswer, Take
from ...core.ledger import Hit
from ...core.limit_windows import LimitWindows, by_limit
from ...core.plans import ID_MAX_LENGTH
from ...core.sliding_window import Reading, Window
from ...errors import StoreUnavailable
from ...events import Events
from ..memory.windows import LocalWindows
from ..quota_thresholds import tell_quotas
from ..runtime.process_hooks import own_lock
from .failures import is_outage, may_have_counted
from .local_holds import LocalHolds

Fallback = Literal["local", "open", "closed"]
"""The limits while the store is away: ``local`` windows, no limits (``open``), or no admission
(``closed``)."""

Charge = Callable[[str, Hit, int | None], Awaitable[Reading]]
"""Charges a store: :meth:`Store.charge <lockgate.stores.base.WindowStore.charge>` of a hit."""

_ORGANIZATIONS_AT_MOST: Final = 10_000
_SETTLED: Final = object()
_NOTED_TOGETHER: Final = 250_000
"""Microseconds: admissions within this span are counted together, at the instant of the last one.
Counting is five times as fast, and a count expires at most this much too late."""


class _Noted:
    """The latest answers of the store about one organization.

    Attributes:
        windows: the windows of its plan.
        first, last: the instants of the first and the last admission that no window counts yet, in
            microseconds of the process's clock.
        cost: the total cost of these admissions.
        used: the cost in each window by the latest answer, plus local admissions since.
    """

    __slots__ = ("cost", "first", "last", "used", "windows")

    def __init__(self, windows: tuple[Window, ...], instant: int) -> None:
        self.windows = windows
        self.first = self.last = instant
        self.cost = 0
        self.used: tuple[int, ...] = ()


class _Counts:
    """The counts of organizations, or of all other owners.

    They are apart, so that no flood of made-up names pushes out the counts of an organization.
    """

    def __init__(self) -> None:
        self.windows: Final = LocalWindows(_ORGANIZATIONS_AT_MOST)
        self.noted: Final = BoundedDict[str, _Noted](_ORGANIZATIONS_AT_MOST)
        self.owed: Final = LocalWindows(_ORGANIZATIONS_AT_MOST)
        """Local admissions that the store has not been charged for."""
        self.named: Final = BoundedDict[tuple[str, str], tuple[int, int]](_ORGANIZATIONS_AT_MOST)
        """By owner and field, for named limits: the cost in the window by the latest answer, plus
        local admissions since; and the instant of the answer."""
        self.owed_limits: Final = BoundedDict[str, dict[LimitWindows, None]](_ORGANIZATIONS_AT_MOST)
        """The named limits of local admissions that the store has not been charged for."""
        self.owing: Final = BoundedDict[str, None](_ORGANIZATIONS_AT_MOST)
        """Owners that may have uncharged local admissions."""


class LocalLimits:
    """The windows of this process: they count while the store answers, and decide when it does not.

    Args:
        mode: the fallback while the store is away.
        fleet: the number of processes that serve the same organizations and share the limits.
        events: receives ``limits_fell_back`` and ``limits_restored``.
        clock: returns the present in microseconds.
    """

    def __init__(
        self, mode: Fallback, fleet: int, events: Events, clock: Clock = wall_clock
    ) -> None:
        self._mode: Final = mode
        self.decides: Final = mode != "closed"
        """Whether callers are served while the store is away."""
        self._fleet = fleet
        self._events = events
        self._clock = clock
        self._lock = own_lock()
        self._organizations: Final = _Counts()
        self._others: Final = _Counts()
        """Of owners with a name too long for an organization's id, such as addresses."""
        self._subjects: Final = HashedWindows()
        """The named limits of the others: none of their counts pushes another out."""
        self.holds: Final = LocalHolds(fleet if mode == "local" else None, clock)
        """The holds of this process while the store is away."""
        self._decided = 0
        """Local decisions since the limits fell back."""
        self.owing: Final = self._organizations.owing
        """Organizations that may have uncharged local admissions."""
        self.others_owing: Final = self._others.owing
        """Other owners that may have them."""
        self._by_handle = BoundedDict[str, tuple[str, tuple[Window, ...]]](_ORGANIZATIONS_AT_MOST)
        """The organization and windows of each key that was limited here."""
        self.away: Final = BoundedDict[str, None](_ORGANIZATIONS_AT_MOST)
        """Organizations with a local latest decision. A Cluster that lost one server still decides
        about the organizations of the others."""

    def note(
        self,
        organization: str,
        windows: tuple[Window, ...],
        reading: Reading,
        cost: int,
        now: int | None = None,
        limits: LimitWindows | None = None,
    ) -> None:
        """Count an answer of the store: its reading, and an admission if it was one."""
        if self.away and organization in self.away:
            self._restore()
        if self._mode != "local":
            return
        with self._lock:
            instant = self._clock() if now is None else now
            counts = self._of(organization)
            if windows:
                noted = counts.noted.get(organization)
                if (
                    noted is None
                    or noted.windows is not windows
                    or not 0 <= instant - noted.first < _NOTED_TOGETHER
                ):
                    noted = self._note_anew(organization, windows, instant)
                noted.used = reading.used if limits is None else reading.used[: len(windows)]
                noted.last = instant
                if reading.allowed:
                    noted.cost += cost
            if limits is not None:
                limits = limits.at(reading.now, organization)
                if reading.allowed:
                    if counts is self._others:
                        self._subjects.count(organization, limits, instant, cost)
                    else:
                        any_number = _any_number(limits)
                        counts.windows.hit_limited(organization, (), any_number, instant, cost)
                for field, used in zip(limits.fields, reading.used[len(windows) :], strict=True):
                    counts.named[organization, field] = used, instant

    def fall_back(
        self,
        failure: Exception,
        organization: str,
        windows: tuple[Window, ...],
        cost: int,
        now: int | None = None,
        handle: str | None = None,
        limits: LimitWindows | None = None,
    ) -> Reading:
        """Return a local decision after a failure of the store.

        Args:
            failure: its exception.
            organization: the organization's id.
            windows: the windows of its plan.
            cost: the cost of the request.
            now: the instant in microseconds; None: by the clock.
            handle: the handle of its key, for :meth:`flush_of`.
            limits: the named limits that the request is charged for as well.

        Raises:
            Exception: ``failure``, if it is no outage or the mode is ``closed``.
        """
        if not is_outage(failure):
            raise failure
        if handle is not None:
            self._by_handle[handle] = organization, windows
        may_count = may_have_counted(failure)
        reading = self.decide(organization, windows, cost, now, may_count=may_count, limits=limits)
        if reading is None:
            raise failure
        return reading

    def decide(
        self,
        organization: str,
        windows: tuple[Window, ...],
        cost: int,
        now: int | None = None,
        *,
        may_count: bool = False,
        limits: LimitWindows | None = None,
    ) -> Reading | None:
        """Return the local decision; None: the mode is ``closed``.

        The reading counts the shares of other processes as used.

        Args:
            organization: the organization's id.
            windows: the windows of its plan.
            cost: the cost of the request.
            now: the instant in microseconds; None: by the clock.
            may_count: whether the store may still count the request, which is then not charged
                again later.
            limits: the named limits that the request is charged for as well.
        """
        self._fall_back(organization)
        reading = None
        instant = self._clock() if now is None else now
        limits = limits and limits.at(instant, organization)
        if self._mode != "closed":
            reading = self._decide(organization, windows, cost, instant, limits)
        admitted = reading is not None and reading.allowed
        self._events.metrics.decide_locally(admitted=admitted)
        if admitted and self._mode == "local" and not may_count:
            with self._lock:
                self._owe(organization, windows, instant, cost, limits)
        return reading

    def hold(
        self, failure: Exception, organization: str, action: Take, now: int | None = None
    ) -> HoldAnswer:
        """Return a local decision about a hold after a failure of the store.

        Raises:
            Exception: ``failure``, if it is no outage or the mode is ``closed``.
        """
        if not is_outage(failure):
            raise failure
        self._fall_back(organization)
        if not self.decides:
            raise failure
        answer = self.holds.decide(organization, action, now)
        self._events.metrics.decide_locally(admitted=answer.done)
        return answer

    def answered(self, organization: str) -> None:
        """Note that the store decides about an organization."""
        if self.away and organization in self.away:
            self._restore()

    def peek(
        self,
        failure: Exception,
        organization: str,
        windows: tuple[Window, ...],
        now: int | None = None,
        limits: LimitWindows | None = None,
    ) -> Reading:
        """Return the local reading after a failure of the store, without charging anything.

        Raises:
            Exception: ``failure``, if it is no outage or the mode is ``closed``.
        """
        if not is_outage(failure) or not self.decides:
            raise failure
        with self._lock:
            self._count_noted(organization)
            instant = self._clock() if now is None else now
            if limits is not None:
                limits = limits.at(instant, organization)
                limits = limits._replace(windows=self._shares(limits.windows))
            return self._peek(organization, self._shares(windows), instant, limits)

    async def flush(
        self,
        organization: str,
        windows: tuple[Window, ...],
        charge: Charge,
        now: int | None = None,
    ) -> None:
        """Charge a store that answers again for the local admissions of an organization.

        The charge is the cost that the shortest window still counts: a hit charges all windows, so
        a larger charge would fill the shortest one needlessly.

        Args:
            organization: the organization's id.
            windows: the windows of its plan; empty: only named limits are charged.
            charge: charges the store. A charge of unknown outcome is not repeated (D33).
            now: the instant in microseconds; None: by the clock.
        """
        counts = self._of(organization)
        if organization not in counts.owing:
            return
        owed_windows, owed_limits = counts.owed, counts.owed_limits
        with self._lock:
            if counts.owing.pop(organization, _SETTLED) is _SETTLED:
                return
            instant = self._clock() if now is None else now
            used = owed_windows.peek(organization, windows, instant).used if windows else ()
            due = [
                (limits, owed_windows.peek(organization, (), instant, limits).used)
                for limits in owed_limits.pop(organization, {})
            ]
            if windows:
                owed_windows.take(organization)
            elif organization in owed_windows:
                counts.owing[organization] = None
            owed_windows.limits.remove(organization)
        if owed := min(used, default=0):
            await self._charge(charge, organization, windows, owed, now)
        for limits, used in due:
            if owed := min(used):
                await self._charge(charge, organization, (), owed, now, _any_number(limits))

    async def flush_of(self, handle: str, charge: Charge, now: int | None = None) -> None:
        """Charge a store that answers again for the organization of a key, as :meth:`flush`."""
        known = self._by_handle.get(handle)
        if known is not None and known[0] not in self.away:
            await self.flush(*known, charge, now)

    async def _charge(
        self,
        charge: Charge,
        organization: str,
        windows: tuple[Window, ...],
        owed: int,
        now: int | None,
        limits: LimitWindows | None = None,
    ) -> None:
        """Charge the store for local admissions, or keep them for the next time."""
        try:
            hit = Hit(_unlimited(windows), owed, limits)
            reading = await charge(organization, hit, now)
            if limits is not None and limits.quotas:
                present = limits.at(reading.now, organization)
                tell_quotas(self._events, organization, present, reading.used, owed)
        except StoreUnavailable:
            with self._lock:
                instant = self._clock() if now is None else now
                self._owe(organization, windows, instant, owed, limits)
        except Exception as failure:
            if not is_outage(failure):
                raise

    def _fall_back(self, organization: str) -> None:
        """Report that this process decides, about one organization more."""
        if not self.away:
            self._decided = 0
            self._events.emit("limits_fell_back", logging.WARNING, mode=self._mode)
        if organization not in self.away:
            self.away[organization] = None
        self._decided += 1

    def _restore(self) -> None:
        """Report that the store decides again, at least about this organization."""
        self.away.clear()
        self._events.emit("limits_restored", logging.WARNING, decisions=self._decided)

    def _note_anew(self, organization: str, windows: tuple[Window, ...], instant: int) -> _Noted:
        self._count_noted(organization)
        noted = self._of(organization).noted[organization] = _Noted(windows, instant)
        return noted

    def _count_noted(self, organization: str) -> _Noted | None:
        """Move noted admissions to the windows, and return the store's latest answers."""
        counts = self._of(organization)
        noted = counts.noted.get(organization)
        if noted is not None and noted.cost:
            counts.windows.hit(organization, _unlimited(noted.windows), noted.last, noted.cost)
            noted.cost = 0
        return noted

    def _decide(
        self,
        organization: str,
        windows: tuple[Window, ...],
        cost: int,
        now: int | None,
        limits: LimitWindows | None,
    ) -> Reading:
        with self._lock:
            instant = self._clock() if now is None else now
            noted = self._count_noted(organization) if windows else None
            if self._mode == "open":
                self._hit(
                    organization,
                    _unlimited(windows),
                    instant,
                    cost,
                    None if limits is None else _any_number(limits),
                )
                reading = self._peek(organization, windows, instant, limits)
                return reading._replace(allowed=True, refused_by=None, wait=0)
            shares = self._shares(windows)
            if noted is not None and noted.windows == windows:
                own = self._peek(organization, windows, instant).used
                shares = _within_reading(shares, windows, noted, own, instant)
            named = None if limits is None else self._limit_shares(organization, limits, instant)
            reading = self._hit(organization, shares, instant, cost, named)
            if reading.allowed and noted is not None:
                noted.used = tuple(used + cost for used in noted.used)
            if limits is not None and named is not None:
                windows, shares = windows + limits.windows, shares + named.windows
                if reading.allowed:
                    self._note_locally(organization, limits, cost)
            return reading._replace(used=_with_others(reading.used, windows, shares))

    def _hit(
        self,
        organization: str,
        windows: tuple[Window, ...],
        instant: int,
        cost: int,
        limits: LimitWindows | None,
    ) -> Reading:
        counts = self._of(organization)
        if limits is None:
            return counts.windows.hit(organization, windows, instant, cost)
        if counts is self._others:
            return self._subjects.hit(organization, limits, instant, cost)
        return counts.windows.hit_limited(organization, windows, limits, instant, cost)

    def _peek(
        self,
        organization: str,
        windows: tuple[Window, ...],
        instant: int,
        limits: LimitWindows | None = None,
    ) -> Reading:
        counts = self._of(organization)
        if limits is not None and counts is self._others:
            return self._subjects.peek(organization, limits, instant)
        return counts.windows.peek(organization, windows, instant, limits)

    def _of(self, owner: str) -> _Counts:
        return self._organizations if len(owner) <= ID_MAX_LENGTH else self._others

    def _note_locally(self, organization: str, limits: LimitWindows, cost: int) -> None:
        """Add a local admission to what the store told of named limits."""
        named = self._of(organization).named
        for field in limits.fields:
            told = named.get((organization, field))
            if told is not None:
                named[organization, field] = told[0] + cost, told[1]

    def _limit_shares(self, organization: str, limits: LimitWindows, instant: int) -> LimitWindows:
        """Return named limits with this process's shares, within the store's latest answers."""
        shares: list[Window] = []
        named = self._of(organization).named
        own = self._peek(organization, (), instant, limits).used
        of_process = self._shares(limits.windows)
        for field, window, share, mine in zip(
            limits.fields, limits.windows, of_process, own, strict=True
        ):
            told = named.get((organization, field))
            limit, most = window.limit, share.limit
            is_fresh = told is not None and 0 <= instant - told[1] < window.span
            if is_fresh and told is not None and limit is not None and most is not None:
                most = min(most, mine + max(0, limit - told[0]))
            shares.append(share._replace(limit=most))
        return limits._replace(windows=tuple(shares))

    def _owe(
        self,
        organization: str,
        windows: tuple[Window, ...],
        instant: int,
        cost: int,
        limits: LimitWindows | None = None,
    ) -> None:
        counts = self._of(organization)
        if windows:
            counts.owed.hit(organization, _unlimited(windows), instant, cost)
        if limits is not None:
            counts.owed.hit_limited(organization, (), _any_number(limits), instant, cost)
            owed = counts.owed_limits.get(organization) or {}
            counts.owed_limits[organization] = owed | dict.fromkeys(by_limit(limits))
        counts.owing[organization] = None

    def _shares(self, windows: tuple[Window, ...]) -> tuple[Window, ...]:
        """Return the windows with this process's share of each limit: at least one request."""
        return tuple(
            window
            if window.limit is None
            else window._replace(limit=min(window.limit, max(1, window.limit // self._fleet)))
            for window in windows
        )


def _with_others(
    own: tuple[int, ...], windows: tuple[Window, ...], shares: tuple[Window, ...]
) -> tuple[int, ...]:
    """Return this process's use with the shares of other processes, which count as used.

    What this process was admitted above its share, while the store answered, is of their shares: so
    the sum is at most the limit, unless this process alone has used more.
    """
    return tuple(
        used
        if window.limit is None or share.limit is None
        else max(used, min(used + window.limit - share.limit, window.limit))
        for used, window, share in zip(own, windows, shares, strict=True)
    )


def _within_reading(
    shares: tuple[Window, ...],
    windows: tuple[Window, ...],
    noted: _Noted,
    own: tuple[int, ...],
    instant: int,
) -> tuple[Window, ...]:
    """Return shares reduced so that no limit is exceeded by the store's latest reading.

    The reading is exact at first and too high once hits expire, so it is ignored after the length
    of the shortest window.
    """
    if not 0 <= instant - noted.last < min(window.span for window in windows):
        return shares
    return tuple(
        share
        if window.limit is None or share.limit is None
        else share._replace(limit=min(share.limit, mine + max(0, window.limit - used)))
        for share, window, mine, used in zip(shares, windows, own, noted.used, strict=True)
    )


@lru_cache(maxsize=1024)
def _any_number(limits: LimitWindows) -> LimitWindows:
    return limits._replace(windows=_unlimited(limits.windows))


@lru_cache(maxsize=1024)
def _unlimited(windows: tuple[Window, ...]) -> tuple[Window, ...]:
    return tuple(window._replace(limit=None) for window in windows)
