"""The cells of named limits, by owner and field."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final

from ...core.limit_hits import SharedCell, changed_fields, put_fields
from ...core.limit_windows import LimitWindows, is_of_period, span_of
from ...core.plans import LONGEST_SPAN
from ...core.sliding_window import Cells, State, shared_until
from ...core.timestamps import DAY
from .generations import Generations

_MAX_SHARED: Final = 1_000
_SWEPT: Final = 2


class LimitCells(Generations[dict[str, Cells]]):
    """The cells of named limits, by owner and field. Callers hold a lock around every call.

    Counts of calendar periods outlast the generations: they have a table of their own, in which
    each write looks at two fields of the next two owners, and drops those that ended a day ago.
    """

    def __init__(self, capacity: int | None = None) -> None:
        super().__init__(capacity)
        self._periods: OrderedDict[str, dict[str, Cells]] = OrderedDict()
        self.shared: Final[dict[str, dict[str, SharedCell]]] = {}
        """The fast paths of present fields by owner and field, until :meth:`read`."""
        self._shared_number = 0

    def __len__(self) -> int:
        parts = (self._present, self._past, *self._dropping, self._periods)
        return sum(len(fields) for part in parts for fields in part.values())

    def read(self, owner: str, limits: LimitWindows) -> tuple[tuple[Cells | None, ...], int]:
        """Return the cells of each window, None for a new field, and the number of all fields."""
        if owner in self.shared:
            self._end_sharing(owner, limits.fields)
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

    def share(self, owner: str, limits: LimitWindows, after: State, now: int) -> None:
        """Let the next hits share the cells of a hit that was admitted, if each window has one.

        Args:
            owner: the owner.
            limits: the windows of the hit.
            after: their cells, as :meth:`write` has kept them.
            now: the instant of the hit.
        """
        latest = self._present_since + LONGEST_SPAN
        cells: dict[str, SharedCell] = {}
        for field, window, kept in zip(limits.fields, limits.windows, after, strict=True):
            until = min(latest, shared_until(kept, window, now))
            if until <= now:
                return
            cells[field] = SharedCell(window, kept, until)
        if self._shared_number >= _MAX_SHARED:
            self._end_fast_paths()
        self.shared.setdefault(owner, {}).update(cells)
        self._shared_number += len(cells)

    def remove(self, owner: str) -> None:
        """Remove the fields of an owner."""
        self._shared_number -= len(self.shared.pop(owner, ()))
        self._present.pop(owner, None)
        self._past.pop(owner, None)
        self._periods.pop(owner, None)

    def _end_sharing(self, owner: str, fields: Iterable[str]) -> None:
        """Write the cells of these fields that are shared."""
        shared = self.shared[owner]
        ended = [(field, shared.pop(field).to_cells()) for field in fields if field in shared]
        put_fields(self._present[owner], ended, 0)
        self._shared_number -= len(ended)
        if not shared:
            del self.shared[owner]

    def _end_fast_paths(self) -> None:
        for owner in [*self.shared]:
            self._end_sharing(owner, [*self.shared[owner]])

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
