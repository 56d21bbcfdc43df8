"""Cursors: a written position is read back; any other text is the caller's error."""

from __future__ import annotations

from base64 import urlsafe_b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockgate.core.api_keys import NEVER, Position
from lockgate.errors import InvalidRequest
from lockgate.services.cursors import read_cursor, write_cursor

ID = "7e8b1ad6-0f0e-4c5b-9d0e-0c1a1f0f4f1e"


@given(
    st.integers(0, NEVER),
    st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=64),
)
def test_a_cursor_is_read_as_it_was_written(instant: int, id: str) -> None:
    assert read_cursor(write_cursor(Position(instant, id))) == Position(instant, id)


def encoded(text: bytes) -> str:
    return urlsafe_b64encode(text).decode().rstrip("=")


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "a",
            "abc",
            "====",
            "MTIz",
            "a" * 121,
            "\u0661\u0662\u0663\u0664",
            "\ud800abcd",
            "ab\0cd",
        ),
        *map(
            encoded,
            (b"1.", b".x", b"x.y", b"-1.x", b"1.x y", b"1.\xff", b"1.x\n", b"1" * 17 + b".x"),
        ),
        encoded(b"9007199254740992.x"),
        write_cursor(Position(1, ID)) + "=",
        write_cursor(Position(1, ID)) + "\n",
    ],
    ids=ascii,
)
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        read_cursor(text)
    assert [problem.field for problem in refused.value.problems] == ["cursor"]


@given(st.text(max_size=130) | st.binary(max_size=90).map(encoded))
def test_no_text_is_a_failure(text: str) -> None:
    try:
        found = read_cursor(text)
    except InvalidRequest:
        return
    assert 0 <= found.instant <= NEVER
