"""Group commit in threads: who leads, who fails with whom, and who leaves."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest
from sqlalchemy import delete, update

from lockgate import run
from lockgate.rules.plans import Organization
from lockgate.stores.contract import Verdict
from lockgate.stores.sql import SqlStore
from lockgate.stores.sql.charges import TOGETHER_AT_MOST, Charge, Hit, Outcome
from lockgate.stores.sql.encoding import write_id
from lockgate.stores.sql.sharing import Meeting, _Ticket

from ..making import BOOK, NOW, draft_of, new_key, token_of
from .backends import Backend

HIT = Hit("org_1", BOOK.default.windows, 1, NOW)


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


def crowd(meeting: Meeting, road: Road, number: int) -> tuple[list[threading.Thread], list[object]]:
    """One that leads and is on its way, and others who came meanwhile."""
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
def test_who_comes_meanwhile_goes_together(fails: bool) -> None:
    road = Road()
    road.fails = fails
    meeting = Meeting(road.send)
    threads, outcomes = crowd(meeting, road, TOGETHER_AT_MOST + 4)
    for _ in range(3):
        road.let.release()
    for thread in threads:
        thread.join(30)
    assert road.groups == [1, TOGETHER_AT_MOST, 3]
    assert len(outcomes) == len(threads)
    assert all(isinstance(outcome, Failed) for outcome in outcomes)


@pytest.mark.parametrize("first", [True, False])
def test_who_is_interrupted_leaves_and_the_others_go_on(first: bool) -> None:
    """A signal's handler raises where the main thread waits."""
    road = Road()
    meeting = Meeting(road.send)
    threads, outcomes = crowd(meeting, road, 3)
    leaving = meeting._waiting[0 if first else 1]
    meeting._withdraw(leaving)
    road.let.release(3)
    leaving.failure = Failed()
    leaving.woken.release()
    for thread in threads:
        thread.join(30)
    assert road.groups == [1, 1]
    assert len(outcomes) == 3


def test_who_is_interrupted_with_the_lead_passes_it_on() -> None:
    meeting = Meeting(Road().send)
    first, second = _Ticket(HIT), _Ticket(HIT)
    meeting._waiting.extend([first, second])
    meeting._led = first.leads = True
    meeting._withdraw(first)
    assert second.leads
    assert second.woken.acquire(blocking=False)
    meeting._withdraw(second)
    assert not meeting._led


def test_a_key_that_was_moved_or_deleted_under_a_running_process(backend: Backend) -> None:
    """Restored tables: what the process remembers of a key is never believed."""
    tables = backend.take()
    store = SqlStore(backend.url, prefix=tables.prefix)
    made = new_key()
    run(store.insert(draft_of(made, "org_1"), None, NOW))
    run(store.put_organization(Organization("org_2", "creator")))
    assert run(store.admit(token_of(made), 1, BOOK, NOW)).verdict is Verdict.ADMITTED
    with backend.admin.begin() as connection:
        connection.execute(update(tables.keys).values(organization=write_id("org_2")))
    answer = run(store.admit(token_of(made), 1, BOOK, NOW))
    assert answer.plan is not None
    assert answer.plan.name == "creator"
    assert run(store.look("org_1", BOOK.default.windows, NOW)).used[0] == 1
    assert run(store.look("org_2", BOOK.default.windows, NOW)).used[0] == 1
    with backend.admin.begin() as connection:
        connection.execute(delete(tables.keys))
    assert run(store.admit(token_of(made), 1, BOOK, NOW)).verdict is Verdict.UNKNOWN
    run(store.close())
    backend.give(tables)
