"""Serve callers with and without an event loop by the same flows.

:func:`run` drives a flow that never suspends: for WSGI, scripts and shells. :func:`outcome`,
:func:`pause` and :func:`together` await where an event loop runs and block where none does; an
object that uses them says ``io = "both"``.
"""

import asyncio
from collections.abc import Coroutine, Iterable
from concurrent.futures import CancelledError, Future
from time import sleep
from typing import Any, Final, TypeVar

from .errors import ConfigurationError

T = TypeVar("T")


def loop_runs() -> bool:
    """Return whether an event loop runs in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


_AWAITS: Final = (
    "run() was given a flow that waits for an event loop: await it there, as asyncio.run() does, "
    "or give the gate a store whose io is 'none', 'sync' or 'both'."
)


def run(flow: Coroutine[Any, Any, T]) -> T:
    """Run a flow to its end and return its value: ``run(gate.keys.list("org_1"))``.

    A flow over a store whose ``io`` is ``none``, ``sync`` or, without an event loop, ``both`` never
    suspends: driving it costs less than a microsecond.

    Raises:
        ConfigurationError: the flow suspended, so it needs an event loop.
    """
    try:
        flow.send(None)
    except StopIteration as finished:
        value: T = finished.value
        return value
    except RuntimeError as failure:
        if str(failure) != "no running event loop":
            raise
        raise ConfigurationError(_AWAITS) from failure
    flow.close()
    raise ConfigurationError(_AWAITS)


async def outcome(future: "Future[T]", timeout: float | None = None) -> T:
    """Return the result of a future, which may be shared: a cancelled caller does not cancel it.

    Raises:
        TimeoutError: it took longer than ``timeout`` seconds; the work goes on.
        CancelledError: of ``concurrent.futures``: the future was cancelled, its caller was not.
    """
    if not loop_runs():
        return future.result(timeout)
    try:
        return await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(future)), timeout)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if future.cancelled() and (task is None or not task.cancelling()):
            raise CancelledError from None
        raise


async def pause(seconds: float = 0) -> None:
    """Wait, in an event loop or by blocking; without seconds yield to other tasks of the loop."""
    if loop_runs():
        await asyncio.sleep(seconds)
    elif seconds:
        sleep(seconds)


async def together(flows: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Return the results of flows: concurrently in an event loop, otherwise one by one."""
    if loop_runs():
        return await asyncio.gather(*flows)
    started = list(flows)
    try:
        return [await flow for flow in started]
    finally:
        for flow in started:
            flow.close()  # One after a flow that failed was never begun.
