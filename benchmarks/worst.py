"""The worst number admitted in any window: lockgate beside the published algorithms and the peers.

``python -m benchmarks.worst [--svg FILE] [--markdown]``

Every limiter is asked to admit 100 a minute and is shown the same traffic: patterns that are known
to hurt one of them, and random ones. What counts is the most that it admitted in any 60 seconds,
however placed. Time is handed in, so nothing waits. The algorithms are written here as they were
published; ``limits`` is the library, its clock moved by hand.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from unittest.mock import patch

from lockgate import Plan
from lockgate.core.sliding_window import empty_state, hit
from lockgate.core.timestamps import MINUTE, SECOND
from lockgate.testing import plot, worst

from .measure import table
from .pages import Part, Run, Table, parser

LIMIT = 100
START = 1_700_000_000 * SECOND // MINUTE * MINUTE
"""A full minute."""
Admit = Callable[[int], bool]


def lockgate() -> Admit:
    """Cells that leave with their newest hit."""
    windows = Plan("worst", rpm=LIMIT, rph=None, rpd=None, concurrent=None).windows
    state = empty_state(windows)

    def admit(now: int) -> bool:
        nonlocal state
        reading, state = hit(state, windows, now, 1)
        return reading.allowed

    return admit


def fixed_window() -> Admit:
    """A counter for each full minute."""
    minute = count = 0

    def admit(now: int) -> bool:
        nonlocal minute, count
        if now // MINUTE != minute:
            minute, count = now // MINUTE, 0
        count += 1
        return count <= LIMIT

    return admit


def two_counters() -> Admit:
    """Two counters, the older weighted by how much of it the window covers (Cloudflare, 2017)."""
    minute = before = count = 0

    def admit(now: int) -> bool:
        nonlocal minute, before, count
        number, into = divmod(now, MINUTE)
        if number != minute:
            before, count = (count if number == minute + 1 else 0), 0
            minute = number
        if before * (MINUTE - into) / MINUTE + count + 1 > LIMIT:
            return False
        count += 1
        return True

    return admit


def gcra() -> Admit:
    """The generic cell rate algorithm (ATM Forum, 1996), with a burst of the limit."""
    interval = MINUTE // LIMIT
    due = 0

    def admit(now: int) -> bool:
        nonlocal due
        late = max(due, now)
        if late - now > interval * (LIMIT - 1):
            return False
        due = late + interval
        return True

    return admit


def log() -> Admit:
    """Every hit of the last minute, kept."""
    hits: deque[int] = deque()

    def admit(now: int) -> bool:
        while hits and hits[0] <= now - MINUTE:
            hits.popleft()
        if len(hits) >= LIMIT:
            return False
        hits.append(now)
        return True

    return admit


def of_limits(strategy: str) -> Callable[[], Admit]:
    """A strategy of the library ``limits``."""

    def make() -> Admit:
        from limits import RateLimitItemPerMinute, strategies
        from limits.storage import MemoryStorage

        item = RateLimitItemPerMinute(LIMIT)
        with patch("threading.Timer"):  # It would forget by the clock on the wall.
            limiter = getattr(strategies, strategy)(MemoryStorage())

        def admit(now: int) -> bool:
            with patch("time.time", lambda: now / SECOND), patch("threading.Timer"):
                storage = limiter.storage
                for key in [k for k, at in storage.expirations.items() if at <= now / SECOND]:
                    storage.clear(key)
                return bool(limiter.hit(item, "org"))

        return admit

    return make


CONTENDERS: dict[str, Callable[[], Admit]] = {
    "lockgate": lockgate,
    "exact log": log,
    "GCRA, burst of the limit": gcra,
    "two weighted counters": two_counters,
    "fixed window": fixed_window,
    "limits: MovingWindow": of_limits("MovingWindowRateLimiter"),
    "limits: SlidingWindowCounter": of_limits("SlidingWindowCounterRateLimiter"),
    "limits: FixedWindow": of_limits("FixedWindowRateLimiter"),
}


PAGE = Part(
    "worst", "measured.md", (Table(("limiter", "admitted", "times the limit"), tuple(CONTENDERS)),)
)
PARTS = (PAGE,)


def traffic() -> Iterator[list[int]]:
    """Traces: a burst at some instant and a second one later, floods, and random traffic."""
    crowd = 3 * LIMIT
    for first in (0, 1, 15, 30, 45, 55, 59):
        for gap in (1, 5, 15, 30, 45, 55, 59, 60, 61, 90):
            start = START + first * SECOND
            yield [start] * crowd + [start + gap * SECOND] * crowd
    for rate in (2, 5, 20):
        yield [START + n * SECOND // rate for n in range(150 * rate)]
        yield [START] * crowd + [START + n * SECOND // rate for n in range(150 * rate)]
        edge = START + 59 * SECOND + 999_999
        yield [edge] * crowd + [edge + 1 + n * SECOND // rate for n in range(150 * rate)]
    for seed in range(20):
        random = Random(seed)
        at, trace = START, list[int]()
        for _ in range(60):
            at += round(random.expovariate(1 / (4 * SECOND)))
            trace += [at] * random.choice((1, 1, 5, 40))
        yield trace


def measure() -> dict[str, int]:
    """The worst window of each contender over all traffic."""
    traces = list(traffic())
    worsts: dict[str, int] = {}
    for name, make in CONTENDERS.items():
        found = 0
        for trace in traces:
            admit = make()
            found = max(found, worst([at for at in trace if admit(at)], MINUTE).admitted)
        worsts[name] = found
    return worsts


def main() -> None:
    options = parser("benchmarks.worst", __doc__)
    options.add_argument("--svg", type=Path, help="write the figures as a picture, too")
    chosen = options.parse_args()
    about = Run("benchmarks.worst", "limits")
    svg: Path | None = chosen.svg
    worsts = measure()
    cells = {name: (f"{most}", f"{most / LIMIT:.2f}") for name, most in worsts.items()}
    rows = [(name, *row) for name, row in cells.items()]
    table(f"At most {LIMIT} a minute: the worst 60 seconds", ("limiter", "admitted", "times"), rows)
    if svg is not None:
        title = f"Most admitted in any 60 seconds, where the limit is {LIMIT}"
        svg.write_text(plot.bars(title, worsts, LIMIT), encoding="utf-8")
    if chosen.markdown:
        PAGE.write(about.line(), cells)


if __name__ == "__main__":
    main()
