"""Valid and invalid bodies of a key creation (D7, D8, D16, D17)."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .demo import KEYS, Answer, Client, Demo, Organization, chunked, numbered, wire

FUZZ = settings(
    max_examples=80,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
LIMIT = 64 * 1024


def post(client: Client, org: Organization, text: bytes | str) -> Answer:
    content = text.encode() if isinstance(text, str) else text
    return client.send("POST", KEYS, session=org.session_cookie, content=content)


def refused(answer: Answer) -> list[str]:
    """The fields that a validation error names."""
    answer.is_error(400, "VALIDATION_ERROR")
    return [detail["field"] for detail in answer.json()["details"]]


# --- name (D8) ----------------------------------------------------------------------------

GOOD_NAMES = [
    "x",
    "x" * 100,
    " " * 50 + "x" * 100 + " " * 50,
    "two words",
    "\u00e9\u00fc\u00df \u4e2d\u6587 \u0639\u0631\u0628\u064a",
    "\U0001f600" * 100,
    "e\u0301",
    "<script>alert(1)</script>",
    "'; DROP TABLE keys; --",
    'quote " backslash \\ slash /',
    "${jndi:x} {{7*7}} %s %n",
    "null",
    "\ufffd",
    "\u0661",
]
BAD_NAMES: list[Any] = [
    "",
    " ",
    "   ",
    "x" * 101,
    "\U0001f600" * 101,
    "a\nb",
    "a\rb",
    "a\tb",
    "a\x00b",
    "a\x1bb",
    "a\x7fb",
    "a\x85b",
    "a\x9fb",
    "a\u202eb",
    "a\u202ab",
    "a\u2066b",
    "a\u2069b",
    "a\u200eb",
    "a\u200fb",
    "a\u061cb",
    "a\ud800b",
    "a\udfffb",
    "\udc00\ud800",
    None,
    True,
    0,
    1,
    1.5,
    [],
    ["x"],
    {},
    {"name": "x"},
]


@pytest.mark.parametrize("name", GOOD_NAMES, ids=numbered(GOOD_NAMES))
def test_d8_good_names_are_kept_trimmed(client: Client, org: Organization, name: str) -> None:
    for text in (json.dumps({"name": name}), json.dumps({"name": name}, ensure_ascii=False)):
        created = post(client, org, text).is_ok(201).json()
        assert client.read(org, created["id"])["name"] == name.strip()


@pytest.mark.parametrize("name", BAD_NAMES, ids=numbered(BAD_NAMES))
def test_d8_bad_names(client: Client, org: Organization, name: Any) -> None:
    assert refused(post(client, org, json.dumps({"name": name}))) == ["name"]


def test_d8_a_name_is_required(client: Client, org: Organization) -> None:
    for body in ({}, {"scopes": ["*"]}, {"expiresInDays": 1}):
        assert refused(post(client, org, json.dumps(body))) == ["name"]


# --- scopes (D8) --------------------------------------------------------------------------

BAD_SCOPES: list[Any] = [
    None,
    "*",
    "models:read",
    True,
    1,
    {},
    {"*": True},
    [],
    [None],
    [1],
    [True],
    [["*"]],
    [{}],
    [""],
    [" "],
    ["**"],
    ["*:*"],
    ["*:read"],
    ["models"],
    ["models:"],
    [":read"],
    ["models:fly"],
    ["models:read:x"],
    ["MODELS:READ"],
    ["models:Read"],
    [" models:read"],
    ["models:read "],
    ["models:read\n"],
    ["models:read,jobs:read"],
    ["models:read jobs:read"],
    ["uploads:write"],
    ["admin:*"],
    ["api-keys:write"],
    ["*", "nope:read"],
    ["models:read", 1],
    ["\ud800"],
    ["\uff4dodels:read"],
    ["x" * 10_000],
    [f"nope{n}:read" for n in range(51)],
    ["models:read"] * 51,
]


@pytest.mark.parametrize("scopes", BAD_SCOPES, ids=numbered(BAD_SCOPES))
def test_d8_bad_scopes(client: Client, org: Organization, scopes: Any) -> None:
    fields = refused(post(client, org, json.dumps({"name": "x", "scopes": scopes})))
    assert fields and all(field.split(".")[0] == "scopes" for field in fields)


def test_d8_unknown_scopes_are_refused_by_name(client: Client, org: Organization) -> None:
    body = {"name": "x", "scopes": ["models:read", "models:fly", "jobs:read"]}
    answer = post(client, org, json.dumps(body)).is_error(400, "VALIDATION_ERROR")
    (detail,) = answer.json()["details"]
    assert detail["field"] == "scopes"
    assert re.findall(r"'(.*?)'", detail["message"]) == ["models:fly"]
    assert "Use some of *, " in detail["message"]


def test_d16_a_field_is_a_dotted_path(client: Client, org: Organization) -> None:
    body = {"name": "x", "scopes": ["models:read", 1, None]}
    assert refused(post(client, org, json.dumps(body))) == ["scopes.1", "scopes.2"]


# --- expiresInDays (D7) -------------------------------------------------------------------

BAD_DAYS = [
    "0",
    "0.0",
    "-0",
    "-0.0",
    "-1",
    "-1e-9",
    "36501",
    "36500.001",
    "36500.00000001",
    "1e5",
    "1e308",
    "1e309",
    "-1e309",
    "1e-400",  # is 0 once it is a number
    "1e-300",
    "0.0006944",  # less than a minute
    "1" * 400,
    "1" * 5_000,
    "-" + "1" * 5_000,
    "1" * 5_000 + ".5",
    "true",
    "false",
    '"30"',
    '""',
    '"null"',
    "[]",
    "[30]",
    "{}",
]


@pytest.mark.parametrize("days", BAD_DAYS, ids=numbered(BAD_DAYS))
def test_d7_bad_days(client: Client, org: Organization, days: str) -> None:
    fields = refused(post(client, org, f'{{"name": "x", "expiresInDays": {days}}}'))
    unreadable = len(days) > 4_300 and "." not in days  # Such a whole number, Python does not read.
    assert fields == ([""] if unreadable else ["expiresInDays"])


@pytest.mark.parametrize("days", ["NaN", "Infinity", "-Infinity", "nan", "0x1", "01", "+1", ".5"])
def test_d7_expires_in_days_that_is_no_json_number_is_refused(
    client: Client, org: Organization, days: str
) -> None:
    assert refused(post(client, org, f'{{"name": "x", "expiresInDays": {days}}}')) == [""]


@pytest.mark.parametrize("days", ["null", "1", "1.0", "1e0", "0.5", "36500", "36500.0", "3.65e4"])
def test_d7_good_days(client: Client, org: Organization, days: str) -> None:
    post(client, org, f'{{"name": "x", "expiresInDays": {days}}}').is_ok(201)


# --- unknown and repeated fields (D8, D17) ------------------------------------------------


UNKNOWN_FIELDS = [
    "expiresIndays",
    "expires_in_days",
    "expiresInDay",
    "Name",
    "scope",
    "id",
    "key",
    "isActive",
    "organizationId",
    "requestCount",
    "__proto__",
    "",
    " name",
    "x" * 1_000,
]


@pytest.mark.parametrize("field", UNKNOWN_FIELDS, ids=numbered(UNKNOWN_FIELDS))
def test_d8_unknown_fields_are_refused_by_name(
    client: Client, org: Organization, field: str
) -> None:
    for value in (30, None, "x"):
        wrong = refused(post(client, org, json.dumps({"name": "x", field: value})))
        assert wrong == [field[:40]]  # A longer name may be a secret in the wrong place.


def test_a_field_that_no_text_can_hold(client: Client, org: Organization) -> None:
    """A lone surrogate cannot be sent back as UTF-8: refused all the same, and in UTF-8."""
    refused(post(client, org, '{"name": "x", "\\ud800": 1}'))
    refused(post(client, org, '{"name": "x", "scopes": ["\\ud800:read"]}'))
    refused(post(client, org, '{"name": "x", "scopes": [{"\\udfff": 1}]}'))


REPEATED = [
    '{"name": "a", "name": "b"}',
    '{"name": "a", "name": "a"}',
    '{"name": "a", "n\\u0061me": "a"}',
    '{"name": "a", "expiresInDays": 1, "expiresInDays": null}',
    '{"name": "a", "scopes": ["models:read"], "scopes": ["*"]}',
    '{"name": "a", "x": {"y": 1, "y": 2}}',
    '{"name": "a", "scopes": [{"y": 1, "y": 2}]}',
]


@pytest.mark.parametrize("text", REPEATED, ids=numbered(REPEATED))
def test_d17_repeated_names_are_refused(client: Client, org: Organization, text: str) -> None:
    refused(post(client, org, text))


def test_one_error_lists_all_invalid_fields(client: Client, org: Organization) -> None:
    body = {"name": "", "scopes": [], "expiresInDays": 0, "oops": 1}
    fields = refused(post(client, org, json.dumps(body)))
    assert set(fields) == {"name", "scopes", "expiresInDays", "oops"}


def test_a_refused_body_makes_no_key(client: Client, org: Organization) -> None:
    before = [entry["id"] for entry in client.keys(org)]
    for text in ("{}", '{"name": ""}', '{"name": "x", "oops": 1}', '{"name":"a","name":"b"}', "["):
        refused(post(client, org, text))
    assert [entry["id"] for entry in client.keys(org)] == before


# --- not an object, or no JSON at all (D16, D17) ------------------------------------------


@pytest.mark.parametrize("text", ["[]", "null", "true", "1", '"x"', '[{"name": "x"}]', "0.5"])
def test_d16_a_body_that_is_no_object(client: Client, org: Organization, text: str) -> None:
    assert refused(post(client, org, text)) == [""]


MALFORMED = [
    b"",
    b" ",
    b"{",
    b"}",
    b'{"name"}',
    b'{"name": }',
    b'{"name": "x"',
    b'{"name": "x"}}',
    b'{"name": "x"} x',
    b'{"name": "x"}{"name": "y"}',
    b'{"name": "x",}',
    b"{'name': 'x'}",
    b'{name: "x"}',
    b'{"name": "a\nb"}',
    b'{"name": "\\x"}',
    b'{"name": "\\u12"}',
    b'{"name": "x"} // comment',
    b"name=x",
    b"\x00",
    b'\x00{"name": "x"}',
    b'{"name": "x"}\x00',
    b'{"name": "\xff"}',
    b'{"name": "\xc0\xaf"}',
    b'{"name": "\xc3"}',
    b'{"name": "\xed\xa0\x80"}',
    b'{"name": "\xf5\x80\x80\x80"}',
    b'\xff{"name": "x"}',
    '{"name": "x"}'.encode("utf-16"),
    '{"name": "x"}'.encode("utf-16-le"),
    '{"name": "x"}'.encode("utf-32-be"),
    b"\x1f\x8b\x08\x00",
]


@pytest.mark.parametrize("text", MALFORMED, ids=numbered(MALFORMED))
def test_d17_malformed_json(client: Client, org: Organization, text: bytes) -> None:
    assert refused(post(client, org, text)) == [""]


DEEP = [
    "[" * 60_000,
    "[" * 30_000 + "]" * 30_000,
    '{"a":' * 12_000,
    '{"a":' * 10_000 + "1" + "}" * 10_000,
    '{"name": ' + "[" * 30_000 + "]" * 30_000 + "}",
    '{"name": "x", "scopes": ' + "[" * 30_000 + "]" * 30_000 + "}",
    '{"name": "x", "expiresInDays": ' + '{"a":' * 9_000 + "1" + "}" * 9_000 + "}",
    '{"name": "x", "oops": ' + "[" * 900 + "]" * 900 + "}",
]


@pytest.mark.parametrize("text", DEEP, ids=numbered(DEEP))
def test_deep_nesting_is_a_plain_refusal(client: Client, org: Organization, text: str) -> None:
    assert len(text) <= LIMIT
    started = time.monotonic()
    refused(post(client, org, text))
    assert time.monotonic() - started < 30


def test_many_fields_are_a_plain_refusal(client: Client, org: Organization) -> None:
    body = {f"f{n}": 0 for n in range(5_000)}
    refused(post(client, org, json.dumps(body)))
    refused(post(client, org, json.dumps({"name": "x", "scopes": ["x"] * 10_000})))


# --- size (D17) ---------------------------------------------------------------------------


def padded(size: int) -> bytes:
    """A valid body of this many bytes, and of none fewer."""
    return b'{"name": "padded"'.ljust(size - 1) + b"}"


def by_chunks(client: Client, org: Organization, body: bytes, size: int) -> Answer:
    headers = [
        ("Cookie", f"__session={org.session_cookie}"),
        ("Content-Type", "application/json"),
        ("Transfer-Encoding", "chunked"),
    ]
    return client.exact("POST", KEYS, headers, chunked(body, size))


def test_d17_64_kib_are_accepted(client: Client, org: Organization) -> None:
    post(client, org, padded(LIMIT)).is_ok(201)


@pytest.mark.parametrize("size", [LIMIT + 1, LIMIT * 2, 5_000_000])
def test_d17_more_is_413(client: Client, org: Organization, size: int) -> None:
    headers = [
        ("Cookie", f"__session={org.session_cookie}"),
        ("Content-Type", "application/json"),
    ]
    answer = client.exact("POST", KEYS, headers, padded(size))
    answer.is_error(413, "PAYLOAD_TOO_LARGE")


def test_d17_a_413_is_sent_before_the_whole_body_arrives(client: Client, org: Organization) -> None:
    if client.demo.face.by_waitress:
        pytest.skip("its server reads a body before it asks anybody")
    headers = [
        ("Cookie", f"__session={org.session_cookie}"),
        ("Content-Type", "application/json"),
        ("Content-Length", "10000000"),
    ]
    answer = client.exact("POST", KEYS, headers, padded(LIMIT + 1_000))
    answer.is_error(413, "PAYLOAD_TOO_LARGE")


@pytest.mark.parametrize("size", [1, 7, 1_000])
def test_chunked_bodies(client: Client, org: Organization, size: int) -> None:
    by_chunks(client, org, b'{"name": "by chunks"}', size).is_ok(201)
    assert refused(by_chunks(client, org, b'{"name": "by chunks"', size)) == [""]


def test_a_body_that_arrives_in_parts_is_read_whole(client: Client, org: Organization) -> None:
    body = b'{"name": "in parts"}'
    headers = [
        ("Cookie", f"__session={org.session_cookie}"),
        ("Content-Type", "application/json"),
        ("Content-Length", str(len(body))),
    ]
    head = wire("POST", KEYS, headers)
    created = client.raw(head + body[:9], body[9:], method="POST").is_ok(201).json()
    assert client.read(org, created["id"])["name"] == "in parts"


def test_d17_chunked_bodies_have_the_same_limit(client: Client, org: Organization) -> None:
    by_chunks(client, org, padded(LIMIT), 4_096).is_ok(201)
    by_chunks(client, org, padded(LIMIT + 1), 4_096).is_error(413, "PAYLOAD_TOO_LARGE")
    by_chunks(client, org, padded(1_000_000), 50_000).is_error(413, "PAYLOAD_TOO_LARGE")
    by_chunks(client, org, padded(LIMIT + 1), 100).is_error(413, "PAYLOAD_TOO_LARGE")


def test_a_body_of_an_operation_without_one_is_ignored(client: Client, org: Organization) -> None:
    for content in (b"{}", b"not json", b"\xff" * 100):
        headers = [("Authorization", f"Bearer {org.api_key}")]
        client.exact("GET", KEYS, headers, content).is_ok()
        victim = client.create(org)
        headers.append(("Content-Type", "application/json"))
        client.exact("DELETE", f"{KEYS}/{victim.id}", headers, content).is_ok()
        assert client.read(org, victim.id)["isActive"] is False


def test_a_length_that_cannot_be_is_refused(client: Client, org: Organization) -> None:
    base = [
        ("Cookie", f"__session={org.session_cookie}"),
        ("Content-Type", "application/json"),
    ]
    before = len(client.keys(org))
    for lengths in (["-1"], ["x"], ["1", "2"], ["0x10"], ["1e1"]):
        headers = base + [("Content-Length", length) for length in lengths]
        answer = client.exact("POST", KEYS, headers, b'{"name": "x"}', server_may_refuse=True)
        assert answer.status == 400, answer
    assert len(client.keys(org)) == before


# --- any body at all ----------------------------------------------------------------------

good_names = st.sampled_from(GOOD_NAMES) | st.text(
    st.characters(categories=["L", "N", "P", "S"], max_codepoint=0x2000), min_size=1, max_size=100
)
GOOD_SCOPES = ["*", "models:*", "models:read", "jobs:write", "upload:*", "account:read"]
good_scopes = st.lists(st.sampled_from(GOOD_SCOPES), min_size=1, max_size=50)
good_days = st.none() | st.floats(0.001, 36_500) | st.integers(1, 36_500)
bad_days = st.sampled_from([True, "30", [], {}]) | st.floats(max_value=0, allow_infinity=False)
junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=10,
)


@st.composite
def bodies(draw: st.DrawFn) -> tuple[dict[str, Any], set[str]]:
    """A body, and the fields in it that are at fault."""
    body: dict[str, Any] = {}
    faults: set[str] = set()
    pools: list[tuple[str, st.SearchStrategy[Any], st.SearchStrategy[Any]]] = [
        ("name", good_names, st.sampled_from(BAD_NAMES)),
        ("scopes", good_scopes, st.sampled_from(BAD_SCOPES)),
        ("expiresInDays", good_days, bad_days),
    ]
    for field, good, bad in pools:
        match draw(st.sampled_from(["good", "good", "bad", "absent"])):
            case "good":
                body[field] = draw(good)
            case "bad":
                body[field] = draw(bad)
                faults.add(field)
            case _ if field == "name":
                faults.add(field)
    if draw(st.integers(0, 4)) == 0:
        field = draw(st.text("abcxyz", min_size=1, max_size=8))
        body[field] = draw(st.integers())
        faults.add(field)
    return body, faults


@FUZZ
@given(drawn=bodies())
def test_any_object_is_judged_by_its_fields(
    demo: Demo, drawn: tuple[dict[str, Any], set[str]]
) -> None:
    body, faults = drawn
    org = demo["enterprise"]
    with demo.client() as client:
        answer = post(client, org, json.dumps(body))
        if not faults:
            data = client.read(org, answer.is_ok(201).json()["id"])
            assert data["name"] == body["name"].strip()
            assert set(data["scopes"]) == set(body.get("scopes", ["*"]))
            assert (data["expiresAt"] is None) == (body.get("expiresInDays") is None)
        else:
            named = {field.split(".")[0] for field in refused(answer)}
            assert named == faults


def judged(answer: Answer) -> None:
    """Accepted or refused: which of both, only luck knows; the form, `Answer.check` saw to."""
    assert answer.status == 201 or refused(answer)


@FUZZ
@given(value=junk)
def test_any_json_is_created_or_refused_as_specified(demo: Demo, value: Any) -> None:
    with demo.client() as client:
        judged(post(client, demo["enterprise"], json.dumps(value)))
        refused(post(client, demo["enterprise"], json.dumps({"name": "x", "more": value})))


@FUZZ
@given(text=st.binary(max_size=200))
def test_any_bytes_are_created_or_refused_as_specified(demo: Demo, text: bytes) -> None:
    with demo.client() as client:
        judged(post(client, demo["enterprise"], text))
        judged(post(client, demo["enterprise"], b'{"name": "' + text + b'"}'))
