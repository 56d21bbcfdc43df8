"""Processes that hold slots, and then die or stand still."""

from __future__ import annotations

import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

import pytest

from lockgate import Gate, Store, run
from lockgate.core.timestamps import SECOND
from lockgate.errors import ConcurrentLimitExceeded
from lockgate.options import StoreOptions
from tests.patience import SLACK, until

LEASE = 6.0
"""Seconds: long enough to be renewed on a busy machine, short enough to wait for its end."""
PATIENCE = 60.0
"""Seconds for whatever a busy machine may take."""


PROGRAM = """
import asyncio, sys, time
from lockgate import Gate, errors, run
from lockgate.options import StoreOptions
from importlib import import_module

mode, module, kind, url, prefix, job, seconds = sys.argv[1:]
store = getattr(import_module(module), kind)(url, prefix=prefix)
gate = Gate(store, brand="acme", store_options=StoreOptions(deadline=60))
slot = gate.slot("org_1", job, seconds=float(seconds))

async def hold():
    async with slot:
        print("held", slot.owner, flush=True)
        await asyncio.sleep(600)

def block():
    with slot:
        print("held", slot.owner, flush=True)
        while True:
            time.sleep(0.01)
            slot.check()

async def end():
    print("lost", flush=True)
    try:
        await gate.slots.renew("org_1", job, slot.owner)
    except errors.SlotLost:
        print("not renewed", flush=True)
    print("released", await gate.slots.release("org_1", job, slot.owner), flush=True)
    await gate.close()

async def main():
    try:
        await hold()
    except errors.SlotLost:
        await end()

if mode == "awaiting":
    asyncio.run(main())
else:
    try:
        block()
    except errors.SlotLost:
        run(end())
"""


class Holder:
    """A process that holds a slot."""

    def __init__(
        self, mode: str, kind: Callable[..., Store], url: str, prefix: str, job: str
    ) -> None:
        store = (kind.__module__, kind.__name__, url, prefix)
        command = [sys.executable, "-c", PROGRAM, mode, *store, job, str(LEASE)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.strip())

    def says(self) -> str:
        return self._lines.get(timeout=PATIENCE)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        if self.process.stdout is not None:
            self.process.stdout.close()


def deadlines(gate: Gate) -> dict[str, int]:
    """The deadline of each lease, by its job."""
    return {lease.job: lease.deadline for lease in run(gate.slots.held("org_1"))}


def none_is_left(gate: Gate) -> bool:
    """Whether no lease is held; none is held a second after its deadline, by the store's clock."""
    now = run(gate.keys.now())
    left = deadlines(gate)
    assert all(deadline > now - SECOND for deadline in left.values())
    return not left


def hold_to_it(
    kind: Callable[..., Store], url: str, prefix: str, stopped_by: str, killed_by: str
) -> None:
    """One holder is stopped past its deadline, the other killed, on a store of this kind."""
    with ExitStack() as stack:
        gate = Gate(kind(url, prefix=prefix), brand="acme", store_options=StoreOptions(deadline=60))
        stack.callback(lambda: run(gate.close()))
        stopped = Holder(stopped_by, kind, url, prefix, "stopped")
        stack.callback(stopped.close)
        killed = Holder(killed_by, kind, url, prefix, "killed")
        stack.callback(killed.close)
        assert stopped.says().startswith("held")
        assert killed.says().startswith("held")
        with pytest.raises(ConcurrentLimitExceeded):
            run(gate.slots.acquire("org_1", "another"))
        first = deadlines(gate)
        until(lambda: all(ends > first[job] for job, ends in deadlines(gate).items()))
        assert set(deadlines(gate)) == {"stopped", "killed"}  # each renews its own
        # Just renewed: stopped while it renews, it would keep its organization's row locked.
        ends = deadlines(gate)["stopped"]
        until(lambda: deadlines(gate)["stopped"] > ends)
        stopped.process.send_signal(signal.SIGSTOP)
        killed.process.kill()
        # L3, L7: by their deadline, at most a second later, without any call.
        until(partial(none_is_left, gate), LEASE + SLACK)
        next_one = run(gate.slots.acquire("org_1", "stopped"))
        another = run(gate.slots.acquire("org_1", "another"))
        with pytest.raises(ConcurrentLimitExceeded):
            run(gate.slots.acquire("org_1", "one more"))
        stopped.process.send_signal(signal.SIGCONT)
        assert [stopped.says() for _ in range(3)] == ["lost", "not renewed", "released False"]
        assert stopped.process.wait(PATIENCE) == 0
        assert run(gate.slots.held("org_1")) == (next_one, another)  # L4, L5


BY_TURNS = pytest.mark.parametrize(
    ("stopped", "killed"),
    [
        ("awaiting", "blocking"),
        pytest.param("blocking", "awaiting", marks=pytest.mark.campaign),
    ],
)
