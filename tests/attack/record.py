"""Counters that a served application and its attacker share, in a file that both map.

So the attacker knows which handler ran and what was charged, whatever the answer said.
"""

from __future__ import annotations

import mmap
import time
from pathlib import Path
from typing import NamedTuple

from .handlers import NAMES

ORGANIZATIONS = ("weak", "models", "jobs", "full")
"""One for each key: a charge tells whose key it was."""

_PID, _ENTERED, _LEFT, _STATUS, _FAULTS, _RUNS = range(6)
_USED = _RUNS + len(NAMES)
_COUNT = _USED + len(ORGANIZATIONS)
_PLACES = {name: _RUNS + place for place, name in enumerate(NAMES)}


class State(NamedTuple):
    """The counters at an instant, since the application was loaded."""

    pid: int
    entered: int
    status: int
    """Of the last answer that came from the application or its gate, not from the server."""
    faults: int
    """How many exceptions left the guarded application."""
    runs: tuple[int, ...]
    """How often each handler ran, in the order of :data:`~.handlers.NAMES`."""
    used: tuple[int, ...]
    """What each organization has used, in the order of :data:`ORGANIZATIONS`."""


class Record:
    """The counters, for one request at a time.

    Args:
        path: of the file, which :meth:`create` has made.
    """

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._numbers = memoryview(mmap.mmap(file.fileno(), 0)).cast("Q")
        self.patience = 10.0
        """Seconds after which a request counts as one that hangs."""
        self.hung = 0
        """How many requests never left the application."""

    @staticmethod
    def create(path: Path) -> None:
        path.write_bytes(bytes(8 * _COUNT))

    # --- the application's side ---

    def loaded(self, pid: int) -> None:
        """Start from zero: whatever was counted before was another process's."""
        for place in range(1, _COUNT):
            self._numbers[place] = 0
        self._numbers[_PID] = pid

    def ran(self, handler: str) -> None:
        self._numbers[_PLACES[handler]] += 1

    def enter(self) -> None:
        self._numbers[_STATUS] = 0  # Of an earlier answer; a server may give one by itself.
        self._numbers[_ENTERED] += 1

    def leave(self) -> None:
        self._numbers[_LEFT] += 1

    def answered(self, status: int) -> None:
        self._numbers[_STATUS] = status

    def fault(self) -> None:
        self._numbers[_FAULTS] += 1

    def use(self, used: tuple[int, ...]) -> None:
        for place, value in enumerate(used, _USED):
            self._numbers[place] = value

    # --- the attacker's side ---

    def read(self) -> State:
        numbers = self._numbers
        return State(
            numbers[_PID],
            numbers[_ENTERED],
            numbers[_STATUS],
            numbers[_FAULTS],
            tuple(numbers[_RUNS:_USED]),
            tuple(numbers[_USED:_COUNT]),
        )

    def settled(self) -> State:
        """The counters once no request is in the application; one that hangs is given up."""
        numbers = self._numbers
        deadline = time.monotonic() + self.patience
        while numbers[_ENTERED] - numbers[_LEFT] > self.hung:
            if time.monotonic() > deadline:
                self.hung = numbers[_ENTERED] - numbers[_LEFT]
            time.sleep(0.0002)
        return self.read()
