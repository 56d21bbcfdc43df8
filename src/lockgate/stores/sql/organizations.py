"""The statements of organizations: locks, windows and slots."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, bindparam, delete, select, update

from ...core.leases import Lease, Leases, live
from ...core.limit_hits import peek_limited
from ...core.limit_windows import LimitWindows
from ...core.quota_leases import QuotaLeases, current, lowered, peek_leased, until_settled
from ...core.quota_leases import live as live_leases
from ...core.sliding_window import EMPTY, Reading, State, Window
from ..answers import UnreadableState, reading_state
from .codec import (
    EMPTY_COLUMNS,
    LIMIT_ROWS,
    REMOVE_LIMITS,
    ROW,
    idle_day,
    lease_number,
    limit_id,
    read_cells,
    read_leases,
    read_state,
    write_id,
    write_leases,
    write_state,
)
from .databases import Database
from .tables import Tables

T = TypeVar("T")


class Organizations:
    """The statements of organizations, in a transaction that the caller begins and commits.

    Args:
        tables: the tables.
        database: the kind of database.
    """

    def __init__(self, tables: Tables, database: Database) -> None:
        self._table: Final = tables.organizations
        self._tables: Final = tables
        self._database: Final = database
        columns = tables.organizations.c
        read = select(columns.slots, columns.idle_day)
        self._lock: Final = read.where(columns.id == bindparam("of")).with_for_update()

    def find_and_lock(self, connection: Connection, id: bytes) -> Any:
        """Lock an organization; return its slots and idle day, or None."""
        return connection.execute(self._lock, {"of": id}).one_or_none()

    def lock(self, connection: Connection, id: bytes) -> Any:
        """Lock an organization as :meth:`find_and_lock`, inserting it if necessary.

        This is the first statement of its transaction, which may restart here.
        """
        table = self._table
        while (row := self.find_and_lock(connection, id)) is None:
            made = {"id": id, "idle_day": 0}
            with self._database.making(connection):
                connection.execute(self._database.insert_missing(table), made)
        return row

    def lock_within(self, connection: Connection, id: bytes) -> None:
        """Lock an organization in a transaction of the host's, inserting it if necessary.

        Unlike :meth:`lock`, it never begins the transaction anew. An organization that it inserts
        stays for a day, in which a pair of stores reads the change.
        """
        table = self._table
        day = idle_day(self._database.now(connection)) + 1
        connection.execute(self._database.insert_missing(table), {"id": id, "idle_day": day})
        connection.execute(select(table.c.id).where(table.c.id == id).with_for_update())

    def reset(self, connection: Connection, id: str) -> None:
        """Empty the windows and the named limits of a locked organization.

        Quota leases stay, with the empty windows that their units will be counted in; of a state
        that cannot be decoded nothing stays.
        """
        columns = self._table.c
        mine = columns.id == write_id(id)
        state: State = ()
        leases: QuotaLeases = ()
        with suppress(UnreadableState):
            state, leases = self._state(connection, id, ())
        kept = write_state((EMPTY,) * len(state), leases) if leases else None
        connection.execute(update(self._table).where(mine).values(windows=kept))
        limits = self._tables.limits
        connection.execute(delete(limits).where(limits.c.organization == write_id(id)))

    def peek(
        self,
        connection: Connection,
        organization: str,
        windows: tuple[Window, ...],
        now: int | None,
        named: LimitWindows | None,
    ) -> Reading:
        """Return the reading of an organization's windows and named limits, without a charge."""
        id = write_id(organization)
        state, leases = self._state(connection, organization, windows) if windows else ((), ())
        now = self._database.now(connection) if now is None else now
        if named is None:
            return peek_leased(state, leases, windows, now)
        if leases:
            state, leases = current(state, leases, windows, now)
            windows = lowered(windows, leases)
        named = named.at(now, organization)
        limits = self._tables.limits
        ids = [limit_id(id, field) for field in named.fields]
        found = connection.execute(select(limits.c.id, limits.c.cells).where(limits.c.id.in_(ids)))
        with reading_state(organization, LIMIT_ROWS, REMOVE_LIMITS):
            cells = {bytes(one): read_cells(value) for one, value in found}
        reading = peek_limited(state, windows, [cells.get(one) for one in ids], named.windows, now)
        return until_settled(reading, leases)

    def quota_leases(
        self, connection: Connection, organization: str, now: int | None
    ) -> QuotaLeases:
        """Return the quota leases of an organization that are out."""
        columns = self._table.c
        read = select(columns.windows, self._database.clock)
        found = connection.execute(read.where(columns.id == write_id(organization))).one_or_none()
        if found is None:
            return ()
        return _leases(organization, found[0], self._database.read_clock(found[1]), now)

    def leases_in_use(
        self, connection: Connection, organization: str, now: int | None
    ) -> QuotaLeases:
        """Return the quota leases of an organization, less those that are being settled.

        A settlement is announced before it waits for the lock of the organization, so a change does
        not wait for the settlements of all holders, which follow one another.
        """
        settling = self._database.settling
        if settling is None:
            return self.quota_leases(connection, organization, now)
        id, columns = write_id(organization), self._table.c
        read = select(columns.windows, self._database.clock, settling).where(columns.id == id)
        found = connection.execute(read).one_or_none()
        if found is None:
            return ()
        leases = _leases(organization, found[0], self._database.read_clock(found[1]), now)
        return tuple(one for one in leases if lease_number(id, one.id) not in found[2])

    def _state(
        self, connection: Connection, organization: str, windows: tuple[Window, ...]
    ) -> tuple[State, QuotaLeases]:
        """Return the state of an organization's windows, and its quota leases."""
        columns = self._table.c
        mine = select(columns.windows).where(columns.id == write_id(organization))
        with reading_state(organization, ROW, EMPTY_COLUMNS):
            return read_state(connection.scalar(mine), windows)

    def held(self, connection: Connection, organization: str, now: int | None) -> tuple[Lease, ...]:
        """Return the live leases of an organization."""
        column = self._table.c.slots
        mine = select(column).where(self._table.c.id == write_id(organization))
        with reading_state(organization, ROW, EMPTY_COLUMNS):
            leases = read_leases(connection.scalar(mine))
        return live(leases, self._database.now(connection) if now is None else now)

    def lease(
        self,
        connection: Connection,
        organization: str,
        now: int | None,
        change: Callable[[Leases, int], tuple[T, Leases]],
    ) -> T:
        """Lock an organization and change its leases by a function of ``core/leases.py``."""
        table = self._table
        id = write_id(organization)
        slots, day = self.lock(connection, id)
        with reading_state(organization, ROW, EMPTY_COLUMNS):
            before = read_leases(slots)
        value, after = change(before, self._database.now(connection) if now is None else now)
        if after != before:
            latest = max((idle_day(lease.deadline) for lease in after), default=0)
            connection.execute(
                update(table)
                .where(table.c.id == id)
                .values(slots=write_leases(after), idle_day=max(day or 0, latest))
            )
        return value


def leases_out(organization: str, windows: bytes | None, clock: int) -> QuotaLeases | None:
    """Return the quota leases of a locked organization that are out at a change of it; None: they
    cannot be read.

    A lease is granted under the same lock, so each that is granted later finds the change.
    """
    with suppress(UnreadableState):
        return _leases(organization, windows, clock)
    return None


def _leases(
    organization: str, windows: bytes | None, clock: int, now: int | None = None
) -> QuotaLeases:
    """Return the quota leases in the windows of an organization."""
    with reading_state(organization, ROW, EMPTY_COLUMNS):
        _, leases = read_state(windows, ())
    return live_leases(leases, clock if now is None else now)
