"""The differences between databases: beginning a transaction, the clock, and passing failures.

Every transaction that writes takes its lock first and reads after it. READ COMMITTED is therefore
enough, and REPEATABLE READ as good: MariaDB takes its snapshot at the first plain read, which comes
after the lock. SQLite has one writer, which ``BEGIN IMMEDIATE`` makes of a connection.
"""

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
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

from ...clock import wall_clock
from ...errors import ConfigurationError
from .statements import Cursor, Rows, Statements, Written, filled, limit_names, places_for

_SERIALIZATION_FAILURE: Final = "40001"
_DEADLOCK_DETECTED: Final = "40P01"
OUTDATED_STATEMENT: Final = "0A000"
"""The failure of a prepared statement whose columns have changed: "feature not supported"."""
SHARED_STATEMENT: Final = "26000", "42P05"
"""A prepared statement is gone, or another client has prepared one of its name: a pooler shares the
session."""
_LOCK_NOT_AVAILABLE: Final = "55P03"
_MYSQL_LOCK_TIMEOUT: Final = 1205
_MYSQL_DEADLOCK: Final = 1213
_MYSQL_REDEFINED: Final = 1412
"""The table was altered after the snapshot of the transaction."""
_MARIADB_CHANGED: Final = 1020
"""The row changed after the snapshot (innodb_snapshot_isolation, from 11.6 on by default)."""

_SCHEMA_LOCK: Final = 7_033_177_426
"""The number of lockgate's advisory lock."""
SCHEMA_PATIENCE: Final = 60
"""Seconds to wait for another process that migrates the tables, or for their locks."""
LOCKED: Final = (
    "Another process migrates the tables of lockgate, or a long transaction, such as a backup, "
    "reads them: try again when it has ended."
)
_POSTGRESQL_LOCK_WAIT: Final = "200ms"
"""How long a change of a table waits for its lock. Whoever comes later waits behind it."""
_MYSQL_LOCK_WAIT: Final = 1
"""The same in seconds, and the least that the server offers."""
_POSTGRESQL_CLOCK: Final = "(extract(epoch from clock_timestamp()) * 1000000)::bigint"
_ANNOUNCED: Final = (
    "ARRAY(SELECT (classid::bigint << 32) | objid::bigint FROM pg_locks"
    " WHERE locktype = 'advisory' AND objsubid = 1 AND mode = 'ShareLock' AND database ="
    " (SELECT oid FROM pg_database WHERE datname = current_database()))"
)
"""The numbers of shared advisory locks (the parts of a number are those of ``pg_locks``)."""
_MYSQL_CLOCK: Final = "timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))"

_MYSQL_LEVEL: Final = "READ COMMITTED"

_CLOCK: Final = 15
"""The position of the clock's column, after the columns of a key."""
OWNER: Final = 6
"""The number of columns of an organization, the last ones."""
_BEGIN: Final = "BEGIN IMMEDIATE"
_WAL_ATTEMPTS: Final = 100
_WAL_PAUSE: Final = 0.05
"""Seconds; all attempts together take as long as the wait for any other lock."""


class Held(NamedTuple):
    """The rows that a transaction has locked, and the clock when it read them."""

    owners: Rows
    """Organizations, in the last columns of the rows."""
    keys: Rows
    """Keys, in the first columns of the rows."""
    clock: int | None
    limits: Sequence[Any] = ()
    """The cells and the idle day of each limit that was read with them, one after the other; None:
    its row was not found."""


class Database(ABC):
    """A kind of database, with the defaults that the kinds share."""

    isolation: str | None = None
    """The isolation level to set on the host's engine, where that costs no round trip."""

    settling: ColumnElement[Any] | None = None
    """The numbers of the quota leases that transactions in progress have announced; None: the
    database does not tell."""

    clock: ColumnElement[Any]
    """The server's clock in microseconds, at the instant when its row is read (D27)."""

    def begin(self, connection: Connection) -> None:
        """Begin a transaction that writes. By default its first statement begins it."""
        connection.begin()

    def begin_charging(self, cursor: Cursor) -> None:
        """Begin a transaction on the driver. By default its first statement begins it."""
        return

    @contextmanager
    def making(self, transaction: Connection | DBAPIConnection) -> Generator[None]:
        """Return a context in which to insert missing rows; they are read again after it.

        By default the transaction that missed the rows inserts them.
        """
        yield

    def prepare(self, connection: Connection) -> None:
        """Set persistent options before the first table. By default there are no such options."""
        return

    @contextmanager
    def alone(self, connection: Connection) -> Generator[None]:
        """Return a context in which no other process migrates the tables."""
        yield

    def announce(self, cursor: Cursor, leases: Iterable[int]) -> None:
        """Show other transactions the numbers of the quota leases that this one settles, before it
        waits for a lock. By default there is no way."""
        return

    @abstractmethod
    def hold(self, cursor: Cursor, owners: Sequence[bytes], handles: Sequence[str]) -> Held:
        """Lock organizations, then read them and their keys, then the clock.

        The result may repeat a key, and may omit a key of another organization.
        """

    @abstractmethod
    def hold_with_limits(
        self, cursor: Cursor, owner: bytes, handle: str, limits: Sequence[bytes]
    ) -> Held:
        """Lock one organization, then read it, its key and limits by their ids, then the clock.

        A limit that another transaction inserted during the wait for the lock may be omitted.
        """

    def reading(self, connection: Connection) -> None:
        """Spare the round trips that begin and end a transaction that only reads, if it has any.

        The connection goes back to its pool afterwards.
        """
        return

    def now(self, connection: Connection) -> int:
        """Return the server's clock in microseconds (D27)."""
        return self.read_clock(connection.execute(select(self.clock)).scalar_one())

    def read_clock(self, value: Any) -> int:
        """Return the present by what a statement read as :attr:`clock`."""
        return int(value)

    def writing(self, statements: Statements) -> Sequence[Written]:
        """Return the statements that write windows and usage."""
        return statements.keep, statements.use

    def writing_one(self, statements: Statements, *, dates: bool) -> Sequence[Written]:
        """Return the statements that write the windows and limits of one organization.

        Args:
            statements: the statements.
            dates: whether the idle days of limits have changed.
        """
        keep_limits = statements.keep_and_date_limits if dates else statements.keep_limits
        return statements.keep_one, keep_limits

    @abstractmethod
    def insert_missing(self, table: Table) -> Insert:
        """Return an insert that skips rows with an existing primary key."""

    @abstractmethod
    def upsert(
        self, table: Table, rows: Sequence[Mapping[str, Any]], columns: Sequence[str]
    ) -> Insert:
        """Return an insert of rows that updates some columns where the primary key exists."""

    def passing(self, failure: Exception) -> bool:
        """Return whether the server undid the transaction because of a conflict with another."""
        return False

    def lock_timed_out(self, failure: Exception) -> bool:
        """Return whether a change of a table gave up the wait for its lock."""
        return False

    def busy(self, failure: Exception) -> bool:
        """Return whether the whole database was locked for as long as the driver waits."""
        return False


class Sqlite(Database):
    """A file shared by the processes of one machine, with this machine's clock."""

    clock = literal_column("0", Integer())  # A place holder: the clock is this process's.

    def begin(self, connection: Connection) -> None:
        connection.begin()
        raw = _free(connection.connection.driver_connection)
        raw.execute(_BEGIN)

    def begin_charging(self, cursor: Cursor) -> None:
        _free(cursor.driver)
        cursor.execute(_BEGIN)

    def prepare(self, connection: Connection) -> None:
        # With a write-ahead log readers and the writer do not wait for each other. SQLite does not
        # wait for the lock of this change itself, and many processes may open a new file at once.
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

    def hold_with_limits(
        self, cursor: Cursor, owner: bytes, handle: str, limits: Sequence[bytes]
    ) -> Held:
        return _joined_with_limits(
            cursor, cursor.statements.both_and_limits, owner, handle, limits, wall_clock
        )

    def now(self, connection: Connection) -> int:
        return wall_clock()

    def read_clock(self, value: Any) -> int:
        return wall_clock()

    def insert_missing(self, table: Table) -> Insert:
        return sqlite.insert(table).on_conflict_do_nothing()

    def upsert(
        self, table: Table, rows: Sequence[Mapping[str, Any]], columns: Sequence[str]
    ) -> Insert:
        made = sqlite.insert(table).values(rows)
        key, new = list(table.primary_key.columns), {name: made.excluded[name] for name in columns}
        return made.on_conflict_do_update(index_elements=key, set_=new)

    def busy(self, failure: Exception) -> bool:
        return str(getattr(_cause(failure), "sqlite_errorname", "")).startswith("SQLITE_BUSY")


class Postgresql(Database):
    """PostgreSQL 12 or later."""

    isolation = "READ COMMITTED"
    # Not now(), which is the start of the transaction, before the wait for its lock.
    clock = literal_column(_POSTGRESQL_CLOCK, BigInteger())

    settling = literal_column(_ANNOUNCED, postgresql.ARRAY(BigInteger()))

    @contextmanager
    def alone(self, connection: Connection) -> Generator[None]:
        # Longer than for other locks: a table may be large, and this wait blocks no query.
        connection.execute(text(f"SET LOCAL lock_timeout = '{SCHEMA_PATIENCE}s'"))
        connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": _SCHEMA_LOCK})
        connection.execute(text(f"SET LOCAL lock_timeout = '{_POSTGRESQL_LOCK_WAIT}'"))
        yield

    def reading(self, connection: Connection) -> None:
        # The drivers keep this to themselves. Of MariaDB it would be two statements. With the end
        # of a transaction psycopg would also discard the prepared statements of commits.
        connection.execution_options(isolation_level="AUTOCOMMIT")

    def announce(self, cursor: Cursor, leases: Iterable[int]) -> None:
        # The locks exclude no transaction: they only show until the end of this one.
        for number in leases:
            cursor.run(cursor.statements.announce, 1, {"n0": number})

    def hold(self, cursor: Cursor, owners: Sequence[bytes], handles: Sequence[str]) -> Held:
        return _joined(cursor, cursor.statements.lock_both, owners, handles)

    def hold_with_limits(
        self, cursor: Cursor, owner: bytes, handle: str, limits: Sequence[bytes]
    ) -> Held:
        return _joined_with_limits(
            cursor, cursor.statements.lock_both_and_limits, owner, handle, limits
        )

    def writing(self, statements: Statements) -> Sequence[Written]:
        return (statements.keep_and_use,)

    def writing_one(self, statements: Statements, *, dates: bool) -> Sequence[Written]:
        if dates:
            return (statements.keep_one_and_date_limits,)
        return (statements.keep_one_and_limits,)

    def insert_missing(self, table: Table) -> Insert:
        return postgresql.insert(table).on_conflict_do_nothing()

    def upsert(
        self, table: Table, rows: Sequence[Mapping[str, Any]], columns: Sequence[str]
    ) -> Insert:
        made = postgresql.insert(table).values(rows)
        key, new = list(table.primary_key.columns), {name: made.excluded[name] for name in columns}
        return made.on_conflict_do_update(index_elements=key, set_=new)

    def passing(self, failure: Exception) -> bool:
        state = getattr(_cause(failure), "sqlstate", None)
        return state in {
            *(_SERIALIZATION_FAILURE, _DEADLOCK_DETECTED, OUTDATED_STATEMENT),
            *SHARED_STATEMENT,
        }

    def lock_timed_out(self, failure: Exception) -> bool:
        return getattr(_cause(failure), "sqlstate", None) == _LOCK_NOT_AVAILABLE


class Mysql(Database):
    """MariaDB 10.6 or later; MySQL 8 or later, experimental."""

    # From UTC: a local time occurs twice when summer time ends. It is the start of its statement,
    # so the statement that waits for the lock never reads it.
    clock = literal_column(_MYSQL_CLOCK, BigInteger())

    def begin(self, connection: Connection) -> None:
        _joining(connection)
        connection.begin()

    def begin_charging(self, cursor: Cursor) -> None:
        _joining(cursor.connection)

    @contextmanager
    def making(self, transaction: Connection | DBAPIConnection) -> Generator[None]:
        # Under REPEATABLE READ, the default, a locking read of a missing row locks the gap around
        # it. Two transactions that both insert into that gap would wait for each other.
        transaction.rollback()
        yield
        transaction.commit()

    @contextmanager
    def alone(self, connection: Connection) -> Generator[None]:
        # A lock of the session, because each change of a table commits.
        lock = {"name": f"lockgate {_SCHEMA_LOCK}"}
        wait = {**lock, "seconds": SCHEMA_PATIENCE}
        if connection.scalar(text("SELECT GET_LOCK(:name, :seconds)"), wait) != 1:
            raise TimeoutError(LOCKED)
        patience = connection.scalar(text("SELECT @@SESSION.lock_wait_timeout"))
        try:
            connection.execute(text(f"SET SESSION lock_wait_timeout = {_MYSQL_LOCK_WAIT}"))
            yield
        finally:
            connection.rollback()
            connection.execute(text(f"SET SESSION lock_wait_timeout = {patience}"))
            connection.execute(text("SELECT RELEASE_LOCK(:name)"), lock)
            connection.rollback()

    def hold(self, cursor: Cursor, owners: Sequence[bytes], handles: Sequence[str]) -> Held:
        places = places_for(len(owners))
        locked = cursor.rows(cursor.statements.lock, places, filled(places, o=owners))
        places = places_for(len(handles))
        rows = cursor.rows(cursor.statements.find, places, filled(places, h=handles))
        return Held(locked, rows, rows[0][_CLOCK] if rows else None)

    def hold_with_limits(
        self, cursor: Cursor, owner: bytes, handle: str, limits: Sequence[bytes]
    ) -> Held:
        statements, values = cursor.statements, _values_of(owner, handle, limits)
        locked = cursor.rows(statements.lock, 1, values)
        (row,) = cursor.rows(statements.find_and_limits, len(limits), values)
        return Held(locked, () if row[0] is None else (row,), row[_CLOCK], row[_CLOCK + 1 :])

    def insert_missing(self, table: Table) -> Insert:
        key = next(iter(table.primary_key.columns))
        return mysql.insert(table).on_duplicate_key_update({key.name: key})

    def upsert(
        self, table: Table, rows: Sequence[Mapping[str, Any]], columns: Sequence[str]
    ) -> Insert:
        made = mysql.insert(table).values(rows)
        return made.on_duplicate_key_update({name: made.inserted[name] for name in columns})

    def passing(self, failure: Exception) -> bool:
        return _mysql_code(failure) in {_MYSQL_DEADLOCK, _MARIADB_CHANGED, _MYSQL_REDEFINED}

    def lock_timed_out(self, failure: Exception) -> bool:
        return _mysql_code(failure) == _MYSQL_LOCK_TIMEOUT


def _mysql_code(failure: Exception) -> object:
    cause = _cause(failure)
    return cause.args[0] if cause.args else None


def _cause(failure: Exception) -> BaseException:
    """Return the driver's own exception."""
    cause = failure.orig if isinstance(failure, DBAPIError) else None
    return failure if cause is None else cause


def _joining(connection: Connection) -> None:
    """Turn autocommit off if the host's engine has it on.

    Otherwise a lock would end with its statement, before the reads after it. Setting another level
    takes round trips, which other connections are spared.
    """
    pooled = connection.connection
    driver: Any = pooled.dbapi_connection
    if not hasattr(
        driver, "get_autocommit"
    ):  # SQLAlchemy's own of a driver that awaits, to 2.0.42.
        driver = pooled.driver_connection
    ask = getattr(driver, "get_autocommit", None)
    if driver.autocommit if ask is None else ask():
        connection.execution_options(isolation_level=_MYSQL_LEVEL)


def _free(driver: object) -> sqlite3.Connection:
    """Return SQLite's connection without an open transaction.

    The host's engine may begin transactions itself, as SQLAlchemy's documentation recommends;
    these have no lock yet.
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
    """Run a statement that locks organizations and joins the clock and their keys to them."""
    if len(owners) == len(handles) == 1:
        rows = cursor.rows(statement, 1, {"o0": owners[0], "h0": handles[0]})
    else:
        places = places_for(max(len(owners), len(handles)))
        rows = cursor.rows(statement, places, filled(places, o=owners, h=handles))
    now = max([row[_CLOCK] for row in rows], default=None) if clock is None else clock()
    return Held(rows, [row for row in rows if row[0] is not None], now)


def _joined_with_limits(
    cursor: Cursor,
    statement: Written,
    owner: bytes,
    handle: str,
    limits: Sequence[bytes],
    clock: Callable[[], int] | None = None,
) -> Held:
    """Run a statement that locks one organization and joins the clock, its key and limits to it."""
    rows = cursor.rows(statement, len(limits), _values_of(owner, handle, limits))
    if not rows:
        return Held((), (), None)
    (row,) = rows
    now = row[_CLOCK] if clock is None else clock()
    return Held(rows, () if row[0] is None else rows, now, row[_CLOCK + 1 : -OWNER])


def _values_of(owner: bytes, handle: str, limits: Sequence[bytes]) -> dict[str, Any]:
    """Return the ids of one organization, one key and some limits by place name."""
    values: dict[str, Any] = {"o0": owner, "h0": handle}
    for place, id in enumerate(limits):
        values[limit_names(place)[0]] = id
    return values


def database_of(dialect: Dialect) -> Database:
    """Return the :class:`Database` of a SQLAlchemy dialect.

    Raises:
        ConfigurationError: lockgate does not support it.
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
                f"lockgate has no store for {other!r}: use sqlite, postgresql, mysql or mariadb."
            )
