"""The gate: wires store, plans, keys and clock together, and admits requests."""

from collections.abc import Iterable, Sequence
from typing import Final, Literal

from .errors import (
    ConfigurationError,
    Header,
    InsufficientScope,
    KeyExpired,
    KeyNotFound,
    KeyRevoked,
    LockgateError,
    Refusal,
    Unauthenticated,
)
from .events import Events, Observer
from .flows.anonymous import Anonymous
from .flows.asking import asking, unavailable
from .flows.keys import Keys
from .flows.known import KnownKeys
from .flows.organizations import Organizations
from .identity import Session, SessionVerifier
from .principal import Principal
from .rules.addresses import Addresses
from .rules.credentials import Digest, KeyFormat, Peppers, Token
from .rules.headers import draft_headers, rate_headers, rate_limit_exceeded
from .rules.keys import ApiKey
from .rules.origins import origin_of
from .rules.plans import ANONYMOUS, Plan, PlanBook
from .rules.scopes import Catalogue, Requirement
from .rules.windows import Reading
from .stores.contract import Store, Verdict
from .stores.local import Clock
from .stores.urls import open_store

_ENDED: Final[dict[Verdict, type[Unauthenticated]]] = {
    Verdict.REVOKED: KeyRevoked,
    Verdict.EXPIRED: KeyExpired,
}


class Gate:
    """Decides who comes in: keys, scopes and limits for one service.

    Args:
        store: where keys and windows are kept: a :class:`~lockgate.stores.Store` or its URL.
        brand: the word that the service's keys start with, as ``acme`` in ``acme_live_...``.
        environment: the second word of the keys: ``live``, or another such as ``test``.
        peppers: secrets that keys are digested with, the newest first, 16 bytes or more each (D3).
        plans: the plans there are; by default those of spec 8.1.
        catalogue: the scopes there are; by default those of spec 5.3.
        anonymous: what one client address may do without a key (D24).
        sessions: verifies dashboard sessions; without it no key operation can be mounted.
        public_url: where the service's own pages live: their origin may write with a session.
        allowed_origins: further origins whose pages may (D11).
        trusted_proxies: addresses and networks whose ``X-Forwarded-For`` is believed.
        key_cap: the most live keys an organization may have; None: any number (D8).
        prefix: where lockgate's own operations live (D37).
        draft_headers: whether to add the IETF draft's ``RateLimit`` fields as well (D23).
        clock: gives the present in microseconds, for tests; by default each store's own clock.
        observer: is told every :class:`~lockgate.events.Event`.

    Raises:
        ConfigurationError: something does not fit together; the message says what to change.
    """

    def __init__(
        self,
        store: Store | str = "memory://",
        *,
        brand: str,
        environment: str = "live",
        peppers: Sequence[bytes] = (),
        plans: PlanBook | None = None,
        catalogue: Catalogue | None = None,
        anonymous: Plan = ANONYMOUS,
        sessions: SessionVerifier | None = None,
        public_url: str | None = None,
        allowed_origins: Iterable[str] = (),
        trusted_proxies: Iterable[str] = (),
        key_cap: int | None = 1000,
        prefix: str = "/api/v1",
        draft_headers: bool = False,
        clock: Clock | None = None,
        observer: Observer | None = None,
    ) -> None:
        if key_cap is not None and key_cap < 1:
            raise ConfigurationError(f"key_cap is {key_cap}: use at least 1, or None for no cap.")
        if prefix != "" and (not prefix.startswith("/") or prefix.endswith("/")):
            raise ConfigurationError(
                f"The prefix {prefix!r} must start with '/' and not end with it."
            )
        self.store: Final = open_store(store) if isinstance(store, str) else store
        self.format: Final = KeyFormat(brand, environment, Peppers(peppers))
        self.plans: Final = plans or PlanBook()
        self.catalogue: Final = catalogue or Catalogue.of()
        self.sessions: Final = sessions
        self.origins: Final = frozenset(
            origin_of(url) for url in [*([public_url] if public_url else []), *allowed_origins]
        )
        self.addresses: Final = Addresses(trusted_proxies)
        self.prefix: Final = prefix
        self.events: Final = Events(observer)
        self.anonymous: Final = Anonymous(anonymous, clock)
        self.known: Final = KnownKeys()
        self.keys: Final = Keys(
            self.store, self.format, self.catalogue, key_cap, clock, self.events
        )
        self.organizations: Final = Organizations(self.store, self.plans, self.events)
        self._clock = clock
        self._draft = draft_headers

    async def admit(
        self, token: Token, requires: Requirement | None = None, cost: int = 1
    ) -> Principal:
        """Let a key in: verify it, charge its organization, then look at its scopes (D19).

        Args:
            token: from ``gate.format.read``.
            requires: the scope that is needed.
            cost: what the request takes from each window.

        Raises:
            Unauthenticated: no such key, revoked, or expired. Nothing is counted.
            RateLimitExceeded: a window is full. Nothing is counted.
            InsufficientScope: the scope is missing. The request is counted.
            StoreUnavailable: the store did not answer.
        """
        if cost < 1:
            raise ConfigurationError(f"A cost is at least 1, not {cost}.")
        clock = self._clock
        try:
            verdict, key, plan, reading = await self.store.admit(
                token, cost, self.plans, clock() if clock else None
            )
        except LockgateError:
            raise
        except Exception as failure:
            raise unavailable(self.events, failure) from failure
        if key is None:
            raise KeyNotFound
        if plan is None or reading is None:
            raise self._of(_ENDED[verdict](), key.organization)
        if verdict is Verdict.LIMITED:
            raise self._of(rate_limit_exceeded(plan, reading), key.organization, plan, reading)
        principal = Principal(key.organization, key, None, plan, reading)
        lacking = principal.scopes.lacking(requires) if requires is not None else None
        if lacking is not None:
            raise self._of(InsufficientScope(lacking), key.organization, plan, reading)
        if key.scheme != self.format.peppers.scheme:
            await self._rehash(token, key)
        return principal

    async def admit_session(self, session: Session, cost: int = 1) -> Principal:
        """Let a verified session in: it counts on its organization's windows, like a key (D9).

        Raises:
            RateLimitExceeded: a window is full.
            StoreUnavailable: the store did not answer.
        """
        if cost < 1:
            raise ConfigurationError(f"A cost is at least 1, not {cost}.")
        plan = await self.organizations.plan(session.organization)
        now = self._clock() if self._clock else None
        with asking(self.events):
            reading = await self.store.hit(session.organization, plan.windows, cost, now)
        if not reading.allowed:
            refusal = rate_limit_exceeded(plan, reading)
            raise self._of(refusal, session.organization, plan, reading)
        return Principal(session.organization, None, session, plan, reading)

    def headers(self, plan: Plan, reading: Reading) -> tuple[Header, ...]:
        """What a response carries of a reading (D23)."""
        if not self._draft:
            return rate_headers(plan, reading)
        return (*rate_headers(plan, reading), *draft_headers(plan, reading))

    def pair(self, face: Literal["async", "blocking"]) -> None:
        """See that the store suits a face, which asks when it is made.

        Args:
            face: ``async`` awaits in an event loop, as under ASGI; ``blocking`` waits in a thread,
                as under WSGI.

        Raises:
            ConfigurationError: the store would block the event loop, or needs one.
        """
        io = self.store.io
        if face == "async" and io == "blocking":
            raise ConfigurationError(
                f"{type(self.store).__name__} waits in the calling thread here, and would block "
                "the event loop: give it an asynchronous engine, or the gate a URL."
            )
        if face == "blocking" and io == "async":
            raise ConfigurationError(
                f"{type(self.store).__name__} needs an event loop here, and there is none: give it "
                "a blocking engine, or the gate a URL."
            )

    async def close(self) -> None:
        """Let go of the store's connections, threads and files."""
        await self.store.close()

    def _of(
        self,
        refusal: Refusal,
        organization: str,
        plan: Plan | None = None,
        reading: Reading | None = None,
    ) -> Refusal:
        """A refusal with whom it concerns, and what its response carries."""
        refusal.organization = organization
        if plan is not None and reading is not None:
            refusal.rate = self.headers(plan, reading)
        return refusal

    async def _rehash(self, token: Token, key: ApiKey) -> None:
        """Move a key to the newest pepper, now that its text is here (K9). Not if it was lost."""
        new = token.fresh_digest()
        if new is None:
            return
        try:
            moved = await self.store.rehash_if(key.handle, Digest(key.scheme, key.digest), new)
        except Exception as failure:
            unavailable(self.events, failure)
            return
        if moved:
            self.events.tell(
                "key_rehashed", organization=key.organization, id=key.id, scheme=new.scheme
            )
