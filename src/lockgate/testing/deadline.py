"""End checks of a store that hangs, and name the verb that did not return."""

import asyncio
import sys
from collections.abc import Coroutine, Iterator
from contextvars import copy_context
from threading import Thread, get_ident
from types import FrameType
from typing import Any, Final

from ..core.ledger import called
from ..stores.base import PartStore
from ..sync import run
from .checks.callers import in_a_loop
from .guarantees import Broken
from .model import VERBS

DEADLINE: Final = 60.0
"""Seconds for one check, unless the caller says otherwise."""


async def ended(flow: Coroutine[Any, Any, None], store: PartStore, deadline: float) -> None:
    """Run a check to its end, or give it up at its deadline.

    In an event loop the check is a task, which is cancelled. Otherwise it runs in a daemon thread,
    which is left behind: a blocked call cannot be ended. A call that blocks an event loop cannot
    be given up either.

    Args:
        flow: the calls of the check.
        store: the store that they are made on.
        deadline: seconds.

    Raises:
        Broken: G4, with the verbs that did not return.
    """
    if in_a_loop():
        await _ended_task(flow, store, deadline)
    else:
        _ended_thread(flow, store, deadline)


async def _ended_task(flow: Coroutine[Any, Any, None], store: PartStore, deadline: float) -> None:
    task = asyncio.ensure_future(flow)
    try:
        await asyncio.wait({task}, timeout=deadline)
        if not task.done():
            stacks = [frame for one in asyncio.all_tasks() for frame in _awaiting(one.get_coro())]
            raise _hangs(stacks, store, deadline)
    finally:
        task.cancel()
    task.result()


def _ended_thread(flow: Coroutine[Any, Any, None], store: PartStore, deadline: float) -> None:
    before, failures = {*_frames()}, list[BaseException]()

    def work() -> None:
        try:
            run(flow)
        except BaseException as failure:
            failures.append(failure)

    interval = sys.getswitchinterval()
    thread = Thread(target=copy_context().run, args=(work,), daemon=True)
    thread.start()
    thread.join(deadline)
    if thread.is_alive():
        sys.setswitchinterval(interval)  # The callers that it left behind would not restore it.
        frames = [
            frame
            for ident, frame in _frames().items()
            if ident not in before and ident != get_ident()
        ]
        raise _hangs([one for frame in frames for one in _outward(frame)], store, deadline)
    if failures:
        raise failures[0]


def _frames() -> dict[int, FrameType]:
    """Return the innermost frame of each thread."""
    return sys._current_frames()  # pyright: ignore[reportPrivateUsage] - documented


def _outward(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _awaiting(coroutine: Any) -> Iterator[FrameType]:
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None)
        if frame is not None:
            yield frame
        coroutine = getattr(coroutine, "cr_await", None)


def _hangs(frames: list[FrameType], store: PartStore, deadline: float) -> Broken:
    """Return the failure that names the verbs of the store among these frames."""
    names = {
        _name(frame)
        for frame in frames
        if frame.f_code.co_name in VERBS and frame.f_locals.get("self") is store
    }
    verbs = " and ".join(f"{name}()" for name in sorted(names)) or "A call"
    return Broken("G4", f"{verbs} had not returned when the check had lasted {deadline:g} s.")


def _name(frame: FrameType) -> str:
    """Return the name of a verb; of a charge, that of its action."""
    action = frame.f_locals.get("action")
    return frame.f_code.co_name if action is None else called(action)
