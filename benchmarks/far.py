"""A server at a distance: a relay in a process of its own that passes bytes on after a delay.

Beside a delay of some milliseconds the processes' own time vanishes, so a duration divided by the
round trip is the number of round trips that follow one another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection

_CHUNK = 65_536


class _Delayed(asyncio.Protocol):
    """Passes what it receives on to its peer, each byte after the same delay."""

    def __init__(self, delay: float) -> None:
        self._delay = delay
        self.peer: _Delayed | None = None
        self.transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        asyncio.get_running_loop().call_later(self._delay, self._pass_on, data)

    def connection_lost(self, exc: Exception | None) -> None:
        asyncio.get_running_loop().call_later(self._delay, self._pass_on, None)

    def _pass_on(self, data: bytes | None) -> None:
        there = None if self.peer is None else self.peer.transport
        if there is None:
            return
        if data is None:
            there.close()
        elif not there.is_closing():
            there.write(data)


class _Near(_Delayed):
    """The side of a client, which is connected to the server when it connects here."""

    def __init__(self, port: int, delay: float) -> None:
        super().__init__(delay)
        self._port = port

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._early: list[bytes] = []
        self._connecting = asyncio.ensure_future(self._connect())

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        with suppress(OSError):
            _, far = await loop.create_connection(
                lambda: _Delayed(self._delay), "127.0.0.1", self._port
            )
            far.peer, self.peer = self, far
            for data in self._early:
                super().data_received(data)

    def data_received(self, data: bytes) -> None:
        if self.peer is None:
            self._early.append(data)
        else:
            super().data_received(data)


def _relay(port: int, delay: float, started: Connection) -> None:
    async def serve() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: _Near(port, delay), "127.0.0.1", 0)
        started.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(serve())


@contextmanager
def far(port: int, delay: float) -> Iterator[int]:
    """Yield a port of this machine from which a server is reached with a delay each way.

    Args:
        port: the server's, on 127.0.0.1.
        delay: seconds.
    """
    context = get_context("spawn")
    mine, its = context.Pipe()
    process = context.Process(target=_relay, args=(port, delay, its), daemon=True)
    process.start()
    try:
        yield mine.recv()
    finally:
        process.terminate()
        process.join()
