"""A store that may hang or die, made fit to stand on the way of requests (D28, D34, G4).

Each call has a deadline, kept by leaving the call behind; a breaker keeps a store that is away from
costing that deadline for every request. Keys fail closed: what cannot be verified is not let in.
Limits of an organization that is known otherwise fall back to those of this process.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from math import inf
from time import monotonic
from typing import Any, Final

from ...core.bounded_dict import BoundedDict
from ...core.key_format import Token
from ...core.plans import UNSEEN, Organization, PlanBook
from ...core.sliding_window import Reading, Window
from ...errors import ConfigurationError, LockgateError
from ...events import Events
from ...sync import run
from ..base import Admission, Store, UnreadableState, Verdict
from .circuit_breaker import CircuitBreaker
from .deadlines import DEADLINE, STARTING, Overdue, Tasks, Threads, within
from .failures import counts_for_breaker, is_outage, may_have_counted
from .local_limits import LocalLimits
from .wrapping import Wrapper

PATIENCE: Final = 5.0
"""Seconds for a call that no request waits for just to be let in: a long list takes its time."""

_URGENT: Final = frozenset(
    {
        *("admit", "hit", "peek", "organization", "change_counter", "freshness", "now", "find"),
        *("acquire", "renew", "release", "held"),
        *("changes", "fill_token", "install", "forget", "caught_up", "catch_up"),
    }
)
"""What is called on the way of requests. These verbs have the deadline and work the breaker; the
others have patience and only obey it: that a long list takes long says nothing about the store."""
_GRACE: Final = 2.0
"""Seconds that closing waits."""
_SEEN_AT_MOST: Final = 10_000


class Guarded(Wrapper):
    """Calls a store within deadlines and behind a breaker.

    What the store answers with is passed on, a :class:`LockgateError` included: that is an answer.
    An open breaker raises :class:`StoreUnavailable`, a late call
    :class:`~lockgate.stores.resilience.deadlines.Overdue`.

    Args:
        inner: the store.
        events: is told when the breaker opens, tries and closes.
        deadline: seconds for a call on the way of a request.

    A store of several servers has a breaker for each of them, and works these itself
    (:meth:`Store.watch`).

    Raises:
        ConfigurationError: a deadline that is not positive.
    """

    def __init__(self, inner: Store, events: Events, deadline: float = DEADLINE) -> None:
        if not 0 < deadline < float("inf"):
            raise ConfigurationError(f"The deadline is {deadline} s: use more than 0.")
        super().__init__(inner)
        self.enforces_deadline = True
        self.breaker: Final = CircuitBreaker(type(inner).__name__, events)
        """It stays closed where the store has one for each of its servers."""
        self._has_breakers: Final = inner.watch(events, deadline)
        self._deadline = deadline
        self._patient_until = -inf
        self._patience = max(PATIENCE, deadline)
        self._threads = Threads()
        self._tasks = Tasks()

    async def ready(self) -> None:
        """Prepare the store, whatever its breaker says: a start is no request."""
        with within(STARTING):
            await self._reach(self.inner.ready, (), {})
        self._patient_until = monotonic() + STARTING

    async def close(self) -> None:
        """Close the store; one that hangs is left to the end of the process."""
        with within(_GRACE), suppress(Overdue):
            await self._reach(self.inner.close, (), {})

    async def pass_on(self, verb: str, *args: Any, **kwargs: Any) -> Any:
        call = getattr(self.inner, verb)
        if verb not in _URGENT:
            self.breaker.obey()
            with within(self._patience):
                return await self._reach(call, args, kwargs)
        breaker = self.breaker
        time = within(max(self._deadline, self._patient_until - monotonic()))
        if time.lost >= self._deadline:
            raise Overdue
        trying = breaker.enter()
        try:
            with time:
                value = await self._reach(call, args, kwargs)
        except BaseException as failure:
            self.judge(failure, trying, time.lost)
            raise
        breaker.succeeded(trying)
        return value

    def judge(self, failure: BaseException, trying: bool = False, lost: float = 0.0) -> None:
        """See what a failure says about the store.

        Args:
            failure: of a call on the way of a request.
            trying: whether it was the one that tried, of an open breaker.
            lost: how many of its seconds it did not have.
        """
        if self._has_breakers:
            return
        if isinstance(failure, LockgateError | UnreadableState):
            self.breaker.succeeded(trying)  # It answered.
        # What had little time left by what was asked before it says nothing about the store.
        elif counts_for_breaker(failure) and lost <= self._deadline / 2:
            if self.breaker.failed(trying, failure):
                self.inner.reset_connections()
        else:
            self.breaker.dropped(trying)

    def _reach(
        self,
        call: Callable[..., Coroutine[Any, Any, Any]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Coroutine[Any, Any, Any]:
        """The call, made in a way that it can be left behind."""
        if self.inner.enforces_deadline or self.io == "none":
            return call(*args, **kwargs)
        if self.io == "async" or (self.io == "both" and _awaits()):
            return self._tasks.do(call(*args, **kwargs))
        return self._in_thread(call, args, kwargs)

    async def _in_thread(
        self,
        call: Callable[..., Coroutine[Any, Any, Any]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        return self._threads.do(lambda: run(call(*args, **kwargs)))


class Resilient(Guarded):
    """A guarded store whose limits fall back where no key has to be verified.

    That is for sessions: who they are, their verifier knows. The plan is the one last seen.

    Args:
        inner: the store.
        events: is told what happens.
        limits: what holds instead.
        deadline: seconds for a call on the way of a request.
    """

    def __init__(
        self, inner: Store, events: Events, limits: LocalLimits, deadline: float = DEADLINE
    ) -> None:
        super().__init__(inner, events, deadline)
        self._limits = limits
        self.seen = BoundedDict[str, Organization | None](_SEEN_AT_MOST)
        """Whose limits could fall back: those for whom somebody came by a session."""

    async def admit(
        self, token: Token, cost: int, plans: PlanBook, now: int | None = None
    ) -> Admission:
        admission: Admission = await self.pass_on("admit", token, cost, plans, now)
        if self.seen:
            self.note(admission, cost, now)
        return admission

    async def hit(
        self, organization: str, windows: tuple[Window, ...], cost: int, now: int | None = None
    ) -> Reading:
        try:
            reading: Reading = await self.pass_on("hit", organization, windows, cost, now)
        except Exception as failure:
            if not is_outage(failure):
                raise
            instead = self._limits.decide(
                organization, windows, cost, now, may_count=may_have_counted(failure)
            )
            if instead is None:
                raise
            return instead
        if reading.allowed:
            self._limits.note(organization, windows, cost, now)
        if self._limits.owing:
            await self._limits.flush(organization, windows, partial(self.pass_on, "hit"), now)
        return reading

    async def organization(self, id: str) -> Organization | None:
        try:
            found: Organization | None = await self.pass_on("organization", id)
        except Exception as failure:
            seen = self.seen.get(id, UNSEEN)
            if not is_outage(failure) or seen is UNSEEN:
                raise
            return seen
        self.seen[id] = found
        return found

    def note(self, admission: Admission, cost: int, now: int | None) -> None:
        """Count an admission on the limits of this process as well."""
        verdict, key, plan, _ = admission
        if verdict is Verdict.ADMITTED and key is not None and plan is not None:
            self._limits.note(key.organization, plan.windows, cost, now)


def _awaits() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
