"""Agents register, sign in and are claimed: over the wire, on every face (D13 to D15)."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

import pytest

from .demo import (
    CLAIM,
    FULL_KEY,
    KEYS,
    MODELS,
    REGISTER,
    SIGN_IN,
    SIGN_OUT,
    STATUS,
    TIMESTAMP,
    Answer,
    Client,
    Demo,
    at_once,
    made_up_key,
    random_text,
)

TOKEN = re.compile(r"acme_dashboard_[0-9A-Za-z]{8}_[0-9A-Za-z]{43}")


def email() -> str:
    """An unused e-mail address."""
    return f"{random_text(12).lower()}@example.com"


def register(client: Client, **fields: object) -> Answer:
    body = {"agent_name": "render bot", "billing_email": email(), **fields}
    return client.send("POST", REGISTER, json_body=body)


def registered(client: Client, **fields: object) -> dict[str, str]:
    made: dict[str, str] = register(client, **fields).is_ok(201).json()
    return made


def signed_in(client: Client, token: str) -> str:
    answer = client.send("POST", SIGN_IN, json_body={"dashboard_token": token}).is_ok()
    found = re.match(r"__session=([^;]+);", answer.one("set-cookie"))
    assert found is not None
    return found[1]


def claimable(client: Client, session: str) -> list[dict[str, Any]]:
    """Every organization that the list shows, page by page."""
    found: list[dict[str, Any]] = []
    path = f"{CLAIM}?limit=50"
    while path:
        page = client.get(path, session=session).is_ok().json()
        found += page["data"]
        cursor = page["nextCursor"]
        path = f"{CLAIM}?limit=50&cursor={cursor}" if cursor else ""
    return found


def test_d13_registration_returns_the_fields_of_the_specification(
    demo: Demo, client: Client
) -> None:
    longest = {"agent_name": "a" * 100, "company_name": "c" * 200}
    answer = register(client, account_type="company", **longest).is_ok(201)
    made = answer.json()
    assert made.keys() == {"api_key", "dashboard_token", "dashboard_url", "billing_url"}
    assert all(isinstance(value, str) for value in made.values())
    assert FULL_KEY.fullmatch(made["api_key"])
    assert TOKEN.fullmatch(made["dashboard_token"])
    assert made["dashboard_url"] == made["billing_url"]
    assert made["dashboard_url"].startswith(demo.base_url)


def test_d13_the_key_is_a_full_one_on_the_default_plan(client: Client) -> None:
    made = registered(client, agent_name=" my bot ", account_type="personal", company_name=None)
    answer = client.get(MODELS, key=made["api_key"]).is_ok()
    assert answer.limit == 10
    (key,) = client.get(KEYS, key=made["api_key"]).json()["data"]
    assert (key["name"], key["scopes"]) == ("my bot", ["*"])
    client.get(MODELS, key=made["dashboard_token"]).is_error(401, "INVALID_FORMAT")


@pytest.mark.parametrize("name", ["Authorization", "Cookie"])
def test_registering_looks_at_no_credential(client: Client, name: str) -> None:
    body = {"agent_name": "bot", "billing_email": email()}
    headers = {name: "__session=x"}
    client.send("POST", REGISTER, json_body=body, headers=headers).is_ok(201)


def test_d14_the_dashboard_is_not_taken_from_host(demo: Demo, client: Client) -> None:
    body = {"agent_name": "bot", "billing_email": email()}
    headers = {"Host": "evil.example", "X-Forwarded-Host": "evil.example"}
    answer = client.send("POST", REGISTER, json_body=body, headers=headers).is_ok(201)
    assert urlsplit(answer.json()["dashboard_url"]).netloc == urlsplit(demo.base_url).netloc


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"agent_name": " "}, "agent_name"),
        ({"agent_name": "a" * 101}, "agent_name"),
        ({"agent_name": "a\u202eb"}, "agent_name"),
        ({"account_type": "company", "company_name": "a\nb"}, "company_name"),
        ({"account_type": "company", "company_name": " "}, "company_name"),
        ({"billing_email": "a@example.com\r\nBcc: b@example.com"}, "billing_email"),
        ({"billing_email": "a" * 320 + "@example.com"}, "billing_email"),
        ({"billing_email": "ada@intranet"}, "billing_email"),
        ({"billing_email": "Ada <ada@example.com>"}, "billing_email"),
        ({"account_type": "company"}, "company_name"),
        ({"company_name": "Ada & Co"}, "company_name"),
        ({"account_type": "company", "company_name": "c" * 201}, "company_name"),
        ({"account_type": "Company"}, "account_type"),
        ({"scopes": ["*"]}, "scopes"),
    ],
)
def test_an_error_names_the_invalid_field(
    client: Client, change: dict[str, Any], field: str
) -> None:
    answer = register(client, **change).is_error(400, "VALIDATION_ERROR")
    assert [detail["field"] for detail in answer.json()["details"]] == [field]


def test_d13_a_name_and_an_email_are_required(client: Client) -> None:
    answer = client.send("POST", REGISTER, json_body={}).is_error(400, "VALIDATION_ERROR")
    fields = [detail["field"] for detail in answer.json()["details"]]
    assert fields == ["agent_name", "billing_email"]


def test_d14_five_a_day_for_an_email_and_look_alikes_are_others(client: Client) -> None:
    address = email()
    for _ in range(5):  # What is refused for its body does not count.
        register(client, billing_email=address, agent_name="").is_error(400, "VALIDATION_ERROR")
    written = [address, address.upper(), address.title(), address, address]
    for one in written:
        registered(client, billing_email=one)
    answer = register(client, billing_email=address).is_error(429, "RATE_LIMIT_EXCEEDED")
    assert answer.json()["limits"] == {"type": "day", "limit": 5, "used": 5}
    assert 86_000 < answer.json()["retryAfter"] <= 86_400
    registered(client, billing_email="+x@".join(address.split("@")))
    registered(client, billing_email=f"\u0430{address}")


def test_r1_concurrent_registrations_with_one_email_make_five_whole_accounts(
    client: Client,
) -> None:
    address = email()
    answers = at_once(40, lambda _: register(client, billing_email=address))
    made = [answer.json() for answer in answers if answer.status == 201]
    assert len(made) == 5
    assert {answer.status for answer in answers} == {201, 429}
    for one in made:
        client.get(MODELS, key=one["api_key"]).is_ok()
        signed_in(client, one["dashboard_token"])


def test_r4_an_agent_signs_in_and_out(demo: Demo, client: Client) -> None:
    made = registered(client)
    answer = client.send("POST", SIGN_IN, json_body={"dashboard_token": made["dashboard_token"]})
    attributes = answer.one("set-cookie").split("; ")[1:]
    assert {"HttpOnly", "SameSite=Lax", "Path=/"} <= set(attributes)
    assert not any(attribute.lower().startswith("domain") for attribute in attributes)
    session = signed_in(client, made["dashboard_token"])
    second = client.post_key(session, {"name": "second"}).is_ok(201).json()
    listed = client.get(KEYS, key=made["api_key"]).is_ok().json()["data"]
    assert [key["keyPrefix"] for key in listed] == [second["keyPrefix"], made["api_key"][:15]]
    person = demo["enterprise"].session_cookie
    client.send("POST", SIGN_OUT, session=person).is_error(403, "AGENTS_ONLY")
    client.send("POST", SIGN_OUT, session=session).is_ok()
    client.get(KEYS, session=session).is_error(401, "SESSION_INVALID")
    client.get(KEYS, session=person).is_ok()
    client.get(MODELS, key=made["api_key"]).is_ok()


@pytest.mark.parametrize("change", ["api_key", "garbage", "typo", "guess", "unknown"])
def test_an_invalid_dashboard_token_starts_no_session(client: Client, change: str) -> None:
    made = registered(client)
    token = {
        "api_key": made["api_key"],
        "garbage": "\u00e9\0" * 99,
        "typo": made["dashboard_token"][:-1] + "_",
        "guess": made_up_key(environment="dashboard", prefix=made["dashboard_token"].split("_")[2]),
        "unknown": made_up_key(environment="dashboard"),
    }[change]
    answer = client.send("POST", SIGN_IN, json_body={"dashboard_token": token})
    answer.is_error(401, "TOKEN_NOT_ACCEPTED")
    assert not answer.all("set-cookie")


def test_d15_a_person_claims_by_the_cookie_of_the_demo(demo: Demo, client: Client) -> None:
    """The owner of each plan's organization has a verified address: ``owner@<plan>.example``."""
    made = registered(client, billing_email="Owner@Starter.example")
    owner, stranger = demo["starter"].session_cookie, demo["creator"].session_cookie
    data = claimable(client, owner)
    (mine,) = [one for one in data if one["keys"][0]["keyPrefix"] == made["api_key"][:15]]
    assert mine.keys() == {
        *("organizationId", "agentName", "billingEmail", "accountType", "companyName"),
        *("createdAt", "claimedAt", "keys", "moreKeys"),
    }
    assert (mine["agentName"], mine["billingEmail"]) == ("render bot", "owner@starter.example")
    assert (mine["accountType"], mine["companyName"]) == ("personal", None)
    assert mine["claimedAt"] is None
    body = {"organizationId": mine["organizationId"], "revokeKeys": True}

    def refuses_a_stranger() -> None:
        refused = client.send("POST", CLAIM, session=stranger, json_body=body)
        refused.is_error(403, "CLAIM_REFUSED")
        no_such = {**body, "organizationId": "org_none"}
        nothing = client.send("POST", CLAIM, session=stranger, json_body=no_such)
        assert nothing.body == refused.body

    refuses_a_stranger()
    named = {"X-Organization-Id": mine["organizationId"]}
    early = client.send("GET", KEYS, session=owner, headers=named)
    early.is_error(403, "NO_ORGANIZATION")
    claimed = client.send("POST", CLAIM, session=owner, json_body=body).is_ok().json()["data"]
    assert [key["isActive"] for key in claimed["keys"]] == [False]
    assert TIMESTAMP.fullmatch(claimed["claimedAt"])
    again = client.send("POST", CLAIM, session=owner, json_body=body).is_ok().json()["data"]
    assert again == claimed
    refuses_a_stranger()
    client.get(MODELS, key=made["api_key"]).is_error(401, "KEY_REVOKED")
    listed = client.send("GET", KEYS, session=owner, headers=named).is_ok().json()["data"]
    assert [key["id"] for key in listed] == [key["id"] for key in claimed["keys"]]
    answer = client.send("POST", SIGN_IN, json_body={"dashboard_token": made["dashboard_token"]})
    answer.is_error(401, "TOKEN_NOT_ACCEPTED")


@pytest.mark.parametrize("path", [SIGN_IN, SIGN_OUT, CLAIM])
def test_d11_a_foreign_page_cannot_sign_in_sign_out_or_claim(client: Client, path: str) -> None:
    made = registered(client)
    token = made["dashboard_token"]
    body = {"organizationId": "org_none"} if path == CLAIM else {"dashboard_token": token}
    session = signed_in(client, token)
    for headers in ({"Sec-Fetch-Site": "cross-site"}, {"Origin": "https://evil.example"}):
        answer = client.send("POST", path, session=session, json_body=body, headers=headers)
        answer.is_error(403, "CROSS_SITE_REQUEST")
        assert not answer.all("set-cookie")
    client.get(KEYS, session=session).is_ok()


def test_claiming_and_signing_out_need_a_session(client: Client) -> None:
    for method, path in (("GET", CLAIM), ("POST", CLAIM), ("POST", SIGN_OUT)):
        client.send(method, path).is_error(401, "SESSION_REQUIRED")
        client.send(method, path, key=made_up_key()).is_error(401, "SESSION_REQUIRED")
        client.send(method, path, session="x").is_error(401, "SESSION_INVALID")


def test_d15_a_claim_keeps_keys_plan_and_usage(demo: Demo, client: Client) -> None:
    company = {"account_type": "company", "company_name": "  Ada & Co "}
    key = registered(client, billing_email="owner@enterprise.example", **company)["api_key"]
    owner = demo["enterprise"].session_cookie
    before = client.get(STATUS, key=key).is_ok().json()
    (mine,) = [one for one in claimable(client, owner) if one["keys"][0]["keyPrefix"] == key[:15]]
    assert (mine["accountType"], mine["companyName"]) == ("company", "Ada & Co")
    body = {"organizationId": mine["organizationId"]}
    claimed = client.send("POST", CLAIM, session=owner, json_body=body).is_ok().json()["data"]
    assert claimed["keys"] == mine["keys"]
    after = client.get(STATUS, key=key).is_ok().json()
    assert (after["plan"], after["limits"]) == (before["plan"], before["limits"])
    assert [window["used"] for window in after["usage"].values()] == [2, 2, 2]


def claim(client: Client, owner: str, key: str, **fields: object) -> dict[str, Any]:
    """Claim the organization that this key was registered with."""
    listed = claimable(client, owner)
    (mine,) = [one for one in listed if one["keys"][-1]["keyPrefix"] == key[:15]]
    body = {"organizationId": mine["organizationId"], **fields}
    claimed: dict[str, Any] = (
        client.send("POST", CLAIM, session=owner, json_body=body).is_ok().json()["data"]
    )
    return claimed


def test_d46_a_claim_ends_the_dashboard_token_and_its_sessions(demo: Demo, client: Client) -> None:
    made = registered(client, billing_email="owner@starter.example")
    session = signed_in(client, made["dashboard_token"])
    claim(client, demo["starter"].session_cookie, made["api_key"])
    client.post_key(session, {"name": "too late"}).is_error(401, "SESSION_INVALID")
    token = {"dashboard_token": made["dashboard_token"]}
    client.send("POST", SIGN_IN, json_body=token).is_error(401, "TOKEN_NOT_ACCEPTED")
    client.get(MODELS, key=made["api_key"]).is_ok()


def test_d46_a_claimer_may_keep_the_dashboard_token(demo: Demo, client: Client) -> None:
    made = registered(client, billing_email="owner@starter.example")
    session = signed_in(client, made["dashboard_token"])
    owner = demo["starter"].session_cookie
    claim(client, owner, made["api_key"], keepDashboardToken=True, revokeKeys=True)
    client.get(MODELS, key=made["api_key"]).is_error(401, "KEY_REVOKED")
    client.post_key(session, {"name": "another"}).is_ok(201)
    signed_in(client, made["dashboard_token"])


def test_d46_claims_and_new_keys_at_once_leave_no_key_that_the_owner_was_not_shown(
    demo: Demo, client: Client
) -> None:
    """A key that was returned was created before the claim, so the claim's response lists it."""
    owner = demo["starter"].session_cookie
    made = registered(client, billing_email="owner@starter.example")
    session = signed_in(client, made["dashboard_token"])

    def work(index: int) -> Any:
        if index == 0:
            return claim(client, owner, made["api_key"])
        return client.post_key(session, {"name": f"key {index}"})

    claimed, *answers = at_once(6, work)
    assert {answer.status for answer in answers} <= {201, 401}
    told = {answer.json()["id"] for answer in answers if answer.status == 201}
    shown = {key["id"] for key in claimed["keys"]}
    assert told <= shown
    named = {"X-Organization-Id": claimed["organizationId"]}
    listed = client.send("GET", KEYS, session=owner, headers=named).is_ok().json()["data"]
    assert {key["id"] for key in listed if key["isActive"]} <= shown


def test_d46_later_registrations_in_an_owners_name_hide_no_older_one(
    demo: Demo, client: Client
) -> None:
    owner = demo["enterprise"].session_cookie
    email = "owner@enterprise.example"
    first = claimable(client, owner)
    if not first:
        registered(client, billing_email=email)
        first = claimable(client, owner)
    register(client, billing_email=email)
    page = client.get(CLAIM, session=owner).is_ok().json()
    assert page["data"][0]["organizationId"] == first[0]["organizationId"]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=0", "limit"),
        ("limit=51", "limit"),
        ("limit=%00", "limit"),
        ("limit=1&limit=2", "limit"),
        ("cursor=%ff", "cursor"),
        ("cursor=" + "a" * 2000, "cursor"),
        ("page=2", "page"),
    ],
)
def test_d45_an_invalid_query_of_a_page_is_refused(
    demo: Demo, client: Client, query: str, field: str
) -> None:
    answer = client.get(f"{CLAIM}?{query}", session=demo["free"].session_cookie)
    answer.is_error(400, "VALIDATION_ERROR")
    assert [detail["field"] for detail in answer.json()["details"]] == [field]


def test_d13_a_proof_is_refused_where_the_service_asks_for_none(client: Client) -> None:
    answer = register(client, proof="x").is_error(400, "VALIDATION_ERROR")
    assert [detail["field"] for detail in answer.json()["details"]] == ["proof"]


def test_the_openapi_document_describes_the_account_operations(client: Client) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    assert paths[REGISTER]["post"]["security"] == paths[SIGN_IN]["post"]["security"] == []
    assert paths[CLAIM]["get"]["security"] == paths[CLAIM]["post"]["security"] == [{"session": []}]
    assert "201" in paths[REGISTER]["post"]["responses"]
