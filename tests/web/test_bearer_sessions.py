"""An identity provider's token as ``Authorization: Bearer``, on every framework (D9, D12, D18)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import FastAPI

from lockgate import ConfigurationError, ImportedKeyFormat, Registration, Rule, fastapi, run
from lockgate.options import WebOptions
from lockgate.sessions import Session
from lockgate.sessions.jwt import JwtSessions
from lockgate.stores.base import IoMode
from lockgate.web.key_header import KeyHeaderGuard
from lockgate.web.operations.openapi import describe
from tests.sessions.provider import AUDIENCE, EC, ED, ISSUER, KEYS, RSA, jwks, mint

from .driving import ORIGIN, SECRET, Bench
from .front_ends import CLAIM, FRAMEWORKS, STATUS, FrontEnd, agent_of, django_settings
from .front_ends import KEYS as API_KEYS
from .test_guard import Asking, enter

EVIL = "https://evil.example"


@pytest.fixture(autouse=True)
def _django() -> Iterator[None]:
    with django_settings():
        yield


def tokens() -> JwtSessions:
    return JwtSessions(jwks(RSA, EC, ED), issuer=ISSUER, audience=AUDIENCE)


def bench_of(**fields: Any) -> Bench:
    """A gate that takes tokens by both ways; ``options`` are more of WebOptions."""
    options = {"session_bearer": True, **fields.pop("options", {})}
    return Bench(**{"sessions": tokens(), **options, **fields})


def refused_tokens() -> dict[str, str]:
    """Return tokens that no session stands behind, by what is wrong with them."""
    now, good = int(time.time()), mint()
    header, payload, signature = good.split(".")
    return {
        "expired": mint(iat=now - 7200, nbf=now - 7200, exp=now - 3600),
        "another audience": mint(aud=EVIL),
        "none": f"eyJhbGciOiJub25lIn0.{payload}.",
        "another key": mint(EC, header={"kid": "rsa"}),
        "changed": f"{header}.{payload}.{'A' * len(signature)}",
        "another type": mint(header={"typ": "logout+jwt"}),
        "huge": mint(padding="x" * 6000),
        "not one": "a.b.c",
    }


@FRAMEWORKS
def test_a_token_lists_and_creates_and_revokes_keys(framework: str) -> None:
    bench = bench_of()
    page, token = FrontEnd(framework, bench.gate), mint(KEYS["RS256"], "RS256")
    # A browser adds no token by itself: the page may be of any site.
    elsewhere = {"origin": EVIL, "sec_fetch_site": "cross-site"}
    made = page.ask("POST", API_KEYS, bearer=token, sent={"name": "k"}, **elsewhere)
    assert made.status == 201
    (listed,) = page.ask("GET", API_KEYS, bearer=token).body["data"]
    assert listed["id"] == made.body["id"]
    details = run(bench.gate.keys.get("org_1", listed["id"])).details
    assert details is not None
    assert details.created_by == "user:user_ada"
    assert page.ask("DELETE", f"{API_KEYS}/{listed['id']}", bearer=token, **elsewhere).status == 200
    # The key itself is one as before.
    used = page.ask("GET", API_KEYS, bearer=made.body["key"])
    assert (used.status, used.code) == (401, "KEY_REVOKED")
    bad = mint(aud=EVIL)
    answer = page.ask("POST", API_KEYS, bearer=bad, cookie=f"__session={token}", sent={"name": "k"})
    assert (answer.status, answer.code) == (401, "SESSION_INVALID")
    assert answer.headers["www-authenticate"] == 'Bearer error="invalid_token"'
    assert answer.headers["cache-control"] == "no-store"
    assert bad not in str(answer.body)


def test_an_agent_has_no_session_by_a_token() -> None:
    bench = bench_of(registration=Registration(session_secrets=[SECRET]))
    page = FrontEnd("starlette", bench.gate)
    pair, token = agent_of(page)
    assert page.ask("GET", API_KEYS, cookie=pair).status == 200
    # Its cookie has three parts, and its dashboard token none.
    agent = pair.partition("=")[2]
    assert page.ask("GET", API_KEYS, bearer=agent).code == "SESSION_INVALID"
    assert page.ask("GET", API_KEYS, bearer=token).code == "INVALID_FORMAT"
    # Owners claim with a token as well.
    owner = mint(org_id=None)
    (found,) = page.ask("GET", CLAIM, bearer=owner).body["data"]
    wanted = {"organizationId": found["organizationId"]}
    assert page.ask("POST", CLAIM, bearer=owner, sent=wanted, origin=EVIL).status == 200
    bad = page.ask("POST", CLAIM, bearer=mint(aud=EVIL), sent=wanted)
    assert (bad.status, bad.code) == (401, "SESSION_INVALID")


# --- the guard, without a framework -------------------------------------------------------------


def entered(bench: Bench, method: str = "GET", bearer: str | None = None, **headers: Any) -> str:
    """The code of the refusal of an operation of keys, or the organization that comes in."""
    given = {} if bearer is None else {"authorization": f"Bearer {bearer}"}
    code, principal = enter(bench, Asking(method, **given, **headers))
    return code if principal is None else principal.organization


@pytest.mark.parametrize("reason", refused_tokens())
def test_a_bad_token_is_401_whatever_is_wrong_with_it(reason: str) -> None:
    bench, cookie = bench_of(), f"__session={mint()}"
    for method in ("GET", "POST"):
        for beside in ({}, {"cookie": cookie}):
            found = entered(bench, method, refused_tokens()[reason], **beside)
            assert found == "SESSION_INVALID"
    assert bench.used() == 0


def test_a_cookie_keeps_its_check_of_the_origin() -> None:
    bench, cookie = bench_of(), f"__session={mint()}"
    assert entered(bench, "POST", cookie=cookie, origin=ORIGIN) == "org_1"
    # An API key beside the cookie lifts nothing.
    for key in (None, bench.key()):
        found = entered(bench, "POST", key, cookie=cookie, origin=EVIL)
        assert found == "CROSS_SITE_REQUEST"


def test_a_token_decides_alone_beside_a_cookie() -> None:
    cookie = f"__session={mint(org_id='org_cookie')}"
    for method in ("GET", "POST"):
        found = entered(bench_of(), method, mint(org_id="org_token"), cookie=cookie)
        assert found == "org_token"


@pytest.mark.parametrize(
    "text", ["x", "a.b", "a.b.c.d", "a.b.c.d.e", "..", "a..c", ".b.c", "a.b.c="]
)
def test_anything_without_three_parts_stays_an_api_key(text: str) -> None:
    assert entered(bench_of(), "GET", text) == "INVALID_FORMAT"
    assert entered(bench_of(), "POST", text) == "SESSION_REQUIRED"


def test_without_the_option_a_token_is_a_malformed_key() -> None:
    bench = Bench(sessions=tokens())
    assert entered(bench, "GET", mint()) == "INVALID_FORMAT"
    assert entered(bench, "POST", mint()) == "SESSION_REQUIRED"


def test_a_gate_may_take_tokens_and_no_cookie() -> None:
    bench, token = bench_of(options={"session_cookie": None}, public_url=None), mint()
    run(bench.gate.ready())  # Without a cookie, no origin is needed.
    assert entered(bench, "POST", token) == "org_1"
    assert entered(bench, cookie=f"__session={token}; None={token}") == "MISSING_AUTH"
    assert entered(bench, "POST", cookie=f"__session={token}") == "SESSION_REQUIRED"


def test_two_tokens_are_refused_and_so_is_one_beside_a_key() -> None:
    bench = bench_of()
    key = f"Bearer {bench.key()}"
    token = f"Bearer {mint()}"
    for both in ([token, token], [token, key], [key, token], [token, "Basic eA=="]):
        for method in ("GET", "POST"):
            assert enter(bench, Asking(method, authorization=both))[0] == "INVALID_FORMAT"


def test_the_header_for_keys_of_another_system_takes_no_token() -> None:
    bench, token = bench_of(web_options=WebOptions(key_header="X-API-Key")), mint()

    def code_of(caller: Asking) -> str:
        return enter(bench, caller, guard=KeyHeaderGuard)[0]

    assert code_of(Asking(x_api_key=token)) == "INVALID_FORMAT"
    assert code_of(Asking("POST", x_api_key=token)) == "SESSION_REQUIRED"
    both = Asking(x_api_key=bench.key(), authorization=f"Bearer {token}")
    assert code_of(both) == "INVALID_FORMAT"
    assert code_of(Asking(authorization=f"Bearer {token}")) == "in"


@pytest.mark.parametrize("scheme", ["bearer", "BEARER", "Bearer  "])
def test_the_scheme_is_read_as_for_keys(scheme: str) -> None:
    assert enter(bench_of(), Asking(authorization=f"{scheme} {mint()}"))[0] == "in"


def test_an_application_s_own_routes_for_keys_take_no_token() -> None:
    bench = bench_of()
    rules = {"GET /x": Rule("jobs:read"), "GET /y": Rule(accepts=("key", "session"))}
    token = f"Bearer {mint()}"
    for path, code in (("/x", "INVALID_FORMAT"), ("/y", "in"), ("/z", "INVALID_FORMAT")):
        assert enter(bench, Asking(path=path, authorization=token), rules=rules)[0] == code


def test_bad_tokens_spend_the_budget_of_their_address_and_good_ones_pass() -> None:
    bench = bench_of(anonymous=2)
    bad = Asking(authorization=f"Bearer {mint(aud=EVIL)}")
    codes = [enter(bench, bad)[0] for _ in range(3)]
    assert codes == ["SESSION_INVALID", "SESSION_INVALID", "RATE_LIMIT_EXCEEDED"]
    assert enter(bench, Asking(authorization=f"Bearer {mint()}"))[0] == "in"


class Recorder:
    """A verifier of the host that keeps what it is given."""

    io: IoMode = "none"

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def verify(self, cookie: str) -> Session | None:
        self.seen.append(cookie)
        return Session("org_of_tokens", "ada")


def test_tokens_may_have_a_verifier_of_their_own() -> None:
    verifier = Recorder()
    bench = Bench(web_options=WebOptions(session_bearer=verifier))
    _, by_token = enter(bench, Asking(authorization="Bearer a.b.c"))
    _, by_cookie = enter(bench, Asking(cookie=f"__session={bench.session()}"))
    assert by_token is not None
    assert by_cookie is not None
    assert (by_token.organization, by_cookie.organization) == ("org_of_tokens", "org_1")
    assert verifier.seen == ["a.b.c"]
    # A signed cookie has three parts too, and is none of its tokens.
    assert bench.session().count(".") == 2


def test_no_verifier_sees_a_huge_token() -> None:
    verifier = Recorder()
    bench = Bench(web_options=WebOptions(session_bearer=verifier))
    huge = f"Bearer a.{'b' * 5000}.c"
    assert enter(bench, Asking(authorization=huge))[0] == "SESSION_INVALID"
    assert verifier.seen == []


OLD = ImportedKeyFormat(
    "old", r"old\.(?P<handle>[a-z]{8})\.[a-z]{16}", schemes=["sha256"], handle="handle"
)


def test_keys_of_another_system_with_three_parts_stay_keys() -> None:
    bench = bench_of(legacy=[OLD])
    text = "old.abcdefgh.abcdefghijklmnop"
    assert enter(bench, Asking(authorization=f"Bearer {text}"))[0] == "KEY_NOT_FOUND"
    other = "old.abcdefgh.abcdefghijklmnopq"
    assert enter(bench, Asking(authorization=f"Bearer {other}"))[0] == "SESSION_INVALID"


def test_a_verifier_of_tokens_must_suit_the_adapter() -> None:
    async def live(_: Any) -> bool:
        return True

    waiting = JwtSessions(jwks(EC), issuer=ISSUER, audience=AUDIENCE, session_is_live=live)
    gate = Bench(web_options=WebOptions(session_bearer=waiting)).gate
    gate.pair("async")
    with pytest.raises(ConfigurationError, match="JwtSessions needs an event loop"):
        gate.pair("sync")


def test_the_document_offers_the_token_where_sessions_are_taken() -> None:
    document = describe(bench_of().gate, "x")
    assert document["components"]["securitySchemes"]["sessionToken"] == {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "JWT",
    }
    post = document["paths"][API_KEYS]["post"]["security"]
    assert [name for entry in post for name in entry] == ["session", "sessionToken"]
    api = fastapi.protect(FastAPI(), bench_of().gate).openapi()
    assert api["components"]["securitySchemes"]["sessionToken"]["bearerFormat"] == "JWT"
    assert api["paths"][API_KEYS]["post"]["security"] == post
    only = describe(bench_of(options={"session_cookie": None}).gate, "x")
    assert "session" not in only["components"]["securitySchemes"]
    assert [name for entry in only["paths"][STATUS]["get"]["security"] for name in entry] == ["key"]
