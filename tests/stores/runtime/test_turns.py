"""Turns: of the flows in an event loop, one at a time makes a step."""

from __future__ import annotations

import asyncio
import gc
from weakref import ref

import pytest

from lockgate import run
from lockgate.stores.runtime.turns import turn


class Passes:
    """Counts the passes of an event loop while others run in it."""

    def __init__(self) -> None:
        self.number = 0
        self._counting = asyncio.create_task(self._count())

    async def _count(self) -> None:
        while True:
            self.number += 1
            await asyncio.sleep(0)

    def end(self) -> None:
        self._counting.cancel()


async def test_a_pass_of_the_event_loop_has_one_step_of_twenty_flows_G5() -> None:
    passes, steps = Passes(), list[tuple[int, int]]()

    async def walk(flow: int) -> None:
        for _ in range(5):
            async with turn():
                steps.append((passes.number, flow))

    await asyncio.gather(*map(walk, range(20)))
    passes.end()
    assert len({number for number, _ in steps}) == len(steps) == 100
    assert [flow for _, flow in steps] == [*range(20)] * 5


async def test_a_turn_that_waits_for_a_store_holds_the_others_up() -> None:
    store, inside = asyncio.Event(), list[str]()

    async def walk(name: str) -> None:
        async with turn():
            inside.append(name)
            await store.wait()

    walking = [asyncio.create_task(walk(name)) for name in "abc"]
    for _ in range(10):
        await asyncio.sleep(0)
    assert inside == ["a"]
    walking[1].cancel()
    store.set()
    await asyncio.gather(*walking, return_exceptions=True)
    assert inside == ["a", "c"]


async def test_a_turn_that_fails_or_is_cancelled_ends() -> None:
    with pytest.raises(ValueError, match="unreadable"):
        async with turn():
            raise ValueError("unreadable")

    async def wait() -> None:
        async with turn():
            await asyncio.Event().wait()

    waiting = asyncio.create_task(wait())
    for _ in range(5):
        await asyncio.sleep(0)
    waiting.cancel()
    async with turn():
        pass


async def test_a_list_that_a_hosts_function_reads_within_a_step_waits_for_no_turn() -> None:
    async with turn():
        await asyncio.wait_for(asyncio.create_task(step()), 5)


async def step() -> int:
    async with turn():
        return 1


def test_without_an_event_loop_there_is_no_wait() -> None:
    assert run(step()) == 1


def test_an_event_loop_that_has_ended_is_not_kept() -> None:
    async def contend() -> None:
        await asyncio.gather(step(), step())

    loop = asyncio.new_event_loop()
    loop.run_until_complete(contend())
    loop.close()
    gone = ref(loop)
    del loop
    asyncio.run(step_twice())
    gc.collect()
    assert gone() is None


async def step_twice() -> None:
    await asyncio.gather(step(), step())
