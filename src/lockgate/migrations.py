"""Migrations of the tables of a store in SQL, for release scripts and for the host's Alembic.

A release script calls :func:`upgrade`; ``lockgate db upgrade`` does the same from a shell. In the
``env.py`` of a host that keeps lockgate's tables in its own database::

    from lockgate.migrations import include_object

    context.configure(..., include_object=include_object)
"""

from collections.abc import Callable
from typing import Any, Final

from sqlalchemy import Connection, Engine

from .stores.sql.databases import database_of
from .stores.sql.engines import blocking_engine, own, refuse_translation
from .stores.sql.schema import migrate
from .stores.sql.tables import DEFAULT_PREFIX, Tables

__all__ = ["include_object", "include_object_for", "upgrade"]

IncludeObject = Callable[[Any, str | None, str, bool, Any], bool]


def upgrade(target: Engine | Connection | str, *, prefix: str = DEFAULT_PREFIX) -> None:
    """Migrate the tables to the newest revision of this release, keeping all data.

    Several processes and threads may call this at the same time: one migrates, the others wait. In
    an event loop, await one upgrade after the other. Call it again after a process was killed: it
    continues where that one stopped. Tables of a newer release that still serve this one are left
    unchanged. The host's Alembic cannot call this: let it be a step of its own, before or after
    ``alembic upgrade head``.

    Args:
        target: an engine, a URL, or a connection without an open transaction. Of an
            ``AsyncEngine``: ``await connection.run_sync(upgrade)``.
        prefix: the start of the tables' names.

    Raises:
        ConfigurationError: the URL or the prefix is not valid, the database is not supported, the
            target translates schemas, the connection has an open transaction, Alembic is running,
            or another upgrade has begun in this event loop.
        lockgate.stores.sql.OutdatedSchema: the tables no longer serve this release.
        TimeoutError: another process has been migrating the tables, or a long transaction using
            them, for a minute.
    """
    tables = Tables(prefix)
    if isinstance(target, Connection):
        refuse_translation(target)
        migrate(target, tables, database_of(target.dialect))
        return
    engine = blocking_engine(target) if isinstance(target, str) else own(target)
    try:
        with engine.connect() as connection:
            migrate(connection, tables, database_of(engine.dialect))
    finally:
        if isinstance(target, str):
            engine.dispose()


def include_object_for(prefix: str) -> IncludeObject:
    """Return the ``include_object`` of Alembic for tables with another prefix.

    It leaves out each table that starts with the prefix and that the host's metadata does not
    describe, so that autogenerate never drops it. Without a prefix it compares the tables' names.

    Args:
        prefix: as given to :class:`lockgate.stores.sql.SqlStore`.

    Raises:
        ConfigurationError: the prefix is not valid.
    """
    tables = Tables(prefix)
    names: Final = {tables.version, *tables.metadata.tables}

    def include_object(
        object: Any, name: str | None, type_: str, reflected: bool, compare_to: Any
    ) -> bool:
        """Return whether autogenerate compares this object."""
        if type_ != "table" or not reflected or compare_to is not None or name is None:
            return True
        return not (name.startswith(prefix) if prefix else name in names)

    return include_object


include_object: Final[IncludeObject] = include_object_for(DEFAULT_PREFIX)
"""The result of :func:`include_object_for` for the default prefix."""
