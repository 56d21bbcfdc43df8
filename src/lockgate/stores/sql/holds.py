"""The statements of holds: budgets are rows of the table of named limits."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection, bindparam, func, select

from ...core.holds import Budget, HoldAction, HoldAnswer, apply, changed
from ...core.limits import span_of
from ...core.timestamps import DAY
from ..answers import reading_state
from .codec import LIMIT_ROWS, REMOVE_LIMITS, idle_day, limit_id, write_id
from .databases import Database
from .organizations import Organizations
from .tables import Tables


class Holds:
    """The statements of holds, in a transaction that the caller begins and commits.

    Args:
        tables: the tables.
        database: the kind of database.
        organizations: locks the row of an organization, which covers its budgets.
    """

    def __init__(self, tables: Tables, database: Database, organizations: Organizations) -> None:
        table = tables.limits
        self._limits: Final = table
        self._database: Final = database
        self._organizations: Final = organizations
        self._read: Final = select(table.c.id, table.c.cells).where(
            table.c.id.in_(bindparam("ids", expanding=True))
        )
        self._count: Final = select(func.count()).where(table.c.organization == bindparam("owner"))

    def hold(
        self, connection: Connection, organization: str, action: HoldAction, now: int | None
    ) -> HoldAnswer:
        """Apply an action to the budgets of an organization, which is locked first."""
        owner = write_id(organization)
        self._organizations.lock(connection, owner)
        ids = [limit_id(owner, field) for field in action.fields]
        found = connection.execute(self._read, {"ids": ids})
        rows = {bytes(id): bytes(cells) for id, cells in found}
        with reading_state(organization, LIMIT_ROWS, REMOVE_LIMITS):
            before = [Budget.read(rows[id]) if id in rows else None for id in ids]
        kept = connection.scalar(self._count, {"owner": owner}) or 0 if None in before else 0
        now = self._database.now(connection) if now is None else now
        answer, after = apply(action, before, now, kept)
        self._write(connection, owner, changed(action, before, after))
        return answer

    def _write(
        self, connection: Connection, owner: bytes, budgets: Sequence[tuple[str, Budget]]
    ) -> None:
        """Write budgets. Pruning may have deleted the row of one that counts nothing."""
        if not budgets:
            return
        rows = [
            {
                "id": limit_id(owner, field),
                "organization": owner,
                "cells": budget.written(),
                "idle_day": idle_day(budget.last + span_of(field) + DAY),
            }
            for field, budget in budgets
        ]
        connection.execute(self._database.upsert(self._limits, rows, ["cells", "idle_day"]))
