"""Stores with one mistake each in keys: their rows, their secrets, their lists, their removal."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from lockgate.core.api_keys import ApiKey, KeyDetails, KeyState
from lockgate.core.key_format import Token
from lockgate.core.ledger import Hit
from lockgate.core.temporary_limits import told_apart
from lockgate.core.timestamps import SECOND
from lockgate.errors import KeyLimitReached
from lockgate.stores.answers import UNKNOWN, Admission, FoundKeys, Freshness, Removal, Rows, Verdict
from lockgate.stores.base import PAGE_AT_MOST

from .mutants import AHEAD, Call, How, by_host, gap, several, unheard, wrong

END = "\U0010ffff"


def _draft(change: Callable[[Any], dict[str, Any]]) -> How:
    return lambda call: call(draft=call.draft._replace(**change(call.draft)))


# What is kept of a key.
several(
    {
        "cuts_names_at_64": ("K1", "insert", _draft(lambda one: {"name": one.name[:64]})),
        "cuts_digests_at_64": ("K1", "insert", _draft(lambda one: {"digest": one.digest[:64]})),
        "cuts_handles_at_32": ("K1", "insert", _draft(lambda one: {"handle": one.handle[:32]})),
        "ends_in_2038": (
            "K1",
            "insert",
            _draft(
                lambda one: {"expires_at": one.expires_at and min(one.expires_at, 2**31 * SECOND)}
            ),
        ),
        "keeps_scopes_as_a_set": (
            "K1",
            "insert",
            _draft(lambda one: {"scopes": tuple(sorted(one.scopes))}),
        ),
        "drops_the_history_of_drafts": ("K1", "insert", _draft(lambda _: {"history": None})),
        "drops_the_details_of_drafts": ("K1 D43", "insert", _draft(lambda _: {"details": None})),
        # As the driver of the database gives sums.
        "counts_in_decimals": (
            "W14",
            "get",
            lambda call: call.then(
                lambda key: key and key._replace(request_count=Decimal(key.request_count))
            ),
        ),
    }
)


# Caps, revocations, updates and rotations.
@wrong("K8", "insert")
async def counts_keys_and_then_inserts(call: Call) -> Any:
    keys = call.store._keys.all(call.draft.organization)
    live = [key for key in keys if key.state(call.at) is KeyState.ACTIVE]
    if call.cap is not None and len(live) >= call.cap:
        raise KeyLimitReached(call.cap)
    gap()
    return await call(cap=None)


@wrong("D4 K8 K1", "revoke_if_live")
async def revokes_once_more(call: Call) -> Any:
    """At a new time."""
    key = await call()
    if key is None:
        return None
    call.store._rows[key.handle] = (*key[:11], call.at, key.details)
    return await call.store.find(key.handle)


@wrong("D43 K3", "update_if")
async def updates_whatever_is_there(call: Call) -> Any:
    found = await call.store.find(call.old.handle)
    return found is not None and await call(old=found)


@wrong("K3", "update_if")
def updates_an_expired_key(call: Call) -> Any:
    expires_at = call.old.expires_at
    return call(now=call.at if expires_at is None else min(call.at, expires_at - 1))


@wrong("D43 D3 K8 K3", "rotate_if")
async def inserts_the_successor_before_it_looks(call: Call) -> Any:
    made = await call.store.insert(call.successor, call.cap, call.now)
    return made if await call.store.update_if(call.old, call.new, call.now) else None


@wrong("D43 W3", "rotate_if")
async def rotates_unlocked(call: Call) -> Any:
    """Compares the key, and then writes both rows without comparing again."""
    store, old = call.store, call.old
    present = await store.find(old.handle)
    if present is None or present[:-2] != old[:-2] or old.state(call.at) is not KeyState.ACTIVE:
        return await call()
    gap()
    made = await store.insert(call.successor, call.cap, call.now, change=call.change)
    with store._lock:
        found = store._keys.key(old.handle)
        store._keys.replace(found, ApiKey(*call.new[:-2], *found[-2:]))
        store.local_version = object()
    return made


@wrong("D43 K8", "rotate_if")
async def rotates_by_two_commits(call: Call) -> Any:
    """Updates the old key, and then inserts its successor."""
    if not await call.store.update_if(call.old, call.new, call.now, change=call.change):
        return None
    return await call.store.insert(call.successor, call.cap, call.now)


several(
    {
        "rotates_beyond_the_cap": ("K8", "rotate_if", lambda call: call(cap=None)),
        "caps_128_keys": (
            "K8 D10",
            "insert",
            lambda call: call(cap=call.cap if (call.cap or 0) <= 128 else None),
        ),
        "caps_a_page_of_keys": (
            "K8",
            "insert",
            lambda call: call(cap=None if (call.cap or 0) > PAGE_AT_MOST else call.cap),
        ),
    }
)


# Digests and seals.
class Trusting(Token):
    """Accepts every row with a matching digest."""

    def __init__(self, token: Token) -> None:
        super().__init__(token.handle, token._secret, token._peppers)
        self.told = token

    def matches(self, scheme: str, digest: bytes) -> bool:
        return self.told.matches(scheme, digest)

    def seal_is_valid(self, row: object) -> bool:
        return True


several(
    {
        "compares_no_seal": ("K1", "admit", lambda call: call(token=Trusting(call.token))),
        "leaves_the_seal_of_the_digest_before": (
            "K9",
            "rehash_if",
            lambda call: call(new=call.new._replace(seal=call.old.seal)),
        ),
    }
)


@wrong("K3 K9", "rehash_if")
async def revives_by_a_rehash(call: Call) -> Any:
    """Writes a fresh row for a fresh digest."""
    done, rows = await call(), call.store._rows
    if done:
        rows[call.handle] = (*rows[call.handle][:11], None, None)
    return done


@wrong("K9", "rehash_if")
def rehashes_under_any_seal(call: Call) -> Any:
    row = call.store._rows.get(call.handle)
    seal = None if row is None else row[8]
    return call(old=call.old._replace(seal=seal), known=None)


@wrong("D43 K3 K7 K9", "rehash_if", parts=("keys",))
async def compares_the_digest_and_writes_the_row(call: Call) -> Any:
    """That it compared, over what others have changed since."""
    row, rows = call.store._rows.get(call.handle), call.store._rows
    gap()
    done = await call()
    if done and row is not None:
        with call.store._lock:
            rows[call.handle] = (*row[:6], *rows[call.handle][6:9], *row[9:])
    return done


# What is remembered of keys.
@wrong("K1", "find", "admit")
async def remembers_a_good_seal(call: Call) -> Any:
    good = call.store.seen
    if "handle" in call:
        key, before = await call(), good.get(call.handle)
        if key is None or before is None or key.kept[:2] != before.kept[:2]:
            return key
        return key._replace(seal=before.seal)
    admission = await call()
    if admission.verdict is Verdict.ADMITTED:
        good[call.token.handle] = admission.key
    return admission


@wrong("D43 K1", "find", "admit")
async def remembers_the_first_details(call: Call) -> Any:
    """Looks at the allow-list that a key had when it was first admitted."""
    seen, answer = call.store.seen, await call()
    if "handle" in call:
        return answer and answer._replace(details=seen.get(call.handle, answer.details))
    if answer.verdict is Verdict.ADMITTED:
        seen.setdefault(call.token.handle, answer.key.details)
    return answer


@wrong("K4", "find", "admit", "revoke_if_live")
async def remembers_keys_until_one_is_revoked(call: Call) -> Any:
    """A revocation makes it ask again, a claim does not."""
    good = call.store.seen
    if "id" in call:
        with call.store._lock:
            good.clear()
        revoked = await call()
        good.clear()
        return revoked
    answer = await call()
    if "handle" in call:
        return answer._replace(revoked_at=None) if answer and call.handle in good else answer
    if answer.verdict is Verdict.ADMITTED:
        good[call.token.handle] = answer.key
    return answer


@wrong("K9", "admit")
async def remembers_secrets(call: Call) -> Any:
    """Compares the secret of a key once."""
    rows, proven, handle = call.store._rows, call.store.seen, call.token.handle
    row = rows.get(handle)
    if row is None or handle not in proven:
        admission = await call()
        if admission.verdict is Verdict.ADMITTED and row is not None:
            proven[handle] = row[6:9]
        return admission
    rows[handle] = (*row[:6], *proven[handle], *row[9:])
    try:
        return await call()
    finally:
        rows[handle] = (*rows[handle][:6], *row[6:9], *rows[handle][9:])


@wrong("K1", "admit")
async def remembers_strangers(call: Call) -> Any:
    """Misses the later insertion of a handle that was unknown."""
    handle = call.token.handle
    if handle not in call.store._rows:
        call.store.seen[handle] = True
    return UNKNOWN if handle in call.store.seen else await call()


async def _cached(call: Call) -> Any:
    cache, keys = call.store.seen, call.store._keys
    if "handle" not in call or "new" in call:  # A revocation, or a rehash.
        done = await call()
        handle = call.handle if "handle" in call else done and done.handle
        cache.pop(handle, None)
        return done
    if call.handle in cache and call.handle in call.store._rows:
        return ApiKey(*cache[call.handle][:-2], *keys.key(call.handle)[-2:])
    key = await call()
    gap()
    if key is not None:
        cache[call.handle] = key
    return key


several(
    {
        # A revocation clears the cache, and a concurrent reader fills it with the old record.
        "fills_its_cache_late": ("K5 K4 K3", "find rehash_if revoke_if_live", _cached),
        "clears_its_cache_never": ("K1 K3 K4 D4 K9 K8", "find rehash_if", _cached),
    }
)


# Admissions.
class AllAddresses(KeyDetails):
    """Details that allow every client."""

    def allows(self, address: str | None) -> bool:
        return True


@wrong("K1 D43", "find")
async def admits_from_everywhere(call: Call) -> Any:
    """Keeps the allow-list of a key."""
    key = await call()
    if key is None or key.details is None or not key.addresses:
        return key
    return key._replace(details=AllAddresses(*key.details))


@wrong("K1 W7 D43", "admit")
async def looks_at_allow_lists_after_the_windows(call: Call) -> Any:
    admission, store = await call(), call.store
    if admission.verdict is Verdict.ELSEWHERE:
        organization = admission.key.organization
        at = await store.now() if call.now is None else call.now
        plan = call.plans.plan_of(await store.organization(organization), at)
        await store.charge(organization, Hit(plan.windows, call.cost), call.now)
    return admission


@wrong("W13", "organization")
async def keeps_temporary_limits(call: Call) -> Any:
    """Takes one for a limit that holds until it is changed."""
    found = await call()
    if found is None:
        return found
    own, temporary = told_apart(found.overrides)
    own |= {name: limit for name, (limit, _) in temporary.items()}
    return found._replace(overrides=tuple(sorted(own.items())))


@wrong("W12", "admit")
async def judges_keys_by_the_host(call: Call) -> Any:
    """Charges by the server's clock."""
    key = await call.store.find(call.token.handle)
    ahead = call.store.at(None) + AHEAD
    if call.now is None and key is not None and key.state(ahead) is KeyState.EXPIRED:
        return Admission(Verdict.EXPIRED, key)
    return await call()


# Whether a key exists shows by the work that is done.
@wrong("K10", "admit")
async def answers_at_once_without_a_key(call: Call) -> Any:
    is_unknown = "lease" not in call and await call.store.find(call.token.handle) is None
    return UNKNOWN if is_unknown else await call()


@wrong("K10", "admit")
async def answers_at_once_without_a_key_where_a_lease_is_asked_for(call: Call) -> Any:
    is_unknown = "lease" in call and await call.store.find(call.token.handle) is None
    return UNKNOWN if is_unknown else await call()


@wrong("K10 K1", "admit")
async def compares_with_the_dummy_once(call: Call) -> Any:
    handle, unknown = call.token.handle, call.store.seen
    if handle in unknown and await call.store.find(handle) is None:
        return UNKNOWN
    admission = await call()
    if await call.store.find(handle) is None:
        unknown[handle] = True
    return admission


@wrong("K10", "admit")
async def refuses_removed_keys_at_once(call: Call) -> Any:
    handle = call.token.handle
    is_removed = await call.store.find(handle) is None and call.store._keys.is_taken(handle)
    return UNKNOWN if is_removed else await call()


@wrong("K10", "admit")
async def compares_once_for_all_concurrent_callers(call: Call) -> Any:
    """With a handle that no key has."""
    handle, asking = call.token.handle, call.store.seen
    if handle in asking:
        return UNKNOWN
    if await call.store.find(handle) is not None:
        return await call()
    asking[handle] = True
    gap()
    try:
        return await call()
    finally:
        asking.pop(handle, None)


@wrong("K10", "admit")
async def finds_keys_by_their_digest(call: Call) -> Any:
    """A wrong secret is a row that is not found."""
    key, fresh = await call.store.find(call.token.handle), call.token.fresh_digest()
    is_wrong = key is not None and fresh is not None and fresh.value != key.digest
    return UNKNOWN if is_wrong else await call()


# Whether other processes hear of a change.
several(
    {
        "updates_unheard": ("D5", "update_if", unheard()),
        "rotates_unheard": ("D5", "rotate_if", unheard()),
        "removes_unheard": ("D5", "remove_ended", unheard()),
        "places_unheard": ("D5", "put_organization", unheard()),
    }
)


@wrong("D5", "freshness", "revoke_if_live")
async def counts_revocations_as_changes(call: Call) -> Any:
    """By the one verb that is called so; a claim revokes as well."""
    store = call.store
    if "id" in call:
        store.seen["moves"] = store.seen.get("moves", 0) + 1
        return await call()
    return Freshness(store.seen.get("moves", 0) + len(store._placed), await store.now())


@wrong("D5", "freshness", "put_organization", "rehash_if", "revoke_if_live", "claim_if_unclaimed")
async def counts_a_claim_when_it_is_won(call: Call) -> Any:
    """And not when its winner revokes all later."""
    store = call.store
    if "user" in call:
        account = await store.account(call.organization)
        is_change = account is not None and account.claimed_by is None
    else:
        is_change = "organization" in call or "handle" in call
    moves = store.seen["moves"] = store.seen.get("moves", 0) + is_change
    is_asked = not ("organization" in call or "handle" in call)
    return Freshness(moves, await store.now()) if is_asked else await call()


# Lists.
@wrong("K6 W8", "list")
async def lists_by_prefix(call: Call) -> Any:
    """Whatever belongs to an id that begins like this one."""
    rows = call.store._rows.items()
    begin = call.organization
    keys = [call.store._keys.key(handle) for handle, row in rows if row[2].startswith(begin)]
    return sorted(keys, key=lambda key: (-key.created_at, key.id))[: call.limit]


@wrong("K6 K1 W8", "get")
async def gets_for_any_organization(call: Call) -> Any:
    handle = call.store._keys.handles_by_id.get(call.id)
    return None if handle is None else await call.store.find(handle)


@wrong("D10", "list")
def begins_anew_after_a_key_that_is_gone(call: Call) -> Any:
    is_gone = call.after is not None and call.after.id not in call.store._keys.handles_by_id
    return call(after=None if is_gone else call.after)


@wrong("D10", "list_live")
async def lists_live_keys_by_creation(call: Call) -> Any:
    keys = await call.store.list(call.organization, PAGE_AT_MOST, call.after)
    return [key for key in keys if key.state(call.at) is KeyState.ACTIVE][: call.limit]


@wrong("D10", "list_live")
async def lists_two_pages_of_live_keys(call: Call) -> Any:
    if call.after is None:
        return await call()
    first = await call(limit=2 * PAGE_AT_MOST, after=None)
    page = await call()
    return page if len(first) < 2 * PAGE_AT_MOST else [key for key in page if key in first]


@wrong("K1", "search")
async def searches_any_case(call: Call) -> Any:
    """Compares handles as a case-insensitive collation does."""
    rows = await call.store.scan(call.cursor, 100)
    if call.wanted.handle is None:
        return await call()
    start = call.wanted.handle.lower()
    keys = [key for key in rows.keys if key.handle.lower().startswith(start)]
    return FoundKeys(keys, rows.cursor)


@wrong("K1", "search")
async def searches_a_hundred_keys(call: Call) -> Any:
    """Reads a page of a hundred keys, and takes it for all of them."""
    rows, found = await call.store.scan(call.cursor, 100), await call()
    return found if rows.cursor is None else FoundKeys(found.keys[:100], None)


@wrong("K1", "search")
async def searches_a_thousand_keys(call: Call) -> Any:
    found, looked_at = await call(), await call.store.scan(call.cursor, PAGE_AT_MOST)
    return found if len(looked_at.keys) < PAGE_AT_MOST else found._replace(cursor=None)


@wrong("K9", "census")
async def counts_one_step_of_hundreds_of_keys(call: Call) -> Any:
    step = await call()
    return step if sum(step.counts.values()) < 500 else step._replace(cursor=None)


several(
    {
        "lists_without_a_limit": ("D10", "list", lambda call: call(limit=PAGE_AT_MOST)),
        # Keys of the same instant are on no page.
        "pages_by_the_instant": (
            "D10",
            "list",
            lambda call: call(after=call.after and call.after._replace(id="~")),
        ),
        "lists_expired_keys_as_live": ("D10", "list_live", lambda call: call(now=0)),
        "lists_live_keys_by_the_host": ("W12", "list_live", by_host()),
        "takes_a_census_by_the_host": ("W12", "census", by_host()),
        "scans_one_page": (
            "K9",
            "scan",
            lambda call: call.then(
                lambda rows: Rows(rows.keys[: call.limit], rows.accounts[: call.limit], None)
            ),
        ),
        "searches_one_page": (
            "K1",
            "search",
            lambda call: call.then(lambda found: FoundKeys(found.keys[: call.limit], None)),
        ),
    }
)
several(
    {
        "lists_a_hundred_keys": ("D10", "list", lambda call: call(limit=min(call.limit, 100))),
        "lists_a_hundred_live_keys": (
            "D10",
            "list_live",
            lambda call: call(limit=min(call.limit, 100)),
        ),
    },
    parts=("keys",),
)


# Removal.
@wrong("D45", "remove_ended")
async def forgets_the_handles_of_removed_keys(call: Call) -> Any:
    removal = await call()
    call.store._keys.removed.clear()
    return removal


@wrong("D45 K1", "remove_ended")
async def removes_by_the_revocation_of_an_expired_key(call: Call) -> Any:
    until = call.at - call.age
    keys = map(call.store._keys.key, [*call.store._rows])
    if any(key.ends_at <= until < (key.revoked_at or 0) for key in keys):
        return Removal(0, None)
    return await call()


@wrong("D45", "remove_ended")
async def lists_due_keys_and_then_removes_them(call: Call) -> Any:
    """Returns the number that it has listed."""
    store, until = call.store, call.at - call.age
    with store._lock:
        due = sum(store._keys.key(handle).ends_at <= until for handle in store._rows)
    gap()
    removal = await call()
    return removal._replace(removed=0 if call.cursor else max(due, removal.removed))


@wrong("D45", "remove_ended")
async def removes_all_keys_in_one_step(call: Call) -> Any:
    removed, cursor = 0, call.cursor
    while True:
        step = await call(cursor=cursor)
        removed, cursor = removed + step.removed, step.cursor
        if cursor is None:
            return Removal(removed, None)


several(
    {
        "removes_keys_at_once": ("D45 D10 K1", "remove_ended", lambda call: call(age=0)),
        "removes_keys_by_the_host": ("W12", "remove_ended", by_host()),
        "ends_a_removal_after_one_step": (
            "D10 D45",
            "remove_ended",
            lambda call: call.then(lambda removal: removal._replace(cursor=None)),
        ),
    }
)
