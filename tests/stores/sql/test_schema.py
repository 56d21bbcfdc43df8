"""The revisions: forward and back with data in place, and beside a host's own history."""

from __future__ import annotations

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect, text
from sqlalchemy.exc import IntegrityError

from lockgate import ConfigurationError, open_store, run
from lockgate.core.timestamps import MINUTE
from lockgate.stores.sql import SqlStore, schema
from lockgate.stores.sql.codec import write_id, write_key
from lockgate.stores.sql.tables import Tables

from ..failing import store_fails
from ..making import BOOK, NOW, at_once, draft, draft_of, new_key, token_of
from .backends import Backend, database

WINDOWS = BOOK.default.windows


def test_the_head_is_the_newest_revision() -> None:
    config = Config()
    config.set_main_option("script_location", "lockgate.stores.sql:migrations")
    config.set_main_option("path_separator", "os")
    assert ScriptDirectory.from_config(config).get_current_head() == schema.RELEASE.newest


def number(connection: Connection, tables: Tables) -> str | None:
    """The revision of the tables."""
    found = schema.current(connection, tables)
    return found and found.number


def test_upgrade_downgrade_and_upgrade_keep_the_data(backend: Backend) -> None:
    tables = Tables("moved_")
    schema.upgrade(backend.admin, tables)
    store = SqlStore(backend.url, prefix="moved_")
    made = new_key()
    key = run(store.insert(draft_of(made), None, NOW))
    run(store.admit(token_of(made), 1, BOOK, NOW))
    run(store.acquire("org_1", "job", "me", 2, MINUTE, NOW))
    run(store.close())
    schema.downgrade(backend.admin, tables, "0001")
    with backend.admin.connect() as connection:
        assert number(connection, tables) == "0001"
        columns = {c["name"] for c in inspect(connection).get_columns("moved_organizations")}
    assert "slots" not in columns
    schema.upgrade(backend.admin, tables)
    store = SqlStore(backend.url, prefix="moved_")
    found = run(store.find(made.handle))
    assert found == key._replace(request_count=1, last_used_at=NOW)
    assert run(store.peek("org_1", WINDOWS, NOW)).used == (1, 1, 1)
    assert run(store.held("org_1", NOW)) == ()
    run(store.close())
    schema.downgrade(backend.admin, tables, "base")
    with backend.admin.connect() as connection:
        left = [name for name in inspect(connection).get_table_names() if name.startswith("moved_")]
        assert left == ["moved_version"]
        assert schema.current(connection, tables) is None


def revisions() -> list[str]:
    """All revisions, the oldest first."""
    config = Config()
    config.set_main_option("script_location", "lockgate.stores.sql:migrations")
    config.set_main_option("path_separator", "os")
    found = ScriptDirectory.from_config(config).walk_revisions()
    return [script.revision for script in reversed(list(found))]


def test_every_revision_upgrades_and_downgrades_with_data_in_place(backend: Backend) -> None:
    """A key made under the first revision is good under every one, and counted on through all."""
    tables = Tables("steps_")
    made = new_key()
    first, *others = revisions()
    schema.upgrade(backend.admin, tables, first)
    draft = draft_of(made)
    with backend.admin.begin() as connection:
        owner = {"id": write_id(draft.organization), "plan": "starter"}
        connection.execute(
            text("INSERT INTO steps_organizations (id, plan) VALUES (:id, :plan)"), owner
        )
        row = write_key(draft.created(NOW))
        inspector = inspect(connection)
        columns = [column["name"] for column in inspector.get_columns("steps_keys")]
        statement = (
            f"INSERT INTO steps_keys ({', '.join(columns)}) "
            f"VALUES ({', '.join(':' + column for column in columns)})"
        )
        connection.execute(text(statement), {column: row[column] for column in columns})
    for turn in (1, 2):
        for revision in others:
            schema.upgrade(backend.admin, tables, revision)
            with backend.admin.connect() as connection:
                assert number(connection, tables) == revision
        store = SqlStore(backend.url, prefix="steps_")
        answer = run(store.admit(token_of(made), 1, BOOK, NOW))
        assert answer.key is not None and answer.plan is not None
        assert answer.key.request_count == turn
        assert answer.plan.name == "starter"
        run(store.close())
        for revision in [*reversed(others[:-1]), first]:
            schema.downgrade(backend.admin, tables, revision)
            with backend.admin.connect() as connection:
                assert number(connection, tables) == revision
                if revision < "0005":  # From there on it lies beside the windows.
                    count = connection.scalar(text("SELECT request_count FROM steps_keys"))
                    assert count == turn
    schema.downgrade(backend.admin, tables, "base")


def test_the_migrations_make_the_tables_that_the_code_describes(backend: Backend) -> None:
    tables = Tables("same_")
    schema.upgrade(backend.admin, tables)

    def ours(_: object, name: str | None, kind: str, *__: object) -> bool:
        return kind != "table" or (name or "").startswith("same_")

    with backend.admin.connect() as connection:
        options = {"version_table": tables.version, "include_object": ours, "compare_type": True}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, tables.metadata) == []
    schema.downgrade(backend.admin, tables, "base")


def test_the_hosts_own_history_and_tables_stay_unchanged(backend: Backend) -> None:
    with backend.admin.begin() as connection:
        connection.execute(text("CREATE TABLE alembic_version (version_num VARCHAR(32))"))
        connection.execute(text("INSERT INTO alembic_version VALUES ('theirs')"))
    tables = Tables("beside_")
    schema.upgrade(backend.admin, tables)
    schema.downgrade(backend.admin, tables, "base")
    with backend.admin.begin() as connection:
        assert connection.scalar(text("SELECT version_num FROM alembic_version")) == "theirs"
        connection.execute(text("DROP TABLE alembic_version"))


def test_several_processes_may_upgrade_at_once(backend: Backend) -> None:
    tables = Tables("race_")
    at_once(4, lambda _: schema.upgrade(backend.admin, tables))
    with backend.admin.connect() as connection:
        assert number(connection, tables) == schema.RELEASE.newest
    schema.downgrade(backend.admin, tables, "base")


def test_several_processes_may_open_a_new_file_at_once() -> None:
    url = database("sqlite")

    def insert(_: int) -> None:
        store = open_store(url)
        run(store.insert(draft(), None, NOW))
        run(store.close())

    at_once(6, insert)
    store = open_store(url)
    assert len(run(store.list("org_1", 100))) == 6
    run(store.close())


def test_two_prefixes_are_two_stores(backend: Backend) -> None:
    one, other = backend.open(), backend.open()
    key = run(one.insert(draft(), None, NOW))
    assert run(other.find(key.handle)) is None
    run(one.close())
    run(other.close())


@pytest.mark.parametrize("prefix", ["1a", "a-b", "A", "a" * 31, 'a"; DROP TABLE x'])
def test_an_invalid_prefix_is_refused(prefix: str) -> None:
    with pytest.raises(ConfigurationError, match="prefix"):
        Tables(prefix)


def test_an_error_of_integrity_other_than_a_taken_handle_is_no_reason_to_draw_again(
    backend: Backend,
) -> None:
    store = backend.open()
    unnamed = draft()._replace(name=None)  # type: ignore[arg-type] # what the database is to refuse
    with store_fails(IntegrityError):
        run(store.insert(unnamed, None, NOW))
    run(store.close())
