"""The pages of accounts: sign agents in and out, and connect workspaces (D13 to D15)."""

from typing import Final
from urllib.parse import quote

from ..errors import AgentsOnly, CrossSiteRequest, Header, NotFound, Refusal
from ..services.accounts.claims import Claimable
from ..services.accounts.registration import AgentAccounts
from ..web.operations.accounts import session_header
from ..web.operations.operation import Reply
from ..web.request import address_of
from ..web.sessions import reject_cross_site
from . import drafts
from .key_rows import row_of
from .visit import WORKSPACE, Visit

ON_A_PAGE: Final = 10
_KEPT: Final = 30 * 24 * 3600
"""Seconds for which the workspace stays open."""


async def list_claims(visit: Visit) -> Reply:
    """Show what the person has connected and may connect, with the keys of each."""
    accounts = _accounts(visit)
    cursor = visit.query.one("cursor") or None
    page = await accounts.claims.list(visit.signed_in, ON_A_PAGE, cursor)
    now = await visit.gate.keys.now()
    return visit.page(
        "claim.html",
        notices=("claimed",),
        accounts=[_shown(visit, claimable, now) for claimable in page.accounts],
        email=visit.signed_in.verified_email,
        cursor=page.next_cursor,
        is_first=cursor is None,
    )


async def claim(visit: Visit) -> Reply:
    """Connect a workspace to the person's login."""
    form, address = visit.form, address_of(visit.gate, visit.caller)
    try:
        with visit.changing():
            await _accounts(visit).claims.claim(
                visit.signed_in,
                form.one("organization"),
                revoke_keys=form.one("keys") != "keep",
                keep_token=form.one("keep_token") == "yes",
            )
    except Refusal as refusal:
        visit.gate.events.emit("claim_refused", code=refusal.code, address=address)
        raise
    return visit.redirect("/claim?done=claimed")


async def open_workspace(visit: Visit) -> Reply:
    """Open a workspace that the person has connected, or return to the one of the session."""
    organization = visit.form.one("organization")
    seconds = 0
    if organization != visit.signed_in.organization:
        await visit.act_for(organization)
        seconds = _KEPT
    accounts = _accounts(visit)
    secure = "" if accounts.development else "; Secure"
    kept = f"Max-Age={seconds}; Path=/; HttpOnly; SameSite=Lax{secure}"
    cookie = b"set-cookie", f"{WORKSPACE}={organization}; {kept}".encode()
    return visit.site.redirect(visit.to("/keys"), (cookie,))


async def sign_agent_in(visit: Visit) -> Reply:
    """Begin the session of an agent by its dashboard token."""
    accounts = _accounts(visit)
    address = address_of(visit.gate, visit.caller)
    try:
        reject_cross_site(visit.gate, visit.caller)
        token = visit.form.one("dashboard_token").strip()
        signed_in = await accounts.agents.sign_in(token, address=address)
    except CrossSiteRequest:
        raise
    except Refusal as refusal:
        visit.gate.events.emit("sign_in_refused", code=refusal.code, address=address)
        lead = visit.site.texts("signin.lead")
        return sign_in_page(visit, refusal.status, refusal.headers()[:1], lead, refusal)
    cookie = session_header(accounts, signed_in.cookie, signed_in.seconds)
    return visit.site.redirect(visit.to("/keys"), (cookie,))


async def sign_agent_out(visit: Visit) -> Reply:
    """End the sessions of an agent."""
    if not visit.signed_in.agent:
        raise AgentsOnly
    accounts = _accounts(visit)
    await accounts.agents.sign_out(visit.owner)
    return visit.site.redirect(visit.to("/keys"), (session_header(accounts, "", 0),))


def sign_in_page(
    visit: Visit,
    status: int,
    headers: tuple[Header, ...],
    lead: str,
    refusal: Refusal | None = None,
) -> Reply:
    """Return the page that leads to the host's sign-in, and signs agents in."""
    caller, link = visit.caller, visit.site.brand.sign_in
    if link is not None:
        back = visit.to(drafts.page_of_form(visit))
        if caller.method == "GET":
            back = visit.base + quote(caller.path, errors="surrogatepass") + visit.asked
        link = link.replace("{next}", quote(back, safe=""))
    knows_person = visit.session is not None and not visit.session.agent
    return visit.page(
        "sign_in.html",
        status,
        headers,
        title=visit.site.texts("signin.again" if visit.session else "signin.title"),
        link=link,
        lead=lead,
        has_agents=visit.gate.accounts is not None and not knows_person,
        problem=None if refusal is None else visit.site.texts.sentence(refusal.message),
    )


def _shown(visit: Visit, claimable: Claimable, now: int) -> dict[str, object]:
    account = claimable.account
    claimed = account.claimed_at
    return {
        "organization": account.organization,
        "name": account.agent_name,
        "company": account.company_name,
        "registered": visit.ago(account.created_at, now),
        "claimed": None if claimed is None else visit.ago(claimed, now),
        "keys": [row_of(visit, key, now) for key in claimable.keys],
        "more": claimable.more_keys,
    }


def _accounts(visit: Visit) -> AgentAccounts:
    accounts = visit.gate.accounts
    if accounts is None:
        raise NotFound
    accounts.tend()
    return accounts
