"""Streaks: hits that join the newest cell of every window, judged for all windows in one step.

Most hits of a busy organization do: nothing has left a window since the hit before, and the newest
cells take one more. Then every window counts the same cost more and has as much less left, and
nothing else of the state changes but the instant of its last hit. So the windows need not be gone
through until one of them has a cell to open or to drop.

This is no rule of its own: :func:`~lockgate.rules.windows.hit` says what holds, and a streak is a
quicker way to the same readings and the same state.
"""

from typing import TypeAlias

from .windows import FULL, PLENTY, Reading, State, Window, new_reading

Streak: TypeAlias = tuple[
    tuple[Window, ...], State, int, int, int, int, int | None, tuple[int, ...], int
]
"""``(windows, state, last, until, left, reset, tightest, used, more)``: what the windows were when
the streak began, and since then.

``state`` is what it began with, ``last`` the instant of its last hit and ``until`` the one from
which on some hit opens a cell or some cell has left. ``left`` is what could be admitted in the
beginning, ``used`` what each window counted, and ``more`` the cost admitted since.
"""


def begin(state: State, windows: tuple[Window, ...], reading: Reading) -> Streak | None:
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
    if until <= now:
        return None
    left = PLENTY if reading.remaining is None else reading.remaining
    return windows, state, now, until, left, reading.reset, reading.tightest, reading.used, 0


def extend(
    streak: Streak, windows: tuple[Window, ...], now: int, cost: int
) -> tuple[Reading, Streak] | None:
    """Admit one more hit, if it goes on with the streak: the reading, and the streak to keep.

    None: the hit has to be judged by the state that :func:`settled` gives.
    """
    begun_by, state, last, until, left, reset, tightest, used, more = streak
    more += cost
    if windows is not begun_by or not last <= now < until or more > left:
        return None
    remaining = None if tightest is None else left - more
    regains = now if tightest is None else reset
    counts: list[int] = []
    for count in used:  # A comprehension is a call of its own.
        counts.append(count + more)
    told = True, now, tuple(counts), remaining, regains, tightest, None, 0
    reading = new_reading(Reading, told)
    return reading, (windows, state, now, until, left, reset, tightest, used, more)


def settled(streak: Streak) -> State:
    """The state at the end of a streak, as if each of its hits had gone through the windows."""
    _, state, last, _, _, _, _, _, more = streak
    return tuple(
        (used + more, oldest, first, last, count + more, older)
        for used, oldest, first, _, count, older in state
    )
