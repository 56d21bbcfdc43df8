"""An MCP server of the SDK and one of FastMCP with the same tools, behind a gate, and requests."""

import base64
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import httpx2
from fastmcp import FastMCP
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.server.mcpserver import MCPServer
from starlette.applications import Starlette

from lockgate import Catalogue, Gate, Limit, Plan, PlanBook, Rule, run
from lockgate.mcp import caller, protect, requires

SERVERS = ("sdk", "fastmcp")
MODES = ("2026-07-28", "legacy")
"""The protocol version with headers that name the call, and those with a handshake."""
Function = TypeVar("Function", bound=Callable[..., Any])
URL = "http://127.0.0.1:8000/mcp"
SEARCHES = Limit("search", "3/minute", by="key")
ACCEPT = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


def gate_of(rpm: int = 1000, **options: Any) -> Gate:
    plans = PlanBook([Plan("free", rpm=rpm, rph=None, rpd=None, concurrent=2)])
    catalogue = Catalogue.of(["search", "notes"])
    return Gate("memory://", brand="acme", plans=plans, catalogue=catalogue, **options)


def key_of(gate: Gate, *scopes: str, organization: str = "org_1") -> str:
    return run(gate.keys.create(organization, "key", scopes=scopes or ("search:*", "notes:*"))).text


class Service:
    """A server with three tools, a resource of many URIs and a prompt.

    Attributes:
        ran: the tools that ran, in order.
        app: its HTTP application.
    """

    def __init__(
        self,
        kind: str,
        gate: Gate | None = None,
        rules: Mapping[str, Rule | str] | None = None,
        add: Callable[["Service"], None] | None = None,
        app: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self.gate = gate or gate_of()
        self.kind = kind
        self.ran: list[str] = []
        self.server: Any = MCPServer("search") if kind == "sdk" else FastMCP("search")
        self._add_tools()
        if add is not None:
            add(self)
        given = {"tools/list": "search:read"} if rules is None else rules
        protect(self.server, self.gate, rules=given, **options)
        self.app: Starlette = self.build(**(app or {}))

    def build(self, **options: Any) -> Starlette:
        app: Starlette = (
            self.server.streamable_http_app(**options)
            if self.kind == "sdk"
            else self.server.http_app(host_origin_protection=False, **options)
        )
        return app

    def tool(self, name: str | None = None) -> Callable[[Function], Function]:
        """Register a tool; the decorators of FastMCP and the SDK have different types."""
        made: Callable[[Function], Function] = self.server.tool(name=name)
        return made

    def _add_tools(self) -> None:
        @self.tool()
        @requires("search:read", limits=[SEARCHES])
        async def search(query: str) -> str:
            self.ran.append("search")
            return f"{query} for {caller().organization}"

        @self.tool()
        @requires("notes:write", cost=5)
        def write(text: str) -> str:
            self.ran.append("write")
            return f"{text} by {caller().key.name}"

        @self.tool()
        async def echo(text: str) -> str:
            self.ran.append("echo")
            return text

        @requires("notes:read")
        def note(name: str) -> str:
            self.ran.append("note")
            return name

        @requires("notes:read")
        def summary(topic: str) -> str:
            self.ran.append("summary")
            return topic

        self.server.resource("notes://{name}")(note)
        self.server.prompt()(summary)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator["Service"]:
        async with self.app.router.lifespan_context(self.app):
            yield self

    def http(self, key: str | None = None, **headers: str) -> httpx2.AsyncClient:
        given = {} if key is None else {"authorization": f"Bearer {key}"}
        transport = httpx2.ASGITransport(app=self.app)
        return httpx2.AsyncClient(transport=transport, headers={**given, **headers}, base_url=URL)

    @asynccontextmanager
    async def client(self, key: str, mode: str = "2026-07-28") -> AsyncGenerator[Client]:
        """The SDK's own client."""
        transport = streamable_http_client(URL, http_client=self.http(key))
        async with Client(transport, mode=mode) as client:
            yield client

    async def post(
        self, body: Any, key: str | None = None, headers: Mapping[str, str] | None = None
    ) -> httpx2.Response:
        """One POST to the endpoint, of JSON or of bytes as they are."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with self.http(key) as http:
            return await http.post(URL, content=content, headers={**ACCEPT, **(headers or {})})

    async def used(self, key: str) -> int:
        """The requests that a key was charged in the minute."""
        principal = await self.gate.authenticate(key)
        return principal.reading.used[0] - 1


def message(method: str, params: Mapping[str, Any] | None = None, *, modern: bool = True) -> Any:
    """A request of a client; a modern one carries its version and capabilities."""
    meta = {
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        }
    }
    given = {**(params or {}), **(meta if modern else {})}
    return {"jsonrpc": "2.0", "id": 7, "method": method, "params": given}


def call(tool: str, *, modern: bool = True, **arguments: Any) -> Any:
    return message("tools/call", {"name": tool, "arguments": arguments}, modern=modern)


def named(method: str, name: str | None = None) -> dict[str, str]:
    """The headers of a modern request that name what it calls."""
    headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": method}
    if name is not None:
        plain = name.isascii() and name.isprintable()
        encoded = base64.b64encode(name.encode()).decode()
        headers["mcp-name"] = name if plain else f"=?base64?{encoded}?="
    return headers


async def opened(service: Service, key: str) -> str:
    """Open a session of an earlier protocol version, and return its id."""
    params = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    }
    response = await service.post(message("initialize", params, modern=False), key)
    assert response.status_code == 200, response.text
    session = response.headers["mcp-session-id"]
    note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert (await service.post(note, key, in_session(session))).status_code == 202
    return session


def in_session(session: str) -> dict[str, str]:
    return {"mcp-session-id": session, "mcp-protocol-version": "2025-11-25"}


def error_of(response: httpx2.Response) -> Any:
    """The JSON-RPC error of a response, of JSON or of a stream."""
    text = response.text
    if response.headers["content-type"].startswith("text/event-stream"):
        text = [line[6:] for line in text.splitlines() if line.startswith("data: ")][-1]
    return json.loads(text)["error"]
