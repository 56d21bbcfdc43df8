"""Accounts in SQL: pages read only their rows, and removal leaves only the taken handles."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import event, func, insert, select, text

from lockgate import run
from lockgate.core.api_keys import Position
from lockgate.core.leases import to_acquire
from lockgate.core.timestamps import DAY, MINUTE
from lockgate.errors import HandleTaken
from lockgate.stores.rows import Unused
from lockgate.stores.sql.codec import write_account
from lockgate.stores.sql.databases import database_of
from lockgate.stores.sql.pruning import Pruning
from lockgate.stores.sql.tables import Tables

from ..making import BOOK, NOW, account, draft, draft_of, new_key, token_of
from .backends import Backend

EMAIL = "ada@example.com"


def test_w10_a_removed_account_leaves_only_its_handles(backend: Backend) -> None:
    store = backend.open()
    tables = store.tables
    made = new_key()
    run(store.register(account(), draft_of(made), NOW))
    second = draft()
    run(store.insert(second, None, NOW))
    run(store.admit(token_of(made), 1, BOOK, NOW))
    run(store.charge("org_1", to_acquire("job", "me", 2, MINUTE), NOW))
    assert run(store.remove_unclaimed(DAY, 10, NOW + 2 * DAY)) == ("org_1",)
    database, today = database_of(backend.admin.dialect), run(store.now())
    with backend.admin.connect() as connection:
        database.begin(connection)
        assert connection.scalar(select(func.count()).select_from(tables.organizations)) == 1
        Pruning(tables, database).prune(connection, today + 3 * DAY)
        for table in (tables.organizations, tables.accounts, tables.keys):
            assert connection.scalar(select(func.count()).select_from(table)) == 0
        handles = set(connection.scalars(select(tables.removed_handles.c.handle)))
        connection.commit()
    assert handles == {made.handle, second.handle}
    for key in (draft_of(made, "org_2"), second._replace(organization="org_2")):
        with pytest.raises(HandleTaken):
            run(store.insert(key, None, NOW))
        with pytest.raises(HandleTaken):
            run(store.register(account("org_2"), key, NOW))
    assert run(store.list("org_2", 9)) == []
    run(store.close())


def fill(backend: Backend, tables: Tables, number: int) -> None:
    """A number of unclaimed accounts with one e-mail, and as many of other people."""
    for start in range(0, number, 500):
        accounts = [
            account(f"{who}_{index:06}", email=EMAIL if who == "mine" else f"{index}@example.com")
            for index in range(start, min(number, start + 500))
            for who in ("mine", "other")
        ]
        rows = [write_account(one.created(NOW + i * 1000)) for i, one in enumerate(accounts)]
        with backend.admin.begin() as connection:
            ids = [{"id": row["organization"]} for row in rows]
            connection.execute(insert(tables.organizations), ids)
            connection.execute(insert(tables.accounts), rows)


def test_d45_a_page_is_read_from_its_index(backend: Backend) -> None:
    """Neither a sort nor a scan: the plan of each statement says so, with thousands of rows."""
    store = backend.open()
    fill(backend, store.tables, 2000)
    with backend.admin.begin() as connection:
        connection.execute(
            text(
                f"{'ANALYZE TABLE' if backend.kind == 'mysql' else 'ANALYZE'} "
                f"{store.tables.accounts.name}"
            )
        )
    first = run(store.unclaimed_by_email(EMAIL, 20))
    position = Position(first[-1].created_at, first[-1].organization)
    for index in range(50):
        run(
            store.claim_if_unclaimed(
                f"other_{index:06}", "ada", revoke=False, keep_token=True, now=NOW + index
            )
        )
    indexes = store._indexes
    plans: list[str] = []

    def explain(_: object, __: object, statement: str, *more: Any) -> None:
        if statement.lstrip().upper().startswith("SELECT"):
            explained.append((statement, more[0]))

    explained: list[tuple[str, Any]] = []
    with backend.admin.connect() as connection:
        event.listen(connection, "before_cursor_execute", explain)
        for name, prefix, after in (
            ("accounts_by_email", EMAIL, position),
            ("accounts_by_user", "ada", Position(NOW + 9, "x")),
        ):
            indexes.read(connection, name, (prefix,), 20, after, NOW)
        indexes.walk(connection, Unused(NOW + DAY), 20, None)
        event.remove(connection, "before_cursor_execute", explain)
        prefix = "EXPLAIN QUERY PLAN " if backend.kind == "sqlite" else "EXPLAIN "
        for statement, parameters in explained:
            rows = connection.exec_driver_sql(prefix + statement, parameters).all()
            plans.append(" ".join(map(str, rows)))
    names = [*["unclaimed"] * 2, *["claimed"] * 2, "review_at"]
    for read, name in zip(plans, names, strict=True):
        assert f"ix_{store.tables.prefix}accounts_{name}" in read
        assert not any(word in read for word in ("filesort", "TEMP B-TREE", "Sort")), read
    run(store.close())
