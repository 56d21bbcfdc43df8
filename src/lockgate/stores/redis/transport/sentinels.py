"""Sentinels: which primary most of them name, and whether they are replacing it just now.

A Sentinel that fails over tells its subscribers 50 to 100 ms before it makes a replica a primary.
From then on no call is sent until a majority names the new primary: writes that the old one takes
meanwhile are lost, and none of them is a store's (docs/design/archive/0018).
"""

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import CancelledError
from contextlib import suppress
from functools import partial
from math import inf
from threading import Thread
from typing import Any, Final, NamedTuple, Protocol, TypeVar
from weakref import WeakSet

from redis.asyncio.client import PubSub
from redis.exceptions import ConnectionError, RedisError

from ....errors import StoreUnavailable
from ...resilience.deadlines import Overdue, left
from ...runtime.process_hooks import after_fork_in_child, own_lock
from .config import SECONDS, Address, Servers

T = TypeVar("T")

EVERY: Final = 0.9
"""Seconds after which a Sentinel is asked again, unless it reports an event before."""
LEASE: Final = 3.0
"""Seconds for which the answer of a Sentinel counts, from when it was asked."""
_TIMEOUT: Final = 1.0
"""Seconds that a Sentinel may take to answer."""
_PAUSE: Final = 0.05
"""Seconds between two attempts to reach a Sentinel that fails."""
_UNUSED: Final = 10.0
"""Seconds without a connection to the primary after which the thread ends."""
_EVENTS: Final = "*failover*", "+switch-master"
_REPLACING: Final = frozenset({"send_slaveof_noone", "wait_promotion"})
"""States of a failover in which a replica may be a primary already, and is not named so far."""
_SHARE: Final = 0.8
"""The part of a call's remaining time that it waits here: it has to be answered in time."""

_left_to_parents: Final[list[object]] = []
"""Event loops of parent processes, kept referenced: closing one here would end the parent's I/O."""


clock: Callable[[], float]
if sys.platform == "linux":  # It also runs while the host is suspended.
    clock = partial(time.clock_gettime, time.CLOCK_BOOTTIME)
else:
    clock = time.monotonic


class Primary(NamedTuple):
    """A server as Sentinels name it. Of two, the one with the newer configuration is greater."""

    epoch: int
    """The configuration epoch (Redis Sentinel documentation)."""
    address: Address


class Vote(NamedTuple):
    """The answer of a Sentinel."""

    asked_at: float
    primary: Primary
    is_replacing: bool
    sentinels: int
    """How many Sentinels there are, as far as it knows."""


class Judgement(NamedTuple):
    """The conclusion from the answers of several Sentinels."""

    primary: Primary | None
    """The server that a majority names; None: none, or it is being replaced."""
    confirmed_at: float
    """The latest instant after which a majority was asked; minus infinity without a primary."""
    is_replacing: bool


def judge(votes: Iterable[Vote], now: float) -> Judgement:
    """Return the conclusion from answers that are not older than :data:`LEASE`.

    Only the newest configuration counts: a Sentinel with an older one has not heard of a failover
    yet, and does within milliseconds if it can be reached.
    """
    votes = [vote for vote in votes if vote.asked_at > now - LEASE]
    if not votes:
        return Judgement(None, -inf, False)
    majority = max(vote.sentinels for vote in votes) // 2 + 1
    epoch = max(vote.primary.epoch for vote in votes)
    newest = [vote for vote in votes if vote.primary.epoch == epoch]
    ((primary, number),) = Counter(vote.primary for vote in newest).most_common(1)
    if any(vote.is_replacing for vote in newest) or number < majority <= len(votes):
        return Judgement(None, -inf, True)
    if number < majority:
        return Judgement(None, -inf, False)
    asked = sorted((vote.asked_at for vote in newest if vote.primary == primary), reverse=True)
    return Judgement(primary, asked[majority - 1], False)


class PrimaryUser(Protocol):
    """A client of the primary."""

    def replaced(self) -> None:
        """Fail the calls under way: the primary is another server now. Called from any thread."""


class Watch:
    """Follows the Sentinels of one service, in one thread for all callers of a process.

    The thread runs an event loop with a task for each Sentinel; it starts with the first call and
    ends when no connection was used for ten seconds. A majority is more than half of the Sentinels
    that the ones asked know of: the number that it takes to elect one for a failover.

    Args:
        servers: where the Sentinels are, and how to connect.
        replicas: how many have to acknowledge a change.
        mark: name of a key that is written to see that they did.
    """

    def __init__(self, servers: Servers, replicas: int = 0, mark: bytes = b"") -> None:
        self._servers = servers
        self._replicas = replicas
        self._mark = mark
        self._lock = own_lock()
        self._begin()
        after_fork_in_child(self)

    def forked(self) -> None:
        _left_to_parents.append((self._loop, self._following, self._writes))
        self._begin()

    def _begin(self) -> None:
        self.primary: Primary | None = None
        """The primary that a majority named at last."""
        self.until = 0.0
        """Until when that counts, by :data:`clock`."""
        self.is_replacing = False
        """Whether Sentinels are putting another server in the place of the primary."""
        self._votes: dict[str, Vote] = {}
        """The latest answer of each Sentinel, by its id."""
        self._tried_at: dict[Address, float] = {}
        """The start of the latest finished attempt to ask each Sentinel."""
        self._following: dict[Address, tuple[asyncio.Task[None], asyncio.Event]] = {}
        self._asked: dict[str, Address] = {}
        """Where each Sentinel is asked, by its id."""
        self._waiting: list[tuple[float, asyncio.Future[Primary]]] = []
        self._used_at = clock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: Thread | None = None
        self._writes: tuple[Primary, Any] | None = None
        self._users: WeakSet[PrimaryUser] = WeakSet()

    def notify(self, user: PrimaryUser) -> None:
        """Call ``user.replaced()`` when the primary is replaced, while the user is referenced."""
        with self._lock:
            self._users.add(user)

    async def named(self, *, awaiting: bool, anew: bool = False) -> Primary:
        """Return the primary that a majority names; while it is being replaced, the next one.

        Args:
            awaiting: whether the caller awaits, or blocks.
            anew: ask all Sentinels now, instead of using their latest answers.

        Raises:
            StoreUnavailable: the primary is being replaced for longer than the caller waits.
            ConnectionError: too few Sentinels answer.
            Overdue: there is too little time left to ask.
        """
        primary, now = self.primary, clock()
        if primary is not None and not anew and now < self.until:
            return primary
        since = now if anew else 0.0
        return await self._do(lambda _: self._named(since), awaiting)

    async def kept(self, since: Primary, *, awaiting: bool) -> None:
        """Return once a change that was made on a primary is where it stays.

        Raises:
            StoreUnavailable: another primary was named meanwhile, or too few replicas have it.
            RedisError, ConnectionError: the primary or the Sentinels do not answer.
        """
        await self._do(lambda seconds: self._kept(since, seconds), awaiting)

    def close(self) -> None:
        """Close the connections, and end the thread."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = None
            self.until = 0.0
            if loop is not None:
                loop.call_soon_threadsafe(self._stopping.set)
        if thread is not None:
            thread.join(EVERY)

    async def _do(self, work: Callable[[float], Coroutine[Any, Any, T]], awaiting: bool) -> T:
        """Run a coroutine in the thread, for as long as the caller waits."""
        seconds = left()
        seconds = SECONDS if seconds is None else seconds * _SHARE
        was_replacing = self.is_replacing
        with self._lock:
            self._used_at = clock()
            future = asyncio.run_coroutine_threadsafe(work(seconds), self._running())
        try:
            if awaiting:
                return await asyncio.wait_for(asyncio.wrap_future(future), seconds)
            return future.result(seconds)
        except (TimeoutError, CancelledError) as failure:
            future.cancel()
            if was_replacing or self.is_replacing:
                raise StoreUnavailable from failure
            if clock() < self.until:
                raise Overdue from failure
            raise self._unknown() from failure

    def _running(self) -> asyncio.AbstractEventLoop:
        loop = self._loop
        if loop is None:
            if self._thread is not None:
                self._thread.join(EVERY)  # It is about to end.
            self._loop = loop = asyncio.new_event_loop()
            self._stopping = asyncio.Event()
            target = partial(self._run, loop, self._stopping)
            self._thread = Thread(target=target, name="lockgate-sentinels", daemon=True)
            self._thread.start()
        return loop

    def _run(self, loop: asyncio.AbstractEventLoop, stopping: asyncio.Event) -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(self._follow_all(loop, stopping))

    async def _follow_all(self, loop: asyncio.AbstractEventLoop, stopping: asyncio.Event) -> None:
        for address in self._servers.addresses:
            self._follow(address)
        try:
            while not stopping.is_set():
                await _woken(stopping, EVERY)
                with self._lock:
                    if not self._users and clock() - self._used_at > _UNUSED:
                        stopping.set()
                    if stopping.is_set() and self._loop is loop:
                        self._loop = None
        finally:
            following = [task for task, _ in self._following.values()]
            for known in (self._following, self._asked, self._votes, self._tried_at):
                known.clear()
            for task in following:
                task.cancel()
            await asyncio.gather(*following, return_exceptions=True)
            if self._writes is not None:
                await self._writes[1].aclose()
                self._writes = None

    def _follow(self, address: Address) -> None:
        if address not in self._following:
            wake = asyncio.Event()
            self._following[address] = asyncio.create_task(self._ask(address, wake)), wake

    async def _ask(self, address: Address, wake: asyncio.Event) -> None:
        """Ask one Sentinel periodically, over connections that are replaced when they fail."""
        while True:
            asked_at = clock()
            with suppress(RedisError, OSError):
                client = self._servers.sentinels.client(address, _TIMEOUT)
                async with client, client.pubsub() as events:
                    if not await self._converse(address, client, events, wake):
                        del self._following[address]
                        return
            self._tried_at[address] = asked_at
            self._judge()
            await asyncio.sleep(_PAUSE)
            await _woken(wake, EVERY)
            wake.clear()

    async def _converse(
        self, address: Address, client: Any, events: PubSub, wake: asyncio.Event
    ) -> bool:
        """Ask one Sentinel until that fails. False: it is asked at a configured address instead."""
        service = self._servers.service
        await events.psubscribe(*_EVENTS)
        id: str = await client.execute_command("SENTINEL MYID")
        named = self._servers.addresses
        if address not in named and self._asked.get(id, address) in named:
            return False
        self._asked[id] = address
        hearing = asyncio.create_task(_hear(events, wake))
        hearing.add_done_callback(lambda _: wake.set())
        try:
            while not hearing.done():
                wake.clear()
                asked_at = clock()
                asking = client.pipeline(transaction=False)
                asking.execute_command("SENTINEL MASTER", service)
                asking.execute_command("SENTINEL GET-MASTER-ADDR-BY-NAME", service)
                state, (host, port) = await asking.execute()
                self._votes[id] = vote = Vote(
                    asked_at,
                    Primary(state["config-epoch"], (host, int(port))),
                    state.get("failover-state") in _REPLACING,
                    state["num-other-sentinels"] + 1,
                )
                if vote.sentinels > max(len(self._asked), len(named)):
                    for other in await client.sentinel_sentinels(service):
                        if other["runid"] not in self._asked:
                            self._follow((other["ip"], other["port"]))
                self._tried_at[address] = asked_at
                self._judge()
                await _woken(wake, EVERY)
            hearing.result()
            return True
        finally:
            hearing.cancel()
            await asyncio.gather(hearing, return_exceptions=True)

    def _judge(self) -> None:
        """Draw the conclusion from the answers so far."""
        primary, confirmed_at, self.is_replacing = judge(list(self._votes.values()), clock())
        if primary is not None and primary != self.primary:
            self.primary = primary
            self._notify_all()
        self.until = confirmed_at + LEASE
        self._answer(confirmed_at)

    def _notify_all(self) -> None:
        with self._lock:
            users = list(self._users)
        for user in users:
            user.replaced()

    def _answer(self, confirmed_at: float) -> None:
        """Answer the waiting calls, as far as the answer is known."""
        waiting, self._waiting = self._waiting, []
        for since, answer in waiting:
            if answer.done():
                continue
            if confirmed_at > since and self.primary is not None:
                answer.set_result(self.primary)
            elif not self.is_replacing and self._are_tried(since):
                answer.set_exception(self._unknown())
            else:
                self._waiting.append((since, answer))

    def _are_tried(self, since: float) -> bool:
        """Return whether every Sentinel was asked since then, in vain or not."""
        tried_at = self._tried_at
        return bool(self._following) and all(
            tried_at.get(address, -1.0) >= since for address in self._following
        )

    def _unknown(self) -> ConnectionError:
        service = self._servers.service
        if not self._votes:
            return ConnectionError(f"No Sentinel knows where {service!r} is.")
        return ConnectionError(f"Too few Sentinels answer where {service!r} is.")

    async def _named(self, since: float) -> Primary:
        answer: asyncio.Future[Primary] = asyncio.get_running_loop().create_future()
        self._waiting.append((since, answer))
        self._judge()
        if not answer.done():
            for _, wake in self._following.values():
                wake.set()
        return await answer

    async def _kept(self, since: Primary, seconds: float) -> None:
        if self._replicas and await self._replicated(since, seconds) < self._replicas:
            raise StoreUnavailable from RedisError("Too few replicas have the change.")
        if await self._named(clock()) != since:
            raise StoreUnavailable

    async def _replicated(self, primary: Primary, seconds: float) -> int:
        """Return how many replicas have all writes so far."""
        if self._writes is None or self._writes[0] != primary:
            if self._writes is not None:
                await self._writes[1].aclose()
            client = self._servers.settings.client(primary.address, SECONDS + seconds)
            self._writes = primary, client
        # WAIT waits for the writes of this connection, and for all earlier writes.
        writing = self._writes[1].pipeline(transaction=False)
        writing.set(self._mark, b"", px=1000)
        writing.execute_command("WAIT", self._replicas, int(seconds * _SHARE * 1000))
        _, replicas = await writing.execute()
        return int(replicas)


async def _woken(wake: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await wake.wait()


async def _hear(events: PubSub, wake: asyncio.Event) -> None:
    """Wake the task of a Sentinel at each event that it reports."""
    while True:
        if await events.get_message(timeout=LEASE) is not None:
            wake.set()
