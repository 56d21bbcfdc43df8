"""lockgate's operations on Starlette, the decorator for scopes, Starlette's own, error bodies."""

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
from starlette.types import ASGIApp, Message
from starlette.websockets import WebSocket

from lockgate import PUBLIC, ConfigurationError, Gate, MemoryStore, Rule
from lockgate.asgi import GateMiddleware
from lockgate.errors import KeyLimitReached, NotFound
from lockgate.options import WebOptions
from lockgate.starlette import error_handlers, operations, requires
from lockgate.stores.base import IoMode
from lockgate.web.shadow import Shadow

from .web.driving import ORIGIN, Answer, Bench, Line, ask, http_scope, websocket_scope

KEYS = "/api/v1/api-keys"
STATUS = "/api/v1/account/rate-limits"


async def test_the_gates_of_the_operations_log_no_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each stands before one route that it knows: no audit is missing."""
    bench = Bench()
    app = Starlette(routes=operations(bench.gate))
    assert (await ask(app, path=KEYS, key=bench.key())).status == 200
    assert not [record.getMessage() for record in caplog.records if record.name == "lockgate"]


def plain(text: str = "ok") -> Any:
    async def endpoint(_: Request) -> Response:
        return PlainTextResponse(text)

    return endpoint


def bare(bench: Bench) -> Starlette:
    """The operations with no middleware in front."""
    return Starlette(routes=[*operations(bench.gate)], exception_handlers=error_handlers)


def behind(
    bench: Bench, routes: Iterable[BaseRoute], rules: Any = None, **fields: Any
) -> GateMiddleware:
    app = Starlette(routes=list(routes), exception_handlers=error_handlers)
    return GateMiddleware(app, bench.gate, rules, **fields)


def guarded(bench: Bench, **fields: Any) -> ASGIApp:
    return behind(bench, operations(bench.gate), **fields)


# --- the operations, with and without a middleware in front ----------------------------------


@pytest.mark.parametrize("build", [bare, guarded])
async def test_the_whole_life_of_a_key(build: Any) -> None:
    bench = Bench()
    app, session = build(bench), bench.session()
    created = await ask(app, "POST", KEYS, session=session, json_body={"name": "mine"})
    assert (created.status, created.rate[:2]) == (201, (1000, 999))
    assert created.one("cache-control") == "no-store"
    key, id = created.json()["key"], created.json()["id"]
    listed = await ask(app, "GET", KEYS, key=key)
    assert [entry["id"] for entry in listed.json()["data"]] == [id]
    assert listed.rate[1] == 998
    detail = (await ask(app, "GET", f"{KEYS}/{id.upper()}", session=session)).json()["data"]
    assert (detail["organizationId"], detail["requestCount"]) == ("org_1", 1)
    status = (await ask(app, "GET", STATUS, key=key)).json()
    assert status["usage"]["minute"] == {"used": 4, "limit": 1000}
    gone = await ask(app, "DELETE", f"{KEYS}/{id}", key=key)
    assert (gone.status, gone.json()["success"]) == (200, True)
    refused = await ask(app, "GET", KEYS, key=key)
    assert (refused.status, refused.code) == (401, "KEY_REVOKED")
    assert bench.used() == 5


@pytest.mark.parametrize("build", [bare, guarded])
@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", KEYS, "MISSING_AUTH"),
        ("POST", KEYS, "SESSION_REQUIRED"),
        ("GET", f"{KEYS}/x", "MISSING_AUTH"),
        ("DELETE", f"{KEYS}/x", "MISSING_AUTH"),
        ("GET", STATUS, "MISSING_AUTH"),
        ("PUT", KEYS, "MISSING_AUTH"),
    ],
)
async def test_no_operation_is_admitted_without_a_credential(
    build: Any, method: str, path: str, code: str
) -> None:
    bench = Bench()
    answer = await ask(build(bench), method, path)
    assert (answer.status, answer.code, answer.rate[:2]) == (401, code, (1000, 999))


@pytest.mark.parametrize("build", [bare, guarded])
async def test_d9_a_key_revokes_itself_and_for_others_it_needs_account_write(build: Any) -> None:
    bench = Bench()
    app = build(bench)
    poor, other = bench.key("account:read"), bench.key("models:read")
    ids = {key.prefix: key.id for key in (await bench.gate.keys.list("org_1")).keys}
    refused = await ask(app, "DELETE", f"{KEYS}/{ids[other[:15]]}", key=poor)
    assert (refused.status, refused.code) == (403, "INSUFFICIENT_SCOPE")
    assert (await ask(app, "DELETE", f"{KEYS}/{ids[other[:15]].upper()}", key=other)).status == 200
    assert (await ask(app, "DELETE", f"{KEYS}/{ids[poor[:15]]}", key=poor)).status == 200
    assert [key.revoked_at for key in (await bench.gate.keys.list("org_1")).keys] == [
        bench.clock.now
    ] * 2


@pytest.mark.parametrize("build", [bare, guarded])
async def test_no_key_creates_a_key(build: Any) -> None:
    bench = Bench()
    answer = await ask(build(bench), "POST", KEYS, key=bench.key(), json_body={"name": "x"})
    assert (answer.status, answer.code) == (401, "SESSION_REQUIRED")


@pytest.mark.parametrize("build", [bare, guarded])
@pytest.mark.parametrize(
    "headers",
    [
        [("origin", "https://evil.example")],
        [("origin", "null")],
        [("origin", ORIGIN), ("origin", ORIGIN)],
        [("sec-fetch-site", "cross-site")],
        [("sec-fetch-site", "same-site")],
        [("sec-fetch-site", "same-origin"), ("origin", "https://evil.example")],
        [("origin", ORIGIN + "."), ("host", "console.example.com.")],
    ],
)
async def test_r5_no_other_site_writes_with_a_session(
    build: Any, headers: list[tuple[str, str]]
) -> None:
    bench = Bench()
    app, session = build(bench), bench.session()
    answer = await ask(app, "POST", KEYS, session=session, headers=headers, json_body={"name": "x"})
    assert (answer.status, answer.code) == (403, "CROSS_SITE_REQUEST")
    assert (await bench.gate.keys.list("org_1")).keys == []
    assert bench.used() == 0
    read = await ask(app, "GET", KEYS, session=session, headers=headers)
    assert read.status == 200


@pytest.mark.parametrize("build", [bare, guarded])
async def test_d17_wrong_methods_name_the_right_ones(build: Any) -> None:
    bench = Bench()
    answer = await ask(build(bench), "PUT", KEYS, key=bench.key())
    assert (answer.status, answer.one("allow")) == (405, "GET, HEAD, POST")
    answer = await ask(build(bench), "PATCH", f"{KEYS}/x", key=bench.key())
    assert (answer.status, answer.one("allow")) == (405, "DELETE, GET, HEAD")


async def test_the_operations_cannot_be_mounted_without_sessions() -> None:
    with pytest.raises(ConfigurationError, match=r"sessions=SignedCookie"):
        operations(Gate(brand="acme"))


async def test_without_sessions_no_rule_is_taken() -> None:
    gate = Gate(brand="acme")
    GateMiddleware(Starlette(), gate, {f"GET {KEYS}": "jobs:read"})


def test_rules_for_lockgates_own_operations_are_refused() -> None:
    bench = Bench()
    for key in (f"GET {KEYS}", f"GET {KEYS}/{{key}}"):
        with pytest.raises(ConfigurationError, match="api-keys"):
            GateMiddleware(Starlette(), bench.gate, {key: PUBLIC})


async def test_d37_the_prefix_is_one_parameter() -> None:
    bench = Bench(web_options=WebOptions(prefix="/v7"))
    app = guarded(bench)
    assert (await ask(app, path="/v7/api-keys", key=bench.key())).status == 200
    assert (await ask(app, path=KEYS, key=bench.key())).status == 404
    bench = Bench(web_options=WebOptions(prefix=""))
    assert (await ask(guarded(bench), path="/api-keys", key=bench.key())).status == 200


@pytest.mark.parametrize("rules", [None, {"* /v2/{rest:path}": Rule()}])
async def test_operations_mounted_where_the_guard_has_no_rule_are_closed_to_sessions(
    rules: Any,
) -> None:
    bench = Bench()
    app = behind(bench, [Mount("/v2", routes=operations(bench.gate))], rules)
    session, poor = bench.session(), bench.key("models:read")
    body = {"name": "x"}
    created = await ask(app, "POST", f"/v2{KEYS}", key=poor, session=session, json_body=body)
    assert created.status == 401
    assert (await ask(app, "POST", f"/v2{KEYS}", session=session, json_body=body)).status == 401
    assert (await ask(app, "POST", f"/v2{KEYS}", json_body=body)).status == 401
    assert (await ask(app, "GET", f"/v2{KEYS}")).status == 401
    assert (await ask(app, "GET", f"/v2{KEYS}", key=poor)).status == 403
    assert (await ask(app, "GET", f"/v2{STATUS}", key=bench.key("account:read"))).status == 200
    assert len((await bench.gate.keys.list("org_1")).keys) == 2


async def test_operations_mounted_below_a_public_rule_stay_closed() -> None:
    bench = Bench()
    app = behind(
        bench,
        [Mount("/v2", routes=operations(bench.gate))],
        {"* /v2/{rest:path}": PUBLIC},
    )
    body, evil = {"name": "x"}, [("origin", "https://evil.example")]
    assert (await ask(app, "POST", f"/v2{KEYS}", json_body=body)).status == 401
    assert (await ask(app, "POST", f"/v2{KEYS}", key=bench.key(), json_body=body)).status == 401
    foreign = await ask(
        app, "POST", f"/v2{KEYS}", session=bench.session(), headers=evil, json_body=body
    )
    assert foreign.status in (401, 403)
    assert (await ask(app, "GET", f"/v2{KEYS}")).status == 401
    assert (await ask(app, "GET", f"/v2{KEYS}", key=bench.key("models:read"))).status in (401, 403)
    assert len((await bench.gate.keys.list("org_1")).keys) == 2


async def test_operations_mounted_deeper_without_a_middleware_are_guarded() -> None:
    bench = Bench()
    app = Starlette(routes=[Mount("/v2", routes=operations(bench.gate))])
    path = f"/v2{KEYS}"
    assert (await ask(app, path=path)).status == 401
    assert (await ask(app, path=path, key=bench.key("models:read"))).status == 403
    assert (await ask(app, path=path, key=bench.key())).status == 200
    evil = [("origin", "https://evil.example")]
    answer = await ask(
        app, "POST", path, session=bench.session(), headers=evil, json_body={"name": "x"}
    )
    assert answer.status == 403


async def test_shadow_mode_leaves_the_operations_closed() -> None:
    bench = Bench(rpm=3)
    app = guarded(bench, shadow="all")
    assert (await ask(app, "POST", KEYS, json_body={"name": "x"})).status == 401
    assert (await ask(app, "GET", KEYS)).status == 401
    poor = bench.key("models:read")
    statuses = [(await ask(app, "GET", KEYS, key=poor)).status for _ in range(4)]
    assert statuses == [403, 403, 403, 429]
    assert set(bench.names()) == {"refused"}


async def test_shadow_mode_leaves_operations_closed_where_no_rule_knows_them() -> None:
    bench = Bench()
    app = behind(bench, [Mount("/v2", routes=operations(bench.gate))], shadow="all")
    assert (await ask(app, "GET", f"/v2{KEYS}")).status == 401
    assert (await ask(app, "POST", f"/v2{KEYS}", json_body={"name": "x"})).status == 401


# --- bodies ---------------------------------------------------------------------------------


async def test_413_without_reading_on() -> None:
    bench = Bench()
    chunks: list[Message] = [
        {"type": "http.request", "body": b"x" * 60_000, "more_body": True} for _ in range(9)
    ]
    line = Line(chunks)
    headers = [("cookie", f"__session={bench.session()}"), ("content-type", "application/json")]
    await guarded(bench)(http_scope("POST", KEYS, headers=headers), line.receive, line.send)
    assert (Answer(line.sent).status, line.received) == (413, 2)


async def test_a_body_in_chunks() -> None:
    bench = Bench()
    body = [b'{"na', b'me": ', b"", b'"in chunks"}']
    answer = await ask(
        guarded(bench),
        "POST",
        KEYS,
        session=bench.session(),
        headers=[("content-type", "application/json")],
        body=body,
    )
    assert answer.status == 201


async def test_a_client_that_leaves_in_mid_body() -> None:
    bench = Bench()
    line = Line(
        [
            {"type": "http.request", "body": b'{"name"', "more_body": True},
            {"type": "http.disconnect"},
        ]
    )
    headers = [("cookie", f"__session={bench.session()}"), ("content-type", "application/json")]
    await guarded(bench)(http_scope("POST", KEYS, headers=headers), line.receive, line.send)
    assert line.sent == []
    assert (await bench.gate.keys.list("org_1")).keys == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'"x"',
        b"null",
        b"\xff",
        b"\xef\xbb\xbf{}",
        b'{"name": "a", "name": "b"}',
        b'{"name": "a", "expiresInDays": NaN}',
        b'{"name": "a", "expiresInDays": 1e999}',
        b'{"name": "a", "expiresInDays": true}',
        b'{"name": "a", "expiresInDays": "1"}',
        b'{"name": "a", "expireInDays": 1}',
        b'{"name": "\\ud800"}',
        b'{"name": "a\\u0000"}',
        b'{"name": "a", "scopes": null}',
        b'{"name": "a", "scopes": ["\\ud800"]}',
        b'{"name": "a", "\\ud800": 1}',
        b"[" * 60_000,
        b'{"name": "a", "expiresInDays": ' + b"1" * 5000 + b"}",
    ],
)
async def test_g3_bad_bodies_are_400(body: bytes) -> None:
    bench = Bench()
    answer = await ask(
        guarded(bench),
        "POST",
        KEYS,
        session=bench.session(),
        headers=[("content-type", "application/json")],
        body=body,
    )
    assert (answer.status, answer.code) == (400, "VALIDATION_ERROR")
    assert answer.json()["details"]
    assert (await bench.gate.keys.list("org_1")).keys == []


async def test_one_error_lists_every_problem_of_a_body() -> None:
    bench = Bench()
    answer = await ask(
        guarded(bench),
        "POST",
        KEYS,
        session=bench.session(),
        json_body={"name": "", "scopes": ["no:such", "x"], "expiresInDays": 0, "extra": 1},
    )
    fields = {detail["field"] for detail in answer.json()["details"]}
    assert fields == {"name", "scopes", "expiresInDays", "extra"}


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


DECORATED = [
    Route("/loop", in_the_loop),
    Route("/thread", in_a_thread),
    Route("/class", Endpoint),
    WebSocketRoute("/socket", over_a_socket),
]


@pytest.mark.parametrize("path", ["/loop", "/thread", "/class"])
async def test_requires_admits_the_scope_and_refuses_another(path: str) -> None:
    bench = Bench()
    app = behind(bench, DECORATED, {f"GET {path}": Rule()})
    assert (await ask(app, path=path, key=bench.key("jobs:*"))).body.decode() == path[1:]
    refused = await ask(app, path=path, key=bench.key("models:read"))
    assert (refused.status, refused.code) == (403, "INSUFFICIENT_SCOPE")
    assert 'scope="jobs:write"' in refused.one("www-authenticate")
    assert refused.one("content-type") == "application/json"
    assert refused.one("content-length") == str(len(refused.body))
    assert refused.one("cache-control") == "no-store"
    assert refused.rate[:2] == (1000, 998)


@pytest.mark.parametrize("path", ["/loop", "/thread", "/class"])
async def test_requires_on_a_public_route_or_without_a_gate_is_an_error(path: str) -> None:
    bench = Bench()
    app = behind(bench, DECORATED, {f"GET {path}": PUBLIC})
    with pytest.raises(ConfigurationError, match=f"GET {path}' is <Rule: public>, and its endpo"):
        await ask(app, path=path, key=bench.key())
    with pytest.raises(ConfigurationError, match=r"No gate .* call protect\(app, gate\)"):
        await ask(Starlette(routes=DECORATED), path=path, key=bench.key())


async def test_our_requires_on_a_websocket() -> None:
    bench = Bench()
    app = behind(bench, DECORATED)
    sent: list[Message] = []
    for scopes, denial, kinds in (
        ("jobs:write", True, ["websocket.accept", "websocket.close"]),
        ("models:read", True, ["websocket.http.response.start", "websocket.http.response.body"]),
        ("models:read", False, ["websocket.close"]),
    ):
        line = Line([{"type": "websocket.connect"}])
        sent = line.sent
        scope = websocket_scope("/socket", key=bench.key(scopes), denial=denial)
        await app(scope, line.receive, line.send)
        assert [message["type"] for message in line.sent] == kinds
        if kinds[0].endswith("start"):
            assert (Answer(line.sent).status, len(Answer(line.sent).rate)) == (403, 3)
    assert sent[0]["code"] == 1008


def test_our_requires_wants_an_exact_scope() -> None:
    for scope in ("jobs:*", "*", ""):
        with pytest.raises(ConfigurationError, match="one exact scope"):
            requires(scope)


async def test_our_requires_on_something_that_takes_no_request() -> None:
    @requires("jobs:write")
    async def blind() -> None: ...

    with pytest.raises(ConfigurationError, match="takes the request"):
        await blind()


async def test_our_requires_keeps_name_and_documentation() -> None:
    assert in_the_loop.__name__ == "in_the_loop"
    assert in_a_thread.__name__ == "in_a_thread"


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
    scopes: tuple[str, ...], one: int, two: int
) -> None:
    bench = Bench()
    app = behind(bench, [Route("/one", starlettes), Route("/two", starlettes_both)])
    key = bench.key(*scopes)
    first = await ask(app, path="/one", key=key)
    assert (first.status, (await ask(app, path="/two", key=key)).status) == (one, two)
    if one == 200:
        (row,) = (await bench.gate.keys.list("org_1")).keys
        assert first.body.decode() == f"True a key {row.id}"


@pytest.mark.parametrize("shadow", [None, "all"])
async def test_g3_starlettes_requires_without_a_key_refuses_and_does_not_crash(
    shadow: Shadow | None,
) -> None:
    """A public route, or what shadow mode lets through: refused at most, never a crash."""
    bench = Bench()
    rules = {"GET /one": Rule() if shadow else PUBLIC}
    app = behind(bench, [Route("/one", starlettes)], rules, shadow=shadow)
    assert (await ask(app, path="/one")).status in (401, 403)


# --- errors ---------------------------------------------------------------------------------


async def test_exceptions_of_an_endpoint_keep_status_and_headers() -> None:
    async def raising(request: Request) -> Response:
        raise {
            "capped": KeyLimitReached(3),
            "nothing": NotFound(),
            "teapot": HTTPException(418, "short and stout", {"x-pot": "tea"}),
            "cached": HTTPException(304, headers={"etag": '"1"'}),
            "job": HTTPException(404, "There is no job 7.", {"x-job": "7"}),
        }[request.path_params["what"]]

    bench = Bench()
    app = behind(bench, [Route("/{what}", raising)])
    key = bench.key()

    async def answers(path: str) -> Answer:
        answer = await ask(app, path=path, key=key)
        assert len(answer.rate) == 3
        return answer

    assert ((await answers("/capped")).status, (await answers("/capped")).code) == (
        409,
        "KEY_LIMIT_REACHED",
    )
    assert (await answers("/nothing")).code == "NOT_FOUND"
    teapot = await answers("/teapot")
    assert (teapot.status, teapot.body, teapot.one("x-pot")) == (418, b"short and stout", "tea")
    cached = await answers("/cached")
    assert (cached.status, cached.body, cached.one("etag")) == (304, b"", '"1"')
    assert (await answers("/nowhere/at/all")).code == "NOT_FOUND"


async def test_the_message_of_an_endpoints_own_404_is_kept() -> None:
    """The router's own 404 and 405 are to look like lockgate's; this one is the application's."""

    async def raising(_: Request) -> Response:
        raise HTTPException(404, "There is no job 7.", {"x-job": "7"})

    bench = Bench()
    answer = await ask(behind(bench, [Route("/x", raising)]), path="/x", key=bench.key())
    assert (answer.status, answer.all("x-job")) == (404, ["7"])
    assert "There is no job 7." in answer.body.decode()


async def test_a_405_without_allow_is_still_a_sentence() -> None:
    async def raising(_: Request) -> Response:
        raise HTTPException(405)

    bench = Bench()
    answer = await ask(behind(bench, [Route("/x", raising)]), path="/x", key=bench.key())
    assert answer.status == 405
    assert b": use ." not in answer.body


async def test_the_routers_405_names_the_methods() -> None:
    bench = Bench()
    app = behind(bench, [Route("/x", plain(), methods=["GET", "PUT"])])
    answer = await ask(app, "POST", "/x", key=bench.key())
    assert (answer.status, answer.code) == (405, "METHOD_NOT_ALLOWED")
    assert answer.one("allow") == "GET, HEAD, PUT"


async def test_a_refusal_in_a_websocket_endpoint_denies_the_handshake() -> None:
    """``error_handlers`` answer HTTP only: the handshake must not be left without an answer."""

    async def endpoint(websocket: WebSocket) -> None:
        websocket.state.principal.need("jobs:write")

    bench = Bench()
    app = behind(bench, [WebSocketRoute("/socket", endpoint)])
    line = Line([{"type": "websocket.connect"}])
    scope = websocket_scope("/socket", key=bench.key("models:read"))
    await asyncio.wait_for(app(scope, line.receive, line.send), 60)
    assert (Answer(line.sent).status, len(Answer(line.sent).rate)) == (403, 3)
    line = Line([{"type": "websocket.connect"}])
    scope = websocket_scope("/socket", key=bench.key("models:read"), denial=False)
    await asyncio.wait_for(app(scope, line.receive, line.send), 60)
    assert [message["type"] for message in line.sent] == ["websocket.close"]
    assert line.sent[0]["code"] == 1008


async def test_inside_the_applications_middleware_stack() -> None:
    bench = Bench()
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
