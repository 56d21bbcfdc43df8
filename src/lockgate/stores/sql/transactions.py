"""Transactions: begin with a lock, commit, and retry where that is safe.

A transaction that fails before its commit is rolled back, so it may be retried after a conflict, or
on a new connection after its own was lost. Once the commit is sent its outcome is unknown and it is
not retried, so each call counts once or not at all (D33).
"""

from collections.abc import Callable, Sequence
from time import monotonic
from typing import Final, NoReturn, TypeVar

from sqlalchemy import Connection, Dialect
from sqlalchemy.exc import DBAPIError

from ...metrics import Metrics
from ..answers import OutcomeUnknown, StoreError
from ..resilience.deadlines import left
from ..runtime.log_hints import Adviser
from .admission import Charge, Ledgers, Outcome
from .databases import Database
from .error_hints import is_driver_error, is_rejected_value
from .pipelined_cursor import PipelinedCursor, can_pipeline
from .statements import Cursor, Statements

T = TypeVar("T")
Work = Callable[[Connection], T]

_ATTEMPTS: Final = 6


class ConnectionLost(StoreError):
    """The connection was lost before the commit, so no change was written."""


class Transactions:
    """Runs work in transactions, on the connections of any executor.

    Args:
        database: the kind of database.
        check: checks the revision of the tables.
        ledgers: makes charges in a transaction.
        statements: the statements of charges.
        pipelined: the same for a :class:`PipelinedCursor`; None: no connection could have one.
        dialect: identifies exceptions of the driver.
        prune: returns work that removes a few idle rows when that is due.
        patience: seconds to retry while the database as a whole is locked.
        adviser: logs remedies for failures that are not retried.
    """

    def __init__(
        self,
        database: Database,
        check: Work[None],
        ledgers: Ledgers,
        statements: Statements,
        pipelined: Statements | None,
        dialect: Dialect,
        prune: Callable[[], Work[None] | None],
        patience: float,
        adviser: Adviser,
    ) -> None:
        self._database = database
        self.check: Final = check
        self._ledgers = ledgers
        self._statements = statements
        self._pipelined = pipelined
        self._dialect = dialect
        self.prune: Final = prune
        self._patience = patience
        self._adviser = adviser
        self.watching: tuple[Metrics, ...] = ()
        """Told the size of each transaction of charges."""
        self.hurried = False
        """Whether waiting for a locked file ends at once, because the store is about to close."""

    def writing(self, work: Work[T]) -> Work[T]:
        """Wrap work in a transaction that takes its lock first and commits."""

        def transaction(connection: Connection) -> T:
            try:
                self._database.begin(connection)
                value = work(connection)
            except BaseException:
                _undo(connection, connection.rollback)
                raise
            _commit(connection, connection.commit)
            return value

        return transaction

    def committing(self, work: Callable[[Cursor], T]) -> Work[T]:
        """Wrap work on the connection's driver in a transaction, as :meth:`writing` does."""

        def transaction(connection: Connection) -> T:
            cursor = self.cursor(connection)
            try:
                self._database.begin(connection)
                value = work(cursor)
                undone = _commit(connection, cursor.commit)
                if undone is not None:
                    raise undone
            except OutcomeUnknown:
                raise
            except BaseException as failure:
                self._undo(cursor, failure)
                raise
            return value

        return transaction

    def cursor(self, connection: Connection) -> Cursor:
        """Return a cursor for charges on a connection."""
        if self._pipelined is not None and can_pipeline(connection):
            return PipelinedCursor(connection, self._pipelined)
        return Cursor(connection, self._statements)

    def charge(self, cursor: Cursor, charges: Sequence[Charge]) -> list[Outcome]:
        """Make charges in one transaction, on the connection's driver directly."""
        try:
            self._database.begin_charging(cursor)
            outcomes = self._ledgers.charge(cursor, charges)
            undone = _commit(cursor.connection, cursor.commit)
            if undone is not None:
                raise undone
        except OutcomeUnknown:
            raise
        except BaseException as failure:
            self._undo(cursor, failure)
            raise
        for metrics in self.watching:
            metrics.batch(len(charges))
        return outcomes

    def _undo(self, cursor: Cursor, failure: BaseException) -> None:
        """Roll back after a failure.

        Raises:
            ConnectionLost: the failure is that.
        """
        connection, driver = cursor.connection, cursor.driver
        dialect = connection.dialect
        if isinstance(failure, dialect.loaded_dbapi.Error) and dialect.is_disconnect(
            failure, driver, None
        ):
            connection.invalidate(failure)
            raise ConnectionLost from failure
        _undo(connection, cursor.rollback)

    def reraise(self, failure: Exception) -> NoReturn:
        """Raise a :class:`StoreError` from an exception of the driver or its pool.

        Other exceptions are bugs and are raised unchanged (G7), and so is a value that its column
        cannot hold: the server has answered, and it answers the same to the next call.
        """
        if (
            isinstance(failure, StoreError)
            or not is_driver_error(failure, self._dialect)
            or is_rejected_value(failure, self._dialect)
        ):
            raise failure
        raise StoreError from failure

    def rehearse(self, connection: Connection) -> None:
        """Compile the statements of a charge, without changing the database."""
        cursor = self.cursor(connection)
        try:
            self._database.begin_charging(cursor)
            self._ledgers.rehearse(cursor)
        finally:
            _undo(connection, cursor.rollback)

    def again(self, failure: Exception, attempt: int, started: float) -> bool:
        """Return whether to retry a failed transaction; if not, log a remedy.

        Args:
            failure: the exception; the transaction is rolled back.
            attempt: the number of the attempt that failed, from 1.
            started: the start of the first attempt, in seconds of the monotonic clock.
        """
        if self._may_pass(failure, attempt, started):
            return True
        cause = failure.__cause__ if isinstance(failure, ConnectionLost | OutcomeUnknown) else None
        self._adviser.hint(cause or failure)
        return False

    def _may_pass(self, failure: Exception, attempt: int, started: float) -> bool:
        if isinstance(failure, OutcomeUnknown) or left() == 0:
            return False
        if self._database.busy(failure):
            return not self.hurried and monotonic() - started < self._patience
        lost = isinstance(failure, ConnectionLost) or (
            isinstance(failure, DBAPIError) and failure.connection_invalidated
        )
        return attempt < _ATTEMPTS and (lost or self._database.passing(failure))


def _undo(connection: Connection, rollback: Callable[[], None]) -> None:
    """Roll back, or discard a connection on which that fails, as after a cancelled wait."""
    try:
        rollback()
    except Exception:
        connection.invalidate()


def _commit(connection: Connection, commit: Callable[[], T]) -> T:
    try:
        return commit()
    except Exception as failure:
        connection.invalidate()
        raise OutcomeUnknown from failure
