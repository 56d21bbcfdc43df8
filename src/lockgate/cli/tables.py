"""The actions of ``lockgate db`` on the tables of a SQL store."""

import sys

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from ..stores.sql import schema
from ..stores.sql.engines import blocking_engine, sqlite_file
from ..stores.sql.error_hints import advice
from ..stores.sql.tables import Tables


def migrate(action: str, store: str, prefix: str) -> int:
    """Upgrade the tables, print their revision, or check it; return the exit code.

    A check returns 1 if this version does not work with the tables. Of two URLs separated by a
    blank, as a gate takes them, the first is the database's.

    Raises:
        ConfigurationError: the URL or the prefix is not valid.
    """
    tables = Tables(prefix)
    database, _, cache = store.strip().partition(" ")
    engine = blocking_engine(database if "://" in cache else store)
    try:
        if action == "upgrade":
            schema.upgrade(engine, tables)
        found = _current(engine, tables)
    except DBAPIError as failure:
        # The driver's message would repeat the address and, with some drivers, the user.
        what = advice(failure, engine.dialect) or type(failure.orig).__name__
        print(f"lockgate db: The database refuses: {what}.", file=sys.stderr)
        return 2
    except (schema.OutdatedSchema, TimeoutError) as problem:
        print(f"lockgate db: {problem}", file=sys.stderr)
        return 1
    finally:
        engine.dispose()
    print(found.number if found else "none")
    if action == "check" and not schema.RELEASE.accepts(found):
        print(f"lockgate db: {schema.OutdatedSchema(found, prefix)}", file=sys.stderr)
        return 1
    return 0


def _current(engine: Engine, tables: Tables) -> schema.Revision | None:
    """Return the revision of the tables, without creating an SQLite file that is missing."""
    if engine.dialect.name == "sqlite" and not sqlite_file(engine.url).exists():
        print(
            "lockgate db: There is no such file yet: 'lockgate db upgrade' makes it.",
            file=sys.stderr,
        )
        return None
    with engine.connect() as connection:
        return schema.current(connection, tables)
