"""The statements of admissions with named limits and of holds, and the rows that they read."""

from __future__ import annotations

import struct
from concurrent.futures import ThreadPoolExecutor
from secrets import token_hex
from typing import Any

import pytest
from sqlalchemy import delete, insert, select, update

from lockgate import Limit, Plan, PlanBook, run
from lockgate.core.budgets import Budget
from lockgate.core.holds import Settle, Take, budgets
from lockgate.core.ledger import Hit, Peek
from lockgate.core.limits import windows_of
from lockgate.core.plans import Organization
from lockgate.core.reservations import Reservation
from lockgate.core.sliding_window import Window
from lockgate.core.timestamps import DAY, MINUTE
from lockgate.stores.answers import Verdict
from lockgate.stores.sql.codec import limit_id, write_cells, write_id, write_state
from lockgate.stores.sql.statements import Statement, Statements

from ..making import BOOK, NOW, draft_of, new_key, token_of
from .backends import BACKENDS, Backend, await_locks

EXPORT, OWN = Limit("export", "9/hour"), Limit("own", "9/hour", by="key")
LIMITS = windows_of((EXPORT,))
TOKENS = budgets(windows_of((Limit("tokens", "1000/minute"),)))
WINDOWS = BOOK.default.windows


def book(*limits: Limit) -> PlanBook:
    """Return a default plan with named limits, and another plan without them."""
    plain = Plan("other", 60, None, None, None)
    return PlanBook([Plan("free", 60, None, None, None, limits=limits), plain])


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the statements that charges have run."""
    names: list[str] = []
    written = Statements.written

    def noted(self: Statements, statement: Any, places: int) -> Statement:
        names.append(statement.__name__)
        return written(self, statement, places)

    monkeypatch.setattr(Statements, "written", noted)
    return names


WRITTEN = {"postgresql": ["keep_one_and_limits"]}
READ = {
    "sqlite": ["both_and_limits"],
    "postgresql": ["lock_both_and_limits"],
    "mysql": ["lock", "find_and_limits"],
}


def test_an_admission_reads_named_limits_together_with_the_key(
    backend: Backend, ran: list[str]
) -> None:
    """From the second one with the same limits on, those of its plan included."""
    store, made, plans = backend.open(), new_key(), book(Limit("plan", "9/hour"))
    run(store.insert(draft_of(made), None, NOW))
    for used in range(1, 4):
        ran.clear()
        admitted = run(store.admit(token_of(made), 1, plans, NOW, None, (EXPORT, OWN)))
        assert admitted.reading is not None
        assert admitted.reading.used[3:] == (used,) * 3
    written = WRITTEN.get(backend.kind, ["keep_one", "keep_limits"])
    assert ran == READ[backend.kind] + written
    run(store.close())


def test_a_hold_and_its_settling_are_two_statements_each(backend: Backend, ran: list[str]) -> None:
    """On MariaDB three: its clock is the start of the statement."""
    store = backend.open()
    for _ in range(2):
        taken = Take(token_hex(16), TOKENS, (100,), MINUTE, 1000)
        for action in (taken, Settle(taken.id, taken.fields, (50,))):
            ran.clear()
            assert run(store.charge("org_1", action, NOW)).done
    assert ran == [*READ[backend.kind], "keep_limits"]
    run(store.close())


def test_an_admission_is_charged_to_other_limits_than_the_last_one(backend: Backend) -> None:
    """The plan or the limits of the rule have changed. A damaged row that the last one read, and
    that this one does not need, fails no request."""
    store, made, plans = backend.open(), new_key(), book(Limit("plan", "2/hour"))
    asked = token_of(made), 1, plans, NOW, None
    run(store.insert(draft_of(made), None, NOW))
    for _ in range(2):
        assert run(store.admit(*asked, (EXPORT,))).verdict is Verdict.ADMITTED
    assert run(store.admit(*asked, (EXPORT,))).verdict is Verdict.LIMITED
    assert run(store.admit(*asked, (OWN,))).verdict is Verdict.LIMITED
    run(store.put_organization(Organization("org_1", "other")))
    limits = store.tables.limits
    mine = limits.c.id == limit_id(write_id("org_1"), "plan 3600")
    with backend.admin.begin() as connection:
        connection.execute(update(limits).where(mine).values(cells=b"damaged"))
    for used in (3, 4):
        admitted = run(store.admit(*asked, (EXPORT,)))
        assert admitted.reading is not None
        assert admitted.reading.used[3:] == (used,)
    run(store.put_organization(Organization("org_1", "free")))
    with backend.admin.begin() as connection:
        connection.execute(delete(limits).where(mine))
    for used in (5, 6):
        admitted = run(store.admit(*asked, (EXPORT,)))
        assert admitted.reading is not None
        assert admitted.reading.used[3:] == (used, used - 4)
    run(store.close())


@pytest.mark.parametrize("written", ["inserted", "updated", "replaced", "deleted"])
def test_a_charge_counts_on_top_of_limits_that_were_written_while_it_waited_W1(
    served: Backend, written: str
) -> None:
    """The statement that waited for the lock began before the commit of these rows."""
    store = served.open()
    limits, id = store.tables.limits, write_id("org_1")
    (field,) = LIMITS.fields
    row = {
        "id": limit_id(id, field),
        "organization": id,
        "cells": write_cells((5, NOW, NOW, NOW, 5, b"")),
        "idle_day": NOW // (DAY) + 3,
    }
    run(store.charge("org_1", Hit(WINDOWS, 1, None if written == "inserted" else LIMITS), NOW))
    organizations = store.tables.organizations
    with ThreadPoolExecutor(1) as threads, served.admin.connect() as other:
        other.execute(select(organizations.c.id).where(organizations.c.id == id).with_for_update())
        waiting = threads.submit(lambda: run(store.charge("org_1", Hit(WINDOWS, 1, LIMITS), NOW)))
        await_locks(served.admin)
        if written in ("replaced", "deleted"):
            other.execute(delete(limits).where(limits.c.id == row["id"]))
        if written in ("inserted", "replaced"):
            other.execute(insert(limits), row)
        if written == "updated":
            other.execute(update(limits).values(cells=row["cells"]))
        other.commit()
        assert waiting.result(60).used[3:] == (1 if written == "deleted" else 6,)
    assert run(store.charge("org_1", Peek(WINDOWS, LIMITS), NOW)).used[3:] == (
        1 if written == "deleted" else 6,
    )
    run(store.close())


def test_exact_windows_limits_and_budgets_outgrow_a_blob() -> None:
    """On MariaDB alone a column has a length."""
    backend = BACKENDS["mysql"]
    store, day = backend.open(), (Window("day", DAY, 10_000, 0),)
    exact = windows_of((Limit("exact", "100000/day", resolution=None),))
    held = budgets(windows_of((Limit("fine", "100000/day", resolution=3600),)))
    taken = Take(f"{0:032x}", held, (1,), DAY, 1000)
    run(store.charge("org_1", Hit(day, 1, exact), NOW))
    run(store.charge("org_1", taken, NOW))
    hits = b"".join(struct.pack("<qq", NOW + number, 1) for number in range(1, 4096))
    cells = 4096, NOW, NOW + 4096, NOW + 4096, 1, hits
    full = tuple(Reservation(f"{number:032x}", 1, NOW + DAY, DAY) for number in range(999))
    limits, organizations = store.tables.limits, store.tables.organizations
    rows = {exact.fields[0]: write_cells(cells), taken.fields[0]: Budget(cells, full).written()}
    changes = [update(organizations).values(windows=write_state((cells,)))]
    for field, value in rows.items():
        assert len(value) > 65_535
        mine = limits.c.id == limit_id(b"org_1", field)
        changes.append(update(limits).where(mine).values(cells=value))
    with backend.admin.begin() as connection:
        assert [connection.execute(change).rowcount for change in changes] == [1, 1, 1]
    for action in (Hit(day, 1, exact), Peek(day, exact)):
        assert run(store.charge("org_1", action, NOW + 6000)).used == (4097, 4097)
    answer = run(store.charge("org_1", taken._replace(id=f"{1000:032x}"), NOW + 6000))
    assert answer.done and answer.used == (4096 + 1000,)
    run(store.close())
