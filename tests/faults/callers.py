"""One process of callers: reads a plan from stdin, asks until it is told to stop, writes a log.

``python -m tests.faults.callers`` is started by the campaign, once with callers that await and once
with callers that block.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, TypedDict

from lockgate import Gate, Plan, PlanBook, run
from lockgate.errors import KeyRevoked, NotFound, RateLimitExceeded, StoreUnavailable
from lockgate.options import StoreOptions
from lockgate.stores.redis import RedisStore

from .oracle import ADMITTED, AWAY, LIMITED, REFUSED, REVOKED, UNAVAILABLE, Answer, Change

LIMIT = 60
"""Requests a minute of the organizations on the plan `tight`."""
PLANS = PlanBook([Plan("free", 10**6, 10**7, None, None), Plan("tight", LIMIT, kept_retries=True)])
PEPPERS = [b"the pepper of the fault campaign"]
PROCESSES = 2
PATIENCE = 30.0
"""Seconds in which a store that was disturbed has to answer again at last."""


class Key(TypedDict):
    """A key, and its role in the campaign."""

    organization: str
    id: str
    text: str


class Group(TypedDict):
    """The keys of organizations that a fault concerns alike."""

    free: list[Key]
    """Used without end."""
    tight: list[Key]
    """Of organizations with a small limit, one more of which is used each second."""
    victims: list[Key]
    """Asked about all the time, while they are revoked one after the other."""


class Orders(TypedDict):
    """What one process has to do."""

    store: str
    durability: str | None
    deadline: float
    awaiting: bool
    warm: bool
    """Whether each key is used once before the load begins."""
    groups: list[Group]
    revokes: list[Key]
    """Those victims that this process revokes."""
    pause: float
    """Seconds between two requests of one caller."""
    log: str
    """Path of the log."""


def gate_of(store: str, durability: str | None, deadline: float) -> Gate:
    """Open the gate that the campaign and its processes share."""
    source = store if durability is None else RedisStore(store, durability=durability)
    return Gate(
        source,
        brand="acme",
        plans=PLANS,
        peppers=PEPPERS,
        store_options=StoreOptions(deadline=deadline, fleet=PROCESSES),
    )


class Callers:
    """Callers of one gate in one I/O mode."""

    def __init__(self, plan: Orders) -> None:
        self.answers: list[Answer] = []
        self.changes: list[Change] = []
        self.stall = 0.0
        self._plan = plan
        self._over = threading.Event()
        self._begun = monotonic()
        self._gate = gate_of(plan["store"], plan["durability"], plan["deadline"])

    async def _pause(self, seconds: float) -> None:
        if self._plan["awaiting"]:
            await asyncio.sleep(seconds)
        else:
            time.sleep(seconds)

    async def _ask(self, key: Key) -> str:
        started = monotonic()
        try:
            await self._gate.authenticate(key["text"])
            outcome = ADMITTED
        except RateLimitExceeded:
            outcome = LIMITED
        except KeyRevoked:
            outcome = REVOKED
        except StoreUnavailable as failure:
            outcome = REFUSED if failure.__cause__ is None else UNAVAILABLE
        except Exception as failure:
            outcome = type(failure).__qualname__
        self.answers.append(Answer(started, monotonic(), outcome, key["organization"], key["id"]))
        return outcome

    async def _revoke(self, key: Key) -> None:
        started = monotonic()
        try:
            await self._gate.keys.revoke(key["organization"], key["id"])
            answered = True
        except (NotFound, StoreUnavailable):
            answered = False
        self.changes.append(Change(started, monotonic(), answered, key["id"]))

    def _steps(self) -> Iterator[Iterator[Awaitable[object]]]:
        """Yield the next action of each caller, without end."""
        for group in self._plan["groups"]:
            for key in group["free"]:
                yield self._over_and_over(partial(list, [key]))
            yield self._over_and_over(partial(self._opened, group["tight"]))
            yield self._over_and_over(partial(list, group["victims"]))
        yield self._revocations()

    def _over_and_over(self, keys: Callable[[], list[Key]]) -> Iterator[Awaitable[object]]:
        while True:
            for key in keys():
                yield self._ask(key)

    def _opened(self, tight: list[Key]) -> list[Key]:
        """Give the keys that are in use by now: so at any time some organization is half full."""
        return tight[: 1 + int(monotonic() - self._begun)]

    def _revocations(self) -> Iterator[Awaitable[object]]:
        for key in self._plan["revokes"]:
            for _ in range(4):  # Fewer than of requests: they have to last.
                yield self._pause(self._plan["pause"])
            yield self._revoke(key)

    async def _warm(self) -> None:
        for group in self._plan["groups"]:
            for key in (*group["free"], *group["tight"], *group["victims"]):
                if self._plan["warm"] or key not in group["tight"]:
                    await self._at_last(key)

    async def _at_last(self, key: Key) -> str:
        """Ask until the answer is no 503."""
        until = monotonic() + PATIENCE
        while (outcome := await self._ask(key)) in AWAY and monotonic() < until:
            await self._pause(0.05)
        return outcome

    async def _finish(self) -> None:
        """Use up every limit, and ask once about every victim."""
        for group in self._plan["groups"]:
            for key in group["tight"]:
                while await self._at_last(key) == ADMITTED:
                    pass
            for key in (*group["victims"], *group["free"]):
                await self._at_last(key)
        await self._gate.close()

    async def _go_on(self, steps: Iterator[Awaitable[object]]) -> None:
        for step in steps:
            await step
            if self._over.is_set():
                return
            await self._pause(self._plan["pause"])

    def _watch_the_processor(self) -> None:
        while not self._over.is_set():
            before = monotonic()
            time.sleep(0.005)
            self.stall = max(self.stall, monotonic() - before - 0.005)

    async def _await(self) -> None:
        await self._warm()
        self._begin()
        await asyncio.gather(*map(self._go_on, self._steps()))
        await self._finish()

    def _block(self) -> None:
        run(self._warm())
        self._begin()
        threads = [
            threading.Thread(target=self._in_a_thread, args=(steps,)) for steps in self._steps()
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        run(self._finish())

    def _in_a_thread(self, steps: Iterator[Awaitable[object]]) -> None:
        run(self._go_on(steps))

    def _begin(self) -> None:
        self._begun = monotonic()
        threading.Thread(target=self._until_told, daemon=True).start()
        threading.Thread(target=self._watch_the_processor, daemon=True).start()
        print("ready", flush=True)

    def _until_told(self) -> None:
        sys.stdin.readline()
        self._over.set()

    def run(self) -> None:
        """Ask until a line comes in, then finish."""
        if self._plan["awaiting"]:
            asyncio.run(self._await())
        else:
            self._block()


def main() -> None:
    plan: Orders = json.loads(sys.stdin.readline())
    logging.getLogger("lockgate").propagate = False
    callers = Callers(plan)
    callers.run()
    kept: dict[str, Any] = {
        "answers": callers.answers,
        "changes": callers.changes,
        "stall": callers.stall,
    }
    Path(plan["log"]).write_text(json.dumps(kept))


if __name__ == "__main__":
    main()
