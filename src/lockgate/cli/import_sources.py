"""Sources of an import: CSV and JSON lines, from a file or standard input, or a database table.

Each yields rows with their numbers, one at a time, so that memory does not grow with the source.
"""

import csv
import io
import json
import re
import sys
from collections.abc import Collection, Generator, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any, Final, TextIO, cast

from ..core.key_rows import COLUMNS, shortened
from ..errors import ConfigurationError, InvalidRequest, Problem
from .output import plain

_LINE_AT_MOST: Final = 1 << 20
"""Characters of a line; longer ones are refused without reading them into memory."""
_FETCHED_AT_ONCE: Final = 500
_SEARCHED: Final = 10_000
"""Rows in which a named column is searched: a line of JSON may leave out an empty one."""
_DELIMITERS: Final = ",;\t|"

RawRow = tuple[int, dict[str, Any] | InvalidRequest]
"""The number of a row, and its values by column or why it cannot be read."""


@contextmanager
def opened(source: str, table: str | None) -> Generator[Iterator[RawRow]]:
    """Open a source and return its rows.

    Args:
        source: the path of a file, ``-`` for standard input, or the URL of a database.
        table: the table to read in a database, with its schema before a dot if it needs one.

    Raises:
        ConfigurationError: a URL without a table, or a source that cannot be read.
        OSError: the file cannot be opened.
    """
    if "://" in source:
        if table is None:
            raise ConfigurationError("Name the table to read: --table, or --from.")
        yield _table_rows(source, table)
    elif source == "-":
        yield file_rows(io.TextIOWrapper(sys.stdin.buffer, "utf-8-sig", "surrogateescape", ""))
    else:
        with open(source, encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            yield file_rows(file)


def file_rows(file: TextIO) -> Iterator[RawRow]:
    """Yield the rows of a text: JSON lines if it begins with ``{``, otherwise CSV with a header.

    Raises:
        ConfigurationError: a JSON array, or no header.
    """
    first = file.readline(_LINE_AT_MOST)
    if first.lstrip().startswith("["):
        raise ConfigurationError(
            "The file is a JSON array: write one object on each line, as 'jq -c .[]' does."
        )
    if first.lstrip().startswith("{"):
        return _json_rows(file, first)
    return _csv_rows(file, first)


def having(columns: Collection[str], rows: Iterator[RawRow]) -> Iterator[RawRow]:
    """Return the rows of a source that has some columns, with values or without.

    Raises:
        ConfigurationError: a column is in none of the first 10,000 rows.
    """
    first: list[RawRow] = []
    found: dict[str, None] = {}
    while not found.keys() >= {*columns} and len(first) < _SEARCHED:
        number, row = next(rows, (0, None))
        if row is None:
            break
        first.append((number, row))
        found |= dict.fromkeys(row) if isinstance(row, dict) else {}
    missing = [name for name in columns if name not in found]
    # A short source without a readable row imports nothing, and its report says why.
    if missing and (found or len(first) == _SEARCHED):
        columns_found = plain(", ".join(map(shortened, found)))
        raise ConfigurationError(
            f"The source has no column {missing[0]!r}; its columns are {columns_found}."
        )
    return chain(first, rows)


def _json_rows(file: TextIO, line: str) -> Iterator[RawRow]:
    number = 1
    while line:
        if len(line) == _LINE_AT_MOST and not line.endswith("\n"):
            while line and not line.endswith("\n"):
                line = file.readline(_LINE_AT_MOST)
            yield number, _unreadable(f"The line has more than {_LINE_AT_MOST:,} characters.")
        elif line.strip():
            yield number, _document(line)
        number += 1
        line = file.readline(_LINE_AT_MOST)


def _document(line: str) -> dict[str, Any] | InvalidRequest:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return _unreadable("The line is not JSON.")
    if not isinstance(value, dict):
        return _unreadable("The line is not a JSON object.")
    row = cast(dict[str, Any], value)
    # A line of Django's dumpdata has the columns in "fields".
    if isinstance(row.get("fields"), dict) and "model" in row:
        return {"id": row.get("pk"), **row["fields"]}
    return row


def _csv_rows(file: TextIO, header: str) -> Iterator[RawRow]:
    delimiter = max(_DELIMITERS, key=header.count)
    try:
        columns = next(csv.reader([header], delimiter=delimiter, strict=True))
    except csv.Error as problem:
        raise ConfigurationError("The file has no header line with names of columns.") from problem
    names = [column.strip() for column in columns]
    words = re.findall(r"\w+", names[0])
    if len(names) == 1 and (len(words) > 2 or len({*words} & {*COLUMNS}) > 1):
        raise ConfigurationError(
            "The header line is one column: separate columns by a comma, a semicolon, a tab or '|'."
        )
    reader = csv.reader(file, delimiter=delimiter)
    while True:
        number = reader.line_num + 2  # Lines before this row, and the header.
        try:
            values = next(reader)
        except StopIteration:
            return
        except csv.Error as problem:
            yield number, _unreadable(f"The line is not CSV: {problem}.")
            continue
        if len(values) == len(names):
            yield number, dict(zip(names, values, strict=True))
        elif values:
            told = f"The line has {len(values)} values, and the header {len(names)} columns."
            yield number, _unreadable(told)


def _table_rows(url: str, name: str) -> Iterator[RawRow]:
    from sqlalchemy import inspect, select, table, text
    from sqlalchemy.exc import DBAPIError

    from ..stores.sql.engines import blocking_engine, sqlite_file
    from ..stores.sql.error_hints import advice

    schema, _, bare = name.rpartition(".")
    every = select(text("*")).select_from(table(bare, schema=schema or None))
    engine = blocking_engine(url)
    if engine.dialect.name == "sqlite" and not sqlite_file(engine.url).exists():
        raise ConfigurationError(f"There is no file {str(sqlite_file(engine.url))!r}.")
    try:
        if not inspect(engine).has_table(bare, schema or None):
            raise ConfigurationError(
                f"The source has no table {name!r}: see its URL, or name the table by --table."
            )
        with engine.connect().execution_options(yield_per=_FETCHED_AT_ONCE) as connection:
            for number, row in enumerate(connection.execute(every).mappings(), 1):
                yield number, dict(row)
    except DBAPIError as failure:
        # The driver's message would repeat the address and, with some drivers, the user.
        # Nor would advice about lockgate's own tables help.
        what = advice(failure, engine.dialect) or ""
        if not what or "lockgate" in what:
            what = f"{type(failure.orig).__name__}: see that this user may select from it"
        what = what.replace("the store's URL", "the source's URL")
        raise ConfigurationError(f"The table {name!r} cannot be read: {what}.") from None
    finally:
        engine.dispose()


def _unreadable(message: str) -> InvalidRequest:
    return InvalidRequest([Problem("row", message)])
