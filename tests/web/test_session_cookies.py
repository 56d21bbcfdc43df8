"""The session cookie under a name that the host chooses, on every framework."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from itertools import cycle
from typing import Any
from wsgiref.util import setup_testing_defaults

import pytest
from fastapi import FastAPI

from lockgate import Registration, fastapi, run
from lockgate.options import WebOptions
from lockgate.web.asgi_exchange import AsgiRequest
from lockgate.web.operations.openapi import describe
from lockgate.web.sessions import cookie_of
from lockgate.web.wsgi_exchange import WsgiRequest

from .driving import ORIGIN, SECRET, Bench, http_scope
from .front_ends import APPLICATIONS, FRAMEWORKS, KEYS, FrontEnd, agent_of, django_settings


def bench_of(name: str, **fields: Any) -> Bench:
    return Bench(web_options=WebOptions(session_cookie=name), **fields)


@pytest.fixture(autouse=True)
def _django() -> Iterator[None]:
    with django_settings():
        yield


NAMES = cycle(["session", "__Host-session", "__Secure-id"])


@pytest.mark.parametrize(("framework", "name"), [*zip(APPLICATIONS, NAMES, strict=False)])
def test_only_the_one_cookie_of_the_configured_name_is_a_session(framework: str, name: str) -> None:
    bench = bench_of(name)
    page, good = FrontEnd(framework, bench.gate), bench.session()
    made = page.ask("POST", KEYS, cookie=f"{name}={good}", sent={"name": "k"}, origin=ORIGIN)
    assert made.status == 201
    assert page.ask("GET", KEYS, cookie=f"other=x; {name}={good}").status == 200
    for other in ("__session", name.upper(), f"x{name}", f"{name}2"):
        refused = page.ask("POST", KEYS, cookie=f"{other}={good}", sent={"name": "k"})
        assert (refused.status, refused.code) == (401, "SESSION_REQUIRED")
    both = [f"{name}={one}; {name}={two}" for one, two in ((good, good), (good, "x"), ("", good))]
    # A server that joins two headers does so by a comma.
    for cookie in (*both, f"{name}={good},{name}={good}"):
        refused = page.ask("GET", KEYS, cookie=cookie)
        assert (refused.status, refused.code) == (401, "SESSION_INVALID")
        assert refused.headers["www-authenticate"] == "Bearer"


@FRAMEWORKS
def test_a_prefixed_session_is_not_read_from_the_value_of_another_cookie(framework: str) -> None:
    """Another host of the site may set a cookie ``x`` for all hosts, and any value has a comma."""
    bench = bench_of("__Host-session")
    page, planted = FrontEnd(framework, bench.gate), bench.session("org_of_the_attacker")
    cookies = [f"x=1,__Host-session={planted}", f"x=1, __Host-session={planted}; y=2"]
    for cookie in cookies:
        refused = page.ask("POST", KEYS, cookie=cookie, sent={"name": "k"})
        assert (refused.status, refused.code) == (401, "SESSION_REQUIRED")
        mine = f"{cookie}; __Host-session={bench.session()}"
        assert page.ask("POST", KEYS, cookie=mine, sent={"name": "k"}).status == 201
    assert run(bench.gate.keys.list("org_of_the_attacker")).keys == []


@pytest.mark.parametrize("space", ["\x0b", "\x0c", "\x1c", "\x85", "\xa0", "\r"])
def test_no_other_white_space_hides_a_prefix_from_the_browser(space: str) -> None:
    """A browser strips spaces and tabs before it looks for the prefix, and nothing else."""
    bench = bench_of("__Host-session")
    cookie = f"{space}__Host-session={bench.session()}"
    environ: dict[str, Any] = {"HTTP_COOKIE": cookie, "wsgi.input": BytesIO()}
    setup_testing_defaults(environ)
    assert cookie_of(bench.gate, WsgiRequest(environ)) is None
    assert cookie_of(bench.gate, AsgiRequest(http_scope(headers=[("cookie", cookie)]))) is None


def test_crumbs_of_http_2_are_one_request_s_cookies() -> None:
    """HTTP/2 may send each cookie in a field of its own (RFC 9113, 8.2.3)."""
    for name in ("session", "__Host-session"):
        crumbs = [("cookie", "a=b"), ("cookie", f"{name}=abc"), ("cookie", "c=d")]
        assert cookie_of(bench_of(name).gate, AsgiRequest(http_scope(headers=crumbs))) == "abc"


@FRAMEWORKS
def test_an_agent_signs_in_and_out_with_the_configured_cookie(framework: str) -> None:
    bench = bench_of("__Host-bot", registration=Registration(session_secrets=[SECRET]))
    page = FrontEnd(framework, bench.gate)
    pair, token = agent_of(page)
    again = page.ask("POST", "/api/v1/auth/bot-sign-in", sent={"dashboard_token": token})
    attributes = again.headers["set-cookie"].split("; ")
    assert pair.startswith("__Host-bot=agent.")
    assert {"Path=/", "HttpOnly", "SameSite=Lax", "Secure"} <= {*attributes}
    assert not any(attribute.startswith("Domain") for attribute in attributes)
    assert page.ask("POST", KEYS, cookie=pair, sent={"name": "second"}).status == 201
    out = page.ask("POST", "/api/v1/auth/bot-sign-out", cookie=pair)
    assert out.headers["set-cookie"].startswith("__Host-bot=; Max-Age=0")
    assert page.ask("GET", KEYS, cookie=pair).code == "SESSION_INVALID"


def test_the_openapi_documents_name_the_cookie() -> None:
    gate = bench_of("__Host-session").gate
    for document in (describe(gate, "x"), fastapi.protect(FastAPI(), gate).openapi()):
        session = document["components"]["securitySchemes"]["session"]
        found = {name: session[name] for name in ("type", "in", "name")}
        assert found == {"type": "apiKey", "in": "cookie", "name": "__Host-session"}
