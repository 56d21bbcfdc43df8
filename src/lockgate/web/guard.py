"""Admit or refuse a request for every adapter: its rule, credential, limits and headers."""

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import Final

from ..core.access_rule import ANY_KEY, Rule
from ..core.limit_hits import tighter
from ..core.limits import Limit, bound
from ..core.rate_limit_headers import rate_headers, rate_limit_exceeded
from ..core.request_paths import Pattern
from ..core.sliding_window import Reading
from ..errors import (
    AddressNotAllowed,
    InsufficientScope,
    MethodNotAllowed,
    MissingAuth,
    NoOrganization,
    NotFound,
    RateLimitExceeded,
    Refusal,
    SessionRequired,
    Unauthenticated,
)
from ..events import OnceAMinute, logger
from ..gate import Gate
from ..principal import Principal
from ..services.accounts.acting_organization import acting
from ..services.reservations.slots import ConcurrencySlot
from ..sessions import verifies_offline
from .cached_responses import CachedResponses
from .entry import Entry
from .guarded_routes import GuardedRoutes
from .operations import table
from .request import RequestView, address_of, client_of
from .sessions import (
    Presented,
    presented,
    session_by,
    token_of,
    wanted_organization,
    with_role,
)
from .shadow import kind_of
from .subjects import Counted, subjects_of, user_of

PREFLIGHT: Final = Rule(public=True)
"""Charged for a CORS preflight, which no handler may see: an application's CORS middleware answers
it, or the gate does (D31)."""


_TAKEN_OUT: Final = (
    "A request came to the application without passing its gate, and is %s. The gate was taken out "
    "after protect(): uninstrument_app() of OpenTelemetry and the end of 'with "
    "logfire.instrument_fastapi(app)' put back the middleware from before. Leave such an "
    "instrumentation in place, or put one around the application that protect() returned. Or "
    "another application is served than the one that protect() returned."
)


class Guard(GuardedRoutes):
    """Stands before an application: lets a request in, or raises the refusal to answer with.

    Args:
        gate: the gate that admits or refuses each request.
        rules: by ``"METHOD /path"``, what a request must bring; see
            :class:`~lockgate.core.rule_book.RuleBook`. Everything else needs a valid key.
        host: the one host that the rules without a host are for; None: every host.

    Raises:
        ConfigurationError: a rule that cannot be read, contradicts another, or requires a scope
            that does not exist.
    """

    _without_gate = "answered with 404"

    def __init__(
        self,
        gate: Gate,
        rules: Mapping[str, Rule | str] | None = None,
        *,
        host: str | None = None,
    ) -> None:
        super().__init__(gate, rules, host=host)
        self.cached_responses: Final = CachedResponses(gate)
        self.is_inside = False
        """Whether the gate is part of its application, which another change may take it out of."""
        self._taken_out: Final = OnceAMinute()
        self._address_of: Final = partial(client_of, gate)
        self._known: Final = gate.known
        self._store: Final = gate.store

    async def enter(  # noqa: PLR0912 - each further coroutine costs a microsecond
        self, caller: RequestView
    ) -> Entry:
        """Admit a request.

        Raises:
            Refusal: the request is not admitted; ``rate`` holds its rate-limit headers.
        """
        gate, book, method = self.gate, self.book, caller.method
        try:
            if book.by_host or method == "OPTIONS":
                rule = self._rule_of(caller)
            else:
                rule = book.match(method, caller.path, caller.raw_path, (), self.redirects, caller)
        except Refusal as refusal:
            return self._refused(refusal, caller, ANY_KEY)
        if rule.asks_first:
            if rule.public:
                return (
                    await self._public(caller, rule)
                    if rule.outside
                    else self._anonymous(caller, rule)
                )
            if gate.failures.has_spent:
                try:
                    await self.refuse_unknown(caller, rule)
                except Refusal as refusal:
                    return self._refused(refusal, caller, rule)
            await self._charge_first(caller, rule, rule.outside)
        authorizations = caller.authorizations
        try:
            if not rule.takes_key or (rule.takes_session and not authorizations):
                principal = await self._enter_by_session(caller, rule)
            elif (token := self._known.find(authorizations)) is None:
                principal = await self._look_up(caller, rule, authorizations)
            else:
                if self.cached_responses.known:
                    await self.cached_responses.peek(token, rule)
                local_version = self._store.local_version
                try:
                    principal = await gate.admit_header(
                        authorizations,
                        token,
                        rule.requires,
                        rule.cost,
                        self._address_of,
                        caller,
                        None,
                        rule.charged,
                    )
                except RateLimitExceeded as refusal:
                    if self.shadow is None:
                        self.cached_responses.remember(token, rule, refusal, local_version)
                    raise
        except table.Repeated:
            raise
        except Refusal as refusal:
            return self._refused(refusal, caller, rule)
        entry = Entry(self, rule, principal, principal[3:])
        return entry if rule.plain else self._admitted(caller, entry)

    async def enter_inside(self, outer: Entry, caller: RequestView) -> Entry | None:
        """Admit a request that this gate has admitted already, by the rules of this guard.

        Only the units that the rule costs beyond those charged so far are charged, and the named
        limits that were not. A slot that the request holds at this gate serves here as well.

        Args:
            outer: the record of the gate just outside this one.
            caller: the request.

        Returns:
            None where :meth:`enter` has to decide: only other gates admitted the request, or this
            one asked for no credential and does now.

        Raises:
            Refusal: the principal is not what the rule asks for, or a window is full.
        """
        gate = self.gate
        held = outer if outer.guard.gate is gate else outer.within(gate)
        if held is None:
            return None
        rule, principal, spent = self._rule_of(caller), held.principal, held.spent
        if principal is None and not rule.public:
            return None
        entry = Entry(self, rule, principal, None)
        entry.slot, entry.spent = held.slot, max(spent, rule.cost)
        entry.limits = tuple(dict.fromkeys((*held.limits, *rule.limits)))
        if rule.outside:
            more = tuple(limit for limit in rule.outside if limit not in held.limits)
            await self._charge_first(caller, rule, more)
        if principal is None or rule.public:
            entry.spent = spent
            return entry
        try:
            if principal.session is not None and not rule.takes_session:
                raise MissingAuth
            if principal.key is not None and not rule.takes_key:
                raise SessionRequired
            if rule.cost > spent:
                entry.principal = principal = await self._charge(
                    principal, rule.cost - spent, caller
                )
            if len(entry.limits) > len(held.limits):
                entry.principal = principal = await self._charge_limits(
                    principal, rule, held.limits, caller
                )
            table.check(rule, principal)
            self._check_method(rule, principal, caller)
        except Refusal as refusal:
            if isinstance(refusal, InsufficientScope):
                gate.refused(refusal, principal)
            self._refused(refusal, caller, rule)
        entry.measured = principal.plan, _with_subjects(principal.reading, caller)
        if held.slot is None:
            entry.slot = self._slot(rule, principal)
        return entry

    def verify_presence(self, entry: Entry | None) -> None:
        """Check, where an application dispatches a request, that its gate is before it (G9).

        Args:
            entry: the record of the innermost gate that the request passed. Where this gate is part
                of the application, only a record of its own counts; a gate around an application
                may be one of several beside each other.

        Raises:
            NotFound: there is no such record.
        """
        if entry is not None and (
            entry.guard is self or not self.is_inside or entry.of(self) is not None
        ):
            return
        if self._taken_out.is_due():
            logger.error(_TAKEN_OUT, self._without_gate)
        raise NotFound

    def ended(self) -> None:
        """Report what was not reported yet, when the process ends."""

    def _rule_of(self, caller: RequestView) -> Rule:
        """The rule for a request, or PREFLIGHT.

        Raises:
            InvalidRequest: the request target is none that applications agree on.
        """
        rule = self._match(caller)
        return PREFLIGHT if caller.method == "OPTIONS" and _is_preflight(caller) else rule

    def _match(self, caller: RequestView) -> Rule:
        book = self.book
        hosts = caller.hosts if book.by_host else ()
        path, raw = caller.path, caller.raw_path
        return book.match(caller.method, path, raw, hosts, self.redirects, caller)

    def _admitted(self, caller: RequestView, entry: Entry) -> Entry:
        """Complete the entry of a request whose rule takes a slot, does not take its method, or has
        limits of subjects."""
        principal, rule = entry.principal, entry.rule
        assert principal is not None, "only a public rule admits without one"
        try:
            self._check_method(rule, principal, caller)
        except Refusal as refusal:
            return self._refused(refusal, caller, rule)
        entry.measured = principal.plan, _with_subjects(principal.reading, caller)
        entry.slot = self._slot(rule, principal)
        return entry

    async def _charge(self, principal: Principal, cost: int, caller: RequestView) -> Principal:
        """Charge a principal's organization; return the principal with the new reading."""
        plan, key = principal.plan, principal.key
        named = bound(plan.limits, None if key is None else key.id, key.limits if key else ())
        return await self.gate.charge_windows(
            principal, plan.windows, named, cost, self._address_of, caller
        )

    async def _charge_limits(
        self, principal: Principal, rule: Rule, charged: tuple[Limit, ...], caller: RequestView
    ) -> Principal:
        """Charge a principal for the named limits of a rule that no gate outside has charged."""
        more = tuple(limit for limit in rule.charged if limit not in charged)
        named = bound(more, None if principal.key is None else principal.key.id)
        if named is None:
            return principal
        return await self.gate.charge_windows(
            principal, (), named, rule.cost, self._address_of, caller
        )

    def _check_method(self, rule: Rule, principal: Principal, caller: RequestView) -> None:
        if rule.allow is None:
            return
        allow = rule.allow
        if "HEAD" in allow:
            path = Pattern.of_route(caller.path).stem
            if any(stem.covers(path) for stem in self._without_head):
                allow = tuple(method for method in allow if method != "HEAD")
        refusal = MethodNotAllowed(allow, of_application=not rule.own) if allow else NotFound()
        raise self.gate.refused(refusal, principal)

    def _slot(self, rule: Rule, principal: Principal) -> ConcurrencySlot | None:
        return self.gate.slot(principal) if rule.slot else None

    async def _look_up(
        self, caller: RequestView, rule: Rule, authorizations: list[bytes]
    ) -> Principal:
        """Admit a key that this process has not verified lately, at its address's expense.

        Where sessions are accepted, the credential may be the token of one.
        """
        if rule.takes_session and (token := token_of(self.gate, caller)) is not None:
            return await self._enter_by_session(caller, rule, token)
        address = address_of(self.gate, caller)
        self._refuse_spent(rule, address)
        with self._proving(rule, address):
            asked = rule.requires, rule.cost, self._address_of, caller, None, rule.charged
            return await self.gate.admit_header(authorizations, None, *asked)

    def _proving(self, rule: Rule, address: str) -> AbstractContextManager[None]:
        """Return the context in which a credential of an address is verified."""
        return self.gate.failures.proving(address)

    async def _enter_by_session(
        self, caller: RequestView, rule: Rule, shown: Presented | None = None
    ) -> Principal:
        gate = self.gate
        if not rule.takes_session:
            raise NotFound
        shown = shown or presented(gate, caller)
        if shown is None:
            raise MissingAuth if rule.takes_key else SessionRequired
        self._refuse_spent(rule, address_of(gate, caller), shown)
        session = await session_by(gate, caller, shown)
        # A verified session fails by itself: others at its address have their budget. Users of two
        # organizations may have one id, and an organization that of a user (W8).
        holder = f"session {(session.organization, session.user)}"
        self._refuse_spent(rule, holder)
        if rule.outside:
            await self._charge_subjects(user_of(session, rule.outside), caller, rule)
        try:
            accounts = gate.accounts
            if accounts is not None:
                wanted, trusts = wanted_organization(caller), accounts.trusts_provider
                session = await acting(
                    gate.store,
                    gate.events,
                    gate.seal_is_valid,
                    session,
                    wanted,
                    trusts_provider=trusts,
                )
            elif session.organization is not None:  # Another process may take registrations.
                session = await acting(gate.store, gate.events, gate.seal_is_valid, session, None)
            session = await with_role(gate, session)
            if rule.free_for_sessions:
                self._count_read(holder)
            charged = rule.cost > 0 and not rule.free_for_sessions
            return await gate.admit_session(
                session, rule.cost or 1, rule.requires, charged=charged, limits=rule.charged
            )
        except NoOrganization as refusal:
            gate.attach_rate_headers(refusal, (gate.failures.plan, gate.failures.charge(holder)))
            raise

    def _count_read(self, holder: str) -> None:
        """Count a read that costs its organization nothing, on a budget of its session.

        Raises:
            RateLimitExceeded: the budget is spent.
        """
        reads = self.gate.anonymous
        reading = reads.charge(holder)
        if not reading.allowed:
            refusal = rate_limit_exceeded(reads.plan.windows, reading)
            self.gate.attach_rate_headers(refusal, (reads.plan, reading))
            raise refusal

    async def _charge_first(
        self, caller: RequestView, rule: Rule, limits: tuple[Limit, ...]
    ) -> None:
        """Charge limits by address and by functions, before a credential is verified.

        Raises:
            RateLimitExceeded: a window is full.
            StoreUnavailable: the store did not answer, and local limits do not apply.
        """
        try:
            await self._charge_subjects(subjects_of(self.gate, caller, limits), caller, rule)
        except Refusal as refusal:
            if rule.public:
                anonymous = self.gate.anonymous
                reading = anonymous.peek(address_of(self.gate, caller))
                if refusal.measured is not None:
                    reading = tighter(reading, refusal.measured[1])
                self.gate.attach_rate_headers(refusal, (anonymous.plan, reading))
            self._refused(refusal, caller, rule)

    async def _charge_subjects(
        self, subjects: Iterable[Counted], caller: RequestView, rule: Rule
    ) -> None:
        """Charge limits of subjects outside of any organization, one subject after another.

        Where a later subject, the credential or the plan refuses, they stay charged: so they count
        attempts with wrong credentials, and admit no more than they say (D40).
        """
        for kind, subject, limits in subjects:
            told = await self._charge_subject(kind, subject, limits, caller, rule)
            if told is not None:
                caller.outside = _with_subjects(told, caller)

    async def _charge_subject(
        self,
        kind: str,
        subject: str,
        limits: Iterable[Limit],
        caller: RequestView,
        rule: Rule,
    ) -> Reading | None:
        return await self.gate.subjects.charge(kind, subject, limits, rule.cost)

    async def _public(self, caller: RequestView, rule: Rule) -> Entry:
        """Admit a request that needs no key, and charge the limits of its rule.

        An address that has spent its budget in this process causes no call of a store.
        """
        address = address_of(self.gate, caller)
        if self.gate.anonymous.peek(address).allowed:
            await self._charge_first(caller, rule, rule.outside)
        return self._anonymous(caller, rule)

    def _anonymous(self, caller: RequestView, rule: Rule) -> Entry:
        """Admit a request that needs no key, counted by its address."""
        anonymous, address = self.gate.anonymous, address_of(self.gate, caller)
        is_free = rule is PREFLIGHT and self._asks_for_operation(caller)
        reading = anonymous.peek(address) if is_free else anonymous.charge(address)
        if reading.allowed or is_free or (rule.own and self._is_free_probe(caller)):
            self.gate.events.admit(anonymous.plan.name)
            return Entry(self, rule, None, (anonymous.plan, _with_subjects(reading, caller)))
        refusal = rate_limit_exceeded(anonymous.plan.windows, reading)
        self.gate.attach_rate_headers(refusal, (anonymous.plan, reading))
        if not rule.answers_refusals:
            return self._refused(refusal, caller, rule)
        with suppress(RateLimitExceeded):
            self._refused(refusal, caller, rule)
        return Entry(self, rule, None, (anonymous.plan, reading))

    def _asks_for_operation(self, caller: RequestView) -> bool:
        """Return whether a preflight asks for one of lockgate's own operations.

        Without its answer no page of another origin can revoke a key, and any client at the address
        may have spent the budget (D24).
        """
        method = caller.header(b"access-control-request-method")[0].decode("latin-1")
        hosts = caller.hosts if self.book.by_host else ()
        return self.book.match(method, caller.path, caller.raw_path, hosts).own

    def _is_free_probe(self, caller: RequestView) -> bool:
        """Return whether a request is a probe of ``WebOptions(health=)`` that asks no store.

        An orchestrator that is answered with 429 ends the process. Behind a proxy that is not
        configured its address is that of all clients, which could so bring that about.
        """
        health, path = self.gate.health, caller.path
        if health is None:
            return False
        return path == f"{health}/live" or (
            path == f"{health}/ready" and self.gate.readiness.is_ready
        )

    def _refused(self, refusal: Refusal, caller: RequestView, rule: Rule) -> Entry:
        """Report a refusal and raise it, complete with its headers."""
        refusal = self._completed(refusal, caller, rule)
        self._tell(refusal, caller, rule)
        raise refusal

    def _completed(self, refusal: Refusal, caller: RequestView, rule: Rule) -> Refusal:
        """Return the refusal to answer with, complete with its headers.

        A failed credential is charged to the address, and once that has spent its budget the
        answer is that. What is no fault of the caller's is not charged, nor is a session that was
        verified. A named limit that refuses before the plan is known leaves
        ``X-RateLimit-Limit`` out, and the others are its own (D40).
        """
        gate, failures = self.gate, self.gate.failures
        if isinstance(refusal, Unauthenticated | AddressNotAllowed):
            reading = failures.charge(address_of(gate, caller))
            if not reading.allowed:
                refusal = self._spent(refusal, reading, rule)
            gate.attach_rate_headers(refusal, (failures.plan, reading))
        elif refusal.organization is None and not refusal.rate:
            known = refusal.measured
            if known is None:
                known = failures.plan, failures.peek(address_of(gate, caller))
            gate.attach_rate_headers(refusal, known)
        if caller.outside is not None and refusal.measured is not None:
            plan, reading = refusal.measured
            ending = refusal.rate[len(rate_headers(plan, reading)) :]
            gate.attach_rate_headers(refusal, (plan, tighter(reading, caller.outside)))
            refusal.rate += ending
        return refusal

    def _spent(self, refusal: Refusal, reading: Reading, rule: Rule) -> Refusal:
        """Return the refusal of an address that has spent its budget of failures."""
        return rate_limit_exceeded(self.gate.failures.plan.windows, reading)

    def _tell(
        self, refusal: Refusal, caller: RequestView, rule: Rule, *, watched: bool = False
    ) -> None:
        events, redact = self.gate.events, self.gate.format.redact
        kind = kind_of(refusal)
        self.gate.metrics.refuse(kind.code, kind.plan, kind.window, shadowed=watched)
        if self.gate.recorder is not None and not watched:
            self.gate.recorder.refused(refusal, address_of(self.gate, caller))
        if events.heard:
            events.emit(
                "shadowed" if watched else "refused",
                **kind._asdict(),
                method=redact(caller.method),
                path=redact(caller.path),
                address=address_of(self.gate, caller),
                organization=refusal.organization,
                route=self.book.route_of(rule),
                wait=getattr(refusal, "retry_after", None),
                reason="address" if isinstance(refusal, AddressNotAllowed) else None,
            )

    def _refuse_spent(self, rule: Rule, address: str, shown: Presented | None = None) -> None:
        """Refuse an address that has spent its budget of failures, before any store is asked.

        Not for a session that is verified without a store: another client at the address may have
        spent the budget.
        """
        failures = self.gate.failures
        reading = failures.refuses(address)
        if reading is None:
            return
        if shown is not None and verifies_offline(shown.verifier, shown.text):
            return
        refusal = rate_limit_exceeded(failures.plan.windows, reading)
        self.gate.attach_rate_headers(refusal, (failures.plan, reading))
        raise refusal

    async def refuse_unknown(self, caller: RequestView, rule: Rule) -> None:
        """Refuse a spent address before a store counts it for the limits of a rule (D24).

        Not with a key that this process admitted lately, nor with a good session that is verified
        without a store.

        Raises:
            Refusal: the address has spent its budget of failures, or its session is not accepted.
        """
        gate, authorizations = self.gate, caller.authorizations
        address = address_of(gate, caller)
        if gate.failures.refuses(address) is None:
            return
        if rule.takes_key and self._known.find(authorizations) is not None:
            return
        shown = None
        if rule.takes_session:
            shown = token_of(gate, caller) if authorizations else presented(gate, caller)
        self._refuse_spent(rule, address, shown)
        if shown is not None:
            await session_by(gate, caller, shown)


def _with_subjects(reading: Reading, caller: RequestView) -> Reading:
    """Return a reading with the tightest window of those and of the limits of subjects (D40)."""
    return reading if caller.outside is None else tighter(reading, caller.outside)


def _is_preflight(caller: RequestView) -> bool:
    """Whether OPTIONS is a CORS preflight: browsers send those without credentials (D31).

    Not with an empty value, which some CORS layers hand on to a handler.
    """
    named = caller.header(b"origin"), caller.header(b"access-control-request-method")
    return all(values and all(values) for values in named)
