"""Usage lies beside the windows until its key has to make room; every count is exact (D6)."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest
from sqlalchemy import select

from lockgate import Plan, PlanBook, run
from lockgate.core.digests import Digest
from lockgate.core.timestamps import SECOND
from lockgate.stores.answers import Usage, Verdict
from lockgate.stores.sql.admission import USES_AT_MOST

from ..making import NOW, at_once, draft_of, new_key, token_of
from .backends import Backend, Borrowed

WIDE = PlanBook([Plan("free", rpm=None, rph=None, rpd=None, concurrent=None)])


def test_an_admission_writes_one_row(store: Borrowed, backend: Backend) -> None:
    made = new_key()
    key = run(store.insert(draft_of(made), None, NOW))
    run(store.admit(token_of(made), 1, WIDE, NOW))
    count = select(store.tables.keys.c.request_count)
    with backend.admin.connect() as connection:
        assert connection.scalar(count) == 0
    used = key._replace(request_count=1, last_used_at=NOW)
    assert run(store.find(made.handle)) == used
    assert run(store.get("org_1", key.id)) == used
    assert run(store.list("org_1", 100)) == [used]
    assert run(store.revoke_if_live("org_1", key.id, NOW)) == used._replace(revoked_at=NOW)
    assert run(store.admit(token_of(made), 1, WIDE, NOW)).key == used._replace(revoked_at=NOW)


@pytest.mark.parametrize("together", [False, True])
async def test_usage_of_a_ninth_busy_key_moves_to_its_row(
    store: Borrowed, backend: Backend, together: bool
) -> None:
    made = [new_key() for _ in range(3 * USES_AT_MOST)]
    for number, key in enumerate(made):
        await store.insert(draft_of(key, f"org_{number % 2}"), None, NOW)
    order = made * 4
    random.Random(7).shuffle(order)
    wanted: dict[str, tuple[int, int]] = {}
    for step, key in enumerate(order):
        wanted[key.handle] = wanted.get(key.handle, (0, 0))[0] + 1, NOW + step * SECOND
    admits = [
        store.admit(token_of(key), 1, WIDE, NOW + step * SECOND) for step, key in enumerate(order)
    ]
    answers = await asyncio.gather(*admits) if together else [await admit for admit in admits]
    assert {answer.verdict for answer in answers} == {Verdict.ADMITTED}
    for owner in ("org_0", "org_1"):
        for kept in await store.list(owner, 100):
            assert (kept.request_count, kept.last_used_at) == wanted[kept.handle]
            assert await store.find(kept.handle) == kept
    seen: dict[str, list[int]] = {}
    for answer in answers:
        assert answer.key is not None
        seen.setdefault(answer.key.handle, []).append(answer.key.request_count)
    assert {tuple(sorted(counts)) for counts in seen.values()} == {(1, 2, 3, 4)}
    moved = select(store.tables.keys.c.request_count)
    with backend.admin.connect() as connection:
        still = [count for count in connection.scalars(moved) if count == 0]
    assert len(still) <= 2 * USES_AT_MOST
    await store.close()


def test_no_count_is_lost_while_keys_make_room_for_one_another(
    store: Borrowed, backend: Backend
) -> None:
    """By several stores, as of several processes, and beside usage that comes from elsewhere."""
    stores = [store, *(backend.open(beside=store) for _ in range(2))]
    made = [new_key() for _ in range(3 * USES_AT_MOST)]
    for number, key in enumerate(made):
        run(stores[0].insert(draft_of(key, f"org_{number % 2}"), None, NOW))

    def work(number: int) -> Counter[str]:
        chance, mine = random.Random(number), stores[number % 3]
        counted: Counter[str] = Counter()
        for _ in range(30):
            some = chance.sample(made, 3)
            if chance.random() < 0.2:
                run(mine.add_usage({key.handle: Usage(2, NOW) for key in some}))
                counted.update({key.handle: 2 for key in some})
            else:
                answer = run(mine.admit(token_of(some[0]), 1, WIDE, NOW))
                counted[some[0].handle] += answer.verdict is Verdict.ADMITTED
        return counted

    wanted = sum(at_once(9, work), Counter[str]())
    kept = [key for owner in ("org_0", "org_1") for key in run(stores[0].list(owner, 100))]
    assert {key.handle: key.request_count for key in kept if key.request_count} == dict(+wanted)
    for one in stores:
        run(one.close())


def test_a_handle_unfit_for_its_column_fails_no_other_charge(store: Borrowed) -> None:
    key = run(store.insert(draft_of(new_key()), None, NOW))
    old, new = Digest("sha256", b"old"), Digest("sha256", b"new")
    handles = ["\u00e9", "\0", "\ud800", "\U0001f511", "h" * 65, ""]
    for number, handle in enumerate(handles, 1):
        run(store.add_usage({handle: Usage(1, NOW), key.handle: Usage(2, NOW)}))
        run(store.add_usage({handle: Usage(1, NOW)}))
        assert run(store.rehash_if(handle, old, new)) is False
        assert run(store.rehash_token_if(handle, old, new)) is False
        counted = key._replace(request_count=2 * number, last_used_at=NOW)
        assert run(store.list("org_1", 100)) == [counted]
