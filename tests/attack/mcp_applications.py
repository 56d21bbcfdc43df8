"""MCP servers that are attacked: the SDK's and FastMCP's, with tools of different costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastmcp import FastMCP
from mcp.server.mcpserver import MCPServer

from lockgate import Gate, Rule
from lockgate.mcp import protect, requires

from .handlers import Handler
from .raw_applications import Ran

POST = ("POST",)

PARTS = (
    # No rule names it.
    Handler("echo", POST, (), "tools/call echo"),
    # Named by a decorator, by a rule, and in letters beyond ASCII.
    Handler("search", POST, (), "tools/call search", "models:read", 3),
    Handler("write", POST, (), "tools/call write", "jobs:read", 5),
    Handler("größe", POST, (), "tools/call größe", "jobs:read", 2),
    Handler("admin", POST, (), "tools/call admin", "account:write", 7),
    Handler("note", POST, (), "resources/read notes://tea", "models:read", 11),
    Handler("secret", POST, (), "resources/read notes://secret", "account:write", 13),
    Handler("summary", POST, (), "prompts/get summary", "jobs:read", 17),
)
"""What a server has, as handlers: ``sample`` is the call that runs one."""
BY_NAME: Mapping[str, Handler] = {part.name: part for part in PARTS}
RULES: Mapping[str, Rule | str] = {
    "tools/call write": BY_NAME["write"].rule,
    "tools/call größe": BY_NAME["größe"].rule,
    "resources/read notes://secret": BY_NAME["secret"].rule,
}


def guarded_server(kind: str, gate: Gate, ran: Ran) -> Any:
    """Return the HTTP application of a server behind a gate."""
    server: Any = MCPServer("attacked", log_level="CRITICAL") if kind == "sdk" else FastMCP("x")

    async def echo(text: str = "") -> str:
        ran("echo")
        return text

    @requires("models:read", cost=3)
    async def search(text: str = "") -> str:
        ran("search")
        return text

    async def write(text: str = "") -> str:
        ran("write")
        return text

    async def size(text: str = "") -> str:
        ran("größe")
        return text

    @requires("account:write", cost=7)
    def admin(text: str = "") -> str:
        ran("admin")
        return text

    @requires("models:read", cost=11)
    async def note(name: str) -> str:
        ran("secret" if name == "secret" else "note")
        return name

    @requires("jobs:read", cost=17)
    async def summary() -> str:
        ran("summary")
        return "x"

    for function in (echo, search, write, admin):
        server.tool()(function)
    server.tool(name="größe")(size)
    server.resource("notes://{name}")(note)
    server.prompt()(summary)
    protect(server, gate, rules=RULES)
    if kind == "sdk":
        return server.streamable_http_app(host="0.0.0.0")
    return server.http_app(host_origin_protection=False)
