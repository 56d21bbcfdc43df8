"""The statements of keys, which run inside a verb's transaction."""

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import (
    Connection,
    Table,
    and_,
    bindparam,
    case,
    delete,
    func,
    insert,
    or_,
    select,
    update,
)

from ...core.api_keys import ApiKey, KeyDraft, KeyState, Position
from ...core.digests import Digest
from ...core.key_search import IMPORTED, KeySearch
from ...core.row_seals import Counted, tally
from ...errors import KeyLimitReached
from ..answers import Census, FoundKeys, HistoryOwner, Page
from .change_counter import Write
from .codec import read_id, read_key, read_uses, write_id, write_key, write_uses
from .tables import FINITE, Tables
from .usage import Histories

REMOVED_AT_ONCE: Final = 50
"""Keys removed per transaction, which locks their organization for some milliseconds."""
_COUNTED_AT_ONCE: Final = 1000
_LAST: Final = "\x7f"
"""A character after all of those in handles."""

_ACTIVE: Final = KeyState.ACTIVE
_USAGE: Final = ApiKey._fields.index("request_count")
_REPLACED: Final = ("name", "scopes", "seal", "expires_at", "revoked_at", "ends_at", "details")
"""The columns of a key that may change while it is live."""
_PEPPER_ID: Final = 8
"""Characters of a seal that name its pepper."""


class Keys:
    """The statements of keys, in a transaction that the caller begins and commits.

    Args:
        tables: the tables.
        histories: the statements of the usage histories, which are removed with their keys.
    """

    def __init__(self, tables: Tables, histories: Histories) -> None:
        self._table: Final = tables.keys
        self._organizations: Final = tables.organizations
        self._removed: Final = tables.removed_handles
        self._accounts: Final = tables.accounts
        self._histories: Final = histories
        # With the usage beside the windows: one statement reads both from one instant.
        read: list[Any] = [*tables.key_columns(), tables.organizations.c.used]
        self._with_usage: Final = select(*read).outerjoin_from(tables.keys, tables.organizations)
        columns = tables.keys.c
        this = (
            columns.id == bindparam("the_id"),
            columns.organization == bindparam("the_organization"),
        )
        end = bindparam("the_end", type_=columns.revoked_at.type)
        ends_at = case((columns.ends_at > end, end), else_=columns.ends_at)
        live = update(tables.keys).where(*this, columns.revoked_at.is_(None))
        self._revoke: Final = live.values(revoked_at=end, ends_at=ends_at)
        self._replace: Final = (
            update(tables.keys)
            .where(*this)
            .values(
                {name: bindparam(f"new_{name}", type_=columns[name].type) for name in _REPLACED}
            )
        )

    def insert(self, connection: Connection, draft: KeyDraft, cap: int | None, now: int) -> ApiKey:
        """Insert a key of an existing, locked organization."""
        keys = self._table
        if cap is not None:
            live = select(keys.c.id).where(*self._live(draft.organization, now)).limit(cap)
            if (connection.scalar(select(func.count()).select_from(live.subquery())) or 0) >= cap:
                raise KeyLimitReached(cap)
        return self.add(connection, draft.created(now))

    def add(self, connection: Connection, key: ApiKey) -> ApiKey:
        """Insert the row of a key, whose handle :meth:`ChangeLog.add` then checks."""
        connection.execute(insert(self._table), write_key(key))
        return key

    def taken(self, connection: Connection, draft: KeyDraft) -> bool:
        """Return whether a row has one of the values that must be unique."""
        columns = self._table.c
        taken = or_(columns.handle == draft.handle, columns.id == draft.id)
        return connection.scalar(select(1).where(taken)) is not None

    def remove(self, connection: Connection, organization: str) -> None:
        """Delete the keys of a locked organization; their handles stay taken."""
        keys = self._table
        mine = keys.c.organization == write_id(organization)
        handles = select(keys.c.handle).where(mine)
        owners = [HistoryOwner(organization, handle) for handle in connection.scalars(handles)]
        connection.execute(insert(self._removed).from_select(["handle"], handles))
        connection.execute(delete(keys).where(mine))
        self._histories.remove(connection, [HistoryOwner(organization, None), *owners])

    def exist(self, connection: Connection) -> bool:
        """Return whether there is any key, in any state."""
        return connection.scalar(select(self._table.c.handle).limit(1)) is not None

    def by_handle(self, connection: Connection, handle: str) -> ApiKey | None:
        """Return the key with this handle."""
        return self._one(connection, self._table.c.handle == handle)

    def get(self, connection: Connection, organization: str, id: str) -> ApiKey | None:
        """Return the key of an organization with this id."""
        return self._one(connection, self._owned(organization, id))

    def all(self, connection: Connection, organization: str) -> list[ApiKey]:
        """Return all keys of an organization, in any order."""
        mine = self._table.c.organization == write_id(organization)
        return [_key(row) for row in connection.execute(self._with_usage.where(mine))]

    def newest(
        self, connection: Connection, organization: str, limit: int, after: Position | None
    ) -> Page:
        """Return keys of an organization: newest first, then by id (D10)."""
        columns = self._table.c
        mine = columns.organization == write_id(organization)
        order = columns.created_at.desc(), columns.id
        if after is None:
            return self._page(connection, order, limit, mine)
        # Two ranges of the index: for one condition with OR, databases read it from the start.
        same = mine, columns.created_at == after.instant, columns.id > after.id
        page = self._page(connection, order, limit, *same)
        older = mine, columns.created_at < after.instant
        return page + self._page(connection, order, limit - len(page), *older)

    def live(
        self,
        connection: Connection,
        organization: str,
        limit: int,
        after: Position | None,
        now: int,
    ) -> Page:
        """Return live keys of an organization: latest end first, then by descending id."""
        columns = self._table.c
        live = self._live(organization, now)
        order = columns.ends_at.desc(), columns.id.desc()
        if after is None:
            return self._page(connection, order, limit, *live)
        if after.instant <= now:
            return []
        mine, ends_later, unrevoked = live
        same = mine, columns.ends_at == after.instant, columns.id < after.id, unrevoked
        page = self._page(connection, order, limit, *same)
        earlier = mine, ends_later, columns.ends_at < after.instant, unrevoked
        return page + self._page(connection, order, limit - len(page), *earlier)

    def revocation(self, key: ApiKey, now: int) -> tuple[ApiKey, Write]:
        """Return a live key as it is once it is revoked, and the write that revokes it."""
        values = {"the_organization": write_id(key.organization), "the_id": key.id, "the_end": now}
        return key._replace(revoked_at=now), Write(self._revoke, values)

    def replacement(self, found: ApiKey | None, old: ApiKey, new: ApiKey, now: int) -> Write | None:
        """Return the write that replaces a key by another version of it; None: it is not live or no
        longer is ``old``, usage aside.

        Args:
            found: the key as it was read under the lock of its organization.
            old: as it is expected.
            new: as it is to be.
            now: the instant.
        """
        if found is None or found[:_USAGE] != old[:_USAGE] or found.state(now) is not _ACTIVE:
            return None
        row = write_key(new)
        changed = {f"new_{name}": row[name] for name in _REPLACED}
        mine = {"the_organization": write_id(old.organization), "the_id": old.id}
        return Write(self._replace, {**changed, **mine})

    def due(self, connection: Connection, until: int) -> bytes | None:
        """Return the organization of the key that ended first, if it ended before an instant."""
        columns = self._table.c
        due = select(columns.organization).where(columns.ends_at <= until, FINITE)
        id = connection.scalar(due.order_by(columns.ends_at).limit(1))
        return None if id is None else bytes(id)

    def remove_ended(self, connection: Connection, organization: bytes, until: int) -> int:
        """Lock an organization and remove some of its keys that ended by an instant."""
        keys, organizations = self._table, self._organizations
        mine = organizations.c.id == organization
        held = select(organizations.c.used).where(mine).with_for_update()
        uses = read_uses(connection.scalar(held), organization)
        due = select(keys.c.handle).where(
            keys.c.organization == organization, keys.c.ends_at <= until
        )
        some = due.order_by(keys.c.ends_at).limit(REMOVED_AT_ONCE).with_for_update()
        handles = list(connection.scalars(some))
        if handles:
            connection.execute(insert(self._removed), [{"handle": handle} for handle in handles])
            connection.execute(delete(keys).where(keys.c.handle.in_(handles)))
            for handle in handles:
                uses.pop(handle, None)
            owner = read_id(organization)
            self._histories.remove(connection, [HistoryOwner(owner, handle) for handle in handles])
            # With an idle day, Pruning deletes the row once it is empty.
            idle = func.coalesce(organizations.c.idle_day, 0)
            left = update(organizations).where(mine).values(used=write_uses(uses), idle_day=idle)
            connection.execute(left)
        return len(handles)

    def owner(self, connection: Connection, handle: str) -> bytes | None:
        """Return the organization of the key with this handle."""
        keys = self._table
        id = connection.scalar(select(keys.c.organization).where(keys.c.handle == handle))
        return None if id is None else bytes(id)

    def rehash(self, connection: Connection, handle: str, old: Digest, new: Digest) -> bool:
        """Replace digest and seal, if both still are ``old``."""
        keys = self._table
        unchanged = update(keys).where(keys.c.handle == handle, kept_as(keys, old))
        return connection.execute(unchanged.values(**columns_of(new))).rowcount == 1

    def scan(self, connection: Connection, after: str, limit: int) -> Sequence[ApiKey]:
        """Return the next keys after a handle, in the order of their handles."""
        return self._some(connection, limit, self._table.c.handle > after)

    def search(
        self, connection: Connection, wanted: KeySearch, limit: int, cursor: str | None
    ) -> FoundKeys:
        """Return the keys that a search finds, in the order of their handles: one step."""
        columns, after = self._table.c, cursor or ""
        if wanted.id is not None:
            key = self._one(connection, columns.id == wanted.id)
            return FoundKeys([] if key is None else [key], None)
        start = IMPORTED if wanted.handle is None else wanted.handle
        at = columns.handle
        among = at >= start, at > after, at < start + _LAST
        if wanted.handle is not None:
            keys = self._some(connection, limit, *among)
            return FoundKeys(keys, keys[-1].handle if len(keys) == limit else None)
        # No index has the prefixes: compare those of some rows at a time.
        some = select(at, columns.prefix).where(*among).order_by(at).limit(_COUNTED_AT_ONCE)
        rows = connection.execute(some).all()
        handles = [handle for handle, prefix in rows if prefix == wanted.prefix]
        found = self._some(connection, len(handles), at.in_(handles)) if handles else ()
        return FoundKeys(found, rows[-1][0] if len(rows) == _COUNTED_AT_ONCE else None)

    def _some(self, connection: Connection, limit: int, *which: Any) -> Sequence[ApiKey]:
        """Return keys in the order of their handles."""
        some = self._with_usage.where(*which).order_by(self._table.c.handle).limit(limit)
        return [_key(row) for row in connection.execute(some)]

    def census(self, connection: Connection, now: int, cursor: str | None) -> Census:
        """Count live keys, and tokens that are not revoked, by digest scheme: one step."""
        key, account = self._table.c, self._accounts.c
        kind, after = (cursor or "keys ").split(" ", 1)
        if kind == "keys":
            columns, live = key, and_(key.revoked_at.is_(None), key.ends_at > now)
        else:
            columns, live = account, account.token_revoked_at.is_(None)
        pepper, counted_as = func.substr(columns.seal, 1, _PEPPER_ID), case((live, 1), else_=0)
        some = (
            select(columns.handle, columns.scheme, pepper.label("pepper"), counted_as.label("live"))
            .where(columns.handle > after)
            .order_by(columns.handle)
            .limit(_COUNTED_AT_ONCE)
            .subquery()
        ).c
        number, last = func.count(), func.max(some.handle)
        groups = some.scheme, some.pepper, some.live
        found = connection.execute(select(*groups, number, last).group_by(*groups)).all()
        rows: list[Counted] = []
        for scheme, by, live, counted, _ in found:
            if live or kind == "accounts":  # The seal of a revoked account counts too.
                rows.append((scheme if live else None, by, counted))
        if sum(counted for *_, counted, _ in found) == _COUNTED_AT_ONCE:
            return Census(tally(rows), f"{kind} {max(last for *_, last in found)}")
        return Census(tally(rows), "accounts " if kind == "keys" else None)

    def _page(self, connection: Connection, order: Any, limit: int, *which: Any) -> Page:
        if limit < 1:
            return []
        page = self._with_usage.where(*which).order_by(*order).limit(limit)
        rows = connection.execute(page).all()
        # All rows belong to one organization.
        uses = read_uses(rows[0][-1], rows[0][2]) if rows else {}
        return [read_key(row, uses) for row in rows]

    def _one(self, connection: Connection, which: Any) -> ApiKey | None:
        row = connection.execute(self._with_usage.where(which)).one_or_none()
        return None if row is None else _key(row)

    def _owned(self, organization: str, id: str) -> Any:
        columns = self._table.c
        return and_(columns.id == id, columns.organization == write_id(organization))

    def _live(self, organization: str, now: int) -> tuple[Any, ...]:
        columns = self._table.c
        mine = columns.organization == write_id(organization)
        return mine, columns.ends_at > now, columns.revoked_at.is_(None)


def kept_as(table: Table, digest: Digest) -> Any:
    """Return whether a row has this digest and this seal."""
    columns = table.c
    seal = columns.seal.is_(None) if digest.seal is None else columns.seal == digest.seal
    return and_(columns.scheme == digest.scheme, columns.digest == digest.value, seal)


def columns_of(digest: Digest) -> dict[str, Any]:
    """Return a digest and its seal as the columns of a row."""
    return {"scheme": digest.scheme, "digest": digest.value, "seal": digest.seal}


def key_of(row: Any, locked: Any) -> ApiKey | None:
    """Return the key in a row that was read under the lock of its organization; None: no row."""
    return None if row is None else read_key(row, read_uses(locked.used, row[2]))


def _key(row: Any) -> ApiKey:
    return read_key(row, read_uses(row[-1], row[2]))
