"""Encode a hold's action for ``hold.lua``, and decode the answer."""

from collections.abc import Sequence
from struct import Struct
from typing import Any, Final

from ...core.holds import HoldAction, HoldAnswer, Look, Renew, Take
from ...core.limit_windows import span_of

_WINDOW: Final = Struct("<dddd")
_ALL: Final = -1


def write_action(action: HoldAction) -> tuple[bytes, tuple[bytes, ...]]:
    """Return the argument before the instant and those after it."""
    spans = [span_of(field) for field in action.fields]
    span = most = 0
    if isinstance(action, Take):
        verb, span, most = b"take", action.span, action.most
        windows = zip(spans, action.limits.windows, action.units, strict=True)
        rows = [(length, one.limit or 0, one.grain, units) for length, one, units in windows]
    elif isinstance(action, Renew):
        verb, span = b"renew", action.span
        rows = [(length, 0, 0, 0) for length in spans]
    elif isinstance(action, Look):
        verb = b"look"
        rows = [(length, 0, 0, 0) for length in spans]
    else:
        verb = b"settle"
        used = (_ALL if one is None else one for one in action.used)
        rows = [(length, 0, 0, units) for length, units in zip(spans, used, strict=True)]
    packed = b"".join(_WINDOW.pack(*row) for row in rows)
    fields = (field.encode() for field in action.fields)
    return verb, (bytes.fromhex(action.id), b"%d" % span, b"%d" % most, packed, *fields)


def read_answer(answer: Sequence[Any]) -> HoldAnswer:
    """Decode the answer of ``hold.lua``."""
    done, now, deadline, refused_by, wait, used, units = answer
    form = Struct(f"<{len(used) // 8}d")
    return HoldAnswer(
        bool(done),
        now,
        deadline,
        tuple(map(int, form.unpack(used))),
        tuple(map(int, form.unpack(units))),
        None if refused_by < 0 else refused_by,
        wait,
    )
