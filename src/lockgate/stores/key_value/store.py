"""The store contract on compare-and-set records."""

from collections.abc import Mapping
from typing import TypeVar

from ...core.key_format import Token
from ...core.ledger import Action, change_of
from ...core.limits import Limit
from ...core.plans import PlanBook
from ...core.quota_leases import LeaseRequest
from ...core.usage_history import UsageHistory
from ...sync import together
from ..answers import UNKNOWN, Admission, HistoryOwner, Usage, UsageBatch
from ..base import Store
from ..usage_batches import count_parts
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
        lease: LeaseRequest | None = None,
    ) -> Admission:
        organization = await self._shelf.owner("key", token.handle)
        if organization is None:
            token.compare_with_dummy()
            return UNKNOWN

        def work(record: Record, at: int) -> Admission:
            return record.admit(token, cost, plans, at, address, limits, lease)

        return await self._shelf.change(organization, work, now)

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
