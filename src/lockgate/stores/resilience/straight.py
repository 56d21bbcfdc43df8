"""Admissions of a store on which all is well: its memory and its guard in one step.

In a server, where everything is cold, each coroutine that an admission goes through costs it about
a microsecond.
"""

from collections.abc import Callable
from time import monotonic
from typing import Final

from ...core.key_format import Token
from ...core.plans import PlanBook
from ..base import Admission, Verdict
from .deadlines import DEADLINE, UNTIL
from .guarded import Resilient
from .local_limits import LocalLimits
from .refusal_cache import RefusalCache


class Straight(RefusalCache):
    """Remembers what a guarded store refused, and asks the store itself while nothing is amiss.

    That is: its calls succeed, the request has asked nothing before, and the key is not known to be
    refused. Else each takes its own step.

    Args:
        guard: stands before the store, which keeps time.
        limits: what decides while the store is away.
        clock: gives seconds that never run backwards.
        deadline: seconds for whatever one request asks here, the guard's own.
    """

    def __init__(
        self,
        guard: Resilient,
        limits: LocalLimits | None = None,
        clock: Callable[[], float] = monotonic,
        deadline: float = DEADLINE,
    ) -> None:
        super().__init__(guard, limits, clock, deadline)
        self._guard: Final = guard
        self._breaker: Final = guard.breaker
        self._store: Final = guard.inner
        self._seen: Final = guard.seen

    async def admit(
        self, token: Token, cost: int, plans: PlanBook, now: int | None = None
    ) -> Admission:
        breaker = self._breaker
        if (
            breaker.failures
            or self._change_counter is None
            or UNTIL.get() is not None
            or (self._denials and self._may_be_denied(token))
        ):
            return await super().admit(token, cost, plans, now)
        forgotten, asked_at = self._forgotten, self._clock()
        until = monotonic() + self._deadline
        started = UNTIL.set(until if until > self._patient_until else self._patient_until)
        try:
            admission = await self._store.admit(token, cost, plans, now)
        except BaseException as failure:
            self._guard.judge(failure)
            raise
        finally:
            UNTIL.reset(started)
        if self._breaker.failures:  # Others failed meanwhile.
            breaker.succeeded(False)
        if self._seen:
            self._guard.note(admission, cost, now)
        if self._denials or admission.verdict is not Verdict.ADMITTED:
            self._learn(admission, cost, now, asked_at, forgotten)
        return admission

    def _may_be_denied(self, token: Token) -> bool:
        key = self._keys.get(token.handle)
        return key is not None and key.organization in self._denials
