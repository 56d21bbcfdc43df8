"""API keys, agents' keys and an identity provider's tokens side by side before an MCP server."""

from typing import Any

import pytest
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import MCPServer
from pydantic import AnyHttpUrl

from lockgate import Gate, Rule, run
from lockgate.errors import MissingAuth
from lockgate.mcp import KeyVerifier, caller, principal, protect, requires
from lockgate.options import WebOptions
from lockgate.sessions import Session, SignedCookie
from lockgate.sessions.jwt import JwtSessions
from tests.sessions.provider import AUDIENCE, EC, ISSUER, RSA, jwks, mint

from .mcp_service import SERVERS, Service, call, gate_of, key_of, named

both_servers = pytest.mark.parametrize("kind", SERVERS)


def with_tokens(**options: Any) -> Gate:
    return gate_of(
        sessions=JwtSessions(jwks(RSA, EC), issuer=ISSUER, audience=AUDIENCE),
        web_options=WebOptions(
            public_url="https://api.example",
            session_bearer=True,
            session_roles={"owner": ["*"], "reader": ["search:*"]},
        ),
        **options,
    )


def telling(service: Service) -> None:
    @service.tool()
    @requires("search:read", accepts=("key", "session"))
    async def who() -> str:
        found = principal()
        assert found is not None
        return f"{found.identity} of {found.organization}"

    @service.tool()
    async def key_only() -> str:
        try:
            return caller().key.name
        except MissingAuth:
            return "no key"


@both_servers
async def test_a_token_and_a_key_call_the_same_tool(kind: str) -> None:
    service = Service(kind, with_tokens(), add=telling)
    key = key_of(service.gate, "search:read")
    async with service.running():
        headers = named("tools/call", "who")
        by_key = await service.post(call("who"), key, headers)
        assert "of org_1" in by_key.text
        by_token = await service.post(call("who"), mint(), headers)
        assert "user_ada of org_1" in by_token.text
        for token in (mint(aud="https://other.example"), mint(exp=1), mint()[:-2] + "xx"):
            assert (await service.post(call("who"), token, headers)).status_code == 401
        default = await service.post(call("key_only"), mint(), named("tools/call", "key_only"))
        assert "no key" in default.text
        only = await service.post(call("search"), mint(), named("tools/call", "search"))
        assert only.status_code == 401


@both_servers
async def test_the_cookie_of_a_browser_calls_nothing(kind: str) -> None:
    sessions = SignedCookie(["a session secret of the tests"])
    gate = gate_of(sessions=sessions, web_options=WebOptions(public_url="https://api.example"))
    rule = Rule("search:read", accepts=("key", "session"))
    service = Service(kind, gate, rules={"tools/call echo": rule})
    cookie = sessions.issue(Session("org_1", "user"))
    async with service.running():
        headers = {**named("tools/call", "echo"), "cookie": f"__session={cookie}"}
        response = await service.post(call("echo", text="x"), None, headers)
        assert response.status_code == 401
    assert service.ran == []


async def test_the_sdks_own_authentication_takes_keys() -> None:
    auth = AuthSettings(
        issuer_url=AnyHttpUrl("https://idp.example"),
        resource_server_url=AnyHttpUrl("https://api.example/mcp"),
        required_scopes=["search:read"],
        validate_token_resource=False,
    )
    for guarded in (True, False):
        gate = gate_of()
        server = MCPServer("auth", auth=auth, token_verifier=KeyVerifier(gate))

        @server.tool()
        def who() -> str:
            token = get_access_token()
            assert token is not None
            assert token.token.startswith("acme_live_")
            assert len(token.token) == 15
            return f"{token.subject} of {token.client_id}"

        if guarded:
            protect(server, gate)
        service = Service("sdk", gate)
        service.app = server.streamable_http_app()
        good = run(gate.keys.create("org_1", "good", scopes=("search:*",)))
        weak = key_of(gate, "notes:read")
        async with service.running():
            headers = named("tools/call", "who")
            response = await service.post(call("who"), good.text, headers)
            assert f"{good.key.id} of org_1" in response.text
            assert await service.used(good.text) == 1  # The verifier behind a gate charges nothing.
            assert (await service.post(call("who"), weak, headers)).status_code == 403
            assert (await service.post(call("who"), "nonsense", headers)).status_code == 401
            assert (await service.post(call("who"), None, headers)).status_code == 401
