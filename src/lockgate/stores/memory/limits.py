"""The cells of named limits, by owner and field."""

from collections.abc import Sequence

from ...core.limits import LimitWindows, changed_fields, put_fields
from ...core.sliding_window import Cells, State
from .generations import Generations


class LimitCells(Generations[dict[str, Cells]]):
    """The cells of named limits, by owner and field. Callers hold a lock around every call."""

    def __len__(self) -> int:
        parts = (self._present, self._past, *self._dropping)
        return sum(len(fields) for part in parts for fields in part.values())

    def read(self, owner: str, limits: LimitWindows) -> tuple[list[Cells | None], int]:
        """Return the cells of each window, None for a new field, and the number of all fields."""
        fields = self._present.get(owner) or self._past.get(owner) or {}
        return [fields.get(field) for field in limits.fields], len(fields)

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
        if not changed:
            return
        self._tend(now)
        fields = self._present.get(owner)
        if fields is None:
            fields = self._present[owner] = self._take_past(owner, now) or {}
        put_fields(fields, changed, now)

    def remove(self, owner: str) -> None:
        """Remove the fields of an owner."""
        self._present.pop(owner, None)
        self._past.pop(owner, None)
