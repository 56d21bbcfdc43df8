"""A check with an organization of 5,000 keys, in each operation that touches many of them."""

from collections.abc import Callable, Sequence
from secrets import token_hex
from typing import Any, Final

from ...core.accounts import Account
from ...core.api_keys import ApiKey, Position
from ...core.key_search import KeySearch
from ...core.row_seals import counted_account, counted_key, tally
from ...core.timestamps import DAY, HOUR, MILLISECOND
from ...errors import HandleTaken, KeyLimitReached
from ...stores.base import PAGE_AT_MOST, Store
from ...stores.key_value import RecordStore
from ...stores.rows import Commit, Write
from ..factories import NOW, Factory
from ..guarantees import Broken
from .check import Check

KEYS: Final = 5_000
"""More than a store reads, writes or removes at once."""
INSERTED: Final = 2_100
"""The keys where each is an insertion of its own, or a record of all keys is written anew."""
_WRITTEN_AT_ONCE: Final = 100
_EXPIRED: Final = 10
"""One key in so many expires after an hour."""
LATER: Final = NOW + 2 * HOUR


async def thousands_of_keys_are_read_counted_ended_and_removed(store: Store) -> None:
    """Each step of a walk is bounded; the number of steps follows that of the keys."""
    factory = Factory()
    account, keys = await _filled(store, factory, "org_1")
    _, unused = await _filled(store, factory, "org_2")
    live = [key for key in keys if key.ends_at > LATER]
    await _see_lists(store, keys, live)
    await _see_walks(store, account, keys, live, unused)
    await _see_the_cap(store, factory, len(live))
    await _see_the_claim(store, keys, live)
    await _see_the_removals(store, factory, keys, unused)


async def _filled(
    store: Store, factory: Factory, organization: str
) -> tuple[Account, Sequence[ApiKey]]:
    """Register an organization and fill it with keys; return the account and all keys."""
    number = INSERTED if isinstance(store, RecordStore) else KEYS
    account, first = await store.register(
        factory.account(organization), factory.draft(organization), NOW
    )
    drafts = [
        factory.draft(organization, lifetime=None if place % _EXPIRED else HOUR)
        for place in range(number - 1)
    ]
    keys = [first]
    for place in range(0, len(drafts), _WRITTEN_AT_ONCE):
        some = drafts[place : place + _WRITTEN_AT_ONCE]
        at = NOW + place % 700 * MILLISECOND
        made = [draft.created(at) for draft in some]
        writes = tuple(Write(None, None, key) for key in made)
        outcome = await store.commit(Commit(organization, token_hex(8), writes), at)
        _see(outcome.verdict == "done", "K8", f"{len(made)} new keys are {outcome.verdict}.")
        keys += made
    return account, keys


async def _see_lists(store: Store, keys: Sequence[ApiKey], live: Sequence[ApiKey]) -> None:
    newest = sorted(keys, key=lambda key: (-key.created_at, key.id))
    after, listed = None, list[ApiKey]()
    while page := await store.list("org_1", PAGE_AT_MOST, after):
        listed += page
        after = Position(page[-1].created_at, page[-1].id)
    _see(listed == newest, "D10", f"Of {len(keys)} keys {len(listed)} are listed, or out of order.")
    latest = sorted(live, key=lambda key: (key.ends_at, key.id), reverse=True)
    after, listed = None, list[ApiKey]()
    while page := await store.list_live("org_1", PAGE_AT_MOST, after, LATER):
        listed += page
        after = Position(page[-1].ends_at, page[-1].id)
    said = f"Of {len(live)} live keys {len(listed)} are listed, or out of order."
    _see(listed == latest, "D10", said)


async def _see_walks(
    store: Store,
    account: Account,
    keys: Sequence[ApiKey],
    live: Sequence[ApiKey],
    others: Sequence[ApiKey],
) -> None:
    steps = await _steps(lambda cursor: store.census(LATER, cursor))
    counted: dict[str, int] = {}
    for step in steps:
        for scheme, number in step.counts.items():
            counted[scheme] = counted.get(scheme, 0) + number
    every = [key for key in (*keys, *others) if key.ends_at > LATER]
    right = tally([*map(counted_key, every), *[counted_account(account)] * 2])
    _see(counted == right, "K9", f"The census is {counted} where {dict(right)} is right.")
    wanted = {key.id for key in keys if key.handle.startswith("A")}
    searched = await _steps(lambda cursor: store.search(KeySearch(handle="A"), 100, cursor))
    found = {key.id for step in searched for key in step.keys if key.organization == "org_1"}
    _see(found == wanted, "K1", f"A search finds {len(found)} keys of {len(wanted)}.")
    summaries = await _steps(lambda cursor: store.organizations(100, LATER, cursor))
    numbers = {one.id: one.live_keys for step in summaries for one in step.organizations}
    said = f"The live keys of organizations are {numbers}, and {len(live)} are right for each."
    _see(numbers == {"org_1": len(live), "org_2": len(live)}, "D25", said)


async def _see_the_cap(store: Store, factory: Factory, live: int) -> None:
    """The cap counts live keys; a key inserted beyond it is revoked and removed again."""
    for cap in (live, live + 1):
        try:
            key = await store.insert(factory.draft(), cap, LATER)
        except KeyLimitReached:
            _see(cap == live, "K8", f"{live} live keys reach a cap of {cap}.")
            continue
        _see(cap > live, "K8", f"A key was inserted beside {live} live ones; the cap is {cap}.")
        await store.revoke_if_live("org_1", key.id, LATER)


async def _see_the_claim(store: Store, keys: Sequence[ApiKey], live: Sequence[ApiKey]) -> None:
    at = LATER + 1
    claimed = await store.claim_if_unclaimed("org_1", "ada", revoke=True, keep_token=False, now=at)
    _see(claimed is not None and claimed.claimed_by == "ada", "R3", f"A claim told {claimed!r}.")
    left = await store.list_live("org_1", PAGE_AT_MOST, None, at)
    _see(not left, "K4", f"{len(left)} live keys are listed after a claim that revokes all.")
    for key in (*live[:3], *live[-3:], live[len(live) // 2]):
        found = await store.find(key.handle)
        revoked = found is not None and found.revoked_at == at
        _see(revoked, "K4", f"A claim that revokes all at {at} left {found!r}.")
    expired = await store.find(next(key.handle for key in keys if key.expires_at is not None))
    kept = expired is not None and expired.revoked_at is None
    _see(kept, "D4", f"A claim revoked a key that had expired: {expired!r}.")


async def _see_the_removals(
    store: Store, factory: Factory, keys: Sequence[ApiKey], unused: Sequence[ApiKey]
) -> None:
    late = LATER + 2 * DAY
    gone = await store.remove_unclaimed(DAY, 10, late)
    _see(gone == ("org_2",), "D46", f"Unused was org_2, and removed are {gone}.")
    steps = await _steps(lambda cursor: store.remove_ended(DAY, late, cursor))
    removed, most = sum(step.removed for step in steps), max(step.removed for step in steps)
    ended = len(keys) + 1
    _see(removed == ended, "D45", f"{ended} keys were due, and {removed} were removed.")
    _see(most <= PAGE_AT_MOST, "D45", f"One step of a walk removed {most} keys.")
    for organization, removed_keys in (("org_1", keys), ("org_2", unused)):
        left = await store.list(organization, PAGE_AT_MOST)
        _see(not left, "D45", f"{len(left)} removed keys of {organization} are listed.")
        for key in (removed_keys[0], removed_keys[-1], removed_keys[len(removed_keys) // 2]):
            found = await store.find(key.handle)
            _see(found is None, "D45", f"A removed key is found: {found!r}.")
            draft = factory.draft("org_3")._replace(handle=key.handle)
            try:
                await store.insert(draft, None, late)
            except HandleTaken:
                continue
            raise Broken("D45", "The handle of a removed key was given again.")


async def _steps(step: Callable[[str | None], Any]) -> list[Any]:
    """Make a whole walk, and return its steps."""
    steps = [await step(None)]
    while steps[-1].cursor is not None:
        steps.append(await step(steps[-1].cursor))
        _see(len(steps) < KEYS, "G4", f"A walk did not end after {len(steps)} steps.")
    return steps


def _see(kept: bool, sentence: str, said: str) -> None:
    if not kept:
        raise Broken(sentence, said)


_thousands = thousands_of_keys_are_read_counted_ended_and_removed
CHECKS: tuple[Check, ...] = (
    Check("D45", "admission", _thousands.__name__, crowded=False, of=_thousands),
)
