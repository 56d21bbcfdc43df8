"""Organizations, their plans and their accounts, by one caller."""

from ...core.accounts import AccountDraft
from ...core.api_keys import KeyDraft, Position
from ...core.digests import Digest
from ...core.plans import Organization
from ...core.sliding_window import LARGEST
from ...core.timestamps import DAY, HOUR, SECOND
from ...errors import HandleTaken
from ...stores.answers import Usage
from ...stores.base import PAGE_AT_MOST, Store
from ..calls import Raised
from ..factories import HOSTILE, NOW, Factory
from .check import Check, alone

EMAIL = "ada@example.com"
TOKEN = Digest("new", b"\1" * 32, f"01020305:{'ef' * 32}")


async def registered(store: Store, factory: Factory, organization: str, now: int = NOW) -> None:
    await store.register(factory.account(organization), factory.draft(organization), now)


@alone("D25", "accounts")
async def an_organization_is_kept_as_it_was_put(store: Store, _: Factory) -> None:
    await store.organization("org_1")
    for placed in (
        Organization("org_1", "creator"),
        Organization("org_1", "enterprise", (("rpd", None), ("rpm", LARGEST))),
        Organization("org_1", "enterprise", (("concurrent", 0),)),
        Organization("org_1", "starter"),
    ):
        await store.put_organization(placed)
        await store.organization("org_1")
    await store.organization("org_2")


@alone("W8", "accounts")
async def hostile_ids_have_separate_plans(store: Store, _: Factory) -> None:
    for index, id in enumerate(HOSTILE):
        await store.put_organization(Organization(id, "starter", (("rpm", index),)))
    for id in HOSTILE:
        await store.organization(id)


@alone("R1", "accounts")
async def every_verb_finds_a_registered_organization(store: Store, factory: Factory) -> None:
    account = factory.account(company="Ada & Co", agent="\U0001f511 a\u0301 ' OR 1=1 --")
    key = factory.draft(lifetime=DAY)
    await store.register(account, key, NOW)
    await store.account("org_1")
    await store.account_by_token(account.handle)
    await store.unclaimed_by_email(EMAIL, 9)
    await store.accounts_by_user("ada", 9)
    await store.find(key.handle)
    await store.get("org_1", key.id)
    await store.list("org_1", PAGE_AT_MOST)
    await store.organization("org_1")


@alone("D14", "accounts")
async def a_missing_account_is_none(store: Store, factory: Factory) -> None:
    account, key = factory.account(), factory.draft()
    await store.insert(factory.draft("org_3"), None, NOW)
    await store.register(account, key, NOW)
    for stranger in ("org_2", "org_3", "org_", "ORG_1", "org_1 ", "org_1\0"):
        await store.account(stranger)
        await store.claim_if_unclaimed(stranger, "ada", revoke=True, keep_token=False, now=NOW)
        await store.sign_out(stranger)
    for handle in ("........", "org_1", key.handle, account.handle.swapcase(), "\0", "", "\u00e9"):
        await store.account_by_token(handle)
    for email in ("Ada@example.com", "ada@example.co", "ada@example.com ", "\0", ""):
        await store.unclaimed_by_email(email, 9)
    await store.find(account.handle)
    await store.list("org_3", PAGE_AT_MOST)
    await store.account("org_1")


@alone("R1", "accounts")
async def a_refused_registration_leaves_no_rows(store: Store, factory: Factory) -> None:
    account, key = factory.account(), factory.draft()
    await store.register(account, key, NOW)
    other, first = factory.account("org_2"), factory.draft("org_2")
    taken: list[tuple[AccountDraft, KeyDraft]] = [
        (other, first._replace(handle=key.handle)),
        (other._replace(handle=account.handle), first),
        (other._replace(organization="org_1"), first._replace(organization="org_1")),
    ]
    for drafts in taken:
        answer: object = await store.register(*drafts, NOW)
        assert answer == Raised(HandleTaken.__name__)
        for organization in ("org_1", "org_2"):
            await store.account(organization)
            await store.list(organization, PAGE_AT_MOST)
        await store.find(first.handle)
        await store.account_by_token(other.handle)
        await store.unclaimed_by_email(EMAIL, 9)
    # Keys and tokens have separate handles.
    await store.register(other._replace(handle=key.handle), first, NOW)
    await store.account_by_token(key.handle)


@alone("D14", "accounts")
async def accounts_are_listed_in_order(store: Store, factory: Factory) -> None:
    """A later account is never listed before an earlier one."""
    times = ((3, "org_c"), (0, "org_d"), (2, "org_b"), (2, "org_a"), (2, "Org"))
    for step, organization in times:
        await registered(store, factory, organization, NOW + step * SECOND)
    await store.unclaimed_by_email(EMAIL, 9)
    for step, organization in ((2, "org_a"), (3, "org_b"), (3, "Org"), (1, "org_d")):
        await store.claim_if_unclaimed(
            organization, "ada", revoke=False, keep_token=True, now=NOW + step
        )
    await store.claim_if_unclaimed("org_c", "eve", revoke=False, keep_token=True, now=NOW)
    await store.accounts_by_user("ada", 9)
    await store.unclaimed_by_email(EMAIL, 9)


@alone("D14", "accounts")
async def a_page_continues_where_the_last_one_ended(store: Store, factory: Factory) -> None:
    """Accounts may share an instant, and the last account of a page may have been claimed."""
    for index in range(7):
        await registered(store, factory, f"org_{index}", NOW + index // 3 * SECOND)
    page = await store.unclaimed_by_email(EMAIL, 2)
    while page:
        after = Position(page[-1].created_at, page[-1].organization)
        page = await store.unclaimed_by_email(EMAIL, 2, after)
    for index in range(6):
        await store.claim_if_unclaimed(
            f"org_{index}", "ada", revoke=False, keep_token=True, now=NOW + index // 3
        )
    for at in (NOW - 1, NOW, NOW + 1, NOW + SECOND):
        for organization in ("org_2", "org_4", "p", "\0", "\U0010ffff"):
            after = Position(at, organization)
            await store.unclaimed_by_email(EMAIL, 9, after)
            await store.accounts_by_user("ada", 2, after)


@alone("R3", "accounts")
async def a_later_claim_changes_nothing(store: Store, factory: Factory) -> None:
    await registered(store, factory, "org_1")
    await store.claim_if_unclaimed("org_1", "ada", revoke=False, keep_token=True, now=NOW + 5)
    for user in ("eve", "Ada", "ada ", "ad", "ada"):
        await store.claim_if_unclaimed("org_1", user, revoke=False, keep_token=True, now=NOW + 6)
        if user != "ada":
            await store.claim_if_unclaimed(
                "org_1", user, revoke=True, keep_token=False, now=NOW + 6
            )
        await store.accounts_by_user(user, 9)
    await store.account("org_1")
    await store.list("org_1", PAGE_AT_MOST)


@alone("K4", "accounts")
async def a_claimer_may_revoke_all_existing_keys(store: Store, factory: Factory) -> None:
    await registered(store, factory, "org_1")
    for lifetime in (DAY, 1):  # One of them expires before, and stays unchanged.
        await store.insert(factory.draft(lifetime=lifetime), None, NOW)
    gone = await store.insert(factory.draft(), None, NOW)
    await store.revoke_if_live("org_1", gone.id, NOW + 1)
    await store.insert(factory.draft("org_2"), None, NOW)
    for step in (5, 6):
        await store.claim_if_unclaimed(
            "org_1", "ada", revoke=True, keep_token=False, now=NOW + step
        )
        await store.account("org_1")
        await store.list("org_1", PAGE_AT_MOST)
        await store.list("org_2", PAGE_AT_MOST)
        await store.insert(factory.draft(), 1, NOW)
        await store.list("org_1", PAGE_AT_MOST)


@alone("D46", "accounts")
async def a_claim_ends_the_token_unless_it_is_kept(store: Store, factory: Factory) -> None:
    for index, (revoke, keep_token) in enumerate(
        ((False, False), (False, True), (True, False), (True, True))
    ):
        organization = f"org_{index}"
        await registered(store, factory, organization)
        for user, keep, step in (("ada", keep_token, 1), ("eve", False, 2), ("ada", True, 3)):
            await store.claim_if_unclaimed(
                organization, user, revoke=revoke, keep_token=keep, now=NOW + step
            )
            await store.account(organization)
        await store.sign_in(organization, NOW + 4)
        # A later claim may revoke the token, once.
        for step in (5, 6):
            await store.claim_if_unclaimed(
                organization, "ada", revoke=False, keep_token=False, now=NOW + step
            )
        await store.account(organization)
        await store.list(organization, PAGE_AT_MOST)


@alone("D15", "accounts")
async def a_sign_in_is_noted_while_the_token_is_good(store: Store, factory: Factory) -> None:
    await registered(store, factory, "org_1")
    await registered(store, factory, "org_2")
    await store.sign_in("org_3", NOW)
    for step in (5, 3, 9):
        await store.sign_in("org_1", NOW + step)
    await store.account("org_1")
    await store.account("org_2")
    await store.claim_if_unclaimed("org_1", "ada", revoke=False, keep_token=False, now=NOW)
    await store.sign_in("org_1", NOW + 10)
    await store.account("org_1")


@alone("D46", "accounts")
async def an_account_is_removed_once_it_was_unused_long_enough(
    store: Store, factory: Factory
) -> None:
    """Each use restarts the time: a sign-in, a new key, a request with a key."""
    first = factory.draft("used")
    await store.register(factory.account("used"), first, NOW)
    for organization in ("idle", "signed in", "given a key", "claimed", "placed", "young"):
        later = HOUR if organization == "young" else 0
        await registered(store, factory, organization, NOW + later)
    await store.insert(factory.draft("of the host"), None, NOW)
    await store.put_organization(Organization("placed", "starter"))
    await store.claim_if_unclaimed("claimed", "ada", revoke=False, keep_token=False, now=NOW)
    await store.remove_unclaimed(1, 9, NOW)
    await store.sign_in("signed in", NOW + HOUR)
    await store.insert(factory.draft("given a key"), None, NOW + HOUR)
    await store.add_usage({first.handle: Usage(1, NOW + HOUR)})
    for idle, step in ((DAY, DAY - 1), (DAY, DAY), (DAY, DAY + HOUR - 1), (DAY, DAY + HOUR)):
        await store.remove_unclaimed(idle, 9, NOW + step)
        for organization in ("idle", "used", "signed in", "given a key", "young"):
            await store.account(organization)
            await store.list(organization, PAGE_AT_MOST)
    await store.remove_unclaimed(0, 9, NOW + 9 * DAY)
    for organization in ("claimed", "placed", "of the host"):
        await store.account(organization)
        await store.list(organization, PAGE_AT_MOST)


@alone("D46", "accounts")
async def no_verb_finds_a_removed_account_and_its_handles_stay_taken(
    store: Store, factory: Factory
) -> None:
    account, first, second = factory.account(), factory.draft(), factory.draft()
    await store.register(account, first, NOW)
    await store.insert(second, None, NOW)
    await store.revoke_if_live("org_1", second.id, NOW)
    await store.remove_unclaimed(DAY, 9, NOW + DAY)
    await store.account("org_1")
    await store.account_by_token(account.handle)
    await store.unclaimed_by_email(EMAIL, 9)
    await store.list("org_1", PAGE_AT_MOST)
    await store.census(NOW + DAY)
    for key in (first, second):
        await store.find(key.handle)
        await store.get("org_1", key.id)
        await store.add_usage({key.handle: Usage(1, NOW + DAY)})
        await store.revoke_if_live("org_1", key.id, NOW + DAY)
        await store.rehash_if(key.handle, Digest(key.scheme, key.digest), Digest("new", b"1"))
        other = factory.draft("org_2")._replace(handle=key.handle)
        await store.insert(other, None, NOW + DAY)
        await store.register(factory.account("org_2"), other, NOW + DAY)
    await store.claim_if_unclaimed("org_1", "ada", revoke=True, keep_token=False, now=NOW + DAY)
    await store.sign_in("org_1", NOW + DAY)
    await store.sign_out("org_1")
    await store.rehash_token_if(
        account.handle, Digest(account.scheme, account.digest), Digest("new", b"1")
    )
    await store.account("org_1")
    await store.accounts_by_user("ada", 9)
    await store.account("org_2")
    await store.insert(factory.draft(), 1, NOW + DAY)
    await store.list("org_1", PAGE_AT_MOST)


@alone("D15", "accounts")
async def signing_out_is_counted_and_changes_nothing_else(store: Store, factory: Factory) -> None:
    await registered(store, factory, "org_1")
    await registered(store, factory, "org_2")
    await store.claim_if_unclaimed("org_1", "ada", revoke=False, keep_token=True, now=NOW)
    for _ in range(3):
        await store.sign_out("org_1")
    await store.account("org_1")
    await store.account("org_2")


@alone("D25", "accounts")
async def neither_a_plan_nor_an_account_changes_the_other(store: Store, factory: Factory) -> None:
    """A store may keep both in one row, and lose fields when it replaces the row."""
    starter = Organization("org_1", "starter", (("rpm", 7),))
    await store.put_organization(starter)
    account = factory.account()
    await store.register(account, factory.draft(), NOW)
    await store.organization("org_1")
    await store.sign_out("org_1")
    await store.claim_if_unclaimed("org_1", "ada", revoke=True, keep_token=False, now=NOW)
    await store.put_organization(starter._replace(plan="creator"))
    await store.account("org_1")
    await store.account_by_token(account.handle)
    await store.unclaimed_by_email(EMAIL, 9)
    await store.accounts_by_user("ada", 9)
    await store.list("org_1", PAGE_AT_MOST)
    await store.sign_out("org_1")
    await store.account("org_1")
    await store.organization("org_1")


@alone("K9", "accounts")
async def rehashing_a_token_replaces_its_digest_and_nothing_else(
    store: Store, factory: Factory
) -> None:
    account = factory.account()
    old, new = Digest(account.scheme, account.digest), Digest("new", b"\1" * 32)
    await store.register(account, factory.draft(), NOW)
    await store.claim_if_unclaimed("org_1", "ada", revoke=True, keep_token=False, now=NOW)
    await store.rehash_token_if(account.handle, old._replace(scheme="md5"), new)
    await store.rehash_token_if(account.handle, old._replace(value=bytes(32)), new)
    await store.rehash_token_if("........", old, new)
    await store.rehash_token_if(account.handle, old, new)
    await store.rehash_token_if(account.handle, old, new)
    await store.account_by_token(account.handle)


@alone("K9", "accounts")
async def a_claim_replaces_the_seal_and_needs_the_old_one(store: Store, factory: Factory) -> None:
    """Otherwise a seal for another digest could be stored with this one."""
    one, two = f"01020304:{'ab' * 32}", f"01020304:{'cd' * 32}"
    sealed = factory.account()._replace(seal=one)
    await store.register(sealed, factory.draft(), NOW)
    await store.register(factory.account("org_2"), factory.draft("org_2"), NOW)
    for organization in ("org_1", "org_2"):
        for seals in ((two, one), (None, two), (one, two), (two, one)):
            for revoke in (False, True):
                await store.claim_if_unclaimed(
                    organization,
                    "ada",
                    revoke=revoke,
                    keep_token=not revoke,
                    seals=seals,
                    now=NOW + 1,
                )
                await store.account(organization)
    await store.rehash_token_if(sealed.handle, Digest(sealed.scheme, sealed.digest, one), TOKEN)
    await store.rehash_token_if(sealed.handle, Digest(sealed.scheme, sealed.digest), TOKEN)
    await store.rehash_token_if(sealed.handle, Digest(sealed.scheme, sealed.digest, two), TOKEN)
    await store.account("org_1")
    await store.census(NOW)


@alone("K9", "accounts")
async def the_census_counts_tokens_that_are_not_revoked(store: Store, factory: Factory) -> None:
    for index, scheme in enumerate(("a", "a", "b")):
        account = factory.account(f"org_{index}")._replace(scheme=scheme)
        await store.register(account, factory.draft(f"org_{index}")._replace(scheme="a"), NOW)
    await store.census(NOW)
    await store.claim_if_unclaimed("org_2", "ada", revoke=True, keep_token=False, now=NOW)
    await store.census(NOW)


@alone("W8", "accounts")
async def hostile_ids_have_separate_accounts(store: Store, factory: Factory) -> None:
    for index, id in enumerate(HOSTILE):
        account = factory.account(id, email=f"{index}@example.com")
        await store.register(account, factory.draft(id), NOW)
        await store.claim_if_unclaimed(id, (id * 2)[:255], revoke=False, keep_token=True, now=NOW)
    for index, id in enumerate(HOSTILE):
        await store.account(id)
        await store.unclaimed_by_email(f"{index}@example.com", 9)
        await store.accounts_by_user((id * 2)[:255], 9)


CHECKS: tuple[Check, ...] = (
    an_organization_is_kept_as_it_was_put,
    hostile_ids_have_separate_plans,
    every_verb_finds_a_registered_organization,
    a_missing_account_is_none,
    a_refused_registration_leaves_no_rows,
    accounts_are_listed_in_order,
    a_page_continues_where_the_last_one_ended,
    a_later_claim_changes_nothing,
    a_claimer_may_revoke_all_existing_keys,
    a_claim_ends_the_token_unless_it_is_kept,
    a_sign_in_is_noted_while_the_token_is_good,
    an_account_is_removed_once_it_was_unused_long_enough,
    no_verb_finds_a_removed_account_and_its_handles_stay_taken,
    signing_out_is_counted_and_changes_nothing_else,
    neither_a_plan_nor_an_account_changes_the_other,
    rehashing_a_token_replaces_its_digest_and_nothing_else,
    a_claim_replaces_the_seal_and_needs_the_old_one,
    the_census_counts_tokens_that_are_not_revoked,
    hostile_ids_have_separate_accounts,
)
