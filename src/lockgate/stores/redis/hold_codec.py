"""Encode a hold's action for ``hold.lua``, and decode the answer."""

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from typing import Any, Final

from ...core.budgets import SLOTS, Count
from ...core.holds import HoldAction, HoldAnswer, Look, Renew, Take
from ...core.limit_windows import span_of
from ...core.periods import Quota
from ...core.reservations import Reservation, Reservations
from ...core.timestamps import DAY, HOUR
from .key_names import read, write

_OF_HOLD: Final = Struct("<dd")
_WINDOW: Final = Struct("<dddd")
_SLOT: Final = Struct("<HHddd")
_COUNT: Final = Struct("<dddd")
_ALL: Final = -1


def write_action(action: HoldAction, now: int) -> tuple[bytes, tuple[bytes, ...]]:
    """Return the argument before the instant and those after it.

    Args:
        action: on a hold.
        now: the instant by this process, around which it names the periods of calendar quotas.
    """
    spans = [span_of(field) for field in action.fields]
    span = most = 0
    if isinstance(action, Take | Look):
        verb, most = b"look", action.most
        if isinstance(action, Take):
            verb, span = b"take", action.span
        windows = zip(spans, action.limits.windows, action.units, strict=True)
        rows = [(length, one.limit or 0, one.grain, units) for length, one, units in windows]
    elif isinstance(action, Renew):
        verb, span = b"renew", action.span
        rows = [(length, 0, 0, 0) for length in spans]
    else:
        verb = b"settle"
        used = (_ALL if one is None else one for one in action.used)
        rows = [(length, 0, 0, units) for length, units in zip(spans, used, strict=True)]
    packed = b"".join([_OF_HOLD.pack(span, most), *(_WINDOW.pack(*row) for row in rows)])
    id = write(action.id) if is_of_slots(action) else bytes.fromhex(action.id)
    fields = [field.encode() for field in action.fields]
    if action.quotas:
        fields += [
            b"" if quota is None else _periods(quota, length, now // HOUR)
            for quota, length in zip(action.quotas, spans, strict=True)
        ]
    return verb, (id, write(action.owner), packed, *fields)


def is_of_slots(action: HoldAction) -> bool:
    """Return whether an action is about slots, which have a hash of their own."""
    return action.fields == (SLOTS,)


@lru_cache(1024)
def _periods(quota: Quota, span: int, hour: int) -> bytes:
    """Return the first instants of the periods that a hold needs within some hours, packed: from a
    period's length before on, until the end of the period after the next day."""
    now = hour * HOUR
    period = quota.period(max(0, now - span - 2 * DAY))
    begins = [period.begins]
    while period.begins <= now + DAY:
        period = quota.period(period.ends)
        begins.append(period.begins)
    begins.append(period.ends)
    return Struct(f"<{len(begins)}d").pack(*begins)


def read_moved(answer: Sequence[Any]) -> int | None:
    """Return the instant around which ``hold.lua`` needs the periods; None: it has answered."""
    return answer[0] if len(answer) == 1 else None


def read_answer(answer: Sequence[Any]) -> HoldAnswer:
    """Decode the answer of ``hold.lua``."""
    done, now, deadline, waits, used, units, counts, slots = answer
    form = Struct(f"<{len(used) // 8}d")
    return HoldAnswer(
        bool(done),
        now,
        deadline,
        tuple(map(int, form.unpack(used))),
        tuple(map(int, form.unpack(units))),
        tuple(map(int, form.unpack(waits))) if waits else (),
        tuple(Count(*map(int, row)) for row in _COUNT.iter_unpack(counts)),
        _read_slots(slots),
    )


def _read_slots(packed: bytes) -> Reservations:
    slots: list[Reservation] = []
    place = 0
    while place < len(packed):
        size, more, units, deadline, span = _SLOT.unpack_from(packed, place)
        begins = place + _SLOT.size
        ends = begins + size
        place = ends + more
        job, owner = read(packed[begins:ends]), read(packed[ends:place])
        slots.append(Reservation(job, int(units), int(deadline), int(span), owner))
    return tuple(slots)
