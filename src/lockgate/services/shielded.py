"""Flows that are brought to their end although who waits for them is cancelled."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

Flow = Coroutine[Any, Any, None]


class Finishing:
    """Finishes flows in tasks of their own, where no cancellation of the caller's reaches them.

    Shielding an await is not enough: an anyio scope that was cancelled, as that of a streamed
    response is when its client goes away, cancels every further await inside it.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    async def finish(self, flow: Flow, undo: Callable[[], Flow] | None = None) -> None:
        """Wait for a flow; if that is cancelled, it is finished all the same, and then undone."""
        task = self._start(flow)
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if undo is not None:
                self._start(_then(task, undo))
            raise

    async def flush(self) -> None:
        """Wait for what is still being finished in this event loop, and for what comes of it."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # What is left belongs to a loop that ended before it.
        # The set is copied first: other loops add theirs from threads of their own.
        while mine := [task for task in list(self._tasks) if task.get_loop() is loop]:
            await asyncio.gather(*mine, return_exceptions=True)  # Whoever waits is told of them.

    def _start(self, flow: Flow) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(flow)
        self._tasks.add(task)  # The loop itself keeps weak references only.
        task.add_done_callback(self._tasks.discard)
        return task


async def _then(task: asyncio.Task[None], undo: Callable[[], Flow]) -> None:
    try:
        await task
    except Exception:
        return  # It came to nothing.
    await undo()
