"""E-mail addresses: validation and comparison (D14)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockgate.services.accounts.email_addresses import is_same_email, read_email

KELVIN = "\u212a"
SENTENCE = "Use a plain e-mail address with a dotted domain, such as ada@example.com."


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("ada@example.com", "ada@example.com"),
        ("Ada@EXAMPLE.Com", "ada@example.com"),
        ("a.d.a@example.com", "a.d.a@example.com"),
        ("ada+bot@example.com", "ada+bot@example.com"),
        ("a@xn--bcher-kva.example", "a@b\u00fccher.example"),
        ("a@\uff45xample.com", "a@example.com"),
        ("e\u0301@example.com", "\u00e9@example.com"),
        ("\u0430da@example.com", "\u0430da@example.com"),
        ("owner@free.example", "owner@free.example"),
        ("a" * 64 + "@example.com", "a" * 64 + "@example.com"),
    ],
)
def test_an_address_is_normalised(given: str, kept: str) -> None:
    assert read_email(given) == (kept, [])


@pytest.mark.parametrize(
    "value",
    [
        *("", "ada", "@", "ada@", "@example.com", "ada@localhost", "ada@example", "ada@127.0.0.1"),
        *("ada@[127.0.0.1]", "Ada <ada@example.com>", '"a b"@example.com', "ada\n@example.com"),
        *("ada@example.com\r\nBcc: eve@example.com", "ada@example.com\n", " ada@example.com"),
        *("ada@example.com ", "ada@exam ple.com", "ada@@example.com", "ada..l@example.com"),
        *("ada\0@example.com", "ada\u200b@example.com", "\u202eada@example.com", "a@" * 30_000),
        *("ada\ud800@example.com", "ada@\ud800.com", "a" * 65 + "@example.com"),
        *("a@" + "b" * 64 + ".com", "a" * 320 + "@example.com", "a@" + "b." * 200 + "com"),
        *("\u00e9" * 60_000, "ada@example.com,eve@example.com"),
        "acme_live_4Lr7Ypxu_WJ1Eh9FkTdv2cT7sQmPXiYuS2bNqLw0ZrUvAo3C6d",
    ],
)
def test_an_invalid_address_is_refused_with_one_sentence(value: str) -> None:
    assert read_email(value) == ("", [SENTENCE])


@given(st.text(st.characters(exclude_categories=[]), max_size=60))
def test_no_text_at_all_is_more_than_refused(text: str) -> None:
    for value in (text, f"{text}@example.com", f"ada@{text}", f"ada@{text}.com"):
        email, problems = read_email(value)
        assert bool(email) is not bool(problems)


LOCAL = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=12)


@given(LOCAL, LOCAL)
def test_normalising_is_idempotent(local: str, domain: str) -> None:
    email, problems = read_email(f"{local}@{domain}.example.com")
    if not problems:
        assert read_email(email) == (email, [])
        assert is_same_email(email, email)


@pytest.mark.parametrize(
    ("verified", "billing", "same"),
    [
        ("ada@example.com", "ada@example.com", True),
        ("ADA@Example.com", "ada@example.com", True),
        ("a@B\u00dcCHER.example", "a@b\u00fccher.example", True),
        ("a.da@example.com", "ada@example.com", False),
        ("ada+x@example.com", "ada@example.com", False),
        ("\u0430da@example.com", "ada@example.com", False),
        (f"{KELVIN}ate@example.com", "kate@example.com", False),
        ("\u0131da@example.com", "ida@example.com", False),
        ("e\u0301@example.com", "\u00e9@example.com", False),
        ("ada@example.com ", "ada@example.com", False),
        ("ada@example.com\n", "ada@example.com", False),
        ("Ada <ada@example.com>", "ada@example.com", False),
        ("ada@sub.example.com", "ada@example.com", False),
        ("", "", False),
        (None, "ada@example.com", False),
        (None, "", False),
    ],
)
def test_r3_look_alikes_are_other_addresses(verified: str | None, billing: str, same: bool) -> None:
    assert is_same_email(verified, billing) is same
