"""A store in process memory, for tests, development and services of one process."""

from collections.abc import Mapping, Sequence
from heapq import nsmallest
from time import time_ns
from typing import Any, Final, TypeVar, cast

from ...clock import Clock, wall_clock
from ...core.accounts import Account, last_use
from ...core.api_keys import ApiKey, Position
from ...core.bounded_dict import BoundedDict
from ...core.changes import Change
from ...core.fast_tuples import new_tuple
from ...core.holds import HoldAction
from ...core.key_format import Token
from ...core.key_search import KeySearch
from ...core.ledger import Action, Hit, HitLeased, LeasesOut, Peek, Reset
from ...core.limits import Limit, OwnLimits, bound
from ...core.plans import Organization, PlanBook
from ...core.quota_leases import LeaseRequest
from ...core.sliding_window import Reading
from ...core.usage_history import UsageHistory
from ...core.usage_marks import Marks, marked
from ..answers import (
    UNKNOWN,
    Admission,
    HistoryOwner,
    OrganizationSummary,
    Usage,
    UsageBatch,
    Verdict,
    holder_of,
    limits_of,
    reading_state,
    refusal_of,
)
from ..base import IoMode, Store
from ..rows import (
    LOG,
    REMOVED_AT_MOST,
    Commit,
    CommitVerdict,
    Ended,
    Index,
    Outcome,
    R,
    Read,
    Row,
    Summaries,
    Unused,
    Version,
    Walk,
    Wanted,
    Write,
    is_recorded,
    judged,
    stamped,
)
from ..runtime.process_hooks import own_lock
from .accounts import LocalAccounts
from .changes import LocalChanges
from .holds import LocalBudgets
from .keys import LocalKeys
from .usage import LocalHistories
from .windows import LocalWindows

A = TypeVar("A")

_ADMITTED: Final = Verdict.ADMITTED
_WALKED_AT_ONCE: Final = 1000
"""Rows per step of a walk: about 3 ms."""
_REMEMBERED: Final = 10_000
"""Commits of all organizations whose ids are remembered: here no reply is lost, only abandoned."""


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
        self._budgets = LocalBudgets()
        self._accounts = LocalAccounts()
        self._histories = LocalHistories()
        self._marks: Marks = ()
        self._changes = LocalChanges()
        self._made = BoundedDict[str, str](_REMEMBERED)
        """By the ids of the latest commits: the instant, how many keys it has ended, and whether
        more were due."""

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
        lease: LeaseRequest | None = None,
    ) -> Admission:
        if lease is not None:
            return self._admit_leased(token, cost, plans, now, address, limits, lease)
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
            windows, promise = plan.windows, None
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
                    if plan.kept_retries:
                        leased = self._windows.hit_kept(organization, windows, now, cost, id)
                        reading, promise = leased
                    else:
                        reading = self._windows.hit(organization, windows, now, cost)
            if not reading.allowed:
                refused = self._keys.key(handle)
                return Admission(Verdict.LIMITED, refused, plan, reading, named, promise)
            self._requests[handle] = requests = self._requests.get(handle, 0) + 1
            last_used_at = self._last_used.get(handle, -1)
            if now > last_used_at:
                self._last_used[handle] = last_used_at = now
        key = new_tuple(ApiKey, row + (requests, last_used_at))  # noqa: RUF005 - it goes by a list
        return new_tuple(Admission, (_ADMITTED, key, plan, reading, named, None))

    def _admit_leased(
        self,
        token: Token,
        cost: int,
        plans: PlanBook,
        now: int | None,
        address: str | None,
        limits: tuple[Limit, ...],
        lease: LeaseRequest,
    ) -> Admission:
        handle = token.handle
        with self._lock:
            now = self._clock() if now is None else now
            key = self._keys.key(handle) if handle in self._rows else None
            refusal = refusal_of(token, key, now, address)
            if refusal is not None or key is None:
                return refusal or UNKNOWN
            owner = key.organization
            plan = plans.plan_of(self._plan(owner), now)
            named = limits_of(limits, plan, key, now)
            charge = HitLeased(plan.windows, cost, lease, named, holder_of(key, plan))
            reading, granted = self._windows.charge(owner, charge, named, now)
            if not reading.allowed:
                return Admission(Verdict.LIMITED, key, plan, reading, named, granted)
            self._requests[handle] = self._requests.get(handle, 0) + 1
            self._last_used[handle] = max(self._last_used.get(handle, now), now)
            return Admission(_ADMITTED, self._keys.key(handle), plan, reading, named, granted)

    async def read(
        self,
        index: Index[R],
        prefix: tuple[str, ...],
        limit: int = 1,
        after: Position | None = None,
        now: int | None = None,
    ) -> Read[R]:
        with self._lock:
            rows = cast(list[R], self._page(index.name, prefix, limit, after))
            versions = [] if index is LOG else [self._kept(cast(Row, row)) for row in rows]
            return Read(rows, versions, self._clock() if now is None else now)

    def _page(
        self, index: str, prefix: tuple[str, ...], limit: int, after: Position | None
    ) -> Sequence[Row | Change | None]:
        name, keys, accounts = prefix[0], self._keys, self._accounts
        match index:
            case "key_by_handle":
                return [keys.key(name)] if name in self._rows else []
            case "key_by_id":
                return _some(keys.owned(name, prefix[1]))
            case "keys_by_creation":
                return keys.newest(name, limit, after)
            case "keys_by_end":
                return keys.unrevoked(name, limit, after)
            case "account":
                return _some(accounts.get(name))
            case "account_by_token":
                return _some(accounts.by_handle(name))
            case "accounts_by_email":
                return accounts.unclaimed_by_email(name, limit, after)
            case "accounts_by_user":
                return accounts.by_user(name, limit, after)
            case "plan":
                return _some(self._plan(name))
            case _:
                return self._changes.newest(name, limit, after and after.instant)

    def _kept(self, row: Row) -> Version | None:
        """Return the version of the row that is kept in the place of another, or None."""
        if isinstance(row, ApiKey):
            return self._rows.get(row.handle)
        if isinstance(row, Account):
            return self._accounts.rows.get(row.organization)
        return self._placed.get(row.id)

    def _plan(self, organization: str) -> Organization | None:
        placed = self._placed.get(organization)
        return None if placed is None else Organization(organization, *placed)

    async def commit(self, commit: Commit, now: int | None = None) -> Outcome:
        with self._lock:
            made = self._made.get(commit.id)
            if made is not None:
                at, ended, more = map(int, made.split())
                rows = tuple(self._current(write, at) for write in commit.writes)
                return Outcome("done", at, rows, ended, bool(more))
            now = self._clock() if now is None else now
            verdict = self._verdict(commit, now)
            if verdict != "done":
                return Outcome(verdict, now)
            ended, more = self._end(commit, now)
            for write in commit.writes:
                self._write(write.old, stamped(write.new, now))
            if is_recorded(commit, ended):
                self._changes.add(commit.owner, commit.change, now)
            if commit.voids:
                self.local_version = object()
            self._made[commit.id] = f"{now} {ended} {more:d}"
            rows = tuple(self._current(write, now) for write in commit.writes)
            return Outcome("done", now, rows, ended, more)

    def _current(self, write: Write, at: int) -> Row | None:
        """Return a row as a commit of an instant has written it, a key with its usage."""
        row = stamped(write.new, at)
        if isinstance(row, ApiKey) and row.handle in self._rows:
            used = self._keys.key(row.handle)[-2:]
            return ApiKey(*row[:-2], *used)
        return row

    def _verdict(self, commit: Commit, now: int) -> CommitVerdict:
        """Return whether a commit can be made at an instant."""

        def count_live() -> int:
            return self._keys.count_live(commit.owner, now)

        verdict = judged(commit, now, self._kept, self._is_taken, count_live)
        if verdict == "done" and commit.remove_unused is not None:
            return "done" if self._is_unused(commit.owner, commit.remove_unused) else "changed"
        return verdict

    def _is_taken(self, row: ApiKey | Account) -> bool:
        if isinstance(row, Account):
            return self._accounts.is_taken(row)
        return self._keys.is_taken(row.handle) or row.id in self._keys.handles_by_id

    def _is_unused(self, organization: str, since: int) -> bool:
        """Return whether an account can be removed; if not, note when it can be due again."""
        account = self._accounts.get(organization)
        if account is None:
            return False
        latest = None
        if account.claimed_by is None and organization not in self._placed:
            latest = last_use(account, self._keys.all(organization))
            if latest <= since:
                return True
        self._accounts.used(organization, latest)
        return False

    def _write(self, old: Row | None, new: Row | None) -> None:
        if isinstance(new, Organization):
            self._placed[new.id] = new[1:]
        elif isinstance(new, Account):
            if isinstance(old, Account):
                self._accounts.replace(old, new)
            else:
                self._accounts.add(new)
        elif isinstance(new, ApiKey):
            if isinstance(old, ApiKey):
                self._keys.replace(old, new)
            else:
                self._keys.insert(new)

    def _end(self, commit: Commit, now: int) -> tuple[int, bool]:
        """End keys as a commit asks; return their number, and whether more are due."""
        owner, keys, more = commit.owner, self._keys, False
        removed: list[ApiKey] = []
        if commit.revoke_all:
            ending = keys.live(owner, now)
            for key in ending:
                keys.replace(key, key._replace(revoked_at=now))
            return len(ending), False
        if commit.remove_ended is not None:
            removed = keys.ended(owner, commit.remove_ended, REMOVED_AT_MOST)
            records = self._changes.remove(owner, commit.remove_ended, REMOVED_AT_MOST)
            more = REMOVED_AT_MOST in {len(removed), records}
        account = self._accounts.get(owner)
        if commit.remove_unused is not None and account is not None:
            removed = keys.all(owner)
            self._accounts.remove(account)
            self._histories.remove(HistoryOwner(owner, None))
        for key in removed:
            keys.remove(key)
            self._histories.remove(HistoryOwner(owner, key.handle))
        return len(removed), more

    async def walk(self, wanted: Wanted, limit: int, cursor: str | None = None) -> Walk:
        with self._lock:
            match wanted:
                case Ended(until):
                    start = int(cursor or 0)
                    owners, following = self._keys.owners_of_ended(until, start, _WALKED_AT_ONCE)
                    if start == 0:
                        owners.update(self._changes.due(until, _WALKED_AT_ONCE))
                    return Walk(_cursor(following), owners=tuple(sorted(owners)))
                case Unused(since):
                    return Walk(None, owners=tuple(self._accounts.unused(since, limit)))
                case Summaries(now):
                    return self._summaries(self._clock() if now is None else now, limit, cursor)
                case KeySearch():
                    start = int(cursor or 0)
                    found, following = self._keys.numbered(
                        start, _WALKED_AT_ONCE, limit, wanted.finds
                    )
                    return Walk(_cursor(following), tuple(found))
                case None:
                    return self._all(min(limit, _WALKED_AT_ONCE), cursor)

    def _all(self, limit: int, cursor: str | None) -> Walk:
        """Return some keys, or after these some accounts, in order of insertion."""
        kind, start = (cursor or "keys 0").split()
        if kind == "keys":
            keys, following = self._keys.numbered(int(start), limit, limit)
            return Walk("accounts 0" if following is None else f"keys {following}", tuple(keys))
        accounts, following = self._accounts.numbered(int(start), limit)
        cursor = None if following is None else f"accounts {following}"
        return Walk(cursor, accounts=tuple(accounts))

    def _summaries(self, now: int, limit: int, cursor: str | None) -> Walk:
        ids = {*self._keys.organizations(), *self._placed}
        some = nsmallest(limit, (id for id in ids if cursor is None or id > cursor))
        found = [
            OrganizationSummary(id, self._plan(id), *self._keys.live_usage(id, now)) for id in some
        ]
        return Walk(some[-1] if len(some) == limit else None, organizations=tuple(found))

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

    async def charge(self, owner: str, action: Action[A], now: int | None = None) -> A:
        with self._lock:
            now = self._clock() if now is None else now
            asked: object = action
            answer: Any
            if type(asked) is Hit:  # Requests make this call: a pattern or a call more costs 5 %.
                windows, cost, limits = asked
                if limits is None:
                    answer = self._windows.hit(owner, windows, now, cost)
                else:
                    answer = self._windows.hit_limited(owner, windows, limits, now, cost)
            else:
                answer = self._charge(owner, asked, now)
            return answer  # type: ignore[no-any-return]

    def _charge(self, owner: str, action: object, now: int) -> object:
        match action:
            case Peek() | HitLeased():
                return self._windows.charge(owner, action, action.limits, now)
            case LeasesOut():
                return self._windows.charge(owner, action, None, now)
            case Reset(change):
                self._windows.take(owner)
                self._windows.drop_promises(owner)
                self._windows.limits.remove(owner)
                self._budgets.remove(owner)
                self._changes.add(owner, change, now)
                self.local_version = object()
                return None
            case _:
                return self._budgets.hold(owner, cast(HoldAction, action), now)


def _some(row: Row | None) -> list[Row]:
    return [] if row is None else [row]


def _cursor(number: int | None) -> str | None:
    return None if number is None else str(number)
