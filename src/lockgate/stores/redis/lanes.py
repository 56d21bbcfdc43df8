"""Lanes: how calls get to the servers, what is done about their failures, and who shares a line."""

import asyncio
from collections.abc import Sequence
from time import monotonic
from typing import Final

from redis.exceptions import (
    AskError,
    AuthenticationError,
    BusyLoadingError,
    ClusterDownError,
    ConnectionError,
    MovedError,
    NoScriptError,
    ReadOnlyError,
    TryAgainError,
)

from ...run import run
from ..forks import tell_of_forks
from ..sharing import Gathering, Meeting
from .calls import Call, told_in
from .servers import Servers
from .topology import Cluster, Line, Single, Topology
from .wires import AwaitingWire, BlockingWire, Dial, NotSent, Reply, Wire

TOGETHER_AT_MOST: Final = 128
"""Calls that share a pipeline."""
_PATIENCE: Final = 0.25
"""Seconds in which a Cluster may get its slots in order."""
_PAUSE: Final = 0.005
_closing: set[asyncio.Task[None]] = set()


async def _send(wire: Wire, calls: Sequence[Call]) -> list[Reply]:
    """Send calls in one pipeline."""
    replies = await wire.exchange(
        b"".join([call.written for call in calls]), len(calls) + sum(call.asking for call in calls)
    )
    if len(replies) == len(calls):
        return replies
    answers = iter(replies)
    # The answer to ASKING comes before that of the call itself.
    return [(next(answers), next(answers))[1] if call.asking else next(answers) for call in calls]


class _BlockingLine(Line):
    def __init__(self, wire: Wire) -> None:
        super().__init__(wire)
        self._meeting = Meeting[Call, Reply](
            lambda calls: run(_send(wire, calls)), TOGETHER_AT_MOST
        )

    async def ask(self, call: Call) -> Reply:
        return self._meeting.charge(call)

    def give_up(self) -> None:
        self.wire.hang_up()  # Whoever waits in it has a deadline, and nobody comes after them.

    async def close(self) -> None:
        await self.wire.close()


class _AwaitingLine(Line):
    def __init__(self, wire: AwaitingWire) -> None:
        super().__init__(wire)
        self._drop = wire.drop
        self._gathering = Gathering[Call, Reply](lambda calls: _send(wire, calls), TOGETHER_AT_MOST)

    async def ask(self, call: Call) -> Reply:
        return await self._gathering.charge(call)

    def give_up(self) -> None:
        self._gathering.give_up()
        closing = asyncio.get_running_loop().create_task(self._drop())
        _closing.add(closing)  # The event loop alone would not keep it alive.
        closing.add_done_callback(_closing.discard)

    async def close(self) -> None:
        await self._gathering.drain()
        await self.wire.close()


class Lane:
    """The way to the servers, for callers of one colour.

    Args:
        servers: where they are.
        awaiting: whether callers await.
    """

    def __init__(self, servers: Servers, *, awaiting: bool) -> None:
        def draw(dial: Dial) -> Line:
            if awaiting:
                return _AwaitingLine(AwaitingWire(dial, servers.timeout))
            return _BlockingLine(BlockingWire(dial, servers.timeout))

        self._servers = servers
        self._draw = draw
        self._topology = self._fresh()
        if not awaiting:  # Of the others each has an event loop, and no process takes that along.
            tell_of_forks(self)

    def forked(self) -> None:
        self._topology = self._fresh()  # What is let go of here closes no connection of the parent.

    async def ask(self, call: Call) -> Reply:
        """Make a call and give its reply.

        What certainly took no effect is tried again where that may help: where the script is not
        known, the slot has moved, the server turned out to be a replica. What may have taken
        effect is sent again once, if the call is repeatable.

        Raises:
            RedisError: the server refused, or no answer came.
        """
        topology = self._topology
        started = monotonic()
        line: Line | None = None
        seen: bytes | None = None
        failed = False
        while True:
            try:
                line = line or await topology.line(call.slot)
                seen = line.seen if seen is None else seen
                reply = await line.ask(call)
            except ClusterDownError as down:
                reply = down
            if not isinstance(reply, Exception):
                if call.since is not None and type(reply) is bytes and line is not None:
                    line.seen = reply
                return reply
            if isinstance(reply, NoScriptError) and not call.whole:
                call = call._replace(whole=True)
            elif isinstance(reply, AskError):
                line = topology.asked(reply)
                call = call._replace(asking=True)
            elif isinstance(reply, MovedError | TryAgainError | ClusterDownError):
                if monotonic() - started > _PATIENCE:
                    raise reply
                if isinstance(reply, MovedError):
                    topology.moved(reply)
                elif line is not None:
                    await line.wire.pause(_PAUSE)
                call, line = call._replace(asking=False), None
            elif failed or not _again(reply, call) or not await topology.relearn(reply):
                raise reply.__cause__ if isinstance(reply, NotSent) and reply.__cause__ else reply
            else:
                failed = True
                call, line = call.again(told_in(seen)), None

    def _fresh(self) -> Topology:
        kind = Cluster if self._servers.kind == "cluster" else Single
        return kind(self._servers, self._draw)

    def start_over(self) -> None:
        """Use none of the connections again that there are; those who wait for them fail."""
        hanging, self._topology = self._topology, self._fresh()
        for line in hanging.lines():
            line.give_up()

    async def arrangement(self) -> bytes:
        """Another one whenever a server has taken the place of another."""
        return await self._topology.arrangement()

    async def everyone(self) -> Sequence[Line]:
        """A line to each server that holds something of its own."""
        return await self._topology.everyone()

    async def close(self) -> None:
        """Answer what waits, then hang up."""
        for line in self._topology.lines():
            await line.close()


def _again(failure: Exception, call: Call) -> bool:
    """Whether a call may be sent again, once: it took no effect, or comes to the same."""
    if isinstance(failure, ReadOnlyError | NotSent):
        return True
    refused = isinstance(failure, AuthenticationError | BusyLoadingError)
    return call.repeatable and isinstance(failure, ConnectionError) and not refused
