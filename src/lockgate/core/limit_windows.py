"""The windows of named limits, and the fields under which stores keep them (D40).

Stores keep the cells of such a window by its *field*, a text that names the limit, the span and,
for a window of a key, the key. So the numbers of a limit may change while its hits stay counted
(W13), and a process that does not know a limit never touches its state.

A calendar quota, such as ``"1000000/month"``, counts from the first instant of its period on. Its
field names that instant, so that a new period begins at zero and a clock that steps back over the
boundary finds the count of the period before. All hits of a period are counted in one cell, at the
first instant of the period, by a window that is as long as the period: the cell expires when the
period ends. The clock that judges names the period (:meth:`LimitWindows.at`).
"""

from functools import lru_cache
from typing import Final, NamedTuple

from .periods import Period, Quota
from .sliding_window import Window
from .timestamps import SECOND

PERIOD: Final = "@"
"""Stands in a field between the name of the limit and the first second of the period; in that of a
budget, before the kind of period (:func:`lockgate.core.holds.budgets`)."""


class LimitWindows(NamedTuple):
    """The windows of named limits for one request, its subjects known."""

    names: tuple[str, ...]
    """The name of the limit of each window."""
    fields: tuple[str, ...]
    """Under which a store keeps the cells of each window."""
    windows: tuple[Window, ...]
    quotas: tuple[Quota | None, ...] = ()
    """The calendar of each window, None for a sliding one; empty: all windows slide."""

    def at(self, now: int, organization: str | None = None) -> "LimitWindows":
        """Return the windows with the periods of an instant: a store counts only by these.

        Args:
            now: the instant by the clock that judges, in microseconds.
            organization: the owner of the windows.

        Raises:
            ConfigurationError: the function of the host returned no first day, or raised an
                exception.
        """
        if not self.quotas:
            return self
        return _in_periods(
            self,
            tuple([one and one.period(now, organization) for one in self.quotas]),
        )

    def of(self, organization: str) -> "LimitWindows":
        """Return the windows with the calendars of an organization, whose first days are dates.

        Raises:
            ConfigurationError: the function of the host returned no date, or raised an exception.
        """
        if not self.quotas:
            return self
        return self._replace(quotas=tuple(one and one.of(organization) for one in self.quotas))

    @property
    def marks(self) -> tuple[int | None, ...]:
        """The limit of each window, soft quotas included."""
        limits = tuple([window.limit for window in self.windows])
        if not self.quotas:
            return limits
        return tuple(
            [one.limit if one else mine for one, mine in zip(self.quotas, limits, strict=True)]
        )


@lru_cache(4096)
def _in_periods(limits: LimitWindows, periods: tuple[Period | None, ...]) -> LimitWindows:
    """Return windows with the fields and instants of these periods, for calendar quotas."""
    fields, windows = list(limits.fields), list(limits.windows)
    for place, period in enumerate(periods):
        if period is not None:
            begins, span = period.begins, period.ends - period.begins
            name, _, *subject = fields[place].split(" ")
            name = f"{name.partition(PERIOD)[0]}{PERIOD}{begins // SECOND}"
            fields[place] = " ".join((name, str(span // SECOND), *subject))
            windows[place] = windows[place]._replace(span=span, grain=grain_of(begins))
    return limits._replace(fields=tuple(fields), windows=tuple(windows))


def grain_of(begins: int) -> int:
    """Return the grain that marks the window of a period, by the first instant of the period.

    A negative number, so that stores keep and pass the windows of periods as they do all others.
    """
    return -1 - begins


def ends_of(window: Window) -> int | None:
    """Return the first instant after the period of a window; None: it slides."""
    begins = begins_of(window)
    return None if begins is None else begins + window.span


def begins_of(window: Window) -> int | None:
    """Return the first instant of the period of a window; None: it slides."""
    return None if window.grain >= 0 else -1 - window.grain


def is_of_period(field: str) -> bool:
    """Return whether a field has the count of a period."""
    return PERIOD in field


def by_limit(limits: LimitWindows) -> list[LimitWindows]:
    """Return the windows of each limit by themselves."""
    groups: list[LimitWindows] = []
    parts = [field.split(" ") for field in limits.fields]
    subjects = [(name.partition(PERIOD)[0], *subject) for name, _, *subject in parts]
    for subject in dict.fromkeys(subjects):
        places = [place for place, other in enumerate(subjects) if other == subject]
        groups.append(
            LimitWindows(
                tuple(limits.names[place] for place in places),
                tuple(limits.fields[place] for place in places),
                tuple(limits.windows[place] for place in places),
                tuple(limits.quotas[place] for place in places) if limits.quotas else (),
            )
        )
    return groups


@lru_cache(4096)
def span_of(field: str) -> int:
    """Return the span of a field's window, in microseconds."""
    return int(field.split(" ", 2)[1]) * SECOND
