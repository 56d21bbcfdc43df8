"""The store contract: what each method of a store, called a verb, must guarantee.

Six small contracts have these verbs; :class:`Store` combines them and adds its own.

KeyStore      insert, find, get, list, list_live, revoke_if_live, update_if, rotate_if, rehash_if,
              add_usage, remove_ended, census
WindowStore   hit, peek, reset, settle_leases, quota_leases, leases_in_use, recalls
SlotStore     acquire, renew, release, held
HoldStore     hold
AccountStore  organization, put_organization, organization_changed, register, account,
              account_by_token, unclaimed_by_email, accounts_by_user, claim_if_unclaimed,
              remove_unclaimed, sign_in, sign_out, rehash_token_if
ChangeStore   change_log
Store         admit and admit_leased, the verbs of requests; now, add_history, history, scan,
              organizations, search, change_counter, freshness, warnings, watch, flush

All verbs are atomic: a caller never reads, decides and writes back.

Every method is ``async def``. ``io`` declares the I/O mode: ``none`` never waits (pure memory),
``sync`` blocks the calling thread, ``async`` awaits, and ``both`` awaits in an event loop and
blocks otherwise. WSGI supports all but ``async``.

Time: a shared store uses its server's clock, never the process's (D27). Every method that depends
on the time takes ``now`` (microseconds) for callers that bring their own clock; None means the
store's clock. State expires by the store's clock, counted from the call, not from ``now``: after
the longest window, or the organization's longest lease, at the earliest. A store that removes idle
state from time to time may do so by the instants of the calls, so a caller whose ``now`` is days
before the store's present may find its windows and leases gone.

Ids of organizations and jobs, and owners of slots, are opaque: any non-empty string of up to 128
characters (D36). Ids of users are opaque too, with up to 255. Windows of other owners, such as
addresses, have names of 129 to 192 ASCII characters, which cannot be an organization's id. All ids,
and the texts of change records, may hold any code point, NUL and lone surrogates included, and are
compared code point by code point: no store folds, trims, normalizes or escapes them. Names of keys,
agents, companies and plans, prefixes, labels and e-mail addresses hold neither control characters
nor surrogates, and come back as they were given.

:mod:`lockgate.stores.answers` has the values that verbs return, and the errors that they raise.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Final, Literal

from ..core.accounts import Account, AccountDraft
from ..core.api_keys import ApiKey, KeyDraft, Position
from ..core.changes import ChangeDraft
from ..core.digests import Digest
from ..core.holds import HoldAction, HoldAnswer
from ..core.key_format import Token
from ..core.key_search import KeySearch
from ..core.leases import Lease, SlotReading
from ..core.limit_windows import LimitWindows
from ..core.limits import Limit
from ..core.plans import Organization, PlanBook
from ..core.quota_leases import LeaseRequest, QuotaLeases, Settlement
from ..core.sliding_window import Reading, Window
from ..core.usage_history import UsageHistory
from ..events import Events
from .answers import (
    UNKNOWN,
    UNSEALED,
    Admission,
    Census,
    FoundKeys,
    FoundOrganizations,
    Freshness,
    HistoryOwner,
    LogPage,
    Page,
    Removal,
    Reseal,
    Rows,
    StoreWarning,
    Usage,
    UsageBatch,
    Verdict,
    limits_of,
    refusal_of,
)
from .rows import Commit, Index, Outcome, R, Read, Walk, Wanted

IoMode = Literal["none", "sync", "async", "both"]


PAGE_AT_MOST: Final = 1000
"""The most keys per page, which bounds the time of a call in the process and the server."""
_SEARCHED_AT_ONCE: Final = 500


class PartStore(ABC):
    """The base of the six contracts."""

    io: IoMode
    """How the store waits; see above."""

    async def close(self) -> None:  # noqa: B027 - many stores hold no resources
        """Release connections, threads and files. Idempotent."""

    async def ready(self) -> None:  # noqa: B027 - some have nothing to prepare
        """Connect, check the schema, and prepare statements or scripts for the first admission.

        Does not change stored data, and may be called again. The caller sets a longer deadline
        than that of a request.

        Raises:
            ConfigurationError: the store is reachable but not usable, for example with tables of
                another revision; the message says what to do.
        """


class RowStore(PartStore):
    """Stores rows: keys, accounts and assigned plans, and the change log (:mod:`.rows`).

    :class:`~lockgate.stores.directory.Directory` composes every operation on them of these three
    methods.
    """

    @abstractmethod
    async def read(
        self,
        index: Index[R],
        prefix: tuple[str, ...],
        limit: int = 1,
        after: Position | None = None,
        now: int | None = None,
    ) -> Read[R]:
        """Return the rows of an index under a prefix, in its order, with their versions.

        The call reads and decodes the rows that it returns, by an index, whatever the number of
        others (G10). It sees each commit that was answered before it began.

        Args:
            index: one of :data:`~lockgate.stores.rows.INDEXES`.
            prefix: its texts, as :attr:`Index.prefix <lockgate.stores.rows.Index.prefix>` gives
                them; for :data:`~lockgate.stores.rows.LOG` the organization.
            limit: the most rows, 1 to :data:`PAGE_AT_MOST`.
            after: the place in the order after which the page begins, of a row that may have gone;
                None: at the first.
            now: the instant to return, for a caller with its own clock; None: the store's clock.
        """

    @abstractmethod
    async def commit(self, commit: Commit, now: int | None = None) -> Outcome:
        """Change the rows of an organization, in one atomic step or not at all.

        Once a commit that :attr:`voids <lockgate.stores.rows.Commit.voids>` has been answered, no
        admission that starts later goes by the rows of before, on any process that shares the store
        (K4, W13), and the change counter has moved. Rows, indexes inside the organization, change
        log and the instants in them are of one step: no admission that finds a key live comes after
        the ``revoked_at`` of a commit before it, and records are numbered in the order of their
        instants.

        Args:
            commit: the change.
            now: the instant of the step, for a caller with its own clock; None: the store's clock.

        Raises:
            OutcomeUnknown: the commit may have been made; a repetition with the same id tells.
        """

    @abstractmethod
    async def now(self) -> int:
        """Return the time of the store's clock, in microseconds since 1970."""

    @abstractmethod
    async def walk(self, wanted: Wanted, limit: int, cursor: str | None = None) -> Walk:
        """Return some rows of all organizations, in no order, to walk all of them in steps.

        A row or an organization that is wanted during the whole walk is in at least one step. A
        step may be empty, and is bounded in time.

        Args:
            wanted: what to return.
            limit: about the number of rows to read in a step.
            cursor: None begins; then the cursor of the step before.
        """


class KeyStore(PartStore):
    """Stores keys. No verb re-enables a revoked key (K3).

    A key is deleted only with its account (:meth:`AccountStore.remove_unclaimed`), or when it ended
    long ago (:meth:`remove_ended`), and its handle stays taken.

    An organization may have many thousands of ended keys (revoked or expired), which must not slow
    any verb: lists and removals read as many rows as they return, and the cap counts live keys.
    """

    @abstractmethod
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

        The change counter need not move: no caller keeps the answer that a key is unknown.

        Raises:
            HandleTaken: a key of any organization has this handle, or had it before its removal.
            KeyLimitReached: the organization has ``cap`` live keys. If both apply, the store may
                raise either.
        """

    @abstractmethod
    async def find(self, handle: str) -> ApiKey | None:
        """Return the key with this handle, of any organization and state; None without one."""

    @abstractmethod
    async def get(self, organization: str, id: str) -> ApiKey | None:
        """Return the key with this id if it belongs to the organization, else None (K6)."""

    @abstractmethod
    async def list(self, organization: str, limit: int, after: Position | None = None) -> Page:
        """Return keys of the organization in any state: newest first, then by id (D10).

        At most ``limit`` of them (1 to :data:`PAGE_AT_MOST`), after the position ``after``: the
        ``created_at`` and the id of a key, which may have been removed since. A shorter page is the
        last. The call reads and decodes these keys only, by an index.
        """

    @abstractmethod
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

    @abstractmethod
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

    @abstractmethod
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

    @abstractmethod
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

        If None and an error both apply, the store may choose.

        Raises:
            HandleTaken: as :meth:`insert`, without a change.
            KeyLimitReached: as :meth:`insert`, without a change.
        """

    @abstractmethod
    async def rehash_if(self, handle: str, old: Digest, new: Digest) -> bool:
        """Replace digest and seal if both still are ``old``, in one atomic step (K3, K9).

        The other fields stay unchanged. A verb that changes a sealed field of a row changes its
        seal in the same step, so a seal never stands beside fields that it was not made for.
        """

    @abstractmethod
    async def add_usage(self, usage: Mapping[str, Usage], batch: UsageBatch | None = None) -> None:
        """Add to the usage of keys by handle; ``last_used_at`` never goes back (K7).

        The change to the keys of one organization is one atomic step. Handles that do not exist are
        ignored. A call that raises may have counted some organizations and not others; if it raises
        ``UnreadableState``, it has counted all others.

        Args:
            usage: the requests of each key.
            batch: names the counts. A repetition counts what earlier calls have not counted, and
                nothing twice, also while one of them is under way (D33). None: the call is not
                repeated.
        """

    @abstractmethod
    async def remove_ended(
        self, age: int, now: int | None = None, cursor: str | None = None
    ) -> Removal:
        """Remove keys, with their usage, that ended at least ``age`` microseconds ago (D45).

        One step, bounded in time, of a walk that begins without a cursor and continues with the
        cursor of the step before. When a step returns no cursor, all keys that were due when the
        walk began are removed. Several processes may walk at once: one of them counts each key.

        The same walk removes records of the change log that are at least as old; they are not in
        the number. A record may stay until those before it are due, too.

        No verb finds a removed key, and its handle stays taken (HandleTaken). As with
        :meth:`revoke_if_live`, this holds on every process once the call has returned. Each step
        decides by the present state, so it removes only keys that are due.
        """

    @abstractmethod
    async def census(self, now: int | None = None, cursor: str | None = None) -> Census:
        """Count live keys by digest scheme, to see whether a pepper is in use.

        Dashboard tokens that are not revoked count as well: the peppers digest them too. One step,
        bounded in time, of a walk as in :meth:`remove_ended`: the steps together count every key
        and token that exists during the whole walk exactly once.
        A row sealed with another pepper than its digest's also counts under
        ``seal:<pepper id>``, one without a seal under ``unsealed``; so does an account whose token
        is revoked. :func:`lockgate.core.row_seals.tally` counts.
        """


class WindowStore(PartStore):
    """Stores the windows of organizations, by the rule of :mod:`lockgate.core.sliding_window`."""

    @abstractmethod
    async def hit(
        self,
        organization: str,
        windows: tuple[Window, ...],
        cost: int,
        now: int | None = None,
        limits: LimitWindows | None = None,
    ) -> Reading:
        """Apply :func:`lockgate.core.sliding_window.hit` to the organization's state, atomically.

        A call without a reply takes effect once or not at all (D33).

        Args:
            organization: the owner of the windows.
            windows: the windows of its plan; empty where only ``limits`` are charged.
            cost: the units.
            now: the instant in microseconds; None: the store's clock.
            limits: named limits, judged in the same step by
                :func:`lockgate.core.limit_hits.hit_limited`. The store first takes the periods of
                its instant, by ``limits.at(now, organization)``. Cells are kept by field, at most
                :data:`~lockgate.core.limit_hits.FIELDS_AT_MOST` for an organization. A field may be
                dropped once its window has been empty for a day.
        """

    @abstractmethod
    async def peek(
        self,
        organization: str,
        windows: tuple[Window, ...],
        now: int | None = None,
        limits: LimitWindows | None = None,
    ) -> Reading:
        """Apply :func:`lockgate.core.sliding_window.peek`, without changing any state (W5).

        With ``limits`` apply :func:`lockgate.core.limit_hits.peek_limited`, for the periods of the
        instant.
        """

    @abstractmethod
    async def reset(
        self,
        organization: str,
        now: int | None = None,
        *,
        change: ChangeDraft | None = None,
    ) -> None:
        """Empty the windows of an organization and its named limits, in one atomic step.

        A hit that starts after this has returned finds them empty, on any process that shares the
        store. The change counter moves, because callers remember refusals of before. Slots, keys,
        usage, plan and quota leases stay: the units of a lease count until it ends, and the used
        ones for the window after. ``now`` is the ``at`` of the change record, which is added even
        if all windows were empty.
        """

    async def settle_leases(
        self,
        organization: str,
        windows: tuple[Window, ...],
        settled: Sequence[Settlement],
        now: int | None = None,
    ) -> None:
        """Settle quota leases of an organization (D42), by
        :func:`lockgate.core.quota_leases.current`.

        Leases that are unknown or past their deadline are ignored, so the call may be made again.
        The default: a store that grants none.

        Args:
            organization: the owner of the leases.
            windows: the windows of its plan.
            settled: what was used of each lease.
            now: the instant in microseconds; None: the store's clock.
        """
        return

    async def quota_leases(self, organization: str, now: int | None = None) -> QuotaLeases:
        """Return the quota leases of an organization, in the order of their grants (D42), by
        :func:`lockgate.core.quota_leases.live`: those that are out, and without units those that
        ended unsettled lately.

        A change to a key or a plan is answered once the leases that were granted before are settled
        or their holders have stopped. A verb that reads them in the step of the change notes them
        (:func:`lockgate.stores.resilience.older_leases.note_leases`), so that this call is not
        made where there are none. The default: a store that grants none.
        """
        return ()

    async def leases_in_use(self, organization: str, now: int | None = None) -> QuotaLeases:
        """Return the quota leases of an organization from which their holders may admit (K4).

        A change waits for these. They are those of :meth:`quota_leases`, less those of which the
        store knows that their holder has sent the settlement. The default knows of none.
        """
        return await self.quota_leases(organization, now)

    async def recalls(self) -> AsyncGenerator[str | None]:
        """Yield the id of an organization for each recall of its leases, by any process (D42).

        Each change to the keys or the plan of an organization recalls its leases: a verb sends the
        recall together with the change, so that it costs no call. The first step includes the
        latest recalls, which a process may have missed that was just granted a lease. A recall may
        be lost, which leaves the change to wait until the leases end; and it may be needless.

        Yield None when none came for some seconds, so that the caller can stop. Without an event
        loop, ``next`` blocks for that time, or until :meth:`close` makes it fail. The default ends
        at once: the store sends no recalls.

        Raises:
            StoreError, OSError: recalls cannot be received now.
        """
        none: Sequence[str] = ()
        for organization in none:
            yield organization


class SlotStore(PartStore):
    """Stores the slots of organizations, by the rule of :mod:`lockgate.core.leases`."""

    @abstractmethod
    async def acquire(
        self,
        organization: str,
        job: str,
        owner: str,
        limit: int | None,
        span: int,
        now: int | None = None,
    ) -> SlotReading:
        """Take a slot for a job for ``span`` microseconds, or return the job's live lease."""

    @abstractmethod
    async def renew(
        self, organization: str, job: str, owner: str, span: int, now: int | None = None
    ) -> Lease | None:
        """Extend a live lease of this owner to ``span`` from now; None: no such lease (L4)."""

    @abstractmethod
    async def release(
        self, organization: str, job: str, owner: str, now: int | None = None
    ) -> bool:
        """Release the slot of this job and owner; False if it was not held (L5)."""

    @abstractmethod
    async def held(self, organization: str, now: int | None = None) -> tuple[Lease, ...]:
        """Return the live leases, in the order in which they were taken."""


class HoldStore(PartStore):
    """Stores holds and the budgets that they are charged to, by :mod:`lockgate.core.holds`."""

    @abstractmethod
    async def hold(
        self, organization: str, action: HoldAction, now: int | None = None
    ) -> HoldAnswer:
        """Apply :func:`lockgate.core.holds.apply` to the organization's budgets, atomically.

        Budgets are kept by field, at most :data:`~lockgate.core.limit_hits.FIELDS_AT_MOST` for an
        organization. :meth:`WindowStore.reset` removes them, and the holds with them. A budget may
        be dropped a day after it has counted nothing any more.

        A call without a reply may have taken effect, so it may be made again: a hold is taken and
        settled once. :class:`~lockgate.core.holds.Look` reads budgets and changes nothing.
        """


class AccountStore(PartStore):
    """Stores the plans and limits of organizations, and the accounts that agents registered."""

    @abstractmethod
    async def organization(self, id: str) -> Organization | None:
        """Return the organization, or None if no plan was assigned to it."""

    @abstractmethod
    async def put_organization(
        self,
        organization: Organization,
        now: int | None = None,
        *,
        change: ChangeDraft | None = None,
    ) -> None:
        """Assign a plan and limits, which hold from the next admission on (W13).

        ``now`` is the ``at`` of the change record. Its ``before`` becomes the plan that was
        replaced (:func:`~lockgate.core.changes.plan_fields`), and none is kept if that is the same.
        """

    async def organization_changed(self, id: str) -> None:
        """Forget copies of an organization's plan, which the host keeps and has changed.

        Admissions that start after this has returned apply the new plan, on any process that shares
        the store. The default implementation is empty, for stores that keep the plan themselves or
        read it at each admission.
        """
        return

    @abstractmethod
    async def register(
        self,
        account: AccountDraft,
        key: KeyDraft,
        now: int | None = None,
        *,
        change: ChangeDraft | None = None,
    ) -> tuple[Account, ApiKey]:
        """Insert a new account together with its organization's first key, both created now.

        All or nothing (R1): after any failure every verb finds both of them, or neither. Key and
        account have the same organization, which is on the default plan. No reader finds the
        account before its key, or the key before its account, except in lists of accounts. The
        change counter need not move, as with :meth:`KeyStore.insert`.

        Raises:
            HandleTaken: another key has or had the key's handle, another account has the token's
                handle, or the organization has an account already. The store is unchanged.
        """

    @abstractmethod
    async def account(self, organization: str) -> Account | None:
        """Return the account of an organization, or None if no agent registered it."""

    @abstractmethod
    async def account_by_token(self, handle: str) -> Account | None:
        """Return the account of the dashboard token with this handle, revoked or not."""

    @abstractmethod
    async def unclaimed_by_email(
        self, billing_email: str, limit: int, after: Position | None = None
    ) -> tuple[Account, ...]:
        """Return unclaimed accounts with exactly this billing e-mail: oldest first, then by
        organization.

        At most ``limit`` accounts are returned, and about as many are read, whatever their number.

        Args:
            billing_email: in lower case, as accounts keep it.
            limit: 1 or more.
            after: return only accounts after this position; None: from the first on.
        """

    @abstractmethod
    async def accounts_by_user(
        self, user: str, limit: int, after: Position | None = None
    ) -> tuple[Account, ...]:
        """Return accounts that exactly this user has claimed: the latest claim first, then by
        organization, the greatest id first. ``limit`` and ``after`` are as above.
        """

    @abstractmethod
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
        - with ``revoke``, sets ``revoked_at`` of every live key of the organization. As with
          :meth:`KeyStore.revoke_if_live`, no admission by one of these keys that starts after
          this has returned succeeds, on any process that shares the store (K4).

        A key that is inserted concurrently exists before the whole step or after it; in the latter
        case its creator finds ``token_revoked_at`` set, if the step sets it.
        """

    @abstractmethod
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
        finds the account whole or removed, and if it came first, the account stays. No admission by
        one of these keys that starts after this has returned succeeds (K4). The handles of the
        keys stay taken. Windows and slots remain until they expire (W10), and the change log for
        its own time, with a record for each of these organizations.

        Args:
            idle: the least time without use, in microseconds.
            limit: the most accounts to read. An account in use is read again only when it can be
                idle, so that it does not delay the others.
            now: the present instant; None: the store's clock.
        """

    @abstractmethod
    async def sign_in(self, organization: str, now: int | None = None) -> Account | None:
        """Record that the agent of an account begins a session; return the account as changed.

        Atomic: ``signed_in_at`` becomes ``now``, or stays if it is later. None, without a change:
        the organization has no account, or its dashboard token was revoked.
        """

    @abstractmethod
    async def sign_out(self, organization: str) -> None:
        """Add one to ``sign_outs`` of an organization's account, if it has one; atomic.

        The change counter moves, as with a claim that revokes the dashboard token: the agent's
        open streams end.
        """

    @abstractmethod
    async def rehash_token_if(self, handle: str, old: Digest, new: Digest) -> bool:
        """Replace a dashboard token's digest and seal if both still are ``old`` (K9).

        The other fields stay unchanged.
        """


class ChangeStore(PartStore):
    """Stores the change log (D44): a record of each change to keys, plans and accounts.

    A verb that takes ``change`` adds this record in the atomic step that makes the change: after
    any failure both are there, or neither. A call that changes no row, or raises, adds no record.
    The record's ``at`` is the instant that stamps the change.

    An organization's records are numbered from 1 on, each by one more than the newest. At most
    :data:`~lockgate.core.changes.LOGGED_AT_MOST` of them are kept, or a few more and never fewer:
    the oldest go first. They do not depend on the organization's keys, plan and account, outlast
    all of them, and no verb changes them. Admissions neither read nor write them.
    """

    @abstractmethod
    async def change_log(self, organization: str, limit: int, before: int | None = None) -> LogPage:
        """Return records of exactly this organization, the newest first.

        At most ``limit`` of them (1 to :data:`PAGE_AT_MOST`), with numbers less than ``before``;
        None: from the newest on. A shorter page is the last.
        """


class Store(KeyStore, WindowStore, SlotStore, HoldStore, AccountStore, ChangeStore):
    """All six contracts, with admissions and maintenance."""

    enforces_deadline: bool = False
    """Whether a blocking call ends itself at its deadline, for example by a socket timeout (see
    :func:`~lockgate.stores.resilience.deadlines.left`). Calls of other stores run in a thread that
    can be abandoned."""
    keeps_history: bool = False
    """Whether the store keeps usage over time: it overrides :meth:`add_history` and
    :meth:`history`."""
    grants_leases: bool = False
    """Whether the store grants quota leases: it overrides :meth:`admit_leased`,
    :meth:`settle_leases` and :meth:`quota_leases`."""
    system: str = "other"
    """The kind of database, as OpenTelemetry's ``db.system.name`` calls it, for spans."""
    local_version: object = None
    """Identity token, replaced before a verb that changes keys or plans, or ends the sessions of an
    agent, returns; None if other processes can change them too."""

    @abstractmethod
    async def now(self) -> int:
        """Return the time of the store's clock, in microseconds since 1970."""

    async def admit(
        self,
        token: Token,
        cost: int,
        plans: PlanBook,
        now: int | None = None,
        address: str | None = None,
        limits: tuple[Limit, ...] = (),
    ) -> Admission:
        """Verify a key, charge its organization's windows and count its usage (D19).

        A key with an allow-list (:meth:`KeyDetails.allows
        <lockgate.core.api_keys.KeyDetails.allows>`) is not charged for a client elsewhere: the
        verdict is ELSEWHERE, after REVOKED and EXPIRED and before LIMITED. Few keys have such a
        list, so the caller first leaves the address out, and repeats the call with it after
        ELSEWHERE; only the second answer has to be up to date.

        A key that does not exist costs one comparison of digests, as a wrong secret does, so that
        the time of the answer does not show which handles exist (K10): where no key has the handle,
        a store calls :meth:`Token.compare_with_dummy
        <lockgate.core.key_format.Token.compare_with_dummy>`.

        The default calls the verbs above. Override it if the store can admit in one atomic step.

        Args:
            token: the presented key.
            cost: units to take from each window.
            plans: the plan book.
            now: the instant in microseconds; None: the store's clock.
            address: the client's whole address; None: not looked up.
            limits: the named limits of the rule, charged in the same step (D40); those of the plan
                and of the key are charged with them (:func:`limits_of`).
        """
        key = await self.find(token.handle)
        at = await self.now() if now is None else now
        refusal = refusal_of(token, key, at, address)
        if refusal is not None or key is None:
            return refusal or UNKNOWN
        plan = plans.plan_of(await self.organization(key.organization), at)
        named = limits_of(limits, plan, key, at)
        reading = await self.hit(key.organization, plan.windows, cost, now, named)
        named = named and named.at(reading.now, key.organization)
        if not reading.allowed:
            return Admission(Verdict.LIMITED, key, plan, reading, named)
        last_used_at = max(reading.now, key.last_used_at or 0)
        await self.add_usage({key.handle: Usage(1, last_used_at)})
        key = key._replace(request_count=key.request_count + 1, last_used_at=last_used_at)
        return Admission(Verdict.ADMITTED, key, plan, reading, named)

    async def admit_leased(
        self,
        token: Token,
        cost: int,
        plans: PlanBook,
        lease: LeaseRequest,
        now: int | None = None,
        address: str | None = None,
    ) -> Admission:
        """Do :meth:`admit`, settle leases and grant one, in one atomic step (D42).

        By the rule of :mod:`lockgate.core.quota_leases`. Leases of the key's organization are
        settled if the verdict is ADMITTED or LIMITED. A lease is granted with ADMITTED only, and
        never to a key that is charged to named limits: :attr:`Admission.lease`. A call without a
        reply takes effect once or not at all; a lease that it has granted stays out until its
        deadline.

        The default grants no lease, for a store that keeps none.

        Args:
            token: as for :meth:`admit`, like the others.
            cost: units to take from each window.
            plans: the plan book.
            lease: the leases to settle, and the one to grant.
            now: the instant in microseconds; None: the store's clock.
            address: the client's whole address; None: not looked up.
        """
        return await self.admit(token, cost, plans, now, address)

    async def add_history(
        self,
        additions: Mapping[HistoryOwner, UsageHistory],
        batch: UsageBatch | None = None,
    ) -> None:
        """Add to usage histories, by :func:`lockgate.core.usage_history.added`.

        The change to one history is one atomic step: additions of several processes at once are all
        counted. A call that raises may have added to some histories and not to others.

        The history of a key is removed with the key, and any history may be removed
        :data:`~lockgate.core.usage_history.KEPT_DAYS` days after its last day.

        Args:
            additions: about 50 at most.
            batch: as for :meth:`add_usage`, of a writer of its own.
        """
        raise NotImplementedError

    async def history(self, owner: HistoryOwner) -> UsageHistory:
        """Return the usage history of a key or an organization; empty without one (K6).

        Raises:
            UnreadableState: it cannot be decoded.
        """
        raise NotImplementedError

    @abstractmethod
    async def scan(self, cursor: str | None, limit: int) -> Rows:
        """Return some keys and accounts of all organizations, to walk all of them in steps.

        Each key and account that exists during the whole walk is in at least one step.

        Args:
            cursor: None begins; then the cursor of the step before.
            limit: about the number of rows to read in a step.
        """

    @abstractmethod
    async def organizations(
        self, limit: int, now: int | None = None, cursor: str | None = None
    ) -> FoundOrganizations:
        """Return organizations that have a key, in any state, or an assigned plan.

        One step, bounded in time, of a walk: an organization that exists during the whole walk is
        in at least one step. A step may be empty.

        Args:
            limit: about the number of organizations to read in a step.
            now: the present instant; None: the store's clock.
            cursor: None begins; then the cursor of the step before.
        """

    async def search(self, wanted: KeySearch, limit: int, cursor: str | None = None) -> FoundKeys:
        """Return keys of all organizations, in any state, that a search finds.

        One step, bounded in time, of a walk: a key that exists during the whole walk is in at least
        one step. The default reads every key, by :meth:`scan`: override it if the store has an
        index.

        Args:
            wanted: the search.
            limit: about the number of keys to return in a step.
            cursor: None begins; then the cursor of the step before.
        """
        rows = await self.scan(cursor, _SEARCHED_AT_ONCE)
        return FoundKeys([key for key in rows.keys if wanted.finds(key)], rows.cursor)

    async def change_counter(self) -> int | None:
        """Return a number that grows with every change to keys or plans, or to an agent's sessions.

        Any change that may alter an earlier answer counts: revocations, updates, rotations,
        digests, plans, limits, resets, sign-outs, revoked dashboard tokens. New keys and accounts
        need not count. All processes share the number, and it has grown before the changing verb
        returns. Callers that cache answers read it periodically.

        None, the default: the store has no such number, and answers are cached for a second at
        most.
        """
        return None

    async def freshness(self) -> Freshness:
        """Return the change counter and the clock of the windows.

        A refusal cache reads both about once a second, and is cleared if the counter has moved
        (W13) or the clock has stepped back (W11).
        """
        return Freshness(await self.change_counter(), await self.now())

    async def warnings(self) -> Sequence[StoreWarning]:
        """Return a warning for each setting under which a guarantee fails without an error.

        Reads the settings of each server. A setting that this user may not read gives no warning,
        unless the text says so. Empty, the default: the store knows of no such setting.

        Raises:
            StoreError, OSError: a server refused or did not answer.
        """
        return ()

    def watch(self, events: Events, deadline: float) -> bool:
        """Report to a gate; operate a circuit breaker for each server that can fail alone.

        Several gates may watch one store. A call to a server with an open breaker raises
        :class:`StoreUnavailable` at once.

        Args:
            events: receives the changes of each breaker, with its server; its metrics count.
            deadline: seconds for a call of a request.

        Returns:
            True: the store counts its failures itself. False, the default: the caller operates one
            breaker.
        """
        return False

    def cancel_waits(self) -> None:
        """Fail calls that wait for a lock or a server, before the process stops. Thread-safe."""
        return

    async def flush(self) -> None:
        """Write usage that only this process has counted, before it stops. Never raises, since the
        caller could not handle a failure."""
        return

    def reset_connections(self) -> None:
        """Replace all connections with abandoned calls.

        Called in the thread or event loop of the calls; never waits.
        """
        return
