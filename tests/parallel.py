"""Run the tests of code that threads share in several threads at once: `nox -s parallel`.

pytest-run-parallel calls the function of a test in several threads, with the same fixtures, and
switches between them as often as it can. It does not await what an async test returns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any

import pytest


def with_a_loop_for_each_thread(items: list[pytest.Item]) -> None:
    """Have each call of an async test run in an event loop of its own."""
    for item in items:
        test = getattr(item, "obj", None)
        if iscoroutinefunction(test):
            setattr(item, "obj", in_a_loop(test))  # noqa: B010 - only items of functions have it


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))

    return run
