"""Wires: a connection to one server for callers that block, and what a reply may be."""

import re
from collections.abc import Callable, Coroutine
from contextlib import suppress
from socket import SHUT_RDWR, socket
from threading import Event
from typing import Any, Final, NoReturn

from redis.exceptions import (
    AskError,
    ConnectionError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)

from ....sync import run
from ...base import PartUnavailable, StoreError, UnreadableState
from ...resilience.deadlines import Threads, left
from .commands import Call

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
_SPOILED: Final = re.compile(r"(?<!@)user_script:\d+: |WRONGTYPE")
"""Errors that Lua raises itself, and commands for a key of another type. An error of a command that
a script called has no "user_script" before it, or one after "@" (Redis 6.2)."""
NO_HOST: Final = {None, b"", b"?", "", "?"}
"""How a node of a Cluster says that it knows no host of itself or of another node."""
Dial = Callable[[], Coroutine[Any, Any, Any]]


class Refused(StoreError):
    """The server refused a call, which took no effect."""


class NotSent(ConnectionError):
    """There was no connection, so whatever was to be sent took no effect; the cause says why."""

    def __init__(self, cause: Exception) -> None:
        Exception.__init__(self, type(cause).__qualname__)
        self.__cause__ = cause


class Lost(Exception):
    """A request was sent and its reply is lost, so nobody knows if it took effect.

    Args:
        cause: why.
        seen: the latest reply to a request that the server had given before this one was sent.
    """

    def __init__(self, cause: Exception, seen: bytes) -> None:
        super().__init__(type(cause).__qualname__)
        self.cause: Final = cause
        self.seen: Final = seen


class SlotAway(RedisError, PartUnavailable):
    """A Cluster does not serve one slot just now; the cause says why. Nothing took effect."""


class Split(SlotAway):
    """A slot is being moved, and no single node has all keys of one call.

    Args:
        call: as it was to be sent.
    """

    def __init__(self, call: Call) -> None:
        Exception.__init__(self, type(self).__qualname__)
        self.call: Final = call


class Connection:
    """A connection to one server, in the threads of those who ask. It is made anew when it failed.

    Args:
        dial: gives a new connection, which is not connected yet.
        timeout: seconds to wait for an answer.
    """

    def __init__(self, dial: Dial, timeout: float) -> None:
        self._dial: Final = dial
        self._timeout: Final = timeout
        self._connection: Any = None
        self._stale = False
        self._threads = Threads(_CONNECTING_AT_MOST)

    @property
    def connected(self) -> bool:
        """Whether there is a connection, which has not failed so far."""
        return self._connection is not None

    def hang_up(self) -> None:
        """Connect anew before the next exchange: somebody may be in the middle of one."""
        self._stale = True

    def cut(self) -> None:
        """Fail what is on its way, in whichever thread, and connect anew before what comes next."""
        self._stale = True
        connection = self._connection
        sock = None if connection is None else connection._sock
        if sock is not None:
            with suppress(OSError):
                socket.shutdown(sock, SHUT_RDWR)  # That of TLS is for the thread that reads.

    def exchange(self, data: bytes, replies: int) -> list[Reply]:
        """Send what may be many commands, and give so many replies.

        Nothing is raised: where the connection fails, each reply that did not come is the failure.
        """
        received: list[Reply] = []
        try:
            connection = self._connected()
        except (RedisError, OSError) as failure:
            return [NotSent(failure)] * replies
        try:
            connection.send_packed_command([data], check_health=False)
            for _ in range(replies):
                received.append(_read(connection, self._seconds()))
        except (RedisError, OSError) as failure:
            self.close()
            received += [failure] * (replies - len(received))
        except BaseException:  # A signal's handler raised: replies are still on their way.
            self.close()
            raise
        return received

    def _connected(self) -> Any:
        connection = self._connection
        if connection is not None:
            with suppress(RedisError, OSError):
                if not self._stale and not connection.can_read():
                    return connection
            self.close()
        while True:
            self._stale = False
            connection = run(self._dial())
            connection.socket_timeout = connection.socket_connect_timeout = self._seconds()
            self._reach(connection)
            self._connection = connection
            if not self._stale:
                return connection
            self.close()  # It was to be hung up while it was made.

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

    def close(self) -> None:
        """Hang up."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(RedisError, OSError):
                connection.disconnect()


def _read(connection: Any, seconds: float) -> Reply:
    try:
        return connection.read_response(disable_decoding=True, timeout=seconds)
    except ResponseError as error:
        return refusal(error, connection)


def reraise(failure: Exception, organization: str | None = None) -> NoReturn:
    """Raise a :class:`StoreError` for an exception of redis-py; any other one as it is (R11).

    Args:
        failure: as it arose.
        organization: the one whose keys the call touches. A script that fails over them, or a key
            of another type, is its unreadable state.
    """
    if not isinstance(failure, RedisError) or isinstance(failure, StoreError):
        raise failure
    if organization is not None and _SPOILED.search(str(failure)):
        raise UnreadableState(organization, "what Redis keeps of it") from failure
    raise (Refused if isinstance(failure, ResponseError) else StoreError) from failure


def is_short_of_replicas(failure: Exception) -> bool:
    """Whether a server refused a change for want of replicas (``min-replicas-to-write``)."""
    return isinstance(failure, ResponseError) and "NOREPLICAS" in str(failure)


def refusal(error: ResponseError, connection: Any) -> ResponseError:
    """Complete an error reply.

    A redirection without a host means the host that answered, at the port that it names (Redis 7,
    `cluster-preferred-endpoint-type unknown-endpoint`). Errors of commands in scripts are unwrapped
    from the words that Redis before 7 puts around them.
    """
    if isinstance(error, AskError):
        redirection: Any = error  # Its fields have no types.
        if redirection.host in NO_HOST:
            redirection.host = getattr(connection, "host", "")  # A Unix socket has none.
        return error
    found = _WRAPPED.search(str(error))
    return error if found is None else _IN_SCRIPTS[found[1]](found[2])
