"""No page of another site writes with a visitor's session, by any face or trick (D11, R5)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from starlette.applications import Starlette
from starlette.types import Message, Receive, Scope, Send

from lockgate import Rule, wsgi
from lockgate.asgi import GateMiddleware
from lockgate.options import WebOptions
from lockgate.starlette import operations

from .driving import ORIGIN, Bench, Line, ask, ask_wsgi, websocket_scope

KEYS = "/api/v1/api-keys"
CONSOLE = "https://console.other.example"
"""A second origin that may write."""
BODY = b'{"name": "made by a page"}'
JSON = ("content-type", "application/json")
Headers = list[tuple[str, str]]


def by_asgi(bench: Bench, method: str, path: str, headers: Headers, body: bytes) -> int:
    app = GateMiddleware(Starlette(routes=operations(bench.gate)), bench.gate)
    answer = asyncio.run(ask(app, method, path, headers=headers, body=body))
    return answer.status


def by_wsgi(bench: Bench, method: str, path: str, headers: Headers, body: bytes) -> int:
    app = wsgi.protect(lambda *_: [], bench.gate)
    return ask_wsgi(app, method, path, headers=headers, body=body).status


Face = Callable[[Bench, str, str, Headers, bytes], int]
FACES = pytest.mark.parametrize("face", [by_asgi, by_wsgi])


@FACES
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        # Which origins and sites may write: tests/core/test_same_origin.py.
        ([JSON], 201),
        ([JSON, ("origin", f" {ORIGIN} \t")], 201),
        ([("content-type", "Application/JSON; charset=utf-8"), ("origin", ORIGIN)], 201),
        ([JSON, ("sec-fetch-site", "none")], 201),
        ([JSON, ("origin", "https://evil.example")], 403),
        ([JSON, ("origin", "")], 403),
        ([JSON, ("host", "evil.example"), ("origin", "https://evil.example")], 403),
        ([JSON, ("origin", "https://evil.example"), ("sec-fetch-site", "same-origin")], 403),
        ([JSON, ("origin", CONSOLE), ("sec-fetch-site", "cross-site")], 201),
        ([JSON, ("origin", ORIGIN), ("sec-fetch-site", "same-origin, cross-site")], 201),
        ([JSON, ("origin", ORIGIN), ("origin", ORIGIN)], 403),
        ([JSON, ("origin", ORIGIN), ("origin", CONSOLE)], 403),
        ([JSON, ("origin", f"{ORIGIN},{ORIGIN}")], 403),
        ([JSON, ("origin", f"{ORIGIN},")], 403),
        ([JSON, ("sec-fetch-site", "cross-site")], 403),
        ([JSON, ("sec-fetch-site", "same-origin, cross-site")], 403),
        ([JSON, ("sec-fetch-site", "same-origin"), ("sec-fetch-site", "same-origin")], 403),
        ([JSON, ("x-http-method-override", "GET"), ("origin", "https://evil.example")], 403),
        # Content types that a form or a simple request of another site can declare.
        ([], 415),
        ([("content-type", "text/plain")], 415),
        ([("content-type", "multipart/form-data; boundary=application/json")], 415),
        ([("content-type", "text/plain, application/json")], 415),
    ],
    ids=repr,
)
def test_only_own_and_listed_origins_create_a_key(
    face: Face, headers: Headers, status: int
) -> None:
    bench = Bench(web_options=WebOptions(allowed_origins=[CONSOLE]))
    cookie = ("cookie", f"__session={bench.session()}")
    assert face(bench, "POST", KEYS, [cookie, *headers], BODY) == status
    created = [event for event in bench.told if event.name == "key_created"]
    assert len(created) == (status == 201)
    assert bench.used() == (0 if status == 403 else 1)


@FACES
@pytest.mark.parametrize("method", ["DELETE", "delete", "PUT", "PATCH", "TRACE", "PURGE"])
def test_no_page_of_another_origin_revokes_a_key(face: Face, method: str) -> None:
    bench = Bench()
    bench.key()
    (key,) = asyncio.run(bench.gate.keys.list("org_1")).keys
    cookie = ("cookie", f"__session={bench.session()}")
    for other in (("origin", "https://evil.example"), ("sec-fetch-site", "same-site")):
        assert face(bench, method, f"{KEYS}/{key.id}", [cookie, other], b"") in {401, 403, 405}
    (key,) = asyncio.run(bench.gate.keys.list("org_1")).keys
    assert key.revoked_at is None
    assert face(bench, "DELETE", f"{KEYS}/{key.id}", [cookie, ("origin", ORIGIN)], b"") == 200


@FACES
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_page_of_another_origin_gets_no_cors_headers_for_a_read(face: Face, method: str) -> None:
    """A read changes no state, and no answer lets another origin read it."""
    bench = Bench()
    headers = [("cookie", f"__session={bench.session()}"), ("origin", "https://evil.example")]
    assert face(bench, method, KEYS, headers, BODY) == 200
    assert asyncio.run(bench.gate.keys.list("org_1")).keys == []


# --- WebSockets --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([("origin", ORIGIN)], None),
        ([("origin", ORIGIN), ("sec-fetch-site", "same-origin")], None),
        ([], None),
        ([("origin", "https://evil.example")], 403),
        ([("origin", "null")], 403),
        ([("origin", ORIGIN), ("origin", ORIGIN)], 403),
        ([("origin", "https://evil.example"), ("sec-fetch-site", "cross-site")], 403),
        ([("origin", ORIGIN), ("sec-fetch-site", "same-site")], None),
        ([("sec-fetch-site", "same-site")], 403),
    ],
    ids=repr,
)
async def test_no_page_elsewhere_opens_a_socket(headers: Headers, status: int | None) -> None:
    """The handshake is a GET that any page may make, with cookies, and what follows writes."""
    bench, opened = Bench(), list[Scope]()

    async def socket(scope: Scope, receive: Receive, send: Send) -> None:
        opened.append(scope)
        await send({"type": "websocket.accept"})

    rules = {"GET /live": Rule(accepts=("key", "session"))}
    app = GateMiddleware(socket, bench.gate, rules)
    cookie = ("cookie", f"__session={bench.session()}")
    sent = [cookie, ("sec-websocket-version", "13"), *headers]

    async def shake(key: str | None = None) -> Message:
        line = Line([{"type": "websocket.connect"}])
        await app(websocket_scope("/live", key=key, headers=sent), line.receive, line.send)
        return line.sent[0]

    answer = await shake()
    assert len(opened) == (status is None)
    assert answer["type"] == "websocket.accept" if status is None else answer["status"] == status
    # No browser sends a key by itself, so a page cannot borrow one.
    assert (await shake(bench.key()))["type"] == "websocket.accept"
