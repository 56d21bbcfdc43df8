"""Which session cookie a request carries."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockgate.errors import SessionInvalid
from lockgate.sessions import SESSION_COOKIE, session_cookie

FOUND: dict[str | None, list[list[bytes]]] = {
    None: [
        [],
        *([one] for one in (b"__session=", b"__session", b"=__session", b"a=__session=abc")),
        *([one] for one in (b"not__session=abc", b"__Session=abc", b"__Host-__session=abc")),
        [b"my __session=abc"],
    ],
    "abc": [
        *([one] for one in (b"__session=abc", b"a=b;__session=abc;c=d", b"  __session = abc  ")),
        *([one] for one in (b"\t__session\t=\tabc\t", b"; ;;__session=abc;;")),
        [b"\xff=\xff; __session=abc"],
        [b"a=b", b"__session=abc", b"c=d"],
    ],
    "a=b=c==": [[b"__session=a=b=c=="]],
    '"abc"': [[b'__session="abc"']],
    "def": [[b"a__session=abc; __session=def"]],
    "abc, __session=def": [[b"__session=abc, __session=def"]],
}


@pytest.mark.parametrize(
    ("headers", "value"), [(one, value) for value, headers in FOUND.items() for one in headers]
)
def test_the_session_cookie_is_found_among_others(headers: list[bytes], value: str | None) -> None:
    assert session_cookie(headers) == value


@pytest.mark.parametrize(
    "headers",
    [
        [b"__session=abc; __session=def"],
        [b"__session=abc; __session=abc"],
        [b"__session=abc", b"__session=abc"],
        [b"__session=; __session=abc"],
        [b"__session=abc; __session="],
        [b"__session=abc; __session ="],
        [b"__session=\xff"],
        ["__session=s\u00e9".encode()],
    ],
)
def test_repeated_or_unreadable_session_cookies_are_refused(headers: list[bytes]) -> None:
    with pytest.raises(SessionInvalid):
        session_cookie(headers)


@given(st.lists(st.binary(max_size=40), max_size=4))
def test_any_bytes_give_a_value_or_the_refusal(headers: list[bytes]) -> None:
    try:
        value = session_cookie(headers)
    except SessionInvalid:
        return
    assert value is None or value.isascii()


@given(st.lists(st.tuples(st.from_regex(rb"[a-z_]{1,12}", fullmatch=True), st.just(b"v"))))
def test_other_cookies_are_ignored(others: list[tuple[bytes, bytes]]) -> None:
    pairs = [b"=".join(pair) for pair in others if pair[0] != SESSION_COOKIE.encode()]
    assert session_cookie([b"; ".join([*pairs, b"__session=abc", *pairs])]) == "abc"
