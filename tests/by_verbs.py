"""A store whose calls to ledgers are methods, so that a test can replace one of them."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any, Final, NamedTuple, TypeVar, cast

from lockgate import MemoryStore, Store
from lockgate.core.changes import ChangeDraft
from lockgate.core.holds import HoldAction, HoldAnswer, Renew, Settle, Take, is_of_slots
from lockgate.core.leases import (
    TO_LIST,
    Lease,
    lease_of,
    leases_of,
    to_acquire,
    to_release,
    to_renew,
)
from lockgate.core.ledger import (
    Action,
    Hit,
    HitLeased,
    Leased,
    LeasesOut,
    Peek,
    Reset,
    settling,
)
from lockgate.core.limit_windows import LimitWindows
from lockgate.core.quota_leases import QuotaLeases, Settlement
from lockgate.core.reservations import Reservation, Reservations
from lockgate.core.sliding_window import LARGEST, Reading, Window
from lockgate.stores.key_value import RecordStore

A = TypeVar("A")


class SlotReading(NamedTuple):
    """The answer of :meth:`ByVerbs.acquire`."""

    lease: Lease | None
    """The lease of this job; None when every slot is taken."""
    held: int
    """The number of held slots, this one included."""
    limit: int | None


_LATEST: Final = ContextVar[HoldAnswer | None]("latest", default=None)
"""The latest answer of the store behind about slots."""


class ByVerbs(Store):
    """Makes each charge by a method, which asks the store behind it in the order of its bases,
    unless a subclass replaces it."""

    async def _charged(self, owner: str, action: Action[A], now: int | None) -> A:
        behind: Any = super()
        return cast(A, await behind.charge(owner, action, now))

    async def charge(self, owner: str, action: Action[A], now: int | None = None) -> A:
        if is_of_slots(action):
            return cast(A, await self._called_slots(owner, cast(HoldAction, action), now))
        return cast(A, await self._called_verb(owner, action, now))

    async def _called_verb(self, owner: str, action: object, now: int | None) -> object:
        match action:
            case Hit(windows, cost, limits):
                return await self.hit(owner, windows, cost, now, limits)
            case Peek(windows, limits):
                return await self.peek(owner, windows, now, limits)
            case Reset(change):
                await self.reset(owner, now, change=change)
                return None
            case HitLeased(windows, 0, request) if request is not None:
                await self.settle_leases(owner, windows, request.settled, now)
                return Leased(await self._charged(owner, Peek(windows), now), None)
            case LeasesOut(in_use):
                return await (self.leases_in_use if in_use else self.quota_leases)(owner, now)
            case HitLeased():
                return await self._charged(owner, action, now)
            case _:
                return await self.hold(owner, cast(HoldAction, action), now)

    async def _called_slots(self, owner: str, action: HoldAction, now: int | None) -> HoldAnswer:
        _LATEST.set(None)
        lease: Lease | None = None
        answer: HoldAnswer
        match action:
            case Take(job, limits, _, span, _, holder):
                limit = limits.windows[0].limit
                limit = None if limit == LARGEST else limit
                lease, held, _ = await self.acquire(owner, job, holder, limit, span, now)
                answer = (await self._seen(owner, now))._replace(used=(held,))
            case Renew(job, _, span, _, holder):
                lease = await self.renew(owner, job, holder, span, now)
                answer = await self._seen(owner, now)
            case Settle(job, _, _, _, holder):
                is_done = await self.release(owner, job, holder, now)
                answer = await self._seen(owner, now)
                return answer._replace(done=is_done)
            case _:
                slots = _slots(await self.held(owner, now))
                count = len(slots)
                answer = await self._charged(owner, action, now)
                return answer._replace(used=(count,), units=(count,), slots=slots)
        if lease_of(answer) == lease:
            return answer
        if lease is None:
            return answer._replace(done=False, deadline=answer.now, slots=())
        done = answer._replace(done=True, deadline=lease.deadline, units=(1,))
        return done._replace(slots=_slots([lease]))

    async def _seen(self, owner: str, now: int | None) -> HoldAnswer:
        """Return the latest answer of the memory store, or its present one."""
        latest = _LATEST.get()
        return await self._charged(owner, TO_LIST, now) if latest is None else latest

    async def _asked(self, owner: str, action: HoldAction, now: int | None) -> HoldAnswer:
        answer = await self._charged(owner, action, now)
        _LATEST.set(answer)
        return answer

    async def hit(
        self,
        organization: str,
        windows: tuple[Window, ...],
        cost: int,
        now: int | None = None,
        limits: LimitWindows | None = None,
    ) -> Reading:
        return await self._charged(organization, Hit(windows, cost, limits), now)

    async def peek(
        self,
        organization: str,
        windows: tuple[Window, ...],
        now: int | None = None,
        limits: LimitWindows | None = None,
    ) -> Reading:
        return await self._charged(organization, Peek(windows, limits), now)

    async def reset(
        self, organization: str, now: int | None = None, *, change: ChangeDraft | None = None
    ) -> None:
        await self._charged(organization, Reset(change), now)

    async def settle_leases(
        self,
        organization: str,
        windows: tuple[Window, ...],
        settled: Sequence[Settlement],
        now: int | None = None,
    ) -> None:
        await self._charged(organization, settling(windows, settled), now)

    async def quota_leases(self, organization: str, now: int | None = None) -> QuotaLeases:
        return await self._charged(organization, LeasesOut(), now)

    async def leases_in_use(self, organization: str, now: int | None = None) -> QuotaLeases:
        return await self._charged(organization, LeasesOut(in_use=True), now)

    async def hold(
        self, organization: str, action: HoldAction, now: int | None = None
    ) -> HoldAnswer:
        return await self._charged(organization, action, now)

    async def acquire(
        self,
        organization: str,
        job: str,
        owner: str,
        limit: int | None,
        span: int,
        now: int | None = None,
    ) -> SlotReading:
        answer = await self._asked(organization, to_acquire(job, owner, limit, span), now)
        return SlotReading(lease_of(answer), answer.used[0], limit)

    async def renew(
        self, organization: str, job: str, owner: str, span: int, now: int | None = None
    ) -> Lease | None:
        return lease_of(await self._asked(organization, to_renew(job, owner, span), now))

    async def release(
        self, organization: str, job: str, owner: str, now: int | None = None
    ) -> bool:
        return (await self._asked(organization, to_release(job, owner), now)).done

    async def held(self, organization: str, now: int | None = None) -> tuple[Lease, ...]:
        return leases_of((await self._charged(organization, TO_LIST, now)).slots)


class MemoryByVerbs(ByVerbs, MemoryStore):
    """A memory store."""


class RecordsByVerbs(ByVerbs, RecordStore):
    """A store of records."""


def _slots(leases: Sequence[Lease]) -> Reservations:
    return tuple(
        Reservation(job, 1, deadline, span, owner) for job, owner, deadline, span in leases
    )
