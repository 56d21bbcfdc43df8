"""Connections: one protocol core without I/O, and two shells that carry its bytes.

:class:`Exchange` assigns replies to calls, and the failure of a connection to each call. A
:class:`BlockingConnection` transfers bytes in its caller's thread, an :class:`AsyncConnection` in
an event loop, by callbacks only: an admission in a server creates no task and no coroutine here.
"""

import asyncio
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from math import inf
from ssl import SSLWantReadError
from time import monotonic
from typing import Any, Final, cast

import hiredis
from redis import exceptions
from redis.exceptions import ConnectionError, InvalidResponse, RedisError

from ....sync import run
from .commands import Call, words
from .config import Endpoint
from .failures import Forgotten, Lost, Reply, error_reply

_READ_AT_ONCE: Final = 65536
_IDLE: Final = 1.0
"""Seconds without a call after which the network may have forgotten a connection."""


class _HeldReply:
    """Holds the reply to a call, as a future does, for a thread that waits for a whole batch."""

    __slots__ = ("reply",)

    def done(self) -> bool:
        return False

    def set_result(self, result: Reply) -> None:
        self.reply: Reply = result


Waiting = tuple[Any, float, Call]
"""A call under way: the future or :class:`_HeldReply` that gets its reply, the instant at which its
caller stops waiting, and the call."""


class LatestReply:
    """The latest reply of one server to a request, with an instant: see :class:`Lost`."""

    def __init__(self) -> None:
        self.seen = b""
        """Empty: no reply yet, or another server has taken this one's place since."""


class Exchange:
    """The RESP protocol of one connection, without I/O: assigns replies to the calls in progress.

    Args:
        host: the server, for redirections that name none.
        latest: receives the replies to requests.
    """

    def __init__(self, host: str, latest: LatestReply) -> None:
        self.expected: deque[Waiting | None] = deque()
        """The calls in the order of their replies; None: the reply to ``ASKING``, of no call."""
        self.began = inf
        """The instant at which the latest batch was begun, in monotonic seconds."""
        self.was_idle = False
        """Whether the connection had been idle before it."""
        self._was_answered = False
        self._latest = latest
        self._seen = b""
        """The latest reply to a request before the calls under way were sent."""
        self._replies = hiredis.Reader(
            protocolError=InvalidResponse, replyError=partial(error_reply, host)
        )

    def begin(self, waiting: deque[Waiting], most: int = 1) -> list[bytes]:
        """Take a batch of waiting calls, expect their replies, and return the texts to send."""
        now = monotonic()
        self.was_idle = now - self.began > _IDLE
        self.began = now
        self._seen = self._latest.seen
        expected = self.expected
        texts: list[bytes] = []
        while waiting and len(texts) < most:
            each = waiting.popleft()
            answer, _, call = each
            if not answer.done():  # A cancelled call is not sent, so it is not charged.
                if call.replies > 1:
                    expected.append(None)
                expected.append(each)
                texts.append(call.text)
        return texts

    def receive(self, data: bytes) -> None:
        """Give each reply in received bytes to its call.

        Raises:
            RedisError: the connection has to be closed.
        """
        gets, expected = self._replies.gets, self.expected
        self._replies.feed(data)
        while (reply := gets(False)) is not False:
            if not expected:
                raise ConnectionError("a reply that no call expects")
            if isinstance(reply, ConnectionError):
                self._was_answered = True
                raise reply
            waiting = expected.popleft()
            if waiting is not None:
                answer, _, call = waiting
                if call.is_request and type(reply) is bytes:
                    self._latest.seen = reply
                if not answer.done():
                    answer.set_result(reply)
        self._was_answered = True

    def overdue(self) -> TimeoutError:
        """Return the failure of a connection that did not answer in time."""
        return Forgotten() if self.was_idle else TimeoutError()

    def lose(self, failure: Exception) -> None:
        """Answer all calls under way with the failure of the connection."""
        if not self._was_answered and type(failure) is ConnectionError:
            cause, failure = failure, ConnectionError("the first call had no answer")
            failure.__cause__ = cause
        expected, self.expected = self.expected, deque()
        for waiting in expected:
            if waiting is not None and not waiting[0].done():
                answer, _, call = waiting
                answer.set_result(Lost(failure, self._seen) if call.is_request else failure)


class BlockingConnection(Exchange):
    """A connection that transfers bytes in the calling thread; one thread at a time.

    Args:
        endpoint: the server.
        latest: receives the replies to requests.
        seconds: returns how long to wait for the server now.
    """

    def __init__(
        self, endpoint: Endpoint, latest: LatestReply, seconds: Callable[[], float]
    ) -> None:
        super().__init__(endpoint.host, latest)
        self._socket: socket.socket | None = None
        self._endpoint = endpoint
        self._seconds = seconds

    @property
    def is_over(self) -> bool:
        """Whether the connection was closed or never opened."""
        return self._socket is None

    def open(self) -> None:
        """Connect and log in.

        Raises:
            RedisError, OSError: the server did not answer, or refused.
        """
        with _connecting():
            self._socket = self._opened()
        try:
            run(self._endpoint.log_in(self._reply, awaits=False))
        except BaseException:
            self.close()
            raise

    def _opened(self) -> socket.socket:
        endpoint = self._endpoint
        seconds = min(self._seconds(), endpoint.connect_timeout)
        if endpoint.path:
            opened = socket.socket(socket.AF_UNIX)
            address: Any = endpoint.path
        else:
            opened = socket.create_connection((endpoint.host, endpoint.port), seconds)
            address = None
        try:
            opened.settimeout(seconds)
            if address is not None:
                opened.connect(address)
            endpoint.set_options(opened)
            tls = endpoint.tls()
            return opened if tls is None else tls.wrap_socket(opened, server_hostname=endpoint.host)
        except BaseException:
            opened.close()
            raise

    async def _reply(self, *values: str | bytes) -> Reply:
        (reply,) = self.exchange([words(*values)])
        if isinstance(reply, Exception):
            raise reply
        return reply

    def exchange(self, calls: Sequence[Call]) -> list[Reply]:
        """Send a batch of calls and return a reply to each.

        If the connection fails, the missing replies are the failure, and the connection is over.
        """
        connected = self._socket
        assert connected is not None, "it is open"
        held = [(_HeldReply(), inf, call) for call in calls]
        try:
            connected.settimeout(self._seconds())
            connected.sendall(b"".join(self.begin(deque(held), len(held))))
            while self.expected:
                connected.settimeout(self._seconds())
                data = connected.recv(_READ_AT_ONCE)
                if not data:
                    raise ConnectionError("the server hung up")
                self.receive(data)
        except TimeoutError:
            self.close()
            self.lose(self.overdue())
        except RedisError as failure:
            self.close()
            self.lose(failure)
        except OSError as failure:
            self.close()
            lost = ConnectionError("the connection is lost")
            lost.__cause__ = failure
            self.lose(lost)
        except BaseException:  # A signal's handler raised: replies are still on their way.
            self.close()
            raise
        return [answer.reply for answer, *_ in held]

    def is_idle(self) -> bool:
        """Return whether the connection can carry a batch: it is open and received no
        unrequested bytes."""
        if self._socket is None:
            return False
        try:
            self._socket.settimeout(0)
            self._socket.recv(1)
        except (BlockingIOError, SSLWantReadError):
            return True
        except OSError:
            pass
        return False

    def abort(self) -> None:
        """Fail the calls under way. Any thread may call this; the connection is closed by the one
        that uses it."""
        connected = self._socket
        if connected is not None:
            with suppress(OSError):
                socket.socket.shutdown(connected, socket.SHUT_RDWR)  # TLS has a state of its own.

    def close(self) -> None:
        """Close the connection. Idempotent."""
        connected, self._socket = self._socket, None
        if connected is not None:
            connected.close()

    def __del__(self) -> None:
        self.close()  # In a child process, whose parent goes on to use the connection.


class AsyncConnection(Exchange, asyncio.Protocol):
    """A connection of one event loop.

    Args:
        endpoint: the server.
        latest: receives the replies to requests.
        on_idle: called when no more replies are expected.
        on_failure: called when the connection failed.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        latest: LatestReply,
        on_idle: Callable[[], None],
        on_failure: Callable[[], None],
    ) -> None:
        super().__init__(endpoint.host, latest)
        self.due = inf
        """The instant at which all expected replies have to be there."""
        self.is_over = False
        """Whether the connection was closed or failed. It keeps no failure: each holds the frames
        of all callers that met it."""
        self._endpoint = endpoint
        self._on_idle = on_idle
        self._on_failure = on_failure
        self._closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def open(self) -> None:
        """Connect and log in.

        Raises:
            RedisError, OSError: the server did not answer, or refused.
        """
        endpoint, loop = self._endpoint, asyncio.get_running_loop()
        with _connecting():
            async with asyncio.timeout(endpoint.connect_timeout):
                connecting: Awaitable[Any] = (
                    loop.create_unix_connection(lambda: self, endpoint.path)
                    if endpoint.path
                    else loop.create_connection(
                        lambda: self, endpoint.host, endpoint.port, ssl=endpoint.tls()
                    )
                )
                await connecting
        try:
            endpoint.set_options(self._transport.get_extra_info("socket"))
            await endpoint.log_in(self._reply, awaits=True)
        except BaseException:
            self.fail(ConnectionError("the login failed"))
            raise

    async def _reply(self, *values: str | bytes) -> Reply:
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self.write(b"".join(self.begin(deque([(answer, inf, words(*values))]))))
        reply = await answer
        if isinstance(reply, Exception):
            raise reply
        return reply

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A stream's transport, though uvloop's classes do not derive from asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self.write = self._transport.write

    def data_received(self, data: bytes) -> None:
        try:
            self.receive(data)
        except RedisError as failure:
            self.fail(failure)
        else:
            if not self.expected:
                self._on_idle()

    def eof_received(self) -> None:
        self.fail(ConnectionError("the server hung up"))

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._closed.done():
            self._closed.set_result(None)
        lost = ConnectionError("the connection is lost")
        lost.__cause__ = exc
        self.fail(lost)

    def fail(self, failure: Exception) -> None:
        """Close the connection, and answer all calls under way with the failure. Idempotent."""
        if not self.is_over:
            self.is_over = True
            self._on_failure()
            self.lose(failure)
            self._transport.abort()
            self._on_idle()

    async def close(self, seconds: float) -> None:
        """Close the connection. With TLS, await the close notification's answer, so that it
        arrives before the event loop ends."""
        self.is_over = True
        self._transport.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._closed
        self._transport.abort()


@contextmanager
def _connecting() -> Generator[None]:
    """Translate the failures of connecting to redis-py's exceptions."""
    try:
        yield
    except TimeoutError as failure:
        raise exceptions.TimeoutError("Timeout connecting to server") from failure
    except (OSError, ValueError) as failure:
        raise ConnectionError(f"cannot connect: {failure}") from failure
