"""Lines: ways to one server that calls share, for callers that block and for those that await."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from redis.exceptions import ResponseError

from ...runtime.batching import ThreadBatcher
from .commands import Call, command
from .connection import Connection, Dial, Lost, NotSent, Reply

TOGETHER_AT_MOST: Final = 128
"""Calls that share a pipeline."""


class Pipeline(ABC):
    """The way to one server. Calls that wait at the same time go together, in one pipeline."""

    def __init__(self) -> None:
        self.seen = b""
        """The latest reply of the server to a request, which tells an instant."""
        self.failing = False
        """Whether the latest connection failed or could not be made, so that those who asked may
        not even have waited for it."""

    @property
    @abstractmethod
    def connected(self) -> bool:
        """Whether there is a connection, which has not failed so far."""

    @abstractmethod
    def ask(self, call: Call) -> Awaitable[Reply]:
        """Make a call; its failure is a reply like any other, :class:`~.wires.Lost` if the call is
        a request that may have taken effect."""

    async def reply(self, *words: str) -> Reply:
        """Send a command and return the reply.

        Raises:
            RedisError: the server refused, or the connection failed.
        """
        reply = await self.ask(command(0, *(word.encode() for word in words)))
        if isinstance(reply, Exception):
            raise reply
        return reply

    @abstractmethod
    def hang_up(self) -> None:
        """Connect anew before the next pipeline: calls may be on their way in this one."""

    def cut(self) -> None:
        """Fail what is on its way, and connect anew before what comes next. From any thread."""
        self.hang_up()

    @abstractmethod
    def give_up(self) -> None:
        """Send nothing more and wait for nothing."""

    @abstractmethod
    async def close(self) -> None:
        """Answer what waits, then hang up."""


Draw = Callable[[Dial], Pipeline]
"""Draws a line to a server, in the colour of its callers."""


class BlockingPipeline(Pipeline):
    """Waits in the threads of those who ask.

    Args:
        dial: gives a new connection, which is not connected yet.
        timeout: seconds to wait for an answer.
    """

    def __init__(self, dial: Dial, timeout: float) -> None:
        super().__init__()
        self._wire = Connection(dial, timeout)
        self._meeting = ThreadBatcher[Call, Reply](self._send, TOGETHER_AT_MOST)

    @property
    def connected(self) -> bool:
        return self._wire.connected

    async def ask(self, call: Call) -> Reply:
        return self._meeting.charge(call)

    def hang_up(self) -> None:
        self._wire.hang_up()

    def cut(self) -> None:
        self._wire.cut()

    def give_up(self) -> None:
        self._wire.hang_up()  # Whoever waits in it has a deadline, and nobody comes after them.

    async def close(self) -> None:
        self._wire.close()

    def _send(self, calls: Sequence[Call]) -> list[Reply]:
        text = b"".join([call.text for call in calls])
        replies = self._wire.exchange(text, sum([call.replies for call in calls]))
        if len(replies) != len(calls):
            answers = iter(replies)
            # The answer to ASKING comes before that of the call itself.
            replies = [[next(answers) for _ in range(call.replies)][-1] for call in calls]
        before = self.seen
        for place, (call, reply) in enumerate(zip(calls, replies, strict=True)):
            if call.is_request and type(reply) is bytes:
                self.seen = reply
            elif call.is_request and _is_lost(reply):
                replies[place] = Lost(reply, before)
        return replies


def _is_lost(reply: Reply) -> bool:
    """Whether something was sent, and then the connection failed."""
    return isinstance(reply, Exception) and not isinstance(reply, ResponseError | NotSent)
