"""Charges that wait at the same time are sent together: in one transaction, or one pipeline.

While one batch is on its way, the charges that come gather, and go together in the next. A caller
has its answer when the whole batch has.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from threading import Lock
from typing import Generic, TypeVar

from .deadlines import Overdue, answered, left, unhurried

Charge = TypeVar("Charge")
Outcome = TypeVar("Outcome")


class _Ticket(Generic[Charge, Outcome]):
    """A charge that waits in a thread."""

    __slots__ = ("charge", "failure", "leads", "outcome", "woken")

    def __init__(self, charge: Charge) -> None:
        self.charge = charge
        self.outcome: list[Outcome] = []
        self.failure: BaseException | None = None
        self.leads = False
        self.woken = Lock()
        self.woken.acquire()


class Meeting(Generic[Charge, Outcome]):
    """Threads whose charges wait at the same time send them together.

    The first one to come leads: it sends all that wait, wakes those it sent for, and hands the
    lead to the first that came meanwhile. There is no thread besides the callers' own.

    Args:
        send: sends some charges, and gives the outcome of each.
        most: so many go together at most.
    """

    def __init__(self, send: Callable[[Sequence[Charge]], list[Outcome]], most: int) -> None:
        self._send = send
        self._most = most
        self._lock = Lock()
        self._waiting: deque[_Ticket[Charge, Outcome]] = deque()
        self._led = False

    def charge(self, charge: Charge) -> Outcome:
        """Make a charge; returns when its batch is done."""
        with self._lock:
            if self._led:
                ticket = _Ticket[Charge, Outcome](charge)
                self._waiting.append(ticket)
            else:
                self._led = True
                ticket = None
        if ticket is None:  # Nobody else was there.
            try:
                (outcome,) = self._send((charge,))
            finally:
                with self._lock:
                    self._pass_on()
            return outcome
        self._wait(ticket)
        if ticket.leads:
            self._lead()
        if ticket.failure is not None:
            raise ticket.failure
        (outcome,) = ticket.outcome  # Whoever leads settles the first ticket, its own.
        return outcome

    def _wait(self, ticket: _Ticket[Charge, Outcome]) -> None:
        seconds = left()
        try:
            if not ticket.woken.acquire(timeout=-1 if seconds is None else seconds):
                raise Overdue
        except BaseException:  # Or a signal's handler raised in the main thread.
            self._withdraw(ticket)
            raise

    def _lead(self) -> None:
        with self._lock:
            count = min(len(self._waiting), self._most)
            tickets = [self._waiting.popleft() for _ in range(count)]
        try:
            outcomes = self._send([ticket.charge for ticket in tickets])
            for ticket, outcome in zip(tickets, outcomes, strict=True):
                ticket.outcome.append(outcome)
        except BaseException as failure:
            for ticket in tickets:
                ticket.failure = failure
        finally:
            with self._lock:
                self._pass_on()
            for ticket in tickets[1:]:
                ticket.woken.release()

    def _pass_on(self) -> None:
        """Give the lead to the first who waits."""
        self._led = bool(self._waiting)
        if self._led:
            self._waiting[0].leads = True
            self._waiting[0].woken.release()

    def _withdraw(self, ticket: _Ticket[Charge, Outcome]) -> None:
        with self._lock:
            if ticket in self._waiting:
                self._waiting.remove(ticket)
                if ticket.leads:
                    self._pass_on()


async def _nothing() -> None:
    pass


class Gathering(Generic[Charge, Outcome]):
    """Tasks of one event loop whose charges wait at the same time send them together.

    A caller that goes away before its charge is sent is not charged; afterwards it is, once.

    Args:
        send: sends some charges, and gives the outcome of each.
        most: so many go together at most.
        tidy: is awaited between two batches.
    """

    def __init__(
        self,
        send: Callable[[Sequence[Charge]], Awaitable[list[Outcome]]],
        most: int,
        tidy: Callable[[], Awaitable[None]] = _nothing,
    ) -> None:
        self._send = send
        self._most = most
        self._tidy = tidy
        self._waiting: deque[tuple[Charge, asyncio.Future[Outcome]]] = deque()
        self._task: asyncio.Task[None] | None = None

    async def charge(self, charge: Charge) -> Outcome:
        """Make a charge; returns when its batch is done."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Outcome] = loop.create_future()
        self._waiting.append((charge, answer))
        if self._task is None:
            with unhurried():  # It sends for others too.
                self._task = loop.create_task(self._sending())
        return await answered(answer)

    def give_up(self) -> None:
        """Send nothing more and wait for nothing: for all who wait it is too late."""
        if self._task is not None:
            self._task.cancel()
        _fail(self._waiting)

    async def drain(self) -> None:
        """Wait until everything is answered."""
        if self._task is not None:
            await self._task

    async def _sending(self) -> None:
        try:
            while self._waiting:
                await self._send_some()
                with suppress(Exception):  # Whoever was charged has nothing to do with it.
                    await self._tidy()
                await asyncio.sleep(0)  # Those just answered may have come again: take them along.
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
