"""Keys, by one caller."""

from ...core.api_keys import ApiKey, KeyDetails, KeyDraft, KeyHistory, Position
from ...core.digests import Digest
from ...core.timestamps import DAY, SECOND
from ...errors import HandleTaken, KeyLimitReached
from ...stores.answers import Usage, UsageBatch
from ...stores.base import PAGE_AT_MOST, Store
from ..calls import Raised
from ..factories import HOSTILE, NOW, Factory
from .check import Check, alone

MANY = 130
"""More keys than a store removes in one step."""
OTHER = Digest("hmac-sha256:01020304", b"\x07" * 32)


DETAILS = KeyDetails(
    created_by="user:\U0001f511",
    labels=(("env", "prod"), ("team", "N\u00e4me = 'x'")),
    addresses=("192.0.2.0/24", "2001:db8::7"),
)


def changed(key: ApiKey) -> ApiKey:
    """Return a live key with every field changed that may change."""
    return key._replace(
        name="N\u00e4me \U0001f511",
        scopes=("jobs:read", "models:*"),
        seal=f"01020304:{'cd' * 32}",
        expires_at=NOW + DAY,
        details=KeyDetails(NOW, "the id of its successor"),
    )


async def taken(store: Store, draft: KeyDraft, cap: int | None, now: int = NOW) -> None:
    """Insert a key that the model refuses; the store must refuse it too."""
    answer: object = await store.insert(draft, cap, now)
    assert answer in (Raised(HandleTaken.__name__), Raised(KeyLimitReached.__name__))


@alone("K1", "keys")
async def an_inserted_key_is_found_by_handle_by_id_and_in_the_list(
    store: Store, factory: Factory
) -> None:
    drafts = [
        factory.draft(),
        factory.draft(lifetime=DAY, scopes=("jobs:read", "models:*")),
        factory.draft("org_2", name="N\u00e4me \U0001f511", lifetime=1),
        factory.draft(details=DETAILS),
    ]
    for draft in drafts:
        await store.insert(draft, None, NOW)
    for draft in drafts:
        await store.find(draft.handle)
        await store.get(draft.organization, draft.id)
        await store.list(draft.organization, PAGE_AT_MOST)


@alone("K1", "keys")
async def a_key_of_another_system_keeps_its_history(store: Store, factory: Factory) -> None:
    """Covers instants, usage, and the index that each list of keys is read by."""
    created = NOW - 3 * DAY
    pasts = [
        KeyHistory(created, None, 7, NOW - DAY),
        KeyHistory(created + 1, None, 0, NOW - DAY),
        KeyHistory(created + DAY, NOW - DAY, 2, NOW - DAY - SECOND),
        KeyHistory(created),
    ]
    keys = [
        await store.insert(factory.draft(lifetime=life)._replace(history=past), None, NOW)
        for past, life in zip(pasts, (None, DAY, DAY, -DAY), strict=True)
    ]
    await store.insert(factory.draft(), None, NOW)
    for key in keys:
        await store.find(key.handle)
        await store.revoke_if_live("org_1", key.id, NOW + 1)
        await store.add_usage({key.handle: Usage(1, NOW)})
        await store.find(key.handle)
    await store.list("org_1", PAGE_AT_MOST)
    await store.list_live("org_1", PAGE_AT_MOST, None, NOW)
    await taken(store, factory.draft(), 1)
    await store.insert(factory.draft(), 2, NOW)
    await store.remove_ended(DAY, NOW + 1)
    await store.list("org_1", PAGE_AT_MOST)


@alone("K1", "keys")
async def the_longest_key_record_is_kept_whole(store: Store, factory: Factory) -> None:
    """Covers a key of lockgate's and an imported one with a slow digest."""
    scopes = tuple(f"area{number}:{'x' * number}" for number in range(50, 0, -1))
    details = KeyDetails(
        created_by="\U0001f511" * 300,
        labels=tuple((f"{n:02}{'n' * 61}", "\U0001f511" * 100) for n in range(16)),
        addresses=tuple(f"2001:db8:ffff:ffff:ffff:ffff:ffff:{n:x}" for n in range(1000, 1032)),
        others=(("later", '{"a": [1, null]}'),),
    )
    ours = factory.draft(
        name="\U0001f511" * 100, scopes=scopes, lifetime=36_500 * DAY, details=details
    )
    other = factory.draft()._replace(
        handle="~" + "-_Aa9" * 8 + "xyz",
        prefix="\U0001f511" * 15,
        scheme=f"legacy:{'n' * 20}:django_bcrypt_sha256",
        digest=b"$2b$" + b"a/." * 83 + b"==",
        seal=f"01020304:{'0a' * 32}",
    )
    for draft in (ours, other):
        key = await store.insert(draft, None, NOW)
        await store.add_usage({draft.handle: Usage(2**40, NOW + 2**50)})
        await store.find(draft.handle)
        await store.update_if(key, changed(key), NOW)
        await store.update_if(changed(key), key, NOW)
        await store.find(draft.handle)
    await store.list("org_1", PAGE_AT_MOST)


@alone("K1", "keys")
async def a_missing_key_is_none(store: Store, factory: Factory) -> None:
    key = await store.insert(factory.draft(), None, NOW)
    for handle in ("........", key.id, key.handle.swapcase(), f"{key.handle} ", ""):
        await store.find(handle)
    for id in (key.handle, "no such id", key.id.upper(), ""):
        await store.get("org_1", id)
        await store.revoke_if_live("org_1", id, NOW)
    await store.list("org_2", PAGE_AT_MOST)
    await store.find(key.handle)


@alone("D3", "keys")
async def a_handle_is_taken_once(store: Store, factory: Factory) -> None:
    live = await store.insert(factory.draft(), None, NOW)
    revoked = await store.insert(factory.draft(), None, NOW)
    await store.revoke_if_live("org_1", revoked.id, NOW)
    expired = await store.insert(factory.draft(lifetime=1), None, NOW)
    for key in (live, revoked, expired):
        for organization in ("org_1", "org_2"):
            await taken(
                store, factory.draft(organization)._replace(handle=key.handle), None, NOW + 9
            )
        await store.find(key.handle)
    await store.list("org_1", PAGE_AT_MOST)
    await store.list("org_2", PAGE_AT_MOST)


@alone("K8", "keys")
async def the_cap_counts_live_keys_only(store: Store, factory: Factory) -> None:
    keys = [await store.insert(factory.draft(lifetime=t), 3, NOW) for t in (None, None, DAY)]
    await taken(store, factory.draft(), 3)
    await store.insert(factory.draft("org_2"), 3, NOW)
    await store.revoke_if_live("org_1", keys[0].id, NOW)
    await store.insert(factory.draft(), 3, NOW)
    await taken(store, factory.draft(), 3, NOW + DAY - 1)
    await store.insert(factory.draft(), 3, NOW + DAY)
    await taken(store, factory.draft(), 3, NOW + DAY)


@alone("K8", "keys")
async def a_key_that_is_revoked_and_expires_makes_room_once(store: Store, factory: Factory) -> None:
    first = await store.insert(factory.draft(lifetime=DAY), 2, NOW)
    await store.insert(factory.draft(), 2, NOW)
    await store.revoke_if_live("org_1", first.id, NOW)
    await store.revoke_if_live("org_1", first.id, NOW)
    await store.insert(factory.draft(), 2, NOW)
    await taken(store, factory.draft(), 2, NOW)
    await taken(store, factory.draft(), 2, NOW + 2 * DAY)


@alone("K8", "keys")
async def inserts_without_a_cap_count_for_later_caps(store: Store, factory: Factory) -> None:
    for _ in range(5):
        await store.insert(factory.draft(), None, NOW)
    await taken(store, factory.draft(), 5)
    await store.insert(factory.draft(), 6, NOW)


@alone("K8", "keys")
async def a_refused_insert_leaves_nothing(store: Store, factory: Factory) -> None:
    await store.insert(factory.draft(), 1, NOW)
    refused = factory.draft()
    await taken(store, refused, 1)
    await store.find(refused.handle)
    await store.get("org_1", refused.id)
    await store.list("org_1", PAGE_AT_MOST)
    await store.insert(refused, 2, NOW)


@alone("D10", "keys")
async def the_newest_is_listed_first(store: Store, factory: Factory) -> None:
    for step in (3, 0, 2, 2, 2, 1):
        lifetime = 1 if step == 1 else None
        await store.insert(factory.draft(lifetime=lifetime), None, NOW + step * SECOND)
    first, *_ = await store.list("org_1", PAGE_AT_MOST)
    await store.revoke_if_live("org_1", first.id, NOW + 4 * SECOND)
    await store.list("org_1", PAGE_AT_MOST)


@alone("D10", "keys")
async def within_a_millisecond_the_id_decides(store: Store, factory: Factory) -> None:
    start = NOW - NOW % 1000
    drafts = sorted((factory.draft() for _ in range(3)), key=lambda draft: draft.id, reverse=True)
    for draft, micros in zip(drafts, (0, 500, 999), strict=True):
        await store.insert(draft, None, start + micros)
    await store.list("org_1", PAGE_AT_MOST)


@alone("D10", "keys")
async def pages_miss_no_key_and_repeat_none(store: Store, factory: Factory) -> None:
    """Some keys share their creation or their end."""
    for step, lifetime in ((0, DAY), (1, None), (1, DAY), (1, None), (2, None), (3, SECOND)):
        await store.insert(factory.draft(lifetime=lifetime), None, NOW + step * SECOND)
    await store.insert(factory.draft("org_2"), None, NOW)
    for limit in (1, 2, 3, 6):
        after: Position | None = None
        while page := await store.list("org_1", limit, after):
            after = Position(page[-1].created_at, page[-1].id)
        after = None
        while page := await store.list_live("org_1", limit, after, NOW + 2 * SECOND):
            after = Position(page[-1].ends_at, page[-1].id)


@alone("D10", "keys")
async def live_keys_are_listed_without_ended_keys(store: Store, factory: Factory) -> None:
    lifetimes = (None, DAY, SECOND, None, DAY, SECOND)
    keys = [await store.insert(factory.draft(lifetime=t), None, NOW) for t in lifetimes]
    for key in keys[:3]:
        await store.revoke_if_live("org_1", key.id, NOW + 5)
    for step in (0, 5, SECOND - 1, SECOND, DAY, 0):
        await store.list_live("org_1", PAGE_AT_MOST, None, NOW + step)
        await store.list_live("org_1", 1, Position(NOW + DAY, keys[4].id), NOW + step)
    await store.list_live("org_2", PAGE_AT_MOST, None, NOW)


@alone("D10", "keys")
async def a_page_begins_where_a_key_was(store: Store, factory: Factory) -> None:
    """The last key of the previous page may have been revoked or removed since."""
    keys = [await store.insert(factory.draft(), None, NOW + step * SECOND) for step in range(5)]
    gone, kept = keys[2], keys[3]
    for key in (gone, kept):
        await store.revoke_if_live("org_1", key.id, NOW + 5 * SECOND + (key is kept) * DAY)
    after = Position(gone.created_at, gone.id)
    await store.list("org_1", 2, after)
    await store.list_live("org_1", 2, Position(gone.ends_at, gone.id), NOW)
    await store.remove_ended(DAY, NOW + DAY + 5 * SECOND)
    await store.list("org_1", 2, after)
    await store.list("org_1", PAGE_AT_MOST)


@alone("D45", "keys")
async def keys_that_ended_long_ago_are_removed_and_no_others(
    store: Store, factory: Factory
) -> None:
    """The earlier of revocation and expiry counts."""
    lifetimes = (None, 9 * DAY, DAY, 2 * DAY, DAY, 2 * DAY, 9 * DAY, None)
    keys = [await store.insert(factory.draft(lifetime=t), None, NOW) for t in lifetimes]
    await store.insert(factory.draft("org_2", lifetime=DAY), None, NOW)
    for key, step in ((keys[4], 3 * DAY), (keys[5], DAY), (keys[6], DAY), (keys[7], 2 * DAY)):
        await store.revoke_if_live("org_1", key.id, NOW + step)
    for now in (NOW + 11 * DAY - 1, NOW + 11 * DAY, NOW + 11 * DAY, NOW + 12 * DAY):
        await store.remove_ended(10 * DAY, now)
        await store.list("org_1", PAGE_AT_MOST)
        await store.list_live("org_1", PAGE_AT_MOST, None, NOW + 5 * DAY)
        await store.list("org_2", PAGE_AT_MOST)
        await store.census(NOW)
        for key in keys:
            await store.find(key.handle)
            await store.get("org_1", key.id)


@alone("D45", "keys")
async def no_verb_brings_a_removed_key_back(store: Store, factory: Factory) -> None:
    draft = factory.draft()
    await store.insert(draft, None, NOW)
    await store.add_usage({draft.handle: Usage(3, NOW)})
    await store.revoke_if_live("org_1", draft.id, NOW)
    await store.remove_ended(DAY, NOW + DAY)
    await store.add_usage({draft.handle: Usage(1, NOW)})
    await store.revoke_if_live("org_1", draft.id, NOW)
    await store.rehash_if(draft.handle, Digest(draft.scheme, draft.digest), OTHER)
    for organization in ("org_1", "org_2"):
        await taken(store, factory.draft(organization)._replace(handle=draft.handle), None)
    await store.find(draft.handle)
    await store.get("org_1", draft.id)
    await store.list("org_1", PAGE_AT_MOST)
    await store.insert(factory.draft(), 1, NOW)


@alone("D45", "keys")
async def many_ended_keys_are_removed_in_steps(store: Store, factory: Factory) -> None:
    for number in range(MANY):
        await store.insert(factory.draft(f"org_{number % 3}", lifetime=number + 1), None, NOW)
    await store.insert(factory.draft(), None, NOW)
    await store.remove_ended(DAY, NOW + DAY + 10)
    await store.list("org_1", PAGE_AT_MOST)
    await store.remove_ended(DAY, NOW + DAY + MANY)
    await store.list("org_1", PAGE_AT_MOST)


@alone("K6", "keys")
async def another_organizations_key_looks_like_no_key(store: Store, factory: Factory) -> None:
    key = await store.insert(factory.draft(), None, NOW)
    for stranger in ("org_2", "org_", "org_11", "ORG_1", "org_1 ", "org_1\0", "*", "%"):
        await store.get(stranger, key.id)
        await store.revoke_if_live(stranger, key.id, NOW)
        await store.list(stranger, PAGE_AT_MOST)
    await store.find(key.handle)


@alone("W8", "keys")
async def hostile_ids_have_separate_keys(store: Store, factory: Factory) -> None:
    drafts = [factory.draft(organization) for organization in HOSTILE]
    for draft in drafts:
        await store.insert(draft, 1, NOW)
    for draft in drafts:
        await store.list(draft.organization, PAGE_AT_MOST)
        await store.get(draft.organization, draft.id)
        await store.get(draft.organization, drafts[0].id)
        key = draft.created(NOW)
        await store.update_if(key, changed(key), NOW)
        await store.list(draft.organization, PAGE_AT_MOST)


@alone("D4", "keys")
async def revoking_again_keeps_the_first_time(store: Store, factory: Factory) -> None:
    key = await store.insert(factory.draft(), None, NOW)
    for step in (1, 2, -DAY, 1):
        await store.revoke_if_live("org_1", key.id, NOW + step)
    await store.find(key.handle)
    await store.list("org_1", PAGE_AT_MOST)


@alone("D4", "keys")
async def an_expired_key_can_still_be_revoked(store: Store, factory: Factory) -> None:
    key = await store.insert(factory.draft(lifetime=1), None, NOW)
    await store.revoke_if_live("org_1", key.id, NOW + DAY)
    await store.find(key.handle)


@alone("K9", "keys")
async def rehashing_replaces_the_digest_and_nothing_else(store: Store, factory: Factory) -> None:
    key = await store.insert(factory.draft(lifetime=DAY), None, NOW)
    old = Digest(key.scheme, key.digest)
    await store.add_usage({key.handle: Usage(3, NOW)})
    await store.rehash_if(key.handle, old._replace(scheme="md5"), OTHER)
    await store.rehash_if(key.handle, old._replace(value=bytes(32)), OTHER)
    await store.rehash_if("........", old, OTHER)
    await store.find(key.handle)
    await store.rehash_if(key.handle, old, OTHER)
    await store.rehash_if(key.handle, old, OTHER)
    await store.find(key.handle)


@alone("K9", "keys")
async def a_seal_is_replaced_only_if_it_is_the_expected_one(store: Store, factory: Factory) -> None:
    """The seal may be new, or replaced alone or with the digest."""
    key = await store.insert(factory.draft(lifetime=DAY), None, NOW)
    bare = key.kept
    seals = [bare._replace(seal=f"0102030{index}:{'ab' * 32}") for index in range(2)]
    for old, new in (
        (seals[0], bare),
        (bare, seals[0]),
        (bare, seals[1]),
        (seals[1], bare),
        (seals[0], seals[1]),
        (seals[0], OTHER),
        (seals[1], OTHER._replace(seal=seals[0].seal)),
        (OTHER, seals[0]),
    ):
        await store.rehash_if(key.handle, old, new)
        await store.find(key.handle)
        await store.census(NOW)


@alone("K3", "keys")
async def no_verb_undoes_a_revocation(store: Store, factory: Factory) -> None:
    key = await store.insert(factory.draft(lifetime=DAY), None, NOW)
    await store.find(key.handle)
    await store.revoke_if_live("org_1", key.id, NOW + 1)
    await store.rehash_if(key.handle, Digest(key.scheme, key.digest), OTHER)
    await store.find(key.handle)
    await store.add_usage({key.handle: Usage(1, NOW)})
    await store.find(key.handle)
    await taken(store, factory.draft()._replace(handle=key.handle), None)
    await store.get("org_1", key.id)


@alone("D43", "keys")
async def an_update_changes_a_live_key_and_neither_its_usage_nor_its_digest(
    store: Store, factory: Factory
) -> None:
    for lifetime in (None, 9 * DAY, SECOND):
        key = await store.insert(factory.draft(lifetime=lifetime), None, NOW)
        await store.add_usage({key.handle: Usage(3, NOW)})
        new = changed(key)
        await store.update_if(key, new, NOW + 1)
        for now in (NOW + 2, NOW + DAY):
            await store.find(key.handle)
            await store.get("org_1", key.id)
            await store.list("org_1", PAGE_AT_MOST)
            await store.list_live("org_1", PAGE_AT_MOST, None, now)
        await store.update_if(new, key._replace(expires_at=None), NOW + 2)
        await store.list_live("org_1", PAGE_AT_MOST, None, NOW + 10 * DAY)
    await store.census(NOW)


@alone("D43", "keys")
async def an_update_of_a_key_that_has_changed_changes_nothing(
    store: Store, factory: Factory
) -> None:
    key = await store.insert(factory.draft(lifetime=DAY), None, NOW)
    for other in (
        key._replace(name="another name"),
        key._replace(scopes=("jobs:read",)),
        key._replace(expires_at=None),
        key._replace(seal="01020304:ab"),
        key._replace(digest=bytes(32)),
        key._replace(details=KeyDetails(NOW, "another")),
        key._replace(organization="org_2"),
        key._replace(id="no such id"),
        key._replace(handle="........"),
    ):
        await store.update_if(other, changed(other), NOW)
        await store.find(key.handle)
    await store.update_if(key, changed(key), NOW)
    await store.update_if(key, changed(key), NOW)
    await store.list("org_2", PAGE_AT_MOST)


@alone("K3", "keys")
async def no_update_revives_a_key_that_ended(store: Store, factory: Factory) -> None:
    revoked = await store.insert(factory.draft(), None, NOW)
    expired = await store.insert(factory.draft(lifetime=DAY), None, NOW)
    at = await store.revoke_if_live("org_1", revoked.id, NOW + 1)
    assert at is not None
    for old in (revoked, at):
        await store.update_if(old, changed(revoked), NOW + 2)
        await store.rotate_if(old, changed(revoked), factory.draft(), None, NOW + 2)
    for now in (NOW + DAY, NOW + 2 * DAY):
        await store.update_if(expired, changed(expired)._replace(expires_at=None), now)
        await store.rotate_if(expired, changed(expired), factory.draft(), None, now)
    await store.list("org_1", PAGE_AT_MOST)
    await store.list_live("org_1", PAGE_AT_MOST, None, NOW)
    await store.update_if(expired, changed(expired), NOW + DAY - 1)
    await store.list("org_1", PAGE_AT_MOST)


@alone("D43", "keys")
async def a_rotation_adds_a_successor_and_gives_the_key_an_end(
    store: Store, factory: Factory
) -> None:
    key = await store.insert(factory.draft(), None, NOW)
    await store.add_usage({key.handle: Usage(3, NOW)})
    draft = factory.draft(lifetime=9 * DAY, scopes=("jobs:read",))
    await store.rotate_if(key, changed(key), draft, None, NOW + 1)
    for handle in (key.handle, draft.handle):
        await store.find(handle)
    again = factory.draft()
    await store.rotate_if(key, changed(key), again, None, NOW + 2)
    await store.find(again.handle)
    await store.insert(again, None, NOW + 2)
    await store.list("org_1", PAGE_AT_MOST)
    for now in (NOW + 3, NOW + DAY):
        await store.list_live("org_1", PAGE_AT_MOST, None, now)
    await store.remove_ended(DAY, NOW + 2 * DAY)
    await store.list("org_1", PAGE_AT_MOST)


@alone("K8", "keys")
async def a_rotation_exceeds_no_cap_and_a_key_that_ends_makes_room(
    store: Store, factory: Factory
) -> None:
    first = await store.insert(factory.draft(), 2, NOW)
    second = await store.insert(factory.draft(), 2, NOW)
    refused = factory.draft()
    answer: object = await store.rotate_if(first, changed(first), refused, 2, NOW)
    assert answer == Raised(KeyLimitReached.__name__)
    await store.find(first.handle)
    await store.find(refused.handle)
    await store.rotate_if(first, changed(first)._replace(expires_at=NOW), refused, 2, NOW)
    third = factory.draft()
    await store.rotate_if(second, second._replace(revoked_at=NOW), third, 2, NOW)
    last = await store.find(third.handle)
    assert last is not None
    await store.rotate_if(last, changed(last), factory.draft(), 3, NOW)
    await taken(store, factory.draft(), 3)
    await store.insert(factory.draft(), 3, NOW + DAY)
    await store.list("org_1", PAGE_AT_MOST)
    await store.remove_ended(DAY, NOW + DAY)
    await store.list("org_1", PAGE_AT_MOST)


@alone("D3", "keys")
async def a_rotation_to_a_handle_that_is_taken_changes_nothing(
    store: Store, factory: Factory
) -> None:
    key = await store.insert(factory.draft(), None, NOW)
    for organization in ("org_1", "org_2"):
        other = await store.insert(factory.draft(organization), None, NOW)
        draft = factory.draft()._replace(handle=other.handle)
        answer: object = await store.rotate_if(key, changed(key), draft, None, NOW)
        assert answer == Raised(HandleTaken.__name__)
        await store.find(key.handle)
        await store.list(organization, PAGE_AT_MOST)


@alone("K7", "usage")
async def usage_adds_up_and_the_last_use_never_moves_back(store: Store, factory: Factory) -> None:
    one = await store.insert(factory.draft(), None, NOW)
    two = await store.insert(factory.draft("org_2"), None, NOW)
    await store.add_usage({one.handle: Usage(2, NOW + 5), two.handle: Usage(1, NOW)})
    await store.add_usage({one.handle: Usage(3, NOW + 1)})
    await store.add_usage({})
    await store.find(one.handle)
    await store.get("org_2", two.id)


@alone("K7", "usage")
async def usage_of_unknown_handles_is_ignored_and_other_usage_is_kept(
    store: Store, factory: Factory
) -> None:
    key, later = await store.insert(factory.draft(), None, NOW), factory.draft()
    await store.add_usage(
        {"nowhere1": Usage(9, NOW), key.handle: Usage(1, NOW), later.handle: Usage(1, NOW)}
    )
    await store.find(key.handle)
    await store.find(later.handle)
    await store.insert(later, None, NOW)
    await store.find(later.handle)


@alone("K7", "usage")
async def a_repeated_batch_of_usage_counts_once(store: Store, factory: Factory) -> None:
    """After a lost reply a writer repeats its batch; late repetitions come from abandoned calls."""
    one = await store.insert(factory.draft(), None, NOW)
    two = await store.insert(factory.draft("org_2"), None, NOW)
    first, second = "0123456789abcdef", "0123456789ABCDEF"
    usage = {one.handle: Usage(2, NOW + 5), two.handle: Usage(1, NOW), "nowhere1": Usage(1, NOW)}
    for writer, number in (
        *((first, 1), (first, 1), (second, 1), (first, 1), (second, 1)),
        *((first, 2), (first, 1), (first, 10), (first, 9), (second, 2), (first, 10)),
    ):
        await store.add_usage(usage, UsageBatch(writer, number))
        await store.find(one.handle)
        await store.find(two.handle)
    await store.add_usage(usage)
    await store.find(one.handle)


@alone("K9", "keys")
async def the_census_counts_live_keys_by_scheme(store: Store, factory: Factory) -> None:
    await store.census(NOW)
    for scheme, lifetime in (("a", None), ("a", DAY), ("b", None), ("b", 1), ("c", None)):
        await store.insert(factory.draft(lifetime=lifetime)._replace(scheme=scheme), None, NOW)
    for key in await store.list("org_1", PAGE_AT_MOST):
        if key.scheme == "c":
            await store.revoke_if_live("org_1", key.id, NOW)
    await store.census(NOW + 1)
    await store.census(NOW + DAY)


CHECKS: tuple[Check, ...] = (
    an_inserted_key_is_found_by_handle_by_id_and_in_the_list,
    a_key_of_another_system_keeps_its_history,
    the_longest_key_record_is_kept_whole,
    a_missing_key_is_none,
    a_handle_is_taken_once,
    another_organizations_key_looks_like_no_key,
    hostile_ids_have_separate_keys,
    the_newest_is_listed_first,
    within_a_millisecond_the_id_decides,
    pages_miss_no_key_and_repeat_none,
    live_keys_are_listed_without_ended_keys,
    a_page_begins_where_a_key_was,
    keys_that_ended_long_ago_are_removed_and_no_others,
    no_verb_brings_a_removed_key_back,
    many_ended_keys_are_removed_in_steps,
    the_cap_counts_live_keys_only,
    a_key_that_is_revoked_and_expires_makes_room_once,
    inserts_without_a_cap_count_for_later_caps,
    a_refused_insert_leaves_nothing,
    revoking_again_keeps_the_first_time,
    an_expired_key_can_still_be_revoked,
    no_verb_undoes_a_revocation,
    an_update_changes_a_live_key_and_neither_its_usage_nor_its_digest,
    an_update_of_a_key_that_has_changed_changes_nothing,
    no_update_revives_a_key_that_ended,
    a_rotation_adds_a_successor_and_gives_the_key_an_end,
    a_rotation_exceeds_no_cap_and_a_key_that_ends_makes_room,
    a_rotation_to_a_handle_that_is_taken_changes_nothing,
    rehashing_replaces_the_digest_and_nothing_else,
    a_seal_is_replaced_only_if_it_is_the_expected_one,
    usage_adds_up_and_the_last_use_never_moves_back,
    usage_of_unknown_handles_is_ignored_and_other_usage_is_kept,
    a_repeated_batch_of_usage_counts_once,
    the_census_counts_live_keys_by_scheme,
)
