"""The operations of accounts: register, sign in and out, claim (D13 to D15)."""

from typing import Final

from ...core.access_rule import Rule
from ...errors import AgentsOnly, Header
from ...gate import Gate
from ...services.accounts.claims import LISTED, LISTED_AT_MOST
from ...services.accounts.registration import AgentAccounts
from ..bodies import read_body
from ..queries import Parameter, read_number, read_query
from ..request import address_of
from ..sessions import reject_cross_site, session_of
from .account_schemas import (
    AgentSignedIn,
    AgentSignedOut,
    BotRegister,
    BotRegistered,
    BotRegisterWithProof,
    Claim,
    ClaimDetail,
    Claimed,
    ClaimList,
    SignIn,
)
from .operation import Call, Endpoint


async def bot_register(call: Call) -> BotRegistered:
    """Register an agent; the request needs no credentials (D13)."""
    accounts = _accounts(call)
    wanted = read_body(call.body, registration_body(call.gate), call.gate)
    made = await accounts.register(
        wanted.agent_name,
        wanted.billing_email,
        wanted.account_type,
        wanted.company_name,
        address=address_of(call.gate, call.caller),
        proof=wanted.proof if isinstance(wanted, BotRegisterWithProof) else None,
    )
    return BotRegistered(
        api_key=made.api_key,
        dashboard_token=made.dashboard_token,
        dashboard_url=made.dashboard_url,
        billing_url=made.billing_url,
    )


async def bot_sign_in(call: Call) -> AgentSignedIn:
    """Begin an agent's session; no page of another site can begin one in a visitor's browser."""
    accounts = _accounts(call)
    reject_cross_site(call.gate, call.caller)
    wanted = read_body(call.body, SignIn, call.gate)
    signed_in = await accounts.agents.sign_in(
        wanted.dashboard_token, address=address_of(call.gate, call.caller)
    )
    call.headers.append(session_header(accounts, signed_in.cookie, signed_in.seconds))
    return AgentSignedIn(organization_id=signed_in.organization, expires_in=signed_in.seconds)


async def bot_sign_out(call: Call) -> AgentSignedOut:
    """End the sessions of the caller's agent, everywhere."""
    session = call.principal.session
    if session is None or not session.agent:
        raise AgentsOnly
    accounts = _accounts(call)
    await accounts.agents.sign_out(call.principal.organization)
    call.headers.append(session_header(accounts, "", 0))
    return AgentSignedOut()


async def list_claims(call: Call) -> ClaimList:
    """What the caller has claimed and may claim, page by page, with their keys (D15, D46)."""
    session = await session_of(call.gate, call.caller, "account:read")
    query = read_query(call.caller.query, _PAGE, call.gate)
    limit = read_number(query, "limit", LISTED, LISTED_AT_MOST)
    page = await _accounts(call).claims.list(session, limit, query.get("cursor"))
    now = await call.gate.keys.now()
    data = [await Claimed.of(one, now, call.caller, call.gate.events) for one in page.accounts]
    return ClaimList(data=data, next_cursor=page.next_cursor)


async def claim(call: Call) -> ClaimDetail:
    """Attach an organization to the caller's login; its dashboard token ends unless it is kept."""
    session = await session_of(call.gate, call.caller, "account:write")
    wanted = read_body(call.body, Claim, call.gate)
    now = await call.gate.keys.now()  # Before the claim, whose result a failure would lose (D52).
    claimed = await _accounts(call).claims.claim(
        session,
        wanted.organization_id,
        revoke_keys=wanted.revoke_keys,
        keep_token=wanted.keep_dashboard_token,
    )
    return ClaimDetail(data=await Claimed.of(claimed, now, call.caller, call.gate.events))


def _accounts(call: Call) -> AgentAccounts:
    accounts = call.gate.accounts
    assert accounts is not None, "these operations are there only where agents may register"
    accounts.tend()
    return accounts


def registration_body(gate: Gate) -> type[BotRegister]:
    """The body of a registration: with a proof where the host reads one."""
    accounts = gate.accounts
    proof = accounts is not None and accounts.asks_for_proof
    return BotRegisterWithProof if proof else BotRegister


def account_endpoints(gate: Gate) -> tuple[Endpoint, ...]:
    """The operations of accounts as a gate with registration has them."""
    first, *others = ACCOUNT_ENDPOINTS
    return (first._replace(request=registration_body(gate)), *others)


def session_header(accounts: AgentAccounts, value: str, seconds: int) -> Header:
    """The session's cookie, by the rules of ``__Host-`` ones (RFC 6265bis, 4.1.3.2)."""
    secure = "" if accounts.development else "; Secure"
    kept = f"Max-Age={seconds}; Path=/; HttpOnly; SameSite=Lax{secure}"
    return (b"set-cookie", f"{accounts.cookie}={value}; {kept}".encode())


_ANYBODY = Rule(public=True, own=True)
_PAGE: Final = (
    Parameter(
        "limit",
        "How many organizations to list.",
        {"type": "integer", "minimum": 1, "maximum": LISTED_AT_MOST, "default": LISTED},
    ),
    Parameter("cursor", "The nextCursor of the page before.", {"type": "string"}),
)

ACCOUNT_ENDPOINTS: Final = (
    Endpoint(
        "POST",
        "/auth/bot-register",
        _ANYBODY,
        bot_register,
        "Register an agent",
        BotRegistered,
        status=201,
        request=BotRegister,
        tells="registration_refused",
    ),
    Endpoint(
        "POST",
        "/auth/bot-sign-in",
        _ANYBODY,
        bot_sign_in,
        "Sign an agent in",
        AgentSignedIn,
        request=SignIn,
        tells="sign_in_refused",
    ),
    Endpoint(
        "POST",
        "/auth/bot-sign-out",
        Rule(accepts=("session",), own=True),
        bot_sign_out,
        "Sign an agent out",
        AgentSignedOut,
    ),
    Endpoint(
        "GET",
        "/auth/claim",
        _ANYBODY,
        list_claims,
        "See what can be claimed",
        ClaimList,
        query=_PAGE,
        reads_session=True,
        tells="claim_refused",
    ),
    Endpoint(
        "POST",
        "/auth/claim",
        _ANYBODY,
        claim,
        "Claim an organization",
        ClaimDetail,
        request=Claim,
        reads_session=True,
        tells="claim_refused",
    ),
)
