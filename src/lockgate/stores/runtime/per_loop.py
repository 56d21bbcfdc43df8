"""Lanes: a store's ways to its servers, and which of them a call takes."""

import asyncio
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar
from weakref import WeakKeyDictionary, ref

from ..base import IoMode
from .process_hooks import own_lock


class Closable(Protocol):
    """What a lane must be able to do, whatever else it can."""

    async def close(self) -> None:
        """Answer what waits, then let go of what the lane holds."""


L = TypeVar("L", bound=Closable)


class PerLoop(Generic[L]):
    """The lanes of a store, and which of them a call takes.

    With lanes for both, whoever calls while an event loop runs in its thread awaits, and whoever
    calls without one blocks. So a store opened from its URL serves an ASGI application, the
    threads of a WSGI one and ``run()`` in a script alike, and a pairing that would block a loop
    cannot be made. An event loop has connections of its own: they cannot move to another.

    Args:
        blocking: the lane of callers that block, if they can be served.
        draw: makes a lane for one event loop, if those can be served.
    """

    def __init__(self, blocking: L | None, draw: Callable[[], L] | None) -> None:
        self._blocking = blocking
        self._draw = draw
        self._lock = own_lock()
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, L] = WeakKeyDictionary()
        # One loop asks again and again, and the dictionary takes ten times as long to find it.
        self._latest: tuple[Callable[[], object], L | None] = _nobody, None
        self.io: Final[IoMode] = "async" if blocking is None else "both" if draw else "sync"

    def here(self) -> L:
        """The lane for whoever calls this.

        Raises:
            RuntimeError: the store can only await, and no event loop runs here.
        """
        if self._draw is not None:
            try:
                loop = asyncio.get_running_loop()
            except RuntimeError:
                pass
            else:
                whose, lane = self._latest
                if lane is not None and whose() is loop:
                    return lane
                lane = self._by_loop.get(loop) or self._drawn(loop, self._draw)
                self._latest = ref(loop), lane
                return lane
        if self._blocking is None:
            raise RuntimeError(
                "This store awaits its servers, and no event loop runs here: await it in one, "
                "or give the store what blocks."
            )
        return self._blocking

    async def close(self) -> None:
        """Close the lanes that can be closed from here: other event loops keep theirs."""
        lane = self.here()
        await lane.close()
        if lane is not self._blocking:
            self._latest = _nobody, None
            loop = asyncio.get_running_loop()
            with self._lock:
                if self._by_loop.get(loop) is lane:  # Nobody else has closed it meanwhile.
                    del self._by_loop[loop]

    def _drawn(self, loop: asyncio.AbstractEventLoop, draw: Callable[[], L]) -> L:
        with self._lock:
            # Connections know their loop, so a lane that has some keeps it: that of one that has
            # ended is dropped here, and its connections with it.
            for ended in [one for one in self._by_loop if one.is_closed()]:
                del self._by_loop[ended]
            lane = self._by_loop[loop] = draw()
        return lane


def _nobody() -> None:
    """Stands for an event loop that is no more."""
