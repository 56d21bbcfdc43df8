"""The scenarios: servers, the fault of an operator or an accident, and the promised bounds."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from time import monotonic, sleep
from typing import Any, NamedTuple

import pytest
from redis.exceptions import RedisError, ResponseError

from lockgate.stores.redis.key_names import DEFAULT_PREFIX, Names
from lockgate.stores.redis.transport.sentinels import LEASE
from tests.network import Network
from tests.servers import (
    PostgresServer,
    RedisCluster,
    RedisSentinel,
    RedisServer,
    redis_cluster,
    redis_sentinel,
    redis_server,
)

from .callers import LIMIT

NAMES = Names(DEFAULT_PREFIX)
SLOTS = 16384
ALONE, SQLITE, POSTGRES = "alone", "SQLite", "PostgreSQL"
"""What Redis stands beside."""
ALL = ALONE, SQLITE, POSTGRES
PAIRS = SQLITE, POSTGRES
LOGGED = "--appendonly", "yes", "--appendfsync", "always"
NO_SLOW_START = "--repl-diskless-sync-delay", "0"
SERVERS_AT_MOST = 60.0
"""Seconds in which servers execute an administrative command."""


class Scene(NamedTuple):
    """Running servers, and the fault to inject."""

    url: str
    act: Callable[[], float | None]
    """Does it; gives the instant at which the servers themselves answered again, if they did not
    meanwhile."""
    is_affected: Callable[[str], bool] | None = None
    """Whether a fault concerns an organization; None: it concerns all."""
    prepare: Callable[[Callable[[int], list[str]]], None] = lambda _: None
    """Told how to learn the ids of organizations, before the load begins."""


class Promise(NamedTuple):
    """The bounds that the docs promise; None: no bound."""

    refused: int | None = None
    """How many of the organizations concerned get 503."""
    longest: float | None = None
    """For how many seconds they do."""
    others: int | None = 0
    """How many of the other organizations get 503."""
    back: float | None = None
    """Seconds after which they are admitted again, once the servers answer."""
    beyond: int | None = 0
    """Admissions beyond the limit, of one organization."""
    lost: int | None = 0
    """Admissions by keys whose revocation was answered."""
    usage: int | None = 0
    """Admissions that are not in `requestCount`."""
    known: bool = True
    """Whether no key is called unknown."""


class Scenario(NamedTuple):
    """What happens to which servers."""

    name: str
    servers: str
    build: Callable[[ExitStack, Any], Scene]
    """Starts the servers; the other argument is the database beside them, if there is one."""
    promise: Promise
    pair: Promise | None = None
    """The bounds of a CachedStore; None: the same."""
    beside: tuple[str, ...] = ALL
    durability: str | None = None
    warm: bool = True
    """Whether processes have seen each key before."""

    def promised(self, beside: str) -> Promise:
        return self.promise if beside == ALONE or self.pair is None else self.pair


class ServersFailed(Exception):
    """The servers did not come back, so the scenario cannot be measured."""


def when(happens: Callable[[], bool]) -> float:
    """Wait until something is true; gives the instant at which it was first seen to be."""
    until = monotonic() + SERVERS_AT_MOST
    while not happens():
        if monotonic() > until:
            raise ServersFailed("The servers did not do what they were told.")
        sleep(0.003)
    return monotonic()


def tell(node: RedisServer, *words: object) -> Any:
    with node.client() as client:
        return client.execute_command(*words)


def writes(node: RedisServer, slot: int | None = None) -> bool:
    """Whether a server takes a write, of a Cluster into a slot."""
    name = "probe" if slot is None else f"{{{_TAGS[slot]}}}probe"
    try:
        return bool(tell(node, "SET", name, "1", "PX", 1000))
    except (RedisError, OSError):
        return False


class _Tags(dict[int, str]):
    """A text for each slot that has the slot when it is the tag of a name."""

    def __missing__(self, slot: int) -> str:
        from redis.crc import key_slot

        self[slot] = next(t for t in map(str, range(10**7)) if key_slot(t.encode()) == slot)
        return self[slot]


_TAGS = _Tags()


# --- Sentinels: a primary, two replicas, three Sentinels -----------------------------------------


def replaced(group: RedisSentinel, old: int, by: tuple[int, ...] = (0, 1, 2)) -> bool:
    """Whether Sentinels name another primary than the old one, and it takes writes."""
    named = {group.named(group.sentinels[number]) for number in by}
    return len(named) == 1 and old not in named and writes(group.node(named.pop()))


def guarded(
    act: Callable[[RedisSentinel], float | None],
) -> Callable[[ExitStack, Any], Scene]:
    def build(stack: ExitStack, _: Any) -> Scene:
        group = stack.enter_context(redis_sentinel(replicas=2, sentinels=3))
        return Scene(group.url(), lambda: act(group))

    return build


def fail_over(group: RedisSentinel) -> float:
    old = group.named()
    group.fail_over(by=1)
    return when(lambda: replaced(group, old))


def kill_the_primary(group: RedisSentinel) -> float:
    old = group.named()
    group.node(old).stop(signal.SIGKILL)
    return when(lambda: replaced(group, old))


def stop_and_wake_the_primary(group: RedisSentinel) -> float:
    old = group.named()
    with group.node(old).stopped():
        answered = when(lambda: replaced(group, old))
        sleep(1)
    return answered


def fail_over_without_one_sentinel(group: RedisSentinel) -> float:
    old = group.named()
    with group.sentinels[0].stopped():
        group.fail_over(by=1)
        answered = when(lambda: replaced(group, old, by=(1, 2)))
        sleep(1)
    return answered


def cut_off_two_sentinels(group: RedisSentinel) -> float:
    with group.sentinels[0].stopped(), group.sentinels[1].stopped():
        sleep(5)
    return monotonic()


def installed() -> list[str]:
    """Give the programs of each Redis on the path, the oldest release first."""
    found = [Path(folder) / "redis-server" for folder in os.get_exec_path()]
    return sorted({str(path) for path in found if path.exists()}, key=version)


def releases() -> tuple[str, str]:
    """Give the programs of the oldest and the newest Redis that are installed."""
    programs = installed()
    if not programs or version(programs[0])[:2] == version(programs[-1])[:2]:
        pytest.skip("no two releases of Redis are installed here")
    return programs[0], programs[-1]


@cache
def version(program: str) -> tuple[int, ...]:
    """Give the version of a `redis-server`."""
    told = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    return tuple(map(int, told.stdout.partition("v=")[2].split()[0].split(".")))


def release(program: str) -> str:
    """Give the version of a `redis-server` as text."""
    return ".".join(map(str, version(program)))


def begin_anew(server: RedisServer, program: str | None) -> None:
    """Restart a server, as another program where one is given."""
    server.stop(signal.SIGTERM)
    server.program = program or server.program
    server.start()


def restart_one_by_one(group: RedisSentinel, program: str | None = None) -> float:
    """Restart replicas, Sentinels, then the primary once another one has its place."""
    old = group.named()

    def are_linked() -> bool:
        state = tell(group.node(old), "ROLE")
        return len(state[2]) == len(group.replicas)

    tell(group.node(old), "CONFIG", "SET", "repl-diskless-sync-delay", 0)
    for replica in group.replicas:
        begin_anew(replica, program)
        when(are_linked)
    for sentinel in group.sentinels:
        begin_anew(sentinel, program)
        sleep(1)
    answered = fail_over(group)
    begin_anew(group.node(old), program)
    return answered


def upgraded(stack: ExitStack, _: Any) -> Scene:
    """Restart all servers and Sentinels one by one, as a newer release."""
    older, newer = releases()
    group = stack.enter_context(redis_sentinel(replicas=2, sentinels=3, program=older))
    return Scene(group.url(), lambda: restart_one_by_one(group, newer))


def split(stack: ExitStack, _: Any) -> Scene:
    """Keep the primary, one Sentinel and one process of callers apart from all others.

    The others promote a replica. They do so only after the time for which an answer of the
    Sentinels counts, as with the usual `down-after-milliseconds`, which is ten times that.
    """
    network = Network()
    stack.callback(network.close)
    group = stack.enter_context(
        redis_sentinel(replicas=2, sentinels=3, down_after=LEASE + 1, network=network)
    )

    def act() -> float:
        old = group.named()
        apart = [group.node(old), group.sentinels[0]]
        with network.split([*(server.pid() for server in apart), network.strangers[0]]):
            when(lambda: replaced(group, old, by=(1, 2)))
            sleep(2)
        return when(lambda: replaced(group, old))

    return Scene(group.url(), act)


# --- Clusters: three masters, with or without replicas --------------------------------------------


def is_on_the_first(organization: str) -> bool:
    return NAMES.place(organization).slot < SLOTS // 3


class Ids:
    """The organizations that a scene learns when they exist."""

    def __init__(self) -> None:
        self.give: Callable[[int], list[str]] = lambda number: []

    def __call__(self, give: Callable[[int], list[str]]) -> None:
        self.give = give

    def slots(self, number: int) -> list[int]:
        """The slots of organizations concerned: those in use first, then those not yet in use."""
        return [NAMES.place(id).slot for id in self.give(number)]


def cluster(
    act: Callable[[RedisCluster, Ids], float | None],
    replicas: int = 0,
    *options: str,
    settings: tuple[tuple[str, str], ...] = (),
    is_affected: Callable[[str], bool] | None = is_on_the_first,
    newest: bool = False,
) -> Callable[[ExitStack, Any], Scene]:
    def build(stack: ExitStack, _: Any) -> Scene:
        program = next(reversed(installed()), None) if newest else None
        own = stack.enter_context(redis_cluster(replicas, *options, program=program))
        for node in own.nodes:
            for name, value in settings:
                try:
                    tell(node, "CONFIG", "SET", name, value)
                except ResponseError:
                    pytest.skip(f"this Redis has no {name}")
        ids = Ids()
        return Scene(own.url(), lambda: act(own, ids), is_affected, ids)

    return build


def first_slot(ids: Ids) -> int:
    return ids.slots(1)[0]


def hand_over(own: RedisCluster, ids: Ids) -> None:
    tell(own.nodes[3], "CLUSTER", "FAILOVER")
    when(lambda: writes(own.nodes[3], first_slot(ids)))


def kill_a_master(own: RedisCluster, ids: Ids) -> float:
    own.nodes[0].stop(signal.SIGKILL)
    return when(lambda: writes(own.nodes[3], first_slot(ids)))


def stop_a_master(own: RedisCluster, ids: Ids) -> float:
    with own.nodes[0].stopped():
        answered = when(lambda: writes(own.nodes[3], first_slot(ids)))
        sleep(2)
    return answered


def lose_a_shard(own: RedisCluster, ids: Ids) -> float:
    own.nodes[0].stop(signal.SIGKILL)
    sleep(3)
    own.nodes[0].start()
    return when(lambda: writes(own.nodes[0], first_slot(ids)))


def begin_to_move(own: RedisCluster, slot: int, source: RedisServer, target: RedisServer) -> None:
    tell(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", own.id(source))
    tell(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", own.id(target))


def move(own: RedisCluster, slot: int, source: RedisServer, target: RedisServer) -> None:
    """Move a slot key by key, and have it lie in between for a moment after the first key."""
    begin_to_move(own, slot, source, target)
    number = 0
    while names := tell(source, "CLUSTER", "GETKEYSINSLOT", slot, 1):
        tell(source, "MIGRATE", "127.0.0.1", target.port, names[0], 0, 5000)
        sleep(0.01 if number else 0.2)
        number += 1
    others = [node for node in own.nodes if node not in (source, target)]
    for node in (target, source, *others):
        with suppress(ResponseError):  # A node whose last slot leaves becomes a replica.
            tell(node, "CLUSTER", "SETSLOT", slot, "NODE", own.id(target))


def reshard(own: RedisCluster, ids: Ids) -> None:
    for slot in dict.fromkeys(ids.slots(10)):
        move(own, slot, own.nodes[0], own.nodes[1])


def come_and_go(stack: ExitStack, _: Any) -> Scene:
    """Add a node under load, give it slots, take them back and remove it; it goes on running."""
    own = stack.enter_context(redis_cluster())
    options = "--cluster-enabled", "yes", "--cluster-node-timeout", "1000"
    fourth = stack.enter_context(RedisServer(*options))
    ids = Ids()

    def is_known() -> bool:
        everyone = [*own.nodes, fourth]
        return b"cluster_state:ok" in tell(fourth, "CLUSTER", "INFO") and all(
            tell(each, "CLUSTER", "NODES").count(b" connected") == len(everyone)
            for each in everyone
        )

    def act() -> None:
        tell(fourth, "CLUSTER", "MEET", "127.0.0.1", own.nodes[0].port)
        when(is_known)
        slots = list(dict.fromkeys(ids.slots(4)))
        for slot in slots:
            move(own, slot, own.nodes[0], fourth)
        sleep(0.5)
        for slot in slots:
            move(own, slot, fourth, own.nodes[0])
        # What `redis-cli --cluster del-node` does.
        name = own.id(fourth)
        for node in own.nodes:
            tell(node, "CLUSTER", "FORGET", name)
        tell(fourth, "CLUSTER", "RESET", "SOFT")
        for node in own.nodes:  # All processes have to ask anew where the slots are.
            tell(node, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    hosts = ",".join(f"127.0.0.1:{node.port}" for node in (fourth, *own.nodes))
    return Scene(f"redis+cluster://{hosts}", act, is_on_the_first, ids)


def restart_the_cluster(own: RedisCluster, _: Ids, program: str | None = None) -> None:
    """Restart the replicas, then each master once its replica has its place."""

    def links(node: RedisServer) -> bool:
        with suppress(RedisError, OSError), node.client() as client:
            info: Any = client.info("replication")
            return bool(info.get("master_link_status") == "up")
        return False

    def restart(node: RedisServer) -> None:
        begin_anew(node, program)
        when(lambda: links(node))
        when(lambda: all(map(own.ready, own.nodes)))

    def hand_over(master: RedisServer, replica: RedisServer) -> None:
        tell(replica, "CLUSTER", "FAILOVER")
        when(lambda: tell(master, "ROLE")[0] == b"slave" and links(master))

    masters, replicas = own.nodes[:3], own.nodes[3:]
    for replica in replicas:
        restart(replica)
    for master, replica in zip(masters, replicas, strict=True):
        hand_over(master, replica)
        restart(master)


def upgraded_cluster(stack: ExitStack, _: Any) -> Scene:
    """Restart all nodes one by one, as a newer release."""
    older, newer = releases()
    own = stack.enter_context(redis_cluster(3, *NO_SLOW_START, program=older))
    return Scene(own.url(), lambda: restart_the_cluster(own, Ids(), newer))


def hang_up_on_all(own: RedisCluster, ids: Ids) -> None:
    _hang_up_on_all(own.nodes)


# --- One server -----------------------------------------------------------------------------------


def single(
    act: Callable[[RedisServer], float | None], *options: str
) -> Callable[[ExitStack, Any], Scene]:
    def build(stack: ExitStack, _: Any) -> Scene:
        server = stack.enter_context(redis_server(*options))
        return Scene(server.url(), lambda: act(server))

    return build


def restart(server: RedisServer) -> float:
    server.stop(signal.SIGKILL)
    sleep(1)
    server.start()
    return monotonic()


def _hang_up_on_all(nodes: list[RedisServer]) -> None:
    for _ in range(40):
        for node in nodes:
            tell(node, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        sleep(0.05)


def hang_up(server: RedisServer) -> None:
    _hang_up_on_all([server])


def evict(server: RedisServer) -> None:
    """Fill a server that evicts with what others keep there."""
    with server.client() as client:
        memory: Any = client.info("memory")
        client.config_set("maxmemory-policy", "allkeys-lru")
        client.config_set("maxmemory", memory["used_memory"] + 2**20)
        for number in range(4000):
            client.set(f"of others {number}", b"x" * 1000)


def database_restarts(stack: ExitStack, database: Any) -> Scene:
    server = stack.enter_context(redis_server())

    def act() -> float:
        postgres: PostgresServer = database
        postgres.stop(signal.SIGINT)
        sleep(2)
        postgres.start()
        return monotonic()

    return Scene(server.url(), act)


def nothing(server: RedisServer) -> None:
    sleep(3)


@contextmanager
def started(scenario: Scenario, database: Any) -> Iterator[Scene]:
    """Start the servers of a scenario, and stop them afterwards."""
    with ExitStack() as stack:
        yield scenario.build(stack, database)


UNTOUCHED = Promise(refused=0)
"""No request of any organization is refused."""
PAUSE = 1.5
"""Seconds between two tries of a store with one circuit breaker, and one more call."""
FALLS_BACK = Promise(beyond=LIMIT)
"""A pair admits the shares of all processes beside what had been admitted (W15)."""

SCENARIOS = [
    Scenario("nothing", "Redis", single(nothing), UNTOUCHED),
    Scenario(
        "killed for 1 s, keeps a log",
        "Redis",
        single(restart, *LOGGED),
        Promise(back=PAUSE),
        FALLS_BACK,
    ),
    Scenario("all clients are killed 40 times", "Redis", single(hang_up), Promise(), FALLS_BACK),
    Scenario(
        "evicts (`allkeys-lru`)",
        "Redis",
        single(evict),
        Promise(beyond=None, lost=None, usage=None, known=False),
        Promise(beyond=None),
    ),
    Scenario(
        "PostgreSQL restarts in 2 s",
        "Redis",
        database_restarts,
        Promise(),
        beside=(POSTGRES,),
    ),
    Scenario("planned failover", "Sentinel", guarded(fail_over), Promise(longest=1.0), FALLS_BACK),
    Scenario(
        "the primary is killed",
        "Sentinel",
        guarded(kill_the_primary),
        Promise(lost=None, beyond=3, usage=None, back=PAUSE),
        FALLS_BACK,
    ),
    Scenario(
        "the primary is killed, `replicas:2`",
        "Sentinel",
        guarded(kill_the_primary),
        Promise(beyond=3, usage=None, back=PAUSE),
        beside=(ALONE,),
        durability="replicas:2",
    ),
    Scenario(
        "the primary is stopped, replaced, wakes",
        "Sentinel",
        guarded(stop_and_wake_the_primary),
        Promise(beyond=3, usage=None, back=PAUSE),
        FALLS_BACK,
    ),
    Scenario(
        "planned failover, one Sentinel is cut off",
        "Sentinel",
        guarded(fail_over_without_one_sentinel),
        Promise(longest=1.5),
        FALLS_BACK,
    ),
    Scenario(
        "two of three Sentinels are cut off for 5 s",
        "Sentinel",
        guarded(cut_off_two_sentinels),
        Promise(longest=4.0, back=PAUSE),
        FALLS_BACK,
    ),
    Scenario(
        "rolling restart of all servers and Sentinels",
        "Sentinel",
        guarded(restart_one_by_one),
        Promise(longest=1.5),
        FALLS_BACK,
    ),
    Scenario(
        "rolling upgrade of all servers and Sentinels",
        "Sentinel",
        upgraded,
        Promise(longest=1.5),
        FALLS_BACK,
    ),
    Scenario(
        "the network splits, the primary on the smaller side",
        "Sentinel",
        split,
        Promise(beyond=LIMIT, usage=None, back=3.5),  # A question on its way ends after 1 s.
        FALLS_BACK,
    ),
    Scenario("planned failover", "Cluster", cluster(hand_over, 1), UNTOUCHED),
    Scenario(
        "a master is killed",
        "Cluster",
        cluster(kill_a_master, 1),
        Promise(lost=None, beyond=3, usage=None, back=0.3),
        FALLS_BACK,
    ),
    Scenario(
        "a master is stopped, replaced, wakes",
        "Cluster",
        cluster(stop_a_master, 1),
        Promise(beyond=3, usage=None, back=0.5),
        FALLS_BACK,
    ),
    Scenario("ten slots move, used and idle", "Cluster", cluster(reshard), UNTOUCHED, warm=False),
    Scenario(
        "the same, `unknown-endpoint`",
        "Cluster",
        cluster(
            reshard,
            settings=(("cluster-preferred-endpoint-type", "unknown-endpoint"),),
            newest=True,  # Redis has the setting since 7.0.
        ),
        UNTOUCHED,
        warm=False,
    ),
    Scenario("a node comes, and is removed", "Cluster", come_and_go, UNTOUCHED),
    Scenario(
        "a shard is lost for 3 s, others serve",
        "Cluster",
        cluster(lose_a_shard, 0, *LOGGED),
        Promise(back=1.0),
        FALLS_BACK,
    ),
    Scenario(
        "a shard is lost for 3 s, full coverage",
        "Cluster",
        cluster(lose_a_shard, 0, *LOGGED, settings=(("cluster-require-full-coverage", "yes"),)),
        Promise(others=None, back=2.5),
        FALLS_BACK,
    ),
    Scenario(
        "rolling restart of six nodes",
        "Cluster",
        cluster(restart_the_cluster, 3, *NO_SLOW_START, is_affected=None),
        UNTOUCHED,
    ),
    Scenario(
        "rolling upgrade of six nodes",
        "Cluster",
        upgraded_cluster,
        UNTOUCHED,
    ),
    Scenario(
        "all clients are killed 40 times",
        "Cluster",
        cluster(hang_up_on_all, is_affected=None),
        Promise(),
        FALLS_BACK,
    ),
]
