"""Lanes: how transactions get to the database, for callers that block and for callers that await.

A lane reads, writes, and takes charges, all of them written once over a ``Connection``. Which lane
a call takes is found out at the call: see :class:`lockgate.stores.runtime.per_loop.PerLoop`.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Final, TypeVar

from sqlalchemy.ext.asyncio import AsyncEngine

from ..resilience import deadlines
from ..runtime.batching import AsyncBatcher
from ..runtime.per_loop import PerLoop
from .admission import TOGETHER_AT_MOST, Charge, Outcome
from .engines import Engines
from .executor import GRACE, Executor
from .sync_executor import SyncExecutor
from .transactions import Transactions, Work
from .worker_threads import Threads

T = TypeVar("T")

_OTHERS: Final = 4
"""Threads of an event loop for everything but charges."""


class ThreadExecutor(Executor):
    """Awaits a blocking engine: one thread makes charges, others do the rest.

    A driver that blocks takes half the time of one that awaits, a thread is changed once for all
    the charges that go together, and SQLite's own asynchronous driver changes it for every
    statement. SQLite has one writer: there the thread that makes charges writes everything.
    """

    def __init__(
        self, blocking: SyncExecutor, transactions: Transactions, *, one_writer: bool
    ) -> None:
        self._blocking = blocking
        self._transactions = transactions
        self._charging = Threads(1, "lockgate-sql-charges")
        self._others = Threads(1 if one_writer else _OTHERS, "lockgate-sql")
        self._writing = self._charging if one_writer else self._others
        self._gathering = AsyncBatcher(self._send, TOGETHER_AT_MOST, self._tidy)

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
        _, late = await asyncio.wait((drained,), timeout=GRACE)
        if late:
            self._blocking.break_off()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._others.do(self._blocking.shut), 2 * GRACE)
        self._charging.stop()
        self._others.stop()

    async def _send(self, charges: Sequence[Charge]) -> list[Outcome]:
        return await self._charging.do(partial(self._blocking.send, charges))

    async def _tidy(self) -> None:
        if (prune := self._transactions.prune()) is not None:
            await self.write(prune)


class AsyncExecutor(Executor):
    """Awaits an asynchronous engine."""

    def __init__(self, engine: AsyncEngine, transactions: Transactions, *, ours: bool) -> None:
        self._engine = engine
        self._transactions = transactions
        self._ours = ours
        self._checked = False
        self._gathering = AsyncBatcher(self._send, TOGETHER_AT_MOST, self._tidy)
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
                    self._transactions.reraise(failure)
            attempt += 1

    async def write(self, work: Work[T]) -> T:
        return await self.read(self._transactions.writing(work))

    async def charge(self, charge: Charge) -> Outcome:
        return await self._gathering.charge(charge)

    def give_up(self) -> None:
        self._gathering.give_up()

    async def close(self) -> None:
        drained = asyncio.ensure_future(self._gathering.drain())
        _, late = await asyncio.wait((drained,), timeout=GRACE)
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


def lanes_of(transactions: Transactions, engines: Engines) -> PerLoop[Executor]:
    """The lanes of a store whose transactions are made on these engines."""
    ours = engines.ours
    awaiting = engines.awaiting
    one_writer = engines.dialect.name == "sqlite"
    blocking = (
        None
        if engines.blocking is None
        else SyncExecutor(engines.blocking, transactions, ours=ours, prompt=ours and one_writer)
    )
    if awaiting is not None:
        return PerLoop(blocking, lambda: AsyncExecutor(awaiting(), transactions, ours=ours))
    if blocking is not None and (ours or one_writer):
        return PerLoop(
            blocking, lambda: ThreadExecutor(blocking, transactions, one_writer=one_writer)
        )
    return PerLoop(blocking, None)
