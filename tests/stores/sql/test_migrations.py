"""Release scripts, and the Alembic of a host that keeps lockgate's tables in its own database."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import Column, Engine, Integer, MetaData, Table, inspect, make_url, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from lockgate import ConfigurationError, migrations
from lockgate.stores.sql import OutdatedSchema, schema
from lockgate.stores.sql.engines import blocking_engine
from lockgate.stores.sql.tables import Tables
from lockgate.testing.checks import in_threads

from .backends import BACKENDS, Backend, database

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


@pytest.mark.parametrize("prefix", ["lockgate_", "auth_", ""])
def test_autogenerate_of_the_host_leaves_the_tables_alone(
    url: str, prefix: str, tmp_path: Path
) -> None:
    engine = blocking_engine(url)
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
    tables = Tables(prefix)
    with engine.connect() as connection:
        found = schema.current(connection, tables)
        assert set(tables.metadata.tables) < set(inspect(connection).get_table_names())
    assert found is not None and found.number == schema.RELEASE.newest
    engine.dispose()


def test_autogenerate_without_the_filter_would_drop_the_tables(tmp_path: Path) -> None:
    engine = blocking_engine(f"sqlite:///{tmp_path}/app.db")
    migrations.upgrade(engine)
    host = Host(tmp_path / "host", engine, lambda *_: True)
    assert "drop_table('lockgate_keys')" in host.autogenerate()
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
    backend = BACKENDS[driver.partition("+")[0]]
    engine = create_async_engine(backend.admin.url.set(drivername=driver))
    async with engine.connect() as connection:
        await connection.run_sync(migrations.upgrade)
        found = await connection.run_sync(schema.current, Tables())
    assert found == NEWEST
    await engine.dispose()
    schema.downgrade(backend.admin, Tables(), "base")


def test_threads_upgrade_different_databases_at_the_same_time() -> None:
    """Alembic has one migration of the process in its global names."""
    urls = [database("sqlite") for _ in range(4)]
    in_threads(len(urls), lambda index: migrations.upgrade(urls[index]))
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


def test_upgrade_leaves_tables_of_a_newer_release_alone_and_refuses_those_it_cannot_read(
    url: str,
) -> None:
    engine = blocking_engine(url)
    migrations.upgrade(engine)
    newest = schema.RELEASE.newest
    for oldest in (newest, "0099"):
        with engine.begin() as connection:
            values = f"version_num = '0099', oldest_reader = '{oldest}'"
            connection.execute(text(f"UPDATE lockgate_version SET {values}"))
        if oldest == newest:
            migrations.upgrade(engine)
        else:
            with pytest.raises(OutdatedSchema, match="install"):
                migrations.upgrade(engine)
    engine.dispose()
