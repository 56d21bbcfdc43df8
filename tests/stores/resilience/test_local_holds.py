"""Holds while the store is away: the rule of `core`, with the share of one process as its limit."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from lockgate.core.holds import HoldAnswer, Look, Renew, Settle, Take
from lockgate.core.limit_windows import LimitWindows
from lockgate.core.timestamps import DAY, HOUR, MINUTE, SECOND
from lockgate.stores.resilience.local_holds import LocalHolds
from tests.core.test_holds import EXACT, IDS, NOW, Oracle, Out, windows_of

LIMITS = windows_of(*EXACT)
FIELDS = LIMITS.fields
UNITS = st.tuples(st.integers(1, 45), st.integers(1, 3))
"""Of both limits: the first has two windows."""


class LocalHoldsMachine(RuleBasedStateMachine):
    """Takes, renews and settles local holds between answers of the store, by a clock that steps
    both ways. No hold uses more units than it has."""

    @initialize(fleet=st.integers(1, 3))
    def begin(self, fleet: int) -> None:
        self.now = NOW
        self.local = LocalHolds(fleet, lambda: self.now)
        self.shares = [(window.limit or 0) // fleet for window in LIMITS.windows]
        self.told = [0] * len(FIELDS)
        self.told_at = NOW - DAY
        self.oracle = Oracle(LIMITS)

    @rule(by=st.sampled_from([0, 1, SECOND, 20 * SECOND, MINUTE, 59 * MINUTE, HOUR, DAY]))
    def time_passes(self, by: int) -> None:
        self.now += by

    @rule(by=st.sampled_from([1, SECOND, 45 * SECOND, MINUTE, HOUR]))
    def the_clock_is_set_back(self, by: int) -> None:
        self.now -= by
        self.settle(IDS[-1], 100)  # The budgets learn of it with their next call.

    @rule(tokens=st.integers(0, 100), images=st.integers(0, 6))
    def the_store_answers(self, tokens: int, images: int) -> None:
        self.told = [tokens, tokens, images]
        self.told_at = self.now
        look = Look(LIMITS, (1,) * len(FIELDS), 1000)
        answer = HoldAnswer(False, self.now, self.now, tuple(self.told), (0,) * len(FIELDS))
        self.local.note("org_1", look, answer)

    @rule(
        id=st.sampled_from(IDS[:-1]),
        units=UNITS,
        span=st.sampled_from([SECOND, MINUTE, HOUR]),
    )
    def take(self, id: str, units: tuple[int, int], span: int) -> None:
        asked = (units[0], units[0], units[1])
        answer = self.local.decide("org_1", Take(id, LIMITS, asked, span, 1000))
        self.oracle.move_to(self.now)
        self.oracle.limits = self.limits()
        known = self.oracle.out.get(id)
        assert answer.done == (known is not None or self.oracle.fits(asked))
        if answer.done and known is None:
            self.oracle.out[id] = Out(asked, self.now + span, span)
            counted = map(self.oracle.counted, range(len(FIELDS)))
            for all_units, share in zip(counted, self.shares, strict=True):
                assert all_units <= share
            assert self.local.has(id)
        if not answer.done:
            assert answer.waits == self.oracle.waits(asked, self.now)

    @rule(id=st.sampled_from(IDS), percent=st.integers(0, 100))
    def settle(self, id: str, percent: int) -> None:
        hold = self.oracle.out.get(id)
        held = (0,) * len(FIELDS) if hold is None else hold.units
        used = tuple(units * percent // 100 for units in held)
        answer = self.local.decide("org_1", Settle(id, FIELDS, used))
        self.oracle.move_to(self.now)
        hold = self.oracle.out.pop(id, None)
        assert answer.done == (hold is not None)
        for place, units in enumerate(used if hold else ()):
            if units:
                self.oracle.used[place].append((self.now, units))
        assert answer.used == tuple(map(self.oracle.counted, range(len(FIELDS))))

    @rule(id=st.sampled_from(IDS), span=st.sampled_from([SECOND, MINUTE]))
    def renew(self, id: str, span: int) -> None:
        answer = self.local.decide("org_1", Renew(id, FIELDS, span))
        self.oracle.move_to(self.now)
        hold = self.oracle.out.get(id)
        assert answer.done == (hold is not None)
        if hold is not None:
            assert answer.deadline == self.now + span
            self.oracle.out[id] = Out(hold.units, self.now + span, span)

    def limits(self) -> LimitWindows:
        """The share of each window, within what the store's answer has left of its limit."""
        windows = list(LIMITS.windows)
        for place, window in enumerate(windows):
            most = self.shares[place]
            if 0 <= self.now - self.told_at < window.span:
                most = min(most, max(0, (window.limit or 0) - self.told[place]))
            windows[place] = window._replace(limit=most)
        return LIMITS._replace(windows=tuple(windows))


TestLocalHolds = LocalHoldsMachine.TestCase
