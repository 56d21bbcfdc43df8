"""Sentinels replace the primary under load: answered writes are on the new primary.

No test waits for Sentinel to demote an old primary.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from math import inf
from pathlib import Path
from time import monotonic, sleep
from typing import Any, TypeVar

import pytest
import redis
from redis import asyncio as redis_asyncio
from redis.exceptions import ReadOnlyError, RedisError

from lockgate import Plan, PlanBook, run
from lockgate.core.ledger import Hit
from lockgate.core.plans import Organization
from lockgate.errors import ConfigurationError, KeyRevoked, StoreUnavailable
from lockgate.stores.answers import StoreError, Verdict
from lockgate.stores.cached.store import CachedStore
from lockgate.stores.redis import RedisStore
from lockgate.stores.redis.key_names import Names
from lockgate.stores.redis.transport import sentinels
from lockgate.stores.redis.transport.commands import command
from lockgate.stores.redis.transport.config import Endpoint, servers_of
from lockgate.stores.redis.transport.failures import NotSent
from lockgate.stores.redis.transport.pipeline import AsyncPipeline, BlockingPipeline
from lockgate.stores.redis.transport.sentinels import Primary, Vote, judge
from lockgate.stores.resilience.deadlines import Overdue, within
from lockgate.stores.runtime import background
from lockgate.stores.sql import SqlStore
from tests.patience import SLACK, answered
from tests.servers import RedisSentinel, RedisServer, redis_sentinel

from ...making import draft_of, new_key, token_of
from ..backends import rights
from ..traffic import Traffic

T = TypeVar("T")

LIMIT = 120
BOOK = PlanBook([Plan("free", 10**6, None, None, None), Plan("tight", None, LIMIT, None, None)])
COLOURS = pytest.mark.parametrize("awaiting", [False, True], ids=["sync", "awaiting"])


class Group:
    """A primary, two replicas and three Sentinels, for as many tests as leave them as they were.

    Sentinel takes ten seconds to demote an old primary; new servers take two.
    """

    def __init__(self) -> None:
        self._running = ExitStack()
        self._servers: RedisSentinel | None = None

    def servers(self) -> RedisSentinel:
        if self._servers is None:
            started: RedisSentinel = self._running.enter_context(redis_sentinel(2, 3))
            self._servers = started
        return self._servers

    def stop(self) -> None:
        self._servers = None
        self._running.close()


@pytest.fixture(scope="module")
def group() -> Iterator[Group]:
    group = Group()
    yield group
    group.stop()


@pytest.fixture
def watched(group: Group) -> Iterator[RedisSentinel]:
    """Servers and Sentinels that agree."""
    servers = group.servers()
    before = servers.named()
    servers.wait(servers.settled)
    yield servers
    if servers.named() != before or not servers.settled():
        group.stop()


class Changes(Traffic):
    """Callers of whom three admit, one admits by a limit, and one revokes one key after another.

    Attributes:
        revoked: the keys with an answered revocation.
        unsure: the number of revocations that failed.
        let_in: the keys that were admitted afterwards, although their revocation was answered.
    """

    def __init__(self, store: RedisStore, awaiting: bool) -> None:
        tag = os.urandom(4).hex()
        self.free, self.tight = f"free {tag}", f"tight {tag}"
        super().__init__(
            store,
            "awaiting" if awaiting else "sync",
            [*[self.free] * 3, self.tight],
            BOOK,
            placed={self.tight: "tight"},
        )
        self.revoked: list[str] = []
        self.unsure = 0
        self.let_in: list[str] = []
        self._keys = [self.make_key(self.free) for _ in range(150)]
        self.steps.append(self._revoke)

    async def _revoke(self) -> None:
        if not self._keys:
            return
        id, token = self._keys.pop()
        try:
            await self.gate.keys.revoke(self.free, id)
        except StoreUnavailable:
            self.unsure += 1
        else:
            self.revoked.append(token)

    def finish(self) -> None:
        for token in self.revoked:
            with suppress(KeyRevoked):
                answered(partial(self._authenticate, token), 120)
                self.let_in.append(token)

    def _authenticate(self, token: str) -> None:
        run(self.gate.authenticate(token))

    @property
    def over(self) -> int:
        """How many were admitted beyond the limit: all of a run are within an hour."""
        return max(0, self.admitted[self.tight] - LIMIT)

    @property
    def away(self) -> float:
        """Seconds from the first 503 to the last one."""
        refused = self.of("unavailable")
        return max(a.ended for a in refused) - min(a.ended for a in refused) if refused else 0.0


@COLOURS
def test_k4_w1_planned_failover_loses_no_revocation_and_no_count(
    awaiting: bool, watched: RedisSentinel
) -> None:
    before = watched.named()
    with Changes(RedisStore(watched.url()), awaiting) as traffic:
        watched.fail_over(by=1)
        watched.wait(lambda: watched.named() != before)
        traffic.goes_on(300, [traffic.free])
        watched.wait(lambda: bool(traffic.of("limited")))
        watched.wait(lambda: len(traffic.revoked) > 30)
    print(f"503 for {traffic.away:.2f} s, {len(traffic.revoked)} revoked, {traffic.unsure} unsure")
    assert {answer.outcome for answer in traffic.answers} <= {"admitted", "limited", "unavailable"}
    assert (traffic.let_in, traffic.over) == ([], 0)
    assert traffic.away < 2 * SLACK


AWAY = OSError, RedisError, StoreError, StoreUnavailable


def drive(awaiting: bool, flow: Coroutine[Any, Any, None]) -> None:
    asyncio.run(flow) if awaiting else run(flow)


def replaced(watched: RedisSentinel, old: RedisServer) -> None:
    """Wait until all Sentinels name another primary."""
    watched.wait(lambda: all(watched.named(s) != old.port for s in watched.sentinels))


async def at_last(step: Callable[[], Coroutine[Any, Any, T]], awaiting: bool) -> T:
    """Repeat a call until it succeeds; return its result."""
    until = monotonic() + 120
    while True:
        try:
            return await step()
        except AWAY:
            assert monotonic() < until
            await asyncio.sleep(0.01) if awaiting else sleep(0.01)


@COLOURS
def test_k4_an_old_primary_that_wakes_admits_no_revoked_key(
    awaiting: bool, watched: RedisSentinel
) -> None:
    """The process that asks it made no call meanwhile, so no failure told it."""
    old = watched.node(watched.named())
    made = new_key()
    draft = draft_of(made, f"org {os.urandom(4).hex()}")
    idle, busy = RedisStore(watched.url()), RedisStore(watched.url())

    async def judged() -> Verdict | None:
        try:
            with within(0.25):
                return (await idle.admit(token_of(made), 1, BOOK)).verdict
        except AWAY:
            return None

    async def flow() -> None:
        await idle.insert(draft, None)
        assert (await idle.admit(token_of(made), 1, BOOK)).verdict is Verdict.ADMITTED
        assert watched.tell(old, "WAIT", 2, 25_000) == 2  # The replicas have the key.
        with old.stopped():
            replaced(watched, old)
            await at_last(lambda: busy.revoke_if_live(draft.organization, draft.id), awaiting)
        assert watched.tell(old, "ROLE")[0] == b"master", "it takes itself for the primary still"
        verdicts = {await judged() for _ in range(200)}
        assert Verdict.ADMITTED not in verdicts
        assert await at_last(lambda: idle.admit(token_of(made), 1, BOOK), awaiting)
        await idle.close()
        await busy.close()

    drive(awaiting, flow())


@COLOURS
def test_k4_with_durability_a_killed_primary_takes_no_revocation_along(
    awaiting: bool, watched: RedisSentinel
) -> None:
    old = watched.node(watched.named())
    store = RedisStore(watched.url(), durability="replicas:2")
    with Changes(store, awaiting) as traffic:
        old.stop(signal.SIGKILL)
        replaced(watched, old)
        traffic.goes_on(100, [traffic.free])
        assert traffic.revoked
        old.start()
    assert traffic.let_in == []


@COLOURS
def test_durability_answers_a_change_only_once_replicas_have_it(
    awaiting: bool, watched: RedisSentinel
) -> None:
    store = RedisStore(watched.url(), durability="replicas:1")
    made = new_key()
    draft = draft_of(made, f"org {os.urandom(4).hex()}")
    first, second = (node for node in watched.nodes if node.port != watched.named())

    async def flow() -> None:
        await store.insert(draft, None)
        with first.stopped():
            await store.put_organization(Organization(draft.organization, "free"))
        unanswered = StoreUnavailable, Overdue
        with first.stopped(), second.stopped(), within(1.0), pytest.raises(unanswered):
            await store.revoke_if_live(draft.organization, draft.id)
        revoked = await at_last(
            lambda: store.revoke_if_live(draft.organization, draft.id), awaiting
        )
        assert revoked is not None
        assert (await store.admit(token_of(made), 1, BOOK)).verdict is Verdict.REVOKED
        await store.close()

    drive(awaiting, flow())


@pytest.mark.parametrize(
    ("url", "durability", "match"),
    [
        *(
            ("redis+sentinel://a/b", wrong, "durability")
            for wrong in ("", "1", "replicas:0", "all")
        ),
        *((url, "replicas:1", "Sentinels") for url in ("redis://a", "redis+cluster://a")),
    ],
)
def test_an_invalid_durability_is_refused_at_construction(
    url: str, durability: str, match: str
) -> None:
    with pytest.raises(ConfigurationError, match=match):
        RedisStore(url, durability=durability)


@COLOURS
def test_without_a_majority_of_sentinels_no_change_is_answered_and_soon_no_request(
    awaiting: bool, watched: RedisSentinel
) -> None:
    store = RedisStore(watched.url())
    organization = f"org {os.urandom(4).hex()}"

    async def change() -> None:
        await store.put_organization(Organization(organization, "free"))

    async def hit() -> None:
        with within(0.25):
            await store.charge(organization, Hit(BOOK.default.windows, 1))

    async def flow() -> None:
        await change()
        with watched.sentinels[0].stopped():
            await change()
            await at_last(hit, awaiting)
            with watched.sentinels[1].stopped():
                with within(1.0), pytest.raises(AWAY):
                    await change()
                until = monotonic() + 120
                while await admits():
                    assert monotonic() < until
            await at_last(hit, awaiting)
        await at_last(change, awaiting)
        await store.close()

    async def admits() -> bool:
        try:
            await hit()
        except AWAY:
            return False
        return True

    drive(awaiting, flow())


@pytest.mark.parametrize("told_by", ["NOREPLICAS", "READONLY", "a closed connection"])
@COLOURS
def test_a_refusal_of_the_server_has_the_sentinels_asked_at_once(
    told_by: str,
    awaiting: bool,
    watched: RedisSentinel,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sentinels, "EVERY", 60.0)
    monkeypatch.setattr(sentinels, "LEASE", 120.0)
    monkeypatch.setattr(sentinels, "_EVENTS", ("nothing",))
    store = RedisStore(watched.url())
    old = watched.node(watched.named())
    organization = f"org {os.urandom(4).hex()}"

    async def hit() -> None:
        await store.charge(organization, Hit(BOOK.default.windows, 1))

    async def flow() -> None:
        await hit()
        watched.fail_over()
        replaced(watched, old)
        await hit()  # The old one takes it: nothing has told of another.
        if told_by == "NOREPLICAS":
            watched.tell(old, "CONFIG", "SET", "min-replicas-to-write", 1)
        elif told_by == "READONLY":
            watched.tell(old, "REPLICAOF", "127.0.0.1", watched.named())
        else:
            watched.tell(old, "CLIENT", "KILL", "TYPE", "normal")
        await hit()
        windows = store._names.place(organization).windows
        assert watched.tell(watched.node(watched.named()), "EXISTS", windows)
        await store.close()

    drive(awaiting, flow())
    watched.tell(old, "CONFIG", "SET", "min-replicas-to-write", 0)


@COLOURS
def test_a_server_that_is_a_replica_is_no_primary(awaiting: bool, watched: RedisSentinel) -> None:
    blocking_servers, awaiting_servers = servers_of([watched.url()])
    servers = awaiting_servers if awaiting else blocking_servers
    assert servers is not None

    async def connected(port: int) -> None:
        def dial() -> Endpoint:
            return servers.endpoint(("127.0.0.1", port), is_primary=True)

        pipeline = (AsyncPipeline if awaiting else BlockingPipeline)(dial, servers.timeout)
        reply = await pipeline.ask(command(0, b"PING"))
        await pipeline.close()
        if isinstance(reply, NotSent):
            assert reply.__cause__ is not None
            raise reply.__cause__

    async def flow() -> None:
        for node in watched.nodes:
            if node.port == watched.named():
                await connected(node.port)
            else:
                with pytest.raises(ReadOnlyError):
                    await connected(node.port)

    drive(awaiting, flow())


@COLOURS
def test_the_rights_that_the_page_names_are_enough_with_sentinels(
    awaiting: bool, watched: RedisSentinel
) -> None:
    for node in watched.nodes:
        watched.tell(node, *rights("lockgate"))
    for sentinel in watched.sentinels:
        watched.tell(sentinel, *rights("watcher"))
    hosts = [("127.0.0.1", sentinel.port) for sentinel in watched.sentinels]
    watcher = {"username": "watcher", "password": "password"}
    user = {"username": "lockgate", "password": "password"}
    clients = (
        module.Sentinel(hosts, sentinel_kwargs=watcher, **user).master_for(watched.service)
        for module in (redis, redis_asyncio)
    )
    store = RedisStore(*clients, durability="replicas:1")
    made = new_key()

    async def flow() -> None:
        await store.ready()
        await store.insert(draft_of(made), 5)
        old = watched.node(watched.named())
        watched.fail_over()
        replaced(watched, old)
        admission = await at_last(lambda: store.admit(token_of(made), 1, BOOK), awaiting)
        assert admission.verdict is Verdict.ADMITTED
        await store.close()

    drive(awaiting, flow())


OLD, NEW = Primary(1, ("a", 1)), Primary(2, ("b", 1))


@pytest.mark.parametrize(
    ("votes", "primary", "is_replacing"),
    [
        ([], None, False),
        ([(9, OLD, False)], None, False),
        ([(9, OLD, False)] * 2, OLD, False),
        ([(9, OLD, False)] * 2 + [(9, OLD, True)], None, True),
        ([(9, OLD, False)] * 2 + [(9, NEW, False)], None, True),
        ([(9, OLD, False)] + [(9, NEW, False)] * 2, NEW, False),
        ([(9, OLD, True)] + [(9, NEW, False)] * 2, NEW, False),
        ([(9, NEW, False), (9, OLD, False)], None, True),
        ([(9, NEW, False), (9 - sentinels.LEASE, NEW, False)], None, False),
    ],
)
def test_a_majority_of_the_newest_configuration_names_the_primary(
    votes: list[tuple[float, Primary, bool]], primary: Primary | None, is_replacing: bool
) -> None:
    judgement = judge([Vote(*vote, sentinels=3) for vote in votes], now=9.0)
    assert (judgement.primary, judgement.is_replacing) == (primary, is_replacing)


def test_a_majority_of_sentinels_is_confirmed_from_its_earliest_vote() -> None:
    votes = [Vote(at, OLD, False, 5) for at in (8.9, 8.5, 8.7, 8.1)]
    assert judge(votes, now=9.0).confirmed_at == 8.5
    assert judge(votes[:2], now=9.0).confirmed_at == -inf


@COLOURS
def test_one_configured_sentinel_names_the_others(awaiting: bool, watched: RedisSentinel) -> None:
    store = RedisStore(f"redis+sentinel://localhost:{watched.sentinel.port}/{watched.service}")

    async def flow() -> None:
        await store.put_organization(Organization("org", "free"))
        with watched.sentinel.stopped():
            await at_last(lambda: store.put_organization(Organization("org", "free")), awaiting)
        await store.close()

    drive(awaiting, flow())


@COLOURS
def test_k4_a_pair_believes_no_copy_of_a_new_primary_before_it_compared(
    awaiting: bool, watched: RedisSentinel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The replica that was promoted had not heard that the copy was voided."""
    monkeypatch.setattr(background, "EVERY", 600.0)
    id = f"org {os.urandom(4).hex()}"
    old = watched.node(watched.named())
    pair = CachedStore(
        SqlStore(f"sqlite:///{tmp_path}/keys.db?mode=rwc"), RedisStore(watched.url(), prefix=id[4:])
    )
    names = Names(id[4:]).for_copies()
    copied = names.place(id).organization, names.caught_up(b"")
    made = new_key()
    draft = draft_of(made, id)

    async def flow() -> None:
        await pair.insert(draft, None)
        await pair.compare()
        assert (await pair.admit(token_of(made), 1, BOOK)).verdict is Verdict.ADMITTED
        dumps = [watched.tell(old, "DUMP", name) for name in copied]
        await pair.revoke_if_live(id, draft.id)
        await pair.compare()
        watched.fail_over()
        replaced(watched, old)
        for name, dump in zip(copied, dumps, strict=True):
            watched.tell(watched.node(watched.named()), "RESTORE", name, 0, dump, "REPLACE")
        admission = await at_last(lambda: pair.admit(token_of(made), 1, BOOK), awaiting)
        assert admission.verdict is Verdict.REVOKED
        await pair.close()

    drive(awaiting, flow())
