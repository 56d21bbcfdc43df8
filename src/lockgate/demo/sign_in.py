"""The demo's sign-in page, in the place of an identity provider, before lockgate's dashboard."""

from importlib.resources import files
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from ..dashboard.forms import Form
from ..dashboard.options import Options
from ..dashboard.site import Site, templates
from ..dashboard.visit import Visit as DashboardVisit
from ..gate import Gate
from ..sessions import Session, SignedCookie
from ..web.operations.accounts import session_header
from ..web.operations.operation import Reply
from ..web.request import RequestView
from ..web.sessions import reject_cross_site

PATH: Final = "/dashboard"
"""The page to sign in, to which registration sends owners and agents."""
SUBMIT: Final = "/sign-in"
SIGN_OUT: Final = "/sign-out"
PAGES: Final = "/settings"
"""The mount of the dashboard."""
_FIRST: Final = f"{PAGES}/keys"
_SECONDS: Final = 12 * 3600


class Owner(NamedTuple):
    """A person whom one click signs in."""

    session: Session
    about: str
    """Tells of the organization in a few words."""
    first: str = f"{PAGES}/keys"
    """The page after signing in."""


OPERATOR: Final = Owner(
    Session(None, "operator of the demo", "operator@acme.example"),
    "operates the service: searches organizations and keys, changes plans, reads the audit log",
    f"{PAGES}/operator",
)


class SignIn:
    """Signs people in to the organizations of the demo.

    Args:
        url: the address of the demo.
        gate: with accounts of agents.
        sessions: issues the cookies.
        is_local: whether only this machine can reach the demo; other machines get no session
            without a cookie that the demo printed.
    """

    def __init__(self, url: str, gate: Gate, sessions: SignedCookie, *, is_local: bool) -> None:
        self._names: Final[dict[str, str]] = {}
        """The name of each organization, by its id."""
        self.options: Final[Options] = {
            "name": f"{gate.format.brand} (lockgate demo)",
            "sign_in": PATH,
            "sign_out": SIGN_OUT,
            "example": f"{url}{gate.prefix}/models",
            "name_of": self._names.get,
            "operator": lambda session, _: session.user == OPERATOR.session.user,
        }
        self.host: Final = urlsplit(url).hostname or ""
        """The host of the demo's address."""
        self._owners: Final[dict[str, Owner]] = {}
        """By the name of their organization in the demo."""
        self._gate: Final = gate
        self._sessions: Final = sessions
        self._is_local: Final = is_local
        self._site: Final = Site(gate, **self.options)
        source = files("lockgate.demo").joinpath("sign_in.html").read_text("utf-8")
        self._template: Final = templates().from_string(source)

    def add(self, name: str, organization: str, about: str) -> str:
        """Let one click sign an owner in, and return a session cookie of theirs.

        Args:
            name: the name of the organization in the demo; its owner's address is
                ``owner@<name>.example``.
            organization: its id.
            about: tells of it in a few words.
        """
        session = Session(organization, f"owner of {organization}", f"owner@{name}.example")
        self._owners[name] = Owner(session, about)
        self._names[organization] = f"{name.capitalize()} Ltd"
        return self._sessions.issue(session)

    def page(self, request: RequestView, status: int = 200, problem: str | None = None) -> Reply:
        """Return the page, with a button for each organization on this machine only."""
        return DashboardVisit(self._site, request, PAGES).page(
            self._template,
            status,
            submit=SUBMIT,
            owners={**self._owners, "operator": OPERATOR} if self._is_local else {},
            is_local=self._is_local,
            problem=problem,
        )

    async def sign_in(self, request: RequestView, body: bytes) -> Reply:
        """Begin the session of an owner, by one click or by a session cookie that was printed.

        Raises:
            CrossSiteRequest: a page of another site sends the form.
            InvalidRequest: the form is not readable.
        """
        reject_cross_site(self._gate, request)
        form = Form(body)
        cookie, first = form.one("session").strip(), _FIRST
        if not cookie:
            if not self._is_local:
                return self.page(
                    request,
                    403,
                    "One click signs in only where no other machine reaches the demo: "
                    "paste a session cookie that it printed, or start it on 127.0.0.1.",
                )
            chosen = form.one("organization")
            owner = OPERATOR if chosen == "operator" else self._owners.get(chosen)
            if owner is None:
                return self.page(request, 400, "The demo has no such organization: choose another.")
            cookie, first = self._sessions.issue(owner.session), owner.first
        elif await self._sessions.verify(cookie) is None:
            return self.page(
                request, 400, "This session cookie is not accepted: copy the whole of it."
            )
        return self._goes_to(first, cookie, _SECONDS)

    def first_page(self) -> Reply:
        """Lead to the list of keys."""
        return self._site.redirect(_FIRST)

    def sign_out(self) -> Reply:
        """End the session of this browser."""
        return self._goes_to(PATH, "", 0)

    def _goes_to(self, page: str, cookie: str, seconds: int) -> Reply:
        accounts = self._gate.accounts
        assert accounts is not None, "the demo's gate has accounts of agents"
        return self._site.redirect(page, (session_header(accounts, cookie, seconds),))
