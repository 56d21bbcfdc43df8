"""A database as primary store, with a cache before it that serves admissions."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from threading import current_thread, main_thread
from time import monotonic
from typing import Final, TypeVar, cast

from ...core.api_keys import KeyState, Position
from ...core.holds import is_of_slots
from ...core.key_format import Token
from ...core.ledger import Action, Hit, Reset
from ...core.limits import Limit
from ...core.plans import PlanBook
from ...core.quota_leases import LeaseRequest
from ...events import Events
from ...sync import loop_runs, run
from ..answers import (
    REFUSED_BY_STATE,
    UNKNOWN,
    Admission,
    Freshness,
    StoreWarning,
    Verdict,
    limits_of,
)
from ..combined import joint_mode
from ..resilience.deadlines import Patience, within
from ..resilience.failures import is_outage
from ..resilience.local_limits import LocalLimits
from ..resilience.store import ResilientCache, ResilientPrimary
from ..resilience.wrapping import Wrapper
from ..rows import Commit, Index, Outcome, R, Read, Walk, Wanted
from ..runtime.background import BackgroundTask
from ..runtime.process_hooks import at_process_end, ends_without_hooks, logger
from ..usage_buffer import UsageBuffer
from .base import CacheStore, PrimaryStore
from .revocation import Copies

A = TypeVar("A")

CACHE_SHARE: Final = 0.6
"""Share of a request's deadline that the cache has; the rest is for the primary after a failure."""
_MAX_FILLS: Final = 3
_STARTED_WITHOUT_CACHE: Final = (
    "Redis did not answer at the start: until it does, the database verifies keys, and each "
    "process applies limits of its own."
)
_ENDS_AT_ONCE: Final = (
    "SIGTERM ends this process at once, so the usage of its last half second is lost: stop the "
    "server by SIGINT, or call signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)) before it "
    "serves."
)


class CachedStore(Wrapper):
    """Keeps keys, plans, accounts and slots in a primary, and serves admissions from a cache.

    The cache holds windows, and copies of keys and plans. A revocation is immediate and final
    (K3 to K5): :mod:`lockgate.stores.cached.revocation` says how.

    Args:
        primary: keeps keys, plans, accounts and slots.
        cache: keeps windows and copies.
        limits: the local limits while the cache is away; None: such requests are refused.
        deadline: seconds for all calls of a request; None: the stores have deadlines of their own.

    Raises:
        ConfigurationError: one store blocks and the other awaits.
    """

    def __init__(
        self,
        primary: PrimaryStore,
        cache: CacheStore,
        limits: LocalLimits | None = None,
        deadline: float | None = None,
        patience: Patience | None = None,
    ) -> None:
        super().__init__(primary)
        cache.hold_copies()
        self.primary: Final = primary
        self.cache: Final = cache
        self.io = joint_mode(primary.io, cache.io)
        self.grants_leases = cache.grants_leases
        self._limits = limits
        self._deadline = deadline
        self._patience: Final = patience or Patience()
        self.copies: Final = Copies(primary, cache)
        self._usage: Final = UsageBuffer()
        self._background: Final = BackgroundTask(self._run, often=2)
        at_process_end(self)

    def resilient(
        self,
        events: Events,
        limits: LocalLimits,
        deadline: float,
        patience: Patience | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> "CachedStore":
        """Return this pair with a :class:`ResilientStore` around each store.

        The two share the refusal cache of the cache store: a change of the primary empties it.
        """
        patience = patience or Patience()
        share = deadline * CACHE_SHARE
        cache = ResilientCache(
            self.cache, events, limits, share, counts=True, clock=clock, patience=patience
        )
        primary = ResilientPrimary(
            self.primary,
            events,
            deadline=deadline,
            refusals=cache.refusals,
            patience=patience,
        )
        return CachedStore(primary, cache, limits, deadline, patience)

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
        local, asked_at = self._limits, monotonic()
        try:
            admission = await self.cache.admit(token, cost, plans, now, address, limits, lease)
            if admission.verdict is Verdict.UNKNOWN:
                with self._rest(asked_at):
                    admission = await self._filled(token, cost, plans, now, address, limits, lease)
            if self.copies.may_be_outdated:
                with self._rest(asked_at):
                    admission = await self.copies.confirm(token, admission, address)
        except Exception as failure:
            if not is_outage(failure) or local is None:
                raise
            with self._rest(asked_at):
                admission = await self._verified(token, cost, plans, now, address, limits, failure)
        verdict, key, _, reading, _, _ = admission
        if verdict is Verdict.ADMITTED and key is not None and reading is not None:
            self._usage.add(key.handle, reading.now)
            if self._background.due_by <= asked_at:
                self._background.used()
        return admission

    async def charge(self, owner: str, action: Action[A], now: int | None = None) -> A:
        if is_of_slots(action):
            return await self.primary.charge(owner, action, now)
        asked: object = action
        if isinstance(asked, Reset):
            # The primary counts no window, and has the change log: first there, so none is missing.
            await self.primary.charge(owner, action, now)
            return cast(A, await self.cache.charge(owner, Reset()))
        return await self.cache.charge(owner, action, now)

    def recalls(self) -> AsyncGenerator[str | None]:
        return self.cache.recalls()

    async def ready(self) -> None:
        is_main = current_thread() is main_thread()
        if not is_main and not loop_runs() and ends_without_hooks():
            logger.warning("%s", _ENDS_AT_ONCE)
        await self.primary.ready()
        try:
            await self.cache.ready()
        except Exception as failure:
            # A process that can serve by local limits must not be kept out by its probe.
            if self._limits is None or not self._limits.decides or not is_outage(failure):
                raise
            logger.warning("%s", _STARTED_WITHOUT_CACHE)
        self._patience.begin()

    async def warnings(self) -> Sequence[StoreWarning]:
        """Return the warnings of both; a cache that loses its data is filled again."""
        of_cache = await self.cache.warnings()
        kept = [warning for warning in of_cache if warning.kind not in {"persistence", "keys"}]
        return [*await self.primary.warnings(), *kept]

    async def freshness(self) -> Freshness:
        # The primary's counter moves before the copies are forgotten, so it would be too early.
        return await self.cache.freshness()

    async def read(
        self,
        index: Index[R],
        prefix: tuple[str, ...],
        limit: int = 1,
        after: Position | None = None,
        now: int | None = None,
    ) -> Read[R]:
        if index.shows_usage:
            await self.write_usage()
        return await self.primary.read(index, prefix, limit, after, now)

    async def commit(self, commit: Commit, now: int | None = None) -> Outcome:
        return await self.copies.change(commit, self.primary.commit(commit, now))

    async def walk(self, wanted: Wanted, limit: int, cursor: str | None = None) -> Walk:
        await self.write_usage()
        return await self.primary.walk(wanted, limit, cursor)

    async def write_usage(self) -> None:
        """Write the usage that this process has counted to the primary (D6)."""
        if len(self._usage):
            await self._background.finish(self._usage.write(self.primary))

    async def compare(self) -> None:
        """Forget the copies of organizations that changed since the last comparison (K4)."""
        await self.copies.compare()

    async def flush(self) -> None:
        if len(self._usage):
            await self._background.finish(self._usage.finish(self.primary))

    def ended(self) -> None:
        """Write the usage of a process that ends without closing the store.

        At interpreter exit no thread can start, so deadlines cannot be enforced: skip this if the
        primary has been failing.
        """
        self._background.stop()
        primary = self.innermost
        # An async store's connections belong to event loops that have ended.
        if primary.io != "async" and not self.is_failing:
            run(self._usage.finish(primary))

    def cancel_waits(self) -> None:
        self.primary.cancel_waits()
        self.cache.cancel_waits()

    async def close(self) -> None:
        """Write the remaining usage, then close both stores."""
        await self._background.close()
        await self.flush()
        self._usage.close()
        try:
            await self.cache.close()
        finally:
            await self.primary.close()

    def _rest(self, asked_at: float) -> AbstractContextManager[None]:
        """Return the deadline of the calls that follow in a request, from its start."""
        if self._deadline is None:
            return nullcontext()
        present = monotonic()
        until = max(asked_at + self._deadline, self._patience.until)
        return within(until - present)

    async def _filled(
        self,
        token: Token,
        cost: int,
        plans: PlanBook,
        now: int | None,
        address: str | None,
        limits: tuple[Limit, ...],
        lease: LeaseRequest | None,
    ) -> Admission:
        """Admit a key of which the cache has no copy: copy it, and ask the cache again."""
        for _ in range(_MAX_FILLS):
            refused = await self.copies.fill(token)
            if refused is not None:
                return refused
            admission = await self.cache.admit(token, cost, plans, now, address, limits, lease)
            if admission.verdict is not Verdict.UNKNOWN:
                return admission
        # The key changes faster than it can be copied.
        return await self._verified(token, cost, plans, now, address, limits)

    async def _verified(
        self,
        token: Token,
        cost: int,
        plans: PlanBook,
        now: int | None,
        address: str | None,
        limits: tuple[Limit, ...],
        failure: Exception | None = None,
    ) -> Admission:
        """Verify a key by the primary alone, and charge the cache, or local limits after its
        failure."""
        key = await self.copies.find(token)
        if key is None:
            return UNKNOWN
        at = now
        if at is None:
            at = 0 if key.expires_at is None else await self.primary.now()
        state = key.state(at)
        if state is not KeyState.ACTIVE:
            return Admission(REFUSED_BY_STATE[state], key)
        if key.details is not None and not key.details.allows(address):
            return Admission(Verdict.ELSEWHERE, key)
        placed = await self.primary.organization(key.organization)
        if placed is not None and not at and placed.has_temporary_limits:
            at = await self.primary.now()
        plan = plans.plan_of(placed, at)
        named = limits_of(limits, plan, key, at)
        if failure is None or self._limits is None:
            hit = Hit(plan.windows, cost, named)
            reading = await self.cache.charge(key.organization, hit, now)
        else:
            charged = key.organization, plan.windows, cost, now
            reading = self._limits.fall_back(failure, *charged, token.handle, named)
        named = named and named.at(reading.now, key.organization)
        if not reading.allowed:
            return Admission(Verdict.LIMITED, key, plan, reading, named)
        last = max(reading.now, key.last_used_at or 0)
        key = key._replace(request_count=key.request_count + 1, last_used_at=last)
        return Admission(Verdict.ADMITTED, key, plan, reading, named)

    async def _run(self) -> None:
        try:
            await self.compare()
        finally:
            await self.write_usage()
            if len(self._usage):
                self._background.used()
