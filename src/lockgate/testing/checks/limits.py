"""Named limits, beside the windows of a plan and without them (D40)."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import date

from ...core.api_keys import KeyDetails
from ...core.ledger import Hit, Peek, Reset
from ...core.limit_hits import FIELDS_AT_MOST
from ...core.limit_windows import LimitWindows
from ...core.limits import Limit, bound
from ...core.plans import PlanBook
from ...core.sliding_window import LARGEST
from ...core.thresholds import quota_crossings
from ...core.timestamps import DAY, HOUR, MINUTE, SECOND
from ...stores.answers import Verdict
from ...stores.base import Store
from ..factories import EXACT, HOSTILE, NARROW, NOW, OPEN, PLANS, Factory, book, minute
from .callers import Callers
from .check import Check, alone, crowded

EXPORT = Limit("export", "3/hour", resolution=None)
BY_KEY = Limit("export-key", "2 per minute", by="key")
TWO = Limit("two", "2/second;4/minute")
SEVERAL = (EXPORT, BY_KEY, TWO)
NAMES = (
    *("a-b", "a_b", "ab", "a--b", "a-b-", "a_b_", "b-a", "ac-b", "a", "a1", "a01", "a10"),
    *("x" * 64, "x" * 63 + "y", "x" * 63, "x" * 32 + "y" * 32, "x" * 32),
    *("plumless", "buckeroo", "an", "c0"),
)
"""Names of limits, alike but for their dashes, digits, ends or order; the words at the end have the
same CRC-32 or Java hash code in pairs."""
IDS = ("00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002")
IDS_ALIKE = (*IDS, "10000000-0000-4000-8000-000000000001", "00000000-0000-4000-8001-000000000001")
OWN = KeyDetails(limits=(("export", "2/hour"), ("own", "3/minute;9/day")))
FEBRUARY, MARCH = 1_706_745_600 * SECOND, 1_709_251_200 * SECOND
"""The first instants of two months of 2024."""
_FIELDS_AT_ONCE = 250


def limited(*limits: Limit) -> PlanBook:
    """Return a plan book whose default plan has named limits."""
    return PlanBook([replace(OPEN, limits=limits)], custom=(), default="open")


def of(*limits: Limit, key: str | None = IDS[0]) -> LimitWindows:
    windows = bound(limits, key)
    assert windows is not None, "there is a limit"
    return windows


async def hits(
    store: Store, times: int, now: int, limits: LimitWindows, cost: int = 1, plan: object = OPEN
) -> None:
    windows = plan.windows if isinstance(plan, type(OPEN)) else ()
    for _ in range(times):
        await store.charge("org_1", Hit(windows, cost, limits), now)


@alone("W1", "limits")
async def a_full_named_limit_refuses(store: Store, __: Factory) -> None:
    await hits(store, 4, NOW, of(EXPORT))
    await hits(store, 1, NOW + HOUR - 1, of(EXPORT))
    await hits(store, 4, NOW + HOUR, of(EXPORT))


@alone("W1", "limits")
async def each_window_of_a_named_limit_holds(store: Store, __: Factory) -> None:
    for at in (0, 0, 0, SECOND - 1, SECOND, SECOND, 2 * SECOND, 30 * SECOND, MINUTE, MINUTE + 1):
        await hits(store, 1, NOW + at, of(TWO))


@alone("W9", "limits")
async def a_refusal_by_a_named_limit_is_not_charged_to_any_window(
    store: Store, __: Factory
) -> None:
    await hits(store, 3, NOW, of(EXPORT))
    await hits(store, 3, NOW + SECOND, of(*SEVERAL))
    await store.charge("org_1", Peek(OPEN.windows, of(*SEVERAL)), NOW + SECOND)
    await hits(store, 2, NOW + SECOND, of(BY_KEY, TWO))


@alone("W9", "limits")
async def a_refusal_by_the_plan_is_not_charged_to_a_named_limit(store: Store, __: Factory) -> None:
    for _ in range(5):
        await store.charge("org_1", Hit(NARROW.windows, 1, of(Limit("many", "99/hour"))), NOW)
    await store.charge("org_1", Peek(NARROW.windows, of(Limit("many", "99/hour"))), NOW)


@alone("W4", "limits")
async def what_remains_is_told_of_the_plan_alone(store: Store, __: Factory) -> None:
    for step in range(4):
        await store.charge("org_1", Hit(EXACT.windows, 2, of(Limit("few", "7/day"))), NOW + step)
        await store.charge("org_1", Peek(EXACT.windows, of(Limit("few", "7/day"))), NOW + step)


@alone("W6", "limits")
async def the_longest_wait_is_told_and_suffices(store: Store, __: Factory) -> None:
    now = NOW
    for gap in (0, 7, SECOND, 11 * SECOND, MINUTE):
        now += gap
        for _ in range(5):
            reading = await store.charge("org_1", Hit(minute(4), 1, of(*SEVERAL)), now)
            if not reading.allowed:
                await store.charge("org_1", Hit(minute(4), 1, of(*SEVERAL)), now + reading.wait - 1)
                now += reading.wait


@alone("W2", "limits")
async def a_cost_above_a_named_limit_waits_its_whole_window(store: Store, __: Factory) -> None:
    await hits(store, 1, NOW, of(EXPORT), 4)
    await hits(store, 1, NOW, of(EXPORT), 3)
    await hits(store, 1, NOW + SECOND, of(EXPORT), 4)


@alone("W8", "limits")
async def each_subject_is_counted_by_itself(store: Store, __: Factory) -> None:
    for key in (*IDS, *IDS):
        for _ in range(2):
            await store.charge("org_1", Hit(OPEN.windows, 1, of(BY_KEY, key=key)), NOW)
    await store.charge("org_2", Hit(OPEN.windows, 1, of(BY_KEY)), NOW)
    await store.charge("org_1", Peek(OPEN.windows, of(EXPORT, BY_KEY, key=IDS[1])), NOW)


@alone("W8", "limits")
async def hostile_ids_have_separate_named_limits(store: Store, __: Factory) -> None:
    for index, organization in enumerate(HOSTILE):
        await store.charge(organization, Hit(OPEN.windows, index % 3 + 1, of(EXPORT)), NOW)
    for organization in HOSTILE:
        await store.charge(organization, Peek(OPEN.windows, of(EXPORT)), NOW)


@alone("W8", "limits")
async def names_that_look_alike_are_counted_apart(store: Store, __: Factory) -> None:
    """Each limit has its own number of hits, and each key, with the longest names of limits."""
    limits = [Limit(name, "99/hour") for name in NAMES]
    limits += [Limit("a1", "99/minute"), Limit("a", "99/160 seconds")]
    for start in range(len(limits)):
        await store.charge("org_1", Hit((), 1, of(*limits[start:])), NOW)
    await store.charge("org_1", Peek((), of(*limits)), NOW)
    long = Limit("k" * 64, "99/hour;999/day", by="key")
    for cost, key in enumerate(IDS_ALIKE, 1):
        await store.charge("org_1", Hit((), cost, of(long, key=key)), NOW)
    for key in IDS_ALIKE:
        await store.charge("org_1", Peek((), of(long, key=key)), NOW)


@alone("W13", "limits")
async def another_number_keeps_counted_hits(store: Store, __: Factory) -> None:
    for rates in ("3/hour", "2/hour", "5/hour", "1/hour;9/day", "4 per 60 minutes"):
        for _ in range(2):
            await store.charge("org_1", Hit(OPEN.windows, 1, of(Limit("export", rates))), NOW)


@alone("W5", "limits")
async def peeking_changes_no_named_limit(store: Store, __: Factory) -> None:
    await hits(store, 2, NOW, of(EXPORT))
    for later in (0, HOUR, 2 * DAY, -HOUR, 1):
        await store.charge("org_1", Peek(OPEN.windows, of(*SEVERAL)), NOW + later)
    await hits(store, 2, NOW + 1, of(EXPORT))


@alone("W9", "limits")
async def named_limits_are_charged_without_a_plan(store: Store, __: Factory) -> None:
    await hits(store, 2, NOW, of(EXPORT))
    await hits(store, 2, NOW + 1, of(EXPORT), plan=None)
    await store.charge("org_1", Peek((), of(EXPORT)), NOW + 1)
    await store.charge("org_1", Peek(OPEN.windows), NOW + 1)


@alone("W11", "limits")
async def a_named_limit_survives_a_clock_that_steps_back(store: Store, __: Factory) -> None:
    await hits(store, 2, NOW, of(*SEVERAL))
    await hits(store, 3, NOW - 30 * SECOND, of(EXPORT, TWO))
    await hits(store, 3, NOW - DAY, of(*SEVERAL))
    await hits(store, 1, NOW - DAY + HOUR - 1, of(*SEVERAL))
    await hits(store, 4, NOW - DAY + HOUR, of(*SEVERAL))


@alone("W11", "limits")
async def a_plan_is_not_locked_out_by_a_refused_named_limit(store: Store, __: Factory) -> None:
    """Both are full when the clock steps far back: each locks out for its own window only."""
    for _ in range(3):
        await store.charge("org_1", Hit(minute(3), 1, of(EXPORT)), NOW + 9 * DAY)
    await store.charge("org_1", Hit(minute(3), 1, of(EXPORT)), NOW)
    await store.charge("org_1", Hit(minute(3), 1), NOW + MINUTE)
    await store.charge("org_1", Hit(minute(3), 1, of(EXPORT)), NOW + HOUR)


@alone("W14", "limits")
async def many_hits_share_cells_of_a_named_limit(store: Store, __: Factory) -> None:
    """After 64 hits, neighbours less than a grain apart expire together (D21)."""
    now, many = NOW, of(Limit("many", "190/minute", resolution=1), Limit("all", "400/15 minutes"))
    for step in range(110):
        now += (step % 7) * 200_000
        await store.charge("org_1", Hit(OPEN.windows, step % 3 + 1, many), now)
    for later in (*range(14 * MINUTE, 15 * MINUTE, 9 * SECOND), 0, 30 * SECOND, MINUTE, -SECOND):
        await store.charge("org_1", Peek(OPEN.windows, many), now + later)
    for step in range(70):
        await store.charge("org_1", Hit(OPEN.windows, 1, many), now - SECOND + step)


@alone("W1", "limits")
async def a_calendar_quota_admits_its_limit_in_each_period(store: Store, __: Factory) -> None:
    """From a leap February on, at both sides of each boundary."""
    credits, day = of(Limit("credits", "3/month")), of(Limit("visits", "2/calendar day"))
    for begins in (FEBRUARY, MARCH, MARCH + 31 * DAY):
        await hits(store, 2, begins - 1, credits)
        await hits(store, 3, begins, credits)
        await store.charge("org_1", Peek(OPEN.windows, credits), begins - 1)
        await hits(store, 1, begins + 13 * DAY, credits)
        await hits(store, 3, begins + DAY - 1, day, plan=None)
        await hits(store, 3, begins + DAY, day)
        await store.charge("org_1", Peek((), credits), begins + 14 * DAY)


@alone("W6", "limits")
async def a_full_calendar_quota_waits_for_the_next_period(store: Store, __: Factory) -> None:
    both = of(Limit("credits", "2/month;1/hour"), Limit("all", "9/calendar week", by="key"))
    for at in (FEBRUARY, MARCH - 30 * MINUTE, MARCH - 1, MARCH, MARCH + HOUR):
        await store.charge("org_1", Hit(OPEN.windows, 1, both), at)
    await hits(store, 1, MARCH + HOUR, both, 3)


@alone("W13", "limits")
async def a_changed_calendar_quota_keeps_its_count(store: Store, __: Factory) -> None:
    for rates in ("3/month", "2/month", "5/month", "5/month;3/year"):
        await hits(store, 2, MARCH, of(Limit("credits", rates)))


@alone("W2", "limits")
async def a_soft_quota_counts_and_refuses_nothing(store: Store, __: Factory) -> None:
    soft = of(Limit("overage", "2/month", soft=True), EXPORT)
    await hits(store, 5, MARCH, soft)
    await hits(store, 2, MARCH + HOUR, soft)
    await store.charge("org_1", Peek((), soft), MARCH + HOUR)
    await hits(store, 2, MARCH, of(Limit("overage", "2/month", soft=True)), LARGEST)


@alone("W11", "limits")
async def a_clock_that_steps_back_over_a_boundary_finds_the_count(
    store: Store, __: Factory
) -> None:
    credits = of(Limit("credits", "3/month"))
    for at in (MARCH - 1, MARCH, MARCH - SECOND, MARCH, MARCH - 1, MARCH + 1, MARCH):
        await hits(store, 1, at, credits)


@alone("W8", "limits")
async def each_organization_has_the_periods_of_its_contract(store: Store, __: Factory) -> None:
    contracts = {"org_1": date(2023, 8, 31), "org_2": date(2022, 5, 10)}
    by_contract = of(
        Limit("credits", "2/month", starts=contracts.__getitem__, zone="Europe/Berlin")
    )
    for at in (FEBRUARY, FEBRUARY + 9 * DAY, MARCH - DAY, MARCH - HOUR, MARCH + 9 * DAY):
        for organization in contracts:
            await store.charge(organization, Hit(OPEN.windows, 1, by_contract), at)


@alone("W10", "limits")
async def the_count_of_an_idle_month_stays(store: Store, __: Factory) -> None:
    """A month without a hit, though others come and go, drops nothing of it."""
    credits = of(Limit("credits", "3/month"))
    await hits(store, 2, MARCH, credits)
    for step in range(1, 31):
        await hits(store, 1, MARCH + step * DAY, _subjects(step))
        await store.charge("org_2", Hit(OPEN.windows, 1, of(EXPORT)), MARCH + step * DAY)
    await hits(store, 2, MARCH + 31 * DAY - 1, credits)


@alone("W9", "limits")
async def an_admission_is_charged_to_calendar_quotas(store: Store, factory: Factory) -> None:
    made = factory.key()
    details = KeyDetails(limits=(("own", "2/month"),))
    await store.insert(factory.draft(key=made, details=details), None, MARCH - DAY)
    plans = limited(Limit("credits", "3/month", zone="Asia/Tokyo"))
    for at in (MARCH - DAY, MARCH - 1, MARCH - 1, MARCH, MARCH + 1, MARCH + 2):
        await store.admit(factory.token(made), 1, plans, at, None, (EXPORT,))


@alone("W2", "limits")
async def a_reset_empties_named_limits(store: Store, __: Factory) -> None:
    await hits(store, 4, NOW, of(*SEVERAL))
    await store.charge("org_2", Hit(OPEN.windows, 3, of(EXPORT)), NOW)
    await store.charge("org_1", Reset())
    await hits(store, 2, NOW + 1, of(*SEVERAL))
    await store.charge("org_2", Hit(OPEN.windows, 1, of(EXPORT)), NOW + 1)


@alone("W10", "limits")
async def fields_are_bounded(store: Store, __: Factory) -> None:
    """An organization with as many subjects as may be has no room for another one."""
    for start in range(0, FIELDS_AT_MOST, _FIELDS_AT_ONCE):
        await store.charge("org_1", Hit((), 1, _subjects(start, _FIELDS_AT_ONCE)), NOW)
    for number in (0, FIELDS_AT_MOST - 1, FIELDS_AT_MOST):
        await store.charge("org_1", Hit(OPEN.windows, 1, _subjects(number)), NOW + 1)
    await store.charge("org_2", Hit(OPEN.windows, 1, _subjects(FIELDS_AT_MOST)), NOW + 1)
    await store.charge("org_1", Reset())
    await store.charge("org_1", Hit(OPEN.windows, 1, _subjects(FIELDS_AT_MOST)), NOW + 2)


def _subjects(start: int, number: int = 1) -> LimitWindows:
    return of(*(Limit(f"limit-{start + step}", "9/hour") for step in range(number)))


@alone("W9", "limits")
async def an_admission_is_charged_to_named_limits(store: Store, factory: Factory) -> None:
    made = [factory.key() for _ in range(2)]
    for key in made:
        await store.insert(factory.draft(key=key, lifetime=DAY), None, NOW)
    for step, cost in enumerate((1, 1, 1, 2)):
        for key in made:
            await store.admit(factory.token(key), cost, PLANS, NOW + step, None, SEVERAL)
    for key in made:
        await store.admit(factory.token(key), 1, book(None), NOW + MINUTE, None, SEVERAL)
        await store.admit(factory.token(key), 1, book(None), NOW + MINUTE)
        await store.find(key.handle)


@alone("K4", "limits")
async def a_revoked_key_is_not_charged_to_named_limits(store: Store, factory: Factory) -> None:
    made = [factory.key() for _ in range(2)]
    keys = [await store.insert(factory.draft(key=key, lifetime=DAY), None, NOW) for key in made]
    for key in made:
        await store.admit(factory.token(key), 1, PLANS, NOW, None, (EXPORT,))
    await store.revoke_if_live("org_1", keys[0].id, NOW)
    for now in (NOW, NOW + DAY):
        for key in made:
            await store.admit(factory.token(key), 1, PLANS, now, None, (EXPORT,))
    await store.charge("org_1", Peek(PLANS.default.windows, of(EXPORT)), NOW + DAY)


@alone("W9", "limits")
async def an_admission_is_charged_to_the_limits_of_its_plan(store: Store, factory: Factory) -> None:
    made, plans = [factory.key() for _ in range(2)], limited(EXPORT, BY_KEY)
    for key in made:
        await store.insert(factory.draft(key=key), None, NOW)
    for step in range(3):
        for key in made:
            await store.admit(factory.token(key), 1, plans, NOW + step)
    for key in made:  # A limit that the rule names as well is charged once.
        await store.admit(factory.token(key), 1, plans, NOW + MINUTE, None, (BY_KEY, TWO))
        await store.admit(factory.token(key), 1, limited(), NOW + MINUTE)
        await store.admit(factory.token(key), 1, plans, NOW + HOUR)
    await store.charge("org_1", Peek(OPEN.windows, of(EXPORT, BY_KEY)), NOW + HOUR)


@alone("W13", "limits")
async def the_limits_of_a_plan_end_with_the_plan(store: Store, factory: Factory) -> None:
    """Back on the first plan, its limit goes on counting, and with another number as well."""
    made = factory.key()
    other, more = Limit("other", "9/hour"), replace(EXPORT, rates="5/hour")
    plans = PlanBook(
        [
            replace(OPEN, name="first", limits=(EXPORT,)),
            replace(OPEN, name="second"),
            replace(OPEN, name="third", limits=(other,)),
        ],
        custom=[],
        default="first",
    )
    await store.insert(factory.draft(key=made), None, NOW)
    for name in ("first", "second", "third", "first"):
        await store.put_organization(plans.place("org_1", name, {}))
        for step in range(4):
            await store.admit(factory.token(made), 1, plans, NOW + step)
    for step in range(3):
        await store.admit(factory.token(made), 1, limited(more), NOW + step)


@alone("W9", "limits")
async def an_admission_is_charged_to_the_limits_of_its_key(store: Store, factory: Factory) -> None:
    made = [factory.key() for _ in range(2)]
    for key in made:
        await store.insert(factory.draft(key=key, details=OWN), None, NOW)
    for step in range(3):
        for key in made:
            await store.admit(factory.token(key), 1, limited(), NOW + step)
    named = (replace(EXPORT, by="key"), TWO)  # Of the same name, and counted apart.
    for key in made:
        await store.admit(factory.token(key), 1, limited(), NOW + HOUR, None, named)
        await store.admit(factory.token(key), 1, limited(BY_KEY), NOW + HOUR)
        await store.admit(factory.token(key), 1, limited(BY_KEY), NOW + HOUR)


@alone("W13", "limits")
async def changed_limits_of_a_key_hold_from_the_next_admission_on(
    store: Store, factory: Factory
) -> None:
    made = factory.key()
    key = await store.insert(factory.draft(key=made), None, NOW)
    for step, limits in enumerate(((), (("own", "2/hour"),), (("own", "4/hour"),), ())):
        new = key._replace(details=KeyDetails(limits=limits).or_none())
        await store.update_if(key, new, NOW + step)
        for _ in range(3):
            await store.admit(factory.token(made), 1, limited(), NOW + step)
        key = new


@crowded("W1", "limits")
async def callers_at_once_share_the_limits_of_a_plan_and_a_key(crowd: Callers) -> None:
    store, made = crowd.store, [crowd.factory.key() for _ in range(2)]
    plans = limited(Limit("all", "30/hour"))
    details = KeyDetails(limits=(("own", "20/hour"),))
    for key, own in zip(made, (details, None), strict=True):
        await store.insert(crowd.factory.draft(key=key, details=own), None, NOW)

    async def work(index: int) -> Sequence[tuple[int, Verdict]]:
        which = int(index > 7)
        token = crowd.factory.token(made[which])
        return [(which, (await store.admit(token, 1, plans, NOW)).verdict) for _ in range(4)]

    told = [one for part in await crowd.at_once(16, work) for one in part]
    admitted = [which for which, verdict in told if verdict is Verdict.ADMITTED]
    crowd.see(len(admitted) <= 30, f"{len(admitted)} were admitted; the plan's limit is 30.")
    crowd.see(admitted.count(0) <= 20, f"{admitted.count(0)} of a key; its limit is 20.")
    crowd.see(len(admitted) == 30, f"{len(admitted)} were admitted; the limit is 30.", "W2")


@crowded("W1", "limits")
async def callers_at_once_cross_each_mark_of_a_quota_once(crowd: Callers) -> None:
    store, quota = crowd.store, Limit("credits", "40/month", soft=True)
    made = [crowd.factory.key() for _ in range(2)]
    for key in made:
        await store.insert(crowd.factory.draft(key=key), None, NOW)

    async def work(index: int) -> Sequence[int]:
        token = crowd.factory.token(made[index % 2])
        crossed: list[int] = []
        for cost in (1, 2, 1):
            admission = await store.admit(token, cost, book(None), NOW, None, (quota,))
            if admission.reading is not None and admission.limits is not None:
                used = admission.reading.used[-1:]
                crossed += (one.share for one in quota_crossings(admission.limits, used, cost))
        return crossed

    told = sorted(one for part in await crowd.at_once(16, work) for one in part)
    crowd.see(told == [80, 100], f"16 callers crossed the marks {told}, not each one once.")


@crowded("W1", "limits")
async def callers_at_once_share_a_named_limit(crowd: Callers) -> None:
    store, limits = crowd.store, (Limit("shared", "20/hour"), Limit("own", "90/hour", by="key"))
    made = [crowd.factory.key() for _ in range(2)]
    for key in made:
        await store.insert(crowd.factory.draft(key=key), None, NOW)

    async def work(index: int) -> Sequence[Verdict]:
        token = crowd.factory.token(made[index % 2])
        asked = token, 1, book(None), NOW, None, limits
        return [(await store.admit(*asked)).verdict for _ in range(4)]

    verdicts = [verdict for part in await crowd.at_once(16, work) for verdict in part]
    admitted = verdicts.count(Verdict.ADMITTED)
    crowd.see(admitted <= 20, f"{admitted} of 64 were admitted at one instant; the limit is 20.")
    crowd.see(admitted == 20, f"{admitted} of 64 were admitted; the limit is 20.", "W2")


@crowded("W3", "limits")
async def overlapping_hits_of_named_limits_are_linearizable(crowd: Callers) -> None:
    for turn in range(2):
        organization = f"org_{turn}"

        async def work(store: Store, index: int, organization: str = organization) -> None:
            for step in range(3):
                now, key = NOW + step * 31 * SECOND + index % 2, IDS[index % 2]
                await store.charge(
                    organization, Hit(minute(9), step % 3 + 1, of(*SEVERAL, key=key)), now
                )

        await crowd.linearize(4, work)


CHECKS: tuple[Check, ...] = (
    a_full_named_limit_refuses,
    each_window_of_a_named_limit_holds,
    a_refusal_by_a_named_limit_is_not_charged_to_any_window,
    a_refusal_by_the_plan_is_not_charged_to_a_named_limit,
    what_remains_is_told_of_the_plan_alone,
    the_longest_wait_is_told_and_suffices,
    a_cost_above_a_named_limit_waits_its_whole_window,
    each_subject_is_counted_by_itself,
    names_that_look_alike_are_counted_apart,
    hostile_ids_have_separate_named_limits,
    another_number_keeps_counted_hits,
    peeking_changes_no_named_limit,
    named_limits_are_charged_without_a_plan,
    a_named_limit_survives_a_clock_that_steps_back,
    a_plan_is_not_locked_out_by_a_refused_named_limit,
    many_hits_share_cells_of_a_named_limit,
    a_calendar_quota_admits_its_limit_in_each_period,
    a_full_calendar_quota_waits_for_the_next_period,
    a_changed_calendar_quota_keeps_its_count,
    a_soft_quota_counts_and_refuses_nothing,
    a_clock_that_steps_back_over_a_boundary_finds_the_count,
    each_organization_has_the_periods_of_its_contract,
    the_count_of_an_idle_month_stays,
    an_admission_is_charged_to_calendar_quotas,
    callers_at_once_cross_each_mark_of_a_quota_once,
    a_reset_empties_named_limits,
    fields_are_bounded,
    an_admission_is_charged_to_named_limits,
    a_revoked_key_is_not_charged_to_named_limits,
    an_admission_is_charged_to_the_limits_of_its_plan,
    the_limits_of_a_plan_end_with_the_plan,
    an_admission_is_charged_to_the_limits_of_its_key,
    changed_limits_of_a_key_hold_from_the_next_admission_on,
    callers_at_once_share_the_limits_of_a_plan_and_a_key,
    callers_at_once_share_a_named_limit,
    overlapping_hits_of_named_limits_are_linearizable,
)
