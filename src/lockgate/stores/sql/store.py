"""The SQL store: each verb once, on the executor of the caller."""

import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from inspect import isawaitable, iscoroutinefunction
from typing import Any, Final, NamedTuple, TypeVar, cast

from sqlalchemy import Connection, Engine
from sqlalchemy.ext.asyncio import AsyncEngine

from ...core.api_keys import ApiKey, Position
from ...core.bounded_dict import BoundedDict
from ...core.changes import ChangeDraft, drafted_change
from ...core.key_format import Token
from ...core.key_search import IMPORTED, KeySearch
from ...core.ledger import Action, Reset
from ...core.limits import Limit
from ...core.plans import Organization, PlanBook
from ...core.quota_leases import LONGEST, LeaseRequest
from ...core.row_seals import sealed_fields
from ...core.timestamps import SECOND
from ...core.usage_history import UsageHistory
from ...errors import ConfigurationError
from ...events import Events
from ..answers import (
    NO_KEYS,
    UNKNOWN,
    Admission,
    Freshness,
    HistoryOwner,
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
from ..rows import (
    ACCOUNT_BY_TOKEN,
    KEY_BY_HANDLE,
    KEY_BY_ID,
    LOG,
    PLAN,
    Commit,
    Index,
    Outcome,
    R,
    Read,
    Version,
    Walk,
    Wanted,
    without_usage,
)
from ..runtime.log_hints import Adviser
from .admission import READING, Act, Admit, Ledgers
from .changes import ChangeRecords
from .codec import write_id
from .commits import Commits, Taken
from .databases import database_of
from .engines import engines_of
from .error_hints import advice
from .executor import executors_of
from .indexes import Indexes
from .organizations import Organizations
from .pipelined_cursor import pipelined_dialect
from .pruning import Pruning
from .recalls import recalls_of
from .schema import Check, OutdatedSchema, current, renumbered
from .statements import Statements
from .tables import DEFAULT_PREFIX, Tables
from .transactions import Transactions, Work
from .usage import Histories

A = TypeVar("A")
T = TypeVar("T")

PlanResolver = Callable[[str], Organization | Awaitable[Organization | None] | None]
"""Returns the plan of an organization by its id; None: the default plan.

A plain or an ``async`` function, called once for each admission, before the transaction. A plain
one runs in the thread of the request, so under ASGI it must answer from memory.
"""

_NAME: Final = re.compile(r"[!-~]{1,64}")
"""The format of handles and ids of keys; databases compare other texts differently."""
_NAMED: Final = {KEY_BY_HANDLE.name, KEY_BY_ID.name, ACCOUNT_BY_TOKEN.name}
_MAX_KEY_HINTS: Final = 131_072
_RULES_AT_MOST: Final = 16
"""The maximum number of rules with different limits that a key hint notes the fields of."""


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
        pipelined = pipelined_dialect(engines.dialect)
        self._ledgers: Final = Ledgers(database)
        self._transactions = Transactions(
            database,
            Check(tables, database, create=engines.creates),
            self._ledgers,
            self._statements,
            None if pipelined is None else Statements(tables, pipelined, *builders),
            engines.dialect,
            Pruning(tables, database).due,
            engines.patience,
            Adviser("The database", lambda failure: advice(failure, engines.dialect)),
        )
        self._histories: Final = Histories(tables, database)
        self._organizations: Final = Organizations(tables, database)
        self._recalls: Final = recalls_of(engines.dialect, tables, prefix)
        self._records: Final = ChangeRecords(tables, database, self._recalls.sent)
        self._indexes: Final = Indexes(tables, database)
        self._commits: Final = Commits(
            tables, database, self._indexes, self._histories, self._records
        )
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
        await executor.read(lambda connection: self._indexes.key(connection, ""))
        await executor.read(self._records.read)

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
        return found if await self._read(self._indexes.exist) else [*found, NO_KEYS]

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

    async def charge(self, owner: str, action: Action[A], now: int | None = None) -> A:
        act = Act(owner, action, now)
        outcome: object = None
        if isinstance(act.action, Reset):
            await self._reset(owner, act.action, now)
        elif isinstance(act.action, READING):
            outcome = await self._read(lambda c: self._ledgers.look(c, self._statements, act))
        else:
            outcome = await self._executors.here().charge(act)
            if isinstance(outcome, Exception):
                raise outcome
        return cast(A, outcome)

    async def _reset(self, owner: str, action: Reset, now: int | None) -> None:
        id, change, organizations = write_id(owner), action.change, self._organizations

        def work(connection: Connection) -> None:
            find = organizations.find_and_lock if change is None else organizations.lock
            row = find(connection, id)
            if row is not None:
                organizations.reset(connection, id, row, action)
                self._record(connection, id, change, now, recalls=True)

        await self._write(work)

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
        # Without a recall: PostgreSQL prepares no transaction of two phases that sends one.
        self._record(connection, id, drafted_change("plan_noted"), None, recalls=False)

    async def read(
        self,
        index: Index[R],
        prefix: tuple[str, ...],
        limit: int = 1,
        after: Position | None = None,
        now: int | None = None,
    ) -> Read[R]:
        name = index.name
        if name == PLAN.name and self._resolver is not None:
            placed = await self._resolved(prefix[0])
            found: list[Any] = [] if placed is None else [placed]
            return Read(found, [*found], await self.now() if now is None else now)
        if name in _NAMED and not _NAME.fullmatch(prefix[-1]):
            return Read([], [], await self.now() if now is None else now)

        rows, at = await self._read(
            lambda connection: self._indexes.read(connection, name, prefix, limit, after, now)
        )
        versions: list[Version] = []
        if name != LOG.name:
            versions += map(without_usage, rows)
        return Read(rows, versions, at)

    async def commit(self, commit: Commit, now: int | None = None) -> Outcome:
        placed: Organization | None = None
        if self._resolver is not None:
            if any(isinstance(write.new, Organization) for write in commit.writes):
                raise ConfigurationError(
                    "Plans come from the resolver that the store was given: change them there."
                )
            if commit.remove_unused is not None:
                placed = await self._resolved(commit.owner)
        transaction = self._transactions.committing(
            lambda cursor: self._commits.commit(cursor, commit, now, placed)
        )
        try:
            outcome, older = await self._executors.here().write(transaction)
        except Taken as taken:
            if taken.is_sure or await self._read(lambda c: self._commits.is_taken(c, commit)):
                return Outcome("taken", taken.now)
            raise StoreError from taken.__cause__
        if older is not None:
            note_leases(older)
        return outcome

    async def walk(self, wanted: Wanted, limit: int, cursor: str | None = None) -> Walk:
        named = wanted if isinstance(wanted, KeySearch) else KeySearch()
        if not _NAME.fullmatch(named.id or named.handle or IMPORTED):
            return Walk(None)
        step = await self._read(lambda c: self._indexes.walk(c, wanted, limit, cursor))
        if self._resolver is None:
            return step
        found = [one._replace(placed=await self._resolved(one.id)) for one in step.organizations]
        return step._replace(organizations=tuple(found))

    async def freshness(self) -> Freshness:
        if self._resolver is not None:  # The host's plans change without the counter.
            return Freshness(None, await self.now())
        return await self._read(lambda c: Freshness(self._records.read(c), self._database.now(c)))

    async def changes(self, since: int | None) -> Changes:
        return await self._read(lambda c: self._records.changes(c, since))

    def cancel_waits(self) -> None:
        self._transactions.hurried = True

    def reset_connections(self) -> None:
        hanging, self._executors = self._executors, executors_of(self._transactions, self._engines)
        hanging.here().give_up()

    async def close(self) -> None:
        await self._executors.close()

    async def _read_key_hint(self, token: Token) -> KeyHint | None:
        """Read a key without a lock, so that invalid keys cannot contend with valid ones."""
        handle = token.handle
        key = None
        if _NAME.fullmatch(handle):
            key = await self._read(lambda connection: self._indexes.key(connection, handle))
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
        def reading(connection: Connection) -> T:
            self._database.reading(connection)
            return work(connection)

        return await self._executors.here().read(reading)

    async def _write(self, work: Work[T]) -> T:
        return await self._executors.here().write(self._transactions.writing(work))

    def _record(
        self,
        connection: Connection,
        id: bytes,
        change: ChangeDraft | None,
        now: int | None,
        *,
        recalls: bool,
    ) -> None:
        """Record a change of a locked organization beside its rows, and count it."""
        records = self._records
        moment = records.read_moment(connection.execute(*records.moment(id)).one(), now)
        queries = records.record(id, change, moment)
        for query in [*queries, *records.advance(id, moment, recalls=recalls)]:
            connection.execute(*query)

    def _of_revision(self, connection: Connection) -> Sequence[StoreWarning]:
        """Return a warning if the revision of the tables was changed by hand."""
        found = current(connection, self._tables)
        problem = None if found is None else renumbered(connection, self._tables, found)
        return [] if problem is None else [StoreWarning("tables", problem)]
