"""Encode a request and its plan for ``admit.lua`` and ``hit.lua``, and decode their answers."""

from collections.abc import Callable, Iterable
from functools import lru_cache
from hashlib import blake2b
from math import ceil, inf
from struct import Struct
from typing import Any, Final, NamedTuple, cast

from ...core.plans import LARGEST
from ...core.sliding_window import Reading, Window
from ...core.timestamps import MILLISECOND
from ...errors import ConfigurationError
from .transport.commands import request_ids

ADMITTED, LIMITED, EXPIRED = range(1, 4)
"""What ``sliding_window.lua`` and ``admit.lua`` say first."""
_LONGEST_SPAN: Final = 2**40 - 1
_PART: Final = 60
_WINDOW: Final = Struct("<ddd")
_REQUEST: Final = Struct("<ddd8sQd")
_REQUEST_AND_END: Final = Struct(f"{_REQUEST.format}2s")

# A NamedTuple's own constructor takes three times as long.
_made = cast(Callable[[type[Reading], Iterable[object]], Reading], tuple.__new__)  # pyright: ignore[reportUnknownMemberType] - typeshed's own Self


def _by_size() -> dict[int, Callable[[bytes], tuple[Any, ...]]]:
    """How to unpack a reading of any number of windows, and the usage that comes after it."""
    forms = [Struct(f"<Bqqqbbqq{'q32x' * number}qq") for number in range(32)]
    return {form.size: form.unpack for form in forms}


_ADMISSIONS: Final = _by_size()
NO_USAGE: Final = bytes(16)


class Charging(NamedTuple):
    """The windows of a plan as ``sliding_window.lua`` takes them, without the request."""

    start: bytes
    """An unfinished argument: the windows, and how long their state is kept."""
    mark: bytes
    """What no other plan has."""


@lru_cache(1024)
def charging(windows: tuple[Window, ...]) -> Charging:
    """How to charge the windows of a plan.

    Raises:
        ConfigurationError: one of them is longer than Redis can keep.
    """
    if any(window.span > _LONGEST_SPAN for window in windows):
        raise ConfigurationError("A window in Redis is at most 12 days long.")
    # A part of a window more, in which a shared cell may live on (D21); and the smallest grain,
    # for so long a hit may come to join a cell without prolonging anything.
    life = max((w.span + max(w.grain, w.span // _PART) for w in windows), default=MILLISECOND)
    grain = min((w.grain for w in windows), default=0)
    packed = b"".join(
        _WINDOW.pack(span, inf if limit is None else limit, grain)
        for _, span, limit, grain in windows
    )
    packed = b"%b%d" % (packed, ceil((life + grain) / MILLISECOND))
    start = b"$%d\r\n%b" % (len(packed) + _REQUEST.size, packed)
    return Charging(start, blake2b(packed, digest_size=8).digest())


def write_request(now: int | None, cost: int, void: float, mark: bytes) -> bytes:
    """The end of a call: a new request as ``request.lua`` reads it.

    Args:
        now: when it is made; None: when it gets there.
        cost: what it weighs.
        void: from when on it is not admitted, whatever the windows say; infinity: never.
        mark: the plan's.

    Raises:
        ConfigurationError: the cost is above 2**53 - 1, more than Lua's numbers can hold.
    """
    if cost > LARGEST:
        raise ConfigurationError(f"A cost is at most 2**53 - 1, not {cost}.")
    return _REQUEST_AND_END.pack(
        -1 if now is None else now,
        cost,
        void,
        mark,
        request_ids.next(),
        0,
        b"\r\n",
    )


def read_request(text: bytes) -> tuple[bytes, bool]:
    """The request that a call ends with, and whether it may have been counted before."""
    request = text[-_REQUEST_AND_END.size :]
    *_, since, _ = _REQUEST_AND_END.unpack(request)
    return request, since > 0


def read_reading(packed: bytes) -> Reading:
    """The reading that ``sliding_window.lua`` gives."""
    return read_admission(packed + NO_USAGE)[0]


def read_admission(packed: bytes) -> tuple[Reading, int, int | None]:
    """The reading that ``admit.lua`` gives, the key's requests and the last of them."""
    total: int
    empty: list[int]
    verdict, now, remaining, reset, tightest, refused_by, wait, total, *empty, requests, last = (
        _ADMISSIONS[len(packed)](packed)
    )
    if tightest < 0:  # No window has a limit.
        remaining, reset, tightest = None, now, None
    reading = _made(
        Reading,
        (
            verdict == ADMITTED,
            now,
            tuple(map(total.__sub__, empty)),
            remaining,
            reset,
            tightest,
            None if refused_by < 0 else refused_by,
            wait,
        ),
    )
    return reading, requests, last if requests else None
