"""Per-loop registry: the resources of a store for threads, and for each event loop."""

import asyncio
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar
from weakref import WeakKeyDictionary, ref

from ...errors import ConfigurationError
from ..base import IoMode
from .process_hooks import own_lock

WITHOUT_LOOP: Final = (
    "a URL that names no driver, as 'postgresql://user:password@host/database', or an engine or a "
    "client that blocks"
)
"""What a store needs to serve callers without an event loop, as the end of a sentence."""


class Closable(Protocol):
    """A resource that can be closed."""

    async def close(self) -> None:
        """Answer waiting calls, then release connections and threads."""


L = TypeVar("L", bound=Closable)


class PerLoop(Generic[L]):
    """The resources of a store, such as connections: one for threads, one for each event loop.

    With both kinds, a call in a running event loop awaits, and any other call blocks. So a store
    opened from its URL serves an ASGI application, the threads of a WSGI application and ``run()``
    in a script. A connection belongs to one event loop and cannot move to another.

    Args:
        blocking: the resource of callers that block; None: they cannot be served.
        draw: makes the resource of one event loop; None: event loops cannot be served.
    """

    def __init__(self, blocking: L | None, draw: Callable[[], L] | None) -> None:
        self.blocking: Final = blocking
        self._draw = draw
        self._lock = own_lock()
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, L] = WeakKeyDictionary()
        # Usually the same loop asks again, and the dictionary takes ten times as long.
        self._latest: tuple[Callable[[], object], L | None] = _no_loop, None
        self.io: Final[IoMode] = "async" if blocking is None else "both" if draw else "sync"

    def here(self) -> L:
        """Return the resource for the caller.

        Raises:
            ConfigurationError: the store can only await, and no event loop runs here.
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
        if self.blocking is None:
            raise ConfigurationError(
                "This store awaits its servers, and no event loop runs here: await it in one, or "
                f"give the store {WITHOUT_LOOP}."
            )
        return self.blocking

    async def close(self) -> None:
        """Close the caller's resource; other event loops keep theirs."""
        lane = self.here()
        await lane.close()
        if lane is not self.blocking:
            self._latest = _no_loop, None
            loop = asyncio.get_running_loop()
            with self._lock:
                if self._by_loop.get(loop) is lane:  # Otherwise another task has closed it.
                    del self._by_loop[loop]

    def _drawn(self, loop: asyncio.AbstractEventLoop, draw: Callable[[], L]) -> L:
        with self._lock:
            # Connections refer to their loop and keep it alive: the resources of loops that have
            # ended are dropped here.
            for ended in [one for one in self._by_loop if one.is_closed()]:
                del self._by_loop[ended]
            lane = self._by_loop[loop] = draw()
        return lane


def _no_loop() -> None:
    """Return no event loop, as the reference to a collected one does."""
