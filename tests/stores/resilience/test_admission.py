"""An admission keeps its deadline, works the breaker and remembers refusals, in one step."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import Any

import pytest

from lockgate import Plan, PlanBook
from lockgate.core.api_keys import KeyDetails
from lockgate.core.sliding_window import Reading
from lockgate.errors import StoreUnavailable
from lockgate.events import Event, Events
from lockgate.stores.answers import Admission, Freshness, Verdict
from lockgate.stores.memory.store import MemoryStore
from lockgate.stores.resilience.circuit_breaker import FAILURES
from lockgate.stores.resilience.deadlines import UNTIL, Overdue, left, within
from lockgate.stores.resilience.local_limits import LocalLimits
from lockgate.stores.resilience.store import ResilientStore
from tests.patience import SECONDS

from ..making import HandClock, draft_of, new_key, token_of

BOOK = PlanBook([Plan("free", 3, None, None, 1)], custom=(), default="free")


class Faulty(MemoryStore):
    """Keeps time, has a change counter, and fails as the test says."""

    enforces_deadline = True

    def __init__(self) -> None:
        super().__init__(HandClock())
        self.asked = 0
        self.left: list[float | None] = []
        self.failure: BaseException | None = None
        self.meanwhile: Callable[[], Any] = lambda: None
        self.started_over = 0

    async def freshness(self) -> Freshness:
        return Freshness(1, await self.now())

    async def admit(self, *args: Any, **kwargs: Any) -> Admission:
        self.asked += 1
        self.left.append(left())
        failure = self.failure
        self.meanwhile()
        if failure is not None:
            raise failure
        return await super().admit(*args, **kwargs)

    def reset_connections(self) -> None:
        self.started_over += 1


class Bench:
    def __init__(self) -> None:
        self.store = Faulty()
        self.told: list[Event] = []
        events = Events(self.told.append)
        self.limits = LocalLimits("local", 1, events)
        self.front = ResilientStore(self.store, events, self.limits, SECONDS)
        self.made = new_key()
        self.book = PlanBook([Plan("free", None, None, None, 1)])

    async def ask(self, book: PlanBook | None = None) -> Admission:
        return await self.front.admit(token_of(self.made), 1, book or self.book)

    async def fail(self, failure: BaseException, times: int = 1) -> None:
        self.store.failure = failure
        for _ in range(times):
            with pytest.raises(type(failure)):
                await self.ask()
        self.store.failure = None


async def filled() -> Bench:
    found = Bench()
    await found.store.insert(draft_of(found.made), None)
    await found.ask()  # It reads the change counter.
    return found


async def test_d34_the_deadline_ends_with_the_call_of_the_store() -> None:
    bench = await filled()
    assert (await bench.ask()).verdict is Verdict.ADMITTED
    seconds = bench.store.left[-1]
    assert seconds is not None
    assert 0 < seconds <= SECONDS
    assert UNTIL.get() is None
    await bench.fail(OSError())
    assert UNTIL.get() is None


async def test_d34_a_shorter_deadline_of_the_caller_is_kept() -> None:
    bench = await filled()
    with within(SECONDS / 2):
        await bench.ask()
    seconds = bench.store.left[-1]
    assert seconds is not None
    assert 0 < seconds <= SECONDS / 2
    asked = bench.store.asked
    with within(0), pytest.raises(Overdue):
        await bench.ask()
    assert bench.store.asked == asked


async def test_d28_failures_in_a_row_open_the_breaker_and_the_store_starts_over() -> None:
    bench = await filled()
    await bench.fail(Overdue(), FAILURES)
    assert bench.store.started_over == 1
    asked = bench.store.asked
    with pytest.raises(StoreUnavailable):
        await bench.ask()
    assert bench.store.asked == asked
    assert [event.name for event in bench.told] == ["breaker_opened"]


async def test_a_success_between_failures_counts_them_anew() -> None:
    bench = await filled()
    for _ in range(FAILURES):
        await bench.fail(OSError(), FAILURES - 1)
        assert bench.front.breaker.failures
        assert (await bench.ask()).verdict is Verdict.ADMITTED
        assert not bench.front.breaker.failures


async def test_a_success_resets_failures_that_happened_during_it() -> None:
    bench = await filled()

    def fail() -> None:
        bench.front.breaker.failed(False, OSError(), monotonic())

    bench.store.meanwhile = fail
    assert (await bench.ask()).verdict is Verdict.ADMITTED
    assert not bench.front.breaker.failures


@pytest.mark.parametrize(
    "failure",
    [asyncio.CancelledError(), StoreUnavailable(), ValueError()],
    ids=["cancelled", "an answer", "nonsense"],
)
async def test_a_failure_that_is_no_outage_does_not_count(failure: BaseException) -> None:
    bench = await filled()
    await bench.fail(failure, FAILURES)
    assert not bench.front.breaker.failures


async def test_w13_a_refusal_is_not_remembered_across_a_change() -> None:
    bench = await filled()
    for _ in range(2):
        await bench.ask(BOOK)
    bench.store.meanwhile = bench.front.refusals.forget
    assert (await bench.ask(BOOK)).verdict is Verdict.LIMITED
    asked = bench.store.asked
    assert (await bench.ask(BOOK)).verdict is Verdict.LIMITED
    assert bench.store.asked == asked + 1


async def test_an_admission_by_a_key_counts_in_the_local_limits_of_sessions() -> None:
    bench = await filled()
    windows = BOOK.default.windows
    await bench.front.organization("org_1")
    await bench.ask(BOOK)
    fallen_back: Reading | None = bench.limits.decide("org_1", windows, 1, None)
    assert fallen_back is not None
    assert fallen_back.used == (3, 2, 2), "by the store's reading; by this process alone"


async def test_an_answer_that_may_be_from_memory_tells_the_breaker_nothing() -> None:
    """A store refuses a key with an allow-list without a call while the address is not given."""
    bench = await filled()
    restricted = new_key()
    details = KeyDetails(addresses=("192.0.2.7",))
    await bench.store.insert(draft_of(restricted)._replace(details=details), None)
    await bench.fail(OSError())
    token, failures = token_of(restricted), bench.front.breaker.failures
    assert (await bench.front.admit(token, 1, bench.book)).verdict is Verdict.ELSEWHERE
    assert bench.front.breaker.failures == failures == 1
    here = await bench.front.admit(token, 1, bench.book, None, "192.0.2.7")
    assert here.verdict is Verdict.ADMITTED
    assert bench.front.breaker.failures == 0
