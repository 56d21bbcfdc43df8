"""Transactions: begun with their lock, committed, and tried again where that is safe.

A transaction that failed before its commit is undone, so it may be tried again: where another was
in its way, or where its connection turned out to be dead. Once the commit has been sent nobody
knows what became of it, and nothing is tried again: it counts once or not at all (D33).
"""

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from .charges import Charge, Outcome
from .dialects import Flavour

T = TypeVar("T")
Work = Callable[[Connection], T]

_ATTEMPTS: Final = 6


class OutcomeUnknown(Exception):
    """The commit was sent and no answer came: what it wrote is there, or is not."""


class Transactions:
    """What all lanes of a store do on a connection.

    Args:
        flavour: the kind of database.
        check: sees, on the first connection of a lane, that the tables are there.
        charge: makes charges in a transaction.
        prune: removes a few idle rows, if it is time to.
    """

    def __init__(
        self,
        flavour: Flavour,
        check: Work[None],
        charge: Callable[[Connection, Sequence[Charge]], list[Outcome]],
        prune: Callable[[], Work[None] | None],
    ) -> None:
        self._flavour = flavour
        self.check: Final = check
        self._charge = charge
        self.prune: Final = prune

    def writing(self, work: Work[T]) -> Work[T]:
        """The work within a transaction that takes its lock first, and its commit."""

        def transaction(connection: Connection) -> T:
            try:
                self._flavour.begin(connection)
                value = work(connection)
            except BaseException:
                connection.rollback()
                raise
            try:
                connection.commit()
            except Exception as failure:
                connection.invalidate()
                raise OutcomeUnknown from failure
            return value

        return transaction

    def charging(self, charges: Sequence[Charge]) -> Work[list[Outcome]]:
        """A transaction for these charges."""
        return self.writing(lambda connection: self._charge(connection, charges))

    def again(self, failure: Exception, attempt: int) -> bool:
        """Whether to try again what failed: it is undone, and the next time may be better."""
        if attempt >= _ATTEMPTS or isinstance(failure, OutcomeUnknown):
            return False
        gone = isinstance(failure, DBAPIError) and failure.connection_invalidated
        return self._flavour.passing(failure) or gone
