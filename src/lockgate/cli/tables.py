"""The actions of ``lockgate db`` on the tables of a SQL store."""

import sys

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from ..core.weak_secrets import refuse_malformed_url
from ..errors import ConfigurationError
from ..gate import Gate
from ..stores.base import KeyStore
from ..stores.combined import CombinedStore
from ..stores.sql import SqlStore, schema
from ..stores.sql.engines import blocking_engine, sqlite_file
from ..stores.sql.error_hints import advice
from ..stores.sql.tables import DEFAULT_PREFIX, Tables
from .output import print_json


def engine_of(store: str) -> Engine:
    """Return an engine for a store's URL; of two separated by a blank, the first is the database's.

    Raises:
        ConfigurationError: the URL is not valid.
    """
    refuse_malformed_url(store)
    database, _, cache = store.partition(" ")
    return blocking_engine(database if "://" in cache else store)


def of_gate(gate: Gate) -> tuple[Engine, str]:
    """Return an engine for the tables of a gate's store, and their prefix.

    Raises:
        ConfigurationError: the store is not in SQL.
    """
    store: KeyStore = gate.store.innermost
    if isinstance(store, CombinedStore):
        store = store.keys
    if not isinstance(store, SqlStore):
        raise ConfigurationError("The store of this gate is not in SQL, so it has no tables.")
    return store.command_engine(), store.prefix


def migrate(
    action: str, engine: Engine, prefix: str | None = None, *, as_json: bool = False
) -> int:
    """Upgrade the tables, print their revision, or check it; return the exit code.

    A check returns 1 if this version does not work with the tables, or if some are gone; it and an
    upgrade return 1 if their revision was changed by hand; every action returns 3 if the database
    refuses or does not answer.

    Raises:
        ConfigurationError: the prefix is not valid.
    """
    tables = Tables(DEFAULT_PREFIX if prefix is None else prefix)
    try:
        if action == "upgrade":
            schema.upgrade(engine, tables)
        found = _current(engine, tables)
        looks = as_json or action == "check"
        lost = _missing(engine, tables) if looks and found is not None else []
        wrong = _renumbered(engine, tables, found) if found is not None else None
    except DBAPIError as failure:
        # The driver's message would repeat the address and, with some drivers, the user.
        what = advice(failure, engine.dialect) or type(failure.orig).__name__
        print(f"lockgate db: The database refuses: {what}.", file=sys.stderr)
        return 3
    except TimeoutError as problem:
        print(f"lockgate db: {problem}", file=sys.stderr)
        return 3
    except schema.OutdatedSchema as problem:
        print(f"lockgate db: {problem}", file=sys.stderr)
        return 1
    finally:
        engine.dispose()
    works = schema.RELEASE.accepts(found) and wrong is None
    if as_json:
        revision = None if found is None else found.number
        print_json({"revision": revision, "works": works and not lost, "missing": lost})
    else:
        print(found.number if found else "none")
    if wrong is not None:
        print(f"lockgate db: {wrong}", file=sys.stderr)
        return 0 if action == "current" else 1
    if action == "check" and not works:
        print(f"lockgate db: {schema.OutdatedSchema(found, tables.prefix)}", file=sys.stderr)
        return 1
    if lost and action == "check":
        print(
            f"lockgate db: At revision {found.number if found else None} there must be "
            f"{', '.join(lost)}: they were dropped or renamed. Restore them from a backup.",
            file=sys.stderr,
        )
        return 1
    return 0


def _renumbered(engine: Engine, tables: Tables, found: schema.Revision) -> str | None:
    """Return the remedy for a revision that was changed by hand."""
    with engine.connect() as connection:
        return schema.renumbered(connection, tables, found)


def _missing(engine: Engine, tables: Tables) -> list[str]:
    """Return the tables and columns of this release's revision that were removed by hand."""
    with engine.connect() as connection:
        found = schema.current(connection, tables)
        if found is None or found.number != schema.RELEASE.newest:
            return []
        return schema.missing(connection, tables)


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
