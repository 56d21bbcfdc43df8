"""A Cluster loses one of three servers: only that server's breaker opens."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from lockgate import Event, Plan, PlanBook, run
from lockgate.errors import RateLimitExceeded, StoreUnavailable
from lockgate.options import StoreOptions
from lockgate.stores.answers import Verdict
from lockgate.stores.cached.store import CachedStore
from lockgate.stores.redis import RedisStore
from lockgate.stores.redis.key_names import slot_of
from lockgate.stores.redis.transport import pipeline
from lockgate.stores.resilience.circuit_breaker import NODE_PAUSE
from lockgate.stores.sql import SqlStore
from tests.gates import flat_gate
from tests.patience import skipping
from tests.servers import RedisCluster, RedisServer, redis_cluster

DEADLINE = 10.0
"""The deadline, in seconds: enough for a healthy server on a busy machine."""
WIDE = PlanBook([Plan("free", 10**6, 10**7, 10**8, 1)], custom=())
NARROW = PlanBook([Plan("free", None, 3, None, 1)], custom=())

colours = pytest.mark.parametrize("colour", ["async", "sync"])
losses = pytest.mark.parametrize("loss", ["killed", "stopped"])


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisCluster]:
    """Three servers; each restarts with its data."""
    with redis_cluster() as running:
        for node in running.nodes:
            with node.client() as client:
                client.config_set("appendonly", "yes")
                client.config_set("appendfsync", "always")
                until(lambda: is_logged(client))
            node.options += ["--appendonly", "yes", "--appendfsync", "always"]
        yield running


def is_logged(client: Any) -> bool:
    """Whether all that a server has is in its log."""
    info = client.info("persistence")
    return not info["aof_rewrite_scheduled"] and not info["aof_rewrite_in_progress"]


@contextmanager
def lost(node: RedisServer, loss: str) -> Iterator[None]:
    if loss == "stopped":
        with node.stopped():
            yield
    else:
        node.stop(signal.SIGKILL)
        try:
            yield
        finally:
            node.start()


class Bench:
    """A gate and two organizations on each of the servers, which serve all slots."""

    def __init__(self, cluster: RedisCluster, colour: str, make: Any, **options: Any) -> None:
        self.loop = asyncio.new_event_loop() if colour == "async" else None
        self.told: list[Event] = []
        cluster.wait(lambda: all(map(cluster.ready, cluster.nodes)))
        self.store = RedisStore(cluster.url(), prefix=f"nodes{next(_prefixes)}")
        options = {"plans": WIDE, "store_options": StoreOptions(deadline=DEADLINE), **options}
        self.gate = flat_gate(make(self.store), brand="acme", observer=self.told.append, **options)
        self.tokens: dict[int, list[str]] = {0: [], 1: [], 2: []}
        number = 0
        while min(map(len, self.tokens.values())) < 2:
            number += 1
            node = self.node_of(self.store._names.place(f"org_{number}").slot)
            if len(self.tokens[node]) < 2:
                made = self.do(self.gate.keys.create(f"org_{number}", "a key"))
                self.do(self.gate.authenticate(made.text))
                self.tokens[node].append(made.text)

    def node_of(self, slot: int) -> int:
        return next(part for part in range(3) if slot < (part + 1) * 16384 // 3)

    def do(self, flow: Any) -> Any:
        return run(flow) if self.loop is None else self.loop.run_until_complete(flow)

    def served(self, tokens: list[str], meanwhile: Sequence[str] = ()) -> list[bool]:
        """Which keys are admitted or over their limit, all at a time.

        The organizations of others come meanwhile, and each of them is served. In an event loop the
        deadline of the first is then brought about, without waiting for it.
        """
        calls = [self._served(token) for token in (*tokens, *meanwhile)]
        if self.loop is not None:
            results = self.loop.run_until_complete(_all(calls, len(meanwhile)))
        else:
            with ThreadPoolExecutor(len(calls)) as threads:
                results = list(threads.map(_run, calls))
        assert all(results[len(tokens) :])
        return results[: len(tokens)]

    async def _served(self, token: str) -> bool:
        try:
            await self.gate.authenticate(token)
        except StoreUnavailable:
            return False
        except RateLimitExceeded:
            pass
        return True

    def has(self, name: str) -> bool:
        return any(event.name == name for event in self.told)

    def events(self, name: str) -> list[str]:
        """The servers that such events are of."""
        return [str(event.fields["node"]) for event in self.told if event.name == name]

    def close(self) -> None:
        self.do(self.gate.close())
        if self.loop is not None:
            self.loop.close()


def _run(call: Coroutine[Any, Any, bool]) -> bool:
    return run(call)


async def _all(calls: Iterable[Coroutine[Any, Any, bool]], meanwhile: int) -> list[bool]:
    tasks = list(map(asyncio.ensure_future, calls))
    with skipping() as skip, pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "monotonic", asyncio.get_running_loop().time)
        if meanwhile:
            await asyncio.gather(*tasks[-meanwhile:])
            skip(DEADLINE)
        return await asyncio.gather(*tasks)


_prefixes = iter(range(1000))


@contextmanager
def bench(
    cluster: RedisCluster,
    colour: str,
    make: Callable[[RedisStore], Any] = lambda store: store,
    **options: Any,
) -> Iterator[Bench]:
    made = Bench(cluster, colour, make, **options)
    try:
        yield made
    finally:
        made.close()


def until(happens: Callable[[], object], seconds: float = 60) -> None:
    started = monotonic()
    while not happens():
        assert monotonic() - started < seconds
        sleep(0.02)


def address(node: RedisServer) -> str:
    return f"127.0.0.1:{node.port}"


@colours
@losses
def test_g4_a_lost_server_does_not_delay_organizations_of_other_servers(
    cluster: RedisCluster, colour: str, loss: str
) -> None:
    with bench(cluster, colour) as made:
        which = made.node_of(slot_of(made.store._names.change_counter))
        others = [token for node in {0, 1, 2} - {which} for token in made.tokens[node]]
        with lost(cluster.nodes[which], loss):
            while not made.events("breaker_opened"):
                assert not any(made.served(made.tokens[which] * 2, meanwhile=others * 5))
            tried, started = len(made.events("breaker_tried")), monotonic()
            assert not any(made.served(made.tokens[which] * 20, meanwhile=others * 20))
            tried = len(made.events("breaker_tried")) - tried
            # All requests except the probes were refused at once.
            assert tried <= (monotonic() - started) / NODE_PAUSE + 1
        until(lambda: all(made.served(made.tokens[which])))
        assert set(made.events("breaker_opened")) == {address(cluster.nodes[which])}
        assert set(made.events("breaker_closed")) == {address(cluster.nodes[which])}
        assert made.store._nodes.failing == {}


@colours
def test_a_change_on_a_lost_cluster_server_does_not_advise_about_sentinels(
    cluster: RedisCluster, colour: str, caplog: pytest.LogCaptureFixture
) -> None:
    with bench(cluster, colour) as made:
        token = made.tokens[1][0]
        handle = made.gate.format.parse(token).handle
        organization = made.do(made.gate.store.find(handle)).organization
        with lost(cluster.nodes[1], "killed"):
            while not made.events("breaker_opened"):
                assert not any(made.served([token]))
            with pytest.raises(StoreUnavailable):
                made.do(made.gate.organizations.place(organization, "free"))
        until(lambda: all(made.served([token])))
    assert "no server answers there" in caplog.text
    assert "Sentinels" not in caplog.text


@colours
@pytest.mark.parametrize("what", ["change_counter", "clock"])
def test_refusals_and_lists_work_without_the_server_of(
    what: str, cluster: RedisCluster, colour: str
) -> None:
    with bench(cluster, colour, plans=NARROW) as made:
        which = made.node_of(
            slot_of(made.store._names.change_counter) if what == "change_counter" else 0
        )
        elsewhere = made.tokens[(which + 1) % 3][0]
        token = made.gate.format.parse(elsewhere)
        organization = made.do(made.gate.store.find(token.handle)).organization
        while made.do(made.gate.store.admit(token, 1, NARROW)).verdict is Verdict.ADMITTED:
            pass
        with lost(cluster.nodes[which], "killed"):
            while not made.events("breaker_opened"):
                assert not any(made.served(made.tokens[which]))
            for _ in range(20):
                with pytest.raises(RateLimitExceeded):
                    made.do(made.gate.authenticate(elsewhere))
            assert len(made.do(made.gate.keys.list(organization)).keys) == 1
            assert made.do(made.gate.keys.now()) > 0
        until(lambda: all(made.served(made.tokens[which])))


@colours
def test_d28_a_pair_falls_back_for_the_organizations_of_the_lost_server_only(
    cluster: RedisCluster, colour: str, tmp_path: Path
) -> None:
    def paired(store: RedisStore) -> CachedStore:
        return CachedStore(SqlStore(f"sqlite:///{tmp_path}/keys.db?mode=rwc"), store)

    # The cache has half of it.
    with bench(cluster, colour, paired, store_options=StoreOptions(deadline=2 * DEADLINE)) as made:
        everybody = [token for node in range(3) for token in made.tokens[node]]
        with lost(cluster.nodes[1], "killed"):
            for _ in range(10):
                assert all(made.served(everybody))
        assert set(made.events("breaker_opened")) == {address(cluster.nodes[1])}
        names = [event.name for event in made.told]
        assert names.count("limits_fell_back") == 1
        assert names.count("limits_restored") == 0
        until(lambda: all(made.served(everybody)) and made.has("limits_restored"))


@colours
def test_a_walk_over_all_servers_opens_no_breaker(cluster: RedisCluster, colour: str) -> None:
    with bench(cluster, colour) as made:
        with lost(cluster.nodes[2], "killed"):
            for _ in range(5):
                with pytest.raises(StoreUnavailable):
                    made.do(made.gate.keys.census())
            assert all(made.served(made.tokens[0] + made.tokens[1]))
            assert not made.has("breaker_opened")
        until(lambda: all(made.served(made.tokens[2])))
