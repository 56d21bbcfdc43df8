"""Admissions from quota leases: several processes around one store, by a clock of the test."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from lockgate import Limit, Plan, PlanBook
from lockgate.clock import wall_clock
from lockgate.core.api_keys import ApiKey, KeyDetails
from lockgate.core.key_format import Token
from lockgate.core.ledger import LeasesOut, Peek
from lockgate.core.plans import Organization
from lockgate.core.quota_leases import LONGEST
from lockgate.core.timestamps import MINUTE, SECOND
from lockgate.errors import ConfigurationError, StoreUnavailable
from lockgate.events import Events
from lockgate.stores.answers import Admission, OutcomeUnknown, StoreError, Verdict
from lockgate.stores.leasing import LeasingStore
from lockgate.stores.memory.store import MemoryStore
from lockgate.stores.resilience.store import ResilientStore
from lockgate.stores.rows import Commit, Outcome
from lockgate.sync import run
from tests.by_verbs import MemoryByVerbs

from .making import NOW, draft_of, new_key, token_of

PLANS = PlanBook((Plan("free", 6000, None, None, 5), Plan("small", 60, None, None, 5)))


class Clock:
    """A clock of the test."""

    def __init__(self) -> None:
        self.at = NOW

    def __call__(self) -> int:
        return self.at


class Counted(MemoryByVerbs):
    """Counts the calls of admissions, and loses replies."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.asked: list[str] = []
        self.loses = False
        self.before_reply: Callable[[], object] = lambda: None

    async def admit(self, *args: Any, **kwargs: Any) -> Admission:
        asks_for_lease = len(args) == 7 and args[-1] is not None
        self.asked.append("admit(lease)" if asks_for_lease else "admit")
        answer = await super().admit(*args, **kwargs)
        if asks_for_lease:
            if self.loses:
                raise OutcomeUnknown
            return answer
        before_reply, self.before_reply = self.before_reply, lambda: None
        before_reply()
        return answer

    async def settle_leases(self, *args: Any, **kwargs: Any) -> None:
        self.asked.append("settle_leases")
        await super().settle_leases(*args, **kwargs)


class Scene:
    """A store with one key, and processes around it."""

    def __init__(self, processes: int = 1, *, lifetime: int | None = None) -> None:
        self.clock = Clock()
        self.inner = Counted(self.clock)
        made = new_key()
        self.key: ApiKey = run(self.inner.insert(draft_of(made, lifetime=lifetime), None))
        self.token: Token = token_of(made)
        self.processes = [
            LeasingStore(ResilientStore(self.inner, Events(None)), 1, self.clock)
            for _ in range(processes)
        ]

    def admit(
        self, process: int = 0, token: Token | None = None, *, cost: int = 1, **kwargs: Any
    ) -> Admission:
        asked = token or self.token, cost, PLANS, self.clock.at
        return run(self.processes[process].admit(*asked, **kwargs))

    def warm(self, process: int = 0, *, requests: int = 40) -> None:
        """Make a process busy enough for a lease."""
        for _ in range(requests):
            self.clock.at += SECOND // 100
            self.admit(process)
        assert self.out(), "it holds a lease"
        self.inner.asked.clear()

    def out(self) -> int:
        return sum(one.units for one in run(self.inner.charge("org_1", LeasesOut())))

    def used(self) -> int:
        windows = PLANS.default.windows
        return run(self.inner.charge("org_1", Peek(windows), self.clock.at)).used[0]

    def requests(self) -> int:
        found = run(self.inner.find(self.key.handle))
        return 0 if found is None else found.request_count


def test_a_busy_process_seldom_asks_the_store() -> None:
    scene = Scene()
    for _ in range(1000):
        scene.clock.at += SECOND // 100
        assert scene.admit().verdict is Verdict.ADMITTED
    assert len(scene.inner.asked) < 30
    run(scene.processes[0].flush())
    assert scene.used() == 1000
    assert scene.out() == 0
    assert scene.requests() == 1000


def test_neither_a_quiet_process_nor_a_small_plan_takes_a_lease() -> None:
    scene = Scene()
    for _ in range(50):
        scene.clock.at += SECOND
        scene.admit()
    assert scene.inner.asked == ["admit"] * 50
    run(scene.inner.put_organization(Organization("org_1", "small")))
    scene.clock.at += MINUTE
    admitted = 0
    for _ in range(300):
        scene.clock.at += SECOND // 100
        admitted += scene.admit().verdict is Verdict.ADMITTED
        assert scene.out() == 0
    assert admitted == 60


def before_its_end(scene: Scene) -> None:
    (lease,) = run(scene.inner.charge("org_1", LeasesOut()))
    scene.clock.at = lease.deadline - 1
    scene.admit()


def after_a_step_back(scene: Scene) -> None:
    scene.clock.at -= MINUTE
    scene.admit()


def in_a_child(scene: Scene) -> None:
    scene.processes[0].forked()
    scene.admit()


def with_a_named_limit(scene: Scene) -> None:
    scene.admit(limits=(Limit("export", "1000/minute"),))


@pytest.mark.parametrize("act", [before_its_end, after_a_step_back, in_a_child, with_a_named_limit])
def test_the_store_is_asked_although_a_lease_is_held(act: Callable[[Scene], None]) -> None:
    scene = Scene()
    scene.warm()
    act(scene)
    (asked,) = scene.inner.asked
    assert asked.startswith("admit")


def test_readings_go_on_from_the_grant() -> None:
    scene = Scene()
    scene.warm()
    first, second = scene.admit(), scene.admit(cost=3)
    assert scene.inner.asked == []
    assert first.reading is not None
    assert second.reading is not None
    assert second.reading.used == tuple(used + 3 for used in first.reading.used)
    assert first.reading.remaining is not None
    assert second.reading.remaining == first.reading.remaining - 3
    assert 0 <= second.reading.now - scene.clock.at <= SECOND >> 10  # A margin for drift.
    assert first.key is not None
    assert second.key is not None
    assert second.key.request_count == first.key.request_count + 1
    assert second.key.last_used_at == second.reading.now


@pytest.mark.parametrize("processes", [1, 2, 5])
def test_no_span_has_more_than_the_limit_whatever_processes_do(processes: int) -> None:
    scene = Scene(processes)
    admitted: deque[int] = deque()
    calls = total = 0
    for step in range(24_000):  # Two minutes of 1.3 times the limit.
        scene.clock.at += 5_000 if step % 7 else 6_000
        process = step * 7 % processes
        if step % 5_000 == 4_999:  # It dies, and another takes its place.
            store = ResilientStore(scene.inner, Events(None))
            scene.processes[process] = LeasingStore(store, 1, scene.clock)
        if scene.admit(process).verdict is Verdict.ADMITTED:
            admitted.append(scene.clock.at)
            total += 1
        while admitted and admitted[0] <= scene.clock.at - MINUTE:
            admitted.popleft()
        assert len(admitted) <= 6000
        if step % 20 == 0:
            for leasing in scene.processes:
                run(leasing.settle_idle())
    calls = len(scene.inner.asked)
    assert total > 11_500
    assert calls < 0.3 * 24_000


def test_a_key_is_admitted_from_a_lease_only_once_the_store_has_verified_it_since_the_grant() -> (
    None
):
    scene = Scene()
    other = new_key()
    run(scene.inner.insert(draft_of(other), None))
    scene.admit(token=token_of(other))
    scene.warm()
    scene.admit(token=token_of(other))
    assert scene.inner.asked == ["admit"]
    scene.admit(token=token_of(other))
    assert scene.inner.asked == ["admit"]


def test_a_call_made_before_a_lease_was_granted_verifies_no_key_for_it() -> None:
    scene = Scene()
    other = new_key()
    run(scene.inner.insert(draft_of(other), None))
    token = token_of(other)
    for _ in range(3):  # Too few for a lease.
        scene.clock.at += 2 * SECOND
        scene.admit(token=token)
    scene.admit()
    scene.clock.at += 2 * SECOND
    scene.inner.before_reply = scene.warm  # A lease is granted before its reply comes.
    scene.admit(token=token)
    assert scene.out()
    scene.inner.asked.clear()
    scene.admit(token=token)
    assert scene.inner.asked == ["admit"]


def test_a_wrong_secret_is_refused_while_its_key_is_admitted_from_a_lease() -> None:
    scene = Scene()
    scene.warm()
    wrong = Token(scene.token.handle, b"wrong", scene.token._peppers)
    assert scene.admit(token=wrong).verdict is Verdict.UNKNOWN
    scene.inner.asked.clear()
    scene.admit()
    assert scene.inner.asked == []  # It takes nothing from the holder of the key.


def test_a_process_that_was_suspended_admits_nothing_from_its_lease() -> None:
    scene = Scene()
    scene.warm()
    out, used = scene.out(), scene.used()
    scene.clock.at += 10 * SECOND
    scene.admit()
    assert len(scene.inner.asked) == 1
    assert used + 1 < scene.used() <= used + out + 1  # All that was out counts as used.


def test_an_allow_list_and_the_end_of_a_key_hold_for_admissions_from_a_lease_K1() -> None:
    lifetime = 900_000  # The lease ends a tenth of a second later.
    scene = Scene(lifetime=lifetime)
    details = KeyDetails(addresses=("192.0.2.0/24",))
    assert run(scene.inner.update_if(scene.key, scene.key._replace(details=details)))
    for _ in range(50):
        scene.clock.at += SECOND // 100
        scene.admit(address="192.0.2.7")
    scene.inner.asked.clear()
    assert scene.admit(address="192.0.2.8").verdict is Verdict.ADMITTED
    assert scene.inner.asked == []
    assert scene.admit(address="198.51.100.7").verdict is Verdict.ELSEWHERE
    scene.clock.at = NOW + lifetime - SECOND // 100
    for _ in range(50):
        scene.inner.asked.clear()
        assert scene.admit(address="192.0.2.7").verdict is Verdict.ADMITTED
    assert scene.inner.asked == []
    scene.clock.at = NOW + lifetime
    assert scene.admit(address="192.0.2.7").verdict is Verdict.EXPIRED


def test_a_lost_reply_holds_no_lease_and_counts_its_units_until_the_deadline() -> None:
    scene = Scene()
    scene.inner.loses = True
    lost = 0
    for _ in range(40):
        scene.clock.at += SECOND // 100
        try:
            scene.admit()
        except (OutcomeUnknown, StoreUnavailable):
            lost += 1
    assert lost
    out, used = scene.out(), scene.used()
    assert out
    scene.clock.at += SECOND
    assert scene.used() == used + out


def test_a_settlement_whose_reply_was_lost_is_made_again_and_counts_once() -> None:
    scene = Scene()
    scene.warm()
    used, out = scene.used(), scene.out()
    for _ in range(5):
        scene.admit()
    scene.inner.loses = True
    (lease,) = run(scene.inner.charge("org_1", LeasesOut()))
    scene.clock.at = lease.deadline - 100_000
    with pytest.raises(OutcomeUnknown):
        scene.admit()
    scene.inner.loses = False
    run(scene.processes[0].flush())
    assert used + 5 <= scene.used() < used + 5 + out


def test_a_process_that_makes_a_change_first_settles_its_own_lease_K4_W13() -> None:
    scene = Scene()
    scene.warm()
    run(scene.processes[0].put_organization(Organization("org_1", "small")))
    assert scene.out() == 0
    plan = scene.admit().plan
    assert plan is not None and plan.name == "small"
    run(scene.processes[0].put_organization(Organization("org_1", "free")))
    scene.warm()
    run(scene.processes[0].revoke_if_live("org_1", scene.key.id))
    assert scene.out() == 0
    assert scene.admit().verdict is Verdict.REVOKED


async def test_a_process_settles_its_own_lease_while_its_change_is_under_way() -> None:
    began = asyncio.Event()

    class Store(MemoryByVerbs):
        async def commit(self, commit: Commit, now: int | None = None) -> Outcome:
            if commit.waits_for_leases:
                began.set()
            return await super().commit(commit, now)

        async def settle_leases(self, *args: Any, **kwargs: Any) -> None:
            await began.wait()
            await super().settle_leases(*args, **kwargs)

    store, made = Store(), new_key()
    key = await store.insert(draft_of(made), None)
    holder = LeasingStore(ResilientStore(store, Events(None), deadline=20), LONGEST / SECOND)
    while not await store.charge("org_1", LeasesOut()):
        await holder.admit(token_of(made), 1, PLANS)
    async with asyncio.timeout(20):
        await holder.revoke_if_live("org_1", key.id)
    assert await store.charge("org_1", LeasesOut()) == ()
    await holder.close()


def test_idle_leases_are_settled_before_their_deadline() -> None:
    scene = Scene()
    scene.warm()
    used = scene.used()
    (lease,) = run(scene.inner.charge("org_1", LeasesOut()))
    scene.clock.at = lease.deadline - 50_000
    run(scene.processes[0].settle_idle())
    assert scene.out() == 0
    assert scene.used() <= used + 40


async def test_idle_leases_are_settled_once_however_slow_the_store_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = await asyncio.to_thread(Scene)
    await asyncio.to_thread(scene.warm)
    process = scene.processes[0]
    settle, answered = scene.inner.settle_leases, asyncio.Event()

    async def slow(*args: Any, **kwargs: Any) -> None:
        await settle(*args, **kwargs)
        await answered.wait()

    monkeypatch.setattr(scene.inner, "settle_leases", slow)
    (lease,) = await scene.inner.charge("org_1", LeasesOut())
    scene.clock.at = lease.deadline - 50_000
    calls = [asyncio.create_task(process.settle_idle()) for _ in range(5)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    answered.set()
    await asyncio.gather(*calls)
    assert scene.inner.asked.count("settle_leases") == 1
    assert await scene.inner.charge("org_1", LeasesOut()) == ()


def test_a_settlement_past_its_deadline_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    scene.warm()

    async def away(*args: Any, **kwargs: Any) -> None:
        scene.inner.asked.append("settle_leases")
        raise StoreError

    monkeypatch.setattr(scene.inner, "settle_leases", away)
    (lease,) = run(scene.inner.charge("org_1", LeasesOut()))
    scene.clock.at = lease.deadline - 50_000
    run(scene.processes[0].settle_idle())
    scene.clock.at += SECOND
    run(scene.processes[0].settle_idle())
    assert scene.inner.asked == ["settle_leases"]


@pytest.mark.parametrize("step", [0, LONGEST], ids=["", "although the clock steps forward"])
def test_k4_a_revocation_by_another_process_waits_for_the_leases_that_are_out(step: int) -> None:
    made, steps = new_key(), [0]
    store = MemoryStore(lambda: wall_clock() + steps[0])
    key = run(store.insert(draft_of(made), None))
    resilient = ResilientStore(store, Events(None))
    holder = LeasingStore(ResilientStore(store, Events(None)), 0.3)
    token = token_of(made)
    ended = threading.Event()
    late: list[float] = []

    def use() -> None:
        while not ended.is_set():
            started = time.monotonic()
            admission = run(holder.admit(token, 1, PLANS))
            if admission.verdict is Verdict.ADMITTED:
                late.append(started)
            time.sleep(0.0005)

    thread = threading.Thread(target=use)
    thread.start()
    try:
        until = time.monotonic() + 30
        while not run(store.charge("org_1", LeasesOut())):
            assert time.monotonic() < until, "no lease was taken"
            time.sleep(0.001)
        steps[0] = step
        run(resilient.revoke_if_live("org_1", key.id))
        answered = time.monotonic()
        time.sleep(0.01)
    finally:
        ended.set()
        thread.join(30)
        run(holder.close())
    assert [one for one in late if one > answered] == []


def test_a_revocation_may_miss_a_lease_after_a_long_step_of_the_stores_clock() -> None:
    """As ``docs/threat-model.md`` says, for at most the rest of the lease."""
    scene = Scene()
    scene.warm()
    scene.inner._clock = lambda: scene.clock.at + LONGEST + SECOND
    other = ResilientStore(scene.inner, Events(None))
    assert run(other.revoke_if_live("org_1", scene.key.id))
    assert scene.admit().verdict is Verdict.ADMITTED
    assert scene.inner.asked == []
    scene.clock.at += LONGEST
    assert scene.admit().verdict is Verdict.REVOKED


@pytest.mark.parametrize("seconds", [0, -1, 0.05, 2.5, float("inf"), float("nan"), "1", True])
def test_a_span_out_of_range_is_a_mistake(seconds: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"use 0\.1 to 2"):
        LeasingStore(MemoryStore(), seconds)
