"""Endless responses behind a gate, for servers: each ends only with its key."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any
from wsgiref.types import StartResponse, WSGIEnvironment

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from lockgate import Gate, Plan, PlanBook, asgi, wsgi
from lockgate.options import StoreOptions

PLANS = PlanBook([Plan("free", rpm=10_000, rph=None, rpd=None, concurrent=None)])
gate = Gate(
    os.environ["STREAMING_STORE"],
    brand="acme",
    plans=PLANS,
    store_options=StoreOptions(deadline=30),
)


async def _parts() -> AsyncIterator[bytes]:
    while True:
        yield b"part\n"
        await asyncio.sleep(0.02)


async def parts(_: Request) -> StreamingResponse:
    return StreamingResponse(_parts())


async def silence(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"one", "more_body": True})
    await asyncio.sleep(600)


async def download(scope: Scope, receive: Receive, send: Send) -> None:
    headers = [(b"content-length", b"1000000000")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    while True:
        await send({"type": "http.response.body", "body": b"part\n", "more_body": True})
        await asyncio.sleep(0.02)


async def socket(websocket: WebSocket) -> None:
    await websocket.accept()
    await websocket.send_text("one")
    await websocket.receive_text()


class _Raw:
    """Makes a route of an ASGI application."""

    def __init__(self, app: Callable[..., Any]) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)


routes = [
    Route("/parts", parts),
    Route("/silence", _Raw(silence)),
    Route("/download", _Raw(download)),
    WebSocketRoute("/socket", socket),
]
app = asgi.protect(Starlette(routes=routes), gate)


def _service(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    start_response("200 OK", [("Content-Type", "text/plain")])
    return _blocking_parts()


def _blocking_parts() -> Iterator[bytes]:
    while True:
        yield b"part\n"
        time.sleep(0.02)


wsgi_app = wsgi.protect(_service, gate)
