"""The change log, and the change counter, which moves with each change to keys or plans.

Statements of both run in the transaction of the change. The organization is locked, so its records
are numbered without gaps by the newest number plus one. One row holds the counter. A change locks
its organization first and this row last, until its commit. Values therefore become visible in
order: the reader of a value sees all earlier changes.
"""

from typing import Any, Final, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    bindparam,
    case,
    delete,
    func,
    insert,
    literal_column,
    select,
    update,
)

from ...core.changes import LOGGED_AT_MOST, ChangeDraft
from ..cached.base import COPIES_LAST, Changes
from .codec import read_id
from .databases import Database
from .statements import Query
from .tables import Tables

_TRIMMED_EVERY: Final = 64
"""Records after which the oldest ones of an organization are removed."""


class Moment(NamedTuple):
    """The instant of a change, and the number of its record."""

    at: int
    clock: int
    """The server's clock."""
    number: int
    """The next number of the organization's change log."""
    has_counter: bool
    """Whether the counter has a row."""


class ChangeRecords:
    """The statements, in a transaction that the caller begins and commits.

    Args:
        tables: the tables.
        database: the kind of database.
        recall: sends a recall of quota leases (:attr:`.recalls.Recalls.sent`), if there is a way.
    """

    def __init__(
        self, tables: Tables, database: Database, recall: ColumnElement[Any] | None = None
    ) -> None:
        self._database: Final = database
        # Built once: building a statement takes longer than running it on SQLite.
        value, records, owners = tables.epochs.c.value, tables.changes, tables.organizations
        of = bindparam("of", type_=records.c.organization.type)
        mine = records.c.organization == of
        self._read: Final = select(func.max(value))
        self._moment: Final = select(
            database.clock,
            select(func.max(records.c.number)).where(mine).scalar_subquery(),
            self._read.scalar_subquery(),
        )
        columns = {c.name: bindparam(f"the_{c.name}", type_=c.type) for c in records.c}
        self._insert: Final = insert(records).values(columns)
        last = bindparam("last", type_=records.c.number.type)
        self._trim: Final = delete(records).where(mine, records.c.number <= last)
        now = bindparam("the_now", type_=value.type)
        more = value + literal_column("1")
        self._make: Final = database.insert_missing(tables.epochs).values(id=literal_column("1"))
        self._advance: Final = update(tables.epochs).values(
            value=case((value < now, now), else_=more)
        )
        made = bindparam("the_made", type_=owners.c.made.type)
        owner = update(owners).where(owners.c.id == of)
        mark = owner.values(changed=self._read.scalar_subquery())
        marks = mark, mark.values(made=made)
        self._mark: Final = mark
        self._recall, self._remember_and_recall = (
            one if recall is None else one.returning(recall) for one in marks
        )
        self._remember: Final = owner.values(made=made)
        changed = owners.c.changed
        since = bindparam("since", type_=changed.type)
        self._changed: Final = select(owners.c.id).where(changed > since)

    def moment(self, id: bytes) -> Query:
        """Return what :meth:`read_moment` reads for a locked organization."""
        return Query(self._moment, {"of": id})

    def read_moment(self, row: Any, now: int | None) -> Moment:
        """Return the present, or the caller's, and the next number."""
        clock = self._database.read_clock(row[0])
        return Moment(clock if now is None else now, clock, (row[1] or 0) + 1, row[2] is not None)

    def record(self, id: bytes, change: ChangeDraft | None, moment: Moment) -> list[Query]:
        """Return what inserts the record of a change to a locked organization, if there is one, and
        now and then removes records that are too many."""
        if change is None:
            return []
        at, _, number, _ = moment
        row = {"the_organization": id, "the_number": number, "the_at": at}
        queries = [Query(self._insert, {**row, "the_text": change.text()})]
        if number % _TRIMMED_EVERY == 0:
            queries.append(Query(self._trim, {"of": id, "last": number - LOGGED_AT_MOST}))
        return queries

    def remember(self, id: bytes, made: bytes) -> list[Query]:
        """Return what keeps the ids of the latest commits of a locked organization."""
        return [Query(self._remember, {"of": id, "the_made": made})]

    def advance(
        self, id: bytes, moment: Moment, *, recalls: bool = True, made: bytes | None = None
    ) -> list[Query]:
        """Return what counts a change of a locked organization, as its last statements.

        Args:
            id: the organization.
            moment: the moment of the change.
            recalls: whether the change recalls quota leases of the organization, at the commit.
            made: as for :meth:`remember`; None: these stay.
        """
        queries = [] if moment.has_counter else [Query(self._make, {})]
        queries.append(Query(self._advance, {"the_now": moment.clock}))
        if made is not None:
            queries.append(Query(self._remember_and_recall, {"of": id, "the_made": made}))
        else:
            queries.append(Query(self._recall if recalls else self._mark, {"of": id}))
        return queries

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
