"""The life of a key: made, listed, read, used, revoked, expired (D2, D4 to D10)."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from .demo import (
    BLINK,
    CLAIM,
    FULL_KEY,
    KEYS,
    MODELS,
    REGISTER,
    STATUS,
    TIMESTAMP,
    UUID,
    Client,
    Demo,
    Organization,
    at_once,
    made_up_key,
    numbered,
    without_id,
)

LIST_FIELDS = {
    "id",
    "name",
    "keyPrefix",
    "scopes",
    "isActive",
    "expiresAt",
    "lastUsedAt",
    "requestCount",
    "createdAt",
    "revokedAt",
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
    assert body["key"] not in body["message"]
    assert "no-store" in answer.one("cache-control")  # D38


def test_a_new_key_works_at_once_and_has_every_scope(client: Client, org: Organization) -> None:
    key = client.create(org).key
    client.get(MODELS, key=key).is_ok()
    client.send("POST", "/api/v1/images", key=key).is_success()
    client.get(KEYS, key=key).is_ok()


def test_a_key_creates_no_key(client: Client, org: Organization) -> None:
    answer = client.send("POST", KEYS, key=org.api_key, json_body={"name": "child"})
    answer.is_error(401, "SESSION_REQUIRED")  # D11


def test_the_detail_of_a_new_key(client: Client, org: Organization) -> None:
    before = now()
    created = client.create(org, name="  a name  ", scopes=["jobs:read", "models:*"])
    after = now()
    answer = client.get(f"{KEYS}/{created.id}", session=org.session_cookie).is_ok()
    assert answer.json().keys() == {"data"}
    data = answer.json()["data"]
    assert data.keys() == LIST_FIELDS | {"organizationId"}
    assert data["id"] == created.id
    assert data["name"] == "a name"  # D8
    assert data["keyPrefix"] == created.key[:15]
    assert sorted(data["scopes"]) == ["jobs:read", "models:*"]
    assert data["isActive"] is True
    assert data["expiresAt"] is None
    assert data["lastUsedAt"] is None
    assert type(data["requestCount"]) is int and data["requestCount"] == 0
    assert before - SLACK <= moment(data["createdAt"]) <= after + SLACK
    assert data["revokedAt"] is None
    assert data["organizationId"] == org.id


def test_the_default_scope_is_the_wildcard(client: Client, org: Organization) -> None:
    assert client.read(org, client.create(org).id)["scopes"] == ["*"]


def test_d8_repeated_scopes_are_dropped(client: Client, org: Organization) -> None:
    created = client.create(org, scopes=["jobs:read"] * 50)
    assert client.read(org, created.id)["scopes"] == ["jobs:read"]
    created = client.create(org, scopes=["jobs:read", "models:read", "jobs:read"])
    assert sorted(client.read(org, created.id)["scopes"]) == ["jobs:read", "models:read"]


def test_names_need_not_differ(client: Client, org: Organization) -> None:
    assert client.create(org, name="same").id != client.create(org, name="same").id


# --- listing ------------------------------------------------------------------------------


def test_the_list_has_exact_fields_and_no_organization(client: Client, demo: Demo) -> None:
    org = demo["starter"]  # Nothing else here touches it.
    created = client.create(org, name="listed", scopes=["account:read"])
    for answer in (
        client.get(KEYS, session=org.session_cookie),
        client.get(KEYS, key=org.api_key),
        client.get(KEYS, key=created.key),
    ):
        assert answer.is_ok().json().keys() == {"data"}
        data = answer.json()["data"]
        assert all(entry.keys() == LIST_FIELDS for entry in data)
        assert data[0]["id"] == created.id
        assert len(data) == 2  # the one the demo made, and this one
        assert data[1]["keyPrefix"] == org.api_key[:15]


def test_list_and_detail_agree(client: Client, org: Organization) -> None:
    created = client.create(org, scopes=["models:read"], expiresInDays=3)
    client.get(MODELS, key=created.key).is_ok()
    client.revoke(org, created.id)
    detail = client.read(org, created.id)
    assert detail.pop("organizationId") == org.id
    assert detail in client.keys(org)


def test_d10_keys_of_all_states_are_listed_newest_first_then_by_id(
    client: Client, demo: Demo, org: Organization
) -> None:
    before = len(client.keys(org))
    made = [client.create(org, name=f"in turn {n}").id for n in range(5)]
    made += at_once(16, lambda n: _create_apart(demo, org, f"at once {n}"))
    client.revoke(org, made[1])
    expired = client.create(org, expiresInDays=BLINK).id
    listed = client.keys(org)
    assert {entry["id"] for entry in listed} >= {*made, expired}
    assert len(listed) == before + len(made) + 1
    order = [(-moment(entry["createdAt"]).timestamp(), entry["id"]) for entry in listed]
    assert order == sorted(order)
    assert [entry["id"] for entry in client.keys(org)] == [entry["id"] for entry in listed]
    in_turn = [entry["id"] for entry in listed if entry["id"] in made[:5]]
    if len({entry["createdAt"] for entry in listed if entry["id"] in in_turn}) == 5:
        assert in_turn == made[4::-1]


def _create_apart(demo: Demo, org: Organization, name: str) -> str:
    with demo.client() as client:
        return client.create(org, name=name).id


def test_organizations_see_their_own_keys_only(client: Client, demo: Demo) -> None:
    mine = client.create(demo["enterprise"])
    listed = client.keys(demo["creator"])
    assert mine.id not in {entry["id"] for entry in listed}
    assert [entry["keyPrefix"] for entry in listed] == [demo["creator"].api_key[:15]]


# --- reading one --------------------------------------------------------------------------

NO_IDS = [
    "not-a-uuid",
    "0",
    "-1",
    "null",
    "*",
    "%00",
    "%0a",
    "%20",
    "%c3%a9",
    "%ff",
    "..%2e",
    "00000000-0000-0000-0000-00000000000g",
    "00000000-0000-0000-0000-0000000000000",
    "00000000-0000-0000-0000-000000000000",
    "ffffffff-ffff-ffff-ffff-ffffffffffff",
    "'%20OR%201=1--",
    "x" * 2_000,
]


@pytest.mark.parametrize("key_id", NO_IDS, ids=numbered(NO_IDS))
def test_d9_text_that_is_no_uuid_is_not_found(
    client: Client, org: Organization, key_id: str
) -> None:
    bearer = [("Authorization", f"Bearer {org.api_key}")]
    session = [("Cookie", f"__session={org.session_cookie}")]
    for headers in (bearer, session):
        for method in ("GET", "DELETE"):
            answer = client.exact(method, f"{KEYS}/{key_id}", headers)
            answer.is_error(404, "NOT_FOUND")


def test_d9_a_uuid_with_a_line_feed_is_no_uuid(client: Client, org: Organization) -> None:
    created = client.create(org)
    headers = [("Authorization", f"Bearer {org.api_key}")]
    client.exact("GET", f"{KEYS}/{created.id}%0a", headers).is_error(404, "NOT_FOUND")
    client.exact("DELETE", f"{KEYS}/{created.id}%0A", headers).is_error(404, "NOT_FOUND")
    assert client.read(org, created.id)["isActive"] is True


def test_d9_k6_another_organizations_key_looks_like_none(client: Client, demo: Demo) -> None:
    org = demo["enterprise"]
    foreign = client.keys(demo["creator"])[0]["id"]
    for method in ("GET", "DELETE"):
        nobody = str(uuid4())
        for key, session in ((org.api_key, None), (None, org.session_cookie)):
            theirs = client.send(method, f"{KEYS}/{foreign}", key=key, session=session)
            none = client.send(method, f"{KEYS}/{nobody}", key=key, session=session)
            theirs.is_error(404, "NOT_FOUND")
            none.is_error(404, "NOT_FOUND")
            assert without_id(theirs, foreign) == without_id(none, nobody)
    assert client.keys(demo["creator"])[0]["isActive"] is True


# --- revoking -----------------------------------------------------------------------------


def test_revoking_is_immediate_and_forever(client: Client, org: Organization) -> None:
    created = client.create(org)
    client.get(MODELS, key=created.key).is_ok()
    before = now()
    answer = client.revoke(org, created.id)
    assert answer.json().keys() == {"success", "message"}
    assert answer.json()["success"] is True
    assert isinstance(answer.json()["message"], str) and answer.json()["message"]
    for _ in range(5):
        client.get(MODELS, key=created.key).is_error(401, "KEY_REVOKED")
    data = client.read(org, created.id)
    assert data["isActive"] is False
    assert before - SLACK <= moment(data["revokedAt"]) <= now() + SLACK


def test_d4_revoking_again_changes_nothing(client: Client, org: Organization) -> None:
    created = client.create(org)
    client.revoke(org, created.id)
    first = client.read(org, created.id)
    time.sleep(0.005)  # so that a second time would differ
    assert client.revoke(org, created.id).json()["success"] is True
    client.send("DELETE", f"{KEYS}/{created.id}", key=org.api_key).is_ok()
    assert client.read(org, created.id) == first


def test_d4_ten_revocations_at_once_leave_one_time(demo: Demo, org: Organization) -> None:
    def revoke(_: int) -> object:
        with demo.client() as apart:
            apart.revoke(org, created.id)
            return apart.read(org, created.id)["revokedAt"]

    with demo.client() as client:
        created = client.create(org)
        (revoked_at,) = {*at_once(10, revoke)}
        assert client.read(org, created.id)["revokedAt"] == revoked_at
        client.get(MODELS, key=created.key).is_error(401, "KEY_REVOKED")


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


@pytest.mark.parametrize("scopes", [["*"], ["models:read"], ["upload:*"], ["account:read"]])
def test_d9_any_key_revokes_itself(client: Client, org: Organization, scopes: list[str]) -> None:
    created = client.create(org, scopes=scopes)
    answer = client.send("DELETE", f"{KEYS}/{created.id}", key=created.key).is_ok()
    assert answer.json()["success"] is True
    client.send("DELETE", f"{KEYS}/{created.id}", key=created.key).is_error(401, "KEY_REVOKED")
    assert client.read(org, created.id)["isActive"] is False


@pytest.mark.parametrize(
    ("scopes", "allowed"),
    [
        (["*"], True),
        (["account:*"], True),
        (["account:write"], True),
        (["account:read"], False),
        (["models:*", "jobs:*", "upload:*"], False),
    ],
)
def test_d9_revoking_another_needs_account_write(
    client: Client, org: Organization, scopes: list[str], allowed: bool
) -> None:
    actor, victim = client.create(org, scopes=scopes), client.create(org)
    answer = client.send("DELETE", f"{KEYS}/{victim.id}", key=actor.key)
    if allowed:
        answer.is_ok()
    else:
        answer.is_error(403, "INSUFFICIENT_SCOPE")
        assert 'scope="account:write"' in answer.one("www-authenticate")
    assert client.read(org, victim.id)["isActive"] is not allowed


# --- expiring -----------------------------------------------------------------------------


@pytest.mark.parametrize("days", [1, 0.5, 1.0, 30, 365, 0.001, 36_500, 36_500.0])
def test_d7_days_become_a_time(client: Client, org: Organization, days: float) -> None:
    data = client.read(org, client.create(org, expiresInDays=days).id)
    lasts = moment(data["expiresAt"]) - moment(data["createdAt"])
    assert abs(lasts - timedelta(days=days)) <= SLACK
    assert data["isActive"] is True


def test_d7_null_never_expires(client: Client, org: Organization) -> None:
    assert client.read(org, client.create(org, expiresInDays=None).id)["expiresAt"] is None


def test_d4_an_expired_key(client: Client, org: Organization) -> None:
    created = client.create(org, expiresInDays=BLINK)
    data = client.read(org, created.id)
    assert data["isActive"] is False
    assert data["revokedAt"] is None
    assert moment(data["expiresAt"]) <= now() + SLACK
    client.get(MODELS, key=created.key).is_error(401, "KEY_EXPIRED")
    itself = client.send("DELETE", f"{KEYS}/{created.id}", key=created.key)
    itself.is_error(401, "KEY_EXPIRED")
    assert client.read(org, created.id)["requestCount"] == 0
    assert client.read(org, created.id)["lastUsedAt"] is None


def test_d4_revoked_is_reported_before_expired(client: Client, org: Organization) -> None:
    created = client.create(org, expiresInDays=BLINK)
    client.get(STATUS, key=created.key).is_error(401, "KEY_EXPIRED")
    client.revoke(org, created.id)
    client.get(STATUS, key=created.key).is_error(401, "KEY_REVOKED")
    data = client.read(org, created.id)
    assert data["revokedAt"] is not None and data["expiresAt"] is not None
    assert data["isActive"] is False


def test_d3_a_wrong_secret_does_not_reveal_the_state_of_a_key(
    client: Client, org: Organization
) -> None:
    expired = client.create(org, expiresInDays=BLINK)
    narrow = client.create(org, scopes=["upload:write"])
    for created in (expired, narrow):
        guess = made_up_key(prefix=created.key.split("_")[2])
        client.get(MODELS, key=guess).is_error(401, "KEY_NOT_FOUND")


# --- counting (D6) ------------------------------------------------------------------------


def test_d6_every_admitted_request_is_counted(client: Client, org: Organization) -> None:
    created = client.create(org)
    before = now()
    for _ in range(7):
        client.get(MODELS, key=created.key).is_ok()
    client.get("/api/v1/nope", key=created.key).is_error(404, "NOT_FOUND")
    client.send("DELETE", MODELS, key=created.key).is_error(405, "METHOD_NOT_ALLOWED")
    data = client.read(org, created.id)
    assert type(data["requestCount"]) is int and data["requestCount"] == 9
    assert before - SLACK <= moment(data["lastUsedAt"]) <= now() + SLACK


def test_d6_d19_a_403_is_counted_and_a_401_is_not(client: Client, org: Organization) -> None:
    created = client.create(org, scopes=["models:read"])
    for _ in range(3):
        client.get("/api/v1/account", key=created.key).is_error(403, "INSUFFICIENT_SCOPE")
    guess = made_up_key(prefix=created.key.split("_")[2])
    client.get(MODELS, key=guess).is_error(401, "KEY_NOT_FOUND")
    assert client.read(org, created.id)["requestCount"] == 3
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


def test_d6_keys_are_counted_apart(client: Client, org: Organization) -> None:
    one, two = client.create(org), client.create(org)
    for _ in range(2):
        client.get(MODELS, key=one.key).is_ok()
    client.get(MODELS, key=two.key).is_ok()
    assert client.read(org, one.id)["requestCount"] == 2
    assert client.read(org, two.id)["requestCount"] == 1
    client.keys(org)  # a session's requests are no key's
    assert client.read(org, one.id)["requestCount"] == 2


def test_d6_requests_at_once_are_all_counted(demo: Demo, org: Organization) -> None:
    def use(_: int) -> int:
        with demo.client() as apart:
            return sum(apart.get(MODELS, key=created.key).status == 200 for _ in range(10))

    with demo.client() as client:
        created = client.create(org)
        assert sum(at_once(16, use)) == 160
        assert client.read(org, created.id)["requestCount"] == 160


def test_d6_a_key_that_reads_itself(client: Client, org: Organization) -> None:
    created = client.create(org)
    for n in range(1, 4):
        answer = client.get(f"{KEYS}/{created.id}", key=created.key).is_ok()
        assert answer.json()["data"]["requestCount"] in (n - 1, n)  # itself, or not yet
    assert client.read(org, created.id)["requestCount"] == 3


def test_last_used_is_the_latest_use(client: Client, org: Organization) -> None:
    created = client.create(org)
    for _ in range(5):
        time.sleep(0.005)  # so that one use can be told from the other
        before = now()
        client.get(MODELS, key=created.key).is_ok()
        used = moment(client.read(org, created.id)["lastUsedAt"])
        assert before - SLACK <= used <= now() + SLACK
