"""The drivers' connections in use, which another thread can sever when they hang."""

import os
import socket
from contextlib import suppress
from threading import Lock
from typing import Any

from sqlalchemy import Connection


class RawConnections:
    """The drivers' connections in use, by ``id()``."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._in_use: dict[int, Any] = {}

    def add(self, connection: Connection) -> int:
        """Add a connection that may be severed; return its number."""
        driver = connection.connection.driver_connection
        with self._lock:
            self._in_use[id(driver)] = driver
        return id(driver)

    def remove(self, number: int) -> None:
        """Remove a connection before its pool gets it back."""
        with self._lock:
            self._in_use.pop(number, None)

    def replace_sockets(self) -> None:
        """Replace the sockets, which belong to the parent, by closed ones in a child process."""
        for driver in self._in_use.values():
            with suppress(Exception):
                _replace(_descriptor(driver))

    def sever(self) -> None:
        """Shut down the sockets, so that calls waiting for an answer fail.

        Calls of a driver that hides its socket end by its own timeouts.
        """
        with self._lock:  # Connections cannot return to their pool meanwhile.
            for driver in self._in_use.values():
                with suppress(Exception):
                    _shut(driver)


def _shut(driver: Any) -> None:
    own = _socket(driver)
    if own is not None:
        own.shutdown(socket.SHUT_RDWR)
        return
    with socket.socket(fileno=os.dup(driver.fileno())) as shared:
        shared.shutdown(socket.SHUT_RDWR)


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
