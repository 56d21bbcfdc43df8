"""The drivers' connections in use, which another thread can sever when they hang."""

import os
import socket
from contextlib import suppress
from threading import Lock
from time import monotonic
from typing import Any, Final

from sqlalchemy import Connection

_IDLE: Final = 1.0
"""Seconds without a call after which the network may have forgotten a connection."""
_SILENT: Final = 0.1
"""Seconds without an answer after which such a connection is severed, once a call was overdue."""


class Use:
    """A connection of the driver, and its latest call."""

    __slots__ = ("began", "driver", "was_idle")

    def __init__(self, driver: Any) -> None:
        self.driver: Final = driver
        self.began = monotonic()
        """The instant at which the latest call began, in monotonic seconds."""
        self.was_idle = False
        """Whether the connection had been idle before it."""

    def begin(self) -> None:
        """Note the beginning of a call."""
        now = monotonic()
        self.was_idle = now - self.began > _IDLE
        self.began = now


def use_of(pooled: Any) -> Use:
    """Return the use of a pool's connection; a new one: the driver's connection is new."""
    found = pooled.info.get("lockgate_use")
    if found is None:
        found = pooled.info["lockgate_use"] = Use(pooled.driver_connection)
    assert isinstance(found, Use), "the key is lockgate's own"
    return found


class RawConnections:
    """The drivers' connections in use."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._in_use: set[Use] = set()

    def add(self, connection: Connection) -> Use:
        """Add a connection that may be severed, and begin its first call."""
        use = use_of(connection.connection)
        use.begin()
        with self._lock:
            self._in_use.add(use)
        return use

    def remove(self, use: Use) -> None:
        """Remove a connection before its pool gets it back."""
        with self._lock:
            self._in_use.discard(use)

    def replace_sockets(self) -> None:
        """Replace the sockets, which belong to the parent, by closed ones in a child process."""
        for use in self._in_use:
            with suppress(Exception):
                _replace(_descriptor(use.driver))

    def sever(self) -> None:
        """Shut down the sockets, so that calls waiting for an answer fail.

        Calls of a driver that hides its socket end by its own timeouts.
        """
        with self._lock:  # Connections cannot return to their pool meanwhile.
            for use in self._in_use:
                shut(use.driver)

    def sever_idle(self) -> bool:
        """Shut down the sockets that had been idle before a call to which no answer came; return
        whether there was one."""
        now = monotonic()
        with self._lock:
            forgotten = [use for use in self._in_use if use.was_idle and now - use.began >= _SILENT]
            for use in forgotten:
                use.was_idle = False
                shut(use.driver)
        return bool(forgotten)


def shut(driver: Any) -> None:
    """Shut down the socket of a driver's connection: what waits for it fails. It fails silently."""
    with suppress(Exception):
        if hasattr(driver, "terminate"):  # asyncpg
            driver.terminate()
        elif (own := _socket(driver)) is not None:
            own.shutdown(socket.SHUT_RDWR)
        elif hasattr(driver, "fileno"):
            with socket.socket(fileno=os.dup(driver.fileno())) as shared:
                shared.shutdown(socket.SHUT_RDWR)
        elif hasattr(driver, "ensure_closed"):  # asyncmy, whose close() awaits nothing
            driver.close()


def _descriptor(driver: Any) -> int:
    return int((_socket(driver) or driver).fileno())


def _socket(driver: Any) -> socket.socket | None:
    """Return the socket of PyMySQL, which has no method for it; None: it is another driver."""
    own = getattr(driver, "_sock", None)
    return own if isinstance(own, socket.socket) else None


def _replace(descriptor: int) -> None:
    one, other = socket.socketpair()
    with one, other:
        os.dup2(one.fileno(), descriptor, inheritable=False)
