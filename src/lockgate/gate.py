"""The gate: wires store, plans, keys and clock together, and admits requests."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from hashlib import blake2b
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Final, Literal, TypeVar, cast

from .core.accounts import Account
from .core.allowed_addresses import contains
from .core.api_keys import ApiKey
from .core.arguments import checks_arguments
from .core.bounded_dict import BoundedDict
from .core.client_address import ClientAddresses, budget_of
from .core.deprecation import sunset_headers
from .core.digests import PLAIN_SCHEME, Peppers
from .core.fast_tuples import new_tuple
from .core.imported_keys import ImportedToken
from .core.key_format import HEADER_LENGTH, KeyFormat, Token
from .core.ledger import Hit, Peek
from .core.limit_hits import of_plan_alone, tighter
from .core.limit_windows import LimitWindows
from .core.limits import Limit, bound, check_limits, check_names
from .core.plans import Plan, PlanBook, is_id, is_whole
from .core.rate_limit_headers import rate_headers, rate_limit_exceeded
from .core.row_seals import is_current, resealed_key
from .core.same_origin import origin_of
from .core.scopes import Catalogue, Requirement, requirement
from .core.sliding_window import LARGEST, Reading, Window
from .core.usage_history import By
from .errors import (
    AddressNotAllowed,
    ConfigurationError,
    InsufficientScope,
    KeyExpired,
    KeyNotFound,
    KeyRevoked,
    LockgateError,
    NoOrganization,
    RateLimitExceeded,
    Refusal,
    Unauthenticated,
)
from .events import Events, Observer, logger
from .options import KeyOptions, StoreOptions, WebOptions
from .principal import Principal
from .services.accounts.session_access import SessionAccess
from .services.accounts.settings import Registration
from .services.forwarded_headers import ForwardedHeaders
from .services.imports.imported_keys import ImportedKeys
from .services.keys.keys import Keys
from .services.keys.rejected_rows import RejectedRows, seal_is_valid
from .services.keys.retention import Retention
from .services.leaks.settings import LeakReports
from .services.limits.anonymous_limits import AnonymousLimits
from .services.limits.subject_limits import SubjectLimits, refused_subject
from .services.organizations import Organizations
from .services.readiness import Readiness
from .services.reservations.hold_block import Hold
from .services.reservations.holds import Caller, Holds
from .services.reservations.slots import ConcurrencySlot, ConcurrencySlots, Holder
from .services.store_errors import asking, pair, unavailable
from .services.usage.rate_limit_status import LimitUsage, limit_usage
from .services.usage.settings import UsageHistory
from .services.usage.thresholds import Thresholds
from .sessions import Session, SessionVerifier
from .stores.answers import UNKNOWN, Admission, Usage, Verdict, refusal_of
from .stores.base import KeyStore, Store, WindowStore
from .stores.committed import collecting
from .stores.memory.store import MemoryStore
from .stores.open import checked, combine, open_store, resilient
from .stores.quota_thresholds import tell_quotas
from .stores.resilience.deadlines import LEAST, Patience, within
from .stores.resilience.local_limits import LocalLimits

if TYPE_CHECKING:  # A feature is imported where it is switched on or used.
    from .services.accounts.registration import AgentAccounts
    from .services.change_log import Changes
    from .services.explain.explanations import Explanations
    from .services.explain.findings import Explanation, OpenExplanation
    from .services.leaks.leak_reports import LeakedKeys
    from .services.open_streams import OpenStreams
    from .services.usage.recorder import UsageRecorder
    from .services.usage.reports import UsageReport

_ENDED: Final[dict[Verdict, type[Unauthenticated]]] = {
    Verdict.REVOKED: KeyRevoked,
    Verdict.EXPIRED: KeyExpired,
}

_NO_ORIGIN: Final = (
    "no page can write with a session: give the gate the origin of your pages, as "
    "WebOptions(public_url='https://console.example.com') or WebOptions(allowed_origins=[...])."
)
_NO_PEPPER: Final = (
    "The gate has no pepper: whoever can write to the store can create keys and change what they "
    "may do, and no other process settles a hold of this one by its id. Give Gate(peppers=[...]) "
    "32 random bytes that are not in the store."
)
_ACCEPTS: Final = (
    "The gate has KeyOptions({0}=True): whoever can write to the store can create keys. Take it "
    "out as soon as gate.keys.census() counts no 'sha256' and no 'unsealed' any more."
)

_UNREAD: Final = Reading(True, 0, (), None, 0, None, None, 0)
"""The reading of a principal that is not charged yet."""

# Bound at module level: a global lookup is cheaper than an attribute lookup per request.
_ADMITTED: Final = Verdict.ADMITTED

_KNOWN_AT_MOST: Final = 131_072
"""As many as key hints (:data:`lockgate.stores.redis.key_hints.AT_MOST`), at 0.8 KB each."""

Client = TypeVar("Client")
Kind = TypeVar("Kind", Registration, LeakReports, UsageHistory)

Feature = Registration | LeakReports | UsageHistory
"""The settings of a feature that most services do without."""


@checks_arguments
class Gate:
    """Authenticate and rate-limit requests: the keys, scopes and limits of one service.

    Args:
        store: where keys and windows are kept: a :class:`~lockgate.stores.Store` or its URL; by
            default the memory of this process.
        brand: the first word of the service's keys, as ``acme`` in ``acme_live_...``.
        keys: in place of ``store``, with ``windows``: where keys are kept, any
            :class:`~lockgate.stores.KeyStore` or the URL of a store.
        windows: where windows, slots and holds are counted then, any
            :class:`~lockgate.stores.WindowStore` or the URL of a store.
        peppers: secrets for key digests and row seals, the newest first, 16 bytes or more each
            (D3).
        plans: the plan book; by default the plans *free*, *starter*, *creator* and *enterprise*.
        catalogue: the scope catalogue; by default scopes such as ``models:read`` and
            ``account:write``.
        sessions: verifies dashboard sessions; None: the key operations cannot be mounted.
        features: each a value of its own, at most once: :class:`~lockgate.Registration` lets agents
            register themselves (D13), :class:`~lockgate.LeakReports` takes signed reports of leaked
            keys, :class:`~lockgate.UsageHistory` keeps usage over time.
        key_options: the environment of keys, their cap, lifetime and retention, and the formats of
            imported ones.
        web_options: the service's own pages, its proxies, how requests present sessions, the paths
            of lockgate's own operations, error bodies.
        store_options: the deadline of a shared store, the limits while it is away, quota leases,
            and the defaults of slots and holds.
        observer: receives every :class:`~lockgate.events.Event`.

    Raises:
        ConfigurationError: arguments do not fit together; the message says what to change.
    """

    tells_of: ClassVar = frozenset({"store", "keys", "windows"})
    _limits: Mapping[str, Limit] = MappingProxyType({})

    def __init__(
        self,
        store: Store | str | None = None,
        *,
        brand: str,
        keys: KeyStore | str | None = None,
        windows: WindowStore | str | None = None,
        peppers: Sequence[bytes] = (),
        plans: PlanBook | None = None,
        catalogue: Catalogue | None = None,
        sessions: SessionVerifier | None = None,
        features: Sequence[Feature] = (),
        key_options: KeyOptions | None = None,
        web_options: WebOptions | None = None,
        store_options: StoreOptions | None = None,
        observer: Observer | None = None,
    ) -> None:
        self._opened = _opened(store, keys, windows)
        of_keys, of_web = key_options or KeyOptions(), web_options or WebOptions()
        of_store = store_options or StoreOptions()
        clock, systems = of_store.clock, tuple(of_keys.legacy)
        registration, leak_reports = _only(Registration, features), _only(LeakReports, features)

        # Credentials, and what they may do.
        self._peppers = Peppers(
            peppers,
            next_pepper=of_keys.next_pepper,
            accept_plain=of_keys.accept_plain,
            accept_unsealed=of_keys.accept_unsealed,
        )
        self.format: Final = KeyFormat(brand, of_keys.environment, self._peppers, systems)
        self.known: Final = VerifiedKeyCache()
        self.plans: Final = plans or PlanBook()
        self.catalogue: Final = catalogue or Catalogue.of()
        self.session_access: Final = SessionAccess(
            of_web,
            people=sessions,
            registration=registration,
            systems=systems,
            catalogue=self.catalogue,
        )

        # Requests and responses.
        self.origins: Final = _origins(of_web)
        self.addresses: Final = ClientAddresses(of_web.trusted_proxies)
        self.prefix: Final = of_web.prefix
        self.key_header: Final = of_web.header
        """The further header for keys in lower case; None: only ``Authorization`` holds keys."""
        self.error_body, self.longest_retry = of_web.error_body, of_web.longest_retry
        self.health: Final = of_web.health

        # The store, its events, and the limits of this process.
        self.clock: Final = clock
        self.events: Final = Events(observer)
        self.metrics: Final = self.events.metrics
        """Counters of admissions, refusals and events (:class:`~lockgate.metrics.Metrics`)."""
        self._admitted: Final = self.events.admit
        self._deadline, self._patience = max(of_store.deadline, LEAST.get()), Patience()
        self._local_limits = LocalLimits(of_store.on_failure, of_store.fleet, self.events)
        self.store: Final = resilient(
            self._opened,
            events=self.events,
            limits=self._local_limits,
            deadline=self._deadline,
            patience=self._patience,
            lease=of_store.lease,
            clock=clock,
        )
        self.anonymous: Final = AnonymousLimits(of_web.anonymous, clock)
        """Budgets of client addresses for public routes, and of sessions for free reads."""
        self.failures: Final = AnonymousLimits(of_web.anonymous, clock)
        """Budgets of client addresses for requests without a valid credential."""
        self.forwarding: Final = ForwardedHeaders(self.events, expected=self.addresses.trusts_any)
        self.rejections: Final = RejectedRows(self.events)
        self.readiness: Final = Readiness(
            self.store, self.events, self._patience, lacks_origin=self._lacks_origin
        )

        # The services.
        self.legacy: Final = ImportedKeys(
            systems,
            store=self.store,
            peppers=self._peppers,
            catalogue=self.catalogue,
            cap=of_keys.cap,
            clock=clock,
            events=self.events,
        )
        self._retention = Retention(self.store, of_keys.retention_days, clock, self.events)
        self.keys: Final = Keys(
            self.store,
            format=self.format,
            catalogue=self.catalogue,
            cap=of_keys.cap,
            clock=clock,
            events=self.events,
            retention=self._retention,
            rejections=self.rejections,
            max_age=of_keys.max_age,
        )
        self.accounts: Final = (
            self._accounts_of(registration, of_web, sessions) if registration else None
        )
        self.sessions: Final = self.accounts.agents if self.accounts else sessions
        self.leaks: Final = self._leaks_of(leak_reports) if leak_reports else None
        """Takes reports of leaked keys; None: the gate takes none."""
        self.organizations: Final = Organizations(
            self.store,
            plans=self.plans,
            clock=clock,
            events=self.events,
            seal=self._peppers.cursors,
        )
        self.recorder: Final = self._recorder_of(_only(UsageHistory, features))
        self._thresholds = (
            Thresholds(self.events) if self.recorder or observer is not None else None
        )
        self.slots: Final = ConcurrencySlots(
            self.store,
            organizations=self.organizations,
            format=self.format,
            lease=of_store.slot_lease,
            retry_after=of_store.slot_retry_after,
            clock=clock,
            events=self.events,
            pair=self._pair_store,
            recorder=self.recorder,
        )
        self.holds: Final = Holds(
            self.store,
            options=of_store,
            clock=clock,
            events=self.events,
            pair=self._pair_store,
            recorder=self.recorder,
            seal=self._peppers.hold_ids,
            rules=self._known_limits,
        )
        self.streams: Final = self._open_streams() if of_web.end_streams else None
        """The open streams that end with their key or session; None: they outlive it."""
        self._warn()

    def _accounts_of(
        self, registration: Registration, of_web: WebOptions, people: SessionVerifier | None
    ) -> "AgentAccounts":
        from .services.accounts.registration import AgentAccounts

        return AgentAccounts(
            registration,
            public_url=of_web.public_url,
            store=self.store,
            format=self.format,
            people=people,
            clock=self.clock,
            events=self.events,
            rejections=self.rejections,
            max_age=self.keys.max_age,
            cookie=self.session_access.cookie,
        )

    def _leaks_of(self, settings: LeakReports) -> "LeakedKeys":
        from .services.leaks.leak_reports import LeakedKeys

        return LeakedKeys(
            settings,
            store=self.store,
            format=self.format,
            imported=self.legacy,
            keys=self.keys,
            events=self.events,
            rejections=self.rejections,
        )

    def _recorder_of(self, usage: UsageHistory | None) -> "UsageRecorder | None":
        if usage is None:
            return None
        from .services.usage.recorder import UsageRecorder

        return UsageRecorder(self.store, self.events, self.clock, addresses=usage.addresses)

    def _open_streams(self) -> "OpenStreams":
        from .services.open_streams import OpenStreams

        agents = self.accounts.agents if self.accounts else None
        return OpenStreams(self.store, agents, self.clock, self.events)

    @property
    def has_operations(self) -> bool:
        """Return whether key operations (which need sessions), leak reports or probes are there."""
        parts = self.sessions, self.leaks, self.health
        return any(part is not None for part in parts)

    async def ready(self) -> None:
        """Prepare this process: connect, check the schema, compile statements, load scripts.

        The ASGI middleware calls it when the lifespan starts, the WSGI middleware in the first
        request of a process. Without either, call it before the first request. Connecting may take
        10 seconds, independently of the deadline of requests.

        Raises:
            ConfigurationError: the tables are of another revision, or sessions are verified and no
                origin is configured (D11).
            StoreUnavailable: the store did not answer; the event ``store_failed`` says why.
        """
        await self.readiness.prepare()

    @property
    def _lacks_origin(self) -> bool:
        """Whether sessions have a cookie, but no page may write with one."""
        return self.session_access.uses_cookies and not self.origins

    @cached_property
    def changes(self) -> "Changes":
        """Return the change log: a record of each change to keys, plans and accounts (D44)."""
        from .services.change_log import Changes

        return Changes(self.store, self.events, self._peppers.cursors)

    @cached_property
    def subjects(self) -> SubjectLimits:
        """Return the counts of named limits by address, user or a function of the host."""
        return SubjectLimits(
            self.charge_subject, peppers=self._peppers, clock=self.clock, events=self.events
        )

    @cached_property
    def _explanations(self) -> "Explanations":
        from .services.explain.explanations import Explanations

        return Explanations(
            self.store,
            format=self.format,
            imported=self.legacy.kept_schemes,
            plans=self.plans,
            limits=self._limits_of_rules,
            holds=self.holds,
            subjects=self.subjects,
            clock=self.clock,
            events=self.events,
            falls_back=self._local_limits.decides,
        )

    async def authenticate(
        self,
        credential: str | bytes,
        requires: str | Requirement | None = None,
        cost: int = 1,
        address: str = "",
        limits: Sequence[Limit] = (),
    ) -> Principal:
        """Verify a key, charge its organization, then check its scopes (D19).

        The middleware calls :meth:`admit_header`, as this method does: keys have no other path.

        Args:
            credential: the text of a key, or a whole ``Authorization`` value (``Bearer ...``).
            requires: the scope that the key needs; None: any valid key is admitted.
            cost: units to take from each window, from 1 to 2**53 - 1.
            address: the client's whole address. A key with an allow-list is refused without it;
                charged for wrong imported keys that cost a slow password hash.
            limits: named limits that the request is charged for as well (D40).

        Raises:
            Unauthenticated: no such key, revoked, or expired. Nothing is counted.
            RateLimitExceeded: a window is full, of the plan or a limit. Nothing is counted.
            AddressNotAllowed: the key's allow-list does not have the address. Nothing is counted.
            InsufficientScope: the scope is missing. The request is counted.
            StoreUnavailable: the store did not answer.
            ConfigurationError: the cost is out of range, no key can be granted the scope, or the
                limits are malformed.
            TypeError: the credential is neither text nor bytes.
        """
        if isinstance(credential, str):
            credential = credential.encode("utf-8", "replace")
        elif not isinstance(credential, bytes):  # pyright: ignore[reportUnnecessaryIsInstance] - from a caller
            raise TypeError(
                "authenticate() takes the text of a key or an Authorization value, as str or "
                f"bytes, not {type(credential).__name__}."
            )
        _check_cost(cost)
        named = check_limits(limits)
        if named:
            if outside := [limit for limit in named if not limit.is_inside]:
                raise ConfigurationError(
                    f"authenticate() has the limit {outside[0]}: without a request its limits are "
                    "by organization or by key."
                )
            self.know_limits(named)
        needed = requirement(requires) if isinstance(requires, str) else requires
        if needed is not None:
            self.catalogue.check_requirement(needed)
        value = credential.strip(b" \t")
        if value and b" " not in value:
            value = b"Bearer " + value
        values = [value] if value else []
        known = self.known.find(values)
        try:
            return await self.admit_header(values, known, needed, cost, str, address, None, named)
        except Refusal as refusal:
            if self.recorder is not None:
                self.recorder.refused(refusal, address)
            raise

    async def admit_header(  # noqa: PLR0912 - an admission, and why it is tried again
        self,
        authorizations: Sequence[bytes],
        known: Token | None,
        requires: Requirement | None,
        cost: int,
        address_of: Callable[[Client], str],
        client: Client,
        address: str | None = None,
        limits: tuple[Limit, ...] = (),
    ) -> Principal:
        """Admit a request by its ``Authorization`` values, as :meth:`authenticate` says.

        Args:
            authorizations: every value of the header.
            known: the token that ``gate.known`` holds for them; None: parse them.
            requires: the scope that the key needs.
            cost: units to take from each window; 0: of a rule that charges none.
            address_of: returns the whole address of ``client``; called only if a slow hash is
                needed, or for a key with an allow-list.
            client: the caller, as ``address_of`` takes it.
            address: the result of ``address_of``, if it was called.
            limits: named limits that the request is charged for as well.
        """
        token = self.format.read(authorizations) if known is None else known
        now = self.clock() if self.clock else None
        try:
            if cost:
                admission = await self.store.admit(token, cost, self.plans, now, address, limits)
            else:
                admission = await self._admit_uncharged(token, now, address)
            verdict, key, plan, reading, named, _ = admission
            if (
                verdict is _ADMITTED
                and key is not None
                and plan is not None
                and (requires is None or requires.lacking(key.scopes) is None)
            ):
                self._admitted(plan.name)
                of_plan = reading
                if named is not None:
                    of_plan = of_plan_alone(cast(Reading, reading), plan.windows)
                principal = new_tuple(Principal, (key.organization, key, None, plan, of_plan))
                if self._thresholds is not None or (named is not None and named.quotas):
                    self._meter(principal, cast(Reading, reading), named, cost, address_of, client)
                if known is not None:
                    return principal
                return await self._remember(authorizations[0], token, principal, key)
            refusal = self._refusal(admission, requires, cost)
        except LockgateError:
            raise
        except Exception as failure:
            raise unavailable(self.events, failure) from failure
        finally:
            if known is None and token.rejected is not None:
                self.rejections.report(token.rejected)
        if isinstance(refusal, AddressNotAllowed) and address is None:
            address = address_of(client)
            if not self._may_come(key, address):
                raise refusal
        elif isinstance(refusal, Unauthenticated) and known is not None:
            self.known.forget(authorizations[0])  # The row may have moved to another digest (K9).
            known = None
        elif isinstance(refusal, KeyNotFound) and isinstance(token, ImportedToken):
            await self._upgrade(token, budget_of(address or address_of(client)))
        else:
            if isinstance(refusal, InsufficientScope):  # It was charged (D19).
                principal = cast(Principal, refusal.principal)
                self._meter(principal, cast(Reading, reading), named, cost, address_of, client)
            raise refusal
        return await self.admit_header(
            authorizations, known, requires, cost, address_of, client, address, limits
        )

    async def _admit_uncharged(
        self, token: Token, now: int | None, address: str | None
    ) -> Admission:
        """Verify a key and count the request for it, without charging a window (D40)."""
        with within(self._patience.seconds(self._deadline)):
            at = await self.store.now() if now is None else now
            key = await self.store.find(token.handle)
            refusal = refusal_of(token, key, at, address)
            if refusal is not None or key is None:
                return refusal or UNKNOWN
            plan = await self.organizations.plan(key.organization)
            reading = await self._peek(key.organization, plan)
            await self.store.add_usage({key.handle: Usage(1, at)})
        last = max(at, key.last_used_at or 0)
        counted = key._replace(request_count=key.request_count + 1, last_used_at=last)
        reading = reading._replace(allowed=True, refused_by=None, wait=0)
        return Admission(Verdict.ADMITTED, counted, plan, reading)

    def _may_come(self, key: ApiKey | None, address: str) -> bool:
        """Return whether to ask the store about a client of a key with an allow-list.

        An address that has spent its budget of failures causes no further call, unless the list
        has it as this process remembers it (D24).
        """
        listed = key is not None and contains(key.addresses, address)
        return listed or self.failures.refuses(budget_of(address)) is None

    def _meter(
        self,
        principal: Principal,
        reading: Reading,
        limits: LimitWindows | None,
        cost: int,
        address_of: Callable[[Client], str],
        client: Client,
        *,
        is_more: bool = False,
    ) -> None:
        """Count a charge for its key and organization, and tell the marks that it crosses.

        Args:
            principal: the caller, with the reading of its plan.
            reading: that of all windows that were charged.
            limits: the named limits among them.
            cost: units that were taken from each window.
            address_of: returns the address of ``client``; called about once a second for each key.
            client: the caller, as ``address_of`` takes it.
            is_more: whether named limits alone were charged, for a request that is counted.
        """
        if limits is not None:
            self._tell_quotas(principal.organization, limits, reading, cost)
        if is_more:
            if limits is not None and self.recorder is not None:
                organization, key, _, _, _ = principal
                handle = None if key is None else key.handle
                units = dict.fromkeys(limits.names, cost)
                self.recorder.used(organization, handle, units, reading.now)
            return
        if self._thresholds is not None:
            self._thresholds.admitted(principal, cost)
        if self.recorder is not None:
            self.recorder.admitted(principal, cost, address_of, client, limits)

    def _tell_quotas(
        self,
        organization: str,
        limits: LimitWindows,
        reading: Reading,
        cost: int,
        *,
        is_subject: bool = False,
    ) -> None:
        """Tell the calendar quotas of which an admission has taken the use across 80 or 100 %.

        While the store is away, this process decides by its share of a quota. It tells nothing
        then, but once it charges the store for its admissions.

        Args:
            organization: the owner of the windows.
            limits: named limits; the reading ends with their windows.
            reading: the reading of an admission.
            cost: units that it took from each window.
            is_subject: whether the owner is a subject outside of any organization.
        """
        if limits.quotas and organization not in self._local_limits.away:
            limits = limits.at(reading.now, organization)
            used = reading.used[-len(limits.names) :]
            owner = None if is_subject else organization
            tell_quotas(self.events, owner, limits, used, cost)

    async def _remember(
        self, authorization: bytes, token: Token, principal: Principal, key: ApiKey
    ) -> Principal:
        """Move a newly verified key to the newest pepper and remember its token."""
        if not is_current(key, self._peppers):
            key = await self._rehash(token, key)
            principal = principal._replace(key=key)
        self.known.remember(authorization, token, key)
        return principal

    async def _upgrade(self, token: ImportedToken, address: str) -> None:
        """Move the row of an imported key to lockgate's digest, after its slow check."""
        try:
            await self.legacy.upgrade(token, address)
        except RateLimitExceeded as refusal:
            self.attach_rate_headers(refusal, refusal.measured)
            raise
        finally:
            if token.rejected is not None:
                self.rejections.report(token.rejected)

    def _refusal(
        self,
        admission: Admission,
        requires: Requirement | None,
        cost: int,
    ) -> Refusal:
        """Return the refusal for an admission whose verdict or scopes refuse the request."""
        verdict, key, plan, reading, named, _ = admission
        if key is None:
            return KeyNotFound()
        if verdict is Verdict.ELSEWHERE:
            return AddressNotAllowed(key.organization, key.id)
        if plan is None or reading is None:
            ended = _ENDED[verdict]()
            ended.organization = key.organization
            ended.handle = key.handle
            return ended
        of_plan = reading if named is None else of_plan_alone(reading, plan.windows)
        principal = new_tuple(Principal, (key.organization, key, None, plan, of_plan))
        if verdict is Verdict.LIMITED:
            return self._limited(principal, plan.windows, reading, named, cost)
        lacking = None if requires is None else requires.lacking(key.scopes)
        assert lacking is not None, "or it is admitted"
        return self.refused(InsufficientScope(lacking), principal)

    def _limited(
        self,
        principal: Principal,
        windows: tuple[Window, ...],
        reading: Reading,
        limits: LimitWindows | None,
        cost: int,
    ) -> Refusal:
        """Return the refusal of a caller by a window of its plan or a named limit."""
        key, ends = principal.key, principal.plan.ends_of_windows
        refusal = rate_limit_exceeded(windows, reading, cost, limits, ends)
        if key is not None and key.expires_at is not None:
            refusal.until = min(refusal.until, key.expires_at)
        return self.refused(refusal, principal)

    async def admit_session(
        self,
        session: Session,
        cost: int = 1,
        requires: Requirement | None = None,
        *,
        charged: bool = True,
        limits: tuple[Limit, ...] = (),
    ) -> Principal:
        """Admit a verified session and charge its organization's windows, as for a key (D9).

        Args:
            session: the session, with the scopes of its role.
            cost: units to take from each window, from 1 to 2**53 - 1.
            requires: the scope that its role needs; None: any.
            charged: whether to charge the windows. Otherwise they are only read, and full windows
                refuse nothing.
            limits: named limits of the rule that the request is charged for as well; of these and
                of the plan's limits those by organization only.

        Raises:
            NoOrganization: the session acts for no organization.
            RateLimitExceeded: a window is full.
            InsufficientScope: the role lacks the scope. The request is counted.
            StoreUnavailable: the store did not answer.
        """
        _check_cost(cost)
        organization = session.organization
        if not is_id(organization):
            raise NoOrganization
        with within(self._patience.seconds(self._deadline)), asking(self.events):
            plan = await self.organizations.plan(organization)
            principal = Principal(organization, None, session, plan, _UNREAD)
            if charged:
                named = bound(limits + plan.limits, None) if limits or plan.limits else None
                principal = await self.charge_windows(principal, plan.windows, named, cost, str, "")
            else:
                principal = principal._replace(reading=await self._peek(organization, plan))
        lacking = None if requires is None else requires.lacking(session.scopes)
        if lacking is not None:
            raise self.refused(InsufficientScope(lacking, of_session=True), principal)
        self._admitted(plan.name)
        return principal

    async def charge_windows(
        self,
        principal: Principal,
        windows: tuple[Window, ...],
        limits: LimitWindows | None,
        cost: int,
        address_of: Callable[[Client], str],
        client: Client,
    ) -> Principal:
        """Charge the organization of a verified caller, and return the caller with the reading.

        Args:
            principal: the caller.
            windows: those of its plan, or none where they were charged before.
            limits: the named limits that it is charged for in the same step.
            cost: units to take from each window.
            address_of: returns the address of ``client``; called about once a second for each key.
            client: the caller, as ``address_of`` takes it.

        Raises:
            RateLimitExceeded: a window is full; nothing was charged.
            StoreUnavailable: the store did not answer.
        """
        organization = principal.organization
        reading = await self._charge(organization, Hit(windows, cost, limits))
        if limits is not None:
            limits = limits.at(reading.now, organization)
        before, alone = principal.reading, of_plan_alone(reading, windows)
        tightest = tighter(alone, before) if windows else tighter(before, reading)
        principal = principal._replace(reading=tightest)
        if not reading.allowed:
            raise self._limited(principal, windows, reading, limits, cost)
        is_more = not windows
        self._meter(principal, reading, limits, cost, address_of, client, is_more=is_more)
        return principal

    async def charge_subject(self, owner: str, limits: LimitWindows, cost: int) -> Reading:
        """Charge the named limits of a subject outside of any organization.

        Args:
            owner: the name of its windows.
            limits: the named limits.
            cost: units to take from each window.

        Returns:
            The reading of the windows, which admits.

        Raises:
            RateLimitExceeded: a window is full; nothing was charged.
            StoreUnavailable: the store did not answer.
        """
        reading = await self._charge(owner, Hit((), cost, limits))
        if not reading.allowed:
            raise refused_subject(reading, cost, limits.at(reading.now))
        self._tell_quotas(owner, limits, reading, cost, is_subject=True)
        return reading

    async def _charge(self, owner: str, hit: Hit) -> Reading:
        """Charge windows within the deadline of a request.

        Raises:
            StoreUnavailable: the store did not answer.
        """
        now = self.clock() if self.clock else None
        with within(self._patience.seconds(self._deadline)), asking(self.events):
            return await self.store.charge(owner, hit, now)

    def know_limits(self, limits: Iterable[Limit]) -> None:
        """Learn named limits of rules, for :meth:`explain` and the rate limit status.

        Raises:
            ConfigurationError: a different limit has the same name, holds are taken of it, or it is
                by user and the gate verifies no sessions.
        """
        limits = tuple(limits)
        if self.sessions is None and (of_users := [one for one in limits if one.by == "user"]):
            raise ConfigurationError(
                f"The limit {of_users[0].name!r} is by user, and the gate verifies no sessions, so "
                "it would count no request: give the gate Gate(sessions=...), or count by 'key'."
            )
        known = check_names((*self._limits.values(), *limits))
        self.holds.refuse_names(known.values())
        for one in self.plans.limits:
            check_names((one, known.get(one.name, one)))
        if len(known) > len(self._limits):
            self._limits = known

    @property
    def limits(self) -> tuple[Limit, ...]:
        """The named limits of all plans and rules of this process."""
        return tuple(dict.fromkeys((*self.plans.limits, *self._limits.values())))

    def _known_limits(self) -> Iterable[Limit]:
        return self.limits

    def _limits_of_rules(self) -> Iterable[Limit]:
        return self._limits.values()

    async def named_usage(
        self, organization: str, key: ApiKey | None = None, plan: Plan | None = None
    ) -> tuple[LimitUsage, ...]:
        """Return what an organization, and one of its keys, used of the named limits of the rules
        and holds of this process, of its plan, and of the key, also of those without use.

        Reads the store once for the limits of rules, plan and key, and once for those of holds,
        where there are any.

        Args:
            organization: the organization's id.
            key: one of its keys; None leaves out the limits by key.
            plan: its plan, if known; None: read it, if any plan has limits.

        Raises:
            StoreUnavailable: the store did not answer.
        """
        id, own = (None, ()) if key is None else (key.id, key.limits)
        if not (self.limits or own or self.holds.limits):
            return ()
        now = self.clock() if self.clock else None
        with within(self._patience.seconds(self._deadline)), asking(self.events):
            if plan is None and self.plans.limits:
                plan = await self.organizations.plan(organization)
            of_plan = () if plan is None else plan.limits
            named = bound((*self._limits_of_rules(), *of_plan), id, own)
            used: tuple[LimitUsage, ...] = ()
            if named is not None:
                reading = await self.store.charge(organization, Peek((), named), now)
                used = limit_usage(named, reading)
            held = await self.holds.usage(organization, id)
        return used + tuple(
            LimitUsage(one.limit.name, one.window, one.used, one.most, one.held) for one in held
        )

    async def _peek(self, organization: str, plan: Plan) -> Reading:
        """Return the reading of windows, or of the local limits while the store is away."""
        now = self.clock() if self.clock else None
        try:
            return await self.store.charge(organization, Peek(plan.windows), now)
        except Exception as failure:
            return self._local_limits.peek(failure, organization, plan.windows, now)

    def seal_is_valid(self, account: Account) -> bool:
        """Return whether the row of an account has a valid seal; report it otherwise."""
        return seal_is_valid(account, self.format.peppers, self.rejections)

    async def now(self) -> int:
        """Return the present in microseconds, by the gate's clock or else by the store's."""
        return self.clock() if self.clock else await self.store.now()

    async def usage(
        self, organization: str, key: str | None = None, by: By = "hour"
    ) -> "UsageReport":
        """Return what an organization or one of its keys used, and how often it was refused.

        Includes all requests that this process has answered, and those that others answered more
        than a second ago. A gate without :class:`~lockgate.UsageHistory` can read what others keep.

        Args:
            organization: the organization's id.
            key: the id of one key of that organization; None: the organization as a whole.
            by: the span of a cell: ``minute`` for the latest hour, ``hour`` for a week, ``day`` for
                400 days.

        Raises:
            NotFound: the organization has no such key.
            ConfigurationError: the store keeps no usage over time.
            StoreUnavailable: the store did not answer.
        """
        from .services.usage.reports import report

        handle = None if key is None else (await self.keys.get(organization, key)).handle
        with asking(self.events):
            if self.recorder is not None:
                await self.recorder.write()
            return await report(self.store, organization, key, handle, by, await self.now())

    async def explain(
        self,
        subject: str,
        key: str | None = None,
        *,
        address: str | None = None,
        user: str | None = None,
        cost: int = 1,
        requires: str | Requirement | None = None,
        limits: Iterable[Limit] = (),
    ) -> "Explanation":
        """Explain what an organization may use now, and why a request would be refused.

        Counts nothing and changes no state. Budgets of client addresses are not included: each
        process has its own.

        Args:
            subject: an organization's id, or the text of a key.
            key: the id of one key of that organization; None: the organization as a whole.
            address: the client's address, judged by the allow-list of each key; None: unknown, and
                no key is refused for it. The named limits by address are included for it.
            user: the id of a session's user, for the named limits by user.
            cost: the units of the request.
            requires: the scope that it needs; None: any valid key.
            limits: the named limits of its rule. Those of other rules are shown, and refuse
                nothing.

        Raises:
            ConfigurationError: ``address`` is no IP address, ``cost`` is not 0 to 2**53 - 1,
                ``requires`` is no scope of the catalogue, or ``limits`` is no list of limits.
            NotFound: the organization has no such key.
            KeyNotFound: no key has this text.
            InvalidFormat: the text begins like a key but is malformed, as after a typing error.
            StoreUnavailable: the store did not answer.
        """
        needed = requirement(requires) if isinstance(requires, str) else requires
        if needed is not None:
            self.catalogue.check_requirement(needed)
        _check_cost(cost, 0)
        return await self._explanations.explain(
            subject,
            key,
            address=address,
            user=user,
            cost=cost,
            requires=needed,
            limits=check_limits(limits),
        )

    async def explain_open(
        self, limits: Iterable[Limit], address: str | None = None
    ) -> "OpenExplanation":
        """Explain why a request to a public rule would be refused by the named limits of the rule.

        Counts nothing and changes no state. Budgets of client addresses are not included, as in
        :meth:`explain`.

        Args:
            limits: the named limits of the rule.
            address: the client's address; None: unknown, and the limits by address are not judged.

        Raises:
            ConfigurationError: ``address`` is no IP address.
            StoreUnavailable: the store did not answer.
        """
        return await self._explanations.explain_open(limits, address)

    def slot(
        self,
        holder: Holder,
        job: str | None = None,
        *,
        owner: str | None = None,
        seconds: float | None = None,
    ) -> ConcurrencySlot:
        """Return a context manager that holds a concurrency slot for a job while its block runs.

        Use ``async with gate.slot(principal, job_id):``, or ``with gate.slot(...):`` in a thread
        without an event loop. For work that outlives the block, or ends elsewhere, see
        :attr:`slots`.

        Args:
            holder: the calling principal, or the organization's id.
            job: the job's id, 1 to 128 characters, which runs once at a time; None: a new random
                id.
            owner: the owner of a slot that :meth:`gate.slots.acquire()
                <lockgate.services.reservations.slots.ConcurrencySlots.acquire>` took before; the
                block takes it over.
            seconds: the lease, up to a day, after which the slot is free again if this process
                dies; None: that of :class:`~lockgate.options.StoreOptions`.

        Entering the block raises what :meth:`gate.slots.acquire()
        <lockgate.services.reservations.slots.ConcurrencySlots.acquire>` raises, and
        :class:`ConfigurationError` where the store does not suit the kind of block.
        """
        return ConcurrencySlot(self.slots, holder, job, owner, seconds)

    def hold(
        self, caller: Caller, units: Mapping[Limit, int], *, seconds: float | None = None
    ) -> Hold:
        """Return a context manager that holds units of named limits while its block runs (D41).

        Use it for work whose cost is known at its end: take the most that it can use, and name what
        it used. The rest is free at once::

            async with gate.hold(caller, {TOKENS: 4096}) as hold:
                answer = await model.complete(prompt)
                hold.used(answer.tokens)

        ``with gate.hold(...)`` does the same in a thread without an event loop. For work that ends
        in another process, see :attr:`holds`.

        Args:
            caller: the calling principal, or the organization's id.
            units: the most that the work can use, by limit. All are taken, or none is.
            seconds: until the units count as used if this process dies, up to an hour; None: that
                of :class:`~lockgate.options.StoreOptions`.

        Entering the block raises what :meth:`gate.holds.take()
        <lockgate.services.reservations.holds.Holds.take>` raises, and :class:`ConfigurationError`
        where the store does not suit the kind of block.
        """
        return self.holds.hold(caller, units, seconds=seconds)

    async def charge(self, caller: Caller, units: Mapping[Limit, int]) -> None:
        """Charge units of named limits that are known once the work is done, such as tokens::

            await gate.charge(caller, {TOKENS: answer.tokens})

        It counts with the holds of these limits; :meth:`hold` takes units before the work.

        Args:
            caller: the calling principal, or the organization's id.
            units: the units by limit. All are charged, or none is.

        Raises:
            RateLimitExceeded: the units do not fit a limit, so none is charged.
            InvalidRequest: the organization's id is malformed.
            ConfigurationError: as for :meth:`gate.holds.take()
                <lockgate.services.reservations.holds.Holds.take>`.
            StoreUnavailable: the store did not answer.
        """
        await self.holds.charge(caller, units)

    def pair(self, face: Literal["async", "sync"]) -> None:
        """Check the I/O modes of the store and the session verifier against an adapter's.

        Each adapter calls it when it is constructed.

        Args:
            face: ``async``: the adapter awaits in an event loop, as under ASGI; ``sync``: it waits
                in a thread, as under WSGI.

        Raises:
            ConfigurationError: the store or the verifier would block the event loop, or needs one.
        """
        self._pair_store(face)
        self.session_access.pair(face)

    async def flush(self) -> None:
        """Finish ending slots and holds, write the usage buffer and emit pending events.

        The gate stays usable.

        For the end of a server: the ASGI middleware calls it when the lifespan ends.
        """
        self.events.tell_admitted()
        await self.slots.finishing.flush()
        await self.holds.flush()
        if self.recorder is not None:
            await self.recorder.flush()
        await self.store.flush()

    async def close(self) -> None:
        """Release the store's connections, threads and files."""
        self.events.tell_admitted()
        await self.slots.finishing.flush()
        await self.holds.close()
        self.legacy.close()
        if self.accounts is not None:
            await self.accounts.close()
        await self._retention.close()
        if self.streams is not None:
            await self.streams.close()
        if self.recorder is not None:
            await self.recorder.close()
        await self.store.close()

    def _pair_store(self, face: Literal["async", "sync"]) -> None:
        pair(face, self._opened, self._opened.io)

    def refused(self, refusal: Refusal, principal: Principal) -> Refusal:
        """Add the caller's principal and rate-limit headers to a refusal, and return it."""
        refusal.principal = principal
        refusal.organization = principal.organization
        self.attach_rate_headers(refusal, (principal.plan, principal.reading))
        if principal.key is not None:
            refusal.rate += sunset_headers(principal.key)
        return refusal

    def attach_rate_headers(self, refusal: Refusal, measured: tuple[Plan, Reading] | None) -> None:
        """Add the rate-limit headers of a plan and a reading to a refusal, if they are known."""
        if measured is not None:
            refusal.measured = measured
            refusal.rate = rate_headers(*measured)

    async def _rehash(self, token: Token, key: ApiKey) -> ApiKey:
        """Move a key to the newest pepper, while its text is at hand, and seal its row (K9).

        Returns:
            The key with its present digest.
        """
        new = token.fresh_digest()
        if new is None:
            return key
        if key.scheme == PLAIN_SCHEME:
            told = "plain_key_used", logging.WARNING
            self.events.emit(*told, organization=key.organization, id=key.id)
        sealed = resealed_key(key, self._peppers, new)
        try:
            with within(self._patience.seconds(self._deadline)), collecting():
                moved = await self.store.rehash_if(key.handle, key.kept, sealed.kept, known=key)
        except Exception as failure:
            unavailable(self.events, failure)
            return key
        if not moved:
            return key
        name = "key_sealed" if new.scheme == key.scheme else "key_rehashed"
        self.events.emit(name, organization=key.organization, id=key.id, scheme=new.scheme)
        return sealed

    def _warn(self) -> None:
        """Log warnings for settings that keep pages out, or let a writer of the database in."""
        if self._lacks_origin:
            logger.warning("%s", _NO_ORIGIN)
        peppers = self._peppers
        if not peppers.seals:
            if not isinstance(self._opened, MemoryStore):
                logger.warning("%s", _NO_PEPPER)
            return
        for name in ("accept_plain", "accept_unsealed"):
            if getattr(peppers, name):
                logger.warning("%s", _ACCEPTS.format(name))


class VerifiedKeyCache:
    """Maps the BLAKE2b of an admitted ``Authorization`` value to its parsed token.

    A hit saves parsing, checksum and keyed digest, but admits no request: the store verifies the
    key on each use. The cache holds digests only, no keys.
    """

    def __init__(self) -> None:
        self._tokens = BoundedDict[bytes, Token](_KNOWN_AT_MOST)

    def find(self, authorizations: Sequence[bytes]) -> Token | None:
        """Return the token of these ``Authorization`` values; None: parse them."""
        if len(authorizations) != 1 or len(authorizations[0]) > HEADER_LENGTH:
            return None
        fingerprint = blake2b(authorizations[0]).digest()
        token = self._tokens.get(fingerprint)
        if token is not None:
            self._tokens.touch(fingerprint)
        return token

    def remember(self, authorization: bytes, token: Token, key: ApiKey) -> None:
        """Remember the token with which this key was admitted."""
        self._tokens[blake2b(authorization).digest()] = token.without_secret(key)

    def forget(self, authorization: bytes) -> None:
        """Forget a token that is no longer admitted."""
        self._tokens.pop(blake2b(authorization).digest(), None)


def _check_cost(cost: int, least: int = 1) -> None:
    if not (is_whole(cost) and least <= cost <= LARGEST):
        raise ConfigurationError(
            f"A cost is a whole number from {least} to 2**53 - 1, not {cost!r}."
        )


def _opened(store: object, keys: object, windows: object) -> Store:
    """Return the store that a gate is given, whole or in two parts.

    Raises:
        ConfigurationError: it is given both ways, or is no store.
    """
    if keys is not None or windows is not None:
        if store is not None:
            raise ConfigurationError("Give the gate a store, or keys= and windows=, not both.")
        return combine(keys, windows)
    if store is None:
        store = "memory://"
    return open_store(store) if isinstance(store, str) else checked(store)


def _only(kind: type[Kind], features: Sequence[Feature]) -> Kind | None:
    """Return the feature of a kind; None: it is not switched on.

    Raises:
        ConfigurationError: there are two.
    """
    found = [feature for feature in features if isinstance(feature, kind)]
    if len(found) > 1:
        raise ConfigurationError(f"features has {kind.__name__}(...) twice: give it once.")
    return found[0] if found else None


def _origins(of_web: WebOptions) -> frozenset[bytes]:
    """Return the origins whose pages may write with a session."""
    return frozenset(map(origin_of, [*filter(None, [of_web.public_url]), *of_web.allowed_origins]))
