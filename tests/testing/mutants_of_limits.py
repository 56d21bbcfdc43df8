"""Stores with one mistake each in named limits."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from lockgate.core.limit_hits import combined, crowded, hit_limited, peek_limited
from lockgate.core.limit_windows import LimitWindows
from lockgate.core.plans import PlanBook
from lockgate.core.sliding_window import (
    EMPTY,
    Cells,
    Reading,
    State,
    Window,
    empty_state,
    hit,
    peek,
)
from lockgate.core.timestamps import DAY

from .mutants import Call, Mutant, Windows, gap, several, wrong


class LimitMutant(Mutant):
    """Keeps named limits in a dictionary; right until a subclass makes its mistake."""

    parts: ClassVar = ("limits",)

    def __init__(self) -> None:
        super().__init__()
        self.cells: dict[tuple[str, str], Cells] = {}
        self.door = threading.Lock()

    def name(self, organization: str, field: str, window: Window) -> tuple[str, str]:
        return organization, field

    def state(self, organization: str, windows: Windows) -> State:
        return self.states.get(organization) or empty_state(windows) if windows else ()

    async def hit(
        self,
        organization: str,
        windows: Windows,
        cost: int,
        now: int | None = None,
        limits: LimitWindows | None = None,
    ) -> Reading:
        at = self.at(now)
        with self.door:
            if limits is None:
                state = self.state(organization, windows)
                reading, self.states[organization] = hit(state, windows, at, cost)
                return reading
            limits = self.present(limits, at, organization)
            before = self.before(organization, limits)
            return self.charged(organization, windows, before, limits, at, cost)

    def charged(
        self,
        organization: str,
        windows: Windows,
        before: Sequence[Cells | None],
        limits: LimitWindows,
        at: int,
        cost: int,
    ) -> Reading:
        state = self.state(organization, windows)
        lacking = crowded(before, sum(owner == organization for owner, _ in self.cells))
        judged = self.judge(state, windows, before, limits.windows, at, cost, lacking)
        reading, after, kept = judged
        if windows:
            self.states[organization] = after
        self.keep(self.names(organization, limits), before, kept)
        return reading

    def present(self, limits: LimitWindows, at: int, organization: str) -> LimitWindows:
        return limits.at(at, organization)

    def names(self, organization: str, limits: LimitWindows) -> list[tuple[str, str]]:
        pairs = zip(limits.fields, limits.windows, strict=True)
        return [self.name(organization, *pair) for pair in pairs]

    def before(self, organization: str, limits: LimitWindows) -> list[Cells | None]:
        return [self.cells.get(name) for name in self.names(organization, limits)]

    def judge(
        self,
        state: State,
        windows: Windows,
        before: Sequence[Cells | None],
        limits: Windows,
        at: int,
        cost: int,
        lacking: int | None,
    ) -> tuple[Reading, State, State]:
        return hit_limited(state, windows, before, limits, at, cost, lacking)

    def keep(
        self, names: Sequence[tuple[str, str]], before: Sequence[Cells | None], kept: State
    ) -> None:
        for name, old, new in zip(names, before, kept, strict=True):
            if old is not None or new[0]:
                self.cells[name] = new

    async def peek(
        self,
        organization: str,
        windows: Windows,
        now: int | None = None,
        limits: LimitWindows | None = None,
    ) -> Reading:
        state, at = self.state(organization, windows), self.at(now)
        if limits is None:
            return peek(state, windows, at)
        limits = self.present(limits, at, organization)
        before = self.before(organization, limits)
        return peek_limited(state, windows, before, limits.windows, at)

    async def reset(self, organization: str, now: int | None = None, *, change: Any = None) -> None:
        self.cells = {name: one for name, one in self.cells.items() if name[0] != organization}
        await super().reset(organization, now, change=change)


def _cells(call: Call) -> State:
    """Return the cells of the named limits before a call, which a judge is asked about."""
    return tuple(one or EMPTY for one in call.before)


def _looser(call: Call, kept: int) -> Any:
    """Judge by the first limits alone."""
    loose = (window._replace(limit=None) for window in call.limits[kept:])
    return call(limits=(*call.limits[:kept], *loose))


def _soft_as_hard(limits: LimitWindows) -> LimitWindows:
    hard = zip(limits.windows, limits.marks, strict=True)
    return limits._replace(windows=tuple(window._replace(limit=mark) for window, mark in hard))


def _as_the_first(call: Call) -> Any:
    """Ask for the first day of one organization's contract, and use it for all."""
    return call(organization=call.store.seen.setdefault("first", call.organization))


several(
    {
        "counts_all_keys_together": (
            "W8",
            "name",
            lambda call: (call.organization, " ".join(call.field.split(" ")[:2])),
        ),
        "counts_all_organizations_together": ("W8", "name", lambda call: ("", call.field)),
        "counts_all_windows_of_a_limit_together": (
            "W8 W1 W13",
            "name",
            lambda call: (call.organization, call.field.split(" ", maxsplit=1)[0]),
        ),
        "begins_anew_with_another_number": (
            "W13",
            "name",
            lambda call: (call.organization, f"{call.field} {call.window.limit}"),
        ),
        "judges_by_the_first_window_only": ("W1 W4", "judge", lambda call: _looser(call, 1)),
        "has_any_number_of_fields": ("W10", "judge", lambda call: call(lacking=None)),
        "shares_cells_by_the_grain_of_a_day": (
            "W14 W2 W6",
            "judge",
            lambda call: call(limits=tuple(one._replace(grain=DAY) for one in call.limits)),
        ),
        "forgets_the_limit_when_the_clock_steps_back": (
            "W11",
            "judge",
            lambda call: call(
                before=[one if one and one[3] <= call.at else None for one in call.before]
            ),
        ),
        # As a window as long as its period.
        "never_begins_a_period": ("W1 W2 W6 W11", "present", lambda call: call.limits),
        "has_the_same_months_for_all_organizations": ("W8", "present", _as_the_first),
        "refuses_beyond_a_soft_quota": ("W2 W4", "present", lambda call: _soft_as_hard(call())),
        # As an older store would.
        "admits_without_limits": ("W9 W14", "admit", lambda call: call(limits=())),
    },
    of=LimitMutant,
)


@wrong("W9", "judge", of=LimitMutant)
def charges_the_limit_of_a_request_that_the_plan_refuses(call: Call) -> Any:
    """Judges the limit first, by a call of its own."""
    reading, after, kept = call()
    alone, charged = hit(_cells(call), call.limits, call.at, call.cost)
    return reading, after, charged if alone.allowed else kept


@wrong("W1 W9", "judge", of=LimitMutant)
def charges_the_plan_of_a_request_that_a_limit_refuses(call: Call) -> Any:
    """Judges the plan first, by a call of its own."""
    reading, after, kept = call()
    alone, charged = hit(call.state, call.windows, call.at, call.cost)
    return reading, charged if alone.allowed else after, kept


@wrong("W1 W9", "judge", of=LimitMutant)
def charges_a_limit_though_another_refuses(call: Call) -> Any:
    """Judges one limit after another."""
    reading, after, kept = call()
    if not reading.allowed:
        pairs = zip(_cells(call), call.limits, strict=True)
        kept = tuple(hit((one,), (window,), call.at, call.cost)[1][0] for one, window in pairs)
    return reading, after, kept


@wrong("W4", "judge", of=LimitMutant)
def tells_what_remains_of_the_limit(call: Call) -> Any:
    reading, after, kept = call()
    left = min(window.limit - one[0] for one, window in zip(kept, call.limits, strict=True))
    remaining = left if reading.remaining is None else min(left, reading.remaining)
    return reading._replace(remaining=max(0, remaining)), after, kept


@wrong("W6", "judge", of=LimitMutant)
def tells_the_shortest_wait(call: Call) -> Any:
    reading, after, kept = call()
    if reading.allowed:
        return reading, after, kept
    one = peek(call.state, call.windows, call.at, call.cost)
    other = peek(_cells(call), call.limits, call.at, call.cost)
    wait = min(told.wait for told in (one, other) if not told.allowed)
    return reading._replace(wait=wait), after, kept


@wrong("W1 W4", "judge", of=LimitMutant)
def refuses_by_the_limit_with_the_verdict_of_the_plan(call: Call) -> Any:
    """Adds what the limits count to the answer, and leaves them out of the verdict."""
    reading, after, kept = _looser(call, 0)
    alone = peek(_cells(call), call.limits, call.at, call.cost)
    told = combined(reading._replace(used=reading.used[: len(call.windows)]), alone)
    return (reading if reading.allowed else told), after, kept


@wrong("W4 W5 W9", "peek", of=LimitMutant)
async def counts_what_it_reads(call: Call) -> Any:
    reading = await call()
    if call.limits is not None:
        await call.store.hit(call.organization, (), 1, call.now, call.limits)
    return reading


@wrong("W9", "hit", of=LimitMutant)
def charges_the_plan_for_limits_alone(call: Call) -> Any:
    states, organization = call.store.states, call.organization
    if not call.windows and organization in states:
        kept = states[organization]
        spans = tuple(Window("", DAY, None, 0) for _ in kept)
        states[organization] = hit(kept, spans, call.at, call.cost)[1]
    return call()


@wrong("W2", "reset", of=LimitMutant)
async def keeps_limits_on_a_reset(call: Call) -> None:
    kept = call.store.cells
    await call()
    call.store.cells = kept


@wrong("W11", "keep", of=LimitMutant)
def locks_out_after_the_clock_steps_back(call: Call) -> Any:
    """A refusal leaves the cells in the future, so each one waits for a whole window again."""
    grown = [
        new if old is None or new[0] > old[0] or new[3] >= old[3] else old
        for old, new in zip(call.before, call.kept, strict=True)
    ]
    return call(kept=tuple(grown))


@wrong("W9 W1 W13 W14", "admit", of=LimitMutant)
def forgets_the_limits_of_the_plan(call: Call) -> Any:
    plans = call.plans
    plain = [replace(plans.plan(name, (), 0), limits=()) for name in plans.names]
    return call(plans=PlanBook(plain, custom=[], default=plans.default.name))


@wrong("W9 W1 W13 W14", "find", of=LimitMutant)
async def forgets_the_limits_of_the_key(call: Call) -> Any:
    key = await call()
    if key is None or key.details is None:
        return key
    return key._replace(details=key.details._replace(limits=()).or_none())


@wrong("W1 W3", "hit", of=LimitMutant)
async def reads_the_limit_before_its_turn(call: Call) -> Any:
    """Decides by cells that another caller may have changed since."""
    store, organization, limits = call.store, call.organization, call.limits
    if limits is None:
        return await call()
    at, before = call.at, store.before(organization, limits)
    if threading.active_count() > 4:  # Only where the kit has many callers.
        gap()
    with store.door:
        return store.charged(organization, call.windows, before, limits, at, call.cost)


@wrong("W1 W6 W10 W13", "hit", of=LimitMutant)
def forgets_an_idle_month(call: Call) -> Any:
    """Drops what no hit has changed for two days, by the instant of the newest cell."""
    edge, store = call.at - 2 * DAY, call.store
    store.cells = {name: cells for name, cells in store.cells.items() if cells[3] > edge}
    return call()
