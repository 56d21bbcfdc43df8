"""The operations of accounts over ASGI: credentials, answers, and texts that no answer has."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Mapping
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.types import ASGIApp

from lockgate import Event, Gate, MemoryStore, Plan, Registration, run
from lockgate.asgi import GateMiddleware
from lockgate.core.accounts import Account
from lockgate.core.api_keys import ApiKey, KeyDraft
from lockgate.options import WebOptions
from lockgate.sessions import Session, SignedCookie
from lockgate.starlette import operations
from lockgate.web.operations.openapi import describe

from ..driving import Answer, ask

SECRET = "a session secret of the tests"
ORIGIN = "https://console.example.com"
REGISTER, SIGN_IN, SIGN_OUT, CLAIM = (
    f"/api/v1/auth/{name}" for name in ("bot-register", "bot-sign-in", "bot-sign-out", "claim")
)
KEYS = "/api/v1/api-keys"
BODY = {"agent_name": "render bot", "billing_email": "ada@example.com"}
PEOPLE = SignedCookie([SECRET])


class Desk:
    """An application with registration, mounted behind a middleware or standing alone."""

    def __init__(
        self, store: MemoryStore | None = None, *, rpm: int = 1000, **registration: Any
    ) -> None:
        self.told: list[Event] = []
        self.gate = Gate(
            store or MemoryStore(),
            brand="acme",
            sessions=PEOPLE,
            web_options=WebOptions(
                public_url=ORIGIN,
                anonymous=Plan("anonymous", rpm=rpm, rph=None, rpd=None, concurrent=0),
            ),
            features=[Registration(**{"session_secrets": [SECRET], **registration})],
            observer=self.told.append,
        )
        self.alone: ASGIApp = Starlette(routes=operations(self.gate))
        self.app: ASGIApp = GateMiddleware(Starlette(routes=operations(self.gate)), self.gate)

    async def register(self, **fields: object) -> dict[str, str]:
        answer = await ask(self.app, "POST", REGISTER, json_body={**BODY, **fields})
        assert answer.status == 201, answer.body
        made: dict[str, str] = answer.json()
        return made

    async def sign_in(self, token: str) -> str:
        answer = await ask(self.app, "POST", SIGN_IN, json_body={"dashboard_token": token})
        assert answer.status == 200, answer.body
        return answer.one("set-cookie").partition("=")[2].partition(";")[0]

    def names(self) -> list[str]:
        return [event.name for event in self.told]


def person(user: str = "ada", email: str | None = "ada@example.com", **more: Any) -> str:
    return PEOPLE.issue(Session(more.get("organization"), user, email))


# --- bot-register ---------------------------------------------------------------------------


async def test_spec_4_5_registering_behind_a_middleware_and_alone() -> None:
    desk = Desk()
    for app in (desk.app, desk.alone):
        answer = await ask(app, "POST", REGISTER, json_body=BODY)
        assert answer.status == 201
        made = answer.json()
        assert made.keys() == {"api_key", "dashboard_token", "dashboard_url", "billing_url"}
        assert (answer.one("cache-control"), answer.rate[0]) == ("no-store", 1000)
        assert (await ask(app, "GET", KEYS, key=made["api_key"])).status == 200
        assert (await ask(app, "GET", KEYS, key=made["dashboard_token"])).status == 401


@pytest.mark.parametrize(
    ("change", "fields"),
    [
        ({"agent_name": ""}, ["agent_name"]),
        ({"agent_name": "a\ud800"}, ["agent_name"]),
        ({"billing_email": "ada@example.com\r\nBcc: eve@example.com"}, ["billing_email"]),
        ({"account_type": None}, ["account_type"]),
        ({"account_type": "company"}, ["company_name"]),
        ({"agentName": "x"}, ["agentName"]),
        ({"agent_name": 1, "billing_email": "x", "x": 1}, ["agent_name", "billing_email", "x"]),
    ],
)
async def test_g3_bad_input_is_refused_by_field_and_registers_no_account(
    change: Mapping[str, object], fields: list[str]
) -> None:
    desk = Desk(per_address=1)
    answer = await ask(desk.app, "POST", REGISTER, json_body={**BODY, **change})
    assert answer.status == 400
    assert [detail["field"] for detail in answer.json()["details"]] == fields
    assert desk.names() == ["registration_refused"]
    await desk.register()


TOKEN = {"dashboard_token": "x"}
ID = {"organizationId": "x"}


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        (REGISTER, b'{"agent_name": "a", "agent_name": "b"}', 400),
        (REGISTER, {**BODY, "proof": "x"}, 400),  # The service has no function that reads it.
        (SIGN_IN, b"", 400),
        (SIGN_IN, {}, 400),
        (SIGN_IN, {**TOKEN, "y": 1}, 400),
        (SIGN_IN, {"dashboard_token": 1}, 400),
        (SIGN_IN, TOKEN, 401),
        (CLAIM, {}, 400),
        (CLAIM, {"organizationId": 1}, 400),
        (CLAIM, {**ID, "revokeKeys": "yes"}, 400),
        (CLAIM, {**ID, "revokeKeys": None}, 400),
        (CLAIM, {"organization_id": "x"}, 400),
        (CLAIM, [], 400),
        *((path, b" " * 65_537, 413) for path in (REGISTER, SIGN_IN, CLAIM)),
        *((path, None, 415) for path in (REGISTER, SIGN_IN, CLAIM)),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_g3_bodies_that_no_operation_takes(path: str, body: Any, status: int) -> None:
    desk, headers = Desk(), [("content-type", "text/plain" if body is None else "application/json")]
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    session = person() if path == CLAIM else None
    answer = await ask(desk.app, "POST", path, headers=headers, body=sent, session=session)
    assert answer.status == status
    if path != CLAIM:
        assert desk.names() == [f"{'registration' if path == REGISTER else 'sign_in'}_refused"]
    if status == 401:
        assert answer.code == "TOKEN_NOT_ACCEPTED"
        assert answer.one("www-authenticate") == 'Bearer error="invalid_token"'


async def test_r2_the_answer_to_a_known_email_has_the_same_shape() -> None:
    desk = Desk()
    answers = [await ask(desk.app, "POST", REGISTER, json_body=BODY) for _ in range(2)]
    answers.append(
        await ask(desk.app, "POST", REGISTER, json_body={**BODY, "billing_email": "b@example.com"})
    )
    shapes = {
        (a.status, tuple(k for k, _ in a.start["headers"]), tuple(a.json()), len(a.body))
        for a in answers
    }
    assert len(shapes) == 1


async def test_d24_an_address_with_a_spent_anonymous_budget_registers_no_account() -> None:
    desk = Desk(rpm=3)
    for _ in range(3):
        await desk.register()
    answer = await ask(desk.app, "POST", REGISTER, json_body=BODY)
    assert (answer.status, answer.json()["limits"]["type"]) == (429, "minute")
    assert desk.names()[-1] == "refused"


async def test_shadow_mode_opens_no_operation_of_accounts() -> None:
    desk = Desk(rpm=1)
    app = GateMiddleware(desk.alone, desk.gate, shadow="all")
    assert (await ask(app, "POST", REGISTER, json_body=BODY)).status == 201
    for path in (REGISTER, SIGN_IN, CLAIM):
        assert (await ask(app, "POST", path, json_body=BODY)).status == 429


async def test_other_methods_and_a_gate_without_registration_are_closed() -> None:
    desk = Desk()
    assert (await ask(desk.app, "GET", REGISTER)).status == 401
    key = (await desk.register())["api_key"]
    assert (await ask(desk.app, "GET", REGISTER, key=key)).status == 405
    closed = Gate(brand="acme", sessions=PEOPLE, web_options=WebOptions(public_url=ORIGIN))
    app = GateMiddleware(Starlette(routes=operations(closed)), closed)
    for path in (REGISTER, SIGN_IN, SIGN_OUT, CLAIM):
        assert (await ask(app, "POST", path, json_body=BODY)).status == 401


# --- signing in and out ---------------------------------------------------------------------


@pytest.mark.parametrize(("development", "secure"), [(False, True), (True, False)])
async def test_the_cookie_has_the_attributes_of_a_host_cookie(
    development: bool, secure: bool
) -> None:
    desk = Desk(development=development, session_seconds=60)
    token = (await desk.register())["dashboard_token"]
    answer = await ask(desk.app, "POST", SIGN_IN, json_body={"dashboard_token": token})
    name_and_value, *attributes = answer.one("set-cookie").split("; ")
    assert name_and_value.startswith("__session=agent.")
    expected = {"Max-Age=60", "Path=/", "HttpOnly", "SameSite=Lax"}
    assert set(attributes) == (expected | {"Secure"} if secure else expected)
    assert answer.one("cache-control") == "no-store"
    assert answer.json()["expires_in"] == 60


async def test_signing_out_is_for_agents() -> None:
    desk = Desk()
    session = person(organization="org_work")
    answer = await ask(desk.app, "POST", SIGN_OUT, session=session)
    assert (answer.status, answer.code) == (403, "AGENTS_ONLY")
    key = (await desk.register())["api_key"]
    assert (await ask(desk.app, "POST", SIGN_OUT, key=key)).code == "SESSION_REQUIRED"


CROSS_SITE = [
    [("sec-fetch-site", "cross-site")],
    [("sec-fetch-site", "same-site")],
    [("origin", "https://evil.example")],
    [("origin", "null")],
    [("origin", ORIGIN), ("origin", ORIGIN)],
]


@pytest.mark.parametrize("headers", CROSS_SITE, ids=str)
async def test_r5_no_other_sites_page_signs_in_signs_out_or_claims(
    headers: list[tuple[str, str]],
) -> None:
    desk = Desk()
    made = await desk.register()
    cookie = await desk.sign_in(made["dashboard_token"])
    (organization,) = [
        a.organization for a in run(desk.gate.store.unclaimed_by_email(BODY["billing_email"], 9))
    ]
    asked: list[tuple[str, str | None, object]] = [
        (SIGN_IN, None, {"dashboard_token": made["dashboard_token"]}),
        (SIGN_OUT, cookie, None),
        (CLAIM, person(), {"organizationId": organization, "revokeKeys": True}),
        (KEYS, cookie, {"name": "x"}),
    ]
    for path, session, body in asked:
        answer = await ask(desk.app, "POST", path, session=session, json_body=body, headers=headers)
        assert (answer.status, answer.code) == (403, "CROSS_SITE_REQUEST"), path
        assert not [1 for name, _ in answer.start["headers"] if name == b"set-cookie"]
    account = run(desk.gate.store.account(organization))
    assert account is not None
    assert (account.claimed_by, account.sign_outs) == (None, 0)
    own = [("origin", ORIGIN), ("sec-fetch-site", "same-origin")]
    for path, session, body in [asked[0], asked[3], asked[1], asked[2]]:
        answer = await ask(desk.app, "POST", path, session=session, json_body=body, headers=own)
        assert answer.status in (200, 201), path


# --- claiming -------------------------------------------------------------------------------


async def test_d15_an_owner_claims_an_organization_and_acts_for_it() -> None:
    desk = Desk()
    await desk.register()
    owner = person()
    refused = await ask(desk.app, "GET", KEYS, session=owner)
    assert (refused.status, refused.code) == (403, "NO_ORGANIZATION")
    body = {"organizationId": (await owned(desk))["organizationId"]}
    claimed = await ask(desk.app, "POST", CLAIM, session=owner, json_body=body)
    assert claimed.json()["data"]["claimedAt"] is not None
    again = await ask(desk.app, "POST", CLAIM, session=owner, json_body=body)
    assert again.json() == claimed.json()
    created = await ask(desk.app, "POST", KEYS, session=owner, json_body={"name": "x"})
    assert created.status == 201
    for user in ("eve", "Ada"):
        answer = await ask(desk.app, "POST", CLAIM, session=person(user), json_body=body)
        assert (answer.status, answer.code) == (403, "CLAIM_REFUSED")
    assert desk.names().count("claimed") == 2


async def test_d24_an_owner_revokes_a_claimed_key_from_a_spent_address() -> None:
    """The session names no organization: which one they claimed, the store says."""
    desk = Desk(rpm=4)
    made = await desk.register()
    owner = person()
    body = {"organizationId": (await owned(desk))["organizationId"]}
    assert (await ask(desk.app, "POST", CLAIM, session=owner, json_body=body)).status == 200
    while (await ask(desk.app, path="/x")).status == 401:
        pass
    assert (await ask(desk.app, "GET", KEYS, key=made["api_key"])).status == 429
    (key,) = (await ask(desk.app, "GET", KEYS, session=owner)).json()["data"]
    revoked = await ask(desk.app, "DELETE", f"{KEYS}/{key['id']}", session=owner)
    assert revoked.status == 200


async def test_d24_an_agents_session_asks_a_store_so_a_spent_address_waits() -> None:
    class Asked(MemoryStore):
        times = 0

        async def account_by_token(self, handle: str) -> Account | None:
            self.times += 1
            return await super().account_by_token(handle)

    store = Asked()
    desk = Desk(store, rpm=4)
    cookie = await desk.sign_in((await desk.register())["dashboard_token"])
    assert (await ask(desk.app, "GET", KEYS, session=cookie)).status == 200
    while (await ask(desk.app, path="/x")).status == 401:
        pass
    times = store.times
    assert (await ask(desk.app, "GET", KEYS, session=cookie)).status == 429
    assert (await ask(desk.app, "GET", KEYS, session="agent.forged")).status == 429
    assert store.times == times
    elsewhere = await ask(desk.app, "GET", KEYS, session=cookie, client=("192.0.2.2", 1))
    assert elsewhere.status == 200


async def test_d24_an_agent_that_names_others_spends_no_budget_but_its_own() -> None:
    desk = Desk(rpm=4)
    cookies = [await desk.sign_in((await desk.register())["dashboard_token"]) for _ in "ab"]
    others = [("x-organization-id", "org_other")]
    statuses = [
        (await ask(desk.app, "GET", KEYS, session=cookies[0], headers=others)).status
        for _ in range(6)
    ]
    assert statuses == [403] * 4 + [429] * 2
    assert (await ask(desk.app, "GET", KEYS, session=cookies[1])).status == 200
    assert desk.gate.failures.peek("192.0.2.1").remaining == 4


async def test_g5_others_are_served_while_hundreds_of_keys_are_shown() -> None:
    """What one caller has collected in days is no reason for all others to wait (G5)."""
    desk = Desk()
    for _ in range(3):
        await desk.register()
    accounts = desk.gate.accounts
    assert accounts is not None
    found = (await accounts.claims.list(Session(None, "ada", "ada@example.com"))).accounts
    for _ in range(250):
        await desk.gate.keys.create(found[0].account.organization, "x")
    session = person(organization=found[0].account.organization)
    body = {"organizationId": found[0].account.organization}
    assert (await ask(desk.app, "POST", CLAIM, session=session, json_body=body)).status == 200
    # A turn for each account, of whose keys a part is shown.
    assert await turns_while(ask(desk.app, "GET", CLAIM, session=session)) >= 3
    assert await turns_while(ask(desk.app, "GET", KEYS, session=session)) >= 2


async def turns_while(asked: Coroutine[Any, Any, Answer]) -> int:
    """Count the turns of other tasks in the event loop during a request."""
    answering = asyncio.create_task(asked)
    await asyncio.sleep(0)  # It begins.
    turns = 0
    while not answering.done():
        turns += 1
        await asyncio.sleep(0)
    assert answering.result().status == 200
    return turns


async def test_the_header_chooses_among_ones_own_organizations() -> None:
    desk = Desk()
    await desk.register()
    work = person(organization="org_work")
    (mine,) = (await ask(desk.app, "GET", CLAIM, session=work)).json()["data"]
    chosen = [("x-organization-id", mine["organizationId"])]

    async def keys(headers: list[tuple[str, str]], session: str = work) -> tuple[int, int]:
        answer = await ask(desk.app, "GET", KEYS, session=session, headers=headers)
        return answer.status, len(answer.json().get("data", []))

    assert await keys(chosen) == (403, 0)
    body = {"organizationId": mine["organizationId"]}
    await ask(desk.app, "POST", CLAIM, session=work, json_body=body)
    assert await keys(chosen) == (200, 1)
    assert await keys([]) == (200, 0)
    assert await keys([("x-organization-id", "org_work")]) == (200, 0)
    assert await keys([("x-organization-id", f" {mine['organizationId']}\t")]) == (200, 1)
    for headers in (
        [("x-organization-id", "org_other")],
        [("x-organization-id", "")],
        [("x-organization-id", "\u00e9")],
        [*chosen, *chosen],
        [*chosen, ("x-organization-id", "org_work")],
    ):
        assert await keys(headers) == (403, 0)
    stranger = person("eve", organization="org_eve")
    assert await keys(chosen, stranger) == (403, 0)
    key = run(desk.gate.keys.create("org_third", "x")).text
    answer = await ask(desk.app, "GET", KEYS, key=key, headers=chosen)
    assert len(answer.json()["data"]) == 1, "a key acts for its own organization, whatever is named"


@pytest.mark.parametrize(
    ("cookie", "code"),
    [
        (None, "SESSION_REQUIRED"),
        ("nonsense", "SESSION_INVALID"),
        (person(email=None), "CLAIM_REFUSED"),
    ],
    ids=["none", "forged", "unverified"],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_claims_without_a_session_or_a_verified_email_are_refused(
    method: str, cookie: str | None, code: str
) -> None:
    desk = Desk()
    body = {"organizationId": "org_1"} if method == "POST" else None
    answer = await ask(desk.app, method, CLAIM, session=cookie, json_body=body)
    assert answer.code == code
    key = (await desk.register())["api_key"]
    by_key = await ask(desk.app, method, CLAIM, key=key, json_body=body)
    assert by_key.code == "SESSION_REQUIRED"
    assert answer.one("cache-control") == "no-store"


async def test_revoking_ends_keys_token_and_sessions_in_the_same_step() -> None:
    desk = Desk()
    made = await desk.register()
    cookie = await desk.sign_in(made["dashboard_token"])
    body = {"organizationId": (await owned(desk))["organizationId"], "revokeKeys": True}
    answer = await ask(desk.app, "POST", CLAIM, session=person(), json_body=body)
    assert [key["isActive"] for key in answer.json()["data"]["keys"]] == [False]
    assert (await ask(desk.app, "GET", KEYS, key=made["api_key"])).code == "KEY_REVOKED"
    assert (await ask(desk.app, "GET", KEYS, session=cookie)).code == "SESSION_INVALID"
    again = await ask(
        desk.app, "POST", SIGN_IN, json_body={"dashboard_token": made["dashboard_token"]}
    )
    assert again.code == "TOKEN_NOT_ACCEPTED"


async def test_d46_a_claimer_may_keep_the_token() -> None:
    desk = Desk()
    made = await desk.register()
    body = {"organizationId": (await owned(desk))["organizationId"], "keepDashboardToken": True}
    assert (await ask(desk.app, "POST", CLAIM, session=person(), json_body=body)).status == 200
    assert (await ask(desk.app, "GET", KEYS, key=made["api_key"])).status == 200
    assert await desk.sign_in(made["dashboard_token"])


@pytest.mark.parametrize("revoke_keys", [True, False])
async def test_no_key_of_an_agents_session_survives_a_claim_that_comes_between(
    revoke_keys: bool,
) -> None:
    """The session is good when the request comes in, and the claim is answered before it is."""

    class Slow(MemoryStore):
        claim: Any = None
        made: ApiKey | None = None

        async def insert(
            self, draft: KeyDraft, cap: int | None, now: int | None = None, **options: Any
        ) -> ApiKey:
            if self.claim is not None:
                await self.claim()
            self.made = await super().insert(draft, cap, now, **options)
            return self.made

    store = Slow()
    desk = Desk(store)
    made = await desk.register()
    cookie = await desk.sign_in(made["dashboard_token"])
    (account,) = run(store.unclaimed_by_email(BODY["billing_email"], 9))
    assert desk.gate.accounts is not None
    claims = desk.gate.accounts.claims
    session = Session(None, "ada", BODY["billing_email"])
    store.claim = lambda: claims.claim(session, account.organization, revoke_keys=revoke_keys)
    answer = await ask(desk.app, "POST", KEYS, session=cookie, json_body={"name": "too late"})
    assert (answer.status, answer.code) == (401, "SESSION_INVALID")
    assert store.made is not None
    kept = await store.find(store.made.handle)
    assert kept is not None and kept.revoked_at is not None


@pytest.mark.parametrize("registers", [True, False])
async def test_an_identity_providers_organization_of_the_same_id_gives_no_access(
    registers: bool,
) -> None:
    """Nor does a session of a host's verifier that names no user: an agent's comes by its token.
    Nor at a service without registration that shares the store."""
    desk = Desk()
    made = await desk.register()
    organization = (await owned(desk))["organizationId"]
    options = WebOptions(public_url=ORIGIN)
    plain = Gate(desk.gate.store, brand="acme", sessions=PEOPLE, web_options=options)
    gate = desk.gate if registers else plain
    app = GateMiddleware(Starlette(routes=operations(gate)), gate)
    sessions = [
        person("eve", "eve@example.com", organization=organization),
        person("eve", None, organization=organization),
        *([PEOPLE.issue(Session(organization))] if registers else []),
    ]
    chosen = [("x-organization-id", organization)]
    for session in sessions:
        for headers in ([], chosen):
            for method, body in (("GET", None), ("POST", {"name": "x"})):
                answer = await ask(
                    app, method, KEYS, session=session, headers=headers, json_body=body
                )
                assert (answer.status, answer.code) == (403, "NO_ORGANIZATION")
    assert len((await ask(desk.app, "GET", KEYS, key=made["api_key"])).json()["data"]) == 1
    for other in (person("eve", organization="org_work"), PEOPLE.issue(Session("org_of_host"))):
        answer = await ask(app, "POST", KEYS, session=other, json_body={"name": "x"})
        assert answer.status == 201


async def owned(desk: Desk) -> dict[str, Any]:
    (mine,) = (await ask(desk.app, "GET", CLAIM, session=person())).json()["data"]
    found: dict[str, Any] = mine
    return found


# --- pages ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "field"),
    [
        *[
            (f"limit={value}", "limit")
            for value in ("0", "51", "", "-1", "1.5", "%D9%A1", "9" * 5000)
        ],
        ("cursor=", "cursor"),
        ("cursor=nonsense", "cursor"),
        ("cursor=%00", "cursor"),
        ("cursor=dS4xLm9yZw==&cursor=dS4xLm9yZw==", "cursor"),
        ("offset=3", "offset"),
        ("limit=3&=x", ""),
        ("&".join(f"a{n}" for n in range(99)), ""),
        ("%FF%fe=\xff", "\ufffd\ufffd"),
    ],
)
async def test_g3_queries_that_are_none(query: str, field: str) -> None:
    answer = await ask(Desk().app, "GET", CLAIM, session=person(), query=query)
    assert (answer.status, answer.code) == (400, "VALIDATION_ERROR")
    assert {detail["field"] for detail in answer.json()["details"]} == {field}


# --- approval -------------------------------------------------------------------------------


async def test_d13_a_service_that_asks_for_a_proof() -> None:
    desk = Desk(approve=lambda asked: asked.proof == "good")
    for body in (BODY, {**BODY, "proof": None}, {**BODY, "proof": "bad"}):
        answer = await ask(desk.app, "POST", REGISTER, json_body=body)
        assert (answer.status, answer.code) == (403, "REGISTRATION_REFUSED")
        assert answer.one("cache-control") == "no-store"
    assert desk.names() == ["registration_refused"] * 3
    await desk.register(proof="good")
    answer = await ask(desk.app, "POST", REGISTER, json_body={**BODY, "proof": "\u00e9"})
    assert [detail["field"] for detail in answer.json()["details"]] == ["proof"]


async def test_the_openapi_document_has_the_proof_where_the_service_asks_for_one() -> None:
    for desk, shown in ((Desk(), False), (Desk(approve=lambda _: True), True)):
        document = describe(desk.gate, "A service")
        content = document["paths"][REGISTER]["post"]["requestBody"]["content"]
        name = content["application/json"]["schema"]["$ref"].rpartition("/")[2]
        assert ("proof" in document["components"]["schemas"][name]["properties"]) == shown
        names = [one["name"] for one in document["paths"][CLAIM]["get"]["parameters"]]
        assert names == ["limit", "cursor"]
