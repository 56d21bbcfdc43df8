"""The statements of usage histories, and of the marks of usage batches in the same table."""

from collections.abc import Iterable, Mapping
from hashlib import blake2b, sha256
from typing import Any, Final

from sqlalchemy import Connection, bindparam, delete, select, update

from ...core.timestamps import DAY
from ...core.usage_history import KEPT_DAYS, UsageHistory, added
from ...core.usage_marks import KEPT_DAYS as MARKS_KEPT_DAYS
from ..answers import HistoryOwner, UsageBatch, reading_state
from .codec import write_id
from .databases import Database
from .tables import Tables

_ID_BYTES: Final = 32
_NUMBER_BYTES: Final = 8


class Histories:
    """The statements of usage histories, in a transaction that the caller begins and commits.

    A history is read, merged in the process and written while its row is locked. No admission
    touches these rows, so none waits for a write.

    Args:
        tables: the tables.
        database: the kind of database.
    """

    def __init__(self, tables: Tables, database: Database) -> None:
        table = tables.usage
        self._table: Final = table
        self._database: Final = database
        chosen = table.c.id.in_(bindparam("ids", expanding=True))
        self._held: Final = (
            select(table.c.id, table.c.cells, table.c.until_day)
            .where(chosen)
            .order_by(table.c.id)  # The order of locks.
            .with_for_update()
        )
        self._replace: Final = (
            update(table)
            .where(table.c.id == bindparam("usage_id"))
            .values(cells=bindparam("new_cells"), until_day=bindparam("new_day"))
        )
        self._remove: Final = delete(table).where(chosen)

    def add(
        self,
        connection: Connection,
        additions: Mapping[HistoryOwner, UsageHistory],
        batch: UsageBatch | None,
    ) -> None:
        """Add to histories, inserting those that do not exist, unless the batch is counted."""
        by_id = {id_of(owner): addition for owner, addition in additions.items()}
        rows = self._locked(connection, [*by_id, *_ids_of(batch)])
        if not self._mark(connection, rows, batch):
            return
        values: list[dict[str, Any]] = []
        for id, addition in by_id.items():
            cells, until = rows[id]
            until = max(until, addition.last_day + KEPT_DAYS)
            new = added(cells or None, addition)
            values.append({"usage_id": id, "new_cells": new, "new_day": until})
        connection.execute(self._replace, values)

    def is_new(self, connection: Connection, batch: UsageBatch | None) -> bool:
        """Mark a batch as counted; return whether it is to be counted in this transaction.

        The first step of the transaction: it may begin anew to insert the mark. A repetition waits
        for the transaction of the call before.
        """
        if batch is None:
            return True
        return self._mark(connection, self._locked(connection, _ids_of(batch)), batch)

    def _mark(
        self,
        connection: Connection,
        rows: Mapping[bytes, tuple[bytes, int]],
        batch: UsageBatch | None,
    ) -> bool:
        """Mark a batch as counted, in its locked row; return whether it is to be counted."""
        for id in _ids_of(batch):
            assert batch is not None
            if batch.number <= int.from_bytes(rows[id][0]):
                return False
            day = self._database.now(connection) // DAY + MARKS_KEPT_DAYS + 1
            cells = batch.number.to_bytes(_NUMBER_BYTES)
            connection.execute(self._replace, {"usage_id": id, "new_cells": cells, "new_day": day})
        return True

    def read(self, connection: Connection, owner: HistoryOwner) -> UsageHistory:
        """Return a history."""
        table = self._table
        value = connection.scalar(select(table.c.cells).where(table.c.id == id_of(owner)))
        with reading_state(owner.organization, "its usage history in the database"):
            return UsageHistory.decode(bytes(value) if value else None)

    def remove(self, connection: Connection, owners: Iterable[HistoryOwner]) -> None:
        """Remove histories."""
        ids = sorted(map(id_of, owners))
        if ids:
            connection.execute(self._remove, {"ids": ids})

    def _locked(
        self, connection: Connection, ids: Iterable[bytes]
    ) -> dict[bytes, tuple[bytes, int]]:
        """Lock rows and return them by id, after inserting those that do not exist."""
        ids = sorted(ids)
        while len(rows := self._lock(connection, ids)) < len(ids):
            missing = [id for id in ids if id not in rows]
            with self._database.making(connection):
                empty = [{"id": id, "cells": b"", "until_day": 0} for id in missing]
                connection.execute(self._database.insert_missing(self._table), empty)
        return rows

    def _lock(self, connection: Connection, ids: list[bytes]) -> dict[bytes, tuple[bytes, int]]:
        rows = connection.execute(self._held, {"ids": ids})
        return {bytes(id): (bytes(cells), until) for id, cells, until in rows}


def id_of(owner: HistoryOwner) -> bytes:
    """Return the primary key of a history, which has the same length for every id (D36)."""
    organization, handle = owner
    text = b"" if handle is None else handle.encode("utf-8", "surrogatepass")
    return sha256(text + b"\n" + write_id(organization)).digest()


def _ids_of(batch: UsageBatch | None) -> tuple[bytes, ...]:
    """Return the primary key of a writer's mark; none without a batch."""
    if batch is None:
        return ()
    writer = batch.writer.encode()
    return (blake2b(writer, digest_size=_ID_BYTES, person=b"usage batches").digest(),)
