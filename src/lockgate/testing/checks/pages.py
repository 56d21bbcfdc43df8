"""Checks with more rows than a store reads or writes at once, by one caller."""

from ...core.api_keys import Position
from ...core.changes import Actor, ChangeDraft
from ...core.key_search import KeySearch
from ...core.leases import TO_LIST, to_acquire, to_release, to_renew
from ...core.timestamps import DAY, HOUR, MINUTE, SECOND
from ...stores.answers import Usage
from ...stores.base import PAGE_AT_MOST, Store
from ..factories import NOW, Factory
from .accounts import EMAIL, registered
from .check import Check, alone
from .keys import taken

LEASES = 132
ROWS = 132
"""More rows than 50, 64, 100 or 128, which are often a page."""
RECORDS = 1_000
"""The records of a log but for its first. All that a log holds would take a minute to write."""
ENTRIES = 1_100
CREATED = ChangeDraft("key_created", "key id", Actor("operator", "root"))


@alone("L2", "slots")
async def many_leases_are_kept_and_counted(store: Store, _: Factory) -> None:
    for job in range(LEASES):
        await store.charge("org_1", to_acquire(f"job {job}", f"owner {job % 3}", None, HOUR), NOW)
    await store.charge("org_1", TO_LIST, NOW)
    await store.charge("org_1", to_acquire("one more", "me", LEASES, HOUR), NOW)
    for job in (0, LEASES // 2, LEASES - 1):
        await store.charge("org_1", to_acquire(f"job {job}", "me", LEASES, HOUR), NOW)
        await store.charge("org_1", to_renew(f"job {job}", f"owner {job % 3}", MINUTE), NOW)
        await store.charge("org_1", TO_LIST, NOW + MINUTE)
        await store.charge("org_1", to_release(f"job {job}", f"owner {job % 3}"), NOW)
    await store.charge("org_1", to_acquire("one more", "me", LEASES - 2, HOUR), NOW)
    await store.charge("org_1", TO_LIST, NOW)


@alone("D10", "keys")
async def many_keys_are_listed_counted_and_removed(store: Store, factory: Factory) -> None:
    drafts = [factory.draft(lifetime=DAY + number // 3) for number in range(ROWS)]
    for number, draft in enumerate(drafts):
        await store.insert(draft, ROWS, NOW + number // 3)
    await taken(store, factory.draft(), ROWS, NOW)
    await store.list("org_1", PAGE_AT_MOST)
    await store.list_live("org_1", PAGE_AT_MOST, None, NOW)
    for limit in (ROWS - 31, 50):
        after: Position | None = None
        while page := await store.list("org_1", limit, after):
            after = Position(page[-1].created_at, page[-1].id)
        after = None
        while page := await store.list_live("org_1", limit, after, NOW):
            after = Position(page[-1].ends_at, page[-1].id)
    for draft in (drafts[0], drafts[-1]):
        await store.get("org_1", draft.id)
        await store.revoke_if_live("org_1", draft.id, NOW)
    await store.insert(factory.draft(), ROWS, NOW)
    await store.census(NOW)
    await store.list_live("org_1", PAGE_AT_MOST, None, NOW)
    await store.remove_ended(0, NOW + 2 * DAY)
    await store.list("org_1", PAGE_AT_MOST)


@alone("K1", "admission")
async def many_keys_and_organizations_are_found(store: Store, factory: Factory) -> None:
    for number in range(ROWS):
        draft = factory.draft(f"org_{number:03}")
        imported = draft._replace(handle=f"~{number:042}", prefix="sk_many")
        await store.insert(imported, None, NOW)
    for limit in (PAGE_AT_MOST, 50):
        await store.search(KeySearch(prefix="sk_many"), limit)
        await store.organizations(limit, NOW)


@alone("D44", "changes")
async def many_records_are_read_in_long_pages(store: Store, factory: Factory) -> None:
    """They are more than a store may think to be enough: it keeps ten times as many."""
    key = await store.insert(factory.draft(), None, NOW, change=CREATED)
    for number in range(RECORDS):
        new = key._replace(name=f"name {number}")
        change = CREATED._replace(action="key_updated", key=f"change {number}")
        await store.update_if(key, new, NOW + number, change=change)
        key = new
    for limit in (PAGE_AT_MOST, 101):
        before: int | None = None
        while page := await store.change_log("org_1", limit, before):
            before = page[-1].number


@alone("K7", "usage")
async def usage_of_many_keys_is_added_at_once(store: Store, factory: Factory) -> None:
    """The keys stand at both ends and in the middle of one call; the other handles are unknown."""
    drafts = [factory.draft(f"org_{number % 2}") for number in range(9)]
    for draft in drafts:
        await store.insert(draft, None, NOW)
    usage: dict[str, Usage] = {}
    for part in range(3):
        own = {draft.handle: Usage(part + 2, NOW + part) for draft in drafts[part * 3 :][:3]}
        unknown = {f"{part}{number:07}": Usage(1, NOW) for number in range(ENTRIES // 2)}
        usage |= {**own, **(unknown if part < 2 else {})}
    for _ in range(2):
        await store.add_usage(usage)
    for draft in drafts:
        await store.find(draft.handle)


@alone("D14", "accounts")
async def many_accounts_are_listed_claimed_and_removed(store: Store, factory: Factory) -> None:
    for number in range(ROWS):
        await registered(store, factory, f"org_{number:03}", NOW + number // 3 * SECOND)
    for limit in (PAGE_AT_MOST, ROWS - 31, 50):
        page = await store.unclaimed_by_email(EMAIL, limit)
        while page:
            after = Position(page[-1].created_at, page[-1].organization)
            page = await store.unclaimed_by_email(EMAIL, limit, after)
    for number in range(ROWS - 20):
        await store.claim_if_unclaimed(
            f"org_{number:03}", "ada", revoke=False, keep_token=True, now=NOW + number // 3
        )
    for limit in (PAGE_AT_MOST, ROWS - 31, 50):
        page = await store.accounts_by_user("ada", limit)
        while page:
            after = Position(page[-1].claimed_at or 0, page[-1].organization)
            page = await store.accounts_by_user("ada", limit, after)
    await store.unclaimed_by_email(EMAIL, PAGE_AT_MOST)
    await store.census(NOW)


@alone("K4", "accounts")
async def a_claim_and_a_removal_reach_many_keys(store: Store, factory: Factory) -> None:
    for organization in ("claimed", "removed"):
        await registered(store, factory, organization)
        for _ in range(ROWS):
            await store.insert(factory.draft(organization), None, NOW)
    await store.claim_if_unclaimed("claimed", "ada", revoke=True, keep_token=False, now=NOW + 1)
    await store.remove_unclaimed(DAY, ROWS, NOW + DAY)
    for organization in ("claimed", "removed"):
        await store.list(organization, PAGE_AT_MOST)
        await store.list_live(organization, PAGE_AT_MOST, None, NOW)
    await store.census(NOW)


@alone("D46", "accounts")
async def many_unused_accounts_are_removed_at_once(store: Store, factory: Factory) -> None:
    for number in range(ROWS):
        await registered(store, factory, f"org_{number:03}", NOW + number)
    await store.remove_unclaimed(DAY, 2 * ROWS, NOW + DAY + ROWS)
    await store.unclaimed_by_email(EMAIL, PAGE_AT_MOST)
    await store.census(NOW)


CHECKS: tuple[Check, ...] = (
    many_leases_are_kept_and_counted,
    many_keys_are_listed_counted_and_removed,
    many_keys_and_organizations_are_found,
    many_records_are_read_in_long_pages,
    usage_of_many_keys_is_added_at_once,
    many_accounts_are_listed_claimed_and_removed,
    a_claim_and_a_removal_reach_many_keys,
    many_unused_accounts_are_removed_at_once,
)
