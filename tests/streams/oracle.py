"""The judge: what the merged log of all processes says about the limits.

Each process writes before and after each call, so the log of a killed one is whole. It gives
the bounds between which the store decided each call. The judge adds only the units that
must have counted at a decision, by the worst of these bounds: a sum above the limit is certain.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any, Final

from .clock import Readings

ANSWERED: Final = "answered"
"""A hold was taken, or a call settled it."""
UNCHANGED: Final = "unchanged"
"""A hold was refused, or the store was not asked."""
ENDED: Final = "ended"
"""The hold to settle had ended: perhaps by this call, sent again after a lost reply."""
UNKNOWN: Final = "unknown"
"""No answer came: the process was killed, or the reply lost."""


@dataclass
class Call:
    """A call of the store, with instants of the elapsed time in microseconds."""

    began: int
    units: int
    """Those asked for, or used."""
    ended: float = inf
    outcome: str = UNKNOWN


@dataclass
class Stream:
    """What is known of one hold."""

    organization: str
    take: Call
    settlements: list[Call] = field(default_factory=list)

    @property
    def units(self) -> int:
        return self.take.units

    @property
    def settled(self) -> Call | None:
        """The call that settled it, if one is known to have."""
        return next((one for one in self.settlements if one.outcome == ANSWERED), None)

    @property
    def possible(self) -> list[Call]:
        """The calls that may have settled it, if none is known to have."""
        return [one for one in self.settlements if one.outcome in (UNKNOWN, ENDED)]

    def totals(self) -> tuple[int, int]:
        """Return the fewest and the most units that it is counted for, once it has ended."""
        if self.take.outcome == UNCHANGED:
            return 0, 0
        if self.settled is not None:
            return self.settled.units, self.settled.units
        possible = [self.units]
        possible += (one.units for one in self.possible)
        if self.take.outcome == UNKNOWN:
            possible.append(0)
        return min(possible), max(possible)


class Judge:
    """Judges the log of a run.

    Args:
        lines: of all processes, in any order.
        readings: of the clock.
        window: the span of the limit, in microseconds.
        span: of the holds.
    """

    def __init__(
        self, lines: Iterable[Mapping[str, Any]], readings: Readings, window: int, span: int
    ) -> None:
        self._readings, self._window, self._span = readings, window, span
        self.errors: list[str] = []
        self.streams: dict[str, Stream] = {}
        calls: dict[str, Call] = {}
        ended: list[Mapping[str, Any]] = []
        settlements: list[tuple[str, Call]] = []
        for line in lines:
            if line["what"] == "error":
                self.errors.append(line["text"])
            elif line["what"] == "end":
                ended.append(line)
            else:
                call = calls[line["call"]] = Call(line["at"], line["units"])
                if line["what"] == "take":
                    self.streams[line["call"]] = Stream(line["organization"], call)
                else:
                    settlements.append((line["hold"], call))
        by_hold: dict[str, Stream] = {}
        for line in ended:
            call = calls[line["call"]]
            call.ended, call.outcome = line["at"], line["outcome"]
            if "hold" in line:
                by_hold[line["hold"]] = self.streams[line["call"]]
        for hold, call in settlements:
            # A lost reply leaves a hold without a known id, which is settled all the same.
            if hold in by_hold:
                by_hold[hold].settlements.append(call)

    def settled_twice(self) -> int:
        """Return the holds that two calls settled."""
        return sum(
            sum(call.outcome == ANSWERED for call in stream.settlements) > 1
            for stream in self.streams.values()
        )

    def totals(self) -> dict[str, tuple[int, int]]:
        """Return the fewest and the most units used by each organization, once all have ended."""
        found: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
        for stream in self.streams.values():
            fewest, most = found[stream.organization]
            least, largest = stream.totals()
            found[stream.organization] = fewest + least, most + largest
        return dict(found)

    def at_once(self) -> int:
        """Return the most streams that were held at the same time, from take to settlement."""
        changes: list[tuple[float, int]] = []
        for stream in self.streams.values():
            if stream.take.outcome == ANSWERED:
                ends = min((call.began for call in stream.settlements), default=None)
                changes.append((stream.take.ended, 1))
                changes.append((stream.take.ended + self._span if ends is None else ends, -1))
        number = most = 0
        for _, change in sorted(changes):
            number += change
            most = max(most, number)
        return most

    def worst(self) -> int:
        """Return the most units that must have counted in a window at the end of a take."""
        return max(self._sums(), default=0)

    def _sums(self) -> Iterator[int]:
        of_organizations: dict[str, list[Stream]] = defaultdict(list)
        for stream in self.streams.values():
            if stream.take.outcome == ANSWERED:
                of_organizations[stream.organization].append(stream)
        for streams in of_organizations.values():
            streams.sort(key=lambda stream: stream.take.ended)
            for index, last in enumerate(streams):
                began, ended = last.take.began, int(last.take.ended)
                # Older ones cannot count: no step is longer than the window.
                oldest = began - 8 * (self._window + self._span)
                yield last.units + sum(
                    self._certain(stream, began, ended)
                    for stream in streams[:index]
                    if oldest < stream.take.ended <= began
                )

    def _certain(self, stream: Stream, began: int, ended: int) -> int:
        """Return the units that a hold must count for at each instant of a later take."""
        settled = stream.settled
        if settled is not None:
            if settled.began >= ended:
                return stream.units
            return self._used(stream, settled, began, ended)
        deadline = self._readings.low(stream.take.began, ended) + self._span
        is_held = deadline + self._window > self._readings.high(began, ended)
        units = stream.units if is_held else 0
        for call in stream.possible:
            if call.began < ended:
                units = min(units, self._used(stream, call, began, ended))
        return units

    def _used(self, stream: Stream, settled: Call, began: int, ended: int) -> int:
        """Return the units of a settlement, apart from an overrun, if they are in the window."""
        stamp = self._readings.low(settled.began, ended)
        is_counted = stamp > self._readings.high(began, ended) - self._window
        return min(settled.units, stream.units) if is_counted else 0


def read(folder: Path) -> Iterator[dict[str, Any]]:
    """Read the logs of all processes; a killed one may have written half of its last line."""
    for path in sorted(folder.glob("*.log")):
        *lines, last = path.read_text().split("\n")
        yield from map(json.loads, lines)
        assert not last or not last.endswith("}"), f"{path} has no end"
