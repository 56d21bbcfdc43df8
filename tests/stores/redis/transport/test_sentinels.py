"""Sentinels replace the primary under load: answered writes are on the new primary.

No test waits for Sentinel to demote an old primary.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack
from math import inf
from pathlib import Path
from time import monotonic, sleep
from typing import Any, NamedTuple, TypeVar

import pytest
import redis
from redis import asyncio as redis_asyncio
from redis.exceptions import ReadOnlyError, RedisError

from lockgate import Gate, Plan, PlanBook, run
from lockgate.core.ledger import Hit
from lockgate.core.plans import Organization
from lockgate.errors import ConfigurationError, KeyRevoked, RateLimitExceeded, StoreUnavailable
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
from tests.patience import SLACK
from tests.servers import RedisSentinel, redis_sentinel

from ...making import draft_of, new_key, token_of
from ..backends import rights

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


class Answer(NamedTuple):
    started: float
    ended: float
    outcome: str


class Traffic:
    """Callers of one gate: some admit, one admits by a limit, one revokes one key after another.

    Args:
        url: the store's.
        awaiting: whether they are tasks of an event loop, or threads.
        store: what to give the gate instead of the URL.
    """

    def __init__(self, url: str, awaiting: bool, store: Any = None) -> None:
        self.gate = Gate(store or url, brand="acme", plans=BOOK)
        self.free: list[Answer] = []
        self.tight: list[Answer] = []
        self.revoked: list[str] = []
        """The keys with an answered revocation."""
        self.unsure = 0
        """Revocations that failed."""
        self._awaiting = awaiting
        self._over = threading.Event()
        self._ready = threading.Event()
        self._threads: list[threading.Thread] = []

    async def _make(self, organization: str) -> tuple[str, str]:
        made = await self.gate.keys.create(organization, "a key")
        return made.key.id, made.text

    async def _prepare(self, tag: str) -> None:
        self.ids = f"free {tag}", f"tight {tag}"
        await self.gate.organizations.place(self.ids[1], "tight")
        self.tokens = [(await self._make(id))[1] for id in self.ids]
        self._keys = [await self._make(self.ids[0]) for _ in range(150)]

    async def _admit(self, token: str, answers: list[Answer]) -> None:
        started = monotonic()
        try:
            await self.gate.authenticate(token)
            outcome = "admitted"
        except RateLimitExceeded:
            outcome = "limited"
        except StoreUnavailable:
            outcome = "unavailable"
        except Exception as failure:
            outcome = type(failure).__qualname__
        answers.append(Answer(started, monotonic(), outcome))

    async def _revoke(self) -> None:
        if not self._keys:
            return
        id, token = self._keys.pop()
        try:
            await self.gate.keys.revoke(self.ids[0], id)
        except StoreUnavailable:
            self.unsure += 1
        else:
            self.revoked.append(token)

    def _work(self) -> list[Callable[[], Any]]:
        free, tight = self.tokens
        return [
            *[lambda: self._admit(free, self.free)] * 3,
            lambda: self._admit(tight, self.tight),
            self._revoke,
        ]

    async def _tasks(self, tag: str) -> None:
        await self._prepare(tag)
        self._ready.set()

        async def go_on(step: Callable[[], Any]) -> None:
            while not self._over.is_set():
                await step()
                await asyncio.sleep(0.01)

        await asyncio.gather(*map(go_on, self._work()))
        await self._finish()

    def _thread(self, step: Callable[[], Any]) -> None:
        while not self._over.is_set():
            run(step())
            sleep(0.01)

    async def _finish(self) -> None:
        self.let_in = [token for token in self.revoked if await self.lets_in(token)]
        await self.gate.close()

    async def lets_in(self, token: str) -> bool:
        until = monotonic() + 120
        while True:
            try:
                await self.gate.authenticate(token)
            except KeyRevoked:
                return False
            except StoreUnavailable:
                assert monotonic() < until
                await asyncio.sleep(0.05) if self._awaiting else sleep(0.05)
            else:
                return True

    def __enter__(self) -> Traffic:
        tag = os.urandom(4).hex()
        if self._awaiting:
            self._threads = [
                threading.Thread(target=lambda: asyncio.run(self._tasks(tag)), daemon=True)
            ]
        else:
            run(self._prepare(tag))
            self._threads = [
                threading.Thread(target=self._thread, args=(step,), daemon=True)
                for step in self._work()
            ]
        for thread in self._threads:
            thread.start()
        assert self._awaiting is False or self._ready.wait(120)
        self.goes_on()
        return self

    def goes_on(self, more: int = 30) -> float:
        """Wait for a number of further admissions; return the seconds that it took."""
        started, so_far = monotonic(), len(self.admitted())
        while len(self.admitted()) < so_far + more:
            assert monotonic() < started + 120, self.free[-3:]
            sleep(0.005)
        return monotonic() - started

    def admitted(self) -> list[Answer]:
        return [answer for answer in tuple(self.free) if answer.outcome == "admitted"]

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(60)
        if not self._awaiting:
            run(self._finish())

    @property
    def over(self) -> int:
        """How many were admitted beyond the limit: all of a run are within an hour."""
        return max(0, sum(answer.outcome == "admitted" for answer in self.tight) - LIMIT)

    @property
    def away(self) -> float:
        """Seconds from the first 503 to the last one."""
        refused = [a for a in (*self.free, *self.tight) if a.outcome == "unavailable"]
        if not refused:
            return 0.0
        return max(a.ended for a in refused) - min(a.ended for a in refused)


@COLOURS
def test_k4_w1_planned_failover_loses_no_revocation_and_no_count(
    awaiting: bool, watched: RedisSentinel
) -> None:
    before = watched.named()
    with Traffic(watched.url(), awaiting) as traffic:
        watched.fail_over(by=1)
        watched.wait(lambda: watched.named() != before)
        traffic.goes_on(300)
        watched.wait(lambda: any(answer.outcome == "limited" for answer in traffic.tight))
        watched.wait(lambda: len(traffic.revoked) > 30)
    print(f"503 for {traffic.away:.2f} s, {len(traffic.revoked)} revoked, {traffic.unsure} unsure")
    assert {a.outcome for a in traffic.free} <= {"admitted", "unavailable"}
    assert (len(traffic.let_in), traffic.over) == (0, 0)
    assert traffic.away < 2 * SLACK


AWAY = OSError, RedisError, StoreError, StoreUnavailable


def drive(awaiting: bool, flow: Coroutine[Any, Any, None]) -> None:
    asyncio.run(flow) if awaiting else run(flow)


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
            watched.wait(lambda: all(watched.named(s) != old.port for s in watched.sentinels))
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
    with Traffic("", awaiting, store) as traffic:
        old.stop(signal.SIGKILL)
        watched.wait(lambda: all(watched.named(s) != old.port for s in watched.sentinels))
        traffic.goes_on(100)
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


@pytest.mark.parametrize("durability", ["", "1", "replicas:0", "replicas:-1", "replicas:x", "all"])
def test_an_invalid_durability_is_refused_at_construction(durability: str) -> None:
    with pytest.raises(ConfigurationError, match="durability"):
        RedisStore("redis+sentinel://a/b", durability=durability)


@pytest.mark.parametrize("url", ["redis://a", "redis+cluster://a"])
def test_durability_needs_sentinels(url: str) -> None:
    with pytest.raises(ConfigurationError, match="Sentinels"):
        RedisStore(url, durability="replicas:1")


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
        watched.wait(lambda: all(watched.named(s) != old.port for s in watched.sentinels))
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
        before = watched.named()
        watched.fail_over()
        watched.wait(lambda: all(watched.named(s) != before for s in watched.sentinels))
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
        watched.wait(lambda: all(watched.named(s) != old.port for s in watched.sentinels))
        for name, dump in zip(copied, dumps, strict=True):
            watched.tell(watched.node(watched.named()), "RESTORE", name, 0, dump, "REPLACE")
        admission = await at_last(lambda: pair.admit(token_of(made), 1, BOOK), awaiting)
        assert admission.verdict is Verdict.REVOKED
        await pair.close()

    drive(awaiting, flow())
