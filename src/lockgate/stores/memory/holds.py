"""The budgets of holds and slots, by owner and field."""

from collections import OrderedDict
from typing import Final

from ...core.budgets import SLOTS, Budget
from ...core.holds import HoldAction, HoldAnswer
from ...core.ledger import Ledger
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
        """The fields of each owner, but that of its slots."""

    def __len__(self) -> int:
        return len(self._budgets)

    def hold(self, owner: str, action: HoldAction, now: int) -> HoldAnswer:
        """Apply an action to the budgets of an owner."""
        budgets = self._budgets
        before: dict[str, Budget] = {}
        for field in action.fields:
            if (budget := budgets.get((owner, field))) is not None:
                before[field] = budget
        others = len(self._fields.get(owner, ())) - len(before)
        answer, ledger = action.apply(Ledger(owner, budgets=before, others=others), now)
        if ledger.budgets is not before:
            for field in action.fields:
                new = ledger.budgets.get(field)
                if new is not before.get(field):
                    self._put(owner, field, new)
            self._sweep(_SWEPT * len(action.fields), now)
        return answer

    def remove(self, owner: str) -> None:
        """Remove the budgets of an owner, without that of its slots."""
        for field in self._fields.pop(owner, ()):
            del self._budgets[owner, field]

    def _put(self, owner: str, field: str, budget: Budget | None) -> None:
        """Keep a budget; None: it has counted nothing for a day."""
        place = owner, field
        if budget is None:
            self._budgets.pop(place, None)
            self._leave(owner, field)
            return
        if place in self._budgets:
            self._budgets.move_to_end(place)
        elif field != SLOTS:
            self._fields.setdefault(owner, set()).add(field)
        self._budgets[place] = budget

    def _leave(self, owner: str, field: str) -> None:
        fields = self._fields.get(owner)
        if fields is not None:
            fields.discard(field)
            if not fields:
                del self._fields[owner]

    def _sweep(self, most: int, now: int) -> None:
        """Drop budgets that are idle, after a change of others."""
        budgets = self._budgets
        for _ in range(most):
            place = next(iter(budgets), None)
            if place is None:
                break
            owner, field = place
            budget, idle_since = budgets[place], now - DAY - span_of(field)
            # The cells of most budgets tell that they are in use, without their holds.
            if budget.cells[3] > idle_since or budget.last > idle_since:
                if not is_of_period(field) and field != SLOTS:
                    break
                budgets.move_to_end(place)  # It may outlast those behind it.
                continue
            del budgets[place]
            self._leave(owner, field)
