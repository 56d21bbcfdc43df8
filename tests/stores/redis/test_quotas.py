"""Calendar quotas in Redis: the server's clock names the period, and a month outlasts its hits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from lockgate import Limit, run
from lockgate.clock import wall_clock
from lockgate.core.budgets import Count
from lockgate.core.holds import Settle, Take, budgets
from lockgate.core.ledger import Hit, Peek
from lockgate.core.limit_windows import LimitWindows
from lockgate.core.limits import bound
from lockgate.core.plans import CREATOR, PlanBook
from lockgate.core.timestamps import DAY, HOUR, MILLISECOND, SECOND
from lockgate.stores.answers import Verdict
from lockgate.stores.redis import RedisStore, ledger
from lockgate.testing.factories import Factory

from .backends import opened, server

QUOTA = Limit("credits", "3/calendar day;9/year")
SLIDING = Limit("export", "9/hour")


def of(*limits: Limit) -> LimitWindows:
    named = bound(limits, None)
    assert named is not None
    return named


@pytest.mark.parametrize("days", [-400, -1, 1, 400])
def test_a_hold_counts_in_the_period_of_the_servers_clock(
    store: RedisStore, days: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = budgets(of(QUOTA))
    monkeypatch.setattr(ledger, "wall_clock", lambda: wall_clock() + days * DAY)
    taken = run(store.charge("org_1", Take("0" * 32, limits, (3, 3), HOUR, 9)))
    assert (taken.done, taken.used) == (True, (3, 3))
    settled = run(store.charge("org_1", Settle("0" * 32, limits.fields, (2, 2), limits.quotas)))
    assert limits.quotas[1] is not None
    year = limits.quotas[1].period(settled.now)
    assert settled.counts[1] == Count(1, year.begins, 0, 2)


def test_a_budget_outlasts_its_longest_period() -> None:
    store = opened("single")
    run(store.charge("org_1", Take("0" * 32, budgets(of(QUOTA)), (3, 3), HOUR, 9)))
    assert life_of_limits(store) > 366 * DAY


def life_of_limits(store: RedisStore) -> int:
    """Return the microseconds for which the server keeps the limits of an organization."""
    name = store._names.place("org_1").limits
    run(store.close())
    with redis.Redis(port=server("single").port) as client:
        return int(client.pttl(name)) * MILLISECOND


@pytest.fixture(params=["single", "cluster"])
def store(request: pytest.FixtureRequest) -> Iterator[RedisStore]:
    store = opened(request.param)
    yield store
    run(store.close())


@pytest.mark.parametrize("days", [-400, -1, 1, 400])
def test_the_period_is_that_of_the_servers_clock_however_wrong_the_process_is(
    store: RedisStore, days: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(store.charge("org_1", Hit(CREATOR.windows, 1, of(QUOTA))))
    monkeypatch.setattr(ledger, "wall_clock", lambda: wall_clock() + days * DAY)
    hit = run(store.charge("org_1", Hit(CREATOR.windows, 1, of(QUOTA))))
    assert hit.used[-2:] == (2, 2)
    alone = run(store.charge("org_1", Hit((), 1, of(QUOTA))))
    assert (alone.used, alone.allowed) == ((3, 3), True)
    assert not run(store.charge("org_1", Hit((), 1, of(QUOTA)))).allowed
    assert run(store.charge("org_1", Peek((), of(QUOTA)))).used == (3, 3)


@pytest.mark.parametrize("days", [-40, 40])
def test_an_admission_is_charged_once_to_the_period_of_the_server(
    store: RedisStore, days: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    factory = Factory()
    key = factory.key()
    run(store.insert(factory.draft(key=key), None))
    monkeypatch.setattr(ledger, "wall_clock", lambda: wall_clock() + days * DAY)
    plans = PlanBook([CREATOR], custom=[], default="creator")
    told = [run(store.admit(factory.token(key), 1, plans, None, None, (QUOTA,))) for _ in range(4)]
    assert [one.verdict for one in told] == [Verdict.ADMITTED] * 3 + [Verdict.LIMITED]
    first = told[0]
    assert first.reading is not None
    assert first.limits is not None
    assert first.reading.used == (1,) * 5
    day, year = first.limits.windows
    for window in (day, year):
        begins = -1 - window.grain
        assert begins <= first.reading.now < begins + window.span


def test_the_hash_lives_a_day_longer_than_its_longest_period() -> None:
    """A later hit of a sliding window alone does not shorten that."""
    store = opened("single")
    run(store.charge("org_1", Hit((), 1, of(Limit("credits", "3/year")))))
    now = run(store.now())
    ends = of(Limit("credits", "3/year")).at(now).windows[0]
    least = -1 - ends.grain + ends.span + DAY - now
    run(store.charge("org_1", Hit((), 1, of(SLIDING))))
    life = life_of_limits(store)
    assert least - 60 * SECOND <= life <= least + HOUR + SECOND


def test_a_sliding_window_alone_keeps_the_hash_for_two_days() -> None:
    store = opened("single")
    run(store.charge("org_1", Hit((), 1, of(SLIDING))))
    assert 2 * DAY - 60 * SECOND <= life_of_limits(store) <= 2 * DAY + HOUR
