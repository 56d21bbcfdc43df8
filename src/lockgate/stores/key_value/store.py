"""The store contract on compare-and-set records."""

from typing import TypeVar

from ...core.key_format import Token
from ...core.ledger import Action, change_of
from ...core.limits import Limit
from ...core.plans import PlanBook
from ...core.quota_leases import LeaseRequest
from ..answers import UNKNOWN, Admission
from ..base import Store
from .change_log import NO_LOG
from .keys import RecordKeys
from .record import Record

A = TypeVar("A")


class RecordStore(RecordKeys, Store):
    """A store on :class:`Records`.

    Every admission writes its organization's record with all keys, which suits organizations with
    dozens of keys; a thousand take 300 KB. Only the latest 1,000 ended keys are kept, even if the
    retention is longer.
    """

    grants_leases = True

    async def admit(
        self,
        token: Token,
        cost: int,
        plans: PlanBook,
        now: int | None = None,
        address: str | None = None,
        limits: tuple[Limit, ...] = (),
        lease: LeaseRequest | None = None,
    ) -> Admission:
        organization = await self._shelf.owner("key", token.handle)
        if organization is None:
            token.compare_with_dummy()
            return UNKNOWN

        def work(record: Record, at: int) -> Admission:
            return record.admit(token, cost, plans, at, address, limits, lease)

        return await self._shelf.change(organization, work, now)

    async def charge(self, owner: str, action: Action[A], now: int | None = None) -> A:
        log = NO_LOG

        def work(record: Record, at: int) -> A:
            nonlocal log
            answer = record.charge(action, owner, at)
            log = record.log
            return answer

        answer = await self._shelf.change(owner, work, now)
        if change_of(action) is not None:
            await self._archive(owner, log)
        return answer
