"""Batching in threads: the leading thread, and shared failures."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from sqlalchemy import delete, update

from lockgate import run
from lockgate.core.ledger import Hit, Peek
from lockgate.core.plans import Organization
from lockgate.stores.answers import Verdict
from lockgate.stores.runtime.batching import ThreadBatcher
from lockgate.stores.sql.admission import TOGETHER_AT_MOST, Act, Charge, Outcome
from lockgate.stores.sql.codec import write_id
from lockgate.stores.sql.executor import SyncExecutor
from lockgate.stores.sql.statements import Statement, Statements, places_for

from ..making import BOOK, NOW, draft_of, new_key, token_of
from .backends import Backend, Borrowed

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
