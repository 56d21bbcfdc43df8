"""Reservations: units that count in full until they are settled, or until a deadline.

A slot of a job (D26), a hold (D41) and a quota lease (D42) are reservations. What is settled is
counted as used, and the rest is free at once. At its deadline a slot is free, since its window has
no length; a hold and a quota lease are used in full.
"""

from typing import NamedTuple, TypeAlias


class Reservation(NamedTuple):
    """Units that are reserved until a deadline."""

    id: str
    """The job of a slot; 32 hexadecimal digits of a hold, 16 of a quota lease."""
    units: int
    """Of a slot 1. Of a quota lease 0 once it has ended unsettled and its units were counted."""
    deadline: int
    """The instant at which it ends, in microseconds."""
    span: int
    """The span of its last grant; no deadline lies further ahead than this."""
    owner: str = ""
    """Of a slot: only this owner can renew or settle it."""


Reservations: TypeAlias = tuple[Reservation, ...]
"""In the order of their first grants."""


def out(reservations: Reservations, now: int) -> Reservations:
    """Return the reservations that have not ended: the same object if all are, unchanged."""
    for one in reservations:
        if not now < one.deadline <= now + one.span:
            break
    else:
        return reservations
    return tuple([within_span(one, now) for one in reservations if one.deadline > now])


def within_span(one: Reservation, now: int) -> Reservation:
    """Return a reservation with a deadline that is no further ahead than its span.

    A clock that stepped back extends none.
    """
    latest = now + one.span
    return one if one.deadline <= latest else one._replace(deadline=latest)
