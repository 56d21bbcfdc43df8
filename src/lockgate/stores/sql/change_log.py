"""The statements of the change log, which run inside the transaction of the change.

The organization is locked, so its records are numbered without gaps by the newest number plus one.
That number is read together with the clock, and with the key that changes. The record is inserted
with the change counter (:mod:`.change_counter`).
"""

from typing import Any, Final, NamedTuple

from sqlalchemy import (
    Connection,
    Integer,
    Select,
    bindparam,
    delete,
    exists,
    func,
    insert,
    literal_column,
    select,
    true,
)

from ...core.changes import LOGGED_AT_MOST, Change, ChangeDraft
from ...errors import HandleTaken
from ..answers import LogPage
from .codec import write_id
from .databases import Database
from .tables import Tables

REMOVED_AT_ONCE: Final = 500
"""Records removed per transaction."""
_TRIMMED_EVERY: Final = 64
"""Records after which the oldest ones of an organization are removed."""


class Moment(NamedTuple):
    """The instant of a change, and the number of its record."""

    at: int
    number: int
    """0: it leaves no record."""
    clock: int | None
    """The server's clock; None: it was not read."""


class ChangeLog:
    """The statements of the change log, in a transaction that the caller begins and commits.

    Args:
        tables: the tables.
        database: the kind of database.
    """

    def __init__(self, tables: Tables, database: Database) -> None:
        self._tables: Final = tables
        self._table: Final = tables.changes
        self._database: Final = database
        columns, removed = tables.changes.c, tables.removed_handles.c.handle
        # Built once: building a statement takes longer than running it on SQLite.
        mine = columns.organization == bindparam("of")
        newest = select(func.max(columns.number)).where(mine)
        self._number: Final = newest
        self._moment: Final = select(database.clock, newest.scalar_subquery())
        self._with_keys: dict[bool, Select[*tuple[Any, ...]]] = {}
        row = select(*(bindparam(column.name, type_=column.type) for column in columns))
        is_free = ~exists(select(removed).where(removed == bindparam("handle")))
        free = insert(tables.changes).from_select(list(columns), row.where(is_free))
        # Otherwise SQLAlchemy keeps no number of rows for an INSERT, with some of its drivers, and
        # before 2.0.28 it does not know the option: add() looks again.
        self._insert_if_free: Final = free.execution_options(preserve_rowcount=True)
        there = select(removed).where(removed == bindparam("handle"))
        self._removed: Final = there.with_for_update(read=True)

    def moment(
        self, connection: Connection, id: bytes, now: int | None, change: ChangeDraft | None
    ) -> Moment:
        """Return the present, and the next number of a locked organization."""
        clock: int | None = None
        if change is None:
            if now is None:
                now = clock = self._database.now(connection)
            return Moment(now, 0, clock)
        if now is None:
            read, number = connection.execute(self._moment, {"of": id}).one()
            now = clock = self._database.read_clock(read)
        else:
            number = connection.scalar(self._number, {"of": id})
        return Moment(now, (number or 0) + 1, clock)

    def moment_and_key(
        self,
        connection: Connection,
        id: bytes,
        key: str,
        now: int | None,
        change: ChangeDraft | None,
    ) -> tuple[Moment, Any]:
        """Return what :meth:`moment` returns, and the row of a key of the organization by its id,
        as ``key_columns`` has it; None: there is no such key."""
        is_logged = change is not None
        values = connection.execute(self._with_key(is_logged), {"of": id, "key": key}).one()
        clock, row = self._database.read_clock(values[0]), values[1 + is_logged :]
        number = (values[1] or 0) + 1 if is_logged else 0
        moment = Moment(clock if now is None else now, number, clock)
        return moment, None if row[0] is None else row

    def _with_key(self, is_logged: bool) -> Select[*tuple[Any, ...]]:
        """Select the clock, the newest number for a record, and a key, which may be missing.

        The key is locked, too: usage is added without a lock of the organization, and the key is
        answered as it is when the change takes effect.
        """
        found = self._with_keys.get(is_logged)
        if found is None:
            keys = self._tables.keys
            one = select(literal_column("1", Integer()).label("one")).subquery("one")
            named = keys.c.id == bindparam("key"), keys.c.organization == bindparam("of")
            key = select(*self._tables.key_columns()).where(*named).with_for_update().subquery("k")
            number = [self._number.scalar_subquery()] if is_logged else []
            found = select(self._database.clock, *number, key).outerjoin_from(one, key, true())
            self._with_keys[is_logged] = found
        return found

    def add(
        self,
        connection: Connection,
        id: bytes,
        change: ChangeDraft | None,
        moment: Moment,
        handle: str | None = None,
    ) -> None:
        """Insert the record of a change to a locked organization, if there is one.

        Args:
            connection: in the transaction of the change.
            id: the organization.
            change: the change; None: it leaves no record.
            moment: its instant and number.
            handle: the handle of a key that this transaction has inserted. That waited for a
                removal in progress, so the check follows it, in the same statement.

        Raises:
            HandleTaken: a removed key had the handle.
        """
        row = self.row(connection, id, change, moment)
        if row is None:
            if handle is not None:
                self._check_not_removed(connection, handle)
        elif handle is None:
            connection.execute(insert(self._table), row)
        elif connection.execute(self._insert_if_free, {**row, "handle": handle}).rowcount != 1:
            self._check_not_removed(connection, handle)

    def row(
        self, connection: Connection, id: bytes, change: ChangeDraft | None, moment: Moment
    ) -> dict[str, Any] | None:
        """Return the record of a change to insert, if there is one, and now and then remove records
        that are too many."""
        if change is None or not moment.number:
            return None
        number = moment.number
        if self.is_trimmed_at(number):
            self.trim(connection, id, number)
        return {"organization": id, "number": number, "at": moment.at, "text": change.text()}

    def is_trimmed_at(self, number: int) -> bool:
        """Return whether the record of this number is to remove old ones of its organization."""
        return number > 0 and number % _TRIMMED_EVERY == 0

    def trim(self, connection: Connection, id: bytes, number: int) -> None:
        """Remove the records of an organization that are too many beside the one of this number."""
        columns = self._table.c
        old = columns.number <= number - LOGGED_AT_MOST
        connection.execute(delete(self._table).where(columns.organization == id, old))

    def _check_not_removed(self, connection: Connection, handle: str) -> None:
        """Raise HandleTaken if a removed key had this handle.

        A locking read sees committed rows, even if the transaction's snapshot is older; so does the
        query of an insertion.
        """
        if connection.scalar(self._removed, {"handle": handle}) is not None:
            raise HandleTaken

    def newest(
        self, connection: Connection, organization: str, limit: int, before: int | None
    ) -> LogPage:
        """Return records of an organization, the newest first."""
        columns = self._table.c
        which = [columns.organization == write_id(organization)]
        if before is not None:
            which.append(columns.number < before)
        rows = select(columns.number, columns.at, columns.text).where(*which)
        page = rows.order_by(columns.number.desc()).limit(limit)
        return [Change.read(*row) for row in connection.execute(page)]

    def due(self, connection: Connection, until: int) -> bytes | None:
        """Return the organization of the oldest record, if that is of an instant or before."""
        columns = self._table.c
        due = select(columns.organization).where(columns.at <= until)
        id = connection.scalar(due.order_by(columns.at).limit(1))
        return None if id is None else bytes(id)

    def remove(self, connection: Connection, id: bytes, until: int) -> None:
        """Delete some records of an organization, of an instant or before."""
        columns = self._table.c
        due = columns.organization == id, columns.at <= until
        some = select(columns.number).where(*due).order_by(columns.number).limit(REMOVED_AT_ONCE)
        numbers = list(connection.scalars(some))
        if numbers:
            old = columns.number <= numbers[-1]
            connection.execute(delete(self._table).where(*due, old))
