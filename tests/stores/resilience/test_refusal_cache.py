"""The refusal cache repeats refusals until they end, and never admits."""

from __future__ import annotations

import asyncio
from threading import Thread
from typing import Any

import pytest

from lockgate import Plan, PlanBook
from lockgate.core.bounded_dict import BoundedDict
from lockgate.core.ledger import Hit
from lockgate.core.plans import Organization
from lockgate.core.timestamps import DAY, MINUTE, SECOND
from lockgate.errors import StoreUnavailable
from lockgate.stores.answers import UNKNOWN, Admission, Freshness, Verdict
from lockgate.stores.resilience import deadlines, store
from lockgate.stores.resilience.deadlines import Overdue
from lockgate.stores.resilience.refusal_cache import FRESH, Asked, RefusalCache
from lockgate.stores.resilience.store import ResilientStore
from lockgate.stores.rows import PLAN, Read

from ..making import NOW, draft_of, new_key, token_of
from .bench import BOOK, UNHURRIED, WINDOWS, Bench


@pytest.fixture
async def bench() -> Bench:
    """Two keys that are refused, as this process knows."""
    made = Bench()
    await made.spend()
    return made


async def test_a_flood_costs_one_look_at_the_epoch_a_second(bench: Bench) -> None:
    bench.later(1)
    for _ in range(1000):
        bench.later(0.02)
        assert (await bench.ask()).verdict is Verdict.LIMITED
    assert bench.store.asked["admit"] == 0
    assert 20 <= bench.store.asked["freshness"] <= 41


async def test_a_cached_refusal_equals_the_stores_until_its_exact_end(bench: Bench) -> None:
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


async def test_another_good_key_of_the_organization_is_asked_about_once(bench: Bench) -> None:
    """Refused keys are remembered, admitted keys are not."""
    for _ in range(3):
        assert (await bench.ask(1)).verdict is Verdict.LIMITED
        assert bench.store.asked["admit"] == 1


async def test_a_wrong_secret_gets_no_cached_refusal(bench: Bench) -> None:
    made = bench.made[0]
    wrong = made._replace(text=made.text[:-43] + new_key().text[-43:])
    forged = token_of(made)
    for secret in (b"", wrong.text.encode(), made.text.encode()[:-1]):
        forged._secret = secret
        answer = await bench.here.admit(forged, 1, BOOK)
        assert answer == UNKNOWN
    assert bench.store.asked["admit"] == 3


async def test_a_smaller_cost_is_asked_for(bench: Bench) -> None:
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


async def test_w6_a_larger_cost_gets_a_later_retry_time(bench: Bench) -> None:
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


async def test_a_change_holds_elsewhere_within_a_second_and_here_at_once_W13_K3(
    bench: Bench,
) -> None:
    await bench.there.revoke_if_live("org_1", bench.ids[1])
    bench.later(1)
    assert (await bench.ask(1)).verdict is Verdict.REVOKED
    assert (await bench.ask()).verdict is Verdict.LIMITED
    await bench.there.put_organization(Organization("org_1", "wide"))
    bench.later(1)
    assert (await bench.ask()).verdict is Verdict.ADMITTED
    await bench.here.put_organization(Organization("org_1", "free"))
    assert (await bench.ask()).verdict is Verdict.LIMITED
    await bench.here.revoke_if_live("org_1", bench.ids[0])
    assert (await bench.ask()).verdict is Verdict.REVOKED


async def test_a_refusal_that_a_change_overtook_is_not_remembered(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.later(120)
    await bench.spend()
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


async def test_a_refusal_that_is_learned_while_a_thread_changes_a_plan_is_forgotten(
    bench: Bench,
) -> None:
    refused = await bench.store.admit(token_of(bench.made[0]), 1, BOOK)
    assert refused.verdict is Verdict.LIMITED
    assert refused.reading is not None
    found = await bench.store.read(PLAN, ("org_1",))
    asked = Asked(0, bench.seconds)
    for learned in ("key", "hit", "plan"):
        cache = Overtaken(bench.here.freshness, clock=bench.monotonic)
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


async def test_an_expired_key_is_refused_as_expired(bench: Bench) -> None:
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
    bench: Bench, step: int
) -> None:
    """It may step: the span is measured by a monotonic clock."""
    bench.later(30)
    assert (await bench.ask()).verdict is Verdict.LIMITED
    bench.clock.now += step  # The store's: whatever it says, it is asked when the span is over.
    bench.seconds += 30.000_001
    await bench.ask()
    assert bench.store.asked["admit"] == 1


@pytest.mark.parametrize("step", [2 * SECOND, MINUTE, 3 * DAY])
async def test_w11_a_step_back_of_the_store_s_clock_locks_out_for_a_window_at_most(
    bench: Bench, step: int
) -> None:
    """For a minute's window it was 120 s."""
    bench.clock.now -= step
    locked_out = 0.0
    while (await bench.ask()).verdict is Verdict.LIMITED:
        bench.later(0.5)
        locked_out += 0.5
    assert locked_out <= 60 + FRESH


async def test_while_the_epoch_cannot_be_read_the_store_is_asked(bench: Bench) -> None:
    bench.store.failures["freshness"] = StoreUnavailable()
    bench.later(0.9)
    await bench.ask()
    assert bench.store.asked["admit"] == 0
    bench.later(0.2)
    await bench.ask()
    assert bench.store.asked["admit"] == 1


async def test_without_an_epoch_a_refusal_is_remembered_for_a_second_at_most() -> None:
    bench = Bench()
    bench.store.change_counter = None
    await bench.spend()
    asked = []
    for _ in range(200):
        bench.later(0.01)
        before = bench.store.asked["admit"]
        await bench.ask()
        asked.append(bench.store.asked["admit"] - before)
    gaps = "".join(map(str, asked)).split("1")
    assert max(map(len, gaps)) <= 100
    assert sum(asked) < 20


async def test_the_first_requests_of_a_process_read_the_change_counter_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench, readings, readable = Bench(), list[Freshness](), asyncio.Event()

    async def slow() -> Freshness:
        readings.append(Freshness(1, bench.clock.now))
        await readable.wait()
        return readings[-1]

    monkeypatch.setattr(bench.store, "freshness", slow)
    first = asyncio.create_task(bench.ask())
    while not readings:
        await asyncio.sleep(0)
    verdicts = [(await bench.ask(1)).verdict for _ in range(4)]
    assert verdicts[-1] is Verdict.LIMITED  # None of them waited for the counter.
    readable.set()
    assert (await first).verdict is Verdict.ADMITTED
    assert len(readings) == 1
    assert not bench.here.refusals.refusals  # Those of before the counter was known.


async def test_a_process_that_is_ready_has_read_the_change_counter_in_the_time_of_a_start() -> None:
    bench = Bench()
    process = ResilientStore(bench.store, bench.events, deadline=0.25)
    await process.ready()
    (seconds,) = bench.store.left
    assert seconds is not None and seconds > 1
    bench.store.asked.clear()
    await bench.ask(process=process)
    assert bench.store.asked["freshness"] == 0


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
    other = bench.process()
    await other.organization("org_1")
    other._seen = Emptied(looks, other._seen)
    bench.store.failures["read"] = StoreUnavailable()
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
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The change counter is asked for first, and takes all the time that it has."""
    for module in (deadlines, store):
        monkeypatch.setattr(module, "monotonic", bench.monotonic)

    def meanwhile() -> None:
        if len(bench.store.left) == 1:
            bench.seconds += UNHURRIED * 0.6

    bench.later(5)
    bench.store.left.clear()
    bench.store.meanwhile = meanwhile
    bench.store.failures = {"freshness": Overdue(), "admit": Overdue()}
    with pytest.raises(Overdue):
        await bench.ask()
    assert bench.store.left == pytest.approx([UNHURRIED * 0.6, UNHURRIED * 0.4])


PATIENT = PlanBook([Plan("kept", 4, kept_retries=True)], custom=(), default="kept")


async def refused(bench: Bench, key: int) -> Admission:
    admission = await bench.ask(key, plans=PATIENT)
    assert admission.verdict is Verdict.LIMITED
    return admission


@pytest.fixture
async def kept() -> Bench:
    """A full minute of a plan that keeps retries."""
    bench = Bench()
    for _ in range(4):
        await bench.ask(plans=PATIENT)
        bench.later(5)
    bench.store.asked.clear()
    return bench


async def test_a_refusal_with_a_promise_is_not_repeated_P2(kept: Bench) -> None:
    bench = kept
    for calls in (1, 2):
        assert (await refused(bench, 0)).lease is not None
        assert bench.store.asked["admit"] == calls


async def test_a_refusal_without_a_promise_is_repeated_to_its_key_for_a_second_P2(
    kept: Bench,
) -> None:
    bench = kept
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


async def test_no_refusal_is_repeated_when_a_promise_of_its_key_starts_P2(kept: Bench) -> None:
    bench = kept
    for _ in range(2):
        await refused(bench, 0)
    bench.later(39.5)
    assert (await refused(bench, 0)).lease is None
    bench.store.asked.clear()
    bench.later(0.4)
    await refused(bench, 0)
    assert bench.store.asked["admit"] == 0
    bench.later(0.1)
    admission = await bench.ask(plans=PATIENT)
    assert admission.verdict is Verdict.ADMITTED
