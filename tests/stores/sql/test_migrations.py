"""Upgrades of the tables, also beside one another and beside the Alembic of a host."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import Column, Engine, Integer, MetaData, Table, inspect, make_url, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from lockgate import ConfigurationError, migrations, open_store, run
from lockgate.cli import main
from lockgate.stores.sql import databases, schema
from lockgate.stores.sql.databases import database_of
from lockgate.stores.sql.engines import blocking_engine
from lockgate.stores.sql.tables import Tables

from ..making import NOW, at_once, draft
from .backends import BACKENDS, Backend, await_locks, database, driver_of
from .test_resuming import differences

NEWEST = schema.Revision(schema.RELEASE.newest, schema.RELEASE.newest)


@pytest.fixture
def url(backend: Backend) -> str:
    """An empty database."""
    return database(backend.kind)


ENV = """
from alembic import context

options = context.config.attributes
with options["engine"].connect() as connection:
    context.configure(
        connection=connection,
        target_metadata=options["metadata"],
        include_object=options["include_object"],
    )
    with context.begin_transaction():
        context.run_migrations()
"""
SCRIPT = '''
"""${message}"""
from alembic import op
import sqlalchemy as sa
revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
def upgrade():
    ${upgrades if upgrades else "pass"}
def downgrade():
    ${downgrades if downgrades else "pass"}
'''


class Host:
    """A project with its own Alembic scripts."""

    def __init__(self, folder: Path, engine: Engine, include_object: Callable[..., bool]) -> None:
        (folder / "versions").mkdir(parents=True)
        (folder / "env.py").write_text(ENV)
        (folder / "script.py.mako").write_text(SCRIPT)
        self.metadata = MetaData()
        self.config = Config()
        self.config.set_main_option("script_location", str(folder))
        self.config.set_main_option("path_separator", "os")
        self.config.attributes.update(
            engine=engine, metadata=self.metadata, include_object=include_object
        )

    def autogenerate(self) -> str:
        """Write a revision from the difference to the database, and apply it."""
        script: Any = command.revision(self.config, "next", autogenerate=True)
        command.upgrade(self.config, "head")
        return Path(script.path).read_text()


@pytest.mark.parametrize(
    ("kind", "prefix"), [("sqlite", "lockgate_"), ("postgresql", ""), ("mysql", "auth_")]
)
def test_the_hosts_own_history_and_that_of_lockgate_leave_one_anothers_tables_alone(
    kind: str, prefix: str, tmp_path: Path
) -> None:
    engine, tables = blocking_engine(database(kind)), Tables(prefix)
    migrations.upgrade(engine, prefix=prefix)
    is_default = prefix == "lockgate_"
    chosen = migrations.include_object if is_default else migrations.include_object_for(prefix)
    host = Host(tmp_path / "host", engine, chosen)
    users = Table("users", host.metadata, Column("id", Integer, primary_key=True))
    own = Table(f"{prefix}invoices", host.metadata, Column("id", Integer, primary_key=True))
    created = host.autogenerate()
    for table in (users, own):
        assert f"create_table('{table.name}'" in created
    assert "drop" not in created.partition("def downgrade")[0]
    users.append_column(Column("plan", Integer))
    changed = host.autogenerate()
    assert "add_column('users'" in changed
    assert "drop" not in changed.partition("def downgrade")[0]
    host.metadata.remove(users)
    assert "drop_table('users')" in host.autogenerate()
    with engine.connect() as connection:
        assert schema.current(connection, tables) == NEWEST
        assert set(tables.metadata.tables) < set(inspect(connection).get_table_names())
        theirs = text("SELECT version_num FROM alembic_version")
        history = connection.scalar(theirs)
    schema.downgrade(engine, tables, "base")
    with engine.connect() as connection:
        assert schema.current(connection, tables) is None
        left = {"alembic_version", own.name, tables.version}
        assert {*inspect(connection).get_table_names()} == left
        assert connection.scalar(theirs) == history
    engine.dispose()


REVISION = """
from alembic import op
from sqlalchemy import Column, Integer
from lockgate import migrations

revision = "1"
down_revision = None


def upgrade():
    op.create_table("users", Column("id", Integer, primary_key=True))
    for target in (op.get_bind(), op.get_bind().engine):
        try:
            migrations.upgrade(target)
        except Exception as failure:
            op.get_context().config.attributes["failures"].append(failure)
    op.create_table("invoices", Column("id", Integer, primary_key=True))
"""


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_revision_of_the_host_that_upgrades_is_told_to_make_it_a_step_of_its_own(
    kind: str, tmp_path: Path
) -> None:
    """It changes nothing of lockgate, and the host's own upgrade goes on."""
    engine = blocking_engine(database(kind))
    host = Host(tmp_path / "host", engine, migrations.include_object)
    (tmp_path / "host" / "versions" / "1.py").write_text(REVISION)
    failures = host.config.attributes["failures"] = []
    command.upgrade(host.config, "head")
    assert [type(failure) for failure in failures] == [ConfigurationError] * 2
    for failure in failures:
        assert "'lockgate db upgrade' as a step of its own" in str(failure)
    own = {"alembic_version", "users", "invoices"}
    assert {*inspect(engine).get_table_names()} == own
    migrations.upgrade(engine)
    command.upgrade(host.config, "head")
    with engine.connect() as connection:
        assert schema.current(connection, Tables()) == NEWEST
    assert own < {*inspect(engine).get_table_names()}
    engine.dispose()


def test_upgrade_takes_a_url_an_engine_or_a_connection(url: str) -> None:
    migrations.upgrade(url)
    engine = blocking_engine(url)
    migrations.upgrade(engine)
    with engine.connect() as connection:
        migrations.upgrade(connection)
        assert not connection.in_transaction()
        connection.execute(text("SELECT 1"))
        with pytest.raises(ConfigurationError, match="open transaction"):
            migrations.upgrade(connection)
        assert schema.current(connection, Tables()) == NEWEST
    engine.dispose()


@pytest.mark.parametrize("driver", ["postgresql+asyncpg", "postgresql+psycopg", "mysql+asyncmy"])
async def test_upgrade_runs_on_a_connection_of_an_asynchronous_engine(driver: str) -> None:
    backend = driver_of(driver)
    engine = backend.awaiting(driver)
    async with engine.connect() as connection:
        await connection.run_sync(migrations.upgrade)
        found = await connection.run_sync(schema.current, Tables())
    assert found == NEWEST
    await engine.dispose()
    schema.downgrade(backend.admin, Tables(), "base")


def test_threads_upgrade_different_databases_at_the_same_time() -> None:
    """Alembic has one migration of the process in its global names."""
    urls = [database("sqlite") for _ in range(4)]
    at_once(len(urls), lambda index: migrations.upgrade(urls[index]))
    for url in urls:
        engine = blocking_engine(url)
        with engine.connect() as connection:
            found = schema.current(connection, Tables())
        assert found == NEWEST
        engine.dispose()


async def test_a_second_upgrade_in_an_event_loop_is_refused_and_changes_nothing() -> None:
    """It cannot wait for the first one, which goes on in the same thread."""
    urls = [make_url(database("postgresql")) for _ in range(2)]
    engines = [create_async_engine(url.set(drivername="postgresql+asyncpg")) for url in urls]

    async def upgrade(engine: AsyncEngine) -> schema.Revision | None:
        async with engine.connect() as connection:
            with suppress(ConfigurationError):
                await connection.run_sync(migrations.upgrade)
            await connection.rollback()
            return await connection.run_sync(schema.current, Tables())

    found = await asyncio.gather(*(upgrade(engine) for engine in engines))
    assert {*found} == {None, NEWEST}
    assert [await upgrade(engine) for engine in engines] == [NEWEST, NEWEST]
    for engine in engines:
        await engine.dispose()


def test_several_processes_may_upgrade_at_once(backend: Backend) -> None:
    tables, engine = Tables("race_"), backend.blocking()
    at_once(4, lambda _: schema.upgrade(engine, tables))
    engine.dispose()
    with backend.admin.connect() as connection:
        assert schema.current(connection, tables) == NEWEST
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


def test_the_migrations_make_the_tables_that_the_code_describes(backend: Backend) -> None:
    tables = Tables("same_")
    schema.upgrade(backend.admin, tables)
    assert differences(backend, tables, compare_type=True) == []
    schema.downgrade(backend.admin, tables, "base")


def test_tables_of_another_owner_are_not_taken_over(served: Backend) -> None:
    with served.admin.begin() as connection:
        connection.execute(text("CREATE TABLE foreign_organizations (id INTEGER PRIMARY KEY)"))
    with pytest.raises(Exception, match=r"(?i)already exists"):
        schema.upgrade(served.admin, Tables("foreign_"))
    with served.admin.begin() as connection:
        columns = inspect(connection).get_columns("foreign_organizations")
        assert [column["name"] for column in columns] == ["id"]
        connection.execute(text("DROP TABLE foreign_organizations"))


def test_an_upgrade_of_postgresql_waits_for_another_upgrade_beyond_the_lock_timeout() -> None:
    admin = BACKENDS["postgresql"].admin
    engine = blocking_engine(BACKENDS["postgresql"].by(query={"options": "-c lock_timeout=1"}))
    with ThreadPoolExecutor(1) as pool, admin.connect() as connection:
        with database_of(admin.dialect).alone(connection):
            upgraded = pool.submit(schema.upgrade, engine, Tables("hasty_"))
            await_locks(admin)
        connection.rollback()
        upgraded.result()
    with engine.connect() as connection:
        assert schema.current(connection, Tables("hasty_")) == NEWEST
    engine.dispose()


def test_an_upgrade_of_mariadb_waits_until_another_upgrade_is_complete(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    backend = BACKENDS["mysql"]
    monkeypatch.setattr(databases, "SCHEMA_PATIENCE", 0)
    with (
        backend.admin.connect() as connection,
        database_of(backend.admin.dialect).alone(connection),
    ):
        assert main(["db", "upgrade", "--store", backend.url, "--prefix", "twice_"]) == 3
    assert "try again" in capsys.readouterr().err


@pytest.mark.parametrize("prefix", ["1a", "a-b", "A", "a" * 31, 'a"; DROP TABLE x'])
def test_an_invalid_prefix_is_refused(prefix: str) -> None:
    with pytest.raises(ConfigurationError, match="prefix"):
        Tables(prefix)
