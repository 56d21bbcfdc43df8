"""The session cookie, and the pages of others that would like to use it (D9, D11)."""

from __future__ import annotations

import json

import pytest

from .demo import KEYS, Answer, Client, Demo, HeaderList, Organization, made_up_key

BODY = json.dumps({"name": "by session"}).encode()
JSON = ("Content-Type", "application/json")


def post(client: Client, headers: HeaderList, body: bytes = BODY) -> Answer:
    return client.exact("POST", KEYS, [JSON, *headers], body)


def cookie(org: Organization) -> tuple[str, str]:
    return ("Cookie", f"__session={org.session_cookie}")


# --- the cookie ---------------------------------------------------------------------------


def test_d11_no_cookie_is_session_required(client: Client, org: Organization) -> None:
    post(client, []).is_error(401, "SESSION_REQUIRED")
    with_key = [("Authorization", f"Bearer {org.api_key}")]
    post(client, with_key).is_error(401, "SESSION_REQUIRED")


@pytest.mark.parametrize(
    "value", ["__session=", "__session", "", "other=1", "session=1", "__Session=1", "_session=1"]
)
def test_d11_an_empty_or_other_cookie_counts_as_no_session(client: Client, value: str) -> None:
    post(client, [("Cookie", value)]).is_error(401, "SESSION_REQUIRED")


MADE_UP = [
    "x",
    "null",
    "a.b.c",
    "...",
    "eyJhbGciOiJub25lIn0.eyJzdWIiOiIxIn0.",  # {"alg":"none"}
    "x" * 4_000,
    "%00",
    "../../etc",
    '"quoted"',
    made_up_key(),
]


@pytest.mark.parametrize("value", MADE_UP, ids=range(len(MADE_UP)))
def test_d11_a_made_up_cookie_is_session_invalid(client: Client, value: str) -> None:
    made_up = [("Cookie", f"__session={value}")]
    post(client, made_up).is_error(401, "SESSION_INVALID")
    client.exact("GET", KEYS, made_up).is_error(401, "SESSION_INVALID")


@pytest.mark.parametrize("value", [b"\xff\xfe", b"\xc3\xa9", b"caf\xe9"])
def test_d11_a_cookie_of_odd_bytes_is_session_invalid(client: Client, value: bytes) -> None:
    blank = client.demo.face.by_granian_wsgi
    code = "SESSION_REQUIRED" if blank else "SESSION_INVALID"
    post(client, [("Cookie", b"__session=" + value)]).is_error(401, code)


def test_d11_a_changed_cookie_is_session_invalid(client: Client, org: Organization) -> None:
    real = org.session_cookie
    places = range(0, len(real) - 1, max(1, len(real) // 40))  # the last one may hold spare bits
    for place in places:
        other = "A" if real[place] != "A" else "B"
        forged = real[:place] + other + real[place + 1 :]
        post(client, [("Cookie", f"__session={forged}")]).is_error(401, "SESSION_INVALID")
    for forged in (real[:-3], real + "x", real * 2, real[: len(real) // 2]):
        post(client, [("Cookie", f"__session={forged}")]).is_error(401, "SESSION_INVALID")


def test_d11_two_session_cookies_are_session_invalid(client: Client, demo: Demo) -> None:
    mine = demo["enterprise"].session_cookie
    other = demo["creator"].session_cookie
    for first, second in ((mine, mine), (mine, other), (mine, "x"), ("x", mine)):
        one_header = [("Cookie", f"__session={first}; __session={second}")]
        two_headers = [("Cookie", f"__session={value}") for value in (first, second)]
        for headers in (one_header, two_headers):
            post(client, headers).is_error(401, "SESSION_INVALID")
            client.exact("GET", KEYS, headers).is_error(401, "SESSION_INVALID")


def test_d11_other_cookies_do_not_matter(client: Client, org: Organization) -> None:
    real = f"__session={org.session_cookie}"
    for value in (f"a=b; {real}; c=d", f"{real}; a=b", f"a=b;{real}", f"x__session=1; {real}"):
        post(client, [("Cookie", value)]).is_ok(201)
    post(client, [("Cookie", "a=b"), ("Cookie", real)]).is_ok(201)


def test_d9_no_credential_at_all_is_missing_auth(client: Client, org: Organization) -> None:
    for method, path in (("GET", KEYS), ("GET", f"{KEYS}/x"), ("DELETE", f"{KEYS}/x")):
        client.send(method, path).is_error(401, "MISSING_AUTH")
        empty = [("Cookie", "__session=")]
        client.exact(method, path, empty).is_error(401, "MISSING_AUTH")


def test_d11_session_errors_carry_a_challenge_and_no_store(client: Client) -> None:
    for headers in ([], [("Cookie", "__session=x")]):
        answer = post(client, headers)
        assert answer.status == 401
        assert answer.one("www-authenticate") == "Bearer"
        assert "no-store" in answer.one("cache-control")


def test_a_session_sees_its_own_organization_only(client: Client, demo: Demo) -> None:
    created = client.create(demo["enterprise"])
    other = demo["creator"].session_cookie
    client.get(f"{KEYS}/{created.id}", session=other).is_error(404, "NOT_FOUND")
    client.send("DELETE", f"{KEYS}/{created.id}", session=other).is_error(404, "NOT_FOUND")
    assert client.read(demo["enterprise"], created.id)["isActive"] is True


# --- pages of others (D11, R5) ------------------------------------------------------------


def refused_origins(demo: Demo) -> list[str]:
    port = demo.port
    return [
        "null",
        "",
        "https://evil.example",
        f"http://evil.example:{port}",
        f"https://{demo.host}:{port}",
        f"http://{demo.host}:{port + 1}",
        f"http://{demo.host}",
        f"{demo.host}:{port}",
        f"{demo.base_url}.evil.example",
        f"{demo.base_url}@evil.example",
        f"{demo.base_url}0",
        f"http://sub.{demo.host}:{port}",
        f"{demo.base_url}, https://evil.example",
        f"{demo.base_url} https://evil.example",
        "*",
        "file://",
    ]


def test_d11_a_foreign_origin_creates_nothing(client: Client, demo: Demo) -> None:
    org = demo["enterprise"]
    before = len(client.keys(org))
    for origin in refused_origins(demo):
        answer = post(client, [cookie(org), ("Origin", origin)])
        answer.is_error(403, "CROSS_SITE_REQUEST")
    assert len(client.keys(org)) == before


def test_d11_a_foreign_origin_revokes_nothing(client: Client, demo: Demo) -> None:
    org = demo["enterprise"]
    victim = client.create(org)
    for origin in refused_origins(demo):
        headers = [cookie(org), ("Origin", origin)]
        answer = client.exact("DELETE", f"{KEYS}/{victim.id}", headers)
        answer.is_error(403, "CROSS_SITE_REQUEST")
    assert client.read(org, victim.id)["isActive"] is True


def test_d11_origin_is_never_compared_with_host(client: Client, org: Organization) -> None:
    for host in ("evil.example", "evil.example:80"):
        headers = [("Host", host), cookie(org), ("Origin", f"http://{host}")]
        post(client, headers).is_error(403, "CROSS_SITE_REQUEST")
        forwarded = [("X-Forwarded-Host", host), ("X-Forwarded-Proto", "http")]
        post(client, headers + forwarded).is_error(403, "CROSS_SITE_REQUEST")


def test_d11_the_own_origin_is_welcome(client: Client, demo: Demo) -> None:
    org = demo["enterprise"]
    own = ("Origin", demo.base_url)
    post(client, [cookie(org), own]).is_ok(201)
    post(client, [("Host", "anything.example"), cookie(org), own]).is_ok(201)
    victim = client.create(org)
    client.exact("DELETE", f"{KEYS}/{victim.id}", [cookie(org), own]).is_ok()


def test_d11_two_origin_headers(client: Client, demo: Demo) -> None:
    org = demo["enterprise"]
    own, foreign = ("Origin", demo.base_url), ("Origin", "https://evil.example")
    for pair in ([own, own], [own, foreign], [foreign, own]):
        post(client, [cookie(org), *pair]).is_error(403, "CROSS_SITE_REQUEST")


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_d11_sec_fetch_site_refused(client: Client, demo: Demo, site: str) -> None:
    org = demo["enterprise"]
    fetch = ("Sec-Fetch-Site", site)
    post(client, [cookie(org), fetch]).is_error(403, "CROSS_SITE_REQUEST")
    own = ("Sec-Fetch-Site", "same-origin")
    post(client, [cookie(org), fetch, own]).is_error(403, "CROSS_SITE_REQUEST")
    post(client, [cookie(org), own, fetch]).is_error(403, "CROSS_SITE_REQUEST")
    # Where there is an Origin, it decides alone.
    post(client, [cookie(org), fetch, ("Origin", demo.base_url)]).is_ok(201)
    victim = client.create(org)
    answer = client.exact("DELETE", f"{KEYS}/{victim.id}", [cookie(org), fetch])
    answer.is_error(403, "CROSS_SITE_REQUEST")
    assert client.read(org, victim.id)["isActive"] is True


@pytest.mark.parametrize("site", ["same-origin", "none"])
def test_d11_sec_fetch_site_accepted(client: Client, demo: Demo, site: str) -> None:
    org = demo["enterprise"]
    post(client, [cookie(org), ("Sec-Fetch-Site", site)]).is_ok(201)
    answer = post(
        client, [cookie(org), ("Sec-Fetch-Site", site), ("Origin", "https://evil.example")]
    )
    answer.is_error(403, "CROSS_SITE_REQUEST")


def test_d11_reading_and_keys_are_not_concerned(client: Client, org: Organization) -> None:
    foreign = [("Origin", "https://evil.example"), ("Sec-Fetch-Site", "cross-site")]
    client.exact("GET", KEYS, [cookie(org), *foreign]).is_ok()
    victim = client.create(org)
    bearer = ("Authorization", f"Bearer {org.api_key}")
    client.exact("DELETE", f"{KEYS}/{victim.id}", [bearer, *foreign]).is_ok()
    client.exact("POST", "/api/v1/images", [bearer, *foreign]).is_success()


# --- the type of the body (D11, D17) ------------------------------------------------------


@pytest.mark.parametrize(
    "kind",
    [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "text/json",
        "application/jsonp",
        "application/json-patch+json",
        "application/xml",
        "application",
        "json",
        "",
        "text/plain; application/json",
        "text/plain, application/json",
        "*/*",
    ],
)
def test_d11_another_type_is_415(client: Client, org: Organization, kind: str) -> None:
    answer = client.exact("POST", KEYS, [cookie(org), ("Content-Type", kind)], BODY)
    answer.is_error(415, "UNSUPPORTED_MEDIA_TYPE")


def test_d11_no_type_is_415(client: Client, org: Organization) -> None:
    client.exact("POST", KEYS, [cookie(org)], BODY).is_error(415, "UNSUPPORTED_MEDIA_TYPE")


@pytest.mark.parametrize(
    "kind",
    [
        "application/json",
        "application/json; charset=utf-8",
        "application/json;charset=UTF-8",
        "APPLICATION/JSON",
        "Application/Json ; charset=utf-8",
    ],
)
def test_d11_spellings_of_json(client: Client, org: Organization, kind: str) -> None:
    client.exact("POST", KEYS, [cookie(org), ("Content-Type", kind)], BODY).is_ok(201)


def test_d11_a_delete_needs_a_type_for_its_body_only(client: Client, org: Organization) -> None:
    target = f"{KEYS}/{client.create(org).id}"
    form = ("Content-Type", "application/x-www-form-urlencoded")
    for headers in ([cookie(org)], [cookie(org), form]):
        answer = client.exact("DELETE", target, headers, b"{}")
        answer.is_error(415, "UNSUPPORTED_MEDIA_TYPE")
    client.exact("DELETE", target, [cookie(org)]).is_ok()
