"""Slots, by one caller."""

from ...core.leases import TO_LIST, to_acquire, to_release, to_renew
from ...core.timestamps import DAY, HOUR, MINUTE, SECOND
from ...stores.base import Store
from ..factories import HOSTILE, NOW, Factory
from .check import Check, alone


@alone("L1", "slots")
async def slots_up_to_the_limit(store: Store, _: Factory) -> None:
    for job in "abc":
        await store.charge("org_1", to_acquire(job, "me", 2, MINUTE), NOW)
    await store.charge("org_2", to_acquire("c", "me", 2, MINUTE), NOW)
    await store.charge("org_1", to_acquire("c", "me", 0, MINUTE), NOW)
    await store.charge("org_1", TO_LIST, NOW)
    await store.charge("org_3", TO_LIST, NOW)


@alone("L2", "slots")
async def a_freed_slot_can_be_taken(store: Store, _: Factory) -> None:
    for job in "ab":
        await store.charge("org_1", to_acquire(job, "me", 1, MINUTE), NOW)
    await store.charge("org_1", to_release("a", "me"), NOW)
    await store.charge("org_1", to_acquire("b", "me", 1, MINUTE), NOW)
    for job in map(str, range(12)):
        await store.charge("org_1", to_acquire(job, "me", None, MINUTE), NOW)


@alone("L3", "slots")
async def a_lease_ends_at_its_deadline(store: Store, _: Factory) -> None:
    await store.charge("org_1", to_acquire("a", "me", 1, MINUTE), NOW)
    await store.charge("org_1", to_acquire("b", "me", 1, MINUTE), NOW + MINUTE - 1)
    await store.charge("org_1", TO_LIST, NOW + MINUTE - 1)
    await store.charge("org_1", TO_LIST, NOW + MINUTE)
    await store.charge("org_1", to_acquire("b", "me", 1, MINUTE), NOW + MINUTE)


@alone("L3", "slots")
async def a_lease_lasts_to_the_microsecond(store: Store, _: Factory) -> None:
    await store.charge("org_1", to_acquire("a", "me", 1, MINUTE + 1), NOW)
    await store.charge("org_1", TO_LIST, NOW + MINUTE)
    await store.charge("org_1", to_renew("a", "me", MINUTE + 7), NOW + MINUTE)
    await store.charge("org_1", TO_LIST, NOW + 2 * MINUTE + 6)
    await store.charge("org_1", TO_LIST, NOW + 2 * MINUTE + 7)


@alone("L3", "slots")
async def each_of_several_leases_lasts_for_its_own_time(store: Store, _: Factory) -> None:
    """The record of an organization must outlast its longest lease, not its newest."""
    spans = (HOUR, SECOND, MINUTE, 1)
    for turn in range(len(spans)):
        organization, jobs = f"org_{turn}", dict(enumerate((*spans[turn:], *spans[:turn])))
        for job, span in jobs.items():
            await store.charge(organization, to_acquire(str(job), "me", None, span), NOW)
        longest = str(max(jobs, key=lambda job: jobs[job]))
        # Its lease stays as it is.
        await store.charge(organization, to_acquire(longest, "me", None, 1), NOW)
        for later in (1, 2, SECOND, MINUTE - 1, MINUTE, HOUR - 1):
            await store.charge(organization, TO_LIST, NOW + later)
            await store.charge(organization, to_acquire(longest, "you", 1, 1), NOW + later)
        await store.charge(organization, to_acquire("brief", "me", None, 1), NOW + MINUTE)
        await store.charge(organization, to_renew("brief", "me", 2), NOW + MINUTE)
        await store.charge(organization, to_release("brief", "me"), NOW + MINUTE)
        await store.charge(organization, TO_LIST, NOW + HOUR - 1)
        await store.charge(organization, to_renew(longest, "me", 2 * HOUR), NOW + MINUTE)
        await store.charge(organization, TO_LIST, NOW + 2 * HOUR)
        await store.charge(organization, TO_LIST, NOW + 2 * HOUR + MINUTE)


@alone("L3", "slots")
async def a_clock_that_steps_back_prolongs_no_lease(store: Store, _: Factory) -> None:
    await store.charge("org_1", to_acquire("a", "me", 1, MINUTE), NOW)
    await store.charge("org_1", TO_LIST, NOW - DAY)
    await store.charge("org_1", to_acquire("b", "me", 1, MINUTE), NOW - DAY)
    await store.charge("org_1", to_acquire("b", "me", 1, MINUTE), NOW - DAY + MINUTE)


@alone("L4", "slots")
async def renewing_needs_a_live_lease_of_the_same_owner(store: Store, _: Factory) -> None:
    await store.charge("org_1", to_acquire("a", "me", 1, MINUTE), NOW)
    await store.charge("org_1", to_renew("a", "you", MINUTE), NOW)
    await store.charge("org_1", to_renew("b", "me", MINUTE), NOW)
    await store.charge("org_2", to_renew("a", "me", MINUTE), NOW)
    await store.charge("org_1", to_renew("a", "me", HOUR), NOW + 1)
    await store.charge("org_1", TO_LIST, NOW + 1)
    # A renewal may shorten a lease.
    await store.charge("org_1", to_renew("a", "me", MINUTE), NOW + 2)
    await store.charge("org_1", TO_LIST, NOW + 2)


@alone("L4", "slots")
async def a_renewed_lease_keeps_its_place_in_the_order(store: Store, _: Factory) -> None:
    for job in "cab":
        await store.charge("org_1", to_acquire(job, "me", 3, MINUTE), NOW)
    await store.charge("org_1", to_renew("c", "me", HOUR), NOW + 1)
    await store.charge("org_1", TO_LIST, NOW + 1)
    await store.charge("org_1", to_release("a", "me"), NOW + 1)
    await store.charge("org_1", to_acquire("a", "me", 3, MINUTE), NOW + 1)
    await store.charge("org_1", to_acquire("c", "me", 3, MINUTE), NOW + 1)
    await store.charge("org_1", TO_LIST, NOW + 1)


@alone("L4", "slots")
async def an_ended_lease_stays_ended(store: Store, _: Factory) -> None:
    await store.charge("org_1", to_acquire("a", "me", 1, MINUTE), NOW)
    await store.charge("org_1", to_renew("a", "me", MINUTE), NOW + MINUTE)
    await store.charge("org_1", TO_LIST, NOW + MINUTE)
    await store.charge("org_1", to_acquire("b", "you", 1, MINUTE), NOW + MINUTE)


@alone("L5", "slots")
async def releasing_frees_only_the_owners_lease(store: Store, _: Factory) -> None:
    await store.charge("org_1", to_acquire("a", "me", 2, MINUTE), NOW)
    await store.charge("org_1", to_release("a", "you"), NOW)
    await store.charge("org_2", to_release("a", "me"), NOW)
    await store.charge("org_1", to_release("b", "me"), NOW)
    await store.charge("org_1", TO_LIST, NOW)
    await store.charge("org_1", to_release("a", "me"), NOW)
    await store.charge("org_1", to_release("a", "me"), NOW)
    await store.charge("org_1", TO_LIST, NOW)


@alone("L5", "slots")
async def a_late_release_frees_no_other_lease(store: Store, _: Factory) -> None:
    await store.charge("org_1", to_acquire("a", "late", 1, MINUTE), NOW)
    await store.charge("org_1", to_acquire("a", "next", 1, MINUTE), NOW + MINUTE)
    await store.charge("org_1", to_release("a", "late"), NOW + MINUTE)
    await store.charge("org_1", TO_LIST, NOW + MINUTE)
    await store.charge("org_1", to_release("a", "next"), NOW + 2 * MINUTE)


@alone("L6", "slots")
async def acquiring_again_returns_the_same_lease(store: Store, _: Factory) -> None:
    await store.charge("org_1", to_acquire("a", "me", 1, MINUTE), NOW)
    await store.charge("org_1", to_acquire("a", "me", 1, MINUTE), NOW + 1)
    await store.charge("org_1", to_acquire("a", "other", 1, HOUR), NOW + 2)
    await store.charge("org_1", TO_LIST, NOW + 2)
    for limit, job in ((2, "b"), (1, "b"), (0, "a"), (3, "Z")):
        await store.charge("org_1", to_acquire(job, "me", limit, HOUR - 1), NOW + 3)
    await store.charge("org_1", TO_LIST, NOW + 3)


@alone("W8", "slots")
async def hostile_ids_have_separate_slots(store: Store, _: Factory) -> None:
    for index, id in enumerate(HOSTILE):
        await store.charge(id, to_acquire(f"job {index}", "me", 2, MINUTE), NOW)
        await store.charge("org_1", to_acquire(id, "me", None, MINUTE), NOW)
        await store.charge("org_2", to_acquire("job", id, 1, MINUTE), NOW + index * MINUTE)
    for id in HOSTILE:
        await store.charge(id, TO_LIST, NOW)
        await store.charge("org_1", to_release(id, "me"), NOW)
    await store.charge("org_1", TO_LIST, NOW)


@alone("L5", "slots")
async def hostile_owners_keep_their_slots(store: Store, _: Factory) -> None:
    for index, owner in enumerate(HOSTILE):
        await store.charge("org_1", to_acquire(str(index), owner, None, MINUTE), NOW)
    for index, owner in enumerate(HOSTILE):
        await store.charge("org_1", to_release(str(index), HOSTILE[index - 1]), NOW)
        await store.charge("org_1", to_renew(str(index), owner, MINUTE), NOW + 1)
        await store.charge("org_1", to_release(str(index), owner), NOW + 1)
    await store.charge("org_1", TO_LIST, NOW + 1)


@alone("W8", "slots")
async def organization_and_job_ids_do_not_run_together(store: Store, _: Factory) -> None:
    """The concatenations of organization and job are equal."""
    await store.charge("a", to_acquire("b:c", "me", None, MINUTE), NOW)
    await store.charge("a:b", to_acquire("c", "me", None, MINUTE), NOW)
    await store.charge("a:b", to_release("c", "me"), NOW)
    await store.charge("a", TO_LIST, NOW)


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
