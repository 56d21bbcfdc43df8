"""The operations of accounts: register, sign in and out, claim (spec 4.5, 5.1, D13 to D15)."""

from typing import Final

from ..errors import AgentsOnly, Header
from ..flows.accounts import Accounts
from ..identity import SESSION_COOKIE
from ..rules.access_rule import Rule
from .account_models import (
    AgentSignedIn,
    AgentSignedOut,
    BotRegister,
    BotRegistered,
    Claim,
    ClaimDetail,
    Claimed,
    ClaimList,
    SignIn,
)
from .bodies import read_body
from .caller import address_of
from .endpoint import Call, Endpoint
from .sessions import own_page, session_of


async def bot_register(call: Call) -> BotRegistered:
    """Register an agent; nobody needs to be known for it (spec 4.5)."""
    wanted = read_body(call.body, BotRegister, call.gate)
    made = await _accounts(call).register(
        wanted.agent_name,
        wanted.billing_email,
        wanted.account_type,
        wanted.company_name,
        address=address_of(call.gate, call.caller),
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
    own_page(call.gate, call.caller)
    wanted = read_body(call.body, SignIn, call.gate)
    signed_in = await accounts.agents.sign_in(
        wanted.dashboard_token, address=address_of(call.gate, call.caller)
    )
    call.headers.append(_cookie(accounts, signed_in.cookie, signed_in.seconds))
    return AgentSignedIn(organization_id=signed_in.organization, expires_in=signed_in.seconds)


async def bot_sign_out(call: Call) -> AgentSignedOut:
    """End the sessions of the caller's agent, everywhere."""
    session = call.principal.session
    if session is None or session.user is not None:
        raise AgentsOnly
    accounts = _accounts(call)
    await accounts.agents.sign_out(call.principal.organization)
    call.headers.append(_cookie(accounts, "", 0))
    return AgentSignedOut()


async def list_claims(call: Call) -> ClaimList:
    """What the caller has claimed and may claim, with all keys there are (D15)."""
    session = await session_of(call.gate, call.caller)
    found = await _accounts(call).claims.list(session)
    now = await call.gate.keys.now()
    return ClaimList(data=[await Claimed.of(one, now, call.caller) for one in found])


async def claim(call: Call) -> ClaimDetail:
    """Attach an organization to the caller's login; with its keys revoked, if they say so."""
    session = await session_of(call.gate, call.caller)
    wanted = read_body(call.body, Claim, call.gate)
    claimed = await _accounts(call).claims.claim(
        session, wanted.organization_id, revoke_keys=wanted.revoke_keys
    )
    now = await call.gate.keys.now()
    return ClaimDetail(data=await Claimed.of(claimed, now, call.caller))


def _accounts(call: Call) -> Accounts:
    accounts = call.gate.accounts
    assert accounts is not None, "these operations are there only where agents may register"
    return accounts


def _cookie(accounts: Accounts, value: str, seconds: int) -> Header:
    """The session's cookie, by the rules of ``__Host-`` ones (RFC 6265bis, 4.1.3.2)."""
    secure = "" if accounts.development else "; Secure"
    kept = f"Max-Age={seconds}; Path=/; HttpOnly; SameSite=Lax{secure}"
    return (b"set-cookie", f"{SESSION_COOKIE}={value}; {kept}".encode())


_ANYBODY = Rule(public=True, own=True)

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
