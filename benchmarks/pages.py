"""Write what a benchmark measured into the pages of the documentation: ``--markdown``.

A module that measures has ``PARTS``, and a run with ``--markdown`` replaces them in the pages: a
line on the run, then the tables. So do the campaigns of faults in `tests`.
``tests/docs/test_measured.py`` compares the columns and the rows of the pages with ``PARTS``.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from docs.marked import fill_parts, table

from .measure import host, versions

DOCS: Final = Path(__file__).parents[1] / "docs"
MODULES: Final = (
    "benchmarks.redis",
    "benchmarks.cluster",
    "benchmarks.sql",
    "benchmarks.lookup",
    "benchmarks.dashboard",
    "benchmarks.leases",
    "benchmarks.revocations",
    "benchmarks.worst",
    "tests.clients.campaign",
    "tests.faults.campaign",
    "tests.outages.campaign",
    "tests.streams.campaign",
)
"""The modules with ``PARTS``."""

Cells = Mapping[str, Sequence[str]]
"""The cells of each row after its name, by the name."""


class Table(NamedTuple):
    """The columns of a table and the names of its rows, which are its first column."""

    columns: tuple[str, ...]
    rows: tuple[str, ...]

    def __call__(self, cells: Cells) -> str:
        """Return the table in Markdown.

        Raises:
            ValueError: a row or a cell is missing, or too many.
        """
        if set(cells) != set(self.rows):
            raise ValueError(f"rows that differ: {sorted(set(cells) ^ set(self.rows))}")
        rows = [(name, *cells[name]) for name in self.rows]
        if wrong := [row for row in rows if len(row) != len(self.columns)]:
            raise ValueError(f"not {len(self.columns)} cells: {wrong[0]}")
        return table(self.columns, *rows)


class Part(NamedTuple):
    """A part of a page: a line on the run, then tables, then a line on all of them."""

    name: str
    page: str
    tables: tuple[Table, ...]

    def text(self, run: str, *cells: Cells, ending: str = "") -> str:
        """Return the part in Markdown."""
        tables = (form(rows) for form, rows in zip(self.tables, cells, strict=True))
        return "\n".join([f"{run}\n", *tables, *filter(None, [ending])])

    def write(self, run: str, *cells: Cells, ending: str = "", docs: Path = DOCS) -> None:
        """Replace the part in its page, and nothing else.

        Raises:
            LookupError: the page has no such part.
        """
        text = self.text(run, *cells, ending=ending)
        found: list[str] = []

        def fill(name: str, before: str) -> str:
            found.append(name)
            return text if name == self.name else before

        page = docs / self.page
        new = fill_parts(page.read_text(), fill)
        if found.count(self.name) != 1:
            raise LookupError(f"not one part {self.name!r} in {page}")
        page.write_text(new)


class Run:
    """A run of a benchmark, from its start on: the line that tells how a table came about.

    Args:
        module: the one that is run.
        libraries: distributions whose versions matter.
    """

    def __init__(self, module: str, *libraries: str) -> None:
        self._command = shlex.join(["python", "-m", module, *sys.argv[1:]])
        self._libraries = libraries
        self._load = _load()
        self._date = datetime.now(UTC)

    def line(self, *servers: str) -> str:
        """Return the line; ``servers`` are the servers with their versions."""
        date = f"{self._date.day} {self._date:%B %Y}"
        load = f", load {self._load} before and {_load()} after" if self._load else ""
        told = ", ".join([versions(("lockgate", *self._libraries)), *servers])
        return f"Measured on {date} by `{self._command}`: {host()}{load}; {told}."


def _load() -> str:
    """Return the load of the last minute, where the system tells."""
    return f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""


def parser(module: str, description: str | None) -> argparse.ArgumentParser:
    """Return a parser of the command line with the option that writes the pages."""
    made = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    made.add_argument(
        "--markdown", action="store_true", help="measure everything, and write it into the docs"
    )
    return made
