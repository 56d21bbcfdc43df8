"""The refusal cache: repeats refusals from memory until their retry time (W13).

A flood of requests of an organization with a full window costs the store no call. The cache never
admits. It repeats a refusal only while the store's change counter, read within the last second, is
the same as before the refusal: so a changed plan or a revoked key takes effect within a second.
"""

from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Final, NamedTuple

from ...core.api_keys import ApiKey
from ...core.bounded_dict import BoundedDict
from ...core.fast_tuples import new_tuple
from ...core.key_format import Token
from ...core.limit_windows import LimitWindows
from ...core.limits import Limit, bound
from ...core.plans import Organization, Plan
from ...core.sliding_window import Reading, Window
from ..answers import Admission, Freshness, Verdict
from ..rows import Read
from ..runtime.process_hooks import own_lock
from .deadlines import DEADLINE, left, within

FRESH: Final = 1.0
"""Seconds for which a change counter is valid after it was read."""
AT_MOST: Final = 10_000
_RENEWED_AFTER: Final = 0.5
_SECOND: Final = 1_000_000
_CLOCK_TOLERANCE: Final = 0.1
"""Seconds by which clocks may drift apart between two answers without a step."""
_FRESHNESS_SHARE: Final = 0.6
"""Share of the deadline for reading the change counter, which may be on another server of a Cluster
than the organization. More than half, or that server's breaker would count no failure."""


class _CachedRefusal(NamedTuple):
    """A refusal, and the conditions under which it holds."""

    cost: int
    windows: tuple[Window, ...]
    reading: Reading
    plan: Plan | None
    """The plan of the key; None: the refusal of a hit, without a key."""
    asked_at: float
    by_hand: bool
    """Whether the caller gave the time; otherwise the monotonic clock applies."""

    def again(self, cost: int, now: int | None, instant: float) -> Reading | None:
        """Return the reading that refuses this cost now; None: the store has to be asked."""
        # A larger cost is refused as well, but its wait is unknown.
        if cost != self.cost or (now is not None) != self.by_hand:
            return None
        allowed, before, used, remaining, reset, tightest, refused_by, wait = self.reading
        at = before + int((instant - self.asked_at) * _SECOND) if now is None else now
        waited = at - before
        # When the tightest window regains capacity, the rate-limit headers change.
        empty = reset <= before
        span = wait if empty else min(wait, reset - before)
        by_limit = refused_by is not None and refused_by >= len(self.windows)
        if by_limit or (self.plan is not None and self.plan.kept_retries):
            # Other requests change what remains of the plan beside a named limit that refused, and
            # other processes may promise the key units: a second ahead or later.
            span = min(span, _SECOND)
        if not 0 <= waited < span or (self.plan is not None and at >= self.plan.until):
            return None
        reset, wait = at if empty else reset, wait - waited
        again = allowed, at, used, remaining, reset, tightest, refused_by, wait
        return new_tuple(Reading, again)


_Place = str | tuple[str, tuple[str, ...]]


def _place(organization: str, limits: LimitWindows | None) -> _Place:
    """Return where a refusal is kept; that of calendar quotas in one place for all periods, since
    each is repeated for a second, and until its period ends, at most."""
    return organization if limits is None else (organization, limits.at(0, organization).fields)


def _place_of_key(key: ApiKey, plan: Plan, limits: LimitWindows | None) -> _Place:
    """Return where the refusal of a key is kept: under a plan that keeps retries of each by itself,
    since another may have units promised."""
    if limits is None and plan.kept_retries:
        return key.organization, (key.id,)
    return _place(key.organization, limits)


class Asked(NamedTuple):
    """The state of the cache when a store was called; a refusal is kept only if it is unchanged."""

    version: int
    at: float


class RefusalCache:
    """Refusals of one store, by organization, and the keys that were refused.

    Args:
        freshness: reads the change counter and the clock of the store.
        deadline: seconds for a request, of which reading the change counter takes a share.
        clock: returns monotonic seconds.

    Attributes:
        refusals: refusals by organization; of requests that are charged to named limits by their
            fields as well. Callers test first whether it is empty.
        version: the number of calls of :meth:`forget`.
        change_counter: the store's latest known change counter; None: unknown.
    """

    def __init__(
        self,
        freshness: Callable[[], Awaitable[Freshness]],
        deadline: float = DEADLINE,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._freshness = freshness
        self._deadline = deadline
        self.clock: Final = clock
        self.refusals: Final = BoundedDict[_Place, _CachedRefusal](AT_MOST)
        self.keys: Final = BoundedDict[str, tuple[ApiKey, Plan]](AT_MOST)
        """The keys that were refused, and their plans, by handle."""
        self.plans: Final = BoundedDict[str, Read[Organization]](AT_MOST)
        self.version = 0
        self._lock = own_lock()
        """Held to compare the version and remember, so that nothing older outlives a change."""
        self.change_counter: int | None = None
        self._read_at = float("-inf")
        self._store_clock: tuple[int, float] | None = None
        """The store's latest time in microseconds, and the monotonic time of that answer."""
        self._reading_until = float("-inf")
        """Until when another caller may be reading the counter, by ``clock``."""

    def asked(self) -> Asked:
        """Return the state to pass to :meth:`learn_hit` with the store's answer."""
        return Asked(self.version, self.clock())

    def may_refuse(self, token: Token) -> bool:
        """Return whether :meth:`repeat` may refuse this key."""
        known = self.keys.get(token.handle)
        if known is None:
            return False
        key, plan = known
        apart = plan.limits or key.limits or plan.kept_retries
        return bool(apart) or key.organization in self.refusals

    async def repeat(
        self,
        token: Token,
        cost: int,
        now: int | None,
        address: str | None = None,
        limits: tuple[Limit, ...] = (),
    ) -> Admission | None:
        """Return a key's refusal, with the present reading; None: ask the store."""
        refused = self.keys.get(token.handle)
        if refused is None:
            return None
        key, plan = refused
        named = bound(limits + plan.limits, key.id, key.limits)
        known = self.refusals.get(_place_of_key(key, plan, named))
        if known is None or known.plan is None:
            return None
        again = known.again(cost, now, self.clock())
        if again is None or not token.matches(key.scheme, key.digest):
            return None
        if key.expires_at is not None and key.expires_at <= again.now:
            return None
        if key.details is not None and not key.details.allows(address):
            return None
        if not await self._is_fresh() or token.handle not in self.keys:
            return None
        named = named and named.at(again.now, key.organization)
        return new_tuple(Admission, (Verdict.LIMITED, key, known.plan, again, named, None))

    async def repeat_hit(
        self,
        organization: str,
        windows: tuple[Window, ...],
        cost: int,
        now: int | None,
        limits: LimitWindows | None = None,
    ) -> Reading | None:
        """Return the reading of a refused hit at present; None: ask the store."""
        place = _place(organization, limits)
        known = self.refusals.get(place)
        if known is None or known.windows != windows:
            return None
        again = known.again(cost, now, self.clock())
        if again is None or not await self._is_fresh() or place not in self.refusals:
            return None
        return again

    async def repeat_plan(self, id: str) -> Read[Organization] | None:
        """Return the plan of an organization while its requests are refused; None: ask the store.

        The reading is at most a second older than the change counter.
        """
        version = self.version
        known, read = self.refusals.get(id), self.plans.get(id)
        if known is None or read is None:
            return None
        now = known.reading.now if known.by_hand else None
        again = known.again(known.cost, now, self.clock())
        if again is not None and await self._is_fresh() and version == self.version:
            return read
        return None

    def learn(
        self,
        admission: Admission,
        cost: int,
        now: int | None,
        version: int,
        asked_at: float,
    ) -> None:
        """Remember a refusal and its key; forget a refusal that an admission disproves.

        A refusal with a promise is not repeated: a second call with the key may be that of another
        caller, which the store promises units of its own.
        """
        verdict, key, plan, reading, named, promise = admission
        if key is None or verdict is Verdict.ELSEWHERE:
            return
        if plan is None or reading is None:
            self.keys.pop(key.handle, None)
        else:
            place = _place_of_key(key, plan, named)
            if verdict is Verdict.ADMITTED or promise is not None:
                self.refusals.pop(place, None)
                self.refusals.pop(key.organization, None)
            else:
                by_hand = now is not None
                refusal = _CachedRefusal(cost, plan.windows, reading, plan, asked_at, by_hand)
                with self._lock:
                    if version == self.version:
                        self.refusals[place] = refusal
                        self.keys[key.handle] = key, plan

    async def learn_hit(
        self,
        organization: str,
        windows: tuple[Window, ...],
        cost: int,
        now: int | None,
        reading: Reading,
        asked: Asked,
        limits: LimitWindows | None = None,
    ) -> None:
        """Remember a refused hit, unless the state has changed since the store was called; forget
        a refusal that an admitted hit disproves."""
        place = _place(organization, limits)
        if reading.allowed:
            self.refusals.pop(place, None)
            self.refusals.pop(organization, None)
            return
        known = self.refusals.get(place)
        plan = known.plan if known is not None and known.windows == windows else None
        if self.change_counter is None:
            await self.read_first(asked.at)
        refusal = _CachedRefusal(cost, windows, reading, plan, asked.at, now is not None)
        with self._lock:
            if asked.version == self.version:
                self.refusals[place] = refusal

    def learn_plan(self, id: str, read: Read[Organization], version: int) -> None:
        """Remember an organization's plan, unless :meth:`forget` was called since ``version``."""
        with self._lock:
            if version == self.version:
                self.plans[id] = read

    def forget(self) -> None:
        """Forget everything."""
        with self._lock:
            self.version += 1
            self.refusals.clear()
            self.keys.clear()
            self.plans.clear()

    async def read_first(self, asked_at: float) -> None:
        """Read the change counter for the first time, to detect later changes."""
        if asked_at >= self._read_at + FRESH:
            await self._is_fresh()

    async def _is_fresh(self) -> bool:
        """Return whether refusals may be repeated; read the change counter twice a second.

        The first request that finds it old reads it. Meanwhile others use the old value, or ask the
        store if it is too old: many requests of a process that starts do not read it many times.
        While the store does not answer, refusals are not repeated.
        """
        asked_at = self.clock()
        age = asked_at - self._read_at
        if age < _RENEWED_AFTER or asked_at < self._reading_until:
            return age < FRESH
        # A request of a process that has just started has longer than its deadline.
        seconds = max(self._deadline, left() or 0.0) * _FRESHNESS_SHARE
        self._reading_until = asked_at + seconds
        try:
            with within(seconds):
                change_counter, now = await self._freshness()
        except Exception:
            return age < FRESH
        finally:
            self._reading_until = float("-inf")
        stepped_back = self._stepped_back(now, asked_at)
        if change_counter is None or change_counter != self.change_counter or stepped_back:
            self.forget()
        self.change_counter, self._read_at = change_counter, asked_at
        return True

    def _stepped_back(self, now: int, asked_at: float) -> bool:
        """Return whether the store's clock runs behind the span since its last answer.

        Refusals expire by a monotonic clock. Without this check, a store with a clock that stepped
        back would be called only after they expire, and would refuse for a whole window more (W11).
        """
        before, self._store_clock = self._store_clock, (now, self.clock())
        if before is None:
            return False
        shown, answered_at = before
        return now < shown + int((asked_at - answered_at - _CLOCK_TOLERANCE) * _SECOND)
