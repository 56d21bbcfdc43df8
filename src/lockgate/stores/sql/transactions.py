"""Transactions: begun with their lock, committed, and tried again where that is safe.

A transaction that failed before its commit is undone, so it may be tried again: where another was
in its way, or where its connection turned out to be dead. Once the commit has been sent nobody
knows what became of it, and nothing is tried again: it counts once or not at all (D33).
"""

from collections.abc import Callable, Sequence
from time import monotonic
from typing import Final, NoReturn, TypeVar

from sqlalchemy import Connection, Dialect
from sqlalchemy.exc import DBAPIError

from ..base import OutcomeUnknown, StoreError
from ..resilience.deadlines import left
from ..runtime.log_hints import Adviser
from .admission import Charge, Ledger, Outcome
from .databases import Database
from .error_hints import is_driver_error
from .statements import Cursor, Statements

T = TypeVar("T")
Work = Callable[[Connection], T]

_ATTEMPTS: Final = 6


class ConnectionLost(StoreError):
    """The connection turned out to be dead before the commit: nothing is written."""


class Transactions:
    """What all lanes of a store do on a connection.

    Args:
        flavour: the kind of database.
        check: sees, on the first connection of a lane, that the tables are there.
        ledger: makes charges in a transaction.
        statements: what it speaks.
        dialect: how to tell an exception of the driver.
        prune: removes a few idle rows, if it is time to.
        patience: seconds to try again for while the database is locked as a whole.
        adviser: is told of failures that are not tried again.
    """

    def __init__(
        self,
        database: Database,
        check: Work[None],
        ledger: Ledger,
        statements: Statements,
        dialect: Dialect,
        prune: Callable[[], Work[None] | None],
        patience: float,
        adviser: Adviser,
    ) -> None:
        self._flavour = database
        self.check: Final = check
        self._ledger = ledger
        self._statements = statements
        self._dialect = dialect
        self.prune: Final = prune
        self._patience = patience
        self._adviser = adviser
        self.hurried = False
        """Whether nobody is to go on waiting for a locked file, as the store is to be closed."""

    def writing(self, work: Work[T]) -> Work[T]:
        """The work within a transaction that takes its lock first, and its commit."""

        def transaction(connection: Connection) -> T:
            try:
                self._flavour.begin(connection)
                value = work(connection)
            except BaseException:
                _undo(connection, connection.rollback)
                raise
            _commit(connection, connection.commit)
            return value

        return transaction

    def hand(self, connection: Connection) -> Cursor:
        """What makes charges on a connection."""
        return Cursor(connection, self._statements)

    def charge(self, hand: Cursor, charges: Sequence[Charge]) -> list[Outcome]:
        """Make charges in one transaction, on the connection's driver itself."""
        try:
            self._flavour.begin_charging(hand)
            outcomes = self._ledger.charge(hand, charges)
        except BaseException as failure:
            connection, driver = hand.connection, hand.driver
            dialect = connection.dialect
            if isinstance(failure, dialect.loaded_dbapi.Error) and dialect.is_disconnect(
                failure, driver, None
            ):
                connection.invalidate(failure)
                raise ConnectionLost from failure
            _undo(connection, driver.rollback)
            raise
        _commit(hand.connection, hand.driver.commit)
        return outcomes

    def reraise(self, failure: Exception) -> NoReturn:
        """Raise a :class:`StoreError` for an exception of the driver or of its pool; any other one,
        which is a bug, as it is (R11)."""
        if isinstance(failure, StoreError) or not is_driver_error(failure, self._dialect):
            raise failure
        raise StoreError from failure

    def again(self, failure: Exception, attempt: int, started: float) -> bool:
        """Whether to try again what failed: it is undone, and the next time may be better.

        If not, the log says what to do about it.

        Args:
            failure: how it failed.
            attempt: the how manieth attempt that was.
            started: when the first one was, by the monotonic clock.
        """
        if self._may_pass(failure, attempt, started):
            return True
        cause = failure.__cause__ if isinstance(failure, ConnectionLost | OutcomeUnknown) else None
        self._adviser.hint(cause or failure)
        return False

    def _may_pass(self, failure: Exception, attempt: int, started: float) -> bool:
        if isinstance(failure, OutcomeUnknown) or left() == 0:
            return False
        if self._flavour.busy(failure):
            return not self.hurried and monotonic() - started < self._patience
        lost = isinstance(failure, ConnectionLost) or (
            isinstance(failure, DBAPIError) and failure.connection_invalidated
        )
        return attempt < _ATTEMPTS and (lost or self._flavour.passing(failure))


def _undo(connection: Connection, rollback: Callable[[], None]) -> None:
    """Roll back, and let go of a connection that cannot, as of a driver cancelled in its wait."""
    try:
        rollback()
    except Exception:
        connection.invalidate()


def _commit(connection: Connection, commit: Callable[[], None]) -> None:
    try:
        commit()
    except Exception as failure:
        connection.invalidate()
        raise OutcomeUnknown from failure
