"""Clients that leave: a hold around the whole response is settled at its end, on real servers.

Each application takes 90 tokens, waits for its model in the handler, and streams an answer without
an end. The client leaves while the handler waits, as the response begins, or in its middle.
FastAPI has the tests of its example: tests/examples/test_llm_proxy.py.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from flask import Flask, Response, g, request
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from lockgate import Gate, Limit, flask, run, starlette
from lockgate.services.reservations.hold_block import Hold
from tests.patience import SECONDS, until

from .serving import served, served_by_waitress, status_of

TOKENS = Limit("tokens", "100/minute")
Address = tuple[str, int]


class Service:
    """A gate in this process, a key, and the model that the handlers of its application ask."""

    def __init__(self) -> None:
        self.gate = Gate("memory://", brand="acme")
        self.key = run(self.gate.keys.create("org_1", "ci", scopes=["*"])).text
        self.waits = threading.Event()
        """The handler waits for the model."""
        self.answers = threading.Event()
        """The model answers."""
        self.fails = False
        """With an error."""
        self.limit = "tokens"
        """The name by which the parts of the answer are accounted."""
        self.streamed = 0

    async def ask(self) -> None:
        await asyncio.to_thread(self.ask_in_thread)

    def ask_in_thread(self) -> None:
        self.waits.set()
        assert self.answers.wait(SECONDS)
        if self.fails:
            raise LookupError

    def part(self, hold: Hold) -> bytes:
        self.streamed = min(40, self.streamed + 1)
        hold.used({self.limit: self.streamed})
        return b"part\n" * 20_000

    async def parts(self, hold: Hold) -> AsyncIterator[bytes]:
        while True:
            yield self.part(hold)
            await asyncio.sleep(0.001)

    def used(self) -> tuple[int, int]:
        """Return the tokens used, and those that are held."""
        usage = run(self.gate.holds.usage("org_1"))
        return (usage[0].used - usage[0].held, usage[0].held) if usage else (0, 0)

    def request(self, **body: object) -> bytes:
        text = json.dumps(body)
        return (
            "POST /complete HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            f"Authorization: Bearer {self.key}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(text)}\r\n\r\n{text}"
        ).encode()


class Body(BaseModel):
    max_tokens: int


def _starlette(service: Service) -> ASGIApp:
    @starlette.requires("models:read")
    async def complete(request: Request) -> ASGIApp:
        body = await request.json()

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            units = {TOKENS: body["max_tokens"]}
            async with service.gate.hold(request.state.principal, units) as hold:
                hold.used(0)
                await service.ask()
                await StreamingResponse(service.parts(hold))(scope, receive, send)

        return answer

    app = Starlette(routes=[Route("/complete", complete, methods=["POST"])])
    return starlette.protect(app, service.gate, strict=True)


def _flask(service: Service) -> Flask:
    app = Flask(__name__, static_folder=None)

    @app.post("/complete")
    @flask.requires("models:read")
    def complete() -> Response:
        with ExitStack() as stack:
            units = {TOKENS: Body.model_validate_json(request.get_data()).max_tokens}
            hold = stack.enter_context(service.gate.hold(g.principal, units))
            hold.used(0)
            service.ask_in_thread()
            response = Response(iter(lambda: service.part(hold), b""))
            response.call_on_close(stack.pop_all().close)
            return response

    return flask.protect(app, service.gate, strict=True)


SERVICES: dict[str, Callable[[Service], Any]] = {
    "starlette": lambda service: served(_starlette(service)),
    "flask": lambda service: served_by_waitress(_flask(service)),
}


@pytest.fixture(params=SERVICES)
def running(request: pytest.FixtureRequest) -> Iterator[tuple[Service, Address]]:
    service = Service()
    with SERVICES[request.param](service) as address:
        yield service, address


def settles(service: Service) -> bool:
    until(lambda: service.used()[1] == 0)
    return service.used() == (service.streamed, 0)


@pytest.mark.parametrize("leaves", ["before the model answers", "as it answers"])
def test_a_client_that_leaves_before_the_response_pays_what_was_streamed(
    running: tuple[Service, Address], leaves: str
) -> None:
    service, address = running
    with socket.create_connection(address, SECONDS) as connection:
        connection.sendall(service.request(max_tokens=90))
        assert service.waits.wait(SECONDS)
        assert service.used() == (0, 90)
        if leaves == "as it answers":
            service.answers.set()
    service.answers.set()
    assert settles(service)


def test_a_response_pays_what_was_streamed_of_what_fits(running: tuple[Service, Address]) -> None:
    """A model that fails costs nothing, a client that leaves in the middle what came until then,
    and a stream that misspells its limit all that was held."""
    service, address = running
    service.answers.set()

    def ask(tokens: int) -> Any:
        connection = socket.create_connection(address, SECONDS)
        connection.sendall(service.request(max_tokens=tokens))
        return connection

    service.fails = True
    with ask(90) as connection:
        assert status_of(connection.recv(65536)) == 500
    assert settles(service)
    assert service.streamed == 0
    service.fails = False
    with ask(40) as connection:
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        assert service.used()[1] == 40
    assert settles(service)
    assert service.streamed
    service.waits.clear()
    with ask(100) as connection:
        refused = b"".join(iter(lambda: connection.recv(65536), b""))
    assert status_of(refused) == 429
    assert b'"name":"tokens","held":0' in refused
    assert not service.waits.is_set()
    service.limit, before = "tokns", service.streamed
    with ask(40) as connection:
        while connection.recv(65536):
            pass
    until(lambda: service.used()[1] == 0)
    assert service.used() == (before + 40, 0)
