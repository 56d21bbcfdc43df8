"""Budgets: the state of one window that holds are charged to (D41).

A budget has the cells of the units used, and beside them the reservations that are out. The
functions bring it up to an instant, and sum it.
"""

from collections.abc import Iterable
from struct import Struct
from typing import Final, NamedTuple, Self

from .periods import Period, Quota
from .reservations import Reservation, Reservations, out
from .sliding_window import EMPTY, LARGEST, Cells, count_at, counted, pruned
from .timestamps import DAY

SLOTS: Final = "slots 0"
"""The field of the budget with the slots of an organization, whose windows span nothing."""

_FORMAT: Final = 1
_HEAD: Final = Struct("<BqqqqqqI")
_HELD: Final = Struct("<16sqqq")
_CELL: Final = Struct("<qq")


class Budget(NamedTuple):
    """The state of one window that holds are charged to."""

    cells: Cells = EMPTY
    held: Reservations = ()
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
        parts += (_HELD.pack(bytes.fromhex(one.id), *one[1:4]) for one in self.held)
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
        held = tuple(Reservation(id.hex(), *numbers) for id, *numbers in rows)
        return cls((used, oldest, first, last, count, value[ends:]), held, grain)


UNUSED: Final = Budget()


class Count(NamedTuple):
    """Units that a call has counted as used in a period of a calendar quota."""

    place: int
    """The index of the field."""
    begins: int
    """The first instant of the period, in microseconds."""
    before: int
    """The units used in the period before they were counted, without those of holds."""
    after: int
    """Those after."""


def total(budget: Budget, period: Period | None = None) -> int:
    """Return the units that a budget counts, of a calendar quota those in a period."""
    cells, held, _ = budget
    used = cells[0] if period is None else used_in(budget, period)
    for one in held:
        used += one.units
    return min(LARGEST, used) if held else used


def current(budget: Budget, span: int, now: int) -> Budget:
    """Return a budget as it is at ``now``: holds past their deadline are used at that instant.

    A clock that stepped back extends no hold beyond its span.
    """
    cells, held, grain = budget
    live = out(held, now) if held else held
    if live is held and cells[3] <= now and (cells[1] > now - span or not cells[0]):
        return budget
    cells = pruned(cells, span, grain, now)
    for deadline, units in sorted((one.deadline, one.units) for one in held):
        if deadline <= now:
            cells = count_at(cells, grain, deadline, units)
    return Budget(pruned(cells, span, grain, now), live, grain)


def in_period(
    budget: Budget, index: int, quota: Quota, span: int, now: int
) -> tuple[Budget, list[Count]]:
    """Return the budget of a calendar quota as it is at ``now``, as :func:`current` does.

    Cells in the future stay where they are: a clock that stepped back finds the period before.
    Periods and deadlines further back than a day more than the longest period are forgotten.
    """
    edge = max(0, now - span - DAY)
    oldest = quota.period(edge).begins
    cells = _cells_of(cell for cell in counted(budget.cells) if cell[0] >= oldest)
    ended = sorted((one.deadline, one.units) for one in budget.held if edge < one.deadline <= now)
    live = out(budget.held, now)
    used = [(quota.period(deadline).begins, units) for deadline, units in ended]
    return counted_in(Budget(cells, live, budget.grain), index, used)


def counted_in(
    budget: Budget, index: int, used: Iterable[tuple[int, int]]
) -> tuple[Budget, list[Count]]:
    """Count units at the first instants of periods."""
    cells = dict(counted(budget.cells))
    counts: list[Count] = []
    for begins, units in used:
        if units:
            before = cells.get(begins, 0)
            cells[begins] = min(LARGEST, before + units)
            counts.append(Count(index, begins, before, cells[begins]))
    if not counts:
        return budget, counts
    return budget._replace(cells=_cells_of(sorted(cells.items()))), counts


def _cells_of(pairs: Iterable[tuple[int, int]]) -> Cells:
    """Return the cells of these instants and units, in their order."""
    cells = [*pairs]
    if not cells:
        return EMPTY
    *older, (last, count) = cells
    packed = b"".join(_CELL.pack(*cell) for cell in older)
    used = count + sum(units for _, units in older)
    return used, older[0][0] if older else last, last, last, count, packed


def used_in(budget: Budget, period: Period) -> int:
    """Return the units used in a period of a calendar quota, without those of holds."""
    return sum(units for at, units in counted(budget.cells) if period.begins <= at < period.ends)


def units_of(holds: Iterable[Reservation]) -> int:
    """Return the units of holds."""
    units = 0
    for one in holds:
        units += one.units
    return min(LARGEST, units)
