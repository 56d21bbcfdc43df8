"""Sessions of agents: sign in with a dashboard token, and sign out (D15)."""

from typing import Final, NamedTuple

from ...clock import Clock, wall_clock
from ...core.accounts import Account
from ...core.key_format import KeyFormat, Token
from ...core.plans import Plan
from ...core.rate_limit_headers import rate_limit_exceeded
from ...core.row_seals import is_current, resealed_account
from ...core.timestamps import HOUR, SECOND
from ...errors import InvalidFormat, SessionInvalid, TokenNotAccepted
from ...events import Events
from ...sessions import Session, SessionVerifier, verifies_offline
from ...sessions.agent_cookie import AgentCookie, AgentTicket
from ...stores.base import IoMode, Store
from ...stores.committed import committing
from ..keys.rejected_rows import RejectedRows, seal_is_valid
from ..limits.anonymous_limits import AnonymousLimits
from ..limits.quotas import Quota
from ..store_errors import asking, unavailable

FAILURES_PER_HOUR: Final = 20
"""Refused tokens that one client address may send."""
SIGN_INS_PER_HOUR: Final = 60
"""Sessions that one account may begin."""


class SignedIn(NamedTuple):
    """A new session. ``cookie`` is the value of its cookie: a credential of the agent."""

    organization: str
    cookie: str
    seconds: int
    """The duration of the session."""

    def __repr__(self) -> str:
        return f"<SignedIn {self.organization}>"


class AgentSession(NamedTuple):
    """The session under which an agent has opened a stream."""

    organization: str
    cookie: str
    ends_at: int
    """The instant at which it ends by itself, in microseconds."""

    def __repr__(self) -> str:
        return f"<AgentSession {self.organization}>"


class Agents(SessionVerifier):
    """Begins, verifies and ends the sessions of agents, as ``gate.accounts.agents``.

    As a session verifier it verifies the cookies of agents, and passes other cookies on to the
    verifier of the identity provider.

    Args:
        store: keeps the accounts.
        tokens: the format of dashboard tokens.
        cookie: signs and reads the cookies of sessions.
        seconds: the duration of a session.
        people: verifies the sessions of people.
        clock: returns the present in microseconds; None: the store's own clock.
        events: receives ``signed_in`` and ``signed_out``.
        rejections: reports accounts whose seal is not valid.
    """

    def __init__(
        self,
        store: Store,
        tokens: KeyFormat,
        cookie: AgentCookie,
        seconds: int,
        people: SessionVerifier,
        clock: Clock | None,
        events: Events,
        rejections: RejectedRows,
    ) -> None:
        self._store = store
        self._tokens = tokens
        self._cookie = cookie
        self._seconds = seconds
        self._people = people
        self._watch = clock
        self._clock = clock or wall_clock
        self._events = events
        self._rejections = rejections
        failures = Plan("sign-in", None, FAILURES_PER_HOUR, None, 0)
        self._failures: Final = AnonymousLimits(failures, clock)
        self._sign_ins: Final = Quota(
            store,
            tokens.peppers,
            "sign-in:account",
            "hour",
            HOUR,
            SIGN_INS_PER_HOUR,
            clock,
            events,
        )

    @property
    def io(self) -> IoMode:
        """The I/O mode of the verifier of people; the store's own I/O mode is checked apart."""
        return self._people.io

    @committing
    async def sign_in(self, dashboard_token: str, *, address: str) -> SignedIn:
        """Begin a session for the organization that a dashboard token belongs to.

        Args:
            dashboard_token: the text shown at registration.
            address: the client's address, by which refused tokens are counted.

        Raises:
            TokenNotAccepted: the token is unknown or revoked.
            RateLimitExceeded: too many failures from this address, or sessions of this account.
            StoreUnavailable: the store did not answer, or lookups in progress have reserved all
                failures that this address has left.
        """
        spent = self._failures.refuses(address)
        if spent is not None:
            raise rate_limit_exceeded(self._failures.plan.windows, spent)
        with self._failures.proving(address):
            try:
                token = self._tokens.parse(dashboard_token)
                account = await self._find(token)
            except (InvalidFormat, TokenNotAccepted):
                self._failures.charge(address)
                raise TokenNotAccepted from None
        now = await self._sign_ins.hit(account.handle)
        with asking(self._events):
            at = now if self._watch else None
            noted = await self._store.sign_in(account.organization, at, known=account)
        if noted is None:  # A concurrent claim or removal ended the token.
            raise TokenNotAccepted
        if not is_current(account, self._tokens.peppers):
            await self._rehash(token, account)
        ticket = AgentTicket(account.handle, noted.sign_outs, now)
        self._events.emit("signed_in", organization=account.organization)
        return SignedIn(account.organization, self._cookie.write(ticket), self._seconds)

    @committing
    async def sign_out(self, organization: str) -> None:
        """End every session of an organization's agent, on every process (R4).

        Raises:
            StoreUnavailable: the store did not answer.
        """
        with asking(self._events):
            await self._store.sign_out(organization)
        self._events.emit("signed_out", organization=organization)

    async def verify(self, cookie: str) -> Session | None:
        """Return the session of an agent or a person; None if the cookie is not accepted.

        An agent's session ends at its expiry, at sign-out, and when the dashboard token is revoked.
        """
        if not self._cookie.is_one(cookie):
            return await self._people.verify(cookie)
        ticket = self._cookie.read(cookie)
        if ticket is None or self._clock() >= ticket.issued_at + self._seconds * SECOND:
            return None
        account = await self._store.account_by_token(ticket.handle)
        if account is None or account.token_revoked_at is not None:
            return None
        if account.handle != ticket.handle or not seal_is_valid(
            account, self._tokens.peppers, self._rejections
        ):
            return None
        if account.sign_outs != ticket.sign_outs:
            return None
        return Session(account.organization, agent=True)

    def opened(self, organization: str, cookie: str) -> AgentSession | None:
        """Return the session of a cookie that was verified; None: it is no agent's."""
        ticket = self._cookie.read(cookie)
        if ticket is None:
            return None
        return AgentSession(organization, cookie, ticket.issued_at + self._seconds * SECOND)

    def verifies_offline(self, cookie: str) -> bool:
        """Return whether a cookie can be verified without a call; an agent's cookie never can."""
        return not self._cookie.is_one(cookie) and verifies_offline(self._people, cookie)

    async def still(self, organization: str) -> None:
        """Check that the dashboard token of an organization is still valid.

        Operations that create a key with an agent's session call it before they answer: a
        concurrent claim may have revoked all keys.

        Raises:
            SessionInvalid: the token was revoked, and with it every session.
            StoreUnavailable: the store did not answer.
        """
        with asking(self._events):
            account = await self._store.account(organization)
        if account is not None and account.token_revoked_at is not None:
            raise SessionInvalid

    async def _find(self, token: Token) -> Account:
        with asking(self._events):
            account = await self._store.account_by_token(token.handle)
        if account is None:
            token.compare_with_dummy()
            raise TokenNotAccepted
        if not token.accepts_account(account):
            if token.rejected is not None:
                self._rejections.report(token.rejected)
            raise TokenNotAccepted
        if account.token_revoked_at is not None:
            raise TokenNotAccepted
        return account

    async def _rehash(self, token: Token, account: Account) -> None:
        """Move a token to the newest pepper, while its text is at hand (K9)."""
        new = token.fresh_digest()
        if new is None:
            return
        try:
            sealed = resealed_account(account, self._tokens.peppers, new).kept
            await self._store.rehash_token_if(account.handle, account.kept, sealed)
        except Exception as failure:
            unavailable(self._events, failure)
