"""A gate before MCP servers: closed by default, and no tool runs that was not admitted (D49)."""

import asyncio
import logging
from typing import Any

import pytest
from mcp.client.client import Client
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolRequestParams, CallToolResult, ListToolsResult, TextContent, Tool
from starlette.responses import PlainTextResponse

from lockgate import PUBLIC, ConfigurationError, Limit, Rule
from lockgate.mcp import RATE_LIMITED, audit, protect, requires
from lockgate.web.audit import StrictAuditFailed

from .web.mcp_service import (
    ACCEPT,
    MODES,
    SERVERS,
    URL,
    Service,
    call,
    error_of,
    gate_of,
    in_session,
    key_of,
    message,
    named,
    opened,
)

both_servers = pytest.mark.parametrize("kind", SERVERS)
both_modes = pytest.mark.parametrize("mode", MODES)


@both_servers
@both_modes
async def test_the_sdks_client_calls_tools_and_learns_why_others_are_refused(
    kind: str, mode: str
) -> None:
    service = Service(kind)
    key = key_of(service.gate, "search:read")
    async with service.running(), service.client(key, mode) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} >= {"search", "write"}
        for _ in range(3):
            result = await client.call_tool("search", {"query": "tea"})
            assert result.content == [TextContent(type="text", text="tea for org_1")]
        with pytest.raises(MCPError) as limited:
            await client.call_tool("search", {"query": "tea"})
        with pytest.raises(MCPError) as lacking:
            await client.call_tool("write", {"text": "x"})
        with pytest.raises(MCPError, match="notes:read"):
            await client.read_resource("notes://a")
        with pytest.raises(MCPError, match="notes:read"):
            await client.get_prompt("summary", {"topic": "x"})
    assert limited.value.code == RATE_LIMITED == -32023
    assert limited.value.data["code"] == "RATE_LIMIT_EXCEEDED"
    assert 1 <= limited.value.data["retryAfter"] <= 61
    assert limited.value.data["limits"]["name"] == "search"
    assert lacking.value.data["code"] == "INSUFFICIENT_SCOPE"
    assert service.ran == ["search"] * 3


@both_servers
async def test_refusals_have_the_status_and_headers_of_http(kind: str) -> None:
    service = Service(kind, gate_of(rpm=5))
    key = key_of(service.gate, "search:read")
    async with service.running():
        missing = await service.post(call("echo", text="x"), None, named("tools/call", "echo"))
        assert missing.status_code == 401
        assert missing.headers["www-authenticate"] == "Bearer"
        assert error_of(missing)["data"] == {"code": "MISSING_AUTH"}
        unknown = await service.post(call("echo"), "nonsense", named("tools/call", "echo"))
        assert unknown.status_code == 401
        assert error_of(unknown)["data"] == {"code": "INVALID_FORMAT"}
        lacking = await service.post(call("write"), key, named("tools/call", "write"))
        assert lacking.status_code == 403
        assert (
            'error="insufficient_scope", scope="notes:write"'
            in (lacking.headers["www-authenticate"])
        )
        full = await service.post(call("echo", text="x"), key, named("tools/call", "echo"))
        assert full.status_code == 429
        assert int(full.headers["retry-after"]) == error_of(full)["data"]["retryAfter"]
        assert error_of(full)["code"] == RATE_LIMITED
        assert full.headers["x-ratelimit-limit"] == "5"
    assert service.ran == []


@both_servers
async def test_what_no_rule_names_needs_a_key(kind: str) -> None:
    service = Service(kind)
    async with service.running():
        for method in ("server/discover", "prompts/list", "tools/list", "unknown/method"):
            response = await service.post(message(method), None, named(method))
            assert response.status_code == 401, method
        for method in ("initialize", "ping", "notifications/initialized"):
            response = await service.post(message(method, modern=False))
            assert response.status_code == 401, method
        async with service.http() as http:
            assert (await http.get(URL)).status_code == 401
            assert (await http.delete(URL)).status_code == 401
            assert (await http.get("/elsewhere")).status_code == 401


@both_servers
async def test_public_calls_and_routes_need_no_key(kind: str) -> None:
    def add(service: Service) -> None:
        async def health(_: Any) -> Any:
            return PlainTextResponse("fine")

        service.server.custom_route("/health", methods=["GET"])(health)

    public = ["tools/list", "server/discover", "GET /health"]
    service = Service(kind, rules={}, add=add, public=public)
    async with service.running():
        listed = await service.post(message("tools/list"), None, named("tools/list"))
        assert listed.status_code == 200
        assert len(listed.json()["result"]["tools"]) == 3
        assert (await service.post(call("echo"), None, named("tools/call", "echo"))).is_error
        async with service.http() as http:
            assert (await http.get("http://127.0.0.1:8000/health")).text == "fine"


@both_servers
async def test_headers_are_held_against_the_body_in_every_version_D31(kind: str) -> None:
    service = Service(kind)
    key = key_of(service.gate)
    earlier = call("write", text="x", modern=False)
    differing: list[tuple[dict[str, str], Any]] = [
        *(
            (named("tools/call", "echo"), call(name, text="x"))
            for name in ("write", "search", "missing", "")
        ),
        ({"mcp-method": "tools/call", "mcp-name": "echo"}, earlier),
        ({"mcp-method": "tools/list"}, earlier),
        ({"mcp-name": "write"}, earlier),
        ({"mcp-protocol-version": "2026-07-28"}, call("write", text="x")),
        (named("tools/call"), call("write", text="x")),
        (named("tools/call", "écho"), call("write", text="x")),
        ({**named("tools/call"), "mcp-name": "=?base64?%%%?="}, call("write", text="x")),
    ]
    async with service.running(), service.http(key) as http:
        session = {"mcp-session-id": await opened(service, key)}
        for headers, body in differing:
            for more in (session, {}):
                response = await service.post(body, key, more | headers)
                assert response.status_code == 400, (headers, body)
                assert error_of(response)["code"] == -32020, (headers, body)
        good, before = named("tools/call", "echo"), await service.used(key)
        for name, value in good.items():
            twice = [*ACCEPT.items(), *good.items(), (name, value)]
            response = await http.post(URL, json=call("echo", text="x"), headers=twice)
            assert (response.status_code, error_of(response)["code"]) == (400, -32020)
        assert await service.used(key) == before + 1, "the gate refuses it, not the server"
    assert service.ran == []


@both_servers
async def test_a_body_that_is_no_message_or_too_large_is_refused_and_not_charged(kind: str) -> None:
    service = Service(kind)
    key = key_of(service.gate)
    no_messages = [
        b"no json",
        b"[" * 100_000,
        b'{"jsonrpc":"2.0","id":1}',
        b"[]",
        b"7",
        '{"jsonrpc":"2.0","id":1,"method":"tools/list"}'.encode("utf-16"),
    ]
    async with service.running():
        for body in no_messages:
            response = await service.post(body, key)
            assert response.status_code == 400, body[:60]
            assert error_of(response)["code"] in {-32700, -32600}, body[:60]
        large = call("echo", text="x" * 1024 * 1024, modern=False)
        assert (await service.post(large, key)).status_code == 413
        assert await service.used(key) == 0
    assert service.ran == []


@both_servers
async def test_the_last_of_two_names_is_charged_and_runs(kind: str) -> None:
    service = Service(kind)
    key = key_of(service.gate)
    named_twice = b'"params":{"name":"echo","name":"write","arguments":{"text":"x"}}}'
    body = b'{"jsonrpc":"2.0","id":1,"method":"tools/list","method":"tools/call",' + named_twice
    async with service.running():
        session = await opened(service, key)
        before = await service.used(key)
        response = await service.post(body, key, in_session(session))
        assert response.status_code == 200
        assert await service.used(key) == before + 1 + 5  # With the reading before.
    assert service.ran == ["write"]


@both_servers
async def test_a_tool_that_is_added_later_has_its_rule_by_a_name_outside_ascii(kind: str) -> None:
    service = Service(kind)
    weak, strong = key_of(service.gate, "search:*"), key_of(service.gate, "notes:*")
    async with service.running():

        @service.tool("größe")
        @requires("notes:write")
        async def size() -> str:
            service.ran.append("größe")
            return "big"

        headers = named("tools/call", "größe")
        assert (await service.post(call("größe"), weak, headers)).status_code == 403
        assert (await service.post(call("größe"), strong, headers)).status_code == 200
    assert service.ran == ["größe"]


@both_servers
async def test_each_call_of_a_batch_is_charged(kind: str) -> None:
    service = Service(kind)
    weak, key = key_of(service.gate, "search:read"), key_of(service.gate, organization="org_2")
    async with service.running():
        one, two = call("echo", text="x", modern=False), call("write", text="x", modern=False)
        refused = await service.post([one, two], weak)
        assert refused.status_code == 403
        await service.post([one, two], key)  # No current server takes a batch.
        assert await service.used(key) == 1 + 5
        assert (await service.post([one] * 51, key)).status_code == 400
        assert await service.used(key) == 1 + 5 + 1  # With the reading before.
    assert service.ran == []


@both_servers
async def test_a_session_of_another_key_is_not_found(kind: str) -> None:
    service = Service(kind)
    mine, other = key_of(service.gate), key_of(service.gate, organization="org_2")
    same = key_of(service.gate)
    async with service.running():
        session = await opened(service, mine)
        body = call("echo", text="x", modern=False)
        for key in (other, same):
            assert (await service.post(body, key, in_session(session))).status_code == 404
            async with service.http(key, **in_session(session)) as http:
                assert (await http.get(URL, headers=ACCEPT)).status_code == 404
                assert (await http.delete(URL)).status_code == 404
        assert service.ran == []
        response = await service.post(body, mine, in_session(session))
        assert response.status_code == 200
        async with service.http(mine, **in_session(session)) as http:
            assert (await http.delete(URL)).status_code == 200
    assert service.ran == ["echo"]


@both_servers
async def test_a_redirect_to_the_endpoint_is_not_charged(kind: str) -> None:
    service = Service(kind)
    key = key_of(service.gate)
    async with service.running():
        async with service.http(key) as http:
            response = await http.post(f"{URL}/?a=b", json=call("echo"), headers=ACCEPT)
            assert (response.status_code, response.headers["location"]) == (307, f"{URL}?a=b")
        assert await service.used(key) == 0


async def test_a_server_that_is_reached_around_its_gate_refuses_every_call_G9(
    caplog: pytest.LogCaptureFixture,
) -> None:
    service = Service("sdk")
    with pytest.RaisesGroup(
        pytest.RaisesExc(MCPError, match="No gate has admitted"), flatten_subgroups=True
    ):
        async with Client(service.server) as client:
            await client.call_tool("echo", {"text": "x"})
    assert service.ran == []
    assert "around its gate" in caplog.text


@both_servers
async def test_an_application_without_its_middleware_refuses_every_call_G9(kind: str) -> None:
    service = Service(kind)
    key = key_of(service.gate)
    del service.app.build_middleware_stack
    async with service.running():
        response = await service.post(call("echo", text="x"), key, named("tools/call", "echo"))
        assert response.status_code == 404
    assert service.ran == []


@both_servers
async def test_a_tool_that_another_tool_calls_by_name_needs_the_rule_of_both_D31(
    kind: str,
) -> None:
    def add(service: Service) -> None:
        @service.tool()
        async def run_tool(name: str) -> str:
            await service.server.call_tool(name, {"text": "x"})
            return "ran"

        @service.tool()
        async def read(uri: str) -> str:
            await service.server.read_resource(uri)
            return "read"

        @service.tool()
        async def hidden(text: str) -> str:
            service.ran.append("hidden")
            return text

    rules: dict[str, Rule | str] = {
        "tools/call hidden": "notes:write",
        "tools/call run_tool": "search:read",
    }
    service = Service(kind, rules=rules, add=add)
    key = key_of(service.gate)
    async with service.running():
        headers = named("tools/call", "run_tool")
        for name in ("hidden", "write"):
            response = await service.post(call("run_tool", name=name), key, headers)
            assert "error" in response.json() or response.json()["result"]["isError"]
        headers = named("tools/call", "read")
        response = await service.post(call("read", uri="notes://a"), key, headers)
        assert "error" in response.json() or response.json()["result"]["isError"]
        assert service.ran == []
        await service.post(call("run_tool", name="echo"), key, named("tools/call", "run_tool"))
    assert service.ran == ["echo"]


async def test_a_tool_that_is_called_by_its_hash_needs_its_own_rule_D31() -> None:
    def add(service: Service) -> None:
        async def hidden() -> str:
            service.ran.append("hidden")
            return "hidden"

        meta = {"ui": {"visibility": ["app"]}, "fastmcp": {"tool_hash": "0123456789ab"}}
        service.server.tool(hidden, meta=meta)

    rules = {"tools/call hidden": "notes:write"}
    service = Service("fastmcp", rules=rules, add=add)
    weak, strong = key_of(service.gate, "search:read"), key_of(service.gate, "notes:write")
    name = "__0123456789ab_hidden"
    async with service.running():
        response = await service.post(call(name), weak, named("tools/call", name))
        found = response.json()  # Before FastMCP 4.2 no tool has such a name.
        assert "error" in found or found["result"]["isError"], response.text
        assert service.ran == []
        response = await service.post(call("hidden"), strong, named("tools/call", "hidden"))
        assert response.status_code == 200
    assert service.ran == ["hidden"]


@both_servers
async def test_rules_and_declarations_hold_together(kind: str) -> None:
    service = Service(
        kind, rules={"tools/call search": "notes:read", "tools/call *": "notes:write"}
    )
    reader, writer = key_of(service.gate, "search:read"), key_of(service.gate, "notes:*")
    async with service.running():
        headers = named("tools/call", "search")
        for key in (reader, writer):
            assert (await service.post(call("search"), key, headers)).status_code == 403
        echo = named("tools/call", "echo")
        assert (await service.post(call("echo", text="x"), reader, echo)).status_code == 403
        assert (await service.post(call("echo", text="x"), writer, echo)).status_code == 200
    assert service.ran == ["echo"]


@both_servers
async def test_a_rule_for_one_uri_keeps_the_rule_of_its_template(kind: str) -> None:
    service = Service(kind, rules={"resources/read notes://secret": "notes:write"})
    reader = key_of(service.gate, "notes:read")
    writer = key_of(service.gate, "notes:write")
    both = key_of(service.gate, "notes:*")
    async with service.running():
        for key, name, status in [
            *((reader, "plain", 200), (writer, "plain", 403), (both, "secret", 200)),
            *((reader, "secret", 403), (writer, "secret", 403)),
            *((reader, "%73ecret", 403), (reader, "secre%74", 403), (both, "%73ecret", 200)),
        ]:
            uri = f"notes://{name}"
            body = message("resources/read", {"uri": uri})
            response = await service.post(body, key, named("resources/read", uri))
            assert response.status_code == status, (name, response.text)


@both_servers
def test_the_audit_lists_what_a_server_has(kind: str) -> None:
    found = audit(Service(kind).server)
    assert [f"{route.method} {route.path}" for route in found.routes] == [
        *("prompts/get summary", "resources/read notes://{name}", "tools/call echo"),
        *("tools/call search", "tools/call write", "* /mcp"),
    ]
    assert found.problems == [
        "No rule names tools/call echo: any valid key is admitted, whatever its scopes."
    ]


@both_servers
async def test_strict_refuses_to_start_with_an_undecided_tool(kind: str) -> None:
    service = Service(kind, strict=True)
    with pytest.raises(StrictAuditFailed, match="tools/call echo"):
        await service.post(call("echo"), "x", named("tools/call", "echo"))
    decided = {"tools/call echo": "search:read", "tools/call missing": "search:read"}
    with pytest.raises(StrictAuditFailed, match="names nothing"):
        await Service(kind, rules=decided, strict=True).post(call("echo"), "x")


@both_servers
def test_mistakes_are_told_at_the_start(kind: str) -> None:
    def unknown_scope(service: Service) -> None:
        @service.tool()
        @requires("other:read")
        async def odd() -> str:
            return ""

    with pytest.raises(ConfigurationError, match=r"tools/call odd.*other:read"):
        audit(Service(kind, add=unknown_scope).server)
    for rules in (
        {"tools/call": "search:read"},
        {"tools/list all": "search:read"},
        {"tools/call search": "other:read"},
    ):
        with pytest.raises(ConfigurationError):
            Service(kind, rules=rules)
    with pytest.raises(ConfigurationError, match="public"):
        audit(Service(kind, rules={"tools/call search": PUBLIC}).server)
    with pytest.raises(ConfigurationError, match="once"):
        protect(Service(kind).server, gate_of())
    with pytest.raises(ConfigurationError, match="MCPServer"):
        protect(object(), gate_of())


async def test_a_server_without_known_tools_is_held_to_rules_by_name() -> None:
    ran: list[str] = []

    async def listed(*_: Any) -> ListToolsResult:
        return ListToolsResult(tools=[Tool(name="search", input_schema={})])

    async def called(_: Any, params: CallToolRequestParams) -> CallToolResult:
        ran.append(params.name)
        return CallToolResult(content=[])

    gate = gate_of()
    server: Server[Any] = Server("plain", on_list_tools=listed, on_call_tool=called)
    rules = {"tools/call search": Rule("search:read", limits=[Limit("s", "1/minute")])}
    protect(server, gate, rules=rules)
    service = Service("sdk")
    service.app = server.streamable_http_app()
    key, other = key_of(gate, "search:read"), key_of(gate, "notes:read")
    async with service.running():
        headers = named("tools/call", "search")
        statuses = [
            (await service.post(call("search", q="x"), one, headers)).status_code
            for one in (key, key, other)
        ]
        assert statuses == [200, 429, 429]
    assert ran == ["search"]


def test_a_server_logs_nothing_of_keys_K2(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    service = Service("sdk")
    key = key_of(service.gate)

    async def ask() -> None:
        async with service.running():
            await service.post(call("echo", text="x"), key, named("tools/call", "echo"))
            await service.post({"jsonrpc": "2.0", "id": key, "method": key}, key)
            response = await service.post({"jsonrpc": "2.0", "id": key, "result": []}, None)
            assert key not in response.text

    asyncio.run(ask())
    assert key not in caplog.text
