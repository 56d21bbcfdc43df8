"""Read a :class:`~lockgate.sessions.Session` from the claims of a token."""

from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Any, NamedTuple, cast

from ..core.accounts import USER_LENGTH
from ..core.plans import is_id
from .session import Session

Claims = Mapping[str, Any]
"""The claims of a token whose signature was verified."""

Claim = str | Sequence[str] | Callable[[Claims], object]
"""The name of a claim, a dotted path (``o.id``), several of these of which the first present one is
used, or a function of all claims."""


class ClaimMap(NamedTuple):
    """The claims of a session's fields. The defaults fit Clerk, Auth0 and OpenID Connect."""

    organization: Claim = ("org_id", "o.id")
    user: Claim = "sub"
    email: Claim = "email"
    email_verified: Claim = "email_verified"
    role: Claim | None = None
    """None: the tokens tell no role. A token without the claim has the empty role."""
    authenticated_at: Claim = "auth_time"
    acr: Claim = "acr"
    amr: Claim = "amr"

    def session(self, claims: Claims) -> Session | None:
        """Return the session of a token's claims; None without a valid user.

        A session without an organization acts for the organizations that its user claimed (D15).
        An e-mail is verified only if its claim is the JSON value ``true``.
        """
        organization, user = find(claims, self.organization), find(claims, self.user)
        if not isinstance(user, str) or not 1 <= len(user) <= USER_LENGTH:
            return None
        if organization is not None and not is_id(organization):
            return None
        email = find(claims, self.email)
        verified = isinstance(email, str) and email and find(claims, self.email_verified) is True
        session = Session(
            organization,
            user,
            verified_email=str(email) if verified else None,
            authenticated_at=_instant(find(claims, self.authenticated_at)),
            acr=_text(find(claims, self.acr)),
            amr=_texts(find(claims, self.amr)),
        )
        if self.role is None:
            return session
        role = find(claims, self.role)
        return session._replace(role=role if isinstance(role, str) else "")


def find(claims: Claims, claim: Claim) -> object:
    """Return the value of a claim; None if it is absent.

    A name is tried literally before it is read as a path, since custom claims often have URLs as
    names.
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


def _instant(value: object) -> int | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
    return int(cast(float, value)) if is_number else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _texts(value: object) -> tuple[str, ...]:
    values = cast(list[object], value) if isinstance(value, list) else []
    return tuple(text for text in values if isinstance(text, str))
