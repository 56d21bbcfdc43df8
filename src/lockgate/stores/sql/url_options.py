"""Options of a store's URL: those that providers of databases hand out, as the drivers take them.

A provider writes the options of one driver, or of the server's own clients, so another driver would
fail at each connection. Everything that can be checked without a server is checked when the gate is
constructed. Messages name an option only if it is one of those below: what looks like an option may
be the end of a password that has a ``?``.
"""

import ssl
from collections.abc import Mapping
from importlib import import_module
from inspect import Parameter, signature
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from sqlalchemy import URL, Dialect
from sqlalchemy.exc import ArgumentError

from ...errors import ConfigurationError

_VALUE: Final = (
    "An option of the store's URL has a value that its driver does not take, as a timeout that is "
    "no number."
)
_UNKNOWN: Final = (
    "The store's URL has an option that its driver does not know: see what follows the '?'."
)
_POOLER: Final = "pgbouncer"
"""The option by which a URL says that it names a pooler. It is Prisma's, and providers write it."""
_POSTGRESQL_MODES: Final = "disable", "allow", "prefer", "require", "verify-ca", "verify-full"
_ASYNCPG_MODES: Final = {"true": "verify-full", "false": "disable"}
"""The modes of libpq that ``ssl=`` of asyncpg has other words for."""
_MYSQL_MODES: Final = "DISABLED", "PREFERRED", "REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY"
_TRUTH: Final = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}

_ASYNCPG_BY_URL: Final = {
    *("sslmode", "sslcert", "sslkey", "sslrootcert", "sslcrl", "sslpassword", "sslnegotiation"),
    *("ssl_min_protocol_version", "ssl_max_protocol_version"),
}
"""The options that asyncpg takes only in a URL of its own."""
_ASYNCPG_SETTINGS: Final = "application_name", "options"
_ASYNCPG_OWN: Final = {
    *("statement_cache_size", "prepared_statement_cache_size", "max_cached_statement_lifetime"),
    *("max_cacheable_statement_size", "command_timeout", "direct_tls"),
}
_ASYNCMY_OWN: Final = {"echo", "stmt_cache_size"}
_OBJECTS: Final = {
    *("auth_plugin_map", "connection_class", "context", "conv", "cursor_cls", "cursor_factory"),
    *("cursorclass", "dsn", "loop", "password_creator", "prepared_statement_name_func"),
    *("async_creator_fn", "query_callback", "record_class", "row_factory", "server_settings"),
    *("server_public_key", "sock"),
}
"""The options that no text can give."""


class Driver(NamedTuple):
    """How a URL is given to its driver."""

    url: URL
    arguments: dict[str, Any]
    """Arguments of the driver in place of options of the URL."""
    is_pooled: bool = False
    """Whether the URL says that it names a pooler."""


def for_driver(url: URL) -> Driver:
    """Translate the options of a URL for its driver.

    Raises:
        ConfigurationError: an option has a value that is not one of its values, or that the driver
            cannot do. The message repeats neither the value nor the rest of the URL.
    """
    query = {name: str(value) for name, value in url.query.items() if name != "host"}
    base, _, driver = url.drivername.partition("+")
    if base == "postgresql":
        is_pooled = _truth(_POOLER, query.pop(_POOLER, "false"))
        arguments = _asyncpg(query) if driver == "asyncpg" else _psycopg(query)
    else:
        is_pooled = False
        arguments = _mysql(query, driver) if base in {"mysql", "mariadb"} else {}
    hosts = {name: value for name, value in url.query.items() if name == "host"}
    return Driver(url.set(query={**hosts, **query}), arguments, is_pooled)


def for_blocking(url: URL, drivername: str) -> URL:
    """Return a URL with a driver that blocks, with the options that it takes."""
    if url.drivername == drivername:
        return url
    names = {"ssl": "sslmode", "timeout": "connect_timeout"}
    if not drivername.startswith("postgresql"):
        names = {}
    query = {
        names.get(name, name): value
        for name, value in url.query.items()
        if name not in _ASYNCPG_OWN | _ASYNCMY_OWN
    }
    if "ssl" in url.query and "sslmode" in query:
        mode = str(query["sslmode"])
        query["sslmode"] = _ASYNCPG_MODES.get(mode.lower(), mode)
    return url.set(drivername=drivername, query=query)


def checked(dialect: Dialect, url: URL, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Check that a driver takes the options of a URL, and some arguments beside them.

    Returns:
        the options that are numbers or truth values, and not text.

    Raises:
        ConfigurationError: it does not take them.
    """
    try:
        words, options = dialect.create_connect_args(url)
    except (ValueError, ArgumentError):
        raise ConfigurationError(_VALUE) from None
    if not options.keys().isdisjoint(_OBJECTS):
        raise ConfigurationError(_UNKNOWN)
    connect: Any = dialect.import_dbapi().connect
    if dialect.is_async:  # SQLAlchemy's own takes every option.
        connect = import_module(dialect.driver.removesuffix("_async")).connect
    given = {**options, **arguments}
    if dialect.driver == "asyncpg":
        given.pop("prepared_statement_cache_size", None)
    try:
        taken = signature(connect)
    except ValueError:  # A function in C without a signature.
        return {}
    try:
        bound = taken.bind(*words, **given)
    except TypeError:
        raise ConfigurationError(_UNKNOWN) from None
    if dialect.driver.startswith("psycopg"):
        _check_conninfo(bound.kwargs, taken.parameters)
    return {
        name: _typed(name, value, taken.parameters[name].default)
        for name, value in options.items()
        if isinstance(value, str) and name in taken.parameters
    }


def _check_conninfo(options: Mapping[str, Any], own: Mapping[str, Parameter]) -> None:
    """Check the options that psycopg passes to libpq."""
    psycopg = import_module("psycopg")
    try:
        psycopg.conninfo.make_conninfo(**{n: v for n, v in options.items() if n not in own})
    except psycopg.ProgrammingError:
        raise ConfigurationError(_UNKNOWN) from None


def _typed(name: str, value: str, default: object) -> object:
    """Return an option as its driver takes it, by the type of its default."""
    if isinstance(default, bool) or name == "direct_tls":
        return _truth(name, value)
    if isinstance(default, int) or name == "command_timeout":
        try:
            return int(value) if value.isdecimal() else float(value)
        except ValueError:
            raise ConfigurationError(_VALUE) from None
    return value


def _psycopg(query: dict[str, str]) -> dict[str, Any]:
    if "sslmode" in query:
        _chosen("sslmode", query["sslmode"], _POSTGRESQL_MODES)
    threshold = query.pop("prepare_threshold", None)
    if threshold is None:
        return {}
    if threshold.lower() == "none":
        return {"prepare_threshold": None}
    if not threshold.isdecimal():
        raise ConfigurationError(
            "The option 'prepare_threshold' of the store's URL is a number, or 'none'."
        )
    return {"prepare_threshold": int(threshold)}


def _asyncpg(query: dict[str, str]) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    if query.pop("channel_binding", "prefer") == "require":
        raise ConfigurationError(
            "asyncpg has no channel binding: leave 'channel_binding=require' out of the store's "
            "URL, with 'sslmode=verify-full' in place of it, or name no driver, for psycopg."
        )
    if "ssl" in query:
        mode = query.pop("ssl")
        query["sslmode"] = _ASYNCPG_MODES.get(mode.lower(), mode)
    if "sslmode" in query:
        _chosen("sslmode", query["sslmode"], _POSTGRESQL_MODES)
    of_url = {name: query.pop(name) for name in _ASYNCPG_BY_URL & query.keys()}
    if of_url:
        arguments["dsn"] = f"postgresql://?{urlencode(of_url)}"
    settings = {name: query.pop(name) for name in _ASYNCPG_SETTINGS if name in query}
    if settings:
        arguments["server_settings"] = settings
    if "connect_timeout" in query:
        arguments["timeout"] = _typed("timeout", query.pop("connect_timeout"), 0)
    return arguments


def _mysql(query: dict[str, str], driver: str) -> dict[str, Any]:
    for name in [name for name in query if name.startswith("ssl-")]:
        query[name.replace("-", "_")] = query.pop(name)
    mode = query.pop("ssl_mode", None) or query.pop("sslmode", None)
    if "ssl" in query and mode is None:
        mode = "REQUIRED" if _truth("ssl", query.pop("ssl")) else "DISABLED"
    if mode is None:
        return {}
    mode = mode.upper().replace("-", "_")
    _chosen("ssl-mode", mode, _MYSQL_MODES)
    if mode == "DISABLED":
        return {"ssl_disabled": True} if driver == "pymysql" else {}
    if mode == "PREFERRED":
        return {}
    try:
        return {"ssl": _context(query, mode)}
    except OSError:
        raise ConfigurationError(
            "A file of the options 'ssl-ca', 'ssl-cert' and 'ssl-key' of the store's URL cannot "
            "be read, or is no certificate."
        ) from None


def _context(query: dict[str, str], mode: str) -> ssl.SSLContext:
    authority, folder = query.pop("ssl_ca", None), query.pop("ssl_capath", None)
    context = ssl.create_default_context(cafile=authority, capath=folder)
    context.check_hostname = mode == "VERIFY_IDENTITY"
    if mode == "REQUIRED":
        context.verify_mode = ssl.CERT_NONE
    certificate, key = query.pop("ssl_cert", None), query.pop("ssl_key", None)
    if certificate is not None:
        context.load_cert_chain(certificate, key)
    return context


def _chosen(name: str, value: str, values: tuple[str, ...]) -> None:
    if value not in values:
        raise ConfigurationError(
            f"The option {name!r} of the store's URL is one of {', '.join(values)}."
        )


def _truth(name: str, value: str) -> bool:
    found = _TRUTH.get(value.lower())
    if found is None:
        raise ConfigurationError(f"The option {name!r} of the store's URL is 'true' or 'false'.")
    return found
