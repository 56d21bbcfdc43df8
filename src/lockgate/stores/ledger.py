"""The calls to the ledger of an organization, each an action of one :meth:`LedgerStore.charge`.

As :mod:`.directory` is to rows: a store applies an action, and has no rule of its own.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import TypeVar

from ..core.changes import ChangeDraft
from ..core.holds import HoldAction, HoldAnswer
from ..core.leases import (
    TO_LIST,
    Lease,
    Leases,
    SlotReading,
    lease_of,
    leases_of,
    to_acquire,
    to_release,
    to_renew,
)
from ..core.ledger import Action, Hit, LeasesOut, Peek, Reset, settling
from ..core.limit_windows import LimitWindows
from ..core.quota_leases import QuotaLeases, Settlement
from ..core.sliding_window import Reading, Window
from .base import HoldStore, LedgerStore, SlotStore, WindowStore

A = TypeVar("A")


class Charges(LedgerStore, WindowStore, SlotStore, HoldStore):
    """Windows, named limits, slots, holds and quota leases of a store with ledgers."""

    @abstractmethod
    async def charge(self, owner: str, action: Action[A], now: int | None = None) -> A: ...

    async def hit(
        self,
        organization: str,
        windows: tuple[Window, ...],
        cost: int,
        now: int | None = None,
        limits: LimitWindows | None = None,
    ) -> Reading:
        return await self.charge(organization, Hit(windows, cost, limits), now)

    async def peek(
        self,
        organization: str,
        windows: tuple[Window, ...],
        now: int | None = None,
        limits: LimitWindows | None = None,
    ) -> Reading:
        return await self.charge(organization, Peek(windows, limits), now)

    async def reset(
        self,
        organization: str,
        now: int | None = None,
        *,
        change: ChangeDraft | None = None,
    ) -> None:
        return await self.charge(organization, Reset(change), now)

    async def hold(
        self, organization: str, action: HoldAction, now: int | None = None
    ) -> HoldAnswer:
        return await self.charge(organization, action, now)

    async def settle_leases(
        self,
        organization: str,
        windows: tuple[Window, ...],
        settled: Sequence[Settlement],
        now: int | None = None,
    ) -> None:
        await self.charge(organization, settling(windows, settled), now)

    async def quota_leases(self, organization: str, now: int | None = None) -> QuotaLeases:
        return await self.charge(organization, LeasesOut(), now)

    async def leases_in_use(self, organization: str, now: int | None = None) -> QuotaLeases:
        return await self.charge(organization, LeasesOut(in_use=True), now)

    async def acquire(
        self,
        organization: str,
        job: str,
        owner: str,
        limit: int | None,
        span: int,
        now: int | None = None,
    ) -> SlotReading:
        answer = await self.charge(organization, to_acquire(job, owner, limit, span), now)
        return SlotReading(lease_of(answer), answer.used[0], limit)

    async def renew(
        self, organization: str, job: str, owner: str, span: int, now: int | None = None
    ) -> Lease | None:
        return lease_of(await self.charge(organization, to_renew(job, owner, span), now))

    async def release(
        self, organization: str, job: str, owner: str, now: int | None = None
    ) -> bool:
        return (await self.charge(organization, to_release(job, owner), now)).done

    async def held(self, organization: str, now: int | None = None) -> Leases:
        return leases_of((await self.charge(organization, TO_LIST, now)).slots)
