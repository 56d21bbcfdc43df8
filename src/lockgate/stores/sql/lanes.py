"""Lanes: how transactions get to the database, for callers that block and for callers that await.

A lane reads, writes, and takes charges, all of them written once over a ``Connection``. Which lane
a call takes is found out at the call: see :class:`lockgate.stores.lanes.Lanes`.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from threading import Lock
from time import monotonic
from typing import Final, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.ext.asyncio import AsyncEngine

from .. import deadlines
from ..lanes import Lanes
from ..sharing import Gathering, Meeting
from .charges import TOGETHER_AT_MOST, Charge, Outcome
from .drivers import Drivers
from .engines import Engines
from .statements import Hand
from .threads import Threads
from .transactions import ConnectionLost, Transactions, Work

T = TypeVar("T")

_GRACE: Final = 1.0
"""Seconds that closing waits for what is on its way."""
_OTHERS: Final = 4
"""Threads of an event loop for everything but charges."""


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
    def give_up(self) -> None:
        """Break off what hangs: whoever waits for it fails, and this lane is not used again."""

    @abstractmethod
    async def close(self) -> None:
        """Answer what waits, then let go of threads and of connections of our own."""


class Blocking(Lane):
    """Works while the caller waits.

    Charges go by one connection, which is kept where the engine is ours: they are made one
    transaction after the other anyway.

    Args:
        engine: gives connections.
        transactions: what is done on them.
        ours: whether the engine was opened here.
        prompt: whether the driver comes back in time by itself, whatever the database does. Others
            wait for their server in a thread that can be left behind (D34).
    """

    def __init__(
        self, engine: Engine, transactions: Transactions, *, ours: bool, prompt: bool = False
    ) -> None:
        self._engine = engine
        self._transactions = transactions
        self._ours = ours
        self._checked = False
        self._given_up = False
        self._breaks = 0
        self._threads = None if prompt else deadlines.Threads()
        self._meeting = Meeting[Charge, Outcome](
            self.send if prompt else self._send_in_time, TOGETHER_AT_MOST
        )
        self._sending = Lock()
        self._hand: Hand | None = None
        self._held = 0
        self._drivers = Drivers()

    def do(self, work: Work[T]) -> T:
        """Do the work on a connection, as often as it takes."""
        attempt, started, breaks = 1, monotonic(), self._breaks
        while True:
            try:
                with self._connect() as connection:
                    with self._drivers.held(connection):
                        value = work(connection)
                    if self._given_up:
                        connection.invalidate()
                    return value
            except Exception as failure:
                if self._breaks > breaks or not self._again(failure, attempt, started):
                    raise
            attempt += 1

    def do_write(self, work: Work[T]) -> T:
        """Do the work in a transaction of its own."""
        return self.do(self._transactions.writing(work))

    def wait(self, call: Callable[[], T]) -> T:
        """Make one of these calls, and wait no longer than the caller does."""
        return call() if self._threads is None else self._threads.do(call)

    def send(self, charges: Sequence[Charge]) -> list[Outcome]:
        """Make charges in one transaction."""
        attempt, started, breaks = 1, monotonic(), self._breaks
        while True:
            with self._sending:
                try:
                    return self._charge(charges)
                except Exception as failure:
                    if self._breaks > breaks or not self._again(failure, attempt, started):
                        raise
            attempt += 1

    async def read(self, work: Work[T]) -> T:
        return self.wait(partial(self.do, work))

    async def write(self, work: Work[T]) -> T:
        return self.wait(partial(self.do_write, work))

    async def charge(self, charge: Charge) -> Outcome:
        outcome = self._meeting.charge(charge)
        if (prune := self._transactions.prune()) is not None:
            with suppress(Exception):  # Whoever was charged has nothing to do with it.
                self.wait(partial(self.do_write, prune))
        return outcome

    def give_up(self) -> None:
        self._given_up = True
        if self._sending.acquire(blocking=False):
            self._let_go()
            self._sending.release()
        self._drivers.sever()

    async def close(self) -> None:
        self.shut()

    def break_off(self) -> None:
        """Cut off what is on its way, as what waits for a server's lock: it fails and is not tried
        again. The server undoes it when it notices, or when the time for the lock is up."""
        self._breaks += 1
        self._drivers.sever()

    def shut(self, grace: float = _GRACE) -> None:
        """Close what is ours and idle, and after a grace what is not."""
        self._transactions.hurried = True
        free = self._sending.acquire(timeout=grace)
        if not free:
            self.break_off()
            free = self._sending.acquire(timeout=_GRACE)
        if free:
            self._let_go()
            self._sending.release()
        if self._ours:
            self._engine.dispose()
        self._transactions.hurried = False

    def _send_in_time(self, charges: Sequence[Charge]) -> list[Outcome]:
        return self.wait(partial(self.send, charges))

    def _charge(self, charges: Sequence[Charge]) -> list[Outcome]:
        hand = self._hand or self._take()
        try:
            outcomes = self._transactions.charge(hand, charges)
        except BaseException:
            self._let_go()
            raise
        if self._given_up or not self._ours:
            self._let_go()
        return outcomes

    def _take(self) -> Hand:
        connection = self._connect()
        self._held = self._drivers.hold(connection)
        hand = self._hand = self._transactions.hand(connection)
        return hand

    def _let_go(self) -> None:
        hand, self._hand = self._hand, None
        if hand is not None:
            self._drivers.let_go(self._held)
            if self._given_up:  # Its pool may be closed by now.
                hand.connection.invalidate()
            hand.connection.close()

    def _connect(self) -> Connection:
        connection = self._engine.connect()
        if self._given_up:
            connection.invalidate()
            connection.close()
            raise ConnectionLost
        if not self._checked:
            try:
                self._transactions.check(connection)
            except BaseException:
                connection.close()
                raise
            self._checked = True
        return connection

    def _again(self, failure: Exception, attempt: int, started: float) -> bool:
        return not self._given_up and self._transactions.again(failure, attempt, started)


class Threaded(Lane):
    """Awaits a blocking engine: one thread makes charges, others do the rest.

    A driver that blocks takes half the time of one that awaits, a thread is changed once for all
    the charges that go together, and SQLite's own asynchronous driver changes it for every
    statement. SQLite has one writer: there the thread that makes charges writes everything.
    """

    def __init__(self, blocking: Blocking, transactions: Transactions, *, one_writer: bool) -> None:
        self._blocking = blocking
        self._transactions = transactions
        self._charging = Threads(1, "lockgate-sql-charges")
        self._others = Threads(1 if one_writer else _OTHERS, "lockgate-sql")
        self._writing = self._charging if one_writer else self._others
        self._gathering = Gathering(self._send, TOGETHER_AT_MOST, self._tidy)

    async def read(self, work: Work[T]) -> T:
        return await self._others.do(partial(self._blocking.do, work))

    async def write(self, work: Work[T]) -> T:
        return await self._writing.do(partial(self._blocking.do_write, work))

    async def charge(self, charge: Charge) -> Outcome:
        return await self._gathering.charge(charge)

    def give_up(self) -> None:
        self._blocking.give_up()
        self._gathering.give_up()
        self._charging.stop()
        self._others.stop()

    async def close(self) -> None:
        self._transactions.hurried = True
        drained = asyncio.ensure_future(self._gathering.drain())
        _, late = await asyncio.wait((drained,), timeout=_GRACE)
        if late:
            self._blocking.break_off()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._others.do(self._blocking.shut), 2 * _GRACE)
        self._charging.stop()
        self._others.stop()

    async def _send(self, charges: Sequence[Charge]) -> list[Outcome]:
        return await self._charging.do(partial(self._blocking.send, charges))

    async def _tidy(self) -> None:
        if (prune := self._transactions.prune()) is not None:
            await self.write(prune)


class Awaiting(Lane):
    """Awaits an asynchronous engine."""

    def __init__(self, engine: AsyncEngine, transactions: Transactions, *, ours: bool) -> None:
        self._engine = engine
        self._transactions = transactions
        self._ours = ours
        self._checked = False
        self._gathering = Gathering(self._send, TOGETHER_AT_MOST, self._tidy)
        self._tasks = deadlines.Tasks()

    async def read(self, work: Work[T]) -> T:
        return await self._tasks.do(self._read(work))

    async def _read(self, work: Work[T]) -> T:
        attempt, started = 1, monotonic()
        while True:
            try:
                async with self._engine.connect() as connection:
                    if not self._checked:
                        await connection.run_sync(self._transactions.check)
                        self._checked = True
                    return await connection.run_sync(work)
            except Exception as failure:
                if not self._transactions.again(failure, attempt, started):
                    raise
            attempt += 1

    async def write(self, work: Work[T]) -> T:
        return await self.read(self._transactions.writing(work))

    async def charge(self, charge: Charge) -> Outcome:
        return await self._gathering.charge(charge)

    def give_up(self) -> None:
        self._gathering.give_up()

    async def close(self) -> None:
        drained = asyncio.ensure_future(self._gathering.drain())
        _, late = await asyncio.wait((drained,), timeout=_GRACE)
        if late:
            self._gathering.give_up()
        if self._ours:
            await self._engine.dispose()

    async def _send(self, charges: Sequence[Charge]) -> list[Outcome]:
        transactions = self._transactions
        return await self.read(lambda c: transactions.charge(transactions.hand(c), charges))

    async def _tidy(self) -> None:
        if (prune := self._transactions.prune()) is not None:
            await self.write(prune)


def lanes_of(transactions: Transactions, engines: Engines) -> Lanes[Lane]:
    """The lanes of a store whose transactions are made on these engines."""
    ours = engines.ours
    awaiting = engines.awaiting
    one_writer = engines.dialect.name == "sqlite"
    blocking = (
        None
        if engines.blocking is None
        else Blocking(engines.blocking, transactions, ours=ours, prompt=ours and one_writer)
    )
    if awaiting is not None:
        return Lanes(blocking, lambda: Awaiting(awaiting(), transactions, ours=ours))
    if blocking is not None and (ours or one_writer):
        return Lanes(blocking, lambda: Threaded(blocking, transactions, one_writer=one_writer))
    return Lanes(blocking, None)
