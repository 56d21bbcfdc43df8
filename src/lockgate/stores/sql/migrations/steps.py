"""Repeatable steps of a revision.

MariaDB and MySQL commit each change of a table by itself. A process that is killed during an
upgrade leaves a revision half applied under the number of the revision before. The next upgrade
runs the revision again from its beginning, so each step first checks whether it was done.
"""

from collections.abc import Sequence
from typing import Any

from alembic import op
from sqlalchemy import Column, TextClause, column, inspect, table, update
from sqlalchemy.engine import Inspector

from lockgate.stores.sql.tables import OPTIONS


def name_of(table: str) -> str:
    """Return a table's name with the prefix of this upgrade."""
    return f"{op.get_context().opts['prefix']}{table}"


def create_table(name: str, *columns: Any) -> None:
    """Create a table; skip a table that has exactly these columns.

    Raises:
        DBAPIError: a table of another owner has this name.
    """
    names = {one.name for one in columns if isinstance(one, Column)}
    inspector = _inspector()
    if not inspector.has_table(name) or _columns(inspector, name) != names:
        op.create_table(name, *columns, **OPTIONS)


def drop_table(name: str) -> None:
    """Drop a table, if it exists."""
    if _inspector().has_table(name):
        op.drop_table(name)


def add_column(name: str, column: Column[Any]) -> None:
    """Add a column, unless the table has it."""
    if column.name not in _columns(_inspector(), name):
        op.add_column(name, column)


def drop_column(name: str, column: str) -> None:
    """Drop a column, if the table has it."""
    if column in _columns(_inspector(), name):
        op.drop_column(name, column)


def create_index(
    index: str, name: str, columns: Sequence[str | TextClause], **options: Any
) -> None:
    """Create an index, unless the table has it."""
    if index not in _indexes(_inspector(), name):
        op.create_index(op.f(index), name, columns, **options)


def drop_index(index: str, name: str) -> None:
    """Drop an index, if the table has it."""
    if index in _indexes(_inspector(), name):
        op.drop_index(op.f(index), name)


def declare_oldest_reader(revision: str) -> None:
    """Record the oldest revision whose release still works with the tables.

    A revision that contracts declares this before its first step, and its downgrade after its last
    one, so that a process of an older release never uses half-changed tables.
    """
    version = table(name_of("version"), column("oldest_reader"))
    op.execute(update(version).values(oldest_reader=revision))


def _inspector() -> Inspector:
    """Return a new inspector, without cached tables from before the last step."""
    return inspect(op.get_bind())


def _columns(inspector: Inspector, name: str) -> set[str]:
    return {found["name"] for found in inspector.get_columns(name)}


def _indexes(inspector: Inspector, name: str) -> set[str | None]:
    return {found["name"] for found in inspector.get_indexes(name)}
