"""Calls with promises against a brute-force oracle, for the rule and for any store (P1 to P4)."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lockgate.core.ledger import HitLeased, Leased, Ledger
from lockgate.core.promises import FURTHEST, GRACE, PROMISES_AT_MOST, start_of
from lockgate.core.sliding_window import Window
from lockgate.core.timestamps import SECOND

NOW = 1_800_000_000 * SECOND
MINUTE = 60 * SECOND


def minute(limit: int) -> tuple[Window, ...]:
    return (Window("minute", MINUTE, limit, SECOND),)


class Kept(NamedTuple):
    """A promise of the oracle."""

    start: int
    cost: int
    key: str


class Oracle:
    """The rule by its words: a list of admissions, a list of promises, every second tried."""

    def __init__(self, windows: tuple[Window, ...]) -> None:
        self.windows = windows
        self.log: list[tuple[int, int]] = []
        self.promises: list[Kept] = []

    def lapse(self, now: int) -> None:
        self.promises = [one for one in self.promises if now < one.start + GRACE]

    def due(self, now: int, key: str, cost: int) -> Kept | None:
        fits = [p for p in self.promises if p.key == key and p.start <= now and p.cost >= cost]
        return min(fits, key=lambda one: (one.cost, one.start), default=None)

    def counted(self, at: int, span: int) -> int:
        return sum(cost for hit_at, cost in self.log if at - span < hit_at <= at)

    def fits(self, at: int, cost: int) -> bool:
        """Whether a cost taken at an instant leaves every promise its units."""
        for window in self.windows:
            assert window.limit is not None
            for instant in (at, *(one.start for one in self.promises if one.start > at)):
                promised = sum(one.cost for one in self.promises if one.start <= instant)
                if self.counted(instant, window.span) + promised + cost > window.limit:
                    return False
        return True

    def wait(self, now: int, cost: int) -> int | None:
        for seconds in range(1, FURTHEST + 1):
            if self.fits(now + seconds * SECOND, cost):
                return seconds
        return None

    def may(self, key: str, cost: int) -> bool:
        mine = [one.cost for one in self.promises if one.key == key]
        limit = min(window.limit or 0 for window in self.windows)
        left = limit - sum(one.cost for one in self.promises) - cost
        return len(mine) < PROMISES_AT_MOST - len(self.promises) and sum(mine) <= left


class PromiseMachine(RuleBasedStateMachine):
    """Calls of several keys, promised callers that return, callers that never do."""

    is_exact: ClassVar[bool]
    ledger: Ledger
    kept: list[Kept] | None = None
    """The promises of the store, where the test can read them."""

    def charge(self, action: HitLeased, now: int) -> Leased:
        """Charge the store under test; here the rule."""
        leased, self.ledger = action.apply(self.ledger, now)
        promises = self.ledger.promises
        self.kept = sorted(Kept(start_of(one), one.units, one.owner) for one in promises)
        return leased

    @initialize(small=st.integers(1, 12), large=st.integers(80, 300), more=st.integers(0, 30))
    def begin(self, small: int, large: int, more: int) -> None:
        limit = small if self.is_exact else large
        hour = Window("hour", 3600 * SECOND, min(63, limit * 4) if self.is_exact else 2000, MINUTE)
        self.windows = (*minute(limit), *((hour,) if more % 2 else ()))
        self.oracle = Oracle(self.windows)
        self.ledger = Ledger("org_1")
        self.now = NOW
        self.limit = limit

    def call(self, key: str, cost: int) -> bool:
        oracle, now = self.oracle, self.now
        oracle.lapse(now)
        due = oracle.due(now, key, cost)
        if due is not None:
            oracle.promises.remove(due)
        reading, promise = self.charge(HitLeased(self.windows, cost, None, None, key), now)
        fits = oracle.fits(now, cost)
        if due is not None:
            assert reading.allowed, "P2: a promised caller is admitted"
        if reading.allowed:
            assert fits, "P1, P2: no unit of a window or of a promise is taken"
            assert promise is None
            oracle.log.append((now, cost))
        else:
            if self.is_exact:
                assert not fits, "P3: a refusal means that the cost does not fit beside promises"
                if reading.wait <= FURTHEST * SECOND and (seconds := oracle.wait(now, cost)):
                    assert reading.wait in (seconds * SECOND, MINUTE)
            if promise is not None:
                assert promise == ("", cost, now + reading.wait + GRACE, promise.span, key)
                assert promise.span == reading.wait + GRACE
                assert oracle.may(key, cost)
                assert oracle.fits(now + reading.wait, cost)
                oracle.promises.append(Kept(now + reading.wait, cost, key))
            elif cost <= self.limit and reading.wait < MINUTE:
                assert not oracle.may(key, cost), "a key that may have a promise gets one"
        assert self.kept is None or self.kept == sorted(oracle.promises)
        return reading.allowed

    @rule(key=st.sampled_from("abcd"), cost=st.integers(1, 3), times=st.integers(1, 25))
    def calls(self, key: str, cost: int, times: int) -> None:
        cost = cost if self.is_exact else 5 * cost
        for _ in range(times):
            if not self.call(key, cost):
                break

    @rule(micros=st.one_of(st.integers(0, 3 * SECOND), st.integers(0, 2 * MINUTE)))
    def time_passes(self, micros: int) -> None:
        self.now += micros

    @precondition(lambda self: self.oracle.promises)
    @rule(data=st.data(), late=st.integers(0, GRACE - 1))
    def a_promised_caller_returns(self, data: st.DataObject, late: int) -> None:
        promise = data.draw(st.sampled_from(sorted(self.oracle.promises)))
        self.now = max(self.now, promise.start + late)
        self.oracle.lapse(self.now)
        if promise in self.oracle.promises:
            assert self.call(promise.key, promise.cost)

    @precondition(lambda self: self.oracle.promises)
    @rule(late=st.integers(0, GRACE - 1))
    def all_promised_callers_return(self, late: int) -> None:
        for promise in sorted(self.oracle.promises):
            self.now = max(self.now, promise.start + late)
            assert self.call(promise.key, promise.cost)

    @invariant()
    def no_window_is_over_P1(self) -> None:
        for window in self.windows:
            assert self.oracle.counted(self.now, window.span) <= (window.limit or 0)

    @invariant()
    def promises_are_bounded_P4(self) -> None:
        promises = self.oracle.promises
        assert len(promises) <= PROMISES_AT_MOST
        assert sum(one.cost for one in promises) <= self.limit
        for one in promises:
            assert one.start <= self.now + min(FURTHEST, 60) * SECOND or len(self.windows) > 1
