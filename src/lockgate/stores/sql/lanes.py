"""Lanes: how transactions get to the database, for callers that block and for callers that await.

A lane reads, writes, and takes charges, all of them written once over a ``Connection``. Which lane
a call takes is found out at the call: see :class:`Lanes`.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from threading import Lock
from typing import Final, TypeVar
from weakref import WeakKeyDictionary

from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine

from ..contract import Io
from .charges import Charge, Outcome
from .engines import Engines
from .sharing import Gathering, Meeting
from .transactions import Transactions, Work

T = TypeVar("T")


class Lane(ABC):
    """A way to the database, async in shape: a blocking one never suspends."""

    @abstractmethod
    async def read(self, work: Work[T]) -> T:
        """Do work that only reads."""

    @abstractmethod
    async def write(self, work: Work[T]) -> T:
        """Do work in a transaction of its own."""

    @abstractmethod
    async def charge(self, charge: Charge) -> Outcome:
        """Make a charge, in a transaction with others that wait now."""

    @abstractmethod
    async def close(self) -> None:
        """Answer what waits, then let go of threads and of connections of our own."""


class Blocking(Lane):
    """Works in the calling thread, and waits there."""

    def __init__(self, engine: Engine, transactions: Transactions, *, ours: bool) -> None:
        self._engine = engine
        self._transactions = transactions
        self._ours = ours
        self._checked = False
        self._meeting = Meeting(self.send)

    def do(self, work: Work[T]) -> T:
        """Do the work on a connection, as often as it takes."""
        attempt = 1
        while True:
            try:
                with self._engine.connect() as connection:
                    if not self._checked:
                        self._transactions.check(connection)
                        self._checked = True
                    return work(connection)
            except Exception as failure:
                if not self._transactions.again(failure, attempt):
                    raise
            attempt += 1

    def do_write(self, work: Work[T]) -> T:
        """Do the work in a transaction of its own."""
        return self.do(self._transactions.writing(work))

    def send(self, charges: Sequence[Charge]) -> list[Outcome]:
        """Make charges in one transaction."""
        return self.do(self._transactions.charging(charges))

    async def read(self, work: Work[T]) -> T:
        return self.do(work)

    async def write(self, work: Work[T]) -> T:
        return self.do_write(work)

    async def charge(self, charge: Charge) -> Outcome:
        outcome = self._meeting.charge(charge)
        if (prune := self._transactions.prune()) is not None:
            with suppress(Exception):  # Whoever was charged has nothing to do with it.
                self.do_write(prune)
        return outcome

    async def close(self) -> None:
        if self._ours:
            self._engine.dispose()


class Threaded(Lane):
    """Awaits a blocking engine: one thread writes, one reads.

    For SQLite, which has one writer anyway, and whose own asynchronous driver changes threads for
    every statement, where this does so once for all the charges that go together.
    """

    def __init__(self, blocking: Blocking, transactions: Transactions) -> None:
        self._blocking = blocking
        self._transactions = transactions
        self._writer = ThreadPoolExecutor(1, "lockgate-sql-writer")
        self._reader = ThreadPoolExecutor(1, "lockgate-sql-reader")
        self._gathering = Gathering(self._send, self._tidy)

    async def read(self, work: Work[T]) -> T:
        return await _in(self._reader, partial(self._blocking.do, work))

    async def write(self, work: Work[T]) -> T:
        return await _in(self._writer, partial(self._blocking.do_write, work))

    async def charge(self, charge: Charge) -> Outcome:
        return await self._gathering.charge(charge)

    async def close(self) -> None:
        await self._gathering.drain()
        for thread in (self._writer, self._reader):
            thread.shutdown(wait=False)

    async def _send(self, charges: Sequence[Charge]) -> list[Outcome]:
        return await _in(self._writer, partial(self._blocking.send, charges))

    async def _tidy(self) -> None:
        if (prune := self._transactions.prune()) is not None:
            await self.write(prune)


async def _in(thread: ThreadPoolExecutor, work: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(thread, work)


class Awaiting(Lane):
    """Awaits an asynchronous engine."""

    def __init__(self, engine: AsyncEngine, transactions: Transactions, *, ours: bool) -> None:
        self._engine = engine
        self._transactions = transactions
        self._ours = ours
        self._checked = False
        self._gathering = Gathering(self._send, self._tidy)

    async def read(self, work: Work[T]) -> T:
        attempt = 1
        while True:
            try:
                async with self._engine.connect() as connection:
                    if not self._checked:
                        await connection.run_sync(self._transactions.check)
                        self._checked = True
                    return await connection.run_sync(work)
            except Exception as failure:
                if not self._transactions.again(failure, attempt):
                    raise
            attempt += 1

    async def write(self, work: Work[T]) -> T:
        return await self.read(self._transactions.writing(work))

    async def charge(self, charge: Charge) -> Outcome:
        return await self._gathering.charge(charge)

    async def close(self) -> None:
        await self._gathering.drain()
        if self._ours:
            await self._engine.dispose()

    async def _send(self, charges: Sequence[Charge]) -> list[Outcome]:
        return await self.read(self._transactions.charging(charges))

    async def _tidy(self) -> None:
        if (prune := self._transactions.prune()) is not None:
            await self.write(prune)


class Lanes:
    """The lanes of a store, and which of them a call takes.

    With engines for both, whoever calls while an event loop runs in its thread awaits, and whoever
    calls without one blocks. So a store opened from its URL serves an ASGI application, the
    threads of a WSGI one and ``run()`` in a script alike, and a pairing that would block a loop
    cannot be made. An event loop has connections of its own: they cannot move to another.

    Args:
        transactions: what is done on the connections.
        engines: where these come from.
    """

    def __init__(
        self,
        transactions: Transactions,
        engines: Engines,
    ) -> None:
        self._transactions = transactions
        blocking = engines.blocking
        self._ours = engines.ours
        self._blocking = (
            None if blocking is None else Blocking(blocking, transactions, ours=self._ours)
        )
        self._awaiting = engines.awaiting
        self._lock = Lock()
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, Lane] = WeakKeyDictionary()
        awaits = engines.awaiting is not None or engines.dialect.name == "sqlite"
        self.io: Final[Io] = "async" if blocking is None else "either" if awaits else "blocking"

    def here(self) -> Lane:
        """The lane for whoever calls this."""
        if self.io == "blocking":
            return self._block()
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return self._block()
        lane = self._by_loop.get(loop)
        if lane is None:
            with self._lock:
                lane = self._by_loop[loop] = self._await()
        return lane

    async def close(self) -> None:
        """Close the lanes that can be closed from here: other event loops keep theirs."""
        lane = self.here()
        await lane.close()
        if lane is not self._blocking:
            del self._by_loop[asyncio.get_running_loop()]
            if self._blocking is not None:
                await self._blocking.close()

    def _block(self) -> Blocking:
        if self._blocking is None:
            raise RuntimeError(
                "This store awaits an asynchronous engine, and no event loop runs here: "
                "await it in one, or give the store a blocking Engine."
            )
        return self._blocking

    def _await(self) -> Lane:
        if self._awaiting is not None:
            return Awaiting(self._awaiting(), self._transactions, ours=self._ours)
        return Threaded(self._block(), self._transactions)
