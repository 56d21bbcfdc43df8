"""A revocation in one statement, for a database whose queries may write.

In a transaction of several statements a revocation takes five round trips, and all admissions of
the organization wait for four of them. This statement locks the organization, reads, decides and
writes, and the server commits it by itself: one round trip, for which no admission waits.
"""

from typing import Any, Final, NamedTuple

from sqlalchemy import (
    BigInteger,
    Connection,
    Integer,
    Select,
    bindparam,
    case,
    func,
    literal_column,
    select,
    true,
    update,
)

from ...core.changes import ChangeDraft
from .change_counter import ChangeCounter
from .change_log import Moment
from .databases import Database
from .tables import Tables


class Found(NamedTuple):
    """What a revocation found under the lock of the organization, and whether it had an effect."""

    windows: bytes | None
    """The windows of the organization, with its quota leases."""
    used: bytes | None
    """The usage of keys in the organization's row."""
    moment: Moment
    """Its instant, and the number of its record."""
    key: Any
    """The row of the key as it was before, as ``key_columns`` has it; None: there is none."""
    has_revoked: bool
    """Whether it has revoked the key."""


class Revocation:
    """The statement. It commits by itself, so it runs outside of any transaction.

    Each part reads the one before, so they run in order: lock the organization, then the key; read
    the clock; revoke the key; advance the change counter; insert the record; mark the organization
    and send the recall. What was locked is read as it is after the wait. The newest number of the
    change log is not: if the wait was for another change, that number may be taken, and then the
    statement fails without an effect.

    Args:
        tables: the tables.
        database: the kind of database.
        change_counter: counts the change.
    """

    def __init__(self, tables: Tables, database: Database, change_counter: ChangeCounter) -> None:
        self._tables: Final = tables
        self._database: Final = database
        self._change_counter: Final = change_counter
        self._built: Final[dict[bool, Select[*tuple[Any, ...]]]] = {}

    def revoke(
        self,
        connection: Connection,
        owner: bytes,
        id: str,
        now: int | None,
        change: ChangeDraft | None,
    ) -> Found | None:
        """Revoke a key, unless it was revoked before.

        Args:
            connection: without a transaction.
            owner: the organization.
            id: the key's id.
            now: the instant in microseconds; None: the server's clock.
            change: the record for the change log; None: it leaves none.

        Returns:
            What it found; None: there is no such organization. A live key is not revoked if the
            change counter has no row yet.
        """
        values = {"the_organization": owner, "the_id": id, "the_instant": now}
        if change is not None:
            values["the_text"] = change.text()
        self._database.reading_once(connection)
        row = connection.execute(
            self._statement(is_logged=change is not None), values
        ).one_or_none()
        if row is None:
            return None
        windows, used, at, clock, number, marked, *key = row
        moment = Moment(at, number, clock)
        return Found(windows, used, moment, None if key[0] is None else key, marked == 1)

    def _statement(self, *, is_logged: bool) -> Select[*tuple[Any, ...]]:
        found = self._built.get(is_logged)
        if found is None:
            found = self._built[is_logged] = self._build(is_logged=is_logged)
        return found

    def _build(self, *, is_logged: bool) -> Select[*tuple[Any, ...]]:
        tables, keys, changes = self._tables, self._tables.keys.c, self._tables.changes.c
        organizations = tables.organizations.c
        of = bindparam("the_organization", type_=organizations.id.type)
        owner = (
            select(organizations.windows, organizations.used)
            .where(organizations.id == of)
            .with_for_update()
            .cte("owner")
        )
        count = select(func.count()).select_from(owner).scalar_subquery()
        is_locked = count >= literal_column("0")
        held = (
            select(*tables.key_columns())
            .where(keys.id == bindparam("the_id"), keys.organization == of, is_locked)
            .with_for_update()
            .cte("held")
        )
        newest = select(func.max(changes.number)).where(changes.organization == of)
        number: Any = (
            func.coalesce(newest.scalar_subquery(), 0) + 1
            if is_logged
            else literal_column("0", Integer())
        )
        read = (
            select(self._database.clock.label("clock"), number.label("number"))
            .where(is_locked)
            .subquery("read")
        )
        at = func.coalesce(bindparam("the_instant", type_=BigInteger()), read.c.clock)
        present = select(at.label("at"), read.c.clock, read.c.number).cte("present")
        # As text: SQLAlchemy 2.0.0 compiles no query of a CTE as a value to set.
        end: Any = literal_column("(SELECT present.at FROM present)", BigInteger())
        revoked = (
            update(tables.keys)
            .where(
                keys.handle == held.c.handle,
                held.c.revoked_at.is_(None),
                self._change_counter.exists,
            )
            .values(revoked_at=end, ends_at=case((keys.ends_at > end, end), else_=keys.ends_at))
            .returning(keys.handle)
            .cte("revoked")
        )
        record = {
            "organization": of,
            "number": present.c.number,
            "at": present.c.at,
            "text": bindparam("the_text", type_=changes.text.type),
        }
        clock: Any = literal_column("(SELECT present.clock FROM present)", BigInteger())
        marked = self._change_counter.join(
            clock, record if is_logged else {}, present, revoked, recalls=True
        ).cte("marked")
        has_revoked = select(func.count()).select_from(marked).scalar_subquery()
        return (
            select(*owner.c, *present.c, has_revoked.label("has_revoked"), *held.c)
            .join_from(owner, present, true())
            .outerjoin(held, true())
        )
