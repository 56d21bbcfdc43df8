"""What every face does with a request, framework-free: find the rule, admit, give the headers."""

from collections.abc import Mapping
from typing import Final

from ..errors import (
    ConfigurationError,
    CrossSiteRequest,
    Header,
    KeyExpired,
    KeyRevoked,
    MissingAuth,
    Refusal,
    SessionInvalid,
    SessionRequired,
    StoreUnavailable,
    Unauthenticated,
)
from ..gate import Gate
from ..identity import session_cookie
from ..principal import Principal
from ..rules.headers import rate_limit_exceeded
from ..rules.origins import cross_site
from ..rules.routes import Rule, RuleBook
from . import api
from .caller import SAFE_METHODS, Caller

Entry = tuple[Principal | None, tuple[Header, ...]]
"""Who comes in, and the headers that the response carries. Nobody, on a public route and where
shadow mode let a request through."""


class Guard:
    """Stands before an application: lets a request in, or raises the refusal to answer with.

    Args:
        gate: decides.
        rules: by ``"METHOD /path"``, what a request must bring; see
            :class:`~lockgate.rules.routes.RuleBook`. Everything else needs a valid key.
        shadow: count and report, and refuse nothing: to watch a gate before it closes. lockgate's
            own operations stay closed.

    Raises:
        ConfigurationError: a rule that cannot be read, contradicts another, or requires a scope
            that does not exist.
    """

    def __init__(
        self, gate: Gate, rules: Mapping[str, Rule | str] | None = None, *, shadow: bool = False
    ) -> None:
        own = api.rules(gate)
        if taken := own.keys() & (rules or {}).keys():
            raise ConfigurationError(
                f"The rule {min(taken)!r} is lockgate's own: take it out, or move lockgate's "
                "operations with the gate's prefix."
            )
        self.gate: Final = gate
        self.book: Final = RuleBook({**(rules or {}), **own}, gate.catalogue)
        self.shadow: Final = shadow

    async def enter(self, caller: Caller) -> Entry:
        """Let a request in.

        Raises:
            Refusal: it does not come in; ``rate`` holds its rate-limit headers.
        """
        rule = self.book.match(caller.method, caller.path, caller.raw_path)
        if rule.public or (caller.method == "OPTIONS" and _is_preflight(caller)):
            return self._anonymous(caller)
        try:
            if "session" in rule.accepts and not (
                "key" in rule.accepts and caller.header(b"authorization")
            ):
                principal = await self._enter_by_session(caller, rule)
            else:
                principal = await self._enter_by_key(caller, rule)
        except Refusal as refusal:
            shadowed = self.shadow and not rule.own
            self._tell("shadowed" if shadowed else "refused", refusal, caller)
            if not shadowed:
                raise
            return None, refusal.rate
        return principal, self.gate.headers(principal.plan, principal.reading)

    def check(self, caller: Caller, principal: Principal) -> None:
        """Hold the rules against a caller whom this gate has let in already: nothing is counted.

        So a guard inside another one adds its own rules, and no second charge.

        Raises:
            Refusal: the principal is not what the rule asks for.
        """
        rule = self.book.match(caller.method, caller.path, caller.raw_path)
        if not rule.public:
            api.check(rule, principal)

    async def _enter_by_key(self, caller: Caller, rule: Rule) -> Principal:
        gate = self.gate
        anonymous = gate.anonymous
        try:
            token = gate.format.read(caller.header(b"authorization"))
        except Unauthenticated as refusal:
            raise self._charged(refusal, caller) from None
        if anonymous.spent and not anonymous.knows(token):
            self._refuse_spent(caller)
        try:
            principal = await gate.admit(token, rule.requires, rule.cost)
        except Unauthenticated as refusal:
            if isinstance(refusal, KeyRevoked | KeyExpired):
                anonymous.forget(token)
            raise self._charged(refusal, caller) from None
        except StoreUnavailable as refusal:
            raise self._uncharged(refusal, caller) from None
        if principal.key is not None:
            anonymous.remember(principal.key)
        return principal

    async def _enter_by_session(self, caller: Caller, rule: Rule) -> Principal:
        gate = self.gate
        try:
            cookie = session_cookie(caller.header(b"cookie"))
            if cookie is None or gate.sessions is None:
                raise MissingAuth if "key" in rule.accepts else SessionRequired
            self._refuse_spent(caller)
            session = await gate.sessions.verify(cookie)
            if session is None:
                raise SessionInvalid
            if caller.method not in SAFE_METHODS and cross_site(
                caller.header(b"sec-fetch-site"), caller.header(b"origin"), gate.origins
            ):
                raise CrossSiteRequest
        except (Unauthenticated, CrossSiteRequest) as refusal:
            raise self._charged(refusal, caller) from None
        try:
            return await gate.admit_session(session, rule.cost)
        except StoreUnavailable as refusal:
            raise self._uncharged(refusal, caller) from None

    def _anonymous(self, caller: Caller) -> Entry:
        """A request that needs no key: counted by its address."""
        anonymous = self.gate.anonymous
        reading = anonymous.charge(self._address(caller))
        headers = self.gate.headers(anonymous.plan, reading)
        if not reading.allowed:
            refusal: Refusal = rate_limit_exceeded(anonymous.plan, reading)
            refusal.rate = headers
            self._tell("shadowed" if self.shadow else "refused", refusal, caller)
            if not self.shadow:
                raise refusal
        return None, headers

    def _charged(self, refusal: Refusal, caller: Caller) -> Refusal:
        """Charge a failed credential to the address; with its budget spent, that is the answer."""
        anonymous = self.gate.anonymous
        reading = anonymous.charge(self._address(caller))
        if not reading.allowed:
            refusal = rate_limit_exceeded(anonymous.plan, reading)
        refusal.rate = self.gate.headers(anonymous.plan, reading)
        return refusal

    def _uncharged(self, refusal: Refusal, caller: Caller) -> Refusal:
        """A refusal that is no fault of the caller's."""
        anonymous = self.gate.anonymous
        reading = anonymous.look(self._address(caller))
        refusal.rate = self.gate.headers(anonymous.plan, reading)
        return refusal

    def _refuse_spent(self, caller: Caller) -> None:
        """Refuse an address that has spent its budget, before any store is asked."""
        anonymous = self.gate.anonymous
        reading = anonymous.refuses(self._address(caller))
        if reading is not None:
            refusal = rate_limit_exceeded(anonymous.plan, reading)
            refusal.rate = self.gate.headers(anonymous.plan, reading)
            raise refusal

    def _tell(self, name: str, refusal: Refusal, caller: Caller) -> None:
        self.gate.events.tell(
            name,
            code=refusal.code,
            method=caller.method,
            path=self.gate.format.redact(caller.path),
            address=self._address(caller),
            organization=refusal.organization,
        )

    def _address(self, caller: Caller) -> str:
        addresses = self.gate.addresses
        forwarded = caller.header(b"x-forwarded-for") if addresses.trusts_any else ()
        return addresses.find(caller.peer, forwarded)


def _is_preflight(caller: Caller) -> bool:
    """Whether OPTIONS is a CORS preflight: browsers send those without credentials (D31)."""
    return bool(caller.header(b"origin") and caller.header(b"access-control-request-method"))
