"""The names of organizations, which the host gives by a function of its own."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from inspect import isawaitable
from typing import Final

from ..core.api_keys import read_name
from ..core.key_format import KeyFormat
from ..events import Events, OnceAMinute, logger
from ..services.accounts.session_access import is_async
from ..services.host_calls import HostCalls, result_of
from ..sync import loop_runs

NameOf = Callable[[str], str | Awaitable[str | None] | None]
"""Return the name of an organization by its id; None: it has none, so pages show the id."""

SECONDS: Final = 0.5
"""For all names of a page."""
_AT_ONCE: Final = 8
"""Calls of an ``async`` function that run concurrently."""


class Names:
    """Asks the host for the names of organizations.

    An ``async`` function runs in the event loop of the caller. Any other one runs in a separate
    thread, where it may block, and so does an ``async`` one under WSGI.

    Args:
        name_of: the host's function; None: pages show ids.
        format: the format of keys: a name that holds a credential is not shown (K11).
        events: receives ``names_failed``.
    """

    def __init__(self, name_of: NameOf | None, format: KeyFormat, events: Events) -> None:
        self._name_of: Final = name_of
        self._format: Final = format
        self._events: Final = events
        self._calls: Final = HostCalls("lockgate-names")
        self._logs: Final = OnceAMinute()

    async def of(self, ids: Iterable[str]) -> dict[str, str]:
        """Return the names that the host gave within :data:`SECONDS`, by id. Never raises."""
        name_of = self._name_of
        if name_of is None:
            return {}
        asked, found = _Asked(ids), dict[str, str]()
        try:
            if is_async(name_of) and loop_runs():
                await self._await_each(name_of, asked, found)
            else:
                await self._calls.call(lambda: self._call_each(name_of, asked, found), SECONDS)
        except Exception as failure:
            self._failed(failure)
        finally:
            asked.clear()  # A call that is late asks for no further name.
        return {**found}

    async def _await_each(self, name_of: NameOf, asked: "_Asked", found: dict[str, str]) -> None:
        """Ask an ``async`` function, and abandon the calls that are late (D34).

        Raises:
            TimeoutError: some are.
        """

        async def work() -> None:
            while (id := asked.next()) is not None:
                try:
                    answer = name_of(id)
                    self._take(id, await answer if isawaitable(answer) else answer, found)
                except Exception as failure:
                    self._failed(failure)

        tasks = [asyncio.create_task(work()) for _ in range(min(_AT_ONCE, len(asked)))]
        try:
            _, late = await asyncio.wait(tasks, timeout=SECONDS)
        finally:
            for task in tasks:
                task.cancel()
        if late:
            raise TimeoutError

    def _call_each(self, name_of: NameOf, asked: "_Asked", found: dict[str, str]) -> None:
        """Ask any function, in a thread without an event loop."""
        while (id := asked.next()) is not None:
            try:
                self._take(id, result_of(partial(name_of, id)), found)
            except Exception as failure:
                self._failed(failure)

    def _take(self, id: str, answer: object, found: dict[str, str]) -> None:
        """Keep a name that pages can show (D8).

        Raises:
            TypeError: the function returned no text.
        """
        if answer is None:
            return
        if not isinstance(answer, str):
            raise TypeError(f"name_of returned {type(answer).__name__}: return a text or None")
        name, problems = read_name(answer)
        if not problems and not self._format.holds_credential(name):
            found[id] = name

    def _failed(self, failure: Exception) -> None:
        """Report a failure of the host's function, with its traceback once a minute (G7)."""
        if self._logs.is_due():
            logger.error("dashboard(name_of=...) failed", exc_info=failure)
        self._events.emit("names_failed", logging.WARNING, error=type(failure).__qualname__)


class _Asked(deque[str]):
    """Ids without repetitions, which several tasks or a thread take one by one."""

    def __init__(self, ids: Iterable[str]) -> None:
        super().__init__(dict.fromkeys(ids))

    def next(self) -> str | None:
        """Return the next id; None: none is left."""
        try:
            return self.popleft()
        except IndexError:
            return None
