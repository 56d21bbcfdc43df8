"""Simulate callers that obey Retry-After, under several rules of what a refusal tells them.

    python -m benchmarks.kept_retries [--all]

A closed loop against one exact window of a minute, at 1.3 times its limit. A refused call sleeps
``Retry-After`` (whole seconds, at most two minutes) and is tried twice more, as the SDKs of OpenAI
and Anthropic do. The rules:

today    each refused caller is told when its cost next fits
spread   each is told another second, and nothing is kept: promises that any caller may use
kept     D47: what was told is kept for the key until 1.5 s later; 64 promises in first-come order,
         however far ahead; beyond them the answer of today
shared   as kept; a key gets a promise only while it has fewer than are left
ours     256 promises of together at most the limit; of both a key gets one more only while it has
         fewer than are left; a refusal without a promise tells the second of a further one
ours64   as ours, with 64 promises
repeat   as ours, and a key with a promise to come is told that one again, with no further promise

Each row is one run: of the calls, the share that failed after both retries; the delivered share of
the quota; refusals for each admission; seconds that admitted calls waited; the fullest window; the
longest series of refusals of one call.
"""

import heapq
import math
import sys
from bisect import bisect_right, insort
from collections.abc import Callable
from random import Random
from typing import NamedTuple

from .measure import table

WINDOW, GRACE, RETRIES = 60.0, 1.5, 2
RULES = ("today", "spread", "kept", "shared", "ours64", "ours", "repeat")


class Scenario(NamedTuple):
    """The callers of one run."""

    callers: int
    limit: int
    one_key: bool = False
    costs: tuple[int, ...] = (1,)
    gone: float = 0.0
    """The share of refused calls that are never tried again."""
    late: float = 0.0
    """The most seconds that a client sleeps longer than it was told."""
    rude: int = 0
    """Further callers, with one key, that call twice a second whatever they are told. Only the
    failures and waits of the others are counted."""

    def __str__(self) -> str:
        keys = "one key" if self.one_key else "each a key"
        costs = "1" if self.costs == (1,) else f"{min(self.costs)}..{max(self.costs)}"
        parts = f"{self.callers:3} callers, {keys}, {self.limit:,}/min, cost {costs}"
        parts += f", {self.gone:.0%} leave" if self.gone else ""
        parts += f", up to {self.late:g} s late" if self.late else ""
        return parts + (f", {self.rude} that do not wait" if self.rude else "")


class Promise(NamedTuple):
    """Units that are kept for a key."""

    at: float
    cost: int
    key: int


class Window:
    """What was admitted in the last minute, and what is promised."""

    def __init__(self, limit: int, rule: str) -> None:
        self.limit, self.rule = limit, rule
        self.times: list[float] = []
        self.totals: list[int] = [0]
        self.promises: list[Promise] = []

    def free(self, at: float) -> int:
        """Return the units free at an instant, if nothing more is admitted."""
        return self.limit - self.totals[-1] + self.totals[bisect_right(self.times, at - WINDOW)]

    def admit(self, now: float, key: int, cost: int) -> bool:
        """Admit a cost, by a promise of the key or beside all promises."""
        self.promises = [one for one in self.promises if one.at + GRACE >= now]
        due = (one for one in self.promises if one.key == key and one.at <= now + 1e-9)
        mine = next((one for one in due if one.cost >= cost), None)
        if mine is not None:
            self.promises.remove(mine)
        if self.free(now) < cost:
            return False
        is_kept = self.rule not in ("today", "spread")
        if mine is None and is_kept and self.promises and self._room(now)(now) < cost:
            return False
        self.times.append(now)
        self.totals.append(self.totals[-1] + cost)
        if len(self.times) > 2 * self.limit + 1000:
            first = bisect_right(self.times, now - WINDOW - 1)
            del self.times[:first], self.totals[:first]
        return True

    def wait(self, now: float, key: int, cost: int) -> int:
        """Return the seconds that a refused caller is told, and promise."""
        gone, plain = bisect_right(self.times, now - WINDOW), now
        while self.free(plain) < cost:
            plain = self.times[gone] + WINDOW
            gone += 1
        wait = least = max(1, math.ceil(plain - now - 1e-9))
        if self.rule == "repeat":
            mine = (one.at - now for one in self.promises if one.key == key and one.at > now)
            if again := next(mine, None):
                return math.ceil(again)
        may = self._may_promise(key, cost)
        if self.rule == "today" or (not may and self.rule in ("kept", "spread", "shared")):
            return least
        room, last = self._room(now), 60 if self.rule in ("ours", "ours64", "repeat") else 600
        while wait < last and room(now + wait) < cost:
            wait += 1
        if may and room(now + wait) >= cost:
            insort(self.promises, Promise(now + wait, cost, key))
        return wait

    def _may_promise(self, key: int, cost: int) -> bool:
        """Return whether a key may have one more promise."""
        number = len(self.promises)
        mine = sum(one.key == key for one in self.promises)
        if self.rule in ("kept", "spread"):
            return number < 64
        if self.rule == "shared":
            return mine < 64 - number
        if mine >= (64 if self.rule == "ours64" else 256) - number:
            return False
        mine = sum(one.cost for one in self.promises if one.key == key)
        return mine <= self.limit - sum(one.cost for one in self.promises) - cost

    def _room(self, now: float) -> Callable[[float], int]:
        """Return a function: the units that fit from an instant on, beside all promises."""
        instants, sums, total = [], [0], 0
        for at, cost, _ in self.promises:
            total += cost
            instants.append(at)
            sums.append(total)
        least = [10**9] * (len(instants) + 1)
        for place in range(len(instants) - 1, -1, -1):
            slack = self.free(max(instants[place], now)) - sums[place + 1]
            least[place] = min(least[place + 1], slack)

        def room(at: float) -> int:
            place = bisect_right(instants, at)
            return min(self.free(at) - sums[place], least[place])

        return room


def simulate(scenario: Scenario, rule: str, minutes: float, seed: int = 1) -> list[str]:
    """Run one scenario under one rule; return the figures."""
    chance, window = Random(seed), Window(scenario.limit, rule)
    mean = sum(scenario.costs) / len(scenario.costs)
    think = scenario.callers * 60 / (1.3 * scenario.limit / mean)
    warm, end = 120.0, 120.0 + minutes * 60
    queue = [(chance.random() * min(5.0, think), caller, 0) for caller in range(scenario.callers)]
    queue += [(chance.random(), -1 - caller, 0) for caller in range(scenario.rude)]
    heapq.heapify(queue)
    begun: dict[int, float] = {}
    costs: dict[int, int] = {}
    admitted = refused = failed = calls = units = fullest = longest = 0
    waits: list[float] = []
    while queue and (event := heapq.heappop(queue))[0] <= end:
        now, caller, tries = event
        counts = now > warm
        if caller < 0:
            if window.admit(now, -1, 1):
                units += counts
            else:
                window.wait(now, -1, 1)
            heapq.heappush(queue, (now + 0.4 + 0.2 * chance.random(), caller, 0))
            continue
        if tries == 0:
            begun[caller], costs[caller] = now, chance.choice(scenario.costs)
            calls += counts
        cost, key = costs[caller], 0 if scenario.one_key else caller
        pause = chance.expovariate(1 / think)
        if window.admit(now, key, cost):
            fullest = max(fullest, scenario.limit - window.free(now))
            if counts:
                admitted, units = admitted + 1, units + cost
                waits.append(now - begun[caller])
            heapq.heappush(queue, (now + pause, caller, 0))
            continue
        refused += counts
        longest = max(longest, tries + 1)
        wait = window.wait(now, key, cost)
        if tries and tries == RETRIES:
            failed += counts
            heapq.heappush(queue, (now + pause, caller, 0))
        elif scenario.gone and chance.random() < scenario.gone:
            calls -= counts
            heapq.heappush(queue, (now + pause, caller, 0))
        else:
            late = 0.005 + chance.random() * (0.05 + scenario.late)
            heapq.heappush(queue, (now + wait + late, caller, tries + 1))
    waits.sort()
    return [
        f"{failed / max(calls, 1):.2%}",
        f"{units / (scenario.limit * minutes):.3f}",
        f"{refused / max(admitted, 1):.2f}",
        f"{waits[len(waits) // 2]:.1f}" if waits else "-",
        f"{waits[int(0.99 * len(waits))]:.1f}" if waits else "-",
        f"{fullest / scenario.limit:.3f}",
        f"{longest}",
    ]


SCENARIOS = (
    Scenario(5, 10),
    Scenario(50, 60),
    Scenario(50, 60, one_key=True),
    Scenario(50, 60, gone=0.3),
    Scenario(50, 60, late=1.0),
    Scenario(50, 60, costs=(1, 1, 1, 2, 5)),
    Scenario(500, 600),
    Scenario(500, 600, one_key=True),
    Scenario(500, 600, costs=(1, 1, 1, 2, 5), gone=0.3, late=1.0),
    Scenario(500, 6000),
    Scenario(50, 60, rude=5),
    Scenario(200, 600, rude=20),
)
MORE = (
    Scenario(5, 60),
    Scenario(5, 60, one_key=True, late=1.0),
    Scenario(20, 10),
    Scenario(50, 10),
    Scenario(50, 600, one_key=True),
    Scenario(200, 600, gone=0.3),
    Scenario(200, 600, gone=0.3, late=1.0),
    Scenario(500, 60),
    Scenario(500, 600, gone=0.3),
    Scenario(500, 6000, one_key=True, late=1.0),
)


def main(every: bool) -> None:
    """Print the rules side by side."""
    rows = []
    for scenario in SCENARIOS + (MORE if every else ()):
        minutes = max(4.0, min(30.0, 3000 / scenario.limit))
        for place, rule in enumerate(RULES):
            name = "" if place else str(scenario)
            rows.append([name, rule, *simulate(scenario, rule, minutes)])
    columns = "callers", "rule", "failed", "delivered", "429s", "p50 s", "p99 s", "window", "series"
    table("Calls that obey Retry-After, at 1.3 times the limit", columns, rows)


if __name__ == "__main__":
    main("--all" in sys.argv)
