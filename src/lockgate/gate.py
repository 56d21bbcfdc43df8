"""The gate: wires store, plans, keys and clock together, and admits requests."""

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Final, Literal, TypeVar, cast

from .core.accounts import Account
from .core.api_keys import ApiKey
from .core.client_address import ClientAddresses
from .core.deprecation import sunset_headers
from .core.digests import PLAIN_SCHEME, Peppers
from .core.imported_keys import ImportedKeyFormat, ImportedToken
from .core.key_format import KeyFormat, Token
from .core.plans import ANONYMOUS, LARGEST, Plan, PlanBook, is_id, is_whole
from .core.rate_limit_headers import (
    all_headers,
    all_text,
    rate_headers,
    rate_limit_exceeded,
    rate_text,
)
from .core.row_seals import is_current, resealed_key
from .core.same_origin import origin_of
from .core.scopes import Catalogue, Requirement, requirement
from .core.sliding_window import Reading
from .errors import (
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
from .principal import Principal
from .services.anonymous_limits import AnonymousLimits
from .services.concurrency import ConcurrencySlot, ConcurrencySlots, Holder
from .services.explanations import Explanation, Explanations
from .services.forwarded_headers import ForwardedHeaders
from .services.imported_keys import ImportedKeys
from .services.keys import Keys
from .services.open_streams import OpenStreams
from .services.organizations import Organizations
from .services.readiness import Readiness
from .services.registration import AgentAccounts, Registration
from .services.rejected_rows import RejectedRows, believed
from .services.retention import Retention
from .services.store_errors import asking, pair, unavailable
from .services.verified_key_cache import VerifiedKeyCache
from .sessions import Session, SessionVerifier
from .stores.base import Admission, Store, Verdict
from .stores.memory.store import MemoryStore
from .stores.memory.windows import Clock
from .stores.open import checked, open_store, resilient
from .stores.resilience.deadlines import DEADLINE, within
from .stores.resilience.local_limits import Fallback, LocalLimits
from .sync_gate import SyncGate

_ENDED: Final[dict[Verdict, type[Unauthenticated]]] = {
    Verdict.REVOKED: KeyRevoked,
    Verdict.EXPIRED: KeyExpired,
}

_NO_PEPPER: Final = (
    "The gate has no pepper: whoever can write to the store can create keys and change what they "
    "may do. Give Gate(peppers=[...]) 32 random bytes that are not in the store."
)
_ACCEPTS: Final = (
    "The gate has {0}=True: whoever can write to the store can create keys. Take it out as soon as "
    "gate.keys.census() counts no 'sha256' and no 'unsealed' any more."
)

# Bound at module level: a global lookup is cheaper than an attribute lookup per request.
_ADMITTED: Final = Verdict.ADMITTED
# tuple.__new__ takes a third of the time of a NamedTuple's own constructor.
_principal = cast(Callable[[type[Principal], Iterable[object]], Principal], tuple.__new__)  # pyright: ignore[reportUnknownMemberType] - typeshed's own Self

Client = TypeVar("Client")


class Gate:
    """Authenticate and rate-limit requests: the keys, scopes and limits of one service.

    Args:
        store: where keys and windows are kept: a :class:`~lockgate.stores.Store` or its URL.
        brand: the first word of the service's keys, as ``acme`` in ``acme_live_...``.
        environment: the second word of the keys: ``live``, or another such as ``test``.
        peppers: secrets for key digests and row seals, the newest first, 16 bytes or more each
            (D3).
        next_pepper: the pepper that the next deploy puts first in ``peppers``. Accepts keys that
            other processes have already moved to it.
        accept_plain: whether to accept keys without a pepper while ``peppers`` is set. For services
            that add their first pepper, until all keys have moved: a writer of the database can
            mint such keys.
        accept_unsealed: whether to accept rows without a seal while ``peppers`` is set. For
            services with older rows, until ``gate.keys.seal()`` has sealed them: a writer of the
            database can give such a row any organization and any scope.
        plans: the plan book; by default the plans of spec 8.1.
        catalogue: the scope catalogue; by default the scopes of spec 5.3.
        anonymous: the budget of one client address for public routes, and a second budget of the
            same size for requests without a valid credential (D24).
        legacy: key formats of other systems whose imported keys are accepted; the first format
            that matches a key applies.
        sessions: verifies dashboard sessions; None: the key operations cannot be mounted.
        registration: lets agents register themselves; None: they cannot (D13).
        public_url: the URL of the service's own pages; their origin may write with a session.
        allowed_origins: further origins whose pages may write with a session (D11).
        trusted_proxies: addresses and networks of proxies whose ``X-Forwarded-For`` is trusted.
        key_cap: the maximum number of live keys of an organization; None: no maximum (D8).
        key_retention_days: days for which revoked and expired keys are kept, at least 1; None:
            forever (D45).
        slot_lease: seconds until the slot of a dead worker is free again, up to a day. A running
            job renews its lease three times in that time.
        slot_retry_after: seconds in ``Retry-After`` of a refused slot: a hint (D26).
        end_streams: whether the open streams and WebSockets of a key end within a second of its
            revocation or expiry.
        prefix: the path prefix of lockgate's own operations (D37).
        health: the path prefix of the health probes, e.g. ``"/health"`` for the public paths
            ``/health/live`` and ``/health/ready``; None: no probes.
        draft_headers: whether to add the IETF draft's ``RateLimit`` fields (D23).
        deadline: seconds that a request waits for a shared store before it is refused (D34).
        on_store_failure: how to limit callers that are verified without the store while it is away:
            by ``local`` windows of this process, ``open`` (no limits) or ``closed`` (503) (D28). A
            key that cannot be verified is always refused.
        fleet: the number of processes that share the limits; local windows apply a share to each.
        clock: returns the present in microseconds, for tests; by default each store's own clock.
        observer: receives every :class:`~lockgate.events.Event`.

    Raises:
        ConfigurationError: arguments do not fit together; the message says what to change.
    """

    def __init__(
        self,
        store: Store | str = "memory://",
        *,
        brand: str,
        environment: str = "live",
        peppers: Sequence[bytes] = (),
        next_pepper: bytes | None = None,
        accept_plain: bool = False,
        accept_unsealed: bool = False,
        plans: PlanBook | None = None,
        catalogue: Catalogue | None = None,
        anonymous: Plan = ANONYMOUS,
        legacy: Iterable[ImportedKeyFormat] = (),
        sessions: SessionVerifier | None = None,
        registration: Registration | None = None,
        public_url: str | None = None,
        allowed_origins: Iterable[str] = (),
        trusted_proxies: Iterable[str] = (),
        key_cap: int | None = 1000,
        key_retention_days: float | None = 400,
        slot_lease: float = 60.0,
        slot_retry_after: int = 10,
        end_streams: bool = True,
        prefix: str = "/api/v1",
        health: str | None = None,
        draft_headers: bool = False,
        deadline: float = DEADLINE,
        on_store_failure: Fallback = "local",
        fleet: int = 1,
        clock: Clock | None = None,
        observer: Observer | None = None,
    ) -> None:
        _check(key_cap, prefix, health, sessions)
        systems = tuple(legacy)
        self._opened = open_store(store) if isinstance(store, str) else checked(store)
        self._peppers = Peppers(
            peppers,
            next_pepper=next_pepper,
            accept_plain=accept_plain,
            accept_unsealed=accept_unsealed,
        )
        self.format: Final = KeyFormat(brand, environment, self._peppers, systems)
        self.plans: Final = plans or PlanBook()
        self.catalogue: Final = catalogue or Catalogue.of()
        pages = [public_url] if public_url else []
        self.origins: Final = frozenset(map(origin_of, [*pages, *allowed_origins]))
        self.addresses: Final = ClientAddresses(trusted_proxies)
        self.prefix: Final = prefix
        self.health: Final = health
        self.events: Final = Events(observer)
        self.metrics: Final = self.events.metrics
        """Counters of admissions, refusals and events (:class:`~lockgate.metrics.Metrics`)."""
        self._admitted: Final = self.events.admit
        limits = LocalLimits(on_store_failure, fleet, self.events)
        self.store: Final = resilient(self._opened, self.events, limits, deadline)
        self.anonymous: Final = AnonymousLimits(anonymous, clock)
        """Budgets of client addresses for public routes."""
        self.failures: Final = AnonymousLimits(anonymous, clock)
        """Budgets of client addresses for requests without a valid credential."""
        self.forwarding: Final = ForwardedHeaders(self.events)
        self.known: Final = VerifiedKeyCache()
        watch = clock, self.events
        self.rejections: Final = RejectedRows(self.events)
        self.legacy: Final = ImportedKeys(
            systems, self.store, self._peppers, self.catalogue, key_cap, *watch
        )
        self._retention = Retention(self.store, key_retention_days, *watch)
        self.keys: Final = Keys(
            *(self.store, self.format, self.catalogue, key_cap),
            *(*watch, self._retention, self.rejections),
        )
        parts = self.store, self.format, sessions
        self.accounts: Final = (
            AgentAccounts(registration, public_url, *parts, *watch, self.rejections)
            if registration
            else None
        )
        self._people = sessions
        self.sessions: Final = self.accounts.agents if self.accounts else sessions
        if sessions is not None and not self.origins:
            logger.warning(
                "no page can write with a session: give the gate the origin of your pages, as "
                "Gate(public_url='https://console.example.com') or allowed_origins."
            )
        self.readiness: Final = Readiness(
            self.store, self.events, lacks_origin=sessions is not None and not self.origins
        )
        self.organizations: Final = Organizations(self.store, self.plans, self.events)
        self._explanations: Final = Explanations(
            self.store, self.format, self.legacy.kept_schemes, self.plans, *watch
        )
        lease = slot_lease, slot_retry_after
        self.slots: Final = ConcurrencySlots(
            self.store, self.organizations, self.format, *lease, *watch, self._pair_store
        )
        self.streams: Final = OpenStreams(self.store, clock, self.events) if end_streams else None
        """The open streams that end with their key; None: they outlive it."""
        self.clock: Final = clock
        self._deadline = deadline
        self.headers: Final = all_headers if draft_headers else rate_headers
        """Builds the rate-limit headers of a plan and a reading (D23)."""
        self.text_headers: Final = all_text if draft_headers else rate_text
        """Builds the same headers as text, for WSGI."""
        self._warn()

    @property
    def has_operations(self) -> bool:
        """Return whether operations (which need sessions) or probes are configured."""
        return self.sessions is not None or self.health is not None

    async def ready(self) -> None:
        """Prepare this process: connect, check the schema, compile statements, load scripts.

        The ASGI middleware calls it when the lifespan starts, the WSGI middleware in the first
        request of a process. Without either, call it before the first request. Connecting may take
        5 seconds, independently of the deadline of requests.

        Raises:
            ConfigurationError: the tables are of another revision, or sessions are verified and no
                origin is configured (D11).
            StoreUnavailable: the store did not answer; the event ``store_failed`` says why.
        """
        await self.readiness.prepare()

    @cached_property
    def sync(self) -> SyncGate:
        """Return a view of this gate with blocking methods, for threads without an event loop.

        Raises:
            ConfigurationError: the store needs an event loop.
        """
        return SyncGate(self)

    async def authenticate(
        self,
        credential: str | bytes,
        requires: str | Requirement | None = None,
        cost: int = 1,
        address: str = "",
    ) -> Principal:
        """Verify a key, charge its organization, then check its scopes (D19).

        The middleware calls :meth:`admit_header`, as this method does: keys have no other path.

        Args:
            credential: the text of a key, or a whole ``Authorization`` value (``Bearer ...``).
            requires: the scope that the key needs; None: any valid key is admitted.
            cost: units to take from each window, from 1 to 2**53 - 1.
            address: the client's address; charged for wrong imported keys that cost a slow
                password hash.

        Raises:
            Unauthenticated: no such key, revoked, or expired. Nothing is counted.
            RateLimitExceeded: a window is full. Nothing is counted.
            InsufficientScope: the scope is missing. The request is counted.
            StoreUnavailable: the store did not answer.
            ConfigurationError: the cost is out of range, or no key can be granted the scope.
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
        needed = requirement(requires) if isinstance(requires, str) else requires
        if needed is not None:
            self.catalogue.check_requirement(needed)
        value = credential.strip(b" \t")
        if value and b" " not in value:
            value = b"Bearer " + value
        values = [value] if value else []
        return await self.admit_header(values, self.known.find(values), needed, cost, str, address)

    async def admit_header(
        self,
        authorizations: Sequence[bytes],
        known: Token | None,
        requires: Requirement | None,
        cost: int,
        address_of: Callable[[Client], str],
        client: Client,
    ) -> Principal:
        """Admit a request by its ``Authorization`` values, as :meth:`authenticate` says.

        Args:
            authorizations: every value of the header.
            known: the token that ``gate.known`` holds for them; None: parse them.
            requires: the scope that the key needs.
            cost: units to take from each window.
            address_of: returns the address of ``client``; called only if a slow hash is needed.
            client: the caller, as ``address_of`` takes it.
        """
        token = self.format.read(authorizations) if known is None else known
        now = self.clock() if self.clock else None
        try:
            admission = await self.store.admit(token, cost, self.plans, now)
            verdict, key, plan, reading = admission
            if (
                verdict is _ADMITTED
                and key is not None
                and plan is not None
                and (requires is None or requires.lacking(key.scopes) is None)
            ):
                self._admitted(plan.name)
                principal = _principal(Principal, (key.organization, key, None, plan, reading))
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
        if not isinstance(refusal, Unauthenticated):
            raise refusal
        if known is not None:  # The row may have moved to another digest (K9).
            self.known.forget(authorizations[0])
        elif key is None and isinstance(token, ImportedToken):
            await self._upgrade(token, address_of(client))
        else:
            raise refusal
        return await self.admit_header(authorizations, None, requires, cost, address_of, client)

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

    def _refusal(self, admission: Admission, requires: Requirement | None, cost: int) -> Refusal:
        """Return the refusal for an admission whose verdict or scopes refuse the request."""
        verdict, key, plan, reading = admission
        if key is None:
            return KeyNotFound()
        if plan is None or reading is None:
            ended = _ENDED[verdict]()
            ended.organization = key.organization
            return ended
        principal = Principal(key.organization, key, None, plan, reading)
        if verdict is Verdict.LIMITED:
            limited = rate_limit_exceeded(plan.windows, reading, cost)
            if key.expires_at is not None:
                limited.until = min(limited.until, key.expires_at)
            return self.refused(limited, principal)
        lacking = None if requires is None else requires.lacking(key.scopes)
        assert lacking is not None, "or it is admitted"
        return self.refused(InsufficientScope(lacking), principal)

    async def admit_session(self, session: Session, cost: int = 1) -> Principal:
        """Admit a verified session and charge its organization's windows, as for a key (D9).

        Raises:
            NoOrganization: the session acts for no organization.
            RateLimitExceeded: a window is full.
            StoreUnavailable: the store did not answer.
        """
        _check_cost(cost)
        organization = session.organization
        if not is_id(organization):
            raise NoOrganization
        now = self.clock() if self.clock else None
        with within(self.readiness.seconds(self._deadline)), asking(self.events):
            plan = await self.organizations.plan(organization)
            reading = await self.store.hit(organization, plan.windows, cost, now)
        principal = Principal(organization, None, session, plan, reading)
        if not reading.allowed:
            refusal = rate_limit_exceeded(plan.windows, reading, cost)
            raise self.refused(refusal, principal)
        self._admitted(plan.name)
        return principal

    def believes(self, account: Account) -> bool:
        """Return whether the row of an account has a valid seal; report it otherwise."""
        return believed(account, self.format.peppers, self.rejections)

    async def now(self) -> int:
        """Return the present in microseconds, by the gate's clock or else by the store's."""
        return self.clock() if self.clock else await self.store.now()

    async def explain(self, subject: str, key: str | None = None) -> Explanation:
        """Explain what an organization may use now, and why its next request would be refused.

        Counts nothing and changes no state. Budgets of client addresses are not included: each
        process has its own.

        Args:
            subject: an organization's id, or the text of a key.
            key: the id of one key of that organization; None: the organization as a whole.

        Raises:
            NotFound: the organization has no such key.
            KeyNotFound: no key has this text.
            InvalidFormat: the text begins like a key but is malformed, as after a typing error.
            StoreUnavailable: the store did not answer.
        """
        return await self._explanations.explain(subject, key)

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
                <lockgate.services.concurrency.ConcurrencySlots.acquire>` took before; the block
                takes it over.
            seconds: the lease, up to a day, after which the slot is free again if this process
                dies; None: the gate's ``slot_lease``.

        Entering the block raises what :meth:`gate.slots.acquire()
        <lockgate.services.concurrency.ConcurrencySlots.acquire>` raises, and
        :class:`ConfigurationError` where the store does not suit the kind of block.
        """
        return ConcurrencySlot(self.slots, holder, job, owner, seconds)

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
        if self._people is not None:
            pair(face, self._people, self._people.io)

    async def flush(self) -> None:
        """Finish started releases of slots, write the usage buffer and emit pending events.

        The gate stays usable.

        For the end of a server: the ASGI middleware calls it when the lifespan ends.
        """
        self.events.tell_admitted()
        await self.slots.finishing.flush()
        await self.store.flush()

    async def close(self) -> None:
        """Release the store's connections, threads and files."""
        self.events.tell_admitted()
        await self.slots.finishing.flush()
        self.legacy.close()
        if self.accounts is not None:
            await self.accounts.close()
        await self._retention.close()
        if self.streams is not None:
            await self.streams.close()
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
            refusal.rate = self.headers(*measured)

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
            with within(self.readiness.seconds(self._deadline)):
                moved = await self.store.rehash_if(key.handle, key.kept, sealed.kept)
        except Exception as failure:
            unavailable(self.events, failure)
            return key
        if not moved:
            return key
        name = "key_sealed" if new.scheme == key.scheme else "key_rehashed"
        self.events.emit(name, organization=key.organization, id=key.id, scheme=new.scheme)
        return sealed

    def _warn(self) -> None:
        """Log a warning for settings that let a writer of the database mint keys."""
        peppers = self._peppers
        if not peppers.seals:
            if not isinstance(self._opened, MemoryStore):
                logger.warning("%s", _NO_PEPPER)
            return
        for name in ("accept_plain", "accept_unsealed"):
            if getattr(peppers, name):
                logger.warning("%s", _ACCEPTS.format(name))


def _check_cost(cost: int) -> None:
    if not (is_whole(cost) and 1 <= cost <= LARGEST):
        raise ConfigurationError(f"A cost is a whole number from 1 to 2**53 - 1, not {cost!r}.")


def _check(
    key_cap: int | None, prefix: str, health: str | None, sessions: SessionVerifier | None
) -> None:
    """Check the arguments of a gate before it opens its store.

    Raises:
        ConfigurationError: an argument is out of range or malformed.
    """
    if key_cap is not None and key_cap < 1:
        raise ConfigurationError(f"key_cap is {key_cap}: use at least 1, or None for no cap.")
    if prefix != "" and (not prefix.startswith("/") or prefix.endswith("/")):
        raise ConfigurationError(f"The prefix {prefix!r} must start with '/' and not end with it.")
    if health is not None and (not health.startswith("/") or health.endswith("/")):
        raise ConfigurationError(
            f"health is {health!r}: write a path such as '/health', which does not end with '/'."
        )
    if sessions is not None and not hasattr(sessions, "io"):
        raise ConfigurationError(
            f"{type(sessions).__name__} does not say whether it waits: give the class "
            "io = 'none', 'sync', 'async' or 'both', as stores have."
        )
