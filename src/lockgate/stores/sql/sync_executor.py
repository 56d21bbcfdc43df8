"""The lane of callers that block."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from threading import Lock
from time import monotonic
from typing import NoReturn, TypeVar

from sqlalchemy import Connection, Engine

from ..base import StoreError
from ..resilience import deadlines
from ..runtime.batching import ThreadBatcher
from ..runtime.process_hooks import after_fork_in_child
from .admission import TOGETHER_AT_MOST, Charge, Outcome
from .executor import GRACE, Executor
from .raw_connections import Drivers
from .statements import Cursor
from .transactions import ConnectionLost, Transactions, Work

T = TypeVar("T")

_kept: list[Cursor] = []
"""In a child process: those that its parent was using when it forked."""


class SyncExecutor(Executor):
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
        self._hand: Cursor | None = None
        self._held = 0
        self._begin()
        after_fork_in_child(self)

    def _begin(self) -> None:
        self._meeting = ThreadBatcher[Charge, Outcome](
            self.send if self._threads is None else self._send_in_time, TOGETHER_AT_MOST
        )
        self._sending = Lock()
        self._drivers = Drivers()

    def forked(self) -> None:
        """Leave the connections to the parent process, in the child.

        SQLite knows by its open files what this process has locked, which is nothing: they are
        closed. A server would take that for its client's farewell.
        """
        embedded = self._engine.dialect.name == "sqlite"
        if not embedded:
            self._drivers.forsake()
        hand, self._hand = self._hand, None
        if hand is not None and self._sending.locked():
            # To roll back would change a file's log that both have in memory, and a driver would
            # wait for the thread that was reading an answer.
            _kept.append(hand)
        elif hand is not None:
            if not embedded:
                hand.connection.invalidate()
            hand.connection.close()
        if self._ours:
            self._engine.dispose(close=embedded)
        self._begin()

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
                    self._reraise(failure, breaks)
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
                        self._reraise(failure, breaks)
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

    def shut(self, grace: float = GRACE) -> None:
        """Close what is ours and idle, and after a grace what is not."""
        self._transactions.hurried = True
        free = self._sending.acquire(timeout=grace)
        if not free:
            self.break_off()
            free = self._sending.acquire(timeout=GRACE)
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

    def _take(self) -> Cursor:
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

    def _reraise(self, failure: Exception, breaks: int) -> NoReturn:
        """Raise a :class:`StoreError` for a driver's exception. On a connection that was cut off
        meanwhile, a driver may raise anything."""
        if not isinstance(failure, StoreError) and (self._given_up or self._breaks > breaks):
            raise ConnectionLost from failure
        self._transactions.reraise(failure)

    def _again(self, failure: Exception, attempt: int, started: float) -> bool:
        return not self._given_up and self._transactions.again(failure, attempt, started)
