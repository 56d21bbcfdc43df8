"""Any limiter is held to a plan by a brute-force oracle, and a mistake is told in few arrivals."""

from __future__ import annotations

from collections import defaultdict

import pytest

from lockgate import Plan
from lockgate.core.sliding_window import empty_state, hit
from lockgate.core.timestamps import MINUTE
from lockgate.testing import Broken, assert_limiter_keeps
from lockgate.testing.limiters import MakeLimiter, TryAcquire

PLAN = Plan("small", rpm=10, rph=60, rpd=None, concurrent=None, resolution=None)
MINUTES = Plan("minute", rpm=10, rph=None, rpd=None, concurrent=None, resolution=None)
COARSE = Plan("coarse", rpm=100, rph=None, rpd=None, concurrent=None, resolution=1)


def sliding(plan: Plan) -> TryAcquire:
    state = empty_state(plan.windows)

    def try_acquire(at: int, cost: int) -> bool:
        nonlocal state
        reading, state = hit(state, plan.windows, at, cost)
        return reading.allowed

    return try_acquire


def fixed_window() -> TryAcquire:
    used: dict[int, int] = defaultdict(int)

    def try_acquire(at: int, cost: int) -> bool:
        fits = used[at // MINUTE] + cost <= 10
        used[at // MINUTE] += cost if fits else 0
        return fits

    return try_acquire


def token_bucket() -> TryAcquire:
    tokens, last = 10.0, 0

    def try_acquire(at: int, cost: int) -> bool:
        nonlocal tokens, last
        tokens, last = min(10.0, tokens + (at - last) * 10 / MINUTE), at
        fits = tokens >= cost
        tokens -= cost if fits else 0
        return fits

    return try_acquire


def charges_refusals() -> TryAcquire:
    hits: list[tuple[int, int]] = []

    def try_acquire(at: int, cost: int) -> bool:
        hits.append((at, cost))
        return sum(cost for then, cost in hits if then > at - MINUTE) <= 10

    return try_acquire


def forgets_the_hour() -> TryAcquire:
    return sliding(MINUTES)


def test_an_exact_sliding_window_keeps_its_plan() -> None:
    assert_limiter_keeps(lambda: sliding(PLAN), PLAN, exact=True)
    assert_limiter_keeps(lambda: sliding(COARSE), COARSE)


@pytest.mark.parametrize(
    ("make", "arrivals"), [(fixed_window, 2), (token_bucket, 2), (forgets_the_hour, 7)]
)
def test_too_much_is_told_in_the_fewest_arrivals(make: MakeLimiter, arrivals: int) -> None:
    with pytest.raises(
        Broken, match=r"were admitted in the \d+ s up to the last arrival"
    ) as broken:
        assert_limiter_keeps(make, PLAN)
    assert broken.value.sentence == "W1"
    assert len(broken.value.trace) == arrivals
    assert all(line.endswith("admitted") for line in broken.value.trace)
    assert "(seed 0, trace " in broken.value.said


def test_a_needless_refusal_is_told_where_the_limiter_has_to_be_exact() -> None:
    assert_limiter_keeps(charges_refusals, MINUTES)
    with pytest.raises(Broken, match="The last arrival was refused, and with it") as broken:
        assert_limiter_keeps(charges_refusals, MINUTES, exact=True)
    assert broken.value.sentence == "W2"
    assert len(broken.value.trace) == 2


def test_a_plan_without_limits_is_kept_by_every_limiter() -> None:
    plan = Plan("open", rpm=None, rph=None, rpd=None, concurrent=None)
    assert_limiter_keeps(lambda: lambda at, cost: True, plan, exact=True)


def test_the_same_seed_finds_the_same_arrivals() -> None:
    found: list[str] = []
    for _ in range(2):
        with pytest.raises(Broken) as broken:
            assert_limiter_keeps(token_bucket, MINUTES, seed=7)
        found.append(str(broken.value))
    assert found[0] == found[1]
