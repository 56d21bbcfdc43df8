"""Every scope against every route (D8, D9, D16)."""

from __future__ import annotations

import re

import pytest

from .demo import KEYS, MODELS, STATUS, Answer, Client, CreatedKey, Demo, Organization

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


@pytest.fixture(scope="module")
def keyring(demo: Demo) -> dict[str, CreatedKey]:
    with demo.client() as client:
        return {scope: client.create(demo["enterprise"], scopes=[scope]) for scope in SCOPES}


def call(client: Client, org: Organization, key: str, method: str, path: str) -> Answer:
    if "<job>" in path:
        made = client.send("POST", "/api/v1/jobs", key=org.api_key, json_body=JOB).is_ok(202)
        path = path.replace("<job>", made.json()["id"])
    if "<key>" in path:
        path = path.replace("<key>", client.create(org).id)
    body = JOB if (method, path) == ("POST", "/api/v1/jobs") else None
    return client.send(method, path, key=key, json_body=body)


@pytest.mark.parametrize(("method", "path", "needed"), ROUTES)
@pytest.mark.parametrize("scope", SCOPES)
def test_a_scope_admits_to_the_operations_that_it_names(
    client: Client,
    org: Organization,
    keyring: dict[str, CreatedKey],
    scope: str,
    method: str,
    path: str,
    needed: str,
) -> None:
    answer = call(client, org, keyring[scope].key, method, path)
    if satisfies(scope, needed):
        answer.is_success()
    else:
        answer.is_error(403, "INSUFFICIENT_SCOPE")
        challenge = answer.one("www-authenticate")
        assert 'error="insufficient_scope"' in challenge
        assert f'scope="{needed}"' in challenge
        assert needed in answer.json()["error"]
        assert answer.limit == 100_000  # D19: it counted, and shows the organization's window


@pytest.mark.parametrize(("method", "path"), [route[:2] for route in ROUTES])
def test_no_key_no_entry(client: Client, method: str, path: str) -> None:
    path = re.sub("<.*>", "00000000-0000-4000-8000-000000000000", path)
    client.send(method, path).is_error(401, "MISSING_AUTH")


def test_scopes_add_up(client: Client, org: Organization) -> None:
    key = client.create(org, scopes=["models:read", "jobs:*"]).key
    for method, path, needed in ROUTES:
        answer = call(client, org, key, method, path)
        if needed == "models:read" or needed.startswith("jobs:"):
            answer.is_success()
        else:
            answer.is_error(403, "INSUFFICIENT_SCOPE")


@pytest.mark.parametrize("path", [MODELS, "/api/v1/jobs", "/api/v1/account", STATUS, KEYS])
def test_head_needs_the_same_scope_as_get(
    client: Client, org: Organization, keyring: dict[str, CreatedKey], path: str
) -> None:
    client.send("HEAD", path).is_error(401, "MISSING_AUTH")
    client.send("HEAD", path, key=keyring["upload:write"].key).is_error(403, "INSUFFICIENT_SCOPE")
    client.send("HEAD", path, key=org.api_key).is_ok()


SPELLINGS = [
    "/api/v1/%69mages",
    "/api/v1/image%73",
    "/%61pi/v1/images",
    "//api/v1/images",
    "/api//v1/images",
    "/api/v1//images",
    "/api/v1/images/",
    "/api/v1/./images",
    "/api/v1/x/../images",
    "/api/v1/%2e/images",
    "/api/v1/x/%2e%2e/images",
    "/api/v1%2fimages",
    "/api%2Fv1%2Fimages",
    "/api/v1/images%2f",
    "/api/v1/images%00",
    "/api/v1/images%0a",
    "/api/v1/images;x",
    "/api/v1/images?x",
    "/api/v1/IMAGES",
    "/API/v1/images",
    "/health/../api/v1/images",
    "/health%2f..%2fapi/v1/images",
    "/api/v1/models/../images",
    "\\api\\v1\\images",
]


@pytest.mark.parametrize("target", SPELLINGS)
def test_no_spelling_of_a_path_needs_less(
    client: Client, org: Organization, keyring: dict[str, CreatedKey], target: str
) -> None:
    """G1, D31: a key for reading models never makes an image."""
    bearer = [("Authorization", f"Bearer {keyring['models:read'].key}")]
    answer = client.exact("POST", target, bearer, server_may_refuse=True)
    assert answer.status in (400, 403, 404, 405), answer
    nobody = client.exact("POST", target, server_may_refuse=True)
    assert nobody.status in (400, 401), nobody


@pytest.mark.parametrize(
    "name", ["X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override", "X-Original-URL"]
)
def test_no_header_changes_the_method_or_path_that_is_checked(
    client: Client, keyring: dict[str, CreatedKey], name: str
) -> None:
    bearer = ("Authorization", f"Bearer {keyring['models:read'].key}")
    for value in ("GET", "OPTIONS", "/health"):
        client.exact("POST", "/api/v1/images", [bearer, (name, value)]).is_error(
            403, "INSUFFICIENT_SCOPE"
        )
        client.exact("GET", MODELS, [(name, value)]).is_error(401, "MISSING_AUTH")


def test_an_unknown_path_needs_a_key_but_no_scope(
    client: Client, keyring: dict[str, CreatedKey]
) -> None:
    for scope in SCOPES:
        client.get("/api/v1/nope", key=keyring[scope].key).is_error(404, "NOT_FOUND")


@pytest.mark.parametrize("scope", SCOPES)
def test_every_scope_of_the_catalogue_is_kept_as_given(
    client: Client, org: Organization, keyring: dict[str, CreatedKey], scope: str
) -> None:
    assert client.read(org, keyring[scope].id)["scopes"] == [scope]
