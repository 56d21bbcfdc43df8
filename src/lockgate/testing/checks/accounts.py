"""Organizations, their plans and their accounts, by one caller."""

from ...errors import HandleTaken
from ...rules.accounts import AccountDraft
from ...rules.digests import Digest
from ...rules.instants import DAY, SECOND
from ...rules.keys import KeyDraft
from ...rules.plans import LARGEST, Organization
from ...stores.contract import PAGE_AT_MOST, Store
from ..calls import Raised
from ..mint import HOSTILE, NOW, Mint
from .check import Check, alone

EMAIL = "ada@example.com"
TOKEN = Digest("new", b"\1" * 32, f"01020305:{'ef' * 32}")


async def registered(store: Store, mint: Mint, organization: str, now: int = NOW) -> None:
    await store.register(mint.account(organization), mint.draft(organization), now)


@alone("D25", "accounts")
async def an_organization_is_kept_as_it_was_put(store: Store, _: Mint) -> None:
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
async def hostile_ids_have_plans_of_their_own(store: Store, _: Mint) -> None:
    for index, id in enumerate(HOSTILE):
        await store.put_organization(Organization(id, "starter", (("rpm", index),)))
    for id in HOSTILE:
        await store.organization(id)


@alone("R1", "accounts")
async def what_was_registered_is_found_by_every_verb(store: Store, mint: Mint) -> None:
    account = mint.account(company="Ada & Co", agent="\U0001f511 a\u0301 ' OR 1=1 --")
    key = mint.draft(lifetime=DAY)
    await store.register(account, key, NOW)
    await store.account("org_1")
    await store.account_by_token(account.handle)
    await store.accounts_by_email(EMAIL)
    await store.accounts_by_user("ada")
    await store.find(key.handle)
    await store.get("org_1", key.id)
    await store.list("org_1", PAGE_AT_MOST)
    await store.organization("org_1")


@alone("D14", "accounts")
async def an_account_that_is_not_there_is_none(store: Store, mint: Mint) -> None:
    account, key = mint.account(), mint.draft()
    await store.insert(mint.draft("org_3"), None, NOW)
    await store.register(account, key, NOW)
    for stranger in ("org_2", "org_3", "org_", "ORG_1", "org_1 ", "org_1\0"):
        await store.account(stranger)
        await store.claim_if_unclaimed(stranger, "ada", revoke=True, now=NOW)
        await store.sign_out(stranger)
    for handle in ("........", key.handle, account.handle.swapcase(), "\0", "", "\u00e9"):
        await store.account_by_token(handle)
    for email in ("Ada@example.com", "ada@example.co", "ada@example.com ", "\0", ""):
        await store.accounts_by_email(email)
    await store.find(account.handle)
    await store.list("org_3", PAGE_AT_MOST)
    await store.account("org_1")


@alone("R1", "accounts")
async def what_is_taken_leaves_nothing_of_the_rest(store: Store, mint: Mint) -> None:
    account, key = mint.account(), mint.draft()
    await store.register(account, key, NOW)
    other, first = mint.account("org_2"), mint.draft("org_2")
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
        await store.accounts_by_email(EMAIL)
    # The handles of keys and of tokens are no kin.
    await store.register(other._replace(handle=key.handle), first, NOW)
    await store.account_by_token(key.handle)


@alone("D14", "accounts")
async def accounts_are_listed_newest_first(store: Store, mint: Mint) -> None:
    times = ((3, "org_c"), (0, "org_d"), (2, "org_b"), (2, "org_a"), (2, "Org"))
    for step, organization in times:
        await registered(store, mint, organization, NOW + step * SECOND)
    await store.accounts_by_email(EMAIL)
    for step, organization in ((2, "org_a"), (3, "org_b"), (3, "Org"), (1, "org_d")):
        await store.claim_if_unclaimed(organization, "ada", revoke=False, now=NOW + step)
    await store.claim_if_unclaimed("org_c", "eve", revoke=False, now=NOW)
    await store.accounts_by_user("ada")


@alone("R3", "accounts")
async def who_claims_later_changes_nothing(store: Store, mint: Mint) -> None:
    await registered(store, mint, "org_1")
    await store.claim_if_unclaimed("org_1", "ada", revoke=False, now=NOW + 5)
    for user in ("eve", "Ada", "ada ", "ad", "ada"):
        await store.claim_if_unclaimed("org_1", user, revoke=False, now=NOW + 6)
        if user != "ada":
            await store.claim_if_unclaimed("org_1", user, revoke=True, now=NOW + 6)
        await store.accounts_by_user(user)
    await store.account("org_1")
    await store.list("org_1", PAGE_AT_MOST)


@alone("K4", "accounts")
async def who_has_claimed_may_revoke_all_that_existed(store: Store, mint: Mint) -> None:
    await registered(store, mint, "org_1")
    for lifetime in (DAY, 1):  # One of them expires before: it stays as it is.
        await store.insert(mint.draft(lifetime=lifetime), None, NOW)
    gone = await store.insert(mint.draft(), None, NOW)
    await store.revoke_if_live("org_1", gone.id, NOW + 1)
    await store.insert(mint.draft("org_2"), None, NOW)
    for step in (5, 6):
        await store.claim_if_unclaimed("org_1", "ada", revoke=True, now=NOW + step)
        await store.account("org_1")
        await store.list("org_1", PAGE_AT_MOST)
        await store.list("org_2", PAGE_AT_MOST)
        await store.insert(mint.draft(), 1, NOW)
        await store.list("org_1", PAGE_AT_MOST)


@alone("D15", "accounts")
async def signing_out_is_counted_and_changes_nothing_else(store: Store, mint: Mint) -> None:
    await registered(store, mint, "org_1")
    await registered(store, mint, "org_2")
    await store.claim_if_unclaimed("org_1", "ada", revoke=False, now=NOW)
    for _ in range(3):
        await store.sign_out("org_1")
    await store.account("org_1")
    await store.account("org_2")


@alone("D25", "accounts")
async def neither_a_plan_nor_an_account_changes_the_other(store: Store, mint: Mint) -> None:
    """They may lie in one row, and a row that is replaced forgets what it is not told."""
    starter = Organization("org_1", "starter", (("rpm", 7),))
    await store.put_organization(starter)
    account = mint.account()
    await store.register(account, mint.draft(), NOW)
    await store.organization("org_1")
    await store.sign_out("org_1")
    await store.claim_if_unclaimed("org_1", "ada", revoke=True, now=NOW)
    await store.put_organization(starter._replace(plan="creator"))
    await store.account("org_1")
    await store.account_by_token(account.handle)
    await store.accounts_by_email(EMAIL)
    await store.accounts_by_user("ada")
    await store.list("org_1", PAGE_AT_MOST)
    await store.sign_out("org_1")
    await store.account("org_1")
    await store.organization("org_1")


@alone("K9", "accounts")
async def rehashing_a_token_replaces_its_digest_and_nothing_else(store: Store, mint: Mint) -> None:
    account = mint.account()
    old, new = Digest(account.scheme, account.digest), Digest("new", b"\1" * 32)
    await store.register(account, mint.draft(), NOW)
    await store.claim_if_unclaimed("org_1", "ada", revoke=True, now=NOW)
    await store.rehash_token_if(account.handle, old._replace(scheme="md5"), new)
    await store.rehash_token_if(account.handle, old._replace(value=bytes(32)), new)
    await store.rehash_token_if("........", old, new)
    await store.rehash_token_if(account.handle, old, new)
    await store.rehash_token_if(account.handle, old, new)
    await store.account_by_token(account.handle)


@alone("K9", "accounts")
async def a_claim_replaces_the_seal_and_needs_the_old_one(store: Store, mint: Mint) -> None:
    """Else a seal that was made for another digest would be kept with this one."""
    one, two = f"01020304:{'ab' * 32}", f"01020304:{'cd' * 32}"
    sealed = mint.account()._replace(seal=one)
    await store.register(sealed, mint.draft(), NOW)
    await store.register(mint.account("org_2"), mint.draft("org_2"), NOW)
    for organization in ("org_1", "org_2"):
        for seals in ((two, one), (None, two), (one, two), (two, one)):
            for revoke in (False, True):
                await store.claim_if_unclaimed(
                    organization, "ada", revoke=revoke, seals=seals, now=NOW + 1
                )
                await store.account(organization)
    await store.rehash_token_if(sealed.handle, Digest(sealed.scheme, sealed.digest, one), TOKEN)
    await store.rehash_token_if(sealed.handle, Digest(sealed.scheme, sealed.digest), TOKEN)
    await store.rehash_token_if(sealed.handle, Digest(sealed.scheme, sealed.digest, two), TOKEN)
    await store.account("org_1")
    await store.census(NOW)


@alone("K9", "accounts")
async def the_census_counts_tokens_that_are_not_revoked(store: Store, mint: Mint) -> None:
    for index, scheme in enumerate(("a", "a", "b")):
        account = mint.account(f"org_{index}")._replace(scheme=scheme)
        await store.register(account, mint.draft(f"org_{index}")._replace(scheme="a"), NOW)
    await store.census(NOW)
    await store.claim_if_unclaimed("org_2", "ada", revoke=True, now=NOW)
    await store.census(NOW)


@alone("W8", "accounts")
async def hostile_ids_have_accounts_of_their_own(store: Store, mint: Mint) -> None:
    for index, id in enumerate(HOSTILE):
        account = mint.account(id, email=f"{index}@example.com")
        await store.register(account, mint.draft(id), NOW)
        await store.claim_if_unclaimed(id, (id * 2)[:255], revoke=False, now=NOW)
    for index, id in enumerate(HOSTILE):
        await store.account(id)
        await store.accounts_by_email(f"{index}@example.com")
        await store.accounts_by_user((id * 2)[:255])


CHECKS: tuple[Check, ...] = (
    an_organization_is_kept_as_it_was_put,
    hostile_ids_have_plans_of_their_own,
    what_was_registered_is_found_by_every_verb,
    an_account_that_is_not_there_is_none,
    what_is_taken_leaves_nothing_of_the_rest,
    accounts_are_listed_newest_first,
    who_claims_later_changes_nothing,
    who_has_claimed_may_revoke_all_that_existed,
    signing_out_is_counted_and_changes_nothing_else,
    neither_a_plan_nor_an_account_changes_the_other,
    rehashing_a_token_replaces_its_digest_and_nothing_else,
    a_claim_replaces_the_seal_and_needs_the_old_one,
    the_census_counts_tokens_that_are_not_revoked,
    hostile_ids_have_accounts_of_their_own,
)
