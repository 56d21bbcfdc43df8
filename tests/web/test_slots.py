"""Slots that requests hold: by a rule before any application, and at the endpoints of each face."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Annotated, Any
from wsgiref.types import StartResponse, WSGIEnvironment

import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket
from werkzeug.test import Client

from lockgate import ConfigurationError, Principal, Rule, run
from lockgate.asgi import GateMiddleware
from lockgate.core.access_rule import both
from lockgate.errors import SlotLost
from lockgate.fastapi import requires as fastapi_requires
from lockgate.options import StoreOptions
from lockgate.services.reservations import renewed_block, slots
from lockgate.starlette import requires
from lockgate.wsgi import GateMiddleware as WsgiMiddleware
from tests.patience import skipping

from .applications import ADAPTERS, protected
from .driving import Answer, Bench, Line, ask, body_messages, http_scope, websocket_scope

JOB = Rule("jobs:write", slot=True)
RULES = {"POST /jobs": JOB}
Holder = Annotated[Principal, fastapi_requires("jobs:write", slot=True)]
TAKEN = b'{"error":"Too many jobs at a time: 1 of 1 slots are taken; try again in 10 s.",' + (
    b'"code":"CONCURRENT_LIMIT_EXCEEDED","retryAfter":10,'
    b'"limits":{"type":"concurrent","limit":1,"used":1}}'
)


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Renew leases fifty times a second, so that their loss is noticed at once."""
    for module in (renewed_block, slots):
        monkeypatch.setattr(module, "BEATS", 50 * StoreOptions().slot_lease)


def held(bench: Bench) -> int:
    return len(run(bench.gate.slots.held("org_1")))


def take(bench: Bench) -> None:
    run(bench.gate.slots.acquire("org_1", "of somebody else"))


# --- under ASGI ---------------------------------------------------------------------------------


class Working:
    """An ASGI application that sends a body in two parts, and says when it is between them."""

    def __init__(self) -> None:
        self.halfway = asyncio.Event()
        self.go_on = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"one", "more_body": True})
        self.halfway.set()
        await self.go_on.wait()
        await send({"type": "http.response.body", "body": b"two"})


async def test_a_rule_holds_a_slot_until_the_last_byte(bench: Bench) -> None:
    working = Working()
    app = GateMiddleware(working, bench.gate, RULES)
    key = bench.key()
    first = asyncio.create_task(ask(app, "POST", "/jobs", key=key))
    await working.halfway.wait()
    assert held(bench) == 1
    refused = await ask(app, "POST", "/jobs", key=key)
    assert (refused.status, refused.body) == (429, TAKEN)
    assert refused.one("retry-after") == "10"
    assert refused.one("cache-control") == "no-store"
    assert refused.rate == (1000, 998, refused.rate[2])  # it counted as a request
    working.go_on.set()
    assert (await first).body == b"onetwo"
    assert held(bench) == 0
    assert (await ask(app, "POST", "/jobs", key=key)).status == 200
    assert [event.name for event in bench.told] == ["slot_refused"]


@pytest.mark.parametrize(("slot", "held_in_the_background"), [(True, 0), ("background", 1)])
@pytest.mark.parametrize("layered", [False, True])
async def test_a_slot_is_free_with_the_last_byte_or_after_background_tasks(
    bench: Bench, slot: Any, held_in_the_background: int, layered: bool
) -> None:
    seen: list[int] = []

    async def work() -> None:
        seen.append(held(bench))

    async def job(request: Request) -> Response:
        seen.append(held(bench))
        return PlainTextResponse("done", background=BackgroundTask(work))

    async def hand_on(request: Request, call_next: Any) -> Any:
        return await call_next(request)

    app = Starlette(routes=[Route("/jobs", job, methods=["POST"])])
    if layered:  # Which sends from a task of its own.
        app.add_middleware(BaseHTTPMiddleware, dispatch=hand_on)
    guarded = GateMiddleware(app, bench.gate, {"POST /jobs": Rule("jobs:write", slot=slot)})
    for _ in range(2):
        assert (await ask(guarded, "POST", "/jobs", key=bench.key())).status == 200
    assert seen == [1, held_in_the_background] * 2
    assert held(bench) == 0
    assert bench.names() == []


async def test_a_background_task_runs_to_its_end_after_its_slot_is_free(bench: Bench) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})
        skip(2 * StoreOptions().slot_lease)  # Longer than the lease that was given back.
        await asyncio.sleep(0.1)
        assert scope["lockgate.entry"].slot.lost
        ended.set()

    ended = asyncio.Event()
    guarded = GateMiddleware(app, bench.gate, RULES)
    with skipping() as skip:
        assert (await ask(guarded, "POST", "/jobs", key=bench.key())).body
    assert ended.is_set()
    assert bench.names() == []


@pytest.mark.parametrize("slot", ["response", 1.5, None])
def test_another_word_for_a_slot_is_refused(slot: Any) -> None:
    with pytest.raises(ConfigurationError, match="'background'"):
        Rule(slot=slot)
    with pytest.raises(ConfigurationError, match="no slot"):
        Rule(public=True, slot=True)
    # Of two rules the slot that is held longer counts.
    assert both(Rule("jobs:write", slot=True), Rule("jobs:read", slot="background")).background
    assert Rule(slot="background").includes(Rule(slot=True))
    assert not Rule(slot=True).includes(Rule(slot="background"))


async def test_an_exception_and_a_cancellation_give_the_slot_back(bench: Bench) -> None:
    async def failing(scope: Scope, receive: Receive, send: Send) -> None:
        assert held(bench) == 1
        raise ZeroDivisionError

    key = bench.key()
    with pytest.raises(ZeroDivisionError):
        await ask(GateMiddleware(failing, bench.gate, RULES), "POST", "/jobs", key=key)
    assert held(bench) == 0
    working = Working()
    going = asyncio.create_task(
        ask(GateMiddleware(working, bench.gate, RULES), "POST", "/jobs", key=key)
    )
    await working.halfway.wait()
    assert held(bench) == 1
    going.cancel()
    with pytest.raises(asyncio.CancelledError):
        await going
    assert held(bench) == 0


async def test_the_slot_of_a_disconnected_client_is_freed_L7(bench: Bench) -> None:
    """As Starlette does it: the body is cancelled, within a scope that cancels every await."""
    begun = asyncio.Event()

    async def chunks() -> AsyncIterator[bytes]:
        begun.set()
        yield b"one"
        await asyncio.sleep(60)

    async def stream(request: Request) -> Response:
        return StreamingResponse(chunks())

    async def receive() -> Any:
        if line.incoming:
            return await line.receive()
        await begun.wait()
        return {"type": "http.disconnect"}

    app = Starlette(routes=[Route("/jobs", stream, methods=["POST"])])
    line = Line(body_messages([b""]))
    headers = [("authorization", f"Bearer {bench.key()}")]
    scope = {**http_scope("POST", "/jobs", headers=headers), "asgi": {"spec_version": "2.3"}}
    await GateMiddleware(app, bench.gate, RULES)(scope, receive, line.send)
    assert begun.is_set()
    assert held(bench) == 0


async def lose(bench: Bench) -> None:
    """Take the slot away, and see the holder notice."""
    (lease,) = await bench.gate.slots.held("org_1")
    await bench.gate.slots.release("org_1", lease.job, lease.owner)


@pytest.mark.usefixtures("hurried")
async def test_a_job_that_loses_its_slot_is_stopped() -> None:
    """A response that has begun is broken off, and a WebSocket closed with 1013."""
    bench = Bench()
    begins = False

    async def endless(scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["lockgate.entry"].slot.lost is False
        if scope["type"] == "websocket":
            await send({"type": "websocket.accept"})
        elif begins:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        await lose(bench)
        await asyncio.sleep(60)

    app, key = GateMiddleware(endless, bench.gate, {**RULES, "GET /live": JOB}), bench.key()
    answer = await ask(app, "POST", "/jobs", key=key)
    assert (answer.status, answer.code) == (503, "SLOT_LOST")
    assert answer.all("retry-after") == []
    assert answer.json()["retryAfter"] == 1
    assert answer.rate == (1000, 999, answer.rate[2])
    assert bench.names() == ["slot_lost"]
    begins = True
    with pytest.raises(SlotLost):
        await ask(app, "POST", "/jobs", key=key)
    line = Line([{"type": "websocket.connect"}])
    await app(websocket_scope("/live", key=key), line.receive, line.send)
    assert line.sent[-1] == {"type": "websocket.close", "code": 1013, "reason": "SLOT_LOST"}


async def test_a_gate_within_a_gate_holds_one_slot(bench: Bench) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        assert held(bench) == 1
        await PlainTextResponse("done")(scope, receive, send)

    key = bench.key()
    for outer, inner in ((RULES, RULES), ({}, RULES), (RULES, {})):
        nested = GateMiddleware(GateMiddleware(app, bench.gate, inner), bench.gate, outer)
        answer = await ask(nested, "POST", "/jobs", key=key)
        assert (answer.status, answer.rate[0]) == (200, 1000)
        assert held(bench) == 0
    take(bench)
    nested = GateMiddleware(GateMiddleware(app, bench.gate, RULES), bench.gate, {})
    refused = await ask(nested, "POST", "/jobs", key=key)
    assert (refused.status, refused.body, refused.rate[0]) == (429, TAKEN, 1000)


async def test_shadow_mode_takes_no_slots(bench: Bench) -> None:
    working = Working()
    working.go_on.set()
    take(bench)
    app = GateMiddleware(working, bench.gate, RULES, shadow="all")
    assert (await ask(app, "POST", "/jobs", key=bench.key())).status == 200


async def test_a_websocket_holds_a_slot(bench: Bench) -> None:
    async def socket(websocket: WebSocket) -> None:
        assert held(bench) == 1
        await websocket.accept()
        await websocket.close()

    app = GateMiddleware(
        Starlette(routes=[WebSocketRoute("/live", socket)]), bench.gate, {"GET /live": JOB}
    )
    line = Line([{"type": "websocket.connect"}])
    await app(websocket_scope("/live", key=bench.key()), line.receive, line.send)
    assert [m["type"] for m in line.sent] == ["websocket.accept", "websocket.close"]
    assert held(bench) == 0
    take(bench)
    line = Line([{"type": "websocket.connect"}])
    await app(websocket_scope("/live", key=bench.key()), line.receive, line.send)
    assert (Answer(line.sent).status, Answer(line.sent).body) == (429, TAKEN)


# --- under WSGI ---------------------------------------------------------------------------------


def by_wsgi(bench: Bench, app: Any) -> Client:
    return Client(WsgiMiddleware(app, bench.gate, RULES))


def bearer(bench: Bench, *scopes: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {bench.key(*scopes)}"}


def at_once(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    assert environ["lockgate.entry"].slot.lost is False
    start_response("200 OK", [])
    return iter([b"one", b"two"])


def late(environ: WSGIEnvironment, start_response: StartResponse) -> Iterator[bytes]:
    start_response("200 OK", [])
    yield b"one"
    yield b"two"


@pytest.mark.parametrize("app", [at_once, late])
def test_a_body_holds_its_slot_until_it_is_closed(bench: Bench, app: Any) -> None:
    headers = bearer(bench)
    client = by_wsgi(bench, app)
    answer = client.post("/jobs", headers=headers, buffered=False)
    assert next(answer.iter_encoded()) == b"one"
    assert held(bench) == 1
    refused = client.post("/jobs", headers=headers)
    assert (refused.status_code, refused.data) == (429, TAKEN)
    assert refused.headers["x-ratelimit-remaining"] == "998"
    answer.close()
    assert held(bench) == 0


def test_a_failing_wsgi_application_frees_its_slot(bench: Bench) -> None:
    def failing(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        raise ZeroDivisionError

    def failing_late(environ: WSGIEnvironment, start_response: StartResponse) -> Iterator[bytes]:
        start_response("200 OK", [])
        yield b"one"
        raise ZeroDivisionError

    headers = bearer(bench)
    with pytest.raises(ZeroDivisionError):
        by_wsgi(bench, failing).post("/jobs", headers=headers)
    assert held(bench) == 0
    answer = by_wsgi(bench, failing_late).post("/jobs", headers=headers, buffered=False)
    with pytest.raises(ZeroDivisionError):
        list(answer.iter_encoded())
    answer.close()
    assert held(bench) == 0


@pytest.mark.usefixtures("hurried")
def test_a_wsgi_job_that_has_lost_its_slot_is_refused() -> None:
    bench = Bench()

    def checking(environ: WSGIEnvironment, start_response: StartResponse) -> Iterator[bytes]:
        run(lose(bench))
        while not environ["lockgate.entry"].slot.lost:
            pass
        environ["lockgate.entry"].slot.check()
        yield b""

    answer = by_wsgi(bench, checking).post("/jobs", headers=bearer(bench))
    assert (answer.status_code, answer.get_json()["code"]) == (503, "SLOT_LOST")
    assert answer.headers["x-ratelimit-limit"] == "1000"
    assert bench.names() == ["slot_lost"]


# --- at the endpoints ---------------------------------------------------------------------------


@pytest.mark.parametrize("framework", ADAPTERS)
def test_an_endpoint_holds_a_slot(framework: str) -> None:
    """Also where a rule for its path asks for one: then it is the same. All refuse alike (G6)."""
    bench = Bench()

    async def hold(_: Principal) -> dict[str, str]:
        assert held(bench) == 1
        return {}

    make = {"view": hold, "slot": True, "cost": 1}
    ruled = {"GET /models": Rule("models:read", slot=True)}
    good = bearer(bench)
    _, ask_by_rule = protected(framework, bench.gate, make=make, rules=ruled)
    _, ask = protected(framework, bench.gate, make=make)
    for asked in (ask_by_rule, ask, ask_by_rule, ask):
        assert asked("/models", good).status == 200
        assert held(bench) == 0
    taken = run(bench.gate.slots.acquire("org_1", "of somebody else"))
    refused = ask("/models", good)
    assert (refused.status, refused.text.encode()) == (429, TAKEN)
    assert (refused.headers["retry-after"], refused.remaining) == ("10", "995")
    assert refused.headers["cache-control"] == "no-store"
    assert ask("/models", bearer(bench, "jobs:read")).status == 403
    run(bench.gate.slots.release("org_1", "of somebody else", taken.owner))


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("framework", [name for name in ADAPTERS if name != "flask"])
def test_an_endpoint_that_loses_its_slot_is_stopped(framework: str) -> None:
    bench = Bench()

    async def losing(_: Principal) -> dict[str, str]:
        await lose(bench)
        await asyncio.sleep(60)
        raise AssertionError("it was stopped")

    make = {"view": losing, "slot": True, "cost": 1}
    _, ask = protected(framework, bench.gate, make=make)
    answer = ask("/models", bearer(bench))
    assert (answer.status, answer.code, answer.remaining) == (503, "SLOT_LOST", "999")
    assert bench.names() == ["slot_lost"]


def test_endpoints_in_threads_and_streams_hold_a_slot(bench: Bench) -> None:
    @requires("jobs:write", slot=True)
    def in_thread(request: Request) -> Response:
        assert held(bench) == 1
        return PlainTextResponse("done")

    async def chunks() -> AsyncIterator[bytes]:
        assert held(bench) == 1
        yield b"done"

    service = FastAPI()

    @service.post("/thread")
    def fastapi_in_thread(caller: Holder) -> str:
        assert held(bench) == 1
        return "done"

    @service.post("/stream")
    async def streaming(caller: Holder) -> Response:
        return StreamingResponse(chunks())

    plain = Starlette(routes=[Route("/thread", in_thread, methods=["POST"])])
    key = bench.key()
    for app, path in ((plain, "/thread"), (service, "/thread"), (service, "/stream")):
        guarded = GateMiddleware(app, bench.gate)
        assert asyncio.run(ask(guarded, "POST", path, key=key)).status == 200
        assert held(bench) == 0
