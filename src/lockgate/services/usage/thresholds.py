"""Tell when an organization has used 80 or 100 % of a window's limit."""

import logging
from operator import ge
from typing import Final

from ...core.bounded_dict import BoundedDict
from ...core.thresholds import crossings
from ...events import Events
from ...principal import Principal

_TOLD_AT_MOST: Final = 10_000


class Thresholds:
    """Emits ``threshold`` for the admission that crosses a mark.

    While a client is at its limit, the oldest hits expire and new ones take their place, so a full
    window is crossed over and over. A process tells each mark of a window once in the length of the
    window.

    Args:
        events: receives ``threshold``.
    """

    def __init__(self, events: Events) -> None:
        self._events: Final = events
        self._told: Final = BoundedDict[tuple[str, str, int], int](_TOLD_AT_MOST)
        """When a mark of a window of an organization was told last, in microseconds."""

    def admitted(self, principal: Principal, cost: int) -> None:
        """Tell what an admission of this cost crossed."""
        plan, reading = principal.plan, principal.reading
        if not any(map(ge, reading.used, plan.marks)):
            return
        for window, share, used in crossings(plan.windows, reading.used, cost):
            mark = principal.organization, window.name, share
            told = self._told.get(mark)
            if told is not None and told <= reading.now < told + window.span:
                continue
            self._told[mark] = reading.now
            self._events.emit(
                "threshold",
                logging.INFO,
                organization=principal.organization,
                plan=plan.name,
                window=window.name,
                share=share,
                used=used,
                limit=window.limit,
            )
