"""``Gate(key_header=)`` and ``Gate(error_body=)``: clients of an earlier system go on."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from starlette.applications import Starlette
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocket, WebSocketDisconnect
from werkzeug.test import Client as WsgiClient

from lockgate import ConfigurationError, Gate, Plan, PlanBook, Refusal, run, starlette
from lockgate import asgi as lockgate_asgi
from lockgate import wsgi as lockgate_wsgi
from lockgate.asgi import GateMiddleware
from lockgate.error_formats import RefusedRequest
from lockgate.errors import InvalidRequest, Problem
from lockgate.options import WebOptions
from lockgate.web.guard import Guard
from lockgate.web.key_header import KeyHeaderGuard
from tests.gates import flat_gate
from tests.web.test_protect import ADAPTERS, bearer, gate_of, plain_asgi, plain_wsgi

HEADER = "X-API-Key"


class Told(NamedTuple):
    """A response, from whichever client."""

    status_code: int
    headers: Any
    content: bytes

    def json(self) -> Any:
        return json.loads(self.content)


Ask = Callable[..., Told]


def protected(framework: str, gate: Gate) -> tuple[Any, Ask]:
    """An application of a framework behind a gate, and a function that asks it."""
    rules = {"GET /models": "models:read"}
    served: Any
    if framework == "asgi":
        served = lockgate_asgi.protect(plain_asgi, gate, rules=rules)
    elif framework == "wsgi":
        served = lockgate_wsgi.protect(plain_wsgi, gate, rules=rules)
    else:
        adapter, make = ADAPTERS[framework]
        served = adapter.protect(make(), gate, public=["GET /health"])
    is_wsgi = framework in {"flask", "wsgi"}
    client: Any = WsgiClient(served, use_cookies=False) if is_wsgi else TestClient(served)

    def ask(path: str, headers: dict[str, str] | None = None) -> Told:
        answer = client.get(path, headers=headers or {})
        content = answer.get_data() if is_wsgi else answer.content
        return Told(answer.status_code, answer.headers, content)

    return served, ask


def limited(**options: Any) -> Gate:
    plans = PlanBook([Plan("free", rpm=1, rph=None, rpd=None, concurrent=None)])
    return flat_gate("memory://", brand="acme", plans=plans, **options)


@pytest.fixture(params=[*ADAPTERS, "asgi", "wsgi"])
def framework(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def text_of(gate: Gate, *scopes: str) -> str:
    return bearer(gate, *scopes)["Authorization"].removeprefix("Bearer ")


def test_a_key_in_the_named_header_is_admitted_on_every_adapter(framework: str) -> None:
    gate = gate_of(web_options=WebOptions(key_header=HEADER))
    _, ask = protected(framework, gate)
    text, other = text_of(gate, "models:read"), text_of(gate, "jobs:read")
    for _ in range(2):  # The second time the key is known.
        assert ask("/models", {HEADER: text}).status_code == 200
        assert ask("/models", {"authorization": f"Bearer {text}"}).status_code == 200
        assert ask("/models", {HEADER: other}).json()["code"] == "INSUFFICIENT_SCOPE"
    assert ask("/models").json()["code"] == "MISSING_AUTH"
    for wrong in ("", "x", f"Bearer {text}", f"{text}, {text}", text + "a", "a" * 5000):
        answer = ask("/models", {HEADER: wrong})
        assert (answer.status_code, answer.json()["code"]) == (401, "INVALID_FORMAT")


def test_both_headers_are_refused_on_every_adapter(framework: str) -> None:
    gate = gate_of(web_options=WebOptions(key_header=HEADER))
    _, ask = protected(framework, gate)
    text = text_of(gate, "models:read")
    for given in (f"Bearer {text}", "Basic YTpi", ""):
        answer = ask("/models", {HEADER: text, "authorization": given})
        assert (answer.status_code, answer.json()["code"]) == (401, "INVALID_FORMAT")


def test_the_header_is_not_read_unless_the_gate_names_it(framework: str) -> None:
    gate = gate_of()
    _, ask = protected(framework, gate)
    text = text_of(gate, "models:read")
    assert ask("/models", {HEADER: text}).json()["code"] == "MISSING_AUTH"
    both = {HEADER: "anything", "authorization": f"Bearer {text}"}
    assert ask("/models", both).status_code == 200


def test_a_key_is_never_read_from_the_query_string(framework: str) -> None:
    gate = gate_of(web_options=WebOptions(key_header=HEADER))
    _, ask = protected(framework, gate)
    text = text_of(gate, "models:read")
    assert ask(f"/models?{HEADER}={text}&api_key={text}").json()["code"] == "MISSING_AUTH"


def test_a_missing_or_malformed_key_is_told_of_both_headers() -> None:
    _, ask = protected("asgi", gate_of(web_options=WebOptions(key_header=HEADER)))
    for headers in (None, {HEADER: "nonsense"}):
        told = ask("/models", headers).json()["error"]
        assert "'Authorization: Bearer <API key>'" in told or "'Bearer <API key>'" in told
        assert told.endswith("Or send the key alone as 'X-Api-Key: <API key>'.")
    _, ask = protected("asgi", gate_of())
    assert "X-Api-Key" not in ask("/models").json()["error"]


def test_a_key_over_its_limit_is_refused_by_either_header() -> None:
    gate = limited(web_options=WebOptions(key_header=HEADER))
    _, ask = protected("asgi", gate)
    text = text_of(gate, "models:read")
    codes = [
        ask("/models", headers).status_code
        for headers in ({HEADER: text}, {"authorization": f"Bearer {text}"}, {HEADER: text})
    ]
    assert codes == [200, 429, 429]


def test_a_revoked_key_is_refused_at_once() -> None:
    gate = gate_of(web_options=WebOptions(key_header=HEADER))
    _, ask = protected("starlette", gate)
    made = run(gate.keys.create("org_1", "a", ["models:read"]))
    assert ask("/models", {HEADER: made.text}).status_code == 200
    run(gate.keys.revoke("org_1", made.key.id))
    assert ask("/models", {HEADER: made.text}).json()["code"] == "KEY_REVOKED"


async def echo(socket: WebSocket) -> None:
    await socket.accept()
    await socket.send_text("in")
    await socket.close()


async def hello(_: Any) -> PlainTextResponse:
    return PlainTextResponse("in")


def test_a_websocket_is_admitted_by_the_header() -> None:
    gate = gate_of(web_options=WebOptions(key_header=HEADER))
    app = lockgate_asgi.protect(Starlette(routes=[WebSocketRoute("/ws", echo)]), gate)
    client = TestClient(app)
    with client.websocket_connect("/ws", headers={HEADER: text_of(gate)}) as socket:
        assert socket.receive_text() == "in"
    with pytest.raises(WebSocketDisconnect), client.websocket_connect("/ws"):
        pass


def test_a_page_of_another_origin_may_send_the_header_where_cors_allows_it() -> None:
    gate = gate_of(web_options=WebOptions(key_header=HEADER))
    app = Starlette(routes=[Route("/models", hello)])
    app.add_middleware(CORSMiddleware, allow_origins=["https://a.example"], allow_headers=[HEADER])
    client = TestClient(lockgate_asgi.protect(app, gate))
    asked = {
        "origin": "https://a.example",
        "access-control-request-method": "GET",
        "access-control-request-headers": HEADER.lower(),
    }
    preflight = client.options("/models", headers=asked)
    assert preflight.status_code == 200
    assert HEADER.lower() in preflight.headers["access-control-allow-headers"].lower()
    answer = client.get("/models", headers={"origin": "https://a.example", HEADER: text_of(gate)})
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == "https://a.example"


def test_the_openapi_documents_offer_both_headers() -> None:
    gate = gate_of(web_options=WebOptions(key_header=HEADER))
    app, ask = protected("fastapi", gate)
    schemes = app.openapi()["components"]["securitySchemes"]
    assert schemes["keyHeader"] == {"type": "apiKey", "in": "header", "name": "X-Api-Key"}
    security = app.openapi()["paths"]["/models"]["get"]["security"]
    assert [*map(list, security)] == [["key"], ["keyHeader"]]
    assert security[0]["key"] == security[1]["keyHeader"]
    assert "keyHeader" not in str(protected("fastapi", gate_of())[0].openapi())
    assert ask("/models", {HEADER: text_of(gate, "models:read")}).status_code == 200


@pytest.mark.parametrize("name", ["", "x api", "X_Key", "Authorization", "cookie", "Host", "a:b"])
def test_a_header_that_cannot_hold_keys_is_refused_at_the_start(name: str) -> None:
    with pytest.raises(ConfigurationError, match="key_header"):
        gate_of(web_options=WebOptions(key_header=name))


def test_a_gate_without_the_header_has_the_ordinary_guard() -> None:
    """A gate that names no header does no work for one."""
    assert type(GateMiddleware(plain_asgi, gate_of()).guard) is Guard
    assert (
        type(GateMiddleware(plain_asgi, gate_of(web_options=WebOptions(key_header=HEADER))).guard)
        is KeyHeaderGuard
    )


# --- bodies ------------------------------------------------------------------------------------


def as_before(refusal: Refusal, _: RefusedRequest) -> object:
    return {"detail": refusal.message, "status": refusal.status, "old": refusal.code.lower()}


def test_a_body_of_the_host_replaces_every_refusals_on_every_adapter(framework: str) -> None:
    plain, shaped = gate_of(), gate_of(web_options=WebOptions(error_body=as_before))
    _, ask_plain = protected(framework, plain)
    _, ask = protected(framework, shaped)
    sent: list[dict[str, str]] = [{}, {"authorization": "x"}]
    sent += [{"authorization": "Bearer acme_live_x"}]
    for headers in sent:
        one, other = ask_plain("/models", headers), ask("/models", headers)
        assert other.status_code == one.status_code == 401
        assert set(other.json()) == {"detail", "status", "old"}
        assert other.json()["old"] == one.json()["code"].lower()
        kept = "www-authenticate", "content-type", "cache-control", "x-ratelimit-limit"
        for name in kept:
            assert other.headers[name] == one.headers[name]
    lacking = ask("/models", bearer(shaped, "jobs:read"))
    assert (lacking.status_code, lacking.json()["old"]) == (403, "insufficient_scope")


def test_refusals_that_the_application_raises_have_the_body_too() -> None:
    gate = gate_of(web_options=WebOptions(error_body=as_before))

    async def wrong(_: Any) -> PlainTextResponse:
        raise InvalidRequest([Problem("size", "Too big.")])

    app = Starlette(routes=[Route("/models", wrong)])
    client = TestClient(starlette.protect(app, gate))
    answer = client.get("/models", headers=bearer(gate, "*"))
    assert (answer.status_code, answer.json()["old"]) == (400, "validation_error")
    assert client.get("/nothing", headers=bearer(gate, "*")).status_code == 404


@pytest.mark.parametrize(
    "hook",
    [lambda *_: 1 / 0, lambda *_: object(), lambda refusal, _: refusal.nothing],
    ids=["raises", "no JSON", "mistaken"],
)
def test_a_function_that_fails_is_logged_and_the_standard_body_is_sent(
    hook: Any, caplog: pytest.LogCaptureFixture
) -> None:
    gate = gate_of(web_options=WebOptions(error_body=hook))
    _, ask = protected("starlette", gate)
    with caplog.at_level(logging.ERROR, "lockgate"):
        answer = ask("/models")
    assert (answer.status_code, answer.json()["code"]) == (401, "MISSING_AUTH")
    (record,) = [r for r in caplog.records if "error_body" in r.getMessage()]
    assert record.exc_info is not None


def test_a_refusal_that_is_repeated_from_memory_has_the_body_too() -> None:
    gate = limited(web_options=WebOptions(error_body=as_before))
    _, ask = protected("asgi", gate)
    headers = bearer(gate, "*")
    answers = [ask("/models", headers) for _ in range(4)]
    assert [answer.status_code for answer in answers] == [200, 429, 429, 429]
    assert all(a.json()["old"] == "rate_limit_exceeded" for a in answers[1:])
    assert all("retry-after" in a.headers for a in answers[1:])
