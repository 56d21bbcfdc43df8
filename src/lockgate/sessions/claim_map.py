"""Read a :class:`~lockgate.sessions.Session` from the claims of a token."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ..core.accounts import USER_LENGTH
from ..core.plans import is_id
from .session import Session

Claims = Mapping[str, Any]
"""The claims of a token whose signature was verified."""

Claim = str | Sequence[str] | Callable[[Claims], object]
"""Where something is said: the name of a claim, a dotted path to it (``o.id``), several of them of
which the first that is there counts, or a function of all claims."""


class ClaimMap(NamedTuple):
    """Which claims say what. The defaults fit Clerk, Auth0 and plain OpenID Connect."""

    organization: Claim = ("org_id", "o.id")
    user: Claim = "sub"
    email: Claim = "email"
    email_verified: Claim = "email_verified"

    def session(self, claims: Claims) -> Session | None:
        """The session that the claims describe; None: they name no user, or what cannot be one.

        Without an organization it is the session of a person, for the organizations they claimed
        (D15). An e-mail counts as verified only where the claim is ``true``: not a text, not 1.
        """
        organization, user = find(claims, self.organization), find(claims, self.user)
        if not isinstance(user, str) or not 1 <= len(user) <= USER_LENGTH:
            return None
        if organization is not None and not is_id(organization):
            return None
        email = find(claims, self.email)
        verified = isinstance(email, str) and email and find(claims, self.email_verified) is True
        return Session(organization, user, str(email) if verified else None)


def find(claims: Claims, claim: Claim) -> object:
    """Return the value of a claim; None if it is absent.

    A name is tried literally before it is read as a path: custom claims are often named by URLs.
    """
    if callable(claim):
        return claim(claims)
    for name in [claim] if isinstance(claim, str) else claim:
        value = claims[name] if name in claims else _follow(claims, name)
        if value is not None:
            return value
    return None


def _follow(claims: Claims, path: str) -> object:
    value: Any = claims
    for step in path.split("."):
        value = value.get(step) if hasattr(value, "get") else None
    return value
