"""The two budgets of a client address: public routes, and failed credentials (D24)."""

from __future__ import annotations

import time
from collections.abc import Callable

from .demo import (
    ANONYMOUS_RPM,
    KEYS,
    MODELS,
    PLANS,
    Answer,
    Client,
    Demo,
    made_up_key,
    refused,
)


def fail(client: Client, number: int) -> Answer:
    """One request without a good credential, of a kind that the number chooses."""
    session = {"Cookie": "__session=a; __session=b"}
    kinds: list[Callable[[], Answer]] = [
        lambda: client.get(MODELS).is_error(401, "MISSING_AUTH"),
        lambda: client.get("/nope").is_error(401, "MISSING_AUTH"),
        lambda: client.get(MODELS, key="x").is_error(401, "INVALID_FORMAT"),
        lambda: client.get(MODELS, key=made_up_key()).is_error(401, "KEY_NOT_FOUND"),
        lambda: client.get(KEYS, session="x").is_error(401, "SESSION_INVALID"),
        lambda: client.send("GET", KEYS, headers=session).is_error(401, "SESSION_INVALID"),
        lambda: client.post_key(None, {"name": "x"}).is_error(401, "SESSION_REQUIRED"),
    ]
    return kinds[number % len(kinds)]()


def test_d24_each_address_has_two_budgets(demo: Demo) -> None:
    with demo.client() as one, demo.client() as two:
        for client in (one, two):
            for n in range(14):
                answer = fail(client, n)
                assert (answer.limit, answer.remaining) == (ANONYMOUS_RPM, 999 - n)
            for n, path in enumerate(("/health", "/capabilities", "/openapi.json")):
                answer = client.get(path).is_ok()
                assert (answer.limit, answer.remaining) == (ANONYMOUS_RPM, 999 - n)


def test_d24_forwarded_headers_are_not_believed_and_logged_once(fresh: Demo) -> None:
    with fresh.client() as client:
        for n in range(5):
            address = f"203.0.113.{n}"
            headers = {"X-Forwarded-For": address, "X-Real-IP": address}
            headers["Forwarded"] = f"for={address}"
            assert client.send("GET", "/health", headers=headers).is_ok().remaining == 999 - n
        assert fresh.stderr.count("trusted_proxies=") == 1
        assert f"trusted_proxies=['{client.source}']" in fresh.stderr


def test_d24_a_spent_budget_of_failures_locks_no_owner_out(demo: Demo) -> None:
    """An attacker at the same address cannot prevent the revocation of a leaked key."""
    org = demo["enterprise"]
    with demo.client() as client, demo.client() as elsewhere:
        leaked = elsewhere.create(org)
        used, used_too, unused = (elsewhere.create(org) for _ in range(3))
        for created in (used, used_too):
            client.get(MODELS, key=created.key).is_ok()
        before = time.time()
        assert fail(client, 0).remaining == ANONYMOUS_RPM - 1
        after = time.time()
        for n in range(1, ANONYMOUS_RPM):
            assert fail(client, n).remaining == ANONYMOUS_RPM - 1 - n
        # No further request without a valid credential ...
        for key in (None, "x", *(made_up_key() for _ in range(50))):
            asked = time.time()
            seconds = refused(client.get(MODELS, key=key), ANONYMOUS_RPM)
            # The first leaves 60 s after it came; the wait is rounded up (D22).
            assert before + 60 - time.time() <= seconds < after + 61 - asked + 0.01
        refused(client.get("/nope"), ANONYMOUS_RPM)
        refused(client.get(KEYS, session="x"), ANONYMOUS_RPM)
        # ... nor for a good key that this process does not know yet,
        refused(client.get(MODELS, key=unused.key), ANONYMOUS_RPM)
        # ... nor a guess at the secret of a known handle.
        guess = made_up_key(prefix=used.key.split("_")[2])
        refused(client.get(MODELS, key=guess), ANONYMOUS_RPM)
        # Public routes have a budget of their own,
        for path in ("/health", "/capabilities"):
            client.get(path).is_ok()
        # ... a key that was admitted before goes on,
        for _ in range(3):
            answer = client.get(MODELS, key=used.key).is_ok()
            assert answer.limit == PLANS["enterprise"]["rpm"]
        # ... and the owner's session revokes the leaked key,
        client.revoke(org, leaked.id)
        assert client.read(org, leaked.id)["isActive"] is False
        elsewhere.get(MODELS, key=leaked.key).is_error(401, "KEY_REVOKED")
        # ... from its own pages only.
        evil = {"Origin": "https://evil.example"}
        target = f"{KEYS}/{used.id}"
        answer = client.send("DELETE", target, session=org.session_cookie, headers=evil)
        answer.is_error(403, "CROSS_SITE_REQUEST")
        # A known key revokes itself, and is then refused like any other.
        client.send("DELETE", target, key=used.key).is_ok()
        refused(client.get(MODELS, key=used.key), ANONYMOUS_RPM)
        # Other addresses do not notice.
        elsewhere.get(MODELS, key=unused.key).is_ok()
