"""CPU time that the gate adds to a call of an MCP tool, in this process, without a server.

``python -m benchmarks mcp``. The application is the same for all: it reads the body and answers;
behind the MCP gate it also dispatches the call by the gate's check, as the SDK does. So the figures
are what ``lockgate.mcp`` adds to an admission by ``lockgate.asgi``.
"""

import asyncio
import json
from collections.abc import Callable
from time import process_time
from types import SimpleNamespace
from typing import Any

from mcp.server.mcpserver import MCPServer
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lockgate import Catalogue, Gate, Plan, PlanBook, Rule, run
from lockgate.asgi import GateMiddleware
from lockgate.mcp import protect
from lockgate.web.mcp_dispatch import DispatchCheck

from .measure import Spread, added, in_turns, table

CALLS = 2_000
ADMISSION, HEADERS, BODY, LARGE = "an admission", "headers", "body, 130 bytes", "body, 10 KB"


def main(quick: bool) -> None:
    gate = Gate(
        "memory://",
        brand="acme",
        catalogue=Catalogue.of(["search"]),
        plans=PlanBook([Plan("free", rpm=10**9, rph=None, rpd=None, concurrent=1)]),
    )
    key = run(gate.keys.create("org_1", "key", ["search:read"])).text
    server = MCPServer("tools", log_level="ERROR")
    server.tool(name="search")(_search)
    protect(server, gate, rules={"tools/call search": "search:read"})
    app = server.streamable_http_app()
    [check] = [one for one in server.middleware if isinstance(one, DispatchCheck)]
    guarded: Any = app.state.lockgate
    guarded.app = _dispatching(check)
    plain = GateMiddleware(_answering, gate, {"POST /mcp": Rule("search:read")})
    plain.guard.audited = True
    message = _message({"query": "tea"})
    old = [(b"mcp-protocol-version", b"2025-11-25")]
    new = [
        *((b"mcp-protocol-version", b"2026-07-28"), (b"mcp-method", b"tools/call")),
        (b"mcp-name", b"search"),
    ]
    turns = {
        ADMISSION: _turn(plain, key, new, message),
        HEADERS: _turn(guarded, key, new, message),
        BODY: _turn(guarded, key, old, message),
        LARGE: _turn(guarded, key, old, _message({"query": "tea " * 2_500})),
    }
    figures = in_turns(turns, 6 if quick else 60)
    rows = [
        [
            name,
            f"{Spread.of(figures[name]):.1f}",
            "" if name == ADMISSION else f"{added(figures, name, ADMISSION):.1f}",
            "" if name == ADMISSION else f"{min(figures[name]) - min(figures[ADMISSION]):.1f}",
        ]
        for name in figures
    ]
    title = f"A tools/call that the gate admits ({len(figures[ADMISSION])} turns of {CALLS} calls)"
    table(title, ["its call named by", "CPU us", "added us", "at best"], rows)


def _search(query: str) -> str:
    return query


def _message(arguments: dict[str, str]) -> bytes:
    params = {"name": "search", "arguments": arguments}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    return json.dumps(message).encode()


async def _answering(scope: Scope, receive: Receive, send: Send) -> None:
    Request(scope)  # As the SDK makes one.
    await _answer(receive, send)


async def _answer(receive: Receive, send: Send) -> None:
    await receive()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"{}"})


def _dispatching(check: DispatchCheck) -> ASGIApp:
    params = {"name": "search", "arguments": {"query": "tea"}}

    async def ran(_: Any) -> None:
        pass

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        context = SimpleNamespace(request=Request(scope), method="tools/call", params=params)
        await check(context, ran)
        await _answer(receive, send)

    return app


def _turn(
    app: ASGIApp, key: str, named: list[tuple[bytes, bytes]], body: bytes
) -> Callable[[], float]:
    headers = [
        *((b"host", b"127.0.0.1:8000"), (b"user-agent", b"agent/1.0")),
        *((b"accept", b"application/json, text/event-stream"), (b"accept-encoding", b"gzip")),
        *((b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))),
        *((b"authorization", b"Bearer " + key.encode()), *named),
    ]
    message: Message = {"type": "http.request", "body": body, "more_body": False}

    async def receive() -> Message:
        return message

    async def send(_: Message) -> None:
        pass

    async def calls() -> None:
        for _ in range(CALLS):
            scope = {
                "type": "http",
                "method": "POST",
                "path": "/mcp",
                "raw_path": b"/mcp",
                "root_path": "",
                "query_string": b"",
                "headers": headers,
                "client": ("127.0.0.1", 50_000),
            }
            await app(scope, receive, send)

    def turn() -> float:
        began = process_time()
        asyncio.run(calls())
        return (process_time() - began) / CALLS * 1e6

    return turn
