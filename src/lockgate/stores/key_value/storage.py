"""Records: values by name that are written on a condition, and changing them until it holds."""

import asyncio
import random
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable
from hashlib import sha256
from time import sleep
from typing import Final, NoReturn, TypeAlias, TypeVar

from ...clock import wall_clock
from ...core.api_keys import Position
from ...core.timestamps import DAY, MINUTE
from ...core.usage_history import KEPT_DAYS, UsageHistory, added
from ...core.usage_marks import marked
from ...errors import HandleTaken
from ..answers import HistoryOwner, OutcomeUnknown, StoreError, UsageBatch, reading_state
from ..base import IoMode
from .record import Record

T = TypeVar("T")
Change: TypeAlias = Callable[[bytes | None, int], tuple[T, bytes | None, int | None]]
"""Maps an old value and the present to an answer, a new value and its expiry."""

LOOKED_AT_AT_ONCE: Final = 20
_CLAIM_LASTS: Final = MINUTE
"""Microseconds after which a claim without a row may be taken over; a commit takes far less."""
_TRIES: Final = 300
_LONGEST_PAUSE: Final = 0.02


class Records(ABC):
    """Values by name, each with a version that every write changes.

    A version is never repeated, not even after its value was removed or has expired; otherwise a
    caller with the old value could overwrite the new one.

    Names are ASCII, at most 80 characters. Values are bytes: 0.3 KB for each key of an
    organization, and up to 8 KB for its windows.
    """

    io: IoMode
    """As :attr:`Store.io`, but not ``both``."""

    @abstractmethod
    async def get(self, name: str) -> tuple[bytes, int] | None:
        """Return the value and its version, or None without one."""

    @abstractmethod
    async def put_if(
        self, name: str, value: bytes | None, version: int | None, until: int | None
    ) -> bool:
        """Write a value atomically if its version is unchanged.

        Args:
            name: the name of the value.
            value: the new value; None removes it.
            version: the expected version; None: the name must have no value.
            until: the instant (microseconds) after which the value may be dropped; None: never.

        Returns:
            True if the value was written.
        """

    @abstractmethod
    async def names(self, prefix: str) -> list[str]:
        """Return every name with this prefix.

        Used by a census, a scan and the removal of old keys, once for each
        :data:`LOOKED_AT_AT_ONCE` names.
        """

    async def now(self) -> int:
        """Return the present in microseconds, by the server's clock if it has one (D27)."""
        return wall_clock()

    async def close(self) -> None:  # noqa: B027 - many stores hold no resources
        """Release connections and files. Idempotent."""


class Shelf:
    """The records of a store, and its indexes.

    Readers check each index entry against the record, so an entry of a process that died half-way
    is ignored.
    """

    def __init__(self, records: Records) -> None:
        self._records = records

    async def now(self) -> int:
        """Return the present in microseconds, by the clock of the records."""
        try:
            return await self._records.now()
        except Exception as failure:
            _reraise(failure)

    async def get(self, name: str) -> tuple[bytes, int] | None:
        """Return a value and its version."""
        try:
            return await self._records.get(name)
        except Exception as failure:
            _reraise(failure)

    async def _put_if(
        self, name: str, value: bytes | None, version: int | None, until: int | None
    ) -> bool:
        try:
            return await self._records.put_if(name, value, version, until)
        except Exception as failure:
            _reraise(failure)

    async def read(self, organization: str) -> Record:
        """Return the record of an organization."""
        return await self.read_named(record_name(organization), organization)

    async def read_named(self, name: str, organization: str | None = None) -> Record:
        """Return the record with this name."""
        kept = await self.get(name)
        with reading_state(organization, f"the record {name}"):
            return Record.read(None if kept is None else kept[0])

    async def change(
        self, organization: str, work: Callable[[Record, int], T], now: int | None
    ) -> T:
        """Change an organization's record, and repeat after each conflict."""
        return await self.change_named(record_name(organization), work, now, organization)

    async def change_named(
        self,
        name: str,
        work: Callable[[Record, int], T],
        now: int | None,
        organization: str | None = None,
    ) -> T:
        """Change the record with this name."""

        def step(value: bytes | None, at: int) -> tuple[T, bytes | None, int | None]:
            with reading_state(organization, f"the record {name}"):
                record = Record.read(value)
            answer = work(record, at)
            return answer, record.written(), record.until()

        return await self.swap(name, step, now)

    async def add(
        self, owner: HistoryOwner, addition: UsageHistory, batch: UsageBatch | None
    ) -> None:
        """Add to a usage history, which has a separate record: admissions do not read it."""
        until = (addition.last_day + KEPT_DAYS) * DAY

        def step(value: bytes | None, at: int) -> tuple[None, bytes | None, int]:
            marks, history = Record.read_history(value)
            after = marks if batch is None else marked(marks, batch.writer, batch.number, at)
            if after is not None:
                value = Record.write_history(after, added(history, addition))
            return None, value, max(until, at + KEPT_DAYS * DAY)

        await self.swap(_history_name(owner), step, None)

    async def history(self, owner: HistoryOwner) -> UsageHistory:
        """Return a usage history."""
        kept = await self.get(_history_name(owner))
        with reading_state(owner.organization, "its usage history"):
            return UsageHistory.decode(Record.read_history(kept and kept[0])[1])

    async def remove_history(self, owner: HistoryOwner) -> None:
        """Remove a usage history, if there is one."""
        await self.swap(_history_name(owner), lambda _, __: (None, None, None), None)

    async def swap(
        self,
        name: str,
        change: Change[T],
        now: int | None,
    ) -> T:
        """Change the value with this name, and repeat after each conflict."""
        for attempt in range(_TRIES):
            kept = await self.get(name)
            value, version = kept or (None, None)
            present = await self.now()
            at = present if now is None else now
            answer, after, until = change(value, at)
            # Expiry follows the clock of the records, even if the caller passes a time.
            lasts = None if until is None else until - at + present
            if after == value or await self._put_if(name, after, version, lasts):
                return answer
            pause = random.random() * min(_LONGEST_PAUSE, 0.0005 * attempt)  # noqa: S311 - no secret
            if self._records.io == "async":
                await asyncio.sleep(pause)
            else:
                sleep(pause)
        raise OutcomeUnknown(f"{_TRIES} others were faster to write {name}")

    async def claim(self, kind: str, handle: str, organization: str) -> None:
        """Claim a handle for an organization, before its record is written.

        A process may die between the two. A claim without a key or an account may be taken over
        after a minute, unless it was settled.

        Raises:
            HandleTaken: another claim has the handle.
        """
        name, now = _name(kind, handle), await self.now()
        value = Record.write_names([organization, str(now)])
        if await self._put_if(name, value, None, None):
            return
        kept = await self.get(name)
        if kept is not None:
            owner, *since = Record.read_names(kept[0])
            if not since or now - int(since[0]) < _CLAIM_LASTS:
                raise HandleTaken
            if (await self.read(owner)).has(handle):
                raise HandleTaken
        if not await self._put_if(name, value, kept and kept[1], None):
            raise HandleTaken

    async def settle(self, kind: str, handle: str, organization: str) -> None:
        """Keep the claim of a handle for ever: its row was written."""
        value = Record.write_names([organization])
        await self.swap(_name(kind, handle), lambda _, __: (None, value, None), 0)

    async def waive(self, kind: str, handle: str) -> None:
        """Release a claimed handle."""
        await self.swap(_name(kind, handle), lambda _, __: (None, None, None), 0)

    async def owner(self, kind: str, handle: str) -> str | None:
        """Return the organization that claimed a handle."""
        kept = await self.get(_name(kind, handle))
        return None if kept is None else Record.read_names(kept[0])[0]

    async def enter(self, kind: str, name: str, position: Position) -> None:
        """Set the entry of an organization in an index."""
        await self._index(kind, name, position.id, [position])

    async def leave(self, kind: str, name: str, organization: str) -> None:
        """Remove an organization from an index."""
        await self._index(kind, name, organization, [])

    async def _index(
        self, kind: str, name: str, organization: str, entries: list[Position]
    ) -> None:
        def step(value: bytes | None, _: int) -> tuple[None, bytes | None, int | None]:
            before = Record.read_positions(value)
            others = [entry for entry in before if entry.id != organization]
            after = sorted([*others, *entries])
            changed = value if after == before else Record.write_positions(after)
            return None, changed, None

        await self.swap(_name(kind, name), step, 0)

    async def entered(self, kind: str, name: str) -> list[Position]:
        """Return the entries of an index, in ascending order."""
        kept = await self.get(_name(kind, name))
        return Record.read_positions(None if kept is None else kept[0])

    async def some(self, cursor: str | None) -> tuple[list[str], str | None]:
        """Return the names of some records after ``cursor``, and the next cursor."""
        try:
            names = sorted(await self._records.names("org:"))
        except Exception as failure:
            _reraise(failure)
        start = 0 if cursor is None else bisect_right(names, cursor)
        some = names[start : start + LOOKED_AT_AT_ONCE]
        return some, some[-1] if start + LOOKED_AT_AT_ONCE < len(names) else None


def _reraise(failure: Exception) -> NoReturn:
    """Raise a :class:`StoreError` from a driver's exception.

    Python's own exceptions are raised unchanged: an ``OSError`` is an outage, any other a bug of
    the records (G7).
    """
    if isinstance(failure, StoreError) or type(failure).__module__ == "builtins":
        raise failure
    raise StoreError from failure


def record_name(organization: str) -> str:
    """Return the name of an organization's record."""
    return _name("org", organization)


def _history_name(owner: HistoryOwner) -> str:
    organization, handle = owner
    return _name("usage", f"{handle or ''} {organization}")  # No handle has a blank.


def _name(kind: str, id: str) -> str:
    """Return a name that any database accepts, for any id (D36)."""
    return f"{kind}:{sha256(id.encode('utf-8', 'surrogatepass')).hexdigest()}"
