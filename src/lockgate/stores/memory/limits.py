"""The cells of named limits, by owner and field."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final

from ...core.limit_hits import changed_fields, put_fields
from ...core.limit_windows import LimitWindows, is_of_period, span_of
from ...core.plans import LONGEST_SPAN
from ...core.sliding_window import Cells, State
from ...core.timestamps import DAY
from .generations import Generations

_SWEPT: Final = 2


class LimitCells(Generations[dict[str, Cells]]):
    """The cells of named limits, by owner and field. Callers hold a lock around every call.

    Counts of calendar periods outlast the generations: they have a table of their own, in which
    each write looks at two fields of the next two owners, and drops those that ended a day ago.
    """

    def __init__(self, capacity: int | None = None) -> None:
        super().__init__(capacity)
        self._periods: OrderedDict[str, dict[str, Cells]] = OrderedDict()

    def __len__(self) -> int:
        parts = (self._present, self._past, *self._dropping, self._periods)
        return sum(len(fields) for part in parts for fields in part.values())

    def read(self, owner: str, limits: LimitWindows) -> tuple[tuple[Cells | None, ...], int]:
        """Return the cells of each window, None for a new field, and the number of all fields."""
        fields = self._present.get(owner) or self._past.get(owner) or {}
        if self._periods and (periods := self._periods.get(owner)):
            fields = fields | periods
        return tuple([fields.get(field) for field in limits.fields]), len(fields)

    def write(
        self,
        owner: str,
        limits: LimitWindows,
        before: Sequence[Cells | None],
        after: State,
        now: int,
    ) -> None:
        """Keep the cells that a hit has changed."""
        changed = changed_fields(limits, before, after)
        if limits.quotas:
            self._keep_periods(owner, [one for one in changed if is_of_period(one[0])], now)
            changed = [one for one in changed if not is_of_period(one[0])]
        if not changed:
            return
        if not 0 <= now - self._present_since < LONGEST_SPAN or self._dropping:
            self._tend(now)
        fields = self._present.get(owner)
        if fields is None:
            fields = self._present[owner] = self._take_past(owner, now) or {}
        put_fields(fields, changed, now)

    def remove(self, owner: str) -> None:
        """Remove the fields of an owner."""
        self._present.pop(owner, None)
        self._past.pop(owner, None)
        self._periods.pop(owner, None)

    def _keep_periods(self, owner: str, changed: Iterable[tuple[str, Cells]], now: int) -> None:
        for other in [one for one, _ in zip(self._periods, range(_SWEPT), strict=False)]:
            fields = self._periods[other]
            for field in [field for field, _ in zip(fields, range(_SWEPT), strict=False)]:
                cells = fields.pop(field)
                if cells[3] > now - span_of(field) - DAY:
                    fields[field] = cells
            if fields:
                self._periods.move_to_end(other)
            else:
                del self._periods[other]
        put_fields(self._periods.setdefault(owner, {}), changed, now)
        if self._capacity is not None and len(self._periods) > self._capacity:
            self._periods.popitem(last=False)
