"""The store contract: the duties of each verb.

Four small contracts cover keys, windows, slots and accounts. :class:`Store` combines them and adds
:meth:`Store.admit`, the verb of requests. All verbs are atomic: a caller never reads, decides and
writes back.

Every method is ``async def``. ``io`` declares the I/O mode: ``none`` never waits (pure memory),
``sync`` blocks the calling thread, ``async`` awaits, and ``both`` awaits in an event loop and
blocks otherwise. WSGI supports all but ``async``.

Time: a shared store uses its server's clock, never the process's (D27). Every
method that depends on the time takes ``now`` (microseconds) for callers that bring their own clock;
None means the store's clock.

Ids of organizations and jobs, and owners of slots, are opaque: any non-empty string of up to 128
characters (D36). Ids of users are opaque too, with up to 255. Windows of other owners, such as
addresses, have names of 129 to 192 ASCII characters, which cannot be an organization's id.

A store that cannot answer raises one of these errors, or an ``OSError`` (``TimeoutError`` is one),
and the gate answers 503 ``STORE_UNAVAILABLE``. Any other exception is a bug of lockgate or of the
host: it is logged with its traceback, answered 503 too, and never counted by the circuit breaker.

StoreError                the driver or the server failed; the cause is the driver's own exception
├── OutcomeUnknown        a call was sent and no answer came (D33)
├── PartUnavailable       one part of the store is away, such as one slot of a Redis Cluster
└── UnreadableState       the state of one organization cannot be decoded
"""

from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from struct import error as StructError
from typing import Final, Literal, NamedTuple, TypeAlias

from ..core.accounts import Account, AccountDraft
from ..core.api_keys import ApiKey, KeyDraft, KeyState, Position
from ..core.digests import Digest
from ..core.key_format import Token
from ..core.leases import Lease, SlotReading
from ..core.plans import Organization, Plan, PlanBook
from ..core.sliding_window import Reading, Window
from ..events import Events

IoMode = Literal["none", "sync", "async", "both"]


class Verdict(Enum):
    """The outcome of an admission."""

    ADMITTED = "admitted"
    LIMITED = "limited"
    UNKNOWN = "unknown"
    REVOKED = "revoked"
    EXPIRED = "expired"


class Admission(NamedTuple):
    """The answer of :meth:`Store.admit`.

    ``key`` is None when the verdict is UNKNOWN; ``plan`` and ``reading`` are set when it is
    ADMITTED or LIMITED. The key shows its usage with this request counted.
    """

    verdict: Verdict
    key: ApiKey | None = None
    plan: Plan | None = None
    reading: Reading | None = None


UNKNOWN = Admission(Verdict.UNKNOWN)


class StoreError(Exception):
    """A store could not answer: its driver or its server failed (R11).

    Raised where the driver's exception arises, with that as the cause. Logs and events name the
    kind of the cause and never its message: drivers print parameters and addresses.
    """


class OutcomeUnknown(StoreError):
    """A call was sent and its reply was lost, so it may have taken effect (D33)."""


class PartUnavailable(StoreError):
    """A part of a store is unavailable, such as one slot of a Redis Cluster.

    Requests of its organizations get 503; the circuit breaker does not count them, since the rest
    of the store answers.
    """


class UnreadableState(StoreError):
    """The state of one organization cannot be decoded (W8).

    Requests of that organization get 503; the circuit breaker does not count them.

    Attributes:
        organization: the organization's id; None where only ``where`` is known.
        where: the affected part of the store, as the end of a sentence.
    """

    def __init__(self, organization: str | None, where: str) -> None:
        self.organization: Final = organization
        self.where: Final = where
        super().__init__(f"Unreadable state of organization {organization!r}: {where}.")

    @property
    def remedy(self) -> str:
        """Advice for the operator."""
        return (
            f"run the release of lockgate that wrote it, restore {self.where} from a backup, or "
            "remove it: windows and slots then begin anew, keys and plans are lost"
        )


UNREADABLE: Final = (ValueError, TypeError, LookupError, ArithmeticError, StructError)
"""Exceptions that the standard library's decoders raise for damaged bytes."""


@contextmanager
def reading_state(organization: str | None, where: str) -> Generator[None]:
    """Raise :class:`UnreadableState` where stored bytes cannot be decoded."""
    try:
        yield
    except UNREADABLE as failure:
        raise UnreadableState(organization, where) from failure


class Usage(NamedTuple):
    """Requests to add to a key's usage, and the instant of the latest (D6)."""

    requests: int
    last_used_at: int


class Rows(NamedTuple):
    """The answer of :meth:`Store.scan`."""

    keys: Sequence[ApiKey]
    accounts: Sequence[Account]
    cursor: str | None
    """The position of the next step; None after the last."""


Reseal = tuple[str | None, str | None]
"""The present seal of a row, and its replacement."""
UNSEALED: Reseal = (None, None)


class Census(NamedTuple):
    """One step of :meth:`KeyStore.census`."""

    counts: dict[str, int]
    """Live keys and tokens of this step, by digest scheme."""
    cursor: str | None
    """Where the next step begins; None: this was the last one."""


class Removal(NamedTuple):
    """One step of :meth:`KeyStore.remove_ended`."""

    removed: int
    cursor: str | None
    """Where the next step begins; None: this was the last one."""


class StoreWarning(NamedTuple):
    """A setting of a store's servers under which a guarantee fails without an error."""

    kind: Literal["eviction", "persistence", "clock"]
    text: str
    """A sentence that names the server, the effect and the remedy."""


class Freshness(NamedTuple):
    """The answer of :meth:`Store.freshness`."""

    change_counter: int | None
    now: int
    """The present in microseconds, by the clock of the windows."""


Page: TypeAlias = list[ApiKey]
"""Some keys of a list, in its order."""

PAGE_AT_MOST: Final = 1000
"""The most keys per page, which bounds the time of a call in the process and the server."""


class PartStore(ABC):
    """The base of the four stores."""

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


class KeyStore(PartStore):
    """Stores keys. No verb re-enables a revoked key (K3).

    A key is deleted only with its account (:meth:`AccountStore.remove_unclaimed`), or when it ended
    long ago (:meth:`remove_ended`), and its handle stays taken.

    An organization may have many thousands of ended keys (revoked or expired), which must not slow
    any verb: lists and removals read as many rows as they return, and the cap counts live keys.
    """

    @abstractmethod
    async def insert(self, draft: KeyDraft, cap: int | None, now: int | None = None) -> ApiKey:
        """Insert a key, created now, and return it.

        The cap is on the organization's live keys (neither revoked nor expired) and holds under
        any concurrency (K8).

        Raises:
            HandleTaken: a key of any organization has this handle, or had it before its removal.
            KeyLimitReached: the organization has ``cap`` live keys.
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
        self, organization: str, id: str, now: int | None = None
    ) -> ApiKey | None:
        """Set ``revoked_at`` if it is not set yet, and return the key as changed.

        A revoked key stays unchanged (D4). None: the organization has no such key. Once this has
        returned, no admission that starts later succeeds, on any process that shares the store
        (K4).
        """

    @abstractmethod
    async def update_if(self, old: ApiKey, new: ApiKey, now: int | None = None) -> bool:
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

    @abstractmethod
    async def rehash_if(self, handle: str, old: Digest, new: Digest) -> bool:
        """Replace digest and seal if both still are ``old``, in one atomic step (K3, K9).

        The other fields stay unchanged. A verb that changes a sealed field of a row changes its
        seal in the same step, so a seal never stands beside fields that it was not made for.
        """

    @abstractmethod
    async def add_usage(self, usage: Mapping[str, Usage]) -> None:
        """Add to the usage of keys by handle; ``last_used_at`` never goes back (K7).

        The change to one key is one atomic step. Handles that do not exist are ignored.
        """

    @abstractmethod
    async def remove_ended(
        self, age: int, now: int | None = None, cursor: str | None = None
    ) -> Removal:
        """Remove keys, with their usage, that ended at least ``age`` microseconds ago (D45).

        One step, bounded in time, of a walk that begins without a cursor and continues with the
        cursor of the step before. When a step returns no cursor, all keys that were due when the
        walk began are removed. Several processes may walk at once: one of them counts each key.

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
        self, organization: str, windows: tuple[Window, ...], cost: int, now: int | None = None
    ) -> Reading:
        """Apply :func:`lockgate.core.sliding_window.hit` to the organization's state, atomically.

        A call without a reply takes effect once or not at all (D33).
        """

    @abstractmethod
    async def peek(
        self, organization: str, windows: tuple[Window, ...], now: int | None = None
    ) -> Reading:
        """Apply :func:`lockgate.core.sliding_window.peek`, without changing any state (W5)."""


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


class AccountStore(PartStore):
    """Stores the plans and limits of organizations, and the accounts that agents registered."""

    @abstractmethod
    async def organization(self, id: str) -> Organization | None:
        """Return the organization, or None if no plan was assigned to it."""

    @abstractmethod
    async def put_organization(self, organization: Organization) -> None:
        """Assign a plan and limits, which hold from the next admission on (W13)."""

    async def organization_changed(self, id: str) -> None:
        """Forget copies of an organization's plan, which the host keeps and has changed.

        Admissions that start after this has returned apply the new plan, on any process that shares
        the store. The default implementation is empty, for stores that keep the plan themselves or
        read it at each admission.
        """
        return

    @abstractmethod
    async def register(
        self, account: AccountDraft, key: KeyDraft, now: int | None = None
    ) -> tuple[Account, ApiKey]:
        """Insert a new account together with its organization's first key, both created now.

        All or nothing (R1): after any failure every verb finds both of them, or neither. Key and
        account have the same organization, which is on the default plan.

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
        self, idle: int, limit: int, now: int | None = None
    ) -> tuple[str, ...]:
        """Remove accounts that were neither claimed nor used for a time, and return the ids of
        their organizations in ascending order (D46).

        An account is removed if it is unclaimed, its organization has no assigned plan, and its
        :func:`~lockgate.core.accounts.last_use` is at most ``now - idle``. All keys of the
        organization are removed in the same atomic step: a concurrent claim, sign-in or admission
        finds the account whole or removed, and if it came first, the account stays. No admission by
        one of these keys that starts after this has returned succeeds (K4). The handles of the
        keys stay taken. Windows and slots remain until they expire (W10).

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
        """Add one to ``sign_outs`` of an organization's account, if it has one; atomic."""

    @abstractmethod
    async def rehash_token_if(self, handle: str, old: Digest, new: Digest) -> bool:
        """Replace a dashboard token's digest and seal if both still are ``old`` (K9).

        The other fields stay unchanged.
        """


class Store(KeyStore, WindowStore, SlotStore, AccountStore):
    """All four contracts, with admissions and maintenance."""

    enforces_deadline: bool = False
    """Whether a blocking call ends itself at its deadline, for example by a socket timeout (see
    :func:`~lockgate.stores.resilience.deadlines.left`). Calls of other stores run in a thread that
    can be abandoned."""
    local_version: object = None
    """Identity token, replaced before a verb that changes keys or plans returns; None if other
    processes can change them too."""

    @abstractmethod
    async def now(self) -> int:
        """Return the time of the store's clock, in microseconds since 1970."""

    async def admit(
        self, token: Token, cost: int, plans: PlanBook, now: int | None = None
    ) -> Admission:
        """Verify a key, charge its organization's windows and count its usage (R6, D19).

        The default calls the verbs above. Override it if the store can admit in one atomic step.
        """
        key = await self.find(token.handle)
        if key is None:
            token.matches_nobody()
            return UNKNOWN
        if not token.accepts(key):
            return UNKNOWN
        state = key.state(await self.now() if now is None else now)
        if state is not KeyState.ACTIVE:
            return Admission(REFUSED_BY_STATE[state], key)
        plan = plans.plan_of(await self.organization(key.organization))
        reading = await self.hit(key.organization, plan.windows, cost, now)
        if not reading.allowed:
            return Admission(Verdict.LIMITED, key, plan, reading)
        last_used_at = max(reading.now, key.last_used_at or 0)
        await self.add_usage({key.handle: Usage(1, last_used_at)})
        key = key._replace(request_count=key.request_count + 1, last_used_at=last_used_at)
        return Admission(Verdict.ADMITTED, key, plan, reading)

    @abstractmethod
    async def scan(self, cursor: str | None, limit: int) -> Rows:
        """Return some keys and accounts of all organizations, to walk all of them in steps.

        Each key and account that exists during the whole walk is in at least one step.

        Args:
            cursor: None begins; then the cursor of the step before.
            limit: about the number of rows to read in a step.
        """

    async def change_counter(self) -> int | None:
        """Return a number that grows with every change to keys or plans.

        Any change that may alter an earlier answer counts: revocations, digests, plans, limits. All
        processes share the number, and it has grown before the changing verb returns. Callers that
        cache answers read it periodically.

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


REFUSED_BY_STATE = {KeyState.REVOKED: Verdict.REVOKED, KeyState.EXPIRED: Verdict.EXPIRED}
