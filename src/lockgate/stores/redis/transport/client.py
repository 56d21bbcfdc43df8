"""Lanes: how calls get to the servers, what is done about their failures, and who shares a line."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence, Set
from functools import partial, wraps
from time import monotonic, sleep
from typing import Any, Final, TypeVar, cast

from redis.exceptions import (
    AskError,
    AuthenticationError,
    BusyLoadingError,
    ClusterDownError,
    ConnectionError,
    MovedError,
    NoScriptError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TryAgainError,
)

from ....errors import StoreUnavailable
from ...base import StoreError
from ...resilience.deadlines import left
from ...runtime.log_hints import Adviser
from ...runtime.process_hooks import after_fork_in_child
from .async_pipeline import AsyncPipeline
from .commands import Call, command, told_in
from .config import Address, Servers, name_of
from .connection import (
    Dial,
    Lost,
    NotSent,
    Reply,
    SlotAway,
    Split,
    is_short_of_replicas,
    reraise,
)
from .pipeline import BlockingPipeline, Pipeline
from .seed_nodes import SeedNodes
from .sentinels import Watch
from .topology import NOT_SERVED, Cluster, Single, Topology, Watched

T = TypeVar("T")
V = TypeVar("V", bound=Callable[..., Coroutine[Any, Any, Any]])

_PATIENCE: Final = 0.25
"""Seconds in which a Cluster may get its slots in order, for a call without a deadline."""
_PART: Final = 0.8
"""The part of a deadline that is for that: a call that is late would say that the store hangs."""
_PAUSE: Final = 0.002
_LONGEST_PAUSE: Final = 0.05


class Transport:
    """The way to the servers, for callers of one colour.

    Args:
        servers: where they are.
        turns: in which order they are asked where the others are.
        adviser: tells the log what to do where one refuses.
        watch: follows the Sentinels, if there are any.
        awaiting: whether callers await.
    """

    ask: Callable[[Call], Awaitable[Reply]]
    """Makes a call for the first time, in as few steps as can be. A reply that is an exception has
    to be handed to :meth:`insist`."""

    def __init__(
        self,
        servers: Servers,
        turns: SeedNodes,
        adviser: Adviser,
        watch: Watch | None,
        *,
        awaiting: bool,
    ) -> None:
        def draw(dial: Dial) -> Pipeline:
            return (AsyncPipeline if awaiting else BlockingPipeline)(dial, servers.timeout)

        self._servers = servers
        self._turns = turns
        self._draw = draw
        self._pause = asyncio.sleep if awaiting else _sleep
        self._adviser = adviser
        self._by_slot: Sequence[Address | None] = ()
        """As it was known at last: a topology forgets it in order to learn it anew."""
        self._watch = watch
        self._awaiting = awaiting
        self._begin()
        if not awaiting:  # Of the others each has an event loop, and no process takes that along.
            after_fork_in_child(self)

    def forked(self) -> None:
        self._begin()  # What is let go of here closes no connection of the parent.

    async def insist(self, call: Call, reply: Reply) -> Reply:
        """Make a call that failed so, and tell the log what to do if it fails again.

        Raises:
            RedisError: the server refused, or no answer came.
            StoreUnavailable: Sentinels are replacing the server.
        """
        try:
            return await self._insist(call, reply)
        except (RedisError, OSError, StoreUnavailable) as failure:
            self._adviser.hint(failure)
            raise

    async def _insist(self, call: Call, reply: Reply) -> Reply:
        """Make a call that failed so.

        What certainly took no effect is tried again where that may help: where the script is not
        known, the slot has moved, the server turned out to be a replica. What may have taken
        effect is sent again once, if the call is repeatable.
        """
        topology = self._topology
        pauses = _Pauses()
        failed = False
        ask = topology.ask
        seen: bytes | None = None
        while True:
            if isinstance(reply, Lost):
                seen, reply = reply.seen if seen is None else seen, reply.cause
            if not isinstance(reply, Exception):
                return reply
            if isinstance(reply, NoScriptError) and call.script is not None:
                call = call.whole()
            elif isinstance(reply, MovedError | TryAgainError | ClusterDownError):
                call = await self._redirected(call.plain(), reply, pauses)
                ask = topology.ask
            elif isinstance(reply, AskError):  # Redis-py derives MovedError from it.
                call, ask = call.asking(), topology.asked(reply).ask
            elif failed or not _again(reply, call) or not await topology.relearn(reply):
                raise reply.__cause__ if isinstance(reply, NotSent) and reply.__cause__ else reply
            else:
                failed = True
                # Where no reply was lost, it was not sent or took no effect.
                call = call.plain() if seen is None else call.again(told_in(seen))
                ask = topology.ask
            reply = await ask(call)

    async def _redirected(self, call: Call, reply: ResponseError, pauses: "_Pauses") -> Call:
        """Wait for a Cluster that is putting a slot in order; the call to make then.

        Raises:
            Split: the keys of a divisible call lie apart: its caller makes one call for each.
            SlotAway: the slot is not served for too long.
            ClusterDownError: the whole Cluster is down.
        """
        if isinstance(reply, TryAgainError):
            if call.invocation is None:
                raise Split(call) from reply
            if await self._have_left(call):
                return call.by_one_key()
        if isinstance(reply, MovedError):
            self._topology.moved(reply)
        seconds = pauses.next(_PATIENCE if isinstance(reply, ClusterDownError) else None)
        if seconds is None:
            if isinstance(reply, ClusterDownError) and str(reply) != NOT_SERVED:
                raise reply
            raise SlotAway(type(reply).__qualname__) from reply
        if isinstance(reply, ClusterDownError):
            await self._topology.relearn(reply)
        if not isinstance(reply, MovedError) or pauses.number > 1:
            await self._pause(seconds)
        return call

    async def _have_left(self, call: Call) -> bool:
        """Whether none of a call's keys is on the node that its slot is being moved from.

        Then none will be, for that node makes no key in this slot any more; so the call can go to
        the node that the slot is moved to by its first key alone.
        """
        assert call.invocation is not None, "a call by one key is never parted"
        for key in call.invocation.keys:
            reply = await self._topology.ask(command(call.slot, b"EXISTS", key))
            if not isinstance(reply, AskError) or isinstance(reply, MovedError):
                return False
        return True

    def _begin(self) -> None:
        self._topology = self._drawn()
        self.ask = self._topology.ask

    def _drawn(self) -> Topology:
        servers, draw = self._servers, self._draw
        if self._watch is not None:
            return Watched(servers, self._watch, draw, awaiting=self._awaiting)
        if servers.kind == "cluster":
            return Cluster(servers, self._turns, draw)
        return Single(servers, draw)

    async def last(self, change: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Make a change, and answer it only where it is sure to stay, as far as Sentinels tell.

        Raises:
            StoreUnavailable: it may be lost, or a primary is being replaced.
            StoreError: the server refused, or no answer came.
        """
        if self._watch is None:
            return await change()
        topology = self._topology
        try:
            named = await topology.named()
            value = await change()
            if named is not None:
                await topology.kept(named)
        except (RedisError, OSError, StoreError, StoreUnavailable) as failure:
            self._adviser.hint(failure)
            reraise(failure)
        return value

    @property
    def served_by(self) -> object:
        """The primary that Sentinels named at last, or a word for none so far; the arrangement of a
        Cluster, as it was seen at last; None: there is one server."""
        if self._watch is not None:
            return self._watch.primary or "unknown"
        return self._turns.arranged if self._servers.kind == "cluster" else None

    def reset_connections(self) -> None:
        """Use none of the connections again that there are; those who wait for them fail."""
        hanging = self._topology
        self._begin()
        for line in hanging.lines():
            line.give_up()

    def node(self, slot: int) -> str:
        """The server that has a slot, as ``host:port``; empty: it is not known yet."""
        address = self._address(slot)
        return "" if address is None else name_of(address)

    def nodes(self) -> Set[str]:
        """The servers that have slots; empty: they are not known yet."""
        return {name_of(address) for address in set(self._map()) if address is not None}

    def give_up(self, slot: int) -> None:
        """Use the connection no more that there is to the server of a slot."""
        address = self._address(slot)
        if address is not None:
            self._topology.give_up(address)

    def _address(self, slot: int) -> Address | None:
        by_slot = self._map()
        return by_slot[slot] if by_slot else None

    def _map(self) -> Sequence[Address | None]:
        self._by_slot = self._topology.by_slot() or self._by_slot
        return self._by_slot

    async def arrangement(self) -> bytes:
        """Another one whenever a server has taken the place of another."""
        try:
            return await self._topology.arrangement()
        except RedisError as failure:
            reraise(failure)

    async def everyone(self) -> Mapping[str, Pipeline]:
        """A pipeline to each server that holds something of its own, by the server's name."""
        try:
            return await self._topology.everyone()
        except RedisError as failure:
            reraise(failure)

    async def close(self) -> None:
        """Answer what waits, then hang up."""
        for line in self._topology.lines():
            await line.close()


class _Pauses:
    """The pauses of one call while a Cluster puts its slots in order, each twice as long."""

    def __init__(self) -> None:
        seconds = left()
        self._started = monotonic()
        self._patience = _PATIENCE if seconds is None else seconds * _PART
        self.number = 0

    def next(self, at_most: float | None) -> float | None:
        """Seconds of the next one; None: the call has waited for long enough.

        Args:
            at_most: seconds for all of them, or the whole patience.
        """
        patience = self._patience if at_most is None else min(at_most, self._patience)
        if monotonic() - self._started > patience:
            return None
        self.number += 1
        return min(_PAUSE * 2.0**self.number, _LONGEST_PAUSE)


def lasting(verb: V) -> V:
    """Answer a change only where it is sure to stay: see :meth:`Transport.last`.

    Sentinels are asked before and after it, for what an old primary takes is lost. On a server of
    its own or a Cluster this changes nothing.

    Args:
        verb: makes the change: a method of a store whose calls take lanes.
    """

    @wraps(verb)
    async def answered(store: Any, *args: Any, **kwargs: Any) -> Any:
        lane: Transport = store._lanes.here()
        return await lane.last(partial(verb, store, *args, **kwargs))

    return cast(V, answered)


async def _sleep(seconds: float) -> None:
    sleep(seconds)


def _again(failure: Exception, call: Call) -> bool:
    """Whether a call may be sent again, once: it took no effect, or comes to the same."""
    if isinstance(failure, ReadOnlyError | NotSent) or is_short_of_replicas(failure):
        return True
    refused = isinstance(failure, AuthenticationError | BusyLoadingError)
    return call.repeatable and isinstance(failure, ConnectionError) and not refused
