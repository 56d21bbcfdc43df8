"""The change log: which changes it records, in which order, and for how long."""

from typing import Final

from ...core.api_keys import KeyDetails
from ...core.changes import Actor, ChangeDraft, plan_fields
from ...core.digests import Digest
from ...core.leases import to_acquire
from ...core.ledger import Reset
from ...core.plans import Organization
from ...core.timestamps import DAY, HOUR
from ...stores.base import PAGE_AT_MOST, Store
from ..calls import Call
from ..factories import HOSTILE, NOW, PLANS, Factory
from .callers import Callers
from .check import Check, alone, crowded

USER: Final = Actor("user", "ada \U0001f511\n\0", "2001:db8::1")
CREATED: Final = ChangeDraft(
    "key_created",
    "key id",
    USER,
    after=(("name", "' OR 1=1 -- \U0001f511"), ("scopes", ("*", "a:b")), ("expires_at", None)),
)
REVOKED: Final = ChangeDraft("key_revoked", "key id", Actor("operator", "root"))
UPDATED: Final = ChangeDraft(
    "key_updated", "key id", Actor("host"), (("name", "a"),), (("name", "b"),)
)
ROTATED: Final = ChangeDraft("key_rotated", "key id", USER, after=(("successor", "its id"),))
REGISTERED: Final = ChangeDraft("account_registered", None, Actor("agent", None, "192.0.2.1"))
CLAIMED: Final = ChangeDraft("account_claimed", None, USER, after=(("revoke_keys", True),))
RESET: Final = ChangeDraft("windows_reset", None, Actor("operator", "root"))
REMOVED: Final = ChangeDraft("account_removed", None, Actor("lockgate"))
_READS: Final = 300


def assigned(organization: Organization) -> ChangeDraft:
    return ChangeDraft("plan_assigned", None, USER, after=plan_fields(organization))


@alone("D44", "changes")
async def each_change_of_a_key_is_recorded(store: Store, factory: Factory) -> None:
    await store.change_log("org_1", 9)
    key = await store.insert(factory.draft(), None, NOW, change=CREATED)
    await store.change_log("org_1", 9)
    new = key._replace(name="b", expires_at=NOW + DAY)
    await store.update_if(key, new, NOW + 1, change=UPDATED)
    await store.change_log("org_1", 9)
    rotated = new._replace(details=KeyDetails(NOW + 2, "its id"))
    await store.rotate_if(new, rotated, factory.draft(), None, NOW + 2, change=ROTATED)
    await store.change_log("org_1", 9)
    await store.revoke_if_live("org_1", key.id, NOW + 3, change=REVOKED)
    await store.change_log("org_1", 9)
    # Without a draft no record is kept.
    await store.insert(factory.draft(), None, NOW)
    await store.change_log("org_1", 9)


@alone("D44", "changes")
async def each_change_of_an_account_is_recorded(store: Store, factory: Factory) -> None:
    # The only key of one has ended, and is removed before its account.
    ending = factory.draft("org_3", lifetime=HOUR)
    await store.register(factory.account("org_3"), ending, NOW)
    await store.remove_ended(0, NOW + HOUR)
    for name in ("org_1", "org_2"):
        drafts = factory.account(name), factory.draft(name)
        await store.register(*drafts, NOW, change=REGISTERED)
    for revoke, keep_token in ((False, True), (False, False), (True, False), (True, False)):
        await store.claim_if_unclaimed(
            "org_1", "ada", revoke=revoke, keep_token=keep_token, now=NOW + 1, change=CLAIMED
        )
        await store.change_log("org_1", 9)
    await store.remove_unclaimed(DAY, 9, NOW + DAY, change=REMOVED)
    await store.account("org_2")
    for name in ("org_1", "org_2", "org_3"):
        await store.change_log(name, 9)


@alone("D44", "changes")
async def a_new_plan_is_recorded_with_the_plan_before(store: Store, _: Factory) -> None:
    for step, placed in enumerate(
        (
            Organization("org_1", "starter"),
            Organization("org_1", "starter"),
            Organization("org_1", "enterprise", (("rpd", None), ("rpm", 7))),
            Organization("org_1", "enterprise", (("rpd", None), ("rpm", 7))),
            Organization("org_1", "enterprise", (("rpd", None), ("rpm", 8))),
            Organization("org_1", "free"),
        )
    ):
        await store.put_organization(placed, NOW + step, change=assigned(placed))
        await store.change_log("org_1", 9)
        await store.organization("org_1")


@alone("D44", "admission")
async def each_reset_is_recorded(store: Store, factory: Factory) -> None:
    """Also of windows that are empty: an operator's act, which has no other trace."""
    key = factory.key()
    await store.insert(factory.draft(key=key), None, NOW, change=CREATED)
    await store.admit(factory.token(key), 1, PLANS, NOW)
    await store.charge("org_1", Reset(RESET), NOW + 5)
    await store.charge("org_1", Reset(RESET), NOW + 3)
    await store.charge("org_2", Reset(RESET), NOW + 7)
    await store.charge("org_1", Reset(), NOW + 9)
    for name in ("org_1", "org_2", "org_3"):
        await store.change_log(name, 9)


@alone("D44", "changes")
async def a_change_that_was_not_made_is_not_recorded(store: Store, factory: Factory) -> None:
    key = await store.insert(factory.draft(), None, NOW, change=CREATED)
    other = factory.draft()
    await store.insert(other._replace(handle=key.handle), None, NOW, change=CREATED)
    await store.insert(other, 1, NOW, change=CREATED)
    stale = key._replace(name="never so")
    await store.update_if(stale, key, NOW, change=UPDATED)
    await store.rotate_if(stale, key, other, None, NOW, change=ROTATED)
    await store.rotate_if(key, key, other._replace(handle=key.handle), None, NOW, change=ROTATED)
    await store.rotate_if(key, key, other, 1, NOW, change=ROTATED)
    await store.revoke_if_live("org_1", "no such id", NOW, change=REVOKED)
    await store.revoke_if_live("org_2", key.id, NOW, change=REVOKED)
    await store.revoke_if_live("org_1", key.id, NOW, change=REVOKED)
    await store.revoke_if_live("org_1", key.id, NOW + 1, change=REVOKED)
    await store.update_if(key, stale, NOW, change=UPDATED)
    account = factory.account("org_2")
    await store.register(account, other._replace(handle=key.handle), NOW, change=REGISTERED)
    await store.register(account, factory.draft("org_2"), NOW, change=REGISTERED)
    await store.register(account, factory.draft("org_2"), NOW, change=REGISTERED)
    for organization, user in (("org_3", "ada"), ("org_2", "ada"), ("org_2", "eve")):
        await store.claim_if_unclaimed(
            organization, user, revoke=True, keep_token=False, now=NOW, change=CLAIMED
        )
    await store.remove_unclaimed(DAY, 9, NOW + DAY, change=REMOVED)
    for organization in ("org_1", "org_2", "org_3"):
        await store.change_log(organization, 9)


@alone("D44", "changes")
async def the_log_is_read_in_pages_newest_first(store: Store, factory: Factory) -> None:
    """The instants go back and repeat; the numbers give the order."""
    for step in (0, 5, 5, 3, -HOUR, 9, 9):
        await store.insert(factory.draft(), None, NOW + step, change=CREATED)
    for limit in (1, 2, 3, 7, PAGE_AT_MOST):
        before: int | None = None
        while page := await store.change_log("org_1", limit, before):
            before = page[-1].number
    for before in (0, 1, 2, 7, 8, 9, 100):
        await store.change_log("org_1", 3, before)


@alone("W8", "changes")
async def hostile_ids_have_separate_logs(store: Store, factory: Factory) -> None:
    for index, id in enumerate(HOSTILE):
        draft = CREATED._replace(key=str(index))
        await store.insert(factory.draft(id), None, NOW, change=draft)
    for id in HOSTILE:
        await store.change_log(id, 9)
    for stranger in ("org_", "ORG", "\U0010ffff", "a"):
        await store.change_log(stranger, 9)


@alone("D44", "changes")
async def old_records_are_removed_and_no_others(store: Store, factory: Factory) -> None:
    """Also of organizations whose keys stay or are gone, or that never had one."""
    draft = factory.draft()
    await store.charge("org_4", Reset(RESET), NOW)
    gone = await store.insert(draft, None, NOW, change=CREATED)
    for name in ("org_1", "org_2", "org_3"):
        for step in range(3):
            await store.insert(factory.draft(name), None, NOW + step * HOUR, change=CREATED)
    await store.revoke_if_live("org_1", gone.id, NOW + 2 * HOUR, change=REVOKED)
    for age in (DAY, 2 * HOUR, HOUR):
        await store.remove_ended(age, NOW + 2 * HOUR)
        for name in ("org_1", "org_2", "org_3", "org_4"):
            await store.change_log(name, 9)
    await store.insert(factory.draft(), None, NOW + 3 * HOUR, change=CREATED)
    again = draft._replace(id=factory.draft().id)  # Its handle stays taken.
    await store.insert(again, None, NOW + 3 * HOUR, change=CREATED)
    await store.change_log("org_1", 9)
    await store.remove_ended(0, NOW + 9 * HOUR)
    await store.change_log("org_1", 9)
    await store.insert(factory.draft(), None, NOW + 9 * HOUR, change=CREATED)
    await store.change_log("org_1", 9)


@alone("D44", "changes")
async def records_outlast_what_they_are_about(store: Store, factory: Factory) -> None:
    """Removed keys, the last of an organization among them, and a removed account."""
    kept = await store.insert(factory.draft(), None, NOW, change=CREATED)
    for name in ("org_1", "org_2"):
        ended = await store.insert(factory.draft(name, lifetime=HOUR), None, NOW, change=CREATED)
        placed = Organization(name, "starter")
        await store.put_organization(placed, NOW + DAY, change=assigned(placed))
        # A record about the key that is younger than the key's end.
        late = ChangeDraft("plan_assigned", ended.id, USER, (), plan_fields(placed))
        placed = Organization(name, "creator")
        await store.put_organization(placed, NOW + DAY + 1, change=late)
    await store.remove_ended(DAY - HOUR, NOW + DAY + 1)
    for name in ("org_1", "org_2"):
        await store.list(name, PAGE_AT_MOST)
        await store.change_log(name, 9)
    await store.revoke_if_live("org_1", kept.id, NOW + DAY + 2, change=REVOKED)
    await store.change_log("org_1", 9)
    await store.register(factory.account("org_3"), factory.draft("org_3"), NOW, change=REGISTERED)
    await store.remove_unclaimed(DAY, 9, NOW + 2 * DAY, change=REMOVED)
    await store.change_log("org_3", 9)


@alone("D44", "changes")
async def other_verbs_leave_the_log_unchanged(store: Store, factory: Factory) -> None:
    draft = factory.draft(lifetime=HOUR)
    await store.insert(draft, None, NOW, change=CREATED)
    account = factory.account("org_2")
    await store.register(account, factory.draft("org_2"), NOW, change=REGISTERED)
    await store.rehash_if(
        draft.handle, Digest(draft.scheme, draft.digest, draft.seal), Digest("new", b"\1" * 32)
    )
    await store.sign_in("org_2", NOW)
    await store.sign_out("org_2")
    await store.charge("org_1", to_acquire("job", "me", 1, HOUR), NOW)
    await store.remove_ended(DAY, NOW + HOUR)
    for name in ("org_1", "org_2"):
        await store.change_log(name, 9)


@crowded("D44", "changes")
async def one_revocation_among_many_is_recorded(crowd: Callers) -> None:
    key = await crowd.store.insert(crowd.factory.draft(), None, NOW, change=CREATED)

    async def work(store: Store, index: int) -> None:
        await store.revoke_if_live("org_1", key.id, NOW + index, change=REVOKED)

    await crowd.at_once(6, lambda index: work(crowd.store, index))
    log = await crowd.store.change_log("org_1", 9)
    crowd.see(
        [change.action for change in log] == ["key_revoked", "key_created"],
        f"Six revoked one key at once, and the log has {len(log)} records.",
    )
    revoked = await crowd.store.get("org_1", key.id)
    crowd.see(
        revoked is not None and revoked.revoked_at == log[0].at,
        "The record of the revocation has another instant than the key.",
    )


@crowded("D44", "changes")
async def concurrent_changes_are_all_recorded_once(crowd: Callers) -> None:
    drafts = [[crowd.factory.draft() for _ in range(4)] for _ in range(6)]

    async def work(index: int) -> None:
        for draft in drafts[index]:
            change = CREATED._replace(key=draft.id)
            await Call("insert", (draft, 20, NOW), (("change", change),)).on(crowd.store)

    await crowd.at_once(6, work)
    keys = await crowd.store.list("org_1", PAGE_AT_MOST)
    log = await crowd.store.change_log("org_1", PAGE_AT_MOST)
    crowd.see(
        sorted(change.key or "" for change in log) == sorted(key.id for key in keys),
        f"The organization has {len(keys)} keys, and the log {len(log)} records of them.",
    )
    numbers = [change.number for change in log]
    crowd.see(numbers == [*range(len(keys), 0, -1)], f"The records have the numbers {numbers}.")


@crowded("D44", "changes")
async def a_change_and_its_record_appear_together(crowd: Callers) -> None:
    """A reader between two steps of a store would see one without the other.

    The readers continue while a writer writes: a reader that is done before the first insertion
    sees nothing.
    """
    drafts = [[crowd.factory.draft() for _ in range(4)] for _ in range(2)]
    writing = set(range(len(drafts)))

    async def work(store: Store, index: int) -> None:
        if index < len(drafts):
            for draft in drafts[index]:
                await store.insert(draft, None, NOW, change=CREATED._replace(key=draft.id))
            writing.discard(index)
            return
        for _ in range(_READS):
            await store.list("org_1", 9)
            await store.change_log("org_1", 9)
            if not writing:
                return

    await crowd.linearize(4, work)


CHECKS: tuple[Check, ...] = (
    each_change_of_a_key_is_recorded,
    each_change_of_an_account_is_recorded,
    a_new_plan_is_recorded_with_the_plan_before,
    each_reset_is_recorded,
    a_change_that_was_not_made_is_not_recorded,
    the_log_is_read_in_pages_newest_first,
    hostile_ids_have_separate_logs,
    old_records_are_removed_and_no_others,
    records_outlast_what_they_are_about,
    other_verbs_leave_the_log_unchanged,
    one_revocation_among_many_is_recorded,
    concurrent_changes_are_all_recorded_once,
    a_change_and_its_record_appear_together,
)
