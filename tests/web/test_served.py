"""The middleware behind a real uvicorn: WebSockets, streams, methods, clients that leave."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from lockgate import PUBLIC, Rule, run
from lockgate.asgi import GateMiddleware
from lockgate.core.timestamps import MINUTE
from lockgate.starlette import error_handlers, operations, requires
from tests.patience import LEISURELY

from .driving import RATE, Bench
from .serving import exchange, fields_of, served, status_of


class Served:
    """A bench with an application behind its gate, on the wire."""

    def __init__(self) -> None:
        self.bench = Bench()
        self.next_chunk = threading.Event()
        self.reached: list[str] = []
        routes = [
            Route("/health", self.page),
            Route("/admin", self.page, methods=["POST"]),
            Route("/stream", self.stream),
            Route("/crash", self.crash),
            WebSocketRoute("/echo", self.echo),
            WebSocketRoute("/needs", requires("jobs:write")(_needs)),
            WebSocketRoute("/raises", self.raises),
            *operations(self.bench.gate),
        ]
        rules: dict[str, Rule | str] = {
            "GET /health": PUBLIC,
            "POST /admin": "account:write",
            "GET /echo": "jobs:read",
        }
        app = Starlette(routes=routes, exception_handlers=error_handlers)
        self.app = GateMiddleware(app, self.bench.gate, rules)

    async def page(self, request: Request) -> Response:
        self.reached.append(request.url.path)
        return PlainTextResponse("ok")

    async def stream(self, _: Request) -> Response:
        async def chunks() -> AsyncIterator[bytes]:
            yield b"first"
            await asyncio.to_thread(self.next_chunk.wait, 10)
            yield b"second"

        return StreamingResponse(chunks())

    async def crash(self, _: Request) -> Response:
        raise ZeroDivisionError

    async def echo(self, websocket: WebSocket) -> None:
        self.reached.append("/echo")
        await websocket.accept(headers=[(b"x-ratelimit-limit", b"666"), (b"x-own", b"1")])
        await websocket.send_text(websocket.state.principal.organization)
        await websocket.close()

    async def raises(self, websocket: WebSocket) -> None:
        websocket.state.principal.need("jobs:write")


async def _needs(websocket: WebSocket) -> None:
    await websocket.accept()
    await websocket.close()


@pytest.fixture(scope="module", params=["auto", "h11"])
def wire(request: pytest.FixtureRequest) -> Iterator[tuple[Served, tuple[str, int]]]:
    service = Served()
    with served(service.app, http=request.param) as address:
        yield service, address


@pytest.fixture
def service(wire: tuple[Served, tuple[str, int]]) -> Served:
    wire[0].reached.clear()
    wire[0].bench.clock.now += MINUTE
    return wire[0]


@pytest.fixture
def address(wire: tuple[Served, tuple[str, int]]) -> tuple[str, int]:
    return wire[1]


def request(method: str, target: str, *, key: str | None = None, more: str = "") -> bytes:
    bearer = f"Authorization: Bearer {key}\r\n" if key else ""
    head = f"{method} {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{bearer}{more}\r\n"
    return head.encode()


def url(address: tuple[str, int], path: str) -> str:
    return f"ws://{address[0]}:{address[1]}{path}"


def bearer(key: str | None) -> Any:
    return {"Authorization": f"Bearer {key}"} if key else {}


# --- WebSockets -----------------------------------------------------------------------------


def test_d32_an_admitted_handshake(service: Served, address: tuple[str, int]) -> None:
    key = service.bench.key("jobs:read")
    before = service.bench.used()
    with connect(url(address, "/echo"), additional_headers=bearer(key), **LEISURELY) as websocket:
        assert websocket.recv(timeout=60) == "org_1"
        assert websocket.response is not None
        headers = websocket.response.headers
    assert service.bench.used() == before + 1
    assert [headers.get_all(name)[:1] for name in RATE[:2]] == [["1000"], ["999"]]
    assert [len(headers.get_all(name)) for name in RATE] == [1, 1, 1]
    assert headers["x-own"] == "1"


@pytest.mark.parametrize(
    ("credential", "path", "status"),
    [
        (None, "/echo", 401),
        ("garbage", "/echo", 401),
        ("models:read", "/needs", 403),
        ("models:read", "/raises", 403),
        ("jobs:read", "/nowhere", 403),
    ],
)
def test_d32_a_refused_handshake(
    service: Served, address: tuple[str, int], credential: str | None, path: str, status: int
) -> None:
    key = service.bench.key(credential) if credential and ":" in credential else credential
    with pytest.raises(InvalidStatus) as caught:
        connect(url(address, path), additional_headers=bearer(key), **LEISURELY).__enter__()
    response = caught.value.response
    assert response.status_code == status
    assert [len(response.headers.get_all(name)) for name in RATE] == [1, 1, 1]
    assert response.headers["cache-control"] == "no-store"
    assert service.reached == []


# --- HTTP -----------------------------------------------------------------------------------


def test_a_crash_carries_the_headers(service: Served, address: tuple[str, int]) -> None:
    response = exchange(address, request("GET", "/crash", key=service.bench.key()))
    assert status_of(response) == 500
    assert [len(fields_of(response)[name]) for name in RATE] == [1, 1, 1]


def test_a_stream_is_not_held_back(service: Served, address: tuple[str, int]) -> None:
    service.next_chunk.clear()
    with socket.create_connection(address, 60) as connection:
        connection.sendall(request("GET", "/stream", key=service.bench.key()))
        received = b""
        while b"first" not in received:
            received += connection.recv(65536)
        assert b"x-ratelimit-limit" in received.lower()
        service.next_chunk.set()
        while chunk := connection.recv(65536):
            received += chunk
    assert b"second" in received


def test_a_client_that_leaves_in_the_middle_of_an_operation(
    service: Served, address: tuple[str, int]
) -> None:
    session = service.bench.session("org_left")
    more = (
        f"Cookie: __session={session}\r\nContent-Type: application/json\r\nContent-Length: 100\r\n"
    )
    with socket.create_connection(address, 60) as connection:
        connection.sendall(request("POST", "/api/v1/api-keys", more=more) + b'{"name": "x"')
    key = service.bench.key()
    assert status_of(exchange(address, request("GET", "/api/v1/api-keys", key=key))) == 200
    assert run(service.bench.gate.keys.list("org_left")).keys == []
