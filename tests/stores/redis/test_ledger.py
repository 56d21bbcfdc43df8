"""Ledgers in Redis: each action answers as its rule in the core does, step for step (W14)."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from lockgate import Limit, Plan, run
from lockgate.core.holds import Look, Renew, Settle, Take, budgets
from lockgate.core.leases import TO_LIST, to_acquire, to_release, to_renew
from lockgate.core.ledger import Action, Hit, HitLeased, LeasesOut, Ledger, Peek, Reset
from lockgate.core.limits import bound
from lockgate.core.promises import start_of
from lockgate.core.quota_leases import LeaseRequest, Settlement
from lockgate.core.sliding_window import Window
from lockgate.core.timestamps import DAY, HOUR, MINUTE, SECOND
from lockgate.stores.redis import RedisStore

from ..making import NOW
from .backends import opened

PLANS = (
    Plan("limited", 200, 1_000, 5_000, None).windows,
    Plan("large", 10**6, None, 2**53 - 1, None).windows,
)
NAMED = (
    None,
    bound((Limit("export", "9/minute;40/hour"),), None),
    bound((Limit("export", "9/minute;40/hour", by="key"), Limit("credits", "300/month")), "key"),
)
HELD = tuple(
    budgets(limits)
    for rates in ("30/minute", "30/minute;90/hour", "40/calendar day;90/month")
    if (limits := bound((Limit("tokens", rates),), None)) is not None
)
JOBS = ("a job", "job", "jo", "\0", "b\0", "\ud800", "j" * 128, "🎫" * 128, "slots 0")
KEYS = ("key_1", "key_2", "\ud800")
OWNERS = ("me", "m", "", "\0", "a job", "o" * 128)
STEPS = (0, 0, 1, SECOND // 3, 20 * SECOND, MINUTE)
WALKS = {
    "forward": (*STEPS, HOUR, 10 * HOUR, DAY),
    # What has counted nothing for a day is dropped by the rule at once, and in Redis some time
    # after, which a clock that steps back could see.
    "back": (*STEPS, HOUR, -1, -SECOND, -MINUTE, -HOUR),
}


class Actions:
    """Actions of every kind at random, about few ids, so that most are about what is there."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.leases: list[str] = []

    def next(self, now: int) -> Action[Any]:
        random = self.random
        windows, limits = random.choice(PLANS), random.choice(NAMED)
        held, most = random.choice(HELD), random.choice((2, 100))
        hold, number = f"{random.randrange(8):032x}", len(held.fields)
        units = tuple(random.choice((1, 5, 11, 300, 2**53 - 1)) for _ in range(number))
        used = tuple(random.choice((None, 0, 1, 7, 2**53 - 1)) for _ in range(number))
        span = random.choice((1, SECOND, MINUTE, 2 * HOUR))
        job, owner = random.choice(JOBS), random.choice(OWNERS)
        cost = random.choice((1, 1, 1, 3, 50, 2**52))
        taken = Take(hold, held, units, span, most)
        acquired = to_acquire(job, owner, random.choice((None, 0, 3)), span)
        leased = HitLeased(windows, cost, self.lease(now), limits)
        kept = leased._replace(holder=random.choice(KEYS))
        actions: list[Action[Any]] = [
            *(Hit(windows, cost, limits), Hit((), cost, limits or NAMED[1])),
            *(leased, leased, HitLeased(windows, 0, self.lease(now))),
            *(kept, kept._replace(limits=None), kept._replace(request=None, limits=None)),
            *(Peek(windows, limits), Peek((), NAMED[2]), LeasesOut()),
            *(taken, taken, Settle(hold, held.fields, used, held.quotas)),
            *(Renew(hold, held.fields, span, held.quotas), Look(held, units, most)),
            *(acquired, acquired, to_renew(job, owner, span), to_release(job, owner), TO_LIST),
        ]
        return random.choice(actions) if random.random() > 0.01 else Reset()

    def lease(self, now: int) -> LeaseRequest | None:
        """Return a request that settles some of the latest leases."""
        random, id = self.random, f"{self.random.getrandbits(64):016x}"
        known = [one for one in self.leases[-3:] if random.random() < 0.5]
        stamps = ((now - 2 * SECOND, 1), (now - 5, 2), (now, 1))
        settled = tuple(Settlement(one, stamps[: random.randrange(4)]) for one in known)
        self.leases.append(id)
        return random.choice((None, LeaseRequest(id, random.choice((0, 3, 40)), SECOND, settled)))


@pytest.fixture(params=["single", "cluster"])
def store(request: pytest.FixtureRequest) -> Iterator[RedisStore]:
    store = opened(request.param)
    yield store
    run(store.close())


@pytest.mark.parametrize("walk", WALKS)
@pytest.mark.parametrize("seed", range(4))
def test_every_action_answers_as_its_rule_does_W14(store: RedisStore, walk: str, seed: int) -> None:
    actions, ledger, now = Actions(seed), Ledger("org_1"), NOW
    for number in range(400):
        now += actions.random.choice(WALKS[walk])
        action = actions.next(now)
        expected, ledger = action.apply(ledger, now)
        assert run(store.charge("org_1", action, now)) == expected, (number, action)


KEPT = (
    Plan("narrow", 12, 900, None, None).windows,
    Plan("exact", 70, 9_000, None, None, resolution=None).windows,
    Plan("shared", 200, 20_000, None, None).windows,
    Plan("wide", 2**40, 2**46, None, None).windows,
)


@pytest.mark.parametrize("walk", WALKS)
@pytest.mark.parametrize("windows", KEPT)
def test_every_promise_is_given_kept_and_dropped_as_by_its_rule_W14(
    store: RedisStore, walk: str, windows: tuple[Window, ...]
) -> None:
    actions, ledger, now = Actions(7), Ledger("org_1"), NOW
    random, least, promised = actions.random, max(1, (windows[0].limit or 0) // 150), 0
    for number in range(600):
        now += random.choice(STEPS[:4] if random.random() < 0.98 else WALKS[walk])
        if random.random() < 0.2 and ledger.promises:
            now = max(now, start_of(ledger.promises[random.random() < 0.1 and -1]))
        cost, holder = least * random.choice((1, 1, 1, 2, 9, 300)), random.choice((*KEYS, ""))
        request = actions.lease(now) if random.random() < 0.2 else None
        charge = HitLeased(windows, cost, request, None, holder)
        limits = random.choice(NAMED)
        others: list[Action[Any]] = [Hit(windows, 1), Hit(windows, cost, limits), Peek(windows)]
        others += [Peek(windows, limits), HitLeased(windows, 0, actions.lease(now)), LeasesOut()]
        action = charge if random.random() < 0.8 else random.choice(others)
        expected, ledger = action.apply(ledger, now)
        assert run(store.charge("org_1", action, now)) == expected, (number, action)
        promised += bool(ledger.promises)
    assert promised > 30


def test_an_action_without_a_script_is_refused_by_name(store: RedisStore) -> None:
    with pytest.raises(TypeError, match="script for int"):
        run(store.charge("org_1", 1, NOW))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - on purpose
