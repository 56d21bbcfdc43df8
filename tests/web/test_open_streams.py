"""Streams and WebSockets end with their key: on real servers, and message by message."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Barrier
from typing import Any

import httpx
import pytest
from starlette.types import Receive, Scope, Send
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect
from werkzeug.test import Client

from lockgate import Gate, MemoryStore, Registration, Rule, asgi, run, wsgi
from lockgate.core.timestamps import DAY
from lockgate.errors import KeyExpired, KeyRevoked, SessionInvalid
from lockgate.options import WebOptions
from lockgate.sessions import Session
from tests.examples.test_servers import served
from tests.patience import LEISURELY

from .driving import ORIGIN, SECRET, Bench, Line, body_messages, http_scope, websocket_scope

FOLDER = Path(__file__).parent


class Owner:
    """Makes and revokes keys in the store that a server in another process uses."""

    def __init__(self, url: str) -> None:
        self.gate = Gate(url, brand="acme")

    def key(self) -> tuple[str, Callable[[], None]]:
        """Make a key; return its headers' value, and a function that revokes it."""
        created = run(self.gate.keys.create("org_1", "a key", ["*"]))

        def revoke() -> None:
            run(self.gate.keys.revoke("org_1", created.key.id))

        return f"Bearer {created.text}", revoke


@pytest.fixture
def owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Owner]:
    url = f"sqlite:///{tmp_path}/keys.db?mode=rwc"
    monkeypatch.setenv("STREAMING_STORE", url)
    owner = Owner(url)
    yield owner
    run(owner.gate.close())


def read_until_cut(url: str, credential: str, revoke: Callable[[], object]) -> float:
    """Read a response that goes on until its key is revoked; return how long that took."""
    headers = {"authorization": credential}
    with httpx.Client(timeout=60) as client, client.stream("GET", url, headers=headers) as answer:
        assert answer.status_code == 200
        parts = answer.iter_raw()
        next(parts)
        revoke()
        revoked = time.monotonic()
        with pytest.raises(httpx.RemoteProtocolError):
            for _ in parts:
                pass
    return time.monotonic() - revoked


@pytest.mark.parametrize("server", ["uvicorn-httptools", "hypercorn"])
def test_the_streams_of_a_revoked_key_end_under_asgi(server: str, owner: Owner) -> None:
    credential, revoke = owner.key()
    begun = Barrier(4, revoke, timeout=60)
    with served(server, "streaming_service:app", FOLDER) as running, ThreadPoolExecutor(3) as pool:
        urls = [f"{running.url}/{path}" for path in ("parts", "silence", "download")]
        cut = [pool.submit(read_until_cut, url, credential, begun.wait) for url in urls]
        url = f"{running.url.replace('http', 'ws')}/socket"
        with connect(url, additional_headers={"authorization": credential}, **LEISURELY) as socket:
            assert socket.recv(60) == "one"
            begun.wait()
            with pytest.raises(ConnectionClosed) as closed:
                socket.recv(60)
        assert all(seconds.result() < 30 for seconds in cut)
        assert closed.value.rcvd is not None
        assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (1008, "KEY_REVOKED")


@pytest.mark.parametrize("server", ["gunicorn", "waitress"])
def test_the_streams_of_a_revoked_key_end_under_wsgi(server: str, owner: Owner) -> None:
    with served(server, "streaming_service:wsgi_app", FOLDER) as running:
        assert read_until_cut(f"{running.url}/parts", *owner.key()) < 30


# --- message by message -------------------------------------------------------------------------


class Endless:
    """An ASGI application with an endless response or WebSocket."""

    def __init__(self, *, whole: bool = False) -> None:
        self.whole = whole
        self.began = asyncio.Event()
        self.go_on = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.accept"})
        else:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            body = {"type": "http.response.body", "body": b"one", "more_body": not self.whole}
            await send(body)
        self.began.set()
        await self.go_on.wait()


async def open_stream(
    gate: Gate, scope: Scope, rules: Any = None, *, whole: bool = False
) -> tuple[Endless, asyncio.Task[None], Line]:
    endless = Endless(whole=whole)
    return endless, *await begin(asgi.GateMiddleware(endless, gate, rules), endless, scope)


async def begin(app: Any, endless: Endless, scope: Scope) -> tuple[asyncio.Task[None], Line]:
    kind = scope["type"]
    line = Line([{"type": "websocket.connect"}] if kind == "websocket" else body_messages([b""]))
    task = asyncio.create_task(app(scope, line.receive, line.send))
    await asyncio.wait_for(endless.began.wait(), 60)
    return task, line


def with_key(key: str) -> Scope:
    return http_scope("GET", "/x", headers=[("authorization", f"Bearer {key}")])


async def test_only_the_streams_of_the_revoked_key_end() -> None:
    bench = Bench()
    first, second = bench.key(), bench.key()
    keys = (first, second, first)
    running = [await open_stream(bench.gate, with_key(key)) for key in keys]
    bench.revoke(first)
    for index in (0, 2):
        await asyncio.wait_for(running[index][1], 60)
    endless, task, line = running[1]
    assert not task.done()
    endless.go_on.set()
    await task
    ended = [event for event in bench.told if event.name == "streams_ended"]
    assert [(event.fields["streams"], event.fields["code"]) for event in ended] == [
        (2, "KEY_REVOKED")
    ]
    assert bench.gate.streams is not None
    assert len(line.sent) == 2


@pytest.mark.parametrize("how", ["revoked", "expired"])
async def test_a_websocket_is_closed_by_the_reason_of_its_key(how: str) -> None:
    bench = Bench()
    created = await bench.gate.keys.create("org_1", "a key", ["*"], expires_in_days=1)
    scope = websocket_scope("/x", key=created.text)
    _, task, line = await open_stream(bench.gate, scope)
    if how == "revoked":
        await bench.gate.keys.revoke("org_1", created.key.id)
    else:
        bench.clock.now += 2 * 86_400_000_000
    await asyncio.wait_for(task, 60)
    code = KeyRevoked.code if how == "revoked" else KeyExpired.code
    assert line.sent[-1] == {"type": "websocket.close", "code": 1008, "reason": code}


async def test_a_background_task_continues_although_the_key_is_revoked() -> None:
    bench = Bench()
    key = bench.key()
    endless, task, _ = await open_stream(bench.gate, with_key(key), whole=True)
    bench.revoke(key)
    assert bench.gate.streams is not None
    await bench.gate.streams.look()
    assert not task.done()
    assert "streams_ended" not in {event.name for event in bench.told}
    endless.go_on.set()
    await task


async def test_a_cancellation_by_the_server_stays_one_and_a_swallowed_one_leaves_no_trace() -> None:
    bench = Bench()
    _, task, _ = await open_stream(bench.gate, with_key(bench.key()))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    endless, key = Endless(), bench.key()

    async def stubborn(scope: Scope, receive: Receive, send: Send) -> None:
        with suppress(asyncio.CancelledError):
            await endless(scope, receive, send)

    async def serve(scope: Scope, receive: Receive, send: Send) -> int:
        await asgi.GateMiddleware(stubborn, bench.gate)(scope, receive, send)
        task = asyncio.current_task()
        assert task is not None
        return task.cancelling()

    task, _ = await begin(serve, endless, with_key(key))
    bench.revoke(key)
    assert await asyncio.wait_for(task, 60) == 0  # type: ignore[func-returns-value]


@pytest.mark.parametrize("nested", [False, True])
async def test_a_response_without_a_first_part_ends_with_its_key(nested: bool) -> None:
    """Also where two gates watch it."""
    bench, began = Bench(), asyncio.Event()
    key = bench.key()

    async def endless(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        began.set()
        await asyncio.Event().wait()

    line = Line(body_messages([b""]))
    app = asgi.GateMiddleware(endless, bench.gate)
    app = asgi.GateMiddleware(app, bench.gate) if nested else app
    task = asyncio.ensure_future(app(with_key(key), line.receive, line.send))
    await asyncio.wait_for(began.wait(), 60)
    bench.revoke(key)
    await asyncio.wait_for(task, 60)
    assert [message["type"] for message in line.sent] == ["http.response.start"]
    assert [e.fields["streams"] for e in bench.told if e.name == "streams_ended"] == [1]


async def test_streams_outlive_their_key_with_end_streams_off() -> None:
    bench = Bench(web_options=WebOptions(end_streams=False))
    key = bench.key()
    endless, task, _ = await open_stream(bench.gate, with_key(key))
    bench.revoke(key)
    assert bench.gate.streams is None
    endless.go_on.set()
    await task


RULES = {"GET /x": Rule(accepts=("session",))}


class Agency:
    """A gate that registers agents, and one of them signed in."""

    def __init__(self) -> None:
        self.bench = Bench(registration=Registration(session_secrets=[SECRET]))
        self.gate = self.bench.gate
        assert self.gate.accounts is not None
        self.agents = self.gate.accounts.agents
        made = run(
            self.gate.accounts.register(
                agent_name="an agent", billing_email="ada@example.com", address="1.2.3.4"
            )
        )
        self.organization = made.account.organization
        self.token = made.dashboard_token
        self.cookie = self.sign_in()

    def sign_in(self) -> str:
        return run(self.agents.sign_in(self.token, address="1.2.3.4")).cookie

    def end(self, how: str) -> None:
        assert self.gate.accounts is not None
        if how == "signed out":
            run(self.agents.sign_out(self.organization))
        elif how == "claimed":
            ada = Session(None, "ada", "ada@example.com")
            run(self.gate.accounts.claims.claim(ada, self.organization))
        else:
            self.bench.clock.now += 8 * DAY


def with_session(cookie: str, kind: str = "http") -> Scope:
    headers = [("cookie", f"__session={cookie}"), ("origin", ORIGIN)]
    scope = http_scope if kind == "http" else websocket_scope
    return scope(path="/x", headers=headers)


@pytest.mark.parametrize("kind", ["http", "websocket"])
@pytest.mark.parametrize("how", ["signed out", "claimed", "expired"])
async def test_the_streams_of_an_agents_session_end_with_it(how: str, kind: str) -> None:
    agency = Agency()
    scope = with_session(agency.cookie, kind)
    _, task, line = await open_stream(agency.gate, scope, RULES)
    assert agency.gate.streams is not None
    await agency.gate.streams.look()
    await agency.gate.streams.look()
    assert not task.done()
    agency.end(how)
    await asyncio.wait_for(task, 60)
    if kind == "websocket":
        close = {"type": "websocket.close", "code": 1008, "reason": "SESSION_INVALID"}
        assert line.sent[-1] == close
    ended = [event.fields for event in agency.bench.told if event.name == "streams_ended"]
    wanted = {"organization": agency.organization, "id": None, "streams": 1}
    assert ended == [{**wanted, "code": "SESSION_INVALID"}]
    assert agency.cookie not in repr(agency.bench.told)


async def test_the_stream_of_another_agents_session_goes_on() -> None:
    agency = Agency()
    assert agency.gate.accounts is not None
    made = await agency.gate.accounts.register(
        agent_name="another", billing_email="bob@example.com", address="1.2.3.4"
    )
    other = (await agency.agents.sign_in(made.dashboard_token, address="1.2.3.4")).cookie
    cookies = (agency.cookie, other, agency.bench.session())
    running = [await open_stream(agency.gate, with_session(one), RULES) for one in cookies]
    agency.end("signed out")
    await asyncio.wait_for(running[0][1], 60)
    assert agency.gate.streams is not None
    await agency.gate.streams.look()
    for endless, task, _ in running[1:]:
        assert not task.done()
        endless.go_on.set()
        await task


def test_a_wsgi_stream_sends_no_part_after_its_credential_was_revoked() -> None:
    agency = Agency()
    key = agency.bench.key()

    def app(environ: Any, start_response: Any) -> Iterator[bytes]:
        start_response("200 OK", [])
        while True:
            yield b"part"

    rules = {"GET /x": Rule(accepts=("key", "session"))}
    client = Client(wsgi.GateMiddleware(app, agency.gate, rules), use_cookies=False)
    for headers, refusal in (
        ({"Cookie": f"__session={agency.cookie}"}, SessionInvalid),
        ({"Cookie": f"__session={agency.bench.session()}"}, None),
        ({"Authorization": f"Bearer {key}"}, KeyRevoked),
    ):
        answer = client.get("/x", headers=headers, buffered=False)
        parts = answer.iter_encoded()
        assert next(parts) == b"part"
        agency.end("signed out")
        if refusal is KeyRevoked:
            agency.bench.revoke(key)
        assert agency.gate.streams is not None
        run(agency.gate.streams.look())
        if refusal is None:
            assert next(parts) == b"part"
        else:
            with pytest.raises(refusal):
                next(parts)
        answer.close()


class Away(MemoryStore):
    """A store that does not answer about a key while it is away."""

    local_version = None
    away = False

    async def find(self, handle: str) -> Any:
        if self.away:
            raise OSError("gone")
        return await super().find(handle)


async def test_a_store_that_fails_is_asked_again_about_a_key() -> None:
    store = Away()
    bench = Bench(store=store)
    key = bench.key()
    _, task, _ = await open_stream(bench.gate, with_key(key))
    bench.revoke(key)
    assert bench.gate.streams is not None
    store.away = True
    await bench.gate.streams.look()
    assert not task.done()
    store.away = False
    await bench.gate.streams.look()
    await asyncio.wait_for(task, 60)
