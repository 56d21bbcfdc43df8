"""Stores with one mistake each in holds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
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
from lockgate.core.sliding_window import LARGEST, count_at
from lockgate.core.timestamps import DAY, MINUTE

from .mutants import Call, How, Mutant, gap, several, wrong


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
        answer, after = self.decided(organization, action, now)
        for field, budget in after:
            self.budgets[self.name(organization, field)] = budget
        return answer

    def decided(
        self, organization: str, action: HoldAction, now: int
    ) -> tuple[HoldAnswer, list[tuple[str, Budget]]]:
        before = [self.budgets.get(self.name(organization, field)) for field in action.fields]
        kept = sum(owner == organization for owner, _ in self.budgets)
        answer, after = self.apply(action, before, now, kept)
        return answer, [*changed(action, before, after)]

    def apply(
        self, action: HoldAction, before: Sequence[Budget | None], now: int, kept: int = 0
    ) -> tuple[HoldAnswer, tuple[Budget, ...]]:
        return apply(action, before, now, kept)

    async def reset(self, organization: str, now: int | None = None, *, change: Any = None) -> None:
        self.budgets = {name: one for name, one in self.budgets.items() if name[0] != organization}
        await super().reset(organization, now, change=change)


def _changing(change: Callable[[Any], Any], *actions: type) -> How:
    """Return a mistake: other holds are found, by some actions or by all."""

    def how(call: Call) -> Any:
        if actions and not isinstance(call.action, actions):
            return call()
        before = [one and one._replace(held=tuple(map(change, one.held))) for one in call.before]
        return call(before=before)

    return how


def _with(**fields: Any) -> How:
    """Return a mistake: other fields are taken for those of a hold to take."""
    return lambda call: (
        call(action=call.action._replace(**fields)) if isinstance(call.action, Take) else call()
    )


def _limited(call: Call, limit: int) -> Any:
    """Return the action with another limit of each window."""
    if not isinstance(call.action, Take):
        return call.action
    windows = tuple(one._replace(limit=limit) for one in call.action.limits.windows)
    return call.action._replace(limits=call.action.limits._replace(windows=windows))


def _without_holds(call: Call) -> list[Any]:
    return [one and one._replace(held=()) for one in call.before]


def _held(call: Call) -> list[Reservation]:
    """Return the holds of a call's id."""
    return [one for b in call.before if b for one in b.held if one.id == call.action.id]


def _live_at(call: Call) -> Callable[[Any], Any]:
    return lambda one: one._replace(deadline=max(one.deadline, call.now + 1))


several(
    {
        "holds_for_all_keys_together": (
            "W8",
            "name",
            lambda call: (call.organization, " ".join(call.field.split(" ")[:2])),
        ),
        "holds_for_all_organizations_together": ("W8", "name", lambda call: ("", call.field)),
        "compares_ids_of_budgets_without_case": (
            "W8",
            "name",
            lambda call: (call.organization.lower(), call.field),
        ),
        # Takes a dead worker's units for free.
        "forgets_a_hold_at_its_deadline": (
            "H2 H3",
            "apply",
            lambda call: call(
                before=[
                    one and one._replace(held=tuple(h for h in one.held if h.deadline > call.now))
                    for one in call.before
                ]
            ),
        ),
        # Lets a late worker correct what was counted.
        "settles_after_the_deadline": (
            "H2 H3",
            "apply",
            lambda call: _changing(_live_at(call), Settle)(call),
        ),
        "renews_a_dead_hold": (
            "H2 H3",
            "apply",
            lambda call: _changing(_live_at(call), Renew)(call),
        ),
        # Leaves deadlines in the future when the clock steps back.
        "keeps_a_hold_for_its_span_beside_the_clock": (
            "W11",
            "apply",
            _changing(lambda one: one._replace(span=9 * DAY)),
        ),
        # In the month in which the next call comes.
        "counts_a_deadline_when_it_is_found": (
            "H1 H2 H3",
            "apply",
            lambda call: (
                _changing(lambda one: one._replace(deadline=max(one.deadline, call.now)))(call)
                if any(call.action.quotas)
                else call()
            ),
        ),
        "holds_without_bound": ("W10", "apply", _with(most=10_000)),
        "has_any_number_of_budgets": ("W10", "apply", lambda call: call(kept=0)),
        "holds_by_its_own_clock": ("H1 W12", "at", lambda call: call(now=None)),
    },
    of=HoldMutant,
)


@wrong("H1", "apply", of=HoldMutant)
def counts_no_holds(call: Call) -> Any:
    """Judges by what is used alone."""
    fits = call(before=_without_holds(call))[0].done
    return call(action=_limited(call, LARGEST) if fits else call.action)


@wrong("W6", "apply", of=HoldMutant)
def counts_a_hold_as_a_cell_at_its_deadline(call: Call) -> Any:
    """A cell in the future comes to the present when the clock is read."""
    answer, after = call()
    if not (isinstance(call.action, Take) and answer.done):
        return answer, after
    moved: list[Budget] = []
    for one in after:
        cells = one.cells
        for held in one.held:
            cells = count_at(cells, 0, held.deadline, held.units)
        moved.append(one._replace(cells=cells, held=()))
    return answer, tuple(moved)


@wrong("H1", "apply", of=HoldMutant)
def looks_at_what_is_counted_alone(call: Call) -> Any:
    answer, after = call()
    return answer._replace(units=(0,) * len(after)) if isinstance(
        call.action, Look
    ) else answer, after


@wrong("H1 H3", "judged", of=HoldMutant)
def looks_and_writes(call: Call) -> Any:
    """Keeps a budget as it was seen at a later instant, by a caller whose clock is ahead."""
    answer = call()
    if isinstance(call.action, Look):
        call(action=Settle("0" * 32, call.action.fields, answer.used))
    return answer


@wrong("H3 H4", "apply", of=HoldMutant)
def gives_nothing_back(call: Call) -> Any:
    if not isinstance(call.action, Settle):
        return call()
    return call(action=call.action._replace(used=(None,) * len(call.action.used)))


@wrong("H3", "apply", of=HoldMutant)
def counts_at_most_what_was_held(call: Call) -> Any:
    if not isinstance(call.action, Settle):
        return call()
    pairs = zip(call.action.used, call()[0].units, strict=True)
    used = tuple(None if one is None else min(one, most) for one, most in pairs)
    return call(action=call.action._replace(used=used))


@wrong("H1 H3 H4 W6", "apply", of=HoldMutant)
def counts_use_from_the_grant(call: Call) -> Any:
    """Dates what was used back to when it was held."""
    answer, after = call()
    if not (isinstance(call.action, Settle) and answer.done):
        return answer, after
    dated: list[Budget] = []
    for one, old in zip(after, call.before, strict=True):
        mine = [held for held in (old.held if old else ()) if held.id == call.action.id]
        begun = mine[0].deadline - mine[0].span if mine else 0
        cells = count_at(old.cells, 0, begun, one.cells[4]) if mine else one.cells
        dated.append(one._replace(cells=cells))
    return answer, tuple(dated)


@wrong("H1 H3 H4", "apply", of=HoldMutant)
def settles_twice(call: Call) -> Any:
    """Keeps a hold when it is settled."""
    answer, after = call()
    if isinstance(call.action, Settle) and answer.done:
        pairs = zip(after, call.before, strict=True)
        after = tuple(one._replace(held=old.held if old else ()) for one, old in pairs)
    return answer, after


@wrong("H2", "apply", of=HoldMutant)
def renews_from_the_deadline(call: Call) -> Any:
    """Adds the span to the deadline of before."""
    action = call.action
    if isinstance(action, Renew) and call(action=action._replace(span=1))[0].done and _held(call):
        action = action._replace(span=_held(call)[0].deadline + action.span - call.now)
    return call(action=action)


@wrong("H2", "apply", of=HoldMutant)
def never_shortens_a_hold(call: Call) -> Any:
    """Takes the later of two deadlines."""
    action = call.action
    if isinstance(action, Renew):
        latest = max((one.deadline for one in _held(call)), default=call.now)
        action = action._replace(span=max(action.span, latest - call.now))
    return call(action=action)


@wrong("H3", "apply", of=HoldMutant)
def takes_a_hold_again(call: Call) -> Any:
    """Does not look whether a hold of this id is out."""
    answer = call()
    is_known = isinstance(call.action, Take) and bool(_held(call))
    return call(action=call.action._replace(id="f" * 32)) if is_known and answer[0].done else answer


@wrong("H1 W9", "apply", of=HoldMutant)
def takes_one_budget_after_another(call: Call) -> Any:
    answer, after = call()
    if not isinstance(call.action, Take) or answer.done:
        return answer, after
    names, fields, windows, _ = call.action.limits
    parts: list[Budget] = []
    for index, one in enumerate(call.before):
        part = slice(index, index + 1)
        limits = LimitWindows(names[part], fields[part], windows[part])
        alone = call.action._replace(limits=limits, units=call.action.units[part])
        parts += call(action=alone, before=[one])[1]
    return answer, tuple(parts)


@wrong("H1 H2 W6 W9", "apply", of=HoldMutant)
def tells_the_wait_of_what_is_used_alone(call: Call) -> Any:
    """As if all that is held came back unused."""
    answer, after = call()
    if isinstance(call.action, Take) and not answer.done:
        alone = call(action=_limited(call, LARGEST), before=_without_holds(call))[0]
        answer = answer._replace(waits=(max(alone.wait, 1),))
    return answer, after


@wrong("W2 W10", "reset", of=HoldMutant)
async def keeps_budgets_on_a_reset(call: Call) -> None:
    kept = call.store.budgets
    await call()
    call.store.budgets = kept


@wrong("W13", "judged", of=HoldMutant)
def forgets_budgets_with_other_numbers(call: Call) -> Any:
    """Begins anew when a limit is changed."""
    numbers, action = call.store.seen, call.action
    if isinstance(action, Take):
        for field, window in zip(action.fields, action.limits.windows, strict=True):
            name = call.organization, field
            if numbers.setdefault(name, window.limit) != window.limit:
                numbers[name] = window.limit
                call.store.budgets.pop(name, None)
    return call()


@wrong("H1 H3 H4", "judged", of=HoldMutant)
def settles_in_the_month_of_the_grant(call: Call) -> Any:
    """Counts units by the calendar of the instant at which their hold was taken."""
    taken, action = call.store.seen, call.action
    if isinstance(action, Take):
        taken.setdefault(action.id, call.now)
    elif isinstance(action, Settle) and action.quotas:
        return call(now=taken[action.id])._replace(now=call.now)
    return call()


@wrong("H1 H2 H3 W6", "apply", of=HoldMutant)
def holds_by_fixed_minutes(call: Call) -> Any:
    """Drops what was used when a minute begins."""
    begun = call.now - call.now % MINUTE
    anew = [
        one and (one if one.cells[3] >= begun else Budget(held=one.held, grain=one.grain))
        for one in call.before
    ]
    return call(before=anew)


@wrong("H1 W2 W3", "hold", of=HoldMutant)
async def reads_and_writes_apart(call: Call) -> Any:
    """Has no lock around a decision."""
    store, organization = call.store, call.organization
    answer, after = store.decided(organization, call.action, call.at)
    gap()
    store.budgets.update({(organization, field): budget for field, budget in after})
    return answer


@wrong("W8", "hit", of=HoldMutant)
def counts_a_rules_limit_of_the_same_name(call: Call) -> Any:
    """Charges a budget for requests that a rule's limit of its name admits."""
    budgets = call.store.budgets
    for field in () if call.limits is None else call.limits.fields:
        name = call.organization, PREFIX + field
        if (one := budgets.get(name)) is not None:
            cells = count_at(one.cells, one.grain, call.at, call.cost)
            budgets[name] = one._replace(cells=cells)
    return call()


@wrong("W14", "apply", of=HoldMutant)
def shares_no_cells(call: Call) -> Any:
    """Keeps each settlement apart, so that units return sooner than elsewhere."""
    action = call.action
    if isinstance(action, Take):
        windows = tuple(one._replace(grain=min(one.grain, 0)) for one in action.limits.windows)
        action = action._replace(limits=action.limits._replace(windows=windows))
    return call(action=action)
