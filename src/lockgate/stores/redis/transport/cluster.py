"""A Redis Cluster: which node a slot's calls go to, and which nodes are asked about that."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from functools import partial
from hashlib import sha1
from time import monotonic, sleep
from typing import Any, Final, NamedTuple

from redis.exceptions import (
    AskError,
    ClusterDownError,
    ConnectionError,
    MovedError,
    RedisError,
    ResponseError,
    TryAgainError,
)

from ...resilience.deadlines import Overdue, left
from ...runtime.log_hints import Adviser
from .client import Pauses, RedisClient
from .commands import Call, command
from .config import Address, Servers, name_of
from .failures import NO_HOST, NotSent, Reply, SlotUnavailable, Split, reraise
from .pipeline import Pipeline

SLOTS: Final = 16384
NOT_SERVED: Final = "Hash slot not served"
"""The error of a slot without a node; the error of a whole Cluster that is down is another."""
_LEARNED_AGAIN_AFTER: Final = 0.1
"""Seconds for which a map of the slots is kept at least."""
_TOO_LITTLE: Final = 0.01
"""Seconds in which no node answers to which there is no connection."""


class SeedNodes:
    """Addresses of Cluster nodes to ask one after the other until one answers.

    A dead host does not answer, and the caller's deadline ends before the next address. So each
    address is moved to the end before it is asked, and the next attempt starts with another, on any
    connection and in any event loop.

    Args:
        addresses: the addresses that the settings name, of which one is enough.
    """

    def __init__(self, addresses: Iterable[Address]) -> None:
        self._configured: Final = tuple(addresses)
        self.arrangement: object = object()
        """Another object whenever a server was seen to take the place of another."""
        self.order: tuple[Address, ...] = self._configured
        """It is replaced as a whole: threads may read it meanwhile."""

    def each(self, sooner: Iterable[Address] = ()) -> Iterator[Address]:
        """Yield the addresses, each of which is put last, for as long as there is time.

        Args:
            sooner: addresses that come before all others.

        Raises:
            Overdue: there is no time left to ask the next one.
        """
        for number, address in enumerate(dict.fromkeys((*sooner, *self.order))):
            seconds = left()
            if number and seconds is not None and seconds < _TOO_LITTLE:
                raise Overdue
            self.order = (*(other for other in self.order if other != address), address)
            yield address

    def answered(self, address: Address, *others: Address) -> None:
        """Order the addresses: first this one, then the addresses in its answer, then the seeds."""
        self.order = tuple(dict.fromkeys((address, *others, *self._configured)))


class _SlotMap(NamedTuple):
    """The slots of a Cluster as one of its nodes knows them, most important first."""

    covers: bool
    """Whether a node has the slot that was asked for."""
    is_ok: bool
    """`cluster_state`: whether the node reaches a majority of the masters."""
    epoch: int
    """`cluster_current_epoch`: it grows with every failover and every slot that moved."""
    by_slot: list[Address | None]
    arrangement: bytes


class ClusterClient(RedisClient):
    """Makes calls to a Redis Cluster: each slot of the key space lies on one of several servers.

    Args:
        servers: how to connect.
        adviser: logs what to do when a server refuses.
        seeds: the nodes to ask where each slot is, shared by all clients of a store.
        awaiting: whether callers await.
    """

    def __init__(
        self,
        servers: Servers,
        adviser: Adviser,
        seeds: SeedNodes,
        *,
        awaiting: bool,
        patience: float = 0,
    ) -> None:
        self._seeds = seeds
        self._latest_map: Sequence[Address | None] = ()
        """The latest map of the slots; empty: none yet."""
        super().__init__(servers, adviser, awaiting=awaiting, patience=patience)

    def _begin(self) -> None:
        self._pipelines: dict[Address, Pipeline] = {}
        self._by_slot: list[Address | None] = []
        """Empty: not known. Another thread may forget it at any moment."""
        self._nodes: frozenset[Address] = frozenset()
        """The nodes that had slots in the latest map."""
        self._epoch = 0
        """The newest configuration epoch of any node so far."""
        self._learned_at = -_LEARNED_AGAIN_AFTER
        self._arrangement = b""
        self.ask = self._ask

    def _ask(self, call: Call) -> Awaitable[Reply]:
        by_slot = self._by_slot
        address = by_slot[call.slot] if by_slot else None
        pipeline = None if address is None else self._pipelines.get(address)
        if pipeline is None or pipeline.failing:
            return self._find_and_ask(call)
        return pipeline.ask(call)

    async def _find_and_ask(self, call: Call) -> Reply:
        try:
            pipeline = await self._pipeline_of(call.slot)
        except NotSent as failure:
            return failure.__cause__
        except (RedisError, OSError) as failure:
            return failure
        return await pipeline.ask(call)

    async def _pipeline_of(self, slot: int) -> Pipeline:
        by_slot = self._by_slot or await self._learn(slot)
        address = by_slot[slot]
        pipeline = None if address is None else self._pipelines.get(address)
        # Where a pipeline was abandoned, a replica may have the slot by now.
        if (pipeline is None or pipeline.failing) and self._may_relearn():
            address = (await self._learn(slot))[slot]
        if address is None:
            raise ClusterDownError(NOT_SERVED)
        return self._pipeline_to(address)

    async def tell(self, call: Call) -> None:
        with suppress(RedisError, OSError):  # The next call meets the same failure.
            (await self._pipeline_of(call.slot)).tell(call)

    def pipelines(self) -> Sequence[Pipeline]:
        return list(self._pipelines.values())

    async def by_server(self) -> Mapping[str, Pipeline]:
        try:
            addresses = dict.fromkeys(await self._learn())
        except RedisError as failure:
            reraise(failure)
        return {name_of(each): self._pipeline_to(each) for each in addresses if each is not None}

    async def arrangement(self) -> bytes:
        try:
            await self._learn()
        except RedisError as failure:
            reraise(failure)
        return self._arrangement

    @property
    def served_by(self) -> object:
        """Another object after each change of the nodes, as it was seen last."""
        return self._seeds.arrangement

    def node(self, slot: int) -> str:
        address = self._address(slot)
        return "" if address is None else name_of(address)

    def nodes(self) -> Set[str]:
        return {name_of(address) for address in set(self._map()) if address is not None}

    def abandon(self, slot: int) -> None:
        address = self._address(slot)
        pipeline = None if address is None else self._pipelines.pop(address, None)
        if pipeline is not None:
            pipeline.abandon()

    def _address(self, slot: int) -> Address | None:
        by_slot = self._map()
        return by_slot[slot] if by_slot else None

    def _map(self) -> Sequence[Address | None]:
        self._latest_map = self._by_slot or self._latest_map
        return self._latest_map

    async def _relearn(self, failure: Exception) -> bool:
        seconds = left()
        if seconds is not None and seconds < _TOO_LITTLE:
            self._by_slot = []  # The next call has the time to learn.
            return False
        if self._may_relearn():
            await self._learn()
        return True

    def _may_relearn(self) -> bool:
        return monotonic() - self._learned_at >= _LEARNED_AGAIN_AFTER

    async def _redirected(
        self, call: Call, failure: Exception, pauses: Pauses
    ) -> tuple[Call, Callable[[Call], Awaitable[Reply]]] | None:
        if isinstance(failure, MovedError | TryAgainError | ClusterDownError):
            return await self._waited(call.plain(), failure, pauses), self.ask
        if isinstance(failure, AskError):  # Redis-py derives MovedError from it.
            return call.asking(), self._pipeline_to(self._remapped(_named(failure))).ask
        return None

    async def _waited(self, call: Call, failure: ResponseError, pauses: Pauses) -> Call:
        """Wait for a Cluster that is putting a slot in order; return the call to make then.

        Raises:
            Split: the keys of a divisible call are on two nodes: its caller makes one call for
                each.
            SlotUnavailable: the slot is not served for too long.
            ClusterDownError: the whole Cluster is down.
        """
        if isinstance(failure, TryAgainError):
            if call.invocation is None:
                raise Split(call) from failure
            if await self._keys_have_moved(call):
                return call.by_one_key()
        if isinstance(failure, MovedError):
            self._moved(failure)
        seconds = pauses.next(is_down=isinstance(failure, ClusterDownError))
        if seconds is None:
            if isinstance(failure, ClusterDownError) and str(failure) != NOT_SERVED:
                raise failure
            raise SlotUnavailable(type(failure).__qualname__) from failure
        if isinstance(failure, ClusterDownError):
            await self._relearn(failure)
        if not isinstance(failure, MovedError) or pauses.number > 1:
            await (asyncio.sleep(seconds) if self._awaiting else _sleep(seconds))
        return call

    async def _keys_have_moved(self, call: Call) -> bool:
        """Return whether none of a call's keys is on the node that its slot is being moved from.

        Then none will be, since that node makes no key in this slot any more. So the call can go to
        the node that the slot is moved to by its first key alone.
        """
        assert call.invocation is not None, "a call by one key is never split"
        for key in call.invocation.keys:
            reply = await self.ask(command(call.slot, b"EXISTS", key))
            if not isinstance(reply, AskError) or isinstance(reply, MovedError):
                return False
        return True

    def _moved(self, error: MovedError) -> None:
        by_slot = self._by_slot
        if by_slot:
            by_slot[error.slot_id] = address = self._remapped(_named(error))
            self._nodes |= {address}
            self._seeds.arrangement = object()

    def _pipeline_to(self, address: Address) -> Pipeline:
        pipeline = self._pipelines.get(address)
        if pipeline is None:
            pipeline = self._new_pipeline(partial(self._servers.endpoint, address))
            self._pipelines[address] = pipeline
        return pipeline

    def _remapped(self, address: Address) -> Address:
        remap = self._servers.remap
        return address if remap is None else remap(address)

    async def _learn(self, slot: int | None = None) -> list[Address | None]:
        """Ask one node after the other where each slot is, until a map can be trusted.

        A map is trusted if it has the slot, its node reaches a majority of the masters, and no node
        reported a newer configuration before. Without a trusted map, the best one is taken. A node
        that was removed from the Cluster keeps running without any slot: its answer is no map.

        Args:
            slot: the slot that the map has to cover; None: any map.

        Raises:
            ConnectionError: no node answered.
            ClusterDownError: no node that answered has a map.
        """
        self._learned_at = monotonic()
        failure: Exception = NotSent(ConnectionError("no node is known"))
        best: _SlotMap | None = None
        first: Address | None = None
        try:
            for address in self._seeds.each(self._connected()):
                try:
                    read = await self._read_from(address, slot)
                except (RedisError, OSError) as refused:
                    failure = refused
                    continue
                if best is None or read[:3] > best[:3]:
                    best, first = read, address
                if read.covers and read.is_ok and read.epoch >= self._epoch:
                    break
        except Overdue:
            if best is None:
                raise
        if best is None or first is None:
            raise failure
        if self._arrangement not in {b"", best.arrangement}:
            self._seeds.arrangement = object()
        self._by_slot, self._arrangement = best.by_slot, best.arrangement
        self._epoch = best.epoch
        nodes = [each for each in dict.fromkeys(best.by_slot) if each is not None]
        nodes.sort(key=first.__ne__)  # The node that answered comes first, if it has slots.
        self._nodes = frozenset(nodes)
        self._seeds.answered(*nodes)
        return best.by_slot

    def _connected(self) -> list[Address]:
        """Return the nodes to ask before all others: a node that hangs costs a whole deadline."""
        pipelines = list(self._pipelines.items())
        return [address for address, each in pipelines if each.connected and address in self._nodes]

    async def _read_from(self, address: Address, slot: int | None) -> _SlotMap:
        """Read the map of one node.

        Raises:
            RedisError, OSError: the node did not answer, or has no map.
        """
        pipeline = self._pipeline_to(address)
        ranges = await pipeline.reply("CLUSTER", "SLOTS")
        if not ranges:
            raise ClusterDownError(NOT_SERVED)
        is_ok, epoch = True, self._epoch
        with suppress(ResponseError):  # Not every user has the right.
            info: bytes = await pipeline.reply("CLUSTER", "INFO")
            fields = dict(text.split(b":", 1) for text in info.split())
            is_ok = fields[b"cluster_state"] == b"ok"
            epoch = int(fields[b"cluster_current_epoch"])
        by_slot, arrangement = self._read(ranges, address)
        covers = slot is None or by_slot[slot] is not None
        return _SlotMap(covers, is_ok, epoch, by_slot, arrangement)

    def _read(self, ranges: list[Any], asked: Address) -> tuple[list[Address | None], bytes]:
        by_slot: list[Address | None] = [None] * SLOTS
        whose = sorted((first, last, primary[2]) for first, last, primary, *_ in ranges)
        arrangement = sha1(repr(whose).encode(), usedforsecurity=False).hexdigest().encode()
        for first, last, (host, port, *_), *_ in ranges:
            # A node without a host in its answer has the address at which it was asked.
            name = asked[0] if host in NO_HOST else host.decode()
            address = self._remapped((name, port))
            by_slot[first : last + 1] = [address] * (last + 1 - first)
        return by_slot, arrangement


def _named(error: AskError) -> Address:
    """Return the server that an error names."""
    named: Any = error
    return named.host, named.port


async def _sleep(seconds: float) -> None:
    sleep(seconds)
