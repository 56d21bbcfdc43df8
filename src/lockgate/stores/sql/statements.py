"""The statements of an admission: made by SQLAlchemy, spoken to the driver directly.

They are few and hot. SQLAlchemy takes several times as long to run one as the driver does, so it
only writes them, once for each number of rows: its texts go to a cursor of the connection that it
keeps. Nothing is lost, for these statements have no types to convert.
"""

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Dialect,
    Insert,
    Select,
    Table,
    Update,
    and_,
    bindparam,
    case,
    func,
    literal_column,
    or_,
    select,
    update,
)
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.elements import UnaryExpression
from sqlalchemy.sql.operators import custom_op

from .tables import Tables

Rows = Sequence[Any]
Written = Callable[[int], Select[*tuple[Any, ...]] | Update | Insert]
"""Writes a statement for so many rows."""


class Statement(NamedTuple):
    """A statement as its driver wants it."""

    text: str
    arguments: Callable[[Mapping[str, Any]], Any]
    """Values by their names, in the form that the driver takes."""


class Statements:
    """The statements, by how many rows they are for: powers of two, so that they are few.

    Args:
        tables: where.
        dialect: how the driver wants them written.
        clock: the server's clock in microseconds, read when the statement's rows are.
        insert_missing: an insert that passes over a row whose key is there already.
    """

    def __init__(
        self,
        tables: Tables,
        dialect: Dialect,
        clock: ColumnElement[Any],
        insert_missing: Callable[[Table], Insert],
    ) -> None:
        self._organizations = tables.organizations
        self._keys = tables.keys
        self._dialect = dialect
        self._clock = clock
        self._insert_missing = insert_missing
        self._written: dict[tuple[Written, int], Statement] = {}

    def written(self, statement: Written, places: int) -> Statement:
        """One of the statements below, for that many rows."""
        found = self._written.get((statement, places))
        if found is None:
            compiled = statement(places).compile(dialect=self._dialect)
            assert isinstance(compiled, SQLCompiler), "these are statements, and no DDL"
            found = Statement(str(compiled), _arguments(compiled.positiontup))
            self._written[statement, places] = found
        return found

    def select_now(self, _: int) -> Select[*tuple[Any, ...]]:
        """Read the clock."""
        return select(self._clock)

    def make(self, _: int) -> Insert:
        """Make the organization ``o0``, unless it is there."""
        made = self._insert_missing(self._organizations)
        return made.values(id=bindparam("o0"), idle_day=literal_column("0"))

    def lock(self, places: int) -> Select[*tuple[Any, ...]]:
        """Lock the organizations ``o0``, ``o1``... in the order of their ids, whoever asks: two
        transactions that want the same ones queue up and never embrace."""
        table = self._organizations
        return (
            select(*_owner(table))
            .where(_among(table.c.id, "o", places))
            .order_by(table.c.id)
            .with_for_update()
        )

    def find(self, places: int) -> Select[*tuple[Any, ...]]:
        """Read the keys ``h0``, ``h1``..., and the clock."""
        handle = self._keys.c.handle
        return select(self._keys, self._clock).where(_among(handle, "h", places))

    def both(self, places: int) -> Select[*tuple[Any, ...]]:
        """Read the keys ``h0``... of organizations, the clock, and these: for whoever has locked
        everything.

        By the plus SQLite goes by their handles. Else, for more than a few, it would go through all
        the keys that an organization ever had.
        """
        table, keys = self._organizations, self._keys
        plus = custom_op[Any]("+")
        owner: ColumnElement[Any] = UnaryExpression(keys.c.organization, operator=plus)
        theirs = and_(_among(keys.c.handle, "h", places), owner == table.c.id)
        return (
            select(keys, self._clock, *_owner(table))
            .outerjoin_from(table, keys, theirs)
            .where(_among(table.c.id, "o", places))
        )

    def lock_both(self, places: int) -> Select[*tuple[Any, ...]]:
        """Lock organizations, then lock and read their keys, then read the clock.

        What is locked is read as it is when the lock is had, whenever the statement began. The
        keys come after the last organization because they ask for the number of these.
        """
        owners = self.lock(places).cte("owners")
        count = select(func.count()).select_from(owners).scalar_subquery()
        wanted = _among(self._keys.c.handle, "h", places)
        held = (
            select(self._keys)
            .where(wanted, count >= literal_column("0"))
            .order_by(self._keys.c.handle)
            .with_for_update()
            .cte("held")
        )
        return select(held, self._clock, owners).outerjoin_from(
            owners, held, held.c.organization == owners.c.id
        )

    def keep(self, places: int) -> Update:
        """Write the windows ``s0``... of organizations, and the usage ``u0``... beside them."""
        table = self._organizations
        return (
            update(table)
            .where(_among(table.c.id, "o", places))
            .values(
                windows=_chosen(table.c.id, "o", "s", places, table.c.windows),
                used=_chosen(table.c.id, "o", "u", places, table.c.used),
            )
        )

    def date(self, places: int) -> Update:
        """Write the idle days ``d0``... of organizations, which their windows change once a day:
        SQLite writes an index whenever its column is named."""
        table = self._organizations
        return (
            update(table)
            .where(_among(table.c.id, "o", places))
            .values(idle_day=_chosen(table.c.id, "o", "d", places, table.c.idle_day))
        )

    def use(self, places: int) -> Update:
        """Add ``n0``... requests to keys, the last ones at ``a0``...: time never goes back."""
        table = self._keys
        last = table.c.last_used_at
        number = _chosen(table.c.handle, "h", "n", places, table.c.request_count)
        at = _chosen(table.c.handle, "h", "a", places, last)
        return (
            update(table)
            .where(_among(table.c.handle, "h", places))
            .values(
                request_count=table.c.request_count + number,
                last_used_at=case((or_(last.is_(None), last < at), at), else_=last),
            )
        )

    def keep_and_use(self, places: int) -> Update:
        """Write windows and usage at once."""
        return self.use(places).add_cte(self.keep(places).cte("kept"))


class Cursor:
    """Runs statements on the driver of a connection (PEP 249), by one cursor."""

    __slots__ = ("_cursor", "connection", "driver", "statements")

    def __init__(self, connection: Connection, statements: Statements) -> None:
        driver = connection.connection.dbapi_connection
        assert driver is not None, "the connection is open"
        self._cursor = driver.cursor()
        self.connection = connection
        self.driver = driver
        self.statements = statements

    def say(self, text: str) -> None:
        """Run what takes no values and gives no rows."""
        self._cursor.execute(text)

    def run(self, statement: Written, places: int, values: Mapping[str, Any]) -> None:
        """Run a statement for so many rows that gives none."""
        text, arguments = self.statements.written(statement, places)
        self._cursor.execute(text, arguments(values))

    def rows(self, statement: Written, places: int, values: Mapping[str, Any]) -> Rows:
        """Run a statement for so many rows, and give what it gives."""
        self.run(statement, places, values)
        return self._cursor.fetchall()


def _arguments(order: Sequence[str] | None) -> Callable[[Mapping[str, Any]], Any]:
    """How a driver takes values: by their names, or in an order."""
    if order is None:
        return dict
    if len(order) < 2:  # An itemgetter of one name gives no tuple.
        return lambda values: [values[name] for name in order]
    return itemgetter(*order)


def _owner(table: Table) -> list[Column[Any]]:
    """What is read of an organization."""
    names = ("id", "plan", "overrides", "windows", "used", "idle_day")
    return [table.c[name] for name in names]


def _among(column: Column[Any], letter: str, places: int) -> ColumnElement[bool]:
    """Whether a column is one of so many values; SQLite takes its time over a list of one."""
    if places == 1:
        return column == bindparam(f"{letter}0")
    return column.in_([bindparam(f"{letter}{place}") for place in range(places)])


def _chosen(
    column: Column[Any], key: str, value: str, places: int, like: Column[Any]
) -> ColumnElement[Any]:
    """The value that belongs to the row whose column is the key of the same number. There is one:
    by what would be instead PostgreSQL sees their type, and takes none but NULL for text."""
    values = [bindparam(f"{value}{place}", type_=like.type) for place in range(places)]
    if places == 1:
        return values[0]
    keys = [bindparam(f"{key}{place}", type_=column.type) for place in range(places)]
    pairs = zip(keys, values, strict=True)
    return case(*((column == wanted, chosen) for wanted, chosen in pairs), else_=like)


def places_for(count: int) -> int:
    """How many rows a statement for so many is written for."""
    return 1 << (count - 1).bit_length()


def filled(places: int, **columns: Sequence[Any]) -> dict[str, Any]:
    """Values by the names of their places; a column's last one fills those that are left."""
    return {
        f"{letter}{place}": values[min(place, len(values) - 1)]
        for letter, values in columns.items()
        for place in range(places)
    }
