"""Output of commands: a table for people, or one JSON document for programs."""

import json
import sys
from collections.abc import Callable, Container, Generator, Mapping, Sequence
from contextlib import contextmanager
from getpass import getpass
from shutil import get_terminal_size
from typing import Any, Final, TextIO

import click

from ..errors import ConfigurationError

json_option: Final = click.option("--json", "as_json", is_flag=True, help="print one JSON document")

_AROUND: Final = " \t\r\n\v\f\u00a0\u200b\ufeff\"'`,;\u2018\u2019\u201c\u201d\u00ab\u00bb"
_GAP: Final = 2
"""Blanks between two columns of a table."""
_FOLDED: Final = 12
"""Characters that a column of a table has at least, if its values fold."""
_IDS: Final = frozenset({"id", "key", "organization"})
"""Titles of columns with ids, which stay on one line so that they can be copied."""
_HEIGHT: Final = 25


def read_secret(prompt: str) -> str:
    """Return a line of standard input, as :func:`pasted`; a terminal does not show it.

    Raises:
        ConfigurationError: the line is empty, or not text.
    """
    try:
        line = pasted(getpass(prompt) if sys.stdin.isatty() else sys.stdin.readline())
    except UnicodeDecodeError:
        line = ""
    if not line:
        raise ConfigurationError("Standard input holds no text: write the key there, in one line.")
    return line


def pasted(text: str) -> str:
    """Return a text without the quotes, commas and white space that copying leaves around it."""
    return text.strip(_AROUND)


@contextmanager
def progress(what: str) -> Generator[Callable[[str], object]]:
    """Show on a terminal that a command is at work; yield a function that shows how far it is.

    Standard error is used, and only if it is a terminal.
    """
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console

    with Console(stderr=True).status(f"{what}...") as status:
        yield lambda text: status.update(f"{what}: {text}")


def print_json(value: Any, indent: int | None = None) -> None:
    """Print a document, on one line without an indent.

    What is not printable is escaped: control characters and bidirectional marks, which change what
    a terminal shows, and surrogates, which no stream takes.
    """
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    print("".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text))


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    order: Sequence[str] = (),
    folds: Sequence[str] = (),
) -> None:
    """Print rows below their titles; no value is ever cropped.

    A terminal shows the columns that it has room for, and standard error names the others. A pipe
    or a file gets all columns.

    Args:
        columns: the titles, from left to right.
        rows: a value for each column; None is printed as ``-``.
        order: titles by their importance, most important first; the others follow.
        folds: titles of columns whose values may continue on the next line. Without being named
            the last column may, unless it holds ids, and any column wider than the terminal.
    """
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table

    cells = [[_shown(value) for value in row] for row in rows]
    natural = {
        title: max(map(cell_len, (title, *(row[at] for row in cells))))
        for at, title in enumerate(columns)
    }
    width = _terminal_width() or sum(natural.values()) + len(columns) * _GAP
    folding = {*folds, columns[-1]} - _IDS
    kept = _that_fit(natural, list(dict.fromkeys([*order, *columns])), folding, width)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in columns:
        if title in kept:
            fold = title in folding or natural[title] > width
            table.add_column(title, no_wrap=not fold, overflow="fold")
    for row in cells:
        table.add_row(*(text for title, text in zip(columns, row, strict=True) if title in kept))
    # With a width and a height of ours, rich asks no terminal and no environment for another.
    console = Console(width=width, height=_HEIGHT, markup=False, highlight=False, emoji=False)
    with console.capture() as shown:
        console.print(table)
    print(*(line.rstrip() for line in shown.get().splitlines()), sep="\n")
    if others := [title for title in columns if title not in kept]:
        names = ", ".join(others)
        print(f"Left out for lack of width: {names}. --json and a pipe have all.", file=sys.stderr)


def _that_fit(
    natural: Mapping[str, int], order: Sequence[str], folding: Container[str], width: int
) -> set[str]:
    """Return the titles of the columns that fit into a width, the first of the order included."""
    kept: set[str] = set()
    left = width + _GAP
    for title in order:
        least = min(natural[title], _FOLDED) if title in folding else natural[title]
        if least + _GAP <= left or not kept:
            kept.add(title)
            left -= least + _GAP
    return kept


def _terminal_width() -> int | None:
    """Return the columns of the terminal; None: standard output is not a terminal."""
    return get_terminal_size().columns if sys.stdout.isatty() else None


def print_fields(fields: Sequence[tuple[str, object]], file: TextIO | None = None) -> None:
    """Print an object, a line for each of its fields."""
    longest = max(len(name) for name, _ in fields)
    for name, value in fields:
        print(f"{name:<{longest}}  {_shown(value)}", file=file)


def _shown(value: object) -> str:
    """Return a value as a person reads it."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return plain(str(value))


def plain(text: str) -> str:
    """Return a text without control characters, which could move a terminal's cursor."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
