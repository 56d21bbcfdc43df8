"""The store contract on compare-and-set records."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from random import randrange
from typing import Final, TypeVar

from ...core import leases as slots
from ...core.accounts import Account, AccountDraft, last_use
from ...core.api_keys import ApiKey, KeyDraft, KeyState, Position
from ...core.changes import ChangeDraft, plan_fields
from ...core.digests import Digest
from ...core.holds import HoldAction, HoldAnswer
from ...core.key_format import Token
from ...core.leases import Lease, Leases, SlotReading
from ...core.limit_windows import LimitWindows
from ...core.limits import Limit
from ...core.plans import Organization, PlanBook
from ...core.quota_leases import LeaseRequest, QuotaLeases, Settlement, live
from ...core.row_seals import tally
from ...core.sliding_window import Reading, Window
from ...core.usage_history import UsageHistory
from ...errors import HandleTaken, KeyLimitReached
from ...sync import together
from ..answers import (
    UNKNOWN,
    UNSEALED,
    Admission,
    Census,
    FoundOrganizations,
    HistoryOwner,
    LogPage,
    Page,
    Removal,
    Reseal,
    Rows,
    StoreError,
    Usage,
    UsageBatch,
)
from ..base import IoMode, Store
from ..usage_batches import count_parts
from .change_log import NO_LOG, TAIL
from .log_pages import LogPages
from .record import Record
from .storage import Records, Shelf

T = TypeVar("T")

_BUCKETS: Final = 64


class RecordStore(Store):
    """A store on :class:`Records`.

    Every admission writes its organization's record with all keys, which suits organizations with
    dozens of keys; a thousand take 300 KB. Only the latest 1,000 ended keys are kept, even if the
    retention is longer.
    """

    keeps_history = True
    grants_leases = True

    def __init__(self, records: Records) -> None:
        self.records: Final = records
        self.io: IoMode = records.io
        self._shelf = Shelf(records)
        self._log_pages = LogPages(self._shelf)

    async def now(self) -> int:
        return await self._shelf.now()

    async def admit(
        self,
        token: Token,
        cost: int,
        plans: PlanBook,
        now: int | None = None,
        address: str | None = None,
        limits: tuple[Limit, ...] = (),
    ) -> Admission:
        organization = await self._shelf.owner("key", token.handle)
        if organization is None:
            token.compare_with_dummy()
            return UNKNOWN

        def work(record: Record, at: int) -> Admission:
            return record.admit(token, cost, plans, at, address, limits)

        return await self._shelf.change(organization, work, now)

    async def admit_leased(
        self,
        token: Token,
        cost: int,
        plans: PlanBook,
        lease: LeaseRequest,
        now: int | None = None,
        address: str | None = None,
    ) -> Admission:
        organization = await self._shelf.owner("key", token.handle)
        if organization is None:
            token.compare_with_dummy()
            return UNKNOWN

        def work(record: Record, at: int) -> Admission:
            return record.admit(token, cost, plans, at, address, (), lease)

        return await self._shelf.change(organization, work, now)

    async def settle_leases(
        self,
        organization: str,
        windows: tuple[Window, ...],
        settled: Sequence[Settlement],
        now: int | None = None,
    ) -> None:
        def work(record: Record, at: int) -> None:
            record.settle_leases(windows, settled, at)

        await self._shelf.change(organization, work, now)

    async def quota_leases(self, organization: str, now: int | None = None) -> QuotaLeases:
        at = await self.now() if now is None else now
        return live((await self._shelf.read(organization)).quota_leases, at)

    async def insert(
        self,
        draft: KeyDraft,
        cap: int | None,
        now: int | None = None,
        *,
        change: ChangeDraft | None = None,
    ) -> ApiKey:
        def work(record: Record, at: int) -> ApiKey:
            key = _inserted(record, draft, cap, at)
            record.log = record.log.added(change, at)
            return key

        return await self._inserting(draft, work, now, change)

    async def find(self, handle: str) -> ApiKey | None:
        organization = await self._shelf.owner("key", handle)
        if organization is None:
            return None
        return (await self._shelf.read(organization)).keys.get(handle)

    async def get(self, organization: str, id: str) -> ApiKey | None:
        return (await self._shelf.read(organization)).key(id)

    async def list(self, organization: str, limit: int, after: Position | None = None) -> Page:
        def place(key: ApiKey) -> tuple[int, str]:
            return -key.created_at, key.id

        keys = sorted((await self._shelf.read(organization)).keys.values(), key=place)
        if after is not None:
            keys = [key for key in keys if place(key) > (-after.instant, after.id)]
        return keys[:limit]

    async def list_live(
        self,
        organization: str,
        limit: int,
        after: Position | None = None,
        now: int | None = None,
    ) -> Page:
        at = await self.now() if now is None else now
        keys = (await self._shelf.read(organization)).keys.values()
        live = [key for key in keys if key.state(at) is KeyState.ACTIVE]
        if after is not None:
            live = [key for key in live if (key.ends_at, key.id) < after]
        live.sort(key=lambda key: (key.ends_at, key.id), reverse=True)
        return live[:limit]

    async def revoke_if_live(
        self,
        organization: str,
        id: str,
        now: int | None = None,
        *,
        change: ChangeDraft | None = None,
    ) -> ApiKey | None:
        def work(record: Record, at: int) -> ApiKey | None:
            key = record.key(id)
            if key is None or key.revoked_at is not None:
                return key
            record.log = record.log.added(change, at)
            return record.revoke(key, at)

        return await self._changing(organization, work, now, change)

    async def update_if(
        self,
        old: ApiKey,
        new: ApiKey,
        now: int | None = None,
        *,
        change: ChangeDraft | None = None,
    ) -> bool:
        def work(record: Record, at: int) -> bool:
            is_live = record.is_live(old, at)
            if is_live:
                record.replace(new)
                record.log = record.log.added(change, at)
            return is_live

        return await self._changing(old.organization, work, now, change)

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
        def work(record: Record, at: int) -> ApiKey | None:
            if not record.is_live(old, at):
                return None
            record.replace(new)
            key = _inserted(record, successor, cap, at)
            record.log = record.log.added(change, at)
            return key

        return await self._inserting(successor, work, now, change)

    async def rehash_if(self, handle: str, old: Digest, new: Digest) -> bool:
        organization = await self._shelf.owner("key", handle)
        if organization is None:
            return False

        def work(record: Record, _: int) -> bool:
            key = record.keys.get(handle)
            if key is None or key.kept != old:
                return False
            record.keys[handle] = key._replace(scheme=new.scheme, digest=new.value, seal=new.seal)
            return True

        return await self._shelf.change(organization, work, 0)

    async def add_usage(self, usage: Mapping[str, Usage], batch: UsageBatch | None = None) -> None:
        owners = await together(self._shelf.owner("key", handle) for handle in usage)
        parts: dict[str, dict[str, Usage]] = {}
        for (handle, used), organization in zip(usage.items(), owners, strict=True):
            if organization is not None and not (batch and organization in batch.answered):
                parts.setdefault(organization, {})[handle] = used
        await count_parts(self._use(*part, batch) for part in parts.items())

    async def _use(
        self, organization: str, usage: Mapping[str, Usage], batch: UsageBatch | None
    ) -> None:
        """Add to the usage of keys of one organization."""

        def work(record: Record, at: int) -> None:
            record.use_all(usage, batch, at)

        await self._shelf.change(organization, work, None)
        if batch is not None:
            batch.answered.add(organization)

    async def add_history(
        self,
        additions: Mapping[HistoryOwner, UsageHistory],
        batch: UsageBatch | None = None,
    ) -> None:
        await count_parts(self._shelf.add(*addition, batch) for addition in additions.items())

    async def history(self, owner: HistoryOwner) -> UsageHistory:
        return await self._shelf.history(owner)

    async def remove_ended(
        self, age: int, now: int | None = None, cursor: str | None = None
    ) -> Removal:
        until = (await self.now() if now is None else now) - age
        names, cursor = await self._shelf.some(cursor)
        removed = 0
        for name in names:
            # The index by handle stays, so the handles stay taken.
            keys = await self._shelf.change_named(
                name, lambda record, _: record.remove_ended(until), now
            )
            removed += len(keys)
            await self._remove_histories(keys)
            await self._log_pages.remove(name, until)
        return Removal(removed, cursor)

    async def census(self, now: int | None = None, cursor: str | None = None) -> Census:
        at = await self.now() if now is None else now
        names, cursor = await self._shelf.some(cursor)
        rows = [row for name in names for row in (await self._shelf.read_named(name)).counted(at)]
        return Census(tally(rows), cursor)

    async def hit(
        self,
        organization: str,
        windows: tuple[Window, ...],
        cost: int,
        now: int | None = None,
        limits: LimitWindows | None = None,
    ) -> Reading:
        def work(record: Record, at: int) -> Reading:
            named = limits and limits.at(at, organization)
            return record.hit(windows, named, at, cost)

        return await self._shelf.change(organization, work, now)

    async def peek(
        self,
        organization: str,
        windows: tuple[Window, ...],
        now: int | None = None,
        limits: LimitWindows | None = None,
    ) -> Reading:
        record = await self._shelf.read(organization)
        now = await self.now() if now is None else now
        return record.peek(windows, limits and limits.at(now, organization), now)

    async def reset(
        self,
        organization: str,
        now: int | None = None,
        *,
        change: ChangeDraft | None = None,
    ) -> None:
        def work(record: Record, at: int) -> None:
            record.windows, record.limits, record.budgets = (), {}, {}
            if change is not None:
                record.log = record.log.added(change, at)

        await self._changing(organization, work, now, change)

    async def hold(
        self, organization: str, action: HoldAction, now: int | None = None
    ) -> HoldAnswer:
        return await self._shelf.change(
            organization, lambda record, at: record.hold(action, at), now
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
            organization, lambda held, at: slots.acquire(held, job, owner, limit, at, span), now
        )

    async def renew(
        self, organization: str, job: str, owner: str, span: int, now: int | None = None
    ) -> Lease | None:
        return await self._lease(
            organization, lambda held, at: slots.renew(held, job, owner, at, span), now
        )

    async def release(
        self, organization: str, job: str, owner: str, now: int | None = None
    ) -> bool:
        return await self._lease(
            organization, lambda held, at: slots.release(held, job, owner, at), now
        )

    async def held(self, organization: str, now: int | None = None) -> Leases:
        leases = (await self._shelf.read(organization)).leases
        return slots.live(leases, await self.now() if now is None else now)

    async def organization(self, id: str) -> Organization | None:
        return (await self._shelf.read(id)).placed

    async def put_organization(
        self,
        organization: Organization,
        now: int | None = None,
        *,
        change: ChangeDraft | None = None,
    ) -> None:
        def work(record: Record, at: int) -> None:
            if change is not None and record.placed != organization:
                draft = change._replace(before=plan_fields(record.placed))
                record.log = record.log.added(draft, at)
            record.placed = organization

        await self._changing(organization.id, work, now, change)

    async def register(
        self,
        account: AccountDraft,
        key: KeyDraft,
        now: int | None = None,
        *,
        change: ChangeDraft | None = None,
    ) -> tuple[Account, ApiKey]:
        def work(record: Record, at: int) -> tuple[Account, ApiKey]:
            if record.account is not None:
                raise HandleTaken
            record.account = account.created(at)
            record.log = record.log.added(change, at)
            return record.account, record.insert(key, at)

        organization = account.organization
        now = await self.now() if now is None else now
        entry = Position(account.created(now).created_at, organization)
        await self._shelf.claim("key", key.handle, organization)
        try:
            await self._shelf.claim("token", account.handle, organization)
        except HandleTaken:
            await self._shelf.waive("key", key.handle)
            raise
        if (await self._shelf.read(organization)).account is None:
            await self._shelf.enter("email", account.billing_email, entry)
            await self._shelf.enter("review", _bucket(organization), entry)
        try:
            return await self._changing(organization, work, now, change)
        except HandleTaken:
            await self._shelf.waive("token", account.handle)
            await self._shelf.waive("key", key.handle)
            raise

    async def account(self, organization: str) -> Account | None:
        return (await self._shelf.read(organization)).account

    async def account_by_token(self, handle: str) -> Account | None:
        organization = await self._shelf.owner("token", handle)
        account = None if organization is None else await self.account(organization)
        return account if account is not None and account.handle == handle else None

    async def unclaimed_by_email(
        self, billing_email: str, limit: int, after: Position | None = None
    ) -> tuple[Account, ...]:
        entries = await self._shelf.entered("email", billing_email)
        return await self._page(
            [entry for entry in entries if after is None or entry > after],
            lambda one: one.billing_email == billing_email and one.claimed_by is None,
            limit,
        )

    async def accounts_by_user(
        self, user: str, limit: int, after: Position | None = None
    ) -> tuple[Account, ...]:
        entries = reversed(await self._shelf.entered("user", user))
        return await self._page(
            [entry for entry in entries if after is None or entry < after],
            lambda one: one.claimed_by == user,
            limit,
        )

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
        def work(record: Record, at: int) -> Account | None:
            account = record.account
            if account is None:
                return None
            is_changed = False
            if account.claimed_by is None and account.seal == seals[0]:
                account = account._replace(claimed_by=user, claimed_at=at, seal=seals[1])
            if account.claimed_by == user:
                if not keep_token:
                    account = account._replace(token_revoked_at=account.token_revoked_at or at)
                for key in [*record.keys.values()] if revoke else ():
                    if key.state(at) is KeyState.ACTIVE:
                        record.revoke(key, at)
                        is_changed = True
            if is_changed or account != record.account:
                record.log = record.log.added(change, at)
            record.account = account
            return account

        before = await self.account(organization)
        if before is None:
            return None
        now = await self.now() if now is None else now
        if before.claimed_by is None:
            await self._shelf.enter("user", user, Position(now, organization))
        account = await self._changing(organization, work, now, change)
        if account is None or account.claimed_by != user:
            await self._shelf.leave("user", user, organization)
        elif account != before:
            await self._shelf.enter("user", user, Position(account.claimed_at or now, organization))
            await self._shelf.leave("email", account.billing_email, organization)
            await self._shelf.leave("review", _bucket(organization), organization)
        return account

    async def remove_unclaimed(
        self,
        idle: int,
        limit: int,
        now: int | None = None,
        *,
        change: ChangeDraft | None = None,
    ) -> tuple[str, ...]:
        now = await self.now() if now is None else now
        edge = now - idle
        removed: list[str] = []
        looked_at = 0
        first = randrange(_BUCKETS)  # noqa: S311 - no secret
        for number in range(_BUCKETS):
            bucket = str((first + number) % _BUCKETS)
            for at, organization in await self._shelf.entered("review", bucket):
                if at > edge or looked_at == limit:
                    break
                looked_at += 1
                if await self._remove_unclaimed(organization, edge, now, change):
                    removed.append(organization)
        return tuple(sorted(removed))

    async def _remove_unclaimed(
        self, organization: str, edge: int, now: int, change: ChangeDraft | None
    ) -> bool:
        keys: Iterable[ApiKey] = ()

        def work(record: Record, _: int) -> tuple[Account | None, int | None]:
            nonlocal keys
            account = record.account
            if account is None or account.claimed_by is not None or record.placed is not None:
                return None, None
            latest = last_use(account, record.keys.values())
            if latest > edge:
                return None, latest
            keys = [*record.keys.values()]
            record.account = None
            record.keys.clear()
            record.log = record.log.added(change, now)
            return account, None

        account, latest = await self._changing(organization, work, 0, change)
        bucket = _bucket(organization)
        if latest is not None:
            await self._shelf.enter("review", bucket, Position(latest, organization))
            return False
        # The handles of its keys stay taken; the handle of its token becomes free.
        if account is not None:
            await self._shelf.leave("email", account.billing_email, organization)
            await self._shelf.waive("token", account.handle)
            await self._remove_histories(keys)
            await self._shelf.remove_history(HistoryOwner(organization, None))
        await self._shelf.leave("review", bucket, organization)
        return account is not None

    async def _remove_histories(self, keys: Iterable[ApiKey]) -> None:
        """Remove the usage histories of removed keys.

        If the process dies before, they are dropped once they show nothing any more.
        """
        for key in keys:
            await self._shelf.remove_history(HistoryOwner(key.organization, key.handle))

    async def sign_in(self, organization: str, now: int | None = None) -> Account | None:
        def work(record: Record, at: int) -> Account | None:
            account = record.account
            if account is None or account.token_revoked_at is not None:
                return None
            later = max(at, account.signed_in_at or at)
            record.account = account._replace(signed_in_at=later)
            return record.account

        return await self._shelf.change(organization, work, now)

    async def sign_out(self, organization: str) -> None:
        def work(record: Record, _: int) -> None:
            if record.account is not None:
                ended = record.account.sign_outs + 1
                record.account = record.account._replace(sign_outs=ended)

        await self._shelf.change(organization, work, 0)

    async def rehash_token_if(self, handle: str, old: Digest, new: Digest) -> bool:
        account = await self.account_by_token(handle)
        if account is None:
            return False

        def work(record: Record, _: int) -> bool:
            mine = record.account
            if mine is None or mine.handle != handle or mine.kept != old:
                return False
            record.account = mine._replace(scheme=new.scheme, digest=new.value, seal=new.seal)
            return True

        return await self._shelf.change(account.organization, work, 0)

    async def change_log(self, organization: str, limit: int, before: int | None = None) -> LogPage:
        return await self._log_pages.newest(organization, limit, before)

    async def scan(self, cursor: str | None, limit: int) -> Rows:
        keys: list[ApiKey] = []
        accounts: list[Account] = []
        while True:
            names, cursor = await self._shelf.some(cursor)
            for name in names:
                record = await self._shelf.read_named(name)
                keys += record.keys.values()
                accounts += [] if record.account is None else [record.account]
            if cursor is None or len(keys) + len(accounts) >= limit:
                return Rows(keys, accounts, cursor)

    async def organizations(
        self, limit: int, now: int | None = None, cursor: str | None = None
    ) -> FoundOrganizations:
        at = await self.now() if now is None else now
        names, cursor = await self._shelf.some(cursor)
        found = [(await self._shelf.read_named(name)).summary(at) for name in names]
        return FoundOrganizations([one for one in found if one is not None], cursor)

    async def close(self) -> None:
        await self.records.close()

    async def _page(
        self, entries: Iterable[Position], which: Callable[[Account], bool], limit: int
    ) -> tuple[Account, ...]:
        """Return the first accounts of index entries that fulfil a condition."""
        found: list[Account] = []
        for entry in entries:
            if len(found) == limit:
                break
            account = await self.account(entry.id)
            if account is not None and which(account):
                found.append(account)
        return tuple(found)

    async def _changing(
        self,
        organization: str,
        work: Callable[[Record, int], T],
        now: int | None,
        change: ChangeDraft | None,
    ) -> T:
        """Change a record and its log; move records of the log to pages once there are some."""
        log = NO_LOG

        def step(record: Record, at: int) -> T:
            nonlocal log
            answer = work(record, at)
            log = record.log
            return answer

        answer = await self._shelf.change(organization, step, now)
        if change is not None and len(log.tail) >= TAIL:
            with suppress(StoreError, OSError):  # The change is made; the next one tries again.
                await self._log_pages.archive(organization, log)
        return answer

    async def _inserting(
        self,
        draft: KeyDraft,
        work: Callable[[Record, int], T],
        now: int | None,
        change: ChangeDraft | None,
    ) -> T:
        """Change a record by a new key. Its handle is claimed first, and released if the change
        does not insert the key."""
        await self._shelf.claim("key", draft.handle, draft.organization)
        try:
            answer = await self._changing(draft.organization, work, now, change)
        except KeyLimitReached:
            await self._shelf.waive("key", draft.handle)
            raise
        if answer is None:
            await self._shelf.waive("key", draft.handle)
        return answer

    async def _lease(
        self,
        organization: str,
        change: Callable[[Leases, int], tuple[T, Leases]],
        now: int | None,
    ) -> T:
        def work(record: Record, at: int) -> T:
            value, record.leases = change(record.leases, at)
            return value

        return await self._shelf.change(organization, work, now)


def _inserted(record: Record, draft: KeyDraft, cap: int | None, now: int) -> ApiKey:
    """Insert a key into a record, if the cap allows it."""
    live = sum(key.state(now) is KeyState.ACTIVE for key in record.keys.values())
    if cap is not None and live >= cap:
        raise KeyLimitReached(cap)
    return record.insert(draft, now)


def _bucket(organization: str) -> str:
    """Return the review index of an organization; a single index would change too often."""
    digest = sha256(organization.encode("utf-8", "surrogatepass")).digest()
    return str(digest[0] % _BUCKETS)
