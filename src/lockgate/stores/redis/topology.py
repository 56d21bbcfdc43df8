"""Topologies: which server a call goes to: the only one, the one Sentinels name, or a slot's."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from hashlib import sha1
from time import monotonic
from typing import Any, Final, cast

from redis.exceptions import (
    AskError,
    ClusterDownError,
    ConnectionError,
    MovedError,
    RedisError,
)

from ..deadlines import left
from .calls import Call, command
from .lines import Draw, Line
from .servers import Address, Servers
from .turns import TOO_LITTLE, Turns
from .wires import Dial, NotSent, Reply

SLOTS: Final = 16384
_RELEARNED_AFTER: Final = 0.1
"""Seconds that what was learned of a Cluster is good for, at the least."""


class Topology(ABC):
    """Which line a call takes, and what a failure teaches about that."""

    ask: Callable[[Call], Awaitable[Reply]]
    """Makes a call where its slot is; its failure is a reply like any other."""

    @abstractmethod
    async def everyone(self) -> Sequence[Line]:
        """A line to each server that holds something of its own, in an order that stays."""

    async def arrangement(self) -> bytes:
        """Which servers have which slots: another one whenever that changes.

        Where one server has everything, whatever was said of its data goes and comes with it.
        """
        return b""

    @abstractmethod
    def lines(self) -> Sequence[Line]:
        """Every line that was drawn."""

    @abstractmethod
    async def relearn(self, failure: Exception) -> bool:
        """Find out anew where the servers are, after one failed; whether to try again."""

    def moved(self, error: MovedError) -> None:
        """A server says that it has a slot no more."""
        raise error

    def asked(self, error: AskError) -> Line:
        """The line to the server that a slot is being moved to."""
        raise error


class Single(Topology):
    """One server, at an address or where Sentinels say that it is just now."""

    def __init__(self, servers: Servers, turns: Turns, draw: Draw) -> None:
        self._servers = servers
        self._turns = turns
        self._draw = draw
        self._line = draw(self._dial if servers.kind == "single" else self._find)
        self.ask = self._line.ask

    async def everyone(self) -> Sequence[Line]:
        return (self._line,)

    def lines(self) -> Sequence[Line]:
        return (self._line,)

    async def relearn(self, failure: Exception) -> bool:
        self._line.hang_up()  # Whoever connects anew asks the Sentinels anew.
        self._line.seen = b""  # It may be another server then, with a clock of its own.
        return not isinstance(failure, NotSent)

    async def _dial(self) -> Any:
        return self._servers.connect(None)

    async def _find(self) -> Any:
        service = self._servers.service.encode()
        question = command(0, b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", service)
        for guard in self._turns.each():
            line = self._draw(_to(self._servers.connect_to_sentinel, guard))
            try:
                reply = await line.ask(question)
            finally:
                await line.close()
            if isinstance(reply, list):
                self._turns.answered(guard)
                host, port = cast(list[bytes], reply)
                return self._servers.connect((host.decode(), int(port)))
        raise ConnectionError(f"No Sentinel knows where {self._servers.service!r} is.")


class Cluster(Topology):
    """A Redis Cluster: each slot of the key space lies on one of several servers."""

    def __init__(self, servers: Servers, turns: Turns, draw: Draw) -> None:
        self._servers = servers
        self._turns = turns
        self._draw = draw
        self._lines: dict[Address, Line] = {}
        self._by_slot: list[Address | None] = []
        """Empty: not known. Another thread may forget it at any moment."""
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

    async def _line_to(self, slot: int) -> Line:
        by_slot = self._by_slot or await self._learn()
        address = by_slot[slot]
        if address is not None and self._line(address).failing and self._may_relearn():
            address = (await self._learn())[slot]
        if address is None:
            self._by_slot = []
            raise ClusterDownError(f"slot {slot} is nowhere")
        return self._line(address)

    async def everyone(self) -> Sequence[Line]:
        by_slot = await self._learn()
        return [self._line(address) for address in dict.fromkeys(by_slot) if address is not None]

    async def arrangement(self) -> bytes:
        await self._learn()
        return self._arrangement

    def lines(self) -> Sequence[Line]:
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
            by_slot[error.slot_id] = self._remapped(_named(error))

    def asked(self, error: AskError) -> Line:
        return self._line(self._remapped(_named(error)))

    def _line(self, address: Address) -> Line:
        line = self._lines.get(address)
        if line is None:
            line = self._lines[address] = self._draw(_to(self._servers.connect, address))
        return line

    def _remapped(self, address: Address) -> Address:
        remap = self._servers.remap
        return address if remap is None else remap(address)

    async def _learn(self) -> list[Address | None]:
        """Ask one node after the other where each slot is."""
        self._learned_at = monotonic()
        question = command(0, b"CLUSTER", b"SLOTS")
        reply: Any = NotSent(ConnectionError("no node is known"))
        # Whoever answered last first: one that hangs costs the whole time that it is waited for.
        connected = [address for address, line in list(self._lines.items()) if line.connected]
        for address in self._turns.each(connected):
            reply = await self._line(address).ask(question)
            if not isinstance(reply, Exception):
                self._by_slot = by_slot = self._read(reply, address)
                whose = (each for each in dict.fromkeys(by_slot) if each is not None)
                self._turns.answered(address, *whose)
                return by_slot
        raise reply

    def _read(self, ranges: list[Any], asked: Address) -> list[Address | None]:
        by_slot: list[Address | None] = [None] * SLOTS
        whose = sorted((first, last, primary[2]) for first, last, primary, *_ in ranges)
        self._arrangement = sha1(repr(whose).encode(), usedforsecurity=False).hexdigest().encode()
        for first, last, (host, port, *_), *_ in ranges:
            # Without a host of its own, a node is where it was asked.
            name = host.decode() if host not in {None, b"", b"?"} else asked[0]
            address = self._remapped((name, port))
            by_slot[first : last + 1] = [address] * (last + 1 - first)
        return by_slot


def _named(error: AskError) -> Address:
    """The server that an error names."""
    named: Any = error
    return named.host, named.port


def _to(connect: Callable[[Address], Any], address: Address) -> Dial:
    async def dial() -> Any:
        return connect(address)

    return dial
