"""Pages in a real browser write with a session from the origins that are listed (D11, R5)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from lockgate import PUBLIC, run
from lockgate.asgi import GateMiddleware
from lockgate.options import WebOptions
from lockgate.starlette import operations
from tests.blackbox.browser import Browser

from .driving import Bench
from .serving import served

KEYS = "/api/v1/api-keys"
SIGN_IN = "/sign-in"
COOKIE = "__session={}; Path=/; HttpOnly; SameSite=Lax"

Seen = list[tuple[str, dict[str, str]]]
"""Method and headers of each request for a key operation, as the service got them."""


def origin_at(address: tuple[str, int]) -> str:
    return f"http://{address[0]}:{address[1]}"


@contextmanager
def page() -> Iterator[str]:
    """Serve an empty page on a separate origin, and yield that origin."""

    async def empty(_: Request) -> Response:
        return HTMLResponse("<!doctype html><title>page</title>")

    with served(Starlette(routes=[Route("/", empty)])) as address:
        yield origin_at(address)


@contextmanager
def service_of(bench: Bench, pages: list[str], seen: Seen) -> Iterator[str]:
    """Serve the operations behind a CORS middleware that lets every page read.

    Those of WSGI judge the headers that browsers send here alike: test_sessions.py.
    """

    async def sign_in(_: Request) -> Response:
        response = HTMLResponse("<!doctype html><title>in</title>")
        response.headers["set-cookie"] = COOKIE.format(bench.session())
        return response

    routes = [Route(SIGN_IN, sign_in), *operations(bench.gate)]
    guarded = GateMiddleware(Starlette(routes=routes), bench.gate, {f"GET {SIGN_IN}": PUBLIC})
    answering = CORSMiddleware(
        guarded,
        allow_origins=pages,
        allow_methods=["*"],
        allow_headers=["content-type"],
        allow_credentials=True,
    )

    async def noting(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith(KEYS):
            headers = {name.decode(): value.decode() for name, value in scope["headers"]}
            seen.append((scope["method"], headers))
        await answering(scope, receive, send)

    with served(noting) as address:
        yield origin_at(address)


WRITE = """(async () => {{
    const answer = await fetch({url}, {{
        method: {method},
        credentials: "include",
        headers: {headers},
        body: {body},
    }});
    return [answer.status, await answer.json()];
}})()"""
BLIND = """(async () => {{
    const answer = await fetch({url}, {{
        method: "POST", mode: "no-cors", credentials: "include", body: {body}
    }});
    return answer.type;
}})()"""


def test_a_page_of_a_listed_origin_writes_and_another_does_not() -> None:
    seen: Seen = []
    with ExitStack() as stack:
        console, evil = (stack.enter_context(page()) for _ in range(2))
        bench = Bench(web_options=WebOptions(allowed_origins=[console]))
        service = stack.enter_context(service_of(bench, [console, evil], seen))
        browser = stack.enter_context(Browser())

        def write(method: str, path: str, body: object = None) -> tuple[int, Any]:
            status, answer = browser.run(
                WRITE.format(
                    url=json.dumps(service + path),
                    method=json.dumps(method),
                    headers=json.dumps({"Content-Type": "application/json"} if body else {}),
                    body="undefined" if body is None else json.dumps(json.dumps(body)),
                )
            )
            return status, answer

        browser.open(service + SIGN_IN)
        browser.open(f"{console}/")
        status, created = write("POST", KEYS, {"name": "by the console"})
        assert status == 201
        method, headers = seen[-1]
        assert (method, headers["origin"]) == ("POST", console)
        assert headers["sec-fetch-site"] == "same-site", "another origin, whatever is listed"
        assert "__session=" in headers["cookie"]

        browser.open(f"{evil}/")
        status, refused = write("POST", KEYS, {"name": "by another page"})
        assert (status, refused["code"]) == (403, "CROSS_SITE_REQUEST")
        assert seen[-1][1]["origin"] == evil
        assert "__session=" in seen[-1][1]["cookie"]
        status, refused = write("DELETE", f"{KEYS}/{created['id']}")
        assert (status, refused["code"]) == (403, "CROSS_SITE_REQUEST")
        # A request without a preflight: the page sees no answer, and no key is made.
        body = json.dumps(json.dumps({"name": "by a simple request"}))
        kind = browser.run(BLIND.format(url=json.dumps(service + KEYS), body=body))
        assert (kind, seen[-1][1]["origin"]) == ("opaque", evil)
        assert "__session=" in seen[-1][1]["cookie"]
        (key,) = run(bench.gate.keys.list("org_1")).keys
        assert key.revoked_at is None

        browser.open(f"{console}/")
        assert write("DELETE", f"{KEYS}/{created['id']}")[0] == 200
        (key,) = run(bench.gate.keys.list("org_1")).keys
        assert key.revoked_at is not None
