"""Operators change a Redis Cluster under load: slots move, nodes leave, addresses have no host."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Literal

import pytest
import redis
from redis import asyncio as redis_asyncio
from redis.asyncio.cluster import ClusterNode
from redis.exceptions import ConnectionError, ResponseError

from lockgate import Event, Gate, Limit, Plan, PlanBook, run
from lockgate.core.api_keys import Position
from lockgate.core.changes import drafted_change
from lockgate.core.leases import TO_LIST, lease_of, leases_of, to_acquire, to_release
from lockgate.core.ledger import Hit, LeasesOut, Peek
from lockgate.core.limits import bound
from lockgate.core.quota_leases import LeaseRequest, Settlement
from lockgate.errors import StoreUnavailable
from lockgate.options import StoreOptions
from lockgate.stores.answers import PartUnavailable, Verdict
from lockgate.stores.redis import RedisStore
from lockgate.stores.redis.transport import client
from lockgate.stores.redis.transport.commands import Call
from lockgate.stores.redis.transport.failures import Lost
from tests.patience import SHORT, answered
from tests.servers import RedisCluster, RedisServer, redis_cluster

from ..making import NOW, account, draft_of, new_key, token_of
from .backends import rights
from .test_failover import slot_of, tell

BOOK = PlanBook([Plan("free", rpm=10**6, rph=10**6, rpd=10**6, concurrent=9)])
SMALL = PlanBook([Plan("free", rpm=3, rph=100, rpd=100, concurrent=9)])
PATIENT = 30.0
"""Seconds that a request may take: here a busy machine is no failure."""
REST = 0.005
"""Seconds that a caller rests after a refusal: a test waits for what follows, not for refusals."""
both_modes = pytest.mark.parametrize("mode", ["sync", "awaiting"])


class Traffic:
    """Continuous callers of a gate, each with a key of a different organization.

    Args:
        store: is closed with the gate.
        mode: ``awaiting`` or ``blocking``.
        organizations: the organizations of the keys.
        deadline: seconds that a request may take.
    """

    def __init__(
        self, store: RedisStore, mode: str, organizations: list[str], deadline: float = PATIENT
    ) -> None:
        self.events: list[str] = []
        self.gate = Gate(
            store,
            brand="acme",
            plans=BOOK,
            store_options=StoreOptions(deadline=deadline),
            observer=self._observe,
        )
        self.admitted = dict.fromkeys(organizations, 0)
        self.refused: list[str] = []
        self.slowest = 0.0
        self._over = threading.Event()
        work = [self._await] if mode == "awaiting" else [self._block] * 3
        self._tokens = dict(map(self._key_of, organizations))
        self._threads = [
            threading.Thread(target=each, args=(organizations[number :: len(work)],))
            for number, each in enumerate(work)
        ]

    def _key_of(self, id: str) -> tuple[str, str]:
        made = answered(lambda: run(self.gate.keys.create(id, "a key")))
        return id, made.text

    def _observe(self, event: Event) -> None:
        self.events.append(event.name)

    async def _ask(self, id: str) -> None:
        started = time.monotonic()
        try:
            await self.gate.authenticate(self._tokens[id])
        except StoreUnavailable as failure:
            self.refused.append(repr(failure.__cause__))
        else:
            self.admitted[id] += 1
        self.slowest = max(self.slowest, time.monotonic() - started)

    def _block(self, organizations: list[str]) -> None:
        while not self._over.is_set():
            for id in organizations:
                refused = len(self.refused)
                run(self._ask(id))
                if len(self.refused) > refused:
                    time.sleep(REST)

    def _await(self, organizations: list[str]) -> None:
        async def ask(id: str) -> None:
            while not self._over.is_set():
                refused = len(self.refused)
                await self._ask(id)
                # A refusal by an open breaker never waits.
                await asyncio.sleep(REST if len(self.refused) > refused else 0)

        async def all_of_it() -> None:
            await asyncio.gather(*map(ask, organizations))
            await self.gate.close()

        asyncio.run(all_of_it())

    def __enter__(self) -> Traffic:
        for thread in self._threads:
            thread.start()
        self.goes_on()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(60)
        run(self.gate.close())

    def goes_on(self, more: int = 20, organizations: list[str] | None = None) -> None:
        """Wait until each organization has a number of further requests admitted."""
        target = {id: self.admitted[id] + more for id in organizations or self.admitted}
        until = time.monotonic() + 60
        while any(self.admitted[id] < least for id, least in target.items()):
            assert time.monotonic() < until, (self.admitted, self.refused[-3:])
            time.sleep(0.005)


OPTIONS = "--cluster-enabled", "yes", "--cluster-node-timeout", "1000"


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
        tell(source, "MIGRATE", "127.0.0.1", target.port, names[0], 0, 25_000)
        time.sleep(0.005)
    end(cluster, slot, source, target)


def begin(cluster: RedisCluster, slot: int, source: RedisServer, target: RedisServer) -> None:
    tell(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", cluster.id(source))
    tell(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", cluster.id(target))


def end(cluster: RedisCluster, slot: int, source: RedisServer, target: RedisServer) -> None:
    others = [node for node in cluster.nodes if node not in (source, target)]
    for node in (target, source, *others):
        with suppress(ResponseError):  # A node whose last slot leaves becomes a replica.
            tell(node, "CLUSTER", "SETSLOT", slot, "NODE", cluster.id(target))


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


def node_with(cluster: RedisCluster, slot: int) -> int:
    """The number of the node that has a slot."""
    ranges = tell(cluster.nodes[0], "CLUSTER", "SLOTS")
    port = next(place[1] for first, last, place, *_ in ranges if first <= slot <= last)
    return [node.port for node in cluster.nodes].index(port)


@pytest.fixture(scope="module")
def own() -> Iterator[RedisCluster]:
    """A Cluster that the tests here may upset."""
    with redis_cluster() as cluster:
        yield cluster


@both_modes
def test_a_node_that_is_removed_under_load_costs_no_request(own: RedisCluster, mode: str) -> None:
    with one_more(own) as leaving:
        others = ",".join(f"127.0.0.1:{node.port}" for node in own.nodes)
        url = f"redis+cluster://127.0.0.1:{leaving.port},{others}"
        store = RedisStore(url, prefix=f"leaving-{mode}")
        mine, theirs = organizations_of(store, 0, 3), organizations_of(store, 1, 3)
        homes = {
            slot: own.nodes[node_with(own, slot)] for slot in {slot_of(store, i) for i in mine}
        }
        for slot, home in homes.items():
            give(own, slot, home, leaving)
        with Traffic(store, mode, [*mine, *theirs]) as traffic:
            for slot, home in homes.items():
                give(own, slot, leaving, home)
            remove(own, leaving)
            traffic.goes_on()
            # Whatever is asked anew about the slots must not be asked of the node that left.
            own_line_breaks(own)
            traffic.goes_on()
        assert traffic.refused == []
        fresh = RedisStore(f"{url}?socket_timeout=5", prefix=f"leaving-{mode}")
        with Traffic(fresh, mode, [f"{id} again" for id in mine]) as traffic:
            pass
        assert traffic.refused == []


def own_line_breaks(cluster: RedisCluster) -> None:
    for node in cluster.nodes:
        with node.client() as client:
            client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")


def test_a_request_for_a_slot_that_left_a_removed_node_finds_it(own: RedisCluster) -> None:
    """The organization was idle meanwhile, so this process still looks for it at the old node."""
    with one_more(own) as leaving:
        store = RedisStore(own.url(), prefix="idle-leaving")
        id = organizations_of(store, 0, 1)[0]
        slot = slot_of(store, id)
        home = own.nodes[node_with(own, slot)]
        give(own, slot, home, leaving)
        assert run(store.charge(id, Hit(BOOK.default.windows, 1))).allowed
        give(own, slot, leaving, home)
        remove(own, leaving)
        assert run(store.charge(id, Hit(BOOK.default.windows, 1))).used[0] == 2
        run(store.close())


Side = Literal["source", "target"]


@pytest.fixture
def moving(own: RedisCluster) -> Iterator[Callable[..., Any]]:
    """Begins to move the slot of an organization, with some of its keys; ends it afterwards."""
    with ExitStack() as stack:

        def begin_to_move(store: RedisStore, id: str, *names: bytes) -> None:
            slot = slot_of(store, id)
            source = own.nodes[number := node_with(own, slot)]
            target = own.nodes[(number + 1) % len(own.nodes)]
            begin(own, slot, source, target)
            stack.callback(give, own, slot, source, target)
            for name in names:
                assert tell(source, "MIGRATE", "127.0.0.1", target.port, name, 0, 25_000) == b"OK"

        yield begin_to_move


@both_modes
@pytest.mark.parametrize("records", [False, True], ids=["records stay", "records moved"])
@pytest.mark.parametrize(
    ("is_idle", "windows"),
    [(True, False), (False, False), (False, True)],
    ids=["no windows", "windows stay", "windows moved"],
)
def test_a_slot_that_is_half_moved_admits_exactly_the_limit(
    own: RedisCluster,
    moving: Callable[..., Any],
    mode: str,
    is_idle: bool,
    records: bool,
    windows: bool,
) -> None:
    store = RedisStore(own.url(), prefix=f"half-{mode}-{is_idle}-{records}-{windows}")
    made, spare = new_key(), new_key()
    place = store._names.place("org_1")

    async def all_of_it() -> None:
        for key in (made, spare):
            await store.insert(draft_of(key), None)
        used = 0
        if not is_idle:
            await store.admit(token_of(made), 1, SMALL)
            used = 1
        moving(store, "org_1", *[place.organization] * records, *[place.windows] * windows)
        for count in range(used + 1, 4):
            admission = await store.admit(token_of(made), 1, SMALL)
            assert admission.verdict is Verdict.ADMITTED
            assert admission.key is not None
            assert admission.key.request_count == count
            assert admission.reading is not None
            assert admission.reading.used[0] == count
        for token in (token_of(made), token_of(spare)):
            assert (await store.admit(token, 1, SMALL)).verdict is Verdict.LIMITED
        assert (await store.charge("org_1", Peek(SMALL.default.windows))).used[0] == 3
        await store.close()

    asyncio.run(all_of_it()) if mode == "awaiting" else run(all_of_it())


@both_modes
@pytest.mark.parametrize("moved", ["windows", "limits", "organization"])
def test_a_slot_that_is_half_moved_admits_exactly_the_named_limit(
    own: RedisCluster, moving: Callable[..., Any], mode: str, moved: str
) -> None:
    """Also by a hit, without a key; a request that the limit refuses costs the plan nothing."""
    store = RedisStore(own.url(), prefix=f"limits-{mode}-{moved}")
    made, limits = new_key(), (Limit("export", "2/hour"), Limit("own", "9/hour", by="key"))
    place = store._names.place("org_1")
    book = PlanBook([Plan("free", rpm=9, rph=100, rpd=100, concurrent=9)])
    named = bound(limits[:1], None)
    assert named is not None

    async def all_of_it() -> None:
        await store.insert(draft_of(made), None)
        asked = token_of(made), 1, book, None, None, limits
        assert (await store.admit(*asked)).verdict is Verdict.ADMITTED
        moving(store, "org_1", getattr(place, moved))
        second = await store.admit(*asked)
        assert second.verdict is Verdict.ADMITTED
        assert second.reading is not None
        assert second.reading.used == (2, 2, 2, 2, 2)
        refused = await store.admit(*asked)
        assert refused.verdict is Verdict.LIMITED
        assert refused.reading is not None
        assert (refused.reading.used, refused.reading.refused_by) == ((2, 2, 2, 2, 2), 3)
        by_hit = await store.charge("org_1", Hit(book.default.windows, 1, named), None)
        assert (by_hit.allowed, by_hit.used) == (False, (2, 2, 2, 2))
        assert (await store.charge("org_1", Peek(book.default.windows, named), None)).used[0] == 2
        await store.close()

    asyncio.run(all_of_it()) if mode == "awaiting" else run(all_of_it())


def test_a_slot_that_is_half_moved_settles_leases_and_grants_none_D42(
    own: RedisCluster, moving: Callable[..., Any]
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


def test_k4_a_key_that_was_revoked_is_refused_while_its_slot_is_half_moved(
    own: RedisCluster, moving: Callable[..., Any]
) -> None:
    store, other = (RedisStore(own.url(), prefix="k4") for _ in range(2))
    made = new_key()
    key = run(store.insert(draft_of(made), None))
    for each in (store, other):
        assert run(each.admit(token_of(made), 1, BOOK)).verdict is Verdict.ADMITTED
    place = store._names.place("org_1")
    moving(store, "org_1", place.windows, place.live)
    assert run(other.admit(token_of(made), 1, BOOK)).verdict is Verdict.ADMITTED
    assert run(store.revoke_if_live("org_1", key.id)) is not None
    for each in (store, other):
        assert run(each.admit(token_of(made), 1, BOOK)).verdict is Verdict.REVOKED
        run(each.close())


@both_modes
@pytest.mark.parametrize("what", ["nothing", "records", "index", "both"])
def test_keys_are_listed_and_revoked_while_their_slot_is_half_moved(
    own: RedisCluster, moving: Callable[..., Any], mode: str, what: str
) -> None:
    store = RedisStore(own.url(), prefix=f"listed-{mode}-{what}")
    place = store._names.place("org_1")
    moved = {"records": [place.organization], "index": [place.created]}
    moved["both"] = moved["records"] + moved["index"]

    async def all_of_it() -> None:
        keys = [await store.insert(draft_of(new_key()), None) for _ in range(3)]
        before = await store.list("org_1", 2)
        last = Position(before[-1].created_at, before[-1].id)
        moving(store, "org_1", *moved.get(what, []))
        assert await store.list("org_1", 2) == before
        assert {key.id for key in before + await store.list("org_1", 2, last)} == {
            key.id for key in keys
        }
        for key in keys:
            assert await store.revoke_if_live("org_1", key.id) is not None
        assert all(key.revoked_at for key in await store.list("org_1", 9))
        assert await store.list("org_2", 9) == []
        await store.close()

    asyncio.run(all_of_it()) if mode == "awaiting" else run(all_of_it())


@pytest.mark.parametrize(
    "moved",
    [(), ("organization",), ("created", "live"), ("live", "ended"), ("organization", "windows")],
    ids=lambda names: "-".join(names) or "nothing",
)
def test_k4_a_revocation_is_whole_while_its_slot_is_half_moved(
    own: RedisCluster, moving: Callable[..., Any], moved: tuple[str, ...]
) -> None:
    store, made = RedisStore(own.url(), prefix=f"whole-{'-'.join(moved)}"), new_key()
    first, second = (run(store.insert(draft_of(key), None)) for key in (made, new_key()))
    run(store.revoke_if_live("org_1", second.id))
    run(store.admit(token_of(made), 1, BOOK))
    place = store._names.place("org_1")
    moving(store, "org_1", *(getattr(place, name) for name in moved))
    change = drafted_change("key_revoked", first.id)
    revoked = run(store.revoke_if_live("org_1", first.id, change=change))
    assert revoked is not None
    assert revoked.revoked_at is not None
    assert run(store.revoke_if_live("org_1", first.id, change=change)) == revoked
    assert run(store.admit(token_of(made), 1, BOOK)).verdict is Verdict.REVOKED
    assert run(store.find(made.handle)) == revoked
    assert [key.revoked_at is None for key in run(store.list("org_1", 9))] == [False, False]
    assert run(store.list_live("org_1", 9)) == []
    (record,) = run(store.change_log("org_1", 9))
    assert record.at == revoked.revoked_at
    run(store.close())


@pytest.mark.parametrize("moved", ["nothing", "organization", "live"])
@pytest.mark.parametrize("operation", ["insert", "rotate", "claim"])
def test_a_change_of_several_redis_keys_waits_for_the_end_of_the_move(
    own: RedisCluster, operation: str, moved: str
) -> None:
    """It is made once then, and nothing of it is there before."""
    store = RedisStore(own.url(), prefix=f"waits-{operation}-{moved}")
    _, key = run(store.register(account(), draft_of(new_key())))
    slot, place, another = slot_of(store, "org_1"), store._names.place("org_1"), new_key()
    source = own.nodes[number := node_with(own, slot)]
    target = own.nodes[(number + 1) % len(own.nodes)]

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
        name = getattr(place, moved)
        assert tell(source, "MIGRATE", "127.0.0.1", target.port, name, 0, 25_000) == b"OK"
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
    own: RedisCluster, moving: Callable[..., Any]
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
    assert run(store.charge("org_1", Peek(BOOK.default.windows))).used[0] == 3
    kept = run(store.get("org_1", key.id))
    assert kept is not None
    assert kept.request_count == 3
    run(store.close())


def test_an_expired_key_is_refused_while_its_slot_is_half_moved(
    own: RedisCluster, moving: Callable[..., Any]
) -> None:
    store, made = RedisStore(own.url(), prefix="expired"), new_key()
    key = run(store.insert(draft_of(made, lifetime=10**6), None, NOW))
    assert key.expires_at is not None
    moving(store, "org_1")
    assert run(store.admit(token_of(made), 1, BOOK, key.created_at)).verdict is Verdict.ADMITTED
    admission = run(store.admit(token_of(made), 1, BOOK, key.expires_at))
    assert admission.verdict is Verdict.EXPIRED
    assert admission.key is not None
    assert admission.key.request_count == 1
    run(store.close())


@both_modes
def test_a_new_organization_in_a_slot_that_is_moved_has_keys_and_job_slots(
    own: RedisCluster, moving: Callable[..., Any], mode: str
) -> None:
    store, made = RedisStore(own.url(), prefix=f"new-{mode}"), new_key()

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

    asyncio.run(all_of_it()) if mode == "awaiting" else run(all_of_it())


@both_modes
def test_slots_in_use_and_idle_ones_move_under_load_without_a_refusal(
    own: RedisCluster, mode: str
) -> None:
    store = RedisStore(own.url(), prefix=f"reshard-{mode}")
    ids = organizations_of(store, 1, 8)
    with Traffic(store, mode, ids) as traffic:
        for id in ids[:4]:
            slot = slot_of(store, id)
            source = own.nodes[number := node_with(own, slot)]
            target = own.nodes[(number + 1) % 3]
            begin(own, slot, source, target)
            windows = store._names.place(id).windows
            tell(source, "MIGRATE", "127.0.0.1", target.port, windows, 0, 25_000)
            traffic.goes_on(organizations=[id])
            give(own, slot, source, target)
        traffic.goes_on()
    assert traffic.refused == []
    assert "breaker_opened" not in traffic.events
    for id, admitted in traffic.admitted.items():
        again = RedisStore(own.url(), prefix=f"reshard-{mode}")
        (key,) = run(again.list(id, 10))
        assert key.request_count == admitted
        assert run(again.charge(id, Peek(BOOK.default.windows))).used[0] == admitted
        run(again.close())


@both_modes
def test_a_slot_that_cannot_be_served_is_no_failure_of_the_others(
    own: RedisCluster, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each breaker would open at the third failure in a row."""
    # No call waits for the slot to be served, and none sends a batch with little time left.
    monkeypatch.setattr(client, "_PATIENCE", SHORT)
    monkeypatch.setattr(client, "_SHARE", SHORT / PATIENT)
    store = RedisStore(own.url(), prefix=f"nowhere-{mode}")
    ids = organizations_of(store, 2, 2)
    lost, healthy = ids
    slot = slot_of(store, lost)
    home = own.nodes[node_with(own, slot)]
    with Traffic(store, mode, [healthy]) as traffic:
        made = run(traffic.gate.keys.create(lost, "a key"))
        token = made.text
        for node in own.nodes:
            tell(node, "CLUSTER", "DELSLOTS", slot)
        try:
            for _ in range(5):
                with pytest.raises(StoreUnavailable):
                    run(traffic.gate.authenticate(token))
                with pytest.raises(PartUnavailable):
                    run(store.charge(lost, Hit(BOOK.default.windows, 1)))
            traffic.goes_on()
        finally:
            tell(home, "CLUSTER", "ADDSLOTS", slot)
            own.wait(lambda: all(map(is_whole, own.nodes)))
        assert run(traffic.gate.authenticate(token)).organization == lost
    assert traffic.refused == []
    assert "breaker_opened" not in traffic.events


def is_whole(node: RedisServer) -> bool:
    return b"slots_assigned:16384" in tell(node, "CLUSTER", "INFO")


@pytest.fixture
def settings(own: RedisCluster) -> Iterator[Callable[..., None]]:
    """Configures all nodes, and takes it back afterwards."""
    with ExitStack() as stack:

        def set_all(name: str, value: str, back: str) -> None:
            for node in own.nodes:
                try:
                    tell(node, "CONFIG", "SET", name, value)
                except ResponseError:
                    pytest.skip(f"this Redis has no {name}")
                stack.callback(tell, node, "CONFIG", "SET", name, back)

        yield set_all


def reshard(own: RedisCluster, store: RedisStore, mode: str) -> None:
    """Move the slots of some organizations under load, one of them with keys on both sides."""
    ids = organizations_of(store, 1, 4)
    with Traffic(store, mode, ids) as traffic:
        for id in ids:
            slot = slot_of(store, id)
            source = own.nodes[number := node_with(own, slot)]
            target = own.nodes[(number + 1) % 3]
            begin(own, slot, source, target)
            windows = store._names.place(id).windows
            tell(source, "MIGRATE", "127.0.0.1", target.port, windows, 0, 25_000)
            traffic.goes_on()
            give(own, slot, source, target)
            traffic.goes_on()
    assert traffic.refused == []
    assert "breaker_opened" not in traffic.events


@both_modes
def test_redirections_without_a_host_mean_the_host_that_answered(
    own: RedisCluster, settings: Callable[..., None], mode: str
) -> None:
    settings("cluster-preferred-endpoint-type", "unknown-endpoint", "ip")
    reshard(own, RedisStore(own.url(), prefix=f"unknown-{mode}"), mode)


@both_modes
def test_redirections_by_host_names_are_followed(
    own: RedisCluster, settings: Callable[..., None], mode: str
) -> None:
    settings("cluster-announce-hostname", "localhost", "")
    settings("cluster-preferred-endpoint-type", "hostname", "ip")
    reshard(own, RedisStore(own.url(), prefix=f"named-{mode}"), mode)


@both_modes
def test_redirections_to_a_host_name_that_is_missing_mean_the_host_that_answered(
    own: RedisCluster, settings: Callable[..., None], mode: str
) -> None:
    settings("cluster-preferred-endpoint-type", "hostname", "ip")
    reshard(own, RedisStore(own.url(), prefix=f"nameless-{mode}"), mode)


def elsewhere(address: tuple[str, int]) -> tuple[str, int]:
    """The client's address mapping, for a network that translates addresses."""
    host, port = address
    return ("127.0.0.1" if host == "192.0.2.1" else host), port


@both_modes
def test_redirections_behind_translated_addresses_are_followed(
    own: RedisCluster, settings: Callable[..., None], mode: str
) -> None:
    settings("cluster-announce-hostname", "192.0.2.1", "")
    settings("cluster-preferred-endpoint-type", "hostname", "ip")
    port = own.nodes[0].port
    with redis.RedisCluster(host="127.0.0.1", port=port, address_remap=elsewhere) as client:
        nodes = [ClusterNode("127.0.0.1", port)]
        both = redis_asyncio.RedisCluster(startup_nodes=nodes, address_remap=elsewhere)
        reshard(own, RedisStore(client, both, prefix=f"nat-{mode}"), mode)


@both_modes
def test_redirections_to_ipv6_addresses_are_followed(mode: str) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("there is no IPv6 here")
    with redis_cluster(0, "--bind", "127.0.0.1", "::1", "--cluster-announce-ip", "::1") as cluster:
        store = RedisStore(f"redis+cluster://[::1]:{cluster.nodes[0].port}")
        reshard(cluster, store, mode)


def test_a_slot_that_moved_is_learned_from_its_first_redirection(own: RedisCluster) -> None:
    store = RedisStore(own.url(), prefix="learned")
    id = organizations_of(store, 0, 1)[0]
    slot = slot_of(store, id)
    run(store.charge(id, Hit(BOOK.default.windows, 1)))
    source = own.nodes[number := node_with(own, slot)]
    give(own, slot, source, own.nodes[(number + 1) % 3])
    run(store.charge(id, Hit(BOOK.default.windows, 1)))
    tell(source, "CONFIG", "RESETSTAT")
    for _ in range(10):
        run(store.charge(id, Hit(BOOK.default.windows, 1)))
    assert "cmdstat_evalsha" not in tell(source, "INFO", "commandstats")
    run(store.close())


def test_a_map_of_an_older_configuration_is_not_believed(own: RedisCluster) -> None:
    """A node that was removed now says that it has every slot itself."""
    with one_more(own) as leaving:
        others = ",".join(f"127.0.0.1:{node.port}" for node in own.nodes)
        store = RedisStore(f"redis+cluster://127.0.0.1:{leaving.port},{others}", prefix="older")
        one, other = organizations_of(store, 0, 2)
        home = own.nodes[node_with(own, slot_of(store, one))]
        give(own, slot_of(store, one), home, leaving)
        for id in (one, other):
            run(store.charge(id, Hit(BOOK.default.windows, 1)))
        give(own, slot_of(store, one), leaving, home)
        remove(own, leaving, "HARD")
        for first in range(0, 16384, 1024):
            tell(leaving, "CLUSTER", "ADDSLOTS", *range(first, first + 1024))
        own.wait(lambda: b"cluster_state:ok" in tell(leaving, "CLUSTER", "INFO"))
        for _ in range(5):
            run(store.census())  # Asks anew where the slots are.
            for id in (one, other):
                run(store.charge(id, Hit(BOOK.default.windows, 1)))
        for id in (one, other):
            assert run(store.charge(id, Peek(BOOK.default.windows))).used[0] == 6
        run(store.close())


@both_modes
def test_a_user_without_the_right_to_cluster_info_is_served(own: RedisCluster, mode: str) -> None:
    for node in own.nodes:
        tell(
            node,
            "ACL",
            "SETUSER",
            "narrow",
            "on",
            ">pass",
            "~*",
            "+@all",
            "-cluster",
            "+cluster|slots",
        )
    address = f"127.0.0.1:{own.nodes[0].port}"
    store = RedisStore(f"redis+cluster://narrow:pass@{address}", prefix=f"narrow-{mode}")

    async def hit() -> None:
        assert (await store.charge("org_1", Hit(BOOK.default.windows, 1))).allowed
        await store.close()

    asyncio.run(hit()) if mode == "awaiting" else run(hit())


@both_modes
def test_the_rights_that_the_page_names_are_enough_in_a_cluster(
    own: RedisCluster, mode: str
) -> None:
    for node in own.nodes:
        tell(node, *rights("lockgate"))
    address = f"127.0.0.1:{own.nodes[0].port}"
    store = RedisStore(f"redis+cluster://lockgate:password@{address}", prefix=f"lockgate:{mode}")
    ids = organizations_of(store, 0, 1)
    made = new_key()

    async def all_of_it() -> None:
        key = await store.insert(draft_of(made, ids[0]), 5)
        assert (await store.admit(token_of(made), 1, BOOK)).verdict is Verdict.ADMITTED
        source, target = (own.nodes[node_with(own, slot_of(store, ids[0])) - n] for n in (0, 1))
        begin(own, slot_of(store, ids[0]), source, target)
        try:
            names = store._names.place(ids[0])
            tell(source, "MIGRATE", "127.0.0.1", target.port, names.windows, 0, 25_000)
            assert (await store.admit(token_of(made), 1, BOOK)).verdict is Verdict.ADMITTED
            assert await store.revoke_if_live(ids[0], key.id) is not None
        finally:
            give(own, slot_of(store, ids[0]), source, target)
        assert (await store.admit(token_of(made), 1, BOOK)).verdict is Verdict.REVOKED
        assert len(await store.list(ids[0], 9)) == 1
        assert (await store.census()).counts == {}
        await store.close()

    asyncio.run(all_of_it()) if mode == "awaiting" else run(all_of_it())


@both_modes
def test_a_primary_that_is_killed_is_left_once_its_replica_answers(mode: str) -> None:
    with redis_cluster(1) as cluster:
        store = RedisStore(cluster.url(), prefix="killed")
        ids = organizations_of(store, 0, 3)
        with Traffic(store, mode, ids) as traffic:
            replica = cluster.nodes[3]
            name = store._names.place(ids[0]).windows + b":probe"
            with cluster.nodes[0].client() as client:
                client.set(name, "0")
                assert client.wait(1, 25_000) == 1  # The replica has the keys.
            cluster.nodes[0].stop(signal.SIGKILL)
            cluster.wait(lambda: answers(replica, name))
            answered = time.monotonic()
            traffic.goes_on(1)
            took = time.monotonic() - answered
        print(f"{mode}: admitted again {took:.2f} s after the Cluster answered")


@both_modes
def test_d28_a_replica_in_the_place_of_a_primary_that_hangs_is_found_before_that_wakes(
    mode: str,
) -> None:
    with redis_cluster(1) as cluster:
        store = RedisStore(cluster.url(), prefix="hangs")
        ids = organizations_of(store, 0, 3)
        name = store._names.place(ids[0]).windows + b":probe"
        with Traffic(store, mode, ids, deadline=0.25) as traffic:
            with cluster.nodes[0].client() as client:
                client.set(name, "0")
                assert client.wait(1, 25_000) == 1  # The replica has the keys.
            with cluster.nodes[0].stopped():
                cluster.wait(lambda: answers(cluster.nodes[3], name))
                traffic.goes_on(5)


def answers(node: RedisServer, name: bytes) -> bool:
    try:
        return bool(tell(node, "SET", name, "1"))
    except ResponseError:
        return False
