"""The middleware before any ASGI application, message by message."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import pytest
import trio
from litestar import Litestar, get
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Host, Mount, Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lockgate import PUBLIC, Gate, MemoryStore, Principal, Refusal, Rule, run
from lockgate.asgi import GateMiddleware
from lockgate.core.ledger import Hit
from lockgate.core.timestamps import MINUTE
from lockgate.errors import (
    ConfigurationError,
    LockgateError,
    NotFound,
    RateLimitExceeded,
    SlotLost,
)
from lockgate.options import WebOptions
from lockgate.starlette import protect as starlette_protect
from lockgate.web.asgi_exchange import body_reader
from tests.stores.making import at_once

from .web.driving import RATE, Answer, Bench, Line, ask, body_messages, http_scope, websocket_scope

Handler = Callable[[Scope, Receive, Send], Awaitable[None]]


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
        await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
        await send({"type": "http.response.body", "body": b"hello"})


def behind(bench: Bench, app: ASGIApp, rules: Any = None, **fields: Any) -> GateMiddleware:
    return GateMiddleware(app, bench.gate, rules or {"GET /health": PUBLIC}, **fields)


# --- closed by default ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "X"]
)
@pytest.mark.parametrize("path", ["/", "/anything", "/healthx", "/health/x", ""])
async def test_g1_a_path_that_no_rule_names_needs_a_key(method: str, path: str) -> None:
    bench, app = Bench(), Recorder()
    answer = await ask(behind(bench, app), method, path)
    assert answer.status == 401
    assert app.scopes == []
    assert (await ask(behind(bench, app), method, path, key=bench.key("models:read"))).status == 200
    assert len(app.scopes) == 1


@pytest.mark.parametrize("path", ["/health", "/health/"])
@pytest.mark.parametrize("method", ["POST", "PUT", "OPTIONS", "TRACE", "FOO", "get", "post"])
async def test_d31_a_method_that_no_rule_names_ends_at_the_gate(method: str, path: str) -> None:
    """Authentication comes first, and the answer counts as the request that it was."""
    bench, app = Bench(), Recorder()
    guarded = behind(bench, app)
    assert (await ask(guarded, method, path)).status == 401
    answer = await ask(guarded, method, path, key=bench.key("*"))
    assert (answer.status, answer.code, answer.one("allow")) == (
        405,
        "METHOD_NOT_ALLOWED",
        "GET, HEAD",
    )
    assert (answer.rate[:2], app.scopes, bench.used()) == ((1000, 999), [], 1)


@pytest.mark.parametrize("target", ["http://h/health", "x:/health", "health", "*", "h:80"])
async def test_d31_a_target_that_is_no_path_is_refused(target: str) -> None:
    bench, app = Bench(), Recorder()
    guarded = behind(bench, app)
    for raw in (target.encode(), None):
        answer = await ask(guarded, path=target, raw_path=raw, key=bench.key("*"))
        assert (answer.status, answer.code, app.scopes) == (400, "VALIDATION_ERROR", [])
    answer = await ask(guarded, path="/health", raw_path=target.encode())
    assert (answer.status, len(answer.rate), app.scopes) == (400, 3, [])


async def test_a_public_route_is_open_and_counted_by_address() -> None:
    bench, app = Bench(anonymous=2), Recorder()
    guarded = behind(bench, app)
    answers = [await ask(guarded, path="/health") for _ in range(3)]
    assert [answer.status for answer in answers] == [200, 200, 429]
    assert [answer.rate[:2] for answer in answers] == [(2, 1), (2, 0), (2, 0)]
    assert answers[2].one("retry-after") == "60"
    assert (await ask(guarded, path="/health", client=("192.0.2.2", 1))).status == 200
    assert len(app.scopes) == 3
    assert [scope["state"]["principal"] for scope in app.scopes] == [None] * 3


async def test_the_application_gets_the_principal() -> None:
    bench, app = Bench(), Recorder()
    await ask(behind(bench, app), path="/x", key=bench.key("jobs:*"))
    (scope,) = app.scopes
    principal = scope["state"]["principal"]
    assert principal.organization == "org_1"
    assert scope["user"] is scope["auth"] is principal
    assert "jobs:read" in scope["auth"].scopes


async def test_the_servers_own_state_is_kept() -> None:
    bench, app = Bench(), Recorder()
    line = Line(body_messages([]))
    scope = http_scope(path="/health")
    scope["state"] = {"from lifespan": 1}
    await behind(bench, app)(scope, line.receive, line.send)
    assert app.scopes[0]["state"] == {"from lifespan": 1, "principal": None}


@pytest.mark.parametrize(
    ("scopes", "status"), [(("models:read",), 200), (("models:*",), 200), (("jobs:*",), 403)]
)
async def test_a_rule_asks_for_its_scope(scopes: tuple[str, ...], status: int) -> None:
    bench, app = Bench(), Recorder()
    guarded = behind(bench, app, {"GET /models": "models:read"})
    for method in ("GET", "HEAD"):
        answer = await ask(guarded, method, "/models", key=bench.key(*scopes))
        assert answer.status == status
    assert len(app.scopes) == (2 if status == 200 else 0)
    assert bench.used() == 2


async def test_the_cost_of_a_rule_is_charged() -> None:
    bench, app = Bench(rpm=10), Recorder()
    guarded = behind(bench, app, {"POST /big": Rule("models:write", cost=4), "GET /small": Rule()})
    key = bench.key()
    assert (await ask(guarded, "POST", "/big", key=key)).rate[:2] == (10, 6)
    assert (await ask(guarded, "GET", "/small", key=key)).rate[:2] == (10, 5)
    assert (await ask(guarded, "POST", "/big", key=key)).rate[:2] == (10, 1)
    refused = await ask(guarded, "POST", "/big", key=key)
    assert (refused.status, refused.rate[:2]) == (429, (10, 1))
    assert refused.json()["limits"] == {"type": "minute", "limit": 10, "used": 9}
    assert (await ask(guarded, "GET", "/small", key=key)).rate[:2] == (10, 0)


async def test_d39_a_cost_above_the_limit_is_refused_in_words_for_every_credential() -> None:
    bench, app = Bench(rpm=10), Recorder()
    rule = Rule(cost=11, accepts=("key", "session"))
    guarded = behind(bench, app, {"GET /big": rule})
    credentials = (bench.key(), None), (None, bench.session())
    for _ in range(2):  # The second time, the process knows the key.
        for key, session in credentials:
            refused = await ask(guarded, "GET", "/big", key=key, session=session)
            assert (refused.status, refused.one("retry-after")) == (429, "60")
            assert "cost 11 is never admitted" in refused.json()["error"]
            assert refused.json()["limits"] == {"type": "minute", "limit": 10, "used": 0}


# --- methods and paths that are spelled in other ways (G1) -----------------------------------


class CaseBlind(Recorder):
    """Runs the operation for a method in whatever case, as Django does."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"].upper() != "POST":
            await send({"type": "http.response.start", "status": 405, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        await super().__call__(scope, receive, send)


@pytest.mark.parametrize("method", ["POST", "post", "Post", "pOsT"])
async def test_g1_no_spelling_of_a_method_needs_less(method: str) -> None:
    """h11 hands on a method in the case in which it came, and frameworks differ in reading it."""
    bench, app = Bench(), CaseBlind()
    guarded = behind(bench, app, {"POST /admin": "account:write"})
    answer = await ask(guarded, method, "/admin", key=bench.key("models:read"))
    assert answer.status == (403 if method == "POST" else 405)
    assert app.scopes == []


@pytest.mark.parametrize(
    "path",
    [
        "/files/x/../../models",
        "/files/../models",
        "/files/purge/../../models",
        "/files/./../models",
        "/files//../models",
    ],
)
async def test_g1_a_path_is_guarded_in_its_literal_and_its_folded_form(path: str) -> None:
    """The router here matches the literal path, so its rule must apply too."""
    bench = Bench()
    reached: list[str] = []

    async def files(request: Request) -> Response:
        reached.append(request.path_params["name"])
        return PlainTextResponse("files")

    async def models(_: Request) -> Response:
        return PlainTextResponse("models")

    app = Starlette(
        routes=[
            Route("/files/{name:path}", files),
            Route("/models", models),
        ]
    )
    guarded = behind(
        bench, app, {"* /files/{name:path}": "upload:write", "GET /models": "models:read"}
    )
    answer = await ask(guarded, path=path, key=bench.key("models:read"))
    assert (answer.status, reached) == (403, [])
    assert (await ask(guarded, path=path, key=bench.key("upload:write"))).status == 403
    assert (await ask(guarded, path=path, key=bench.key("*"))).status == 200


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
async def test_g1_no_other_spelling_is_public(path: str, raw: bytes) -> None:
    bench, app = Bench(), Recorder()
    answer = await ask(behind(bench, app), path=path, raw_path=raw)
    assert (answer.status, app.scopes) == (401, [])


@pytest.mark.parametrize(
    ("root", "path", "status"),
    [
        ("/api", "/api/health", 200),
        ("/api", "/health", 200),
        ("/api", "/apihealth", 401),
        ("/api", "/api", 401),
        ("/api", "/api//health", 401),
        ("/api", "/api/api/health", 401),
        ("/health", "/health", 401),
        ("/", "/health", 200),
    ],
)
async def test_the_root_path_is_no_part_of_a_rule(root: str, path: str, status: int) -> None:
    bench, app = Bench(), Recorder()
    assert (await ask(behind(bench, app), path=path, root_path=root)).status == status


@pytest.mark.parametrize(
    ("root", "path"),
    [
        ("/shop", "/static/shop/admin"),
        ("/shop", "/static/shop//admin/"),
        ("/shop", "/shopadmin"),
        ("/shop", "/any/shop/admin"),
        ("/shop/", "/shop/admin"),
        ("/shop", "/shop/admin"),
        ("/é", "/static/é/admin"),
    ],
)
async def test_g1_a_mount_prefix_inside_a_path_opens_no_route(root: str, path: str) -> None:
    """Litestar goes on behind it wherever it finds it first, other frameworks do not."""
    reached: list[str] = []

    @get("/admin")
    async def admin() -> None:
        reached.append("admin")

    @get("/static/{name:path}")
    async def static() -> None:
        reached.append("static")

    bench = Bench()
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
async def test_a_guarded_application_can_be_mounted(path: str) -> None:
    bench, inner = Bench(), Recorder()
    app = Starlette(routes=[Mount("/v1", behind(bench, inner))])
    answer = await ask(app, path=path)
    assert answer.status == {"/v1/health": 200, "/health": 404, "/v1": 307}.get(path, 401)
    assert len(inner.scopes) == (path == "/v1/health")


# --- preflights and HEAD --------------------------------------------------------------------

PREFLIGHT = [("origin", "https://elsewhere.example"), ("access-control-request-method", "PUT")]


async def test_d31_a_preflight_ends_at_the_gate_and_counts_by_address() -> None:
    bench, app = Bench(anonymous=5), Recorder()
    answer = await ask(behind(bench, app), "OPTIONS", "/closed", headers=PREFLIGHT)
    assert (answer.status, answer.body, answer.rate[:2]) == (204, b"", (5, 4))
    assert not any(name.startswith("access-control-") for name, _ in answer.headers)
    assert app.scopes == []


async def test_a_preflight_for_an_operation_is_answered_at_a_spent_address_D24() -> None:
    bench, app = Bench(anonymous=5), Recorder()
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
async def test_d31_an_applications_cors_middleware_answers_a_preflight(place: str) -> None:
    """And no handler sees it: here a mounted application would answer any path."""
    bench, raw = Bench(), Recorder()
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


@pytest.mark.parametrize(
    ("method", "headers"),
    [
        ("GET", PREFLIGHT),
        ("POST", PREFLIGHT),
        ("options", PREFLIGHT),
        ("OPTIONS", PREFLIGHT[:1]),
        ("OPTIONS", PREFLIGHT[1:]),
        ("OPTIONS", []),
    ],
)
async def test_d31_a_request_that_only_resembles_a_preflight_is_refused(
    method: str, headers: list[tuple[str, str]]
) -> None:
    bench, app = Bench(), Recorder()
    assert (await ask(behind(bench, app), method, "/closed", headers=headers)).status == 401
    assert app.scopes == []


async def test_a_refused_head_has_every_header_and_no_body() -> None:
    bench = Bench()
    head = await ask(behind(bench, Recorder()), "HEAD", "/closed")
    get = await ask(behind(bench, Recorder()), "GET", "/closed")
    assert (head.body, head.status) == (b"", 401)
    assert head.one("content-length") == str(len(get.body))
    assert {name for name, _ in head.headers} == {name for name, _ in get.headers}


# --- headers on every response (G2) ---------------------------------------------------------


async def test_g2_headers_the_application_sets_are_replaced_not_doubled() -> None:
    bench = Bench(rpm=9)
    theirs = [
        [b"content-type", b"text/plain"],
        [b"x-ratelimit-limit", b"666"],
        [b"x-ratelimit-remaining", b"666"],
        [b"x-ratelimit-remaining", b"667"],
        [b"x-ratelimit-reset", b"666"],
        [b"set-cookie", b"a=b"],
        [b"set-cookie", b"c=d"],
    ]
    answer = await ask(behind(bench, Recorder(headers=theirs)), key=bench.key())
    assert answer.rate[:2] == (9, 8)
    assert answer.one("content-type") == "text/plain"
    assert answer.all("set-cookie") == ["a=b", "c=d"]
    assert "666" not in str(answer.headers)


async def test_g2_the_case_of_a_header_name_does_not_double_it() -> None:
    """ASGI asks for lower case; applications written by hand do not always listen."""
    bench = Bench(rpm=9)
    theirs = [(b"X-RateLimit-Limit", b"666"), (b"Cache-Control", b"public")]
    answer = await ask(behind(bench, Recorder(401, theirs)), key=bench.key())
    assert answer.rate[:2] == (9, 8)
    assert answer.one("cache-control") == "no-store"


@pytest.mark.parametrize("headers", [(), [], iter([]), ((b"a", b"b"),), [[b"a", b"b"]]])
async def test_headers_in_any_shape(headers: Any) -> None:
    bench = Bench()
    answer = await ask(behind(bench, Recorder(headers=headers)), key=bench.key())
    assert answer.rate[0] == 1000


async def test_a_start_without_headers() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 204})
        await send({"type": "http.response.body"})

    bench = Bench()
    assert (await ask(behind(bench, app), key=bench.key())).rate[0] == 1000


@pytest.mark.parametrize("status", [401, 403, 429])
async def test_d38_refusals_of_the_application_have_no_store(status: int) -> None:
    bench = Bench()
    theirs = [(b"cache-control", b"public, max-age=3600"), (b"retry-after", b"7")]
    answer = await ask(behind(bench, Recorder(status, theirs)), key=bench.key())
    assert answer.one("cache-control") == "no-store"
    assert answer.one("retry-after") == "7"


@pytest.mark.parametrize("status", [200, 404, 500])
async def test_the_applications_caching_is_its_own_otherwise(status: int) -> None:
    bench = Bench()
    theirs = [(b"cache-control", b"public, max-age=3600")]
    answer = await ask(behind(bench, Recorder(status, theirs)), key=bench.key())
    assert answer.one("cache-control") == "public, max-age=3600"


async def test_no_limit_no_header_not_even_the_applications() -> None:
    bench = Bench(rpm=None)
    theirs = [(b"x-ratelimit-limit", b"666")]
    answer = await ask(behind(bench, Recorder(headers=theirs)), key=bench.key())
    assert not [name for name in RATE if answer.all(name)]


async def test_g2_a_streamed_body_passes_chunk_by_chunk() -> None:
    """Each chunk is out before the next one is made."""
    bench = Bench()
    sent: list[Message] = []
    seen_when_made: list[int] = []

    async def chunks() -> AsyncIterator[bytes]:
        for number in range(5):
            seen_when_made.append(len(sent))
            yield b"%d" % number

    async def endpoint(_: Request) -> Response:
        return StreamingResponse(chunks())

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    app = behind(bench, Starlette(routes=[Route("/", endpoint)]))
    headers = [("authorization", f"Bearer {bench.key()}")]
    await app(http_scope(headers=headers), receive, send)
    assert seen_when_made == [1, 2, 3, 4, 5]
    assert Answer(sent).body == b"01234"
    assert Answer(sent).rate[0] == 1000


async def test_g2_a_crash_of_the_application_carries_the_headers() -> None:
    async def crash(_: Request) -> Response:
        raise ZeroDivisionError

    bench = Bench()
    app = behind(bench, Starlette(routes=[Route("/", crash)]))
    line = Line(body_messages([]))
    scope = http_scope(headers=[("authorization", f"Bearer {bench.key()}")])
    with pytest.raises(ZeroDivisionError):
        await app(scope, line.receive, line.send)
    answer = Answer(line.sent)
    assert (answer.status, answer.rate[:2]) == (500, (1000, 999))


async def test_a_refusal_of_the_application_is_answered_and_headed() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise NotFound

    bench = Bench()
    answer = await ask(behind(bench, app), key=bench.key())
    assert (answer.status, answer.code, answer.rate[:2]) == (404, "NOT_FOUND", (1000, 999))
    assert answer.kinds == ["http.response.start", "http.response.body"]


async def test_a_refusal_after_the_start_is_the_servers_affair() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise NotFound

    bench = Bench()
    line = Line(body_messages([]))
    scope = http_scope(headers=[("authorization", f"Bearer {bench.key()}")])
    with pytest.raises(NotFound):
        await behind(bench, app)(scope, line.receive, line.send)
    assert Answer(line.sent).status == 200


async def test_other_messages_pass_unchanged() -> None:
    extra: list[Message] = [
        {"type": "http.response.start", "status": 200, "headers": [], "trailers": True},
        {"type": "http.response.pathsend", "path": "/x"},
        {"type": "http.response.trailers", "headers": [(b"x-ratelimit-limit", b"1")]},
    ]

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        for message in extra:
            await send(message)

    bench = Bench()
    answer = await ask(behind(bench, app), key=bench.key())
    assert answer.messages[1:] == extra[1:]
    assert answer.start["trailers"] is True
    assert extra[0]["headers"] == []


async def test_a_start_that_an_application_sends_to_all_shows_each_caller_its_own_headers() -> None:
    """A server that waits for the socket to drain reads the message later than it got it."""
    start: Message = {"type": "http.response.start", "status": 200, "headers": []}

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send(start)
        await send({"type": "http.response.body"})

    bench = Bench()
    guarded = behind(bench, app)
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
        line = Line(body_messages([]))
        await guarded(http_scope(headers=headers), line.receive, send)

    await asyncio.gather(one("org_1", 100), one("org_2", 500))
    assert remaining == {"org_1": b"899", "org_2": b"499"}


# --- nesting, lifespan, other protocols -----------------------------------------------------


async def test_a_middleware_inside_another_does_not_count_twice() -> None:
    bench, app = Bench(), Recorder()
    rules = {"GET /health": PUBLIC}
    guarded = GateMiddleware(GateMiddleware(app, bench.gate, rules), bench.gate, rules)
    answer = await ask(guarded, path="/x", key=bench.key())
    assert (answer.rate[:2], bench.used()) == ((1000, 999), 1)
    assert (await ask(guarded, path="/health")).rate[:2] == (1000, 999)
    assert (await ask(guarded, path="/health")).rate[:2] == (1000, 998)


async def test_a_refusal_after_the_start_inside_two_middlewares() -> None:
    """There is no second response (G2)."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise NotFound

    bench = Bench()
    line = Line(body_messages([]))
    scope = http_scope(headers=[("authorization", f"Bearer {bench.key()}")])
    with pytest.raises(NotFound):
        await behind(bench, behind(bench, app))(scope, line.receive, line.send)
    assert [message["type"] for message in line.sent] == ["http.response.start"]


async def test_the_rules_of_a_middleware_inside_another_hold() -> None:
    """The outer one opens a mount to all; the application mounted there guards itself."""
    bench, app = Bench(), Recorder()
    inner = GateMiddleware(app, bench.gate, {"GET /sub/admin": "account:write"})
    outer = GateMiddleware(inner, bench.gate, {"* /sub/{rest:path}": PUBLIC})
    assert (await ask(outer, path="/sub/admin")).status == 401
    assert (await ask(outer, path="/sub/admin", key=bench.key("models:read"))).status == 403
    assert app.scopes == []


async def test_another_gates_principal_is_no_principal_here() -> None:
    theirs, mine, app = Bench(), Bench(), Recorder()
    guarded = GateMiddleware(GateMiddleware(app, mine.gate), theirs.gate)
    assert (await ask(guarded, path="/x", key=theirs.key())).status == 401
    assert app.scopes == []


async def test_lifespan_passes_and_the_audit_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "lockgate")
    ran: list[str] = []

    async def endpoint(_: Request) -> Response:
        return PlainTextResponse("ok")

    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        ran.append("start")
        yield
        ran.append("stop")

    from contextlib import asynccontextmanager

    app = Starlette(
        routes=[Route("/health", endpoint), Route("/models", endpoint)],
        lifespan=asynccontextmanager(lifespan),
    )
    guarded = behind(Bench(), app, {"GET /health": PUBLIC, "GET /nowhere": "models:read"})
    line = Line([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])
    await guarded({"type": "lifespan", "asgi": {}, "state": {}}, line.receive, line.send)
    assert ran == ["start", "stop"]
    assert [m["type"] for m in line.sent] == [
        "lifespan.startup.complete",
        "lifespan.shutdown.complete",
    ]
    warnings = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert any("/models" in line for line in warnings)
    assert any("/nowhere" in line for line in warnings)
    assert any("guarded by nothing: GET /health" in r.getMessage() for r in caplog.records)


async def test_lifespan_of_an_application_that_has_none_to_list() -> None:
    app = Recorder()
    line = Line([])
    await behind(Bench(), app)({"type": "lifespan", "asgi": {}}, line.receive, line.send)
    assert len(app.scopes) == 1


def closure(app: ASGIApp) -> ASGIApp:
    """A middleware that keeps its application where no other code finds it."""

    async def layer(scope: Scope, receive: Receive, send: Send) -> None:
        await app(scope, receive, send)

    return layer


def items() -> Starlette:
    async def endpoint(_: Request) -> Response:
        return PlainTextResponse("item")

    return Starlette(routes=[Route("/items/{id}", endpoint), Route("/items/new", endpoint)])


ITEMS: dict[str, Rule | str] = {"GET /items/{id}": "jobs:read", "GET /items/new": PUBLIC}


def test_a_strict_audit_of_routes_that_are_not_known_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="routes="):
        behind(Bench(), closure(items()), ITEMS, strict=True)


async def test_an_application_with_unknown_routes_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    guarded = behind(Bench(), closure(items()), ITEMS)
    line = Line([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])
    await guarded({"type": "lifespan", "asgi": {}, "state": {}}, line.receive, line.send)
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
async def test_g1_an_unguarded_protocol_does_not_reach_the_application(kind: str) -> None:
    bench, app = Bench(), Recorder()
    line = Line([{"type": f"{kind}.connect"}])
    scope = {**http_scope(path="/closed"), "type": kind}
    try:
        await behind(bench, app)(scope, line.receive, line.send)
    except Exception as refused:
        assert kind in str(refused) or not kind  # noqa: PT017 - it may also refuse quietly
    assert app.scopes == []


# --- shadow mode ----------------------------------------------------------------------------


async def test_shadow_mode_counts_reports_and_refuses_nothing() -> None:
    bench, app = Bench(rpm=2), Recorder()
    guarded = behind(bench, app, {"GET /x": "jobs:read"}, shadow="all")
    key = bench.key("models:read")
    answers = [await ask(guarded, path="/x")]
    answers += [await ask(guarded, path="/x", key=key) for _ in range(3)]
    answers += [await ask(guarded, path="/x", headers=[("authorization", "Basic x")])]
    assert [answer.status for answer in answers] == [200] * 5
    assert [fields["code"] for fields in bench.fields()] == [
        "MISSING_AUTH",
        "INSUFFICIENT_SCOPE",
        "INSUFFICIENT_SCOPE",
        "RATE_LIMIT_EXCEEDED",
        "INVALID_FORMAT",
    ]
    assert set(bench.names()) == {"shadowed"}
    assert [answer.shadow_rate[1] for answer in answers] == [999, 1, 0, 0, 998]
    assert bench.used() == 2
    good = await ask(guarded, path="/y", key=bench.key(organization="org_2"))
    assert good.shadow_rate[:2] == (2, 1)


async def test_shadow_mode_spares_addresses_as_well() -> None:
    bench, app = Bench(anonymous=1), Recorder()
    guarded = behind(bench, app, shadow="all")
    assert [(await ask(guarded, path="/health")).status for _ in range(3)] == [200] * 3
    assert bench.names() == ["shadowed"] * 2


async def test_shadow_mode_and_a_store_that_fails() -> None:
    class Broken(MemoryStore):
        async def admit(self, *_: object, **__: object) -> Any:
            raise OSError

    bench = Bench(store=Broken())
    answer = await ask(behind(bench, Recorder(), shadow="all"), path="/x", key=bench.key())
    assert (answer.status, bench.names()) == (200, ["store_failed", "shadowed"])


async def test_shadow_mode_does_not_break_endpoints_that_read_the_user() -> None:
    """It refuses no request, so Starlette's unauthenticated user must be there."""
    bench = Bench()

    async def endpoint(request: Request) -> Response:
        return PlainTextResponse(str(request.user.is_authenticated))

    app = behind(bench, Starlette(routes=[Route("/", endpoint)]), shadow="all")
    answer = await ask(app)
    assert (answer.status, answer.body) == (200, b"False")


# --- events ---------------------------------------------------------------------------------


async def test_headers_that_can_be_read_only_once_are_sent() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        headers = iter([(b"x-one", b"1"), (b"X-RateLimit-Limit", b"7"), (b"content-length", b"2")])
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"ok"})

    bench = Bench()
    answer = await ask(behind(bench, app, {"GET /x": "jobs:read"}), path="/x", key=bench.key())
    names = [name for name, _ in answer.start["headers"]]
    assert names[:2] == [b"x-one", b"content-length"]
    assert len(names) == 5


async def test_every_refusal_is_one_event() -> None:
    bench = Bench(rpm=1)
    guarded = behind(bench, Recorder(), {"GET /x": "jobs:read"})
    key = bench.key("models:read")
    (row,) = (await bench.gate.keys.list("org_1")).keys
    for credential in (None, bench.gate.format.generate().text, key, key):
        await ask(guarded, path="/x", key=credential)
    assert bench.names() == ["refused"] * 4
    assert [dict(fields) for fields in bench.fields()] == [
        {
            "code": code,
            "key": row.id if organization else None,
            "plan": "free" if organization else None,
            "window": window,
            "limit_name": None,
            "method": "GET",
            "path": "/x",
            "address": "192.0.2.1",
            "route": "GET /x",
            "wait": 60 if window else None,
            "organization": organization,
            "reason": None,
        }
        for code, organization, window in (
            ("MISSING_AUTH", None, None),
            ("KEY_NOT_FOUND", None, None),
            ("INSUFFICIENT_SCOPE", "org_1", None),
            ("RATE_LIMIT_EXCEEDED", "org_1", "minute"),
        )
    ]


# --- stores that fail -----------------------------------------------------------------------


async def test_g4_a_store_that_fails_is_503_with_the_addresss_headers() -> None:
    class Broken(MemoryStore):
        async def admit(self, *_: object, **__: object) -> Any:
            raise OSError("password=hunter2")

    bench = Bench(store=Broken(), anonymous=7)
    app = Recorder()
    answer = await ask(behind(bench, app), path="/x", key=bench.key())
    assert (answer.status, answer.code) == (503, "STORE_UNAVAILABLE")
    assert answer.all("retry-after") == []
    assert answer.json()["retryAfter"] == 1
    assert answer.rate[:2] == (7, 7)
    assert "hunter2" not in answer.body.decode()
    assert app.scopes == []


# --- addresses ------------------------------------------------------------------------------


async def test_trusted_proxies_from_end_to_end() -> None:
    bench = Bench(anonymous=1, trusted_proxies=["192.0.2.0/24"])
    guarded = behind(bench, Recorder())

    async def status(forwarded: str | None, peer: str = "192.0.2.1") -> int:
        headers = [("x-forwarded-for", forwarded)] if forwarded else []
        answer = await ask(guarded, path="/health", headers=headers, client=(peer, 1))
        return answer.status

    assert await status("198.51.100.1") == 200
    assert await status("203.0.113.9, 198.51.100.1") == 429
    assert await status("198.51.100.1, 192.0.2.7") == 429
    assert await status("198.51.100.2") == 200
    assert await status("198.51.100.3", peer="203.0.113.1") == 200
    assert await status("198.51.100.4", peer="203.0.113.1") == 429
    assert await status(None) == 200
    assert await status("garbage") == 429


async def test_without_trusted_proxies_the_peer_counts() -> None:
    bench = Bench(anonymous=1)
    guarded = behind(bench, Recorder())
    for forwarded, status in (("198.51.100.1", 200), ("198.51.100.2", 429)):
        headers = [("x-forwarded-for", forwarded), ("forwarded", f"for={forwarded}")]
        assert (await ask(guarded, path="/health", headers=headers)).status == status


FORWARDED = ["x-forwarded-for", "forwarded", "x-real-ip"]


@pytest.mark.parametrize("name", FORWARDED)
@pytest.mark.parametrize("path", ["/health", "/x"])
async def test_d24_a_forwarded_header_that_is_ignored_is_reported_once(
    name: str, path: str
) -> None:
    bench = Bench()
    guarded = behind(bench, Recorder())
    for _ in range(3):
        await ask(guarded, path=path, headers=[(name, "198.51.100.1")])
    reported = [event for event in bench.told if event.name == "forwarded_header_ignored"]
    assert [dict(event.fields) for event in reported] == [{"peer": "192.0.2.1"}]


async def test_d24_a_forwarded_header_of_a_trusted_proxy_is_not_reported() -> None:
    bench = Bench(trusted_proxies=["192.0.2.0/24"])
    guarded = behind(bench, Recorder())
    headers = [(name, "198.51.100.1") for name in FORWARDED]
    await ask(guarded, path="/health", headers=headers)
    assert bench.told == []
    await ask(guarded, path="/health", headers=headers, client=("203.0.113.1", 1))
    assert [dict(fields) for fields in bench.fields()] == [{"peer": "203.0.113.1"}]


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
    bench = Bench(trusted_proxies=["192.0.2.0/24"])
    guarded = behind(bench, Recorder())
    for _ in range(3):
        await ask(guarded, path="/health", headers=headers)
    assert bench.names() == ["forwarded_header_missing"]
    assert [dict(fields) for fields in bench.fields()] == [{"peer": "192.0.2.1"}]


async def test_d24_probes_and_other_peers_need_no_forwarded_header() -> None:
    bench = Bench(trusted_proxies=["192.0.2.0/24"], web_options=WebOptions(health="/probes"))
    guarded = behind(bench, Recorder())
    await ask(guarded, path="/probes/live")
    await ask(guarded, path="/health", client=("203.0.113.1", 1))
    assert bench.told == []
    await ask(guarded, path="/health", headers=[("x-forwarded-for", "198.51.100.1")])
    await ask(guarded, path="/health")
    assert bench.told == []


async def test_d24_requests_of_known_keys_are_not_looked_through() -> None:
    """Their address is not asked for; the first request of each key was looked through."""
    bench = Bench()
    guarded, key = behind(bench, Recorder()), bench.key()
    await ask(guarded, path="/x", key=key)
    await ask(guarded, path="/x", key=key, headers=[("x-forwarded-for", "198.51.100.1")])
    assert bench.told == []
    other = bench.key()
    await ask(guarded, path="/x", key=other, headers=[("x-forwarded-for", "198.51.100.1")])
    assert bench.names() == ["forwarded_header_ignored"]


async def test_a_peer_without_an_address() -> None:
    bench = Bench(anonymous=1)
    guarded = behind(bench, Recorder())
    assert [(await ask(guarded, path="/health", client=None)).status for _ in "ab"] == [200, 429]


# --- the budget of an address (D24) ---------------------------------------------------------


class Asked(MemoryStore):
    """Counts how often it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.times = 0

    async def admit(self, *arguments: Any, **fields: Any) -> Any:
        self.times += 1
        return await super().admit(*arguments, **fields)


async def spend(bench: Bench, guarded: ASGIApp) -> None:
    for _ in range(3):
        await ask(guarded, path="/x")
    assert (await ask(guarded, path="/x")).status == 429


async def test_d24_a_spent_address_is_refused_before_the_store_is_asked() -> None:
    store = Asked()
    bench = Bench(store=store, anonymous=3)
    guarded = behind(bench, Recorder())
    key = bench.key()
    await spend(bench, guarded)
    for credential in (None, bench.gate.format.generate().text, key):
        answer = await ask(guarded, path="/x", key=credential)
        assert (answer.status, answer.code) == (429, "RATE_LIMIT_EXCEEDED")
        assert answer.rate[:2] == (3, 0)
    assert store.times == 0
    elsewhere = await ask(guarded, path="/x", key=key, client=("192.0.2.2", 1))
    assert elsewhere.status == 200
    bench.clock.now += MINUTE
    assert (await ask(guarded, path="/x", key=key)).status == 200


async def test_d24_keys_that_are_tried_at_once_count_while_they_are_looked_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else all would reach the store that come before the first one has failed."""
    store = Asked()
    bench = Bench(store=store, anonymous=3)
    guarded = behind(bench, Recorder())
    admit, answered = bench.gate.admit_header, asyncio.Event()

    async def slowly(*args: Any) -> Principal:
        await answered.wait()
        return await admit(*args)

    monkeypatch.setattr(bench.gate, "admit_header", slowly)
    keys = [bench.gate.format.generate().text for _ in range(10)]
    asking = asyncio.gather(*(ask(guarded, path="/x", key=key) for key in keys))
    for _ in range(10):
        await asyncio.sleep(0)
    answered.set()
    assert Counter(answer.status for answer in await asking) == {401: 3, 503: 7}
    assert store.times == 3
    assert (await ask(guarded, path="/x", key=keys[0])).status == 429
    bench.clock.now += MINUTE
    key = bench.key()
    answers = await asyncio.gather(*(ask(guarded, path="/x", key=key) for _ in range(3)))
    assert [answer.status for answer in answers] == [200] * 3


async def test_d24_a_recently_admitted_key_is_admitted_from_a_spent_address() -> None:
    store = Asked()
    bench = Bench(store=store, anonymous=3)
    guarded = behind(bench, Recorder())
    key = bench.key()
    assert (await ask(guarded, path="/x", key=key)).status == 200
    await spend(bench, guarded)
    assert [(await ask(guarded, path="/x", key=key)).status for _ in range(3)] == [200] * 3
    assert store.times == 4


async def test_d24_a_wrong_secret_with_the_same_handle_is_not_exempted() -> None:
    from lockgate.core.key_format import KeyFormat

    store = Asked()
    bench = Bench(store=store, anonymous=3)
    guarded = behind(bench, Recorder())
    key = bench.key()
    await ask(guarded, path="/x", key=key)
    await spend(bench, guarded)
    handle = key.split("_")[2]
    forged = KeyFormat("acme", draw=lambda n: handle if n == 8 else "r" * n).generate().text
    assert (await ask(guarded, path="/x", key=forged)).status == 429
    assert store.times == 1


async def test_d24_a_revoked_key_is_exempted_no_longer() -> None:
    store = Asked()
    bench = Bench(store=store, anonymous=4)
    guarded = behind(bench, Recorder())
    key = bench.key()
    await ask(guarded, path="/x", key=key)
    bench.revoke(key)
    assert (await ask(guarded, path="/x", key=key)).code == "KEY_REVOKED"
    await spend(bench, guarded)
    asked = store.times
    assert (await ask(guarded, path="/x", key=key)).status == 429
    assert store.times == asked


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


async def test_cancellation_reaches_the_running_application_and_leaks_no_slot() -> None:
    bench = Bench()
    started, cancelled = asyncio.Event(), threading.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    guarded, key = behind(bench, app), bench.key()
    task = asyncio.create_task(ask(guarded, key=key))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cancelled.is_set()
    assert bench.used() == 1
    assert (await ask(behind(bench, Recorder()), key=key)).rate[:2] == (1000, 998)


# --- reading bodies -------------------------------------------------------------------------


async def test_a_body_is_read_whole_up_to_the_limit() -> None:
    line = Line(body_messages([b"ab", b"", b"cd"]))
    assert await body_reader(line.receive)(4) == b"abcd"


async def test_a_body_over_the_limit_is_not_read_on() -> None:
    line = Line(body_messages([b"ab", b"cd", b"e", b"f", b"g"]))
    with pytest.raises(Refusal, match="at most 4 bytes"):
        await body_reader(line.receive)(4)
    assert line.received == 3


async def test_messages_without_fields_are_empty_and_last() -> None:
    assert await body_reader(Line([{"type": "http.request"}]).receive)(4) == b""


# --- WebSockets, by hand --------------------------------------------------------------------

CONNECT: Message = {"type": "websocket.connect"}


async def socket(app: ASGIApp, path: str = "/", **scoped: Any) -> Line:
    line = Line([CONNECT])
    await app(websocket_scope(path, **scoped), line.receive, line.send)
    return line


async def accepting(scope: Scope, receive: Receive, send: Send) -> None:
    assert (await receive())["type"] == "websocket.connect"
    await send({"type": "websocket.accept", "headers": [(b"x-ratelimit-limit", b"666")]})
    await send({"type": "websocket.close", "code": 1000})


async def test_d32_an_accepted_handshake_carries_the_headers() -> None:
    bench = Bench()
    line = await socket(behind(bench, accepting), key=bench.key())
    accept, close = line.sent
    headers = dict(accept["headers"])
    assert (headers[b"x-ratelimit-limit"], headers[b"x-ratelimit-remaining"]) == (b"1000", b"999")
    assert len(accept["headers"]) == 3
    assert close == {"type": "websocket.close", "code": 1000}
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
    guarded = behind(bench, accepting, {"GET /feed": "jobs:read"})
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


async def test_a_refusal_of_a_websocket_application_denies_the_handshake() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise NotFound

    bench = Bench()
    answer = Answer((await socket(behind(bench, app), key=bench.key())).sent)
    assert (answer.status, answer.rate[:2]) == (404, (1000, 999))


async def test_a_socket_is_refused_after_the_application_received_the_connect() -> None:
    """It must not wait for a second one: the client is waiting too."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        raise NotFound

    bench = Bench()
    answer = Answer((await socket(behind(bench, app), key=bench.key())).sent)
    assert answer.status == 404


async def test_an_application_without_a_lifespan_is_flushed_at_the_end_all_the_same() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise ValueError("as Django does: only http is known")

    bench = Bench()
    bench.gate.events.admit("free")
    line = Line([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])
    guarded = GateMiddleware(app, bench.gate)
    await guarded({"type": "lifespan", "asgi": {}}, line.receive, line.send)
    assert [message["type"] for message in line.sent] == [
        "lifespan.startup.complete",
        "lifespan.shutdown.complete",
    ]
    assert bench.names() == ["admitted"]


async def test_a_failure_of_the_application_at_startup_is_raised() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        raise ZeroDivisionError

    line = Line([{"type": "lifespan.startup"}])
    with pytest.raises(ZeroDivisionError):
        await GateMiddleware(app, Bench().gate)(
            {"type": "lifespan", "asgi": {}}, line.receive, line.send
        )
    assert line.sent == []


def test_startup_fails_in_an_event_loop_that_is_not_asyncios() -> None:
    """As under Hypercorn's trio worker, where a hung store would stop every request."""
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "lifespan.startup"}

    async def send(message: Message) -> None:
        sent.append(message)

    app = GateMiddleware(Recorder(), Bench().gate)
    with pytest.raises(ConfigurationError, match="--worker-class asyncio"):
        run(app({"type": "lifespan", "asgi": {"version": "3.0"}}, receive, send))
    assert [message["type"] for message in sent] == ["lifespan.startup.failed"]
    assert "--worker-class asyncio" in sent[0]["message"]


@pytest.mark.parametrize(
    ("refusal", "code"), [(RateLimitExceeded("minute", 1, 1, 1), 1008), (SlotLost(), 1013)]
)
async def test_a_refusal_after_the_accept_closes_the_websocket(refusal: Refusal, code: int) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        raise refusal

    bench = Bench()
    sent = (await socket(behind(bench, app), key=bench.key())).sent
    assert sent[1:] == [{"type": "websocket.close", "code": code, "reason": refusal.code}]


async def test_a_refusal_after_the_close_of_a_websocket_sends_nothing_more() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.close", "code": 1000})
        raise SlotLost

    bench = Bench()
    sent = (await socket(behind(bench, app), key=bench.key())).sent
    assert [message.get("code") for message in sent] == [None, 1000]


async def test_d24_a_handshake_that_the_application_declines_carries_the_headers() -> None:
    """``websocket.close`` before the accept: the server's own 403 would carry none."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "websocket.close", "code": 1000})

    bench = Bench()
    answer = Answer((await socket(behind(bench, app), key=bench.key())).sent)
    assert (answer.status, answer.rate[:2]) == (403, (1000, 999))


async def test_a_denial_of_the_applications_own_carries_the_headers() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "websocket.http.response.start", "status": 403, "headers": []})
        await send({"type": "websocket.http.response.body", "body": b"no"})

    bench = Bench()
    answer = Answer((await socket(behind(bench, app), key=bench.key())).sent)
    assert (answer.status, answer.rate[:2]) == (403, (1000, 999))
    assert answer.one("cache-control") == "no-store"


async def test_the_same_gate_behind_several_middlewares_is_one_gate() -> None:
    bench = Bench()
    one, two = behind(bench, Recorder()), behind(bench, Recorder())
    key = bench.key()
    await ask(one, key=key)
    assert (await ask(two, key=key)).rate[:2] == (1000, 998)
    assert isinstance(bench.gate, Gate)


@pytest.mark.parametrize("around", [False, True])
async def test_g3_a_refusal_is_answered_without_error_handlers(around: bool) -> None:
    """Starlette turns unhandled exceptions into 500 before the middleware sees them."""

    async def raising(request: Request) -> Response:
        request.state.principal.need("account:write")
        raise AssertionError("it lacks that")

    bench = Bench()
    service = Starlette(routes=[Route("/x", raising)])
    inner: ASGIApp = CORSMiddleware(service) if around else service
    key = bench.key("jobs:read")
    refused = await ask(GateMiddleware(inner, bench.gate), path="/x", key=key)
    assert (refused.status, refused.code) == (403, "INSUFFICIENT_SCOPE")
    assert len(refused.rate) == 3


@pytest.mark.parametrize("caught", [Refusal, LockgateError])
async def test_an_applications_own_handler_stays(caught: type[Exception]) -> None:
    async def raising(_: Request) -> Response:
        raise NotFound

    async def own(_: Request, error: Exception) -> Response:
        return PlainTextResponse(type(error).__name__, 418)

    bench = Bench()
    service = Starlette(routes=[Route("/x", raising)], exception_handlers={caught: own})
    answer = await ask(GateMiddleware(service, bench.gate), path="/x", key=bench.key())
    assert (answer.status, answer.body) == (418, b"NotFound")


# --- requests as servers pass them on (D31) --------------------------------------------------


@pytest.mark.parametrize("prefix", [b"/api", b"/%61pi", b"/ap%69"])
async def test_d31_an_encoded_slash_below_a_prefix_is_held_to_its_own_reading(
    prefix: bytes,
) -> None:
    """An application that routes by the path on the wire takes a%2fb for one segment."""
    bench, app = Bench(), Recorder()
    rules = {"GET /files/{name}": "upload:read", "GET /{p:path}": PUBLIC}
    guarded = behind(bench, app, rules)
    raw = prefix + b"/files/a%2fb"
    answer = await ask(guarded, path="/api/files/a/b", root_path="/api", raw_path=raw)
    assert answer.status == 401
    assert app.scopes == []


@pytest.mark.parametrize(
    ("template", "host"),
    [("{shop:int}.example", "x.example"), ("{shop:str}.example", "a.b.example")],
)
@pytest.mark.parametrize("weak", [True, False])
async def test_d31_a_converter_in_a_host_opens_no_other_route(
    template: str, host: str, weak: bool
) -> None:
    bench = Bench()
    reached: list[str] = []

    def said(name: str) -> Any:
        async def endpoint(_: Request) -> Response:
            reached.append(name)
            return PlainTextResponse(name)

        return endpoint

    shop = Router([Route("/orders", said("shop"))])
    app = Starlette(routes=[Host(template, shop), Route("/orders", said("main"))])
    public: Rule | str = PUBLIC if weak else "account:write"
    rules = {"GET {shop}.example/orders": public, "GET /orders": "models:read"}
    guarded = behind(bench, app, rules)
    key = None if weak else bench.key("models:read")
    answer = await ask(guarded, path="/orders", key=key, headers=[("host", host)])
    assert answer.status in (401, 403, 404)
    assert reached == []
    assert (await ask(guarded, path="/orders", headers=[("host", "7.example")])).status == (
        200 if weak else 401
    )


def test_a_request_under_trio_names_the_library_that_lockgate_needs() -> None:
    """AnyIO's plugin runs each test on both libraries where trio is installed."""

    async def said(_: Request) -> Response:
        return PlainTextResponse("said")

    bench = Bench()
    app = starlette_protect(Starlette(routes=[Route("/jobs", said)]), bench.gate)
    good = {"Authorization": f"Bearer {bench.key()}"}

    async def statuses() -> list[int]:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return [(await client.get("/jobs", headers=h)).status_code for h in ({}, good)]

    assert asyncio.run(statuses()) == [401, 200]
    with pytest.raises(ConfigurationError, match=r"needs asyncio.*anyio_backend"):
        trio.run(statuses)
