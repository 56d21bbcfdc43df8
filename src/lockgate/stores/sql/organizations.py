"""The statements of organizations: locks and resets."""

from contextlib import suppress
from typing import Any, Final

from sqlalchemy import Connection, bindparam, delete, select, update

from ...core.budgets import SLOTS, UNUSED
from ...core.ledger import Ledger, Reset
from ...core.quota_leases import QuotaLeases, live
from ..answers import UNREADABLE
from .codec import idle_day, limit_id, read_state, write_state
from .databases import Database
from .tables import Tables


class Organizations:
    """The statements of organizations, in a transaction that the caller begins and commits.

    Args:
        tables: the tables.
        database: the kind of database.
    """

    def __init__(self, tables: Tables, database: Database) -> None:
        self._table: Final = tables.organizations
        self._limits: Final = tables.limits
        self._database: Final = database
        columns = tables.organizations.c
        read = select(columns.windows)
        self._lock: Final = read.where(columns.id == bindparam("of")).with_for_update()

    def find_and_lock(self, connection: Connection, id: bytes) -> Any:
        """Lock an organization; return its windows, or None."""
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

    def reset(self, connection: Connection, id: bytes, row: Any, action: Reset) -> None:
        """Apply a reset to a locked organization; of windows that cannot be decoded nothing stays.

        Args:
            connection: in the transaction.
            id: the organization.
            row: as :meth:`lock` returned it.
            action: the reset.
        """
        ledger = Ledger(budgets={SLOTS: UNUSED})  # Whatever slots it has: no other field can stay.
        with suppress(*UNREADABLE):
            ledger = ledger._replace(leases=read_state(row.windows)[1])
        _, kept = action.apply(ledger, 0)
        windows = write_state(kept.windows, kept.leases) if kept.leases else None
        table, limits = self._table, self._limits
        connection.execute(update(table).where(table.c.id == id).values(windows=windows))
        stays = limits.c.id.in_([limit_id(id, field) for field in kept.budgets])
        connection.execute(delete(limits).where(limits.c.organization == id, ~stays))


def leases_out(windows: bytes | None, clock: int) -> QuotaLeases | None:
    """Return the quota leases of a locked organization that are out at a change of it; None: they
    cannot be read.

    A lease is granted under the same lock, so each that is granted later finds the change.
    """
    with suppress(*UNREADABLE):
        return live(read_state(windows)[1], clock)
    return None
