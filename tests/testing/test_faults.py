"""A store whose calls fail: each kind of fault, planned and at random, and a gate above it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lockgate import ConfigurationError, Gate, MemoryStore, run
from lockgate.core.ledger import Hit, Peek
from lockgate.core.plans import Organization
from lockgate.errors import StoreUnavailable
from lockgate.stores.answers import OutcomeUnknown
from lockgate.testing import Broken, FaultyStore, certify
from lockgate.testing.factories import NOW, minute

WINDOWS = minute(10)


def test_a_lost_reply_is_an_error_of_a_call_that_took_effect() -> None:
    store = FaultyStore(MemoryStore())
    store.fail("hit", "lost reply")
    with pytest.raises(OutcomeUnknown):
        run(store.charge("org_1", Hit(WINDOWS, 1), NOW))
    assert run(store.charge("org_1", Hit(WINDOWS, 1), NOW)).used[0] == 2
    assert store.injected == [("hit", "lost reply")]


def test_a_timeout_is_an_error_of_a_call_that_was_not_made() -> None:
    store = FaultyStore(MemoryStore())
    store.fail("hit", "timeout", times=2)
    for _ in range(2):
        with pytest.raises(TimeoutError):
            run(store.charge("org_1", Hit(WINDOWS, 1), NOW))
    assert run(store.charge("org_1", Hit(WINDOWS, 1), NOW)).used[0] == 1


def test_a_stale_read_is_the_answer_of_the_same_call_before() -> None:
    store = FaultyStore(MemoryStore())
    store.fail("read", "stale read")
    assert run(store.organization("org_1")) is None, "there is no answer before"
    assert store.injected == []
    placed = Organization("org_1", "starter")
    run(store.put_organization(placed))
    store.fail("read", "stale read")
    assert run(store.organization("org_1")) is None
    assert run(store.organization("org_1")) == placed
    assert store.injected == [("read", "stale read")]


def test_a_cancelled_call_took_effect() -> None:
    store = FaultyStore(MemoryStore())
    store.fail("hit", "cancellation")
    with pytest.raises(asyncio.CancelledError):
        run(store.charge("org_1", Hit(WINDOWS, 1), NOW))
    assert run(store.charge("org_1", Peek(WINDOWS), NOW)).used[0] == 1


def test_faults_at_random_are_the_same_for_the_same_seed() -> None:
    runs: list[list[str]] = []
    for seed in (1, 1, 2):
        store, answers = FaultyStore(MemoryStore(), rate=0.3, seed=seed), list[str]()
        for _ in range(40):
            try:
                run(store.charge("org_1", Hit(WINDOWS, 1), NOW))
                answers.append("answered")
            except (OutcomeUnknown, TimeoutError) as error:
                answers.append(type(error).__name__)
        runs.append(answers)
    assert runs[0] == runs[1] != runs[2]
    assert {*runs[0]} == {"answered", "OutcomeUnknown", "TimeoutError"}


def test_a_gate_answers_that_its_faulty_store_is_unavailable() -> None:
    store = FaultyStore(MemoryStore())
    gate = Gate(store, brand="acme")
    created = run(gate.keys.create("org_1", "a key"))
    store.fail("admit", "timeout")
    with pytest.raises(StoreUnavailable):
        run(gate.authenticate(created.text))
    assert run(gate.authenticate(created.text)).organization == "org_1"


def test_a_store_without_faults_is_certified_and_one_with_stale_reads_is_not() -> None:
    run(certify(lambda: FaultyStore(MemoryStore()), parts=["windows", "slots"]))
    with pytest.raises(Broken):
        run(certify(lambda: FaultyStore(MemoryStore(), rate=0.5, faults=("stale read",))))


@pytest.mark.parametrize(
    ("verb", "fault"),
    [
        ("hit", "stale read"),
        ("hits", "timeout"),
        ("insert", "timeout"),
        ("hit", "earthquake"),
    ],
)
def test_a_fault_that_cannot_be_is_refused(verb: str, fault: Any) -> None:
    with pytest.raises(ConfigurationError):
        FaultyStore(MemoryStore()).fail(verb, fault)
