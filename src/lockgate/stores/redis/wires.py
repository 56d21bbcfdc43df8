"""Wires: a connection to one server, for callers that block and for callers that await.

Both have the same shape: what blocks never suspends.
"""

import asyncio
import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import suppress
from math import inf
from threading import Event
from time import sleep
from typing import Any, Final

from redis.exceptions import (
    ConnectionError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)

from ..deadlines import Threads, left

_CONNECTING_AT_MOST: Final = 8
_LEAST: Final = 0.001
"""Seconds: a socket that waits for none at all does something else."""
Reply = Any
"""What a call is answered: an int, bytes, a list of such, None; or the exception that it met."""
_IN_SCRIPTS: Final[dict[str, type[ResponseError]]] = {
    "READONLY": ReadOnlyError,
    "OOM": OutOfMemoryError,
    "NOPERM": NoPermissionError,
}
_WRAPPED: Final = re.compile(rf"^Error running script .*: -({'|'.join(_IN_SCRIPTS)}) (.*)")
Dial = Callable[[], Awaitable[Any]]


class NotSent(ConnectionError):
    """There was no connection, so whatever was to be sent took no effect; the cause says why."""

    def __init__(self, cause: Exception) -> None:
        Exception.__init__(self, type(cause).__qualname__)
        self.__cause__ = cause


class Wire(ABC):
    """A connection to one server. It is made anew when it has failed.

    Args:
        dial: gives a new connection, which is not connected yet.
        timeout: seconds to wait for an answer.
    """

    def __init__(self, dial: Dial, timeout: float) -> None:
        self._dial: Final = dial
        self._timeout: Final = timeout
        self._connection: Any = None
        self._stale = False

    @property
    def connected(self) -> bool:
        """Whether there is a connection, which has not failed so far."""
        return self._connection is not None

    def hang_up(self) -> None:
        """Connect anew before the next exchange: somebody may be in the middle of one."""
        self._stale = True

    @abstractmethod
    async def exchange(self, data: bytes, replies: int) -> list[Reply]:
        """Send what may be many commands, and give so many replies.

        Nothing is raised: where the connection fails, each reply that did not come is the failure.
        """

    @abstractmethod
    async def pause(self, seconds: float) -> None:
        """Let some time go by."""

    @abstractmethod
    async def close(self) -> None:
        """Hang up."""


class BlockingWire(Wire):
    """Waits in the calling thread."""

    def __init__(self, dial: Dial, timeout: float) -> None:
        super().__init__(dial, timeout)
        self._threads = Threads(_CONNECTING_AT_MOST)

    async def exchange(self, data: bytes, replies: int) -> list[Reply]:
        received: list[Reply] = []
        try:
            connection = await self._connected()
        except (RedisError, OSError) as failure:
            return [NotSent(failure)] * replies
        try:
            connection.send_packed_command([data], check_health=False)
            for _ in range(replies):
                received.append(_read(connection, self._seconds()))
        except (RedisError, OSError) as failure:
            await self.close()
            received += [failure] * (replies - len(received))
        except BaseException:  # A signal's handler raised: replies are still on their way.
            await self.close()
            raise
        return received

    async def _connected(self) -> Any:
        connection = self._connection
        if connection is not None:
            with suppress(RedisError, OSError):
                if not self._stale and not connection.can_read():
                    return connection
            await self.close()
        self._stale = False
        connection = await self._dial()
        connection.socket_timeout = connection.socket_connect_timeout = self._seconds()
        self._reach(connection)
        self._connection = connection
        return connection

    def _reach(self, connection: Any) -> None:
        """Connect, which takes several steps: all of them together no longer than whoever asks."""
        made, left_behind = Event(), Event()

        def connect() -> None:
            connection.connect()
            made.set()
            if left_behind.is_set():
                connection.disconnect()

        try:
            self._threads.do(connect)
        except BaseException:
            left_behind.set()
            if made.is_set():
                connection.disconnect()
            raise

    def _seconds(self) -> float:
        """How long to wait: no longer than whoever asks."""
        seconds = left()
        return self._timeout if seconds is None else max(_LEAST, min(self._timeout, seconds))

    async def pause(self, seconds: float) -> None:
        sleep(seconds)

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(RedisError, OSError):
                connection.disconnect()


class AwaitingWire(Wire):
    """Awaits in an event loop."""

    async def exchange(self, data: bytes, replies: int) -> list[Reply]:
        received: list[Reply] = []
        try:
            async with asyncio.timeout(self._timeout):
                try:
                    connection = await self._connected()
                except (RedisError, OSError) as failure:
                    return [NotSent(failure)] * replies
                await connection.send_packed_command([data], check_health=False)
                for _ in range(replies):
                    received.append(await _await(connection))
        except (RedisError, OSError) as failure:
            await self.drop()
            received += [failure] * (replies - len(received))
        except BaseException:
            await self.drop()
            raise
        return received

    async def _connected(self) -> Any:
        connection = self._connection
        if connection is not None:
            with suppress(RedisError, OSError):
                if not self._stale and not await connection.can_read():
                    return connection
            await self.drop()
        self._stale = False
        connection = await self._dial()
        await connection.connect()
        self._connection = connection
        return connection

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        await self.drop(nowait=False)  # TLS says farewell, and has the answer before the loop ends.

    async def drop(self, *, nowait: bool = True) -> None:
        """Hang up on a server that may not answer any more."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(RedisError, OSError):
                await connection.disconnect(nowait=nowait)


def _read(connection: Any, seconds: float) -> Reply:
    try:
        return connection.read_response(disable_decoding=True, timeout=seconds)
    except ResponseError as error:
        return _unwrapped(error)


async def _await(connection: Any) -> Reply:
    try:
        return await connection.read_response(disable_decoding=True, timeout=inf)
    except ResponseError as error:
        return _unwrapped(error)


def _unwrapped(error: ResponseError) -> ResponseError:
    """What a command in a script was refused with, which Redis before 7 wraps in words."""
    found = _WRAPPED.search(str(error))
    return error if found is None else _IN_SCRIPTS[found[1]](found[2])
