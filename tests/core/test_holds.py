"""Holds: the rule, compared with an oracle of plain lists over every window."""

from copy import deepcopy
from struct import error as StructError
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from lockgate.core.budgets import Budget, total
from lockgate.core.holds import (
    HoldAction,
    HoldAnswer,
    Look,
    Renew,
    Settle,
    Take,
    apply,
    budgets,
    changed,
    name_of,
)
from lockgate.core.limit_hits import FIELDS_AT_MOST
from lockgate.core.limit_windows import LimitWindows, is_of_period, span_of
from lockgate.core.limits import Limit, bound
from lockgate.core.sliding_window import EXACT_CELLS, LARGEST
from lockgate.core.timestamps import DAY, HOUR, MINUTE, SECOND

IDS = tuple(f"{number:032x}" for number in range(12))
NOW = 1_700_000_000 * SECOND


def windows_of(*limits: Limit) -> LimitWindows:
    windows = bound(limits, None)
    assert windows is not None
    return budgets(windows)


class Charged:
    """The budgets of one organization."""

    def __init__(self) -> None:
        self.budgets: dict[str, Budget] = {}

    def apply(self, action: HoldAction, now: int) -> HoldAnswer:
        before = [self.budgets.get(field) for field in action.fields]
        answer, after = apply(action, before, now, len(self.budgets))
        for field, budget in changed(action, before, after):
            self.budgets[field] = Budget.read(budget.written())
            assert self.budgets[field] == budget
        return answer

    def take(
        self, id: str, limits: LimitWindows, *units: int, now: int = NOW, span: int = MINUTE
    ) -> HoldAnswer:
        return self.apply(Take(id, limits, units, span, 1000), now)

    def settle(self, id: str, limits: LimitWindows, *used: int | None, now: int) -> HoldAnswer:
        return self.apply(Settle(id, limits.fields, used, limits.quotas), now)

    def renew(self, id: str, limits: LimitWindows, span: int, now: int) -> HoldAnswer:
        return self.apply(Renew(id, limits.fields, span, limits.quotas), now)

    def look(self, limits: LimitWindows, now: int) -> HoldAnswer:
        return self.apply(Look(limits, (1,) * len(limits.fields), 1000), now)


class Out(NamedTuple):
    """A hold in the oracle."""

    units: tuple[int, ...]
    deadline: int
    span: int


class Oracle:
    """Counts holds and used units in plain lists, in which no two are ever merged."""

    def __init__(self, limits: LimitWindows) -> None:
        self.limits = limits
        self.used: list[list[tuple[int, int]]] = [[] for _ in limits.windows]
        self.out: dict[str, Out] = {}

    def move_to(self, now: int) -> None:
        for place, window in enumerate(self.limits.windows):
            moved = [(min(at, now), units) for at, units in self.used[place]]
            ended = sorted((o.deadline, o.units[place]) for o in self.out.values())
            for deadline, units in ended:
                if deadline <= now:
                    later = [at for at, _ in moved if at >= deadline]
                    moved.append((min(later, default=deadline), units))
            self.used[place] = [(at, units) for at, units in moved if at > now - window.span]
        self.out = {
            id: hold._replace(deadline=min(hold.deadline, now + hold.span))
            for id, hold in self.out.items()
            if hold.deadline > now
        }

    def counted(self, place: int) -> int:
        held = sum(hold.units[place] for hold in self.out.values())
        return held + sum(units for _, units in self.used[place])

    def fits(self, units: tuple[int, ...]) -> bool:
        limits = (window.limit or 0 for window in self.limits.windows)
        return all(
            self.counted(place) + asked <= limit
            for place, (asked, limit) in enumerate(zip(units, limits, strict=True))
        )

    def waits(self, units: tuple[int, ...], now: int) -> tuple[int, ...]:
        """Return the wait of each window, by trying each instant at which units leave."""
        waits: list[int] = []
        for place, (asked, window) in enumerate(zip(units, self.limits.windows, strict=True)):
            limit = window.limit or 0
            if asked > limit:
                waits.append(window.span)
                continue
            held = ((hold.deadline, hold.units[place]) for hold in self.out.values())
            leaving = [(at + window.span, count) for at, count in (*self.used[place], *held)]
            at = min(
                instant
                for instant in (now, *(end for end, _ in leaving))
                if sum(count for end, count in leaving if end > instant) + asked <= limit
            )
            waits.append(at - now)
        return tuple(waits)


EXACT = (
    Limit("tokens", "40/minute;90/hour", resolution=None),
    Limit("images", "6/hour", resolution=None),
)


class HoldMachine(RuleBasedStateMachine):
    """Takes, renews and settles holds under a clock that steps both ways."""

    def __init__(self) -> None:
        super().__init__()
        self.now = NOW
        self.real = Charged()

    @initialize(number=st.integers(1, 2))
    def begin(self, number: int) -> None:
        self.limits = windows_of(*EXACT[:number])
        self.oracle = Oracle(self.limits)

    @rule(by=st.sampled_from([0, 1, SECOND, 20 * SECOND, MINUTE, 59 * MINUTE, HOUR, DAY]))
    def time_passes(self, by: int) -> None:
        self.now += by

    @rule(by=st.sampled_from([1, SECOND, 45 * SECOND, MINUTE, HOUR]))
    def the_clock_is_set_back(self, by: int) -> None:
        self.now -= by
        # The state learns of it with its next call, as that of windows does.
        self.settle(IDS[-1], None)

    @rule(
        id=st.sampled_from(IDS[:-1]),
        tokens=st.integers(1, 45),
        images=st.integers(1, 3),
        span=st.sampled_from([SECOND, MINUTE, HOUR]),
    )
    def take(self, id: str, tokens: int, images: int, span: int) -> None:
        units = tuple(tokens if name == "tokens" else images for name in self.limits.names)
        answer = self.real.apply(Take(id, self.limits, units, span, 1000), self.now)
        self.oracle.move_to(self.now)
        if id in self.oracle.out:
            known = self.oracle.out[id]
            assert answer.done
            assert (answer.units, answer.deadline) == known[:2]
        elif self.oracle.fits(units):
            assert answer.done
            assert answer.units == units
            self.oracle.out[id] = Out(units, self.now + span, span)
        else:
            assert not answer.done
            assert answer.waits == self.oracle.waits(units, self.now)

    @rule(id=st.sampled_from(IDS), used=st.none() | st.integers(0, 60))
    def settle(self, id: str, used: int | None) -> None:
        number = len(self.limits.fields)
        answer = self.real.settle(id, self.limits, *[used] * number, now=self.now)
        self.oracle.move_to(self.now)
        hold = self.oracle.out.pop(id, None)
        assert answer.done == (hold is not None)
        assert answer.units == ((0,) * number if hold is None else hold.units)
        for place, units in enumerate(hold.units if hold else ()):
            if spent := units if used is None else used:
                self.oracle.used[place].append((self.now, spent))

    @rule(id=st.sampled_from(IDS), span=st.sampled_from([SECOND, MINUTE]))
    def renew(self, id: str, span: int) -> None:
        answer = self.real.renew(id, self.limits, span, self.now)
        self.oracle.move_to(self.now)
        hold = self.oracle.out.get(id)
        assert answer.done == (hold is not None)
        if hold is not None:
            assert answer.deadline == self.now + span
            self.oracle.out[id] = Out(hold.units, self.now + span, span)

    @rule(rates=st.sampled_from(["40/minute;90/hour", "10/minute;90/hour", "99/minute;40/hour"]))
    def the_numbers_change(self, rates: str) -> None:
        """The fields stay, so all that is counted and held is kept (W13)."""
        tokens = Limit("tokens", rates, resolution=None)
        self.limits = windows_of(tokens, *EXACT[1 : 1 + ("images" in self.limits.names)])
        self.oracle.limits = self.limits

    @invariant()
    def they_agree(self) -> None:
        if not hasattr(self, "oracle"):
            return
        # Asking changes nothing: a later call may be of an earlier time.
        oracle = deepcopy(self.oracle)
        oracle.move_to(self.now)
        before = [self.real.budgets.get(field) for field in self.limits.fields]
        look = Look(self.limits, (1,) * len(before), 1000)
        answer, after = apply(look, before, self.now)
        assert answer.used == tuple(map(oracle.counted, range(len(before))))
        held = [sum(hold.units[n] for hold in oracle.out.values()) for n in range(len(before))]
        assert answer.units == tuple(held)
        assert answer.waits == oracle.waits(look.units, self.now)
        assert not changed(look, before, after)


TestHolds = HoldMachine.TestCase


@given(
    steps=st.lists(
        st.tuples(
            st.integers(0, 3 * SECOND),
            st.integers(1, 9),
            st.integers(0, 9),
            st.sampled_from([0, 1, 5]),
        ),
        min_size=80,
        max_size=160,
    ),
    resolution=st.sampled_from([1, 6, 60]),
)
def test_no_span_has_more_than_the_limit_where_hits_share_cells_H1(
    steps: list[tuple[int, int, int, int]], resolution: int
) -> None:
    """Each step takes a hold and settles the one of some steps before, if that has not ended."""
    limits = windows_of(Limit("tokens", "100/minute", resolution=resolution))
    real, now = Charged(), NOW
    out: dict[str, tuple[int, int]] = {}
    used: list[tuple[int, int]] = []
    for number, (gap, units, spent, behind) in enumerate(steps):
        now += gap
        for id, (held, deadline) in list(out.items()):
            if deadline <= now:
                used.append((deadline, held))
                del out[id]
        id = f"{number:032x}"
        if real.take(id, limits, units, now=now).done:
            out[id] = units, now + MINUTE
            live = sum(held for held, _ in out.values())
            assert live + sum(count for at, count in used if at > now - MINUTE) <= 100
        id = f"{number - behind:032x}"
        if behind and id in out:
            held, _ = out.pop(id)
            assert real.settle(id, limits, min(spent, held), now=now).done
            used.append((now, min(spent, held)))
    (budget,) = real.budgets.values()
    assert len(budget.cells[5]) <= 16 * (EXACT_CELLS + resolution + 1)


def test_an_overrun_beyond_all_counts_is_cut_to_the_largest_number() -> None:
    charged, limits = Charged(), windows_of(Limit("tokens", f"{LARGEST}/hour"))
    charged.take(IDS[0], limits, LARGEST - 5)
    charged.take(IDS[1], limits, 5)
    assert charged.settle(IDS[0], limits, LARGEST, now=NOW).used == (LARGEST,)


def test_holds_of_one_window_are_bounded() -> None:
    charged, limits = Charged(), windows_of(Limit("tokens", "100/minute"))

    def take(place: int, now: int) -> HoldAnswer:
        return charged.apply(Take(IDS[place], limits, (1,), MINUTE, 3), now)

    assert all(take(place, NOW + place).done for place in range(3))
    refused = take(3, NOW + 3)
    assert (refused.done, refused.refused_by, refused.wait) == (False, 0, MINUTE - 3)
    assert take(3, NOW + MINUTE).done


def test_a_new_field_is_refused_for_a_day_where_there_is_no_room() -> None:
    limits = windows_of(Limit("tokens", "100/minute"))
    action = Take(IDS[0], limits, (1,), MINUTE, 1000)
    refused, after = apply(action, [None], NOW, FIELDS_AT_MOST)
    assert (refused.done, refused.refused_by, refused.wait) == (False, 0, DAY)
    assert changed(action, [None], after) == []
    assert apply(action, [Budget()], NOW, FIELDS_AT_MOST)[0].done


def test_a_hold_of_no_window_is_taken() -> None:
    answer = Charged().take(IDS[0], LimitWindows((), (), ()))
    assert (answer.done, answer.used) == (True, ())


def test_fields_of_budgets_name_their_limit_and_span() -> None:
    limits = bound((Limit("tokens", "9/minute;99/day;999/calendar day", by="key"),), IDS[0])
    assert limits is not None
    fields = budgets(limits).fields
    assert [name_of(field) for field in fields] == ["tokens", "tokens", "tokens"]
    assert [span_of(field) for field in fields] == [MINUTE, DAY, DAY]
    assert [is_of_period(field) for field in fields] == [False, False, True]


@pytest.mark.parametrize("value", [b"", bytes(8), b"\2" + bytes(60), b"\1" + b"\xff" * 60])
def test_damaged_bytes_are_no_budget(value: bytes) -> None:
    with pytest.raises((ValueError, StructError)):
        Budget.read(value)


def test_a_budget_counts_what_is_used_and_held() -> None:
    charged, limits = Charged(), windows_of(Limit("tokens", "100/minute"))
    charged.take(IDS[0], limits, 7)
    charged.take(IDS[1], limits, 20)
    charged.settle(IDS[0], limits, 5, now=NOW)
    (budget,) = charged.budgets.values()
    assert (total(budget), budget.last) == (25, NOW + MINUTE)
