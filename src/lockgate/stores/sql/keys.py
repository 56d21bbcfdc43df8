"""Keys in SQL: what each verb does within its transaction."""

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection, Table, and_, func, insert, not_, null, or_, select, update

from ...errors import KeyLimitReached
from ...rules.digests import Digest
from ...rules.keys import ApiKey, KeyDraft
from ...rules.seals import Counted, tally
from .encoding import read_key, read_uses, write_id, write_key
from .tables import Tables

_PEPPER_ID: Final = 8
"""Characters of a seal that name its pepper."""


class Keys:
    """The statements of keys, on a connection that whoever calls begins and commits.

    Args:
        tables: where.
    """

    def __init__(self, tables: Tables) -> None:
        self._table: Final = tables.keys
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
        key = draft.created(now)
        connection.execute(insert(keys), write_key(key))
        return key

    def taken(self, connection: Connection, draft: KeyDraft) -> bool:
        """Whether something that is to be unique is there already."""
        columns = self._table.c
        taken = or_(columns.handle == draft.handle, columns.id == draft.id)
        return connection.scalar(select(1).where(taken)) is not None

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
        """Replace digest and seal if they still are ``old``."""
        keys = self._table
        unchanged = update(keys).where(keys.c.handle == handle, kept_as(keys, old))
        return connection.execute(unchanged.values(**columns_of(new))).rowcount == 1

    def scan(self, connection: Connection, after: str, limit: int) -> Sequence[ApiKey]:
        """The next keys after a handle, in the order of their handles."""
        handle = self._table.c.handle
        some = self._with_usage.where(handle > after).order_by(handle).limit(limit)
        return [_key(row) for row in connection.execute(some)]

    def census(self, connection: Connection, now: int) -> dict[str, int]:
        """How many keys and tokens are digested by each scheme."""
        key, account = self._table.c, self._accounts.c
        good = account.token_revoked_at.is_(None)
        rows: list[Counted] = []
        for scheme, seal, those in (
            (key.scheme, key.seal, self._live(now)),
            (account.scheme, account.seal, good),
            (null(), account.seal, not_(good)),
        ):
            pepper = func.substr(seal, 1, _PEPPER_ID)
            grouped = select(scheme.label("s"), pepper.label("p"), func.count()).where(those)
            for name, by, number in connection.execute(grouped.group_by("s", "p")):
                rows.append((name, by, number))
        return tally(rows)

    def _one(self, connection: Connection, which: Any) -> ApiKey | None:
        row = connection.execute(self._with_usage.where(which)).one_or_none()
        return None if row is None else _key(row)

    def _owned(self, organization: str, id: str) -> Any:
        columns = self._table.c
        return and_(columns.id == id, columns.organization == write_id(organization))

    def _live(self, now: int) -> Any:
        expires = self._table.c.expires_at
        return and_(self._table.c.revoked_at.is_(None), or_(expires.is_(None), expires > now))


def kept_as(table: Table, digest: Digest) -> Any:
    """Whether a row has this digest and this seal."""
    columns = table.c
    seal = columns.seal.is_(None) if digest.seal is None else columns.seal == digest.seal
    return and_(columns.scheme == digest.scheme, columns.digest == digest.value, seal)


def columns_of(digest: Digest) -> dict[str, Any]:
    """A digest and its seal as the columns of a row."""
    return {"scheme": digest.scheme, "digest": digest.value, "seal": digest.seal}


def _key(row: Any) -> ApiKey:
    return read_key(row, read_uses(row[-1]))
