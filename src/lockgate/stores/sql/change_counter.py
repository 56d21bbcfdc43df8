"""The change counter, which moves with each change to keys or plans, and the organizations changed.

One row holds it. A change locks its organization first and this row last, until its commit. Values
therefore become visible in order: the reader of a value sees all earlier changes.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    FromClause,
    Update,
    bindparam,
    case,
    exists,
    func,
    insert,
    literal_column,
    select,
    true,
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
        self._now: Any = bindparam("the_now", type_=value.type)
        self._advance = self._advanced(self._now)
        self._read = select(func.max(value))
        self.exists: Final = select(value).exists()
        """Whether the counter has a row, for the statement of a change."""
        self._mark = (
            update(organizations)
            .where(organizations.c.id == bindparam("the_organization"))
            .values(changed=self._read.scalar_subquery())
        )
        self._recall = recall
        self._mark_and_recall = self._mark if recall is None else self._mark.returning(recall)
        self._insert = insert(tables.changes)
        row = {
            column.name: bindparam(f"the_{column.name}", type_=column.type)
            for column in tables.changes.c
        }
        self._joined = {
            (recalls, is_logged): self.join(self._now, row if is_logged else {}, recalls=recalls)
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
        connection.execute(self._mark_and_recall if recalls else self._mark, values)

    def join(
        self,
        now: ColumnElement[Any],
        record: Mapping[str, ColumnElement[Any]],
        *sources: FromClause,
        recalls: bool,
    ) -> Update:
        """Return one statement that advances the counter, inserts the record and marks the
        organization, for a database whose ``joins_writes`` is true.

        Each part takes the counter from the one before, so they run in this order, and none has an
        effect if the counter has no row yet. The statement returns a row if it has one.

        Args:
            now: the server's clock.
            record: the values of the record by column; empty: there is none.
            sources: what ``record`` reads; without a row in each the statement has no effect.
            recalls: whether the change recalls quota leases of the organization.
        """
        value = self._epochs.c.value
        advance = self._advanced(now)
        for source in sources:
            advance = advance.where(exists().select_from(source))
        counted = advance.returning(value).cte("counted")
        organizations, is_counted = self._tables.organizations, select(counted.c.value).exists()
        mine = organizations.c.id == bindparam("the_organization")
        # As text: SQLAlchemy 2.0.0 compiles no query of a CTE that writes as a value to set.
        changed: Any = literal_column("(SELECT counted.value FROM counted)", value.type)
        marked = update(organizations).where(mine, is_counted).values(changed=changed)
        if record:
            read: FromClause = counted
            for source in sources:
                read = read.join(source, true())
            row = select(*record.values()).select_from(read)
            logged = self._insert.from_select(list(record), row)
            marked = marked.add_cte(logged.cte("logged"))
        sent = self._recall if recalls else None
        return marked.returning(organizations.c.id if sent is None else sent)

    def _advanced(self, now: ColumnElement[Any]) -> Update:
        """Return the statement that advances the counter: to the clock, or by one."""
        value = self._epochs.c.value
        return update(self._epochs).values(value=case((value < now, now), else_=value + 1))

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
