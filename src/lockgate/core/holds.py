"""Holds: units taken now and settled later, when their number is known (D41); slots alike (D26).

A hold counts in full from its grant on. Settling it replaces the units by the used ones, as
a hit at that instant, and the rest is free at once. A hold that is neither settled nor renewed by
its deadline counts as fully used at the deadline.

A *budget* is one window of a :class:`~lockgate.core.limits.Limit` that is charged by holds alone:
the cells of the units used, and beside them the holds that are out. A hold is never a cell in the
future, which a clock that steps back would pull to the present.

Take the last grant before the end of a span of length W. At that grant all units used in the span
are in a cell or in a hold, and it has summed both. So no span has more than the limit (H1), apart
from an overrun, which used more than was held.

A calendar quota has one budget for all of its periods, since a hold may outlast the turn of one.
The units used in a period are one cell at the first instant of the period: settled ones in the
period of the settling, those of a hold past its deadline in the period of the deadline. The holds
that are out count in the present period. So each action brings the calendars of its budgets.

A slot of a job is a hold of one unit in a budget of its own, :data:`SLOTS`. Its window has no
length, so a slot that ends, released or at its deadline, is free at once (L3).

The functions are pure: :func:`apply` takes the budgets of one organization and returns those to
store. The actions apply it to a :class:`~lockgate.core.ledger.Ledger`.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import Final, NamedTuple, TypeAlias

from .budgets import (
    SLOTS,
    UNUSED,
    Budget,
    Count,
    counted_in,
    current,
    in_period,
    total,
    units_of,
    used_in,
)
from .fast_tuples import new_tuple
from .ledger import Ledger
from .limit_hits import FIELDS_AT_MOST
from .limit_windows import PERIOD, LimitWindows, span_of
from .periods import Period, Quota
from .reservations import Reservation, Reservations
from .sliding_window import LARGEST, Window, count_at, counted
from .timestamps import DAY

PREFIX: Final = "hold:"
"""Begins the field of each budget, since rules' limits of the same name are other counts."""
_SLOTS_ALONE: Final = (SLOTS,)
_FITS: Final[tuple[int, ...]] = ()

Quotas: TypeAlias = tuple[Quota | None, ...]
"""The calendar of each budget, its first day a date; None: a sliding window. Empty: all slide."""


class Take(NamedTuple):
    """Takes units of several windows, all or none.

    A hold of this id that is out already is not taken twice, nor a slot, whoever owns it.
    """

    id: str
    limits: LimitWindows
    """The windows, with fields that :func:`budgets` has named."""
    units: tuple[int, ...]
    """Of each window, 1 to :data:`~lockgate.core.sliding_window.LARGEST`."""
    span: int
    """Microseconds until the deadline."""
    most: int
    """The most holds that one window has at a time."""
    owner: str = ""
    """Of a slot."""

    def apply(self, ledger: Ledger, now: int) -> tuple["HoldAnswer", Ledger]:
        """Take the units: see :class:`~lockgate.core.ledger.Action`."""
        return _applied(self, ledger, now)

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of the windows."""
        return self.limits.fields

    @property
    def quotas(self) -> Quotas:
        """The calendars of the windows."""
        return self.limits.quotas


class Settle(NamedTuple):
    """Replaces a hold by the units that were used."""

    id: str
    fields: tuple[str, ...]
    used: tuple[int | None, ...]
    """Of each field, 0 to :data:`~lockgate.core.sliding_window.LARGEST`; None: all that it held."""
    quotas: Quotas = ()
    owner: str = ""
    """Of a slot, which stays if it has another."""

    def apply(self, ledger: Ledger, now: int) -> tuple["HoldAnswer", Ledger]:
        """Settle the hold: see :class:`~lockgate.core.ledger.Action`."""
        return _applied(self, ledger, now)


class Renew(NamedTuple):
    """Moves the deadline of a hold to ``span`` from now."""

    id: str
    fields: tuple[str, ...]
    span: int
    quotas: Quotas = ()
    owner: str = ""
    """As of :class:`Settle`."""

    def apply(self, ledger: Ledger, now: int) -> tuple["HoldAnswer", Ledger]:
        """Renew the hold: see :class:`~lockgate.core.ledger.Action`."""
        return _applied(self, ledger, now)


class Look(NamedTuple):
    """Reads budgets, and changes nothing."""

    limits: LimitWindows
    """As of :class:`Take`."""
    units: tuple[int, ...]
    """Those whose wait is asked for, as of :class:`Take`."""
    most: int
    """As of :class:`Take`."""
    id: str = ""
    """Of no hold."""
    owner: str = ""

    def apply(self, ledger: Ledger, now: int) -> tuple["HoldAnswer", Ledger]:
        """Read the budgets: see :class:`~lockgate.core.ledger.Action`."""
        return _applied(self, ledger, now)

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of the windows."""
        return self.limits.fields

    @property
    def quotas(self) -> Quotas:
        """The calendars of the windows."""
        return self.limits.quotas


HoldAction: TypeAlias = Take | Settle | Renew | Look


def is_of_slots(action: object) -> bool:
    """Return whether an action takes, renews, releases or reads slots."""
    return isinstance(action, HoldAction) and action.fields == _SLOTS_ALONE


class HoldAnswer(NamedTuple):
    """The answer to a :data:`HoldAction`."""

    done: bool
    """Whether the hold was taken, settled or renewed by this call. A hold that ended stays ended:
    settled before, or past its deadline. False after :class:`Look`."""
    now: int
    deadline: int
    """The deadline of a hold that is out, else ``now``."""
    used: tuple[int, ...]
    """The units counted in each window after this call, those of holds included."""
    units: tuple[int, ...]
    """The units of this hold in each window, before it was settled; 0 if it had ended. After
    :class:`Look`, and where :class:`Take` was refused, those of all holds that are out."""
    waits: tuple[int, ...] = ()
    """Of each window, the microseconds after which the units to take fit, if no other hold is taken
    or renewed and each is used in full at its deadline; the span of a window whose limit they
    exceed, or the rest of the period; 0: they fit. Empty: the action takes none."""
    counts: tuple[Count, ...] = ()
    """The units of holds that this call has counted in periods."""
    slots: Reservations = ()
    """After :class:`Take` and :class:`Renew` the slot of this id, after :class:`Look` all that are
    held. Empty for other fields than :data:`SLOTS`."""

    @property
    def slot(self) -> Reservation | None:
        """The slot that the action has taken, found or renewed; None: there is none."""
        return self.slots[0] if self.done and self.slots else None

    @property
    def wait(self) -> int:
        """The longest wait, in microseconds."""
        return max(self.waits, default=0)

    @property
    def refused_by(self) -> int | None:
        """Index of the window with the longest wait; None: none refuses."""
        return self.waits.index(self.wait) if self.wait else None


def slots(limit: int | None) -> LimitWindows:
    """Return the window of slots of which at most ``limit`` are held at a time."""
    most = LARGEST if limit is None else limit
    return LimitWindows(("slots",), (SLOTS,), (Window("slots", 0, most, 0),))


@lru_cache(4096)
def budgets(limits: LimitWindows) -> LimitWindows:
    """Return the windows of limits under the fields of budgets.

    That of a calendar quota names the kind of period, apart from a sliding window of its length.
    """
    fields = [PREFIX + field for field in limits.fields]
    for place, quota in enumerate(limits.quotas):
        if quota is not None:
            fields[place] = fields[place].replace(" ", f"{PERIOD}{quota.unit} ", 1)
    return limits._replace(fields=tuple(fields))


def name_of(field: str) -> str:
    """Return the name of the limit that has the budget of a field."""
    return field.removeprefix(PREFIX).split(" ", 1)[0].partition(PERIOD)[0]


def apply(
    action: HoldAction, before: Sequence[Budget | None], now: int, fields: int = 0
) -> tuple[HoldAnswer, tuple[Budget, ...]]:
    """Take, settle or renew a hold, or read budgets.

    Args:
        action: what to do.
        before: the budget of each of its fields, None where there is none yet.
        now: the instant, in microseconds.
        fields: the number of budgets that the organization has; that of its slots is none of them.

    Returns:
        The answer, and the budgets to keep: also those of a refusal may differ from before, since
        holds have ended.
    """
    id, quotas = action.id, action.quotas
    kept, counts = _present(action.fields, quotas, before, now)
    periods = [None if quota is None else quota.period(now) for quota in quotas] if quotas else None
    is_of_owner = isinstance(action, Settle | Renew)
    mine: list[Reservation | None] = []
    of_mine: list[int] = []
    is_out, deadline, waits = False, now, _FITS
    for budget in kept:
        held = _of_id(budget.held, id) if budget.held else None
        if is_of_owner and held is not None and held.owner != action.owner:
            held = None
        mine.append(held)
        if held is None:
            of_mine.append(0)
        else:
            of_mine.append(held.units)
            is_out, deadline = True, held.deadline if held.deadline > deadline else deadline
    units = tuple(of_mine)
    if isinstance(action, Take):
        if not is_out:
            waits = _waits(action, before, kept, now, fields)
            is_out = not any(waits)
            if is_out:
                units, deadline = action.units, now + action.span
                _take(action, kept, deadline)
            else:
                units = tuple([units_of(budget.held) for budget in kept])
    elif isinstance(action, Settle):
        counts += _settle(action, mine, kept, periods, now)
    elif isinstance(action, Renew):
        deadline = _renew(action, mine, kept, now)
    else:
        counts = []
        units = tuple([units_of(budget.held) for budget in kept])
        waits = _waits(action, before, kept, now, fields)
    used = tuple(map(total, kept, periods) if periods else map(total, kept))
    shown = _slots(action, kept) if action.fields == _SLOTS_ALONE else ()
    answer = is_out, now, deadline, used, units, waits, tuple(counts), shown
    return new_tuple(HoldAnswer, answer), tuple(kept)


def changed(
    action: HoldAction, before: Sequence[Budget | None], after: Sequence[Budget]
) -> list[tuple[str, Budget]]:
    """Return the fields whose budgets have changed, with the new ones."""
    if isinstance(action, Look):
        return []
    found: list[tuple[str, Budget]] = []
    for index, field in enumerate(action.fields):
        old, new = before[index], after[index]
        if new is not old and new != (old or UNUSED):
            found.append((field, new))
    return found


def _applied(action: HoldAction, ledger: Ledger, now: int) -> tuple[HoldAnswer, Ledger]:
    """Apply an action to the budgets of a ledger; drop those that have counted nothing for a day
    (W10), where the clock may step back."""
    before = [ledger.budgets.get(field) for field in action.fields]
    kept = ledger.others + len(ledger.budgets) - (SLOTS in ledger.budgets)
    answer, after = apply(action, before, now, 0 if is_of_slots(action) else kept)
    new = changed(action, before, after)
    if not new:
        return answer, ledger
    budgets = {**ledger.budgets, **dict(new)}
    idle = [field for field, one in budgets.items() if one.last <= now - span_of(field) - DAY]
    for field in idle:
        del budgets[field]
    return answer, ledger._replace(budgets=budgets)


def _present(
    fields: Sequence[str], quotas: Quotas, before: Sequence[Budget | None], now: int
) -> tuple[list[Budget], list[Count]]:
    """Return budgets as they are at ``now``, and the units that this counts in periods."""
    budgets: list[Budget] = []
    counts: list[Count] = []
    for index, field in enumerate(fields):
        budget, span = before[index] or UNUSED, span_of(field)
        if quotas and (quota := quotas[index]) is not None:
            budget, new = in_period(budget, index, quota, span, now)
            counts += new
        else:
            budget = current(budget, span, now)
        budgets.append(budget)
    return budgets, counts


def _of_id(holds: Reservations, id: str) -> Reservation | None:
    for one in holds:
        if one.id == id:
            return one
    return None


def _slots(action: HoldAction, budgets: Sequence[Budget]) -> Reservations:
    """Return the slots to answer."""
    held = budgets[0].held
    if isinstance(action, Look):
        return held
    one = _of_id(held, action.id)
    return () if one is None else (one,)


def _waits(
    action: Take | Look,
    before: Sequence[Budget | None],
    kept: Sequence[Budget],
    now: int,
    fields: int,
) -> tuple[int, ...]:
    """Return the microseconds after which units fit each window."""
    crowded = None in before and fields + before.count(None) > FIELDS_AT_MOST
    _, _, windows, quotas = action.limits
    waits: list[int] = []
    for index, units in enumerate(action.units):
        budget, window = kept[index], windows[index]
        if quotas and (quota := quotas[index]) is not None:
            wait = _wait_for_period(budget, quota, window.limit, units, now)
        else:
            wait = _wait(budget, window, units, now)
        held = budget.held
        if held and len(held) >= action.most:
            wait = max(wait, min(one.deadline for one in held) - now)
        if crowded and before[index] is None:
            wait = max(wait, DAY)
        waits.append(wait)
    return tuple(waits)


def _wait(budget: Budget, window: Window, units: int, now: int) -> int:
    """Return the microseconds after which units fit a window, 0 if they fit now."""
    limit = window.limit
    assert limit is not None, "each window of a named limit has one"
    excess = total(budget) + units - limit
    if excess <= 0:
        return 0
    if units > limit:
        return max(1, window.span)
    held = sorted((one.deadline, one.units) for one in budget.held)
    for instant, count in chain(counted(budget.cells), held):
        excess -= count
        if excess <= 0:
            return instant + window.span - now
    raise AssertionError("all that is counted ends")


def _wait_for_period(budget: Budget, quota: Quota, limit: int | None, units: int, now: int) -> int:
    """Return the microseconds after which units fit a calendar quota, 0 if they fit now.

    A hold that is past its deadline within the period stays used in it, and one that outlasts the
    period counts in the next: of both, none leaves before a period ends.
    """
    period = quota.period(now)
    if limit is None or total(budget, period) + units <= limit:
        return 0
    following = quota.period(period.ends)
    carried = sum(one.units for one in budget.held if one.deadline >= period.ends)
    is_late = units <= limit < used_in(budget, following) + carried + units
    return (following if is_late else period).ends - now


def _take(action: Take, budgets: list[Budget], deadline: int) -> None:
    id, limits, units, span, _, owner = action
    for index, window in enumerate(limits.windows):
        cells, held, _ = budgets[index]
        mine = new_tuple(Reservation, (id, units[index], deadline, span, owner))
        budgets[index] = new_tuple(Budget, (cells, (*held, mine), window.grain))


def _settle(
    action: Settle,
    mine: Sequence[Reservation | None],
    budgets: list[Budget],
    periods: Sequence[Period | None] | None,
    now: int,
) -> list[Count]:
    """Replace a hold by the units used; return those that this counts in periods."""
    counts: list[Count] = []
    for index, one in enumerate(mine):
        if one is None:
            continue
        (cells, held, grain), units = budgets[index], action.used[index]
        held = tuple([other for other in held if other is not one]) if len(held) > 1 else ()
        if periods and (period := periods[index]) is not None:
            used = period.begins, one.units if units is None else units
            budgets[index], new = counted_in(Budget(cells, held, grain), index, [used])
            counts += new
            continue
        if units is None:
            units = one.units
        elif units > one.units:
            units = min(units, LARGEST - cells[0] - units_of(held))
        budgets[index] = new_tuple(Budget, (count_at(cells, grain, now, units), held, grain))
    return counts


def _renew(
    action: Renew, mine: Sequence[Reservation | None], budgets: list[Budget], now: int
) -> int:
    """Move the deadline of a hold, and return it; ``now`` if the hold is not out."""
    deadline = now
    for index, one in enumerate(mine):
        if one is not None:
            renewed = one._replace(deadline=now + action.span, span=action.span)
            held = tuple(renewed if other is one else other for other in budgets[index].held)
            budgets[index] = budgets[index]._replace(held=held)
            deadline = renewed.deadline
    return deadline
