"""Usage over time: the units that a key or an organization used, and how often it was refused.

Units are told for the plan, and for each named limit: those that requests cost and those that holds
were settled with.

A history has three levels: cells of a minute for an hour, of an hour for a week, of a day for 400
days. Each increment enters all three, in the cell of its instant, so no step has to roll minutes up
into hours.

A level keeps its newest cells by the time that they stand for, whatever the order of increments. So
a clock that steps back loses nothing, and one that steps ahead by years costs as many old cells as
it made new ones, instead of all. Cells outside of the level's span are kept and not shown.

A history has at most :data:`BYTES_AT_MOST` bytes. In a level with too many different refusals the
oldest cells keep their number only (:data:`OTHER`). Admitted units and the total number of refusals
are always exact.

Refusals by a named limit, or by its budget for holds, are told by the name of the limit, for up to
:data:`LIMITS_AT_MOST` limits at a time; those of further limits are counted together. Units of
further limits are not kept, since units of two limits have no sum. The units of named limits have
as much room as all else in a level: with three limits and more, a level keeps fewer of their cells.
A history without named limits keeps no names.
"""

import json
from collections.abc import Iterator, Mapping
from struct import Struct, pack, unpack_from
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, Self, cast

from .timestamps import DAY, HOUR, MINUTE

By = Literal["minute", "hour", "day"]
"""The level of a history: the span of its cells."""


class Level(NamedTuple):
    """The cells of one span."""

    span: int
    """Length of a cell, in microseconds."""
    cells: int
    """The most cells."""
    entries: int
    """The most numbers in these cells: at least two for each."""


LEVELS: Final[Mapping[By, Level]] = MappingProxyType(
    {
        "minute": Level(MINUTE, 60, 156),
        "hour": Level(HOUR, 7 * 24, 360),
        "day": Level(DAY, 400, 820),
    }
)
BYTES_AT_MOST: Final = 33 * 1024
"""Half of it for the units of named limits."""
LIMITS_AT_MOST: Final = 14
KEPT_DAYS: Final = 401
"""Days after its last one for which a history is kept: from then on it shows nothing."""

_KINDS: Final = (
    *("minute", "hour", "day", "concurrent"),
    *("INSUFFICIENT_SCOPE", "KEY_REVOKED", "KEY_EXPIRED", "METHOD_NOT_ALLOWED", "NOT_FOUND"),
    "limit",
)
"""Refusals with a number of their own, which is stored: full windows, then codes. Append only."""
OTHER: Final = "other"
"""Stands for every other refusal."""
_STATUSES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("minute", "hour", "day", "concurrent", "limit"), "429"),
    **dict.fromkeys(("KEY_REVOKED", "KEY_EXPIRED"), "401"),
    "INSUFFICIENT_SCOPE": "403",
    "NOT_FOUND": "404",
    "METHOD_NOT_ALLOWED": "405",
}
"""The status of each kind of refusal; the others are not known by status."""

_OF_LIMIT: Final = "limit:"
_ADMITTED, _OTHER = 0, 31
_SLOTS: Final = range(_OTHER - 1, _OTHER - 1 - LIMITS_AT_MOST, -1)
"""The numbers of refusals by named limits. Which name has which is part of each history."""
_BITS: Final = 5
_NUMBERS: Final = {name: number for number, name in enumerate(_KINDS, 1)}
_NAMES: Final = {**{number: name for name, number in _NUMBERS.items()}, _OTHER: OTHER}
_LAST_INDEX: Final = 2**27 - 1
"""The minute up to which entries have 32 bits, in the year 2225."""
_LARGEST: Final = 2**63 - 1
_FORMAT, _WITH_LIMITS, _WITH_UNITS = 1, 2, 3
"""Of histories without the names of limits, with them, and with units of them."""
_LENGTHS: Final = Struct("<3H")
_TEXT_AT_MOST: Final = 64


class Cell(NamedTuple):
    """One cell of a history."""

    start: int
    """Its first instant, in microseconds."""
    admitted: int
    """Admitted units: the costs of the requests."""
    refused: Mapping[str, int]
    """Refused requests by the full window (``minute``, ``hour``, ``day``, ``limit:NAME`` of a
    named limit, ``limit`` of further ones, or ``concurrent`` for jobs), else by error code, else
    :data:`OTHER`."""
    used: Mapping[str, int] = MappingProxyType({})
    """Units of named limits by the limit's name: the costs of admitted requests, and what holds
    were settled with."""


def kind_of_limit(name: str) -> str:
    """Return the kind of the refusals by a named limit, or by its budget for holds."""
    return f"{_OF_LIMIT}{name}"


def by_status(refused: Mapping[str, int]) -> dict[str, int]:
    """Return refusals by the status that they got, such as ``429``; else by :data:`OTHER`.

    Args:
        refused: the numbers by kind, as in :attr:`Cell.refused`.
    """
    found: dict[str, int] = {}
    for kind, number in refused.items():
        status = _STATUSES.get(kind.partition(":")[0], OTHER)
        found[status] = found.get(status, 0) + number
    return dict(sorted(found.items()))


class Last(NamedTuple):
    """The latest text of a kind, such as an address, and its instant in microseconds."""

    text: str
    at: int


class UsageHistory:
    """The usage over time of one key or organization, or an addition to it.

    Attributes:
        address: the latest client address, if addresses are recorded.
        error: the code of the latest refusal.
    """

    __slots__ = ("_levels", "_limits", "_used", "address", "error")

    def __init__(self) -> None:
        # By level, numbers by entry: the index of a cell, followed by five bits for the kind.
        self._levels: tuple[dict[int, int], ...] = ({}, {}, {})
        self._used: tuple[dict[int, int], ...] = ({}, {}, {})
        """The same for units of named limits."""
        self._limits: dict[str, int] = {}
        """The kinds of named limits, by the name of the limit."""
        self.address: Last | None = None
        self.error: Last | None = None

    def admit(self, at: int, units: int) -> None:
        """Add admitted units at an instant."""
        _add(self._levels, at, _ADMITTED, units)

    def use(self, at: int, limit: str, units: int) -> None:
        """Add units of a named limit at an instant, unless there are too many limits."""
        slot = self._slot(limit)
        if slot is not None:
            _add(self._used, at, slot, units)

    def refuse(self, at: int, kind: str, number: int = 1) -> None:
        """Add refused requests at an instant, by full window, :func:`kind_of_limit` or code."""
        _add(self._levels, at, self._number(kind), number)

    def seen(self, address: str, at: int) -> None:
        """Note a client address."""
        self.address = _later(self.address, Last(_plain(address), at))

    def failed(self, code: str, at: int) -> None:
        """Note the code of a refusal."""
        self.error = _later(self.error, Last(_plain(code), at))

    def _number(self, kind: str) -> int:
        """Return the number of a kind of refusals."""
        if not kind.startswith(_OF_LIMIT):
            return _NUMBERS.get(kind, _OTHER)
        slot = self._slot(kind.removeprefix(_OF_LIMIT))
        return _NUMBERS["limit"] if slot is None else slot

    def _slot(self, limit: str) -> int | None:
        """Return the kind of a named limit, one that is free if it has none; None: none is free."""
        if limit not in self._limits:
            taken = self._limits.values()
            free = next((slot for slot in _SLOTS if slot not in taken), None)
            if free is None:
                return None
            self._limits[limit] = free
        return self._limits[limit]

    def merge(self, other: "UsageHistory") -> None:
        """Add all of another history to this one, and drop what exceeds the levels."""
        slots = {theirs: self._slot(name) for name, theirs in other._limits.items()}
        kinds = {one: _NUMBERS["limit"] if mine is None else mine for one, mine in slots.items()}
        for level, entries, more in zip(LEVELS.values(), self._levels, other._levels, strict=True):
            if _join(entries, more, kinds) and len(entries) > level.cells:
                _trim(entries, level.cells)
                _join_refusals(entries, level.entries)
        for level, entries, more in zip(LEVELS.values(), self._used, other._used, strict=True):
            if _join(entries, more, slots):
                _trim(entries, min(level.cells, level.entries // len(self._limits)))
        if self._limits:
            used = {entry & _OTHER for level in self._levels + self._used for entry in level}
            self._limits = {name: slot for name, slot in self._limits.items() if slot in used}
        self.address = _later(self.address, other.address)
        self.error = _later(self.error, other.error)

    def cells(self, by: By, now: int) -> tuple[Cell, ...]:
        """Return the cells of a level that are not empty, oldest first.

        The newest that can be returned is the cell of ``now``; a clock that stepped back may have
        left cells after it.
        """
        level, newest, place = LEVELS[by], now // LEVELS[by].span, list(LEVELS).index(by)
        limits = {slot: name for name, slot in self._limits.items()}
        names = {**_NAMES, **{slot: kind_of_limit(name) for slot, name in limits.items()}}
        admitted: dict[int, int] = {}
        refused: dict[int, dict[str, int]] = {}
        used: dict[int, dict[str, int]] = {}
        for index, kind, number in _newest(self._levels[place], level, newest):
            if kind == _ADMITTED:
                admitted[index] = number
            else:
                name = names.get(kind, OTHER)  # A later release may have more.
                mine = refused.setdefault(index, {})
                mine[name] = mine.get(name, 0) + number
        for index, kind, number in _newest(self._used[place], level, newest):
            used.setdefault(index, {})[limits[kind]] = number
        return tuple(
            Cell(
                index * level.span,
                admitted.get(index, 0),
                refused.get(index, {}),
                used.get(index, {}),
            )
            for index in sorted({*admitted, *refused, *used})
        )

    @property
    def last_day(self) -> int:
        """The last day with an increment, counted from the Unix epoch; 0 for an empty history."""
        return max(*self._levels[-1], *self._used[-1], 0, 0) >> _BITS

    @property
    def is_empty(self) -> bool:
        """Whether nothing was added to it."""
        return not (self._levels[0] or self._used[0])

    def encode(self) -> bytes:
        """Return the history as bytes: at most :data:`BYTES_AT_MOST` after :meth:`merge`."""
        texts: list[object] = [self.address, self.error]
        format, parts = _FORMAT, _encoded(self._levels)
        if self._limits:
            format = _WITH_LIMITS
            texts.append(self._limits)
        if self._used[-1]:
            format = _WITH_UNITS
            parts += _encoded(self._used)
        return b"".join((bytes((format,)), *parts, json.dumps(texts).encode()))

    @classmethod
    def decode(cls, value: bytes | None) -> Self:
        """Decode the bytes of :meth:`encode`; None gives an empty history.

        Raises:
            ValueError, TypeError, LookupError, struct.error: the bytes are damaged, or of a later
                release.
        """
        history = cls()
        if value is None:
            return history
        format, at = value[0], 1
        if not _FORMAT <= format <= _WITH_UNITS:
            raise ValueError(
                f"A usage history has format {format}; this release reads up to {_WITH_UNITS}."
            )
        history._levels, at = _decoded(value, at)
        if format == _WITH_UNITS:
            history._used, at = _decoded(value, at)
        address, error, *limits = cast(list[Any], json.loads(value[at:]))
        for names in limits:
            history._limits = names
        history.address = None if address is None else Last(*address)
        history.error = None if error is None else Last(*error)
        return history


def added(value: bytes | None, addition: UsageHistory) -> bytes:
    """Return an encoded history with another one added: what a store writes, atomically.

    Damaged bytes are replaced. Those of a later release are returned unchanged, so that a release
    that was rolled back leaves them alone.
    """
    if value and value[0] > _WITH_UNITS:
        return value
    try:
        history = UsageHistory.decode(value)
    except Exception:  # Whatever the decoders raise: history is no reason to fail.
        history = UsageHistory()
    history.merge(addition)
    return history.encode()


def _later(one: Last | None, other: Last | None) -> Last | None:
    """Return the later of two; of one instant the greater text, so that the order is irrelevant."""
    if one is None or other is None:
        return one or other
    return max(one, other, key=lambda last: (last.at, last.text))


def _plain(text: str) -> str:
    """Return a text of at most 64 printable ASCII characters, which bounds its encoding."""
    return "".join(c if " " <= c <= "~" else "?" for c in text[:_TEXT_AT_MOST])


_Levels = tuple[dict[int, int], ...]


def _add(levels: _Levels, at: int, kind: int, number: int) -> None:
    """Add a number to the cell of an instant in each level."""
    for (span, _, _), entries in zip(LEVELS.values(), levels, strict=True):
        entry = min(max(at // span, 0), _LAST_INDEX) << _BITS | kind
        entries[entry] = min(entries.get(entry, 0) + number, _LARGEST)


def _join(entries: dict[int, int], more: dict[int, int], kinds: Mapping[int, int | None]) -> bool:
    """Add entries to others, with other numbers for some kinds, or without these kinds; return
    whether there are more entries now."""
    before = len(entries)
    for entry, number in more.items():
        kind = entry & _OTHER
        mine = kinds.get(kind, kind)
        if mine is not None:
            joined = entry - kind + mine
            entries[joined] = min(entries.get(joined, 0) + number, _LARGEST)
    return len(entries) > before


def _trim(entries: dict[int, int], cells: int) -> None:
    """Drop all but the newest cells."""
    if len(entries) <= cells:
        return
    indexes = sorted({entry >> _BITS for entry in entries})
    if len(indexes) > cells:
        first = indexes[-cells] << _BITS
        for entry in [entry for entry in entries if entry < first]:
            del entries[entry]


def _join_refusals(entries: dict[int, int], most: int) -> None:
    """Join the refusals of the oldest cells while there are too many numbers."""
    if len(entries) <= most:
        return
    kinds: dict[int, list[int]] = {}
    for entry in entries:
        if entry & _OTHER != _ADMITTED:
            kinds.setdefault(entry >> _BITS, []).append(entry)
    for index, refusals in sorted(kinds.items()):
        if len(refusals) > 1:
            total = sum(entries.pop(entry) for entry in refusals)
            entries[index << _BITS | _OTHER] = min(total, _LARGEST)
            if len(entries) <= most:
                return


def _newest(entries: dict[int, int], level: Level, newest: int) -> Iterator[tuple[int, int, int]]:
    """Yield the entries of a level's span up to a cell, oldest first: cell, kind and number."""
    for entry, number in sorted(entries.items()):
        index = entry >> _BITS
        if newest - level.cells < index <= newest:
            yield index, entry & _OTHER, number


def _encoded(levels: _Levels) -> list[bytes]:
    parts = [_LENGTHS.pack(*map(len, levels))]
    for entries in levels:
        order = sorted(entries)
        parts.append(pack(f"<{len(order)}I", *order))
        parts.append(pack(f"<{len(order)}Q", *map(entries.__getitem__, order)))
    return parts


def _decoded(value: bytes, at: int) -> tuple[_Levels, int]:
    """Return the levels that begin at a place, and the place behind them."""
    lengths = _LENGTHS.unpack_from(value, at)
    at += _LENGTHS.size
    levels: list[dict[int, int]] = []
    for length in lengths:
        entries = unpack_from(f"<{length}I", value, at)
        numbers = unpack_from(f"<{length}Q", value, at + 4 * length)
        levels.append(dict(zip(entries, numbers, strict=True)))
        at += 12 * length
    return tuple(levels), at
