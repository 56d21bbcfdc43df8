"""What differs between the databases: beginning, the clock, and which failures may be tried again.

Every transaction that writes begins by taking its lock, and only then looks at anything. That makes
READ COMMITTED enough, and REPEATABLE READ as good: MariaDB takes its snapshot at the first plain
read, which comes after the lock; SQLite has one writer, who says so with ``BEGIN IMMEDIATE``.
"""

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from time import sleep
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Dialect,
    Insert,
    Integer,
    Table,
    literal_column,
    select,
    text,
)
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError, OperationalError

from ...errors import ConfigurationError
from ..memory.windows import wall_clock
from .statements import Cursor, Rows, Statements, Written, filled, places_for

_SERIALIZATION_FAILURE: Final = "40001"
_DEADLOCK_DETECTED: Final = "40P01"
_MYSQL_DEADLOCK: Final = 1213
_MARIADB_CHANGED: Final = 1020
"""Under a snapshot (innodb_snapshot_isolation, from 11.6 on by default), what was read is old."""

_SCHEMA_LOCK: Final = 7_033_177_426
"""A number of our own among the advisory locks of the database."""
_SCHEMA_PATIENCE: Final = 60
"""Seconds to wait for whoever else changes the tables."""
_POSTGRESQL_CLOCK: Final = "(extract(epoch from clock_timestamp()) * 1000000)::bigint"
_MYSQL_CLOCK: Final = "timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))"

_MYSQL_LEVEL: Final = "READ COMMITTED"

_CLOCK: Final = 15
"""The column of the clock, after those of a key."""
_BEGIN: Final = "BEGIN IMMEDIATE"
_WAL_ATTEMPTS: Final = 100
_WAL_PAUSE: Final = 0.05
"""Seconds; with the attempts, as long as any other lock is waited for."""


class Held(NamedTuple):
    """What a transaction holds, and when it looked."""

    owners: Rows
    """Organizations, in the last columns of their rows."""
    keys: Rows
    """Keys, in the first columns of theirs."""
    clock: int | None


class Database(ABC):
    """A kind of database. This one is what the kinds have in common."""

    isolation: str | None = None
    """What to ask the user's own engine for, where that costs no round trip."""

    clock: ColumnElement[Any]
    """The server's clock, in microseconds, when its row is read (D27)."""

    def begin(self, connection: Connection) -> None:
        """Begin a transaction that will write; here its first statement does."""
        connection.begin()

    def begin_charging(self, cursor: Cursor) -> None:
        """Begin a transaction on the driver itself; here its first statement does."""
        return

    @contextmanager
    def making(self, transaction: Connection | DBAPIConnection) -> Generator[None]:
        """While this is open, make rows that were looked for in vain; then look for them again.

        Here the transaction that looked for them makes them.
        """
        yield

    def prepare(self, connection: Connection) -> None:
        """Set what stays with the database, before its first table; here nothing does."""
        return

    @contextmanager
    def alone(self, connection: Connection) -> Generator[None]:
        """Let no other process change the schema meanwhile."""
        yield

    @abstractmethod
    def hold(self, cursor: Cursor, owners: Sequence[bytes], handles: Sequence[str]) -> Held:
        """Lock organizations, then read them and keys of theirs, then the clock.

        A key may be read twice, and one of another organization not at all.
        """

    def now(self, connection: Connection) -> int:
        """The server's clock, in microseconds (D27)."""
        return int(connection.execute(select(self.clock)).scalar_one())

    def writing(self, statements: Statements) -> Sequence[Written]:
        """How to write windows and usage."""
        return statements.keep, statements.use

    @abstractmethod
    def insert_missing(self, table: Table) -> Insert:
        """An insert that passes over a row whose key is there already."""

    def passing(self, failure: Exception) -> bool:
        """Whether the server undid the transaction only because another was in its way."""
        return False

    def busy(self, failure: Exception) -> bool:
        """Whether the database was locked as a whole, for as long as its driver would wait."""
        return False


class Sqlite(Database):
    """A file that the processes of one machine share: its clock is theirs."""

    clock = literal_column("0", Integer())  # Not asked for: it is that of this process.

    def begin(self, connection: Connection) -> None:
        connection.begin()
        raw = _free(connection.connection.driver_connection)
        raw.execute(_BEGIN)

    def begin_charging(self, cursor: Cursor) -> None:
        _free(cursor.driver)
        cursor.say(_BEGIN)

    def prepare(self, connection: Connection) -> None:
        # In a write-ahead log readers and the writer do not wait for each other. Unlike for any
        # other lock SQLite does not wait for this one, and many may open a new file at once.
        for attempt in range(_WAL_ATTEMPTS):
            try:
                connection.exec_driver_sql("PRAGMA journal_mode=WAL").scalar()
                return
            except OperationalError as failure:
                if not self.busy(failure) or attempt == _WAL_ATTEMPTS - 1:
                    raise
                sleep(_WAL_PAUSE)
            finally:
                connection.rollback()

    def hold(self, cursor: Cursor, owners: Sequence[bytes], handles: Sequence[str]) -> Held:
        return _joined(cursor, cursor.statements.both, owners, handles, wall_clock)

    def now(self, connection: Connection) -> int:
        return wall_clock()

    def insert_missing(self, table: Table) -> Insert:
        return sqlite.insert(table).on_conflict_do_nothing()

    def busy(self, failure: Exception) -> bool:
        cause = failure.orig if isinstance(failure, DBAPIError) else failure
        return str(getattr(cause, "sqlite_errorname", "")).startswith("SQLITE_BUSY")


class Postgresql(Database):
    """PostgreSQL 12 or later."""

    isolation = "READ COMMITTED"
    # Not now(): that is when the transaction began, before it waited for its lock.
    clock = literal_column(_POSTGRESQL_CLOCK, BigInteger())

    @contextmanager
    def alone(self, connection: Connection) -> Generator[None]:
        # Longer than for any other lock: a table may be large. Nobody waits for who waits here.
        connection.execute(text(f"SET LOCAL lock_timeout = {_SCHEMA_PATIENCE * 1000}"))
        connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": _SCHEMA_LOCK})
        connection.execute(text("SET LOCAL lock_timeout TO DEFAULT"))
        yield

    def hold(self, cursor: Cursor, owners: Sequence[bytes], handles: Sequence[str]) -> Held:
        return _joined(cursor, cursor.statements.lock_both, owners, handles)

    def writing(self, statements: Statements) -> Sequence[Written]:
        return (statements.keep_and_use,)

    def insert_missing(self, table: Table) -> Insert:
        return postgresql.insert(table).on_conflict_do_nothing()

    def passing(self, failure: Exception) -> bool:
        cause = failure.orig if isinstance(failure, DBAPIError) else failure
        state = getattr(cause, "sqlstate", None)
        return state in {_SERIALIZATION_FAILURE, _DEADLOCK_DETECTED}


class Mysql(Database):
    """MariaDB 10.6 or later, MySQL 8 or later."""

    # From UTC: a local time occurs twice when summer time ends. It is the time at which its
    # statement began, so it is never asked for by the one that waits for the lock.
    clock = literal_column(_MYSQL_CLOCK, BigInteger())

    def begin(self, connection: Connection) -> None:
        _joining(connection)
        connection.begin()

    def begin_charging(self, cursor: Cursor) -> None:
        _joining(cursor.connection)

    @contextmanager
    def making(self, transaction: Connection | DBAPIConnection) -> Generator[None]:
        # Under REPEATABLE READ, the default, who looked for a row in vain keeps all others from
        # making theirs beside it: two of them would wait for each other.
        transaction.rollback()
        yield
        transaction.commit()

    @contextmanager
    def alone(self, connection: Connection) -> Generator[None]:
        # Held by the session, because each change of a table commits.
        lock = {"name": f"lockgate {_SCHEMA_LOCK}"}
        wait = {**lock, "seconds": _SCHEMA_PATIENCE}
        if connection.scalar(text("SELECT GET_LOCK(:name, :seconds)"), wait) != 1:
            raise TimeoutError("Another process changes the tables of lockgate: try again later.")
        try:
            yield
        finally:
            connection.rollback()
            connection.execute(text("SELECT RELEASE_LOCK(:name)"), lock)
            connection.rollback()

    def hold(self, cursor: Cursor, owners: Sequence[bytes], handles: Sequence[str]) -> Held:
        places = places_for(len(owners))
        locked = cursor.rows(cursor.statements.lock, places, filled(places, o=owners))
        places = places_for(len(handles))
        rows = cursor.rows(cursor.statements.find, places, filled(places, h=handles))
        return Held(locked, rows, rows[0][_CLOCK] if rows else None)

    def insert_missing(self, table: Table) -> Insert:
        key = next(iter(table.primary_key.columns))
        return mysql.insert(table).on_duplicate_key_update({key.name: key})

    def passing(self, failure: Exception) -> bool:
        cause = failure.orig if isinstance(failure, DBAPIError) else failure
        code = cause.args[0] if cause is not None and cause.args else None
        return code in {_MYSQL_DEADLOCK, _MARIADB_CHANGED}


def _joining(connection: Connection) -> None:
    """See that statements make one transaction on a connection that begins none by itself.

    The host may have its engine commit each statement: a lock would be gone before anything is
    read. To ask for another level takes round trips, so it is done only there.
    """
    driver = connection.connection.dbapi_connection
    assert driver is not None, "the connection is open"
    if connection.dialect.detect_autocommit_setting(driver):
        connection.execution_options(isolation_level=_MYSQL_LEVEL)


def _free(driver: object) -> sqlite3.Connection:
    """SQLite's connection, in no transaction.

    The host may have its engine begin transactions of its own accord, as SQLAlchemy's documentation
    shows it: such a one has no lock yet.
    """
    assert isinstance(driver, sqlite3.Connection), "SQLAlchemy knows no other driver that blocks"
    if driver.in_transaction:
        driver.rollback()
    return driver


def _joined(
    cursor: Cursor,
    statement: Written,
    owners: Sequence[bytes],
    handles: Sequence[str],
    clock: Callable[[], int] | None = None,
) -> Held:
    """What a statement holds that gives organizations with the clock and their keys beside them."""
    if len(owners) == len(handles) == 1:
        rows = cursor.rows(statement, 1, {"o0": owners[0], "h0": handles[0]})
    else:
        places = places_for(max(len(owners), len(handles)))
        rows = cursor.rows(statement, places, filled(places, o=owners, h=handles))
    now = max([row[_CLOCK] for row in rows], default=None) if clock is None else clock()
    return Held(rows, [row for row in rows if row[0] is not None], now)


def database_of(dialect: Dialect) -> Database:
    """The kind of database that a dialect of SQLAlchemy speaks to.

    Raises:
        ConfigurationError: none that lockgate knows.
    """
    match dialect.name:
        case "sqlite":
            return Sqlite()
        case "postgresql":
            return Postgresql()
        case "mysql" | "mariadb":
            return Mysql()
        case other:
            raise ConfigurationError(
                f"lockgate keeps nothing in {other!r}: use sqlite, postgresql, mysql or mariadb."
            )
