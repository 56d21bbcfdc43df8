"""Shielded flows: finish a coroutine although the caller that awaits it is cancelled."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

Flow = Coroutine[Any, Any, None]


class Finishing:
    """Finishes flows in separate tasks, out of reach of the caller's cancellation.

    Shielding an await is not enough: an anyio scope that was cancelled, as that of a streamed
    response is when its client goes away, cancels every further await inside it.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    async def finish(self, flow: Flow, undo: Callable[[], Flow] | None = None) -> None:
        """Await a flow. If the caller is cancelled, the flow still finishes, then ``undo`` runs."""
        task = self._start(flow)
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if undo is not None:
                self._start(_then(task, undo))
            raise

    async def flush(self) -> None:
        """Wait for all unfinished flows of this event loop, and for their ``undo``."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # The remaining tasks belong to an event loop that has ended.
        # The set is copied first: event loops in other threads may add to it.
        while mine := [task for task in list(self._tasks) if task.get_loop() is loop]:
            await asyncio.gather(*mine, return_exceptions=True)  # The callers get the exceptions.

    def _start(self, flow: Flow) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(flow)
        self._tasks.add(task)  # The loop itself keeps weak references only.
        task.add_done_callback(self._tasks.discard)
        return task


async def _then(task: asyncio.Task[None], undo: Callable[[], Flow]) -> None:
    try:
        await task
    except Exception:
        return  # The flow failed: there is no effect to undo.
    await undo()
