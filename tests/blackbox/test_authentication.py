"""The Authorization header alone authenticates a request (D1, D18, D35)."""

from __future__ import annotations

import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .demo import (
    BASE62,
    FULL_KEY,
    KEYS,
    MODELS,
    STATUS,
    Client,
    Demo,
    Organization,
    checksum,
    made_up_key,
    numbered,
    random_text,
)

FUZZ = settings(
    max_examples=80,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


# --- the format of a key (D1, D2) ---------------------------------------------------------


def test_d1_keys_have_the_documented_form_and_checksum(client: Client, demo: Demo) -> None:
    keys = [org.api_key for org in demo.organizations.values()]
    keys += [client.create(demo["enterprise"]).key for _ in range(20)]
    for key in keys:
        assert FULL_KEY.fullmatch(key), key
        assert key[-6:] == checksum(key[:-6])
    assert len(set(keys)) == len(keys)
    assert len({key.split("_")[2] for key in keys}) == len(keys)


def test_d1_a_typo_anywhere_is_invalid_format(client: Client, org: Organization) -> None:
    key = client.create(org).key
    for place, letter in enumerate(key):
        other = BASE62[(BASE62.find(letter) + 1) % 62]
        typo = key[:place] + other + key[place + 1 :]
        client.get(MODELS, key=typo).is_error(401, "INVALID_FORMAT")
    client.get(MODELS, key=key).is_ok()


def test_d1_two_neighbours_swapped_are_invalid_format(client: Client, org: Organization) -> None:
    key = client.create(org).key
    for place in range(len(key) - 1):
        left, right = key[place], key[place + 1]
        if left != right:
            typo = key[:place] + right + left + key[place + 2 :]
            client.get(MODELS, key=typo).is_error(401, "INVALID_FORMAT")


def test_d3_a_made_up_key_with_a_right_checksum_is_not_found(client: Client) -> None:
    for _ in range(10):
        client.get(MODELS, key=made_up_key()).is_error(401, "KEY_NOT_FOUND")


def test_d3_unknown_prefix_and_wrong_secret_answer_alike(client: Client, org: Organization) -> None:
    prefix = client.create(org).key.split("_")[2]
    known = client.get(MODELS, key=made_up_key(prefix=prefix)).is_error(401, "KEY_NOT_FOUND")
    unknown = client.get(MODELS, key=made_up_key()).is_error(401, "KEY_NOT_FOUND")
    assert known.body == unknown.body
    varying = {"date", "x-ratelimit-remaining", "x-ratelimit-reset"}
    assert [h for h in known.headers if h[0] not in varying] == [
        h for h in unknown.headers if h[0] not in varying
    ]


def test_d3_a_wrong_secret_does_not_reveal_a_revoked_key(client: Client, org: Organization) -> None:
    created = client.create(org)
    client.revoke(org, created.id)
    guess = made_up_key(prefix=created.key.split("_")[2])
    client.get(MODELS, key=guess).is_error(401, "KEY_NOT_FOUND")


DASHED = made_up_key()[:-6].replace("_", "-")
NOT_QUITE = [
    made_up_key(brand="acmf"),
    made_up_key(brand="ACME"),
    made_up_key(environment="test"),
    made_up_key(environment="LIVE"),
    made_up_key(prefix=random_text(7)),
    made_up_key(prefix=random_text(9)),
    made_up_key(prefix=""),
    made_up_key(prefix="abc-defg"),
    made_up_key(random=random_text(36)),
    made_up_key(random=random_text(38)),
    made_up_key(random=random_text(36) + "-"),
    made_up_key(random=""),
    made_up_key()[:-1],
    made_up_key() + "0",
    DASHED + checksum(DASHED),
    made_up_key()[:15],
    made_up_key()[:15] + "...",
    "acme_live__",
    "___",
    "null",
    "undefined",
    "<API_KEY>",
]


@pytest.mark.parametrize("key", NOT_QUITE, ids=range(len(NOT_QUITE)))
def test_d1_text_that_resembles_a_key_is_an_invalid_format(client: Client, key: str) -> None:
    client.get(MODELS, key=key).is_error(401, "INVALID_FORMAT")


# --- the header (D18) ---------------------------------------------------------------------


def test_d18_no_header_is_missing_auth(client: Client) -> None:
    answer = client.get(MODELS).is_error(401, "MISSING_AUTH")
    assert "error=" not in answer.one("www-authenticate")  # RFC 6750 3.1


ACCEPTED = [
    b"Bearer %s",
    b"bearer %s",
    b"BEARER %s",
    b"bEaReR %s",
    b"Bearer  %s",
    b"Bearer          %s",
    b"  Bearer %s",  # white space around a value is not part of it: RFC 9110 5.5
]


@pytest.mark.parametrize("form", ACCEPTED, ids=numbered(ACCEPTED))
def test_d18_accepted_spellings(client: Client, org: Organization, form: bytes) -> None:
    value = form % org.api_key.encode()
    client.exact("GET", MODELS, [("Authorization", value)]).is_ok()


@pytest.mark.parametrize("name", ["authorization", "AUTHORIZATION", "aUtHoRiZaTiOn"])
def test_d18_the_name_of_the_header_has_no_case(
    client: Client, org: Organization, name: str
) -> None:
    client.exact("GET", MODELS, [(name, f"Bearer {org.api_key}")]).is_ok()
    client.exact("GET", MODELS, [(name, "Bearer x")]).is_error(401, "INVALID_FORMAT")


REFUSED = [
    b"",
    b"   ",
    b"Bearer",
    b"Bearer ",
    b"Bearer    ",
    b"%s",
    b"Bearer%s",
    b"Bearer\t%s",
    b"Bearer \t%s",
    b"Bearer\t %s",
    b"Bearer: %s",
    b"Bearer=%s",
    b"Bearer,%s",
    b"Bearer\xa0%s",
    b"Bearer\xc2\xa0%s",
    b"Bearer \xc2\xa0%s",
    b"Token %s",
    b"ApiKey %s",
    b"Basic %s",
    b"Basic dXNlcjpwYXNz",
    b"Digest username=%s",
    b"Bearers %s",
    b"Bearer Bearer %s",
    b'Bearer "%s"',
    b"Bearer '%s'",
    b"Bearer <%s>",
    b"Bearer %s,",
    b"Bearer %s;",
    b"Bearer %s x",
    b"Bearer x %s",
    b"Bearer %s %s",
    b"Bearer %s,Bearer %s",
    b"Bearer %s, Bearer %s",
    b"Bearer key=%s",
    b"Bearer %s=",
    b"Bearer %s\xe9",
    b"Bearer \xe9%s",
    b"Bearer %s\xff\xfe",
    b"Bearer %s\xef\xbb\xbf",
    b"B\xc3\xa9arer %s",
    b"\xc2\xa0Bearer %s",
    b"\xff",
    b"Bearer \xd9\xa1\xd9\xa2",
]


@pytest.mark.parametrize("form", REFUSED, ids=numbered(REFUSED))
def test_d18_refused_spellings(client: Client, org: Organization, form: bytes) -> None:
    value = form.replace(b"%s", org.api_key.encode())
    answer = client.exact("GET", MODELS, [("Authorization", value)])
    answer.is_error(401, "INVALID_FORMAT")
    assert 'error="invalid_token"' in answer.one("www-authenticate")


def test_d18_letters_that_fold_to_ascii_are_not_ascii(client: Client, org: Organization) -> None:
    wide = org.api_key.translate({ord(c): ord(c) + 0xFEE0 for c in BASE62})
    kelvin = org.api_key.replace("_live_", "_l\u0131ve_")
    for key in (wide, kelvin):
        value = b"Bearer " + key.encode()
        client.exact("GET", MODELS, [("Authorization", value)]).is_error(401, "INVALID_FORMAT")


@pytest.mark.parametrize("length", [257, 300, 1_000, 8_000])
def test_d18_over_256_bytes(client: Client, org: Organization, length: int) -> None:
    key = org.api_key
    padded = "Bearer" + " " * (length - 6 - len(key)) + key
    assert len(padded) == length
    client.exact("GET", MODELS, [("Authorization", padded)]).is_error(401, "INVALID_FORMAT")
    long = ("Bearer " + key * length)[:length]
    client.exact("GET", MODELS, [("Authorization", long)]).is_error(401, "INVALID_FORMAT")


def test_d18_256_bytes_are_not_over_256(client: Client, org: Organization) -> None:
    padded = "Bearer" + " " * (250 - len(org.api_key)) + org.api_key
    assert len(padded) == 256
    client.exact("GET", MODELS, [("Authorization", padded)]).is_ok()


PAIRS = [
    ("Bearer %s", "Bearer %s"),
    ("Bearer %s", ""),
    ("", "Bearer %s"),
    ("", ""),
    ("Bearer %s", "Bearer x"),
    ("Bearer x", "Bearer %s"),
    ("Basic dXNlcjpwYXNz", "Bearer %s"),
    ("Bearer %s", "Basic dXNlcjpwYXNz"),
    ("Bearer", "%s"),
]


@pytest.mark.parametrize(("first", "second"), PAIRS)
@pytest.mark.parametrize("names", [("Authorization",) * 2, ("authorization", "AUTHORIZATION")])
def test_d18_two_headers(
    client: Client, org: Organization, names: tuple[str, str], first: str, second: str
) -> None:
    values = [form.replace("%s", org.api_key) for form in (first, second)]
    headers = list(zip(names, values, strict=True))
    client.exact("GET", MODELS, headers).is_error(401, "INVALID_FORMAT")
    apart = [headers[0], ("X-Between", "1"), headers[1]]
    client.exact("GET", MODELS, apart).is_error(401, "INVALID_FORMAT")


def test_d18_a_folded_header_is_never_a_500(client: Client, org: Organization) -> None:
    folded = f"Bearer\r\n {org.api_key}"
    answer = client.exact("GET", MODELS, [("Authorization", folded)], server_may_refuse=True)
    assert answer.status in (200, 400, 401)  # RFC 9112 5.2: refused, or read as spaces


# --- nowhere else (D35) -------------------------------------------------------------------


@pytest.mark.parametrize("name", ["api_key", "apikey", "access_token", "key", "authorization"])
def test_d35_never_from_the_query(client: Client, org: Organization, name: str) -> None:
    target = f"{MODELS}?{name}={org.api_key}"
    client.exact("GET", target).is_error(401, "MISSING_AUTH")


@pytest.mark.parametrize(
    "name",
    ["X-API-Key", "X-Authorization", "Proxy-Authorization", "Api-Key", "X-Forwarded-Authorization"],
)
def test_d35_never_from_another_header(client: Client, org: Organization, name: str) -> None:
    for value in (org.api_key, f"Bearer {org.api_key}"):
        client.exact("GET", MODELS, [(name, value)]).is_error(401, "MISSING_AUTH")


def test_d35_never_from_a_body(client: Client, org: Organization) -> None:
    body = {"access_token": org.api_key, "api_key": org.api_key}
    client.send("POST", "/api/v1/images", json_body=body).is_error(401, "MISSING_AUTH")
    form = f"access_token={org.api_key}".encode()
    headers = [("Content-Type", "application/x-www-form-urlencoded")]
    answer = client.exact("POST", "/api/v1/images", headers, form)
    answer.is_error(401, "MISSING_AUTH")


@pytest.mark.parametrize("name", ["__session", "api_key", "Authorization"])
def test_d35_never_from_a_cookie(client: Client, org: Organization, name: str) -> None:
    headers = [("Cookie", f"{name}={org.api_key}")]
    client.exact("GET", MODELS, headers).is_error(401, "MISSING_AUTH")


@pytest.mark.parametrize(
    "path", [MODELS, "/api/v1/jobs", "/api/v1/account", STATUS, "/api/v1/nope", "/"]
)
def test_a_session_opens_the_key_operations_only(
    client: Client, org: Organization, path: str
) -> None:
    client.get(path, session=org.session_cookie).is_error(401, "MISSING_AUTH")


def test_d9_a_header_decides_alone(client: Client, org: Organization) -> None:
    session = org.session_cookie
    client.send("GET", KEYS, key="x", session=session).is_error(401, "INVALID_FORMAT")
    client.send("GET", KEYS, key=made_up_key(), session=session).is_error(401, "KEY_NOT_FOUND")
    revoked = client.create(org)
    client.revoke(org, revoked.id)
    client.send("GET", KEYS, key=revoked.key, session=session).is_error(401, "KEY_REVOKED")
    narrow = client.create(org, scopes=["upload:write"])
    answer = client.send("GET", KEYS, key=narrow.key, session=session)
    answer.is_error(403, "INSUFFICIENT_SCOPE")
    blank = [("Authorization", ""), ("Cookie", f"__session={session}")]
    client.exact("GET", KEYS, blank).is_error(401, "INVALID_FORMAT")
    client.exact("DELETE", f"{KEYS}/{narrow.id}", blank).is_error(401, "INVALID_FORMAT")


def test_d9_a_key_wins_over_another_organizations_session(client: Client, demo: Demo) -> None:
    mine = client.create(demo["enterprise"])
    answer = client.send("GET", KEYS, key=mine.key, session=demo["creator"].session_cookie)
    assert mine.id in {entry["id"] for entry in answer.is_ok().json()["data"]}


# --- any bytes at all ---------------------------------------------------------------------

# what an HTTP/1.1 field value may hold (RFC 9110 5.5): visible ASCII, space, tab, obs-text
FIELD_BYTES = bytes([9, *range(0x20, 0x7F), *range(0x80, 0x100)])
field_values = st.lists(st.sampled_from(list(FIELD_BYTES)), max_size=300).map(bytes)
PATTERN = made_up_key(prefix="fuzzfuzz", random="f" * 37)


@st.composite
def nearly_right(draw: st.DrawFn) -> bytes:
    """`Bearer <key>` with a few bytes cut, doubled or replaced."""
    value = bytearray(b"Bearer " + PATTERN.encode())
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(value) - 1))
        piece = bytes(draw(st.lists(st.sampled_from(list(FIELD_BYTES)), max_size=3)))
        value[place : place + draw(st.integers(0, 3))] = piece
    return bytes(value)


@FUZZ
@given(value=st.one_of(field_values, nearly_right()))
def test_d18_any_header_value_is_refused_with_the_specified_code(demo: Demo, value: bytes) -> None:
    with demo.client() as client:
        answer = client.exact("GET", MODELS, [("Authorization", value)])
        assert answer.status == 401
        well_formed = re.fullmatch(rb"(?i:bearer) +%s" % PATTERN.encode(), value.strip(b" \t"))
        assert answer.code == ("KEY_NOT_FOUND" if well_formed else "INVALID_FORMAT")
