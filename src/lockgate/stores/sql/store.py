"""The store: its verbs, each once, over whichever lane the caller is in."""

import re
from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable, iscoroutinefunction
from typing import Any, Final, NamedTuple, TypeVar

from sqlalchemy import Connection, Engine, and_, func, insert, or_, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine

from ...errors import ConfigurationError, HandleTaken, KeyLimitReached
from ...rules.accounts import Account, AccountDraft
from ...rules.credentials import Digest, Token
from ...rules.keys import ApiKey, KeyDraft
from ...rules.plans import Organization, PlanBook
from ...rules.slots import Lease, Leases, SlotReading, acquire, live, release, renew
from ...rules.windows import Reading, Window, look
from ..contract import UNKNOWN, Admission, Changes, Io, Truth, Usage
from .accounts import Accounts
from .advice import Adviser
from .charges import Admit, Hit, Ledger
from .dialects import flavour_of
from .encoding import (
    idle_day,
    read_key,
    read_leases,
    read_organization,
    read_state,
    read_uses,
    write_id,
    write_key,
    write_leases,
    write_overrides,
)
from .engines import engines_of
from .epochs import Epochs
from .lanes import lanes_of
from .pruning import Pruning
from .schema import Check
from .statements import Statements
from .tables import DEFAULT_PREFIX, Tables
from .transactions import Transactions

T = TypeVar("T")

PlanResolver = Callable[[str], Organization | Awaitable[Organization | None] | None]
"""Says which plan an organization is on, by its id; None: the default plan.

A plain function or an ``async`` one. It is asked once for each admission, before the transaction: a
plain one is called where the request is handled, so under ASGI it must answer from memory.
"""

_NAME: Final = re.compile(r"[!-~]{1,64}")
"""What a handle or the id of a key can be: databases differ on how they compare anything else."""
_SIGHTS_AT_MOST: Final = 50_000


class _Sight(NamedTuple):
    """What was last seen of a key, to know whose lock to take. Nobody is let in by it."""

    organization: str
    digest: Digest


class SqlStore(Truth):
    """Keeps everything in a SQL database: SQLite, PostgreSQL, MariaDB or MySQL.

    A charge is one short transaction that first locks the organization's row, then reads, judges
    and writes; those that wait at the same time share one. The server's clock decides (D27).

    Args:
        engine: a URL, or the host's own engine to share with the rest of the application. From a
            URL, a store serves event loops and threads alike. A blocking engine serves threads
            (one of SQLite both), an asynchronous one event loops.
        prefix: what the tables' names start with.
        resolver: says which plan an organization is on, where the host keeps that itself.

    Raises:
        ConfigurationError: a database that lockgate does not know, a URL that cannot be read, a
            driver that is not installed, a prefix that cannot be one, or a resolver that has to be
            awaited where nothing awaits.
    """

    def __init__(
        self,
        engine: Engine | AsyncEngine | str,
        *,
        prefix: str = DEFAULT_PREFIX,
        resolver: PlanResolver | None = None,
    ) -> None:
        tables = Tables(prefix)
        engines = engines_of(engine)
        flavour = flavour_of(engines.dialect)
        # The embedded database has nobody who would run a command for it.
        create = engines.ours and engines.dialect.name == "sqlite"
        self._statements = Statements(
            tables, engines.dialect, flavour.clock, flavour.insert_missing
        )
        self._transactions = Transactions(
            flavour,
            Check(tables, flavour, create=create),
            Ledger(flavour),
            self._statements,
            Pruning(tables, flavour).due,
            engines.patience,
            Adviser(engines.dialect),
        )
        self._organizations: Final = tables.organizations
        self._keys: Final = tables.keys
        self._with_usage: Final = select(tables.keys, tables.organizations.c.used).outerjoin_from(
            tables.keys, tables.organizations
        )
        self._accounts: Final = Accounts(tables)
        self._epochs: Final = Epochs(tables, flavour)
        self._tables = tables
        self._flavour = flavour
        self._engines = engines
        self._lanes = lanes_of(self._transactions, engines)
        self.io: Io = self._lanes.io
        if self.io == "blocking" and iscoroutinefunction(resolver):
            raise ConfigurationError(
                "An async plan resolver needs a store that awaits: give the store a URL or an "
                "AsyncEngine, or write the resolver as a plain function."
            )
        self._resolver = resolver
        self.keeps_time = resolver is None  # The host's resolver takes as long as it takes.
        self._sights: dict[str, _Sight] = {}

    async def now(self) -> int:
        return await self._lanes.here().read(self._flavour.now)

    async def admit(
        self, token: Token, cost: int, plans: PlanBook, now: int | None = None
    ) -> Admission:
        lane = self._lanes.here()
        while True:
            sight = self._sights.get(token.handle)
            if sight is None or not token.matches(*sight.digest):
                sight = await self._sight(token)
                if sight is None:
                    return UNKNOWN
            organization, digest = sight
            resolved = self._resolver is not None
            placed = await self._resolved(organization) if resolved else None
            charge = Admit(organization, token, digest, cost, plans, now, resolved, placed)
            outcome = await lane.charge(charge)
            if isinstance(outcome, Admission):
                return outcome
            if isinstance(outcome, Exception):
                raise outcome
            self._sights.pop(token.handle, None)  # It has moved.

    async def hit(
        self, organization: str, windows: tuple[Window, ...], cost: int, now: int | None = None
    ) -> Reading:
        charge = Hit(organization, windows, cost, now)
        outcome = await self._lanes.here().charge(charge)
        if isinstance(outcome, Exception):
            raise outcome
        assert isinstance(outcome, Reading)
        return outcome

    async def look(
        self, organization: str, windows: tuple[Window, ...], now: int | None = None
    ) -> Reading:
        column = self._organizations.c.windows
        mine = self._organizations.c.id == write_id(organization)

        def work(connection: Connection) -> Reading:
            state = read_state(connection.scalar(select(column).where(mine)), windows)
            return look(state, windows, self._flavour.now(connection) if now is None else now)

        return await self._lanes.here().read(work)

    async def insert(self, draft: KeyDraft, cap: int | None, now: int | None = None) -> ApiKey:
        keys = self._keys
        id = write_id(draft.organization)
        taken = or_(keys.c.handle == draft.handle, keys.c.id == draft.id)

        def work(connection: Connection) -> ApiKey:
            self._lock(connection, id)
            instant = self._flavour.now(connection) if now is None else now
            if cap is not None:
                mine = and_(keys.c.organization == id, self._live(instant))
                if (connection.scalar(select(func.count()).where(mine)) or 0) >= cap:
                    raise KeyLimitReached(cap)
            key = draft.created(instant)
            connection.execute(insert(keys), write_key(key))
            return key

        lane = self._lanes.here()
        try:
            return await lane.write(work)
        except IntegrityError:
            if await lane.read(lambda connection: connection.scalar(select(1).where(taken))):
                raise HandleTaken from None
            raise

    async def find(self, handle: str) -> ApiKey | None:
        if not _NAME.fullmatch(handle):
            return None
        return await self._key(self._keys.c.handle == handle)

    async def get(self, organization: str, id: str) -> ApiKey | None:
        if not _NAME.fullmatch(id):
            return None
        return await self._key(self._owned(organization, id))

    async def list(self, organization: str) -> list[ApiKey]:
        keys = self._keys
        statement = self._with_usage.where(keys.c.organization == write_id(organization)).order_by(
            keys.c.created_at.desc(), keys.c.id
        )
        return await self._lanes.here().read(
            lambda connection: [_key(row) for row in connection.execute(statement)]
        )

    async def revoke_if_live(
        self, organization: str, id: str, now: int | None = None
    ) -> ApiKey | None:
        if not _NAME.fullmatch(id):
            return None
        keys = self._keys
        mine = self._owned(organization, id)

        def work(connection: Connection) -> ApiKey | None:
            if not self._accounts.lock(connection, organization):
                return None
            instant = self._flavour.now(connection) if now is None else now
            live = and_(mine, keys.c.revoked_at.is_(None))
            if connection.execute(update(keys).where(live).values(revoked_at=instant)).rowcount:
                self._epochs.advance(connection, write_id(organization))
            row = connection.execute(self._with_usage.where(mine)).one_or_none()
            return None if row is None else _key(row)

        return await self._lanes.here().write(work)

    async def rehash_if(self, handle: str, old: Digest, new: Digest) -> bool:
        keys = self._keys
        unchanged = and_(
            keys.c.handle == handle, keys.c.scheme == old.scheme, keys.c.digest == old.value
        )
        statement = update(keys).where(unchanged).values(scheme=new.scheme, digest=new.value)
        whose = select(keys.c.organization).where(keys.c.handle == handle)

        def work(connection: Connection) -> bool:
            id = connection.scalar(whose)
            if id is None:
                return False
            id = bytes(id)
            self._lock(connection, id)
            moved = connection.execute(statement).rowcount == 1
            if moved:
                self._epochs.advance(connection, id)
            return moved

        return await self._lanes.here().write(work)

    async def add_usage(self, usage: Mapping[str, Usage]) -> None:
        if not usage:
            return
        # In one order, like the admissions: see Statements.lock.
        values = [
            {"h0": handle, "n0": requests, "a0": last}
            for handle, (requests, last) in sorted(usage.items())
        ]
        statement = self._statements.use(1)
        await self._lanes.here().write(lambda connection: connection.execute(statement, values))

    async def census(self, now: int | None = None) -> dict[str, int]:
        key, account = self._keys.c, self._tables.accounts.c

        def work(connection: Connection) -> dict[str, int]:
            live = self._live(self._flavour.now(connection) if now is None else now)
            counts: dict[str, int] = {}
            good = account.token_revoked_at.is_(None)
            for scheme, those in ((key.scheme, live), (account.scheme, good)):
                rows = select(scheme, func.count()).where(those).group_by(scheme)
                for name, number in connection.execute(rows):
                    counts[name] = counts.get(name, 0) + number
            return counts

        return await self._lanes.here().read(work)

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
        column = self._organizations.c.slots
        mine = self._organizations.c.id == write_id(organization)

        def work(connection: Connection) -> tuple[Lease, ...]:
            leases = read_leases(connection.scalar(select(column).where(mine)))
            return live(leases, self._flavour.now(connection) if now is None else now)

        return await self._lanes.here().read(work)

    async def organization(self, id: str) -> Organization | None:
        if self._resolver is not None:
            return await self._resolved(id)
        table = self._organizations
        statement = select(table.c.plan, table.c.overrides).where(table.c.id == write_id(id))

        def work(connection: Connection) -> Organization | None:
            row = connection.execute(statement).one_or_none()
            return None if row is None else read_organization(id, *row)

        return await self._lanes.here().read(work)

    async def put_organization(self, organization: Organization) -> None:
        if self._resolver is not None:
            raise ConfigurationError(
                "Plans come from the resolver that the store was given: change them there."
            )
        table = self._organizations
        id = write_id(organization.id)
        statement = (
            update(table)
            .where(table.c.id == id)
            .values(plan=organization.plan, overrides=write_overrides(organization))
        )

        def work(connection: Connection) -> None:
            self._lock(connection, id)
            connection.execute(statement)
            self._epochs.advance(connection, id)

        await self._lanes.here().write(work)

    async def register(
        self, account: AccountDraft, key: KeyDraft, now: int | None = None
    ) -> tuple[Account, ApiKey]:
        def work(connection: Connection) -> tuple[Account, ApiKey]:
            self._lock(connection, write_id(account.organization))
            instant = self._flavour.now(connection) if now is None else now
            return self._accounts.register(connection, account, key, instant)

        lane = self._lanes.here()
        try:
            return await lane.write(work)
        except IntegrityError:
            if await lane.read(lambda c: self._accounts.taken(c, account, key)):
                raise HandleTaken from None
            raise

    async def account(self, organization: str) -> Account | None:
        return await self._lanes.here().read(lambda c: self._accounts.get(c, organization))

    async def account_by_token(self, handle: str) -> Account | None:
        if not _NAME.fullmatch(handle):
            return None
        return await self._lanes.here().read(lambda c: self._accounts.by_handle(c, handle))

    async def accounts_by_email(self, billing_email: str) -> tuple[Account, ...]:
        return await self._lanes.here().read(lambda c: self._accounts.by_email(c, billing_email))

    async def accounts_by_user(self, user: str) -> tuple[Account, ...]:
        return await self._lanes.here().read(lambda c: self._accounts.by_user(c, user))

    async def claim_if_unclaimed(
        self, organization: str, user: str, *, revoke: bool, now: int | None = None
    ) -> Account | None:
        def work(connection: Connection) -> Account | None:
            if not self._accounts.lock(connection, organization):
                return None
            instant = self._flavour.now(connection) if now is None else now
            account = self._accounts.claim(connection, organization, user, revoke, instant)
            if revoke:
                self._epochs.advance(connection, write_id(organization))
            return account

        return await self._lanes.here().write(work)

    async def sign_out(self, organization: str) -> None:
        await self._lanes.here().write(lambda c: self._accounts.sign_out(c, organization))

    async def rehash_token_if(self, handle: str, old: Digest, new: Digest) -> bool:
        return await self._lanes.here().write(lambda c: self._accounts.rehash(c, handle, old, new))

    async def epoch(self) -> int | None:
        if self._resolver is not None:
            return None  # Plans change where nobody tells us.
        return await self._lanes.here().read(self._epochs.read)

    async def changes(self, since: int | None) -> Changes:
        return await self._lanes.here().read(lambda c: self._epochs.changes(c, since))

    def hurry(self) -> None:
        self._transactions.hurried = True

    def start_over(self) -> None:
        hanging, self._lanes = self._lanes, lanes_of(self._transactions, self._engines)
        hanging.here().give_up()

    async def close(self) -> None:
        await self._lanes.close()

    async def _sight(self, token: Token) -> _Sight | None:
        """Look for a key without any lock: whoever has no key takes none of those that have one."""
        key = await self.find(token.handle)
        if key is None:
            token.matches_nobody()
            return None
        if not token.matches(key.scheme, key.digest):
            return None
        if len(self._sights) >= _SIGHTS_AT_MOST:
            self._sights.clear()
        sight = self._sights[token.handle] = _Sight(
            key.organization, Digest(key.scheme, key.digest)
        )
        return sight

    async def _resolved(self, organization: str) -> Organization | None:
        if self._resolver is None:
            return None
        placed = self._resolver(organization)
        return await placed if isawaitable(placed) else placed

    async def _key(self, which: Any) -> ApiKey | None:
        statement = self._with_usage.where(which)

        def work(connection: Connection) -> ApiKey | None:
            row = connection.execute(statement).one_or_none()
            return None if row is None else _key(row)

        return await self._lanes.here().read(work)

    def _owned(self, organization: str, id: str) -> Any:
        return and_(self._keys.c.id == id, self._keys.c.organization == write_id(organization))

    def _live(self, now: int) -> Any:
        expires = self._keys.c.expires_at
        return and_(self._keys.c.revoked_at.is_(None), or_(expires.is_(None), expires > now))

    def _lock(self, connection: Connection, id: bytes) -> Any:
        """Lock an organization's row, and make it if it is not there."""
        table = self._organizations
        mine = select(table.c.slots, table.c.idle_day).where(table.c.id == id).with_for_update()
        while (row := connection.execute(mine).one_or_none()) is None:
            connection.execute(self._flavour.insert_missing(table), {"id": id})
        return row

    async def _lease(
        self,
        organization: str,
        now: int | None,
        change: Callable[[Leases, int], tuple[T, Leases]],
    ) -> T:
        table = self._organizations
        id = write_id(organization)

        def work(connection: Connection) -> T:
            slots, day = self._lock(connection, id)
            before = read_leases(slots)
            value, after = change(before, self._flavour.now(connection) if now is None else now)
            if after != before:
                latest = max((idle_day(lease.deadline) for lease in after), default=0)
                connection.execute(
                    update(table)
                    .where(table.c.id == id)
                    .values(slots=write_leases(after), idle_day=max(day or 0, latest))
                )
            return value

        return await self._lanes.here().write(work)


def _key(row: Any) -> ApiKey:
    return read_key(row, read_uses(row[-1]))
