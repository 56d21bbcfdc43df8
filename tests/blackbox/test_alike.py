"""Every face answers byte for byte alike under every server (G6), and none lets in what is closed
(G1): the same requests to each, the answers compared."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import NamedTuple

import pytest

from .conftest import ASGI_SERVERS, FACES
from .demo import (
    BASE62,
    BLINK,
    CLAIM,
    KEYS,
    MODELS,
    REGISTER,
    SIGN_IN,
    SIGN_OUT,
    STATUS,
    Answer,
    Client,
    Demo,
    Face,
    chunked,
    made_up_key,
    wire,
)
from .http2 import status_of
from .test_paths import TRICKS

OF_THE_SERVER = {"server", "date", "connection", "transfer-encoding", "via"}
DRAWN = r"agent\.[\w.-]+|nonce-[\w-]+"
VARYING = {"x-ratelimit-reset", "retry-after"}
MADE_UP = made_up_key()
UNKNOWN = "00000000-0000-4000-8000-000000000000"
ALIKE = {("fastapi", server) for server in ASGI_SERVERS}
"""Starlette is served by these as well."""


SOME = {
    name: face
    for name, face in FACES.items()
    if (face.store == "memory://" and (face.framework, face.other_server) not in ALIKE)
    or name in {"starlette-sqlite", "flask-sqlite-gunicorn"}
}
"""Enough to find differences between servers and frameworks; other tests compare stores."""


@pytest.fixture(
    scope="module",
    params=[SOME, pytest.param(FACES, marks=pytest.mark.campaign)],
    ids=["some", "all"],
)
def demos(request: pytest.FixtureRequest) -> Iterator[dict[str, Demo]]:
    with ExitStack() as stack, ThreadPoolExecutor(2) as pool:

        def start(face: Face) -> Demo:
            demo = Demo(face)
            stack.callback(demo.kill)
            return demo

        faces: dict[str, Face] = request.param
        running = dict(zip(faces, pool.map(start, faces.values()), strict=True))
        yield running
        assert set(pool.map(Demo.stop, running.values())) == {0}


class Shown(NamedTuple):
    """The parts of a response that must be equal."""

    status: int
    headers: list[tuple[str, str]]
    body: str


def shown(answer: Answer, demo: Demo) -> Shown:
    """An answer without what differs from run to run: ids, keys, times, addresses."""
    text = answer.body.decode()
    for organization in demo.organizations.values():
        text = text.replace(organization.id, "<organization>")
    text = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "<uuid>", text)
    text = re.sub(r"acme_(live|dashboard)_\w+", r"<\1>", text).replace(demo.base_url, "<url>")
    text = re.sub(r"org_[0-9a-f]{32}", "<registered>", text)
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "<time>", text)
    text = re.sub(r'nonce="[\w-]+"', "<nonce>", text)
    text = re.sub(r'"retryAfter":\d+|again in \d+ s', "<wait>", text)
    headers = sorted(
        (name, "<varies>" if name in VARYING else re.sub(DRAWN, "<drawn>", value))
        for name, value in answer.headers
        if name not in OF_THE_SERVER
    )
    return Shown(answer.status, headers, text)


def requests(demo: Demo) -> Iterator[tuple[str, bytes]]:
    """Method and bytes of each request, in order: they are one story, and leave traces."""
    rich, poor = demo["enterprise"], demo["free"]
    key = ("Authorization", f"Bearer {rich.api_key}")
    cookie = ("Cookie", f"__session={rich.session_cookie}")
    json = ("Content-Type", "application/json")
    plain: list[tuple[str, str]] = [
        *((m, p) for p in ("/health", MODELS, KEYS, "/", "/nope") for m in ("GET", "HEAD", "POST")),
        ("GET", "/capabilities"),
        ("GET", "/openapi.json"),
        ("GET", "/dashboard"),
        ("HEAD", "/dashboard"),
        *((m, p) for p in ("/settings", "/settings/", "/settings/keys") for m in ("GET", "HEAD")),
        ("POST", "/sign-in"),
        ("GET", "/sign-out"),
        ("PUT", KEYS),
        ("OPTIONS", MODELS),
        ("PROPFIND", MODELS),
        ("GET", "/health/"),
        ("GET", "/%68ealth"),
        ("GET", "/x/../health"),
        ("GET", "/health%2fx"),
        ("GET", "/caf%c3%a9"),
        ("GET", "/%ff"),
        ("GET", f"{MODELS}?a=%2f&b=//"),
    ]
    yield "GET", wire("GET", "/health")
    yield "GET", wire("GET", "/health", [("X-Forwarded-For", "203.0.113.1")])
    for method, path in plain:
        yield method, wire(method, path)
        yield method, wire(method, path, [key])
    for value in ("", "Bearer", "Bearer x", "Basic eA==", f"Bearer {MADE_UP}", f"{key[1]},"):
        yield "GET", wire("GET", MODELS, [("Authorization", value)])
    for more in ([key, key], [key, ("Authorization", "")], [("Authorization", ""), key]):
        yield "GET", wire("GET", MODELS, more)
    preflight = [("Origin", demo.base_url), ("Access-Control-Request-Method", "GET")]
    for path in (MODELS, KEYS, "/nope"):
        yield "OPTIONS", wire("OPTIONS", path, preflight)
    for body in (
        b'{"name": "x"}',
        b'{"name": " ", "scopes": ["nope:read", "*"], "expiresInDays": 0, "oops": 1}',
        b'{"name": "a", "name": "b"}',
        b"[",
        b"\xff",
        b'{"name": "\\ud800"}',
        b"",
        b" " * 65_536,
        b" " * 65_537,
    ):
        yield "POST", wire("POST", KEYS, [cookie, json], body)
        by_chunks = ("Transfer-Encoding", "chunked")
        yield "POST", wire("POST", KEYS, [cookie, json, by_chunks], chunked(body or b" ", 4_096))
    for headers in (
        [cookie],
        [cookie, cookie, json],
        [cookie, ("Content-Type", "text/plain")],
        [cookie, json, ("Origin", "https://evil.example")],
        [cookie, json, ("Origin", demo.base_url), ("Origin", demo.base_url)],
        [cookie, json, ("Origin", f"{demo.base_url},{demo.base_url}")],
        [cookie, json, ("Origin", demo.base_url), ("Sec-Fetch-Site", "cross-site")],
        [cookie, json, ("Sec-Fetch-Site", "cross-site")],
        [cookie, json, ("Sec-Fetch-Site", "same-origin"), ("Sec-Fetch-Site", "cross-site")],
        [("Cookie", "a=b"), cookie, json],
        [("Cookie", "__session=x"), json],
        [key, json],
    ):
        yield "POST", wire("POST", KEYS, headers, b'{"name": "y"}')
    for path in (KEYS, f"{KEYS}/{UNKNOWN}", f"{KEYS}/x", STATUS, "/api/v1/account"):
        yield "GET", wire("GET", path, [key])
        yield "GET", wire("GET", path, [cookie])
    for method in ("POST", "GET", "DELETE"):
        yield method, wire(method, "/api/v1/jobs", [key, json], b'{"kind": "render"}')
    yield "POST", wire("POST", "/api/v1/jobs", [key, json], b'{"kind": "no"}')
    some = ("Authorization", f"Bearer {demo['starter'].api_key}")
    for seconds in (b"60", b"60", b"60", b"60", b"60", b"60", b"-1", b'"60"', b"1e999"):
        body = b'{"kind": "timelapse", "seconds": %s}' % seconds
        yield "POST", wire("POST", "/api/v1/jobs", [some, json], body)
    yield "GET", wire("GET", "/api/v1/jobs", [some])
    yield from account_requests(demo)
    yield from key_requests(demo)
    for _ in range(12):
        yield "GET", wire("GET", MODELS, [("Authorization", f"Bearer {poor.api_key}")])


def key_requests(demo: Demo) -> Iterator[tuple[str, bytes]]:
    """Keys without the scope, revoked and expired keys, and requests with them."""
    org = demo["creator"]
    with Client(demo) as client:
        narrow = client.create(org, scopes=["models:read"])
        expired = client.create(org, expiresInDays=BLINK)
        revoked = client.create(org)
        client.revoke(org, revoked.id)
        own = client.create(org)
    for key in (narrow, expired, revoked):
        held = ("Authorization", f"Bearer {key.key}")
        for method, path in (("GET", MODELS), ("POST", MODELS), ("GET", STATUS), ("GET", KEYS)):
            yield method, wire(method, path, [held])
    held = ("Authorization", f"Bearer {own.key}")
    poor = ("Authorization", f"Bearer {narrow.key}")
    for headers in ([poor], [held], [held]):
        yield "GET", wire("GET", f"{KEYS}/{own.id}", headers)
        yield "DELETE", wire("DELETE", f"{KEYS}/{own.id}", headers)
    cookie = ("Cookie", f"__session={org.session_cookie}")
    for key in (expired, revoked, own):
        yield "GET", wire("GET", f"{KEYS}/{key.id}", [cookie])
        yield "DELETE", wire("DELETE", f"{KEYS}/{key.id}", [cookie])


def account_requests(demo: Demo) -> Iterator[tuple[str, bytes]]:
    """Registering, signing in and claiming, done well and badly."""
    rich = demo["enterprise"]
    key = ("Authorization", f"Bearer {rich.api_key}")
    cookie = ("Cookie", f"__session={rich.session_cookie}")
    json = ("Content-Type", "application/json")
    bot = b'{"agent_name": "bot", "billing_email": "Alike@Example.com"}'
    for body in (
        bot,
        b'{"agent_name": "", "billing_email": "x", "account_type": "company", "more": 1}',
        b'{"agent_name": "bot", "billing_email": "a@example.com\\r\\nBcc: b@example.com"}',
        b'{"agent_name": "\\ud800", "billing_email": "\\ud800@example.com"}',
        *[bot] * 5,
        b"",
        b"[",
    ):
        yield "POST", wire("POST", REGISTER, [json], body)
        yield "POST", wire("POST", REGISTER, [("Content-Type", "text/plain")], body)
    token = b'{"dashboard_token": "%s"}' % made_up_key(environment="dashboard").encode()
    for headers in ([json], [json, ("Origin", "https://evil.example")], [json, key, cookie], []):
        yield "POST", wire("POST", SIGN_IN, headers, token)
        yield "POST", wire("POST", CLAIM, headers, b'{"organizationId": "org_1"}')
        yield "GET", wire("GET", CLAIM, headers)
        yield "POST", wire("POST", SIGN_OUT, headers)
    for named in ("org_1", "", rich.id):
        yield "GET", wire("GET", KEYS, [cookie, ("X-Organization-Id", named)])


def test_g6_whole_responses_are_alike(demos: dict[str, Demo]) -> None:
    heard: dict[str, list[tuple[bytes, Shown]]] = {}
    for name, demo in demos.items():
        with Client(demo) as client:
            heard[name] = [
                (sent.split(b"\r\n")[0], shown(client.raw(sent, method=method), demo))
                for method, sent in requests(demo)
            ]
    (first, expected), *others = heard.items()
    assert len(expected) > 100
    for name, answers in others:
        for (asked, one), (_, other) in zip(expected, answers, strict=True):
            assert other == one, f"{asked!r}: {name} answers otherwise than {first}"


def test_two_content_types_are_not_json(demos: dict[str, Demo]) -> None:
    """Granian shows a WSGI application the first one alone; gunicorn refuses for itself."""
    for demo in demos.values():
        cookie = ("Cookie", f"__session={demo['enterprise'].session_cookie}")
        with Client(demo) as client:
            for first, second in (("application/json",) * 2, ("text/plain", "application/json")):
                types = [("Content-Type", first), ("Content-Type", second)]
                answer = client.exact(
                    "POST", KEYS, [cookie, *types], b'{"name": "y"}', server_may_refuse=True
                )
                if demo.face.by_granian_wsgi and first == "application/json":
                    answer.is_ok(201)
                elif not answer.by_the_server:
                    answer.is_error(415, "UNSUPPORTED_MEDIA_TYPE")


BEARER = b"Bearer"
REFUSED = [
    *(BEARER + between + b"%s" for between in b"|\t| \t|\t |: |=|,|\xa0| \xc2\xa0".split(b"|")),
    *(BEARER + before + b"%s" for before in b" \"| '| <| key=| x | Bearer | \xe9".split(b"|")),
    *(BEARER + b" %s" + after for after in b",|;|=|>| x| %s|,Bearer %s|\xe9|\xff\xfe".split(b"|")),
    *(
        scheme + b" %s"
        for scheme in b"Token|ApiKey|Basic|Bearers|B\xc3\xa9arer|\xc2\xa0Bearer".split(b"|")
    ),
    *b"|   |Bearer|Bearer    |%s|Basic dXNlcjpwYXNz|\xff|Bearer \xd9\xa1".split(b"|"),
    BEARER + b" " * 250 + b"%s",
]
"""Values of the Authorization header that are not one `Bearer <key>` of up to 256 bytes (D18)."""
PAIRS = [
    ("Bearer %s", "Bearer %s"),
    ("Bearer %s", ""),
    ("", "Bearer %s"),
    ("", ""),
    ("Bearer %s", "Bearer x"),
    ("Bearer x", "Bearer %s"),
    ("Basic dXNlcjpwYXNz", "Bearer %s"),
    ("Bearer %s", "Basic dXNlcjpwYXNz"),
    ("Bearer", "%s"),
]
"""Two Authorization headers."""
SPELLINGS = [
    *("/api/v1/%69mages", "/api/v1/image%73", "/%61pi/v1/images", "//api/v1/images"),
    *("/api//v1/images", "/api/v1//images", "/api/v1/images/", "/api/v1/./images"),
    *("/api/v1/x/../images", "/api/v1/%2e/images", "/api/v1/x/%2e%2e/images", "/api/v1%2fimages"),
    *("/api%2Fv1%2Fimages", "/api/v1/images%2f", "/api/v1/images%00", "/api/v1/images%0a"),
    *("/api/v1/images;x", "/api/v1/images?x", "/api/v1/IMAGES", "/API/v1/images"),
    *("/health/../api/v1/images", "/health%2f..%2fapi/v1/images", "/api/v1/models/../images"),
    *("\\api\\v1\\images",),
]


def closed(demo: Demo, narrow: str) -> Iterator[tuple[str, bytes, str | None]]:
    """Requests that are 401 without a key, and no success with a key that lacks the scope.

    Each with its method and, where no server reads it in another way, the code of its refusal.
    """
    for target in TRICKS:
        for method in ("GET", "HEAD", "POST"):
            yield method, wire(method, target), "MISSING_AUTH"
    for method in ("get", "TRACE", "PROPFIND", "G" * 100):
        yield method, wire(method, MODELS), "MISSING_AUTH"
    for target in ("*", "health", "?", "x:y", "127.0.0.1:80", "#", "http://x", "http://x//health"):
        yield "GET", wire("GET", target), None
    key = demo["enterprise"].api_key
    wide = key.translate({ord(c): ord(c) + 0xFEE0 for c in BASE62})
    for form in (*REFUSED, b"Bearer " + wide.encode()):
        value = form.replace(b"%s", key.encode())
        yield "GET", wire("GET", MODELS, [("Authorization", value)]), "INVALID_FORMAT"
    for pair in PAIRS:
        values = [form.replace("%s", key) for form in pair]
        one, other = ("Authorization", values[0]), ("AUTHORIZATION", values[1])
        yield "GET", wire("GET", MODELS, [one, other]), "INVALID_FORMAT"
        yield "GET", wire("GET", MODELS, [one, ("X-Between", "1"), other]), "INVALID_FORMAT"
    for name in ("Authorization ", "Authorization_", " Authorization", "HTTP_AUTHORIZATION"):
        yield "GET", wire("GET", MODELS, [(name, f"Bearer {key}")]), None
    held = ("Authorization", f"Bearer {narrow}")
    for method in ("post", "Post"):
        yield method, wire(method, "/api/v1/images", [held]), None
    for name in ("X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override", "X-Original-URL"):
        for claimed in ("GET", "OPTIONS", "/health"):
            more = (name, claimed)
            yield "POST", wire("POST", "/api/v1/images", [held, more]), "INSUFFICIENT_SCOPE"
            yield "GET", wire("GET", MODELS, [more]), "MISSING_AUTH"
    for target in SPELLINGS:
        yield "POST", wire("POST", target), None
        yield "POST", wire("POST", target, [held]), None


def test_g1_no_bytes_on_the_wire_open_a_guarded_path(demos: dict[str, Demo]) -> None:
    """The tables of paths and headers, byte for byte, under every server (D18, D31)."""
    for name, demo in demos.items():
        if demo.face.store != "memory://":
            continue
        with Client(demo) as client:
            narrow = client.create(demo["enterprise"], scopes=["models:read"]).key
            for method, sent, code in closed(demo, narrow):
                answer = client.raw(sent, method=method, server_may_refuse=True)
                refused = {401, 403, 404, 405} if narrow.encode() in sent else {401}
                if not sent.split(b" ")[1].startswith(b"/"):
                    refused = refused | {400}  # It is no path (D31).
                told = f"{name} answers {sent!r} by {answer}"
                assert answer.by_the_server or answer.status in refused, told
                if code and method != "HEAD" and not answer.by_the_server:
                    assert answer.code == code, told


def test_g1_http2_opens_no_further_path(demos: dict[str, Demo]) -> None:
    """Paths and headers that come without the form that lines of HTTP/1.1 give them."""
    speaking = {
        name: demo
        for name, demo in demos.items()
        if demo.face.other_server in {"hypercorn", "granian", "granian-wsgi"}
        and demo.face.store == "memory://"
    }
    assert len(speaking) >= 3
    for name, demo in speaking.items():
        org = demo["enterprise"]
        key = (b"authorization", f"Bearer {org.api_key}".encode())
        cookie = (b"cookie", f"__session={org.session_cookie}".encode())
        json = (b"content-type", b"application/json")
        assert status_of(demo, "GET", "/health") == 200
        assert status_of(demo, "GET", MODELS, [key]) == 200
        assert status_of(demo, "POST", KEYS, [json, cookie], b'{"name": "x"}') == 201
        crumbs = [json, (b"cookie", b"a=b"), cookie]
        assert status_of(demo, "POST", KEYS, crumbs, b'{"name": "x"}') == 201  # RFC 9113 8.2.3
        assert status_of(demo, "POST", KEYS, [json, cookie, cookie], b'{"name": "x"}') == 401
        for target in (*TRICKS, "health", "*", "", "?", "http://x/health", " /health", "/health\t"):
            assert status_of(demo, "GET", target) in {None, 400, 401}, f"{name}: {target!r}"
        for more in (
            [key, key],
            [key, (b"authorization", b"")],
            [(b"Authorization", key[1])],
            [(b"authorization ", key[1])],
            [(b"authorization", key[1] + b"\n")],
            [(b"x", b"y\r\nauthorization: " + key[1])],
            [(b":path", b"/health")],
        ):
            assert status_of(demo, "GET", MODELS, more) in {None, 400, 401}, f"{name}: {more}"
        both = [(b":path", MODELS.encode())]
        assert status_of(demo, "GET", "/health", both) in {None, 400}, name
