"""How many bytes lockgate keeps."""

import sys
import tracemalloc
from collections.abc import Iterator
from random import Random

from lockgate import MemoryStore, Plan, PlanBook, run
from lockgate.core.plans import SPANS
from lockgate.core.sliding_window import empty_state, hit

from .measure import table
from .workload import PLENTY, draft, random_keys

DAY = 86_400_000_000
KEYS, ORGANIZATIONS = 20_000, 2_000


def main(quick: bool) -> None:
    rows = []
    for per_day in (500, 20_000) if quick else (500, 5_000, 20_000, 200_000, 1_000_000):
        largest, cells = _busiest(per_day)
        rows.append([f"{per_day:,}", f"{largest:,}", *map(str, cells)])
    title = (
        "Window state of one organization, over a day of requests evenly spread and another in "
        "bursts\n(the most that was seen; bytes of every object in it)"
    )
    table(
        title, ["requests a day", "bytes", *(f"cells, {name}" for name, _ in SPANS.values())], rows
    )
    key, used = _kept()
    rows = [["a key", f"{key:.0f}"], ["a key that was used once, and its windows", f"{used:.0f}"]]
    title = f"MemoryStore, {KEYS:,} keys of {ORGANIZATIONS:,} organizations (by tracemalloc)"
    table(title, ["", "bytes each"], rows)


def _busiest(per_day: int) -> tuple[int, list[int]]:
    plan = Plan("bench", per_day, per_day, per_day, concurrent=None)
    state = empty_state(plan.windows)
    largest = 0
    cells = [0, 0, 0]
    for now in _instants(per_day):
        _, state = hit(state, plan.windows, now, 1)
        largest = max(largest, _size(state))
        cells = [max(a, len(b[5]) // 16 + 1) for a, b in zip(cells, state, strict=True)]
    return largest, cells


def _instants(per_day: int) -> Iterator[int]:
    """A day of even traffic, then one whose traffic comes in ten bursts."""
    yield from range(DAY, 2 * DAY, DAY // per_day)
    for burst in range(10):
        start = 2 * DAY + burst * DAY // 10
        yield from range(start, start + per_day // 10 * 1000, 1000)


def _size(kept: object) -> int:
    """The bytes of a value and of all that it holds."""
    inner = sum(map(_size, kept)) if isinstance(kept, tuple) else 0
    return sys.getsizeof(kept) + inner


def _kept() -> tuple[float, float]:
    """Bytes that the memory store holds for a key, before and after its first use."""
    format = random_keys(Random(1))
    keys = [format.generate() for _ in range(KEYS)]
    plans = PlanBook([Plan("bench", *PLENTY, concurrent=None)], default="bench")
    tracemalloc.start()
    store = MemoryStore()
    for number, key in enumerate(keys):
        run(store.insert(draft(format, f"org_{number % ORGANIZATIONS}", key), None))
    inserted = tracemalloc.get_traced_memory()[0]
    for key in keys:
        run(store.admit(format.read([b"Bearer " + key.text.encode()]), 1, plans))
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return inserted / KEYS, used / KEYS
