"""Sessions of signed-in users, and the protocol of their verifiers (D12)."""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol, runtime_checkable

from ..errors import SessionInvalid
from ..stores.base import IoMode

SESSION_COOKIE: Final = "__session"
LONGEST_COOKIE: Final = 4096
"""Characters of a session: no browser keeps a longer cookie (RFC 6265, 6.1)."""
_SESSION: Final = re.compile(rb"(?:^|;)\s*" + SESSION_COOKIE.encode() + rb"\s*=([^;]*)")
"""A header may hold thousands of pairs; an expression is ten times as fast as to look at each."""


class Session(NamedTuple):
    """A signed-in user, or an agent."""

    organization: str | None
    """The organization that the session acts for. None: the identity provider names none, and it
    acts for what its user has claimed (D15)."""
    user: str | None = None
    """The person, as the identity provider calls them, up to 255 characters. None: an agent."""
    verified_email: str | None = None
    """An address of which the identity provider says that it is this person's; None if it knows
    none or has not verified it."""
    agent: bool = False
    """Whether an agent began the session with a dashboard token. A verifier of people never sets
    this."""


class SessionVerifier(Protocol):
    """Verifies the value of the session cookie.

    A verifier with ``io = "none"`` needs neither a store nor the network; one of another I/O mode
    that needs none for some cookies is an :class:`OfflineVerifier` as well.
    """

    @property
    def io(self) -> IoMode:
        """How verifying waits, as for a store: ``none`` and ``sync`` never suspend, ``async`` does,
        ``both`` does in an event loop. A class may just set ``io = "none"``."""
        ...

    async def verify(self, cookie: str) -> Session | None:
        """The session, or None if the value is not accepted: forged, expired, signed out."""
        ...


@runtime_checkable
class OfflineVerifier(Protocol):
    """A session verifier that needs neither a store nor the network for some cookies."""

    def verifies_offline(self, cookie: str) -> bool:
        """Return whether :meth:`SessionVerifier.verify` needs neither for this cookie.

        Sessions of an address that has spent its budget of failures are verified only then (D24).
        """
        ...


def verifies_offline(verifier: SessionVerifier, cookie: str) -> bool:
    """Return whether verifying a cookie needs neither a store nor the network."""
    if isinstance(verifier, OfflineVerifier):
        return verifier.verifies_offline(cookie)
    return verifier.io == "none"


def session_cookie(cookies: Sequence[bytes]) -> str | None:
    """The session cookie among all ``Cookie`` values of a request; an empty one counts as none.

    Raises:
        SessionInvalid: the cookie occurs twice, or is not ASCII.
    """
    found = [value for header in cookies for value in _SESSION.findall(header)]
    if len(found) > 1:
        raise SessionInvalid
    value = found[0].strip() if found else b""
    try:
        return value.decode("ascii") or None
    except UnicodeDecodeError:
        raise SessionInvalid from None
