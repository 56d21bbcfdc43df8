"""``lockgate db``: the tables of a store in SQL."""

import sys
from typing import TYPE_CHECKING

import click

from .store_urls import HELP as STORE_HELP
from .store_urls import store_url

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from ..stores.sql.tables import Tables


@click.command()
@click.argument("action", type=click.Choice(["upgrade", "current", "check"]))
@click.option("--store", metavar="URL", help=STORE_HELP)
@click.option(
    "--prefix", default="lockgate_", show_default=True, help="first part of the tables' names"
)
def db(action: str, store: str | None, prefix: str) -> int:
    """Bring the tables of a store in SQL up to date, show their revision, or check it.

    With check the exit code is 1 where the tables are not up to date.
    """
    return migrate(action, store_url(store), prefix)


def migrate(action: str, store: str, prefix: str) -> int:
    """Bring the tables up to date, say their revision, or check it: 1 says that it is another.

    Of two URLs with a blank between them, as a gate takes them, the first is the database's.

    Raises:
        ConfigurationError: the URL or the prefix cannot be one.
    """
    from sqlalchemy.exc import DBAPIError

    from ..stores.sql import schema
    from ..stores.sql.engines import blocking_engine
    from ..stores.sql.error_hints import advice
    from ..stores.sql.tables import Tables

    tables = Tables(prefix)
    database, _, cache = store.strip().partition(" ")
    engine = blocking_engine(database if "://" in cache else store)
    try:
        if action == "upgrade":
            schema.upgrade(engine, tables)
        found = _current(engine, tables)
    except DBAPIError as failure:
        # Its own words would repeat the address and, with some drivers, the user.
        what = advice(failure, engine.dialect) or type(failure.orig).__name__
        print(f"lockgate db: The database refuses: {what}.", file=sys.stderr)
        return 2
    except (schema.OutdatedSchema, TimeoutError) as problem:
        print(f"lockgate db: {problem}", file=sys.stderr)
        return 1
    finally:
        engine.dispose()
    print(found or "none")
    if action == "check" and found != schema.HEAD:
        print(f"lockgate db: {schema.OutdatedSchema(found, prefix)}", file=sys.stderr)
        return 1
    return 0


def _current(engine: "Engine", tables: "Tables") -> str | None:
    """The revision of the tables; to look makes no file where there is none."""
    from ..stores.sql import schema
    from ..stores.sql.engines import sqlite_file

    if engine.dialect.name == "sqlite" and not sqlite_file(engine.url).exists():
        print(
            "lockgate db: There is no such file yet: 'lockgate db upgrade' makes it.",
            file=sys.stderr,
        )
        return None
    with engine.connect() as connection:
        return schema.current(connection, tables)
