"""Quota leases: units that a process takes in bulk, and admits from without the store (D42).

A lease of k units counts in full from its grant until it is settled or past its deadline. Settling
replaces it by the units used, at the instants of their use, and the rest is free at once. A lease
past its deadline counts as fully used at the deadline: late, never early.

A lease that ends unsettled stays for :data:`LONGEST`, without units: where the store's clock has
stepped forward, its holder still admits, and a change of a key waits for it (K4).

The leases of an organization stand beside the cells of its plan's windows, and each counts in all
of these windows. A lease is never a cell in the future, which a clock that steps back would pull to
the present.

Take the last grant or admission before the end of a span of length W. All that was admitted in the
span was in a cell or in a lease then, and both were summed: no span has more than the limit (H1).

The functions are pure. A store applies :func:`hit_leased` in one atomic step, also to hits of
callers that ask for no lease, while leases of the organization are out.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple, TypeAlias

from .reservations import Reservation, Reservations, within_span
from .sliding_window import (
    LARGEST,
    PLENTY,
    Cells,
    Reading,
    State,
    Window,
    count_at,
    hit,
    pruned,
)

SHARE: Final = 50
"""At most one unit in so many of each limit is out on leases (D42)."""
LEAST: Final = 3
"""The fewest units of a lease: below, each admission asks the store."""
LEASES_AT_MOST: Final = 64
"""The most leases of one organization, which only a plan without a limit can reach."""
STAMPS_AT_MOST: Final = 64
"""The most instants in a :class:`Settlement`."""
LONGEST: Final = 2_000_000
"""The longest span of a lease, in microseconds: a revocation may wait for so long."""


QuotaLeases: TypeAlias = Reservations
"""The leases that are out or ended lately."""


class Settlement(NamedTuple):
    """The end of a lease: the units that were used."""

    id: str
    used: tuple[tuple[int, int], ...]
    """Instants in microseconds, in ascending order, and the units used until each of them."""


class LeaseRequest(NamedTuple):
    """What a process asks for with an admission: to settle leases, and to get one."""

    id: str
    """Of the lease that may be granted."""
    units: int
    """The most units of it; 0: settle only."""
    span: int
    """Microseconds until its deadline, at most :data:`LONGEST`."""
    settled: tuple[Settlement, ...] = ()


def hit_leased(
    state: State,
    leases: QuotaLeases,
    windows: tuple[Window, ...],
    now: int,
    cost: int,
    request: LeaseRequest | None = None,
) -> tuple[Reading, State, QuotaLeases, Reservation | None]:
    """Admit a cost in every window at once, or in none, beside the leases that are out.

    Args:
        state: the cells of the windows, as :func:`~lockgate.core.sliding_window.hit` takes them.
        leases: those that are out.
        windows: the windows of the plan that holds now.
        now: the instant of the call, in microseconds.
        cost: the units to admit, 1 to :data:`~lockgate.core.sliding_window.LARGEST`.
        request: leases to settle, and the one to grant; None: neither.

    Returns:
        The reading, in which a granted lease is not counted; the state and the leases to keep; and
        the lease that was granted, which is the last of these, or None.
    """
    state, leases = current(state, leases, windows, now, request.settled if request else ())
    reading, state = hit(state, lowered(windows, leases), now, cost)
    lease = granted(leases, windows, reading, request) if request else None
    kept = leases if lease is None else (*leases, lease)
    return until_settled(reading, leases), state, kept, lease


def current(
    state: State,
    leases: QuotaLeases,
    windows: tuple[Window, ...],
    now: int,
    settled: Iterable[Settlement] = (),
) -> tuple[State, QuotaLeases]:
    """Return cells and leases as they are at ``now``, after settling leases.

    The units of a lease that is unknown or past its deadline have been counted: settling it again
    counts nothing. A clock that stepped back extends no lease beyond its span.

    Returns:
        The same objects, if nothing has changed.
    """
    ended = {one.id: one.used for one in settled}
    late: list[tuple[int, int]] = []
    left: list[Reservation] = []
    for lease in leases:
        if lease.units and lease.deadline <= now:
            late.append((lease.deadline, lease.units))
        elif lease.units and lease.id in ended:
            late += [(min(at, now), units) for at, units in ended[lease.id]]
        if lease.id not in ended:
            left += _kept(lease, now)
    if late:
        late.sort()
        state = tuple(
            _counted(cells, window, late, now) for cells, window in zip(state, windows, strict=True)
        )
    return state, leases if leases == (kept := tuple(left)) else kept


def live(leases: QuotaLeases, now: int) -> QuotaLeases:
    """Return the leases that are out at ``now``, and without units those that ended lately."""
    return tuple(kept for lease in leases for kept in _kept(lease, now))


def out(leases: QuotaLeases) -> QuotaLeases:
    """Return the leases that are out, without those that have ended."""
    return tuple(lease for lease in leases if lease.units)


def lowered(windows: tuple[Window, ...], leases: QuotaLeases) -> tuple[Window, ...]:
    """Return the windows with what their limits leave beside the leases that are out."""
    units = units_out(leases)
    if not units:
        return windows
    return tuple(
        window if window.limit is None else window._replace(limit=max(0, window.limit - units))
        for window in windows
    )


def units_out(leases: QuotaLeases) -> int:
    """Return the units of all leases."""
    return sum(lease.units for lease in leases)


def until_settled(reading: Reading, leases: QuotaLeases) -> Reading:
    """Return a refusal that holds no longer than until the first lease ends: its units may come
    back then."""
    if reading.allowed or (end := first_end(leases)) >= reading.reset:
        return reading
    return reading._replace(reset=end)


def first_end(leases: QuotaLeases) -> int:
    """Return the instant at which the first lease ends; without one, later than any."""
    return min((lease.deadline for lease in leases if lease.units), default=PLENTY)


def granted(
    leases: QuotaLeases, windows: tuple[Window, ...], reading: Reading, request: LeaseRequest
) -> Reservation | None:
    """Return the lease to grant with an admission; None: each admission has to ask the store.

    Each holder gets at most its share of the units that are left, so that none keeps units which
    another lacks.

    Args:
        leases: as :func:`current` returns them.
        windows: the windows of the plan, not lowered.
        reading: the reading of the hit, with its cost counted.
        request: what the process asks for.
    """
    if not reading.allowed or len(leases) >= LEASES_AT_MOST:
        return None
    leased, holders = units_out(leases), len(out(leases)) + 1
    units = min(request.units, LARGEST)
    for window, used in zip(windows, reading.used, strict=False):
        if window.limit is not None:
            left = window.limit - leased - used
            units = min(units, left // holders, window.limit // SHARE - leased)
    if units < LEAST:
        return None
    return Reservation(request.id, units, reading.now + request.span, request.span)


def _kept(lease: Reservation, now: int) -> QuotaLeases:
    """Return an unsettled lease as it is at ``now``, or nothing once it ended too long ago."""
    if lease.deadline > now:
        return (within_span(lease, now),)
    if lease.deadline + LONGEST > now:
        return (lease._replace(units=0) if lease.units else lease,)
    return ()


def _counted(cells: Cells, window: Window, late: Iterable[tuple[int, int]], now: int) -> Cells:
    """Count units at instants up to the present."""
    _, span, _, grain = window
    cells = pruned(cells, span, grain, now)
    for at, units in late:
        if at > now - span:
            cells = count_at(cells, grain, at, min(units, LARGEST - cells[0]))
    return cells
