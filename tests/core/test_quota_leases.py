"""Quota leases: a machine against an oracle that adds up all that was really admitted (H1)."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lockgate.core.ledger import Ledger, Peek
from lockgate.core.quota_leases import (
    LEASES_AT_MOST,
    LEAST,
    LONGEST,
    SHARE,
    LeaseRequest,
    QuotaLeases,
    Settlement,
    current,
    granted,
    hit_leased,
    live,
    lowered,
    out,
    units_out,
    until_settled,
)
from lockgate.core.reservations import Reservation
from lockgate.core.sliding_window import LARGEST, Reading, State, Window, empty_state, hit, peek
from lockgate.core.timestamps import MINUTE, SECOND
from lockgate.testing.clock import START as NOW

EXACT = (Window("minute", MINUTE, 400, 0), Window("long", 3 * MINUTE, 700, 0))
GRAINED = (Window("minute", MINUTE, 400, SECOND), Window("long", 3 * MINUTE, None, 3 * SECOND))
ALONE = (Window("minute", MINUTE, 500, 0),)


def peek_leased(
    state: State, leases: QuotaLeases, windows: tuple[Window, ...], now: int
) -> Reading:
    return Peek(windows).apply(Ledger("", state, leases), now)[0]


class Holder:
    """A process that admits from a lease."""

    def __init__(self, lease: Reservation) -> None:
        self.lease = lease
        self.used: list[tuple[int, int]] = []
        self.is_dead = False

    @property
    def left(self) -> int:
        return self.lease.units - sum(units for _, units in self.used)

    def settlement(self) -> Settlement:
        return Settlement(self.lease.id, tuple(self.used))


class Leased(RuleBasedStateMachine):
    """Processes that take leases, use, settle and lose them, beside requests of others."""

    windows: tuple[Window, ...] = EXACT

    def __init__(self) -> None:
        super().__init__()
        self.now = NOW
        self.ids = count()
        self.state: State = empty_state(self.windows)
        self.leases: QuotaLeases = ()
        self.holders: list[Holder] = []
        self.admitted: list[tuple[int, int]] = []
        """All that was really admitted."""
        self.counted: list[tuple[int, int]] = []
        """The same, with all units of leases that were never settled, at their deadlines."""

    @rule(microseconds=st.one_of(st.integers(0, 5 * SECOND), st.integers(0, 2 * MINUTE)))
    def advance(self, microseconds: int) -> None:
        self.now += microseconds
        self._expire()

    @rule(cost=st.integers(1, 80))
    def request(self, cost: int) -> None:
        self._hit(cost, None)

    @rule(
        cost=st.integers(1, 20),
        wanted=st.integers(0, 60),
        span=st.integers(SECOND // 10, 2 * SECOND),
        chosen=st.sets(st.integers(0, 3)),
    )
    def request_with_lease(self, cost: int, wanted: int, span: int, chosen: set[int]) -> None:
        ended = [one for index, one in enumerate(self.alive()) if index in chosen]
        for one in ended:
            self._settled(one)
        settled = tuple(one.settlement() for one in ended)
        self._hit(cost, LeaseRequest(f"{next(self.ids):016x}", wanted, span, settled))

    @precondition(lambda self: bool(self.alive()))
    @rule(index=st.integers(0, 3), units=st.integers(1, 10))
    def use(self, index: int, units: int) -> None:
        holder = self.alive()[index % len(self.alive())]
        if units <= holder.left and self.now < holder.lease.deadline:
            holder.used.append((self.now, units))
            self.admitted.append((self.now, units))

    @precondition(lambda self: bool(self.alive()))
    @rule(again=st.booleans())
    def settle(self, again: bool) -> None:
        holder = self.alive()[0]
        settlement = holder.settlement()
        self._settled(holder)
        for _ in range(2 if again else 1):
            self.state, self.leases = current(
                self.state, self.leases, self.windows, self.now, [settlement]
            )

    @precondition(lambda self: bool(self.alive()))
    @rule()
    def die(self) -> None:
        self.alive()[-1].is_dead = True

    def alive(self) -> list[Holder]:
        return [one for one in self.holders if not one.is_dead]

    @invariant()
    def no_span_has_more_than_the_limit(self) -> None:
        for window in self.windows:
            if window.limit is not None:
                assert _within(self.admitted, self.now, window.span) <= window.limit

    @invariant()
    def peeking_counts_at_least_what_was_used_and_nothing_that_came_back(self) -> None:
        reading = peek_leased(self.state, self.leases, self.windows, self.now)
        out = units_out(live(self.leases, self.now))
        assert out == sum(one.lease.units for one in self.holders)
        for window, used in zip(self.windows, reading.used, strict=True):
            # A unit before the newest cell leaves with the next newer one: late, never early.
            assert used >= _within(self.counted, self.now, window.span)
            assert used <= _within(self.counted, self.now, 2 * window.span)
            assert window.limit is None or used + out <= window.limit

    @invariant()
    def units_stay_until_they_leave_the_window(self) -> None:
        for index, window in enumerate(self.windows):
            for at, _ in self.counted[-4:]:
                last = max(self.now, at + window.span - 1)
                used = peek_leased(self.state, self.leases, self.windows, last).used[index]
                assert used >= _within(self.counted, last, window.span)

    def _hit(self, cost: int, request: LeaseRequest | None) -> None:
        reading, self.state, self.leases, lease = hit_leased(
            self.state, self.leases, self.windows, self.now, cost, request
        )
        out = units_out(self.leases)
        if reading.allowed:
            self.admitted.append((self.now, cost))
            self.counted.append((self.now, cost))
        else:
            assert lease is None
            assert any(
                window.limit is not None and used + out + cost > window.limit
                for window, used in zip(self.windows, reading.used, strict=True)
            )
        if lease is not None:
            assert request is not None
            assert LEAST <= lease.units <= request.units
            assert lease.deadline == self.now + request.span
            limits = [one.limit for one in self.windows if one.limit is not None]
            assert out <= min(limits) // SHARE
            self.holders.append(Holder(lease))

    def _settled(self, holder: Holder) -> None:
        self.holders.remove(holder)
        self.counted += holder.used

    def _expire(self) -> None:
        for holder in list(self.holders):
            if holder.lease.deadline <= self.now:
                self.holders.remove(holder)
                self.counted.append((holder.lease.deadline, holder.lease.units))


class LeasedWithGrains(Leased):
    windows = GRAINED


class LeasedAlone(Leased):
    windows = ALONE


def _within(units: list[tuple[int, int]], now: int, span: int) -> int:
    return sum(number for at, number in units if now - span < at <= now)


@pytest.mark.parametrize("machine", [Leased, LeasedWithGrains, LeasedAlone])
def test_no_span_has_more_than_the_limit(machine: type[Leased]) -> None:
    case = machine.TestCase
    case.settings = settings(max_examples=40, stateful_step_count=60, deadline=None)
    case("runTest").runTest()


def lease(units: int = 10, deadline: int = NOW + SECOND, *, id: str = "a" * 16) -> Reservation:
    return Reservation(id, units, deadline, SECOND)


def ask(units: int = 100, *settled: Settlement) -> LeaseRequest:
    return LeaseRequest("b" * 16, units, SECOND, settled)


def test_without_leases_or_ends_of_them_a_hit_is_a_plain_hit_and_the_objects_are_the_same() -> None:
    state = empty_state(EXACT)
    reading, after = hit(state, EXACT, NOW, 7)
    assert hit_leased(state, (), EXACT, NOW, 7) == (reading, after, (), None)
    assert peek_leased(after, (), EXACT, NOW) == peek(after, EXACT, NOW)
    assert lowered(EXACT, ()) is EXACT
    leases = (lease(),)
    kept = current(state, leases, EXACT, NOW)
    assert kept[0] is state
    assert kept[1] is leases


def test_a_clock_that_steps_back_extends_no_lease_beyond_its_span() -> None:
    _, leases = current(empty_state(EXACT), (lease(),), EXACT, NOW - MINUTE)
    assert leases == (lease(deadline=NOW - MINUTE + SECOND),)
    assert live((lease(),), NOW - MINUTE) == leases


@given(
    span=st.integers(SECOND // 10, LONGEST),
    looks=st.lists(st.integers(0, 2 * LONGEST), max_size=6),
)
def test_k4_an_unsettled_lease_is_listed_until_long_after_its_deadline(
    span: int, looks: list[int]
) -> None:
    """Its holder may still admit, if the clock stepped forward meanwhile, or forward and back."""
    state = empty_state(EXACT)
    leases: QuotaLeases = (lease(deadline=NOW + span)._replace(span=span),)
    last = NOW + span + LONGEST - 1
    for at in [min(NOW + look, last) for look in looks]:
        _, state, leases, _ = hit_leased(state, leases, EXACT, at, 1)
    assert [one.id for one in live(leases, last)] == ["a" * 16]
    assert live(leases, last + 1) == ()
    assert current(state, leases, EXACT, last, [Settlement("a" * 16, ())])[1] == ()


def test_a_lease_that_has_ended_has_no_units_and_is_no_holder() -> None:
    state, leases = current(empty_state(ALONE), (lease(),), ALONE, NOW + SECOND)
    assert leases == (lease(0),)
    assert live((lease(),), NOW + SECOND) == leases
    assert out(leases) == ()
    assert lowered(ALONE, leases) is ALONE
    again = Settlement("a" * 16, ((NOW, 3),))
    for at in (NOW + SECOND, NOW):  # Also where the clock has stepped back.
        assert current(state, leases, ALONE, at, [again]) == (state, ())
    refused, *_ = hit_leased(state, leases, ALONE, NOW + SECOND, 491)
    assert refused == peek(state, ALONE, NOW + SECOND)._replace(
        allowed=False, refused_by=refused.refused_by, wait=refused.wait
    )
    reading, _ = hit(state, ALONE, NOW + SECOND, 1)
    asked = LeaseRequest("b" * 16, 100, SECOND)
    assert granted(leases, ALONE, reading, asked) == granted((), ALONE, reading, asked)


def test_units_from_before_the_windows_are_gone() -> None:
    used = Settlement("a" * 16, ((NOW - 3 * MINUTE, 2),))
    state, _ = current(empty_state(EXACT), (lease(),), EXACT, NOW, [used])
    assert state == empty_state(EXACT)


def test_a_refusal_holds_no_longer_than_until_a_lease_ends() -> None:
    state = empty_state(ALONE)
    _, state = hit(state, ALONE, NOW, 490)
    reading, *_ = hit_leased(state, (lease(5), lease(4, NOW + 9)), ALONE, NOW + 1, 2)
    assert not reading.allowed
    assert reading.remaining == 1
    assert reading.reset == NOW + 9
    assert reading.wait == MINUTE - 1
    assert until_settled(reading, ()) is reading


@pytest.mark.parametrize(
    ("limit", "used", "out", "wanted", "units"),
    [
        (6000, 0, (), 100, 100),  # What is asked for.
        (6000, 0, (), 500, 120),  # 2 % of the limit.
        (6000, 0, (50, 50), 500, 20),  # Less those that are out.
        (6000, 5900, (), 500, 100),  # What is left.
        (6000, 5880, (20,), 500, 50),  # A share of it.
        (6000, 5993, (1,), 500, 3),
        (6000, 5994, (1,), 500, None),  # Fewer than three.
        (149, 0, (), 500, None),
        (None, 10**9, (20,), 500, 500),
        (None, 0, (), LARGEST + 1, LARGEST),
        (None, 0, (1,) * LEASES_AT_MOST, 500, None),
    ],
)
def test_a_grant_leaves_units_for_others(
    limit: int | None, used: int, out: tuple[int, ...], wanted: int, units: int | None
) -> None:
    windows = (Window("minute", MINUTE, limit, SECOND),)
    leases = tuple(lease(one, id=f"{index:016x}") for index, one in enumerate(out))
    reading, _ = hit(empty_state(windows), windows, NOW, used or 1)
    made = granted(leases, windows, reading._replace(used=(used,)), ask(wanted))
    assert made == (None if units is None else Reservation("b" * 16, units, NOW + SECOND, SECOND))


def test_a_granted_lease_is_not_in_the_reading_of_its_own_hit() -> None:
    reading, state, leases, made = hit_leased(empty_state(ALONE), (), ALONE, NOW, 1, ask())
    assert made is not None
    assert leases == (made,)
    assert reading.remaining == 499
    assert peek_leased(state, leases, ALONE, NOW).remaining == 499 - made.units


def test_a_plan_with_lower_limits_refuses_while_units_are_out() -> None:
    small = (Window("minute", MINUTE, 5, 0),)
    reading, *_ = hit_leased(empty_state(small), (lease(10),), small, NOW, 1)
    assert not reading.allowed
    assert reading.remaining == 0
    assert reading.wait == MINUTE
