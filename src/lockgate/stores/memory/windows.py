"""Windows kept in this process: those of the memory store and of anonymous callers."""

from collections import OrderedDict
from collections.abc import Callable
from time import time_ns
from typing import Final, NamedTuple

from ...core.bounded_dict import BoundedDict
from ...core.coalesced_hits import CoalescedHits, begin
from ...core.sliding_window import (
    Reading,
    State,
    Window,
    empty_state,
    hit,
    later,
    peek,
    stands_until,
)
from ...core.timestamps import DAY

Clock = Callable[[], int]
"""Gives the present instant, in microseconds."""

_DROPPED_AT_ONCE: Final = 8
_REFUSALS_AT_MOST: Final = 10_000
_STREAKS_AT_MOST: Final = 1_000


def wall_clock() -> int:
    """The clock of this machine."""
    return time_ns() // 1000


class _Refusal(NamedTuple):
    """A refusal, and between which instants it changes in nothing but the time."""

    windows: tuple[Window, ...]
    cost: int
    reading: Reading
    until: int


class LocalWindows:
    """A table of window states. Whoever uses it holds a lock around every call.

    Idle states are dropped by generations: a state that is used moves to the present one; every
    day (the longest window) the present one becomes the past one, and what was still in the past
    one has not been hit for a whole day, so nothing in it counts any more. Dropping goes a few
    states a call, so that no request pays for many (W10).

    A refusal is remembered while nothing of it changes, so that a flood costs next to nothing.
    Hits that go on with a streak are counted in it, and in the state when it ends.

    Args:
        capacity: at this many present states the generations turn early, which forgets the callers
            that were idle longest; None never forgets what still counts.
    """

    def __init__(self, capacity: int | None = None) -> None:
        self._capacity = capacity
        self._present: dict[str, State] = {}
        self._past: dict[str, State] = {}
        self._dropping: list[dict[str, State]] = []
        self._turned_at = 0
        self._refusals = BoundedDict[str, _Refusal](_REFUSALS_AT_MOST)
        self.coalesced: Final = OrderedDict[str, CoalescedHits]()
        """Hits that go on with one need not be asked for here."""

    def __len__(self) -> int:
        return sum(map(len, (self._present, self._past, *self._dropping)))

    def __contains__(self, owner: str) -> bool:
        return owner in self._present or owner in self._past

    def hit(self, owner: str, windows: tuple[Window, ...], now: int, cost: int) -> Reading:
        """Apply the rule to the owner's state and keep what comes of it."""
        streak = self.coalesced.get(owner)
        if streak is not None:
            reading = streak.extend(windows, now, cost)
            if reading is not None:
                return reading
            self._present[owner] = self.coalesced.pop(owner).to_state()
        return self._judge(owner, windows, now, cost)

    def _judge(self, owner: str, windows: tuple[Window, ...], now: int, cost: int) -> Reading:
        if self._refusals and (known := self._refusals.get(owner)) is not None:
            same = known.windows is windows and known.cost == cost
            if same and known.reading.now <= now < known.until:
                return later(known.reading, now)
            del self._refusals[owner]
        if not 0 <= now - self._turned_at < DAY:
            self._age(now)
        if self._dropping:
            self._drop()
        state = self._present.get(owner)
        if state is None:
            state = self._past.pop(owner, None) or empty_state(windows)
            if self._capacity is not None and len(self._present) >= self._capacity:
                self._turn(now)
        reading, state = hit(state, windows, now, cost)
        self._present[owner] = state
        if reading.allowed:
            streak = begin(state, windows, reading)
            if streak is not None:
                if len(self.coalesced) >= _STREAKS_AT_MOST:
                    oldest, ended = self.coalesced.popitem(last=False)
                    self._present[oldest] = ended.to_state()
                self.coalesced[owner] = streak
        else:
            until = stands_until(state, windows, now, cost)
            if until > now:
                self._refusals[owner] = _Refusal(windows, cost, reading, until)
        return reading

    def take(self, owner: str) -> State | None:
        """Remove the owner's state and return it; None where there is none."""
        self._refusals.pop(owner, None)
        streak = self.coalesced.pop(owner, None)
        present, past = self._present.pop(owner, None), self._past.pop(owner, None)
        return streak.to_state() if streak is not None else present or past

    def put(self, owner: str, state: State, now: int) -> None:
        """Add the state of an owner that has none here."""
        if not 0 <= now - self._turned_at < DAY:
            self._age(now)
        if self._dropping:
            self._drop()
        if self._capacity is not None and len(self._present) >= self._capacity:
            self._turn(now)
        self._present[owner] = state

    def peek(self, owner: str, windows: tuple[Window, ...], now: int) -> Reading:
        """Read the owner's state, changing nothing."""
        streak = self.coalesced.get(owner)
        if streak is not None:
            state = streak.to_state()
        else:
            state = self._present.get(owner) or self._past.get(owner) or empty_state(windows)
        return peek(state, windows, now)

    def _age(self, now: int) -> None:
        idle = now - self._turned_at
        if idle < 0:
            self._turned_at = now  # The clock stepped back: a state is dropped later, never sooner.
            return
        self._turn(now)
        if idle >= 2 * DAY:
            self._turn(now)

    def _flush_coalesced(self) -> None:
        """End every streak."""
        self._present.update((owner, streak.to_state()) for owner, streak in self.coalesced.items())
        self.coalesced.clear()

    def _turn(self, now: int) -> None:
        self._flush_coalesced()
        self._turned_at = now
        if self._past:
            self._dropping.append(self._past)
        self._past = self._present
        self._present = {}
        self._refusals.clear()

    def _drop(self) -> None:
        states = self._dropping[-1]
        for _ in range(min(_DROPPED_AT_ONCE, len(states))):
            states.popitem()
        if not states:
            self._dropping.pop()
