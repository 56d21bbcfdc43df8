"""The SQL store: each verb once, on the executor of the caller."""

import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from inspect import isawaitable, iscoroutinefunction
from typing import Final, NamedTuple, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine

from ...core.accounts import Account, AccountDraft
from ...core.api_keys import ApiKey, KeyDraft, Position
from ...core.bounded_dict import BoundedDict
from ...core.changes import ChangeDraft, drafted_change, plan_fields
from ...core.digests import Digest
from ...core.holds import HoldAction, HoldAnswer
from ...core.key_format import Token
from ...core.key_search import IMPORTED, KeySearch
from ...core.leases import Lease, Leases, SlotReading, acquire, release, renew
from ...core.limit_windows import LimitWindows
from ...core.limits import Limit
from ...core.plans import Organization, PlanBook
from ...core.quota_leases import LONGEST, LeaseRequest, QuotaLeases, Settlement
from ...core.row_seals import sealed_fields
from ...core.sliding_window import Reading, Window
from ...core.timestamps import SECOND
from ...core.usage_history import UsageHistory
from ...errors import ConfigurationError, HandleTaken
from ...events import Events
from ..answers import (
    NO_KEYS,
    UNKNOWN,
    UNSEALED,
    Admission,
    Census,
    FoundKeys,
    FoundOrganizations,
    Freshness,
    HistoryOwner,
    LogPage,
    Page,
    Removal,
    Reseal,
    Rows,
    StoreError,
    StoreWarning,
    Usage,
    UsageBatch,
    Verdict,
    clock_warnings,
)
from ..base import IoMode
from ..cached.base import Changes, PrimaryStore
from ..resilience.older_leases import note_leases
from ..runtime.log_hints import Adviser
from .accounts import Accounts
from .admission import Admit, Hit, Holding, Ledger, Settling
from .change_counter import ChangeCounter, Write
from .change_log import ChangeLog, Moment
from .codec import read_organization, write_id
from .databases import database_of
from .engines import engines_of
from .error_hints import advice
from .executor import executors_of
from .keys import Keys, key_of
from .organizations import Organizations
from .pipelined_cursor import pipelined_dialect
from .pruning import Pruning
from .recalls import recalls_of
from .revocation import Revocation
from .schema import Check, OutdatedSchema, current, renumbered
from .statements import Statements
from .summaries import Summaries
from .tables import DEFAULT_PREFIX, Tables
from .transactions import Transactions, Work
from .usage import Histories

T = TypeVar("T")

PlanResolver = Callable[[str], Organization | Awaitable[Organization | None] | None]
"""Returns the plan of an organization by its id; None: the default plan.

A plain or an ``async`` function, called once for each admission, before the transaction. A plain
one runs in the thread of the request, so under ASGI it must answer from memory.
"""

_NAME: Final = re.compile(r"[!-~]{1,64}")
"""The format of handles and ids of keys; databases compare other texts differently."""
_MAX_KEY_HINTS: Final = 131_072
_RULES_AT_MOST: Final = 16
"""The maximum number of rules with different limits that a key hint notes the fields of."""


_Changed = tuple[T, QuotaLeases | None]
"""What a change answers, and the quota leases that were out at it; None: they were not read."""


def _noted(changed: _Changed[T]) -> T:
    """Note the leases for which a change that was committed waits, and return its answer."""
    answer, older = changed
    if older is not None:
        note_leases(older)
    return answer


class KeyHint(NamedTuple):
    """A key as it was last read. It selects the lock to take, and does not admit requests."""

    key: ApiKey
    sealed: tuple[object, ...]
    """The fields under its seal."""
    charged: dict[tuple[Limit, ...], tuple[str, ...]]
    """The fields that an admission with these limits of a rule charged last."""

    def note(self, limits: tuple[Limit, ...], fields: tuple[str, ...]) -> None:
        """Note the fields that an admission charged, for the next one to read with the key."""
        if len(self.charged) >= _RULES_AT_MOST:
            self.charged.clear()
        self.charged[limits] = fields


class SqlStore(PrimaryStore):
    """A store in a SQL database: SQLite, PostgreSQL, MariaDB or MySQL.

    A charge is one short transaction that locks the organization's row, reads, decides and writes;
    concurrent charges share one. Time is the server's clock (D27). ``admission.py`` explains why a
    revocation is immediate.

    Args:
        engine: a URL, or the host's engine. A store from a URL serves event loops and threads. A
            blocking engine serves threads (for SQLite also event loops), an asynchronous one event
            loops.
        prefix: the prefix of the tables' names.
        resolver: returns the plan of an organization, if the host stores plans itself.

    Raises:
        ConfigurationError: the database is not supported, the URL or the prefix is not valid, the
            driver is not installed, or an ``async`` resolver is combined with a blocking engine.
    """

    keeps_history = True
    grants_leases = True

    def __init__(
        self,
        engine: Engine | AsyncEngine | str,
        *,
        prefix: str = DEFAULT_PREFIX,
        resolver: PlanResolver | None = None,
    ) -> None:
        tables = Tables(prefix)
        engines = engines_of(engine)
        database = database_of(engines.dialect)
        self.system = engines.dialect.name
        self.prefix: Final = prefix
        self._tables = tables
        builders = database.clock, database.insert_missing, database.upsert
        self._statements = Statements(tables, engines.dialect, *builders)
        pipelined = pipelined_dialect(engines.dialect) if engines.ours else None
        self._transactions = Transactions(
            database,
            Check(tables, database, create=engines.creates),
            Ledger(database),
            self._statements,
            None if pipelined is None else Statements(tables, pipelined, *builders),
            engines.dialect,
            Pruning(tables, database).due,
            engines.patience,
            Adviser("The database", lambda failure: advice(failure, engines.dialect)),
        )
        self._histories: Final = Histories(tables, database)
        self._keys: Final = Keys(tables, self._histories)
        self._organizations: Final = Organizations(tables, database)
        self._accounts: Final = Accounts(tables, self._keys)
        self._summaries: Final = Summaries(tables)
        self._recalls: Final = recalls_of(engines.dialect, tables, prefix)
        self._change_counter: Final = ChangeCounter(tables, database, self._recalls.sent)
        self._changes: Final = ChangeLog(tables, database)
        self._revocation: Final = Revocation(tables, database, self._change_counter)
        self._database = database
        self._engines = engines
        self._executors = executors_of(self._transactions, engines)
        self.io: IoMode = self._executors.io
        if self.io == "sync" and iscoroutinefunction(resolver):
            raise ConfigurationError(
                "An async plan resolver needs a store that awaits: give the store a URL or an "
                "AsyncEngine, or write the resolver as a plain function."
            )
        self._resolver = resolver
        self.enforces_deadline = resolver is None  # The host's resolver has no deadline.
        self._key_hints = BoundedDict[str, KeyHint](_MAX_KEY_HINTS)

    def command_engine(self) -> Engine:
        """Return an engine for a command on its tables, such as a migration; dispose of it."""
        return self._engines.for_command()

    def watch(self, events: Events, deadline: float) -> bool:
        self._transactions.watching = *self._transactions.watching, events.metrics
        return False

    async def ready(self) -> None:
        executor = self._executors.here()
        try:
            await executor.read(self._transactions.rehearse)
        except OutdatedSchema as problem:
            raise ConfigurationError(str(problem)) from problem
        await executor.read(lambda connection: self._keys.by_handle(connection, ""))
        await executor.read(self._change_counter.read)

    async def now(self) -> int:
        return await self._read(self._database.now)

    async def warnings(self) -> Sequence[StoreWarning]:
        asked_at = time.time()
        shown = await self.now() / SECOND
        found = clock_warnings("the database", asked_at, shown, time.time())
        if self._engines.file is not None:
            found += self._engines.file.warnings()
        if self._tables.is_newer:
            found += await self._read(self._of_revision)
        return found if await self._read(self._keys.exist) else [*found, NO_KEYS]

    async def admit(
        self,
        token: Token,
        cost: int,
        plans: PlanBook,
        now: int | None = None,
        address: str | None = None,
        limits: tuple[Limit, ...] = (),
        lease: LeaseRequest | None = None,
    ) -> Admission:
        executor = self._executors.here()
        while True:
            key_hint = self._key_hints.get(token.handle)
            if key_hint is None or (
                token.sealed != key_hint.sealed and not token.accepts(key_hint.key)
            ):
                key_hint = await self._read_key_hint(token)
                if key_hint is None:
                    return UNKNOWN
            key, is_limited = key_hint.key, bool(limits or plans.limits)
            if key.details is not None:
                if address is None and key.details.addresses:
                    return Admission(Verdict.ELSEWHERE, key)
                is_limited = is_limited or bool(key.details.limits)
            resolved = self._resolver is not None
            assigned = await self._resolved(key.organization) if resolved else None
            expected = key_hint.charged.get(limits, ()) if is_limited else ()
            charge = Admit(
                key.organization,
                token.handle,
                key_hint.sealed,
                cost,
                plans,
                now,
                resolved,
                assigned,
                address,
                limits if is_limited else None,
                lease,
                expected,
            )
            outcome = await executor.charge(charge)
            if isinstance(outcome, Admission):
                if outcome.limits is not None and outcome.limits.fields != expected:
                    key_hint.note(limits, outcome.limits.fields)
                return outcome
            if isinstance(outcome, Exception):
                raise outcome
            self._key_hints.pop(token.handle, None)  # It has changed.

    async def admit_leased(
        self,
        token: Token,
        cost: int,
        plans: PlanBook,
        lease: LeaseRequest,
        now: int | None = None,
        address: str | None = None,
    ) -> Admission:
        return await self.admit(token, cost, plans, now, address, lease=lease)

    async def settle_leases(
        self,
        organization: str,
        windows: tuple[Window, ...],
        settled: Sequence[Settlement],
        now: int | None = None,
    ) -> None:
        outcome = await self._executors.here().charge(Settling(organization, windows, settled, now))
        if isinstance(outcome, Exception):
            raise outcome

    async def quota_leases(self, organization: str, now: int | None = None) -> QuotaLeases:
        return await self._read(lambda c: self._organizations.quota_leases(c, organization, now))

    async def leases_in_use(self, organization: str, now: int | None = None) -> QuotaLeases:
        return await self._read(lambda c: self._organizations.leases_in_use(c, organization, now))

    async def recalls(self) -> AsyncGenerator[str | None]:
        passed = self._recalls

        async def changes(since: int | None) -> Changes:
            return await self.changes(await self.now() - LONGEST if since is None else since)

        received = passed.receive(self._executors.here().dedicated, changes)
        try:
            async with aclosing(received) as recalls:
                async for organization in recalls:
                    yield organization
        except passed.failures as failure:
            raise StoreError from failure

    async def hit(
        self,
        organization: str,
        windows: tuple[Window, ...],
        cost: int,
        now: int | None = None,
        limits: LimitWindows | None = None,
    ) -> Reading:
        charge = Hit(organization, windows, cost, now, limits)
        outcome = await self._executors.here().charge(charge)
        if isinstance(outcome, Exception):
            raise outcome
        assert isinstance(outcome, Reading)
        return outcome

    async def peek(
        self,
        organization: str,
        windows: tuple[Window, ...],
        now: int | None = None,
        limits: LimitWindows | None = None,
    ) -> Reading:
        organizations = self._organizations
        return await self._read(
            lambda connection: organizations.peek(connection, organization, windows, now, limits)
        )

    async def reset(
        self,
        organization: str,
        now: int | None = None,
        *,
        change: ChangeDraft | None = None,
    ) -> None:
        id = write_id(organization)

        def work(connection: Connection) -> None:
            if change is not None:
                self._organizations.lock(connection, id)
            elif self._organizations.find_and_lock(connection, id) is None:
                return
            moment = self._changes.moment(connection, id, now, change)
            self._organizations.reset(connection, organization)
            self._record(connection, id, change, moment)

        await self._write(work)

    async def insert(
        self,
        draft: KeyDraft,
        cap: int | None,
        now: int | None = None,
        *,
        change: ChangeDraft | None = None,
    ) -> ApiKey:
        id = write_id(draft.organization)

        def work(connection: Connection) -> ApiKey:
            self._organizations.lock(connection, id)
            moment = self._changes.moment(connection, id, now, change)
            key = self._keys.insert(connection, draft, cap, moment.at)
            self._changes.add(connection, id, change, moment, draft.handle)
            return key

        return await self._insert(work, lambda connection: self._keys.taken(connection, draft))

    async def find(self, handle: str) -> ApiKey | None:
        if not _NAME.fullmatch(handle):
            return None
        return await self._read(lambda c: self._keys.by_handle(c, handle))

    async def get(self, organization: str, id: str) -> ApiKey | None:
        if not _NAME.fullmatch(id):
            return None
        return await self._read(lambda c: self._keys.get(c, organization, id))

    async def list(self, organization: str, limit: int, after: Position | None = None) -> Page:
        return await self._read(
            lambda connection: self._keys.newest(connection, organization, limit, after)
        )

    async def list_live(
        self,
        organization: str,
        limit: int,
        after: Position | None = None,
        now: int | None = None,
    ) -> Page:
        def work(connection: Connection) -> Page:
            at = self._at(connection, now)
            return self._keys.live(connection, organization, limit, after, at)

        return await self._read(work)

    async def revoke_if_live(
        self,
        organization: str,
        id: str,
        now: int | None = None,
        *,
        change: ChangeDraft | None = None,
    ) -> ApiKey | None:
        if not _NAME.fullmatch(id):
            return None
        owner = write_id(organization)

        def work(connection: Connection) -> _Changed[ApiKey | None]:
            locked = self._organizations.find_and_lock(connection, owner)
            if locked is None:
                return None, ()
            moment, row = self._changes.moment_and_key(connection, owner, id, now, change)
            key = key_of(row, locked)
            if key is not None and key.revoked_at is None:
                key, revoked = self._keys.revocation(key, moment.at)
                self._record(connection, owner, change, moment, write=revoked)
            return key, self._organizations.older_leases(owner, locked, moment)

        if self._database.joins_writes:
            revoked = await self._revoke_at_once(owner, id, now, change)
            if revoked is not None:
                return _noted(revoked)
        return _noted(await self._write(work))

    async def update_if(
        self,
        old: ApiKey,
        new: ApiKey,
        now: int | None = None,
        *,
        change: ChangeDraft | None = None,
    ) -> bool:
        id = write_id(old.organization)

        def work(connection: Connection) -> _Changed[bool]:
            locked = self._organizations.lock(connection, id)
            moment, row = self._changes.moment_and_key(connection, id, old.id, now, change)
            replaced = self._keys.replacement(key_of(row, locked), old, new, moment.at)
            if replaced is not None:
                self._record(connection, id, change, moment, write=replaced)
            return replaced is not None, self._organizations.older_leases(id, locked, moment)

        return _noted(await self._write(work))

    async def rotate_if(
        self,
        old: ApiKey,
        new: ApiKey,
        successor: KeyDraft,
        cap: int | None,
        now: int | None = None,
        *,
        change: ChangeDraft | None = None,
    ) -> ApiKey | None:
        id = write_id(old.organization)

        def work(connection: Connection) -> _Changed[ApiKey | None]:
            locked = self._organizations.lock(connection, id)
            moment, row = self._changes.moment_and_key(connection, id, old.id, now, change)
            older = self._organizations.older_leases(id, locked, moment)
            replaced = self._keys.replacement(key_of(row, locked), old, new, moment.at)
            if replaced is None:
                return None, older
            connection.execute(*replaced)
            key = self._keys.insert(connection, successor, cap, moment.at)
            self._record(connection, id, change, moment, successor.handle)
            return key, older

        return _noted(await self._insert(work, lambda c: self._keys.taken(c, successor)))

    async def rehash_if(self, handle: str, old: Digest, new: Digest) -> bool:
        if not _NAME.fullmatch(handle):
            return False

        # The owner of a key never changes. It is read in a separate transaction, since the
        # snapshot of the locking one would precede its lock.
        id = await self._read(lambda c: self._keys.owner(c, handle))
        if id is None:
            return False

        def work(connection: Connection) -> bool:
            self._organizations.lock(connection, id)
            moved = self._keys.rehash(connection, handle, old, new)
            if moved:
                self._change_counter.advance(connection, id)
            return moved

        return await self._write(work)

    async def add_usage(self, usage: Mapping[str, Usage], batch: UsageBatch | None = None) -> None:
        # Ordered like the locks of admissions: see Statements.lock.
        values = [
            {"h0": handle, "n0": requests, "a0": last}
            for handle, (requests, last) in sorted(usage.items())
            if _NAME.fullmatch(handle)
        ]
        if not values:
            return
        statement = self._statements.use(1)

        def work(connection: Connection) -> None:
            if self._histories.is_new(connection, batch):
                connection.execute(statement, values)

        await self._write(work)

    async def add_history(
        self,
        additions: Mapping[HistoryOwner, UsageHistory],
        batch: UsageBatch | None = None,
    ) -> None:
        await self._write(lambda connection: self._histories.add(connection, additions, batch))

    async def history(self, owner: HistoryOwner) -> UsageHistory:
        return await self._read(lambda connection: self._histories.read(connection, owner))

    async def remove_ended(
        self, age: int, now: int | None = None, cursor: str | None = None
    ) -> Removal:
        until = (await self.now() if now is None else now) - age
        # Read in a separate transaction: the snapshot of the next one would precede its lock.
        organization = await self._read(lambda connection: self._keys.due(connection, until))
        if organization is None:
            return await self._remove_changes(until)

        def work(connection: Connection) -> int:
            removed = self._keys.remove_ended(connection, organization, until)
            if removed:
                self._change_counter.advance(connection, organization)
            return removed

        return Removal(await self._write(work), "more")

    async def _remove_changes(self, until: int) -> Removal:
        """Remove some old records of the change log: one step of :meth:`remove_ended`."""
        id = await self._read(lambda connection: self._changes.due(connection, until))
        if id is None:
            return Removal(0, None)
        await self._write(lambda connection: self._changes.remove(connection, id, until))
        return Removal(0, "more")

    async def census(self, now: int | None = None, cursor: str | None = None) -> Census:
        return await self._read(
            lambda connection: self._keys.census(connection, self._at(connection, now), cursor)
        )

    async def acquire(
        self,
        organization: str,
        job: str,
        owner: str,
        limit: int | None,
        span: int,
        now: int | None = None,
    ) -> SlotReading:
        return await self._lease(
            organization, now, lambda leases, at: acquire(leases, job, owner, limit, at, span)
        )

    async def renew(
        self, organization: str, job: str, owner: str, span: int, now: int | None = None
    ) -> Lease | None:
        return await self._lease(
            organization, now, lambda leases, at: renew(leases, job, owner, at, span)
        )

    async def release(
        self, organization: str, job: str, owner: str, now: int | None = None
    ) -> bool:
        return await self._lease(
            organization, now, lambda leases, at: release(leases, job, owner, at)
        )

    async def held(self, organization: str, now: int | None = None) -> tuple[Lease, ...]:
        return await self._read(
            lambda connection: self._organizations.held(connection, organization, now)
        )

    async def hold(
        self, organization: str, action: HoldAction, now: int | None = None
    ) -> HoldAnswer:
        outcome = await self._executors.here().charge(Holding(organization, action, now))
        if isinstance(outcome, Exception):
            raise outcome
        assert isinstance(outcome, HoldAnswer)
        return outcome

    async def organization(self, id: str) -> Organization | None:
        if self._resolver is not None:
            return await self._resolved(id)
        return await self._read(lambda c: self._organizations.get(c, id))

    async def put_organization(
        self,
        organization: Organization,
        now: int | None = None,
        *,
        change: ChangeDraft | None = None,
    ) -> None:
        if self._resolver is not None:
            raise ConfigurationError(
                "Plans come from the resolver that the store was given: change them there."
            )
        id = write_id(organization.id)

        def work(connection: Connection) -> _Changed[None]:
            locked = self._organizations.lock(connection, id)
            before = read_organization(organization.id, locked.plan, locked.overrides)
            draft = None
            if change is not None and before != organization:
                draft = change._replace(before=plan_fields(before))
            moment = self._changes.moment(connection, id, now, draft)
            self._organizations.put(connection, organization)
            self._record(connection, id, draft, moment)
            return None, self._organizations.older_leases(id, locked, moment)

        _noted(await self._write(work))

    def note_change(self, connection: Connection, organization: str) -> None:
        """Note in a transaction of the host's that it changes the plan that its resolver returns.

        The note is committed or rolled back together with the change. A pair of stores forgets the
        organization's copies within a second of the commit. Until the commit, changes to other keys
        and plans wait, so call this last.

        Args:
            connection: in a transaction on the database of this store. Of an ``AsyncConnection``:
                ``await connection.run_sync(store.note_change, "org_1")``.
            organization: its id.
        """
        id = write_id(organization)
        self._organizations.lock_within(connection, id)
        change = drafted_change("plan_noted")
        moment = self._changes.moment(connection, id, None, change)
        record = self._changes.row(connection, id, change, moment)
        # Without a recall: PostgreSQL prepares no transaction of two phases that sends one.
        self._change_counter.advance(connection, id, moment.at, record=record)

    async def organization_changed(self, id: str) -> None:
        # No record: the host may repeat this call, and notes the change itself.
        name = write_id(id)

        def work(connection: Connection) -> None:
            self._organizations.lock_within(connection, name)
            self._change_counter.advance(connection, name, recalls=True)

        await self._write(work)

    async def register(
        self,
        account: AccountDraft,
        key: KeyDraft,
        now: int | None = None,
        *,
        change: ChangeDraft | None = None,
    ) -> tuple[Account, ApiKey]:
        id = write_id(account.organization)

        def work(connection: Connection) -> tuple[Account, ApiKey]:
            self._organizations.lock(connection, id)
            moment = self._changes.moment(connection, id, now, change)
            registered = self._accounts.register(connection, account, key, moment.at)
            self._changes.add(connection, id, change, moment, key.handle)
            return registered

        return await self._insert(work, lambda c: self._accounts.taken(c, account, key))

    async def account(self, organization: str) -> Account | None:
        return await self._read(lambda c: self._accounts.get(c, organization))

    async def account_by_token(self, handle: str) -> Account | None:
        if not _NAME.fullmatch(handle):
            return None
        return await self._read(lambda c: self._accounts.by_handle(c, handle))

    async def unclaimed_by_email(
        self, billing_email: str, limit: int, after: Position | None = None
    ) -> tuple[Account, ...]:
        return await self._read(
            lambda c: self._accounts.unclaimed_by_email(c, billing_email, limit, after)
        )

    async def accounts_by_user(
        self, user: str, limit: int, after: Position | None = None
    ) -> tuple[Account, ...]:
        return await self._read(lambda c: self._accounts.by_user(c, user, limit, after))

    async def claim_if_unclaimed(
        self,
        organization: str,
        user: str,
        *,
        revoke: bool,
        keep_token: bool,
        seals: Reseal = UNSEALED,
        now: int | None = None,
        change: ChangeDraft | None = None,
    ) -> Account | None:
        id = write_id(organization)

        def work(connection: Connection) -> _Changed[Account | None]:
            locked = self._organizations.find_and_lock(connection, id)
            if locked is None:
                return None, ()
            moment = self._changes.moment(connection, id, now, change)
            account, is_changed = self._accounts.claim(
                connection,
                organization,
                user,
                revoke=revoke,
                keep_token=keep_token,
                seals=seals,
                now=moment.at,
            )
            if account is not None and (revoke or not keep_token):
                self._record(connection, id, change if is_changed else None, moment)
            elif is_changed:
                self._changes.add(connection, id, change, moment)
            return account, self._organizations.older_leases(id, locked, moment)

        return _noted(await self._write(work))

    async def remove_unclaimed(
        self,
        idle: int,
        limit: int,
        now: int | None = None,
        *,
        change: ChangeDraft | None = None,
    ) -> tuple[str, ...]:
        edge = (await self.now() if now is None else now) - idle
        due = await self._read(lambda c: self._accounts.due(c, edge, limit))
        removed = [name for name in due if await self._remove_unclaimed(name, edge, now, change)]
        return tuple(sorted(removed))

    async def _remove_unclaimed(
        self, organization: str, edge: int, now: int | None, change: ChangeDraft | None
    ) -> bool:
        """Remove one account in its own transaction, so admissions wait for one row at most."""
        resolved = await self._resolved(organization)
        id = write_id(organization)

        def work(connection: Connection) -> bool:
            if self._organizations.find_and_lock(connection, id) is None:
                return False
            moment = self._changes.moment(connection, id, now, change)
            assigned = resolved or self._organizations.get(connection, organization)
            if not self._accounts.remove(
                connection, organization, edge, placed=assigned is not None
            ):
                return False
            self._organizations.leave(connection, organization)
            self._record(connection, id, change, moment)
            return True

        return await self._write(work)

    async def sign_in(self, organization: str, now: int | None = None) -> Account | None:
        return await self._write(
            lambda c: self._accounts.sign_in(c, organization, self._at(c, now))
        )

    async def sign_out(self, organization: str) -> None:
        id = write_id(organization)

        def work(connection: Connection) -> None:
            if self._organizations.find_and_lock(connection, id) is not None:
                self._accounts.sign_out(connection, organization)
                self._change_counter.advance(connection, id)

        await self._write(work)

    async def rehash_token_if(self, handle: str, old: Digest, new: Digest) -> bool:
        if not _NAME.fullmatch(handle):
            return False
        return await self._write(lambda c: self._accounts.rehash(c, handle, old, new))

    async def change_log(self, organization: str, limit: int, before: int | None = None) -> LogPage:
        return await self._read(lambda c: self._changes.newest(c, organization, limit, before))

    async def scan(self, cursor: str | None, limit: int) -> Rows:
        # Keys come first, then accounts, each by handle.
        of_accounts, after = (cursor or "k")[0] == "a", (cursor or "k")[1:]
        if of_accounts:
            accounts = await self._read(lambda c: self._accounts.scan(c, after, limit))
            return Rows((), accounts, f"a{accounts[-1].handle}" if accounts else None)
        keys = await self._read(lambda c: self._keys.scan(c, after, limit))
        return Rows(keys, (), f"k{keys[-1].handle}" if keys else "a")

    async def organizations(
        self, limit: int, now: int | None = None, cursor: str | None = None
    ) -> FoundOrganizations:
        step = await self._read(lambda c: self._summaries.read(c, limit, self._at(c, now), cursor))
        if self._resolver is None:
            return step
        resolved = [one._replace(placed=await self._resolved(one.id)) for one in step.organizations]
        return FoundOrganizations(resolved, step.cursor)

    async def search(self, wanted: KeySearch, limit: int, cursor: str | None = None) -> FoundKeys:
        if not _NAME.fullmatch(wanted.id or wanted.handle or IMPORTED):
            return FoundKeys([], None)
        return await self._read(lambda c: self._keys.search(c, wanted, limit, cursor))

    async def change_counter(self) -> int | None:
        if self._resolver is not None:
            return None  # The host's plans change without this counter.
        return await self._read(self._change_counter.read)

    async def freshness(self) -> Freshness:
        if self._resolver is not None:
            return Freshness(None, await self.now())
        return await self._read(
            lambda c: Freshness(self._change_counter.read(c), self._database.now(c))
        )

    async def changes(self, since: int | None) -> Changes:
        return await self._read(lambda c: self._change_counter.changes(c, since))

    def cancel_waits(self) -> None:
        self._transactions.hurried = True

    def reset_connections(self) -> None:
        hanging, self._executors = self._executors, executors_of(self._transactions, self._engines)
        hanging.here().give_up()

    async def close(self) -> None:
        await self._executors.close()

    async def _read_key_hint(self, token: Token) -> KeyHint | None:
        """Read a key without a lock, so that invalid keys cannot contend with valid ones."""
        key = await self.find(token.handle)
        if key is None:
            token.compare_with_dummy()
            return None
        if not token.accepts(key):
            return None
        key_hint = self._key_hints[token.handle] = KeyHint(key, sealed_fields(key), {})
        return key_hint

    async def _resolved(self, organization: str) -> Organization | None:
        if self._resolver is None:
            return None
        assigned = self._resolver(organization)
        return await assigned if isawaitable(assigned) else assigned

    async def _read(self, work: Work[T]) -> T:
        return await self._executors.here().read(work)

    async def _write(self, work: Work[T]) -> T:
        return await self._executors.here().write(work)

    def _record(
        self,
        connection: Connection,
        id: bytes,
        change: ChangeDraft | None,
        moment: Moment,
        handle: str | None = None,
        write: Write | None = None,
    ) -> None:
        """Record a change of a locked organization, which recalls its quota leases, and advance the
        change counter.

        ``handle`` is a new key's; ``write`` changes a key.
        """
        record = None
        if handle is None:
            record = self._changes.row(connection, id, change, moment)
        else:
            self._changes.add(connection, id, change, moment, handle)
        self._change_counter.advance(
            connection, id, moment.clock, recalls=True, record=record, write=write
        )

    async def _revoke_at_once(
        self, owner: bytes, id: str, now: int | None, change: ChangeDraft | None
    ) -> _Changed[ApiKey | None] | None:
        """Revoke a key in one statement; None: that had no effect, and a transaction will have.

        The statement may be repeated, even if it had its effect: a revoked key stays as it is.
        """
        try:
            found = await self._read(lambda c: self._revocation.revoke(c, owner, id, now, change))
        except StoreError as failure:
            if isinstance(failure.__cause__, IntegrityError):  # The number of its record is taken.
                return None
            raise
        if found is None:
            return None, ()
        key, moment = key_of(found.key, found), found.moment
        older = self._organizations.older_leases(owner, found, moment)
        if key is None or key.revoked_at is not None:
            return key, older
        if not found.has_revoked:
            return None
        if self._changes.is_trimmed_at(moment.number):
            with suppress(StoreError):  # The key is revoked all the same.
                await self._write(lambda c: self._changes.trim(c, owner, moment.number))
        return key._replace(revoked_at=moment.at), older

    def _at(self, connection: Connection, now: int | None) -> int:
        return self._database.now(connection) if now is None else now

    def _of_revision(self, connection: Connection) -> Sequence[StoreWarning]:
        """Return a warning if the revision of the tables was changed by hand."""
        found = current(connection, self._tables)
        problem = None if found is None else renumbered(connection, self._tables, found)
        return [] if problem is None else [StoreWarning("tables", problem)]

    async def _insert(self, work: Work[T], taken: Work[bool]) -> T:
        """Insert rows, if their handles are free.

        Raises:
            HandleTaken: a handle is taken.
        """
        try:
            return await self._write(work)
        except StoreError as failure:
            if isinstance(failure.__cause__, IntegrityError) and await self._read(taken):
                raise HandleTaken from None
            raise

    async def _lease(
        self,
        organization: str,
        now: int | None,
        change: Callable[[Leases, int], tuple[T, Leases]],
    ) -> T:
        organizations = self._organizations
        return await self._write(
            lambda connection: organizations.lease(connection, organization, now, change)
        )
