"""The sliding window: the rate-limit rule of every store.

Guarantee
    No span of length W, wherever it starts, contains more than ``limit`` admitted cost (D20).

State
    A window counts its hits in cells, oldest first. Up to 64 hits have a cell each. From then on, a
    hit less than a grain (W/60 by default) after the first hit of the newest cell joins that cell,
    and any other hit opens one. A cell counts until its *newest* hit is W old, so a shared cell
    returns capacity late, by less than a grain, and never early (D21). The state is an immutable
    value of integers and bytes.

Decision
    :func:`hit` goes through all windows of an organization. In each it drops expired cells, checks
    that the cost fits, and adds it to the newest cell or to a new one. If the cost does not fit one
    window, none is changed.

For example, a limit of 3 in W = 60 s, with hits at 0, 10, 20 and 30 s: the last is refused, and its
wait is 30 s, since the cell of 0 s expires at 60 s.

:func:`hit` is pure, and a store's only duty is to apply it atomically. :class:`CoalescedHits` is a
fast path to the same readings and state, for hits that share their cells.
"""

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Final, NamedTuple, TypeAlias, cast

from .fast_tuples import new_tuple

EXACT_CELLS: Final = 64
"""Below this many cells every instant has a separate cell: the window is exact (D21)."""

_CELL: Final = Struct("<qq")
_pack = _CELL.pack
FULL: Final = (EXACT_CELLS - 1) * _CELL.size
"""From this many bytes of older cells on, a window lets hits share a cell."""
LARGEST: Final = 2**53 - 1
"""The largest limit, cost and count: whole numbers up to here are exact in every store, Lua's
doubles included. A window without a limit counts at most this many units, the newest. A limit set
later can be no larger, so it decides as if all units had been counted."""
PLENTY: Final = 2**63
"""Greater than any remaining cost."""

Cells: TypeAlias = tuple[int, int, int, int, int, bytes]
"""One window's state: ``(used, oldest, first, last, count, older)``.

``used`` is the cost counted in all cells and ``oldest`` the last hit of the oldest one. The newest
cell is unpacked as ``(first, last, count)``; ``older`` holds the others, oldest first, as
little-endian 64-bit pairs ``(last, count)``. The garbage collector does not track a plain
tuple of atoms, so a large number of organizations costs it no time.
"""

State: TypeAlias = tuple[Cells, ...]
"""The state of an organization: one :data:`Cells` for each of its windows, in their order."""

EMPTY: Final[Cells] = (0, 0, 0, 0, 0, b"")


class Window(NamedTuple):
    """A span of time and the cost that it admits."""

    name: str
    span: int
    """Length W, in microseconds."""
    limit: int | None
    """The most cost that any span of this length admits; None admits all."""
    grain: int
    """Hits closer than this to the first of the newest cell share it, in microseconds; 0: none.
    Negative: the window of a period (:func:`lockgate.core.limit_windows.grain_of`)."""


class Reading(NamedTuple):
    """The answer to a hit or a peek: the verdict and the figures of the rate-limit headers."""

    allowed: bool
    now: int
    """The instant of the decision, by the store's clock."""
    used: tuple[int, ...]
    """The cost counted in each window, in their order, an admitted hit included."""
    remaining: int | None
    """The smallest remaining cost of all limited windows, at least 0; None without a limit."""
    reset: int
    """When the window with the least remaining next regains capacity; ``now`` if it is empty."""
    tightest: int | None
    """Index of the window with the least remaining; None without a limit."""
    refused_by: int | None
    """Index of the refusing window with the longest wait (D22); None when allowed."""
    wait: int
    """Microseconds after which this cost is admitted without competition; 0 when allowed. For a
    cost above the limit, which is never admitted, it is the whole window."""


def empty_state(windows: Iterable[Window]) -> State:
    """Return the state of an organization without hits in its longest window."""
    return tuple(EMPTY for _ in windows)


def times(number: int, windows: Iterable[Window]) -> tuple[Window, ...]:
    """Return windows that admit this many times as much, up to :data:`LARGEST`."""
    return tuple(
        window
        if window.limit is None
        else window._replace(limit=min(number * window.limit, LARGEST))
        for window in windows
    )


def hit(state: State, windows: tuple[Window, ...], now: int, cost: int) -> tuple[Reading, State]:
    """Admit ``cost`` in every window at once, or in none (D20).

    Args:
        state: the state that :func:`hit` returned before, or :func:`empty_state`.
        windows: the windows of the plan that holds now, as many as the state has cells.
        now: the instant of the call, in microseconds.
        cost: the units to admit, 1 to :data:`LARGEST`.

    Raises:
        ValueError: the state has more or fewer cells than there are windows.

    Returns:
        The reading, and the state to keep. A refusal returns the same state object, unless the
        clock has stepped back: cells that lie in the future are then moved to ``now``, so that
        they are counted for one whole window from here and not a moment longer (D27).
    """
    if len(state) != len(windows):
        raise ValueError(f"a state of {len(state)} windows is not one of {len(windows)}")
    new_state: list[Cells] = []
    counts: list[int] = []
    least, tightest = PLENTY, None
    reset = now
    index = 0
    for _, span, limit, grain in windows:
        cells = state[index]
        used, oldest, first, last, count, older = cells
        if last > now or oldest <= now - span:  # The clock stepped back, or cells have expired.
            used, oldest, first, last, count, older = pruned(cells, span, grain, now)
        used += cost
        left = (LARGEST if limit is None else limit) - used
        if left < 0:
            return _hit_without_room(state, windows, now, cost)
        if (now - first < grain and len(older) >= FULL) or (last == now and count):
            count += cost  # Join the newest cell: the exact cells are used up, or it is of now.
        else:  # Open a new cell, and put the newest one, if there is one, among the older.
            if count:
                older += _pack(last, count)
            first = now
            count = cost
        if not older:
            oldest = now
        new_state.append((used, oldest, first, now, count, older))
        counts.append(used)
        if left <= least and limit is not None:  # Of equals, the last to regain capacity counts.
            expires = oldest + span
            if left < least or expires > reset:
                least, reset, tightest = left, expires, index
        index += 1  # noqa: SIM113 - zip() and enumerate() cost a tuple for each window
    remaining = None if tightest is None else least
    reading = new_tuple(Reading, (True, now, tuple(counts), remaining, reset, tightest, None, 0))
    return reading, tuple(new_state)


def peek(state: State, windows: tuple[Window, ...], now: int, cost: int = 1) -> Reading:
    """Return the reading that :func:`hit` would give, without counting the cost (W5).

    ``used``, ``remaining`` and ``reset`` do not include it.
    """
    return _read(_all_pruned(state, windows, now), windows, now, cost)


def refusal_valid_until(state: State, windows: tuple[Window, ...], now: int, cost: int) -> int:
    """Return the instant until which a refusal stays valid: when the first cell expires.

    Until then :func:`refusal_at` computes exactly the reading that :func:`hit` would give. For a
    cost above some window's limit it returns ``now``, since that refusal changes with time.
    """
    if any(window.limit is not None and cost > window.limit for window in windows):
        return now
    present = zip(_all_pruned(state, windows, now), windows, strict=True)
    return min(cells[1] + window.span for cells, window in present if cells[0])


def refusal_at(refusal: Reading, now: int) -> Reading:
    """Return a refusal as it reads at a later instant, before any cell has expired."""
    _, then, used, remaining, reset, tightest, refused_by, wait = refusal
    wait -= now - then
    return new_tuple(Reading, (False, now, used, remaining, reset, tightest, refused_by, wait))


def state_after_refusal(state: State, windows: tuple[Window, ...], now: int) -> State:
    """Return the state after a refusal: the same, unless the clock has stepped back (D27)."""
    if any(cells[3] > now for cells in state):
        return tuple(_all_pruned(state, windows, now))
    return state


def _hit_without_room(
    state: State, windows: tuple[Window, ...], now: int, cost: int
) -> tuple[Reading, State]:
    """Refuse a cost; admit it where only windows without a limit would exceed :data:`LARGEST`."""
    present = _all_pruned(state, windows, now)
    reading = _read(present, windows, now, cost)
    if reading.allowed:
        cost = min(cost, LARGEST)
        room = tuple(
            _newest_units(cells, LARGEST - cost) if window.limit is None else cells
            for cells, window in zip(present, windows, strict=True)
        )
        return hit(room, windows, now, cost)
    return reading, state_after_refusal(state, windows, now)


def _newest_units(cells: Cells, most: int) -> Cells:
    """Keep at most this many units, those of the newest hits."""
    used, _, first, last, count, older = cells
    excess = used - most
    if excess <= 0:
        return cells
    if not most:
        return EMPTY
    dropped = 0
    for last_hit, units in _CELL.iter_unpack(older):
        if units > excess:
            older = _pack(last_hit, units - excess) + older[dropped + _CELL.size :]
            return most, last_hit, first, last, count, older
        excess -= units
        dropped += _CELL.size
    return most, last, first, last, count - excess, b""


def _read(present: list[Cells], windows: tuple[Window, ...], now: int, cost: int) -> Reading:
    """Return the reading of a cost against pruned cells, which stay as they are."""
    remaining = tightest = refused_by = None
    reset = now
    longest = 0
    for index, (cells, (_, span, limit, _)) in enumerate(zip(present, windows, strict=True)):
        if limit is None:
            continue
        used, oldest = cells[0], cells[1]
        left = max(0, limit - used)
        expires = oldest + span if used else now
        if remaining is None or left < remaining or (left == remaining and expires > reset):
            remaining, reset, tightest = left, expires, index
        if used + cost > limit:
            wait = _wait(cells, span, limit, now, cost)
            if wait > longest:
                longest, refused_by = wait, index
    counts = tuple([cells[0] for cells in present])
    allowed = refused_by is None
    return Reading(allowed, now, counts, remaining, reset, tightest, refused_by, longest)


def _wait(cells: Cells, span: int, limit: int, now: int, cost: int) -> int:
    """Return the microseconds until enough of the oldest cells has expired for this cost.

    For a cost above the limit, which is never admitted, return the whole window.
    """
    used, _, _, last, _, older = cells
    if cost > limit:
        return span
    excess = used + cost - limit
    for last_hit, units in _CELL.iter_unpack(older):
        excess -= units
        if excess <= 0:
            return int(last_hit) + span - now
    return last + span - now


def _all_pruned(state: State, windows: tuple[Window, ...], now: int) -> list[Cells]:
    return [
        pruned(cells, window.span, window.grain, now)
        for cells, window in zip(state, windows, strict=True)
    ]


def count_at(cells: Cells, grain: int, at: int, units: int) -> Cells:
    """Count units at an instant, without a verdict.

    Args:
        cells: the state of a window without cells in the future (:func:`pruned`).
        grain: the grain of the window.
        at: the instant, in microseconds. Units from before the newest cell join the next newer one:
            they leave late, never early.
        units: 0 changes nothing; the sum of all cells is at most :data:`LARGEST`.
    """
    used, oldest, first, last, count, older = cells
    if not units:
        return cells
    if not used:
        return units, at, at, at, units, b""
    used += units
    if at < last:
        for place, (last_hit, kept) in enumerate(_CELL.iter_unpack(older)):
            if last_hit >= at:
                start, end = place * _CELL.size, (place + 1) * _CELL.size
                older = older[:start] + _pack(last_hit, kept + units) + older[end:]
                return used, oldest, first, last, count, older
        return used, oldest, first, last, count + units, older
    if (at - first < grain and len(older) >= FULL) or last == at:
        return used, oldest if older else at, first, at, count + units, older
    return used, oldest, at, at, units, older + _pack(last, count)


def counted(cells: Cells) -> Iterator[tuple[int, int]]:
    """Yield the last hit and the count of each cell, oldest first."""
    yield from cast(Iterator[tuple[int, int]], _CELL.iter_unpack(cells[5]))
    if cells[0]:
        yield cells[3], cells[4]


def pruned(cells: Cells, span: int, grain: int, now: int) -> Cells:
    """Return the cells that count at ``now``: expired ones dropped, those in the future moved."""
    if cells[3] > now:
        cells = _moved_to_now(cells, span, grain, now)
    used, oldest, first, last, count, older = cells
    edge = now - span
    if last <= edge or not used:
        return EMPTY
    if oldest <= edge:
        dropped = 0
        for last_hit, units in _CELL.iter_unpack(older):
            if last_hit > edge:
                break
            used -= units
            dropped += _CELL.size
        older = older[dropped:]
        oldest = _CELL.unpack_from(older)[0] if older else last
    return used, oldest, first, last, count, older


def _moved_to_now(cells: Cells, span: int, grain: int, now: int) -> Cells:
    """Merge the cells in the future into one at ``now``: the clock has stepped back.

    A clock that keeps stepping back and forth opens more cells than a steady one; neighbours are
    then merged, two into one, so that the state stays bounded. Only then may capacity return later
    than D21 says; it never returns early.
    """
    used, oldest, first, _, count, packed = cells
    older: list[tuple[int, int]] = []
    for last_hit, units in _CELL.iter_unpack(packed):
        if last_hit >= now:
            count += units
        else:
            older.append((last_hit, units))
    if grain and len(older) > EXACT_CELLS + span // grain:
        pairs = zip(older[0::2], older[1::2], strict=False)
        odd = older[-1:] if len(older) % 2 else []
        older = [*((newer[0], elder[1] + newer[1]) for elder, newer in pairs), *odd]
        oldest = older[0][0]
    packed = b"".join([_pack(last_hit, units) for last_hit, units in older])
    return used, min(oldest, now), min(first, now), now, count, packed


class CoalescedHits:
    """Admit hits that join the newest cell of every window, for all windows in one step.

    Such hits change every window by the same cost, and no cell opens or expires. A hit in three
    windows takes 0.3 of the time of :func:`hit` (measured: 2.2 us and 7.9 us on a busy machine).

    Args:
        state: the state after the first hit.
        windows: the windows of that hit.
        reading: the reading of that hit.
        until: the first instant at which a cell opens or has expired.
    """

    __slots__ = (
        "_added",
        "_last",
        "_limited",
        "_remaining",
        "_reset",
        "_room",
        "_state",
        "_tightest",
        "_until",
        "_used",
        "_windows",
    )

    def __init__(
        self, state: State, windows: tuple[Window, ...], reading: Reading, until: int
    ) -> None:
        self._state: Final = state
        self._windows: Final = windows
        self._used: Final = reading.used
        self._reset: Final = reading.reset
        self._tightest: Final = reading.tightest
        self._limited: Final = reading.remaining is not None
        self._remaining: Final = LARGEST if reading.remaining is None else reading.remaining
        self._room: Final = min(self._remaining, LARGEST - max(reading.used, default=0))
        """The cost that fits every window, of those hits together."""
        self._until: Final = until
        self._last = reading.now
        """The instant of the latest hit."""
        self._added = 0
        """The cost of all hits after the first."""

    def extend(self, windows: tuple[Window, ...], now: int, cost: int) -> Reading | None:
        """Admit one more hit; None, without any change, if :func:`hit` has to judge it.

        The state for that is :meth:`to_state`.
        """
        added = self._added + cost
        if windows is not self._windows or not self._last <= now < self._until:
            return None
        if added > self._room:
            return None
        self._last = now
        self._added = added
        counts: list[int] = []
        for count in self._used:  # A comprehension is a function call in 3.11.
            counts.append(count + added)
        used = tuple(counts)
        if not self._limited:
            return new_tuple(Reading, (True, now, used, None, now, None, None, 0))
        remaining = self._remaining - added
        reading = True, now, used, remaining, self._reset, self._tightest, None, 0
        return new_tuple(Reading, reading)

    def to_state(self) -> State:
        """Return the state that :func:`hit` would have returned for the last of these hits."""
        last, added = self._last, self._added
        return tuple(
            (used + added, oldest, first, last, count + added, older)
            for used, oldest, first, _, count, older in self._state
        )


def coalesce(
    state: State, windows: tuple[Window, ...], reading: Reading, until: int
) -> CoalescedHits | None:
    """Start coalescing after a hit; None: :func:`hit` has to judge the next one.

    Args:
        state: the state that :func:`hit` returned.
        windows: the windows of that hit.
        reading: its reading.
        until: the first instant at which the owner's state has to be written.
    """
    now = reading.now
    for cells, window in zip(state, windows, strict=True):
        until = min(until, shared_until(cells, window, now))
        if until <= now:
            return None
    return CoalescedHits(state, windows, reading, until)


def shared_until(cells: Cells, window: Window, now: int) -> int:
    """Return the first instant at which a hit opens a cell or finds one expired.

    Args:
        cells: the state that :func:`hit` returned for the window.
        window: the window of that hit.
        now: the instant of that hit. A result that is no later says that hits share no cell.
    """
    _, oldest, first, _, _, older = cells
    if first == now or len(older) < FULL:
        return now
    return min(first + window.grain, oldest + window.span)
