"""Shielded flows finish after any cancellation, and closing waits for all of them."""

from __future__ import annotations

import asyncio

import pytest

from lockgate import run
from lockgate.services.reservations.shielded import Finishing


async def test_a_flow_is_finished_undone_and_flushed_after_its_caller_was_cancelled() -> None:
    finishing, begun, goes_on = Finishing(), asyncio.Event(), asyncio.Event()
    done: list[str] = []

    async def flow() -> None:
        begun.set()
        await goes_on.wait()
        done.append("done")

    async def undo() -> None:
        await asyncio.sleep(0)
        done.append("undone")

    async def flush() -> None:
        await finishing.flush()
        done.append("settled")

    caller = asyncio.create_task(finishing.finish(flow(), undo))
    await begun.wait()
    settling = asyncio.create_task(flush())
    await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    goes_on.set()
    await settling
    assert done == ["done", "undone", "settled"]


def test_flush_does_not_wait_for_flows_of_an_ended_event_loop() -> None:
    finishing = Finishing()
    loop = asyncio.new_event_loop()
    task = loop.create_task(finishing.finish(asyncio.sleep(60)))
    loop.run_until_complete(asyncio.sleep(0))
    run(finishing.flush())
    asyncio.run(finishing.flush())
    task.cancel()
    for left in asyncio.all_tasks(loop):
        left.cancel()
    loop.run_until_complete(asyncio.gather(*asyncio.all_tasks(loop), return_exceptions=True))
    loop.close()
