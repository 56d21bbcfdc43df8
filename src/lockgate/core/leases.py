"""Slots for concurrent jobs, held as leases (D26).

A lease belongs to a job and an owner and ends at its deadline unless renewed, so that the slot of
a dead worker becomes free. A ledger has it as a reservation: the rule is :mod:`lockgate.core.holds`
on the budget :data:`~lockgate.core.budgets.SLOTS`.
"""

from collections.abc import Iterable
from typing import NamedTuple

from .budgets import SLOTS
from .holds import HoldAnswer, Look, Renew, Settle, Take, slots
from .reservations import Reservation
from .sliding_window import LARGEST


class Lease(NamedTuple):
    """One held slot."""

    job: str
    owner: str
    """The owner's text: only this owner can renew it."""
    deadline: int
    """The instant from which the lease is over, in microseconds."""
    span: int
    """The span of its last grant, in microseconds; no deadline lies further ahead than this."""


Leases = tuple[Lease, ...]
"""The leases of one organization, in the order in which they were taken."""


def to_acquire(job: str, owner: str, limit: int | None, span: int) -> Take:
    """Return the action that takes a slot, or finds the one that the job has (L1, L2, L6)."""
    return Take(job, slots(limit), (1,), span, LARGEST, owner)


def to_renew(job: str, owner: str, span: int) -> Renew:
    """Return the action that extends the slot of this owner; an ended one stays ended (L4)."""
    return Renew(job, (SLOTS,), span, owner=owner)


def to_release(job: str, owner: str) -> Settle:
    """Return the action that frees the slot of this job and owner only. Idempotent (L5)."""
    return Settle(job, (SLOTS,), (0,), owner=owner)


TO_LIST = Look(slots(None), (1,), LARGEST)
"""The action that reads the slots."""


def leases_of(slots: Iterable[Reservation]) -> Leases:
    """Return the leases of reserved slots."""
    return tuple(Lease(one.id, one.owner, one.deadline, one.span) for one in slots)


def lease_of(answer: HoldAnswer) -> Lease | None:
    """Return the lease of the slot that an action has taken, found or renewed, if there is one."""
    return None if answer.slot is None else leases_of((answer.slot,))[0]
