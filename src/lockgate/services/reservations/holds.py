"""Holds of a gate: take units now, settle them when their number is known (D41)."""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Literal, NamedTuple

from ...clock import Clock
from ...core.api_keys import ApiKey
from ...core.hold_ids import HoldId
from ...core.holds import (
    HoldAnswer,
    Look,
    Take,
    budgets,
)
from ...core.limit_windows import LimitWindows, ends_of
from ...core.limits import Limit, bound, check_limits, check_names
from ...core.plans import ID_MAX_LENGTH, is_id, is_whole
from ...core.sealed_texts import TextSeal
from ...core.sliding_window import LARGEST
from ...core.timestamps import SECOND, whole_seconds
from ...core.usage_history import kind_of_limit
from ...errors import (
    ConfigurationError,
    InvalidRequest,
    Problem,
    RateLimitExceeded,
    StoreUnavailable,
)
from ...events import Events, OnceAMinute
from ...options import StoreOptions
from ...principal import Principal
from ...stores.base import Store
from ..store_errors import asking
from ..usage.recorder import UsageRecorder
from .hold_block import Hold
from .settlements import Settlements

Caller = Principal | str
"""The caller that holds units: a principal, or the id of an organization."""

_UNCOUNTED: Final = (
    "The caller has no key, so no limit counts what it holds: hold units of a limit by "
    "organization beside those by key."
)
_NO_WINDOWS: Final = LimitWindows((), (), ())


class TakenHold(NamedTuple):
    """A hold that :meth:`Holds.take` took."""

    id: str
    """A text by which any process with a pepper of this one can renew and settle it. It is sealed,
    so a client may keep it; without a pepper, this process and its forks accept it."""
    units: Mapping[str, int]
    """The units held, by the name of their limit."""
    seconds: float
    """Until the deadline, from the taking on."""


class BudgetUsage(NamedTuple):
    """What is counted in one window of a limit that holds are taken of."""

    limit: Limit
    window: str
    """The window, as ``limits.type`` of a refusal names it."""
    most: int
    """The most units of the window, or of the period; a soft quota takes more."""
    used: int
    """The units used, and those that are held."""
    held: int
    """The units of the holds that are out."""
    until: int | None
    """The instant in microseconds at which the units that were asked about fit, if no other hold is
    taken or renewed; None: they fit now, or never do."""
    period_ends: int | None
    """The instant in microseconds at which the present period of a calendar quota ends; None: a
    sliding window."""


class Holds(Settlements):
    """The holds of a gate, as ``gate.holds``.

    Units of named limits are taken before work whose cost is not known, as the most that it can
    use, and settled when it is. A hold that is neither settled nor renewed by its deadline counts
    as used in full: so what a dead worker held is never used twice.
    """

    def __init__(
        self,
        store: Store,
        options: StoreOptions,
        clock: Clock | None,
        events: Events,
        pair: Callable[[Literal["async", "sync"]], None],
        recorder: UsageRecorder | None,
        seal: TextSeal,
        rules: Callable[[], Iterable[Limit]],
    ) -> None:
        super().__init__(store, options, clock, events, pair, recorder, seal)
        self._at_most = options.hold_at_most
        self._rules = rules
        self._uncounted: Final = OnceAMinute()
        self.limits: Mapping[str, Limit] = {}
        """The limits that holds of this process are taken of, by name: those of the options, and
        those of earlier holds."""
        self._learn(options.hold_limits)

    async def take(
        self, caller: Caller, units: Mapping[Limit, int], *, seconds: float | None = None
    ) -> TakenHold:
        """Take units of several limits, all or none, until they are settled.

        Args:
            caller: the calling principal, or the organization's id. A limit by key counts for the
                principal's key, and is left out for the principal of a session. Where that leaves
                none, the event ``hold_uncounted`` says so, once a minute.
            units: the most that the work can use, by limit: 1 to 2**53 - 1 each. A limit of 0
                units is left out, beside others. Check numbers of clients before.
            seconds: until the deadline, up to an hour; None: that of
                :class:`~lockgate.options.StoreOptions`.

        Raises:
            RateLimitExceeded: the units do not fit a limit, or as many holds are out as may be.
            InvalidRequest: the organization's id is malformed.
            ConfigurationError: the limits, the units or the seconds are not as above, a limit is by
                key and the caller an id, or a rule has a limit of the same name.
            StoreUnavailable: the store did not answer.
        """
        lasts = self._lasts(seconds)
        self._check(units)
        key = caller.key if isinstance(caller, Principal) else None
        organization = _organization(
            caller.organization if isinstance(caller, Principal) else caller
        )
        untaken = tuple(limit.name for limit, number in units.items() if not number)
        unbound = tuple(one.name for one in units if key is None and one.by == "key")
        taken = tuple(units) if not untaken else tuple(one for one in units if units[one])
        if unbound and not isinstance(caller, Principal):
            raise ConfigurationError(
                f"The limit {unbound[0]!r} is by key, and the caller is the id of an organization, "
                "which has no key to count for: pass the principal, as gate.hold(caller, ...), or "
                "hold units of limits by organization."
            )
        found = bound(taken, None if key is None else key.id)
        named = _NO_WINDOWS if found is None else budgets(found).of(organization)
        by_name = {limit.name: number for limit, number in units.items()}
        asked = tuple(by_name[name] for name in named.names)
        if found is None and self._uncounted.is_due():
            self._events.emit(
                "hold_uncounted",
                logging.WARNING,
                organization=organization,
                limit_name=unbound[0],
                remedy=_UNCOUNTED,
            )
        handle = None if key is None else key.handle
        id = HoldId.new(organization, named.fields, named.quotas, unbound, untaken, handle)
        action = Take(id.secret, named, asked, int(lasts * SECOND), self._at_most)
        answer = await self._ask(id, action)
        if not answer.done:
            raise self._refused(organization, key, _refusal(named, asked, answer))
        return TakenHold(
            id.written(self._seal), {name: by_name[name] for name in named.names}, lasts
        )

    async def charge(self, caller: Caller, units: Mapping[Limit, int]) -> None:
        """Take units and settle them as used: :meth:`Gate.charge <lockgate.Gate.charge>`."""
        taken = await self.take(caller, units)
        try:
            await self.settle(taken.id)
        except (
            StoreUnavailable
        ):  # They are counted, and used in full at the deadline at the latest.
            self.late.add(taken.id, None, taken.seconds)

    def _refused(
        self, organization: str, key: ApiKey | None, refusal: RateLimitExceeded
    ) -> RateLimitExceeded:
        """Emit the event of a hold that does not fit, count the refusal, and return it."""
        name = refusal.limit_name
        assert name is not None, "a hold is of named limits"
        self._events.emit(
            "hold_refused", organization=organization, limit_name=name, units=refusal.cost
        )
        if self._recorder is not None:
            handle = None if key is None else key.handle
            self._recorder.refuse(organization, handle, kind_of_limit(name), refusal.code)
        return refusal

    def hold(
        self, caller: Caller, units: Mapping[Limit, int], *, seconds: float | None = None
    ) -> Hold:
        """Return the context manager of :meth:`Gate.hold <lockgate.Gate.hold>`."""

        async def begin() -> str:
            return (await self.take(caller, units, seconds=seconds)).id

        return Hold(self, begin, self._lasts(seconds), is_new=True)

    def resume(self, id: str, *, seconds: float | None = None) -> Hold:
        """Return a context manager for a hold that :meth:`take` took, in this process or another.

        The hold is renewed while the block runs, and settled at its end. It need not be out any
        more: then all its units are used, the block runs, and :attr:`Hold.lost` says so.

        Raises:
            InvalidRequest: the id is not as :meth:`take` returned it.
            ConfigurationError: the seconds are not up to an hour.
        """
        self.read(id)

        async def begin() -> str:
            return id

        return Hold(self, begin, self._lasts(seconds), is_new=False)

    async def usage(
        self, organization: str, key: str | None = None, units: int = 1
    ) -> tuple[BudgetUsage, ...]:
        """Return what is used and held of each of :attr:`limits`, and change nothing.

        Args:
            organization: the organization's id.
            key: the id of one of its keys; None leaves out the limits by key.
            units: the units of each limit whose :attr:`BudgetUsage.until` is asked for, 1 to
                2**53 - 1.

        Raises:
            InvalidRequest: the organization's id is malformed.
            ConfigurationError: ``key`` is no text, or ``units`` is not as above.
            StoreUnavailable: the store did not answer.
        """
        organization = _organization(organization)
        if key is not None and not isinstance(key, str):  # pyright: ignore[reportUnnecessaryIsInstance] - from a caller
            raise ConfigurationError(f"key is the id of a key, such as caller.key.id, not {key!r}.")
        if not is_whole(units) or not 1 <= units <= LARGEST:
            raise ConfigurationError(f"units is {units!r}: ask about 1 to 2**53 - 1.")
        limits = self.limits
        found = bound(tuple(limits.values()), key)
        if found is None:
            return ()
        with asking(self._events):
            named = budgets(found).of(organization)
            look = Look(named, (units,) * len(named.fields), self._at_most)
            answer = await self._store.charge(organization, look, self._now())
        rows: list[BudgetUsage] = []
        for place, window in enumerate(named.at(answer.now).windows):
            wait = answer.waits[place]
            never_fits = window.limit is not None and window.limit < units
            rows.append(
                BudgetUsage(
                    limits[named.names[place]],
                    window.name,
                    named.marks[place] or 0,
                    answer.used[place],
                    answer.units[place],
                    None if never_fits or not wait else answer.now + wait,
                    ends_of(window),
                )
            )
        return tuple(rows)

    def refuse_names(self, limits: Iterable[Limit]) -> None:
        """Refuse limits of rules that have the name of one that holds are taken of.

        Raises:
            ConfigurationError: the two would be counted apart.
        """
        for rule in limits:
            if rule.name in self.limits:
                raise _counted_apart(rule)

    async def flush(self) -> None:
        """Wait for blocks that end, and send the settlements that the store has not answered."""
        await self.finishing.flush()
        await self.late.flush()

    async def close(self) -> None:
        """Settle as :meth:`flush` does, for the last time."""
        await self.finishing.flush()
        await self.late.close()

    def _check(self, units: Mapping[Limit, int]) -> None:
        """Check limits and units, and that no limit has the name of another."""
        if not units or not isinstance(units, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - from a caller
            shown = str(units) if isinstance(units, Limit) else repr(units)
            raise ConfigurationError(
                f"A hold takes units by limit, not {shown}: write "
                "gate.hold(caller, {TOKENS: 4096})."
            )
        check_limits(tuple(units), "A hold has")
        least = 0 if any(units.values()) else 1
        for limit, number in units.items():
            if not is_whole(number) or not least <= number <= LARGEST:
                raise ConfigurationError(
                    f"A hold takes {number!r} units of {limit.name!r}: use 1 to 2**53 - 1, and at "
                    "least 1 of one of its limits. If the number is from a request, check it "
                    "before the hold, and answer 400."
                )
        if any(self.limits.get(limit.name) is not limit for limit in units):
            self._learn(units)

    def _learn(self, limits: Iterable[Limit]) -> None:
        """Learn limits that holds are taken of.

        Raises:
            ConfigurationError: one is of a subject that no hold has, or has the name of another.
        """
        for limit in limits:
            if not limit.is_inside:
                raise ConfigurationError(
                    f"A hold has the limit {limit}: it takes units by organization or by key."
                )
        ours = check_names((*self.limits.values(), *limits))
        for rule in self._rules():
            if rule.name in ours:
                raise _counted_apart(rule)
        self.limits = ours


def _organization(given: object) -> str:
    """Return the id of an organization.

    Raises:
        InvalidRequest: it is malformed.
    """
    if not is_id(given):
        problem = f"Use the organization's id, a text of 1 to {ID_MAX_LENGTH} characters."
        raise InvalidRequest([Problem("organization", problem)])
    return given


def _counted_apart(rule: Limit) -> ConfigurationError:
    return ConfigurationError(
        f"A rule or a plan charges each request for the limit {rule.name!r}, which would count "
        "apart from the holds of that name: rename one."
    )


def _refusal(named: LimitWindows, asked: tuple[int, ...], answer: HoldAnswer) -> RateLimitExceeded:
    """Return the refusal of a hold; units above a limit are never admitted (D39)."""
    index = answer.refused_by
    assert index is not None, "only a refusal has a refusing window"
    for place, (window, units) in enumerate(zip(named.windows, asked, strict=True)):
        if window.limit is not None and window.limit < units:
            index = place
    window, most = named.windows[index], named.marks[index]
    assert most is not None, "each window of a named limit has one"
    wait = answer.wait
    if window.limit is not None and window.limit < asked[index]:
        # The rest of a calendar period, else the whole window.
        present = named.at(answer.now).windows[index]
        wait = (ends_of(present) or answer.now + present.span) - answer.now
    retry_after = max(1, whole_seconds(wait))
    told = most, answer.used[index], retry_after, asked[index]
    return RateLimitExceeded(window.name, *told, named.names[index], held=answer.units[index])
