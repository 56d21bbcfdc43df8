"""Windows, by one caller. Each check detects a well-known mistake."""

from dataclasses import replace
from typing import Any

from ...core.ledger import Hit, Peek, Reset
from ...core.plans import SPANS, Plan
from ...core.sliding_window import LARGEST, Window
from ...core.timestamps import DAY, HOUR, MINUTE, SECOND
from ...stores.base import Store
from ..factories import COARSE, EXACT, HOSTILE, NARROW, NOW, OPEN, Factory, minute
from .check import Check, alone

MIDNIGHT = NOW - NOW % DAY + DAY
"""The start of a calendar minute, hour and day."""
TEN = minute(10)


async def hits(
    store: Store, times: int, now: int, windows: tuple[Window, ...] = TEN, cost: int = 1
) -> None:
    for _ in range(times):
        await store.charge("org_1", Hit(windows, cost), now)


def limited(limit: str, number: int) -> Plan:
    """Return a plan with one limit, such as ``rpd``."""
    limits: dict[str, Any] = {limit: number}
    return replace(OPEN, **limits)


@alone("W2", "windows")
async def a_cost_that_fits_is_admitted(store: Store, _: Factory) -> None:
    for step in range(3):
        await store.charge("org_1", Hit(EXACT.windows, 1), NOW + step * SECOND)


@alone("W1", "windows")
async def a_full_window_refuses(store: Store, _: Factory) -> None:
    await hits(store, 11, NOW)


@alone("W1", "windows")
async def a_limit_of_zero_admits_no_request(store: Store, _: Factory) -> None:
    """Zero is not the same as no limit, although both are falsy."""
    await hits(store, 2, NOW, minute(0))
    await store.charge("org_1", Peek(minute(0)), NOW)
    await hits(store, 1, NOW, minute(None))


@alone("W1", "windows")
async def a_full_window_refuses_across_the_full_minute_hour_and_day(
    store: Store, _: Factory
) -> None:
    """Fixed windows admit twice their limit around a full minute."""
    await hits(store, 10, MIDNIGHT - SECOND)
    await hits(store, 1, MIDNIGHT)
    await hits(store, 1, MIDNIGHT + 58 * SECOND)


@alone("W1", "windows")
async def a_full_window_refuses_while_its_weight_falls(store: Store, _: Factory) -> None:
    """Detects two weighted counters, an approximation of a sliding window."""
    await hits(store, 10, MIDNIGHT - 1)
    await hits(store, 3, MIDNIGHT + 30 * SECOND)


@alone("W1", "windows")
async def a_burst_does_not_drain_before_its_time(store: Store, _: Factory) -> None:
    """Detects a leaky bucket with a burst (GCRA), which admits twice the limit in one window."""
    await hits(store, 10, NOW)
    for step in range(1, 10):
        await hits(store, 1, NOW + step * 6 * SECOND)


@alone("W2", "windows")
async def a_hit_leaves_when_it_is_as_old_as_the_window(store: Store, _: Factory) -> None:
    """The window is half-open: a hit exactly its length ago no longer counts."""
    await hits(store, 10, NOW)
    await hits(store, 10, NOW + MINUTE)


@alone("W1", "windows")
async def a_hit_counts_until_it_is_as_old_as_the_window(store: Store, _: Factory) -> None:
    await hits(store, 10, NOW)
    await hits(store, 1, NOW + MINUTE - 1)


@alone("W1", "windows")
async def a_full_window_of_any_length_refuses_to_its_end(store: Store, _: Factory) -> None:
    """Detects a store that drops idle states before the longest window of a plan has passed."""
    for limit, (name, span) in SPANS.items():
        windows = limited(limit, 3).windows
        await store.charge(f"org_{name}", Hit(windows, 3), NOW)
        for part in range(1, 5):  # Calls of others make a store drop what it takes for idle.
            await store.charge("org_1", Hit(windows, 1), NOW + part * span // 5)
        await store.charge(f"org_{name}", Hit(windows, 1), NOW + span - 1)
        await store.charge(f"org_{name}", Hit(windows, 1), NOW + span)


@alone("W2", "windows")
async def a_hit_is_charged_its_cost(store: Store, _: Factory) -> None:
    for cost in (4, 5, 1, 1):
        await store.charge("org_1", Hit(TEN, cost), NOW)
    await store.charge("org_2", Hit(TEN, 10), NOW)


@alone("W7", "windows")
async def a_refused_call_costs_nothing(store: Store, _: Factory) -> None:
    await hits(store, 10, NOW)
    for step in range(1, 6):
        await hits(store, 1, NOW + step * SECOND)
    await store.charge("org_1", Peek(TEN), NOW + 6 * SECOND)
    await hits(store, 2, NOW + MINUTE + SECOND)
    await store.charge("org_2", Hit(TEN, 11), NOW)
    await store.charge("org_2", Hit(TEN, 10), NOW)


@alone("W9", "windows")
async def a_refusal_by_one_window_is_not_charged_to_the_others(store: Store, _: Factory) -> None:
    await hits(store, 5, NOW, NARROW.windows)
    await store.charge("org_1", Peek(NARROW.windows), NOW)
    await hits(store, 5, NOW + MINUTE, NARROW.windows)
    await store.charge("org_1", Peek(NARROW.windows), NOW + MINUTE)
    await hits(store, 5, NOW + HOUR, NARROW.windows)
    await store.charge("org_1", Peek(NARROW.windows), NOW + HOUR)


@alone("W4", "windows")
async def remaining_falls_by_the_cost(store: Store, _: Factory) -> None:
    windows = Plan("p", rpm=20, rph=30, rpd=40, concurrent=1).windows
    await store.charge("org_1", Peek(windows), NOW)
    for step, cost in enumerate((1, 2, 3, 5, 8)):
        await store.charge("org_1", Hit(windows, cost), NOW + step)
        await store.charge("org_1", Peek(windows), NOW + step)


@alone("W6", "windows")
async def a_call_after_the_told_wait_is_admitted(store: Store, __: Factory) -> None:
    now = NOW
    for gap in (0, 3 * SECOND + 7, 11 * SECOND, MINUTE, HOUR + 1, DAY):
        now += gap
        for _ in range(8):
            reading = await store.charge("org_1", Hit(NARROW.windows, 1), now)
            if not reading.allowed:
                await store.charge("org_1", Hit(NARROW.windows, 1), now + reading.wait - 1)
                now += reading.wait


@alone("W6", "windows")
async def a_microsecond_is_not_rounded_away(store: Store, _: Factory) -> None:
    """Detects seconds as floating-point numbers, which are too coarse for microseconds."""
    for micros in (1, 2, 3, 5, 7, 11, 13, 17, 19, 23):
        await hits(store, 1, NOW + micros)
    for micros in (1, 2, 3, 5, 7):
        await hits(store, 1, NOW + MINUTE + micros - 1)
        await hits(store, 1, NOW + MINUTE + micros)


@alone("W2", "windows")
async def the_largest_limit_is_exact(store: Store, _: Factory) -> None:
    windows = minute(LARGEST)
    await hits(store, 1, NOW, windows, LARGEST - 1)
    await hits(store, 2, NOW + 1, windows)
    for step, cost in enumerate((5, 1, LARGEST)):  # The sum exceeds the precision of a double.
        await store.charge("org_2", Hit(windows, cost), NOW + step)


@alone("W2", "windows")
async def a_window_without_a_limit_counts_the_newest_of_the_largest_costs(
    store: Store, _: Factory
) -> None:
    """The sum of all costs exceeds the precision of a double."""
    for windows in (OPEN.windows, (*minute(LARGEST), *OPEN.windows[1:])):
        organization = f"org_{len(windows)}_{windows[0].limit}"
        for step, cost in enumerate((1, 7, LARGEST - 9, 1, 1, LARGEST, 3, LARGEST - 1, 2)):
            await store.charge(organization, Hit(windows, cost), NOW + step * SECOND)
        for later in (9 * SECOND, MINUTE + SECOND, MINUTE + 7 * SECOND, MINUTE + 8 * SECOND):
            await store.charge(organization, Peek(windows), NOW + later)
        for step in range(4):
            await store.charge(
                organization, Hit(windows, LARGEST - step), NOW + MINUTE + 9 * SECOND + step
            )
        limited = (*windows[:1], windows[1]._replace(limit=9), *windows[2:])
        await store.charge(organization, Hit(limited, 1), NOW + HOUR)
        # The clock has stepped back.
        await store.charge(organization, Hit(windows, LARGEST), NOW - SECOND)
        await store.charge(organization, Hit(windows, 1), NOW)


@alone("W5", "windows")
async def peeking_changes_no_state(store: Store, _: Factory) -> None:
    for step in range(9):
        await hits(store, 1, NOW + step)
    for later in (9, MINUTE, 2 * DAY, 9 * DAY, -HOUR, 9):
        await store.charge("org_1", Peek(TEN), NOW + later)
        await store.charge("org_2", Peek(TEN), NOW + later)
    await hits(store, 1, NOW + 9)


@alone("W14", "windows")
async def many_hits_share_cells_as_decided(store: Store, _: Factory) -> None:
    """After 64 hits, neighbours less than a grain apart expire together (D21)."""
    now = NOW
    for windows in (COARSE.windows, OPEN.windows):
        for step in range(110):
            now += (step % 7) * 200_000
            await store.charge("org_1", Hit(windows, step % 3 + 1), now)
        for later in (0, 30 * SECOND, MINUTE, HOUR):
            await store.charge("org_1", Peek(windows), now + later)


@alone("W2", "windows")
async def load_that_outlasts_its_window_is_counted_to_the_end(store: Store, _: Factory) -> None:
    """Detects cells that grow from their last hit, which never expire under sustained load."""
    for limit, (name, span) in SPANS.items():
        for resolution, calls, number in ((60, 120, 125), (None, 90, 85)):
            plan = replace(limited(limit, number), resolution=resolution)
            organization = f"org_{name}_{calls}_{resolution}"
            for step in range(2 * calls + calls // 4):
                at = NOW + step * span // calls
                await store.charge(organization, Hit(plan.windows, 1), at)


@alone("W8", "windows")
async def hostile_ids_have_separate_windows(store: Store, _: Factory) -> None:
    for index, organization in enumerate(HOSTILE):
        await store.charge(organization, Hit(EXACT.windows, index % 9 + 1), NOW)
    for organization in HOSTILE:
        await store.charge(organization, Peek(EXACT.windows), NOW)


@alone("W8", "windows")
async def owners_other_than_organizations_have_windows_too(store: Store, __: Factory) -> None:
    """Names of other owners are longer than any organization's."""
    owners = ["e" * 128, "e" * 129, "e" * 191 + "f", "e" * 192]
    for owner in owners:
        for _ in range(len(owner) % 7 + 1):
            await store.charge(owner, Hit(TEN, 1), NOW)
    for owner in owners:
        await store.charge(owner, Peek(TEN), NOW)


@alone("W11", "windows")
async def a_clock_that_steps_back_admits_no_more(store: Store, _: Factory) -> None:
    await hits(store, 6, NOW)
    await hits(store, 5, NOW - 30 * SECOND)
    await hits(store, 1, NOW + 29 * SECOND)
    await hits(store, 11, NOW + 30 * SECOND)


@alone("W11", "windows")
async def a_clock_that_steps_far_back_locks_out_for_the_window_only(
    store: Store, _: Factory
) -> None:
    await hits(store, 10, NOW + 9 * DAY)
    await hits(store, 1, NOW)
    await hits(store, 1, NOW + MINUTE - 1)
    await hits(store, 1, NOW + MINUTE)


@alone("W13", "windows")
async def another_plan_keeps_counted_hits(store: Store, _: Factory) -> None:
    await hits(store, 8, NOW, EXACT.windows)
    for plan in (COARSE, NARROW, OPEN, EXACT):
        await hits(store, 1, NOW, plan.windows)
        await store.charge("org_1", Peek(plan.windows), NOW)


@alone("W2", "windows")
async def a_reset_empties_the_windows_of_one_organization(store: Store, _: Factory) -> None:
    await hits(store, 11, NOW)
    await store.charge("org_2", Hit(TEN, 9), NOW)
    await store.charge("org_1", Reset())
    await store.charge("org_3", Reset())
    for organization in ("org_1", "org_2", "org_3"):
        await store.charge(organization, Peek(TEN), NOW + 1)
    await hits(store, 11, NOW + 2)
    await store.charge("org_2", Hit(TEN, 1), NOW + 2)
    await store.charge("org_1", Reset())
    await store.charge("org_1", Hit(EXACT.windows, 1), NOW + 3)


CHECKS: tuple[Check, ...] = (
    a_reset_empties_the_windows_of_one_organization,
    a_cost_that_fits_is_admitted,
    a_hit_is_charged_its_cost,
    remaining_falls_by_the_cost,
    a_full_window_refuses,
    a_hit_leaves_when_it_is_as_old_as_the_window,
    a_hit_counts_until_it_is_as_old_as_the_window,
    a_full_window_of_any_length_refuses_to_its_end,
    a_refused_call_costs_nothing,
    a_refusal_by_one_window_is_not_charged_to_the_others,
    a_limit_of_zero_admits_no_request,
    a_full_window_refuses_across_the_full_minute_hour_and_day,
    a_full_window_refuses_while_its_weight_falls,
    a_burst_does_not_drain_before_its_time,
    a_call_after_the_told_wait_is_admitted,
    a_microsecond_is_not_rounded_away,
    the_largest_limit_is_exact,
    a_window_without_a_limit_counts_the_newest_of_the_largest_costs,
    peeking_changes_no_state,
    hostile_ids_have_separate_windows,
    owners_other_than_organizations_have_windows_too,
    a_clock_that_steps_back_admits_no_more,
    a_clock_that_steps_far_back_locks_out_for_the_window_only,
    another_plan_keeps_counted_hits,
    many_hits_share_cells_as_decided,
    load_that_outlasts_its_window_is_counted_to_the_end,
)
