"""Stores with one mistake each in accounts and plans: their rows, lists, claims and removal."""

from __future__ import annotations

from collections.abc import Callable
from secrets import token_hex
from typing import Any, Final

from lockgate.core.accounts import Account
from lockgate.core.api_keys import ApiKey, Position
from lockgate.core.budgets import SLOTS
from lockgate.core.plans import Organization
from lockgate.core.timestamps import MINUTE
from lockgate.errors import HandleTaken
from lockgate.stores.answers import FoundOrganizations
from lockgate.stores.base import PAGE_AT_MOST
from lockgate.stores.rows import Commit, Write

from .mutants import AHEAD, Call, How, Mutant, by_host, gap, several, unheard, wrong


# Rows of accounts and plans.
def _unclaim(store: Any, organization: str) -> None:
    row = store._accounts.rows.get(organization)
    if row is not None:
        store._accounts.rows[organization] = (*row[:9], None, None, *row[11:])


@wrong("D25", "put_organization")
async def replaces_the_row_of_an_account_by_its_plan(call: Call) -> None:
    """The columns of the claim are empty then."""
    await call()
    _unclaim(call.store, call.organization.id)


@wrong("D25", "register")
async def replaces_the_row_of_a_plan_by_its_account(call: Call) -> Any:
    registered = await call()
    call.store._placed.pop(call.account.organization, None)
    return registered


async def _folded_plans(call: Call) -> Any:
    placed = call.store._placed
    if "organization" in call:
        placed[call.organization.id.casefold()] = call.organization[1:]
        return None
    found = placed.get(call.id.casefold())
    return None if found is None else Organization(call.id, *found)


several(
    {
        # As a database's default collation does.
        "compares_ids_of_plans_without_case": (
            "W8",
            "put_organization organization",
            _folded_plans,
        ),
        "returns_its_rows_without_a_copy": (
            "W14",
            "account_by_token",
            lambda call: call.then(lambda account: account and tuple(account)),
        ),
        "dates_accounts_by_the_host": ("W12", "register", by_host(-AHEAD)),
        "dates_claims_by_the_host": ("W12", "claim_if_unclaimed", by_host(-AHEAD)),
        "dates_sign_ins_by_the_host": ("W12", "sign_in", by_host(-AHEAD)),
        "judges_idleness_by_the_host": ("W12", "remove_unclaimed", by_host()),
    }
)


@wrong("R1", "register", parts=("accounts",))
async def inserts_an_account_and_then_its_key(call: Call) -> Any:
    store, account, key = call.store, call.account, call.key
    with store._lock:
        if store._keys.is_taken(key.handle):
            raise HandleTaken
        made = account.created(call.at)
        store._accounts.add(made)
    gap()
    with store._lock:
        store._changes.add(account.organization, call.change, call.at)
        store._keys.insert(first := key.created(call.at))
        return made, first


@wrong("R1", "register", parts=("accounts",))
async def inserts_a_key_and_then_its_account(call: Call) -> Any:
    store, account = call.store, call.account
    is_free = await store.account(account.organization) is None
    is_free = is_free and await store.account_by_token(account.handle) is None
    if not is_free or store._keys.is_taken(call.key.handle):
        return await call()
    made = await store.insert(call.key, None, call.now)
    gap()
    with store._lock:
        store._changes.add(account.organization, call.change, call.at)
        store._accounts.add(registered := account.created(call.at))
        return registered, made


@wrong("R1", "register")
async def registers_by_two_commits(call: Call) -> Any:
    """The account, and then its first key."""
    account = call.account.created(at := call.at)
    write = Write(None, None, account)
    commit = Commit(account.organization, token_hex(8), (write,), change=call.change)
    if (await call.store.commit(commit, at)).verdict != "done":
        raise HandleTaken
    return account, await call.store.insert(call.key, None, at)


# Claims.
@wrong("R3", "claim_if_unclaimed")
async def claims_once_more(call: Call) -> Any:
    """The last claim wins."""
    if not call.revoke:
        _unclaim(call.store, call.organization)
    return await call()


@wrong("K9", "claim_if_unclaimed")
async def claims_under_any_seal(call: Call) -> Any:
    account = await call.store.account(call.organization)
    if account is None or "seals" not in call:
        return await call()
    return await call(seals=(account.seal, call.seals[1]))


@wrong("D46", "claim_if_unclaimed")
def keeps_the_token_unless_keys_are_revoked(call: Call) -> Any:
    return call(keep_token=call.keep_token or not call.revoke)


@wrong("D46", "account", "claim_if_unclaimed")
async def ends_the_token_after_a_claim(call: Call) -> Any:
    """A session that begins in between survives."""
    if "user" not in call:
        found = await call()
        gap()
        return found
    claimed = await call(keep_token=True)
    if claimed is None or claimed.claimed_by != call.user or call.keep_token:
        return claimed
    ended = claimed._replace(token_revoked_at=claimed.token_revoked_at or call.at)
    if call.revoke:
        call.store._accounts.rows[call.organization] = tuple(ended)
    return ended


@wrong("K4 D44", "claim_if_unclaimed")
async def revokes_keys_after_a_claim(call: Call) -> Any:
    """One by one."""
    claimed = await call(revoke=False)
    if call.revoke and claimed is not None and claimed.claimed_by == call.user:
        keys = await call.store.list_live(call.organization, PAGE_AT_MOST, None, call.now)
        for key in keys:
            await call.store.revoke_if_live(call.organization, key.id, call.now)
    return claimed


@wrong("K4", "claim_if_unclaimed", parts=("accounts",))
async def revokes_a_hundred_keys_of_a_claim(call: Call) -> Any:
    rows = {key.handle: key for key in await call.store.list(call.organization, 1_000)}
    claimed = await call()
    for handle in [*rows][100:]:
        call.store._rows[handle] = tuple(rows[handle])[:13]
    return claimed


@wrong("K4", "commit")
async def revokes_a_page_of_keys_of_a_claim(call: Call) -> Any:
    keys = call.store._keys
    left = keys.all(call.commit.owner)[PAGE_AT_MOST:] if call.commit.revoke_all else ()
    outcome = await call()
    for key in left:
        keys.replace(keys.key(key.handle), key)
    return outcome


# Sessions.
@wrong("D15 D46", "sign_in")
async def signs_in_with_a_revoked_token(call: Call) -> Any:
    return await call() or await call.store.account(call.organization)


@wrong("D15", "sign_in")
async def keeps_the_latest_sign_in(call: Call) -> Any:
    """And not that of the latest time."""
    found = await call()
    if found is not None:
        found = found._replace(signed_in_at=call.at)
        call.store._accounts.rows[call.organization] = tuple(found)
    return found


# Lists.
@wrong("D14", "unclaimed_by_email")
async def lists_the_newest_account_first(call: Call) -> Any:
    """So further registrations hide the others."""
    newest = (await call(limit=1000, after=None))[::-1]
    if call.after is not None:
        newest = [one for one in newest if (one.created_at, one.organization) < call.after]
    return tuple(newest)[: call.limit]


@wrong("D14 R3 D25 W8", "unclaimed_by_email")
async def lists_claimed_accounts_by_their_email(call: Call) -> Any:
    rows = map(Account._make, call.store._accounts.rows.values())
    mine = [one for one in rows if one.billing_email == call.billing_email]
    found = sorted((Position(one.created_at, one.organization), one) for one in mine)
    return tuple(one for at, one in found if call.after is None or at > call.after)[: call.limit]


def _first_hundred(call: Call) -> Any:
    return call(limit=min(call.limit, 100))


several(
    {
        # And skips others of the same instant.
        "continues_after_an_instant": (
            "D14",
            "unclaimed_by_email",
            lambda call: call(after=call.after and call.after._replace(id="\U0010ffff" * 32)),
        ),
        "lists_all_accounts_of_a_user": (
            "D14",
            "accounts_by_user",
            lambda call: call(limit=1000),
        ),
        "counts_ended_keys_of_organizations": ("D25", "organizations", lambda call: call(now=0)),
        # Leaves out organizations on the default plan.
        "lists_placed_organizations": (
            "D25",
            "organizations",
            lambda call: call.then(
                lambda found: found._replace(
                    organizations=[one for one in found[0] if one.placed is not None]
                )
            ),
        ),
        # And says that there are no more.
        "lists_a_hundred_organizations": (
            "D25 K1",
            "organizations",
            lambda call: call.then(
                lambda found: (
                    found if len(found[0]) < 100 else FoundOrganizations(found[0][:100], None)
                )
            ),
        ),
    }
)
several(
    {
        "lists_a_hundred_unclaimed_accounts": ("D14", "unclaimed_by_email", _first_hundred),
        "lists_a_hundred_claimed_accounts": ("D14", "accounts_by_user", _first_hundred),
        "removes_a_hundred_accounts": ("D46", "remove_unclaimed", _first_hundred),
    },
    parts=("accounts",),
)


# Removal.
class Removing(Mutant):
    """Removes in several steps."""

    async def remove_unclaimed(
        self, idle: int, limit: int, now: int | None = None, *, change: Any = None
    ) -> tuple[str, ...]:
        edge = self.at(now) - idle
        removed: list[str] = []
        for row in [*self._accounts.rows.values()]:
            account = Account._make(row)
            if len(removed) < limit and self.goes(account, edge):
                self.take(account)
                removed.append(account.organization)
        self.local_version = object()
        return tuple(sorted(removed))

    def goes(self, account: Account, edge: int) -> bool:
        keys = self._keys.all(account.organization)
        uses = [max(key.created_at, key.last_used_at or 0) for key in keys]
        latest = max(account.created_at, account.signed_in_at or 0, *uses)
        return self.is_open(account) and latest <= edge

    def is_open(self, account: Account) -> bool:
        return account.claimed_by is None and account.organization not in self._placed

    def take(self, account: Account) -> None:
        with self._lock:
            present = self._accounts.get(account.organization)
            if present is not None and present.claimed_by is None:
                self._accounts.remove(present)
                self.remove_keys(account.organization)


def _take_the_account(call: Call) -> None:
    with call.store._lock:
        if call.account.organization in call.store._accounts.rows:
            call.store._accounts.remove(call.account)


def _free_all(call: Call) -> None:
    call()
    call.store._keys.removed.clear()


def _free_inserted(call: Call) -> None:
    """Remember the handle of the first key only."""
    keys = call.store._keys
    *others, _ = [key.handle for key in keys.all(call.account.organization)] or [""]
    call()
    for handle in others:
        keys.removed.pop(handle, None)


def _take_later(call: Call) -> None:
    gap()
    rows, organization = call.store._accounts.rows, call.account.organization
    call()
    if organization in rows:
        rows.pop(organization)
        call.store.remove_keys(organization)


several(
    {
        "removes_accounts_by_their_registration": (
            "D46",
            "goes",
            lambda call: call.store.is_open(call.account) and call.account.created_at <= call.edge,
        ),
        "removes_accounts_that_signed_in": (
            "D46",
            "goes",
            lambda call: call(account=call.account._replace(signed_in_at=None)),
        ),
        "removes_accounts_on_a_plan": (
            "D46",
            "is_open",
            lambda call: call.account.claimed_by is None,
        ),
        "removes_accounts_a_minute_early": (
            "D46 W12",
            "goes",
            lambda call: call(edge=call.edge + MINUTE),
        ),
        "looks_whether_an_account_is_claimed_and_removes_it_later": ("D46 R1", "take", _take_later),
        "removes_accounts_and_leaves_their_keys": ("D46", "take", _take_the_account),
        "frees_handles_with_their_account": ("D46", "take", _free_all),
        "frees_handles_that_were_inserted_later": ("D46", "take", _free_inserted),
        "removes_accounts_unheard": ("D5", "remove_unclaimed", unheard()),
    },
    of=Removing,
)


@wrong("D46", "remove_unclaimed", of=Removing)
async def looks_at_the_oldest_accounts_only(call: Call) -> Any:
    """However often they are in use."""
    store, edge = call.store, call.at - call.idle
    accounts = sorted(map(Account._make, store._accounts.rows.values()), key=lambda a: a.created_at)
    unclaimed = [one for one in accounts if one.claimed_by is None]
    removed = [one for one in unclaimed[: call.limit] if store.goes(one, edge)]
    for one in removed:
        store.take(one)
    store.local_version = object()
    return tuple(sorted(one.organization for one in removed))


@wrong("K4 D46", "remove_unclaimed", parts=("accounts",))
async def removes_a_hundred_keys_with_an_account(call: Call) -> Any:
    keys = call.store._keys
    rows = [key for one in [*call.store._accounts.rows] for key in keys.all(one)[100:]]
    removed = await call()
    for key in rows:
        if key.organization in removed:
            keys.removed.pop(key.handle, None)
            keys.insert(key)
    return removed


# What one verb restores that another has changed.
def _restores(rows_of: Callable[[Any], Any], kind: Any, *columns: str) -> How:
    """Return a mistake: a verb reads rows, changes some, and writes these columns of all back."""

    async def how(call: Call) -> Any:
        with call.store._lock:
            before = dict(rows_of(call.store))
        gap()
        answer = await call()
        rows = rows_of(call.store)
        with call.store._lock:
            for name in before.keys() & rows.keys():
                old = kind(*before[name])
                kept = {column: getattr(old, column) for column in columns}
                rows[name] = tuple(kind(*rows[name])._replace(**kept))[: len(before[name])]
        return answer

    return how


def _of_keys(*columns: str) -> How:
    return _restores(lambda store: store._rows, ApiKey, *columns)


def _of_accounts(*columns: str) -> How:
    return _restores(lambda store: store._accounts.rows, Account, *columns)


_DIGEST: Final = ("scheme", "digest", "seal")
_TOKEN: Final = _of_accounts("token_revoked_at")
_SIGNED: Final = _of_accounts("sign_outs", "signed_in_at")


async def _restores_plans(call: Call) -> Any:
    before = dict(call.store._placed)
    gap()
    answer = await call()
    call.store._placed.update(before)
    return answer


async def _restores_slots(call: Call) -> Any:
    store = call.store
    before = {one: store.slots(one) for one, field in store._budgets._budgets if field == SLOTS}
    gap()
    answer = await call()
    for one, slots in before.items():
        store.put_slots(one, slots)
    return answer


several(
    {
        "usage_restores_digests": ("K9 D43 K3 W3", "add_usage", _of_keys(*_DIGEST)),
        "usage_restores_fields": ("D43 K3 K9", "add_usage", _of_keys("name", "details")),
        "rehash_restores_fields": ("D43 K3 K9 K1", "rehash_if", _of_keys("name", "details")),
        "rehash_restores_scopes": ("D43 K3 K7 K9 W3", "rehash_if", _of_keys("scopes")),
        "rehash_restores_the_end": ("D43 K3 K7 K9 W3", "rehash_if", _of_keys("expires_at")),
        "revocation_restores_digests": ("K9 D43 K3 W3", "revoke_if_live", _of_keys(*_DIGEST)),
        "insertion_restores_revocations": ("K3 D43 W3 D4 K4", "insert", _of_keys("revoked_at")),
        "sign_in_restores_digests": ("K9 D15", "sign_in", _of_accounts(*_DIGEST)),
        "sign_in_restores_sign_outs": ("D15", "sign_in", _of_accounts("sign_outs")),
        "sign_in_restores_tokens": ("D46", "sign_in", _TOKEN),
        "sign_out_restores_tokens": ("D46", "sign_out", _TOKEN),
        "rehash_restores_tokens": ("D46", "rehash_token_if", _TOKEN),
        "sign_out_restores_sign_ins": ("D15", "sign_out", _of_accounts("signed_in_at")),
        "rehash_restores_sign_outs": ("D15", "rehash_token_if", _of_accounts("sign_outs")),
        "claim_restores_sign_outs": ("D15", "claim_if_unclaimed", _SIGNED),
        "plan_restores_sign_outs": ("D15", "put_organization", _SIGNED),
        "sign_out_restores_the_plan": ("D25", "sign_out", _restores_plans),
    },
    parts=("keys", "accounts"),
)
several(
    {
        "plan_restores_leases": ("L3 D25", "put_organization", _restores_slots),
        "lease_restores_the_plan": ("D25", "acquire", _restores_plans),
    },
    parts=("admission",),
)
