"""Who has signed in: the session of a request, verified, and from a page that may use it (D11)."""

from typing import NamedTuple

from ..core.same_origin import cross_site
from ..core.scopes import requirement
from ..errors import (
    CrossSiteRequest,
    InsufficientScope,
    InvalidFormat,
    NoOrganization,
    SessionInvalid,
    SessionRequired,
    SessionTokenInvalid,
)
from ..gate import Gate
from ..principal import Principal
from ..services.accounts.agent_sessions import AgentSession
from ..services.store_errors import asking
from ..sessions import Session, SessionVerifier, session_cookie
from ..sessions.session import LONGEST_COOKIE
from .request import SAFE_METHODS, RequestView

WANTED_ORGANIZATION = b"x-organization-id"
"""Names which of a person's organizations a request is for (D15)."""
_HANDSHAKE = b"sec-websocket-version"
"""In every handshake, of whichever version of HTTP (RFC 6455, 4.1; RFC 8441, 5)."""


class Presented(NamedTuple):
    """The text by which a request presents a session, not yet verified."""

    text: str
    verifier: SessionVerifier
    is_cookie: bool

    def __repr__(self) -> str:
        return f"<Presented {'cookie' if self.is_cookie else 'token'}>"


def presented(gate: Gate, caller: RequestView) -> Presented | None:
    """Return the session that a request presents; None: it presents none.

    A JSON Web Token in ``Authorization`` decides alone, where the gate accepts them: a bad one is
    never passed over for the cookie (D9).

    Raises:
        InvalidFormat: the token is not the only ``Authorization`` value.
        SessionInvalid: the cookie occurs twice, or is not ASCII.
    """
    if gate.sessions is None:
        return None
    token = token_of(gate, caller)
    if token is not None:
        return token
    cookie = cookie_of(gate, caller)
    return None if cookie is None else Presented(cookie, gate.sessions, is_cookie=True)


def token_of(gate: Gate, caller: RequestView) -> Presented | None:
    """Return the JSON Web Token that a request presents; None: it presents none.

    It is read from ``Authorization`` only, and not from ``WebOptions(key_header=)``.

    Raises:
        InvalidFormat: it is not the only credential of the request.
    """
    access = gate.session_access
    if access.bearer is None:
        return None
    token = access.token_in(caller.header(b"authorization"))
    if token is None:
        return None
    if len(caller.authorizations) > 1:
        raise InvalidFormat
    return Presented(token, access.bearer, is_cookie=False)


async def session_of(gate: Gate, caller: RequestView, scope: str) -> Session:
    """Return the session of a request, whose role has a scope.

    Raises:
        SessionRequired: there is none.
        SessionInvalid: it is not accepted.
        CrossSiteRequest: a page of another site borrows it to write.
        InsufficientScope: its role lacks the scope.
    """
    shown = presented(gate, caller)
    if shown is None:
        raise SessionRequired
    session = await with_role(gate, await session_by(gate, caller, shown))
    lacking = requirement(scope).lacking(session.scopes)
    if lacking is not None:
        raise InsufficientScope(lacking, of_session=True)
    return session


async def session_by(gate: Gate, caller: RequestView, shown: Presented) -> Session:
    """Return the session of a cookie or a token; raises as :func:`verified` does.

    A browser adds no token by itself, so no page of another site can borrow one.
    """
    if shown.is_cookie:
        return await verified(gate, caller, shown.text)
    if len(shown.text) > LONGEST_COOKIE:
        raise SessionTokenInvalid
    with asking(gate.events):
        session = await shown.verifier.verify(shown.text)
    if session is None:
        raise SessionTokenInvalid
    return session


async def verified(gate: Gate, caller: RequestView, cookie: str) -> Session:
    """Return the session of a cookie.

    Raises:
        SessionRequired: the gate accepts no sessions.
        SessionInvalid: it is not accepted.
        CrossSiteRequest: a page of another site borrows it to write.
    """
    if gate.sessions is None:
        raise SessionRequired
    with asking(gate.events):
        session = await gate.sessions.verify(cookie)
    if session is None:
        raise SessionInvalid
    reject_cross_site(gate, caller)
    return session


async def with_role(gate: Gate, session: Session) -> Session:
    """Return a session with the scopes of its role in the organization that it acts for.

    Raises:
        StoreUnavailable: the host's function failed; its traceback is logged (G7).
    """
    with asking(gate.events):
        return await gate.session_access.with_role(session)


def cookie_of(gate: Gate, caller: RequestView) -> str | None:
    """Return the session cookie of a request; None if absent or empty.

    A WSGI server joins several ``Cookie`` headers by commas, so each part between commas may hold
    the cookie. Not so one with a prefix such as ``__Host-``: the comma may be in the value of
    another cookie, which another host of the site may set.

    Raises:
        SessionInvalid: the cookie occurs twice, or is not ASCII.
    """
    access = gate.session_access
    if access.cookie is None:
        return None
    cookies = caller.whole(b"cookie") if access.is_prefixed else caller.header(b"cookie")
    return session_cookie(cookies, access.cookie)


def reject_cross_site(gate: Gate, caller: RequestView) -> None:
    """Continue only if this reads, or if no page of another site writes.

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


def agent_session(gate: Gate, principal: Principal, caller: RequestView) -> AgentSession | None:
    """Return the agent's session that admitted a request; None: a key or a person's session did."""
    session, accounts = principal.session, gate.accounts
    if session is None or not session.agent or accounts is None:
        return None
    cookie = cookie_of(gate, caller)
    return None if cookie is None else accounts.agents.opened(principal.organization, cookie)


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
