"""Recalls of quota leases in a database (D42): see :mod:`lockgate.stores.lease_recalls`.

PostgreSQL passes them as notifications. On other databases a process looks for changes while it
holds leases, so there is nothing to send.
"""

import asyncio
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from importlib import import_module
from selectors import EVENT_READ, DefaultSelector
from typing import Any, Final

from sqlalchemy import ColumnElement, Dialect, String, func, literal, select
from sqlalchemy.exc import SQLAlchemyError

from ...sync import loop_runs, pause
from ..answers import StoreError
from ..cached.base import Changes
from .codec import read_id
from .tables import Tables

_CHANNEL: Final = "lockgate_recalls"
_STEP: Final = 1.0
"""Seconds after which a listener learns that there was no recall."""
_POLLED: Final = 0.01
"""Seconds between two looks at a file of SQLite, each of which takes some microseconds."""
_ASKED: Final = 0.025
"""Seconds between two calls of a server that sends no notifications."""

Connect = Callable[[], AbstractAsyncContextManager[Any]]
"""Opens a connection of the driver that no other caller uses."""
ReadChanges = Callable[[int | None], Awaitable[Changes]]
"""Returns the change counter, and the organizations that changed after an earlier value of it, or,
with None, within the longest span of a lease."""


class Recalls(ABC):
    """How recalls pass from one process to another."""

    sent: ColumnElement[Any] | None = None
    """Sends a recall of an organization, of whose row it is returned, at the commit. None: other
    processes see the change itself."""
    failures: tuple[type[Exception], ...] = ()
    """The exceptions of the driver, of SQLAlchemy and of sockets."""

    @abstractmethod
    def receive(self, connect: Connect, changes: ReadChanges) -> AsyncGenerator[str | None]:
        """Yield recalls: see :meth:`~lockgate.stores.base.Store.recalls`.

        Args:
            connect: opens a connection.
            changes: reads the store.
        """


class PolledRecalls(Recalls):
    """Finds the organizations that changed by the change counter, in a call of the store."""

    async def receive(self, connect: Connect, changes: ReadChanges) -> AsyncGenerator[str | None]:
        seen, organizations = await changes(None)
        for organization in organizations:
            yield organization
        looks = 0
        while True:
            await pause(_ASKED)
            looks += 1
            seen, organizations = await changes(seen)
            for organization in organizations:
                yield organization
            if looks * _ASKED >= _STEP:
                looks = 0
                yield None


class FileRecalls(Recalls):
    """Finds the organizations that changed by the change counter, in a file of SQLite.

    Args:
        tables: the tables.
        dialect: the dialect of SQLite.
    """

    def __init__(self, tables: Tables, dialect: Dialect) -> None:
        self.failures = (sqlite3.Error, SQLAlchemyError)
        self._counter: Final = str(select(func.max(tables.epochs.c.value)).compile(dialect=dialect))

    async def receive(self, connect: Connect, changes: ReadChanges) -> AsyncGenerator[str | None]:
        async with connect() as driver:
            seen, organizations = await changes(None)
            for organization in organizations:
                yield organization
            looks = 0
            while True:
                await pause(_POLLED)
                looks += 1
                if self._read(driver) != seen:
                    seen, organizations = await changes(seen)
                    for organization in organizations:
                        yield organization
                elif looks * _POLLED >= _STEP:
                    looks = 0
                    yield None

    def _read(self, driver: Any) -> int:
        ((counter,),) = driver.execute(self._counter).fetchall()
        return counter or 0


class Notifications(Recalls):
    """Notifications of PostgreSQL, by ``psycopg`` or ``asyncpg``.

    Args:
        tables: the tables.
        prefix: the prefix of the tables' names: all stores of a database share the channel.
        driver: its name, as SQLAlchemy has it.
    """

    def __init__(self, tables: Tables, prefix: str, driver: str) -> None:
        self._start: Final = f"{prefix}:"
        # An id may hold what the server takes in no text.
        id = func.encode(tables.organizations.c.id, "hex", type_=String())
        self.sent = func.pg_notify(_CHANNEL, literal(self._start) + id)
        if driver == "asyncpg":
            asyncpg = import_module("asyncpg")
            failures: list[type[Exception]] = [asyncpg.InterfaceError, asyncpg.PostgresError]
            self._receive = _of_asyncpg
        else:
            failures = [import_module("psycopg").Error]
            self._receive = _of_psycopg
        self.failures = (*failures, SQLAlchemyError, OSError)

    async def receive(self, connect: Connect, changes: ReadChanges) -> AsyncGenerator[str | None]:
        async with connect() as driver:
            arrivals = self._receive(driver)
            await anext(arrivals)  # From here on it listens.
            for organization in (await changes(None)).organizations:
                yield organization
            async for payloads in arrivals:
                if not payloads:
                    yield None
                for payload in payloads:
                    if payload.startswith(self._start):
                        yield read_id(bytes.fromhex(payload.removeprefix(self._start)))


async def _of_psycopg(driver: Any) -> AsyncGenerator[list[str]]:
    """Yield the payloads that have arrived, about once a second without any."""
    if hasattr(driver, "__aenter__"):
        await driver.set_autocommit(True)
        await driver.execute(f"LISTEN {_CHANNEL}")
    else:
        driver.autocommit = True
        driver.execute(f"LISTEN {_CHANNEL}")
    yield []
    protocol = driver.pgconn
    while True:
        protocol.consume_input()
        payloads: list[str] = []
        while (notification := protocol.notifies()) is not None:
            payloads.append(notification.extra.decode())
        yield payloads
        if not payloads:
            await _readable(driver.fileno(), _STEP)


async def _of_asyncpg(driver: Any) -> AsyncGenerator[list[str]]:
    """Yield the payloads that have arrived, about once a second without any."""
    arrived: asyncio.Queue[str] = asyncio.Queue()

    def keep(_connection: Any, _process: int, _channel: str, payload: str) -> None:
        arrived.put_nowait(payload)

    await driver.add_listener(_CHANNEL, keep)
    yield []
    while not driver.is_closed():
        try:
            payloads = [await asyncio.wait_for(arrived.get(), _STEP)]
        except TimeoutError:
            payloads = []
        yield payloads
    raise StoreError


async def _readable(descriptor: int, seconds: float) -> None:
    """Wait until a socket has something to read."""
    if not loop_runs():
        with DefaultSelector() as selector:
            selector.register(descriptor, EVENT_READ)
            selector.select(seconds)
        return
    loop, readable = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, readable.set)
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await readable.wait()
    finally:
        loop.remove_reader(descriptor)


def recalls_of(dialect: Dialect, tables: Tables, prefix: str) -> Recalls:
    """Return how a database passes recalls."""
    if dialect.name == "sqlite":
        return FileRecalls(tables, dialect)
    if dialect.name == "postgresql" and dialect.driver in {"psycopg", "psycopg_async", "asyncpg"}:
        return Notifications(tables, prefix, dialect.driver)
    return PolledRecalls()
