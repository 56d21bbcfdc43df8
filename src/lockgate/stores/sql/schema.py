"""The schema: which revision the tables have, and bringing them to another.

Alembic keeps the revisions, in a version table of our own: the host's history and ours never meet.
"""

import logging
from typing import Final

from sqlalchemy import Connection, Engine, inspect, text

from ..base import StoreError
from .databases import Database, database_of
from .tables import DEFAULT_PREFIX, Tables

HEAD: Final = "0009"
"""The revision that this version of lockgate works with."""

logger = logging.getLogger("lockgate")

_CREATED: Final = (
    "There were no tables of lockgate in %s: they have been created, and no key is known there "
    "yet. If keys are missing, see the path in the store's URL."
)


class OutdatedSchema(StoreError):
    """The tables are not those that this version of lockgate works with; says what to do."""

    def __init__(self, found: str | None, prefix: str = DEFAULT_PREFIX) -> None:
        where = "are missing" if found is None else f"are at revision {found}"
        theirs = "" if prefix == DEFAULT_PREFIX else f" --prefix {prefix or chr(39) * 2}"
        what = f"run 'lockgate db upgrade{theirs}' with the store's URL in LOCKGATE_STORE"
        if found is not None and found > HEAD:
            what = "install the version of lockgate that made them, or a later one"
        super().__init__(
            f"The tables of lockgate {where}, and this version works with {HEAD}: {what}."
        )


def current(connection: Connection, tables: Tables) -> str | None:
    """The revision of the tables; None: there are none."""
    if not inspect(connection).has_table(tables.version):
        return None
    found = connection.scalar(text(f"SELECT version_num FROM {tables.version}"))  # noqa: S608 - of a-z0-9_
    return None if found is None else str(found)


class Check:
    """Sees that the tables are those that this version works with, on a connection just opened.

    Args:
        tables: the tables.
        flavour: the kind of database.
        create: whether to create the tables where there are none.
    """

    def __init__(self, tables: Tables, database: Database, *, create: bool) -> None:
        self._tables = tables
        self._flavour = database
        self._create = create
        self._told = False

    def __call__(self, connection: Connection) -> None:
        """Check once; leaves no transaction open.

        Raises:
            OutdatedSchema: they are others, or there are none. It goes to the log as well, once:
                whoever calls the service is told no more than that it is unavailable.
        """
        found = current(connection, self._tables)
        connection.rollback()
        if found is None and self._create:
            migrate(connection, self._tables, self._flavour, "head")
            logger.warning(_CREATED, connection.engine.url.database)
        elif found != HEAD:
            problem = OutdatedSchema(found, self._tables.prefix)
            if not self._told:
                self._told = True
                logger.error("%s", problem)
            raise problem


def upgrade(engine: Engine, tables: Tables, revision: str = "head") -> None:
    """Bring the tables forward to a revision; several processes may try at once."""
    with engine.connect() as connection:
        migrate(connection, tables, database_of(engine.dialect), revision)


def downgrade(engine: Engine, tables: Tables, revision: str) -> None:
    """Bring the tables back to a revision, or to ``base``: none. What was added since is lost."""
    with engine.connect() as connection:
        migrate(connection, tables, database_of(engine.dialect), revision, back=True)


def migrate(
    connection: Connection, tables: Tables, database: Database, revision: str, *, back: bool = False
) -> None:
    """Bring the tables to a revision, on a connection that is in no transaction.

    Raises:
        OutdatedSchema: they are at a later one than this version knows.
    """
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "lockgate.stores.sql:migrations")
    config.set_main_option("path_separator", "os")
    config.attributes.update(connection=connection, tables=tables)
    database.prepare(connection)
    database.begin(connection)
    with database.alone(connection):
        found = current(connection, tables)
        if found is not None and found > HEAD:
            raise OutdatedSchema(found, tables.prefix)
        if back:
            command.downgrade(config, revision)
        else:
            command.upgrade(config, revision)
        connection.commit()
