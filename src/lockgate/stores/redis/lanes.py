"""Lanes: how calls get to the servers, what is done about their failures, and who shares a line."""

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

from ..forks import tell_of_forks
from .awaiting import AwaitingLine
from .calls import Call, told_in
from .lines import BlockingLine, Line
from .servers import Servers
from .topology import Cluster, Single, Topology
from .wires import Dial, NotSent, Reply

_PATIENCE: Final = 0.25
"""Seconds in which a Cluster may get its slots in order."""
_PAUSE: Final = 0.005


class Lane:
    """The way to the servers, for callers of one colour.

    Args:
        servers: where they are.
        awaiting: whether callers await.
    """

    def __init__(self, servers: Servers, *, awaiting: bool) -> None:
        def draw(dial: Dial) -> Line:
            return (AwaitingLine if awaiting else BlockingLine)(dial, servers.timeout)

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
        line = self._topology.at_hand(call.slot)
        if line is None:
            return await self._insist(call)
        seen = line.seen
        reply = await line.ask(call)
        if isinstance(reply, Exception):
            return await self._insist(call, line, seen, reply)
        if call.is_request and type(reply) is bytes:
            line.seen = reply
        return reply

    async def _insist(
        self,
        call: Call,
        line: Line | None = None,
        seen: bytes | None = None,
        reply: Reply = None,
    ) -> Reply:
        """Make a call that failed so, or one that nobody knows a line for."""
        topology = self._topology
        started = monotonic()
        failed = False
        while True:
            if reply is None:
                try:
                    line = line or await topology.line(call.slot)
                    seen = line.seen if seen is None else seen
                    reply = await _asked(line, call)
                except ClusterDownError as down:
                    reply = down
            if not isinstance(reply, Exception):
                return reply
            if isinstance(reply, NoScriptError) and call.script is not None:
                call = call.whole()
            elif isinstance(reply, AskError):
                line = topology.asked(reply)
                call = call.asking()
            elif isinstance(reply, MovedError | TryAgainError | ClusterDownError):
                if monotonic() - started > _PATIENCE:
                    raise reply
                if isinstance(reply, MovedError):
                    topology.moved(reply)
                elif line is not None:
                    await line.pause(_PAUSE)
                call, line = call.plain(), None
            elif failed or not _again(reply, call) or not await topology.relearn(reply):
                raise reply.__cause__ if isinstance(reply, NotSent) and reply.__cause__ else reply
            else:
                failed = True
                call, line = call.again(told_in(seen)), None
            reply = None

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


async def _asked(line: Line, call: Call) -> Reply:
    reply = await line.ask(call)
    if call.is_request and type(reply) is bytes:
        line.seen = reply
    return reply


def _again(failure: Exception, call: Call) -> bool:
    """Whether a call may be sent again, once: it took no effect, or comes to the same."""
    if isinstance(failure, ReadOnlyError | NotSent):
        return True
    refused = isinstance(failure, AuthenticationError | BusyLoadingError)
    return call.repeatable and isinstance(failure, ConnectionError) and not refused
