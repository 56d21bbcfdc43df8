"""A session: who has signed in to the dashboard, and how that is verified (D12)."""

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from ..errors import SessionInvalid

SESSION_COOKIE: Final = "__session"


class Session(NamedTuple):
    """Somebody who has signed in."""

    organization: str
    """The organization that the session acts for."""
    user: str
    """The person, as the identity provider calls them."""
    email: str | None = None
    email_verified: bool = False


class SessionVerifier(Protocol):
    """Verifies the value of the session cookie."""

    async def verify(self, cookie: str) -> Session | None:
        """The session, or None if the value is not accepted: forged, expired, signed out."""
        ...


def session_cookie(cookies: Sequence[bytes]) -> str | None:
    """The session cookie among all ``Cookie`` values of a request; an empty one counts as none.

    Raises:
        SessionInvalid: there are two, so that nobody can tell which is meant, or it is not text.
    """
    found: list[bytes] = []
    for header in cookies:
        for pair in header.split(b";"):
            name, separator, value = pair.partition(b"=")
            if separator and name.strip() == SESSION_COOKIE.encode():
                found.append(value.strip())
    if len(found) > 1:
        raise SessionInvalid
    if not found or not found[0]:
        return None
    try:
        return found[0].decode("ascii")
    except UnicodeDecodeError:
        raise SessionInvalid from None
