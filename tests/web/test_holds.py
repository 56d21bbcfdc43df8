"""Holds taken by handlers: a refusal is a 429 in every framework, and streams settle them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pytest
from fastapi import FastAPI
from flask import Flask, request
from litestar import Litestar
from litestar import Request as LitestarRequest
from litestar import get as litestar_get
from quart import Quart
from quart import g as quart_g
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from lockgate import Gate, Limit, fastapi, flask, litestar, quart, run, starlette
from lockgate.errors import RateLimitExceeded
from lockgate.options import StoreOptions
from lockgate.testing import HandClock

TOKENS = Limit("tokens", "100/minute")
Get = Callable[[str], tuple[int, dict[str, str], Any]]


class Service:
    """A gate whose clock stands still, and the header of a key."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.gate = Gate(brand="acme", store_options=StoreOptions(clock=self.clock))
        text = run(self.gate.keys.create("org_1", "ci", scopes=["*"])).text
        self.headers = {"Authorization": f"Bearer {text}"}

    def left(self) -> int:
        """Return how many tokens can be taken now."""
        for units in range(100, 0, -1):
            try:
                taken = run(self.gate.holds.take("org_1", {TOKENS: units}))
            except RateLimitExceeded:
                continue
            run(self.gate.holds.settle(taken.id, 0))
            return units
        return 0


def _on_starlette(service: Service) -> Get:
    async def complete(request: Request) -> JSONResponse:
        async with service.gate.hold(request.state.principal, {TOKENS: 60}) as hold:
            hold.used(50)
        return JSONResponse({})

    app = Starlette(routes=[Route("/complete", starlette.requires("models:read")(complete))])
    starlette.protect(app, service.gate)
    return _get(TestClient(app), service)


def _on_fastapi(service: Service) -> Get:
    app = FastAPI()

    @app.get("/complete")
    async def complete(caller: fastapi.Caller = fastapi.requires("models:read")) -> Any:
        async with service.gate.hold(caller, {TOKENS: 60}) as hold:
            hold.used(50)
        return {}

    fastapi.protect(app, service.gate)
    return _get(TestClient(app), service)


def _on_flask(service: Service) -> Get:
    app = Flask(__name__)

    @app.get("/complete")
    @flask.requires("models:read")
    def complete() -> Any:
        caller = request.environ["lockgate.entry"].principal
        with service.gate.hold(caller, {TOKENS: 60}) as hold:
            hold.used(50)
        return {}

    flask.protect(app, service.gate)
    client = app.test_client()

    def get(path: str) -> tuple[int, dict[str, str], Any]:
        response = client.get(path, headers=service.headers)
        named = {name.lower(): value for name, value in response.headers.items()}
        return response.status_code, named, response.json

    return get


def _on_litestar(service: Service) -> Get:
    @litestar_get("/complete", guards=[litestar.requires("models:read")])
    async def complete(request: LitestarRequest[Any, Any, Any]) -> dict[str, str]:
        async with service.gate.hold(request.scope["state"]["principal"], {TOKENS: 60}) as hold:
            hold.used(50)
        return {}

    checks: Any = litestar.RouteMiddleware
    app = Litestar([complete], middleware=[checks], openapi_config=None, logging_config=None)
    return _get(TestClient(litestar.protect(app, service.gate)), service)


def _on_quart(service: Service) -> Get:
    app = Quart("service", static_folder=None)

    @app.get("/complete")
    @quart.requires("models:read")
    async def complete() -> dict[str, str]:
        async with service.gate.hold(quart_g.principal, {TOKENS: 60}) as hold:
            hold.used(50)
        return {}

    quart.protect(app, service.gate)
    return _get(TestClient(cast(Any, app)), service)


def _get(client: TestClient, service: Service) -> Get:
    def get(path: str) -> tuple[int, dict[str, str], Any]:
        response = client.get(path, headers=service.headers)
        return response.status_code, dict(response.headers), response.json()

    return get


@pytest.mark.parametrize(
    "front_end", [_on_starlette, _on_fastapi, _on_flask, _on_litestar, _on_quart]
)
def test_units_that_do_not_fit_are_a_429_that_names_the_limit(
    front_end: Callable[[Service], Get],
) -> None:
    get = front_end(Service())
    assert get("/complete")[0] == 200
    status, headers, body = get("/complete")
    assert status == 429
    assert headers["retry-after"] == "60"
    assert headers["x-ratelimit-limit"] == "10"
    assert body == {
        "error": "Too many requests for 'tokens': 50 of 100 used in the last minute, 60 asked for; "
        "try again in 60 s.",
        "code": "RATE_LIMIT_EXCEEDED",
        "retryAfter": 60,
        "limits": {"type": "minute", "limit": 100, "used": 50, "name": "tokens", "held": 0},
    }


def _streaming(service: Service, chunks: Callable[[], AsyncIterator[int]]) -> Starlette:
    async def events(id: str) -> AsyncIterator[bytes]:
        used = 0
        async with service.gate.holds.resume(id) as hold:
            async for tokens in chunks():
                used += tokens
                hold.used(used)
                yield b"%d\n" % used

    async def complete(request: Request) -> StreamingResponse:
        taken = await service.gate.holds.take(request.state.principal, {TOKENS: 90})
        return StreamingResponse(events(taken.id))

    app = Starlette(routes=[Route("/stream", starlette.requires("models:read")(complete))])
    starlette.protect(app, service.gate)
    return app


def test_a_stream_settles_what_it_used() -> None:
    service = Service()

    async def chunks() -> AsyncIterator[int]:
        for tokens in (10, 20, 5):
            yield tokens

    client = TestClient(_streaming(service, chunks))
    assert client.get("/stream", headers=service.headers).text == "10\n30\n35\n"
    assert service.left() == 65


def test_a_stream_that_breaks_off_settles_what_it_used() -> None:
    service = Service()

    async def chunks() -> AsyncIterator[int]:
        yield 10
        raise LookupError

    client = TestClient(_streaming(service, chunks))
    with pytest.raises(LookupError):
        client.get("/stream", headers=service.headers)
    assert service.left() == 90


async def test_a_client_that_goes_away_settles_what_was_used() -> None:
    service = Service()

    async def chunks() -> AsyncIterator[int]:
        while True:
            yield 1

    app = _streaming(service, chunks)
    sent = 0
    headers = [(name.lower().encode(), value.encode()) for name, value in service.headers.items()]

    async def send(message: Any) -> None:
        nonlocal sent
        sent += message["type"] == "http.response.body"
        if sent > 3:
            raise OSError

    async def receive() -> Any:
        if not sent:
            return {"type": "http.request", "body": b"", "more_body": False}
        return {"type": "http.disconnect"}

    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": "/stream",
        "raw_path": b"/stream",
        "query_string": b"",
        "root_path": "",
        "headers": headers,
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    with pytest.raises(Exception):  # noqa: B017, PT011 - of the server, as Starlette wraps it
        await app(scope, receive, send)
    await _collected()
    await service.gate.flush()
    taken = await service.gate.holds.take("org_1", {TOKENS: 90})
    assert taken.units == {"tokens": 90}


async def _collected() -> None:
    """Let the event loop close generators that were left."""
    import asyncio
    import gc

    gc.collect()
    for _ in range(10):
        await asyncio.sleep(0)
