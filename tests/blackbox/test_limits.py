"""How many, and what every answer says about it (D19 to D25, D29)."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from datetime import datetime

import pytest

from .demo import (
    ANONYMOUS_RPM,
    BLINK,
    KEYS,
    MODELS,
    PLANS,
    REGISTER,
    SIGN_IN,
    STATUS,
    TIMESTAMP,
    Answer,
    Client,
    Demo,
    Face,
    Organization,
    at_once,
    made_up_key,
    random_text,
    refused,
    wire,
)

SLACK = 0.01


# --- the plan's minute --------------------------------------------------------------------


@pytest.fixture(scope="module")
def unspent(face: Face) -> Iterator[Demo]:
    """Each organization serves one test."""
    with Demo(face) as running:
        yield running


@pytest.fixture
def newcomer(demo: Demo, client: Client) -> Organization:
    """An unused organization on the free plan: an agent that registered and signed in."""
    agent = {"agent_name": "newcomer", "billing_email": f"{random_text(12)}@example.com"}
    made = client.send("POST", REGISTER, json_body=agent).is_ok(201).json()
    token = {"dashboard_token": made["dashboard_token"]}
    cookie = client.send("POST", SIGN_IN, json_body=token).is_ok().one("set-cookie")
    session = cookie.partition("=")[2].partition(";")[0]
    return Organization("free", "unknown", session, made["api_key"])


def test_exactly_the_limit_is_admitted_and_no_organization_shares_it(unspent: Demo) -> None:
    """W4, W8, D20: a refusal costs nothing. D22, D23: wait and reset are of the first hit."""
    with unspent.client() as client:
        for plan in ("free", "starter"):
            key, limit = unspent[plan].api_key, PLANS[plan]["rpm"]
            before = time.time()
            first = client.get(MODELS, key=key).is_ok()
            after = time.time()
            assert (first.limit, first.remaining) == (limit, limit - 1)
            assert before + 60 - SLACK <= first.reset <= math.ceil(after + 60 + SLACK)
            more = [client.get(MODELS, key=key).is_ok() for _ in range(limit - 1)]
            assert [answer.remaining for answer in more] == list(range(limit - 1))[::-1]
            assert {answer.reset for answer in more} == {first.reset}
            asked = time.time()
            answers = [client.get(MODELS, key=key) for _ in range(20)]
            waits = [refused(answer, limit) for answer in answers]
            answered = time.time()
            assert waits == sorted(waits, reverse=True), "no refusal makes the wait longer"
            # The first leaves 60 s after it came; so few hits are exact (D21).
            assert waits[0] <= math.ceil(after + 60 - asked + SLACK)
            assert before + 60 - answered - SLACK <= waits[-1]
            assert {answer.reset for answer in answers} == {first.reset}
        other = client.get(MODELS, key=unspent["enterprise"].api_key).is_ok()
        assert other.remaining == PLANS["enterprise"]["rpm"] - 1


def test_forty_at_once_admit_exactly_ten(client: Client, newcomer: Organization) -> None:
    """W1, W3: keys of one organization and its session share a window, from any address."""
    cookie = ("Cookie", f"__session={newcomer.session_cookie}")
    keys = [newcomer.api_key, client.create(newcomer).key, client.create(newcomer).key]

    def ask(index: int) -> Answer:
        credentials = [*(("Authorization", f"Bearer {key}") for key in keys), cookie]
        request = wire("GET", KEYS, [credentials[index % len(credentials)]])
        if index % 3:
            return client.raw(request)
        with client.demo.client() as elsewhere:
            return elsewhere.raw(request)

    answers = at_once(40, ask)
    admitted = [answer.remaining for answer in answers if answer.status == 200]
    assert sorted(admitted) == list(range(10 - 2))
    for answer in answers:
        if answer.status != 200:
            refused(answer, 10)


# --- what counts, and in which order (D19) ------------------------------------------------


def test_d19_requests_with_a_valid_credential_count_and_401_do_not(unspent: Demo) -> None:
    org = unspent["creator"]
    session = org.session_cookie
    with unspent.client() as client:
        narrow = client.create(org, scopes=["models:read"])
        revoked = client.create(org)
        client.revoke(org, revoked.id)
        expired = client.create(org, expiresInDays=BLINK)
        left = client.get(MODELS, key=narrow.key).is_ok().remaining
        assert left == 60 - 5

        counted = [
            client.get("/api/v1/account", key=narrow.key).is_error(403, "INSUFFICIENT_SCOPE"),
            client.get("/api/v1/nope", key=narrow.key).is_error(404, "NOT_FOUND"),
            client.send("PATCH", MODELS, key=org.api_key).is_error(405, "METHOD_NOT_ALLOWED"),
            client.send("HEAD", MODELS, key=narrow.key).is_ok(),
            client.get(KEYS, session=session).is_ok(),
            client.get(f"{KEYS}/none", session=session).is_error(404, "NOT_FOUND"),
            client.post_key(session, {}).is_error(400, "VALIDATION_ERROR"),
            client.get(STATUS, key=org.api_key).is_ok(),
        ]
        assert [answer.limit for answer in counted] == [60] * len(counted)
        falling = [left - 1 - n for n in range(len(counted))]
        assert [answer.remaining for answer in counted] == falling

        guess = made_up_key(prefix=narrow.key.split("_")[2])
        not_counted = [
            client.get(MODELS, key=revoked.key).is_error(401, "KEY_REVOKED"),
            client.get(MODELS, key=expired.key).is_error(401, "KEY_EXPIRED"),
            client.get(MODELS, key=guess).is_error(401, "KEY_NOT_FOUND"),
            client.get(MODELS, key="x").is_error(401, "INVALID_FORMAT"),
            client.get(MODELS).is_error(401, "MISSING_AUTH"),
            client.get(KEYS, session="x").is_error(401, "SESSION_INVALID"),
        ]
        assert {answer.limit for answer in not_counted} == {ANONYMOUS_RPM}  # D24
        assert client.get(MODELS, key=narrow.key).is_ok().remaining == falling[-1] - 1


def test_d19_the_limit_comes_before_the_scope(client: Client, newcomer: Organization) -> None:
    session = newcomer.session_cookie
    narrow, revoked = client.create(newcomer, scopes=["upload:write"]), client.create(newcomer)
    client.revoke(newcomer, revoked.id)
    for n in range(7):
        answer = client.get(MODELS, key=narrow.key).is_error(403, "INSUFFICIENT_SCOPE")
        assert answer.remaining == 6 - n
    for answer in (
        client.get(MODELS, key=narrow.key),
        client.get("/api/v1/nope", key=narrow.key),
        client.send("PATCH", MODELS, key=newcomer.api_key),
        client.get(KEYS, session=session),
        client.post_key(session, {"name": "late"}),
        client.send("DELETE", f"{KEYS}/{narrow.id}", key=narrow.key),
    ):
        refused(answer, 10)
    head = client.send("HEAD", MODELS, key=narrow.key)
    assert head.status == 429 and 1 <= int(head.one("retry-after")) <= 60
    client.get(MODELS, key=revoked.key).is_error(401, "KEY_REVOKED")


def test_d29_the_status_counts_itself(client: Client, newcomer: Organization) -> None:
    for _ in range(4):
        client.get(MODELS, key=newcomer.api_key).is_ok()
    answer = client.get(STATUS, key=newcomer.api_key).is_ok()
    body, free = answer.json(), PLANS["free"]
    timestamp = body.pop("timestamp")
    assert TIMESTAMP.fullmatch(timestamp)  # D30
    assert abs(datetime.fromisoformat(timestamp).timestamp() - time.time()) < 2
    limits = {"minute": free["rpm"], "hour": free["rph"], "day": free["rpd"]}
    usage = {name: {"used": 5, "limit": limit} for name, limit in limits.items()}
    assert body == {"plan": "free", "limits": free, "usage": usage}
    assert answer.remaining == 5
