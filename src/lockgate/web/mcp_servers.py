"""What the gate needs of an MCP server of the SDK or of FastMCP: its parts, and where it calls."""

import sys
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any

from mcp.server.lowlevel import Server
from mcp.server.mcpserver import MCPServer
from starlette.applications import Starlette
from starlette.routing import Route

from ..errors import ConfigurationError
from .mcp_dispatch import DispatchCheck, refusals_sent
from .mcp_rules import Component

_LAYERS_AT_MOST = 10
_ENDPOINT = "StreamableHTTPASGIApp"
_METHODS = {
    "call_tool": "tools/call",
    "read_resource": "resources/read",
    "get_prompt": "prompts/get",
}
"""The JSON-RPC method that each method of a server runs."""

BuildApp = Callable[..., Starlette]


class McpServer:
    """A ``Server`` of the SDK, as the gate sees it: its functions are not known, nor what it has.

    Args:
        server: the server.
    """

    def __init__(self, server: Any) -> None:
        self._server: Any = server

    def size(self) -> int:
        """Return the number of its tools, resources and prompts, as far as it is known at once."""
        return 0

    async def components(self) -> list[Component]:
        """Return its tools, resources and prompts."""
        return []

    def check(self, check: DispatchCheck) -> None:
        """Have it ask before it runs a call."""
        self._check = check
        self._server.middleware.append(check)

    def settle(self) -> None:
        """Put the check behind all middleware that was added since: it sees what will run."""
        _put_last(self._server.middleware, self._check)

    def wrap(self, wrapper: Callable[[BuildApp], BuildApp]) -> None:
        """Replace the method that builds its HTTP application."""
        self._server.streamable_http_app = wrapper(self._server.streamable_http_app)


class _SdkServer(McpServer):
    """An ``MCPServer`` of the SDK."""

    def __init__(self, server: Any) -> None:
        super().__init__(server)
        self._tools: Any = self._server._tool_manager
        self._resources: Any = self._server._resource_manager
        self._prompts: Any = self._server._prompt_manager

    def size(self) -> int:
        resources = self._resources
        return (
            len(self._tools.list_tools())
            + len(resources.list_resources())
            + len(resources.list_templates())
            + len(self._prompts.list_prompts())
        )

    async def components(self) -> list[Component]:
        resources = self._resources
        return [
            *(Component("tools/call", tool.name, tool.fn) for tool in self._tools.list_tools()),
            *(
                Component("resources/read", str(one.uri), getattr(one, "fn", None))
                for one in resources.list_resources()
            ),
            *(
                Component("resources/read", one.uri_template, one.fn, one.matches)
                for one in resources.list_templates()
            ),
            *(Component("prompts/get", one.name, one.fn) for one in self._prompts.list_prompts()),
        ]

    def check(self, check: DispatchCheck) -> None:
        super().check(check)
        for name, method in _METHODS.items():
            setattr(self._server, name, _checking(getattr(self._server, name), method, check))


class _FastMcpServer(McpServer):
    """A ``FastMCP`` server."""

    def __init__(self, server: Any) -> None:
        super().__init__(server)
        self._below: Any = server._mcp_server
        """The server of the SDK that dispatches its calls."""

    def size(self) -> int:
        return len(self._server.local_provider._components)

    async def components(self) -> list[Component]:
        server = self._server
        return [
            *(
                Component("tools/call", one.name, getattr(one, "fn", None))
                for one in await server.list_tools(run_middleware=False)
            ),
            *(
                Component("resources/read", str(one.uri), getattr(one, "fn", None))
                for one in await server.list_resources(run_middleware=False)
            ),
            *(
                Component("resources/read", one.uri_template, getattr(one, "fn", None), one.matches)
                for one in await server.list_resource_templates(run_middleware=False)
            ),
            *(
                Component("prompts/get", one.name, getattr(one, "fn", None))
                for one in await server.list_prompts(run_middleware=False)
            ),
        ]

    def check(self, check: DispatchCheck) -> None:
        from fastmcp.server.middleware import Middleware
        from fastmcp.server.providers.addressing import parse_hashed_backend_name

        async def listed(name: str) -> str:
            """Return the listed name of a tool that is called by its hash, as pages of apps do."""
            hashed = parse_hashed_backend_name(name)
            if hashed is None or await self._server.get_tool(name) is not None:
                return name
            tool = await self._server.get_tool_by_hash(*hashed)
            return name if tool is None else str(tool.name)

        class InnerCheck(Middleware):
            """Checks the tools that a tool calls by name as well."""

            async def on_call_tool(self, context: Any, call_next: Any) -> Any:
                name = await listed(context.message.name)
                return await _checked("tools/call", name, context, call_next)

            async def on_read_resource(self, context: Any, call_next: Any) -> Any:
                uri = str(context.message.uri)
                return await _checked("resources/read", uri, context, call_next)

            async def on_get_prompt(self, context: Any, call_next: Any) -> Any:
                return await _checked("prompts/get", context.message.name, context, call_next)

        async def _checked(method: str, name: str, context: Any, call_next: Any) -> Any:
            with refusals_sent():
                check.check(method, name)
                return await call_next(context)

        self._check, self._inner = check, InnerCheck()
        self._below.middleware.append(check)
        self._server.add_middleware(self._inner)

    def settle(self) -> None:
        _put_last(self._below.middleware, self._check)
        _put_last(self._server.middleware, self._inner)

    def wrap(self, wrapper: Callable[[BuildApp], BuildApp]) -> None:
        self._server.http_app = wrapper(self._server.http_app)


def server_of(server: object) -> McpServer:
    """Return a server of the SDK or of FastMCP as the gate sees it.

    Raises:
        ConfigurationError: it is another object.
    """
    fastmcp: Any = sys.modules.get("fastmcp")
    kinds: list[tuple[type, Callable[[Any], McpServer]]] = [
        (MCPServer, _SdkServer),
        (Server, McpServer),
        *([] if fastmcp is None else [(fastmcp.FastMCP, _FastMcpServer)]),
    ]
    for kind, seen in kinds:
        if isinstance(server, kind):
            return seen(server)
    raise ConfigurationError(
        f"This protects an MCPServer or Server of the MCP SDK, or a FastMCP, not "
        f"{type(server).__name__}: call it before the server makes its HTTP application."
    )


def endpoint_of(app: Starlette) -> str:
    """Return the path of the MCP endpoint of an application.

    Raises:
        ConfigurationError: it serves another transport than streamable HTTP.
    """
    for route in app.routes:
        layer: object = route.endpoint if isinstance(route, Route) else None
        for _ in range(_LAYERS_AT_MOST):
            if type(layer).__name__ == _ENDPOINT:
                assert isinstance(route, Route), "it has an endpoint"
                return route.path
            layer = getattr(layer, "app", None)
    raise ConfigurationError(
        "lockgate guards MCP over streamable HTTP alone: the transport SSE is deprecated, and "
        "answers a call on another request than the one that brought it."
    )


def _put_last(middleware: "list[Any]", one: object) -> None:
    middleware.remove(one)
    middleware.append(one)


def _checking(
    run: Callable[..., Awaitable[Any]], method: str, check: DispatchCheck
) -> Callable[..., Awaitable[Any]]:
    """Have a method of a server check what it runs, and send the refusals that it meets."""

    @wraps(run)
    async def checked(name: Any, *args: Any, **kwargs: Any) -> Any:
        with refusals_sent():
            check.check(method, str(name))
            return await run(name, *args, **kwargs)

    return checked
