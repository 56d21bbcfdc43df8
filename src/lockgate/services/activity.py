"""What the busiest organizations do now: admissions a second by key, and how full windows are.

Everything is read from the store, so the figures are those of all processes. Refusals are those of
the usage over time, about a second late; where a service keeps none, a full window shows that
requests are refused.
"""

from collections.abc import Awaitable, Callable
from heapq import nlargest
from time import monotonic
from typing import Final, NamedTuple

from ..clock import Clock
from ..core.api_keys import ApiKey
from ..core.plans import Plan
from ..core.sliding_window import Reading
from ..stores.answers import HistoryOwner
from ..stores.base import Store
from ..sync import together
from .explanations import LeasesExplanation, leases_of
from .organizations import Organizations
from .rate_limit_status import LimitUsage, WindowUsage, status_of

_READ_AT_ONCE: Final = 1000
"""Organizations of one page: an organization that begins to be used appears after a walk."""
_REMEMBERED: Final = 1000
_KEYS_READ: Final = 250
"""Live keys of each organization that are read."""
_KEYS_WITH_REFUSALS: Final = 25
"""Keys of a refused organization, those with the latest use, whose refusals are read."""


class KeyActivity(NamedTuple):
    """A key that was used or refused since the previous tick."""

    key: ApiKey
    per_second: float
    refused_per_second: float


class OrganizationActivity(NamedTuple):
    """An organization, and its keys that were used or refused since the previous tick."""

    id: str
    plan: Plan
    per_second: float
    refused_per_second: float
    usage: dict[str, WindowUsage]
    full: str | None
    """The full window with the longest wait; None: the next request is admitted."""
    until: int | None
    """When that window admits a request again, in microseconds."""
    named: tuple[LimitUsage, ...]
    """The named limits of the rules and holds of this process, and of the plan."""
    leased: LeasesExplanation | None
    """The quota leases of its plan's windows; None: no lease is out."""
    keys: list[KeyActivity]
    """The busiest first."""


class Tick(NamedTuple):
    """The activity between two ticks."""

    at: int
    """The instant in microseconds, by the store's clock."""
    seconds: float
    """Since the previous tick; 0 in the first, which has no rates."""
    organizations: list[OrganizationActivity]
    """The busiest first, then by their latest use."""

    @property
    def per_second(self) -> float:
        """The admissions a second of these organizations."""
        return sum(one.per_second for one in self.organizations)

    @property
    def refused_per_second(self) -> float:
        """The refusals a second of these organizations."""
        return sum(one.refused_per_second for one in self.organizations)


class Activity:
    """Reads the activity of the organizations with the latest use, tick by tick.

    Args:
        store: keeps keys and windows.
        organizations: lists organizations.
        clock: returns the present in microseconds; None: the store's own clock.
        most: organizations to read at each tick.
        named: returns the use of the named limits of an organization on a plan.
    """

    def __init__(
        self,
        store: Store,
        organizations: Organizations,
        clock: Clock | None,
        most: int,
        named: Callable[[str, Plan], Awaitable[tuple[LimitUsage, ...]]],
    ) -> None:
        self._store = store
        self._organizations = organizations
        self._clock = clock
        self._most = most
        self._named = named
        self._cursor: str | None = None
        self._latest: dict[str, tuple[int, Plan]] = {}
        """Latest use and plan of organizations."""
        self._counts: dict[str, int] = {}
        """Requests by the id of a key, at the previous tick."""
        self._refused: dict[HistoryOwner, int] = {}
        """Refusals by their owner, when last read."""
        self._ticked_at: float | None = None

    async def tick(self) -> Tick:
        """Return the activity since the previous tick.

        Raises:
            StoreUnavailable, StoreError, OSError: the store did not answer.
        """
        await self._discover(whole=self._ticked_at is None)
        now = monotonic()
        seconds = 0.0 if self._ticked_at is None else now - self._ticked_at
        self._ticked_at = now
        latest = nlargest(self._most, self._latest.items(), key=lambda one: one[1][0])
        read = await together(self._read(id, plan, seconds) for id, (_, plan) in latest)
        self._counts = {id: count for _, counts in read for id, count in counts.items()}
        found = [one for one, _ in read]
        found.sort(key=lambda one: -one.per_second - one.refused_per_second)
        at = await self._store.now() if self._clock is None else self._clock()
        return Tick(at, seconds, found)

    async def _discover(self, *, whole: bool) -> None:
        """Continue the walk through all organizations: by a page, or to its end."""
        while True:
            page = await self._organizations.list(limit=_READ_AT_ONCE, cursor=self._cursor)
            for one in page.organizations:
                if one.last_used_at is not None:
                    self._latest[one.id] = one.last_used_at, one.plan
            self._cursor = page.cursor
            if len(self._latest) > 2 * _REMEMBERED:
                used = nlargest(_REMEMBERED, self._latest.items(), key=lambda one: one[1][0])
                self._latest = dict(used)
            if not whole or self._cursor is None:
                return

    async def _read(
        self, id: str, plan: Plan, seconds: float
    ) -> tuple[OrganizationActivity, dict[str, int]]:
        """Return the activity of an organization, and the requests by the ids of its keys."""
        now = None if self._clock is None else self._clock()
        keys = await self._store.list_live(id, _KEYS_READ, None, now)
        reading = await self._store.peek(id, plan.windows, now)
        # The histories of keys are read where their organization was refused since.
        refused = await self._refusals(HistoryOwner(id, None), reading.now)
        looked_at: list[ApiKey] = []
        if refused or not seconds:
            looked_at = nlargest(_KEYS_WITH_REFUSALS, keys, key=lambda key: key.last_used_at or 0)
        of_keys = await together(
            self._refusals(HistoryOwner(id, key.handle), reading.now) for key in looked_at
        )
        refusals = {key.id: number for key, number in zip(looked_at, of_keys, strict=True)}
        rates: list[KeyActivity] = []
        for key in keys:
            more = key.request_count - self._counts.get(key.id, key.request_count)
            if seconds and (more > 0 or refusals.get(key.id)):
                rates.append(
                    KeyActivity(key, max(0, more) / seconds, refusals.get(key.id, 0) / seconds)
                )
        rates.sort(key=lambda one: -one.per_second - one.refused_per_second)
        full, until = _full(plan, reading)
        activity = OrganizationActivity(
            id,
            plan,
            sum(one.per_second for one in rates),
            refused / seconds if seconds else 0.0,
            status_of(plan, reading).usage,
            full,
            until,
            await self._named(id, plan),
            await leases_of(self._store, id, now),
            rates,
        )
        return activity, {key.id: key.request_count for key in keys}

    async def _refusals(self, owner: HistoryOwner, now: int) -> int:
        """Return the refusals of a key or organization since they were last read."""
        if not self._store.keeps_history:
            return 0
        history = await self._store.history(owner)
        total = sum(sum(cell.refused.values()) for cell in history.cells("day", now))
        before = self._refused.get(owner)
        self._refused[owner] = total
        return 0 if before is None else max(0, total - before)


def _full(plan: Plan, reading: Reading) -> tuple[str | None, int | None]:
    if reading.refused_by is None:
        return None, None
    return plan.windows[reading.refused_by].name, reading.now + reading.wait
