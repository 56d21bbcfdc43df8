"""Holds: units taken now and settled later, when their number is known (D41).

A hold counts in full from its grant on. Settling it replaces the units by the used ones, as
a hit at that instant, and the rest is free at once. A hold that is neither settled nor renewed by
its deadline counts as fully used at the deadline.

A *budget* is one window of a :class:`~lockgate.core.limits.Limit` that is charged by holds alone:
the cells of the units used, and beside them the holds that are out. A hold is never a cell in the
future, which a clock that steps back would pull to the present.

Take the last grant before the end of a span of length W. At that grant all units used in the span
are in a cell or in a hold, and it has summed both. So no span has more than the limit (H1), apart
from an overrun, which used more than was held.

The functions are pure: :func:`apply` takes the budgets of one organization and returns those to
store; a store applies it atomically.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from struct import Struct
from typing import Final, NamedTuple, Self, TypeAlias

from .limit_hits import FIELDS_AT_MOST
from .limit_windows import LimitWindows, span_of
from .sliding_window import EMPTY, LARGEST, Cells, Window, count_at, counted, pruned
from .timestamps import DAY

PREFIX: Final = "hold:"
"""Begins the field of each budget, since rules' limits of the same name are other counts."""

_FORMAT: Final = 1
_HEAD: Final = Struct("<BqqqqqqI")
_HELD: Final = Struct("<16sqqq")


class Held(NamedTuple):
    """The part of a hold that is in one budget."""

    id: str
    """32 hexadecimal digits."""
    units: int
    deadline: int
    """The instant from which on the units are used, in microseconds."""
    span: int
    """The span of its last grant; no deadline lies further ahead than this."""


class Budget(NamedTuple):
    """The state of one window that holds are charged to."""

    cells: Cells = EMPTY
    held: tuple[Held, ...] = ()
    grain: int = 0
    """Of the window that the latest hold was taken of, in microseconds."""

    @property
    def last(self) -> int:
        """The instant from which on nothing more is counted in it."""
        return max([self.cells[3], *(one.deadline for one in self.held)])

    def written(self) -> bytes:
        """Return the budget as bytes."""
        *cells, older = self.cells
        parts = [_HEAD.pack(_FORMAT, *cells, self.grain, len(self.held))]
        parts += (_HELD.pack(bytes.fromhex(one.id), *one[1:]) for one in self.held)
        return b"".join((*parts, older))

    @classmethod
    def read(cls, value: bytes) -> Self:
        """Decode the bytes of :meth:`written`.

        Raises:
            ValueError, struct.error: the bytes are damaged, or from another version of lockgate.
        """
        format, used, oldest, first, last, count, grain, number = _HEAD.unpack_from(value)
        ends = _HEAD.size + number * _HELD.size
        if format != _FORMAT or len(value) < ends:
            raise ValueError(f"A budget of {len(value)} bytes has format {format}, {number} holds.")
        rows = _HELD.iter_unpack(value[_HEAD.size : ends])
        held = tuple(Held(id.hex(), *numbers) for id, *numbers in rows)
        return cls((used, oldest, first, last, count, value[ends:]), held, grain)


class Take(NamedTuple):
    """Takes units of several windows, all or none.

    A hold of this id that is out already is not taken twice.
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

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of the windows."""
        return self.limits.fields


class Settle(NamedTuple):
    """Replaces a hold by the units that were used."""

    id: str
    fields: tuple[str, ...]
    used: tuple[int | None, ...]
    """Of each field, 0 to :data:`~lockgate.core.sliding_window.LARGEST`; None: all that it held."""


class Renew(NamedTuple):
    """Moves the deadline of a hold to ``span`` from now."""

    id: str
    fields: tuple[str, ...]
    span: int


class Look(NamedTuple):
    """Reads budgets, and changes nothing."""

    fields: tuple[str, ...]
    id: str = ""
    """Of no hold."""


HoldAction: TypeAlias = Take | Settle | Renew | Look


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
    :class:`Look` those of all holds that are out."""
    refused_by: int | None = None
    """Index of the refusing window with the longest wait; None: none refuses."""
    wait: int = 0
    """Microseconds after which the units fit, if no other hold is taken or renewed and each is used
    in full at its deadline; the span of a window whose limit they exceed."""


@lru_cache(4096)
def budgets(limits: LimitWindows) -> LimitWindows:
    """Return the windows of limits under the fields of budgets."""
    return limits._replace(fields=tuple(PREFIX + field for field in limits.fields))


def name_of(field: str) -> str:
    """Return the name of the limit that has the budget of a field."""
    return field.removeprefix(PREFIX).split(" ", 1)[0]


def apply(
    action: HoldAction, before: Sequence[Budget | None], now: int, fields: int = 0
) -> tuple[HoldAnswer, tuple[Budget, ...]]:
    """Take, settle or renew a hold, or read budgets.

    Args:
        action: what to do.
        before: the budget of each of its fields, None where there is none yet.
        now: the instant, in microseconds.
        fields: the number of fields that the organization has.

    Returns:
        The answer, and the budgets to keep: also those of a refusal may differ from before, since
        holds have ended.
    """
    kept = tuple(
        current(one or Budget(), span_of(field), now)
        for field, one in zip(action.fields, before, strict=True)
    )
    mine = [next((one for one in budget.held if one.id == action.id), None) for budget in kept]
    units = tuple(0 if one is None else one.units for one in mine)
    deadline = max((one.deadline for one in mine if one is not None), default=now)
    answer = HoldAnswer(any(mine), now, deadline, (), units)
    if isinstance(action, Settle):
        kept = tuple(
            budget if one is None else _settled(budget, one, used, now)
            for budget, one, used in zip(kept, mine, action.used, strict=True)
        )
    elif isinstance(action, Renew):
        kept = tuple(
            budget if one is None else _renewed(budget, one, now, action.span)
            for budget, one in zip(kept, mine, strict=True)
        )
        answer = answer._replace(deadline=now + action.span if any(mine) else now)
    elif isinstance(action, Look):
        answer = answer._replace(units=tuple(sum(one.units for one in b.held) for b in kept))
    elif not any(mine):
        new = sum(one is None for one in before)
        crowded = bool(new) and fields + new > FIELDS_AT_MOST
        answer = _judged(action, before, kept, now, crowded=crowded)
        if answer.done:
            kept = tuple(
                _taken(budget, action, units, window.grain, now)
                for budget, units, window in zip(
                    kept, action.units, action.limits.windows, strict=True
                )
            )
    return answer._replace(used=tuple(map(total, kept))), kept


def changed(
    action: HoldAction, before: Sequence[Budget | None], after: Sequence[Budget]
) -> list[tuple[str, Budget]]:
    """Return the fields whose budgets have changed, with the new ones."""
    if isinstance(action, Look):
        return []
    return [
        (field, new)
        for field, old, new in zip(action.fields, before, after, strict=True)
        if new != (old or Budget())
    ]


def total(budget: Budget) -> int:
    """Return the units that a budget counts."""
    return budget.cells[0] + sum(one.units for one in budget.held)


def current(budget: Budget, span: int, now: int) -> Budget:
    """Return a budget as it is at ``now``: holds past their deadline are used at that instant.

    A clock that stepped back extends no hold beyond its span.
    """
    cells, grain = pruned(budget.cells, span, budget.grain, now), budget.grain
    if not budget.held:
        return budget._replace(cells=cells)
    for deadline, units in sorted((one.deadline, one.units) for one in budget.held):
        if deadline <= now:
            cells = count_at(cells, grain, deadline, units)
    live = tuple(
        one if one.deadline <= now + one.span else one._replace(deadline=now + one.span)
        for one in budget.held
        if one.deadline > now
    )
    return Budget(pruned(cells, span, grain, now), live, grain)


def _judged(
    action: Take,
    before: Sequence[Budget | None],
    kept: Sequence[Budget],
    now: int,
    *,
    crowded: bool,
) -> HoldAnswer:
    """Return whether the units fit all windows, and if not, the longest wait."""
    refused_by: int | None = None
    longest = 0
    windows = action.limits.windows
    for index, (budget, units, window) in enumerate(zip(kept, action.units, windows, strict=True)):
        wait = _wait(budget, window, units, now)
        if len(budget.held) >= action.most:
            wait = max(wait, min(one.deadline for one in budget.held) - now)
        if crowded and before[index] is None:
            wait = max(wait, DAY)
        if wait > longest:
            refused_by, longest = index, wait
    is_taken = refused_by is None
    deadline = now + action.span if is_taken else now
    held = action.units if is_taken else (0,) * len(kept)
    return HoldAnswer(is_taken, now, deadline, (), held, refused_by, longest)


def _wait(budget: Budget, window: Window, units: int, now: int) -> int:
    """Return the microseconds after which units fit a window, 0 if they fit now."""
    assert window.limit is not None, "each window of a named limit has one"
    excess = total(budget) + units - window.limit
    if excess <= 0:
        return 0
    if units > window.limit:
        return window.span
    held = sorted((one.deadline, one.units) for one in budget.held)
    for instant, count in chain(counted(budget.cells), held):
        excess -= count
        if excess <= 0:
            return instant + window.span - now
    raise AssertionError("all that is counted ends")


def _taken(budget: Budget, action: Take, units: int, grain: int, now: int) -> Budget:
    held = Held(action.id, units, now + action.span, action.span)
    return Budget(budget.cells, (*budget.held, held), grain)


def _settled(budget: Budget, mine: Held, used: int | None, now: int) -> Budget:
    left = budget._replace(held=tuple(one for one in budget.held if one is not mine))
    units = mine.units if used is None else min(used, LARGEST - total(left))
    return left._replace(cells=count_at(left.cells, left.grain, now, units))


def _renewed(budget: Budget, mine: Held, now: int, span: int) -> Budget:
    renewed = mine._replace(deadline=now + span, span=span)
    return budget._replace(held=tuple(renewed if one is mine else one for one in budget.held))
