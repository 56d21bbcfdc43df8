"""Actions on a whole ledger and on the part that they need; the rules have tests of their own."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lockgate.core.budgets import SLOTS, UNUSED
from lockgate.core.changes import Actor, ChangeDraft
from lockgate.core.holds import Look, Settle, Take, budgets
from lockgate.core.leases import TO_LIST, to_acquire, to_release
from lockgate.core.ledger import (
    Hit,
    HitLeased,
    LeasesOut,
    Ledger,
    Peek,
    Reset,
    change_of,
)
from lockgate.core.limit_hits import FIELDS_AT_MOST
from lockgate.core.limits import Limit, bound
from lockgate.core.plans import Plan
from lockgate.core.quota_leases import LeaseRequest, Settlement
from lockgate.core.sliding_window import EMPTY
from lockgate.core.timestamps import DAY, HOUR, SECOND

NOW = 1_800_000_000 * SECOND
WINDOWS = Plan("some", rpm=1000, rph=1000, rpd=1000, concurrent=2).windows
NAMED = bound((Limit("export", "3/minute;5/hour"),), None)
assert NAMED is not None
HELD = budgets(NAMED)
ASK = LeaseRequest("0" * 16, 20, SECOND)
ACTIONS = (
    Hit(WINDOWS, 1),
    Hit(WINDOWS, 2, NAMED),
    Hit((), 1, NAMED),
    HitLeased(WINDOWS, 1, ASK),
    HitLeased(WINDOWS, 0, LeaseRequest("", 0, 0, (Settlement(ASK.id, ((NOW, 3),)),))),
    Peek(WINDOWS, NAMED),
    LeasesOut(),
    Take("1" * 32, HELD, (1, 2), HOUR, 9),
    Settle("1" * 32, HELD.fields, (1, None)),
    Look(HELD, (1, 1), 9),
    to_acquire("job", "me", 1, HOUR),
    to_release("job", "me"),
    TO_LIST,
    Reset(),
)


@given(st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(-9, 99)), max_size=30))
def test_an_action_needs_no_more_than_its_fields_W9(steps: list[tuple[Any, int]]) -> None:
    """A store may load a part of a ledger: the answers are those of the whole one."""
    whole, now = Ledger("org_1"), NOW
    for action, seconds in steps:
        now += seconds * SECOND
        limits = action.limits if isinstance(action, Hit | Peek) else None
        fields = action.fields if isinstance(action, Take | Settle | Look) else ()
        cells = {f: c for f, c in whole.limits.items() if limits and f in limits.fields}
        of_holds = {
            f: b for f, b in whole.budgets.items() if f in fields or isinstance(action, Reset)
        }
        others = len(whole.limits) - len(cells)
        if not isinstance(action, Hit | Peek):
            others = len(whole.budgets) - len(of_holds)
        part = whole._replace(limits=cells, budgets=of_holds, others=others)
        answer, after = action.apply(part, now)
        expected, whole = action.apply(whole, now)
        assert answer == expected
        assert after.windows == whole.windows
        assert after.leases == whole.leases
        assert after.limits.items() <= whole.limits.items()
        assert after.budgets.items() <= whole.budgets.items()


def test_a_reset_leaves_slots_and_quota_leases_W2() -> None:
    ledger = Ledger("org_1")
    for action in (ACTIONS[3], ACTIONS[1], ACTIONS[7], to_acquire("job", "me", 1, HOUR)):
        _, ledger = action.apply(ledger, NOW)
    change = ChangeDraft("windows_reset", None, Actor("operator", None, None))
    reset = Reset(change)
    _, after = reset.apply(ledger, NOW)
    assert (after.windows, after.limits, [*after.budgets]) == ((), {}, [SLOTS])
    assert after.leases == ledger.leases != ()
    assert change_of(reset) is change
    assert change_of(ACTIONS[0]) is None


def test_limits_budgets_and_slots_are_bounded_apart_W10() -> None:
    full = [f"x{number} 1" for number in range(FIELDS_AT_MOST)]
    limits, held = ACTIONS[2], ACTIONS[7]
    slot = to_acquire("job", "me", 1, HOUR)
    crowds = dict.fromkeys(full, EMPTY), dict.fromkeys(full, UNUSED)
    no_limits, no_budgets = Ledger(limits=crowds[0]), Ledger(budgets=crowds[1])
    assert not limits.apply(no_limits, NOW)[0].allowed
    assert limits.apply(no_budgets, NOW)[0].allowed
    assert not held.apply(no_budgets, NOW)[0].done
    assert held.apply(no_limits, NOW)[0].done
    assert slot.apply(no_budgets, NOW)[0].done
    _, ledger = slot.apply(Ledger(budgets=dict.fromkeys(full[2:], UNUSED)), NOW)
    assert held.apply(ledger, NOW)[0].done, "the budget of the slots is none of them"


def test_fields_that_counted_nothing_for_a_day_are_dropped_W10() -> None:
    _, ledger = Hit((), 1, NAMED).apply(Ledger(), NOW)
    _, ledger = ACTIONS[7].apply(ledger, NOW)
    other = bound((Limit("other", "3/minute"),), None)
    assert other is not None
    _, ledger = Hit((), 1, other).apply(ledger, NOW + 2 * DAY)
    _, ledger = Take("2" * 32, budgets(other), (1,), HOUR, 9).apply(ledger, NOW + 3 * DAY)
    assert [*ledger.limits] == [*other.fields]
    assert [*ledger.budgets] == [*budgets(other).fields]
