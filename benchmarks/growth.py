"""What an admission costs as keys and organizations become many.

Each size is measured in a process of its own, so that the collector walks no other's objects.
"""

import gc
import json
import random
import subprocess
import sys
from itertools import pairwise
from statistics import quantiles
from time import perf_counter_ns, thread_time_ns

from lockgate import MemoryStore, Plan, PlanBook, run
from lockgate.rules.credentials import KeyFormat

from .measure import table
from .workload import PLENTY, draft, random_keys

SIZES = ((1_000, 100), (10_000, 1_000), (100_000, 10_000), (1_000_000, 100_000))
SAMPLE = 50_000
"""Admissions that are timed, each with a key drawn at random."""


def main(quick: bool) -> None:
    rows = []
    for keys, organizations in SIZES[:2] if quick else SIZES:
        command = [sys.executable, "-m", __name__, str(keys), str(organizations)]
        told = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
        figures = json.loads(told)
        rows.append(
            [
                f"{keys:,}",
                f"{organizations:,}",
                *(f"{microseconds:.1f}" for microseconds in figures["first"] + figures["again"]),
                f"{figures['longest_pause']:.2f}",
                f"{figures['collections']}",
            ]
        )
    title = (
        f"MemoryStore.admit, as keys become many\n({SAMPLE:,} admissions with keys drawn at "
        "random, then the same again, the collector on;\nthread CPU time of a call, the clock's "
        "own taken off; a collection's time is wall time)"
    )
    columns = [
        "keys",
        "organizations",
        "p50 us",
        "p99 us",
        "p50, again",
        "p99, again",
        "longest gc ms",
        "gcs",
    ]
    table(title, columns, rows)


def measure(keys: int, organizations: int) -> dict[str, object]:
    numbers = random.Random(keys)
    format = random_keys(numbers)
    store = MemoryStore()
    wanted = set(numbers.choices(range(keys), k=SAMPLE))
    values: list[bytes] = []
    for number in range(keys):
        key = format.generate()
        run(store.insert(draft(format, f"org_{number % organizations}", key), None))
        if number in wanted:
            values.append(b"Bearer " + key.text.encode())
    # Bytes and not tokens: the collector would walk those, at the store's expense.
    sample = numbers.choices(values, k=SAMPLE)
    del wanted, values
    plans = PlanBook([Plan("bench", *PLENTY, concurrent=None)], default="bench")
    pauses = Pauses()
    first = quantiles(timed(store, format, sample, plans), n=100)
    again = quantiles(timed(store, format, sample, plans), n=100)
    pauses.stop()
    return {
        "first": [first[49], first[98]],
        "again": [again[49], again[98]],
        "longest_pause": pauses.longest,
        "collections": pauses.collections,
    }


def timed(
    store: MemoryStore, format: KeyFormat, values: list[bytes], plans: PlanBook
) -> list[float]:
    """Microseconds of CPU time for each admission."""
    clocks = [thread_time_ns() for _ in range(10_000)]
    own = sorted(b - a for a, b in pairwise(clocks))[len(clocks) // 2]
    times = []
    for value in values:
        call = store.admit(format.read([value]), 1, plans)
        started = thread_time_ns()
        run(call)
        times.append((thread_time_ns() - started - own) / 1000)
    return times


class Pauses:
    """Watches the garbage collector."""

    def __init__(self) -> None:
        self.longest = 0.0
        self.collections = 0
        gc.collect()
        gc.callbacks.append(self._watch)

    def _watch(self, phase: str, _: dict) -> None:
        if phase == "start":
            self._started = perf_counter_ns()
        else:
            self.collections += 1
            self.longest = max(self.longest, (perf_counter_ns() - self._started) / 1e6)

    def stop(self) -> None:
        gc.callbacks.remove(self._watch)


if __name__ == "__main__":
    print(json.dumps(measure(*map(int, sys.argv[1:]))))
