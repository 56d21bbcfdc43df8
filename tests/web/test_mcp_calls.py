"""The call of a request, by its headers or its body, as the protocol says (D49)."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared.inbound import NAME_BEARING_METHODS, decode_header_value, encode_header_value
from mcp_types import HEADER_MISMATCH, INVALID_REQUEST, PARSE_ERROR
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from pydantic_core import from_json

from lockgate.errors import InvalidRequest, PayloadTooLarge
from lockgate.web.mcp_calls import (
    BATCH_LIMIT,
    BODY_LIMIT,
    HANDSHAKE_VERSIONS,
    NAMED_BY,
    Call,
    HeaderMismatch,
    NotJson,
    ReadAhead,
    RoutingHeaders,
    calls_of,
    rpc_error,
)

NONE = RoutingHeaders(None, None, None)
MODERN = b"2026-07-28"


def body_of(method: str, params: Any = None, **more: Any) -> bytes:
    return json.dumps(
        {"jsonrpc": "2.0", "id": 1, "method": method, "params": params, **more}
    ).encode()


def test_the_constants_are_those_of_the_sdk() -> None:
    assert {v.decode() for v in HANDSHAKE_VERSIONS} == set(HANDSHAKE_PROTOCOL_VERSIONS)
    assert dict(NAME_BEARING_METHODS) == NAMED_BY
    codes = [rpc_error(kind("x"))["code"] for kind in (HeaderMismatch, NotJson)]
    assert codes == [HEADER_MISMATCH, PARSE_ERROR]
    with pytest.raises(InvalidRequest) as raised:
        calls_of(b"7", NONE)
    assert rpc_error(raised.value)["code"] == INVALID_REQUEST


@given(st.text(min_size=1))
def test_a_name_is_read_as_the_sdk_writes_it(name: str) -> None:
    try:
        value = encode_header_value(name)
    except UnicodeEncodeError:
        return  # A surrogate, which no client can send.
    read = RoutingHeaders(MODERN, b"tools/call", value.encode()).call
    assert read == Call("tools/call", decode_header_value(value) or "")


@given(st.binary(max_size=40))
def test_a_name_that_is_read_is_the_one_that_the_sdk_reads(value: bytes) -> None:
    try:
        read = RoutingHeaders(MODERN, b"tools/call", value).call
    except HeaderMismatch:
        return
    assert read is not None
    assert read.name == decode_header_value(value.decode("latin-1"))


@pytest.mark.parametrize("version", [None, *sorted(HANDSHAKE_VERSIONS)])
def test_headers_decide_nothing_where_no_server_holds_them_against_the_body(
    version: bytes | None,
) -> None:
    headers = RoutingHeaders(version, b"tools/call", b"cheap")
    assert headers.call is None
    with pytest.raises(HeaderMismatch):
        calls_of(body_of("tools/call", {"name": "expensive"}), headers)
    assert calls_of(body_of("tools/call", {"name": "cheap"}), headers).calls == [
        Call("tools/call", "cheap")
    ]


def test_a_body_of_today_without_its_header_is_refused_unless_it_is_a_notification() -> None:
    with pytest.raises(HeaderMismatch):
        calls_of(body_of("tools/list"), RoutingHeaders(MODERN, None, None))
    note = b'{"jsonrpc":"2.0","method":"notifications/cancelled"}'
    found = calls_of(note, RoutingHeaders(MODERN, None, None))
    assert found.calls == [Call("notifications/cancelled")]
    assert found.id is None


@pytest.mark.parametrize("size", [0, 40_000])
@pytest.mark.parametrize(
    ("body", "calls"),
    [
        ({"method": "ping", "id": 1}, [Call("ping")]),
        ({"method": "tools/call", "id": 1}, [Call("tools/call")]),
        ({"method": "tools/call", "id": 1, "params": {"name": 7}}, [Call("tools/call")]),
        ({"id": 1, "result": {"a": 1}}, [Call("response")]),
        ({"id": 1, "error": {"code": 1}}, [Call("response")]),
        (
            {"method": "resources/read", "id": 1, "params": {"uri": "a://b", "name": "c"}},
            [Call("resources/read", "a://b")],
        ),
        (
            [{"method": "ping", "id": 1}, {"method": "prompts/get", "params": {"name": "a"}}],
            [Call("ping"), Call("prompts/get", "a")],
        ),
        ({"method": 7, "id": 1}, None),
        ({"method": None, "result": {}}, None),
        ({"id": 1}, None),
        ([], None),
        ([[{"method": "ping"}]], None),
        ([{"method": "ping"}] * (BATCH_LIMIT + 1), None),
        ("ping", None),
    ],
)
def test_bodies_of_every_size_are_read_alike(
    size: int, body: Any, calls: list[Call] | None
) -> None:
    text = b" " * size + json.dumps(body).encode()
    if calls is None:
        with pytest.raises(InvalidRequest):
            calls_of(text, NONE)
    else:
        assert calls_of(text, NONE).calls == calls


@pytest.mark.parametrize("size", [0, 40_000])
@pytest.mark.parametrize(
    "body", [b"", b"{", b"\xff", b'{"a":1}x', b"[" * 30_000, b'{"method":"\\u']
)
def test_what_is_not_json_is_refused_at_every_size(size: int, body: bytes) -> None:
    with pytest.raises(NotJson):
        calls_of(b" " * size + body, NONE)


def test_of_a_member_that_is_named_twice_the_last_one_counts_as_for_the_servers() -> None:
    body = b'{"id":1,"method":"tools/call","params":{"name":"a","name":"b"}}'
    assert calls_of(body, NONE).calls == [Call("tools/call", "b")]
    for read in (json.loads, from_json):  # Those of the SDK, by protocol version.
        assert read(body)["params"]["name"] == "b"


async def test_a_body_that_was_read_is_given_to_the_application_again() -> None:
    sent = [
        {"type": "http.request", "body": b"{}", "more_body": True},
        {"type": "http.request", "body": b" ", "more_body": False},
        {"type": "http.disconnect"},
    ]
    coming = iter(sent)

    async def receive() -> Any:
        return next(coming)

    ahead = ReadAhead(receive)
    assert await ahead.body() == b"{} "
    assert [await ahead() for _ in sent] == sent


async def test_a_body_above_the_bound_is_refused_as_soon_as_it_is() -> None:
    async def receive() -> Any:
        return {"type": "http.request", "body": b"x" * 400_000, "more_body": True}

    ahead = ReadAhead(receive)
    with pytest.raises(PayloadTooLarge):
        await ahead.body()
    assert BODY_LIMIT == 1024 * 1024
    assert len((await ahead())["body"]) == 400_000


@pytest.mark.parametrize(
    "text", [b"YWJjZA", b"YWJjZB==", b" YWJjZA==", b"YWJjZA==\n", b"!"], ids=repr
)
def test_base64_that_another_reader_may_read_differently_is_refused(text: bytes) -> None:
    with pytest.raises(HeaderMismatch):
        _ = RoutingHeaders(MODERN, b"tools/call", b"=?base64?%s?=" % text).call
