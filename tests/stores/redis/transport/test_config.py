"""Where the servers are: from URLs, and from clients of every kind."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import redis
from redis import asyncio as redis_asyncio
from redis import sentinel as blocking
from redis.asyncio import sentinel as awaiting
from redis.asyncio.cluster import ClusterNode

from lockgate import ConfigurationError, open_store, run
from lockgate.core.ledger import Hit
from lockgate.core.plans import FREE
from lockgate.stores.redis import RedisStore
from lockgate.stores.redis.transport.config import servers_of
from tests.servers import redis_sentinel, redis_server

from ..backends import opened, server


@pytest.mark.parametrize(
    "url",
    [
        "redis://localhost",
        "redis://[::1]:6379/3",
        "rediss://user:p%40ss@host:6380/0?ssl_cert_reqs=none",
        "redis+cluster://a:1,b:2",
        "rediss+cluster://user:pass@a",
        "redis+sentinel://a:1,b/service/2",
    ],
)
def test_urls_serve_both_colours(url: str) -> None:
    assert open_store(url).io == "both"


@pytest.mark.parametrize(
    "url",
    [
        "redis://",
        "redis://:hunter2@host/database",
        "redis://:hunter2@host:99999",
        "redis://:hunter2@a,b",
        "redis://:hunter2@host?ssl_ca_cert=/misspelt",
        "redis://:hunter2@host?socket_timeout=soon",
        "redis+sentinel://:hunter2@host",
        "redis+cluster://:hunter2@host/1",
        "redis+tcp://:hunter2@host",
    ],
)
def test_urls_that_cannot_be_read_are_not_repeated(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        open_store(url)
    assert "hunter2" not in str(caught.value)
    assert caught.value.__suppress_context__


def test_a_url_holds_credentials_and_how_long_to_wait() -> None:
    servers = servers_of(
        ["rediss+sentinel://me:p%40ss@a:1,b/service/2?socket_timeout=0.5"]
    ).blocking
    assert servers is not None
    assert (servers.kind, servers.addresses) == ("sentinel", (("a", 1), ("b", 26379)))
    assert (servers.service, servers.timeout) == ("service", 0.5)
    assert servers.settings.secure
    assert servers.sentinels.secure
    options = {name: servers.settings.options[name] for name in ("username", "password", "db")}
    assert options == {"username": "me", "password": "p@ss", "db": 2}
    assert "password" not in servers.sentinels.options


class Custom(redis.Connection):
    """May do more than its settings say."""


@pytest.mark.parametrize(
    ("client", "reason"),
    [
        (redis.Redis.from_pool(redis.ConnectionPool(redis_connect_func=print)), "connect_func"),
        (redis.Redis.from_pool(redis.ConnectionPool(Custom)), "Custom"),
        (redis.Redis(ssl=True, ssl_validate_ocsp=True), "OCSP"),
    ],
)
def test_a_client_with_behaviour_outside_its_settings_is_refused(
    client: redis.Redis, reason: str
) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        RedisStore(client)


@pytest.mark.parametrize(
    "sources",
    [
        (),
        ("redis://a", "redis://b"),
        ("redis://a", redis.Redis()),
        (redis.Redis(), redis.Redis()),
        (None,),
        ("rediss://a?ssl_cert_reqs=CERT_NONE",),
    ],
)
def test_sources_that_do_not_fit_together(sources: Any) -> None:
    with pytest.raises(ConfigurationError):
        RedisStore(*sources)


def test_a_prefix_that_could_reach_other_names_is_refused() -> None:
    for prefix in ("", "a b", "a{b}", "*", "a" * 65):
        with pytest.raises(ConfigurationError, match="prefix"):
            RedisStore("redis://host", prefix=prefix)


def hits(*clients: Any) -> None:
    """A store by these clients counts, in each colour that they have."""
    store = opened("single", *clients)

    async def hit() -> int:
        counted = (await store.charge("org_1", Hit(FREE.windows, 1))).used[0]
        await store.close()
        return counted

    counted = 0
    if store.io in {"async", "both"}:
        counted += 1
        assert asyncio.run(hit()) == counted
    if store.io in {"sync", "both"}:
        assert run(hit()) == counted + 1


def test_clients_of_one_server(tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    with redis_server("--unixsocket", path, "--requirepass", "pass") as running:
        hits(redis.Redis(port=running.port, password="pass"))
        hits(redis_asyncio.Redis(port=running.port, password="pass", decode_responses=True))
        hits(f"unix://:pass@{path}?db=0")
        hits(redis.Redis(unix_socket_path=path, password="pass", protocol=3))
        hits(redis_asyncio.Redis(unix_socket_path=path, password="pass"))
        url = f"redis://:pass@127.0.0.1:{running.port}/3"
        hits(redis.Redis.from_url(url), redis_asyncio.Redis.from_url(url, max_connections=3))


def test_clients_of_a_cluster() -> None:
    port = server("cluster").nodes[0].port
    with redis.RedisCluster(host="127.0.0.1", port=port) as client:
        hits(client)
    nodes = [ClusterNode("127.0.0.1", port)]
    hits(redis_asyncio.RedisCluster(startup_nodes=nodes))


def test_clients_that_sentinels_give() -> None:
    with redis_sentinel() as guarded:
        addresses = [("127.0.0.1", 1), ("127.0.0.1", guarded.sentinel.port)]
        for module in (blocking, awaiting):
            sentinels: Any = module
            hits(sentinels.Sentinel(addresses).master_for(guarded.service))
