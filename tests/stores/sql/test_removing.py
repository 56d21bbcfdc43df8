"""Keys that ended and accounts, in SQL: indexes, and removal beside other transactions."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import Any

import pytest
from sqlalchemy import Connection, event, func, insert, select, text

from lockgate import run
from lockgate.core.api_keys import NEVER, KeyDraft, Position
from lockgate.core.leases import to_acquire
from lockgate.core.timestamps import DAY, MINUTE, SECOND
from lockgate.errors import HandleTaken
from lockgate.stores.rows import (
    KEYS_BY_CREATION,
    KEYS_BY_END,
    REMOVED_AT_MOST,
    Commit,
    Ended,
    Index,
    Outcome,
    Unused,
    Write,
)
from lockgate.stores.sql.codec import write_account, write_id, write_key
from lockgate.stores.sql.databases import database_of
from lockgate.stores.sql.statements import Cursor
from lockgate.stores.sql.tables import Tables

from ..making import BOOK, NOW, account, draft, draft_of, new_key, token_of
from .backends import Backend, Borrowed, await_locks
from .test_pruning import prune

PILE = 6_000
LIVE = 600
LATER = NOW + 40 * DAY


@cache
def rows() -> list[dict[str, Any]]:
    """An organization's pile of keys that ended and some that are live, and keys of others."""
    rows: list[dict[str, Any]] = []
    for number in range(PILE + LIVE):
        key = draft(lifetime=DAY if number < PILE else None).created(NOW + number * 1000)
        if number < PILE and number % 2:
            key = key._replace(revoked_at=NOW + SECOND)
        rows.append(write_key(key))
    rows += [write_key(draft(f"org_{1 + n % 50}").created(NOW + n)) for n in range(1000)]
    return rows


def fill(backend: Backend, tables: Tables) -> None:
    with backend.admin.begin() as connection:
        owners = [{"id": write_id(f"org_{number}")} for number in range(1, 51)]
        connection.execute(insert(tables.organizations), owners)
        connection.execute(insert(tables.keys), rows())
        accounts = [
            account(f"org_{place}_{who}", email=f"{who if place % 2 else 'mine'}@example.com")
            for place in range(1, 51)
            for who in range(40)
        ]
        owners = [{"id": write_id(one.organization)} for one in accounts]
        connection.execute(insert(tables.organizations), owners)
        made = [one.created(NOW + place * 1000) for place, one in enumerate(accounts)]
        made[::40] = [one._replace(claimed_by="ada", claimed_at=NOW) for one in made[::40]]
        connection.execute(insert(tables.accounts), [write_account(one) for one in made])
    if backend.kind == "sqlite":
        return
    with backend.admin.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        verb = "ANALYZE" if backend.kind == "postgresql" else "ANALYZE TABLE"
        connection.exec_driver_sql(f"{verb} {tables.keys.name}, {tables.accounts.name}")


class Touched:
    """Counts the rows that a connection has read; in SQLite a hundredth of its steps."""

    def __init__(self, backend: Backend, tables: Tables, connection: Connection) -> None:
        self.kind = backend.kind
        self.tables = f"'{tables.keys.name}', '{tables.accounts.name}'"
        self.connection = connection
        self.steps = 0
        if self.kind == "sqlite":
            raw: Any = connection.connection.dbapi_connection
            raw.set_progress_handler(self._step, 100)

    def _step(self) -> None:
        self.steps += 1

    def __call__(self) -> int:
        if self.kind == "sqlite":
            return self.steps
        if self.kind == "postgresql":
            statement = (
                "SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)) "
                f"FROM pg_stat_xact_user_tables WHERE relname IN ({self.tables})"
            )
            return int(self.connection.scalar(text(statement)) or 0)
        rows = self.connection.execute(text("SHOW SESSION STATUS LIKE 'Handler_read%'"))
        return sum(int(value) for _, value in rows)


def test_d45_no_verb_reads_rows_that_it_does_not_return(store: Borrowed, backend: Backend) -> None:
    """Neither keys that ended, nor accounts of others."""
    tables, indexes = store.tables, store._indexes
    fill(backend, tables)
    with backend.admin.connect() as connection:
        database_of(backend.admin.dialect).begin(connection)
        touched = Touched(backend, tables, connection)

        def cost(work: Any) -> int:
            before = touched()
            work()
            return touched() - before

        def read(index: Index[Any], after: Position | None) -> list[Any]:
            return indexes.read(connection, index.name, ("org_1",), 100, after, LATER)[0]

        def commit(**asked: Any) -> Outcome:
            cursor = Cursor(connection, store._statements)
            outcome, _ = store._commits.commit(cursor, Commit("org_1", "0a", **asked), LATER, None)
            return outcome

        middle, end = Position(NOW + PILE // 2 * 1000, "~"), Position(NEVER, "~")
        # As many rows as asked for, and as many of their organization.
        for index, after in (
            *((KEYS_BY_CREATION, None), (KEYS_BY_CREATION, middle)),
            *((KEYS_BY_END, None), (KEYS_BY_END, end)),
        ):
            assert cost(partial(read, index, after)) <= 300
            assert len(read(index, after)) == 100
        for name, prefix, after in (
            ("accounts_by_email", "mine@example.com", Position(NOW + 100, "x")),
            ("accounts_by_user", "ada", Position(NOW + 9, "x")),
        ):
            read_accounts = partial(indexes.read, connection, name, (prefix,), 20, after, NOW)
            assert cost(read_accounts) <= 300
            assert len(read_accounts()[0]) == 20
        for due in (Ended(LATER), Unused(NOW + DAY)):
            assert cost(partial(indexes.walk, connection, due, 20, None)) <= 100
        assert len(indexes.walk(connection, Unused(NOW + DAY), 20, None).owners) == 20
        assert cost(lambda: indexes.walk(connection, None, 1000, None)) <= 4000
        # The cap counts live keys, and no more of them than it says.
        new = Write(None, None, draft().created(LATER))
        assert cost(lambda: commit(writes=(new,), room=2000)) <= 2 * LIVE + 200
        assert cost(lambda: commit(remove_ended=LATER)) <= 10 * REMOVED_AT_MOST
        connection.rollback()


def test_an_organization_without_keys_is_removed_unless_it_has_an_account(
    store: Borrowed, backend: Backend
) -> None:
    tables = store.tables
    for name in ("registered", "left"):
        run(store.insert(draft(name, lifetime=DAY), None, NOW))
    run(store.register(account("registered"), draft("registered", lifetime=DAY), NOW))
    prune(backend, tables, NOW)
    cursor, steps = None, 0
    while (step := run(store.remove_ended(DAY, NOW + 2 * DAY, cursor))).cursor is not None:
        cursor, steps = step.cursor, steps + step.removed
    assert steps == 3
    prune(backend, tables, run(store.now()) + 3 * DAY)
    with backend.admin.connect() as connection:
        ids = connection.scalars(select(tables.organizations.c.id))
        assert [bytes(id) for id in ids] == [b"registered"]


def test_d3_a_handle_is_taken_while_its_key_is_being_removed(served: Backend) -> None:
    """The insert waits for the removal to end, and finds the mark that it left."""
    store = served.open()
    gone = run(store.insert(draft(lifetime=DAY), None, NOW))
    again: KeyDraft = draft("org_2")._replace(handle=gone.handle)
    with ThreadPoolExecutor(1) as pool, served.admin.connect() as connection:
        cursor, commit = Cursor(connection, store._statements), Commit("org_1", "0a")
        removal = commit._replace(remove_ended=NOW + DAY)
        assert store._commits.commit(cursor, removal, None, None)[0].ended == 1
        inserted = pool.submit(lambda: run(store.insert(again, 9, NOW)))
        await_locks(served.admin)
        assert cursor.commit() is None
        with pytest.raises(HandleTaken):
            inserted.result()
    assert run(store.find(gone.handle)) is None
    assert run(store.list("org_2", 9)) == []
    run(store.close())


def test_lists_of_an_organization_read_its_usage_once(store: Borrowed) -> None:
    statements = list[str]()
    made = [new_key() for _ in range(3)]
    for one in made:
        run(store.insert(draft_of(one), None, NOW))
        run(store.admit(token_of(one), 1, BOOK, NOW))
    engine: Any = store._engines.blocking
    event.listen(engine, "before_cursor_execute", lambda *a: statements.append(a[2]))
    assert [key.request_count for key in run(store.list("org_1", 9))] == [1, 1, 1]
    assert len([one for one in statements if one.startswith("SELECT")]) == 1


def test_w10_a_removed_account_leaves_only_its_handles(store: Borrowed, backend: Backend) -> None:
    tables = store.tables
    made = new_key()
    run(store.register(account(), draft_of(made), NOW))
    second = draft()
    run(store.insert(second, None, NOW))
    run(store.admit(token_of(made), 1, BOOK, NOW))
    run(store.charge("org_1", to_acquire("job", "me", 2, MINUTE), NOW))
    assert run(store.remove_unclaimed(DAY, 10, NOW + 2 * DAY)) == ("org_1",)
    with backend.admin.connect() as connection:
        assert connection.scalar(select(func.count()).select_from(tables.organizations)) == 1
    prune(backend, tables, run(store.now()) + 3 * DAY)
    with backend.admin.connect() as connection:
        for table in (tables.organizations, tables.accounts, tables.keys):
            assert connection.scalar(select(func.count()).select_from(table)) == 0
        handles = set(connection.scalars(select(tables.removed_handles.c.handle)))
    assert handles == {made.handle, second.handle}
    for key in (draft_of(made, "org_2"), second._replace(organization="org_2")):
        with pytest.raises(HandleTaken):
            run(store.insert(key, None, NOW))
        with pytest.raises(HandleTaken):
            run(store.register(account("org_2"), key, NOW))
    assert run(store.list("org_2", 9)) == []
