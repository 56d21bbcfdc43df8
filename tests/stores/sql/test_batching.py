"""Callers at once share transactions, without side effects and without deadlocks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from threading import Thread
from typing import Any

import pytest
from sqlalchemy import delete, update

from lockgate import Plan, PlanBook, run
from lockgate.core.api_keys import ApiKey
from lockgate.core.leases import to_acquire
from lockgate.core.ledger import Hit, Peek
from lockgate.core.plans import Organization
from lockgate.core.sliding_window import Reading
from lockgate.stores.answers import Usage, Verdict
from lockgate.stores.runtime.batching import ThreadBatcher
from lockgate.stores.sql.admission import TOGETHER_AT_MOST, Act, Charge, Outcome
from lockgate.stores.sql.codec import write_id
from lockgate.stores.sql.executor import SyncExecutor
from lockgate.stores.sql.statements import Statement, Statements, places_for

from ..making import BOOK, NOW, at_once, draft, draft_of, new_key, token_of
from .backends import Backend, Borrowed, await_locks

HIT = Act("org_1", Hit(BOOK.default.windows, 1), NOW)


class Failed(Exception):
    pass


class Road:
    """Sends charges when it is let; says how many went together."""

    def __init__(self) -> None:
        self.groups: list[int] = []
        self.let = threading.Semaphore(0)
        self.sending = threading.Semaphore(0)
        self.fails = False

    def send(self, charges: Sequence[Charge]) -> list[Outcome]:
        self.groups.append(len(charges))
        self.sending.release()
        assert self.let.acquire(timeout=30)
        if self.fails:
            raise Failed
        return [Failed() for _ in charges]


def crowd(
    meeting: ThreadBatcher[Charge, Outcome], road: Road, number: int
) -> tuple[list[threading.Thread], list[object]]:
    """A leader with a batch in progress, and callers that came in the meantime."""
    outcomes: list[object] = []

    def charge() -> None:
        try:
            outcomes.append(meeting.charge(HIT))
        except Failed as failure:
            outcomes.append(failure)

    threads = [threading.Thread(target=charge) for _ in range(number)]
    threads[0].start()
    assert road.sending.acquire(timeout=30)
    for thread in threads[1:]:
        thread.start()
    while len(meeting._waiting) < number - 1:
        pass
    return threads, outcomes


@pytest.mark.parametrize("fails", [False, True])
def test_charges_that_arrive_during_a_transaction_share_the_next(fails: bool) -> None:
    road = Road()
    road.fails = fails
    meeting = ThreadBatcher(road.send, TOGETHER_AT_MOST)
    threads, outcomes = crowd(meeting, road, TOGETHER_AT_MOST + 4)
    for _ in range(3):
        road.let.release()
    for thread in threads:
        thread.join(30)
    assert road.groups == [1, TOGETHER_AT_MOST, 3]
    assert len(outcomes) == len(threads)
    assert all(isinstance(outcome, Failed) for outcome in outcomes)


def test_a_key_changed_in_the_database_is_read_again(store: Borrowed, backend: Backend) -> None:
    """Restored tables: a key hint alone never admits a key."""
    tables = store.tables
    made = new_key()
    run(store.insert(draft_of(made, "org_1"), None, NOW))
    run(store.put_organization(Organization("org_2", "creator")))
    assert run(store.admit(token_of(made), 1, BOOK, NOW)).verdict is Verdict.ADMITTED
    with backend.admin.begin() as connection:
        connection.execute(update(tables.keys).values(organization=write_id("org_2")))
    answer = run(store.admit(token_of(made), 1, BOOK, NOW))
    assert answer.plan is not None
    assert answer.plan.name == "creator"
    assert run(store.charge("org_1", Peek(BOOK.default.windows), NOW)).used[0] == 1
    assert run(store.charge("org_2", Peek(BOOK.default.windows), NOW)).used[0] == 1
    with backend.admin.begin() as connection:
        connection.execute(delete(tables.keys))
    assert run(store.admit(token_of(made), 1, BOOK, NOW)).verdict is Verdict.UNKNOWN


STATEMENTS = {"sqlite": 2, "postgresql": 2, "mysql": 3}
"""Besides the commit, and what begins a transaction."""


@pytest.mark.parametrize("charges", [1, 5])
async def test_a_batch_of_any_size_uses_a_fixed_number_of_statements(
    store: Borrowed, backend: Backend, monkeypatch: pytest.MonkeyPatch, charges: int
) -> None:
    made = [new_key() for _ in range(charges)]
    for number, key in enumerate(made):
        await store.insert(draft_of(key, f"org_{number}"), None, NOW)
        await store.admit(token_of(key), 1, BOOK, NOW)
    counts: list[int] = []
    written = Statements.written

    def counted(self: Statements, statement: Any, places: int) -> Statement:
        counts.append(places)
        return written(self, statement, places)

    monkeypatch.setattr(Statements, "written", counted)
    answers = await asyncio.gather(*(store.admit(token_of(key), 1, BOOK, NOW) for key in made))
    assert [answer.reading.used[0] for answer in answers if answer.reading] == [2] * charges
    assert counts == [places_for(charges)] * STATEMENTS[backend.kind]
    monkeypatch.undo()
    for number, key in enumerate(made):
        found = await store.find(key.handle)
        assert found is not None
        assert found.request_count == 2
        assert (await store.charge(f"org_{number}", Peek(BOOK.default.windows), NOW)).used[0] == 2
    await store.close()


async def test_organizations_of_which_no_key_was_used_share_a_statement(store: Borrowed) -> None:
    """As where sessions are charged, or registrations: NULL alone is text to PostgreSQL."""
    for times in (1, 2):
        hits = (
            store.charge(f"org_{number}", Hit(BOOK.default.windows, 1), NOW) for number in range(5)
        )
        assert [reading.used[0] for reading in await asyncio.gather(*hits)] == [times] * 5
    await store.close()


def test_a_kept_connection_that_breaks_is_replaced(store: Borrowed) -> None:
    run(store.charge("org_1", Hit(BOOK.default.windows, 1), NOW))
    executor = store._executors.here()
    assert isinstance(executor, SyncExecutor)
    assert executor._cursor is not None
    executor._cursor.driver.close()
    run(store.charge("org_1", Hit(BOOK.default.windows, 1), NOW))
    assert run(store.charge("org_1", Peek(BOOK.default.windows), NOW)).used[0] == 2


LIMIT = 200


def book(limit: int) -> PlanBook:
    return PlanBook([Plan("free", rpm=limit, rph=None, rpd=None, concurrent=None)])


async def test_tasks_share_transactions_and_get_the_readings_of_a_queue(store: Borrowed) -> None:
    made = new_key()
    await store.insert(draft_of(made), None, NOW)
    token = token_of(made)
    await store.admit(token, 1, book(LIMIT), NOW)  # From here on it is known whose key it is.
    answers = await asyncio.gather(*(store.admit(token, 1, book(LIMIT), NOW) for _ in range(300)))
    verdicts = [answer.verdict for answer in answers]
    assert verdicts == [Verdict.ADMITTED] * (LIMIT - 1) + [Verdict.LIMITED] * 101
    readings = [answer.reading for answer in answers]
    assert [r.remaining for r in readings if r] == [*range(LIMIT - 2, -1, -1), *[0] * 101]
    counts = [answer.key.request_count for answer in answers if answer.key]
    assert counts == [*range(2, LIMIT + 1), *[LIMIT] * 101]
    await store.close()


async def test_an_invalid_charge_fails_no_other_of_its_batch(store: Borrowed) -> None:
    windows = book(9).default.windows
    await store.charge("org_1", Hit(windows, 1), NOW)
    good, bad, also_good = await asyncio.gather(
        store.charge("org_1", Hit(windows, 1), NOW),
        store.charge("org_1", Hit(windows[:1], 1), NOW),
        store.charge("org_1", Hit(windows, 1), NOW),
        return_exceptions=True,
    )
    assert isinstance(bad, ValueError)
    assert isinstance(good, Reading)
    assert isinstance(also_good, Reading)
    assert (good.used, also_good.used) == ((2, 2, 2), (3, 3, 3))
    await store.close()


def test_every_verb_at_once_meets_no_deadlock(store: Borrowed) -> None:
    """Two organizations in opposite orders, by all verbs that write."""
    plans = book(10_000)
    made = [new_key() for _ in range(4)]
    keys = [
        run(store.insert(draft_of(key, f"org_{index % 2}"), None, NOW))
        for index, key in enumerate(made)
    ]

    def work(index: int) -> None:
        for step in range(12):
            which = (index + step) % 4
            key = made[which if index % 2 else 3 - which]
            match (index + step) % 5:
                case 0:
                    usage = {k.handle: Usage(1, NOW) for k in reversed(made)}
                    run(store.add_usage(usage))
                case 1:
                    run(
                        store.charge(
                            f"org_{which % 2}", to_acquire(f"{index}-{step}", "me", 99, 10), NOW
                        )
                    )
                case 2:
                    run(store.insert(draft(f"org_{which % 2}"), 1000, NOW))
                case _:
                    answer = run(store.admit(token_of(key), 1, plans, NOW))
                    assert answer.verdict is Verdict.ADMITTED

    at_once(8, work)
    assert all(run(store.find(key.handle)) for key in keys)


def test_w3_a_revocation_answers_the_usage_that_was_added_before_it(served: Backend) -> None:
    """Usage is added under the lock of the key alone."""
    store, answers = served.open(), list[ApiKey | None]()
    key = run(store.insert(draft("org_1"), None, NOW))
    revoking = Thread(target=lambda: answers.append(run(store.revoke_if_live("org_1", key.id))))
    with served.admin.begin() as connection:
        keys = store.tables.keys
        connection.execute(update(keys).where(keys.c.id == key.id).values(request_count=7))
        revoking.start()
        await_locks(served.admin)
    revoking.join(60)
    (revoked,) = answers
    assert revoked is not None
    assert revoked.revoked_at is not None
    assert revoked.request_count == 7
    run(store.close())
