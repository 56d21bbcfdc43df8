"""Promises: units that are kept for a caller who returns when its refusal said (D47).

A refusal names whole seconds after which to try again. With the option it promises the units that
the caller asked for: a reservation with a start, from which on they are kept for the caller's key
for :data:`GRACE`. All other admissions leave room for every promise.

A promise keeps units of a plan's windows. It admits nothing by itself: its caller is judged by the
same windows, so no window has more than its limit (P1).

Units fit at an instant if, there and at the start of each later promise, what has not expired by
then and all that is promised by then leave them free. That is checked when units are taken or
promised, and then stays true: admissions only count units that were checked, and expiry only frees
some. The newest cell of a window may be joined by later hits, and expire with the last of these, so
it is taken to expire as late as it may. So a promised caller finds its units (P2), unless a limit
was lowered or the clock stepped back.

There are at most :data:`PROMISES_AT_MOST`, of together at most the smallest limit: so each fits
within one window from now. A key gets one more while it has no more than are left, in number and
units, so that no key can take all.

The functions are pure. A store applies :func:`hit_beside` in one atomic step.
"""

from collections.abc import Sequence
from typing import Final

from .fast_tuples import new_tuple
from .reservations import Reservation, Reservations, out
from .sliding_window import (
    FULL,
    PLENTY,
    Cells,
    Reading,
    State,
    Window,
    counted,
    hit,
    peek,
    pruned,
    state_after_refusal,
)
from .timestamps import SECOND, whole_seconds

GRACE: Final = 1_500_000
"""Microseconds for which units are kept from the start of a promise on."""
PROMISES_AT_MOST: Final = 256
"""The most promises of one organization."""
FURTHEST: Final = 120
"""The most seconds from a refusal to the start of its promise: the longest ``Retry-After`` that
the SDK of OpenAI waits for."""


def hit_beside(
    state: State,
    promises: Reservations,
    windows: tuple[Window, ...],
    now: int,
    cost: int,
    holder: str,
) -> tuple[Reading, State, Reservations, Reservation | None]:
    """Admit a cost in every window, or in none, beside the units that are promised.

    Args:
        state: the cells of the windows, as :func:`~lockgate.core.sliding_window.hit` takes them.
        promises: those of the organization, in the order of their starts.
        windows: the windows of the plan, lowered by what is out on leases.
        now: the instant of the call, in microseconds.
        cost: the units to admit, 1 to :data:`~lockgate.core.sliding_window.LARGEST`.
        holder: the key that calls: a promise to it that has started is used, and a refusal may
            promise units to it. Empty: it has none, and gets none.

    Returns:
        The reading, the state and the promises to keep, and the promise that comes with a refusal.
        ``remaining`` is what others may take at present. The wait of a refusal is the one that the
        promise keeps, in whole seconds; without a promise, the one that a further promise would
        have had, and ``reset`` is no later than the start of the holder's next promise. A wait
        longer than :data:`FURTHEST`, and that of a cost above a limit, is that of
        :func:`~lockgate.core.sliding_window.hit`.
    """
    reading, after = hit(state, windows, now, cost)
    kept = lasting(promises, now)
    if not kept and (reading.allowed or not holder):
        return reading, after, kept, None
    used = _due(kept, holder, now, cost)
    if used is not None:
        kept = tuple([one for one in kept if one is not used])
    room, tightest = _room_at(state, windows, kept, now, (now,))
    if room[0] < cost:
        if reading.allowed:
            reading, after = _kept_from(peek(state, windows, now), tightest), state
        remaining = max(0, min(room[0], PLENTY if reading.remaining is None else reading.remaining))
        reading = reading._replace(remaining=remaining)
        after = state_after_refusal(after, windows, now)
        reading, promise = _refused(reading, after, kept, windows, cost, holder)
        return reading, after, kept if promise is None else _with(kept, promise), promise
    left = room[0] - cost
    if reading.remaining is not None and left < reading.remaining:
        reading = reading._replace(remaining=left)
    return reading, after, kept, None


def beside(
    state: State, promises: Reservations, windows: tuple[Window, ...], now: int
) -> tuple[Window, ...]:
    """Return the windows with what their limits leave at present beside promises, for calls that
    use no promise and get none."""
    promises = lasting(promises, now)
    if not promises:
        return windows
    windows_left: list[Window] = []
    for cells, window in zip(state, windows, strict=True):
        if window.limit is not None:
            present = pruned(cells, window.span, window.grain, now)
            (room,) = _room_in(present, window, window.limit, promises, (now,))
            windows_left.append(window._replace(limit=max(0, present[0] + room)))
        else:
            windows_left.append(window)
    return tuple(windows_left)


def lasting(promises: Reservations, now: int) -> Reservations:
    """Return the promises that have not ended, in the order of their starts.

    A clock that stepped back moves none further ahead than it was at first.
    """
    kept = out(promises, now)
    return kept if kept is promises else tuple(sorted(kept, key=start_of))


def start_of(promise: Reservation) -> int:
    """Return the instant from which on the units are kept, in microseconds."""
    return promise.deadline - GRACE


def _due(promises: Reservations, holder: str, now: int, cost: int) -> Reservation | None:
    """Return the promise of a holder that has started and keeps the fewest units that are enough,
    of equals the earliest."""
    found = None
    for one in promises:
        if start_of(one) > now:
            break
        if one.owner == holder and one.units >= cost and (found is None or one.units < found.units):
            found = one
    return found


def _kept_from(reading: Reading, index: int) -> Reading:
    """Return the refusal of a cost that fits its windows, but not beside the promises."""
    _, now, used, remaining, reset, tightest, _, _ = reading
    return new_tuple(Reading, (False, now, used, remaining, reset, tightest, index, 0))


def _refused(
    reading: Reading,
    state: State,
    promises: Reservations,
    windows: tuple[Window, ...],
    cost: int,
    holder: str,
) -> tuple[Reading, Reservation | None]:
    """Return a refusal with the wait that it says, and its promise if there is one."""
    _, now, _, _, reset, _, index, wait = reading
    assert index is not None, "a refusal has a refusing window"
    limit = min([window.limit for window in windows if window.limit is not None])
    if cost <= limit and wait <= FURTHEST * SECOND:
        first = max(1, whole_seconds(wait))
        last = max(first, min(FURTHEST, whole_seconds(windows[index].span)))
        instants = range(now + first * SECOND, now + last * SECOND + 1, SECOND)
        room, _ = _room_at(state, windows, promises, now, instants)
        seconds = next((place for place, units in enumerate(room) if units >= cost), None)
        wait = (last if seconds is None else first + seconds) * SECOND
        reading = reading._replace(wait=wait)
        if seconds is not None and _may_have_one_more(promises, holder, cost, limit):
            return reading, Reservation("", cost, now + wait + GRACE, wait + GRACE, holder)
    own = [start_of(one) for one in promises if one.owner == holder and start_of(one) > now]
    if own and not now < reset <= own[0]:
        reading = reading._replace(reset=own[0])
    return reading, None


def _with(promises: Reservations, promise: Reservation) -> Reservations:
    """Return promises with another one, in the order of their starts."""
    place = sum([start_of(one) <= start_of(promise) for one in promises])
    return (*promises[:place], promise, *promises[place:])


def _may_have_one_more(promises: Reservations, holder: str, cost: int, limit: int) -> bool:
    """Return whether a holder may have a promise of a cost beside all that there are."""
    if not holder:
        return False
    number, units = PROMISES_AT_MOST - len(promises), limit - cost
    for one in promises:
        units -= one.units
        if one.owner == holder:
            number -= 1
            units -= one.units
    return number > 0 and units >= 0


def _room_at(
    state: State,
    windows: tuple[Window, ...],
    promises: Reservations,
    now: int,
    instants: Sequence[int],
) -> tuple[list[int], int]:
    """Return the units that fit at each instant, and the index of the window with the least at
    the first; ``instants`` ascend from ``now`` or later."""
    least, tightest = [PLENTY] * len(instants), 0
    for index, (cells, window) in enumerate(zip(state, windows, strict=True)):
        if window.limit is None:
            continue
        present = pruned(cells, window.span, window.grain, now)
        rooms = _room_in(present, window, window.limit, promises, instants)
        if rooms[0] < least[0]:
            tightest = index
        least = [*map(min, least, rooms)]
    return least, tightest


def _room_in(
    cells: Cells,
    window: Window,
    limit: int,
    promises: Reservations,
    instants: Sequence[int],
) -> list[int]:
    """Return the units that fit one window at each instant, for pruned cells."""
    starts = [start_of(one) for one in promises]
    latest = max(instants[-1], starts[-1] if starts else 0)
    ends: list[tuple[int, int]] = []
    for last, units in counted(cells):
        if last + window.span > latest:
            break
        ends.append((last + window.span, units))
    else:
        if len(cells[5]) >= FULL:  # Later hits may join the newest cell.
            ends[-1] = (max(cells[3], cells[2] + window.grain - 1) + window.span, cells[4])
    sums = [0]
    for one in promises:
        sums.append(sums[-1] + one.units)
    # From the first start to the last, what is left there once all due promises are used.
    left: list[int] = []
    free, ended = limit - cells[0], 0
    for place, start in enumerate(starts, 1):
        while ended < len(ends) and ends[ended][0] <= start:
            free += ends[ended][1]
            ended += 1
        left.append(free - sums[place])
    for place in range(len(left) - 2, -1, -1):
        left[place] = min(left[place], left[place + 1])
    rooms: list[int] = []
    free, ended, begun = limit - cells[0], 0, 0
    for at in instants:
        while ended < len(ends) and ends[ended][0] <= at:
            free += ends[ended][1]
            ended += 1
        while begun < len(starts) and starts[begun] <= at:
            begun += 1
        later = left[begun] if begun < len(left) else PLENTY
        rooms.append(min(free - sums[begun], later))
    return rooms
