"""Accounts: agents register themselves and get a key, all or nothing (spec 4.5, D13, D14)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final, NamedTuple
from uuid import uuid4

from ..errors import ConfigurationError, InvalidRequest, Problem
from ..events import Events
from ..identity import SessionVerifier
from ..identity.agent_cookie import AgentCookie
from ..rules.accounts import Account, AccountDraft, read_company
from ..rules.credentials import DASHBOARD, KeyFormat
from ..rules.instants import DAY, HOUR
from ..rules.keys import ApiKey, read_name
from ..rules.seals import sealed_account_draft
from ..stores.contract import Store
from ..stores.local import Clock
from .agents import Agents
from .asking import asking
from .billing import Billing, BillingProvider, web_address
from .claims import Claims
from .emails import read_email
from .keys import drafted, drawn
from .quotas import Quota
from .rejections import Rejections


@dataclass(frozen=True, kw_only=True)
class Registration:
    """Lets agents register themselves, sign in, and be claimed: ``Gate(registration=...)``.

    Args:
        session_secrets: what the sessions of agents are signed with: 16 bytes or more each,
            the newest first.
        dashboard_url: where an owner connects the workspace; by default the gate's ``public_url``.
            It is never taken from a request (D14).
        billing: knows where an account is funded; without it, on the dashboard.
        billing_timeout: seconds that it has to answer.
        per_address: registrations that one client address may make in an hour.
        per_email: registrations with one billing e-mail in a day.
        session_seconds: how long the session of an agent lasts.
        development: whether its cookie may travel over plain ``http``. Not where people work.
    """

    session_secrets: Sequence[str] = field(repr=False)
    dashboard_url: str | None = None
    billing: BillingProvider | None = None
    billing_timeout: float = 2.0
    per_address: int = 20
    per_email: int = 5
    session_seconds: int = 3600
    development: bool = False

    def __post_init__(self) -> None:
        """Refuse numbers that would let nobody in, and what is none."""
        for name in ("per_address", "per_email", "session_seconds"):
            number: object = getattr(self, name)
            if not isinstance(number, int) or number <= 0:
                raise ConfigurationError(f"{name} is {number}: use a whole number of 1 or more.")
        if not 0 < self.billing_timeout < inf:
            raise ConfigurationError(
                f"billing_timeout is {self.billing_timeout}: use seconds, more than 0."
            )


class Registered(NamedTuple):
    """An account just registered. The texts of key and token are shown this once, kept nowhere."""

    account: Account
    key: ApiKey
    api_key: str
    dashboard_token: str
    dashboard_url: str
    billing_url: str

    def __repr__(self) -> str:
        return f"<Registered {self.account!r}>"


class Accounts:
    """The accounts of a gate, as ``gate.accounts``.

    Attributes:
        agents: begins, verifies and ends the sessions of agents.
        claims: attaches accounts to the logins of people.
        development: whether the cookie of an agent may travel over plain ``http``.

    Raises:
        ConfigurationError: nobody says where the dashboard is, or who has signed in to it.
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
        rejections: Rejections,
    ) -> None:
        dashboard_url = registration.dashboard_url or public_url
        if dashboard_url is None:
            raise ConfigurationError(
                "Registration tells each agent where its owner connects the workspace: give "
                "Registration(dashboard_url='https://...'), or the gate a public_url."
            )
        try:
            web_address(dashboard_url)
        except ValueError:
            raise ConfigurationError(
                f"The dashboard_url {dashboard_url!r} is no web address: write 'https://host/path'."
            ) from None
        if people is None:
            raise ConfigurationError(
                "What agents register is claimed by people who have signed in: give the gate a "
                "session verifier, such as Gate(..., sessions=SignedCookie([secret]))."
            )
        if format.environment == DASHBOARD:
            raise ConfigurationError(
                f"Keys of the environment {DASHBOARD!r} would look like dashboard tokens: "
                "call it otherwise."
            )
        self.dashboard_url: Final = dashboard_url
        self.development: Final = registration.development
        self._store = store
        self._format = format
        self._tokens = KeyFormat(format.brand, DASHBOARD, format.peppers)
        self._clock = clock
        self._events = events
        self._billing = Billing(
            registration.billing, registration.billing_timeout, dashboard_url, events
        )
        quotas = store, format.peppers
        self._addresses = Quota(
            *quotas, "register:address", "hour", HOUR, registration.per_address, clock, events
        )
        self._emails = Quota(
            *quotas, "register:email", "day", DAY, registration.per_email, clock, events
        )
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

    async def register(
        self,
        agent_name: str,
        billing_email: str,
        account_type: str = "personal",
        company_name: str | None = None,
        *,
        address: str,
    ) -> Registered:
        """Register an account: an organization on the default plan, a key, a dashboard token.

        All or nothing (R1), and the same whether or not the e-mail is known (R2).

        Args:
            agent_name: 1 to 100 characters.
            billing_email: whoever has it verified at the identity provider can claim the account.
            account_type: ``personal`` or ``company``.
            company_name: 1 to 200 characters, for a company and for nobody else.
            address: of the client, to count by.

        Raises:
            InvalidRequest: naming every argument that is not good. It is not counted.
            RateLimitExceeded: too many from this address, or with this e-mail.
            StoreUnavailable: the store did not answer; nothing is registered.
        """
        agent_name, of_name = read_name(agent_name)
        email, of_email = read_email(billing_email)
        company, of_company = read_company(account_type, company_name)
        found = {"agent_name": of_name, "billing_email": of_email, **of_company}
        if any(found.values()):
            raise InvalidRequest(Problem(f, text) for f, texts in found.items() for text in texts)
        await self._count(address, email)

        async def register() -> tuple[Account, ApiKey, str, str]:
            organization = f"org_{uuid4().hex}"
            key, text = drafted(self._format, organization, agent_name)
            token = self._tokens.generate()
            digest = self._tokens.digest(token)
            draft = AccountDraft(organization, agent_name, email, company, token.handle, *digest)
            draft = sealed_account_draft(draft, self._format.peppers)
            now = self._clock() if self._clock else None
            return *(await self._store.register(draft, key, now)), text, token.text

        with asking(self._events):
            account, key, text, token = await drawn(register)
        self._events.tell(
            "registered", organization=account.organization, type=account.account_type
        )
        url = await self._billing.url(account)
        return Registered(account, key, text, token, self.dashboard_url, url)

    async def _count(self, address: str, email: str) -> None:
        """Count a registration, or refuse it: then it counts neither for the one nor the other.

        What is left for the address is looked at before the e-mail is charged. Only who runs into
        both limits in the same instant may lose one of the e-mail's. Looking never falls back on
        the windows of this process, so while the store is away nobody registers (D28).
        """
        await self._addresses.look(address)
        await self._emails.hit(email)
        await self._addresses.hit(address)
