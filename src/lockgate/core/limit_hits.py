"""Hits of named limits: judged together with the windows of the plan, all or none (D40, W9).

The windows come from :mod:`lockgate.core.limit_windows`; a store keeps the cells of each by its
field.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from .fast_tuples import new_tuple
from .limit_windows import LimitWindows, begins_of, is_of_period, span_of
from .sliding_window import (
    EMPTY,
    LARGEST,
    PLENTY,
    Cells,
    Reading,
    State,
    Window,
    hit,
    peek,
    state_after_refusal,
)
from .timestamps import DAY

FIELDS_AT_MOST: Final = 10_000
"""The most fields of an organization. Past it a subject that is not counted yet is refused."""
_SWEPT: Final = 2
_NOTHING: Final = Reading(True, 0, (), None, 0, None, None, 0)


def changed_fields(
    limits: LimitWindows, before: Sequence[Cells | None], after: State
) -> list[tuple[str, Cells]]:
    """Return the fields that a hit has changed, with their new cells.

    Args:
        limits: the windows of the hit.
        before: the cells of each window; None: its field is new.
        after: the cells that :func:`hit_limited` returned.
    """
    changed: list[tuple[str, Cells]] = []
    for place, new in enumerate(after):
        old = before[place]
        if new is not old and (old is not None or new[0]):
            changed.append((limits.fields[place], new))
    return changed


def put_fields(fields: dict[str, Cells], changed: Iterable[tuple[str, Cells]], now: int) -> None:
    """Put changed fields into those of an organization, the latest hit last.

    Each new field drops two at the front that have been empty for a day, so that there are no more
    fields than were hit within two days (W10). An earlier drop would matter if the clock stepped
    back (W11).
    """
    for name, cells in changed:
        if fields.pop(name, None) is None:
            for idle in [idle for idle, _ in zip(fields, range(_SWEPT), strict=False)]:
                if fields[idle][3] <= now - span_of(idle) - DAY:
                    del fields[idle]
                elif is_of_period(idle):  # It may outlast those behind it.
                    fields[idle] = fields.pop(idle)
        fields[name] = cells


def crowded(cells: Sequence[Cells | None], kept: int) -> int | None:
    """Return the index of the first window for which there is no field left; None: there is room.

    Args:
        cells: the cells of each window; None: its field is new.
        kept: the number of fields that the organization has.
    """
    new = cells.count(None)
    return cells.index(None) if new and kept + new > FIELDS_AT_MOST else None


def hit_limited(
    state: State,
    windows: tuple[Window, ...],
    cells: Sequence[Cells | None],
    limits: tuple[Window, ...],
    now: int,
    cost: int,
    lacking: int | None = None,
    first_end: int = PLENTY,
) -> tuple[Reading, State, State]:
    """Admit ``cost`` in every window of a plan and of named limits at once, or in none (D40).

    Args:
        state: the state of the plan's windows, as in :func:`~lockgate.core.sliding_window.hit`.
        windows: the windows of the plan; empty: only the named limits are charged.
        cells: the state of the named limits, None where there is none yet.
        limits: the windows of the named limits.
        now: the instant, in microseconds.
        cost: 1 to :data:`~lockgate.core.sliding_window.LARGEST`.
        lacking: the result of :func:`crowded`.
        first_end: the instant at which the first quota lease of the plan's windows ends: a refusal
            holds no longer.

    Returns:
        The reading, and both states to keep. A refusal changes them only if the clock has stepped
        back. The reading goes through the plan's windows, then through those of the limits. A limit
        that refuses for want of a field does so for a day: by then each field of a sliding window
        that had no hit is empty. Those of calendar quotas stay until a day after their period.
    """
    before: State = tuple([one or EMPTY for one in cells])
    of_plan, after = hit(state, windows, now, cost)
    of_limits, kept = hit_named(before, limits, now, cost)
    if of_plan.allowed and of_limits.allowed and lacking is None:
        return admitted(of_plan, of_limits), after, kept
    if of_plan.allowed:
        after = state_after_refusal(state, windows, now)
    if of_limits.allowed:
        kept = named_state_after_refusal(before, limits, now)
    of_plan, of_limits = peek(state, windows, now, cost), peek_named(before, limits, now, cost)
    return combined(of_plan, of_limits, lacking, first_end), after, kept


def peek_limited(
    state: State,
    windows: tuple[Window, ...],
    cells: Sequence[Cells | None],
    limits: tuple[Window, ...],
    now: int,
    cost: int = 1,
    first_end: int = PLENTY,
) -> Reading:
    """Return the reading that :func:`hit_limited` would give, without counting the cost (W5)."""
    before: State = tuple([one or EMPTY for one in cells])
    of_plan, of_limits = peek(state, windows, now, cost), peek_named(before, limits, now, cost)
    return combined(of_plan, of_limits, first_end=first_end)


class SharedCell:
    """The newest cell of one named window, in which further hits are counted in place.

    What :class:`~lockgate.core.sliding_window.CoalescedHits` are to the windows of a plan. Each
    named window has its own, since requests of one organization are charged for different limits:
    each key has windows beside those of the organization.

    Args:
        window: the window of the first hit.
        cells: the state after that hit.
        until: the first instant at which a hit does not join the cell.
    """

    __slots__ = ("_cells", "last", "most", "reset", "until", "used", "window")

    def __init__(self, window: Window, cells: Cells, until: int) -> None:
        self._cells: Final = cells
        self.window: Final = window
        self.until: Final = until
        self.most: Final = LARGEST if window.limit is None else window.limit
        self.used = cells[0]
        """The cost counted in all cells of the window."""
        self.last = cells[3]
        """The instant of the latest hit."""
        self.reset: Final = cells[1] + window.span
        """The instant at which the oldest cell expires."""

    def to_cells(self) -> Cells:
        """Return the cells that :func:`hit_named` would have returned for the latest hit."""
        used, oldest, first, _, count, older = self._cells
        return self.used, oldest, first, self.last, count + self.used - used, older


def shared_cells(
    shared: Mapping[str, SharedCell], limits: LimitWindows, now: int, cost: int
) -> list[SharedCell] | None:
    """Return the cell of each window that one more hit joins; None: :func:`hit_limited` judges it.

    Args:
        shared: the shared cells of an organization, by field.
        limits: the windows of the named limits.
        now: the instant, in microseconds.
        cost: the units to admit, which fit each of the windows.
    """
    joined: list[SharedCell] = []
    windows = limits.windows
    for field in limits.fields:
        cell = shared.get(field)
        if cell is None or not cell.last <= now < cell.until or cell.used + cost > cell.most:
            return None
        if cell.window is not windows[len(joined)]:
            return None
        joined.append(cell)
    return joined


def admitted_in(joined: Iterable[SharedCell], of_plan: Reading, cost: int) -> Reading:
    """Charge the cells of :func:`shared_cells`, and return the reading of both.

    Args:
        joined: the shared cells.
        of_plan: the reading of the plan's windows, which admit the cost at the same instant.
        cost: the units.
    """
    _, now, used, remaining, reset, tightest, _, _ = of_plan
    counts = [*used]
    for cell in joined:
        cell.last = now
        cell.used = count = cell.used + cost
        left = cell.most - count
        if (
            remaining is None or left < remaining or (left == remaining and cell.reset > reset)
        ) and cell.window.limit is not None:
            remaining, reset, tightest = left, cell.reset, len(counts)
        counts.append(count)
    both = True, now, tuple(counts), remaining, reset, tightest, None, 0
    return new_tuple(Reading, both)


def hit_named(
    state: State, windows: tuple[Window, ...], now: int, cost: int
) -> tuple[Reading, State]:
    """Admit ``cost`` in every window of named limits, or in none, as :func:`hit` does."""
    for window in windows:
        if window[3] < 0:
            break
    else:
        return hit(state, windows, now, cost)
    reading, new = _NOTHING._replace(now=now), list[Cells]()
    for cells, window in zip(state, windows, strict=True):
        one, (after,) = hit((cells,), (window,), _moment(window, now), cost)
        if not one.allowed:
            refusal = peek_named(state, windows, now, cost)
            return refusal, named_state_after_refusal(state, windows, now)
        new.append(after)
        reading = admitted(reading, one)
    return reading, tuple(new)


def peek_named(state: State, windows: tuple[Window, ...], now: int, cost: int = 1) -> Reading:
    """Return the reading that :func:`hit_named` would give, without counting the cost."""
    if all(window.grain >= 0 for window in windows):
        return peek(state, windows, now, cost)
    reading = _NOTHING._replace(now=now)
    for cells, window in zip(state, windows, strict=True):
        moment = _moment(window, now)
        one = peek((cells,), (window,), moment, cost)
        wait, reset = one.wait - (now - moment), one.reset if one.used[0] else now
        reading = combined(reading, one._replace(wait=wait, reset=reset))
    return reading


def named_state_after_refusal(state: State, windows: tuple[Window, ...], now: int) -> State:
    """Return the state of named limits after a refusal, as :func:`state_after_refusal` does."""
    if all(cells[3] <= now for cells in state):
        return state
    moments = [_moment(window, now) for window in windows]
    return tuple(
        state_after_refusal((cells,), (window,), moment)[0]
        for cells, window, moment in zip(state, windows, moments, strict=True)
    )


def _moment(window: Window, now: int) -> int:
    """Return the instant at which a window counts a hit: the first of its period, if it has one."""
    begins = begins_of(window)
    return now if begins is None or not begins <= now < begins + window.span else begins


def of_plan_alone(reading: Reading, windows: tuple[Window, ...]) -> Reading:
    """Return the part of a reading that is about the windows of a plan, with the ``remaining`` and
    the ``reset`` of the tightest of all its windows."""
    allowed, now, used, remaining, reset, tightest, refused_by, wait = reading
    number = len(windows)
    if refused_by is not None and refused_by >= number:
        refused_by = None
    alone = allowed, now, used[:number], remaining, reset, tightest, refused_by, wait
    return new_tuple(Reading, alone)


def admitted(of_plan: Reading, of_limits: Reading) -> Reading:
    """Combine the readings of a plan's windows and of named limits that both admit."""
    _, now, used, remaining, reset, tightest, _, _ = tighter(of_plan, of_limits)
    both = True, now, used + of_limits.used, remaining, reset, tightest, None, 0
    return new_tuple(Reading, both)


def tighter(reading: Reading, other: Reading) -> Reading:
    """Return a reading with the tightest window of two: that of the other one is counted on, as if
    its windows came after those of ``used``."""
    least, left = reading.remaining, other.remaining
    if left is None or other.tightest is None:
        return reading
    if least is None or left < least or (left == least and other.reset > reading.reset):
        allowed, now, used, _, _, _, refused_by, wait = reading
        tightest = len(used) + other.tightest
        both = allowed, now, used, left, other.reset, tightest, refused_by, wait
        return new_tuple(Reading, both)
    return reading


def combined(
    of_plan: Reading, of_limits: Reading, lacking: int | None = None, first_end: int = PLENTY
) -> Reading:
    """Combine the readings of a plan's windows and of named limits, as one verdict.

    The wait is the longest one (D22). ``lacking`` is the result of :func:`crowded`, ``first_end``
    as :func:`hit_limited` takes it.
    """
    refused_by, wait = of_plan.refused_by, of_plan.wait
    if of_limits.refused_by is not None and of_limits.wait > wait:
        refused_by, wait = len(of_plan.used) + of_limits.refused_by, of_limits.wait
    if lacking is not None and wait < DAY:
        refused_by, wait = len(of_plan.used) + lacking, DAY
    if refused_by is not None and first_end < of_plan.reset:
        of_plan = of_plan._replace(reset=first_end)
    return tighter(of_plan, of_limits)._replace(
        allowed=refused_by is None,
        used=of_plan.used + of_limits.used,
        refused_by=refused_by,
        wait=wait,
    )
