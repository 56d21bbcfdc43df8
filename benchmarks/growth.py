"""What an admission costs as keys and organizations become many.

Each size is measured in a process of its own, so that the collector walks no other's objects.
Beside lockgate stands the least that could be done with as many keys: two dictionaries, a digest
and three logs. It meets the processor's caches alike, which hold less of a larger table.
"""

import gc
import json
import subprocess
import sys
from collections import deque
from collections.abc import Iterable
from hmac import compare_digest, digest
from itertools import pairwise
from random import Random
from statistics import quantiles
from time import perf_counter_ns, thread_time_ns, time_ns

from lockgate import MemoryStore, Plan, PlanBook, run
from lockgate.core.key_format import KeyFormat, NewKey

from .measure import table
from .workload import PEPPER, PLENTY, draft, random_keys

SIZES = ((1_000, 100), (10_000, 1_000), (100_000, 10_000), (1_000_000, 100_000))
SAMPLE = 50_000
"""Admissions that are timed, each with a key drawn at random."""


def main(quick: bool) -> None:
    rows = []
    for size in SIZES[:2] if quick else SIZES:
        ours, floor = (_in_a_process(name, size) for name in MEASURES)
        figures = [*ours["first"], *ours["again"], floor["again"][0]]
        rows.append(
            [
                *(f"{number:,}" for number in size),
                *(f"{microseconds:.1f}" for microseconds in figures),
                f"{ours['again'][0] / floor['again'][0]:.2f}",
                f"{ours['longest_pause']:.2f}",
                f"{ours['collections']}",
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
        "floor's p50",
        "times floor",
        "longest gc ms",
        "gcs",
    ]
    table(title, columns, rows)


def _in_a_process(name: str, size: tuple[int, int]):
    command = [sys.executable, "-m", __name__, name, *map(str, size)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def lockgate(format: KeyFormat, keys: Iterable[tuple[str, NewKey]]):
    """The memory store with these keys, by their organizations."""
    store = MemoryStore()
    for organization, key in keys:
        run(store.insert(draft(format, organization, key), None))
    plans = PlanBook([Plan("bench", *PLENTY, concurrent=None)], default="bench")

    def prepared(value):
        call = store.admit(format.read([value]), 1, plans)
        return lambda: run(call)

    return prepared


def floor(format: KeyFormat, keys: Iterable[tuple[str, NewKey]]):
    """The same by hand: every hit in three logs, which nobody reads."""
    known = {}
    logs = {}
    for organization, key in keys:
        known[key.handle] = (digest(PEPPER, key.text.encode(), "sha256"), organization)
        if organization not in logs:
            logs[organization] = tuple(deque() for _ in PLENTY)

    def prepared(value):
        text, handle = value.removeprefix(b"Bearer "), format.read([value]).handle

        def admit():
            kept, organization = known[handle]
            if compare_digest(digest(PEPPER, text, "sha256"), kept):
                now = time_ns() // 1000
                for log in logs[organization]:
                    log.append(now)

        return admit

    return prepared


MEASURES = {"lockgate": lockgate, "floor": floor}


def measure(name: str, keys: int, organizations: int) -> dict[str, object]:
    numbers = Random(keys)
    format = random_keys(numbers)
    wanted = set(numbers.choices(range(keys), k=SAMPLE))
    values = []

    def drawn():
        for number in range(keys):
            key = format.generate()
            if number in wanted:
                values.append(b"Bearer " + key.text.encode())
            yield f"org_{number % organizations}", key

    prepare = MEASURES[name](format, drawn())
    # Bytes and not tokens: the collector would walk those, at the store's expense.
    sample = numbers.choices(values, k=SAMPLE)
    wanted.clear()
    values.clear()
    pauses = Pauses()
    first = quantiles(timed(prepare, sample), n=100)
    again = quantiles(timed(prepare, sample), n=100)
    pauses.stop()
    return {
        "first": [first[49], first[98]],
        "again": [again[49], again[98]],
        "longest_pause": pauses.longest,
        "collections": pauses.collections,
    }


def timed(prepare, values: list[bytes]) -> list[float]:
    """Microseconds of CPU time for each admission."""
    clocks = [thread_time_ns() for _ in range(10_000)]
    own = sorted(b - a for a, b in pairwise(clocks))[len(clocks) // 2]
    times = []
    for value in values:
        admit = prepare(value)
        started = thread_time_ns()
        admit()
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
    print(json.dumps(measure(sys.argv[1], *map(int, sys.argv[2:]))))
