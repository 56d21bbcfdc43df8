"""The host is asked before a powerful key is created, on every framework (RFC 9470)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from lockgate import ConfigurationError, Registration, run
from lockgate.options import WebOptions
from lockgate.sessions import ClaimMap, Session, StepUp, StepUpRequest
from lockgate.sessions.jwt import JwtSessions
from tests.sessions.provider import AUDIENCE, EC, ISSUER, jwks, mint

from .driving import ORIGIN, SECRET, Bench
from .front_ends import FRAMEWORKS, KEYS, FrontEnd, agent_of, django_settings

EVERYTHING = ["models:*", "jobs:*", "upload:*", "account:*"]


@pytest.fixture(autouse=True)
def _django() -> Iterator[None]:
    with django_settings():
        yield


def is_recent(request: StepUpRequest) -> bool:
    at = request.session.authenticated_at
    return at is not None and time.time() - at < 300


def bench_of(check: Any = is_recent, *, roles: Any = None, **fields: Any) -> Bench:
    options = {
        "step_up": StepUp(check, **fields),
        **({} if roles is None else {"session_roles": roles}),
    }
    return Bench(web_options=WebOptions(**options))


def cookie_of(bench: Bench, **fields: Any) -> str:
    return f"__session={bench.sessions.issue(Session('org_1', 'ada', **fields))}"


def now() -> int:
    return int(time.time())


@FRAMEWORKS
def test_a_key_with_every_scope_needs_a_recent_sign_in(framework: str) -> None:
    bench = bench_of(max_age=300, acr_values=["urn:mfa", "silver"])
    page = FrontEnd(framework, bench.gate)
    old, recent = (cookie_of(bench, authenticated_at=now() - age) for age in (3600, 5))
    for cookie in (old, cookie_of(bench)):
        for sent in ({"name": "k"}, {"name": "k", "scopes": ["*"]}):
            answer = page.ask("POST", KEYS, cookie=cookie, sent=sent, origin=ORIGIN)
            assert (answer.status, answer.code) == (401, "SESSION_INVALID")
            assert answer.headers["www-authenticate"] == (
                'Bearer error="insufficient_user_authentication", '
                'acr_values="urn:mfa silver", max_age="300"'
            )
            assert answer.headers["cache-control"] == "no-store"
            assert answer.body["error"].startswith("This needs a more recent or stronger sign-in")
    assert run(bench.gate.keys.list("org_1")).keys == []
    # A refusal costs the address none of its budget of failures: the session is good.
    assert bench.gate.failures.peek("testclient").used[0] == 0
    narrow = {"name": "k", "scopes": ["jobs:read"]}
    assert page.ask("POST", KEYS, cookie=old, sent=narrow, origin=ORIGIN).status == 201
    assert page.ask("POST", KEYS, cookie=recent, sent={"name": "k"}, origin=ORIGIN).status == 201


def test_a_check_that_fails_is_503_and_creates_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def raises(_: StepUpRequest) -> bool:
        raise LookupError("the directory is away")

    for check in (raises, lambda _: None, lambda _: 1, lambda _: "yes"):
        caplog.clear()
        bench = bench_of(check)
        page = FrontEnd("flask", bench.gate)
        answer = page.ask("POST", KEYS, cookie=cookie_of(bench), sent={"name": "k"})
        assert (answer.status, answer.code) == (503, "STORE_UNAVAILABLE")
        assert run(bench.gate.keys.list("org_1")).keys == []
        assert "internal_error" in bench.names()
        assert "Traceback" in caplog.text


@pytest.mark.parametrize(
    ("named", "wanted", "asked"),
    [
        (["*"], ["*"], True),
        (["*"], [*EVERYTHING], True),
        (["*"], ["jobs:*", "*"], True),
        (["*"], EVERYTHING[1:], False),
        (["jobs:*"], ["*"], True),
        (["jobs:*"], ["jobs:*"], True),
        (["jobs:*"], ["jobs:read", "jobs:write"], True),
        (["jobs:*"], ["jobs:read"], False),
        (["account:write"], ["account:*"], True),
        (["account:write"], ["account:read", "jobs:*"], False),
        (["upload:write", "jobs:write"], ["jobs:write"], True),
    ],
    ids=str,
)
def test_no_spelling_of_the_scopes_avoids_the_question(
    named: list[str], wanted: list[str], asked: bool
) -> None:
    seen: list[StepUpRequest] = []

    def check(request: StepUpRequest) -> bool:
        seen.append(request)
        return True

    bench = bench_of(check, scopes=named)
    page = FrontEnd("starlette", bench.gate)
    sent = {"name": "  a key ", "scopes": [*wanted, wanted[0]]}
    assert page.ask("POST", KEYS, cookie=cookie_of(bench), sent=sent).status == 201
    assert len(seen) == asked
    if asked:
        assert (seen[0].name, seen[0].scopes) == ("a key", tuple(wanted))
        assert (seen[0].session.organization, seen[0].session.user) == ("org_1", "ada")


def test_the_host_is_asked_about_valid_keys_of_sufficient_roles_only() -> None:
    def check(_: StepUpRequest) -> bool:
        raise AssertionError("not to be asked")

    bench = bench_of(check, scopes=["jobs:write"], roles={"dev": ["account:*", "models:*"]})
    page, cookie = FrontEnd("flask", bench.gate), cookie_of(bench)
    for sent in ({"name": ""}, {"name": "k", "scopes": ["*", "nope"]}, {"scopes": ["*"]}):
        assert page.ask("POST", KEYS, cookie=cookie, sent=sent).status == 400
    dev = cookie_of(bench, role="dev")
    answer = page.ask("POST", KEYS, cookie=dev, sent={"name": "k", "scopes": ["jobs:write"]})
    assert (answer.status, answer.code) == (403, "INSUFFICIENT_SCOPE")


def test_agents_are_asked_about_as_well() -> None:
    options = WebOptions(step_up=StepUp(lambda request: request.session.agent))
    bench = Bench(web_options=options, registration=Registration(session_secrets=[SECRET]))
    page = FrontEnd("wsgi", bench.gate)
    assert page.ask("POST", KEYS, cookie=agent_of(page)[0], sent={"name": "k"}).status == 201
    assert page.ask("POST", KEYS, cookie=cookie_of(bench), sent={"name": "k"}).status == 401


async def test_an_async_check_needs_an_event_loop() -> None:
    async def check(request: StepUpRequest) -> bool:
        return is_recent(request)

    gate = bench_of(check).gate
    gate.pair("async")
    with pytest.raises(ConfigurationError, match=r"step_up=\.\.\.\) is async"):
        gate.pair("sync")
    session = Session("org_1", "ada", authenticated_at=now())
    await gate.session_access.check_new_key(session, "org_1", "k", ["*"])


@pytest.mark.parametrize(
    ("claims", "found"),
    [
        (
            {"auth_time": 1_700_000_000, "acr": "silver", "amr": ["pwd", "otp"]},
            (1_700_000_000, "silver", ("pwd", "otp")),
        ),
        ({"auth_time": 1_700_000_000.9}, (1_700_000_000, None, ())),
        ({}, (None, None, ())),
        ({"auth_time": True, "acr": 1, "amr": "pwd"}, (None, None, ())),
        ({"auth_time": "1700000000", "amr": ["pwd", 1]}, (None, None, ("pwd",))),
    ],
    ids=repr,
)
def test_a_token_tells_when_and_how_its_user_signed_in(
    claims: dict[str, Any], found: tuple[Any, ...]
) -> None:
    tokens = JwtSessions(jwks(EC), issuer=ISSUER, audience=AUDIENCE)
    session = run(tokens.verify(mint(**claims)))
    assert session is not None
    assert (session.authenticated_at, session.acr, session.amr) == found


def test_another_claim_may_tell_when() -> None:
    """Clerk's ``fva`` is the age of the sign-in, in minutes."""
    claim = ClaimMap(authenticated_at=lambda claims: claims["iat"] - 60 * claims["fva"][0])
    tokens = JwtSessions(jwks(EC), issuer=ISSUER, audience=AUDIENCE, claims=claim)
    session = run(tokens.verify(mint(iat=now(), fva=[10, -1])))
    assert session is not None
    assert session.authenticated_at is not None
    assert now() - session.authenticated_at >= 600
