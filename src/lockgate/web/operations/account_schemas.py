"""The bodies of the operations of accounts (D13, D15).

Fields that agents send and read have underscores. Those of the dashboard are in camel case, like
the fields of the key operations.
"""

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo

from ...core.accounts import read_company
from ...core.timestamps import iso8601
from ...events import Events
from ...services.accounts.approval import read_proof
from ...services.accounts.claims import Claimable
from ...services.accounts.email_addresses import read_email
from ..request import RequestView
from .schemas import In, KeyInList, Out, display_name, fail, listed, written_instant


class _FromAgent(BaseModel):
    """A body that an agent sends: exact types, and no field that is not known."""

    model_config = ConfigDict(extra="forbid", strict=True)


def _email(value: str) -> str:
    email, problems = read_email(value)
    fail(problems)
    return email


def _company(value: str | None, info: ValidationInfo) -> str | None:
    if "account_type" not in info.data:
        return value  # Which is wrong already.
    company, problems = read_company(info.data["account_type"], value)
    fail(problems.get("company_name", []))
    return company


def _proof(value: str | None) -> str | None:
    fail(read_proof(value, asked_for=True))
    return value


class BotRegister(_FromAgent):
    """The body of a request that registers an agent (D13)."""

    agent_name: Annotated[str, AfterValidator(display_name)] = Field(
        description="Name of the agent, 1 to 100 characters.", examples=["render bot"]
    )
    billing_email: Annotated[str, AfterValidator(_email)] = Field(
        description="Whoever signs in with it, verified, can claim the account.",
        examples=["ada@example.com"],
    )
    account_type: Literal["personal", "company"] = "personal"
    company_name: Annotated[str | None, AfterValidator(_company)] = Field(
        default=None,
        validate_default=True,
        description="1 to 200 characters; for a company, and for nobody else.",
    )


class BotRegisterWithProof(BotRegister):
    """What registers an agent where the service approves of registrations."""

    proof: Annotated[str | None, AfterValidator(_proof)] = Field(
        default=None,
        repr=False,
        description="What this service asks for as a proof: up to 4,096 characters of ASCII.",
    )


class BotRegistered(BaseModel):
    """An agent was registered: the only answer that ever holds its key and token (D13)."""

    api_key: str = Field(repr=False)
    dashboard_token: str = Field(repr=False)
    dashboard_url: str
    billing_url: str


class SignIn(_FromAgent):
    """What signs an agent in."""

    dashboard_token: str = Field(repr=False, description="As it was shown at registration.")


class AgentSignedIn(BaseModel):
    """An agent has signed in: the answer carries the session's cookie."""

    organization_id: str
    expires_in: int = Field(description="Seconds until the session ends.")


class AgentSignedOut(BaseModel):
    """An agent has signed out."""

    success: bool = True
    message: str = "Every session of this agent has ended: its API keys go on."


class Claim(In):
    """What claims an organization."""

    organization_id: str = Field(description="One that the list shows.")
    revoke_keys: bool = Field(
        default=False, description="Revoke every key there is, in the same step."
    )
    keep_dashboard_token: bool = Field(
        default=False,
        description="Let the agent go on signing in with its dashboard token.",
    )


class Claimed(Out):
    """An organization that is the caller's, or can become it, and some of its keys."""

    organization_id: str
    agent_name: str
    billing_email: str
    account_type: str
    company_name: str | None
    created_at: str
    claimed_at: str | None
    keys: list[KeyInList] = Field(description="At most 25, live ones before others; newest first.")
    more_keys: bool = Field(description="Whether there are other keys.")

    @classmethod
    async def of(cls, found: Claimable, now: int, caller: RequestView, events: Events) -> "Claimed":
        """The state of an account at an instant."""
        account = found.account
        return cls(
            organization_id=account.organization,
            agent_name=account.agent_name,
            billing_email=account.billing_email,
            account_type=account.account_type,
            company_name=account.company_name,
            created_at=iso8601(account.created_at),
            claimed_at=written_instant(account.claimed_at),
            keys=await listed(found.keys, now, caller, events),
            more_keys=found.more_keys,
        )


class ClaimList(Out):
    """The accounts that the caller has claimed, latest first, then the claimable, oldest first."""

    data: list[Claimed]
    next_cursor: str | None = Field(
        description="The cursor of the next page; null where this is the last."
    )


class ClaimDetail(Out):
    """An organization that was claimed."""

    data: Claimed
