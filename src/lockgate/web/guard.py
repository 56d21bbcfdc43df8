"""What every face does with a request, framework-free: find the rule, admit, give the headers."""

from collections.abc import Mapping
from typing import Final

from ..errors import (
    ConfigurationError,
    CrossSiteRequest,
    Header,
    MissingAuth,
    NotFound,
    Refusal,
    SessionInvalid,
    SessionRequired,
    Unauthenticated,
)
from ..flows.asking import asking
from ..gate import Gate
from ..identity import session_cookie
from ..principal import Principal
from ..rules.headers import rate_limit_exceeded
from ..rules.origins import cross_site
from ..rules.routes import PUBLIC, Rule, RuleBook
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
        gate = self.gate
        rule = self.book.match(caller.method, caller.path, caller.raw_path)
        if rule.public or (caller.method == "OPTIONS" and _is_preflight(caller)):
            return self._anonymous(caller)
        authorizations = caller.header(b"authorization")
        try:
            if rule.takes_session and not (rule.takes_key and authorizations):
                principal = await self._enter_by_session(caller, rule)
            elif not rule.takes_key:
                raise NotFound
            else:
                token = gate.known.find(authorizations)
                if token is None:
                    principal = await self._enter_by_key(caller, rule, authorizations)
                else:
                    try:
                        principal = await gate.admit(token, rule.requires, rule.cost)
                    except Unauthenticated:
                        gate.known.forget(authorizations[0])
                        principal = await self._enter_by_key(caller, rule, authorizations)
        except Refusal as refusal:
            return self._refused(refusal, caller, rule)
        return principal, gate.headers(principal.plan, principal.reading)

    def passes(self, caller: Caller, principal: Principal | None) -> bool:
        """Whether a caller whom this gate has let in already may go on, by the rules of this guard.

        So a guard inside another one adds its own rules, and no second charge. False: nobody needed
        to show a key so far, and here somebody must.

        Raises:
            Refusal: the principal is not what the rule asks for.
        """
        rule = self.book.match(caller.method, caller.path, caller.raw_path)
        if rule.public or (caller.method == "OPTIONS" and _is_preflight(caller)):
            return True
        if principal is not None:
            api.check(rule, principal)
        return principal is not None

    async def _enter_by_key(
        self, caller: Caller, rule: Rule, authorizations: list[bytes]
    ) -> Principal:
        gate = self.gate
        token = gate.format.read(authorizations)
        self._refuse_spent(caller)
        principal = await gate.admit(token, rule.requires, rule.cost)
        if principal.key is not None:
            gate.known.remember(authorizations[0], token, principal.key)
        return principal

    async def _enter_by_session(self, caller: Caller, rule: Rule) -> Principal:
        gate = self.gate
        cookie = session_cookie(caller.header(b"cookie"))
        if cookie is None or gate.sessions is None:
            raise MissingAuth if rule.takes_key else SessionRequired
        self._refuse_spent(caller)
        with asking(gate.events):
            session = await gate.sessions.verify(cookie)
        if session is None:
            raise SessionInvalid
        if caller.method not in SAFE_METHODS and cross_site(
            caller.header(b"sec-fetch-site"), caller.header(b"origin"), gate.origins
        ):
            raise CrossSiteRequest
        return await gate.admit_session(session, rule.cost)

    def _anonymous(self, caller: Caller) -> Entry:
        """A request that needs no key: counted by its address."""
        anonymous = self.gate.anonymous
        reading = anonymous.charge(self._address(caller))
        headers = self.gate.headers(anonymous.plan, reading)
        if reading.allowed:
            return None, headers
        refusal = rate_limit_exceeded(anonymous.plan, reading)
        refusal.rate = headers
        return self._refused(refusal, caller, PUBLIC)

    def _refused(self, refusal: Refusal, caller: Caller, rule: Rule) -> Entry:
        """Raise a refusal, complete with headers; in shadow mode only tell of it.

        A failed credential is charged to the address, and once that has spent its budget the
        answer is that. What is no fault of the caller's is not charged.
        """
        gate, anonymous = self.gate, self.gate.anonymous
        if isinstance(refusal, Unauthenticated | CrossSiteRequest):
            reading = anonymous.charge(self._address(caller))
            if not reading.allowed:
                refusal = rate_limit_exceeded(anonymous.plan, reading)
            refusal.rate = gate.headers(anonymous.plan, reading)
        elif refusal.organization is None:
            reading = anonymous.look(self._address(caller))
            refusal.rate = gate.headers(anonymous.plan, reading)
        shadowed = self.shadow and not rule.own
        if gate.events.heard:
            gate.events.tell(
                "shadowed" if shadowed else "refused",
                code=refusal.code,
                method=caller.method,
                path=gate.format.redact(caller.path),
                address=self._address(caller),
                organization=refusal.organization,
            )
        if not shadowed:
            raise refusal
        return None, refusal.rate

    def _refuse_spent(self, caller: Caller) -> None:
        """Refuse an address that has spent its budget, before any store is asked."""
        anonymous = self.gate.anonymous
        reading = anonymous.refuses(self._address(caller))
        if reading is not None:
            refusal = rate_limit_exceeded(anonymous.plan, reading)
            refusal.rate = self.gate.headers(anonymous.plan, reading)
            raise refusal

    def _address(self, caller: Caller) -> str:
        addresses = self.gate.addresses
        forwarded = caller.header(b"x-forwarded-for") if addresses.trusts_any else ()
        return addresses.find(caller.peer, forwarded)


def _is_preflight(caller: Caller) -> bool:
    """Whether OPTIONS is a CORS preflight: browsers send those without credentials (D31)."""
    return bool(caller.header(b"origin") and caller.header(b"access-control-request-method"))
