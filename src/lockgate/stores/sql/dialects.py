"""What differs between the databases: beginning, the clock, and which failures may be tried again.

Every transaction that writes begins by taking its lock, and only then looks at anything. That makes
READ COMMITTED enough, and REPEATABLE READ as good: MariaDB takes its snapshot at the first plain
read, which comes after the lock; SQLite has one writer, who says so with ``BEGIN IMMEDIATE``.
"""

from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from time import sleep
from typing import Any, Final

from sqlalchemy import (
    Connection,
    Dialect,
    Insert,
    Table,
    TextClause,
    text,
)
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.engine.interfaces import DBAPICursor
from sqlalchemy.exc import DBAPIError, OperationalError

from ...errors import ConfigurationError
from ..local import wall_clock
from .tables import Statement

_SERIALIZATION_FAILURE: Final = "40001"
_DEADLOCK_DETECTED: Final = "40P01"
_MYSQL_DEADLOCK: Final = 1213

_SCHEMA_LOCK: Final = 7_033_177_426
"""A number of our own among the advisory locks of the database."""
_POSTGRESQL_CLOCK: Final = text("SELECT (extract(epoch from clock_timestamp()) * 1000000)::bigint")
_MYSQL_CLOCK: Final = text("SELECT timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))")

_WAL_ATTEMPTS: Final = 100
_WAL_PAUSE: Final = 0.05
"""Seconds; with the attempts, as long as any other lock is waited for."""

Rows = Sequence[Any]
Values = Mapping[str, Any]


class Hand:
    """Runs the statements of an admission on a connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def rows(self, statement: Statement, values: Values) -> Rows:
        """Run a statement and give its rows."""
        return self._connection.execute(statement, values).all()

    def many(self, statement: Statement, values: Sequence[Values]) -> None:
        """Run a statement that gives no rows, once for each of the values."""
        self._connection.execute(statement, values if len(values) > 1 else values[0])


class Flavour(ABC):
    """A kind of database. This one is what the kinds have in common."""

    isolation: str | None = None
    """What to ask the user's own engine for, where that costs no round trip."""

    def begin(self, connection: Connection) -> None:
        """Begin a transaction that will write; here its first statement does."""
        connection.begin()

    def prepare(self, connection: Connection) -> None:
        """Set what stays with the database, before its first table; here nothing does."""
        return

    @contextmanager
    def alone(self, connection: Connection) -> Generator[None]:
        """Let no other process change the schema meanwhile."""
        yield

    def hand(self, connection: Connection) -> Hand:
        """What runs the statements of an admission."""
        return Hand(connection)

    @abstractmethod
    def now(self, connection: Connection) -> int:
        """The server's clock, in microseconds (D27)."""

    @abstractmethod
    def insert_missing(self, table: Table) -> Insert:
        """An insert that passes over a row whose key is there already."""

    def passing(self, failure: Exception) -> bool:
        """Whether the server undid the transaction only because another was in its way."""
        return False


class Sqlite(Flavour):
    """A file that the processes of one machine share: its clock is theirs."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._compiled: dict[int, tuple[Statement, str, list[str]]] = {}

    def begin(self, connection: Connection) -> None:
        connection.begin()
        driver = connection.connection
        # The host may have its engine begin transactions of its own accord, as SQLAlchemy's
        # documentation shows it: such a one has no lock yet.
        if driver.driver_connection is not None and driver.driver_connection.in_transaction:
            driver.rollback()
        driver.cursor().execute("BEGIN IMMEDIATE")

    def prepare(self, connection: Connection) -> None:
        # In a write-ahead log readers and the writer do not wait for each other. Unlike for any
        # other lock SQLite does not wait for this one, and many may open a new file at once.
        for attempt in range(_WAL_ATTEMPTS):
            try:
                connection.exec_driver_sql("PRAGMA journal_mode=WAL").scalar()
                return
            except OperationalError as failure:
                if not _is_busy(failure) or attempt == _WAL_ATTEMPTS - 1:
                    raise
                sleep(_WAL_PAUSE)
            finally:
                connection.rollback()

    def hand(self, connection: Connection) -> Hand:
        return _DriverHand(connection, self)

    def now(self, connection: Connection) -> int:
        return wall_clock()

    def insert_missing(self, table: Table) -> Insert:
        return sqlite.insert(table).on_conflict_do_nothing()

    def compiled(self, statement: Statement) -> tuple[str, list[str]]:
        """A statement as text, and the names of its values in their order."""
        found = self._compiled.get(id(statement))
        if found is None:
            compiled = statement.compile(dialect=self._dialect)
            order = compiled.positiontup or []
            found = self._compiled[id(statement)] = (statement, str(compiled), [*order])
        return found[1], found[2]


class _DriverHand(Hand):
    """Speaks to SQLite's driver directly.

    A statement takes SQLite 4 us and SQLAlchemy 25 us, and nothing is lost: there are no types
    to convert here, and no server that could go away.
    """

    def __init__(self, connection: Connection, flavour: Sqlite) -> None:
        self._cursor: DBAPICursor = connection.connection.cursor()
        self._compiled = flavour.compiled

    def rows(self, statement: Statement, values: Values) -> Rows:
        sql, order = self._compiled(statement)
        self._cursor.execute(sql, [values[name] for name in order])
        return self._cursor.fetchall()

    def many(self, statement: Statement, values: Sequence[Values]) -> None:
        sql, order = self._compiled(statement)
        if len(values) == 1:
            self._cursor.execute(sql, [values[0][name] for name in order])
        else:
            self._cursor.executemany(sql, [[row[name] for name in order] for row in values])


class Postgresql(Flavour):
    """PostgreSQL 12 or later."""

    isolation = "READ COMMITTED"

    @contextmanager
    def alone(self, connection: Connection) -> Generator[None]:
        connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": _SCHEMA_LOCK})
        yield

    def now(self, connection: Connection) -> int:
        # Not now(): that is when the transaction began, before it waited for its lock.
        return _read_clock(connection, _POSTGRESQL_CLOCK)

    def insert_missing(self, table: Table) -> Insert:
        return postgresql.insert(table).on_conflict_do_nothing()

    def passing(self, failure: Exception) -> bool:
        cause = failure.orig if isinstance(failure, DBAPIError) else failure
        state = getattr(cause, "sqlstate", None)
        return state in {_SERIALIZATION_FAILURE, _DEADLOCK_DETECTED}


class Mysql(Flavour):
    """MariaDB 10.6 or later, MySQL 8 or later."""

    @contextmanager
    def alone(self, connection: Connection) -> Generator[None]:
        # Held by the session, because each change of a table commits.
        lock = {"name": f"lockgate {_SCHEMA_LOCK}"}
        connection.execute(text("SELECT GET_LOCK(:name, 60)"), lock)
        try:
            yield
        finally:
            connection.execute(text("SELECT RELEASE_LOCK(:name)"), lock)

    def now(self, connection: Connection) -> int:
        # From UTC: a local time occurs twice when summer time ends.
        return _read_clock(connection, _MYSQL_CLOCK)

    def insert_missing(self, table: Table) -> Insert:
        key = next(iter(table.primary_key.columns))
        return mysql.insert(table).on_duplicate_key_update({key.name: key})

    def passing(self, failure: Exception) -> bool:
        cause = failure.orig if isinstance(failure, DBAPIError) else failure
        code = cause.args[0] if cause is not None and cause.args else None
        return code == _MYSQL_DEADLOCK


def _is_busy(failure: OperationalError) -> bool:
    return str(getattr(failure.orig, "sqlite_errorname", "")).startswith("SQLITE_BUSY")


def _read_clock(connection: Connection, clock: TextClause) -> int:
    return int(connection.execute(clock).scalar_one())


def flavour_of(dialect: Dialect) -> Flavour:
    """The kind of database that a dialect of SQLAlchemy speaks to.

    Raises:
        ConfigurationError: none that lockgate knows.
    """
    match dialect.name:
        case "sqlite":
            return Sqlite(dialect)
        case "postgresql":
            return Postgresql()
        case "mysql" | "mariadb":
            return Mysql()
        case other:
            raise ConfigurationError(
                f"lockgate keeps nothing in {other!r}: use sqlite, postgresql, mysql or mariadb."
            )
