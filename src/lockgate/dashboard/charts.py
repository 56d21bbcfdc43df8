"""Bar charts of usage over time, as numbers that a template draws in SVG."""

from typing import Final, NamedTuple

from ..core.timestamps import DAY, HOUR, MINUTE
from ..core.usage_history import By, Cell
from ..services.usage.reports import UsageReport
from .moments import Moment, moment_of
from .visit import Visit

WIDTH: Final = 720
HEIGHTS: Final = {"admitted": 160, "used": 80, "refused": 56}
"""The units of each limit and requests are different things, so each has its own bars, by its own
scale."""
_GAP: Final = 0.22
"""The part of a bar's place that stays empty."""
_LEAST: Final = 2.0
"""Pixels of the lowest bar that is not 0."""


class Span(NamedTuple):
    """The cells of one chart."""

    by: By
    length: int
    """Of a cell, in microseconds."""
    cells: int


SPANS: Final = {
    "minute": Span("minute", MINUTE, 60),
    "hour": Span("hour", HOUR, 7 * 24),
    "day": Span("day", DAY, 90),
}


class Bar(NamedTuple):
    """One bar: its place and size, in pixels."""

    x: float
    y: float
    width: float
    height: float


class Panel(NamedTuple):
    """The bars of one kind."""

    name: str
    """``admitted`` (units), ``used`` (units of a named limit) or ``refused`` (requests)."""
    total: int
    most: int
    """The number of the highest bar."""
    height: int
    bars: list[Bar]
    limit: str = ""
    """The name of the limit whose units are used."""


class Row(NamedTuple):
    """One cell as a row of a table."""

    start: Moment
    admitted: int
    used: list[int]
    """Units of each of :attr:`Chart.limits`."""
    refused: int


class Chart(NamedTuple):
    """A chart, and its table."""

    panels: list[Panel]
    """Those that are not empty."""
    rows: list[Row]
    """The cells that are not empty, newest first."""
    first: Moment
    last: Moment
    reasons: list[tuple[str, int]]
    """The refusals by reason, the most frequent first."""
    limits: list[str]
    """The names of the limits with units, in order."""


def spans(visit: Visit, chosen: By) -> list[tuple[str, str, bool]]:
    """Return the spans to choose from: name, text, and whether it is chosen."""
    return [(name, visit.site.texts(f"usage.by_{name}"), name == chosen) for name in SPANS]


def chart_of(visit: Visit, report: UsageReport, by: By) -> Chart:
    """Return the chart of a report, up to its instant."""
    span = SPANS[by]
    newest = report.now // span.length
    first = newest - span.cells + 1
    cells = {cell.start // span.length: cell for cell in report.cells}
    shown = {index: cells[index] for index in range(first, newest + 1) if index in cells}
    limits = sorted({name for cell in shown.values() for name in cell.used})
    numbers: dict[tuple[str, str], list[tuple[int, int]]] = {
        ("admitted", ""): [(index - first, cell.admitted) for index, cell in shown.items()],
        **{
            ("used", name): [
                (index - first, cell.used.get(name, 0)) for index, cell in shown.items()
            ]
            for name in limits
        },
        ("refused", ""): [(index - first, _refusals(cell)) for index, cell in shown.items()],
    }
    reasons: dict[str, int] = {}
    for cell in shown.values():
        for reason, number in cell.refused.items():
            reasons[reason] = reasons.get(reason, 0) + number
    return Chart(
        [
            _panel(name, limit, span.cells, found)
            for (name, limit), found in numbers.items()
            if any(number for _, number in found)
        ],
        [
            Row(
                moment_of(cell.start),
                cell.admitted,
                [cell.used.get(name, 0) for name in limits],
                _refusals(cell),
            )
            for cell in reversed(shown.values())
        ],
        moment_of(first * span.length),
        moment_of(report.now),
        sorted(reasons.items(), key=lambda pair: (-pair[1], pair[0])),
        limits,
    )


def _refusals(cell: Cell) -> int:
    return sum(cell.refused.values())


def _panel(name: str, limit: str, places: int, numbers: list[tuple[int, int]]) -> Panel:
    height, most = HEIGHTS[name], max(number for _, number in numbers)
    bars = [
        _bar(place, places, number / most * height, height) for place, number in numbers if number
    ]
    return Panel(name, sum(number for _, number in numbers), most, height, bars, limit)


def _bar(place: int, places: int, size: float, height: int) -> Bar:
    step, size = WIDTH / places, max(_LEAST, size)
    return Bar(
        round(place * step + step * _GAP / 2, 2),
        round(height - size, 2),
        round(step * (1 - _GAP), 2),
        round(size, 2),
    )
