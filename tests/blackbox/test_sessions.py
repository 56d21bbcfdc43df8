"""The session cookie, and the pages of others that would like to use it (D9, D11, R5)."""

from __future__ import annotations

import json

from .demo import KEYS, Answer, Client, Demo, HeaderList, Organization, made_up_key

BODY = json.dumps({"name": "by session"}).encode()
JSON = ("Content-Type", "application/json")


def post(client: Client, headers: HeaderList, body: bytes = BODY) -> Answer:
    return client.exact("POST", KEYS, [JSON, *headers], body)


def cookie(org: Organization) -> tuple[str, str]:
    return ("Cookie", f"__session={org.session_cookie}")


# --- the cookie ---------------------------------------------------------------------------


def test_d11_no_cookie_of_the_name_is_session_required(client: Client, org: Organization) -> None:
    bearer = [("Authorization", f"Bearer {org.api_key}")]
    for value in ("__session=", "__session", "", "other=1", "__Session=1", "_session=1"):
        post(client, [("Cookie", value)]).is_error(401, "SESSION_REQUIRED")
    for headers in ([], bearer):
        post(client, headers).is_error(401, "SESSION_REQUIRED")
    for method, path in (("GET", KEYS), ("GET", f"{KEYS}/x"), ("DELETE", f"{KEYS}/x")):
        client.send(method, path).is_error(401, "MISSING_AUTH")  # D9
        client.exact(method, path, [("Cookie", "__session=")]).is_error(401, "MISSING_AUTH")


def test_d11_a_made_up_or_changed_cookie_is_session_invalid(
    client: Client, org: Organization
) -> None:
    real = org.session_cookie
    forged = [
        *("x", "null", "a.b.c", "...", "x" * 4_000, "%00", '"quoted"', made_up_key()),
        "eyJhbGciOiJub25lIn0.eyJzdWIiOiIxIn0.",  # {"alg":"none"}
        *(real[:-3], real + "x", real * 2, real[: len(real) // 2]),
    ]
    places = range(0, len(real) - 1, max(1, len(real) // 40))  # the last one may hold spare bits
    for place in places:
        other = "A" if real[place] != "A" else "B"
        forged.append(real[:place] + other + real[place + 1 :])
    for value in forged:
        post(client, [("Cookie", f"__session={value}")]).is_error(401, "SESSION_INVALID")
        client.exact("GET", KEYS, [("Cookie", f"__session={value}")]).is_error(
            401, "SESSION_INVALID"
        )
    blank = client.demo.face.by_granian_wsgi
    for odd in (b"\xff\xfe", b"caf\xe9"):
        code = "SESSION_REQUIRED" if blank else "SESSION_INVALID"
        post(client, [("Cookie", b"__session=" + odd)]).is_error(401, code)


def test_d11_two_session_cookies_are_invalid_and_other_cookies_do_not_matter(
    client: Client, demo: Demo
) -> None:
    mine = demo["enterprise"].session_cookie
    other = demo["creator"].session_cookie
    for first, second in ((mine, mine), (mine, other), (mine, "x"), ("x", mine)):
        one_header = [("Cookie", f"__session={first}; __session={second}")]
        two_headers = [("Cookie", f"__session={value}") for value in (first, second)]
        for headers in (one_header, two_headers):
            post(client, headers).is_error(401, "SESSION_INVALID")
            client.exact("GET", KEYS, headers).is_error(401, "SESSION_INVALID")
    real = f"__session={mine}"
    for value in (f"a=b; {real}; c=d", f"{real}; a=b", f"a=b;{real}", f"x__session=1; {real}"):
        post(client, [("Cookie", value)]).is_ok(201)
    post(client, [("Cookie", "a=b"), ("Cookie", real)]).is_ok(201)


def test_a_session_sees_its_own_organization_only(client: Client, demo: Demo) -> None:
    created = client.create(demo["enterprise"])
    other = demo["creator"].session_cookie
    client.get(f"{KEYS}/{created.id}", session=other).is_error(404, "NOT_FOUND")
    client.send("DELETE", f"{KEYS}/{created.id}", session=other).is_error(404, "NOT_FOUND")
    assert client.read(demo["enterprise"], created.id)["isActive"] is True


# --- pages of others (D11, R5) ------------------------------------------------------------


def refused_pages(demo: Demo) -> list[list[tuple[str, str]]]:
    """The headers of pages that are not the console's."""
    port, own = demo.port, ("Origin", demo.base_url)
    origins = [
        *("null", "", "*", "file://", "https://evil.example", f"http://evil.example:{port}"),
        *(f"https://{demo.host}:{port}", f"http://{demo.host}:{port + 1}", f"http://{demo.host}"),
        *(f"{demo.host}:{port}", f"{demo.base_url}.evil.example", f"{demo.base_url}@evil.example"),
        *(f"{demo.base_url}0", f"http://sub.{demo.host}:{port}"),
        f"{demo.base_url}, https://evil.example",
    ]
    foreign = ("Origin", "https://evil.example")
    cross, same = ("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Site", "same-origin")
    spoofed = [("Host", "evil.example"), ("Origin", "http://evil.example")]
    return [
        *([("Origin", origin)] for origin in origins),
        *([own, own], [own, foreign], [foreign, own], [same, foreign], [cross]),
        *([("Sec-Fetch-Site", "same-site")], [cross, same], [same, cross]),
        # Origin is never compared with Host.
        *(spoofed, [*spoofed, ("X-Forwarded-Host", "evil.example"), ("X-Forwarded-Proto", "http")]),
    ]


def test_d11_a_foreign_page_creates_and_revokes_nothing(client: Client, demo: Demo) -> None:
    org = demo["enterprise"]
    victim = client.create(org)
    before = len(client.keys(org))
    for page in refused_pages(demo):
        post(client, [cookie(org), *page]).is_error(403, "CROSS_SITE_REQUEST")
        answer = client.exact("DELETE", f"{KEYS}/{victim.id}", [cookie(org), *page])
        answer.is_error(403, "CROSS_SITE_REQUEST")
    assert len(client.keys(org)) == before
    assert client.read(org, victim.id)["isActive"] is True


def test_d11_the_own_origin_is_welcome(client: Client, demo: Demo) -> None:
    """Where there is an Origin, it decides alone."""
    org = demo["enterprise"]
    own = ("Origin", demo.base_url)
    for page in (
        [own],
        [own, ("Sec-Fetch-Site", "cross-site")],
        [own, ("Host", "anything.example")],
        [("Sec-Fetch-Site", "same-origin")],
        [("Sec-Fetch-Site", "none")],
    ):
        post(client, [cookie(org), *page]).is_ok(201)
        victim = client.create(org)
        client.exact("DELETE", f"{KEYS}/{victim.id}", [cookie(org), *page]).is_ok()


def test_d11_reading_and_keys_are_not_concerned(client: Client, org: Organization) -> None:
    foreign = [("Origin", "https://evil.example"), ("Sec-Fetch-Site", "cross-site")]
    client.exact("GET", KEYS, [cookie(org), *foreign]).is_ok()
    victim = client.create(org)
    bearer = ("Authorization", f"Bearer {org.api_key}")
    client.exact("DELETE", f"{KEYS}/{victim.id}", [bearer, *foreign]).is_ok()
    client.exact("POST", "/api/v1/images", [bearer, *foreign]).is_success()


# --- the type of the body (D11, D17) ------------------------------------------------------


def test_d11_a_delete_needs_a_type_for_its_body_only(client: Client, org: Organization) -> None:
    target = f"{KEYS}/{client.create(org).id}"
    form = ("Content-Type", "application/x-www-form-urlencoded")
    for headers in ([cookie(org)], [cookie(org), form]):
        answer = client.exact("DELETE", target, headers, b"{}")
        answer.is_error(415, "UNSUPPORTED_MEDIA_TYPE")
    client.exact("DELETE", target, [cookie(org)]).is_ok()
