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

from .mutants import Mutant, Windows, gap


class LimitMutant(Mutant):
    """Keeps named limits in a dictionary; right until a subclass makes its mistake."""

    parts: ClassVar = ("limits",)

    def __init__(self) -> None:
        super().__init__()
        self.cells: dict[tuple[str, str], Cells] = {}
        self.door = threading.Lock()
        self.kept = 0

    def name(self, organization: str, field: str, window: Window) -> tuple[str, str]:
        return organization, field

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
            state = self.states.get(organization) or empty_state(windows) if windows else ()
            if limits is None:
                reading, self.states[organization] = hit(state, windows, at, cost)
                return reading
            limits = self.present(limits, at, organization)
            names = self.names(organization, limits)
            before = [self.cells.get(name) for name in names]
            self.kept = sum(owner == organization for owner, _ in self.cells)
            reading, after, kept = self.judge(state, windows, before, limits.windows, at, cost)
            if windows:
                self.states[organization] = after
            self.keep(names, before, kept)
            return reading

    def present(self, limits: LimitWindows, at: int, organization: str) -> LimitWindows:
        return limits.at(at, organization)

    def names(self, organization: str, limits: LimitWindows) -> list[tuple[str, str]]:
        pairs = zip(limits.fields, limits.windows, strict=True)
        return [self.name(organization, *pair) for pair in pairs]

    def judge(
        self,
        state: State,
        windows: Windows,
        before: Sequence[Cells | None],
        limits: Windows,
        at: int,
        cost: int,
    ) -> tuple[Reading, State, State]:
        room = crowded(before, self.kept)
        return hit_limited(state, windows, before, limits, at, cost, room)

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
        state = self.states.get(organization) or empty_state(windows) if windows else ()
        if limits is None:
            return peek(state, windows, self.at(now))
        limits = self.present(limits, self.at(now), organization)
        cells = [self.cells.get(name) for name in self.names(organization, limits)]
        return peek_limited(state, windows, cells, limits.windows, self.at(now))

    async def reset(self, organization: str, *args: Any, **kwargs: Any) -> None:
        self.cells = {name: one for name, one in self.cells.items() if name[0] != organization}
        await super().reset(organization, *args, **kwargs)


class ChargesTheLimitOfARequestThatThePlanRefuses(LimitMutant):
    """Judges the limit first, by a call of its own."""

    killed_by: ClassVar = {"W9"}

    def judge(self, state: Any, windows: Any, before: Any, limits: Any, at: int, cost: int) -> Any:
        reading, after, kept = super().judge(state, windows, before, limits, at, cost)
        cells = tuple(one or EMPTY for one in before)
        alone, charged = hit(cells, limits, at, cost)
        return reading, after, charged if alone.allowed else kept


class ChargesThePlanOfARequestThatALimitRefuses(LimitMutant):
    """Judges the plan first, by a call of its own."""

    killed_by: ClassVar = {"W1", "W9"}

    def judge(self, state: Any, windows: Any, before: Any, limits: Any, at: int, cost: int) -> Any:
        reading, after, kept = super().judge(state, windows, before, limits, at, cost)
        alone, charged = hit(state, windows, at, cost)
        return reading, charged if alone.allowed else after, kept


class ChargesALimitThoughAnotherRefuses(LimitMutant):
    """Judges one limit after another."""

    killed_by: ClassVar = {"W1", "W9"}

    def judge(self, state: Any, windows: Any, before: Any, limits: Any, at: int, cost: int) -> Any:
        reading, after, kept = super().judge(state, windows, before, limits, at, cost)
        if not reading.allowed:
            pairs = zip(before, limits, strict=True)
            kept = tuple(hit((one or EMPTY,), (window,), at, cost)[1][0] for one, window in pairs)
        return reading, after, kept


class CountsAllKeysTogether(LimitMutant):
    killed_by: ClassVar = {"W8"}

    def name(self, organization: str, field: str, window: Window) -> tuple[str, str]:
        return organization, " ".join(field.split(" ")[:2])


class CountsAllOrganizationsTogether(LimitMutant):
    killed_by: ClassVar = {"W8"}

    def name(self, organization: str, field: str, window: Window) -> tuple[str, str]:
        return "", field


class CountsAllWindowsOfALimitTogether(LimitMutant):
    killed_by: ClassVar = {"W8", "W1", "W13"}

    def name(self, organization: str, field: str, window: Window) -> tuple[str, str]:
        return organization, field.split(" ", maxsplit=1)[0]


class BeginsAnewWithAnotherNumber(LimitMutant):
    killed_by: ClassVar = {"W13"}

    def name(self, organization: str, field: str, window: Window) -> tuple[str, str]:
        return organization, f"{field} {window.limit}"


class JudgesTheFirstWindowOnly(LimitMutant):
    killed_by: ClassVar = {"W1"}

    def judge(self, state: Any, windows: Any, before: Any, limits: Any, at: int, cost: int) -> Any:
        first, *others = limits
        loose = (first, *(window._replace(limit=None) for window in others))
        return super().judge(state, windows, before, loose, at, cost)


class TellsWhatRemainsOfTheLimit(LimitMutant):
    killed_by: ClassVar = {"W4"}

    def judge(self, state: Any, windows: Any, before: Any, limits: Any, at: int, cost: int) -> Any:
        reading, after, kept = super().judge(state, windows, before, limits, at, cost)
        left = min(window.limit - one[0] for one, window in zip(kept, limits, strict=True))
        remaining = left if reading.remaining is None else min(left, reading.remaining)
        return reading._replace(remaining=max(0, remaining)), after, kept


class TellsTheShortestWait(LimitMutant):
    killed_by: ClassVar = {"W6"}

    def judge(self, state: Any, windows: Any, before: Any, limits: Any, at: int, cost: int) -> Any:
        reading, after, kept = super().judge(state, windows, before, limits, at, cost)
        if reading.allowed:
            return reading, after, kept
        cells = tuple(one or EMPTY for one in before)
        one, other = peek(state, windows, at, cost), peek(cells, limits, at, cost)
        shorter = min([r for r in (one, other) if not r.allowed], key=lambda r: r.wait)
        return reading._replace(wait=shorter.wait), after, kept


class CountsWhatItReads(LimitMutant):
    killed_by: ClassVar = {"W4", "W5", "W9"}

    async def peek(
        self, organization: str, windows: Any, now: int | None = None, limits: Any = None
    ) -> Reading:
        reading = await super().peek(organization, windows, now, limits)
        if limits is not None:
            await self.hit(organization, (), 1, now, limits)
        return reading


class ChargesThePlanForLimitsAlone(LimitMutant):
    killed_by: ClassVar = {"W9"}

    async def hit(
        self, organization: str, windows: Any, cost: int, now: int | None = None, limits: Any = None
    ) -> Reading:
        if not windows and organization in self.states:
            kept = self.states[organization]
            spans = tuple(Window("", DAY, None, 0) for _ in kept)
            self.states[organization] = hit(kept, spans, self.at(now), cost)[1]
        return await super().hit(organization, windows, cost, now, limits)


class KeepsLimitsOnAReset(LimitMutant):
    killed_by: ClassVar = {"W2"}

    async def reset(self, organization: str, *args: Any, **kwargs: Any) -> None:
        kept = self.cells
        await super().reset(organization, *args, **kwargs)
        self.cells = kept


class ForgetsTheLimitWhenTheClockStepsBack(LimitMutant):
    killed_by: ClassVar = {"W11"}

    def judge(self, state: Any, windows: Any, before: Any, limits: Any, at: int, cost: int) -> Any:
        before = [None if one is not None and one[3] > at else one for one in before]
        return super().judge(state, windows, before, limits, at, cost)


class LocksOutAfterTheClockStepsBack(LimitMutant):
    """A refusal leaves the cells in the future, so each one waits for a whole window again."""

    killed_by: ClassVar = {"W11"}

    def keep(self, names: Any, before: Any, kept: Any) -> None:
        grown = [
            new if old is None or new[0] > old[0] or new[3] >= old[3] else old
            for old, new in zip(before, kept, strict=True)
        ]
        super().keep(names, before, tuple(grown))


class HasAnyNumberOfFields(LimitMutant):
    killed_by: ClassVar = {"W10"}

    def judge(self, state: Any, windows: Any, before: Any, limits: Any, at: int, cost: int) -> Any:
        return hit_limited(state, windows, before, limits, at, cost)


class SharesCellsByTheGrainOfADay(LimitMutant):
    killed_by: ClassVar = {"W14", "W2", "W6"}

    def judge(self, state: Any, windows: Any, before: Any, limits: Any, at: int, cost: int) -> Any:
        rough = tuple(window._replace(grain=DAY) for window in limits)
        return super().judge(state, windows, before, rough, at, cost)


class AdmitsWithoutLimits(LimitMutant):
    """Takes the argument, as an older store would, and ignores it."""

    killed_by: ClassVar = {"W9", "W14"}

    async def admit(self, *asked: Any, limits: Any = (), **named: Any) -> Any:
        return await super().admit(*asked[:5], **named)


class ForgetsTheLimitsOfThePlan(LimitMutant):
    killed_by: ClassVar = {"W9", "W1", "W13", "W14"}

    async def admit(self, token: Any, cost: int, plans: Any, *args: Any, **kwargs: Any) -> Any:
        plain = [replace(plans.plan(name, (), 0), limits=()) for name in plans.names]
        bare = PlanBook(plain, custom=[], default=plans.default.name)
        return await super().admit(token, cost, bare, *args, **kwargs)


class ForgetsTheLimitsOfTheKey(LimitMutant):
    killed_by: ClassVar = {"W9", "W1", "W13", "W14"}

    async def find(self, handle: str) -> Any:
        key = await super().find(handle)
        if key is None or key.details is None:
            return key
        return key._replace(details=key.details._replace(limits=()).or_none())


class ReadsTheLimitBeforeItsTurn(LimitMutant):
    """Decides by cells that another caller may have changed since."""

    killed_by: ClassVar = {"W1", "W3"}

    async def hit(
        self, organization: str, windows: Any, cost: int, now: int | None = None, limits: Any = None
    ) -> Reading:
        if limits is None:
            return await super().hit(organization, windows, cost, now, limits)
        at = self.at(now)
        names = self.names(organization, limits)
        before = [self.cells.get(name) for name in names]
        if threading.active_count() > 4:  # Only where the kit has many callers.
            gap()
        with self.door:
            self.kept = sum(owner == organization for owner, _ in self.cells)
            state = self.states.get(organization) or empty_state(windows) if windows else ()
            reading, after, kept = self.judge(state, windows, before, limits.windows, at, cost)
            if windows:
                self.states[organization] = after
            self.keep(names, before, kept)
        return reading


class RefusesByTheLimitWithTheVerdictOfThePlan(LimitMutant):
    """Adds what the limits count to the answer, and leaves them out of the verdict."""

    killed_by: ClassVar = {"W1", "W4"}

    def judge(self, state: Any, windows: Any, before: Any, limits: Any, at: int, cost: int) -> Any:
        loose = tuple(window._replace(limit=None) for window in limits)
        reading, after, kept = super().judge(state, windows, before, loose, at, cost)
        alone = peek(tuple(one or EMPTY for one in before), limits, at, cost)
        told = combined(reading._replace(used=reading.used[: len(windows)]), alone)
        return (reading if reading.allowed else told), after, kept


class NeverBeginsAPeriod(LimitMutant):
    """Counts a calendar quota as a window as long as its period."""

    killed_by: ClassVar = {"W1", "W2", "W6", "W11"}

    def present(self, limits: LimitWindows, at: int, organization: str) -> LimitWindows:
        return limits


class HasTheSameMonthsForAllOrganizations(LimitMutant):
    """Asks for the first day of one organization's contract, and uses it for all."""

    killed_by: ClassVar = {"W8"}

    def __init__(self) -> None:
        super().__init__()
        self.first: str | None = None

    def present(self, limits: LimitWindows, at: int, organization: str) -> LimitWindows:
        self.first = self.first or organization
        return limits.at(at, self.first)


class RefusesBeyondASoftQuota(LimitMutant):
    killed_by: ClassVar = {"W2", "W4"}

    def present(self, limits: LimitWindows, at: int, organization: str) -> LimitWindows:
        limits = super().present(limits, at, organization)
        hard = zip(limits.windows, limits.marks, strict=True)
        return limits._replace(windows=tuple(window._replace(limit=mark) for window, mark in hard))


class ForgetsAnIdleMonth(LimitMutant):
    """Drops what no hit has changed for two days, by the instant of the newest cell."""

    killed_by: ClassVar = {"W1", "W6", "W10", "W13"}

    async def hit(
        self,
        organization: str,
        windows: Windows,
        cost: int,
        now: int | None = None,
        limits: LimitWindows | None = None,
    ) -> Reading:
        edge = self.at(now) - 2 * DAY
        self.cells = {name: cells for name, cells in self.cells.items() if cells[3] > edge}
        return await super().hit(organization, windows, cost, now, limits)
