"""Explain an organization or a key: its plan, its windows, and why a request would be refused."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from ..core.api_keys import ApiKey, KeyState
from ..core.imported_keys import ImportedToken
from ..core.key_format import KeyFormat
from ..core.plans import Plan, PlanBook
from ..core.row_seals import Rejection, judge_seal, rejected_scheme
from ..core.sliding_window import Reading, Window
from ..errors import KeyExpired, KeyNotFound, KeyRevoked, NotFound, RateLimitExceeded
from ..events import Events
from ..stores.base import Store
from ..stores.memory.windows import Clock
from .keys import sample
from .rejected_rows import REMEDIES
from .store_errors import asking

_KEYS_SHOWN: Final = 25


@dataclass(frozen=True, slots=True)
class Reason:
    """Why the next request would be refused.

    Attributes:
        code: the error code that the caller gets.
        until: the instant in microseconds at which the reason ends by itself; None: never.
        advice: the cause and the remedy, in a sentence.
    """

    code: str
    until: int | None
    advice: str


@dataclass(frozen=True, slots=True)
class WindowExplanation:
    """What one window holds.

    Attributes:
        name: ``minute``, ``hour`` or ``day``.
        limit: None: no limit.
        used: counted units.
        left: units until it is full; None: no limit.
        until: the instant in microseconds from which a full window admits a request of cost 1, or
            at which the oldest unit of another leaves; None: no limit, or no such instant.
    """

    name: str
    limit: int | None
    used: int
    left: int | None
    until: int | None


@dataclass(frozen=True, slots=True)
class SlotsExplanation:
    """The concurrency slots that jobs hold.

    Attributes:
        limit: None: no limit.
        used: live leases.
        until: the instant in microseconds at which the next lease ends unless it is renewed.
    """

    limit: int | None
    used: int
    until: int | None


@dataclass(frozen=True, slots=True)
class KeyExplanation:
    """The state of one key, and why its requests are refused whatever the windows hold."""

    key: ApiKey
    state: KeyState
    refused: Reason | None


@dataclass(frozen=True, slots=True)
class Explanation:
    """What :meth:`Gate.explain <lockgate.Gate.explain>` found.

    Attributes:
        organization: its id.
        plan: the plan that applies, with the organization's own limits.
        assigned: the name of the plan that the store or the resolver has for it; None: it is on
            the default plan. It differs from ``plan.name`` where the gate has no numbers for it.
        at: the instant of the answer, in microseconds, by the clock of the windows.
        windows: the windows of the plan.
        slots: its concurrency slots.
        keys: the requested key; otherwise up to 25 keys, live keys first.
        more_keys: whether the organization has more keys than these.
        refused: why the next request would be refused, of this key or of all; None: it would be
            admitted.
    """

    organization: str
    plan: Plan
    assigned: str | None
    at: int
    windows: tuple[WindowExplanation, ...]
    slots: SlotsExplanation
    keys: tuple[KeyExplanation, ...]
    more_keys: bool
    refused: Reason | None


class Explanations:
    """Answers :meth:`Gate.explain <lockgate.Gate.explain>` by verbs of the store that only read.

    Args:
        store: keeps keys and windows.
        format: reads the text of a key.
        imported: the digest schemes of imported keys that are accepted.
        plans: the plan book.
        clock: returns the present in microseconds; None: the store's own clock.
        events: receives ``store_failed``.
    """

    def __init__(
        self,
        store: Store,
        format: KeyFormat,
        imported: frozenset[str],
        plans: PlanBook,
        clock: Clock | None,
        events: Events,
    ) -> None:
        self._store = store
        self._format = format
        self._schemes: Final = imported | format.peppers.digesters.keys()
        self._plans = plans
        self._clock = clock
        self._events = events

    async def explain(self, subject: str, key: str | None) -> Explanation:
        """Explain the text of a key, an organization, or one key of it by its id."""
        with asking(self._events):
            if key is not None:
                found = await self._store.get(subject, key)
                if found is None:
                    raise NotFound
                return await self._of_key(found)
            if self._format.redact(subject) != subject:
                return await self._of_key(await self._found(subject))
            keys, more = await sample(self._store, subject, _KEYS_SHOWN, self._now())
            return await self._explain(subject, keys, more=more)

    async def _found(self, text: str) -> ApiKey:
        """Return the row of a key by its text, also where this process does not accept the row."""
        token = self._format.parse(text)
        key = await self._store.find(token.handle)
        if key is None:
            raise KeyNotFound
        # A slow password hash is not checked: the handle leads to the row.
        slow = isinstance(token, ImportedToken) and token.legacy.slow_scheme(key.scheme)
        if not slow and token.reads(key.scheme) and not token.matches(key.scheme, key.digest):
            raise KeyNotFound
        return key

    async def _of_key(self, key: ApiKey) -> Explanation:
        found = await self._explain(key.organization, [key], more=False)
        return replace(found, refused=found.keys[0].refused or found.refused)

    async def _explain(
        self, organization: str, keys: Iterable[ApiKey], *, more: bool
    ) -> Explanation:
        assigned = await self._store.organization(organization)
        plan = self._plans.plan_of(assigned)
        now = self._now()
        whole = await self._store.peek(organization, plan.windows, now)
        windows: list[WindowExplanation] = []
        refused: Reason | None = None
        for index in range(len(plan.windows)):
            shown = await self._window(organization, plan.windows, index, now)
            windows.append(shown)
            if shown.left == 0 and (refused is None or _later(shown.until, refused.until)):
                refused = _full(shown)
        leases = await self._store.held(organization, now)
        ends = min((lease.deadline for lease in leases), default=None)
        return Explanation(
            organization,
            plan,
            None if assigned is None else assigned.plan,
            whole.now,
            tuple(windows),
            SlotsExplanation(plan.concurrent, len(leases), ends),
            tuple(self._key(key, whole.now) for key in keys),
            more,
            refused,
        )

    async def _window(
        self, organization: str, windows: tuple[Window, ...], index: int, now: int | None
    ) -> WindowExplanation:
        """Read one window, by a peek at which the others have no limit."""
        alone = tuple(w if i == index else w._replace(limit=None) for i, w in enumerate(windows))
        reading: Reading = await self._store.peek(organization, alone, now)
        window, used = windows[index], reading.used[index]
        if window.limit is None:
            return WindowExplanation(window.name, None, used, None, None)
        left = max(0, window.limit - used)
        until = reading.now + reading.wait if left == 0 else reading.reset
        shown = until if used and window.limit else None
        return WindowExplanation(window.name, window.limit, used, left, shown)

    def _key(self, key: ApiKey, now: int) -> KeyExplanation:
        state = key.state(now)
        if (why := self._rejected(key)) is not None:
            return KeyExplanation(key, state, Reason(KeyNotFound.code, None, REMEDIES[why]))
        if state is KeyState.ACTIVE:
            return KeyExplanation(key, state, None)
        refusal = KeyRevoked if state is KeyState.REVOKED else KeyExpired
        advice = f"The key is {state.value} for good: create another one."
        return KeyExplanation(key, state, Reason(refusal.code, None, advice))

    def _rejected(self, key: ApiKey) -> Rejection | None:
        """Return why this process treats the row of a key as missing."""
        if key.scheme not in self._schemes:
            return rejected_scheme(key.scheme)
        return judge_seal(key, self._format.peppers)

    def _now(self) -> int | None:
        return self._clock() if self._clock else None


def _later(one: int | None, other: int | None) -> bool:
    return one is None or (other is not None and one > other)


def _full(window: WindowExplanation) -> Reason:
    advice = f"{window.used} of {window.limit} units of the last {window.name} are used."
    if window.limit == 0:
        advice = f"The plan admits no request: its limit by the {window.name} is 0."
    return Reason(RateLimitExceeded.code, window.until, advice)
