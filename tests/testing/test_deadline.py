"""A store that hangs is named and given up, alone and with many callers."""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import Any

import pytest

from lockgate import run
from lockgate.testing import Broken, certify
from tests.patience import until

from .mutants import Call, Mutant, wrong

BRIEF = 2.0
"""Seconds that a check has once a call of its store hangs; until then it has a minute."""
_hanging = threading.Event()


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the deadline of a check begin when a call hangs, whatever a busy machine takes before."""
    _hanging.clear()
    join, wait = threading.Thread.join, asyncio.wait

    class Joined(threading.Thread):
        def join(self, timeout: float | None = None) -> None:
            until(lambda: _hanging.is_set() or not self.is_alive())
            join(self, timeout)

    async def waiting(tasks: set[asyncio.Task[None]], *, timeout: float | None) -> Any:
        async with asyncio.timeout(60):
            while not (_hanging.is_set() or all(task.done() for task in tasks)):
                await asyncio.sleep(0.02)
        return await wait(tasks, timeout=timeout)

    monkeypatch.setattr("lockgate.testing.deadline.Thread", Joined)
    monkeypatch.setattr("lockgate.testing.deadline.asyncio.wait", waiting)


_door = threading.Lock()


@wrong("", "renew", parts=("slots",))
async def keeps_a_lock(call: Call) -> Any:
    """That is not released where a call is refused."""
    if _door.locked():
        _hanging.set()
    _door.acquire()
    renewed = await call()
    if renewed is not None:
        _door.release()
    return renewed


@wrong("", "acquire", parts=("slots",))
async def deadlocks_in_a_crowd(call: Call) -> Any:
    """Waits for a caller that has left, where there are many."""
    if sys.getswitchinterval() < 0.001:  # Only where the kit has many callers.
        _hanging.set()
        threading.Event().wait()
    return await call()


@wrong("", "hit", io="async")
async def never_awakes(call: Call) -> Any:
    """Awaits a reply that never comes."""
    if call.cost > 1:
        _hanging.set()
        await asyncio.Event().wait()
    return await call()


@pytest.mark.parametrize(
    ("kind", "verb"), [(keeps_a_lock, "renew"), (deadlocks_in_a_crowd, "take")]
)
def test_a_store_that_blocks_for_ever_is_named(kind: type[Mutant], verb: str) -> None:
    with pytest.raises(Broken, match=rf"{verb}\(\) had not returned when the check had") as broken:
        run(certify(kind, parts=kind.parts, deadline=BRIEF))
    assert broken.value.sentence == "G4"


def test_a_store_that_awaits_for_ever_is_named() -> None:
    with pytest.raises(Broken, match=r"hit\(\) had not returned when the check had") as broken:
        asyncio.run(certify(never_awakes, parts=["windows"], deadline=BRIEF))
    assert broken.value.sentence == "G4"
