"""``lockgate db``: the tables of a store in SQL."""

import sys

from sqlalchemy.exc import DBAPIError

from ..stores.sql import schema
from ..stores.sql.engines import blocking_engine
from ..stores.sql.tables import Tables


def db(action: str, store: str, prefix: str) -> int:
    """Bring the tables up to date, say their revision, or check it: 1 says that it is another.

    Raises:
        ConfigurationError: the URL or the prefix cannot be one.
    """
    tables = Tables(prefix)
    engine = blocking_engine(store)
    try:
        if action == "upgrade":
            schema.upgrade(engine, tables)
        with engine.connect() as connection:
            found = schema.current(connection, tables)
    except DBAPIError as failure:
        # Its own words would repeat the address and, with some drivers, the user.
        print(f"lockgate db: the database refused: {type(failure.orig).__name__}.", file=sys.stderr)
        return 2
    finally:
        engine.dispose()
    print(found or "none")
    if action == "check" and found != schema.HEAD:
        print(f"lockgate db: {schema.OutdatedSchema(found)}", file=sys.stderr)
        return 1
    return 0
