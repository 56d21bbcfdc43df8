"""Settings of a Redis that break a guarantee without an error are reported."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace

import pytest
import redis

from lockgate import Gate, run
from lockgate.core.ledger import Hit
from lockgate.events import Event, Events
from lockgate.stores.answers import NO_KEYS, StoreWarning
from lockgate.stores.redis import RedisStore, server_settings
from tests.servers import RedisServer, redis_cluster, redis_server

from ..making import BOOK, draft_of, new_key
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
    run(store.charge("org_1", Hit(WINDOWS, 1)))


def of_kind(kind: str, found: Sequence[StoreWarning]) -> list[str]:
    return [warning.text for warning in found if warning.kind == kind]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_an_evicting_server_is_reported_once_with_the_remedy(
    evicting: RedisServer, events: list[Event], caplog: pytest.LogCaptureFixture
) -> None:
    store = RedisStore(evicting.url())
    store.watch(Events(events.append), 0.25)

    async def in_a_loop() -> None:
        await store.charge("org_1", Hit(WINDOWS, 1))
        store.reset_connections()
        await store.charge("org_1", Hit(WINDOWS, 1))
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


def test_a_gate_that_watches_later_gets_the_event_too(
    evicting: RedisServer, events: list[Event]
) -> None:
    store = RedisStore(evicting.url())
    hit(store)
    store.watch(Events(events.append), 0.25)
    assert [event.name for event in events] == ["redis_evicts"]
    run(store.close())


@pytest.fixture
def configure() -> Iterator[Callable[..., None]]:
    """Configures the server that tests share, and takes it back."""
    defaults = {"maxmemory": "0", "maxmemory-policy": "noeviction", "save": "", "appendonly": "no"}
    with server("single").client() as client:

        def set_all(**settings: object) -> None:
            for name, value in settings.items():
                client.config_set(name.replace("_", "-"), str(value))

        yield set_all
        for name, value in defaults.items():
            client.config_set(name, value)


def found(kind: str) -> list[str]:
    """The warnings of a new store about the server that tests share."""
    store = opened("single")
    texts = of_kind(kind, run(store.warnings()))
    run(store.close())
    return texts


def test_a_server_that_does_not_evict_is_not_reported(
    configure: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    for maxmemory, policy in ((0, "allkeys-lru"), (MEMORY, "noeviction"), (0, "noeviction")):
        configure(maxmemory=maxmemory, maxmemory_policy=policy)
        assert found("eviction") == []
    assert not warnings(caplog)


def test_a_changed_eviction_policy_is_reported_on_the_next_connection(
    configure: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    """Evictions of all keys are said to lose API keys."""
    configure(maxmemory=MEMORY)
    store = opened("single")
    hit(store)
    assert not warnings(caplog)
    configure(maxmemory_policy="allkeys-lfu")
    store.reset_connections()
    hit(store)
    (message,) = warnings(caplog)
    assert "allkeys-lfu" in message
    assert "API keys, plans and job slots are lost" in message
    assert of_kind("eviction", run(store.warnings())) == [message]
    run(store.close())


def test_a_server_whose_memory_is_nearly_full_is_told(configure: Callable[..., None]) -> None:
    configure(maxmemory=MEMORY)
    assert found("memory") == []
    configure(maxmemory=2**20)
    (message,) = found("memory")
    assert "raise maxmemory" in message


def test_a_server_without_persistence_is_reported(configure: Callable[..., None]) -> None:
    for save, appendonly, is_lost in (("3600 1", "no", 0), ("", "no", 1), ("", "yes", 0)):
        configure(save=save, appendonly=appendonly)
        texts = found("persistence")
        assert len(texts) == is_lost
        address = f"127.0.0.1:{server('single').port}"
        assert all(address in text and "appendonly" in text for text in texts)


@pytest.mark.parametrize("rights", [["+info"], ["+config|get"], []])
@pytest.mark.parametrize("awaits", [False, True])
def test_settings_that_may_not_be_read_are_not_reported(
    evicting: RedisServer, rights: list[str], awaits: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with evicting.client() as client:
        allowed = ["+eval", "+evalsha", "+time", "+getrange", "+set", "+setrange", *rights]
        client.execute_command("ACL", "SETUSER", "app", "reset", "on", ">pw", "~*", *allowed)
    store = RedisStore(f"redis://app:pw@127.0.0.1:{evicting.port}")

    async def ask() -> Sequence[StoreWarning]:
        await store.charge("org_1", Hit(WINDOWS, 1))
        found = await store.warnings()
        await store.close()
        return found

    (text,) = of_kind("eviction", asyncio.run(ask()) if awaits else run(ask()))
    assert ("volatile-lru" if rights else "does not tell this user") in text
    assert len(warnings(caplog)) == len(rights)


def test_a_store_without_keys_is_reported_beside_other_data() -> None:
    store, made = opened("redis"), new_key()
    with server("redis").client() as client:
        client.set("other", "data")
    assert NO_KEYS in run(store.warnings())
    run(store.insert(draft_of(made), None))
    assert NO_KEYS not in run(store.warnings())
    run(store.close())


def test_each_evicting_server_of_a_cluster_is_reported(
    events: list[Event], caplog: pytest.LogCaptureFixture
) -> None:
    with redis_cluster(0, *EVICTING) as cluster:
        store = RedisStore(cluster.url())
        store.watch(Events(events.append), 0.25)
        texts = of_kind("eviction", run(store.warnings()))
        assert len(set(texts)) == len(cluster.nodes)
        assert len(warnings(caplog)) == len(events) == len(cluster.nodes)
        run(store.close())


def test_the_primary_that_sentinels_name_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    watched = server("sentinel")
    with redis.Redis(port=watched.named()) as primary:
        primary.config_set("maxmemory", MEMORY)
        primary.config_set("maxmemory-policy", "allkeys-lru")
        try:
            store = opened("sentinel")
            hit(store)
            (message,) = [each for each in warnings(caplog) if "evict" in each]
            assert of_kind("eviction", run(store.warnings())) == [message]
            run(store.close())
        finally:
            primary.config_set("maxmemory", 0)
            primary.config_set("maxmemory-policy", "noeviction")
    assert f"127.0.0.1:{watched.named()}" in message


@pytest.mark.parametrize(("ahead", "word"), [(-999, "ahead"), (999, "behind"), (0.5, None)])
def test_a_clock_that_differs_by_more_than_a_second_is_reported(
    ahead: float, word: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(time=lambda: time.time() + ahead)
    monkeypatch.setattr(server_settings, "time", clock)
    store = opened("single")
    texts = of_kind("clock", run(store.warnings()))
    run(store.close())
    assert len(texts) == (word is not None)
    for told in texts:
        seconds = re.search(rf"clock of Redis .*is ([\d.]+) s {word}", told)
        # What the call may have lasted is no difference.
        assert seconds is not None
        assert 900 < float(seconds[1]) <= 999


def test_a_gate_that_becomes_ready_logs_each_warning_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with redis_server(*EVICTING) as running:
        gate = Gate(running.url(), brand="acme")
        run(gate.ready())
        run(gate.close())
    texts = warnings(caplog)
    assert len([text for text in texts if "evicts keys" in text]) == 1
    assert len([text for text in texts if "nothing on its disk" in text]) == 1


def test_a_gate_becomes_ready_although_the_settings_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fail(_: RedisStore) -> Sequence[StoreWarning]:
        raise ConnectionError

    monkeypatch.setattr(RedisStore, "warnings", fail)
    gate = Gate(server("single").url(), brand="acme")
    run(gate.ready())
    assert gate.readiness.is_ready
    run(gate.close())
