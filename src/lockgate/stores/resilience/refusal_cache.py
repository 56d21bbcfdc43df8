"""Refusals are remembered until their retry time comes, so that a flood costs no round trips.

Nobody is let in by what is remembered. And a plan that changes, or a key that is revoked, holds
within a second all the same (W13): every such change moves the store's epoch, and a refusal is
repeated only if the epoch was read within the last second and was the same as before the refusal.
"""

from collections.abc import Callable
from math import inf
from time import monotonic
from typing import Any, Final, NamedTuple

from ...core.api_keys import ApiKey
from ...core.bounded_dict import BoundedDict
from ...core.key_format import Token
from ...core.plans import UNSEEN, Organization, Plan, PlanBook
from ...core.sliding_window import Reading, Window
from ..base import Admission, Store, Verdict
from .deadlines import DEADLINE, STARTING, UNTIL, begin, within
from .local_limits import LocalLimits
from .wrapping import Wrapper

FRESH: Final = 1.0
"""Seconds for which an epoch is believed."""
_RENEWED_AFTER: Final = 0.5
AT_MOST: Final = 10_000
_SECOND: Final = 1_000_000
_CLOCK_TOLERANCE: Final = 0.1
"""Seconds by which clocks may drift apart between two answers without a step."""
_EPOCH_PART: Final = 0.6
"""Of the deadline: of a Cluster, another server than the organization's may have the epoch. More
than half, or no failure of that server would count."""

_CHANGES: Final = frozenset(
    {
        "revoke_if_live",
        "update_if",
        "rotate_if",
        "rehash_if",
        "remove_ended",
        "put_organization",
        "organization_changed",
        "claim_if_unclaimed",
        "remove_unclaimed",
    }
)
"""Verbs after which this process remembers nothing, at once."""


class _CachedRefusal(NamedTuple):
    """A refusal, and what has to be the same for it to hold."""

    cost: int
    windows: tuple[Window, ...]
    reading: Reading
    plan: Plan | None
    """None: it was no key that was refused, but whoever else stands for the organization."""
    asked_at: float
    by_hand: bool
    """Whether the caller brought the time: then that counts, else the clock that never steps."""

    def again(self, cost: int, now: int | None, instant: float) -> Reading | None:
        """The reading that refuses this cost now; None: the store has to be asked."""
        # A larger cost is refused as well, but nobody knows for how long.
        if cost != self.cost or (now is not None) != self.by_hand:
            return None
        reading = self.reading
        at = reading.now + int((instant - self.asked_at) * _SECOND) if now is None else now
        waited = at - reading.now
        # When the tightest window regains capacity, the headers are no longer those.
        empty = reading.reset <= reading.now
        span = reading.wait if empty else min(reading.wait, reading.reset - reading.now)
        if not 0 <= waited < span:
            return None
        reset = at if empty else reading.reset
        return reading._replace(now=at, reset=reset, wait=reading.wait - waited)


class RefusalCache(Wrapper):
    """A store that several processes share, asked only for what is not known to be refused.

    Args:
        inner: the store.
        limits: what decides while the store is away; its refusals are not remembered, or nobody
            would ask whether the store is back.
        clock: gives seconds that never run backwards.
        deadline: seconds for whatever one request asks here, the epoch included.
    """

    def __init__(
        self,
        inner: Store,
        limits: LocalLimits | None = None,
        clock: Callable[[], float] = monotonic,
        deadline: float = DEADLINE,
    ) -> None:
        super().__init__(inner)
        self._deadline = deadline
        self._patient_until = -inf
        self._limits = limits
        self._clock = clock
        self._denials = BoundedDict[str, _CachedRefusal](AT_MOST)
        self._keys = BoundedDict[str, ApiKey](AT_MOST)
        self._placed = BoundedDict[str, Organization | None](AT_MOST)
        self._forgotten = 0
        self._change_counter: int | None = None
        self._read_at = float("-inf")
        self._store_clock: tuple[int, float] | None = None
        """What the store's clock showed at last, in microseconds, and when its answer was here."""
        self._is_reading = False

    async def pass_on(self, verb: str, *args: Any, **kwargs: Any) -> Any:
        try:
            return await getattr(self.inner, verb)(*args, **kwargs)
        finally:
            if verb in _CHANGES:
                self._forget()

    async def ready(self) -> None:
        await self.inner.ready()
        self._patient_until = monotonic() + STARTING

    async def admit(
        self, token: Token, cost: int, plans: PlanBook, now: int | None = None
    ) -> Admission:
        started = begin(self._seconds())
        try:
            if self._denials and (denied := await self._denied(token, cost, now)) is not None:
                return denied
            forgotten, asked_at = self._forgotten, self._clock()
            admission = await self.inner.admit(token, cost, plans, now)
            if self._change_counter is None and admission.key is not None:
                await self._begin(asked_at)
            self._learn(admission, cost, now, asked_at, forgotten)
            return admission
        finally:
            UNTIL.reset(started)

    async def hit(
        self, organization: str, windows: tuple[Window, ...], cost: int, now: int | None = None
    ) -> Reading:
        with within(self._seconds()):
            known = self._denials.get(organization)
            if known is not None and known.windows == windows:
                again = known.again(cost, now, self._clock())
                if again is not None and await self._is_fresh() and organization in self._denials:
                    return again
            forgotten, asked_at = self._forgotten, self._clock()
            reading = await self.inner.hit(organization, windows, cost, now)
            if reading.allowed:
                self._denials.pop(organization, None)
            else:
                plan = known.plan if known is not None and known.windows == windows else None
                denial = _CachedRefusal(cost, windows, reading, plan, asked_at, now is not None)
                if self._change_counter is None:
                    await self._begin(asked_at)
                self._remember(organization, denial, forgotten)
            return reading

    async def organization(self, id: str) -> Organization | None:
        with within(self._seconds()):
            forgotten = self._forgotten
            known, placed = self._denials.get(id), self._placed.get(id, UNSEEN)
            if known is not None and placed is not UNSEEN:
                now = known.reading.now if known.by_hand else None
                again = known.again(known.cost, now, self._clock())
                if again is not None and await self._is_fresh() and forgotten == self._forgotten:
                    return placed
                forgotten = self._forgotten
            found = await self.inner.organization(id)
            if forgotten == self._forgotten:
                self._placed[id] = found
            return found

    def _seconds(self) -> float:
        """How long one request may wait: longer just after the process has started."""
        return max(self._deadline, self._patient_until - monotonic())

    async def _denied(self, token: Token, cost: int, now: int | None) -> Admission | None:
        key = self._keys.get(token.handle)
        if key is None:
            return None
        known = self._denials.get(key.organization)
        if known is None or known.plan is None:
            return None
        again = known.again(cost, now, self._clock())
        if again is None or not token.matches(key.scheme, key.digest):
            return None
        if key.expires_at is not None and key.expires_at <= again.now:
            return None
        if not await self._is_fresh() or token.handle not in self._keys:
            return None
        return Admission(Verdict.LIMITED, key, known.plan, again)

    def _learn(
        self, admission: Admission, cost: int, now: int | None, asked_at: float, forgotten: int
    ) -> None:
        """Remember a refusal, and whose key it was; forget what an admission disproves."""
        verdict, key, plan, reading = admission
        if key is None:
            return
        if plan is None or reading is None:
            self._keys.pop(key.handle, None)
        elif verdict is Verdict.ADMITTED:
            self._denials.pop(key.organization, None)
        else:
            denial = _CachedRefusal(cost, plan.windows, reading, plan, asked_at, now is not None)
            self._remember(key.organization, denial, forgotten)
            if forgotten == self._forgotten:
                self._keys[key.handle] = key

    async def _begin(self, asked_at: float) -> None:
        """Read the epoch for the first time: only from there on a change can be seen."""
        if asked_at >= self._read_at + FRESH:
            await self._is_fresh()

    def _remember(self, organization: str, denial: _CachedRefusal, forgotten: int) -> None:
        """Remember a refusal, unless something changed since the store was asked."""
        if self._limits is not None and organization in self._limits.away:
            return
        if forgotten == self._forgotten:
            self._denials[organization] = denial

    async def _is_fresh(self) -> bool:
        """Whether what is remembered may be said again; reads the epoch once in a while.

        The request that finds it old reads it, and others go on meanwhile with what there is. While
        the store cannot be asked nothing stays fresh.
        """
        asked_at = self._clock()
        age = asked_at - self._read_at
        if age < _RENEWED_AFTER or (self._is_reading and age < FRESH):
            return True
        self._is_reading = True
        try:
            with within(self._deadline * _EPOCH_PART):
                change_counter, now = await self.inner.freshness()
        except Exception:
            return age < FRESH
        finally:
            self._is_reading = False
        stepped_back = self._stepped_back(now, asked_at)
        if change_counter is None or change_counter != self._change_counter or stepped_back:
            self._forget()
        self._change_counter, self._read_at = change_counter, asked_at
        return True

    def _stepped_back(self, now: int, asked_at: float) -> bool:
        """Return whether the store's clock runs behind the span since its last answer.

        Refusals run by a clock that never steps: without this a store whose clock stepped back
        would be asked only once they are over, and would refuse for a whole window from then (W11).
        """
        before, self._store_clock = self._store_clock, (now, self._clock())
        if before is None:
            return False
        shown, answered_at = before
        return now < shown + int((asked_at - answered_at - _CLOCK_TOLERANCE) * _SECOND)

    def _forget(self) -> None:
        self._forgotten += 1
        self._denials.clear()
        self._keys.clear()
        self._placed.clear()
