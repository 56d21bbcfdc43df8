"""Agents register, sign in and are claimed: over the wire (D13 to D15)."""

from __future__ import annotations

import re
from collections.abc import Iterator
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
    TIMESTAMP,
    Answer,
    Client,
    Demo,
    Face,
    at_once,
    made_up_key,
    random_text,
)

TOKEN = re.compile(r"acme_dashboard_[0-9A-Za-z]{8}_[0-9A-Za-z]{43}")


@pytest.fixture(scope="module")
def demo(face: Face) -> Iterator[Demo]:
    """The owner of each plan's organization has a verified address: ``owner@<plan>.example``."""
    with Demo(face) as running:
        yield running


def email() -> str:
    """An unused e-mail address."""
    return f"{random_text(12).lower()}@example.com"


def register(client: Client, **fields: object) -> Answer:
    body = {"agent_name": "render bot", "billing_email": email(), **fields}
    return client.send("POST", REGISTER, json_body=body)


def registered(client: Client, **fields: object) -> dict[str, str]:
    made: dict[str, str] = register(client, **fields).is_ok(201).json()
    return made


def sign_in(client: Client, token: str) -> Answer:
    return client.send("POST", SIGN_IN, json_body={"dashboard_token": token})


def signed_in(client: Client, token: str) -> str:
    found = re.match(r"__session=([^;]+);", sign_in(client, token).is_ok().one("set-cookie"))
    assert found is not None
    return found[1]


def claimable(client: Client, owner: str, key: str) -> dict[str, Any]:
    """The organization that this key was registered with, from the pages of the list."""
    path = f"{CLAIM}?limit=2"
    while True:
        page = client.get(path, session=owner).is_ok().json()
        for one in page["data"]:
            if one["keys"][-1]["keyPrefix"] == key[:15]:
                found: dict[str, Any] = one
                return found
        path = f"{CLAIM}?limit=2&cursor={page['nextCursor']}"


def claim(client: Client, owner: str, key: str, **fields: object) -> dict[str, Any]:
    body = {"organizationId": claimable(client, owner, key)["organizationId"], **fields}
    answer = client.send("POST", CLAIM, session=owner, json_body=body)
    claimed: dict[str, Any] = answer.is_ok().json()["data"]
    return claimed


def test_d13_a_registration_has_the_fields_of_the_specification(demo: Demo, client: Client) -> None:
    """No credential and no `Host` decides anything of it (D14)."""
    body = {"agent_name": "a" * 100, "billing_email": email(), "account_type": "company"}
    headers = {"Host": "evil.example", "X-Forwarded-Host": "evil.example"}
    for name in ("Authorization", "Cookie"):
        headers[name] = "__session=x"
    company = {**body, "company_name": "c" * 200}
    made = client.send("POST", REGISTER, json_body=company, headers=headers).is_ok(201).json()
    assert made.keys() == {"api_key", "dashboard_token", "dashboard_url", "billing_url"}
    assert FULL_KEY.fullmatch(made["api_key"])
    assert TOKEN.fullmatch(made["dashboard_token"])
    assert made["dashboard_url"] == made["billing_url"]
    assert urlsplit(made["dashboard_url"]).netloc == urlsplit(demo.base_url).netloc
    made = registered(client, agent_name=" my bot ", account_type="personal", company_name=None)
    assert client.get(MODELS, key=made["api_key"]).is_ok().limit == 10
    (key,) = client.get(KEYS, key=made["api_key"]).json()["data"]
    assert (key["name"], key["scopes"]) == ("my bot", ["*"])
    client.get(MODELS, key=made["dashboard_token"]).is_error(401, "INVALID_FORMAT")


def test_r4_an_agent_signs_in_and_out(demo: Demo, client: Client) -> None:
    made = registered(client)
    token = made["dashboard_token"]
    attributes = sign_in(client, token).one("set-cookie").split("; ")[1:]
    assert {"HttpOnly", "SameSite=Lax", "Path=/"} <= set(attributes)
    assert not any(attribute.lower().startswith("domain") for attribute in attributes)
    session = signed_in(client, token)
    for path, body in (
        (SIGN_IN, {"dashboard_token": token}),
        (SIGN_OUT, {}),
        (CLAIM, {"organizationId": "org_none"}),
    ):
        for headers in ({"Sec-Fetch-Site": "cross-site"}, {"Origin": "https://evil.example"}):
            answer = client.send("POST", path, session=session, json_body=body, headers=headers)
            answer.is_error(403, "CROSS_SITE_REQUEST")  # R5
            assert not answer.all("set-cookie")
    second = client.post_key(session, {"name": "second"}).is_ok(201).json()
    listed = client.get(KEYS, key=made["api_key"]).is_ok().json()["data"]
    assert [key["keyPrefix"] for key in listed] == [second["keyPrefix"], made["api_key"][:15]]
    person = demo["enterprise"].session_cookie
    client.send("POST", SIGN_OUT, session=person).is_error(403, "AGENTS_ONLY")
    client.send("POST", SIGN_OUT, session=session).is_ok()
    client.get(KEYS, session=session).is_error(401, "SESSION_INVALID")
    client.get(KEYS, session=person).is_ok()
    client.get(MODELS, key=made["api_key"]).is_ok()
    for wrong in (
        made["api_key"],
        "\u00e9\0" * 99,
        f"{token[:-1]}_",
        made_up_key(environment="dashboard", prefix=token.split("_")[2]),
        made_up_key(environment="dashboard"),
    ):
        answer = sign_in(client, wrong).is_error(401, "TOKEN_NOT_ACCEPTED")
        assert not answer.all("set-cookie")


def test_d15_a_person_claims_by_the_cookie_of_the_demo(demo: Demo, client: Client) -> None:
    made = registered(client, billing_email="Owner@Starter.example")
    owner, stranger = demo["starter"].session_cookie, demo["creator"].session_cookie
    mine = claimable(client, owner, made["api_key"])
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
