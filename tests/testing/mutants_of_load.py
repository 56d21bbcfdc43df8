"""Stores with one mistake each that shows under load, or with more rows than a page."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Mapping, Sequence
from itertools import islice
from struct import Struct
from typing import Any, ClassVar, cast

from lockgate.core.accounts import Account
from lockgate.core.api_keys import ApiKey, Position
from lockgate.core.leases import TO_LIST, Lease
from lockgate.core.ledger import Peek
from lockgate.core.limit_windows import LimitWindows
from lockgate.core.sliding_window import Cells, Reading, empty_state, hit, peek
from lockgate.stores.answers import LogPage, Page, Usage, UsageBatch
from lockgate.stores.base import IoMode
from tests.by_verbs import SlotReading

from .mutants import Mutant, Windows, gap

LARGE = 12
"""Hits in a batch that a handful of callers does not fill."""
_CELL = Struct("<qq")


class Hit:
    """A hit that waits for its batch."""

    def __init__(self, organization: str, windows: Windows, cost: int, now: int) -> None:
        self.organization = organization
        self.windows = windows
        self.cost = cost
        self.now = now
        self.done = threading.Event()
        self.reading: Reading | None = None


class Batching(Mutant):
    """Charges hits that come together in one step (group commit)."""

    parts: ClassVar = ("windows",)

    def __init__(self) -> None:
        super().__init__()
        self._waiting: list[Hit] = []
        self._door = threading.Lock()

    async def hit(
        self,
        organization: str,
        windows: Windows,
        cost: int,
        now: int | None = None,
        limits: LimitWindows | None = None,
    ) -> Reading:
        mine = Hit(organization, windows, cost, self.at(now))
        with self._door:
            self._waiting.append(mine)
            leads = len(self._waiting) == 1
        if leads:
            if sys.getswitchinterval() < 0.001:  # Only where the kit has many callers.
                gap()
            with self._door:
                batch, self._waiting = self._waiting, []
            await self.charge_all(batch)
            for one in batch:
                one.done.set()
        mine.done.wait()
        assert mine.reading is not None
        return mine.reading

    async def charge_all(self, batch: Sequence[Hit]) -> None:
        for one in batch:
            one.reading = await super().hit(one.organization, one.windows, one.cost, one.now)


class DropsTheLastOfABatch(Batching):
    """Answers every hit of a batch, and writes all but the last."""

    killed_by: ClassVar = {"W3", "W9", "W1"}

    async def charge_all(self, batch: Sequence[Hit]) -> None:
        if len(batch) < LARGE:
            await super().charge_all(batch)
            return
        *others, last = batch
        await super().charge_all(others)
        last.reading = await self.charge(last.organization, Peek(last.windows), last.now)


class ChargesEqualHitsOnce(Batching):
    """Keeps the hits of a batch in a dictionary by organization and cost."""

    killed_by: ClassVar = {"W3", "W9", "W12", "W1"}

    async def charge_all(self, batch: Sequence[Hit]) -> None:
        if len(batch) < LARGE:
            await super().charge_all(batch)
            return
        unique = {(one.organization, one.cost, one.windows): one for one in batch}
        await super().charge_all([*unique.values()])
        for one in batch:
            one.reading = unique[one.organization, one.cost, one.windows].reading


class ChargesTheSum(Batching):
    """Adds up the hits of a batch, and gives all of them one answer."""

    killed_by: ClassVar = {"W3", "W12", "W1", "W2"}

    async def charge_all(self, batch: Sequence[Hit]) -> None:
        if len(batch) < LARGE:
            await super().charge_all(batch)
            return
        first = batch[0]
        own = [one for one in batch if one.organization == first.organization]
        whole = Hit(first.organization, first.windows, sum(one.cost for one in own), first.now)
        await super().charge_all([whole])
        await super().charge_all([one for one in batch if one not in own])
        for one in own:
            one.reading = whole.reading


class JudgesABatchByItsFirstPlan(Batching):
    """Applies the windows of the first hit of an organization to all of a batch."""

    killed_by: ClassVar = {"W1", "W2", "W3"}

    async def charge_all(self, batch: Sequence[Hit]) -> None:
        plans: dict[str, Windows] = {}
        for one in batch:
            windows = plans.setdefault(one.organization, one.windows)
            swapped = Hit(one.organization, windows, one.cost, one.now)
            await super().charge_all([swapped])
            one.reading = swapped.reading


class DatesABatchByItsFirst(Batching):
    """Takes the instant of the first hit for the whole batch."""

    killed_by: ClassVar = {"W12", "W3"}

    async def charge_all(self, batch: Sequence[Hit]) -> None:
        for one in batch if len(batch) >= LARGE else ():
            one.now = batch[0].now
        await super().charge_all(batch)


class BatchesOfSixtyFour(Batching):
    """Writes the first 64 hits of a batch; its callers are tasks."""

    killed_by: ClassVar = {"W3", "W9", "W1"}
    io: IoMode = "async"
    most = 64

    async def hit(
        self,
        organization: str,
        windows: Windows,
        cost: int,
        now: int | None = None,
        limits: LimitWindows | None = None,
    ) -> Reading:
        mine = Hit(organization, windows, cost, self.at(now))
        self._waiting.append(mine)
        if len(self._waiting) == 1:
            self._leader = asyncio.create_task(self._lead())
        while mine.reading is None:
            await asyncio.sleep(0)
        return mine.reading

    async def _lead(self) -> None:
        batch, self._waiting = self._waiting, []
        await self.charge_all(batch)

    async def charge_all(self, batch: Sequence[Hit]) -> None:
        await super().charge_all(batch[: self.most])
        for one in batch[self.most :]:
            one.reading = await self.charge(one.organization, Peek(one.windows), one.now)


class BatchesOfEight(BatchesOfSixtyFour):
    """The same with eight."""

    most = 8


class CellsGrow(Mutant):
    """Lets a hit join the newest cell if it is close to the last hit of it, not to the first."""

    killed_by: ClassVar = {"W2"}
    parts: ClassVar = ("windows",)

    def spoilt(self, cells: Cells) -> Cells:
        used, oldest, _, last, count, older = cells
        return used, oldest, last, last, count, older

    async def hit(
        self,
        organization: str,
        windows: Windows,
        cost: int,
        now: int | None = None,
        limits: LimitWindows | None = None,
    ) -> Reading:
        with self._lock:
            before = self.states.get(organization) or empty_state(windows)
            reading, after = hit(before, windows, self.at(now), cost)
            self.states[organization] = tuple(self.spoilt(cells) for cells in after)
            return reading

    async def peek(
        self,
        organization: str,
        windows: Windows,
        now: int | None = None,
        limits: LimitWindows | None = None,
    ) -> Reading:
        return peek(self.states.get(organization) or empty_state(windows), windows, self.at(now))


class ListIsCut(CellsGrow):
    """Keeps the newest exact hits, and no more than there is room for."""

    killed_by: ClassVar = {"W1", "W2", "W14", "W7"}
    most = 100

    def spoilt(self, cells: Cells) -> Cells:
        used, _, first, last, count, older = cells
        rows = [*_CELL.iter_unpack(older)]
        if len(rows) <= self.most:
            return cells
        kept = rows[-self.most :]
        used -= sum(count for _, count in rows[: -self.most])
        return used, kept[0][0], first, last, count, b"".join(_CELL.pack(*row) for row in kept)


class LongListIsCut(ListIsCut):
    """The same with room for more."""

    most = 500


class ExpiresWithTheNewest(Mutant):
    """Gives the record of an organization the time to live of the lease that was written last."""

    killed_by: ClassVar = {"L3", "L4", "L1", "L2", "L6"}
    parts: ClassVar = ("slots",)
    renewing = False

    def __init__(self) -> None:
        super().__init__()
        self.until: dict[str, int] = {}

    def drop(self, organization: str, now: int | None) -> int:
        at = self.at(now)
        if self.until.get(organization, at + 1) <= at:
            self.put_slots(organization, ())
        return at

    async def acquire(
        self,
        organization: str,
        job: str,
        owner: str,
        limit: int | None,
        span: int,
        now: int | None = None,
    ) -> SlotReading:
        at = self.drop(organization, now)
        reading = await super().acquire(organization, job, owner, limit, span, now)
        if not self.renewing and reading.lease is not None:
            self.until[organization] = at + span
        return reading

    async def renew(
        self, organization: str, job: str, owner: str, span: int, now: int | None = None
    ) -> Lease | None:
        at = self.drop(organization, now)
        renewed = await super().renew(organization, job, owner, span, now)
        if renewed is not None:
            self.until[organization] = at + span
        return renewed

    async def held(self, organization: str, now: int | None = None) -> tuple[Lease, ...]:
        self.drop(organization, now)
        return await super().held(organization, now)


class RenewalSetsTheEnd(ExpiresWithTheNewest):
    """The same, by renewals only."""

    renewing = True


class EndsWithTheFirstLease(ExpiresWithTheNewest):
    """Sets the time to live when the record is made, and leaves it as it is."""

    async def acquire(
        self,
        organization: str,
        job: str,
        owner: str,
        limit: int | None,
        span: int,
        now: int | None = None,
    ) -> SlotReading:
        before = self.until.get(organization)
        reading = await super().acquire(organization, job, owner, limit, span, now)
        if before is not None and before > self.at(now):
            self.until[organization] = before
        return reading


class HoldsSixtyFour(Mutant):
    """Reads the first 64 leases."""

    killed_by: ClassVar = {"L2", "L3", "W8"}
    parts: ClassVar = ("slots",)

    async def held(self, organization: str, now: int | None = None) -> tuple[Lease, ...]:
        return (await super().held(organization, now))[:64]


class CountsAHundred(Mutant):
    """Counts the leases of the first page."""

    killed_by: ClassVar = {"L1", "L2"}
    parts: ClassVar = ("slots",)

    async def acquire(
        self,
        organization: str,
        job: str,
        owner: str,
        limit: int | None,
        span: int,
        now: int | None = None,
    ) -> SlotReading:
        held = len((await self.charge(organization, TO_LIST, now)).slots)
        free = None if limit is not None and min(held, 100) < limit else limit
        reading = await super().acquire(organization, job, owner, free, span, now)
        return reading._replace(limit=limit)


class ListsAHundred(Mutant):
    """Answers a page of at most 100 keys, which looks like the last."""

    killed_by: ClassVar = {"D10"}
    parts: ClassVar = ("keys",)

    async def list(self, organization: str, limit: int, after: Position | None = None) -> Page:
        return await super().list(organization, min(limit, 100), after)


class ListsAHundredLive(Mutant):
    """The same with live keys."""

    killed_by: ClassVar = {"D10"}
    parts: ClassVar = ("keys",)

    async def list_live(
        self, organization: str, limit: int, after: Position | None = None, now: int | None = None
    ) -> Page:
        return await super().list_live(organization, min(limit, 100), after, now)


class CapCountsOnePage(Mutant):
    """Counts the live keys of the first 128."""

    killed_by: ClassVar = {"K8", "D10"}
    parts: ClassVar = ("keys",)

    async def insert(self, draft: Any, cap: int | None, now: int | None = None, **rest: Any) -> Any:
        return await super().insert(draft, cap if (cap or 0) <= 128 else None, now, **rest)


class UsageOfAThousand(Mutant):
    """Adds the usage of the first 1,000 handles of a call."""

    killed_by: ClassVar = {"K7"}
    parts: ClassVar = ("usage",)

    async def add_usage(self, usage: Mapping[str, Usage], batch: UsageBatch | None = None) -> None:
        await super().add_usage(dict(islice(usage.items(), 1_000)), batch)


class UsageOfTheLast(Mutant):
    """Splits usage into batches, and writes the last."""

    killed_by: ClassVar = {"K7"}
    parts: ClassVar = ("usage",)

    async def add_usage(self, usage: Mapping[str, Usage], batch: UsageBatch | None = None) -> None:
        await super().add_usage(dict([*usage.items()][-500:]), batch)


class LogsAHundred(Mutant):
    """Answers at most 100 records."""

    killed_by: ClassVar = {"D44"}
    parts: ClassVar = ("changes",)

    async def change_log(self, organization: str, limit: int, before: int | None = None) -> LogPage:
        return await super().change_log(organization, min(limit, 100), before)


class ClaimsRevokeAHundred(Mutant):
    """Revokes the first 100 keys of a claimed organization."""

    killed_by: ClassVar = {"K4"}
    parts: ClassVar = ("accounts",)

    async def claim_if_unclaimed(self, organization: str, user: str, **rest: Any) -> Any:
        rows = {key.handle: key for key in await self.list(organization, 1_000)}
        claimed = await super().claim_if_unclaimed(organization, user, **rest)
        for handle in [*rows][100:]:
            self._rows[handle] = cast(Any, tuple(rows[handle])[:13])
        return claimed


class UnclaimedOfOnePage(Mutant):
    """Answers at most 100 unclaimed accounts."""

    killed_by: ClassVar = {"D14"}
    parts: ClassVar = ("accounts",)

    async def unclaimed_by_email(
        self, billing_email: str, limit: int, after: Position | None = None
    ) -> tuple[Account, ...]:
        return await super().unclaimed_by_email(billing_email, min(limit, 100), after)


class ClaimedOfOnePage(Mutant):
    """Answers at most 100 claimed accounts."""

    killed_by: ClassVar = {"D14"}
    parts: ClassVar = ("accounts",)

    async def accounts_by_user(
        self, user: str, limit: int, after: Position | None = None
    ) -> tuple[Account, ...]:
        return await super().accounts_by_user(user, min(limit, 100), after)


class RemovesAHundred(Mutant):
    """Removes at most 100 accounts, however many were asked for."""

    killed_by: ClassVar = {"D46"}
    parts: ClassVar = ("accounts",)

    async def remove_unclaimed(
        self, idle: int, limit: int, now: int | None = None, **rest: Any
    ) -> tuple[str, ...]:
        return await super().remove_unclaimed(idle, min(limit, 100), now, **rest)


class RemovalLeavesKeys(Mutant):
    """Removes the first 100 keys with an account."""

    killed_by: ClassVar = {"K4", "D46"}
    parts: ClassVar = ("accounts",)

    async def remove_unclaimed(
        self, idle: int, limit: int, now: int | None = None, **rest: Any
    ) -> tuple[str, ...]:
        rows: list[ApiKey] = []
        for organization in [*self._accounts.rows]:
            rows += (await self.list(organization, 1_000))[100:]
        removed = await super().remove_unclaimed(idle, limit, now, **rest)
        for key in rows:
            if key.organization in removed:
                self._keys.removed.pop(key.handle, None)
                self._keys.insert(key)
        return removed
