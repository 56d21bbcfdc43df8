"""The settings of accounts: how agents register."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final

from ...core.arguments import checks_arguments
from ...errors import ConfigurationError
from .approval import Approve
from .billing import BillingProvider

_DAYS_AT_MOST: Final = 36_500


@checks_arguments
@dataclass(frozen=True, kw_only=True)
class Registration:
    """Lets agents register, sign in and be claimed: ``Gate(features=[Registration(...)])``.

    Args:
        session_secrets: secrets that sign the sessions of agents, 16 bytes or more each, the newest
            first.
        dashboard_url: the URL where an owner connects the workspace; by default the gate's
            ``public_url``. Never taken from a request (D14).
        billing: returns the URL where an account is funded; None: the dashboard.
        billing_timeout: seconds that ``billing`` may take.
        approve: decides whether an agent may register: a plain or ``async`` function that takes a
            :class:`~lockgate.RegistrationRequest` and returns True or False. With it, the body of a
            registration may hold a ``proof``. It runs in a thread.
        approve_timeout: seconds that ``approve`` may take.
        per_address: registrations from one client address (an IPv6 address by its /64) in an hour;
            None: any number, as for the next three.
        per_network: registrations from one IPv6 /48 in an hour.
        per_email: registrations with one billing e-mail in a day.
        per_service: registrations in an hour in all. It bounds the rows that an attacker with many
            addresses can store, and lets such an attacker block other registrations: see the docs.
        remove_unclaimed_after_days: days since its last use after which an unclaimed account is
            removed with its keys (D46); None: never.
        trust_provider_organizations: whether any session of the identity provider that names a
            registered organization acts for it once it is claimed. Only for providers whose users
            cannot choose the id of an organization.
        session_seconds: the duration of an agent's session.
        development: whether an agent's cookie may travel over plain ``http``. Not in production.
    """

    session_secrets: Sequence[str] = field(repr=False)
    dashboard_url: str | None = None
    billing: BillingProvider | None = None
    billing_timeout: float = 2.0
    approve: Approve | None = None
    approve_timeout: float = 10.0
    per_address: int | None = 20
    per_network: int | None = 100
    per_email: int | None = 5
    per_service: int | None = 1000
    remove_unclaimed_after_days: float | None = 30
    trust_provider_organizations: bool = False
    session_seconds: int = 3600
    development: bool = False

    def __post_init__(self) -> None:
        """Refuse limits and timeouts that are not positive numbers."""
        for name in ("per_address", "per_network", "per_email", "per_service", "session_seconds"):
            number: int | None = getattr(self, name)
            if number is not None and number <= 0:
                raise ConfigurationError(f"{name} is {number}: use a whole number of 1 or more.")
        for name in ("billing_timeout", "approve_timeout"):
            if not 0 < getattr(self, name) < inf:
                raise ConfigurationError(
                    f"{name} is {getattr(self, name)}: use seconds, more than 0."
                )
        days = self.remove_unclaimed_after_days
        if days is not None and not 0 < days <= _DAYS_AT_MOST:
            raise ConfigurationError(
                f"remove_unclaimed_after_days is {days}: use days, more than 0 and at most "
                f"{_DAYS_AT_MOST:,}, or None."
            )
