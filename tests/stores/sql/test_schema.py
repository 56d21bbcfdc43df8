"""The revisions: forward and back with data in place, and beside a host's own history."""

from __future__ import annotations

from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect, text

from lockgate import ConfigurationError, open_store, run
from lockgate.core.leases import TO_LIST, lease_of, leases_of, to_acquire
from lockgate.core.ledger import Peek
from lockgate.core.timestamps import MINUTE
from lockgate.stores.sql import SqlStore, schema
from lockgate.stores.sql.tables import Tables

from ..failing import store_fails
from ..making import BOOK, NOW, at_once, draft, draft_of, new_key, token_of
from .backends import Backend, database
from .next_release import NEXT, scripts

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


def columns_of(connection: Connection, table: str) -> set[str]:
    return {column["name"] for column in inspect(connection).get_columns(table)}


def test_a_next_revision_upgrades_and_downgrades_with_data_in_place(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Keys, windows and slots of this release stay as they are, in both directions."""
    tables = Tables("moved_")
    schema.upgrade(backend.admin, tables)
    store = SqlStore(backend.url, prefix="moved_")
    made = new_key()
    key = run(store.insert(draft_of(made), None, NOW))
    run(store.admit(token_of(made), 1, BOOK, NOW))
    lease = lease_of(run(store.charge("org_1", to_acquire("job", "me", 2, MINUTE), NOW)))
    run(store.close())
    monkeypatch.setattr(schema, "SCRIPTS", scripts(tmp_path))
    monkeypatch.setattr(schema, "RELEASE", NEXT)
    steps = (("upgrade", NEXT.newest), ("downgrade", NEXT.oldest), ("upgrade", NEXT.newest))
    for turn, (step, revision) in enumerate(steps, 2):
        getattr(schema, step)(backend.admin, tables, revision)
        with backend.admin.connect() as connection:
            assert number(connection, tables) == revision
            is_there = "later" in columns_of(connection, "moved_keys")
        assert is_there is (step == "upgrade")
        store = SqlStore(backend.url, prefix="moved_")
        admitted = run(store.admit(token_of(made), 1, BOOK, NOW)).key
        assert admitted == key._replace(request_count=turn, last_used_at=NOW)
        assert run(store.charge("org_1", Peek(WINDOWS), NOW)).used == (turn, turn, turn)
        assert leases_of(run(store.charge("org_1", TO_LIST, NOW)).slots) == (lease,)
        run(store.close())
    schema.downgrade(backend.admin, tables, "base")
    with backend.admin.connect() as connection:
        left = [name for name in inspect(connection).get_table_names() if name.startswith("moved_")]
        assert left == ["moved_version"]
        assert schema.current(connection, tables) is None


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
    with store_fails(backend.admin.dialect.loaded_dbapi.IntegrityError):
        run(store.insert(unnamed, None, NOW))
    run(store.close())
