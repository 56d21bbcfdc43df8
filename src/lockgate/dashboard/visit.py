"""One request for a page: its session, its form, and the reply to it."""

import re
from collections.abc import Container, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from inspect import isawaitable
from typing import Any, Final
from urllib.parse import quote

from jinja2 import Template

from ..core.changes import Actor, acting
from ..core.credentials import holds_credential
from ..core.plans import is_id
from ..core.rate_limit_headers import rate_limit_exceeded
from ..core.scopes import requirement
from ..errors import (
    Header,
    InsufficientScope,
    InvalidRequest,
    NoOrganization,
    Problem,
    SessionInvalid,
    SessionRequired,
)
from ..gate import Gate
from ..services.accounts import acting_organization
from ..services.keys.new_keys import creator_of
from ..services.store_errors import asking
from ..sessions import Session, verifies_offline
from ..stores.committed import Pending
from ..web.operations.operation import Reply
from ..web.request import RequestView, address_of
from ..web.sessions import cookie_of, verified, with_role
from .forms import Form
from .moments import distance
from .site import Site

WORKSPACE: Final = "lockgate_workspace"
"""The cookie with the id of the connected workspace that a person has opened. It grants no access:
every page asks whether the session acts for that organization."""
_WORKSPACE: Final = re.compile(rf"(?:^|;)\s*{WORKSPACE}=(org_[0-9a-f]{{32}})\s*(?:;|$)".encode())
_IDS: Final = frozenset({"id", "new", "organization"})
"""The fields with the id of an organization."""
_ACTORS: Final = frozenset({"operator", "key", "scanner"})


class Visit:
    """A request for a page.

    Args:
        site: the dashboard.
        caller: the request.
        base: the path below which the dashboard is mounted, decoded.
    """

    def __init__(self, site: Site, caller: RequestView, base: str) -> None:
        self.site: Final = site
        self.gate: Final[Gate] = site.gate
        self.caller: Final = caller
        self.base: Final = quote(base.rstrip("/"), errors="surrogatepass")
        """The mount's path, encoded, in front of every link."""
        self.query = Form()
        self.form = Form()
        self.key = ""
        """The id of a key in the path."""
        self.place = ""
        """The path of the page, with ``{id}`` in place of the id of a key."""
        self.restored: Header | None = None
        """Set if the page shows what was entered before the person signed in again: the header
        that ends the draft."""
        self.pending = Pending()
        """What remains to happen after the changes of this visit (D52)."""
        self.session: Session | None = None
        """As the verifier returned it."""
        self.organization: str | None = None
        """The organization that the session acts for; None: not known yet, or none."""
        self.has_organization = True
        """False once it is known that the session acts for none."""
        self.names: dict[str, str] = {}
        """The names of organizations, by id, as far as the page has asked for them."""
        self.scopes: tuple[str, ...] = ()
        """The scopes of the session's role; none before it is known."""
        self.is_counted = False
        """Whether the request counts on the budget of its person."""
        self.is_operator = False
        self.section = ""
        """The part of the navigation that the page belongs to."""

    @property
    def signed_in(self) -> Session:
        """The session of a page that needs one."""
        assert self.session is not None, "the page needs no session"
        return self.session

    @property
    def owner(self) -> str:
        """The organization of a page that needs one."""
        assert self.organization is not None, "the page needs no organization"
        return self.organization

    @property
    def creator(self) -> str | None:
        """``created_by`` of keys that this session creates."""
        return creator_of(self.signed_in)

    @property
    def claims(self) -> bool:
        """Whether the navigation leads to the claims of accounts."""
        session = self.session
        return self.gate.accounts is not None and session is not None and not session.agent

    async def sign_in(self) -> None:
        """Verify the session of the request, and that no page of another site writes with it.

        Raises:
            SessionRequired, SessionInvalid: the request has no session, or a refused one.
            RateLimitExceeded: the address has sent too many that are not.
            CrossSiteRequest: a page of another site writes.
        """
        if self.session is not None:
            return
        gate, caller = self.gate, self.caller
        cookie = cookie_of(gate, caller)
        if cookie is None or gate.sessions is None:
            raise SessionRequired
        address = address_of(gate, caller)
        spent = gate.failures.refuses(address)
        if spent is not None and not verifies_offline(gate.sessions, cookie):
            raise rate_limit_exceeded(gate.failures.plan.windows, spent)
        try:
            self.session = await verified(gate, caller, cookie)
        except SessionInvalid:
            gate.failures.charge(address)
            raise

    async def sign_in_offline(self) -> bool:
        """Return whether the request has a good session that is verified without a store.

        Raises:
            CrossSiteRequest: a page of another site writes.
        """
        verifier = self.gate.sessions
        try:
            cookie = cookie_of(self.gate, self.caller)
            if cookie is None or verifier is None or not verifies_offline(verifier, cookie):
                return False
            await self.sign_in()
        except SessionInvalid:
            return False
        return True

    @property
    def workspace(self) -> str | None:
        """The workspace that the person has opened; None: the one that their session names, or
        that they connected last."""
        if self.gate.accounts is None:
            return None
        found = [_WORKSPACE.search(value) for value in self.caller.header(b"cookie")]
        return next((match[1].decode() for match in found if match), None)

    async def find_organization(self) -> Session:
        """Return the session with the organization that it acts for (D15).

        Raises:
            NoOrganization: it acts for none.
        """
        if self.workspace is not None:
            with suppress(NoOrganization):
                return await self.act_for(self.workspace)
        try:
            return await self.act_for(None)
        except NoOrganization:
            self.has_organization = False
            raise

    async def act_for(self, wanted: str | None) -> Session:
        """Return the session with the organization that it acts for.

        Args:
            wanted: an organization that the person has connected; None: by the session.

        Raises:
            NoOrganization: it does not act for that one, or for none.
        """
        gate, session = self.gate, self.signed_in
        accounts = gate.accounts
        if accounts is not None or session.organization is not None:
            session = await acting_organization.acting(
                gate.store,
                gate.events,
                gate.seal_is_valid,
                session,
                wanted,
                trusts_provider=accounts is not None and accounts.trusts_provider,
            )
        if not is_id(session.organization):
            raise NoOrganization
        self.organization = session.organization
        return session

    async def learn_names(self, ids: Iterable[str]) -> None:
        """Ask the host for the names of organizations, which the visitor may see."""
        self.names |= await self.site.names.of(id for id in ids if id not in self.names)

    def named(self, id: str) -> str:
        """Return the name of an organization; its id without one."""
        return self.names.get(id, id)

    async def find_role(self, session: Session) -> None:
        """Find the scopes of a session's role in the organization that it acts for."""
        self.scopes = (await with_role(self.gate, session)).scopes

    def may(self, scope: str) -> bool:
        """Return whether the role of the session covers a scope."""
        return requirement(scope).lacking(self.scopes) is None

    def need(self, scope: str) -> None:
        """Check that the role of the session covers a scope.

        Raises:
            InsufficientScope: it does not.
        """
        if not self.may(scope):
            raise InsufficientScope(scope, of_session=True)

    async def check_key(self, name: str, scopes: Sequence[str]) -> None:
        """Check that the session may create a key, or give one these scopes or a new secret.

        Raises:
            InsufficientScope: its role lacks one of them.
            StepUpRequired: the host asks for a more recent or stronger sign-in.
        """
        session = self.signed_in._replace(organization=self.owner, scopes=self.scopes)
        with asking(self.gate.events):
            await self.gate.session_access.check_new_key(session, self.owner, name, scopes)

    async def find_operator(self) -> None:
        """Ask the host whether the person operates the service."""
        asked = self.site.operator
        if asked is not None and not self.signed_in.agent:
            answer = asked(self.signed_in, self.caller)
            self.is_operator = (await answer if isawaitable(answer) else answer) is True

    @contextmanager
    def changing(self) -> Generator[None]:
        """Record the changes of a block as those of the person, the operator or the agent."""
        session, address = self.signed_in, address_of(self.gate, self.caller)
        agent = Actor("agent", None, address)
        person = Actor("operator" if self.is_operator else "user", session.user, address)
        with acting(agent if session.agent else person):
            yield

    @property
    def person(self) -> str:
        """The name of the person in budgets: users of two organizations may have one id (W8)."""
        session = self.signed_in
        return f"session {(session.organization, session.user)}"

    def count(self) -> None:
        """Count the request, once, on a budget of the person in this process (G10).

        Raises:
            RateLimitExceeded: the person has sent as many as a client address may.
        """
        if not self.is_counted:
            self.is_counted = True
            budget = self.gate.anonymous
            reading = budget.charge(self.person)
            if not reading.allowed:
                raise rate_limit_exceeded(budget.plan.windows, reading)

    async def charge(self) -> None:
        """Charge the person for a form, or for a list with a filter (G10).

        Raises:
            RateLimitExceeded: the person has sent too many.
        """
        await self.site.charges.hit(self.person)

    def without_credentials(self, form: Form, secrets: Container[str] = ()) -> Form:
        """Return a form, or refuse one that holds a credential: no page repeats one (K11).

        Args:
            form: the fields of a query or a body.
            secrets: names of the fields that may hold one, and that no page shows as they are.

        Raises:
            InvalidRequest: a field holds a key, a token or a session.
        """
        for name, values in form.fields():
            # An id may look like the key of another system.
            is_found = holds_credential if name in _IDS else self.gate.format.holds_credential
            if any(map(is_found, (name, *(() if name in secrets else values)))):
                raise InvalidRequest([Problem("", self.site.texts("error.credential"))])
        return form

    @property
    def asked(self) -> str:
        """The query of the request with its question mark; empty if it holds a credential."""
        query = self.caller.query
        try:
            self.without_credentials(Form(query))
        except InvalidRequest:
            return ""
        return f"?{query.decode('latin-1')}" if query else ""

    def to(self, path: str) -> str:
        """Return the URL of a page of the dashboard."""
        return self.base + path

    def quoted(self, text: str) -> str:
        """Return a text as the value of a query parameter."""
        return quote(text, safe="", errors="surrogatepass")

    def page(
        self,
        template: str | Template,
        status: int = 200,
        headers: tuple[Header, ...] = (),
        notices: Container[str] = (),
        **values: Any,
    ) -> Reply:
        """Return a page, by a template or the name of one.

        Args:
            template: the template.
            status: the HTTP status.
            headers: further ones.
            notices: what the page may say that has just been done. It is named by the URL, which
                anyone may have written: so only what agrees with the page.
            values: for the template.
        """
        done = self.query.one("done")
        token = "" if self.session is None else self.site.tokens.write(self.session)
        shown = {"visit": self, "token": token, "done": done if done in notices else None}
        if self.restored is not None:
            headers = (*headers, self.restored)
        return self.site.page(template, {**shown, **values}, status, headers)

    def redirect(self, path: str) -> Reply:
        """Return 303 to another page of the dashboard."""
        return self.site.redirect(self.to(path))

    def ago(self, instant: int, now: int) -> str:
        """Return about how long ago an instant was, or how far away it is."""
        name, number = distance(instant, now)
        return self.site.texts(name, n=number)

    def creator_shown(self, creator: str | None) -> str | None:
        """Return the creator of a key as people know it."""
        if creator is None:
            return None
        if creator == self.creator and not self.signed_in.agent:
            return self.site.texts("you")
        if creator == "agent":
            return self.site.texts("agent")
        return creator.removeprefix("user:")

    def actor_shown(self, actor: Actor) -> str:
        """Return the originator of a change as customers know it.

        They see the ids of the users of their organization, and never an operator's.
        """
        t, kind = self.site.texts, actor.kind
        if kind == "user" and actor.id is not None:
            return self.creator_shown(f"user:{actor.id}") or actor.id
        if kind == "agent":
            return t("agent")
        return t(f"actor.{kind}" if kind in _ACTORS else "actor.service")
