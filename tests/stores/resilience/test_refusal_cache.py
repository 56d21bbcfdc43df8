"""The refusal cache repeats refusals until they end, and never admits."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from threading import Thread
from time import monotonic
from typing import Any

import pytest

from lockgate import Plan, PlanBook
from lockgate.core.bounded_dict import BoundedDict
from lockgate.core.ledger import Hit
from lockgate.core.plans import Organization
from lockgate.core.timestamps import DAY, MINUTE, SECOND
from lockgate.errors import StoreUnavailable
from lockgate.events import Events
from lockgate.stores.answers import UNKNOWN, Admission, Freshness, Verdict
from lockgate.stores.base import Store
from lockgate.stores.memory.store import MemoryStore
from lockgate.stores.resilience import deadlines, store
from lockgate.stores.resilience.deadlines import Overdue, left
from lockgate.stores.resilience.local_limits import LocalLimits
from lockgate.stores.resilience.refusal_cache import FRESH, Asked, RefusalCache
from lockgate.stores.resilience.store import ResilientStore
from lockgate.stores.resilience.wrapping import Wrapper
from lockgate.stores.rows import PLAN, Commit, Outcome, Read
from tests.by_verbs import MemoryByVerbs

from ..making import NOW, HandClock, draft_of, new_key, token_of
from ..redis.backends import opened, stop_servers
from ..sql.backends import BACKENDS

BOOK = PlanBook(
    [Plan("free", 3, 100, None, 1), Plan("wide", 1000, None, None, 1)], custom=(), default="free"
)
WINDOWS = BOOK.default.windows
UNHURRIED = 20.0
"""Seconds of a deadline that no busy machine lets pass."""


@pytest.fixture(scope="module", autouse=True)
def servers() -> Iterator[None]:
    yield
    stop_servers()


class Seconds:
    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


class Counting(MemoryByVerbs):
    """Counts calls, and has a change counter as shared stores do."""

    def __init__(self, clock: HandClock) -> None:
        super().__init__(clock)
        self.asked: Counter[str] = Counter()
        self.number: int | None = 1
        self.away = False

    async def admit(self, *args: Any, **kwargs: Any) -> Admission:
        self.asked["admit"] += 1
        return await super().admit(*args, **kwargs)

    async def hit(self, *args: Any, **kwargs: Any) -> Any:
        self.asked["hit"] += 1
        return await super().hit(*args, **kwargs)

    async def read(self, *args: Any, **kwargs: Any) -> Read[Any]:
        self.asked["read"] += 1
        if self.away:
            raise StoreUnavailable
        return await super().read(*args, **kwargs)

    async def commit(self, commit: Commit, now: int | None = None) -> Outcome:
        outcome = await super().commit(commit, now)
        if commit.voids and self.number is not None:
            self.number += 1
        return outcome

    async def freshness(self) -> Freshness:
        self.asked["freshness"] += 1
        if self.away:
            raise StoreUnavailable
        return Freshness(self.number, await self.now())


class Bench:
    """A store, two processes that share it, and an organization with two keys."""

    def __init__(self, *, in_a_task: bool = False) -> None:
        self.clock = HandClock()
        self.seconds = Seconds()
        self.store = Counting(self.clock)
        if in_a_task:
            self.store.io = "async"
        self.here, self.there = (resilient(self.store, self.seconds) for _ in range(2))
        self.made = [new_key(), new_key()]
        self.ids: list[str] = []

    async def fill(self, process: ResilientStore | None = None) -> None:
        for made in self.made:
            key = await self.store.insert(draft_of(made), None)
            self.ids.append(key.id)
        await self.spend(process or self.here)

    async def spend(self, process: ResilientStore) -> None:
        """Use the minute up by both keys, and be refused often enough to know."""
        for key in (0, 1, 0, 0, 0):
            await self.ask(key, process=process)
        self.store.asked.clear()

    async def ask(
        self, key: int = 0, cost: int = 1, process: ResilientStore | None = None
    ) -> Admission:
        return await (process or self.here).admit(token_of(self.made[key]), cost, BOOK)

    def later(self, seconds: float) -> None:
        self.seconds.now += seconds
        self.clock.now += int(seconds * SECOND)


def resilient(store: Store, clock: Callable[[], float] = monotonic) -> ResilientStore:
    events = Events(None)
    limits = LocalLimits("local", 1, events)
    return ResilientStore(store, events, limits, UNHURRIED, clock=clock)


@pytest.fixture(params=[False, True], ids=["called directly", "called in a task"])
def in_a_task(request: pytest.FixtureRequest) -> bool:
    taken: bool = request.param
    return taken


async def filled(in_a_task: bool) -> Bench:
    found = Bench(in_a_task=in_a_task)
    await found.fill()
    return found


async def test_a_flood_costs_one_look_at_the_epoch_a_second(in_a_task: bool) -> None:
    bench = await filled(in_a_task)
    bench.later(1)
    for _ in range(1000):
        bench.later(0.02)
        assert (await bench.ask()).verdict is Verdict.LIMITED
    assert bench.store.asked["admit"] == 0
    assert 20 <= bench.store.asked["freshness"] <= 41


async def test_a_cached_refusal_equals_the_stores_until_its_exact_end(in_a_task: bool) -> None:
    bench = await filled(in_a_task)
    for step in (0.25, 10, 30, 19.749_999):
        bench.later(step)
        mine = await bench.ask()
        theirs = await bench.store.admit(token_of(bench.made[0]), 1, BOOK)
        assert mine == theirs
        assert mine.verdict is Verdict.LIMITED
    assert bench.store.asked["admit"] == 4
    bench.later(0.000_002)
    assert (await bench.ask()).verdict is Verdict.ADMITTED
    assert bench.store.asked["admit"] == 5
    bench.store.asked.clear()
    await bench.ask()
    assert bench.store.asked["admit"] == 1, "an admission ends the memory of the refusal"


async def test_another_good_key_of_the_organization_is_asked_about_once(in_a_task: bool) -> None:
    """Refused keys are remembered, admitted keys are not."""
    bench = await filled(in_a_task)
    for _ in range(3):
        assert (await bench.ask(1)).verdict is Verdict.LIMITED
        assert bench.store.asked["admit"] == 1


async def test_a_wrong_secret_gets_no_cached_refusal(in_a_task: bool) -> None:
    bench = await filled(in_a_task)
    made = bench.made[0]
    wrong = made._replace(text=made.text[:-43] + new_key().text[-43:])
    forged = token_of(made)
    for secret in (b"", wrong.text.encode(), made.text.encode()[:-1]):
        forged._secret = secret
        answer = await bench.here.admit(forged, 1, BOOK)
        assert answer == UNKNOWN
    assert bench.store.asked["admit"] == 3


async def test_a_smaller_cost_is_asked_for(in_a_task: bool) -> None:
    bench = await filled(in_a_task)
    bench.later(120)
    for _ in range(2):
        assert (await bench.ask(cost=4)).verdict is Verdict.LIMITED
    bench.store.asked.clear()
    assert (await bench.ask(cost=4)).verdict is Verdict.LIMITED
    assert bench.store.asked["admit"] == 0
    assert (await bench.ask(cost=2)).verdict is Verdict.ADMITTED
    assert (await bench.ask(cost=2)).verdict is Verdict.LIMITED
    assert (await bench.ask(cost=1)).verdict is Verdict.ADMITTED
    assert bench.store.asked["admit"] == 3


async def test_w6_a_larger_cost_gets_a_later_retry_time(in_a_task: bool) -> None:
    bench = await filled(in_a_task)
    bench.later(120)
    for _ in range(3):
        await bench.ask()
        bench.later(10)
    for _ in range(2):
        assert (await bench.ask()).verdict is Verdict.LIMITED
    theirs = await bench.store.charge("org_1", Hit(WINDOWS, 3))
    assert (await bench.ask(cost=3)).reading == theirs
    bench.later(theirs.wait / SECOND - 1)
    assert (await bench.ask(cost=3)).verdict is Verdict.LIMITED
    bench.later(1)
    assert (await bench.ask(cost=3)).verdict is Verdict.ADMITTED


async def test_w13_a_change_on_another_process_is_seen_within_a_second(in_a_task: bool) -> None:
    bench = await filled(in_a_task)
    await bench.there.put_organization(Organization("org_1", "wide"))
    bench.later(1)
    assert (await bench.ask()).verdict is Verdict.ADMITTED


async def test_k3_a_key_revoked_elsewhere_is_refused_as_revoked_within_a_second(
    in_a_task: bool,
) -> None:
    bench = await filled(in_a_task)
    await bench.there.revoke_if_live("org_1", bench.ids[1])
    bench.later(1)
    assert (await bench.ask(1)).verdict is Verdict.REVOKED
    assert (await bench.ask(0)).verdict is Verdict.LIMITED


async def test_a_change_on_this_process_is_seen_at_once(in_a_task: bool) -> None:
    bench = await filled(in_a_task)
    await bench.here.revoke_if_live("org_1", bench.ids[1])
    assert (await bench.ask(1)).verdict is Verdict.REVOKED
    await bench.here.put_organization(Organization("org_1", "wide"))
    assert (await bench.ask(0)).verdict is Verdict.ADMITTED


async def test_a_refusal_that_a_change_overtook_is_not_remembered(
    in_a_task: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = await filled(in_a_task)
    bench.later(120)
    await bench.spend(bench.here)
    bench.here.refusals.forget()
    admit, under_way, go_on = bench.store.admit, asyncio.Event(), asyncio.Event()

    async def slow(*args: Any, **kwargs: Any) -> Admission:
        answer = await admit(*args, **kwargs)
        under_way.set()
        await go_on.wait()
        return answer

    monkeypatch.setattr(bench.store, "admit", slow)
    asking = asyncio.create_task(bench.ask())
    await under_way.wait()
    monkeypatch.undo()
    await bench.here.put_organization(Organization("org_1", "wide"))
    go_on.set()
    assert (await asking).verdict is Verdict.LIMITED
    assert (await bench.ask()).verdict is Verdict.ADMITTED


class Overtaken(RefusalCache):
    """Another thread forgets everything as soon as this one has read the version."""

    overtaking: Thread | None = None

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        if name == "version" and self.overtaking is None:
            self.overtaking = Thread(target=self.forget)
            self.overtaking.start()
            self.overtaking.join(0.1)  # It waits for the lock, if this thread holds it.
        return value


async def test_a_refusal_that_is_learned_while_a_thread_changes_a_plan_is_forgotten() -> None:
    bench = await filled(in_a_task=False)
    refused = await bench.store.admit(token_of(bench.made[0]), 1, BOOK)
    assert refused.verdict is Verdict.LIMITED
    assert refused.reading is not None
    found = await bench.store.read(PLAN, ("org_1",))
    asked = Asked(0, bench.seconds())
    for learned in ("key", "hit", "plan"):
        cache = Overtaken(bench.here.freshness, clock=bench.seconds)
        cache.change_counter = 1
        if learned == "key":
            cache.learn(refused, 1, None, 0, asked.at)
        elif learned == "hit":
            await cache.learn_hit("org_1", WINDOWS, 1, None, refused.reading, asked)
        else:
            cache.learn_plan("org_1", found, 0)
        assert cache.overtaking is not None
        cache.overtaking.join()
        assert not cache.refusals | cache.keys | cache.plans, learned


async def test_an_expired_key_is_refused_as_expired(in_a_task: bool) -> None:
    bench = await filled(in_a_task)
    made = new_key()
    bench.made.append(made)
    await bench.store.insert(draft_of(made, lifetime=30 * SECOND), None)
    await bench.ask(2)
    bench.later(29)
    assert (await bench.ask(2)).verdict is Verdict.LIMITED
    bench.later(1)
    assert (await bench.ask(2)).verdict is Verdict.EXPIRED


@pytest.mark.parametrize("step", [-DAY, DAY])
async def test_w12_the_clock_of_this_machine_prolongs_no_cached_refusal(
    in_a_task: bool, step: int
) -> None:
    """It may step: the span is measured by a monotonic clock."""
    bench = await filled(in_a_task)
    bench.later(30)
    assert (await bench.ask()).verdict is Verdict.LIMITED
    bench.clock.now += step  # The store's: whatever it says, it is asked when the span is over.
    bench.seconds.now += 30.000_001
    await bench.ask()
    assert bench.store.asked["admit"] == 1


def in_sql(kind: str) -> Store:
    return BACKENDS[kind].open()


CLOCKED: dict[str, Callable[[str], Store]] = {
    "single": opened,
    "sqlite": in_sql,
    "postgresql": in_sql,
}


class ByHand(Wrapper):
    """A real store with a clock that the test sets."""

    def __init__(self, inner: Store, clock: HandClock) -> None:
        super().__init__(inner)
        self.clock = clock

    async def admit(self, token: Any, cost: int, plans: Any, *_: Any) -> Admission:
        return await self.inner.admit(token, cost, plans, self.clock())

    async def freshness(self) -> Freshness:
        return (await self.inner.freshness())._replace(now=self.clock())


@pytest.mark.thread_unsafe(reason="the threads would share a database")
@pytest.mark.parametrize("kind", list(CLOCKED))
@pytest.mark.parametrize("step", [2 * SECOND, MINUTE, 3 * DAY])
async def test_w11_a_step_back_of_the_store_s_clock_locks_out_for_a_window_at_most(
    kind: str, step: int
) -> None:
    """For a minute's window it was 120 s."""
    clock, seconds = HandClock(), Seconds()
    store = ByHand(CLOCKED[kind](kind), clock)
    here = resilient(store, seconds)
    made = new_key()
    await store.insert(draft_of(made), None)
    verdicts = [(await here.admit(token_of(made), 1, BOOK)).verdict for _ in range(5)]
    assert verdicts[-1] is Verdict.LIMITED
    clock.now -= step
    locked_out = 0.0
    while (await here.admit(token_of(made), 1, BOOK)).verdict is Verdict.LIMITED:
        seconds.now += 0.5
        clock.now += SECOND // 2
        locked_out += 0.5
    assert locked_out <= 60 + FRESH
    await store.close()


@pytest.mark.parametrize("kind", list(CLOCKED))
async def test_freshness_brings_the_change_counter_and_the_store_s_clock(kind: str) -> None:
    store = CLOCKED[kind](kind)
    before, counter = await store.now(), (await store.freshness()).change_counter
    freshness = await store.freshness()
    assert freshness.change_counter == counter
    assert before <= freshness.now <= await store.now()
    await store.close()


async def test_while_the_epoch_cannot_be_read_the_store_is_asked(in_a_task: bool) -> None:
    bench = await filled(in_a_task)
    bench.store.away = True
    bench.later(0.9)
    await bench.ask()
    assert bench.store.asked["admit"] == 0
    bench.later(0.2)
    await bench.ask()
    assert bench.store.asked["admit"] == 1


async def test_without_an_epoch_a_refusal_is_remembered_for_a_second_at_most() -> None:
    bench = Bench()
    bench.store.number = None
    await bench.fill()
    asked = []
    for _ in range(200):
        bench.later(0.01)
        before = bench.store.asked["admit"]
        await bench.ask()
        asked.append(bench.store.asked["admit"] - before)
    gaps = "".join(map(str, asked)).split("1")
    assert max(map(len, gaps)) <= 100
    assert sum(asked) < 20


class SlowCounter(MemoryStore):
    """Reads its change counter when the test lets it, and notes the time that each reading has."""

    def __init__(self) -> None:
        super().__init__(HandClock())
        self.readable = asyncio.Event()
        self.seconds_left: list[float | None] = []

    async def freshness(self) -> Freshness:
        self.seconds_left.append(left())
        await self.readable.wait()
        return Freshness(1, await self.now())


async def test_the_first_requests_of_a_process_read_the_change_counter_once() -> None:
    bench, slow = Bench(), SlowCounter()
    process = resilient(slow)
    for made in bench.made:
        await slow.insert(draft_of(made), None)
    first = asyncio.create_task(bench.ask(process=process))
    while not slow.seconds_left:
        await asyncio.sleep(0)
    verdicts = [(await bench.ask(1, process=process)).verdict for _ in range(4)]
    assert verdicts[-1] is Verdict.LIMITED  # None of them waited for the counter.
    slow.readable.set()
    assert (await first).verdict is Verdict.ADMITTED
    assert len(slow.seconds_left) == 1
    assert not process.refusals.refusals  # Those of before the counter was known.


async def test_a_process_that_is_ready_knows_the_change_counter() -> None:
    bench = Bench()
    await bench.store.insert(draft_of(bench.made[0]), None)
    await bench.here.ready()
    bench.store.asked.clear()
    await bench.ask()
    assert bench.store.asked == {"admit": 1}


async def test_reading_the_change_counter_has_the_time_of_a_start() -> None:
    slow = SlowCounter()
    slow.readable.set()
    process = ResilientStore(slow, Events(None), deadline=0.25)
    await process.ready()
    (seconds,) = slow.seconds_left
    assert seconds is not None
    assert seconds > 1


async def test_a_session_is_refused_without_a_call_and_by_its_own_windows_only() -> None:
    bench = Bench()
    for _ in range(5):
        await bench.here.organization("org_1")
        await bench.here.charge("org_1", Hit(WINDOWS, 1))
    bench.store.asked.clear()
    for _ in range(9):
        bench.later(0.01)
        assert await bench.here.organization("org_1") is None
        reading = await bench.here.charge("org_1", Hit(WINDOWS, 1))
        assert not reading.allowed
    assert bench.store.asked["hit"] == bench.store.asked["read"] == 0
    assert (await bench.here.charge("org_1", Hit(BOOK.plan("wide", (), NOW).windows, 1))).allowed


class Emptied(BoundedDict[str, Read[Organization]]):
    """A mapping that another thread empties after a number of lookups."""

    def __init__(self, looks: int, kept: dict[str, Read[Organization]]) -> None:
        super().__init__(100)
        self.update(kept)
        self.looks = looks

    def peek(self) -> None:
        self.looks -= 1
        if not self.looks:
            self.clear()

    def __contains__(self, id: object) -> bool:
        found = super().__contains__(id)
        self.peek()
        return found

    def get(self, id: str, default: Any = None) -> Any:
        found = super().get(id, default)
        self.peek()
        return found


@pytest.mark.parametrize("looks", [1, 2, 3])
async def test_an_entry_dropped_by_another_thread_is_read_from_the_store(
    looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench()
    for _ in range(5):
        await bench.here.organization("org_1")
        await bench.here.charge("org_1", Hit(WINDOWS, 1))
    refusals = bench.here.refusals
    monkeypatch.setattr(refusals, "plans", Emptied(looks, refusals.plans))
    assert await bench.here.organization("org_1") is None
    other = resilient(bench.store)
    await other.organization("org_1")
    other._seen = Emptied(looks, other._seen)
    bench.store.away = True
    assert await other.organization("org_1") is None


async def test_a_cached_refusal_follows_the_clock_of_the_caller() -> None:
    bench = Bench()
    for _ in range(5):
        await bench.here.charge("org_1", Hit(WINDOWS, 1), NOW)
    bench.store.asked.clear()
    for now, asked in (
        (NOW, 0),
        (NOW + MINUTE - 1, 0),
        (NOW - 1, 1),
        (NOW + MINUTE, 2),
    ):
        await bench.here.charge("org_1", Hit(WINDOWS, 1), now)
        assert bench.store.asked["hit"] == asked


async def test_the_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lockgate.stores.resilience.refusal_cache.AT_MOST", 20)
    bench = Bench()
    for number in range(100):
        for _ in range(5):
            await bench.here.charge(f"org_{number}", Hit(WINDOWS, 1))
    assert len(bench.here.refusals.refusals) <= 20


async def test_g4_one_deadline_holds_for_all_that_a_request_asks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The change counter is asked for first, and takes all the time that it has."""
    bench = Bench()
    await bench.fill()
    for module in (deadlines, store):
        monkeypatch.setattr(module, "monotonic", bench.seconds)
    given: dict[str, float | None] = {}

    async def freshness() -> Freshness:
        given["freshness"] = deadlines.left()
        bench.seconds.now += UNHURRIED * 0.6
        raise Overdue

    async def admit(*args: Any) -> Admission:
        given["admit"] = deadlines.left()
        raise Overdue

    monkeypatch.setattr(bench.store, "freshness", freshness)
    monkeypatch.setattr(bench.store, "admit", admit)
    bench.later(5)
    with pytest.raises(Overdue):
        await bench.ask()
    assert given == {
        "freshness": pytest.approx(UNHURRIED * 0.6),
        "admit": pytest.approx(UNHURRIED * 0.4),
    }


PATIENT = PlanBook([Plan("kept", 4, kept_retries=True)], custom=(), default="kept")


async def refused(bench: Bench, key: int) -> Admission:
    admission = await bench.here.admit(token_of(bench.made[key]), 1, PATIENT)
    assert admission.verdict is Verdict.LIMITED
    return admission


async def kept(in_a_task: bool) -> Bench:
    """Return a bench with a full minute of a plan that keeps retries."""
    bench = Bench(in_a_task=in_a_task)
    for made in bench.made:
        await bench.store.insert(draft_of(made), None)
    for _ in range(4):
        await bench.here.admit(token_of(bench.made[0]), 1, PATIENT)
        bench.later(5)
    bench.store.asked.clear()
    return bench


async def test_a_refusal_with_a_promise_is_not_repeated_P2(in_a_task: bool) -> None:
    bench = await kept(in_a_task)
    for calls in (1, 2):
        assert (await refused(bench, 0)).lease is not None
        assert bench.store.asked["admit"] == calls


async def test_a_refusal_without_a_promise_is_repeated_to_its_key_for_a_second_P2(
    in_a_task: bool,
) -> None:
    bench = await kept(in_a_task)
    for _ in range(2):
        await refused(bench, 0)
    assert (await refused(bench, 0)).lease is None
    bench.store.asked.clear()
    for _ in range(9):
        bench.later(0.1)
        await refused(bench, 0)
    assert bench.store.asked["admit"] == 0
    assert (await refused(bench, 1)).lease is not None
    assert bench.store.asked["admit"] == 1, "another key gets a second of its own"
    bench.later(0.11)
    await refused(bench, 0)
    assert bench.store.asked["admit"] == 2


async def test_no_refusal_is_repeated_when_a_promise_of_its_key_starts_P2(in_a_task: bool) -> None:
    bench = await kept(in_a_task)
    for _ in range(2):
        await refused(bench, 0)
    bench.later(39.5)
    assert (await refused(bench, 0)).lease is None
    bench.store.asked.clear()
    bench.later(0.4)
    await refused(bench, 0)
    assert bench.store.asked["admit"] == 0
    bench.later(0.1)
    admission = await bench.here.admit(token_of(bench.made[0]), 1, PATIENT)
    assert admission.verdict is Verdict.ADMITTED
