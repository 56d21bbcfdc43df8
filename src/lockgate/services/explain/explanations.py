"""Explain an organization or a key: its plan, its windows, and why a request would be refused."""

from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import replace
from shlex import quote
from typing import Final, NamedTuple

from ...clock import Clock
from ...core.api_keys import ApiKey, KeyState
from ...core.client_address import budget_of, read_address
from ...core.imported_keys import ImportedToken
from ...core.key_format import KeyFormat
from ...core.leases import TO_LIST
from ...core.ledger import LeasesOut, Peek
from ...core.limit_windows import LimitWindows, ends_of
from ...core.limits import Limit, bound, own_limits, windows_of
from ...core.plans import SPANS, Organization, Plan, PlanBook
from ...core.quota_leases import out, units_out
from ...core.row_seals import Rejection, judge_seal, rejected_scheme
from ...core.scopes import Requirement
from ...core.sliding_window import Reading, Window
from ...core.timestamps import iso8601
from ...errors import (
    AddressNotAllowed,
    ConfigurationError,
    InsufficientScope,
    KeyExpired,
    KeyNotFound,
    KeyRevoked,
    LockgateError,
    NotFound,
    RateLimitExceeded,
    StoreUnavailable,
    time_of,
)
from ...events import Events
from ...stores.base import Store
from ...stores.resilience.failures import is_outage
from ..keys.keys import sample
from ..keys.rejected_rows import REMEDIES
from ..limits.subject_limits import SubjectLimits
from ..reservations.holds import Holds
from ..store_errors import asking, unavailable
from .findings import (
    Explanation,
    KeyExplanation,
    LeasesExplanation,
    LimitExplanation,
    OpenExplanation,
    Reason,
    SlotsExplanation,
    Source,
    WindowExplanation,
)

_KEYS_SHOWN: Final = 25
_UNREAD: Final = "The store of the windows does not answer. Until it does,"

_REMEDIES: Final[dict[Source, str]] = {
    "plan": "raise it in the plan book of the service",
    "key": "give the key another by 'lockgate keys update --limit'",
    "rule": "raise it in the rules of the service",
}
"""How to raise a named limit that has refused a request."""


class _Counted(NamedTuple):
    """What the store of the windows tells for an explanation."""

    at: int
    windows: tuple[WindowExplanation, ...] = ()
    limits: tuple[LimitExplanation, ...] = ()
    leased: LeasesExplanation | None = None
    refused: Reason | None = None
    unread: str | None = None


class Explanations:
    """Answers :meth:`Gate.explain <lockgate.Gate.explain>` by verbs of the store that only read.

    Args:
        store: keeps keys and windows.
        format: reads the text of a key.
        imported: the digest schemes of imported keys that are accepted.
        plans: the plan book.
        limits: returns the named limits of the rules of this process.
        holds: the holds of this process.
        subjects: counts addresses and users.
        clock: returns the present in microseconds; None: the store's own clock.
        events: receives ``store_failed``.
        falls_back: whether each process decides while the store of the windows does not answer.
    """

    def __init__(
        self,
        store: Store,
        format: KeyFormat,
        imported: frozenset[str],
        plans: PlanBook,
        limits: Callable[[], Iterable[Limit]],
        holds: Holds,
        subjects: SubjectLimits,
        clock: Clock | None,
        events: Events,
        *,
        falls_back: bool,
    ) -> None:
        self._store = store
        self._format = format
        self._schemes: Final = imported | format.peppers.digesters.keys()
        self._plans = plans
        self._limits = limits
        self._holds = holds
        self._subjects = subjects
        self._clock = clock
        self._events = events
        self._falls_back = falls_back

    async def explain(
        self,
        subject: str,
        key: str | None,
        address: str | None = None,
        user: str | None = None,
        cost: int = 1,
        requires: Requirement | None = None,
        limits: Iterable[Limit] = (),
    ) -> Explanation:
        """Explain the text of a key, an organization, or one key of it by its id.

        The arguments are those of :meth:`Gate.explain <lockgate.Gate.explain>`.
        """
        _check_address(address)
        request = _Request(address, user, cost, requires, tuple(limits))
        with asking(self._events):
            if key is not None:
                found = await self._store.get(subject, key)
                if found is None:
                    raise NotFound
                return await self._of_key(found, request)
            if self._format.redact(subject) != subject:
                return await self._of_key(await self._found(subject), request)
            keys, more = await sample(self._store, subject, _KEYS_SHOWN, self._now())
            return await self._explain(subject, keys, request, more=more)

    async def explain_open(self, limits: Iterable[Limit], address: str | None) -> OpenExplanation:
        """Explain a request to a public rule, as :meth:`Gate.explain_open
        <lockgate.Gate.explain_open>` says."""
        _check_address(address)
        request = _Request(address, None, 1, None, tuple(limits))
        now = self._now()
        with asking(self._events):
            named = await self._outside(request, request.limits, now)
            at = await self._store.now() if now is None else now
        refused = _limits_refuse(named, request.cost)
        return OpenExplanation(at, tuple(named), refused, request.unjudged(None))

    async def _found(self, text: str) -> ApiKey:
        """Return the row of a key by its text, also where this process does not accept the row."""
        token = self._format.parse(text)
        key = await self._store.find(token.handle)
        if key is None:
            raise KeyNotFound
        # A slow password hash is not checked: the handle leads to the row.
        slow = isinstance(token, ImportedToken) and token.legacy.slow_scheme(key.scheme)
        if (
            not slow
            and token.knows_scheme(key.scheme)
            and not token.matches(key.scheme, key.digest)
        ):
            raise KeyNotFound
        return key

    async def _of_key(self, key: ApiKey, request: "_Request") -> Explanation:
        found = await self._explain(key.organization, [key], request, key, more=False)
        own, whole = found.keys[0].refused, found.refused
        # Full windows are judged before the scope (D19).
        first, then = (whole, own) if own and own.code == InsufficientScope.code else (own, whole)
        return replace(found, refused=first or then)

    async def _explain(
        self,
        organization: str,
        keys: Iterable[ApiKey],
        request: "_Request",
        key: ApiKey | None = None,
        *,
        more: bool,
    ) -> Explanation:
        assigned = await self._store.organization(organization)
        now = self._now()
        at = await self._store.now() if now is None else now
        plan = self._plans.plan_of(assigned, at)
        try:
            counted = await self._count(organization, assigned, plan, request, key, now)
        except Exception as failure:
            # Of a database with Redis before it, the database has the keys and the plans.
            if not is_outage(failure):
                raise
            if not isinstance(failure, LockgateError):
                unavailable(self._events, failure)
            counted = self._uncounted(at)
        leases = (await self._store.charge(organization, TO_LIST, now)).slots
        ends = min((lease.deadline for lease in leases), default=None)
        return Explanation(
            organization,
            plan,
            None if assigned is None else assigned.plan,
            counted.at,
            request.cost,
            request.requires,
            counted.windows,
            counted.limits,
            SlotsExplanation(plan.concurrent, len(leases), ends),
            tuple(self._key(one, counted.at, request) for one in keys),
            more,
            counted.refused,
            counted.leased,
            request.unjudged(key),
            counted.unread,
        )

    async def _count(
        self,
        organization: str,
        assigned: Organization | None,
        plan: Plan,
        request: "_Request",
        key: ApiKey | None,
        now: int | None,
    ) -> _Counted:
        """Read the windows of the plan and the named limits, and judge the request by them."""
        temporary = dict(plan.ends)
        whole = await self._store.charge(organization, Peek(plan.windows), now)
        leased = await leases_of(self._store, organization, now)
        out = 0 if leased is None else leased.units
        windows: list[WindowExplanation] = []
        refused: Reason | None = None
        for index, name in enumerate(SPANS):
            shown = await self._window(organization, plan.windows, index, now, request.cost, out)
            if (end := temporary.get(name)) is not None:
                then = getattr(self._plans.plan_of(assigned, end), name)
                shown = _ending(shown, request.cost, end, then)
            windows.append(shown)
            lacks = shown.left is not None and request.cost > max(0, shown.left - out)
            if lacks and (refused is None or _later(shown.until, refused.until)):
                refused = _full(organization, shown, request.cost, out)
        named = [one async for one in self._named(organization, plan, key, now, request.cost)]
        named += await self._budgets(organization, key, max(1, request.cost))
        named += await self._outside(request, self._limits(), now)
        charged = [o for o in named if o.source in ("plan", "key") or o.limit in request.limits]
        refused = _limits_refuse(charged, request.cost, refused)
        full = [
            w.name for w in windows if w.left is not None and request.cost > max(0, w.left - out)
        ]
        if refused is not None and len(full) > 1:
            refused = _with_all(refused, full)
        return _Counted(whole.now, tuple(windows), tuple(named), leased, refused)

    def _uncounted(self, at: int) -> _Counted:
        """Return what applies at an instant while the store of the windows does not answer."""
        if self._falls_back:
            return _Counted(at, unread=f"{_UNREAD} each process decides by limits of its own.")
        cause = f"{_UNREAD} requests with a key are refused."
        reason = Reason(StoreUnavailable.code, None, cause, cause)
        return _Counted(at, refused=reason, unread=cause)

    async def _window(
        self,
        organization: str,
        windows: tuple[Window, ...],
        index: int,
        now: int | None,
        cost: int,
        out: int,
    ) -> WindowExplanation:
        """Read one window, by a peek at which the others have no limit.

        A peek waits for a request of cost 1, so the window has room for the further units of a
        larger one taken away. Units that are out on leases may be free when the next lease ends.
        """
        window = windows[index]
        limit = None if window.limit is None else max(0, window.limit - cost + 1)
        alone = tuple(
            w._replace(limit=limit if i == index else None) for i, w in enumerate(windows)
        )
        reading: Reading = await self._store.charge(organization, Peek(alone), now)
        used = reading.used[index]
        if window.limit is None:
            return WindowExplanation(window.name, None, used, None, None)
        left = max(0, window.limit - used)
        until = reading.reset
        if left < cost:
            until = reading.now + reading.wait
        elif left - out < cost:
            until = min(until, reading.now + reading.wait)
        shown = until if used and window.limit >= cost else None
        return WindowExplanation(window.name, window.limit, used, left, shown)

    async def _named(
        self, organization: str, plan: Plan, key: ApiKey | None, now: int | None, cost: int
    ) -> AsyncIterator[LimitExplanation]:
        """Read the named limits of rules, of the plan and of a key by organization and by key."""
        id, own = (None, ()) if key is None else (key.id, key.limits)
        sources: dict[Limit, Source] = {
            **dict.fromkeys(self._limits(), "rule"),
            **dict.fromkeys(plan.limits, "plan"),
        }
        found: list[tuple[Limit, LimitWindows | None, Source]] = [
            (limit, bound((limit,), id), source) for limit, source in sources.items()
        ]
        for limit, pair in zip(own_limits(own), own, strict=True):
            found.append((limit, bound((), id, (pair,)), "key"))
        for limit, named, source in found:
            if named is not None:
                yield await self._limit(organization, limit, named, source, now, cost)

    async def _outside(
        self, request: "_Request", limits: Iterable[Limit], now: int | None
    ) -> list[LimitExplanation]:
        """Read the limits of rules by address and by user, as far as the request has them."""
        address = None if request.address is None else budget_of(request.address)
        return [
            await self._limit(
                self._subjects.owner(kind, subject),
                limit,
                windows_of((limit,)),
                "rule",
                now,
                request.cost,
            )
            for kind, subject in (("address", address), ("user", request.user))
            if subject is not None
            for limit in limits
            if limit.by == kind
        ]

    async def _limit(
        self,
        owner: str,
        limit: Limit,
        named: LimitWindows,
        source: Source,
        now: int | None,
        cost: int,
    ) -> LimitExplanation:
        """Read each window of a named limit by its own peek, for its wait."""
        windows: list[WindowExplanation] = []
        for place, (field, window) in enumerate(zip(named.fields, named.windows, strict=True)):
            most = named.marks[place] or 0
            room = window._replace(limit=max(0, most - cost + 1))  # A peek has the cost 1.
            quotas = named.quotas[place : place + 1]
            alone = LimitWindows((limit.name,), (field,), (room,), quotas)
            reading = await self._store.charge(owner, Peek((), alone), now)
            left = max(0, most - reading.used[0])
            until = reading.now + reading.wait if left < cost <= most else None
            if any(quotas):
                until = ends_of(alone.at(reading.now, owner).windows[0])
            windows.append(WindowExplanation(window.name, most, reading.used[0], left, until))
        return LimitExplanation(limit, tuple(windows), source)

    async def _budgets(
        self, organization: str, key: ApiKey | None, cost: int
    ) -> list[LimitExplanation]:
        """Read the windows of the limits that holds of this process are taken of."""
        windows: dict[Limit, list[WindowExplanation]] = {}
        for one in await self._holds.usage(organization, None if key is None else key.id, cost):
            left = max(0, one.most - one.used)
            until = one.until if one.period_ends is None else one.period_ends
            shown = WindowExplanation(one.window, one.most, one.used, left, until, one.held)
            windows.setdefault(one.limit, []).append(shown)
        return [LimitExplanation(limit, tuple(all), "hold") for limit, all in windows.items()]

    def _key(self, key: ApiKey, now: int, request: "_Request") -> KeyExplanation:
        state = key.state(now)
        if (why := self._rejected(key)) is not None:
            rejected = Reason(KeyNotFound.code, None, REMEDIES[why], REMEDIES[why])
            return KeyExplanation(key, state, rejected)
        if state is KeyState.ACTIVE:
            return KeyExplanation(key, state, request.refused(key))
        refusal = KeyRevoked if state is KeyState.REVOKED else KeyExpired
        cause = f"The key is {state.value} for good"
        reason = Reason(refusal.code, None, f"{cause}: create another one.", f"{cause}.")
        return KeyExplanation(key, state, reason)

    def _rejected(self, key: ApiKey) -> Rejection | None:
        """Return why this process treats the row of a key as missing."""
        if key.scheme not in self._schemes:
            return rejected_scheme(key.scheme)
        return judge_seal(key, self._format.peppers)

    def _now(self) -> int | None:
        return self._clock() if self._clock else None


class _Request(NamedTuple):
    """The request that is explained."""

    address: str | None
    user: str | None
    cost: int
    requires: Requirement | None
    limits: tuple[Limit, ...]
    """The named limits of its rule."""

    def unjudged(self, key: ApiKey | None) -> tuple[Limit, ...]:
        """Return the limits of its rule whose subject is not given; limits by user count no key."""
        given = {
            "organization": True,
            "key": key is not None,
            "address": self.address is not None,
            "user": self.user is not None or key is not None,
            "function": False,
        }
        return tuple(limit for limit in self.limits if not given[limit.subject])

    def refused(self, key: ApiKey) -> Reason | None:
        """Return why a live key is refused whatever the windows hold."""
        if self.address is not None and key.details and not key.details.allows(self.address):
            cause = (
                f"The key is for {' '.join(key.addresses)} only, and the client is {self.address}"
            )
            remedy = "call from there, or allow this address by 'lockgate keys update --address'."
            return Reason(AddressNotAllowed.code, None, f"{cause}: {remedy}", f"{cause}.")
        lacking = None if self.requires is None else self.requires.lacking(key.scopes)
        if lacking is None:
            return None
        cause = f"The request needs the scope {lacking}, and the key has {' '.join(key.scopes)}"
        remedy = "use another key, or give it the scope by 'lockgate keys update --scope'."
        return Reason(InsufficientScope.code, None, f"{cause}: {remedy}", f"{cause}.")


async def leases_of(store: Store, organization: str, now: int | None) -> LeasesExplanation | None:
    """Return the quota leases of an organization that are out; None: there is none."""
    leases = out(await store.charge(organization, LeasesOut(), now))
    if not leases:
        return None
    return LeasesExplanation(units_out(leases), max(lease.deadline for lease in leases))


def _check_address(address: str | None) -> None:
    if address is not None and read_address(address) is None:
        raise ConfigurationError(f"{address!r} is no IP address.")


def _limits_refuse(
    charged: Iterable[LimitExplanation], cost: int, refused: Reason | None = None
) -> Reason | None:
    """Return the reason that lasts longest: a given one, or a window without room for the cost."""
    for one in charged:
        for window in () if one.limit.soft else one.windows:
            if (window.left or 0) < cost:
                reason = _full_limit(one, window, cost)
                if refused is None or _later(reason.until, refused.until):
                    refused = reason
    return refused


def _later(one: int | None, other: int | None) -> bool:
    return one is None or (other is not None and one > other)


def _full_limit(one: LimitExplanation, window: WindowExplanation, cost: int) -> Reason:
    name, remedy = one.limit.name, _REMEDIES[one.source]
    has = f"The limit {name!r} of the {one.source} has {window.left} of {window.limit} units left"
    # The use of a quota ends with its period, which admits no cost above the limit either.
    until = window.until if cost <= (window.limit or 0) else None
    wait = "wait until then, or " if until is not None else ""
    cause = f"{has} {time_of(window.name)}, and the request costs {cost}"
    return Reason(RateLimitExceeded.code, until, f"{cause}: {wait}{remedy}.", f"{cause}.")


def _ending(window: WindowExplanation, cost: int, end: int, then: int | None) -> WindowExplanation:
    """Return a window whose limit is temporary.

    Args:
        window: as if its limit had no end.
        cost: the cost of the request.
        end: the instant at which the limit ends.
        then: the limit that follows it.
    """
    until, lacks = window.until, window.left is not None and window.left < cost
    if lacks and until is None and (then is None or then >= cost):
        until = end  # Or later: its own units may be in the way then.
    elif lacks and until is not None and (then is None or window.used + cost <= then):
        until = min(until, end)
    return replace(window, until=until, ends=end)


def _with_all(refused: Reason, full: list[str]) -> Reason:
    """Return a reason that names every window without room: raising one of them is not enough."""
    names = " and ".join((", ".join(full[:-1]), full[-1]))
    told = f"The limits of the {names} have no room: raising one of them is not enough."
    advice, cause = f"{refused.advice} {told}", f"{refused.cause} {told}"
    return replace(refused, advice=advice, cause=cause)


def _full(organization: str, window: WindowExplanation, cost: int, out: int) -> Reason:
    """Return the reason for a window without room, beside the units that are out on leases."""
    assert window.limit is not None, "what has no limit is never full"
    name, limit = window.name, window.limit
    option, quoted = f"--rp{name[0]}", quote(organization)
    if limit < cost and window.ends is not None:
        why = "no request" if not limit else f"no request of cost {cost}"
        cause = f"A temporary limit admits {why}: the limit of the {name} is {limit}."
        advice = (
            f"{cause} It ends at {iso8601(window.ends)}: wait until then, or end it by 'lockgate "
            f"orgs limits {quoted} --end'."
        )
    elif limit < cost:
        why = "The plan admits no request" if not limit else f"A request of cost {cost} never fits"
        cause = f"{why}: the limit of the {name} is {limit}."
        advice = (
            f"{cause} Raise it by 'lockgate orgs limits {quoted} {option}', or put the "
            "organization on another plan."
        )
    else:
        needed = "" if cost == 1 else f", and the request costs {cost}"
        by = "" if window.ends is None else ", by a temporary limit"
        leased = f", {out} more are leased to processes" if out else ""
        used = f"{window.used} of {limit} units of the last {name} are used{leased}{needed}{by}"
        cause = f"{used}."
        advice = (
            f"{used}: wait until then, or give it more by 'lockgate orgs limits {quoted} "
            f"{option} +{max(cost, limit // 2)} --until 2h'."
        )
    return Reason(RateLimitExceeded.code, window.until, advice, cause)
