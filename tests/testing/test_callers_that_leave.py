"""A store that a caller's leaving spoils for the others is found out."""

from __future__ import annotations

import asyncio

import pytest

from lockgate.core.limit_windows import LimitWindows
from lockgate.core.sliding_window import Reading
from lockgate.stores.base import IoMode
from lockgate.testing import Broken, certify

from .mutants import Mutant, Windows


class Suspending(Mutant):
    """Right, and waits for something before and after it is done."""

    io: IoMode = "async"

    async def hit(
        self,
        organization: str,
        windows: Windows,
        cost: int,
        now: int | None = None,
        limits: LimitWindows | None = None,
    ) -> Reading:
        await asyncio.sleep(0)
        reading = await super().hit(organization, windows, cost, now, limits)
        await asyncio.sleep(0)
        return reading


class OneConnection(Suspending):
    """Abandons its connection in the middle of a reply, without closing it."""

    in_use = False

    async def hit(
        self,
        organization: str,
        windows: Windows,
        cost: int,
        now: int | None = None,
        limits: LimitWindows | None = None,
    ) -> Reading:
        if self.in_use:
            raise ConnectionError("a reply is still expected")
        try:
            return await super().hit(organization, windows, cost, now, limits)
        except asyncio.CancelledError:
            self.in_use = True
            raise


def test_a_correct_store_whose_verbs_suspend_passes() -> None:
    asyncio.run(certify(Suspending))


def test_a_store_that_fails_after_a_cancelled_caller_is_detected() -> None:
    with pytest.raises(Broken, match="Since a caller left, the store raises") as found:
        asyncio.run(certify(OneConnection))
    assert found.value.sentence == "W3"
