"""Serve the pages: the routes, the checks before each of them, and the two adapters."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, Literal, NamedTuple, Unpack
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from .. import asgi, wsgi
from ..core.access_rule import Rule
from ..core.key_search import KEY_ID
from ..core.rate_limit_headers import rate_limit_exceeded
from ..errors import (
    ChangeCommitted,
    Header,
    InvalidRequest,
    KeyNotLive,
    KeyRotated,
    MethodNotAllowed,
    NoOrganization,
    NotFound,
    RateLimitExceeded,
    Refusal,
    SessionInvalid,
    SessionRequired,
    StepUpRequired,
    UnsupportedMediaType,
)
from ..gate import Gate
from ..stores.committed import collecting
from ..sync import run
from ..web import asgi_exchange, wsgi_exchange
from ..web.asgi_types import ASGIApp, Receive, Scope, Send
from ..web.bodies import BODY_LIMIT
from ..web.entry import Measured, entry_in
from ..web.operations.operation import ReadBody, Reply
from ..web.operations.table import refused
from ..web.request import SAFE_METHODS, RequestView
from ..web.requirements import declare
from . import account_pages, drafts, key_forms, key_pages, operator_pages, usage_pages
from .forms import TOKEN_FIELD, Form
from .options import Options
from .site import Site
from .visit import Visit

Handler = Callable[[Visit], Awaitable[Reply]]
Needs = Literal["nothing", "session", "organization", "operator"]

_OPEN: Final = Rule(public=True, answers_refusals=True)
"""The pages verify sessions themselves, and refuse requests by pages."""
_RULES: Final = {"* /{path:path}": _OPEN}
_WRITE: Final = "account:write"
_SEE_OTHER: Final = 303
_SEARCHES: Final = frozenset({"q"})
"""Query parameters that may hold a key, of which pages show the prefix alone."""
_SECRETS: Final = frozenset({TOKEN_FIELD, "dashboard_token", "q", "text"})
"""Fields of forms that may hold a credential."""


class Page(NamedTuple):
    """The handlers of one path, and what its visitors need."""

    section: str
    get: Handler | None
    post: Handler | None = None
    needs: Needs = "organization"
    is_free: bool = False
    """Whether its form counts on no budget, so that it always works."""
    is_data: bool = False
    """Whether it is read by a script, and so shows no header."""
    reads: bool = False
    """Whether its form counts as a page, since it only leads to another one."""
    scope: str = _WRITE
    """The scope that the role of a session needs to send its form."""
    to_see: str = "account:read"
    """The scope that the role needs to see the page."""


PAGES: Final = {
    "/keys": Page(
        "keys", key_pages.list_keys, key_pages.search_keys, reads=True, scope="account:read"
    ),
    "/keys/new": Page("keys", key_forms.new_key, key_forms.create_key, to_see=_WRITE),
    "/keys/{id}": Page("keys", key_pages.show_key),
    "/keys/{id}/edit": Page("keys", key_forms.edit_key, key_forms.update_key, to_see=_WRITE),
    "/keys/{id}/rotate": Page(
        "keys", key_forms.confirm_rotation, key_forms.rotate_key, to_see=_WRITE
    ),
    "/keys/{id}/revoke": Page(
        "keys", key_pages.confirm_revocation, key_pages.revoke_key, is_free=True, to_see=_WRITE
    ),
    "/usage": Page("usage", usage_pages.show_usage),
    "/usage.json": Page("usage", usage_pages.live_usage, is_data=True),
    "/claim": Page("claim", account_pages.list_claims, account_pages.claim, "session"),
    "/workspace": Page(
        "claim", None, account_pages.open_workspace, "session", scope="account:read"
    ),
    "/operator": Page("operator", operator_pages.search, operator_pages.find, "operator"),
    "/operator/organization": Page(
        "operator", operator_pages.show_organization, operator_pages.change_plan, "operator"
    ),
    "/operator/key": Page("operator", operator_pages.show_key, None, "operator"),
    "/operator/limit": Page("operator", None, operator_pages.set_limit, "operator"),
    "/operator/limit/end": Page("operator", None, operator_pages.end_limit, "operator"),
    "/operator/revoke": Page("operator", None, operator_pages.revoke, "operator", True),
    "/sign-in": Page("", None, account_pages.sign_agent_in, "nothing"),
    "/sign-out": Page("", None, account_pages.sign_agent_out, is_free=True),
}


def dashboard(gate: Gate, **options: Unpack[Options]) -> ASGIApp:
    """Return the dashboard of a gate as an ASGI application, to be mounted anywhere.

    Its pages need a session that the gate accepts; their forms are accepted from the gate's own
    origins only (``WebOptions(public_url=)``). An application that :func:`protect` guards needs no
    rule for it. It counts nothing in the windows of organizations.

    Args:
        gate: with a session verifier.
        options: see :class:`~lockgate.dashboard.Options`.

    Raises:
        ConfigurationError: the gate has no session verifier, its store would block the event loop,
            or an option is malformed.
    """
    return _AsgiPages(Site(gate, **options))


def wsgi_dashboard(gate: Gate, **options: Unpack[Options]) -> WSGIApplication:
    """Return the dashboard of a gate as a WSGI application; see :func:`dashboard`.

    Mount it outside the application that a gate protects: see :func:`wsgi_mount`.

    Args:
        gate: with a session verifier.
        options: see :class:`~lockgate.dashboard.Options`.

    Raises:
        ConfigurationError: the gate has no session verifier, its store needs an event loop, or an
            option is malformed.
    """
    site = Site(gate, **options)

    def serve(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        base = environ.get("SCRIPT_NAME", "").encode("latin-1").decode("utf-8", "replace")
        read = wsgi_exchange.body_reader(environ)
        caller, spent = wsgi_exchange.WsgiRequest(environ), _spent_budget(environ)
        reply = run(answer(site, caller, base, read, spent))
        return wsgi_exchange.respond(reply, environ, start_response)

    guarded = wsgi.GateMiddleware(serve, gate, _RULES)
    guarded.guard.audited = True  # It has no other routes.

    def mounted(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if not environ.get("PATH_INFO"):  # The mount itself, without a slash behind it.
            environ = {**environ, "PATH_INFO": "/"}
        return guarded(environ, start_response)

    return mounted


class _AsgiPages:
    """The pages as an ASGI application: guarded, and public to a gate outside."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._guarded = asgi.GateMiddleware(self._answer, site.gate, _RULES)
        self._guarded.guard.audited = True  # It has no other routes.
        # Starlette leads there from the path without a slash.
        declare(self, rule=_OPEN, is_at_mount=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await asgi_exchange.refuse(NotFound(), scope, send, self._site.gate)
        else:
            await self._guarded(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        read, base = asgi_exchange.body_reader(receive), scope.get("root_path", "")
        try:
            caller, spent = asgi_exchange.AsgiRequest(scope), _spent_budget(scope)
            reply = await answer(self._site, caller, base, read, spent)
        except asgi_exchange.ClientGone:
            return
        await asgi_exchange.respond(reply, scope, send)


async def answer(
    site: Site, caller: RequestView, base: str, read: ReadBody, spent: Measured | None
) -> Reply:
    """Answer a request for a page; a refusal is a page, too.

    Args:
        site: the dashboard.
        caller: the request; its path is below the mount.
        base: the path of the mount.
        read: reads the body.
        spent: the budget of the client's address, if it is spent: then the request needs a session
            that is verified without a store, whose person can so always revoke a key (D24).
    """
    visit = Visit(site, caller, base)
    try:
        if spent is not None and caller.path not in site.assets:  # The page needs its styles.
            if not await visit.sign_in_offline():
                plan, reading = spent
                raise rate_limit_exceeded(plan.windows, reading)
            _note_place(visit, caller.path)
            _count(visit)
        return await _answer(visit, read)
    except Refusal as refusal:
        is_flood = spent is not None and isinstance(refusal, RateLimitExceeded)
        if is_flood and not any(b"text/html" in value for value in caller.header(b"accept")):
            return refused(refusal, site.gate, caller)  # In a tenth of the time of a page.
        return _refused(visit, refusal)


async def _answer(visit: Visit, read: ReadBody) -> Reply:
    caller, site = visit.caller, visit.site
    method = "GET" if caller.method == "HEAD" else caller.method
    path = caller.path
    asset = site.assets.get(path)
    if asset is not None or path in {"", "/"}:
        if method != "GET":
            raise MethodNotAllowed(["GET", "HEAD"])
        return asset or visit.redirect("/keys")
    if path.endswith("/") and method == "GET":
        _find(visit, path[:-1])  # Only to a page that there is: a path can be another site's, too.
        return visit.redirect(path[:-1] + visit.asked)
    page = _find(visit, path)
    handler = {"GET": page.get, "POST": page.post}.get(method)
    if handler is None:
        handlers = {"GET": page.get, "HEAD": page.get, "POST": page.post}
        raise MethodNotAllowed(name for name, known in handlers.items() if known is not None)
    visit.section = page.section
    try:
        await _admit(visit, page)
    except (SessionRequired, SessionInvalid):
        with suppress(Refusal):  # What was entered may be kept until the person is back.
            visit.form = await _read_form(caller, read)
        raise
    visit.query = visit.without_credentials(Form(caller.query), _SEARCHES)
    if method == "POST":
        visit.form = visit.without_credentials(await _read_form(caller, read), _SECRETS)
        if page.needs != "nothing":
            site.tokens.check(visit.form.one(TOKEN_FIELD), visit.signed_in)
            if not (page.is_free or page.reads):
                await visit.charge()
    with collecting() as visit.pending:
        reply = await handler(visit)
    if visit.pending and reply.status == _SEE_OTHER:
        # The page after it would say that the change holds everywhere.
        kept = tuple(one for one in reply.headers if one[0] == b"set-cookie")
        return _refused(visit, visit.pending.error(None), kept)
    return reply


async def _read_form(caller: RequestView, read: ReadBody) -> Form:
    """Return the form that was sent.

    Raises:
        Refusal: it is no form, is too long, or cannot be read.
    """
    types = [value.partition(b";")[0].strip() for value in caller.header(b"content-type")]
    if types != [b"application/x-www-form-urlencoded"]:
        raise UnsupportedMediaType
    return Form(await read(BODY_LIMIT))


def _spent_budget(held: Mapping[str, Any]) -> Measured | None:
    """Return the budget of a client's address, if it is spent, from a scope or environment."""
    entry = entry_in(held)
    return None if entry is None else entry.spent_budget()


def _note_place(visit: Visit, path: str) -> None:
    """Note the place that a path leads to, and the id of a key in it."""
    segments = path.split("/")
    for index, segment in enumerate(segments):
        if KEY_ID.fullmatch(segment):
            visit.key, segments[index] = segment, "{id}"
            break
    visit.place = "/".join(segments)


def _find(visit: Visit, path: str) -> Page:
    """Return the page of a path, and note the id of a key in it.

    Raises:
        NotFound: the path has no page.
    """
    _note_place(visit, path)
    page = PAGES.get(visit.place)
    has_place = visit.key or "{id}" not in path
    if page is None or not has_place or (page.needs == "operator" and not visit.site.operator):
        raise NotFound
    return page


def _count(visit: Visit) -> None:
    """Count a request on the budget of its person, unless its form always works.

    Raises:
        RateLimitExceeded: the budget is spent.
    """
    page = PAGES.get(visit.place)
    if page is None or not page.is_free or visit.caller.method != "POST":
        visit.count()


async def _admit(visit: Visit, page: Page) -> None:
    """Check that a visitor has what a page needs: a session, an organization, a role.

    Raises:
        Refusal: they have not.
    """
    needs = page.needs
    if needs == "nothing":
        return
    await visit.sign_in()
    _count(visit)
    await visit.find_operator()
    if needs == "operator" and not visit.is_operator:
        raise NotFound
    acting = visit.signed_in
    try:
        acting = await visit.find_organization()
    except NoOrganization:
        if needs == "organization":
            raise
    await visit.find_role(acting if needs == "organization" else visit.signed_in)
    if visit.organization is not None and not page.is_data:
        await visit.learn_names([visit.organization])
    if needs != "operator":
        reads = visit.caller.method in SAFE_METHODS
        visit.need(page.to_see if reads else page.scope)


def _refused(visit: Visit, refusal: Refusal, more: tuple[Header, ...] = ()) -> Reply:
    """Return the page that tells of a refusal, with further headers."""
    t, headers = visit.site.texts, (*_headers_of(refusal), *more)
    if isinstance(refusal, SessionRequired | SessionInvalid):
        lead = t("signin.ended" if isinstance(refusal, SessionInvalid) else "signin.lead")
        if isinstance(refusal, StepUpRequired):
            lead = t.sentence(refusal.message)
        if kept := drafts.keep(visit):
            lead, headers = f"{lead} {t('signin.kept')}", (*headers, kept)
        return account_pages.sign_in_page(visit, refusal.status, headers, lead)
    is_first_page = visit.place == "/keys" and visit.caller.method in SAFE_METHODS
    if isinstance(refusal, NoOrganization) and visit.is_operator and is_first_page:
        return visit.redirect("/operator")
    title = t.find(f"error.{refusal.code}") or t("error.title")
    lead = t.find(f"error.{refusal.code}_lead") or t.sentence(refusal.message)
    problems = [p.message for p in refusal.problems] if isinstance(refusal, InvalidRequest) else []
    return visit.page(
        "error.html",
        refusal.status,
        headers,
        title=title,
        lead=lead,
        problems=[t.sentence(text) for text in problems],
        refusal=refusal,
        key=_key_of(visit, refusal),
        can_retry=visit.caller.method in {"GET", "HEAD"} and refusal.status in {429, 503},
    )


def _key_of(visit: Visit, refusal: Refusal) -> str | None:
    """Return the id of the key whose page tells more; None: no page does."""
    if isinstance(refusal, KeyRotated):
        return refusal.successor
    return visit.key or None if isinstance(refusal, KeyNotLive | ChangeCommitted) else None


def _headers_of(refusal: Refusal) -> tuple[Header, ...]:
    return tuple(one for one in refusal.headers() if one[0] != b"cache-control")
