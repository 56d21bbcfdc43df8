"""A clock that several processes share, and that one of them steps."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterable
from pathlib import Path
from time import monotonic_ns
from typing import Final, NamedTuple

_START: Final = 1_800_000_000_000_000
_OFFSET: Final = struct.Struct("<q")


def elapsed() -> int:
    """Return the microseconds of a clock that all processes of this machine share."""
    return monotonic_ns() // 1000


class Step(NamedTuple):
    """A step of the clock, made at some instant of :func:`elapsed` in between."""

    after: int
    before: int
    old: int
    """The offset until then, in microseconds."""
    new: int


class SharedClock:
    """The clock of the stores: the elapsed time and an offset that lies in a file."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(_OFFSET.pack(_START))
        with path.open("r+b") as file:
            self._memory: Final = mmap.mmap(file.fileno(), _OFFSET.size)

    @property
    def offset(self) -> int:
        offset: int = _OFFSET.unpack_from(self._memory)[0]
        return offset

    def __call__(self) -> int:
        return elapsed() + self.offset

    def step(self, by: int) -> Step:
        """Step the clock by some microseconds, in all processes at once."""
        old, after = self.offset, elapsed()
        _OFFSET.pack_into(self._memory, 0, old + by)
        return Step(after, elapsed(), old, old + by)


class Readings:
    """What the clock could show: an interval of the elapsed time becomes one of its readings.

    Args:
        offset: at the beginning.
        steps: all steps, in order.
    """

    def __init__(self, offset: int, steps: Iterable[Step]) -> None:
        self._offset: Final = offset
        self._steps: Final = tuple(steps)

    def low(self, first: int, last: int) -> int:
        """Return the lowest reading between two instants."""
        found = [first + min(self._offsets(first))]
        found += (step.after + step.new for step in self._between(first, last))
        return min(found)

    def high(self, first: int, last: int) -> int:
        """Return the highest reading between two instants."""
        found = [last + max(self._offsets(last))]
        found += (step.before + step.old for step in self._between(first, last))
        return max(found)

    def _between(self, first: int, last: int) -> list[Step]:
        return [step for step in self._steps if step.before >= first and step.after <= last]

    def _offsets(self, at: int) -> list[int]:
        """Return the offset at an instant, or both, while a step was made."""
        offset = self._offset
        for step in self._steps:
            if at < step.after:
                break
            if at <= step.before:
                return [step.old, step.new]
            offset = step.new
        return [offset]
