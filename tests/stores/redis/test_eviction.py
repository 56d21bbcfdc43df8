"""A Redis that evicts keys breaks limits without an error, so a store says so at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from lockgate import run
from lockgate.events import Event, Events
from lockgate.stores.redis import RedisStore
from tests.servers import RedisServer, redis_cluster, redis_server

from ..making import BOOK
from .backends import opened, server

WINDOWS = BOOK.default.windows
MEMORY = 100 * 2**20
EVICTING = "--maxmemory", str(MEMORY), "--maxmemory-policy", "volatile-lru"


@pytest.fixture(scope="module")
def evicting() -> Iterator[RedisServer]:
    with redis_server(*EVICTING) as running:
        yield running


@pytest.fixture
def events() -> list[Event]:
    return []


def hit(store: RedisStore) -> None:
    run(store.hit("org_1", WINDOWS, 1))


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_an_evicting_server_is_told_once_with_the_remedy(
    evicting: RedisServer, events: list[Event], caplog: pytest.LogCaptureFixture
) -> None:
    store = RedisStore(evicting.url())
    store.watch(Events(events.append), 0.25)

    async def in_a_loop() -> None:
        await store.hit("org_1", WINDOWS, 1)
        store.reset_connections()
        await store.hit("org_1", WINDOWS, 1)
        await store.close()

    hit(store)
    asyncio.run(in_a_loop())
    (message,) = warnings(caplog)
    address = f"127.0.0.1:{evicting.port}"
    for words in (address, "volatile-lru", str(MEMORY), "maxmemory-policy noeviction"):
        assert words in message
    assert events == [
        Event("redis_evicts", {"server": address, "policy": "volatile-lru", "maxmemory": MEMORY})
    ]
    run(store.close())


def test_a_gate_that_watches_later_is_told_too(evicting: RedisServer, events: list[Event]) -> None:
    store = RedisStore(evicting.url())
    hit(store)
    store.watch(Events(events.append), 0.25)
    assert [event.name for event in events] == ["redis_evicts"]
    run(store.close())


@pytest.mark.parametrize(
    ("maxmemory", "policy"), [(0, "allkeys-lru"), (MEMORY, "noeviction"), (0, "noeviction")]
)
def test_a_server_that_does_not_evict_is_not_told(
    maxmemory: int, policy: str, caplog: pytest.LogCaptureFixture
) -> None:
    options = "--maxmemory", str(maxmemory), "--maxmemory-policy", policy
    with redis_server(*options) as quiet:
        store = RedisStore(quiet.url())
        (found,) = run(store.memory_policies())
        assert (found.maxmemory, found.policy, found.evicts) == (maxmemory, policy, False)
        run(store.close())
    assert not warnings(caplog)


def test_a_policy_that_changes_is_told_on_the_next_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with redis_server("--maxmemory", str(MEMORY)) as running, running.client() as client:
        store = RedisStore(running.url())
        hit(store)
        assert not warnings(caplog)
        client.config_set("maxmemory-policy", "allkeys-lfu")
        store.reset_connections()
        hit(store)
        (message,) = warnings(caplog)
        assert "allkeys-lfu" in message
        assert [found.evicts for found in run(store.memory_policies())] == [True]
        run(store.close())


@pytest.mark.parametrize("rights", [["+info"], ["+config|get"], []])
@pytest.mark.parametrize("awaits", [False, True])
def test_what_may_not_be_read_is_not_guessed(
    evicting: RedisServer, rights: list[str], awaits: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with evicting.client() as client:
        allowed = ["+eval", "+evalsha", "+time", "+getrange", "+set", "+setrange", *rights]
        client.execute_command("ACL", "SETUSER", "app", "reset", "on", ">pw", "~*", *allowed)
    store = RedisStore(f"redis://app:pw@127.0.0.1:{evicting.port}")

    async def ask() -> tuple[str | None, bool | None]:
        await store.hit("org_1", WINDOWS, 1)
        (found,) = await store.memory_policies()
        await store.close()
        return found.policy, found.evicts

    found = asyncio.run(ask()) if awaits else run(ask())
    assert found == (("volatile-lru", True) if rights else (None, None))
    assert len(warnings(caplog)) == len(rights)


def test_each_server_of_a_cluster_is_told(
    events: list[Event], caplog: pytest.LogCaptureFixture
) -> None:
    with redis_cluster(0, *EVICTING) as cluster:
        store = RedisStore(cluster.url())
        store.watch(Events(events.append), 0.25)
        found = run(store.memory_policies())
        assert len({each.server for each in found}) == len(cluster.nodes)
        assert all(each.evicts for each in found)
        assert len(warnings(caplog)) == len(events) == len(cluster.nodes)
        run(store.close())


def test_the_primary_that_sentinels_name_is_told(caplog: pytest.LogCaptureFixture) -> None:
    watched = server("sentinel")
    with redis.Redis(port=watched.named()) as primary:
        primary.config_set("maxmemory", MEMORY)
        primary.config_set("maxmemory-policy", "allkeys-lru")
        try:
            store = opened("sentinel")
            hit(store)
            (message,) = [each for each in warnings(caplog) if "evict" in each]
            run(store.close())
        finally:
            primary.config_set("maxmemory", 0)
            primary.config_set("maxmemory-policy", "noeviction")
    assert f"127.0.0.1:{watched.named()}" in message


def test_the_settings_of_a_client_keep_their_own_connect_function(evicting: RedisServer) -> None:
    names: list[str] = []

    def named(connection: Any) -> None:
        connection.on_connect()
        connection.send_command("CLIENT", "SETNAME", "mine")
        names.append(str(connection.read_response()))

    settings: Any = {"redis_connect_func": named}
    store = RedisStore(redis.Redis(port=evicting.port, **settings))
    (found,) = run(store.memory_policies())
    assert found.evicts
    assert names
    run(store.close())
