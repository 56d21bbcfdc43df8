"""The schema: which revision the tables have, which ones a release works with, and migrating.

A release works with a range of revisions, so that processes of two releases share one database
during a rolling upgrade and after a rollback. Revisions expand first and contract a release later;
each declares the oldest revision whose release still works with its tables (see
``docs/design/archive/0021-support-a-range-of-schema-revisions.md``).

Alembic applies the revisions. It records them in lockgate's version table, separate from the
application's.
"""

import logging
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from threading import get_ident
from time import monotonic, sleep
from typing import Final, NamedTuple

from sqlalchemy import Connection, Engine, column, inspect, select, table
from sqlalchemy.exc import DBAPIError

from ...errors import ConfigurationError
from ..answers import CREATED, StoreError
from ..runtime.process_hooks import own_lock
from .databases import LOCKED, SCHEMA_PATIENCE, Database, database_of
from .tables import DEFAULT_PREFIX, Tables

SCRIPTS: Final = "lockgate.stores.sql:migrations"
"""The folder of Alembic's scripts, as Alembic writes one of a package."""
NEWEST: Final = "head"
"""Alembic's name of the newest revision."""
_LOCK_PAUSE: Final = 0.1
"""Seconds in which the requests that waited behind a migration continue."""

logger: Final = logging.getLogger("lockgate")


class Revision(NamedTuple):
    """A row of the version table."""

    number: str
    """Four digits."""
    oldest_reader: str
    """The oldest revision whose release works with these tables."""


class RevisionRange(NamedTuple):
    """The revisions that a release works with."""

    oldest: str
    newest: str

    def accepts(self, found: Revision | None) -> bool:
        """Return whether this release works with the tables.

        A newer revision is accepted if it declares that releases of ``newest`` can read it.
        """
        return found is not None and self.oldest <= found.number and self.readable(found)

    def readable(self, found: Revision) -> bool:
        """Return whether the tables declare that this release is new enough for them."""
        return found.oldest_reader <= self.newest


RELEASE: Final = RevisionRange(oldest="0001", newest="0001")
"""The revisions that this release works with; migrations go to the newest."""


class OutdatedSchema(StoreError):
    """This release does not support the tables; the message is the remedy."""

    def __init__(self, found: Revision | None, prefix: str = DEFAULT_PREFIX) -> None:
        option = "" if prefix == DEFAULT_PREFIX else f" --prefix {prefix or chr(39) * 2}"
        remedy = f"run 'lockgate db upgrade{option}' with the store's URL in LOCKGATE_STORE"
        if found is None:
            problem = "are missing"
        else:
            problem = f"are at revision {found.number}"
            if not RELEASE.readable(found):
                problem += f", for releases of revision {found.oldest_reader} and later"
                remedy = "install the version of lockgate that made them, or a later one"
        super().__init__(
            f"The tables of lockgate {problem}, and this version works with {RELEASE.oldest} to "
            f"{RELEASE.newest}: {remedy}."
        )


class MissingFile(OutdatedSchema):
    """There is no file of SQLite at the path in the store's URL, so there are no tables."""

    def __init__(self, file: Path) -> None:
        StoreError.__init__(
            self,
            f"There is no SQLite file {file.absolute()}: check the path in the store's URL. For a "
            "new one run 'lockgate db upgrade' with the URL in LOCKGATE_STORE, or add '?mode=rwc' "
            "to the URL.",
        )


def current(connection: Connection, tables: Tables) -> Revision | None:
    """Return the revision of the tables, or None without tables."""
    inspector = inspect(connection)
    if not inspector.has_table(tables.version):
        return None
    names = {column["name"] for column in inspector.get_columns(tables.version)}
    # Otherwise the first upgrade has begun, or was killed.
    return _select(connection, tables) if "oldest_reader" in names else None


def missing(connection: Connection, tables: Tables) -> list[str]:
    """Return the tables, and the columns as ``table.column``, that the newest revision has and that
    are not there: they were dropped or renamed by hand."""
    inspector = inspect(connection)
    names: list[str] = []
    for wanted in tables.metadata.sorted_tables:
        if not inspector.has_table(wanted.name):
            names.append(wanted.name)
            continue
        there = {column["name"] for column in inspector.get_columns(wanted.name)}
        columns = [column.name for column in wanted.columns]
        names += [f"{wanted.name}.{name}" for name in columns if name not in there]
    return names


def renumbered(connection: Connection, tables: Tables, found: Revision) -> str | None:
    """Return why a revision that this release does not know is no later release's, with the remedy;
    None: it may be.

    A later release has added a table, a column or an index. If there are none, the number was
    changed by hand, and upgrades would take these tables for newer ones and leave them unchanged.
    """
    if found.number <= RELEASE.newest or not RELEASE.readable(found):
        return None
    if lost := missing(connection, tables):
        lacks = f"lack {', '.join(lost)}"
    elif _has_more(connection, tables):
        return None
    else:
        lacks = f"have nothing that those of revision {RELEASE.newest} lack"
    return (
        f"The tables of lockgate say revision {found.number}, which this release does not know, "
        f"and {lacks}: the number was changed by hand, and upgrades would leave them unchanged. "
        f"Set {tables.version}.version_num to the revision that they had (of this release: "
        f"'{RELEASE.newest}'), then run 'lockgate db upgrade'."
    )


def _has_more(connection: Connection, tables: Tables) -> bool:
    """Return whether there is a table, a column or an index that this release does not know."""
    inspector = inspect(connection)
    known = {tables.version, *tables.metadata.tables}
    if any(name.startswith(tables.prefix) for name in {*inspector.get_table_names()} - known):
        return True
    for known_table in tables.metadata.sorted_tables:
        columns = {column["name"] for column in inspector.get_columns(known_table.name)}
        # Constraints are unique indexes on most databases.
        plain = [
            index["name"]
            for index in inspector.get_indexes(known_table.name)
            if not index["unique"]
        ]
        if columns - set(known_table.columns.keys()) or {*plain} - {
            index.name for index in known_table.indexes
        }:
            return True
    return False


def _select(connection: Connection, tables: Tables) -> Revision | None:
    version = table(tables.version, column("version_num"), column("oldest_reader"))
    row = connection.execute(select(version)).first()
    return None if row is None else Revision(*row)


class Check:
    """Checks on a new connection that this release supports the tables.

    Args:
        tables: the tables.
        database: the kind of database.
        create: whether to create missing tables.
    """

    def __init__(self, tables: Tables, database: Database, *, create: bool) -> None:
        self._tables = tables
        self._database = database
        self._create = create
        self._lock = own_lock()
        self._logged: set[Revision | None] = set()

    def __call__(self, connection: Connection) -> None:
        """Check the revision, and leave no transaction open.

        Raises:
            OutdatedSchema: it is out of range, or there are no tables. The log has one ERROR line
                for each revision found, since responses say no more than "unavailable".
        """
        found = self._read(connection)
        self._tables.is_newer = found is not None and found.number > RELEASE.newest
        if found is None and self._create:
            migrate(connection, self._tables, self._database)
            logger.warning(CREATED, connection.engine.url.database)
        elif not RELEASE.accepts(found):
            problem = OutdatedSchema(found, self._tables.prefix)
            with self._lock:
                is_new = found not in self._logged
                self._logged.add(found)
            if is_new:
                logger.error("%s", problem)
            raise problem

    def _read(self, connection: Connection) -> Revision | None:
        """Read the revision in one statement; query the catalogue only if that fails."""
        try:
            with connection.begin():
                return _select(connection, self._tables)
        except DBAPIError as failure:
            if failure.connection_invalidated:
                raise
        with connection.begin():
            return current(connection, self._tables)


def upgrade(engine: Engine, tables: Tables, revision: str = NEWEST) -> None:
    """Migrate the tables forward to a revision. Several processes may do so at the same time."""
    with engine.connect() as connection:
        migrate(connection, tables, database_of(engine.dialect), revision)


def downgrade(engine: Engine, tables: Tables, revision: str) -> None:
    """Migrate the tables back to a revision, or to ``base``: no tables. Newer data is lost."""
    with engine.connect() as connection:
        migrate(connection, tables, database_of(engine.dialect), revision, back=True)


def migrate(
    connection: Connection,
    tables: Tables,
    database: Database,
    revision: str = NEWEST,
    *,
    back: bool = False,
) -> None:
    """Migrate the tables to a revision, on a connection without an open transaction.

    Tables of a newer release that this release can read are left unchanged. Requests continue:
    where a change of a table does not get its lock soon, the requests behind it are let through,
    and the revision is tried again.

    Raises:
        ConfigurationError: the host's Alembic is running, the connection has an open transaction,
            or another migration has begun in the same event loop.
        OutdatedSchema: this release does not support the tables.
        TimeoutError: another process has been migrating them, or a long transaction using them,
            for a minute.
    """
    _refuse_inside_alembic()
    if connection.in_transaction():
        raise ConfigurationError(
            "The connection has an open transaction: commit it before the upgrade, "
            "or give the engine."
        )
    database.prepare(connection)
    deadline = monotonic() + SCHEMA_PATIENCE
    while True:
        try:
            return _migrate(connection, tables, database, revision, back=back)
        except DBAPIError as failure:
            if not (database.passing(failure) or database.lock_timed_out(failure)):
                raise
            connection.rollback()
            if monotonic() >= deadline:
                raise TimeoutError(LOCKED) from failure
        sleep(_LOCK_PAUSE)


def _refuse_inside_alembic() -> None:
    """Refuse to migrate inside an ``env.py`` or a revision of the host.

    Alembic has one migration in its global names, which a second one takes away from the first. The
    host's transaction would also keep the locks on lockgate's tables until its last revision.
    """
    from alembic import context

    config = getattr(context, "config", None)  # Alembic's, for the time that it runs an ``env.py``.
    if config is not None and config.get_main_option("script_location") != SCRIPTS:
        raise ConfigurationError(
            "Alembic is running, and a revision cannot upgrade the tables of lockgate: run "
            "'lockgate db upgrade' as a step of its own, before or after 'alembic upgrade head'."
        )


def _migrate(
    connection: Connection, tables: Tables, database: Database, revision: str, *, back: bool
) -> None:
    """Migrate the tables, and fail where a change of a table does not get its lock."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", SCRIPTS)
    config.set_main_option("path_separator", "os")
    config.attributes.update(connection=connection, tables=tables)
    database.begin(connection)
    with database.alone(connection):
        found = current(connection, tables)
        if found is not None and found.number > RELEASE.newest:
            if back or not RELEASE.readable(found):
                raise OutdatedSchema(found, tables.prefix)
        else:
            change = command.downgrade if back else command.upgrade
            with _alembic_alone():
                change(config, revision)
        connection.commit()


_alembic: Final = own_lock()
"""Alembic keeps the present connection and tables in global names: held while it runs."""
_alembic_thread: int | None = None


@contextmanager
def _alembic_alone() -> Generator[None]:
    """Wait until no other thread migrates tables, of whichever database.

    Raises:
        ConfigurationError: another migration has begun in this thread's event loop, which would
            not continue while this one waits.
        TimeoutError: another thread has been migrating for a minute.
    """
    global _alembic_thread  # noqa: PLW0603 - only the holder of the lock writes it
    if _alembic_thread == get_ident():
        raise ConfigurationError(
            "Another upgrade has begun in this event loop: await one after the other."
        )
    if not _alembic.acquire(timeout=SCHEMA_PATIENCE):
        raise TimeoutError(LOCKED)
    _alembic_thread = get_ident()
    try:
        yield
    finally:
        _alembic_thread = None
        _alembic.release()
