"""Calls of the host's functions, which may block, hang or raise."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from inspect import isawaitable
from threading import BoundedSemaphore, Thread
from typing import Any, Final, TypeAlias

from ..sync import outcome

SignerKeys: TypeAlias = Callable[[], Mapping[str, Any] | Awaitable[Mapping[str, Any]]]
"""A plain or ``async`` function that returns the senders' public keys as GitHub's API does:
``{"public_keys": [{"key_identifier": "...", "key": "-----BEGIN PUBLIC KEY-----..."}]}``."""

_HANGING_AT_MOST: Final = 16


class HostCalls:
    """Runs each call in a separate thread, where it may block.

    An ``async`` function runs there in a new event loop, under ASGI and WSGI alike. At most 16
    calls run or hang at a time.

    Args:
        name: the name of the threads.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._free = BoundedSemaphore(_HANGING_AT_MOST)

    async def call(self, function: Callable[[], object], timeout: float) -> object:
        """Return a function's result, awaited if it is awaitable.

        Raises:
            TimeoutError: the call took longer than ``timeout`` seconds and was abandoned, or too
                many calls hang already.
            Exception: any exception that the function raises.
        """
        if not self._free.acquire(blocking=False):
            raise TimeoutError("too many calls hang already")
        return await outcome(self._begin(function), timeout)

    def _begin(self, function: Callable[[], object]) -> "Future[object]":
        future: Future[object] = Future()

        def work() -> None:
            try:
                future.set_result(result_of(function))
            except Exception as failure:
                future.set_exception(failure)
            except BaseException as failure:  # Such as SystemExit: it fails this call only.
                future.set_exception(RuntimeError(type(failure).__qualname__))
            finally:
                self._free.release()

        try:
            Thread(target=work, name=self._name, daemon=True).start()
        except RuntimeError:
            self._free.release()
            raise
        return future


def result_of(function: Callable[[], object]) -> object:
    """Return a function's result, in a thread without an event loop; an awaitable is awaited."""
    answer = function()
    return asyncio.run(_awaited(answer)) if isawaitable(answer) else answer


async def _awaited(answer: Awaitable[object]) -> object:
    return await answer
