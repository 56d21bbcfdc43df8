"""The change counter, which moves with each change to keys or plans, and the organizations changed.

One row holds it. A change locks its organization first and this row last, until its commit. Values
therefore become visible in order: the reader of a value sees all earlier changes.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    Update,
    bindparam,
    case,
    func,
    insert,
    literal_column,
    select,
    update,
)

from ..cached.base import COPIES_LAST, Changes
from .codec import read_id
from .databases import Database
from .tables import Tables

_ONLY: Final = 1


class Write(NamedTuple):
    """A statement that writes, and its values by names that no column has."""

    statement: Update
    values: Mapping[str, Any]


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
        self._tables = tables
        self._epochs = tables.epochs
        organizations = tables.organizations
        value = tables.epochs.c.value
        now: Any = bindparam("the_now", type_=value.type)
        later = case((value < now, now), else_=value + 1)
        self._advance = update(tables.epochs).values(value=later)
        self._read = select(func.max(value))
        self._mark = (
            update(organizations)
            .where(organizations.c.id == bindparam("the_organization"))
            .values(changed=self._read.scalar_subquery())
        )
        self._recall = self._mark if recall is None else self._mark.returning(recall)
        self._insert = insert(tables.changes)
        self._joined = {
            (recalls, is_logged): self._join(recall if recalls else None, is_logged=is_logged)
            for recalls in (False, True)
            for is_logged in (False, True)
        }
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
        record: Mapping[str, Any] | None = None,
        write: Write | None = None,
    ) -> None:
        """Count a change of an organization, in the transaction that locked it.

        Args:
            connection: in this transaction.
            organization: the one that has changed.
            now: the server's clock, if the transaction has read it.
            recalls: whether the change recalls quota leases of the organization, at the commit.
            record: the row of the change log to insert; None: there is none.
            write: another part of the change to execute with it, which may be repeated; None:
                there is none.
        """
        clock = self._database.now(connection) if now is None else now
        values: dict[str, Any] = {"the_now": clock, "the_organization": organization}
        if self._database.joins_writes:
            joined = self._joined[recalls, record is not None]
            if write is not None:
                joined = joined.add_cte(write.statement.cte("written"))
                values.update(write.values)
            values.update({f"the_{name}": value for name, value in (record or {}).items()})
            if connection.execute(joined, values).one_or_none() is None:  # The counter had no row.
                connection.execute(self._database.insert_missing(self._epochs), {"id": _ONLY})
                connection.execute(joined, values).one()
            return
        if write is not None:
            connection.execute(*write)
        if record is not None:
            connection.execute(self._insert, record)
        while connection.execute(self._advance, values).rowcount == 0:
            connection.execute(self._database.insert_missing(self._epochs), {"id": _ONLY})
        mark = self._recall if recalls else self._mark
        connection.execute(mark, values)

    def _join(self, recall: ColumnElement[Any] | None, *, is_logged: bool) -> Update:
        """Return one statement that inserts the record, advances the counter and marks the
        organization; it does none of these if the counter has no row yet.

        Each part takes the counter from the one before, so they run in this order.
        """
        value = self._epochs.c.value
        counted = self._advance.returning(value).cte("counted")
        organizations, is_counted = self._tables.organizations, select(counted.c.value).exists()
        mine = organizations.c.id == bindparam("the_organization")
        # As text: SQLAlchemy 2.0.0 compiles no query of a CTE that writes as a value to set.
        changed: Any = literal_column("(SELECT counted.value FROM counted)", value.type)
        marked = update(organizations).where(mine, is_counted).values(changed=changed)
        if is_logged:
            columns = self._tables.changes.c
            row = select(
                *(bindparam(f"the_{column.name}", type_=column.type) for column in columns)
            )
            logged = self._insert.from_select(list(columns), row.select_from(counted))
            marked = marked.add_cte(logged.cte("logged"))
        return marked.returning(organizations.c.id if recall is None else recall)

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
