"""Stores with one mistake each, all of them seen in the wild; the kit must kill every one.

``killed_by`` names the sentences by which a mutant may be found out first.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from lockgate import MemoryStore, PlanBook, Store
from lockgate.core.api_keys import ApiKey, KeyDetails, KeyDraft, KeyState, Position
from lockgate.core.budgets import SLOTS, UNUSED, Budget
from lockgate.core.digests import Digest
from lockgate.core.key_format import Token
from lockgate.core.leases import Lease
from lockgate.core.ledger import Hit
from lockgate.core.limit_windows import LimitWindows
from lockgate.core.plans import Organization
from lockgate.core.reservations import Reservations
from lockgate.core.sliding_window import Reading, State, Window, empty_state, hit, peek
from lockgate.core.temporary_limits import told_apart
from lockgate.core.timestamps import DAY, SECOND
from lockgate.errors import KeyLimitReached
from lockgate.stores.answers import (
    Admission,
    Freshness,
    Page,
    Removal,
    Rows,
    Usage,
    UsageBatch,
    Verdict,
)
from lockgate.stores.base import PAGE_AT_MOST
from lockgate.testing.checks import PARTS, Part
from tests.by_verbs import MemoryByVerbs, SlotReading

Windows = tuple[Window, ...]
START_SKEW = 300 * SECOND


def gap() -> None:
    """As long as a round trip to a server: time for another caller to interleave."""
    time.sleep(0.002)


class Mutant(MemoryByVerbs):
    """Right until a subclass makes its mistake; admits verb by verb, so that each one shows."""

    killed_by: ClassVar[Collection[str]] = frozenset()
    parts: ClassVar[tuple[Part, ...]] = PARTS
    """The parts of the contract of which the kit makes the checks."""

    def __init__(self) -> None:
        super().__init__()
        self.states: dict[str, State] = {}

    admit = Store.admit
    grants_leases = False

    def remove_keys(self, organization: str) -> None:
        """Remove all keys of an organization, under the lock."""
        for key in self._keys.all(organization):
            self._keys.remove(key)

    async def reset(self, organization: str, *args: Any, **kwargs: Any) -> None:
        self.states.pop(organization, None)
        await super().reset(organization, *args, **kwargs)

    def slots(self, organization: str) -> Reservations:
        return self._budgets._budgets.get((organization, SLOTS), UNUSED).held

    def put_slots(self, organization: str, slots: Reservations) -> None:
        self._budgets._budgets[organization, SLOTS] = Budget(held=slots)

    def at(self, now: int | None) -> int:
        return self._clock() if now is None else now


class Counting(Mutant):
    """Decides by separate counts: units used in each window, and when it is free again."""

    def used(self, organization: str, window: Window, now: int) -> int:
        raise NotImplementedError

    def count(self, organization: str, window: Window, now: int, cost: int) -> None:
        raise NotImplementedError

    async def hit(
        self,
        organization: str,
        windows: Windows,
        cost: int,
        now: int | None = None,
        limits: LimitWindows | None = None,
    ) -> Reading:
        with self._lock:
            at = self.at(now)
            counts = [self.used(organization, window, at) for window in windows]
            full = [
                index
                for index, (window, used) in enumerate(zip(windows, counts, strict=True))
                if window.limit is not None and used + cost > window.limit
            ]
            truth, state = hit(
                self.states.get(organization, empty_state(windows)), windows, at, cost
            )
            if not full:
                for window in windows:
                    self.count(organization, window, at, cost)
            if truth.allowed is bool(full):
                return truth._replace(allowed=not full, refused_by=full[0] if full else None)
            self.states[organization] = state
            return truth

    async def peek(
        self,
        organization: str,
        windows: Windows,
        now: int | None = None,
        limits: LimitWindows | None = None,
    ) -> Reading:
        return peek(self.states.get(organization) or empty_state(windows), windows, self.at(now))


class FixedWindow(Counting):
    """Counts from the full minute, hour and day on."""

    killed_by: ClassVar = {"W1", "W2"}

    def __init__(self) -> None:
        super().__init__()
        self.counts: dict[Any, int] = defaultdict(int)

    def used(self, organization: str, window: Window, now: int) -> int:
        return self.counts[organization, window.name, now // window.span]

    def count(self, organization: str, window: Window, now: int, cost: int) -> None:
        self.counts[organization, window.name, now // window.span] += cost


class TwoCounters(FixedWindow):
    """Weights the window before by how much of it is still covered."""

    def used(self, organization: str, window: Window, now: int) -> int:
        number, into = divmod(now, window.span)
        before = self.counts[organization, window.name, number - 1]
        weighted = before * (window.span - into) // window.span
        return weighted + self.counts[organization, window.name, number]


class LeakyBucket(Counting):
    """GCRA with a burst of the whole limit."""

    killed_by: ClassVar = {"W1", "W2"}

    def __init__(self) -> None:
        super().__init__()
        self.levels: dict[Any, tuple[float, int]] = {}

    def used(self, organization: str, window: Window, now: int) -> int:
        level, at = self.levels.get((organization, window.name), (0.0, now))
        return round(max(0.0, level - (now - at) * (window.limit or 0) / window.span))

    def count(self, organization: str, window: Window, now: int, cost: int) -> None:
        level = self.used(organization, window, now) + cost
        self.levels[organization, window.name] = (level, now)


class DropsTheIdleTooEarly(Mutant):
    """Drops states without a hit for half a day, as if no window were longer."""

    killed_by: ClassVar = {"W1", "W6"}

    async def hit(
        self,
        organization: str,
        windows: Windows,
        cost: int,
        now: int | None = None,
        limits: LimitWindows | None = None,
    ) -> Reading:
        with self._lock:
            at = self.at(now)
            for owner, state in list(self.states.items()):
                if max(cells[3] for cells in state) < at - DAY // 2:
                    del self.states[owner]
            before = self.states.get(organization) or empty_state(windows)
            reading, self.states[organization] = hit(before, windows, at, cost)
            return reading

    async def peek(
        self,
        organization: str,
        windows: Windows,
        now: int | None = None,
        limits: LimitWindows | None = None,
    ) -> Reading:
        return peek(self.states.get(organization) or empty_state(windows), windows, self.at(now))


class Unlocked(Mutant):
    """Reads, decides and writes without a lock."""

    killed_by: ClassVar = {"W1", "W3"}

    async def hit(
        self,
        organization: str,
        windows: Windows,
        cost: int,
        now: int | None = None,
        limits: LimitWindows | None = None,
    ) -> Reading:
        before = self.states.get(organization) or empty_state(windows)
        gap()
        reading, self.states[organization] = hit(before, windows, self.at(now), cost)
        return reading

    async def peek(
        self,
        organization: str,
        windows: Windows,
        now: int | None = None,
        limits: LimitWindows | None = None,
    ) -> Reading:
        return peek(self.states.get(organization) or empty_state(windows), windows, self.at(now))


class GetThenSave(Mutant):
    """Saves a whole row that it read before, revocation and all."""

    killed_by: ClassVar = {"K3", "K5", "K4", "K7", "W3"}

    async def add_usage(self, usage: Mapping[str, Usage], batch: UsageBatch | None = None) -> None:
        with self._lock:
            if not self._is_new(batch):
                return
        for handle, used in usage.items():
            with self._lock:
                row, before = self._rows.get(handle), self._requests.get(handle, 0)
            if row is None:
                continue
            gap()
            with self._lock:
                self._rows[handle] = row
                self._requests[handle] = before
            await super().add_usage({handle: used})


class RefusedHitsCount(Mutant):
    """Charges a refused call as well."""

    killed_by: ClassVar = {"W7"}

    async def hit(
        self,
        organization: str,
        windows: Windows,
        cost: int,
        now: int | None = None,
        limits: LimitWindows | None = None,
    ) -> Reading:
        reading = await super().hit(organization, windows, cost, now, limits)
        if not reading.allowed:
            endless = tuple(window._replace(limit=None) for window in windows)
            await super().hit(organization, endless, cost, now)
        return reading


class OneByOne(Mutant):
    """Charges the minute, then the hour, then the day, and leaves it so when one refuses."""

    killed_by: ClassVar = {"W9"}

    async def hit(
        self,
        organization: str,
        windows: Windows,
        cost: int,
        now: int | None = None,
        limits: LimitWindows | None = None,
    ) -> Reading:
        reading = await super().peek(organization, windows, now)
        endless = tuple(window._replace(limit=None) for window in windows)
        refused = [
            index
            for index, window in enumerate(windows)
            if window.limit is not None and reading.used[index] + cost > window.limit
        ]
        if not refused or refused[0] == 0:
            return await super().hit(organization, windows, cost, now, limits)
        answer = await super().hit(organization, windows, cost, now, limits)
        with self._lock:
            state = self._windows._present[organization]
            after = hit(state, endless, self.at(now), cost)[1]
            kept = tuple(after[i] if i < refused[0] else state[i] for i in range(len(windows)))
            self._windows._present[organization] = kept
        return answer


class CallersClock(Mutant):
    """Uses the clock of the calling process instead of the store's."""

    killed_by: ClassVar = {"W12"}

    def __init__(self) -> None:
        super().__init__()
        self._clock = lambda: time.time_ns() // 1000 - START_SKEW

    async def hit(
        self,
        organization: str,
        windows: Windows,
        cost: int,
        now: int | None = None,
        limits: LimitWindows | None = None,
    ) -> Reading:
        now = time.time_ns() // 1000 if now is None else now
        return await super().hit(organization, windows, cost, now, limits)


class NoTimeToLive(Mutant):
    """Keeps every organization for ever."""

    killed_by: ClassVar = {"W10"}

    async def hit(
        self,
        organization: str,
        windows: Windows,
        cost: int,
        now: int | None = None,
        limits: LimitWindows | None = None,
    ) -> Reading:
        self.states.setdefault(organization, ())
        return await super().hit(organization, windows, cost, now, limits)


class RemainingOffByOne(Mutant):
    """Says what remained before the call."""

    killed_by: ClassVar = {"W4"}

    async def hit(
        self,
        organization: str,
        windows: Windows,
        cost: int,
        now: int | None = None,
        limits: LimitWindows | None = None,
    ) -> Reading:
        reading = await super().hit(organization, windows, cost, now, limits)
        if not reading.allowed or reading.remaining is None:
            return reading
        return reading._replace(remaining=reading.remaining + 1)


class ComeBackTooEarly(Mutant):
    """Rounds the wait down to whole seconds."""

    killed_by: ClassVar = {"W6"}

    async def hit(
        self,
        organization: str,
        windows: Windows,
        cost: int,
        now: int | None = None,
        limits: LimitWindows | None = None,
    ) -> Reading:
        reading = await super().hit(organization, windows, cost, now, limits)
        return reading._replace(wait=reading.wait // SECOND * SECOND)


class CostIgnored(Mutant):
    """Every call costs one."""

    killed_by: ClassVar = {"W2"}

    async def hit(
        self,
        organization: str,
        windows: Windows,
        cost: int,
        now: int | None = None,
        limits: LimitWindows | None = None,
    ) -> Reading:
        return await super().hit(organization, windows, 1, now)


class Resurrecting(Mutant):
    """Renews a lease that has ended."""

    killed_by: ClassVar = {"L4"}

    async def renew(
        self, organization: str, job: str, owner: str, span: int, now: int | None = None
    ) -> Lease | None:
        with self._lock:
            slots = self.slots(organization)
            mine = next((one for one in slots if (one.id, one.owner) == (job, owner)), None)
            if mine is None:
                return None
            renewed = mine._replace(deadline=self.at(now) + span, span=span)
            self.put_slots(organization, tuple(renewed if x == mine else x for x in slots))
            return Lease(job, owner, renewed.deadline, span)


class NeverShortensALease(Mutant):
    """Takes the later of two deadlines."""

    killed_by: ClassVar = {"L4"}

    async def renew(
        self, organization: str, job: str, owner: str, span: int, now: int | None = None
    ) -> Lease | None:
        leases = await self.held(organization, now)
        mine = [lease.deadline for lease in leases if lease[:2] == (job, owner)]
        longest = max([span, *(deadline - self.at(now) for deadline in mine)])
        return await super().renew(organization, job, owner, longest, now)


class NeverShortensTheSpanOfALease(Mutant):
    """Takes the longer of two spans: the answer has the one that was asked for."""

    killed_by: ClassVar = {"L4"}

    async def renew(
        self, organization: str, job: str, owner: str, span: int, now: int | None = None
    ) -> Lease | None:
        before = await self.held(organization, now)
        lease = await super().renew(organization, job, owner, span, now)
        longer = [one for one in before if one[:2] == (job, owner) and one.span > span]
        if lease is not None and longer:
            await super().renew(organization, job, owner, longer[0].span, now)
        return lease


class AnybodyReleases(Mutant):
    """Frees the slot of a job without checking its owner."""

    killed_by: ClassVar = {"L5"}

    async def release(
        self, organization: str, job: str, owner: str, now: int | None = None
    ) -> bool:
        leases = await self.held(organization, now)
        owner = next((lease.owner for lease in leases if lease.job == job), owner)
        return await super().release(organization, job, owner, now)


class SlotsUnlocked(Mutant):
    """Counts the leases, then takes one."""

    killed_by: ClassVar = {"L1", "W3"}

    async def acquire(
        self,
        organization: str,
        job: str,
        owner: str,
        limit: int | None,
        span: int,
        now: int | None = None,
    ) -> SlotReading:
        live = await self.held(organization, now)
        gap()
        if limit is not None and len(live) >= limit and job not in {lease.job for lease in live}:
            return await super().acquire(organization, job, owner, limit, span, now)
        reading = await super().acquire(organization, job, owner, None, span, now)
        return reading._replace(limit=limit)


class AcquiresTwice(Mutant):
    """Gives the job a new lease each time it asks."""

    killed_by: ClassVar = {"L6"}

    async def acquire(
        self,
        organization: str,
        job: str,
        owner: str,
        limit: int | None,
        span: int,
        now: int | None = None,
    ) -> SlotReading:
        for lease in await self.held(organization, now):
            if lease.job == job:
                await super().release(organization, job, lease.owner, now)
        return await super().acquire(organization, job, owner, limit, span, now)


class CapBeforeInsert(Mutant):
    """Counts the keys, then inserts."""

    killed_by: ClassVar = {"K8"}

    async def insert(
        self, draft: KeyDraft, cap: int | None, now: int | None = None, **options: Any
    ) -> ApiKey:
        at = self.at(now)
        live = [
            k
            for k in await self.list(draft.organization, PAGE_AT_MOST)
            if k.state(at).value == "active"
        ]
        if cap is not None and len(live) >= cap:
            raise KeyLimitReached(cap)
        gap()
        return await super().insert(draft, None, now, **options)


class ForgetsHistory(Mutant):
    """Inserts a key of another system as a new one."""

    killed_by: ClassVar = {"K1"}

    async def insert(
        self, draft: KeyDraft, cap: int | None, now: int | None = None, **options: Any
    ) -> ApiKey:
        return await super().insert(draft._replace(history=None), cap, now, **options)


class UsageLostOnError(Mutant):
    """One handle that does not exist spoils the whole batch."""

    killed_by: ClassVar = {"K7"}

    async def add_usage(self, usage: Mapping[str, Usage], batch: UsageBatch | None = None) -> None:
        if all(handle in self._rows for handle in usage):
            await super().add_usage(usage, batch)


class LastUseGoesBack(Mutant):
    """The latest word decides, not the latest time."""

    killed_by: ClassVar = {"K7"}

    async def add_usage(self, usage: Mapping[str, Usage], batch: UsageBatch | None = None) -> None:
        await super().add_usage(usage, batch)
        with self._lock:
            for handle, used in usage.items():
                if handle in self._rows:
                    self._last_used[handle] = used.last_used_at


class ListsByPrefix(Mutant):
    """Lists whatever belongs to an id that begins like this one."""

    killed_by: ClassVar = {"K6", "W8"}

    async def list(
        self, organization: str, limit: int, after: Position | None = None
    ) -> list[ApiKey]:
        rows = self._rows.items()
        keys = [self._keys.key(h) for h, row in rows if row[2].startswith(organization)]
        return sorted(keys, key=lambda key: (-key.created_at, key.id))[:limit]


class AnybodyInspects(Mutant):
    """Finds a key by its id without checking the organization."""

    killed_by: ClassVar = {"K6", "K1", "W8"}

    async def get(self, organization: str, id: str) -> ApiKey | None:
        handle = self._keys.handles_by_id.get(id)
        return None if handle is None else await self.find(handle)


class HashTagInjected(Mutant):
    """Names its Redis keys ``{org}:...``: braces in an id move them to another slot."""

    killed_by: ClassVar = {"W8"}

    @staticmethod
    def tag(organization: str) -> str:
        return organization.replace("{", "").split("}")[0]

    async def hit(
        self,
        organization: str,
        windows: Windows,
        cost: int,
        now: int | None = None,
        limits: LimitWindows | None = None,
    ) -> Reading:
        return await super().hit(self.tag(organization), windows, cost, now)

    async def peek(
        self,
        organization: str,
        windows: Windows,
        now: int | None = None,
        limits: LimitWindows | None = None,
    ) -> Reading:
        return await super().peek(self.tag(organization), windows, now)


class CaseFolded(Mutant):
    """Compares ids as a database's default collation does."""

    killed_by: ClassVar = {"W8"}

    async def put_organization(
        self, organization: Organization, now: int | None = None, **options: Any
    ) -> None:
        self._placed[organization.id.casefold()] = organization[1:]

    async def organization(self, id: str) -> Organization | None:
        placed = self._placed.get(id.casefold())
        return None if placed is None else Organization(id, *placed)


class StaleCacheFill(Mutant):
    """A revocation clears the cache, and a concurrent reader then fills it with the old record."""

    killed_by: ClassVar = {"K5", "K4", "K3"}

    def __init__(self) -> None:
        super().__init__()
        self.cache: dict[str, ApiKey] = {}

    async def find(self, handle: str) -> ApiKey | None:
        if handle in self.cache and handle in self._rows:
            now = self._keys.key(handle)
            return self.cache[handle]._replace(
                request_count=now.request_count, last_used_at=now.last_used_at
            )
        key = await super().find(handle)
        gap()
        if key is not None:
            self.cache[handle] = key
        return key

    async def rehash_if(
        self, handle: str, old: Digest, new: Digest, *, known: ApiKey | None = None
    ) -> bool:
        done = await super().rehash_if(handle, old, new, known=known)
        self.cache.pop(handle, None)
        return done

    async def revoke_if_live(
        self, organization: str, id: str, now: int | None = None, **options: Any
    ) -> ApiKey | None:
        revoked = await super().revoke_if_live(organization, id, now, **options)
        if revoked is not None:
            self.cache.pop(revoked.handle, None)
        return revoked


class CachedForAWhile(StaleCacheFill):
    """A cache with a time to live, which is never cleared."""

    killed_by: ClassVar = {"K1", "K3", "K4", "D4", "K9", "K8"}

    async def revoke_if_live(
        self, organization: str, id: str, now: int | None = None, **options: Any
    ) -> ApiKey | None:
        return await MemoryStore.revoke_if_live(self, organization, id, now)


class FloatSeconds(Mutant):
    """Counts time in seconds, in a floating-point number."""

    killed_by: ClassVar = {"W1", "W2", "W6", "W4", "W12"}

    async def hit(
        self,
        organization: str,
        windows: Windows,
        cost: int,
        now: int | None = None,
        limits: LimitWindows | None = None,
    ) -> Reading:
        rounded = round(round(self.at(now) / SECOND, 4) * SECOND)
        reading = await super().hit(organization, windows, cost, rounded)
        return reading._replace(now=self.at(now))


class BoundaryIncluded(Mutant):
    """What came exactly a window ago still counts."""

    killed_by: ClassVar = {"W2"}

    async def hit(
        self,
        organization: str,
        windows: Windows,
        cost: int,
        now: int | None = None,
        limits: LimitWindows | None = None,
    ) -> Reading:
        at = self.at(now)
        longer = tuple(window._replace(span=window.span + 1) for window in windows)
        judged = await super().peek(organization, longer, at)
        reading = await super().hit(organization, windows, cost, at)
        return reading if judged.allowed else reading._replace(allowed=False)


class NothingIsNoLimit(Mutant):
    """Asks whether there is a limit by asking whether it is true."""

    killed_by: ClassVar = {"W1"}

    async def hit(
        self,
        organization: str,
        windows: Windows,
        cost: int,
        now: int | None = None,
        limits: LimitWindows | None = None,
    ) -> Reading:
        open = tuple(window._replace(limit=window.limit or None) for window in windows)
        return await super().hit(organization, open, cost, now)


class LeasesInMilliseconds(Mutant):
    """Keeps how long a lease lasts as Redis counts it."""

    killed_by: ClassVar = {"L3", "L4", "L6"}

    async def acquire(
        self,
        organization: str,
        job: str,
        owner: str,
        limit: int | None,
        span: int,
        now: int | None = None,
    ) -> SlotReading:
        return await super().acquire(organization, job, owner, limit, span - span % 1000, now)


class LookingCounts(Mutant):
    """Reads the status by a hit."""

    killed_by: ClassVar = {"W5", "W4", "W7", "W2"}

    async def peek(
        self,
        organization: str,
        windows: Windows,
        now: int | None = None,
        limits: LimitWindows | None = None,
    ) -> Reading:
        before = await super().peek(organization, windows, now)
        await super().hit(organization, windows, 1, now)
        return before


class PlanChangeForgets(Mutant):
    """Names its counters by the limit, so another plan starts at zero."""

    killed_by: ClassVar = {"W13", "W2"}

    async def hit(
        self,
        organization: str,
        windows: Windows,
        cost: int,
        now: int | None = None,
        limits: LimitWindows | None = None,
    ) -> Reading:
        return await super().hit(f"{organization}:{windows[0].limit}", windows, cost, now)

    async def peek(
        self,
        organization: str,
        windows: Windows,
        now: int | None = None,
        limits: LimitWindows | None = None,
    ) -> Reading:
        return await super().peek(f"{organization}:{windows[0].limit}", windows, now)


class StepBackForgets(Mutant):
    """Drops what lies in the future once the clock has stepped back."""

    killed_by: ClassVar = {"W11", "W2"}

    async def hit(
        self,
        organization: str,
        windows: Windows,
        cost: int,
        now: int | None = None,
        limits: LimitWindows | None = None,
    ) -> Reading:
        at, state = self.at(now), self.states.get(organization) or empty_state(windows)
        if any(cells[3] > at for cells in state):
            state = empty_state(windows)
        reading, self.states[organization] = hit(state, windows, at, cost)
        return reading

    async def peek(
        self,
        organization: str,
        windows: Windows,
        now: int | None = None,
        limits: LimitWindows | None = None,
    ) -> Reading:
        return peek(self.states.get(organization) or empty_state(windows), windows, self.at(now))


class LaterRevocationWins(Mutant):
    """Revokes once more, at a new time."""

    killed_by: ClassVar = {"D4", "K8", "K1"}

    async def revoke_if_live(
        self, organization: str, id: str, now: int | None = None, **options: Any
    ) -> ApiKey | None:
        key = await super().revoke_if_live(organization, id, now, **options)
        if key is not None:
            self._rows[key.handle] = (*key[:11], self.at(now), key.details)
            return await self.find(key.handle)
        return None


class RehashRevives(Mutant):
    """Writes a fresh row for a fresh digest."""

    killed_by: ClassVar = {"K3", "K9"}

    async def rehash_if(
        self, handle: str, old: Digest, new: Digest, *, known: ApiKey | None = None
    ) -> bool:
        done = await super().rehash_if(handle, old, new, known=known)
        if done:
            self._rows[handle] = (*self._rows[handle][:11], None, None)
        return done


class UpdateOverwrites(Mutant):
    """Writes the caller's record without comparing the present row."""

    killed_by: ClassVar = {"D43", "K3"}

    async def update_if(
        self, old: ApiKey, new: ApiKey, now: int | None = None, **options: Any
    ) -> bool:
        found = await self.find(old.handle)
        return found is not None and await super().update_if(found, new, now, **options)


class UpdateRevives(Mutant):
    """Gives an expired key another expiry."""

    killed_by: ClassVar = {"K3"}

    async def update_if(
        self, old: ApiKey, new: ApiKey, now: int | None = None, **options: Any
    ) -> bool:
        at = self.at(now) if old.expires_at is None else min(self.at(now), old.expires_at - 1)
        return await super().update_if(old, new, at, **options)


class RotationIgnoresTheCap(Mutant):
    """Lets the overlap be a way around the cap."""

    killed_by: ClassVar = {"K8"}

    async def rotate_if(
        self,
        old: ApiKey,
        new: ApiKey,
        successor: KeyDraft,
        cap: int | None,
        now: int | None = None,
        **options: Any,
    ) -> ApiKey | None:
        return await super().rotate_if(old, new, successor, None, now, **options)


class RotationInTwoSteps(Mutant):
    """Inserts the successor and then looks whether the key was rotated before."""

    killed_by: ClassVar = {"D43", "D3", "K8", "K3"}

    async def rotate_if(
        self,
        old: ApiKey,
        new: ApiKey,
        successor: KeyDraft,
        cap: int | None,
        now: int | None = None,
        **options: Any,
    ) -> ApiKey | None:
        made = await self.insert(successor, cap, now)
        return made if await self.update_if(old, new, now) else None


class AdmitsEverywhere(Mutant):
    """Keeps the allow-list of a key, and admits a client from anywhere."""

    killed_by: ClassVar = {"K1", "D43"}

    async def find(self, handle: str) -> ApiKey | None:
        key = await super().find(handle)
        if key is None or key.details is None or not key.addresses:
            return key
        return key._replace(details=AllAddresses(*key.details))


class AllAddresses(KeyDetails):
    """Details that allow every client."""

    def allows(self, address: str | None) -> bool:
        return True


class ChargesElsewhere(Mutant):
    """Looks at the allow-list of a key after the windows."""

    killed_by: ClassVar = {"K1", "W7", "D43"}

    async def admit(
        self,
        token: Token,
        cost: int,
        plans: PlanBook,
        now: int | None = None,
        *more: Any,
        **named: Any,
    ) -> Admission:
        admission = await super().admit(token, cost, plans, now, *more, **named)
        if admission.verdict is Verdict.ELSEWHERE and admission.key is not None:
            organization = admission.key.organization
            at = await self.now() if now is None else now
            plan = plans.plan_of(await self.organization(organization), at)
            await self.charge(organization, Hit(plan.windows, cost), now)
        return admission


class KeepsTemporaryLimits(Mutant):
    """Takes a temporary limit for one that holds until it is changed."""

    killed_by: ClassVar = {"W13"}

    async def organization(self, id: str) -> Organization | None:
        found = await super().organization(id)
        if found is None:
            return found
        own, temporary = told_apart(found.overrides)
        own |= {name: limit for name, (limit, _) in temporary.items()}
        return found._replace(overrides=tuple(sorted(own.items())))


class RemembersAllowLists(Mutant):
    """Looks at the allow-list that a key had when it was first admitted."""

    killed_by: ClassVar = {"D43", "K1"}

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, KeyDetails | None] = {}

    async def find(self, handle: str) -> ApiKey | None:
        key = await super().find(handle)
        return None if key is None else key._replace(details=self.seen.get(handle, key.details))

    async def admit(
        self, token: Token, cost: int, plans: PlanBook, *more: Any, **named: Any
    ) -> Admission:
        admission = await super().admit(token, cost, plans, *more, **named)
        if admission.verdict is Verdict.ADMITTED and admission.key is not None:
            self.seen.setdefault(token.handle, admission.key.details)
        return admission


class DropsFactsOfDrafts(Mutant):
    """Keeps the details of a key that changed, and none of a new key."""

    killed_by: ClassVar = {"K1", "D43"}

    async def insert(
        self, draft: KeyDraft, cap: int | None, now: int | None = None, **options: Any
    ) -> ApiKey:
        return await super().insert(draft._replace(details=None), cap, now, **options)


class PlansChangeUnheard(Mutant):
    """Moves its local version for what changes keys, and forgets plans."""

    killed_by: ClassVar = {"D5"}

    async def put_organization(
        self, organization: Organization, now: int | None = None, **options: Any
    ) -> None:
        before = self.local_version
        await super().put_organization(organization, now, **options)
        self.local_version = before


class EpochOfRevocations(Mutant):
    """Moves its change counter by the one verb that is called revoke; a claim revokes as well."""

    killed_by: ClassVar = {"D5"}
    revocations = 0

    async def freshness(self) -> Freshness:
        return Freshness(self.revocations + len(self._placed), await self.now())

    async def revoke_if_live(
        self, organization: str, id: str, now: int | None = None, **options: Any
    ) -> ApiKey | None:
        self.revocations += 1
        return await super().revoke_if_live(organization, id, now, **options)


class Trusting(Token):
    """Accepts every row with a matching digest."""

    def __init__(self, token: Token) -> None:
        super().__init__(token.handle, token._secret, token._peppers)
        self.told = token

    def matches(self, scheme: str, digest: bytes) -> bool:
        return self.told.matches(scheme, digest)

    def seal_is_valid(self, row: object) -> bool:
        return True


class BelievesDigests(Mutant):
    """Compares the digest of a key, and no seal."""

    killed_by: ClassVar = {"K1"}

    async def admit(self, token: Token, *more: Any, **named: Any) -> Admission:
        return await super().admit(Trusting(token), *more, **named)


class SealsOnce(Mutant):
    """Remembers that the seal of a key was good."""

    killed_by: ClassVar = {"K1"}

    def __init__(self) -> None:
        super().__init__()
        self.good: dict[str, ApiKey] = {}

    async def find(self, handle: str) -> ApiKey | None:
        key = await super().find(handle)
        good = self.good.get(handle)
        if key is None or good is None or key.kept[:2] != good.kept[:2]:
            return key
        return key._replace(seal=good.seal)

    async def admit(
        self, token: Token, cost: int, plans: PlanBook, *more: Any, **named: Any
    ) -> Admission:
        admission = await super().admit(token, cost, plans, *more, **named)
        if admission.verdict is Verdict.ADMITTED and admission.key is not None:
            self.good[token.handle] = admission.key
        return admission


class SealStays(Mutant):
    """Writes a fresh digest and leaves the seal of the one before."""

    killed_by: ClassVar = {"K9"}

    async def rehash_if(
        self, handle: str, old: Digest, new: Digest, *, known: ApiKey | None = None
    ) -> bool:
        return await super().rehash_if(handle, old, new._replace(seal=old.seal), known=known)


class AnySealWillDo(Mutant):
    """Compares the digest before it writes another, and not the seal."""

    killed_by: ClassVar = {"K9"}

    async def rehash_if(
        self, handle: str, old: Digest, new: Digest, *, known: ApiKey | None = None
    ) -> bool:
        row = self._rows.get(handle)
        seal = None if row is None else row[8]
        return await super().rehash_if(handle, old._replace(seal=seal), new)


class ClaimsUnderAnySeal(Mutant):
    """Claims an account whatever its seal is by now."""

    killed_by: ClassVar = {"K9"}

    async def claim_if_unclaimed(
        self, organization: str, user: str, *, revoke: bool, now: int | None = None, **seals: Any
    ) -> Any:
        account = await self.account(organization)
        if account is not None and "seals" in seals:
            seals = {"seals": (account.seal, seals["seals"][1])}
        return await super().claim_if_unclaimed(organization, user, revoke=revoke, now=now, **seals)


class ScansOnePage(Mutant):
    """Answers the first rows, and that there is no more."""

    killed_by: ClassVar = {"K9"}

    async def scan(self, cursor: str | None, limit: int) -> Rows:
        rows = await super().scan(cursor, limit)
        return Rows(rows.keys[:limit], rows.accounts[:limit], None)


class LastClaimWins(Mutant):
    """The last claim wins."""

    killed_by: ClassVar = {"R3"}

    async def claim_if_unclaimed(
        self,
        organization: str,
        user: str,
        *,
        revoke: bool,
        keep_token: bool,
        now: int | None = None,
        **seals: Any,
    ) -> Any:
        row = self._accounts.rows.get(organization)
        if row is not None and not revoke:
            self._accounts.rows[organization] = (*row[:9], None, None, *row[11:])
        return await super().claim_if_unclaimed(
            organization, user, revoke=revoke, keep_token=keep_token, now=now, **seals
        )


class RenewNeverShortens(Mutant):
    """Takes the later of two deadlines."""

    killed_by: ClassVar = {"L4"}

    async def renew(
        self, organization: str, job: str, owner: str, span: int, now: int | None = None
    ) -> Lease | None:
        now = self.at(now)
        for lease in await self.held(organization, now):
            span = max(span, lease.deadline - now) if lease.job == job else span
        return await super().renew(organization, job, owner, span, now)


class FullBeforeFound(Mutant):
    """Counts leases before it looks for the job's: with a smaller plan no job finds its lease."""

    killed_by: ClassVar = {"L6"}

    async def acquire(
        self,
        organization: str,
        job: str,
        owner: str,
        limit: int | None,
        span: int,
        now: int | None = None,
    ) -> SlotReading:
        held = len(await self.held(organization, now))
        if limit is not None and held > limit:
            return SlotReading(None, held, limit)
        return await super().acquire(organization, job, owner, limit, span, now)


class HeldByName(Mutant):
    """Keeps leases in a table that it reads in the order of their jobs."""

    killed_by: ClassVar = {"L6"}

    async def held(self, organization: str, now: int | None = None) -> tuple[Lease, ...]:
        return tuple(sorted(await super().held(organization, now)))


class NoLimit(Mutant):
    """Lists everything, however little was asked for."""

    killed_by: ClassVar = {"D10"}

    async def list(
        self, organization: str, limit: int, after: Position | None = None
    ) -> list[ApiKey]:
        return await super().list(organization, PAGE_AT_MOST, after)


class PagesByTime(Mutant):
    """Goes on after the instant at which a page ended: keys of the same instant are in none."""

    killed_by: ClassVar = {"D10"}

    async def list(
        self, organization: str, limit: int, after: Position | None = None
    ) -> list[ApiKey]:
        last = None if after is None else after._replace(id="~")
        return await super().list(organization, limit, last)


class PagesByKey(Mutant):
    """Goes on after the key with which a page ended, or from the start if that is gone."""

    killed_by: ClassVar = {"D10"}

    async def list(
        self, organization: str, limit: int, after: Position | None = None
    ) -> list[ApiKey]:
        if after is not None and after.id not in self._keys.handles_by_id:
            after = None
        return await super().list(organization, limit, after)


class ExpiredListed(Mutant):
    """Lists keys as live that are not revoked."""

    killed_by: ClassVar = {"D10"}

    async def list_live(
        self,
        organization: str,
        limit: int,
        after: Position | None = None,
        now: int | None = None,
    ) -> Page:
        return await super().list_live(organization, limit, after, 0)


class LiveByCreation(Mutant):
    """Lists live keys as it lists all."""

    killed_by: ClassVar = {"D10"}

    async def list_live(
        self,
        organization: str,
        limit: int,
        after: Position | None = None,
        now: int | None = None,
    ) -> Page:
        keys = await self.list(organization, PAGE_AT_MOST, after)
        return [key for key in keys if key.state(self.at(now)) is KeyState.ACTIVE][:limit]


class HandlesComeBack(Mutant):
    """Forgets the handles of removed keys."""

    killed_by: ClassVar = {"D45"}

    async def remove_ended(
        self, age: int, now: int | None = None, cursor: str | None = None
    ) -> Removal:
        removal = await super().remove_ended(age, now, cursor)
        self._keys.removed.clear()
        return removal


class RemovesByRevocation(Mutant):
    """Counts the age of a key that expired first from its revocation."""

    killed_by: ClassVar = {"D45", "K1"}

    async def remove_ended(
        self, age: int, now: int | None = None, cursor: str | None = None
    ) -> Removal:
        until = self.at(now) - age
        keys = map(self._keys.key, [*self._rows])
        if any(key.ends_at <= until < (key.revoked_at or 0) for key in keys):
            return Removal(0, None)
        return await super().remove_ended(age, now, cursor)


class RemovesAtOnce(Mutant):
    """Removes whatever ended, however lately."""

    killed_by: ClassVar = {"D45", "D10", "K1"}

    async def remove_ended(
        self, age: int, now: int | None = None, cursor: str | None = None
    ) -> Removal:
        return await super().remove_ended(0, now, cursor)


class RemovesOneStep(Mutant):
    """Says after the first step that it was the last."""

    killed_by: ClassVar = {"D10", "D45"}

    async def remove_ended(
        self, age: int, now: int | None = None, cursor: str | None = None
    ) -> Removal:
        return (await super().remove_ended(age, now, cursor))._replace(cursor=None)


class RemovesTwice(Mutant):
    """Lists due keys, then removes them and returns the number it listed."""

    killed_by: ClassVar = {"D45"}

    async def remove_ended(
        self, age: int, now: int | None = None, cursor: str | None = None
    ) -> Removal:
        until = self.at(now) - age
        with self._lock:
            due = sum(self._keys.key(handle).ends_at <= until for handle in self._rows)
        gap()
        removal = await super().remove_ended(age, now, cursor)
        return removal._replace(removed=max(due, removal.removed) if cursor is None else 0)


class RemovalUnheard(Mutant):
    """Keeps its local version when keys are removed."""

    killed_by: ClassVar = {"D5"}

    async def remove_ended(
        self, age: int, now: int | None = None, cursor: str | None = None
    ) -> Removal:
        local_version = self.local_version
        removal = await super().remove_ended(age, now, cursor)
        self.local_version = local_version
        return removal


class ShortColumns(Mutant):
    """Has room for the keys that people make."""

    killed_by: ClassVar = {"K1"}

    async def insert(
        self, draft: KeyDraft, cap: int | None, now: int | None = None, **options: Any
    ) -> ApiKey:
        return await super().insert(self.cut(draft), cap, now, **options)

    def cut(self, draft: KeyDraft) -> KeyDraft:
        return draft._replace(name=draft.name[:64])


class ShortDigests(ShortColumns):
    """Has room for a SHA-512."""

    def cut(self, draft: KeyDraft) -> KeyDraft:
        return draft._replace(digest=draft.digest[:64])


class ShortHandles(ShortColumns):
    """Has columns for lockgate's handles only."""

    def cut(self, draft: KeyDraft) -> KeyDraft:
        return draft._replace(handle=draft.handle[:32])


class ShortTimes(ShortColumns):
    """Ends in 2038."""

    def cut(self, draft: KeyDraft) -> KeyDraft:
        return draft._replace(expires_at=draft.expires_at and min(draft.expires_at, 2**31 * SECOND))


class SortedScopes(ShortColumns):
    """Keeps scopes as a set."""

    def cut(self, draft: KeyDraft) -> KeyDraft:
        return draft._replace(scopes=tuple(sorted(draft.scopes)))


class ShortNumbers(Mutant):
    """Counts in 32 bits."""

    killed_by: ClassVar = {"K1"}

    async def add_usage(self, usage: Mapping[str, Usage], batch: UsageBatch | None = None) -> None:
        await super().add_usage(
            {handle: Usage(used % 2**31, last) for handle, (used, last) in usage.items()}, batch
        )


def every(kind: type[Mutant] = Mutant) -> list[type[Mutant]]:
    """Every mutant that makes a mistake."""
    found = [kind] if kind.killed_by else []
    return [*found, *(mutant for below in kind.__subclasses__() for mutant in every(below))]
