"""The store contract on compare-and-set records."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

from ...core import leases as slots
from ...core.changes import ChangeDraft
from ...core.holds import HoldAction, HoldAnswer
from ...core.key_format import Token
from ...core.leases import Lease, Leases, SlotReading
from ...core.limit_windows import LimitWindows
from ...core.limits import Limit
from ...core.plans import PlanBook
from ...core.quota_leases import LeaseRequest, QuotaLeases, Settlement, live
from ...core.sliding_window import Reading, Window
from ...core.usage_history import UsageHistory
from ...sync import together
from ..answers import (
    UNKNOWN,
    Admission,
    HistoryOwner,
    StoreError,
    Usage,
    UsageBatch,
)
from ..base import Store
from ..usage_batches import count_parts
from .change_log import NO_LOG, TAIL
from .keys import RecordKeys
from .record import Record

T = TypeVar("T")


class RecordStore(RecordKeys, Store):
    """A store on :class:`Records`.

    Every admission writes its organization's record with all keys, which suits organizations with
    dozens of keys; a thousand take 300 KB. Only the latest 1,000 ended keys are kept, even if the
    retention is longer.
    """

    keeps_history = True
    grants_leases = True

    async def admit(
        self,
        token: Token,
        cost: int,
        plans: PlanBook,
        now: int | None = None,
        address: str | None = None,
        limits: tuple[Limit, ...] = (),
    ) -> Admission:
        organization = await self._shelf.owner("key", token.handle)
        if organization is None:
            token.compare_with_dummy()
            return UNKNOWN

        def work(record: Record, at: int) -> Admission:
            return record.admit(token, cost, plans, at, address, limits)

        return await self._shelf.change(organization, work, now)

    async def admit_leased(
        self,
        token: Token,
        cost: int,
        plans: PlanBook,
        lease: LeaseRequest,
        now: int | None = None,
        address: str | None = None,
    ) -> Admission:
        organization = await self._shelf.owner("key", token.handle)
        if organization is None:
            token.compare_with_dummy()
            return UNKNOWN

        def work(record: Record, at: int) -> Admission:
            return record.admit(token, cost, plans, at, address, (), lease)

        return await self._shelf.change(organization, work, now)

    async def settle_leases(
        self,
        organization: str,
        windows: tuple[Window, ...],
        settled: Sequence[Settlement],
        now: int | None = None,
    ) -> None:
        def work(record: Record, at: int) -> None:
            record.settle_leases(windows, settled, at)

        await self._shelf.change(organization, work, now)

    async def quota_leases(self, organization: str, now: int | None = None) -> QuotaLeases:
        at = await self.now() if now is None else now
        return live((await self._shelf.read(organization)).quota_leases, at)

    async def add_usage(self, usage: Mapping[str, Usage], batch: UsageBatch | None = None) -> None:
        owners = await together(self._shelf.owner("key", handle) for handle in usage)
        parts: dict[str, dict[str, Usage]] = {}
        for (handle, used), organization in zip(usage.items(), owners, strict=True):
            if organization is not None and not (batch and organization in batch.answered):
                parts.setdefault(organization, {})[handle] = used
        await count_parts(self._use(*part, batch) for part in parts.items())

    async def _use(
        self, organization: str, usage: Mapping[str, Usage], batch: UsageBatch | None
    ) -> None:
        """Add to the usage of keys of one organization."""

        def work(record: Record, at: int) -> None:
            record.use_all(usage, batch, at)

        await self._shelf.change(organization, work, None)
        if batch is not None:
            batch.answered.add(organization)

    async def add_history(
        self,
        additions: Mapping[HistoryOwner, UsageHistory],
        batch: UsageBatch | None = None,
    ) -> None:
        await count_parts(self._shelf.add(*addition, batch) for addition in additions.items())

    async def history(self, owner: HistoryOwner) -> UsageHistory:
        return await self._shelf.history(owner)

    async def hit(
        self,
        organization: str,
        windows: tuple[Window, ...],
        cost: int,
        now: int | None = None,
        limits: LimitWindows | None = None,
    ) -> Reading:
        def work(record: Record, at: int) -> Reading:
            named = limits and limits.at(at, organization)
            return record.hit(windows, named, at, cost)

        return await self._shelf.change(organization, work, now)

    async def peek(
        self,
        organization: str,
        windows: tuple[Window, ...],
        now: int | None = None,
        limits: LimitWindows | None = None,
    ) -> Reading:
        record = await self._shelf.read(organization)
        now = await self.now() if now is None else now
        return record.peek(windows, limits and limits.at(now, organization), now)

    async def reset(
        self,
        organization: str,
        now: int | None = None,
        *,
        change: ChangeDraft | None = None,
    ) -> None:
        def work(record: Record, at: int) -> None:
            record.windows, record.limits, record.budgets = (), {}, {}
            if change is not None:
                record.log = record.log.added(change, at)

        await self._changing(organization, work, now, change)

    async def hold(
        self, organization: str, action: HoldAction, now: int | None = None
    ) -> HoldAnswer:
        return await self._shelf.change(
            organization, lambda record, at: record.hold(action, at), now
        )

    async def acquire(
        self,
        organization: str,
        job: str,
        owner: str,
        limit: int | None,
        span: int,
        now: int | None = None,
    ) -> SlotReading:
        return await self._lease(
            organization, lambda held, at: slots.acquire(held, job, owner, limit, at, span), now
        )

    async def renew(
        self, organization: str, job: str, owner: str, span: int, now: int | None = None
    ) -> Lease | None:
        return await self._lease(
            organization, lambda held, at: slots.renew(held, job, owner, at, span), now
        )

    async def release(
        self, organization: str, job: str, owner: str, now: int | None = None
    ) -> bool:
        return await self._lease(
            organization, lambda held, at: slots.release(held, job, owner, at), now
        )

    async def held(self, organization: str, now: int | None = None) -> Leases:
        leases = (await self._shelf.read(organization)).leases
        return slots.live(leases, await self.now() if now is None else now)

    async def _changing(
        self,
        organization: str,
        work: Callable[[Record, int], T],
        now: int | None,
        change: ChangeDraft | None,
    ) -> T:
        """Change a record and its log; move records of the log to pages once there are some."""
        log = NO_LOG

        def step(record: Record, at: int) -> T:
            nonlocal log
            answer = work(record, at)
            log = record.log
            return answer

        answer = await self._shelf.change(organization, step, now)
        if change is not None and len(log.tail) >= TAIL:
            with suppress(StoreError, OSError):  # The change is made; the next one tries again.
                await self._log_pages.archive(organization, log)
        return answer

    async def _lease(
        self,
        organization: str,
        change: Callable[[Leases, int], tuple[T, Leases]],
        now: int | None,
    ) -> T:
        def work(record: Record, at: int) -> T:
            value, record.leases = change(record.leases, at)
            return value

        return await self._shelf.change(organization, work, now)
