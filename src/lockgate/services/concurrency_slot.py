"""One slot, held while a block runs: one object for ``async with`` and for ``with`` (R1)."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from math import inf
from threading import Event, Thread
from time import monotonic
from types import TracebackType
from typing import Final, Self
from uuid import uuid4

from ..errors import ConfigurationError, SlotLost, StoreUnavailable
from ..sync import run
from .concurrency import ConcurrencySlots, Holder, new_owner

_BEATS: Final = 3
"""How often a lease is renewed in its time, if all goes well."""
_BEATS_IN_TROUBLE: Final = 12
"""How often that is tried while the store does not answer."""


class ConcurrencySlot:
    """A slot for a job, taken where a block begins, renewed while it runs, free when it ends.

    However it ends: by an exception, by cancellation, or with the process, whose slot comes back at
    its deadline. Should the slot be lost meanwhile (the store was away for the whole lease, the
    process stood still, somebody cancelled the job), an ``async with`` block is cancelled at that
    instant and raises :class:`~lockgate.errors.SlotLost`. A ``with`` block cannot be interrupted:
    it asks :attr:`lost`, or calls :meth:`check`, between its steps.

    Attributes:
        job: the job's id.
        owner: who holds the slot: with it the lease can be renewed and released elsewhere.
    """

    def __init__(
        self,
        slots: ConcurrencySlots,
        holder: Holder,
        job: str | None,
        owner: str | None,
        seconds: float | None,
    ) -> None:
        self.job: Final = str(uuid4()) if job is None else job
        self.owner: Final = new_owner() if owner is None else owner
        self._slots = slots
        self._holder = holder
        self._seconds = slots.lease if seconds is None else seconds
        self._adopts = owner is not None
        self._time: Callable[[], float] = monotonic
        self._until = -inf
        self._told = False
        self._awaited: AbstractAsyncContextManager[Self] | None = None
        self._waited: AbstractContextManager[Self] | None = None

    @property
    def lost(self) -> bool:
        """Whether the slot is not held: no longer, or not yet."""
        # Counted from before the store was asked: never later than the lease's own deadline.
        return self._time() >= self._until

    def check(self) -> None:
        """Go on only if the slot is held.

        Raises:
            SlotLost: it is not: the job has to stop.
        """
        if self.lost:
            raise self._loss()

    async def __aenter__(self) -> Self:
        self._enter_once()
        self._awaited = self._await()
        return await self._awaited.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._awaited is not None, "entered before"
        await self._awaited.__aexit__(kind, error, trace)

    def __enter__(self) -> Self:
        self._enter_once()
        self._waited = self._wait()
        return self._waited.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._waited is not None, "entered before"
        self._waited.__exit__(kind, error, trace)

    def _enter_once(self) -> None:
        if self._awaited is not None or self._waited is not None:
            raise ConfigurationError("A slot is held by one block: ask the gate for another one.")

    @asynccontextmanager
    async def _await(self) -> AsyncGenerator[Self]:
        self._slots.pair("async")
        loop = asyncio.get_running_loop()
        self._time = loop.time
        await self._slots.finishing.finish(self._take(), undo=self._give_back)
        timer = asyncio.timeout_at(self._until)
        try:
            async with timer:
                beating = loop.create_task(self._beat(timer))
                try:
                    yield self
                finally:
                    beating.cancel()
        except TimeoutError:
            if timer.expired():
                raise self._loss() from None
            raise
        finally:
            await self._slots.finishing.finish(self._give_back())

    @contextmanager
    def _wait(self) -> Generator[Self]:
        self._slots.pair("sync")
        if _a_loop_runs():
            raise ConfigurationError(
                "An event loop runs here, and this block would stop it: use 'async with'."
            )
        run(self._take())
        over = Event()
        beating = Thread(target=self._beat_apart, args=(over,), name="lockgate-slot", daemon=True)
        try:
            beating.start()
            yield self
        finally:
            over.set()
            run(self._give_back())
            if beating.is_alive():
                beating.join()

    async def _beat(self, timer: asyncio.Timeout) -> None:
        pause = self._seconds / _BEATS
        while not (timer.expired() or self._told):
            await asyncio.sleep(pause)
            pause = await self._renew()
            if not timer.expired():
                timer.reschedule(self._until)

    def _beat_apart(self, over: Event) -> None:
        pause = self._seconds / _BEATS
        while not over.wait(pause) and not self._told:
            pause = run(self._renew())

    async def _take(self) -> None:
        asked = self._time()
        slots, mine = self._slots, (self._holder, self.job)
        await slots.acquire(*mine, owner=self.owner, seconds=self._seconds)
        if self._adopts:
            # Somebody took it for us, and some of its time is over.
            asked = self._time()
            await slots.renew(*mine, self.owner, seconds=self._seconds)
        self._until = asked + self._seconds
        self._told = False

    async def _renew(self) -> float:
        """Renew the lease, and give the time to wait until the next time."""
        asked = self._time()
        try:
            await self._slots.renew(self._holder, self.job, self.owner, seconds=self._seconds)
        except SlotLost:
            self._until = -inf
            self._told = True
        except StoreUnavailable:
            return self._seconds / _BEATS_IN_TROUBLE
        else:
            self._until = asked + self._seconds
        return self._seconds / _BEATS

    async def _give_back(self) -> None:
        if self.lost:
            self._loss()
        self._until, self._told = -inf, True
        with suppress(StoreUnavailable):  # It comes back at its deadline.
            await self._slots.release(self._holder, self.job, self.owner)

    def _loss(self) -> SlotLost:
        """Tell of it, once."""
        if self._told:
            return SlotLost()
        self._told = True
        return self._slots.loss(self._holder, self.job)


def _a_loop_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
