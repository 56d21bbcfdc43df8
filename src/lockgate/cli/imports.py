"""``lockgate keys import``: moves keys in from files and from the tables of other systems."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from datetime import UTC, datetime
from time import monotonic
from typing import Any, Final, NamedTuple, TextIO

import click
from click.core import ParameterSource

from ..core.key_rows import COLUMNS, read_row
from ..errors import ConfigurationError, InvalidRequest, StoreUnavailable
from ..gate import Gate
from ..services.imports.imported_keys import OldKey
from ..services.imports.key_import import ImportReport, KeyImport, SkippedRow, SourceRow
from .import_sources import RawRow, having, opened
from .import_systems import SYSTEMS, KnownSystem
from .output import json_option, plain, print_fields, print_json
from .settings import call, gate_of, gate_option, store_option
from .store_urls import has_password

_SOURCE: Final = "LOCKGATE_SOURCE"
"""The environment variable for a source whose URL holds a password."""
_OFTEN: Final = 2.0
"""Seconds between two lines of progress."""
_ROWS_NAMED: Final = 5
"""Rows with the same problem whose numbers are printed."""


def _without_password(context: click.Context, param: click.Parameter, source: str) -> str:
    given = context.get_parameter_source(param.name or "") is ParameterSource.COMMANDLINE
    if given and "://" in source and has_password(source):
        raise click.UsageError(
            "The URL holds a password, and every user of this machine sees the arguments of a "
            f"command: set {_SOURCE} to the URL, and leave out SOURCE."
        )
    return source


class _Defaults(NamedTuple):
    """What the options of the command say about each row."""

    system: str | None
    known: KnownSystem | None
    organization: str | None
    columns: dict[str, str]
    """The column of the source by its name in the import."""
    scopes: tuple[str, ...]
    renamed_scopes: dict[str, str]
    now: datetime


@click.command("import")
@click.argument("source", envvar=_SOURCE, callback=_without_password)
@click.option("--from", "origin", type=click.Choice(list(SYSTEMS)), help="the system of the rows")
@click.option("--system", help="the name of the gate's ImportedKeyFormat (the only one)")
@click.option("--table", help="the table to read in a database (that of --from)")
@click.option("--organization", help="the organization of rows that name none")
@click.option("--organization-column", help="the column of SOURCE with the organization's id")
@click.option(
    "--column",
    "mapped",
    multiple=True,
    metavar="NAME=THEIRS",
    help="a name of the import, and the column of SOURCE; repeat",
)
@click.option("--scope", "scopes", multiple=True, help="scopes of rows that have none; repeat")
@click.option(
    "--rename-scope", "renamed", multiple=True, metavar="OLD=NEW", help="a scope's name; repeat"
)
@click.option("--dry-run", is_flag=True, help="check every row, and change nothing")
@click.option("--skipped", "log", type=click.Path(), help="a file for all skipped rows, as JSON")
@gate_option
@store_option
@json_option
def import_keys(
    source: str,
    origin: str | None,
    system: str | None,
    table: str | None,
    organization: str | None,
    organization_column: str | None,
    mapped: tuple[str, ...],
    scopes: tuple[str, ...],
    renamed: tuple[str, ...],
    log: str | None,
    named: str | None,
    store: str | None,
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Import the keys of another system from SOURCE: CSV or JSON lines, or a database's URL.

    LOCKGATE_SOURCE gives a URL with a password, without SOURCE.

    Run it again at any time: a key is imported once, and a revocation in the old system is
    repeated. Exit code 1 where rows were skipped.
    """
    gate = gate_of(named, store)
    known = SYSTEMS[origin] if origin else None
    defaults = _Defaults(
        _system_of(gate, system, known),
        known,
        organization,
        _columns(mapped, organization_column),
        scopes,
        dict(_pair("--rename-scope", "OLD=NEW", text) for text in renamed),
        datetime.now(UTC),
    )
    importing = KeyImport(gate.legacy, gate.keys.revoke, dry_run=dry_run)
    with opened(source, table or (known and known.table)) as raw, _written(log) as file:
        rows = _read(having(defaults.columns.values(), raw), defaults, importing.report)
        try:
            report = call(gate, lambda: importing.run(rows, _writer(file), _progress()))
        except StoreUnavailable:
            _print(importing.report, as_json=False, file=sys.stderr)
            raise
    _print(report, as_json=as_json, file=sys.stdout)
    if report.skipped:
        click.get_current_context().exit(1)


def _read(rows: Iterable[RawRow], defaults: _Defaults, report: ImportReport) -> Iterator[SourceRow]:
    """Yield the key of each row, or the problems of its values; report the columns ignored."""
    known, columns = defaults.known, defaults.columns
    for number, raw in rows:
        if isinstance(raw, InvalidRequest):
            yield number, raw
            continue
        row = known.columns(raw) if known else dict(raw)
        for column in () if known else columns.values():
            row.pop(column, None)
        report.ignore(name for name in row if name not in COLUMNS)
        row |= {name: raw.get(column) for name, column in columns.items()}
        system = defaults.system or (known.name(raw) if known else "")
        try:
            fields = read_row(
                row, defaults.organization, defaults.scopes, defaults.renamed_scopes, defaults.now
            )
            yield number, OldKey(system=system, **fields)
        except InvalidRequest as problem:
            yield number, problem


def _system_of(gate: Gate, system: str | None, known: KnownSystem | None) -> str | None:
    """Return the name of the format of all rows; None: each row names it.

    Raises:
        ConfigurationError: the gate has no such format.
    """
    names = gate.legacy.names
    if not names:
        raise ConfigurationError(
            "The gate accepts no keys of other systems: give it KeyOptions(legacy=[...]), as "
            "docs/imported-keys.md shows, and name it by --gate module:name."
        )
    if system is not None and system not in names:
        raise ConfigurationError(f"The gate has no ImportedKeyFormat {system!r}: {names}.")
    if system is None and known is None:
        if len(names) > 1:
            raise ConfigurationError(f"Say which of the gate's formats it is: --system of {names}.")
        return names[0]
    return system


def _columns(mapped: Sequence[str], organization_column: str | None) -> dict[str, str]:
    """Return the column of the source for each name of the import.

    Raises:
        UsageError: a name is not one of the import's, or is given twice.
    """
    pairs = [_pair("--column", "NAME=THEIRS", text) for text in mapped]
    if organization_column is not None:
        pairs.append(("organization", organization_column))
    names = [name for name, _ in pairs]
    for name in names:
        if name not in COLUMNS:
            raise click.UsageError(f"--column {name}: no such name: use {', '.join(COLUMNS)}.")
        if names.count(name) > 1:
            raise click.UsageError(f"Two columns are given for {name}: leave one out.")
    return dict(pairs)


def _pair(option: str, form: str, text: str) -> tuple[str, str]:
    first, _, second = text.partition("=")
    if not (first and second):
        raise click.UsageError(f"{option} {text!r}: write {form}.")
    return first, second


def _written(path: str | None) -> AbstractContextManager[TextIO | None]:
    return nullcontext() if path is None else open(path, "w", encoding="utf-8")


def _writer(file: TextIO | None) -> Callable[[SkippedRow], object]:
    def write(row: SkippedRow) -> None:
        if file is not None:
            file.write(json.dumps(row._asdict()) + "\n")

    return write


def _progress() -> Callable[[ImportReport], object]:
    """Return a function that tells a person how far the import is, every two seconds."""
    told = monotonic()

    def tell(report: ImportReport) -> None:
        nonlocal told
        if monotonic() - told >= _OFTEN:
            told = monotonic()
            numbers = f"{report.imported:,} imported, {report.skipped:,} skipped"
            print(f"{report.rows:,} rows: {numbers}", file=sys.stderr)

    return tell


def _print(report: ImportReport, *, as_json: bool, file: TextIO) -> None:
    document: dict[str, Any] = asdict(report)
    document["skipped_rows"] = listed = [row._asdict() for row in report.skipped_rows]
    if as_json:
        print_json(document)
        return
    names = "rows", "imported", "present", "revoked", "skipped"
    print_fields([(name, document[name]) for name in names], file)
    for message, rows in _by_message(report.skipped_rows).items():
        print(plain(f"{_named(rows)}: {message}"), file=file)
    if report.skipped > len(listed):
        print(f"... and {report.skipped - len(listed):,} more: see --skipped.", file=file)
    if report.ignored_columns:
        ignored = plain(", ".join(report.ignored_columns))
        print(f"Ignored columns: {ignored}. --column NAME=THEIRS reads one.", file=file)
    if report.dry_run:
        print("Nothing was changed: this was a dry run.", file=file)


def _by_message(skipped: Iterable[SkippedRow]) -> dict[str, list[SkippedRow]]:
    """Group rows: a misspelled column or a missing option is the same fault in all of them."""
    found: dict[str, list[SkippedRow]] = {}
    for row in skipped:
        found.setdefault(row.message, []).append(row)
    return found


def _named(rows: Sequence[SkippedRow]) -> str:
    """Return the numbers of rows; for a single row also its prefix."""
    if len(rows) == 1:
        return f"row {rows[0].row}: {rows[0].prefix or '-'}"
    numbers = ", ".join(str(row.row) for row in rows[:_ROWS_NAMED])
    more = f" and {len(rows) - _ROWS_NAMED} more" if len(rows) > _ROWS_NAMED else ""
    return f"rows {numbers}{more}"
