"""Streaks: hits that join the newest cell of every window, judged for all windows in one step.

Most hits of a busy organization do: nothing has left a window since the hit before, and the newest
cells take one more. Then every window counts the same cost more and has as much less left, and
nothing else of the state changes but the instant of its last hit. So the windows need not be gone
through until one of them has a cell to open or to drop.

This is no rule of its own: :func:`~lockgate.core.sliding_window.hit` says what holds, and
these are a quicker way to the same readings and the same state.
"""

from typing import Final

from .sliding_window import FULL, PLENTY, Reading, State, Window, new_reading


class CoalescedHits:
    """What the windows were when a streak began, and what was admitted since.

    Args:
        state: what the hit left that began it.
        windows: those it was judged by.
        reading: what it was told.
        until: from this instant on some hit opens a cell or some cell has left.
    """

    __slots__ = (
        "_last",
        "_left",
        "_limited",
        "_more",
        "_reset",
        "_state",
        "_tightest",
        "_until",
        "_used",
        "_windows",
    )

    def __init__(
        self, state: State, windows: tuple[Window, ...], reading: Reading, until: int
    ) -> None:
        self._state: Final = state
        self._windows: Final = windows
        self._used: Final = reading.used
        self._reset: Final = reading.reset
        self._tightest: Final = reading.tightest
        self._limited: Final = reading.remaining is not None
        self._left: Final = PLENTY if reading.remaining is None else reading.remaining
        self._until: Final = until
        self._last = reading.now
        self._more = 0

    def extend(self, windows: tuple[Window, ...], now: int, cost: int) -> Reading | None:
        """Admit one more hit, if it goes on with the streak.

        None: nothing has changed, and the hit has to be judged by the state that
        :meth:`to_state` gives.
        """
        more = self._more + cost
        if windows is not self._windows or not self._last <= now < self._until or more > self._left:
            return None
        self._last = now
        self._more = more
        counts: list[int] = []
        for count in self._used:  # A comprehension is a call of its own.
            counts.append(count + more)
        used = tuple(counts)
        if not self._limited:
            return new_reading(Reading, (True, now, used, None, now, None, None, 0))
        left = self._left - more
        told = True, now, used, left, self._reset, self._tightest, None, 0
        return new_reading(Reading, told)

    def to_state(self) -> State:
        """The state at its end, as if each of its hits had gone through the windows."""
        last, more = self._last, self._more
        return tuple(
            (used + more, oldest, first, last, count + more, older)
            for used, oldest, first, _, count, older in self._state
        )


def begin(state: State, windows: tuple[Window, ...], reading: Reading) -> CoalescedHits | None:
    """The streak that a hit may have begun; None: the next one has to go through the windows.

    Args:
        state: what the hit left.
        windows: those it was judged by.
        reading: what it was told.
    """
    now = reading.now
    until = PLENTY
    for (_, oldest, first, _, _, older), (_, span, _, grain) in zip(state, windows, strict=True):
        if first == now or len(older) < FULL:
            return None
        until = min(until, first + grain, oldest + span)
    return CoalescedHits(state, windows, reading, until) if until > now else None
