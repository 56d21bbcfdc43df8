"""Calendar quotas in Redis: the server's clock names the period, and a month outlasts its hits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

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


@pytest.fixture
def store() -> Iterator[RedisStore]:
    store = opened("single")
    yield store
    run(store.close())


@pytest.mark.parametrize("days", [-400, -1, 1, 400])
def test_the_period_is_that_of_the_servers_clock_however_wrong_the_process_is(
    store: RedisStore, days: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hit with or without a plan, a look, a hold and its settling, and an admission."""
    factory = Factory()
    key = factory.key()
    run(store.insert(factory.draft("org_2", key=key), None))
    run(store.charge("org_1", Hit(CREATOR.windows, 1, of(QUOTA))))
    monkeypatch.setattr(ledger, "wall_clock", lambda: wall_clock() + days * DAY)
    hit = run(store.charge("org_1", Hit(CREATOR.windows, 1, of(QUOTA))))
    assert hit.used[-2:] == (2, 2)
    alone = run(store.charge("org_1", Hit((), 1, of(QUOTA))))
    assert (alone.used, alone.allowed) == ((3, 3), True)
    assert not run(store.charge("org_1", Hit((), 1, of(QUOTA)))).allowed
    assert run(store.charge("org_1", Peek((), of(QUOTA)))).used == (3, 3)
    limits = budgets(of(QUOTA))
    taken = run(store.charge("org_1", Take("0" * 32, limits, (3, 3), HOUR, 9)))
    assert (taken.done, taken.used) == (True, (3, 3))
    settled = run(store.charge("org_1", Settle("0" * 32, limits.fields, (2, 2), limits.quotas)))
    assert limits.quotas[1] is not None
    year = limits.quotas[1].period(settled.now)
    assert settled.counts[1] == Count(1, year.begins, 0, 2)
    plans = PlanBook([CREATOR], custom=[], default="creator")
    told = [run(store.admit(factory.token(key), 1, plans, None, None, (QUOTA,))) for _ in range(4)]
    assert [one.verdict for one in told] == [Verdict.ADMITTED] * 3 + [Verdict.LIMITED]
    assert told[0].reading is not None
    assert told[0].limits is not None
    assert told[0].reading.used == (1,) * 5
    for window in told[0].limits.windows:
        begins = -1 - window.grain
        assert begins <= told[0].reading.now < begins + window.span


def life(store: RedisStore) -> int:
    """Return the microseconds for which the server keeps the limits of an organization."""
    with server("single").client() as client:
        return int(client.pttl(store._names.place("org_1").limits)) * MILLISECOND


def test_the_hash_lives_a_day_longer_than_its_longest_period(store: RedisStore) -> None:
    """Of sliding windows alone, two days; a later hit of one does not shorten the rest."""
    run(store.charge("org_1", Hit((), 1, of(SLIDING))))
    assert 2 * DAY - 60 * SECOND <= life(store) <= 2 * DAY + HOUR
    run(store.charge("org_1", Hit((), 1, of(Limit("credits", "3/year")))))
    now = run(store.now())
    ends = of(Limit("credits", "3/year")).at(now).windows[0]
    least = -1 - ends.grain + ends.span + DAY - now
    run(store.charge("org_1", Hit((), 1, of(SLIDING))))
    assert least - 60 * SECOND <= life(store) <= least + HOUR + SECOND
    run(store.charge("org_1", Take("0" * 32, budgets(of(QUOTA)), (3, 3), HOUR, 9)))
    assert life(store) > 366 * DAY
