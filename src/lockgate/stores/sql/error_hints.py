"""Remedies for failures of a database, for the log.

The driver's own messages are not repeated: some contain addresses, users or parameters.
"""

from socket import gaierror
from typing import Final

from sqlalchemy import Dialect
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolExhausted

_LOGIN: Final = "it does not take this user with this password: see both in the store's URL"
_CRYPTOGRAPHY: Final = (
    "without TLS its way of checking passwords takes more of the driver: pip install 'PyMySQL[rsa]'"
)
_DATABASE: Final = "there is no such database: create it, or see its name in the store's URL"
_HOST: Final = "it takes no connections of this user from here: have it let this host in"
_NO_SERVER: Final = (
    "no server answers there: see host and port in the store's URL, and that it runs; write an "
    "'@', '/' or '%' of its password as %40, %2F or %25"
)
_TOO_SLOW: Final = (
    "it accepts no connection in time: see whether it is overloaded, host and port in the store's "
    "URL, and what filters packets on the way"
)
_RIGHTS: Final = (
    "this user may not do that: grant it SELECT, INSERT, UPDATE and DELETE on lockgate's tables"
)
_READ_ONLY: Final = "it only reads: use the primary server, a file and a folder that can be written"
_FULL: Final = "its disk is full: make room"
_CROWDED: Final = "it has no connection left: let it have more, or use fewer processes"
_POOL: Final = "every connection of the pool is in use: make the pool larger"
_LOCKED: Final = (
    "another session keeps the rows or tables locked: find it among the open transactions"
)
_SHUT: Final = (
    "it is closed to this user: give the role LOGIN, let it CONNECT to the database, and the "
    "database ALLOW_CONNECTIONS"
)
_TLS: Final = (
    "no TLS connection is possible: see that it offers TLS, its certificate, and the certificates "
    "that the store's URL names"
)
_WANTS_TLS: Final = (
    "it takes connections by TLS only: add sslmode=require to the store's URL, of MySQL and "
    "MariaDB ssl-mode=REQUIRED"
)
_BINDING: Final = (
    "it has no channel binding: use sslmode=verify-full in place of channel_binding=require in the "
    "store's URL"
)
_HOST_OR_TLS: Final = f"{_HOST}, or add sslmode=require to the store's URL if it wants TLS"
_STARTUP: Final = (
    "a pooler takes no parameters of a connection: leave 'options' out of the store's URL, and set "
    "them of the role"
)
_POOLED: Final = "its pooler has no session left for this user: let it have more, or wait less long"
_HANGS_UP: Final = (
    "it ends the connection at once: see its own log, and host and port in the store's URL"
)
_STARTING: Final = "it is starting or stopping: wait"
_TABLES: Final = (
    "its tables are not those of lockgate: run 'lockgate db check' with its URL in LOCKGATE_STORE"
)
_FILE: Final = "its file cannot be opened: see that the folder is there and may be written to"
_BROKEN: Final = "its file is no database of SQLite, or is damaged: restore it"
_OPTION: Final = "its URL has an option that the driver does not know: see what follows the '?'"
_DISK: Final = "its file cannot be read or written: see whether the disk is full or failing"

_SQLITE: Final = {
    "SQLITE_CANTOPEN": _FILE,
    "SQLITE_READONLY": _READ_ONLY,
    "SQLITE_PERM": _READ_ONLY,
    "SQLITE_FULL": _FULL,
    "SQLITE_BUSY": _LOCKED,
    "SQLITE_NOTADB": _BROKEN,
    "SQLITE_CORRUPT": _BROKEN,
    "SQLITE_IOERR": _DISK,
    "SQLITE_ERROR": _TABLES,
}
_POSTGRESQL: Final = {
    "28P01": _LOGIN,
    "28000": _HOST,
    "3D000": _DATABASE,
    "42501": _RIGHTS,
    "25006": _READ_ONLY,
    "53100": _FULL,
    "53300": _CROWDED,
    "55P03": _LOCKED,
    "57P03": _STARTING,
    "42P01": _TABLES,
    "42703": _TABLES,
}
_OF_WORDS: Final = "08P01", "28000"
"""The codes that only their words explain: of poolers, and of hosts and TLS."""
_MYSQL: Final = {
    1021: _FULL,
    1040: _CROWDED,
    1044: _RIGHTS,
    1045: f"{_LOGIN}, and add ssl-mode=REQUIRED if it takes the user by TLS only",
    1049: _DATABASE,
    1053: _STARTING,
    1054: _TABLES,
    1114: _FULL,
    1130: _HOST,
    1142: _RIGHTS,
    1143: _RIGHTS,
    1146: _TABLES,
    1203: _CROWDED,
    1205: _LOCKED,
    1226: _CROWDED,
    1290: _READ_ONLY,
    1698: _LOGIN,
    1792: _READ_ONLY,
    2002: _NO_SERVER,
    2003: _NO_SERVER,
    2005: _NO_SERVER,
    2026: _TLS,
    3159: _WANTS_TLS,
}
# libpq has no code for a refused connection, only the server's message; a pooler has one code for
# all of its own.
_POSTGRESQL_WORDS: Final = (
    ("no encryption", _HOST_OR_TLS),
    ("SSL off", _HOST_OR_TLS),
    ("SSL required", _WANTS_TLS),
    ("connection is insecure", _WANTS_TLS),
    ("channel binding", _BINDING),
    ("unsupported startup parameter", _STARTUP),
    ("no such database", _DATABASE),
    ("no such user", _LOGIN),
    ("query_wait_timeout", _POOLED),
    ("no more connections allowed", _CROWDED),
    ("too many connections", _CROWDED),
    ("not permitted to log in", _SHUT),
    ("permission denied for database", _SHUT),
    ("is not currently accepting connections", _SHUT),
    ("certificate file", _TLS),
    ("certificate verify", _TLS),
    ("support SSL", _TLS),
    ("SSL error", _TLS),
    ("password authentication failed", _LOGIN),
    ("no password supplied", _LOGIN),
    ('role "', _LOGIN),
    ("does not exist", _DATABASE),
    ("pg_hba.conf", _HOST),
    ("too many clients", _CROWDED),
    ("remaining connection slots", _CROWDED),
    ("is starting up", _STARTING),
    ("not yet accepting connections", _STARTING),
    ("is shutting down", _STARTING),
    ("Connection refused", _NO_SERVER),
    ("No route to host", _NO_SERVER),
    ("unreachable", _NO_SERVER),
    ("closed the connection unexpectedly", _HANGS_UP),
    ("resolve host", _NO_SERVER),
    ("translate host", _NO_SERVER),
    ("timeout expired", _TOO_SLOW),
    ("invalid connection option", _OPTION),
)


def is_driver_error(failure: BaseException, dialect: Dialect) -> bool:
    """Return whether an exception comes from the driver, from its server or from the pool.

    SQLAlchemy wraps most of them. Others come from the driver directly, and asynchronous drivers
    have classes that only their package identifies, such as ``asyncpg.PostgresError``.
    """
    if isinstance(failure, DBAPIError | PoolExhausted | dialect.import_dbapi().Error):
        return True
    return type(failure).__module__.partition(".")[0] == dialect.driver


def is_rejected_value(failure: BaseException, dialect: Dialect) -> bool:
    """Return whether the server rejected a value that its column cannot hold.

    asyncpg has no class for these errors: SQLSTATE 22 is their class.
    """
    cause = failure.orig if isinstance(failure, DBAPIError) else failure
    if isinstance(cause, dialect.import_dbapi().DataError):
        return True
    return str(getattr(cause, "sqlstate", None)).startswith("22")


def advice(failure: BaseException, dialect: Dialect) -> str | None:
    """Return the remedy for a failure as the end of a sentence; None: it is unknown."""
    if isinstance(failure, PoolExhausted):
        return _POOL
    cause = failure.orig if isinstance(failure, DBAPIError) else failure
    if isinstance(cause, ConnectionError | gaierror):  # asyncpg does not wrap them.
        return _NO_SERVER
    if isinstance(cause, RuntimeError) and "'cryptography'" in str(cause):
        return _CRYPTOGRAPHY
    if not isinstance(cause, dialect.import_dbapi().Error):
        return None
    if dialect.name == "sqlite":
        name = str(getattr(cause, "sqlite_errorname", ""))
        return _SQLITE.get("_".join(name.split("_")[:2]))
    if dialect.name == "postgresql":
        state = getattr(cause, "sqlstate", None)
        if state is not None and state not in _OF_WORDS:
            return _POSTGRESQL.get(state)
        text = str(cause)
        found = (what for words, what in _POSTGRESQL_WORDS if words in text)
        return next(found, _POSTGRESQL.get(state or ""))
    if str(cause).endswith('(timed out)")'):  # PyMySQL puts the cause into the text of a 2003.
        return _TOO_SLOW
    return _MYSQL.get(cause.args[0]) if cause.args else None
