"""Promises: units that a refusal keeps for its key until it returns (D47)."""

from typing import Final

from ...core.key_format import NewKey, Token
from ...core.ledger import Hit, LeasesOut, Peek, Reset
from ...core.limits import Limit, bound
from ...core.plans import Organization, Plan, PlanBook
from ...core.promises import GRACE
from ...core.quota_leases import LeaseRequest
from ...core.timestamps import MINUTE, SECOND
from ...stores.base import Store
from ..factories import NOW, Factory
from .check import Check, alone

PATIENT: Final = Plan("patient", rpm=10, kept_retries=True)
LESS: Final = Plan("less", rpm=5, kept_retries=True)
PLAIN: Final = Plan("plain", rpm=10)
BUSY: Final = Plan("busy", rpm=1000, kept_retries=True)
BOOK: Final = PlanBook([PATIENT, LESS, PLAIN, BUSY], custom=(), default="patient")
FULL: Final = NOW + 20 * SECOND
"""When the window is full: its hits leave from a minute after NOW on, one a second."""
FREE: Final = NOW + MINUTE


async def tokens(
    store: Store, factory: Factory, number: int, organization: str = "org_1"
) -> list[Token]:
    """Return the tokens of new keys."""
    keys: list[NewKey] = []
    for _ in range(number):
        keys.append(factory.key())
        await store.insert(factory.draft(organization, key=keys[-1]), None, NOW)
    return [factory.token(key) for key in keys]


async def filled(
    store: Store, factory: Factory, number: int, organization: str = "org_1"
) -> list[Token]:
    """Fill the window of an organization, a unit a second, and return the tokens of some keys."""
    made = await tokens(store, factory, number, organization)
    for place in range(10):
        await store.admit(made[0], 1, BOOK, NOW + place * SECOND)
    return made


@alone("P2", "admission")
async def refused_keys_get_a_second_each_and_find_their_units(
    store: Store, factory: Factory
) -> None:
    first, *others = await filled(store, factory, 5)
    for token in others:
        await store.admit(token, 1, BOOK, FULL)
    for place, token in enumerate(others):
        at = FREE + place * SECOND
        await store.admit(first, 1, BOOK, at + GRACE - 1 if place == 3 else at)
        await store.admit(token, 1, BOOK, at + GRACE - 1 if place == 3 else at)


@alone("P2", "admission")
async def a_promise_serves_one_call_of_its_key(store: Store, factory: Factory) -> None:
    one, other, third = await filled(store, factory, 3)
    for token in (one, other, one):
        await store.admit(token, 1, BOOK, FULL)
    for token in (third, other, one, one, one):
        await store.admit(token, 1, BOOK, FREE + 2 * SECOND)
    await store.admit(third, 1, BOOK, FREE + 3 * SECOND)


@alone("P2", "admission")
async def calls_without_a_key_leave_what_is_promised(store: Store, factory: Factory) -> None:
    one, other = await filled(store, factory, 2)
    await store.admit(other, 1, BOOK, FULL)
    named = bound((Limit("export", "100/minute"),), None)
    for limits in (None, named):
        await store.charge("org_1", Hit(PATIENT.windows, 1, limits), FREE + 1)
    await store.admit(one, 1, BOOK, FREE + 1, None, (Limit("export", "100/minute"),))
    await store.admit(other, 1, BOOK, FREE + 1)
    await store.charge("org_1", Hit(PATIENT.windows, 1), FREE + SECOND)


@alone("P3", "admission")
async def a_newcomer_is_admitted_if_every_promise_still_fits(
    store: Store, factory: Factory
) -> None:
    one, other, third = await filled(store, factory, 3)
    for cost in (1, 3):
        await store.admit(one, cost, BOOK, FULL)
    for at in (FREE, FREE + SECOND, FREE + 3 * SECOND, FREE + 4 * SECOND):
        for cost in (2, 1):
            await store.admit(third, cost, BOOK, at)
    await store.admit(other, 1, BOOK, FREE + 5 * SECOND)


@alone("P3", "admission")
async def reading_says_what_is_left_beside_promises(store: Store, factory: Factory) -> None:
    _, other = await filled(store, factory, 2)
    await store.admit(other, 2, BOOK, FULL)
    for at in (FULL, FREE + SECOND, FREE + 2 * SECOND, FREE + SECOND + GRACE):
        await store.charge("org_1", Peek(PATIENT.windows), at)
    await store.admit(other, 2, BOOK, FREE + SECOND)


@alone("P4", "admission")
async def units_that_no_caller_fetches_are_free_after_the_grace(
    store: Store, factory: Factory
) -> None:
    one, other, third = await filled(store, factory, 3)
    await store.admit(one, 1, BOOK, FULL)
    await store.admit(other, 1, BOOK, FREE + GRACE - 1)
    for token in (other, third, one):
        await store.admit(token, 1, BOOK, FREE + GRACE)


@alone("P4", "admission")
async def a_clock_that_steps_back_leaves_no_promise_longer(store: Store, factory: Factory) -> None:
    one, other = await filled(store, factory, 2)
    await store.admit(one, 1, BOOK, FULL)
    back = FULL - 2 * MINUTE
    await store.admit(other, 1, BOOK, back)
    for at in (back + MINUTE - SECOND, back + MINUTE, back + MINUTE + 40 * SECOND + GRACE):
        await store.admit(other, 1, BOOK, at)


@alone("P4", "admission")
async def a_key_gets_no_more_than_it_leaves_to_others(store: Store, factory: Factory) -> None:
    rude, polite = await filled(store, factory, 2)
    for token in (*(7 * [rude]), polite, rude, polite):
        await store.admit(token, 1, BOOK, FULL)
    for cost in (3, 2):
        await store.admit(polite, cost, BOOK, FULL)
    for at in (FULL + SECOND, FREE):
        await store.admit(rude, 1, BOOK, at)


@alone("P4", "admission")
async def promises_are_at_most_256(store: Store, factory: Factory) -> None:
    made = await tokens(store, factory, 4)
    await store.charge("org_1", Hit(BUSY.windows, 1000), NOW)
    await store.put_organization(Organization("org_1", "busy"))
    for place in range(260):
        await store.admit(made[place % 4], 1, BOOK, FULL)
    await store.admit(made[0], 1, BOOK, FREE)


@alone("P4", "admission")
async def a_cost_above_the_limit_and_another_plan_get_no_promise(
    store: Store, factory: Factory
) -> None:
    one, other = await filled(store, factory, 2)
    await store.admit(one, 11, BOOK, FULL)
    await store.put_organization(Organization("org_1", "plain"))
    await store.admit(one, 1, BOOK, FULL)
    await store.admit(other, 1, BOOK, FREE)


@alone("P1", "admission")
async def no_window_is_over_whatever_is_promised(store: Store, factory: Factory) -> None:
    one, other = await filled(store, factory, 2)
    for token in (one, other):
        await store.admit(token, 1, BOOK, FULL)
    await store.put_organization(Organization("org_1", "less"))
    await store.admit(one, 1, BOOK, FREE)
    for second in range(8):
        await store.admit(other, 1, BOOK, FREE + second * SECOND)


@alone("W2", "admission")
async def a_reset_drops_promises(store: Store, factory: Factory) -> None:
    one, other, third = await filled(store, factory, 3)
    for token in (one, other):
        await store.admit(token, 5, BOOK, FULL)
    await store.charge("org_1", Reset(), FULL)
    await store.admit(third, 10, BOOK, FREE)


@alone("W8", "admission")
async def a_promise_keeps_no_unit_of_another_organization(store: Store, factory: Factory) -> None:
    one, _ = await filled(store, factory, 2)
    _, other = await filled(store, factory, 2, "Org_1")
    await store.admit(one, 1, BOOK, FULL)
    await store.admit(other, 1, BOOK, FREE)


@alone("H5", "quota_leases")
async def no_lease_is_granted_beside_promises(store: Store, factory: Factory) -> None:
    one, other = await tokens(store, factory, 2)
    await store.put_organization(Organization("org_1", "busy"))
    for place in range(4):
        await store.admit(one, 250, BOOK, NOW + place * SECOND)
    lease = LeaseRequest("0" * 16, 10, SECOND)
    await store.admit(other, 1, BOOK, FULL, lease=lease)
    await store.admit(one, 1, BOOK, FREE, lease=lease)
    await store.charge("org_1", LeasesOut(), FREE)
    await store.admit(one, 1, BOOK, FREE + GRACE, lease=lease)


CHECKS: tuple[Check, ...] = (
    refused_keys_get_a_second_each_and_find_their_units,
    a_promise_serves_one_call_of_its_key,
    calls_without_a_key_leave_what_is_promised,
    a_newcomer_is_admitted_if_every_promise_still_fits,
    reading_says_what_is_left_beside_promises,
    units_that_no_caller_fetches_are_free_after_the_grace,
    a_clock_that_steps_back_leaves_no_promise_longer,
    a_key_gets_no_more_than_it_leaves_to_others,
    promises_are_at_most_256,
    a_cost_above_the_limit_and_another_plan_get_no_promise,
    no_window_is_over_whatever_is_promised,
    a_reset_drops_promises,
    a_promise_keeps_no_unit_of_another_organization,
    no_lease_is_granted_beside_promises,
)
