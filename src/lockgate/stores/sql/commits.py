"""Commits of rows in SQL: each is one short transaction.

It locks the organization, then reads the clock and the rows that it expects, decides, and writes.
With psycopg that is two round trips, with the end of the transaction.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from hashlib import sha256
from struct import Struct
from typing import Any, Final, NamedTuple, cast

from sqlalchemy import (
    Connection,
    Integer,
    Table,
    bindparam,
    case,
    delete,
    func,
    insert,
    literal_column,
    or_,
    select,
    update,
)

from ...core.accounts import Account, last_use
from ...core.api_keys import ApiKey
from ...core.plans import Organization
from ...core.quota_leases import QuotaLeases
from ..answers import HistoryOwner, reading_state
from ..rows import (
    REMEMBERED,
    REMEMBERED_FOR,
    REMOVED_AT_MOST,
    Commit,
    Outcome,
    Version,
    Write,
    is_recorded,
    judged,
    stamped,
    without_usage,
)
from ..rows import Row as KeptRow
from .changes import ChangeRecords, Moment
from .codec import (
    EMPTY_COLUMNS,
    ROW,
    Uses,
    idle_day,
    read_account,
    read_id,
    read_key,
    read_organization,
    read_uses,
    write_account,
    write_id,
    write_key,
    write_overrides,
    write_uses,
)
from .databases import Database
from .indexes import Indexes
from .organizations import leases_out
from .statements import Cursor, Query
from .tables import Tables
from .usage import Histories

_UNCHANGED: Final = {
    *("handle", "id", "organization", "created_at", "request_count", "last_used_at"),
}
"""The columns of a key that no commit changes."""
_DIGEST: Final = 8
_MADE: Final = Struct("<8sqI")
"""A digest of a commit's id, its instant, and the number of keys that it has ended."""
_ALL: Final = 2**31 - 1
_Made = dict[bytes, tuple[int, int]]


class Taken(Exception):
    """The handle or the id of a new row is another's.

    Args:
        now: the instant of the commit.
        is_sure: whether a removed key had it; otherwise a row may have violated another constraint.
    """

    def __init__(self, now: int, *, is_sure: bool) -> None:
        super().__init__()
        self.now: Final = now
        self.is_sure: Final = is_sure


class _Owner(NamedTuple):
    """The row of an organization, locked."""

    plan: str | None
    overrides: str | None
    windows: bytes | None
    used: bytes | None
    made: bytes | None


class _Held(NamedTuple):
    """What a commit has locked and read."""

    id: bytes
    owner: _Owner
    moment: Moment
    keys: dict[str, ApiKey]
    """By handle, with their usage."""
    account: Account | None

    def row(self, row: KeptRow) -> KeptRow | None:
        """Return the row that is kept in the place of another."""
        if isinstance(row, ApiKey):
            return self.keys.get(row.handle)
        if isinstance(row, Account):
            return self.account
        return read_organization(row.id, self.owner.plan, self.owner.overrides)

    def used(self, row: KeptRow | None) -> KeptRow | None:
        """Return a row as a commit keeps it: a key with its usage."""
        if isinstance(row, ApiKey) and row.handle in self.keys:
            return ApiKey(*row[:-2], *self.keys[row.handle][-2:])
        return row


class Commits:
    """The statements of commits.

    Args:
        tables: the tables.
        database: the kind of database.
        indexes: the statements that read rows.
        histories: the statements of the usage histories, which are removed with their keys.
        records: the statements of the change log and the change counter.
    """

    def __init__(
        self,
        tables: Tables,
        database: Database,
        indexes: Indexes,
        histories: Histories,
        records: ChangeRecords,
    ) -> None:
        self._tables: Final = tables
        self._database: Final = database
        self._indexes: Final = indexes
        self._histories: Final = histories
        self._records: Final = records
        keys, accounts, owners = tables.keys, tables.accounts, tables.organizations
        of = bindparam("of", type_=owners.c.id.type)
        handle = bindparam("of_handle", type_=keys.c.handle.type)
        at = bindparam("the_instant", type_=keys.c.ends_at.type)
        day = bindparam("the_day", type_=owners.c.idle_day.type)
        names = "plan", "overrides", "windows", "used", "made"
        lock = select(*(owners.c[name] for name in names)).where(owners.c.id == of)
        self._lock: Final = lock.with_for_update()
        make = self._database.insert_missing(owners)
        self._make: Final = make.values(id=of, idle_day=day)
        mine, my_account = keys.c.organization == of, accounts.c.organization == of
        # Usage is added without a lock of the organization.
        self._held_key: Final = (
            select(*tables.key_columns()).where(keys.c.handle == handle).with_for_update()
        )
        self._held_account: Final = select(*accounts.c).where(my_account).with_for_update()
        live = mine, keys.c.unrevoked == literal_column("1"), keys.c.ends_at > at
        limit = bindparam("the_limit", type_=Integer())
        some = select(literal_column("1", Integer()).label("one")).where(*live).limit(limit)
        self._count_live: Final = select(func.count()).select_from(some.subquery())
        ended: dict[str, Any] = {"revoked_at": at, "ends_at": at, "unrevoked": literal_column("0")}
        self._revoke_all: Final = update(keys).where(*live).values(ended)
        self._insert_key: Final = insert(keys).values(_bound(keys))
        kept = _bound(keys, _UNCHANGED)
        self._update_key: Final = update(keys).where(keys.c.handle == handle).values(kept)
        self._insert_account: Final = insert(accounts).values(_bound(accounts))
        kept = _bound(accounts, {"organization", "review_at"})
        self._update_account: Final = update(accounts).where(my_account).values(kept)
        review = bindparam("the_review", type_=accounts.c.review_at.type)
        self._review: Final = update(accounts).where(my_account).values(review_at=review)
        self._remove_account: Final = delete(accounts).where(my_account)
        removed = tables.removed_handles.c.handle
        # A locking read sees committed rows, even if the transaction's snapshot is older.
        self._removed: Final = select(removed).where(removed == handle).with_for_update(read=True)
        owner = update(owners).where(owners.c.id == of)
        self._place: Final = owner.values(_bound(owners, only={"plan", "overrides"}))
        later = case((owners.c.idle_day > day, owners.c.idle_day), else_=day)
        self._leave: Final = owner.values(_bound(owners, only={"used"}) | {"idle_day": later})

    def commit(
        self, cursor: Cursor, commit: Commit, now: int | None, placed: Organization | None
    ) -> tuple[Outcome, QuotaLeases | None]:
        """Make a commit, or answer why not; return the outcome, and the quota leases that were out
        at it, for a commit that makes answers void by the server's clock.

        Args:
            cursor: in a transaction, which the caller commits.
            commit: the commit.
            now: the instant; None: the server's clock.
            placed: the plan of the host's resolver.

        Raises:
            Taken: a new row cannot be inserted.
        """
        held = self._hold(cursor, commit, now)
        if isinstance(held, Moment):
            return self._commit_without_owner(cursor, commit, held), None
        at = held.moment.at
        with reading_state(commit.owner, ROW, EMPTY_COLUMNS):
            earlier = _read_made(held.owner.made)
        found = earlier.get(_digest(commit.id))
        if found is not None:
            return self._repeated(cursor, held, commit, *found), None

        def count_live() -> int:
            assert commit.room is not None, "it is compared with that"
            return self._count_live_keys(cursor, held, commit.room + len(commit.writes))

        def version_of(row: KeptRow) -> Version | None:
            return without_usage(held.row(row))

        verdict = judged(commit, at, version_of, lambda _: False, count_live)
        if verdict != "done":
            return Outcome(verdict, at), None
        keys = self._end(cursor, held, commit, placed)
        if keys is None:
            return Outcome("changed", at), None
        ended, more = keys
        rows = tuple(stamped(write.new, at) for write in commit.writes)
        self._write(cursor, held, commit.writes, rows)
        queries: list[Query] = []
        if is_recorded(commit, ended):
            queries += self._records.record(held.id, commit.change, held.moment)
        made = _write_made(earlier, commit.id, at, ended)
        if commit.voids and (commit.remove_ended is None or ended > 0):
            queries += self._records.advance(held.id, held.moment, made=made)
        elif commit.writes or queries:
            queries += self._records.remember(held.id, made)
        for query in queries:
            cursor.write(query)
        older = None
        if commit.voids and now is None:
            older = leases_out(held.owner.windows, held.moment.clock)
        return Outcome("done", at, tuple(map(held.used, rows)), ended, more), older

    def _end(
        self, cursor: Cursor, held: _Held, commit: Commit, placed: Organization | None
    ) -> tuple[int, bool] | None:
        """End keys as a commit asks; return their number, and whether more are due. None: the
        account stays."""
        if commit.remove_unused is not None:
            return self._remove_unused(cursor, held, commit.remove_unused, placed)
        if commit.remove_ended is not None:
            return self._remove_ended(cursor.connection, held, commit.remove_ended)
        if not commit.revoke_all:
            return 0, False
        ended = self._count_live_keys(cursor, held, _ALL)
        values = {"of": held.id, "the_instant": held.moment.at}
        cursor.write(Query(self._revoke_all, values))
        return ended, False

    def _hold(self, cursor: Cursor, commit: Commit, now: int | None) -> _Held | Moment:
        """Lock the organization, and then read what the commit needs; an organization without a row
        gets one, except for a removal, which gets the moment alone."""
        id = write_id(commit.owner)
        old = [write.old for write in commit.writes]
        handles = sorted({row.handle for row in old if isinstance(row, ApiKey)})
        has_account = commit.remove_unused is not None or any(isinstance(r, Account) for r in old)
        queries = [Query(self._lock, {"of": id})]
        queries += [Query(self._held_key, {"of_handle": handle}) for handle in handles]
        queries += [Query(self._held_account, {"of": id})] * has_account
        # The first plain read takes the snapshot. Before the locks, MariaDB would fail each commit
        # to a key while another transaction writes its usage (innodb_snapshot_isolation).
        queries.append(self._records.moment(id))
        while True:
            owners, *found, (present,) = cursor.ask(*queries)
            moment = self._records.read_moment(present, now)
            if owners:
                break
            if commit.remove_ended is not None or commit.remove_unused is not None:
                return moment
            # A row that stays empty is pruned, but not before a pair of stores reads the change.
            day = idle_day(moment.clock) + 1 if commit.void else 0
            with self._database.making(cursor.driver):
                cursor.write(Query(self._make, {"of": id, "the_day": day}))
        owner = _Owner._make(owners[0])
        uses = read_uses(owner.used, id) if handles else {}
        accounts = [read_account(row) for row in found[len(handles)]] if has_account else []
        keys = {rows[0][0]: read_key(rows[0], uses) for rows in found[: len(handles)] if rows}
        return _Held(id, owner, moment, keys, accounts[0] if accounts else None)

    def _commit_without_owner(self, cursor: Cursor, commit: Commit, moment: Moment) -> Outcome:
        """Answer a removal from an organization without a row: it may have records alone."""
        if commit.remove_ended is None:
            return Outcome("changed", moment.at)
        id = write_id(commit.owner)
        records = self._remove_records(cursor.connection, id, commit.remove_ended)
        return Outcome("done", moment.at, more=records == REMOVED_AT_MOST)

    def _repeated(
        self, cursor: Cursor, held: _Held, commit: Commit, at: int, ended: int
    ) -> Outcome:
        """Answer a commit that was made before as it was answered then."""
        rows = [stamped(write.new, at) for write in commit.writes]
        handles = [row.handle for row in rows if isinstance(row, ApiKey)]
        uses = read_uses(held.owner.used, held.id) if handles else {}
        for handle in handles:
            for row in cursor.ask(Query(self._held_key, {"of_handle": handle}))[0]:
                held.keys[handle] = read_key(row, uses)
        return Outcome("done", at, tuple(map(held.used, rows)), ended, ended >= REMOVED_AT_MOST)

    def _count_live_keys(self, cursor: Cursor, held: _Held, limit: int) -> int:
        """Return the number of live keys, or the limit if that is less."""
        values = {"of": held.id, "the_instant": held.moment.at, "the_limit": limit}
        (((count,),),) = cursor.ask(Query(self._count_live, values))
        return cast(int, count)

    def _write(
        self,
        cursor: Cursor,
        held: _Held,
        writes: Sequence[Write],
        rows: Sequence[KeptRow | None],
    ) -> None:
        """Write rows.

        Raises:
            Taken: a new row cannot be inserted.
        """
        new: list[ApiKey | Account] = []
        for write, row in zip(writes, rows, strict=True):
            if write.old is None and isinstance(row, ApiKey | Account):
                new.append(row)
            elif isinstance(row, ApiKey):
                values = {"of_handle": row.handle, **_new(write_key(row))}
                cursor.write(Query(self._update_key, values))
            elif isinstance(row, Account):
                values = {"of": held.id, **_new(write_account(row))}
                cursor.write(Query(self._update_account, values))
                if isinstance(write.old, Account) and write.old.claimed_by != row.claimed_by:
                    cursor.write(Query(self._review, {"of": held.id, "the_review": None}))
            else:
                assert row is not None, "no commit removes a single row"
                values = {"plan": row.plan, "overrides": write_overrides(row)}
                cursor.write(Query(self._place, {"of": held.id, **_new(values)}))
        if not new:
            return
        try:
            for row in new:
                if isinstance(row, ApiKey):
                    cursor.write(Query(self._insert_key, _new(write_key(row))))
                else:
                    cursor.write(Query(self._insert_account, _new(write_account(row))))
            # Inserting a key waits for a removal in progress, whose mark of the handle is read now.
            marks = cursor.ask(*(Query(self._removed, {"of_handle": row.handle}) for row in new))
        except cursor.connection.dialect.loaded_dbapi.IntegrityError as failure:
            raise Taken(held.moment.at, is_sure=False) from failure
        if any(mark for row, mark in zip(new, marks, strict=True) if isinstance(row, ApiKey)):
            raise Taken(held.moment.at, is_sure=True)

    def is_taken(self, connection: Connection, commit: Commit) -> bool:
        """Return whether a row has one of the values that must be unique of a new row."""
        keys, accounts = self._tables.keys.c, self._tables.accounts.c
        for write in commit.writes:
            row = write.new
            if write.old is not None or not isinstance(row, ApiKey | Account):
                continue
            if isinstance(row, ApiKey):
                taken = or_(keys.handle == row.handle, keys.id == row.id)
            else:
                organization = accounts.organization == write_id(row.organization)
                taken = or_(organization, accounts.handle == row.handle)
            if connection.scalar(select(literal_column("1", Integer())).where(taken)) is not None:
                return True
        return False

    def _remove_unused(
        self, cursor: Cursor, held: _Held, since: int, placed: Organization | None
    ) -> tuple[int, bool] | None:
        """Remove an account and all keys, if they were not used; return the number of keys.

        Otherwise note when the account can be due again, and return None. The organization is
        locked, so none of its keys is used or inserted meanwhile.
        """
        account, connection, tables = held.account, cursor.connection, self._tables
        if account is None:
            return None
        keys = self._indexes.all_keys(connection, held.id)
        again = None
        if account.claimed_by is None and placed is None and held.owner.plan is None:
            again = last_use(account, keys)
        if again is None or again > since:
            cursor.write(Query(self._review, {"of": held.id, "the_review": again}))
            return None
        self._mark_removed(connection, account.organization, [key.handle for key in keys])
        connection.execute(delete(tables.keys).where(tables.keys.c.organization == held.id))
        self._histories.remove(connection, [HistoryOwner(account.organization, None)])
        cursor.write(Query(self._remove_account, {"of": held.id}))
        self._leave_keys(cursor.connection, held, {})
        return len(keys), False

    def _remove_ended(self, connection: Connection, held: _Held, until: int) -> tuple[int, bool]:
        """Remove keys and records that are due; return the number of keys, and whether more are."""
        keys, handles = self._tables.keys, list[str]()
        for flag in (1, 0):
            mine = keys.c.organization == held.id, keys.c.unrevoked == flag
            due = select(keys.c.handle).where(*mine, keys.c.ends_at <= until)
            some = due.order_by(keys.c.ends_at).limit(REMOVED_AT_MOST - len(handles))
            handles += connection.scalars(some)
        if handles:
            self._mark_removed(connection, read_id(held.id), handles)
            connection.execute(delete(keys).where(keys.c.handle.in_(handles)))
            uses = read_uses(held.owner.used, held.id)
            self._leave_keys(connection, held, {h: u for h, u in uses.items() if h not in handles})
        records = self._remove_records(connection, held.id, until)
        return len(handles), REMOVED_AT_MOST in {len(handles), records}

    def _mark_removed(
        self, connection: Connection, organization: str, handles: Sequence[str]
    ) -> None:
        """Note handles that stay taken, and remove the usage of their keys."""
        if handles:
            marks = [{"handle": handle} for handle in handles]
            connection.execute(insert(self._tables.removed_handles), marks)
        owners = [HistoryOwner(organization, handle) for handle in handles]
        self._histories.remove(connection, owners)

    def _leave_keys(self, connection: Connection, held: _Held, uses: Uses) -> None:
        """Keep the usage of the keys that are left, and date the organization for pruning.

        An empty row is pruned the day after tomorrow, since a pair of stores reads the change.
        """
        day = idle_day(held.moment.clock) + 1
        values = {"of": held.id, "new_used": write_uses(uses), "the_day": day}
        connection.execute(self._leave, values)

    def _remove_records(self, connection: Connection, id: bytes, until: int) -> int:
        """Remove the oldest records of an instant or before; return their number."""
        log = self._tables.changes
        due = log.c.organization == id, log.c.at <= until
        some = select(log.c.number).where(*due).order_by(log.c.number).limit(REMOVED_AT_MOST)
        numbers = list(connection.scalars(some))
        if numbers:
            connection.execute(delete(log).where(*due, log.c.number <= numbers[-1]))
        return len(numbers)


def _bound(
    table: Table, without: AbstractSet[str] = frozenset(), only: AbstractSet[str] | None = None
) -> dict[str, Any]:
    """Return the columns of a table, each with the value that :func:`_new` names."""
    columns = [c for c in table.c if c.name not in without and (only is None or c.name in only)]
    return {c.name: bindparam(f"new_{c.name}", type_=c.type) for c in columns}


def _new(row: Mapping[str, Any]) -> dict[str, Any]:
    return {f"new_{name}": value for name, value in row.items()}


def _digest(id: str) -> bytes:
    return sha256(id.encode()).digest()[:_DIGEST]


def _read_made(value: bytes | None) -> _Made:
    return {id: (at, ended) for id, at, ended in _MADE.iter_unpack(value or b"")}


def _write_made(made: _Made, id: str, at: int, ended: int) -> bytes:
    """Encode the latest commits, with one more."""
    latest = [one for one in [*made.items()][1 - REMEMBERED :] if one[1][0] > at - REMEMBERED_FOR]
    entries = [*latest, (_digest(id), (at, ended))]
    return b"".join(_MADE.pack(one, *what) for one, what in entries)
