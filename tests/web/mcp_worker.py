"""One of several workers that serve an MCP server over one Redis; its log has each run of a tool.

``python -m tests.web.mcp_worker PORT`` with ``REDIS`` and ``LOG`` in the environment.
"""

import os
import sys
from pathlib import Path
from typing import Final

import uvicorn
from mcp.server.mcpserver import MCPServer

from lockgate import Catalogue, Gate, Limit, Plan, PlanBook
from lockgate.mcp import caller, protect, requires
from lockgate.options import StoreOptions

BY_MINUTE: Final = Limit("searches", "2000/minute", by="key")
BY_SECOND: Final = Limit("ticks", "40/second")


def gate_of(url: str) -> Gate:
    plan = Plan("free", rpm=None, rph=None, rpd=None, concurrent=None)
    return Gate(
        url,
        brand="acme",
        peppers=[b"a pepper of the tests of the workers"],
        catalogue=Catalogue.of(["search"]),
        plans=PlanBook([plan]),
        store_options=StoreOptions(deadline=30, on_failure="closed"),
    )


def main() -> None:
    log = os.open(Path(os.environ["LOG"]), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    server = MCPServer("worker", log_level="CRITICAL")

    def ran(tool: str) -> str:
        # The instant of the admission, by the clock of Redis.
        os.write(log, f"{tool} {caller().reading.now}\n".encode())
        return tool

    @server.tool()
    @requires("search:read", limits=[BY_MINUTE])
    async def search() -> str:
        return ran("search")

    @server.tool()
    @requires("search:read", limits=[BY_SECOND])
    async def tick() -> str:
        return ran("tick")

    protect(server, gate_of(os.environ["REDIS"]), strict=True)
    app = server.streamable_http_app(stateless_http=True, json_response=True)
    uvicorn.run(app, port=int(sys.argv[1]), log_level="critical", proxy_headers=False)


if __name__ == "__main__":
    main()
