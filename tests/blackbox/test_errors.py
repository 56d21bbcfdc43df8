"""Each error once, to the letter: body, challenge, caching (D16 to D18, D22, D38)."""

from __future__ import annotations

import pytest

from .demo import BLINK, KEYS, MODELS, REGISTER, Answer, Client, Demo, Organization, made_up_key


def plain(answer: Answer, status: int, code: str) -> str:
    """An error of two fields; its sentence."""
    answer.is_error(status, code)
    assert answer.json().keys() == {"error", "code"}
    sentence = answer.json()["error"]
    assert isinstance(sentence, str)
    return sentence


def test_missing_auth(client: Client) -> None:
    answer = client.get(MODELS)
    plain(answer, 401, "MISSING_AUTH")
    assert answer.challenge == {}


def test_invalid_format(client: Client) -> None:
    answer = client.get(MODELS, key="not-a-key")
    plain(answer, 401, "INVALID_FORMAT")
    assert answer.challenge == {"error": "invalid_token"}


def test_key_not_found(client: Client) -> None:
    answer = client.get(MODELS, key=made_up_key())
    plain(answer, 401, "KEY_NOT_FOUND")
    assert answer.challenge == {"error": "invalid_token"}


def test_key_revoked(client: Client, org: Organization) -> None:
    created = client.create(org)
    client.revoke(org, created.id)
    answer = client.get(MODELS, key=created.key)
    plain(answer, 401, "KEY_REVOKED")
    assert answer.challenge == {"error": "invalid_token"}


def test_key_expired(client: Client, org: Organization) -> None:
    created = client.create(org, expiresInDays=BLINK)
    client.read(org, created.id)
    answer = client.get(MODELS, key=created.key)
    plain(answer, 401, "KEY_EXPIRED")
    assert answer.challenge == {"error": "invalid_token"}


def test_insufficient_scope(client: Client, org: Organization) -> None:
    created = client.create(org, scopes=["jobs:read"])
    answer = client.get(MODELS, key=created.key)
    assert "models:read" in plain(answer, 403, "INSUFFICIENT_SCOPE")
    assert answer.challenge == {"error": "insufficient_scope", "scope": "models:read"}


def test_session_required(client: Client, org: Organization) -> None:
    plain(client.post_key(None, {"name": "x"}), 401, "SESSION_REQUIRED")
    answer = client.send("POST", KEYS, key=org.api_key, json_body={"name": "x"})
    plain(answer, 401, "SESSION_REQUIRED")
    assert answer.challenge == {}


def test_session_invalid(client: Client) -> None:
    answer = client.post_key("made.up", {"name": "x"})
    plain(answer, 401, "SESSION_INVALID")
    assert answer.challenge == {}


def test_cross_site_request(client: Client, org: Organization) -> None:
    headers = {"Sec-Fetch-Site": "cross-site"}
    session = org.session_cookie
    answer = client.send("POST", KEYS, session=session, headers=headers, json_body={"name": "x"})
    plain(answer, 403, "CROSS_SITE_REQUEST")


def test_not_found(client: Client, org: Organization) -> None:
    plain(client.get("/api/v1/nope", key=org.api_key), 404, "NOT_FOUND")
    plain(client.get(f"{KEYS}/nope", key=org.api_key), 404, "NOT_FOUND")
    plain(client.get("/api/v1/jobs/nope", key=org.api_key), 404, "NOT_FOUND")


def test_method_not_allowed(client: Client, org: Organization) -> None:
    answer = client.send("DELETE", MODELS, key=org.api_key)
    plain(answer, 405, "METHOD_NOT_ALLOWED")
    assert "GET" in answer.allow


def test_payload_too_large(client: Client, org: Organization) -> None:
    for path in (KEYS, REGISTER):
        answer = client.send("POST", path, session=org.session_cookie, content=b" " * 65_537)
        plain(answer, 413, "PAYLOAD_TOO_LARGE")


def test_unsupported_media_type(client: Client, org: Organization) -> None:
    for path in (KEYS, REGISTER):
        answer = client.send(
            "POST",
            path,
            session=org.session_cookie,
            content=b'{"name": "x"}',
            headers={"Content-Type": "text/plain"},
        )
        plain(answer, 415, "UNSUPPORTED_MEDIA_TYPE")


def test_validation_error(client: Client, org: Organization) -> None:
    answer = client.post_key(org.session_cookie, {"name": "", "oops": 1})
    answer.is_error(400, "VALIDATION_ERROR")
    assert answer.json().keys() == {"error", "code", "details"}
    assert sorted(detail["field"] for detail in answer.json()["details"]) == ["name", "oops"]
    assert not answer.all("www-authenticate")


def test_rate_limit_exceeded(fresh: Demo) -> None:
    key = fresh["free"].api_key
    with fresh.client() as client:
        for _ in range(10):
            client.get(MODELS, key=key).is_ok()
        answer = client.get(MODELS, key=key).is_error(429, "RATE_LIMIT_EXCEEDED")
    body = answer.json()
    assert body.keys() == {"error", "code", "retryAfter", "limits"}
    assert body["limits"] == {"type": "minute", "limit": 10, "used": 10}
    assert answer.one("retry-after") == str(body["retryAfter"])
    assert "no-store" in answer.one("cache-control")
    assert not answer.all("www-authenticate")
    for value in (body["retryAfter"], body["limits"]["limit"], body["limits"]["used"]):
        assert type(value) is int


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
def test_errors_are_json_for_any_accept_header(
    client: Client, org: Organization, method: str
) -> None:
    for accept in ("text/html", "application/xml", "*/*;q=0", ""):
        headers = [("Accept", accept)]
        client.exact(method, "/nope", headers).is_error(401, "MISSING_AUTH")
        headers.append(("Authorization", f"Bearer {org.api_key}"))
        client.exact(method, "/nope", headers).is_error(404, "NOT_FOUND")


def test_another_organizations_job_looks_like_none(client: Client, demo: Demo) -> None:
    """Spec 5.2 rule 5: a job is its organization's."""
    job = {"kind": "render", "seconds": 1}
    made = client.send("POST", "/api/v1/jobs", key=demo["enterprise"].api_key, json_body=job)
    path = f"/api/v1/jobs/{made.is_ok(202).json()['id']}"
    client.get(path, key=demo["enterprise"].api_key).is_ok()
    plain(client.get(path, key=demo["creator"].api_key), 404, "NOT_FOUND")
    plain(client.send("DELETE", path, key=demo["creator"].api_key), 404, "NOT_FOUND")
    client.send("DELETE", path, key=demo["enterprise"].api_key).is_success()
