"""The session cookie under a name that the host chooses, on every framework."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from typing import Any
from wsgiref.util import setup_testing_defaults

import pytest

from lockgate import Registration, run
from lockgate.options import WebOptions
from lockgate.web.asgi_exchange import AsgiRequest
from lockgate.web.operations.openapi import describe
from lockgate.web.wsgi_exchange import WsgiRequest

from .driving import ORIGIN, SECRET, Bench, http_scope
from .front_ends import FRAMEWORKS, KEYS, FrontEnd, django_settings

NAMES = pytest.mark.parametrize("name", ["session", "__Host-session", "__Secure-id"])


@pytest.fixture(autouse=True)
def _django() -> Iterator[None]:
    with django_settings():
        yield


def bench_of(name: str, **fields: Any) -> Bench:
    return Bench(web_options=WebOptions(session_cookie=name), **fields)


@FRAMEWORKS
@NAMES
def test_only_the_cookie_of_the_configured_name_is_a_session(framework: str, name: str) -> None:
    bench = bench_of(name)
    page, good = FrontEnd(framework, bench.gate), bench.session()
    made = page.ask("POST", KEYS, cookie=f"{name}={good}", sent={"name": "k"}, origin=ORIGIN)
    assert made.status == 201
    assert page.ask("GET", KEYS, cookie=f"other=x; {name}={good}").status == 200
    for other in ("__session", name.upper(), f"x{name}", f"{name}2"):
        refused = page.ask("POST", KEYS, cookie=f"{other}={good}", sent={"name": "k"})
        assert (refused.status, refused.code) == (401, "SESSION_REQUIRED")


@FRAMEWORKS
@NAMES
def test_two_cookies_of_the_name_are_refused_whatever_they_hold(framework: str, name: str) -> None:
    bench = bench_of(name)
    page, good = FrontEnd(framework, bench.gate), bench.session()
    for one, other in ((good, good), (good, "x"), ("x", good), (good, ""), ("", good)):
        refused = page.ask("GET", KEYS, cookie=f"{name}={one}; {name}={other}")
        assert (refused.status, refused.code) == (401, "SESSION_INVALID")
        assert refused.headers["www-authenticate"] == "Bearer"
    # A server that joins two headers does so by a comma.
    refused = page.ask("GET", KEYS, cookie=f"{name}={good},{name}={good}")
    assert (refused.status, refused.code) == (401, "SESSION_INVALID")


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
    from lockgate.web.sessions import cookie_of

    assert cookie_of(bench.gate, WsgiRequest(environ)) is None
    assert cookie_of(bench.gate, AsgiRequest(http_scope(headers=[("cookie", cookie)]))) is None


def test_crumbs_of_http_2_are_one_request_s_cookies() -> None:
    """HTTP/2 may send each cookie in a field of its own (RFC 9113, 8.2.3)."""
    from lockgate.web.sessions import cookie_of

    for name in ("session", "__Host-session"):
        crumbs = [("cookie", "a=b"), ("cookie", f"{name}=abc"), ("cookie", "c=d")]
        assert cookie_of(bench_of(name).gate, AsgiRequest(http_scope(headers=crumbs))) == "abc"


@FRAMEWORKS
def test_an_agent_signs_in_and_out_with_the_configured_cookie(framework: str) -> None:
    bench = bench_of("__Host-bot", registration=Registration(session_secrets=[SECRET]))
    page = FrontEnd(framework, bench.gate)
    body = {"agent_name": "bot", "billing_email": "ada@example.com"}
    made = page.ask("POST", "/api/v1/auth/bot-register", sent=body)
    token = {"dashboard_token": made.body["dashboard_token"]}
    signed_in = page.ask("POST", "/api/v1/auth/bot-sign-in", sent=token)
    pair, *attributes = signed_in.headers["set-cookie"].split("; ")
    assert pair.startswith("__Host-bot=agent.")
    assert {"Path=/", "HttpOnly", "SameSite=Lax", "Secure"} <= set(attributes)
    assert not any(attribute.startswith("Domain") for attribute in attributes)
    assert page.ask("POST", KEYS, cookie=pair, sent={"name": "second"}).status == 201
    out = page.ask("POST", "/api/v1/auth/bot-sign-out", cookie=pair)
    assert out.headers["set-cookie"].startswith("__Host-bot=; Max-Age=0")
    assert page.ask("GET", KEYS, cookie=pair).code == "SESSION_INVALID"


def test_the_openapi_document_names_the_cookie() -> None:
    schemes = describe(bench_of("__Host-session").gate, "x")["components"]["securitySchemes"]
    assert schemes["session"] == {"type": "apiKey", "in": "cookie", "name": "__Host-session"}


def test_fastapi_s_document_names_the_cookie() -> None:
    from fastapi import FastAPI

    from lockgate import fastapi

    app = fastapi.protect(FastAPI(), bench_of("__Host-session").gate)
    assert app.openapi()["components"]["securitySchemes"]["session"]["name"] == "__Host-session"
