"""A wire to Redis keeps the deadline of whoever asks, whatever the connection does."""

from __future__ import annotations

from threading import Event
from typing import Any

from lockgate.stores.redis.transport.connection import Connection, NotSent
from lockgate.stores.resilience.deadlines import Overdue, within


class Ponderous:
    """A connection that shakes hands in steps, each in time, and all of them for too long."""

    def __init__(self) -> None:
        self.goes_on, self.disconnected = Event(), Event()

    def connect(self) -> None:
        self.goes_on.wait()

    def disconnect(self) -> None:
        self.disconnected.set()


def test_d34_a_handshake_is_left_behind_and_what_comes_of_it_is_closed() -> None:
    connection = Ponderous()

    async def dial() -> Any:
        return connection

    wire = Connection(dial, 2.0)
    with within(0.05):
        (reply,) = wire.exchange(b"PING", 1)
    assert isinstance(reply, NotSent)
    assert isinstance(reply.__cause__, Overdue)
    assert not wire.connected
    assert not connection.disconnected.is_set()
    connection.goes_on.set()
    assert connection.disconnected.wait(30)
