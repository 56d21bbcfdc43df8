"""Topologies: which server a call goes to: the only one, the one Sentinels name, or a slot's."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from hashlib import sha1
from time import monotonic
from typing import Any, Final, NamedTuple

from redis.exceptions import (
    AskError,
    ClusterDownError,
    ConnectionError,
    MovedError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)

from ....errors import StoreUnavailable
from ...resilience.deadlines import Overdue, left
from .commands import Call, command
from .config import Address, Servers, name_of
from .connection import NO_HOST, Dial, NotSent, Reply, is_short_of_replicas
from .pipeline import Draw, Pipeline
from .seed_nodes import TOO_LITTLE, SeedNodes
from .sentinels import Primary, Watch, clock

SLOTS: Final = 16384
NOT_SERVED: Final = "Hash slot not served"
"""What a node says of a slot that none has. Of a whole Cluster that is down it says otherwise."""
_RELEARNED_AFTER: Final = 0.1
"""Seconds that what was learned of a Cluster is good for, at the least."""


class Topology(ABC):
    """Which line a call takes, and what a failure teaches about that."""

    ask: Callable[[Call], Awaitable[Reply]]
    """Makes a call where its slot is; its failure is a reply like any other."""

    @abstractmethod
    async def everyone(self) -> Mapping[str, Pipeline]:
        """A pipeline to each server that holds something of its own, by the server's name, in an
        order that stays."""

    async def arrangement(self) -> bytes:
        """Which servers have which slots: another one whenever that changes.

        Where one server has everything, whatever was said of its data goes and comes with it.
        """
        return b""

    def by_slot(self) -> Sequence[Address | None]:
        """The server of each slot; empty: that is not known, or there is only one server."""
        return ()

    def give_up(self, address: Address) -> None:
        """Use the line to a server no more: those who wait for it fail."""
        return

    @abstractmethod
    def lines(self) -> Sequence[Pipeline]:
        """Every line that was drawn."""

    @abstractmethod
    async def relearn(self, failure: Exception) -> bool:
        """Find out anew where the servers are, after one failed; whether to try again."""

    async def named(self) -> Primary | None:
        """The server that takes changes, as Sentinels answer just now; None: there are none.

        Raises:
            StoreUnavailable: it is being replaced.
            ConnectionError: too few Sentinels answer.
        """
        return None

    async def kept(self, since: Primary) -> None:
        """Return once the Sentinels still name the primary that took a change.

        Raises:
            StoreUnavailable: they name another one or none, so the change may be lost.
        """
        raise NotImplementedError(f"No Sentinel has named {since.address}.")

    def moved(self, error: MovedError) -> None:
        """A server says that it has a slot no more."""
        raise error

    def asked(self, error: AskError) -> Pipeline:
        """The line to the server that a slot is being moved to."""
        raise error


class Single(Topology):
    """One server, at an address."""

    def __init__(self, servers: Servers, draw: Draw) -> None:
        self._servers = servers
        self._line = draw(self._dial)
        self.ask = self._line.ask

    async def everyone(self) -> Mapping[str, Pipeline]:
        return {self._servers.name: self._line}

    def lines(self) -> Sequence[Pipeline]:
        return (self._line,)

    async def relearn(self, failure: Exception) -> bool:
        if is_short_of_replicas(failure):
            return False
        self._line.hang_up()
        self._line.seen = b""  # It may be another server then, with a clock of its own.
        return not isinstance(failure, NotSent)

    async def _dial(self) -> Any:
        return self._servers.connect(None)


class Watched(Topology):
    """The primary that Sentinels name: no call is sent to any other server.

    Args:
        servers: how to connect.
        watch: follows the Sentinels.
        draw: draws a line.
        awaiting: whether callers await.
    """

    def __init__(self, servers: Servers, watch: Watch, draw: Draw, *, awaiting: bool) -> None:
        self._servers = servers
        self._watch = watch
        self._awaiting = awaiting
        self._line = draw(self._dial)
        self._primary: Primary | None = None
        """Where the line goes to."""
        self.ask = self._ask

    def _ask(self, call: Call) -> Awaitable[Reply]:
        watch = self._watch
        if watch.primary is self._primary and clock() < watch.until:
            return self._line.ask(call)
        return self._find_and_ask(call)

    async def _find_and_ask(self, call: Call) -> Reply:
        waits = self._watch.is_replacing
        try:
            await self._find()
        except (RedisError, OSError, StoreUnavailable) as failure:
            return failure
        try:
            reply = await self._line.ask(call)
        except Overdue as failure:
            if waits:  # For another primary: that a call has little time left says nothing of it.
                raise StoreUnavailable from failure
            raise
        return StoreUnavailable() if waits and isinstance(reply, NotSent) else reply

    async def _find(self, *, anew: bool = False) -> None:
        primary = await self._watch.named(awaiting=self._awaiting, anew=anew)
        self._watch.tell(self)
        if primary is not self._primary:
            self._primary = primary
            self._line.hang_up()
            self._line.seen = b""  # Another server has a clock of its own.

    async def everyone(self) -> Mapping[str, Pipeline]:
        await self._find()
        assert self._primary is not None, "it was found"
        return {name_of(self._primary.address): self._line}

    def lines(self) -> Sequence[Pipeline]:
        return (self._line,)

    def replaced(self) -> None:
        self._line.cut()

    async def relearn(self, failure: Exception) -> bool:
        before = self._primary
        await self._find(anew=True)
        if self._primary is not before:
            return True
        if isinstance(failure, ConnectionError | ReadOnlyError):
            self._line.hang_up()
        return not isinstance(failure, NotSent) and not is_short_of_replicas(failure)

    async def named(self) -> Primary:
        await self._find(anew=True)
        assert self._primary is not None, "it was found"
        return self._primary

    async def kept(self, since: Primary) -> None:
        await self._watch.kept(since, awaiting=self._awaiting)

    async def _dial(self) -> Any:
        assert self._primary is not None, "a call is sent once it was found"
        return self._servers.connect_to_primary(self._primary.address)


class _Map(NamedTuple):
    """The slots of a Cluster as one of its nodes knows them, most important first."""

    covers: bool
    """Whether a node has the slot that was asked for."""
    is_ok: bool
    """`cluster_state`: whether the node reaches a majority of the masters."""
    epoch: int
    """`cluster_current_epoch`: it grows with every failover and every slot that moved."""
    by_slot: list[Address | None]
    arrangement: bytes


class Cluster(Topology):
    """A Redis Cluster: each slot of the key space lies on one of several servers."""

    def __init__(self, servers: Servers, turns: SeedNodes, draw: Draw) -> None:
        self._servers = servers
        self._turns = turns
        self._draw = draw
        self._lines: dict[Address, Pipeline] = {}
        self._by_slot: list[Address | None] = []
        """Empty: not known. Another thread may forget it at any moment."""
        self._nodes: frozenset[Address] = frozenset()
        """The nodes that had slots in the latest map."""
        self._change_counter = 0
        """The newest configuration epoch of any node so far."""
        self._learned_at = -_RELEARNED_AFTER
        self._arrangement = b""
        self.ask = self._ask

    def _ask(self, call: Call) -> Awaitable[Reply]:
        by_slot = self._by_slot
        address = by_slot[call.slot] if by_slot else None
        line = None if address is None else self._lines.get(address)
        if line is None or line.failing:
            return self._find_and_ask(call)
        return line.ask(call)

    async def _find_and_ask(self, call: Call) -> Reply:
        try:
            line = await self._line_to(call.slot)
        except NotSent as failure:
            return failure.__cause__
        except (RedisError, OSError) as failure:
            return failure
        return await line.ask(call)

    async def _line_to(self, slot: int) -> Pipeline:
        by_slot = self._by_slot or await self._learn(slot)
        address = by_slot[slot]
        line = None if address is None else self._lines.get(address)
        # Where a line was given up, a replica may have the slot by now.
        if (line is None or line.failing) and self._may_relearn():
            address = (await self._learn(slot))[slot]
        if address is None:
            raise ClusterDownError(NOT_SERVED)
        return self._line(address)

    async def everyone(self) -> Mapping[str, Pipeline]:
        addresses = dict.fromkeys(await self._learn())
        return {name_of(each): self._line(each) for each in addresses if each is not None}

    async def arrangement(self) -> bytes:
        await self._learn()
        return self._arrangement

    def by_slot(self) -> Sequence[Address | None]:
        return self._by_slot

    def give_up(self, address: Address) -> None:
        line = self._lines.pop(address, None)
        if line is not None:
            line.give_up()

    def lines(self) -> Sequence[Pipeline]:
        return list(self._lines.values())

    async def relearn(self, failure: Exception) -> bool:
        seconds = left()
        if seconds is not None and seconds < TOO_LITTLE:
            self._by_slot = []  # Whoever comes next has the time to learn.
            return False
        if self._may_relearn():
            await self._learn()
        return True

    def _may_relearn(self) -> bool:
        return monotonic() - self._learned_at >= _RELEARNED_AFTER

    def moved(self, error: MovedError) -> None:
        by_slot = self._by_slot
        if by_slot:
            by_slot[error.slot_id] = address = self._remapped(_named(error))
            self._nodes |= {address}
            self._turns.arranged = object()

    def asked(self, error: AskError) -> Pipeline:
        return self._line(self._remapped(_named(error)))

    def _line(self, address: Address) -> Pipeline:
        line = self._lines.get(address)
        if line is None:
            line = self._lines[address] = self._draw(_to(self._servers.connect, address))
        return line

    def _remapped(self, address: Address) -> Address:
        remap = self._servers.remap
        return address if remap is None else remap(address)

    async def _learn(self, slot: int | None = None) -> list[Address | None]:
        """Ask one node after the other where each slot is, until a map can be trusted.

        A map is trusted if it has the slot, its node reaches a majority of the masters, and no node
        told of a newer configuration before. If there is none, the best one is taken. A node that
        has been removed from the Cluster goes on running without any slot: what it says is no map.

        Args:
            slot: which one is asked for; None: any.

        Raises:
            ConnectionError: no node answered.
            ClusterDownError: no node that answered has a map.
        """
        self._learned_at = monotonic()
        failure: Exception = NotSent(ConnectionError("no node is known"))
        best: _Map | None = None
        first: Address | None = None
        try:
            for address in self._turns.each(self._connected()):
                try:
                    told = await self._told_by(address, slot)
                except (RedisError, OSError) as refused:
                    failure = refused
                    continue
                if best is None or told[:3] > best[:3]:
                    best, first = told, address
                if told.covers and told.is_ok and told.epoch >= self._change_counter:
                    break
        except Overdue:
            if best is None:
                raise
        if best is None or first is None:
            raise failure
        if self._arrangement not in {b"", best.arrangement}:
            self._turns.arranged = object()
        self._by_slot, self._arrangement, self._change_counter = (
            best.by_slot,
            best.arrangement,
            best.epoch,
        )
        nodes = [each for each in dict.fromkeys(best.by_slot) if each is not None]
        nodes.sort(key=first.__ne__)  # The node that answered comes first, if it has slots.
        self._nodes = frozenset(nodes)
        self._turns.answered(*nodes)
        return best.by_slot

    def _connected(self) -> list[Address]:
        """Nodes to ask before all others: one that hangs costs the whole time of a caller."""
        lines = list(self._lines.items())
        return [address for address, line in lines if line.connected and address in self._nodes]

    async def _told_by(self, address: Address, slot: int | None) -> _Map:
        """The map of one node.

        Raises:
            RedisError, OSError: it did not answer, or has none.
        """
        line = self._line(address)
        ranges = await line.ask(command(0, b"CLUSTER", b"SLOTS"))
        if isinstance(ranges, Exception):
            raise ranges
        if not ranges:
            raise ClusterDownError(NOT_SERVED)
        is_ok, epoch = True, self._change_counter
        info = await line.ask(command(0, b"CLUSTER", b"INFO"))
        if isinstance(info, Exception) and not isinstance(info, ResponseError):
            raise info
        if isinstance(info, bytes):  # Not every user has the right.
            fields = dict(text.split(b":", 1) for text in info.split())
            is_ok = fields[b"cluster_state"] == b"ok"
            epoch = int(fields[b"cluster_current_epoch"])
        by_slot, arrangement = self._read(ranges, address)
        covers = slot is None or by_slot[slot] is not None
        return _Map(covers, is_ok, epoch, by_slot, arrangement)

    def _read(self, ranges: list[Any], asked: Address) -> tuple[list[Address | None], bytes]:
        by_slot: list[Address | None] = [None] * SLOTS
        whose = sorted((first, last, primary[2]) for first, last, primary, *_ in ranges)
        arrangement = sha1(repr(whose).encode(), usedforsecurity=False).hexdigest().encode()
        for first, last, (host, port, *_), *_ in ranges:
            # Without a host of its own, a node is where it was asked.
            name = asked[0] if host in NO_HOST else host.decode()
            address = self._remapped((name, port))
            by_slot[first : last + 1] = [address] * (last + 1 - first)
        return by_slot, arrangement


def _named(error: AskError) -> Address:
    """The server that an error names."""
    named: Any = error
    return named.host, named.port


def _to(connect: Callable[[Address], Any], address: Address) -> Dial:
    async def dial() -> Any:
        return connect(address)

    return dial
