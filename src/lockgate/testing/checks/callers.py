"""Concurrent callers of one store: threads for a store that blocks, tasks otherwise."""

import asyncio
import sys
import threading
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from contextvars import copy_context
from time import sleep
from typing import Any, Final, TypeVar

from ...errors import HandleTaken, KeyLimitReached
from ...stores.base import Store
from ...sync import run
from ..factories import Factory
from ..guarantees import Broken
from ..history import Recorder, assert_linearizable
from ..model import World

T = TypeVar("T")

_PATIENCE: Final = 30.0
"""Seconds until all threads must have started."""


class Callers:
    """A store and its concurrent callers.

    Attributes:
        store: the empty store.
        mint: generates keys and drafts.
    """

    def __init__(self, store: Store, sentence: str) -> None:
        self.store = store
        self.factory = Factory()
        self._sentence = sentence

    async def at_once(self, number: int, work: Callable[[int], Coroutine[Any, Any, T]]) -> list[T]:
        """Run ``work(0)``, ``work(1)``, ... concurrently, and return their results.

        Raises:
            Broken: a call of one of them raised an error of the contract, which ``work`` does not
                expect.
        """
        try:
            return await self._at_once(number, work)
        except (HandleTaken, KeyLimitReached) as error:
            said = f"One of {number} callers at once got {type(error).__name__}: {error}"
            raise Broken(self._sentence, said) from error

    async def _at_once(self, number: int, work: Callable[[int], Coroutine[Any, Any, T]]) -> list[T]:
        if self.store.io == "async" or (self.store.io == "both" and in_a_loop()):
            return await asyncio.gather(*(work(index) for index in range(number)))
        return in_threads(number, lambda index: run(work(index)))

    async def linearize(
        self,
        number: int,
        work: Callable[[Store, int], Coroutine[Any, Any, object]],
        world: World | None = None,
    ) -> None:
        """Run callers, and check that some order of their calls explains every answer.

        Raises:
            Broken: no order does.
        """
        recorder = Recorder(self.store)
        await self.at_once(number, lambda index: work(recorder.store, index))
        assert_linearizable(recorder.history, world, self._sentence)

    def see(self, kept: bool, said: str, sentence: str | None = None) -> None:
        """Raise Broken unless the guarantee was kept."""
        if not kept:
            raise Broken(sentence or self._sentence, said)


def in_threads(number: int, work: Callable[[int], T]) -> list[T]:
    """Run ``work(0)``, ``work(1)``, ... each in its own thread, started at the same instant.

    The threads are daemons, so that a store that hangs does not keep the process from ending.
    """
    barrier = threading.Barrier(number)
    results: dict[int, T] = {}
    failures: dict[int, BaseException] = {}

    def start(index: int) -> None:
        try:
            barrier.wait(timeout=_PATIENCE)
            results[index] = work(index)
        except BaseException as failure:
            failures[index] = failure

    with _restless():
        threads = [
            threading.Thread(target=copy_context().run, args=(start, index), daemon=True)
            for index in range(number)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[min(failures)]
    return [results[index] for index in range(number)]


@contextmanager
def _restless() -> Generator[None]:
    """Switch threads far more often than usual, to provoke races."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


async def breathe() -> None:
    """Let other callers run: other tasks in an event loop, other threads outside of one."""
    if in_a_loop():
        await asyncio.sleep(0)
    else:
        sleep(0)


def in_a_loop() -> bool:
    """Return whether an event loop runs in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
