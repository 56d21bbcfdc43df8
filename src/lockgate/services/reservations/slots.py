"""Concurrency slots: leases held by jobs, up to a number set by the plan (D26)."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from math import inf, isfinite
from secrets import token_hex
from time import monotonic
from typing import Final, Self
from uuid import uuid4

from ...clock import Clock
from ...core.key_format import KeyFormat
from ...core.leases import TO_LIST, Lease, lease_of, leases_of, to_acquire, to_release, to_renew
from ...core.plans import ID_MAX_LENGTH, is_id
from ...core.timestamps import DAY, SECOND
from ...errors import (
    ConcurrentLimitExceeded,
    ConfigurationError,
    InvalidRequest,
    JobRunning,
    Problem,
    SlotLost,
    StoreUnavailable,
)
from ...events import Events
from ...principal import Principal
from ...stores.base import Store
from ..organizations import Organizations
from ..store_errors import asking
from ..usage.recorder import UsageRecorder
from .renewed_block import BEATS, BEATS_IN_TROUBLE, Pair, RenewedBlock
from .shielded import Finishing

Holder = Principal | str
"""The holder of a slot: a principal, with its plan, or the id of an organization."""


class ConcurrencySlots:
    """The concurrency slots of a gate, as ``gate.slots``, by organization and job id.

    A slot is held by a lease, which ends at its deadline unless it is renewed: so the slot of a
    dead worker becomes free by itself. The lease names its owner by a random text. Any process that
    has this text can renew and release the slot.
    """

    def __init__(
        self,
        store: Store,
        organizations: Organizations,
        format: KeyFormat,
        lease: float,
        retry_after: int,
        clock: Clock | None,
        events: Events,
        pair: Pair,
        recorder: UsageRecorder | None = None,
    ) -> None:
        self.pair: Final = pair
        """Checks that the store's I/O mode suits the caller that holds a slot."""
        self.lease: Final = lease
        """The default duration of a lease, in seconds."""
        self._store = store
        self._organizations = organizations
        self._format = format
        self._retry_after = retry_after
        self._clock = clock
        self._events = events
        self._recorder = recorder
        self.finishing: Final = Finishing()
        self._span(lease)

    async def acquire(
        self, holder: Holder, job: str, *, owner: str | None = None, seconds: float | None = None
    ) -> Lease:
        """Take a slot for a job, or return the lease of the slot that the job already holds (L6).

        Does not extend an existing lease: :meth:`renew` does.

        Args:
            holder: the calling principal, or the organization's id.
            job: the job's id, 1 to 128 characters. A caller that chooses the ids could run many
                jobs under one id: check that each job runs once, or name an owner.
            owner: the owner of the slot, 1 to 128 characters; a slot of another owner is refused.
                None: a new random owner, or the owner of the existing slot.
            seconds: the duration of the lease, up to a day; None: that of
                :class:`~lockgate.options.StoreOptions`.

        Raises:
            ConcurrentLimitExceeded: the organization holds as many slots as its plan admits.
            JobRunning: another owner than ``owner`` holds the slot of this job.
            InvalidRequest: an id or the owner is malformed.
            StoreUnavailable: the store did not answer.
        """
        organization = _organization(holder)
        taker = new_owner() if owner is None else owner
        _check(organization, job, taker)
        span = self._span(seconds)
        if isinstance(holder, Principal):
            plan = holder.plan
        else:
            plan = await self._organizations.plan(organization)
        with asking(self._events):
            action = to_acquire(job, taker, plan.concurrent, span)
            answer = await self._store.charge(organization, action, self._now())
        lease, limit, held = lease_of(answer), plan.concurrent, answer.used[0]
        if lease is None:
            assert limit is not None, "what has no limit is never full"
            self._tell("slot_refused", organization, job, limit=limit, used=held)
            refusal = ConcurrentLimitExceeded(limit, held, self._retry_after)
            if self._recorder is not None:
                key = holder.key if isinstance(holder, Principal) else None
                handle = None if key is None else key.handle
                self._recorder.refuse(organization, handle, refusal.type, refusal.code)
            raise refusal
        if owner is not None and lease.owner != owner:
            raise JobRunning
        return lease

    async def renew(
        self, holder: Holder, job: str, owner: str, *, seconds: float | None = None
    ) -> Lease:
        """Extend a lease to ``seconds`` from now if this owner still holds the slot.

        Raises:
            SlotLost: the owner no longer holds the slot, which is final (L4): the job has to stop.
            InvalidRequest: an id or the owner is malformed.
            StoreUnavailable: the store did not answer: the lease lasts until its deadline.
        """
        organization = _organization(holder)
        _check(organization, job, owner)
        span = self._span(seconds)
        with asking(self._events):
            action = to_renew(job, owner, span)
            lease = lease_of(await self._store.charge(organization, action, self._now()))
        if lease is None:
            raise self.loss(holder, job)
        return lease

    async def release(self, holder: Holder, job: str, owner: str) -> bool:
        """Free the slot of a job; return False if this owner does not hold it (L5).

        Raises:
            InvalidRequest: an id or the owner is malformed.
            StoreUnavailable: the store did not answer: the slot becomes free at its deadline.
        """
        organization = _organization(holder)
        _check(organization, job, owner)
        with asking(self._events):
            action = to_release(job, owner)
            return (await self._store.charge(organization, action, self._now())).done

    async def held(self, holder: Holder) -> tuple[Lease, ...]:
        """Return the organization's live leases, in the order in which they were taken."""
        with asking(self._events):
            answer = await self._store.charge(_organization(holder), TO_LIST, self._now())
        return leases_of(answer.slots)

    async def cancel(self, holder: Holder, job: str) -> bool:
        """Free the slot of a job, regardless of its owner; return False if the job holds no slot.

        The owner gets ``SlotLost`` from its next renewal. An owner that takes the slot of the same
        job in the meantime keeps it.
        """
        for lease in await self.held(holder):
            if lease.job == job:
                return await self.release(holder, job, lease.owner)
        return False

    def loss(self, holder: Holder, job: str) -> SlotLost:
        """Emit ``slot_lost``, and return the refusal to raise."""
        self._tell("slot_lost", _organization(holder), job)
        return SlotLost()

    def _span(self, seconds: float | None) -> int:
        seconds = self.lease if seconds is None else seconds
        span = int(seconds * SECOND) if isfinite(seconds) else 0
        if not 1 <= span <= DAY:
            raise ConfigurationError(f"A slot is taken for up to a day, not for {seconds} seconds.")
        return span

    def _tell(self, name: str, organization: str, job: str, **numbers: int) -> None:
        shown = self._format.redact(job)  # A caller may have sent a key in place of an id.
        self._events.emit(name, organization=organization, job=shown, **numbers)

    def _now(self) -> int | None:
        return self._clock() if self._clock else None


class ConcurrencySlot(RenewedBlock):
    """Context manager of a slot: acquires it on entry, renews its lease, releases it on exit.

    An exception or a cancellation releases the slot too; if the process dies, the slot becomes free
    at its deadline. The slot is lost if the store is away or the process is suspended for a whole
    lease, or if the job is cancelled by :meth:`ConcurrencySlots.cancel`. An ``async with`` block is
    then cancelled at once and raises :class:`~lockgate.errors.SlotLost`. A ``with`` block cannot be
    interrupted: read :attr:`lost` or call :meth:`check` between its steps.

    Attributes:
        job: the job's id.
        owner: the owner in the lease; another process needs it to renew or release the slot.
    """

    def __init__(
        self,
        slots: ConcurrencySlots,
        holder: Holder,
        job: str | None,
        owner: str | None,
        seconds: float | None,
    ) -> None:
        super().__init__("slot", slots.pair, slots.lease if seconds is None else seconds)
        self.job: Final = str(uuid4()) if job is None else job
        self.owner: Final = new_owner() if owner is None else owner
        self._slots = slots
        self._holder = holder
        self._adopts = owner is not None
        self._time: Callable[[], float] = monotonic
        self._until = -inf
        self._told = False
        self._is_free = False
        self._timer: asyncio.Timeout | None = None
        self._beating: asyncio.Task[None] | None = None

    @property
    def lost(self) -> bool:
        """Whether the slot is not held, before the block begins or after the lease has ended."""
        # Counted from before the call of the store, so never later than the lease's own deadline.
        return self._time() >= self._until

    def check(self) -> None:
        """Check that the slot is held.

        Raises:
            SlotLost: the slot is not held: the job has to stop.
        """
        if self.lost:
            raise self._loss()

    async def free(self) -> None:
        """Give the slot back before its ``async with`` block ends, which goes on without it."""
        timer, beating = self._timer, self._beating
        if timer is None or beating is None or timer.expired() or self._is_free:
            return
        self._is_free = True
        beating.cancel()
        timer.reschedule(None)
        await self._slots.finishing.finish(self._end())

    @asynccontextmanager
    async def _await(self) -> AsyncGenerator[Self]:
        self._pair("async")
        loop = asyncio.get_running_loop()
        self._time = loop.time
        await self._slots.finishing.finish(self._take(), undo=self._end)
        self._timer = timer = asyncio.timeout_at(self._until)
        try:
            async with timer:
                self._beating = beating = loop.create_task(self._beat(timer))
                try:
                    yield self
                finally:
                    beating.cancel()
        except TimeoutError:
            if timer.expired():
                raise self._loss() from None
            raise
        finally:
            if not self._is_free:
                await self._slots.finishing.finish(self._end())

    async def _beat(self, timer: asyncio.Timeout) -> None:
        pause = self._seconds / BEATS
        while not (timer.expired() or self._told):
            await asyncio.sleep(pause)
            pause = await self._renew()
            if not timer.expired():
                timer.reschedule(self._until)

    async def _take(self) -> None:
        asked = self._time()
        slots, holder, seconds = self._slots, self._holder, self._seconds
        await slots.acquire(holder, self.job, owner=self.owner, seconds=seconds)
        if self._adopts:
            # The slot was acquired earlier, so part of its lease has passed.
            asked = self._time()
            await slots.renew(holder, self.job, self.owner, seconds=seconds)
        self._until = asked + self._seconds
        self._told = False

    async def _renew(self) -> float:
        asked = self._time()
        try:
            await self._slots.renew(self._holder, self.job, self.owner, seconds=self._seconds)
        except SlotLost:
            self._told = True  # First: another thread that finds it lost reports what is not told.
            self._until = -inf
        except StoreUnavailable:
            return self._seconds / BEATS_IN_TROUBLE
        else:
            self._until = asked + self._seconds
        return self._seconds / BEATS

    def _needs_renewal(self) -> bool:
        return not self._told

    async def _end(self) -> None:
        if self.lost:
            self._loss()
        self._until, self._told = -inf, True
        with suppress(StoreUnavailable):  # The slot becomes free at its deadline.
            await self._slots.release(self._holder, self.job, self.owner)

    def _loss(self) -> SlotLost:
        """Return ``SlotLost``, and report the loss the first time."""
        if self._told:
            return SlotLost()
        self._told = True
        return self._slots.loss(self._holder, self.job)


def new_owner() -> str:
    """Return a random owner, unique and impossible to guess."""
    return token_hex(16)


def _organization(holder: Holder) -> str:
    return holder if isinstance(holder, str) else holder.organization


def _check(organization: object, job: object, owner: object) -> None:
    """Refuse a malformed id or owner (D36)."""
    problems = [
        Problem(field, f"Use 1 to {ID_MAX_LENGTH} characters.")
        for field, id in (("organization", organization), ("job", job), ("owner", owner))
        if not is_id(id)
    ]
    if problems:
        raise InvalidRequest(problems)
