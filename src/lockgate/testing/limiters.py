"""Hold any rate limiter to a plan: random traffic, an oracle over every window, and few arrivals.

The oracle is the definition itself: it adds up what was admitted in the window that ends at each
arrival. No limiter can pass it by making the same mistake.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from random import Random
from typing import Final, NamedTuple, TypeAlias

from ..core.plans import Plan
from ..core.sliding_window import Window
from ..core.timestamps import SECOND
from .clock import START
from .guarantees import Broken
from .trace import Arrival

TryAcquire: TypeAlias = Callable[[int, int], bool]
"""Takes an instant in microseconds, which never goes back, and a cost; returns whether the limiter
admits it."""
MakeLimiter: TypeAlias = Callable[[], TryAcquire]
"""Returns a limiter without any calls yet."""

TRACES: Final = 200
_BURSTS: Final = 12
_ARRIVALS_AT_MOST: Final = 60
_COMPARED: Final = 3
"""Failing traces that are made shorter, of which the shortest is shown."""
_SHRUNK_AT_MOST: Final = 1_000
"""Traces that the search for fewer arrivals tries."""


class Fault(NamedTuple):
    """A decision that a limiter got wrong."""

    sentence: str
    """W1: too much was admitted; W2: a call was refused that fits every window."""
    window: Window
    used: int
    """The content of the window that ends at the last arrival, its cost included."""
    place: int
    """The place of this arrival in the trace."""


def assert_limiter_keeps(
    make_limiter: MakeLimiter,
    plan: Plan,
    *,
    exact: bool = False,
    traces: int = TRACES,
    seed: int = 0,
) -> None:
    """Check that a limiter never admits more than a plan's limits in any span of their windows.

    Args:
        make_limiter: returns a new limiter, which need not have to do with lockgate.
        plan: its limits per minute, hour and day; slots are not tried.
        exact: whether a call must be admitted, too, if it fits every window.
        traces: how many random traces are tried.
        seed: selects them; the same seed gives the same traces.

    Raises:
        Broken: W1 or W2, with the fewest arrivals found that show the mistake.
    """
    random = Random(seed)  # noqa: S311 - traffic is no secret
    windows = [window for window in plan.windows if window.limit is not None]
    found: list[tuple[int, list[Arrival]]] = []
    for number in range(traces if windows else 0):
        trace = [*_traffic(random, windows)]
        fault = _fault(make_limiter, windows, trace, exact=exact)
        if fault is not None:
            found.append((number, _fewest(make_limiter, windows, trace, fault, exact=exact)))
        if len(found) == _COMPARED:
            break
    if found:
        number, few = min(found, key=lambda one: len(one[1]))
        raise _broken(make_limiter, windows, few, f"seed {seed}, trace {number}", exact=exact)


def _traffic(random: Random, windows: Sequence[Window]) -> Iterator[Arrival]:
    """Generate bursts and lulls, with gaps at the boundaries of one window."""
    span, limit = random.choice([(window.span, window.limit or 0) for window in windows])
    share = span // max(1, limit)
    gaps = (0, 1, share, share - 1, span // 2, span // 60, span - 1, span, span + 1)
    # Often close to a full minute, hour or day, at which counters of fixed windows begin anew.
    at = START - START % span + random.choice((0, span - 1, span - span // 60, span // 2))
    made = 0
    for _ in range(random.randint(1, _BURSTS)):
        gap = max(0, random.choice((*gaps, random.randint(0, span))))
        cost = random.choice((1, 1, 1, 2, max(1, limit // 2), max(1, limit), limit + 1))
        times = random.choice((1, 2, min(limit + 2, 60)))
        for step in range(times if made < _ARRIVALS_AT_MOST else 1):
            at += gap if step == 0 or random.random() < 0.2 else random.choice((0, 0, 1, share))
            yield Arrival(at, cost)
            made += 1


def _fault(
    make_limiter: MakeLimiter, windows: Sequence[Window], trace: Iterable[Arrival], *, exact: bool
) -> Fault | None:
    """Return the first wrong decision of a new limiter; None without one."""
    try_acquire = make_limiter()
    admitted: list[Arrival] = []
    for place, arrival in enumerate(trace):
        allowed = bool(try_acquire(arrival.at, arrival.cost))
        held = [(window, _held(admitted, window, arrival)) for window in windows]
        full = [(window, used) for window, used in held if used > (window.limit or 0)]
        if allowed and full:
            return Fault("W1", *full[0], place)
        if exact and not allowed and not full:
            fullest = max(held, key=lambda one: one[1] / max(1, one[0].limit or 0))
            return Fault("W2", *fullest, place)
        if allowed:
            admitted.append(arrival)
    return None


def _held(admitted: Sequence[Arrival], window: Window, last: Arrival) -> int:
    """Return the content of the window that ends at an arrival, the arrival included."""
    return last.cost + sum(one.cost for one in admitted if one.at > last.at - window.span)


def _fewest(
    make_limiter: MakeLimiter,
    windows: Sequence[Window],
    trace: list[Arrival],
    fault: Fault,
    *,
    exact: bool,
) -> list[Arrival]:
    """Return a trace with the same mistake of which no arrival can be left out or merged."""
    left, trace = _SHRUNK_AT_MOST, trace[: fault.place + 1]

    def shows(some: list[Arrival]) -> bool:
        nonlocal left
        left -= 1
        found = _fault(make_limiter, windows, some, exact=exact)
        return found is not None and found.sentence == fault.sentence

    smaller = True
    while smaller and left > 0:
        smaller = False
        for fewer in chain(_without_parts(trace), _with_merged(trace)):
            if left <= 0:
                break
            if shows(fewer):
                trace, smaller = fewer, True
                break
    for simpler in _with_lower_costs(trace):
        if left > 0 and len(simpler) == len(trace) and shows(simpler):
            trace = simpler
    return trace


def _without_parts(trace: list[Arrival]) -> Iterator[list[Arrival]]:
    """Yield the trace without large parts first, and last without each pair of arrivals."""
    size = len(trace)
    part = size // 2
    while part:
        yield from (trace[:start] + trace[start + part :] for start in range(0, size, part))
        part //= 2
    if size <= _BURSTS:
        pairs = ((one, two) for two in range(size) for one in range(two))
        yield from (trace[:one] + trace[one + 1 : two] + trace[two + 1 :] for one, two in pairs)


def _with_merged(trace: list[Arrival]) -> Iterator[list[Arrival]]:
    """Yield the trace with two neighbours made one, of their whole cost."""
    for place in range(len(trace) - 1):
        first, second = trace[place : place + 2]
        for at in (first.at, second.at):
            merged = Arrival(at, first.cost + second.cost)
            yield [*trace[:place], merged, *trace[place + 2 :]]


def _with_lower_costs(trace: list[Arrival]) -> Iterator[list[Arrival]]:
    for place, arrival in enumerate(trace):
        for cost in (1, arrival.cost // 2):
            if 0 < cost < arrival.cost:
                yield [*trace[:place], arrival._replace(cost=cost), *trace[place + 1 :]]


def _broken(
    make_limiter: MakeLimiter,
    windows: Sequence[Window],
    trace: list[Arrival],
    found: str,
    *,
    exact: bool,
) -> Broken:
    fault = _fault(make_limiter, windows, trace, exact=exact)
    assert fault is not None, "a limiter must answer the same to the same calls"
    try_acquire, start, lines = make_limiter(), trace[0].at, list[str]()
    for arrival in trace:
        answer = "admitted" if try_acquire(*arrival) else "refused"
        lines.append(f"{(arrival.at - start) / SECOND:+.6f} s  cost {arrival.cost}  {answer}")
    window = fault.window
    span = f"the {window.span / SECOND:g} s up to the last arrival"
    if fault.sentence == "W1":
        said = f"{fault.used} were admitted in {span}; the limit of a {window.name} is "
    else:
        said = f"The last arrival was refused, and with it {fault.used} are in {span}, of "
    return Broken(fault.sentence, f"{said}{window.limit} ({found}).", lines)
