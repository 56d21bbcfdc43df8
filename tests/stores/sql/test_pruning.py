"""Pruning removes idle rows in steps; keys and plans stay (W10)."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from sqlalchemy import func, select, text
from sqlalchemy.dialects import sqlite

from lockgate import run
from lockgate.core.leases import TO_LIST, leases_of, to_acquire, to_release, to_renew
from lockgate.core.ledger import Hit, Peek
from lockgate.core.plans import Organization
from lockgate.core.timestamps import DAY, MINUTE
from lockgate.stores.sql import pruning
from lockgate.stores.sql.databases import database_of
from lockgate.stores.sql.pruning import Pruning
from lockgate.stores.sql.tables import Tables

from ..making import BOOK, NOW, draft
from .backends import Backend, Borrowed

WINDOWS = BOOK.default.windows
LATER = NOW + 3 * DAY


def prune(backend: Backend, tables: Tables, now: int) -> int:
    database = database_of(backend.admin.dialect)
    with backend.admin.connect() as connection:
        database.begin(connection)
        count = Pruning(tables, database).prune(connection, now)
        connection.commit()
    return count


def test_an_idle_organization_leaves_nothing_behind(store: Borrowed, backend: Backend) -> None:
    tables = store.tables
    run(store.charge("stranger", Hit(WINDOWS, 1), NOW))
    run(store.charge("worker", to_acquire("job", "me", 2, MINUTE), NOW))
    run(store.charge("busy", Hit(WINDOWS, 1), LATER))
    run(store.charge("keyed", Hit(WINDOWS, 1), NOW))
    key = run(store.insert(draft("keyed"), None, NOW))
    run(store.charge("placed", Hit(WINDOWS, 1), NOW))
    run(store.put_organization(Organization("placed", "starter")))
    assert prune(backend, tables, NOW) == 1  # The row that was locked for the slot alone.
    assert prune(backend, tables, LATER) == 3
    assert prune(backend, tables, LATER) == 0
    table = tables.organizations
    with backend.admin.connect() as connection:
        rows = connection.execute(select(table.c.id, table.c.windows)).all()
        assert connection.execute(select(tables.limits)).all() == []
    assert sorted((bytes(id), windows is None) for id, windows in rows) == [
        (b"busy", False),
        (b"keyed", True),
        (b"placed", True),
    ]
    assert run(store.find(key.handle)) == key
    assert run(store.organization("placed")) == Organization("placed", "starter")
    assert run(store.charge("busy", Peek(WINDOWS), LATER)).used == (1, 1, 1)


def test_an_organization_without_admissions_leaves_no_row(
    store: Borrowed, backend: Backend
) -> None:
    """A call that is refused at once or comes late needed a row to lock."""
    tables = store.tables
    nothing = tuple(window._replace(limit=0) for window in WINDOWS)
    assert not run(store.charge("refused", Hit(nothing, 1), NOW)).allowed
    run(store.charge("without_slots", to_acquire("job", "me", 0, MINUTE), NOW))
    run(store.charge("gone", to_release("job", "me"), NOW))
    run(store.charge("late", to_renew("job", "me", MINUTE), NOW))
    run(store.insert(draft("keyed"), None, NOW))
    run(store.put_organization(Organization("placed", "starter")))
    prune(backend, tables, NOW)
    assert prune(backend, tables, NOW) == 0
    with backend.admin.connect() as connection:
        ids = connection.scalars(select(tables.organizations.c.id))
        assert sorted(map(bytes, ids)) == [b"keyed", b"placed"]


def test_a_window_that_still_counts_stays(store: Borrowed, backend: Backend) -> None:
    tables = store.tables
    run(store.charge("org_1", Hit(WINDOWS, 1), NOW))
    run(store.charge("org_1", to_acquire("job", "me", 2, 5 * DAY), NOW))
    assert prune(backend, tables, NOW + DAY - 1) == 0
    assert prune(backend, tables, NOW + 4 * DAY) == 1
    assert [
        lease.job for lease in leases_of(run(store.charge("org_1", TO_LIST, NOW + 4 * DAY)).slots)
    ] == ["job"]


def test_a_step_is_bounded(
    store: Borrowed, backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruning, "AT_ONCE", 20)
    for number in range(23):
        run(store.charge(f"org_{number}", Hit(WINDOWS, 1), NOW))
    assert prune(backend, store.tables, LATER) == 20
    assert prune(backend, store.tables, LATER) == 3


def test_locked_rows_are_pruned_later(served: Backend) -> None:
    store = served.open()
    for name in ("held", "free"):
        run(store.charge(name, Hit(WINDOWS, 1), NOW))
    with served.admin.begin() as holder:
        lock = f"SELECT id FROM {store.prefix}organizations WHERE id = :id FOR UPDATE"
        holder.execute(text(lock), {"id": b"held"})
        assert prune(served, store.tables, LATER) == 1
    assert prune(served, store.tables, LATER) == 1
    run(store.close())


@pytest.mark.parametrize("in_a_loop", [False, True], ids=["sync", "async"])
async def test_charges_trigger_pruning(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, in_a_loop: bool
) -> None:
    monkeypatch.setattr(pruning, "INTERVAL", 0.0)
    store = backend.open()
    tables = store.tables

    async def charge() -> None:
        await store.charge("stranger", Hit(WINDOWS, 1), NOW)
        await store.charge("busy", Hit(WINDOWS, 1))
        await store.charge("busy", Hit(WINDOWS, 1))

    if in_a_loop:
        await charge()
    else:
        await asyncio.to_thread(lambda: run(charge()))
    await store.close()
    with backend.admin.connect() as connection:
        assert connection.scalar(select(func.count()).select_from(tables.organizations)) == 1


def test_workers_that_live_for_seconds_prune_as_often_as_one_that_lives_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An hour of work each: 60 steps on average, however it is divided."""
    present, steps = 0.0, {3: 0, 45: 0, 3600: 0}
    monkeypatch.setattr(pruning, "expovariate", Random(1).expovariate)
    monkeypatch.setattr(pruning, "monotonic", lambda: present)
    tables, database = Tables(), database_of(sqlite.dialect())
    for life in steps:
        for _ in range(3600 // life):
            worker = Pruning(tables, database)
            for _ in range(life):
                present += 1
                steps[life] += worker.due() is not None
    assert all(35 <= number <= 85 for number in steps.values()), steps


def test_a_forked_worker_draws_the_time_of_its_first_step_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn, present = iter([0.5, 1.5, 1.0]), 0.0
    monkeypatch.setattr(pruning, "expovariate", lambda _: next(drawn))
    monkeypatch.setattr(pruning, "monotonic", lambda: present)
    worker = Pruning(Tables(), database_of(sqlite.dialect()))
    worker.forked()
    present = 89.0
    assert worker.due() is None
    present = 91.0
    assert worker.due() is not None
