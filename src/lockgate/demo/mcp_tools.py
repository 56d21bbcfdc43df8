"""The demo's MCP server: three tools of the service at ``/mcp``, behind the same gate."""

from importlib.util import find_spec
from typing import Any, Final

from starlette.types import ASGIApp, Receive, Scope, Send

from .service import TOKENS, Service

PATH: Final = "/mcp"


def is_offered() -> bool:
    """Return whether the extra ``lockgate[mcp]`` is installed."""
    return find_spec("mcp") is not None


class WithTools:
    """An ASGI application, and an MCP server at ``/mcp``.

    Args:
        app: the application.
        service: the demo's service.
    """

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app: Final = app
        self._tools: Final = _tools(service)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or the lifespan of both."""
        if scope["type"] == "lifespan":
            async with self._tools.router.lifespan_context(self._tools):
                await self._app(scope, receive, send)
        else:
            app = self._tools if scope["path"] in {PATH, f"{PATH}/"} else self._app
            await app(scope, receive, send)


def _tools(service: Service) -> Any:
    """Return the MCP server as an application."""
    from mcp.server.mcpserver import MCPServer

    from ..mcp import caller, hold, protect, requires

    server = MCPServer("lockgate demo", log_level="WARNING")

    @server.tool()
    @requires("models:read")
    async def list_models() -> list[str]:
        """List the models."""
        return ["acme-image-1", "acme-image-1-fast"]

    @server.tool()
    @requires("account:read")
    async def show_plan() -> str:
        """Show the plan of the caller's organization."""
        return caller().plan.name

    @server.tool()
    @requires("models:write")
    async def complete(prompt: str, max_tokens: int = 1000) -> str:
        """Pretend to complete a prompt: hold the most tokens, and settle those that were used."""
        async with hold({TOKENS: max(1, max_tokens)}) as held:
            words = prompt.upper().split()[:max_tokens]
            held.used(len(words))
        return " ".join(words)

    protect(server, service.gate, rules={"tools/list": "models:read"}, strict=True)
    return server.streamable_http_app(
        streamable_http_path=PATH,
        host=service.sign_in.host,
        json_response=True,
        stateless_http=True,
    )
