"""Checks of hits by more callers than a store puts into one batch, and of many in one window."""

from collections.abc import Sequence
from typing import NamedTuple

from ...core.ledger import Hit, Peek
from ...core.sliding_window import Reading, Window
from ...core.timestamps import MINUTE
from ...stores.base import Store
from ..factories import NOW, minute
from ..guarantees import Broken
from .callers import Callers
from .check import Check, crowded

CALLERS = 80
"""More than the 64 that a batch often holds."""
LIMITS = (None, 60, 90)
EXACTLY = 520
"""More admitted calls in one window than a list of exact instants often holds."""


class Made(NamedTuple):
    """One hit by one of many callers, and its answer."""

    organization: str
    windows: tuple[Window, ...]
    cost: int
    now: int
    reading: Reading


@crowded("W3", "windows")
async def each_of_many_hits_is_charged_once(crowd: Callers) -> None:
    """In one organization, and in several with several plans: one batch may hold them all."""
    for organizations, limits in ((1, LIMITS[:1]), (1, LIMITS), (9, LIMITS)):
        hits = await _hits_of_many(crowd, organizations, limits)
        for name in dict.fromkeys(hit.organization for hit in hits):
            own = [hit for hit in hits if hit.organization == name]
            total = _see_one_after_the_other(crowd, own)
            windows = minute(None)
            left = await crowd.store.charge(name, Peek(windows), NOW + CALLERS)
            said = f"{total} units were admitted, and {left.used} are counted."
            crowd.see(left.used == (total,) * len(windows), said, "W9")


async def _hits_of_many(
    crowd: Callers, organizations: int, limits: Sequence[int | None]
) -> list[Made]:
    async def work(index: int) -> Made:
        name = f"{organizations} {len(limits)} {index % organizations}"
        windows, cost = minute(limits[index // 3 % len(limits)]), index % 3 + 1
        reading = await crowd.store.charge(name, Hit(windows, cost), NOW + index)
        return Made(name, windows, cost, NOW + index, reading)

    return await crowd.at_once(CALLERS, work)


def _see_one_after_the_other(crowd: Callers, hits: Sequence[Made]) -> int:
    """Check that some order of hits of one organization explains their answers.

    The units that a hit finds counted give its place in this order. Return the admitted units.
    """
    total, sums = 0, {0}
    for hit in sorted((hit for hit in hits if hit.reading.allowed), key=lambda hit: hit.reading[2]):
        total += hit.cost
        sums.add(total)
        limit = hit.windows[0].limit
        said = f"A hit of cost {hit.cost} among many counts {hit.reading.used}, not {total}."
        crowd.see(hit.reading.used == (total,) * len(hit.windows), said)
        crowd.see(limit is None or total <= limit, f"{total} were admitted of {limit}.", "W1")
    for hit in hits:
        limit, used = hit.windows[0].limit, hit.reading.used[0]
        crowd.see(hit.reading.now == hit.now, "A hit has the instant of another.", "W12")
        if not hit.reading.allowed:
            crowd.see(used in sums, f"A refused hit finds {used} units, which never were.")
            full = limit is not None and used + hit.cost > limit
            crowd.see(full, f"A hit of {hit.cost} was refused: {used} of {limit} used.", "W2")
    return total


async def _many_instants(store: Store) -> None:
    """Detects a list of exact hits that is cut: a concurrent caller would merge instants."""
    windows = (Window("minute", MINUTE, EXACTLY, 0), *minute(None)[1:])
    admitted = 0
    for step in range(EXACTLY + 40):
        admitted += (await store.charge("org_1", Hit(windows, 1), NOW + step * 100_000)).allowed
    if admitted != EXACTLY:
        said = f"{admitted} of {EXACTLY + 40} hits were admitted; the limit is {EXACTLY}."
        raise Broken("W1" if admitted > EXACTLY else "W2", said)


every_hit_of_a_large_window_counts = Check(
    "W1", "windows", "every_hit_of_a_large_window_counts", False, _many_instants
)
CHECKS: tuple[Check, ...] = (
    each_of_many_hits_is_charged_once,
    every_hit_of_a_large_window_counts,
)
