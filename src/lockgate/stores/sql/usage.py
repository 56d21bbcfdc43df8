"""The statements of usage histories."""

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any, Final

from sqlalchemy import Connection, bindparam, delete, select, update

from ...core.usage_history import KEPT_DAYS, UsageHistory, added
from ..answers import HistoryOwner, reading_state
from .codec import write_id
from .databases import Database
from .tables import Tables


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
        self._tables: Final = tables
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

    def add(self, connection: Connection, additions: Mapping[HistoryOwner, UsageHistory]) -> None:
        """Add to histories, inserting those that do not exist."""
        by_id = {id_of(owner): addition for owner, addition in additions.items()}
        ids = sorted(by_id)
        while len(rows := self._lock(connection, ids)) < len(ids):
            missing = [id for id in ids if id not in rows]
            with self._database.making(connection):
                empty = [{"id": id, "cells": b"", "until_day": 0} for id in missing]
                connection.execute(self._database.insert_missing(self._table), empty)
        values: list[dict[str, Any]] = []
        for id in ids:
            cells, until = rows[id]
            until = max(until, by_id[id].last_day + KEPT_DAYS)
            new = added(cells or None, by_id[id])
            values.append({"usage_id": id, "new_cells": new, "new_day": until})
        connection.execute(self._replace, values)

    def read(self, connection: Connection, owner: HistoryOwner) -> UsageHistory:
        """Return a history."""
        table = self._table
        value = connection.scalar(select(table.c.cells).where(table.c.id == id_of(owner)))
        with reading_state(owner.organization, "its usage history in the database"):
            return UsageHistory.decode(bytes(value) if value else None)

    def remove(self, connection: Connection, owners: Iterable[HistoryOwner]) -> None:
        """Remove histories, if the tables have a place for them."""
        ids = sorted(map(id_of, owners))
        if ids and self._tables.has_usage:
            connection.execute(self._remove, {"ids": ids})

    def _lock(self, connection: Connection, ids: list[bytes]) -> dict[bytes, tuple[bytes, int]]:
        rows = connection.execute(self._held, {"ids": ids})
        return {bytes(id): (bytes(cells), until) for id, cells, until in rows}


def id_of(owner: HistoryOwner) -> bytes:
    """Return the primary key of a history, which has the same length for every id (D36)."""
    organization, handle = owner
    text = b"" if handle is None else handle.encode("utf-8", "surrogatepass")
    return sha256(text + b"\n" + write_id(organization)).digest()
