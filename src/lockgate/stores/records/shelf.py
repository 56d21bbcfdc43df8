"""Records: values by name that are written on a condition, and changing them until it holds."""

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from hashlib import sha256
from time import sleep
from typing import Final, TypeAlias, TypeVar

from ...errors import HandleTaken
from ...rules.accounts import Account
from ..contract import Io, OutcomeUnknown
from ..local import wall_clock
from .record import Record

T = TypeVar("T")
Change: TypeAlias = Callable[[bytes | None, int], tuple[T, bytes | None, int | None]]
"""Makes an answer, a new value and until when to keep it, from an old value and the present."""

_TRIES: Final = 300
_LONGEST_PAUSE: Final = 0.02


class Records(ABC):
    """Values by name, each with a version that every write changes.

    A version never comes back, not even after its value was taken away or forgotten: if a count
    began again, who read the old value could write over the new one.

    Names are ASCII, at most 80 characters. Values are bytes: 0.3 KB for each key of an
    organization, and up to 8 KB for its windows.
    """

    io: Io
    """As :attr:`Store.io`, but not ``either``."""

    @abstractmethod
    async def get(self, name: str) -> tuple[bytes, int] | None:
        """The value and its version, or None if there is none."""

    @abstractmethod
    async def put_if(
        self, name: str, value: bytes | None, version: int | None, until: int | None
    ) -> bool:
        """Write a value if its version still is this one, in one atomic step.

        Args:
            name: of the value.
            value: the new one; None takes it away.
            version: the version it must have; None: there must be none of this name.
            until: an instant (microseconds) from which on the value may be forgotten; None: never.

        Returns:
            Whether it was written.
        """

    @abstractmethod
    async def names(self, prefix: str) -> list[str]:
        """Every name that begins with these characters. Asked for a census and a scan only."""

    async def now(self) -> int:
        """The present in microseconds; give the server's own clock where there is one (D27)."""
        return wall_clock()

    async def close(self) -> None:  # noqa: B027 - many have nothing to let go of
        """Let go of connections and files. Once is enough."""


class Shelf:
    """Where a store keeps its records, and the indexes beside them.

    What an index says is looked up in the record before it is believed, so that one which was
    written by somebody who then died misleads nobody.
    """

    def __init__(self, records: Records) -> None:
        self._records = records

    async def read(self, organization: str) -> Record:
        """The record of an organization."""
        kept = await self._records.get(_name("org", organization))
        return Record.read(None if kept is None else kept[0])

    async def change(
        self, organization: str, work: Callable[[Record, int], T], now: int | None
    ) -> T:
        """Change an organization's record, as often as somebody else was faster."""

        def step(value: bytes | None, at: int) -> tuple[T, bytes | None, int | None]:
            record = Record.read(value)
            answer = work(record, at)
            return answer, record.written(), record.until()

        return await self._swap(_name("org", organization), step, now)

    async def _swap(
        self,
        name: str,
        change: Change[T],
        now: int | None,
    ) -> T:
        for attempt in range(_TRIES):
            kept = await self._records.get(name)
            value, version = kept or (None, None)
            present = await self._records.now()
            at = present if now is None else now
            answer, after, until = change(value, at)
            # Forgetting goes by the clock of the records, whatever time the caller brought along.
            lasts = None if until is None else until - at + present
            if after == value or await self._records.put_if(name, after, version, lasts):
                return answer
            pause = random.random() * min(_LONGEST_PAUSE, 0.0005 * attempt)  # noqa: S311 - no secret
            if self._records.io == "async":
                await asyncio.sleep(pause)
            else:
                sleep(pause)
        raise OutcomeUnknown(f"{_TRIES} others were faster to write {name}")

    async def claim(self, kind: str, handle: str, organization: str) -> None:
        """Take a handle for an organization, before its record says so."""
        value = Record.write_names([organization])
        if not await self._records.put_if(_name(kind, handle), value, None, None):
            raise HandleTaken

    async def waive(self, kind: str, handle: str) -> None:
        """Give a handle back."""
        await self._swap(_name(kind, handle), lambda _, __: (None, None, None), 0)

    async def owner(self, kind: str, handle: str) -> str | None:
        """The organization that took a handle."""
        kept = await self._records.get(_name(kind, handle))
        return None if kept is None else Record.read_names(kept[0])[0]

    async def enter(self, kind: str, name: str, organization: str) -> None:
        """Put an organization into an index, once."""

        def step(value: bytes | None, _: int) -> tuple[None, bytes | None, int | None]:
            names = Record.read_names(value)
            if organization not in names:
                value = Record.write_names([*names, organization])
            return None, value, None

        await self._swap(_name(kind, name), step, 0)

    async def entered(self, kind: str, name: str) -> list[Account]:
        """The accounts that an index leads to."""
        kept = await self._records.get(_name(kind, name))
        names = Record.read_names(None if kept is None else kept[0])
        found = [(await self.read(organization)).account for organization in names]
        return [account for account in found if account is not None]

    async def all(self) -> AsyncIterator[Record]:
        """The record of every organization."""
        async for _, record in self.after(""):
            yield record

    async def after(self, last: str) -> AsyncIterator[tuple[str, Record]]:
        """The records of organizations with their names, in the order of these, after one."""
        for name in sorted(await self._records.names("org:")):
            if name > last:
                kept = await self._records.get(name)
                yield name, Record.read(None if kept is None else kept[0])


def _name(kind: str, id: str) -> str:
    """A name that any database takes, whatever the id contains (D36)."""
    return f"{kind}:{sha256(id.encode('utf-8', 'surrogatepass')).hexdigest()}"
