"""Admissions by one caller, which combine keys, plans, windows and usage."""

from ...core.api_keys import KeyDetails
from ...core.digests import Digest
from ...core.key_search import KeySearch
from ...core.leases import TO_LIST, to_acquire
from ...core.ledger import Hit, Peek, Reset
from ...core.plans import Organization
from ...core.row_seals import resealed_key
from ...core.temporary_limits import TemporaryLimit, with_temporary
from ...core.timestamps import DAY, HOUR, MINUTE, SECOND
from ...stores.answers import Usage
from ...stores.base import PAGE_AT_MOST, Store
from ..factories import EXACT, HOSTILE, NOW, PLANS, Factory, book
from ..guarantees import Broken
from .check import Check, alone

EVERYTHING = book(None)
HERE = KeyDetails(addresses=("192.0.2.0/24", "2001:db8::7"))
CLIENTS = ("192.0.2.7", "198.51.100.7", "2001:db8::7", "2001:db8::8", "")
PEPPER = b"a pepper that opens nothing"
_STEPS_AT_MOST = 10_000


@alone("K1", "admission")
async def an_admission_verifies_charges_and_counts(store: Store, factory: Factory) -> None:
    made = factory.key()
    await store.insert(factory.draft(key=made, lifetime=DAY), None, NOW)
    for cost, now in ((2, NOW), (1, NOW + 7), (1, NOW + 8), (1, NOW + MINUTE)):
        await store.admit(factory.token(made), cost, PLANS, now)
    await store.find(made.handle)
    await store.charge("org_1", Peek(PLANS.default.windows), NOW + MINUTE)


@alone("K1", "admission")
async def an_unknown_handle_and_a_wrong_secret_look_alike(store: Store, factory: Factory) -> None:
    made = factory.key()
    key = await store.insert(factory.draft(key=made)._replace(digest=bytes(32)), None, NOW)
    await store.admit(factory.token(factory.key()), 1, PLANS, NOW)
    await store.admit(factory.token(made), 1, PLANS, NOW)
    await store.revoke_if_live("org_1", key.id, NOW)
    await store.admit(factory.token(made), 1, PLANS, NOW)
    await store.charge("org_1", Peek(PLANS.default.windows), NOW)


@alone("K1", "admission")
async def a_digest_of_a_dropped_scheme_matches_no_key(store: Store, factory: Factory) -> None:
    """An unknown scheme has an empty digest, which must not match a row with an empty digest."""
    made = factory.key()
    gone = factory.draft(key=made)._replace(scheme="hmac-sha256:00000000", digest=b"")
    await store.insert(gone, None, NOW)
    await store.admit(factory.token(made), 1, PLANS, NOW)


@alone("K1", "admission")
async def a_key_is_accepted_as_soon_as_it_exists(store: Store, factory: Factory) -> None:
    """Covers each verb that creates keys."""
    inserted, registered = factory.key(), factory.key()
    for key in (inserted, registered):
        await store.admit(factory.token(key), 1, PLANS, NOW)
    await store.insert(factory.draft(key=inserted), None, NOW)
    await store.register(factory.account("org_2"), factory.draft("org_2", key=registered), NOW)
    for key in (inserted, registered):
        await store.admit(factory.token(key), 1, PLANS, NOW)


@alone("K9", "admission")
async def a_replaced_digest_matches_no_key(store: Store, factory: Factory) -> None:
    """A process may have cached the key when it was admitted."""
    made = factory.key()
    draft = factory.draft(key=made)
    right, wrong = Digest(draft.scheme, draft.digest), Digest(draft.scheme, bytes(32))
    await store.insert(draft, None, NOW)
    for old, new in ((right, right), (right, wrong), (wrong, right)):
        await store.rehash_if(made.handle, old, new)
        for _ in range(2):
            await store.admit(factory.token(made), 1, EVERYTHING, NOW)


@alone("K1", "admission")
async def a_forged_or_changed_row_admits_no_request(store: Store, factory: Factory) -> None:
    """The attacker can write to the database and knows the text of a key, but no pepper."""
    sealing = Factory(1, peppers=[PEPPER])
    made = [sealing.key() for _ in range(14)]
    rows = [sealing.draft(key=key, scopes=("jobs:read",), lifetime=DAY) for key in made]
    rows[1] = rows[1]._replace(organization="org_2")
    rows[2] = rows[2]._replace(scopes=("*",))
    rows[3] = rows[3]._replace(scopes=("jobs:read", "*"))
    rows[4] = rows[4]._replace(expires_at=None)
    rows[5] = rows[5]._replace(expires_at=NOW + 2 * DAY)
    rows[6] = rows[6]._replace(seal=None)
    rows[7] = rows[7]._replace(seal=rows[0].seal)
    rows[8] = rows[8]._replace(seal=(rows[8].seal or "")[:-1])
    rows[9] = rows[9]._replace(seal="ffffffff:" + (rows[9].seal or "")[9:])
    plain = factory.format.digest(made[10])
    rows[10] = rows[10]._replace(scheme=plain.scheme, digest=plain.value)
    listed = [sealing.draft(key=key, details=HERE) for key in made[11:]]
    rows[11:] = (
        listed[0]._replace(details=None),
        listed[1]._replace(details=KeyDetails(addresses=("0.0.0.0/0",))),
        rows[13]._replace(details=HERE),
    )
    for row in rows:
        await store.insert(row, None, NOW)
    for _ in range(2):
        for key in made:
            await store.admit(sealing.token(key), 1, EVERYTHING, NOW, "192.0.2.7")


@alone("K1", "admission")
async def a_changed_row_is_verified_again(store: Store, factory: Factory) -> None:
    """Cached fields must not count, for a new token and for a cached one."""
    sealing = Factory(2, peppers=[PEPPER])
    made = sealing.key()
    key = await store.insert(sealing.draft(key=made), None, NOW)
    right, known = key.kept, sealing.token(made).without_secret(key)
    wrong = right._replace(seal=f"{(right.seal or '')[:-1]}x")
    without = right._replace(seal=None)
    for old, new in ((right, right), (right, wrong), (wrong, without), (without, right)):
        await store.rehash_if(made.handle, old, new)
        for token in (sealing.token(made), known, known, sealing.token(made)):
            await store.admit(token, 1, EVERYTHING, NOW)


@alone("K4", "admission")
async def a_claim_that_revokes_all_refuses_at_once(store: Store, factory: Factory) -> None:
    """As after a revocation, also for keys that were admitted before."""
    made = [factory.key() for _ in range(3)]
    await store.register(factory.account(), factory.draft(key=made[0]), NOW)
    await store.insert(factory.draft(key=made[1]), None, NOW)
    await store.insert(factory.draft("org_2", key=made[2]), None, NOW)
    for step, revoke in enumerate((False, True, True)):
        for key in made:
            await store.admit(factory.token(key), 1, EVERYTHING, NOW + step)
        await store.claim_if_unclaimed(
            "org_1", "ada", revoke=revoke, keep_token=not revoke, now=NOW + step
        )
    for key in made:
        await store.admit(factory.token(key), 1, EVERYTHING, NOW + 3)


@alone("D4", "admission")
async def revoked_is_reported_before_expired_and_neither_is_charged(
    store: Store, factory: Factory
) -> None:
    made = factory.key()
    key = await store.insert(factory.draft(key=made, lifetime=DAY), None, NOW)
    token = factory.token(made)
    await store.admit(token, 1, PLANS, NOW + DAY - 1)
    await store.admit(token, 1, PLANS, NOW + DAY)
    await store.revoke_if_live("org_1", key.id, NOW)
    await store.admit(token, 1, PLANS, NOW + DAY)
    await store.admit(token, 1, PLANS, NOW)
    await store.charge("org_1", Peek(PLANS.default.windows), NOW + DAY - 1)


@alone("D43", "admission")
async def an_update_and_a_rotation_hold_for_the_next_admission(
    store: Store, factory: Factory
) -> None:
    """Of a caller that was admitted before, and of a new caller."""
    key = factory.key()
    first, again = factory.token(key), factory.token(key)
    row = await store.insert(factory.draft(key=key), None, NOW)
    for step, changed in enumerate(
        (
            row._replace(scopes=("jobs:read",)),
            row._replace(scopes=("jobs:read",), expires_at=NOW + DAY),
            row._replace(scopes=("models:read",), expires_at=NOW + 2 * SECOND, name="another"),
        )
    ):
        await store.admit(first, 1, EVERYTHING, NOW + step)
        await store.update_if(row, changed, NOW + step)
        for token in (first, again, factory.token(key)):
            await store.admit(token, 1, EVERYTHING, NOW + step)
        row = changed
    successor = factory.key()
    ended = row._replace(expires_at=NOW + SECOND, details=KeyDetails(NOW, "a successor"))
    await store.rotate_if(row, ended, factory.draft(key=successor), None, NOW + 9)
    for now in (NOW + 9, NOW + SECOND):
        for token in (first, again, factory.token(key), factory.token(successor)):
            await store.admit(token, 1, EVERYTHING, now)


@alone("K1", "admission")
async def a_client_off_the_allow_list_is_neither_admitted_nor_charged(
    store: Store, factory: Factory
) -> None:
    """After revoked and expired, before limited; a client that names no address is off the list."""
    made, wrong = factory.key(), factory.key()
    draft = factory.draft(key=made, lifetime=DAY, details=HERE)
    key = await store.insert(draft, None, NOW)
    other = factory.draft(key=wrong, details=HERE)
    await store.insert(other._replace(digest=bytes(32)), None, NOW)
    await store.admit(factory.token(made), 1, PLANS, NOW)
    for address in 3 * CLIENTS:
        await store.admit(factory.token(made), 1, PLANS, NOW, address)
        await store.admit(factory.token(wrong), 1, PLANS, NOW, address)
    await store.find(made.handle)
    await store.charge("org_1", Peek(PLANS.default.windows), NOW)
    for address in CLIENTS:
        await store.admit(factory.token(made), 1, PLANS, NOW + DAY, address)
    await store.revoke_if_live("org_1", key.id, NOW)
    for address in CLIENTS:
        await store.admit(factory.token(made), 1, PLANS, NOW, address)


@alone("D43", "admission")
async def a_change_of_the_allow_list_holds_for_the_next_admission(
    store: Store, factory: Factory
) -> None:
    """Of a caller that was admitted before, and of a new caller; with a seal and without."""
    for number, peppers in enumerate(([], [PEPPER])):
        makes = Factory(number + 3, peppers)
        key = makes.key()
        row = await store.insert(makes.draft(key=key), None, NOW)
        first, known = makes.token(key), makes.token(key).without_secret(row)
        for step, addresses in enumerate(
            (("192.0.2.0/24",), ("198.51.100.7",), ("192.0.2.7", "198.51.100.0/24"), ())
        ):
            for address in CLIENTS:
                await store.admit(first, 1, EVERYTHING, NOW + step, address)
            details = KeyDetails(addresses=addresses).or_none()
            new = resealed_key(row._replace(details=details), makes.format.peppers)
            await store.update_if(row, new, NOW + step)
            for address in CLIENTS:
                for token in (first, known, makes.token(key)):
                    await store.admit(token, 1, EVERYTHING, NOW + step, address)
            row = new


@alone("K4", "admission")
async def a_revoked_key_is_refused_at_once(store: Store, factory: Factory) -> None:
    made = [factory.key() for _ in range(3)]
    keys = [await store.insert(factory.draft(key=key), None, NOW) for key in made]
    for key, row in zip(made, keys, strict=True):
        await store.admit(factory.token(key), 1, PLANS, NOW)
        await store.revoke_if_live("org_1", row.id, NOW + 1)
        for later in (0, 1, 2, MINUTE, HOUR):
            await store.admit(factory.token(key), 1, PLANS, NOW + later)


@alone("K7", "admission")
async def a_limited_admission_counts_nothing_and_shows_the_key(
    store: Store, factory: Factory
) -> None:
    made = factory.key()
    await store.insert(factory.draft(key=made), None, NOW)
    for step in range(6):
        await store.admit(factory.token(made), 1, PLANS, NOW + step)
    await store.find(made.handle)
    await store.charge("org_1", Peek(PLANS.default.windows), NOW + 6)


@alone("K7", "admission")
async def the_last_use_does_not_go_back_with_the_clock(store: Store, factory: Factory) -> None:
    made = factory.key()
    await store.insert(factory.draft(key=made), None, NOW)
    for step in (10, 5, 7):
        await store.admit(factory.token(made), 1, PLANS, NOW + step)
    await store.find(made.handle)


@alone("W8", "admission")
async def the_keys_of_an_organization_share_its_windows(store: Store, factory: Factory) -> None:
    made = [factory.key() for _ in range(4)]
    for index, key in enumerate(made):
        await store.insert(factory.draft(f"org_{index % 2}", key=key), None, NOW)
    for _ in range(2):
        for key in made:
            await store.admit(factory.token(key), 1, PLANS, NOW)


@alone("W13", "admission")
async def a_plan_holds_from_the_next_admission_on(store: Store, factory: Factory) -> None:
    made = factory.key()
    await store.insert(factory.draft(key=made), None, NOW)
    token = factory.token(made)
    for _ in range(4):
        await store.admit(token, 1, PLANS, NOW)
    for placed in (
        Organization("org_1", EXACT.name),
        Organization("org_1", EXACT.name, (("rpm", 4),)),
        Organization("org_1", "open", (("rpd", 6),)),
        Organization("org_1", "a plan that is no more"),
    ):
        await store.put_organization(placed)
        for _ in range(2):
            await store.admit(token, 1, PLANS, NOW)


@alone("W13", "admission")
async def a_temporary_limit_holds_until_its_end(store: Store, factory: Factory) -> None:
    made = factory.key()
    await store.insert(factory.draft(key=made), None, NOW)
    token, end = factory.token(made), NOW + 10 * SECOND
    for own, temporary in (({}, 9), ({"rpm": 5}, 9), ({"rpm": 5}, None), ({"rpm": 9}, 4)):
        limits = {"rpm": TemporaryLimit(temporary, end), "rpd": TemporaryLimit(20, end + 2)}
        overrides = with_temporary(own, limits)
        await store.put_organization(Organization("org_1", EXACT.name, overrides))
        for now in (NOW, NOW + 1, end - 1, end, end + 1, end + 2, NOW):
            await store.admit(token, 1, PLANS, now)


async def _scanned(store: Store) -> None:
    factory, keys, accounts = Factory(), set[str](), set[str]()
    for number in range(7):
        organization = f"org_{number}"
        account = await store.register(
            factory.account(organization), factory.draft(organization), NOW
        )
        for _ in range(3):
            made = await store.insert(factory.draft(organization), None, NOW)
            keys.add(made.handle)
        accounts.add(account[0].handle)
        keys.add(account[1].handle)
    for limit in (1, 4, 1000):
        found: set[str] = set()
        tokens: set[str] = set()
        cursor: str | None = None
        for _ in range(_STEPS_AT_MOST):
            step = await store.scan(cursor, limit)
            found |= {key.handle for key in step.keys}
            tokens |= {account.handle for account in step.accounts}
            cursor = step.cursor
            if cursor is None:
                break
        if cursor is not None or found != keys or tokens != accounts:
            said = f"{len(found)} of {len(keys)} keys and {len(tokens)} of {len(accounts)} accounts"
            raise Broken("K9", f"A scan in steps of {limit} found {said}.")


every_row_is_scanned = Check("K9", "admission", "every_row_is_scanned", False, _scanned)


@alone("K1", "admission")
async def a_search_finds_keys_of_all_organizations_by_handle_id_and_prefix(
    store: Store, factory: Factory
) -> None:
    handles = ("51c0aAAA", "51c0aBBB", "51c0bAAA", "51C0aAAA", "51c0")
    for number, handle in enumerate(handles):
        draft = factory.draft(f"org_{number}", lifetime=DAY)._replace(handle=handle)
        await store.insert(draft, None, NOW)
    key = await store.insert(factory.draft(HOSTILE[7]), None, NOW)
    await store.revoke_if_live(HOSTILE[7], key.id, NOW)
    for number in range(3):
        handle, prefix = f"~{number}{'-_Aa9' * 8}xy", f"sk_{number % 2}"
        draft = factory.draft()._replace(handle=handle, prefix=prefix)
        await store.insert(draft, None, NOW)
        await store.add_usage({handle: Usage(number + 1, NOW)})
    for limit in (1, 1000):
        for start in ("51c0a", "51c0", "5", "51c0aAAA", "51c0aAAAA", "*", "51c?a", "[5]1", "\\5"):
            await store.search(KeySearch(handle=start), limit)
        for prefix in ("sk_0", "sk_", "SK_0", "", key.prefix):
            await store.search(KeySearch(prefix=prefix), limit)
        for id in (key.id, key.id.upper(), "no such id", "*", key.handle):
            await store.search(KeySearch(id=id), limit)
    await store.remove_ended(DAY, NOW + 2 * DAY)
    await store.search(KeySearch(handle="51c0"), 2)
    await store.search(KeySearch(id=key.id), 2)


@alone("D25", "admission")
async def organizations_are_listed_with_plan_live_keys_and_latest_use(
    store: Store, factory: Factory
) -> None:
    await store.organizations(10, NOW)
    for number in range(3):
        for _ in range(number + 1):
            made = factory.key()
            await store.insert(factory.draft(f"org_{number}", key=made), None, NOW)
            if number:
                await store.admit(factory.token(made), 1, PLANS, NOW + number)
    ended = await store.insert(factory.draft("org_2", lifetime=5), None, NOW)
    await store.add_usage({ended.handle: Usage(1, NOW + 4)})
    only = await store.insert(factory.draft("org_3"), None, NOW)
    await store.add_usage({only.handle: Usage(1, NOW)})
    await store.revoke_if_live("org_3", only.id, NOW)
    await store.charge("org_windows", Hit(EXACT.windows, 1), NOW)
    for id in ("org_0", "org_4", *HOSTILE):
        await store.put_organization(Organization(id, "exact", (("rpm", 3), ("rpd", None))))
    await store.register(factory.account("org_5"), factory.draft("org_5"), NOW)
    for limit, now in ((1, NOW + 4), (7, NOW + 5), (1000, NOW + DAY)):
        await store.organizations(limit, now)
    await store.remove_ended(DAY, NOW + 2 * DAY)
    await store.organizations(1000, NOW + DAY)


@alone("W2", "admission")
async def a_reset_of_windows_leaves_all_else(store: Store, factory: Factory) -> None:
    """Keys with their usage, the plan, slots, and the windows of ids that begin alike."""
    made = factory.key()
    await store.insert(factory.draft(key=made, lifetime=DAY), None, NOW)
    await store.put_organization(Organization("org_1", "exact", (("rpm", 3),)))
    for step in range(4):
        await store.admit(factory.token(made), 1, PLANS, NOW + step)
    await store.charge("org_1", to_acquire("job", "me", 2, HOUR), NOW)
    for id in ("org_11", "Org_1", "org_1 ", "org"):
        await store.charge(id, Hit(EXACT.windows, 2), NOW)
    await store.charge("org_1", Reset(), NOW + 9)
    await store.charge("org_1", Peek(EXACT.windows), NOW + 9)
    for id in ("org_11", "Org_1", "org_1 ", "org"):
        await store.charge(id, Peek(EXACT.windows), NOW + 9)
    await store.charge("org_1", TO_LIST, NOW + 9)
    await store.organization("org_1")
    await store.find(made.handle)
    await store.list_live("org_1", PAGE_AT_MOST, None, NOW + 9)
    await store.admit(factory.token(made), 3, PLANS, NOW + 9)
    await store.charge("org_1", to_acquire("another job", "me", 1, HOUR), NOW + 9)


@alone("D45", "admission")
async def a_removed_key_is_unknown_at_once(store: Store, factory: Factory) -> None:
    made = factory.key()
    await store.insert(factory.draft(key=made, lifetime=DAY), None, NOW)
    await store.admit(factory.token(made), 1, PLANS, NOW)
    await store.admit(factory.token(made), 1, PLANS, NOW + DAY)
    await store.remove_ended(DAY, NOW + 2 * DAY)
    await store.admit(factory.token(made), 1, PLANS, NOW + DAY)
    await store.insert(factory.draft(), None, NOW)
    await store.list("org_1", PAGE_AT_MOST)


CHECKS: tuple[Check, ...] = (
    an_admission_verifies_charges_and_counts,
    an_unknown_handle_and_a_wrong_secret_look_alike,
    a_digest_of_a_dropped_scheme_matches_no_key,
    a_key_is_accepted_as_soon_as_it_exists,
    a_replaced_digest_matches_no_key,
    a_forged_or_changed_row_admits_no_request,
    a_changed_row_is_verified_again,
    every_row_is_scanned,
    a_claim_that_revokes_all_refuses_at_once,
    an_update_and_a_rotation_hold_for_the_next_admission,
    a_client_off_the_allow_list_is_neither_admitted_nor_charged,
    a_change_of_the_allow_list_holds_for_the_next_admission,
    a_revoked_key_is_refused_at_once,
    revoked_is_reported_before_expired_and_neither_is_charged,
    a_limited_admission_counts_nothing_and_shows_the_key,
    the_last_use_does_not_go_back_with_the_clock,
    the_keys_of_an_organization_share_its_windows,
    a_plan_holds_from_the_next_admission_on,
    a_temporary_limit_holds_until_its_end,
    a_reset_of_windows_leaves_all_else,
    a_removed_key_is_unknown_at_once,
    a_search_finds_keys_of_all_organizations_by_handle_id_and_prefix,
    organizations_are_listed_with_plan_live_keys_and_latest_use,
)
