"""Each error once, to the letter (D16 to D18): `Answer.check` holds its fields and challenge."""

from __future__ import annotations

from .demo import BLINK, KEYS, MODELS, REGISTER, Answer, Client, Demo, made_up_key


def test_d16_every_error_has_its_status_code_and_fields(client: Client, demo: Demo) -> None:
    org = demo["enterprise"]
    key, session = org.api_key, org.session_cookie
    revoked, expired = client.create(org), client.create(org, expiresInDays=BLINK)
    client.revoke(org, revoked.id)
    narrow = client.create(org, scopes=["jobs:read"]).key
    foreign = {"Sec-Fetch-Site": "cross-site"}
    text, large = {"Content-Type": "text/plain"}, b" " * 65_537

    def post(path: str, content: bytes, headers: dict[str, str] | None = None) -> Answer:
        return client.send("POST", path, session=session, content=content, headers=headers)

    for answer, status, code in (
        (client.get(MODELS), 401, "MISSING_AUTH"),
        (client.get(MODELS, key="not-a-key"), 401, "INVALID_FORMAT"),
        (client.get(MODELS, key=made_up_key()), 401, "KEY_NOT_FOUND"),
        (client.get(MODELS, key=revoked.key), 401, "KEY_REVOKED"),
        (client.get(MODELS, key=expired.key), 401, "KEY_EXPIRED"),
        (client.get(MODELS, key=narrow), 403, "INSUFFICIENT_SCOPE"),
        (client.post_key(None, {"name": "x"}), 401, "SESSION_REQUIRED"),
        (client.send("POST", KEYS, key=key, json_body={"name": "x"}), 401, "SESSION_REQUIRED"),
        (client.post_key("made.up", {"name": "x"}), 401, "SESSION_INVALID"),
        (post(KEYS, b"{}", foreign), 403, "CROSS_SITE_REQUEST"),
        (client.get("/api/v1/nope", key=key), 404, "NOT_FOUND"),
        (client.get(f"{KEYS}/nope", key=key), 404, "NOT_FOUND"),
        (client.get("/api/v1/jobs/nope", key=key), 404, "NOT_FOUND"),
        (client.send("DELETE", MODELS, key=key), 405, "METHOD_NOT_ALLOWED"),
        *((post(path, large), 413, "PAYLOAD_TOO_LARGE") for path in (KEYS, REGISTER)),
        *((post(path, b"{}", text), 415, "UNSUPPORTED_MEDIA_TYPE") for path in (KEYS, REGISTER)),
        *((post(path, b"{}"), 400, "VALIDATION_ERROR") for path in (KEYS, REGISTER)),
    ):
        answer.is_error(status, code)
        if code == "INSUFFICIENT_SCOPE":
            assert answer.challenge["scope"] == "models:read"


def test_errors_are_json_for_any_accept_header(client: Client, demo: Demo) -> None:
    bearer = ("Authorization", f"Bearer {demo['enterprise'].api_key}")
    for accept in ("text/html", "application/xml", "*/*;q=0", ""):
        for method in ("GET", "POST", "PUT", "DELETE"):
            client.exact(method, "/nope", [("Accept", accept)]).is_error(401, "MISSING_AUTH")
            client.exact(method, "/nope", [("Accept", accept), bearer]).is_error(404, "NOT_FOUND")


def test_another_organizations_job_looks_like_none(client: Client, demo: Demo) -> None:
    """Spec 5.2 rule 5: a job is its organization's."""
    job = {"kind": "render", "seconds": 1}
    own, other = demo["enterprise"].api_key, demo["creator"].api_key
    made = client.send("POST", "/api/v1/jobs", key=own, json_body=job)
    path = f"/api/v1/jobs/{made.is_ok(202).json()['id']}"
    client.get(path, key=own).is_ok()
    client.get(path, key=other).is_error(404, "NOT_FOUND")
    client.send("DELETE", path, key=other).is_error(404, "NOT_FOUND")
    client.send("DELETE", path, key=own).is_success()
