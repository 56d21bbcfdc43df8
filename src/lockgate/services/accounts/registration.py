"""Accounts: agents register themselves and get a key, all or nothing (D13, D14)."""

from collections.abc import Mapping
from random import expovariate
from time import monotonic
from typing import Final, NamedTuple
from uuid import uuid4

from ...clock import Clock
from ...core.accounts import Account, AccountDraft, AccountType, read_company
from ...core.api_keys import ApiKey, KeyDetails, read_name
from ...core.changes import LOCKGATE, Actor, drafted_change
from ...core.credentials import without_credentials
from ...core.key_format import DASHBOARD, KeyFormat
from ...core.row_seals import sealed_account_draft
from ...core.timestamps import DAY, SECOND
from ...errors import ConfigurationError
from ...events import Events
from ...sessions import SESSION_COOKIE, SessionVerifier
from ...sessions.agent_cookie import AgentCookie
from ...stores.base import Store
from ...stores.committed import committing, made_or_raised
from ...stores.runtime.background import BackgroundTask
from ..keys.new_keys import AGENT, draft_key, drafted, expiry, refuse_problems, retry_taken_handles
from ..keys.rejected_rows import RejectedRows
from ..store_errors import asking
from .agent_sessions import Agents
from .approval import Approval, RegistrationRequest, read_proof
from .billing import Billing, web_address
from .claims import Claims
from .email_addresses import check_installed, read_email
from .registration_budgets import RegistrationBudgets
from .settings import Registration

_REMOVED_AT_ONCE: Final = 100
_REMOVED_EVERY: Final = 60.0
"""Seconds between two removals of one process; of its first, the mean of an exponential
distribution, so that workers that live for seconds remove accounts too."""


class Registered(NamedTuple):
    """A new account. The texts of its key and token are shown only here and stored nowhere."""

    account: Account
    key: ApiKey
    api_key: str
    dashboard_token: str
    dashboard_url: str
    billing_url: str

    def __repr__(self) -> str:
        return f"<Registered {self.account!r}>"


class AgentAccounts:
    """The accounts of a gate, as ``gate.accounts``.

    Attributes:
        agents: begins, verifies and ends the sessions of agents.
        claims: attaches accounts to the logins of people.
        cookie: the name of the cookie of an agent's session.
        development: whether the cookie of an agent may travel over plain ``http``.

    Raises:
        ConfigurationError: the dashboard's URL, the session verifier of people or email-validator
            is missing.
    """

    def __init__(
        self,
        registration: Registration,
        public_url: str | None,
        store: Store,
        format: KeyFormat,
        people: SessionVerifier | None,
        clock: Clock | None,
        events: Events,
        rejections: RejectedRows,
        max_age: int | None = None,
        cookie: str | None = None,
    ) -> None:
        check_installed()
        self.dashboard_url: Final = _dashboard_url(registration, public_url)
        people = _verifier_of_people(people)
        _check_environment(format)
        self.development: Final = registration.development
        self.cookie: Final = cookie or SESSION_COOKIE
        self._store = store
        self._format = format
        self._tokens = KeyFormat(format.brand, DASHBOARD, format.peppers)
        self._clock = clock
        self._events = events
        self._max_age = max_age
        self._billing = Billing(
            registration.billing, registration.billing_timeout, self.dashboard_url, events
        )
        approve = registration.approve
        self._approval = (
            Approval(approve, registration.approve_timeout, events) if approve else None
        )
        self._budgets: Final = RegistrationBudgets(
            store,
            peppers=format.peppers,
            clock=clock,
            events=events,
            per_address=registration.per_address,
            per_network=registration.per_network,
            per_email=registration.per_email,
            per_service=registration.per_service,
        )
        self._idle = _removed_after(registration)
        self._removal: Final = BackgroundTask(self._remove_some)
        self._next_removal = monotonic() + expovariate(1) * _REMOVED_EVERY
        self.trusts_provider: Final = registration.trust_provider_organizations
        self.agents: Final = Agents(
            store,
            self._tokens,
            AgentCookie(registration.session_secrets),
            registration.session_seconds,
            people,
            clock,
            events,
            rejections,
        )
        self.claims: Final = Claims(store, format.peppers, clock, events, rejections)

    @property
    def asks_for_proof(self) -> bool:
        """Whether the host approves registrations, so that they may carry a proof."""
        return self._approval is not None

    @committing
    async def register(
        self,
        agent_name: str,
        billing_email: str,
        account_type: str = "personal",
        company_name: str | None = None,
        *,
        address: str,
        proof: str | None = None,
    ) -> Registered:
        """Register an account: an organization on the default plan, a key, a dashboard token.

        All or nothing (R1), with the same result whether or not the e-mail is known (R2).

        Args:
            agent_name: 1 to 100 characters.
            billing_email: the address that a login must have verified to claim the account.
            account_type: ``personal`` or ``company``.
            company_name: 1 to 200 characters, for a company only.
            address: the client's address, by which registrations are counted.
            proof: a text for ``Registration(approve=...)``; None without such a hook.

        Raises:
            InvalidRequest: arguments are invalid; names all of them. Not counted.
            RateLimitExceeded: the budget of the address, network, e-mail or service is spent.
            RegistrationRefused: ``approve`` returned False. Counted for address and network.
            RegistrationUnavailable: ``approve`` failed; no account was registered.
            StoreUnavailable: the store did not answer; no account was registered.
        """
        of_proof = {"proof": read_proof(proof, asked_for=self.asks_for_proof)}
        agent_name, email, company = _read(
            agent_name, billing_email, account_type, company_name, of_proof
        )
        kind: AccountType = "personal" if company is None else "company"
        await self._admit(RegistrationRequest(agent_name, email, kind, company, address, proof))
        return await self._register(agent_name, email, company, Actor("agent", None, address))

    @committing
    async def create(
        self,
        agent_name: str,
        billing_email: str,
        account_type: str = "personal",
        company_name: str | None = None,
    ) -> Registered:
        """Register an account for an operator: without the budgets and the host's approval.

        The arguments, and the other errors, are those of :meth:`register`.

        Raises:
            InvalidRequest: arguments are invalid; names all of them.
            StoreUnavailable: the store did not answer; no account was registered.
        """
        agent_name, email, company = _read(agent_name, billing_email, account_type, company_name)
        return await self._register(agent_name, email, company)

    async def _register(
        self, agent_name: str, email: str, company: str | None, actor: Actor | None = None
    ) -> Registered:
        async def register() -> tuple[Account, ApiKey, str, str]:
            organization = f"org_{uuid4().hex}"
            expires_at, now = await expiry(self._store, self._max_age, self._now())
            details = KeyDetails(created_by=None if actor is None else AGENT).or_none()
            key, text = draft_key(
                self._format, organization, agent_name, expires_at=expires_at, details=details
            )
            token = self._tokens.generate()
            digest = self._tokens.digest(token)
            draft = AccountDraft(organization, agent_name, email, company, token.handle, *digest)
            draft = sealed_account_draft(draft, self._format.peppers)
            kind = "personal" if company is None else "company"
            after = ("key", key.id), ("agent_name", agent_name), ("account_type", kind)
            change = drafted_change("account_registered", after=after, actor=actor)

            async def find() -> tuple[Account, ApiKey] | None:
                row, account = (
                    await drafted(self._store, key),
                    await self._store.account(organization),
                )
                return None if row is None or account is None else (account, row)

            registered = self._store.register(draft, key, now, change=change)
            return *await made_or_raised(registered, find), text, token.text

        with asking(self._events):
            account, key, text, token = await retry_taken_handles(register)
        self._events.emit(
            "registered", organization=account.organization, type=account.account_type
        )
        url = await self._billing.url(account)
        return Registered(account, key, text, token, self.dashboard_url, url)

    @committing
    async def remove_unclaimed(self, limit: int = _REMOVED_AT_ONCE) -> list[str]:
        """Remove accounts unclaimed and unused for ``remove_unclaimed_after_days``.

        The account operations call it once a minute in each process. Organizations that were put on
        a plan are kept.

        Args:
            limit: how many accounts to look at, at most.

        Returns:
            The removed organizations; if their number equals the limit, more may be due.

        Raises:
            StoreUnavailable: the store did not answer; some may have been removed.
        """
        if self._idle is None:
            return []
        change = drafted_change("account_removed", actor=LOCKGATE)
        with asking(self._events):
            removed = await self._store.remove_unclaimed(
                self._idle, limit, self._now(), change=change
            )
        for organization in removed:
            self._events.emit("account_removed", organization=organization)
        return list(removed)

    def tend(self) -> None:
        """Remove some unclaimed accounts in the background, at most once a minute."""
        if self._idle is not None and monotonic() >= self._next_removal:
            self._next_removal = monotonic() + _REMOVED_EVERY
            self._removal.used()

    async def close(self) -> None:
        """Stop the background task."""
        await self._removal.close()

    async def _remove_some(self) -> None:
        await self.remove_unclaimed()

    async def _admit(self, asked: RegistrationRequest) -> None:
        """Count a registration in every budget, and ask for the host's approval."""
        await self._budgets.check(asked)
        await self._budgets.charge_client(asked)
        if self._approval is not None:
            await self._approval.ask(asked)
        await self._budgets.charge_account(asked)

    def _now(self) -> int | None:
        return self._clock() if self._clock else None


def _verifier_of_people(people: SessionVerifier | None) -> SessionVerifier:
    """Return the session verifier of people, who claim accounts.

    Raises:
        ConfigurationError: there is none.
    """
    if people is None:
        raise ConfigurationError(
            "What agents register is claimed by people who have signed in: give the gate a "
            "session verifier, such as Gate(..., sessions=SignedCookie([secret]))."
        )
    return people


def _check_environment(format: KeyFormat) -> None:
    if format.environment == DASHBOARD:
        raise ConfigurationError(
            f"Keys of the environment {DASHBOARD!r} would look like dashboard tokens: "
            "call it otherwise."
        )


def _removed_after(registration: Registration) -> int | None:
    """Return the microseconds after the last sign-in when an unclaimed account is removed; None:
    never.

    A session of that sign-in may have been used until its expiry.
    """
    days = registration.remove_unclaimed_after_days
    if days is None:
        return None
    return int(days * DAY) + registration.session_seconds * SECOND


def _dashboard_url(registration: Registration, public_url: str | None) -> str:
    """Return the URL where an owner connects the workspace of an agent.

    Raises:
        ConfigurationError: none is configured, or it is no web address.
    """
    url = registration.dashboard_url or public_url
    if url is None:
        raise ConfigurationError(
            "Registration tells each agent where its owner connects the workspace: give "
            "Registration(dashboard_url='https://...'), or WebOptions(public_url=...)."
        )
    try:
        web_address(url)
    except ValueError:
        raise ConfigurationError(
            f"The dashboard_url {without_credentials(url)!r} is no web address: write "
            "'https://host/path'."
        ) from None
    return url


def _read(
    agent_name: str,
    billing_email: str,
    account_type: str,
    company_name: str | None,
    others: Mapping[str, list[str]] = {},
) -> tuple[str, str, str | None]:
    """Return agent name, e-mail and company of a registration, normalised.

    Raises:
        InvalidRequest: they have problems, or ``others`` names some by field.
    """
    problems: dict[str, list[str]] = {}
    agent_name, problems["agent_name"] = read_name(agent_name)
    email, problems["billing_email"] = read_email(billing_email)
    company, of_company = read_company(account_type, company_name)
    refuse_problems({**problems, **others, **of_company})
    return agent_name, email, company
