"""Every scope against every route (D8, D9, D16)."""

from __future__ import annotations

import re

from .demo import KEYS, MODELS, STATUS, Answer, Client, Organization

AREAS = ("models", "jobs", "upload", "account")
SCOPES = ["*", *(f"{area}:{verb}" for area in AREAS for verb in ("*", "read", "write"))]

# (method, path, the scope it needs); <job> and <key> stand for ids that exist
ROUTES = [
    ("GET", MODELS, "models:read"),
    ("POST", "/api/v1/images", "models:write"),
    ("GET", "/api/v1/jobs", "jobs:read"),
    ("POST", "/api/v1/jobs", "jobs:write"),
    ("GET", "/api/v1/jobs/<job>", "jobs:read"),
    ("DELETE", "/api/v1/jobs/<job>", "jobs:write"),
    ("POST", "/api/v1/uploads", "upload:write"),
    ("GET", "/api/v1/catalog", "jobs:read"),
    ("POST", "/api/v1/catalog", "jobs:write"),
    ("GET", "/api/v1/studio", "jobs:read"),
    ("POST", "/api/v1/studio", "jobs:write"),
    ("GET", "/api/v1/library", "jobs:read"),
    ("POST", "/api/v1/library", "jobs:write"),
    ("GET", "/api/v1/account", "account:read"),
    ("GET", STATUS, "account:read"),
    ("GET", KEYS, "account:read"),
    ("GET", f"{KEYS}/<key>", "account:read"),
    ("DELETE", f"{KEYS}/<key>", "account:write"),
]
JOB = {"kind": "render", "seconds": 1}


def satisfies(scope: str, needed: str) -> bool:
    return scope in ("*", needed, needed.partition(":")[0] + ":*")


def call(client: Client, org: Organization, key: str, method: str, path: str) -> Answer:
    if "<job>" in path:
        made = client.send("POST", "/api/v1/jobs", key=org.api_key, json_body=JOB).is_ok(202)
        path = path.replace("<job>", made.json()["id"])
    if "<key>" in path:
        path = path.replace("<key>", client.create(org).id)
    body = JOB if (method, path) == ("POST", "/api/v1/jobs") else None
    return client.send(method, path, key=key, json_body=body)


def test_a_scope_admits_to_the_operations_that_it_names(client: Client, org: Organization) -> None:
    """Each scope alone, and two together; HEAD needs what GET does (D31)."""
    for scopes in (*([scope] for scope in SCOPES), ["models:read", "jobs:*"]):
        created = client.create(org, scopes=scopes)
        assert client.read(org, created.id)["scopes"] == scopes
        for method, path, needed in ROUTES:
            admitted = any(satisfies(scope, needed) for scope in scopes)
            answer = call(client, org, created.key, method, path)
            if admitted:
                answer.is_success()
            else:
                answer.is_error(403, "INSUFFICIENT_SCOPE")
                assert answer.challenge["scope"] == needed
                assert answer.limit == 100_000  # D19: it counted, and shows the own window
            if method == "GET" and "<" not in path:
                head = client.send("HEAD", path, key=created.key)
                assert head.status == (200 if admitted else 403)
        client.get("/api/v1/nope", key=created.key).is_error(404, "NOT_FOUND")


def test_no_key_no_entry(client: Client, org: Organization) -> None:
    """A session opens the key operations only."""
    for method, route, _ in ROUTES:
        path = re.sub("<.*>", "00000000-0000-4000-8000-000000000000", route)
        client.send(method, path).is_error(401, "MISSING_AUTH")
        if not path.startswith(KEYS):
            client.send(method, path, session=org.session_cookie).is_error(401, "MISSING_AUTH")
