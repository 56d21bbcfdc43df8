"""The sliding window: the rule that every store is held to.

In no span of length W, however placed, is more than ``limit`` admitted (D20). A window keeps its
hits in cells, oldest first; a cell is counted until its *newest* hit has left the window, so
sharing a cell can return capacity late (by less than W/60, D21) and never early. All windows of an
organization are judged in one step, and a refusal changes none of them.

The state is an immutable value of integers and bytes. ``hit`` is a pure function; a store's only
duty is to apply it atomically.
"""

from collections.abc import Callable, Iterable
from struct import Struct
from typing import Final, NamedTuple, TypeAlias, cast

EXACT_CELLS: Final = 64
"""Below this many cells every instant has a cell of its own: the window is exact (D21)."""

_CELL: Final = Struct("<qq")
FULL: Final = (EXACT_CELLS - 1) * _CELL.size
"""With so many bytes of older cells, or more, a window lets hits share a cell."""
_pack = _CELL.pack
PLENTY: Final = 2**63
"""More than any limit leaves."""

Cells: TypeAlias = tuple[int, int, int, int, int, bytes]
"""One window's state: ``(used, oldest, first, last, count, older)``.

``used`` is the cost counted in all cells and ``oldest`` the last hit of the oldest one. The newest
cell lies open as ``(first, last, count)``; ``older`` holds the others, oldest first, as
little-endian 64-bit pairs ``(last, count)``. A plain tuple of atoms, which the garbage collector
need not walk however many organizations there are.
"""

State: TypeAlias = tuple[Cells, ...]
"""The state of an organization: one :data:`Cells` for each of its windows, in their order."""

EMPTY: Final[Cells] = (0, 0, 0, 0, 0, b"")


class Window(NamedTuple):
    """A span of time and what may be admitted in it."""

    name: str
    span: int
    """Length W, in microseconds."""
    limit: int | None
    """The most that any span of this length admits; None admits everything and still counts."""
    grain: int
    """Hits this near to the first of the newest cell may share it, in microseconds; 0: never."""


class Reading(NamedTuple):
    """What a window store answers to a hit or a look: one value, with all that headers need."""

    allowed: bool
    now: int
    """The instant of the decision, by the clock that made it."""
    used: tuple[int, ...]
    """What each window counts, in the order of the windows, an admitted hit included."""
    remaining: int | None
    """The least that remains over all limited windows, never negative; None: nothing is limited."""
    reset: int
    """When the window with the least remaining next regains capacity; ``now`` if it is empty."""
    tightest: int | None
    """Index of the window with the least remaining; None: nothing is limited."""
    refused_by: int | None
    """Index of the refusing window with the longest wait (D22); None when allowed."""
    wait: int
    """Microseconds after which this cost is admitted if nobody competes; 0 when allowed. A cost
    above the limit never is: it is told to wait for the whole window."""


def empty_state(windows: Iterable[Window]) -> State:
    """The state of an organization that has not been seen, or not for its longest window."""
    return tuple(EMPTY for _ in windows)


def hit(state: State, windows: tuple[Window, ...], now: int, cost: int) -> tuple[Reading, State]:
    """Admit ``cost`` in every window at once, or in none (D20).

    Args:
        state: what :func:`hit` returned before, or :func:`empty_state`.
        windows: the windows of the plan that holds now, as many as the state has cells.
        now: the instant of the call, in microseconds.
        cost: what the call weighs, at least 1.

    Raises:
        ValueError: the state has not as many cells as there are windows.

    Returns:
        The reading, and the state to keep. A refusal gives back the very state it was given,
        unless the clock has stepped back: cells that lie in the future are then drawn to ``now``,
        so that they are counted for their whole window from here and not a moment longer (D27).
    """
    if len(state) != len(windows):
        raise ValueError(f"a state of {len(state)} windows is not one of {len(windows)}")
    after: list[Cells] = []
    counts: list[int] = []
    least, tightest = PLENTY, None
    reset = now
    index = 0
    for _, span, limit, grain in windows:
        cells = state[index]
        used, oldest, first, last, count, older = cells
        if last > now or oldest <= now - span:
            used, oldest, first, last, count, older = _settled(cells, span, grain, now)
        used += cost
        left = PLENTY if limit is None else limit - used
        if left < 0:
            return _refused(state, windows, now, cost)
        if (now - first < grain and len(older) >= FULL) or (last == now and count):
            count += cost
        else:
            if count:
                older += _pack(last, count)
            first = now
            count = cost
        if not older:
            oldest = now
        after.append((used, oldest, first, now, count, older))
        counts.append(used)
        if left <= least and limit is not None:
            leaves = oldest + span
            if left < least or leaves > reset:
                least, reset, tightest = left, leaves, index
        index += 1  # noqa: SIM113 - zip() and enumerate() cost a tuple for each window
    remaining = None if tightest is None else least
    reading = new_reading(Reading, (True, now, tuple(counts), remaining, reset, tightest, None, 0))
    return reading, tuple(after)


def peek(state: State, windows: tuple[Window, ...], now: int, cost: int = 1) -> Reading:
    """Say whether :func:`hit` would admit this cost, and when, counting nothing (W5).

    ``used``, ``remaining`` and ``reset`` are as they stand, without it.
    """
    return _judged(_all_settled(state, windows, now), windows, now, cost)


def stands_until(state: State, windows: tuple[Window, ...], now: int, cost: int) -> int:
    """Until when a refusal changes in nothing but the time: then the first of its cells leaves.

    What :func:`later` makes of the reading is exactly what :func:`hit` would say till then. A cost
    that some window never admits is refused in ways that change: it is to be judged each time.
    """
    if any(window.limit is not None and cost > window.limit for window in windows):
        return now
    settled = zip(_all_settled(state, windows, now), windows, strict=True)
    return min(cells[1] + window.span for cells, window in settled if cells[0])


def later(refusal: Reading, now: int) -> Reading:
    """A refusal as it reads at a later instant, before any of its cells has left."""
    _, then, used, remaining, reset, tightest, refused_by, wait = refusal
    wait -= now - then
    return new_reading(Reading, (False, now, used, remaining, reset, tightest, refused_by, wait))


# NamedTuple's own constructor takes three times as long, and every request makes a reading.
new_reading = cast(Callable[[type[Reading], Iterable[object]], Reading], tuple.__new__)  # pyright: ignore[reportUnknownMemberType] - typeshed's own Self


def _refused(
    state: State, windows: tuple[Window, ...], now: int, cost: int
) -> tuple[Reading, State]:
    settled = _all_settled(state, windows, now)
    stepped_back = any(cells[3] > now for cells in state)
    return _judged(settled, windows, now, cost), tuple(settled) if stepped_back else state


def _judged(settled: list[Cells], windows: tuple[Window, ...], now: int, cost: int) -> Reading:
    remaining = tightest = refused_by = None
    reset = now
    longest = 0
    for index, (cells, (_, span, limit, _)) in enumerate(zip(settled, windows, strict=True)):
        if limit is None:
            continue
        used, oldest = cells[0], cells[1]
        left = max(0, limit - used)
        leaves = oldest + span if used else now
        if remaining is None or left < remaining or (left == remaining and leaves > reset):
            remaining, reset, tightest = left, leaves, index
        if used + cost > limit:
            wait = _wait(cells, span, limit, now, cost)
            if wait > longest:
                longest, refused_by = wait, index
    counts = tuple([cells[0] for cells in settled])
    allowed = refused_by is None
    return Reading(allowed, now, counts, remaining, reset, tightest, refused_by, longest)


def _wait(cells: Cells, span: int, limit: int, now: int, cost: int) -> int:
    """Walk the oldest cells until enough has left for this cost.

    A cost above the limit is never admitted; it is told to wait for the whole window.
    """
    used, _, _, last, _, older = cells
    if cost > limit:
        return span
    excess = used + cost - limit
    for leaving, count in _CELL.iter_unpack(older):
        excess -= count
        if excess <= 0:
            return int(leaving) + span - now
    return last + span - now


def _all_settled(state: State, windows: tuple[Window, ...], now: int) -> list[Cells]:
    return [
        _settled(cells, window.span, window.grain, now)
        for cells, window in zip(state, windows, strict=True)
    ]


def _settled(cells: Cells, span: int, grain: int, now: int) -> Cells:
    """The cells as they stand at ``now``: none in the future, none that has left the window."""
    if cells[3] > now:
        cells = _drawn(cells, span, grain, now)
    used, oldest, first, last, count, older = cells
    edge = now - span
    if last <= edge or not used:
        return EMPTY
    if oldest <= edge:
        left = 0
        for at, n in _CELL.iter_unpack(older):
            if at > edge:
                break
            used -= n
            left += _CELL.size
        older = older[left:]
        oldest = _CELL.unpack_from(older)[0] if older else last
    return used, oldest, first, last, count, older


def _drawn(cells: Cells, span: int, grain: int, now: int) -> Cells:
    """The cells once the clock has stepped back to ``now``: what lay in the future is one cell.

    A clock that keeps stepping back and forth opens more cells than one that runs; neighbours are
    then folded, two into one, so that the state stays bounded whatever the clock does. Only then
    may capacity come back later than D21 says, and still never early.
    """
    used, oldest, first, _, count, packed = cells
    older: list[tuple[int, int]] = []
    for at, n in _CELL.iter_unpack(packed):
        if at >= now:
            count += n
        else:
            older.append((at, n))
    if grain and len(older) > EXACT_CELLS + span // grain:
        pairs = zip(older[0::2], older[1::2], strict=False)
        older = [*((b[0], a[1] + b[1]) for a, b in pairs), *older[len(older) & ~1 :]]
        oldest = older[0][0]
    packed = b"".join([_pack(at, n) for at, n in older])
    return used, min(oldest, now), min(first, now), now, count, packed
