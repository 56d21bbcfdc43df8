"""Who has signed in: the session of a request, verified, and from a page that may use it (D11)."""

from ..core.same_origin import cross_site
from ..errors import CrossSiteRequest, NoOrganization, SessionInvalid, SessionRequired
from ..gate import Gate
from ..services.store_errors import asking
from ..sessions import Session, session_cookie
from .request import SAFE_METHODS, RequestView

WANTED_ORGANIZATION = b"x-organization-id"
"""Names which of a person's organizations a request is for (D15)."""
_HANDSHAKE = b"sec-websocket-version"
"""In every handshake, of whichever version of HTTP (RFC 6455, 4.1; RFC 8441, 5)."""


async def session_of(gate: Gate, caller: RequestView) -> Session:
    """The session of a request.

    Raises:
        SessionRequired: there is none.
        SessionInvalid: it is not accepted.
        CrossSiteRequest: a page of another site borrows it to write.
    """
    cookie = session_cookie(caller.header(b"cookie"))
    if cookie is None:
        raise SessionRequired
    return await verified(gate, caller, cookie)


async def verified(gate: Gate, caller: RequestView, cookie: str) -> Session:
    """The session that a cookie's value stands for; raises as :func:`session_of` does."""
    if gate.sessions is None:
        raise SessionRequired
    with asking(gate.events):
        session = await gate.sessions.verify(cookie)
    if session is None:
        raise SessionInvalid
    reject_cross_site(gate, caller)
    return session


def reject_cross_site(gate: Gate, caller: RequestView) -> None:
    """Go on only if this reads, or no page of another site is what writes.

    The handshake of a WebSocket is a GET, and no other origin is kept from making one: whoever has
    the socket writes and reads all that its session may (RFC 6455, 10.2), so it counts as a write.

    Raises:
        CrossSiteRequest: one is.
    """
    reads = caller.method in SAFE_METHODS and not caller.header(_HANDSHAKE)
    if not reads and cross_site(
        caller.header(b"sec-fetch-site"), caller.header(b"origin"), gate.origins
    ):
        raise CrossSiteRequest


def wanted_organization(caller: RequestView) -> str | None:
    """The organization that a person wants to act for; None: they do not say.

    Raises:
        NoOrganization: they name two, or what cannot be one of those that can be named.
    """
    named = caller.header(WANTED_ORGANIZATION)
    if not named:
        return None
    if len(named) > 1 or not named[0].isascii():
        raise NoOrganization
    return named[0].decode()
