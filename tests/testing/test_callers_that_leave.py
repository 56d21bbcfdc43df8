"""A store that a caller's leaving spoils for the others is found out."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lockgate.testing import Broken, certify

from .mutants import Call, wrong


@wrong("", "hit", io="async")
async def suspending(call: Call) -> Any:
    """Right, and waits for something before and after it is done."""
    await asyncio.sleep(0)
    reading = await call()
    await asyncio.sleep(0)
    return reading


@wrong("", "hit", of=suspending)
async def abandons_its_connection(call: Call) -> Any:
    """In the middle of a reply, without closing it."""
    in_use = call.store.seen
    if in_use:
        raise ConnectionError("a reply is still expected")
    try:
        return await call()
    except asyncio.CancelledError:
        in_use["reply"] = True
        raise


def test_a_correct_store_whose_verbs_suspend_passes() -> None:
    asyncio.run(certify(suspending, parts=["windows", "limits"]))


def test_a_store_that_fails_after_a_cancelled_caller_is_detected() -> None:
    with pytest.raises(Broken, match="Since a caller left, the store raises") as found:
        asyncio.run(certify(abandons_its_connection))
    assert found.value.sentence == "W3"
