"""Recalls: a process that changes a key asks the holders of quota leases to settle them (D42, K4).

A change is answered once the older leases of its organization have ended
(:mod:`lockgate.stores.resilience.older_leases`). A recall makes that sooner: each holder settles
its lease at once, and asks for another with its next request. Nothing depends on a recall: where it
is lost, or the store has none, the change is answered when the leases end by themselves.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from contextvars import Context
from threading import Event, Thread
from typing import Any, Final

from ..sync import loop_runs, pause, run
from .base import Store
from .resilience.failures import is_outage, kind_of
from .runtime.log_hints import MinutelyLog
from .runtime.process_hooks import after_fork_in_child

_AGAIN_AFTER: Final = 1.0
"""Seconds from a failure to the next attempt."""
_GRACE: Final = 1.0
"""Seconds that closing waits for a task to close its connection."""
_FAILED: Final = (
    "Recalls of quota leases cannot be received (%s): a change to a key or a plan waits for the "
    "leases of this process to end, instead of a few milliseconds."
)


class _Listening:
    """One run of a listener; a later run does not end it, nor does it end a later run."""

    def __init__(self) -> None:
        self.ended: Final = Event()
        self.task: asyncio.Task[None] | None = None


class RecallListener:
    """Receives recalls while this process holds leases, in the callers' event loop or in a thread.

    Args:
        store: sends the recalls.
        recalled: settles the lease of an organization.
        holds_leases: whether to continue.
    """

    def __init__(
        self,
        store: Store,
        recalled: Callable[[str], Coroutine[Any, Any, None]],
        holds_leases: Callable[[], bool],
    ) -> None:
        self._store: Final = store
        self._recalled: Final = recalled
        self._holds_leases: Final = holds_leases
        self._log: Final = MinutelyLog()
        self._has_recalls = True
        """Whether the store sends any, as far as is known."""
        self.forked()
        after_fork_in_child(self)

    def forked(self) -> None:
        """Leave the thread and the task to the parent process."""
        self._listening: _Listening | None = None

    def start(self) -> None:
        """Receive recalls from now on, unless this process does so already."""
        if self._listening is not None or not self._has_recalls:
            return
        listening = self._listening = _Listening()
        work = self._listen(listening)
        if loop_runs():
            # In a new context: it outlives the request that holds the lease.
            loop = asyncio.get_running_loop()
            listening.task = loop.create_task(work, context=Context())
            listening.task.add_done_callback(lambda _: self._end(listening))
        else:
            Thread(target=lambda: run(work), name="lockgate-recalls", daemon=True).start()

    def stop(self) -> None:
        """Receive no more recalls. A thread ends with its present call of the store."""
        listening = self._listening
        if listening is not None:
            self._end(listening)
            if listening.task is not None:
                loop = listening.task.get_loop()
                if not loop.is_closed():
                    loop.call_soon_threadsafe(listening.task.cancel)

    async def close(self) -> None:
        """Receive no more recalls, and wait up to a second for a task of this event loop."""
        listening = self._listening
        self.stop()
        task = None if listening is None else listening.task
        if task is not None and task.get_loop() is asyncio.get_running_loop():
            await asyncio.wait([task], timeout=_GRACE)

    def _end(self, listening: _Listening) -> None:
        listening.ended.set()
        if self._listening is listening:
            self._listening = None

    async def _listen(self, listening: _Listening) -> None:
        while not listening.ended.is_set():
            try:
                async with aclosing(self._store.recalls()) as recalls:
                    async for organization in recalls:
                        if organization is not None:
                            await self._recalled(organization)
                        elif not self._holds_leases():
                            self._end(listening)
                        if listening.ended.is_set():
                            return
                self._has_recalls = False
                self._end(listening)
            except Exception as failure:
                # The circuit breaker reports an outage of the store, and a closed store is none.
                if not listening.ended.is_set() and not is_outage(failure):
                    self._log.error(_FAILED % kind_of(failure))
                await pause(_AGAIN_AFTER)
