"""A block that takes something on entry, renews it while it runs, and ends it on exit."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from threading import Event, Thread
from types import TracebackType
from typing import Final, Literal, Self

from ...errors import ConfigurationError
from ...sync import loop_runs, run

Pair = Callable[[Literal["async", "sync"]], None]
"""Checks that a block of an I/O mode suits the store."""

BEATS: Final = 3
"""Renewals in the time of one lease, while the store answers."""
BEATS_IN_TROUBLE: Final = 12
"""Attempts to renew in the time of one lease, while the store does not answer."""


class RenewedBlock(ABC):
    """Context manager for ``async with``, and for ``with`` in a thread without an event loop.

    Args:
        noun: the thing that is held, as messages name it.
        pair: checks the I/O mode.
        seconds: for which the thing is held without a renewal.
    """

    def __init__(self, noun: str, pair: Pair, seconds: float) -> None:
        self._noun: Final = noun
        self._pair: Final = pair
        self._seconds: Final = seconds
        self._awaited: AbstractAsyncContextManager[Self] | None = None
        self._waited: AbstractContextManager[Self] | None = None

    @abstractmethod
    def _await(self) -> AbstractAsyncContextManager[Self]:
        """Return the block of an event loop."""

    @abstractmethod
    async def _take(self) -> None:
        """Take it, at the beginning of the block."""

    @abstractmethod
    async def _renew(self) -> float:
        """Renew it, and return the seconds to wait before the next renewal."""

    @abstractmethod
    def _needs_renewal(self) -> bool:
        """Return whether it may still be renewed: it is not known to be lost."""

    @abstractmethod
    async def _end(self) -> None:
        """Give it back or settle it, at the end of the block."""

    async def __aenter__(self) -> Self:
        if not loop_runs():
            raise ConfigurationError(
                "An 'async with' block needs an event loop, and none runs here: start one, as "
                "asyncio.run(main()) does, or use 'with'."
            )
        self._enter_once()
        self._awaited = self._await()
        return await self._awaited.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._awaited is not None, "entered before"
        await self._awaited.__aexit__(kind, error, trace)

    def __enter__(self) -> Self:
        self._enter_once()
        self._waited = self._wait()
        return self._waited.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._waited is not None, "entered before"
        self._waited.__exit__(kind, error, trace)

    def _enter_once(self) -> None:
        if self._awaited is not None or self._waited is not None:
            raise ConfigurationError(f"A {self._noun} has one block: ask the gate for another one.")

    @contextmanager
    def _wait(self) -> Generator[Self]:
        self._pair("sync")
        if loop_runs():
            raise ConfigurationError(
                "An event loop runs here, and this block would stop it: use 'async with'."
            )
        run(self._take())
        over = Event()
        name = f"lockgate-{self._noun}"
        beating = Thread(target=self._beat_apart, args=(over,), name=name, daemon=True)
        try:
            beating.start()
            yield self
        finally:
            over.set()
            run(self._end())
            if beating.is_alive():
                beating.join()

    def _beat_apart(self, over: Event) -> None:
        pause = self._seconds / BEATS
        while not over.wait(pause) and self._needs_renewal():
            pause = run(self._renew())
