"""ResilientStore: deadline, circuit breaker, refusal cache and local limits around a store.

It lets requests use a store that may hang or fail (D28, D34, G4). Each call passes:

1. **Refusal cache**: a refusal that still holds is repeated without a call.
2. **Circuit breaker**: while it is open, the call fails with :class:`StoreUnavailable` at once.
3. **Deadline**: a late call is abandoned. A store that enforces the deadline itself is called
   directly, any other store in a separate task or thread.
4. **Verdict**: a failure counts for the breaker if the whole store may be away.
5. **Local limits**: they count the answers, and decide about sessions while the store is away. A
   key fails closed: without the store it cannot be verified.
"""

from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from math import inf
from time import monotonic
from typing import Any, Final, TypeVar, cast

from ...core.api_keys import Position
from ...core.bounded_dict import BoundedDict
from ...core.holds import HoldAction, HoldAnswer, Take, is_of_slots
from ...core.key_format import Token
from ...core.ledger import Action, Hit, called, is_urgent, voids
from ...core.limits import Limit
from ...core.plans import Organization, PlanBook
from ...core.quota_leases import LeaseRequest
from ...core.sliding_window import Reading
from ...errors import ConfigurationError, LockgateError
from ...events import Events
from ...metrics import StoreCall
from ...sync import loop_runs, run
from ..answers import Admission, UnreadableState, Verdict
from ..base import Store
from ..cached.base import CacheStore, PrimaryStore
from ..committed import after_commit
from ..rows import PLAN, Commit, Index, Outcome, R, Read
from ..runtime.log_hints import MinutelyLog
from .circuit_breaker import CircuitBreaker
from .deadlines import (
    DEADLINE,
    STARTING,
    UNTIL,
    Overdue,
    Patience,
    Tasks,
    Threads,
    TooManyCalls,
    left,
    within,
)
from .failures import counts_for_breaker, is_outage, kind_of
from .local_limits import LocalLimits
from .older_leases import LEASES_OUT, leases_ended, noted_leases
from .refusal_cache import RefusalCache
from .wrapping import Wrapper, passed

A = TypeVar("A")

UNHURRIED: Final = 5.0
"""Seconds for a call that no request waits for. It only obeys the breaker: a slow long list is no
sign of an outage."""

_LATE: Final = (
    "%s did not answer %s: see whether its server hangs, is overloaded, waits for a lock or cannot "
    "be reached, and whether this machine is overloaded; if it is only slow, give the gate a "
    "longer deadline, StoreOptions(deadline=...)."
)
_GRACE: Final = 2.0
"""Seconds that closing waits."""
_Call = Callable[..., Coroutine[Any, Any, Any]]
_SEEN_AT_MOST: Final = 10_000


class ResilientStore(Wrapper):
    """Calls a store within deadlines and behind a circuit breaker, and caches its refusals.

    Results and any :class:`LockgateError` of the store are passed on. An open breaker raises
    :class:`StoreUnavailable`, a late call
    :class:`~lockgate.stores.resilience.deadlines.Overdue`.

    Args:
        inner: the store. A store of several servers operates a breaker for each of them itself
            (:meth:`Store.watch`).
        events: receives ``breaker_opened``, ``breaker_tried`` and ``breaker_closed``.
        limits: decide about sessions while the store is away; None: its failure is raised.
        deadline: seconds for a request.
        counts: whether the local limits count the admissions of keys from the start, for the cache
            of a :class:`CachedStore`; otherwise they do from the first session on.
        refusals: the refusal cache of the other store of a :class:`CachedStore`, to share; None: a
            new one.
        clock: returns monotonic seconds for the refusal cache.
        patience: shared with other stores of the gate; None: a new one.

    Raises:
        ConfigurationError: a deadline that is not positive.
    """

    def __init__(
        self,
        inner: Store,
        events: Events,
        limits: LocalLimits | None = None,
        deadline: float = DEADLINE,
        *,
        counts: bool = False,
        refusals: RefusalCache | None = None,
        clock: Callable[[], float] = monotonic,
        patience: Patience | None = None,
    ) -> None:
        if not 0 < deadline < inf:
            raise ConfigurationError(f"The deadline is {deadline} s: use more than 0.")
        super().__init__(inner)
        self.enforces_deadline = True
        self.breaker: Final = CircuitBreaker(type(inner).__name__, events)
        """The breaker; it stays closed if the store has a breaker for each of its servers."""
        self._has_breakers: Final = inner.watch(events, deadline)
        self._owns_refusals: Final = refusals is None
        self.refusals: Final = refusals or RefusalCache(self.freshness, deadline, clock)
        self._metrics: Final = events.metrics
        self._limits = limits
        self._counting = limits if counts else None
        """The local limits if they count the admissions of keys; otherwise None."""
        self._charge: Final = partial(self._urgent, "charge")
        self._seen = BoundedDict[str, Read[Organization]](_SEEN_AT_MOST)
        """Plans of the organizations of sessions, for the time when the store is away."""
        self._deadline = deadline
        self.patience: Final = patience or Patience()
        self._longest: Final = max(UNHURRIED, deadline)
        self._direct = inner.enforces_deadline or inner.io == "none"
        self._threads = Threads()
        self._tasks = Tasks()
        self._late = MinutelyLog()

    @property
    def is_failing(self) -> bool:
        return self.breaker.failures > 0

    async def ready(self) -> None:
        """Prepare the store, even while its breaker is open: a start is no request."""
        with within(STARTING):
            try:
                await self._reach(self.inner.ready, (), {})
            except TimeoutError:
                self._tell_late("when this process started")
                raise
            self.patience.begin()
            if self._owns_refusals:
                await self.refusals.read_first(self.refusals.clock())

    async def close(self) -> None:
        """Close the store; a store that hangs is left to the end of the process."""
        with within(_GRACE), suppress(Overdue):
            await self._reach(self.inner.close, (), {})

    async def admit(  # noqa: PLR0912 - each further coroutine costs a microsecond
        self,
        token: Token,
        cost: int,
        plans: PlanBook,
        now: int | None = None,
        address: str | None = None,
        limits: tuple[Limit, ...] = (),
        lease: LeaseRequest | None = None,
    ) -> Admission:
        refusals, breaker, counting = self.refusals, self.breaker, self._counting
        started_at, patient_until = monotonic(), self.patience.until
        until, outer = started_at + self._deadline, UNTIL.get()
        until = until if until > patient_until else patient_until
        until = until if outer is None or until < outer else outer
        outside = UNTIL.set(until)
        try:
            if refusals.refusals and lease is None and (limits or refusals.may_refuse(token)):
                refused = await refusals.repeat(token, cost, now, address, limits)
                if refused is not None:
                    self._metrics.repeated_refusals += 1
                    return refused
                started_at = monotonic()
            if counting is not None and counting.owing:
                await counting.flush_of(token.handle, self._charge, now)
            if until <= started_at:
                raise Overdue
            trying = breaker.enter() if breaker.failures else False
            version, asked_at = refusals.version, refusals.clock()
            try:
                if self._direct and lease is None:
                    admission = await self.inner.admit(token, cost, plans, now, address, limits)
                else:
                    asked = token, cost, plans, now, address, limits, lease
                    admission = await self._reach(self.inner.admit, asked, {})
            except BaseException as failure:
                self._judge("admit", failure, trying, started_at, until)
                raise
            if patient_until > started_at:
                self.patience.answered()
            verdict, key, plan, reading, named, _ = admission
            if breaker.failures:
                if verdict is Verdict.ELSEWHERE and address is None:
                    breaker.dropped(trying)  # It may have answered from memory.
                else:
                    breaker.succeeded(trying)
            if refusals.change_counter is None and key is not None:
                await refusals.read_first(asked_at)
            if refusals.refusals or verdict is not Verdict.ADMITTED:
                refusals.learn(admission, cost, now, version, asked_at)
            if (
                counting is not None
                and key is not None
                and plan is not None
                and reading is not None
            ):
                counting.note(key.organization, plan.windows, reading, cost, now, named)
                if counting.owing:
                    await counting.flush(key.organization, plan.windows, self._charge, now)
        finally:
            UNTIL.reset(outside)
        if self._metrics.times_calls:
            self._metrics.call(StoreCall(self.system, "admit", monotonic() - started_at))
        return admission

    async def charge(self, owner: str, action: Action[A], now: int | None = None) -> A:
        asked: object = action
        if isinstance(asked, Hit):
            return cast(A, await self._hit(owner, asked, now))
        if isinstance(asked, HoldAction) and not is_of_slots(asked):
            return cast(A, await self._hold(owner, asked, now))
        call = self._urgent if is_urgent(action) else self._unhurried
        try:
            return cast(A, await call("charge", owner, action, now))
        finally:
            if voids(action):
                self.refusals.forget()

    async def _hit(self, owner: str, action: Hit, now: int | None) -> Reading:
        refusals, local = self.refusals, self._limits
        windows, cost, limits = action
        with within(self._seconds()):
            refused = await refusals.repeat_hit(owner, windows, cost, now, limits)
            if refused is not None:
                self._metrics.repeated_refusals += 1
                return refused
            asked = refusals.asked()
            try:
                reading: Reading = await self._charge(owner, action, now)
            except Exception as failure:
                if local is None:
                    raise
                return local.fall_back(failure, owner, windows, cost, now, limits=limits)
            await refusals.learn_hit(owner, windows, cost, now, reading, asked, limits)
            if local is not None:
                local.note(owner, windows, reading, cost, now, limits)
                if local.owing or local.others_owing:
                    await local.flush(owner, windows, self._charge, now)
            return reading

    async def _hold(self, owner: str, action: HoldAction, now: int | None) -> HoldAnswer:
        local = self._limits
        if local is not None and local.holds.has(action.id):
            return local.holds.decide(owner, action, now)
        try:
            answer: HoldAnswer = await self._charge(owner, action, now)
        except Exception as failure:
            if local is None or not isinstance(action, Take) or not is_outage(failure):
                raise
            return local.hold(failure, owner, action, now)
        if local is not None:
            local.answered(owner)
            local.holds.note(owner, action, answer)
        return answer

    async def read(
        self,
        index: Index[R],
        prefix: tuple[str, ...],
        limit: int = 1,
        after: Position | None = None,
        now: int | None = None,
    ) -> Read[R]:
        asked = index, prefix, limit, after, now
        read: Any
        if index is not PLAN:
            read = await (self._urgent if index.is_urgent else self._unhurried)("read", *asked)
            return cast(Read[R], read)
        (id,), refusals = prefix, self.refusals
        with within(self._seconds()):
            read = await refusals.repeat_plan(id)
            if read is not None:
                return cast(Read[R], read)
            version = refusals.version
            try:
                read = await self._urgent("read", *asked)
            except Exception as failure:
                seen: Any = self._seen.get(id)
                if not is_outage(failure) or seen is None:
                    raise
                return cast(Read[R], seen)
            refusals.learn_plan(id, read, version)
        if self._limits is not None:
            self._seen[id] = read
            self._counting = self._limits
        return cast(Read[R], read)

    async def commit(self, commit: Commit, now: int | None = None) -> Outcome:
        began = monotonic()
        with noted_leases() as noted:
            try:
                outcome: Outcome = await self._unhurried("commit", commit, now)
            finally:
                if commit.voids:
                    self.refusals.forget()
        if not commit.waits_for_leases or not commit.has_voided(outcome):
            return outcome
        ended = leases_ended(self, commit.owner, noted, monotonic() - began)
        return await after_commit(outcome, commit.owner, LEASES_OUT, ended)

    async def pass_on(self, verb: str, urgent: bool, /, *args: Any, **kwargs: Any) -> Any:
        return await (self._urgent if urgent else self._unhurried)(verb, *args, **kwargs)

    async def _unhurried(self, verb: str, *args: Any, **kwargs: Any) -> Any:
        """Make a call that no request waits for."""
        self.breaker.obey()
        with within(self._longest):
            try:
                return await self._reach(getattr(self.inner, verb), args, kwargs)
            except TimeoutError:
                self._tell_late(f"within {self._longest:g} s")
                raise

    async def _urgent(self, verb: str, *args: Any, **kwargs: Any) -> Any:
        """Make a call that a request waits for, with breaker, deadline and verdict."""
        breaker, started_at = self.breaker, monotonic()
        with within(self._seconds()):
            until = started_at + (left() or 0.0)
            if until <= started_at:
                raise Overdue
            trying = breaker.enter()
            try:
                value = await self._reach(getattr(self.inner, verb), args, kwargs)
            except BaseException as failure:
                self._judge(_told(verb, args), failure, trying, started_at, until)
                raise
        breaker.succeeded(trying)
        if self.patience.until > started_at:
            self.patience.answered()
        if self._metrics.times_calls:
            call = StoreCall(self.system, _told(verb, args), monotonic() - started_at)
            self._metrics.call(call)
        return value

    def _judge(
        self, verb: str, failure: BaseException, trying: bool, started_at: float, until: float
    ) -> None:
        """Report a failed call to the breaker.

        Args:
            verb: the verb of the store.
            failure: the exception of a call that a request waited for.
            trying: whether the call was the probe of an open breaker.
            started_at: the start of the call, in seconds of the monotonic clock.
            until: its deadline, by the same clock.
        """
        if self._metrics.times_calls:
            answered = isinstance(failure, LockgateError | UnreadableState)
            error, seconds = None if answered else kind_of(failure), monotonic() - started_at
            self._metrics.call(StoreCall(self.system, verb, seconds, error))
        is_full = until - started_at >= self._deadline / 2
        if is_full and isinstance(failure, TimeoutError):
            # One text for all that may wait longer, so that it is logged once a minute.
            is_new = until - started_at > 1.5 * self._deadline
            new, warm = "in the first seconds of this process", f"within {self._deadline:g} s"
            self._tell_late(new if is_new else warm)
        if self._has_breakers:
            return
        breaker = self.breaker
        if isinstance(failure, LockgateError | UnreadableState):
            breaker.succeeded(trying)  # It answered.
        elif isinstance(failure, TooManyCalls) and not trying:
            return  # The hanging calls report their own failures.
        # A call with little time left, because of earlier calls, is no sign of an outage.
        elif is_full and counts_for_breaker(failure):
            if breaker.failed(trying, failure, started_at):
                self.inner.reset_connections()
        else:
            breaker.dropped(trying)

    def _tell_late(self, when: str) -> None:
        self._late.error(_LATE % (type(self.inner).__name__, when))

    def _seconds(self) -> float:
        return self.patience.seconds(self._deadline)

    def _reach(self, call: _Call, args: Any, kwargs: Any) -> Coroutine[Any, Any, Any]:
        """Return the call in a form that can be abandoned."""
        if self._direct:
            return call(*args, **kwargs)
        if self.io == "async" or (self.io == "both" and loop_runs()):
            return self._tasks.do(call(*args, **kwargs))
        return self._in_thread(call, args, kwargs)

    async def _in_thread(self, call: _Call, args: Any, kwargs: Any) -> Any:
        return self._threads.do(lambda: run(call(*args, **kwargs)))


def _told(verb: str, args: Sequence[Any]) -> str:
    """Return what metrics call a call: a charge by its action."""
    return called(args[1]) if verb == "charge" else verb


class ResilientPrimary(ResilientStore, PrimaryStore):
    """A resilient store with the verbs of a primary store."""

    changes = passed(PrimaryStore.changes)


class ResilientCache(ResilientStore, CacheStore):
    """A resilient store with the verbs of a cache store."""

    inner: CacheStore

    @property
    def served_by(self) -> object:
        return self.inner.served_by

    async def forget(self, organization: str) -> None:
        try:
            await self._unhurried("forget", organization)
        finally:
            self.refusals.forget()

    fill_token = passed(CacheStore.fill_token)
    install = passed(CacheStore.install)
    caught_up = passed(CacheStore.caught_up)
    catch_up = passed(CacheStore.catch_up)
