"""Everything in this process: for tests, for one-process services and to try things out."""

from collections.abc import Callable, Iterable, Mapping
from threading import Lock
from typing import cast

from ..errors import HandleTaken, KeyLimitReached
from ..rules.credentials import Digest, Token
from ..rules.keys import ApiKey, KeyDraft, KeyState
from ..rules.plans import Organization, PlanBook
from ..rules.slots import Lease, Leases, SlotReading, acquire, live, release, renew
from ..rules.windows import Reading, Window
from .contract import UNKNOWN, Admission, Io, Store, Usage, Verdict
from .local import Clock, LocalWindows, wall_clock

_Row = tuple[str, str, str, str, str, tuple[str, ...], str, bytes, int, int | None]
"""An :class:`ApiKey` up to ``expires_at``, as a plain tuple: the collector forgets those."""

_NEVER = (0, 0)

# A NamedTuple's own constructor takes three times as long.
_api_key = cast(Callable[[type[ApiKey], Iterable[object]], ApiKey], tuple.__new__)  # pyright: ignore[reportUnknownMemberType] - typeshed's own Self
_admission = cast(Callable[[type[Admission], Iterable[object]], Admission], tuple.__new__)  # pyright: ignore[reportUnknownMemberType] - typeshed's own Self


class MemoryStore(Store):
    """Keeps everything in this process, safe for threads and for any number of event loops.

    One lock guards it all. No verb on the way of a request holds it for more than some
    microseconds, none across an ``await``, and under the interpreter's own lock finer ones would
    win nothing. ``list`` and ``census`` take as long as there are keys to read.

    What never changes of a key is kept apart from what does (revocation, usage), in flat tables of
    atoms: a garbage collection does not walk them, so a million keys cost no pauses.

    Args:
        clock: gives the present in microseconds; by default the machine's clock.
    """

    io: Io = "none"

    def __init__(self, clock: Clock = wall_clock) -> None:
        self._clock = clock
        self._lock = Lock()
        self._rows: dict[str, _Row] = {}
        self._revoked: dict[str, int] = {}
        self._usage: dict[str, tuple[int, int]] = {}
        self._handles_by_id: dict[str, str] = {}
        self._handles_by_organization: dict[str, dict[str, None]] = {}
        self._live_by_organization: dict[str, dict[str, None]] = {}
        self._placed: dict[str, tuple[str, tuple[tuple[str, int | None], ...]]] = {}
        self._windows = LocalWindows()
        self._leases: dict[str, Leases] = {}

    async def now(self) -> int:
        return self._clock()

    async def admit(
        self, token: Token, cost: int, plans: PlanBook, now: int | None = None
    ) -> Admission:
        handle = token.handle
        row = self._rows.get(handle)
        if row is None:
            token.matches_nobody()
            return UNKNOWN
        if not token.matches(row[6], row[7]):
            return UNKNOWN
        organization = row[2]
        with self._lock:
            if now is None:
                now = self._clock()
            if handle in self._revoked:
                return Admission(Verdict.REVOKED, self._key(handle))
            expires_at = row[9]
            if expires_at is not None and expires_at <= now:
                return Admission(Verdict.EXPIRED, self._key(handle))
            placed = self._placed.get(organization)
            plan = plans.default if placed is None else plans.plan(*placed)
            reading = self._windows.hit(organization, plan.windows, now, cost)
            if not reading.allowed:
                return Admission(Verdict.LIMITED, self._key(handle), plan, reading)
            requests, last_used = self._usage.get(handle, _NEVER)
            requests += 1
            last_used = max(last_used, now)
            self._usage[handle] = (requests, last_used)
        key = _api_key(ApiKey, (*row, None, requests, last_used))
        return _admission(Admission, (Verdict.ADMITTED, key, plan, reading))

    async def insert(self, draft: KeyDraft, cap: int | None, now: int | None = None) -> ApiKey:
        with self._lock:
            now = self._clock() if now is None else now
            if draft.handle in self._rows:
                raise HandleTaken
            live_keys = self._live_by_organization.setdefault(draft.organization, {})
            if cap is not None and len(live_keys) >= cap:
                for handle in list(live_keys):
                    if self._key(handle).state(now) is KeyState.EXPIRED:
                        del live_keys[handle]
                if len(live_keys) >= cap:
                    raise KeyLimitReached(cap)
            key = draft.created(now)
            self._rows[draft.handle] = key[:10]
            self._handles_by_id[draft.id] = draft.handle
            self._handles_by_organization.setdefault(draft.organization, {})[draft.handle] = None
            live_keys[draft.handle] = None
            return key

    async def find(self, handle: str) -> ApiKey | None:
        with self._lock:
            return self._key(handle) if handle in self._rows else None

    async def get(self, organization: str, id: str) -> ApiKey | None:
        with self._lock:
            return self._owned(organization, id)

    async def list(self, organization: str) -> list[ApiKey]:
        with self._lock:
            keys = [self._key(h) for h in self._handles_by_organization.get(organization, ())]
        return sorted(keys, key=lambda key: (-key.created_at, key.id))

    async def revoke_if_live(
        self, organization: str, id: str, now: int | None = None
    ) -> ApiKey | None:
        with self._lock:
            key = self._owned(organization, id)
            if key is None:
                return None
            self._revoked.setdefault(key.handle, self._clock() if now is None else now)
            self._live_by_organization[organization].pop(key.handle, None)
            return self._key(key.handle)

    async def rehash_if(self, handle: str, old: Digest, new: Digest) -> bool:
        with self._lock:
            row = self._rows.get(handle)
            if row is None or (row[6], row[7]) != old:
                return False
            self._rows[handle] = (*row[:6], new.scheme, new.value, *row[8:])
            return True

    async def add_usage(self, usage: Mapping[str, Usage]) -> None:
        with self._lock:
            for handle, (requests, last_used) in usage.items():
                if handle in self._rows:
                    before, last_before = self._usage.get(handle, _NEVER)
                    self._usage[handle] = (before + requests, max(last_used, last_before))

    async def census(self, now: int | None = None) -> dict[str, int]:
        with self._lock:
            now = self._clock() if now is None else now
            counts: dict[str, int] = {}
            for handle, row in self._rows.items():
                if self._key(handle).state(now) is KeyState.ACTIVE:
                    counts[row[6]] = counts.get(row[6], 0) + 1
            return counts

    async def hit(
        self, organization: str, windows: tuple[Window, ...], cost: int, now: int | None = None
    ) -> Reading:
        with self._lock:
            now = self._clock() if now is None else now
            return self._windows.hit(organization, windows, now, cost)

    async def look(
        self, organization: str, windows: tuple[Window, ...], now: int | None = None
    ) -> Reading:
        with self._lock:
            now = self._clock() if now is None else now
            return self._windows.look(organization, windows, now)

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
            self._keep(organization, leases)
            return reading

    async def renew(
        self, organization: str, job: str, owner: str, span: int, now: int | None = None
    ) -> Lease | None:
        with self._lock:
            now = self._clock() if now is None else now
            lease, leases = renew(self._leases.get(organization, ()), job, owner, now, span)
            self._keep(organization, leases)
            return lease

    async def release(
        self, organization: str, job: str, owner: str, now: int | None = None
    ) -> bool:
        with self._lock:
            now = self._clock() if now is None else now
            freed, leases = release(self._leases.get(organization, ()), job, owner, now)
            self._keep(organization, leases)
            return freed

    async def held(self, organization: str, now: int | None = None) -> tuple[Lease, ...]:
        with self._lock:
            now = self._clock() if now is None else now
            return live(self._leases.get(organization, ()), now)

    async def organization(self, id: str) -> Organization | None:
        with self._lock:
            placed = self._placed.get(id)
            return None if placed is None else Organization(id, *placed)

    async def put_organization(self, organization: Organization) -> None:
        with self._lock:
            self._placed[organization.id] = organization[1:]

    def _key(self, handle: str) -> ApiKey:
        requests, last_used = self._usage.get(handle, _NEVER)
        return ApiKey(
            *self._rows[handle],
            revoked_at=self._revoked.get(handle),
            request_count=requests,
            last_used_at=last_used if requests else None,
        )

    def _owned(self, organization: str, id: str) -> ApiKey | None:
        handle = self._handles_by_id.get(id)
        if handle is None:
            return None
        key = self._key(handle)
        return key if key.organization == organization else None

    def _keep(self, organization: str, leases: Leases) -> None:
        if leases:
            self._leases[organization] = leases
        else:
            self._leases.pop(organization, None)
