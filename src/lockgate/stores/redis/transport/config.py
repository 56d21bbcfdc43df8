"""Servers: where they are and how to connect, from a URL or from a client of the user's.

Of a client only its settings are taken. The connections are the store's own: a client's would try
again by themselves what may have taken effect (D33), decode what is not text, or wait too long.
"""

from collections.abc import Callable, Coroutine, Iterable, Mapping
from inspect import isawaitable
from typing import Any, Final, Literal, NamedTuple, TypeAlias, cast
from urllib.parse import urlsplit, urlunsplit

import redis
from redis import asyncio as redis_asyncio
from redis import connection as blocking
from redis.asyncio import connection as awaiting
from redis.asyncio.retry import Retry as AwaitingRetry
from redis.asyncio.sentinel import SentinelConnectionPool as AwaitingSentinelPool
from redis.backoff import NoBackoff
from redis.exceptions import ReadOnlyError
from redis.retry import Retry
from redis.sentinel import SentinelConnectionPool

from ....errors import ConfigurationError
from ....sync import run

Client: TypeAlias = (
    redis.Redis | redis.RedisCluster | redis_asyncio.Redis | redis_asyncio.RedisCluster
)
Address: TypeAlias = tuple[str, int]
_LogIn: TypeAlias = Callable[[Any], Any]
_Parse: TypeAlias = Callable[[str], Mapping[str, Any]]
Kind = Literal["single", "sentinel", "cluster"]

SECONDS: Final = 2.0
"""How long to wait for an answer or a connection, unless the settings say less."""
_parse = cast(_Parse, blocking.parse_url)  # pyright: ignore[reportUnknownMemberType] - it has no types
_OF_POOLS: Final = {"connection_class", "max_connections", "timeout"}
_PORTS: Final = {"single": 6379, "sentinel": 26379, "cluster": 6379}
_KEPT: Final = {
    *("username", "password", "credential_provider", "db", "client_name", "path"),
    *("socket_connect_timeout", "socket_keepalive", "socket_keepalive_options", "socket_type"),
}


def name_of(address: Address) -> str:
    """Return an address as ``host:port``."""
    host, port = address
    return f"{host}:{port}"


class Servers(NamedTuple):
    """Where the servers are, and how to connect to them."""

    kind: Kind
    addresses: tuple[Address, ...]
    """The server; Sentinels to ask for it; or some nodes of a Cluster to ask for the others."""
    connection: type[Any]
    """The class of a connection: one of redis-py's, or of the user's own."""
    options: Mapping[str, Any]
    timeout: float
    """Seconds to wait for an answer."""
    service: str = ""
    """The name by which Sentinels know the server."""
    sentinel: tuple[type[Any], Mapping[str, Any]] | None = None
    """The class and the options of connections to Sentinels."""
    remap: Callable[[Address], Address] | None = None
    """Where a node of a Cluster is really found, as the client says."""
    greet: Callable[[Any], Coroutine[Any, Any, None]] | None = None
    """Called with each new connection that has logged in. It suspends only if that one awaits."""

    def __repr__(self) -> str:
        """Name the servers without the options, which hold passwords."""
        return (
            f"<Servers {self.kind} {', '.join(f'{host}:{port}' for host, port in self.addresses)}>"
        )

    @property
    def name(self) -> str:
        """The only server, as ``host:port`` or the path of a Unix socket."""
        path, host, port = map(self.options.get, ("path", "host", "port"))
        return path or name_of((host or "localhost", port or 6379))

    def connect(self, address: Address | None) -> Any:
        """A connection to a server at an address, not connected yet; None: to the only one."""
        log_in: _LogIn = self.options.get("redis_connect_func") or _log_in
        return self._connection(address, log_in)

    def connect_to_primary(self, address: Address) -> Any:
        """A connection to a server, not connected yet, that fails to unless it is a primary."""
        return self._connection(address, _log_in_to_primary)

    def _connection(self, address: Address | None, log_in: _LogIn) -> Any:
        greet = self.greet

        async def connected(connection: Any) -> None:
            await answered(log_in(connection))
            if greet is not None:
                await greet(connection)

        def connected_blocking(connection: Any) -> None:
            run(connected(connection))

        is_awaiting = issubclass(self.connection, awaiting.AbstractConnection)
        where = {} if address is None else {"host": address[0], "port": address[1]}
        connect = {"redis_connect_func": connected if is_awaiting else connected_blocking}
        return _bare(self.connection, {**self.options, **where, **connect}, self.timeout)

    def sentinel_client(self, address: Address, timeout: float) -> Any:
        """An awaiting client of a Sentinel, whose answers are text."""
        assert self.sentinel is not None, "only a service that Sentinels watch has some"
        return _client(*self.sentinel, address, timeout)

    def primary_client(self, address: Address, timeout: float) -> Any:
        """An awaiting client of a server."""
        return _client(self.connection, self.options, address, timeout)


class Colours(NamedTuple):
    """The servers as callers that block reach them, and as those that await do."""

    blocking: Servers | None
    awaiting: Servers | None


def servers_of(sources: Iterable[Client | str]) -> Colours:
    """The servers that a URL or one client or two name.

    Raises:
        ConfigurationError: the URL cannot be read, or it is not one URL or at most one client of
            each colour. The message never repeats the URL.
    """
    found: dict[bool, Servers] = {}
    for source in sources:
        if isinstance(source, str):
            both = _from_url(source)
        elif isinstance(source, redis_asyncio.Redis | redis_asyncio.RedisCluster):
            both = {True: _from_client(source)}
        elif isinstance(source, redis.Redis | redis.RedisCluster):  # pyright: ignore[reportUnnecessaryIsInstance] - whoever has no type checker
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
    return Colours(found.get(False), found.get(True))


def _bare(kind: type[Any], options: Mapping[str, Any], timeout: float) -> Any:
    """A connection that tries nothing again and decodes nothing, whatever the client's do."""
    is_awaiting = issubclass(kind, awaiting.AbstractConnection)
    return kind(
        **options,
        # One that awaits is watched for a whole exchange, not for each read.
        socket_timeout=None if is_awaiting else timeout,
        retry=(AwaitingRetry if is_awaiting else Retry)(NoBackoff(), 0),
        decode_responses=False,
        protocol=2,
    )


def _client(
    kind: type[Any], options: Mapping[str, Any], address: Address, timeout: float
) -> redis_asyncio.Redis:
    """An awaiting client that tries nothing again, whatever the callers of the store do."""
    if not issubclass(kind, awaiting.AbstractConnection):
        kind = _plain(kind, awaiting)
    pool = redis_asyncio.ConnectionPool(
        kind,
        **options,
        host=address[0],
        port=address[1],
        socket_timeout=timeout,
        retry=AwaitingRetry(NoBackoff(), 0),
        decode_responses=True,
        protocol=2,
    )
    return redis_asyncio.Redis.from_pool(pool)


def _log_in(connection: Any) -> Any:
    return connection.on_connect()


async def _log_in_to_primary(connection: Any) -> None:
    await answered(connection.on_connect())
    role = await ask(connection, "ROLE")
    if role[0] != b"master":
        raise ReadOnlyError("The server that the Sentinels name is a replica.")


async def answered(result: Any) -> Any:
    """Await the result of a method of redis-py's connections, where the connection awaits."""
    return await result if isawaitable(result) else result


async def ask(connection: Any, *words: str) -> Any:
    """Send a command over a connection of redis-py's and return the reply.

    Raises:
        RedisError: the server refused, or the connection failed.
    """
    await answered(connection.send_command(*words, check_health=False))
    return await answered(connection.read_response())


def _from_url(text: str) -> dict[bool, Servers]:
    try:
        url = urlsplit(text)
        scheme, _, suffix = url.scheme.partition("+")
        kind: Kind = "cluster" if suffix == "cluster" else "sentinel" if suffix else "single"
        if scheme not in {"redis", "rediss"} or suffix not in {"", "cluster", "sentinel"}:
            raise ValueError("scheme")
        user, at, hosts = url.netloc.rpartition("@")
        addresses = tuple(_address(host, _PORTS[kind]) for host in hosts.split(","))
        if kind == "single" and len(addresses) > 1:
            raise ValueError("hosts")
        first, _, rest = url.path.strip("/").partition("/")
        service, database = (first, rest) if kind == "sentinel" else ("", first)
        if kind == "sentinel" and not service:
            raise ValueError("service")
        if database and not (database.isdigit() and not (kind == "cluster" and int(database))):
            raise ValueError("database")
        plain = urlunsplit((scheme, f"{user}{at}host", f"/{database}", url.query, ""))
        return {
            colour: _read(kind, addresses, service, parse(plain), connection)
            for colour, parse, connection in (
                (False, _parse, redis.Connection),
                (True, cast(_Parse, awaiting.parse_url), redis_asyncio.Connection),
            )
        }
    except (ValueError, TypeError):
        raise ConfigurationError(
            "The store's URL cannot be read: use 'redis://user:password@host:6379/0', "
            "'redis+cluster://host:6379,host:6380', or "
            "'redis+sentinel://host:26379,host:26379/service', 'rediss' in place of 'redis' for "
            "TLS, with special characters %-encoded; after a '?' only what redis-py's connections "
            "take, such as 'socket_timeout=0.5'."
        ) from None


def _address(text: str, port: int) -> Address:
    url = urlsplit(f"//{text}")
    if not url.hostname:
        raise ValueError("host")
    return url.hostname, url.port or port


def _read(
    kind: Kind,
    addresses: tuple[Address, ...],
    service: str,
    options: Mapping[str, Any],
    connection: type[Any],
) -> Servers:
    chosen = options.get("connection_class", connection)
    kept = _kept(options)
    if kind == "single":
        kept["host"], kept["port"] = addresses[0]
    timeout = float(options.get("socket_timeout") or SECONDS)
    # It is made here to complain of what it does not know, a misspelt option of TLS for one.
    chosen(**{name: value for name, value in options.items() if name not in _OF_POOLS})
    guards = {name: kept[name] for name in kept if name.startswith(("socket_", "ssl_"))}
    return Servers(kind, addresses, chosen, kept, timeout, service, (chosen, guards))


def _from_client(client: Client) -> Servers:
    if isinstance(client, redis.RedisCluster | redis_asyncio.RedisCluster):
        return _from_cluster(client)
    pool: Any = client.connection_pool
    options: dict[str, Any] = pool.connection_kwargs
    timeout = _timeout(options)
    if not isinstance(client.connection_pool, SentinelConnectionPool | AwaitingSentinelPool):
        kept = _kept(options)
        for name in ("host", "port", "redis_connect_func"):
            if name in options:
                kept[name] = options[name]
        return Servers("single", (), pool.connection_class, kept, timeout)
    guards: list[Any] = [guard.connection_pool for guard in pool.sentinel_manager.sentinels]
    settings: list[dict[str, Any]] = [guard.connection_kwargs for guard in guards]
    return Servers(
        "sentinel",
        tuple((guard["host"], guard["port"]) for guard in settings),
        _plain(pool.connection_class),
        _kept(options),
        timeout,
        pool.service_name,
        (guards[0].connection_class, _kept(settings[0])),
    )


def _from_cluster(client: redis.RedisCluster | redis_asyncio.RedisCluster) -> Servers:
    manager: Any = client.nodes_manager
    options: dict[str, Any] = manager.connection_kwargs
    is_awaiting = isinstance(client, redis_asyncio.RedisCluster)
    secure = options.get("ssl") or issubclass(
        options.get("connection_class", object), redis.SSLConnection | redis_asyncio.SSLConnection
    )
    module = redis_asyncio if is_awaiting else redis
    return Servers(
        "cluster",
        tuple((node.host, node.port) for node in manager.startup_nodes.values()),
        module.SSLConnection if secure else module.Connection,
        _kept(options),
        _timeout(options),
        remap=manager.address_remap,
    )


def _plain(managed: type[Any], module: Any = None) -> type[Any]:
    """The class of connections that do not look for their server themselves."""
    if module is None:
        module = awaiting if issubclass(managed, awaiting.AbstractConnection) else blocking
    secure = issubclass(managed, blocking.SSLConnection | awaiting.SSLConnection)
    kind: type[Any] = module.SSLConnection if secure else module.Connection
    return kind


def _timeout(options: Mapping[str, Any]) -> float:
    return min(float(options.get("socket_timeout") or SECONDS), SECONDS)


def _kept(options: Mapping[str, Any]) -> dict[str, Any]:
    kept = {
        name: value
        for name, value in options.items()
        if (name in _KEPT or name.startswith("ssl_")) and value is not None
    }
    kept["socket_connect_timeout"] = min(
        float(kept.get("socket_connect_timeout") or SECONDS), _timeout(options)
    )
    return kept
