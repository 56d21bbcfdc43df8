"""Waiting for what a thread does: in the event loop that runs here, or by blocking where none does.

So one flow serves ASGI and WSGI where something has to be computed or fetched elsewhere. Whatever
uses this says ``io = "both"``.
"""

import asyncio
from collections.abc import Coroutine, Iterable
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

T = TypeVar("T")


async def outcome(future: "Future[T]", timeout: float | None = None) -> T:
    """What a future comes to. It may be shared: whoever stops waiting does not cancel it.

    Raises:
        TimeoutError: it took longer than ``timeout`` seconds; the work goes on without us.
        CancelledError: that of futures: it will come to nothing, and nobody cancelled us.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return future.result(timeout)
    try:
        return await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(future)), timeout)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if future.cancelled() and (task is None or not task.cancelling()):
            raise CancelledError from None
        raise


async def pause() -> None:
    """Let whatever else the event loop serves go on first."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return  # A loop of another kind.
    await asyncio.sleep(0)


async def together(flows: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """What each of some flows gives: all at once in an event loop, or else one after the other."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return [await flow for flow in flows]
    return await asyncio.gather(*flows)
