"""The keys of the memory store."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from sys import byteorder
from typing import Final

from ...core.api_keys import NEVER, ApiKey, KeyDetails, Position

Row = tuple[
    str, str, str, str, str, tuple[str, ...], str, bytes, str | None, int, int | None, int | None,
    KeyDetails | None,
]  # fmt: skip
"""An :class:`ApiKey` up to ``details``: a plain tuple, which the collector does not track."""

_BYTES: Final = 8
_SortKey = Callable[[int], tuple[int, str]]


class LocalKeys:
    """A table of keys and its indexes. Callers hold a lock around every call.

    Keys are numbered in order of insertion. An index is a sorted ``bytearray`` of numbers, searched
    by bisection: eight bytes per key, which the garbage collector does not track. A list reads the
    rows that it returns and about twenty others.
    """

    def __init__(self) -> None:
        self.rows: Final[dict[str, Row]] = {}
        self.requests: Final[dict[str, int]] = {}
        self.last_used: Final[dict[str, int]] = {}
        self.removed: Final[dict[str, None]] = {}
        """Handles of removed keys, which stay taken."""
        self.handles_by_id: Final[dict[str, str]] = {}
        self._handles: dict[int, str] = {}
        self._next = 0
        self._by_creation: dict[str, bytearray] = {}
        """By organization, all keys: newest first, then by id."""
        self._unrevoked: dict[str, bytearray] = {}
        """By organization, keys that are not revoked, by ``ends_at``, then by id."""
        self._revoked: dict[str, bytearray] = {}
        """By organization, revoked keys, by ``ends_at``, then by id."""

    def is_taken(self, handle: str) -> bool:
        """Return whether a key has this handle or had it."""
        return handle in self.rows or handle in self.removed

    def key(self, handle: str) -> ApiKey:
        """Return the key with this handle, which must exist."""
        return ApiKey(*self.rows[handle], self.requests.get(handle, 0), self.last_used.get(handle))

    def owned(self, organization: str, id: str) -> ApiKey | None:
        """Return the key with this id if it belongs to the organization."""
        handle = self.handles_by_id.get(id)
        key = None if handle is None else self.key(handle)
        return key if key is not None and key.organization == organization else None

    def insert(self, key: ApiKey) -> None:
        """Insert a key with a free handle and id."""
        self.rows[key.handle] = key[:13]
        self.handles_by_id[key.id] = key.handle
        number, self._next = self._next, self._next + 1
        self._handles[number] = key.handle
        if key.request_count:
            self.requests[key.handle] = key.request_count
        if key.last_used_at is not None:
            self.last_used[key.handle] = key.last_used_at
        created = self._by_creation.setdefault(key.organization, bytearray())
        _enter(created, number, self._creation)
        _enter(self._by_end(key), number, self._end)

    def replace(self, old: ApiKey, new: ApiKey) -> None:
        """Replace a key of this table by another version of it."""
        number = _leave(self._by_end(old), (old.ends_at, old.id), self._end)
        self.rows[old.handle] = new[:13]
        _enter(self._by_end(new), number, self._end)

    def remove(self, key: ApiKey) -> None:
        """Remove a key of this table, and its usage; its handle stays taken."""
        owner, handle = key.organization, key.handle
        number = _leave(self._by_end(key), (key.ends_at, key.id), self._end)
        _leave(self._by_creation[owner], (-key.created_at, key.id), self._creation)
        if not self._by_creation[owner]:
            del self._by_creation[owner]
            self._unrevoked.pop(owner, None)
            self._revoked.pop(owner, None)
        del self.rows[handle], self.handles_by_id[key.id], self._handles[number]
        self.requests.pop(handle, None)
        self.last_used.pop(handle, None)
        self.removed[handle] = None

    def _by_end(self, key: ApiKey) -> bytearray:
        """Return the index by ``ends_at`` that has a key."""
        index = self._unrevoked if key.revoked_at is None else self._revoked
        return index.setdefault(key.organization, bytearray())

    def newest(self, organization: str, limit: int, after: Position | None) -> list[ApiKey]:
        """Return keys, newest first, then by id."""
        order = self._by_creation.get(organization, _NONE)
        start = 0
        if after is not None:
            with memoryview(order).cast("q") as numbers:
                place = -after.instant, after.id
                start = bisect_right(numbers, place, key=self._creation)
        return self._read(_slice(order, start, start + limit))

    def unrevoked(self, organization: str, limit: int, after: Position | None) -> list[ApiKey]:
        """Return keys that are not revoked, the latest end first, then by descending id."""
        order = self._unrevoked.get(organization, _NONE)
        with memoryview(order).cast("q") as numbers:
            end = len(numbers)
            if after is not None:
                end = bisect_left(numbers, tuple(after), key=self._end)
        return self._read(_slice(order, max(0, end - limit), end)[::-1])

    def live(self, organization: str, now: int) -> list[ApiKey]:
        """Return all live keys of an organization."""
        return self._read(self._live_numbers(organization, now))

    def count_live(self, organization: str, now: int) -> int:
        """Count the live keys of an organization."""
        return len(self._live_numbers(organization, now))

    def ended(self, organization: str, until: int, limit: int) -> list[ApiKey]:
        """Return up to ``limit`` keys of an organization that ended by an instant."""
        due: list[int] = []
        for index in (self._unrevoked, self._revoked):
            order = index.get(organization, _NONE)
            with memoryview(order).cast("q") as numbers:
                end = bisect_right(numbers, until, key=self._ends_at)
            due += _slice(order, 0, min(end, limit))
        return self._read(due[:limit])

    def owners_of_ended(self, until: int, start: int, limit: int) -> tuple[set[str], int | None]:
        """Return the organizations of keys that ended by an instant, of up to ``limit`` keys by
        their numbers, and the next number; None after the last."""
        end = start + limit
        handles = (self._handles.get(number) for number in range(start, min(end, self._next)))
        rows = (self.rows[handle] for handle in handles if handle is not None)
        return {row[2] for row in rows if _ends_at(row) <= until}, self._following(end)

    def all(self, organization: str) -> list[ApiKey]:
        """Return all keys of an organization, newest first."""
        order = self._by_creation.get(organization, _NONE)
        return self._read(_slice(order, 0, len(order) // _BYTES))

    def numbered(
        self, start: int, steps: int, limit: int, which: Callable[[ApiKey], bool] = lambda _: True
    ) -> tuple[list[ApiKey], int | None]:
        """Return up to ``limit`` keys that fulfil a condition, of ``steps`` keys by their numbers,
        and the next number; None after the last."""
        found: list[ApiKey] = []
        for number in range(start, min(start + steps, self._next)):
            handle = self._handles.get(number)
            if handle is not None and which(key := self.key(handle)):
                found.append(key)
                if len(found) == limit:
                    return found, self._following(number + 1)
        return found, self._following(start + steps)

    def _following(self, number: int) -> int | None:
        return number if number < self._next else None

    def organizations(self) -> Iterable[str]:
        """Return the organizations that have keys, in any order."""
        return self._by_creation

    def live_usage(self, organization: str, now: int) -> tuple[int, int | None]:
        """Return the number of live keys and the instant of their latest use."""
        handles = [self._handles[number] for number in self._live_numbers(organization, now)]
        used = (self.last_used[handle] for handle in handles if handle in self.last_used)
        return len(handles), max(used, default=None)

    def _live_numbers(self, organization: str, now: int) -> list[int]:
        order = self._unrevoked.get(organization, _NONE)
        with memoryview(order).cast("q") as numbers:
            start = bisect_right(numbers, now, key=self._ends_at)
        return _slice(order, start, len(order) // _BYTES)

    def _read(self, numbers: list[int]) -> list[ApiKey]:
        return [self.key(self._handles[number]) for number in numbers]

    def _creation(self, number: int) -> tuple[int, str]:
        row = self.rows[self._handles[number]]
        return -row[9], row[0]

    def _end(self, number: int) -> tuple[int, str]:
        row = self.rows[self._handles[number]]
        return _ends_at(row), row[0]

    def _ends_at(self, number: int) -> int:
        return _ends_at(self.rows[self._handles[number]])


_NONE: Final = bytearray()


def _ends_at(row: Row) -> int:
    expires, revoked = row[10], row[11]
    return min(NEVER if expires is None else expires, NEVER if revoked is None else revoked)


def _slice(order: bytearray, start: int, end: int) -> list[int]:
    with memoryview(order).cast("q") as numbers:
        return numbers[start:end].tolist()


def _enter(order: bytearray, number: int, sort_key: _SortKey) -> None:
    """Insert a number into an index."""
    with memoryview(order).cast("q") as numbers:
        at = bisect_left(numbers, sort_key(number), key=sort_key) * _BYTES
    order[at:at] = number.to_bytes(_BYTES, byteorder)


def _leave(order: bytearray, place: tuple[int, str], sort_key: _SortKey) -> int:
    """Remove the number at a place from an index, and return it."""
    with memoryview(order).cast("q") as numbers:
        at = bisect_left(numbers, place, key=sort_key)
        number = numbers[at]
    del order[at * _BYTES : (at + 1) * _BYTES]
    return number
