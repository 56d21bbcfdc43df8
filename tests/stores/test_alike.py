"""The store that is asked itself while all is well does as the one that always goes by its guard:
the same verdicts, calls and events, and it remembers the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import product
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from lockgate import Plan, PlanBook, run
from lockgate.core.plans import Organization
from lockgate.errors import StoreUnavailable
from lockgate.events import Event, Events
from lockgate.stores.memory.store import MemoryStore
from lockgate.stores.resilience.deadlines import Overdue, within
from lockgate.stores.resilience.guarded import Resilient
from lockgate.stores.resilience.local_limits import LocalLimits
from lockgate.stores.resilience.refusal_cache import RefusalCache
from lockgate.stores.resilience.straight import Straight

from .making import HandClock, draft_of, new_key, token_of

BOOK = PlanBook(
    [Plan("free", 3, 100, None, 1), Plan("wide", 6, None, None, 1)], custom=(), default="free"
)
ORGANIZATIONS = ("org_0", "org_1")
SECOND = 1_000_000
LIFETIMES = (None, 20 * SECOND)
KEYS = [new_key() for _ in ORGANIZATIONS for _ in LIFETIMES]
DRAFTS = [
    draft_of(made, owner, lifetime=lifetime)
    for made, (owner, lifetime) in zip(KEYS, product(ORGANIZATIONS, LIFETIMES), strict=True)
]
AMPLE = 100.0
"""Seconds of a deadline that no busy machine lets pass."""
FAILURES = (OSError(), Overdue(), StoreUnavailable(), ValueError(), asyncio.CancelledError())


class Shared(MemoryStore):
    """Keeps time and an epoch, as a store that others change as well; it fails at times."""

    enforces_deadline = True

    def __init__(self, clock: HandClock) -> None:
        super().__init__(clock)
        self.asked: list[str] = []
        self.failures: list[BaseException] = []
        """How those fail who ask next."""
        self.number = 1

    async def _asked(self, verb: str) -> None:
        self.asked.append(verb)
        if self.failures:
            raise self.failures.pop()

    async def change_counter(self) -> int | None:
        await self._asked("change_counter")
        return self.number

    async def admit(self, *args: Any, **kwargs: Any) -> Any:
        await self._asked("admit")
        return await super().admit(*args, **kwargs)

    async def hit(self, *args: Any, **kwargs: Any) -> Any:
        await self._asked("hit")
        return await super().hit(*args, **kwargs)

    async def organization(self, id: str) -> Any:
        await self._asked("organization")
        return await super().organization(id)

    def reset_connections(self) -> None:
        self.asked.append("start over")


class World:
    """A store and what stands before it, to which things happen."""

    def __init__(self, kind: type[RefusalCache]) -> None:
        self.clock = HandClock()
        self.seconds = 50.0
        self.store = Shared(self.clock)
        self.told: list[Event] = []
        events = Events(self.told.append)
        self.limits = LocalLimits("local", 1, events, self.clock)
        self.guard = Resilient(self.store, events, self.limits, AMPLE)
        self.guard.breaker._clock = self.time
        self.front = kind(self.guard, self.limits, self.time, AMPLE)
        for draft in DRAFTS:
            run(self.store.insert(draft, None))

    def time(self) -> float:
        return self.seconds

    def admit(self, key: int, cost: int, by_hand: bool, share: float) -> object:
        now = self.clock.now if by_hand else None
        token = token_of(KEYS[key])
        if share == 1:
            return run(self.front.admit(token, cost, BOOK, now))
        with within(AMPLE * share):
            return run(self.front.admit(token, cost, BOOK, now))

    def come_by_session(self, organization: str) -> object:
        plan = BOOK.plan_of(run(self.front.organization(organization)))
        return run(self.front.hit(organization, plan.windows, 1))

    def place(self, organization: str, plan: str, here: bool) -> None:
        run(self._changed(here).put_organization(Organization(organization, plan)))

    def revoke(self, key: int, here: bool) -> object:
        found = run(self.store.find(KEYS[key].handle))
        assert found is not None
        return run(self._changed(here).revoke_if_live(found.organization, found.id))

    def fail(self, failure: BaseException, times: int) -> None:
        self.store.failures = [failure] * times

    def wait(self, seconds: float) -> None:
        self.seconds += seconds
        self.clock.now += round(seconds * SECOND)

    def _changed(self, here: bool) -> Any:
        self.store.number += 1
        return self.front if here else self.store

    def after(self, happens: Callable[[World], object]) -> tuple[object, ...]:
        """Whatever can be seen of what happens, and of what is remembered then."""
        self.store.asked.clear()
        self.told.clear()
        try:
            said = happens(self)
        except BaseException as failure:
            said = type(failure)
        front, breaker = self.front, self.guard.breaker
        limits = self.limits._windows._present
        kept = limits, front._change_counter, [*front._denials], [*front._keys], [*front._placed]
        state = breaker.failures, breaker.is_open, [*self.limits.away], [*self.guard.seen]
        return said, [*self.store.asked], [*self.told], kept, state


def _calls(verb: str, *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.tuples(st.just(verb), *arguments)


organizations, keys = st.sampled_from(ORGANIZATIONS), st.integers(0, len(KEYS) - 1)


def _admissions() -> st.SearchStrategy[Any]:
    shares = st.sampled_from([1, 1, 1, 1, 1, 0.8, 0.2, 0])
    return _calls("admit", keys, st.sampled_from([1, 1, 2, 4]), st.booleans(), shares)


happenings = st.one_of(
    *(_admissions() for _ in range(10)),
    _calls("come_by_session", organizations),
    _calls("place", organizations, st.sampled_from(["free", "wide"]), st.booleans()),
    _calls("revoke", keys, st.booleans()),
    _calls("fail", st.sampled_from(FAILURES), st.integers(1, 5)),
    _calls("wait", st.sampled_from([0.01, 0.3, 0.6, 1.1, 5.0, 30.0, 61.0])),
)


@settings(max_examples=300)
@given(st.lists(happenings, min_size=10, max_size=60))
def test_both_do_alike(happened: list[tuple[Any, ...]]) -> None:
    straight, by_the_guard = World(Straight), World(RefusalCache)
    for verb, *arguments in happened:

        def happens(world: World, verb: str = verb, arguments: list[Any] = arguments) -> object:
            return getattr(world, verb)(*arguments)

        assert straight.after(happens) == by_the_guard.after(happens)
