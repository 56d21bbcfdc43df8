"""The judge finds what a store did wrong, and accuses no store that did right."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from .clock import Readings, Step
from .oracle import ANSWERED, ENDED, UNCHANGED, UNKNOWN, Judge

SECOND = 1_000_000
WINDOW, SPAN = 60 * SECOND, 30 * SECOND
START = 1_800_000_000 * SECOND

Line = Mapping[str, Any]


def take(hold: str, at: float, units: int, outcome: str = ANSWERED, lasts: float = 0) -> list[Line]:
    """The lines of a take that is answered at once, or, unknown, never."""
    found: list[Line] = [
        {
            "what": "take",
            "call": f"take {hold}",
            "at": int(at * SECOND),
            "organization": "org_1",
            "units": units,
        }
    ]
    if outcome != UNKNOWN:
        found.append(_end(f"take {hold}", at + lasts, outcome, hold=hold))
    return found


def settle(
    hold: str, at: float, used: int, outcome: str = ANSWERED, lasts: float = 0
) -> list[Line]:
    call = f"settle {hold} {at}"
    found: list[Line] = [
        {"what": "settle", "call": call, "at": int(at * SECOND), "hold": hold, "units": used}
    ]
    if outcome != UNKNOWN:
        found.append(_end(call, at + lasts, outcome))
    return found


def _end(call: str, at: float, outcome: str, **facts: str) -> Line:
    return {"what": "end", "call": call, "at": int(at * SECOND), "outcome": outcome, **facts}


def judge(*lines: list[Line], steps: tuple[Step, ...] = ()) -> Judge:
    every = [line for some in lines for line in some]
    return Judge(every, Readings(START, steps), WINDOW, SPAN)


def step(at: float, by: float, before: float = 0) -> Step:
    """A step of the clock, with an offset that was changed by ``before`` until then."""
    old = START + int(before * SECOND)
    return Step(int(at * SECOND), int(at * SECOND) + 10, old, old + int(by * SECOND))


@pytest.mark.parametrize(
    ("lines", "worst"),
    [
        ([take("a", 0, 50)], 50),
        ([take("a", 0, 50), take("b", 1, 50)], 100),
        ([take("a", 0, 50, UNCHANGED), take("b", 1, 50)], 50),
        ([take("a", 0, 50, UNKNOWN), take("b", 1, 50)], 50),
        # Both were under way at the same time, so the second may have been first.
        ([take("a", 0, 50, lasts=2), take("b", 1, 50)], 50),
        ([take("a", 0, 50), settle("a", 10, 20), take("b", 20, 50)], 70),
        ([take("a", 0, 50), settle("a", 10, 20), take("b", 69.9, 50)], 70),
        ([take("a", 0, 50), settle("a", 10, 20), take("b", 70.1, 50)], 50),
        ([take("a", 0, 50), settle("a", 10, 20, lasts=20), take("b", 20, 50)], 70),
        ([take("a", 0, 50), settle("a", 10, 99), take("b", 20, 50)], 100),
        # Nothing settles it: held until 30, used until 90.
        ([take("a", 0, 50), take("b", 89.9, 50)], 100),
        ([take("a", 0, 50), take("b", 90.1, 50)], 50),
        ([take("a", 0, 50), settle("a", 40, 5, UNCHANGED), take("b", 89.9, 50)], 100),
        ([take("a", 0, 50), settle("a", 40, 5, ENDED), take("b", 89.9, 50)], 55),
        ([take("a", 0, 50), settle("a", 10, 20, UNKNOWN), take("b", 20, 50)], 70),
        ([take("a", 0, 50), settle("a", 10, 20, UNKNOWN), take("b", 75, 50)], 50),
        ([take("a", 0, 50), settle("a", 30, 20, UNKNOWN), take("b", 20, 50)], 100),
    ],
)
def test_only_units_that_must_have_counted_are_added(lines: list[list[Line]], worst: int) -> None:
    assert judge(*lines).worst() == worst


@pytest.mark.parametrize(
    ("by", "last", "worst"),
    [
        (20, 49.9, 70),
        (20, 50.1, 50),
        # The units of the instant 10 may have been moved to 10, when the clock showed that again.
        (-20, 89.9, 70),
        (-20, 90.1, 50),
        # They are moved to 5.
        (-25, 89.9, 70),
        (-25, 90.1, 50),
    ],
)
def test_a_window_goes_by_the_clock_that_was_stepped(by: float, last: float, worst: int) -> None:
    lines = take("a", 0, 50), settle("a", 10, 20), take("b", last, 50)
    assert judge(*lines, steps=(step(30, by),)).worst() == worst


def test_a_reading_during_a_step_is_between_both_offsets() -> None:
    readings = Readings(0, (Step(100, 200, 0, 1000), Step(300, 400, 1000, 500)))
    assert (readings.low(50, 60), readings.high(50, 60)) == (50, 60)
    assert (readings.low(150, 150), readings.high(150, 150)) == (150, 1150)
    assert (readings.low(250, 450), readings.high(250, 450)) == (800, 1400)


@pytest.mark.parametrize(
    ("lines", "totals"),
    [
        ([take("a", 0, 50)], (50, 50)),
        ([take("a", 0, 50, UNCHANGED)], (0, 0)),
        ([take("a", 0, 50, UNKNOWN)], (0, 50)),
        ([take("a", 0, 50), settle("a", 1, 20)], (20, 20)),
        ([take("a", 0, 50), settle("a", 1, 20, UNCHANGED)], (50, 50)),
        ([take("a", 0, 50), settle("a", 1, 20, UNKNOWN)], (20, 50)),
        ([take("a", 0, 50), settle("a", 1, 20, ENDED)], (20, 50)),
        ([take("a", 0, 50), settle("a", 1, 70, UNKNOWN)], (50, 70)),
        ([take("a", 0, 50), settle("a", 1, 20, UNKNOWN), settle("a", 2, 30)], (30, 30)),
    ],
)
def test_units_of_unknown_calls_are_possible(
    lines: list[list[Line]], totals: tuple[int, int]
) -> None:
    assert judge(*lines).totals() == {"org_1": totals}


def test_a_hold_that_two_calls_settled_is_found() -> None:
    once = take("a", 0, 50), settle("a", 1, 20), settle("a", 2, 20, ENDED)
    assert judge(*once).settled_twice() == 0
    assert judge(*once, settle("a", 3, 20)).settled_twice() == 1


def test_streams_count_from_their_take_to_their_settlement() -> None:
    lines = take("a", 0, 1), take("b", 1, 1), settle("a", 2, 1), take("c", 3, 1), take("d", 40, 1)
    assert judge(*lines).at_once() == 2


def test_an_exception_of_a_process_is_an_error() -> None:
    assert judge([{"what": "error", "text": "KeyError()"}]).errors == ["KeyError()"]
