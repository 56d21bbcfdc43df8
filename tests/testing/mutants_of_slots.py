"""Stores with one mistake each in the leases of slots."""

from __future__ import annotations

from typing import Any, ClassVar

from lockgate.core.leases import TO_LIST, Lease
from tests.by_verbs import SlotReading

from .mutants import Call, Mutant, gap, several, wrong


def _mine(leases: Any, call: Call) -> Lease | None:
    """Return the lease of a job and an owner."""
    return next((one for one in leases if one[:2] == (call.job, call.owner)), None)


@wrong("L4", "renew")
async def renews_a_lease_that_has_ended(call: Call) -> Any:
    store, span = call.store, call.span
    with store._lock:
        slots = store.slots(call.organization)
        mine = [one for one in slots if (one.id, one.owner) == (call.job, call.owner)]
        if not mine:
            return None
        renewed = mine[0]._replace(deadline=call.at + span, span=span)
        changed = tuple(renewed if one == mine[0] else one for one in slots)
        store.put_slots(call.organization, changed)
        return Lease(call.job, call.owner, renewed.deadline, span)


@wrong("L4", "renew")
async def never_shortens_a_lease(call: Call) -> Any:
    """Takes the later of two deadlines."""
    mine = _mine(await call.store.held(call.organization, call.now), call)
    return await call(span=max(call.span, mine.deadline - call.at if mine else 0))


@wrong("L4", "renew")
async def never_shortens_the_span_of_a_lease(call: Call) -> Any:
    """Takes the longer of two spans: the answer has the one that was asked for."""
    mine = _mine(await call.store.held(call.organization, call.now), call)
    lease = await call()
    if lease is not None and mine is not None and mine.span > call.span:
        await call(span=mine.span)
    return lease


@wrong("L4", "renew")
async def renews_to_the_end(call: Call) -> Any:
    """Takes a lease out and puts the renewed one in."""
    renewed = await call()
    if renewed is not None:
        slots = call.store.slots(call.organization)
        *others, mine = sorted(slots, key=lambda one: one.id == call.job)
        call.store.put_slots(call.organization, (*others, mine))
    return renewed


@wrong("L5", "release")
async def releases_for_anybody(call: Call) -> Any:
    leases = await call.store.held(call.organization, call.now)
    return await call(owner=next((one.owner for one in leases if one.job == call.job), call.owner))


@wrong("L1 W3", "acquire")
async def counts_leases_and_then_takes_one(call: Call) -> Any:
    live = await call.store.held(call.organization, call.now)
    gap()
    is_held = call.job in {lease.job for lease in live}
    if call.limit is not None and len(live) >= call.limit and not is_held:
        return await call()
    return (await call(limit=None))._replace(limit=call.limit)


@wrong("L6", "acquire")
async def gives_a_job_a_new_lease_each_time(call: Call) -> Any:
    for lease in await call.store.held(call.organization, call.now):
        if lease.job == call.job:
            await Mutant.release(call.store, call.organization, call.job, lease.owner, call.now)
    return await call()


@wrong("L6", "acquire")
async def counts_leases_before_it_looks_for_the_jobs(call: Call) -> Any:
    """With a smaller plan no job finds its lease."""
    held = len(await call.store.held(call.organization, call.now))
    is_full = call.limit is not None and held > call.limit
    return SlotReading(None, held, call.limit) if is_full else await call()


several(
    {
        "keeps_spans_of_leases_in_milliseconds": (
            "L3 L4 L6",
            "acquire",
            lambda call: call(span=call.span - call.span % 1000),
        ),
        "lists_leases_by_job": (
            "L6",
            "held",
            lambda call: call.then(lambda leases: tuple(sorted(leases))),
        ),
        "tells_how_many_rows_a_release_deleted": ("W14", "release", lambda call: call.then(int)),
    }
)


@wrong("L2 L3 W8", "held", parts=("slots",))
async def lists_sixty_four_leases(call: Call) -> Any:
    return (await call())[:64]


@wrong("L1 L2", "acquire", parts=("slots",))
async def counts_a_hundred_leases(call: Call) -> Any:
    held = len((await call.store.charge(call.organization, TO_LIST, call.now)).slots)
    free = None if call.limit is not None and min(held, 100) < call.limit else call.limit
    return (await call(limit=free))._replace(limit=call.limit)


class Expiring(Mutant):
    """Drops the record of an organization at the end of its time to live."""

    parts: ClassVar = ("slots",)

    def drop(self, organization: str, now: int | None) -> int:
        at = self.at(now)
        if self.seen.get(organization, at + 1) <= at:
            self.put_slots(organization, ())
        return at

    async def acquire(
        self,
        organization: str,
        job: str,
        owner: str,
        limit: int | None,
        span: int,
        now: int | None = None,
    ) -> SlotReading:
        at = self.drop(organization, now)
        reading = await super().acquire(organization, job, owner, limit, span, now)
        if reading.lease is not None:
            self.acquired(organization, at + span, at)
        return reading

    def acquired(self, organization: str, end: int, now: int) -> None:
        self.seen[organization] = end

    async def renew(
        self, organization: str, job: str, owner: str, span: int, now: int | None = None
    ) -> Lease | None:
        at = self.drop(organization, now)
        renewed = await super().renew(organization, job, owner, span, now)
        if renewed is not None:
            self.seen[organization] = at + span
        return renewed

    async def held(self, organization: str, now: int | None = None) -> tuple[Lease, ...]:
        self.drop(organization, now)
        return await super().held(organization, now)


def _first(call: Call) -> None:
    if call.store.seen.get(call.organization, 0) <= call.now:
        call()


several(
    {
        "expires_with_the_newest_lease": ("L3 L4 L1 L2 L6", "acquired", lambda call: call()),
        "expires_with_the_latest_renewal": ("L3 L4 L1 L2 L6", "acquired", lambda call: None),
        "expires_with_the_first_lease": ("L3 L4 L1 L2 L6", "acquired", _first),
    },
    of=Expiring,
)
