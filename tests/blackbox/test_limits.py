"""How many, and what every answer says about it (D19 to D25, D29)."""

from __future__ import annotations

import math
import time
from datetime import datetime

import pytest

from .demo import (
    ANONYMOUS_RPM,
    BLINK,
    KEYS,
    MODELS,
    PLANS,
    RATE_HEADERS,
    STATUS,
    TIMESTAMP,
    Answer,
    Client,
    Demo,
    at_once,
    made_up_key,
    refused,
    wire,
)

PREFLIGHT = {"Origin": "https://app.example", "Access-Control-Request-Method": "POST"}


# --- the plan's minute --------------------------------------------------------------------


def test_exactly_the_limit_is_admitted(fresh: Demo) -> None:
    with fresh.client() as client:
        for plan in ("free", "starter", "creator"):
            key, limit = fresh[plan].api_key, PLANS[plan]["rpm"]
            for n in range(limit):
                answer = client.get(MODELS, key=key).is_ok()
                assert answer.limit == limit
                assert answer.remaining == limit - 1 - n  # W4: one less each time
            for _ in range(3):
                refused(client.get(MODELS, key=key), limit)


@pytest.mark.parametrize("through", ["key", "keys", "session", "both"])
def test_forty_at_once_admit_exactly_ten(fresh: Demo, through: str) -> None:
    """W1, W3: with one key, several keys, the session, or both."""
    org = fresh["free"]
    with fresh.client() as client:
        keys, admitted_before = [org.api_key], 0
        if through == "keys":
            keys += [client.create(org).key for _ in range(3)]
            admitted_before = 3

        def ask(index: int) -> Answer:
            bearer = [("Authorization", f"Bearer {keys[index % len(keys)]}")]
            cookie = [("Cookie", f"__session={org.session_cookie}")]
            by_session = through == "session" or (through == "both" and index % 2 == 1)
            return client.raw(wire("GET", KEYS, cookie if by_session else bearer))

        answers = at_once(40, ask)
    admitted = [answer for answer in answers if answer.status == 200]
    left = 10 - admitted_before
    assert sorted(answer.remaining for answer in admitted) == list(range(left))
    for answer in answers:
        if answer.status != 200:
            refused(answer, 10)


def test_d20_a_refusal_costs_nothing(fresh: Demo) -> None:
    """`used` stays at the limit, and the wait does not grow, however often one asks."""
    with fresh.client() as client:
        key = fresh["free"].api_key
        for _ in range(10):
            client.get(MODELS, key=key).is_ok()
        waits = [refused(client.get(MODELS, key=key), 10) for _ in range(30)]
        assert waits == sorted(waits, reverse=True)
        resets = {client.get(MODELS, key=key).reset for _ in range(5)}
        assert len(resets) == 1


def test_d22_the_wait_reaches_the_first_admission(fresh: Demo) -> None:
    with fresh.client() as client:
        key = fresh["free"].api_key
        before = time.time()
        client.get(MODELS, key=key).is_ok()
        after = time.time()
        for _ in range(9):
            client.get(MODELS, key=key).is_ok()
        asked = time.time()
        answer = client.get(MODELS, key=key)
        answered = time.time()
        wait = refused(answer, 10)
        # the first leaves 60 s after it came, and ten hits are few enough to be exact (D21)
        slack = 0.01
        assert before + 60 - answered - slack <= wait <= math.ceil(after + 60 - asked + slack)
        assert before + 60 - slack <= answer.reset <= math.ceil(after + 60 + slack)


def test_d23_reset_is_when_the_first_hit_leaves(fresh: Demo) -> None:
    with fresh.client() as client:
        for path, key in ((MODELS, fresh["starter"].api_key), ("/health", None)):
            before = time.time()
            first = client.get(path, key=key).is_ok().reset
            after = time.time()
            assert before + 60 - 0.01 <= first <= math.ceil(after + 60 + 0.01)
            assert [client.get(path, key=key).is_ok().reset for _ in range(5)] == [first] * 5


def test_organizations_do_not_share_a_window(fresh: Demo) -> None:
    with fresh.client() as client:
        for _ in range(12):
            client.get(MODELS, key=fresh["free"].api_key)
        for plan in ("starter", "creator", "enterprise"):
            answer = client.get(MODELS, key=fresh[plan].api_key).is_ok()
            assert answer.limit == PLANS[plan]["rpm"]
            assert answer.remaining == PLANS[plan]["rpm"] - 1


def test_keys_of_one_organization_share_a_window(fresh: Demo) -> None:
    org = fresh["starter"]
    with fresh.client() as client:
        keys = [org.api_key] + [client.create(org).key for _ in range(2)]
        for n in range(27):
            answer = client.get(MODELS, key=keys[n % 3]).is_ok()
            assert answer.remaining == 27 - n
        with fresh.client() as elsewhere:  # the address does not matter
            elsewhere.get(MODELS, key=keys[0]).is_ok()
            refused(elsewhere.get(MODELS, key=keys[1]), 30)


# --- what counts, and in which order (D19) ------------------------------------------------


def test_d19_requests_with_a_valid_credential_count_and_401_do_not(fresh: Demo) -> None:
    org = fresh["creator"]
    with fresh.client() as client:
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
            client.get(f"{KEYS}/none", key=org.api_key).is_error(404, "NOT_FOUND"),
            client.send("HEAD", MODELS, key=narrow.key).is_ok(),
            client.get(KEYS, session=org.session_cookie).is_ok(),
            client.get(f"{KEYS}/none", session=org.session_cookie).is_error(404, "NOT_FOUND"),
            client.post_key(org.session_cookie, {}).is_error(400, "VALIDATION_ERROR"),
            client.get(STATUS, key=org.api_key).is_ok(),
        ]
        assert [answer.limit for answer in counted] == [60] * len(counted)
        assert [answer.remaining for answer in counted] == [
            left - 1 - n for n in range(len(counted))
        ]
        left -= len(counted)

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
        assert client.get(MODELS, key=narrow.key).is_ok().remaining == left - 1


def test_d19_the_limit_comes_before_the_scope(fresh: Demo) -> None:
    org = fresh["free"]
    with fresh.client() as client:
        narrow = client.create(org, scopes=["upload:write"])
        revoked = client.create(org)
        client.revoke(org, revoked.id)
        expired = client.create(org, expiresInDays=BLINK)
        for n in range(6):
            answer = client.get(MODELS, key=narrow.key).is_error(403, "INSUFFICIENT_SCOPE")
            assert answer.remaining == 5 - n
        refused(client.get(MODELS, key=narrow.key), 10)
        refused(client.get("/api/v1/nope", key=narrow.key), 10)
        refused(client.send("PATCH", MODELS, key=org.api_key), 10)
        refused(client.get(KEYS, session=org.session_cookie), 10)
        refused(client.post_key(org.session_cookie, {"name": "late"}), 10)
        refused(client.send("DELETE", f"{KEYS}/{narrow.id}", key=narrow.key), 10)
        client.get(MODELS, key=revoked.key).is_error(401, "KEY_REVOKED")
        client.get(MODELS, key=expired.key).is_error(401, "KEY_EXPIRED")
        guess = made_up_key(prefix=narrow.key.split("_")[2])
        client.get(MODELS, key=guess).is_error(401, "KEY_NOT_FOUND")


def test_a_refused_head_has_the_headers_and_no_body(fresh: Demo) -> None:
    with fresh.client() as client:
        key = fresh["free"].api_key
        for _ in range(10):
            client.send("HEAD", MODELS, key=key).is_ok()
        answer = client.send("HEAD", MODELS, key=key)
        assert answer.status == 429 and 1 <= int(answer.one("retry-after")) <= 60


# --- the status (D29) ---------------------------------------------------------------------


def test_d29_the_status_counts_itself(fresh: Demo) -> None:
    with fresh.client() as client:
        for plan, numbers in PLANS.items():
            key = fresh[plan].api_key
            for _ in range(4):
                client.get(MODELS, key=key).is_ok()
            answer = client.get(STATUS, key=key).is_ok()
            body = answer.json()
            assert body.keys() == {"plan", "limits", "usage", "timestamp"}
            assert body["plan"] == plan
            assert body["limits"] == numbers
            assert body["usage"] == {
                "minute": {"used": 5, "limit": numbers["rpm"]},
                "hour": {"used": 5, "limit": numbers["rph"]},
                "day": {"used": 5, "limit": numbers["rpd"]},
            }
            values = [*body["limits"].values()]
            for window in body["usage"].values():
                values += [window["used"], window["limit"]]
            assert {type(value) for value in values} == {int}
            assert TIMESTAMP.fullmatch(body["timestamp"])  # D30
            assert answer.remaining == numbers["rpm"] - 5
            again = client.get(STATUS, key=key).is_ok().json()
            assert again["usage"]["day"]["used"] == 6
            assert again["timestamp"] >= body["timestamp"]


def test_the_timestamp_is_now(client: Client, demo: Demo) -> None:
    body = client.get(STATUS, key=demo["enterprise"].api_key).is_ok().json()
    assert abs(datetime.fromisoformat(body["timestamp"]).timestamp() - time.time()) < 2


# --- every response (D24, G2) -------------------------------------------------------------


def test_the_headers_are_on_every_kind_of_answer(client: Client, demo: Demo) -> None:
    """`Answer.check` asserts the form; here only that each kind was seen."""
    org = demo["enterprise"]
    session = org.session_cookie
    seen = [
        client.get("/health").is_ok(),
        client.get(MODELS, key=org.api_key).is_ok(),
        client.post_key(org.session_cookie, {"name": "x"}).is_ok(201),
        client.send("POST", KEYS, content=b"{", session=session).is_error(400, "VALIDATION_ERROR"),
        client.get(MODELS).is_error(401, "MISSING_AUTH"),
        client.send("DELETE", f"{KEYS}/x", headers={"Origin": "null"}, session=session).is_error(
            403, "CROSS_SITE_REQUEST"
        ),
        client.get("/nope", key=org.api_key).is_error(404, "NOT_FOUND"),
        client.send("PUT", MODELS, key=org.api_key).is_error(405, "METHOD_NOT_ALLOWED"),
        client.send("POST", KEYS, content=b" " * 70_000, session=session).is_error(
            413, "PAYLOAD_TOO_LARGE"
        ),
        client.send(
            "POST", KEYS, content=b"{}", headers={"Content-Type": "text/plain"}, session=session
        ).is_error(415, "UNSUPPORTED_MEDIA_TYPE"),
        client.send("HEAD", "/health").is_ok(),
        client.send("OPTIONS", MODELS, headers=PREFLIGHT),
        client.send("OPTIONS", MODELS).is_error(401, "MISSING_AUTH"),
    ]
    for answer in seen:
        for name in RATE_HEADERS:
            assert len(answer.all(name)) == 1


def test_no_other_rate_headers(client: Client, demo: Demo) -> None:
    for answer in (client.get("/health"), client.get(MODELS, key=demo["enterprise"].api_key)):
        names = {name for name, _ in answer.headers if "ratelimit" in name.replace("-", "")}
        assert names == set(RATE_HEADERS)
