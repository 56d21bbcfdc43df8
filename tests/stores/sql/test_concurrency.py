"""Concurrent callers share transactions without side effects and without deadlocks."""

from __future__ import annotations

import asyncio
from threading import Thread

from sqlalchemy import update

from lockgate import Plan, PlanBook, run
from lockgate.core.api_keys import ApiKey
from lockgate.core.leases import to_acquire
from lockgate.core.ledger import Hit
from lockgate.core.sliding_window import Reading
from lockgate.stores.answers import Usage, Verdict

from ..making import NOW, at_once, draft, draft_of, new_key, token_of
from .backends import Backend, Borrowed, await_locks

LIMIT = 200


def book(limit: int) -> PlanBook:
    return PlanBook([Plan("free", rpm=limit, rph=None, rpd=None, concurrent=None)])


async def test_tasks_share_transactions_and_get_the_readings_of_a_queue(store: Borrowed) -> None:
    made = new_key()
    await store.insert(draft_of(made), None, NOW)
    token = token_of(made)
    await store.admit(token, 1, book(LIMIT), NOW)  # From here on it is known whose key it is.
    answers = await asyncio.gather(*(store.admit(token, 1, book(LIMIT), NOW) for _ in range(300)))
    verdicts = [answer.verdict for answer in answers]
    assert verdicts == [Verdict.ADMITTED] * (LIMIT - 1) + [Verdict.LIMITED] * 101
    readings = [answer.reading for answer in answers]
    assert [r.remaining for r in readings if r] == [*range(LIMIT - 2, -1, -1), *[0] * 101]
    counts = [answer.key.request_count for answer in answers if answer.key]
    assert counts == [*range(2, LIMIT + 1), *[LIMIT] * 101]
    await store.close()


async def test_an_invalid_charge_fails_no_other_of_its_batch(store: Borrowed) -> None:
    windows = book(9).default.windows
    await store.charge("org_1", Hit(windows, 1), NOW)
    good, bad, also_good = await asyncio.gather(
        store.charge("org_1", Hit(windows, 1), NOW),
        store.charge("org_1", Hit(windows[:1], 1), NOW),
        store.charge("org_1", Hit(windows, 1), NOW),
        return_exceptions=True,
    )
    assert isinstance(bad, ValueError)
    assert isinstance(good, Reading)
    assert isinstance(also_good, Reading)
    assert (good.used, also_good.used) == ((2, 2, 2), (3, 3, 3))
    await store.close()


def test_every_verb_at_once_meets_no_deadlock(store: Borrowed) -> None:
    """Two organizations in opposite orders, by all verbs that write."""
    plans = book(10_000)
    made = [new_key() for _ in range(4)]
    keys = [
        run(store.insert(draft_of(key, f"org_{index % 2}"), None, NOW))
        for index, key in enumerate(made)
    ]

    def work(index: int) -> None:
        for step in range(12):
            which = (index + step) % 4
            key = made[which if index % 2 else 3 - which]
            match (index + step) % 5:
                case 0:
                    usage = {k.handle: Usage(1, NOW) for k in reversed(made)}
                    run(store.add_usage(usage))
                case 1:
                    run(
                        store.charge(
                            f"org_{which % 2}", to_acquire(f"{index}-{step}", "me", 99, 10), NOW
                        )
                    )
                case 2:
                    run(store.insert(draft(f"org_{which % 2}"), 1000, NOW))
                case _:
                    answer = run(store.admit(token_of(key), 1, plans, NOW))
                    assert answer.verdict is Verdict.ADMITTED

    at_once(8, work)
    assert all(run(store.find(key.handle)) for key in keys)


def test_w3_a_revocation_answers_the_usage_that_was_added_before_it(served: Backend) -> None:
    """Usage is added under the lock of the key alone."""
    store, answers = served.open(), list[ApiKey | None]()
    key = run(store.insert(draft("org_1"), None, NOW))
    revoking = Thread(target=lambda: answers.append(run(store.revoke_if_live("org_1", key.id))))
    with served.admin.begin() as connection:
        keys = store.tables.keys
        connection.execute(update(keys).where(keys.c.id == key.id).values(request_count=7))
        revoking.start()
        await_locks(served.admin)
    revoking.join(60)
    (revoked,) = answers
    assert revoked is not None
    assert revoked.revoked_at is not None
    assert revoked.request_count == 7
    run(store.close())
