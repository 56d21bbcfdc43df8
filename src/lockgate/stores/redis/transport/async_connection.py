"""Links: connections in an event loop, spoken to by callbacks alone.

Redis-py makes the connection: it knows TLS, passwords and the rest. From there on nothing stands
between the transport and those who wait for replies.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from math import inf
from typing import Any, cast

import hiredis
from redis.connection import DefaultParser
from redis.exceptions import ConnectionError, InvalidResponse, RedisError, ResponseError

from ....sync import run
from .commands import Call
from .connection import Lost, Reply, refusal
from .pipeline import Pipeline

_parsed = cast(Callable[[str], Exception], DefaultParser.parse_error)  # pyright: ignore[reportUnknownMemberType] - it has no types


Asked = tuple["asyncio.Future[Reply]", float, Call]
"""Who waits for a reply, until when, and the call."""


class AsyncConnection(asyncio.Protocol):
    """A connection that is made, and those whose calls are on their way on it.

    Args:
        connection: one of redis-py's, connected.
        line: the way to the server that this one is used for.
        turn: is called when no replies are expected any more.
    """

    def __init__(self, connection: Any, line: Pipeline, turn: Callable[[], None]) -> None:
        self.expected: deque[Asked | None] = deque()
        """Who gets the replies that come next; None: nobody gets that one."""
        self.due = inf
        """When all of them have to be there."""
        self.seen = b""
        """The latest reply to a request before those that are expected were asked for."""
        self.is_over = False
        """Whether it was hung up. It keeps no failure: each holds the frames of all who met it."""
        self._line = line
        self._turn = turn
        self._connection = connection
        self._replies = hiredis.Reader(
            protocolError=InvalidResponse, replyError=partial(_refusal, connection)
        )
        self._transport: asyncio.Transport = connection._writer.transport
        # Redis-py waits for this one when it hangs up.
        self._former = self._transport.get_protocol()
        self._transport.set_protocol(self)
        self.write = self._transport.write

    def data_received(self, data: bytes) -> None:
        gets, expected = self._replies.gets, self.expected
        try:
            self._replies.feed(data)
            while (reply := gets(False)) is not False:
                if not expected or isinstance(reply, ConnectionError):
                    self.fail(reply if expected else ConnectionError("a reply that nobody expects"))
                    return
                asked = expected.popleft()
                if asked is not None:
                    answer, _, call = asked
                    if call.is_request and type(reply) is bytes:
                        self._line.seen = reply
                    if not answer.done():
                        answer.set_result(reply)
        except RedisError as failure:
            self.fail(failure)
        else:
            if not expected:
                self._turn()

    def eof_received(self) -> None:
        self.fail(ConnectionError("the server hung up"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._former.connection_lost(exc)
        lost = ConnectionError("the connection is lost")
        lost.__cause__ = exc
        self.fail(lost)

    def fail(self, failure: Exception) -> None:
        """Hang up; for whoever expects a reply, the failure is it."""
        if self.is_over:
            return
        self.is_over = True
        self._line.failing = True
        expected, self.expected = self.expected, deque()
        tell(expected, failure, self.seen)
        self._transport.abort()
        leave(self._connection)
        self._turn()

    async def close(self) -> None:
        """Hang up; by TLS that is a farewell, and its answer comes before the event loop ends."""
        self.is_over = True
        with suppress(RedisError, OSError):
            await self._connection.disconnect()


def tell(those: Iterable[Asked | None], failure: Exception, seen: bytes | None = None) -> None:
    """Tell those who wait that their calls failed.

    Args:
        those: who waits.
        failure: why.
        seen: the latest reply to a request before these calls were sent; None: they were not.
    """
    for asked in those:
        if asked is not None and not asked[0].done():
            answer, _, call = asked
            may_count = seen is not None and call.is_request
            answer.set_result(Lost(failure, seen or b"") if may_count else failure)


def leave(connection: Any) -> None:
    """Hang up, and wait for nothing."""
    with suppress(RedisError, OSError):
        run(connection.disconnect(nowait=True))


def _refusal(connection: Any, text: str) -> Exception:
    """The exception that stands for an error in a reply."""
    error = _parsed(text)
    return refusal(error, connection) if isinstance(error, ResponseError) else error
