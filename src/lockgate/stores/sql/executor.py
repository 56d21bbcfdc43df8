"""Executors: run work on the database for callers that block and callers that await.

Each kind of SQL access has one: ``SyncExecutor`` blocks the caller's thread, ``ThreadExecutor``
awaits a blocking engine in worker threads, ``AsyncExecutor`` awaits an asynchronous engine. The
work itself is written once, over a ``Connection``. ``PerLoop`` chooses the executor of a call.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from queue import SimpleQueue
from threading import Lock, Thread
from time import monotonic
from typing import Any, Final, NoReturn, TypeVar
from weakref import finalize

from sqlalchemy import Connection, Engine
from sqlalchemy.ext.asyncio import AsyncEngine

from ...sync import loop_runs
from ..answers import StoreError
from ..resilience import deadlines
from ..runtime.batching import AsyncBatcher, ThreadBatcher
from ..runtime.per_loop import PerLoop
from ..runtime.process_hooks import after_fork_in_child
from .admission import TOGETHER_AT_MOST, Charge, Outcome
from .engines import Engines
from .opened_file import OpenedFile
from .raw_connections import RawConnections, Use
from .sessions import Sessions
from .statements import Cursor
from .transactions import ConnectionLost, Transactions, Work

A = TypeVar("A")
T = TypeVar("T")
_Tasks = SimpleQueue[Callable[[], None] | None]

GRACE: Final = 1.0
"""Seconds that closing waits for calls in progress."""
_LOOP_THREADS: Final = 4
"""Worker threads of an event loop for calls other than charges."""

_abandoned: Final[list[Cursor]] = []
"""Cursors that the parent process was using at the fork; finalizing them would disturb it."""


class Executor(ABC):
    """Runs work on the database. The coroutines of a :class:`SyncExecutor` never suspend."""

    def __init__(self, transactions: Transactions, sessions: Sessions) -> None:
        self._transactions: Final = transactions
        self._sessions: Final = sessions
        self._severed: int = 0
        """The number of times that connections were severed; earlier calls are not retried."""
        self._checked = False
        """Whether the revision of the tables was checked since the last failure."""

    @abstractmethod
    async def read(self, work: Work[T]) -> T:
        """Run read-only work, and return its result."""

    async def write(self, transaction: Work[T]) -> T:
        """Run a transaction of :class:`Transactions`, and return its result."""
        return await self.read(transaction)

    @abstractmethod
    async def charge(self, charge: Charge) -> Outcome:
        """Make a charge, in a transaction with the charges that wait at the same time."""

    @abstractmethod
    def dedicated(self) -> AbstractAsyncContextManager[Any]:
        """Return a context with a new connection of the driver, which does not count for the
        pool."""

    @abstractmethod
    def give_up(self) -> None:
        """Abort calls that hang: their callers fail, and this executor is not used again."""

    @abstractmethod
    async def close(self) -> None:
        """Answer waiting calls, then release threads and connections of lockgate's engine."""

    def _again(self, failure: Exception, attempt: int, started: float) -> bool:
        """Return whether to retry; if not, check the tables before the next call.

        They may have been migrated while this process was running.
        """
        if self._transactions.again(failure, attempt, started):
            self._sessions.notice(failure)
            return True
        self._checked = False
        return False

    def _leave_idle(self, raw: RawConnections) -> None:
        """After an overdue call, sever its connection if that had been idle, and use no other of
        its time."""
        if raw.sever_idle():
            self._severed += 1
            self._sessions.distrust()


class SyncExecutor(Executor):
    """Blocks the caller's thread.

    Charges run in one transaction after the other, so they share one connection, which is kept
    between them if lockgate owns the engine.

    Args:
        engine: the source of connections.
        transactions: runs work on them.
        ours: whether lockgate opened the engine.
        prompt: whether the driver enforces deadlines itself. With other drivers, calls run in a
            thread that can be abandoned (D34).
        file: the file of SQLite, checked once a second by charges and at each other call.
        sessions: the sessions of lockgate's own engine.
    """

    def __init__(
        self,
        engine: Engine,
        transactions: Transactions,
        *,
        ours: bool,
        prompt: bool = False,
        file: OpenedFile | None = None,
        sessions: Sessions,
    ) -> None:
        super().__init__(transactions, sessions)
        self._engine = engine
        self._ours = ours
        self._file = file
        self._given_up = False
        self._threads = None if prompt else deadlines.Threads()
        self._cursor: Cursor | None = None
        self._use: Use | None = None
        """The connection of the cursor."""
        self._begin()
        after_fork_in_child(self)

    def _begin(self) -> None:
        self._batcher = ThreadBatcher[Charge, Outcome](
            self.send if self._threads is None else self._send_in_time, TOGETHER_AT_MOST
        )
        self._sending = Lock()
        self._raw = RawConnections()

    def forked(self) -> None:
        """Leave the connections to the parent process, in the child.

        SQLite's files are closed: a child process holds none of the locks that SQLite would
        assume. Connections to a server are not closed, which would end the parent's session.
        """
        embedded = self._engine.dialect.name == "sqlite"
        if not embedded:
            self._raw.replace_sockets()
        cursor, self._cursor = self._cursor, None
        if cursor is not None and self._sending.locked():
            # A rollback would change a log that both processes map, and a driver would wait for the
            # thread that was reading an answer.
            _abandoned.append(cursor)
        elif cursor is not None:
            if not embedded:
                cursor.connection.invalidate()
            cursor.connection.close()
        if self._ours:
            self._dispose(close=embedded)
        self._begin()

    def do(self, work: Work[T]) -> T:
        """Run work on a connection, with retries where they are safe."""
        return self._retried(self._do, work)

    def send(self, charges: Sequence[Charge]) -> list[Outcome]:
        """Make charges in one transaction, with retries where they are safe."""
        return self._retried(self._charge, charges)

    async def read(self, work: Work[T]) -> T:
        return self._in_time(partial(self.do, work))

    async def charge(self, charge: Charge) -> Outcome:
        outcome = self._batcher.charge(charge)
        if (prune := self._transactions.prune()) is not None:
            with suppress(Exception):  # A failure to prune does not fail the charge.
                self._in_time(partial(self.do, self._transactions.writing(prune)))
        return outcome

    @asynccontextmanager
    async def dedicated(self) -> AsyncGenerator[Any]:
        connect = self._engine.connect
        connection = await asyncio.to_thread(connect) if loop_runs() else connect()
        driver: Any = connection.connection.driver_connection
        connection.detach()
        with connection:
            try:
                yield driver
            except Exception:
                # SQLAlchemy would log at length that a lost connection cannot be reset.
                connection.invalidate()
                with suppress(Exception):
                    driver.close()
                raise

    def give_up(self) -> None:
        self._given_up = True
        self._sessions.distrust()
        if self._sending.acquire(blocking=False):
            self._release()
            self._sending.release()
        self._raw.sever()

    async def close(self) -> None:
        self.shut()

    def shut(self, grace: float = GRACE) -> None:
        """Release idle connections of lockgate's engine, busy ones after ``grace`` seconds."""
        self._transactions.hurried = True
        free = self._sending.acquire(timeout=grace)
        if not free:
            self.sever()
            free = self._sending.acquire(timeout=GRACE)
        if free:
            self._release()
            self._sending.release()
        if self._ours:
            self._dispose()
        self._transactions.hurried = False

    def sever(self) -> None:
        """Close the sockets of busy connections, such as of calls that wait for a server's lock.

        Their calls fail and are not retried. The server rolls them back, at the latest after its
        lock timeout.
        """
        self._severed += 1
        self._raw.sever()

    def _in_time(self, call: Callable[[], T]) -> T:
        """Make a call that returns at the present deadline at the latest."""
        if self._threads is None:
            return call()
        try:
            return self._threads.do(call)
        except deadlines.Overdue:
            self.leave_idle()
            raise

    def leave_idle(self) -> None:
        """After an overdue call, use no connection of its time, if its own had been idle."""
        self._leave_idle(self._raw)

    def _send_in_time(self, charges: Sequence[Charge]) -> list[Outcome]:
        return self._in_time(partial(self.send, charges))

    def _retried(self, call: Callable[[A], T], argument: A) -> T:
        attempt, started, severed = 1, monotonic(), self._severed
        while True:
            try:
                return call(argument)
            except Exception as failure:
                if (
                    self._severed > severed
                    or self._given_up
                    or not self._again(failure, attempt, started)
                ):
                    self._reraise(failure, severed)
            attempt += 1

    def _reraise(self, failure: Exception, severed: int) -> NoReturn:
        """Raise a :class:`StoreError` from a driver's exception.

        On a connection that was severed meanwhile, a driver may raise any exception.
        """
        if not isinstance(failure, StoreError) and (self._given_up or self._severed > severed):
            raise ConnectionLost from failure
        self._transactions.reraise(failure)

    def _do(self, work: Work[T]) -> T:
        with self._connect() as connection:
            use = self._raw.add(connection)
            try:
                value = work(connection)
            finally:
                self._raw.remove(use)
            if self._given_up:
                connection.invalidate()
            return value

    def _charge(self, charges: Sequence[Charge]) -> list[Outcome]:
        file = self._file
        with self._sending:
            cursor, use = self._cursor, self._use
            if cursor is None:
                cursor = self._open()
            elif use is not None and file is None:  # No network forgets a file.
                use.begin()
            if file is not None and monotonic() >= file.trusted_until:
                file.check()
            try:
                outcomes = self._transactions.charge(cursor, charges)
            except BaseException:
                self._release()
                raise
            if self._given_up or not self._ours:
                self._release()
            return outcomes

    def _open(self) -> Cursor:
        connection = self._connect()
        self._use = self._raw.add(connection)
        cursor = self._cursor = self._transactions.cursor(connection)
        return cursor

    def _release(self) -> None:
        cursor, self._cursor = self._cursor, None
        use, self._use = self._use, None
        if cursor is not None:
            if use is not None:
                self._raw.remove(use)
            if self._given_up:  # The pool may be closed by now.
                cursor.connection.invalidate()
            cursor.connection.close()

    def _connect(self) -> Connection:
        if self._file is not None:
            self._file.check()
        connection = self._engine.connect()
        if self._file is not None:
            self._file.remember()
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

    def _dispose(self, *, close: bool = True) -> None:
        """Drop the pool; the connections of the next one may open another file."""
        self._engine.dispose(close=close)
        if self._file is not None:
            self._file.forget()


class _Awaiting(Executor):
    """An executor of an event loop, with a batcher for charges."""

    def __init__(self, transactions: Transactions, sessions: Sessions) -> None:
        super().__init__(transactions, sessions)
        self._batcher = AsyncBatcher[Charge, Outcome](self._send, TOGETHER_AT_MOST, self._tidy)

    async def charge(self, charge: Charge) -> Outcome:
        try:
            return await self._batcher.charge(charge)
        except deadlines.Overdue:
            self.leave_idle()
            raise

    @abstractmethod
    def leave_idle(self) -> None:
        """After an overdue call, use no connection of its time, if its own had been idle."""

    def give_up(self) -> None:
        self._batcher.give_up()

    @abstractmethod
    async def _send(self, charges: Sequence[Charge]) -> list[Outcome]:
        """Make charges in one transaction."""

    async def _tidy(self) -> None:
        if (prune := self._transactions.prune()) is not None:
            await self.write(self._transactions.writing(prune))

    async def _drain(self, sever: Callable[[], None]) -> None:
        """Await waiting charges; sever connections of calls that take longer than ``GRACE``."""
        drained = asyncio.ensure_future(self._batcher.drain())
        _, late = await asyncio.wait((drained,), timeout=GRACE)
        if late:
            sever()


class ThreadExecutor(_Awaiting):
    """Awaits a blocking engine: one thread makes charges, others run the remaining calls.

    A blocking driver takes half the time of an asynchronous one: a batch of charges switches the
    thread once, SQLite's asynchronous driver once per statement. SQLite has one writer, so there
    the thread for charges makes all writes.
    """

    def __init__(
        self,
        sync: SyncExecutor,
        transactions: Transactions,
        sessions: Sessions,
        *,
        one_writer: bool,
    ) -> None:
        super().__init__(transactions, sessions)
        self._sync = sync
        self._charging = WorkerThreads(1, "lockgate-sql-charges")
        self._others = WorkerThreads(1 if one_writer else _LOOP_THREADS, "lockgate-sql")
        self._writing = self._charging if one_writer else self._others
        self._given_up = False

    async def read(self, work: Work[T]) -> T:
        return await self._do(self._others, partial(self._sync.do, work))

    async def write(self, transaction: Work[T]) -> T:
        return await self._do(self._writing, partial(self._sync.do, transaction))

    def dedicated(self) -> AbstractAsyncContextManager[Any]:
        return self._sync.dedicated()

    def leave_idle(self) -> None:
        self._sync.leave_idle()

    def give_up(self) -> None:
        self._given_up = True
        self._sync.give_up()
        super().give_up()
        self._charging.stop()
        self._others.stop()

    async def close(self) -> None:
        self._transactions.hurried = True
        await self._drain(self._sync.sever)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._others.do(self._sync.shut), 2 * GRACE)
        self._charging.stop()
        self._others.stop()

    async def _send(self, charges: Sequence[Charge]) -> list[Outcome]:
        return await self._do(self._charging, partial(self._sync.send, charges))

    async def _do(self, threads: "WorkerThreads", work: Callable[[], T]) -> T:
        if self._given_up:  # By the failure of another call, after this one had begun.
            raise ConnectionLost
        try:
            return await threads.do(work)
        except deadlines.Overdue:
            self.leave_idle()
            raise


class AsyncExecutor(_Awaiting):
    """Awaits an asynchronous engine."""

    def __init__(
        self, engine: AsyncEngine, transactions: Transactions, sessions: Sessions, *, ours: bool
    ) -> None:
        super().__init__(transactions, sessions)
        self._engine = engine
        self._ours = ours
        self._tasks = deadlines.Tasks()
        self._raw = RawConnections()

    async def read(self, work: Work[T]) -> T:
        try:
            return await self._tasks.do(self._do(work))
        except deadlines.Overdue:
            self.leave_idle()
            raise

    def leave_idle(self) -> None:
        self._leave_idle(self._raw)

    @asynccontextmanager
    async def dedicated(self) -> AsyncGenerator[Any]:
        async with self._engine.connect() as connection:
            driver: Any = (await connection.get_raw_connection()).driver_connection
            await connection.run_sync(lambda c: c.detach())
            try:
                yield driver
            except Exception:
                await connection.invalidate()  # As above.
                with suppress(Exception):
                    await driver.close()
                raise

    async def close(self) -> None:
        await self._drain(self.give_up)
        if self._ours:
            await self._engine.dispose()

    async def _send(self, charges: Sequence[Charge]) -> list[Outcome]:
        transactions = self._transactions
        return await self.read(lambda c: transactions.charge(transactions.cursor(c), charges))

    async def _do(self, work: Work[T]) -> T:
        attempt, started, severed = 1, monotonic(), self._severed
        while True:
            try:
                async with self._engine.connect() as connection:
                    begun = connection.sync_connection
                    assert begun is not None, "its context was entered"
                    use = self._raw.add(begun)
                    try:
                        if not self._checked:
                            await connection.run_sync(self._transactions.check)
                            self._checked = True
                        return await connection.run_sync(work)
                    finally:
                        self._raw.remove(use)
            except Exception as failure:
                if self._severed > severed or not self._again(failure, attempt, started):
                    self._transactions.reraise(failure)
            attempt += 1


class WorkerThreads:
    """Daemon threads that run blocking work for an event loop in order of arrival.

    At exit the interpreter waits for threads of ``concurrent.futures``, even if a database hangs.
    It does not wait for daemons, and the database rolls their work back.

    Args:
        at_most: the number of threads; each starts when there is work for it.
        name: the name that debuggers show.
    """

    def __init__(self, at_most: int, name: str) -> None:
        self._at_most = at_most
        self._name = name
        self._started = 0
        self._tasks: _Tasks = SimpleQueue()
        self._ended = finalize(self, _end, self._tasks, at_most)

    async def do(self, work: Callable[[], T]) -> T:
        """Run work in a thread. A caller that stops waiting does not stop the work.

        Raises:
            Overdue: the present deadline came first.
            RuntimeError: the threads were stopped.
        """
        loop = asyncio.get_running_loop()
        seconds = deadlines.left()
        answer: asyncio.Future[T] = loop.create_future()

        def task() -> None:
            try:
                if seconds is None:
                    value = work()
                else:
                    with deadlines.within(seconds):
                        value = work()
            except BaseException as failure:
                _answer(loop, answer, answer.set_exception, failure)
            else:
                _answer(loop, answer, answer.set_result, value)

        if not self._ended.alive:
            raise RuntimeError("The store is closed.")
        if self._started < self._at_most:
            self._started += 1
            Thread(target=_serve, args=(self._tasks,), name=self._name, daemon=True).start()
        self._tasks.put(task)
        return await deadlines.answered(answer)

    def stop(self) -> None:
        """End the threads after the work that is queued now."""
        self._ended()


def _serve(tasks: _Tasks) -> None:
    while (task := tasks.get()) is not None:
        task()
        del task  # It would keep its answer alive until the next task.


def _end(tasks: _Tasks, threads: int) -> None:
    for _ in range(threads):
        tasks.put(None)


def _answer(
    loop: asyncio.AbstractEventLoop,
    answer: asyncio.Future[T],
    settle: Callable[..., None],
    value: object,
) -> None:
    def settle_unless_cancelled() -> None:
        if not answer.done():
            settle(value)

    with suppress(RuntimeError):  # The loop is closed, so no caller waits.
        loop.call_soon_threadsafe(settle_unless_cancelled)


def executors_of(transactions: Transactions, engines: Engines) -> PerLoop[Executor]:
    """Return the executors of a store: one for threads, and one for each event loop."""
    ours, sessions = engines.ours, engines.sessions
    awaiting = engines.awaiting
    one_writer = engines.dialect.name == "sqlite"
    sync = (
        None
        if engines.blocking is None
        else SyncExecutor(
            engines.blocking,
            transactions,
            ours=ours,
            prompt=ours and one_writer,
            file=engines.file,
            sessions=sessions,
        )
    )
    if awaiting is not None:
        return PerLoop(sync, lambda: AsyncExecutor(awaiting(), transactions, sessions, ours=ours))
    if sync is not None and (ours or one_writer):
        return PerLoop(
            sync, lambda: ThreadExecutor(sync, transactions, sessions, one_writer=one_writer)
        )
    return PerLoop(sync, None)
