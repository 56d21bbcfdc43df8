"""Slots, by one caller."""

from ...core.timestamps import DAY, HOUR, MINUTE, SECOND
from ...stores.base import Store
from ..factories import HOSTILE, NOW, Factory
from .check import Check, alone


@alone("L1", "slots")
async def slots_up_to_the_limit(store: Store, _: Factory) -> None:
    for job in "abc":
        await store.acquire("org_1", job, "me", 2, MINUTE, NOW)
    await store.acquire("org_2", "c", "me", 2, MINUTE, NOW)
    await store.acquire("org_1", "c", "me", 0, MINUTE, NOW)
    await store.held("org_1", NOW)
    await store.held("org_3", NOW)


@alone("L2", "slots")
async def a_freed_slot_can_be_taken(store: Store, _: Factory) -> None:
    for job in "ab":
        await store.acquire("org_1", job, "me", 1, MINUTE, NOW)
    await store.release("org_1", "a", "me", NOW)
    await store.acquire("org_1", "b", "me", 1, MINUTE, NOW)
    for job in map(str, range(12)):
        await store.acquire("org_1", job, "me", None, MINUTE, NOW)


@alone("L3", "slots")
async def a_lease_ends_at_its_deadline(store: Store, _: Factory) -> None:
    await store.acquire("org_1", "a", "me", 1, MINUTE, NOW)
    await store.acquire("org_1", "b", "me", 1, MINUTE, NOW + MINUTE - 1)
    await store.held("org_1", NOW + MINUTE - 1)
    await store.held("org_1", NOW + MINUTE)
    await store.acquire("org_1", "b", "me", 1, MINUTE, NOW + MINUTE)


@alone("L3", "slots")
async def a_lease_lasts_to_the_microsecond(store: Store, _: Factory) -> None:
    await store.acquire("org_1", "a", "me", 1, MINUTE + 1, NOW)
    await store.held("org_1", NOW + MINUTE)
    await store.renew("org_1", "a", "me", MINUTE + 7, NOW + MINUTE)
    await store.held("org_1", NOW + 2 * MINUTE + 6)
    await store.held("org_1", NOW + 2 * MINUTE + 7)


@alone("L3", "slots")
async def each_of_several_leases_lasts_for_its_own_time(store: Store, _: Factory) -> None:
    """The record of an organization must outlast its longest lease, not its newest."""
    spans = (HOUR, SECOND, MINUTE, 1)
    for turn in range(len(spans)):
        organization, jobs = f"org_{turn}", dict(enumerate((*spans[turn:], *spans[:turn])))
        for job, span in jobs.items():
            await store.acquire(organization, str(job), "me", None, span, NOW)
        longest = str(max(jobs, key=lambda job: jobs[job]))
        await store.acquire(organization, longest, "me", None, 1, NOW)  # Its lease stays as it is.
        for later in (1, 2, SECOND, MINUTE - 1, MINUTE, HOUR - 1):
            await store.held(organization, NOW + later)
            await store.acquire(organization, longest, "you", 1, 1, NOW + later)
        await store.acquire(organization, "brief", "me", None, 1, NOW + MINUTE)
        await store.renew(organization, "brief", "me", 2, NOW + MINUTE)
        await store.release(organization, "brief", "me", NOW + MINUTE)
        await store.held(organization, NOW + HOUR - 1)
        await store.renew(organization, longest, "me", 2 * HOUR, NOW + MINUTE)
        await store.held(organization, NOW + 2 * HOUR)
        await store.held(organization, NOW + 2 * HOUR + MINUTE)


@alone("L3", "slots")
async def a_clock_that_steps_back_prolongs_no_lease(store: Store, _: Factory) -> None:
    await store.acquire("org_1", "a", "me", 1, MINUTE, NOW)
    await store.held("org_1", NOW - DAY)
    await store.acquire("org_1", "b", "me", 1, MINUTE, NOW - DAY)
    await store.acquire("org_1", "b", "me", 1, MINUTE, NOW - DAY + MINUTE)


@alone("L4", "slots")
async def renewing_needs_a_live_lease_of_the_same_owner(store: Store, _: Factory) -> None:
    await store.acquire("org_1", "a", "me", 1, MINUTE, NOW)
    await store.renew("org_1", "a", "you", MINUTE, NOW)
    await store.renew("org_1", "b", "me", MINUTE, NOW)
    await store.renew("org_2", "a", "me", MINUTE, NOW)
    await store.renew("org_1", "a", "me", HOUR, NOW + 1)
    await store.held("org_1", NOW + 1)
    await store.renew("org_1", "a", "me", MINUTE, NOW + 2)  # A renewal may shorten a lease.
    await store.held("org_1", NOW + 2)


@alone("L4", "slots")
async def a_renewed_lease_keeps_its_place_in_the_order(store: Store, _: Factory) -> None:
    for job in "cab":
        await store.acquire("org_1", job, "me", 3, MINUTE, NOW)
    await store.renew("org_1", "c", "me", HOUR, NOW + 1)
    await store.held("org_1", NOW + 1)
    await store.release("org_1", "a", "me", NOW + 1)
    await store.acquire("org_1", "a", "me", 3, MINUTE, NOW + 1)
    await store.acquire("org_1", "c", "me", 3, MINUTE, NOW + 1)
    await store.held("org_1", NOW + 1)


@alone("L4", "slots")
async def an_ended_lease_stays_ended(store: Store, _: Factory) -> None:
    await store.acquire("org_1", "a", "me", 1, MINUTE, NOW)
    await store.renew("org_1", "a", "me", MINUTE, NOW + MINUTE)
    await store.held("org_1", NOW + MINUTE)
    await store.acquire("org_1", "b", "you", 1, MINUTE, NOW + MINUTE)


@alone("L5", "slots")
async def releasing_frees_only_the_owners_lease(store: Store, _: Factory) -> None:
    await store.acquire("org_1", "a", "me", 2, MINUTE, NOW)
    await store.release("org_1", "a", "you", NOW)
    await store.release("org_2", "a", "me", NOW)
    await store.release("org_1", "b", "me", NOW)
    await store.held("org_1", NOW)
    await store.release("org_1", "a", "me", NOW)
    await store.release("org_1", "a", "me", NOW)
    await store.held("org_1", NOW)


@alone("L5", "slots")
async def a_late_release_frees_no_other_lease(store: Store, _: Factory) -> None:
    await store.acquire("org_1", "a", "late", 1, MINUTE, NOW)
    await store.acquire("org_1", "a", "next", 1, MINUTE, NOW + MINUTE)
    await store.release("org_1", "a", "late", NOW + MINUTE)
    await store.held("org_1", NOW + MINUTE)
    await store.release("org_1", "a", "next", NOW + 2 * MINUTE)


@alone("L6", "slots")
async def acquiring_again_returns_the_same_lease(store: Store, _: Factory) -> None:
    await store.acquire("org_1", "a", "me", 1, MINUTE, NOW)
    await store.acquire("org_1", "a", "me", 1, MINUTE, NOW + 1)
    await store.acquire("org_1", "a", "other", 1, HOUR, NOW + 2)
    await store.held("org_1", NOW + 2)
    for limit, job in ((2, "b"), (1, "b"), (0, "a"), (3, "Z")):
        await store.acquire("org_1", job, "me", limit, HOUR - 1, NOW + 3)
    await store.held("org_1", NOW + 3)


@alone("W8", "slots")
async def hostile_ids_have_separate_slots(store: Store, _: Factory) -> None:
    for index, id in enumerate(HOSTILE):
        await store.acquire(id, f"job {index}", "me", 2, MINUTE, NOW)
        await store.acquire("org_1", id, "me", None, MINUTE, NOW)
        await store.acquire("org_2", "job", id, 1, MINUTE, NOW + index * MINUTE)
    for id in HOSTILE:
        await store.held(id, NOW)
        await store.release("org_1", id, "me", NOW)
    await store.held("org_1", NOW)


@alone("L5", "slots")
async def hostile_owners_keep_their_slots(store: Store, _: Factory) -> None:
    for index, owner in enumerate(HOSTILE):
        await store.acquire("org_1", str(index), owner, None, MINUTE, NOW)
    for index, owner in enumerate(HOSTILE):
        await store.release("org_1", str(index), HOSTILE[index - 1], NOW)
        await store.renew("org_1", str(index), owner, MINUTE, NOW + 1)
        await store.release("org_1", str(index), owner, NOW + 1)
    await store.held("org_1", NOW + 1)


@alone("W8", "slots")
async def organization_and_job_ids_do_not_run_together(store: Store, _: Factory) -> None:
    """The concatenations of organization and job are equal."""
    await store.acquire("a", "b:c", "me", None, MINUTE, NOW)
    await store.acquire("a:b", "c", "me", None, MINUTE, NOW)
    await store.release("a:b", "c", "me", NOW)
    await store.held("a", NOW)


CHECKS: tuple[Check, ...] = (
    slots_up_to_the_limit,
    a_freed_slot_can_be_taken,
    acquiring_again_returns_the_same_lease,
    a_lease_ends_at_its_deadline,
    a_lease_lasts_to_the_microsecond,
    each_of_several_leases_lasts_for_its_own_time,
    a_clock_that_steps_back_prolongs_no_lease,
    renewing_needs_a_live_lease_of_the_same_owner,
    a_renewed_lease_keeps_its_place_in_the_order,
    an_ended_lease_stays_ended,
    releasing_frees_only_the_owners_lease,
    a_late_release_frees_no_other_lease,
    hostile_ids_have_separate_slots,
    hostile_owners_keep_their_slots,
    organization_and_job_ids_do_not_run_together,
)
