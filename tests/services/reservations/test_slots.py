"""Slots by job id, by a machine that lets two processes share a store (L1 to L6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from lockgate import ConfigurationError, Gate, MemoryStore, Store, run
from lockgate.core.leases import TO_LIST, Lease
from lockgate.core.timestamps import SECOND
from lockgate.errors import ConcurrentLimitExceeded, InvalidRequest, JobRunning, SlotLost
from lockgate.events import Event
from lockgate.options import StoreOptions
from tests.stores.making import NOW, HandClock

from ..bench import Bench

LEASE = 60
JOBS = st.sampled_from(["a", "b", "c", "d"])
ORGANIZATIONS = st.sampled_from(["org_1", "org_2"])
GATES = st.integers(0, 1)
OWNERS = st.none() | st.sampled_from(["worker 1", "worker 2"])
SPANS = st.none() | st.sampled_from([0.000001, 1.5, 60, 90])


@dataclass
class Held:
    owner: str
    until: int


class SlotsMachine(RuleBasedStateMachine):
    """Two gates on one store, compared with a dictionary of owners and deadlines."""

    def open(self) -> Store:
        return MemoryStore()

    def __init__(self) -> None:
        super().__init__()
        self.store = self.open()
        self.clock = HandClock()
        self.told: list[Event] = []
        self.gates = [
            # Long enough that a busy machine does not change the result.
            Gate(
                self.store,
                brand="acme",
                store_options=StoreOptions(deadline=30, clock=self.clock),
                observer=self.told.append,
            )
            for _ in range(2)
        ]
        self.limits: dict[str, int | None] = {"org_1": 2, "org_2": 2}
        self.held: dict[str, dict[str, Held]] = {"org_1": {}, "org_2": {}}
        self.known = ["nobody"]  # In order: what is drawn from it is not to depend on chance.

    def teardown(self) -> None:
        run(self.store.close())

    def mine(self, organization: str) -> dict[str, Held]:
        held = self.held[organization]
        for job in [job for job, its in held.items() if its.until <= self.clock.now]:
            del held[job]
        return held

    def until(self, seconds: float | None) -> int:
        return self.clock.now + int((LEASE if seconds is None else seconds) * SECOND)

    @initialize()
    def place(self) -> None:
        for organization in self.limits:
            run(self.gates[0].organizations.place(organization, "free"))

    @rule(seconds=st.sampled_from([0, 0.000001, 1, 30, 59.999999, 60, 100]))
    def time_passes(self, seconds: float) -> None:
        self.clock.now += int(seconds * SECOND)

    @rule(organization=ORGANIZATIONS, limit=st.none() | st.integers(0, 3))
    def the_plan_changes(self, organization: str, limit: int | None) -> None:
        run(self.gates[0].organizations.place(organization, "free", concurrent=limit))
        self.limits[organization] = limit

    @rule(gate=GATES, organization=ORGANIZATIONS, job=JOBS, owner=OWNERS, seconds=SPANS)
    def acquire(
        self, gate: int, organization: str, job: str, owner: str | None, seconds: float | None
    ) -> None:
        held, limit = self.mine(organization), self.limits[organization]
        slots = self.gates[gate].slots
        flow = slots.acquire(organization, job, owner=owner, seconds=seconds)
        if job in held and owner not in (None, held[job].owner):
            with pytest.raises(JobRunning):
                run(flow)
        elif job not in held and limit is not None and len(held) >= limit:
            self.told.clear()
            with pytest.raises(ConcurrentLimitExceeded) as refused:
                run(flow)
            assert (refused.value.limit, refused.value.used) == (limit, len(held)), "L2"
            told = {"organization": organization, "job": job, "limit": limit, "used": len(held)}
            assert self.told == [Event("slot_refused", told)]
        else:
            lease = run(flow)
            if job not in held:
                held[job] = Held(lease.owner, self.until(seconds))
                assert owner is None or lease.owner == owner
                assert lease.owner not in self.known or owner, "an owner is new"
                assert limit is None or len(held) <= limit, "L1"
            assert (lease.owner, lease.deadline) == (held[job].owner, held[job].until), "L6"
            if lease.owner not in self.known:
                self.known.append(lease.owner)

    @rule(gate=GATES, organization=ORGANIZATIONS, job=JOBS, seconds=SPANS, data=st.data())
    def renew(
        self, gate: int, organization: str, job: str, seconds: float | None, data: st.DataObject
    ) -> None:
        owner = data.draw(st.sampled_from(self.known))
        held = self.mine(organization)
        self.told.clear()
        flow = self.gates[gate].slots.renew(organization, job, owner, seconds=seconds)
        if job in held and held[job].owner == owner:
            held[job].until = self.until(seconds)
            assert run(flow).deadline == held[job].until
            assert self.told == []
        else:
            with pytest.raises(SlotLost):
                run(flow)  # L4
            assert self.told == [Event("slot_lost", {"organization": organization, "job": job})]

    @rule(gate=GATES, organization=ORGANIZATIONS, job=JOBS, data=st.data())
    def release(self, gate: int, organization: str, job: str, data: st.DataObject) -> None:
        owner = data.draw(st.sampled_from(self.known))
        held = self.mine(organization)
        own = job in held and held[job].owner == owner
        assert run(self.gates[gate].slots.release(organization, job, owner)) == own, "L5"
        if own:
            del held[job]
            assert not run(self.gates[gate].slots.release(organization, job, owner)), "L5"

    @rule(gate=GATES, organization=ORGANIZATIONS, job=JOBS)
    def cancel(self, gate: int, organization: str, job: str) -> None:
        known = self.mine(organization).pop(job, None)
        assert run(self.gates[gate].slots.cancel(organization, job)) == (known is not None)

    @invariant()
    def every_process_sees_the_same(self) -> None:
        for organization in self.held:
            expected = [(job, its.owner, its.until) for job, its in self.mine(organization).items()]
            for gate in self.gates:
                leases = run(gate.slots.held(organization))
                assert [lease[:3] for lease in leases] == expected


TestSlots = SlotsMachine.TestCase
TestSlots.settings = settings(max_examples=20, stateful_step_count=30, deadline=None)


# --- by hand ------------------------------------------------------------------------------------


WRONG: Any = ["", "j" * 129, None, 7, b"j", ["j"]]


@pytest.mark.parametrize("wrong", WRONG, ids=repr)
def test_d36_ids_of_jobs_owners_and_organizations_have_1_to_128_characters(wrong: Any) -> None:
    slots = Bench().gate.slots
    flows = [
        ("job", slots.acquire("org_1", wrong)),
        ("job", slots.renew("org_1", wrong, "me")),
        ("job", slots.release("org_1", wrong, "me")),
    ]
    if isinstance(wrong, str):
        flows += [
            ("organization", slots.acquire(wrong, "a")),
            ("owner", slots.acquire("org_1", "a", owner=wrong)),
            ("owner", slots.renew("org_1", "a", wrong)),
            ("owner", slots.release("org_1", "a", wrong)),
        ]
    for field, flow in flows:
        with pytest.raises(InvalidRequest) as refused:
            run(flow)
        assert [problem.field for problem in refused.value.problems] == [field]


def test_d36_any_text_of_that_length_is_a_job_id_and_owners_are_not_to_be_guessed() -> None:
    slots, owners = Bench().gate.slots, set[str]()
    for job in ("j" * 128, "\0", "\U0001f511" * 128, "a/b?c", "' OR 1=1 --", "\ud800"):
        lease = run(slots.acquire("org_1", job))
        owners.add(lease.owner)
        assert run(slots.release("org_1", job, lease.owner))
    assert len(owners) == 6 and all(len(owner) == 32 for owner in owners)


@pytest.mark.parametrize("seconds", [0, -1, 0.0000001, 86_400.1, float("inf"), float("nan")])
def test_a_slot_is_taken_for_up_to_a_day(seconds: float) -> None:
    slots = Bench().gate.slots
    with pytest.raises(ConfigurationError, match="up to a day"):
        run(slots.acquire("org_1", "a", seconds=seconds))
    with pytest.raises(ConfigurationError, match="up to a day"):
        Bench(store_options=StoreOptions(slot_lease=seconds))
    assert run(slots.acquire("org_1", "a", seconds=86_400)).span == 86_400 * SECOND


def test_the_refusal_carries_the_configured_hint_of_at_least_a_second() -> None:
    slots = Bench(store_options=StoreOptions(slot_retry_after=17)).gate.slots
    for job in "ab":
        run(slots.acquire("org_1", job))
    with pytest.raises(ConcurrentLimitExceeded) as refused:
        run(slots.acquire("org_1", "c"))
    assert refused.value.headers()[0] == (b"retry-after", b"17")
    assert refused.value.body()["retryAfter"] == 17
    with pytest.raises(ConfigurationError, match="retry_after"):
        Bench(store_options=StoreOptions(slot_retry_after=0))


def test_null_is_no_limit() -> None:
    bench = Bench()
    run(bench.gate.organizations.place("org_1", "free", concurrent=None))
    for number in range(150):
        run(bench.gate.slots.acquire("org_1", str(number)))
    assert len(run(bench.gate.slots.held("org_1"))) == 150


def test_a_principal_brings_its_plan_and_its_organization_alone() -> None:
    bench = Bench()
    slots = bench.gate.slots
    run(bench.gate.organizations.place("org_1", "free", concurrent=1))
    mine, theirs = (bench.admit(bench.create(id).text) for id in ("org_1", "org_2"))
    lease = run(slots.acquire(mine, "a"))
    with pytest.raises(ConcurrentLimitExceeded):
        run(slots.acquire(mine, "b"))
    assert run(slots.held(mine)) == (lease,)
    assert run(slots.held(theirs)) == ()
    assert not run(slots.release(theirs, "a", lease.owner))
    assert not run(slots.cancel(theirs, "a"))
    with pytest.raises(SlotLost):
        run(slots.renew(theirs, "a", lease.owner))
    run(slots.acquire(theirs, "a"))  # its own job of that name
    assert run(slots.held(mine)) == (lease,)


def test_no_event_repeats_a_key_that_was_sent_as_a_job_id_K11() -> None:
    bench = Bench()
    run(bench.gate.organizations.place("org_1", "free", concurrent=0))
    key = bench.create().text
    bench.told.clear()
    with pytest.raises(ConcurrentLimitExceeded) as refused:
        run(bench.gate.slots.acquire("org_1", key))
    with pytest.raises(SlotLost) as lost:
        run(bench.gate.slots.renew("org_1", key, "me"))
    assert bench.names == ["slot_refused", "slot_lost"]
    assert key not in repr(bench.told) + str(refused.value.body()) + str(lost.value)


def test_a_cancelled_job_is_not_its_successor() -> None:
    """An owner that takes the slot between the read and the release keeps it."""
    bench = Bench()
    store = bench.store

    async def then_another(asked: Any, organization: str, now: int | None) -> tuple[Lease, ...]:
        leases: tuple[Lease, ...] = await asked(organization, now)
        await store.release(organization, "a", leases[0].owner, now)
        await store.acquire(organization, "a", "the next", None, 60 * SECOND, now)
        return leases

    store.on("held", then_another)
    run(bench.gate.slots.acquire("org_1", "a"))
    assert not run(bench.gate.slots.cancel("org_1", "a"))
    listed = MemoryStore.charge(store, "org_1", TO_LIST, NOW)
    assert run(listed).slots[0].owner == "the next"
