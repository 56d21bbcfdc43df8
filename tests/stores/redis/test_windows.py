"""The windows in Lua: equal to the pure rule at any number, small, and gone in time (W14, W10)."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lockgate import ConfigurationError, Plan, run
from lockgate.core import sliding_window as rule
from lockgate.core.ledger import Hit, Peek
from lockgate.core.plans import CREATOR
from lockgate.core.sliding_window import Window
from lockgate.core.timestamps import DAY, HOUR, MILLISECOND, MINUTE, SECOND
from lockgate.stores.redis import RedisStore

from ..making import NOW
from .backends import opened, server

STEPS = st.one_of(
    st.integers(0, 3),
    st.integers(0, 2 * MINUTE),
    st.sampled_from([SECOND - 1, SECOND, MINUTE, HOUR, DAY - 1, DAY, 2 * DAY]),
    st.sampled_from([-1, -SECOND, -MINUTE, -2 * HOUR, -3 * DAY]),
)
LIMITS = st.sampled_from([None, 0, 5, 40, 2**24, 2**31, 2**53 - 1])
PLANS = st.builds(
    Plan,
    st.just("any"),
    rpm=LIMITS,
    rph=LIMITS,
    rpd=LIMITS,
    concurrent=st.none(),
    resolution=st.sampled_from([None, 1, 3, 60, 3600]),
)
COSTS = st.sampled_from([1, 1, 1, 2, 3, 2**24 - 1, 2**24, 2**40, 2**52, 2**53 - 2, 2**53 - 1])


@pytest.fixture
def store() -> Iterator[RedisStore]:
    store = opened("single")
    yield store
    run(store.close())


@settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(PLANS, PLANS, st.lists(st.tuples(STEPS, COSTS, st.booleans()), max_size=120))
def test_w14_lua_and_the_rule_give_the_same_readings(
    store: RedisStore, one: Plan, other: Plan, calls: list[tuple[int, int, bool]]
) -> None:
    """Also where counts are large, the clock steps back, and the plan changes on the way."""
    organization = f"org_{next(NUMBERS)}"
    state = rule.empty_state(one.windows)
    now = NOW
    for number, (step, cost, looks) in enumerate(calls):
        now += step
        windows = (one if number % 20 < 15 else other).windows
        if looks:
            expected = rule.peek(state, windows, now)
            assert run(store.charge(organization, Peek(windows), now)) == expected
        else:
            expected, state = rule.hit(state, windows, now, cost)
            assert run(store.charge(organization, Hit(windows, cost), now)) == expected


NUMBERS = iter(range(10**9))


@pytest.mark.parametrize("seed", range(4))
def test_w14_long_walks_with_many_cells(store: RedisStore, seed: int) -> None:
    """More than 64 cells in each window, folded where the clock keeps stepping back and forth."""
    numbers = Random(seed)
    resolution = (60, 60, 3, None)[seed]
    windows = Plan("any", 10**9, 10**12, None, None, resolution).windows
    state, now, most = rule.empty_state(windows), NOW, 0
    for number in range(600):
        pace = (SECOND // 3, 20 * SECOND, 10 * MINUTE)[number // 40 % 3]
        now += numbers.randint(0, pace) if number % 9 else -numbers.randint(0, 3 * pace)
        cost = 2**24 if numbers.random() < 0.02 else numbers.randint(1, 3)
        if number % 5:
            expected, state = rule.hit(state, windows, now, cost)
            assert run(store.charge("org_1", Hit(windows, cost), now)) == expected
        else:
            assert run(store.charge("org_1", Peek(windows), now)) == rule.peek(state, windows, now)
        most = max(most, *(len(cells[-1]) // 16 for cells in state))
    assert most > 64 or resolution == 3


@pytest.mark.parametrize("number", [1, 2, 4, 5])
def test_w14_any_number_of_windows(store: RedisStore, number: int) -> None:
    windows = tuple(
        Window(f"window {index}", 2**index * MINUTE, 40 * 2**index, index * SECOND)
        for index in range(number)
    )
    numbers, state, now = Random(number), rule.empty_state(windows), NOW
    for _ in range(300):
        now += numbers.randint(-1, 3) * SECOND // 2
        expected, state = rule.hit(state, windows, now, 1)
        assert run(store.charge("org_1", Hit(windows, 1), now)) == expected
        assert run(store.charge("org_1", Peek(windows), now)) == rule.peek(state, windows, now)


def test_w14_counts_stay_exact_however_much_was_admitted_before(store: RedisStore) -> None:
    """The largest cost again and again: its sum soon is more than Lua's numbers can hold."""
    windows = Plan("large", 2**53 - 1, 2**53 - 1, None, None).windows[:2]
    state, now = rule.empty_state(windows), NOW
    for number in range(60):
        now += (HOUR, 0, 1)[number % 3]
        cost = (2**53 - 4, 1, 1)[number % 3]
        expected, state = rule.hit(state, windows, now, cost)
        assert expected.allowed
        assert run(store.charge("org_1", Hit(windows, cost), now)) == expected


@pytest.mark.parametrize("seed", range(2))
def test_w14_windows_without_a_limit_count_the_newest_units(store: RedisStore, seed: int) -> None:
    """Many cells with costs of every size; now and then a plan with limits looks at them."""
    numbers = Random(seed)
    free = Plan("free", None, (None, 2**53 - 1)[seed], None, None).windows
    limited = Plan("limited", 2**50, None, 2**53 - 1, None).windows
    state, now = rule.empty_state(free), NOW
    for number in range(400):
        now += numbers.randint(0, 2 * SECOND) if number % 50 else -numbers.randint(0, MINUTE)
        cost = numbers.choice((1, 2**24, 2**46, 2**51 + 1, 2**53 - 1))
        windows = limited if number % 30 > 25 else free
        expected, state = rule.hit(state, windows, now, cost)
        assert run(store.charge("org_1", Hit(windows, cost), now)) == expected
        assert run(store.charge("org_1", Peek(windows), now)) == rule.peek(state, windows, now)


@pytest.mark.parametrize("plan", [CREATOR, Plan("busy", 20_000, 20_000, 20_000, None)])
def test_the_state_of_full_windows_stays_below_4_kb(store: RedisStore, plan: Plan) -> None:
    """A day of hits at every pace at once: as many cells as there can be."""
    paces = ((DAY, 13 * MINUTE), (HOUR, 33 * SECOND), (MINUTE, SECOND // 2))
    instants = sorted(
        {NOW + DAY - before for span, pace in paces for before in range(0, span, pace)}
    )
    for instant in instants:
        run(store.charge("org_1", Hit(plan.windows, 1), instant))
    place = store._names.place("org_1")
    with redis.Redis(port=server("single").port) as client:
        assert 1_500 < client.strlen(place.windows) <= 4_096


def test_w10_the_state_lives_for_the_longest_window_and_a_part(store: RedisStore) -> None:
    """Hits that join a cell do not extend the expiry; the hit that opened it set it."""
    windows = Plan("busy", 20_000, 20_000, 20_000, None).windows
    place = store._names.place("org_1")
    part = DAY // 60
    with redis.Redis(port=server("single").port) as client:
        for second in range(100):
            for instant in range(0, SECOND, SECOND // 4):
                run(store.charge("org_1", Hit(windows, 1), NOW + second * SECOND + instant))
            life = client.pttl(place.windows) * MILLISECOND
            assert DAY + part <= life <= 2 * DAY
            client.pexpire(place.windows, (DAY + part) // MILLISECOND)


def test_numbers_that_lua_cannot_hold_are_refused(store: RedisStore) -> None:
    with pytest.raises(ConfigurationError, match="cost"):
        run(store.charge("org_1", Hit(CREATOR.windows, 2**53), NOW))
    with pytest.raises(ConfigurationError, match="12 days"):
        run(store.charge("org_1", Hit((Window("month", 30 * DAY, 1, 0),), 1), NOW))
