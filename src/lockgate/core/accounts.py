"""Accounts: organizations that agents registered, and the users that claimed them (D13 to D15).

An account holds a billing e-mail, the digest of a dashboard token, and the user that claimed it.
Most organizations have no account: the host application made them, not an agent.
"""

import re
from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

from .api_keys import ApiKey, read_name
from .digests import Digest
from .timestamps import MILLISECOND

AccountType = Literal["personal", "company"]

COMPANY_LENGTH: Final = 200
_REGISTERED: Final = re.compile(r"org_[0-9a-f]{32}")
USER_LENGTH: Final = 255
"""Characters of a user's id, as OpenID Connect bounds ``sub`` (Core 1.0, section 2)."""


class Account(NamedTuple):
    """One account, as a store keeps it. Instants are microseconds."""

    organization: str
    agent_name: str
    billing_email: str
    """Normalised and in lower case, so that equal addresses are equal texts (D14)."""
    company_name: str | None
    """None for a personal account."""
    handle: str
    """The ``<prefix>`` of the dashboard token, by which it is found; unique among tokens."""
    scheme: str
    digest: bytes
    seal: str | None
    """The MAC over the token, the billing e-mail and the claim; None: the row has none."""
    created_at: int
    claimed_by: str | None = None
    """The user that claimed the organization; never changes once set."""
    claimed_at: int | None = None
    token_revoked_at: int | None = None
    """When the dashboard token was revoked; never changes once set."""
    sign_outs: int = 0
    """Number of sign-outs. A session that began at another number has ended."""
    signed_in_at: int | None = None
    """When its agent last began a session with the dashboard token; never decreases."""

    @property
    def kept(self) -> Digest:
        """The digest of its token's text, and the seal of its row."""
        return Digest(self.scheme, self.digest, self.seal)

    @property
    def account_type(self) -> AccountType:
        """``company`` if the account has a company name, otherwise ``personal``."""
        return "personal" if self.company_name is None else "company"

    def __repr__(self) -> str:
        return f"Account(organization={self.organization!r}, agent_name={self.agent_name!r})"


class AccountDraft(NamedTuple):
    """An account about to be registered; the store's clock says when it was created."""

    organization: str
    agent_name: str
    billing_email: str
    company_name: str | None
    handle: str
    scheme: str
    digest: bytes
    seal: str | None = None

    def created(self, now: int) -> Account:
        """Return the account as registered at ``now``, in whole milliseconds like a key."""
        return Account(*self, created_at=now - now % MILLISECOND)

    def __repr__(self) -> str:
        return f"AccountDraft(organization={self.organization!r}, agent_name={self.agent_name!r})"


def may_be_registered(organization: str) -> bool:
    """Return whether an organization's id has the form that registration generates.

    Only such an id is looked up among the accounts, so that a session for any other organization
    costs no call of the store.
    """
    return _REGISTERED.fullmatch(organization) is not None


def last_use(account: Account, keys: Iterable[ApiKey]) -> int:
    """Return the latest instant at which an account was in use, in microseconds.

    Registering, an agent's sign-in, creating a key and a request with a key count as uses.
    """
    latest = max(account.created_at, account.signed_in_at or 0)
    for key in keys:
        latest = max(latest, key.created_at, key.last_used_at or 0)
    return latest


def read_company(
    account_type: str, company_name: str | None
) -> tuple[str | None, dict[str, list[str]]]:
    """Trim a company's name, and return its problems and those of the account's type (D13).

    A company has a name of 1 to 200 characters; a personal account has none.
    """
    if account_type not in ("personal", "company"):
        return None, {"account_type": ["Use 'personal' or 'company'."]}
    if account_type == "personal":
        refused = ["A personal account has no company: leave this out, or use 'company'."]
        return None, {} if company_name is None else {"company_name": refused}
    if company_name is None:
        return None, {"company_name": ["A company account needs the company's name."]}
    name, problems = read_name(company_name, COMPANY_LENGTH)
    return name, {"company_name": problems} if problems else {}
