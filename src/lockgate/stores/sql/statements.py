"""The statements of an admission: compiled by SQLAlchemy, executed by the driver directly.

Executing a statement with SQLAlchemy takes several times as long as with the driver. So SQLAlchemy
compiles each statement once per number of rows, and a cursor of its connection executes the text.
The values need no type conversion.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from operator import itemgetter
from typing import Any, NamedTuple

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Dialect,
    Executable,
    FromClause,
    Insert,
    Integer,
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
    true,
    update,
)
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.elements import UnaryExpression
from sqlalchemy.sql.operators import custom_op

from .tables import Tables

Rows = Sequence[Any]
Written = Callable[[int], Select[*tuple[Any, ...]] | Update | Insert]
"""Builds a statement for a number of rows."""


class Statement(NamedTuple):
    """A compiled statement."""

    text: str
    arguments: Callable[[Mapping[str, Any]], Any]
    """Converts values by name to the form that the driver expects."""


class Query(NamedTuple):
    """A statement, and its values by names that no column has."""

    statement: Any
    """Built once: it is compiled once."""
    values: Mapping[str, Any]


class Statements:
    """The compiled statements by number of rows, which are powers of two to keep them few.

    Args:
        tables: the tables.
        dialect: the dialect to compile for.
        clock: the server's clock in microseconds, read together with the rows.
        insert_missing: builds an insert that skips rows with an existing primary key.
        upsert: builds an insert that updates some columns where the primary key exists.
    """

    def __init__(
        self,
        tables: Tables,
        dialect: Dialect,
        clock: ColumnElement[Any],
        insert_missing: Callable[[Table], Insert],
        upsert: Callable[[Table, Sequence[Mapping[str, Any]], Sequence[str]], Insert],
    ) -> None:
        self._tables = tables
        self._organizations = tables.organizations
        self._keys = tables.keys
        self._dialect = dialect
        self._clock = clock
        self._insert_missing = insert_missing
        self._limits = tables.limits
        self._upsert = upsert
        self._written: dict[tuple[Written, int], Statement] = {}
        self._compiled: dict[Executable, Statement] = {}

    def written(self, statement: Written, places: int) -> Statement:
        """Return one of the statements below, compiled for a number of rows."""
        key = statement, places
        found = self._written.get(key)
        if found is None:
            found = self._written[key] = self._compile(statement(places))
        return found

    def compiled(self, statement: Executable) -> Statement:
        """Return a statement that is built once, compiled."""
        found = self._compiled.get(statement)
        if found is None:
            found = self._compiled[statement] = self._compile(statement)
        return found

    def _compile(self, statement: Any) -> Statement:
        compiled = statement.compile(dialect=self._dialect)
        assert isinstance(compiled, SQLCompiler), "no statement here is DDL"
        arguments = _arguments(compiled.positiontup)
        if self._dialect.name == "sqlite":
            arguments = _without_adapters(arguments)
        constants = {name: value for name, value in compiled.params.items() if value is not None}
        if constants:
            arguments = _with_constants(arguments, constants)
        return Statement(str(compiled), arguments)

    def select_now(self, _: int) -> Select[*tuple[Any, ...]]:
        """Select the clock."""
        return select(self._clock)

    def announce(self, _: int) -> Select[*tuple[Any, ...]]:
        """Take the shared advisory lock ``n0`` of PostgreSQL, until the end of the transaction."""
        number = bindparam("n0", type_=BigInteger())
        return select(func.pg_advisory_xact_lock_shared(number))

    def make(self, _: int) -> Insert:
        """Insert the organization ``o0``, unless it exists."""
        made = self._insert_missing(self._organizations)
        return made.values(id=bindparam("o0"), idle_day=literal_column("0"))

    def lock(self, places: int) -> Select[*tuple[Any, ...]]:
        """Lock organizations ``o0``, ``o1``... in the order of their ids, to avoid deadlocks."""
        table = self._organizations
        return (
            select(*_owner(table))
            .where(_among(table.c.id, "o", places))
            .order_by(table.c.id)
            .with_for_update()
        )

    def find(self, places: int) -> Select[*tuple[Any, ...]]:
        """Select the keys ``h0``, ``h1``..., and the clock."""
        handle = self._keys.c.handle
        columns = self._tables.key_columns()
        return select(*columns, self._clock).where(_among(handle, "h", places))

    def find_and_limits(self, limits: int) -> Select[*tuple[Any, ...]]:
        """Select one key ``h0``, the clock and the limits ``i0``... as ``both_and_limits``; the row
        has the clock and the limits also without a key."""
        keys, one = self._keys, select(literal_column("1", Integer()).label("one")).subquery("one")
        beside = self._limit_aliases(limits)
        columns = *self._tables.key_columns(), self._clock, *_counts(beside)
        statement = select(*columns).outerjoin_from(one, keys, keys.c.handle == bindparam("h0"))
        return _with_limits(statement, beside)

    def both(self, places: int) -> Select[*tuple[Any, ...]]:
        """Select the keys ``h0``..., the clock and the organizations, under a lock of the database.

        The unary plus makes SQLite search by handle. Otherwise, for more than a few handles, it
        would scan all keys of each organization.
        """
        return self._both(places, 0)

    def both_and_limits(self, limits: int) -> Select[*tuple[Any, ...]]:
        """Select one key ``h0`` and one organization ``o0`` as ``both``, and the limits ``i0``...

        The cells and the idle day of each limit follow the clock; NULL: it has no row. A join for
        each takes SQLite half the time of a list of ids.
        """
        return self._both(1, limits)

    def _both(self, places: int, limits: int) -> Select[*tuple[Any, ...]]:
        table, keys = self._organizations, self._keys
        plus = custom_op[Any]("+")
        owner: ColumnElement[Any] = UnaryExpression(keys.c.organization, operator=plus)
        theirs = and_(_among(keys.c.handle, "h", places), owner == table.c.id)
        beside = self._limit_aliases(limits)
        statement = select(
            *self._tables.key_columns(), self._clock, *_counts(beside), *_owner(table)
        ).outerjoin_from(table, keys, theirs)
        return _with_limits(statement, beside).where(_among(table.c.id, "o", places))

    def _limit_aliases(self, limits: int) -> list[FromClause]:
        return [self._limits.alias(f"limit{place}") for place in range(limits)]

    def lock_both(self, places: int) -> Select[*tuple[Any, ...]]:
        """Lock organizations, then lock and select their keys, then select the clock.

        A locked row is read in its state after the wait, even if the statement began before. The
        subquery of the keys counts the organizations, so it runs after all of them are locked.
        """
        return self._lock_both(places, 0)

    def lock_both_and_limits(self, limits: int) -> Select[*tuple[Any, ...]]:
        """Lock one organization ``o0`` and one key ``h0`` as ``lock_both``, and the limits
        ``i0``...

        They are selected as by ``both_and_limits``, and locked for the same reason as keys. A row
        that another transaction inserted during the wait is not found.
        """
        return self._lock_both(1, limits)

    def _lock_both(self, places: int, limits: int) -> Select[*tuple[Any, ...]]:
        owners = self.lock(places).cte("owners")
        count = select(func.count()).select_from(owners).scalar_subquery()
        after = count >= literal_column("0")
        held = (
            select(*self._tables.key_columns())
            .where(_among(self._keys.c.handle, "h", places), after)
            .order_by(self._keys.c.handle)
            .with_for_update()
            .cte("held")
        )
        columns = self._limits.c
        beside = [
            select(columns.cells, columns.idle_day)
            .where(columns.id == bindparam(f"i{place}"), after)
            .with_for_update()
            .cte(f"limit{place}")
            for place in range(limits)
        ]
        statement = select(held, self._clock, *_counts(beside), owners).outerjoin_from(
            owners, held, held.c.organization == owners.c.id
        )
        for limit in beside:
            statement = statement.outerjoin(limit, true())
        return statement

    def keep(self, places: int) -> Update:
        """Update the windows ``s0``... and the usage ``u0``... of organizations."""
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
        """Update the idle days ``d0``... of organizations, needed once a day.

        A separate statement, because SQLite writes an index whenever its column is named.
        """
        table = self._organizations
        return (
            update(table)
            .where(_among(table.c.id, "o", places))
            .values(idle_day=_chosen(table.c.id, "o", "d", places, table.c.idle_day))
        )

    def use(self, places: int) -> Update:
        """Add ``n0``... requests to keys; raise the instants of their last use to ``a0``..."""
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

    def look(self, beside: Iterable[ColumnElement[Any]]) -> Select[*tuple[Any, ...]]:
        """Select the clock, columns beside it, and the organization ``o0``, without a lock."""
        table = self._organizations
        return select(self._clock, *beside, *_owner(table)).where(table.c.id == bindparam("o0"))

    def limits_of(self, places: int) -> Select[*tuple[Any, ...]]:
        """Select named limits and budgets by their ids."""
        table = self._limits
        columns = table.c.id, table.c.cells, table.c.idle_day
        return select(*columns).where(_among(table.c.id, "i", places))

    def count_limits(self, _: int) -> Select[*tuple[Any, ...]]:
        """Count the fields of the organization ``o0``, but that of its slots, ``i0``."""
        mine = self._limits.c.organization == bindparam("o0")
        others = self._limits.c.id != bindparam("i0")
        return select(func.count()).select_from(self._limits).where(mine, others)

    def keep_limits(self, places: int) -> Insert:
        """Insert named limits of organizations, or update their cells; no two have the same id.

        The days from which they are empty are inserted and not updated.
        """
        return self._put_limits(places, ["cells"])

    def keep_and_date_limits(self, places: int) -> Insert:
        """Do the work of ``keep_limits``, and update the days, needed once a day."""
        return self._put_limits(places, ["cells", "idle_day"])

    def _put_limits(self, places: int, updated: Sequence[str]) -> Insert:
        names = {"id": "i", "organization": "o", "cells": "c", "idle_day": "d"}
        columns = self._limits.c
        return self._upsert(
            self._limits,
            [
                {
                    name: bindparam(f"{letter}{place}", type_=columns[name].type)
                    for name, letter in names.items()
                }
                for place in range(places)
            ],
            updated,
        )

    def keep_one(self, _: int) -> Update:
        """Update the windows ``s0`` and the usage ``u0`` of one organization."""
        return self.keep(1)

    def keep_one_and_limits(self, places: int) -> Insert:
        """Combine ``keep_one`` and ``keep_limits`` in one statement."""
        return self.keep_limits(places).add_cte(self.keep(1).cte("kept"))

    def keep_one_and_date_limits(self, places: int) -> Insert:
        """Combine ``keep_one`` and ``keep_and_date_limits`` in one statement."""
        return self.keep_and_date_limits(places).add_cte(self.keep(1).cte("kept"))

    def keep_and_use(self, places: int) -> Update:
        """Combine ``keep`` and ``use`` in one statement."""
        return self.use(places).add_cte(self.keep(places).cte("kept"))


class Cursor:
    """Executes statements on a driver's cursor (PEP 249)."""

    __slots__ = ("_cursor", "connection", "driver", "statements")

    def __init__(self, connection: Connection, statements: Statements) -> None:
        driver = connection.connection.dbapi_connection
        assert driver is not None, "the connection is open"
        self._cursor = driver.cursor()
        self.connection = connection
        self.driver = driver
        self.statements = statements

    def execute(self, text: str) -> None:
        """Execute text without values that returns no rows."""
        self._cursor.execute(text)

    def run(self, statement: Written, places: int, values: Mapping[str, Any]) -> None:
        """Execute a statement for a number of rows that returns none."""
        text, arguments = self.statements.written(statement, places)
        self._cursor.execute(text, arguments(values))

    def rows(self, statement: Written, places: int, values: Mapping[str, Any]) -> Rows:
        """Execute a statement for a number of rows, and return its result."""
        text, arguments = self.statements.written(statement, places)
        self._cursor.execute(text, arguments(values))
        return self._cursor.fetchall()

    def ask(self, *queries: Query) -> list[Rows]:
        """Execute queries, and return the result of each."""
        return [self._execute(query).fetchall() for query in queries]

    def write(self, query: Query) -> None:
        """Execute a statement that returns no rows."""
        self._execute(query)

    def _execute(self, query: Query) -> Any:
        text, arguments = self.statements.compiled(query.statement)
        self._cursor.execute(text, arguments(query.values))
        return self._cursor

    def commit(self) -> Exception | None:
        """Commit; return the failure of a write that was sent with the commit and undid the
        transaction."""
        self.driver.commit()
        return None

    def rollback(self) -> None:
        """Undo the transaction."""
        self.driver.rollback()


@cache
def limit_names(place: int) -> tuple[str, str, str, str]:
    """Return the names of the values of a limit: id, organization, cells and idle day."""
    return f"i{place}", f"o{place}", f"c{place}", f"d{place}"


def _arguments(order: Sequence[str] | None) -> Callable[[Mapping[str, Any]], Any]:
    """Return the function that arranges values for the driver: by name, or in an order."""
    if order is None:
        return dict
    if len(order) < 2:  # An itemgetter of one name does not return a tuple.
        return lambda values: [values[name] for name in order]
    return itemgetter(*order)


def _without_adapters(
    arguments: Callable[[Mapping[str, Any]], Any],
) -> Callable[[Mapping[str, Any]], Any]:
    """Return the same arrangement with bytearrays in place of bytes, for SQLite.

    The module ``sqlite3`` looks for an adapter of each value of type bytes, which takes 0.35 us,
    and of no bytearray.
    """

    def arranged(values: Mapping[str, Any]) -> Any:
        return [bytearray(one) if type(one) is bytes else one for one in arguments(values)]

    return arranged


def _with_constants(
    arguments: Callable[[Mapping[str, Any]], Any], constants: Mapping[str, Any]
) -> Callable[[Mapping[str, Any]], Any]:
    """Return the same arrangement of values and of what the statement itself compares with."""
    return lambda values: arguments({**constants, **values})


def _owner(table: Table) -> list[Column[Any]]:
    """Return the columns that an admission reads of an organization."""
    names = ("id", "plan", "overrides", "windows", "used", "idle_day")
    return [table.c[name] for name in names]


def _counts(limits: Iterable[FromClause]) -> list[ColumnElement[Any]]:
    """Return the columns that an admission reads of limits."""
    return [column for limit in limits for column in (limit.c.cells, limit.c.idle_day)]


def _with_limits(
    statement: Select[*tuple[Any, ...]], limits: Sequence[FromClause]
) -> Select[*tuple[Any, ...]]:
    """Join the limits ``i0``..., which may have no row."""
    for place, limit in enumerate(limits):
        statement = statement.outerjoin(limit, limit.c.id == bindparam(f"i{place}"))
    return statement


def _among(column: Column[Any], letter: str, places: int) -> ColumnElement[bool]:
    """Compare a column with one or more values; SQLite is slow with a list of one."""
    if places == 1:
        return column == bindparam(f"{letter}0")
    return column.in_([bindparam(f"{letter}{place}") for place in range(places)])


def _chosen(
    column: Column[Any], key: str, value: str, places: int, like: Column[Any]
) -> ColumnElement[Any]:
    """Select, by the key of a row, the value with the same number.

    The ELSE never applies. It gives PostgreSQL the type of values that are all NULL, which it would
    otherwise take for text.
    """
    values = [bindparam(f"{value}{place}", type_=like.type) for place in range(places)]
    if places == 1:
        return values[0]
    keys = [bindparam(f"{key}{place}", type_=column.type) for place in range(places)]
    pairs = zip(keys, values, strict=True)
    return case(*((column == wanted, chosen) for wanted, chosen in pairs), else_=like)


def places_for(count: int) -> int:
    """Return the number of rows of the smallest statement for ``count`` rows."""
    return 1 << (count - 1).bit_length()


def filled(places: int, **columns: Sequence[Any]) -> dict[str, Any]:
    """Return values by place name; a column's last value fills the remaining places."""
    return {
        f"{letter}{place}": values[min(place, len(values) - 1)]
        for letter, values in columns.items()
        for place in range(places)
    }
