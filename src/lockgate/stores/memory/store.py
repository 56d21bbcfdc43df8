"""A store in process memory, for tests, development and services of one process."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import nsmallest
from time import time_ns
from typing import Final, cast

from ...clock import Clock, wall_clock
from ...core.accounts import Account, AccountDraft, last_use
from ...core.api_keys import ApiKey, KeyDraft, KeyState, Position
from ...core.changes import ChangeDraft, plan_fields
from ...core.digests import Digest
from ...core.holds import HoldAction, HoldAnswer
from ...core.key_format import Token
from ...core.leases import Lease, Leases, SlotReading, acquire, live, release, renew
from ...core.limit_windows import LimitWindows
from ...core.limits import Limit, OwnLimits, bound
from ...core.plans import Organization, PlanBook
from ...core.quota_leases import LeaseRequest, QuotaLeases, Settlement
from ...core.row_seals import counted_account, counted_key, tally
from ...core.sliding_window import Reading, Window
from ...core.timestamps import DAY
from ...core.usage_history import UsageHistory
from ...core.usage_marks import Marks, marked
from ...errors import HandleTaken, KeyLimitReached
from ..answers import (
    UNKNOWN,
    UNSEALED,
    Admission,
    Census,
    FoundOrganizations,
    HistoryOwner,
    LogPage,
    OrganizationSummary,
    Page,
    Removal,
    Reseal,
    Rows,
    Usage,
    UsageBatch,
    Verdict,
    limits_of,
    reading_state,
    refusal_of,
)
from ..base import IoMode, Store
from ..runtime.process_hooks import own_lock
from .accounts import LocalAccounts
from .changes import LocalChanges
from .holds import LocalBudgets
from .keys import LocalKeys
from .usage import LocalHistories
from .windows import LocalWindows

_ADMITTED: Final = Verdict.ADMITTED
_REMOVED_AT_ONCE: Final = 100
_COUNTED_AT_ONCE: Final = 1000
"""Keys per step of a removal, and rows per step of a census: about 3 ms each."""
_SWEPT_AT_ONCE: Final = 2
"""More than one, so that the sweep is faster than new slots."""

# A NamedTuple's own constructor takes three times as long.
_api_key = cast(Callable[[type[ApiKey], Iterable[object]], ApiKey], tuple.__new__)  # pyright: ignore[reportUnknownMemberType] - typeshed's own Self
_admission = cast(Callable[[type[Admission], Iterable[object]], Admission], tuple.__new__)  # pyright: ignore[reportUnknownMemberType] - typeshed's own Self


class MemoryStore(Store):
    """A store in process memory, safe for threads and any number of event loops.

    One lock guards all data. The verbs of requests hold it for some microseconds, never across an
    ``await``; under the GIL finer locks would gain no concurrency. So an admission that begins
    after :meth:`revoke_if_live` has returned reads the revoked row (K4).

    Keys are in a flat table of plain tuples, which rarely change, and their usage in two tables of
    numbers. The garbage collector tracks none of them, so a million keys cause no pauses.

    Args:
        clock: returns the present in microseconds; default: the machine's clock.
    """

    io: IoMode = "none"
    keeps_history = True
    grants_leases = True

    def __init__(self, clock: Clock = wall_clock) -> None:
        self.local_version = object()
        self._clock = clock
        self._lock = own_lock()
        self._keys = keys = LocalKeys()
        self._rows = keys.rows
        self._requests = keys.requests
        self._last_used = keys.last_used
        self._placed: dict[str, tuple[str, tuple[tuple[str, int | None], ...]]] = {}
        self._windows = windows = LocalWindows()
        self._coalesced = windows.coalesced
        self._leases: dict[str, Leases] = {}
        self._budgets = LocalBudgets()
        self._accounts = LocalAccounts()
        self._histories = LocalHistories()
        self._marks: Marks = ()
        self._removed_handles: set[str] = set()
        self._changes = LocalChanges()

    async def now(self) -> int:
        return self._clock()

    async def admit(  # noqa: PLR0912 - each call more costs as much as ten lines
        self,
        token: Token,
        cost: int,
        plans: PlanBook,
        now: int | None = None,
        address: str | None = None,
        limits: tuple[Limit, ...] = (),
    ) -> Admission:
        handle = token.handle
        with self._lock:
            row = self._rows.get(handle)
            if row is None:
                token.compare_with_dummy()
                return UNKNOWN
            id, _, organization, _, _, _, scheme, digest, seal, _, expires, revoked, details = row
            # Only the verbs below change rows, so digest and seal identify all sealed fields.
            kept = scheme, digest, seal
            if kept != token.matched and not token.accepts(self._keys.key(handle)):
                return UNKNOWN
            if now is None:
                now = time_ns() // 1000 if self._clock is wall_clock else self._clock()
            if revoked is not None:
                return Admission(Verdict.REVOKED, self._keys.key(handle))
            if expires is not None and expires <= now:
                return Admission(Verdict.EXPIRED, self._keys.key(handle))
            own: OwnLimits = ()
            if details is not None:
                if details.addresses and not details.allows(address):
                    return Admission(Verdict.ELSEWHERE, self._keys.key(handle))
                own = details.limits
            placed = self._placed.get(organization)
            if placed is None:
                plan = plans.default
            else:
                name, overrides = placed
                plan = plans.plan(name, overrides, now)
            windows = plan.windows
            reading: Reading | None
            is_limited = limits or plan.limits or own
            named = bound(limits + plan.limits, id, own) if is_limited else None
            if named is not None:
                if named.quotas:
                    named = named.at(now, organization)
                reading = self._windows.hit_limited(organization, windows, named, now, cost)
            else:
                coalesced = self._coalesced.get(organization)
                reading = None if coalesced is None else coalesced.extend(windows, now, cost)
                if reading is None:
                    reading = self._windows.hit(organization, windows, now, cost)
            if not reading.allowed:
                return Admission(Verdict.LIMITED, self._keys.key(handle), plan, reading, named)
            self._requests[handle] = requests = self._requests.get(handle, 0) + 1
            last_used_at = self._last_used.get(handle, -1)
            if now > last_used_at:
                self._last_used[handle] = last_used_at = now
        key = _api_key(ApiKey, row + (requests, last_used_at))  # noqa: RUF005 - it goes by a list
        return _admission(Admission, (_ADMITTED, key, plan, reading, named, None))

    async def admit_leased(
        self,
        token: Token,
        cost: int,
        plans: PlanBook,
        lease: LeaseRequest,
        now: int | None = None,
        address: str | None = None,
    ) -> Admission:
        handle = token.handle
        with self._lock:
            now = self._clock() if now is None else now
            key = self._keys.key(handle) if handle in self._rows else None
            refusal = refusal_of(token, key, now, address)
            if refusal is not None or key is None:
                return refusal or UNKNOWN
            owner, windows = key.organization, self._windows
            placed = self._placed.get(owner)
            plan = plans.plan_of(None if placed is None else Organization(owner, *placed), now)
            named, granted = limits_of((), plan, key, now), None
            if named is None:
                reading, granted = windows.hit_leased(owner, plan.windows, now, cost, lease)
            else:
                windows.settle_leases(owner, plan.windows, now, lease.settled)
                reading = windows.hit_limited(owner, plan.windows, named, now, cost)
            if not reading.allowed:
                return Admission(Verdict.LIMITED, key, plan, reading, named)
            self._requests[handle] = self._requests.get(handle, 0) + 1
            self._last_used[handle] = max(self._last_used.get(handle, now), now)
            return Admission(_ADMITTED, self._keys.key(handle), plan, reading, named, granted)

    async def settle_leases(
        self,
        organization: str,
        windows: tuple[Window, ...],
        settled: Sequence[Settlement],
        now: int | None = None,
    ) -> None:
        with self._lock:
            now = self._clock() if now is None else now
            self._windows.settle_leases(organization, windows, now, settled)

    async def quota_leases(self, organization: str, now: int | None = None) -> QuotaLeases:
        with self._lock:
            now = self._clock() if now is None else now
            return self._windows.quota_leases(organization, now)

    async def insert(
        self,
        draft: KeyDraft,
        cap: int | None,
        now: int | None = None,
        *,
        change: ChangeDraft | None = None,
    ) -> ApiKey:
        with self._lock:
            now = self._clock() if now is None else now
            if self._keys.is_taken(draft.handle):
                raise HandleTaken
            if cap is not None and self._keys.count_live(draft.organization, now) >= cap:
                raise KeyLimitReached(cap)
            self._changes.add(draft.organization, change, now)
            return self._keys.insert(draft.created(now))

    async def find(self, handle: str) -> ApiKey | None:
        with self._lock:
            return self._keys.key(handle) if handle in self._rows else None

    async def get(self, organization: str, id: str) -> ApiKey | None:
        with self._lock:
            return self._keys.owned(organization, id)

    async def list(self, organization: str, limit: int, after: Position | None = None) -> Page:
        with self._lock:
            return self._keys.newest(organization, limit, after)

    async def list_live(
        self,
        organization: str,
        limit: int,
        after: Position | None = None,
        now: int | None = None,
    ) -> Page:
        with self._lock:
            now = self._clock() if now is None else now
            return self._keys.live(organization, limit, after, now)

    async def revoke_if_live(
        self,
        organization: str,
        id: str,
        now: int | None = None,
        *,
        change: ChangeDraft | None = None,
    ) -> ApiKey | None:
        with self._lock:
            key = self._keys.owned(organization, id)
            if key is None or key.revoked_at is not None:
                return key
            now = self._clock() if now is None else now
            key = self._keys.revoke(key, now)
            self._changes.add(organization, change, now)
            self.local_version = object()
            return key

    async def update_if(
        self,
        old: ApiKey,
        new: ApiKey,
        now: int | None = None,
        *,
        change: ChangeDraft | None = None,
    ) -> bool:
        with self._lock:
            now = self._clock() if now is None else now
            if not self._keys.is_live(old, now):
                return False
            self._keys.replace(old, new)
            self._changes.add(old.organization, change, now)
            self.local_version = object()
            return True

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
        with self._lock:
            now = self._clock() if now is None else now
            if not self._keys.is_live(old, now):
                return None
            if self._keys.is_taken(successor.handle):
                raise HandleTaken
            others = self._keys.count_live(old.organization, now) - 1
            if cap is not None and others + (new.state(now) is KeyState.ACTIVE) >= cap:
                raise KeyLimitReached(cap)
            self._keys.replace(old, new)
            self._changes.add(old.organization, change, now)
            self.local_version = object()
            return self._keys.insert(successor.created(now))

    async def rehash_if(self, handle: str, old: Digest, new: Digest) -> bool:
        with self._lock:
            row = self._rows.get(handle)
            if row is None or row[6:9] != old:
                return False
            self._rows[handle] = (*row[:6], new.scheme, new.value, new.seal, *row[9:])
            self.local_version = object()
            return True

    async def add_usage(self, usage: Mapping[str, Usage], batch: UsageBatch | None = None) -> None:
        with self._lock:
            if not self._is_new(batch):
                return
            for handle, (requests, last_used) in usage.items():
                if handle in self._rows:
                    self._requests[handle] = self._requests.get(handle, 0) + requests
                    self._last_used[handle] = max(self._last_used.get(handle, last_used), last_used)

    async def add_history(
        self,
        additions: Mapping[HistoryOwner, UsageHistory],
        batch: UsageBatch | None = None,
    ) -> None:
        with self._lock:
            if not self._is_new(batch):
                return
            for owner, addition in additions.items():
                self._histories.add(owner, addition)

    def _is_new(self, batch: UsageBatch | None) -> bool:
        """Mark a batch as counted; return whether it is to be counted."""
        if batch is None:
            return True
        marks = marked(self._marks, batch.writer, batch.number, self._clock())
        self._marks = self._marks if marks is None else marks
        return marks is not None

    async def history(self, owner: HistoryOwner) -> UsageHistory:
        with self._lock:
            value = self._histories.read(owner)
        with reading_state(owner.organization, "its usage history"):
            return UsageHistory.decode(value)

    async def remove_ended(
        self, age: int, now: int | None = None, cursor: str | None = None
    ) -> Removal:
        with self._lock:
            now = self._clock() if now is None else now
            removed = self._keys.remove_ended(now - age, _REMOVED_AT_ONCE)
            if removed:
                self.local_version = object()
            for key in removed:
                self._histories.remove(HistoryOwner(key.organization, key.handle))
            more = self._changes.remove(now - age, _REMOVED_AT_ONCE)
            number = len(removed)
            return Removal(number, "more" if more or number == _REMOVED_AT_ONCE else None)

    async def census(self, now: int | None = None, cursor: str | None = None) -> Census:
        with self._lock:
            now = self._clock() if now is None else now
            step = self._some(cursor, _COUNTED_AT_ONCE)
        keys = [counted_key(key) for key in step.keys if key.state(now) is KeyState.ACTIVE]
        return Census(tally([*keys, *map(counted_account, step.accounts)]), step.cursor)

    async def hit(
        self,
        organization: str,
        windows: tuple[Window, ...],
        cost: int,
        now: int | None = None,
        limits: LimitWindows | None = None,
    ) -> Reading:
        with self._lock:
            now = self._clock() if now is None else now
            if limits is not None:
                return self._windows.hit_limited(organization, windows, limits, now, cost)
            return self._windows.hit(organization, windows, now, cost)

    async def peek(
        self,
        organization: str,
        windows: tuple[Window, ...],
        now: int | None = None,
        limits: LimitWindows | None = None,
    ) -> Reading:
        with self._lock:
            now = self._clock() if now is None else now
            return self._windows.peek(organization, windows, now, limits)

    async def reset(
        self,
        organization: str,
        now: int | None = None,
        *,
        change: ChangeDraft | None = None,
    ) -> None:
        with self._lock:
            self._windows.take(organization)
            self._windows.limits.remove(organization)
            self._budgets.remove(organization)
            self.local_version = object()
            if change is not None:
                self._changes.add(organization, change, self._clock() if now is None else now)

    async def acquire(
        self,
        organization: str,
        job: str,
        owner: str,
        limit: int | None,
        span: int,
        now: int | None = None,
    ) -> SlotReading:
        with self._lock:
            now = self._clock() if now is None else now
            leases = self._leases.get(organization, ())
            reading, leases = acquire(leases, job, owner, limit, now, span)
            self._keep(organization, leases, now)
            return reading

    async def renew(
        self, organization: str, job: str, owner: str, span: int, now: int | None = None
    ) -> Lease | None:
        with self._lock:
            now = self._clock() if now is None else now
            lease, leases = renew(self._leases.get(organization, ()), job, owner, now, span)
            self._keep(organization, leases, now)
            return lease

    async def release(
        self, organization: str, job: str, owner: str, now: int | None = None
    ) -> bool:
        with self._lock:
            now = self._clock() if now is None else now
            freed, leases = release(self._leases.get(organization, ()), job, owner, now)
            self._keep(organization, leases, now)
            return freed

    async def held(self, organization: str, now: int | None = None) -> tuple[Lease, ...]:
        with self._lock:
            now = self._clock() if now is None else now
            return live(self._leases.get(organization, ()), now)

    async def hold(
        self, organization: str, action: HoldAction, now: int | None = None
    ) -> HoldAnswer:
        with self._lock:
            if now is None:
                now = time_ns() // 1000 if self._clock is wall_clock else self._clock()
            return self._budgets.hold(organization, action, now)

    async def organization(self, id: str) -> Organization | None:
        with self._lock:
            placed = self._placed.get(id)
            return None if placed is None else Organization(id, *placed)

    async def put_organization(
        self,
        organization: Organization,
        now: int | None = None,
        *,
        change: ChangeDraft | None = None,
    ) -> None:
        with self._lock:
            id, *placed = organization
            old = self._placed.get(id)
            self._placed[id] = organization[1:]
            self.local_version = object()
            if change is not None and old != tuple(placed):
                before = None if old is None else Organization(id, *old)
                change = change._replace(before=plan_fields(before))
                self._changes.add(id, change, self._clock() if now is None else now)

    async def register(
        self,
        account: AccountDraft,
        key: KeyDraft,
        now: int | None = None,
        *,
        change: ChangeDraft | None = None,
    ) -> tuple[Account, ApiKey]:
        with self._lock:
            now = self._clock() if now is None else now
            if self._keys.is_taken(key.handle):
                raise HandleTaken
            made = self._accounts.add(account.created(now))
            self._changes.add(account.organization, change, now)
            return made, self._keys.insert(key.created(now))

    async def account(self, organization: str) -> Account | None:
        with self._lock:
            return self._accounts.get(organization)

    async def account_by_token(self, handle: str) -> Account | None:
        with self._lock:
            return self._accounts.by_handle(handle)

    async def unclaimed_by_email(
        self, billing_email: str, limit: int, after: Position | None = None
    ) -> tuple[Account, ...]:
        with self._lock:
            return self._accounts.unclaimed_by_email(billing_email, limit, after)

    async def accounts_by_user(
        self, user: str, limit: int, after: Position | None = None
    ) -> tuple[Account, ...]:
        with self._lock:
            return self._accounts.by_user(user, limit, after)

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
        with self._lock:
            now = self._clock() if now is None else now
            before = self._accounts.get(organization)
            account = self._accounts.claim(
                organization, user, keep_token=keep_token, seals=seals, now=now
            )
            revoked = 0
            if account is not None and account.claimed_by == user:
                if revoke:
                    revoked = self._keys.revoke_live(organization, now)
                if revoke or not keep_token:
                    self.local_version = object()
            if revoked or account != before:
                self._changes.add(organization, change, now)
            return account

    async def remove_unclaimed(
        self,
        idle: int,
        limit: int,
        now: int | None = None,
        *,
        change: ChangeDraft | None = None,
    ) -> tuple[str, ...]:
        with self._lock:
            now = self._clock() if now is None else now
            edge = now - idle
            removed: list[str] = []
            for _ in range(limit):
                account = self._accounts.due(edge)
                if account is None:
                    break
                if account.organization in self._placed:
                    continue  # An assigned plan is never removed.
                latest = last_use(account, self._keys.all(account.organization))
                if latest > edge:
                    self._accounts.review(account.organization, latest)
                else:
                    self._accounts.remove(account)
                    for key in self._keys.remove_all(account.organization):
                        self._histories.remove(HistoryOwner(key.organization, key.handle))
                    self._histories.remove(HistoryOwner(account.organization, None))
                    self._changes.add(account.organization, change, now)
                    removed.append(account.organization)
            if removed:
                self.local_version = object()
            return tuple(sorted(removed))

    async def sign_in(self, organization: str, now: int | None = None) -> Account | None:
        with self._lock:
            now = self._clock() if now is None else now
            return self._accounts.sign_in(organization, now)

    async def sign_out(self, organization: str) -> None:
        with self._lock:
            self._accounts.sign_out(organization)
            self.local_version = object()

    async def rehash_token_if(self, handle: str, old: Digest, new: Digest) -> bool:
        with self._lock:
            return self._accounts.rehash(handle, old, new)

    async def change_log(self, organization: str, limit: int, before: int | None = None) -> LogPage:
        with self._lock:
            return self._changes.newest(organization, limit, before)

    async def scan(self, cursor: str | None, limit: int) -> Rows:
        with self._lock:
            return self._some(cursor, min(limit, _COUNTED_AT_ONCE))

    async def organizations(
        self, limit: int, now: int | None = None, cursor: str | None = None
    ) -> FoundOrganizations:
        with self._lock:
            now = self._clock() if now is None else now
            ids = {*self._keys.organizations(), *self._placed}
            some = nsmallest(limit, (id for id in ids if cursor is None or id > cursor))
            found = [
                OrganizationSummary(
                    id,
                    Organization(id, *self._placed[id]) if id in self._placed else None,
                    *self._keys.live_usage(id, now),
                )
                for id in some
            ]
            return FoundOrganizations(found, some[-1] if len(some) == limit else None)

    def _some(self, cursor: str | None, limit: int) -> Rows:
        """Return some keys, or after these some accounts, in order of insertion."""
        kind, start = (cursor or "keys 0").split()
        if kind == "keys":
            keys, following = self._keys.numbered(int(start), limit)
            return Rows(keys, (), "accounts 0" if following is None else f"keys {following}")
        accounts, following = self._accounts.numbered(int(start), limit)
        return Rows((), accounts, None if following is None else f"accounts {following}")

    def _keep(self, organization: str, leases: Leases, now: int) -> None:
        self._leases.pop(organization, None)
        if leases:
            self._leases[organization] = leases
        # Each call sweeps a few other organizations: it drops leases of dead workers a day after
        # they ended (W10), even if the clock stepped back.
        for _ in range(min(_SWEPT_AT_ONCE, len(self._leases))):
            other = next(iter(self._leases))
            theirs = self._leases.pop(other)
            if any(lease.deadline > now - DAY for lease in theirs):
                self._leases[other] = theirs
