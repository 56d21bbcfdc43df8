"""Encode what a process asks of quota leases for ``charge.lua``, and decode leases."""

from struct import Struct
from typing import Final

from ...core.quota_leases import LeaseRequest, QuotaLeases
from ...core.reservations import Reservation
from ...core.sliding_window import LARGEST
from .admission_codec import read_instant_of_answer

_REQUEST: Final = Struct("<8sdd")
_SETTLED: Final = Struct("<8sd")
_USE: Final = Struct("<dd")
_LEASE: Final = Struct("<8sddd")
_GRANTED: Final = Struct("<d")
NOTHING_GRANTED: Final = bytes(_GRANTED.size)
"""The end of an answer to a request for a lease that was not granted."""


def write_lease_request(lease: LeaseRequest) -> bytes:
    """Encode a request for a lease, with the leases to settle."""
    units = min(lease.units, LARGEST)
    values = [_REQUEST.pack(bytes.fromhex(lease.id), units, lease.span)]
    for id, used in lease.settled:
        values.append(_SETTLED.pack(bytes.fromhex(id), _USE.size * len(used)))
        values += [_USE.pack(at, min(units, LARGEST)) for at, units in used]
    return b"".join(values)


def read_granted(answer: bytes, lease: LeaseRequest) -> tuple[bytes, Reservation | None]:
    """Split an answer to a request for a lease: one without it, and the lease granted."""
    answer, granted = answer[: -_GRANTED.size], answer[-_GRANTED.size :]
    if granted == NOTHING_GRANTED:
        return answer, None
    (units,) = _GRANTED.unpack(granted)
    deadline = read_instant_of_answer(answer) + lease.span
    return answer, Reservation(lease.id, int(units), deadline, lease.span)


def read_leases(packed: bytes) -> QuotaLeases:
    """Decode the leases in the answer of ``ledger.lua``."""
    return tuple(
        Reservation(id.hex(), int(units), int(deadline), int(span))
        for id, units, deadline, span in _LEASE.iter_unpack(packed)
    )
