"""The store contract as a pure value: each verb's answer, and the world after it.

A :class:`World` is immutable, and a verb is a function from a world to an answer and the next one.
It uses the rules of ``core`` with the time as an argument, so that stores can be compared step by
step, and a search can return to an earlier world.
"""

from collections.abc import Callable, Mapping
from inspect import signature
from typing import Any, Final, NamedTuple

from ..core.accounts import Account, AccountDraft, last_use
from ..core.api_keys import ApiKey, KeyDraft, KeyState, Position
from ..core.changes import Change, ChangeDraft, plan_fields
from ..core.digests import Digest
from ..core.key_format import Token
from ..core.key_search import KeySearch
from ..core.ledger import Action, HitLeased, Ledger, change_of
from ..core.limits import Limit
from ..core.plans import Organization, PlanBook
from ..core.quota_leases import LeaseRequest
from ..core.row_seals import counted_account, counted_key, tally
from ..errors import HandleTaken, KeyLimitReached
from ..stores.answers import (
    REFUSED_BY_STATE,
    UNKNOWN,
    UNSEALED,
    Admission,
    Census,
    FoundKeys,
    FoundOrganizations,
    OrganizationSummary,
    Page,
    Removal,
    Reseal,
    Usage,
    UsageBatch,
    Verdict,
    holder_of,
    limits_of,
)
from .calls import WALKS, Call, raised


class World(NamedTuple):
    """The data of a store."""

    keys: Mapping[str, ApiKey] = {}
    """By handle."""
    ledgers: Mapping[str, Ledger] = {}
    """By organization, like the rest."""
    organizations: Mapping[str, Organization] = {}
    accounts: Mapping[str, Account] = {}
    removed: Mapping[str, None] = {}
    """Handles of removed keys."""
    changes: Mapping[str, tuple[Change, ...]] = {}
    """By organization, the oldest first."""
    batches: Mapping[str, int] = {}
    """The number of the latest batch of usage, by writer."""

    def fingerprint(self) -> object:
        """A hashable value, equal for equal worlds."""
        apart = [
            (
                owner,
                *ledger[:3],
                ledger.promises,
                frozenset(ledger.limits.items()),
                frozenset(ledger.budgets.items()),
            )
            for owner, ledger in self.ledgers.items()
        ]
        others = self._replace(ledgers={})
        return frozenset(apart), *(frozenset(part.items()) for part in others)

    def ledger(self, owner: str) -> Ledger:
        """Return the ledger of an organization, or of other windows."""
        return self.ledgers.get(owner, Ledger(owner))

    def of(self, organization: str) -> list[ApiKey]:
        """Return the keys of an organization, in any order."""
        return [key for key in self.keys.values() if key.organization == organization]


def expect(world: World, call: Call) -> tuple[Any, World]:
    """Return the expected answer to a call, and the world after it."""
    verb: Callable[..., tuple[Any, World]] = VERBS[call.verb]
    try:
        return verb(world, *call.arguments, **dict(call.options))
    except Exception as error:
        return raised(error), world


_DATED_BY_CHANGE: Final = frozenset({"put_organization"})
"""Verbs whose ``now`` is that of the change record alone."""
_UNDATED: Final = "without now it goes by the store's clock, which the model does not have"


def unjudged(call: Call) -> str | None:
    """Return why the model cannot tell the answer to one call; None: it can."""
    if call.verb not in VERBS:
        return "the model does not have this verb"
    if call.verb in WALKS:
        return "a walk is made in several steps"
    verb = signature(VERBS[call.verb])
    try:
        given = verb.bind(World(), *call.arguments, **dict(call.options)).arguments
    except TypeError as error:
        return str(error) if "'now'" not in str(error) else _UNDATED
    dated = "now" in verb.parameters and (call.verb not in _DATED_BY_CHANGE or given.get("change"))
    if dated and given.get("now") is None:
        return _UNDATED
    return None


def insert(
    world: World, draft: KeyDraft, cap: int | None, now: int, *, change: ChangeDraft | None = None
) -> tuple[ApiKey, World]:
    if draft.handle in world.keys or draft.handle in world.removed:
        raise HandleTaken
    live = [key for key in world.of(draft.organization) if key.state(now) is KeyState.ACTIVE]
    if cap is not None and len(live) >= cap:
        raise KeyLimitReached(cap)
    key = draft.created(now)
    return key, _logged(_with_key(world, key), draft.organization, change, now)


def find(world: World, handle: str) -> tuple[ApiKey | None, World]:
    return world.keys.get(handle), world


def get(world: World, organization: str, id: str) -> tuple[ApiKey | None, World]:
    return next((key for key in world.of(organization) if key.id == id), None), world


def list_keys(
    world: World, organization: str, limit: int, after: Position | None = None
) -> tuple[Page, World]:
    keys = sorted(world.of(organization), key=lambda key: (-key.created_at, key.id))
    if after is not None:
        keys = [k for k in keys if (-k.created_at, k.id) > (-after.instant, after.id)]
    return keys[:limit], world


def list_live(
    world: World, organization: str, limit: int, after: Position | None, now: int
) -> tuple[Page, World]:
    live = [key for key in world.of(organization) if key.state(now) is KeyState.ACTIVE]
    if after is not None:
        live = [key for key in live if (key.ends_at, key.id) < after]
    live.sort(key=lambda key: (key.ends_at, key.id), reverse=True)
    return live[:limit], world


def revoke_if_live(
    world: World, organization: str, id: str, now: int, *, change: ChangeDraft | None = None
) -> tuple[ApiKey | None, World]:
    key, _ = get(world, organization, id)
    if key is None or key.revoked_at is not None:
        return key, world
    revoked = key._replace(revoked_at=now)
    return revoked, _logged(_with_key(world, revoked), organization, change, now)


def update_if(
    world: World, old: ApiKey, new: ApiKey, now: int, *, change: ChangeDraft | None = None
) -> tuple[bool, World]:
    key = world.keys.get(old.handle)
    if key is None or key[:-2] != old[:-2] or key.state(now) is not KeyState.ACTIVE:
        return False, world
    world = _with_key(world, ApiKey(*new[:-2], *key[-2:]))
    return True, _logged(world, old.organization, None if new == old else change, now)


def rotate_if(
    world: World,
    old: ApiKey,
    new: ApiKey,
    successor: KeyDraft,
    cap: int | None,
    now: int,
    *,
    change: ChangeDraft | None = None,
) -> tuple[ApiKey | None, World]:
    is_done, after = update_if(world, old, new, now)
    return insert(after, successor, cap, now, change=change) if is_done else (None, world)


def rehash_if(world: World, handle: str, old: Digest, new: Digest) -> tuple[bool, World]:
    key = world.keys.get(handle)
    if key is None or key.kept != old:
        return False, world
    return True, _with_key(world, key._replace(**_columns(new)))


def add_usage(
    world: World, usage: Mapping[str, Usage], batch: UsageBatch | None = None
) -> tuple[None, World]:
    if batch is not None:
        if batch.number <= world.batches.get(batch.writer, 0):
            return None, world
        world = world._replace(batches={**world.batches, batch.writer: batch.number})
    for handle, (requests, last) in usage.items():
        key = world.keys.get(handle)
        if key is not None:
            world = _with_key(world, _used(key, requests, last))
    return None, world


def remove_ended(world: World, age: int, now: int) -> tuple[Removal, World]:
    due = {handle for handle, key in world.keys.items() if key.ends_at <= now - age}
    keys = {handle: key for handle, key in world.keys.items() if handle not in due}
    removed = {**world.removed, **dict.fromkeys(due)}
    kept = {
        organization: tuple(change for change in changes if change.at > now - age)
        for organization, changes in world.changes.items()
    }
    world = world._replace(keys=keys, removed=removed, changes=kept)
    return Removal(len(due), None), world


def change_log(
    world: World, organization: str, limit: int, before: int | None = None
) -> tuple[list[Change], World]:
    newest = reversed(world.changes.get(organization, ()))
    found = [change for change in newest if before is None or change.number < before]
    return found[:limit], world


def census(world: World, now: int) -> tuple[Census, World]:
    live = [key for key in world.keys.values() if key.state(now) is KeyState.ACTIVE]
    rows = *map(counted_key, live), *map(counted_account, world.accounts.values())
    return Census(tally(rows), None), world


def charge(world: World, owner: str, action: Action[Any], now: int = 0) -> tuple[Any, World]:
    answer, ledger = action.apply(world.ledger(owner), now)
    world = world._replace(ledgers={**world.ledgers, owner: ledger})
    return answer, _logged(world, owner, change_of(action), now)


def search(world: World, wanted: KeySearch, limit: int) -> tuple[FoundKeys, World]:
    """The keys are in the order of their ids, as a walk through a store is summed up."""
    found = [key for key in world.keys.values() if wanted.finds(key)]
    return FoundKeys(sorted(found, key=lambda key: key.id), None), world


def organizations(world: World, limit: int, now: int) -> tuple[FoundOrganizations, World]:
    """The organizations are in the order of their ids."""
    ids = {key.organization for key in world.keys.values()} | world.organizations.keys()
    found: list[OrganizationSummary] = []
    for id in sorted(ids):
        live = [key for key in world.of(id) if key.state(now) is KeyState.ACTIVE]
        used = [key.last_used_at for key in live if key.last_used_at is not None]
        placed, latest = world.organizations.get(id), max(used, default=None)
        found.append(OrganizationSummary(id, placed, len(live), latest))
    return FoundOrganizations(found, None), world


def organization(world: World, id: str) -> tuple[Organization | None, World]:
    return world.organizations.get(id), world


def put_organization(
    world: World,
    organization: Organization,
    now: int = 0,
    *,
    change: ChangeDraft | None = None,
) -> tuple[None, World]:
    before = world.organizations.get(organization.id)
    placed = {**world.organizations, organization.id: organization}
    world = world._replace(organizations=placed)
    if change is not None and before != organization:
        change = change._replace(before=plan_fields(before))
        world = _logged(world, organization.id, change, now)
    return None, world


def admit(
    world: World,
    token: Token,
    cost: int,
    plans: PlanBook,
    now: int,
    address: str | None = None,
    limits: tuple[Limit, ...] = (),
    lease: LeaseRequest | None = None,
) -> tuple[Admission, World]:
    key = world.keys.get(token.handle)
    if key is None or not token.accepts(key):
        return UNKNOWN, world
    state = key.state(now)
    if state is not KeyState.ACTIVE:
        return Admission(REFUSED_BY_STATE[state], key), world
    if key.details is not None and not key.details.allows(address):
        return Admission(Verdict.ELSEWHERE, key), world
    plan = plans.plan_of(world.organizations.get(key.organization), now)
    named = limits_of(limits, plan, key, now)
    hit = HitLeased(plan.windows, cost, lease, named, holder_of(key, plan))
    (reading, granted), world = charge(world, key.organization, hit, now)
    if not reading.allowed:
        return Admission(Verdict.LIMITED, key, plan, reading, named, granted), world
    key = _used(key, 1, now)
    return Admission(Verdict.ADMITTED, key, plan, reading, named, granted), _with_key(world, key)


def register(
    world: World,
    account: AccountDraft,
    key: KeyDraft,
    now: int,
    *,
    change: ChangeDraft | None = None,
) -> tuple[tuple[Account, ApiKey], World]:
    tokens = {other.handle for other in world.accounts.values()}
    if account.organization in world.accounts or account.handle in tokens:
        raise HandleTaken
    first, world = insert(world, key, None, now, change=change)
    made = account.created(now)
    return (made, first), _with_account(world, made)


def account(world: World, organization: str) -> tuple[Account | None, World]:
    return world.accounts.get(organization), world


def account_by_token(world: World, handle: str) -> tuple[Account | None, World]:
    return next((one for one in world.accounts.values() if one.handle == handle), None), world


def unclaimed_by_email(
    world: World, billing_email: str, limit: int, after: Position | None = None
) -> tuple[tuple[Account, ...], World]:
    found = [
        (Position(one.created_at, one.organization), one)
        for one in world.accounts.values()
        if one.billing_email == billing_email and one.claimed_by is None
    ]
    later = sorted(pair for pair in found if after is None or pair[0] > after)
    return tuple(one for _, one in later[:limit]), world


def accounts_by_user(
    world: World, user: str, limit: int, after: Position | None = None
) -> tuple[tuple[Account, ...], World]:
    found = [
        (Position(one.claimed_at or 0, one.organization), one)
        for one in world.accounts.values()
        if one.claimed_by == user
    ]
    later = sorted((pair for pair in found if after is None or pair[0] < after), reverse=True)
    return tuple(one for _, one in later[:limit]), world


def claim_if_unclaimed(
    world: World,
    organization: str,
    user: str,
    *,
    revoke: bool,
    keep_token: bool,
    seals: Reseal = UNSEALED,
    now: int,
    change: ChangeDraft | None = None,
) -> tuple[Account | None, World]:
    before, one = world, world.accounts.get(organization)
    if one is None:
        return None, world
    if one.claimed_by is None and one.seal == seals[0]:
        one = one._replace(claimed_by=user, claimed_at=now, seal=seals[1])
    if one.claimed_by == user:
        if not keep_token and one.token_revoked_at is None:
            one = one._replace(token_revoked_at=now)
        for key in world.of(organization) if revoke else ():
            if key.state(now) is KeyState.ACTIVE:
                _, world = revoke_if_live(world, organization, key.id, now)
    world = _with_account(world, one)
    return one, world if world == before else _logged(world, organization, change, now)


def remove_unclaimed(
    world: World, idle: int, limit: int, now: int, *, change: ChangeDraft | None = None
) -> tuple[tuple[str, ...], World]:
    """Beyond the limit a store may choose the accounts: see ``checks/concurrency.py``."""
    removed: list[str] = []
    for organization, one in world.accounts.items():
        keys = world.of(organization)
        if one.claimed_by is not None or organization in world.organizations:
            continue
        if last_use(one, keys) <= now - idle:
            removed.append(organization)
    assert len(removed) <= limit, "a check looks at fewer accounts than could go"
    accounts = {name: one for name, one in world.accounts.items() if name not in removed}
    kept = {handle: key for handle, key in world.keys.items() if key.organization not in removed}
    gone = {**world.removed, **dict.fromkeys(world.keys.keys() - kept.keys())}
    world = world._replace(accounts=accounts, keys=kept, removed=gone)
    for organization in removed:
        world = _logged(world, organization, change, now)
    return tuple(sorted(removed)), world


def sign_in(world: World, organization: str, now: int) -> tuple[Account | None, World]:
    one = world.accounts.get(organization)
    if one is None or one.token_revoked_at is not None:
        return None, world
    one = one._replace(signed_in_at=max(now, one.signed_in_at or now))
    return one, _with_account(world, one)


def sign_out(world: World, organization: str) -> tuple[None, World]:
    one = world.accounts.get(organization)
    if one is not None:
        world = _with_account(world, one._replace(sign_outs=one.sign_outs + 1))
    return None, world


def rehash_token_if(world: World, handle: str, old: Digest, new: Digest) -> tuple[bool, World]:
    one, _ = account_by_token(world, handle)
    if one is None or one.kept != old:
        return False, world
    return True, _with_account(world, one._replace(**_columns(new)))


VERBS: Final[Mapping[str, Callable[..., tuple[Any, World]]]] = {
    "insert": insert,
    "find": find,
    "get": get,
    "list": list_keys,
    "list_live": list_live,
    "revoke_if_live": revoke_if_live,
    "update_if": update_if,
    "rotate_if": rotate_if,
    "rehash_if": rehash_if,
    "add_usage": add_usage,
    "remove_ended": remove_ended,
    "change_log": change_log,
    "census": census,
    "charge": charge,
    "search": search,
    "organizations": organizations,
    "organization": organization,
    "put_organization": put_organization,
    "admit": admit,
    "register": register,
    "account": account,
    "account_by_token": account_by_token,
    "unclaimed_by_email": unclaimed_by_email,
    "accounts_by_user": accounts_by_user,
    "claim_if_unclaimed": claim_if_unclaimed,
    "remove_unclaimed": remove_unclaimed,
    "sign_in": sign_in,
    "sign_out": sign_out,
    "rehash_token_if": rehash_token_if,
}


def _columns(digest: Digest) -> dict[str, Any]:
    return {"scheme": digest.scheme, "digest": digest.value, "seal": digest.seal}


def _used(key: ApiKey, requests: int, last: int) -> ApiKey:
    return key._replace(
        request_count=key.request_count + requests,
        last_used_at=max(last, key.last_used_at or last),
    )


def _logged(world: World, organization: str, change: ChangeDraft | None, now: int) -> World:
    if change is None:
        return world
    rows = world.changes.get(organization, ())
    made = change.made(rows[-1].number + 1 if rows else 1, now)
    return world._replace(changes={**world.changes, organization: (*rows, made)})


def _with_key(world: World, key: ApiKey) -> World:
    return world._replace(keys={**world.keys, key.handle: key})


def _with_account(world: World, one: Account) -> World:
    return world._replace(accounts={**world.accounts, one.organization: one})
