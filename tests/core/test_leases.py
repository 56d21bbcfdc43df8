"""Leases against a naive model, by a machine that also sets the clock back (L1 to L6)."""

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lockgate.core.budgets import Budget
from lockgate.core.holds import HoldAction, HoldAnswer, apply
from lockgate.core.leases import (
    TO_LIST,
    Lease,
    Leases,
    lease_of,
    leases_of,
    to_acquire,
    to_release,
    to_renew,
)
from lockgate.core.reservations import Reservation

JOBS = st.sampled_from(["a", "b", "c", "d", "e"])
OWNERS = st.sampled_from(["worker 1", "worker 2"])
SPANS = st.integers(1, 40)


def applied(action: HoldAction, leases: Leases, now: int) -> tuple[HoldAnswer, Leases]:
    """Apply an action to the leases of one organization."""
    held = tuple(Reservation(job, 1, until, span, owner) for job, owner, until, span in leases)
    answer, (budget,) = apply(action, [Budget(held=held)], now)
    return answer, leases_of(budget.held)


def acquire(
    leases: Leases, job: str, owner: str, limit: int | None, now: int, span: int
) -> tuple[tuple[Lease | None, int], Leases]:
    """Return the lease of the job, if it has one, and the number of held slots."""
    answer, leases = applied(to_acquire(job, owner, limit, span), leases, now)
    return (lease_of(answer), answer.used[0]), leases


def renew(leases: Leases, job: str, owner: str, now: int, span: int) -> tuple[Lease | None, Leases]:
    answer, leases = applied(to_renew(job, owner, span), leases, now)
    return lease_of(answer), leases


def release(leases: Leases, job: str, owner: str, now: int) -> tuple[bool, Leases]:
    answer, leases = applied(to_release(job, owner), leases, now)
    return answer.done, leases


def live(leases: Leases, now: int) -> Leases:
    return leases_of(applied(TO_LIST, leases, now)[0].slots)


@dataclass
class Held:
    owner: str
    until: int
    span: int


class SlotMachine(RuleBasedStateMachine):
    """The leases of one organization, compared with a dictionary of owners and deadlines."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_000
        self.leases: Leases = ()
        self.held: dict[str, Held] = {}

    def catch_up(self) -> None:
        """Ended leases are removed; no lease lasts longer than it was granted."""
        self.held = {job: held for job, held in self.held.items() if held.until > self.now}
        for held in self.held.values():
            held.until = min(held.until, self.now + held.span)

    @rule(by=st.integers(0, 50))
    def time_passes(self, by: int) -> None:
        self.now += by

    @rule(by=st.integers(1, 500))
    def the_clock_is_set_back(self, by: int) -> None:
        self.now -= by

    @rule(job=JOBS, owner=OWNERS, limit=st.none() | st.integers(0, 3), span=SPANS)
    def acquire(self, job: str, owner: str, limit: int | None, span: int) -> None:
        self.catch_up()
        before = len(self.held)
        (lease, held), self.leases = acquire(self.leases, job, owner, limit, self.now, span)
        mine = self.held.get(job)
        if mine is None and (limit is None or before < limit):
            mine = self.held[job] = Held(owner, self.now + span, span)
            assert limit is None or len(self.held) <= limit, "L1"
        if mine is None:
            assert lease is None, "L2"
            assert limit is not None and held == before >= limit
        else:
            assert lease == Lease(job, mine.owner, mine.until, mine.span), "L6"
            assert held == len(self.held)

    @rule(job=JOBS, owner=OWNERS, span=SPANS)
    def renew(self, job: str, owner: str, span: int) -> None:
        self.catch_up()
        lease, self.leases = renew(self.leases, job, owner, self.now, span)
        mine = self.held.get(job)
        if mine is None or mine.owner != owner:
            assert lease is None, "L4"
        else:
            mine.until, mine.span = self.now + span, span
            assert lease == Lease(job, owner, mine.until, span)

    @rule(job=JOBS, owner=OWNERS)
    def release(self, job: str, owner: str) -> None:
        self.catch_up()
        freed, self.leases = release(self.leases, job, owner, self.now)
        mine = self.held.get(job)
        assert freed == (mine is not None and mine.owner == owner), "L5"
        if freed:
            del self.held[job]

    @rule()
    def peek(self) -> None:
        self.catch_up()
        self.leases = live(self.leases, self.now)

    @precondition(lambda self: self.held)
    @rule()
    def a_deadline_comes(self) -> None:
        """To the microsecond: at its deadline a lease is over, just before it is not."""
        self.peek()
        soonest = min((held.until for held in self.held.values()), default=self.now)
        assert len(live(self.leases, soonest - 1)) == len(self.held)
        self.now = soonest
        assert len(live(self.leases, self.now)) < len(self.held) or not self.held

    @invariant()
    def they_agree(self) -> None:
        shown = {lease.job: lease for lease in live(self.leases, self.now)}
        self_held = {
            job: Lease(job, held.owner, min(held.until, self.now + held.span), held.span)
            for job, held in self.held.items()
            if held.until > self.now
        }
        assert shown == self_held
        assert len(shown) == len(live(self.leases, self.now)), "one lease a job"
        assert list(shown) == list(self_held), "in the order in which they were taken"


TestSlots = SlotMachine.TestCase
TestSlots.settings = settings(max_examples=60, stateful_step_count=40)


@given(SPANS, st.integers(1, 10_000))
def test_a_clock_set_back_prolongs_no_lease_beyond_its_span(span: int, back: int) -> None:
    _, leases = acquire((), "a", "w", 1, 0, span)
    seen = live(leases, -back)
    assert live(seen, -back + span) == ()
    assert seen == (("a", "w", min(span, span - back), span),)
