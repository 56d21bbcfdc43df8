"""Turns: of all long lists of a process, one is read a step further at a time (G5)."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Final
from weakref import WeakKeyDictionary

from ...sync import loop_runs
from .process_hooks import own_lock

_lock: Final = own_lock()
_by_loop: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock]] = WeakKeyDictionary()
_taken: Final = ContextVar("lockgate_turn", default=False)


@asynccontextmanager
async def turn() -> AsyncGenerator[None]:
    """Wait until no other flow of this event loop is within a turn, in the order of arrival.

    A step of a list reads a page and makes something of it, for some milliseconds. The loop runs
    its other tasks before the next step, of this list or of another one: so lists that are read at
    once keep no task waiting for the sum of their steps. Without an event loop, and within another
    turn, there is no wait.
    """
    if _taken.get() or not loop_runs():
        yield
        return
    async with _turns_of(asyncio.get_running_loop()):
        await asyncio.sleep(0)
        token = _taken.set(True)
        try:
            yield
        finally:
            _taken.reset(token)


def _turns_of(loop: asyncio.AbstractEventLoop) -> asyncio.Lock:
    turns = _by_loop.get(loop)
    if turns is None:
        with _lock:
            # A lock refers to its loop and keeps it alive: those of ended loops are dropped here.
            for ended in [one for one in _by_loop if one.is_closed()]:
                del _by_loop[ended]
            turns = _by_loop[loop] = asyncio.Lock()
    return turns
