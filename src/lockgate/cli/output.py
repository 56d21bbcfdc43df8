"""Output of commands: a table for people, or one JSON document for programs."""

import json
import sys
from collections.abc import Sequence
from typing import Any, Final

import click

json_option: Final = click.option("--json", "as_json", is_flag=True, help="print one JSON document")


def print_json(value: Any) -> None:
    """Print a document on one line."""
    print(json.dumps(value, ensure_ascii=False))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows below their titles; the last column wraps, the others are as wide as needed."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns[:-1]:
        table.add_column(column, no_wrap=True)
    table.add_column(columns[-1], overflow="fold")
    for row in rows:
        table.add_row(*("-" if cell is None else _plain(str(cell)) for cell in row))
    # A pipe has no width, so output to a pipe is not truncated.
    width = None if sys.stdout.isatty() else 10_000
    Console(width=width, markup=False, highlight=False, soft_wrap=width is not None).print(table)


def print_fields(fields: Sequence[tuple[str, object]]) -> None:
    """Print an object, a line for each of its fields."""
    longest = max(len(name) for name, _ in fields)
    for name, value in fields:
        print(f"{name:<{longest}}  {'-' if value is None else _plain(str(value))}")


def _plain(text: str) -> str:
    """Return a text without control characters, which could move a terminal's cursor."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
