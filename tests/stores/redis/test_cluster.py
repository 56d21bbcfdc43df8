"""Operators change a Redis Cluster under load: slots move, nodes leave, addresses have no host."""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import redis
from redis import asyncio as redis_asyncio
from redis.asyncio.cluster import ClusterNode
from redis.exceptions import ConnectionError, ResponseError

from lockgate import Limit, Plan, PlanBook, run
from lockgate.core.api_keys import Position
from lockgate.core.changes import drafted_change
from lockgate.core.leases import TO_LIST, lease_of, leases_of, to_acquire, to_release
from lockgate.core.ledger import Hit, LeasesOut, Peek
from lockgate.core.limits import bound
from lockgate.core.quota_leases import LeaseRequest, Settlement
from lockgate.errors import StoreUnavailable
from lockgate.stores.answers import PartUnavailable, StoreError, Verdict
from lockgate.stores.cached.store import CachedStore
from lockgate.stores.redis import RedisStore
from lockgate.stores.redis.transport import client
from lockgate.stores.redis.transport.commands import Call
from lockgate.stores.redis.transport.failures import Lost
from lockgate.stores.resilience.deadlines import within
from lockgate.stores.runtime import background
from lockgate.stores.sql import SqlStore
from tests.patience import SHORT
from tests.servers import RedisCluster, RedisServer, redis_cluster

from ..making import NOW, account, draft_of, new_key, token_of
from .backends import rights
from .traffic import BOOK, PATIENT, Traffic, both_modes, drive

SMALL = PlanBook([Plan("free", rpm=3, rph=100, rpd=100, concurrent=9)])
WINDOWS = BOOK.default.windows
OPTIONS = "--cluster-enabled", "yes", "--cluster-node-timeout", "1000"
Moving = Callable[..., None]
"""Begins to move the slot of an organization, with some of its keys."""


def tell(node: RedisServer, *words: object) -> Any:
    with node.client() as client:
        return client.execute_command(*words)


def slot_of(store: RedisStore, id: str) -> int:
    return store._names.place(id).slot


@contextmanager
def one_more(cluster: RedisCluster) -> Iterator[RedisServer]:
    """Another node of a Cluster, without slots."""
    with RedisServer(*OPTIONS) as node:
        everyone = [*cluster.nodes, node]

        def known() -> bool:
            return b"cluster_state:ok" in tell(node, "CLUSTER", "INFO") and all(
                tell(each, "CLUSTER", "NODES").count(b" connected") == len(everyone)
                for each in everyone
            )

        cluster.meet(known, node)
        yield node


def give(cluster: RedisCluster, slot: int, source: RedisServer, target: RedisServer) -> None:
    """Move a slot from node to node, key by key."""
    begin(cluster, slot, source, target)
    while names := tell(source, "CLUSTER", "GETKEYSINSLOT", slot, 1):
        migrate(source, target, names[0])
        time.sleep(0.005)
    others = [node for node in cluster.nodes if node not in (source, target)]
    for node in (target, source, *others):
        with suppress(ResponseError):  # A node whose last slot leaves becomes a replica.
            tell(node, "CLUSTER", "SETSLOT", slot, "NODE", cluster.id(target))


def begin(cluster: RedisCluster, slot: int, source: RedisServer, target: RedisServer) -> None:
    tell(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", cluster.id(source))
    tell(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", cluster.id(target))


def migrate(source: RedisServer, target: RedisServer, name: bytes) -> None:
    answer = tell(source, "MIGRATE", "127.0.0.1", target.port, name, 0, 25_000)
    assert answer in (b"OK", b"NOKEY")


def remove(cluster: RedisCluster, node: RedisServer, how: str = "SOFT") -> None:
    """What ``redis-cli --cluster del-node`` does: the node goes on running, without a slot."""
    id = cluster.id(node)
    for other in cluster.nodes:
        tell(other, "CLUSTER", "FORGET", id)
    tell(node, "CLUSTER", "RESET", how)
    assert tell(node, "CLUSTER", "SLOTS") == []


def organizations_of(store: RedisStore, part: int, number: int = 4) -> list[str]:
    """Organizations in slots that one of three nodes has in the beginning."""
    ids = map(str, range(10_000))
    found = (id for id in ids if slot_of(store, id) * 3 // 16384 == part)
    return [next(found) for _ in range(number)]


def homes(cluster: RedisCluster, slot: int) -> tuple[RedisServer, RedisServer]:
    """The node that has a slot, and the next one."""
    ranges = tell(cluster.nodes[0], "CLUSTER", "SLOTS")
    port = next(place[1] for first, last, place, *_ in ranges if first <= slot <= last)
    nodes = cluster.nodes[:3]
    number = [node.port for node in nodes].index(port)
    return nodes[number], nodes[(number + 1) % 3]


def used(store: RedisStore, id: str) -> int:
    return run(store.charge(id, Peek(WINDOWS))).used[0]


@pytest.fixture(scope="module")
def own() -> Iterator[RedisCluster]:
    """A Cluster that the tests here may upset."""
    with redis_cluster() as cluster:
        yield cluster


@pytest.fixture
def moving(own: RedisCluster) -> Iterator[Moving]:
    with ExitStack() as stack:

        def begin_to_move(store: RedisStore, id: str, *names: bytes) -> None:
            slot = slot_of(store, id)
            source, target = homes(own, slot)
            begin(own, slot, source, target)
            stack.callback(give, own, slot, source, target)
            for name in names:
                migrate(source, target, name)

        yield begin_to_move


# --- Slots that are half moved ----------------------------------------------------------------


@pytest.mark.parametrize("records", [False, True], ids=["records stay", "records moved"])
@pytest.mark.parametrize(
    ("is_idle", "windows"),
    [(True, False), (False, False), (False, True)],
    ids=["no windows", "windows stay", "windows moved"],
)
def test_a_slot_that_is_half_moved_admits_exactly_the_limit(
    own: RedisCluster, moving: Moving, is_idle: bool, records: bool, windows: bool
) -> None:
    store = RedisStore(own.url(), prefix=f"half-{is_idle}-{records}-{windows}")
    made, spare, short = new_key(), new_key(), new_key()
    place = store._names.place("org_1")

    async def all_of_it() -> None:
        for key in (made, spare):
            await store.insert(draft_of(key), None)
        ending = await store.insert(draft_of(short, lifetime=10**6), None, NOW)
        already = 0 if is_idle else 1
        if already:
            await store.admit(token_of(made), 1, SMALL)
        moving(store, "org_1", *[place.organization] * records, *[place.windows] * windows)
        for count in range(already + 1, 4):
            admission = await store.admit(token_of(made), 1, SMALL)
            assert admission.verdict is Verdict.ADMITTED
            assert admission.key is not None
            assert admission.key.request_count == count
            assert admission.reading is not None
            assert admission.reading.used[0] == count
        for token in (token_of(made), token_of(spare)):
            assert (await store.admit(token, 1, SMALL)).verdict is Verdict.LIMITED
        expired = await store.admit(token_of(short), 1, SMALL, ending.expires_at)
        assert expired.verdict is Verdict.EXPIRED
        assert (await store.charge("org_1", Peek(SMALL.default.windows))).used[0] == 3
        await store.close()

    drive("sync" if records else "awaiting", all_of_it())


@pytest.mark.parametrize("moved", ["windows", "limits", "organization"])
def test_a_slot_that_is_half_moved_admits_exactly_the_named_limit(
    own: RedisCluster, moving: Moving, moved: str
) -> None:
    """Also by a hit, without a key; a request that the limit refuses costs the plan nothing."""
    store = RedisStore(own.url(), prefix=f"limits-{moved}")
    made, limits = new_key(), (Limit("export", "2/hour"), Limit("own", "9/hour", by="key"))
    book = PlanBook([Plan("free", rpm=9, rph=100, rpd=100, concurrent=9)])
    named = bound(limits[:1], None)
    assert named is not None
    run(store.insert(draft_of(made), None))
    asked = token_of(made), 1, book, None, None, limits
    assert run(store.admit(*asked)).verdict is Verdict.ADMITTED
    moving(store, "org_1", getattr(store._names.place("org_1"), moved))
    second = run(store.admit(*asked))
    assert second.verdict is Verdict.ADMITTED
    assert second.reading is not None
    assert second.reading.used == (2, 2, 2, 2, 2)
    refused = run(store.admit(*asked))
    assert refused.verdict is Verdict.LIMITED
    assert refused.reading is not None
    assert (refused.reading.used, refused.reading.refused_by) == ((2, 2, 2, 2, 2), 3)
    by_hit = run(store.charge("org_1", Hit(book.default.windows, 1, named)))
    assert (by_hit.allowed, by_hit.used) == (False, (2, 2, 2, 2))
    assert run(store.charge("org_1", Peek(book.default.windows, named))).used[0] == 2
    run(store.close())


def test_a_slot_that_is_half_moved_settles_leases_and_grants_none_D42(
    own: RedisCluster, moving: Moving
) -> None:
    store, made = RedisStore(own.url(), prefix="leases"), new_key()
    book = PlanBook([Plan("free", rpm=6_000, rph=6_000, rpd=6_000, concurrent=9)])
    run(store.insert(draft_of(made), None))
    first = LeaseRequest(f"{1:016x}", 20, 2_000_000)
    lease = run(store.admit(token_of(made), 1, book, NOW, lease=first)).lease
    assert lease is not None
    moving(store, "org_1", store._names.place("org_1").windows)
    assert run(store.charge("org_1", LeasesOut(), NOW)) == (lease,)
    settled = (Settlement(lease.id, ((NOW, 4),)),)
    second = LeaseRequest(f"{2:016x}", 20, 2_000_000, settled)
    admission = run(store.admit(token_of(made), 1, book, NOW, lease=second))
    assert (admission.verdict, admission.lease) == (Verdict.ADMITTED, None)
    assert admission.reading is not None
    assert admission.reading.used == (6, 6, 6)
    assert run(store.charge("org_1", LeasesOut(), NOW)) == ()
    run(store.close())


@pytest.mark.parametrize(
    "moved",
    [
        (),
        ("organization",),
        ("created",),
        ("organization", "created"),
        ("organization", "windows"),
        ("created", "live"),
        ("live", "ended"),
        ("windows", "live"),
    ],
    ids=lambda names: "-".join(names) or "nothing",
)
def test_k4_keys_are_listed_and_revoked_while_their_slot_is_half_moved(
    own: RedisCluster, moving: Moving, moved: tuple[str, ...]
) -> None:
    """A revocation is whole and recorded once, and holds in a process that knew the key."""
    store, other = (RedisStore(own.url(), prefix=f"k4-{'-'.join(moved)}") for _ in range(2))
    made = new_key()
    first, second, third = (
        run(store.insert(draft_of(key), None)) for key in (made, new_key(), new_key())
    )
    run(store.revoke_if_live("org_1", third.id))
    for each in (store, other):
        assert run(each.admit(token_of(made), 1, BOOK)).verdict is Verdict.ADMITTED
    before, place = run(store.list("org_1", 2)), store._names.place("org_1")
    moving(store, "org_1", *(getattr(place, name) for name in moved))
    assert run(store.list("org_1", 2)) == before
    following = run(store.list("org_1", 2, Position(before[-1].created_at, before[-1].id)))
    assert {key.id for key in (*before, *following)} == {first.id, second.id, third.id}
    assert run(other.admit(token_of(made), 1, BOOK)).verdict is Verdict.ADMITTED
    change = drafted_change("key_revoked", first.id)
    revoked = run(store.revoke_if_live("org_1", first.id, change=change))
    assert revoked is not None
    assert revoked.revoked_at is not None
    assert run(store.revoke_if_live("org_1", first.id, change=change)) == revoked
    for each in (store, other):
        assert run(each.admit(token_of(made), 1, BOOK)).verdict is Verdict.REVOKED
    assert run(store.find(made.handle)) == revoked
    assert [key.id for key in run(store.list_live("org_1", 9))] == [second.id]
    (record,) = run(store.change_log("org_1", 9))
    assert record.at == revoked.revoked_at
    assert run(store.list("org_2", 9)) == []
    for each in (store, other):
        run(each.close())


@pytest.mark.parametrize(
    ("operation", "moved"),
    [
        *(("insert", "nothing"), ("insert", "live"), ("rotate", "organization")),
        *(("rotate", "nothing"), ("claim", "live"), ("claim", "organization")),
    ],
)
def test_a_change_of_several_redis_keys_waits_for_the_end_of_the_move(
    own: RedisCluster, operation: str, moved: str
) -> None:
    """It is made once then, and nothing of it is there before."""
    store = RedisStore(own.url(), prefix=f"waits-{operation}-{moved}")
    _, key = run(store.register(account(), draft_of(new_key())))
    slot, place, another = slot_of(store, "org_1"), store._names.place("org_1"), new_key()
    source, target = homes(own, slot)

    async def change() -> None:
        draft = draft_of(another)
        if operation == "insert":
            await store.insert(draft, 5, change=drafted_change("key_created", draft.id))
        elif operation == "rotate":
            new = key._replace(revoked_at=key.created_at)
            rotated = drafted_change("key_rotated", key.id)
            assert await store.rotate_if(key, new, draft, 5, change=rotated) is not None
        else:
            claimed = drafted_change("account_claimed")
            await store.claim_if_unclaimed(
                "org_1", "ada", revoke=True, keep_token=False, change=claimed
            )

    begin(own, slot, source, target)
    if moved != "nothing":
        migrate(source, target, getattr(place, moved))
    with ThreadPoolExecutor(1) as threads:
        changing = threads.submit(run, change())
        with suppress(TimeoutError):
            changing.result(0.1)
        if not changing.done():
            assert run(store.change_log("org_1", 9)) == []
            assert run(store.list("org_1", 9)) == [key]
        give(own, slot, source, target)
        changing.result(60)
    assert len(run(store.change_log("org_1", 9))) == 1
    live = [one.handle for one in run(store.list_live("org_1", 9))]
    right = {"insert": {key.handle, another.handle}, "rotate": {another.handle}, "claim": set()}
    assert {*live} == right[operation]
    run(store.close())


def test_d33_a_request_whose_reply_is_lost_as_its_slot_begins_to_move_counts_once(
    own: RedisCluster, moving: Moving
) -> None:
    store, made = RedisStore(own.url(), prefix="lost"), new_key()
    key = run(store.insert(draft_of(made), None))
    place = store._names.place("org_1")
    client = store.clients.here()
    ask, replies = client.ask, list[Any]()

    async def lose(call: Call) -> Any:
        replies.append(await ask(call))
        if len(replies) < 2:
            return replies[-1]
        client.ask = ask
        moving(store, "org_1", place.windows)
        return Lost(ConnectionError("cut"), replies[0])

    run(store.admit(token_of(made), 1, BOOK))  # The process knows the key.
    client.ask = lose
    for _ in range(2):
        assert run(store.admit(token_of(made), 1, BOOK)).verdict is Verdict.ADMITTED
    assert used(store, "org_1") == 3
    kept = run(store.get("org_1", key.id))
    assert kept is not None
    assert kept.request_count == 3
    run(store.close())


def test_a_new_organization_in_a_slot_that_is_moved_has_keys_and_job_slots(
    own: RedisCluster, moving: Moving
) -> None:
    """By a user with the rights that the docs name, which are enough there as well."""
    for node in own.nodes:
        tell(node, *rights("lockgate"))
    address = f"127.0.0.1:{own.nodes[0].port}"
    store = RedisStore(f"redis+cluster://lockgate:password@{address}", prefix="lockgate:new")
    made = new_key()

    async def all_of_it() -> None:
        moving(store, "org_1")
        await store.insert(draft_of(made), 5)
        assert (await store.admit(token_of(made), 1, BOOK)).verdict is Verdict.ADMITTED
        lease = lease_of(await store.charge("org_1", to_acquire("job", "me", 1, 10**8)))
        assert lease is not None
        assert lease_of(await store.charge("org_1", to_acquire("other", "me", 1, 10**8))) is None
        assert leases_of((await store.charge("org_1", TO_LIST)).slots) == (lease,)
        assert (await store.charge("org_1", to_release("job", "me"))).done
        assert leases_of((await store.charge("org_1", TO_LIST)).slots) == ()
        (key,) = await store.list("org_1", 10)
        assert await store.revoke_if_live("org_1", key.id) is not None
        assert (await store.admit(token_of(made), 1, BOOK)).verdict is Verdict.REVOKED
        await store.close()

    asyncio.run(all_of_it())


# --- Slots that move, and addresses -----------------------------------------------------------


def reshard(own: RedisCluster, store: RedisStore, mode: str, number: int = 2) -> Traffic:
    """Move slots in use under load, each for a time with keys on both sides; others are idle."""
    ids = organizations_of(store, 1, 2 * number)
    with Traffic(store, mode, ids) as traffic:
        for id in ids[:number]:
            slot = slot_of(store, id)
            source, target = homes(own, slot)
            begin(own, slot, source, target)
            migrate(source, target, store._names.place(id).windows)
            traffic.goes_on(organizations=[id])
            give(own, slot, source, target)
        traffic.goes_on()
    assert traffic.causes == []
    assert "breaker_opened" not in traffic.events
    return traffic


@both_modes
def test_moving_slots_under_load_loses_refuses_and_doubles_no_request_K7(
    own: RedisCluster, mode: str
) -> None:
    traffic = reshard(own, RedisStore(own.url(), prefix=f"reshard-{mode}"), mode, 4)
    again = RedisStore(own.url(), prefix=f"reshard-{mode}")
    for id, admitted in traffic.admitted.items():
        (key,) = run(again.list(id, 10))
        assert (key.request_count, used(again, id)) == (admitted, admitted)
    run(again.close())


def elsewhere(address: tuple[str, int]) -> tuple[str, int]:
    """The client's address mapping, for a network that translates addresses."""
    host, port = address
    return ("127.0.0.1" if host == "192.0.2.1" else host), port


HOST_NAMES = "cluster-preferred-endpoint-type", "hostname", "ip"
REDIRECTIONS = {
    # How nodes name each other: settings, their values, and those of before.
    "without a host": [("cluster-preferred-endpoint-type", "unknown-endpoint", "ip")],
    "by host names": [("cluster-announce-hostname", "localhost", ""), HOST_NAMES],
    "by a host name that is missing": [HOST_NAMES],
    "by translated addresses": [("cluster-announce-hostname", "192.0.2.1", ""), HOST_NAMES],
}


@pytest.mark.parametrize("how", REDIRECTIONS)
def test_redirections_are_followed(own: RedisCluster, how: str) -> None:
    port, prefix = own.nodes[0].port, f"redirected-{how.replace(' ', '-')}"
    with ExitStack() as stack:
        for name, value, back in REDIRECTIONS[how]:
            for node in own.nodes:
                try:
                    tell(node, "CONFIG", "SET", name, value)
                except ResponseError:
                    pytest.skip(f"this Redis has no {name}")
                stack.callback(tell, node, "CONFIG", "SET", name, back)
        sources: list[Any] = [own.url()]
        if "translated" in how:
            remap: Any = {"address_remap": elsewhere}
            blocking = redis.RedisCluster(host="127.0.0.1", port=port, **remap)
            nodes = [ClusterNode("127.0.0.1", port)]
            sources = [
                stack.enter_context(blocking),
                redis_asyncio.RedisCluster(startup_nodes=nodes, **remap),
            ]
        mode = "sync" if "name" in how else "awaiting"
        reshard(own, RedisStore(*sources, prefix=prefix), mode)


def test_redirections_to_ipv6_addresses_are_followed() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("there is no IPv6 here")
    with redis_cluster(0, "--bind", "127.0.0.1", "::1", "--cluster-announce-ip", "::1") as cluster:
        store = RedisStore(f"redis+cluster://[::1]:{cluster.nodes[0].port}")
        reshard(cluster, store, "awaiting")


def test_a_slot_that_moved_is_learned_from_its_first_redirection(own: RedisCluster) -> None:
    store = RedisStore(own.url(), prefix="learned")
    id = organizations_of(store, 0, 1)[0]
    slot = slot_of(store, id)
    run(store.charge(id, Hit(WINDOWS, 1)))
    source, target = homes(own, slot)
    give(own, slot, source, target)
    run(store.charge(id, Hit(WINDOWS, 1)))
    tell(source, "CONFIG", "RESETSTAT")
    for _ in range(10):
        run(store.charge(id, Hit(WINDOWS, 1)))
    assert "cmdstat_evalsha" not in tell(source, "INFO", "commandstats")
    run(store.close())


def test_a_slot_that_cannot_be_served_is_no_failure_of_the_others(
    own: RedisCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each breaker would open at the third failure in a row."""
    # No call waits for the slot to be served, and none sends a batch with little time left.
    monkeypatch.setattr(client, "_PATIENCE", SHORT)
    monkeypatch.setattr(client, "_SHARE", SHORT / PATIENT)
    store = RedisStore(own.url(), prefix="nowhere")
    lost, healthy = organizations_of(store, 2, 2)
    slot = slot_of(store, lost)
    home, _ = homes(own, slot)
    with Traffic(store, "sync", [healthy]) as traffic:
        _, token = traffic.make_key(lost)
        for node in own.nodes:
            tell(node, "CLUSTER", "DELSLOTS", slot)
        try:
            for _ in range(5):
                with pytest.raises(StoreUnavailable):
                    run(traffic.gate.authenticate(token))
                with pytest.raises(PartUnavailable):
                    run(store.charge(lost, Hit(WINDOWS, 1)))
            traffic.goes_on()
        finally:
            tell(home, "CLUSTER", "ADDSLOTS", slot)
            own.wait(lambda: all(map(is_whole, own.nodes)))
        assert run(traffic.gate.authenticate(token)).organization == lost
    assert traffic.causes == []
    assert "breaker_opened" not in traffic.events


def is_whole(node: RedisServer) -> bool:
    return b"slots_assigned:16384" in tell(node, "CLUSTER", "INFO")


# --- Nodes that leave -------------------------------------------------------------------------


@both_modes
def test_a_node_that_is_removed_under_load_costs_no_request(own: RedisCluster, mode: str) -> None:
    with one_more(own) as leaving:
        others = ",".join(f"127.0.0.1:{node.port}" for node in own.nodes)
        url = f"redis+cluster://127.0.0.1:{leaving.port},{others}"
        store, idle = (RedisStore(url, prefix=f"leaving-{mode}") for _ in range(2))
        mine, theirs = organizations_of(store, 0, 3), organizations_of(store, 1, 3)
        at = {slot: homes(own, slot)[0] for slot in {slot_of(store, id) for id in mine}}
        for slot, home in at.items():
            give(own, slot, home, leaving)
        run(idle.charge(mine[0], Hit(WINDOWS, 1)))
        with Traffic(store, mode, [*mine, *theirs]) as traffic:
            for slot, home in at.items():
                give(own, slot, leaving, home)
            remove(own, leaving)
            traffic.goes_on()
            # Whatever is asked anew about the slots must not be asked of the node that left.
            for node in own.nodes:
                tell(node, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            traffic.goes_on()
        assert traffic.causes == []
        # A process that was idle meanwhile still looks for the slot at the old node.
        assert run(idle.charge(mine[0], Hit(WINDOWS, 1))).used[0] > 2
        run(idle.close())
        fresh = RedisStore(f"{url}?socket_timeout=5", prefix=f"leaving-{mode}")
        with Traffic(fresh, mode, [f"{id} again" for id in mine]) as traffic:
            pass
        assert traffic.causes == []


def test_a_map_of_an_older_configuration_is_not_believed(own: RedisCluster) -> None:
    """A node that was removed now says that it has every slot itself."""
    with one_more(own) as leaving:
        others = ",".join(f"127.0.0.1:{node.port}" for node in own.nodes)
        store = RedisStore(f"redis+cluster://127.0.0.1:{leaving.port},{others}", prefix="older")
        one, other = organizations_of(store, 0, 2)
        home, _ = homes(own, slot_of(store, one))
        give(own, slot_of(store, one), home, leaving)
        for id in (one, other):
            run(store.charge(id, Hit(WINDOWS, 1)))
        give(own, slot_of(store, one), leaving, home)
        remove(own, leaving, "HARD")
        for first in range(0, 16384, 1024):
            tell(leaving, "CLUSTER", "ADDSLOTS", *range(first, first + 1024))
        own.wait(lambda: b"cluster_state:ok" in tell(leaving, "CLUSTER", "INFO"))
        for _ in range(5):
            run(store.census())  # Asks anew where the slots are.
            for id in (one, other):
                run(store.charge(id, Hit(WINDOWS, 1)))
        for id in (one, other):
            assert used(store, id) == 6
        run(store.close())


def test_a_user_without_the_right_to_cluster_info_is_served(own: RedisCluster) -> None:
    user = "narrow", "on", ">pass", "~*", "+@all", "-cluster", "+cluster|slots"
    for node in own.nodes:
        tell(node, "ACL", "SETUSER", *user)
    store = RedisStore(f"redis+cluster://narrow:pass@127.0.0.1:{own.nodes[0].port}", prefix="acl")
    assert run(store.charge("org_1", Hit(WINDOWS, 1))).allowed
    run(store.close())


# --- Replicas that take a primary's place: each test takes another shard ----------------------


@pytest.fixture(scope="module")
def replicated() -> Iterator[RedisCluster]:
    with redis_cluster(3) as cluster:
        yield cluster


def has_replica(primary: RedisServer, name: bytes) -> None:
    """Wait until the replica has the keys."""
    with primary.client() as client:
        client.set(name, "0")
        assert client.wait(1, 25_000) == 1


def answers(node: RedisServer, name: bytes) -> bool:
    try:
        return bool(tell(node, "SET", name, "1"))
    except ResponseError:
        return False


def test_a_primary_that_is_killed_is_left_once_its_replica_answers(
    replicated: RedisCluster,
) -> None:
    store = RedisStore(replicated.url(), prefix="killed")
    ids = organizations_of(store, 0, 3)
    with Traffic(store, "sync", ids) as traffic:
        name = store._names.place(ids[0]).windows + b":probe"
        has_replica(replicated.nodes[0], name)
        replicated.nodes[0].stop(signal.SIGKILL)
        replicated.wait(lambda: answers(replicated.nodes[3], name))
        traffic.goes_on(1)


def test_d28_a_replica_in_the_place_of_a_primary_that_hangs_is_found_before_that_wakes(
    replicated: RedisCluster,
) -> None:
    """By callers, and by a process that makes one call at a time: each ends before the connection
    is given up, and no other call runs at that time."""
    store = RedisStore(replicated.url(), prefix="hangs")
    other = RedisStore(f"{replicated.url()}?socket_timeout=0.5", prefix="hangs")
    ids = organizations_of(store, 1, 3)
    name = store._names.place(ids[0]).windows + b":probe"

    async def hit_once() -> None:
        async with asyncio.timeout(60):
            while True:
                with suppress(OSError, StoreError), within(0.25):
                    await other.charge(ids[0], Hit(WINDOWS, 1))
                    return
                await asyncio.sleep(0.05)

    async def hit_alone() -> None:
        await other.charge(ids[0], Hit(WINDOWS, 1))
        with replicated.nodes[1].stopped():
            await hit_once()
            replicated.wait(lambda: answers(replicated.nodes[4], name))
            traffic.goes_on(5)
        await other.close()

    with Traffic(store, "awaiting", ids, deadline=0.25) as traffic:
        has_replica(replicated.nodes[1], name)
        asyncio.run(hit_alone())


def test_k4_a_replica_that_missed_a_revocation_does_not_admit_the_key(
    replicated: RedisCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes its primary's place with a copy that was voided there; another server still says
    that all copies are right. Processes that see the change ask the database until they compared.
    """
    # The copy is installed late, so no comparison may happen before.
    monkeypatch.setattr(background, "EVERY", 600.0)
    cache = RedisStore(replicated.url())
    pair, other = (
        CachedStore(SqlStore(f"sqlite:///{tmp_path}/keys.db?mode=rwc"), each)
        for each in (cache, RedisStore(replicated.url()))
    )
    primary, replica = replicated.nodes[2], replicated.nodes[5]
    id = organizations_of(cache, 2, 1)[0]
    place, made = cache._names.place(id), new_key()
    key = run(pair.insert(draft_of(made, id), None))
    assert run(pair.admit(token_of(made), 1, BOOK)).verdict is Verdict.ADMITTED
    copy = tell(primary, "DUMP", place.organization)
    run(pair.revoke_if_live(id, key.id))
    run(pair.compare())
    tell(replica, "CLUSTER", "FAILOVER", "TAKEOVER")  # Without asking the others, who may be busy.
    replicated.wait(lambda: b"master" in tell(replica, "ROLE"))
    alive = [node for node in replicated.nodes if node is not replicated.nodes[0]]
    replicated.wait(lambda: all(has_slot(node, place.slot, replica) for node in alive))
    tell(replica, "RESTORE", place.organization, 0, copy)
    for _ in range(2):
        assert run(pair.admit(token_of(made), 1, BOOK)).verdict is Verdict.REVOKED
    # So does a process without an earlier call.
    assert run(other.admit(token_of(made), 1, BOOK)).verdict is Verdict.REVOKED
    run(pair.compare())
    run(pair.compare())
    assert pair.copies.compared_servers is cache.served_by
    assert run(pair.admit(token_of(made), 1, BOOK)).verdict is Verdict.REVOKED
    run(pair.close())
    run(other.close())


def has_slot(node: RedisServer, slot: int, primary: RedisServer) -> bool:
    """Whether a node knows that a slot is a primary's."""
    ranges = tell(node, "CLUSTER", "SLOTS")
    return any(first <= slot <= last and at[1] == primary.port for first, last, at, *_ in ranges)
