"""Threads that work for event loops, and never keep a process from ending."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import TypeVar
from weakref import finalize

from ..resilience.deadlines import answered, left, within

T = TypeVar("T")
_Tasks = SimpleQueue[Callable[[], None] | None]


class Threads:
    """Threads that do blocking work for whoever awaits it, in the order in which it came.

    Those of ``concurrent.futures`` are waited for when the interpreter ends, however long a hung
    database keeps them. These are not: the database undoes what they were at.

    Args:
        most: how many there are at most; they start when there is something to do.
        name: what debuggers see.
    """

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._started = 0
        self._tasks: _Tasks = SimpleQueue()
        self._ended = finalize(self, _end, self._tasks, most)

    async def do(self, work: Callable[[], T]) -> T:
        """Do the work in a thread. Whoever stops waiting for it does not stop it."""
        loop = asyncio.get_running_loop()
        seconds = left()
        answer: asyncio.Future[T] = loop.create_future()

        def task() -> None:
            try:
                if seconds is None:
                    value = work()
                else:
                    with within(seconds):
                        value = work()
            except BaseException as failure:
                _tell(loop, answer, answer.set_exception, failure)
            else:
                _tell(loop, answer, answer.set_result, value)

        if not self._ended.alive:
            raise RuntimeError("The store is closed.")
        if self._started < self._most:
            self._started += 1
            Thread(target=_work, args=(self._tasks,), name=self._name, daemon=True).start()
        self._tasks.put(task)
        return await answered(answer)

    def stop(self) -> None:
        """End the threads once they have done what is asked of them by now."""
        self._ended()


def _work(tasks: _Tasks) -> None:
    while (task := tasks.get()) is not None:
        task()
        del task  # Or its answer would stay here until the next one comes.


def _end(tasks: _Tasks, threads: int) -> None:
    for _ in range(threads):
        tasks.put(None)


def _tell(
    loop: asyncio.AbstractEventLoop,
    answer: asyncio.Future[T],
    settle: Callable[..., None],
    value: object,
) -> None:
    def tell() -> None:
        if not answer.done():
            settle(value)

    with suppress(RuntimeError):  # The loop is closed, and nobody is there to be told.
        loop.call_soon_threadsafe(tell)
