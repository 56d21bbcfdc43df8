"""Counts of any number of owners in fixed memory, of which none can push another out.

A table that evicts owners forgets what they used: a flood of new owners resets the count of any of
them. :class:`HashedWindows` evicts none. Owners share cells by their hash, so an owner may show
more than it used, and never less (a count-min sketch). :class:`RecentOwners` remembers which owners
were seen, and may take a few others for them, never the reverse (a Bloom filter).
"""

from array import array
from typing import Final, TypeAlias

from .limit_windows import LimitWindows, begins_of
from .plans import LONGEST_SPAN
from .sliding_window import LARGEST, Reading, Window

_CELLS: Final = 1 << 16
"""Cells of each of the two rows. An owner has one in each row, and the smaller one is its count:
with twice as many other owners as cells, a limit of 5 is full for 1 of 360 unused owners."""
_PARTS: Final = 4
"""Into how many parts a span is divided. A part is counted until its end is a span old, so capacity
returns up to a quarter of the span late, never early."""
_FEW: Final = 4096
"""Cells in use from which on a part has all its cells, of 8 bytes: 5 MB for each window."""
_FEW_OWNERS: Final = 20_000
_BITS: Final = 1 << 24


class _FewCells(dict[int, int]):
    """The cells of a part of which most are zero."""

    def __missing__(self, cell: int) -> int:
        return 0


_Parts: TypeAlias = "dict[int, _FewCells | array[int]]"
"""The cells of a window, by the instant until which they are counted."""


class HashedWindows:
    """The windows of named limits of any number of owners.

    Callers hold a lock around every call.
    """

    def __init__(self) -> None:
        self._windows: dict[str, _Parts] = {}
        """By field."""

    def hit(self, owner: str, limits: LimitWindows, now: int, cost: int) -> Reading:
        """Admit a cost in all windows, or in none; return the reading.

        Args:
            owner: any text, which attackers cannot choose to have a certain hash.
            limits: the windows, in the periods of the instant.
            now: the instant, in microseconds.
            cost: units to add to each window.
        """
        reading = self.peek(owner, limits, now, cost)
        if not reading.allowed:
            for field, window in zip(limits.fields, limits.windows, strict=True):
                if field in self._windows:  # The clock may have stepped back.
                    self._windows[field] = self._present(field, window, now)
            return reading
        self.count(owner, limits, now, cost)
        return reading._replace(used=tuple([used + cost for used in reading.used]))

    def count(self, owner: str, limits: LimitWindows, now: int, cost: int) -> None:
        """Add a cost to all windows, whatever their limits; the arguments are those of a hit."""
        cells = _cells_of(owner)
        for field, window in zip(limits.fields, limits.windows, strict=True):
            until = _until(window, now)
            parts = self._windows.get(field)
            if parts is None or until not in parts or max(parts) > until:
                self._drop_ended(now)
                parts = self._windows[field] = self._present(field, window, now)
                parts.setdefault(until, _FewCells())
            part = parts[until]
            for cell in cells:
                part[cell] = min(part[cell] + cost, LARGEST)
            if isinstance(part, _FewCells) and len(part) > _FEW:
                whole = parts[until] = array("Q", bytes(2 * _CELLS * 8))
                for cell, count in part.items():
                    whole[cell] = count

    def peek(self, owner: str, limits: LimitWindows, now: int, cost: int = 1) -> Reading:
        """Return the reading that :meth:`hit` would give, without counting the cost.

        ``used`` is at most the limit, though other owners may have filled the cells beyond.
        """
        counts: list[int] = []
        refused_by, longest = None, 0
        cells = _cells_of(owner)
        for index, (field, window) in enumerate(zip(limits.fields, limits.windows, strict=True)):
            used, wait = _read(self._present(field, window, now), cells, window, now, cost)
            counts.append(used)
            if wait > longest:
                refused_by, longest = index, wait
        if refused_by is None:
            return Reading(True, now, tuple(counts), None, now, None, None, 0)
        left = max(0, (limits.windows[refused_by].limit or 0) - counts[refused_by])
        until = now + longest
        return Reading(False, now, tuple(counts), left, until, refused_by, refused_by, longest)

    def _present(self, field: str, window: Window, now: int) -> _Parts:
        """Return the parts of a window that count."""
        parts = self._windows.get(field)
        if not parts:
            return {}
        ahead = max(parts) - _until(window, now)
        if ahead <= 0 and min(parts) > now:
            return parts
        # Where the clock stepped back, they are counted for a span from here at most.
        back = max(ahead, 0)
        return {until - back: part for until, part in parts.items() if until - back > now}

    def _drop_ended(self, now: int) -> None:
        """Drop the windows that count nothing, such as those of past periods."""
        for field, parts in [*self._windows.items()]:
            if all(until <= now for until in parts):
                del self._windows[field]


def _until(window: Window, now: int) -> int:
    """Return the instant until which a hit of now is counted."""
    begins = begins_of(window)
    if begins is not None:
        return begins + window.span
    length = -(-window.span // _PARTS)
    return (now // length + 1) * length + window.span


def _cells_of(owner: str) -> tuple[int, int]:
    number = hash(owner)
    return number % _CELLS, _CELLS + (number >> 32) % _CELLS


def _read(
    parts: _Parts, cells: tuple[int, int], window: Window, now: int, cost: int
) -> tuple[int, int]:
    """Return the units counted, and the wait for the cost; 0 if it fits."""
    one, other = cells
    first = second = 0
    for part in parts.values():
        first += part[one]
        second += part[other]
    used, limit = min(first, second), window.limit
    if limit is None or used + cost <= limit:
        return used, 0
    for until in sorted(parts):
        first -= parts[until][one]
        second -= parts[until][other]
        if min(first, second) + cost <= limit:
            return min(used, limit), until - now
    return min(used, limit), window.span  # The cost is above the limit.


class RecentOwners:
    """The owners of the last :data:`~lockgate.core.plans.LONGEST_SPAN`, and some of twice that.

    Takes 1 owner in 7,000 for one of them when there are 480,000, in 4 MB.
    """

    def __init__(self) -> None:
        self._present: set[int] | _Bloom = set()
        self._past: set[int] | _Bloom = set()
        self._present_since = 0

    def __contains__(self, owner: int) -> bool:
        return owner in self._present or owner in self._past

    def renew(self, owner: int, now: int) -> bool:
        """Return whether the hash of an owner is contained; if so, keep it for another span."""
        if 0 <= now - self._present_since < LONGEST_SPAN and owner in self._present:
            return True
        if owner not in self:
            return False
        self.add(owner, now)
        return True

    def add(self, owner: int, now: int) -> None:
        """Add the hash of an owner at an instant, in microseconds."""
        idle = now - self._present_since
        if idle >= LONGEST_SPAN:
            self._past = self._present if idle < 2 * LONGEST_SPAN else set()
            self._present, self._present_since = set(), now
        elif idle < 0:  # The clock stepped back: an owner is forgotten later, never sooner.
            self._present_since = now
        present = self._present
        present.add(owner)
        if isinstance(present, set) and len(present) > _FEW_OWNERS:
            self._present = _Bloom()
            for one in present:
                self._present.add(one)


class _Bloom:
    """A set of hashes that may contain others."""

    __slots__ = ("_bits",)

    def __init__(self) -> None:
        self._bits = bytearray(_BITS // 8)

    def __contains__(self, owner: int) -> bool:
        bits = self._bits
        return all(bits[place >> 3] >> (place & 7) & 1 for place in _places_of(owner))

    def add(self, owner: int) -> None:
        for place in _places_of(owner):
            self._bits[place >> 3] |= 1 << (place & 7)


def _places_of(owner: int) -> tuple[int, ...]:
    step = owner >> 32 | 1
    return tuple([(owner + number * step) % _BITS for number in range(4)])
