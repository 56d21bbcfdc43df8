"""The budgets that holds are charged to, by owner and field."""

from collections import OrderedDict
from typing import Final

from ...core.budgets import Budget
from ...core.holds import HoldAction, HoldAnswer, apply, changed
from ...core.limit_windows import is_of_period, span_of
from ...core.timestamps import DAY

_SWEPT: Final = 2
"""More than one, so that the sweep is faster than new budgets."""


class LocalBudgets:
    """A table of budgets, the latest change last. Callers hold a lock around every call.

    Each change drops two at the front that have counted nothing for a day, for a clock that steps
    back (W10).
    """

    def __init__(self) -> None:
        self._budgets = OrderedDict[tuple[str, str], Budget]()
        self._fields: dict[str, set[str]] = {}

    def __len__(self) -> int:
        return len(self._budgets)

    def hold(self, owner: str, action: HoldAction, now: int) -> HoldAnswer:
        """Apply an action to the budgets of an owner."""
        budgets = self._budgets
        before: list[Budget | None] = []
        for field in action.fields:
            before.append(budgets.get((owner, field)))
        answer, after = apply(action, before, now, len(self._fields.get(owner, ())))
        for field, budget in changed(action, before, after):
            place = owner, field
            if place in budgets:
                budgets.move_to_end(place)
            else:
                self._fields.setdefault(owner, set()).add(field)
            budgets[place] = budget
            self._sweep(now)
        return answer

    def remove(self, owner: str) -> None:
        """Remove the budgets of an owner."""
        for field in self._fields.pop(owner, ()):
            del self._budgets[owner, field]

    def _sweep(self, now: int) -> None:
        """Drop budgets that are idle, after a change of another."""
        budgets = self._budgets
        for _ in range(_SWEPT):
            place = next(iter(budgets), None)
            if place is None:
                break
            owner, field = place
            budget, idle_since = budgets[place], now - DAY - span_of(field)
            # The cells of most budgets tell that they are in use, without their holds.
            if budget.cells[3] > idle_since or budget.last > idle_since:
                if not is_of_period(field):
                    break
                budgets.move_to_end(place)  # It may outlast those behind it.
                continue
            del budgets[place]
            self._fields[owner].remove(field)
            if not self._fields[owner]:
                del self._fields[owner]
