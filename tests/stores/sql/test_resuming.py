"""An upgrade killed between two statements is completed by the next upgrade."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import inspect, select, text

from lockgate.core.key_format import NewKey
from lockgate.stores.sql import schema
from lockgate.stores.sql.codec import write_id, write_key
from lockgate.stores.sql.tables import Tables

from ..making import NOW, draft_of, new_key
from .backends import BACKENDS, Backend

# Forks, and its child kills itself before a statement that changes something, or before a commit.
KILLED = """
import json, os, signal, sys
from sqlalchemy import event
import alembic.command  # Once, for every child.
from lockgate.migrations import upgrade
from lockgate.core.key_format import NewKey
from lockgate.stores.sql import schema
from lockgate.stores.sql.engines import blocking_engine
from lockgate.stores.sql.tables import Tables

url, back = sys.argv[1], sys.argv[2] == "back"
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
    if back:
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


class Migrations:
    """Runs migrations in processes of their own that are killed at a statement."""

    def __init__(self, url: str, direction: str) -> None:
        arguments = [sys.executable, "-W", "error", "-c", KILLED, url, direction]
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


def fill(backend: Backend, tables: Tables, made: NewKey) -> None:
    """Insert a key that was revoked, as revision 0001 keeps it."""
    draft = draft_of(made)
    row = write_key(draft.created(NOW)._replace(revoked_at=NOW + 7))
    with backend.admin.begin() as connection:
        keys = f"{tables.prefix}keys"
        names = [column["name"] for column in inspect(connection).get_columns(keys)]
        owner = text(f"INSERT INTO {tables.prefix}organizations (id) VALUES (:id)")
        connection.execute(owner, {"id": write_id(draft.organization)})
        values = ", ".join(f":{name}" for name in names)
        statement = text(f"INSERT INTO {keys} ({', '.join(names)}) VALUES ({values})")
        connection.execute(statement, {name: row[name] for name in names})


def drop(backend: Backend, tables: Tables) -> None:
    """Drop the tables, which takes less time than to migrate back."""
    tables.metadata.drop_all(backend.admin)
    with backend.admin.begin() as connection:
        connection.execute(text(f"DROP TABLE {tables.version}"))


def check_complete(backend: Backend, tables: Tables) -> None:
    """Check that the tables equal the code's description, with their data in place."""
    prefix = tables.prefix

    def is_ours(_: object, name: str | None, kind: str, *__: object) -> bool:
        return kind != "table" or (name or "").startswith(prefix)

    with backend.admin.connect() as connection:
        assert schema.current(connection, tables) == schema.Revision(schema.RELEASE.newest, "0009")
        options = {"version_table": tables.version, "include_object": is_ours}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, tables.metadata) == []
        assert connection.scalars(select(tables.keys.c.ends_at)).all() == [NOW + 7]


@pytest.mark.parametrize(
    "step", [pytest.param(1, marks=pytest.mark.campaign), 29], ids=["every", "some"]
)
@pytest.mark.parametrize("direction", ["forward", "back"])
def test_migrations_killed_at_any_statement_are_completed_by_the_next(
    backend: Backend, direction: str, step: int
) -> None:
    migrations = Migrations(backend.url, direction)
    at = 0
    while True:
        tables = Tables(f"killed_{at}_")
        schema.upgrade(backend.admin, tables, "0001")
        fill(backend, tables, new_key())
        if direction == "back":
            schema.upgrade(backend.admin, tables)
        killed = migrations.killed(tables.prefix, at)
        assert not migrations.killed(tables.prefix, 10_000), "it completes what was begun"
        if direction == "back":
            with backend.admin.connect() as connection:
                assert schema.current(connection, tables) == schema.Revision("0001", "0001")
            schema.upgrade(backend.admin, tables)
        check_complete(backend, tables)
        drop(backend, tables)
        if not killed:
            break
        at += step
    migrations.close()
    assert at > 20


def test_an_upgrade_killed_before_its_first_revision_is_completed() -> None:
    """The version table and the tables of the first revision may be there, without a revision."""
    backend = BACKENDS["mysql"]
    migrations = Migrations(backend.url, "forward")
    for at in (0, 3, 7):
        tables = Tables(f"new_{at}_")
        assert migrations.killed(tables.prefix, at)
        assert not migrations.killed(tables.prefix, 10_000)
        drop(backend, tables)
    migrations.close()


def test_tables_of_another_owner_are_not_taken_over(served: Backend) -> None:
    with served.admin.begin() as connection:
        connection.execute(text("CREATE TABLE foreign_organizations (id INTEGER PRIMARY KEY)"))
    with pytest.raises(Exception, match=r"(?i)already exists"):
        schema.upgrade(served.admin, Tables("foreign_"))
    with served.admin.begin() as connection:
        columns = inspect(connection).get_columns("foreign_organizations")
        assert [column["name"] for column in columns] == ["id"]
        connection.execute(text("DROP TABLE foreign_organizations"))
