"""Bar charts of usage over time, as numbers that a template draws in SVG."""

from typing import TYPE_CHECKING, Final, NamedTuple

from ..core.timestamps import DAY, HOUR, MINUTE
from ..core.usage_history import By, Cell
from ..services.usage import UsageReport
from .moments import Moment, moment_of

if TYPE_CHECKING:
    from .visit import Visit

WIDTH: Final = 720
HEIGHT: Final = 160
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
    """One bar: its place, and the heights of its two parts, in pixels."""

    x: float
    width: float
    admitted_y: float
    admitted: float
    refused_y: float
    refused: float


class Row(NamedTuple):
    """One cell as a row of a table."""

    start: Moment
    admitted: int
    refused: int


class Chart(NamedTuple):
    """A chart, and its table."""

    bars: list[Bar]
    rows: list[Row]
    """The cells that are not empty, newest first."""
    first: Moment
    last: Moment
    most: int
    admitted: int
    refused: int
    reasons: list[tuple[str, int]]
    """The refusals by reason, the most frequent first."""


def spans(visit: "Visit", chosen: By) -> list[tuple[str, str, bool]]:
    """Return the spans to choose from: name, text, and whether it is chosen."""
    return [(name, visit.site.texts(f"usage.by_{name}"), name == chosen) for name in SPANS]


def chart_of(visit: "Visit", report: UsageReport, by: By) -> Chart:
    """Return the chart of a report, up to its instant."""
    span = SPANS[by]
    newest = report.now // span.length
    first = newest - span.cells + 1
    cells = {cell.start // span.length: cell for cell in report.cells}
    shown = {index: cells[index] for index in range(first, newest + 1) if index in cells}
    totals = {index: _total(cell) for index, cell in shown.items()}
    most = max(totals.values(), default=0)
    reasons: dict[str, int] = {}
    for cell in shown.values():
        for reason, number in cell.refused.items():
            reasons[reason] = reasons.get(reason, 0) + number
    return Chart(
        [_bar(index - first, span.cells, cell, most) for index, cell in shown.items()],
        [
            Row(moment_of(cell.start), cell.admitted, sum(cell.refused.values()))
            for cell in reversed(shown.values())
        ],
        moment_of(first * span.length),
        moment_of(report.now),
        most,
        sum(cell.admitted for cell in shown.values()),
        sum(reasons.values()),
        sorted(reasons.items(), key=lambda pair: (-pair[1], pair[0])),
    )


def _total(cell: Cell) -> int:
    return cell.admitted + sum(cell.refused.values())


def _bar(place: int, places: int, cell: Cell, most: int) -> Bar:
    step = WIDTH / places
    admitted, refused = (
        max(_LEAST, number / most * HEIGHT) if number else 0.0
        for number in (cell.admitted, sum(cell.refused.values()))
    )
    admitted = min(admitted, HEIGHT - refused)
    return Bar(
        round(place * step + step * _GAP / 2, 2),
        round(step * (1 - _GAP), 2),
        round(HEIGHT - admitted, 2),
        round(admitted, 2),
        round(HEIGHT - admitted - refused, 2),
        round(refused, 2),
    )
