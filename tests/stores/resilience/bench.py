"""A store that counts its calls and fails as a test says, and processes that share it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from lockgate import Limit, Plan, PlanBook
from lockgate.core.timestamps import SECOND
from lockgate.events import Event, Events
from lockgate.stores.answers import Admission, Freshness
from lockgate.stores.resilience.deadlines import left
from lockgate.stores.resilience.local_limits import LocalLimits
from lockgate.stores.resilience.store import ResilientStore
from lockgate.stores.rows import Commit, Outcome, Read
from lockgate.sync import run
from tests.by_verbs import MemoryByVerbs

from ..making import HandClock, draft_of, new_key, token_of

UNHURRIED = 20.0
"""Seconds of a deadline that no busy machine lets pass."""
BOOK = PlanBook(
    [Plan("free", 3, 100, None, 1), Plan("wide", 1000, None, None, 1)], custom=(), default="free"
)
WINDOWS = BOOK.default.windows


class Faulty(MemoryByVerbs):
    """Has a change counter as shared stores do."""

    enforces_deadline = True

    def __init__(self, clock: HandClock | None = None) -> None:
        super().__init__(clock or HandClock())
        self.asked: Counter[str] = Counter()
        self.failures: dict[str, BaseException] = {}
        """By verb."""
        self.change_counter: int | None = 1
        self.left: list[float | None] = []
        """The seconds that each call had."""
        self.meanwhile: Callable[[], object] = lambda: None
        self.started_over = 0

    def _call(self, verb: str) -> None:
        self.asked[verb] += 1
        self.left.append(left())
        failure = self.failures.get(verb)
        self.meanwhile()
        if failure is not None:
            raise failure

    async def admit(self, *args: Any, **kwargs: Any) -> Admission:
        self._call("admit")
        return await super().admit(*args, **kwargs)

    async def hit(self, *args: Any, **kwargs: Any) -> Any:
        self._call("hit")
        return await super().hit(*args, **kwargs)

    async def read(self, *args: Any, **kwargs: Any) -> Read[Any]:
        self._call("read")
        return await super().read(*args, **kwargs)

    async def freshness(self) -> Freshness:
        self._call("freshness")
        return Freshness(self.change_counter, await self.now())

    async def commit(self, commit: Commit, now: int | None = None) -> Outcome:
        outcome = await super().commit(commit, now)
        if commit.voids and self.change_counter is not None:
            self.change_counter += 1
        return outcome

    def reset_connections(self) -> None:
        self.started_over += 1


class Bench:
    """A store with two keys of an organization, and two processes before it."""

    def __init__(self) -> None:
        self.clock, self.seconds = HandClock(), 50.0
        self.store = Faulty(self.clock)
        self.told: list[Event] = []
        self.events = Events(self.told.append)
        self.limits = LocalLimits("local", 1, self.events)
        self.here, self.there = self.process(), self.process()
        self.made = [new_key(), new_key()]
        self.ids = [run(self.store.insert(draft_of(made), None)).id for made in self.made]

    def process(self) -> ResilientStore:
        return ResilientStore(self.store, self.events, self.limits, UNHURRIED, clock=self.monotonic)

    def monotonic(self) -> float:
        return self.seconds

    async def ask(
        self,
        key: int = 0,
        cost: int = 1,
        *,
        plans: PlanBook = BOOK,
        process: ResilientStore | None = None,
        limits: tuple[Limit, ...] = (),
    ) -> Admission:
        asked = token_of(self.made[key]), cost, plans
        return await (process or self.here).admit(*asked, limits=limits)

    async def spend(self) -> None:
        """Use the minute up by both keys, and be refused often enough to know."""
        for key in (0, 1, 0, 0, 0):
            await self.ask(key)
        self.store.asked.clear()

    async def fail(self, failure: BaseException, times: int = 1) -> None:
        self.store.failures["admit"] = failure
        for _ in range(times):
            with pytest.raises(type(failure)):
                await self.ask()
        self.store.failures.clear()

    def later(self, seconds: float) -> None:
        self.seconds += seconds
        self.clock.now += int(seconds * SECOND)
