"""The methods of a key store: what ``read``, ``commit`` and ``walk`` promise beside the operations
that the directory composes of them."""

from collections.abc import Callable, Coroutine, Iterable, Sequence
from itertools import count
from typing import Any, Final, TypeAlias, TypeVar, cast

from ...core.accounts import Account
from ...core.api_keys import ApiKey, KeyHistory, Position
from ...core.changes import Change, ChangeDraft, drafted_change
from ...core.key_search import KeySearch
from ...core.plans import Organization
from ...core.timestamps import DAY, HOUR, MILLISECOND
from ...errors import HandleTaken, KeyLimitReached
from ...stores.answers import OrganizationSummary
from ...stores.base import PAGE_AT_MOST, Store
from ...stores.directory import Directory
from ...stores.rows import (
    ACCOUNT,
    ACCOUNT_BY_TOKEN,
    ACCOUNTS_BY_EMAIL,
    ACCOUNTS_BY_USER,
    KEY_BY_HANDLE,
    KEY_BY_ID,
    KEYS_BY_CREATION,
    KEYS_BY_END,
    LOG,
    PLAN,
    REMOVED_AT_MOST,
    STAMP,
    Commit,
    Ended,
    Index,
    Outcome,
    Read,
    Row,
    Summaries,
    Unused,
    Walk,
    Wanted,
    Write,
)
from ..factories import NOW, Factory
from ..guarantees import Broken
from .accounts import EMAIL
from .callers import Callers
from .check import Check, crowded

RowT = TypeVar("RowT", ApiKey, Account, Organization)
AnyT = TypeVar("AnyT", ApiKey, Account, Organization, Change)
Script: TypeAlias = Callable[[Directory, Factory], Coroutine[Any, Any, None]]

OWNER: Final = "org_1"
_STEPS_AT_MOST: Final = 1_000


def rows(sentence: str) -> Callable[[Script], Check]:
    """Make a check of a key store's methods, with one caller."""

    def make(script: Script) -> Check:
        async def of(store: Store) -> None:
            try:
                await script(cast(Directory, store), Factory())
            except (HandleTaken, KeyLimitReached) as error:
                said = f"An operation that has nothing against it raised {type(error).__name__}."
                raise Broken(sentence, said) from error

        return Check(sentence, "rows", script.__name__, False, of)

    return make


def see(sentence: str, found: object, expected: object, what: str) -> None:
    """Raise Broken unless a value is the expected one."""
    if found != expected:
        raise Broken(sentence, f"{what} {found!r} where {expected!r} is right.")


async def _done(store: Directory, commit: Commit, now: int | None = NOW) -> Outcome:
    """Make a commit that has nothing against it."""
    outcome = await store.commit(commit, now)
    see("D43", outcome.verdict, "done", f"A commit of {len(commit.writes)} writes answered")
    return outcome


async def _inserted(store: Directory, *new: ApiKey | Account, id: str = "aa") -> None:
    """Insert rows as they are, in one commit."""
    owner = new[0].organization
    await _done(store, Commit(owner, id, tuple(Write(None, None, row) for row in new)))


async def _one(store: Directory, key: ApiKey) -> Read[ApiKey]:
    return await store.read(KEY_BY_ID, (key.organization, key.id))


def _revoked(key: ApiKey, version: object, id: str, change: ChangeDraft | None = None) -> Commit:
    write = Write(key, version, key._replace(revoked_at=STAMP))
    return Commit(key.organization, id, (write,), change=change)


def _new(factory: Factory, *, lifetime: int | None = None, owner: str = OWNER) -> ApiKey:
    return factory.draft(owner, lifetime=lifetime).created(NOW)


def _account(factory: Factory, owner: str = OWNER) -> Account:
    return factory.account(owner).created(NOW)


async def _keys(store: Directory, owner: str = OWNER) -> list[ApiKey]:
    return (await store.read(KEYS_BY_CREATION, (owner,), PAGE_AT_MOST)).rows


async def _log(store: Directory, owner: str = OWNER) -> list[Change]:
    return (await store.read(LOG, (owner,), PAGE_AT_MOST)).rows


# Repeated commits


@rows("W3")
async def a_repeated_change_is_made_once_and_answered_alike(
    store: Directory, factory: Factory
) -> None:
    """Also after another commit has changed the row again."""
    key = _new(factory)
    await _inserted(store, key)
    named = key._replace(name="another name")
    write = Write(key, (await _one(store, key)).version, named)
    commit = Commit(OWNER, "0a", (write,), change=drafted_change("key_updated", key.id))
    first = await _done(store, commit, NOW + 1)
    see("W3", await store.commit(commit, NOW + 2), first, "A repeated commit answered")
    await _done(store, _revoked(named, (await _one(store, key)).version, "0b"), NOW + 3)
    again = await store.commit(commit, NOW + 4)
    see("W3", (again.verdict, again.now), ("done", NOW + 1), "A commit repeated later answered")
    see("W3", await _keys(store), [named._replace(revoked_at=NOW + 3)], "Repetitions left")
    see("W3", len(await _log(store)), 1, "The records of a repeated commit are")


@rows("W3")
async def a_repeated_insertion_finds_none_of_its_rows_taken(
    store: Directory, factory: Factory
) -> None:
    account, key = _account(factory), _new(factory)
    writes = Write(None, None, account), Write(None, None, key)
    commit = Commit(OWNER, "0a", writes, room=1)
    first = await _done(store, commit)
    see("W3", await store.commit(commit, NOW + 1), first, "A repeated registration answered")
    verdict = (await store.commit(commit._replace(id="0b"), NOW)).verdict
    see("D3", verdict in {"taken", "full"}, True, f"The same rows by another commit: {verdict},")
    see("W3", await _keys(store), [key], "A repeated registration left")
    see("W3", (await store.read(ACCOUNT, (OWNER,))).rows, [account], "It left")


@rows("W3")
async def a_repeated_end_of_many_keys_is_answered_alike(store: Directory, factory: Factory) -> None:
    """They may be more than one commit removes, and the last rows of an organization. A repetition
    may say that more are due where none is."""
    number = REMOVED_AT_MOST + 1
    for owner in (OWNER, "org_2"):
        keys = [_new(factory, owner=owner) for _ in range(number)]
        await _inserted(store, _account(factory, owner), *keys, id=f"a{owner[-1]}")
    await _inserted(store, _new(factory, lifetime=1, owner="org_3"))
    for commit, at, least in (
        (Commit(OWNER, "0c", revoke_all=True), NOW + 1, number),
        (Commit(OWNER, "0d", remove_ended=NOW + 1), NOW + 2, REMOVED_AT_MOST),
        (Commit("org_2", "0e", remove_unused=NOW + 1), NOW + 3, number),
        (Commit("org_3", "0f", remove_ended=NOW + 1), NOW + 4, 1),
    ):
        first = await _done(store, commit, at)
        see("W3", first.ended >= least, True, f"{first.ended} keys were ended of {number}:")
        again = await store.commit(commit, at + 1)
        see("W3", again._replace(more=first.more), first, "A repeated commit answered")


@crowded("W3", "rows")
async def a_commit_that_is_repeated_at_once_is_made_once(crowd: Callers) -> None:
    """An attempt that was abandoned may still be under way."""
    store = cast(Directory, crowd.store)
    key = _new(crowd.factory)
    await _inserted(store, key)
    version = (await _one(store, key)).version
    commit = _revoked(key, version, "0a", drafted_change("key_revoked", key.id))

    async def work(index: int) -> tuple[str, int]:
        outcome = await store.commit(commit, NOW + index)
        return outcome.verdict, outcome.now

    answers = {*await crowd.at_once(8, work)}
    found = await _keys(store)
    expected = {("done", key.revoked_at) for key in found}
    crowd.see(answers == expected, f"One commit eight times at once answered {answers}.")
    crowd.see(len(await _log(store)) == 1, "The log has more than one record of it.")


# Conditions


@rows("D43")
async def a_commit_with_an_outdated_version_changes_nothing(
    store: Directory, factory: Factory
) -> None:
    """Also if only one of its rows has changed."""
    key, account, plan = _new(factory), _account(factory), Organization(OWNER, "exact")
    await _inserted(store, account, key)
    await _done(store, Commit(OWNER, "ab", (Write(None, None, plan),)))
    keys = await _one(store, key)
    accounts = await store.read(ACCOUNT, (OWNER,))
    plans = await store.read(PLAN, (OWNER,))
    before: list[tuple[Row, object, Row]] = [
        (key, keys.version, key._replace(name="changed")),
        (account, accounts.version, account._replace(sign_outs=1)),
        (plan, plans.version, plan._replace(plan="open")),
    ]
    for number, (old, version, new) in enumerate(before):
        await _done(store, Commit(OWNER, f"b{number}", (Write(old, version, new),)))
    changed = [new for _, _, new in before]
    later = await _one(store, key)
    outdated = [Write(old, known, old) for old, version, _ in before for known in (version, None)]
    for number, write in enumerate(outdated):
        last = Write(changed[0], later.version, key._replace(name="last"))
        writes = [write] if number == 0 else [last, write]
        outcome = await store.commit(Commit(OWNER, f"c{number}", tuple(writes)), NOW + 1)
        see("D43", outcome.verdict, "changed", "A commit with an outdated version answered")
    absent = Commit(OWNER, "cc", (Write(None, None, plan),))
    verdict = (await store.commit(absent, NOW + 1)).verdict
    see("D43", verdict, "changed", "A plan that was expected to be absent: a commit answered")
    found = [(await _one(store, key)).first, await store.account(OWNER)]
    see("D43", [*found, await store.organization(OWNER)], changed, "Refused commits left")


@rows("D43")
async def versions_are_alike_by_every_index(store: Directory, factory: Factory) -> None:
    """A row may be read by one index and its change be expected by another reader's."""
    key, account = _new(factory), _account(factory)
    await _inserted(store, account, key)
    name, number = (OWNER,), count()
    for index, prefix in (
        *((KEY_BY_HANDLE, (key.handle,)), (KEY_BY_ID, (OWNER, key.id))),
        *((KEYS_BY_CREATION, name), (KEYS_BY_END, name)),
    ):
        read = await store.read(index, prefix, 9, now=NOW)
        see("D43", read.rows, [key], f"{index} has")
        see("W12", read.now, NOW, "A reading with an instant is of")
        see("D43", len(read.versions), 1, f"The versions of a row by {index} are")
        new = key._replace(name=f"by {index.name}")
        await _done(store, Commit(OWNER, f"a{next(number)}", (Write(key, read.version, new),)))
        key = new
    for of_accounts, prefix in (
        *((ACCOUNT, name), (ACCOUNT_BY_TOKEN, (account.handle,))),
        (ACCOUNTS_BY_EMAIL, (EMAIL,)),
    ):
        found = await store.read(of_accounts, prefix, 9)
        see("D14", found.rows, [account], f"{of_accounts} has")
        other = account._replace(sign_outs=account.sign_outs + 1)
        write = Write(account, found.version, other)
        await _done(store, Commit(OWNER, f"b{next(number)}", (write,)))
        account = other
    empty = await store.read(PLAN, name)
    see("D25", [*empty.rows, *empty.versions], list[object](), "Without a plan a reader gets")


@crowded("D43", "rows")
async def one_of_the_commits_on_one_version_succeeds(crowd: Callers) -> None:
    store = cast(Directory, crowd.store)
    key = _new(crowd.factory)
    await _inserted(store, key)
    version = (await _one(store, key)).version

    async def work(index: int) -> str:
        write = Write(key, version, key._replace(name=f"name {index}"))
        return (await store.commit(Commit(OWNER, f"b{index}", (write,)), NOW)).verdict

    verdicts = await crowd.at_once(8, work)
    crowd.see(sorted(verdicts) == ["changed"] * 7 + ["done"], f"Eight at once got {verdicts}.")
    kept = [key.name for key in await _keys(store)]
    expected = [f"name {index}" for index, one in enumerate(verdicts) if one == "done"]
    crowd.see(kept == expected, f"The key has the name {kept}, and {expected} was answered.")


@rows("D43")
async def a_key_must_be_live_at_the_instant_of_the_step(store: Directory, factory: Factory) -> None:
    expiring, revoked = _new(factory, lifetime=DAY), _new(factory)._replace(revoked_at=NOW)
    await _inserted(store, expiring, revoked)
    for key, at, verdict in (
        (expiring, NOW + DAY, "changed"),
        (revoked, NOW + 1, "changed"),
        (expiring, NOW + DAY - 1, "done"),
    ):
        version = (await _one(store, key)).version
        write = Write(key, version, key._replace(name="new"), live=True)
        outcome = await store.commit(Commit(OWNER, f"{at:x}", (write,)), at)
        see("D43", outcome.verdict, verdict, "A commit on a key that must be live answered")
    names = {key.name for key in await _keys(store)}
    see("D43", names, {"new", revoked.name}, "The names of the keys are")


@rows("D3")
async def a_new_row_takes_no_handle_or_id_of_another(store: Directory, factory: Factory) -> None:
    """A refused commit leaves none of its rows, and takes no handle."""
    key, account, gone = _new(factory), _account(factory), _new(factory, lifetime=1)
    await _inserted(store, account, key, gone)
    await _done(store, Commit(OWNER, "ab", remove_ended=NOW + 1), NOW + DAY)
    own, other = _new(factory, owner="org_2"), _account(factory, "org_2")
    refused: tuple[tuple[ApiKey | Account, ...], ...] = (
        (other, own._replace(handle=key.handle)),
        (other, own._replace(handle=gone.handle)),
        (own, other._replace(handle=account.handle)),
        (_new(factory)._replace(id=key.id),),
        (_account(factory), _new(factory)),
    )
    for number, new in enumerate(refused):
        owner = new[0].organization
        writes = tuple(Write(None, None, row) for row in new)
        outcome = await store.commit(Commit(owner, f"b{number}", writes), NOW)
        see("D3", outcome.verdict, "taken", f"The rows {new} were inserted: the commit answered")
    see("D3", await _keys(store), [key], "Refused insertions left")
    see("D3", await _keys(store, "org_2"), [], "Refused insertions left")
    see("R1", await store.account("org_2"), None, "Refused insertions left")
    await _inserted(store, other, own, id="bb")
    found = [(await store.read(KEY_BY_HANDLE, (own.handle,))).first]
    see("D3", found, [own], "By a handle that a refused commit had, a reader finds")


@rows("K8")
async def room_counts_live_keys_after_the_other_writes(store: Directory, factory: Factory) -> None:
    keys = _new(factory), _new(factory, lifetime=DAY), _new(factory, lifetime=1)
    await _inserted(store, *keys)
    ids = (f"b{number}" for number in count())

    async def insert(room: int, at: int, *writes: Write, owner: str = OWNER) -> str:
        new = Write(None, None, _new(factory, owner=owner))
        commit = Commit(owner, next(ids), (new, *writes), room=room)
        return (await store.commit(commit, at)).verdict

    see("K8", await insert(2, NOW + 1), "full", "With 2 live keys, room for 2 answered")
    see("K8", await insert(1, NOW + 1, owner="org_2"), "done", "Another organization was answered")
    version = (await _one(store, keys[0])).version
    renamed = Write(keys[0], version, keys[0]._replace(name="new"))
    see("K8", await insert(2, NOW + 1, renamed), "full", "Beside a new name, room for 2 answered")
    revoked = Write(keys[0], version, keys[0]._replace(revoked_at=STAMP))
    see("K8", await insert(1, NOW + 1, revoked), "full", "Beside a revocation, room for 1 answered")
    see("K8", await insert(2, NOW + 1, revoked), "done", "Beside a revocation, it answered")
    see("K8", await insert(2, NOW + 1), "full", "With 2 live keys again, it answered")
    see("K8", await insert(2, NOW + DAY), "done", "Once one of them has expired, it answered")
    see("K8", len(await _keys(store)), 5, "The keys are")


# The step


@rows("D44")
async def instants_and_records_are_of_the_step(store: Directory, factory: Factory) -> None:
    """Two revocations that are read in one order and committed in the other."""
    keys = [_new(factory), _new(factory)]
    await _inserted(store, *keys)
    reads = [await store.read(KEY_BY_ID, (OWNER, key.id), now=NOW) for key in keys]
    for at, number in enumerate((1, 0)):
        change = drafted_change("key_revoked", keys[number].id)
        commit = _revoked(keys[number], reads[number].version, f"{number}", change)
        see("D44", (await _done(store, commit, NOW + 5 + at)).now, NOW + 5 + at, "A step was at")
    records = [(one.number, one.at, one.key) for one in await _log(store)]
    expected = [(2, NOW + 6, keys[0].id), (1, NOW + 5, keys[1].id)]
    see("D44", records, expected, "The log has")
    ends = [(await _one(store, key)).rows[0].revoked_at for key in keys]
    see("D44", ends, [NOW + 6, NOW + 5], "The keys were revoked at")


@rows("W12")
async def each_stamp_becomes_the_instant_of_the_step(store: Directory, factory: Factory) -> None:
    at = NOW + MILLISECOND + 7
    key, account = _new(factory)._replace(created_at=STAMP), _account(factory)
    new = account._replace(created_at=STAMP)
    writes = Write(None, None, new), Write(None, None, key)
    outcome = await _done(store, Commit(OWNER, "0a", writes), at)
    created = at - at % MILLISECOND
    expected: list[Row | None] = [
        account._replace(created_at=created),
        key._replace(created_at=created),
    ]
    see("W12", [*outcome.rows], expected, "A commit answered")
    read = await store.read(ACCOUNT, (OWNER,))
    see("W12", [read.first, *await _keys(store)], expected, "It left")
    old = read.rows[0]
    claimed = old._replace(claimed_by="ada", claimed_at=STAMP, token_revoked_at=STAMP)
    write = Write(old, read.version, claimed)
    outcome = await _done(store, Commit(OWNER, "0b", (write,)), at + 9)
    right = claimed._replace(claimed_at=at + 9, token_revoked_at=at + 9)
    see("W12", [*outcome.rows], [right], "A claim answered")
    see("W12", await store.account(OWNER), right, "A claim left")
    found = (await store.read(ACCOUNTS_BY_USER, ("ada",), 9, Position(at + 10, ""))).rows
    see("D14", found, [right], "By the user and the instant of the claim, a reader finds")


@rows("W12")
async def without_an_instant_the_clock_of_the_store_stamps(
    store: Directory, factory: Factory
) -> None:
    key = _new(factory)
    read, before = await _one(store, key), await store.now()
    see("W12", read.now <= before, True, "An earlier reading is at or before a later one:")
    commit = Commit(OWNER, "0a", (Write(None, None, key._replace(created_at=STAMP)),))
    inserted = await _done(store, commit, None)
    (kept,) = await _keys(store)
    change = drafted_change("key_revoked", key.id)
    ended = await _done(
        store, _revoked(kept, (await _one(store, kept)).version, "0b", change), None
    )
    after = await store.now()
    (record,), (row,) = await _log(store), await _keys(store)
    see("W12", [row.revoked_at, record.at], [ended.now] * 2, "A revocation left the instants")
    times = [before - before % MILLISECOND, kept.created_at, inserted.now, ended.now, after]
    see("W12", times, sorted(times), "Readings of the clock and steps between them were at")


@rows("D44")
async def a_commit_that_changes_no_row_is_not_recorded(store: Directory, factory: Factory) -> None:
    key, change = _new(factory)._replace(revoked_at=NOW), drafted_change("account_claimed")
    await _inserted(store, key)
    for number, commit in enumerate(
        (
            Commit(OWNER, "", revoke_all=True),
            Commit(OWNER, "", remove_ended=NOW - 1),
            Commit(OWNER, "", (Write(key, (await _one(store, key)).version, key),)),
        )
    ):
        await _done(store, commit._replace(id=f"b{number}", change=change), NOW + 1)
    outcome = await store.commit(Commit(OWNER, "c0", remove_unused=NOW, change=change), NOW + 1)
    see("D46", outcome.verdict, "changed", "Without an account, a removal answered")
    read = await _one(store, key)
    renamed = Write(key, read.version, key._replace(name="new"))
    await _done(store, Commit(OWNER, "c1", (renamed,)))
    late = await store.commit(Commit(OWNER, "c2", (renamed,), change=change), NOW + 1)
    see("D43", late.verdict, "changed", "A commit with an outdated version answered")
    see("D44", await _log(store), [], "The log has")


@rows("D44")
async def a_commit_without_rows_is_recorded_once(store: Directory, factory: Factory) -> None:
    commit = Commit(OWNER, "aa", change=drafted_change("windows_reset"))
    for later in (1, 2):
        outcome = await _done(store, commit, NOW + later)
        see("W3", outcome.now, NOW + 1, "A commit without rows was made at")
    await _done(store, commit._replace(id="bb"), NOW + 3)
    await _done(store, Commit(OWNER, "cc"), NOW + 4)
    found = [(change.number, change.at, change.action) for change in await _log(store)]
    expected = [(2, NOW + 3, "windows_reset"), (1, NOW + 1, "windows_reset")]
    see("D44", found, expected, "The log has")


@rows("K4")
async def every_live_key_is_revoked_and_no_other(store: Directory, factory: Factory) -> None:
    """In the step that changes the account, and also a key that its reader has not seen."""
    account = _account(factory)
    live, expired = _new(factory), _new(factory, lifetime=1)
    revoked = _new(factory)._replace(revoked_at=NOW + 1)
    other, late = _new(factory, owner="org_2"), _new(factory, lifetime=DAY)
    await _inserted(store, account, live, expired, revoked)
    await _inserted(store, other, id="ab")
    read = await store.read(ACCOUNT, (OWNER,))
    await _inserted(store, late, id="ac")
    write = Write(account, read.version, account._replace(sign_outs=1))
    outcome = await _done(store, Commit(OWNER, "0b", (write,), revoke_all=True), NOW + 5)
    see("K4", outcome.ended, 2, "The keys that a commit has revoked are")
    ends = {key.id: key.revoked_at for key in await _keys(store)}
    expected = {live.id: NOW + 5, expired.id: None, revoked.id: NOW + 1, late.id: NOW + 5}
    see("K4", ends, expected, "The keys were revoked at")
    see("K4", await _keys(store, "org_2"), [other], "Another organization has")
    unrevoked = (await store.read(KEYS_BY_END, (OWNER,), 9)).rows
    see("D10", [key.id for key in unrevoked], [expired.id], "Keys that are not revoked are")


@rows("K7")
async def a_write_keeps_the_usage_of_a_key(store: Directory, factory: Factory) -> None:
    """A new key brings its own, of the system that it was imported from."""
    history = KeyHistory(NOW - DAY, None, 7, NOW - HOUR)
    key = factory.draft()._replace(history=history).created(NOW)
    outcome = await _done(store, Commit(OWNER, "0a", (Write(None, None, key),)))
    see("K7", [*outcome.rows], [key], "The insertion of a key with usage answered")
    new = key._replace(name="new", request_count=1, last_used_at=None)
    write = Write(new._replace(name=key.name), (await _one(store, key)).version, new)
    outcome = await _done(store, Commit(OWNER, "0b", (write,)))
    right = key._replace(name="new")
    see("K7", [*outcome.rows], [right], "A change answered")
    see("K7", await _keys(store), [right], "A change left")


@rows("D45")
async def keys_and_records_are_removed_by_their_instants(
    store: Directory, factory: Factory
) -> None:
    """The last microsecond counts."""
    lifetimes = (HOUR, HOUR + 1, None)
    keys = [_new(factory, lifetime=lifetime) for lifetime in lifetimes]
    revoked = [_new(factory)._replace(revoked_at=NOW + HOUR + step) for step in range(2)]
    for number, key in enumerate((*keys, *revoked)):
        writes, change = (Write(None, None, key),), drafted_change("key_created", key.id)
        at = NOW + HOUR + number % 2
        await _done(store, Commit(OWNER, f"a{number}", writes, change=change), at)
    ids = (f"b{number}" for number in count())
    ended, more = 0, True
    while more:
        commit = Commit(OWNER, next(ids), remove_ended=NOW + HOUR)
        outcome = await _done(store, commit, NOW + DAY)
        ended, more = ended + outcome.ended, outcome.more
    see("D45", ended, 2, "The keys that were removed are")
    left = {key.id for key in await _keys(store)}
    see("D45", left, {keys[1].id, keys[2].id, revoked[1].id}, "The keys left are")
    instants = {record.at for record in await _log(store)}
    see("D45", NOW + HOUR + 1 in instants, True, "A record is left that is not due:")
    for gone in (keys[0], revoked[0]):
        again = _new(factory, owner="org_2")._replace(handle=gone.handle)
        verdict = (
            await store.commit(Commit("org_2", gone.id, (Write(None, None, again),)))
        ).verdict
        see("D3", verdict, "taken", "A new key with the handle of a removed one: a commit answered")


@rows("D46")
async def an_account_is_removed_only_if_it_is_unused_at_the_step(
    store: Directory, factory: Factory
) -> None:
    """A use that the caller has not seen keeps the account with all its keys."""
    since = NOW + HOUR
    owners = "idle", "signed in", "given a key", "imported", "claimed", "placed"
    for number, owner in enumerate(owners):
        account, key = _account(factory, owner), _new(factory, owner=owner)
        if owner == "signed in":
            account = account._replace(signed_in_at=since + 1)
        elif owner == "given a key":
            key = key._replace(created_at=since + 1)
        elif owner == "imported":
            key = key._replace(request_count=1, last_used_at=since + 1)
        elif owner == "claimed":
            account = account._replace(claimed_by="ada", claimed_at=NOW)
        else:
            account = account._replace(signed_in_at=since)
        await _inserted(store, account, key, id=f"a{number}")
    await _done(store, Commit("placed", "ab", (Write(None, None, Organization("placed", "x")),)))
    change = drafted_change("account_removed")
    for number, owner in enumerate(owners):
        commit = Commit(owner, f"b{number}", remove_unused=since, change=change)
        outcome = await store.commit(commit, NOW + DAY)
        expected = ("done", 1) if owner == "idle" else ("changed", 0)
        see("D46", (outcome.verdict, outcome.ended), expected, f"The removal of {owner!r} answered")
        left = [len(await _keys(store, owner)), len((await store.read(ACCOUNT, (owner,))).rows)]
        see("D46", left, [0, 0] if owner == "idle" else [1, 1], "It left")
        see("D44", len(await _log(store, owner)), 1 if owner == "idle" else 0, "Its records are")


# Pages


async def _see_pages(
    store: Directory,
    sentence: str,
    index: Index[AnyT],
    prefix: str,
    rows: Sequence[AnyT],
) -> None:
    """Read an index in pages of some lengths, from each place and beside it."""
    place = index.place
    assert place is not None, "an index with one row has no pages"
    expected = index.page(rows, PAGE_AT_MOST, None)
    places: list[Position] = [place(row) for row in expected]
    beside: list[Position] = [Position(at + step, id) for at, id in places for step in (-1, 1)]
    for limit in (1, 2, PAGE_AT_MOST):
        starts: list[Position | None] = [None, *places, *beside]
        for after in starts:
            read = await store.read(index, (prefix,), limit, after)
            right = index.page(rows, limit, after)
            see(sentence, read.rows, right, f"A page of {limit} by {index} after {after} has")
            versions = 0 if index is LOG else len(right)
            see(sentence, len(read.versions), versions, "Its versions are")


@rows("D10")
async def pages_of_keys_follow_the_order_of_their_index(store: Directory, factory: Factory) -> None:
    """Instants are shared, keys are revoked, and one gets another end after its insertion."""
    keys: list[ApiKey] = []
    for number, (created, lifetime, ended) in enumerate(
        (
            *((0, 1, None), (0, 1, None), (0, None, None), (0, None, None), (1, 0, None)),
            *((1, 1, 9), (1, 2, None), (2, None, 9), (2, 2, None)),
        )
    ):
        at = NOW + created * MILLISECOND
        key = _new(factory)._replace(created_at=at, revoked_at=ended and at + ended)
        keys.append(key._replace(expires_at=lifetime and NOW + DAY + lifetime * MILLISECOND))
        await _inserted(store, keys[-1], id=f"a{number}")
    await _inserted(store, _new(factory, owner="org_2"))
    for number, new in enumerate(
        (
            keys[0]._replace(expires_at=NOW + 2 * DAY),
            keys[2]._replace(revoked_at=NOW + 9),
            keys[3]._replace(expires_at=NOW + DAY),
        )
    ):
        old = next(key for key in keys if key.id == new.id)
        keys[keys.index(old)] = new
        write = Write(old, (await _one(store, old)).version, new)
        await _done(store, Commit(OWNER, f"b{number}", (write,)))
    await _see_pages(store, "D10", KEYS_BY_CREATION, OWNER, keys)
    await _see_pages(store, "D10", KEYS_BY_END, OWNER, keys)


@rows("D14")
async def pages_of_accounts_follow_the_order_of_their_index(
    store: Directory, factory: Factory
) -> None:
    """Claimed accounts leave the one index and enter the other."""
    names = "b", "a", "d", "c", "f", "e", "A"
    accounts: list[Account] = []
    for number, name in enumerate(names):
        created = NOW + number // 3 * MILLISECOND
        accounts.append(_account(factory, name)._replace(created_at=created))
        await _inserted(store, accounts[-1], id=f"a{number}")
    await _inserted(store, factory.account("other", email="eve@example.com").created(NOW))
    await _see_pages(store, "D14", ACCOUNTS_BY_EMAIL, EMAIL, accounts)
    for number, (name, user, at) in enumerate(
        (("a", "ada", 1), ("d", "ada", 2), ("c", "ada", 1), ("f", "eve", 1), ("A", "ada", 1))
    ):
        read = await store.read(ACCOUNT, (name,))
        new = read.rows[0]._replace(claimed_by=user, claimed_at=NOW + at)
        await _done(store, Commit(name, f"b{number}", (Write(read.first, read.version, new),)))
        accounts[names.index(name)] = new
    await _see_pages(store, "D14", ACCOUNTS_BY_EMAIL, EMAIL, accounts)
    mine = [one for one in accounts if one.claimed_by == "ada"]
    await _see_pages(store, "D14", ACCOUNTS_BY_USER, "ada", mine)


@rows("D44")
async def pages_of_the_log_follow_its_numbers(store: Directory, factory: Factory) -> None:
    """The instants go back and repeat."""
    changes: list[Change] = []
    for number, step in enumerate((0, 5, 5, 3, -HOUR, 9)):
        draft = drafted_change("key_created", f"key {number}")
        writes = (Write(None, None, _new(factory)),)
        await _done(store, Commit(OWNER, f"a{number}", writes, change=draft), NOW + step)
        changes.append(draft.made(number + 1, NOW + step))
    await _see_pages(store, "D44", LOG, OWNER, changes)


# Walks


async def _walk(
    store: Directory,
    wanted: Wanted,
    between: Callable[[int], Coroutine[Any, Any, object]] | None = None,
) -> list[Walk]:
    """Return all steps of a walk, with another caller's changes between them."""
    steps = [await store.walk(wanted, 2)]
    while steps[-1].cursor is not None and len(steps) < _STEPS_AT_MOST:
        if between is not None:
            await between(len(steps))
        steps.append(await store.walk(wanted, 2, steps[-1].cursor))
    see("D45", steps[-1].cursor, None, f"The cursor after {len(steps)} steps of a walk is")
    return steps


def _lacking(sentence: str, what: str, found: Iterable[str], expected: Iterable[str]) -> None:
    lacking = {*expected} - {*found}
    see(sentence, lacking, set[str](), f"{what} lacks")


@rows("K9")
async def a_walk_finds_each_row_that_stays(store: Directory, factory: Factory) -> None:
    """Other rows come and go between its steps."""
    owners = [f"org_{number}" for number in range(9)]
    keys = [_new(factory, owner=owners[number % 9]) for number in range(18)]
    passing = [_new(factory, owner=owner, lifetime=1) for owner in owners]
    for number, owner in enumerate(owners):
        await _inserted(store, _account(factory, owner), passing[number], id=f"a{number}")
        await _inserted(store, *keys[number::9], id=f"b{number}")
    coming = [_new(factory, owner=owner) for owner in owners]

    async def change(step: int) -> None:
        owner = owners[-step % 9]
        await store.commit(Commit(owner, f"c{step}", remove_ended=NOW + 1), NOW + DAY)
        if step <= len(coming):
            await _inserted(store, coming[step - 1], id=f"d{step}")

    steps = await _walk(store, None, change)
    found = {key.id: key for step in steps for key in step.keys}
    _lacking("K9", "A walk", found, [key.id for key in keys])
    see("K9", [found[key.id] for key in keys], keys, "A walk has the rows")
    accounts = {one.organization for step in steps for one in step.accounts}
    _lacking("K9", "A walk", accounts, owners)
    # Without changes, a search finds each key once.
    handle = keys[0].handle
    for wanted in (KeySearch(handle=handle), KeySearch(handle=handle[0]), KeySearch(id=keys[9].id)):
        ids = sorted(key.id for step in await _walk(store, wanted) for key in step.keys)
        rows = [key for owner in owners for key in await _keys(store, owner) if wanted.finds(key)]
        see("K1", ids, sorted(key.id for key in rows), f"A search for {wanted} has")


@rows("D45")
async def a_walk_names_the_organizations_that_are_due(store: Directory, factory: Factory) -> None:
    """For a removal of ended keys and old records, and of unused accounts."""
    change = drafted_change("key_created")
    for number, lifetime in enumerate((None, HOUR, HOUR + 1, None, HOUR)):
        owner = f"org_{number}"
        writes = tuple(
            Write(None, None, row)
            for row in (_account(factory, owner), _new(factory, owner=owner, lifetime=lifetime))
        )
        logged = change if number == 3 else None
        await _done(store, Commit(owner, f"a{number}", writes, change=logged), NOW + 1)
    ended = [owner for step in await _walk(store, Ended(NOW + HOUR)) for owner in step.owners]
    _lacking("D45", "A walk over ended keys and old records", ended, ["org_1", "org_3", "org_4"])
    unused = (await store.walk(Unused(NOW + HOUR), 9)).owners
    _lacking("D46", "A walk over unused accounts", unused, [f"org_{n}" for n in range(5)])


@rows("D25")
async def a_walk_sums_up_each_organization(store: Directory, factory: Factory) -> None:
    expected = list[OrganizationSummary]()
    for number in range(5):
        owner, plan = f"org_{number}", None
        keys = [_new(factory, owner=owner, lifetime=life) for life in (None, HOUR, 1)]
        keys = [key._replace(request_count=1, last_used_at=NOW + number) for key in keys]
        if number != 4:
            await _inserted(store, *keys, id=f"a{number}")
        if number % 2 == 0:
            plan = Organization(owner, "exact", (("rpm", number),))
            await _done(store, Commit(owner, f"b{number}", (Write(None, None, plan),)))
        live, last = (0, None) if number == 4 else (2, NOW + number)
        expected.append(OrganizationSummary(owner, plan, live, last))
    await _inserted(store, _account(factory, "no key"))
    steps = await _walk(store, Summaries(NOW + MILLISECOND))
    found = {one.id: one for step in steps for one in step.organizations}
    see("D25", [found[id] for id in sorted(found)], expected, "A walk has the summaries")


CHECKS: tuple[Check, ...] = (
    a_repeated_change_is_made_once_and_answered_alike,
    a_repeated_insertion_finds_none_of_its_rows_taken,
    a_repeated_end_of_many_keys_is_answered_alike,
    a_commit_with_an_outdated_version_changes_nothing,
    versions_are_alike_by_every_index,
    a_key_must_be_live_at_the_instant_of_the_step,
    a_new_row_takes_no_handle_or_id_of_another,
    room_counts_live_keys_after_the_other_writes,
    instants_and_records_are_of_the_step,
    each_stamp_becomes_the_instant_of_the_step,
    without_an_instant_the_clock_of_the_store_stamps,
    a_commit_that_changes_no_row_is_not_recorded,
    every_live_key_is_revoked_and_no_other,
    a_write_keeps_the_usage_of_a_key,
    keys_and_records_are_removed_by_their_instants,
    an_account_is_removed_only_if_it_is_unused_at_the_step,
    pages_of_keys_follow_the_order_of_their_index,
    pages_of_accounts_follow_the_order_of_their_index,
    pages_of_the_log_follow_its_numbers,
    a_walk_finds_each_row_that_stays,
    a_walk_names_the_organizations_that_are_due,
    a_walk_sums_up_each_organization,
    a_commit_that_is_repeated_at_once_is_made_once,
    one_of_the_commits_on_one_version_succeeds,
)
