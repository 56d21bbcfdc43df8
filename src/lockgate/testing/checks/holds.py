"""Holds: taken, renewed and settled, under every window of several limits (D41)."""

from collections.abc import Sequence
from datetime import UTC, datetime

from ...core.holds import Look, Renew, Settle, Take, budgets
from ...core.leases import to_acquire, to_release
from ...core.ledger import Hit, Peek, Reset
from ...core.limit_hits import FIELDS_AT_MOST
from ...core.limit_windows import LimitWindows
from ...core.limits import Limit, bound
from ...core.timestamps import DAY, HOUR, MINUTE, SECOND
from ...stores.base import Store
from ..factories import HOSTILE, NOW, OPEN, Factory
from .callers import Callers
from .check import Check, alone, crowded
from .limits import IDS_ALIKE, NAMES

TOKENS = Limit("tokens", "100/minute;150/hour", resolution=None)
IMAGES = Limit("images", "10/hour", by="key")
MONTH = Limit("credits", "100/month")
MARCH = int(datetime(2024, 3, 1, tzinfo=UTC).timestamp()) * SECOND
KEYS = ("00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002")
MOST = 1_000
_FIELDS_AT_ONCE = 250


def id_of(number: int) -> str:
    return f"{number:032x}"


def of(*limits: Limit, key: str = KEYS[0]) -> LimitWindows:
    windows = bound(limits, key)
    assert windows is not None, "there is a limit"
    return budgets(windows)


def take(id: int, limits: LimitWindows, *units: int, span: int = MINUTE, most: int = MOST) -> Take:
    """Take these units of each window, or the only number of all of them."""
    each = units if len(units) > 1 else units * len(limits.fields)
    return Take(id_of(id), limits, each, span, most)


def settle(id: int, limits: LimitWindows, *used: int | None) -> Settle:
    each = used if len(used) > 1 else used * len(limits.fields)
    return Settle(id_of(id), limits.fields, each, limits.quotas)


def renew(id: int, limits: LimitWindows, span: int = MINUTE) -> Renew:
    return Renew(id_of(id), limits.fields, span, limits.quotas)


def look(limits: LimitWindows, units: int = 1, most: int = MOST) -> Look:
    return Look(limits, (units,) * len(limits.fields), most)


@alone("H1", "holds")
async def units_that_are_held_are_counted_in_full(store: Store, __: Factory) -> None:
    tokens = of(TOKENS)
    await store.charge("org_1", take(1, tokens, 60), NOW)
    await store.charge("org_1", take(2, tokens, 41), NOW + 1)
    await store.charge("org_1", take(3, tokens, 40), NOW + 1)
    await store.charge("org_1", take(4, tokens, 1), NOW + MINUTE - 1)


@alone("H1", "holds")
async def budgets_are_read_without_a_change(store: Store, __: Factory) -> None:
    both = of(TOKENS, IMAGES)
    await store.charge("org_1", look(both), NOW)
    await store.charge("org_1", take(1, both, 60, 60, 3), NOW)
    await store.charge("org_1", take(2, both, 20, 20, 2), NOW)
    await store.charge("org_1", settle(2, both, 5), NOW + 1)
    for later in (1, MINUTE - 1, MINUTE, 2 * MINUTE, HOUR + MINUTE, -SECOND, SECOND):
        await store.charge("org_1", look(both), NOW + later)
    await store.charge("org_2", look(both), NOW)
    await store.charge("org_1", settle(1, both, 1), NOW + 2)


@alone("H4", "holds")
async def units_that_were_not_used_are_free_at_once(store: Store, __: Factory) -> None:
    tokens = of(TOKENS)
    await store.charge("org_1", take(1, tokens, 100), NOW)
    await store.charge("org_1", settle(1, tokens, 30), NOW + SECOND)
    await store.charge("org_1", take(2, tokens, 71), NOW + SECOND)
    await store.charge("org_1", take(3, tokens, 70), NOW + SECOND)
    await store.charge("org_1", settle(3, tokens, 0), NOW + SECOND)
    await store.charge("org_1", take(4, tokens, 70), NOW + SECOND)


@alone("H1", "holds")
async def used_units_are_counted_from_the_settling_on(store: Store, __: Factory) -> None:
    tokens = of(TOKENS)
    await store.charge("org_1", take(1, tokens, 100, span=HOUR), NOW)
    await store.charge("org_1", settle(1, tokens, None), NOW + 30 * SECOND)
    await store.charge("org_1", take(2, tokens, 1), NOW + 90 * SECOND - 1)
    await store.charge("org_1", take(3, tokens, 50), NOW + 90 * SECOND)


@alone("H3", "holds")
async def a_hold_is_settled_once(store: Store, __: Factory) -> None:
    tokens = of(TOKENS)
    await store.charge("org_1", take(1, tokens, 60), NOW)
    for used in (20, 10, None, 0):
        await store.charge("org_1", settle(1, tokens, used), NOW + 1)
    await store.charge("org_1", renew(1, tokens), NOW + 1)
    await store.charge("org_1", take(2, tokens, 80), NOW + 1)


@alone("H3", "holds")
async def a_hold_is_taken_once(store: Store, __: Factory) -> None:
    tokens = of(TOKENS)
    for later in range(3):
        await store.charge("org_1", take(1, tokens, 60), NOW + later)
    await store.charge("org_1", settle(1, tokens, 60), NOW + 3)
    await store.charge("org_1", take(2, tokens, 40), NOW + 3)


@alone("H2", "holds")
async def a_hold_is_used_in_full_at_its_deadline(store: Store, __: Factory) -> None:
    tokens = of(TOKENS)
    for organization, late in (("org_1", settle(1, tokens, 0)), ("org_2", renew(1, tokens))):
        await store.charge(organization, take(1, tokens, 100), NOW)
        await store.charge(organization, late, NOW + MINUTE)
        await store.charge(organization, take(2, tokens, 1), NOW + 2 * MINUTE - 1)
        await store.charge(organization, take(3, tokens, 50), NOW + 2 * MINUTE)


@alone("H2", "holds")
async def a_renewed_hold_lasts_from_its_renewal(store: Store, __: Factory) -> None:
    tokens = of(TOKENS)
    await store.charge("org_1", take(1, tokens, 100), NOW)
    for step in range(1, 4):
        await store.charge("org_1", renew(1, tokens), NOW + step * 40 * SECOND)
    await store.charge("org_1", settle(1, tokens, 10), NOW + 3 * MINUTE - 1)
    await store.charge("org_1", take(2, tokens, 90, span=SECOND), NOW + 3 * MINUTE - 1)
    await store.charge("org_1", renew(2, tokens, span=HOUR), NOW + 3 * MINUTE)
    await store.charge("org_1", settle(2, tokens, 10), NOW + HOUR)
    # A renewal may shorten a hold.
    await store.charge("org_2", take(1, tokens, 100, span=HOUR), NOW)
    await store.charge("org_2", renew(1, tokens, span=SECOND), NOW + 1)
    await store.charge("org_2", look(tokens), NOW + SECOND)
    await store.charge("org_2", settle(1, tokens, 10), NOW + 1 + SECOND)


@alone("W6", "holds")
async def the_wait_suffices_if_all_is_used(store: Store, __: Factory) -> None:
    tokens, now = of(TOKENS, IMAGES), NOW
    for step, units in enumerate((30, 40, 20, 25, 60, 35, 90, 15)):
        asked = take(step, tokens, units, units, step % 4 + 1, span=(step % 3 + 1) * 20 * SECOND)
        answer = await store.charge("org_1", asked, now)
        if not answer.done:
            await store.charge("org_1", asked, now + answer.wait - 1)
            now += answer.wait
            await store.charge("org_1", asked, now)
        if step % 3 == 0:
            await store.charge("org_1", settle(step, tokens, units // 2, None, 1), now + SECOND)
        now += 7 * SECOND


@alone("W9", "holds")
async def several_budgets_are_taken_together(store: Store, __: Factory) -> None:
    both = of(TOKENS, IMAGES)
    await store.charge("org_1", take(1, both, 60, 60, 9), NOW)
    await store.charge("org_1", take(2, both, 40, 40, 2), NOW)
    await store.charge("org_1", take(3, both, 41, 41, 1), NOW)
    await store.charge("org_1", take(4, of(TOKENS), 40), NOW)
    await store.charge("org_1", settle(1, both, 5, None, 0), NOW)
    await store.charge("org_1", take(5, both, 1, 1, 10), NOW)


@alone("H3", "holds")
async def an_overrun_is_counted_as_it_was(store: Store, __: Factory) -> None:
    tokens = of(TOKENS)
    await store.charge("org_1", take(1, tokens, 10), NOW)
    await store.charge("org_1", take(2, tokens, 20), NOW)
    await store.charge("org_1", settle(1, tokens, 2**53 - 1), NOW)
    await store.charge("org_1", settle(2, tokens, 3), NOW)
    await store.charge("org_1", take(3, tokens, 1), NOW + HOUR - 1)
    await store.charge("org_1", take(3, tokens, 1), NOW + HOUR)


@alone("W2", "holds")
async def units_above_a_limit_wait_its_whole_window(store: Store, __: Factory) -> None:
    await store.charge("org_1", take(1, of(TOKENS), 151), NOW)
    await store.charge("org_1", take(2, of(TOKENS), 101), NOW)
    await store.charge("org_1", take(3, of(TOKENS), 100), NOW)


@alone("W8", "holds")
async def each_subject_has_budgets_of_its_own(store: Store, __: Factory) -> None:
    for step, key in enumerate((*KEYS, *KEYS)):
        await store.charge("org_1", take(step, of(IMAGES, key=key), 6), NOW)
    await store.charge("org_2", take(1, of(IMAGES), 10), NOW)
    await store.charge("org_2", settle(0, of(IMAGES), 0), NOW)
    await store.charge("org_1", settle(0, of(IMAGES), 0), NOW)


@alone("W8", "holds")
async def names_that_look_alike_have_separate_budgets(store: Store, __: Factory) -> None:
    """Each limit has its own number of units, and each key, with the longest names of limits."""
    limits = [Limit(name, "99/hour") for name in NAMES]
    limits += [Limit("a1", "99/minute"), Limit("a", "99/160 seconds")]
    every = of(*limits)
    await store.charge("org_1", take(1, every, *range(1, len(every.fields) + 1)), NOW)
    for number, limit in enumerate(limits, 2):
        await store.charge("org_1", take(number, of(limit), 1), NOW)
    await store.charge("org_1", look(every), NOW)
    long = Limit("k" * 64, "99/hour;999/day", by="key")
    for number, key in enumerate(IDS_ALIKE, 100):
        await store.charge("org_1", take(number, of(long, key=key), number - 99), NOW)
    for key in IDS_ALIKE:
        await store.charge("org_1", look(of(long, key=key)), NOW)


@alone("W8", "holds")
async def hostile_ids_have_separate_budgets(store: Store, __: Factory) -> None:
    for index, organization in enumerate(HOSTILE):
        await store.charge(organization, take(1, of(TOKENS), 10 + index), NOW)
    for organization in HOSTILE:
        await store.charge(organization, settle(1, of(TOKENS), 5), NOW)


@alone("W8", "holds")
async def a_rules_limit_of_the_same_name_is_another_count(store: Store, __: Factory) -> None:
    named = bound((TOKENS,), None)
    await store.charge("org_1", take(1, of(TOKENS), 100), NOW)
    await store.charge("org_1", Hit(OPEN.windows, 90, named), NOW)
    await store.charge("org_1", settle(1, of(TOKENS), 50), NOW)
    await store.charge("org_1", Peek(OPEN.windows, named), NOW)


@alone("W13", "holds")
async def another_number_keeps_what_is_held_and_used(store: Store, __: Factory) -> None:
    for step, rates in enumerate(
        ("100/minute", "50/minute", "120/minute;90/hour", "200/60 minutes")
    ):
        tokens = of(Limit("tokens", rates))
        await store.charge("org_1", take(step, tokens, 40), NOW + step)
        await store.charge("org_1", settle(step, tokens, 30), NOW + step)
        await store.charge("org_1", take(10 + step, tokens, 15), NOW + step)


@alone("W11", "holds")
async def holds_survive_a_clock_that_steps_back(store: Store, __: Factory) -> None:
    tokens = of(TOKENS)
    await store.charge("org_1", take(1, tokens, 40), NOW)
    await store.charge("org_1", settle(1, tokens, 20), NOW + 10)
    await store.charge("org_1", take(2, tokens, 50), NOW + SECOND)
    await store.charge("org_1", take(3, tokens, 31), NOW - HOUR)
    await store.charge("org_1", take(4, tokens, 30), NOW - HOUR + 1)
    await store.charge("org_1", settle(2, tokens, 5), NOW - HOUR + MINUTE - 1)
    await store.charge("org_1", settle(4, tokens, 5), NOW - HOUR + MINUTE + 1)
    await store.charge("org_1", take(5, tokens, 50), NOW - 2 * DAY)
    await store.charge("org_1", take(6, tokens, 90), NOW - DAY)


@alone("W14", "holds")
async def many_settled_holds_share_cells(store: Store, __: Factory) -> None:
    """After 64 instants, neighbours less than a grain apart leave together (D21)."""
    now, many = NOW, of(Limit("many", "9000/minute", resolution=1), Limit("all", "9000/15 minutes"))
    for step in range(90):
        now += (step % 7) * 200_000
        await store.charge("org_1", take(step, many, step % 9 + 1, span=MINUTE), now)
        if step % 3:
            await store.charge("org_1", settle(step - step % 2, many, step % 5), now)
    leaving = range(14 * MINUTE, 16 * MINUTE, 4 * SECOND)
    for later in (*range(0, 14 * MINUTE, 55 * SECOND), *leaving, 3 * MINUTE, -MINUTE):
        await store.charge("org_1", renew(500, many), now + later)
        await store.charge("org_1", take(501, many, 9000), now + later)


@alone("H1", "holds")
async def a_hold_of_a_quota_counts_in_the_present_month(store: Store, __: Factory) -> None:
    """Held units count in full in each month; used ones in the month in which they are settled."""
    month = of(MONTH)
    for step in range(3):
        await store.charge("org_1", take(step, month, 30, span=HOUR), MARCH - MINUTE)
    await store.charge("org_1", settle(0, month, 25), MARCH - 1)
    await store.charge("org_1", take(3, month, 16, span=HOUR), MARCH - 1)
    await store.charge("org_1", take(4, month, 15, span=MINUTE), MARCH - 1)
    for at in (MARCH - 1, MARCH, MARCH - 1):
        await store.charge("org_1", look(month), at)
    await store.charge("org_1", settle(1, month, 70), MARCH)
    await store.charge("org_1", take(5, month, 1), MARCH)
    await store.charge("org_1", settle(2, month, None), MARCH + 1)
    for at in (MARCH + 1, MARCH - 1, MARCH + HOUR, MARCH + 31 * DAY - 1, MARCH + 31 * DAY):
        await store.charge("org_1", look(month), at)
        await store.charge("org_1", take(5, month, 1, span=SECOND), at)


@alone("H2", "holds")
async def a_hold_past_its_deadline_is_used_in_the_month_of_the_deadline(
    store: Store, __: Factory
) -> None:
    both = of(MONTH, Limit("day", "100/calendar day", zone="Asia/Tokyo"), TOKENS)
    for organization, late in (("org_1", settle(1, both, 0)), ("org_2", renew(1, both))):
        await store.charge(organization, take(1, both, 40, span=MINUTE), MARCH - MINUTE - 1)
        await store.charge(organization, take(2, both, 50, span=MINUTE), MARCH - MINUTE)
        await store.charge(organization, late, MARCH + 1)
        await store.charge(organization, take(3, both, 60), MARCH + MINUTE)
        await store.charge(organization, look(both), MARCH - 1)
        await store.charge(organization, take(4, both, 50), MARCH + 40 * DAY)
        await store.charge(organization, settle(4, both, None), MARCH + 80 * DAY)


@alone("W6", "holds")
async def a_full_quota_waits_for_the_end_of_its_month(store: Store, __: Factory) -> None:
    month = of(MONTH)
    await store.charge("org_1", take(1, month, 60, span=HOUR), MARCH - MINUTE)
    for step, units in ((2, 41), (3, 40), (4, 1), (5, 101)):
        await store.charge("org_1", take(step, month, units), MARCH - MINUTE)
    await store.charge("org_1", take(6, month, 41), MARCH)
    await store.charge("org_1", take(7, month, 1), MARCH)


@alone("W2", "holds")
async def a_soft_quota_takes_more_than_its_limit(store: Store, __: Factory) -> None:
    soft = of(Limit("overage", "100/month", soft=True))
    for step in range(4):
        await store.charge("org_1", take(step, soft, 70), MARCH + step)
        await store.charge("org_1", settle(step, soft, 60 + step), MARCH + step)
    for step in range(4):
        await store.charge("org_1", take(4 + step, soft, 2**53 - 1), MARCH + step)
    for step in range(4):
        await store.charge("org_1", settle(4 + step, soft, None), MARCH + 5)


@alone("W10", "holds")
async def holds_of_a_window_are_bounded(store: Store, __: Factory) -> None:
    tokens = of(TOKENS)
    for step in range(4):
        await store.charge("org_1", take(step, tokens, 1, most=3), NOW + step)
    await store.charge("org_1", settle(1, tokens, None), NOW + 4)
    await store.charge("org_1", take(5, tokens, 1, most=3), NOW + 4)
    await store.charge("org_1", take(6, tokens, 1, most=3), NOW + MINUTE)


@alone("W10", "holds")
async def budgets_are_bounded(store: Store, __: Factory) -> None:
    """An organization with as many budgets as may be has room for slots and no other budget."""
    await store.charge("org_1", to_acquire("job-1", "me", None, HOUR), NOW)
    for start in range(0, FIELDS_AT_MOST, _FIELDS_AT_ONCE):
        await store.charge("org_1", take(1, _subjects(start, _FIELDS_AT_ONCE), 1), NOW)
    for number in (0, FIELDS_AT_MOST - 1, FIELDS_AT_MOST):
        await store.charge("org_1", take(2, _subjects(number), 1), NOW + 1)
    await store.charge("org_1", to_release("job-1", "me"), NOW + 1)
    await store.charge("org_1", to_acquire("job-2", "me", None, HOUR), NOW + 1)
    await store.charge("org_2", take(2, _subjects(FIELDS_AT_MOST), 1), NOW + 1)
    await store.charge("org_1", Reset())
    await store.charge("org_1", settle(1, _subjects(0), None), NOW + 2)
    await store.charge("org_1", take(2, _subjects(FIELDS_AT_MOST), 1), NOW + 2)


def _subjects(start: int, number: int = 1) -> LimitWindows:
    return of(*(Limit(f"limit-{start + step}", "9/hour") for step in range(number)))


@alone("W2", "holds")
async def a_reset_removes_budgets_and_holds(store: Store, __: Factory) -> None:
    tokens = of(TOKENS, IMAGES)
    for organization in ("org_1", "org_2"):
        await store.charge(organization, take(1, tokens, 5), NOW)
    await store.charge("org_1", Reset())
    for organization in ("org_1", "org_2"):
        await store.charge(organization, settle(1, tokens, 2), NOW + 1)
        await store.charge(organization, take(2, tokens, 10), NOW + 1)


@crowded("H1", "holds")
async def callers_at_once_share_a_budget(crowd: Callers) -> None:
    store, limits = crowd.store, of(Limit("shared", "60/hour"), Limit("own", "90/hour"))

    async def work(index: int) -> Sequence[bool]:
        return [
            (await store.charge("org_1", take(10 * index + step, limits, 3), NOW)).done
            for step in range(4)
        ]

    taken = sum(done for part in await crowd.at_once(16, work) for done in part)
    crowd.see(taken <= 20, f"{3 * taken} units are held at one instant; the limit is 60.")
    crowd.see(taken == 20, f"{3 * taken} units are held; the limit is 60.", "W2")


@crowded("W3", "holds")
async def overlapping_holds_are_linearizable(crowd: Callers) -> None:
    limits = of(TOKENS, IMAGES)
    for turn in range(2):
        organization = f"org_{turn}"

        async def work(store: Store, index: int, organization: str = organization) -> None:
            mine = take(index % 3, limits, 40, 40, 3)
            for action in (mine, renew(index % 2, limits), settle(index % 3, limits, 20, None, 1)):
                await store.charge(organization, action, NOW + 31 * SECOND * (index % 2))

        await crowd.linearize(4, work)


CHECKS: tuple[Check, ...] = (
    units_that_are_held_are_counted_in_full,
    budgets_are_read_without_a_change,
    units_that_were_not_used_are_free_at_once,
    used_units_are_counted_from_the_settling_on,
    a_hold_is_settled_once,
    a_hold_is_taken_once,
    a_hold_is_used_in_full_at_its_deadline,
    a_renewed_hold_lasts_from_its_renewal,
    the_wait_suffices_if_all_is_used,
    several_budgets_are_taken_together,
    an_overrun_is_counted_as_it_was,
    units_above_a_limit_wait_its_whole_window,
    each_subject_has_budgets_of_its_own,
    names_that_look_alike_have_separate_budgets,
    hostile_ids_have_separate_budgets,
    a_rules_limit_of_the_same_name_is_another_count,
    another_number_keeps_what_is_held_and_used,
    holds_survive_a_clock_that_steps_back,
    many_settled_holds_share_cells,
    a_hold_of_a_quota_counts_in_the_present_month,
    a_hold_past_its_deadline_is_used_in_the_month_of_the_deadline,
    a_full_quota_waits_for_the_end_of_its_month,
    a_soft_quota_takes_more_than_its_limit,
    holds_of_a_window_are_bounded,
    budgets_are_bounded,
    a_reset_removes_budgets_and_holds,
    callers_at_once_share_a_budget,
    overlapping_holds_are_linearizable,
)
