"""The SQL databases that the tests run on, and empty stores in them."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from functools import cache
from itertools import count
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from sqlalchemy import Engine, create_engine, delete, event, text

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
    """Close the tests' engines."""
    for backend in BACKENDS.values():
        backend.close()
    _folders.close()


def database(kind: str) -> str:
    """The URL of a fresh and empty database."""
    name = f"test{next(_databases)}"
    if kind == "sqlite":
        return f"sqlite:///{_folder()}/{name}.db?mode=rwc"
    return shared(kind).create(name)


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

    def open(self, *, blocking: bool = False, **options: Any) -> Borrowed:
        """An empty store: from a URL, or from an engine that blocks."""
        tables = self.take()
        engine = create_engine(self.admin.url) if blocking else None
        source = engine or self.admin.url.render_as_string(hide_password=False)
        return Borrowed(source, self, tables, engine, **options)

    def close(self) -> None:
        if self._admin is not None:
            self._admin.dispose()


class Borrowed(SqlStore):
    def __init__(
        self, source: Any, backend: Backend, tables: Tables, engine: Engine | None, **options: Any
    ) -> None:
        super().__init__(source, prefix=tables.prefix, **options)
        self._backend = backend
        self.tables = tables
        self._engine = engine
        self.closed = False

    async def close(self) -> None:
        await super().close()
        if self._engine is not None:
            self._engine.dispose()
        if not self.closed:
            self.closed = True
            self._backend.give(self.tables)


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
