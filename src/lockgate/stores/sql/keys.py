"""Keys in SQL: what each verb does within its transaction."""

from typing import Any, Final

from sqlalchemy import Connection, and_, delete, func, insert, or_, select, update

from ...errors import HandleTaken, KeyLimitReached
from ...rules.digests import Digest
from ...rules.keys import ApiKey, KeyDraft
from .encoding import read_key, read_uses, write_id, write_key
from .tables import Tables


class Keys:
    """The statements of keys, on a connection that whoever calls begins and commits.

    Args:
        tables: where.
    """

    def __init__(self, tables: Tables) -> None:
        self._table: Final = tables.keys
        self._removed: Final = tables.removed_handles
        self._accounts: Final = tables.accounts
        # Some of its usage lies beside the windows: one statement reads both as they are at once.
        self._with_usage: Final = select(tables.keys, tables.organizations.c.used).outerjoin_from(
            tables.keys, tables.organizations
        )

    def insert(self, connection: Connection, draft: KeyDraft, cap: int | None, now: int) -> ApiKey:
        """Insert a key; its organization is there, and locked."""
        keys = self._table
        if cap is not None:
            mine = and_(keys.c.organization == write_id(draft.organization), self._live(now))
            if (connection.scalar(select(func.count()).where(mine)) or 0) >= cap:
                raise KeyLimitReached(cap)
        return self.add(connection, draft.created(now))

    def add(self, connection: Connection, key: ApiKey) -> ApiKey:
        """Insert the row of a key.

        Raises:
            HandleTaken: a removed key had its handle.
        """
        connection.execute(insert(self._table), write_key(key))
        # Asked after the insert, which waits for a removal of the same handle.
        gone = self._removed.c.handle == key.handle
        if connection.scalar(select(1).where(gone)) is not None:
            raise HandleTaken
        return key

    def taken(self, connection: Connection, draft: KeyDraft) -> bool:
        """Whether something that is to be unique is there already."""
        columns = self._table.c
        taken = or_(columns.handle == draft.handle, columns.id == draft.id)
        return connection.scalar(select(1).where(taken)) is not None

    def remove(self, connection: Connection, organization: str) -> None:
        """Delete the keys of an organization; their handles stay taken. It is locked."""
        keys = self._table
        mine = keys.c.organization == write_id(organization)
        handles = select(keys.c.handle).where(mine)
        connection.execute(insert(self._removed).from_select(["handle"], handles))
        connection.execute(delete(keys).where(mine))

    def by_handle(self, connection: Connection, handle: str) -> ApiKey | None:
        """The key with this handle."""
        return self._one(connection, self._table.c.handle == handle)

    def get(self, connection: Connection, organization: str, id: str) -> ApiKey | None:
        """The key of an organization with this id."""
        return self._one(connection, self._owned(organization, id))

    def list(self, connection: Connection, organization: str) -> list[ApiKey]:
        """The keys of an organization, newest first (D10)."""
        columns = self._table.c
        statement = self._with_usage.where(columns.organization == write_id(organization))
        rows = connection.execute(statement.order_by(columns.created_at.desc(), columns.id))
        return [_key(row) for row in rows]

    def revoke(self, connection: Connection, organization: str, id: str, now: int) -> bool:
        """Revoke a key that is live; whether there was one. Its organization is locked."""
        keys = self._table
        live = and_(self._owned(organization, id), keys.c.revoked_at.is_(None))
        return connection.execute(update(keys).where(live).values(revoked_at=now)).rowcount > 0

    def owner(self, connection: Connection, handle: str) -> bytes | None:
        """The organization of the key with this handle."""
        keys = self._table
        id = connection.scalar(select(keys.c.organization).where(keys.c.handle == handle))
        return None if id is None else bytes(id)

    def rehash(self, connection: Connection, handle: str, old: Digest, new: Digest) -> bool:
        """Replace a digest if it still is ``old``."""
        keys = self._table
        unchanged = update(keys).where(
            keys.c.handle == handle, keys.c.scheme == old.scheme, keys.c.digest == old.value
        )
        values = unchanged.values(scheme=new.scheme, digest=new.value)
        return connection.execute(values).rowcount == 1

    def census(self, connection: Connection, now: int) -> dict[str, int]:
        """How many keys and tokens are digested by each scheme."""
        key, account = self._table.c, self._accounts.c
        counts: dict[str, int] = {}
        good = account.token_revoked_at.is_(None)
        for scheme, those in ((key.scheme, self._live(now)), (account.scheme, good)):
            rows = select(scheme, func.count()).where(those).group_by(scheme)
            for name, number in connection.execute(rows):
                counts[name] = counts.get(name, 0) + number
        return counts

    def _one(self, connection: Connection, which: Any) -> ApiKey | None:
        row = connection.execute(self._with_usage.where(which)).one_or_none()
        return None if row is None else _key(row)

    def _owned(self, organization: str, id: str) -> Any:
        columns = self._table.c
        return and_(columns.id == id, columns.organization == write_id(organization))

    def _live(self, now: int) -> Any:
        expires = self._table.c.expires_at
        return and_(self._table.c.revoked_at.is_(None), or_(expires.is_(None), expires > now))


def _key(row: Any) -> ApiKey:
    return read_key(row, read_uses(row[-1]))
