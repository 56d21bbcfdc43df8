"""Usage over time: the units that a key or an organization used, and how often it was refused.

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
:data:`LIMITS_AT_MOST` limits at a time; those of further limits are counted together. A history
without such refusals keeps no names.
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
BYTES_AT_MOST: Final = 17 * 1024
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
_FORMAT, _WITH_LIMITS = 1, 2
"""Of histories without and with the names of limits."""
_HEAD: Final = Struct("<B3H")
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

    __slots__ = ("_levels", "_limits", "address", "error")

    def __init__(self) -> None:
        # By level, numbers by entry: the index of a cell, followed by five bits for the kind.
        self._levels: tuple[dict[int, int], ...] = ({}, {}, {})
        self._limits: dict[str, int] = {}
        """The kinds of refusals by named limits, by the name of the limit."""
        self.address: Last | None = None
        self.error: Last | None = None

    def admit(self, at: int, units: int) -> None:
        """Add admitted units at an instant."""
        self._add(at, _ADMITTED, units)

    def refuse(self, at: int, kind: str, number: int = 1) -> None:
        """Add refused requests at an instant, by full window, :func:`kind_of_limit` or code."""
        self._add(at, self._number(kind), number)

    def seen(self, address: str, at: int) -> None:
        """Note a client address."""
        self.address = _later(self.address, Last(_plain(address), at))

    def failed(self, code: str, at: int) -> None:
        """Note the code of a refusal."""
        self.error = _later(self.error, Last(_plain(code), at))

    def _add(self, at: int, kind: int, number: int) -> None:
        for (span, _, _), entries in zip(LEVELS.values(), self._levels, strict=True):
            entry = min(max(at // span, 0), _LAST_INDEX) << _BITS | kind
            entries[entry] = min(entries.get(entry, 0) + number, _LARGEST)

    def _number(self, kind: str) -> int:
        """Return the number of a kind of refusals; a limit gets one that is free."""
        if not kind.startswith(_OF_LIMIT):
            return _NUMBERS.get(kind, _OTHER)
        name = kind.removeprefix(_OF_LIMIT)
        if name not in self._limits:
            taken = self._limits.values()
            free = next((slot for slot in _SLOTS if slot not in taken), None)
            if free is None:
                return _NUMBERS["limit"]
            self._limits[name] = free
        return self._limits[name]

    def merge(self, other: "UsageHistory") -> None:
        """Add all of another history to this one, and drop what exceeds the levels."""
        mine = {slot: self._number(kind_of_limit(name)) for name, slot in other._limits.items()}
        for level, entries, more in zip(LEVELS.values(), self._levels, other._levels, strict=True):
            before = len(entries)
            for entry, number in _renumbered(more, mine) if mine else more.items():
                entries[entry] = min(entries.get(entry, 0) + number, _LARGEST)
            if len(entries) > before:
                _trim(level, entries)
        if self._limits:
            used = {entry & _OTHER for entries in self._levels for entry in entries}
            self._limits = {name: slot for name, slot in self._limits.items() if slot in used}
        self.address = _later(self.address, other.address)
        self.error = _later(self.error, other.error)

    def cells(self, by: By, now: int) -> tuple[Cell, ...]:
        """Return the cells of a level that are not empty, oldest first.

        The newest that can be returned is the cell of ``now``; a clock that stepped back may have
        left cells after it.
        """
        level, newest = LEVELS[by], now // LEVELS[by].span
        entries = self._levels[list(LEVELS).index(by)]
        names = {**_NAMES, **{slot: kind_of_limit(name) for name, slot in self._limits.items()}}
        admitted: dict[int, int] = {}
        refused: dict[int, dict[str, int]] = {}
        for entry, number in sorted(entries.items()):
            index, kind = entry >> _BITS, entry & _OTHER
            if not newest - level.cells < index <= newest:
                continue
            admitted.setdefault(index, 0)
            if kind == _ADMITTED:
                admitted[index] = number
            else:
                name = names.get(kind, OTHER)  # A later release may have more.
                mine = refused.setdefault(index, {})
                mine[name] = mine.get(name, 0) + number
        return tuple(
            Cell(index * level.span, units, refused.get(index, {}))
            for index, units in admitted.items()
        )

    @property
    def last_day(self) -> int:
        """The last day with an increment, counted from the Unix epoch; 0 for an empty history."""
        return max(self._levels[-1], default=0) >> _BITS

    @property
    def is_empty(self) -> bool:
        """Whether nothing was added to it."""
        return not self._levels[0]

    def encode(self) -> bytes:
        """Return the history as bytes: at most :data:`BYTES_AT_MOST` after :meth:`merge`."""
        texts: list[object] = [self.address, self.error]
        if self._limits:
            texts.append(self._limits)
        format = _WITH_LIMITS if self._limits else _FORMAT
        parts = [_HEAD.pack(format, *map(len, self._levels))]
        for entries in self._levels:
            order = sorted(entries)
            parts.append(pack(f"<{len(order)}I", *order))
            parts.append(pack(f"<{len(order)}Q", *map(entries.__getitem__, order)))
        parts.append(json.dumps(texts).encode())
        return b"".join(parts)

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
        format, *lengths = _HEAD.unpack_from(value)
        if format not in (_FORMAT, _WITH_LIMITS):
            raise ValueError(
                f"A usage history has format {format}; this release reads {_FORMAT} and "
                f"{_WITH_LIMITS}."
            )
        at, levels = _HEAD.size, list[dict[int, int]]()
        for length in lengths:
            entries = unpack_from(f"<{length}I", value, at)
            numbers = unpack_from(f"<{length}Q", value, at + 4 * length)
            levels.append(dict(zip(entries, numbers, strict=True)))
            at += 12 * length
        history._levels = tuple(levels)
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
    if value and value[0] > _WITH_LIMITS:
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


def _renumbered(entries: Mapping[int, int], kinds: Mapping[int, int]) -> Iterator[tuple[int, int]]:
    """Yield entries with other numbers for some kinds, which may make two of them equal."""
    for entry, number in entries.items():
        kind = entry & _OTHER
        yield entry - kind + kinds.get(kind, kind), number


def _trim(level: Level, entries: dict[int, int]) -> None:
    """Drop all but the newest cells of a level, then join refusals of the oldest while there are
    too many numbers."""
    if len(entries) <= level.cells:
        return
    indexes = sorted({entry >> _BITS for entry in entries})
    if len(indexes) > level.cells:
        first = indexes[-level.cells] << _BITS
        for entry in [entry for entry in entries if entry < first]:
            del entries[entry]
        indexes = indexes[-level.cells :]
    if len(entries) <= level.entries:
        return
    kinds: dict[int, list[int]] = {}
    for entry in entries:
        if entry & _OTHER != _ADMITTED:
            kinds.setdefault(entry >> _BITS, []).append(entry)
    for index in indexes:
        refusals = kinds.get(index, ())
        if len(refusals) > 1:
            total = sum(entries.pop(entry) for entry in refusals)
            entries[index << _BITS | _OTHER] = min(total, _LARGEST)
            if len(entries) <= level.entries:
                return
