"""LeasingStore: admissions from quota leases, without a call of the store (D42).

A busy process asks for a lease with an admission that the store decides. From the lease it admits
by itself until the units are used or the lease has almost ended, and settles it with the next call.
The rule is :mod:`lockgate.core.quota_leases`; this is the part of the process that holds a lease.

**Never more than the limit.** The store counts a lease in full until it is settled. A process
counts the time since *before* it asked, by a clock that runs while the machine is suspended, so its
lease ends before the store's. Each use is stamped with the instant of the grant, that time and a
margin for drift: not before the true instant, so it never leaves a window early.

**Where a revocation becomes immediate (K4).** A lease admits only keys that the store has verified
since its grant. A change of a key or a plan is answered once the holder of each lease that was
granted before it has stopped (:mod:`lockgate.stores.resilience.older_leases`). So at the answer
every lease that knew the key has ended, and later ones find the change.

A clock of the store that steps forward ends a lease for the store before its holder stops, at most
a span later, so the limit may be exceeded as W11 allows. A revocation waits for this holder too: an
unsettled lease stays listed for :data:`~lockgate.core.quota_leases.LONGEST` after its deadline. A
longer step hides it.
"""

from collections.abc import Iterator
from contextlib import suppress
from math import ceil
from secrets import token_hex
from time import monotonic
from typing import Any, Final

from ..clock import Clock
from ..core.api_keys import ApiKey
from ..core.bounded_dict import BoundedDict
from ..core.fast_tuples import new_tuple
from ..core.key_format import Token
from ..core.ledger import settling
from ..core.limits import Limit
from ..core.plans import Plan, PlanBook
from ..core.quota_leases import (
    LEAST,
    LONGEST,
    STAMPS_AT_MOST,
    LeaseRequest,
    Settlement,
)
from ..core.reservations import Reservation
from ..core.row_seals import sealed_fields
from ..core.sliding_window import Reading
from ..core.timestamps import SECOND
from ..errors import ConfigurationError, LockgateError
from ..sync import run, together
from .answers import Admission, StoreError, Verdict
from .base import Store
from .lease_recalls import RecallListener
from .resilience.older_leases import elapsing_clock
from .resilience.wrapping import Wrapper
from .rows import Commit, Outcome
from .runtime.background import BackgroundTask
from .runtime.process_hooks import after_fork_in_child, at_process_end, own_lock
from .usage_buffer import UsageBuffer

SHORTEST: Final = 0.1
"""The shortest span of a lease, in seconds."""
_USED_FOR: Final = 0.85
"""The share of its span for which a process admits from a lease. The rest is for clocks that run at
different speeds, and for settling it in time."""
_CHECKS: Final = 10
"""How many times within a span idle leases are settled."""
_DEMAND: Final = 1.2
"""The units asked for, as a multiple of the units used in a span lately."""
_DIRECT_FOR: Final = 64
"""After an admission without a lease the next ones ask for none for this part of a span."""
_USAGE_EVERY: Final = 5 * SECOND
"""Time between two writes of usage, in microseconds."""
_SETTLED_AT_ONCE: Final = 32
"""Organizations whose idle leases are settled at the same time."""
_HANDLES_AT_MOST: Final = 131_072
_ORGANIZATIONS_AT_MOST: Final = 10_000


class _Held:
    """A lease of this process, and the admissions from it."""

    __slots__ = (
        "_grain",
        "_granted_at",
        "_keys",
        "_plans",
        "_reading",
        "_stamps",
        "_taken",
        "asked_at",
        "id",
        "left",
        "plan",
        "until",
    )

    def __init__(
        self, lease: Reservation, asked_at: int, plans: PlanBook, plan: Plan, reading: Reading
    ) -> None:
        self.id: Final = lease.id
        self.left = lease.units
        self.asked_at: Final = asked_at
        """When it was asked for, by the clock of :class:`LeasingStore`."""
        self.until: Final = asked_at + int(lease.span * _USED_FOR)
        """Until when to admit from it, by that clock."""
        self.plan: Final = plan
        self._plans: Final = plans
        self._reading: Final = reading
        self._granted_at: Final = reading.now
        self._grain: Final = -(-lease.span // STAMPS_AT_MOST)
        self._stamps: list[list[int]] = []
        """The first and the last instant of some uses, and their units."""
        self._taken = 0
        self._keys: dict[str, list[Any]] = {}
        """Each key that the store has verified since the grant: the key, its sealed fields, and its
        uses with the instant of the last."""

    def is_over(self, at: int, cost: int) -> bool:
        """Return whether a cost does not fit at an instant of the clock."""
        return cost > self.left or not self.asked_at <= at < self.until

    def know(self, key: ApiKey) -> None:
        """Admit a key from now on, which the store has verified since the grant."""
        if key.handle not in self._keys:
            self._keys[key.handle] = [key, sealed_fields(key), 0, 0]

    def admit(
        self, token: Token, cost: int, plans: PlanBook, address: str | None, at: int
    ) -> Admission | None:
        """Admit a request; None: ask the store."""
        known = self._keys.get(token.handle)
        if known is None or cost > self.left or plans is not self._plans:
            return None
        elapsed = at - self.asked_at
        if elapsed < 0 or at >= self.until:
            return None
        key, sealed, uses, _ = known
        if token.sealed != sealed and not token.accepts(key):
            return None
        # The drift keeps the stamp from lying before the true instant, by a clock 0.1 % slow.
        now, plan = self._granted_at + elapsed + (elapsed >> 10), self.plan
        if now >= plan.until or (key.expires_at is not None and key.expires_at <= now):
            return None
        if key.details is not None and not key.details.allows(address):
            return None
        self.left -= cost
        self._taken = taken = self._taken + cost
        stamps = self._stamps
        if stamps and now - stamps[-1][0] < self._grain:
            stamps[-1][1] = now
            stamps[-1][2] += cost
        else:
            stamps.append([now, now, cost])
        known[2] = uses = uses + 1
        known[3] = now
        _, _, used, remaining, reset, tightest, _, _ = self._reading
        reading = new_tuple(
            Reading,
            (
                True,
                now,
                tuple([count + taken for count in used]),
                None if remaining is None else remaining - taken,
                max(reset, now),
                tightest,
                None,
                0,
            ),
        )
        shown = new_tuple(ApiKey, key[:-2] + (key.request_count + uses, now))  # noqa: RUF005 - it goes by a list
        return new_tuple(Admission, (Verdict.ADMITTED, shown, plan, reading, None, None))

    def settlement(self) -> Settlement:
        """Return what was used."""
        return Settlement(self.id, tuple((last, units) for _, last, units in self._stamps))

    def uses(self) -> Iterator[tuple[str, int, int]]:
        """Yield each key that was used: its handle, the last instant, and the uses."""
        for handle, (_, _, uses, last) in self._keys.items():
            if uses:
                yield handle, last, uses


class _Leases:
    """The leases of an organization in this process: at most one is held at a time."""

    __slots__ = (
        "_direct_until",
        "_since",
        "_units",
        "asking",
        "ended",
        "held",
        "is_recalled",
        "paused",
        "plan",
    )

    def __init__(self, plan: Plan, at: int) -> None:
        self.plan = plan
        """The latest known plan."""
        self.held: _Held | None = None
        self.ended: list[tuple[Settlement, int]] = []
        """Leases to settle, and when that has no effect any more, by the process's clock."""
        self.asking = False
        """Whether a request for a lease is under way: a burst makes one."""
        self.paused = 0
        """Changes under way, for which no lease is held."""
        self.is_recalled = False
        """Whether the lease that is asked for was recalled before the answer."""
        self._units = 0
        self._since = at
        self._direct_until = at

    def use(self, cost: int) -> None:
        """Count the demand."""
        self._units += cost

    def drop_past(self, at: int) -> None:
        """Drop the settlements that have no effect any more."""
        self.ended = [one for one in self.ended if one[1] > at]

    def request(self, at: int, span: int) -> LeaseRequest | None:
        """Return what to ask the store for with an admission; None: nothing."""
        self.drop_past(at)
        if self.asking or self.paused:
            return None
        elapsed = at - self._since
        wanted = ceil(self._units * _DEMAND * span / max(elapsed, span // _CHECKS))
        if not 0 <= elapsed < span:
            self._units, self._since = 0, at
        if wanted < LEAST or at < self._direct_until:
            wanted = 0
        if not wanted and not self.ended:
            return None
        if wanted:
            self._units, self._since = 0, at
        self.asking, self.is_recalled = True, False
        settled = tuple(settlement for settlement, _ in self.ended)
        return LeaseRequest(token_hex(8), wanted, span, settled)

    def answered(self, request: LeaseRequest, admission: Admission, at: int) -> None:
        """Note the answer of the store to a request that was made at an instant."""
        if admission.verdict in (Verdict.ADMITTED, Verdict.LIMITED):
            self.ended = [one for one in self.ended if one[0] not in request.settled]
        if admission.lease is None and request.units:
            self._direct_until = at + request.span // _DIRECT_FOR
        reading = admission.reading
        if admission.verdict is Verdict.LIMITED and reading is not None:
            # Until then a store that remembers the refusal repeats it.
            stands = min(reading.wait, reading.reset - reading.now)
            self._direct_until = max(self._direct_until, at + stands)


class LeasingStore(Wrapper):
    """Admits from quota leases of another store, where an organization is busy enough (D42).

    Args:
        inner: the store, which waits for older leases after a change, as a resilient one does.
        seconds: the span of a lease, 0.1 to 2.
        clock: the clock of the gate, in microseconds, if its calls bring their own time. Then idle
            leases are settled by :meth:`settle_idle` alone. None: the store's clock counts.

    Raises:
        ConfigurationError: the span is out of range.
    """

    def __init__(self, inner: Store, seconds: float, clock: Clock | None = None) -> None:
        if type(seconds) not in (int, float) or not SHORTEST <= seconds <= LONGEST / SECOND:
            raise ConfigurationError(
                f"lease is {seconds!r}: use {SHORTEST} to {LONGEST // SECOND} seconds, or None."
            )
        super().__init__(inner)
        self._span: Final = int(seconds * SECOND)
        self._clock: Final = clock or elapsing_clock
        self._is_timed: Final = clock is None
        """Whether it settles idle leases by itself: no timer follows a clock of the caller."""
        self._usage: Final = UsageBuffer()
        self._usage_due = 0
        self._background: Final = BackgroundTask(self.settle_idle, often=ceil(_CHECKS / seconds))
        self._recalls: Final = RecallListener(inner, self._recalled, lambda: bool(self._busy))
        self._lock = own_lock()
        self.forked()
        after_fork_in_child(self)
        at_process_end(self)

    def forked(self) -> None:
        """Leave all leases to the parent process (H7)."""
        self._leases = BoundedDict[str, _Leases](_ORGANIZATIONS_AT_MOST)
        self._of_handles = BoundedDict[str, tuple[str, _Leases]](_HANDLES_AT_MOST)
        self._busy: dict[str, _Leases] = {}
        """Those that hold a lease or have one to settle, by organization."""
        self._is_settling = False
        """Whether :meth:`settle_idle` is at work."""

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
        if limits or lease is not None:
            return await self.inner.admit(token, cost, plans, now, address, limits, lease)
        known, at = self._of_handles.get(token.handle), self._clock()
        if known is None:
            admission = await self.inner.admit(token, cost, plans, now, address)
            self._learn(token.handle, admission, at)
            return admission
        organization, leases = known
        with self._lock:
            held, request = leases.held, None
            leases.use(cost)
            if held is not None:
                admitted = held.admit(token, cost, plans, address, at)
                if admitted is not None:
                    return admitted
                if held.is_over(at, cost):
                    self._end(leases)
            if leases.held is None:
                request = leases.request(at, self._span)
        if request is None:
            admission = await self.inner.admit(token, cost, plans, now, address)
            with self._lock:
                self._verified(token.handle, leases, held, admission)
            return admission
        try:
            admission = await self.inner.admit(token, cost, plans, now, address, (), request)
        finally:
            with self._lock:
                leases.asking = False
        with self._lock:
            leases.answered(request, admission, at)
            self._verified(token.handle, leases, None, admission)
            is_granted = admission.verdict is Verdict.ADMITTED and admission.lease is not None
            if is_granted:
                self._hold(organization, leases, admission, plans, at)
            ends_at_once = is_granted and leases.held is None
        if ends_at_once:  # A change waits for that.
            await self._settle(organization, leases)
        return admission

    async def commit(self, commit: Commit, now: int | None = None) -> Outcome:
        leases, organization = None, commit.owner
        if commit.waits_for_leases:
            with self._lock:
                leases = self._leases.get(organization)
                if leases is not None:
                    leases.paused += 1
                    self._end(leases)
        if leases is None:
            return await self.inner.commit(commit, now)
        try:
            settling = self._settle(organization, leases)
            _, outcome = await together((settling, self.inner.commit(commit, now)))
            assert isinstance(outcome, Outcome), "by the contract of commit"
            return outcome
        finally:
            with self._lock:
                leases.paused -= 1

    async def flush(self) -> None:
        """Settle all leases, and write the usage that only this process has counted."""
        with self._lock:
            for leases in self._busy.values():
                self._end(leases)
        await self._settle_ended()
        await self._usage.finish(self.inner)
        await self.inner.flush()

    async def close(self) -> None:
        """Settle all leases, write the usage, then close the store."""
        await self._recalls.close()
        await self._background.close()
        await self.flush()
        self._usage.close()
        await self.inner.close()

    def ended(self) -> None:
        """Write the usage of a process that ends without closing the store."""
        self._recalls.stop()
        self._background.stop()
        if self.io != "async":
            run(self.flush())

    def _learn(self, handle: str, admission: Admission, at: int) -> None:
        """Remember the organization of a key that is charged to its plan alone."""
        key, plan = admission.key, admission.plan
        if key is None or plan is None or admission.limits is not None:
            return
        with self._lock:
            leases = self._leases.get(key.organization)
            if leases is None:
                leases = self._leases[key.organization] = _Leases(plan, at)
            self._of_handles[handle] = key.organization, leases

    def _verified(
        self, handle: str, leases: _Leases, held: _Held | None, admission: Admission
    ) -> None:
        """Note the answer to a call that was made while a lease was held: its key may be admitted
        from this lease."""
        key, plan = admission.key, admission.plan
        if admission.limits is not None:
            self._of_handles.pop(handle, None)
        if key is None or plan is None:
            return
        leases.plan = plan
        if held is not None and held is leases.held:
            if plan != held.plan:
                self._end(leases)
            elif admission.verdict is Verdict.ADMITTED and admission.limits is None:
                held.know(key)

    def _hold(
        self, organization: str, leases: _Leases, admission: Admission, plans: PlanBook, at: int
    ) -> None:
        """Admit from a lease that was asked for at an instant."""
        key, plan, reading = admission.key, admission.plan, admission.reading
        lease = admission.lease
        assert lease is not None
        assert key is not None
        assert plan is not None
        assert reading is not None
        held = _Held(lease, at, plans, plan, reading)
        held.know(key)
        leases.held = held
        self._busy[organization] = leases
        if leases.paused or leases.is_recalled:  # A change began after the lease was asked for.
            self._end(leases)
        if self._is_timed:
            self._recalls.start()
            if self._background.due_by <= monotonic():
                self._background.used()

    async def _recalled(self, organization: str) -> None:
        """Settle the lease of an organization: another process waits for that."""
        with self._lock:
            leases = self._leases.get(organization)
            if leases is None:
                return
            self._end(leases)
            leases.is_recalled = leases.asking
        await self._settle(organization, leases)

    def _end(self, leases: _Leases) -> None:
        """Admit no more from the lease that is held."""
        held, leases.held = leases.held, None
        if held is not None:
            leases.ended.append((held.settlement(), held.asked_at + self._span))
            for handle, at, uses in held.uses():
                self._usage.add(handle, at, uses)

    async def settle_idle(self) -> None:
        """Settle the leases that no request has settled in time.

        One call at a time does so: with a slow store the next ones would repeat its settlements.
        """
        at = self._clock()
        with self._lock:
            for organization, leases in list(self._busy.items()):
                if leases.held is not None and leases.held.is_over(at, 0):
                    self._end(leases)
                leases.drop_past(at)
                if leases.held is None and not leases.ended:
                    del self._busy[organization]
            is_busy = bool(self._busy) or len(self._usage) > 0
            is_first, self._is_settling = not self._is_settling, True
        if is_busy and self._is_timed:
            self._background.used()
        if not is_first:
            return
        try:
            await self._settle_ended()
            if at >= self._usage_due:
                self._usage_due = at + _USAGE_EVERY
                await self._usage.write(self.inner)
        finally:
            self._is_settling = False

    async def _settle_ended(self) -> None:
        """Settle the leases that have ended."""
        with self._lock:
            busy = list(self._busy.items())
        for start in range(0, len(busy), _SETTLED_AT_ONCE):
            some = busy[start : start + _SETTLED_AT_ONCE]
            await together(
                self._settle(organization, leases)
                for organization, leases in some
                if leases.ended and not leases.asking
            )

    async def _settle(self, organization: str, leases: _Leases) -> None:
        """Settle the leases of an organization that have ended; what fails stays to be settled."""
        sent = leases.ended
        if sent:
            settled = [settlement for settlement, _ in sent]
            with suppress(StoreError, OSError, LockgateError):
                now = None if self._is_timed else self._clock()
                action = settling(leases.plan.windows, settled)
                await self.inner.charge(organization, action, now)
                with self._lock:
                    leases.ended = [one for one in leases.ended if one not in sent]
