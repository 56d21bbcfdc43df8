"""One process of streams: ``python -m tests.streams.worker`` reads its orders from stdin.

It runs until it is killed. Each call of the store is written to its log, before and after.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, Final, TypedDict

from lockgate import Gate, Limit
from lockgate.errors import RateLimitExceeded, StoreUnavailable
from lockgate.options import StoreOptions
from lockgate.services.reservations.holds import TakenHold
from lockgate.stores.open import open_store
from lockgate.testing import FaultyStore

from .clock import SharedClock, elapsed
from .oracle import ANSWERED, ENDED, UNCHANGED, UNKNOWN

ENOUGH: Final = 10**12
MOST_UNITS: Final = 100


class Orders(TypedDict):
    """What one process has to do."""

    url: str
    loses: bool
    """Whether the store loses replies by itself, as no network does."""
    folder: str
    """Of the clock, the logs and the holds that are handed over."""
    process: int
    processes: int
    organizations: int
    streams: int
    """At once."""
    limit: int
    """Units a minute of each organization."""
    seconds: float
    """Of a hold."""
    seed: int


def limit_of(units: int) -> Limit:
    """Return the limit, with a window that is never full and shows all units that were used."""
    return Limit("tokens", f"{units}/minute;{ENOUGH}/day")


def gate_of(orders: Orders) -> Gate:
    """Open the gate of a process."""
    source: Any = orders["url"]
    if orders["loses"]:
        store = open_store(orders["url"])
        source = FaultyStore(store, rate=0.003, faults=("lost reply",), seed=orders["seed"])
    return Gate(
        source,
        brand="acme",
        peppers=[b"the pepper of the streams campaign"],
        # Beside an outage local limits would admit more: only closed, a limit is exact.
        store_options=StoreOptions(
            clock=SharedClock(Path(orders["folder"]) / "clock"),
            hold_seconds=orders["seconds"],
            hold_at_most=1000,
            hold_limits=[limit_of(orders["limit"])],
            deadline=5,
            on_failure="closed",
        ),
    )


class Worker:
    """The streams of one process."""

    def __init__(self, orders: Orders) -> None:
        self._orders: Final = orders
        self._random: Final = Random(orders["seed"])
        self._folder: Final = Path(orders["folder"])
        self._calls: Final = count()
        flags = os.O_CREAT | os.O_APPEND | os.O_WRONLY
        self._log: Final = os.open(self._folder / f"{os.getpid()}-{orders['seed']}.log", flags)
        self._limit: Final = limit_of(orders["limit"])
        self._gate: Final = gate_of(orders)
        holds: Any = self._gate.holds
        self._take: Final[Callable[..., Awaitable[TakenHold]]] = holds.take
        self._settle: Final[Callable[..., Awaitable[bool]]] = holds.settle
        holds.take, holds.settle = self._logged_take, self._logged_settle

    def _write(self, what: str, **facts: Any) -> None:
        os.write(self._log, f"{json.dumps({'what': what, 'at': elapsed(), **facts})}\n".encode())

    def _begin(self, what: str, **facts: Any) -> str:
        call = f"{os.getpid()}-{self._orders['seed']}-{next(self._calls)}"
        self._write(what, call=call, **facts)
        return call

    async def _logged_take(self, caller: Any, units: Any, *, seconds: Any = None) -> TakenHold:
        call = self._begin("take", organization=caller, units=units[self._limit])
        try:
            taken = await self._take(caller, units, seconds=seconds)
        except RateLimitExceeded:
            self._write("end", call=call, outcome=UNCHANGED)
            raise
        except StoreUnavailable as failure:
            # Without a cause the circuit breaker refused it, and there was no call.
            outcome = UNCHANGED if failure.__cause__ is None else UNKNOWN
            self._write("end", call=call, outcome=outcome)
            raise
        self._write("end", call=call, outcome=ANSWERED, hold=taken.id)
        return taken

    async def _logged_settle(self, id: str, used: Any = None) -> bool:
        if isinstance(used, dict):
            used = used["tokens"]
        assert used is not None
        call = self._begin("settle", hold=id, units=used)
        try:
            settled = await self._settle(id, used)
        except StoreUnavailable as failure:
            outcome = UNCHANGED if failure.__cause__ is None else UNKNOWN
            self._write("end", call=call, outcome=outcome)
            raise
        self._write("end", call=call, outcome=ANSWERED if settled else ENDED)
        return settled

    def _used(self, units: int) -> int:
        """Return what a stream uses: sometimes all or nothing, or more than it holds."""
        kind = self._random.random()
        if kind < 0.05:
            return units + self._random.randint(1, MOST_UNITS)
        if kind < 0.15:
            return units
        return self._random.randint(0, units)

    async def _block(self, organization: str, units: int) -> None:
        """A stream of this process, whose client may go away."""
        async with self._gate.hold(organization, {self._limit: units}) as hold:
            used = self._used(units)
            hold.used(used // 2)
            await asyncio.sleep(self._life())
            hold.used(used)

    async def _cancelled(self, organization: str, units: int) -> None:
        stream = asyncio.create_task(self._block(organization, units))
        await asyncio.wait([stream], timeout=self._life() / 2)
        stream.cancel()
        await asyncio.wait([stream])
        if not stream.cancelled() and stream.exception() is not None:
            await stream

    async def _handed_over(self, organization: str, units: int) -> None:
        """Another process settles it, and this one may, too."""
        taken = await self._gate.holds.take(organization, {self._limit: units})
        await asyncio.sleep(self._life() / 2)
        other = self._random.randrange(self._orders["processes"])
        name = f"{other}-{os.getpid()}-{next(self._calls)}.hold"
        note = json.dumps([taken.id, self._used(units)])
        await asyncio.to_thread((self._folder / name).write_text, note)
        if self._random.random() < 0.5:
            await asyncio.sleep(self._random.random())
            await self._gate.holds.settle(taken.id, self._used(units))

    async def _abandoned(self, organization: str, units: int) -> None:
        await self._gate.holds.take(organization, {self._limit: units})
        await asyncio.sleep(self._life())

    def _life(self) -> float:
        return self._random.uniform(0.5, 1.5) * self._orders["seconds"]

    async def _streams(self, place: int) -> None:
        """Run one stream after the other."""
        kinds: list[Callable[[str, int], Awaitable[None]]] = [
            *([self._block] * 7),
            *(self._cancelled, self._handed_over, self._abandoned),
        ]
        seconds = self._orders["seconds"]
        await asyncio.sleep(self._random.random() * seconds / 6)
        while True:
            organization = f"org_{place % self._orders['organizations']}"
            try:
                run = self._random.choice(kinds)
                await run(organization, self._random.randint(1, MOST_UNITS))
            except RateLimitExceeded:
                await asyncio.sleep(self._random.uniform(0.1, 0.5) * seconds)
            except StoreUnavailable:
                await asyncio.sleep(self._random.random())
            except Exception as failure:
                self._write("error", text=repr(failure))
                raise

    async def _settle_for_others(self) -> None:
        mine = f"{self._orders['process']}-*.hold"
        while True:
            for path in await asyncio.to_thread(lambda: [*self._folder.glob(mine)]):
                try:
                    id, used = json.loads(path.read_text())
                except ValueError:  # It is being written.
                    continue
                path.unlink()
                with suppress(StoreUnavailable):
                    await self._gate.holds.settle(id, used)
            await asyncio.sleep(0.2)

    async def run(self) -> None:
        orders = self._orders
        while True:
            try:
                await self._gate.ready()
                break
            except StoreUnavailable:
                await asyncio.sleep(0.1)
        print("ready", flush=True)
        threading.Thread(target=_end_with_the_campaign, daemon=True).start()
        places = range(orders["process"], orders["streams"], orders["processes"])
        await asyncio.gather(self._settle_for_others(), *map(self._streams, places))


def _end_with_the_campaign() -> None:
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(Worker(json.loads(sys.stdin.readline())).run())
