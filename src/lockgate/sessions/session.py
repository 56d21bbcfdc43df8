"""Sessions of signed-in users, and the protocol of their verifiers (D12)."""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple, Protocol, runtime_checkable

from ..errors import SessionInvalid
from ..stores.base import IoMode

SESSION_COOKIE: Final = "__session"
LONGEST_COOKIE: Final = 4096
"""Characters of a session cookie: browsers store no longer ones (RFC 6265, 6.1)."""


class Session(NamedTuple):
    """A signed-in user, or an agent."""

    organization: str | None
    """The organization that the session acts for. None: the identity provider names none, and the
    session acts for the organizations that its user claimed (D15)."""
    user: str | None = None
    """The user's id at the identity provider, up to 255 characters; None for an agent."""
    verified_email: str | None = None
    """The user's e-mail, if the identity provider states that it is verified; otherwise None."""
    agent: bool = False
    """Whether an agent began the session with a dashboard token; other verifiers never set it."""
    role: str | None = None
    """The user's role, a name of ``WebOptions(session_roles=...)``; empty: the user has none.
    None: the verifier knows of no roles, and ``scopes`` holds."""
    scopes: tuple[str, ...] = ("*",)
    """The scopes of the role, which the gate fills in."""
    authenticated_at: int | None = None
    """When the user last authenticated, in seconds since 1970 (``auth_time``); None: unknown."""
    acr: str | None = None
    """The class of that authentication, as the identity provider names it; None: unknown."""
    amr: tuple[str, ...] = ()
    """The methods of that authentication, such as a one-time password (RFC 8176)."""


class SessionVerifier(Protocol):
    """Verifies the value of the session cookie.

    A verifier with ``io = "none"`` needs neither a store nor the network. A verifier in another
    I/O mode that needs neither for some cookies also implements :class:`OfflineVerifier`.
    """

    @property
    def io(self) -> IoMode:
        """The I/O mode, as for a store: ``none`` and ``sync`` never suspend, ``async`` does, and
        ``both`` does in an event loop. A class attribute ``io = "none"`` suffices."""
        ...

    async def verify(self, cookie: str) -> Session | None:
        """Return the session, or None if the value is not accepted: forged, expired, signed out."""
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


def session_cookie(cookies: Sequence[bytes], name: str = SESSION_COOKIE) -> str | None:
    """Return the session cookie in the ``Cookie`` values of a request; None if absent or empty.

    Raises:
        SessionInvalid: the cookie occurs twice, or is not ASCII.
    """
    pairs = _pairs(name)
    found = [value for header in cookies for value in pairs.findall(header)]
    if len(found) > 1:
        raise SessionInvalid
    value = found[0].strip() if found else b""
    try:
        return value.decode("ascii") or None
    except UnicodeDecodeError:
        raise SessionInvalid from None


@lru_cache(maxsize=64)
def _pairs(name: str) -> re.Pattern[bytes]:
    """Return a pattern of a cookie's pairs: ten times as fast as a loop for thousands of pairs.

    Only spaces and tabs may surround a name: browsers strip these, and no others, before they
    apply the rules of a prefix such as ``__Host-`` to it.
    """
    return re.compile(rb"(?:^|;)[ \t]*" + re.escape(name.encode()) + rb"[ \t]*=([^;]*)")
