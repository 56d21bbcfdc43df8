"""The windows of the memory store and of anonymous callers."""

from collections import OrderedDict
from collections.abc import Callable
from time import time_ns
from typing import Final, NamedTuple

from ...core.bounded_dict import BoundedDict
from ...core.sliding_window import (
    CoalescedHits,
    Reading,
    State,
    Window,
    coalesce,
    empty_state,
    hit,
    later,
    peek,
    stands_until,
)
from ...core.timestamps import DAY

Clock = Callable[[], int]
"""Returns the present instant, in microseconds."""

_DROPPED_PER_CALL: Final = 8
_MAX_REFUSALS: Final = 10_000
_MAX_COALESCED: Final = 1_000


def wall_clock() -> int:
    """Return the time of this machine, in microseconds since 1970."""
    return time_ns() // 1000


class _Refusal(NamedTuple):
    """A refusal, and the instant until which it stays valid."""

    windows: tuple[Window, ...]
    cost: int
    reading: Reading
    until: int


class LocalWindows:
    """A table of window states. Callers hold a lock around every call.

    Idle states are dropped by generation: a hit moves a state to the present generation, which
    becomes the past one after a day, the longest window. States that are then still in the past
    one have had no hit for a day and have expired. Each call drops a few of them (W10).

    A refusal is cached while it stays valid, so that a flood costs little.

    Args:
        capacity: at this many present states the generations change early, which drops the callers
            that were idle longest; None keeps all unexpired states.
    """

    def __init__(self, capacity: int | None = None) -> None:
        self._capacity = capacity
        self._present: dict[str, State] = {}
        self._past: dict[str, State] = {}
        self._dropping: list[dict[str, State]] = []
        self._turned_at = 0
        self._refusals = BoundedDict[str, _Refusal](_MAX_REFUSALS)
        self.coalesced: Final = OrderedDict[str, CoalescedHits]()
        """The fast paths by owner; a caller may extend one without :meth:`hit`."""

    def __len__(self) -> int:
        return sum(map(len, (self._present, self._past, *self._dropping)))

    def __contains__(self, owner: str) -> bool:
        return owner in self._present or owner in self._past

    def hit(self, owner: str, windows: tuple[Window, ...], now: int, cost: int) -> Reading:
        """Apply the rule to the owner's state, and store the new state."""
        coalesced = self.coalesced.get(owner)
        if coalesced is not None:
            reading = coalesced.extend(windows, now, cost)
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
            coalesced = coalesce(state, windows, reading)
            if coalesced is not None:
                if len(self.coalesced) >= _MAX_COALESCED:
                    oldest, ended = self.coalesced.popitem(last=False)
                    self._present[oldest] = ended.to_state()
                self.coalesced[owner] = coalesced
        else:
            until = stands_until(state, windows, now, cost)
            if until > now:
                self._refusals[owner] = _Refusal(windows, cost, reading, until)
        return reading

    def take(self, owner: str) -> State | None:
        """Remove the owner's state and return it; None without one."""
        self._refusals.pop(owner, None)
        coalesced = self.coalesced.pop(owner, None)
        present, past = self._present.pop(owner, None), self._past.pop(owner, None)
        return coalesced.to_state() if coalesced is not None else present or past

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
        """Return the reading of the owner's state without changing it."""
        coalesced = self.coalesced.get(owner)
        if coalesced is not None:
            state = coalesced.to_state()
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
        """Write the states of all coalesced hits."""
        self._present.update((owner, hits.to_state()) for owner, hits in self.coalesced.items())
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
        for _ in range(min(_DROPPED_PER_CALL, len(states))):
            states.popitem()
        if not states:
            self._dropping.pop()
