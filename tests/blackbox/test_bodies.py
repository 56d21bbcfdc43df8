"""Valid and invalid bodies of a key creation (D7, D8, D16, D17).

What a name, a scope and a lifetime may be, `tests/core/test_api_keys.py` asks in full.
"""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from .demo import FUZZ, KEYS, Answer, Client, Demo, Organization, chunked, wire

LIMIT = 64 * 1024


def post(client: Client, org: Organization, text: bytes | str) -> Answer:
    content = text.encode() if isinstance(text, str) else text
    return client.send("POST", KEYS, session=org.session_cookie, content=content)


def session_headers(org: Organization, **more: str) -> list[tuple[str, str]]:
    headers = {"Content-Type": "application/json", **more}
    return [("Cookie", f"__session={org.session_cookie}"), *headers.items()]


def refused(answer: Answer) -> list[str]:
    """The fields that a validation error names."""
    answer.is_error(400, "VALIDATION_ERROR")
    return [detail["field"] for detail in answer.json()["details"]]


# --- fields (D7, D8) ----------------------------------------------------------------------

BAD_NAMES: list[Any] = [
    *("", "   ", "x" * 101, "\U0001f600" * 101, "a\nb", "a\x00b", "a\x85b", "a\u202eb", "a\u200fb"),
    *("a\ud800b", "\udc00\ud800", None, True, 0, 1.5, ["x"], {"name": "x"}),
]
BAD_SCOPES: list[Any] = [
    *(None, "*", True, {"*": True}, [], [None], [True], [["*"]], [{}], [""], ["**"], ["*:read"]),
    *(["models"], ["models:fly"], ["MODELS:READ"], [" models:read"], ["models:read\n"]),
    *(["models:read,jobs:read"], ["admin:*"], ["*", "nope:read"], ["models:read", 1], ["\ud800"]),
    *(["\uff4dodels:read"], ["x" * 10_000], ["models:read"] * 51, ["x"] * 10_000),
]
BAD_DAYS = [
    *("0", "-0.0", "-1e-9", "36500.00000001", "1e309", "-1e309", "1e-400", "0.0006944", "1" * 400),
    *("1" * 5_000 + ".5", "true", '"30"', "[30]", "{}"),
]
UNREADABLE_DAYS = ["NaN", "-Infinity", "nan", "0x1", "01", "+1", ".5", "1" * 5_000]
"""No numbers of JSON; the last one is a whole number that Python does not read."""


def test_d7_d8_d16_an_error_names_the_field_at_fault(client: Client, org: Organization) -> None:
    before = [entry["id"] for entry in client.keys(org)]
    long = "x" * 1_000
    bodies: list[tuple[str, str]] = [
        *((json.dumps({"name": name}), "name") for name in BAD_NAMES),
        *((json.dumps({"name": "x", "scopes": scopes}), "scopes") for scopes in BAD_SCOPES),
        *((f'{{"name": "x", "expiresInDays": {days}}}', "expiresInDays") for days in BAD_DAYS),
        *((f'{{"name": "x", "expiresInDays": {days}}}', "") for days in UNREADABLE_DAYS),
        *(
            (json.dumps({"name": "x", field: None}), field)
            for field in ("expiresIndays", "Name", "id", "requestCount", "__proto__", "", " name")
        ),
        ('{"scopes": ["*"]}', "name"),
        (json.dumps({"name": "x", long: 1}), long[:40]),  # It may be a secret in the wrong place.
    ]
    for text, field in bodies:
        named = refused(post(client, org, text))
        assert named and {one.split(".")[0] for one in named} == {field}, text[:80]
    assert [entry["id"] for entry in client.keys(org)] == before, "none made a key"


def test_d16_fields_are_dotted_paths_and_all_are_named_at_once(
    client: Client, org: Organization
) -> None:
    body: dict[str, Any] = {"name": "x", "scopes": ["models:read", 1, None]}
    assert refused(post(client, org, json.dumps(body))) == ["scopes.1", "scopes.2"]
    body = {"name": "", "scopes": [], "expiresInDays": 0, "oops": 1}
    assert {*refused(post(client, org, json.dumps(body)))} == body.keys()
    unknown = {"name": "x", "scopes": ["models:read", "models:fly", "jobs:read"]}
    answer = post(client, org, json.dumps(unknown)).is_error(400, "VALIDATION_ERROR")
    (detail,) = answer.json()["details"]
    assert "There is no scope 'models:fly'. Use some of *, " in detail["message"]


def test_a_field_that_no_text_can_hold(client: Client, org: Organization) -> None:
    """A lone surrogate cannot be sent back as UTF-8: refused all the same, and in UTF-8."""
    refused(post(client, org, '{"name": "x", "\\ud800": 1}'))
    refused(post(client, org, '{"name": "x", "scopes": [{"\\udfff": 1}]}'))


# --- not one object in JSON (D16, D17) ----------------------------------------------------

NO_OBJECT = [
    *(b"[]", b"null", b'"x"', b'[{"name": "x"}]', b"", b" ", b"{", b'{"name": "x"}}', b"name=x"),
    *(b'{"name": "x"}{"name": "y"}', b'{"name": "x",}', b"{'name': 'x'}", b'{name: "x"}'),
    *(b'{"name": "a\nb"}', b'{"name": "\\x"}', b'{"name": "x"} // comment', b'{"name": "x"}\x00'),
    *(b'{"name": "\xff"}', b'{"name": "\xc0\xaf"}', b'{"name": "\xed\xa0\x80"}', b"\x1f\x8b\x08"),
    *('{"name": "x"}'.encode(encoding) for encoding in ("utf-16", "utf-16-le", "utf-32-be")),
    *(b'{"name": "a", "n\\u0061me": "a"}', b'{"name": "a", "scopes": ["*"], "scopes": ["*"]}'),
    *(b'{"name": "a", "x": {"y": 1, "y": 2}}', b'{"name": "a", "scopes": [{"y": 1, "y": 2}]}'),
]
"""The last ones have a name twice."""
DEEP = [
    *("[" * 60_000, "[" * 30_000 + "]" * 30_000, '{"a":' * 10_000 + "1" + "}" * 10_000),
    '{"name": ' + "[" * 30_000 + "]" * 30_000 + "}",
    '{"name": "x", "scopes": ' + "[" * 30_000 + "]" * 30_000 + "}",
    '{"name": "x", "oops": ' + "[" * 900 + "]" * 900 + "}",
    json.dumps({f"f{n}": 0 for n in range(5_000)}),
]


def test_d17_a_body_that_is_not_one_json_object(client: Client, org: Organization) -> None:
    for text in NO_OBJECT:
        assert refused(post(client, org, text)) == [""], text


def test_deep_nesting_and_many_fields_are_a_plain_refusal(
    client: Client, org: Organization
) -> None:
    for text in DEEP:
        assert len(text) <= LIMIT
        started = time.monotonic()
        refused(post(client, org, text))
        assert time.monotonic() - started < 30


# --- size and framing (D17) ---------------------------------------------------------------


def padded(size: int) -> bytes:
    """A valid body of this many bytes, and of none fewer."""
    return b'{"name": "padded"'.ljust(size - 1) + b"}"


def by_chunks(client: Client, org: Organization, body: bytes, size: int) -> Answer:
    headers = session_headers(org, **{"Transfer-Encoding": "chunked"})
    return client.exact("POST", KEYS, headers, chunked(body, size))


def test_d17_64_kib_are_accepted_and_more_is_413(client: Client, org: Organization) -> None:
    post(client, org, padded(LIMIT)).is_ok(201)
    by_chunks(client, org, padded(LIMIT), 4_096).is_ok(201)
    for size in (LIMIT + 1, LIMIT * 2, 5_000_000):
        answer = client.exact("POST", KEYS, session_headers(org), padded(size))
        answer.is_error(413, "PAYLOAD_TOO_LARGE")
    for size, piece in ((LIMIT + 1, 4_096), (1_000_000, 50_000), (LIMIT + 1, 100)):
        by_chunks(client, org, padded(size), piece).is_error(413, "PAYLOAD_TOO_LARGE")


def test_d17_a_413_is_sent_before_the_whole_body_arrives(client: Client, org: Organization) -> None:
    if client.demo.face.by_waitress:
        pytest.skip("its server reads a body before it asks anybody")
    headers = session_headers(org, **{"Content-Length": "10000000"})
    answer = client.exact("POST", KEYS, headers, padded(LIMIT + 1_000))
    answer.is_error(413, "PAYLOAD_TOO_LARGE")


def test_a_body_that_arrives_in_parts_or_chunks_is_read_whole(
    client: Client, org: Organization
) -> None:
    for size in (1, 7, 1_000):
        by_chunks(client, org, b'{"name": "by chunks"}', size).is_ok(201)
        assert refused(by_chunks(client, org, b'{"name": "by chunks"', size)) == [""]
    body = b'{"name": "in parts"}'
    head = wire("POST", KEYS, session_headers(org, **{"Content-Length": str(len(body))}))
    created = client.raw(head + body[:9], body[9:], method="POST").is_ok(201).json()
    assert client.read(org, created["id"])["name"] == "in parts"


def test_a_body_of_an_operation_without_one_is_ignored(client: Client, org: Organization) -> None:
    bearer = ("Authorization", f"Bearer {org.api_key}")
    json_type = ("Content-Type", "application/json")
    for content in (b"{}", b"not json", b"\xff" * 100):
        client.exact("GET", KEYS, [bearer], content).is_ok()
        victim = client.create(org)
        client.exact("DELETE", f"{KEYS}/{victim.id}", [bearer, json_type], content).is_ok()
        assert client.read(org, victim.id)["isActive"] is False


def test_a_length_that_cannot_be_is_refused(client: Client, org: Organization) -> None:
    before = len(client.keys(org))
    for lengths in (["-1"], ["x"], ["1", "2"], ["0x10"], ["1e1"]):
        headers = session_headers(org) + [("Content-Length", length) for length in lengths]
        answer = client.exact("POST", KEYS, headers, b'{"name": "x"}', server_may_refuse=True)
        assert answer.status == 400, answer
    assert len(client.keys(org)) == before


# --- any body at all ----------------------------------------------------------------------


@FUZZ
@given(text=st.binary(max_size=200))
def test_any_bytes_are_created_or_refused_as_specified(demo: Demo, text: bytes) -> None:
    """Which of both, only luck knows; the form, `Answer.check` saw to."""
    with demo.client() as client:
        for sent in (text, b'{"name": "' + text + b'"}'):
            answer = post(client, demo["enterprise"], sent)
            assert answer.status == 201 or refused(answer)
