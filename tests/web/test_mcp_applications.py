"""MCP servers inside other applications, in shadow mode, and behind spent addresses."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from fastapi import FastAPI
from mcp.server.mcpserver import MCPServer
from starlette.types import Message

from lockgate import ConfigurationError, Gate, Plan
from lockgate.fastapi import protect as protect_fastapi
from lockgate.mcp import audit, protect
from lockgate.options import WebOptions
from lockgate.web.protection import audit as audit_of_cli
from lockgate.web.shadow import Shadow

from .driving import http_scope
from .mcp_service import (
    SERVERS,
    URL,
    Service,
    call,
    error_of,
    gate_of,
    in_session,
    key_of,
    named,
    opened,
)

both_servers = pytest.mark.parametrize("kind", SERVERS)


def mounted(service: Service, gate: Gate) -> FastAPI:
    """A FastAPI application behind a gate, with the server below it."""

    inner = service.app

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        async with inner.router.lifespan_context(inner):
            yield

    app = FastAPI(lifespan=lifespan)
    app.mount("/tools", inner)
    protect_fastapi(app, gate)
    return app


@both_servers
async def test_a_call_below_a_guarded_application_is_charged_once(kind: str) -> None:
    service = Service(kind)
    service.app = mounted(service, service.gate)
    key = key_of(service.gate)
    url = URL.replace("/mcp", "/tools/mcp")
    async with service.running(), service.http(key) as http:
        headers = {"accept": "application/json, text/event-stream", **named("tools/call", "write")}
        response = await http.post(url, json=call("write", text="x"), headers=headers)
        assert response.status_code == 200, response.text
        assert await service.used(key) == 5
        headers |= named("tools/call", "search")
        weak = key_of(service.gate, "notes:read")
        headers["authorization"] = f"Bearer {weak}"
        response = await http.post(url, json=call("search"), headers=headers)
        assert response.status_code == 403
        assert error_of(response)["data"]["code"] == "INSUFFICIENT_SCOPE"
    assert service.ran == ["write"]


@both_servers
@pytest.mark.parametrize(("shadow", "modern"), [("limits", True), ("all", True), ("all", False)])
async def test_shadow_mode_lets_calls_through(kind: str, shadow: Shadow, modern: bool) -> None:
    service = Service(kind, shadow=shadow, app={"stateless_http": True})
    weak = key_of(service.gate, "search:read")
    async with service.running():
        for _ in range(5):  # Three fit.
            headers = named("tools/call", "search") if modern else {}
            body = call("search", modern=modern, query="x")
            assert (await service.post(body, weak, headers)).status_code == 200
        headers = named("tools/call", "echo") if modern else {}
        body = call("echo", modern=modern, text="x")
        without = await service.post(body, None, headers)
        large = await service.post(call("echo", modern=modern, text="x" * 1_100_000), None, headers)
    watches_all = shadow == "all"
    assert (without.status_code, large.status_code) == ((200, 200) if watches_all else (401, 401))
    assert service.ran == ["search"] * 5 + ["echo"] * (2 if watches_all else 0)


@both_servers
async def test_an_address_without_budget_has_no_body_read_D24(kind: str) -> None:
    budget = Plan("anonymous", rpm=2, rph=None, rpd=None, concurrent=None)
    gate = gate_of(web_options=WebOptions(anonymous=budget))
    service = Service(kind, gate)
    key = key_of(gate)
    async with service.running():
        body = call("echo", modern=False, text="x")
        statuses = [(await service.post(body, "acme_live_x")).status_code for _ in range(3)]
        assert statuses == [401, 401, 429]
        assert (await service.post(b"no json", "acme_live_x")).status_code == 429
        # A key that was admitted before goes on.
        assert (await service.post(b"no json", key)).status_code == 429


@both_servers
async def test_a_stream_of_a_session_ends_with_its_key(kind: str) -> None:
    service = Service(kind)
    made = await service.gate.keys.create("org_1", "key", ["search:read"])
    async with service.running():
        session = await opened(service, made.text)
        started = asyncio.Event()
        first: Message = {"type": "http.request", "body": b"", "more_body": False}
        messages = iter([first])

        async def receive() -> Message:
            for message in messages:
                return message
            await asyncio.Event().wait()
            raise AssertionError

        async def send(message: Message) -> None:
            started.set()

        given = {"accept": "text/event-stream", "host": "127.0.0.1:8000", **in_session(session)}
        headers = {"authorization": f"Bearer {made.text}", **given}
        scope = http_scope(path="/mcp", headers=headers.items())
        stream = asyncio.create_task(service.app(scope, receive, send))
        await asyncio.wait_for(started.wait(), 60)
        await service.gate.keys.revoke("org_1", made.key.id)
        await asyncio.wait_for(asyncio.wait([stream]), 60)


async def test_a_server_whose_parts_cannot_be_listed_is_held_to_rules_by_name(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def add(service: Service) -> None:
        async def failing(**_: object) -> object:
            raise OSError("the server behind is down")

        service.server.list_tools = failing

    service = Service("fastmcp", rules={"tools/call echo": "notes:write"}, add=add)
    reader, writer = key_of(service.gate, "notes:read"), key_of(service.gate, "notes:write")
    async with service.running():
        headers = named("tools/call", "echo")
        assert (await service.post(call("echo", text="x"), reader, headers)).status_code == 403
        assert (await service.post(call("echo", text="x"), writer, headers)).status_code == 200
        response = await service.post(call("write", text="x"), writer, named("tools/call", "write"))
        assert "Written" not in response.text
    assert service.ran == ["echo"]
    assert "could not be listed" in caplog.text


def test_the_command_audits_a_server_and_other_transports_are_told() -> None:
    service = Service("sdk")
    assert str(audit_of_cli(service.app)) == str(audit(service.server))
    with pytest.raises(ConfigurationError, match="streamable HTTP"):
        Service("fastmcp").server.http_app(transport="sse")
    with pytest.raises(ConfigurationError, match="audit"):
        audit(protect(MCPServer("none"), gate_of()))
