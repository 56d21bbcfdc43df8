"""The life of a key: made, listed, read, used, revoked, expired (D2, D4 to D10)."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from .demo import (
    BLINK,
    CLAIM,
    FULL_KEY,
    KEYS,
    MODELS,
    REGISTER,
    TIMESTAMP,
    UUID,
    Client,
    Demo,
    Organization,
    at_once,
    made_up_key,
)

LIST_FIELDS = {
    *("id", "name", "keyPrefix", "scopes", "isActive", "expiresAt", "lastUsedAt", "requestCount"),
    *("createdAt", "revokedAt"),
}
SLACK = timedelta(milliseconds=2)  # bodies hold milliseconds: cut or rounded


def moment(text: Any) -> datetime:
    assert isinstance(text, str) and TIMESTAMP.fullmatch(text), text  # D30
    return datetime.fromisoformat(text)


def now() -> datetime:
    return datetime.now(UTC)


# --- creating -----------------------------------------------------------------------------


def test_creation_answers_exactly_four_fields(client: Client, org: Organization) -> None:
    answer = client.post_key(org.session_cookie, {"name": "one"}).is_ok(201)
    body = answer.json()
    assert body.keys() == {"id", "key", "keyPrefix", "message"}
    assert UUID.fullmatch(body["id"])
    assert FULL_KEY.fullmatch(body["key"])
    assert body["keyPrefix"] == body["key"][:15]  # D2
    assert isinstance(body["message"], str) and body["message"]
    assert body["key"] not in body["message"] + str(answer.headers)
    assert "no-store" in answer.one("cache-control")  # D38


def test_a_new_key_works_at_once_and_has_every_scope(client: Client, org: Organization) -> None:
    created = client.create(org)
    client.get(MODELS, key=created.key).is_ok()
    client.send("POST", "/api/v1/images", key=created.key).is_success()
    client.get(KEYS, key=created.key).is_ok()
    assert client.read(org, created.id)["scopes"] == ["*"]


def test_a_key_creates_no_key(client: Client, org: Organization) -> None:
    answer = client.send("POST", KEYS, key=org.api_key, json_body={"name": "child"})
    answer.is_error(401, "SESSION_REQUIRED")  # D11


def test_the_detail_of_a_new_key(client: Client, org: Organization) -> None:
    before = now()
    scopes = ["jobs:read", "models:*", "jobs:read"]  # Repeats are dropped (D8).
    created = client.create(org, name="  a name  ", scopes=scopes, expiresInDays=0.5)
    after = now()
    answer = client.get(f"{KEYS}/{created.id}", session=org.session_cookie).is_ok()
    assert answer.json().keys() == {"data"}
    data = answer.json()["data"]
    made, ends = moment(data.pop("createdAt")), moment(data.pop("expiresAt"))
    assert before - SLACK <= made <= after + SLACK
    assert abs(ends - made - timedelta(days=0.5)) <= SLACK  # D7
    assert data == {
        "id": created.id,
        "name": "a name",
        "keyPrefix": created.key[:15],
        "scopes": ["jobs:read", "models:*"],
        "isActive": True,
        "lastUsedAt": None,
        "requestCount": 0,
        "revokedAt": None,
        "organizationId": org.id,
    }
    forever = client.create(org, name="a name", expiresInDays=None)
    assert client.read(org, forever.id)["expiresAt"] is None


# --- listing and reading ------------------------------------------------------------------


def test_d10_keys_of_all_states_are_listed_newest_first_then_by_id(
    client: Client, demo: Demo, org: Organization
) -> None:
    """With exact fields, by a session and by a key; each as its detail shows it."""

    def create_apart(number: int) -> str:
        with demo.client() as apart:
            return apart.create(org, name=f"at once {number}").id

    before = len(client.keys(org))
    made = [client.create(org, name=f"in turn {n}").id for n in range(5)]
    made += at_once(16, create_apart)
    client.revoke(org, made[1])
    expired = client.create(org, scopes=["account:read"], expiresInDays=BLINK).id
    listed = client.keys(org)
    assert {entry["id"] for entry in listed} >= {*made, expired}
    assert len(listed) == before + len(made) + 1
    order = [(-moment(entry["createdAt"]).timestamp(), entry["id"]) for entry in listed]
    assert order == sorted(order)
    for entry in listed:
        assert entry.keys() == LIST_FIELDS
    for id in (made[1], expired):
        detail = client.read(org, id)
        assert detail.pop("organizationId") == org.id
        assert detail in listed
    by_key = client.get(KEYS, key=org.api_key).is_ok().json()
    assert by_key.keys() == {"data"}
    assert [entry["id"] for entry in by_key["data"]] == [entry["id"] for entry in listed]


def test_the_prefix_is_all_that_a_list_shows(client: Client, org: Organization) -> None:
    created = client.create(org)
    path = f"{KEYS}/{created.id}"
    for answer in (
        client.get(KEYS, session=org.session_cookie).is_ok(),
        client.get(path, session=org.session_cookie).is_ok(),
        client.send("DELETE", path, session=org.session_cookie).is_ok(),
    ):
        assert created.key[:16].encode() not in answer.body
        assert created.key[15:].encode() not in answer.body


def test_d9_k6_another_organizations_key_looks_like_none(client: Client, demo: Demo) -> None:
    """Like text that is no UUID, and like the id of no key."""
    org, other = demo["enterprise"], demo["creator"]
    mine, (theirs,) = client.create(org), client.keys(other)
    assert theirs["keyPrefix"] == other.api_key[:15]
    bearer = [("Authorization", f"Bearer {org.api_key}")]
    session = [("Cookie", f"__session={org.session_cookie}")]
    for id in (
        *(theirs["id"], str(uuid4()), "not-a-uuid", "0", "*", "%00", "%0a", "%c3%a9", "%ff"),
        *(f"{mine.id}%0a", f"{mine.id}0", "..%2e", "'%20OR%201=1--", "x" * 2_000),
    ):
        for method in ("GET", "DELETE"):
            for headers in (bearer, session):
                answer = client.exact(method, f"{KEYS}/{id}", headers)
                answer.is_error(404, "NOT_FOUND")
                assert id.encode() not in answer.body
    assert client.keys(other)[0]["isActive"] is client.read(org, mine.id)["isActive"] is True


# --- revoking -----------------------------------------------------------------------------


def test_d4_d5_revoking_is_immediate_and_forever(client: Client, org: Organization) -> None:
    created = client.create(org)
    client.get(MODELS, key=created.key).is_ok()
    before = now()
    answer = client.revoke(org, created.id)
    assert answer.json().keys() == {"success", "message"}
    assert answer.json()["success"] is True
    for _ in range(5):
        client.get(MODELS, key=created.key).is_error(401, "KEY_REVOKED")
    first = client.read(org, created.id)
    assert first["isActive"] is False
    assert before - SLACK <= moment(first["revokedAt"]) <= now() + SLACK
    time.sleep(0.005)  # so that a second time would differ
    assert client.revoke(org, created.id).json()["success"] is True
    client.send("DELETE", f"{KEYS}/{created.id}", key=org.api_key).is_ok()
    assert client.read(org, created.id) == first


def test_d5_no_request_started_after_the_revocation_is_accepted(
    demo: Demo, org: Organization
) -> None:
    """Seven threads keep using the key; an eighth revokes it."""
    revoked = threading.Event()

    def use(index: int) -> None:
        with demo.client() as client:
            if index == 0:
                try:
                    client.revoke(org, created.id)
                finally:  # What fails is not to be waited for.
                    revoked.set()
                return
            after = 0
            while after < 3:
                over = revoked.is_set()
                answer = client.get(MODELS, key=created.key)
                after += over
                if over or answer.status != 200:
                    answer.is_error(401, "KEY_REVOKED")

    with demo.client() as client:
        created = client.create(org)
        client.get(MODELS, key=created.key).is_ok()
    at_once(8, use)


def test_d9_any_key_revokes_itself_and_others_with_account_write(
    client: Client, org: Organization
) -> None:
    for scopes, allowed in (
        (["*"], True),
        (["account:*"], True),
        (["account:write"], True),
        (["account:read"], False),
        (["models:*", "jobs:*", "upload:*"], False),
    ):
        actor, victim = client.create(org, scopes=scopes), client.create(org)
        answer = client.send("DELETE", f"{KEYS}/{victim.id}", key=actor.key)
        if allowed:
            answer.is_ok()
        else:
            answer.is_error(403, "INSUFFICIENT_SCOPE")
            assert answer.challenge["scope"] == "account:write"
        assert client.read(org, victim.id)["isActive"] is not allowed
        client.send("DELETE", f"{KEYS}/{actor.id}", key=actor.key).is_ok()
        client.send("DELETE", f"{KEYS}/{actor.id}", key=actor.key).is_error(401, "KEY_REVOKED")


def test_d4_an_expired_key_and_revoked_is_reported_first(client: Client, org: Organization) -> None:
    created = client.create(org, expiresInDays=BLINK)
    path = f"{KEYS}/{created.id}"
    client.get(MODELS, key=created.key).is_error(401, "KEY_EXPIRED")
    client.send("DELETE", path, key=created.key).is_error(401, "KEY_EXPIRED")
    data = client.read(org, created.id)
    assert (data["isActive"], data["revokedAt"]) == (False, None)
    assert (data["requestCount"], data["lastUsedAt"]) == (0, None)
    assert moment(data["expiresAt"]) <= now() + SLACK
    client.revoke(org, created.id)
    client.get(MODELS, key=created.key).is_error(401, "KEY_REVOKED")
    data = client.read(org, created.id)
    assert data["revokedAt"] is not None and data["expiresAt"] is not None


# --- counting (D6, K7) --------------------------------------------------------------------


def test_d6_every_admitted_request_is_counted_and_no_other(
    client: Client, org: Organization
) -> None:
    created = client.create(org, scopes=["models:read"])
    other = client.create(org)
    used: list[datetime] = []
    for _ in range(3):
        time.sleep(0.005)  # so that one use can be told from the other
        before = now()
        client.get(MODELS, key=created.key).is_ok()
        used.append(moment(client.read(org, created.id)["lastUsedAt"]))
        assert before - SLACK <= used[-1] <= now() + SLACK
    assert used == sorted(used)
    client.get("/api/v1/nope", key=created.key).is_error(404, "NOT_FOUND")
    client.send("DELETE", MODELS, key=created.key).is_error(405, "METHOD_NOT_ALLOWED")
    client.get("/api/v1/account", key=created.key).is_error(403, "INSUFFICIENT_SCOPE")  # D19
    client.get(MODELS, key=made_up_key(prefix=created.key.split("_")[2])).is_error(
        401, "KEY_NOT_FOUND"
    )
    client.get(MODELS, key=other.key).is_ok()
    client.keys(org)  # a session's requests are no key's
    assert client.read(org, created.id)["requestCount"] == 6
    assert client.read(org, other.id)["requestCount"] == 1
    client.revoke(org, created.id)
    revoked = client.read(org, created.id)
    client.get(MODELS, key=created.key).is_error(401, "KEY_REVOKED")
    assert client.read(org, created.id) == revoked


def test_d6_a_refused_request_is_not_counted(client: Client, demo: Demo) -> None:
    """An agent's key: its owner sees the count without a request of that organization (D15)."""
    agent = {"agent_name": "counted", "billing_email": "owner@free.example"}
    key = client.send("POST", REGISTER, json_body=agent).is_ok(201).json()["api_key"]

    def usage() -> tuple[int, str]:
        shown = client.get(CLAIM, session=demo["free"].session_cookie).is_ok().json()["data"]
        keys = [entry for one in shown for entry in one["keys"]]
        (own,) = [entry for entry in keys if entry["keyPrefix"] == key[:15]]
        return own["requestCount"], own["lastUsedAt"]

    for _ in range(10):
        client.get(MODELS, key=key).is_ok()
    admitted = usage()
    assert admitted[0] == 10
    for _ in range(3):
        client.get(MODELS, key=key).is_error(429, "RATE_LIMIT_EXCEEDED")
    assert usage() == admitted
