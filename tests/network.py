"""A network between real servers that can be split: each server is reached through a relay.

A relay knows by `/proc` which process connects to it, so a split needs neither rights over the
machine's network nor a change of the programs that talk. Linux only.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol, TypeVar

R = TypeVar("R", bound="Relay")
CHUNK = 65_536


class Listening(Protocol):
    """A server behind a relay."""

    port: int

    def pid(self) -> int: ...


class Relay:
    """Passes bytes on between processes and one server, unless a split keeps them apart.

    Attributes:
        port: where the relay listens, on 127.0.0.1.
        server: the server that it passes bytes to; set once that has a port.
    """

    def __init__(self, network: Network) -> None:
        self._network = network
        self.port = 0
        self.server: Listening | None = None

    async def listen(self) -> None:
        self._listening = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = self._listening.sockets[0].getsockname()[1]

    def close(self) -> None:
        """Listen no more."""
        self._listening.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = owner(writer.get_extra_info("peername")[1])
        self._network.met(client)
        try:
            await self._network.passes(client, self.server)
            assert self.server is not None
            there, back = await asyncio.open_connection("127.0.0.1", self.server.port)
        except (OSError, asyncio.CancelledError):
            writer.close()
            return
        await asyncio.gather(self._pump(client, reader, back), self._pump(client, there, writer))

    async def _pump(
        self, client: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(CHUNK):
                await self._network.passes(client, self.server)
                writer.write(data)
                await writer.drain()
        await self._network.passes(client, self.server)
        writer.close()


class Network:
    """Relays that share a view of which processes reach each other.

    Attributes:
        strangers: pids of the processes that connected and are neither servers behind a relay nor
            this process, in the order in which they first did.
    """

    def __init__(self) -> None:
        self.strangers: list[int] = []
        self._relays: list[Relay] = []
        self._apart: frozenset[int] = frozenset()
        self._loop = asyncio.new_event_loop()
        self._changed = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def relay(self) -> Relay:
        """Make a relay that listens already; its server may be set later."""
        return self.start(Relay(self))

    def start(self, relay: R) -> R:
        """Let a relay listen."""
        asyncio.run_coroutine_threadsafe(relay.listen(), self._loop).result(60)
        self._relays.append(relay)
        return relay

    @contextmanager
    def split(self, pids: Iterable[int]) -> Iterator[None]:
        """Partition some processes from all others; data sent in between arrives afterwards."""
        self._keep_apart(frozenset(pids))
        try:
            yield
        finally:
            self._keep_apart(frozenset())

    def _keep_apart(self, pids: frozenset[int]) -> None:
        def change() -> None:
            self._apart = pids
            self._changed.set()
            self._changed = asyncio.Event()

        self._loop.call_soon_threadsafe(change)

    async def passes(self, client: int, server: Listening | None) -> None:
        """Return once a process reaches a server."""
        while True:
            changed = self._changed
            if client == os.getpid() or server is None:
                return
            if (client in self._apart) == (server.pid() in self._apart):
                return
            await changed.wait()

    def met(self, pid: int) -> None:
        """Note a process that connects."""
        servers = {relay.server.pid() for relay in self._relays if relay.server is not None}
        if pid not in {*servers, os.getpid(), *self.strangers}:
            self.strangers.append(pid)

    def close(self) -> None:
        """End all connections."""

        async def end() -> None:
            for relay in self._relays:
                relay.close()
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()


def owner(port: int) -> int:
    """Return the pid of the process that has a local port on 127.0.0.1; 0 if it has ended."""
    local = f"0100007F:{port:04X}"
    rows = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    inode = next((row[9] for row in rows if row[1] == local), None)
    if inode is None:
        return 0
    for folder in Path("/proc").glob("[0-9]*/fd"):
        with suppress(OSError):
            for entry in os.scandir(folder):
                with suppress(OSError):
                    if os.readlink(entry.path) == f"socket:[{inode}]":
                        return int(folder.parent.name)
    return 0
