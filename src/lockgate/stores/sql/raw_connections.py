"""The drivers' connections that are in use, to break one off that hangs in another thread."""

import os
import socket
from collections.abc import Generator
from contextlib import contextmanager, suppress
from threading import Lock
from typing import Any

from sqlalchemy import Connection


class Drivers:
    """Knows which connections of drivers are in use."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._used: dict[int, Any] = {}

    @contextmanager
    def held(self, connection: Connection) -> Generator[None]:
        """While this is open, the connection can be broken off."""
        held = self.hold(connection)
        try:
            yield
        finally:
            self.let_go(held)

    def hold(self, connection: Connection) -> int:
        """From now on the connection can be broken off; gives a number to let go of it by."""
        driver = connection.connection.driver_connection
        with self._lock:
            self._used[id(driver)] = driver
        return id(driver)

    def let_go(self, held: int) -> None:
        """The connection is to be left alone: its pool gets it back."""
        with self._lock:
            self._used.pop(held, None)

    def forsake(self) -> None:
        """Put a dead socket in the place of each in use: it is that of a parent process."""
        for driver in self._used.values():
            with suppress(Exception):
                _put_a_dead_one(_socket_of(driver))

    def sever(self) -> None:
        """Shut the sockets of those in use: whoever waits for one is told that it is gone.

        A driver that does not show its socket is left to its own times.
        """
        with self._lock:  # None is given back to a pool meanwhile.
            for driver in self._used.values():
                with suppress(Exception):
                    _shut(driver)


def _shut(driver: Any) -> None:
    held = getattr(driver, "_sock", None)  # PyMySQL's.
    if isinstance(held, socket.socket):
        held.shutdown(socket.SHUT_RDWR)
        return
    with socket.socket(fileno=os.dup(driver.fileno())) as shared:
        shared.shutdown(socket.SHUT_RDWR)


def _socket_of(driver: Any) -> int:
    held = getattr(driver, "_sock", None)
    return int((held if isinstance(held, socket.socket) else driver).fileno())


def _put_a_dead_one(place: int) -> None:
    one, other = socket.socketpair()
    with one, other:
        os.dup2(one.fileno(), place, inheritable=False)
