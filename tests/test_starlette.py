"""What the Starlette adapter does itself: operations as routes, decorators, error bodies.

tests/web holds what the guard decides, tests/web/test_protect.py what is alike on every framework,
test_operations_alone.py the operations without a middleware.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.authentication import requires as starlette_requires
from starlette.endpoints import HTTPEndpoint
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route, WebSocketRoute
from starlette.types import ASGIApp
from starlette.websockets import WebSocket

from lockgate import PUBLIC, ConfigurationError, Gate, MemoryStore, Rule
from lockgate.asgi import GateMiddleware
from lockgate.errors import KeyLimitReached, NotFound
from lockgate.options import WebOptions
from lockgate.starlette import error_handlers, operations, requires
from lockgate.stores.base import IoMode
from lockgate.web.shadow import Shadow

from .web.driving import Answer, Bench, Line, ask, http_scope, websocket_scope

KEYS = "/api/v1/api-keys"
EVIL = [("origin", "https://evil.example")]


def plain(text: str = "ok") -> Any:
    async def endpoint(_: Request) -> Response:
        return PlainTextResponse(text)

    return endpoint


def raising(error: Exception) -> Any:
    async def endpoint(_: Request) -> Response:
        raise error

    return endpoint


def behind(
    bench: Bench, routes: Iterable[BaseRoute], rules: Any = None, **fields: Any
) -> GateMiddleware:
    app = Starlette(routes=list(routes), exception_handlers=error_handlers)
    return GateMiddleware(app, bench.gate, rules, **fields)


def guarded(bench: Bench, **fields: Any) -> ASGIApp:
    return behind(bench, operations(bench.gate), **fields)


@pytest.fixture
def bench() -> Bench:
    return Bench()


# --- the operations behind a middleware ------------------------------------------------------


def test_the_rules_of_the_operations_are_lockgates_own(bench: Bench) -> None:
    GateMiddleware(Starlette(), Gate(brand="acme"), {f"GET {KEYS}": "jobs:read"})
    for path in (KEYS, f"{KEYS}/{{key}}"):
        with pytest.raises(ConfigurationError, match="api-keys"):
            GateMiddleware(Starlette(), bench.gate, {f"GET {path}": PUBLIC})


@pytest.mark.parametrize(("prefix", "other"), [("/v7", 404), ("", 404)])
async def test_d37_the_prefix_is_one_parameter(prefix: str, other: int) -> None:
    bench = Bench(web_options=WebOptions(prefix=prefix))
    app = guarded(bench)
    assert (await ask(app, path=f"{prefix}/api-keys", key=bench.key())).status == 200
    assert (await ask(app, path=KEYS, key=bench.key())).status == other


@pytest.mark.parametrize("rules", [None, {"* /v2/{rest:path}": Rule()}, {"* /v2/{r:path}": PUBLIC}])
@pytest.mark.parametrize("shadow", [None, "all"])
async def test_operations_mounted_where_the_guard_has_no_rule_are_closed_to_sessions(
    bench: Bench, rules: Any, shadow: Shadow | None
) -> None:
    app = behind(bench, [Mount("/v2", routes=operations(bench.gate))], rules, shadow=shadow)
    session, poor, body = bench.session(), bench.key("models:read"), {"name": "x"}
    callers: list[dict[str, Any]] = [{}, {"key": poor}, {"session": session, "headers": EVIL}]
    if not shadow and (rules is None or PUBLIC not in rules.values()):
        callers += [{"session": session}, {"key": poor, "session": session}]
    for caller in callers:
        created = await ask(app, "POST", f"/v2{KEYS}", json_body=body, **caller)
        assert created.status in ({401, 403} if "headers" in caller else {401})
    assert (await ask(app, "GET", f"/v2{KEYS}")).status == 401
    assert (await ask(app, "GET", f"/v2{KEYS}", key=poor)).status in (401, 403)
    assert len((await bench.gate.keys.list("org_1")).keys) == 1


async def test_shadow_mode_leaves_the_operations_closed() -> None:
    bench = Bench(rpm=3)
    app = guarded(bench, shadow="all")
    assert (await ask(app, "POST", KEYS, json_body={"name": "x"})).status == 401
    assert (await ask(app, "GET", KEYS)).status == 401
    poor = bench.key("models:read")
    statuses = [(await ask(app, "GET", KEYS, key=poor)).status for _ in range(4)]
    assert statuses == [403, 403, 403, 429]
    assert set(bench.names()) == {"refused"}


# --- bodies and failures ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("messages", "statuses"),
    [
        ([b'{"na', b'me": ', b"", b'"in chunks"}'], [201]),
        ([b"x" * 60_000] * 9, [413]),
        ([b'{"name"', None], []),
        ([b"[" * 60_000], [400]),
    ],
    ids=["in chunks", "too large", "a client that leaves", "not JSON"],
)
async def test_a_body_is_read_as_it_comes_and_no_further(
    bench: Bench, messages: list[bytes | None], statuses: list[int]
) -> None:
    last = len(messages) - 1
    line = Line(
        {"type": "http.disconnect"}
        if part is None
        else {"type": "http.request", "body": part, "more_body": number < last}
        for number, part in enumerate(messages)
    )
    headers = [("cookie", f"__session={bench.session()}"), ("content-type", "application/json")]
    await guarded(bench)(http_scope("POST", KEYS, headers=headers), line.receive, line.send)
    assert [sent["status"] for sent in line.sent if "status" in sent] == statuses
    assert line.received <= (2 if 413 in statuses else 4)
    assert len((await bench.gate.keys.list("org_1")).keys) == statuses.count(201)


async def test_g4_a_store_that_fails_in_an_operation_is_503() -> None:
    class Broken(MemoryStore):
        async def list(self, organization: str, limit: int, after: Any = None) -> Any:
            raise OSError("password=hunter2")

    bench = Bench(store=Broken())
    answer = await ask(guarded(bench), path=KEYS, key=bench.key())
    assert (answer.status, answer.code, answer.rate[:2]) == (503, "STORE_UNAVAILABLE", (1000, 999))
    assert "hunter2" not in answer.body.decode()


async def test_g4_an_identity_provider_that_fails_is_503() -> None:
    class Broken:
        io: IoMode = "none"

        async def verify(self, cookie: str) -> None:
            raise TimeoutError("jwks")

    bench = Bench(sessions=Broken())
    for method in ("GET", "POST"):
        answer = await ask(guarded(bench), method, KEYS, session="x", json_body={"name": "x"})
        assert (answer.status, len(answer.rate)) == (503, 3)


# --- @requires ------------------------------------------------------------------------------


@requires("jobs:write")
async def in_the_loop(request: Request) -> Response:
    return PlainTextResponse("loop")


@requires("jobs:write")
def in_a_thread(request: Request) -> Response:
    return PlainTextResponse("thread")


class Endpoint(HTTPEndpoint):
    @requires("jobs:write")
    async def get(self, request: Request) -> Response:
        return PlainTextResponse("class")


@requires("jobs:write")
async def over_a_socket(websocket: WebSocket) -> None:
    await websocket.accept()
    await websocket.close()


async def by_hand(websocket: WebSocket) -> None:
    websocket.state.principal.need("jobs:write")
    await websocket.accept()
    await websocket.close()


DECORATED = [
    Route("/loop", in_the_loop),
    Route("/thread", in_a_thread),
    Route("/class", Endpoint),
    WebSocketRoute("/socket", over_a_socket),
    WebSocketRoute("/by-hand", by_hand),
]


@pytest.mark.parametrize("path", ["/loop", "/thread", "/class"])
async def test_requires_admits_the_scope_and_refuses_another(bench: Bench, path: str) -> None:
    app = behind(bench, DECORATED, {f"GET {path}": Rule()})
    assert (await ask(app, path=path, key=bench.key("jobs:*"))).body.decode() == path[1:]
    refused = await ask(app, path=path, key=bench.key("models:read"))
    assert (refused.status, refused.code) == (403, "INSUFFICIENT_SCOPE")
    assert 'scope="jobs:write"' in refused.one("www-authenticate")
    assert refused.one("content-type") == "application/json"
    assert refused.one("content-length") == str(len(refused.body))
    assert refused.one("cache-control") == "no-store"
    assert refused.rate[:2] == (1000, 998)
    with pytest.raises(ConfigurationError, match=f"GET {path}' is <Rule: public>, and its endpo"):
        await ask(behind(bench, DECORATED, {f"GET {path}": PUBLIC}), path=path)
    with pytest.raises(ConfigurationError, match=r"No gate .* call protect\(app, gate\)"):
        await ask(Starlette(routes=DECORATED), path=path, key=bench.key())


@pytest.mark.parametrize("path", ["/socket", "/by-hand"])
@pytest.mark.parametrize(
    ("scope", "denial", "kinds"),
    [
        ("jobs:write", True, ["websocket.accept", "websocket.close"]),
        ("models:read", True, ["websocket.http.response.start", "websocket.http.response.body"]),
        ("models:read", False, ["websocket.close"]),
    ],
)
async def test_a_websocket_endpoint_that_requires_a_scope_denies_the_handshake(
    bench: Bench, path: str, scope: str, denial: bool, kinds: list[str]
) -> None:
    """``error_handlers`` answer HTTP only: the handshake must not be left without an answer."""
    line = Line([{"type": "websocket.connect"}])
    asked = websocket_scope(path, key=bench.key(scope), denial=denial)
    await asyncio.wait_for(behind(bench, DECORATED)(asked, line.receive, line.send), 60)
    assert [message["type"] for message in line.sent] == kinds
    if len(kinds) == 1:
        assert line.sent[0]["code"] == 1008
    elif scope == "models:read":
        assert (Answer(line.sent).status, len(Answer(line.sent).rate)) == (403, 3)


async def test_requires_wants_an_exact_scope_and_a_function_that_takes_the_request() -> None:
    for scope in ("jobs:*", "*", ""):
        with pytest.raises(ConfigurationError, match="one exact scope"):
            requires(scope)

    @requires("jobs:write")
    async def blind() -> None: ...

    with pytest.raises(ConfigurationError, match="takes the request"):
        await blind()
    assert (in_the_loop.__name__, in_a_thread.__name__) == ("in_the_loop", "in_a_thread")


# --- Starlette's own ------------------------------------------------------------------------


@starlette_requires("jobs:read")
async def starlettes(request: Request) -> Response:
    user = request.user
    assert request.state.principal is user
    return PlainTextResponse(f"{user.is_authenticated} {user.display_name} {user.identity}")


@starlette_requires(["jobs:read", "models:read"])
def starlettes_both(request: Request) -> Response:
    return PlainTextResponse("both")


@pytest.mark.parametrize(
    ("scopes", "one", "two"),
    [
        (("*",), 200, 200),
        (("jobs:*",), 200, 403),
        (("jobs:*", "models:*"), 200, 200),
        (("jobs:read", "models:read"), 200, 200),
        (("models:read",), 403, 403),
        (("jobs:write",), 403, 403),
    ],
)
async def test_starlettes_requires_understands_wildcards(
    bench: Bench, scopes: tuple[str, ...], one: int, two: int
) -> None:
    app = behind(bench, [Route("/one", starlettes), Route("/two", starlettes_both)])
    key = bench.key(*scopes)
    first = await ask(app, path="/one", key=key)
    assert (first.status, (await ask(app, path="/two", key=key)).status) == (one, two)
    if one == 200:
        (row,) = (await bench.gate.keys.list("org_1")).keys
        assert first.body.decode() == f"True a key {row.id}"


@pytest.mark.parametrize("shadow", [None, "all"])
async def test_g3_starlettes_requires_without_a_key_refuses_and_does_not_crash(
    bench: Bench, shadow: Shadow | None
) -> None:
    """A public route, or what shadow mode lets through: refused at most, never a crash."""
    rules = {"GET /one": Rule() if shadow else PUBLIC}
    app = behind(bench, [Route("/one", starlettes)], rules, shadow=shadow)
    assert (await ask(app, path="/one")).status in (401, 403)


# --- errors ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "status", "told"),
    [
        (KeyLimitReached(3), 409, b'"code":"KEY_LIMIT_REACHED"'),
        (NotFound(), 404, b'"code":"NOT_FOUND"'),
        (HTTPException(418, "short and stout", {"x-own": "7"}), 418, b"short and stout"),
        (HTTPException(304, headers={"x-own": "7"}), 304, b""),
        (HTTPException(404, "There is no job 7.", {"x-own": "7"}), 404, b"There is no job 7."),
        (HTTPException(405), 405, b'"code":"METHOD_NOT_ALLOWED"'),
    ],
    ids=repr,
)
async def test_exceptions_of_an_endpoint_keep_status_and_headers(
    bench: Bench, error: Exception, status: int, told: bytes
) -> None:
    """The router's own 404 and 405 are to look like lockgate's, these are the application's."""
    answer = await ask(behind(bench, [Route("/x", raising(error))]), path="/x", key=bench.key())
    assert (answer.status, len(answer.rate)) == (status, 3)
    assert answer.all("x-own") == (["7"] if "x-own" in repr(vars(error)) else [])
    assert told in answer.body
    assert b": use ." not in answer.body


async def test_the_routers_404_and_405_have_the_error_form(bench: Bench) -> None:
    app = behind(bench, [Route("/x", plain(), methods=["GET", "PUT"])])
    answer = await ask(app, "POST", "/x", key=bench.key())
    assert (answer.status, answer.code) == (405, "METHOD_NOT_ALLOWED")
    assert answer.one("allow") == "GET, HEAD, PUT"
    assert (await ask(app, path="/nowhere/at/all", key=bench.key())).code == "NOT_FOUND"


async def test_inside_the_applications_middleware_stack(bench: Bench) -> None:
    app = Starlette(
        routes=[Route("/health", plain()), Route("/x", plain()), *operations(bench.gate)],
        middleware=[Middleware(GateMiddleware, bench.gate, {"GET /health": PUBLIC})],
        exception_handlers=error_handlers,
    )
    assert (await ask(app, path="/health")).rate[:2] == (1000, 999)
    assert (await ask(app, path="/x")).status == 401
    assert (await ask(app, path="/x", key=bench.key())).status == 200
    assert (await ask(app, path=KEYS, key=bench.key("models:read"))).status == 403
    assert bench.used() == 2
