"""Engines: the host's own, or opened from a URL in the I/O mode that the caller needs."""

import logging
import os
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

from sqlalchemy import URL, Connection, Dialect, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from ...core.weak_secrets import refuse_malformed_url
from ...errors import ConfigurationError
from ..runtime.process_hooks import own_lock
from .databases import database_of
from .opened_file import OpenedFile
from .schema import MissingFile
from .sessions import UNPREPARED, Sessions
from .url_options import Driver, checked, for_blocking, for_driver

logger: Final = logging.getLogger("lockgate")
_creating: Final = own_lock()

_SECONDS: Final = 5
"""Seconds to wait for a connection, for the pool, and for a lock."""
_STEP: Final = 0.04
"""Seconds of one uninterruptible wait for SQLite's lock, which is repeated."""
_SETTINGS: Final = {
    "lock_timeout": f"{_SECONDS}s",
    "idle_in_transaction_session_timeout": "10s",
}
"""Settings of a session of PostgreSQL. The second one rolls back the transaction of a silent
process."""

_DRIVERS: Final = {
    "sqlite": "pysqlite",
    "postgresql": "psycopg",
    "mysql": "pymysql",
    "mariadb": "pymysql",
}


class Engines(NamedTuple):
    """The engines by which a store reaches its database."""

    dialect: Dialect
    blocking: Engine | None
    """For callers that block, and for the worker threads of event loops."""
    awaiting: Callable[[], AsyncEngine] | None
    """Opens an asynchronous engine; each event loop has its own."""
    ours: bool
    """Whether lockgate opened the engines, and closes them."""
    patience: float
    """Seconds to repeat the wait for a locked file; 0: the driver's own wait suffices."""
    creates: bool = False
    """Whether a URL of SQLite asks for a missing file and its tables, by ``mode=rwc``."""
    file: OpenedFile | None = None
    """The file of SQLite."""
    sessions: Sessions = Sessions({})
    """The sessions of lockgate's own engines."""

    def for_command(self) -> Engine:
        """Return an engine that blocks; one that lockgate opens creates a missing SQLite file."""
        if self.blocking is not None and not self.ours:
            return self.blocking
        known = self.blocking or (self.awaiting and self.awaiting())
        assert known, "there is one of both"
        return blocking_engine(known.url.render_as_string(hide_password=False))

    def __repr__(self) -> str:
        """Name the driver without the URL: SQLAlchemy shows passwords after its ``?``."""
        return f"<Engines {self.dialect.name}+{self.dialect.driver}>"


def engines_of(source: Engine | AsyncEngine | str) -> Engines:
    """Return the engines of a store, from the host's engine or from a URL.

    Raises:
        ConfigurationError: an invalid URL, an unsupported database, a driver that is not installed,
            an AsyncEngine of SQLite, or an engine that translates schemas. The message never
            repeats the URL.
    """
    if isinstance(source, str):
        return _opened(_read(source))
    if isinstance(source, AsyncEngine):
        if source.dialect.name == "sqlite":
            raise ConfigurationError(
                "SQLite has no AsyncEngine here: give the store its URL or an Engine, "
                "which serve event loops as well."
            )
        engine = AsyncEngine(own(source.sync_engine))
        return Engines(source.dialect, None, lambda: engine, ours=False, patience=0)
    file = OpenedFile(sqlite_file(source.url)) if source.dialect.name == "sqlite" else None
    return Engines(source.dialect, own(source), None, ours=False, patience=0, file=file)


def blocking_engine(url: str) -> Engine:
    """Open a blocking engine for a command, even if the URL names an asynchronous driver."""
    read = _read(url)
    read = for_blocking(read, f"{_base(read)}+{_DRIVERS[_base(read)]}")
    read, _ = _mode_of(read)
    driver = for_driver(read)
    loaded, options = _loaded(driver)
    engine = _blocking(driver.url, options, creates=True)
    _sessions(driver, loaded).attend(engine)
    return engine


def sqlite_file(url: URL) -> Path:
    """Return the file that a URL of SQLite names."""
    name = url.database or ""
    is_uri = name.startswith("file:") and "uri" in url.query
    return Path(unquote(urlsplit(name).path) if is_uri else name)


def refuse_translation(target: Engine | Connection) -> None:
    """Refuse an engine or a connection that sends lockgate's tables to another schema.

    SQLAlchemy translates schemas in its own statements only: those of admissions, which go to the
    driver, would use the tables of another tenant.

    Raises:
        ConfigurationError: its ``schema_translate_map`` has a schema for tables without one.
    """
    schema = target.get_execution_options().get("schema_translate_map", {}).get(None)
    if schema is not None:
        raise ConfigurationError(
            f"The engine translates schemas, by schema_translate_map={{None: {schema!r}}}, which "
            "lockgate's statements do not follow: give an engine without this option, whose "
            "connections find the tables (in PostgreSQL by their search_path, in MariaDB and MySQL "
            "by their database), or a table prefix for each tenant."
        )


def own(engine: Engine) -> Engine:
    """Return the host's engine with lockgate's options: errors hide parameters (K2), and no answer
    is read through a cursor of the server, which takes queries only.

    Raises:
        ConfigurationError: the engine translates schemas.
    """
    refuse_translation(engine)
    isolation = database_of(engine.dialect).isolation
    options = {} if isolation is None else {"isolation_level": isolation}
    own = engine.execution_options(**options, stream_results=False, yield_per=None)
    own.hide_parameters = True
    return own


def _read(text: str) -> URL:
    refuse_malformed_url(text)
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise ConfigurationError(
            "The store's URL cannot be read: use 'sqlite:///file.db' or "
            "'postgresql://user:password@host/database', with special characters %-encoded."
        ) from None
    base, _, driver = url.drivername.partition("+")
    base = {"postgres": "postgresql"}.get(base, base)
    if base not in _DRIVERS:
        known = ", ".join(f"{name}://" for name in _DRIVERS)
        raise ConfigurationError(f"No SQL store is known for {base + '://'!r}: use {known}.")
    if base == "sqlite" and (
        url.database in {None, "", ":memory:"} or url.query.get("mode") == "memory"
    ):
        raise ConfigurationError(
            "SQLite in memory forgets all with each connection: name a file, "
            "as in 'sqlite:///lockgate.db', or use 'memory://'."
        )
    named = {"database", "db", "read_default_file"} & url.query.keys()
    if _DRIVERS[base] == "pymysql" and not (url.database or named):
        raise ConfigurationError(
            "The store's URL names no database: use 'mysql://user:password@host/database'."
        )
    if driver == "aiosqlite":
        driver = ""  # Worker threads are faster than this driver, and serve event loops as well.
    return url.set(drivername=f"{base}+{driver or _DRIVERS[base]}")


def _mode_of(url: URL) -> tuple[URL, bool]:
    """Return a URL as its driver takes it, and whether it asks for a missing file of SQLite.

    ``mode`` is an option of SQLite's own URIs, which the driver knows in these alone.

    Raises:
        ConfigurationError: the mode is neither ``rw`` nor ``rwc``.
    """
    mode = url.query.get("mode")
    if _base(url) != "sqlite" or "uri" in url.query:
        return url, mode == "rwc"
    if mode not in {None, "rw", "rwc"}:
        raise ConfigurationError(
            "The mode of a file of SQLite is 'rw', the default, or 'rwc', which also creates it."
        )
    return url.difference_update_query(["mode"]), mode == "rwc"


def _opened(url: URL) -> Engines:
    url, creates = _mode_of(url)
    driver = for_driver(url)
    dialect, options = _loaded(driver)
    url, sessions = driver.url, _sessions(driver, dialect)

    def awaiting() -> AsyncEngine:
        engine = create_async_engine(url, **options)
        sessions.attend(engine.sync_engine)
        return engine

    if dialect.is_async:
        return Engines(dialect, None, awaiting, ours=True, patience=0, sessions=sessions)
    if dialect.name != "sqlite":
        engine = _blocking(url, options, creates=False)
        sessions.attend(engine)
        return Engines(dialect, engine, None, ours=True, patience=0, sessions=sessions)
    _warn_of_readers(url)
    arguments: dict[str, Any] = options["connect_args"]
    patience = float(arguments.get("timeout", url.query.get("timeout", _SECONDS)))
    arguments["timeout"] = min(patience, _STEP)
    engine = _blocking(url, options, creates=creates)
    file = OpenedFile(sqlite_file(url))
    return Engines(dialect, engine, None, True, patience, creates, file)


def _base(url: URL) -> str:
    return url.drivername.partition("+")[0]


def _loaded(driver: Driver) -> tuple[Dialect, dict[str, Any]]:
    """Return the dialect of a URL and the options of its engines, after checking that its driver is
    installed and accepts them."""
    try:
        kind = driver.url.get_dialect()
        kind.import_dbapi()
    except (NoSuchModuleError, ImportError) as missing:
        raise ConfigurationError(
            f"The driver of {driver.url.drivername}:// is not installed: pip install "
            "'lockgate[sql]', or install the driver that the URL names."
        ) from missing
    dialect = kind()
    if dialect.name == "postgresql" and dialect.driver not in UNPREPARED:
        raise ConfigurationError(
            f"lockgate opens no connections by {dialect.driver}: name no driver in the store's "
            "URL, or give an engine of your own in place of it."
        )
    options = _options(driver.url)
    arguments = {**options["connect_args"], **driver.arguments}
    options["connect_args"] = {**checked(dialect, driver.url, arguments), **arguments}
    return dialect, options


def _blocking(url: URL, options: Mapping[str, Any], *, creates: bool) -> Engine:
    engine = create_engine(url, **options)
    if engine.dialect.name == "sqlite":
        find = _create_private if creates else _Existing()
        event.listen(engine, "do_connect", lambda *_: find(url))
        event.listen(engine, "connect", _synchronous_normal)
    return engine


def _options(url: URL) -> dict[str, Any]:
    """Return options that end hanging calls in seconds, where drivers would wait for minutes."""
    options: dict[str, Any] = {"hide_parameters": True, "pool_timeout": _SECONDS}
    arguments: dict[str, Any]
    match _base(url), url.drivername.partition("+")[2]:
        case "sqlite", _:
            arguments = {"timeout": _SECONDS}
        case "postgresql", driver:
            options["isolation_level"] = "READ COMMITTED"
            timeout = "timeout" if driver == "asyncpg" else "connect_timeout"
            arguments = {timeout: _SECONDS}
        case _:
            options["isolation_level"] = "READ COMMITTED"
            waits = ("innodb_lock_wait_timeout", "lock_wait_timeout")  # For rows, and for tables.
            words = [f"{name}={_SECONDS}" for name in waits]
            arguments = {
                "connect_timeout": _SECONDS,
                "init_command": f"SET SESSION {', '.join(words)}",
            }
    options["connect_args"] = {k: v for k, v in arguments.items() if k not in url.query}
    return options


def _sessions(driver: Driver, dialect: Dialect) -> Sessions:
    """Return the sessions of a URL, whose own settings are not replaced."""
    if dialect.name != "postgresql":
        return Sessions({})
    given = f"{driver.url.query.get('options', '')}{driver.arguments.get('server_settings', '')}"
    settings = {name: value for name, value in _SETTINGS.items() if name not in given}
    return Sessions(settings, are_shared=driver.is_pooled)


class _Existing:
    """Refuse to create a file of SQLite: if its path is mistyped, every key would be unknown."""

    def __init__(self) -> None:
        self._logged = False

    def __call__(self, url: URL) -> None:
        """Check the file before a connection.

        Raises:
            MissingFile: there is no such file. The log has one ERROR line, since responses say no
                more than "unavailable".
        """
        file = sqlite_file(url)
        if "mode" in url.query or file.exists():  # A URI has its own mode for missing files.
            return
        problem = MissingFile(file)
        if not self._logged:
            self._logged = True
            logger.error("%s", problem)
        raise problem


def _create_private(url: URL) -> None:
    """Create the file of SQLite with mode 0600, if it does not exist.

    SQLite would apply the umask, which often lets all users read it. Its log and shared memory get
    the mode of the file. An existing file is not opened: closing it would release the locks that
    this process has on it (POSIX). Other threads wait here until a new file is closed.
    """
    if url.query.get("mode", "rwc") != "rwc":
        return  # A URI has its own mode for creating files.
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
    with _creating, suppress(OSError):  # It exists, or SQLite reports the error later.
        os.close(os.open(sqlite_file(url), flags, 0o600))


def _warn_of_readers(url: URL) -> None:
    """Warn of a file of SQLite that other users of the machine can read or write."""
    file = sqlite_file(url)
    try:
        mode = stat.S_IMODE(file.stat().st_mode)
    except OSError:
        return  # The file does not exist yet.
    if os.name == "posix" and mode & 0o077:
        logger.warning(
            "Other users of this machine can open the SQLite file %s (mode %04o): run 'chmod 600' "
            "on it and on the files %s-wal and %s-shm beside it, if they exist.",
            *(file, mode, file.name, file.name),
        )


def _synchronous_normal(connection: Any, _: object) -> None:
    """Let commits return before the disk write.

    With a write-ahead log this is safe against a crash of the process. A power cut can lose the
    latest commits, but does not damage the file.
    """
    cursor = connection.cursor()
    cursor.execute("PRAGMA synchronous=NORMAL")
    cursor.close()
