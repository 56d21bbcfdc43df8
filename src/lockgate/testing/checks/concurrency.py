"""Checks with concurrent callers, for locks, transactions and scripts."""

import asyncio
from contextlib import suppress

from ...core.api_keys import ApiKey, KeyDetails, KeyDraft
from ...core.digests import Digest
from ...core.key_format import NewKey
from ...core.leases import TO_LIST, to_acquire, to_release, to_renew
from ...core.ledger import Hit, Peek
from ...core.timestamps import DAY, MINUTE, SECOND
from ...errors import HandleTaken, KeyLimitReached
from ...stores.answers import Removal, Usage, UsageBatch, Verdict
from ...stores.base import PAGE_AT_MOST, Store
from ..calls import Call
from ..factories import NOW, book, minute
from ..history import Recorder, assert_linearizable
from ..model import World, insert
from .callers import Callers, in_a_loop
from .check import Check, crowded

ROUNDS = 6
OPEN = book(None)


async def new_key(crowd: Callers) -> tuple[NewKey, ApiKey]:
    """Insert a key, and return it."""
    made = crowd.factory.key()
    return made, await crowd.store.insert(crowd.factory.draft(key=made), None, NOW)


async def _stays_revoked(crowd: Callers, made: NewKey) -> None:
    verdict = (await crowd.store.admit(crowd.factory.token(made), 1, OPEN, NOW)).verdict
    crowd.see(verdict is Verdict.REVOKED, f"The revoked key is {verdict.value}.")
    found = await crowd.store.find(made.handle)
    revoked_at = found and found.revoked_at
    crowd.see(revoked_at == NOW, f"The key was revoked at {NOW}, and is found with {revoked_at}.")


@crowded("K7", "usage")
async def a_batch_of_usage_that_overtakes_its_repetition_counts_once(crowd: Callers) -> None:
    """A call that was abandoned may still be under way while its repetition is made."""
    keys = [
        await crowd.store.insert(crowd.factory.draft(organization), None, NOW)
        for organization in ("org_1", "org_2")
    ]
    usage = {key.handle: Usage(1, NOW) for key in keys}
    writers = 4

    async def work(index: int) -> None:
        writer = f"writer {index % writers:09}"
        for turn in range(ROUNDS):
            await crowd.store.add_usage(usage, UsageBatch(writer, turn + 1))

    await crowd.at_once(3 * writers, work)
    for key in keys:
        found = await crowd.store.find(key.handle)
        right, counted = writers * ROUNDS, found and found.request_count
        said = f"{right} batches of one request were sent three times, and {counted} are counted."
        crowd.see(counted == right, said)


@crowded("W1", "admission")
async def exactly_the_limit_is_admitted(crowd: Callers) -> None:
    store, plans = crowd.store, book(40)
    made, _ = await new_key(crowd)

    async def work(_: int) -> list[Verdict]:
        token = crowd.factory.token(made)
        return [(await store.admit(token, 1, plans, NOW)).verdict for _ in range(4)]

    verdicts = [verdict for part in await crowd.at_once(24, work) for verdict in part]
    admitted = verdicts.count(Verdict.ADMITTED)
    crowd.see(admitted <= 40, f"{admitted} of 96 were admitted at one instant; the limit is 40.")
    crowd.see(admitted == 40, f"{admitted} of 96 were admitted; the limit is 40.", "W2")
    key = await store.find(made.handle)
    count = key.request_count if key else None
    crowd.see(count == 40, f"40 were admitted with the key, whose usage is {count}.", "K7")


@crowded("W3", "windows")
async def overlapping_hits_are_linearizable(crowd: Callers) -> None:
    windows = minute(9)
    for turn in range(2):
        organization = f"org_{turn}"

        async def work(store: Store, index: int, organization: str = organization) -> None:
            for step in range(3):
                now = NOW + step * 31 * SECOND + index % 2
                await store.charge(organization, Hit(windows, (index + step) % 3 + 1), now)
                if index % 3 == 0:
                    await store.charge(organization, Peek(windows), now)

        await crowd.linearize(5, work)


@crowded("W3", "windows")
async def a_cancelled_call_counts_once_or_not_at_all(crowd: Callers) -> None:
    """Only for tasks: a thread cannot be cancelled."""
    if not in_a_loop():
        return
    windows = minute(99)
    for patience in range(6):
        organization = f"org_{patience}"
        recorder = Recorder(crowd.store)
        hits = (recorder.store.charge(organization, Hit(windows, 1), NOW) for _ in range(4))
        tasks = [asyncio.ensure_future(hit) for hit in hits]
        for _ in range(patience):
            await asyncio.sleep(0)
        tasks[0].cancel()
        tasks[2].cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task
        # A cancelled call may still be on its way to the server; another hit waits behind it.
        await recorder.store.charge(organization, Hit(windows, 1), NOW)
        await recorder.store.charge(organization, Peek(windows), NOW)
        unanswered = [event.lost for event in recorder.history[-2:]]
        crowd.see(not any(unanswered), "Since a caller left, the store raises for the others.")
        assert_linearizable(recorder.history)


@crowded("L1", "slots")
async def no_more_slots_than_the_limit_are_taken(crowd: Callers) -> None:
    store = crowd.store

    async def work(index: int) -> bool:
        return (await store.charge("org_1", to_acquire(str(index), "me", 5, MINUTE), NOW)).done

    taken = sum(await crowd.at_once(24, work))
    crowd.see(taken <= 5, f"{taken} leases were given out; the limit is 5.")
    crowd.see(taken == 5, f"{taken} leases were given out to 24 callers; the limit is 5.", "L2")
    live = len((await store.charge("org_1", TO_LIST, NOW)).slots)
    crowd.see(live == 5, f"5 leases were given out, and {live} are held.", "L3")


@crowded("W3", "slots")
async def overlapping_leases_are_linearizable(crowd: Callers) -> None:
    async def work(store: Store, index: int) -> None:
        job, owner = f"job {index % 3}", f"worker {index % 2}"
        await store.charge("org_1", to_acquire(job, owner, 2, MINUTE), NOW)
        await store.charge("org_1", to_renew(job, owner, MINUTE), NOW + index)
        await store.charge("org_1", to_release(job, owner), NOW + index)
        await store.charge("org_1", TO_LIST, NOW)

    await crowd.linearize(5, work)


@crowded("K8", "keys")
async def the_cap_holds_under_concurrent_inserts(crowd: Callers) -> None:
    store = crowd.store
    drafts = [[crowd.factory.draft() for _ in range(3)] for _ in range(24)]

    async def work(index: int) -> int:
        done = 0
        for draft in drafts[index]:
            with suppress(KeyLimitReached):
                await store.insert(draft, 40, NOW)
                done += 1
        return done

    done = sum(await crowd.at_once(24, work))
    crowd.see(done == 40, f"{done} of 72 inserts succeeded; the cap is 40.")
    listed = len(await store.list("org_1", PAGE_AT_MOST))
    crowd.see(listed == 40, f"40 inserts succeeded, and {listed} keys are listed.")


@crowded("D45", "keys")
async def concurrent_removals_count_each_key_once(crowd: Callers) -> None:
    store, keys = crowd.store, 40
    drafts = [crowd.factory.draft(f"org_{number % 3}", lifetime=1) for number in range(keys)]
    for draft in drafts:
        await store.insert(draft, None, NOW)

    async def work(_: int) -> int:
        walk = await Call("remove_ended", (DAY, NOW + 2 * DAY)).on(store)
        crowd.see(isinstance(walk, Removal), f"remove_ended() answered {walk}.")
        return int(walk.removed)

    removed = sum(await crowd.at_once(6, work))
    crowd.see(removed == keys, f"{keys} keys were due, and 6 callers removed {removed}.")
    left = [draft for draft in drafts if await store.find(draft.handle) is not None]
    crowd.see(not left, f"{keys} keys were removed, and {len(left)} are found.")


@crowded("D3", "keys")
async def one_concurrent_caller_takes_a_handle(crowd: Callers) -> None:
    store, handle = crowd.store, crowd.factory.key().handle
    drafts = [crowd.factory.draft(f"org_{i % 3}")._replace(handle=handle) for i in range(16)]

    async def work(index: int) -> bool:
        try:
            await store.insert(drafts[index], None, NOW)
        except HandleTaken:
            return False
        return True

    taken = sum(await crowd.at_once(16, work))
    crowd.see(taken == 1, f"{taken} callers took the same handle.")


@crowded("D43", "keys")
async def one_concurrent_rotation_of_a_key_succeeds(crowd: Callers) -> None:
    store = crowd.store
    key = await store.insert(crowd.factory.draft(), None, NOW)
    drafts = [crowd.factory.draft() for _ in range(16)]

    async def work(index: int) -> ApiKey | None:
        successor = drafts[index]
        new = key._replace(expires_at=NOW + DAY, details=KeyDetails(NOW, successor.id))
        return await store.rotate_if(key, new, successor, 3, NOW)

    made = [successor for successor in await crowd.at_once(16, work) if successor is not None]
    crowd.see(len(made) == 1, f"One key was rotated {len(made)} times.")
    listed = {found.id for found in await store.list("org_1", PAGE_AT_MOST)}
    crowd.see(listed == {key.id, made[0].id}, "A successor that was refused is listed.")
    found = await store.find(key.handle)
    linked = found is not None and found.successor == made[0].id
    crowd.see(linked, "The key that was rotated names another successor.")


@crowded("D4", "keys")
async def concurrent_revocations_keep_one_time(crowd: Callers) -> None:
    store = crowd.store
    key = await store.insert(crowd.factory.draft(), None, NOW)

    async def work(index: int) -> int | None:
        revoked = await store.revoke_if_live("org_1", key.id, NOW + index)
        return revoked.revoked_at if revoked else None

    times = set(await crowd.at_once(16, work))
    crowd.see(len(times) == 1 and None not in times, f"16 revocations told {len(times)} times.")


@crowded("K3", "admission")
async def no_race_undoes_a_revocation(crowd: Callers) -> None:
    for _ in range(ROUNDS):
        made, key = await new_key(crowd)
        await _race_of_all_verbs(crowd, made, key)
        await _stays_revoked(crowd, made)


async def _race_of_all_verbs(crowd: Callers, made: NewKey, key: ApiKey) -> None:
    store, token = crowd.store, crowd.factory.token(made)
    old = Digest(key.scheme, key.digest)
    other = Digest(key.scheme, key.digest[::-1])

    async def work(index: int) -> None:
        match index:
            case 0:
                await store.revoke_if_live("org_1", key.id, NOW)
            case 1 | 2:
                await store.add_usage({key.handle: Usage(1, NOW)})
            case 3 | 4:
                await store.admit(token, 1, OPEN, NOW)
            case 5:
                await store.update_if(key, key._replace(name="another"), NOW)
                await store.rotate_if(key, key, crowd.factory.draft(), None, NOW)
            case _:
                await store.rehash_if(key.handle, old, other)
                await store.rehash_if(key.handle, other, old)

    await crowd.at_once(8, work)


@crowded("K5", "admission")
async def no_copy_from_before_a_revocation_admits_after_it(crowd: Callers) -> None:
    """Each round uses a new key and fills caches during its revocation."""
    for _ in range(ROUNDS):
        made, key = await new_key(crowd)
        await _fill_beside_a_revocation(crowd, made, key)
        await _stays_revoked(crowd, made)


async def _fill_beside_a_revocation(crowd: Callers, made: NewKey, key: ApiKey) -> None:
    store, token = crowd.store, crowd.factory.token(made)

    async def work(index: int) -> None:
        if index == 2:
            await store.revoke_if_live("org_1", key.id, NOW)
        else:
            await store.admit(token, 1, OPEN, NOW)

    await crowd.at_once(5, work)


@crowded("K4", "admission")
async def no_admission_starts_successfully_after_a_revocation(crowd: Callers) -> None:
    for _ in range(ROUNDS):
        made, key = await new_key(crowd)
        await _admissions_beside_a_revocation(crowd, made, key)


async def _admissions_beside_a_revocation(crowd: Callers, made: NewKey, key: ApiKey) -> None:
    """Callers record whether the revocation was answered *before* they start an admission."""
    store, token = crowd.store, crowd.factory.token(made)
    answered = False

    async def work(index: int) -> set[Verdict]:
        nonlocal answered
        late: set[Verdict] = set()
        for step in range(12):
            if index == 0 and step == 4:
                await store.revoke_if_live("org_1", key.id, NOW)
                answered = True
            starts_late = answered
            verdict = (await store.admit(token, 1, OPEN, NOW)).verdict
            if starts_late:
                late.add(verdict)
        return late

    late = {verdict for part in await crowd.at_once(4, work) for verdict in part}
    said = ", ".join(sorted(verdict.value for verdict in late))
    crowd.see(late == {Verdict.REVOKED}, f"After the revocation was answered came: {said}.")


@crowded("K7", "usage")
async def usage_from_many_callers_adds_up(crowd: Callers) -> None:
    store = crowd.store
    key = await store.insert(crowd.factory.draft(), None, NOW)

    async def work(index: int) -> None:
        for step in range(12):
            await store.add_usage({key.handle: Usage(1, NOW + index * 12 + step)})

    await crowd.at_once(8, work)
    found = await store.find(key.handle)
    shown = None if found is None else (found.request_count, found.last_used_at)
    crowd.see(shown == (96, NOW + 95), f"96 uses were added, and the key says {shown}.")


@crowded("R1", "accounts")
async def one_concurrent_caller_registers_an_organization(crowd: Callers) -> None:
    store, factory = crowd.store, crowd.factory
    drafts = [(factory.account(), factory.draft()) for _ in range(12)]

    async def work(index: int) -> bool:
        try:
            await store.register(*drafts[index], NOW)
        except HandleTaken:
            return False
        return True

    won = await crowd.at_once(12, work)
    crowd.see(sum(won) == 1, f"{sum(won)} callers registered the same organization.")
    for (account, key), winner in zip(drafts, won, strict=True):
        kept = await store.find(key.handle), await store.account_by_token(account.handle)
        crowd.see([part is not None for part in kept] == [winner] * 2, "Half of one was kept.")


@crowded("R3", "accounts")
async def one_concurrent_caller_wins_a_claim(crowd: Callers) -> None:
    store, factory = crowd.store, crowd.factory
    await store.register(factory.account(), factory.draft(), NOW)

    async def work(index: int) -> str | None:
        found = await store.claim_if_unclaimed(
            "org_1", f"user {index}", revoke=True, keep_token=False, now=NOW + index
        )
        return found.claimed_by if found else None

    winners = set(await crowd.at_once(12, work))
    crowd.see(len(winners) == 1, f"12 callers who claim are told of {len(winners)} winners.")
    kept = await store.account("org_1")
    told = kept and kept.claimed_by == f"user {(kept.claimed_at or 0) - NOW}"
    crowd.see(bool(told) and kept is not None and kept.claimed_by in winners, f"Kept is {kept!r}.")


@crowded("K4", "accounts")
async def no_key_outlives_a_claim_that_revokes_all(crowd: Callers) -> None:
    """A key inserted meanwhile is revoked, or its creator learns of the claim."""
    for turn in range(ROUNDS // 2):
        await _inserts_beside_a_claim(crowd, f"org_{turn}")


async def _inserts_beside_a_claim(crowd: Callers, organization: str) -> None:
    store, factory = crowd.store, crowd.factory
    await store.register(factory.account(organization), factory.draft(organization), NOW)
    drafts = [factory.draft(organization) for _ in range(6)]

    async def work(index: int) -> str | None:
        if index == 0:
            await store.claim_if_unclaimed(
                organization, "ada", revoke=True, keep_token=False, now=NOW + 1
            )
            return None
        key = await store.insert(drafts[index], None, NOW)
        after = await store.account(organization)
        return key.handle if after is not None and after.token_revoked_at is None else None

    for handle in filter(None, await crowd.at_once(6, work)):
        found = await store.find(handle)
        crowd.see(
            found is not None and found.revoked_at == NOW + 1,
            "A key that was there before a claim that revokes all outlived it.",
        )


@crowded("D46", "accounts")
async def a_claimer_that_ends_the_token_sees_every_key(crowd: Callers) -> None:
    """The claimer sees each key whose creator finds the token valid afterwards."""
    for turn in range(ROUNDS // 2):
        await _inserts_beside_a_claim_without_revoking(crowd, f"org_{turn}")


async def _inserts_beside_a_claim_without_revoking(crowd: Callers, organization: str) -> None:
    store, factory = crowd.store, crowd.factory
    await store.register(factory.account(organization), factory.draft(organization), NOW)
    drafts = [factory.draft(organization) for _ in range(6)]

    async def work(index: int) -> set[str]:
        if index == 0:
            await store.claim_if_unclaimed(
                organization, "ada", revoke=False, keep_token=False, now=NOW + 1
            )
            return {key.handle for key in await store.list(organization, PAGE_AT_MOST)}
        key = await store.insert(drafts[index], None, NOW)
        after = await store.account(organization)
        return {key.handle} if after is not None and after.token_revoked_at is None else set()

    shown, *good = await crowd.at_once(6, work)
    escaped = set[str]().union(*good) - shown
    crowd.see(not escaped, f"{len(escaped)} keys that the claimer was not shown were given out.")


@crowded("D46", "admission")
async def an_account_is_removed_whole_or_in_use(crowd: Callers) -> None:
    """A concurrent claim, sign-in or admission finds the account whole or removed."""
    for turn in range(ROUNDS):
        await _uses_beside_a_removal(crowd, f"org_{turn}", turn % 3)


async def _uses_beside_a_removal(crowd: Callers, organization: str, use: int) -> None:
    store, factory, made = crowd.store, crowd.factory, crowd.factory.key()
    await store.register(factory.account(organization), factory.draft(organization, key=made), NOW)
    late = NOW + DAY

    async def work(index: int) -> bool:
        if index == 0:
            return organization in await store.remove_unclaimed(DAY, 100, late)
        if use == 0:
            return (
                await store.admit(factory.token(made), 1, OPEN, late)
            ).verdict is Verdict.ADMITTED
        if use == 1:
            return await store.sign_in(organization, late) is not None
        return (
            await store.claim_if_unclaimed(
                organization, "ada", revoke=False, keep_token=False, now=late
            )
            is not None
        )

    removed, *used = await crowd.at_once(4, work)
    account, key = await store.account(organization), await store.find(made.handle)
    crowd.see((account is None) == (key is None), "Half of an account was removed.")
    crowd.see((account is None) == removed, f"removed is {removed}, and kept is {account!r}.")
    if removed:
        verdict = (await store.admit(factory.token(made), 1, OPEN, late)).verdict
        crowd.see(verdict is Verdict.UNKNOWN, f"A removed key is {verdict.value}.")
        # The use of a key may be written a little later (D6).
        before = use != 0 and any(used)
        crowd.see(not before, "An account was claimed or signed in to, and removed all the same.")
    else:
        crowd.see(all(used), "An account in use was kept, and one of its uses was refused.")


@crowded("D46", "accounts")
async def removals_take_turns_and_reach_every_account(crowd: Callers) -> None:
    """A removal is limited, skips accounts in use, and two callers never remove the same one."""
    store, factory = crowd.store, crowd.factory
    for index in range(12):
        draft = factory.draft(f"org_{index:02}")
        await store.register(factory.account(f"org_{index:02}"), draft, NOW + index)
        if index < 5:
            await _use(store, draft)

    async def work(_: int) -> list[str]:
        removed: list[str] = []
        for _ in range(12):
            found = await store.remove_unclaimed(DAY, 2, NOW + DAY + MINUTE)
            crowd.see(len(found) <= 2, f"{len(found)} accounts were removed; the limit is 2.")
            removed += found
        return removed

    removed = sorted(name for part in await crowd.at_once(3, work) for name in part)
    expected = [f"org_{index:02}" for index in range(5, 12)]
    crowd.see(removed == expected, f"Removed were {removed}, and unused {expected}.")


async def _use(store: Store, draft: KeyDraft) -> None:
    """Use an account after a day, by its key."""
    await store.add_usage({draft.handle: Usage(1, NOW + DAY)})


@crowded("D15", "accounts")
async def no_concurrent_sign_out_is_lost(crowd: Callers) -> None:
    store, factory = crowd.store, crowd.factory
    await store.register(factory.account(), factory.draft(), NOW)

    async def work(_: int) -> None:
        await store.sign_out("org_1")

    await crowd.at_once(8, work)
    found = await store.account("org_1")
    counted = found and found.sign_outs
    crowd.see(counted == 8, f"8 callers ended the sessions, and {counted} ends are counted.")


@crowded("W3", "keys")
async def overlapping_changes_of_keys_are_linearizable(crowd: Callers) -> None:
    first = crowd.factory.draft()
    key = await crowd.store.insert(first, 3, NOW)
    drafts = [crowd.factory.draft() for _ in range(5)]

    async def work(store: Store, index: int) -> None:
        if index % 2:
            await store.revoke_if_live("org_1", key.id, NOW + index)
        await store.insert(drafts[index], 3, NOW)
        await store.add_usage({key.handle: Usage(1, NOW + index)})
        await store.list("org_1", PAGE_AT_MOST)
        await store.find(key.handle)

    await crowd.linearize(5, work, insert(World(), first, 3, NOW)[1])


CHECKS: tuple[Check, ...] = (
    a_batch_of_usage_that_overtakes_its_repetition_counts_once,
    exactly_the_limit_is_admitted,
    overlapping_hits_are_linearizable,
    a_cancelled_call_counts_once_or_not_at_all,
    no_more_slots_than_the_limit_are_taken,
    overlapping_leases_are_linearizable,
    the_cap_holds_under_concurrent_inserts,
    concurrent_removals_count_each_key_once,
    one_concurrent_caller_takes_a_handle,
    one_concurrent_rotation_of_a_key_succeeds,
    concurrent_revocations_keep_one_time,
    usage_from_many_callers_adds_up,
    no_race_undoes_a_revocation,
    no_copy_from_before_a_revocation_admits_after_it,
    no_admission_starts_successfully_after_a_revocation,
    overlapping_changes_of_keys_are_linearizable,
    one_concurrent_caller_registers_an_organization,
    one_concurrent_caller_wins_a_claim,
    no_concurrent_sign_out_is_lost,
    no_key_outlives_a_claim_that_revokes_all,
    a_claimer_that_ends_the_token_sees_every_key,
    an_account_is_removed_whole_or_in_use,
    removals_take_turns_and_reach_every_account,
)
