"""The Authorization header alone authenticates a request (D1, D18, D35)."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from .demo import (
    BASE62,
    BLINK,
    FULL_KEY,
    FUZZ,
    KEYS,
    MODELS,
    Client,
    Demo,
    Organization,
    checksum,
    made_up_key,
)

# --- the format of a key (D1, D2) ---------------------------------------------------------


def test_d1_keys_have_the_documented_form_and_checksum(client: Client, demo: Demo) -> None:
    keys = [org.api_key for org in demo.organizations.values()]
    keys += [client.create(demo["enterprise"]).key for _ in range(20)]
    for key in keys:
        assert FULL_KEY.fullmatch(key), key
        assert key[-6:] == checksum(key[:-6])
    assert len({key.split("_")[2] for key in keys}) == len(keys)


def test_d1_a_typo_anywhere_is_invalid_format(client: Client, org: Organization) -> None:
    """Another character, or two neighbours swapped."""
    key = client.create(org).key
    for place, letter in enumerate(key):
        other = BASE62[(BASE62.find(letter) + 1) % 62]
        typos = {key[:place] + other + key[place + 1 :]}
        typos.add(key[:place] + key[place + 1 : place + 2] + letter + key[place + 2 :])
        for typo in typos - {key}:
            client.get(MODELS, key=typo).is_error(401, "INVALID_FORMAT")
    client.get(MODELS, key=key).is_ok()


def test_d3_unknown_prefix_and_wrong_secret_answer_alike(client: Client, org: Organization) -> None:
    """Whatever the state of the key whose prefix it is."""
    live, revoked, narrow = (client.create(org, scopes=[s]) for s in ("*", "*", "upload:write"))
    client.revoke(org, revoked.id)
    expired = client.create(org, expiresInDays=BLINK)
    varying = {"date", "x-ratelimit-remaining", "x-ratelimit-reset"}
    unknown = client.get(MODELS, key=made_up_key()).is_error(401, "KEY_NOT_FOUND")
    for created in (live, revoked, expired, narrow):
        guess = made_up_key(prefix=created.key.split("_")[2])
        known = client.get(MODELS, key=guess)
        assert known.body == unknown.body
        assert [h for h in known.headers if h[0] not in varying] == [
            h for h in unknown.headers if h[0] not in varying
        ]


# --- the header (D18): `test_alike` has the refused forms, under every server ---------------


def test_d18_accepted_spellings(client: Client, org: Organization) -> None:
    """Up to 256 bytes. White space around a value is not part of it: RFC 9110 5.5."""
    longest = "Bearer" + " " * (250 - len(org.api_key))
    for start in ("Bearer ", "bearer ", "BEARER ", "bEaReR ", "Bearer    ", "  Bearer ", longest):
        for name in ("Authorization", "AUTHORIZATION", "aUtHoRiZaTiOn"):
            client.exact("GET", MODELS, [(name, start + org.api_key)]).is_ok()
    folded = f"Bearer\r\n {org.api_key}"
    answer = client.exact("GET", MODELS, [("Authorization", folded)], server_may_refuse=True)
    assert answer.status in (200, 400, 401)  # RFC 9112 5.2: refused, or read as spaces


def test_d35_a_key_elsewhere_is_not_read(client: Client, org: Organization) -> None:
    """Never from the query, another header, a cookie or a body."""
    key = org.api_key
    for name in ("api_key", "apikey", "access_token", "key", "authorization"):
        client.exact("GET", f"{MODELS}?{name}={key}").is_error(401, "MISSING_AUTH")
    for name in ("X-API-Key", "X-Authorization", "Proxy-Authorization", "Api-Key", "Cookie"):
        for value in (key, f"Bearer {key}", f"__session={key}", f"Authorization={key}"):
            client.exact("GET", MODELS, [(name, value)]).is_error(401, "MISSING_AUTH")
    client.send("POST", "/api/v1/images", json_body={"api_key": key}).is_error(401, "MISSING_AUTH")
    form = [("Content-Type", "application/x-www-form-urlencoded")]
    answer = client.exact("POST", "/api/v1/images", form, f"access_token={key}".encode())
    answer.is_error(401, "MISSING_AUTH")


def test_d9_a_header_decides_alone(client: Client, org: Organization, demo: Demo) -> None:
    session = org.session_cookie
    revoked, narrow = client.create(org), client.create(org, scopes=["upload:write"])
    client.revoke(org, revoked.id)
    for key, status, code in (
        ("x", 401, "INVALID_FORMAT"),
        (made_up_key(), 401, "KEY_NOT_FOUND"),
        (revoked.key, 401, "KEY_REVOKED"),
        (narrow.key, 403, "INSUFFICIENT_SCOPE"),
    ):
        client.send("GET", KEYS, key=key, session=session).is_error(status, code)
    blank = [("Authorization", ""), ("Cookie", f"__session={session}")]
    client.exact("GET", KEYS, blank).is_error(401, "INVALID_FORMAT")
    client.exact("DELETE", f"{KEYS}/{narrow.id}", blank).is_error(401, "INVALID_FORMAT")
    other = demo["creator"].session_cookie
    answer = client.send("GET", KEYS, key=org.api_key, session=other)
    assert narrow.id in {entry["id"] for entry in answer.is_ok().json()["data"]}


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
