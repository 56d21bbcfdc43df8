"""Refusals that MCP clients understand: a loop waits and goes on, streams end with the error."""

import json
from typing import Any

import pytest
from mcp.client.client import Client
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import Context, MCPServer
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult
from pydantic import AnyHttpUrl

from lockgate import ConfigurationError, Limit
from lockgate.errors import RateLimitExceeded
from lockgate.mcp import RATE_LIMITED, hold, protect
from lockgate.options import StoreOptions, WebOptions
from lockgate.testing.clock import HandClock

from .mcp_service import (
    MODES,
    SERVERS,
    URL,
    Service,
    call,
    error_of,
    gate_of,
    key_of,
    message,
    named,
)

both_servers = pytest.mark.parametrize("kind", SERVERS)
both_modes = pytest.mark.parametrize("mode", MODES)
TOKENS = Limit("tokens", "100/minute")


@both_servers
@both_modes
async def test_a_loop_of_ten_lines_waits_and_goes_on(kind: str, mode: str) -> None:
    clock = HandClock()
    waits: list[int] = []

    async def sleep(seconds: int) -> None:
        waits.append(seconds)
        clock.move(seconds)

    async def patiently(client: Client, tool: str, arguments: dict[str, Any]) -> CallToolResult:
        while True:
            try:
                return await client.call_tool(tool, arguments)
            except MCPError as error:
                if error.code != RATE_LIMITED:
                    raise
                await sleep(error.data["retryAfter"])

    service = Service(kind, gate_of(store_options=StoreOptions(clock=clock)))
    key = key_of(service.gate)
    async with service.running(), service.client(key, mode) as client:
        for _ in range(7):
            assert not (await patiently(client, "search", {"query": "tea"})).is_error
    assert waits == [60, 60]
    assert service.ran == ["search"] * 7


def spending(service: Service) -> None:
    """A tool that tells its progress, and then needs more units than there are."""
    if service.kind == "sdk":

        @service.tool()
        async def spend(ctx: Context) -> str:
            await ctx.report_progress(1, 2)
            return await more()

    else:
        from fastmcp import Context as FastContext

        async def spend_fast(ctx: FastContext) -> str:
            await ctx.report_progress(1, 2)
            return await more()

        service.tool("spend")(spend_fast)

    async def more() -> str:
        async with hold({TOKENS: 80}) as held:
            held.used(80)
        service.ran.append("spend")
        return "spent"


@both_servers
@pytest.mark.parametrize("modern", [True, False])
async def test_a_hold_that_is_refused_in_a_tool_ends_its_stream_with_the_error(
    kind: str, modern: bool
) -> None:
    service = Service(kind, add=spending, app={"stateless_http": True})
    key = key_of(service.gate)
    async with service.running():
        headers = named("tools/call", "spend") if modern else {}
        body = call("spend", modern=modern)
        body["params"].setdefault("_meta", {})["progressToken"] = 5
        first = await service.post(body, key, headers)
        assert "spent" in first.text
        assert "notifications/progress" in first.text
        assert first.headers["content-type"].startswith("text/event-stream")
        second = await service.post(body, key, headers)
        error = error_of(second)
        assert (second.status_code, error["code"]) == (200, RATE_LIMITED)
        assert error["data"]["retryAfter"] >= 1
        assert error["data"]["limits"]["name"] == "tokens"
    assert service.ran == ["spend"]


@both_servers
@pytest.mark.parametrize("modern", [True, False])
async def test_an_error_has_the_id_of_a_body_that_was_read_unless_it_is_a_key_K11(
    kind: str, modern: bool
) -> None:
    service = Service(kind)
    key = key_of(service.gate, "notes:read")
    headers = named("tools/call", "search") if modern else {}
    async with service.running():
        for asked, told in (7, 7), ("a", "a"), (f"x {key}", None):
            body = {**call("search", modern=modern), "id": asked}
            response = await service.post(body, key, headers)
            assert response.status_code == 403
            assert response.json()["id"] == (None if modern else told)


@both_servers
async def test_a_refusal_from_memory_has_the_same_form(kind: str) -> None:
    def own(refusal: Any, _: Any) -> Any:
        return {"oops": refusal.code}

    for options in ({}, {"web_options": WebOptions(error_body=own)}):
        service = Service(kind, gate_of(rpm=1, **options))
        key = key_of(service.gate)
        async with service.running():
            headers = named("tools/call", "echo")
            answers = [await service.post(call("echo", text="x"), key, headers) for _ in range(4)]
            errors = [error_of(answer) for answer in answers[1:]]
            assert [answer.status_code for answer in answers] == [200, 429, 429, 429]
            assert {error["code"] for error in errors} == {RATE_LIMITED}
            assert {error["data"]["code"] for error in errors} == {RateLimitExceeded.code}
            assert all(
                error["data"]["retryAfter"] == int(answer.headers["retry-after"])
                for error, answer in zip(errors, answers[1:], strict=True)
            )


@both_servers
async def test_where_oauth_is_in_use_refusals_name_its_metadata(kind: str) -> None:
    auth = AuthSettings(
        issuer_url=AnyHttpUrl("https://idp.example"),
        resource_server_url=AnyHttpUrl("https://api.example/mcp"),
        required_scopes=["search:read"],
        validate_token_resource=False,
    )
    service = Service(kind, auth=auth)
    key = key_of(service.gate, "notes:read")
    where = "https://api.example/.well-known/oauth-protected-resource/mcp"
    async with service.running():
        missing = await service.post(message("ping", modern=False))
        assert missing.headers["www-authenticate"] == f'Bearer resource_metadata="{where}"'
        lacking = await service.post(call("search"), key, named("tools/call", "search"))
        assert lacking.headers["www-authenticate"] == (
            f'Bearer error="insufficient_scope", scope="search:read", resource_metadata="{where}"'
        )
        async with service.http() as http:
            path = "/.well-known/oauth-protected-resource/mcp"
            found = await http.get(URL.replace("/mcp", path))
            assert found.status_code == 200
            assert found.json()["resource"] == "https://api.example/mcp"
            assert found.json()["authorization_servers"] == ["https://idp.example/"]
    without = MCPServer("none")
    protect(without, gate_of(), auth=auth.model_copy(update={"resource_server_url": None}))
    with pytest.raises(ConfigurationError, match="resource_server_url"):
        without.streamable_http_app()


@both_servers
async def test_bad_input_is_never_a_5xx_G3(kind: str) -> None:
    service = Service(kind)
    key = key_of(service.gate)
    odd: list[tuple[dict[str, str], bytes]] = [
        ({"content-type": "text/plain"}, b"{}"),
        ({"content-type": "application/json"}, b""),
        ({"accept": "text/html"}, json.dumps(message("ping", modern=False)).encode()),
        ({"mcp-protocol-version": "1999-01-01"}, json.dumps(message("ping")).encode()),
        ({"mcp-protocol-version": ""}, json.dumps(message("ping")).encode()),
        ({}, json.dumps(message("\ud800")).encode()),
        ({}, b'{"jsonrpc":"2.0","id":' + b"9" * 10_000 + b',"method":"ping"}'),
        ({}, b'{"jsonrpc":"2.0","id":NaN,"method":"ping"}'),
        ({"mcp-session-id": "unknown"}, json.dumps(message("ping", modern=False)).encode()),
    ]
    async with service.running():
        for headers, body in odd:
            response = await service.post(body, key, headers)
            assert response.status_code < 500, (headers, body, response.text)
