"""A store that hangs is named and given up, alone and with many callers."""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import Any

import pytest

from lockgate import run
from lockgate.core.limits import LimitWindows
from lockgate.core.sliding_window import Reading
from lockgate.stores.base import IoMode
from lockgate.testing import Broken, certify

from .mutants import Mutant, Windows
from .test_callers_that_leave import Suspending

BRIEF = 2.0
"""Seconds that a right check never needs and a hanging store takes."""


class Deadlocks(Mutant):
    """Takes a lock that is not released where a call is refused."""

    parts = ("slots",)

    def __init__(self) -> None:
        super().__init__()
        self.door = threading.Lock()

    async def renew(self, *arguments: Any, **options: Any) -> Any:
        self.door.acquire()
        renewed = await super().renew(*arguments, **options)
        if renewed is not None:
            self.door.release()
        return renewed


class DeadlocksInACrowd(Mutant):
    """Waits for a caller that has left, where there are many."""

    parts = ("slots",)

    async def acquire(self, *arguments: Any, **options: Any) -> Any:
        if sys.getswitchinterval() < 0.001:  # Only where the kit has many callers.
            threading.Event().wait()
        return await super().acquire(*arguments, **options)


class NeverAwakes(Suspending):
    """Awaits a reply that never comes."""

    io: IoMode = "async"

    async def hit(
        self,
        organization: str,
        windows: Windows,
        cost: int,
        now: int | None = None,
        limits: LimitWindows | None = None,
    ) -> Reading:
        if cost > 1:
            await asyncio.Event().wait()
        return await super().hit(organization, windows, cost, now, limits)


@pytest.mark.parametrize(("kind", "verb"), [(Deadlocks, "renew"), (DeadlocksInACrowd, "acquire")])
def test_a_store_that_blocks_for_ever_is_named(kind: type[Mutant], verb: str) -> None:
    with pytest.raises(Broken, match=rf"{verb}\(\) had not returned when the check had") as broken:
        run(certify(kind, parts=kind.parts, deadline=BRIEF))
    assert broken.value.sentence == "G4"


def test_a_store_that_awaits_for_ever_is_named() -> None:
    with pytest.raises(Broken, match=r"hit\(\) had not returned when the check had") as broken:
        asyncio.run(certify(NeverAwakes, parts=["windows"], deadline=BRIEF))
    assert broken.value.sentence == "G4"
