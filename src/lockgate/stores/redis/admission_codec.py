"""Encode a request and its plan for ``admit.lua`` and ``hit.lua``, and decode their answers."""

from collections.abc import Callable
from functools import lru_cache
from hashlib import blake2b
from math import ceil, inf
from struct import Struct
from typing import Any, Final, NamedTuple

from ...core.fast_tuples import new_tuple
from ...core.limit_hits import combined
from ...core.limit_windows import LimitWindows
from ...core.promises import GRACE
from ...core.reservations import Reservation
from ...core.sliding_window import LARGEST, Reading, Window
from ...core.timestamps import MILLISECOND
from ...errors import ConfigurationError
from .transport.commands import arguments, request_ids

ADMITTED, LIMITED, PROMISED, EXPIRED, ANOTHER_PERIOD = range(1, 6)
"""The verdict, which is the first byte of an answer. PROMISED: limited, with a promise. The last:
nothing was done, because the server is in another calendar period than the call names."""
NEW, PEEKS, SETTLES = 0, -1, -2
"""In place of the server's instant before a request was first sent: it is sent the first time; it
reads, and charges nothing; it only settles quota leases."""
_LONGEST_SPAN: Final = 2**40 - 1
_PART: Final = 60
_WINDOW: Final = Struct("<ddd")
_REQUEST: Final = Struct("<ddd8sQd")
_OF_LIMITS: Final = Struct("<bdb")
_ALONE: Final = Struct("<Bq")
_COUNT: Final = Struct("<dd")
_SINCE: Final = Struct("<d2s")
_REQUEST_AND_END: Final = Struct(f"{_REQUEST.format}2s")


def _by_size() -> dict[int, Callable[[bytes], tuple[Any, ...]]]:
    """Return the functions that unpack readings of 0 to 31 windows with usage, by size in bytes."""
    forms = [Struct(f"<Bqqqbbqq{'q32x' * number}qq") for number in range(32)]
    return {form.size: form.unpack for form in forms}


_ADMISSIONS: Final = _by_size()
NO_USAGE: Final = bytes(16)


class Charging(NamedTuple):
    """The windows of a plan as ``sliding_window.lua`` takes them, without the request."""

    start: bytes
    """The start of an argument: the windows, and the time for which their state is kept."""
    mark: bytes
    """A fingerprint of the plan."""


@lru_cache(1024)
def charging(windows: tuple[Window, ...], keeps_retries: bool = False) -> Charging:
    """Encode the windows of a plan; none for named limits alone.

    Args:
        windows: the windows.
        keeps_retries: whether a refusal keeps units for the key (D47).

    Raises:
        ConfigurationError: a window is longer than 12 days.
    """
    if any(window.span > _LONGEST_SPAN for window in windows):
        raise ConfigurationError("A window in Redis is at most 12 days long.")
    # A cell outlives its window by at most a grain or a fixed part of the window (D21). A hit that
    # joins a cell does not extend the expiry of the state, for up to the smallest grain.
    life = max((w.span + max(w.grain, w.span // _PART) for w in windows), default=MILLISECOND)
    grain = min((w.grain for w in windows), default=0)
    packed = b"".join(
        _WINDOW.pack(span, inf if limit is None else limit, grain)
        for _, span, limit, grain in windows
    )
    packed = b"%b%d" % (packed, ceil((life + grain) / MILLISECOND))
    mark = blake2b(packed, digest_size=8).digest()
    packed += b"k" if keeps_retries else b""
    return Charging(b"$%d\r\n%b" % (len(packed) + _REQUEST.size, packed), mark)


@lru_cache(4096)
def limiting(limits: LimitWindows) -> bytes:
    """Encode the windows of named limits and their fields, as ``charge.lua`` takes them."""
    packed = b"".join(
        _WINDOW.pack(span, inf if limit is None else limit, grain)
        for _, span, limit, grain in limits.windows
    )
    return arguments(packed, *(field.encode() for field in limits.fields))


def read_limited(reading: Reading, limits: LimitWindows, told: bytes) -> Reading:
    """Decode what ``charge.lua`` tells of them, and combine it with the reading of the plan."""
    refusing, wait, lacking = _OF_LIMITS.unpack_from(told)
    counts, now = list[int](), reading.now
    remaining = tightest = None
    reset = now
    for window, (count, oldest) in zip(
        limits.windows, _COUNT.iter_unpack(told[_OF_LIMITS.size :]), strict=True
    ):
        used = int(count)
        if window.limit is not None:
            left = max(0, window.limit - used)
            expires = int(oldest) + window.span if used else now
            if remaining is None or left < remaining or (left == remaining and expires > reset):
                remaining, reset, tightest = left, expires, len(counts)
        counts.append(used)
    refused_by = None if refusing < 0 else refusing
    is_admitted = refusing < 0 and lacking < 0
    of_limits = Reading(
        is_admitted, now, tuple(counts), remaining, reset, tightest, refused_by, int(wait)
    )
    return combined(reading, of_limits, None if lacking < 0 else lacking)


def size_of_limits(limits: LimitWindows) -> int:
    """Return the number of bytes that they add to an answer."""
    return _OF_LIMITS.size + _COUNT.size * len(limits.fields)


def read_instant_of_answer(answer: bytes) -> int:
    """Return the server's instant in an answer of the verdict EXPIRED or ANOTHER_PERIOD."""
    return int(_ALONE.unpack_from(answer)[1])


def read_limits(packed: bytes, limits: LimitWindows) -> Reading:
    """Decode the answer of ``hit.lua`` about named limits alone."""
    _, now = _ALONE.unpack_from(packed)
    alone = Reading(True, now, (), None, now, None, None, 0)
    return read_limited(alone, limits, packed[_ALONE.size :])


def write_request(
    now: int | None, cost: int, expires_at: float, mark: bytes, since: int = NEW
) -> bytes:
    """Encode a new request as ``request.lua`` reads it, with which a call ends.

    Args:
        now: its instant in microseconds; None: the server's clock on arrival.
        cost: its cost in units.
        expires_at: the instant from which on it is refused as expired, or its plan does not hold;
            infinity: never.
        mark: the fingerprint of the plan.
        since: :data:`NEW`, or what is done in place of a charge.

    Raises:
        ConfigurationError: the cost is above 2**53 - 1, more than Lua's numbers can hold.
    """
    if cost > LARGEST:
        raise ConfigurationError(f"A cost is at most 2**53 - 1, not {cost}.")
    return _REQUEST_AND_END.pack(
        -1 if now is None else now,
        cost,
        expires_at,
        mark,
        request_ids.next(),
        since,
        b"\r\n",
    )


def read_request(text: bytes) -> tuple[bytes, bool]:
    """Return the request with which a call ends, and whether it may have been counted before."""
    request = text[-_REQUEST_AND_END.size :]
    return request, read_since(request) > NEW


def read_cost(text: bytes) -> int:
    """Return the cost of the request with which a call ends."""
    _, cost, *_ = _REQUEST_AND_END.unpack_from(text, len(text) - _REQUEST_AND_END.size)
    return int(cost)


def read_since(request: bytes) -> float:
    """Return the server's instant before a request was first sent, or what stands for it."""
    return float(_SINCE.unpack(request[-_SINCE.size :])[0])


def instead(request: bytes, since: int) -> bytes:
    """Return a request to do something else: :data:`NEW`, :data:`PEEKS` or :data:`SETTLES`."""
    return request[: -_SINCE.size] + _SINCE.pack(since, b"\r\n")


def renewed_request(text: bytes, expires_at: float, mark: bytes) -> bytes:
    """Return the request with which a call ends, under another plan and with the same id."""
    now, cost, _, _, id, since, end = _REQUEST_AND_END.unpack_from(
        text, len(text) - _REQUEST_AND_END.size
    )
    return _REQUEST_AND_END.pack(now, cost, expires_at, mark, id, since, end)


def read_instant(request: bytes) -> int | None:
    """Return the instant of a request of :func:`write_request`; None: the server's clock."""
    now = _REQUEST_AND_END.unpack(request)[0]
    return None if now < 0 else int(now)


def read_promise(answer: bytes, reading: Reading, cost: int, holder: str) -> Reservation | None:
    """Return the promise to a holder that an answer says; None: there is none."""
    if answer[0] != PROMISED:
        return None
    span = reading.wait + GRACE
    return Reservation("", cost, reading.now + span, span, holder)


def read_reading(packed: bytes) -> Reading:
    """Decode the answer of ``hit.lua`` about windows."""
    return read_admission(packed + NO_USAGE)[0]


def read_admission(
    packed: bytes, limits: LimitWindows | None = None
) -> tuple[Reading, int, int | None]:
    """Decode the answer of ``admit.lua``: reading, requests and instant of the last.

    With ``limits`` decode that of an admission that was charged to these too.
    """
    if limits is not None:
        size = size_of_limits(limits)
        reading, requests, last = read_admission(packed[:-size])
        return read_limited(reading, limits, packed[-size:]), requests, last
    total: int
    empty: list[int]
    verdict, now, remaining, reset, tightest, refused_by, wait, total, *empty, requests, last = (
        _ADMISSIONS[len(packed)](packed)
    )
    if tightest < 0:  # No window has a limit.
        remaining, reset, tightest = None, now, None
    reading = new_tuple(
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
    return reading, requests, last or None
