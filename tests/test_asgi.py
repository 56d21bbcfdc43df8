"""The middleware before any ASGI application, message by message; tests/web holds the guard."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import trio
from litestar import Litestar, get
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Host, Mount, Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lockgate import PUBLIC, MemoryStore, Principal, Refusal, Rule, run
from lockgate.asgi import GateMiddleware
from lockgate.core.key_format import KeyFormat
from lockgate.core.ledger import Hit
from lockgate.core.timestamps import MINUTE
from lockgate.errors import ConfigurationError, NotFound, RateLimitExceeded, SlotLost
from lockgate.options import WebOptions
from lockgate.starlette import protect as starlette_protect
from lockgate.web.asgi_exchange import body_reader
from tests.stores.making import at_once

from .web.driving import RATE, Answer, Bench, Line, ask, body_messages, http_scope, websocket_scope


class Recorder:
    """An application that records admitted callers and answers 200."""

    def __init__(self, status: int = 200, headers: Any = ()) -> None:
        self.status = status
        self.headers = headers
        self.scopes: list[Scope] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scopes.append(scope)
        if scope["type"] != "http":
            return
        headers = {} if self.headers is None else {"headers": self.headers}
        await send({"type": "http.response.start", "status": self.status, **headers})
        await send({"type": "http.response.body", "body": b"hello"})


def replying(*messages: Message, error: Exception | None = None, reads: bool = True) -> ASGIApp:
    """Make an application that reads one message, sends these, and raises an error."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if reads:
            await receive()
        for message in messages:
            await send(message)
        if error is not None:
            raise error

    return app


def saying(text: str, reached: list[str]) -> Any:
    """Make an endpoint that records that it ran."""

    async def endpoint(_: Request) -> Response:
        reached.append(text)
        return PlainTextResponse(text)

    return endpoint


def behind(bench: Bench, app: ASGIApp, rules: Any = None, **fields: Any) -> GateMiddleware:
    return GateMiddleware(app, bench.gate, rules or {"GET /health": PUBLIC}, **fields)


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def app() -> Recorder:
    return Recorder()


# --- closed by default ----------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "/anything", "/healthx", "/health/x", ""])
async def test_g1_a_path_that_no_rule_names_needs_a_key(
    bench: Bench, app: Recorder, path: str
) -> None:
    guarded, key = behind(bench, app), bench.key("models:read")
    for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "X"):
        app.scopes.clear()
        assert (await ask(guarded, method, path)).status == 401
        assert app.scopes == []
        assert (await ask(guarded, method, path, key=key)).status == 200
        assert len(app.scopes) == 1


@pytest.mark.parametrize("method", ["POST", "PUT", "OPTIONS", "TRACE", "FOO", "get", "post"])
async def test_d31_a_method_that_no_rule_names_ends_at_the_gate(
    bench: Bench, app: Recorder, method: str
) -> None:
    """Authentication comes first, and the answer counts as the request that it was."""
    guarded, key = behind(bench, app), bench.key("*")
    for count, path in enumerate(("/health", "/health/"), 1):
        assert (await ask(guarded, method, path)).status == 401
        answer = await ask(guarded, method, path, key=key)
        assert (answer.status, answer.code) == (405, "METHOD_NOT_ALLOWED")
        assert answer.one("allow") == "GET, HEAD"
        assert (answer.rate[:2], app.scopes) == ((1000, 1000 - count), [])


@pytest.mark.parametrize("target", ["http://h/health", "x:/health", "health", "*", "h:80"])
async def test_d31_a_target_that_is_no_path_is_refused(
    bench: Bench, app: Recorder, target: str
) -> None:
    guarded = behind(bench, app)
    for path, raw in ((target, target.encode()), (target, None), ("/health", target.encode())):
        answer = await ask(guarded, path=path, raw_path=raw, key=bench.key("*"))
        assert (answer.status, answer.code) == (400, "VALIDATION_ERROR")
        assert (len(answer.rate), app.scopes) == (3, [])


async def test_a_public_route_is_open_and_counted_by_address(app: Recorder) -> None:
    bench = Bench(anonymous=2)
    guarded = behind(bench, app)
    answers = [await ask(guarded, path="/health") for _ in range(3)]
    assert [answer.status for answer in answers] == [200, 200, 429]
    assert [answer.rate[:2] for answer in answers] == [(2, 1), (2, 0), (2, 0)]
    assert answers[2].one("retry-after") == "60"
    assert (await ask(guarded, path="/health", client=("192.0.2.2", 1))).status == 200
    assert [scope["state"]["principal"] for scope in app.scopes] == [None] * 3


async def test_the_application_gets_the_principal(bench: Bench, app: Recorder) -> None:
    scope = http_scope(headers=[("authorization", f"Bearer {bench.key('jobs:*')}")])
    scope["state"] = {"from lifespan": 1}
    line = Line(body_messages([]))
    await behind(bench, app)(scope, line.receive, line.send)
    (seen,) = app.scopes
    principal = seen["user"]
    assert seen["state"] == {"from lifespan": 1, "principal": principal}
    assert seen["auth"] is principal
    assert principal.organization == "org_1"
    assert "jobs:read" in principal.scopes


async def test_the_cost_of_a_rule_is_charged_also_for_a_key_that_the_process_knows_D39() -> None:
    bench = Bench(rpm=10)
    rules = {"POST /big": Rule("models:write", cost=4), "GET /small": Rule()}
    rules["GET /huge"] = Rule(cost=11, accepts=("key", "session"))
    guarded, key = behind(bench, Recorder(), rules), bench.key()
    for _ in range(2):
        for by_key, session in ((key, None), (None, bench.session())):
            refused = await ask(guarded, "GET", "/huge", key=by_key, session=session)
            assert (refused.status, refused.one("retry-after")) == (429, "60")
            assert "cost 11 is never admitted" in refused.json()["error"]
            assert refused.json()["limits"] == {"type": "minute", "limit": 10, "used": 0}
    for method, path, status, left in (
        ("POST", "/big", 200, 6),
        ("GET", "/small", 200, 5),
        ("POST", "/big", 200, 1),
        ("POST", "/big", 429, 1),
        ("GET", "/small", 200, 0),
    ):
        answer = await ask(guarded, method, path, key=key)
        assert (answer.status, answer.rate[:2]) == (status, (10, left))


# --- methods and paths that are spelled in other ways (G1) -----------------------------------


@pytest.mark.parametrize("method", ["POST", "post", "Post", "pOsT"])
async def test_g1_no_spelling_of_a_method_needs_less(
    bench: Bench, app: Recorder, method: str
) -> None:
    """h11 hands on a method in the case in which it came, and frameworks differ in reading it."""
    guarded = behind(bench, app, {"POST /admin": "account:write"})
    answer = await ask(guarded, method, "/admin", key=bench.key("models:read"))
    assert (answer.status, app.scopes) == (403 if method == "POST" else 405, [])


@pytest.mark.parametrize(
    ("path", "raw"),
    [
        ("//health", b"//health"),
        ("/./health", b"/./health"),
        ("/x/../health", b"/x/../health"),
        ("/health", b"/x%2f..%2fhealth"),
        ("/health\n", b"/health%0a"),
        ("/health\0", b"/health%00"),
        ("", b""),
        ("/HEALTH", b"/HEALTH"),
        ("/health;x", b"/health;x"),
        ("/health%2e", b"/health%252e"),
    ],
)
async def test_g1_no_other_spelling_is_public(
    bench: Bench, app: Recorder, path: str, raw: bytes
) -> None:
    answer = await ask(behind(bench, app), path=path, raw_path=raw)
    assert (answer.status, app.scopes) == (401, [])


async def test_the_root_path_is_no_part_of_a_rule(bench: Bench) -> None:
    guarded = behind(bench, Recorder())
    for root, path, status in (
        ("/api", "/api/health", 200),
        ("/api", "/health", 200),
        ("/", "/health", 200),
        ("/api", "/apihealth", 401),
        ("/api", "/api", 401),
        ("/api", "/api//health", 401),
        ("/api", "/api/api/health", 401),
        ("/health", "/health", 401),
    ):
        assert (await ask(guarded, path=path, root_path=root)).status == status, (root, path)


@pytest.mark.parametrize(
    ("root", "path"),
    [
        ("/shop", "/static/shop/admin"),
        ("/shop", "/shopadmin"),
        ("/shop", "/any/shop/admin"),
        ("/shop/", "/shop/admin"),
        ("/shop", "/shop/admin"),
        ("/é", "/static/é/admin"),
    ],
)
async def test_g1_a_mount_prefix_inside_a_path_opens_no_route(
    bench: Bench, root: str, path: str
) -> None:
    """Litestar goes on behind it wherever it finds it first, other frameworks do not."""
    reached: list[str] = []

    @get("/admin")
    async def admin() -> None:
        reached.append("admin")

    @get("/static/{name:path}")
    async def static() -> None:
        reached.append("static")

    service: Any = Litestar([admin, static], openapi_config=None, logging_config=None)
    rules = {"GET /admin": Rule("account:write"), "GET /static/{name:path}": PUBLIC}
    app = GateMiddleware(service, bench.gate, rules)
    assert (await ask(app, path=path, root_path=root)).status == 401
    lacking = await ask(app, path=path, root_path=root, key=bench.key("jobs:read"))
    assert (lacking.status, lacking.code, reached) == (403, "INSUFFICIENT_SCOPE", [])
    await ask(app, path=path, root_path=root, key=bench.key("account:write"))
    assert reached == ["admin"]
    assert (await ask(app, path="/static/x", root_path=root)).status == 200


@pytest.mark.parametrize("path", ["/v1/health", "/v1/secret", "/v1//health", "/v1", "/health"])
async def test_a_guarded_application_can_be_mounted(bench: Bench, app: Recorder, path: str) -> None:
    outer = Starlette(routes=[Mount("/v1", behind(bench, app))])
    answer = await ask(outer, path=path)
    assert answer.status == {"/v1/health": 200, "/health": 404, "/v1": 307}.get(path, 401)
    assert len(app.scopes) == (path == "/v1/health")


@pytest.mark.parametrize("prefix", [b"/api", b"/%61pi", b"/ap%69"])
async def test_d31_an_encoded_slash_below_a_prefix_is_held_to_its_own_reading(
    bench: Bench, app: Recorder, prefix: bytes
) -> None:
    """An application that routes by the path on the wire takes a%2fb for one segment."""
    guarded = behind(bench, app, {"GET /files/{name}": "upload:read", "GET /{p:path}": PUBLIC})
    raw = prefix + b"/files/a%2fb"
    answer = await ask(guarded, path="/api/files/a/b", root_path="/api", raw_path=raw)
    assert (answer.status, app.scopes) == (401, [])


@pytest.mark.parametrize(
    ("template", "host"),
    [("{shop:int}.example", "x.example"), ("{shop:str}.example", "a.b.example")],
)
@pytest.mark.parametrize("weak", [True, False])
async def test_d31_a_converter_in_a_host_opens_no_other_route(
    bench: Bench, template: str, host: str, weak: bool
) -> None:
    reached: list[str] = []
    shop = Router([Route("/orders", saying("shop", reached))])
    app = Starlette(routes=[Host(template, shop), Route("/orders", saying("main", reached))])
    public: Rule | str = PUBLIC if weak else "account:write"
    guarded = behind(
        bench, app, {"GET {shop}.example/orders": public, "GET /orders": "models:read"}
    )
    key = None if weak else bench.key("models:read")
    answer = await ask(guarded, path="/orders", key=key, headers=[("host", host)])
    assert answer.status in (401, 403, 404)
    assert reached == []
    of_its_own = await ask(guarded, path="/orders", headers=[("host", "7.example")])
    assert of_its_own.status == (200 if weak else 401)


# --- preflights and HEAD --------------------------------------------------------------------

PREFLIGHT = [("origin", "https://elsewhere.example"), ("access-control-request-method", "PUT")]


@pytest.mark.parametrize("health", ["/health", "api.example/health"])
async def test_d31_a_preflight_ends_at_the_gate_and_counts_by_address(
    app: Recorder, health: str
) -> None:
    """What only resembles one is refused."""
    bench = Bench(anonymous=5)
    guarded = behind(bench, app, {f"GET {health}": PUBLIC})
    answer = await ask(guarded, "OPTIONS", "/closed", headers=PREFLIGHT)
    assert (answer.status, answer.body, answer.rate[:2]) == (204, b"", (5, 4))
    assert not any(name.startswith("access-control-") for name, _ in answer.headers)
    for headers in ([], PREFLIGHT[:1], PREFLIGHT[1:]):
        assert (await ask(guarded, "OPTIONS", "/closed", headers=headers)).status == 401
    for method in ("GET", "options"):
        assert (await ask(guarded, method, "/closed", headers=PREFLIGHT)).status == 401
    assert app.scopes == []


async def test_a_preflight_for_an_operation_is_answered_at_a_spent_address_D24(
    app: Recorder,
) -> None:
    bench = Bench(anonymous=5)
    guarded, key = behind(bench, app), "/api/v1/api-keys/3f1c7d1e-6a50-4f0e-9f8a-2f9b8f2f0a11"

    async def ask_for(method: str, path: str) -> Answer:
        asked = [PREFLIGHT[0], ("access-control-request-method", method)]
        return await ask(guarded, "OPTIONS", path, headers=asked)

    assert (await ask_for("DELETE", key)).rate[:2] == (5, 5)
    for _ in range(5):
        await ask(guarded, "OPTIONS", "/closed", headers=PREFLIGHT)
    for method, path, status in (
        ("DELETE", key, 204),
        ("GET", "/api/v1/api-keys", 204),
        ("DELETE", "/closed", 429),
        ("DELETE", "/api/v1/models", 429),
    ):
        assert (await ask_for(method, path)).status == status
    assert (await ask(guarded, "OPTIONS", key)).status == 401
    assert app.scopes == []


@pytest.mark.parametrize("place", ["around", "within", "mounted"])
async def test_d31_an_applications_cors_middleware_answers_a_preflight(
    bench: Bench, place: str
) -> None:
    """And no handler sees it: here a mounted application would answer any path."""
    raw = Recorder()
    inner: ASGIApp
    origin = dict(PREFLIGHT)["origin"]
    allowing: Any = {"allow_origins": [origin], "allow_methods": ["PUT"]}
    layer = Middleware(CORSMiddleware, **allowing)
    if place == "around":
        inner = CORSMiddleware(raw, **allowing)
    elif place == "within":
        inner = Starlette(routes=[Mount("/jobs", raw)], middleware=[layer])
    else:
        part = Starlette(routes=[Mount("/", raw)], middleware=[layer])
        inner = Starlette(routes=[Mount("/jobs", part), Mount("/other", raw)])
    guarded = behind(bench, inner)
    answer = await ask(guarded, "OPTIONS", "/jobs/1", headers=PREFLIGHT)
    assert (answer.status, answer.one("access-control-allow-origin")) == (200, origin)
    assert len(answer.rate) == 3
    elsewhere = await ask(guarded, "OPTIONS", "/other/1", headers=PREFLIGHT)
    assert elsewhere.status == (204 if place == "mounted" else 200)
    assert raw.scopes == []


async def test_a_refused_head_has_every_header_and_no_body(bench: Bench) -> None:
    head = await ask(behind(bench, Recorder()), "HEAD", "/closed")
    get = await ask(behind(bench, Recorder()), "GET", "/closed")
    assert (head.body, head.status) == (b"", 401)
    assert head.one("content-length") == str(len(get.body))
    assert {name for name, _ in head.headers} == {name for name, _ in get.headers}


# --- headers on every response (G2) ---------------------------------------------------------


CACHED = (b"cache-control", b"public, max-age=3600")
NO_STORE = ("cache-control", "no-store")


@pytest.mark.parametrize(
    ("status", "theirs", "left"),
    [
        (200, [], []),
        (200, [[b"a", b"b"], (b"content-length", b"5")], [("a", "b"), ("content-length", "5")]),
        (
            200,
            [(b"set-cookie", b"a=b"), (b"set-cookie", b"c=d")],
            [("set-cookie", "a=b"), ("set-cookie", "c=d")],
        ),
        (
            200,
            [
                [b"x-ratelimit-limit", b"666"],
                (b"x-ratelimit-remaining", b"666"),
                (b"X-RateLimit-Remaining", b"667"),
                [b"x-ratelimit-reset", b"666"],
            ],
            [],
        ),
        (401, [(b"Cache-Control", b"public")], [NO_STORE]),
        (403, [CACHED], [NO_STORE]),
        (429, [CACHED, (b"retry-after", b"7")], [("retry-after", "7"), NO_STORE]),
        *(
            (status, [CACHED], [("cache-control", CACHED[1].decode())])
            for status in (200, 404, 500)
        ),
    ],
)
async def test_g2_d38_each_rate_header_is_there_once_beside_the_applications_own(
    status: int, theirs: Any, left: list[tuple[str, str]]
) -> None:
    """Names come in any case and, as here, headers may come in an iterable that ends."""
    bench = Bench(rpm=9)
    answer = await ask(behind(bench, Recorder(status, iter(theirs))), key=bench.key())
    assert (answer.status, answer.rate[:2]) == (status, (9, 8))
    assert [header for header in answer.headers if header[0] not in RATE] == left


@pytest.mark.parametrize("rpm", [1000, None])
async def test_no_limit_no_header_not_even_the_applications(rpm: int | None) -> None:
    bench = Bench(rpm=rpm)
    for headers in (None, [(b"x-ratelimit-limit", b"666")]):
        answer = await ask(behind(bench, Recorder(204, headers)), key=bench.key())
        assert [name for name in RATE if answer.all(name)] == list(RATE if rpm else ())


START: Message = {"type": "http.response.start", "status": 200, "headers": []}


async def test_a_refusal_of_the_application_is_answered_and_headed(bench: Bench) -> None:
    guarded = behind(bench, replying(error=NotFound()))
    answer = await ask(guarded, key=bench.key())
    assert (answer.status, answer.code, answer.rate[:2]) == (404, "NOT_FOUND", (1000, 999))
    assert answer.kinds == ["http.response.start", "http.response.body"]


async def broken(bench: Bench, app: ASGIApp, error: type[Exception]) -> Answer:
    """Return what an application sent before it raised an error to the server."""
    line = Line(body_messages([]))
    scope = http_scope(headers=[("authorization", f"Bearer {bench.key()}")])
    with pytest.raises(error):
        await behind(bench, app)(scope, line.receive, line.send)
    return Answer(line.sent)


async def test_g2_a_crash_of_the_application_carries_the_headers(bench: Bench) -> None:
    async def crash(_: Request) -> Response:
        raise ZeroDivisionError

    answer = await broken(bench, Starlette(routes=[Route("/", crash)]), ZeroDivisionError)
    assert (answer.status, answer.rate[:2]) == (500, (1000, 999))


async def test_g2_a_refusal_after_the_start_is_the_servers_affair(bench: Bench) -> None:
    """There is no second response."""
    app = replying(START, error=NotFound())
    for each in (app, behind(bench, app)):
        answer = await broken(bench, each, NotFound)
        assert (answer.status, len(answer.messages)) == (200, 1)


async def test_other_messages_pass_unchanged(bench: Bench) -> None:
    extra: list[Message] = [
        {**START, "trailers": True},
        {"type": "http.response.pathsend", "path": "/x"},
        {"type": "http.response.trailers", "headers": [(b"x-ratelimit-limit", b"1")]},
    ]
    answer = await ask(behind(bench, replying(*extra)), key=bench.key())
    assert answer.messages[1:] == extra[1:]
    assert answer.start["trailers"] is True
    assert extra[0]["headers"] == []


async def test_a_start_that_an_application_sends_to_all_shows_each_caller_its_own_headers(
    bench: Bench,
) -> None:
    """A server that waits for the socket to drain reads the message later than it got it."""
    guarded = behind(bench, replying(START, {"type": "http.response.body"}))
    remaining: dict[str, bytes] = {}

    async def one(organization: str, requests: int) -> None:
        key = bench.key(organization=organization)
        windows = bench.gate.plans.default.windows
        await bench.gate.store.charge(organization, Hit(windows, requests), bench.clock.now)

        async def send(message: Message) -> None:
            await asyncio.sleep(0)
            if message["type"] == "http.response.start":
                remaining[organization] = dict(message["headers"])[b"x-ratelimit-remaining"]

        headers = [("authorization", f"Bearer {key}")]
        await guarded(http_scope(headers=headers), Line(body_messages([])).receive, send)

    await asyncio.gather(one("org_1", 100), one("org_2", 500))
    assert remaining == {"org_1": b"899", "org_2": b"499"}


# --- nesting, lifespan, other protocols -----------------------------------------------------


async def test_a_middleware_inside_another_holds_its_rules_and_counts_once(
    bench: Bench, app: Recorder
) -> None:
    """The outer one opens a mount to all; the application mounted there guards itself."""
    inner = behind(bench, app, {"GET /health": PUBLIC, "GET /sub/admin": "account:write"})
    guarded = behind(bench, inner, {"GET /health": PUBLIC, "* /sub/{rest:path}": PUBLIC})
    assert (await ask(guarded, path="/x", key=bench.key())).rate[:2] == (1000, 999)
    for remaining in (999, 998):
        assert (await ask(guarded, path="/health")).rate[:2] == (1000, remaining)
    app.scopes.clear()
    assert (await ask(guarded, path="/sub/admin")).status == 401
    assert (await ask(guarded, path="/sub/admin", key=bench.key("models:read"))).status == 403
    assert app.scopes == []


async def test_another_gates_principal_is_no_principal_here(bench: Bench, app: Recorder) -> None:
    guarded = behind(bench, behind(Bench(), app))
    assert (await ask(guarded, path="/x", key=bench.key())).status == 401
    assert app.scopes == []


LIFESPAN = {"type": "lifespan", "asgi": {}}
STARTED_AND_ENDED = ["lifespan.startup.complete", "lifespan.shutdown.complete"]


def lifetime() -> Line:
    return Line([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])


async def test_lifespan_passes_and_the_audit_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "lockgate")
    ran: list[str] = []

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        ran.append("start")
        yield
        ran.append("stop")

    routes = [Route(path, saying(path, [])) for path in ("/health", "/models")]
    app = Starlette(routes=routes, lifespan=lifespan)
    guarded = behind(Bench(), app, {"GET /health": PUBLIC, "GET /nowhere": "models:read"})
    line = lifetime()
    await guarded({**LIFESPAN, "state": {}}, line.receive, line.send)
    assert ran == ["start", "stop"]
    assert [m["type"] for m in line.sent] == STARTED_AND_ENDED
    warnings = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert any("/models" in line for line in warnings)
    assert any("/nowhere" in line for line in warnings)
    assert any("guarded by nothing: GET /health" in r.getMessage() for r in caplog.records)


async def test_an_application_without_a_lifespan_is_flushed_at_the_end_all_the_same(
    bench: Bench,
) -> None:
    bench.gate.events.admit("free")
    line = lifetime()
    django = replying(error=ValueError("only http is known"), reads=False)
    await behind(bench, django)(LIFESPAN, line.receive, line.send)
    assert [m["type"] for m in line.sent] == STARTED_AND_ENDED
    assert bench.names() == ["admitted"]


async def test_a_failure_of_the_application_at_startup_is_raised(bench: Bench) -> None:
    line, failing = lifetime(), replying(error=ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        await behind(bench, failing)(LIFESPAN, line.receive, line.send)
    assert line.sent == []


def test_startup_fails_in_an_event_loop_that_is_not_asyncios(bench: Bench) -> None:
    """As under Hypercorn's trio worker, where a hung store would stop every request."""
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "lifespan.startup"}

    async def send(message: Message) -> None:
        sent.append(message)

    app = behind(bench, Recorder())
    with pytest.raises(ConfigurationError, match="--worker-class asyncio"):
        run(app(LIFESPAN, receive, send))
    assert [message["type"] for message in sent] == ["lifespan.startup.failed"]
    assert "--worker-class asyncio" in sent[0]["message"]


def test_a_request_under_trio_names_the_library_that_lockgate_needs(bench: Bench) -> None:
    """AnyIO's plugin runs each test on both libraries where trio is installed."""

    app = starlette_protect(Starlette(routes=[Route("/jobs", saying("", []))]), bench.gate)
    good = {"Authorization": f"Bearer {bench.key()}"}

    async def statuses() -> list[int]:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return [(await client.get("/jobs", headers=h)).status_code for h in ({}, good)]

    assert asyncio.run(statuses()) == [401, 200]
    with pytest.raises(ConfigurationError, match=r"needs asyncio.*anyio_backend"):
        trio.run(statuses)


def closure(app: ASGIApp) -> ASGIApp:
    """A middleware that keeps its application where no other code finds it."""

    async def layer(scope: Scope, receive: Receive, send: Send) -> None:
        await app(scope, receive, send)

    return layer


def items() -> Starlette:
    return Starlette(routes=[Route(f"/items/{one}", saying("", [])) for one in ("{id}", "new")])


ITEMS: dict[str, Rule | str] = {"GET /items/{id}": "jobs:read", "GET /items/new": PUBLIC}


async def test_routes_that_are_not_known_are_logged_once_and_no_strict_audit_takes_them(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ConfigurationError, match="routes="):
        behind(bench, closure(items()), ITEMS, strict=True)
    guarded, line = behind(bench, closure(items()), ITEMS), lifetime()
    await guarded({**LIFESPAN, "state": {}}, line.receive, line.send)
    assert (await ask(guarded, path="/items/new")).status == 200
    (told,) = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert "not known" in told and "routes=" in told


async def test_a_starlette_application_in_routes_is_checked_behind_any_layer() -> None:
    inner = items()
    guarded = behind(Bench(), closure(inner), ITEMS, strict=True, routes=inner)
    assert (await ask(guarded, path="/items/new")).status == 404
    inner.mount("/other", Recorder())
    with pytest.raises(ConfigurationError, match="No rule names"):
        await ask(guarded, path="/items/new")


@pytest.mark.parametrize("kind", ["webtransport", "http3", "HTTP", ""])
async def test_g1_an_unguarded_protocol_does_not_reach_the_application(
    bench: Bench, app: Recorder, kind: str
) -> None:
    line = Line([{"type": f"{kind}.connect"}])
    scope = {**http_scope(path="/closed"), "type": kind}
    try:
        await behind(bench, app)(scope, line.receive, line.send)
    except Exception as refused:
        assert kind in str(refused) or not kind  # noqa: PT017 - it may also refuse quietly
    assert app.scopes == []


# --- events and stores that fail ------------------------------------------------------------


async def test_every_refusal_is_one_event() -> None:
    bench = Bench(rpm=1)
    guarded = behind(bench, Recorder(), {"GET /x": "jobs:read"})
    key = bench.key("models:read")
    (row,) = (await bench.gate.keys.list("org_1")).keys
    for credential in (None, bench.gate.format.generate().text, key, key):
        await ask(guarded, path="/x", key=credential)
    assert bench.names() == ["refused"] * 4
    always: dict[str, str | None] = {
        "method": "GET",
        "path": "/x",
        "address": "192.0.2.1",
        "route": "GET /x",
    }
    always |= dict.fromkeys(("limit_name", "reason", "key", "plan", "organization"))
    known = {"key": row.id, "plan": "free", "organization": "org_1"}
    assert [dict(fields) for fields in bench.fields()] == [
        {**always, "code": "MISSING_AUTH", "window": None, "wait": None},
        {**always, "code": "KEY_NOT_FOUND", "window": None, "wait": None},
        {**always, **known, "code": "INSUFFICIENT_SCOPE", "window": None, "wait": None},
        {**always, **known, "code": "RATE_LIMIT_EXCEEDED", "window": "minute", "wait": 60},
    ]


@pytest.mark.parametrize("shadow", [None, "all"])
async def test_g4_a_store_that_fails_is_503_with_the_addresss_headers(shadow: Any) -> None:
    class Broken(MemoryStore):
        async def admit(self, *_: object, **__: object) -> Any:
            raise OSError("password=hunter2")

    bench, app = Bench(store=Broken(), anonymous=7), Recorder()
    answer = await ask(behind(bench, app, shadow=shadow), path="/x", key=bench.key())
    if shadow:
        assert (answer.status, bench.names()) == (200, ["store_failed", "shadowed"])
        return
    assert (answer.status, answer.code) == (503, "STORE_UNAVAILABLE")
    assert (answer.all("retry-after"), answer.json()["retryAfter"]) == ([], 1)
    assert (answer.rate[:2], app.scopes) == ((7, 7), [])
    assert "hunter2" not in answer.body.decode()


# --- addresses (D24) ------------------------------------------------------------------------


PROXIES = ["192.0.2.0/24"]
FORWARDED = ["x-forwarded-for", "forwarded", "x-real-ip"]


async def test_trusted_proxies_from_end_to_end() -> None:
    bench = Bench(anonymous=1, trusted_proxies=PROXIES)
    guarded = behind(bench, Recorder())

    async def status(forwarded: str | None, peer: str | None = "192.0.2.1") -> int:
        headers = [("x-forwarded-for", forwarded)] if forwarded else []
        client = (peer, 1) if peer else None
        return (await ask(guarded, path="/health", headers=headers, client=client)).status

    assert await status("198.51.100.1") == 200
    assert await status("203.0.113.9, 198.51.100.1") == 429
    assert await status("198.51.100.1, 192.0.2.7") == 429
    assert await status("198.51.100.2") == 200
    assert bench.names(but="refused") == []
    assert await status("198.51.100.3", peer="203.0.113.1") == 200
    assert await status("198.51.100.4", peer="203.0.113.1") == 429
    assert await status(None) == 200
    assert await status("garbage") == 429
    assert [await status(None, peer=None) for _ in "ab"] == [200, 429]
    ignored = [event.fields for event in bench.told if event.name == "forwarded_header_ignored"]
    assert [dict(fields) for fields in ignored] == [{"peer": "203.0.113.1"}]


@pytest.mark.parametrize("name", FORWARDED)
@pytest.mark.parametrize("path", ["/health", "/x"])
async def test_d24_a_forwarded_header_that_is_ignored_is_reported_once(
    name: str, path: str
) -> None:
    bench = Bench(anonymous=1)
    guarded = behind(bench, Recorder())
    allowed = 200 if path == "/health" else 401
    for number, status in ((1, allowed), (2, 429), (3, 429)):
        headers = [(name, f"198.51.100.{number}")]
        assert (await ask(guarded, path=path, headers=headers)).status == status
    assert bench.names(but="refused") == ["forwarded_header_ignored"]
    assert {"peer": "192.0.2.1"} in bench.fields()


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("x-real-ip", "198.51.100.1")],
        [("forwarded", "for=198.51.100.1")],
        [("x-forwarded-for", "unknown")],
        [("x-forwarded-for", "192.0.2.1")],
    ],
    ids=["none", "X-Real-IP", "Forwarded", "unreadable", "its own"],
)
async def test_d24_a_trusted_proxy_that_names_no_client_is_reported_once(
    headers: list[tuple[str, str]],
) -> None:
    """Not so probes, which come past it, nor other peers, nor one that named a client before."""
    bench = Bench(trusted_proxies=PROXIES, web_options=WebOptions(health="/probes"))
    guarded = behind(bench, Recorder())
    await ask(guarded, path="/probes/live")
    await ask(guarded, path="/health", client=("203.0.113.1", 1))
    assert bench.told == []
    for _ in range(3):
        await ask(guarded, path="/health", headers=headers)
    assert bench.names() == ["forwarded_header_missing"]
    assert [dict(fields) for fields in bench.fields()] == [{"peer": "192.0.2.1"}]


async def test_d24_requests_of_known_keys_are_not_looked_through(bench: Bench) -> None:
    """Their address is not asked for; the first request of each key was looked through."""
    guarded, key = behind(bench, Recorder()), bench.key()
    await ask(guarded, path="/x", key=key)
    await ask(guarded, path="/x", key=key, headers=[("x-forwarded-for", "198.51.100.1")])
    assert bench.told == []
    other = bench.key()
    await ask(guarded, path="/x", key=other, headers=[("x-forwarded-for", "198.51.100.1")])
    assert bench.names() == ["forwarded_header_ignored"]


# --- the budget of an address (D24) ---------------------------------------------------------


class Asked(MemoryStore):
    """Counts how often it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.times = 0

    async def admit(self, *arguments: Any, **fields: Any) -> Any:
        self.times += 1
        return await super().admit(*arguments, **fields)


class Spent(Bench):
    """A gate whose store counts calls, with a budget of three failures for an address."""

    def __init__(self, anonymous: int = 3) -> None:
        self.store = Asked()
        super().__init__(store=self.store, anonymous=anonymous)
        self.guarded = behind(self, Recorder())

    async def status(self, key: str | None = None) -> int:
        return (await ask(self.guarded, path="/x", key=key)).status

    async def spend(self) -> None:
        while await self.status() == 401:
            pass


async def test_d24_a_spent_address_is_refused_before_the_store_is_asked() -> None:
    bench = Spent()
    key = bench.key()
    await bench.spend()
    for credential in (None, bench.gate.format.generate().text, key):
        answer = await ask(bench.guarded, path="/x", key=credential)
        assert (answer.status, answer.code) == (429, "RATE_LIMIT_EXCEEDED")
        assert answer.rate[:2] == (3, 0)
    assert bench.store.times == 0
    elsewhere = await ask(bench.guarded, path="/x", key=key, client=("192.0.2.2", 1))
    assert elsewhere.status == 200
    bench.clock.now += MINUTE
    assert await bench.status(key) == 200


async def test_d24_keys_that_are_tried_at_once_count_while_they_are_looked_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else all would reach the store that come before the first one has failed."""
    bench = Spent()
    admit, answered = bench.gate.admit_header, asyncio.Event()

    async def slowly(*args: Any) -> Principal:
        await answered.wait()
        return await admit(*args)

    monkeypatch.setattr(bench.gate, "admit_header", slowly)
    keys = [bench.gate.format.generate().text for _ in range(10)]
    asking = asyncio.gather(*map(bench.status, keys))
    for _ in range(10):
        await asyncio.sleep(0)
    answered.set()
    assert Counter(await asking) == {401: 3, 503: 7}
    assert bench.store.times == 3
    assert await bench.status(keys[0]) == 429
    bench.clock.now += MINUTE
    key = bench.key()
    assert await asyncio.gather(*map(bench.status, [key] * 3)) == [200] * 3


async def test_d24_a_recently_admitted_key_is_admitted_from_a_spent_address() -> None:
    """Not one of the same handle with another secret."""
    bench = Spent()
    key = bench.key()
    assert await bench.status(key) == 200
    await bench.spend()
    assert [await bench.status(key) for _ in range(3)] == [200] * 3
    assert bench.store.times == 4
    handle = key.split("_")[2]
    forged = KeyFormat("acme", draw=lambda n: handle if n == 8 else "r" * n).generate().text
    assert await bench.status(forged) == 429
    assert bench.store.times == 4


async def test_d24_admitted_requests_are_not_charged_to_the_address() -> None:
    bench = Bench(anonymous=2)
    guarded = behind(bench, Recorder(), {"GET /health": PUBLIC, "GET /y": "jobs:read"})
    key = bench.key("models:read")
    for _ in range(4):
        assert (await ask(guarded, path="/x", key=key)).status == 200
        assert (await ask(guarded, path="/y", key=key)).status == 403
    assert (await ask(guarded, path="/health")).rate[:2] == (2, 1)


# --- many at once ---------------------------------------------------------------------------


def test_exactly_the_limit_across_event_loops() -> None:
    bench, app = Bench(rpm=40), Recorder()
    guarded = behind(bench, app)
    key = bench.key()

    async def ask_many() -> list[int]:
        answers = await asyncio.gather(*(ask(guarded, path="/x", key=key) for _ in range(15)))
        return [answer.status for answer in answers]

    statuses = [status for part in at_once(6, lambda _: asyncio.run(ask_many())) for status in part]
    assert (statuses.count(200), statuses.count(429)) == (40, 50)
    assert len(app.scopes) == 40


async def test_a_body_is_read_up_to_the_limit_and_no_further() -> None:
    line = Line(body_messages([b"ab", b"", b"cd"]))
    assert await body_reader(line.receive)(4) == b"abcd"
    line = Line(body_messages([b"ab", b"cd", b"e", b"f", b"g"]))
    with pytest.raises(Refusal, match="at most 4 bytes"):
        await body_reader(line.receive)(4)
    assert line.received == 3
    bare = Line([{"type": "http.request"}])  # Without fields it is empty, and the last one.
    assert await body_reader(bare.receive)(4) == b""


# --- WebSockets, by hand --------------------------------------------------------------------

CONNECT: Message = {"type": "websocket.connect"}
ACCEPT: Message = {"type": "websocket.accept", "headers": [(b"x-ratelimit-limit", b"666")]}
CLOSE: Message = {"type": "websocket.close", "code": 1000}
DENIAL: list[Message] = [
    {"type": "websocket.http.response.start", "status": 403, "headers": []},
    {"type": "websocket.http.response.body", "body": b"no"},
]


async def socket(app: ASGIApp, path: str = "/", **scoped: Any) -> Line:
    line = Line([CONNECT])
    await app(websocket_scope(path, **scoped), line.receive, line.send)
    return line


async def test_d32_an_accepted_handshake_carries_the_headers(bench: Bench) -> None:
    line = await socket(behind(bench, replying(ACCEPT, CLOSE)), key=bench.key())
    accept, close = line.sent
    headers = dict(accept["headers"])
    assert (headers[b"x-ratelimit-limit"], headers[b"x-ratelimit-remaining"]) == (b"1000", b"999")
    assert len(accept["headers"]) == 3
    assert close == CLOSE
    assert bench.used() == 1


@pytest.mark.parametrize(
    ("key", "status", "code"),
    [
        (None, 401, "MISSING_AUTH"),
        ("bad", 401, "INVALID_FORMAT"),
        ("poor", 403, "INSUFFICIENT_SCOPE"),
        ("spent", 429, "RATE_LIMIT_EXCEEDED"),
    ],
)
async def test_d32_a_handshake_is_refused(key: str | None, status: int, code: str) -> None:
    bench = Bench(rpm=1)
    guarded = behind(bench, replying(ACCEPT, CLOSE), {"GET /feed": "jobs:read"})
    if key == "poor":
        key = bench.key("models:read")
    elif key == "spent":
        key = bench.key()
        await socket(guarded, "/feed", key=key)
    offered = await socket(guarded, "/feed", key=key)
    answer = Answer(offered.sent)
    if status == 403:
        bench.clock.now += MINUTE
    assert answer.kinds == ["websocket.http.response.start", "websocket.http.response.body"]
    assert (answer.status, answer.code) == (status, code)
    assert answer.one("cache-control") == "no-store"
    assert len(answer.rate) == 3
    assert offered.received <= 1
    by_hand = await socket(guarded, "/feed", key=key, denial=False)
    assert by_hand.sent == [{"type": "websocket.close", "code": 1008, "reason": code}]


@pytest.mark.parametrize(
    ("app", "status"),
    [
        (replying(error=NotFound(), reads=False), 404),
        (replying(error=NotFound()), 404),  # It must not wait for a second message.
        (replying(CLOSE), 403),  # The server's own 403 would carry no headers.
        (replying(*DENIAL), 403),
    ],
    ids=["refusal", "refusal after the connect", "close", "denial"],
)
async def test_d24_a_handshake_that_the_application_declines_carries_the_headers(
    bench: Bench, app: ASGIApp, status: int
) -> None:
    answer = Answer((await socket(behind(bench, app), key=bench.key())).sent)
    assert (answer.status, answer.rate[:2]) == (status, (1000, 999))
    assert status == 404 or answer.one("cache-control") == "no-store"


@pytest.mark.parametrize(
    ("refusal", "code"), [(RateLimitExceeded("minute", 1, 1, 1), 1008), (SlotLost(), 1013)]
)
async def test_a_refusal_after_the_accept_closes_the_websocket_once(
    bench: Bench, refusal: Refusal, code: int
) -> None:
    closed = {"type": "websocket.close", "code": code, "reason": refusal.code}
    for by_itself, last in (([], closed), ([CLOSE], CLOSE)):
        app = behind(bench, replying(ACCEPT, *by_itself, error=refusal))
        assert (await socket(app, key=bench.key())).sent[1:] == [last]


@pytest.mark.parametrize("around", [False, True])
async def test_g3_a_refusal_is_answered_without_error_handlers(bench: Bench, around: bool) -> None:
    """Starlette turns unhandled exceptions into 500 before the middleware sees them; a handler of
    the application's own stays."""

    async def raising(request: Request) -> Response:
        request.state.principal.need("account:write")
        raise AssertionError("it lacks that")

    async def own(_: Request, error: Exception) -> Response:
        return PlainTextResponse(type(error).__name__, 418)

    for handlers, status in (({}, 403), ({Refusal: own}, 418)):
        service = Starlette(routes=[Route("/x", raising)], exception_handlers=handlers)
        inner: ASGIApp = CORSMiddleware(service) if around else service
        refused = await ask(behind(bench, inner), path="/x", key=bench.key("jobs:read"))
        assert (refused.status, len(refused.rate)) == (status, 3)
        assert "InsufficientScope" in refused.body.decode() or refused.code == "INSUFFICIENT_SCOPE"
