"""Servers: their addresses and connection settings, from a URL or from a client of redis-py.

Redis-py reads URLs, checks options and makes TLS contexts. A client provides its settings only: its
own connections might repeat calls that have taken effect (D33), decode bytes that are not text, or
wait too long.
"""

import socket
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from ssl import CERT_NONE, SSLContext
from typing import Any, Final, Literal, NamedTuple, TypeAlias, cast
from urllib.parse import urlsplit, urlunsplit

import redis
from redis import asyncio as redis_asyncio
from redis import connection as redis_connection
from redis import sentinel as redis_sentinel
from redis.asyncio import sentinel as redis_asyncio_sentinel
from redis.asyncio.connection import SSLConnection, UnixDomainSocketConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ReadOnlyError, RedisError

from ....core.weak_secrets import refuse_malformed_url
from ....errors import ConfigurationError
from ....metrics import Pipelines

Client: TypeAlias = (
    redis.Redis | redis.RedisCluster | redis_asyncio.Redis | redis_asyncio.RedisCluster
)
Address: TypeAlias = tuple[str, int]
Kind = Literal["single", "sentinel", "cluster"]
Ask = Callable[..., Coroutine[Any, Any, Any]]
"""Sends a command, given as words, to one server and returns the reply, or raises its error."""
Greet = Callable[[str, Ask], Coroutine[Any, Any, None]]
"""Called with the name of a server and how to ask it, once a new connection has logged in."""

SECONDS: Final = 2.0
"""The longest wait for an answer or a connection, unless the settings are lower."""
_parse_url = cast(Callable[[str], Mapping[str, Any]], redis_connection.parse_url)  # pyright: ignore[reportUnknownMemberType] - it has no types
_OF_POOLS: Final = {"connection_class", "max_connections", "timeout"}
_PORTS: Final = {"single": 6379, "sentinel": 26379, "cluster": 6379}
_KEPT: Final = {
    *("username", "password", "credential_provider", "db", "client_name", "path"),
    *("socket_connect_timeout", "socket_keepalive", "socket_keepalive_options", "socket_type"),
}
_SECURE: Final = redis.SSLConnection | SSLConnection
_CLASSES: Final[set[type[Any] | None]] = {
    *(None, redis.Connection, redis.SSLConnection, redis.UnixDomainSocketConnection),
    *(redis_asyncio.Connection, SSLConnection, UnixDomainSocketConnection),
    redis_sentinel.SentinelManagedConnection,
    redis_sentinel.SentinelManagedSSLConnection,
    redis_asyncio_sentinel.SentinelManagedConnection,
    redis_asyncio_sentinel.SentinelManagedSSLConnection,
}
"""The connection classes of redis-py that settings fully describe. None: the default class."""


_SENTINEL_POOLS: Final = (
    redis_sentinel.SentinelConnectionPool | redis_asyncio_sentinel.SentinelConnectionPool
)


def name_of(address: Address) -> str:
    """Return an address as ``host:port``."""
    host, port = address
    return f"{host}:{port}"


class Settings(NamedTuple):
    """Settings for connecting and logging in to servers, without their addresses."""

    options: Mapping[str, Any]
    """Options of redis-py's connections."""
    secure: bool = False
    """Whether to use TLS."""

    def __repr__(self) -> str:
        """Leave out the options, which hold passwords."""
        return f"<Settings of {self.kind.__name__}>"

    @property
    def kind(self) -> type[Any]:
        """The class of redis-py's connections that takes these options."""
        if "path" in self.options:
            return UnixDomainSocketConnection
        return SSLConnection if self.secure else redis_asyncio.Connection

    @property
    def arguments(self) -> dict[str, Any]:
        """The options with which :attr:`kind` is called.

        A certificate has to name the host unless an option says otherwise: before version 6,
        redis-py's own default was to accept a trusted certificate of any other host.
        """
        if self.kind is not SSLConnection:
            return dict(self.options)
        checked = self.options.get("ssl_cert_reqs") not in {"none", CERT_NONE}
        return {"ssl_check_hostname": checked, **self.options}

    def client(self, address: Address, timeout: float) -> Any:
        """Return redis-py's asynchronous client of a server, without retries, with text replies."""
        options: dict[str, Any] = {**self.arguments, "host": address[0], "port": address[1]}
        pool = redis_asyncio.ConnectionPool(
            self.kind,
            **options,
            socket_timeout=timeout,
            retry=Retry(NoBackoff(), 0),
            decode_responses=True,
            protocol=2,
        )
        return redis_asyncio.Redis.from_pool(pool)


class Endpoint:
    """One server, and how to connect and log in to it.

    Args:
        settings: a connection of redis-py that is never opened: it holds checked settings.
        is_primary: whether the server has to be a primary.
        greet: called once a new connection has logged in; None: no call.
    """

    def __init__(
        self, settings: Any, *, is_primary: bool = False, greet: Greet | None = None
    ) -> None:
        self._settings: Final = settings
        self._is_primary: Final = is_primary
        self._greet: Final = greet
        self.path: Final[str] = getattr(settings, "path", "")
        """The path of a Unix socket; empty: the server is reached by TCP."""
        self.host: Final[str] = getattr(settings, "host", "")
        self.port: Final[int] = getattr(settings, "port", 0)
        self.connect_timeout: Final[float] = settings.socket_connect_timeout
        """Seconds."""

    @property
    def name(self) -> str:
        """``host:port``, or the path of a Unix socket."""
        return self.path or name_of((self.host, self.port))

    def tls(self) -> SSLContext | None:
        """Return a new TLS context, from the present content of the files; None: no TLS.

        Raises:
            OSError, ValueError: a file cannot be read, or an option is not valid.
        """
        options = getattr(self._settings, "ssl_context", None)
        context: SSLContext | None = None if options is None else options.get()
        return context

    def set_options(self, connected: socket.socket) -> None:
        """Set the options of a TCP socket."""
        if not self.path:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._settings.socket_keepalive:
                connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                for option, value in self._settings.socket_keepalive_options.items():
                    connected.setsockopt(socket.IPPROTO_TCP, option, value)

    async def log_in(self, ask: Ask, *, awaits: bool) -> None:
        """Log in on a new connection. This suspends only where ``ask`` does, or with ``awaits``.

        Raises:
            ReadOnlyError: the server has to be a primary and is a replica.
            RedisError: the server refused, or the connection failed.
        """
        settings = self._settings
        if credentials := await self._credentials(awaits=awaits):
            await ask("AUTH", *credentials)
        if settings.client_name:
            await ask("CLIENT", "SETNAME", settings.client_name)
        if settings.db:
            await ask("SELECT", str(settings.db))
        if self._is_primary and (await ask("ROLE"))[0] != b"master":
            raise ReadOnlyError("The server that the Sentinels name is a replica.")
        if self._greet is not None:
            await self._greet(self.name, ask)

    async def _credentials(self, *, awaits: bool) -> tuple[str, ...]:
        """Return the arguments of ``AUTH``; empty: there are none to send."""
        settings = self._settings
        provider = settings.credential_provider
        if provider is None:
            username, password = settings.username, settings.password
            return (username, password or "") if username else (password,) if password else ()
        # A provider of redis-py before 5.1 has no method that awaits.
        later = getattr(provider, "get_credentials_async", None) if awaits else None
        found = provider.get_credentials() if later is None else await later()
        return tuple(found)


class Servers(NamedTuple):
    """The addresses of servers, and their connection settings."""

    kind: Kind
    addresses: Sequence[Address]
    """Sentinels to ask for the server, or some nodes of a Cluster to ask for the others."""
    settings: Settings
    timeout: float
    """Seconds to wait for an answer."""
    service: str = ""
    """The name by which Sentinels know the server."""
    sentinels: Settings = Settings({})
    """The connection settings of the Sentinels."""
    remap: Callable[[Address], Address] | None = None
    """Maps the address that a Cluster reports for a node to its reachable address."""
    greet: Greet | None = None
    sizes: Pipelines | None = None
    """Counts the pipelines."""

    def __repr__(self) -> str:
        """Name the servers without the options, which hold passwords."""
        return f"<Servers {self.kind} {', '.join(map(name_of, self.addresses))}>"

    def endpoint(self, address: Address | None = None, *, is_primary: bool = False) -> Endpoint:
        """Return the server at an address, or the only one."""
        options = self.settings.arguments
        if address is not None:
            options["host"], options["port"] = address
        return Endpoint(self.settings.kind(**options), is_primary=is_primary, greet=self.greet)


class ServersByMode(NamedTuple):
    """The servers for blocking callers, and for callers that await."""

    blocking: Servers | None
    awaiting: Servers | None


def servers_of(sources: Iterable[Client | str]) -> ServersByMode:
    """Return the servers that a URL, a client, or a client of each I/O mode describes.

    Raises:
        ConfigurationError: the URL is malformed, or the sources are neither one URL nor at most one
            client of each I/O mode, or a client's settings do not fully describe its behaviour. The
            message never repeats the URL.
    """
    found: dict[bool, Servers] = {}
    for source in sources:
        if isinstance(source, str):
            servers = _from_url(source)
            both = {False: servers, True: servers}
        elif isinstance(source, redis_asyncio.Redis | redis_asyncio.RedisCluster):
            both = {True: _from_client(source)}
        elif isinstance(source, redis.Redis | redis.RedisCluster):  # pyright: ignore[reportUnnecessaryIsInstance] - callers without a type checker
            both = {False: _from_client(source)}
        else:
            raise ConfigurationError(
                f"{type(source).__name__} is no URL and no client of redis-py."
            )
        if found.keys() & both.keys():
            raise ConfigurationError(
                "A store is reached by one URL, or by one client that blocks, one that awaits, or "
                "both."
            )
        found.update(both)
    if not found:
        raise ConfigurationError("A Redis store needs a URL or a client.")
    return ServersByMode(found.get(False), found.get(True))


def _from_url(text: str) -> Servers:
    refuse_malformed_url(text)
    try:
        url = urlsplit(text)
        if url.scheme == "unix":
            return _from_client(redis.Redis.from_url(text))  # pyright: ignore[reportUnknownMemberType] - redis-py's own type
        scheme, _, suffix = url.scheme.partition("+")
        kind: Kind = "cluster" if suffix == "cluster" else "sentinel" if suffix else "single"
        if scheme not in {"redis", "rediss"} or suffix not in {"", "cluster", "sentinel"}:
            raise ValueError("scheme")
        user, at, hosts = url.netloc.rpartition("@")
        addresses = tuple(_address(host, _PORTS[kind]) for host in hosts.split(","))
        if kind == "single" and len(addresses) != 1:
            raise ValueError("hosts")
        first, _, rest = url.path.strip("/").partition("/")
        service, database = (first, rest) if kind == "sentinel" else ("", first)
        if kind == "sentinel" and not service:
            raise ValueError("service")
        if database and not (database.isdigit() and not (kind == "cluster" and int(database))):
            raise ValueError("database")
        plain = urlunsplit((scheme, f"{user}{at}host", f"/{database}", url.query, ""))
        options, secure = _parse_url(plain), scheme == "rediss"
        kept = _kept(options)
        # Complains of an option that it does not know, such as a misspelt one of TLS.
        checked = {name: value for name, value in options.items() if name not in _OF_POOLS}
        Settings({}, secure).kind(**checked)
        of_sentinels = {n: v for n, v in kept.items() if n.startswith(("socket_", "ssl_"))}
        if kind == "single":
            kept["host"], kept["port"] = addresses[0]
        timeout = float(options.get("socket_timeout") or SECONDS)
        sentinels = Settings(of_sentinels, secure)
        return Servers(kind, addresses, Settings(kept, secure), timeout, service, sentinels)
    except (ValueError, TypeError, RedisError):
        raise ConfigurationError(
            "The store's URL cannot be read: use 'redis://user:password@host:6379/0', "
            "'redis+cluster://host:6379,host:6380', "
            "'redis+sentinel://host:26379,host:26379/service' or 'unix:///path?db=0', 'rediss' in "
            "place of 'redis' for TLS, with special characters %-encoded; after a '?' only what "
            "redis-py's connections take, such as 'socket_timeout=0.5'."
        ) from None


def _address(text: str, port: int) -> Address:
    url = urlsplit(f"//{text}")
    if not url.hostname:
        raise ValueError("host")
    return url.hostname, url.port or port


def _from_client(client: Client) -> Servers:
    if isinstance(client, redis.RedisCluster | redis_asyncio.RedisCluster):
        manager: Any = client.nodes_manager
        options: dict[str, Any] = manager.connection_kwargs
        nodes = tuple((node.host, node.port) for node in manager.startup_nodes.values())
        settings = _settings(options, options.get("connection_class"), bool(options.get("ssl")))
        return Servers("cluster", nodes, settings, _timeout(options), remap=manager.address_remap)
    pool: Any = client.connection_pool
    options = pool.connection_kwargs
    if options.get("redis_connect_func"):
        raise ConfigurationError(
            "A client with a redis_connect_func cannot be taken: the store makes connections "
            "itself. Use username and password, or a credential_provider."
        )
    settings, timeout = _settings(options, pool.connection_class), _timeout(options)
    if not isinstance(client.connection_pool, _SENTINEL_POOLS):
        kept = dict(settings.options)
        kept.update((name, options[name]) for name in ("host", "port") if name in options)
        return Servers("single", (), settings._replace(options=kept), timeout)
    pools: list[Any] = [each.connection_pool for each in pool.sentinel_manager.sentinels]
    of_sentinels: list[dict[str, Any]] = [each.connection_kwargs for each in pools]
    return Servers(
        "sentinel",
        tuple((each["host"], each["port"]) for each in of_sentinels),
        settings,
        timeout,
        pool.service_name,
        _settings(of_sentinels[0], pools[0].connection_class),
    )


def _settings(options: Mapping[str, Any], kind: type[Any] | None, secure: bool = False) -> Settings:
    """Return the settings of a client.

    Raises:
        ConfigurationError: its connection class is not one of redis-py's.
    """
    if kind not in _CLASSES:
        raise ConfigurationError(
            f"A client with connections of {kind} cannot be taken: the store makes connections "
            "itself, by the settings of redis-py's own classes."
        )
    return Settings(_kept(options), secure or (kind is not None and issubclass(kind, _SECURE)))


def _timeout(options: Mapping[str, Any]) -> float:
    return min(float(options.get("socket_timeout") or SECONDS), SECONDS)


def _kept(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that a store's own connections take over.

    Raises:
        ConfigurationError: an option requests a check that the store does not make.
    """
    if any(value for name, value in options.items() if "ocsp" in name):
        raise ConfigurationError(
            "The store does not check certificates by OCSP: leave ssl_validate_ocsp out."
        )
    kept = {
        name: value
        for name, value in options.items()
        if (name in _KEPT or name.startswith("ssl_")) and "ocsp" not in name and value is not None
    }
    kept["socket_connect_timeout"] = min(
        float(kept.get("socket_connect_timeout") or SECONDS), _timeout(options)
    )
    return kept
