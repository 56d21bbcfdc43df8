"""Group commit: charges that wait at the same time are sent together, in one transaction.

While one transaction is on its way, the charges that come gather, and go together in the next. A
caller has its answer only after the commit.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from threading import Lock

from .charges import TOGETHER_AT_MOST, Charge, Outcome


class _Ticket:
    """A charge that waits in a thread."""

    __slots__ = ("charge", "failure", "leads", "outcome", "woken")

    def __init__(self, charge: Charge) -> None:
        self.charge = charge
        self.outcome: Outcome | None = None
        self.failure: BaseException | None = None
        self.leads = False
        self.woken = Lock()
        self.woken.acquire()


class Meeting:
    """Threads whose charges wait at the same time send them together.

    The first one to come leads: it sends all that wait, wakes those it sent for, and hands the
    lead to the first that came meanwhile. There is no thread besides the callers' own.
    """

    def __init__(self, send: Callable[[Sequence[Charge]], list[Outcome]]) -> None:
        self._send = send
        self._lock = Lock()
        self._waiting: deque[_Ticket] = deque()
        self._led = False

    def charge(self, charge: Charge) -> Outcome:
        """Make a charge; returns when it is committed."""
        ticket = _Ticket(charge)
        with self._lock:
            self._waiting.append(ticket)
            if not self._led:
                self._led = ticket.leads = True
        if not ticket.leads:
            try:
                ticket.woken.acquire()
            except BaseException:  # A signal's handler raised in the main thread.
                self._withdraw(ticket)
                raise
        if ticket.leads:
            self._lead()
        if ticket.failure is not None:
            raise ticket.failure
        assert ticket.outcome is not None, "whoever leads settles the first ticket, its own"
        return ticket.outcome

    def _lead(self) -> None:
        with self._lock:
            count = min(len(self._waiting), TOGETHER_AT_MOST)
            tickets = [self._waiting.popleft() for _ in range(count)]
        try:
            outcomes = self._send([ticket.charge for ticket in tickets])
            for ticket, outcome in zip(tickets, outcomes, strict=True):
                ticket.outcome = outcome
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

    def _withdraw(self, ticket: _Ticket) -> None:
        with self._lock:
            if ticket in self._waiting:
                self._waiting.remove(ticket)
                if ticket.leads:
                    self._pass_on()


class Gathering:
    """Tasks of one event loop whose charges wait at the same time send them together.

    A caller that goes away before its charge is sent is not charged; afterwards it is, once.
    """

    def __init__(
        self,
        send: Callable[[Sequence[Charge]], Awaitable[list[Outcome]]],
        tidy: Callable[[], Awaitable[None]],
    ) -> None:
        self._send = send
        self._tidy = tidy
        self._waiting: deque[tuple[Charge, asyncio.Future[Outcome]]] = deque()
        self._task: asyncio.Task[None] | None = None

    async def charge(self, charge: Charge) -> Outcome:
        """Make a charge; returns when it is committed."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Outcome] = loop.create_future()
        self._waiting.append((charge, answer))
        if self._task is None:
            self._task = loop.create_task(self._sending())
        return await answer

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
        while self._waiting and len(batch) < TOGETHER_AT_MOST:
            charge, answer = self._waiting.popleft()
            if not answer.done():
                batch.append((charge, answer))
        if not batch:
            return
        try:
            outcomes = await self._send([charge for charge, _ in batch])
        except asyncio.CancelledError:
            for _, answer in batch:
                answer.cancel()
            raise
        except Exception as failure:
            for _, answer in batch:
                if not answer.done():
                    answer.set_exception(failure)
            return
        for (_, answer), outcome in zip(batch, outcomes, strict=True):
            if not answer.done():
                answer.set_result(outcome)
