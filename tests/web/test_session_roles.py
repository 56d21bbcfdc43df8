"""What the role of a session permits, on every framework (D16, D19)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lockgate import Catalogue, ConfigurationError, Registration, Rule, run
from lockgate.core.scopes import not_granted
from lockgate.options import WebOptions
from lockgate.sessions import ClaimMap, Session, SignedCookie
from lockgate.sessions.jwt import JwtSessions
from tests.sessions.provider import AUDIENCE, EC, ISSUER, jwks, mint

from .driving import SECRET, Bench
from .front_ends import CLAIM, FRAMEWORKS, KEYS, FrontEnd, agent_of, django_settings
from .test_guard import Asking, enter

REGISTER = {"agent_name": "bot", "billing_email": "ada@example.com"}


@pytest.fixture(autouse=True)
def _django() -> Iterator[None]:
    with django_settings():
        yield


def bench_of(role: Any = None, roles: Any = None, **fields: Any) -> Bench:
    options = {"session_role": role, **({} if roles is None else {"session_roles": roles})}
    return Bench(web_options=WebOptions(**options), **fields)


def cookie_of(bench: Bench, **fields: Any) -> str:
    return f"__session={bench.sessions.issue(Session('org_1', 'ada', **fields))}"


def assert_lacks(answer: Any, scope: str) -> None:
    assert (answer.status, answer.code) == (403, "INSUFFICIENT_SCOPE")
    challenge = f'Bearer error="insufficient_scope", scope="{scope}"'
    assert answer.headers["www-authenticate"] == challenge
    assert answer.headers["cache-control"] == "no-store"
    assert f"Your role lacks the scope '{scope}'" in answer.body["error"]
    assert "x-ratelimit-remaining" in answer.headers


@FRAMEWORKS
def test_a_viewer_reads_and_changes_nothing(framework: str) -> None:
    bench = bench_of(registration=Registration(session_secrets=[SECRET]))
    page = FrontEnd(framework, bench.gate)
    page.ask("POST", "/api/v1/auth/bot-register", sent=REGISTER)
    bench.key()
    (key,) = run(bench.gate.keys.list("org_1")).keys
    viewer = cookie_of(bench, verified_email="ada@example.com", role="viewer")
    assert len(page.ask("GET", KEYS, cookie=viewer).body["data"]) == 1
    assert page.ask("GET", f"{KEYS}/{key.id}", cookie=viewer).status == 200
    (claimable,) = page.ask("GET", CLAIM, cookie=viewer).body["data"]
    wanted = {"organizationId": claimable["organizationId"]}
    for method, path, sent in (
        ("POST", KEYS, {"name": "k"}),
        ("POST", KEYS, {}),  # The role is told before the body is looked at.
        ("DELETE", f"{KEYS}/{key.id}", None),
        ("DELETE", f"{KEYS}/x", None),
        ("POST", CLAIM, wanted),
    ):
        assert_lacks(page.ask(method, path, cookie=viewer, sent=sent), "account:write")
    (after,) = run(bench.gate.keys.list("org_1")).keys
    assert (after.id, after.revoked_at) == (key.id, None)


@pytest.mark.parametrize("role", ["", "editor", "Viewer", "*"])
def test_an_unknown_role_permits_nothing(role: str, caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    page, cookie = FrontEnd("asgi", bench.gate), cookie_of(bench, role=role)
    for _ in range(2):
        assert_lacks(page.ask("GET", KEYS, cookie=cookie), "account:read")
    assert_lacks(page.ask("POST", KEYS, cookie=cookie, sent={"name": "k"}), "account:write")
    told = [entry for entry in caplog.messages if f"the role {role!r}, which permits" in entry]
    assert len(told) == 1


def test_a_key_has_no_more_scopes_than_the_role_of_its_creator() -> None:
    roles = {"developer": ["account:*", "jobs:*", "models:read"]}
    bench = bench_of(lambda _: "developer", roles)
    page, cookie = FrontEnd("asgi", bench.gate), cookie_of(bench)

    def create(**fields: Any) -> Any:
        return page.ask("POST", KEYS, cookie=cookie, sent={"name": "k", **fields})

    assert_lacks(create(), "*")
    assert_lacks(create(scopes=["jobs:read", "models:*"]), "models:*")
    assert_lacks(create(scopes=["upload:write"]), "upload:write")
    assert create(scopes=["jobs:*", "jobs:write", "models:read"]).status == 201
    assert create(scopes=["jobs:raed"]).status == 400


def test_a_function_of_the_host_that_fails_is_503_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def raises(_: Session) -> str:
        raise LookupError("the directory is away")

    mistakes: list[Callable[[Session], Any]] = [raises, lambda _: 7, lambda _: ["viewer"]]
    for role in mistakes:
        caplog.clear()
        bench = bench_of(role)
        assert enter(bench, Asking(cookie=cookie_of(bench)))[0] == "STORE_UNAVAILABLE"
        assert bench.used() == 0
        (told,) = [event for event in bench.told if event.name == "internal_error"]
        assert told.fields["error"] in {"LookupError", "TypeError"}
        assert "Traceback" in caplog.text


# --- without a framework ------------------------------------------------------------------------


def test_the_function_sees_the_organization_that_the_session_acts_for() -> None:
    seen: list[Session] = []

    def role(session: Session) -> str | None:
        seen.append(session)
        return {"org_1": "admin", "org_2": "viewer"}.get(session.organization or "")

    bench = bench_of(role)
    codes: list[str] = []
    for organization in ("org_1", "org_2", "org_3"):
        cookie = f"__session={bench.session(organization)}"
        rules = {"POST /x": Rule("jobs:write", accepts=("session",))}
        codes.append(enter(bench, Asking("POST", "/x", cookie=cookie), rules=rules)[0])
    assert codes == ["in", "INSUFFICIENT_SCOPE", "INSUFFICIENT_SCOPE"]
    assert [session.organization for session in seen] == ["org_1", "org_2", "org_3"]
    assert bench.used("org_2") == 1  # As for a key, a 403 is counted (D19).
    # It goes before the role of the verifier.
    bench = bench_of(lambda session: "viewer" if session.role == "admin" else "admin")
    _, principal = enter(bench, Asking(cookie=cookie_of(bench, role="admin")))
    assert principal is not None and principal.session is not None
    assert (principal.session.role, [*principal.scopes]) == ("viewer", ["account:read"])
    assert not principal.may("account:write")


async def test_an_async_function_needs_an_event_loop() -> None:
    async def role(_: Session) -> str:
        return "viewer"

    gate = bench_of(role).gate
    gate.pair("async")
    session = await gate.session_access.with_role(Session("org_1", "ada"))
    assert session.scopes == ("account:read",)
    with pytest.raises(ConfigurationError, match=r"session_role=\.\.\.\) is async"):
        gate.pair("sync")


def test_a_hidden_async_function_is_told_and_never_a_500(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def role(_: Session) -> str:
        return "admin"

    bench = bench_of(lambda session: role(session))  # noqa: PLW0108 - it hides the kind
    answer = FrontEnd("flask", bench.gate).ask("GET", KEYS, cookie=cookie_of(bench))
    assert (answer.status, answer.code) == (503, "STORE_UNAVAILABLE")
    assert "no event loop runs here" in caplog.text
    asgi = FrontEnd("starlette", bench.gate).ask("GET", KEYS, cookie=cookie_of(bench))
    assert asgi.status == 200


def test_agents_have_no_role() -> None:
    bench = bench_of(lambda _: "viewer", registration=Registration(session_secrets=[SECRET]))
    page = FrontEnd("starlette", bench.gate)
    pair, _ = agent_of(page)
    assert page.ask("POST", KEYS, cookie=pair, sent={"name": "k"}).status == 201


@pytest.mark.parametrize(
    ("claims", "role", "scopes"),
    [
        ({"org_role": "viewer"}, "viewer", ("account:read",)),
        ({"org_role": "admin"}, "admin", ("*",)),
        ({}, "", ()),
        ({"org_role": ["admin"]}, "", ()),
        ({"org_role": None}, "", ()),
        ({"org_role": {"name": "admin"}}, "", ()),
    ],
    ids=repr,
)
def test_a_claim_may_be_the_role(
    claims: dict[str, Any], role: str, scopes: tuple[str, ...]
) -> None:
    tokens = JwtSessions(
        jwks(EC), issuer=ISSUER, audience=AUDIENCE, claims=ClaimMap(role="org_role")
    )
    gate = Bench(sessions=tokens).gate
    session = run(tokens.verify(mint(**claims)))
    assert session is not None
    found = run(gate.session_access.with_role(session))
    assert (found.role, found.scopes) == (role, scopes)


def test_a_signed_cookie_keeps_every_field_and_stays_short_without() -> None:
    people = SignedCookie([SECRET])
    for session in (
        Session("org_1", "ada"),
        Session("org_1", "ada", role="viewer"),
        Session("org_1", "ada", role=""),
        Session("org_1", "ada", scopes=("account:read",)),
        Session("org_1", "ada", scopes=()),
        Session("org_1", "ada", authenticated_at=1_700_000_000, acr="x", amr=("otp",)),
    ):
        assert run(people.verify(people.issue(session))) == session
    plain = people.issue(Session("org_1", "ada", "ada@example.com"))
    assert len(plain) < 100


@pytest.mark.parametrize("scopes", ["*", ["*"], [1], None, {"*": 1}])
def test_scopes_of_another_type_are_a_fault_of_the_verifier(scopes: Any) -> None:
    class Wrong:
        io = "none"

        async def verify(self, cookie: str) -> Session | None:
            return Session("org_1", "ada", scopes=scopes)

    bench = Bench(sessions=Wrong())
    assert enter(bench, Asking(cookie="__session=x"))[0] == "STORE_UNAVAILABLE"
    assert "internal_error" in bench.names()


@pytest.mark.parametrize(
    ("granted", "wanted", "first"),
    [
        (["*"], ["*", "jobs:*", "jobs:read"], None),
        (["jobs:*"], ["jobs:*", "jobs:read", "jobs:render:start", "jobs:render:*"], None),
        (["jobs:*"], ["*"], "*"),
        (["jobs:read"], ["jobs:*"], "jobs:*"),
        (["jobs:render:*"], ["jobs:render"], "jobs:render"),
        (["jobs:read", "jobs:write"], ["jobs:*"], "jobs:*"),
        ([], ["jobs:read"], "jobs:read"),
        ([], [], None),
    ],
)
def test_which_scope_is_beyond_some_grants(
    granted: list[str], wanted: list[str], first: str | None
) -> None:
    assert not_granted(granted, wanted) == first


def test_a_catalogue_of_one_s_own_has_roles_of_its_own() -> None:
    bench = bench_of(
        lambda _: "clerk",
        {"clerk": ["account:*", "invoices:*"]},
        catalogue=Catalogue.of(["account:read", "invoices:read"]),
    )
    _, principal = enter(bench, Asking(cookie=cookie_of(bench)))
    assert principal is not None
    assert principal.may("invoices:write")
