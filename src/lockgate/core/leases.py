"""Slots for concurrent jobs, held as leases (D26).

A lease belongs to a job and an owner and ends at its deadline unless renewed, so that the slot of
a dead worker becomes free. The functions are pure: they take the leases of one organization
and return the leases to store; a store applies them atomically.
"""

from typing import NamedTuple


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


class SlotReading(NamedTuple):
    """The answer to :func:`acquire`."""

    lease: Lease | None
    """The lease of this job; None when every slot is taken."""
    held: int
    """The number of held slots, this one included."""
    limit: int | None


def live(leases: Leases, now: int) -> Leases:
    """Return the leases that have not ended.

    A clock that stepped back extends no lease beyond its span.
    """
    return tuple(
        lease if lease.deadline <= now + lease.span else lease._replace(deadline=now + lease.span)
        for lease in leases
        if lease.deadline > now
    )


def acquire(
    leases: Leases, job: str, owner: str, limit: int | None, now: int, span: int
) -> tuple[SlotReading, Leases]:
    """Acquire a slot for a job, or return the lease that the job already has (L1, L2, L6)."""
    leases = live(leases, now)
    for lease in leases:
        if lease.job == job:
            return SlotReading(lease, len(leases), limit), leases
    if limit is not None and len(leases) >= limit:
        return SlotReading(None, len(leases), limit), leases
    lease = Lease(job, owner, now + span, span)
    return SlotReading(lease, len(leases) + 1, limit), (*leases, lease)


def renew(leases: Leases, job: str, owner: str, now: int, span: int) -> tuple[Lease | None, Leases]:
    """Extend a live lease of this owner; an ended lease stays ended (L4)."""
    leases = live(leases, now)
    for place, lease in enumerate(leases):
        if lease.job == job and lease.owner == owner:
            renewed = lease._replace(deadline=now + span, span=span)
            return renewed, (*leases[:place], renewed, *leases[place + 1 :])
    return None, leases


def release(leases: Leases, job: str, owner: str, now: int) -> tuple[bool, Leases]:
    """Release the slot of this job and owner only. Idempotent (L5)."""
    leases = live(leases, now)
    kept = tuple(lease for lease in leases if (lease.job, lease.owner) != (job, owner))
    return len(kept) < len(leases), kept
