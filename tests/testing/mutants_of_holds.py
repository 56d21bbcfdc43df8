"""Stores with one mistake each in holds."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, ClassVar

from lockgate.core.budgets import Budget
from lockgate.core.holds import (
    PREFIX,
    HoldAction,
    HoldAnswer,
    Look,
    Renew,
    Settle,
    Take,
    apply,
    changed,
)
from lockgate.core.limit_windows import LimitWindows
from lockgate.core.reservations import Reservation
from lockgate.core.sliding_window import LARGEST, Reading, Window, count_at
from lockgate.core.timestamps import DAY, MINUTE

from .mutants import Mutant, gap


class HoldMutant(Mutant):
    """Keeps budgets in a dictionary; right until a subclass makes its mistake."""

    parts: ClassVar = ("holds",)

    def __init__(self) -> None:
        super().__init__()
        self.budgets: dict[tuple[str, str], Budget] = {}
        self.door = threading.Lock()

    def name(self, organization: str, field: str) -> tuple[str, str]:
        return organization, field

    async def hold(
        self, organization: str, action: HoldAction, now: int | None = None
    ) -> HoldAnswer:
        with self.door:
            return self.judged(organization, action, self.at(now))

    def judged(self, organization: str, action: HoldAction, now: int) -> HoldAnswer:
        before = [self.budgets.get(self.name(organization, field)) for field in action.fields]
        kept = sum(owner == organization for owner, _ in self.budgets)
        answer, after = self.apply(action, before, now, kept)
        for field, budget in changed(action, before, after):
            self.budgets[self.name(organization, field)] = budget
        return answer

    def apply(
        self, action: HoldAction, before: Sequence[Budget | None], now: int, kept: int
    ) -> tuple[HoldAnswer, tuple[Budget, ...]]:
        return apply(action, before, now, kept)

    async def reset(self, organization: str, *args: Any, **kwargs: Any) -> None:
        self.budgets = {name: one for name, one in self.budgets.items() if name[0] != organization}
        await super().reset(organization, *args, **kwargs)


def _ended_at(budget: Budget, now: int) -> tuple[Reservation, ...]:
    return tuple(one._replace(deadline=now) if one.deadline < now else one for one in budget.held)


def _with_limit(action: HoldAction, limit: int) -> HoldAction:
    if not isinstance(action, Take):
        return action
    windows = tuple(one._replace(limit=limit) for one in action.limits.windows)
    return action._replace(limits=action.limits._replace(windows=windows))


class CountsNoHolds(HoldMutant):
    """Judges by what is used alone."""

    killed_by: ClassVar = {"H1"}

    def apply(self, action: Any, before: Any, now: int, kept: int) -> Any:
        used = [one and one._replace(held=()) for one in before]
        fits = apply(action, used, now, kept)[0].done
        if isinstance(action, Take) and fits:
            return apply(_with_limit(action, LARGEST), before, now, kept)
        return apply(action, before, now, kept)


class CountsAHoldAsACellAtItsDeadline(HoldMutant):
    """A cell in the future comes to the present when the clock is read."""

    killed_by: ClassVar = {"W6"}

    def apply(self, action: Any, before: Any, now: int, kept: int) -> Any:
        answer, after = apply(action, before, now, kept)
        if isinstance(action, Take) and answer.done:
            moved: list[Budget] = []
            for one in after:
                cells = one.cells
                for held in one.held:
                    cells = count_at(cells, 0, held.deadline, held.units)
                moved.append(one._replace(cells=cells, held=()))
            after = tuple(moved)
        return answer, after


class ForgetsAHoldAtItsDeadline(HoldMutant):
    """Takes a dead worker's units for free."""

    killed_by: ClassVar = {"H2", "H3"}

    def apply(self, action: Any, before: Any, now: int, kept: int) -> Any:
        live = [
            one and one._replace(held=tuple(h for h in one.held if h.deadline > now))
            for one in before
        ]
        return apply(action, live, now, kept)


class TellsNothingOfWhatIsHeld(HoldMutant):
    """Answers a look with what is counted alone."""

    killed_by: ClassVar = {"H1"}

    def apply(self, action: Any, before: Any, now: int, kept: int) -> Any:
        answer, after = apply(action, before, now, kept)
        if isinstance(action, Look):
            answer = answer._replace(units=(0,) * len(after))
        return answer, after


class LooksAndWrites(HoldMutant):
    """Keeps a budget as it was seen at a later instant, by a caller whose clock is ahead."""

    killed_by: ClassVar = {"H1", "H3"}

    def judged(self, organization: str, action: HoldAction, now: int) -> HoldAnswer:
        answer = super().judged(organization, action, now)
        if isinstance(action, Look):
            super().judged(organization, Settle("0" * 32, action.fields, answer.used), now)
        return answer


class SettlesByWhatWasHeld(HoldMutant):
    """Gives nothing back."""

    killed_by: ClassVar = {"H3", "H4"}

    def apply(self, action: Any, before: Any, now: int, kept: int) -> Any:
        if isinstance(action, Settle):
            action = action._replace(used=(None,) * len(action.used))
        return apply(action, before, now, kept)


class CutsAnOverrun(HoldMutant):
    """Counts at most what was held."""

    killed_by: ClassVar = {"H3"}

    def apply(self, action: Any, before: Any, now: int, kept: int) -> Any:
        if isinstance(action, Settle):
            held = apply(action, before, now, kept)[0].units
            pairs = zip(action.used, held, strict=True)
            used = tuple(None if one is None else min(one, most) for one, most in pairs)
            action = action._replace(used=used)
        return apply(action, before, now, kept)


class CountsUseFromTheGrant(HoldMutant):
    """Dates what was used back to when it was held."""

    killed_by: ClassVar = {"H1", "H3", "H4", "W6"}

    def apply(self, action: Any, before: Any, now: int, kept: int) -> Any:
        answer, after = apply(action, before, now, kept)
        if isinstance(action, Settle) and answer.done:
            after = tuple(
                one
                if old is None or not mine
                else one._replace(
                    cells=count_at(old.cells, 0, mine[0].deadline - mine[0].span, one.cells[4])
                )
                for one, old, mine in (
                    (one, old, [h for h in (old.held if old else ()) if h.id == action.id])
                    for one, old in zip(after, before, strict=True)
                )
            )
        return answer, after


class SettlesTwice(HoldMutant):
    """Keeps a hold when it is settled."""

    killed_by: ClassVar = {"H1", "H3", "H4"}

    def apply(self, action: Any, before: Any, now: int, kept: int) -> Any:
        answer, after = apply(action, before, now, kept)
        if isinstance(action, Settle) and answer.done:
            after = tuple(
                one._replace(held=old.held if old else ())
                for one, old in zip(after, before, strict=True)
            )
        return answer, after


class SettlesAfterTheDeadline(HoldMutant):
    """Lets a late worker correct what was counted."""

    killed_by: ClassVar = {"H2", "H3"}

    def apply(self, action: Any, before: Any, now: int, kept: int) -> Any:
        if isinstance(action, Settle):
            before = [
                one
                and one._replace(
                    held=tuple(h._replace(deadline=max(h.deadline, now + 1)) for h in one.held)
                )
                for one in before
            ]
        return apply(action, before, now, kept)


class RenewsADeadHold(HoldMutant):
    killed_by: ClassVar = {"H2", "H3"}

    def apply(self, action: Any, before: Any, now: int, kept: int) -> Any:
        if isinstance(action, Renew):
            before = [
                one
                and one._replace(
                    held=tuple(h._replace(deadline=max(h.deadline, now + 1)) for h in one.held)
                )
                for one in before
            ]
        return apply(action, before, now, kept)


class RenewsFromTheDeadline(HoldMutant):
    """Adds the span to the deadline of before."""

    killed_by: ClassVar = {"H2"}

    def apply(self, action: Any, before: Any, now: int, kept: int) -> Any:
        if isinstance(action, Renew):
            deadline = apply(action._replace(span=1), before, now, kept)[0]
            out = [h.deadline for one in before if one for h in one.held if h.id == action.id]
            if deadline.done and out:
                action = action._replace(span=out[0] + action.span - now)
        return apply(action, before, now, kept)


class TakesAHoldAgain(HoldMutant):
    """Does not look whether a hold of this id is out."""

    killed_by: ClassVar = {"H3"}

    def apply(self, action: Any, before: Any, now: int, kept: int) -> Any:
        known = any(h.id == action.id for one in before if one for h in one.held)
        answer, after = apply(action, before, now, kept)
        if isinstance(action, Take) and known and answer.done:
            answer, after = apply(action._replace(id="f" * 32), before, now, kept)
        return answer, after


class TakesPartOfTheBudgets(HoldMutant):
    """Judges one budget after another."""

    killed_by: ClassVar = {"H1", "W9"}

    def apply(self, action: Any, before: Any, now: int, kept: int) -> Any:
        answer, after = apply(action, before, now, kept)
        if isinstance(action, Take) and not answer.done:
            parts: list[Budget] = []
            for index, one in enumerate(before):
                part = slice(index, index + 1)
                names, fields, windows, _ = action.limits
                limits = LimitWindows(names[part], fields[part], windows[part])
                alone = action._replace(limits=limits, units=action.units[part])
                parts += apply(alone, [one], now, kept)[1]
            after = tuple(parts)
        return answer, after


class TellsTheWaitOfWhatIsUsedAlone(HoldMutant):
    """As if all that is held came back unused."""

    killed_by: ClassVar = {"H1", "H2", "W6", "W9"}

    def apply(self, action: Any, before: Any, now: int, kept: int) -> Any:
        answer, after = apply(action, before, now, kept)
        if isinstance(action, Take) and not answer.done:
            used = [one and one._replace(held=()) for one in before]
            alone = apply(_with_limit(action, LARGEST), used, now, kept)[0]
            answer = answer._replace(waits=(max(alone.wait, 1),))
        return answer, after


class KeepsAHoldForItsSpanBesideTheClock(HoldMutant):
    """Leaves deadlines in the future when the clock steps back."""

    killed_by: ClassVar = {"W11"}

    def apply(self, action: Any, before: Any, now: int, kept: int) -> Any:
        endless = [
            one and one._replace(held=tuple(h._replace(span=9 * DAY) for h in one.held))
            for one in before
        ]
        return apply(action, endless, now, kept)


class HoldsWithoutBound(HoldMutant):
    killed_by: ClassVar = {"W10"}

    def apply(self, action: Any, before: Any, now: int, kept: int) -> Any:
        if isinstance(action, Take):
            action = action._replace(most=10_000)
        return apply(action, before, now, kept)


class BudgetsWithoutBound(HoldMutant):
    killed_by: ClassVar = {"W10"}

    def apply(self, action: Any, before: Any, now: int, kept: int) -> Any:
        return apply(action, before, now)


class KeepsBudgetsThroughAReset(HoldMutant):
    killed_by: ClassVar = {"W2", "W10"}

    async def reset(self, organization: str, *args: Any, **kwargs: Any) -> None:
        await Mutant.reset(self, organization, *args, **kwargs)


class HoldsForAllKeysTogether(HoldMutant):
    killed_by: ClassVar = {"W8"}

    def name(self, organization: str, field: str) -> tuple[str, str]:
        return organization, " ".join(field.split(" ")[:2])


class HoldsForAllOrganizationsTogether(HoldMutant):
    killed_by: ClassVar = {"W8"}

    def name(self, organization: str, field: str) -> tuple[str, str]:
        return "", field


class FoldsTheCaseOfOrganizations(HoldMutant):
    killed_by: ClassVar = {"W8"}

    def name(self, organization: str, field: str) -> tuple[str, str]:
        return organization.lower(), field


class ForgetsBudgetsWithOtherNumbers(HoldMutant):
    """Begins anew when a limit is changed."""

    killed_by: ClassVar = {"W13"}

    def __init__(self) -> None:
        super().__init__()
        self.numbers: dict[str, object] = {}

    def judged(self, organization: str, action: HoldAction, now: int) -> HoldAnswer:
        if isinstance(action, Take):
            for field, window in zip(action.fields, action.limits.windows, strict=True):
                if self.numbers.setdefault(organization + field, window.limit) != window.limit:
                    self.numbers[organization + field] = window.limit
                    self.budgets.pop((organization, field), None)
        return super().judged(organization, action, now)


class SettlesInTheMonthOfTheGrant(HoldMutant):
    """Counts units by the calendar of the instant at which their hold was taken."""

    killed_by: ClassVar = {"H1", "H3", "H4"}

    def __init__(self) -> None:
        super().__init__()
        self.taken: dict[str, int] = {}

    def judged(self, organization: str, action: HoldAction, now: int) -> HoldAnswer:
        if isinstance(action, Take):
            self.taken.setdefault(action.id, now)
        elif isinstance(action, Settle) and action.quotas:
            answer = super().judged(organization, action, self.taken[action.id])
            return answer._replace(now=now)
        return super().judged(organization, action, now)


class CountsADeadlineWhenItIsFound(HoldMutant):
    """Counts the units of a dead worker in the month in which the next call comes."""

    killed_by: ClassVar = {"H1", "H2", "H3"}

    def apply(self, action: Any, before: Any, now: int, kept: int) -> Any:
        if any(action.quotas):
            before = [one and one._replace(held=_ended_at(one, now)) for one in before]
        return apply(action, before, now, kept)


class HoldsByFixedMinutes(HoldMutant):
    """Drops what was used when a minute begins."""

    killed_by: ClassVar = {"H1", "H2", "H3", "W6"}

    def apply(self, action: Any, before: Any, now: int, kept: int) -> Any:
        begun = now - now % MINUTE
        anew = [
            one and (one if one.cells[3] >= begun else Budget(held=one.held, grain=one.grain))
            for one in before
        ]
        return apply(action, anew, now, kept)


class ReadsAndWritesApart(HoldMutant):
    """Has no lock around a decision."""

    killed_by: ClassVar = {"H1", "W2", "W3"}

    async def hold(
        self, organization: str, action: HoldAction, now: int | None = None
    ) -> HoldAnswer:
        at = self.at(now)
        before = [self.budgets.get((organization, field)) for field in action.fields]
        kept = sum(owner == organization for owner, _ in self.budgets)
        answer, after = apply(action, before, at, kept)
        gap()
        for field, budget in changed(action, before, after):
            self.budgets[organization, field] = budget
        return answer


class GoesByItsOwnClock(HoldMutant):
    killed_by: ClassVar = {"H1", "W12"}

    def at(self, now: int | None) -> int:
        return self._clock()


class CountsARulesLimitOfTheSameName(HoldMutant):
    """Charges a budget for requests that a rule's limit of its name admits."""

    killed_by: ClassVar = {"W8"}

    async def hit(
        self,
        organization: str,
        windows: tuple[Window, ...],
        cost: int,
        now: int | None = None,
        limits: LimitWindows | None = None,
    ) -> Reading:
        for field in () if limits is None else limits.fields:
            name = self.name(organization, PREFIX + field)
            if (one := self.budgets.get(name)) is not None:
                cells = count_at(one.cells, one.grain, self.at(now), cost)
                self.budgets[name] = one._replace(cells=cells)
        return await super().hit(organization, windows, cost, now, limits)


class SharesNoCells(HoldMutant):
    """Keeps each settlement apart, so that units return sooner than elsewhere."""

    killed_by: ClassVar = {"W14"}

    def apply(self, action: Any, before: Any, now: int, kept: int) -> Any:
        if isinstance(action, Take):
            windows = tuple(
                window._replace(grain=min(window.grain, 0)) for window in action.limits.windows
            )
            action = action._replace(limits=action.limits._replace(windows=windows))
        return apply(action, before, now, kept)


class NeverShortensAHold(HoldMutant):
    """Takes the later of two deadlines."""

    killed_by: ClassVar = {"H2"}

    def apply(self, action: Any, before: Any, now: int, kept: int) -> Any:
        if isinstance(action, Renew):
            held = [one for budget in before if budget for one in budget.held]
            latest = max((one.deadline for one in held if one.id == action.id), default=now)
            action = action._replace(span=max(action.span, latest - now))
        return super().apply(action, before, now, kept)
