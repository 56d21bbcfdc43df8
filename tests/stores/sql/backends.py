"""The SQL databases that the tests run on, and empty stores in them."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from functools import cache
from itertools import count
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from sqlalchemy import Engine, create_engine, delete, event, make_url, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from lockgate.stores.sql import SqlStore
from lockgate.stores.sql.engines import blocking_engine
from lockgate.stores.sql.schema import upgrade
from lockgate.stores.sql.tables import Tables
from tests.servers import shared

_folders = ExitStack()
_databases = count()


@cache
def _folder() -> Path:
    return Path(_folders.enter_context(tempfile.TemporaryDirectory(prefix="lockgate-sqlite-")))


def close_backends() -> None:
    """Close the tests' engines. Whatever comes later has new databases."""
    for backend in BACKENDS.values():
        backend.close()
    _folders.close()
    _folder.cache_clear()


def database(kind: str) -> str:
    """The URL of a fresh and empty database."""
    name = f"test{next(_databases)}"
    if kind == "sqlite":
        return f"sqlite:///{_folder()}/{name}.db?mode=rwc"
    return shared(kind).create(name)


def driver_of(driver: str) -> Backend:
    """The database that a driver is for, as of ``postgresql+asyncpg``."""
    return BACKENDS[driver.partition("+")[0]]


def _may_be_idle(connection: Any, _: object) -> None:
    """Let a test hold locks for as long as a busy machine takes."""
    connection.execute("SET idle_in_transaction_session_timeout = 0")
    connection.commit()


class Backend:
    """A database with tables emptied for each test, which is faster than creating them again."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._admin: Engine | None = None
        self._idle: list[Tables] = []
        self._numbers = count()

    @property
    def url(self) -> str:
        url = str(self.admin.url.render_as_string(hide_password=False))
        return f"{url}?mode=rwc" if self.kind == "sqlite" else url

    @property
    def admin(self) -> Engine:
        """An engine to look into the tables with."""
        if self._admin is None:
            self._admin = blocking_engine(database(self.kind))
            if self.kind == "postgresql":
                event.listen(self._admin, "connect", _may_be_idle)
        return self._admin

    def take(self) -> Tables:
        """Empty tables without other users."""
        if not self._idle:
            tables = Tables(f"t{next(self._numbers)}_")
            upgrade(self.admin, tables)
            return tables
        tables = self._idle.pop()
        with self.admin.begin() as connection:
            for table in reversed(tables.metadata.sorted_tables):
                connection.execute(delete(table))
        return tables

    def give(self, tables: Tables) -> None:
        self._idle.append(tables)

    def by(self, driver: str = "", query: dict[str, str] | None = None, **parts: Any) -> str:
        """The URL of the database, by another driver, with more options, or with other parts."""
        url = make_url(self.url).update_query_dict(query or {})
        if driver:
            url = url.set(drivername=driver)
        return url.set(**parts).render_as_string(hide_password=False)

    def open(
        self, source: Any = None, *, beside: Borrowed | None = None, **options: Any
    ) -> Borrowed:
        """An empty store, or another one beside a store, on its tables.

        Args:
            source: a URL, or an engine, which is disposed of with the store; default: the URL.
        """
        tables = self.take() if beside is None else beside.tables
        own = beside is None
        return Borrowed(source or self.url, self, tables, own=own, **options)

    def blocking(self, *, port: int | None = None, **options: Any) -> Engine:
        """An engine as a host has one, on this port or the server's."""
        return create_engine(self.admin.url.set(port=port or self.admin.url.port), **options)

    def awaiting(self, driver: str, *, port: int | None = None, **options: Any) -> AsyncEngine:
        url = self.admin.url.set(drivername=driver, port=port or self.admin.url.port)
        return create_async_engine(url, **options)

    def close(self) -> None:
        if self._admin is not None:
            self._admin.dispose()
        self._admin = None
        self._idle.clear()


async def dispose(engine: object) -> None:
    if isinstance(engine, Engine):
        engine.dispose()
    elif isinstance(engine, AsyncEngine):
        await engine.dispose()


class Borrowed(SqlStore):
    """A store on tables that others use after it."""

    def __init__(
        self, source: Any, backend: Backend, tables: Tables, *, own: bool = True, **options: Any
    ) -> None:
        super().__init__(source, prefix=tables.prefix, **options)
        self.tables = tables
        self._source = source
        self._lender = backend if own else None

    async def close(self) -> None:
        await super().close()
        await dispose(self._source)
        if self._lender is not None:
            self._lender.give(self.tables)
            self._lender = None


def await_locks(admin: Engine, callers: int = 1) -> None:
    """Wait until a number of transactions wait for row locks of a server."""
    waiting = (
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        if admin.dialect.name == "postgresql"
        else "SELECT count(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"
    )
    until = monotonic() + 60
    while True:
        with admin.connect() as connection:
            if (connection.scalar(text(waiting)) or 0) >= callers:
                return
        assert monotonic() < until, "nobody waits"
        sleep(0.15)  # InnoDB looks anew only if nobody has asked for 0.1 s.


BACKENDS = {kind: Backend(kind) for kind in ("sqlite", "postgresql", "mysql")}
