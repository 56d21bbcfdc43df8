"""Public by name, closed by default, however a path is spelt (D17, D31, G1)."""

from __future__ import annotations

from urllib.parse import unquote_to_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from .demo import (
    ANONYMOUS_RPM,
    FUZZ,
    KEYS,
    MODELS,
    PUBLIC,
    REGISTER,
    STATUS,
    Client,
    Demo,
    Organization,
)

JSON = ("Content-Type", "application/json")

# --- public -------------------------------------------------------------------------------


def test_public_paths_need_no_credential_and_look_at_none(
    client: Client, org: Organization
) -> None:
    for path in PUBLIC:
        for target in (path, f"{path}?a=b", f"{path}?"):
            client.get(target).is_ok()
        client.send("HEAD", path).is_ok()
        client.get(path, key=org.api_key).is_ok()
        client.get(path, key="x").is_ok()
        client.exact("GET", path, [("Authorization", b"\xff")] * 2).is_ok()
        client.exact("GET", path, [("Cookie", b"__session=\xff")]).is_ok()


def test_the_openapi_document_names_the_operations(client: Client) -> None:
    document = client.get("/openapi.json").is_ok().json()
    assert document["openapi"].startswith("3.")
    operations = {(path, method) for path, entry in document["paths"].items() for method in entry}
    assert {(KEYS, "get"), (KEYS, "post"), (STATUS, "get")} <= operations
    (single,) = (path for path in document["paths"] if path.startswith(f"{KEYS}/{{"))
    assert {"get", "delete"} <= document["paths"][single].keys()


# --- closed -------------------------------------------------------------------------------

CLOSED = [
    *("/", "/docs", "/redoc", "/nope", "/api", "/api/v1", "/api/v1/nope", "/api/v2/models"),
    *("/models", "/favicon.ico", "/.well-known/x", "/healthz", "/health.json", "/metrics"),
]


def test_d31_unknown_paths_are_closed(client: Client, org: Organization) -> None:
    for path in CLOSED:
        for method in ("GET", "POST", "DELETE", "HEAD"):
            client.send(method, path).is_error(401, "MISSING_AUTH")
            client.send(method, path, key="x").is_error(401, "INVALID_FORMAT")
            answer = client.send(method, path, key=org.api_key).is_error(404, "NOT_FOUND")
            assert answer.limit == 100_000


def test_errors_are_json_for_any_accept_header(client: Client, demo: Demo) -> None:
    bearer = ("Authorization", f"Bearer {demo['enterprise'].api_key}")
    for accept in ("text/html", "application/xml", "*/*;q=0", ""):
        for method in ("GET", "POST", "PUT", "DELETE"):
            client.exact(method, "/nope", [("Accept", accept)]).is_error(401, "MISSING_AUTH")
            client.exact(method, "/nope", [("Accept", accept), bearer]).is_error(404, "NOT_FOUND")


TRICKS = [
    *("//health", "///health", "/health/", "/health//", "/./health", "/health/.", "/health/.."),
    *("/../health", "/x/../health", "/health/../health", "/capabilities/../health"),
    *("/api/v1/../../health", "/%2e/health", "/%2e%2e/health", "/x/%2e%2e/health"),
    *("/x/%2E./health", "/health/%2e", "/health/%2e%2e", "/health%2f", "/health%2F", "/%2fhealth"),
    *("/health%2f%2e%2e", "/health%2fx", "/health%2f..%2fapi/v1/models", "/health%5c"),
    *("/health%5c..", "/health\\", "/health;", "/health;x=1", "/health%3fx", "/health%23x"),
    *("/health%00", "/health%00.json", "/health%0a", "/health%0d%0a", "/health%09", "/health%20"),
    *("/%20health", "/health%ff", "/health%c0%af", "/health%c2%a0", "/health%e2%80%8b", "/health%"),
    *("/health%2", "/health%zz", "/health%252f", "/%2568ealth", "/HEALTH", "/Health"),
    *("/openapi.json/", "/openapi.json%0a", "//openapi.json", "/openapi%2ejson/x"),
    *("/capabilities/x", "/api/v1/health", "/health/api/v1/models", "/health,/api/v1/models"),
    *("//127.0.0.1/health", "/http://127.0.0.1/health"),
]
"""Each is 401 without a key, as `test_alike` asks every server: no other spelling is public."""


def test_other_spellings_with_a_key_are_nowhere(client: Client, org: Organization) -> None:
    """A router may take a line feed at the end for nothing, or slashes in front: then it is the
    route, with a key.
    """
    bearer = [("Authorization", f"Bearer {org.api_key}")]
    for target in TRICKS:
        answer = client.exact("GET", target, bearer, server_may_refuse=True)
        folded = client.demo.face.folds_slashes and target.startswith(("//", "/%2f"))
        found = {200} if target.endswith("%0a") or folded else set()
        assert answer.by_the_server or answer.status in {404} | found, (target, answer)


def test_d31_no_other_spelling_registers(client: Client) -> None:
    """A public path of several segments: some servers make a slash of an encoded one."""
    body = b'{"agent_name": "bot", "billing_email": "odd@example.com"}'
    start, _, end = REGISTER.rpartition("/")
    for target in (
        *(f"{start}{slash}{end}" for slash in ("%2f", "%2F", "//", "/./", "/x/../", "/%2e/")),
        *(f"{REGISTER}{tail}" for tail in ("/", "%2f", "%0a", ";", "/..")),
        *(f"{head}{REGISTER}" for head in ("/", "/x/..", "/x%2f..")),
    ):
        answer = client.exact("POST", target, [JSON], body, server_may_refuse=True)
        if client.demo.face.by_granian_wsgi and target.lower() == f"{start}%2f{end}":
            answer.is_ok(201)  # D31: the decoded path is what there is.
        elif not answer.by_the_server:
            answer.is_error(401, "MISSING_AUTH")
    client.exact("POST", REGISTER, [JSON], body).is_ok(201)


def test_d31_a_path_is_matched_as_the_application_sees_it(client: Client) -> None:
    """An escaped letter is that letter."""
    client.exact("GET", "/%68ealth").is_ok()
    client.exact("GET", "/openapi%2ejson").is_ok()
    client.exact("GET", "/api/v1/%6dodels").is_error(401, "MISSING_AUTH")


@pytest.mark.parametrize("authority", ["127.0.0.1", "evil.example", "user@evil.example:1"])
def test_a_target_in_absolute_form_opens_no_path(
    client: Client, org: Organization, authority: str
) -> None:
    """Some servers turn it into a path; for others it is a path without a route."""
    bearer = [("Authorization", f"Bearer {org.api_key}")]
    for path in (MODELS, "/nope", "/health/../api/v1/models", "/health/", "//health"):
        target = f"http://{authority}{path}"
        assert client.exact("GET", target, server_may_refuse=True).status in (400, 401)
        answer = client.exact("GET", target, bearer, server_may_refuse=True)
        folded = client.demo.face.folds_slashes and path.startswith("//")
        found = {200} if path == MODELS or folded else set()
        assert answer.by_the_server or answer.status in {404} | found, answer
    for target in (f"http://{authority}", f"https://{authority}/"):
        assert client.exact("GET", target, server_may_refuse=True).status in (400, 401)
    public = client.exact("GET", f"http://{authority}/health", server_may_refuse=True)
    assert public.by_the_server or public.status in (200, 401)


def test_a_very_long_path(client: Client) -> None:
    for path in (*PUBLIC, MODELS):
        for target in (path + "/x" * 10_000, path + "x" * 20_000):
            answer = client.exact("GET", target, server_may_refuse=True)
            assert answer.by_the_server or answer.status == 401
        answer = client.exact("GET", f"{path}?{'x' * 20_000}", server_may_refuse=True)
        assert answer.by_the_server or answer.status == (200 if path in PUBLIC else 401)


# --- methods (D17, D31) -------------------------------------------------------------------

ALLOWED = {
    "/health": {"GET"},
    "/capabilities": {"GET"},
    "/openapi.json": {"GET"},
    MODELS: {"GET"},
    "/api/v1/images": {"POST"},
    "/api/v1/jobs": {"GET", "POST"},
    "/api/v1/jobs/00000000-0000-4000-8000-000000000000": {"GET", "DELETE"},
    "/api/v1/uploads": {"POST"},
    "/api/v1/catalog": {"GET", "POST"},
    "/api/v1/studio": {"GET", "POST"},
    "/api/v1/library": {"GET", "POST"},
    "/api/v1/account": {"GET"},
    STATUS: {"GET"},
    KEYS: {"GET", "POST"},
    f"{KEYS}/00000000-0000-4000-8000-000000000000": {"GET", "DELETE"},
}


def test_d17_other_methods_are_405_with_allow(client: Client, org: Organization) -> None:
    """Authentication comes first (D31)."""
    for path, allowed in ALLOWED.items():
        for method in {"GET", "POST", "PUT", "PATCH", "DELETE"} - allowed:
            answer = client.send(method, path, key=org.api_key)
            answer.is_error(405, "METHOD_NOT_ALLOWED")
            assert answer.allow - {"HEAD", "OPTIONS"} == allowed
            if path in PUBLIC:  # It may have passed as anonymous.
                assert client.send(method, path).status in (401, 405)
                continue
            assert answer.limit == 100_000
            if (method, path) != ("POST", KEYS):
                client.send(method, path).is_error(401, "MISSING_AUTH")
                client.send(method, path, key="x").is_error(401, "INVALID_FORMAT")


@pytest.mark.parametrize("method", ["get", "Get", "FOO", "TRACE", "PROPFIND", "G" * 100])
def test_odd_methods(client: Client, org: Organization, method: str) -> None:
    bearer = [("Authorization", f"Bearer {org.api_key}")]
    answer = client.exact(method, MODELS, bearer, server_may_refuse=True)
    is_get = method.upper() == "GET"
    found = 200 if is_get and client.demo.face.takes_any_case else 405
    assert answer.by_the_server or answer.status == found, answer
    narrow = [("Authorization", f"Bearer {client.create(org, scopes=['upload:write']).key}")]
    answer = client.exact(method, MODELS, narrow, server_may_refuse=True)
    assert answer.by_the_server or answer.status == (403 if is_get else 405), answer


def test_head_answers_as_get_without_a_body(client: Client, org: Organization) -> None:
    for path in ("/health", MODELS, KEYS, STATUS):
        get = client.send("GET", path, key=org.api_key).is_ok()
        head = client.send("HEAD", path, key=org.api_key).is_ok()
        assert head.one("content-type") == get.one("content-type")
    client.send("HEAD", "/api/v1/images", key=org.api_key).is_error(405, "METHOD_NOT_ALLOWED")


# --- preflights (D31) ---------------------------------------------------------------------

ORIGIN = ("Origin", "https://app.example")
ASKED = ("Access-Control-Request-Method", "GET")


def test_d31_a_preflight_ends_at_the_gate_and_what_resembles_one_is_refused(
    client: Client,
) -> None:
    for path in (MODELS, KEYS, f"{KEYS}/x", STATUS, "/health", "/nope"):
        answer = client.exact("OPTIONS", path, [ORIGIN, ASKED])
        assert (answer.status, answer.body) == (204, b"")
        assert not any(name.startswith("access-control-") for name, _ in answer.headers)
        assert answer.limit == ANONYMOUS_RPM
    for path in (MODELS, KEYS, "/nope"):
        for headers in ([], [ORIGIN], [ASKED]):
            client.exact("OPTIONS", path, headers).is_error(401, "MISSING_AUTH")
        for method in ("GET", "HEAD", "DELETE", "PUT"):
            client.exact(method, path, [ORIGIN, ASKED]).is_error(401, "MISSING_AUTH")


# --- any path at all ----------------------------------------------------------------------

PIECES = [
    *("", ".", "..", "health", "capabilities", "openapi.json", "api", "v1", "models", "api-keys"),
    *("%2e", "%2E%2e", "%2f", "%2F..", "%5c", "\\", "%00", "%0a", "%20", "%ff", "%", "%zz"),
    *(";", ";x", "~", "%68ealth", "health%2f", "HEALTH", "x", "%c3%a9", ":", "@", "*", "&"),
]
segments = st.one_of(
    st.sampled_from(PIECES),
    st.text(
        st.characters(min_codepoint=0x21, max_codepoint=0x7E, exclude_characters="?#"), max_size=8
    ),
)
targets = st.lists(segments, min_size=1, max_size=6).map(lambda parts: "/" + "/".join(parts))
METHODS = st.sampled_from(["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"])


@FUZZ
@given(method=METHODS, target=targets)
def test_d31_any_path_is_closed_without_a_key_and_admitted_with_one(
    demo: Demo, method: str, target: str
) -> None:
    bearer = [("Authorization", f"Bearer {demo['enterprise'].api_key}")]
    decoded = unquote_to_bytes(target).decode("latin-1")
    with demo.client() as client:
        held = client.exact(method, target, bearer, server_may_refuse=True)
        answer = client.exact(method, target, server_may_refuse=True)
    # POST to the keys wants a session, so it is 401 with a key (D11).
    assert held.by_the_server or held.status not in (401, 403, 429) or decoded.rstrip("/") == KEYS
    if not answer.by_the_server and answer.status != 401:
        assert decoded in PUBLIC and "%2f" not in target.lower(), answer
        assert answer.status == (200 if method in ("GET", "HEAD") else 405) or method == "OPTIONS"
