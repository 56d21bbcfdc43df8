"""Per-loop registry: a call in an event loop gets that loop's resource, any other call blocks."""

from __future__ import annotations

import asyncio
import gc
import weakref

from lockgate.stores.runtime.per_loop import PerLoop


class Lane:
    def __init__(self) -> None:
        self.closed = False

    async def close(self) -> None:
        self.closed = True


def test_each_event_loop_has_one_resource_for_its_lifetime() -> None:
    blocking = Lane()
    lanes = PerLoop(blocking, Lane)
    seen: list[Lane] = []

    async def twice() -> Lane:
        assert lanes.here() is lanes.here()
        return lanes.here()

    with asyncio.Runner() as one, asyncio.Runner() as other:
        for runner in (one, other, one, other):
            seen.append(runner.run(twice()))
            assert lanes.here() is blocking
        assert seen[:2] == seen[2:]
        assert len({*seen, blocking}) == 3
        loops = [weakref.ref(runner.get_loop()) for runner in (one, other)]
    del one, other, runner
    gc.collect()
    assert [loop() for loop in loops] == [None, None]


async def test_a_lane_that_was_closed_is_not_used_again() -> None:
    lanes = PerLoop(None, Lane)
    closed = lanes.here()
    await lanes.close()
    assert closed.closed
    assert lanes.here() is not closed


def test_a_resource_that_refers_to_its_ended_loop_is_collected() -> None:
    class Knowing(Lane):
        def __init__(self) -> None:
            super().__init__()
            self.loop = asyncio.get_running_loop()

    lanes = PerLoop(None, Knowing)
    seen: list[weakref.ref[asyncio.AbstractEventLoop]] = []

    async def ask() -> None:
        seen.append(weakref.ref(lanes.here().loop))

    for _ in range(3):
        asyncio.run(ask())
    gc.collect()
    assert [loop() for loop in seen[:-1]] == [None, None]


async def test_a_lane_may_be_closed_by_two_at_once() -> None:
    class Slow(Lane):
        async def close(self) -> None:
            await asyncio.sleep(0)

    lanes = PerLoop(None, Slow)
    lanes.here()
    await asyncio.gather(lanes.close(), lanes.close())
