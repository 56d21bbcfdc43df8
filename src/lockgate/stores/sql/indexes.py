"""Indexes of rows in SQL: how they are read and walked.

A read is one statement on the index of the database that has its order; two if a page begins after
a place.
"""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    Column,
    Connection,
    Integer,
    Select,
    Table,
    and_,
    bindparam,
    exists,
    func,
    literal_column,
    select,
)

from ...core.api_keys import ApiKey, Position
from ...core.changes import Change
from ...core.key_search import IMPORTED, KeySearch
from ..answers import OrganizationSummary
from ..rows import (
    ACCOUNTS_BY_EMAIL,
    ACCOUNTS_BY_USER,
    KEYS_BY_CREATION,
    KEYS_BY_END,
    LOG,
    Ended,
    Index,
    Summaries,
    Unused,
    Walk,
    Wanted,
)
from .codec import (
    Uses,
    read_account,
    read_id,
    read_key,
    read_organization,
    read_uses,
    write_id,
)
from .databases import Database
from .tables import FINITE, Tables

_WALKED_AT_ONCE: Final = 1000
_SUMMARIZED_AT_ONCE: Final = 500
_LAST: Final = "\x7f"
"""A character after all of those in handles."""
_USED: Final = 15
"""The position of the usage of an organization, after the columns of a key."""
_Statement = Select[*tuple[Any, ...]]


class _Order(NamedTuple):
    """The statements of an index with an order.

    After a place they read two ranges: for one condition with OR, databases read an index from its
    start.
    """

    first: _Statement
    same: _Statement
    """Rows of the instant of the place."""
    further: _Statement


class Indexes:
    """The statements that read rows.

    Args:
        tables: the tables.
        database: the kind of database.
    """

    def __init__(self, tables: Tables, database: Database) -> None:
        """Build the statements of indexes, once: that takes longer than running one on SQLite."""
        self._tables: Final = tables
        self._database: Final = database
        keys, accounts, owners = tables.keys, tables.accounts, tables.organizations
        log = tables.changes
        # With the usage beside the windows: one statement reads both from one instant.
        columns: list[Any] = [*tables.key_columns(), owners.c.used]
        self._keys: Final[_Statement] = select(*columns).outerjoin_from(keys, owners)
        of_keys = self._keys.add_columns(database.clock)
        of_accounts: _Statement = select(*accounts.c, database.clock)
        records: _Statement = select(log.c.number, log.c.at, log.c.text, database.clock)
        # The clock, and a row that may be missing.
        one = select(literal_column("1", Integer()).label("one")).subquery("one")
        key: _Statement = select(*columns, database.clock)
        plan: _Statement = select(owners.c.plan, owners.c.overrides, database.clock)

        def first(row: _Statement, table: Table, *which: Any) -> _Statement:
            return row.outerjoin_from(one, table, and_(*which))

        def first_key(*which: Any) -> _Statement:
            return first(key, keys, *which).outerjoin(owners, keys.c.organization == owners.c.id)

        mine = keys.c.organization == _prefix(keys.c.organization)
        my_account = accounts.c.organization == _prefix(accounts.c.organization)
        self._rows: Final = {
            "key_by_handle": first_key(keys.c.handle == _prefix(keys.c.handle)),
            "key_by_id": first_key(mine, keys.c.id == bindparam("the_id", type_=keys.c.id.type)),
            "account": first(of_accounts, accounts, my_account),
            "account_by_token": first(
                of_accounts, accounts, accounts.c.handle == _prefix(accounts.c.handle)
            ),
            "plan": first(plan, owners, owners.c.id == _prefix(owners.c.id)),
        }
        unclaimed = accounts.c.billing_email == _prefix(accounts.c.billing_email)
        claimed = accounts.c.claimed_by == _prefix(accounts.c.claimed_by)
        logged = log.c.organization == _prefix(log.c.organization)
        self._orders: Final = {
            "keys_by_creation": _order(
                KEYS_BY_CREATION, of_keys.where(mine), keys.c.created_at, keys.c.id
            ),
            "keys_by_end": _order(
                KEYS_BY_END, of_keys.where(mine, keys.c.unrevoked == 1), keys.c.ends_at, keys.c.id
            ),
            "accounts_by_email": _order(
                ACCOUNTS_BY_EMAIL,
                of_accounts.where(unclaimed, accounts.c.unclaimed == 1),
                *(accounts.c.created_at, accounts.c.organization),
            ),
            "accounts_by_user": _order(
                ACCOUNTS_BY_USER,
                of_accounts.where(claimed),
                *(accounts.c.claimed_at, accounts.c.organization),
            ),
            "log": _order(LOG, records.where(logged), log.c.number, None),
        }
        due = Index[Any]("due", lambda _: ())
        until = bindparam("until", type_=keys.c.ends_at.type)
        end, at = keys.c.ends_at, log.c.at
        ended = select(end, keys.c.organization).where(end <= until, FINITE)
        old = select(at, log.c.organization).where(at <= until)
        self._due: Final = {
            "keys": _order(due, ended, end, keys.c.organization),
            "log": _order(due, old, at, log.c.organization),
        }

    def key(self, connection: Connection, handle: str) -> ApiKey | None:
        """Return the key with a handle, without the clock."""
        row = connection.execute(self._keys.where(self._tables.keys.c.handle == handle)).first()
        return None if row is None else keys_of([row])[0]

    def all_keys(self, connection: Connection, organization: bytes) -> list[ApiKey]:
        """Return all keys of an organization, in any order."""
        mine = self._tables.keys.c.organization == organization
        return keys_of(connection.execute(self._keys.where(mine)).all())

    def read(
        self,
        connection: Connection,
        index: str,
        prefix: tuple[str, ...],
        limit: int,
        after: Position | None,
        now: int | None,
    ) -> tuple[list[Any], int]:
        """Return the rows of an index, and the instant: the server's clock, or the caller's."""
        is_text = index in {"key_by_handle", "account_by_token"}
        values: dict[str, Any] = {"the_prefix": prefix[0] if is_text else write_id(prefix[0])}
        if index == "key_by_id":
            values["the_id"] = prefix[1]
        if index in self._rows:
            row = connection.execute(self._rows[index], values).one()
            clock, rows = row[-1], [] if row[0] is None else [row]
        else:
            place: tuple[int, Any] | None = after
            if after is not None and index.startswith("accounts"):
                place = after.instant, write_id(after.id)
            elif after is not None and index == "log":
                place = after.instant, None
            rows = _page(connection, self._orders[index], values, limit, place)
            clock = rows[0][-1] if rows else None
        if now is None and clock is None:
            now = self._database.now(connection)
        elif now is None:
            now = self._database.read_clock(clock)
        if index.startswith("key"):
            return keys_of(rows), now
        if index.startswith("account"):
            return [read_account(row) for row in rows], now
        if index == "log":
            return [Change.read(*row[:3]) for row in rows], now
        return [read_organization(prefix[0], *row[:2]) for row in rows], now

    def exist(self, connection: Connection) -> bool:
        """Return whether there is any key, in any state."""
        return connection.scalar(select(self._tables.keys.c.handle).limit(1)) is not None

    # Walks

    def walk(self, connection: Connection, wanted: Wanted, limit: int, cursor: str | None) -> Walk:
        """Do :meth:`~lockgate.stores.key_store.KeyStore.walk`; plans are as assigned here."""
        match wanted:
            case Ended(until):
                return self._walk_ended(connection, until, limit, cursor)
            case Unused(since):
                columns = self._tables.accounts.c
                due = select(columns.organization).where(columns.review_at <= since)
                ids = connection.scalars(due.order_by(columns.review_at).limit(limit))
                return Walk(None, owners=tuple(map(read_id, ids)))
            case Summaries(now):
                at = self._database.now(connection) if now is None else now
                return self._summaries(connection, limit, at, cursor)
            case KeySearch():
                return self._search(connection, wanted, limit, cursor)
            case None:
                return self._walk_all(connection, limit, cursor)

    def _walk_all(self, connection: Connection, limit: int, cursor: str | None) -> Walk:
        """Return keys, or after these accounts, each in the order of their handles."""
        kind, after = (cursor or "k")[0], (cursor or "k")[1:]
        if kind == "k":
            keys = self._some(connection, limit, self._tables.keys.c.handle > after)
            return Walk(f"k{keys[-1].handle}" if len(keys) == limit else "a", tuple(keys))
        handle = self._tables.accounts.c.handle
        some = select(self._tables.accounts).where(handle > after).order_by(handle).limit(limit)
        accounts = [read_account(row) for row in connection.execute(some)]
        following = f"a{accounts[-1].handle}" if len(accounts) == limit else None
        return Walk(following, accounts=tuple(accounts))

    def _walk_ended(
        self, connection: Connection, until: int, limit: int, cursor: str | None
    ) -> Walk:
        """Return organizations of keys, or after these of records, the longest due first."""
        kind, instant, id = (cursor or "keys  ").split(" ", 2)
        after = (int(instant), write_id(id)) if instant else None
        rows = _page(connection, self._due[kind], {"until": until}, limit, after)
        owners = tuple(dict.fromkeys(read_id(id) for _, id in rows))
        if len(rows) == limit:
            return Walk(f"{kind} {rows[-1][0]} {read_id(rows[-1][1])}", owners=owners)
        return Walk("log  " if kind == "keys" else None, owners=owners)

    def _search(
        self, connection: Connection, wanted: KeySearch, limit: int, cursor: str | None
    ) -> Walk:
        """Return the keys that a search finds, in the order of their handles."""
        columns, after = self._tables.keys.c, cursor or ""
        if wanted.id is not None:
            return Walk(None, tuple(self._some(connection, 1, columns.id == wanted.id)))
        start = IMPORTED if wanted.handle is None else wanted.handle
        at = columns.handle
        among = at >= start, at > after, at < start + _LAST
        if wanted.handle is not None:
            keys = self._some(connection, limit, *among)
            return Walk(keys[-1].handle if len(keys) == limit else None, tuple(keys))
        # No index has the prefixes: compare those of some rows at a time.
        some = select(at, columns.prefix).where(*among).order_by(at).limit(_WALKED_AT_ONCE)
        rows = connection.execute(some).all()
        handles = [handle for handle, prefix in rows if prefix == wanted.prefix]
        found = self._some(connection, len(handles), at.in_(handles)) if handles else ()
        return Walk(rows[-1][0] if len(rows) == _WALKED_AT_ONCE else None, tuple(found))

    def _some(self, connection: Connection, limit: int, *which: Any) -> list[ApiKey]:
        """Return keys in the order of their handles."""
        some = self._keys.where(*which).order_by(self._tables.keys.c.handle).limit(limit)
        return keys_of(connection.execute(some).all())

    def _summaries(self, connection: Connection, limit: int, now: int, cursor: str | None) -> Walk:
        """Return organizations in the order of their ids: one step, which skips some rows.

        A row without a key and a plan has windows only, as for a session's organization.
        """
        table, keys = self._tables.organizations.c, self._tables.keys.c
        has_keys = exists().where(keys.organization == table.id)
        limit = min(limit, _SUMMARIZED_AT_ONCE)
        some = select(table.id, table.plan, table.overrides, table.used, has_keys)
        after = table.id > write_id(cursor or "")
        rows = connection.execute(some.where(after).order_by(table.id).limit(limit)).all()
        listed = [row for row in rows if row[1] is not None or row[4]]
        uses = {bytes(row[0]): read_uses(row[3], row[0]) for row in listed}
        live = self._live_usage(connection, uses, now) if listed else {}
        found: list[OrganizationSummary] = []
        for id, plan, overrides, *_ in listed:
            name, counted = read_id(id), live.get(bytes(id), (0, None))
            placed = read_organization(name, plan, overrides)
            found.append(OrganizationSummary(name, placed, *counted))
        following = read_id(rows[-1][0]) if len(rows) == limit else None
        return Walk(following, organizations=tuple(found))

    def _live_usage(
        self, connection: Connection, uses: dict[bytes, Uses], now: int
    ) -> dict[bytes, tuple[int, int | None]]:
        """Return the number of live keys and their latest use, by organization.

        Usage beside the windows belongs to a few keys, which may have ended.
        """
        keys = self._tables.keys.c
        live = keys.organization.in_(uses), keys.ends_at > now, keys.unrevoked == 1
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


def _prefix(column: Column[Any]) -> Any:
    return bindparam("the_prefix", type_=column.type)


def _order(index: Index[Any], rows: _Statement, instant: Any, id: Any) -> _Order:
    """Return the statements of an index, whose place is an instant, and an id unless that is
    None."""
    order: list[Any] = [instant.desc() if index.newest_first else instant]
    at = bindparam("the_instant", type_=instant.type)
    same = rows
    if id is not None:
        order.append(id.desc() if index.ids_down else id)
        after = bindparam("the_id", type_=id.type)
        same = rows.where(instant == at, id < after if index.ids_down else id > after)
    further = rows.where(instant < at if index.newest_first else instant > at)
    limit = bindparam("the_limit", type_=Integer())
    first, same, further = (one.order_by(*order).limit(limit) for one in (rows, same, further))
    return _Order(first, same, further)


def _page(
    connection: Connection,
    order: _Order,
    values: dict[str, Any],
    limit: int,
    after: tuple[int, Any] | None,
) -> list[Any]:
    """Return the rows of an index after an instant and an id; None: from the first on."""
    if after is None:
        return [*connection.execute(order.first, {**values, "the_limit": limit})]
    values, rows = {**values, "the_instant": after[0]}, list[Any]()
    if after[1] is not None:
        same = {**values, "the_id": after[1], "the_limit": limit}
        rows += connection.execute(order.same, same)
    if len(rows) < limit:
        further = {**values, "the_limit": limit - len(rows)}
        rows += connection.execute(order.further, further)
    return rows


def keys_of(rows: Iterable[Any]) -> list[ApiKey]:
    """Return keys with their usage, which is decoded once for each organization."""
    uses: dict[bytes, Uses] = {}
    keys: list[ApiKey] = []
    for row in rows:
        owner = bytes(row[2])
        if owner not in uses:
            uses[owner] = read_uses(row[_USED], owner)
        keys.append(read_key(row, uses[owner]))
    return keys
