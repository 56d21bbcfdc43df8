"""Each sentence of the contract is a test, run for every store of ``conftest.py``."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockgate import Plan, PlanBook, Store
from lockgate.errors import HandleTaken, KeyLimitReached
from lockgate.rules import windows as rule
from lockgate.rules.credentials import Digest, NewKey
from lockgate.rules.instants import DAY, HOUR, MINUTE, SECOND
from lockgate.rules.keys import ApiKey, KeyState
from lockgate.rules.plans import Organization
from lockgate.stores.contract import Usage, Verdict

from .making import (
    BOOK,
    HOSTILE,
    NOW,
    WIDE,
    HandClock,
    at_once,
    draft,
    draft_of,
    drive,
    new_key,
    token_of,
)

FREE = BOOK.default.windows


def small(limit: int, name: str = "free") -> PlanBook:
    return PlanBook([Plan(name, rpm=limit, rph=None, rpd=None, concurrent=1)], default=name)


# --- insert, find, get, list ----------------------------------------------------------------


async def test_insert_returns_the_key_as_it_was_drafted(store: Store) -> None:
    wanted = draft("org_1", lifetime=DAY)
    key = await store.insert(wanted, None, NOW)
    assert key[:8] == wanted[:8]
    assert type(key) is ApiKey
    assert key.created_at == NOW - NOW % 1000
    assert key.expires_at == NOW + DAY
    assert (key.revoked_at, key.request_count, key.last_used_at) == (None, 0, None)


async def test_what_was_inserted_is_found_by_handle_by_id_and_in_the_list(store: Store) -> None:
    key = await store.insert(draft("org_1"), None, NOW)
    assert await store.find(key.handle) == key
    assert await store.get("org_1", key.id) == key
    assert await store.list("org_1") == [key]


async def test_what_is_not_there_is_none(store: Store) -> None:
    key = await store.insert(draft("org_1"), None, NOW)
    assert await store.find("........") is None
    assert await store.find(key.id) is None
    assert await store.get("org_1", key.handle) is None
    assert await store.get("org_2", key.id) is None
    assert await store.list("org_2") == []


@pytest.mark.parametrize("other", ["org_1", "org_2"])
async def test_a_handle_is_taken_once_whichever_the_organization(store: Store, other: str) -> None:
    first = await store.insert(draft("org_1"), None, NOW)
    with pytest.raises(HandleTaken):
        await store.insert(draft(other)._replace(handle=first.handle), None, NOW)
    assert await store.find(first.handle) == first
    assert await store.list("org_1") == [first]
    assert await store.list("org_2") == []


async def test_the_handle_of_a_revoked_or_expired_key_stays_taken(store: Store) -> None:
    revoked = await store.insert(draft("org_1"), None, NOW)
    await store.revoke_if_live("org_1", revoked.id, NOW)
    expired = await store.insert(draft("org_1", lifetime=1), None, NOW)
    for handle in (revoked.handle, expired.handle):
        with pytest.raises(HandleTaken):
            await store.insert(draft("org_1")._replace(handle=handle), None, NOW + DAY)


def test_one_of_many_threads_takes_a_handle(store: Store) -> None:
    handle = new_key().handle

    def insert(index: int) -> bool:
        try:
            drive(store, store.insert(draft(f"org_{index}")._replace(handle=handle), None, NOW))
        except HandleTaken:
            return False
        return True

    assert sum(at_once(32, insert)) == 1


async def test_the_cap_counts_live_keys_only(store: Store) -> None:
    keys = [await store.insert(draft("org_1", lifetime=life), 3, NOW) for life in (None, None, DAY)]
    with pytest.raises(KeyLimitReached, match="3 live"):
        await store.insert(draft("org_1"), 3, NOW)
    await store.insert(draft("org_2"), 3, NOW)
    await store.revoke_if_live("org_1", keys[0].id, NOW)
    await store.insert(draft("org_1"), 3, NOW)
    with pytest.raises(KeyLimitReached):
        await store.insert(draft("org_1"), 3, NOW + DAY - 1)
    await store.insert(draft("org_1"), 3, NOW + DAY)
    with pytest.raises(KeyLimitReached):
        await store.insert(draft("org_1"), 3, NOW + DAY)


async def test_revoking_twice_makes_room_for_one_key_only(store: Store) -> None:
    first = await store.insert(draft("org_1"), 2, NOW)
    await store.insert(draft("org_1"), 2, NOW)
    await store.revoke_if_live("org_1", first.id, NOW)
    await store.revoke_if_live("org_1", first.id, NOW)
    await store.insert(draft("org_1"), 2, NOW)
    with pytest.raises(KeyLimitReached):
        await store.insert(draft("org_1"), 2, NOW)


async def test_a_revoked_key_that_also_expires_makes_room_once(store: Store) -> None:
    first = await store.insert(draft("org_1", lifetime=DAY), 2, NOW)
    await store.insert(draft("org_1"), 2, NOW)
    await store.revoke_if_live("org_1", first.id, NOW)
    await store.insert(draft("org_1"), 2, NOW)
    with pytest.raises(KeyLimitReached):
        await store.insert(draft("org_1"), 2, NOW + 2 * DAY)


async def test_no_cap_is_any_number_and_leaves_later_caps_true(store: Store) -> None:
    for _ in range(5):
        await store.insert(draft("org_1"), None, NOW)
    with pytest.raises(KeyLimitReached):
        await store.insert(draft("org_1"), 5, NOW)
    await store.insert(draft("org_1"), 6, NOW)


async def test_a_refused_insert_leaves_nothing(store: Store) -> None:
    await store.insert(draft("org_1"), 1, NOW)
    refused = draft("org_1")
    with pytest.raises(KeyLimitReached):
        await store.insert(refused, 1, NOW)
    assert await store.find(refused.handle) is None
    assert await store.get("org_1", refused.id) is None
    assert len(await store.list("org_1")) == 1


def test_k8_the_cap_holds_under_64_threads(store: Store) -> None:
    def insert(_: int) -> int:
        done = 0
        for _ in range(4):
            try:
                drive(store, store.insert(draft("org_1"), 100, NOW))
            except KeyLimitReached:
                continue
            done += 1
        return done

    assert sum(at_once(64, insert)) == 100
    assert len(drive(store, store.list("org_1"))) == 100


async def test_d10_the_list_is_newest_first_then_by_id_whichever_the_state(store: Store) -> None:
    keys: list[ApiKey] = []
    for step in (3, 0, 2, 2, 2, 1):
        wanted = draft("org_1", lifetime=1 if step == 1 else None)
        keys.append(await store.insert(wanted, None, NOW + step * SECOND))
    await store.revoke_if_live("org_1", keys[0].id, NOW + 4 * SECOND)
    listed = await store.list("org_1")
    assert {key.id for key in listed} == {key.id for key in keys}
    assert listed == sorted(listed, key=lambda key: (-key.created_at, key.id))
    assert [key.created_at for key in listed] == sorted(
        (key.created_at for key in keys), reverse=True
    )
    assert sorted(key.id for key in listed[1:4]) == [key.id for key in listed[1:4]]


async def test_d10_within_a_millisecond_the_id_decides(store: Store) -> None:
    """As a reader of the list sees it: its times are in milliseconds (D30)."""
    start = NOW - NOW % 1000
    drafts = [draft("org_1") for _ in range(3)]
    ids = [
        (await store.insert(wanted, None, start + micros)).id
        for wanted, micros in zip(reversed(drafts), (0, 500, 999), strict=True)
    ]
    assert [key.id for key in await store.list("org_1")] == sorted(ids)


# --- K6 and W8: organizations do not touch each other ---------------------------------------


async def test_k6_another_organizations_key_is_no_key(store: Store) -> None:
    key = await store.insert(draft("org_1"), None, NOW)
    for stranger in ("org_2", "org_", "org_11", "ORG_1", "org_1 ", "org_1\0", "*"):
        assert await store.get(stranger, key.id) is None
        assert await store.revoke_if_live(stranger, key.id, NOW) is None
        assert await store.list(stranger) == []
    assert await store.find(key.handle) == key


async def test_w8_hostile_ids_are_ids_like_others(store: Store) -> None:
    for index, organization in enumerate(HOSTILE):
        key = await store.insert(draft(organization, name=f"key {index}"), 1, NOW)
        assert key.organization == organization
        await store.put_organization(Organization(organization, "starter", (("rpm", index),)))
        await store.hit(organization, FREE, index % 10 + 1, NOW)
        await store.acquire(organization, f"job {index}", "me", 2, MINUTE, NOW)
    for index, organization in enumerate(HOSTILE):
        (key,) = await store.list(organization)
        assert key.name == f"key {index}"
        assert await store.get(organization, key.id) == key
        placed = await store.organization(organization)
        assert placed == Organization(organization, "starter", (("rpm", index),))
        assert (await store.look(organization, FREE, NOW)).used == (index % 10 + 1,) * 3
        (lease,) = await store.held(organization, NOW)
        assert lease.job == f"job {index}"
        for other in HOSTILE[:index]:
            assert await store.get(other, key.id) is None


async def test_d36_job_ids_and_owners_are_opaque(store: Store) -> None:
    for job in HOSTILE:
        assert (await store.acquire("org_1", job, "me", None, MINUTE, NOW)).lease is not None
    held = await store.held("org_1", NOW)
    assert [lease.job for lease in held] == HOSTILE
    assert await store.release("org_1", HOSTILE[0], "me", NOW)
    assert len(await store.held("org_1", NOW)) == len(HOSTILE) - 1


async def test_ids_in_two_parts_do_not_run_together(store: Store) -> None:
    """An organization and a job that read the same when they are written one after the other."""
    await store.acquire("a", "b:c", "me", None, MINUTE, NOW)
    await store.acquire("a:b", "c", "me", None, MINUTE, NOW)
    assert [lease.job for lease in await store.held("a", NOW)] == ["b:c"]
    assert [lease.job for lease in await store.held("a:b", NOW)] == ["c"]


# --- revoke_if_live -------------------------------------------------------------------------


async def test_d4_revoking_again_keeps_the_first_time(store: Store) -> None:
    key = await store.insert(draft("org_1"), None, NOW)
    first = await store.revoke_if_live("org_1", key.id, NOW + 1)
    assert first == key._replace(revoked_at=NOW + 1)
    assert await store.revoke_if_live("org_1", key.id, NOW + 2) == first
    assert await store.revoke_if_live("org_1", key.id, NOW - DAY) == first
    assert await store.find(key.handle) == first
    assert await store.list("org_1") == [first]


async def test_an_expired_key_can_still_be_revoked(store: Store) -> None:
    key = await store.insert(draft("org_1", lifetime=1), None, NOW)
    revoked = await store.revoke_if_live("org_1", key.id, NOW + DAY)
    assert revoked is not None
    assert revoked.revoked_at == NOW + DAY
    assert revoked.state(NOW + DAY) is KeyState.REVOKED


async def test_no_such_key_is_none_and_revokes_nothing(store: Store) -> None:
    key = await store.insert(draft("org_1"), None, NOW)
    assert await store.revoke_if_live("org_1", "no such id", NOW) is None
    assert await store.revoke_if_live("org_2", key.id, NOW) is None
    assert await store.find(key.handle) == key


def test_many_revocations_at_once_leave_one_time(store: Store) -> None:
    key = drive(store, store.insert(draft("org_1"), None, NOW))
    answers = at_once(
        32, lambda index: drive(store, store.revoke_if_live("org_1", key.id, NOW + index))
    )
    assert len({answer.revoked_at for answer in answers if answer}) == 1
    assert None not in answers


def test_k4_no_admission_that_starts_after_the_revocation_returned(store: Store) -> None:
    """Threads note whether the revocation had returned *before* they started an admission."""
    for _ in range(20):
        made = new_key()
        key = drive(store, store.insert(draft_of(made), None, NOW))
        revoked = threading.Event()

        def admit_for_long(
            _: int, made: NewKey = made, key: ApiKey = key, revoked: threading.Event = revoked
        ) -> list[tuple[bool, Verdict]]:
            token = token_of(made)
            seen: list[tuple[bool, Verdict]] = []
            for step in range(60):
                if step == 20 and not revoked.is_set():
                    drive(store, store.revoke_if_live("org_1", key.id, NOW))
                    revoked.set()
                late = revoked.is_set()
                seen.append((late, drive(store, store.admit(token, 1, WIDE, NOW)).verdict))
            return seen

        seen = [entry for part in at_once(4, admit_for_long) for entry in part]
        assert {verdict for late, verdict in seen if late} == {Verdict.REVOKED}
        admitted = [verdict for _, verdict in seen].count(Verdict.ADMITTED)
        after = drive(store, store.find(key.handle))
        assert after is not None
        assert after.request_count == admitted


# --- rehash_if ------------------------------------------------------------------------------


async def test_rehash_replaces_the_digest_and_nothing_else(store: Store) -> None:
    key = await store.insert(draft("org_1", lifetime=DAY), None, NOW)
    await store.add_usage({key.handle: Usage(3, NOW)})
    before = await store.find(key.handle)
    assert before is not None
    new = Digest("hmac-sha256:01020304", b"\x07" * 32)
    assert await store.rehash_if(key.handle, Digest(key.scheme, key.digest), new)
    after = await store.find(key.handle)
    assert after == before._replace(scheme=new.scheme, digest=new.value)


async def test_rehash_needs_the_old_digest_whole(store: Store) -> None:
    key = await store.insert(draft("org_1"), None, NOW)
    old = Digest(key.scheme, key.digest)
    new = Digest("hmac-sha256:01020304", b"\x07" * 32)
    assert not await store.rehash_if(key.handle, old._replace(scheme="md5"), new)
    assert not await store.rehash_if(key.handle, old._replace(value=b"\0" * 32), new)
    assert not await store.rehash_if("no handle", old, new)
    assert await store.find(key.handle) == key
    assert await store.rehash_if(key.handle, old, new)
    assert not await store.rehash_if(key.handle, old, new)


async def test_k3_rehash_does_not_undo_a_revocation(store: Store) -> None:
    made = new_key()
    key = await store.insert(draft_of(made), None, NOW)
    await store.revoke_if_live("org_1", key.id, NOW + 1)
    await store.rehash_if(
        key.handle, Digest(key.scheme, key.digest), Digest(key.scheme, key.digest)
    )
    after = await store.find(key.handle)
    assert after is not None
    assert after.revoked_at == NOW + 1
    assert (await store.admit(token_of(made), 1, WIDE, NOW)).verdict is Verdict.REVOKED


def test_k3_no_race_of_all_verbs_undoes_a_revocation(store: Store) -> None:
    for _ in range(20):
        made = new_key()
        key = drive(store, store.insert(draft_of(made), None, NOW))
        digests = [Digest(key.scheme, key.digest), Digest(key.scheme, key.digest[::-1])]

        def work(
            index: int,
            made: NewKey = made,
            key: ApiKey = key,
            digests: list[Digest] = digests,
        ) -> None:
            if index == 0:
                drive(store, store.revoke_if_live("org_1", key.id, NOW))
            elif index % 3 == 0:
                drive(store, store.add_usage({key.handle: Usage(1, NOW)}))
            elif index % 3 == 1:
                drive(store, store.admit(token_of(made), 1, WIDE, NOW))
            else:
                for old, new in (digests, digests[::-1]):
                    drive(store, store.rehash_if(key.handle, old, new))

        at_once(7, work)
        after = drive(store, store.find(key.handle))
        assert after is not None
        assert after.revoked_at == NOW


# --- add_usage and census -------------------------------------------------------------------


async def test_k7_usage_adds_up_and_last_used_never_goes_back(store: Store) -> None:
    one = await store.insert(draft("org_1"), None, NOW)
    two = await store.insert(draft("org_2"), None, NOW)
    await store.add_usage({one.handle: Usage(2, NOW + 5), two.handle: Usage(1, NOW)})
    await store.add_usage({one.handle: Usage(3, NOW + 1)})
    await store.add_usage({})
    found = await store.find(one.handle)
    assert found == one._replace(request_count=5, last_used_at=NOW + 5)
    assert await store.get("org_2", two.id) == two._replace(request_count=1, last_used_at=NOW)


async def test_usage_of_handles_that_do_not_exist_is_passed_over(store: Store) -> None:
    key = await store.insert(draft("org_1"), None, NOW)
    await store.add_usage({"nowhere1": Usage(9, NOW), key.handle: Usage(1, NOW)})
    assert await store.find("nowhere1") is None
    later = await store.insert(draft("org_1")._replace(handle="nowhere1"), None, NOW)
    assert later.request_count == 0
    found = await store.find(key.handle)
    assert found is not None
    assert found.request_count == 1


def test_k7_usage_from_many_threads_adds_up(store: Store) -> None:
    key = drive(store, store.insert(draft("org_1"), None, NOW))

    def use(index: int) -> None:
        for step in range(50):
            drive(store, store.add_usage({key.handle: Usage(1, NOW + index * 50 + step)}))

    at_once(8, use)
    found = drive(store, store.find(key.handle))
    assert found is not None
    assert (found.request_count, found.last_used_at) == (400, NOW + 399)


async def test_the_census_counts_live_keys_by_scheme(store: Store) -> None:
    assert await store.census() == {}
    now = await store.now()
    for scheme, lifetime in (("a", None), ("a", DAY), ("b", None), ("b", 1), ("c", None)):
        await store.insert(draft("org_1", lifetime=lifetime)._replace(scheme=scheme), None, now - 2)
    for key in await store.list("org_1"):
        if key.scheme == "c":
            await store.revoke_if_live("org_1", key.id, now)
    assert await store.census() == {"a": 2, "b": 1}


# --- windows --------------------------------------------------------------------------------

STEPS = st.one_of(
    st.integers(0, 3),
    st.sampled_from([SECOND - 1, SECOND, MINUTE - 1, MINUTE, HOUR, DAY - 1, DAY, 2 * DAY]),
    st.integers(0, 2 * MINUTE),
)
PLANS = [
    Plan("narrow", rpm=3, rph=5, rpd=7, concurrent=1),
    Plan("exact", rpm=10, rph=100, rpd=500, concurrent=1, resolution=None),
    Plan("coarse", rpm=200, rph=300, rpd=None, concurrent=1, resolution=1),
    Plan("open", rpm=None, rph=None, rpd=None, concurrent=None),
]
CALLS = st.lists(
    st.tuples(
        STEPS,
        st.sampled_from(["org_1", "org_2"]),
        st.sampled_from(PLANS),
        st.integers(1, 4),
        st.booleans(),
    ),
    max_size=60,
)


@settings(deadline=None)
@given(CALLS)
def test_w14_hit_and_look_read_as_the_pure_rule_says(
    open_store: Callable[[], Store],
    calls: list[tuple[int, str, Plan, int, bool]],
) -> None:
    store = open_store()
    states: dict[str, rule.State] = {}
    now = NOW
    for step, organization, plan, cost, looks in calls:
        now += step
        state = states.get(organization) or rule.empty_state(plan.windows)
        if looks:
            expected = rule.look(state, plan.windows, now)
            assert drive(store, store.look(organization, plan.windows, now)) == expected
        else:
            expected, states[organization] = rule.hit(state, plan.windows, now, cost)
            assert drive(store, store.hit(organization, plan.windows, cost, now)) == expected
    drive(store, store.close())


async def test_w5_looking_changes_nothing(store: Store) -> None:
    for step in range(9):
        await store.hit("org_1", FREE, 1, NOW + step)
    expected = await store.look("org_1", FREE, NOW + 9)
    for later in (0, MINUTE, 2 * DAY, 9 * DAY):
        await store.look("org_1", FREE, NOW + later)
    assert await store.look("org_1", FREE, NOW + 9) == expected
    assert (await store.hit("org_1", FREE, 1, NOW + 9)).used == (10, 10, 10)


async def test_d20_a_refusal_costs_nothing_in_any_window(store: Store) -> None:
    windows = PlanBook([Plan("free", rpm=2, rph=9, rpd=9, concurrent=1)]).default.windows
    for _ in range(2):
        await store.hit("org_1", windows, 1, NOW)
    refused = await store.hit("org_1", windows, 1, NOW)
    assert not refused.allowed
    assert (await store.look("org_1", windows, NOW)).used == (2, 2, 2)


async def test_w13_another_plan_keeps_what_is_counted(store: Store) -> None:
    for _ in range(8):
        await store.hit("org_1", FREE, 1, NOW)
    starter = BOOK.plan_of(Organization("org_1", "starter")).windows
    assert (await store.hit("org_1", starter, 1, NOW)).used == (9, 9, 9)
    narrow = PLANS[0].windows
    reading = await store.hit("org_1", narrow, 1, NOW)
    assert (reading.allowed, reading.remaining, reading.used) == (False, 0, (9, 9, 9))


def test_exactly_the_limit_is_admitted_under_32_threads(store: Store) -> None:
    made = new_key()
    drive(store, store.insert(draft_of(made), None, NOW))
    plans = small(40)

    def work(_: int) -> int:
        token = token_of(made)
        verdicts = [drive(store, store.admit(token, 1, plans, NOW)).verdict for _ in range(5)]
        assert set(verdicts) <= {Verdict.ADMITTED, Verdict.LIMITED}
        return verdicts.count(Verdict.ADMITTED)

    assert sum(at_once(32, work)) == 40
    (key,) = drive(store, store.list("org_1"))
    assert key.request_count == 40


def test_exactly_the_limit_is_admitted_across_event_loops(store: Store) -> None:
    made = new_key()
    drive(store, store.insert(draft_of(made), None, NOW))
    plans = small(50)

    async def admit_many() -> int:
        token = token_of(made)
        answers = await asyncio.gather(*(store.admit(token, 1, plans, NOW) for _ in range(20)))
        return sum(answer.verdict is Verdict.ADMITTED for answer in answers)

    assert sum(at_once(6, lambda _: asyncio.run(admit_many()))) == 50


# --- slots ----------------------------------------------------------------------------------


async def test_l1_l2_slots_up_to_the_limit(store: Store) -> None:
    for job in ("a", "b"):
        reading = await store.acquire("org_1", job, "me", 2, MINUTE, NOW)
        assert reading.lease is not None
        assert reading.lease[:3] == (job, "me", NOW + MINUTE)
    refused = await store.acquire("org_1", "c", "me", 2, MINUTE, NOW)
    assert refused == (None, 2, 2)
    assert (await store.acquire("org_2", "c", "me", 2, MINUTE, NOW)).held == 1
    assert [lease.job for lease in await store.held("org_1", NOW)] == ["a", "b"]


async def test_l6_acquire_is_idempotent_by_job(store: Store) -> None:
    first = await store.acquire("org_1", "a", "me", 1, MINUTE, NOW)
    assert await store.acquire("org_1", "a", "other", 1, HOUR, NOW + 1) == first
    assert await store.held("org_1", NOW + 1) == (first.lease,)


async def test_l3_a_lease_ends_at_its_deadline(store: Store) -> None:
    await store.acquire("org_1", "a", "me", 1, MINUTE, NOW)
    assert (await store.acquire("org_1", "b", "me", 1, MINUTE, NOW + MINUTE - 1)).lease is None
    assert await store.held("org_1", NOW + MINUTE) == ()
    assert (await store.acquire("org_1", "b", "me", 1, MINUTE, NOW + MINUTE)).lease is not None


async def test_l4_renewing_needs_a_live_lease_of_ones_own(store: Store) -> None:
    await store.acquire("org_1", "a", "me", 1, MINUTE, NOW)
    assert await store.renew("org_1", "a", "you", MINUTE, NOW) is None
    assert await store.renew("org_1", "b", "me", MINUTE, NOW) is None
    assert await store.renew("org_2", "a", "me", MINUTE, NOW) is None
    renewed = await store.renew("org_1", "a", "me", HOUR, NOW + 1)
    assert renewed is not None
    assert (renewed.deadline, renewed.span) == (NOW + 1 + HOUR, HOUR)
    assert await store.held("org_1", NOW + 1) == (renewed,)
    assert await store.renew("org_1", "a", "me", HOUR, NOW + 1 + HOUR) is None
    assert await store.held("org_1", NOW + 1 + HOUR) == ()


async def test_l5_releasing_is_idempotent_and_frees_only_ones_own(store: Store) -> None:
    await store.acquire("org_1", "a", "me", 2, MINUTE, NOW)
    assert not await store.release("org_1", "a", "you", NOW)
    assert not await store.release("org_2", "a", "me", NOW)
    assert await store.release("org_1", "a", "me", NOW)
    assert not await store.release("org_1", "a", "me", NOW)
    await store.acquire("org_1", "a", "new owner", 2, MINUTE, NOW)
    assert not await store.release("org_1", "a", "me", NOW)
    assert len(await store.held("org_1", NOW)) == 1


async def test_releasing_late_frees_nothing(store: Store) -> None:
    await store.acquire("org_1", "a", "me", 1, MINUTE, NOW)
    await store.acquire("org_1", "a", "you", 1, MINUTE, NOW + MINUTE)
    assert not await store.release("org_1", "a", "me", NOW + MINUTE)
    (lease,) = await store.held("org_1", NOW + MINUTE)
    assert lease.owner == "you"


async def test_no_limit_on_slots(store: Store) -> None:
    for job in range(50):
        await store.acquire("org_1", str(job), "me", None, MINUTE, NOW)
    reading = await store.acquire("org_1", "one more", "me", None, MINUTE, NOW)
    assert (reading.held, reading.limit) == (51, None)


def test_l1_slots_under_32_threads(store: Store) -> None:
    def work(index: int) -> bool:
        reading = drive(store, store.acquire("org_1", str(index), "me", 5, MINUTE, NOW))
        return reading.lease is not None

    assert sum(at_once(32, work)) == 5
    assert len(drive(store, store.held("org_1", NOW))) == 5


# --- accounts -------------------------------------------------------------------------------


async def test_organizations_are_kept_and_replaced(store: Store) -> None:
    assert await store.organization("org_1") is None
    first = Organization("org_1", "creator")
    await store.put_organization(first)
    assert await store.organization("org_1") == first
    second = Organization("org_1", "enterprise", (("rpd", None), ("rpm", 2**53 - 1)))
    await store.put_organization(second)
    assert await store.organization("org_1") == second
    assert await store.organization("org_2") is None


async def test_w13_a_plan_holds_from_the_next_admission_on(store: Store) -> None:
    made = new_key()
    await store.insert(draft_of(made), None, NOW)
    token = token_of(made)
    for _ in range(10):
        assert (await store.admit(token, 1, BOOK, NOW)).verdict is Verdict.ADMITTED
    assert (await store.admit(token, 1, BOOK, NOW)).verdict is Verdict.LIMITED
    await store.put_organization(Organization("org_1", "starter"))
    admission = await store.admit(token, 1, BOOK, NOW)
    assert admission.verdict is Verdict.ADMITTED
    assert admission.plan is not None
    assert admission.plan.name == "starter"
    assert admission.reading is not None
    assert admission.reading.used == (11, 11, 11)


# --- admit ----------------------------------------------------------------------------------


async def test_admission_verifies_charges_and_counts(store: Store) -> None:
    made = new_key()
    key = await store.insert(draft_of(made), None, NOW)
    admission = await store.admit(token_of(made), 3, BOOK, NOW + 7)
    assert admission.verdict is Verdict.ADMITTED
    assert admission.key == key._replace(request_count=1, last_used_at=NOW + 7)
    assert admission.key == await store.find(key.handle)
    assert admission.plan == BOOK.default
    assert admission.reading is not None
    assert (admission.reading.used, admission.reading.now) == ((3, 3, 3), NOW + 7)
    assert admission.reading == admission.reading._replace(allowed=True, remaining=7)


async def test_unknown_handle_and_wrong_secret_look_alike(store: Store) -> None:
    made = new_key()
    key = await store.insert(draft_of(made)._replace(digest=b"\x01" * 32), None, NOW)
    unknown = await store.admit(token_of(new_key()), 1, BOOK, NOW)
    assert unknown == (Verdict.UNKNOWN, None, None, None)
    assert await store.admit(token_of(made), 1, BOOK, NOW) == unknown
    await store.revoke_if_live("org_1", key.id, NOW)
    assert await store.admit(token_of(made), 1, BOOK, NOW) == unknown
    assert (await store.look("org_1", FREE, NOW)).used == (0, 0, 0)


async def test_a_digest_of_a_scheme_that_is_gone_matches_nobody(store: Store) -> None:
    made = new_key()
    await store.insert(
        draft_of(made)._replace(scheme="hmac-sha256:00000000", digest=b""), None, NOW
    )
    answer = await store.admit(token_of(made), 1, BOOK, NOW)
    # An unknown scheme digests to nothing at all: a row without a digest must not equal that.
    assert answer.verdict is Verdict.UNKNOWN


async def test_d4_revoked_comes_before_expired_and_neither_is_charged(store: Store) -> None:
    made = new_key()
    key = await store.insert(draft_of(made, lifetime=DAY), None, NOW)
    token = token_of(made)
    assert (await store.admit(token, 1, BOOK, NOW + DAY - 1)).verdict is Verdict.ADMITTED
    expired = await store.admit(token, 1, BOOK, NOW + DAY)
    assert expired.verdict is Verdict.EXPIRED
    assert expired.key is not None
    assert expired.key.id == key.id
    await store.revoke_if_live("org_1", key.id, NOW)
    revoked = await store.admit(token, 1, BOOK, NOW + DAY)
    assert revoked.verdict is Verdict.REVOKED
    assert revoked.key is not None
    assert revoked.key.request_count == 1
    assert (await store.look("org_1", FREE, NOW + DAY - 1)).used == (1, 1, 1)


async def test_a_limited_admission_counts_nothing_and_shows_the_key(store: Store) -> None:
    made = new_key()
    await store.insert(draft_of(made), None, NOW)
    token = token_of(made)
    for _ in range(10):
        await store.admit(token, 1, BOOK, NOW)
    limited = await store.admit(token, 1, BOOK, NOW + 9)
    assert limited.verdict is Verdict.LIMITED
    assert limited.plan == BOOK.default
    assert limited.reading is not None
    assert (limited.reading.allowed, limited.reading.refused_by) == (False, 0)
    assert limited.key is not None
    assert (limited.key.request_count, limited.key.last_used_at) == (10, NOW)


async def test_k7_last_used_does_not_go_back_with_the_clock(store: Store) -> None:
    made = new_key()
    key = await store.insert(draft_of(made), None, NOW)
    for step in (10, 5, 7):
        admission = await store.admit(token_of(made), 1, BOOK, NOW + step)
        assert admission.key is not None
        assert admission.key.last_used_at == NOW + 10
    found = await store.find(key.handle)
    assert found is not None
    assert (found.request_count, found.last_used_at) == (3, NOW + 10)


async def test_without_now_the_store_goes_by_its_own_clock(store: Store) -> None:
    before = await store.now()
    key = await store.insert(draft("org_1"), None)
    hit = await store.hit("org_1", FREE, 1)
    look = await store.look("org_1", FREE)
    lease = (await store.acquire("org_1", "a", "me", 1, HOUR)).lease
    renewed = await store.renew("org_1", "a", "me", HOUR)
    held = await store.held("org_1")
    released = await store.release("org_1", "a", "me")
    revoked = await store.revoke_if_live("org_1", key.id)
    after = await store.now()
    assert lease and renewed and released and revoked and revoked.revoked_at
    assert held == (renewed,)
    times = [
        before,
        key.created_at + 1000,
        hit.now + 1000,
        look.now + 1000,
        lease.deadline - HOUR + 1000,
        renewed.deadline - HOUR + 1000,
        revoked.revoked_at + 1000,
        after + 1000,
    ]
    assert all(earlier <= later for earlier, later in pairwise(times))


async def test_every_verb_that_depends_on_the_time_takes_now(store: Store) -> None:
    """The contract says so of every one; the census counts *live* keys."""
    await store.insert(draft("org_1", lifetime=DAY), None, NOW)
    census: Callable[..., Awaitable[dict[str, int]]] = store.census
    assert await census(now=NOW) == {"sha256": 1}
    assert await census(now=NOW + DAY) == {}


async def test_closing_twice_is_fine(store: Store) -> None:
    await store.close()
    await store.close()


async def test_a_blocking_store_never_suspends(store: Store) -> None:
    if store.io == "async":
        return
    drive(store, store.insert(draft("org_1"), None, NOW))
    drive(store, store.census())
    drive(store, store.now())


# --- the composition that every store inherits ----------------------------------------------


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            STEPS,
            st.integers(0, 3),
            st.sampled_from(["admit", "revoke", "place", "usage", "forged"]),
            st.integers(1, 4),
        ),
        max_size=50,
    )
)
def test_a_stores_own_admit_agrees_with_the_composition(
    open_store: Callable[[], Store],
    calls: list[tuple[int, int, str, int]],
) -> None:
    """The same trace on the store as it is, and with its ``admit`` put back to the inherited."""
    mine, plain = open_store(), open_store()
    made = [new_key() for _ in range(4)]
    drafts = [
        draft_of(key, f"org_{index % 2}", lifetime=(None, DAY, MINUTE, None)[index])
        for index, key in enumerate(made)
    ]
    for wanted in drafts:
        assert drive(mine, mine.insert(wanted, None, NOW)) == drive(
            plain, plain.insert(wanted, None, NOW)
        )
    book = PlanBook(PLANS, custom=(), default="narrow")
    now = NOW
    for step, which, verb, amount in calls:
        now += step
        key, wanted = made[which], drafts[which]
        for store in (mine, plain):
            if verb == "revoke":
                drive(store, store.revoke_if_live(wanted.organization, wanted.id, now))
            elif verb == "place":
                placed = Organization(wanted.organization, PLANS[amount - 1].name)
                drive(store, store.put_organization(placed))
            elif verb == "usage":
                drive(store, store.add_usage({key.handle: Usage(amount, now - MINUTE)}))
        if verb in ("admit", "forged"):
            token = token_of(key if verb == "admit" else new_key())
            assert drive(mine, mine.admit(token, amount, book, now)) == drive(
                plain, Store.admit(plain, token, amount, book, now)
            )
    for wanted in drafts:
        assert drive(mine, mine.find(wanted.handle)) == drive(plain, plain.find(wanted.handle))


def test_the_composition_goes_by_the_stores_clock() -> None:
    from lockgate import MemoryStore

    clock = HandClock()
    store = MemoryStore(clock)
    made = new_key()
    drive(store, store.insert(draft_of(made, lifetime=DAY), None))
    clock.now += DAY
    answer = drive(store, Store.admit(store, token_of(made), 1, BOOK))
    assert answer.verdict is Verdict.EXPIRED
