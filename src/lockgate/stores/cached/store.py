"""Two stores as one: keys, plans and slots in a database, admissions in a cache before it.

The database is the truth. The cache serves admissions from copies, which are made when a key is
first seen and voided when it changes. Four things keep a revoked key out: a change voids the
copies before it is answered (K4); a copy that was read before that is not installed after it (K5);
twice a second what the truth says has changed is compared with what the cache was told, so that
nothing is missed where a process died in between, or where the cache forgot; and from the moment
that a server of the cache takes another's place, until that is compared, the truth is asked.
"""

from collections.abc import Coroutine
from typing import Any, Final, TypeVar, cast

from ...core.accounts import Account
from ...core.api_keys import ApiKey, KeyState, Position
from ...core.bounded_dict import BoundedDict
from ...core.digests import Digest
from ...core.key_format import Token
from ...core.plans import Organization, PlanBook
from ...core.sliding_window import Reading, Window
from ...errors import ConfigurationError, StoreUnavailable
from ...sync import run
from ...waiting import together
from ..base import (
    REFUSED_BY_STATE,
    UNKNOWN,
    UNSEALED,
    Admission,
    Freshness,
    IoMode,
    Page,
    Removal,
    Reseal,
    Verdict,
)
from ..resilience.failures import is_outage, may_have_counted
from ..resilience.guarded import Guarded
from ..resilience.local_limits import LocalLimits
from ..resilience.wrapping import Wrapper
from ..runtime.background import BackgroundTask
from ..runtime.process_hooks import at_process_end
from .base import CacheStore, PrimaryStore
from .usage_buffer import UsageBuffer

T = TypeVar("T")

_FILLS_AT_MOST: Final = 3
_FALLEN_AT_MOST: Final = 10_000
_FORGOTTEN_AT_ONCE: Final = 64


class CachedStore(Wrapper):
    """Keeps everything in one store, and lets another serve admissions.

    Args:
        truth: keeps keys, plans, accounts and slots.
        cache: keeps windows, and copies.
        limits: what holds while the cache is away; None: nobody is admitted then.

    Raises:
        ConfigurationError: one of them blocks and the other awaits.
    """

    def __init__(
        self,
        truth: PrimaryStore,
        cache: CacheStore,
        limits: LocalLimits | None = None,
    ) -> None:
        super().__init__(truth)
        self.truth: Final = truth
        self.cache: Final = cache
        self.io = _both(truth.io, cache.io)
        self._limits = limits
        self._fallen = BoundedDict[str, tuple[str, tuple[Window, ...]]](_FALLEN_AT_MOST)
        """Of handles of keys that were limited here, the organization and its windows."""
        self._compared_with: object = None
        """What served the copies that were compared, if another can take its place."""
        self._counts: Final = UsageBuffer()
        self._upkeep: Final = BackgroundTask(self._tend, often=2)
        at_process_end(self)

    async def pass_on(self, verb: str, *args: Any, **kwargs: Any) -> Any:
        return await getattr(self.truth, verb)(*args, **kwargs)

    async def admit(
        self, token: Token, cost: int, plans: PlanBook, now: int | None = None
    ) -> Admission:
        admission = await self._admit(token, cost, plans, now)
        verdict, key, _, reading = admission
        if verdict is Verdict.ADMITTED and key is not None and reading is not None:
            self._counts.add(key.handle, reading.now)
            self._upkeep.used()
        return admission

    async def hit(
        self, organization: str, windows: tuple[Window, ...], cost: int, now: int | None = None
    ) -> Reading:
        try:
            reading = await self.cache.hit(organization, windows, cost, now)
        except Exception as failure:
            return self._instead(failure, organization, windows, cost, now)
        if self._limits is not None:
            if reading.allowed:
                self._limits.note(organization, windows, cost, now)
            if self._limits.owing:
                await self._limits.flush(organization, windows, self.cache.hit, now)
        return reading

    async def peek(
        self, organization: str, windows: tuple[Window, ...], now: int | None = None
    ) -> Reading:
        return await self.cache.peek(organization, windows, now)

    async def get(self, organization: str, id: str) -> ApiKey | None:
        await self.write_usage()
        return await self.truth.get(organization, id)

    async def change_counter(self) -> int | None:
        # The cache's: the truth's moves while copies from before are still believed.
        return await self.cache.change_counter()

    async def freshness(self) -> Freshness:
        return await self.cache.freshness()

    async def list(self, organization: str, limit: int, after: Position | None = None) -> Page:
        await self.write_usage()
        return await self.truth.list(organization, limit, after)

    async def list_live(
        self,
        organization: str,
        limit: int,
        after: Position | None = None,
        now: int | None = None,
    ) -> Page:
        await self.write_usage()
        return await self.truth.list_live(organization, limit, after, now)

    async def remove_ended(
        self, age: int, now: int | None = None, cursor: str | None = None
    ) -> Removal:
        removal = await self.truth.remove_ended(age, now, cursor)
        if removal.removed:
            await self.compare()  # Copies of removed keys are void.
        return removal

    async def revoke_if_live(
        self, organization: str, id: str, now: int | None = None
    ) -> ApiKey | None:
        return await self._changing(organization, self.truth.revoke_if_live(organization, id, now))

    async def put_organization(self, organization: Organization) -> None:
        await self._changing(organization.id, self.truth.put_organization(organization))

    async def claim_if_unclaimed(
        self,
        organization: str,
        user: str,
        *,
        revoke: bool,
        keep_token: bool,
        seals: Reseal = UNSEALED,
        now: int | None = None,
    ) -> Account | None:
        claim = self.truth.claim_if_unclaimed(
            organization, user, revoke=revoke, keep_token=keep_token, seals=seals, now=now
        )
        return await self._changing(organization, claim)

    async def remove_unclaimed(
        self, idle: int, limit: int, now: int | None = None
    ) -> tuple[str, ...]:
        await self.write_usage()
        removed: tuple[str, ...] = await self.truth.remove_unclaimed(idle, limit, now)
        # What fails here, compare() does within a second.
        for organization in removed:
            await self.cache.forget(organization)
        return removed

    async def rehash_if(self, handle: str, old: Digest, new: Digest) -> bool:
        moved = await self.truth.rehash_if(handle, old, new)
        if moved and (key := await self.truth.find(handle)) is not None:
            await self.cache.forget(key.organization)
        return moved

    async def write_usage(self) -> None:
        """Write what was counted here into the truth (D6)."""
        used = self._counts.take()
        if used:
            await self._upkeep.finish(self._counts.write(used, self.truth))

    async def compare(self) -> None:
        """Void the copies of whoever changed since the cache was last told (K4).

        Usually they are void already. They are not where whoever changed them died before it could
        say so, could not reach the cache, or where the cache lost what it was told.
        """
        served_by = self.cache.served_by
        told = await self.cache.caught_up()
        changes = await self.truth.changes(told)
        failure: Exception | None = None
        for start in range(0, len(changes.organizations), _FORGOTTEN_AT_ONCE):
            some = changes.organizations[start : start + _FORGOTTEN_AT_ONCE]
            failures = await together(map(self._forget, some))
            # One that cannot be voided keeps none of the others.
            failure = next(filter(None, failures), failure)
        if failure is not None:
            raise failure
        if changes.change_counter != told:
            await self.cache.catch_up(told, changes.change_counter)
        self._compared_with = served_by

    async def flush(self) -> None:
        await self.write_usage()

    def ended(self) -> None:
        """Write the usage of a process that ends without closing the store.

        No thread can be started any more, hence no deadline be kept: only where nothing is amiss.
        """
        self._upkeep.stop()
        truth = self.truth
        if isinstance(truth, Guarded):
            if truth.breaker.failures:
                return
            truth = cast(PrimaryStore, truth.inner)
        # The connections of one that awaits were those of event loops.
        if truth.io != "async" and (used := self._counts.take()):
            run(truth.add_usage(used))

    def cancel_waits(self) -> None:
        self.truth.cancel_waits()
        self.cache.cancel_waits()

    async def close(self) -> None:
        """Write the usage that is left, then close both."""
        await self._upkeep.close()
        await self.write_usage()
        try:
            await self.cache.close()
        finally:
            await self.truth.close()

    async def _admit(self, token: Token, cost: int, plans: PlanBook, now: int | None) -> Admission:
        limits = self._limits
        if limits is not None and limits.owing and token.handle in self._fallen:
            organization, windows = self._fallen[token.handle]
            if organization not in limits.away:
                await limits.flush(organization, windows, self.cache.hit, now)
        try:
            admission = await self.cache.admit(token, cost, plans, now)
            for _ in range(_FILLS_AT_MOST):
                if admission.verdict is not Verdict.UNKNOWN:
                    break
                refused = await self._fill(token)
                if refused is not None:
                    return refused
                admission = await self.cache.admit(token, cost, plans, now)
            else:  # It changes faster than it can be copied.
                return await self._verified(token, cost, plans, now)
        except Exception as failure:
            if not is_outage(failure) or self._limits is None:
                raise
            return await self._verified(token, cost, plans, now, failure)
        if self.cache.served_by is not self._compared_with:
            admission = await self._confirmed(token, admission)
        verdict, key, plan, _ = admission
        if limits is not None and key is not None and plan is not None:
            if verdict is Verdict.ADMITTED:
                limits.note(key.organization, plan.windows, cost, now)
            if limits.owing:
                await limits.flush(key.organization, plan.windows, self.cache.hit, now)
        return admission

    async def _confirmed(self, token: Token, admission: Admission) -> Admission:
        """What the truth says of a key that was admitted by a copy which may be an old one."""
        if admission.verdict is not Verdict.ADMITTED:
            return admission
        key = await self._find(token)
        if key is None:
            return UNKNOWN
        return admission if key.revoked_at is None else Admission(Verdict.REVOKED, key)

    async def _fill(self, token: Token) -> Admission | None:
        """Copy a key into the cache, or say why not. Nobody without the secret has one copied."""
        key = await self._find(token)
        if key is None:
            return UNKNOWN
        fill_token = await self.cache.fill_token(key.organization)
        key = await self.truth.find(token.handle)  # Once more: now it is as new as the fence.
        if key is None:
            return UNKNOWN
        if key.revoked_at is not None:
            return Admission(Verdict.REVOKED, key)
        placed = await self.truth.organization(key.organization)
        await self.cache.install(key, placed, fill_token)
        return None

    async def _find(self, token: Token) -> ApiKey | None:
        key = await self.truth.find(token.handle)
        if key is None:
            token.matches_nobody()
            return None
        return key if token.accepts(key) else None

    async def _verified(
        self,
        token: Token,
        cost: int,
        plans: PlanBook,
        now: int | None,
        failure: Exception | None = None,
    ) -> Admission:
        """Verify a key by the truth alone, and charge the cache; or, where that failed, this
        process."""
        key = await self._find(token)
        if key is None:
            return UNKNOWN
        at = now
        if at is None:
            at = 0 if key.expires_at is None else await self.truth.now()
        state = key.state(at)
        if state is not KeyState.ACTIVE:
            return Admission(REFUSED_BY_STATE[state], key)
        plan = plans.plan_of(await self.truth.organization(key.organization))
        if failure is not None:
            self._fallen[token.handle] = key.organization, plan.windows
        charged = key.organization, plan.windows, cost, now
        reading = (
            await self.cache.hit(*charged) if failure is None else self._instead(failure, *charged)
        )
        if not reading.allowed:
            return Admission(Verdict.LIMITED, key, plan, reading)
        last = max(reading.now, key.last_used_at or 0)
        key = key._replace(request_count=key.request_count + 1, last_used_at=last)
        return Admission(Verdict.ADMITTED, key, plan, reading)

    def _instead(
        self,
        failure: Exception,
        organization: str,
        windows: tuple[Window, ...],
        cost: int,
        now: int | None,
    ) -> Reading:
        """What holds for limits where the cache failed."""
        if self._limits is None or not is_outage(failure):
            raise failure
        reading = self._limits.decide(
            organization, windows, cost, now, may_count=may_have_counted(failure)
        )
        if reading is None:
            raise StoreUnavailable from failure
        return reading

    async def _changing(self, organization: str, change: Coroutine[Any, Any, T]) -> T:
        """Change the truth, and void the copies before anybody is told that it is done."""
        try:
            return await change
        finally:
            await self.cache.forget(organization)

    async def _forget(self, organization: str) -> Exception | None:
        """Void the copies of an organization, or say why not."""
        try:
            await self.cache.forget(organization)
        except Exception as failed:
            return failed
        return None

    async def _tend(self) -> None:
        try:
            await self.compare()
        finally:
            await self.write_usage()


def _both(truth: IoMode, cache: IoMode) -> IoMode:
    if cache in {truth, "both"}:
        return truth
    if truth == "both":
        return cache
    raise ConfigurationError(
        f"One of the two stores is {truth} and the other {cache}: open both from a URL."
    )
