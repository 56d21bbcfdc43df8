"""The change counter, which moves with each change to keys or plans, and the organizations changed.

One row holds it. A change locks its organization first and this row last, until its commit. Values
therefore become visible in order: the reader of a value sees all earlier changes.
"""

from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, bindparam, case, func, select, update

from ..cached.base import COPIES_LAST, Changes
from .codec import read_id
from .databases import Database
from .tables import Tables

_ONLY: Final = 1


class ChangeCounter:
    """The statements of the change counter.

    Args:
        tables: the tables.
        database: the kind of database.
        recall: sends a recall of quota leases (:attr:`.recalls.Recalls.sent`), if there is a way.
    """

    def __init__(
        self, tables: Tables, database: Database, recall: ColumnElement[Any] | None = None
    ) -> None:
        self._database = database
        self._epochs = tables.epochs
        organizations = tables.organizations
        value = tables.epochs.c.value
        now: Any = bindparam("now", type_=value.type)
        later = case((value < now, now), else_=value + 1)
        self._advance = update(tables.epochs).values(value=later)
        self._read = select(func.max(value))
        self._mark = (
            update(organizations)
            .where(organizations.c.id == bindparam("organization"))
            .values(changed=self._read.scalar_subquery())
        )
        self._recall = self._mark if recall is None else self._mark.returning(recall)
        self._changed = select(organizations.c.id).where(
            organizations.c.changed > bindparam("since", type_=organizations.c.changed.type)
        )

    def advance(
        self,
        connection: Connection,
        organization: bytes,
        now: int | None = None,
        *,
        recalls: bool = False,
    ) -> None:
        """Record a change of an organization, in the transaction that locked it.

        Args:
            connection: in this transaction.
            organization: the one that has changed.
            now: the server's clock, if the transaction has read it.
            recalls: whether the change recalls quota leases of the organization, at the commit.
        """
        values = {"now": self._database.now(connection) if now is None else now}
        while connection.execute(self._advance, values).rowcount == 0:
            connection.execute(self._database.insert_missing(self._epochs), {"id": _ONLY})
        mark = self._recall if recalls else self._mark
        connection.execute(mark, {"organization": organization})

    def read(self, connection: Connection) -> int:
        """Return the counter; 0 before the first change."""
        return connection.scalar(self._read) or 0

    def changes(self, connection: Connection, since: int | None) -> Changes:
        """Return the counter, and the organizations changed after an earlier value of it."""
        change_counter = self.read(connection)
        if since == change_counter:
            return Changes(change_counter, [])
        if since is None:
            since = self._database.now(connection) - COPIES_LAST
        ids = connection.scalars(self._changed, {"since": since})
        return Changes(change_counter, [read_id(id) for id in ids])
