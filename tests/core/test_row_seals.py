"""Seals: the fields they cover, unambiguous encoding, and no exceptions (D3, K9)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockgate.core.accounts import Account, AccountDraft
from lockgate.core.api_keys import ApiKey, KeyDraft
from lockgate.core.digests import Digest, Peppers
from lockgate.core.row_seals import (
    Rejection,
    account_row,
    judge_seal,
    key_row,
    resealed_account,
    resealed_key,
    sealed_account_draft,
    sealed_draft,
    tally,
)

OLD, NEW = b"an older pepper of the tests", b"a newer pepper of the tests"
PEPPERS = Peppers([NEW, OLD])
DRAFT = KeyDraft(
    "id", "Handle01", "org_1", "n", "acme_live_Handl", ("jobs:read", "*"), "s", b"d", None, 7
)
KEY = sealed_draft(DRAFT, PEPPERS).created(1_000)
ACCOUNT_DRAFT = AccountDraft("org_1", "agent", "ada@example.com", None, "Handle01", "s", b"d")
ACCOUNT = sealed_account_draft(ACCOUNT_DRAFT, PEPPERS).created(1_000)


def test_a_seal_names_its_pepper_without_revealing_it() -> None:
    assert KEY.seal is not None
    id, _, mac = KEY.seal.partition(":")
    assert id == PEPPERS.newest == PEPPERS.scheme.partition(":")[2]
    assert bytes.fromhex(mac) and len(mac) == 64
    assert len(KEY.seal) <= 80 and KEY.seal.isascii()


def test_a_seal_verifies_after_a_rotation_too() -> None:
    for peppers in (PEPPERS, Peppers([NEW]), Peppers([OLD, NEW])):
        assert judge_seal(KEY, peppers) is None
        assert judge_seal(ACCOUNT, peppers) is None
    assert judge_seal(KEY, Peppers([OLD])) is Rejection.PEPPER
    assert judge_seal(KEY, Peppers()) is None
    moved = resealed_key(KEY, Peppers([OLD]), Digest("t", b"e"))
    assert (moved.scheme, moved.digest) == ("t", b"e")
    assert judge_seal(moved, PEPPERS) is None
    assert moved.kept == ("t", b"e", moved.seal)


BOTH = {"handle": "Handle02", "organization": "org_2", "scheme": "t", "digest": b"e"}
OF_A_KEY: list[tuple[str, Any]] = [
    *BOTH.items(),
    *(("scopes", scopes) for scopes in (("jobs:read",), ("*", "jobs:read"), ("jobs:read*",), ())),
    *(("expires_at", 8), ("expires_at", None)),
]
OF_AN_ACCOUNT: list[tuple[str, Any]] = [
    *BOTH.items(),
    *(("billing_email", "eve@example.com"), ("claimed_by", "eve"), ("claimed_by", "")),
]


@pytest.mark.parametrize(
    ("row", "field", "value"),
    [
        *((KEY, *change) for change in OF_A_KEY),
        *((ACCOUNT, *change) for change in OF_AN_ACCOUNT),
    ],
)
def test_a_field_that_changes_breaks_the_seal_of_its_row(row: Any, field: str, value: Any) -> None:
    assert judge_seal(row._replace(**{field: value}), PEPPERS) is Rejection.SEAL


def test_fields_outside_the_seal_may_change_and_a_claim_is_sealed_anew() -> None:
    changed = KEY._replace(name="m", revoked_at=5, request_count=9, last_used_at=9)
    assert judge_seal(changed, PEPPERS) is None
    assert judge_seal(ACCOUNT._replace(sign_outs=3, token_revoked_at=5), PEPPERS) is None
    claimed = resealed_account(ACCOUNT._replace(claimed_by="ada"), PEPPERS)
    assert judge_seal(claimed, PEPPERS) is None
    assert judge_seal(claimed._replace(claimed_by=None), PEPPERS) is Rejection.SEAL


def test_the_seal_of_a_key_does_not_verify_for_an_account() -> None:
    assert judge_seal(ACCOUNT._replace(seal=KEY.seal), PEPPERS) is Rejection.SEAL
    # Nor is a digest a seal: each uses a separate key.
    assert PEPPERS.digest(key_row(KEY)).value.hex() != (KEY.seal or "").partition(":")[2]


def test_unsealed_rows_are_accepted_only_with_accept_unsealed() -> None:
    bare = KEY._replace(seal=None)
    assert judge_seal(bare, PEPPERS) is Rejection.UNSEALED
    assert judge_seal(bare, Peppers()) is None
    assert judge_seal(bare, Peppers([NEW], accept_unsealed=True)) is None
    only_plain = Peppers([NEW], accept_plain=True)
    assert judge_seal(bare, only_plain) is Rejection.UNSEALED
    assert judge_seal(bare._replace(scheme="sha256"), only_plain) is None
    # A seal that is there must be right all the same.
    wrong = KEY._replace(organization="org_2")
    assert judge_seal(wrong, Peppers([NEW], accept_unsealed=True)) is Rejection.SEAL


TEXT = st.text(st.characters(), max_size=6)
KEYS: st.SearchStrategy[ApiKey] = st.builds(
    lambda *parts: KEY._replace(
        handle=parts[0], organization=parts[1], scheme=parts[2], digest=parts[3],
        expires_at=parts[4], scopes=tuple(parts[5]),
    ),
    TEXT, TEXT, TEXT, st.binary(max_size=6), st.none() | st.integers(), st.lists(TEXT, max_size=3),
)  # fmt: skip


@given(KEYS, KEYS)
def test_the_encodings_of_two_rows_differ(one: ApiKey, other: ApiKey) -> None:
    """Each field is preceded by its length, so no byte can move to the next field."""
    fields = ("handle", "organization", "scopes", "scheme", "digest", "expires_at")
    same = all(getattr(one, field) == getattr(other, field) for field in fields)
    assert (key_row(one) == key_row(other)) is same


MALFORMED = ["", ":", "x", "\ud800:\ud800", "\u00e9" * 9 + ":", "0" * 10**6]


@given(st.text() | st.binary() | st.none() | st.integers() | st.sampled_from(MALFORMED))
def test_any_other_value_is_a_wrong_seal(seal: Any) -> None:
    assert judge_seal(KEY._replace(seal=seal), PEPPERS) is not None
    assert judge_seal(ACCOUNT._replace(seal=seal), PEPPERS) is not None
    beside = f"{PEPPERS.newest}:{seal}"
    assert judge_seal(KEY._replace(seal=beside), PEPPERS) is Rejection.SEAL


def test_a_census_counts_a_seal_where_its_pepper_is_not_the_digests() -> None:
    rows = [
        ("hmac-sha256:01020304", "01020304:aa", 2),
        ("hmac-sha256:01020304", "05060708:aa", 1),
        ("hmac-sha256:01020304", None, 1),
        ("legacy:old:sha512", "01020304", 4),
        ("sha256", None, 3),
        (None, "01020304:aa", 1),
        (None, None, 1),
    ]
    assert tally(rows) == {
        "hmac-sha256:01020304": 4,
        "seal:05060708": 1,
        "unsealed": 1,
        "legacy:old:sha512": 4,
        "seal:01020304": 5,
        "sha256": 3,
    }


def test_the_encoding_of_rows_does_not_change() -> None:
    """Databases hold seals over this form: another form would invalidate every key."""
    parts = b"key", b"Handle01", b"org_1", b"s", b"d", b"7", b"jobs:read", b"*"
    assert key_row(KEY) == b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    of_account = b"account", b"org_1", b"Handle01", b"s", b"d", b"ada@example.com", b"unclaimed"
    written = b"".join(len(part).to_bytes(4, "big") + part for part in of_account)
    assert account_row(ACCOUNT) == written
    assert isinstance(ACCOUNT, Account)
    wanted = "9fe0aadf:6e3a312196ba29883990ad617484012a1b2188f712c5731fa34414dcd6bce465"
    assert KEY.seal == wanted
