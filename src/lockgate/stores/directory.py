"""The directory: every operation on keys, accounts, plans and the change log, over rows.

Each operation reads rows, decides, and commits on the condition that they are unchanged; if they
are not, it reads them again. So it is written once for every store, and no store has a rule of its
own: it applies a :class:`~lockgate.stores.rows.Commit`.
"""

from collections.abc import Callable
from random import random
from secrets import token_hex
from typing import Final, Generic, NamedTuple, TypeVar

from ..core.accounts import Account, AccountDraft
from ..core.api_keys import ApiKey, KeyDraft, KeyState, Position
from ..core.changes import ChangeDraft, plan_fields
from ..core.digests import Digest
from ..core.key_search import KeySearch
from ..core.plans import Organization
from ..core.row_seals import counted_account, counted_key, tally
from ..errors import HandleTaken, KeyLimitReached
from ..sync import pause
from .answers import (
    UNSEALED,
    Census,
    FoundKeys,
    FoundOrganizations,
    LogPage,
    OutcomeUnknown,
    Page,
    Removal,
    Reseal,
    Rows,
    StoreError,
)
from .committed import committing
from .key_store import KeyStore
from .rows import (
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
    STAMP,
    Commit,
    Ended,
    Index,
    Outcome,
    Read,
    Summaries,
    Unused,
    Write,
    owner_of,
    without_usage,
)

RowT = TypeVar("RowT", ApiKey, Account, Organization)

ATTEMPTS_AT_MOST: Final = 100
"""Commits of one operation that find their rows changed, before it gives up."""
_LONGEST_PAUSE: Final = 0.02
"""Seconds."""
_COUNTED_AT_ONCE: Final = 1000
_SEARCHED_AT_ONCE: Final = 500
_WALKED_AT_ONCE: Final = 20
"""Organizations per step of a removal."""


class _Changed(NamedTuple, Generic[RowT]):
    """A row after an operation, and whether the operation has changed it."""

    row: RowT | None
    is_changed: bool


class Directory(KeyStore):
    """Operations on the rows of a store.

    An operation returns once its change holds on every process that shares the store. A new key or
    account is unknown to earlier answers, so creating one voids none. An operation whose commit was
    made, and after which a step failed, raises :class:`~lockgate.errors.ChangeCommitted` with its
    own result (D52).
    """

    # Keys

    async def insert(
        self,
        draft: KeyDraft,
        cap: int | None,
        now: int | None = None,
        *,
        change: ChangeDraft | None = None,
    ) -> ApiKey:
        """Insert a key, created now or with the history of the draft, and return it.

        The cap is on the organization's live keys (neither revoked nor expired) and holds under
        any concurrency (K8).

        Raises:
            HandleTaken: a key of any organization has this handle, or had it before its removal.
            KeyLimitReached: the organization has ``cap`` live keys.
        """
        write = Write(None, None, _created(draft))
        outcome = await self._commit(draft.organization, (write,), now, change=change, room=cap)
        if outcome.verdict == "changed":
            raise HandleTaken
        return _key(outcome, 0)

    async def find(self, handle: str) -> ApiKey | None:
        """Return the key with this handle, of any organization and state; None without one."""
        return (await self.read(KEY_BY_HANDLE, (handle,))).first

    async def get(self, organization: str, id: str) -> ApiKey | None:
        """Return the key with this id if it belongs to the organization, else None (K6)."""
        return (await self.read(KEY_BY_ID, (organization, id))).first

    async def list(self, organization: str, limit: int, after: Position | None = None) -> Page:
        """Return keys of the organization in any state: newest first, then by id (D10).

        Args:
            organization: its id.
            limit: the most keys, 1 to :data:`~lockgate.stores.base.PAGE_AT_MOST`; a shorter page is
                the last.
            after: ``created_at`` and id of the key after which the page begins, which may have been
                removed since.
        """
        return (await self.read(KEYS_BY_CREATION, (organization,), limit, after)).rows

    async def list_live(
        self,
        organization: str,
        limit: int,
        after: Position | None = None,
        now: int | None = None,
    ) -> Page:
        """Return live keys of the organization: latest ``ends_at`` first, then by descending id.

        As :meth:`list`, with ``after`` as the ``ends_at`` and the id of a key. A key that is live
        during all calls of a walk through the pages is in exactly one of them.
        """
        read = await self.read(KEYS_BY_END, (organization,), limit, after, now)
        return [key for key in read.rows if key.ends_at > read.now]

    @committing
    async def revoke_if_live(
        self,
        organization: str,
        id: str,
        now: int | None = None,
        *,
        change: ChangeDraft | None = None,
    ) -> ApiKey | None:
        """Set ``revoked_at`` if it is not set yet, and return the key as changed.

        A revoked key stays unchanged (D4). None: the organization has no such key. Once this has
        returned, no admission that starts later succeeds, on any process that shares the store
        (K4).
        """

        def revoked(key: ApiKey) -> ApiKey | None:
            return key._replace(revoked_at=STAMP) if key.revoked_at is None else None

        key, is_new = await self._changed(KEY_BY_ID, (organization, id), revoked, now, change)
        if key is not None and not is_new:
            # Whatever revoked it may have failed before copies and leases of the key had ended.
            await self._commit(organization, (), now, void=True)
        return key

    @committing
    async def update_if(
        self,
        old: ApiKey,
        new: ApiKey,
        now: int | None = None,
        *,
        change: ChangeDraft | None = None,
    ) -> bool:
        """Replace a key that is live and still is ``old`` by ``new``, in one atomic step (D43).

        ``new`` may differ in its name, scopes, expiry, seal and details. Usage is neither compared
        nor changed. False, without a change: the organization has no such key, it differs from
        ``old``, or it ended. As with :meth:`revoke_if_live`, this holds on every process once the
        call has returned: no admission that starts later gets the scopes or the expiry of before.
        """
        outcome = await self._commit_if(old, (Write(old, None, new, live=True),), now, change)
        return outcome.verdict == "done"

    @committing
    async def rotate_if(
        self,
        old: ApiKey,
        new: ApiKey,
        successor: KeyDraft,
        cap: int | None,
        now: int | None = None,
        *,
        change: ChangeDraft | None = None,
    ) -> ApiKey | None:
        """Do :meth:`update_if` and :meth:`insert` a successor of the same organization, in one
        atomic step; return the successor (D43).

        ``new`` may be revoked as well, for a key that ends at once. The cap counts live keys after
        the update, so only a key that ends at once makes room for its successor (K8). Returns None,
        without a change, if ``update_if`` would return False.

        Raises:
            HandleTaken: as :meth:`insert`, without a change.
            KeyLimitReached: as :meth:`insert`, without a change.
        """
        if new.revoked_at is not None:
            new = new._replace(revoked_at=STAMP)
        writes = Write(old, None, new, live=True), Write(None, None, _created(successor))
        outcome = await self._commit_if(old, writes, now, change, cap)
        return _key(outcome, 1) if outcome.verdict == "done" else None

    @committing
    async def rehash_if(
        self, handle: str, old: Digest, new: Digest, *, known: ApiKey | None = None
    ) -> bool:
        """Replace digest and seal if both still are ``old``, in one atomic step (K3, K9).

        The other fields stay unchanged. ``known`` is the key as the caller has read it.
        """

        def rehashed(key: ApiKey) -> ApiKey | None:
            if key.kept != old:
                return None
            return key._replace(scheme=new.scheme, digest=new.value, seal=new.seal)

        changed = await self._changed(KEY_BY_HANDLE, (handle,), rehashed, known=known)
        return changed.is_changed

    @committing
    async def remove_ended(
        self, age: int, now: int | None = None, cursor: str | None = None
    ) -> Removal:
        """Remove keys, with their usage, that ended at least ``age`` microseconds ago (D45).

        One step, bounded in time, of a walk that begins without a cursor and continues with the
        cursor of the step before. When a step returns no cursor, all keys that were due when the
        walk began are removed. Several processes may walk at once: one of them counts each key.

        The same walk removes records of the change log that are at least as old; they are not in
        the number. A record may stay until those before it are due, too.

        No operation finds a removed key, and its handle stays taken.
        """
        until = await self._at(now) - age
        step = await self.walk(Ended(until), _WALKED_AT_ONCE, cursor or None)
        removed, again = 0, False
        for owner in step.owners:
            outcome = await self._repeated(Commit(owner, token_hex(8), remove_ended=until), now)
            removed += outcome.ended
            again = again or outcome.more
        return Removal(removed, cursor or _FROM_START if again else step.cursor)

    async def census(self, now: int | None = None, cursor: str | None = None) -> Census:
        """Count live keys by digest scheme, to see whether a pepper is in use.

        Dashboard tokens that are not revoked count as well: the peppers digest them too. One step,
        bounded in time, of a walk as in :meth:`remove_ended`: the steps together count every key
        and token that exists during the whole walk exactly once.
        A row sealed with another pepper than its digest's also counts under
        ``seal:<pepper id>``, one without a seal under ``unsealed``; so does an account whose token
        is revoked. :func:`lockgate.core.row_seals.tally` counts.
        """
        at = await self._at(now)
        step = await self.walk(None, _COUNTED_AT_ONCE, cursor)
        keys = [counted_key(key) for key in step.keys if key.state(at) is KeyState.ACTIVE]
        return Census(tally([*keys, *map(counted_account, step.accounts)]), step.cursor)

    async def scan(self, cursor: str | None, limit: int) -> Rows:
        """Return some keys and accounts of all organizations, to walk all of them in steps.

        Each key and account that exists during the whole walk is in at least one step.
        """
        step = await self.walk(None, limit, cursor)
        return Rows(step.keys, step.accounts, step.cursor)

    async def search(self, wanted: KeySearch, limit: int, cursor: str | None = None) -> FoundKeys:
        """Return keys of all organizations, in any state, that a search finds: one step of a walk,
        bounded in time, of about ``limit`` keys."""
        step = await self.walk(wanted, limit, cursor)
        return FoundKeys(step.keys, step.cursor)

    # Plans

    async def organization(self, id: str) -> Organization | None:
        """Return the assigned plan of an organization, or None."""
        return (await self.read(PLAN, (id,))).first

    @committing
    async def put_organization(
        self,
        organization: Organization,
        now: int | None = None,
        *,
        change: ChangeDraft | None = None,
    ) -> None:
        """Assign a plan and limits, which hold from the next admission on (W13).

        The ``before`` of the change record becomes the plan that was replaced
        (:func:`~lockgate.core.changes.plan_fields`), and none is kept if that is the same.
        """
        for attempt in range(ATTEMPTS_AT_MOST):
            await _step_aside(attempt)
            read = await self.read(PLAN.to_change, (organization.id,))
            old, draft = read.first, None
            if change is not None and old != organization:
                draft = change._replace(before=plan_fields(old))
            write = Write(old, read.version, organization)
            outcome = await self._commit(organization.id, (write,), now, change=draft)
            if outcome.verdict == "done":
                return
        raise _too_often(organization.id)

    @committing
    async def organization_changed(self, id: str) -> None:
        """Forget copies of an organization's plan, which the host keeps and has changed.

        Admissions that start after this has returned apply the new plan, on any process that shares
        the store.
        """
        await self._commit(id, (), None, void=True)

    async def organizations(
        self, limit: int, now: int | None = None, cursor: str | None = None
    ) -> FoundOrganizations:
        """Return organizations that have a key, in any state, or an assigned plan: one step,
        bounded in time, of a walk."""
        step = await self.walk(Summaries(now), limit, cursor)
        return FoundOrganizations(step.organizations, step.cursor)

    # Accounts

    async def register(
        self,
        account: AccountDraft,
        key: KeyDraft,
        now: int | None = None,
        *,
        change: ChangeDraft | None = None,
    ) -> tuple[Account, ApiKey]:
        """Insert a new account together with its organization's first key, both created now.

        All or nothing (R1).

        Raises:
            HandleTaken: another key has or had the key's handle, another account has the token's
                handle, or the organization has an account already. The store is unchanged.
        """
        new = account.created(0)._replace(created_at=STAMP)
        writes = Write(None, None, new), Write(None, None, _created(key))
        outcome = await self._commit(account.organization, writes, now, change=change)
        if outcome.verdict == "changed":
            raise HandleTaken
        return _account(outcome), _key(outcome, 1)

    async def account(self, organization: str) -> Account | None:
        """Return the account of an organization, or None if no agent registered it."""
        return (await self.read(ACCOUNT, (organization,))).first

    async def account_by_token(self, handle: str) -> Account | None:
        """Return the account of the dashboard token with this handle, revoked or not."""
        return (await self.read(ACCOUNT_BY_TOKEN, (handle,))).first

    async def unclaimed_by_email(
        self, billing_email: str, limit: int, after: Position | None = None
    ) -> tuple[Account, ...]:
        """Return unclaimed accounts with exactly this billing e-mail: oldest first, then by
        organization."""
        return tuple((await self.read(ACCOUNTS_BY_EMAIL, (billing_email,), limit, after)).rows)

    async def accounts_by_user(
        self, user: str, limit: int, after: Position | None = None
    ) -> tuple[Account, ...]:
        """Return accounts that exactly this user has claimed: the latest claim first, then by
        organization, the greatest id first."""
        return tuple((await self.read(ACCOUNTS_BY_USER, (user,), limit, after)).rows)

    @committing
    async def claim_if_unclaimed(
        self,
        organization: str,
        user: str,
        *,
        revoke: bool,
        keep_token: bool,
        seals: Reseal = UNSEALED,
        now: int | None = None,
        change: ChangeDraft | None = None,
    ) -> Account | None:
        """Assign an unclaimed account to a user, and return the account as changed.

        One atomic step, with one winner (R3): ``claimed_by`` and ``claimed_at`` are set together
        and never change, so a later call returns the first user's account unchanged. None: the
        organization has no account.

        The same step replaces the account's seal, which must be the first of ``seals``, by the
        second. With any other seal the account stays unclaimed and is returned unchanged.

        If the account now belongs to the user, by this call or an earlier one, the same step also

        - sets ``token_revoked_at`` if it is not set, unless ``keep_token`` is true (D46);
        - with ``revoke``, revokes every live key of the organization, also a key that appears
          between the reading of the account and the step (K4).
        """
        for attempt in range(ATTEMPTS_AT_MOST):
            await _step_aside(attempt)
            read = await self.read(ACCOUNT, (organization,))
            old = new = read.first
            if old is None or new is None:
                return None
            if new.claimed_by is None and new.seal == seals[0]:
                new = new._replace(claimed_by=user, claimed_at=STAMP, seal=seals[1])
            mine = new.claimed_by == user
            if mine and not keep_token and new.token_revoked_at is None:
                new = new._replace(token_revoked_at=STAMP)
            if new == old and not mine:
                return old
            write = Write(old, read.version, new)
            # An earlier call may have failed before its change held everywhere.
            again, revoke_all = new == old, mine and revoke
            outcome = await self._commit(
                organization, (write,), now, change=change, revoke_all=revoke_all, void=again
            )
            if outcome.verdict == "done":
                return _account(outcome)
        raise _too_often(organization)

    @committing
    async def remove_unclaimed(
        self,
        idle: int,
        limit: int,
        now: int | None = None,
        *,
        change: ChangeDraft | None = None,
    ) -> tuple[str, ...]:
        """Remove accounts that were neither claimed nor used for a time, and return the ids of
        their organizations in ascending order (D46).

        An account is removed if it is unclaimed, its organization has no assigned plan, and its
        :func:`~lockgate.core.accounts.last_use` is at most ``now - idle``. All keys of the
        organization are removed in the same atomic step: a concurrent claim, sign-in or admission
        finds the account whole or removed, and if it came first, the account stays.

        Args:
            idle: the least time without use, in microseconds.
            limit: the most accounts to read.
            now: the present instant; None: the store's clock.
        """
        since = await self._at(now) - idle
        removed: set[str] = set()
        for owner in (await self.walk(Unused(since), limit)).owners[:limit]:
            commit = Commit(owner, token_hex(8), remove_unused=since, change=change)
            if (await self._repeated(commit, now)).verdict == "done":
                removed.add(owner)
        return tuple(sorted(removed))

    async def sign_in(
        self, organization: str, now: int | None = None, *, known: Account | None = None
    ) -> Account | None:
        """Record that the agent of an account begins a session; return the account as changed.

        Atomic: ``signed_in_at`` becomes ``now``, or stays if it is later. None, without a change:
        the organization has no account, or its dashboard token was revoked. ``known`` is the
        account as the caller has read it.
        """

        def signed_in(account: Account) -> Account | None:
            if account.token_revoked_at is not None:
                return None
            return account._replace(signed_in_at=STAMP - (account.signed_in_at or 0))

        account, is_changed = await self._changed(
            ACCOUNT, (organization,), signed_in, now, known=known
        )
        return account if is_changed else None

    @committing
    async def sign_out(self, organization: str) -> None:
        """Add one to ``sign_outs`` of an organization's account, if it has one; atomic."""

        def signed_out(account: Account) -> Account:
            return account._replace(sign_outs=account.sign_outs + 1)

        await self._changed(ACCOUNT, (organization,), signed_out)

    async def rehash_token_if(self, handle: str, old: Digest, new: Digest) -> bool:
        """Replace a dashboard token's digest and seal if both still are ``old`` (K9).

        The other fields stay unchanged.
        """

        def rehashed(account: Account) -> Account | None:
            if account.kept != old:
                return None
            return account._replace(scheme=new.scheme, digest=new.value, seal=new.seal)

        return (await self._changed(ACCOUNT_BY_TOKEN, (handle,), rehashed)).is_changed

    # The change log

    async def change_log(self, organization: str, limit: int, before: int | None = None) -> LogPage:
        """Return records of exactly this organization, the newest first.

        At most ``limit`` of them (1 to :data:`~lockgate.stores.base.PAGE_AT_MOST`), with numbers
        less than ``before``; None: from the newest on. A shorter page is the last.
        """
        after = None if before is None else Position(before, "")
        return (await self.read(LOG, (organization,), limit, after)).rows

    # How an operation changes rows

    async def _changed(
        self,
        index: Index[RowT],
        prefix: tuple[str, ...],
        decide: Callable[[RowT], RowT | None],
        now: int | None = None,
        change: ChangeDraft | None = None,
        known: RowT | None = None,
    ) -> "_Changed[RowT]":
        """Replace the first row by what ``decide`` makes of it; None: keep it.

        A row that the caller has read is not read again, unless it has changed.

        Raises:
            StoreError: others changed the row each time.
        """
        read: Read[RowT] | None = None if known is None else Read([known], [None], 0)
        for attempt in range(ATTEMPTS_AT_MOST):
            if read is None:
                await _step_aside(attempt - (known is not None))
                read = await self.read(index.to_change, prefix)
            old = read.first
            new = None if old is None else decide(old)
            if old is None or new is None:
                return _Changed(old, False)
            write = Write(old, read.version, new)
            outcome = await self._commit(owner_of(old), (write,), now, change=change)
            if outcome.verdict == "done":
                (kept,) = outcome.rows
                assert isinstance(kept, type(old)), "by the contract of commit"
                return _Changed(kept, True)
            read = None
        raise _too_often(str(prefix[0]))

    async def _commit_if(
        self,
        old: ApiKey,
        writes: tuple[Write, ...],
        now: int | None,
        change: ChangeDraft | None,
        room: int | None = None,
    ) -> Outcome:
        """Commit writes, the first of them if a key still is as a caller has read it.

        The store may answer ``changed`` because another release wrote the row. So it is read then.
        """
        outcome = await self._commit(old.organization, writes, now, change=change, room=room)
        if outcome.verdict == "changed":
            read = await self.read(KEY_BY_ID.to_change, (old.organization, old.id))
            if without_usage(read.first) == without_usage(old):
                writes = writes[0]._replace(version=read.version), *writes[1:]
                return await self._commit(old.organization, writes, now, change=change, room=room)
        return outcome

    async def _commit(
        self,
        owner: str,
        writes: tuple[Write, ...],
        now: int | None,
        *,
        change: ChangeDraft | None = None,
        room: int | None = None,
        revoke_all: bool = False,
        void: bool = False,
    ) -> Outcome:
        """Commit writes.

        Raises:
            HandleTaken, KeyLimitReached: by the outcome.
        """
        id = token_hex(8)
        commit = Commit(
            owner, id, writes, revoke_all=revoke_all, room=room, change=change, void=void
        )
        outcome = await self._repeated(commit, now)
        if outcome.verdict == "taken":
            raise HandleTaken
        if outcome.verdict == "full" and room is not None:
            raise KeyLimitReached(room)
        return outcome

    async def _repeated(self, commit: Commit, now: int | None) -> Outcome:
        """Commit, once more if the reply was lost: the store makes a commit of one id once."""
        try:
            return await self.commit(commit, now)
        except OutcomeUnknown:
            return await self.commit(commit, now)

    async def _at(self, now: int | None) -> int:
        """Return the caller's instant, or the store's clock."""
        return await self.now() if now is None else now


_FROM_START: Final = ""
"""The cursor of a walk that begins again."""


def _created(draft: KeyDraft) -> ApiKey:
    """Return a new key, created at the step, or with its history."""
    key = draft.created(0)
    return key if draft.history is not None else key._replace(created_at=STAMP)


def _key(outcome: Outcome, place: int) -> ApiKey:
    key = outcome.rows[place]
    assert isinstance(key, ApiKey), "by the contract of commit"
    return key


def _account(outcome: Outcome) -> Account:
    account = outcome.rows[0]
    assert isinstance(account, Account), "by the contract of commit"
    return account


async def _step_aside(attempt: int) -> None:
    """Wait before another attempt, a random time.

    Callers that change one row in a loop would else keep step: one of them reads again as soon as
    it has committed, and overtakes the others each time.
    """
    if attempt:
        await pause(random() * _LONGEST_PAUSE)  # noqa: S311 - no secret


def _too_often(name: str) -> StoreError:
    return StoreError(f"{name!r} changed {ATTEMPTS_AT_MOST} times while it was to be changed")
