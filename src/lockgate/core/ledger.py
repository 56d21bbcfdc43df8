"""The ledger of an organization, and the actions that it is changed by.

A ledger has all that is counted for an organization: the windows of its plan, the quota leases
and the promises beside them, the cells of its named limits, and the budgets of holds and slots. An
action is data, and its :meth:`Action.apply` is the rule: a pure function of a ledger and an
instant. A store loads the part of a ledger that an action needs, applies the action and keeps the
result, in one atomic step; so another kind of reservation is another action, and no method of any
store.

The actions are those here and those of :mod:`lockgate.core.holds`:

====================  =========================================================================
:class:`Hit`          admits a cost in the windows of a plan and of named limits, or refuses it
:class:`HitLeased`    settles quota leases, admits a cost and grants a lease
:class:`Peek`         reads the windows
:class:`LeasesOut`    reads the quota leases
:class:`Reset`        empties windows, named limits and budgets
``Take``              takes a hold or a slot
``Settle``            ends it
``Renew``             moves its deadline
``Look``              reads the budgets of holds, or the slots
====================  =========================================================================
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol, TypeVar

from .budgets import SLOTS, Budget
from .changes import ChangeDraft
from .fast_tuples import new_tuple
from .limit_hits import changed_fields, crowded, hit_limited, peek_limited, put_fields
from .limit_windows import LimitWindows
from .promises import beside, hit_beside, lasting
from .quota_leases import (
    LeaseRequest,
    Settlement,
    current,
    first_end,
    granted,
    hit_leased,
    live,
    lowered,
    until_settled,
)
from .reservations import Reservation, Reservations
from .sliding_window import Cells, Reading, State, Window, empty_state, hit, peek

A_co = TypeVar("A_co", covariant=True)


class Ledger(NamedTuple):
    """The ledger of an organization, or the part of it that an action needs."""

    owner: str = ""
    """The organization, for the calendars that the host gives each."""
    windows: State = ()
    """The cells of the plan's windows; empty: nothing was counted yet."""
    leases: Reservations = ()
    """The quota leases (:mod:`lockgate.core.quota_leases`)."""
    limits: Mapping[str, Cells] = {}
    """The cells of named limits by field, the latest hit last."""
    budgets: Mapping[str, Budget] = {}
    """The budgets of holds and slots by field (:mod:`lockgate.core.holds`)."""
    others: int = 0
    """The number of fields that are kept and not given here: of the action's kind, named limits or
    budgets; of both where the store counts them together."""
    promises: Reservations = ()
    """The units kept for callers that return (:mod:`lockgate.core.promises`), by their starts."""


class Action(Protocol[A_co]):
    """A call to a ledger, with its answer."""

    def apply(self, ledger: Ledger, now: int) -> tuple[A_co, Ledger]:
        """Return the answer and the ledger to keep: the same object if it does not change.

        Args:
            ledger: with all fields that the action names, as far as they are kept.
            now: the instant, in microseconds.
        """
        ...


class Hit(NamedTuple):
    """Admits a cost in every window at once, or in none (D20, D40)."""

    windows: tuple[Window, ...]
    """Those of the plan that holds now; empty: only ``limits`` are charged."""
    cost: int
    """Units, 1 to :data:`~lockgate.core.sliding_window.LARGEST`."""
    limits: LimitWindows | None = None
    """The windows of named limits; the periods of calendar quotas are those of the instant."""

    def apply(self, ledger: Ledger, now: int) -> tuple[Reading, Ledger]:
        """Return the reading, as :func:`~lockgate.core.limit_hits.hit_limited` has it."""
        windows, cost, limits = self
        owner, state, leases, cells, budgets, others, promises = ledger
        if limits is not None or leases or promises or not windows:
            (reading, _), ledger = _hit(ledger, now, windows, cost, limits)
            return reading, ledger
        state = state or empty_state(windows)
        reading, after = hit(state, windows, now, cost)
        if after is not state:
            ledger = new_tuple(Ledger, (owner, after, leases, cells, budgets, others, ()))
        return reading, ledger


class Leased(NamedTuple):
    """The answer to :class:`HitLeased`."""

    reading: Reading
    """In which a granted lease is not counted."""
    lease: Reservation | None
    """The lease that was granted; of a refusal, the promise."""


class HitLeased(NamedTuple):
    """Settles quota leases, admits a cost as :class:`Hit` does, and grants a lease (D42) or, with a
    refusal, a promise (D47).

    Neither is granted where named limits are charged, and no lease beside promises.
    """

    windows: tuple[Window, ...]
    cost: int
    """Units; 0: settle only."""
    request: LeaseRequest | None
    """The leases to settle, and the one to grant; None: neither."""
    limits: LimitWindows | None = None
    holder: str = ""
    """The id of the key that uses a promise, and to which a refusal promises units; empty: for
    none. Units that are promised to others are left in either case."""

    def apply(self, ledger: Ledger, now: int) -> tuple[Leased, Ledger]:
        """Return the reading and the lease."""
        windows, cost, request, limits, holder = self
        if cost and request is None and not (ledger.leases or ledger.promises):
            # Without a refusal as of any other hit, which takes fewer steps.
            reading, after = Hit(windows, cost, limits).apply(ledger, now)
            if reading.allowed:
                return Leased(reading, None), after
        if cost:
            return _hit(ledger, now, windows, cost, limits, request, holder)
        ledger = _settled(ledger, windows, now, request)
        reading, _ = Peek(windows).apply(ledger, now)
        return Leased(reading, None), ledger


def settling(windows: tuple[Window, ...], settled: Iterable[Settlement]) -> HitLeased:
    """Return the action that settles quota leases and does nothing else.

    Leases that are unknown or past their deadline are ignored, so it may be repeated.
    """
    return HitLeased(windows, 0, LeaseRequest("", 0, 0, tuple(settled)))


class Peek(NamedTuple):
    """Reads what a hit of one unit would, and changes nothing (W5)."""

    windows: tuple[Window, ...]
    limits: LimitWindows | None = None

    def apply(self, ledger: Ledger, now: int) -> tuple[Reading, Ledger]:
        """Return the reading."""
        windows, limits = self
        state, leases = _state(ledger, windows), ledger.leases if windows else ()
        state, leases = current(state, leases, windows, now)
        left = beside(state, ledger.promises, lowered(windows, leases), now)
        if limits is None:
            return until_settled(peek(state, left, now), leases), ledger
        limits = limits.at(now, ledger.owner)
        cells = [ledger.limits.get(field) for field in limits.fields]
        return peek_limited(
            state,
            left,
            cells,
            limits.windows,
            now,
            first_end=first_end(leases),
        ), ledger


class LeasesOut(NamedTuple):
    """Reads the quota leases, in the order of their grants."""

    in_use: bool = False
    """Whether to leave out those of which the store knows that their holder has sent the
    settlement. A ledger does not know."""

    def apply(self, ledger: Ledger, now: int) -> tuple[Reservations, Ledger]:
        """Return those that are out, and without units those that ended unsettled lately."""
        return live(ledger.leases, now), ledger


class Reset(NamedTuple):
    """Empties the windows, the named limits and the budgets of holds, and drops promises.

    Slots and quota leases stay: the units of a lease count until it ends, and the used ones for the
    window after.
    """

    change: ChangeDraft | None = None
    """The record of the change log, which the store adds in the same step."""

    def apply(self, ledger: Ledger, now: int) -> tuple[None, Ledger]:
        """Return the ledger without what was counted."""
        kept = {field: one for field, one in ledger.budgets.items() if field == SLOTS}
        return None, Ledger(ledger.owner, leases=ledger.leases, budgets=kept)


def change_of(action: object) -> ChangeDraft | None:
    """Return the record that a store adds to the change log with an action, if there is one."""
    return action.change if isinstance(action, Reset) else None


def called(action: object) -> str:
    """Return the name of the kind of an action, as metrics and tests have it: ``hit``."""
    return type(action).__name__.lower()


def is_urgent(action: object) -> bool:
    """Return whether requests wait for the answer: a wrapper gives the call their deadline."""
    return not isinstance(action, LeasesOut | Reset)


def voids(action: object) -> bool:
    """Return whether earlier answers about the organization may be wrong after an action, as
    :attr:`Commit.voids <lockgate.stores.rows.Commit.voids>` says of a commit (W13)."""
    return isinstance(action, Reset)


def _hit(
    ledger: Ledger,
    now: int,
    windows: tuple[Window, ...],
    cost: int,
    limits: LimitWindows | None,
    request: LeaseRequest | None = None,
    holder: str = "",
) -> tuple[Leased, Ledger]:
    if limits is None and windows and (holder or ledger.promises):
        return _hit_beside(ledger, now, windows, cost, request, holder)
    state = _state(ledger, windows)
    if limits is None:
        before = ledger.leases
        reading, after, leases, lease = hit_leased(state, before, windows, now, cost, request)
        if after is not state or leases is not before:
            ledger = ledger._replace(windows=after, leases=leases)
        return Leased(reading, lease), ledger
    if windows:
        ledger = _settled(ledger, windows, now, request)
        state = _state(ledger, windows)
    leases, promises = (ledger.leases, lasting(ledger.promises, now)) if windows else ((), ())
    limits = limits.at(now, ledger.owner)
    cells = [ledger.limits.get(field) for field in limits.fields]
    reading, after, counted = hit_limited(
        state,
        beside(state, promises, lowered(windows, leases), now),
        cells,
        limits.windows,
        now,
        cost,
        crowded(cells, ledger.others + len(ledger.limits)),
        first_end(leases),
    )
    if windows and (after is not state or promises is not ledger.promises):
        ledger = ledger._replace(windows=after, promises=promises)
    if changed := changed_fields(limits, cells, counted):
        kept = {**ledger.limits}
        put_fields(kept, changed, now)
        ledger = ledger._replace(limits=kept)
    return Leased(reading, None), ledger


def _hit_beside(
    ledger: Ledger,
    now: int,
    windows: tuple[Window, ...],
    cost: int,
    request: LeaseRequest | None,
    holder: str,
) -> tuple[Leased, Ledger]:
    """Admit a cost beside promises, and promise it to a holder that is refused."""
    ledger = _settled(ledger, windows, now, request)
    state, leases, before = _state(ledger, windows), ledger.leases, ledger.promises
    charged = lowered(windows, leases), now, cost, holder
    reading, after, promises, granting = hit_beside(state, before, *charged)
    if request and reading.allowed and not promises:
        granting = granted(leases, windows, reading, request)
        leases = leases if granting is None else (*leases, granting)
    answer = Leased(until_settled(reading, ledger.leases), granting)
    if after is not state or leases is not ledger.leases or promises is not before:
        ledger = ledger._replace(windows=after, leases=leases, promises=promises)
    return answer, ledger


def _settled(
    ledger: Ledger, windows: tuple[Window, ...], now: int, request: LeaseRequest | None
) -> Ledger:
    """Settle quota leases, and count those past their deadline."""
    if not ledger.leases:
        return ledger
    settled = request.settled if request else ()
    state, leases = current(_state(ledger, windows), ledger.leases, windows, now, settled)
    return ledger._replace(windows=state, leases=leases)


def _state(ledger: Ledger, windows: tuple[Window, ...]) -> State:
    """Return the state of the windows; empty before the first hit."""
    return (ledger.windows or empty_state(windows)) if windows else ()
