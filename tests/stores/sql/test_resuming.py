"""An upgrade killed between two statements is completed by the next upgrade."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import insert, inspect, select, text

from lockgate.stores.sql import schema
from lockgate.stores.sql.codec import write_key
from lockgate.stores.sql.schema import Revision
from lockgate.stores.sql.tables import Tables

from ..making import NOW, draft_of, new_key
from .backends import BACKENDS, Backend
from .next_release import EXPANDED, NEXT, scripts

# Forks, and its child kills itself before a statement that changes something, or before a commit.
KILLED = """
import json, os, signal, sys
from sqlalchemy import event
import alembic.command  # Once, for every child.
from lockgate.migrations import upgrade
from lockgate.stores.sql import schema
from lockgate.stores.sql.engines import blocking_engine
from lockgate.stores.sql.tables import Tables

url, direction, schema.SCRIPTS, *release = sys.argv[1:]
schema.RELEASE = schema.RevisionRange(*release)
READS = ("SELECT", "SHOW", "PRAGMA", "DESCRIBE")

def migrate(prefix, at):
    engine = blocking_engine(url)
    passed = 0

    def reached():
        nonlocal passed
        if passed == at:
            os.kill(os.getpid(), signal.SIGKILL)
        passed += 1

    @event.listens_for(engine, "before_cursor_execute")
    def before(connection, cursor, statement, *_):
        if not statement.lstrip().upper().startswith(READS):
            reached()

    event.listen(engine, "commit", lambda connection: reached())
    if direction == "back":
        schema.downgrade(engine, Tables(prefix), "0001")
    else:
        upgrade(engine, prefix=prefix)
    engine.dispose()

for line in sys.stdin:
    prefix, at = json.loads(line)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            migrate(prefix, at)
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    print(json.dumps(os.waitstatus_to_exitcode(status)), flush=True)
"""


def differences(backend: Backend, tables: Tables) -> list[Any]:
    """What is in the database beside the tables that the code describes, or is not there."""

    def is_ours(_: object, name: str | None, kind: str, *__: object) -> bool:
        return kind != "table" or (name or "").startswith(tables.prefix)

    with backend.admin.connect() as connection:
        options = {"version_table": tables.version, "include_object": is_ours}
        context = MigrationContext.configure(connection, opts=options)
        return list(compare_metadata(context, tables.metadata))


class Migrations:
    """Runs migrations in processes of their own that are killed at a statement."""

    def __init__(self, url: str, direction: str) -> None:
        settings = url, direction, schema.SCRIPTS, *schema.RELEASE
        arguments = [sys.executable, "-W", "error", "-c", KILLED, *settings]
        self._process = subprocess.Popen(
            arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def killed(self, prefix: str, at: int) -> bool:
        """Migrate until that statement; return whether there was one."""
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps([prefix, at]), file=self._process.stdin, flush=True)
        code = json.loads(self._process.stdout.readline())
        assert code in {0, -9}
        return bool(code)

    def close(self) -> None:
        self._process.communicate()


def drop(backend: Backend, tables: Tables) -> None:
    """Drop the tables, which takes less time than to migrate back."""
    tables.metadata.drop_all(backend.admin)
    with backend.admin.begin() as connection:
        connection.execute(text(f"DROP TABLE {tables.version}"))


@pytest.mark.parametrize("direction", ["forward", "back"])
def test_migrations_killed_at_any_statement_are_completed_by_the_next(
    backend: Backend, direction: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Between this release's revision and one that the next release may have."""
    monkeypatch.setattr(schema, "RELEASE", NEXT)
    monkeypatch.setattr(schema, "SCRIPTS", scripts(tmp_path))
    migrations = Migrations(backend.url, direction)
    is_killed, at = True, -1
    while is_killed:
        at += 1
        tables = Tables(f"killed_{at}_")
        schema.upgrade(backend.admin, tables, "0001" if direction == "forward" else "0002")
        row = write_key(draft_of(new_key()).created(NOW))
        with backend.admin.begin() as connection:
            connection.execute(insert(tables.organizations), {"id": row["organization"]})
            connection.execute(insert(tables.keys), row)
        is_killed = migrations.killed(tables.prefix, at)
        assert not migrations.killed(tables.prefix, 10_000), "it completes what was begun"
        with backend.admin.connect() as connection:
            expected = EXPANDED if direction == "forward" else Revision("0001", "0001")
            assert schema.current(connection, tables) == expected
            kept = connection.execute(select(tables.keys)).mappings().one()
            assert {**kept} == row
        changes = differences(backend, tables)
        assert len(changes) == (3 if direction == "forward" else 0), changes
        with backend.admin.begin() as connection:
            connection.execute(text(f"DROP TABLE IF EXISTS {tables.prefix}later"))
        drop(backend, tables)
    migrations.close()
    assert at >= 5


def test_an_upgrade_killed_before_its_first_revision_is_completed() -> None:
    """The version table and the tables of the first revision may be there, without a revision."""
    backend = BACKENDS["mysql"]
    migrations = Migrations(backend.url, "forward")
    is_killed, at = True, 0
    while is_killed:
        tables = Tables(f"new_{at}_")
        is_killed = migrations.killed(tables.prefix, at)
        assert not migrations.killed(tables.prefix, 10_000)
        with backend.admin.connect() as connection:
            assert schema.current(connection, tables) == Revision("0001", "0001")
        assert differences(backend, tables) == []
        drop(backend, tables)
        at += 4
    migrations.close()
    assert at > 20


def test_tables_of_another_owner_are_not_taken_over(served: Backend) -> None:
    with served.admin.begin() as connection:
        connection.execute(text("CREATE TABLE foreign_organizations (id INTEGER PRIMARY KEY)"))
    with pytest.raises(Exception, match=r"(?i)already exists"):
        schema.upgrade(served.admin, Tables("foreign_"))
    with served.admin.begin() as connection:
        columns = inspect(connection).get_columns("foreign_organizations")
        assert [column["name"] for column in columns] == ["id"]
        connection.execute(text("DROP TABLE foreign_organizations"))
