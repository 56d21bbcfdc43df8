"""Pruning: processes that make charges remove idle state, a few rows at a time (W10)."""

from random import expovariate
from time import monotonic
from typing import Final

from sqlalchemy import Column, Connection, Table, delete, exists, select, update

from ...core.timestamps import DAY
from ..runtime.process_hooks import after_fork_in_child, own_lock
from .databases import Database
from .tables import Tables
from .transactions import Work

INTERVAL: Final = 60.0
"""Mean seconds between two steps of a process, unless a step found its maximum of rows. They are
drawn from an exponential distribution, which has no memory: workers that live for seconds take as
many steps together as one that lives as long as all of them."""
AT_ONCE: Final = 50
"""Rows of one step, which takes a millisecond or two."""


class Pruning:
    """Removes empty windows, organizations without a plan, key or account, and named limits, holds,
    slots and usage histories that show nothing any more.

    ``Store.remove_ended`` removes ended keys. A step skips locked rows, so it neither waits nor
    delays an admission.

    Args:
        tables: the tables.
        database: the kind of database.
    """

    def __init__(self, tables: Tables, database: Database) -> None:
        self._organizations = tables.organizations
        self._keys = tables.keys
        self._accounts = tables.accounts
        self._usage = tables.usage
        self._limits = tables.limits
        self._database = database
        self._lock = own_lock()
        self.forked()
        after_fork_in_child(self)

    def forked(self) -> None:
        """Draw when the first step of this process is due, apart from those of its siblings."""
        self._next = monotonic() + expovariate(1) * INTERVAL

    def due(self) -> Work[None] | None:
        """Return the next step if it is due, to one caller only."""
        now = monotonic()
        if now < self._next:
            return None
        with self._lock:
            if now < self._next:
                return None
            self._next = now + expovariate(1) * INTERVAL
        return self._step

    def _step(self, connection: Connection) -> None:
        if self.prune(connection) == AT_ONCE:
            self._next = monotonic()

    def prune(self, connection: Connection, now: int | None = None) -> int:
        """Run one step in the open transaction; return its number of rows."""
        table = self._organizations
        today = (self._database.now(connection) if now is None else now) // DAY
        idle = (
            select(table.c.id)
            .where(table.c.idle_day <= today)
            .order_by(table.c.idle_day)
            .limit(AT_ONCE)
            .with_for_update(skip_locked=True)
        )
        ids = list(connection.scalars(idle))
        if ids:
            these = table.c.id.in_(ids)
            has_keys = exists().where(self._keys.c.organization == table.c.id)
            has_account = exists().where(self._accounts.c.organization == table.c.id)
            forgotten = these, table.c.plan.is_(None), ~has_keys, ~has_account
            connection.execute(delete(table).where(*forgotten))
            connection.execute(update(table).where(these).values(windows=None, idle_day=None))
        usage, limits = self._usage, self._limits
        return max(
            len(ids),
            _prune(connection, usage, usage.c.until_day, today),
            _prune(connection, limits, limits.c.idle_day, today),
        )


def _prune(connection: Connection, table: Table, until: Column[int], today: int) -> int:
    """Delete some rows that have ended; return their number."""
    ended = select(table.c.id).where(until <= today).limit(AT_ONCE)
    ids = list(connection.scalars(ended.with_for_update(skip_locked=True)))
    if ids:
        connection.execute(delete(table).where(table.c.id.in_(ids)))
    return len(ids)
