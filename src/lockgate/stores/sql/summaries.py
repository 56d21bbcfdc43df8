"""The statements that list organizations with their plans, live keys and latest use."""

from typing import Any, Final

from sqlalchemy import Connection, exists, func, select

from ..answers import FoundOrganizations, OrganizationSummary
from .codec import Uses, read_id, read_organization, read_uses, write_id
from .tables import Tables

_READ_AT_ONCE: Final = 500


class Summaries:
    """The statements of :meth:`~lockgate.stores.base.Store.organizations`.

    Args:
        tables: the tables.
    """

    def __init__(self, tables: Tables) -> None:
        self._organizations: Final = tables.organizations
        self._keys: Final = tables.keys

    def read(
        self, connection: Connection, limit: int, now: int, cursor: str | None
    ) -> FoundOrganizations:
        """Return organizations in the order of their ids: one step, which skips some rows.

        A row without a key and a plan has windows only, as for a session's organization.
        """
        table, keys = self._organizations.c, self._keys.c
        has_keys = exists().where(keys.organization == table.id)
        limit = min(limit, _READ_AT_ONCE)
        some = select(table.id, table.plan, table.overrides, table.used, has_keys)
        after = table.id > write_id(cursor or "")
        rows = connection.execute(some.where(after).order_by(table.id).limit(limit)).all()
        listed = [row for row in rows if row[1] is not None or row[4]]
        uses = {bytes(row[0]): read_uses(row[3], row[0]) for row in listed}
        live = self._live(connection, uses, now) if listed else {}
        found: list[OrganizationSummary] = []
        for id, plan, overrides, *_ in listed:
            name, counted = read_id(id), live.get(bytes(id), (0, None))
            placed = read_organization(name, plan, overrides)
            found.append(OrganizationSummary(name, placed, *counted))
        following = read_id(rows[-1][0]) if len(rows) == limit else None
        return FoundOrganizations(found, following)

    def _live(
        self, connection: Connection, uses: dict[bytes, Uses], now: int
    ) -> dict[bytes, tuple[int, int | None]]:
        """Return the number of live keys and their latest use, by organization.

        Usage beside the windows belongs to a few keys, which may have ended.
        """
        keys = self._keys.c
        live = keys.organization.in_(uses), keys.ends_at > now, keys.revoked_at.is_(None)
        totals: Any = select(keys.organization, func.count(), func.max(keys.last_used_at))
        found: dict[bytes, tuple[int, int | None]] = {}
        rows: Any = connection.execute(totals.where(*live).group_by(keys.organization)).all()
        for id, number, last in rows:
            found[bytes(id)] = number, last
        recent = {handle: at for some in uses.values() for handle, (_, at) in some.items()}
        if recent:
            which = select(keys.organization, keys.handle).where(*live, keys.handle.in_(recent))
            for owner, handle in connection.execute(which):
                counted, latest = found[bytes(owner)]
                found[bytes(owner)] = counted, max(latest or 0, recent[handle])
        return found
