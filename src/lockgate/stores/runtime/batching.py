"""Batching (group commit): charges that wait at the same time share a transaction.

While a batch is in progress, new charges wait for the next one. A caller gets its outcome when the
whole batch is done.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from threading import Lock
from typing import Final, Generic, TypeVar

from ..resilience.deadlines import Overdue, answered, left, unhurried

Charge = TypeVar("Charge")
Outcome = TypeVar("Outcome")


class _Ticket(Generic[Charge, Outcome]):
    """A charge that waits in a thread, and its outcome."""

    __slots__ = ("charge", "failure", "outcome", "settled", "woken")

    def __init__(self, charge: Charge) -> None:
        self.charge = charge
        self.outcome: tuple[Outcome, ...] = ()
        self.failure: Exception | None = None
        self.settled = False
        self.woken: Final = Lock()
        self.woken.acquire()


class ThreadBatcher(Generic[Charge, Outcome]):
    """Batches the charges of threads.

    The first thread leads: it sends all waiting charges, wakes their threads, and passes the lead
    to one of the threads that have arrived in the meantime, with their charges as the next batch.
    No thread besides the callers' is used.

    A signal handler may raise in any of them, after any call and at the start of any function. So a
    leaving thread passes the lead in a way that it can repeat after an interruption.

    Args:
        send: sends some charges, and returns the outcome of each.
        most: the largest batch.
    """

    def __init__(self, send: Callable[[Sequence[Charge]], list[Outcome]], most: int) -> None:
        self._send = send
        self._most = most
        self._lock = Lock()
        self._waiting: list[_Ticket[Charge, Outcome]] = []
        self._leader: object = None
        """Identifies the leader: its ticket, or, if it did not have to wait, its charge in a tuple,
        which is as unique and cheaper to make."""
        self._sent: list[_Ticket[Charge, Outcome]] = []
        """Tickets that the leader sends and has not woken yet."""

    def charge(self, charge: Charge) -> Outcome:
        """Make a charge; return its outcome when its batch is done.

        Raises:
            Overdue: the present deadline came first, or the leader was interrupted.
        """
        first = (charge,)
        who: object = first
        ticket: _Ticket[Charge, Outcome] | None = None
        try:
            with self._lock:
                if self._leader is None:
                    self._leader = first
                else:
                    who = ticket = _Ticket(charge)
                    self._waiting.append(ticket)
            if ticket is None:
                (outcome,) = self._send(first)
                return outcome
            self._wait(ticket)
            if self._leader is ticket:
                self._lead()
            if ticket.failure is not None:
                raise ticket.failure
            (outcome,) = ticket.outcome
            return outcome
        finally:
            if self._leader is who or (ticket is not None and not ticket.settled):
                try:
                    self._leave(who)
                except BaseException:
                    self._leave(who)
                    raise

    def _wait(self, ticket: _Ticket[Charge, Outcome]) -> None:
        seconds = left()
        if not ticket.woken.acquire(timeout=-1 if seconds is None else seconds):
            raise Overdue

    def _lead(self) -> None:
        with self._lock:
            waiting, most = self._waiting, self._most
            self._sent, self._waiting = waiting[:most], waiting[most:]
        tickets = list(self._sent)
        try:
            outcomes = self._send([ticket.charge for ticket in tickets])
            for ticket, outcome in zip(tickets, outcomes, strict=True):
                ticket.outcome = (outcome,)
                ticket.settled = True
        except Exception as failure:
            for ticket in tickets:
                ticket.failure = failure
                ticket.settled = True

    def _leave(self, who: object) -> None:
        """Wake the tickets that were sent, and pass the lead to a waiting ticket.

        Idempotent: no signal handler can run between a step that cannot be repeated and the wake-up
        that belongs to it.
        """
        with self._lock:
            if who in self._waiting:
                self._waiting = [ticket for ticket in self._waiting if ticket is not who]
            if self._leader is not who:
                return
            sent, waiting = self._sent, self._waiting
            for ticket in sent:
                if not ticket.settled:
                    ticket.failure = Overdue()
                    ticket.settled = True
            while sent:
                ticket = sent[-1]
                del sent[-1]
                ticket.woken.release()
            if waiting:
                # The latest of the next batch has the most time left. An earlier one might give up
                # early, and a batch fails with its leader.
                self._leader = leader = waiting[: self._most][-1]
                leader.woken.release()
            else:
                self._leader = None


async def _tidy_nothing() -> None:
    pass


class AsyncBatcher(Generic[Charge, Outcome]):
    """Batches the charges of one event loop's tasks.

    A caller that is cancelled before its charge is sent is not charged; afterwards it is, once.

    Args:
        send: sends some charges, and returns the outcome of each.
        most: the largest batch.
        tidy: awaited between two batches.
    """

    def __init__(
        self,
        send: Callable[[Sequence[Charge]], Awaitable[list[Outcome]]],
        most: int,
        tidy: Callable[[], Awaitable[None]] = _tidy_nothing,
    ) -> None:
        self._send = send
        self._most = most
        self._tidy = tidy
        self._waiting: deque[tuple[Charge, asyncio.Future[Outcome]]] = deque()
        self._task: asyncio.Task[None] | None = None

    async def charge(self, charge: Charge) -> Outcome:
        """Make a charge; return its outcome when its batch is done."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Outcome] = loop.create_future()
        self._waiting.append((charge, answer))
        if self._task is None:
            with unhurried():  # The task sends charges of other callers, too.
                self._task = loop.create_task(self._sending())
        return await answered(answer)

    def give_up(self) -> None:
        """Send no more charges; all that wait fail with :class:`Overdue`."""
        if self._task is not None:
            self._task.cancel()
        _fail(self._waiting)

    async def drain(self) -> None:
        """Wait until every charge has its outcome."""
        if self._task is not None:
            await self._task

    async def _sending(self) -> None:
        try:
            while self._waiting:
                await self._send_some()
                with suppress(Exception):  # It is no failure of a charge.
                    await self._tidy()
                await asyncio.sleep(0)  # Callers just answered may come again: take them along.
        finally:
            self._task = None

    async def _send_some(self) -> None:
        batch: list[tuple[Charge, asyncio.Future[Outcome]]] = []
        while self._waiting and len(batch) < self._most:
            charge, answer = self._waiting.popleft()
            if not answer.done():
                batch.append((charge, answer))
        if not batch:
            return
        try:
            outcomes = await self._send([charge for charge, _ in batch])
        except asyncio.CancelledError:
            _fail(batch)
            raise
        except Exception as failure:
            for _, answer in batch:
                if not answer.done():
                    answer.set_exception(failure)
            return
        for (_, answer), outcome in zip(batch, outcomes, strict=True):
            if not answer.done():
                answer.set_result(outcome)


def _fail(waiting: Iterable[tuple[Charge, "asyncio.Future[Outcome]"]]) -> None:
    for _, answer in waiting:
        if not answer.done():
            answer.set_exception(Overdue())
