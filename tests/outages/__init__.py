"""The figures of outages: what each cost, as tests tell it and the end of their run prints it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

PROPERTY = "outage"
"""Under this name a test records a :class:`Figures`, as a plain list."""


class Figures(NamedTuple):
    """The measured cost of an outage, in seconds; None: not measured."""

    store: str
    happens: str
    answers: int
    refused: int
    """Answers that were 503."""
    detected: float | None
    """From its beginning to the first answer, or decision, that shows it."""
    slowest: float
    """The longest wait for a response."""
    back: float
    """From its end, or its beginning where servers see to its end, to the first admission."""
    over: int | None
    """Requests admitted beyond the limit, within its window."""


HEADINGS = "store", "what happens", "answers", "503", "detected", "slowest", "back", "over"


def table(outages: Iterable[Figures]) -> list[str]:
    """The figures as the lines of a table."""
    rows = [HEADINGS, *(tuple(map(text, figures)) for figures in sorted(outages))]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    return [
        "  ".join(
            cell.ljust(width) if column < 2 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def text(value: object) -> str:
    """Return a figure as text."""
    if value is None:
        return "-"
    return f"{value:.2f} s" if isinstance(value, float) else str(value)
