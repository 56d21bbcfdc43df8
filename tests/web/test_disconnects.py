"""A block cancels the work of a handler whose client disconnects before the response begins."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from select import select
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lockgate import Limit, Rule
from lockgate.asgi import GateMiddleware, cancel_on_disconnect
from lockgate.errors import ClientDisconnected, ConfigurationError
from tests.examples.test_servers import Running, served
from tests.patience import SECONDS, until

from .driving import Answer, Bench, http_scope, websocket_scope

DISCONNECT = {"type": "http.disconnect"}
END = {"type": "http.request", "body": b"end", "more_body": False}
PART = {"type": "http.request", "body": b"part", "more_body": True}
Handler = Callable[[Scope, Receive, Send], Awaitable[None]]


class Client:
    """A client whose messages a test hands in, each to be received once, as from Hypercorn."""

    def __init__(self, *messages: Message) -> None:
        self.messages: asyncio.Queue[Message | Exception] = asyncio.Queue()
        self.bench = Bench()
        self.sent: list[Message] = []
        self.reads = 0
        self.put(*messages)

    def put(self, *messages: Message | Exception) -> None:
        for message in messages:
            self.messages.put_nowait(message)

    async def receive(self) -> Message:
        self.reads += 1
        message = await self.messages.get()
        if isinstance(message, Exception):
            raise message
        return message

    async def send(self, message: Message) -> None:
        self.sent.append(message)

    def ask(self, app: ASGIApp, **fields: Any) -> asyncio.Task[None]:
        """Send a request to an application behind a gate."""
        guarded = GateMiddleware(app, self.bench.gate, **fields)
        headers = [("authorization", f"Bearer {self.bench.key()}")]
        scope = http_scope("POST", "/x", headers=headers)
        return asyncio.create_task(guarded(scope, self.receive, self.send))

    async def status_of(self, app: ASGIApp) -> int:
        await ended(self.ask(app))
        return self.answer.status

    @property
    def answer(self) -> Answer:
        return Answer(self.sent)


async def settled() -> None:
    """Let every task of the event loop run as far as it can."""
    for _ in range(20):
        await asyncio.sleep(0)


async def ended(task: asyncio.Task[None]) -> None:
    await asyncio.wait_for(task, SECONDS)


async def read(receive: Receive) -> list[bytes]:
    """Return the parts of a body."""
    parts: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return parts
        parts.append(message["body"])
        if not message["more_body"]:
            return parts


async def answer(send: Send, body: bytes = b"done") -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})


class Waiting:
    """An application that reads its body, then waits in a block until a test lets it go on."""

    def __init__(self) -> None:
        self.goes_on = asyncio.Event()
        self.cancelled = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await read(receive)
        try:
            async with cancel_on_disconnect(scope):
                await self.goes_on.wait()
        except ClientDisconnected:
            self.cancelled = True
            raise
        await answer(send)


@pytest.mark.parametrize("nested", [False, True])
async def test_a_block_is_cancelled_when_the_client_disconnects(nested: bool) -> None:
    """With its slot, and inside another gate too."""
    client, app = Client(PART, END), Waiting()
    guarded = GateMiddleware(app, client.bench.gate) if nested else app
    task = client.ask(guarded, rules={"POST /x": Rule("models:read", slot=True)})
    await settled()
    assert not task.done()
    assert len(await client.bench.gate.slots.held("org_1")) == 1
    client.put(DISCONNECT)
    await ended(task)
    assert app.cancelled
    assert (client.answer.status, client.answer.code) == (499, "CLIENT_DISCONNECTED")
    assert client.answer.rate[:2] == (1000, 999)
    assert not await client.bench.gate.slots.held("org_1")


async def test_the_handler_goes_on_that_catches_the_disconnect() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        task = asyncio.current_task()
        with pytest.raises(ClientDisconnected):
            async with cancel_on_disconnect(scope):
                await asyncio.Event().wait()
        assert task is not None
        assert task.cancelling() == 0
        with pytest.raises(ClientDisconnected):  # Noticed before, so the work does not begin.
            async with cancel_on_disconnect(scope):
                raise AssertionError
        assert await receive() == END
        # The server has sent it once; the framework gets it each time.
        assert [await receive(), await receive()] == [DISCONNECT, DISCONNECT]
        await answer(send)

    client = Client(END, DISCONNECT)
    assert await client.status_of(app) == 200
    assert client.reads == 2


@pytest.mark.parametrize(
    ("messages", "reads", "parts"),
    [
        ((END, END, END), 2, [b"end"]),
        ((PART, PART, END, DISCONNECT), 1, [b"part", b"part", b"end"]),
    ],
    ids=["whole", "in parts"],
)
async def test_a_body_is_read_ahead_by_one_part_or_message_and_kept_for_the_application(
    messages: tuple[Message, ...], reads: int, parts: list[bytes]
) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        async with cancel_on_disconnect(scope):
            await settled()
            assert client.reads == reads
        assert await read(receive) == parts
        await answer(send)

    client = Client(*messages)
    assert await client.status_of(app) == 200


async def test_a_body_that_is_read_in_the_block_hides_no_disconnect() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        async with cancel_on_disconnect(scope):
            await settled()
            assert await read(receive) == [b"part", b"part", b"end"]
            read_whole.set()
            await asyncio.Event().wait()

    read_whole = asyncio.Event()
    client = Client(PART)
    task = client.ask(app)
    await settled()
    client.put(PART)
    await settled()
    client.put(END)
    await asyncio.wait_for(read_whole.wait(), SECONDS)
    await settled()
    client.put(DISCONNECT)
    await ended(task)
    assert client.answer.status == 499


async def test_a_message_that_the_application_awaits_in_the_block_reaches_it_too() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        async with cancel_on_disconnect(scope):
            reading = asyncio.create_task(read(receive))
            await settled()
            client.put(END)
            assert await reading == [b"end"]
        listening = asyncio.ensure_future(receive())
        async with cancel_on_disconnect(scope):
            await settled()
        await settled()
        client.put(DISCONNECT)
        assert await listening == DISCONNECT
        await answer(send)

    client = Client()
    assert await client.status_of(app) == 200


async def test_blocks_in_and_behind_one_another_see_the_disconnect_and_raise_once() -> None:
    seen: list[type[BaseException]] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await read(receive)
        async with cancel_on_disconnect(scope):
            await settled()
        async with cancel_on_disconnect(scope):
            try:
                async with cancel_on_disconnect(scope):
                    client.put(DISCONNECT)
                    await asyncio.Event().wait()
            except BaseException as error:
                seen.append(type(error))
                raise

    client = Client(END)
    assert await client.status_of(app) == 499
    assert seen == [asyncio.CancelledError]


async def test_the_blocks_of_two_tasks_are_both_cancelled() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        async def work() -> None:
            async with cancel_on_disconnect(scope):
                await asyncio.Event().wait()

        await read(receive)
        results = await asyncio.gather(work(), work(), return_exceptions=True)
        assert [type(result) for result in results] == [ClientDisconnected] * 2
        await answer(send)

    client = Client(END, DISCONNECT)
    assert await client.status_of(app) == 200


async def test_a_block_ends_as_usual_and_a_cancellation_by_another_stays_one() -> None:
    client, app = Client(END), Waiting()
    task = client.ask(app)
    await settled()
    app.goes_on.set()
    await ended(task)
    assert (client.answer.status, client.answer.body) == (200, b"done")
    client, app = Client(END), Waiting()
    task = client.ask(app)
    await settled()
    task.cancel()
    client.put(DISCONNECT)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not app.cancelled

    async def both(scope: Scope, receive: Receive, send: Send) -> None:
        await read(receive)
        async with cancel_on_disconnect(scope):
            try:
                await asyncio.Event().wait()
            finally:
                task.cancel()  # By another, at the same time.

    client = Client(END, DISCONNECT)
    task = client.ask(both)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert client.sent == []


async def test_another_exception_of_the_block_is_not_replaced() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await read(receive)
        async with cancel_on_disconnect(scope):
            try:
                await asyncio.Event().wait()
            finally:
                raise LookupError

    client = Client(END, DISCONNECT)
    with pytest.raises(LookupError):
        await ended(client.ask(app))


async def test_a_response_that_has_begun_is_left_to_the_framework() -> None:
    """A block that begins behind its end reads nothing."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await read(receive)
        async with cancel_on_disconnect(scope):
            await send({"type": "http.response.start", "status": 200, "headers": []})
            client.put(DISCONNECT)
            await settled()
            assert await receive() == DISCONNECT
        async with cancel_on_disconnect(scope):
            await send({"type": "http.response.body", "body": b"done"})

    async def whole(scope: Scope, receive: Receive, send: Send) -> None:
        await read(receive)
        await answer(send)
        async with cancel_on_disconnect(scope):
            await settled()

    client = Client(END)
    await ended(client.ask(app))
    assert client.answer.body == b"done"
    client = Client(END, DISCONNECT)
    await ended(client.ask(whole))
    assert client.reads == 1


async def test_an_application_that_awaits_messages_itself_gets_them_all() -> None:
    """As Quart and Django do: they cancel the handler themselves."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        reading = asyncio.create_task(read(receive))
        await settled()
        async with cancel_on_disconnect(scope):
            client.put(PART, END)
            await settled()
            assert client.reads == 2
        assert await reading == [b"part", b"end"]
        await answer(send)

    client = Client()
    assert await client.status_of(app) == 200


async def test_a_server_that_fails_to_receive_leaves_the_block_alone() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        async with cancel_on_disconnect(scope):
            await settled()
            with pytest.raises(LookupError):
                await receive()
        await answer(send)

    client = Client()
    client.put(LookupError(), LookupError())
    assert await client.status_of(app) == 200


async def test_a_layer_of_starlette_between_gate_and_handler_changes_nothing() -> None:
    class Layer(BaseHTTPMiddleware):
        async def dispatch(self, request: Request, call_next: Any) -> Response:
            response: Response = await call_next(request)
            return response

    async def complete(request: Request) -> Response:
        body = await request.json()
        async with cancel_on_disconnect(request):
            assert not await request.is_disconnected()
            client.put(DISCONNECT)
            await asyncio.Event().wait()
        return JSONResponse(body)

    routes = [Route("/x", complete, methods=["POST"])]
    client = Client({"type": "http.request", "body": b"{}", "more_body": False})
    await ended(client.ask(Starlette(routes=routes, middleware=[Middleware(Layer)])))
    assert (client.answer.status, client.answer.code) == (499, "CLIENT_DISCONNECTED")


async def test_the_hold_around_a_block_is_settled() -> None:
    tokens = Limit("tokens", "100/minute")

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await read(receive)
        async with client.bench.gate.hold("org_1", {tokens: 90}) as hold:
            hold.used(7)
            async with cancel_on_disconnect(scope):
                await asyncio.Event().wait()

    client = Client(END)
    task = client.ask(app)
    await settled()
    (usage,) = await client.bench.gate.holds.usage("org_1")
    assert usage.held == 90
    client.put(DISCONNECT)
    await ended(task)
    (usage,) = await client.bench.gate.holds.usage("org_1")
    assert (usage.used, usage.held) == (7, 0)


async def test_a_request_without_a_gate_and_a_websocket_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="a gate has admitted"):
        cancel_on_disconnect(http_scope())
    bench = Bench()
    closed: list[Message] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        with pytest.raises(ConfigurationError, match="an HTTP request"):
            cancel_on_disconnect(scope)
        await send({"type": "websocket.close"})

    async def send(message: Message) -> None:
        closed.append(message)

    client = Client({"type": "websocket.connect"})
    scope = websocket_scope("/x", key=bench.key())
    await GateMiddleware(app, bench.gate)(scope, client.receive, send)
    assert closed


# --- on real servers ----------------------------------------------------------------------------

FOLDER = Path(__file__).parent
SERVERS = ("uvicorn-httptools", "hypercorn", "granian-asgi")
FRAMEWORKS = ("asgi", "starlette", "fastapi", "litestar", "quart", "django")
READS_NO_BODY = ("starlette", "litestar")


def leaving(running: Running, framework: str, body: str) -> socket.socket:
    """Send a request on a connection that the test closes."""
    url = httpx.URL(running.url)
    method = "POST" if body else "GET"
    connection = socket.create_connection((url.host, url.port or 80), SECONDS)
    connection.sendall(
        f"{method} /{framework}/complete HTTP/1.1\r\nHost: localhost\r\n"
        f"Authorization: Bearer {running.printed[framework]}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
    )
    return connection


@pytest.mark.parametrize("server", SERVERS)
def test_the_units_of_a_waiting_handler_are_free_once_its_client_has_left(server: str) -> None:
    with served(server, "waiting_service:app", FOLDER) as running:
        for framework in FRAMEWORKS:
            leave(running, framework, json.dumps({framework: 1}))
        for framework in READS_NO_BODY:
            leave(running, framework, "")


def leave(running: Running, framework: str, body: str) -> None:
    def usage() -> dict[str, int]:
        told: dict[str, int] = httpx.get(f"{running.url}/usage/{framework}", timeout=60).json()
        return told

    before = usage()
    assert (before["held"], before["waiting"]) == (0, 0), framework
    with leaving(running, framework, body) as connection:
        until(lambda: usage()["waiting"] == 1 or select([connection], [], [], 0)[0])
        told = usage()
        assert told["waiting"] == 1, (framework, connection.recv(4096))
        assert told["held"] == 90, framework
    until(lambda: usage()["held"] == 0)
    assert usage() == {"used": before["used"] + 1, "held": 0, "waiting": 0}, framework
