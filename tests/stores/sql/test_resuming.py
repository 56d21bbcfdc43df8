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
from sqlalchemy import Connection, insert, inspect, select

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

url, schema.SCRIPTS, *release = sys.argv[1:]
schema.RELEASE = schema.RevisionRange(*release)
READS = ("SELECT", "SHOW", "PRAGMA", "DESCRIBE")

def migrate(prefix, revision, at):
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
    if revision == "0001":
        schema.downgrade(engine, Tables(prefix), revision)
    else:
        upgrade(engine, prefix=prefix)
    engine.dispose()

for line in sys.stdin:
    asked = json.loads(line)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            migrate(*asked)
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    print(json.dumps(os.waitstatus_to_exitcode(status)), flush=True)
"""


def differences(backend: Backend, tables: Tables, *, compare_type: bool = False) -> list[Any]:
    """What is in the database beside the tables that the code describes, or is not there."""

    def is_ours(_: object, name: str | None, kind: str, *__: object) -> bool:
        return kind != "table" or (name or "").startswith(tables.prefix)

    with backend.admin.connect() as connection:
        options = {
            "version_table": tables.version,
            "include_object": is_ours,
            "compare_type": compare_type,
        }
        context = MigrationContext.configure(connection, opts=options)
        return list(compare_metadata(context, tables.metadata))


def later_parts(connection: Connection, tables: Tables) -> int:
    """Return how many of the table, column and index of the next release there are."""
    found = inspect(connection)
    names = [column["name"] for column in found.get_columns(tables.keys.name)]
    names += [str(index["name"]) for index in found.get_indexes(tables.keys.name)]
    later = sum(name.endswith("later") for name in names)
    return later + found.has_table(f"{tables.prefix}later")


class Migrations:
    """Runs migrations in processes of their own that are killed at a statement."""

    def __init__(self, url: str) -> None:
        arguments = [sys.executable, "-W", "error", "-c", KILLED]
        self._process = subprocess.Popen(
            [*arguments, url, schema.SCRIPTS, *schema.RELEASE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def killed(self, prefix: str, revision: str, at: int) -> bool:
        """Migrate until that statement, then let another process complete it.

        Returns whether there was such a statement.
        """
        is_killed = self._migrate(prefix, revision, at)
        assert not self._migrate(prefix, revision, 10_000), "it completes what was begun"
        return is_killed

    def _migrate(self, *asked: object) -> bool:
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps(asked), file=self._process.stdin, flush=True)
        code = json.loads(self._process.stdout.readline())
        assert code in {0, -9}
        return bool(code)

    def close(self) -> None:
        self._process.communicate()


def test_migrations_killed_at_any_statement_are_completed_by_the_next(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Between this release's revision and one that the next release may have, and back."""
    tables = Tables("killed_")
    schema.upgrade(backend.admin, tables)
    row = write_key(draft_of(new_key()).created(NOW))
    with backend.admin.begin() as connection:
        connection.execute(insert(tables.organizations), {"id": row["organization"]})
        connection.execute(insert(tables.keys), row)
    monkeypatch.setattr(schema, "RELEASE", NEXT)
    monkeypatch.setattr(schema, "SCRIPTS", scripts(tmp_path))
    migrations = Migrations(backend.url)
    at, are_killed = 0, [True]
    while any(are_killed):
        are_killed.clear()
        for expected in (EXPANDED, Revision("0001", "0001")):
            are_killed.append(migrations.killed(tables.prefix, expected.number, at))
            with backend.admin.connect() as connection:
                assert schema.current(connection, tables) == expected
                kept = connection.execute(select(tables.keys)).mappings().one()
                assert later_parts(connection, tables) == (3 if expected == EXPANDED else 0)
            assert {**kept} == row
        at += 1
    migrations.close()
    assert at > 5
    assert differences(backend, tables) == []
    schema.downgrade(backend.admin, tables, "base")


def test_an_upgrade_killed_before_its_first_revision_is_completed() -> None:
    """The version table and the tables of the first revision may be there, without a revision."""
    backend = BACKENDS["mysql"]
    migrations = Migrations(backend.url)
    is_killed, at = True, 0
    while is_killed:
        tables = Tables(f"new_{at}_")
        is_killed = migrations.killed(tables.prefix, "head", at)
        with backend.admin.connect() as connection:
            assert schema.current(connection, tables) == Revision("0001", "0001")
        assert differences(backend, tables) == []
        tables.metadata.drop_all(backend.admin)  # It takes less time than to migrate back.
        at += 6
    migrations.close()
    assert at > 20
